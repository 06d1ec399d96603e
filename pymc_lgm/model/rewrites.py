"""What takes Numba's compiler, or a compiled loop, long, written otherwise: rewrites of graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt

from numba.extending import overload
from pytensor.compile.rewriting import inline_ofg_node
from pytensor.graph.basic import Apply, Constant
from pytensor.graph.op import Op
from pytensor.graph.rewriting.basic import MergeOptimizer, NodeRewriter, dfs_rewriter
from pytensor.graph.traversal import ancestors
from pytensor.link.numba.dispatch.basic import numba_njit, register_funcify_default_op_cache_key
from pytensor.link.numba.dispatch.scalar import (
    numba_funcify_Composite,
    register_scalar_funcify,
    scalar_op_cache_key,
)
from pytensor.scalar.basic import Composite, UnaryScalarOp, upgrade_to_float
from pytensor.tensor.basic import Alloc, tensor_copy
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.math import Dot, Sum
from pytensor.tensor.special import LogSoftmax, LogSumExp, Softmax

from pymc_lgm import elementary
from pymc_lgm.likelihoods.smooth import SmoothFunction

__all__ = ["FOR_LARGE", "FOR_NUMBA", "Elementary", "Product", "Total"]

Variable = Any

KEPT = 10**6
"""Bytes of the largest constant with which Numba keeps a function on disk."""

SOFTMAX = (Softmax, LogSoftmax, LogSumExp)


class _WrittenOut(NodeRewriter):
    """A softmax, or what states its own derivative, by the operations it is made of."""

    def tracks(self) -> list[Any]:
        return [*SOFTMAX, Elemwise]

    def transform(self, fgraph: Any, node: Any, enforce_tracks: bool = False) -> Any:
        if isinstance(node.op, SOFTMAX):
            return inline_ofg_node(node)
        if not isinstance(node.op, Elemwise) or not isinstance(node.op.scalar_op, SmoothFunction):
            return None
        return [_elementwise(node.op.scalar_op, node.inputs[0])]


def _elementwise(function: SmoothFunction, x: Variable) -> Variable:
    """The graph of a function of one scalar as one of an array."""
    graph = function.fgraph
    known = {graph.inputs[0]: x}
    for node in graph.toposort():
        inputs = [known[v] if v in known else _number(v.data, x.type.ndim) for v in node.inputs]
        inner = isinstance(node.op, SmoothFunction)
        made = _elementwise(node.op, *inputs) if inner else Elemwise(node.op)(*inputs)
        known[node.outputs[0]] = made
    return known[graph.outputs[0]]


def _number(value: Any, ndim: int) -> Variable:
    """A number with so many axes: none is added to it later."""
    return pt.constant(np.full((1,) * ndim, value))


class _Reduced(NodeRewriter):
    """A sum, or whether all hold, of a copy: elementwise with the reduction in the same loop."""

    def tracks(self) -> list[Any]:
        return [CAReduce]

    def transform(self, fgraph: Any, node: Any, enforce_tracks: bool = False) -> Any:
        if not isinstance(node.op, CAReduce):
            return None
        (x,) = node.inputs
        made = None if x.owner is None else x.owner.op
        if made == tensor_copy or (isinstance(made, Elemwise) and len(fgraph.clients[x]) == 1):
            return None
        return [node.op(tensor_copy(x))]


class _Filled(NodeRewriter):
    """An array of one number, as the element of a vector: no array is assigned."""

    def tracks(self) -> list[Any]:
        return [Alloc]

    def transform(self, fgraph: Any, node: Any, enforce_tracks: bool = False) -> Any:
        if not isinstance(node.op, Alloc):
            return None
        value, *shape = node.inputs
        if value.type.ndim > 0 or not shape:
            return None
        return [pt.alloc(pt.expand_dims(value, 0), *shape)]


class Product(Dot):
    """x y of two matrices, as Numba has it: PyTensor's own takes 17 seconds to compile."""


@register_funcify_default_op_cache_key(Product)
def _funcify_product(op: Any, node: Any, **kwargs: Any) -> Any:
    @numba_njit
    def product(x: Any, y: Any) -> Any:
        return np.dot(in_one_piece(x), in_one_piece(y))

    return product, 2


def in_one_piece(x: Any) -> Any:
    """The array, or a copy of one whose rows or columns lie apart."""
    return np.ascontiguousarray(x)


@overload(in_one_piece)
def _in_one_piece(x):  # without types, as Numba compares signatures
    if x.layout in "CF":  # BLAS takes either
        return lambda x: x
    return lambda x: np.ascontiguousarray(x)


class _Multiplied(NodeRewriter):
    """A product of matrices of float64 as `Product`."""

    def tracks(self) -> list[Any]:
        return [Dot]

    def transform(self, fgraph: Any, node: Any, enforce_tracks: bool = False) -> Any:
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


class _Added(NodeRewriter):
    """A sum of a matrix of float64 as `Total`."""

    def tracks(self) -> list[Any]:
        return [Sum]

    def transform(self, fgraph: Any, node: Any, enforce_tracks: bool = False) -> Any:
        if type(node.op) is not Sum or node.inputs[0].type.ndim != 2:
            return None
        if any(v.type.dtype != "float64" for v in (*node.inputs, *node.outputs)):
            return None
        axes = sorted(node.op.axis or (0, 1))
        return [Total(None if axes == [0, 1] else axes[0])(*node.inputs)]


class _Logarithm(NodeRewriter):
    """log(c eˣ), as of a rate with an exposure, as log c + x: nothing over- or underflows."""

    def tracks(self) -> list[Any]:
        return [pt.log]

    def transform(self, fgraph: Any, node: Any, enforce_tracks: bool = False) -> Any:
        if node.op != pt.log or node.inputs[0].owner is None:
            return None
        product = node.inputs[0]
        if product.owner.op != pt.mul:
            return None
        factors = product.owner.inputs
        logs = [log for log in map(_log_of, factors) if log is not None]
        if len(logs) < len(factors):
            return None
        return [pt.add(*logs).astype(node.outputs[0].dtype)]


def _log_of(x: Variable) -> Variable | None:
    """The logarithm of an exponential, or of positive constants."""
    if isinstance(x, Constant):
        return pt.constant(np.log(x.data)) if (x.data > 0).all() else None
    return x.owner.inputs[0] if x.owner is not None and x.owner.op == pt.exp else None


class Elementary(UnaryScalarOp):
    """A function of `pymc_lgm.elementary`: of several numbers at once, with what is around it."""

    def __init__(self, name: str) -> None:
        super().__init__(upgrade_to_float, name=name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Elementary) and self.name == other.name

    def __hash__(self) -> int:
        return hash((Elementary, self.name))

    def impl(self, x: Any) -> Any:
        """One number."""
        return getattr(elementary, self.name)(x)

    def c_code(self, *_: Any) -> str:
        """PyTensor fuses only what has some, also for Numba, which has no use for it."""
        return "#error"


@register_scalar_funcify(Elementary)
def _funcify_elementary(op: Any, node: Any, is_inlined: bool = False, **kwargs: Any) -> Any:
    # What has a key is kept on disk in a function around it, and that would be called.
    key = None if is_inlined else scalar_op_cache_key(op, name=op.name, version=7)
    return getattr(elementary, op.name), key


ELEMENTARY = {
    getattr(pt, name): Elemwise(Elementary(name))
    for name in ("erfcx", "exp", "expm1", "log", "log1mexp", "log1p", "softplus")
}


class _Elementary(NodeRewriter):
    """Elementary functions of float64, and a logistic function by its exponential."""

    def tracks(self) -> list[Any]:
        return [*ELEMENTARY, pt.sigmoid]

    def transform(self, fgraph: Any, node: Any, enforce_tracks: bool = False) -> Any:
        if node.op not in self.tracks() or node.inputs[0].type.dtype != "float64":
            return None
        (x,) = node.inputs
        if node.op != pt.sigmoid:
            return [ELEMENTARY[node.op](x)]
        return [pt.reciprocal(_number(1.0, x.type.ndim) + ELEMENTARY[pt.exp](-x))]


class Inlined(Composite):
    """Elementwise operations in one, put into the loop over elements: a call is no vector's."""


@register_scalar_funcify(Inlined)
def _funcify_inlined(op: Any, node: Any, **kwargs: Any) -> Any:
    _, key = numba_funcify_Composite(op, node, **kwargs)
    function, _ = numba_funcify_Composite(op, node, is_inlined=True, **kwargs)
    return numba_njit(function.py_func, forceinline=True), key


class _Inlining(NodeRewriter):
    """What has been fused with an elementary function, as `Inlined`."""

    def tracks(self) -> list[Any]:
        return [Elemwise]

    def transform(self, fgraph: Any, node: Any, enforce_tracks: bool = False) -> Any:
        if not isinstance(node.op, Elemwise) or type(op := node.op.scalar_op) is not Composite:
            return None
        if not any(isinstance(inner.op, Elementary) for inner in op.fgraph.apply_nodes):
            return None
        return Elemwise(Inlined(op.inputs, op.outputs)).make_node(*node.inputs).outputs


class _Diagonals(NodeRewriter):
    """A large constant on a diagonal, as a jitter is, added there alone: it is no n × n array.

    Numba keeps no function on disk that has a constant as large: each process would compile it.
    """

    def tracks(self) -> list[Any]:
        return [pt.add]

    def transform(self, fgraph: Any, node: Any, enforce_tracks: bool = False) -> Any:
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


class _Rows(NodeRewriter):
    """A row that a matrix is made with, element by element, as an array in one piece.

    Numba does not know that of a vector to which an axis is added, and takes one element at a time.
    """

    def tracks(self) -> list[Any]:
        return [Elemwise]

    def transform(self, fgraph: Any, node: Any, enforce_tracks: bool = False) -> Any:
        whole = node.outputs[0].type.broadcastable == (False, False)
        if not isinstance(node.op, Elemwise) or not whole:
            return None
        inputs = [tensor_copy(x) if _is_added_axis(x) else x for x in node.inputs]
        return None if inputs == node.inputs else node.op.make_node(*inputs).outputs


class _Apart(NodeRewriter):
    """Each of several matrices that one loop would write, by a loop of its own.

    Before it makes vectors of a loop the compiler has to know that no array is part of another. Of
    so many as several results and what they are made of it does not find out. Two exponentials are
    dearer than one, but not four times.
    """

    def tracks(self) -> list[Any]:
        return [Elemwise]

    def transform(self, fgraph: Any, node: Any, enforce_tracks: bool = False) -> Any:
        whole = all(out.type.broadcastable == (False, False) for out in node.outputs)
        if not isinstance(node.op, Elemwise) or len(node.outputs) == 1 or not whole:
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


def _is_added_axis(x: Variable) -> bool:
    """Whether it is a row made of a vector."""
    is_row = x.type.broadcastable == (True, False)
    return is_row and x.owner is not None and isinstance(x.owner.op, DimShuffle)


# A softmax hides its maximum until PyTensor fuses elementwise operations, at 49. One by one:
# several together cannot be pickled, and chains may have processes of their own.
ALWAYS = (
    (dfs_rewriter(_Logarithm()), 48.90),
    (dfs_rewriter(_WrittenOut()), 48.91),
    (MergeOptimizer(), 48.92),
    (dfs_rewriter(_Filled()), 48.94),
    (dfs_rewriter(_Multiplied()), 48.95),
    (dfs_rewriter(_Elementary()), 48.96),
    (dfs_rewriter(_Diagonals()), 48.97),
    # After elementwise operations are fused, and before results take the place of inputs.
    (dfs_rewriter(_Inlining()), 49.19),
    (dfs_rewriter(_Rows()), 49.20),
)

FOR_NUMBA = (*ALWAYS, (dfs_rewriter(_Reduced()), 48.93))

FOR_LARGE = (*ALWAYS, (dfs_rewriter(_Added()), 48.93), (dfs_rewriter(_Apart()), 49.18))
"""For functions that read an n × n matrix."""
