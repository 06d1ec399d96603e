"""The elements that move theta with f integrated out: approximately, and exactly.

The first three quarters of tuning, the exploration, use the approximate evidence. It has no noise,
so a chain cannot stick. This phase tunes the move, fits the sites of q as functions of theta, and
chooses the number of importance draws unless the user has set it. Afterwards `ApproximateMarginal`
continues with the same target, and `PseudoMarginal` is exact. The last quarter of its tuning is on
the exact target, so that the chain reaches it and the moves adapt to its noise. The share is a
choice: a longer exploration fits the sites better.

The words: a *move* is one on theta; *noise* is the variance of the log of an estimate of the
evidence; estimates are *quiet* if it is small; a *line* is the linear model of the sites in theta.
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
"""Share of moves that redraw the importance sample around f although it is cached.

Redrawing costs as much as a proposal's sample. Without it an estimate that is far too high would
stay until another is accepted. One move in five is a choice between the two.
"""

CLIMBING = 60
"""Largest number of gradients of a climb from PyMC's starting point, and never more than a tenth of
the exploration. Most climbs end by themselves; this bounds those that do not."""

LOOKS = 4
"""While the chain explores, the noise is measured in every fourth draw, and f is drawn only
then if no other step needs it: each costs as much as the rest of a draw."""


@dataclass(frozen=True)
class ApproximateMarginal:
    """One move of theta on q's evidence, then a draw of f by importance weight. Not exact.

    Attributes
    ----------
    explore : WarmSearch
        The search for q.
    move : Move
        The move on theta.
    n_importance : int or None
        Number of importance draws N; ``None`` to choose it by the noise that tuning measures.
    fewest : int
        The smallest N that may be chosen.
    antithetic : bool
        Whether importance draws come in pairs: see `Scheme`.
    defensive : float
        Share of importance draws from the prior: see `Proposal`.
    copula : bool
        Whether tuning also fits the margins that a copula of the importance draws needs.
    together : bool
        Whether a transport map skews the importance draws.
    surrogate : ApproximateEvidence or None
        An evidence with a gradient, from loosely converged sites: the target's ``slope``.
    rests : bool
        Early stopping, for a step that moves all variables: once tuning has nothing left to learn,
        its remaining draws repeat the current state.
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
        """Statistics of the move and of the estimate.

        One importance draw has no variance to report, and fewer than 30 have no tail.
        """
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
        """Begin without a linear model of the sites: searches start at their own default."""
        n, p = state.f.size, state.theta.size
        move = self.move.start(state, tune) if p else None
        coordinates = site_coordinates(state.model, n, self.copula)
        sites = SitesTuning.start(coordinates, p)
        noise = NoiseTuning(fewest=self.fewest, given=self.n_importance)
        return MarginalTuning(
            move, latent=None, line=None, sites=sites, draws=0, exploring=3 * tune // 4, noise=noise
        )

    def run(
        self, rng: np.random.Generator, state: State, tuning: MarginalTuning, tune: bool
    ) -> tuple[State, MarginalTuning, Stats]:
        """Explore, or move theta and draw f. After early stopping repeat the state."""
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
            # PyMC's starting point may be far from the mass.
            state = climb(target, min(CLIMBING, tuning.exploring // 10))
            target = self._with_slope(approximate_marginal(rng, state, search=search), tuning.line)
        state, tuning, stats = self._move_theta(rng, target, tuning, tune)
        q = state.at.approximation(search)
        if q is not None and self._looks_at_latent(tuning, tune):
            state = draw_latent(rng, state, Proposal(q, None, self.defensive), scheme)
        if exploring:
            # The linear model is fitted to sites of converged searches alone.
            converged = q if q is None or q.converged else None
            if self.copula and converged is not None:
                margins = Margins(converged.posterior.variances, state.prior.precisions)
                converged = replace(converged, margins=margins)
            settled = self.rests and is_settled(tuning.move)
            tuning = tuning.update(state.theta, converged, settled=settled)
            if self._asks_for_noise and tuning.draws % LOOKS == 0:
                change = self._noise(rng, state, converged or q, scheme)
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
        """Difference of two log estimates that the exact chain would compute here; NaN if no q."""
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

    While tuning explores, it is an `ApproximateMarginal`; from then on every draw leaves
    p(theta, f | y) invariant. Two ways of estimating the evidence are exact. If the noise is large,
    an estimate at theta' is correlated with that at theta, and f moves alone after each move of
    theta. If it is small (quiet), estimates are independent, the importance sample is cached until
    another is accepted, and f is drawn with theta.

    Attributes
    ----------
    search : LineSearch or None
        Computes q from the linear model of the sites once there is one; ``None`` to use `explore`.
    correlation : float
        Correlation of the coordinates of two successive estimates, if they are not independent.
    independent : bool or None
        Whether estimates are independent; ``None`` to decide by the noise that tuning measures.
    latent : CurvatureHMC or None
        Moves f alone. Its metric is q's covariance, a function of theta that is already computed.
    interweave : Interweaving or None
        A walk of theta without estimates, in a share of the draws.
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
        """Begin as the approximate element does, and as its parts do."""
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
        # After a walk f moves alone even if estimates are quiet. If one importance draw has almost
        # all weight, the estimate is far too high, and f would stay that draw.
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
        """Draw f once more before the exact phase, from the importance distribution of that phase.

        Exploration draws f from q without a copula or a transport map. Such an f may have a far
        higher weight than any draw of the exact phase, which would reject almost all proposals.
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
