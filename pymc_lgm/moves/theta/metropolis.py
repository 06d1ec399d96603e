"""Random-walk Metropolis on theta, for any target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pymc_lgm.adaptation import ProposalTuning
from pymc_lgm.linalg import Array
from pymc_lgm.moves.element import Stats
from pymc_lgm.moves.theta.delayed_metropolis import delayed_metropolis
from pymc_lgm.state import State, acceptance_probability
from pymc_lgm.targets.target import Target

__all__ = ["Metropolis", "MetropolisInfo", "metropolis"]


class MetropolisInfo(NamedTuple):
    """Statistics of one proposal."""

    theta_acceptance: float
    """Acceptance probability."""

    direction: Array
    """ξ, from which tuning learns."""


def metropolis(
    rng: np.random.Generator, target: Target, *, factor: Array
) -> tuple[State, MetropolisInfo]:
    """Leave the target invariant by a joint Gaussian proposal theta' = theta + C ξ, ξ ~ N(0, I).

    Parameters
    ----------
    rng : numpy.random.Generator
    target : Target
        The target of theta; the move starts at ``target.state``.
    factor : ndarray, shape (p, p)
        C: a square root of the proposal's covariance.

    Returns
    -------
    State, MetropolisInfo
        The same state if the proposal is rejected. One evaluation of the target.
    """
    state = target.state
    xi = rng.standard_normal(state.theta.size)
    log_density, proposed = target.evaluate(state.theta + factor @ xi)
    info = MetropolisInfo(acceptance_probability(log_density - target.log_density), xi)
    if proposed is not None and rng.uniform() < info.theta_acceptance:
        return proposed, info
    return state, info


@dataclass(frozen=True)
class Metropolis:
    """Adaptive random-walk Metropolis."""

    target_accept: float | None = None
    scale: float | None = None
    delayed: bool = False
    stats = ("theta_acceptance", "theta_scale")
    needs_gradient = False
    tunes = "scale"

    def start(self, state: State, tune: int) -> ProposalTuning:
        """Begin with the same scale in every direction."""
        return ProposalTuning.start(state.theta.size, self.target_accept, self.scale)

    def run(
        self, rng: np.random.Generator, target: Target, tuning: ProposalTuning, tune: bool
    ) -> tuple[State, ProposalTuning, Stats]:
        """Propose once; with ``delayed``, pass the target's first stage first."""
        kernel = delayed_metropolis if self.delayed else metropolis
        state, info = kernel(rng, target, factor=tuning.factor)
        stats = {"theta_acceptance": info.theta_acceptance, "theta_scale": tuning.scale}
        if tune:
            tuning = tuning.update(info.direction, info.theta_acceptance)
        return state, tuning, stats
