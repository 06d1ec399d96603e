"""Compile graphs to functions of arrays, and to code that compiled loops call.

A function that is called a few times runs in Python (`called_once`). A function that is called in
each draw is compiled, by default in Numba (`compiled`). A model has a dozen of them, and the first
draw waits until all are compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any
from warnings import catch_warnings, filterwarnings

import numba
import numpy as np
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt

from numba import carray, types  # type: ignore[attr-defined]  # as documented
from numpy.typing import NDArray
from pymc.pytensorf import compile as pymc_compile
from pytensor.compile.mode import Mode, get_mode
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.rewriting.basic import dfs_rewriter, in2out
from pytensor.graph.rewriting.db import RewriteDatabaseQuery
from pytensor.graph.traversal import ancestors
from pytensor.link.vm import VMLinker
from pytensor.scalar import Clip, Composite, ScalarOp, Second
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import Dot, Sum
from pytensor.tensor.rewriting.basic import constant_folding
from pytensor.tensor.rewriting.math import local_batched_matmul_to_core_matmul

from pymc_lgm.compile.graphs.rewrites import FOR_NUMBA, rewriter
from pymc_lgm.compile.graphs.source import LoopLinker
from pymc_lgm.compile.graphs.upstream import NumbaLinker
from pymc_lgm.compile.loops.callbacks import IS_COMPILED

__all__ = [
    "DISTRIBUTED",
    "ONCE",
    "STABLE",
    "called_once",
    "compiled",
    "in_loops",
    "shape_of",
    "with_address",
    "with_rounding_errors",
    "without_c",
]

Variable = Any


def _elementwise(fgraph: Any, node: Any) -> Any:
    """Write operations that PyTensor would interpret, one element at a time, by NumPy's operations.

    NumPy has no function that does what a `Clip` or a `Composite` does.
    """
    op = node.op.scalar_op
    shape = node.outputs[0].type.shape
    if isinstance(op, Second) and None not in shape:
        # Only the shape of the first input is read, so it need not be computed. In a
        # `pymc.MvNormal` with tau it is an inverse matrix.
        return [pt.alloc(node.inputs[1].astype(node.outputs[0].dtype), *shape)]
    if isinstance(op, Clip):
        x, low, high = node.inputs
        clipped = pt.switch(pt.lt(x, low), low, pt.switch(pt.gt(x, high), high, x))
        return [clipped.astype(node.outputs[0].dtype)]
    if not isinstance(op, Composite) or any(
        not isinstance(inner.op, ScalarOp) for inner in op.fgraph.apply_nodes
    ):
        return None
    known = dict(zip(op.fgraph.inputs, node.inputs, strict=True))
    for inner in op.fgraph.toposort():
        inputs = [
            known[x] if x in known else pt.as_tensor(x.data).astype(x.dtype) for x in inner.inputs
        ]
        known |= zip(inner.outputs, Elemwise(inner.op)(*inputs, return_list=True), strict=True)
    return [
        known[x].astype(out.dtype) for x, out in zip(op.fgraph.outputs, node.outputs, strict=True)
    ]


def _fold_constants(fgraph: Any, node: Any) -> Any:
    """Call PyTensor's own rewriter, which cannot be pickled: see `rewriter`."""
    return constant_folding.transform(fgraph, node)


def _products_at_once(fgraph: Any, node: Any) -> Any:
    """Compute the products M v of one matrix and many vectors as one product of matrices.

    PyTensor's own rewriter does it. With a matrix of 3000 × 1024 and 1024 vectors the one product
    takes a fifth of the time of separate products, each of which reads the matrix from memory.
    """
    return local_batched_matmul_to_core_matmul.transform(fgraph, node)


def _sum_of_one_number(fgraph: Any, node: Any) -> Any:
    """Remove a sum over the axes of a scalar, which `pymc.CAR` writes if tau is a scalar."""
    (x,) = node.inputs
    return None if x.type.ndim else [x.astype(node.outputs[0].dtype)]


_ELEMENTWISE = dfs_rewriter(rewriter(_elementwise, Elemwise)), 48.9
"""It is the last rewrite in both modes below. PyTensor's own positions end at 3 for rewrites that
simplify, and continue at 48 with those that fuse operations, which neither mode has."""

ONCE = Mode(linker="py", optimizer=RewriteDatabaseQuery(include=["merge"]))
# Registered one by one, since a sequence of rewrites cannot be pickled. The second number is a
# position: sums go first, and constants are folded when the graph is as small as it gets.
ONCE = ONCE.register(
    (dfs_rewriter(rewriter(_sum_of_one_number, Sum)), 1.1),
    (
        dfs_rewriter(rewriter(_products_at_once, *local_batched_matmul_to_core_matmul.tracks())),
        1.15,
    ),
    (in2out(rewriter(_fold_constants)), 1.2),
    _ELEMENTWISE,
)
"""Mode of functions that are called a few times, for which compilation would take longer."""

STABLE = Mode(linker="py", optimizer="fast_run").excluding("fusion", "inplace")
STABLE = STABLE.register(_ELEMENTWISE)
"""Mode of functions that are called a few times, with the rewrites that keep a density accurate in
its tails. They take longer than those of `ONCE`. Fused operations would be interpreted one element
at a time."""

EXACT = (
    ps.Abs,
    ps.Cast,
    ps.Ceil,
    ps.Clip,
    ps.Floor,
    ps.Identity,
    ps.IntDiv,
    ps.Mod,
    ps.Neg,
    ps.RoundHalfAwayFromZero,
    ps.RoundHalfToEven,
    ps.ScalarMaximum,
    ps.ScalarMinimum,
    ps.Second,
    ps.Sign,
    ps.Switch,
    ps.Trunc,
)
"""Elementwise operations without a rounding error."""

SHAPES = Mode(linker="py", optimizer="fast_compile")
"""Mode that computes the shape of a random variable from its parameters, without a draw."""

DISTRIBUTED = "local_greedy_distributor"
"""PyTensor's name of the rewrite that distributes a factor over a sum, if other factors cancel."""

FUSED = "fuse_indexed_into_elemwise"
"""PyTensor's name of the rewrite that joins loops, which `LoopLinker` does itself."""

MERGED = "local_merge_alloc"
"""PyTensor's name of the rewrite that joins two repetitions of an array to one. If a length is 1,
but not yet known to be 1, it adds a check that fails in each call: see docs/upstream.md."""

SCALARS = "scalarize"
"""PyTensor's name of the rewrite that passes arrays of one element as scalars."""


def shape_of(v: Variable) -> tuple[int, ...]:
    """The shape of a random variable, also if ``dims`` determine it."""
    known = v.type.shape
    if None in known:
        known = v.shape.eval(mode=SHAPES)
    return tuple(int(length) for length in known)


def without_c() -> AbstractContextManager[Any]:
    """A context in which PyTensor compiles nothing in C.

    Outside of it, PyTensor compiles operations inside of another one in C, even if the mode is
    Python's or Numba's. The first draw of a `pymc.LKJCholeskyCov` then takes 40 times as long.
    """
    context: AbstractContextManager[Any] = pytensor.config.change_flags(cxx="")
    return context


def called_once(inputs: list[Variable], outputs: Any, mode: Mode = ONCE) -> Any:
    """Compile a function that is called a few times: it runs in Python."""
    with without_c():
        return pymc_compile(inputs, outputs, mode=mode, on_unused_input="ignore")


def with_rounding_errors(
    inputs: list[Variable], outputs: Any, rng: np.random.Generator
) -> Callable[..., Any]:
    """Compile a function that adds a random rounding error to the result of every operation.

    The differences between its values in several calls are as large as the rounding error of the
    function itself. This is Monte Carlo arithmetic (Parker 1997, *Monte Carlo Arithmetic*, UCLA
    technical report 970002).

    Examples
    --------
    >>> import numpy as np, pytensor.tensor as pt
    >>> x = pt.vector("x")
    >>> function = with_rounding_errors([x], [pt.exp(x) - 1.0], np.random.default_rng(0))
    >>> bool(0.0 < np.abs(function(np.array([1e-12]))[0] - 1e-12)[0] < 1e-15)
    True
    """

    def round_off(
        node: Any, thunk: Any, storage_map: dict[Variable, list[Any]], compute_map: Any
    ) -> None:
        op = node.op
        is_inexact = isinstance(op, Sum | Dot) or (
            isinstance(op, Elemwise) and not isinstance(op.scalar_op, EXACT)
        )
        for out in node.outputs if is_inexact else []:
            value = storage_map[out][0]
            if out.type.dtype == "float64" and value is not None:
                errors = np.finfo(np.float64).eps * rng.standard_normal(np.shape(value))
                storage_map[out][0] = np.asarray(value * (1.0 + errors))

    linker = VMLinker(use_cloop=False, c_thunks=False, callback=round_off)
    mode = Mode(linker=linker, optimizer=STABLE.provided_optimizer)
    result: Callable[..., Any] = called_once(inputs, outputs, mode)
    return result


def compiled(inputs: list[Variable], outputs: Any, kwargs: Mapping[str, Any]) -> Callable[..., Any]:
    """Compile a function of float64 arrays that does not check its inputs.

    Parameters
    ----------
    inputs : list of variable
    outputs : variable or list of variable
    kwargs : mapping
        Passed to `pymc.compile`.

    Returns
    -------
    callable
        It returns new arrays at each call, and the values of shared variables at the time. Outputs
        that depend on neither inputs nor shared variables are computed now, and not compiled.

    Examples
    --------
    >>> import numpy as np
    >>> import pytensor.tensor as pt
    >>> x = pt.vector("x")
    >>> compiled([x], [2.0 * x, pt.zeros(2)], {})(np.ones(2))
    [array([2., 2.]), array([0., 0.])]
    """
    mode = get_mode(kwargs.get("mode")).excluding(MERGED)
    in_numba = isinstance(mode.linker, NumbaLinker)
    if in_numba:
        mode = in_loops(mode)
    options = {"on_unused_input": "ignore"} | dict(kwargs) | {"mode": mode}
    several = isinstance(outputs, list)
    graphs = outputs if several else [outputs]
    varying = [graph for graph in graphs if _varies(graph, inputs)]
    if len(varying) == len(graphs):
        with without_c() if in_numba else nullcontext(), catch_warnings():
            # PyTensor then makes two loops instead of one, with the same results.
            filterwarnings("ignore", "Loop fusion failed", UserWarning)
            function: Any = pymc_compile(inputs, outputs, **options)
        function.trust_input = True
        rewritten = function.maker.fgraph
        if any(rewritten.clients[each] for each in rewritten.inputs):
            result: Callable[..., Any] = function
            return result
        # The rewrites have found that the outputs are constants, as x − x is.
        known = pytensor.function([], rewritten.outputs, mode=ONCE, accept_inplace=True)()
        return _Constant(known, several)
    fixed = [graph for graph in graphs if graph not in varying]
    values = dict(zip(fixed, called_once([], fixed)(), strict=True))
    if not varying:
        return _Constant([values[graph] for graph in graphs], several)
    return _Partly(compiled(inputs, varying, kwargs), [values.get(graph) for graph in graphs])


def in_loops(mode: Mode, linker: LoopLinker | None = None) -> Mode:
    """A mode for Numba, with this package's rewrites and its linker."""
    mode = mode.register(*FOR_NUMBA).excluding(FUSED, SCALARS, "inplace")
    return Mode(linker=linker or LoopLinker(), optimizer=mode.provided_optimizer)


def _varies(graph: Variable, inputs: list[Variable]) -> bool:
    """Whether the value of a graph may differ between two calls."""
    return any(v in inputs or isinstance(v, SharedVariable) for v in ancestors([graph]))


@dataclass(frozen=True, eq=False)
class _Constant:
    """A function that does not depend on its inputs, which needs no compilation."""

    values: list[NDArray[Any]]
    several: bool

    def __call__(self, *_: Any) -> Any:
        values = [value.copy() for value in self.values]
        return values if self.several else values[0]


@dataclass(frozen=True, eq=False)
class _Partly:
    """A function with some outputs that are known, so that only the others are compiled."""

    function: Callable[..., list[Any]]
    known: list[NDArray[Any] | None]

    def __call__(self, *inputs: Any) -> list[Any]:
        values = iter(self.function(*inputs))
        return [next(values) if known is None else known.copy() for known in self.known]


def with_address(function: Any, size: int) -> Any | None:
    """Code for compiled loops that writes a density and its gradient at theta.

    Parameters
    ----------
    function : callable
        The result of `compiled` for a density and its gradient as functions of theta.
    size : int
        p, the length of theta.

    Returns
    -------
    object with an ``address``, or None
        A function of two pointers: to theta, and to the 1 + p numbers that it writes. ``None`` if
        the function is not compiled by Numba, or if it reads variables of other step methods, whose
        values change.
    """
    code = getattr(getattr(function, "vm", None), "jit_fn", None)
    if code is None or code.py_func.__code__.co_argcount != 1 or not IS_COMPILED:
        return None

    def write(x: Any, out: Any) -> None:
        # If the density raises an exception, Numba prints it and returns: the result stays NaN.
        for j in range(1 + size):
            out[j] = np.nan
        density, slope = code(carray(x, (size,)))
        out[0] = density[()]
        for j in range(size):
            out[1 + j] = slope[j]

    pointer = types.CPointer(types.float64)
    return numba.cfunc(types.void(pointer, pointer))(write)
