"""Interweaving: in some draws theta moves by a walk that needs no estimate of the evidence.

If an estimate is far too high, a pseudo-marginal chain sticks, because no proposal has one as high.
It also sticks at a theta where the emulator is far too low. A whitened random walk has neither
problem. Whether it runs does not depend on the state, so the combination leaves the posterior
invariant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from pymc_lgm.moves.element import Stats
from pymc_lgm.samplers.gibbs import Theta
from pymc_lgm.state import State

__all__ = ["Interweaving", "InterweavingTuning"]

SHARE = 0.2
"""Share of draws in which theta moves without estimates."""

SHARE_OF_QUIET = 0.05
"""The same if estimates are low-noise: then few chains need the walk, which mixes more slowly."""

IN_A_ROW = 4
"""While the walk is tuned on low-noise estimates, one draw in four makes four steps of it.

A walk moves f, and estimates are then redrawn around f, which takes several times as long as the
walk, in particular if a transport map is inverted. By hand, a draw of tuning on estimates took 4.1
factorizations instead of 6.7 with 600 nearest neighbors, and 2.9 instead of 4.7 with counts of 100
areas in 20 years.
"""

STUCK = 0.1
"""Acceptance of moves on estimates below which every draw includes the walk."""

Turn = Literal["instead", "beside", "in a row"] | None
"""Whether the walk replaces the move on estimates, follows it, makes `IN_A_ROW` steps after it, or
is left out of this draw."""


class InterweavingTuning(NamedTuple):
    """Tuning of the walk, and the acceptance of moves on estimates."""

    walk: Any
    acceptance: float = 0.0
    draws: int = 0

    @property
    def always(self) -> bool:
        """Whether the estimates are so noisy that every draw needs the walk."""
        return self.acceptance < STUCK * self.draws


@dataclass(frozen=True)
class Interweaving:
    """A walk after moves on estimates in tuning; later instead of one draw in five, or in twenty.

    In tuning there are as many steps of the walk as draws. If moves on estimates were hardly ever
    accepted in tuning, because no Gaussian q is near the posterior of f, the walk runs in every
    draw.
    """

    walk: Theta

    def start(self, state: State, tune: int) -> InterweavingTuning:
        """Begin as the walk does."""
        return InterweavingTuning(self.walk.start(state, tune) if state.theta.size else None)

    def turn(
        self, rng: np.random.Generator, tuning: InterweavingTuning, tune: bool, quiet: bool
    ) -> Turn:
        """Draw whether to walk in this draw; less often if estimates are low-noise (``quiet``)."""
        if tuning.walk is None:
            return None
        if tune and quiet:
            return "in a row" if rng.uniform() < 1.0 / IN_A_ROW else None
        if tune or tuning.always:
            return "beside"
        share = SHARE_OF_QUIET if quiet else SHARE
        return "instead" if rng.uniform() < share else None

    def run(
        self,
        rng: np.random.Generator,
        state: State,
        tuning: InterweavingTuning,
        turn: Turn,
        tune: bool,
        stats: Stats,
    ) -> tuple[State, InterweavingTuning, Stats]:
        """Walk if this draw includes it; ``stats`` are those of the move on estimates."""
        if tune:
            acceptance = tuning.acceptance + stats["theta_acceptance"]
            tuning = tuning._replace(acceptance=acceptance, draws=tuning.draws + 1)
        if turn is None:
            return state, tuning, stats
        for _ in range(IN_A_ROW if turn == "in a row" else 1):
            state, walk, walked = self.walk.run(rng, state, tuning.walk, tune)
            tuning = tuning._replace(walk=walk)
        if turn == "instead":
            # Leave out its scale: it belongs to another walk.
            stats |= {"theta_evaluations": 1.0, "theta_acceptance": walked["theta_acceptance"]}
        return state, tuning, stats
