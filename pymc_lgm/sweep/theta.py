"""Elements that move theta with something about f held fixed, and the moves that they take.

The two axes: `PARAMETERIZATIONS` says what is held, `THETA_MOVES` how theta moves in the target
that this leaves. A move is a kernel on a target together with its tuning rule, as an element is one
on a state.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from pymc_lgm.adaptation import ProposalTuning, StepSizeTuning, WidthTuning
from pymc_lgm.approximations.sites import NOISES
from pymc_lgm.moves.delayed_metropolis import delayed_metropolis
from pymc_lgm.moves.hmc import hmc
from pymc_lgm.moves.metropolis import metropolis
from pymc_lgm.moves.slice import slice_componentwise
from pymc_lgm.moves.smmala import smmala
from pymc_lgm.parameterizations.posterior_whitened import posterior_whitened
from pymc_lgm.parameterizations.sufficient import sufficient
from pymc_lgm.parameterizations.surrogate import surrogate
from pymc_lgm.parameterizations.target import Fix, Target
from pymc_lgm.parameterizations.whitened import whitened
from pymc_lgm.state import State
from pymc_lgm.sweep.element import Stats

__all__ = [
    "DIFFERENTIABLE",
    "PARAMETERIZATIONS",
    "SMMALA",
    "THETA_MOVES",
    "Metropolis",
    "Move",
    "Slice",
    "Theta",
    "ThetaHMC",
]

PARAMETERIZATIONS: dict[str, Fix] = {
    "sufficient": sufficient,
    "whitened": whitened,
    "surrogate-site": partial(surrogate, noise="site"),
    "surrogate-taylor": partial(surrogate, noise="taylor"),
    "posterior-site": partial(posterior_whitened, search=NOISES["site"]),
    "posterior-taylor": partial(posterior_whitened, search=NOISES["taylor"]),
}
"""What is held fixed while theta moves, by name."""

DIFFERENTIABLE = frozenset({"sufficient", "whitened"})
"""Parameterizations whose targets have a ``gradient`` and a ``geometry``."""


class Move(Protocol):
    """A kernel on a target and its tuning rule."""

    @property
    def stats(self) -> tuple[str, ...]:
        """Names of the statistics that `run` returns."""

    @property
    def needs_gradient(self) -> bool:
        """Whether the target must have a ``gradient``."""

    def start(self, state: State, tune: int) -> Any:
        """What it knows before the first of ``tune`` draws of tuning."""

    def run(
        self, rng: np.random.Generator, target: Target, tuning: Any, tune: bool
    ) -> tuple[State, Any, Stats]:
        """Move from ``target.state``; learn from it if ``tune``."""


@dataclass(frozen=True)
class Theta:
    """One move on theta in one parameterization."""

    parameterization: str
    move: Move

    def __post_init__(self) -> None:
        """Refuse a target that has no gradient to a move that needs one."""
        if self.move.needs_gradient and self.parameterization not in DIFFERENTIABLE:
            name = next(n for n, move in THETA_MOVES.items() if isinstance(self.move, move))
            raise ValueError(
                f"move={name!r} needs a gradient in theta, which parameterization="
                f"{self.parameterization!r} does not have. Choose from "
                f"{', '.join(map(repr, sorted(DIFFERENTIABLE)))}, or write move='metropolis' or "
                "move='slice'."
            )

    @property
    def stats(self) -> tuple[str, ...]:
        """Those of the move."""
        return self.move.stats

    def start(self, state: State, tune: int) -> Any:
        """Begin as the move does."""
        return self.move.start(state, tune)

    def run(
        self, rng: np.random.Generator, state: State, tuning: Any, tune: bool
    ) -> tuple[State, Any, Stats]:
        """Hold what is held, and move."""
        target = PARAMETERIZATIONS[self.parameterization](rng, state)
        return self.move.run(rng, target, tuning, tune)


@dataclass(frozen=True)
class Metropolis:
    """Adaptive random-walk Metropolis."""

    target_accept: float | None = None
    scale: float | None = None
    delayed: bool = False
    stats = ("theta_acceptance", "theta_scale")
    needs_gradient = False

    def start(self, state: State, tune: int) -> ProposalTuning:
        """Begin with the same scale in every direction."""
        return ProposalTuning.start(state.theta.size, self.target_accept, self.scale)

    def run(
        self, rng: np.random.Generator, target: Target, tuning: ProposalTuning, tune: bool
    ) -> tuple[State, ProposalTuning, Stats]:
        """Propose once; with ``delayed``, look at the target's screen first."""
        kernel = delayed_metropolis if self.delayed else metropolis
        state, info = kernel(rng, target.state, target, factor=tuning.factor)
        stats = {"theta_acceptance": info.theta_acceptance, "theta_scale": tuning.scale}
        if tune:
            tuning = tuning.update(info.direction, info.theta_acceptance)
        return state, tuning, stats


@dataclass(frozen=True)
class Slice:
    """Slice sampling of each component of theta; learns the widths."""

    width: float = 2.0
    max_widths: int = 1
    stats = ("theta_acceptance", "theta_evaluations", "theta_scale")
    needs_gradient = False

    def start(self, state: State, tune: int) -> WidthTuning:
        """Begin with the same width for every component."""
        return WidthTuning.start(state.theta.size, self.width)

    def run(
        self, rng: np.random.Generator, target: Target, tuning: WidthTuning, tune: bool
    ) -> tuple[State, WidthTuning, Stats]:
        """Move every component once."""
        state, info = slice_componentwise(
            rng, target.state, target, widths=tuning.widths, max_widths=self.max_widths
        )
        stats = {
            "theta_acceptance": info.theta_acceptance,
            "theta_evaluations": float(info.theta_evaluations),
            "theta_scale": tuning.scale,
        }
        if tune:
            tuning = tuning.update(info.jumps)
        return state, tuning, stats


@dataclass(frozen=True)
class ThetaHMC:
    """HMC on theta; learns the step size, the mass matrix is I."""

    max_steps: int = 10
    step_size: float = 0.1
    target_accept: float = 0.8
    stats = ("theta_acceptance", "theta_evaluations", "theta_step_size")
    needs_gradient = True

    def start(self, state: State, tune: int) -> StepSizeTuning:
        """Begin with ``step_size``."""
        return StepSizeTuning.start(self.step_size, self.target_accept)

    def run(
        self, rng: np.random.Generator, target: Target, tuning: StepSizeTuning, tune: bool
    ) -> tuple[State, StepSizeTuning, Stats]:
        """Follow one trajectory."""
        step_size = tuning.value(tune)
        state, info = hmc(
            rng,
            target.state,
            target,
            factor=np.eye(target.state.theta.size),
            step_size=step_size,
            max_steps=self.max_steps,
        )
        if tune:
            tuning = tuning.update(info.theta_acceptance)
        return state, tuning, info._asdict() | {"theta_step_size": step_size}


@dataclass(frozen=True)
class SMMALA:
    """Simplified manifold MALA; learns the step size."""

    step_size: float = 0.5
    target_accept: float = 0.57
    stats = ("theta_acceptance", "theta_step_size")
    needs_gradient = True

    def start(self, state: State, tune: int) -> StepSizeTuning:
        """Begin with ``step_size``."""
        return StepSizeTuning.start(self.step_size, self.target_accept)

    def run(
        self, rng: np.random.Generator, target: Target, tuning: StepSizeTuning, tune: bool
    ) -> tuple[State, StepSizeTuning, Stats]:
        """Propose once."""
        step_size = tuning.value(tune)
        state, info = smmala(rng, target.state, target, step_size=step_size)
        if tune:
            tuning = tuning.update(info.theta_acceptance)
        return state, tuning, info._asdict() | {"theta_step_size": step_size}


THETA_MOVES: dict[str, type[Any]] = {
    "metropolis": Metropolis,
    "slice": Slice,
    "hmc": ThetaHMC,
    "smmala": SMMALA,
}
"""Moves on theta by the name that a user writes in ``move=``."""
