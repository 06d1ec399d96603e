"""The base of the elements that move theta with f integrated out: phases, and the exploration.

While a chain explores, theta moves on the approximate evidence. The exploration tunes the move on
theta, fits the sites of q as functions of theta, and chooses the number of importance draws unless
the user has set it. See `pymc_lgm.samplers.schedule` for the phases.

The words: a *move* is one on theta; *noise* is the variance of the log of an estimate of the
evidence; estimates are *low-noise* if it is small; a *line* is the linear model of the sites in
theta.
"""

from __future__ import annotations

import math

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from pymc_lgm.adaptation import FEWEST_DRAWS, MOST_DRAWS, SMALL_NOISE, NoiseTuning
from pymc_lgm.approximations.gaussian import GaussianApproximation
from pymc_lgm.approximations.importance import Proposal, Scheme
from pymc_lgm.approximations.recall import LineSearch, WarmSearch
from pymc_lgm.approximations.site_coordinates import site_coordinates
from pymc_lgm.approximations.sites import Margins
from pymc_lgm.approximations.sites_line import SitesTuning
from pymc_lgm.moves.element import Stats
from pymc_lgm.moves.latent import CurvatureHMC
from pymc_lgm.moves.theta import Move
from pymc_lgm.moves.theta.climb import climb
from pymc_lgm.moves.theta.emulated import ENOUGH, begins_with_survey, is_settled
from pymc_lgm.samplers.schedule import Phase, Schedule
from pymc_lgm.state import State
from pymc_lgm.targets.approximate_evidence import ApproximateEvidence
from pymc_lgm.targets.approximate_marginal import ApproximateMarginalTarget
from pymc_lgm.targets.pseudo_marginal import draw_latent, estimated, noise_of_ratio
from pymc_lgm.targets.target import Nowhere, Target

__all__ = ["Marginal", "MarginalTuning"]

CLIMBING = 60
"""Largest number of gradients of a climb from PyMC's starting point, and never more than a tenth of
the exploration, unless a survey follows. Most climbs end by themselves; this bounds those that do
not."""

NOISE_PERIOD = 4
"""While the chain explores, the noise is measured in every fourth draw, and f is drawn only then if
no other step needs it: each costs as much as the rest of a draw. The noise is not measured as long
as fits of the sites are certain to be renewed before exploration ends: q changes with them."""


class MarginalTuning(NamedTuple):
    """Tuning of a chain: one field for each part that is tuned.

    Attributes
    ----------
    schedule : Schedule
    move, latent, interweaving
        Tuning of the moves on theta and on f, and of the walk; ``None`` for a part that is absent.
    sites : SitesTuning
        The linear model of the sites of q, and the sums for the next one.
    noise : NoiseTuning
        The number of importance draws.
    """

    schedule: Schedule
    move: Any
    sites: SitesTuning
    noise: NoiseTuning
    latent: Any = None
    interweaving: Any = None


@dataclass(frozen=True)
class Marginal:
    """A move of theta with f integrated out, then a draw of f. A subclass says how it samples.

    Attributes
    ----------
    explore : WarmSearch
        The search for q while the chain explores.
    looser : float or None
        Tolerance of this search once a climb and a survey are made, whose differences of evidences
        need a tight one; ``None`` if it stays as it is.
    move : Move
        The move on theta.
    n_importance : int or None
        Number of importance draws N; ``None`` to choose it by the noise that tuning measures.
    fewest : int
        The smallest N that may be chosen.
    noise : float
        The largest variance of a log ratio of estimates, from which N is chosen.
    antithetic : bool
        Whether importance draws come in pairs: see `Scheme`.
    defensive : float
        Share of importance draws from the prior: see `Proposal`.
    copula : bool
        Whether tuning also fits the margins that a copula of the importance draws needs.
    transported : bool
        Whether a transport map skews the importance draws.
    surrogate : ApproximateEvidence or None
        An evidence with a gradient, from loosely converged sites: the target's ``slope``.
    latent : CurvatureHMC or None
        Moves f alone. Its metric is q's covariance, a function of theta that is already computed.
    predicts : bool
        Whether tuning fits a linear model in theta of the sites, at which searches start.
    rests : bool
        Early stopping, for a step that moves all variables: once tuning has nothing left to learn,
        its remaining draws repeat the current state.
    climbs : bool
        Whether tuning begins with a climb to the mass of the evidence.
    """

    explore: WarmSearch
    move: Move
    n_importance: int | None = None
    fewest: int = FEWEST_DRAWS
    noise: float = SMALL_NOISE
    antithetic: bool = True
    defensive: float = 0.0
    copula: bool = False
    transported: bool = False
    surrogate: ApproximateEvidence | None = None
    latent: CurvatureHMC | None = None
    predicts: bool = True
    rests: bool = False
    climbs: bool = True
    looser: float | None = None

    @property
    def stats(self) -> tuple[str, ...]:
        """Statistics of the move on theta, of the estimate, and of the move of f.

        One importance draw has no variance to report, and fewer than 30 have no tail.
        """
        most = self.n_importance or MOST_DRAWS
        return (
            *self.move.stats,
            "log_evidence",
            *(("log_evidence_sd",) if most > 1 else ()),
            *(("pareto_k",) if most >= 30 else ()),
            *(("n_importance",) if self.n_importance is None else ()),
            "mode_iterations",
            *(() if self.latent is None else self.latent.stats),
        )

    def start(self, state: State, tune: int) -> MarginalTuning:
        """Begin without a linear model of the sites: searches start at their own default."""
        n, p, model = state.f.size, state.theta.size, state.model
        # A block of W is 0 if no observation reads its set, whatever the likelihood is.
        may_be_negative = state.prior.allows_negative_sites and not (
            model.sets is None and getattr(model, "is_log_concave", False)
        )
        coordinates = site_coordinates(model, n, self.copula, may_be_negative=may_be_negative)
        return MarginalTuning(
            schedule=Schedule.start(tune),
            move=self.move.start(state, tune) if p else None,
            sites=SitesTuning.start(coordinates, p),
            noise=NoiseTuning(fewest=self.fewest, given=self.n_importance, limit=self.noise),
            latent=self.latent and self.latent.start(state, tune),
        )

    def run(
        self, rng: np.random.Generator, state: State, tuning: MarginalTuning, tune: bool
    ) -> tuple[State, MarginalTuning, Stats]:
        """Draw as the phase says."""
        phase = tuning.schedule.phase(tune)
        if phase is Phase.REST:
            return state, tuning, dict.fromkeys(self.stats, math.nan)
        if phase is Phase.EXPLORE:
            state, tuning, stats = self._explore(rng, state, tuning)
            if tuning.schedule.is_explored:
                state = self._enter_exact_phase(rng, state, tuning)
        else:
            state, tuning, stats = self._sample(rng, state, tuning, tune)
            tuning = tuning._replace(schedule=tuning.schedule.after(phase))
        return state, tuning, {name: stats[name] for name in self.stats}

    def _sample(
        self, rng: np.random.Generator, state: State, tuning: MarginalTuning, tune: bool
    ) -> tuple[State, MarginalTuning, Stats]:
        """Draw from the sampler's own target."""
        raise NotImplementedError(f"{type(self).__name__} must say how it samples.")

    def _enter_exact_phase(
        self, rng: np.random.Generator, state: State, tuning: MarginalTuning
    ) -> State:
        """Make the state one of the sampler's own target, after exploration."""
        return state

    # Exploration

    def _explore(
        self, rng: np.random.Generator, state: State, tuning: MarginalTuning
    ) -> tuple[State, MarginalTuning, Stats]:
        """Move theta on the approximate evidence, and learn from it."""
        explored = tuning.schedule.explored
        search = self._exploring(tuning)
        # Estimates only serve to measure the noise, so few draws are enough.
        N = tuning.noise.measured
        # Exploration does not need f, but other steps and the move of f do.
        draws_f = not self.rests or explored % NOISE_PERIOD == 0
        if explored == 0:
            tuning = self._with_sites_of(state, tuning)
            if self.climbs:
                state = self._climb(state, tuning)
                tuning = self._with_sites_of(state, tuning)
            search = self._exploring(tuning)
        state, tuning, stats = self._approximately(rng, state, tuning, N, draws_f, tune=True)
        tuning = self._learn(rng, state, tuning, search)
        state, tuning, moved = self._move_latent(rng, state, tuning, True, search, draws_f)
        return state, tuning, stats | moved

    def _exploring(self, tuning: MarginalTuning) -> WarmSearch:
        """The search of the next draw of exploration, or of an approximate sampler."""
        search = self.explore.with_line(tuning.sites.line)
        explores = 0 < tuning.schedule.explored < tuning.schedule.exploring
        if self.looser is None or not explores:
            return search
        return replace(search, tolerance=self.looser)

    def _with_sites_of(self, state: State, tuning: MarginalTuning) -> MarginalTuning:
        """Let searches begin at the sites of this theta, until there are more thetas."""
        search = self._exploring(tuning)
        sites = self._with_sites(tuning.sites, state, state.at.approximation(search))
        return tuning._replace(sites=sites.renewed() if sites.thetas else sites)

    def _climb(self, state: State, tuning: MarginalTuning) -> State:
        """Climb to the mass of the evidence: PyMC's starting point may be far from it.

        If the move on theta then surveys the mode, the climb ends there, even if it gains little.
        """
        search = self._exploring(tuning)
        if state.theta.size == 0 or state.at.approximation(search) is None:
            return state
        evidence = self._evidence(tuning)
        target = ApproximateMarginalTarget.fix(state, search=search, evidence=evidence)
        if begins_with_survey(self.move, tuning.move):
            return climb(target, CLIMBING, worth=0.0)
        return climb(target, min(CLIMBING, tuning.schedule.exploring // 10))

    def _approximately(
        self,
        rng: np.random.Generator,
        state: State,
        tuning: MarginalTuning,
        N: int,
        draws_f: bool,
        tune: bool,
    ) -> tuple[State, MarginalTuning, Stats]:
        """Move theta on q's evidence, then draw f by importance weight."""
        search = self._exploring(tuning)
        evidence = self._evidence(tuning)
        target = ApproximateMarginalTarget.fix(state, search=search, evidence=evidence)
        state, tuning, stats = self._move_theta(rng, target, tuning, tune)
        q = state.at.approximation(search)
        if q is not None and draws_f:
            state = draw_latent(rng, state, Proposal(q, None, self.defensive), self._scheme(N))
        return state, tuning, stats | estimated(state, q) | {"n_importance": N}

    def _learn(
        self,
        rng: np.random.Generator,
        state: State,
        tuning: MarginalTuning,
        search: LineSearch,
    ) -> MarginalTuning:
        """Learn the sites, and now and then the noise, at the theta of one draw."""
        converged = self.rests and is_settled(tuning.move)
        schedule = tuning.schedule.after(Phase.EXPLORE, converged=converged)
        q = state.at.approximation(search)
        sites = self._with_sites(tuning.sites, state, q)
        noise = tuning.noise
        # The last fit of the line needs the sites of a quarter of the draws of exploration.
        full = schedule.is_explored and 4 * sites.thetas >= schedule.explored
        if sites.thetas and (schedule.is_renewal or full):
            sites = sites.renewed()
            noise = noise if schedule.is_explored else noise.restarted()
        counts = schedule.is_last_fit(ENOUGH if self.rests else schedule.exploring)
        if self._measures_noise and counts and schedule.explored % NOISE_PERIOD == 0:
            q_measured = self._q_to_measure(state, tuning, q)
            noise = noise.update(self._noise(rng, state, q_measured, noise.measured))
        return tuning._replace(schedule=schedule, sites=sites, noise=noise)

    def _with_sites(
        self, sites: SitesTuning, state: State, q: GaussianApproximation | None
    ) -> SitesTuning:
        """Add the sites of q to those of other thetas, if its search has converged."""
        if not self.predicts or q is None or not q.converged:
            return sites
        margins = q.margins
        if self.copula:
            margins = Margins(q.posterior.variances, state.prior.precisions)
        found = q.sites.with_effects(state.at.likelihood.effects)
        return sites.update(state.theta, found, margins, q.center - q.mean)

    @property
    def _measures_noise(self) -> bool:
        """Whether tuning needs to know the noise of estimates."""
        return self.n_importance is None

    def _q_to_measure(
        self, state: State, tuning: MarginalTuning, q: GaussianApproximation | None
    ) -> GaussianApproximation | None:
        """The q whose noise is measured: here the one that exploration has found."""
        return q

    def _noise(
        self, rng: np.random.Generator, state: State, q: GaussianApproximation | None, N: int
    ) -> float:
        """Difference of two log estimates that the exact chain would compute here; NaN if no q."""
        if q is None:
            return math.nan
        scheme = self._scheme(N)
        proposal = Proposal.of(q, state.at.likelihood, scheme.defensive, scheme.transported)
        return noise_of_ratio(rng, state.at, proposal, scheme)

    def _scheme(self, N: int) -> Scheme:
        """Options of an estimate with N importance draws."""
        return Scheme(N, self.antithetic, self.defensive, self.transported)

    # Moves

    def _evidence(self, tuning: MarginalTuning) -> ApproximateEvidence | None:
        """Where the target's slope comes from, if a move may need one."""
        return self.surrogate and self.surrogate.with_line(tuning.sites.line)

    def _move_theta(
        self, rng: np.random.Generator, target: Target, tuning: MarginalTuning, tune: bool
    ) -> tuple[State, MarginalTuning, Stats]:
        stats: Stats = dict.fromkeys(self.move.stats, math.nan)
        if isinstance(target, Nowhere):
            return target.state, tuning, stats | {"theta_acceptance": 0.0}
        if target.state.theta.size == 0:
            return target.state, tuning, stats
        state, move, stats = self.move.run(rng, target, tuning.move, tune)
        return state, tuning._replace(move=move), stats

    def _move_latent(
        self,
        rng: np.random.Generator,
        state: State,
        tuning: MarginalTuning,
        tune: bool,
        search: LineSearch,
        moves: bool,
    ) -> tuple[State, MarginalTuning, Stats]:
        if self.latent is None:
            return state, tuning, {}
        if not moves:
            return state, tuning, dict.fromkeys(self.latent.stats, math.nan)
        hmc = replace(self.latent, search=search)
        state, latent, stats = hmc.run(rng, state, tuning.latent, tune)
        return state, tuning._replace(latent=latent), stats
