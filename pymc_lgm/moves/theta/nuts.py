"""The No-U-Turn sampler on an approximate evidence, made exact by one estimate at its end.

Liu (2001), *Monte Carlo strategies in scientific computing*, §9.4.3: moves that leave an
approximation of the target invariant make a proposal whose ratio is that of the approximation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pymc_lgm.adaptation import MetricTuning, StepSizeTuning
from pymc_lgm.linalg import Array, tally
from pymc_lgm.moves.element import Stats
from pymc_lgm.moves.theta.no_u_turn import no_u_turn
from pymc_lgm.moves.theta.prior_jump import prior_jump
from pymc_lgm.state import State, acceptance_probability
from pymc_lgm.targets.target import Slope, Target

__all__ = ["NUTS", "NUTSInfo", "NUTSTuning", "nuts"]

FIRST = 30
"""Number of draws at the beginning of tuning with short trajectories.

Nothing is known yet about the mass matrix, and long trajectories of short steps would cost more
than all others.
"""

SHALLOW = 4
"""Most doublings of a trajectory in these draws: 15 steps."""

SHORTEST = 0.1
"""Smallest step size once there is a mass matrix. The rule asks for shorter ones if the log density
is rough, where they do not help."""


class NUTSInfo(NamedTuple):
    """Statistics of one transition."""

    theta_acceptance: float
    """Acceptance probability of its end in the target."""

    theta_steps: int
    """Leapfrog steps, each with an evaluation of the slope."""

    leapfrog_acceptance: float
    """Mean over the points of the trajectory of the probability to accept them by Metropolis."""


def nuts(
    rng: np.random.Generator,
    target: Target,
    *,
    factor: Array,
    step_size: float,
    max_depth: int = 7,
    n_jumps: int = 0,
) -> tuple[State, NUTSInfo]:
    """Leave the target π invariant by a trajectory along the slope of an approximation π* of it.

    `no_u_turn` and `prior_jump` leave π* invariant and are reversible for it, and so are the two in
    an order that a coin says: theta' comes from theta as often as theta from theta', except for the
    ratio π*(theta')/π*(theta). It is accepted with probability

        min(1, π(theta') π*(theta) / (π(theta) π*(theta'))).

    Parameters
    ----------
    rng : numpy.random.Generator
    target : Target
        π, with the ``slope`` of π*. It may be noisy.
    factor, step_size, max_depth
        As in `no_u_turn`.
    n_jumps : int
        Jumps before or after the trajectory.

    Returns
    -------
    State, NUTSInfo
        The same state if the end is rejected or π* has no slope. Costs one evaluation of the
        target, and a slope for each leapfrog step and each jump.
    """
    state = target.state
    here = target.slope(state.theta)
    if here is None:  # nor can a trajectory come here
        tally.numerical_rejections += 1
        return state, NUTSInfo(0.0, 1, 0.0)
    there = here
    jumps_first = n_jumps > 0 and rng.uniform() < 0.5
    if jumps_first:
        there = _jumped(rng, there, target, n_jumps)
    there, steps, leapfrog_acceptance = no_u_turn(
        rng, there, target.slope, factor=factor, step_size=step_size, max_depth=max_depth
    )
    if not jumps_first:
        there = _jumped(rng, there, target, n_jumps)
    if there is here:
        return state, NUTSInfo(0.0, steps, leapfrog_acceptance)
    log_density, proposed = target.evaluate(there.theta)
    log_ratio = log_density - target.log_density - (there.log_density - here.log_density)
    info = NUTSInfo(acceptance_probability(log_ratio), steps, leapfrog_acceptance)
    if proposed is not None and rng.uniform() < info.theta_acceptance:
        return proposed, info
    return state, info


def _jumped(rng: np.random.Generator, point: Slope, target: Target, n_jumps: int) -> Slope:
    for _ in range(n_jumps):
        point = prior_jump(rng, point, target.slope, target.state.model.prior_density)
    return point


class NUTSTuning(NamedTuple):
    """Tuning of `NUTS`: a mass matrix and a step size.

    The mass matrix is renewed during the first nine tenths of tuning; the rest tunes the step size.
    """

    metric: MetricTuning
    step_size: StepSizeTuning
    last_fit: int

    def learn(self, here: Slope, acceptance: float) -> NUTSTuning:
        """Learn from the state of one draw and the acceptance of its leapfrog steps."""
        step_size = self.step_size.update(acceptance)
        if self.metric.draws >= self.last_fit:
            return self._replace(step_size=step_size)
        metric = self.metric.update(here.theta, here.gradient)
        if metric.factor is not self.metric.factor:
            # Steps shorter than `SHORTEST` were never taken, even if the rule asked for them.
            begin = max(step_size.value(True), SHORTEST)
            step_size = StepSizeTuning.start(begin, step_size.target)
        return self._replace(metric=metric, step_size=step_size)


@dataclass(frozen=True)
class NUTS:
    """The No-U-Turn sampler along the target's slope, and jumps of single components."""

    target_accept: float = 0.7
    max_depth: int = 7
    n_jumps: int = 3
    stats = ("theta_acceptance", "theta_scale", "theta_steps")
    needs_gradient = False

    def start(self, state: State, tune: int) -> NUTSTuning:
        """Begin with steps that suit a unit Gaussian."""
        p = state.theta.size
        step_size = StepSizeTuning.start(0.5 * p**-0.25, self.target_accept)
        return NUTSTuning(MetricTuning.start(p), step_size, 9 * tune // 10)

    def run(
        self, rng: np.random.Generator, target: Target, tuning: NUTSTuning, tune: bool
    ) -> tuple[State, NUTSTuning, Stats]:
        """Follow one trajectory. It learns from a noisy target too: its slope has no noise."""
        here = target.slope(target.state.theta)
        if tune and tuning.metric.draws == 0 and here is not None:
            tuning = tuning._replace(metric=tuning.metric.at(here.gradient))
        metric = tuning.metric
        step_size = tuning.step_size.value(tune)
        unknown = metric.draws < FIRST
        # A slope is rough if the search for q ends at varying points: the density jumps by as much
        # as its tolerance allows.
        rough = not unknown and step_size < SHORTEST
        step_size = SHORTEST if rough else step_size
        state, info = nuts(
            rng,
            target,
            factor=metric.factor,
            step_size=step_size,
            max_depth=SHALLOW if rough or (tune and unknown) else self.max_depth,
            n_jumps=self.n_jumps,
        )
        end = target.slope(state.theta)
        if tune and end is not None:
            tuning = tuning.learn(end, info.leapfrog_acceptance)
        stats = {
            "theta_acceptance": info.theta_acceptance,
            "theta_scale": step_size * metric.scale,
            "theta_steps": info.theta_steps,
        }
        return state, tuning, stats
