"""A Cholesky factor in the memory of a device, for any array library."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_lgm.linalg import Array, CholeskyFactor, tally

__all__ = ["DeviceFactor", "Library"]


@dataclass(frozen=True)
class Library:
    """Interface of an array library for a device.

    ``xp.asarray`` copies an array to the device, and ``fetched`` copies it back to NumPy.
    ``solve_triangular`` has SciPy's interface. Within ``strict`` a matrix that is not positive
    definite raises an error.
    """

    xp: Any
    solve_triangular: Callable[..., Any]
    fetched: Callable[[Any], Array]
    strict: Callable[[], AbstractContextManager[Any]]

    def factor_of(self, A: Any) -> DeviceFactor | None:
        """Factorize an array on the device from its lower triangle; ``None`` if that fails."""
        try:
            with self.strict():
                factor = DeviceFactor(self.xp.linalg.cholesky(A).T, self)
        except np.linalg.LinAlgError:
            return None
        return factor if np.isfinite(factor.log_determinant) else None


class DeviceFactor(CholeskyFactor):
    """A `CholeskyFactor` whose ``upper``, Lᵀ (n, n) in Fortran order, is an array on a device.

    Its methods take and return NumPy arrays.
    """

    def __init__(self, upper: Any, library: Library, log_variance: float = 0.0):
        super().__init__(upper, lower=False, log_variance=log_variance)
        self._library = library

    def times(self, log_variance: float) -> DeviceFactor:
        """The factor of v A: both share one array."""
        return DeviceFactor(self._packed, self._library, log_variance)

    def inverse(self) -> Array:
        """A⁻¹: one O(n³) operation, counted; n² numbers are copied."""
        X = self._inverse_factor()
        return self._library.fetched(X.T @ X)

    def inverse_diagonal(self) -> Array:
        """(A⁻¹)_ii, shape (n,): one O(n³) operation, counted; n numbers are copied."""
        return self._library.fetched((self._inverse_factor() ** 2).sum(axis=0))

    def inverse_factor(self) -> Array:
        """L⁻¹, a lower triangular array: one O(n³) operation, counted; n² numbers are copied."""
        return self._library.fetched(self._inverse_factor())

    def dense(self) -> Array:
        """Return L as an ordinary lower triangular array."""
        return self._library.fetched(self._scale * self._packed.T)

    def _inverse_factor(self) -> Any:
        tally.cubic_ops += 1
        return self._solved(self._library.xp.eye(self.n), transposed=True)

    def _solved(self, there: Any, transposed: bool) -> Any:
        solution = self._library.solve_triangular(self._packed, there, trans=int(transposed))
        solution /= self._scale
        return solution

    def _solution(self, x: Array, transposed: bool) -> Array:
        return self._library.fetched(self._solved(self._library.xp.asarray(x), transposed))

    def _product(self, x: Array, transposed: bool) -> Array:
        L = self._packed.T if transposed else self._packed
        return self._library.fetched(self._scale * (L @ self._library.xp.asarray(x)))
