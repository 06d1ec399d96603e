"""Random-walk Metropolis on theta, for any target; with delayed acceptance if it has two stages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pymc_lgm.adaptation import ProposalTuning
from pymc_lgm.linalg import Array
from pymc_lgm.moves.element import Stats
from pymc_lgm.state import State, acceptance_probability
from pymc_lgm.targets.target import Target

__all__ = ["Metropolis", "MetropolisInfo", "delayed_metropolis", "metropolis"]


class MetropolisInfo(NamedTuple):
    """Statistics of one proposal."""

    theta_acceptance: float
    """Acceptance probability; with delayed acceptance that of the second stage, 0 if the first has
    rejected: an unbiased estimate of the probability of passing both."""

    direction: Array
    """ξ, from which tuning learns."""


def metropolis(
    rng: np.random.Generator, target: Target, *, factor: Array
) -> tuple[State, MetropolisInfo]:
    """Leave the target invariant by a joint Gaussian proposal theta' = theta + C ξ, ξ ~ N(0, I).

    Parameters
    ----------
    rng : numpy.random.Generator
    target : Target
        The target of theta; the move starts at ``target.state``.
    factor : ndarray, shape (p, p)
        C: a square root of the proposal's covariance.

    Returns
    -------
    State, MetropolisInfo
        The same state if the proposal is rejected. One evaluation of the target.
    """
    state = target.state
    xi = rng.standard_normal(state.theta.size)
    log_density, proposed = target.evaluate(state.theta + factor @ xi)
    info = MetropolisInfo(acceptance_probability(log_density - target.log_density), xi)
    if proposed is not None and rng.uniform() < info.theta_acceptance:
        return proposed, info
    return state, info


def delayed_metropolis(
    rng: np.random.Generator, target: Target, *, factor: Array
) -> tuple[State, MetropolisInfo]:
    """Leave the target π invariant by proposals screened with an approximation π* of it.

    A proposal theta' = theta + C ξ passes the first stage with probability
    α₁ = min(1, π*(theta')/π*(theta)); only then is π(theta') computed, and it is accepted with
    α₂ = min(1, π(theta') π*(theta) / (π(theta) π*(theta'))). Their product satisfies detailed
    balance whatever π* is: Christen and Fox (2005), *Markov chain Monte Carlo using an
    approximation*, JCGS 14.

    Parameters
    ----------
    rng : numpy.random.Generator
    target : Target
        With two stages.
    factor : ndarray, shape (p, p)
        C: a square root of the proposal's covariance.
    """
    state = target.state
    xi = rng.standard_normal(state.theta.size)
    stage = target.first_stage(state.theta + factor @ xi)
    if stage is None:
        return state, MetropolisInfo(0.0, xi)
    first = acceptance_probability(stage.log_density - target.first_log_density)
    if not rng.uniform() < first:
        return state, MetropolisInfo(0.0, xi)
    log_density, proposed = target.second_stage(stage)
    log_second = log_density - target.log_density + target.first_log_density - stage.log_density
    second = acceptance_probability(log_second)
    info = MetropolisInfo(second, xi)
    if proposed is not None and rng.uniform() < second:
        return proposed, info
    return state, info


@dataclass(frozen=True)
class Metropolis:
    """Adaptive random-walk Metropolis."""

    target_accept: float | None = None
    scale: float | None = None
    delayed: bool = False
    stats = ("theta_acceptance", "theta_scale")
    needs_gradient = False
    tunes = "scale"

    def start(self, state: State, tune: int) -> ProposalTuning:
        """Begin with the same scale in every direction."""
        return ProposalTuning.start(state.theta.size, self.target_accept, self.scale)

    def run(
        self, rng: np.random.Generator, target: Target, tuning: ProposalTuning, tune: bool
    ) -> tuple[State, ProposalTuning, Stats]:
        """Propose once; with ``delayed``, pass the target's first stage first."""
        kernel = delayed_metropolis if self.delayed else metropolis
        state, info = kernel(rng, target, factor=tuning.factor)
        stats = {"theta_acceptance": info.theta_acceptance, "theta_scale": tuning.scale}
        if tune:
            tuning = tuning.update(info.direction, info.theta_acceptance)
        return state, tuning, stats
