"""BLAS and LAPACK for compiled loops: factors of a matrix, solves and products.

The routines are SciPy's own, so limits on SciPy's threads apply here, too. A matrix is an array (n,
n) in column order. It multiplies *rows*, an array (N, n) in row order, which BLAS reads as the
columns of an (n, N) array, so no argument is copied. `factorize_upper`, `invert_upper`, `multiply`
and `solve` overwrite their argument; `product` and `symmetric_times` return a new array.

Each function has a second form, for users who switch Numba's compilation off.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import get_cython_function_address, intrinsic
from scipy.linalg import blas, lapack

from pymc_lgm.compile.loops.callbacks import IS_COMPILED
from pymc_lgm.linalg import Array

__all__ = ["factorize_upper", "invert_upper", "multiply", "product", "solve", "symmetric_times"]

LOWER, UPPER, LEFT, PLAIN, TRANSPOSED, NON_UNIT = (ord(letter) for letter in "LULNTN")
"""Arguments of BLAS. A triangle whose diagonal is not known to be 1 is "non-unit"."""


def _routine(library: str, name: str) -> Any:
    """A SciPy routine as a function of a tuple of arguments, which Numba compiles.

    BLAS takes each argument by reference. An array is passed as it is, a letter as uint8, and an
    int64 as the 32-bit integer that SciPy's BLAS expects. Compiled code refers to the routine by
    its name, so the code can be cached on disk.
    """
    symbol = f"pymc_lgm_{name}"
    binding.add_symbol(symbol, get_cython_function_address(f"scipy.linalg.{library}", name))

    @intrinsic
    def call(_: Any, arguments: Any) -> Any:
        def pointer(builder: Any, context: Any, kind: Any, value: Any) -> Any:
            if isinstance(kind, types.Array):
                return context.make_array(kind)(context, builder, value).data
            if kind == types.int64:
                value = builder.trunc(value, ir.IntType(32))
            return cgutils.alloca_once_value(builder, value)

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            [packed] = signature.args
            parts = cgutils.unpack_tuple(builder, values[0], len(packed))
            data = [pointer(builder, context, *each) for each in zip(packed, parts, strict=True)]
            signature_of_routine = ir.FunctionType(ir.VoidType(), [each.type for each in data])
            routine = cgutils.get_or_insert_function(builder.module, signature_of_routine, symbol)
            builder.call(routine, data)
            return context.get_dummy_value()

        return types.void(arguments), generate

    result: Any = call
    return result


_potrf, _potri = _routine("cython_lapack", "dpotrf"), _routine("cython_lapack", "dpotri")
_trmm, _trmv = _routine("cython_blas", "dtrmm"), _routine("cython_blas", "dtrmv")
_trsm, _trsv = _routine("cython_blas", "dtrsm"), _routine("cython_blas", "dtrsv")
_symm, _symv = _routine("cython_blas", "dsymm"), _routine("cython_blas", "dsymv")
_gemm = _routine("cython_blas", "dgemm")


@numba.njit(cache=True)
def _factorize_upper(A: Array) -> bool:
    n, info = np.int64(len(A)), np.empty(1, dtype=np.int32)
    _potrf((np.uint8(UPPER), n, A, n, info))
    return info[0] == 0


@numba.njit(cache=True)
def _invert_upper(A: Array) -> None:
    n, info = np.int64(len(A)), np.empty(1, dtype=np.int32)
    _potri((np.uint8(UPPER), n, A, n, info))


@numba.njit(cache=True)
def _multiply(T: Array, lower: bool, transposed: bool, rows: Array) -> None:
    N, n, one = np.int64(rows.shape[0]), np.int64(rows.shape[1]), np.int64(1)
    left, triangle = np.uint8(LEFT), np.uint8(LOWER if lower else UPPER)
    form, non_unit = np.uint8(TRANSPOSED if transposed else PLAIN), np.uint8(NON_UNIT)
    if N == 1:  # dtrmv takes a third of the time of dtrmm, at n = 400 and at n = 1000
        _trmv((triangle, form, non_unit, n, T, n, rows, one))
    else:
        _trmm((left, triangle, form, non_unit, n, N, 1.0, T, n, rows, n))


@numba.njit(cache=True)
def _solve(T: Array, lower: bool, transposed: bool, rows: Array) -> None:
    N, n, one = np.int64(rows.shape[0]), np.int64(rows.shape[1]), np.int64(1)
    left, triangle = np.uint8(LEFT), np.uint8(LOWER if lower else UPPER)
    form, non_unit = np.uint8(TRANSPOSED if transposed else PLAIN), np.uint8(NON_UNIT)
    if N == 1:  # dtrsv takes a fourth of the time of dtrsm
        _trsv((triangle, form, non_unit, n, T, n, rows, one))
    else:
        _trsm((left, triangle, form, non_unit, n, N, 1.0, T, n, rows, n))


@numba.njit(cache=True)
def _symmetric_times(variance: float, A: Array, rows: Array) -> Array:
    N, n, one = np.int64(rows.shape[0]), np.int64(rows.shape[1]), np.int64(1)
    left, upper, out = np.uint8(LEFT), np.uint8(UPPER), np.empty(rows.shape)
    if N == 1:
        _symv((upper, n, variance, A, n, rows, one, 0.0, out, one))
    else:
        _symm((left, upper, n, N, variance, A, n, rows, n, 0.0, out, n))
    return out


@numba.njit(cache=True)
def _product(A: Array, B: Array) -> Array:
    # BLAS reads an array in row order as its transpose in column order. So it computes
    # (A B)ᵀ = Bᵀ Aᵀ, and transposes the arguments that are in column order.
    n, m, inner = np.int64(A.shape[0]), np.int64(B.shape[1]), np.int64(A.shape[1])
    A_by_rows, B_by_rows = A.flags.c_contiguous, B.flags.c_contiguous
    out = np.empty((n, m))
    form_of_A = np.uint8(PLAIN if A_by_rows else TRANSPOSED)
    form_of_B = np.uint8(PLAIN if B_by_rows else TRANSPOSED)
    # BLAS wants leading dimensions of at least 1, also of arrays without elements.
    lead_of_A = max(inner if A_by_rows else n, 1)
    lead_of_B = max(m if B_by_rows else inner, 1)
    _gemm((form_of_B, form_of_A, m, n, inner, 1.0, B, lead_of_B, A, lead_of_A, 0.0, out, max(m, 1)))
    return out


def _factorize_upper_by_scipy(A: Array) -> bool:
    _, info = lapack.dpotrf(A, lower=0, overwrite_a=1, clean=0)
    return bool(info == 0)


def _invert_upper_by_scipy(A: Array) -> None:
    lapack.dpotri(A, lower=0, overwrite_c=1)


def _multiply_by_scipy(T: Array, lower: bool, transposed: bool, rows: Array) -> None:
    rows[:] = blas.dtrmm(1.0, T, rows.T, lower=lower, trans_a=transposed).T


def _solve_by_scipy(T: Array, lower: bool, transposed: bool, rows: Array) -> None:
    rows[:] = blas.dtrsm(1.0, T, rows.T, lower=lower, trans_a=transposed).T


def _symmetric_times_by_scipy(variance: float, A: Array, rows: Array) -> Array:
    out: Array = blas.dsymm(variance, A, rows.T, lower=0).T
    return out


def _product_by_numpy(A: Array, B: Array) -> Array:
    out: Array = A @ B
    return out


factorize_upper = _factorize_upper if IS_COMPILED else _factorize_upper_by_scipy
"""factorize_upper(A) -> bool: overwrite the upper triangle with U, A = Uᵀ U; false if it fails."""

invert_upper = _invert_upper if IS_COMPILED else _invert_upper_by_scipy
"""invert_upper(A): overwrite the upper triangle U with the upper triangle of (Uᵀ U)⁻¹."""

multiply = _multiply if IS_COMPILED else _multiply_by_scipy
"""multiply(T, lower, transposed, rows): replace each row x by T x or Tᵀ x, with a triangle T."""

product = _product if IS_COMPILED else _product_by_numpy
"""product(A, B) -> A B. Each argument may be in row or column order.

Numba needs 0.06 seconds to compile a function that calls it, and 0.4 for one that has ``A @ B``.
"""

solve = _solve if IS_COMPILED else _solve_by_scipy
"""solve(T, lower, transposed, rows): replace each row x by T⁻¹ x or T⁻ᵀ x, with a triangle T."""

symmetric_times = _symmetric_times if IS_COMPILED else _symmetric_times_by_scipy
"""symmetric_times(v, A, rows) -> an array with v A x for each row x; reads the upper triangle."""
