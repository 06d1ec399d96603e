"""Kick, drift, kick: the integrator of every trajectory.

Duane, Kennedy, Pendleton and Roweth (1987), *Hybrid Monte Carlo*; Leimkuhler and Reich (2004),
*Simulating Hamiltonian dynamics*, §4.
"""

from __future__ import annotations

import math

from collections.abc import Callable
from typing import Protocol

from pymc_lgm.linalg import Array

__all__ = ["Drift", "Kicking", "leapfrog", "rotation", "straight"]

Drift = Callable[[Array, Array], tuple[Array, Array]]
"""(x, r) -> (x, r) after a time ε: a straight line, or a rotation where that part is solved."""


class Kicking(Protocol):
    """What is known at a point of a trajectory."""

    @property
    def kick(self) -> Array:
        """What the momentum gains in a unit of time."""


def leapfrog[P: Kicking](
    x: Array,
    r: Array,
    at: P,
    *,
    step_size: float,
    steps: int,
    drift: Drift,
    force: Callable[[Array], P | None],
) -> tuple[Array, Array, P | None, int]:
    """Follow Hamilton's equations: r gains ½ ε kick, (x, r) drifts by ε, r gains ½ ε kick.

    It is reversible and keeps volumes, whatever function of x the kick is, if the drift does both.

    Parameters
    ----------
    x, r : ndarray
        Position and momentum, or velocity.
    at : object with ``kick``
        What ``force`` says of x.
    step_size, steps
        ε, and how often.
    drift : callable
    force : callable
        x -> what is known there; ``None`` where there is no density. The way back would come there
        as well, so that to reject the trajectory is no error.

    Returns
    -------
    x, r : ndarray
    at : object with ``kick`` or None
        At the end; ``None`` if the trajectory came to a point without a density.
    evaluations : int
        Points at which the force was asked for.
    """
    for evaluations in range(1, steps + 1):
        r = r + 0.5 * step_size * at.kick
        x, r = drift(x, r)
        there = force(x)
        if there is None:
            return x, r, None, evaluations
        at = there
        r = r + 0.5 * step_size * at.kick
    return x, r, at, steps


def straight(step_size: float) -> Drift:
    """Along r: where the whole force kicks."""
    return lambda x, r: (x + step_size * r, r)


def rotation(angle: float) -> Drift:
    """About zero: the motion under N(0, I), or in d and its velocity under any normal law."""
    cos, sin = math.cos(angle), math.sin(angle)
    return lambda x, r: (cos * x + sin * r, cos * r - sin * x)
