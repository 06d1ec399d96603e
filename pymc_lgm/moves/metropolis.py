"""Random-walk Metropolis on theta, for any target."""

from __future__ import annotations

import math

from typing import NamedTuple

import numpy as np

from pymc_lgm.linalg import Array
from pymc_lgm.parameterizations.target import Target
from pymc_lgm.state import State

__all__ = ["MetropolisInfo", "metropolis"]


class MetropolisInfo(NamedTuple):
    """What one proposal reports."""

    theta_acceptance: float
    """Acceptance probability."""


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
    proposal = state.theta + factor @ rng.standard_normal(state.theta.size)
    log_density, proposed = target(proposal)
    acceptance = math.exp(min(0.0, log_density - target.log_density))
    if proposed is not None and rng.uniform() < acceptance:
        return proposed, MetropolisInfo(acceptance)
    return state, MetropolisInfo(acceptance)
