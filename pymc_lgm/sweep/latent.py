"""Elements that move f given theta."""

from __future__ import annotations

import math

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np

from pymc_lgm.adaptation import StepSizeTuning
from pymc_lgm.latent.auxiliary_gradient import auxiliary_gradient
from pymc_lgm.latent.curvature_hmc import curvature_hmc, curvature_metric
from pymc_lgm.latent.elliptical_slice import elliptical_slice
from pymc_lgm.latent.hmc import HMCInfo, Integrator, Metric, hmc
from pymc_lgm.latent.metropolis import Proposal, metropolis
from pymc_lgm.latent.smmala import smmala
from pymc_lgm.parameterizations.approximate_marginal import Search, approximated
from pymc_lgm.state import State
from pymc_lgm.sweep.element import Element, Stats

__all__ = [
    "HMC",
    "LATENT_MOVES",
    "SMMALA",
    "AuxiliaryGradient",
    "CurvatureHMC",
    "EllipticalSlice",
    "LatentMove",
    "NealMetropolis",
]

LEAST_STEP = 1e-10
"""A step size that no move goes below, however long a chain is stuck while it is tuned."""


class LatentMove(Element, Protocol):
    """An element that moves f alone, and says what it asks of the likelihood."""

    @property
    def needs_gradient(self) -> bool:
        """Whether it needs ∂ℓ/∂f."""

    @property
    def needs_curvature(self) -> bool:
        """Whether it needs −∂²ℓ/∂f²."""


@dataclass(frozen=True)
class EllipticalSlice:
    """Elliptical slice on f, ``repeats`` times. Nothing to tune, no gradient needed."""

    repeats: int = 1
    stats = ("latent_acceptance", "latent_evaluations")
    needs_gradient = needs_curvature = False

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


class Info(Protocol):
    """What every move of f reports."""

    @property
    def latent_acceptance(self) -> float:
        """Acceptance probability."""

    @property
    def latent_evaluations(self) -> int:
        """Likelihood evaluations."""


@dataclass(frozen=True)
class _Stepping:
    """A kernel run ``repeats`` times; its step size learns to be accepted ``target_accept``."""

    repeats: int = 1
    step_size: float = 0.2
    target_accept: float = 0.8
    stats = ("latent_acceptance", "latent_evaluations", "latent_step_size")
    needs_gradient, needs_curvature = True, False

    def start(self, state: State, tune: int) -> StepSizeTuning:
        """Begin with ``step_size``."""
        return StepSizeTuning.start(self.step_size, self.target_accept, self._maximum(state))

    def run(
        self, rng: np.random.Generator, state: State, tuning: StepSizeTuning, tune: bool
    ) -> tuple[State, StepSizeTuning, Stats]:
        """Move f ``repeats`` times."""
        acceptance = evaluations = 0.0
        for _ in range(self.repeats):
            step_size = max(tuning.value(tune), LEAST_STEP)
            state, info = self._move(rng, state, step_size)
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

    def _maximum(self, state: State) -> float:
        """A step size beyond which there is nothing to gain."""
        return math.inf

    def _move(self, rng: np.random.Generator, state: State, step_size: float) -> tuple[State, Info]:
        raise NotImplementedError


@dataclass(frozen=True)
class _Trajectories(_Stepping):
    """HMC on f: the number of steps follows the step size ε, up to path_length / ε.

    Under a rotation half a turn is π; a uniform share of 2.4 decorrelates the directions that the
    data say little about, however small the stiff ones keep ε.
    """

    integrator: Integrator = "rotation"
    path_length: float = 2.4
    max_steps: int = 100

    def _maximum(self, state: State) -> float:
        # Half a turn of the rotation goes to the mirror image: more is never needed.
        return math.pi / 2 if self.integrator == "rotation" else math.inf

    def _most(self, step_size: float) -> int:
        return min(self.max_steps, math.ceil(self.path_length / step_size))


@dataclass(frozen=True)
class HMC(_Trajectories):
    """HMC on f, ``repeats`` times; its step size learns to be accepted ``target_accept``."""

    metric: Metric = "prior"

    def _move(self, rng: np.random.Generator, state: State, step_size: float) -> tuple[State, Info]:
        return hmc(
            rng,
            state,
            step_size=step_size,
            max_steps=self._most(step_size),
            metric=self.metric,
            integrator=self.integrator,
        )


@dataclass(frozen=True)
class CurvatureHMC(_Trajectories):
    """HMC on f with a Gaussian approximation's covariance for M⁻¹; learns the step size."""

    search: Search | None = curvature_metric
    """Gives q, a function of theta alone; ``None`` for the one that the state has."""
    needs_curvature = True

    def _move(self, rng: np.random.Generator, state: State, step_size: float) -> tuple[State, Info]:
        with_q = state if self.search is None else approximated(state, self.search, None)
        if with_q is None or with_q.approximation is None:
            return state, HMCInfo(0.0, 0)
        return curvature_hmc(
            rng,
            with_q,
            with_q.approximation,
            step_size=step_size,
            max_steps=self._most(step_size),
            integrator=self.integrator,
        )


@dataclass(frozen=True)
class NealMetropolis(_Stepping):
    """Metropolis on f with proposals drawn from the prior; learns their size. No gradient."""

    target_accept: float = 0.25
    proposal: Proposal = "autoregressive"
    needs_gradient = False

    def _maximum(self, state: State) -> float:
        return 1.0 if self.proposal == "autoregressive" else math.inf

    def _move(self, rng: np.random.Generator, state: State, step_size: float) -> tuple[State, Info]:
        return metropolis(rng, state, step_size=step_size, proposal=self.proposal)


@dataclass(frozen=True)
class SMMALA(_Stepping):
    """Simplified manifold MALA on f; learns the step size. One factorization a proposal."""

    step_size: float = 0.5
    target_accept: float = 0.3
    needs_curvature = True

    def _move(self, rng: np.random.Generator, state: State, step_size: float) -> tuple[State, Info]:
        return smmala(rng, state, step_size=step_size)


@dataclass(frozen=True)
class AuxiliaryGradient(_Stepping):
    """Auxiliary gradient sampler of f; learns δ. Two factorizations whenever theta or δ moves."""

    target_accept: float = 0.55

    def _maximum(self, state: State) -> float:
        # The trace is above every eigenvalue of K: P is next to nothing at a hundred times that.
        return 100.0 * float(np.square(state.prior.dense()).sum())

    def _move(self, rng: np.random.Generator, state: State, step_size: float) -> tuple[State, Info]:
        return auxiliary_gradient(rng, state, step_size=step_size)


LATENT_MOVES: dict[str, Callable[..., LatentMove]] = {
    "hmc": HMC,
    "slice": EllipticalSlice,
    "hmc-curvature": CurvatureHMC,
    "mgrad": AuxiliaryGradient,
    "metropolis": NealMetropolis,
    "random-walk": partial(NealMetropolis, proposal="random-walk"),
    "smmala": SMMALA,
}
"""Latent moves by the name that a user writes in ``latent=``."""
