"""Rewrites of graphs of matrices: products, sums and loops over n² numbers, fast in Numba."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt

from numba.extending import overload
from pytensor.graph.basic import Apply, Constant
from pytensor.graph.op import Op
from pytensor.graph.rewriting.basic import NodeRewriter
from pytensor.graph.traversal import ancestors
from pytensor.link.numba.dispatch.basic import numba_njit, register_funcify_default_op_cache_key
from pytensor.scalar.basic import Composite
from pytensor.tensor.basic import tensor_copy
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot, Sum

from pymc_lgm import blas

__all__ = ["Added", "Apart", "Diagonals", "Multiplied", "Product", "Rows", "Total"]

Variable = Any

KEPT = 10**6
"""Bytes of the largest constant with which Numba keeps a function on disk."""


class Product(Dot):
    """x y of two matrices, by BLAS alone: PyTensor's own takes 17 seconds to compile."""


@register_funcify_default_op_cache_key(Product)
def _funcify_product(op: Any, node: Any, **kwargs: Any) -> Any:
    @numba_njit
    def product(x: Any, y: Any) -> Any:
        return blas.product(in_one_piece(x), in_one_piece(y))

    return product, 3


def in_one_piece(x: Any) -> Any:
    """The array, or a copy of one whose rows or columns lie apart."""
    return np.ascontiguousarray(x)


@overload(in_one_piece)
def _in_one_piece(x):  # without types, as Numba compares signatures
    if x.layout in "CF":  # BLAS takes either
        return lambda x: x
    return lambda x: np.ascontiguousarray(x)


class Multiplied(NodeRewriter):
    """A product of matrices of float64 as `Product`."""

    def tracks(self) -> list[Any]:
        """What it looks at."""
        return [Dot]

    def transform(self, fgraph: Any, node: Any, enforce_tracks: bool = False) -> Any:
        """What takes its place."""
        if type(node.op) is not Dot or any(v.type.dtype != "float64" for v in node.inputs):
            return None
        return [Product()(*node.inputs)]


class Total(Op):
    """Sums over the rows of a matrix (axis 0), over its columns (1), or over both (``None``).

    Loops of their own, which compile at once.
    """

    __props__ = ("axis",)

    def __init__(self, axis: int | None):
        self.axis = axis

    def make_node(self, x: Variable) -> Apply:
        """Of a matrix."""
        shape = () if self.axis is None else (x.type.shape[1 - self.axis],)
        return Apply(self, [x], [pt.tensor(dtype="float64", shape=shape)])

    def perform(self, node: Apply, inputs: Any, outputs: Any) -> None:
        """In Python."""
        outputs[0][0] = np.asarray(inputs[0].sum(axis=self.axis))


@register_funcify_default_op_cache_key(Total)
def _funcify_total(op: Any, node: Any, **kwargs: Any) -> Any:
    @numba_njit
    def over_rows(x: Any) -> Any:
        sums = np.zeros(x.shape[1])
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                sums[j] += x[i, j]
        return sums

    @numba_njit
    def over_columns(x: Any) -> Any:
        sums = np.zeros(x.shape[0])
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                sums[i] += x[i, j]
        return sums

    @numba_njit
    def over_both(x: Any) -> Any:
        sums = np.zeros(())
        for i in range(x.shape[0]):
            row = 0.0
            for j in range(x.shape[1]):
                row += x[i, j]
            sums[()] += row
        return sums

    return {0: over_rows, 1: over_columns, None: over_both}[op.axis], 1


class Added(NodeRewriter):
    """A sum of a matrix of float64 as `Total`."""

    def tracks(self) -> list[Any]:
        """What it looks at."""
        return [Sum]

    def transform(self, fgraph: Any, node: Any, enforce_tracks: bool = False) -> Any:
        """What takes its place."""
        if type(node.op) is not Sum or node.inputs[0].type.ndim != 2:
            return None
        if any(v.type.dtype != "float64" for v in (*node.inputs, *node.outputs)):
            return None
        axes = sorted(node.op.axis or (0, 1))
        return [Total(None if axes == [0, 1] else axes[0])(*node.inputs)]


class Diagonals(NodeRewriter):
    """A large constant on a diagonal, as a jitter is, added there alone: it is no n × n array.

    Numba keeps no function on disk that has a constant as large: each process would compile it.
    """

    def tracks(self) -> list[Any]:
        """What it looks at."""
        return [pt.add]

    def transform(self, fgraph: Any, node: Any, enforce_tracks: bool = False) -> Any:
        """What takes its place."""
        if node.op != pt.add:
            return None
        diagonals = [x for x in node.inputs if _is_large_diagonal(x)]
        others = [x for x in node.inputs if x not in diagonals]
        if not diagonals or not others:
            return None
        total = pt.add(*others) if len(others) > 1 else others[0]
        if total.type.broadcastable != (False, False):
            return None
        values = sum(x.data.diagonal() for x in diagonals)
        index = pt.constant(np.arange(values.size))
        return [pt.inc_subtensor(total[index, index], values.astype(total.type.dtype))]


def _is_large_diagonal(x: Variable) -> bool:
    """Whether it is a constant of which only the diagonal is not zero."""
    if not isinstance(x, Constant) or x.type.ndim != 2 or x.data.nbytes < KEPT:
        return False
    square = x.data.shape[0] == x.data.shape[1]
    return square and np.count_nonzero(x.data) == np.count_nonzero(x.data.diagonal())


class Rows(NodeRewriter):
    """A row that a matrix is made with, element by element, as an array in one piece.

    Numba does not know that of a vector to which an axis is added, and takes one element at a time.
    """

    def tracks(self) -> list[Any]:
        """What it looks at."""
        return [Elemwise]

    def transform(self, fgraph: Any, node: Any, enforce_tracks: bool = False) -> Any:
        """What takes its place."""
        if not isinstance(node.op, Elemwise) or not _is_whole(node.outputs[0]):
            return None
        inputs = [tensor_copy(x) if _is_added_axis(x) else x for x in node.inputs]
        return None if inputs == node.inputs else node.op.make_node(*inputs).outputs


class Apart(NodeRewriter):
    """Each of several matrices that one loop would write, by a loop of its own.

    Before it makes vectors of a loop the compiler has to know that no array is part of another. Of
    so many as several results and what they are made of it does not find out. Two exponentials are
    dearer than one, but not four times.
    """

    def tracks(self) -> list[Any]:
        """What it looks at."""
        return [Elemwise]

    def transform(self, fgraph: Any, node: Any, enforce_tracks: bool = False) -> Any:
        """What takes its place."""
        if not isinstance(node.op, Elemwise) or len(node.outputs) == 1:
            return None
        if not all(map(_is_whole, node.outputs)):
            return None
        inner = node.op.scalar_op
        if not isinstance(inner, Composite):
            return None
        return [_alone(inner, node.inputs, k) for k in range(len(node.outputs))]


def _alone(op: Composite, inputs: list[Variable], k: int) -> Variable:
    """The k-th result of what computes several at once."""
    reads = set(ancestors([op.fgraph.outputs[k]]))
    pairs = zip(op.fgraph.inputs, inputs, strict=True)
    own, given = zip(*((one, x) for one, x in pairs if one in reads), strict=True)
    return Elemwise(Composite(list(own), [op.fgraph.outputs[k]]))(*given)


def _is_whole(x: Variable) -> bool:
    """Whether it is a matrix, and not a row or a column that is repeated."""
    broadcast: tuple[bool, ...] = x.type.broadcastable
    return broadcast == (False, False)


def _is_added_axis(x: Variable) -> bool:
    """Whether it is a row made of a vector."""
    is_row = x.type.broadcastable == (True, False)
    return is_row and x.owner is not None and isinstance(x.owner.op, DimShuffle)
