"""Why a Gaussian variable is a hyper-parameter after all: what its predictor looks like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm

from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.op import RandomVariable

from pymc_lgm.model.compiling import shape_of
from pymc_lgm.model.elements import distinct_elements
from pymc_lgm.model.latents import Latent, is_process
from pymc_lgm.model.reads import MOST

__all__ = [
    "MOST_LEFT",
    "discrete_in",
    "elements_of",
    "is_many",
    "name_of",
    "shared_in",
    "single_in",
]

Variable = Any

MOST_LEFT = 12
"""Elements of Gaussian vectors that may be hyper-parameters without being named."""


def elements_of(rv: Variable) -> int:
    """How many elements a random variable has."""
    return int(np.prod(shape_of(rv)))


def is_many(rv: Variable) -> bool:
    """Whether a variable has more elements than hyper-parameters may have without being named."""
    return elements_of(rv) > MOST_LEFT


def discrete_in(model: pm.Model, frontier: Sequence[Variable]) -> str | None:
    """Name a discrete free variable that the linear predictor reads, if there is one."""
    reads = set(ancestors(frontier, blockers=model.basic_RVs))
    discrete = [model.values_to_rvs[value] for value in model.discrete_value_vars]
    found = [rv.name for rv in discrete if rv in reads]
    return found[0] if found else None


def name_of(node: Any) -> str:
    """What a node of the graph is called by who wrote the model, or what it does."""
    return next((v.name for v in node.outputs if v.name), str(node.op))


def single_in(
    terms: Sequence[Variable], frontier: Sequence[Variable], of_node: dict[Variable, Variable]
) -> dict[Variable, str]:
    """Latents, but no processes, of a predictor that is one number, and what reads that number.

    If densities read that number alone, as a constraint on the sum of effects, it makes none of
    those latents a hyper-parameter that are many, or that another predictor is made of, too.
    """
    single = [v for v in frontier if all(v.type.broadcastable)]
    others = set(ancestors([v for v in frontier if v not in single]))
    found: dict[Variable, str] = {}
    for v in single:
        own = {x: of_node[x] for x in ancestors([v]) if x in of_node}
        own = {x: rv for x, rv in own.items() if not is_process(rv)}
        reading = [term for term in terms if v in set(ancestors([term], blockers=frontier))]
        if not any(_reads_more(term, frontier) for term in reading):
            own = {x: rv for x, rv in own.items() if not (x in others or is_many(rv))}
        found |= dict.fromkeys(own.values(), str(reading[0].name))
    return found


def _reads_more(term: Variable, frontier: Sequence[Variable]) -> bool:
    """Whether a density reads more than one predictor."""
    return len(set(ancestors([term], blockers=frontier)).intersection(frontier)) > 1


def shared_in(
    terms: Sequence[Variable], frontier: Sequence[Variable], latents: Sequence[Latent]
) -> list[Variable]:
    """Latents, but no processes, whose elements many observations read beside others of f.

    A log standard deviation of each of two groups, say: all observations of a group, with what is
    the mean of each, would be one set.
    """
    found: dict[Variable, None] = {}
    for term in terms:
        read = [v for v in frontier if v in set(ancestors([term], blockers=frontier))]
        shared = [v for v in read if _is_shared(v, latents)] if len(read) > 1 else []
        if len(shared) < len(read):
            nodes = set(ancestors(shared))
            found |= {latent.rv: None for latent in latents if latent.node in nodes}
    return list(found)


def _is_shared(predictor: Variable, latents: Sequence[Latent]) -> bool:
    """Whether too many elements of a predictor without a process are the same expression."""
    within = set(ancestors([predictor]))
    if any(latent.node in within for latent in latents if latent.variances is None):
        return False
    drawn = [v for v in within if isinstance(v.owner and v.owner.op, RandomVariable)]
    moving = {v: v.type() for v in drawn}  # nothing is drawn: a flat prior has no draw
    values = {moving[v]: np.zeros(shape_of(v)) for v in drawn}
    output = clone_replace(predictor.ravel(), moving, rebuild_strict=False)
    _, index = distinct_elements(output, list(values), values)
    return int(np.bincount(index).max(initial=0)) >= MOST
