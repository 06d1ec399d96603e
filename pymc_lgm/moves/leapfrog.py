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
"""(x, r) -> (x, r) after time ε: a straight line, or a rotation that is the exact motion."""


class Kicking(Protocol):
    """The values at a point of a trajectory."""

    @property
    def kick(self) -> Array:
        """Change of the momentum per unit of time."""


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

    For any kick that is a function of x, it is reversible and preserves volume if the drift does.

    Parameters
    ----------
    x, r : ndarray
        Position and momentum, or velocity.
    at : object with ``kick``
        The value of ``force`` at x.
    step_size, steps
        ε and the number of steps.
    drift : callable
    force : callable
        x -> the values at x; ``None`` if there is no density. The reversed trajectory would reach
        the same point, so rejecting the trajectory is exact.

    Returns
    -------
    x, r : ndarray
    at : object with ``kick`` or None
        The values at the end; ``None`` if the trajectory reached a point without a density.
    evaluations : int
        Number of evaluations of the force.
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
    """Drift along r, for kicks by the whole force."""
    return lambda x, r: (x + step_size * r, r)


def rotation(angle: float) -> Drift:
    """Rotate about zero: the motion under N(0, I), or of d and its velocity under any Gaussian."""
    cos, sin = math.cos(angle), math.sin(angle)
    return lambda x, r: (cos * x + sin * r, cos * r - sin * x)
