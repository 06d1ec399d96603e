"""Interweaving: in some draws theta moves by a walk that needs no estimate of the evidence.

If an estimate is far too high, a pseudo-marginal chain sticks, because no proposal has one as high.
It also sticks at a theta where the emulator of the evidence, from which jumps are proposed, is far
too low. A whitened random walk has neither problem. After tuning, whether it runs does not depend
on the state, so the combination leaves the posterior invariant.
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
"""Share of draws in which theta moves without estimates.

In 100 rows of the Pima data 0.068 of the posterior lies in a corner of large variances. With this
share and 64 importance draws, the share of the corner in chains of 4000 draws was 0.068 ± 0.017.
Without the walk and with fewer draws it was 0.078 ± 0.036.
"""

SHARE_IF_LOW_NOISE = 0.05
"""Share of draws if estimates are low-noise: few chains then need the walk, which mixes more
slowly. It is a choice."""

IN_A_ROW = 4
"""While the walk is tuned on low-noise estimates, one draw in four makes four steps of it.

A walk moves f, and estimates are then redrawn around f, which takes several times as long as the
walk, in particular if a transport map is inverted. By hand, a draw of tuning took 4.1
factorizations instead of the 6.7 of one step in each draw with 600 nearest neighbors, and 2.9
instead of 4.7 with counts of 100 areas in 20 years.
"""

STUCK = 0.1
"""Acceptance of moves on estimates below which every draw includes the walk. It is a choice."""

Turn = Literal["instead", "beside", "in a row"] | None
"""Whether the walk replaces the move on estimates, follows it, makes `IN_A_ROW` steps after it, or
is left out of this draw."""


class InterweavingTuning(NamedTuple):
    """Tuning of the walk, and the acceptance of moves on estimates while tuning.

    Attributes
    ----------
    walk : any
        The tuning of the walk, or ``None`` if there is no theta.
    total_acceptance : float
        Sum of the acceptance probabilities of these moves.
    draws : int
        Number of draws of tuning.
    """

    walk: Any
    total_acceptance: float = 0.0
    draws: int = 0

    @property
    def always(self) -> bool:
        """Whether the estimates are so noisy that every draw needs the walk."""
        return self.total_acceptance < STUCK * self.draws


@dataclass(frozen=True)
class Interweaving:
    """A walk that moves theta besides moves on estimates, or instead of them.

    In tuning it follows the moves on estimates, on average with one step per draw. After tuning it
    replaces them in one draw of five, or of twenty if estimates are low-noise. If moves on
    estimates were hardly ever accepted in tuning, because no Gaussian q is near the posterior of f,
    it follows them in every draw.
    """

    walk: Theta

    def start(self, state: State, tune: int) -> InterweavingTuning:
        """Return the tuning with which a chain begins."""
        return InterweavingTuning(self.walk.start(state, tune) if state.theta.size else None)

    def turn(
        self, rng: np.random.Generator, tuning: InterweavingTuning, tune: bool, low_noise: bool
    ) -> Turn:
        """Draw whether to walk in this draw; less often if estimates are low-noise."""
        if tuning.walk is None:
            return None
        if tune and low_noise:
            return "in a row" if rng.uniform() < 1.0 / IN_A_ROW else None
        if tune or tuning.always:
            return "beside"
        share = SHARE_IF_LOW_NOISE if low_noise else SHARE
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
            total = tuning.total_acceptance + stats["theta_acceptance"]
            tuning = tuning._replace(total_acceptance=total, draws=tuning.draws + 1)
        if turn is None:
            return state, tuning, stats
        for _ in range(IN_A_ROW if turn == "in a row" else 1):
            state, walk, walked = self.walk.run(rng, state, tuning.walk, tune)
            tuning = tuning._replace(walk=walk)
        if turn == "instead":
            # The other statistics, such as the scale, belong to the move on estimates.
            stats |= {"theta_evaluations": 1.0, "theta_acceptance": walked["theta_acceptance"]}
        return state, tuning, stats
