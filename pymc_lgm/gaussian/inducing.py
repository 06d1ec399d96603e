"""A prior of inducing variables: f = (V v, v) with v ~ N(0, I), and V a function of theta.

The first elements are what observations read, V v of m standard normal coordinates; the last m
are the coordinates themselves, which no observation reads. They are carried along since V moves
with theta: of V v alone v could be had back only as far as V has a well-conditioned inverse.
Of several processes V is block diagonal: f = (V_1 v_1, ..., V_C v_C, v_1, ..., v_C).
Every verb is O(n m), the factor of a posterior O(n m²). Hensman, Matthews, Filippone and Ghahramani
(2015), *MCMC for variationally sparse Gaussian processes*, §3: V = K_fu R⁻ᵀ, R Rᵀ = K_uu.
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
"""(K⁻¹)_ii: given all other elements of f, an element of f is known."""

OUTSIDE = 1e-6
"""Distance of f from (V v, v), in units of f, at which it is none of this prior's."""


class InducingModel(Protocol):
    """V as a function of theta, and R where there is one."""

    def maps(self, theta: Array) -> Sequence[Array] | None:
        """V_1, ..., V_C, each (n_c, m_c); ``None`` where a K_uu has no factor."""

    def roots(self, theta: Array) -> Sequence[Array] | None:
        """R_1, ..., R_C, lower triangular (m_c, m_c); ``None`` if v is of nobody's values."""


class InducingPosterior(WithoutSlopes, RootPosterior):
    """The same conditioned on precisions W ≥ 0: see `Posterior`."""


class InducingPrior(WithoutSlopes):
    """f = (V v, v): see `Prior`. Made by `at`. It has no derivatives in theta."""

    def __init__(self, model: InducingModel, theta: Array, maps: Sequence[Array]):
        self._model, self.theta, self._maps = model, theta, tuple(maps)
        rows, columns = zip(*(V.shape for V in self._maps), strict=True)
        self._rows, self._columns = _slices(rows), _slices(columns)
        self._read, self.rank = sum(rows), sum(columns)
        self.n = self._read + self.rank
        self.mean = np.zeros(self.n)

    @classmethod
    def at(cls, model: InducingModel, theta: Array) -> InducingPrior | None:
        """At a theta; ``None`` where V is no number."""
        maps = model.maps(theta)
        return None if maps is None else cls(model, theta, maps)

    def moved(self, theta: Array) -> InducingPrior | None:
        """At another theta."""
        return InducingPrior.at(self._model, theta)

    @property
    def has_values(self) -> bool:
        """Whether v are coordinates of values u = R v at inducing points."""
        return self._model.roots(self.theta) is not None

    def values(self, f: Array) -> Array:
        """u = R v of f = (V v, v)."""
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
        """log N(u; 0, R Rᵀ) of f = (V v, v), u = R v."""
        log_volume = sum(float(np.log(R.diagonal()).sum()) for R, _ in self._roots())
        return self.log_density(f) - log_volume

    def has_covariance_of(self, other: Prior) -> bool:
        """Whether V is the same matrix, and not only equal."""
        return isinstance(other, InducingPrior) and all(
            V is U for V, U in zip(self._maps, other._maps, strict=True)
        )

    @property
    def is_proper(self) -> bool:
        """v has a density."""
        return True

    @property
    def variances(self) -> Array:
        """K_ii = Σ_j V_ij², and 1."""
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
        """(K⁻¹)_ii: next to infinite."""
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
        """Vᵀ g_1 + g_2 of g = (g_1, g_2)."""
        result = np.array(g[self._read :])
        for V, rows, columns in self._parts():
            result[columns] += V.T @ g[rows]
        return result

    def solve(self, z: Array) -> Array:
        """v of z = (V v, v)."""
        return np.array(z[self._read :])

    def inverse_times(self, z: Array) -> Array:
        """A K⁻¹ z, (0, v): K times that is z, and zᵀ K⁻¹ z = |v|²."""
        result = np.zeros_like(z)
        result[self._read :] = z[self._read :]
        return result

    def covariance_times(self, x: Array) -> Array:
        """(V, I) (V, I)ᵀ x."""
        return self.multiply(self.multiply_transposed(x))

    def log_density(self, f: Array) -> float:
        """log N(v; 0, I); −inf where f is not (V v, v), as at another theta."""
        v = f[self._read :]
        away = np.abs(self.multiply(v) - f).max()
        if away > OUTSIDE * (1.0 + np.abs(f).max()):
            return -math.inf
        return -0.5 * (float(v @ v) + self.rank * LOG_2PI)

    def _roots(self) -> Iterator[tuple[Array, slice]]:
        """R_c, and which of v are v_c."""
        roots = self._model.roots(self.theta)
        assert roots is not None
        return zip(roots, self._columns, strict=True)

    def _parts(self) -> Iterator[tuple[Array, slice, slice]]:
        """V_c, which elements of f are V_c v_c, and which of v are v_c."""
        return zip(self._maps, self._rows, self._columns, strict=True)


def _slices(sizes: Sequence[int]) -> list[slice]:
    """Where pieces of these lengths are, one after another."""
    ends = np.cumsum(sizes).tolist()
    return [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
