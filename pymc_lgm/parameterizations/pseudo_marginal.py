"""Pseudo-marginal: theta moves with f integrated out by importance sampling, exactly.

Filippone and Girolami (2014), *Pseudo-marginal Bayesian inference for Gaussian processes*, IEEE
TPAMI 36; Andrieu and Roberts (2009) for why an unbiased estimate is enough. Written as a kernel on
(theta, f): the extended target holds N importance draws f_j(ξ_j, theta) and the index of the one
that is f,

    p(theta) ∏_j N(ξ_j; 0, I) × (1/N) w(f_k, theta),   w(f, theta) = p(y | f) N(f; m, K) / q(f),

whose marginal in (theta, f_k) is the posterior, and whose sum over k is p̃(y | theta) p(theta).
`pseudo_marginal` draws the other N − 1 given f, as conditional importance sampling does (Andrieu,
Doucet and Holenstein 2010, §4.5), so the chain carries nothing but (theta, f) and any other kernel
may move them in between.
"""

from __future__ import annotations

import math

from dataclasses import replace

import numpy as np

from pymc_lgm.approximations.gaussian import GaussianApproximation
from pymc_lgm.approximations.importance import Coordinates, Scheme, importance_sample
from pymc_lgm.linalg import Array, PriorFactor
from pymc_lgm.parameterizations.approximate_marginal import (
    Candidate,
    Search,
    Start,
    approximated,
    nowhere,
    screened_target,
    settled,
)
from pymc_lgm.parameterizations.target import Screened, Target
from pymc_lgm.state import State

__all__ = ["pseudo_marginal"]


def pseudo_marginal(
    rng: np.random.Generator,
    state: State,
    *,
    search: Search,
    start: Start,
    scheme: Scheme,
    correlation: float = 0.0,
) -> Target:
    """Refresh the importance draws around f, then hold none of them: log p̃(y | theta) p(theta).

    Parameters
    ----------
    rng : numpy.random.Generator
    state : State
    search : callable
        Gives q. With ``start`` fixed it must be a function of theta alone, or the sampler is not
        exact.
    start : callable, optional
        Where the search for q starts, a function of theta.
    scheme : Scheme
        With one importance draw the move is that of Knorr-Held and Rue (2002).
    correlation : float
        ρ of the coordinates of two successive estimates: their errors cancel as ρ comes near 1.
        With ρ = 1 the density is a deterministic function of theta, as slice sampling needs
        (Murray and Graham 2016), and with one draw f is held in the coordinates of q.

    Returns
    -------
    Target
        ``target.state`` has f drawn anew among the N: a rejected move on theta moves f too. An
        accepted one takes f from the draws at the new theta. ``target.screen`` compares
        approximate evidences, before K is factorized and anything is drawn. Every state has its
        ``estimate``.

    Notes
    -----
    Keeping f among the N is what makes this valid: an estimate recomputed from N *fresh* draws at
    the current theta would favor states whose estimate happens to be low.

    A proposal costs the O(n³) operations of q and one for the factor of K; the current theta
    costs none unless another kernel has moved it.
    """
    here = approximated(state, search, start)
    if here is None:
        # No q here, so no proposal came from here either: stay, as the reverse move would.
        return nowhere(state)
    q = here.approximation
    assert q is not None
    coordinates = Coordinates.around(rng, here.f, q, here.prior, scheme)
    sample = importance_sample(q, here.prior, here.log_likelihoods_at, coordinates, scheme)
    refreshed = settled(rng, here, sample)

    def screen(theta: Array) -> Screened | None:
        candidate = Candidate.at(here, theta, search, start)
        if candidate is None:
            return None

        def complete() -> tuple[float, State | None]:
            estimate = None

            def latent(q: GaussianApproximation, prior: PriorFactor) -> Array:
                nonlocal estimate
                draws = importance_sample(
                    q,
                    prior,
                    lambda rows: here.log_likelihoods_at(rows, theta),
                    coordinates.perturbed(rng, correlation),
                    scheme,
                )
                estimate = draws.estimate
                return draws.f[:, draws.choose(rng)].copy()

            there = candidate.complete(latent)
            if there is None or estimate is None or estimate.log_evidence == -math.inf:
                return -math.inf, None
            return estimate.log_evidence + there.log_prior, replace(there, estimate=estimate)

        return Screened(candidate.log_density, complete)

    return screened_target(
        refreshed,
        sample.log_evidence + here.log_prior,
        screen,
        q.log_evidence + here.log_prior,
        noisy=correlation < 1.0,
    )
