"""A covariance matrix as what multiplies vectors, and the systems that are made of it."""

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
"""(rows, columns) -> that part of K."""

STORED = 4096
"""Up to how many rows K is stored as it is: 128 MiB."""

AT_ONCE = 2**18
"""Elements of K that are held at a time where it is not stored: 2 MiB, which a cache has."""


class KernelMatrix:
    """A symmetric matrix K (n, n) of which parts can be computed.

    Products compute the blocks of its upper triangle one after the other, use each for itself and
    for its transpose, and forget it. They cost O(n²) and hold O(n) and one block.

    Parameters
    ----------
    entries : callable
        (rows, columns), each a slice with numbers for both ends or an array of indices, -> K there.
    n : int
    stored : bool, optional
        Compute K once and keep it; by default for n up to 4096.

    Attributes
    ----------
    products : int
        Vectors that K has been multiplied with.

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
    def of_points(
        cls, k: Callable[[Array, Array], Array], X: Array, *, stored: bool | None = None
    ) -> KernelMatrix:
        """K of a covariance function of two arrays of points."""
        return cls(lambda rows, columns: k(X[rows], X[columns]), len(X), stored=stored)

    @classmethod
    def of_array(cls, K: Array) -> KernelMatrix:
        """A matrix that is there already."""
        return cls(lambda rows, columns: K[rows][:, columns], len(K))

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
    """A = c I + S K S, S = diag(s): what is to be solved.

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
        """A V, for a vector or columns: one product with K a column."""
        return self.shift * V + self.scaled(self.kernel.times(self.scaled(V)))
