"""The move that jumps: an emulator of the evidence proposes, a random walk fills in."""

from __future__ import annotations

import math

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from pymc_lgm.adaptation import ProposalTuning, StepSizeTuning
from pymc_lgm.approximations.emulator import ROOM, Emulator, Visits, emulate
from pymc_lgm.linalg import Array
from pymc_lgm.moves.surrogate_transition import surrogate_transition
from pymc_lgm.parameterizations.target import Target
from pymc_lgm.state import State
from pymc_lgm.sweep.element import Stats
from pymc_lgm.sweep.theta import Metropolis

__all__ = ["Emulated", "EmulatorTuning"]


class EmulatorTuning(NamedTuple):
    """What `Emulated` learns: a random walk, an emulator, a step size on it.

    The emulator learns every theta that was tried, accepted or not, and is made anew each time the
    draws have grown by a fifth. It is standardized by the later two thirds of the chain.
    """

    local: ProposalTuning
    step_size: StepSizeTuning
    emulator: Emulator | None
    visits: tuple[tuple[Array, float, float], ...]
    chain: tuple[Array, ...]
    next_fit: int

    def learn(self, visited: list[tuple[Array, float, float]], theta: Array) -> EmulatorTuning:
        """Learn from one draw: what was tried, and where the chain is."""
        visits = (*self.visits, *visited)[-ROOM * (theta.size + 2) :]
        chain = (*self.chain, theta)
        tuning = self._replace(visits=visits, chain=chain)
        # A quadratic has about p²/2 coefficients, but a prior for each: 2 p visits are a start.
        if len(chain) < self.next_fit or len(visits) < 10 + 2 * theta.size:
            return tuning
        past = np.array(chain[len(chain) // 3 :])
        center = past.mean(axis=0)
        cov = (past - center).T @ (past - center) / len(past)
        cov[np.diag_indices_from(cov)] += 1e-8 + 1e-6 * np.trace(cov)
        known = Visits(*(np.array(column) for column in zip(*visits, strict=True)))
        before = () if self.emulator is None else (self.emulator.grid,)
        emulator = emulate(known, center, np.linalg.cholesky(cov), *before)
        return tuning._replace(emulator=emulator, next_fit=math.ceil(1.2 * len(chain)))


@dataclass(frozen=True)
class Emulated:
    """Surrogate transitions, and a random walk for one move in five on a target without noise.

    Where the emulator is too low a chain would hardly leave by its proposals: the walk does.
    """

    local: Metropolis = field(default_factory=Metropolis)
    share: float = 0.2
    stats = ("theta_acceptance", "theta_scale")
    needs_gradient = False

    def start(self, state: State, tune: int) -> EmulatorTuning:
        """Walk for the first quarter of tuning."""
        step_size = StepSizeTuning.start(0.8 * state.theta.size**-0.25, 0.8, 3.0)
        return EmulatorTuning(self.local.start(state, tune), step_size, None, (), (), tune // 4)

    def run(
        self, rng: np.random.Generator, target: Target, tuning: EmulatorTuning, tune: bool
    ) -> tuple[State, EmulatorTuning, Stats]:
        """Propose once. From a target with noise only the walk and the step size are learnt."""
        learning = tune and not target.noisy
        visited: list[tuple[Array, float, float]] = []
        watched = _watched(target, visited) if learning else target
        walks = not target.noisy and rng.uniform() < self.share
        if tuning.emulator is None or walks:
            state, local, stats = self.local.run(rng, watched, tuning.local, tune)
            tuning = tuning._replace(local=local)
        else:
            state, info = surrogate_transition(
                rng,
                target.state,
                watched,
                emulator=tuning.emulator,
                step_size=tuning.step_size.value(tune),
            )
            stats = {
                "theta_acceptance": info.theta_acceptance,
                "theta_scale": tuning.local.scale,
            }
            if tune:
                tuning = tuning._replace(
                    step_size=tuning.step_size.update(info.emulated_acceptance)
                )
        if learning:
            tuning = tuning.learn(visited, state.theta)
        return state, tuning, stats


def _watched(target: Target, visited: list[tuple[Array, float, float]]) -> Target:
    """The same target, which notes each theta with its evidence and its prior."""

    def evaluate(theta: Array) -> tuple[float, State | None]:
        log_density, there = target(theta)
        if there is not None:
            visited.append((theta, log_density - there.log_prior, there.log_prior))
        return log_density, there

    return replace(target, evaluate=evaluate)
