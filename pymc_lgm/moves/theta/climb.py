"""A climb of theta to the mass of its target, before tuning begins.

Nocedal and Wright (2006), *Numerical optimization*, Algorithm 6.1, with a trust radius instead of a
line search: far from the mode a quadratic model predicts poorly how far to go.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pymc_lgm.linalg import Array
from pymc_lgm.state import State
from pymc_lgm.targets.target import Target

__all__ = ["climb"]

WORTH = 10.0
"""Nats, and one per component, that a climb has to gain; else theta stays where PyMC starts.

Draws of a posterior are themselves half a nat per component below its mode. The rats model starts
4e6 nats below.
"""

CALM = 0.5
"""Nats: two successive steps that gain less restart a climb, and end it the second time."""

RADIUS = 1.0
"""Longest of the first steps, in any component: a factor of e for a logarithm."""

NARROWEST = 1e-8
"""Smallest variance assumed for a component, far below any posterior's, so that no step is 0."""

WIDEST = 4.0
"""Largest variance assumed for a component: a step that it proposes is cut to the radius anyway."""

NEAREST = 1e-6
"""Smallest radius: no smaller step will gain."""

DIFFERENCE = 1e-4
"""Step of a forward difference, if the target has no ``slope``. At a curvature of 1 the gradient is
off by 5e-5, which a climb does not notice; rounding of 1000 nats adds 1e-9."""


class _Point(NamedTuple):
    theta: Array
    log_density: float
    gradient: Array


def climb(target: Target, n_gradients: int, worth: float | None = None) -> State:
    """Climb the target from its state by a quasi-Newton method. For tuning only: not a kernel.

    Parameters
    ----------
    target : Target
        A deterministic target. Without a ``slope`` its gradient comes from finite differences of p
        evaluations.
    n_gradients : int
        Largest number of gradients. With one there is no step; a ``slope`` is evaluated even so,
        because a sampler is compiled by a few draws that may climb no further.
    worth : float, optional
        Nats that the climb has to gain; by default `WORTH` and one per component.

    Returns
    -------
    State
        The target's own state if it is within ``worth`` of the best one.
    """
    if n_gradients < 2 and not target.has_slope:
        return target.state
    here = start = _point_at(target, target.state.theta)
    if here is None or start is None:
        return target.state
    p, radius, calm, ends = start.theta.size, RADIUS, 0, 0
    inverse: Array | None = None
    latest: Array | None = None
    for _ in range(n_gradients - 1):
        if calm == 2 or radius < NEAREST:
            # Restart with the curvatures of the last step: a plateau in one component looks like a
            # mode if the others are steep.
            inverse, radius, calm, ends = latest, RADIUS, 0, ends + 1
        if ends == 2:
            break
        step = here.gradient if inverse is None else inverse @ here.gradient
        longest = float(np.abs(step).max())
        if inverse is None or longest > radius:
            step = step * (radius / max(longest, NEAREST))
        there = _point_at(target, here.theta + step)
        if there is None or not there.log_density > here.log_density:
            radius = 0.25 * float(np.abs(step).max())
            continue
        change = here.gradient - there.gradient
        latest = np.diag(_variances(step, change))
        inverse = _updated(latest if inverse is None else inverse, step, change)
        radius = max(radius, 2.0 * float(np.abs(step).max()))
        calm = calm + 1 if there.log_density - here.log_density < CALM else 0
        here = there
    if here.log_density - start.log_density < (WORTH + p if worth is None else worth):
        return target.state
    _, state = target.evaluate(here.theta)
    return target.state if state is None else state


def _point_at(target: Target, theta: Array) -> _Point | None:
    if target.has_slope:
        slope = target.slope(theta)
        return None if slope is None else _Point(theta, slope.log_density, slope.gradient)
    here = _value(target, theta)
    ahead = [_value(target, theta + DIFFERENCE * unit) for unit in np.eye(theta.size)]
    with np.errstate(invalid="ignore"):
        gradient = (np.array(ahead) - here) / DIFFERENCE
    return _Point(theta, here, gradient) if np.isfinite([here, *gradient]).all() else None


def _value(target: Target, theta: Array) -> float:
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        if not target.has_stages:
            return target.evaluate(theta)[0]
        first = target.first_stage(theta)
    return -np.inf if first is None else first.log_density


def _variances(step: Array, change: Array) -> Array:
    """Inverse curvatures of −log density, one component at a time."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.abs(step / change)
    result: Array = np.clip(np.nan_to_num(ratio, nan=0.0), NARROWEST, WIDEST)
    return result


def _updated(inverse: Array, step: Array, change: Array) -> Array:
    """The inverse Hessian of −log density: equation (6.17)."""
    curvature = float(step @ change)
    if not curvature > 1e-8 * float(np.linalg.norm(step) * np.linalg.norm(change)):
        return inverse
    V = np.eye(step.size) - np.outer(step, change) / curvature
    updated: Array = V @ inverse @ V.T + np.outer(step, step) / curvature
    return updated
