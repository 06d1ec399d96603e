"""A prior with a dense covariance K: one Cholesky factorization, and O(n²) for all that follows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, lru_cache

import numpy as np

from numpy.typing import NDArray
from scipy.linalg import blas

from pymc_lgm.linalg import Array, CholeskyFactor, bounded_exp, factorize, held
from pymc_lgm.priors.base import GaussianModel, Prior
from pymc_lgm.priors.cholesky_derivatives import information, multiply_jvp, multiply_vjp
from pymc_lgm.priors.dense_posterior import ROUNDING, DensePosterior, joined_by
from pymc_lgm.priors.held_posterior import HeldPosterior
from pymc_lgm.priors.precision import Precision, SiteBlocks
from pymc_lgm.priors.site_factor import cleared, scaled
from pymc_lgm.priors.site_posterior import SitePosterior

__all__ = ["DensePrior"]

BLOCK = 64
"""Columns of a triangle that are copied together."""


class _Matrix:
    """C, with K = v C, and its factor: made when it is asked for, once, for every v.

    LAPACK writes L over the lower triangle. What is above the diagonal stays C's.
    """

    def __init__(self, C: Array):
        # A symmetric matrix is its own transpose, so row order is column order.
        self.above = C.T if C.flags.c_contiguous else np.asfortranarray(C)
        self.diagonal = self.above.diagonal().copy()
        self.held = held(self.above)

    @cached_property
    def factor(self) -> CholeskyFactor | None:
        """L, in place."""
        return self.held.factor() if self.held else factorize(cleared(self.above, self.diagonal))

    @property
    def symmetric(self) -> Array:
        """An array with all of C in its upper triangle: a copy once there is a factor."""
        return self._copy if self.held is None and "factor" in self.__dict__ else self.above

    @cached_property
    def _copy(self) -> Array:
        copy = np.empty_like(self.above)
        for stop in range(BLOCK, len(copy) + BLOCK, BLOCK):
            copy[:stop, stop - BLOCK : stop] = self.above[:stop, stop - BLOCK : stop]
        np.fill_diagonal(copy, self.diagonal)
        return copy


@lru_cache(maxsize=4)
def _below(n: int) -> NDArray[np.bool_]:
    return np.tri(n, k=-1, dtype=bool)


class DensePrior:
    """f ~ N(m, K) with K = e^log_variance C: see `Prior`.

    Parameters
    ----------
    mean : ndarray, shape (n,)
        m.
    C : ndarray, shape (n, n)
        Symmetric, in row or column order; taken over, not copied.
    log_variance : float
    model : GaussianModel, optional
        Whose prior it is; without it there are no derivatives, and no other theta.
    theta : ndarray, shape (p,), optional

    Notes
    -----
    The factorization of C, one O(n³) operation, is made by the first verb that needs it. Priors
    that differ in mean and ``log_variance`` alone share it: see `moved`.

    Examples
    --------
    >>> prior = DensePrior(np.zeros(2), np.array([[4.0, 2.0], [2.0, 5.0]]))
    >>> prior.multiply(np.array([1.0, 1.0]))
    array([2., 3.])
    >>> prior.condition(np.ones(2)).covariance_times(np.array([13.0, 0.0]))
    array([10.,  1.])
    """

    def __init__(
        self,
        mean: Array,
        C: Array | _Matrix,
        log_variance: float = 0.0,
        *,
        model: GaussianModel | None = None,
        theta: Array | None = None,
    ):
        self.mean = mean
        self._matrix = C if isinstance(C, _Matrix) else _Matrix(C)
        self._log_variance = log_variance
        self.variance = bounded_exp(log_variance)
        """v: 0 or inf if it cannot be represented."""
        self._model = model
        self.theta = np.empty(0) if theta is None else theta

    @classmethod
    def at(cls, model: GaussianModel, theta: Array) -> DensePrior | None:
        """K(theta) = exp(k·theta) K(theta with its amplitudes at 0); ``None`` if v is no number.

        What is factorized is the same wherever the amplitudes are, so the factor is a function of
        theta to the last bit, whether it was computed there or shared.
        """
        k = model.amplitudes
        bare = np.where(k == 0.0, theta, 0.0) if k.any() else theta
        log_variance = float(k @ theta) if k.any() else 0.0
        matrix = _Matrix(model.cov(bare))
        return cls._finite(cls(model.mean(theta), matrix, log_variance, model=model, theta=theta))

    def moved(self, theta: Array) -> DensePrior | None:
        """The prior at another theta: for no factorization where theta only scales K, or less."""
        model = self.model
        changed = model.enters_cov & (theta != self.theta)
        if (changed & (model.amplitudes == 0.0)).any():
            return self.at(model, theta)
        log_variance = float(model.amplitudes @ theta) if changed.any() else self._log_variance
        there = DensePrior(model.mean(theta), self._matrix, log_variance, model=model, theta=theta)
        return self._finite(there)

    def with_mean_of(self, model: GaussianModel) -> DensePrior:
        """The prior of a model with the same covariance, here: it shares the factor."""
        mean = model.mean(self.theta)
        return DensePrior(mean, self._matrix, self._log_variance, model=model, theta=self.theta)

    def has_covariance_of(self, other: Prior) -> bool:
        """Whether it was `moved` from the other with K as it was."""
        if not isinstance(other, DensePrior) or other._matrix is not self._matrix:
            return False
        return other._log_variance == self._log_variance

    @staticmethod
    def _finite(prior: DensePrior) -> DensePrior | None:
        return prior if 0 < prior.variance < np.inf and np.isfinite(prior.mean).all() else None

    def __repr__(self) -> str:
        return f"{type(self).__name__}(n={self.n})"

    @property
    def model(self) -> GaussianModel:
        """Whose prior it is."""
        if self._model is None:
            raise ValueError("A DensePrior without a model has no derivatives in theta.")
        return self._model

    @property
    def n(self) -> int:
        """Number of latent variables."""
        return self.mean.size

    @property
    def rank(self) -> int:
        """As many."""
        return self.mean.size

    @property
    def variances(self) -> Array:
        """K_ii, shape (n,)."""
        return self.variance * self._matrix.diagonal

    @property
    def is_proper(self) -> bool:
        """Whether K could be factorized."""
        return self._matrix.factor is not None

    @cached_property
    def factor(self) -> CholeskyFactor:
        """L. Ask `is_proper` first."""
        factor = self._matrix.factor
        if factor is None:
            raise ValueError("This covariance cannot be factorized: ask prior.is_proper first.")
        return factor.times(self._log_variance)

    def multiply(self, xi: Array) -> Array:
        """L ξ, O(n²) a column."""
        return self.factor.multiply(xi)

    def multiply_transposed(self, g: Array) -> Array:
        """Lᵀ g."""
        return self.factor.multiply_transposed(g)

    def solve(self, z: Array) -> Array:
        """L⁻¹ z."""
        return self.factor.solve(z)

    def inverse_times(self, z: Array) -> Array:
        """K⁻¹ z."""
        return self.factor.inverse_times(z)

    @property
    def symmetric(self) -> tuple[Array, float]:
        """C, in the upper triangle of an array in column order, and v: K = v C."""
        return self._matrix.symmetric, self.variance

    def dense(self) -> Array:
        """K, a new array."""
        C = self._matrix.symmetric
        K: Array = np.where(_below(self.n), C.T, C)
        K *= self.variance
        return K

    def covariance_times(self, x: Array) -> Array:
        """K x, the same to the last bit before and after the factor is made."""
        if self._matrix.held is not None:
            return self.variance * self._matrix.held.times(x)
        product = blas.dsymv if x.ndim == 1 else blas.dsymm
        return product(self.variance, self._matrix.symmetric, x, lower=0)

    def log_density(self, f: Array) -> float:
        """log N(f; m, K)."""
        return self.factor.log_density(f - self.mean)

    @cached_property
    def precisions(self) -> Array:
        """(K⁻¹)_ii, 0 if K is not proper: one O(n³) operation beside the factor."""
        return self.factor.inverse_diagonal() if self.is_proper else np.zeros(self.n)

    def condition(self, W: Precision) -> DensePosterior | None:
        """Factorize B = I + W^½ K W^½: one O(n³) operation.

        B has no eigenvalue below 1. ``None`` where n u W_ii K_ii is not below 1, u = 1.1e-16: there
        Σ_ii ≤ 1/W_ii is less than the rounding errors of the difference from K_ii, and what follows
        from it, an evidence too, is any number.
        """
        if isinstance(W, SiteBlocks):
            return joined_by(W, self)
        if not (self.n * ROUNDING * (self.variance * W * self._matrix.diagonal) < 1.0).all():
            return None
        if self._matrix.held is not None:
            return HeldPosterior.by(self, W, self._matrix.held.scaled_factor(self.variance * W))
        return SitePosterior.of(self, W, self._matrix.above, self._matrix.diagonal, self.variance)

    def scaled(self, W: Array) -> Array:
        """I + W^½ K W^½, of which the upper triangle holds: a new array, in column order."""
        return scaled(self._matrix.above, self._matrix.diagonal, self.variance, W)

    # Derivatives in theta

    def log_density_gradient(self, f: Array) -> Array:
        """⟨½ (a aᵀ − K⁻¹), ∂K⟩ + aᵀ ∂m, a = K⁻¹ z: one O(n³) operation."""
        a = self.inverse_times(f - self.mean)
        total = self.model.mean_vjp(self.theta, a)
        if self.model.enters_cov.any():
            M = 0.5 * (np.outer(a, a) - self.factor.inverse())
            total = total + self.model.cov_vjp(self.theta, M)
        return total

    def log_density_geometry(self, f: Array) -> tuple[Array, Array]:
        """The gradient, and G_jk = ½ tr(K⁻¹ ∂_jK K⁻¹ ∂_kK) + ∂_jmᵀ K⁻¹ ∂_km.

        One O(n³) operation, and one for each component of theta that enters K.
        """
        a, enters, dm = self.inverse_times(f - self.mean), self.model.enters_cov, self._dm
        total, G = dm.T @ a, dm.T @ self.inverse_times(dm)
        if enters.any():
            traces, of_K = information(self.factor, self._dK())
            total += self.model.cov_vjp(self.theta, 0.5 * np.outer(a, a))
            total[enters] -= 0.5 * traces
            G[np.ix_(enters, enters)] += of_K
        return total, G

    def whitened_gradient(self, nu: Array, g: Array) -> Array:
        """gᵀ (∂m + ∂L ν), ∂L in reverse mode: two O(n³) operations whatever p is."""
        total = self.model.mean_vjp(self.theta, g)
        if self.model.enters_cov.any():
            total = total + self.model.cov_vjp(self.theta, multiply_vjp(self.factor, nu, g))
        return total

    def whitened_jacobian(self, nu: Array) -> Array:
        """∂m + ∂L ν, shape (n, p): one O(n³) operation, and one for each theta_j that enters K."""
        J, enters = self._dm, self.model.enters_cov
        if enters.any():
            J[:, enters] += multiply_jvp(self.factor, nu, self._dK())
        return J

    def vjp(self, M: Array, v: Array) -> Array:
        """⟨M, ∂K⟩ + vᵀ ∂m, shape (p,)."""
        return self.model.cov_vjp(self.theta, M) + self.model.mean_vjp(self.theta, v)

    def _dK(self) -> Iterator[Array]:
        """∂K/∂theta_j for each component that enters K, one n × n array at a time."""
        for direction in np.eye(self.theta.size)[self.model.enters_cov]:
            yield self.model.cov_jvp(self.theta, direction)

    @property
    def _dm(self) -> Array:
        """∂m/∂theta, shape (n, p)."""
        columns = [self.model.mean_jvp(self.theta, v) for v in np.eye(self.theta.size)]
        return np.array(columns).reshape(-1, self.n).T.copy()
