"""What a banded prior asks for, of T and u of a series, or of Q and m of areas."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from numpy.typing import NDArray

from pymc_lgm.linalg import Array
from pymc_lgm.priors import bands

__all__ = ["BandedModel", "OfPrecision", "OfWhitener"]


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
    """T or Q in the place of K, u or m in that of the mean: see `GaussianModel`."""

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


class OfPrecision:
    """Areas, by functions of Q and m. J Q J = L Lᵀ, J reversing the order, gives T = J Lᵀ J."""

    def __init__(self, functions: Functions, enters_cov: NDArray[np.bool_]):
        self._functions, self.enters_cov = functions, enters_cov
        self.mean, self.precision = functions.mean, functions.cov
        self.mean_vjp, self.mean_jvp = functions.mean_vjp, functions.mean_jvp

    def _factor(self, theta: Array) -> Array:
        """L; NaN where Q is not positive definite."""
        Q = self.precision(theta)
        L = bands.cholesky(bands.flipped(Q))
        return np.full_like(Q, np.nan) if L is None else L

    def whitener(self, theta: Array) -> Array:
        """T = J Lᵀ J."""
        return bands.flipped(self._factor(theta))

    def whitener_vjp(self, theta: Array, M: Array) -> Array:
        """Back through the factor."""
        F = bands.cholesky_vjp(self._factor(theta), bands.flipped(M))
        return self._functions.cov_vjp(theta, bands.flipped(F))

    def whitener_jvp(self, theta: Array, v: Array) -> Array:
        """Forward through it."""
        dQ = bands.flipped(self._functions.cov_jvp(theta, v))
        return bands.flipped(bands.cholesky_jvp(self._factor(theta), dQ))

    def precision_vjp(self, theta: Array, M: Array) -> Array:
        """⟨∂Q, M⟩: what is beside the diagonal is there twice, and in the band once."""
        both = np.full((len(M), 1), 2.0)
        both[0] = 1.0
        return self._functions.cov_vjp(theta, both * M)
