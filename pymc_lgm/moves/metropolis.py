"""Random-walk Metropolis on theta, for any target."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pymc_lgm.linalg import Array
from pymc_lgm.parameterizations.target import Target
from pymc_lgm.state import State, acceptance_probability

__all__ = ["MetropolisInfo", "metropolis"]


class MetropolisInfo(NamedTuple):
    """What one proposal reports."""

    theta_acceptance: float
    """Acceptance probability."""

    direction: Array
    """ξ, from which tuning learns."""


def metropolis(
    rng: np.random.Generator, state: State, target: Target, *, factor: Array
) -> tuple[State, MetropolisInfo]:
    """Leave the target invariant by a joint Gaussian proposal theta' = theta + C ξ, ξ ~ N(0, I).

    Parameters
    ----------
    rng : numpy.random.Generator
    state : State
    target : Target
        Fixed at ``state``.
    factor : ndarray, shape (p, p)
        C: a square root of the proposal's covariance.

    Returns
    -------
    State, MetropolisInfo
        The same state if the proposal is rejected. One evaluation of the target.
    """
    xi = rng.standard_normal(state.theta.size)
    log_density, proposed = target(state.theta + factor @ xi)
    info = MetropolisInfo(acceptance_probability(log_density - target.log_density), xi)
    if proposed is not None and rng.uniform() < info.theta_acceptance:
        return proposed, info
    return state, info
