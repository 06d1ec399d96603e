"""The elements that move theta with f integrated out: approximately, and exactly.

The first three quarters of tuning use the approximate evidence. It has no noise, so a chain cannot
stick. This phase tunes the move, fits the sites of q as functions of theta, and chooses the number
of importance draws unless the user has set it. Afterwards `ApproximateMarginal` continues with the
same target, and `PseudoMarginal` is exact.
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
"""Share of moves that redraw the importance sample around f although it is cached."""

CLIMBING = 60
"""Largest number of gradients of a climb from PyMC's starting point."""

LOOKS = 4
"""Evaluation period in draws of tuning for f and the noise: each costs as much as a draw."""


@dataclass(frozen=True)
class ApproximateMarginal:
    """One move of theta on q's evidence, then a draw of f by importance weight. Not exact.

    With ``surrogate``, a gradient at loosely converged sites, the target has a ``slope``. With
    ``copula`` tuning also learns what a copula needs. ``together`` applies a transport map to the
    draws. ``rests`` (early stopping) is for a step that moves all variables: once tuning has
    nothing left to learn, its remaining draws repeat the current state.
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
        """Statistics; one importance draw has no variance and fewer than 30 no tail to report."""
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
        # While the chain explores, estimates only serve to measure the noise, so few draws are
        # enough.
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
        """Whether f is drawn. Exploration does not need f, but other steps and the move of f do."""
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
        """Noise of the ratio of two estimates that the exact chain would compute here."""
        if q is None:
            return math.nan
        proposal = Proposal.of(q, state.at.likelihood, self.defensive, together=self.together)
        return noise_of_ratio(rng, state.at, proposal, scheme)

    def _with_slope(self, target: Target, line: SitesLine | None) -> Target:
        """The target, with a slope if a move may need one."""
        return target if self.surrogate is None else self.surrogate.along(line).seen_from(target)

    def _move_theta(
        self, rng: np.random.Generator, target: Target, tuning: MarginalTuning, tune: bool
    ) -> tuple[State, MarginalTuning, Stats]:
        stats: Stats = dict.fromkeys(self.move.stats, math.nan)
        if target.screen is None:  # no q here, so no move
            return target.state, tuning, stats | {"theta_acceptance": 0.0}
        if target.state.theta.size == 0:
            return target.state, tuning, stats
        state, move, stats = self.move.run(rng, target, tuning.move, tune)
        return state, tuning._replace(move=move), stats


@dataclass(frozen=True)
class PseudoMarginal(ApproximateMarginal):
    """One move on theta with f integrated out by importance sampling, then one of f.

    The first three quarters of tuning explore on the approximate evidence; from then on every draw
    leaves p(theta, f | y) invariant. ``search`` computes q from the fitted linear model of the site
    parameters. ``latent`` is HMC with q's covariance as metric, a function of theta alone that is
    already computed. If estimates have little noise they may be ``independent`` of earlier ones.
    Then the importance sample is cached until another is accepted, f is drawn with theta, and f
    moves alone only when theta walks without estimates. ``None`` decides by the noise that tuning
    finds.
    """

    search: LineSearch | None = None
    correlation: float = 0.0
    independent: bool | None = False
    latent: CurvatureHMC | None = None
    interweave: Interweaving | None = None

    @property
    def stats(self) -> tuple[str, ...]:
        """Statistics of the move on theta, of the estimate, and of the move of f."""
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
            # Without theta only redrawing the importance sample would move f.
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
        # Also if f is drawn with theta: otherwise a chain whose estimate is far too high can stick.
        moves = not quiet or turn is not None
        state, tuning, stats = self._move_latent(rng, state, tuning, tune, search, stats, moves)
        if weave is not None:
            learnt = tuning.interweaving
            state, learnt, stats = weave.run(rng, state, learnt, turn, tune, stats)
            tuning = tuning._replace(interweaving=learnt)
        return state, tuning, stats

    def _search(self, tuning: MarginalTuning) -> LineSearch:
        """Search of the exact chain: it uses the linear model of the sites once there is one."""
        search = self.search if self.search is not None and tuning.line else self.explore
        return search.along(tuning.line)

    def _departing(self, rng: np.random.Generator, state: State, tuning: MarginalTuning) -> State:
        """Draw f once more before the exact phase, by the importance scheme of that phase.

        The draws of tuning are further from the posterior. An f drawn from a plain q may have a far
        higher weight than any transported draw, and the chain would stick.
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
