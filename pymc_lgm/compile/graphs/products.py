"""Products, factors and solutions of matrices that compile quickly in Numba."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytensor.tensor as pt

from numba.extending import overload
from pytensor.tensor.math import Dot

from pymc_lgm.compile.graphs.upstream import register_funcify_default_op_cache_key
from pymc_lgm.compile.loops import CODE, blas
from pymc_lgm.linalg import Array

__all__ = [
    "Product",
    "choleskies",
    "cholesky",
    "product",
    "products",
    "solve_triangular",
    "times",
]

Variable = Any

FEW = 4
"""Longest inner dimension m of a batch of products that are computed by loops instead of BLAS.

A call of BLAS takes longer than a small product. By hand, a product of 2 × m and m × 2 takes 0.3 of
the time by loops if m is 1, 0.6 if m is 4, and 1.0 if m is 8. For larger results BLAS is faster: by
loops, a result of 5 × 5 takes 0.9 of the time if m is 2 and 1.2 if m is 4, and one of 21 × 21 takes
1.5 and 2 times as long.
"""


class Product(Dot):
    """The product of two matrices by BLAS. PyTensor's own takes 14 seconds to compile."""


@register_funcify_default_op_cache_key(Product)
def _funcify_product(op: Any, node: Any, **kwargs: Any) -> Any:
    return product, int(CODE[:8], 16)  # PyTensor's key is an integer


def in_one_piece(x: Any) -> Any:
    """The array, or a contiguous copy if it is not contiguous."""
    return np.ascontiguousarray(x)


@overload(in_one_piece)
def _in_one_piece(x):  # without type hints, because Numba compares signatures
    if x.layout in "CF":  # BLAS takes either
        return lambda x: x
    return lambda x: np.ascontiguousarray(x)


@numba.njit(cache=True)
def product(A: Array, B: Array) -> Array:
    """A B, for matrices in any order."""
    return blas.product(in_one_piece(A), in_one_piece(B))


def times(A: Variable, x: Variable) -> Variable:
    """A x for a matrix (m, n) and a vector (n,).

    It is a `Product` from the start, because PyMC compiles functions of its own with it, such as
    the one that records a draw, without this package's rewrites.
    """
    return pt.squeeze(Product()(A, pt.expand_dims(x, 1)), 1)


@numba.njit(cache=True)
def products(A: Array, B: Array) -> Array:
    """A_k B_k for each k, for arrays (N, n, m) and (N, m, r)."""
    out = np.empty((A.shape[0], A.shape[1], B.shape[2]))
    if A.shape[2] <= FEW:
        for k in range(len(A)):
            one, two, mine = A[k], B[k], out[k]
            for i in range(out.shape[1]):
                for j in range(out.shape[2]):
                    mine[i, j] = 0.0
                for c in range(A.shape[2]):
                    factor = one[i, c]
                    for j in range(out.shape[2]):
                        mine[i, j] += factor * two[c, j]
        return out
    for k in range(len(A)):
        each = product(A[k], B[k])
        for i in range(out.shape[1]):
            for j in range(out.shape[2]):
                out[k, i, j] = each[i, j]  # Numba takes seconds to compile out[k] = each
    return out


@numba.njit(cache=True)
def cholesky(A: Array) -> None:
    """Replace A, in row order, by its lower Cholesky factor, or by NaN if it has no factor.

    In column order, which LAPACK expects, the same memory is Aᵀ, and the factor an upper one.
    """
    if not blas.factorize_upper(A.T):
        A[:] = np.nan
        return
    for i in range(len(A)):
        for j in range(i + 1, len(A)):
            A[i, j] = 0.0


@numba.njit(cache=True)
def choleskies(A: Array) -> None:
    """Replace each A_k of an array (N, n, n) as `cholesky` does."""
    for k in range(len(A)):
        cholesky(A[k])


@numba.njit(cache=True)
def solve_triangular(T: Array, lower: bool, transposed: bool, rows: Array) -> None:
    """Replace each row x by T⁻¹ x or T⁻ᵀ x for a triangular T, or by NaN if T is singular."""
    for i in range(len(T)):
        if T[i, i] == 0.0:
            rows[:] = np.nan
            return
    if rows.size:
        # An array in row order is its transpose in column order, which BLAS expects.
        blas.solve(np.ascontiguousarray(T).T, not lower, not transposed, rows)
