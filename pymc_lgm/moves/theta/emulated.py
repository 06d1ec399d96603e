"""Surrogate transition: many moves on an emulator of the target, accepted or rejected as one.

Liu (2001), *Monte Carlo Strategies in Scientific Computing*, §9.4.3: reversible moves on an
approximation of the target make a proposal whose ratio is that of the approximation.
"""

from __future__ import annotations

import math

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal, NamedTuple

import numpy as np

from pymc_lgm.adaptation import History, ProposalTuning, StepSizeTuning
from pymc_lgm.approximations.emulator import ROOM, Emulator, Visits, emulate
from pymc_lgm.linalg import Array
from pymc_lgm.moves.element import Stats
from pymc_lgm.moves.theta.metropolis import Metropolis
from pymc_lgm.moves.theta.nuts import NUTS
from pymc_lgm.moves.theta.on_emulator import propose, rehearse
from pymc_lgm.moves.theta.prior_jump import jump_of_target
from pymc_lgm.moves.theta.survey import survey
from pymc_lgm.moves.theta.watching import WatchedTarget, thinned
from pymc_lgm.state import State, acceptance_probability
from pymc_lgm.targets.target import Target

__all__ = [
    "ENOUGH",
    "Acceptance",
    "Emulated",
    "EmulatorFit",
    "EmulatorTuning",
    "SurrogateTransitionInfo",
    "begins_with_survey",
    "is_settled",
    "rounds_of",
    "surrogate_transition",
]


STEPS = 4
"""Leapfrog steps of a trajectory."""

LONGEST = 0.75
"""Longest of them: with it four go 1.8 to 3, more than a quarter of a turn about the mode.

Three trajectories, or any odd number, therefore tend to end on the other side of the mode, and the
errors of successive draws cancel. Longer steps would make nearly half a turn: every second draw
would come back, and the distance from the mode would not change.
"""

WALKS = 4
"""Moves of a random walk per exact draw, if it makes all moves: a choice, not measured."""

ENOUGH = 320
"""Fewest draws after which tuning may stop.

By hand, with 160 draws tuning took two thirds of the time. But in a trend whose slope moves one of
twelve chains then had a ninth of its effective draws, because the emulator did not know a tail of
the scale. In a model of space and time one of five runs had half of them.
"""

SETTLED = 0.8
"""Acceptance of `RECENT` jumps or more at which it stops: more visits improve the emulator little.
"""

RECENT = 50
"""Number of proposals of the emulator over which their acceptance is averaged."""

SHORTEST = 25
"""Fewest draws until the emulator is judged, if tuning is to begin with a survey. A survey takes
dozens of evaluations, and hundreds for several components."""

SHARE_OF_LACKING = 0.25
"""Share of the moves that the other move makes, per missing acceptance: a power of 2, by which a
division is exact."""


class SurrogateTransitionInfo(NamedTuple):
    """Statistics of one proposal."""

    theta_acceptance: float
    """Acceptance probability of the proposal."""

    emulated_acceptance: float
    """Mean acceptance probability of the trajectories that made it."""


def surrogate_transition(
    rng: np.random.Generator,
    target: Target,
    *,
    emulator: Emulator,
    step_size: float,
    n_trajectories: int = 3,
    n_jumps: int = 0,
) -> tuple[State, SurrogateTransitionInfo]:
    """Leave the target π invariant by a proposal that a chain on an emulator π* of it makes.

    π*(theta) = p*(y | theta) p(theta). From theta run HMC trajectories that leave π* invariant, and
    before or after them, as a coin says, jumps of single components that do. Each satisfies
    detailed balance, all of one kind are alike, and either kind is as often the first. So theta'
    comes from theta as often as theta from theta', except for the ratio π*(theta')/π*(theta), and
    it is accepted with probability

        min(1, π(theta') π*(theta) / (π(theta) π*(theta'))).

    Parameters
    ----------
    rng : numpy.random.Generator
    target : Target
        The target of theta; the move starts at ``target.state``.
    emulator : Emulator
        Any emulator that does not depend on the chain; it is frozen after tuning.
    step_size : float
        Leapfrog step in the emulator's coordinates; each trajectory takes a random share of it, at
        least 0.6.
    n_trajectories : int
    n_jumps : int
        Number of `prior_jump` moves: weakly identified components have the long tails of the prior.

    Returns
    -------
    State, SurrogateTransitionInfo
        One evaluation of the target, and O(M p + m²) for each step on the emulator.
    """
    state = target.state
    prior = target.state.model.prior_density
    options = (step_size, STEPS, n_trajectories, n_jumps)
    theta, of_emulator, emulated, moved = propose(
        rng, state.theta, emulator, prior.address, *options
    )
    prior.check()
    if not moved:
        return state, SurrogateTransitionInfo(0.0, emulated)
    log_density, proposed = target.evaluate(theta)
    log_ratio = log_density - target.log_density - of_emulator
    info = SurrogateTransitionInfo(acceptance_probability(log_ratio), emulated)
    if proposed is not None and rng.uniform() < info.theta_acceptance:
        return proposed, info
    return state, info


class Acceptance(NamedTuple):
    """Mean acceptance probability of about the `RECENT` last proposals of the emulator."""

    mean: float = 0.0
    proposals: int = 0

    def note(self, acceptance: float) -> Acceptance:
        """Update from one proposal."""
        proposals = self.proposals + 1
        rate = 1.0 / min(proposals, RECENT)
        return Acceptance(self.mean + rate * (acceptance - self.mean), proposals)


class EmulatorFit(NamedTuple):
    """An emulator, and what it is fitted to.

    The emulator learns from every proposed theta, accepted or not, and is fitted again each time
    the number of draws has grown by a fifth. Its coordinates are standardized by the later two
    thirds of the chain.
    """

    emulator: Emulator | None
    visits: tuple[tuple[Array, float, float], ...]
    history: History

    def learn(self, visited: list[tuple[Array, float, float]], theta: Array) -> EmulatorFit:
        """Learn from the proposals and the state of one draw."""
        visits = (*self.visits, *visited)[-ROOM * (theta.size + 2) :]
        history = self.history.add(theta)
        # A quadratic has about p²/2 coefficients, each with a prior, so 2 p visits are enough to
        # start.
        if not history.is_due or len(visits) < 10 + 2 * theta.size:
            return EmulatorFit(self.emulator, visits, history)
        past = history.later
        center = past.mean(axis=0)
        cov = (past - center).T @ (past - center) / len(past)
        cov[np.diag_indices_from(cov)] += 1e-8 + 1e-6 * np.trace(cov)
        before = () if self.emulator is None else (self.emulator.grid,)
        emulator = emulate(Visits.of(visits), center, np.linalg.cholesky(cov), *before)
        return EmulatorFit(emulator, visits, history.learnt(Fraction(6, 5)))


class EmulatorTuning(NamedTuple):
    """Tuning of `Emulated`.

    Attributes
    ----------
    other, warmup
        Tuning of the other move, and of the warm-up move; ``None`` without one.
    step_size : StepSizeTuning
        The step size on the emulator.
    fit : EmulatorFit
    judged_from : int
        Number of draws after which `Emulated` decides how often the other move is made.
    acceptance : Acceptance
    share : float
        Share of the moves that the other move makes.
    """

    other: Any
    warmup: Any
    step_size: StepSizeTuning
    fit: EmulatorFit
    judged_from: int
    acceptance: Acceptance = Acceptance()
    share: float = 0.0

    @property
    def rounds(self) -> int:
        """Number of moves per exact draw: one more for each 0.2 of missing acceptance."""
        if self.share == 1.0:
            return WALKS if isinstance(self.other, ProposalTuning) else 1
        return 1 + math.ceil(self.share / SHARE_OF_LACKING / 0.2)


def rounds_of(learnt: Any) -> int:
    """Number of moves per exact draw, from the tuning of the move on theta.

    Jumps on a poor emulator are cheap and rarely accepted, so a draw makes several. With any other
    move a draw makes one.
    """
    return learnt.rounds if isinstance(learnt, EmulatorTuning) else 1


def is_settled(learnt: Any) -> bool:
    """Whether a move on theta has converged: most of its jumps are accepted."""
    known = isinstance(learnt, EmulatorTuning) and len(learnt.fit.history.rows) >= ENOUGH
    return known and learnt.acceptance.proposals >= RECENT and learnt.acceptance.mean >= SETTLED


def begins_with_survey(move: object, learnt: Any) -> bool:
    """Whether a move on theta will survey its target, because tuning is long enough."""
    return isinstance(move, Emulated) and move.surveys and learnt.judged_from >= SHORTEST


@dataclass(frozen=True)
class Emulated:
    """Surrogate transitions, and another move on theta: NUTS, or a walk without a gradient.

    Until there is an emulator the other move, or a cheaper ``warmup`` move, explores; NUTS does so
    for at most ``nuts_draws`` draws per component of theta. Afterwards the other move continues in
    the share ``other_share`` of tuning, because the emulator's proposals to leave a region where
    the emulator is too low are rejected. A warm-up move would leave such a region only by small
    steps, so a jump of one component in the target replaces it then.

    After the share ``judged_after`` of tuning, each draw determines how often the other move is
    made. It is not needed if at least ``good`` of the emulator's proposals are accepted. With a
    lower acceptance its share of the moves is a quarter of the missing acceptance, and an exact
    draw has one more move for each 0.2, or part of 0.2, of missing acceptance. Below ``fair`` it
    makes all moves, since visits cannot show the shape of the evidence. A walk is used only below
    ``fair``, because on estimates it is no better than a fair emulator. With ``surveys`` the
    emulator begins with a `survey`, because a walk would take long to find its coordinates.

    A share ``jump_share`` of all moves, in tuning and after it, is a jump of one component of theta
    in the target. Without it a chain would stick where the emulator is too low.
    """

    other: NUTS | Metropolis = field(default_factory=Metropolis)
    warmup: Metropolis | None = None
    surveys: bool = False
    other_share: float = 0.2
    nuts_draws: int = 10
    judged_after: float = 0.5
    fair: float = 0.1
    good: float = 0.7
    n_trajectories: int = 6
    n_jumps: int = 3
    jump_share: float = 0.0
    stats = ("theta_acceptance", "theta_scale", "theta_steps")
    needs_gradient = False

    def start(self, state: State, tune: int) -> EmulatorTuning:
        """Begin, with the first fit of the emulator after an eighth of tuning.

        If an eighth is less than 50 draws, it is after a quarter, or 50 draws. Draws of NUTS visit
        more thetas, and cost more, so fewer of them are enough.
        """
        rehearse(state)
        first = tune // 8
        least = 50
        if self.warmup is None and isinstance(self.other, NUTS):
            first = min(first, self.nuts_draws * state.theta.size)
            least = 5 * self.nuts_draws
        return EmulatorTuning(
            other=self.other.start(state, tune),
            warmup=None if self.warmup is None else self.warmup.start(state, tune),
            # The step size of HMC in p dimensions is proportional to p^(-1/4).
            step_size=StepSizeTuning.start(0.8 * state.theta.size**-0.25, 0.8, LONGEST),
            fit=EmulatorFit(None, (), History((), max(first, min(tune // 4, least)))),
            judged_from=math.ceil(self.judged_after * tune),
        )

    def run(
        self, rng: np.random.Generator, target: Target, tuning: EmulatorTuning, tune: bool
    ) -> tuple[State, EmulatorTuning, Stats]:
        """Move once. With a noisy target only the step sizes are tuned."""
        learning = tune and not target.is_noisy
        visited: list[tuple[Array, float, float]] = []
        watched = WatchedTarget.of(target, visited) if learning else target
        if learning and not tuning.fit.history.rows:
            tuning = self._surveyed(rng, target, tuning)
        match self._choose(rng, tuning, learning):
            case "emulator":
                state, tuning, stats = self._emulated(rng, watched, tuning, tune)
            case "jump":
                state = jump_of_target(rng, watched)
                scale = tuning.step_size.value(tune)
                accepted = float(state is not target.state)
                stats = {"theta_acceptance": accepted, "theta_scale": scale}
            case "warmup":
                assert self.warmup is not None
                state, warmup, stats = self.warmup.run(rng, watched, tuning.warmup, tune)
                tuning = tuning._replace(warmup=warmup)
            case "other":
                state, other, stats = self.other.run(rng, watched, tuning.other, tune)
                tuning = tuning._replace(other=other)
        if learning and tuning.share < 1.0:
            fit = tuning.fit.learn(thinned(visited), state.theta)
            tuning = self._judged(tuning._replace(fit=fit))
        return state, tuning, {"theta_steps": 0.0} | stats

    def _surveyed(
        self, rng: np.random.Generator, target: Target, tuning: EmulatorTuning
    ) -> EmulatorTuning:
        """Begin with the emulator and the covariance of a survey, unless tuning is too short."""
        if not target.has_stages or not begins_with_survey(self, tuning):
            return tuning
        found = survey(rng, target)
        if found is None:
            return tuning
        other = tuning.other._replace(factor=2.38 / math.sqrt(len(found.root)) * found.root)
        return tuning._replace(
            other=other, fit=EmulatorFit(found.emulator, found.visits, tuning.fit.history)
        )

    def _choose(
        self, rng: np.random.Generator, tuning: EmulatorTuning, learning: bool
    ) -> Literal["emulator", "jump", "warmup", "other"]:
        """Choose this move. After tuning the choice does not depend on the chain."""
        share = max(self.other_share, tuning.share) if learning else tuning.share
        if tuning.fit.emulator is not None:
            if self.jump_share and rng.uniform() < self.jump_share:
                return "jump"
            if rng.uniform() >= share:
                return "emulator"
        if self.warmup is None or tuning.share > 0.0:
            return "other"
        return "warmup" if tuning.fit.emulator is None else "jump"

    def _emulated(
        self, rng: np.random.Generator, target: Target, tuning: EmulatorTuning, tune: bool
    ) -> tuple[State, EmulatorTuning, Stats]:
        assert tuning.fit.emulator is not None
        step_size = tuning.step_size.value(tune)
        state, info = surrogate_transition(
            rng,
            target,
            emulator=tuning.fit.emulator,
            step_size=step_size,
            n_trajectories=self.n_trajectories,
            n_jumps=self.n_jumps,
        )
        stats = {"theta_acceptance": info.theta_acceptance, "theta_scale": step_size}
        if tune:
            learnt = tuning.step_size.update(info.emulated_acceptance)
            acceptance = tuning.acceptance.note(info.theta_acceptance)
            tuning = tuning._replace(step_size=learnt, acceptance=acceptance)
        return state, tuning, stats

    def _judged(self, tuning: EmulatorTuning) -> EmulatorTuning:
        """Update the share of the moves that the other move makes."""
        rows, acceptance = tuning.fit.history.rows, tuning.acceptance
        judged = len(rows) >= tuning.judged_from and acceptance.proposals
        lacking = self.good - acceptance.mean
        walks = not isinstance(self.other, NUTS)
        if not judged or lacking <= 0.0:
            return tuning._replace(share=0.0)
        if walks and acceptance.mean >= self.fair:
            return tuning._replace(share=0.0)
        if acceptance.mean >= self.fair:
            return tuning._replace(share=SHARE_OF_LACKING * lacking)
        return tuning._replace(share=1.0, fit=EmulatorFit(None, (), History((), 0)))
