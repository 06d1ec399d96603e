"""A sweep: kernels run in order on one state, each with what tuning has learnt for it.

Every element leaves p(theta, f | y) invariant by itself, so any list of them is a correct
sampler. An element is a kernel from one of the axes together with its tuning rule:

    start(state, tune) -> tuning                          what it knows before the first draw
    run(rng, state, tuning, tune) -> (state, tuning, stats)

The tuning is data that the step method owns; with ``tune=False`` it comes back unchanged.
"""

from __future__ import annotations

import math

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from pymc_lgm.adaptation import (
    FEW,
    MANY,
    NoiseTuning,
    ProposalTuning,
    PseudoMarginalTuning,
    StepSizeTuning,
)
from pymc_lgm.approximations.importance import Estimate, Scheme
from pymc_lgm.latent.elliptical_slice import elliptical_slice
from pymc_lgm.latent.hmc import Integrator, Metric, hmc
from pymc_lgm.linalg import Array, tally
from pymc_lgm.moves.delayed_metropolis import delayed_metropolis
from pymc_lgm.moves.metropolis import metropolis
from pymc_lgm.parameterizations.approximate_marginal import (
    Search,
    approximate_marginal,
    draw_latent,
    noise_of_ratio,
)
from pymc_lgm.parameterizations.pseudo_marginal import pseudo_marginal
from pymc_lgm.parameterizations.sufficient import sufficient
from pymc_lgm.parameterizations.target import Fix, Target
from pymc_lgm.parameterizations.whitened import whitened
from pymc_lgm.state import State

__all__ = [
    "HMC",
    "LATENT_MOVES",
    "PARAMETERIZATIONS",
    "Element",
    "EllipticalSlice",
    "Metropolis",
    "PseudoMarginal",
    "run",
    "statistics",
]

Stats = dict[str, float]


class Element(Protocol):
    """One kernel of a sweep and its tuning rule."""

    @property
    def stats(self) -> tuple[str, ...]:
        """Names of the statistics that `run` returns."""

    def start(self, state: State, tune: int) -> Any:
        """What it knows before the first of ``tune`` draws of tuning."""

    def run(
        self, rng: np.random.Generator, state: State, tuning: Any, tune: bool
    ) -> tuple[State, Any, Stats]:
        """Move the state; learn from it if ``tune``."""


@dataclass(frozen=True)
class EllipticalSlice:
    """Elliptical slice on f, ``repeats`` times. Nothing to tune, no gradient needed."""

    repeats: int = 1
    stats = ("latent_acceptance", "latent_evaluations")
    needs_gradient = False

    def start(self, state: State, tune: int) -> None:
        """Nothing to learn."""

    def run(
        self, rng: np.random.Generator, state: State, tuning: None, tune: bool
    ) -> tuple[State, None, Stats]:
        """Move f ``repeats`` times."""
        acceptance = evaluations = 0.0
        for _ in range(self.repeats):
            state, info = elliptical_slice(rng, state)
            acceptance += info.latent_acceptance / self.repeats
            evaluations += info.latent_evaluations
        return state, None, {"latent_acceptance": acceptance, "latent_evaluations": evaluations}


@dataclass(frozen=True)
class HMC:
    """HMC on f, ``repeats`` times; its step size learns to be accepted ``target_accept``.

    The number of steps follows the step size ε: up to path_length / ε, and never more than
    ``max_steps``. Under the prior's rotation half a turn is π; a uniform share of 2.4 decorrelates
    the directions that the data say little about, however small the stiff ones keep ε.
    """

    repeats: int = 1
    metric: Metric = "prior"
    integrator: Integrator = "rotation"
    path_length: float = 2.4
    max_steps: int = 100
    step_size: float = 0.2
    target_accept: float = 0.8
    stats = ("latent_acceptance", "latent_evaluations", "latent_step_size")
    needs_gradient = True

    def start(self, state: State, tune: int) -> StepSizeTuning:
        """Begin with ``step_size``."""
        # Half a turn of the prior's rotation goes to the mirror image: more is never needed.
        maximum = math.pi / 2 if self.integrator == "rotation" else math.inf
        return StepSizeTuning.start(self.step_size, self.target_accept, maximum)

    def run(
        self, rng: np.random.Generator, state: State, tuning: StepSizeTuning, tune: bool
    ) -> tuple[State, StepSizeTuning, Stats]:
        """Move f ``repeats`` times."""
        acceptance = evaluations = 0.0
        for _ in range(self.repeats):
            step_size = tuning.value(tune)
            state, info = hmc(
                rng,
                state,
                step_size=step_size,
                max_steps=min(self.max_steps, math.ceil(self.path_length / step_size)),
                metric=self.metric,
                integrator=self.integrator,
            )
            if tune:
                tuning = tuning.update(info.latent_acceptance)
            acceptance += info.latent_acceptance / self.repeats
            evaluations += info.latent_evaluations
        return (
            state,
            tuning,
            {
                "latent_acceptance": acceptance,
                "latent_evaluations": evaluations,
                "latent_step_size": step_size,
            },
        )


LATENT_MOVES: dict[str, Callable[..., EllipticalSlice | HMC]] = {
    "hmc": HMC,
    "slice": EllipticalSlice,
}
"""Latent moves by the name that a user writes in ``latent=``."""

PARAMETERIZATIONS: dict[str, Fix] = {"sufficient": sufficient, "whitened": whitened}
"""Parameterizations by name."""


@dataclass(frozen=True)
class Metropolis:
    """Adaptive random-walk Metropolis on theta in one parameterization."""

    parameterization: str
    target_accept: float | None = None
    scale: float | None = None
    stats = ("theta_acceptance", "theta_scale")

    def start(self, state: State, tune: int) -> ProposalTuning:
        """Begin with the same scale in every direction."""
        return ProposalTuning.start(state.theta.size, self.target_accept, self.scale)

    def run(
        self, rng: np.random.Generator, state: State, tuning: ProposalTuning, tune: bool
    ) -> tuple[State, ProposalTuning, Stats]:
        """Propose once."""
        target = PARAMETERIZATIONS[self.parameterization](rng, state)
        state, info = metropolis(rng, target.state, target, factor=tuning.factor)
        stats = {"theta_acceptance": info.theta_acceptance, "theta_scale": tuning.scale}
        if tune:
            tuning = tuning.update(info.direction, info.theta_acceptance)
        return state, tuning, stats


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


def statistics(elements: Sequence[Element]) -> dict[str, type]:
    """Names and types of what `run` reports for these elements."""
    return {name: float for name in _reported(elements)} | {
        "cubic_ops": int,
        "numerical_rejections": int,
    }


def run(
    rng: np.random.Generator,
    state: State,
    elements: Sequence[Element],
    tunings: Sequence[Any],
    tune: bool,
) -> tuple[State, list[Any], dict[str, float]]:
    """Leave p(theta, f | y) invariant by running the elements in order.

    Returns
    -------
    state : State
    tunings : list
        One an element, changed only if ``tune``.
    stats : dict
        `statistics`. Where several elements report the same name, its mean over them.
    """
    ops, lost = tally.cubic_ops, tally.numerical_rejections
    learnt = []
    reports: dict[str, list[float]] = defaultdict(list)
    # An overflow on the way to a rejection is counted there; it is not worth a warning a draw.
    with np.errstate(over="ignore", invalid="ignore"):
        for element, tuning in zip(elements, tunings, strict=True):
            state, tuning, stats = element.run(rng, state, tuning, tune)
            learnt.append(tuning)
            for name, value in stats.items():
                reports[name].append(value)
    summary = {name: sum(values) / len(values) for name, values in reports.items()}
    summary["cubic_ops"] = tally.cubic_ops - ops
    summary["numerical_rejections"] = tally.numerical_rejections - lost
    return state, learnt, summary


def _reported(elements: Sequence[Element]) -> list[str]:
    return list(dict.fromkeys(name for element in elements for name in element.stats))
