"""Find from the graph of a linear predictor c + A x which columns of A have factors in theta.

In a non-centered model a latent variable is multiplied by its scale: ``sigma * z[group]``, or
``phi @ (z * sqrt_psd)`` of an HSGP. Then A(theta) = A' diag(s(theta)), and A' often does not depend
on theta: it is computed once, and only s at each theta.

A factor can be left out if it multiplies a linear function of x, without a constant term, and if
nothing reads those elements of x in another way. A number may multiply any such function. A vector
may multiply elements of x, each of them always by the same number.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from typing import Any, NamedTuple

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt

from numpy.typing import NDArray
from pytensor.graph.basic import Apply
from pytensor.graph.replace import clone_replace
from pytensor.tensor.elemwise import Elemwise

from pymc_lgm.linalg import Array
from pymc_lgm.model.columns import columns_move
from pymc_lgm.model.operations import (
    PICKING,
    Variable,
    carried,
    core_of,
    depending,
    function_of,
    is_affine,
    moved,
    number_of,
    sources,
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
        The elements of x that have a factor; s is 1 for the others.
    factors : variable
        s of these elements, a vector (K,).
    """

    output: Variable
    scaled: Index
    factors: Variable


def scales_of(
    output: Variable,
    x: Variable,
    parts: Sequence[slice],
    moving: Sequence[Variable],
    values: Mapping[Variable, Array],
) -> Scales | None:
    """Leave out the factors in theta of the parts of x that depend on theta by these alone.

    Parameters
    ----------
    output : variable
        c + A x, found to be affine by `pymc_lgm.model.affine`.
    x, parts, moving
        As in `pymc_lgm.model.columns.columns_move`.
    values : mapping
        Values of x, theta and variables of other steps, at which the graph can be computed.

    Returns
    -------
    Scales or None
        ``None`` if there are no such parts.

    Examples
    --------
    >>> import numpy as np
    >>> import pytensor.tensor as pt
    >>> x, theta = pt.vector("x", shape=(4,)), pt.scalar("theta")
    >>> eta = theta * x[:2] + pt.exp(x[2:4] * theta)[0]
    >>> parts, values = [slice(0, 2), slice(2, 4)], {x: np.zeros(4), theta: np.ones(())}
    >>> scales_of(theta * x[:2] + x[2:4], x, parts, [theta], values).scaled
    array([0, 1])
    >>> scales_of(theta * x[:2] + x[1:3], x, parts, [theta], values) is None
    True
    """
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
            return Scales(without, *_total(found))
        found = kept  # parts that still depend on theta have their factors back
    return None


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
    """The predictor without these factors, of which one may multiply the product of another."""
    left = dict[Variable, Variable]()
    for each in found:  # in the order of the graph
        without = clone_replace(each.without, left, rebuild_strict=False)
        left[each.node.outputs[0]] = without
    return clone_replace(output, left, rebuild_strict=False)


def _total(found: Sequence[_Factor]) -> tuple[Index, Variable]:
    """The elements of x that have a factor, and the product of the factors of each."""
    index = np.unique(np.concatenate([each.elements for each in found]))
    factors = pt.ones(index.size)
    for each in found:
        one = pt.ones(index.size)[np.searchsorted(index, each.elements)]
        factors = factors * one.set(each.factor.ravel()[each.of_factor].astype("float64"))
    return index, factors


def _factors(at: Evaluation, x: Variable, moving: Sequence[Variable]) -> list[_Factor]:
    """All products of a linear function of x and one variable that depends on theta alone."""
    (output,) = at.outputs
    on_x, on_theta = depending([output], [x]), depending([output], moving)
    linear = _linear(output, x, on_x)
    elements = _elements(at, x, on_theta)
    found = []
    for node in at.nodes:
        if not isinstance(function_of(node.outputs[0]), ps.Mul):
            continue
        of_x = [v for v in node.inputs if v in on_x]
        factors = [v for v in node.inputs if v in on_theta and v not in on_x]
        if len(of_x) != 1 or len(factors) != 1 or of_x[0] not in linear:
            continue
        (v,), (factor,) = of_x, factors
        rest = [each for each in node.inputs if each is not factor]
        shape = at.shape(node.outputs[0])
        if len(rest) != len(node.inputs) - 1 or shape != np.broadcast_shapes(*map(at.shape, rest)):
            continue
        which = _multiplied(at, x, v, factor, shape, elements)
        if which is not None:
            without = rest[0] if len(rest) == 1 else node.op(*rest)
            found.append(_Factor(node, without, factor, *which))
    return found


def _multiplied(
    at: Evaluation,
    x: Variable,
    v: Variable,
    factor: Variable,
    shape: tuple[int, ...],
    elements: Mapping[Variable, Index],
) -> tuple[Index, Index] | None:
    """The elements of x in v, and the element of the factor that multiplies each.

    ``None`` if there are two for one element of x, or if a vector multiplies sums of them.
    """
    size = int(np.prod(at.shape(factor), dtype=np.intp))
    if size == 1:
        (reads,) = reads_of(Evaluation([v], at.inputs), x, most=int(np.size(at.inputs[x])))
        index = np.unique(reads.pattern.indices).astype(np.intp)
        return (index, np.zeros_like(index)) if index.size else None
    if v not in elements:
        return None
    numbers = np.arange(size).reshape(at.shape(factor))
    both = [np.broadcast_to(each, shape).ravel() for each in (elements[v], numbers)]
    pairs = np.unique(np.stack(both), axis=1)
    index, of_factor = pairs
    return (index, of_factor) if index.size == np.unique(index).size > 0 else None


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


def _elements(at: Evaluation, x: Variable, on_theta: Set[Variable]) -> dict[Variable, Index]:
    """The variables that consist of elements of x: which, in the variable's shape."""
    known = {x: np.arange(int(np.size(at.inputs[x])))}
    for node in at.nodes:
        of_x = [v for v in node.inputs if v in known]
        others = [v for v in node.inputs if v not in known]
        if isinstance(node.op, PICKING) and of_x and on_theta.isdisjoint(others):
            pool = known[node.inputs[0]].ravel()
            places = sources(node, at.shape, at.value)
            known |= {v: pool[each] for v, each in zip(node.outputs, places, strict=True)}
            continue
        is_sum = isinstance(function_of(node.outputs[0]), ps.Add) and len(of_x) == 1
        if is_sum and all(number_of(v) == 0.0 for v in others):  # as of a mean
            shape = at.shape(node.outputs[0])
            known[node.outputs[0]] = np.broadcast_to(known[of_x[0]], shape)
    return known


def _is_only_reader(
    each: _Factor, output: Variable, x: Variable, values: Mapping[Variable, Array]
) -> bool:
    """Whether the predictor reads the elements of x that have the factor by its product alone."""
    product = each.node.outputs[0]
    nothing = pt.zeros(each.without.shape)
    without = clone_replace(output, {product: nothing}, rebuild_strict=False)
    (reads,) = reads_of(Evaluation([without], values), x, most=int(np.size(values[x])))
    return not np.isin(reads.pattern.indices, each.elements).any()
