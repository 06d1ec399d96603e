"""The element of a sweep that moves theta with f integrated out by importance sampling, exactly.

The base class, in `pymc_lgm.samplers.marginal`, has the phases of tuning. That module defines the
words *move*, *noise*, *low-noise* and *line*. `pymc_lgm.targets.pseudo_marginal` estimates the
evidence, and cites the papers.
"""

from __future__ import annotations

import math

from dataclasses import dataclass

import numpy as np

from pymc_lgm.approximations.gaussian import GaussianApproximation
from pymc_lgm.approximations.recall import LineSearch
from pymc_lgm.moves.element import Stats
from pymc_lgm.moves.theta.emulated import rounds_of
from pymc_lgm.samplers.interweaving import Interweaving
from pymc_lgm.samplers.marginal import Marginal, MarginalTuning
from pymc_lgm.samplers.sweep import averaged
from pymc_lgm.state import State
from pymc_lgm.targets.pseudo_marginal import (
    PseudoMarginalTarget,
    draw_latent,
    estimated,
    proposal_at,
)

__all__ = ["PseudoMarginal"]

REFRESHED = 0.2
"""Share of moves before which a cached importance sample is redrawn around f.

Redrawing costs as much as the sample of a proposal. Without it, a chain whose estimate is far too
high rejects nearly all proposals. The value is a choice.
"""


@dataclass(frozen=True)
class PseudoMarginal(Marginal):
    """One move on theta with f integrated out by importance sampling, then one of f.

    After exploration every draw leaves p(theta, f | y) invariant. There are two ways to estimate
    the evidence, both exact. If the noise is large, the estimate at a proposed theta is correlated
    with that at the current one, and f also moves alone after each move on theta. If it is small
    (the estimates are *low-noise*), estimates are independent, the importance sample is cached
    until another is accepted, and f changes with theta alone.

    Attributes
    ----------
    search : LineSearch or None
        Computes q from the linear model of the sites once there is one; ``None`` to use `explore`.
    correlation : float
        Correlation of the random numbers of two successive estimates, if they are not independent.
    independent : bool or None
        Whether estimates are independent; ``None`` if tuning decides by the noise that it measures.
    interweave : Interweaving or None
        A whitened random walk of theta in a share of the draws. It needs no estimate.
    """

    search: LineSearch | None = None
    correlation: float = 0.0
    independent: bool | None = False
    interweave: Interweaving | None = None

    def start(self, state: State, tune: int) -> MarginalTuning:
        """Begin as the base does, and with the initial tuning of the walk."""
        walk = self.interweave and self.interweave.start(state, tune)
        return super().start(state, tune)._replace(interweaving=walk)

    @property
    def _measures_noise(self) -> bool:
        return self.n_importance is None or self.independent is None

    def _q_to_measure(
        self, state: State, tuning: MarginalTuning, q: GaussianApproximation | None
    ) -> GaussianApproximation | None:
        """The q of the exact chain, once there is a linear model that predicts its sites."""
        if q is None or tuning.sites.line is None:
            return q
        return state.at.approximation(self._search(tuning))

    def _enter_exact_phase(
        self, rng: np.random.Generator, state: State, tuning: MarginalTuning
    ) -> State:
        """Draw f from the importance distribution of the exact phase before that phase begins.

        Exploration draws f from q without a copula or a transport map. Such an f may have a far
        higher weight than any draw of the exact phase, which would reject almost all proposals.
        """
        scheme = self._scheme(tuning.noise.n_importance)
        proposal = proposal_at(state.at, self._search(tuning), scheme)
        if proposal is None:
            return state
        return draw_latent(rng, state, proposal, scheme)

    def _sample(
        self, rng: np.random.Generator, state: State, tuning: MarginalTuning, tune: bool
    ) -> tuple[State, MarginalTuning, Stats]:
        """Make as many moves of theta and f as the quality of the emulator asks for."""
        reports = []
        for _ in range(rounds_of(tuning.move)):
            state, tuning, stats = self._round(rng, state, tuning, tune)
            reports.append({name: stats[name] for name in self.move.stats})
        return state, tuning, stats | averaged(reports)

    def _round(
        self, rng: np.random.Generator, state: State, tuning: MarginalTuning, tune: bool
    ) -> tuple[State, MarginalTuning, Stats]:
        """Redraw f among the importance draws, move theta once, then move f."""
        search = self._search(tuning)
        N = tuning.noise.n_importance
        low_noise = tuning.noise.is_low_noise if self.independent is None else self.independent
        target = PseudoMarginalTarget.fix(
            rng,
            state,
            search=search,
            scheme=self._scheme(N),
            correlation=0.0 if low_noise else self.correlation,
            # In a model without theta nothing but redrawing the sample moves f.
            keep=low_noise and state.theta.size > 0 and rng.uniform() >= REFRESHED,
            evidence=self._evidence(tuning),
        )
        walk = self.interweave
        turn = None if walk is None else walk.turn(rng, tuning.interweaving, tune, low_noise)
        if turn == "instead":
            state = target.state
            stats = dict.fromkeys(self.move.stats, math.nan)
        else:
            state, tuning, stats = self._move_theta(rng, target, tuning, tune)
        stats |= estimated(state, state.at.approximation(search)) | {"n_importance": N}
        # After a walk f moves alone even if estimates are low-noise: if one importance draw has
        # almost all weight, the estimate is far too high, and f would remain that draw.
        moves_f = not low_noise or turn is not None
        state, tuning, of_f = self._move_latent(rng, state, tuning, tune, search, moves_f)
        stats |= of_f
        if walk is not None:
            interweaving = tuning.interweaving
            state, interweaving, stats = walk.run(rng, state, interweaving, turn, tune, stats)
            tuning = tuning._replace(interweaving=interweaving)
        return state, tuning, stats

    def _search(self, tuning: MarginalTuning) -> LineSearch:
        """The search of the exact chain: that of exploration until the sites have a line."""
        line = tuning.sites.line
        search = self.explore if self.search is None or line is None else self.search
        return search.with_line(line)
