"""What a banded prior asks for, of T and u of a series."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from numpy.typing import NDArray

from pymc_lgm.linalg import Array
from pymc_lgm.priors import bands

__all__ = ["BandedModel", "OfWhitener"]


class BandedModel(Protocol):
    """T, Q = TᵀT and m as functions of theta (p,), with their derivatives.

    ``vjp`` gives ⟨∂·/∂theta_j, M⟩ for each j, shape (p,), ``jvp`` the derivative along v (p,).
    """

    @property
    def enters_cov(self) -> NDArray[np.bool_]:
        """Which of the p components of theta T depends on."""

    def whitener(self, theta: Array) -> Array:
        """T(theta), lower triangular in bands (b + 1, n); NaN where there is none."""

    def whitener_vjp(self, theta: Array, M: Array) -> Array:
        """Of T, M on its band."""

    def whitener_jvp(self, theta: Array, v: Array) -> Array:
        """Of T."""

    def precision(self, theta: Array) -> Array:
        """Q(theta), symmetric, on the band."""

    def precision_vjp(self, theta: Array, M: Array) -> Array:
        """Of Q, M symmetric, on the band."""

    def mean(self, theta: Array) -> Array:
        """m(theta), shape (n,)."""

    def mean_vjp(self, theta: Array, v: Array) -> Array:
        """Of m."""

    def mean_jvp(self, theta: Array, v: Array) -> Array:
        """Of m."""


class Functions(Protocol):
    """T in the place of K, u in that of the mean: see `GaussianModel`."""

    def cov(self, theta: Array) -> Array: ...
    def cov_vjp(self, theta: Array, M: Array) -> Array: ...
    def cov_jvp(self, theta: Array, v: Array) -> Array: ...
    def mean(self, theta: Array) -> Array: ...
    def mean_vjp(self, theta: Array, v: Array) -> Array: ...
    def mean_jvp(self, theta: Array, v: Array) -> Array: ...


class OfWhitener:
    """A series, T f = u + ε, by functions of T and u."""

    def __init__(self, functions: Functions, enters_cov: NDArray[np.bool_]):
        self._functions, self.enters_cov = functions, enters_cov
        self.whitener = functions.cov
        self.whitener_vjp, self.whitener_jvp = functions.cov_vjp, functions.cov_jvp

    def precision(self, theta: Array) -> Array:
        """TᵀT."""
        return bands.gram(self.whitener(theta))

    def precision_vjp(self, theta: Array, M: Array) -> Array:
        """⟨∂Tᵀ T + Tᵀ ∂T, M⟩ = ⟨∂T, 2 T M⟩."""
        return self.whitener_vjp(theta, 2.0 * bands.product_on_band(self.whitener(theta), M))

    def mean(self, theta: Array) -> Array:
        """T⁻¹ u."""
        return bands.solve(self.whitener(theta), self._functions.mean(theta))

    def mean_vjp(self, theta: Array, v: Array) -> Array:
        """⟨∂m, v⟩ = ⟨∂u − ∂T m, T⁻ᵀ v⟩."""
        T = self.whitener(theta)
        w = bands.solve(T, v, transposed=True)
        of_T = self.whitener_vjp(theta, bands.outer(w, self.mean(theta), len(T)))
        return self._functions.mean_vjp(theta, w) - of_T

    def mean_jvp(self, theta: Array, v: Array) -> Array:
        """T⁻¹(∂u − ∂T m)."""
        changed = bands.multiply(self.whitener_jvp(theta, v), self.mean(theta))
        return bands.solve(self.whitener(theta), self._functions.mean_jvp(theta, v) - changed)
