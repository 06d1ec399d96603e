"""Rewrites of graphs that compile faster in Numba, or into faster loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt

from pytensor.compile.builders import FinalizedOpFromGraph, OpFromGraph
from pytensor.compile.ops import ViewOp
from pytensor.compile.rewriting import inline_ofg_node
from pytensor.graph.basic import Constant
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.rewriting.basic import (
    MergeOptimizer,
    NodeRewriter,
    dfs_rewriter,
    in2out,
    node_rewriter,
)
from pytensor.scalar import basic as ps
from pytensor.scalar import math
from pytensor.scalar.basic import UnaryScalarOp, upgrade_to_float
from pytensor.tensor.basic import AllocDiag, Join, Split
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.rewriting.elemwise import FusionOptimizer
from pytensor.tensor.shape import Shape_i
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    indices_from_subtensor,
)

from pymc_lgm.compile.graphs import stacked
from pymc_lgm.compile.graphs.nodes import op_of
from pymc_lgm.compile.graphs.products import Product
from pymc_lgm.compile.graphs.smooth import SmoothFunction
from pymc_lgm.compile.graphs.upstream import (
    numba_funcify_ensure_cache,
    numba_njit,
    register_funcify_and_cache_key,
)
from pymc_lgm.compile.loops import CODE, elementary

__all__ = ["FOR_NUMBA", "Alone", "Elementary", "rewriter"]

Variable = Any


def _is_symbolic(op: Any) -> bool:
    """Whether an operation is the name of a graph, such as a softmax, without loops of its own."""
    return isinstance(op, OpFromGraph) and not isinstance(op, FinalizedOpFromGraph | AllocDiag)


def _viewed(fgraph: Any, node: Any) -> Any:
    """Remove the name that a `pymc.Deterministic` gives to an array, evaluated for many rows.

    With the operation in between, PyTensor does not index the constants of the array early.
    """
    return node.inputs if type(node.op.core_op) is ViewOp else None


def _on_diagonals(fgraph: Any, node: Any) -> Any:
    """Make diagonal matrices for many rows in one operation."""
    if not isinstance(node.op.core_op, AllocDiag):
        return None
    (x,) = node.inputs
    last = x.type.ndim - 1
    if node.op.batch_ndim(node) != last:
        return None
    return [AllocDiag(axis1=last, axis2=last + 1, offset=node.op.core_op.offset)(x)]


def _joined(fgraph: Any, node: Any) -> Any:
    """Join or split arrays for many rows in one operation. Some may be the same for all rows."""
    op = node.op.core_op
    if not isinstance(op, Join | Split):
        return None
    count = node.op.batch_ndim(node)
    axis = op.axis + count
    if isinstance(op, Split):
        x, sizes = node.inputs
        is_known = isinstance(sizes, Constant) and sizes.data.size == op.len_splits
        return pt.split(x, sizes.data.ravel(), axis=axis) if is_known else None
    lengths = [_length(node.inputs, k) for k in range(count)]
    return [pt.join(axis, *(_full(x, lengths) for x in node.inputs))]


def _picked(fgraph: Any, node: Any) -> Any:
    """Read or change elements for many rows in one operation, if they are the same for all rows.

    PyTensor's linker compiles the operation on each row for three seconds.
    """
    op = node.op.core_op
    if not isinstance(op, AdvancedSubtensor | AdvancedIncSubtensor):
        return None
    count, is_read = node.op.batch_ndim(node), isinstance(op, AdvancedSubtensor)
    x, *rest = node.inputs
    y = None if is_read else rest.pop(0)
    if any(length != 1 for v in rest for length in v.type.shape[:count]):
        return None
    own = [stacked.without(v, *range(count)) for v in rest]
    indices = indices_from_subtensor(own, op.idx_list)
    arrays = [k for k, each in enumerate(indices) if not isinstance(each, slice)]
    if arrays != list(range(arrays[0], arrays[-1] + 1)):
        return None  # NumPy would put the axes of the arrays before those of the rows
    if y is None:
        return [x[(slice(None),) * count + tuple(indices)]]
    lengths = [_length([x, y], axis) for axis in range(count)]
    part = _full(x, lengths)[(slice(None),) * count + tuple(indices)]
    if op.ignore_duplicates or y.type.ndim != part.type.ndim:
        return None
    return [(pt.set_subtensor if op.set_instead_of_inc else pt.inc_subtensor)(part, y)]


def _length(inputs: Sequence[Variable], axis: int) -> Variable:
    """The length of arrays along an axis along which those of length 1 are repeated."""
    longest = next((x for x in inputs if not x.type.broadcastable[axis]), inputs[0])
    return Shape_i(axis)(longest)


def _full(x: Variable, lengths: Sequence[Variable]) -> Variable:
    """An array that is repeated to these lengths along its first axes."""
    own = [Shape_i(axis)(x) for axis in range(len(lengths), x.type.ndim)]
    return pt.alloc(x, *lengths, *own) if any(x.type.broadcastable[: len(lengths)]) else x


def _written_out(fgraph: Any, node: Any) -> Any:
    """Replace the name of a graph, or a `SmoothFunction`, by the operations inside it."""
    if _is_symbolic(node.op):
        return inline_ofg_node(node)
    if isinstance(node.op, Blockwise) and _is_symbolic(node.op.core_op):
        graph = node.op.core_op.fgraph
        of_core = [v.type() for v in graph.inputs]
        outputs = graph.bind(dict(zip(graph.inputs, of_core, strict=True)))
        return vectorize_graph(outputs, dict(zip(of_core, node.inputs, strict=True)))
    if not isinstance(node.op, Elemwise) or not isinstance(node.op.scalar_op, SmoothFunction):
        return None
    return [_elementwise(node.op.scalar_op, node.inputs[0])]


def _elementwise(function: SmoothFunction, x: Variable) -> Variable:
    """The graph of a function of one scalar, applied to an array."""
    graph = function.fgraph
    known = {graph.inputs[0]: x}
    for node in graph.toposort():
        inputs = [known[v] if v in known else _number(v.data, x.type.ndim) for v in node.inputs]
        inner = isinstance(node.op, SmoothFunction)
        made = _elementwise(node.op, *inputs) if inner else Elemwise(node.op)(*inputs)
        known[node.outputs[0]] = made
    return known[graph.outputs[0]]


def _number(value: Any, ndim: int) -> Variable:
    """A number with ``ndim`` axes, so that no axis has to be added later."""
    return pt.constant(np.full((1,) * ndim, value))


def _logarithm(fgraph: Any, node: Any) -> Any:
    """Replace log(c eˣ), as for a rate with an exposure, by log c + x, without overflow."""
    (product,) = node.inputs
    if op_of(product) != pt.mul:
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
    return x.owner.inputs[0] if op_of(x) == pt.exp else None


def _bounded(fgraph: Any, node: Any) -> Any:
    """Replace a check that sigmoid(x) is in [0, 1], or exp(x) ≥ 0, by one that x is not NaN.

    The check then does not compute the parameter.
    """
    x, bound = node.inputs
    function = op_of(x)
    if not isinstance(bound, Constant) or function not in (pt.sigmoid, pt.exp):
        return None
    if node.op == pt.ge:
        holds = (bound.data <= 0.0).all()
    else:
        holds = function == pt.sigmoid and (bound.data >= 1.0).all()
    (inner,) = x.owner.inputs
    return [pt.ge(inner, _number(-np.inf, inner.type.ndim))] if holds else None


class Elementary(UnaryScalarOp):
    """A function of `compile.loops.elementary`, which is vectorized within a fused loop."""

    def __init__(self, name: str) -> None:
        super().__init__(upgrade_to_float, name=name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Elementary) and self.name == other.name

    def __hash__(self) -> int:
        return hash((Elementary, self.name))

    def impl(self, x: Any) -> Any:
        """Compute the function of one number."""
        return getattr(elementary, self.name)(x)

    def c_code(self, *_: Any) -> str:
        """Return invalid code: PyTensor fuses only operations with C code, even for Numba."""
        return "#error"


@register_funcify_and_cache_key(Elementary)
def _funcify_elementary(op: Any, **_: Any) -> Any:
    """Compile the function inside an operation that PyTensor compiles, such as a scan."""
    function = getattr(elementary, op.name)

    @numba_njit
    def of_number(x: Any) -> Any:
        return function(x)

    return of_number, f"pymc_lgm {op.name} {CODE}"


ELEMENTARY = {
    getattr(pt, name): Elemwise(Elementary(name))
    for name in ("erfcx", "exp", "expm1", "log", "log1mexp", "log1p", "softplus")
}


def _elementary(fgraph: Any, node: Any) -> Any:
    """Use `Elementary` for functions of float64, and in a logistic function for its exponential."""
    (x,) = node.inputs
    if x.type.dtype != "float64":
        return None
    if node.op != pt.sigmoid:
        return [ELEMENTARY[node.op](x)]
    return [pt.reciprocal(_number(1.0, x.type.ndim) + ELEMENTARY[pt.exp](-x))]


LARGE = 10**6
"""Size in bytes from which a constant matrix does not stay in a processor's cache."""


def _multiplied(fgraph: Any, node: Any) -> Any:
    """Replace a product of float64 matrices by `Product`."""
    if type(node.op) is not Dot or any(v.type.dtype != "float64" for v in node.inputs):
        return None
    return [Product()(*node.inputs)]


def _on_diagonal(fgraph: Any, node: Any) -> Any:
    """Add a large diagonal constant, such as a jitter, to the diagonal only.

    Adding n × n numbers would take as long as reading them from memory.
    """
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
    if not isinstance(x, Constant) or x.type.ndim != 2 or x.data.nbytes < LARGE:
        return False
    square = x.data.shape[0] == x.data.shape[1]
    return square and np.count_nonzero(x.data) == np.count_nonzero(x.data.diagonal())


CALLED = (math.GammaLn, math.PolyGamma, math.Psi, math.TriGamma)
"""Operations that call a function, which prevents vectorization of the loop that they are in."""


class Alone(ps.ScalarOp):
    """An operation in a loop of its own, so that the loops of its neighbors are vectorized."""

    def __init__(self, op: ps.ScalarOp) -> None:
        self.op = op
        super().__init__(name=f"{op}, alone")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Alone) and self.op == other.op

    def __hash__(self) -> int:
        return hash((Alone, self.op))

    def output_types(self, types: Any) -> Any:
        """Return the types of the operation itself."""
        return self.op.output_types(types)

    def impl(self, *x: Any) -> Any:
        """Compute the operation itself."""
        return self.op.impl(*x)


@register_funcify_and_cache_key(Alone)
def _funcify_alone(op: Any, node: Any, **_: Any) -> Any:
    """Compile the operation itself inside an operation that PyTensor compiles, such as a scan."""
    scalars = [ps.get_scalar_type(v.type.dtype)() for v in node.inputs]
    return numba_funcify_ensure_cache(op.op, node=op.op.make_node(*scalars))


def _alone(fgraph: Any, node: Any) -> Any:
    """Mark operations that a loop calls. PyTensor fuses none that has no C code, as these."""
    op = node.op.scalar_op
    return [Elemwise(Alone(op))(*node.inputs)] if isinstance(op, CALLED) else None


class _Fused(FusionOptimizer):
    """PyTensor's fusion of loops, also of loops that read and write more than 32 arrays.

    Without the name of a C compiler PyTensor leaves these unfused, since NumPy could not run them:
    the third derivatives of a censored normal density would be 291 loops.
    """

    def apply(self, fgraph: Any, *args: Any, **kwargs: Any) -> Any:
        with pytensor.config.change_flags(cxx="none is called"):
            return super().apply(fgraph, *args, **kwargs)


def rewriter(rewrite: Callable[[Any, Any], Any], *ops: Any) -> NodeRewriter:
    """A rewriter of the nodes with these operations, or of all nodes without them.

    As a decorator, PyTensor's `node_rewriter` would take the name of the function, and neither the
    rewriter nor a mode with it could be pickled, for chains in processes of their own.
    """
    made: NodeRewriter = node_rewriter(list(ops) or None)(rewrite)
    return made


# The positions are before PyTensor fuses elementwise operations, at 49, since a softmax hides its
# maximum until then. They are registered one by one, because a sequence of rewrites cannot be
# pickled.
FOR_NUMBA = (
    (dfs_rewriter(rewriter(_viewed, Blockwise)), 0.5),  # before all others
    (dfs_rewriter(rewriter(_on_diagonals, Blockwise)), 48.87),
    (dfs_rewriter(rewriter(_joined, Blockwise)), 48.88),
    (dfs_rewriter(rewriter(_picked, Blockwise)), 48.885),
    (dfs_rewriter(rewriter(_bounded, pt.ge, pt.le)), 48.89),
    (dfs_rewriter(rewriter(_logarithm, pt.log)), 48.90),
    (dfs_rewriter(rewriter(_written_out, OpFromGraph, Blockwise, Elemwise)), 48.91),
    (in2out(rewriter(stacked.written_out, *stacked.OPERATIONS)), 48.92),
    (MergeOptimizer(), 48.93),
    (dfs_rewriter(rewriter(_multiplied, Dot)), 48.95),
    (dfs_rewriter(rewriter(_elementary, *ELEMENTARY, pt.sigmoid)), 48.96),
    (dfs_rewriter(rewriter(_on_diagonal, pt.add)), 48.97),
    (dfs_rewriter(rewriter(_alone, Elemwise)), 48.975),
    (_Fused(), 48.98),
)
