"""The element that moves theta with f integrated out."""

from __future__ import annotations

import math

from dataclasses import dataclass

import numpy as np

from pymc_lgm.adaptation import FEW, MANY, NoiseTuning, ProposalTuning, PseudoMarginalTuning
from pymc_lgm.approximations.importance import Estimate, Scheme
from pymc_lgm.linalg import Array
from pymc_lgm.moves.delayed_metropolis import delayed_metropolis
from pymc_lgm.moves.metropolis import metropolis
from pymc_lgm.parameterizations.approximate_marginal import (
    Search,
    approximate_marginal,
    draw_latent,
    noise_of_ratio,
)
from pymc_lgm.parameterizations.pseudo_marginal import pseudo_marginal
from pymc_lgm.parameterizations.target import Target
from pymc_lgm.state import State
from pymc_lgm.sweep.element import Stats

__all__ = ["PseudoMarginal"]


@dataclass(frozen=True)
class PseudoMarginal:
    """Adaptive random-walk Metropolis on theta with f integrated out.

    The first half of tuning runs on the approximate evidence: it has no noise, and no start from
    which the chain could not leave. With ``n_importance=None`` it measures there how many
    importance draws the second half and the chain should have.
    """

    search: Search
    n_importance: int | None = None
    antithetic: bool = True
    defensive: float = 0.0
    correlation: float = 0.0
    delayed: bool = False
    exact: bool = True
    target_accept: float | None = None
    scale: float | None = None

    @property
    def stats(self) -> tuple[str, ...]:
        """One importance draw has no spread, and fewer than 30 no tail: not reported."""
        most = self.n_importance or MANY
        return (
            "theta_acceptance",
            "theta_scale",
            "log_evidence",
            *(("log_evidence_sd",) if most > 1 else ()),
            *(("pareto_k",) if most >= 30 else ()),
            *(("n_importance",) if self.n_importance is None else ()),
            *(() if self.exact else ("approximate_log_evidence",)),
            "mode_iterations",
        )

    def start(self, state: State, tune: int) -> PseudoMarginalTuning:
        """Begin every mode search at the prior's mean."""
        proposal = ProposalTuning.start(max(state.theta.size, 1), self.target_accept, self.scale)
        zero = np.zeros(state.f.size)
        return PseudoMarginalTuning(proposal, None, zero, 0, tune // 2, NoiseTuning())

    def scheme(self, tuning: PseudoMarginalTuning) -> Scheme:
        """How estimates are made at this point of tuning."""
        N = self.n_importance or tuning.noise.n_importance
        return Scheme(N, self.antithetic, self.defensive)

    def run(
        self, rng: np.random.Generator, state: State, tuning: PseudoMarginalTuning, tune: bool
    ) -> tuple[State, PseudoMarginalTuning, Stats]:
        """Refresh f and propose once."""
        exploring = tune and tuning.draws < tuning.approximate_draws
        approximate = exploring or not self.exact
        scheme, before = self.scheme(tuning), tuning
        if approximate:
            target = approximate_marginal(rng, state, search=self.search, start=tuning.start)
        else:
            target = pseudo_marginal(
                rng,
                state,
                search=self.search,
                start=tuning.start,
                scheme=scheme,
                correlation=self.correlation,
            )
        state, acceptance, direction = self._move(rng, target, tuning, approximate)
        if tune and direction is not None and state.approximation is not None:
            tuning = tuning.update(direction, acceptance, state.approximation.center)
        if approximate:
            state = draw_latent(rng, state, scheme)
        if exploring and self.n_importance is None:
            few = scheme._replace(n_importance=FEW)
            tuning = tuning.listen(noise_of_ratio(rng, state, few, self.correlation))
        stats = _estimated(state)
        stats["theta_acceptance"] = acceptance
        stats["theta_scale"] = before.proposal.scale
        stats["n_importance"] = scheme.n_importance
        return state, tuning, {name: stats[name] for name in self.stats}

    def _move(
        self,
        rng: np.random.Generator,
        target: Target,
        tuning: PseudoMarginalTuning,
        approximate: bool,
    ) -> tuple[State, float, Array | None]:
        """Propose once: the state, the acceptance probability and the direction."""
        state, factor = target.state, tuning.proposal.factor
        if state.theta.size == 0:
            return state, math.nan, None
        if target.screen is None:
            return state, 0.0, None
        # An approximate target is its own screen: what passes the first stage passes the second.
        if approximate:
            state, screened = delayed_metropolis(rng, state, target, factor=factor)
            return state, screened.screened_acceptance, screened.direction
        move = delayed_metropolis if self.delayed else metropolis
        state, info = move(rng, state, target, factor=factor)
        return state, info.theta_acceptance, info.direction


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
