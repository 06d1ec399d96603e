"""Records the thetas that a move has tried, for an emulator to learn from."""

from __future__ import annotations

import math

from dataclasses import dataclass

from pymc_lgm.linalg import Array
from pymc_lgm.state import State
from pymc_lgm.targets.target import FirstStage, Slope, Target

__all__ = ["WatchedTarget", "spread"]

KEPT = 3
"""Largest number of visits of one draw from which the emulator learns."""


@dataclass(frozen=True, eq=False)
class WatchedTarget(Target):
    """Another target that records each theta with its evidence and its prior.

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

    # The rest is not recorded.

    @property
    def is_noisy(self) -> bool:
        """As the target is."""
        return self.target.is_noisy

    @property
    def is_differentiable(self) -> bool:
        """As the target is."""
        return self.target.is_differentiable

    def gradient(self, at: State) -> Array:
        """As the target does."""
        return self.target.gradient(at)

    def geometry(self, at: State) -> tuple[Array, Array]:
        """As the target does."""
        return self.target.geometry(at)

    @property
    def has_stages(self) -> bool:
        """As the target has."""
        return self.target.has_stages

    @property
    def first_log_density(self) -> float:
        """As the target has."""
        return self.target.first_log_density

    def first_stage(self, theta: Array) -> FirstStage | None:
        """As the target does."""
        return self.target.first_stage(theta)

    def second_stage(self, first: FirstStage) -> tuple[float, State | None]:
        """As the target does."""
        return self.target.second_stage(first)


def spread(visited: list[tuple[Array, float, float]]) -> list[tuple[Array, float, float]]:
    """At most `KEPT` of the visits of one draw: neighbors on a trajectory say little more."""
    return visited[:: max(1, math.ceil(len(visited) / KEPT))]
