"""Posterior whitening: theta moves with f held fixed in the coordinates of a Gaussian posterior.

Christensen, Roberts and Sköld (2006), *Robust Markov chain Monte Carlo methods for spatial
generalized linear mixed models*, JCGS 15; eq. (14) of Murray and Adams (2010), "post-site" and
"post-taylor". Were q(f) the posterior of f, what is held would be independent of theta.
"""

from __future__ import annotations

import math

from dataclasses import dataclass

import numpy as np

from pymc_lgm.approximations.gaussian import GaussianApproximation
from pymc_lgm.linalg import Array, CholeskyFactor, PriorFactor
from pymc_lgm.parameterizations.approximate_marginal import (
    Candidate,
    Search,
    approximated,
    nowhere,
)
from pymc_lgm.parameterizations.target import Target
from pymc_lgm.state import State

__all__ = ["PosteriorRoot", "posterior_whitened"]


def posterior_whitened(rng: np.random.Generator, state: State, *, search: Search) -> Target:
    """Hold ω = A⁻¹(f − f̂): ℓ(f) + log N(f; m, K) + log|A| + log p(theta), f = f̂ + A ω.

    q(f) = N(f̂, A Aᵀ) is any Gaussian approximation that is a function of theta alone:
    `site_approximation` makes this "post-site", `taylor_approximation` "post-taylor", and
    `laplace` or `ep` do as well. It works badly where the posterior of f is in the tails of q.

    Parameters
    ----------
    rng : numpy.random.Generator
        Not used: the target is deterministic.
    state : State
    search : callable
        Gives q, a function of theta alone.

    Returns
    -------
    Target

    Notes
    -----
    An evaluation costs the O(n³) operations of q (one for sites) and the factor of K; the current
    theta costs none unless another kernel has moved it. q(f) |A| = N(ω; 0, I) is constant, so the
    target is log p(theta) and the importance weight of f: that of `pseudo_marginal` with one draw.
    """
    here = approximated(state, search, None)
    if here is None:
        return nowhere(state)
    q = here.approximation
    assert q is not None
    omega = PosteriorRoot(q, here.prior).solve(here.f - q.center)

    def evaluate(theta: Array) -> tuple[float, State | None]:
        candidate = Candidate.at(here, theta, search, None)
        if candidate is None:
            return -math.inf, None
        there = candidate.complete(
            lambda q, prior: q.center + PosteriorRoot(q, prior).multiply(omega)
        )
        return (-math.inf, None) if there is None else (_log_density(there), there)

    return Target(here, _log_density(here), evaluate)


def _log_density(at: State) -> float:
    """log [p(y | f) N(f; m, K) / q(f)] + log p(theta)."""
    assert at.approximation is not None
    weight = at.approximation.log_weights(at.f[:, None], np.array([at.log_likelihood]))
    return float(weight[0]) + at.log_prior


@dataclass(frozen=True)
class PosteriorRoot:
    """A square root of q's covariance, (K⁻¹ + W)⁻¹ = A Aᵀ, that costs no further factorization.

    With K = L Lᵀ and B = I + W^½ K W^½ = L_B L_Bᵀ,

        A = (I − K W^½ L_B⁻ᵀ (L_B + I)⁻¹ W^½) L,   A⁻¹ = L⁻¹ (I + K W^½ (L_Bᵀ + I)⁻¹ W^½):

    the square-root filter of Andrews (1968), eq. (10) of Whitaker and Hamill (2002), *Ensemble data
    assimilation without perturbed observations*. Multiply out with
    (L_B + I)(L_B + I)ᵀ = B + L_B + L_Bᵀ + I. Both verbs are O(n²).
    """

    q: GaussianApproximation
    prior: PriorFactor

    def multiply(self, x: Array) -> Array:
        """A x, shape (n,)."""
        root = np.sqrt(self.q.precision)
        u = self.prior.multiply(x)
        solved = self.q.B.solve_transposed(self._shifted().solve(root * u))
        return u - self.prior.covariance_times(root * solved)

    def solve(self, x: Array) -> Array:
        """A⁻¹ x, shape (n,)."""
        root = np.sqrt(self.q.precision)
        solved = self._shifted().solve_transposed(root * x)
        return self.prior.solve(x + self.prior.covariance_times(root * solved))

    def _shifted(self) -> CholeskyFactor:
        """L_B + I, which is triangular, too."""
        shifted = self.q.B.dense()
        np.einsum("ii->i", shifted)[:] += 1.0
        return CholeskyFactor(shifted)
