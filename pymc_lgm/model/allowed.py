"""Parameters that a density allows: a rate that is not negative, a standard deviation above zero.

PyMC checks all elements of a parameter at once, and a log density is −∞ in each element if the
check fails. For rows of f that would be wrong: a row with a parameter that is not allowed must not
make the density of other rows −∞. So a check is done by elements here, if it is one of elements.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt

from pymc.logprob.utils import CheckParameterValue
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.traversal import toposort
from pytensor.tensor.basic import Alloc, Join, MakeVector, ScalarFromTensor
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import All, Sum
from pytensor.tensor.shape import Reshape, SpecifyShape

__all__ = ["in_rows"]

Variable = Any


def in_rows(outputs: Any, x: Variable, rows: Variable) -> Any:
    """Outputs that are functions of a vector x, of each row of a matrix.

    Parameters
    ----------
    outputs : variable or list of variable
    x, rows : variable

    Returns
    -------
    variable or list of variable
        With an axis of rows before their own.
    """
    several = isinstance(outputs, list)
    made = vectorize_graph(by_elements(outputs if several else [outputs]), {x: rows})
    return made if several else made[0]


def by_elements(outputs: Sequence[Variable]) -> list[Variable]:
    """The same densities, each of whose elements is −∞ if its own parameters are not allowed.

    A check of what has no element for each element of the density is one of all. So is a check of a
    density that is not only added up, such as that of a component of a mixture: a mixture is finite
    without the component, and PyMC leaves the component out of all elements or of none.
    """
    known: dict[Variable, Variable] = {}
    nodes = list(toposort(outputs))
    added = _only_added(nodes, outputs)
    for node in nodes:
        inputs = [known.get(v, v) for v in node.inputs]
        if isinstance(node.op, CheckParameterValue) and node.op.can_be_replaced_by_ninf:
            known[node.outputs[0]] = _switched(*inputs, by_elements=node.outputs[0] in added)
        elif any(new is not old for new, old in zip(inputs, node.inputs, strict=True)):
            made = node.clone_with_new_inputs(inputs)
            known |= zip(node.outputs, made.outputs, strict=True)
    return [known.get(v, v) for v in outputs]


def _only_added(nodes: Sequence[Any], outputs: Sequence[Variable]) -> set[Variable]:
    """Variables that outputs only add up: if one is −∞, so is an output."""
    used: set[Variable] = set()  # in another way
    for node in reversed(nodes):
        is_used = not used.isdisjoint(node.outputs)
        used.update(v for i, v in enumerate(node.inputs) if is_used or not _adds(node.op, i))
    return {v for node in nodes for v in node.outputs} - used


def _adds(op: Any, i: int) -> bool:
    """Whether an operation has −∞ wherever its i-th input has it."""
    if isinstance(op, Elemwise):
        return isinstance(op.scalar_op, ps.Add | ps.Identity | ps.Cast) or (
            isinstance(op.scalar_op, ps.Sub) and i == 0
        )
    shapes = Alloc | DimShuffle | Reshape | SpecifyShape
    return isinstance(op, Join) or (i == 0 and isinstance(op, CheckParameterValue | Sum | shapes))


def _switched(value: Variable, *conditions: Variable, by_elements: bool) -> Variable:
    elements = _elementwise(value)
    for condition in (part for each in conditions for part in _conditions(each)):
        is_own = by_elements and _read_in(condition, elements)
        is_own = is_own and condition.type.ndim <= value.type.ndim
        allowed = condition if is_own else pt.all(condition)
        value = pt.switch(allowed, value, -np.inf).astype(value.dtype)
    return value


def _conditions(condition: Variable) -> Iterator[Variable]:
    """Conditions that hold for all elements if a condition does, as PyMC writes it."""
    while condition.owner is not None and isinstance(condition.owner.op, ScalarFromTensor):
        (condition,) = condition.owner.inputs
    if condition.owner is None or not isinstance(condition.owner.op, All):
        yield condition
        return
    (inner,) = condition.owner.inputs
    if inner.owner is not None and isinstance(inner.owner.op, MakeVector):
        for each in inner.owner.inputs:
            yield from _conditions(each)
    else:
        yield inner


def _elementwise(value: Variable) -> set[Variable]:
    """Variables whose elements go with those of a value: none but elementwise operations between.

    Axes are added before the others only, so elements stay where they are.
    """
    found, left = {value}, [value]
    while left:
        v = left.pop()
        if v.owner is None or not _keeps_places(v.owner.op):
            continue
        left += [x for x in v.owner.inputs if x not in found]
        found.update(v.owner.inputs)
    return found


def _read_in(condition: Variable, elements: set[Variable]) -> bool:
    """Whether a condition is elementwise one of these variables, and of numbers."""
    if condition in elements or condition.type.ndim == 0 or all(condition.type.broadcastable):
        return True
    if condition.owner is None or not _keeps_places(condition.owner.op):
        return False
    return all(_read_in(x, elements) for x in condition.owner.inputs)


def _keeps_places(op: Any) -> bool:
    if not isinstance(op, DimShuffle):
        return isinstance(op, Elemwise)
    added = len(op.new_order) - op.input_ndim
    return op.new_order == ("x",) * added + tuple(range(op.input_ndim))
