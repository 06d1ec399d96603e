"""The element that moves theta where f is what is observed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_lgm.kernels.hold.exact_marginal import exact_marginal
from pymc_lgm.kernels.sweep import Stats
from pymc_lgm.kernels.theta import Move
from pymc_lgm.state import State

__all__ = ["ExactMarginal"]


@dataclass(frozen=True)
class ExactMarginal:
    """One move on theta; f stays as it is."""

    move: Move
    differentiable: bool

    @property
    def stats(self) -> tuple[str, ...]:
        """Those of the move."""
        return self.move.stats

    def start(self, state: State, tune: int) -> Any:
        """Begin as the move does."""
        return self.move.start(state, tune)

    def run(
        self, rng: np.random.Generator, state: State, tuning: Any, tune: bool
    ) -> tuple[State, Any, Stats]:
        """Move theta once."""
        target = exact_marginal(rng, state, differentiable=self.differentiable)
        return self.move.run(rng, target, tuning, tune)
