"""The elements that move theta with f integrated out: by a formula, and exactly.

The first three quarters of tuning run on the approximate evidence: it has no noise, so a chain
cannot stick. There the move is learnt, the sites of q as functions of theta, and, unless the user
has said it, how many importance draws the chain needs. Then `ApproximateMarginal` goes on as it
was, and `PseudoMarginal` is exact.
"""

from __future__ import annotations

import math

from dataclasses import dataclass, replace

import numpy as np

from pymc_lgm.adaptation import FEW, FEWEST, MANY, NoiseTuning
from pymc_lgm.approximations.gaussian import GaussianApproximation
from pymc_lgm.approximations.importance import Proposal, Scheme
from pymc_lgm.approximations.recall import LineSearch, WarmSearch
from pymc_lgm.approximations.site_coordinates import site_coordinates
from pymc_lgm.approximations.sites import Margins
from pymc_lgm.approximations.sites_line import SitesLine
from pymc_lgm.approximations.sites_tuning import SitesTuning
from pymc_lgm.kernels.hold.approximate_evidence import ApproximateEvidence
from pymc_lgm.kernels.hold.approximate_marginal import approximate_marginal
from pymc_lgm.kernels.hold.pseudo_marginal import (
    draw_latent,
    estimated,
    noise_of_ratio,
    proposal_at,
    pseudo_marginal,
)
from pymc_lgm.kernels.hold.target import Target
from pymc_lgm.kernels.interweaving import Interweaving
from pymc_lgm.kernels.latent import CurvatureHMC
from pymc_lgm.kernels.marginal_tuning import MarginalTuning
from pymc_lgm.kernels.sweep import Stats, averaged
from pymc_lgm.kernels.theta import Move
from pymc_lgm.kernels.theta.climb import climb
from pymc_lgm.kernels.theta.emulated import is_settled, rounds_of
from pymc_lgm.state import State

__all__ = ["ApproximateMarginal", "PseudoMarginal"]

REFRESHED = 0.2
"""Share of the moves in which importance draws that could be kept are drawn anew around f."""

CLIMBING = 60
"""Gradients, at most, of a climb from where PyMC starts."""

LOOKS = 4
"""Draws of tuning to one look at f and at the noise: both cost as much as the rest of a draw."""


@dataclass(frozen=True)
class ApproximateMarginal:
    """One move on theta on q's own evidence, then a draw of f by weight. Not exact.

    With ``surrogate``, from a search that need not go far, the target has a ``slope``. With
    ``copula`` what a copula needs is learnt, too; ``together`` bends draws by a transport. With
    ``rests``, for a step beside which no other moves, draws of tuning that would learn nothing stay
    where they are.
    """

    explore: WarmSearch
    move: Move
    n_importance: int | None = None
    fewest: int = FEWEST
    antithetic: bool = True
    defensive: float = 0.0
    copula: bool = False
    together: bool = False
    surrogate: ApproximateEvidence | None = None
    rests: bool = False

    @property
    def stats(self) -> tuple[str, ...]:
        """One importance draw has no spread, and fewer than 30 no tail: not reported."""
        return (*self._stats, "approximate_log_evidence")

    @property
    def _stats(self) -> tuple[str, ...]:
        most = self.n_importance or MANY
        return (
            *self.move.stats,
            "log_evidence",
            *(("log_evidence_sd",) if most > 1 else ()),
            *(("pareto_k",) if most >= 30 else ()),
            *(("n_importance",) if self.n_importance is None else ()),
            "mode_iterations",
        )

    def start(self, state: State, tune: int) -> MarginalTuning:
        """Begin every search where the search itself begins."""
        n, p = state.f.size, state.theta.size
        move = self.move.start(state, tune) if p else None
        coordinates = site_coordinates(state.model, n, self.copula)
        sites = SitesTuning.start(coordinates, p)
        noise = NoiseTuning(fewest=self.fewest, given=self.n_importance)
        return MarginalTuning(move, None, None, sites, 0, 3 * tune // 4, noise)

    def run(
        self, rng: np.random.Generator, state: State, tuning: MarginalTuning, tune: bool
    ) -> tuple[State, MarginalTuning, Stats]:
        """Explore, or move theta and draw f; or rest."""
        if tune and tuning.left == 0:
            return state, tuning, dict.fromkeys(self.stats, math.nan)
        exploring = tune and tuning.is_exploring
        state, tuning, stats = self._draw(rng, state, tuning, tune)
        tuning = tuning.sampled() if tune and not exploring else tuning
        return state, tuning, {name: stats[name] for name in self.stats}

    def _draw(
        self, rng: np.random.Generator, state: State, tuning: MarginalTuning, tune: bool
    ) -> tuple[State, MarginalTuning, Stats]:
        return self._approximately(rng, state, tuning, tune)

    def _approximately(
        self, rng: np.random.Generator, state: State, tuning: MarginalTuning, tune: bool
    ) -> tuple[State, MarginalTuning, Stats]:
        exploring = tune and tuning.is_exploring
        # Estimates count for their noise alone while the chain explores: few draws show it.
        N = self.n_importance or (FEW if exploring else tuning.noise.n_importance)
        scheme = Scheme(N, self.antithetic)
        search = self.explore.along(tuning.line)
        target = self._with_slope(approximate_marginal(rng, state, search=search), tuning.line)
        if exploring and tuning.draws == 0 and target.screen is not None and state.theta.size:
            state = climb(target, min(CLIMBING, tuning.exploring // 10))
            target = self._with_slope(approximate_marginal(rng, state, search=search), tuning.line)
        state, tuning, stats = self._move_theta(rng, target, tuning, tune)
        q = state.at.approximation(search)
        if q is not None and self._looks_at_latent(tuning, tune):
            state = draw_latent(rng, state, Proposal(q, None, self.defensive), scheme)
        if exploring:
            seen = q if q is None or q.converged else None
            if self.copula and seen is not None:
                known = Margins(seen.posterior.variances, state.prior.precisions)
                seen = replace(seen, margins=known)
            settled = self.rests and is_settled(tuning.move)
            tuning = tuning.update(state.theta, seen, settled=settled)
            if self._asks_for_noise and tuning.draws % LOOKS == 0:
                change = self._noise(rng, state, seen or q, scheme)
                tuning = tuning._replace(noise=tuning.noise.update(change))
        return state, tuning, stats | estimated(state, q) | {"n_importance": N}

    def _looks_at_latent(self, tuning: MarginalTuning, tune: bool) -> bool:
        """Whether f is drawn: a chain that explores needs none, but other steps, and its move."""
        return not (self.rests and tune and tuning.is_exploring) or tuning.draws % LOOKS == 0

    @property
    def _asks_for_noise(self) -> bool:
        return self.n_importance is None

    def _noise(
        self,
        rng: np.random.Generator,
        state: State,
        q: GaussianApproximation | None,
        scheme: Scheme,
    ) -> float:
        """Of a ratio of two estimates, as the exact chain would make them here."""
        if q is None:
            return math.nan
        proposal = Proposal.of(q, state.at.likelihood, self.defensive, together=self.together)
        return noise_of_ratio(rng, state.at, proposal, scheme)

    def _with_slope(self, target: Target, line: SitesLine | None) -> Target:
        """The target with a slope, where a move may want one."""
        return target if self.surrogate is None else self.surrogate.along(line).seen_from(target)

    def _move_theta(
        self, rng: np.random.Generator, target: Target, tuning: MarginalTuning, tune: bool
    ) -> tuple[State, MarginalTuning, Stats]:
        stats: Stats = dict.fromkeys(self.move.stats, math.nan)
        if target.screen is None:  # there is no q here, and no move
            return target.state, tuning, stats | {"theta_acceptance": 0.0}
        if target.state.theta.size == 0:
            return target.state, tuning, stats
        state, move, stats = self.move.run(rng, target, tuning.move, tune)
        return state, tuning._replace(move=move), stats


@dataclass(frozen=True)
class PseudoMarginal(ApproximateMarginal):
    """One move on theta with f integrated out by importance sampling, then one of f.

    Two phases: the first three quarters of tuning explore by the approximate evidence; from then on
    every draw leaves p(theta, f | y) invariant. ``search`` gives q along the line that was learnt.
    ``latent`` is HMC whose metric is q's covariance, which is at hand: a function of theta alone.

    Where estimates have little noise they may be ``independent``, of those before: then draws are
    kept until others are accepted, f comes anew with theta, and moves by itself only when theta
    walks without estimates. ``None``: where tuning has seen that noise is little.
    """

    search: LineSearch | None = None
    correlation: float = 0.0
    independent: bool | None = False
    latent: CurvatureHMC | None = None
    interweave: Interweaving | None = None

    @property
    def stats(self) -> tuple[str, ...]:
        """Those of the move on theta, of the estimate, and of the move of f."""
        return (*self._stats, *self._latent_stats)

    @property
    def _latent_stats(self) -> tuple[str, ...]:
        return () if self.latent is None else self.latent.stats

    def start(self, state: State, tune: int) -> MarginalTuning:
        """Begin every search where the search itself begins."""
        tuning = super().start(state, tune)
        latent = self.latent and self.latent.start(state, tune)
        weave = self.interweave and self.interweave.start(state, tune)
        return tuning._replace(latent=latent, interweaving=weave)

    def _draw(
        self, rng: np.random.Generator, state: State, tuning: MarginalTuning, tune: bool
    ) -> tuple[State, MarginalTuning, Stats]:
        """Explore, or refresh f and move theta once; then move f."""
        if tune and tuning.is_exploring:
            search: LineSearch = self.explore.along(tuning.line)
            looks = self._looks_at_latent(tuning, tune)
            state, tuning, stats = self._approximately(rng, state, tuning, tune)
            state, tuning, stats = self._move_latent(rng, state, tuning, tune, search, stats, looks)
            if not tuning.is_exploring:
                state = self._departing(rng, state, tuning)
        else:
            reports = []
            for _ in range(rounds_of(tuning.move)):
                state, tuning, stats = self._exactly(rng, state, tuning, tune)
                reports.append({name: stats[name] for name in self.move.stats})
            stats |= averaged(reports)
        return state, tuning, stats

    @property
    def _asks_for_noise(self) -> bool:
        return self.n_importance is None or self.independent is None

    def _exactly(
        self, rng: np.random.Generator, state: State, tuning: MarginalTuning, tune: bool
    ) -> tuple[State, MarginalTuning, Stats]:
        search = self._search(tuning)
        N = tuning.noise.n_importance
        quiet = tuning.noise.is_quiet if self.independent is None else self.independent
        target = pseudo_marginal(
            rng,
            state,
            search=search,
            scheme=Scheme(N, self.antithetic),
            defensive=self.defensive,
            correlation=0.0 if quiet else self.correlation,
            together=self.together,
            # Without theta nothing but drawing them anew would move f.
            keep=quiet and state.theta.size > 0 and rng.uniform() >= REFRESHED,
        )
        weave = self.interweave
        turn = None if weave is None else weave.turn(rng, tuning.interweaving, tune, quiet)
        if turn == "instead":
            state, stats = target.state, dict.fromkeys(self.move.stats, math.nan)
        else:
            target = self._with_slope(target, tuning.line)
            state, tuning, stats = self._move_theta(rng, target, tuning, tune)
        stats |= estimated(state, state.at.approximation(search)) | {"n_importance": N}
        # Where it comes anew with theta, too: no other would leave one that is estimated too high.
        moves = not quiet or turn is not None
        state, tuning, stats = self._move_latent(rng, state, tuning, tune, search, stats, moves)
        if weave is not None:
            learnt = tuning.interweaving
            state, learnt, stats = weave.run(rng, state, learnt, turn, tune, stats)
            tuning = tuning._replace(interweaving=learnt)
        return state, tuning, stats

    def _search(self, tuning: MarginalTuning) -> LineSearch:
        """That of the exact chain: of the line, once there is one."""
        search = self.search if self.search is not None and tuning.line else self.explore
        return search.along(tuning.line)

    def _departing(self, rng: np.random.Generator, state: State, tuning: MarginalTuning) -> State:
        """Draw f once more before the chain is exact, as its own importance draws are drawn.

        Those of tuning are less alike the posterior: f of a plain q may have a weight among bent
        draws that no other of them ever has.
        """
        proposal = proposal_at(state.at, self._search(tuning), self.defensive, self.together)
        if proposal is None:
            return state
        scheme = Scheme(tuning.noise.n_importance, self.antithetic)
        return draw_latent(rng, state, proposal, scheme)

    def _move_latent(
        self,
        rng: np.random.Generator,
        state: State,
        tuning: MarginalTuning,
        tune: bool,
        search: LineSearch,
        stats: Stats,
        moves: bool,
    ) -> tuple[State, MarginalTuning, Stats]:
        if self.latent is None or not moves:
            return state, tuning, stats | dict.fromkeys(self._latent_stats, math.nan)
        hmc = replace(self.latent, search=search)
        state, latent, moved = hmc.run(rng, state, tuning.latent, tune)
        return state, tuning._replace(latent=latent), stats | moved
