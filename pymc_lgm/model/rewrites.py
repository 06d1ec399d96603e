"""What takes Numba's compiler, or a compiled loop, long, written otherwise: rewrites of graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt

from pytensor.compile.rewriting import inline_ofg_node
from pytensor.graph.basic import Constant
from pytensor.graph.rewriting.basic import MergeOptimizer, NodeRewriter, dfs_rewriter
from pytensor.link.numba.dispatch.basic import numba_njit
from pytensor.link.numba.dispatch.scalar import (
    numba_funcify_Composite,
    register_scalar_funcify,
    scalar_op_cache_key,
)
from pytensor.scalar.basic import Composite, UnaryScalarOp, upgrade_to_float
from pytensor.tensor.basic import Alloc, tensor_copy
from pytensor.tensor.elemwise import CAReduce, Elemwise
from pytensor.tensor.special import LogSoftmax, LogSumExp, Softmax

from pymc_lgm import elementary
from pymc_lgm.likelihoods.smooth import SmoothFunction
from pymc_lgm.model import matrices

__all__ = ["FOR_LARGE", "FOR_NUMBA", "Elementary"]

Variable = Any

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
        return pt.constant(np.log(x.data, dtype=np.float64)) if (x.data > 0).all() else None
    return x.owner.inputs[0] if x.owner is not None and x.owner.op == pt.exp else None


class _Bounded(NodeRewriter):
    """Whether a probability is within 0 and 1, or a rate is not negative: if it is not NaN.

    The check of a parameter does not compute the parameter then.
    """

    def tracks(self) -> list[Any]:
        return [pt.ge, pt.le]

    def transform(self, fgraph: Any, node: Any, enforce_tracks: bool = False) -> Any:
        if node.op not in self.tracks():
            return None
        x, bound = node.inputs
        function = None if x.owner is None else x.owner.op
        if not isinstance(bound, Constant) or function not in (pt.sigmoid, pt.exp):
            return None
        if node.op == pt.ge:
            holds = (bound.data <= 0.0).all()
        else:
            holds = function == pt.sigmoid and (bound.data >= 1.0).all()
        (inner,) = x.owner.inputs
        return [pt.ge(inner, _number(-np.inf, inner.type.ndim))] if holds else None


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


# A softmax hides its maximum until PyTensor fuses elementwise operations, at 49. One by one:
# several together cannot be pickled, and chains may have processes of their own.
ALWAYS = (
    (dfs_rewriter(_Bounded()), 48.89),
    (dfs_rewriter(_Logarithm()), 48.90),
    (dfs_rewriter(_WrittenOut()), 48.91),
    (MergeOptimizer(), 48.92),
    (dfs_rewriter(_Filled()), 48.94),
    (dfs_rewriter(matrices.Multiplied()), 48.95),
    (dfs_rewriter(_Elementary()), 48.96),
    (dfs_rewriter(matrices.Diagonals()), 48.97),
    # After elementwise operations are fused, and before results take the place of inputs.
    (dfs_rewriter(_Inlining()), 49.19),
    (dfs_rewriter(matrices.Rows()), 49.20),
)

FOR_NUMBA = (*ALWAYS, (dfs_rewriter(_Reduced()), 48.93))

FOR_LARGE = (
    *ALWAYS,
    (dfs_rewriter(matrices.Added()), 48.93),
    (dfs_rewriter(matrices.Apart()), 49.18),
)
"""For functions that read an n × n matrix."""
