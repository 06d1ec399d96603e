"""Products of matrices that compile quickly in Numba."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt

from numba.extending import overload
from pytensor.tensor.math import Dot

from pymc_lgm.compile.graphs.upstream import numba_njit, register_funcify_default_op_cache_key
from pymc_lgm.compile.loops import blas

__all__ = ["Product", "times"]

Variable = Any


class Product(Dot):
    """The product of two matrices by BLAS, since PyTensor's own takes 17 seconds to compile."""


@register_funcify_default_op_cache_key(Product)
def _funcify_product(op: Any, node: Any, **kwargs: Any) -> Any:
    @numba_njit
    def product(x: Any, y: Any) -> Any:
        return blas.product(in_one_piece(x), in_one_piece(y))

    return product, 3


def in_one_piece(x: Any) -> Any:
    """The array, or a contiguous copy if it is not contiguous."""
    return np.ascontiguousarray(x)


@overload(in_one_piece)
def _in_one_piece(x):  # without type hints, because Numba compares signatures
    if x.layout in "CF":  # BLAS takes either
        return lambda x: x
    return lambda x: np.ascontiguousarray(x)


def times(A: Variable, x: Variable) -> Variable:
    """A x for a matrix (m, n) and a vector (n,).

    PyMC compiles it in functions of its own, such as the one that records a draw, so it is a
    `Product` from the start.
    """
    return pt.squeeze(Product()(A, pt.expand_dims(x, 1)), 1)
