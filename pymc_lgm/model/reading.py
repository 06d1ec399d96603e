"""Find which variables of a model are latent or hyper-parameters, and its linear predictor."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pymc as pm

from pytensor.graph.traversal import ancestors
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import Dot, Sum

from pymc_lgm.likelihoods.registry import is_inducing
from pymc_lgm.model import refusals
from pymc_lgm.model.affine import Frontier, find_frontier
from pymc_lgm.model.hyperparameters import (
    discrete_in,
    elements_of,
    is_many,
    name_of,
    shared_in,
    single_in,
)
from pymc_lgm.model.integrates import integrates_to_one
from pymc_lgm.model.latents import Latent, gaussian, is_process, is_sparse

__all__ = ["Reading", "read_latents", "read_observed"]

Variable = Any

MIXING = (Dot, Sum, CumOp, Blockwise)
"""Operations whose result may have elements that depend on several elements of a vector."""

BESIDE_ANOTHER = "many observations read each of its elements beside another linear predictor"
IN_A_MEAN = "it is in the mean of a process that this sampler factorizes separately"
"""Reasons why a variable is a hyper-parameter."""


@dataclass(frozen=True, eq=False)
class Reading:
    """The roles of a model's variables.

    Attributes
    ----------
    latents : list of Latent
        Latent variables. The mean of each depends only on those before it.
    frontier : list of variable
        The linear predictor: the variables through which densities depend on the latents.
    terms : list of variable
        Random variables and potentials that have a density, except ``latents`` and ``missing``.
    missing : list of variable
        Free random variables that no density reads, such as missing observations. They are
        integrated out, and drawn given all other variables.
    left : dict of variable to str
        Gaussian variables that are hyper-parameters, and the reason for each.
    joins : bool
        Whether many observations read the same element of one linear predictor beside elements of
        another. Equal elements of the predictors are then different elements of f.
    integrates : bool
        Whether observation-level random effects are integrated out of the likelihood.
    """

    latents: list[Latent]
    frontier: list[Variable]
    terms: list[Variable]
    missing: list[Variable]
    left: dict[Variable, str] = field(default_factory=dict)
    joins: bool = False
    integrates: bool = True

    @cached_property
    def is_one_vector(self) -> bool:
        """Whether f is the only latent variable, and densities read its elements one by one."""
        if len(self.latents) != 1 or self.latents[0].is_whitened:
            return False
        (latent,) = self.latents
        if not is_process(latent.rv) or latent.rv.ndim != 1 or latent.zero_sum is not None:
            return False
        return not any(isinstance(node.op, MIXING) for node, _ in self._between())

    def is_apart(self, coefficients: Container[Variable]) -> bool:
        """Whether f, without the coefficients of means, is several vectors that are never added.

        Their covariances are then factorized one by one. If a coefficient of several means were
        integrated out, it would join them into one.
        """
        processes = [latent for latent in self.latents if latent.rv not in coefficients]
        if any(latent.variances is not None for latent in processes):
            return False
        if len(processes) == 1 and processes[0].rv.ndim == 1:
            return False
        return not any(
            isinstance(node.op, MIXING) or (isinstance(node.op, Elemwise) and count > 1)
            for node, count in self._between()
        )

    def _between(self) -> Iterator[tuple[Any, int]]:
        """Nodes between the latents and the predictor, with their number of dependent inputs."""
        own = {latent.node for latent in self.latents}
        for node in {v.owner for v in ancestors(self.frontier, blockers=own) if v.owner}:
            of_latents = [x for x in node.inputs if not own.isdisjoint(ancestors([x], own))]
            if of_latents and own.isdisjoint(node.outputs):
                yield node, len(of_latents)


def read_latents(
    model: pm.Model,
    candidates: Sequence[Variable],
    *,
    named: Iterable[Variable] = (),
    collapse: bool = True,
) -> Reading:
    """Keep the candidates that densities read through an affine map.

    A candidate is a hyper-parameter instead if

    - a covariance depends on it, or another latent's mean does, but not through an affine map;
    - it is one number that a density reads alone, such as a common log standard deviation;
    - it has few elements, each of which many observations read beside another linear predictor,
      unless it is named;
    - it is not a process, and a discrete variable decides how it enters the predictor, unless it is
      named;
    - it is in the mean of one of several processes that are factorized one by one because they are
      never added, unless it is named.

    Parameters
    ----------
    model : pymc.Model
    candidates : sequence of variable
        Free random variables that are Gaussian given the rest.
    named : iterable of variable
        Variables that the user has named as latent.
    collapse : bool
        Whether coefficients that only the mean of a process reads may be latent.

    Raises
    ------
    ValueError
        If a variable in ``named`` cannot be latent, or if a discrete variable decides how named
        variables or processes enter the predictor.
    """
    named = list(named)
    missing = [rv for rv in _unread(model) if rv not in named]
    known = [rv for rv in model.basic_RVs if rv not in missing]
    chosen = [rv for rv in model.free_RVs if rv in candidates and rv not in missing]
    terms = [rv for rv in known if rv not in chosen] + list(model.potentials)
    read = set(ancestors(terms + [v for rv in chosen for v in rv.owner.inputs]))
    chosen = [rv for rv in chosen if rv in read or is_process(rv) or rv in named]
    # Sparse processes are left out: coefficients in their means cost almost nothing to integrate.
    processes = [rv for rv in chosen if is_process(rv) and not is_sparse(rv)]
    means = [v for rv in chosen if rv not in processes for v in rv.owner.inputs]
    beside = set(ancestors(terms + means, blockers=processes))
    coefficients = [rv for rv in chosen if rv not in (*beside, *processes, *named)]
    left: dict[Variable, str] = {}
    while True:
        terms = [rv for rv in known if rv not in chosen] + list(model.potentials)
        latents = [gaussian(rv, terms) for rv in chosen]
        found = find_frontier(terms, [latent.node for latent in latents], model.basic_RVs)
        of_node = {latent.node: latent.rv for latent in latents}
        reasons = _unread_first(found, of_node, read) or _not_affine(found, of_node, named)
        reasons = reasons or _alone(terms, found, of_node)
        joins = False
        if not reasons and len(found.predictor) > 1:
            shared = shared_in(terms, found.predictor, latents)
            joins = any(is_many(rv) for rv in shared)
            if not joins:
                reasons = dict.fromkeys((rv for rv in shared if rv not in named), BESIDE_ANOTHER)
        reading = Reading(latents, found.predictor, terms, missing, left, joins)
        if not reasons and not reading.is_one_vector:
            reasons = _placed_by_discrete(model, reading, named)
        if not reasons and (not collapse or reading.is_apart(coefficients)):
            reasons = dict.fromkeys((rv for rv in chosen if rv in coefficients), IN_A_MEAN)
        if not reasons:
            return reading
        left |= reasons
        for rv, reason in reasons.items():
            if rv in named:
                raise ValueError(refusals.not_latent(str(rv.name), reason))
        chosen = [rv for rv in chosen if rv not in reasons]


def _unread_first(
    found: Frontier, of_node: dict[Variable, Variable], read: Container[Variable]
) -> dict[Variable, str]:
    """The candidates that no density reads and whose priors are not affine in others.

    They are left out first: what others are must not depend on them.
    """
    reasons = {}
    for node, why in found.refused.items():
        rv = next(of_node[x] for x in why.outputs if x in of_node)
        if rv not in read:
            reasons[rv] = refusals.not_affine_in(str(of_node[node].name))
    return reasons


def _not_affine(
    found: Frontier, of_node: dict[Variable, Variable], named: Sequence[Variable]
) -> dict[Variable, str]:
    """The candidates that do not enter densities through an affine map, with reasons."""
    refused = _one_number_first({of_node[node]: why for node, why in found.refused.items()})
    for rv, why in refused.items():
        if rv in named and is_inducing(rv):
            outer = next(of_node[x] for x in why.outputs if x in of_node)
            raise ValueError(refusals.hidden_layer(str(rv.name), str(outer.name)))
    return {rv: _reason(why, of_node) for rv, why in refused.items()}


def _alone(
    terms: Sequence[Variable], found: Frontier, of_node: dict[Variable, Variable]
) -> dict[Variable, str]:
    """The candidates that are one number, which a density reads alone, with reasons."""
    single = single_in(terms, found.predictor, of_node)
    return {rv: refusals.left_alone(why) for rv, why in _one_number_first(single).items()}


def _placed_by_discrete(
    model: pm.Model, reading: Reading, named: Sequence[Variable]
) -> dict[Variable, str]:
    """The candidates to leave out if a discrete variable decides how they enter, with reasons."""
    # A's structure is read once, so it must not change when another step moves k.
    placed = {
        latent.rv: k
        for latent in reading.latents
        if (k := discrete_in(model, reading.frontier, [latent])) is not None
    }
    if not placed:
        return {}
    chosen = [latent.rv for latent in reading.latents]
    free = [rv for rv in chosen if not is_process(rv) and rv not in named]
    if not free:
        names = " + ".join(rv.name for rv in chosen)
        raise ValueError(refusals.map_jumps(names, next(iter(placed.values()))))
    decides = "{!r}, which is discrete, decides how {} enters the linear predictor"
    if refused := {rv: decides.format(placed[rv], "it") for rv in free if rv in placed}:
        return refused
    # A process that is alone in f is read as f itself, and A does not matter.
    process, k = next(iter(placed.items()))
    return dict.fromkeys(free, decides.format(k, repr(process.name)))


def _reason(node: Any, of_node: dict[Variable, Variable]) -> str:
    """Say which latent variable's prior, or which operation, keeps a variable from being latent."""
    latent = next((of_node[x].name for x in node.outputs if x in of_node), None)
    if latent is None:
        return refusals.left_in(name_of(node))
    return refusals.left_in_prior(str(latent).removesuffix("_rotated_"))


def _one_number_first(refused: dict[Variable, Any]) -> dict[Variable, Any]:
    """Only the single numbers, if there are any: if k is a hyper-parameter, k x is affine in x."""
    single = {rv: why for rv, why in refused.items() if elements_of(rv) == 1}
    return single or refused


def read_observed(model: pm.Model, rv: Variable) -> Reading:
    """Read an observed multivariate normal vector as f, on which no other variable depends."""
    missing = _unread(model)
    others = [each for each in model.basic_RVs if each is not rv and each not in missing]
    terms = [*others, *model.potentials]
    return Reading([gaussian(rv, terms)], [], terms, missing)


def _unread(model: pm.Model) -> list[Variable]:
    """Free variables that no density reads and that depend on others, with normalized densities."""
    others = [v for rv in model.basic_RVs for v in rv.owner.inputs]
    read = set(ancestors([*others, *model.potentials]))
    free = set(model.free_RVs)
    unread = [rv for rv in model.free_RVs if rv not in read and integrates_to_one(model, rv)]
    return [rv for rv in unread if not free.isdisjoint(ancestors(rv.owner.inputs))]
