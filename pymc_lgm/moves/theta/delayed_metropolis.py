"""Delayed-acceptance Metropolis: a cheap first stage before the target is evaluated.

Christen and Fox (2005), *Markov chain Monte Carlo using an approximation*, JCGS 14.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pymc_lgm.linalg import Array
from pymc_lgm.state import State, acceptance_probability
from pymc_lgm.targets.target import Target

__all__ = ["DelayedMetropolisInfo", "delayed_metropolis"]


class DelayedMetropolisInfo(NamedTuple):
    """Statistics of one proposal."""

    theta_acceptance: float
    """An unbiased estimate of the probability of passing both stages: that of the second, 0 if the
    first has rejected."""

    direction: Array
    """ξ, from which tuning learns."""


def delayed_metropolis(
    rng: np.random.Generator, target: Target, *, factor: Array
) -> tuple[State, DelayedMetropolisInfo]:
    """Leave the target π invariant by proposals screened with an approximation π* of it.

    A proposal theta' = theta + C ξ passes the first stage with probability
    α₁ = min(1, π*(theta')/π*(theta)); only then is π(theta') computed, and it is accepted with
    α₂ = min(1, π(theta') π*(theta) / (π(theta) π*(theta'))). Their product satisfies detailed
    balance whatever π* is.

    Parameters
    ----------
    rng : numpy.random.Generator
    target : Target
        With two stages.
    factor : ndarray, shape (p, p)
        C: a square root of the proposal's covariance.

    Returns
    -------
    State, DelayedMetropolisInfo
    """
    assert target.has_stages, "a target without two stages: use metropolis"
    state = target.state
    xi = rng.standard_normal(state.theta.size)
    stage = target.first_stage(state.theta + factor @ xi)
    if stage is None:
        return state, DelayedMetropolisInfo(0.0, xi)
    first = acceptance_probability(stage.log_density - target.first_log_density)
    if not rng.uniform() < first:
        return state, DelayedMetropolisInfo(0.0, xi)
    log_density, proposed = target.second_stage(stage)
    log_second = log_density - target.log_density + target.first_log_density - stage.log_density
    second = acceptance_probability(log_second)
    info = DelayedMetropolisInfo(second, xi)
    if proposed is not None and rng.uniform() < second:
        return proposed, info
    return state, info
