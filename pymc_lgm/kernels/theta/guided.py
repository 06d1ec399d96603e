"""HMC along a force that is not quite the gradient of the target, and costs much less.

Neal (2011), *MCMC using Hamiltonian dynamics*, §5.5.1: leapfrog steps by any force that depends on
the position alone are reversible and keep volume. The ends of a trajectory decide; what the force
gets wrong costs acceptance.
"""

from __future__ import annotations

import math

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from pymc_lgm.adaptation import ProposalTuning, StepSizeTuning
from pymc_lgm.kernels.hold.target import Target
from pymc_lgm.kernels.sweep import Stats
from pymc_lgm.kernels.theta.hmc import HMCInfo
from pymc_lgm.kernels.theta.metropolis import Metropolis
from pymc_lgm.linalg import Array, tally
from pymc_lgm.state import State, acceptance_probability

__all__ = ["Guided", "GuidedTuning", "guided_hmc"]


def guided_hmc(
    rng: np.random.Generator,
    target: Target,
    *,
    factor: Array,
    step_size: float,
    path_length: float = 1.6,
    max_steps: int = 10,
) -> tuple[State, HMCInfo]:
    """Leave the target invariant by a trajectory that ``target.force`` bends.

    The mass matrix is M = (C Cᵀ)⁻¹. With momentum Cᵀ⁻¹ r, r ~ N(0, I), a step ε is

        theta ← theta + ½ ε C r,   r ← r + ε Cᵀ F(theta),   theta ← theta + ½ ε C r,

    and the end is accepted with probability min(1, π(theta') / π(theta) exp(½ |r|² − ½ |r'|²)).

    Parameters
    ----------
    rng : numpy.random.Generator
    target : Target
        With ``force``. It may be noisy.
    factor : ndarray, shape (p, p)
        C: a square root of the covariance that theta is thought to have.
    step_size : float
        ε, in units of C; each trajectory takes a random share of it, at least 0.7.
    path_length : float
        Of a trajectory, in units of C: about a quarter of an orbit.
    max_steps : int

    Returns
    -------
    State, HMCInfo
        The same state if the end is rejected, or where there is no force on the way: the way back
        would come there too. One evaluation of the target, and a force for each step.
    """
    assert target.force is not None, "a target without a force: use metropolis"
    state = target.state
    steps = min(math.ceil(path_length / step_size), max_steps)
    step = step_size * rng.uniform(0.7, 1.0)
    r_start = r = rng.standard_normal(state.theta.size)

    theta = state.theta + 0.5 * step * (factor @ r)
    for taken in range(1, steps + 1):
        force = target.force(theta)
        if force is None:
            tally.numerical_rejections += 1
            return state, HMCInfo(0.0, taken)
        r = r + step * (factor.T @ force)
        theta = theta + (step if taken < steps else 0.5 * step) * (factor @ r)

    log_density, proposed = target(theta)
    log_ratio = log_density - target.log_density + 0.5 * float(r_start @ r_start - r @ r)
    info = HMCInfo(acceptance_probability(log_ratio), steps)
    if proposed is not None and rng.uniform() < info.theta_acceptance:
        return proposed, info
    return state, info


WALK = 20
"""Draws of a random walk, which come nearer to where forces are not steep."""


FIRST = 100
"""Draws before a mass matrix is learnt: those on the way from the start say little of it."""


LONGEST = 1.5
"""Of the step sizes: about a whole trajectory."""


class GuidedTuning(NamedTuple):
    """What `Guided` learns: a random walk for the beginning, a step size, a mass matrix.

    C Cᵀ is the covariance of the later two thirds of the chain, drawn towards its diagonal by the
    share p / (p + draws / 5), and made anew each time the draws have grown by half.
    """

    local: ProposalTuning
    step_size: StepSizeTuning
    factor: Array
    chain: tuple[Array, ...]
    next_fit: int

    def learn(self, theta: Array) -> GuidedTuning:
        """Learn from one draw: where the chain is."""
        tuning = self._replace(chain=(*self.chain, theta))
        return tuning if len(tuning.chain) < self.next_fit else tuning.fitted()

    def fitted(self) -> GuidedTuning:
        """Make the mass matrix of the chain so far."""
        past = np.array(self.chain[len(self.chain) // 3 :])
        draws, p = past.shape
        cov = np.atleast_2d(np.cov(past.T))
        own = p / (p + draws / 5)
        cov = (1.0 - own) * cov + own * np.diag(cov.diagonal())
        cov[np.diag_indices(p)] += 1e-6 + 1e-3 * cov.trace() / p
        before = self.step_size
        return self._replace(
            factor=np.linalg.cholesky(cov),
            step_size=StepSizeTuning.start(before.value(False), before.target, LONGEST),
            next_fit=math.ceil(1.5 * len(self.chain)),
        )


@dataclass(frozen=True)
class Guided:
    """HMC by the target's force; a random walk where it has none, and at first."""

    local: Metropolis = field(default_factory=Metropolis)
    target_accept: float = 0.65
    path_length: float = 1.6
    max_steps: int = 10
    stats = ("theta_acceptance", "theta_scale")
    needs_gradient = False

    def start(self, state: State, tune: int) -> GuidedTuning:
        """Walk at first."""
        return self.follow(self.local.start(state, tune), ())

    def follow(self, local: ProposalTuning, chain: tuple[Array, ...]) -> GuidedTuning:
        """Go on with a chain that another move has made."""
        p = local.factor.shape[0]
        step_size = StepSizeTuning.start(0.5 * p**-0.25, self.target_accept, LONGEST)
        tuning = GuidedTuning(local, step_size, np.eye(p), chain, max(FIRST, 3 * p))
        return tuning if len(chain) < tuning.next_fit else tuning.fitted()

    def run(
        self, rng: np.random.Generator, target: Target, tuning: GuidedTuning, tune: bool
    ) -> tuple[State, GuidedTuning, Stats]:
        """Follow one trajectory. Learns from a target with noise, too: its draws are as good."""
        if target.force is None or (tune and len(tuning.chain) < WALK):
            state, local, stats = self.local.run(rng, target, tuning.local, tune)
            tuning = tuning._replace(local=local)
        else:
            state, info = guided_hmc(
                rng,
                target,
                factor=tuning.factor,
                # Shorter steps would make shorter trajectories: where the force is poor, no better.
                step_size=max(tuning.step_size.value(tune), self.path_length / self.max_steps),
                path_length=self.path_length,
                max_steps=self.max_steps,
            )
            stats = {"theta_acceptance": info.theta_acceptance, "theta_scale": tuning.local.scale}
            if tune:
                step_size = tuning.step_size.update(info.theta_acceptance)
                tuning = tuning._replace(step_size=step_size)
        if tune:
            tuning = tuning.learn(state.theta)
        return state, tuning, stats
