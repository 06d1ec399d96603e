"""What a matrix A(theta) is like."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from numpy.typing import NDArray

from pymc_lgm.linalg import Array
from pymc_lgm.model import refusals

__all__ = ["basis_of_range", "is_of_full_rank", "order_of", "structure_of"]

TINY = 1e-300
"""Length of a column of zeros."""


def structure_of(columns: Array, moves: bool) -> tuple[str, Array | None]:
    """Of columns of A, and the columns if nothing moves them."""
    if moves:
        return "dense in theta", None
    one_hot = np.isin(columns, (0.0, 1.0)).all() and (columns.sum(axis=1) <= 1.0).all()
    if one_hot and np.array_equal(columns, np.eye(columns.shape[1])):
        return "identity", columns
    return ("index" if one_hot else "constant"), columns


def order_of(columns: Sequence[Array | None]) -> NDArray[np.intp] | None:
    """Which row has the 1 of each column, if A is a permutation matrix."""
    known = [each for each in columns if each is not None]
    if len(known) < len(columns):
        return None
    A = np.hstack(known)
    square = A.shape[0] == A.shape[1] and np.isin(A, (0.0, 1.0)).all()
    if not square or (A.sum(axis=0) != 1.0).any() or (A.sum(axis=1) != 1.0).any():
        return None
    return A.argmax(axis=0)


def norm_of(columns: Array) -> Array:
    """Lengths of columns."""
    result: Array = np.sqrt((columns**2).sum(axis=0))
    return result


def is_of_full_rank(columns: Array) -> bool:
    """Whether they span everything."""
    if columns.shape[1] < columns.shape[0]:
        return False
    scaled = columns / np.maximum(norm_of(columns), TINY)
    return int(np.linalg.matrix_rank(scaled, tol=1e-9)) == len(columns)


def basis_of_range(A: list[Array], latents: str = "f") -> Array | None:
    """Of the range of A, the same at every theta; ``None`` if that is everything.

    ``latents`` is what a message calls x.
    """
    E = len(A[0])
    # Columns of length one: a short length-scale must not hide the column of an intercept.
    columns = np.hstack(A)
    U, s, _ = np.linalg.svd(columns / np.maximum(norm_of(columns), TINY), full_matrices=False)
    rank = int((s > 1e-9 * s.max(initial=0.0)).sum())
    each = [int(np.linalg.matrix_rank(a / np.maximum(norm_of(a), TINY), tol=1e-9)) for a in A]
    if each[0] < min(each[1:], default=rank) == rank:
        raise ValueError(refusals.range_is_less_at_the_start(latents, E, each[0], rank))
    if min(each) < rank:
        raise ValueError(refusals.range_moves(latents, E, min(each)))
    if rank == E:
        return None
    return np.ascontiguousarray(U[:, :rank])
