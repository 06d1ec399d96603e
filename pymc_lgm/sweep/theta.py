"""Elements that move theta with something about f held fixed.

The two axes: `PARAMETERIZATIONS` says what is held, `THETA_MOVES` how theta moves in the target
that this leaves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from pymc_lgm.adaptation import ProposalTuning, StepSizeTuning, WidthTuning
from pymc_lgm.approximations.sites import NOISES
from pymc_lgm.moves.hmc import hmc
from pymc_lgm.moves.metropolis import metropolis
from pymc_lgm.moves.slice import slice_componentwise
from pymc_lgm.moves.smmala import smmala
from pymc_lgm.parameterizations.posterior_whitened import posterior_whitened
from pymc_lgm.parameterizations.sufficient import sufficient
from pymc_lgm.parameterizations.surrogate import surrogate
from pymc_lgm.parameterizations.target import Fix
from pymc_lgm.parameterizations.whitened import whitened
from pymc_lgm.state import State
from pymc_lgm.sweep.element import Element, Stats

__all__ = [
    "DIFFERENTIABLE",
    "PARAMETERIZATIONS",
    "SMMALA",
    "THETA_MOVES",
    "Metropolis",
    "Slice",
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
class Slice:
    """Slice sampling of each component of theta in one parameterization; learns the widths."""

    parameterization: str
    width: float = 2.0
    max_widths: int = 1
    stats = ("theta_acceptance", "theta_evaluations", "theta_scale")

    def start(self, state: State, tune: int) -> WidthTuning:
        """Begin with the same width for every component."""
        return WidthTuning.start(state.theta.size, self.width)

    def run(
        self, rng: np.random.Generator, state: State, tuning: WidthTuning, tune: bool
    ) -> tuple[State, WidthTuning, Stats]:
        """Move every component once."""
        target = PARAMETERIZATIONS[self.parameterization](rng, state)
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
    """HMC on theta in one parameterization; learns the step size, the mass matrix is I."""

    parameterization: str
    max_steps: int = 10
    step_size: float = 0.1
    target_accept: float = 0.8
    stats = ("theta_acceptance", "theta_evaluations", "theta_step_size")

    def __post_init__(self) -> None:
        """Refuse a target that has no gradient."""
        _refuse_without_gradient("hmc", self.parameterization)

    def start(self, state: State, tune: int) -> StepSizeTuning:
        """Begin with ``step_size``."""
        return StepSizeTuning.start(self.step_size, self.target_accept)

    def run(
        self, rng: np.random.Generator, state: State, tuning: StepSizeTuning, tune: bool
    ) -> tuple[State, StepSizeTuning, Stats]:
        """Follow one trajectory."""
        target = PARAMETERIZATIONS[self.parameterization](rng, state)
        step_size = tuning.value(tune)
        state, info = hmc(
            rng,
            target.state,
            target,
            factor=np.eye(state.theta.size),
            step_size=step_size,
            max_steps=self.max_steps,
        )
        if tune:
            tuning = tuning.update(info.theta_acceptance)
        return state, tuning, info._asdict() | {"theta_step_size": step_size}


@dataclass(frozen=True)
class SMMALA:
    """Simplified manifold MALA on theta in one parameterization; learns the step size."""

    parameterization: str
    step_size: float = 0.5
    target_accept: float = 0.57
    stats = ("theta_acceptance", "theta_step_size")

    def __post_init__(self) -> None:
        """Refuse a target that has no gradient."""
        _refuse_without_gradient("smmala", self.parameterization)

    def start(self, state: State, tune: int) -> StepSizeTuning:
        """Begin with ``step_size``."""
        return StepSizeTuning.start(self.step_size, self.target_accept)

    def run(
        self, rng: np.random.Generator, state: State, tuning: StepSizeTuning, tune: bool
    ) -> tuple[State, StepSizeTuning, Stats]:
        """Propose once."""
        target = PARAMETERIZATIONS[self.parameterization](rng, state)
        step_size = tuning.value(tune)
        state, info = smmala(rng, target.state, target, step_size=step_size)
        if tune:
            tuning = tuning.update(info.theta_acceptance)
        return state, tuning, info._asdict() | {"theta_step_size": step_size}


THETA_MOVES: dict[str, Callable[..., Element]] = {
    "metropolis": Metropolis,
    "slice": Slice,
    "hmc": ThetaHMC,
    "smmala": SMMALA,
}
"""Moves on theta by the name that a user writes in ``move=``."""


def _refuse_without_gradient(move: str, parameterization: str) -> None:
    if parameterization not in DIFFERENTIABLE:
        raise ValueError(
            f"move={move!r} needs a gradient in theta, which parameterization="
            f"{parameterization!r} does not have. Choose from "
            f"{', '.join(map(repr, sorted(DIFFERENTIABLE)))}, or write move='metropolis' or "
            "move='slice'."
        )
