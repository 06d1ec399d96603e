"""Surrogate data: theta moves while noisy observations of f, and the residual of f, stay fixed.

Murray and Adams (2010), *Slice sampling covariance hyperparameters of latent Gaussian models*,
NIPS 23, Algorithms 3 and 4, "surr-site" and "surr-taylor". It lies between sufficient augmentation,
its limit for vanishing noise, and whitening, its limit for infinite noise. The noise of each f_i
matches the information in its own observation.
"""

from __future__ import annotations

import math

from dataclasses import dataclass

import numpy as np

from pymc_lgm.approximations.gaussian import GaussianApproximation, Search
from pymc_lgm.linalg import Array
from pymc_lgm.state import State
from pymc_lgm.targets.target import Nowhere, Target

__all__ = ["SurrogateTarget"]


@dataclass(frozen=True, eq=False)
class SurrogateTarget(Target):
    """Hold h and η, the whitened surrogate data g ~ N(f, S(theta)) and the whitened f given g.

    q(f) = N(f̂, (K⁻¹ + W)⁻¹) is the Gaussian approximation whose sites have the variances
    S = W⁻¹, at each theta. With it,

        h = S^-½ (g − f̂),   η = A⁻¹ (f − μ),   A Aᵀ = (K⁻¹ + S⁻¹)⁻¹,   μ = E[f | g, theta],

    and the target is ℓ(f(theta, η, h)) + log N(h; S^-½ (m − f̂), B) + log p(theta), with
    B = I + S^-½ K S^-½.

    Notes
    -----
    Exact: given theta, (f, g) ~ N(f; m, K) N(g; f, S) is also g ~ N(m, K + S) and
    f = μ + A η, η ~ N(0, I); h is a one-to-one function of g. So (theta, η, h) has the density
    above, and S and f̂ may be any functions of theta that do not depend on f.

    An evaluation costs two O(n³) operations, the factors of B and of K: the root A of the
    posterior's covariance needs no factorization of its own. The current theta has both already,
    unless another kernel has moved theta since.

    Murray and Adams hold g fixed, eq. (11). If S depends on theta, as for binary data, g − f is
    then informative about S(theta) and keeps theta near its current value. Also, an observation
    with W_i = 0 has S_i = ∞, which they have to truncate. With h neither problem occurs: only
    S^-½ = W^½ is needed. If S and f̂ do not depend on theta, holding g and holding h are equivalent.
    """

    search: Search
    h: Array
    eta: Array

    @classmethod
    def fix(cls, rng: np.random.Generator, state: State, *, search: Search) -> Target:
        """Draw surrogate data; from then on the target is deterministic.

        Parameters
        ----------
        rng : numpy.random.Generator
            Draws g.
        state : State
        search : callable
            Computes q, a function of theta alone: see `pymc_lgm.approximations.site_posteriors`.
        """
        q = state.at.approximation(search)
        if q is None:
            return Nowhere(state)
        # S^-½ (f − f̂), and S^-½ (g − f) ~ N(0, I).
        h = q.posterior.in_noise_units(state.f, q.center) + rng.standard_normal(state.f.size)
        mu, log_surrogate = _seen_from(q, h)
        eta = q.posterior.solve(state.f - mu)
        log_density = state.log_likelihood + log_surrogate + state.log_prior
        return cls(state, log_density, search, h, eta)

    def evaluate(self, theta: Array) -> tuple[float, State | None]:
        """Let f follow theta: f = μ + A η."""
        at = self.state.at.moved(theta)
        q = None if at is None else at.approximation(self.search)
        if at is None or q is None:
            return -math.inf, None
        mu, log_surrogate = _seen_from(q, self.h)
        there = at.state(mu + q.posterior.multiply(self.eta)) if at.is_proper else None
        if there is None:
            return -math.inf, None
        return there.log_likelihood + log_surrogate + there.log_prior, there


def _seen_from(q: GaussianApproximation, h: Array) -> tuple[Array, float]:
    """μ = m + K (K + S)⁻¹ (g − m), shape (n,), and log N(h; S^-½ (m − f̂), B), at q's theta."""
    x = h + q.posterior.in_noise_units(q.center, q.mean)  # S^-½ (g − m)
    return q.mean + q.posterior.conditional_mean(x), q.posterior.log_density_of_data(x)
