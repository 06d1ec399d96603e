"""Log densities of many rows of f at once, with PyMC's checks of parameters done row by row.

A density may not allow a parameter, such as a negative rate. PyMC then makes the log density −∞:
it checks all elements of a parameter at once, and a single one that fails makes every element −∞.
With one row of f the sum is −∞ either way. With several rows, one bad row would make the density of
all others −∞, and an importance estimate of the evidence too small. `in_rows` therefore replaces
PyMC's check by an elementwise switch wherever the condition has the elements of the density.
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
from pytensor.tensor.basic import Join, MakeVector, ScalarFromTensor
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import All, Sum

from pymc_lgm.compile.graphs.nodes import op_of
from pymc_lgm.model.operations import SHAPING, Variable

__all__ = ["in_rows"]


def in_rows(outputs: Any, x: Variable, rows: Variable) -> Any:
    """Graphs of a vector x, one or a list, at each row of a matrix: an axis before their own."""
    several = isinstance(outputs, list)
    made = vectorize_graph(by_elements(outputs if several else [outputs]), {x: rows})
    return made if several else made[0]


def by_elements(outputs: Sequence[Variable]) -> list[Variable]:
    """The same densities, in which an element is −∞ if its own parameters are not allowed.

    A check stays one of all elements in two cases. The first is a condition whose elements are not
    those of the density, such as one on the probabilities of a multinomial. The second is a density
    that the outputs do more with than add it, such as a component of a mixture: a mixture is finite
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
    otherwise: set[Variable] = set()  # used in any other way, itself or its result
    for node in reversed(nodes):
        is_used = not otherwise.isdisjoint(node.outputs)
        otherwise.update(v for i, v in enumerate(node.inputs) if is_used or not _adds(node.op, i))
    return {v for node in nodes for v in node.outputs} - otherwise


def _adds(op: Any, i: int) -> bool:
    """Whether the result of an operation is −∞ wherever its i-th input is, all others finite."""
    if isinstance(op, Elemwise):
        return isinstance(op.scalar_op, ps.Add | ps.Identity | ps.Cast) or (
            isinstance(op.scalar_op, ps.Sub) and i == 0
        )
    arranged = (*SHAPING, DimShuffle, CheckParameterValue, Sum)
    return isinstance(op, Join) or (i == 0 and isinstance(op, arranged))


def _switched(value: Variable, *conditions: Variable, by_elements: bool) -> Variable:
    """The value, and −∞ if a condition fails: by elements if asked and if it has elements."""
    aligned = _aligned_with(value)
    for condition in (part for each in conditions for part in _conditions(each)):
        has_elements = by_elements and _is_function_of(condition, aligned)
        has_elements = has_elements and condition.type.ndim <= value.type.ndim
        allowed = condition if has_elements else pt.all(condition)
        value = pt.switch(allowed, value, -np.inf).astype(value.dtype)
    return value


def _conditions(condition: Variable) -> Iterator[Variable]:
    """The conditions c of PyMC's check, which is all([all(c_1), all(c_2), …])."""
    while isinstance(op_of(condition), ScalarFromTensor):
        (condition,) = condition.owner.inputs
    if not isinstance(op_of(condition), All):
        yield condition
        return
    (inner,) = condition.owner.inputs
    if isinstance(op_of(inner), MakeVector):
        for each in inner.owner.inputs:
            yield from _conditions(each)
    else:
        yield inner


def _aligned_with(value: Variable) -> set[Variable]:
    """Variables from which elementwise operations compute a value, element i from element i.

    Broadcasting may add axes before the others, which leaves elements where they are.
    """
    found, left = {value}, [value]
    while left:
        v = left.pop()
        if not _keeps_places(op_of(v)):
            continue
        left += [x for x in v.owner.inputs if x not in found]
        found.update(v.owner.inputs)
    return found


def _is_function_of(condition: Variable, aligned: set[Variable]) -> bool:
    """Whether elementwise operations compute a condition from these variables and from scalars."""
    if condition in aligned or condition.type.ndim == 0 or all(condition.type.broadcastable):
        return True
    if not _keeps_places(op_of(condition)):
        return False
    return all(_is_function_of(x, aligned) for x in condition.owner.inputs)


def _keeps_places(op: Any) -> bool:
    """Whether an operation is elementwise, or only adds axes before the others."""
    if not isinstance(op, DimShuffle):
        return isinstance(op, Elemwise)
    added = len(op.new_order) - op.input_ndim
    return op.new_order == ("x",) * added + tuple(range(op.input_ndim))
