"""HMC along a force that is not quite the gradient of the target, and costs much less.

Neal (2011), *MCMC using Hamiltonian dynamics*, §5.5.1: leapfrog steps by any force that depends on
the position alone are reversible and keep volume. The ends of a trajectory decide; what the force
gets wrong costs acceptance.
"""

from __future__ import annotations

import math

from typing import NamedTuple

import numpy as np

from pymc_lgm.linalg import Array, tally
from pymc_lgm.parameterizations.target import Target
from pymc_lgm.state import State, acceptance_probability

__all__ = ["GuidedHMCInfo", "guided_hmc"]


class GuidedHMCInfo(NamedTuple):
    """What one trajectory reports."""

    theta_acceptance: float
    """Acceptance probability of its end."""

    theta_evaluations: int
    """Forces on the way."""


def guided_hmc(
    rng: np.random.Generator,
    state: State,
    target: Target,
    *,
    factor: Array,
    step_size: float,
    path_length: float = 1.6,
    max_steps: int = 10,
) -> tuple[State, GuidedHMCInfo]:
    """Leave the target invariant by a trajectory that ``target.force`` bends.

    The mass matrix is M = (C Cᵀ)⁻¹. With momentum Cᵀ⁻¹ r, r ~ N(0, I), a step ε is

        theta ← theta + ½ ε C r,   r ← r + ε Cᵀ F(theta),   theta ← theta + ½ ε C r,

    and the end is accepted with probability min(1, π(theta') / π(theta) exp(½ |r|² − ½ |r'|²)).

    Parameters
    ----------
    rng : numpy.random.Generator
    state : State
    target : Target
        With ``force``; fixed at ``state``. It may be noisy.
    factor : ndarray, shape (p, p)
        C: a square root of the covariance that theta is thought to have.
    step_size : float
        ε, in units of C; each trajectory takes a random share of it, at least 0.7.
    path_length : float
        Of a trajectory, in units of C: about a quarter of an orbit.
    max_steps : int

    Returns
    -------
    State, GuidedHMCInfo
        The same state if the end is rejected, or where there is no force on the way: the way back
        would come there too. One evaluation of the target, and a force for each step.
    """
    assert target.force is not None, "a target without a force: use metropolis"
    steps = min(math.ceil(path_length / step_size), max_steps)
    step = step_size * rng.uniform(0.7, 1.0)
    r_start = r = rng.standard_normal(state.theta.size)

    theta = state.theta + 0.5 * step * (factor @ r)
    for taken in range(1, steps + 1):
        force = target.force(theta)
        if force is None:
            tally.numerical_rejections += 1
            return state, GuidedHMCInfo(0.0, taken)
        r = r + step * (factor.T @ force)
        theta = theta + (step if taken < steps else 0.5 * step) * (factor @ r)

    log_density, proposed = target(theta)
    log_ratio = log_density - target.log_density + 0.5 * float(r_start @ r_start - r @ r)
    info = GuidedHMCInfo(acceptance_probability(log_ratio), steps)
    if proposed is not None and rng.uniform() < info.theta_acceptance:
        return proposed, info
    return state, info
