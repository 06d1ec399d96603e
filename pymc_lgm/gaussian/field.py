"""A prior of a sparse field and a few coefficients: f = m + E φ + B β.

    φ ~ N(0, Q⁻¹ + U T Uᵀ) with a sparse Q,   β ~ N(0, V),   E = diag(e),

so that K = E Q⁻¹ E + C S Cᵀ with C = (E U, B). Neither φ nor β is known given f. An observation of
precision W_i adds e_i² W_i to the precision of φ_i, so with P = Q + E W E, A = E Q⁻¹ E and

    D = (I + A W)⁻¹ C = C − E P⁻¹ E W C,   T = Cᵀ W D,   Γ = S (I + T S)⁻¹

it is Σ = (K⁻¹ + W)⁻¹ = E P⁻¹ E + D Γ Dᵀ, and log|I + K W| = log|P| − log|Q| + log|I + S T|. Nothing
is divided by an e_i that is next to zero, of an observation that hardly reads the field, and one
that is zero is as good as any, as long as the coefficients leave K positive definite. Every verb
costs what a factor of Q does, and k more columns. S may have negative eigenvalues, as long as K has
none: an intrinsic field, whose own precision has no inverse, is written that way.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np

from pymc_lgm.gaussian.gmrf import Elements
from pymc_lgm.gaussian.low_rank_update import APART, UpdatedFactor
from pymc_lgm.gaussian.posterior import Factor, PrecisionPosterior
from pymc_lgm.gaussian.protocols import Prior, WithoutSlopes
from pymc_lgm.gaussian.sites import Precision, SiteBlocks
from pymc_lgm.linalg import LOG_2PI, Array, tally

__all__ = ["Field", "FieldModel", "FieldPosterior", "FieldPrior"]


class Field(NamedTuple):
    """What a prior is made of at one theta.

    Attributes
    ----------
    mean : ndarray, shape (n,)
    precision : ndarray
        Elements of Q, as the pattern has them.
    e : ndarray, shape (n,)
        What φ is multiplied by.
    columns : ndarray, shape (n, k)
        C.
    covariance : ndarray, shape (k, k)
        S.
    factor : Factor, optional
        Of Q, any; ``None`` if there is none.
    """

    mean: Array
    precision: Array
    e: Array
    columns: Array
    covariance: Array
    factor: Factor | None


class FieldModel(Protocol):
    """A field and coefficients as a function of theta."""

    @property
    def pattern(self) -> Elements:
        """Where Q has elements, at every theta."""

    def field(self, theta: Array) -> Field | None:
        """At a theta; ``None`` where something is no number."""


class FieldPosterior(WithoutSlopes, PrecisionPosterior):
    """The same conditioned on precisions W ≥ 0: see `Posterior`."""

    def __init__(self, prior: FieldPrior, W: Array, factor: UpdatedFactor, log_determinant: float):
        super().__init__(prior, W, factor)
        self._log_determinant = log_determinant

    @property
    def log_determinant(self) -> float:
        """log|B|."""
        return self._log_determinant


class FieldPrior(WithoutSlopes):
    """f = m + E φ + B β: see `Prior`. Made by `at`. It has no derivatives in theta."""

    is_proper = True

    def __init__(self, model: FieldModel, theta: Array, field: Field, R: UpdatedFactor):
        self.model, self.theta, self._field, self._R = model, theta, field, R
        self.mean = field.mean
        self.n = self.rank = field.mean.size

    @classmethod
    def at(cls, model: FieldModel, theta: Array) -> FieldPrior | None:
        """At a theta; ``None`` where K is not positive definite, or no number."""
        field = model.field(theta)
        if field is None or field.factor is None:
            return None
        R = UpdatedFactor.of(field.factor, field.e, field.columns, field.covariance)
        return None if R is None else cls(model, theta, field, R)

    def moved(self, theta: Array) -> FieldPrior | None:
        """At another theta."""
        return self.at(self.model, theta)

    def has_covariance_of(self, other: Prior) -> bool:
        """Whether K is the same matrix, and not only equal."""
        return isinstance(other, FieldPrior) and self._R is other._R

    def __repr__(self) -> str:
        return f"{type(self).__name__}(n={self.n}, elements={self.model.pattern.size})"

    @property
    def log_determinant(self) -> float:
        """log|K|."""
        return -self._R.log_determinant

    @property
    def variances(self) -> Array:
        """K_ii."""
        return self._R.inverse_diagonal

    @cached_property
    def precisions(self) -> Array:
        """(K⁻¹)_ii."""
        return self._R.diagonal(self._field.precision[self.model.pattern.diagonal])

    def condition(self, W: Precision) -> FieldPosterior | None:
        """Factorize P = Q + E W E: counted as one operation."""
        if isinstance(W, SiteBlocks):
            raise NotImplementedError("sites of several f_i beside a sparse precision")
        tally.cubic_ops += 1
        field, pattern = self._field, self.model.pattern
        # e φ = |e| times φ of the same sign: so the factor is that of E⁻¹ P E⁻¹, but for E.
        Q = field.precision * pattern.scales(np.where(field.e < 0.0, -1.0, 1.0))
        e, P = np.abs(field.e), Q.copy()
        P[pattern.diagonal] += e * W * e
        factor = pattern.factorize(P)
        if factor is None or field.factor is None:
            return None
        C, S = field.columns, field.covariance
        D = self._explained(factor, Q, e, W)
        T = C.T @ (W[:, None] * D)
        I_ST = np.eye(len(S)) + 0.5 * S @ (T + T.T)
        sign, log_ST = np.linalg.slogdet(I_ST)
        if not sign > 0.0:
            return None
        Gamma = np.linalg.solve(I_ST, S)
        R = UpdatedFactor.of(factor, e, D, 0.5 * (Gamma + Gamma.T))
        if R is None:
            return None
        ratio = factor.log_determinant - field.factor.log_determinant
        return FieldPosterior(self, W, R, ratio + float(log_ST))

    def _explained(self, factor: Factor, Q: Array, e: Array, W: Array) -> Array:
        """D = E P⁻¹ (Q X − E W C°) + C° with C = E X + C°, for any X.

        Rounding loses C_i W_i e_i² (P⁻¹)_ii / D_i of an element that is in C°, and max |e| / |e_i|
        of one that is in X: each is where it loses less, C° where neither says so.
        """
        C, pattern = self._field.columns, self.model.pattern
        gained = e * W * e / Q[pattern.diagonal]
        in_X = e.max(initial=0.0) <= APART * e * (1.0 + gained)
        every = bool(in_X.all())
        X = C / (e if every else np.where(in_X, e, np.inf))[:, None]
        right = pattern.times(Q, X)
        if not every:
            rest = np.where(in_X[:, None], 0.0, C)
            right -= (e * W)[:, None] * rest
        D: Array = e[:, None] * factor.solve_transposed(factor.solve(right))
        return D if every else D + rest

    def multiply(self, xi: Array) -> Array:
        """R⁻ᵀ ξ, K⁻¹ = R Rᵀ."""
        return self._R.solve_transposed(xi)

    def multiply_transposed(self, g: Array) -> Array:
        """R⁻¹ g."""
        return self._R.solve(g)

    def solve(self, z: Array) -> Array:
        """Rᵀ z."""
        return self._R.multiply_transposed(z)

    def inverse_times(self, z: Array) -> Array:
        """R Rᵀ z."""
        return self._R.multiply(self._R.multiply_transposed(z))

    def covariance_times(self, x: Array) -> Array:
        """R⁻ᵀ R⁻¹ x."""
        return self.multiply(self.multiply_transposed(x))

    def log_density(self, f: Array) -> float:
        """log N(f; m, K)."""
        nu = self.solve(f - self.mean)
        return -0.5 * (float(nu @ nu) + self.log_determinant + self.n * LOG_2PI)
