"""Which elements of a linear predictor a density reads.

A model may pick after it has transformed, as in ``rate[seen]``: so PyMC itself writes a likelihood
of which some observations are missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt

from numpy.typing import NDArray
from pymc.distributions.distribution import PartialObservedRV
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor

from pymc_lgm.model.affine_graph import AffineGraph
from pymc_lgm.model.compiling import called_once
from pymc_lgm.model.forms.base import Setting
from pymc_lgm.model.reads import reads_of

__all__ = ["Picks", "has_picks", "read_one_by_one"]

Variable = Any

PICKS = Subtensor | AdvancedSubtensor | PartialObservedRV


def read_one_by_one(predictor: Variable, terms: Sequence[Variable]) -> Variable | None:
    """The one density that reads the predictor, if it reads elements one by one."""
    readers: list[Variable] = [term for term in terms if predictor in set(ancestors([term]))]
    if len(readers) != 1 or predictor.ndim != 1:
        return None
    reached = {predictor}
    for node in toposort(readers, blockers=[predictor]):
        # The size of a draw follows from the predictor's shape, not from its elements.
        if reached.isdisjoint(node.inputs) or isinstance(node.op, Shape | Shape_i):
            continue
        value = node.outputs[-1]
        one_by_one = isinstance(node.op, Elemwise) or getattr(node.op, "ndim_supp", 1) == 0
        if isinstance(node.op, Subtensor | AdvancedSubtensor):
            one_by_one = reached.isdisjoint(node.inputs[1:])
        if value.ndim != 1 or not one_by_one:
            return None
        reached.add(value)
    return readers[0]


class Picks(NamedTuple):
    """Elements of the predictor, one for each observation, and how many it has."""

    which: NDArray[np.intp]
    size: int

    def whole(self, eta: Variable) -> Variable:
        """The predictor, of what observations read of it; elements that none reads are zero."""
        # What is read twice is the same.
        return pt.zeros(self.size)[self.which].set(eta)

    @classmethod
    def of(cls, setting: Setting, graph: AffineGraph, reader: Variable) -> Picks | None:
        """Which element of the predictor each observation reads; ``None`` if it is not one."""
        (predictor,) = setting.reading.frontier
        whole, seen = reader, slice(None)
        if isinstance(reader.owner.op, PartialObservedRV):
            whole, missing = reader.owner.inputs
            seen = ~missing.data
        inputs = [v for v in whole.owner.inputs if predictor in set(ancestors([v]))]
        inputs = [v for v in inputs if v.dtype == predictor.dtype]
        if not inputs:
            return None
        once = called_once([graph.x, graph.theta], graph.raw)
        size = once(np.zeros(graph.x.type.shape[0]), setting.at).size
        eta = pt.vector("eta", shape=(size,))
        nodes = graph.nodes | {predictor: eta}
        (total,) = setting.place([sum(clone_replace(inputs, nodes, rebuild_strict=False))])
        values = {eta: np.linspace(0.1, 0.7, size), setting.theta: setting.at}
        values |= {v: v.get_value() for v in setting.others}
        (reads,) = reads_of([total], eta, values, most=1)
        return cls(reads.first[seen], size) if (reads.counts == 1).all() else None


def has_picks(predictor: Variable, reader: Variable) -> bool:
    """Whether a density reads elements of functions of the predictor."""
    picks = [
        node for node in toposort([reader], blockers=[predictor]) if isinstance(node.op, PICKS)
    ]
    return any(predictor in set(ancestors(node.inputs[:1])) for node in picks)
