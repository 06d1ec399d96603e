"""The element that moves theta on the approximate evidence, in all phases."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pymc_lgm.moves.element import Stats
from pymc_lgm.samplers.marginal import Marginal, MarginalTuning
from pymc_lgm.state import State

__all__ = ["ApproximateMarginal"]


@dataclass(frozen=True)
class ApproximateMarginal(Marginal):
    """One move of theta on q's evidence, then a draw of f by importance weight. Not exact."""

    @property
    def stats(self) -> tuple[str, ...]:
        """The statistics of `Marginal`, and the approximate evidence, from which weights follow."""
        return (*super().stats, "approximate_log_evidence")

    def _sample(
        self, rng: np.random.Generator, state: State, tuning: MarginalTuning, tune: bool
    ) -> tuple[State, MarginalTuning, Stats]:
        N = tuning.noise.n_importance
        return self._approximately(rng, state, tuning, N, draws_f=True, tune=tune)
