"""The element that moves theta if the Gaussian vector is observed."""

from __future__ import annotations

import math

from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_lgm.moves.element import Stats
from pymc_lgm.moves.theta import Move
from pymc_lgm.moves.theta.emulated import is_settled, rounds_of
from pymc_lgm.samplers.sweep import averaged
from pymc_lgm.state import State
from pymc_lgm.targets.exact_marginal import ExactMarginalTarget
from pymc_lgm.targets.sufficient import SufficientTarget

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
        kind = ExactMarginalTarget if self.differentiable else SufficientTarget
        reports = []
        for _ in range(1 if tune else rounds_of(tuning)):
            target = kind.fix(rng, state)
            state, tuning, stats = self.move.run(rng, target, tuning, tune)
            reports.append(stats)
        return state, tuning, averaged(reports)
