"""Gaussian variables that are better hyper-parameters, found from the predictors they enter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm

from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.op import RandomVariable

from pymc_lgm.compile.graphs.functions import shape_of
from pymc_lgm.model.columns import matrix_moves
from pymc_lgm.model.elements import distinct_elements
from pymc_lgm.model.latents import Latent, is_process
from pymc_lgm.model.reads import MOST, Evaluation

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
"""Most elements of Gaussian vectors that may be hyper-parameters without being named by users.

A choice that was not measured: the number of hyper-parameters above which no emulator of the
evidence is fitted, `MANY_HYPERPARAMETERS` of `pymc_lgm.approximations.emulator`.
"""


def elements_of(rv: Variable) -> int:
    """The number of elements of a random variable."""
    return int(np.prod(shape_of(rv)))


def is_many(rv: Variable) -> bool:
    """Whether a variable has more elements than hyper-parameters may have without being named."""
    return elements_of(rv) > MOST_LEFT


def discrete_in(
    model: pm.Model, frontier: Sequence[Variable], latents: Sequence[Latent]
) -> str | None:
    """Name a discrete free variable that a column of A depends on, if there is one.

    A variable that is only added to the latents enters c alone: a state of a mixture, say, or a
    count with a known effect.
    """
    nodes = [latent.node for latent in latents]
    discrete = [model.values_to_rvs[value] for value in model.discrete_value_vars]
    for rv in discrete:
        if matrix_moves(frontier, nodes, [rv], model.basic_RVs):
            return str(rv.name)
    return None


def name_of(node: Any) -> str:
    """The user's name of a node's result, or the node's operation."""
    return next((v.name for v in node.outputs if v.name), str(node.op))


def single_in(
    terms: Sequence[Variable], frontier: Sequence[Variable], of_node: dict[Variable, Variable]
) -> dict[Variable, str]:
    """Latents that are better hyper-parameters because one of their predictors is a single number.

    Returns each with the name of a density that reads this number. Processes are not among them. If
    the densities read no other predictor, as with a constraint on the sum of effects, neither are
    latents with many elements, nor latents that another predictor depends on.
    """
    single = [v for v in frontier if all(v.type.broadcastable)]
    others = set(ancestors([v for v in frontier if v not in single]))
    read = {term: _read_by(term, frontier) for term in terms}
    found: dict[Variable, str] = {}
    for v in single:
        own = {x: of_node[x] for x in ancestors([v]) if x in of_node}
        own = {x: rv for x, rv in own.items() if not is_process(rv)}
        reading = [term for term in terms if v in read[term]]
        if all(len(read[term]) == 1 for term in reading):
            own = {x: rv for x, rv in own.items() if not (x in others or is_many(rv))}
        found |= dict.fromkeys(own.values(), str(reading[0].name))
    return found


def _read_by(term: Variable, frontier: Sequence[Variable]) -> list[Variable]:
    """The predictors that a density reads."""
    above = set(ancestors([term], blockers=frontier))
    return [v for v in frontier if v in above]


def shared_in(
    terms: Sequence[Variable], frontier: Sequence[Variable], latents: Sequence[Latent]
) -> list[Variable]:
    """Latents, except processes, whose elements many observations read beside other elements of f.

    An example is a log standard deviation for each of two groups: it would join all observations of
    a group, with the elements of f that are their means, to one set.
    """
    found: dict[Variable, None] = {}
    for term in terms:
        read = _read_by(term, frontier)
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
    moving = {v: v.type() for v in drawn}  # a flat prior cannot be drawn from
    values = {moving[v]: np.zeros(shape_of(v), dtype=v.type.dtype) for v in drawn}
    output = clone_replace(predictor.ravel(), moving, rebuild_strict=False)
    _, index = distinct_elements(Evaluation([output], values))
    return int(np.bincount(index).max(initial=0)) >= MOST
