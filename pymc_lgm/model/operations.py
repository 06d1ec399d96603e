"""The properties of PyTensor's operations, a table for every walk through a graph.

An operation that moves elements from its inputs to its results is one entry of `PICKING`, `JOINING`
or `SETTING`. One of linear algebra is an entry of `PRODUCTS`. Any other linear operation is a line
of `is_affine`. `carried` is the walk. These modules use them: `pymc_lgm.model.affine`, `elements`,
`columns`, `reads`, `amplitudes`, `log_concave`, `class_sets`, `integrates`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pytensor.scalar as ps

from numpy.typing import NDArray
from pytensor.compile.ops import ViewOp
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Constant
from pytensor.graph.traversal import toposort
from pytensor.raise_op import CheckAndRaise
from pytensor.sparse.math import Dot as SparseDot
from pytensor.sparse.math import StructuredDot
from pytensor.sparse.variable import SparseConstant
from pytensor.tensor.basic import (
    Alloc,
    ExtractDiag,
    Join,
    MakeVector,
    ScalarFromTensor,
    Split,
    TensorFromScalar,
    get_underlying_scalar_constant_value,
)
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.exceptions import NotScalarConstantError
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky
from pytensor.tensor.linalg.inverse import MatrixInverse
from pytensor.tensor.linalg.solvers.general import Solve
from pytensor.tensor.linalg.solvers.psd import CholeskySolve
from pytensor.tensor.linalg.solvers.triangular import SolveTriangular
from pytensor.tensor.math import Dot, Sum
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
)
from pytensor.tensor.type import TensorType

from pymc_lgm.compile.graphs.nodes import op_of

__all__ = [
    "ARRANGING",
    "INDEXING",
    "JOINING",
    "OF_SHAPES",
    "PICKING",
    "POWERS",
    "PRODUCTS",
    "SETTING",
    "SHAPING",
    "Variable",
    "bare",
    "carried",
    "constant_of",
    "core_of",
    "depending",
    "is_added",
    "is_affine",
    "is_affine_elementwise",
    "is_sparse_product",
    "known_value",
    "moved",
    "name_of",
    "number_of",
    "performed",
    "powers_of",
    "sources",
    "squared",
]

Variable = Any
"""A PyTensor variable. PyTensor's own types do not declare its operators."""

Index = NDArray[np.intp]

OF_SHAPES = (Shape, Shape_i)
"""Operations that read the shape of their input and none of its elements."""

SHAPING = (Alloc, Reshape, SpecifyShape)
"""Operations that keep the elements of their first input. Their other inputs give a shape."""

ARRANGING = (*SHAPING, DimShuffle, ViewOp, TensorFromScalar, ScalarFromTensor)
"""Operations that keep every element of their first input."""

INDEXING = (Subtensor, AdvancedSubtensor)
"""``x[i]``: the first input is x, the others are the indices."""

PICKING = (*ARRANGING, *INDEXING, Split, ExtractDiag, CheckAndRaise)
"""Operations whose results consist of elements of the first input.

The other inputs, if any, say which.
"""

JOINING = (Join, MakeVector)
"""Operations whose result consists of elements of all inputs."""

SETTING = (IncSubtensor, AdvancedIncSubtensor)
"""Operations whose result consists of elements of the first two inputs, or of sums of one of each.

The other inputs say where.
"""

ADDING = (ps.Add, ps.Sub, ps.Neg, ps.Identity, ps.Second, ps.Cast)
"""Functions of numbers that are affine in all of their inputs together."""

PRODUCTS: dict[type, tuple[float, ...]] = {
    Dot: (1.0, 1.0),
    Cholesky: (0.5,),
    MatrixInverse: (-1.0,),
    Solve: (-1.0, 1.0),
    SolveTriangular: (-1.0, 1.0),
    CholeskySolve: (-2.0, 1.0),
}
"""Operations on matrices whose result is multiplied by c^k if an input is multiplied by c > 0.

Each has the k of its inputs. A result is linear in an input whose k is 1.
"""

POWERS: dict[type, float] = {ps.Sqr: 2.0, ps.Sqrt: 0.5, ps.Reciprocal: -1.0, ps.Abs: 1.0}
"""Functions g of one number with g(c x) = c^k g(x) for c > 0, and k."""

SPARSE_DOT = (SparseDot, StructuredDot)
"""Products with a matrix of SciPy's sparse formats: ``dot`` and ``structured_dot``."""


def core_of(op: Any) -> Any:
    """The operation along the last axes, if ``op`` repeats it along others; otherwise ``op``."""
    return op.core_op if isinstance(op, Blockwise) else op


def moved(op: Any, inputs: Sequence[Variable]) -> int:
    """The number of inputs, the first ones, that an operation moves elements from.

    The other inputs say which elements, and where they go. The number is 0 if an operation does
    not just move elements.
    """
    if isinstance(op, PICKING):
        return 1
    if isinstance(op, SETTING):
        return 2
    return len(inputs) if isinstance(op, JOINING) else 0


def sources(
    node: Apply[Any, Any],
    shape_of: Callable[[Variable], tuple[int, ...]],
    value_of: Callable[[Variable], Any],
) -> list[Index]:
    """Find where each element of the results of an operation that moves elements comes from.

    Parameters
    ----------
    node : Apply
    shape_of, value_of : callable
        The shape of an input that elements are moved from, and the value of another input.

    Returns
    -------
    list of ndarray of int
        For each result an array of its shape: indices into the elements of all inputs that elements
        are moved from, one input after another.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> x = pt.vector("x", shape=(4,))
    >>> sources(x[::-1].owner, lambda v: (4,), lambda v: v.data)
    [array([3, 2, 1, 0])]
    """
    count = moved(core_of(node.op), node.inputs)
    begin = 0
    inputs = []
    for v in node.inputs[:count]:
        shape = shape_of(v)
        size = int(np.prod(shape, dtype=np.intp))
        inputs.append(np.arange(begin, begin + size).reshape(shape))
        begin += size
    if isinstance(node.op, CheckAndRaise):  # its conditions move no elements
        return inputs
    inputs += map(value_of, node.inputs[count:])
    return [np.asarray(each).astype(np.intp) for each in performed(node, inputs)]


def performed(node: Apply[Any, Any], inputs: Sequence[Any]) -> list[Any]:
    """The results of an operation for values of its inputs."""
    storage: list[list[Any]] = [[None] for _ in node.outputs]
    node.op.perform(node, list(inputs), storage)
    return [each[0] for each in storage]


def carried[Fact](
    outputs: Sequence[Variable],
    facts: Mapping[Variable, Fact],
    rule: Callable[[Apply[Any, Any], list[Fact | None]], Fact],
    ends: Collection[Variable] = (),
) -> dict[Variable, Fact]:
    """Carry facts about variables through a graph, by a rule for each operation.

    Parameters
    ----------
    outputs : sequence of variable
    facts : mapping
        The facts that are known.
    rule : callable
        (node, the facts about its inputs) -> the fact about its results. Inputs without a fact have
        ``None``. A node none of whose inputs has a fact, or that reads only shapes, is left out.
    ends : collection of variable
        Variables at which the walk ends.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> x = pt.vector("x")
    >>> y = pt.exp(2.0 * x)
    >>> carried([y], {x: 0}, lambda node, facts: 1 + max(n for n in facts if n is not None))[y]
    2
    """
    known, ends = dict(facts), set(ends)
    for node in toposort(outputs, blockers=ends):
        is_read = not known.keys().isdisjoint(_read_by_value(node))
        if is_read and ends.isdisjoint(node.outputs):
            fact = rule(node, [known.get(v) for v in node.inputs])
            known |= dict.fromkeys(node.outputs, fact)
    return known


def _read_by_value(node: Apply[Any, Any]) -> Sequence[Variable]:
    """The inputs of which an operation reads the values, and not only the shapes."""
    if isinstance(node.op, OF_SHAPES):
        return []
    is_fill = isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, ps.Second)
    return node.inputs[1:] if is_fill else node.inputs


def depending(
    outputs: Sequence[Variable], on: Sequence[Variable], ends: Collection[Variable] = ()
) -> set[Variable]:
    """The variables of a graph whose values, and not only shapes, depend on those in ``on``."""
    return set(carried(outputs, dict.fromkeys(on), lambda node, facts: None, ends))


def is_affine(node: Apply[Any, Any], dependent: Sequence[bool]) -> bool:
    """Whether an operation is jointly affine in those of its inputs that depend on latents."""
    op = core_of(node.op)
    if count := moved(op, node.inputs):
        return not any(dependent[count:])
    if isinstance(op, Elemwise):
        return is_affine_elementwise(op.scalar_op, dependent)
    if isinstance(op, Sum):
        return True
    if isinstance(op, CumOp):
        return bool(op.mode == "add")
    if (powers := powers_of(op)) is not None:
        return [k for k, moves in zip(powers, dependent, strict=True) if moves] == [1.0]
    # `with_dense_products` replaces it by an operation that the other rules cover.
    return is_sparse_product(node)


def is_affine_elementwise(op: Any, dependent: Sequence[bool]) -> bool:
    """Whether a function of numbers is jointly affine in those that depend on latents."""
    if isinstance(op, ps.Cast):
        return bool(op.o_type.dtype == "float64")
    if isinstance(op, ADDING):
        return True
    if isinstance(op, ps.Mul):
        return sum(dependent) == 1
    if isinstance(op, ps.TrueDiv | ps.Switch):
        # A quotient is linear in its numerator, a switch in its branches.
        return not dependent[1] if isinstance(op, ps.TrueDiv) else not dependent[0]
    return False


def powers_of(op: Any) -> tuple[float, ...] | None:
    """The entry of `PRODUCTS` for an operation."""
    return next((powers for kind, powers in PRODUCTS.items() if isinstance(op, kind)), None)


def is_sparse_product(node: Apply[Any, Any]) -> bool:
    """Whether a node is the product of a constant sparse matrix and a dense one."""
    if not isinstance(node.op, SPARSE_DOT):
        return False
    A, x = node.inputs
    return isinstance(A, SparseConstant) and isinstance(x.type, TensorType)


def is_added(node: Apply[Any, Any], position: int) -> bool:
    """Whether an affine operation adds an input to its other inputs, or puts it beside them."""
    op = node.op
    if isinstance(op, CheckAndRaise):  # it may raise an error, and changes no element
        return True
    if not isinstance(op, Elemwise):
        return position < moved(op, node.inputs)
    return position > 0 if isinstance(op.scalar_op, ps.Switch) else isinstance(op.scalar_op, ADDING)


def squared(L: Variable) -> Variable | None:
    """K, if a variable is the lower Cholesky factor of K; ``None`` for any other variable."""
    op = core_of(op_of(L))
    return L.owner.inputs[0] if isinstance(op, Cholesky) and op.lower else None


def bare(v: Variable) -> Variable:
    """A variable before axes were added to it, dropped, or put in another order."""
    while isinstance(op_of(v), DimShuffle):
        (v,) = v.owner.inputs
    return v


def constant_of(v: Variable) -> Any:
    """The value of a constant, except for the order of axes; ``None`` for any other variable."""
    v = bare(v)
    return v.data if isinstance(v, Constant) else None


def name_of(node: Any) -> str:
    """The user's name of a node's result, or the node's operation."""
    return next((v.name for v in node.outputs if v.name), str(node.op))


def known_value(v: Variable) -> Any:
    """The value of a constant or of data; ``None`` for a variable that is computed or drawn."""
    if isinstance(v, Constant):
        return v.data
    return v.get_value(borrow=True) if isinstance(v, SharedVariable) else None


def number_of(v: Variable) -> float | None:
    """The value of a constant whose elements are all equal; ``None`` for any other variable."""
    try:
        return float(get_underlying_scalar_constant_value(v))
    except NotScalarConstantError:
        return None
