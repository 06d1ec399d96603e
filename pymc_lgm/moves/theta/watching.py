"""Records the thetas that a move has tried, for an emulator to learn from."""

from __future__ import annotations

import math

from dataclasses import dataclass

from pymc_lgm.linalg import Array
from pymc_lgm.state import State
from pymc_lgm.targets.target import Slope, Target

__all__ = ["WatchedTarget", "thinned"]

KEPT = 3
"""Largest number of visits of one draw from which the emulator learns."""


@dataclass(frozen=True, eq=False)
class WatchedTarget(Target):
    """Another target, for moves that evaluate it or follow its slope, that records each theta.

    Attributes
    ----------
    target : Target
    visited : list
        (theta, log evidence, log prior) of each evaluation and each slope.
    """

    target: Target
    visited: list[tuple[Array, float, float]]

    @classmethod
    def of(cls, target: Target, visited: list[tuple[Array, float, float]]) -> WatchedTarget:
        """Watch a target."""
        return cls(target.state, target.log_density, target, visited)

    def evaluate(self, theta: Array) -> tuple[float, State | None]:
        """As the target does."""
        log_density, there = self.target.evaluate(theta)
        if there is not None and not math.isnan(log_density):
            self.visited.append((theta, log_density - there.log_prior, there.log_prior))
        return log_density, there

    @property
    def has_slope(self) -> bool:
        """As the target has."""
        return self.target.has_slope

    def slope(self, theta: Array) -> Slope | None:
        """As the target does."""
        there = self.target.slope(theta)
        if there is not None:
            of_prior = self.state.model.log_prior(theta)
            self.visited.append((theta, there.log_density - of_prior, of_prior))
        return there

    @property
    def is_noisy(self) -> bool:
        """As the target is."""
        return self.target.is_noisy


def thinned(visited: list[tuple[Array, float, float]]) -> list[tuple[Array, float, float]]:
    """At most `KEPT` of the visits of one draw: neighbors on a trajectory say little more."""
    return visited[:: max(1, math.ceil(len(visited) / KEPT))]
