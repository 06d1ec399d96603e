"""A chain on an emulator of the evidence, where a step costs no O(n³) operation: one compiled call.

Rasmussen (2003), *Gaussian processes to speed up hybrid Monte Carlo for expensive Bayesian
integrals*. The loops are over components of theta, because Numba compiles arithmetic with arrays
for seconds. Functions that are called in one place are inlined, because a function is compiled once
more with each of its callers.
"""

from __future__ import annotations

import math

from typing import NamedTuple

import numba
import numpy as np

from pymc_lgm.approximations.emulator import (
    SUMS,
    Emulator,
    Visits,
    coordinates_of,
    emulate,
    evidence_at,
    theta_of,
)
from pymc_lgm.compile.loops.callbacks import call
from pymc_lgm.linalg import Array
from pymc_lgm.moves.theta.prior_jump import slice_of_prior
from pymc_lgm.state import State

__all__ = ["Point", "propose", "rehearse"]


class Point(NamedTuple):
    """Coordinates z, theta, log p*(y | theta), log p(theta), and the gradient of log π* in z."""

    z: Array
    theta: Array
    log_evidence: float
    log_prior: float
    kick: Array


@numba.njit(cache=True, fastmath=SUMS)
def look(z: Array, emulator: Emulator, prior: int) -> Point:
    """Look at z: log p*(y | theta), log p(theta), and the gradient of their sum."""
    p = z.size
    theta = theta_of(z, emulator)
    of_prior = np.empty(1 + p)
    call(prior, theta, of_prior)
    log_evidence, kick = evidence_at(z, emulator)
    for j in range(p):
        for i in range(j, p):
            kick[j] += emulator.root[i, j] * of_prior[1 + i]
    return Point(z, theta, log_evidence, of_prior[0], kick)


@numba.njit(cache=True, inline="always")
def trajectory(
    rng: np.random.Generator, here: Point, step: float, n_steps: int, emulator: Emulator, prior: int
) -> tuple[Point, float]:
    """Propose the end of a leapfrog trajectory; also returns the logarithm of the ratio.

    Kick, drift, kick, as in `pymc_lgm.moves.leapfrog`. If a kick is not finite, the ratio is NaN,
    and the end is rejected. This is exact, since the reversed trajectory would reach the same
    point.
    """
    p = here.z.size
    r = np.empty(p)
    there = here
    log_ratio = -(here.log_evidence + here.log_prior)
    for j in range(p):
        r[j] = rng.standard_normal()
        log_ratio += 0.5 * r[j] ** 2
    for _ in range(n_steps):
        z = np.empty(p)
        for j in range(p):
            r[j] += 0.5 * step * there.kick[j]
            z[j] = there.z[j] + step * r[j]
        there = look(z, emulator, prior)
        for j in range(p):
            r[j] += 0.5 * step * there.kick[j]
    log_ratio += there.log_evidence + there.log_prior
    for j in range(p):
        log_ratio -= 0.5 * r[j] ** 2
    return there, log_ratio


@numba.njit(cache=True, inline="always")
def jump(
    rng: np.random.Generator, here: Point, emulator: Emulator, prior: int
) -> tuple[Point, float]:
    """Propose a slice of the prior, with the ratio of the evidences: see `prior_jump`."""
    theta, _, _ = slice_of_prior(rng, here.theta, prior)
    there = look(coordinates_of(theta, emulator), emulator, prior)
    return there, there.log_evidence - here.log_evidence


@numba.njit(cache=True)
def propose(
    rng: np.random.Generator,
    theta: Array,
    emulator: Emulator,
    prior: int,
    step_size: float,
    n_steps: int,
    n_trajectories: int,
    n_jumps: int,
) -> tuple[Array, float, float, bool]:
    """Move from theta by trajectories and jumps that leave π* invariant, in reversible order.

    Parameters
    ----------
    rng : numpy.random.Generator
    theta : ndarray, shape (p,)
    emulator : Emulator
    prior : int
        Address of a `pymc_lgm.compile.loops.callbacks.LogDensity`.
    n_steps : int
        Number of leapfrog steps of each trajectory.
    step_size, n_trajectories, n_jumps
        As in `pymc_lgm.moves.theta.emulated.surrogate_transition`.

    Returns
    -------
    theta' : ndarray, shape (p,)
    log_ratio : float
        log π*(theta') − log π*(theta).
    acceptance : float
        Mean acceptance probability of the trajectories.
    moved : bool
        Whether any trajectory or jump was accepted.
    """
    here = start = look(coordinates_of(theta, emulator), emulator, prior)
    total = 0.0
    jumps_first = n_jumps > 0 and rng.random() < 0.5
    # Jumps come before all trajectories, or after them.
    for k in range(n_trajectories + n_jumps):
        is_jump = k < n_jumps if jumps_first else k >= n_trajectories
        if is_jump:
            there, log_ratio = jump(rng, here, emulator, prior)
        else:
            step = step_size * (0.6 + 0.4 * rng.random())
            there, log_ratio = trajectory(rng, here, step, n_steps, emulator, prior)
        # A ratio of NaN is rejected.
        acceptance = math.exp(min(0.0, log_ratio)) if log_ratio < math.inf else 0.0
        if rng.random() < acceptance:
            here = there
        if not is_jump:
            total += acceptance
    before = start.log_evidence + start.log_prior
    after = here.log_evidence + here.log_prior
    moved = False
    for j in range(theta.size):
        moved |= here.z[j] != start.z[j]
    return here.theta, after - before, total / n_trajectories, moved


def rehearse(state: State) -> None:
    """Follow a trajectory on an emulator of one visit, to compile the functions now.

    The emulator's first draw comes late in tuning, when chains have their own processes.
    """
    p = state.theta.size
    prior = state.model.prior_density
    visits = Visits(state.theta[None], np.zeros(1), np.zeros(1))
    emulator = emulate(visits, state.theta, np.eye(p))
    propose(np.random.default_rng(0), state.theta, emulator, prior.address, 1.0, 1, 1, 1)
    prior.check()
