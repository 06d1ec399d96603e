"""Base classes of moves of f given theta: repeats, and a step size that tuning adapts.

A move with a step size derives from `Stepping` and writes `_move`. A move along trajectories
derives from `Trajectories`, which also chooses the number of steps.
"""

from __future__ import annotations

import math

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import numpy as np

from pymc_lgm.adaptation import StepSizeTuning
from pymc_lgm.linalg import Array, tally
from pymc_lgm.moves.element import Element, Stats
from pymc_lgm.moves.leapfrog import Drift, rotation, straight
from pymc_lgm.state import State, acceptance_probability

__all__ = [
    "DRIFTS",
    "Force",
    "Info",
    "Integrator",
    "LatentMove",
    "Stepping",
    "Trajectories",
    "accept",
]

Integrator = Literal["rotation", "leapfrog"]

LEAST_STEP = 1e-10
"""Smallest step size. If every proposal is rejected, tuning would let it underflow to 0, by which
the number of steps is divided."""


class LatentMove(Element, Protocol):
    """An element that moves f alone, with the derivatives that it needs of the likelihood."""

    @property
    def needs_gradient(self) -> bool:
        """Whether it needs ∂ℓ/∂f."""

    @property
    def needs_curvature(self) -> bool:
        """Whether it needs −∂²ℓ/∂f²."""

    @property
    def needs_metric(self) -> bool:
        """Whether it needs −∂²ℓ/∂f² ≥ 0 at every f as a metric, and the derivative of that."""


class Info(NamedTuple):
    """Statistics of one move of f."""

    latent_acceptance: float
    """Acceptance probability of the proposal, or of the end of a trajectory. An elliptical slice
    reports 1 / the number of points tried."""

    latent_evaluations: int
    """Evaluations of the likelihood, with the derivatives that the move needs."""


class Force(NamedTuple):
    """A point of a trajectory: f, ℓ(f), and the change of the momentum per unit of time there."""

    f: Array
    log_likelihood: float
    kick: Array


DRIFTS: dict[Integrator, Callable[[float], Drift]] = {"rotation": rotation, "leapfrog": straight}
"""Motion between two kicks, by the integrator's name: step size -> (x, r) -> (x, r)."""


def accept(
    rng: np.random.Generator, state: State, end: Force | None, log_ratio: float, evaluations: int
) -> tuple[State, Info]:
    """Take a proposal, such as the end of a trajectory, with probability min(1, exp(log_ratio)).

    If ``end`` is ``None`` or the ratio is not finite, a value on the way was not finite. The
    proposal is rejected, and counted in `pymc_lgm.linalg.tally`.
    """
    if end is None or not math.isfinite(log_ratio):
        tally.numerical_rejections += 1
        return state, Info(0.0, evaluations)
    acceptance = acceptance_probability(log_ratio)
    if rng.uniform() < acceptance:
        state = state.with_f(end.f, end.log_likelihood) or state
    return state, Info(acceptance, evaluations)


@dataclass(frozen=True)
class Stepping:
    """A kernel that runs ``repeats`` times per draw, with an adapted step size.

    Attributes
    ----------
    repeats : int
    step_size : float
        Where tuning begins.
    target_accept : float
        Mean acceptance probability that tuning aims at. By default 0.8, as in PyMC's NUTS.
    """

    repeats: int = 1
    step_size: float = 0.2
    target_accept: float = 0.8
    stats = ("latent_acceptance", "latent_evaluations", "latent_step_size")
    needs_gradient, needs_curvature, needs_metric = True, False, False

    def start(self, state: State, tune: int) -> StepSizeTuning:
        """Begin with ``step_size``."""
        return StepSizeTuning.start(self.step_size, self.target_accept, self._maximum(state))

    def run(
        self, rng: np.random.Generator, state: State, tuning: StepSizeTuning, tune: bool
    ) -> tuple[State, StepSizeTuning, Stats]:
        """Move f ``repeats`` times."""
        acceptance = evaluations = 0.0
        for _ in range(self.repeats):
            step_size = max(tuning.value(tune), LEAST_STEP)
            state, info = self._move(rng, state, step_size)
            if tune:
                tuning = tuning.update(info.latent_acceptance)
            acceptance += info.latent_acceptance / self.repeats
            evaluations += info.latent_evaluations
        return (
            state,
            tuning,
            {
                "latent_acceptance": acceptance,
                "latent_evaluations": evaluations,
                "latent_step_size": step_size,
            },
        )

    def _maximum(self, state: State) -> float:
        """Largest useful step size."""
        return math.inf

    def _move(self, rng: np.random.Generator, state: State, step_size: float) -> tuple[State, Info]:
        raise NotImplementedError


@dataclass(frozen=True)
class Trajectories(Stepping):
    """HMC on f with 1 to ``path_length`` / ε steps of size ε, uniformly.

    So the length does not depend on ε, which stiff directions may require to be small. Directions
    that the data do not determine rotate by about an angle t, uniform up to 2.4. Successive values
    then have the correlation E cos t = 0.28, and their squares E cos² t = 0.40; its minimum over
    the largest angle is 0.39, at 2.25. A longer path costs more gradients. ``max_steps`` bounds the
    cost of a draw: below ε = 0.024 the path is shorter.
    """

    integrator: Integrator = "rotation"
    path_length: float = 2.4
    max_steps: int = 100

    def _maximum(self, state: State) -> float:
        # A quarter turn replaces f by the momentum, which is independent of it: more is not needed.
        return math.pi / 2 if self.integrator == "rotation" else math.inf

    def _most(self, step_size: float) -> int:
        """Largest number of steps of a trajectory."""
        return min(self.max_steps, math.ceil(self.path_length / step_size))
