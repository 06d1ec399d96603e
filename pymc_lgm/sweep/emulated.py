"""The move that jumps: an emulator of the evidence proposes, a random walk fills in.

Where the evidence cannot be learnt from the visits of tuning, HMC takes over.
"""

from __future__ import annotations

import math

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from pymc_lgm.adaptation import ProposalTuning, StepSizeTuning
from pymc_lgm.approximations.emulator import ROOM, Emulator, Visits, emulate
from pymc_lgm.linalg import Array
from pymc_lgm.moves.surrogate_transition import SurrogateTransitionInfo, surrogate_transition
from pymc_lgm.parameterizations.target import Screened, Target
from pymc_lgm.state import State
from pymc_lgm.sweep.element import Stats
from pymc_lgm.sweep.guided import Guided, GuidedTuning
from pymc_lgm.sweep.theta import Metropolis

__all__ = ["Emulated", "EmulatorTuning"]


class EmulatorTuning(NamedTuple):
    """What `Emulated` learns: a random walk, an emulator, a step size on it.

    The emulator learns every theta that was tried, accepted or not, and is made anew each time the
    draws have grown by a fifth. It is standardized by the later two thirds of the chain.
    ``guidance`` is the share of draws in which HMC moves theta instead.
    """

    local: ProposalTuning
    step_size: StepSizeTuning
    emulator: Emulator | None
    visits: tuple[tuple[Array, float, float], ...]
    chain: tuple[Array, ...]
    next_fit: int
    judged_from: int
    acceptance: float = 0.0
    proposals: int = 0
    guided: GuidedTuning | None = None
    guidance: float = 0.0

    def note(self, acceptance: float) -> EmulatorTuning:
        """Note how good a proposal of the emulator was; the last 50 or so count."""
        proposals = self.proposals + 1
        rate = 1.0 / min(proposals, 50)
        return self._replace(
            acceptance=self.acceptance + rate * (acceptance - self.acceptance), proposals=proposals
        )

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
    """Surrogate transitions; a random walk for one move in five on a target without noise.

    Where the emulator is too low a chain would hardly leave by its proposals: the walk does. While
    fewer than ``good`` of the proposals are accepted, each draw of tuning tries ``tries`` of them.
    With ``guided``, HMC that follows a force, an emulator that is not good by the last learning is
    helped in one draw of five, and one that is not even ``fair``, since the evidence has more shape
    than visits can show, is replaced: at ``judgment``, a share of tuning, or later.
    """

    local: Metropolis = field(default_factory=Metropolis)
    share: float = 0.2
    guided: Guided | None = None
    judgment: float = 0.5
    fair: float = 0.3
    good: float = 0.7
    tries: int = 3
    stats = ("theta_acceptance", "theta_scale")
    needs_gradient = False

    def start(self, state: State, tune: int) -> EmulatorTuning:
        """Walk for the first eighth of tuning; for a quarter, or 50 draws, if that is short."""
        local = self.local.start(state, tune)
        return EmulatorTuning(
            local=local,
            step_size=StepSizeTuning.start(0.8 * state.theta.size**-0.25, 0.8, 3.0),
            emulator=None,
            visits=(),
            chain=(),
            next_fit=max(tune // 8, min(tune // 4, 50)),
            judged_from=math.ceil(self.judgment * tune),
        )

    def run(
        self, rng: np.random.Generator, target: Target, tuning: EmulatorTuning, tune: bool
    ) -> tuple[State, EmulatorTuning, Stats]:
        """Propose once. From a target with noise only the walk and the step size are learnt."""
        learning = tune and not target.noisy
        visited: list[tuple[Array, float, float]] = []
        watched = _watched(target, visited) if learning else target
        dice = rng.uniform()
        followed = dice < tuning.guidance
        if followed and self.guided is not None and tuning.guided is not None:
            state, guided, stats = self.guided.run(rng, watched, tuning.guided, tune)
            tuning = tuning._replace(guided=guided)
        elif tuning.emulator is None or (dice < self.share and not target.noisy):
            state, local, stats = self.local.run(rng, watched, tuning.local, tune)
            tuning = tuning._replace(local=local)
        else:
            state, info = self._jump(rng, watched, tuning, tune)
            stats = {
                "theta_acceptance": info.theta_acceptance,
                "theta_scale": tuning.local.scale,
            }
            if tune:
                tuning = tuning._replace(
                    step_size=tuning.step_size.update(info.emulated_acceptance)
                ).note(info.theta_acceptance)
            if learning and tuning.acceptance < self.good:
                for _ in range(self.tries - 1):
                    self._jump(rng, _looked_at(target, visited), tuning, tune)
        if learning and tuning.guidance < 1.0:
            tuning = self._judged(tuning.learn(visited, state.theta), followed)
        return state, tuning, stats

    def _judged(self, tuning: EmulatorTuning, followed: bool) -> EmulatorTuning:
        """Say how often HMC shall move theta: seldom where the emulator is fair, never if good."""
        if self.guided is None or len(tuning.chain) < tuning.judged_from:
            return tuning
        if tuning.acceptance < self.fair:
            # A chain that hardly moved has no covariance to begin with. One that did has a mass
            # matrix, and there may be little of tuning left to learn another.
            guided = tuning.guided or self.guided.follow(tuning.local, ())
            return tuning._replace(emulator=None, visits=(), chain=(), guided=guided, guidance=1.0)
        if tuning.guided is None:
            guided = self.guided.follow(tuning.local, tuning.chain)
        else:  # a draw that has followed a force has been learnt
            guided = tuning.guided if followed else tuning.guided.learn(tuning.chain[-1])
        guidance = self.share if tuning.acceptance < self.good else 0.0
        return tuning._replace(guided=guided, guidance=guidance)

    def _jump(
        self, rng: np.random.Generator, target: Target, tuning: EmulatorTuning, tune: bool
    ) -> tuple[State, SurrogateTransitionInfo]:
        assert tuning.emulator is not None
        return surrogate_transition(
            rng,
            target.state,
            target,
            emulator=tuning.emulator,
            step_size=tuning.step_size.value(tune),
        )


def _watched(target: Target, visited: list[tuple[Array, float, float]]) -> Target:
    """The same target, which notes each theta with its evidence and its prior."""

    def evaluate(theta: Array) -> tuple[float, State | None]:
        log_density, there = target(theta)
        if there is not None:
            visited.append((theta, log_density - there.log_prior, there.log_prior))
        return log_density, there

    # Without noise a screen is the target itself; delayed acceptance asks for nothing else first.
    def screen(theta: Array) -> Screened | None:
        screened = None if target.screen is None else target.screen(theta)
        if screened is not None and math.isfinite(screened.log_density):
            log_prior = target.state.model.log_prior(theta)
            visited.append((theta, screened.log_density - log_prior, log_prior))
        return screened

    return replace(target, evaluate=evaluate, screen=screen if target.screen else None)


def _looked_at(target: Target, visited: list[tuple[Array, float, float]]) -> Target:
    """A target that notes the same of its screen, and where no move is accepted."""
    watched = _watched(target, visited)

    def evaluate(theta: Array) -> tuple[float, State | None]:
        if watched.screen is not None:
            watched.screen(theta)
        return -math.inf, None

    return replace(target, evaluate=evaluate)
