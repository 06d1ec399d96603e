"""Elements that move f given theta."""

from __future__ import annotations

import math

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pymc_lgm.adaptation import StepSizeTuning
from pymc_lgm.latent.elliptical_slice import elliptical_slice
from pymc_lgm.latent.hmc import Integrator, Metric, hmc
from pymc_lgm.state import State
from pymc_lgm.sweep.element import Stats

__all__ = ["HMC", "LATENT_MOVES", "EllipticalSlice"]


@dataclass(frozen=True)
class EllipticalSlice:
    """Elliptical slice on f, ``repeats`` times. Nothing to tune, no gradient needed."""

    repeats: int = 1
    stats = ("latent_acceptance", "latent_evaluations")
    needs_gradient = False

    def start(self, state: State, tune: int) -> None:
        """Nothing to learn."""

    def run(
        self, rng: np.random.Generator, state: State, tuning: None, tune: bool
    ) -> tuple[State, None, Stats]:
        """Move f ``repeats`` times."""
        acceptance = evaluations = 0.0
        for _ in range(self.repeats):
            state, info = elliptical_slice(rng, state)
            acceptance += info.latent_acceptance / self.repeats
            evaluations += info.latent_evaluations
        return state, None, {"latent_acceptance": acceptance, "latent_evaluations": evaluations}


@dataclass(frozen=True)
class HMC:
    """HMC on f, ``repeats`` times; its step size learns to be accepted ``target_accept``.

    The number of steps follows the step size ε: up to path_length / ε, and never more than
    ``max_steps``. Under the prior's rotation half a turn is π; a uniform share of 2.4 decorrelates
    the directions that the data say little about, however small the stiff ones keep ε.
    """

    repeats: int = 1
    metric: Metric = "prior"
    integrator: Integrator = "rotation"
    path_length: float = 2.4
    max_steps: int = 100
    step_size: float = 0.2
    target_accept: float = 0.8
    stats = ("latent_acceptance", "latent_evaluations", "latent_step_size")
    needs_gradient = True

    def start(self, state: State, tune: int) -> StepSizeTuning:
        """Begin with ``step_size``."""
        # Half a turn of the prior's rotation goes to the mirror image: more is never needed.
        maximum = math.pi / 2 if self.integrator == "rotation" else math.inf
        return StepSizeTuning.start(self.step_size, self.target_accept, maximum)

    def run(
        self, rng: np.random.Generator, state: State, tuning: StepSizeTuning, tune: bool
    ) -> tuple[State, StepSizeTuning, Stats]:
        """Move f ``repeats`` times."""
        acceptance = evaluations = 0.0
        for _ in range(self.repeats):
            step_size = tuning.value(tune)
            state, info = hmc(
                rng,
                state,
                step_size=step_size,
                max_steps=min(self.max_steps, math.ceil(self.path_length / step_size)),
                metric=self.metric,
                integrator=self.integrator,
            )
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


LATENT_MOVES: dict[str, Callable[..., EllipticalSlice | HMC]] = {
    "hmc": HMC,
    "slice": EllipticalSlice,
}
"""Latent moves by the name that a user writes in ``latent=``."""
