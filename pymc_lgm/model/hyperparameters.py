"""Why a Gaussian variable is a hyper-parameter after all: what its predictor looks like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pymc as pm

from pytensor.graph.traversal import ancestors

from pymc_lgm.model.latents import is_process

__all__ = ["discrete_in", "name_of", "single_in"]

Variable = Any


def discrete_in(model: pm.Model, frontier: Sequence[Variable]) -> str | None:
    """Name a discrete free variable that the linear predictor reads, if there is one."""
    reads = set(ancestors(frontier, blockers=model.basic_RVs))
    discrete = [model.values_to_rvs[value] for value in model.discrete_value_vars]
    found = [rv.name for rv in discrete if rv in reads]
    return found[0] if found else None


def name_of(node: Any) -> str:
    """What a node of the graph is called by who wrote the model, or what it does."""
    return next((v.name for v in node.outputs if v.name), str(node.op))


def single_in(frontier: Sequence[Variable], of_node: dict[Variable, Variable]) -> list[Variable]:
    """Latents, but no processes, of a predictor that is one number."""
    single = [v for v in frontier if all(v.type.broadcastable)]
    found = [of_node[v] for v in ancestors(single) if v in of_node]
    return [rv for rv in found if not is_process(rv)]
