"""The element that moves theta with f integrated out."""

from __future__ import annotations

import math

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from pymc_lgm.adaptation import FEW, MANY, NoiseTuning
from pymc_lgm.approximations.gaussian import Sites
from pymc_lgm.approximations.importance import Estimate, Scheme
from pymc_lgm.approximations.recall import SitesLine, SitesTuning, with_copula
from pymc_lgm.linalg import Array
from pymc_lgm.parameterizations.approximate_marginal import (
    Search,
    approximate_marginal,
    draw_latent,
    evidence_force,
    noise_of_ratio,
)
from pymc_lgm.parameterizations.pseudo_marginal import pseudo_marginal
from pymc_lgm.parameterizations.target import Target
from pymc_lgm.state import LikelihoodAt, State
from pymc_lgm.sweep.element import Stats
from pymc_lgm.sweep.latent import CurvatureHMC
from pymc_lgm.sweep.theta import Move, Theta

__all__ = ["Interweaving", "PseudoMarginal", "PseudoMarginalTuning"]

SHARE = 0.2
"""Share of the draws in which theta moves without estimates."""

STUCK = 0.1
"""Acceptance of moves on estimates under which theta moves without them in every draw."""


class Interweaving(NamedTuple):
    """What is learnt of a move without estimates, and how often moves on them were accepted."""

    move: Any
    acceptance: float = 0.0
    draws: int = 0

    @property
    def always(self) -> bool:
        """Whether the estimates are so noisy that every draw needs it."""
        return self.acceptance < STUCK * self.draws


class PseudoMarginalTuning(NamedTuple):
    """What `PseudoMarginal` learns: a move on theta, the sites of q, how many draws.

    ``start`` is the line through the sites of the draws before the last renewal; ``None``, the
    likelihood's at the prior's mean, before the first.
    """

    move: Any
    latent: Any
    start: SitesLine | None
    sites: SitesTuning
    draws: int
    exploring: int
    noise: NoiseTuning
    interweaving: Interweaving

    def update(self, theta: Array, seen: Sites | None) -> PseudoMarginalTuning:
        """Learn the sites at one draw; renew the start at draws 50, 100, ... and the last."""
        draws, start, noise = self.draws + 1, self.start, self.noise
        sites = self.sites if seen is None else self.sites.update(theta, seen)
        rounds, rest = divmod(draws, 50)
        double = rest == 0 and rounds & (rounds - 1) == 0
        last = draws == self.exploring and 4 * sites.thetas >= draws
        if sites.thetas and (double or last):
            # The sums began at the last renewal: at half of these draws, or at the first.
            start = sites.line()
            sites = SitesTuning.start(len(sites.products) // sites.blocks, theta.size, sites.blocks)
            if draws < self.exploring:
                noise = NoiseTuning()
        return self._replace(start=start, sites=sites, draws=draws, noise=noise)


@dataclass(frozen=True)
class PseudoMarginal:
    """One move on theta with f integrated out, then one of f, if any, that q guides.

    The first three quarters of tuning run on the approximate evidence: it has no noise, and no
    start from which the chain could not leave. There the move is learnt, the sites of q as
    functions of theta, and with ``n_importance=None`` how many importance draws the chain needs.

    An estimate that is far too good holds a chain, and so does a theta that the emulator takes for
    too bad. ``interweave`` moves theta without either: in place of the move on estimates in one
    draw of five; beside it in each draw, where the last quarter of tuning has seen that those are
    hardly ever accepted, since no Gaussian q is near the posterior of f.

    With ``guide``, a search that need not go far, the target has a ``force``.
    """

    explore: Search
    search: Search
    move: Move
    latent: CurvatureHMC | None = None
    n_importance: int | None = None
    antithetic: bool = True
    defensive: float = 0.0
    correlation: float = 0.0
    exact: bool = True
    interweave: Theta | None = None
    copula: bool = False
    guide: Search | None = None

    @property
    def stats(self) -> tuple[str, ...]:
        """One importance draw has no spread, and fewer than 30 no tail: not reported."""
        most = self.n_importance or MANY
        return (
            *self.move.stats,
            *(() if self.latent is None else self.latent.stats),
            "log_evidence",
            *(("log_evidence_sd",) if most > 1 else ()),
            *(("pareto_k",) if most >= 30 else ()),
            *(("n_importance",) if self.n_importance is None else ()),
            *(() if self.exact else ("approximate_log_evidence",)),
            "mode_iterations",
        )

    def start(self, state: State, tune: int) -> PseudoMarginalTuning:
        """Begin every search at the prior's mean."""
        n, p = state.f.size, state.theta.size
        move = self.move.start(state, tune) if p else None
        latent = None if self.latent is None else self.latent.start(state, tune)
        sites = SitesTuning.start(n, p, 4 if self.copula else 2)
        between = self.interweave.start(state, tune) if self.interweave and p else None
        return PseudoMarginalTuning(
            move, latent, None, sites, 0, 3 * tune // 4, NoiseTuning(), Interweaving(between)
        )

    def scheme(self, tuning: PseudoMarginalTuning, exploring: bool = False) -> Scheme:
        """How estimates are made: of `FEW` draws while exploring, where only their noise counts."""
        N = self.n_importance or (FEW if exploring else tuning.noise.n_importance)
        return Scheme(N, self.antithetic, self.defensive)

    def run(
        self, rng: np.random.Generator, state: State, tuning: PseudoMarginalTuning, tune: bool
    ) -> tuple[State, PseudoMarginalTuning, Stats]:
        """Refresh f and move theta once."""
        exploring = tune and tuning.draws < tuning.exploring
        approximate = exploring or not self.exact
        scheme = self.scheme(tuning, exploring)
        target = self._target(rng, state, tuning, scheme, approximate)
        stats: Stats = dict.fromkeys(self.move.stats, math.nan)
        between = tuning.interweaving
        beside = between.move is not None and not exploring and (tune or between.always)
        instead = between.move is not None and not (tune or beside) and rng.uniform() < SHARE
        if instead:
            state = target.state
        elif target.screen is None:
            state = target.state
            stats["theta_acceptance"] = 0.0
        elif state.theta.size == 0:
            state = target.state
        else:
            state, move, stats = self.move.run(rng, target, tuning.move, tune)
            tuning = tuning._replace(move=move)
        if approximate:
            state = draw_latent(rng, state, scheme)
        if exploring:
            state, seen = self._seen(state)
            tuning = tuning.update(state.theta, seen)
            if self.n_importance is None:
                change = noise_of_ratio(rng, self._with_copula(state, seen), scheme)
                tuning = tuning._replace(noise=tuning.noise.update(change))
        stats |= _estimated(state)
        if self.latent is not None:
            # What f has just come from is at hand: q, a function of theta alone.
            state, latent, moved = self.latent.run(rng, state, tuning.latent, tune)
            tuning = tuning._replace(latent=latent)
            stats |= moved
        stats |= {"n_importance": scheme.n_importance}
        if self.interweave is not None and (instead or beside):
            state, move, moved = self.interweave.run(rng, state, between.move, tune)
            if instead:
                # Not its scale, which is another walk's.
                stats |= {"theta_evaluations": 1.0, "theta_acceptance": moved["theta_acceptance"]}
            if tune:
                acceptance = between.acceptance + stats["theta_acceptance"]
                tuning = tuning._replace(
                    interweaving=Interweaving(move, acceptance, between.draws + 1)
                )
        return state, tuning, {name: stats[name] for name in self.stats}

    def _seen(self, state: State) -> tuple[State, Sites | None]:
        """The sites of a q that was searched for and found, with what a copula needs."""
        q = state.approximation
        if q is None or not q.converged or (self.copula and q.variance is None):
            return state, None
        if self.copula and q.stiffness is None:
            # Once for each theta: the state keeps it as long as theta stays.
            q = replace(q, stiffness=state.prior.inverse_diagonal())
            state = replace(state, approximation=q)
        return state, q.sites

    def _with_copula(self, state: State, sites: Sites | None) -> State:
        q = state.approximation
        if q is None or sites is None or sites.stiffness is None:
            return state
        likelihood = LikelihoodAt(state.model, state.theta)
        return replace(state, approximation=with_copula(q, likelihood, sites))

    def _target(
        self,
        rng: np.random.Generator,
        state: State,
        tuning: PseudoMarginalTuning,
        scheme: Scheme,
        approximate: bool,
    ) -> Target:
        start = tuning.start
        if approximate:
            target = approximate_marginal(rng, state, search=self.explore, start=start)
        else:
            target = pseudo_marginal(
                rng,
                state,
                search=self.explore if start is None else self.search,
                start=start,
                scheme=scheme,
                correlation=self.correlation,
            )
        if self.guide is None or start is None:
            return target
        return replace(
            target, force=evidence_force(state.model, self.guide if approximate else None, start)
        )


def _estimated(state: State) -> Stats:
    """What a state says of the evidence at its theta."""
    if state.approximation is None or state.estimate is None:
        return dict.fromkeys((*Estimate._fields, "approximate_log_evidence"), math.nan) | {
            "mode_iterations": 0
        }
    return state.estimate._asdict() | {
        "approximate_log_evidence": state.approximation.log_evidence,
        "mode_iterations": state.approximation.iterations,
    }
