"""Records the thetas that a move has tried, for an emulator to learn from."""

from __future__ import annotations

import math

from dataclasses import replace

from pymc_lgm.kernels.hold.target import Slope, Target
from pymc_lgm.linalg import Array
from pymc_lgm.state import State

__all__ = ["spread", "watch"]

KEPT = 3
"""Largest number of visits of one draw from which the emulator learns."""


def watch(target: Target, visited: list[tuple[Array, float, float]]) -> Target:
    """The same target; it records each theta with its evidence and its prior."""
    log_prior = target.state.model.log_prior

    def evaluate(theta: Array) -> tuple[float, State | None]:
        log_density, there = target(theta)
        if there is not None and not math.isnan(log_density):
            visited.append((theta, log_density - there.log_prior, there.log_prior))
        return log_density, there

    def slope(theta: Array) -> Slope | None:
        there = None if target.slope is None else target.slope(theta)
        if there is not None:
            of_prior = log_prior(theta)
            visited.append((theta, there.log_density - of_prior, of_prior))
        return there

    return replace(target, evaluate=evaluate, slope=slope if target.slope else None)


def spread(visited: list[tuple[Array, float, float]]) -> list[tuple[Array, float, float]]:
    """At most `KEPT` of the visits of one draw: neighbors on a trajectory say little more."""
    return visited[:: max(1, math.ceil(len(visited) / KEPT))]
