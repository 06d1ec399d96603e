"""Posterior whitening: theta moves with f held fixed in the coordinates of a Gaussian posterior.

Christensen, Roberts and Sköld (2006), *Robust Markov chain Monte Carlo methods for spatial
generalized linear mixed models*, JCGS 15; eq. (14) of Murray and Adams (2010), "post-site" and
"post-taylor". If q(f) were the posterior of f, the variable held fixed would be independent of
theta.
"""

from __future__ import annotations

import math

from dataclasses import dataclass

import numpy as np

from pymc_lgm.approximations.gaussian import GaussianApproximation, Search
from pymc_lgm.linalg import Array
from pymc_lgm.state import State
from pymc_lgm.targets.target import Nowhere, Target

__all__ = ["PosteriorWhitenedTarget"]


@dataclass(frozen=True, eq=False)
class PosteriorWhitenedTarget(Target):
    """Hold ω = A⁻¹(f − f̂): ℓ(f) + log N(f; m, K) + log|A| + log p(theta), f = f̂ + A ω.

    q(f) = N(f̂, A Aᵀ) is any Gaussian approximation that is a function of theta alone.
    `site_approximation` gives "post-site" and `taylor_approximation` "post-taylor"; `laplace` and
    `ep` are valid too. It works badly if the posterior of f is in the tails of q.

    Notes
    -----
    An evaluation costs the O(n³) operations of q (one for sites) and the factor of K. The current
    theta costs none unless another kernel has moved it. q(f) |A| = N(ω; 0, I) is constant, so the
    target is log p(theta) and the importance weight of f: that of `PseudoMarginalTarget` with one
    draw.
    """

    search: Search
    omega: Array

    @classmethod
    def fix(cls, rng: np.random.Generator, state: State, *, search: Search) -> Target:
        """Hold the ω of a state. ``search`` computes q, a function of theta alone."""
        q = state.at.approximation(search)
        if q is None:
            return Nowhere(state)
        omega = q.posterior.solve(state.f - q.center)
        return cls(state, _log_density(q, state), search, omega)

    def evaluate(self, theta: Array) -> tuple[float, State | None]:
        """Let f follow theta: f = f̂ + A ω."""
        at = self.state.at.moved(theta)
        q = None if at is None else at.approximation(self.search)
        if at is None or q is None or not at.is_proper:
            return -math.inf, None
        there = at.state(q.center + q.posterior.multiply(self.omega))
        return (-math.inf, None) if there is None else (_log_density(q, there), there)


def _log_density(q: GaussianApproximation, at: State) -> float:
    """log [p(y | f) N(f; m, K) / q(f)] + log p(theta)."""
    weight = q.log_weights(at.f[:, None], np.array([at.log_likelihood]))
    return float(weight[0]) + at.log_prior
