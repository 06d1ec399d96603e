"""Interweaving: some of the draws move theta by a walk that needs no estimate of the evidence.

An estimate that is much too high keeps a pseudo-marginal chain where it is, because no proposal
has one as high; a theta where the emulator is much too low is left as seldom. A whitened random
walk has neither trouble. Which of the two moves theta does not depend on the state, so both leave
the posterior invariant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from pymc_lgm.kernels.held import Theta
from pymc_lgm.kernels.sweep import Stats
from pymc_lgm.state import State

__all__ = ["Interweaving", "InterweavingTuning"]

SHARE, SHARE_OF_QUIET = 0.2, 0.05
"""Share of the draws in which theta moves without estimates, and where they have little noise."""

STUCK = 0.1
"""Acceptance of moves on estimates under which theta moves without them in every draw."""

Turn = Literal["instead", "beside"] | None
"""In place of the move on estimates, after it, or not in this draw."""


class InterweavingTuning(NamedTuple):
    """What is learnt of the walk, and how often moves on estimates were accepted."""

    walk: Any
    acceptance: float = 0.0
    draws: int = 0

    @property
    def always(self) -> bool:
        """Whether the estimates are so noisy that every draw needs the walk."""
        return self.acceptance < STUCK * self.draws


@dataclass(frozen=True)
class Interweaving:
    """A walk beside each move on estimates in tuning; then in one draw of five, or of twenty.

    In every draw where tuning has seen that moves on estimates are hardly ever accepted, since no
    Gaussian q is near the posterior of f.
    """

    walk: Theta

    def start(self, state: State, tune: int) -> InterweavingTuning:
        """Begin as the walk does."""
        return InterweavingTuning(self.walk.start(state, tune) if state.theta.size else None)

    def turn(
        self, rng: np.random.Generator, tuning: InterweavingTuning, tune: bool, quiet: bool
    ) -> Turn:
        """Draw whether this draw has the walk; less often where estimates are ``quiet``."""
        if tuning.walk is None:
            return None
        if tune or tuning.always:
            return "beside"
        return "instead" if rng.uniform() < (SHARE_OF_QUIET if quiet else SHARE) else None

    def run(
        self,
        rng: np.random.Generator,
        state: State,
        tuning: InterweavingTuning,
        turn: Turn,
        tune: bool,
        stats: Stats,
    ) -> tuple[State, InterweavingTuning, Stats]:
        """Walk if it is its turn; ``stats`` are those of the move on estimates."""
        if turn is None:
            return state, tuning, stats
        state, walk, walked = self.walk.run(rng, state, tuning.walk, tune)
        if turn == "instead":
            # Not its scale, which is another walk's.
            stats |= {"theta_evaluations": 1.0, "theta_acceptance": walked["theta_acceptance"]}
        if tune:
            acceptance = tuning.acceptance + stats["theta_acceptance"]
            tuning = InterweavingTuning(walk, acceptance, tuning.draws + 1)
        return state, tuning, stats
