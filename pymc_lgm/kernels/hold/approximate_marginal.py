"""Approximate marginal: theta moves by an approximate evidence, f integrated out by a formula.

Not exact: the posterior that it leaves invariant is log q(y | theta) + log p(theta) ("MCMC EP" of
Filippone and Girolami 2014, §5). It is what a pseudo-marginal sampler tunes on, since it has no
noise and cannot stick, and what `pymc_lgm.correct` makes exact afterwards.
"""

from __future__ import annotations

import math

from collections.abc import Callable

import numpy as np

from pymc_lgm.approximations.gaussian import Search
from pymc_lgm.kernels.hold.target import Screened, Target
from pymc_lgm.linalg import Array
from pymc_lgm.state import State

__all__ = ["approximate_marginal", "nowhere", "screened_target"]


def approximate_marginal(rng: np.random.Generator, state: State, *, search: Search) -> Target:
    """Hold nothing of f: log q(y | theta) + log p(theta), q's own evidence.

    Parameters
    ----------
    rng : numpy.random.Generator
        Not used: the target is deterministic.
    state : State
    search : callable
        Gives q.

    Returns
    -------
    Target
        With ``screen``, which is the target itself before K is factorized. The f of its states is
        q's center, to be replaced by a draw.
    """
    q = state.at.approximation(search)
    if q is None:
        return nowhere(state)

    def screen(theta: Array) -> Screened | None:
        there = state.at.moved(theta)
        q = None if there is None else there.approximation(search)
        if there is None or q is None:
            return None
        log_density = q.log_evidence + there.log_prior

        def complete() -> tuple[float, State | None]:
            moved = there.state(q.center) if there.is_proper else None
            return (-math.inf, None) if moved is None else (log_density, moved)

        return Screened(log_density, complete)

    log_density = q.log_evidence + state.log_prior
    return screened_target(state, log_density, screen, log_density)


def nowhere(state: State) -> Target:
    """A target where every move is rejected."""
    return Target(state, 0.0, lambda theta: (-math.inf, None))


def screened_target(
    state: State,
    log_density: float,
    screen: Callable[[Array], Screened | None],
    screened_log_density: float,
    noisy: bool = False,
) -> Target:
    """A target whose evaluation is its screen, completed."""

    def evaluate(theta: Array) -> tuple[float, State | None]:
        screened = screen(theta)
        return (-math.inf, None) if screened is None else screened.complete()

    return Target(state, log_density, evaluate, screen, screened_log_density, noisy=noisy)
