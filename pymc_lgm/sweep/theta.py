"""Elements that move theta with something about f held fixed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pymc_lgm.adaptation import ProposalTuning
from pymc_lgm.moves.metropolis import metropolis
from pymc_lgm.parameterizations.sufficient import sufficient
from pymc_lgm.parameterizations.target import Fix
from pymc_lgm.parameterizations.whitened import whitened
from pymc_lgm.state import State
from pymc_lgm.sweep.element import Stats

__all__ = ["PARAMETERIZATIONS", "Metropolis"]

PARAMETERIZATIONS: dict[str, Fix] = {"sufficient": sufficient, "whitened": whitened}
"""Parameterizations by name."""


@dataclass(frozen=True)
class Metropolis:
    """Adaptive random-walk Metropolis on theta in one parameterization."""

    parameterization: str
    target_accept: float | None = None
    scale: float | None = None
    stats = ("theta_acceptance", "theta_scale")

    def start(self, state: State, tune: int) -> ProposalTuning:
        """Begin with the same scale in every direction."""
        return ProposalTuning.start(state.theta.size, self.target_accept, self.scale)

    def run(
        self, rng: np.random.Generator, state: State, tuning: ProposalTuning, tune: bool
    ) -> tuple[State, ProposalTuning, Stats]:
        """Propose once."""
        target = PARAMETERIZATIONS[self.parameterization](rng, state)
        state, info = metropolis(rng, target.state, target, factor=tuning.factor)
        stats = {"theta_acceptance": info.theta_acceptance, "theta_scale": tuning.scale}
        if tune:
            tuning = tuning.update(info.direction, info.theta_acceptance)
        return state, tuning, stats
