"""Graphs that differ in constants alone, as one graph: what is compiled once serves all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pytensor.graph.basic import Constant
from pytensor.graph.rewriting.utils import rewrite_graph

__all__ = ["in_common", "simplified"]

Variable = Any


def simplified(graph: Variable) -> Variable:
    """A graph as PyTensor rewrites it before it compiles: of one input, a matrix product is none.

    What is differentiated after it has fewer operations, and they are rewritten once.
    """
    (result,) = rewrite_graph([graph], include=("canonicalize",))
    return result


def in_common(
    graphs: Sequence[Variable],
) -> tuple[Variable, list[Variable], list[list[Variable]]] | None:
    """Find the graph of which each is an instance.

    Processes that a loop has made are one graph, which reads other elements of theta in each.

    Parameters
    ----------
    graphs : sequence of variable
        At least one.

    Returns
    -------
    variable, list of variable, list of list of ndarray, or None
        The graph; its inputs, one for each place where the graphs have constants that differ; and
        the constants of each graph. ``None`` if they differ in more than constants.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> theta = pt.vector("theta")
    >>> graph, inputs, constants = in_common([theta[0] + 3.0, theta[1] + 3.0])
    >>> inputs, [[int(each) for each in row] for row in constants]
    ([<int64>], [[0], [1]])
    >>> in_common([theta[0] + 3.0, theta[0] * 3.0]) is None
    True
    """
    made: dict[tuple[Variable, ...], Variable] = {}
    holes: dict[tuple[Variable, ...], Variable] = {}

    def of(alike: tuple[Variable, ...]) -> Variable:
        """What these have in common, as a variable; ``None`` if nothing."""
        first = alike[0]
        if all(each is first for each in alike):
            return first
        if alike not in made:
            made[alike] = constant(alike) if isinstance(first, Constant) else applied(alike)
        return made[alike]

    def constant(alike: tuple[Variable, ...]) -> Variable:
        first = alike[0]
        if not all(isinstance(each, Constant) and each.type == first.type for each in alike):
            return None
        if all(np.array_equal(each.data, first.data, equal_nan=True) for each in alike):
            return first
        holes[alike] = first.type()
        return holes[alike]

    def applied(alike: tuple[Variable, ...]) -> Variable:
        nodes = [each.owner for each in alike]
        if any(node is None for node in nodes):
            return None
        first, same = nodes[0], alike[0].owner.outputs.index(alike[0])
        for node, each in zip(nodes, alike, strict=True):
            if node.op != first.op or len(node.inputs) != len(first.inputs):
                return None
            if node.outputs.index(each) != same or each.type != alike[0].type:
                return None
        inputs = [of(row) for row in zip(*(node.inputs for node in nodes), strict=True)]
        if any(each is None for each in inputs):
            return None
        return first.clone_with_new_inputs(inputs, strict=False).outputs[same]

    graph = of(tuple(graphs))
    if graph is None:
        return None
    constants = [[row[k].data for row in holes] for k in range(len(graphs))]
    return graph, list(holes.values()), constants
