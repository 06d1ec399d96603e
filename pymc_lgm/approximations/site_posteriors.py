"""Site posteriors: each p(y_i | f_i) combined with the marginal prior of its f_i.

They determine the noise S = 1/W of surrogate data: §3.2 of Murray and Adams (2010), eqs. (12) and
(13). Each site is fitted without matrix operations, so the approximation costs one factorization of
B.
"""

from __future__ import annotations

import math

import numpy as np

from pymc_lgm.approximations.gaussian import (
    GaussianApproximation,
    Likelihood,
    SiteLikelihood,
)
from pymc_lgm.approximations.laplace import laplace
from pymc_lgm.gaussian import Prior
from pymc_lgm.linalg import Array

__all__ = ["site_approximation", "taylor_approximation"]

FLAT = 1e6
"""Prior variance that stands for a flat prior."""

CLOSE = 1e-4
"""Squared distance from a mode, in variances of its site posterior, at which it has converged."""

STEPS = 50
"""Largest number of steps of Newton's method to the modes."""


def site_approximation(likelihood: SiteLikelihood, prior: Prior) -> GaussianApproximation | None:
    """Approximate p(f | y, theta) with sites that fit if the components of f are independent.

    Each p(y_i | f_i) N(f_i; m_i, K_ii) is fitted by a Gaussian at its mode, of variance v_i =
    1/(W_i + 1/K_ii): W_i is the precision of the site, and S_i = 1/W_i = (1/v_i − 1/K_ii)⁻¹. If an
    observation reads several f_i, the result is Laplace's approximation, with a block for each set.

    Parameters
    ----------
    likelihood : SiteLikelihood
        f -> (ℓ, g, W, third derivative).
    prior : Prior

    Returns
    -------
    GaussianApproximation or None
        With W ≥ 0. ``None`` if the search for a mode meets values that are not finite.

    Notes
    -----
    One O(n³) operation and about 6 evaluations of the likelihood. With sets, the cost of `laplace`.
    """
    if likelihood.sets is not None:
        return laplace(likelihood, prior)
    return _approximation(likelihood, prior, prior.variances)


def taylor_approximation(likelihood: SiteLikelihood, prior: Prior) -> GaussianApproximation | None:
    """Approximate p(f | y, theta) with each log p(y_i | f_i) expanded at its maximum.

    Eq. (13), after Christensen, Roberts and Sköld (2006). If the maximum is at infinity, as for a
    zero count or a binary observation, the maximum under a prior of variance ``FLAT`` replaces it,
    and W_i is almost 0. Parameters, result, cost and the treatment of sets are those of
    `site_approximation`.
    """
    if likelihood.sets is not None:
        return laplace(likelihood, prior)
    return _approximation(likelihood, prior, np.full(prior.n, FLAT))


@np.errstate(over="ignore", invalid="ignore")
def _approximation(
    likelihood: Likelihood, prior: Prior, variance: Array
) -> GaussianApproximation | None:
    mean = prior.mean
    f, value, g, W = _modes(likelihood, mean, variance)
    z = f - mean
    nu = g + W * z  # ℓ(f) ≈ value + g (f − f̂) − ½ W (f − f̂)² = νz − ½ W z² + constant
    posterior = prior.condition(W)
    if posterior is None or not (math.isfinite(value) and np.isfinite(g).all()):
        return None
    alpha, deviation = posterior.center(nu)
    slope, sharpness = g - z / variance, W + 1.0 / variance
    objective = value - float(nu @ z - 0.5 * W @ z**2 - 0.5 * nu @ deviation)
    converged = bool((slope**2 < CLOSE * sharpness).all())
    return GaussianApproximation.at(posterior, alpha, deviation, objective, converged=converged)


def _modes(
    likelihood: Likelihood, mean: Array, variance: Array
) -> tuple[Array, float, Array, Array]:
    """Modes of all p(y_i | f_i) N(f_i; m_i, v_i), with ℓ, g and W ≥ 0 there.

    Newton's method from m, with steps at most four times as long as the last. Once a mode is
    bracketed, a step that leaves the bracket, or that is longer than half of the last, is replaced
    by bisection.
    """
    f = mean
    low, high, last = np.full(f.size, -np.inf), np.full(f.size, np.inf), np.full(f.size, 0.25)
    for _ in range(STEPS):
        value, g, W, _ = likelihood(f)
        W = np.maximum(W, 0.0)
        slope = g - (f - mean) / variance
        slope = np.where(np.isfinite(slope), slope, mean - f)  # not finite: |f| is too large
        precision = W + 1.0 / variance
        done = slope**2 < CLOSE * precision
        if done.all():
            break
        low, high = np.where(slope > 0, f, low), np.where(slope > 0, high, f)
        middle = 0.5 * (low + high)
        step = slope / precision
        slow = ~((low < f + step) & (f + step < high)) | (np.abs(step) > 0.5 * last)
        limit = np.maximum(1.0, 4.0 * last)
        newton = f + np.clip(step, -limit, limit)
        reached = np.where(slow & np.isfinite(middle), middle, newton)
        last = np.abs(reached - f)
        f = np.where(done, f, reached)
    else:
        value, g, W, _ = likelihood(f)
        W = np.maximum(W, 0.0)
    return f, value, g, W
