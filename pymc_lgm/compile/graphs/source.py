"""Write a graph as one function of plain loops, which Numba compiles in a fraction of the time.

PyTensor's own linker makes a function for every operation, with a version for each layout of its
inputs, and a wrapper around each. Numba compiles the covariance of a Matérn process in 2.5 CPU
seconds that way, and in 0.4 as one function: here the shapes of most arrays are known, scalars are
local variables, and an axis that is added, removed or cut is a change of the index.

An operation without a rule here is called as PyTensor's linker calls it.
"""

from __future__ import annotations

import re

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import numba
import numpy as np
import pytensor

from pytensor.compile.ops import DeepCopyOp, ViewOp
from pytensor.graph.basic import Constant
from pytensor.scalar import basic as ps
from pytensor.scalar.math import PolyGamma, TriGamma
from pytensor.tensor.basic import (
    Alloc,
    AllocDiag,
    AllocEmpty,
    ExtractDiag,
    Join,
    MakeVector,
    ScalarFromTensor,
    Split,
    TensorFromScalar,
)
from pytensor.tensor.blas.batched import BatchedDot
from pytensor.tensor.blockwise import BlockwiseWithCoreShape
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky
from pytensor.tensor.linalg.solvers.psd import CholeskySolve
from pytensor.tensor.linalg.solvers.triangular import SolveTriangular
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
    indices_from_subtensor,
)
from pytensor.tensor.type import DenseTensorType

from pymc_lgm.compile.graphs.nodes import op_of
from pymc_lgm.compile.graphs.products import (
    Product,
    choleskies,
    cholesky,
    product,
    products,
    solve_triangular,
)
from pymc_lgm.compile.graphs.rewrites import Alone, Elementary
from pymc_lgm.compile.graphs.stacked import is_known
from pymc_lgm.compile.graphs.upstream import (
    NumbaLinker,
    cache_key_for_constant,
    compile_numba_function_src,
    numba_funcify_ensure_cache,
    numba_njit,
    numba_typify,
)
from pymc_lgm.compile.loops import CODE, elementary
from pymc_lgm.linalg import Array

__all__ = ["LoopLinker", "Writer", "written"]

Variable = Any
Index = tuple[str, ...]

SMALL = 32
"""Largest constant, in elements, that is part of the compiled function. It is a choice."""

SCALAR = {
    ps.Add: " + ",
    ps.Mul: " * ",
    ps.AND: " & ",
    ps.OR: " | ",
    ps.XOR: " ^ ",
}
"""Operators between any number of arguments."""

TEMPLATES = {
    ps.Abs: "abs({0})",
    ps.Clip: "{1} if {0} < {1} else ({2} if {0} > {2} else {0})",
    ps.EQ: "{0} == {1}",
    ps.GE: "{0} >= {1}",
    ps.GT: "{0} > {1}",
    ps.Identity: "{0}",
    ps.IsInf: "abs({0}) == np.inf",
    ps.IsNan: "{0} != {0}",
    ps.LE: "{0} <= {1}",
    ps.LT: "{0} < {1}",
    ps.Maximum: "{0} if ({0} >= {1}) | ({0} != {0}) else {1}",
    ps.Minimum: "{0} if ({0} <= {1}) | ({0} != {0}) else {1}",
    ps.NEQ: "{0} != {1}",
    ps.Neg: "-{0}",
    ps.Reciprocal: "1.0 / {0}",
    ps.Second: "{1}",
    ps.Sqr: "{0} * {0}",
    ps.Sqrt: "np.sqrt({0})",
    ps.Sub: "{0} - {1}",
    ps.Switch: "{1} if {0} else {2}",
    ps.TrueDiv: "{0} / {1}",
}
"""Operations of scalars as expressions. Others are called as PyTensor's linker calls them."""

ALSO_NUMPY = ("exp", "expm1", "log", "log1p")
"""Functions of `elementary` that NumPy has, too. Outside of all loops NumPy's is called, since
Numba compiles it in less time."""

REDUCTIONS = {
    ps.Add: ("0", "{0} + {1}"),
    ps.Mul: ("1", "{0} * {1}"),
    ps.AND: ("True", "{0} & {1}"),
    ps.OR: ("False", "{0} | {1}"),
    ps.Maximum: ("-np.inf", TEMPLATES[ps.Maximum]),
    ps.Minimum: ("np.inf", TEMPLATES[ps.Minimum]),
}
"""Start and step of a reduction, by the operation of two scalars."""

SAME = (DeepCopyOp, ScalarFromTensor, SpecifyShape, TensorFromScalar, ViewOp)
"""Operations that return their first input."""


class LoopLinker(NumbaLinker):
    """PyTensor's linker for Numba, which compiles a graph as `written` by this module."""

    def fgraph_convert(self, fgraph: Any, **_: Any) -> tuple[Any, str | None]:
        """Return a Python function of the graph's inputs and its large constants, and its key."""
        function, key, self.constants = written(fgraph)
        return function, key

    def create_thunk_inputs(self, storage_map: Any) -> list[list[Any]]:
        """Return where the function finds its arguments."""
        return [*super().create_thunk_inputs(storage_map), *([each] for each in self.constants)]

    def jit_compile(self, fn_and_cache: tuple[Any, str | None]) -> Any:
        """Compile the function."""
        function, key = fn_and_cache
        return numba_njit(function, final_function=True, cache=key is not None, error_model="numpy")


def written(fgraph: Any) -> tuple[Callable[..., Any], str | None, list[Array]]:
    """Write a graph as a function of arrays that Numba compiles.

    Parameters
    ----------
    fgraph : FunctionGraph
        Its inputs are not changed, and its results are new arrays: rewrites that let an operation
        overwrite its inputs have to be excluded.

    Returns
    -------
    function : callable
        Its arguments are the inputs and the constants; it returns a tuple of the results.
    key : str or None
        Identifies the compiled function on disk. It is ``None`` if Numba cannot keep it there.
    constants : list of array
        Constants of more than `SMALL` elements that are not all equal. The compiled function does
        not depend on them, so a model with other data of the same size can use it.

    Examples
    --------
    >>> import numpy as np
    >>> import pytensor.tensor as pt
    >>> from pytensor.graph.fg import FunctionGraph
    >>> x = pt.vector("x", shape=(3,))
    >>> function, *_ = written(FunctionGraph([x], [(x + 1.0).sum()], clone=True))
    >>> function(np.zeros(3))
    (array(3.),)
    """
    return Writer(fgraph).function()


@dataclass(frozen=True, eq=False)
class _Value:
    """How the elements of a variable are read.

    Attributes
    ----------
    shape : tuple of str
        Lengths of the axes, as expressions.
    read : callable
        (loops, index) -> the element as an expression, which may be evaluated any number of times.
        Parts of it are assigned to local variables of the loops.
    name : str or None
        An array with exactly these elements, in any memory order, if there is one.
    is_new : bool
        Whether nothing but this variable refers to ``name``.
    """

    shape: tuple[str, ...]
    read: Callable[[_Loops, Index], str]
    name: str | None = None
    is_new: bool = False


@dataclass(eq=False)
class _Loops:
    """Nested loops, one for each axis. Each assignment is as far outside as it can be.

    Attributes
    ----------
    index : tuple of str
        The index of each axis; "0" for an axis of length 1, which has no loop.
    loops : list of (str, str)
        The index and the length of each loop.
    before, after : list of list of str
        Statements at each depth, before and after the loop inside of it. Depth 0 is outside of all.
    """

    writer: Writer
    shape: tuple[str, ...]
    index: Index = field(init=False)

    def __post_init__(self) -> None:
        self.index = tuple("0" if n == "1" else self.writer.new("i") for n in self.shape)
        extents = zip(self.index, self.shape, strict=True)
        self.loops = [(i, n) for i, n in extents if i != "0"]
        self._depth = {i: k + 1 for k, (i, _) in enumerate(self.loops)}
        self.before: list[list[str]] = [[] for _ in range(len(self.loops) + 1)]
        self.after: list[list[str]] = [[] for _ in range(len(self.loops) + 1)]
        self._known: dict[str, str] = {}

    def assign(self, expression: str) -> str:
        """Assign an expression to a local variable, outside of loops that it does not depend on."""
        if re.fullmatch(r"\w+|-?[\d.e+-]+", expression):
            return expression
        if expression not in self._known:
            names = re.findall(r"[A-Za-z_]\w*", expression)
            depth = max((self._depth.get(name, 0) for name in names), default=0)
            name = self._known[expression] = self.writer.new("t")
            self._depth[name] = depth
            self.before[depth].append(f"{name} = {expression}")
        return self._known[expression]

    def do(self, statement: str) -> None:
        """Add a statement to the innermost loop."""
        self.before[-1].append(statement)

    def write(self) -> None:
        """Append the loops to the function."""
        lines = self.writer.lines
        for depth, statements in enumerate(self.before):
            if depth:
                i, n = self.loops[depth - 1]
                lines.append("    " * depth + f"for {i} in range({n}):")
            lines += ["    " * (depth + 1) + line for line in statements]
        for depth in range(len(self.loops), -1, -1):
            lines += ["    " * (depth + 1) + line for line in self.after[depth]]


class Writer:
    """The lines of a function, and the objects that they refer to.

    Each variable of the graph has a `_Value`, which says how its elements are read. A variable need
    not be stored: one that is read once is computed in the loop that reads it, and a part or a
    transpose is read from the array of another variable. Methods called like an operation of
    PyTensor, such as ``_join``, are the rules in `RULES`. They return ``False`` if they cannot
    write the node.

    Attributes
    ----------
    lines : list of str
    objects : dict
        Global names of the function.
    constants : dict
        Arrays that are passed as arguments, by name.
    keys : list
        The key that identifies each object on disk.
    is_cached : bool
        Whether all objects can be identified, so that Numba can keep the function on disk.
    """

    def __init__(self, fgraph: Any) -> None:
        self.fgraph = fgraph
        self.lines: list[str] = []
        self.objects: dict[str, Any] = {
            "np": np,
            "f_choleskies": choleskies,
            "f_cholesky": cholesky,
            "f_inside": inside,
            "f_limited": limited,
            "f_product": product,
            "f_products": products,
            "f_solve_triangular": solve_triangular,
            "__name__": __name__,
        }
        self.constants: dict[str, Array] = {}
        self.keys: list[Any] = []
        self.is_cached = True
        self._count = 0
        self._values: dict[Variable, _Value] = {}
        self._functions: dict[Any, str] = {}

    def function(self) -> tuple[Callable[..., Any], str | None, list[Array]]:
        """The whole function."""
        names = [self.new("x") for _ in self.fgraph.inputs]
        for name, v in zip(names, self.fgraph.inputs, strict=True):
            self._values[v] = self._array(v, self._without_axes(name, v))
        for node in self.fgraph.toposort():
            self._add(node)
        results: list[str] = []
        returned: set[str] = set()
        for v in self.fgraph.outputs:
            value = self.value(v)
            is_own = value.is_new and value.name not in returned
            is_own = is_own or not isinstance(v.type, DenseTensorType)
            name = str(value.name) if is_own else self._copy_of_all(v)
            returned.add(name)
            results.append(name)
        tuple_of_all = f"({', '.join(results)},)" if results else "None"  # as PyTensor expects
        body = [*self.lines, f"    return {tuple_of_all}"]
        names += self.constants
        source = "\n".join([f"def function({', '.join(names)}):", *body]) + "\n"
        key = None
        if self.is_cached and pytensor.config.numba__cache:
            key = sha256(f"{CODE}{source}{self.keys}".encode()).hexdigest()
        made = compile_numba_function_src(source, "function", self.objects, cache_key=key)
        return made, key, list(self.constants.values())

    def _without_axes(self, name: str, v: Variable) -> str:
        """An input as an array, also if a number is passed for an array without axes."""
        if not isinstance(v.type, DenseTensorType) or v.type.ndim:
            return name
        array = self.new("a")
        self.lines.append(f"    {array} = np.asarray({name})")
        return array

    def new(self, letter: str) -> str:
        """A name that is not in use: the letter and a number."""
        self._count += 1
        return f"{letter}{self._count}"

    def refer(self, letter: str, thing: Any, key: Any) -> str:
        """A global name for an object. The key identifies it on disk; ``None`` if nothing does."""
        if key is None:
            self.is_cached = False
        name = self.new(letter)
        self.objects[name] = thing
        self.keys.append(key)
        return name

    # Values

    def value(self, v: Variable) -> _Value:
        """How a variable is read."""
        if v not in self._values:
            self._values[v] = self._constant(v)
        return self._values[v]

    def _constant(self, v: Variable) -> _Value:
        data = np.asarray(v.data)
        if data.size and (data == data.flat[0]).all():
            text = _literal(data.flat[0])
            return _Value(tuple(map(str, data.shape)), lambda loops, index: text)
        data = np.ascontiguousarray(data)
        if data.size > SMALL:
            name = self.new("c")
            self.constants[name] = data
        else:
            name = self.refer("c", data, (data.dtype.str, data.tolist()))
        return self._array(v, name)

    def _array(self, v: Variable, name: str, is_new: bool = False) -> _Value:
        """The value of a variable that is stored in an array, or in a scalar of PyTensor."""
        if isinstance(v.type, ps.ScalarType):
            return _Value((), lambda loops, index: name, name)
        if not isinstance(v.type, DenseTensorType):
            return _Value((), _unreadable, name)
        shape = tuple(
            f"{name}.shape[{axis}]" if n is None else str(n) for axis, n in enumerate(v.type.shape)
        )

        def read(loops: _Loops, index: Index) -> str:
            return loops.assign(f"{name}[{', '.join(index) or '()'}]")

        return _Value(shape, read, name, is_new)

    def _store_number(self, v: Variable, text: str) -> None:
        """Let a variable with one element be an expression of the function, outside of loops."""
        ndim = getattr(v.type, "ndim", 0)
        self._values[v] = _Value(("1",) * ndim, lambda loops, index: text)

    def _store_new(self, v: Variable, name: str) -> bool:
        """Let a variable be an array to which nothing else refers. Return ``True``, as a rule."""
        self._values[v] = self._array(v, name, is_new=True)
        return True

    def _store_view(self, v: Variable, of: _Value, shape: Sequence[str], index_of: Any) -> bool:
        """Let a variable read the elements of another one, at ``index_of(loops, its own index)``.

        Return ``True``, as a rule.
        """
        self._values[v] = _Value(
            tuple(shape), lambda loops, index: of.read(loops, index_of(loops, index))
        )
        return True

    def _array_of(self, v: Variable) -> str:
        """The name of an array with the elements of a variable: a copy if it has none."""
        value = self.value(v)
        return self._copy(v) if value.name is None else value.name

    def _copy(self, v: Variable) -> str:
        """The name of a new array with the elements of a variable.

        A variable without an array is read from it from then on.
        """
        value = self.value(v)
        loops = _Loops(self, value.shape)
        element = value.read(loops, loops.index)
        if not value.shape:
            loops.write()
            name = self.new("a")
            self.lines.append(f"    {name} = np.asarray({_typed(element, v.type.dtype)})")
        else:
            name = self._empty(value.shape, v.type.dtype)
            loops.do(f"{name}[{', '.join(loops.index)}] = {element}")
            loops.write()
        if value.name is None:
            self._values[v] = self._array(v, name, is_new=True)
        return name

    def _empty(self, shape: Sequence[str], dtype: str) -> str:
        name = self.new("a")
        self.lines.append(f"    {name} = np.empty(({', '.join(shape)},), np.{_dtype(dtype)})")
        return name

    def _scalar_text(self, v: Variable) -> str:
        """A scalar, such as an index, as an expression outside of all loops."""
        value = self.value(v)
        loops = _Loops(self, ())
        text = value.read(loops, ("0",) * len(value.shape))
        loops.write()
        return text

    # Operations

    def _add(self, node: Any) -> None:
        op = node.op
        if isinstance(op, SAME):
            self._values[node.outputs[0]] = self._same(node)
        elif isinstance(op, Elemwise):
            self._elementwise(node)
        elif isinstance(op, ps.ScalarOp):
            loops = _Loops(self, ())
            self._store_scalars(loops, node, [self.value(v).read(loops, ()) for v in node.inputs])
        elif not self._by_rule(node) and not self._reduction(node):
            self._call(node)

    def _store_scalars(self, loops: _Loops, node: Any, texts: Sequence[str]) -> None:
        """Store the results of an operation that have one element each."""
        results = self._scalar(loops, node, texts)
        loops.write()
        for v, text in zip(node.outputs, results, strict=True):
            self._store_number(v, text)

    def _same(self, node: Any) -> _Value:
        value = self.value(node.inputs[0])
        v = node.outputs[0]
        if isinstance(node.op, SpecifyShape):
            for length, static in zip(value.shape, v.type.shape, strict=True):
                self._require(length, length if static is None else str(static))
        if isinstance(v.type, ps.ScalarType) != isinstance(node.inputs[0].type, ps.ScalarType):
            return _Value((), value.read)
        return _Value(value.shape, value.read, value.name, False)

    def _elementwise(self, node: Any) -> None:
        shape = self._broadcast(node.inputs, node.outputs[0].type.shape)
        if all(n == "1" for n in shape):
            loops = _Loops(self, shape)
            self._store_scalars(loops, node, self._elements(loops, node, loops.index))
        elif len(node.outputs) == 1 and self._is_read_once(node.outputs[0]):

            def read(loops: _Loops, index: Index) -> str:
                return self._scalar(loops, node, self._elements(loops, node, index))[0]

            self._values[node.outputs[0]] = _Value(shape, read)
        else:
            loops = _Loops(self, shape)
            results = self._scalar(loops, node, self._elements(loops, node, loops.index))
            free = [x for x in node.inputs if self._may_overwrite(x)]
            names = []
            for v, text in zip(node.outputs, results, strict=True):
                # An element is read before the result is written over it.
                usable = [
                    x
                    for x in free
                    if x.type.dtype == v.type.dtype
                    and self.value(x).shape == shape
                    and self.value(x).name not in names
                ]
                name = self.value(usable[0]).name if usable else self._empty(shape, v.type.dtype)
                assert name is not None
                names.append(name)
                loops.do(f"{name}[{', '.join(loops.index)}] = {text}")
            loops.write()
            for v, name in zip(node.outputs, names, strict=True):
                self._values[v] = self._array(v, name, is_new=True)

    def _broadcast(
        self, variables: Sequence[Variable], shape: Sequence[int | None]
    ) -> tuple[str, ...]:
        """The lengths of the first axes of a result, one for each element of ``shape``.

        ``shape`` has the lengths that are known when the graph is compiled.
        """
        lengths = []
        for axis, static in enumerate(shape):
            known = [self.value(v).shape[axis] for v in variables if v.type.shape[axis] != 1]
            # An axis of unknown length has one element if it has one in each input.
            lengths.append(str(static) if static is not None else [*known, "1"][0])
            for length in known:
                self._require(length, lengths[-1])
        return tuple(lengths)

    def _require(self, length: str, expected: str) -> None:
        """Raise an error at run time if an axis has another length: a loop would read beyond it.

        Equal expressions need no check.
        """
        if length != expected:
            self.lines.append(f"    if {length} != {expected}:")
            self.lines.append("        raise ValueError('Arrays have shapes that do not match.')")

    def _require_broadcast(self, v: Variable, shape: Sequence[str]) -> None:
        """Raise an error at run time if a variable cannot be repeated to a shape."""
        for length, expected, n in zip(self.value(v).shape, shape, v.type.shape, strict=True):
            if n != 1:
                self._require(length, expected)

    def _elements(self, loops: _Loops, node: Any, index: Index) -> list[str]:
        return [self.value(v).read(loops, _repeated(index, v.type.shape)) for v in node.inputs]

    def _is_read_once(self, v: Variable) -> bool:
        """Whether a single operation reads each element, in order: then it need not be stored."""
        clients = self.fgraph.clients[v]
        if len(clients) != 1:
            return False
        client, position = clients[0]
        op = getattr(client, "op", None)
        if isinstance(op, Join | CAReduce):
            return True
        return isinstance(op, IncSubtensor | AdvancedIncSubtensor) and position == 1

    def _may_overwrite(self, v: Variable) -> bool:
        """Whether the array of a variable is free for a result: only one operation reads it."""
        return v in self._values and self._values[v].is_new and len(self.fgraph.clients[v]) == 1

    def _scalar(self, loops: _Loops, node: Any, texts: Sequence[str]) -> list[str]:
        """The results of an operation of scalars, as expressions."""
        op = getattr(node.op, "scalar_op", node.op)
        if isinstance(op, Alone):
            op, node = op.op, op.op.make_node(*map(_scalar_like, node.inputs))
        if isinstance(op, ps.Composite):
            known = dict(zip(op.fgraph.inputs, texts, strict=True))
            for inner in op.fgraph.toposort():
                inputs = [known[v] if v in known else _literal(v.data) for v in inner.inputs]
                known |= zip(inner.outputs, self._scalar(loops, inner, inputs), strict=True)
            return [known[v] if v in known else _literal(v.data) for v in op.fgraph.outputs]
        dtypes = [v.type.dtype for v in node.outputs]
        if type(op) in SCALAR:
            text = SCALAR[type(op)].join(texts)
            return [loops.assign(_typed_if_small(text, dtypes[0]))]
        if isinstance(op, ps.Invert):
            return [loops.assign(("not " if dtypes[0] == "bool" else "~") + texts[0])]
        if isinstance(op, ps.Cast):
            return [loops.assign(_typed(texts[0], dtypes[0]))]
        if isinstance(op, ps.Switch) and dtypes[0] == "float64":
            return [loops.assign(f"{self._elementary('chosen')}({', '.join(texts)})")]
        if type(op) in TEMPLATES:
            return [loops.assign(_typed_if_small(TEMPLATES[type(op)].format(*texts), dtypes[0]))]
        if isinstance(op, Elementary):
            is_outside = not loops.loops and op.name in ALSO_NUMPY
            name = f"np.{op.name}" if is_outside else self._elementary(op.name)
            return [loops.assign(f"{name}({texts[0]})")]
        if isinstance(op, TriGamma | PolyGamma):
            order = "1" if isinstance(op, TriGamma) else texts[0]
            return [loops.assign(f"{self._elementary('polygamma')}({order}, {texts[-1]})")]
        result = loops.assign(f"{self._function(op, node)}({', '.join(texts)})")
        if len(dtypes) == 1:
            return [result]
        return [loops.assign(f"{result}[{k}]") for k in range(len(dtypes))]

    def _elementary(self, name: str) -> str:
        self.objects[f"f_{name}"] = getattr(elementary, name)
        return f"f_{name}"

    def _function(self, op: Any, node: Any) -> str:
        """PyTensor's function of an operation."""
        function, key = numba_funcify_ensure_cache(op, node=_apply_of(op, node))
        if key not in self._functions or key is None:
            self._functions[key] = self.refer("f", function, key)
        return self._functions[key]

    def _call(self, node: Any) -> None:
        """Call PyTensor's function of an operation."""
        arguments = []
        for v in node.inputs:
            if isinstance(v.type, ps.ScalarType):
                arguments.append(self._scalar_text(v))
            else:
                arguments.append(self._argument(v))
        function = self._function(node.op, node)
        names = [self.new("a") for _ in node.outputs]
        self.lines.append(f"    {', '.join(names)} = {function}({', '.join(arguments)})")
        for v, name in zip(node.outputs, names, strict=True):
            self._values[v] = self._array(v, name)  # it may be a view of an input

    def _transposed(self, v: Variable) -> str | None:
        """A variable that is the transpose of an array, as a view; ``None`` if it is not one."""
        if v.type.ndim != 2 or not self._is_transpose(v):
            return None
        return f"{self._array_of(v.owner.inputs[0])}.T"

    def _is_transpose(self, v: Variable) -> bool:
        """Whether an array has the matrices of another one, transposed."""
        if not isinstance(op_of(v), DimShuffle):
            return False
        *batch, row, column = range(v.type.ndim)
        return tuple(v.owner.op.new_order) == (*batch, column, row)

    def _argument(self, v: Variable) -> str:
        """An array, or an object that is not an array, such as a slice or a sparse matrix."""
        if isinstance(v.type, DenseTensorType):
            return self._array_of(v)
        if isinstance(v, Constant):
            return self.refer("c", numba_typify(v.data, variable=v), cache_key_for_constant(v.data))
        name = self.value(v).name
        assert name is not None
        return name

    def _by_rule(self, node: Any) -> bool:
        """Write an operation that has a rule of its own, and return whether there is one."""
        op = node.op
        for kind, write in RULES:
            if isinstance(op, kind):
                return write(self, node)
        return False

    def _dim_shuffle(self, node: Any) -> bool:
        x = self.value(node.inputs[0])
        out = node.outputs[0]
        order = [None if axis == "x" else int(axis) for axis in node.op.new_order]
        shape = ["1" if axis is None else x.shape[axis] for axis in order]
        place = {axis: k for k, axis in enumerate(order) if axis is not None}
        return self._store_moved(out, x, shape, place)

    def _store_moved(
        self, out: Variable, x: _Value, shape: Sequence[str], place: Mapping[int, int]
    ) -> bool:
        """Let a variable have the axes of x at other places. An axis of length 1 needs no place."""

        def index_of(loops: _Loops, index: Index) -> Index:
            return tuple(index[place[a]] if a in place else "0" for a in range(len(x.shape)))

        return self._store_view(out, x, shape, index_of)

    def _reshape(self, node: Any) -> bool:
        v = node.inputs[0]
        out = node.outputs[0]
        x = self.value(v)
        before = [(axis, n) for axis, n in enumerate(v.type.shape) if n != 1]
        after = [(axis, n) for axis, n in enumerate(out.type.shape) if n != 1]
        lengths = [n for _, n in before]
        if lengths == [n for _, n in after] and (None not in lengths or len(lengths) == 1):
            # Only axes of length 1 are added or removed.
            place = {a: b for (a, _), (b, _) in zip(before, after, strict=True)}
            axis_at = {b: a for a, b in place.items()}
            shape = [x.shape[axis_at[b]] if b in axis_at else "1" for b in range(out.type.ndim)]
            return self._store_moved(out, x, shape, place)
        lengths_after = self._lengths(node.inputs[1], out.type.shape)
        if lengths_after is None:
            return False
        source = self._array_of(v)
        name = self.new("a")
        if self.value(v).name is not None and not self.value(v).is_new:
            # An input, or the result of an operation without a rule, may have any memory order.
            source = f"np.ascontiguousarray({source})"
        self.lines.append(f"    {name} = {source}.reshape(({', '.join(lengths_after)},))")
        self._values[out] = self._array(out, name)
        return True

    def _lengths(self, shape: Variable, static: Sequence[int | None]) -> list[str] | None:
        """Lengths of the axes that a reshape asks for, as expressions. One of them may be -1."""
        if isinstance(shape, Constant):
            known = shape.data.tolist()
        elif isinstance(op_of(shape), MakeVector):
            known = [self._scalar_text(v) for v in shape.owner.inputs]
        elif None in static:
            return None
        else:
            known = list(static)
        return [str(a if b is None else b) for a, b in zip(known, static, strict=True)]

    def _alloc_empty(self, node: Any) -> bool:
        (out,) = node.outputs
        lengths = zip(node.inputs, out.type.shape, strict=True)
        shape = [self._scalar_text(v) if n is None else str(n) for v, n in lengths]
        return self._store_new(out, self._empty(shape, out.type.dtype))

    def _alloc(self, node: Any) -> bool:
        v, *lengths = node.inputs
        x = self.value(v)
        out = node.outputs[0]
        shape = [
            self._scalar_text(length) if n is None else str(n)
            for length, n in zip(lengths, out.type.shape, strict=True)
        ]
        added = len(shape) - len(x.shape)  # axes
        self._require_broadcast(v, shape[added:])
        return self._store_view(
            out, x, shape, lambda loops, index: _repeated(index[added:], v.type.shape)
        )

    def _make_vector(self, node: Any) -> bool:
        (out,) = node.outputs
        if out.type.shape == (1,):
            return False
        return self._vector(out, map(self._scalar_text, node.inputs), len(node.inputs))

    def _vector(self, out: Variable, elements: Iterable[str], length: int) -> bool:
        name = self._empty((str(length),), out.type.dtype)
        for k, element in enumerate(elements):
            self.lines.append(f"    {name}[{k}] = {element}")
        return self._store_new(out, name)

    def _split(self, node: Any) -> bool:
        x = self.value(node.inputs[0])
        axis, sizes = node.op.axis, node.inputs[-1]
        if not isinstance(sizes, Constant):
            return False
        start = 0
        for out, size in zip(node.outputs, sizes.data.tolist(), strict=True):
            shape = list(x.shape)
            shape[axis] = str(size)

            def index_of(loops: _Loops, index: Index, start: int = start) -> Index:
                return *index[:axis], _plus(str(start), index[axis]), *index[axis + 1 :]

            self._store_view(out, x, shape, index_of)
            start += size
        self._require(x.shape[axis], str(start))
        return True

    def _join(self, node: Any) -> bool:
        axis, (out,) = node.op.axis, node.outputs
        values = [self.value(v) for v in node.inputs]
        shape = list(values[0].shape)
        for k, n in enumerate(out.type.shape):
            if n is not None:
                shape[k] = str(n)
            elif k == axis:
                shape[k] = " + ".join(value.shape[axis] for value in values)
        for value in values:
            for k, length in enumerate(value.shape):
                self._require(length, length if k == axis else shape[k])
        name = self._empty(shape, out.type.dtype)
        start = "0"
        for value in values:
            loops = _Loops(self, value.shape)
            index = list(loops.index)
            element = value.read(loops, loops.index)
            index[axis] = _plus(start, index[axis])
            loops.do(f"{name}[{', '.join(index)}] = {element}")
            loops.write()
            start = _plus(start, value.shape[axis])
        return self._store_new(out, name)

    def _shape_i(self, node: Any) -> bool:
        self._store_number(node.outputs[0], self.value(node.inputs[0]).shape[node.op.i])
        return True

    def _subtensor(self, node: Any) -> bool:
        v, *rest = node.inputs
        (out,) = node.outputs
        part = self._selected(v, indices_from_subtensor(rest, node.op.idx_list))
        if part is None:
            return False
        shape = [
            own if n is None else str(n) for own, n in zip(part.shape, out.type.shape, strict=True)
        ]
        return self._store_view(out, self.value(v), shape, part.index_of)

    def _inc_subtensor(self, node: Any) -> bool:
        """Write x with y set at a part of it, or with y added there."""
        if getattr(node.op, "ignore_duplicates", False):
            return False
        v, y, *rest = node.inputs
        part = self._selected(v, indices_from_subtensor(rest, node.op.idx_list))
        if part is None or y.type.ndim > len(part.shape):
            return False
        may = self._may_overwrite(v)
        name = self.value(v).name if may else self._copy_of_all(v)
        loops = _Loops(self, part.shape)
        added = len(part.shape) - y.type.ndim  # axes
        self._require_broadcast(y, part.shape[added:])
        element = self.value(y).read(loops, _repeated(loops.index[added:], y.type.shape))
        index = ", ".join(part.index_of(loops, loops.index))
        loops.do(f"{name}[{index}] {'=' if node.op.set_instead_of_inc else '+='} {element}")
        loops.write()
        self._values[node.outputs[0]] = self._array(v, str(name), is_new=True)
        return True

    def _copy_of_all(self, v: Variable) -> str:
        """A new array with the elements of a variable."""
        before = self.value(v)
        name = self._copy(v)
        self._values[v] = before
        return name

    def _selected(self, v: Variable, indices: Sequence[Any]) -> _Part | None:
        """The part of x that an index selects, or ``None`` if there is no rule for the index."""
        x = self.value(v)
        arrays = [
            k
            for k, each in enumerate(indices)
            if not isinstance(each, slice) and getattr(each.type, "ndim", 0) > 0
        ]
        # NumPy puts the axes of arrays first if a slice is between two indices.
        fixed = [k for k, each in enumerate(indices) if not isinstance(each, slice)]
        if arrays and fixed != list(range(fixed[0], fixed[0] + len(fixed))):
            return None
        of_arrays = self._of_arrays([indices[k] for k in arrays], x, v, arrays)
        if of_arrays is None:
            return None
        shape: list[str] = []
        along: list[Callable[[_Loops, Index], str]] = []
        for axis, n in enumerate(x.shape):
            each = indices[axis] if axis < len(indices) else slice(None)
            if axis in arrays:
                place = arrays.index(axis)
                if place == 0:
                    start = len(shape)
                    shape += of_arrays.shape
                stop = start + len(of_arrays.shape)
                along.append(of_arrays.along(place, stop))
            elif isinstance(each, slice):
                cut = _cut(each, n, v.type.shape[axis]) or self._limits(each, n)
                if cut is None:
                    return None
                along.append(_strided(len(shape), cut[0], cut[2]))
                shape.append(cut[1])
            else:
                along.append(_fixed(self._position(each, n, v.type.shape[axis])))
        return _Part(tuple(shape), along)

    def _limits(self, each: slice, n: str) -> tuple[str, str, str] | None:
        """Start, length and step of a slice whose bounds are known at run time only."""
        if _integer(each.step, 1) != 1:
            return None
        start = self.new("t")
        length = self.new("t")
        first, last = (
            f"f_limited({bound if isinstance(bound, int) else self._scalar_text(bound)}, {n})"
            if bound is not None
            else otherwise
            for bound, otherwise in ((each.start, "0"), (each.stop, n))
        )
        self.lines.append(f"    {start} = {first}")
        self.lines.append(f"    {length} = max({last} - {start}, 0)")
        return start, length, "1"

    def _of_arrays(
        self, indices: Sequence[Variable], x: _Value, v: Variable, axes: Sequence[int]
    ) -> _Positions | None:
        """The positions that arrays of integers select; ``None`` if there is no rule for them."""
        if any("int" not in index.type.dtype for index in indices):
            return None
        ndim = max((index.type.ndim for index in indices), default=0)
        lengths = ["1"] * ndim
        found = []
        for axis, index in zip(axes, indices, strict=True):
            length = x.shape[axis]
            static = v.type.shape[axis]
            is_checked = isinstance(index, Constant) and static is not None and index.data.size > 0
            if is_checked and not -static <= index.data.min() <= index.data.max() < static:
                return None
            if is_checked and index.data.min() < 0:
                index = type(index)(index.type, index.data % static)
            value = self.value(index)
            for place, n in enumerate(value.shape, ndim - len(value.shape)):
                lengths[place] = n if n != "1" else lengths[place]
            found.append((value, index.type.shape, None if is_checked else length))
        return _Positions(tuple(lengths), found)

    def _position(self, v: Variable, n: str, static: int | None) -> str:
        """An index as an expression, counted from the end if it is negative."""
        k = _integer(v, None)
        if k is not None and static is not None and -static <= k < static:
            return str(k % static)
        return f"f_inside({self._scalar_text(v)}, {n})"

    def _extract_diag(self, node: Any) -> bool:
        """Take the diagonal of two axes, which becomes the last axis, as in NumPy."""
        op = node.op
        out = node.outputs[0]
        x = self.value(node.inputs[0])
        rows = max(-op.offset, 0)
        columns = max(op.offset, 0)
        axes = op.axis1 % len(x.shape), op.axis2 % len(x.shape)
        others = [axis for axis in range(len(x.shape)) if axis not in axes]
        length = f"max(min({x.shape[axes[0]]} - {rows}, {x.shape[axes[1]]} - {columns}), 0)"
        if out.type.shape[-1] is not None:
            length = str(out.type.shape[-1])

        def index_of(loops: _Loops, index: Index) -> Index:
            at = dict(zip(others, index[:-1], strict=True))
            at[axes[0]] = _plus(str(rows), index[-1])
            at[axes[1]] = _plus(str(columns), index[-1])
            return tuple(at[axis] for axis in range(len(x.shape)))

        return self._store_view(out, x, [*(x.shape[axis] for axis in others), length], index_of)

    def _alloc_diag(self, node: Any) -> bool:
        """Write an array of zeros with the last axis of x as the diagonal of two axes."""
        op = node.op
        (v,), (out,) = node.inputs, node.outputs
        x = self.value(v)
        rows = max(-op.offset, 0)
        columns = max(op.offset, 0)
        others = [axis for axis in range(out.type.ndim) if axis not in (op.axis1, op.axis2)]
        side = _plus(x.shape[-1], str(rows + columns))
        shape = dict(zip(others, x.shape[:-1], strict=True)) | {op.axis1: side, op.axis2: side}
        name = self._empty([shape[axis] for axis in range(out.type.ndim)], out.type.dtype)
        self.lines.append(f"    {name}[:] = 0")
        loops = _Loops(self, x.shape)
        at = dict(zip(others, loops.index[:-1], strict=True))
        at[op.axis1] = _plus(str(rows), loops.index[-1])
        at[op.axis2] = _plus(str(columns), loops.index[-1])
        place = ", ".join(at[axis] for axis in range(out.type.ndim))
        loops.do(f"{name}[{place}] = {x.read(loops, loops.index)}")
        loops.write()
        return self._store_new(out, name)

    def _shape(self, node: Any) -> bool:
        lengths = self.value(node.inputs[0]).shape
        return self._vector(node.outputs[0], lengths, len(lengths))

    def _cum_op(self, node: Any) -> bool:
        """Write a cumulative sum or product along an axis."""
        op = node.op
        (v,), (out,) = node.inputs, node.outputs
        x = self.value(v)
        if op.axis is None and len(x.shape) != 1:
            return False
        axis = 0 if op.axis is None else op.axis % len(x.shape)
        name = self._empty(x.shape, out.type.dtype)
        loops = _Loops(self, x.shape)
        at = list(loops.index)
        before = list(loops.index)
        element = x.read(loops, loops.index)
        loops.do(f"{name}[{', '.join(at)}] = {element}")
        if at[axis] != "0":
            before[axis] = f"{at[axis]} - 1"
            sign = "+" if op.mode == "add" else "*"
            loops.do(f"if {at[axis]} > 0:")
            loops.do(f"    {name}[{', '.join(at)}] {sign}= {name}[{', '.join(before)}]")
        loops.write()
        return self._store_new(out, name)

    def _cholesky(self, node: Any) -> bool:
        """Call LAPACK for a Cholesky factor, or loops for several on a first axis."""
        op = getattr(node.op, "core_op", node.op)
        v, (out,) = node.inputs[0], node.outputs
        if v.type.dtype != "float64" or v.type.ndim not in (2, 3):
            return False
        name, several = self._copy_of_all(v), v.type.ndim == 3
        self.lines.append(f"    f_{'choleskies' if several else 'cholesky'}({name})")
        if op.lower:
            return self._store_new(out, name)
        factor = self._array(out, name)
        *batch, n, m = factor.shape

        def turned(loops: _Loops, index: Index) -> Index:
            return (*index[:-2], index[-1], index[-2])

        return self._store_view(out, factor, (*batch, m, n), turned)

    def _triangular_solve(self, node: Any) -> bool:
        """Call BLAS to solve equations with a triangle, or with a Cholesky factor (both triangles).

        An operation on several matrices comes here, too, if it is a Cholesky factor.
        A first axis of both inputs may have several systems. BLAS reads right-hand sides as the
        rows of an array, so they are stored transposed.
        """
        op = getattr(node.op, "core_op", node.op)
        if isinstance(op, Cholesky):
            return self._cholesky(node)
        if isinstance(op, CholeskySolve):
            transposed = [not op.lower, op.lower]
        elif isinstance(op, SolveTriangular) and not op.unit_diagonal:
            transposed = [False]
        else:
            return False
        T, b = node.inputs[:2]
        (out,) = node.outputs
        count = b.type.ndim - op.b_ndim
        if T.type.dtype != "float64" or b.type.dtype != "float64" or count > 1:
            return False
        batch = self._broadcast([T, b], out.type.shape[:count])
        x = self.value(b)
        turns = isinstance(op, SolveTriangular) and self._is_transpose(T)
        matrix = self._array_of(T.owner.inputs[0] if turns else T)
        lower = op.lower != turns
        for length in {*self.value(T).shape[count:]}:
            self._require(x.shape[count], length)
        is_vector = op.b_ndim == 1
        of_each = x.shape[count:]
        loops = _Loops(self, (*batch, *(("1", *of_each) if is_vector else of_each[::-1])))

        def turned(index: Index) -> Index:
            return index[1:] if is_vector else index[::-1]

        of_batch = ("0",) if b.type.shape[:count] == (1,) else loops.index[:count]
        element = x.read(loops, (*of_batch, *turned(loops.index[count:])))
        name = self._empty(loops.shape, "float64")
        loops.do(f"{name}[{', '.join(loops.index)}] = {element}")
        loops.write()
        outer, each, rows = "", matrix, name
        if count:
            i = self.new("i")
            self.lines.append(f"    for {i} in range({batch[0]}):")
            of_T = "0" if T.type.shape[0] == 1 else i
            outer, each, rows = "    ", f"{matrix}[{of_T}]", f"{name}[{i}]"
        for turn in transposed:
            call = f"f_solve_triangular({each}, {lower}, {turn != turns}, {rows})"
            self.lines.append(f"    {outer}{call}")

        def read(loops: _Loops, index: Index) -> str:
            own = index[count:]
            at = (*index[:count], *(("0", *own) if is_vector else own[::-1]))
            return loops.assign(f"{name}[{', '.join(at)}]")

        self._values[out] = _Value((*batch, *of_each), read)
        return True

    def _dot(self, node: Any) -> bool:
        """Call BLAS for a product of two matrices, or of several pairs of them."""
        if any(v.type.dtype != "float64" for v in node.inputs):
            return False
        names = [self._transposed(v) or self._array_of(v) for v in node.inputs]
        (*batch, _, inner), of_second = (self.value(v).shape for v in node.inputs)
        for length, expected in zip(of_second, [*batch, inner], strict=False):
            self._require(length, expected)
        name = self.new("a")
        function = "f_products" if batch else "f_product"
        self.lines.append(f"    {name} = {function}({', '.join(names)})")
        (out,) = node.outputs
        return self._store_new(out, name)

    def _reduction(self, node: Any) -> bool:
        """Write a sum, product, maximum or the like, and return whether there is a rule for it."""
        op = node.op
        if not isinstance(op, CAReduce) or type(op.scalar_op) not in REDUCTIONS:
            return False
        (v,), (out,) = node.inputs, node.outputs
        start, step = REDUCTIONS[type(op.scalar_op)]
        if "inf" in start and not out.type.dtype.startswith("float"):
            return False
        start = start if start in ("True", "False") else _typed(start, out.type.dtype)
        x = self.value(v)
        axes = range(len(x.shape)) if op.axis is None else op.axis
        loops = _Loops(self, x.shape)
        element = loops.assign(x.read(loops, loops.index))
        kept = [axis for axis in range(len(x.shape)) if axis not in axes]
        kept_loops = [i for i in (loops.index[axis] for axis in kept) if i != "0"]
        shape = tuple(x.shape[axis] for axis in kept)
        index = ", ".join(loops.index[axis] for axis in kept)
        total = self.new("t")
        sums_inside = [i for i, _ in loops.loops[: len(kept_loops)]] == kept_loops
        if sums_inside:
            # The axes that are kept are the outer ones, so a local variable has the sum.
            depth = len(kept_loops)
            loops.before[depth].append(f"{total} = {start}")
            loops.do(f"{total} = {step.format(total, element)}")
        if not kept_loops:
            loops.write()
            self._store_number(out, total)
            return True
        name = self._empty(shape, out.type.dtype)
        if sums_inside:
            loops.after[depth].append(f"{name}[{index}] = {total}")
        else:
            self.lines.append(f"    {name}[:] = {start}")
            loops.do(f"{name}[{index}] = {step.format(f'{name}[{index}]', element)}")
        loops.write()
        return self._store_new(out, name)


@dataclass(frozen=True)
class _Part:
    """A part of an array: its shape, and where its elements are along each axis of the array."""

    shape: tuple[str, ...]
    along: list[Callable[[_Loops, Index], str]]

    def index_of(self, loops: _Loops, index: Index) -> Index:
        """The index into the array, from the index into the part."""
        return tuple(position(loops, index) for position in self.along)


@dataclass(frozen=True)
class _Positions:
    """Arrays of integers, repeated to a common shape, which are indices along axes of an array.

    With each comes the length of its axis if positions have to be checked at run time.
    """

    shape: tuple[str, ...]
    arrays: list[tuple[_Value, tuple[int | None, ...], str | None]]

    def along(self, k: int, stop: int) -> Callable[[_Loops, Index], str]:
        """The position that array ``k`` has at the indices before ``stop``."""
        value, static, length = self.arrays[k]

        def position(loops: _Loops, index: Index) -> str:
            text = value.read(loops, _repeated(index[stop - len(static) : stop], static))
            return text if length is None else loops.assign(f"f_inside({text}, {length})")

        return position


def _repeated(index: Index, static: Sequence[int | None]) -> Index:
    """An index into an array that is repeated along its axes of length 1."""
    return tuple("0" if n == 1 else i for i, n in zip(index, static, strict=True))


def _fixed(position: str) -> Callable[[_Loops, Index], str]:
    return lambda loops, index: position


def _strided(place: int, start: str, step: str) -> Callable[[_Loops, Index], str]:
    """start + step i for the index i at a place."""

    def position(loops: _Loops, index: Index) -> str:
        return _plus(start, index[place] if step == "1" else f"{step} * {index[place]}")

    return position


def _cut(each: slice, n: str, static: int | None) -> tuple[str, str, str] | None:
    """Start, length and step of a slice of an axis, or ``None`` if there is no rule for it."""
    start, stop, step = each.start, each.stop, _integer(each.step, 1)
    if step is None or not is_known(start) or not is_known(stop):
        return None
    if static is not None:
        r = range(*slice(_integer(start, None), _integer(stop, None), step).indices(static))
        return str(r.start), str(len(r)), str(step)
    first = _integer(start, 0)
    if _integer(stop, None) is not None or first is None or first < 0 or step == 0:
        return None
    if step < 0:
        return (f"{n} - 1", f"({n} + {-step - 1}) // {-step}", str(step)) if start is None else None
    length = f"max({n} - {first}, 0)" if first else n
    return str(first), length if step == 1 else f"({length} + {step - 1}) // {step}", str(step)


RULES: tuple[tuple[Any, Callable[[Writer, Any], bool]], ...] = (
    (DimShuffle, Writer._dim_shuffle),
    (Reshape, Writer._reshape),
    (Alloc, Writer._alloc),
    (MakeVector, Writer._make_vector),
    (Join, Writer._join),
    (Split, Writer._split),
    (Shape_i, Writer._shape_i),
    ((Subtensor, AdvancedSubtensor), Writer._subtensor),
    ((IncSubtensor, AdvancedIncSubtensor), Writer._inc_subtensor),
    (AllocEmpty, Writer._alloc_empty),
    (ExtractDiag, Writer._extract_diag),
    (AllocDiag, Writer._alloc_diag),
    (Shape, Writer._shape),
    (CumOp, Writer._cum_op),
    (Cholesky, Writer._cholesky),
    ((SolveTriangular, CholeskySolve, BlockwiseWithCoreShape), Writer._triangular_solve),
    ((Product, BatchedDot), Writer._dot),
)
"""Rules for operations that move or accumulate elements, and for those of matrices. The first
operation that fits is taken."""


def _plus(a: str, b: str) -> str:
    """a + b, added now if both are numbers."""
    if a.isdigit() and b.isdigit():
        return str(int(a) + int(b))
    return b if a == "0" else (a if b == "0" else f"{a} + {b}")


def _integer(v: Any, default: int | None) -> int | None:
    """The value of a constant index."""
    if v is None:
        return default
    data = getattr(v, "data", v)
    return int(data) if is_known(v) and data is not None else default


@numba.njit(cache=True)
def inside(position: int, n: int) -> int:
    """A position counted from the start; an error if it is beyond the axis."""
    if position < -n or position >= n:
        raise IndexError("An index is out of bounds.")
    return position if position >= 0 else position + n


@numba.njit(cache=True)
def limited(position: int, n: int) -> int:
    """A bound of a slice, counted from the start, and moved into the axis if it is beyond it."""
    return min(max(position if position >= 0 else position + n, 0), n)


def _literal(x: Any) -> str:
    """A number as source."""
    kind = np.asarray(x).dtype.kind
    if kind == "b":
        return str(bool(x))
    if kind in "iu":
        return str(int(x)) if x >= 0 else f"({int(x)})"
    value = float(x)
    if np.isfinite(value):
        return repr(value) if value >= 0 and not np.signbit(value) else f"({value!r})"
    return "np.nan" if np.isnan(value) else ("np.inf" if value > 0 else "(-np.inf)")


def _dtype(dtype: str) -> str:
    return "bool_" if dtype == "bool" else dtype


def _typed(text: str, dtype: str) -> str:
    return f"({text} != 0)" if dtype == "bool" else f"np.{dtype}({text})"


def _typed_if_small(text: str, dtype: str) -> str:
    """Integers narrower than 64 bits wrap around in PyTensor, and not in Numba."""
    return text if dtype in ("bool", "int64", "uint64", "float64") else f"np.{dtype}({text})"


def _apply_of(op: Any, node: Any) -> Any:
    """The node of an operation of scalars, whose types PyTensor's rules read."""
    if node.op is op:
        return node
    return op.make_node(*map(_scalar_like, node.inputs))


def _scalar_like(v: Variable) -> Any:
    return ps.get_scalar_type(v.type.dtype)()


def _unreadable(loops: _Loops, index: Index) -> str:
    raise NotImplementedError("An object that is not an array has no elements.")
