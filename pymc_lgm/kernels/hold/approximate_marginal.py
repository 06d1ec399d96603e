"""Approximate marginal: theta moves on an approximate evidence with f integrated out.

Not exact: it leaves the density with logarithm log q(y | theta) + log p(theta) invariant ("MCMC EP"
of Filippone and Girolami 2014, §5). A pseudo-marginal sampler tunes on this target, since it has no
noise and cannot stick. `pymc_lgm.reweight` computes weights that make such draws exact.
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
    """Integrate f out with q's evidence: log q(y | theta) + log p(theta).

    Parameters
    ----------
    rng : numpy.random.Generator
        Not used: the target is deterministic.
    state : State
    search : callable
        Computes q.

    Returns
    -------
    Target
        With ``screen``, the target itself before K is factorized. The f of its states is q's
        center, to be replaced by a draw.
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
    """A target that rejects every move."""
    return Target(state, 0.0, lambda theta: (-math.inf, None))


def screened_target(
    state: State,
    log_density: float,
    screen: Callable[[Array], Screened | None],
    screened_log_density: float,
    noisy: bool = False,
) -> Target:
    """A target whose evaluation completes its own screen."""

    def evaluate(theta: Array) -> tuple[float, State | None]:
        screened = screen(theta)
        return (-math.inf, None) if screened is None else screened.complete()

    return Target(state, log_density, evaluate, screen, screened_log_density, noisy=noisy)
