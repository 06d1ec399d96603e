"""Banded priors made of graphs: T and u of a series, or Q and m of areas.

Either is a `pymc_lgm.priors.banded.BandedModel`. Graphs have T or Q in bands in the place of K, and
u or m in that of m.
"""

from __future__ import annotations

import numpy as np

from numpy.typing import NDArray

from pymc_lgm.linalg import Array
from pymc_lgm.model.graphs import Graphs
from pymc_lgm.priors import bands

__all__ = ["OfPrecision", "OfWhitener"]


class OfWhitener:
    """A series: graphs of T and u."""

    def __init__(self, graphs: Graphs, enters_cov: NDArray[np.bool_]):
        self.enters_cov = enters_cov
        self.whitener, self.whitener_vjp, self.whitener_jvp = (
            graphs.cov,
            graphs.cov_vjp,
            graphs.cov_jvp,
        )
        self.drive, self.drive_vjp, self.drive_jvp = graphs.mean, graphs.mean_vjp, graphs.mean_jvp


class OfPrecision:
    """Areas: graphs of Q and m. J Q J = L Lᵀ, J reversing the order, gives T = J Lᵀ J; u = T m."""

    def __init__(self, graphs: Graphs, enters_cov: NDArray[np.bool_]):
        self._graphs, self.enters_cov = graphs, enters_cov
        self._last: tuple[bytes, Array] | None = None

    def _factor(self, theta: Array) -> Array:
        """L; NaN where Q is not positive definite."""
        key = theta.tobytes()
        if self._last is None or self._last[0] != key:
            Q = self._graphs.cov(theta)
            L = bands.cholesky(bands.flipped(Q))
            self._last = key, np.full_like(Q, np.nan) if L is None else L
        return self._last[1]

    def whitener(self, theta: Array) -> Array:
        """T(theta) in bands."""
        return bands.flipped(self._factor(theta))

    def whitener_vjp(self, theta: Array, M: Array) -> Array:
        """⟨∂T/∂theta_j, M⟩ for each j."""
        F = bands.cholesky_vjp(self._factor(theta), bands.flipped(M))
        result: Array = self._graphs.cov_vjp(theta, bands.flipped(F))
        return result

    def whitener_jvp(self, theta: Array, v: Array) -> Array:
        """Σ_j v_j ∂T/∂theta_j."""
        dQ = bands.flipped(self._graphs.cov_jvp(theta, v))
        return bands.flipped(bands.cholesky_jvp(self._factor(theta), dQ))

    def drive(self, theta: Array) -> Array:
        """u(theta) = T m."""
        return bands.multiply(self.whitener(theta), self._graphs.mean(theta))

    def drive_vjp(self, theta: Array, v: Array) -> Array:
        """⟨∂T m + T ∂m, v⟩."""
        T, m = self.whitener(theta), self._graphs.mean(theta)
        of_mean: Array = self._graphs.mean_vjp(theta, bands.multiply_transposed(T, v))
        if not m.any():
            return of_mean
        return of_mean + self.whitener_vjp(theta, bands.outer(v, m, len(T)))

    def drive_jvp(self, theta: Array, v: Array) -> Array:
        """∂T m + T ∂m along v."""
        T, m = self.whitener(theta), self._graphs.mean(theta)
        along = bands.multiply(T, self._graphs.mean_jvp(theta, v))
        return along + bands.multiply(self.whitener_jvp(theta, v), m)
