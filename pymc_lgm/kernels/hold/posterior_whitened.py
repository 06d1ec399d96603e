"""Posterior whitening: theta moves with f held fixed in the coordinates of a Gaussian posterior.

Christensen, Roberts and Sköld (2006), *Robust Markov chain Monte Carlo methods for spatial
generalized linear mixed models*, JCGS 15; eq. (14) of Murray and Adams (2010), "post-site" and
"post-taylor". If q(f) were the posterior of f, the variable held fixed would be independent of
theta.
"""

from __future__ import annotations

import math

import numpy as np

from pymc_lgm.approximations.gaussian import GaussianApproximation, Search
from pymc_lgm.kernels.hold.approximate_marginal import nowhere
from pymc_lgm.kernels.hold.target import Target
from pymc_lgm.linalg import Array
from pymc_lgm.state import State

__all__ = ["posterior_whitened"]


def posterior_whitened(rng: np.random.Generator, state: State, *, search: Search) -> Target:
    """Hold ω = A⁻¹(f − f̂): ℓ(f) + log N(f; m, K) + log|A| + log p(theta), f = f̂ + A ω.

    q(f) = N(f̂, A Aᵀ) is any Gaussian approximation that is a function of theta alone.
    `site_approximation` gives "post-site" and `taylor_approximation` "post-taylor"; `laplace` and
    `ep` are valid too. It works badly if the posterior of f is in the tails of q.

    Parameters
    ----------
    rng : numpy.random.Generator
        Not used: the target is deterministic.
    state : State
    search : callable
        Computes q, a function of theta alone.

    Returns
    -------
    Target

    Notes
    -----
    An evaluation costs the O(n³) operations of q (one for sites) and the factor of K. The current
    theta costs none unless another kernel has moved it. q(f) |A| = N(ω; 0, I) is constant, so the
    target is log p(theta) and the importance weight of f: that of `pseudo_marginal` with one draw.
    """
    q = state.at.approximation(search)
    if q is None:
        return nowhere(state)
    omega = q.posterior.solve(state.f - q.center)

    def evaluate(theta: Array) -> tuple[float, State | None]:
        at = state.at.moved(theta)
        q = None if at is None else at.approximation(search)
        if at is None or q is None or not at.is_proper:
            return -math.inf, None
        there = at.state(q.center + q.posterior.multiply(omega))
        return (-math.inf, None) if there is None else (_log_density(q, there), there)

    return Target(state, _log_density(q, state), evaluate)


def _log_density(q: GaussianApproximation, at: State) -> float:
    """log [p(y | f) N(f; m, K) / q(f)] + log p(theta)."""
    weight = q.log_weights(at.f[:, None], np.array([at.log_likelihood]))
    return float(weight[0]) + at.log_prior
