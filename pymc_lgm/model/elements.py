"""What follows from a graph about the elements of a linear predictor, without evaluating it.

Two elements are one if they are the same expression: the same operations on the same elements of
theta and x, and on constants that are equal bit for bit. A column of A is a number if no operation
on the way from x multiplies it by, or picks it with, something that theta moves. An operation that
is not known here makes elements that are like no others, and columns that move.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytensor.scalar as ps

from numpy.typing import NDArray
from pytensor.compile.ops import ViewOp
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Constant
from pytensor.graph.traversal import toposort
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import (
    Alloc,
    Join,
    MakeVector,
    ScalarFromTensor,
    Split,
    TensorFromScalar,
    get_underlying_scalar_constant_value,
)
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.exceptions import NotScalarConstantError
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import Dot
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
)

from pymc_lgm.linalg import Array
from pymc_lgm.model.compiling import called_once

__all__ = [
    "JOINING",
    "PICKING",
    "Bits",
    "Codes",
    "columns_move",
    "depending",
    "distinct_elements",
    "distinct_slopes",
    "number_of",
    "part_of",
    "performed",
]

Variable = Any
Bits = NDArray[np.uint64]
"""128 bits that stand for an expression, in a last axis of two."""

PICKING = (
    *(DimShuffle, Reshape, SpecifyShape, Alloc, ViewOp, CheckAndRaise, Split),
    *(Subtensor, AdvancedSubtensor, TensorFromScalar, ScalarFromTensor),
)
"""Each element of the result is one of the first input's; the other inputs say which."""

JOINING = (Join, MakeVector)
"""Each element of the result is one of some input's."""

ADDING = (ps.Add, ps.Sub, ps.Neg, ps.Identity, ps.Second, ps.Cast)

LARGEST = 2**22
"""Elements of one variable that are looked at, 64 MB of codes; more are like no others."""


def distinct_elements(
    output: Variable, moving: Sequence[Variable], values: Mapping[Variable, Array]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Find the elements of a vector that are different expressions.

    Parameters
    ----------
    output : variable
        A vector.
    moving : sequence of variable
        What it is a function of: theta, x, and what other steps own. All else are constants.
    values : mapping
        A value of each of them: it says how large variables are.

    Returns
    -------
    first, index : ndarray of int
        Where each expression is first, and which one each element is.

    Examples
    --------
    >>> import numpy as np
    >>> import pytensor.tensor as pt
    >>> theta = pt.vector("theta", shape=(2,))
    >>> eta = theta[[0, 1, 0, 0]] * np.array([1.0, 1.0, 1.0, 2.0])
    >>> first, index = distinct_elements(eta, [theta], {theta: np.zeros(2)})
    >>> first.tolist(), index.tolist()
    ([0, 1, 3], [0, 1, 0, 2])
    """
    return _distinct(Codes(output, moving, values).of(output))


def distinct_slopes(
    output: Variable, x: Variable, moving: Sequence[Variable], values: Mapping[Variable, Array]
) -> NDArray[np.intp]:
    """Find the rows of A of an output c + A x that are different expressions.

    Parameters
    ----------
    output : variable
        Affine in x, as `pymc_lgm.model.affine` has found.
    x : variable
    moving : sequence of variable
        Theta, and what other steps own.
    values : mapping
        A value of x and of each of them.

    Returns
    -------
    ndarray of int
        Which expression the row of A of each element is: c has no part in it.

    Examples
    --------
    >>> import numpy as np
    >>> import pytensor.tensor as pt
    >>> x, theta = pt.vector("x", shape=(2,)), pt.scalar("theta")
    >>> eta = theta * np.arange(3.0) + theta * x[[0, 0, 1]]
    >>> distinct_slopes(eta, x, [theta], {x: np.zeros(2), theta: np.zeros(())}).tolist()
    [0, 0, 1]
    """
    return _distinct(Codes(output, [x, *moving], values, slopes_in=x).of(output))[1]


def _distinct(codes: Bits) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Where each code is first, and which one each element has."""
    _, first, inverse = np.unique(
        codes.reshape(-1, 2), axis=0, return_index=True, return_inverse=True
    )
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(order.size)
    return first[order], rank[inverse.ravel()]


def columns_move(
    output: Variable, x: Variable, parts: Sequence[slice], moving: Sequence[Variable]
) -> list[bool]:
    """For each part of x whether a column of A, of an affine output, may depend on what moves.

    Parameters
    ----------
    output : variable
        Affine in x, as `pymc_lgm.model.affine` has found.
    x : variable
        Read by slices that are constants.
    parts : sequence of slice
        Those of the latent variables.
    moving : sequence of variable
        Theta, and what other steps own.

    Returns
    -------
    list of bool

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> x, theta = pt.vector("x", shape=(4,)), pt.scalar("theta")
    >>> eta = x[0:2] + theta + theta * x[2:4]
    >>> columns_move(eta, x, [slice(0, 2), slice(2, 4)], [theta])
    [False, True]
    """
    depends = depending([output], moving)
    touched: dict[Variable, set[int]] = {}
    moved: set[int] = set()
    everything = set(range(len(parts)))
    for node in toposort([output]):
        if isinstance(node.op, Shape | Shape_i):
            continue
        if x in node.inputs:
            which = part_of(node, x, parts)
            if which is None:
                return [True] * len(parts)
            touched[node.outputs[0]] = {which}
            continue
        reached = set().union(*(touched.get(v, set()) for v in node.inputs))
        if not reached:
            continue
        touched |= dict.fromkeys(node.outputs, reached)
        for position, v in enumerate(node.inputs):
            free = not touched.get(v)
            if free and v in depends and not _is_added(node.op, position):
                moved |= reached
                break
    if output is x:
        return [False] * len(parts)
    return [k in moved for k in everything]


def part_of(node: Apply[Any, Any], x: Variable, parts: Sequence[slice]) -> int | None:
    """Which part a node takes of x; ``None`` if it is not one."""
    if not isinstance(node.op, Subtensor) or node.inputs[0] is not x:
        return None
    if not all(isinstance(each, Constant) for each in node.inputs[1:]):
        return None
    size = int(x.type.shape[0])
    (taken,) = performed(node, [np.arange(size), *(v.data for v in node.inputs[1:])])
    taken = np.ravel(taken)
    for k, part in enumerate(parts):
        inside = np.arange(*part.indices(size))
        if taken.size and np.isin(taken, inside).all():
            return k
    return None


def _is_added(op: Any, position: int) -> bool:
    """Whether an input of an operation is added to, or put beside, what is affine in x."""
    if isinstance(op, JOINING):
        return True
    if isinstance(op, IncSubtensor | AdvancedIncSubtensor):
        return position < 2
    if isinstance(op, Elemwise):
        if isinstance(op.scalar_op, ps.Switch):
            return position > 0
        return isinstance(op.scalar_op, ADDING)
    # A check changes nothing but whether an error is raised.
    return isinstance(op, CheckAndRaise)


def depending(outputs: Sequence[Variable], on: Sequence[Variable]) -> set[Variable]:
    """The variables of a graph whose values, and not only shapes, depend on others."""
    found = set(on)
    for node in toposort(outputs):
        if not isinstance(node.op, Shape | Shape_i) and not found.isdisjoint(node.inputs):
            found.update(node.outputs)
    return found


def number_of(v: Variable) -> float | None:
    """The value of a constant whose elements are all equal; ``None`` of anything else."""
    try:
        return float(get_underlying_scalar_constant_value(v))
    except NotScalarConstantError:
        return None


def performed(node: Apply[Any, Any], inputs: Sequence[Any]) -> list[Any]:
    """What an operation makes of values of its inputs."""
    storage: list[list[Any]] = [[None] for _ in node.outputs]
    node.op.perform(node, list(inputs), storage)
    return [each[0] for each in storage]


def _mixed(x: Bits) -> Bits:
    """A bijection of 64 bits that spreads each over all (Steele, Lea and Flood 2014, SplitMix)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    result: Bits = x ^ (x >> np.uint64(31))
    return result


LANES = np.array([0x9E3779B97F4A7C15, 0xD1B54A32D192ED03], dtype=np.uint64)
"""What makes the two halves of a code independent: odd numbers, of the golden ratio and of √2."""


def _combined(label: int, *codes: Bits) -> Bits:
    """The code of an operation on expressions, in their order."""
    total = _mixed(np.uint64(label + 1) * LANES)
    for each in codes:
        total = _mixed(total * np.uint64(3) + each * LANES)
    return total


def _along(codes: Bits, axis: int) -> Bits:
    """Codes at their places along an axis, each spread: what may be added up."""
    shape = [1] * codes.ndim
    shape[axis] = codes.shape[axis]
    place: Bits = np.arange(1, codes.shape[axis] + 1, dtype=np.uint64).reshape(shape)
    return _mixed(codes + place * LANES)


class Codes:
    """Codes of the elements of a graph's variables, made for those that are asked for.

    With ``slopes_in`` x, those of what is affine in x are of its slope: what is added to it and
    does not depend on x is left out.
    """

    def __init__(
        self,
        output: Variable,
        moving: Sequence[Variable],
        values: Mapping[Variable, Array],
        *,
        slopes_in: Variable | None = None,
    ):
        self._sloped = set() if slopes_in is None else depending([output], [slopes_in])
        self._moves = depending([output], moving)
        self._labels: dict[Any, int] = {}
        self._codes: dict[Variable, Bits] = {}
        for v in moving:
            self._codes[v] = self._anew(np.shape(values[v]))
        nodes, given = self._followed(output)
        # Shared variables have their value with them.
        inputs = [v for v in moving if not isinstance(v, SharedVariable)]
        known = called_once(inputs, list(given))
        with np.errstate(all="ignore"):
            self._values = dict(zip(given, known(*(values[v] for v in inputs)), strict=True))
        for v in given:
            if v in self._moves:  # of an operation that is not known: only its size is used
                self._codes[v] = self._anew(np.shape(self._values[v]))
        for node in nodes:
            made = self._made(node)
            self._codes |= zip(node.outputs, made, strict=True)

    def __contains__(self, v: Variable) -> bool:
        return v in self._codes or v in self._values or isinstance(v, Constant)

    def of(self, v: Variable) -> Bits:
        """Codes of all elements of a variable."""
        if v not in self._codes:
            self._codes[v] = self._of_constant(np.asarray(self.value(v)))
        return self._codes[v]

    def value(self, v: Variable) -> Any:
        """The value of what does not move."""
        return v.data if isinstance(v, Constant) else self._values[v]

    def _followed(self, output: Variable) -> tuple[list[Any], list[Variable]]:
        """Nodes whose elements are followed, in order, and variables whose values are needed."""
        nodes: list[Any] = []
        given: dict[Variable, None] = {}
        wanted = {output}
        order = list(toposort([output]))
        for node in reversed(order):
            if wanted.isdisjoint(node.outputs):
                continue
            if self._moves.isdisjoint(node.outputs) or not self._has_rule(node):
                given |= dict.fromkeys(v for v in node.outputs if v in wanted)
                continue
            nodes.append(node)
            wanted.update(node.inputs)
        for v in wanted:
            if v.owner is None and v not in self._moves and not isinstance(v, Constant):
                given[v] = None
        return nodes[::-1], list(given)

    def _has_rule(self, node: Any) -> bool:
        op = node.op
        if isinstance(op, PICKING):
            return self._moves.isdisjoint(node.inputs[1:]) or isinstance(op, CheckAndRaise)
        if isinstance(op, IncSubtensor | AdvancedIncSubtensor):
            return bool(op.set_instead_of_inc) and self._moves.isdisjoint(node.inputs[2:])
        if isinstance(op, CumOp):
            return op.axis is not None
        core = op.core_op if isinstance(op, Blockwise) else op
        return isinstance(op, (*JOINING, Elemwise, CAReduce)) or isinstance(core, Dot)

    def _made(self, node: Any) -> list[Bits]:
        op = node.op
        if isinstance(op, CheckAndRaise):
            return [self.of(node.inputs[0])]
        if isinstance(op, (*PICKING, *JOINING, IncSubtensor, AdvancedIncSubtensor)):
            return self._picked(node)
        inputs = [self.of(v) for v in node.inputs]
        if isinstance(op, Elemwise):
            sloped = [v in self._sloped for v in node.inputs]
            if any(sloped) and isinstance(op.scalar_op, ps.Add | ps.Sub):
                return [self._sum_of_slopes(op, inputs, sloped)]
            if isinstance(op.scalar_op, ps.Second):
                shape = np.broadcast_shapes(*(each.shape for each in inputs))
                return [np.broadcast_to(inputs[1], shape)]
            # Inputs have as many axes as the result, and the last one is that of the code.
            return [_combined(self._label((op, k)), *inputs) for k in range(len(node.outputs))]
        if isinstance(op, CAReduce):
            (codes,) = inputs
            axes = range(codes.ndim - 1) if op.axis is None else op.axis
            for axis in sorted(axes, reverse=True):
                codes = _along(codes, axis).sum(axis=axis, dtype=np.uint64)
            return [_combined(self._label(op), codes)]
        if isinstance(op, CumOp):
            (codes,) = inputs
            total = np.cumsum(_along(codes, op.axis), axis=op.axis, dtype=np.uint64)
            return [_combined(self._label(op), total)]
        left, right = inputs
        rows = _along(left, left.ndim - 2).sum(axis=-2, dtype=np.uint64)
        if right.ndim == 2:
            columns = _along(right, 0).sum(axis=0, dtype=np.uint64)
        else:
            columns = _along(right, right.ndim - 3).sum(axis=-3, dtype=np.uint64)
        if left.ndim > 2 and right.ndim > 2:
            rows, columns = rows[..., :, None, :], columns[..., None, :, :]
        return [_combined(self._label(op), rows, columns)]

    def _sum_of_slopes(self, op: Any, inputs: list[Bits], sloped: list[bool]) -> Bits:
        shape = np.broadcast_shapes(*(each.shape for each in inputs))
        terms = [
            np.broadcast_to(each, shape)
            for each, is_one in zip(inputs, sloped, strict=True)
            if is_one
        ]
        if len(terms) == 1 and sloped[0] | isinstance(op.scalar_op, ps.Add):
            return terms[0]
        return _combined(self._label((op, *sloped)), *terms)

    def _picked(self, node: Any) -> list[Bits]:
        """Of an operation that picks elements, by what it does to their numbers."""
        count = 1 if isinstance(node.op, PICKING) else 2
        several = isinstance(node.op, JOINING)
        begin = 0
        pool, inputs = [], []
        for k, v in enumerate(node.inputs):
            is_axis = isinstance(node.op, Join) and k == 0 and v.type.ndim == 0
            if is_axis or not (several or k < count):
                inputs.append(self.value(v))
                continue
            codes = self.of(v)
            size = int(np.prod(codes.shape[:-1]))
            inputs.append(np.arange(begin, begin + size).reshape(codes.shape[:-1]))
            pool.append(codes.reshape(-1, 2))
            begin += size
        all_of_them = np.concatenate(pool)
        found = performed(node, inputs)
        return [all_of_them[np.asarray(each).astype(np.intp)] for each in found]

    def _label(self, what: Any) -> int:
        return self._labels.setdefault(what, len(self._labels) + 1)

    def _anew(self, shape: tuple[int, ...]) -> Bits:
        """Codes like no others."""
        size = int(np.prod(shape))
        label = self._label(object())
        return _combined(label, np.arange(size, dtype=np.uint64)[:, None] * LANES).reshape(
            *shape, 2
        )

    def _of_constant(self, value: Any) -> Bits:
        """Bits of a number."""
        if value.dtype.kind == "f":
            bits = np.ascontiguousarray(value, dtype=np.float64).view(np.uint64)
        elif value.dtype.kind in "iub":
            bits = value.astype(np.int64).view(np.uint64)
        else:
            return self._anew(value.shape)
        label = self._label(("constant", value.dtype.kind))
        return _combined(label, bits.reshape(value.shape)[..., None] * LANES)
