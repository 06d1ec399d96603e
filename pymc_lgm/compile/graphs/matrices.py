"""Rewrites of graphs with matrices, so that products, sums and loops are fast in Numba."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt

from pytensor.graph.basic import Apply, Constant
from pytensor.graph.op import Op
from pytensor.graph.rewriting.basic import NodeRewriter
from pytensor.tensor.basic import tensor_copy
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot, Sum

from pymc_lgm.compile.graphs.products import Product
from pymc_lgm.compile.graphs.upstream import numba_njit, register_funcify_default_op_cache_key

__all__ = ["Added", "Diagonals", "Multiplied", "Rows", "Total"]

Variable = Any

KEPT = 10**6
"""Largest constant, in bytes, with which Numba caches a function on disk."""


class Multiplied(NodeRewriter):
    """Replace a product of float64 matrices by `Product`."""

    def tracks(self) -> list[Any]:
        """Return the operations that this rewrites."""
        return [Dot]

    def transform(self, fgraph: Any, node: Any, enforce_tracks: bool = False) -> Any:
        """Return the replacement of a node's results."""
        if type(node.op) is not Dot or any(v.type.dtype != "float64" for v in node.inputs):
            return None
        return [Product()(*node.inputs)]


class Total(Op):
    """The sum over the rows of a matrix (axis 0), its columns (1), or both (``None``).

    It has its own loops, which compile quickly.
    """

    __props__ = ("axis",)

    def __init__(self, axis: int | None):
        self.axis = axis

    def make_node(self, x: Variable) -> Apply:
        """Apply the sum to a matrix."""
        shape = () if self.axis is None else (x.type.shape[1 - self.axis],)
        return Apply(self, [x], [pt.tensor(dtype="float64", shape=shape)])

    def perform(self, node: Apply, inputs: Any, outputs: Any) -> None:
        """Compute the sum in Python."""
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
    """Replace a sum of a float64 matrix by `Total`."""

    def tracks(self) -> list[Any]:
        """Return the operations that this rewrites."""
        return [Sum]

    def transform(self, fgraph: Any, node: Any, enforce_tracks: bool = False) -> Any:
        """Return the replacement of a node's results."""
        if type(node.op) is not Sum or node.inputs[0].type.ndim != 2:
            return None
        if any(v.type.dtype != "float64" for v in (*node.inputs, *node.outputs)):
            return None
        axes = sorted(node.op.axis or (0, 1))
        return [Total(None if axes == [0, 1] else axes[0])(*node.inputs)]


class Diagonals(NodeRewriter):
    """Add a large diagonal constant, such as a jitter, to the diagonal only.

    Numba does not cache a function with a constant of n × n numbers on disk, so each process would
    compile it.
    """

    def tracks(self) -> list[Any]:
        """Return the operations that this rewrites."""
        return [pt.add]

    def transform(self, fgraph: Any, node: Any, enforce_tracks: bool = False) -> Any:
        """Return the replacement of a node's results."""
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
    """Whether a variable is a large constant that is 0 except on its diagonal."""
    if not isinstance(x, Constant) or x.type.ndim != 2 or x.data.nbytes < KEPT:
        return False
    square = x.data.shape[0] == x.data.shape[1]
    return square and np.count_nonzero(x.data) == np.count_nonzero(x.data.diagonal())


class Rows(NodeRewriter):
    """Copy a row that enters an elementwise matrix into a contiguous array.

    Numba does not know that a vector with an added axis is contiguous, and does not vectorize.
    """

    def tracks(self) -> list[Any]:
        """Return the operations that this rewrites."""
        return [Elemwise]

    def transform(self, fgraph: Any, node: Any, enforce_tracks: bool = False) -> Any:
        """Return the replacement of a node's results."""
        if not isinstance(node.op, Elemwise) or not _is_whole(node.outputs[0]):
            return None
        inputs = [tensor_copy(x) if _is_added_axis(x) else x for x in node.inputs]
        return None if inputs == node.inputs else node.op.make_node(*inputs).outputs


def _is_whole(x: Variable) -> bool:
    """Whether a variable is a matrix with no axis that broadcasts."""
    broadcast: tuple[bool, ...] = x.type.broadcastable
    return broadcast == (False, False)


def _is_added_axis(x: Variable) -> bool:
    """Whether a variable is a row, made by adding an axis to a vector."""
    is_row = x.type.broadcastable == (True, False)
    return is_row and x.owner is not None and isinstance(x.owner.op, DimShuffle)
