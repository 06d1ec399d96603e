"""Find from the graph of a linear predictor c + A x which columns of A have factors in theta.

In a non-centered model a latent variable is multiplied by its scale: ``sigma * z[group]``, or
``phi @ (z * sqrt_psd)`` of an HSGP. Then A(theta) = A' diag(s(theta)), and A' often does not depend
on theta: it is computed once, and only s at each theta.

A factor can be left out if it multiplies linear functions of x, without a constant term, if each
element of x enters functions with the same number alone, and if nothing reads those elements in
another way. The columns of a matrix may have the factors, too: ``(phi * sqrt_psd) @ z``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import reduce
from operator import mul
from typing import Any, NamedTuple

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt

from numpy.typing import NDArray
from pytensor.graph.basic import Apply
from pytensor.graph.replace import clone_replace
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import Dot

from pymc_lgm.compile.graphs.nodes import function_of
from pymc_lgm.linalg import Array
from pymc_lgm.model.columns import columns_move
from pymc_lgm.model.operations import (
    Variable,
    carried,
    core_of,
    depending,
    is_affine,
    moved,
    number_of,
)
from pymc_lgm.model.reads import Evaluation, reads_of

__all__ = ["Scales", "scales_of"]

Index = NDArray[np.intp]


class Scales(NamedTuple):
    """c + A x = c + A' (s ∘ x).

    Attributes
    ----------
    output : variable
        c + A' x, a graph of x and theta.
    scaled : ndarray of int, shape (K,)
        The elements of x that have a factor, or none; s is 1 for the others.
    factors : variable
        s of these elements, a vector (K,).
    """

    output: Variable
    scaled: Index
    factors: Variable

    def of(self, part: slice) -> Variable | None:
        """s of a part of x; ``None`` if it has no factor."""
        inside = (self.scaled >= part.start) & (self.scaled < part.stop)
        if not inside.any():
            return None
        at, size = self.scaled[inside] - part.start, part.stop - part.start
        return _spread(self.factors[np.flatnonzero(inside)], at, size)


def scales_of(
    output: Variable,
    x: Variable,
    parts: Sequence[slice],
    moving: Sequence[Variable],
    values: Mapping[Variable, Array],
) -> Scales:
    """Leave out the factors in theta of the parts of x that depend on theta by these alone.

    Parameters
    ----------
    output : variable
        c + A x, found to be affine by `pymc_lgm.model.affine`.
    x, parts, moving
        As in `pymc_lgm.model.columns.columns_move`.
    values : mapping
        Values of x, theta and variables of other steps, at which the graph can be computed.

    Examples
    --------
    >>> import numpy as np
    >>> import pytensor.tensor as pt
    >>> x, theta = pt.vector("x", shape=(4,)), pt.scalar("theta")
    >>> eta = theta * x[:2] + pt.exp(x[2:4] * theta)[0]
    >>> parts, values = [slice(0, 2), slice(2, 4)], {x: np.zeros(4), theta: np.ones(())}
    >>> scales_of(theta * x[:2] + x[2:4], x, parts, [theta], values).scaled
    array([0, 1])
    >>> scales_of(theta * x[:2] + x[1:3], x, parts, [theta], values).scaled
    array([], dtype=int64)
    """
    nothing = Scales(output, np.zeros(0, dtype=np.intp), pt.zeros(0))
    if not any(columns_move(output, x, parts, moving)):
        return nothing
    at = Evaluation([output], values)
    (output,) = at.outputs
    found = [each for each in _factors(at, x, moving) if _is_only_reader(each, output, x, values)]
    while found:
        without = _without(output, found)
        move = columns_move(without, x, parts, moving)
        steady = [part for part, moves in zip(parts, move, strict=True) if not moves]
        inside = np.concatenate([np.zeros(0, dtype=np.intp), *(np.r_[part] for part in steady)])
        kept = [each for each in found if np.isin(each.elements, inside).all()]
        if len(kept) == len(found):
            index, factors = _total(found)
            zero = {x: pt.zeros(x.type.shape)}  # a factor may have the shape of x, as ones_like has
            return Scales(without, index, clone_replace(factors, zero, rebuild_strict=False))
        found = kept  # parts that still depend on theta have their factors back
    return nothing


class _Factor(NamedTuple):
    """A product with a factor in theta.

    Attributes
    ----------
    node : Apply
        The multiplication.
    without : variable
        Its result without the factor.
    factor : variable
    elements, of_factor : ndarray of int
        The elements of x that are multiplied, and by which element of the factor each is.
    """

    node: Apply[Any, Any]
    without: Variable
    factor: Variable
    elements: Index
    of_factor: Index


def _without(output: Variable, found: Sequence[_Factor]) -> Variable:
    """The predictor without these factors. One of them may multiply the product of another."""
    left = dict[Variable, Variable]()
    for each in found:  # in the order of the graph
        without = clone_replace(each.without, left, rebuild_strict=False)
        left[each.node.outputs[0]] = without
    return clone_replace(output, left, rebuild_strict=False)


def _total(found: Sequence[_Factor]) -> tuple[Index, Variable]:
    """The elements of x that have a factor, and the product of the factors of each."""
    index = np.unique(np.concatenate([each.elements for each in found]))
    of_each = [
        _spread(
            each.factor.ravel()[each.of_factor].astype("float64"),
            np.searchsorted(index, each.elements),
            index.size,
        )
        for each in found
    ]
    return index, reduce(mul, of_each)


def _spread(factors: Variable, at: Index, size: int) -> Variable:
    """A vector with these factors, in ascending order of their places, and ones elsewhere."""
    return factors if at.size == size else pt.ones(size)[at].set(factors)


def _factors(at: Evaluation, x: Variable, moving: Sequence[Variable]) -> list[_Factor]:
    """All products of a linear function of x and one variable that depends on theta alone."""
    (output,) = at.outputs
    on_x, on_theta = depending([output], [x]), depending([output], moving)
    linear = _linear(output, x, on_x)
    found = []
    for node in at.nodes:
        parts = _of_product(node, on_x, on_theta) or _of_dot(at, node, on_x, on_theta)
        if parts is None or parts[0] not in linear:
            continue
        v, factor, without = parts
        which = _multiplied(at, x, v, factor)
        if which is not None:
            found.append(_Factor(node, without, factor, *which))
    return found


_Parts = tuple[Variable, Variable, Variable] | None
"""A function of x, its factor, and the result of the operation without the factor."""


def _of_product(
    node: Apply[Any, Any], on_x: Collection[Variable], on_theta: Collection[Variable]
) -> _Parts:
    """The parts of an elementwise product."""
    if not isinstance(function_of(node.outputs[0]), ps.Mul):
        return None
    of_x = [v for v in node.inputs if v in on_x]
    factors = [v for v in node.inputs if v in on_theta and v not in on_x]
    if len(of_x) != 1 or len(factors) != 1:
        return None
    rest = [v for v in node.inputs if v is not factors[0]]
    return of_x[0], factors[0], rest[0] if len(rest) == 1 else node.op(*rest)


def _of_dot(
    at: Evaluation,
    node: Apply[Any, Any],
    on_x: Collection[Variable],
    on_theta: Collection[Variable],
) -> _Parts:
    """The parts of (M ∘ s) V, a product of matrices, where each column of M has its factor s."""
    if not isinstance(core_of(node.op), Dot):
        return None
    left, V = node.inputs
    if left in on_x or V not in on_x or not isinstance(function_of(left), ps.Mul):
        return None
    factors = [v for v in left.owner.inputs if v in on_theta]
    rest = [v for v in left.owner.inputs if v not in on_theta]
    if left.ndim != 2 or len(factors) != 1 or len(rest) != 1 or at.shape(factors[0])[0] != 1:
        return None
    if at.shape(rest[0]) != at.shape(left):
        return None
    factor = factors[0].ravel() if V.ndim == 1 else factors[0].T
    return V, factor, node.op(rest[0], V)


def _multiplied(
    at: Evaluation, x: Variable, v: Variable, factor: Variable
) -> tuple[Index, Index] | None:
    """The elements of x in v, and the element of the factor that multiplies each.

    ``None`` if there are two for one element of x, or if the factor has more elements than v.
    """
    both = Evaluation([v, factor], at.inputs)
    v, factor = both.outputs
    shape = both.shape(factor)
    if np.broadcast_shapes(both.shape(v), shape) != both.shape(v):
        return None
    (reads, _) = reads_of(both, x, most=int(np.size(at.inputs[x])))
    numbers = np.arange(int(np.prod(shape, dtype=np.intp))).reshape(shape)
    of_v = np.broadcast_to(numbers, both.shape(v)).ravel()
    rows = np.repeat(of_v, np.diff(reads.pattern.indptr))
    elements, of_factor = np.unique(np.stack([reads.pattern.indices, rows]), axis=1).astype(np.intp)
    is_one_each = elements.size == np.unique(elements).size > 0
    return (elements, of_factor) if is_one_each else None


def _linear(output: Variable, x: Variable, on_x: Collection[Variable]) -> set[Variable]:
    """The variables that are linear in x, without a constant term: they are 0 if x is."""

    def rule(node: Apply[Any, Any], facts: list[bool | None]) -> bool:
        dependent = [v in on_x for v in node.inputs]
        op = core_of(node.op)
        count = moved(op, node.inputs)
        is_sum = isinstance(op, Elemwise) and not isinstance(op.scalar_op, ps.Mul | ps.TrueDiv)
        # Only zeros may be added to elements of x, or put beside them.
        beside = node.inputs[:count] if count else node.inputs if is_sum else []
        others = (v for v in beside if v not in on_x)
        linear = all(fact for fact, on in zip(facts, dependent, strict=True) if on)
        return linear and is_affine(node, dependent) and all(number_of(v) == 0.0 for v in others)

    return {v for v, linear in carried([output], {x: True}, rule).items() if linear}


def _is_only_reader(
    each: _Factor, output: Variable, x: Variable, values: Mapping[Variable, Array]
) -> bool:
    """Whether the predictor reads the elements of x that have the factor by its product alone."""
    product = each.node.outputs[0]
    nothing = pt.zeros(each.without.shape)
    without = clone_replace(output, {product: nothing}, rebuild_strict=False)
    (reads,) = reads_of(Evaluation([without], values), x, most=int(np.size(values[x])))
    return not np.isin(reads.pattern.indices, each.elements).any()
