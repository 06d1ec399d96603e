"""Approximate marginal: theta moves by an approximate evidence, f integrated out by a formula.

Not exact: the posterior that it leaves invariant is log q(y | theta) + log p(theta) ("MCMC EP" of
Filippone and Girolami 2014, §5). It is what a pseudo-marginal sampler tunes on, since it has no
noise and cannot stick, and what `pymc_lgm.correct` makes exact afterwards.
"""

from __future__ import annotations

import math

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from pymc_lgm.approximations.gaussian import GaussianApproximation, Sites
from pymc_lgm.approximations.importance import (
    Coordinates,
    ImportanceSample,
    Scheme,
    importance_sample,
)
from pymc_lgm.approximations.recall import sites_gradient
from pymc_lgm.linalg import Array, Covariance, PriorFactor, tally
from pymc_lgm.parameterizations.target import Screened, Target
from pymc_lgm.state import LatentGaussian, LikelihoodAt, State

__all__ = [
    "Candidate",
    "Search",
    "Start",
    "approximate_marginal",
    "approximated",
    "draw_latent",
    "evidence_force",
    "noise_of_ratio",
    "nowhere",
    "screened_target",
    "settled",
]

Search = Callable[..., GaussianApproximation | None]
"""(likelihood, mean, covariance, start=sites or None) -> q, deterministic."""

Start = Callable[[Array], Sites] | None
"""theta -> sites from which a search starts; ``None``: the search knows where."""


def approximate_marginal(
    rng: np.random.Generator, state: State, *, search: Search, start: Start
) -> Target:
    """Hold nothing of f: log q(y | theta) + log p(theta), q's own evidence.

    Parameters
    ----------
    rng : numpy.random.Generator
        Not used: the target is deterministic.
    state : State
    search : callable
        Gives q.
    start : callable, optional
        Where the search for q starts, a function of theta.

    Returns
    -------
    Target
        With ``screen``, which is the target itself before K is factorized. The f of its states is
        q's center, to be replaced: `draw_latent`.
    """
    here = approximated(state, search, start)
    if here is None:
        return nowhere(state)
    assert here.approximation is not None

    def screen(theta: Array) -> Screened | None:
        candidate = Candidate.at(here, theta, search, start)
        if candidate is None:
            return None

        def complete() -> tuple[float, State | None]:
            there = candidate.complete(lambda q, prior: q.center)
            return (-math.inf, None) if there is None else (candidate.log_density, there)

        return Screened(candidate.log_density, complete)

    log_density = here.approximation.log_evidence + here.log_prior
    return screened_target(here, log_density, screen, log_density)


def evidence_force(
    model: LatentGaussian, search: Search | None, start: Callable[[Array], Sites]
) -> Callable[[Array], Array | None]:
    """Gradient of log p(theta) and of the evidence, by the sites that a search would start from.

    Parameters
    ----------
    model : LatentGaussian
        Mean, covariance, likelihood and prior must have a gradient in theta.
    search : callable, optional
        Brings sites that are ``far`` nearer: their errors are errors of the gradient.
    start : callable
        theta -> sites.

    Returns
    -------
    callable
        theta (p,) -> gradient (p,), ``None`` where it is not a number. A function of theta alone;
        two O(n³) operations, and those of the search.
    """

    # Far out on a trajectory a matrix may be no matrix: such a theta has no force.
    @np.errstate(over="ignore", invalid="ignore", divide="ignore")
    def force(theta: Array) -> Array | None:
        if not np.isfinite(theta).all():
            return None
        of_prior, mean = model.log_prior_gradient(theta), model.mean(theta)
        covariance, sites = Covariance(model.cov(theta)), start(theta)
        if sites.far and search is not None:
            q = search(LikelihoodAt(model, theta), mean, covariance, start=sites)
            if q is None:
                return None
            sites = q.sites
        gradient = sites_gradient(
            mean,
            covariance,
            sites,
            cov_vjp=partial(model.cov_vjp, theta),
            mean_vjp=partial(model.mean_vjp, theta),
            likelihood_gradient=lambda f: model.log_likelihood_theta_gradient(f, theta),
        )
        return None if gradient is None or not np.isfinite(of_prior).all() else gradient + of_prior

    return force


def draw_latent(rng: np.random.Generator, state: State, scheme: Scheme) -> State:
    """Draw f from q(f) by weight, whatever f was, with an estimate of p(y | theta): O(n² N)."""
    q = state.approximation
    if q is None:
        return state
    coordinates = Coordinates.fresh(rng, state.f.size, scheme)
    sample = importance_sample(q, state.prior, state.log_likelihoods_at, coordinates, scheme)
    return settled(rng, state, sample)


def noise_of_ratio(rng: np.random.Generator, state: State, scheme: Scheme) -> float:
    """log p̃' − log p̃ of two independent estimates at one theta."""
    q = state.approximation
    if q is None:
        return math.nan
    one, two = (
        importance_sample(
            q,
            state.prior,
            state.log_likelihoods_at,
            Coordinates.fresh(rng, state.f.size, scheme),
            scheme,
        )
        for _ in range(2)
    )
    return two.log_evidence - one.log_evidence


def settled(rng: np.random.Generator, state: State, sample: ImportanceSample) -> State:
    """Let f be one of the draws, by weight."""
    k = sample.choose(rng)
    return replace(
        state,
        f=sample.f[:, k].copy(),
        log_likelihood=float(sample.log_likelihood[k]),
        estimate=sample.estimate,
    )


def approximated(state: State, search: Search, start: Start) -> State | None:
    """Give a state its q if it does not have it; ``None``, and counted, if there is none."""
    made_by, start_of = state.approximated_by
    if state.approximation is not None and made_by is search and start_of is start:
        return state
    likelihood = LikelihoodAt(state.model, state.theta)
    q = search(likelihood, state.mean, state.prior, start=_at(start, state.theta))
    if q is None:
        tally.numerical_rejections += 1
        return None
    return replace(state, approximation=q, approximated_by=(search, start))


@dataclass(frozen=True)
class Candidate:
    """Another theta with its q, before K has been factorized and anything drawn."""

    state: State
    theta: Array
    log_prior: float
    mean: Array
    covariance: Covariance
    q: GaussianApproximation
    made_by: tuple[object, object]

    @classmethod
    def at(cls, state: State, theta: Array, search: Search, start: Start) -> Candidate | None:
        """Look at theta; ``None`` where there is no density or no q, the latter counted."""
        prior_at = state.prior_at(theta)
        if prior_at is None:
            return None
        log_prior, mean, covariance = prior_at
        q = search(LikelihoodAt(state.model, theta), mean, covariance, start=_at(start, theta))
        if q is None:
            tally.numerical_rejections += 1
            return None
        return cls(state, theta, log_prior, mean, covariance, q, (search, start))

    @property
    def log_density(self) -> float:
        """log q(y | theta) + log p(theta)."""
        return self.q.log_evidence + self.log_prior

    def complete(
        self, latent: Callable[[GaussianApproximation, PriorFactor], Array]
    ) -> State | None:
        """Factorize K, let f follow from q, and evaluate what is left."""
        q = self.q

        def of_prior(mean: Array, prior: PriorFactor) -> Array:
            nonlocal q
            # The factor has taken K's memory; from here on it speaks for both.
            q = replace(q, covariance=prior)
            return latent(q, prior)

        there = self.state.complete(
            self.theta, self.log_prior, self.mean, self.covariance, of_prior
        )
        if there is None:
            return None
        return replace(there, approximation=q, approximated_by=self.made_by)


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


def _at(start: Start, theta: Array) -> Sites | None:
    return None if start is None else start(theta)
