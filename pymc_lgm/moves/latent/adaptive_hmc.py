"""HMC on f with the prior's covariance as metric, or the posterior's if the prior is too wide.

In the metric K the step size is the width of the narrowest direction of f's posterior in units of
the prior. If a level has a prior standard deviation of 1000 and a posterior one of 0.1, steps are
1e-4 long and trajectories hardly move. The kernels are those of `hmc` and of `curvature_hmc`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pymc_lgm.adaptation import StepSizeTuning
from pymc_lgm.moves.element import Stats
from pymc_lgm.moves.latent.curvature_hmc import CurvatureHMC
from pymc_lgm.moves.latent.hmc import HMC
from pymc_lgm.state import State

__all__ = ["AdaptiveHMC", "AdaptiveHMCTuning"]

JUDGED = 50
"""Draws of tuning after which the metric is chosen; dual averaging has then found the scale."""


class AdaptiveHMCTuning(NamedTuple):
    """Which metric, and the step size in it."""

    step_size: StepSizeTuning
    draws: int = 0
    by_curvature: bool = False


@dataclass(frozen=True)
class AdaptiveHMC:
    """HMC in the metric K; from early in tuning on in (K⁻¹ + W)⁻¹ if K needs short steps.

    Steps are short if ``max_steps`` of them do not reach the path length.
    """

    repeats: int = 1
    stats = HMC.stats
    needs_gradient, needs_curvature, needs_metric = True, False, False

    def start(self, state: State, tune: int) -> AdaptiveHMCTuning:
        """Begin in the metric K."""
        return AdaptiveHMCTuning(HMC().start(state, tune))

    def run(
        self, rng: np.random.Generator, state: State, tuning: AdaptiveHMCTuning, tune: bool
    ) -> tuple[State, AdaptiveHMCTuning, Stats]:
        """Move f ``repeats`` times; choose the metric once, in tuning."""
        move = (CurvatureHMC if tuning.by_curvature else HMC)(self.repeats)
        state, step_size, stats = move.run(rng, state, tuning.step_size, tune)
        if tune:
            tuning = AdaptiveHMCTuning(step_size, tuning.draws + 1, tuning.by_curvature)
            is_short = step_size.value(False) * HMC.max_steps < HMC.path_length
            other = CurvatureHMC()
            # If (K⁻¹ + W)⁻¹ is not found, f would not move in it.
            if tuning.draws == JUDGED and is_short and state.at.approximation(other.search):
                tuning = AdaptiveHMCTuning(other.start(state, 0), JUDGED, True)
        return state, tuning, stats
