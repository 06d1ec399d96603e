"""Priors with fewer degrees of freedom than elements: f = m + V ν, ν ~ N(0, I).

A `LowRankPrior` has V = U L with a fixed U and K_w = L Lᵀ. An example is the predictor of n
observations with fewer than n coefficients and effects. An `InducingPrior` has a V that is any
function of theta. Both posteriors need r × r matrices, P = I + Vᵀ W V, and products with V.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Protocol

import numpy as np

from scipy.linalg import solve_triangular

from pymc_lgm.gaussian.base import (
    GaussianModel,
    PrecisionPosterior,
    Prior,
    StatePrior,
)
from pymc_lgm.gaussian.dense import ROUNDING, DensePrior
from pymc_lgm.gaussian.sites import (
    Precision,
    SiteBlocks,
    diagonal,
    gathered,
    is_finite,
)
from pymc_lgm.linalg import Array, CholeskyFactor, factorize, gram, tally

__all__ = ["InducingModel", "InducingPrior", "LowRankPosterior", "LowRankPrior"]


class RootedPrior(StatePrior):
    """f = m + V ν: the state x is ν itself."""

    @property
    @abstractmethod
    def root(self) -> Array:
        """V, shape (n, r)."""

    def expand(self, x: Array) -> Array:
        """V x."""
        return self.multiply(x)

    def expand_transposed(self, g: Array) -> Array:
        """Vᵀ g."""
        return self.multiply_transposed(g)

    def state(self, z: Array) -> Array:
        """ν for z = V ν."""
        return self.solve(z)


class RootedPosterior(PrecisionPosterior):
    """A `RootedPrior` conditioned on W ≥ 0. P = I + Vᵀ W V = R Rᵀ has |P| = |I + W^½ K W^½|."""

    prior: RootedPrior

    @property
    def log_determinant(self) -> float:
        """log|B| of the sites, which is log|P|."""
        return self.factor.log_determinant

    @cached_property
    def _half(self) -> Array:
        """R⁻¹ Vᵀ, shape (r, n): at most one O(n³) operation."""
        tally.cubic_ops += 1
        return self.factor.solve(np.asfortranarray(self.prior.root.T))

    @cached_property
    def variances(self) -> Array:
        """Σ_ii."""
        result: Array = np.einsum("ij,ij->j", self._half, self._half)
        return result

    @cached_property
    def site_covariances(self) -> Array:
        """Σ's blocks on the sets of W, (G, s, s)."""
        if not isinstance(self.precision, SiteBlocks):
            return super().site_covariances
        half = gathered(self.precision.sets, np.ascontiguousarray(self._half.T))
        blocks = half @ half.swapaxes(1, 2)
        return np.where(self.precision.filling, np.eye(blocks.shape[1]), blocks)


def _factor_of(V: Array, W: Precision) -> CholeskyFactor | None:
    """The factor of I + Vᵀ W V, r × r."""
    tally.cubic_ops += 1
    B = V.T @ W.times(V) if isinstance(W, SiteBlocks) else gram(V, W)
    B[np.diag_indices_from(B)] += 1.0
    return factorize(B)


# A fixed U


class LowRankPosterior(RootedPosterior):
    """A `LowRankPrior` conditioned on W, with derivatives."""

    prior: LowRankPrior
    factor: CholeskyFactor

    def evidence_gradient(self, a: Array, v: Array | None = None) -> Array:
        """⟨½ a aᵀ − ½ R + v aᵀ, ∂K⟩ + (a + v)ᵀ ∂c with Uᵀ R U = L⁻ᵀ (I − P⁻¹) L⁻¹."""
        prior, U = self.prior, self.prior.basis
        explained = np.eye(prior.rank) - self.factor.inverse()
        tally.cubic_ops += 1
        L = prior.reduced.factor
        R = L.solve_transposed(
            np.asfortranarray(L.solve_transposed(np.asfortranarray(explained)).T)
        )
        inside = U.T @ a
        total = a if v is None else a + v
        left = 0.5 * inside if v is None else 0.5 * inside + U.T @ v
        return prior.vjp(np.outer(left, inside) - 0.5 * R, total)


class _Reduced:
    """The model of Uᵀ f ~ N(Uᵀ c, K_w)."""

    def __init__(self, model: GaussianModel, basis: Array):
        self._model, self._basis = model, basis
        self.enters_cov, self.amplitudes = model.enters_cov, model.amplitudes
        self.cov, self.cov_vjp = model.cov, model.cov_vjp

    def mean(self, theta: Array) -> Array:
        result: Array = self._basis.T @ self._model.mean(theta)
        return result

    def mean_vjp(self, theta: Array, v: Array) -> Array:
        return self._model.mean_vjp(theta, self._basis @ v)


class LowRankPrior(RootedPrior):
    """The prior of f = c + U w, w ~ N(0, K_w), made by `at`.

    K⁻¹ is the inverse on the range of U.
    """

    def __init__(self, model: GaussianModel, basis: Array, mean: Array, reduced: DensePrior):
        super().__init__(mean, reduced.theta, rank=basis.shape[1])
        self._model, self.basis, self.reduced = model, basis, reduced

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
    def is_proper(self) -> bool:
        """Whether K_w is positive definite."""
        return self.reduced.is_proper

    @cached_property
    def root(self) -> Array:
        """U L, shape (E, r)."""
        return self.reduced.factor.multiply_transposed(self.basis.T).T

    @property
    def variances(self) -> Array:
        """K_ii, also if K_w cannot be factorized."""
        half = self.reduced.covariance_times(np.asfortranarray(self.basis.T))
        result: Array = np.einsum("ij,ji->i", self.basis, half)
        return result

    @property
    def log_determinant(self) -> float:
        """log|K_w|."""
        return self.reduced.log_determinant

    def condition(self, W: Precision) -> LowRankPosterior | None:
        """Factorize I + Lᵀ Uᵀ W U L, r × r."""
        if not self.is_proper:
            return None
        V = self.root
        # The same test as for a dense prior. `variances` would have the errors of another sum.
        if not (self.rank * ROUNDING * diagonal(W) * np.einsum("ij,ij->i", V, V) < 1.0).all():
            return None
        factor = _factor_of(V, W)
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

    # Derivatives in theta

    def log_density_gradient(self, f: Array) -> Array:
        """The gradient of the log density of Uᵀ f."""
        return self.reduced.log_density_gradient(self.basis.T @ f)

    def whitened_gradient(self, nu: Array, g: Array) -> Array:
        """gᵀ ∂f for f = c + U L ν."""
        inside = self.basis.T @ g
        outside = self._model.mean_vjp(self.theta, g - self.basis @ inside)
        return self.reduced.whitened_gradient(nu, inside) + outside

    def vjp(self, M: Array, v: Array) -> Array:
        """⟨M, ∂K_w⟩ + vᵀ ∂c, M of shape (r, r)."""
        return self.reduced.vjp(M, np.zeros(self.rank)) + self._model.mean_vjp(self.theta, v)


# A V that depends on theta


class InducingModel(Protocol):
    """V, and R if there is one, as functions of theta."""

    def maps(self, theta: Array) -> Sequence[Array] | None:
        """V_1, ..., V_C, each (n_c, m_c); ``None`` if a K_uu cannot be factorized."""

    def roots(self, theta: Array) -> Sequence[Array] | None:
        """R_1, ..., R_C, lower triangular (m_c, m_c); ``None`` if v has no values u = R v."""


class InducingPrior(RootedPrior):
    """The prior of f = (V v, v), v ~ N(0, I), made by `at`. It has no derivatives in theta.

    Observations read the first elements, V v. The last m elements, the standard normal coordinates
    v, are read by no observation. They belong to f because V depends on theta, and V v determines v
    only as far as V is well conditioned. For several processes V is block diagonal:
    f = (V_1 v_1, ..., V_C v_C, v_1, ..., v_C). A method costs O(n m), and the factor of a posterior
    O(n m²). The coordinates ν are v, and the map from ν to f is (V, I).

    Hensman, Matthews, Filippone and Ghahramani (2015), *MCMC for variationally sparse Gaussian
    processes*, §3: V = K_fu R⁻ᵀ, R Rᵀ = K_uu.
    """

    def __init__(self, model: InducingModel, theta: Array, maps: Sequence[Array]):
        self._model, self._maps = model, tuple(maps)
        rows, columns = zip(*(V.shape for V in self._maps), strict=True)
        self._rows, self._columns = _slices(rows), _slices(columns)
        self._read = sum(rows)
        super().__init__(np.zeros(self._read + sum(columns)), theta, rank=sum(columns))

    @classmethod
    def at(cls, model: InducingModel, theta: Array) -> InducingPrior | None:
        """The prior at a theta; ``None`` if V cannot be computed."""
        maps = model.maps(theta)
        return None if maps is None else cls(model, theta, maps)

    def moved(self, theta: Array) -> InducingPrior | None:
        """The prior at another theta."""
        return InducingPrior.at(self._model, theta)

    @property
    def has_values(self) -> bool:
        """Whether v are coordinates of values u = R v at inducing points."""
        return self._model.roots(self.theta) is not None

    def values(self, f: Array) -> Array:
        """u = R v for f = (V v, v)."""
        v = f[self._read :]
        return np.concatenate([R @ v[columns] for R, columns in self._roots()])

    def with_values(self, u: Array) -> Array:
        """(V v, v) with v = R⁻¹ u."""
        v = [solve_triangular(R, u[columns], lower=True) for R, columns in self._roots()]
        return self.multiply(np.concatenate(v))

    def log_density_of_values(self, f: Array) -> float:
        """log N(u; 0, R Rᵀ) for f = (V v, v) and u = R v."""
        log_volume = sum(float(np.log(R.diagonal()).sum()) for R, _ in self._roots())
        return self.log_density(f) - log_volume

    def has_covariance_of(self, other: Prior) -> bool:
        """Whether both priors share V."""
        return isinstance(other, InducingPrior) and all(
            V is U for V, U in zip(self._maps, other._maps, strict=True)
        )

    @property
    def variances(self) -> Array:
        """K_ii: Σ_j V_ij² for V v, and 1 for v."""
        return np.concatenate(
            [*(np.einsum("ij,ij->i", V, V) for V in self._maps), np.ones(self.rank)]
        )

    @property
    def root(self) -> Array:
        """(V, I), shape (n, m): a copy."""
        root = np.zeros((self.n, self.rank))
        for V, rows, columns in self._parts():
            root[rows, columns] = V
        root[self._read :] = np.eye(self.rank)
        return root

    @property
    def log_determinant(self) -> float:
        """0, the log determinant of v's covariance."""
        return 0.0

    def condition(self, W: Precision) -> RootedPosterior | None:
        """Factorize I + (V, I)ᵀ W (V, I), m × m: O(n m²)."""
        if not is_finite(W):
            return None
        if isinstance(W, SiteBlocks):
            factor = _factor_of(self.root, W)
        else:
            tally.cubic_ops += 1
            B = np.zeros((self.rank, self.rank), order="F")
            for V, rows, columns in self._parts():
                B[columns, columns] = gram(V, W[rows])
            B[np.diag_indices_from(B)] += 1.0 + W[self._read :]
            factor = factorize(B)
        return None if factor is None else RootedPosterior(self, W, factor)

    def multiply(self, xi: Array) -> Array:
        """(V ξ, ξ)."""
        return np.concatenate([*(V @ xi[columns] for V, _, columns in self._parts()), xi])

    def multiply_transposed(self, g: Array) -> Array:
        """Vᵀ g_1 + g_2 for g = (g_1, g_2)."""
        result = np.array(g[self._read :])
        for V, rows, columns in self._parts():
            result[columns] += V.T @ g[rows]
        return result

    def solve(self, z: Array) -> Array:
        """v for z = (V v, v)."""
        return np.array(z[self._read :])

    def inverse_times(self, z: Array) -> Array:
        """(0, v) for z = (V v, v): K times (0, v) is z, and zᵀ (0, v) = |v|²."""
        result = np.zeros_like(z)
        result[self._read :] = z[self._read :]
        return result

    def _roots(self) -> Iterator[tuple[Array, slice]]:
        """R_c, and the part v_c of v."""
        roots = self._model.roots(self.theta)
        assert roots is not None
        return zip(roots, self._columns, strict=True)

    def _parts(self) -> Iterator[tuple[Array, slice, slice]]:
        """V_c, the part V_c v_c of f, and the part v_c of v."""
        return zip(self._maps, self._rows, self._columns, strict=True)


def _slices(sizes: Sequence[int]) -> list[slice]:
    """Consecutive slices of these lengths."""
    ends = np.cumsum(sizes).tolist()
    return [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
