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
from typing import Any, NamedTuple, Protocol

import numpy as np

from pymc_lgm.adaptation import ProposalTuning, StepSizeTuning
from pymc_lgm.approximations.importance import Scheme
from pymc_lgm.latent.elliptical_slice import elliptical_slice
from pymc_lgm.latent.hmc import Integrator, Metric, hmc
from pymc_lgm.linalg import Array, tally
from pymc_lgm.moves.delayed_metropolis import delayed_metropolis
from pymc_lgm.moves.metropolis import metropolis
from pymc_lgm.parameterizations.pseudo_marginal import Search, pseudo_marginal
from pymc_lgm.parameterizations.sufficient import sufficient
from pymc_lgm.parameterizations.target import Fix
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


class PseudoMarginalTuning(NamedTuple):
    """What `PseudoMarginal` learns: a proposal, and where mode searches start.

    ``start`` is the average center f̂ of the draws before the last renewal: in the middle of the
    posterior, and the same for every theta; ``None``, the prior's mean, before the first.
    """

    proposal: ProposalTuning
    start: Array | None
    center_sum: Array
    draws: int
    approximate_draws: int

    def update(self, direction: Array, acceptance: float, center: Array) -> PseudoMarginalTuning:
        """Learn from one draw; renew the start at draws 50, 100, 200, 400, ..."""
        draws = self.draws + 1
        center_sum, start = self.center_sum + center, self.start
        rounds, rest = divmod(draws, 50)
        if rest == 0 and rounds & (rounds - 1) == 0:
            # The sum began at the last renewal: at half of these draws, or at the first.
            since = draws if rounds == 1 else draws // 2
            start = center_sum / since
            center_sum = np.zeros_like(center)
        return PseudoMarginalTuning(
            self.proposal.update(direction, acceptance),
            start,
            center_sum,
            draws,
            self.approximate_draws,
        )


@dataclass(frozen=True)
class PseudoMarginal:
    """Adaptive random-walk Metropolis on theta with f integrated out.

    The first half of tuning runs on the approximate evidence: it has no noise, and no start from
    which the chain could not leave.
    """

    search: Search
    scheme: Scheme
    correlation: float = 0.0
    delayed: bool = False
    exact: bool = True
    target_accept: float | None = None
    scale: float | None = None

    @property
    def stats(self) -> tuple[str, ...]:
        """The spread of one importance draw says nothing, and is not reported."""
        spread = ("log_evidence_sd",) if self.scheme.n_importance > 1 else ()
        return ("theta_acceptance", "theta_scale", "log_evidence", *spread, "mode_iterations")

    def start(self, state: State, tune: int) -> PseudoMarginalTuning:
        """Begin every mode search at the prior's mean."""
        proposal = ProposalTuning.start(max(state.theta.size, 1), self.target_accept, self.scale)
        zero = np.zeros(state.f.size)
        return PseudoMarginalTuning(proposal, None, zero, 0, tune // 2)

    def run(
        self, rng: np.random.Generator, state: State, tuning: PseudoMarginalTuning, tune: bool
    ) -> tuple[State, PseudoMarginalTuning, Stats]:
        """Refresh f and propose once."""
        exact = self.exact and not (tune and tuning.draws < tuning.approximate_draws)
        target, estimate = pseudo_marginal(
            rng,
            state,
            search=self.search,
            start=tuning.start,
            scheme=self.scheme,
            correlation=self.correlation,
            exact=exact,
        )
        stats = {"theta_scale": tuning.proposal.scale, **estimate._asdict()}
        if self.scheme.n_importance == 1:
            del stats["log_evidence_sd"]
        state = target.state
        if state.theta.size == 0:
            return state, tuning, stats | {"theta_acceptance": math.nan}
        # Without noise the second stage of an approximate chain accepts whatever passes the first.
        move = delayed_metropolis if (self.delayed or not exact) and target.screen else metropolis
        state, info = move(rng, state, target, factor=tuning.proposal.factor)
        if tune and state.approximation is not None:
            learnt = getattr(info, "screened_acceptance", info.theta_acceptance)
            tuning = tuning.update(info.direction, learnt, state.approximation.center)
        return state, tuning, stats | {"theta_acceptance": info.theta_acceptance}


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
