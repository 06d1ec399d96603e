"""Factors of a banded precision: see `pymc_lgm.priors.precision_posterior.Factor`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pymc_lgm.linalg import Array
from pymc_lgm.priors import bands

__all__ = ["BandFactor", "WhitenerFactor"]


@dataclass(frozen=True, eq=False)
class BandFactor:
    """A = L Lᵀ in bands: O(n b) a column and verb. See `Factor`."""

    L: Array

    @cached_property
    def log_determinant(self) -> float:
        """log|A|."""
        return 2.0 * float(np.log(self.L[0]).sum())

    def solve(self, x: Array) -> Array:
        """L⁻¹ x."""
        return bands.solve(self.L, x)

    def solve_transposed(self, xi: Array) -> Array:
        """L⁻ᵀ ξ."""
        return bands.solve(self.L, xi, transposed=True)

    def multiply(self, xi: Array) -> Array:
        """L ξ."""
        return bands.multiply(self.L, xi)

    def multiply_transposed(self, x: Array) -> Array:
        """Lᵀ x."""
        return bands.multiply_transposed(self.L, x)

    @cached_property
    def inverse_on_band(self) -> Array:
        """A⁻¹ where the band of A is: O(n b²)."""
        return bands.inverse_on_band(self.L)

    @property
    def inverse_diagonal(self) -> Array:
        """(A⁻¹)_ii."""
        result: Array = self.inverse_on_band[0]
        return result


@dataclass(frozen=True, eq=False)
class WhitenerFactor:
    """TᵀT = R Rᵀ with R = Tᵀ, T lower triangular in bands: nothing is factorized. See `Factor`."""

    T: Array

    @cached_property
    def log_determinant(self) -> float:
        """log|TᵀT|."""
        return 2.0 * float(np.log(self.T[0]).sum())

    def solve(self, x: Array) -> Array:
        """T⁻ᵀ x."""
        return bands.solve(self.T, x, transposed=True)

    def solve_transposed(self, xi: Array) -> Array:
        """T⁻¹ ξ."""
        return bands.solve(self.T, xi)

    def multiply(self, xi: Array) -> Array:
        """Tᵀ ξ."""
        return bands.multiply_transposed(self.T, xi)

    def multiply_transposed(self, x: Array) -> Array:
        """T x."""
        return bands.multiply(self.T, x)

    @cached_property
    def covariance_on_band(self) -> Array:
        """(TᵀT)⁻¹ where the band of T is."""
        reversed_K = bands.inverse_on_band(bands.flipped(self.T))
        # Entry (j + k, j) of the reversed matrix is (n − 1 − j, n − 1 − j − k) of K.
        return bands.flipped(reversed_K)

    @property
    def inverse_diagonal(self) -> Array:
        """Of (TᵀT)⁻¹."""
        result: Array = self.covariance_on_band[0]
        return result
