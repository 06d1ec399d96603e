"""A prior with fewer degrees of freedom than elements: f = c + U w, w ~ N(0, K_w), with a fixed U.

An example is the predictor of n observations with fewer than n coefficients and effects. The
methods of `Prior` use r × r matrices. An inverse is the inverse on the range of U.
"""

from __future__ import annotations

import math

from functools import cached_property

import numpy as np

from pymc_lgm.gaussian.dense import ROUNDING, DensePrior
from pymc_lgm.gaussian.posterior import RootPosterior
from pymc_lgm.gaussian.protocols import GaussianModel, Prior
from pymc_lgm.gaussian.sites import Precision, diagonal, rooted
from pymc_lgm.linalg import Array, factorize, tally

__all__ = ["LowRankPosterior", "LowRankPrior"]


class LowRankPosterior(RootPosterior):
    """A `LowRankPrior` conditioned on W: a `RootPosterior` for V = U L, with derivatives."""

    prior: LowRankPrior

    def evidence_gradient(self, a: Array, v: Array | None = None) -> Array:
        """⟨½ a aᵀ − ½ R + v aᵀ, ∂K⟩ + (a + v)ᵀ ∂c with Uᵀ R U = L⁻ᵀ (I − B_r⁻¹) L⁻¹."""
        prior, U = self.prior, self.prior.basis
        explained = np.eye(prior.rank) - self._B.inverse()
        tally.cubic_ops += 1
        L = prior.reduced.factor
        R = L.solve_transposed(
            np.asfortranarray(L.solve_transposed(np.asfortranarray(explained)).T)
        )
        inside = U.T @ a
        total = a if v is None else a + v
        left = 0.5 * inside if v is None else 0.5 * inside + U.T @ v
        return prior.vjp(np.outer(left, inside) - 0.5 * R, total)


CERTAIN = 1e12
"""Used for (K⁻¹)_ii, which is infinite: the other elements of f determine each element."""

OUTSIDE = 1e-6
"""Relative distance of f from c + range(U) beyond which the prior density of f is 0."""


class _Reduced:
    """The model of Uᵀ f ~ N(Uᵀ c, K_w)."""

    def __init__(self, model: GaussianModel, basis: Array):
        self._model, self._basis = model, basis
        self.enters_cov, self.amplitudes = model.enters_cov, model.amplitudes
        self.cov, self.cov_vjp, self.cov_jvp = model.cov, model.cov_vjp, model.cov_jvp

    def mean(self, theta: Array) -> Array:
        result: Array = self._basis.T @ self._model.mean(theta)
        return result

    def mean_vjp(self, theta: Array, v: Array) -> Array:
        return self._model.mean_vjp(theta, self._basis @ v)

    def mean_jvp(self, theta: Array, v: Array) -> Array:
        result: Array = self._basis.T @ self._model.mean_jvp(theta, v)
        return result


class LowRankPrior:
    """The prior of f = c + U w: see `Prior`. Made by `at`."""

    def __init__(self, model: GaussianModel, basis: Array, mean: Array, reduced: DensePrior):
        self._model, self.basis, self.mean, self.reduced = model, basis, mean, reduced

    @classmethod
    def at(cls, model: GaussianModel, basis: Array, theta: Array) -> LowRankPrior | None:
        """The prior at a theta; ``None`` if it cannot be computed.

        Parameters
        ----------
        model : GaussianModel
            c(theta) of shape (E,), and the covariance of w as ``cov``, shape (r, r).
        basis : ndarray, shape (E, r)
            U, with orthonormal columns, the same at every theta.
        theta : ndarray, shape (p,)
        """
        reduced = DensePrior.at(_Reduced(model, basis), theta)
        return None if reduced is None else cls(model, basis, model.mean(theta), reduced)

    def moved(self, theta: Array) -> LowRankPrior | None:
        """The prior at another theta, with the same factor if K_w only changes its scale."""
        reduced = self.reduced.moved(theta)
        if reduced is None:
            return None
        return LowRankPrior(self._model, self.basis, self._model.mean(theta), reduced)

    def has_covariance_of(self, other: Prior) -> bool:
        """Whether both priors share K_w."""
        return isinstance(other, LowRankPrior) and self.reduced.has_covariance_of(other.reduced)

    @property
    def theta(self) -> Array:
        """theta, shape (p,)."""
        return self.reduced.theta

    @property
    def n(self) -> int:
        """E."""
        return self.mean.size

    @property
    def rank(self) -> int:
        """r, the length of w and of whitened variables."""
        return self.basis.shape[1]

    @property
    def is_proper(self) -> bool:
        """Whether K_w is positive definite."""
        return self.reduced.is_proper

    @cached_property
    def root(self) -> Array:
        """U L, shape (E, r)."""
        L: Array = self.reduced.factor.dense()
        return self.basis @ L

    @property
    def variances(self) -> Array:
        """K_ii, also if K_w cannot be factorized."""
        half = self.reduced.covariance_times(np.asfortranarray(self.basis.T))
        result: Array = np.einsum("ij,ji->i", self.basis, half)
        return result

    @property
    def precisions(self) -> Array:
        """(K⁻¹)_ii, which is infinite: `CERTAIN`."""
        return np.full(self.n, CERTAIN)

    def condition(self, W: Precision) -> LowRankPosterior | None:
        """Factorize I + Lᵀ Uᵀ W U L, r × r."""
        if not self.is_proper:
            return None
        V = self.root
        # The same test as for a dense prior. `variances` would have the errors of another sum.
        if not (self.rank * ROUNDING * diagonal(W) * np.einsum("ij,ij->i", V, V) < 1.0).all():
            return None
        tally.cubic_ops += 1
        B = rooted(W).times(V).T @ V
        B[np.diag_indices_from(B)] += 1.0
        factor = factorize(B)
        return None if factor is None else LowRankPosterior(self, W, factor)

    def multiply(self, xi: Array) -> Array:
        """U L ξ, from r coordinates."""
        result: Array = self.root @ xi
        return result

    def multiply_transposed(self, g: Array) -> Array:
        """Lᵀ Uᵀ g."""
        result: Array = self.root.T @ g
        return result

    def solve(self, z: Array) -> Array:
        """L⁻¹ Uᵀ z."""
        return self.reduced.solve(self.basis.T @ z)

    def inverse_times(self, z: Array) -> Array:
        """U K_w⁻¹ Uᵀ z."""
        result: Array = self.basis @ self.reduced.inverse_times(self.basis.T @ z)
        return result

    def covariance_times(self, x: Array) -> Array:
        """U K_w Uᵀ x."""
        result: Array = self.basis @ self.reduced.covariance_times(self.basis.T @ x)
        return result

    def log_density(self, f: Array) -> float:
        """The log density of Uᵀ f; −inf if f is not in c + range(U)."""
        z = f - self.mean
        w = self.basis.T @ z
        if np.abs(z - self.basis @ w).max(initial=0.0) > OUTSIDE * (
            1.0 + np.abs(z).max(initial=0.0)
        ):
            return -math.inf
        return self.reduced.log_density(self.basis.T @ f)

    # Derivatives in theta

    def log_density_gradient(self, f: Array) -> Array:
        """The gradient of the log density of Uᵀ f."""
        return self.reduced.log_density_gradient(self.basis.T @ f)

    def log_density_geometry(self, f: Array) -> tuple[Array, Array]:
        """The same gradient, and the Fisher information of Uᵀ f."""
        return self.reduced.log_density_geometry(self.basis.T @ f)

    def whitened_gradient(self, nu: Array, g: Array) -> Array:
        """gᵀ ∂f for f = c + U L ν."""
        inside = self.basis.T @ g
        outside = self._model.mean_vjp(self.theta, g - self.basis @ inside)
        return self.reduced.whitened_gradient(nu, inside) + outside

    def whitened_jacobian(self, nu: Array) -> Array:
        """∂f/∂theta for f = c + U L ν, shape (E, p)."""
        p = self.theta.size
        dc = np.array([self._model.mean_jvp(self.theta, v) for v in np.eye(p)]).reshape(p, self.n).T
        result: Array = dc + self.basis @ (self.reduced.whitened_jacobian(nu) - self.basis.T @ dc)
        return result

    def vjp(self, M: Array, v: Array) -> Array:
        """⟨M, ∂K_w⟩ + vᵀ ∂c, M of shape (r, r)."""
        return self.reduced.vjp(M, np.zeros(self.rank)) + self._model.mean_vjp(self.theta, v)
