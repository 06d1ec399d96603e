"""Surrogate transition: many moves on an emulator of the target, accepted or rejected as one.

Liu (2001), *Monte Carlo Strategies in Scientific Computing*, §9.4.3: moves that leave an
approximation of the target invariant make a proposal whose ratio is that of the approximation.
"""

from __future__ import annotations

import math

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pymc_lgm.approximations.emulator import Emulator
from pymc_lgm.linalg import Array
from pymc_lgm.parameterizations.target import Target
from pymc_lgm.state import LatentGaussian, State, acceptance_probability

__all__ = ["SurrogateTransitionInfo", "surrogate_transition"]


class SurrogateTransitionInfo(NamedTuple):
    """What one proposal reports."""

    theta_acceptance: float
    """Acceptance probability of the proposal."""

    emulated_acceptance: float
    """Mean acceptance probability of the trajectories that made it."""


def surrogate_transition(
    rng: np.random.Generator,
    state: State,
    target: Target,
    *,
    emulator: Emulator,
    step_size: float,
    n_steps: int = 4,
    n_trajectories: int = 3,
) -> tuple[State, SurrogateTransitionInfo]:
    """Leave the target π invariant by a proposal that a chain on an emulator π* of it makes.

    π*(theta) = p*(y | theta) p(theta). From theta run HMC trajectories that leave π* invariant.
    Each satisfies detailed balance and all are alike, so theta' comes from theta as often as
    theta from theta' but for the ratio π*(theta')/π*(theta), and it is accepted with probability

        min(1, π(theta') π*(theta) / (π(theta) π*(theta'))).

    Parameters
    ----------
    rng : numpy.random.Generator
    state : State
    target : Target
        Fixed at ``state``.
    emulator : Emulator
        Any one that does not depend on the chain: frozen after tuning.
    step_size : float
        Of the leapfrog steps in the emulator's coordinates; each trajectory takes a random share
        of it, at least 0.6.
    n_steps, n_trajectories : int

    Returns
    -------
    State, SurrogateTransitionInfo
        One evaluation of the target, and O(M p + m²) for each step on the emulator.
    """
    surrogate = _Surrogate(emulator, state.model)
    here = start = surrogate.at(emulator.coordinates(state.theta))
    total = 0.0
    for _ in range(n_trajectories):
        momentum = rng.standard_normal(here.z.size)
        step = step_size * rng.uniform(0.6, 1.0)
        there, end = surrogate.trajectory(here, momentum, step, n_steps)
        change = there.log_density - here.log_density
        log_ratio = change + 0.5 * float(momentum @ momentum - end @ end)
        acceptance = acceptance_probability(log_ratio) if log_ratio < math.inf else 0.0
        total += acceptance
        if rng.uniform() < acceptance:
            here = there
    emulated = total / n_trajectories
    if here is start:
        return state, SurrogateTransitionInfo(0.0, emulated)
    log_density, proposed = target(emulator.theta(here.z))
    log_ratio = log_density - target.log_density - (here.log_density - start.log_density)
    info = SurrogateTransitionInfo(acceptance_probability(log_ratio), emulated)
    if proposed is not None and rng.uniform() < info.theta_acceptance:
        return proposed, info
    return state, info


class _Point(NamedTuple):
    z: Array
    log_density: float
    gradient: Array


@dataclass(frozen=True, eq=False)
class _Surrogate:
    """log π* in the emulator's coordinates."""

    emulator: Emulator
    model: LatentGaussian

    def at(self, z: Array) -> _Point:
        return self._point(z, *self._surface(z))

    def trajectory(
        self, point: _Point, momentum: Array, step: float, n_steps: int
    ) -> tuple[_Point, Array]:
        """Leapfrog: where it ends and the momentum there. On the way gradients are enough."""
        z, gradient = point.z, point.gradient
        for _ in range(n_steps):
            half = momentum + 0.5 * step * gradient
            z = z + step * half
            theta, log_evidence, gradient = self._surface(z)
            momentum = half + 0.5 * step * gradient
            if not np.isfinite(momentum).all():
                break
        return self._point(z, theta, log_evidence, gradient), momentum

    def _surface(self, z: Array) -> tuple[Array, float, Array]:
        """Theta, log p*(y | theta), and the gradient of log π* in z."""
        log_evidence, gradient = self.emulator.log_evidence(z)
        theta = self.emulator.theta(z)
        of_prior = self.emulator.root.T @ self.model.log_prior_gradient(theta)
        return theta, log_evidence, gradient + of_prior

    def _point(self, z: Array, theta: Array, log_evidence: float, gradient: Array) -> _Point:
        return _Point(z, log_evidence + self.model.log_prior(theta), gradient)
