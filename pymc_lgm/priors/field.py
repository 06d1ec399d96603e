"""A prior of a sparse field and a few coefficients: f = m + x + U β.

    x ~ N(0, Q⁻¹) with a sparse Q,   β ~ N(0, S),   K = Q⁻¹ + U S Uᵀ.

Neither x nor β is known given f; K⁻¹ is Q and something of β's rank,

    K⁻¹ = Q + V C Vᵀ,   V = Q U,   C = −S (I + Uᵀ Q U S)⁻¹,

so every verb costs what a factor of Q does, and k more columns. S may have negative eigenvalues, as
long as K has none: an intrinsic field, whose own precision has no inverse, is written that way.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np

from pymc_lgm.linalg import LOG_2PI, Array, tally
from pymc_lgm.priors.base import Prior
from pymc_lgm.priors.markov import Elements
from pymc_lgm.priors.precision import Precision, SiteBlocks
from pymc_lgm.priors.precision_posterior import Factor, PrecisionPosterior
from pymc_lgm.priors.updated import UpdatedFactor
from pymc_lgm.priors.without_slopes import WithoutSlopes

__all__ = ["Field", "FieldModel", "FieldPosterior", "FieldPrior"]


class Field(NamedTuple):
    """What a prior is made of at one theta.

    Attributes
    ----------
    mean : ndarray, shape (n,)
    precision : ndarray
        Elements of Q, as the pattern has them.
    columns : ndarray, shape (n, k)
        U.
    covariance : ndarray, shape (k, k)
        S.
    factor : Factor, optional
        Of Q, any; ``None`` if there is none.
    """

    mean: Array
    precision: Array
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

    def differentiable(self) -> FieldPosterior:
        """As it is."""
        return self


class FieldPrior(WithoutSlopes):
    """f = m + x + U β: see `Prior`. Made by `at`. It has no derivatives in theta."""

    is_proper = True

    def __init__(
        self, model: FieldModel, theta: Array, field: Field, V: Array, C: Array, R: UpdatedFactor
    ):
        self.model, self.theta, self._field = model, theta, field
        self._V, self._C, self._R = V, C, R
        self.mean = field.mean
        self.n = self.rank = field.mean.size

    @classmethod
    def at(cls, model: FieldModel, theta: Array) -> FieldPrior | None:
        """At a theta; ``None`` where K is not positive definite, or no number."""
        field = model.field(theta)
        if field is None or field.factor is None:
            return None
        U, S = field.columns, field.covariance
        V = model.pattern.times(field.precision, U)
        C = -np.linalg.solve(np.eye(len(S)) + S @ (U.T @ V), S)
        C = 0.5 * (C + C.T)
        R = UpdatedFactor.of(field.factor, V, C)
        return None if R is None else cls(model, theta, field, V, C, R)

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
        own = self._field.precision[self.model.pattern.diagonal]
        result: Array = own + np.einsum("ij,jk,ik->i", self._V, self._C, self._V)
        return result

    def condition(self, W: Precision) -> FieldPosterior | None:
        """Factorize Q + W + V C Vᵀ: counted as one operation."""
        if isinstance(W, SiteBlocks):
            raise NotImplementedError("sites of several f_i beside a sparse precision")
        tally.cubic_ops += 1
        A = self._field.precision.copy()
        A[self.model.pattern.diagonal] += W
        factor = self.model.pattern.factorize(A)
        R = None if factor is None else UpdatedFactor.of(factor, self._V, self._C)
        return None if R is None else FieldPosterior(self, W, R)

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
        """(Q + V C Vᵀ) z."""
        Qz = self.model.pattern.times(self._field.precision, z)
        result: Array = Qz + self._V @ (self._C @ (self._V.T @ z))
        return result

    def covariance_times(self, x: Array) -> Array:
        """R⁻ᵀ R⁻¹ x."""
        return self.multiply(self.multiply_transposed(x))

    def log_density(self, f: Array) -> float:
        """log N(f; m, K)."""
        nu = self.solve(f - self.mean)
        return -0.5 * (float(nu @ nu) + self.log_determinant + self.n * LOG_2PI)
