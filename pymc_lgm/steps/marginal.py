"""The base class of step methods that integrate f out: from a plan to kernels."""

from __future__ import annotations

import logging

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Unpack

import numpy as np

from pymc.exceptions import SamplingError
from pymc.util import get_untransformed_name, is_transformed_name

from pymc_lgm import samplers
from pymc_lgm.approximations.emulator import MANY_HYPERPARAMETERS
from pymc_lgm.approximations.ep import ep
from pymc_lgm.approximations.gaussian import GaussianApproximation
from pymc_lgm.approximations.laplace import laplace
from pymc_lgm.approximations.recall import WarmSearch, laplace_from_sites
from pymc_lgm.approximations.variational import variational
from pymc_lgm.model.diagnose import no_approximation, refuse_large_sets, refuse_no_curvature
from pymc_lgm.state import State
from pymc_lgm.steps.base import LatentGaussianStep
from pymc_lgm.steps.options import StepOptions, no_gradient, public_name
from pymc_lgm.steps.plan import FEW_THETAS, JUMP_SHARE, Facts, Options, Plan, plan
from pymc_lgm.targets.approximate_evidence import (
    ApproximateEvidence,
    gradient_of_ep,
    gradient_of_laplace,
    gradient_of_variational,
)

__all__ = ["Marginal", "theta_move"]

_log = logging.getLogger("pymc.lgm")  # PyMC shows its lines

NO_SLOPE = (
    "PseudoMarginal moves %d hyper-parameters without a gradient: tuning begins with a survey of "
    "the approximate evidence, and a random walk takes over if its emulator finds too little."
)
"""Logged if theta has no gradient, so that NUTS cannot be used."""

LITTLE = (
    "%r has %d of the %d hyper-parameters, since it is not integrated out, and the covariance of f "
    "has rank %d. NUTS on all variables is often faster then: pm.sample(step=pm.NUTS())."
)
"""Logged if little is integrated out, and NUTS has to move many hyper-parameters."""

MANY_PER_LATENT = 2
"""Hyper-parameters per degree of freedom of f above which this is logged.

Measured by hand, with two chains of 500 draws. With 40 effects that have a Student t prior, so that
41 hyper-parameters stand beside 1 degree of freedom, PseudoMarginal made 22 effective draws in 27
s, and NUTS 150 in 5 s. With a horseshoe, 22 beside 21, it made 332 in 14 s, and NUTS 157 in 15 s.
"""

TIGHT = 1e-3
"""Nats by which q may be off while a chain explores. Differences need it as small as this."""

LOOSER = 1e-2
"""Nats by which q may be off in draws after a survey, which subtract no evidences.

Most searches from predicted sites then need one factorization instead of two. By hand, with eight
sums, four chains each, there were 0.93 to 1.09 of the effective draws.
"""

TOLERANCE = 1.0
"""Nats by which the search for a slope may be off: the end of a trajectory is evaluated."""

SEARCHES: dict[str, Callable[..., GaussianApproximation | None]] = {
    "laplace": laplace_from_sites,
    "ep": ep,
    "variational": variational,
}
"""Searches for q by the name in ``approximation=``."""

GRADIENTS = {"ep": gradient_of_ep, "variational": gradient_of_variational}
"""Gradients of the evidence of approximations that split ℓ over the elements of f."""


class Marginal(LatentGaussianStep):
    """The part that samplers with f integrated out share: q and the move on theta.

    Attributes
    ----------
    options : Options
        As the user gave them.
    plan : Plan
        The choices of the sampler for this model, with a reason for each.
    """

    collapses = True
    plan: Plan
    element: samplers.Marginal

    def __init__(self, vars: Sequence[Any] | None, options: Options, **kwargs: Unpack[StepOptions]):
        self.options = options
        super().__init__(vars, **kwargs)

    def _sweep(self) -> Sequence[samplers.Element]:
        if not self.lgm.has_gradient:
            raise ValueError(no_gradient(self.lgm, "lgm.ASIS()"))
        refuse_large_sets(self.lgm, public_name(type(self)))
        self.plan = plan(Facts.of(self.lgm), self.options)
        facts = self.plan.facts
        many = facts.p > MANY_PER_LATENT * self.lgm.rank
        if many and self.plan.theta_move == "nuts" and self.options.move is None:
            _log.info(LITTLE, *self._largest(), facts.p, self.lgm.rank)
        if self.plan.approximation == "laplace":
            refuse_no_curvature(self.lgm, "approximation='ep', or lgm.ASIS()")
        self.element = self._element(
            explore=WarmSearch(_search(self.plan), TIGHT),
            predicts=self.plan.sites != "exact",
            surrogate=_surrogate(self.plan),
            move=theta_move(self.plan, self.options),
            n_importance=self.plan.n_importance,
            fewest=self.plan.fewest,
            noise=self.plan.noise,
            transported=self.plan.skewness == "transport",
            antithetic=self.plan.antithetic,
            defensive=self.plan.defensive,
            rests=facts.is_alone,
            climbs=facts.climbs,
            looser=LOOSER if self.plan.warmup_move == "survey" else None,
        )
        return [self.element]

    def _largest(self) -> tuple[str, int]:
        """The hyper-parameter with the most elements, by its name in the model."""
        sizes = {name: np.size(self.lgm.start[name]) for name in self.lgm.theta_names}
        name = max(sizes, key=sizes.__getitem__)
        return get_untransformed_name(name) if is_transformed_name(name) else name, sizes[name]

    def _element(self, **common: Any) -> samplers.Marginal:
        raise NotImplementedError(f"{type(self).__name__} must say which element it is.")

    @property
    def _shown(self) -> list[str]:
        # f is drawn with theta, and mostly needs no other move.
        return [name for name in super()._shown if name != "latent_acceptance"]

    def _begin(self, state: State) -> None:
        if state.at.approximation(self.element.explore) is None:
            search = str(self.plan.approximation)
            other = "ep" if search == "laplace" else "laplace"
            instead = f"lgm.PseudoMarginal(approximation={other!r}) or lgm.ASIS()"
            raise SamplingError(no_approximation(self.lgm, state.theta, search, instead))


def _search(plan: Plan) -> Callable[..., GaussianApproximation | None]:
    """The search for q of a plan."""
    return laplace if plan.sites == "exact" else SEARCHES[str(plan.approximation)]


def _surrogate(plan: Plan) -> ApproximateEvidence | None:
    """The evidence with a gradient that moves follow; ``None`` if they follow none."""
    if plan.theta_move not in ("emulator", "nuts") or not plan.has_slope:
        return None
    name = str(plan.approximation)
    search = _search(plan)
    if name in GRADIENTS:
        search = partial(search, differentiable=True)
    return ApproximateEvidence(
        WarmSearch(search, TOLERANCE), GRADIENTS.get(name, gradient_of_laplace)
    )


def theta_move(plan: Plan, options: Options) -> samplers.Move:
    """The move on theta of a plan."""
    move, facts = plan.theta_move, plan.facts
    target_accept = options.target_accept
    walk = samplers.Metropolis(target_accept, options.scale, move == "delayed-metropolis")
    nuts = samplers.NUTS(target_accept or 0.7)
    if move != "emulator":
        others: dict[str, samplers.Move] = {"nuts": nuts, "slice": samplers.Slice()}
        return others.get(move, walk)
    if plan.warmup_move == "survey" and facts.p > MANY_HYPERPARAMETERS:
        _log.info(NO_SLOPE, facts.p)
    few = facts.p <= FEW_THETAS
    return samplers.Emulated(
        other=nuts if plan.other_move == "nuts" else walk,
        warmup=walk if plan.warmup_move == "metropolis" and plan.other_move == "nuts" else None,
        surveys=plan.warmup_move == "survey",
        # With sets a gradient costs twice an evaluation, so NUTS would take most of tuning.
        other_share=0.1 if facts.joins else 0.2,
        nuts_draws=4 if facts.joins else 10,
        # With two or three components, more than three trajectories reach no further.
        n_trajectories=3 if few else 6,
        jump_share=JUMP_SHARE if facts.joins else 0.0,
    )
