"""A covariance matrix by its products with vectors, and the systems that contain it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from numpy.typing import NDArray

from pymc_lgm.linalg import Array

__all__ = ["STORED", "Entries", "Index", "KernelMatrix", "KernelSystem"]

Index = slice | NDArray[np.intp]

Entries = Callable[[Index, Index], Array]
"""(rows, columns) -> that block of K."""

STORED = 4096
"""Largest number of rows for which K is stored by default: 128 MiB."""

AT_ONCE = 2**18
"""Elements of K in memory at a time if K is not stored: 2 MiB, so that they fit in a cache."""


class KernelMatrix:
    """A symmetric matrix K (n, n) whose blocks are computed on demand.

    A product computes the blocks of the upper triangle in turn, uses each block and its transpose,
    and discards it. It costs O(n²) operations and O(n) memory besides one block.

    Parameters
    ----------
    entries : callable
        (rows, columns) -> that block of K. Each argument is a slice with integers at both ends, or
        an array of indices.
    n : int
    stored : bool, optional
        Compute K once and store it; by default for n up to 4096.

    Attributes
    ----------
    products : int
        Number of vectors that K has been multiplied with.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.array([0.0, 1.0, 2.0])
    >>> K = KernelMatrix.of_points(lambda a, b: np.exp(-abs(a[:, None] - b)), x)
    >>> K.times(np.ones(3)).round(3)
    array([1.503, 1.736, 1.503])
    """

    def __init__(self, entries: Entries, n: int, *, stored: bool | None = None):
        self.entries, self.n = entries, n
        self.stored = n <= STORED if stored is None else stored
        self.products = 0

    @classmethod
    def of_points(cls, k: Callable[[Array, Array], Array], X: Array) -> KernelMatrix:
        """K from a covariance function of two arrays of points."""
        return cls(lambda rows, columns: k(X[rows], X[columns]), len(X))

    @cached_property
    def _whole(self) -> Array:
        return self.entries(slice(0, self.n), slice(0, self.n))

    def times(self, V: Array) -> Array:
        """K V, for a vector (n,) or columns (n, N)."""
        self.products += 1 if V.ndim == 1 else V.shape[1]
        if self.stored:
            product: Array = self._whole @ V
            return product
        result = np.zeros_like(V)
        start = 0
        while start < self.n:
            stop = min(self.n, start + max(1, AT_ONCE // (self.n - start)))
            block = self.entries(slice(start, stop), slice(start, self.n))
            result[start:stop] += block @ V[start:]
            result[stop:] += block[:, stop - start :].T @ V[start:stop]
            start = stop
        return result

    def columns(self, chosen: NDArray[np.intp]) -> Array:
        """K[:, chosen], shape (n, m)."""
        return self.entries(slice(0, self.n), chosen)

    @cached_property
    def diagonal(self) -> Array:
        """Its diagonal, shape (n,)."""
        size = 16
        parts = [slice(i, min(i + size, self.n)) for i in range(0, self.n, size)]
        return np.concatenate([self.entries(part, part).diagonal() for part in parts])


@dataclass(frozen=True, eq=False)
class KernelSystem:
    """The system matrix A = c I + S K S, S = diag(s).

    K + λ I of regression is c = λ, s = 1. Laplace's B = I + W^½ K W^½ is c = 1, s = W^½.

    Parameters
    ----------
    kernel : KernelMatrix
    shift : float
        c > 0.
    scale : ndarray, shape (n,), optional
        s; by default 1.
    """

    kernel: KernelMatrix
    shift: float
    scale: Array | None = None

    @property
    def n(self) -> int:
        """Number of rows."""
        return self.kernel.n

    def scaled(self, V: Array) -> Array:
        """S V."""
        if self.scale is None:
            return V
        return self.scale * V if V.ndim == 1 else self.scale[:, None] * V

    def times(self, V: Array) -> Array:
        """A V, for a vector or columns: one product with K per column."""
        return self.shift * V + self.scaled(self.kernel.times(self.scaled(V)))
