"""Find equal elements of a linear predictor from its graph, without evaluating it.

Two elements are equal if they are the same expression: the same operations on the same elements of
theta and x, and on constants that are equal bit for bit. The elements of a result of an operation
without a rule here are different from all others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.scalar as ps

from numpy.typing import NDArray
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.elemwise import CAReduce, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import Dot

from pymc_lgm.model.operations import SETTING, Variable, core_of, moved, sources
from pymc_lgm.model.reads import Evaluation

__all__ = ["distinct_elements"]

Bits = NDArray[np.uint64]
"""Codes of 128 bits, one per expression, with a last axis of two."""


def distinct_elements(at: Evaluation) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Find the elements of a vector that are different expressions.

    Parameters
    ----------
    at : Evaluation
        The vector is its output. Its inputs are theta, x, and variables of other steps, or some of
        them; others count as constants.

    Returns
    -------
    first, index : ndarray of int
        The first position of each expression, and the number of each element's expression.

    Examples
    --------
    >>> import numpy as np
    >>> import pytensor.tensor as pt
    >>> from pymc_lgm.model.reads import Evaluation
    >>> theta = pt.vector("theta", shape=(2,))
    >>> eta = theta[[0, 1, 0, 0]] * np.array([1.0, 1.0, 1.0, 2.0])
    >>> first, index = distinct_elements(Evaluation([eta], {theta: np.zeros(2)}))
    >>> first.tolist(), index.tolist()
    ([0, 1, 3], [0, 1, 0, 2])
    """
    codes = _Codes(at).of(at.outputs[0])
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

    def __init__(self, at: Evaluation):
        self._at = at
        self._labels: dict[Any, int] = {}
        self._codes = {v: self._anew(np.shape(value)) for v, value in at.inputs.items()}
        for node in at.nodes:
            self._codes |= zip(node.outputs, self._made(node), strict=True)

    def of(self, v: Variable) -> Bits:
        """The code of each element of a variable."""
        if v not in self._codes:
            self._codes[v] = self._of_constant(np.asarray(self._at.value(v)))
        return self._codes[v]

    def _made(self, node: Any) -> list[Bits]:
        op = node.op
        if count := moved(op, node.inputs):
            is_sum = isinstance(op, SETTING) and not op.set_instead_of_inc
            is_fixed = self._at.moving.isdisjoint(node.inputs[count:])
            if is_sum or not (is_fixed or isinstance(op, CheckAndRaise)):
                return self._others(node)
            pool = np.concatenate([self.of(v).reshape(-1, 2) for v in node.inputs[:count]])
            return [pool[each] for each in sources(node, self._at.shape, self._at.value)]
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
        if not isinstance(core_of(op), Dot):
            return self._others(node)
        left, right = inputs
        rows = _along(left, left.ndim - 2).sum(axis=-2, dtype=np.uint64)
        columns = _along(right, right.ndim - 3).sum(axis=-3, dtype=np.uint64)
        return [_combined(self._label(op), rows[..., :, None, :], columns[..., None, :, :])]

    def _others(self, node: Any) -> list[Bits]:
        """The codes of the results of an operation without a rule."""
        return [self._anew(self._at.shape(v)) for v in node.outputs]

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
