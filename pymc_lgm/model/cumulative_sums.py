"""Walks that a model writes as cumulative sums of independent steps.

The elements of such a sum depend on all steps before them. The sums themselves have a sparse
precision, so x has the sums instead of the steps. `distributed` writes a predictor so that its
cumulative sums are of latent variables, and `cumulative_sums` finds these.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import pytensor.tensor as pt

from pytensor.graph.traversal import ancestors, toposort
from pytensor.scalar.basic import Add, Mul, Sub
from pytensor.tensor.basic import Join
from pytensor.tensor.extra_ops import CumOp

from pymc_lgm.compile.graphs.nodes import function_of, op_of
from pymc_lgm.model.latents import Latent
from pymc_lgm.model.operations import Variable
from pymc_lgm.model.series import Series

__all__ = ["CumulativeSums", "cumulative_sums", "distributed"]


class CumulativeSums(NamedTuple):
    """The cumulative sums of a latent variable along one of its axes.

    In x the summed axis is the last one, so that each series is a run of elements.

    Attributes
    ----------
    axis : int
    later : list of tuple
        A pair for the first sum, for the sum of that, and so on: a factor that is the same along
        the axis, and the variable that is the factor times the sum.
    """

    axis: int
    later: list[tuple[Variable, Variable]]

    def of_flat(self, x: Variable, shape: tuple[int, ...]) -> Variable:
        """Elements of x in the latent's shape."""
        if len(shape) == 1:
            return x.reshape(shape)
        moved = [*shape[: self.axis], *shape[self.axis + 1 :], shape[self.axis]]
        return pt.moveaxis(x.reshape(tuple(moved)), -1, self.axis)

    def flat(self, v: Variable) -> Variable:
        """A variable of the latent's shape as elements of x."""
        return (v if v.ndim == 1 else pt.moveaxis(v, self.axis, -1)).ravel()

    def differences(self, v: Variable) -> Variable:
        """The variable whose cumulative sum is v."""
        v = pt.moveaxis(v, self.axis, 0)
        return pt.moveaxis(pt.concatenate([v[:1], v[1:] - v[:-1]]), 0, self.axis)


def distributed(predictor: Sequence[Variable], given: Collection[Variable] = ()) -> list[Variable]:
    """Write cumulative sums of sums as sums of cumulative sums.

    The sum of a + b becomes that of a plus that of b, a factor moves before it, and a first value
    [a, b, …] too: its sums are a and a + the sums of b, … The numbers are the same, to rounding.
    Variables in ``given``, random variables and latents, stay with all that they depend on.

    Examples
    --------
    >>> x = pt.vector("x")
    >>> (new,) = distributed([pt.cumsum(x + pt.cumsum(2.0 * x))])
    >>> new.eval({x: [1.0, 2.0, 3.0]})
    array([ 3., 11., 26.])
    """
    known: dict[Variable, Variable] = {}
    for node in toposort(predictor, blockers=list(given)):
        inputs = [known.get(v, v) for v in node.inputs]
        if (axis := _summed_axis(node.outputs[0])) is not None:
            known[node.outputs[0]] = _summed(inputs[0], axis)
        elif any(new is not old for new, old in zip(inputs, node.inputs, strict=True)):
            made = node.clone_with_new_inputs(inputs, strict=False)
            known |= zip(node.outputs, made.outputs, strict=True)
    return [known.get(v, v) for v in predictor]


def _summed(v: Variable, axis: int) -> Variable:
    """The cumulative sum of an array along an axis."""
    inputs = [] if v.owner is None else v.owner.inputs
    function = function_of(v)
    if isinstance(function, Add | Sub):
        parts = [x.astype(v.dtype) for x in inputs]
        parts = [pt.broadcast_to(x, v.shape) if x.type.broadcastable[axis] else x for x in parts]
        sums = [_summed(x, axis) for x in parts]
        return pt.add(*sums) if isinstance(function, Add) else pt.sub(*sums)
    if isinstance(function, Mul):
        arrays = [x for x in inputs if not x.type.broadcastable[axis]]
        factors = [x for x in inputs if x.type.broadcastable[axis]]
        if len(arrays) == 1 and factors and _is_written_otherwise(arrays[0], axis):
            return pt.mul(*factors) * _summed(arrays[0], axis)
    if _begins_with_one(v, axis):
        first, *rest = inputs
        after = rest[0] if len(rest) == 1 else pt.concatenate(rest, axis=axis)
        return pt.concatenate([first, first + _summed(after, axis)], axis=axis)
    return pt.cumsum(v, axis=axis)


def _is_written_otherwise(v: Variable, axis: int) -> bool:
    """Whether `_summed` writes the cumulative sum of an array in another way."""
    return isinstance(function_of(v), Add | Sub) or _begins_with_one(v, axis)


def _begins_with_one(v: Variable, axis: int) -> bool:
    """Whether an array is one element, or one row, before others along an axis."""
    if not isinstance(op_of(v), Join) or len(v.owner.inputs) < 2:
        return False
    is_along = v.owner.op.axis % v.ndim == axis
    return is_along and v.owner.inputs[0].type.shape[axis] == 1


def cumulative_sums(
    latents: Sequence[Latent], predictor: Sequence[Variable]
) -> dict[int, CumulativeSums]:
    """The cumulative sums that the predictor reads, for each latent of which x can have them."""
    summed: dict[tuple[Variable, int], tuple[Variable, Variable]] = {}
    for v in ancestors(predictor):
        axis = _summed_axis(v)
        if axis is not None and (found := _without_scale(v.owner.inputs[0], axis)) is not None:
            inner, factor = found
            summed.setdefault((inner, axis), (factor, v))
    of_latents = {}
    for k, latent in enumerate(latents):
        is_band = isinstance(latent.field, Series) and not latent.field.batch
        if latent.zero_sum is not None or latent.is_whitened:
            continue
        if latent.variances is None and not is_band:
            continue
        for axis in range(latent.node.ndim):
            chain: list[tuple[Variable, Variable]] = []
            node = latent.node
            total = pt.constant(1.0)
            while (node, axis) in summed:
                factor, node = summed[node, axis]
                total = total * factor
                chain.append((total, node))
            if chain:
                of_latents[k] = CumulativeSums(axis, chain)
                break
    return of_latents


def _summed_axis(v: Variable) -> int | None:
    """The axis of a cumulative sum; ``None`` for any other variable."""
    if not isinstance(op_of(v), CumOp) or v.owner.op.mode != "add":
        return None
    return int(v.owner.op.axis)


def _without_scale(v: Variable, axis: int) -> tuple[Variable, Variable] | None:
    """An array as a product of one array and of factors that are the same along an axis.

    Returns
    -------
    array, factor : variable
        The factor is 1 if v is no such product. ``None`` if the array has fewer elements than v.
    """
    inputs = v.owner.inputs if isinstance(function_of(v), Mul) else []
    arrays = [x for x in inputs if not x.type.broadcastable[axis]]
    if len(arrays) != 1:
        return v, pt.constant(1.0)
    (array,) = arrays
    if array.type.broadcastable != v.type.broadcastable:
        return None
    factors = [x.squeeze() if v.ndim == 1 else x for x in inputs if x is not array]
    return array, pt.mul(*factors) if len(factors) > 1 else factors[0]
