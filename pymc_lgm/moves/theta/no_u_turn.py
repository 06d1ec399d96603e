"""A trajectory that doubles until it turns back: the No-U-Turn sampler.

Hoffman and Gelman (2014), *The No-U-Turn sampler*, JMLR 15; Betancourt (2017), *A conceptual
introduction to Hamiltonian Monte Carlo*, §A.4 and §A.5, for draws by weight and the criterion in
any metric.
"""

from __future__ import annotations

import math

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pymc_lgm.linalg import Array
from pymc_lgm.moves.leapfrog import leapfrog
from pymc_lgm.state import acceptance_probability
from pymc_lgm.targets.target import Slope

__all__ = ["no_u_turn"]

DIVERGENT = 1000.0
"""Nats by which the energy of a point may fall below that of the start before the trajectory counts
as divergent: Δ_max of Hoffman and Gelman."""


class _Force(NamedTuple):
    """A slope and Cᵀ∇, the change of r per unit of time."""

    slope: Slope
    kick: Array


class _Point(NamedTuple):
    """A point of a trajectory: theta with its slope, and the momentum Cᵀ⁻¹ r."""

    at: _Force
    r: Array

    @property
    def energy(self) -> float:
        """log π*(theta) − ½ |r|²: minus the Hamiltonian."""
        return self.at.slope.log_density - 0.5 * float(self.r @ self.r)


class _Tree(NamedTuple):
    """A trajectory of 2^depth points: its ends, Σ r, log Σ exp(energy), and a point by weight."""

    first: _Point
    last: _Point
    rho: Array
    log_weight: float
    chosen: Slope

    @property
    def turns(self) -> bool:
        """Whether the momentum at one of its ends points back."""
        return _turns(self.rho, self.first.r, self.last.r)


def no_u_turn(
    rng: np.random.Generator,
    here: Slope,
    slope: Callable[[Array], Slope | None],
    *,
    factor: Array,
    step_size: float,
    max_depth: int = 7,
) -> tuple[Slope, int, float]:
    """Leave a density invariant by a trajectory that doubles until it turns back.

    The mass matrix is M = (C Cᵀ)⁻¹. With momentum Cᵀ⁻¹ r, r ~ N(0, I), a leapfrog step ε is

        r ← r + ½ ε Cᵀ∇,   theta ← theta + ε C r,   r ← r + ½ ε Cᵀ∇.

    The trajectory doubles, forwards or backwards by a coin, until Σ r over it is at an angle of
    more than 90° to r at one of its ends. The same must hold for neither of its halves, nor for one
    half with the first point of the other. The draw is one of the points, chosen with weight
    exp(−H). After a doubling, a draw from the new half replaces it with probability min(1, ratio of
    the weights of the halves).

    Parameters
    ----------
    rng : numpy.random.Generator
    here : Slope
        The start of the trajectory.
    slope : callable
        Log density and gradient at theta; ``None`` if there is none. Any function of theta in place
        of the gradient leaves the density invariant.
    factor : ndarray, shape (p, p)
        C: a square root of the covariance that theta is thought to have.
    step_size : float
        ε, in units of C.
    max_depth : int
        Largest number of doublings.

    Returns
    -------
    Slope, int, float
        The draw, the number of leapfrog steps, and the mean over them of min(1, exp(H₀ − H)), from
        which a step size is tuned.
    """
    start = _Point(_Force(here, factor.T @ here.gradient), rng.standard_normal(here.theta.size))
    walk = _Walk(rng, slope, factor, step_size, start.energy)
    tree = _Tree(start, start, start.r, 0.0, here)
    for depth in range(max_depth):
        sign = 1 if rng.uniform() < 0.5 else -1
        other = walk.grow(tree.last if sign > 0 else tree.first, sign, depth)
        if other is None:
            break
        whole = _joined(rng, tree, other, sign, progressive=True)
        if whole is None:
            # A trajectory in reverse makes this doubling, too. So the draw may be from it.
            tree = tree._replace(chosen=_drawn(rng, tree, other, progressive=True))
            break
        tree = whole
    return tree.chosen, walk.steps, walk.acceptance / max(walk.steps, 1)


@dataclass
class _Walk:
    """Leapfrog steps from one start, counted, with the sum of their acceptance probabilities.

    It avoids nested functions: a recursive closure is a reference cycle, which keeps n × n factors
    alive until the garbage collector runs.
    """

    rng: np.random.Generator
    slope: Callable[[Array], Slope | None]
    factor: Array
    step_size: float
    energy_at_start: float
    steps: int = 0
    acceptance: float = 0.0

    def force(self, theta: Array) -> _Force | None:
        there = self.slope(theta)
        return None if there is None else _Force(there, self.factor.T @ there.gradient)

    def follow(self, point: _Point, sign: int) -> _Point | None:
        step = sign * self.step_size
        _, r, end, _ = leapfrog(
            point.at.slope.theta,
            point.r,
            point.at,
            step_size=step,
            steps=1,
            drift=lambda theta, r: (theta + step * (self.factor @ r), r),
            force=self.force,
        )
        return None if end is None else _Point(end, r)

    def grow(self, point: _Point, sign: int, depth: int) -> _Tree | None:
        """2^depth points that follow this one; ``None`` if they turn back or diverge."""
        if depth > 0:
            near = self.grow(point, sign, depth - 1)
            if near is None:
                return None
            far = self.grow(near.last if sign > 0 else near.first, sign, depth - 1)
            return None if far is None else _joined(self.rng, near, far, sign, progressive=False)
        self.steps += 1
        there = self.follow(point, sign)
        change = -math.inf if there is None else there.energy - self.energy_at_start
        self.acceptance += acceptance_probability(change)
        if there is None or not change > -DIVERGENT:
            return None
        return _Tree(there, there, there.r, change, there.at.slope)


def _joined(
    rng: np.random.Generator, near: _Tree, far: _Tree, sign: int, progressive: bool
) -> _Tree | None:
    """Join two trajectories; ``None`` if the result turns back."""
    first, last = (near, far) if sign > 0 else (far, near)
    tree = _Tree(
        first.first,
        last.last,
        first.rho + last.rho,
        float(np.logaddexp(near.log_weight, far.log_weight)),
        near.chosen,
    )
    # A trajectory can turn where its halves meet.
    across = _turns(first.rho + last.first.r, first.first.r, last.first.r)
    across = across or _turns(last.rho + first.last.r, first.last.r, last.last.r)
    if tree.turns or across:
        return None
    return tree._replace(chosen=_drawn(rng, near, far, progressive))


def _drawn(rng: np.random.Generator, near: _Tree, far: _Tree, progressive: bool) -> Slope:
    """Draw by weight from two trajectories; if ``progressive``, prefer the farther one."""
    log_p = far.log_weight - near.log_weight
    if not progressive:
        log_p -= float(np.logaddexp(0.0, log_p))
    return far.chosen if rng.uniform() < acceptance_probability(log_p) else near.chosen


def _turns(rho: Array, first: Array, last: Array) -> bool:
    """Whether Σ r is at more than 90° to r at the first or at the last point."""
    return float(rho @ first) <= 0.0 or float(rho @ last) <= 0.0
