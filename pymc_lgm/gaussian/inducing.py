"""A prior of inducing variables: f = (V v, v) with v ~ N(0, I), and V a function of theta.

Observations read the first elements, V v. The last m elements, the standard normal coordinates v,
are read by no observation. They belong to f because V depends on theta, and V v determines v only
as far as V is well conditioned. For several processes V is block diagonal:
f = (V_1 v_1, ..., V_C v_C, v_1, ..., v_C). A method costs O(n m), and the factor of a posterior
O(n m²). Hensman, Matthews, Filippone and Ghahramani (2015), *MCMC for variationally sparse Gaussian
processes*, §3: V = K_fu R⁻ᵀ, R Rᵀ = K_uu.
"""

from __future__ import annotations

import math

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np

from scipy.linalg import solve_triangular

from pymc_lgm.gaussian.posterior import RootPosterior
from pymc_lgm.gaussian.protocols import Prior, WithoutSlopes
from pymc_lgm.gaussian.sites import Precision, SiteBlocks, is_finite
from pymc_lgm.linalg import LOG_2PI, Array, factorize, gram, tally

__all__ = ["InducingModel", "InducingPrior"]

CERTAIN = 1e12
"""Used for (K⁻¹)_ii, which is infinite: the other elements of f determine each element."""

OUTSIDE = 1e-6
"""Relative distance of f from (V v, v) beyond which the prior density of f is 0."""


class InducingModel(Protocol):
    """V, and R if there is one, as functions of theta."""

    def maps(self, theta: Array) -> Sequence[Array] | None:
        """V_1, ..., V_C, each (n_c, m_c); ``None`` if a K_uu cannot be factorized."""

    def roots(self, theta: Array) -> Sequence[Array] | None:
        """R_1, ..., R_C, lower triangular (m_c, m_c); ``None`` if v has no values u = R v."""


class InducingPosterior(WithoutSlopes, RootPosterior):
    """An `InducingPrior` conditioned on precisions W ≥ 0: see `Posterior`."""


class InducingPrior(WithoutSlopes):
    """The prior of f = (V v, v): see `Prior`. Made by `at`. It has no derivatives in theta."""

    def __init__(self, model: InducingModel, theta: Array, maps: Sequence[Array]):
        self._model, self.theta, self._maps = model, theta, tuple(maps)
        rows, columns = zip(*(V.shape for V in self._maps), strict=True)
        self._rows, self._columns = _slices(rows), _slices(columns)
        self._read, self.rank = sum(rows), sum(columns)
        self.n = self._read + self.rank
        self.mean = np.zeros(self.n)

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
        return self.multiply(
            np.concatenate(
                [solve_triangular(R, u[columns], lower=True) for R, columns in self._roots()]
            )
        )

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
    def is_proper(self) -> bool:
        """True, since v has a density."""
        return True

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
    def precisions(self) -> Array:
        """(K⁻¹)_ii, which is infinite: `CERTAIN`."""
        return np.full(self.n, CERTAIN)

    def condition(self, W: Precision) -> InducingPosterior | None:
        """Factorize I + (V, I)ᵀ W (V, I), m × m: O(n m²)."""
        if not is_finite(W):
            return None
        tally.cubic_ops += 1
        if isinstance(W, SiteBlocks):
            root = self.root
            B = root.T @ W.times(root)
            B[np.diag_indices_from(B)] += 1.0
        else:
            B = np.zeros((self.rank, self.rank), order="F")
            for V, rows, columns in self._parts():
                B[columns, columns] = gram(V, W[rows])
            B[np.diag_indices_from(B)] += 1.0 + W[self._read :]
        factor = factorize(B)
        return None if factor is None else InducingPosterior(self, W, factor)

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

    def covariance_times(self, x: Array) -> Array:
        """(V, I) (V, I)ᵀ x."""
        return self.multiply(self.multiply_transposed(x))

    def log_density(self, f: Array) -> float:
        """log N(v; 0, I); −inf if f is not (V v, v), as for the f of another theta."""
        v = f[self._read :]
        away = np.abs(self.multiply(v) - f).max()
        if away > OUTSIDE * (1.0 + np.abs(f).max()):
            return -math.inf
        return -0.5 * (float(v @ v) + self.rank * LOG_2PI)

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
