"""Hamiltonian Monte Carlo on theta, for any target with a gradient.

Filippone, Zhong and Girolami (2012), §4.3, Algorithm 3 (the factor of M⁻¹ is given), applied to
theta in §5.2.2 and §5.2.3; Neal (1993) for the random number of steps.
"""

from __future__ import annotations

import math

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pymc_lgm.adaptation import StepSizeTuning
from pymc_lgm.linalg import Array, tally
from pymc_lgm.moves.element import Stats
from pymc_lgm.moves.leapfrog import leapfrog
from pymc_lgm.state import State, acceptance_probability
from pymc_lgm.targets.target import Target

__all__ = ["HMCInfo", "ThetaHMC", "hmc"]


class HMCInfo(NamedTuple):
    """Statistics of one trajectory."""

    theta_acceptance: float
    """Acceptance probability of its end point."""

    theta_evaluations: int
    """Points at which the target was evaluated."""


def hmc(
    rng: np.random.Generator,
    target: Target,
    *,
    factor: Array,
    step_size: float,
    max_steps: int = 10,
) -> tuple[State, HMCInfo]:
    """Leave the target invariant by following Hamilton's equations for a few leapfrog steps.

    The mass matrix is M = (C Cᵀ)⁻¹. With momentum Cᵀ⁻¹ r, r ~ N(0, I), a step ε is

        r ← r + ½ ε Cᵀ∇,   theta ← theta + ε C r,   r ← r + ½ ε Cᵀ∇,

    and −log density + ½ |r|² changes by its error alone.

    Parameters
    ----------
    rng : numpy.random.Generator
    target : Target
        With ``gradient``.
    factor : ndarray, shape (p, p)
        C: a square root of the covariance that theta is thought to have.
    step_size : float
        ε, in units of C.
    max_steps : int
        Each trajectory takes 1 to ``max_steps`` steps, uniformly: no periodic orbit survives.

    Returns
    -------
    State, HMCInfo
        The same state if the end point is rejected. For N steps N evaluations of the target and
        N + 1 of its gradient; f moves along as the parameterization says.

    Notes
    -----
    A trajectory that reaches a point without a density or a finite gradient is rejected. This is
    exact, since the reversed trajectory would reach the same point.
    """
    state, gradient = target.state, target.gradient
    r_start = rng.standard_normal(state.theta.size)
    steps = int(rng.integers(1, max_steps, endpoint=True))

    def at(state: State, log_density: float) -> _Point:
        return _Point(state, log_density, factor.T @ gradient(state))

    def force(theta: Array) -> _Point | None:
        log_density, proposed = target.evaluate(theta)
        if proposed is None:
            return None
        there = at(proposed, log_density)
        if math.isfinite(log_density) and np.isfinite(there.kick).all():
            return there
        tally.numerical_rejections += 1
        return None

    _, r, end, evaluations = leapfrog(
        state.theta,
        r_start,
        at(state, target.log_density),
        step_size=step_size,
        steps=steps,
        drift=lambda theta, r: (theta + step_size * (factor @ r), r),
        force=force,
    )
    if end is None:
        return state, HMCInfo(0.0, evaluations)
    log_ratio = end.log_density - target.log_density + 0.5 * float(r_start @ r_start - r @ r)
    info = HMCInfo(acceptance_probability(log_ratio), evaluations)
    return (end.state if rng.uniform() < info.theta_acceptance else state), info


class _Point(NamedTuple):
    state: State
    log_density: float
    kick: Array


@dataclass(frozen=True)
class ThetaHMC:
    """HMC on theta; learns the step size, the mass matrix is I."""

    max_steps: int = 10
    step_size: float = 0.1
    target_accept: float = 0.8
    stats = ("theta_acceptance", "theta_evaluations", "theta_step_size")
    needs_gradient = True
    tunes = "step_size"

    def start(self, state: State, tune: int) -> StepSizeTuning:
        """Begin with ``step_size``."""
        return StepSizeTuning.start(self.step_size, self.target_accept)

    def run(
        self, rng: np.random.Generator, target: Target, tuning: StepSizeTuning, tune: bool
    ) -> tuple[State, StepSizeTuning, Stats]:
        """Follow one trajectory."""
        step_size = tuning.value(tune)
        state, info = hmc(
            rng,
            target,
            factor=np.eye(target.state.theta.size),
            step_size=step_size,
            max_steps=self.max_steps,
        )
        if tune:
            tuning = tuning.update(info.theta_acceptance)
        return state, tuning, info._asdict() | {"theta_step_size": step_size}
