"""Find which variables of a model are latent or hyper-parameters, and its linear predictor.

`find_latents` decides it, or says why nothing can be latent. `read_latents` keeps the candidates
that densities read through an affine map.

Theta is meant for a dozen numbers. A Gaussian vector with many elements that the samplers cannot
integrate out is a part of theta only if the user names the variables.
"""

from __future__ import annotations

import logging
import math

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pymc as pm

from pymc.distributions.distribution import PartialObservedRV
from pymc.distributions.multivariate import (
    CARRV,
    ICARRV,
    KroneckerNormalRV,
    MatrixNormalRV,
    MvNormalRV,
    MvStudentTRV,
    PrecisionMvNormalRV,
    ZeroSumNormalRV,
)
from pymc.distributions.timeseries import AutoRegressiveRV, RandomWalkRV
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import Dot, Sum
from pytensor.tensor.random.basic import LogNormalRV, NormalRV, StudentTRV
from pytensor.tensor.random.op import RandomVariable

from pymc_lgm.compile.graphs.functions import shape_of
from pymc_lgm.compile.graphs.nodes import op_of
from pymc_lgm.gmrf import IntrinsicRV, MaternRV
from pymc_lgm.likelihoods.registry import is_inducing
from pymc_lgm.model import refusals
from pymc_lgm.model.affine import Frontier, find_frontier
from pymc_lgm.model.columns import matrix_moves
from pymc_lgm.model.elements import distinct_elements
from pymc_lgm.model.fields import is_structured
from pymc_lgm.model.integrates import integrates_to_one
from pymc_lgm.model.latents import Latent, gaussian, is_gaussian, is_process, is_sparse
from pymc_lgm.model.operations import Variable, name_of
from pymc_lgm.model.reads import MOST, Evaluation
from pymc_lgm.model.series import is_series
from pymc_lgm.vecchia import VecchiaRV

__all__ = [
    "AS_IT_IS",
    "Reading",
    "all_but",
    "discrete_in",
    "find_latent",
    "find_latents",
    "find_observed",
    "latents_beside",
    "refuse_left_gaussians",
]

MOST_LEFT = 12
"""Most elements of Gaussian vectors that may be hyper-parameters without being named by users.

A choice that was not measured: the number of hyper-parameters above which no emulator of the
evidence is fitted, `MANY_HYPERPARAMETERS` of `pymc_lgm.approximations.emulator`.
"""

MIXING = (Dot, Sum, CumOp, Blockwise)
"""Operations whose result may have elements that depend on several elements of a vector."""

AS_IT_IS = "To sample the model as it is, pass step=pm.NUTS()."

APPROXIMATED = "marginalapprox_loglik_"
"""`pymc.gp.MarginalApprox` names its potential with this prefix."""

BESIDE_ANOTHER = "many observations read each of its elements beside another linear predictor"
GIVEN = "the linear predictor is affine in other latent variables only given it"
IN_A_MEAN = "it is in the mean of a process that this sampler factorizes separately"
NOT_IN_A_PREDICTOR = "it is not part of a linear predictor that the samplers integrate out"
IN_A_ROW = (
    "it completes rows whose other elements are observed, which the samplers do not "
    "integrate out. To leave it out, observe the rows that lack the same elements as a variable of "
    "their own, pm.MvNormal(..., mu=mu[rows][:, seen], cov=cov[seen][:, seen], "
    "observed=y[rows][:, seen])"
)
"""Reasons why a variable is a hyper-parameter."""

OF_A_COVARIANCE = (MvNormalRV, PrecisionMvNormalRV, MatrixNormalRV, KroneckerNormalRV)
"""Normal distributions whose parameters are a mean and a covariance, or its parts."""

ALWAYS = (
    *(NormalRV, *OF_A_COVARIANCE),
    *(CARRV, ICARRV, MaternRV, VecchiaRV),
)
"""Distributions that are normal for all values of their parameters.

An autoregression or a walk is normal only if its innovations are.
"""

_log = logging.getLogger("pymc.lgm")  # PyMC shows its lines


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
    as_sum : bool
        Whether f is a sum of sparse families even if a dense form costs less.
    """

    latents: list[Latent]
    frontier: list[Variable]
    terms: list[Variable]
    missing: list[Variable]
    left: dict[Variable, str] = field(default_factory=dict)
    joins: bool = False
    integrates: bool = True
    as_sum: bool = False

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


def find_latents(
    model: pm.Model,
    latent: Any = None,
    candidates: Sequence[Variable] | None = None,
    *,
    collapse: bool = True,
) -> Reading:
    """Find which variables of a model are latent, and what f is.

    They are those that the user has named in ``latent``; otherwise they are among ``candidates``,
    by default all. With ``collapse`` coefficients in the mean of a process may be latent. An
    earlier reading as ``latent`` stays as it is.
    """
    if isinstance(latent, Reading):
        return latent
    if latent is None:
        among = model.free_RVs if candidates is None else candidates
        gaussians = [rv for rv in among if is_gaussian(model, rv)]
        # Beside inducing variables, coefficients and effects are hyper-parameters.
        if inducing := [rv for rv in gaussians if is_inducing(rv)]:
            return _of_inducing(model, inducing, [rv for rv in gaussians if is_process(rv)])
        reading = read_latents(model, gaussians, collapse=collapse)
        if not reading.latents or not reading.frontier:
            # This message names the reason, if many elements would be hyper-parameters.
            if candidates is None and not any(map(is_process, model.free_RVs)):
                refuse_left_gaussians(model, reading, model.continuous_value_vars)
            # With one process as the only candidate, all other variables are hyper-parameters.
            return read_latents(model, [find_latent(model, reading=reading)])
        return reading
    several = latent if isinstance(latent, list | tuple) else [latent]
    chosen = []
    for each in several:
        rv = _named(model, each)
        if len(several) == 1 and rv in model.observed_RVs and _is_vector(rv):
            return read_observed(model, rv)
        if rv not in model.free_RVs or not is_gaussian(model, rv):
            rv = find_latent(model, each)
        chosen.append(rv)
    if inducing := [rv for rv in chosen if is_inducing(rv)]:
        return _of_inducing(model, inducing, [rv for rv in chosen if rv not in inducing])
    return read_latents(model, chosen, named=chosen)


def _of_inducing(
    model: pm.Model, inducing: Sequence[Variable], beside: Sequence[Variable]
) -> Reading:
    """Read a model whose latent variables are inducing variables; refuse others ``beside`` them."""
    for rv in beside:
        for inner in set(inducing).intersection(ancestors(rv.owner.inputs)):
            raise ValueError(refusals.hidden_layer(str(inner.name), str(rv.name)))
    if beside:
        names = ", ".join(str(rv.name) for rv in (*inducing, *beside))
        raise ValueError(
            f"The model has {names}: processes with inducing variables cannot be combined with "
            "other processes. Add the covariance functions of the processes and write one "
            "lgm.gp.SparseLatent; coefficients beside it are hyper-parameters. Or name the "
            "variables to sample, lgm.PseudoMarginal([...]), and give the others a step of their "
            "own."
        )
    reading = read_latents(model, inducing, named=inducing)
    for latent in reading.latents:
        if latent.through is None:
            raise ValueError(
                f"A density reads the inducing variables {latent.rv.name} themselves, and not only "
                "their process. Leave that density out, or sample the model with pm.NUTS()."
            )
    return reading


def latents_beside(
    model: pm.Model, theta: Sequence[Any] | str | None, latent: Any = None, *, collapse: bool = True
) -> Any:
    """The reading if the user names hyper-parameters that could be latent; otherwise ``latent``.

    Raises
    ------
    ValueError
        If a name is not that of a continuous free variable, or is that of a latent variable.
    """
    candidates = all_but(model, theta)
    if candidates is None:
        return latent
    reading = find_latents(model, latent, candidates, collapse=collapse)
    latents = [each.rv for each in reading.latents]
    for rv in latents:
        if rv in model.free_RVs and rv not in candidates:
            raise ValueError(refusals.not_a_hyperparameter(str(rv.name)))
    if latent is None:
        found = [model.rvs_to_values[rv] for rv in candidates if rv not in latents]
        refuse_left_gaussians(model, reading, found)
    return reading


def all_but(model: pm.Model, theta: Sequence[Any] | str | None) -> list[Variable] | None:
    """Free variables other than those that the user names as hyper-parameters; ``None`` for none.

    Raises
    ------
    ValueError
        If a name is not that of a continuous free variable.
    """
    if theta is None:
        return None
    named = []
    for each in [theta] if isinstance(theta, str) else theta:
        rv = _named(model, each)
        if model.rvs_to_values.get(rv) not in model.continuous_value_vars:
            raise ValueError(refusals.not_a_hyperparameter(str(getattr(rv, "name", each))))
        named.append(rv)
    return [rv for rv in model.free_RVs if rv not in named]


def _named(model: pm.Model, each: Any) -> Any:
    """The random variable that a user gives by its name, by its value variable, or as it is."""
    rv = model.named_vars.get(each) if isinstance(each, str) else each
    return model.values_to_rvs.get(rv, rv)


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
      that of many observations, too, unless it is named;
    - it has few elements, and the predictor is affine in other candidates only given it, as in a
      product of it and an effect, unless it is named;
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
        reasons = reasons or _in_covariances(terms, of_node, named)
        reasons = reasons or _factors_in(found.factors, of_node, named)
        reasons = reasons or _single_in(terms, found.predictor, of_node)
        joins = False
        if not reasons and len(found.predictor) > 1:
            shared = _shared_in(terms, found.predictor, latents)
            joins = any(_is_many(rv) for rv in shared)
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
                raise ValueError(
                    f"{rv.name!r} cannot be latent: {reason}. Leave it out of latent=, and it is a "
                    "hyper-parameter."
                )
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
            name = str(of_node[node].name)
            reasons[rv] = f"its prior depends on {name!r}, and not only by an affine mean"
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


def _in_covariances(
    terms: Sequence[Variable], of_node: dict[Variable, Variable], named: Sequence[Variable]
) -> dict[Variable, str]:
    """The candidates on which a covariance of many observations depends, with reasons.

    The covariance is that of an observed process, or of all rows. A few elements may be latent: a
    row may have a covariance of its own.
    """
    reasons: dict[Variable, str] = {}
    for term in terms:
        op = op_of(term)
        if not isinstance(op, OF_A_COVARIANCE):
            continue
        _, *spread = op.dist_params(term.owner)
        is_one = all(all(v.type.broadcastable[: -op.ndim_supp - 1]) for v in spread)
        shape = shape_of(term)
        if math.prod(shape if is_one else shape[-op.ndim_supp :]) <= MOST:
            continue
        above = set(ancestors(spread, blockers=[*terms, *of_node]))
        found = [rv for node, rv in of_node.items() if node in above and rv not in named]
        found = [rv for rv in found if not is_process(rv)]  # a layer of a deep process
        reasons |= dict.fromkeys(found, f"the covariance of {str(term.name)!r} depends on it")
    return reasons


def _factors_in(
    factors: Sequence[Sequence[tuple[set[Variable], set[Variable]]]],
    of_node: dict[Variable, Variable],
    named: Sequence[Variable],
) -> dict[Variable, str]:
    """The candidates given which a product is affine in the others, if they are few, with reasons.

    The factor with fewer elements is given, and it is neither a process nor named.
    """
    reasons: dict[Variable, str] = {}
    for alternatives in factors:
        several = [[[of_node[x] for x in each] for each in both] for both in alternatives]
        fewer = [given for given, rest in several if _total_of(given) <= _total_of(rest)]
        free = [rvs for rvs in fewer if not any(is_process(rv) or rv in named for rv in rvs)]
        fewest = min(free, key=_total_of, default=[])
        if _total_of(fewest) <= MOST_LEFT:
            reasons |= dict.fromkeys(fewest, GIVEN)
    return reasons


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
        names, discrete = " + ".join(rv.name for rv in chosen), next(iter(placed.values()))
        raise ValueError(
            f"The linear predictor, affine in {names!r}, depends on {discrete!r} too, which is "
            "discrete and is not only added: the samplers need coefficients of the latent "
            "variables that do not jump. If there are several processes, name one as latent and "
            f"give the others steps of their own, or sum {discrete!r} out."
        )
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
        return f"{name_of(node)!r} depends on it in a way that is not affine"
    return (
        f"the prior of {str(latent).removesuffix('_rotated_')!r} depends on it, and the samplers "
        "integrate out a variable in a prior only if it is in the mean of a pm.Normal or a "
        "pm.MvNormal that is affine in it"
    )


def _one_number_first(refused: dict[Variable, Any]) -> dict[Variable, Any]:
    """Only the single numbers, if there are any: if k is a hyper-parameter, k x is affine in x."""
    single = {rv: why for rv, why in refused.items() if _elements_of(rv) == 1}
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


def _elements_of(rv: Variable) -> int:
    """The number of elements of a random variable."""
    return int(np.prod(shape_of(rv)))


def _total_of(rvs: Sequence[Variable]) -> int:
    """The number of elements of several random variables."""
    return sum(map(_elements_of, rvs))


def _is_many(rv: Variable) -> bool:
    """Whether a variable has more elements than hyper-parameters may have without being named."""
    return _elements_of(rv) > MOST_LEFT


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


def _single_in(
    terms: Sequence[Variable], frontier: Sequence[Variable], of_node: dict[Variable, Variable]
) -> dict[Variable, str]:
    """Latents that are better hyper-parameters because one of their predictors is a single number.

    Returns each with the reason. Processes are not among them. If the densities read no other
    predictor, as with a constraint on the sum of effects, neither are latents with many elements,
    nor latents that another predictor depends on.
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
            own = {x: rv for x, rv in own.items() if not (x in others or _is_many(rv))}
        reason = f"{str(reading[0].name)!r} reads one number that depends on it"
        found |= dict.fromkeys(own.values(), reason)
    return _one_number_first(found)


def _read_by(term: Variable, frontier: Sequence[Variable]) -> list[Variable]:
    """The predictors that a density reads."""
    above = set(ancestors([term], blockers=frontier))
    return [v for v in frontier if v in above]


def _shared_in(
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
    drawn = [v for v in within if isinstance(op_of(v), RandomVariable)]
    moving = {v: v.type() for v in drawn}  # a flat prior cannot be drawn from
    values = {moving[v]: np.zeros(shape_of(v), dtype=v.type.dtype) for v in drawn}
    output = clone_replace(predictor.ravel(), moving, rebuild_strict=False)
    _, index = distinct_elements(Evaluation([output], values))
    return int(np.bincount(index).max(initial=0)) >= MOST


def refuse_left_gaussians(model: pm.Model, reading: Reading, theta: Container[Variable]) -> None:
    """Raise if theta holds Gaussian vectors that cannot be integrated out and have many elements.

    Theta has the value variables that would be hyper-parameters in a model in which the user has
    not named the latent variables.
    """
    reached = set(ancestors([*model.observed_RVs, *model.potentials, *reading.terms]))
    left = [
        rv
        for rv in model.free_RVs
        if model.rvs_to_values[rv] in theta and rv in reached and rv not in reading.missing
        if rv.ndim and _is_normal(model, rv)
    ]
    sizes = {rv: _elements_of(rv) for rv in left}
    left = [rv for rv in left if sizes[rv] > 1]
    if not left:
        return
    in_a_row = [rv for rv in left if _completes_rows(rv)]
    unknown = [rv for rv in left if not is_gaussian(model, rv) and rv not in in_a_row]
    reasons = {rv: reading.left.get(rv, NOT_IN_A_PREDICTOR) for rv in left}
    reasons |= dict.fromkeys(in_a_row, IN_A_ROW)
    reasons |= {rv: f"this package does not integrate out {_called(rv)}" for rv in unknown}
    total = sum(sizes.values())
    if unknown or total > MOST_LEFT:
        rv = (unknown or sorted(left, key=lambda each: -sizes[each]))[0]
        names = ", ".join(each.name for each in left)
        quoted = ", ".join(repr(each.name) for each in left)
        alone = "."
        if beside := ", ".join(str(each.rv.name) for each in reading.latents):
            alone = (
                f", or these variables alone: step=[lgm.PseudoMarginal([{beside}, ...]), "
                f"pm.NUTS([{names}])], with the hyper-parameters instead of the dots. To sample "
                f"them as hyper-parameters nevertheless, name them: "
                f"lgm.PseudoMarginal(theta=[{quoted}]), or lgm.read(theta=[{quoted}])."
            )
        raise ValueError(
            f"{rv.name!r} is Gaussian and has {sizes[rv]} elements, but {reasons[rv]}. Its "
            "elements would be hyper-parameters, and the samplers can move few of those. Sample "
            f"the model with step=pm.NUTS(){alone}"
        )
    for rv in left:
        count = f"{rv.name!r} ({sizes[rv]} elements)"
        _log.info(f"{count} is sampled among the hyper-parameters: {reasons[rv]}.")


def _is_normal(model: pm.Model, rv: Variable) -> bool:
    """Whether a random variable is jointly normal on the scale of the model."""
    op = rv.owner.op
    if isinstance(op, ZeroSumNormalRV | IntrinsicRV):  # normal with any transform
        return True
    if model.rvs_to_transforms[rv] is not None:
        return False
    if isinstance(op, ALWAYS) or is_series(rv) or _completes_rows(rv):
        return True
    if isinstance(op, AutoRegressiveRV):
        return _is_innovation(rv.owner.inputs[2])
    return isinstance(op, RandomWalkRV) and all(map(_is_innovation, rv.owner.inputs[:2]))


def _completes_rows(rv: Variable) -> bool:
    """Whether a variable has the missing elements of normal rows of which others are observed."""
    if not isinstance(rv.owner.op, PartialObservedRV):
        return False
    row = rv.owner.inputs[0].owner
    return row is not None and isinstance(row.op, MvNormalRV)


def _is_innovation(v: Variable) -> bool:
    return isinstance(op_of(v), ALWAYS)


def _called(rv: Variable) -> str:
    """PyMC's name of a distribution, and why this package does not read this one."""
    op = rv.owner.op
    if isinstance(op, RandomWalkRV):
        return "a batch of pm.MvGaussianRandomWalk"
    if isinstance(op, IntrinsicRV):
        return "an intrinsic GMRF of lgm.gmrf with a transform other than its own"
    if isinstance(op, VecchiaRV):
        return "a batch of lgm.gp.Vecchia"
    name = "pm." + type(op).__name__.removesuffix("RV")
    if isinstance(op, ZeroSumNormalRV):
        return f"{name} with a transform other than PyMC's own"
    if isinstance(op, CARRV | ICARRV):
        return f"a batch of {name}" if rv.ndim > 1 else f"{name} of a map that may change"
    return name


def find_latent(
    model: pm.Model, latent: Variable | str | None = None, reading: Reading | None = None
) -> Variable:
    """Find f, if it has to be the one free random variable that is a multivariate normal vector.

    ``latent`` names it if there are several. ``reading`` is an earlier one in which nothing was
    latent, for the reasons in a message.

    Raises
    ------
    ValueError
        If the model has no such vector, or several. Or if PyMC samples it through a transform.
    """
    candidates = [rv for rv in model.free_RVs if is_process(rv)]
    if latent is not None:
        rv = _named(model, latent)
        if rv not in candidates:
            name = str(getattr(latent, "name", latent))
            known = ", ".join(each.name for each in candidates)
            raise ValueError(
                f"{name!r} is not a latent Gaussian vector (a free pm.MvNormal). "
                f"This model has: {known or 'none; write reparameterize=False'}."
            )
        candidates = [rv]
    if not candidates:
        _refuse_other_processes(model)
        raise ValueError(_why_no_latent(model, {} if reading is None else reading.left))
    if len(candidates) > 1:
        several = [str(rv.name) for rv in candidates]
        raise ValueError(
            f"The model has {len(several)} latent Gaussian vectors: {', '.join(several)}. "
            f"Name the one to sample and its hyper-parameters: lgm.ASIS([{several[0]}, ...]); "
            "give each of the others a step of its own. If one is a gp.conditional, add it to the "
            "model after pm.sample()."
        )
    (rv,) = candidates
    if is_structured(rv) and not is_gaussian(model, rv):
        raise ValueError(
            f"{str(rv.name)!r} is a GMRF of lgm.gmrf with a transform other than its own, which "
            "keeps the constraints. Leave out transform= and default_transform=."
        )
    if model.rvs_to_transforms[rv] is not None and not is_structured(rv):
        raise ValueError(
            f"The latent {str(rv.name)!r} has a transform, so it is not Gaussian on the sampled "
            "scale. Remove transform= from it and apply the function in the likelihood."
        )
    return rv


def _why_no_latent(model: pm.Model, left: Mapping[Variable, str]) -> str:
    """Say why no Gaussian variable of the model is latent."""
    nothing = "The model has no latent Gaussian vector"
    logs = [rv.name for rv in model.free_RVs if isinstance(rv.owner.op, LogNormalRV) and rv.ndim]
    as_exp = "".join(
        f" {name!r} is log-normal, so its logarithm could be latent: write {name} = "
        f"pm.math.exp(pm.Normal('log_{name}', mu, sigma, shape=...))."
        for name in logs[:1]
    )
    if left:
        reasons = "; ".join(f"{str(rv.name)!r} is Gaussian, but {why}" for rv, why in left.items())
        return f"{nothing}: {reasons}.{as_exp} {AS_IT_IS}"
    read = set(ancestors([*model.observed_RVs, *model.potentials]))
    gaussians = [rv for rv in model.free_RVs if is_gaussian(model, rv)]
    if unread := [str(rv.name) for rv in gaussians if rv not in read]:
        return (
            f"No density depends on {', '.join(map(repr, unread))}: there is no likelihood to "
            f"sample from. Write one, as in lgm.Probit('y', f={unread[0]}, observed=y)."
        )
    if gaussians:
        names = [str(rv.name) for rv in gaussians]
        return (
            f"{', '.join(map(repr, names))} could be latent, but hyper-parameters are named and it "
            f"is not. Name it, too, as in lgm.PseudoMarginal([{names[0]}, ...]), or leave all "
            "names out."
        )
    for rv in model.free_RVs:
        if isinstance(rv.owner.op, NormalRV) and model.rvs_to_transforms[rv] is not None:
            return (
                f"{nothing}: {str(rv.name)!r} has a transform, so it is not Gaussian on the "
                f"sampled scale. Remove transform= from it. {AS_IT_IS}"
            )
    free = [str(rv.name) for rv in model.free_RVs]
    shown = ", ".join(free[:8]) + (", ..." if len(free) > 8 else "")
    instead = "Write effects, coefficients and processes as pm.Normal or pm.MvNormal."
    if whitened := [name.removesuffix("_rotated_") for name in free if name.endswith("_rotated_")]:
        instead = (
            f"{whitened[0]!r} is whitened in the model: write gp.prior({whitened[0]!r}, X, "
            "reparameterize=False), since the samplers whiten."
        )
    return (
        f"{nothing}: none of its free variables ({shown}) is a pm.MvNormal, or a Gaussian vector "
        f"that densities read through an affine map.{as_exp} {instead} {AS_IT_IS}"
    )


def _refuse_other_processes(model: pm.Model) -> None:
    """Raise if a process of the model is not Gaussian, or is already integrated out."""
    for rv in model.free_RVs:
        whitened = str(rv.name).endswith("_rotated_") and isinstance(rv.owner.op, StudentTRV)
        if isinstance(rv.owner.op, MvStudentTRV) or whitened:
            raise ValueError(
                f"{str(rv.name).removesuffix('_rotated_')!r} is a Student t process, as pm.gp.TP "
                "makes it. It is not Gaussian given the hyper-parameters, and this package does "
                "not integrate it out. Write pm.gp.Latent for a Gaussian process, or sample the "
                "model with step=pm.NUTS()."
            )
    integrated = "The process of this model is integrated out already"
    instead = "there is no latent vector to sample. Sample its hyper-parameters with step=pm.NUTS()"
    for rv in model.observed_RVs:
        if _is_vector(rv):
            raise ValueError(
                f"{integrated}: {str(rv.name)!r} is an observed pm.MvNormal, as pm.gp.Marginal "
                "makes it, and there is no latent vector to sample. Write lgm.ExactMarginal(), "
                "which samples its hyper-parameters."
            )
        if isinstance(rv.owner.op, KroneckerNormalRV):
            raise ValueError(
                f"{integrated}: {str(rv.name)!r} is an observed pm.KroneckerNormal, as "
                f"pm.gp.MarginalKron makes it, and {instead}."
            )
    for potential in model.potentials:
        if str(potential.name).startswith(APPROXIMATED):
            name = str(potential.name).removeprefix(APPROXIMATED)
            raise ValueError(
                f"{integrated}: {name!r} is a pm.Potential, as pm.gp.MarginalApprox makes it, and "
                f"{instead}."
            )


def find_observed(model: pm.Model) -> Variable:
    """Find the observed multivariate normal vector of a model; a ValueError if not exactly one."""
    found = [rv for rv in model.observed_RVs if _is_vector(rv)]
    if len(found) > 1:
        raise ValueError(
            f"The model observes {len(found)} multivariate normal vectors: "
            f"{', '.join(str(rv.name) for rv in found)}. lgm.ExactMarginal takes one: write them "
            "as one vector, or sample with pm.NUTS()."
        )
    if not found:
        observed = ", ".join(str(rv.name) for rv in model.observed_RVs) or "nothing"
        instead = (
            'for a process write y = gp.marginal_likelihood("y", X, y=y, sigma=sigma), and for '
            "effects, series and fields lgm.PseudoMarginal(), which integrates them out"
        )
        if free := [str(rv.name) for rv in model.free_RVs if is_process(rv)]:
            instead = f"lgm.PseudoMarginal() samples theta with {', '.join(free)}"
        raise ValueError(
            f"No vector that the model observes ({observed}) is a pm.MvNormal, as pm.gp.Marginal "
            f"makes it: {instead}."
        )
    return found[0]


def _is_vector(rv: Variable) -> bool:
    """Whether a random variable is one `pymc.MvNormal` vector, not a batch of them."""
    return rv.ndim == 1 and isinstance(rv.owner.op, MvNormalRV)
