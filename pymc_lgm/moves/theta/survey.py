"""A survey of a target without a gradient: its curvature at its mode, and visits around it.

A random walk takes much of tuning to show an emulator the covariance of theta, if one component
varies a hundred times less than another, or if there are many. Second differences show it in 2 p²
evaluations, which for a target without noise are as good as a Hessian.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pymc_lgm.approximations.emulator import Emulator, Visits, emulate
from pymc_lgm.linalg import Array
from pymc_lgm.targets.target import Target

__all__ = ["MOST_COMPONENTS", "Survey", "survey"]

MOST_COMPONENTS = 40
"""Largest number of components of theta: with more, evaluations by the thousand are most of tuning.
"""

AWAY = 0.5
"""Steps of second differences, in standard deviations: far above what a search's tolerance adds."""

WIDE = 1.2
"""Standard deviation of the visits, in those of the curvature: tails are heavier than it says."""

FLATTEST = 1.0 / 9.0
"""Least eigenvalue of a curvature: no component is taken to vary by more than 3."""


class Survey(NamedTuple):
    """Result of a survey: visits as in `EmulatorFit`, and a root of the covariance."""

    visits: tuple[tuple[Array, float, float], ...]
    emulator: Emulator
    root: Array


def survey(rng: np.random.Generator, target: Target) -> Survey | None:
    """Survey a deterministic target with two stages around its state; ``None`` if that fails.

    The state must be close to the mode: see `climb`. Evaluations of the first stage: 2 p² + 4 p + 1
    for the curvature, and 1.5 p² + 4.5 p + 4 for visits, three for each coefficient of a quadratic.
    """
    center = target.state.theta
    p = center.size
    model = target.state.model
    visits = list[tuple[Array, float, float]]()

    def value(theta: Array) -> float:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            first = target.first_stage(theta)
        if first is None or not np.isfinite(first.log_density):
            return -np.inf
        log_prior = model.log_prior(theta)
        visits.append((theta, first.log_density - log_prior, log_prior))
        return first.log_density

    root = _root(value, center)
    if root is None:
        return None
    visits.clear()  # of differences: they lie in lines
    value(center)
    for _ in range(3 * (p + 1) * (p + 2) // 2):
        value(center + WIDE * root @ rng.standard_normal(p))
    if len(visits) < (p + 1) * (p + 2) // 2:
        return None
    return Survey(tuple(visits), emulate(Visits.of(visits), center, root), root)


def _root(value: Callable[[Array], float], center: Array) -> Array | None:
    """A Cholesky factor of the inverse of minus the Hessian; ``None`` if that is not finite."""
    p = center.size
    here = value(center)
    steps = np.full(p, 0.1)
    for _ in range(3):  # from any step to one of half a standard deviation
        units = np.diag(steps)
        ahead = np.array([value(center + unit) for unit in units])
        behind = np.array([value(center - unit) for unit in units])
        with np.errstate(invalid="ignore"):
            curvature = (2.0 * here - ahead - behind) / steps**2
        if not np.isfinite(curvature).all():
            steps = 0.1 * steps
            continue
        steps = AWAY / np.sqrt(np.clip(curvature, FLATTEST, 1e8))
    hessian = np.diag(curvature)
    for i in range(p):
        for j in range(i):
            both = np.zeros(p)
            both[i], both[j] = steps[i], steps[j]
            across = both.copy()
            across[j] *= -1.0
            ends = value(center + both) + value(center - both)
            ends -= value(center + across) + value(center - across)
            hessian[i, j] = hessian[j, i] = -ends / (4.0 * steps[i] * steps[j])
    if not np.isfinite(hessian).all():
        return None
    values, vectors = np.linalg.eigh(hessian)
    cov = (vectors / np.maximum(values, FLATTEST)) @ vectors.T
    root: Array = np.linalg.cholesky(0.5 * (cov + cov.T))
    return root
