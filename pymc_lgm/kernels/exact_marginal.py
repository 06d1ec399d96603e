"""The element that moves theta if the Gaussian vector is observed."""

from __future__ import annotations

import math

from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_lgm.kernels.hold.exact_marginal import exact_marginal
from pymc_lgm.kernels.sweep import Stats, averaged
from pymc_lgm.kernels.theta import Move
from pymc_lgm.kernels.theta.emulated import is_settled, rounds_of
from pymc_lgm.state import State

__all__ = ["ExactMarginal"]


@dataclass(frozen=True)
class ExactMarginal:
    """One or several moves on theta, depending on the quality of the emulator; f does not change.

    ``rests`` (early stopping) is for a step that moves all variables: once tuning has nothing left
    to learn, its remaining draws repeat the current state.
    """

    move: Move
    differentiable: bool
    rests: bool = False

    @property
    def stats(self) -> tuple[str, ...]:
        """Statistics of the move."""
        return self.move.stats

    def start(self, state: State, tune: int) -> Any:
        """Begin as the move does."""
        return self.move.start(state, tune)

    def run(
        self, rng: np.random.Generator, state: State, tuning: Any, tune: bool
    ) -> tuple[State, Any, Stats]:
        """Move theta, while the move is tuned once."""
        if tune and self.rests and is_settled(tuning):
            return state, tuning, dict.fromkeys(self.stats, math.nan)
        reports = []
        for _ in range(1 if tune else rounds_of(tuning)):
            target = exact_marginal(rng, state, differentiable=self.differentiable)
            state, tuning, stats = self.move.run(rng, target, tuning, tune)
            reports.append(stats)
        return state, tuning, averaged(reports)
