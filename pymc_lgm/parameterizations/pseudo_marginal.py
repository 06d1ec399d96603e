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

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pymc_lgm.approximations.gaussian import GaussianApproximation
from pymc_lgm.approximations.importance import Coordinates, Scheme, importance_sample
from pymc_lgm.linalg import Array, Covariance, PriorFactor, tally
from pymc_lgm.parameterizations.target import Screened, Target
from pymc_lgm.state import LikelihoodAt, State

__all__ = ["PseudoMarginalInfo", "Search", "pseudo_marginal"]

Search = Callable[..., GaussianApproximation | None]
"""(likelihood, mean, covariance, start=f or None) -> q, deterministic."""


class PseudoMarginalInfo(NamedTuple):
    """The estimate of p(y | theta) at the state's theta."""

    log_evidence: float
    """log p̃(y | theta)."""

    log_evidence_sd: float
    """Its standard deviation, from the spread of the weights; NaN for one importance draw."""

    mode_iterations: int
    """Newton steps or EP sweeps that q took."""


def pseudo_marginal(
    rng: np.random.Generator,
    state: State,
    *,
    search: Search,
    start: Array | None,
    scheme: Scheme,
    correlation: float = 0.0,
    exact: bool = True,
) -> tuple[Target, PseudoMarginalInfo]:
    """Refresh the importance draws around f, then hold none of them: log p̃(y | theta) p(theta).

    Parameters
    ----------
    rng : numpy.random.Generator
    state : State
    search : callable
        Gives q. With ``start`` fixed it must be a function of theta alone, or the sampler is not
        exact.
    start : ndarray, shape (n,), optional
        Where searches start, whatever theta is.
    scheme : Scheme
        With one importance draw the move is that of Knorr-Held and Rue (2002).
    correlation : float
        ρ of the coordinates of two successive estimates: their errors cancel as ρ comes near 1.
        With ρ = 1 the target is a deterministic function of theta, as slice sampling needs
        (Murray and Graham 2016), and with one draw f is held in the coordinates of q.
    exact : bool
        False moves theta by the approximate evidence alone and draws f afresh: **not** invariant
        ("MCMC EP" of the paper), and what tuning uses, since it has no noise and cannot stick.

    Returns
    -------
    Target, PseudoMarginalInfo
        ``target.state`` has f drawn anew among the N: a rejected move on theta moves f too. An
        accepted one takes f from the draws at the new theta. ``target.screen`` compares
        approximate evidences, before K is factorized and anything is drawn.

    Notes
    -----
    Keeping f among the N is what makes this valid: an estimate recomputed from N *fresh* draws at
    the current theta would favor states whose estimate happens to be low.

    A proposal costs the O(n³) operations of q and one for the factor of K; the current theta
    costs none unless another kernel has moved it.
    """
    made_by, start_of = state.approximated_by
    q = state.approximation if made_by is search and start_of is start else None

    def approximate(
        theta: Array, mean: Array, covariance: Covariance
    ) -> GaussianApproximation | None:
        found = search(LikelihoodAt(state.model, theta), mean, covariance, start=start)
        if found is None:
            tally.numerical_rejections += 1
        return found

    if q is None:
        q = approximate(state.theta, state.mean, state.prior)
    if q is None:
        # No q here, so no proposal came from here either: stay, as the reverse move would.
        stuck = Target(state, 0.0, lambda theta: (-math.inf, None))
        return stuck, PseudoMarginalInfo(math.nan, math.nan, 0)
    if exact:
        coordinates = Coordinates.around(rng, state.f, q, state.prior, scheme)
    else:
        coordinates = Coordinates.fresh(rng, state.f.size, scheme)
    sample = importance_sample(q, state.prior, state.log_likelihood_at, coordinates, scheme)
    k = sample.choose(rng)
    refreshed = replace(
        state,
        f=sample.f[:, k].copy(),
        log_likelihood=float(sample.log_likelihood[k]),
        approximation=q,
        approximated_by=(search, start),
    )

    def screen(theta: Array) -> Screened | None:
        prior_at = state.prior_at(theta)
        if prior_at is None:
            return None
        log_prior, mean, covariance = prior_at
        proposed = approximate(theta, mean, covariance)
        if proposed is None:
            return None

        def complete() -> tuple[float, State | None]:
            log_evidence, q_there = -math.inf, proposed

            def latent(mean: Array, prior: PriorFactor) -> Array:
                nonlocal log_evidence, q_there
                # The factor has taken K's memory; from here on it speaks for both.
                q_there = replace(proposed, covariance=prior)
                draws = importance_sample(
                    q_there,
                    prior,
                    lambda f: state.log_likelihood_at(f, theta),
                    coordinates.perturbed(rng, correlation),
                    scheme,
                )
                log_evidence = draws.log_evidence if exact else proposed.log_evidence
                return draws.f[:, draws.choose(rng)].copy()

            there = state.complete(theta, log_prior, mean, covariance, latent)
            if there is None or log_evidence == -math.inf:
                return -math.inf, None
            there = replace(there, approximation=q_there, approximated_by=(search, start))
            return log_evidence + log_prior, there

        return Screened(proposed.log_evidence + log_prior, complete)

    def evaluate(theta: Array) -> tuple[float, State | None]:
        screened = screen(theta)
        return (-math.inf, None) if screened is None else screened.complete()

    target = Target(
        state=refreshed,
        log_density=(sample.log_evidence if exact else q.log_evidence) + state.log_prior,
        evaluate=evaluate,
        screen=screen,
        screened_log_density=q.log_evidence + state.log_prior,
    )
    return target, PseudoMarginalInfo(sample.log_evidence, sample.log_evidence_sd, q.iterations)
