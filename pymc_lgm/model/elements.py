"""Find equal elements of a linear predictor from its graph, without evaluating it.

Two elements are equal if they are the same expression: the same operations on the same elements of
theta and x, and on constants that are equal bit for bit. The elements of a result of an operation
without a rule here are different from all others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytensor.scalar as ps

from numpy.typing import NDArray
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import toposort
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.elemwise import CAReduce, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import Dot

from pymc_lgm.compile.graphs.functions import called_once
from pymc_lgm.linalg import Array
from pymc_lgm.model.operations import SETTING, core_of, depending, moved, sources

__all__ = ["distinct_elements"]

Variable = Any
Bits = NDArray[np.uint64]
"""Codes of 128 bits, one per expression, with a last axis of two."""


def distinct_elements(
    output: Variable, moving: Sequence[Variable], values: Mapping[Variable, Array]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Find the elements of a vector that are different expressions.

    Parameters
    ----------
    output : variable
        A vector.
    moving : sequence of variable
        The inputs of ``output``: theta, x, and variables of other steps. Others count as constants.
    values : mapping
        A value of each input, which determines the shapes.

    Returns
    -------
    first, index : ndarray of int
        The first position of each expression, and the number of each element's expression.

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
    codes = _Codes(output, moving, values).of(output)
    _, first, inverse = np.unique(
        codes.reshape(-1, 2), axis=0, return_index=True, return_inverse=True
    )
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(order.size)
    return first[order], rank[inverse.ravel()]


def _mixed(x: Bits) -> Bits:
    """A bijection by which each of 64 bits changes all (Steele, Lea and Flood 2014, SplitMix)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    result: Bits = x ^ (x >> np.uint64(31))
    return result


LANES = np.array([0x9E3779B97F4A7C15, 0xD1B54A32D192ED03], dtype=np.uint64)
"""Odd multipliers that make the two halves of a code independent."""


def _combined(label: int, *codes: Bits) -> Bits:
    """The code of an operation on expressions in this order."""
    total = _mixed(np.uint64(label + 1) * LANES)
    for each in codes:
        total = _mixed(total * np.uint64(3) + each * LANES)
    return total


def _along(codes: Bits, axis: int) -> Bits:
    """Codes mixed with their positions along an axis, so that sums of them depend on the order."""
    shape = [1] * codes.ndim
    shape[axis] = codes.shape[axis]
    place: Bits = np.arange(1, codes.shape[axis] + 1, dtype=np.uint64).reshape(shape)
    return _mixed(codes + place * LANES)


class _Codes:
    """The code of each element of the variables of a graph."""

    def __init__(
        self,
        output: Variable,
        moving: Sequence[Variable],
        values: Mapping[Variable, Array],
    ):
        self._moves = depending([output], moving)
        self._labels: dict[Any, int] = {}
        self._codes: dict[Variable, Bits] = {}
        for v in moving:
            self._codes[v] = self._anew(np.shape(values[v]))
        nodes, given = self._followed(output)
        # A shared variable has its value, and is not an argument of a compiled function.
        inputs = [v for v in moving if not isinstance(v, SharedVariable)]
        known = called_once(inputs, list(given))
        with np.errstate(all="ignore"):
            self._values = dict(zip(given, known(*(values[v] for v in inputs)), strict=True))
        for v in given:
            if v in self._moves:  # the operation has no rule, so only the shape is used
                self._codes[v] = self._anew(np.shape(self._values[v]))
        for node in nodes:
            made = self._made(node)
            self._codes |= zip(node.outputs, made, strict=True)

    def of(self, v: Variable) -> Bits:
        """The code of each element of a variable."""
        if v not in self._codes:
            self._codes[v] = self._of_constant(np.asarray(self.value(v)))
        return self._codes[v]

    def value(self, v: Variable) -> Any:
        """The value of a variable that does not depend on the inputs."""
        return v.data if isinstance(v, Constant) else self._values[v]

    def _followed(self, output: Variable) -> tuple[list[Any], list[Variable]]:
        """Nodes that have a rule, in order, and variables whose values these nodes need."""
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
        if count := moved(op, node.inputs):
            if isinstance(op, SETTING) and not op.set_instead_of_inc:
                return False
            return isinstance(op, CheckAndRaise) or self._moves.isdisjoint(node.inputs[count:])
        return isinstance(op, Elemwise | CAReduce | CumOp) or isinstance(core_of(op), Dot)

    def _made(self, node: Any) -> list[Bits]:
        op = node.op
        if count := moved(op, node.inputs):
            pool = np.concatenate([self.of(v).reshape(-1, 2) for v in node.inputs[:count]])
            found = sources(node, lambda v: self.of(v).shape[:-1], self.value)
            return [pool[each] for each in found]
        inputs = [self.of(v) for v in node.inputs]
        if isinstance(op, Elemwise):
            if isinstance(op.scalar_op, ps.Second):
                shape = np.broadcast_shapes(*(each.shape for each in inputs))
                return [np.broadcast_to(inputs[1], shape)]
            # Inputs have as many axes as the result. The last axis is that of the code.
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
        columns = _along(right, right.ndim - 3).sum(axis=-3, dtype=np.uint64)
        return [_combined(self._label(op), rows[..., :, None, :], columns[..., None, :, :])]

    def _label(self, what: Any) -> int:
        return self._labels.setdefault(what, len(self._labels) + 1)

    def _anew(self, shape: tuple[int, ...]) -> Bits:
        """New codes, different from all others."""
        size = int(np.prod(shape))
        label = self._label(object())
        return _combined(label, np.arange(size, dtype=np.uint64)[:, None] * LANES).reshape(
            *shape, 2
        )

    def _of_constant(self, value: Any) -> Bits:
        """The codes of a constant's elements, from their bits."""
        if value.dtype.kind == "f":
            bits = np.ascontiguousarray(value, dtype=np.float64).view(np.uint64)
        elif value.dtype.kind in "iub":
            bits = value.astype(np.int64).view(np.uint64)
        else:
            return self._anew(value.shape)
        label = self._label(("constant", value.dtype.kind))
        return _combined(label, bits.reshape(value.shape)[..., None] * LANES)
