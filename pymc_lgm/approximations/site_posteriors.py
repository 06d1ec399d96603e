"""Site posteriors: each p(y_i | f_i) seen through the prior of its own f_i alone.

§3.2 of Murray and Adams (2010), eq. (12) and (13): the noise S = 1/W of their surrogate data. One
site at a time there is no matrix, so the whole approximation costs the one factorization of B.
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

__all__ = ["NOISES", "site_approximation", "taylor_approximation"]

FLAT = 1e6
"""Prior variance at which a site is expanded as if there were no prior."""

CLOSE = 1e-4
"""Squared distance from a site's mode, in its own variances, at which it has been found."""


def site_approximation(
    likelihood: SiteLikelihood, prior: Prior, *, start: Array | None = None
) -> GaussianApproximation | None:
    """Approximate p(f | y, theta) with sites that are right where f has independent components.

    Each p(y_i | f_i) N(f_i; m_i, K_ii) is fitted by a Gaussian at its mode, of variance
    v_i = 1/(W_i + 1/K_ii): W_i is what the site adds, and S_i = 1/W_i = (1/v_i − 1/K_ii)⁻¹. Where
    an observation reads several f_i it is Laplace's approximation, with a block for each set.

    Parameters
    ----------
    likelihood : SiteLikelihood
        f -> (ℓ, g, W, third derivative).
    prior : Prior
    start : ndarray, shape (n,), optional
        Where the searches of the modes begin, by default m.

    Returns
    -------
    GaussianApproximation or None
        With W ≥ 0. ``None`` if the search of a mode meets values that are not finite.

    Notes
    -----
    One O(n³) operation; about 6 evaluations of the likelihood. Of sets those of `laplace`.
    """
    if likelihood.sets is not None:
        return laplace(likelihood, prior, start=start)
    return _approximation(likelihood, prior, prior.variances, start)


def taylor_approximation(
    likelihood: SiteLikelihood, prior: Prior, *, start: Array | None = None
) -> GaussianApproximation | None:
    """Approximate p(f | y, theta) with each log p(y_i | f_i) expanded at its maximum.

    Eq. (13), after Christensen, Roberts and Sköld (2006). A maximum at infinity, that of a zero
    count or of a binary observation, is that under a prior of variance ``FLAT``: W_i is next to
    nothing. Parameters, result and cost are those of `site_approximation`, as is all of sets.
    """
    if likelihood.sets is not None:
        return laplace(likelihood, prior, start=start)
    return _approximation(likelihood, prior, np.full(prior.n, FLAT), start)


NOISES = {"site": site_approximation, "taylor": taylor_approximation}
"""Approximations that surrogate data take their noise from, by name."""


@np.errstate(over="ignore", invalid="ignore")
def _approximation(
    likelihood: Likelihood, prior: Prior, variance: Array, start: Array | None
) -> GaussianApproximation | None:
    mean = prior.mean
    f, value, g, W = _modes(likelihood, mean, variance, mean if start is None else start)
    z = f - mean
    nu = g + W * z  # ℓ(f) ≈ value + g (f − f̂) − ½ W (f − f̂)², that is νz − ½ W z² and a constant
    posterior = prior.condition(W)
    if posterior is None or not (math.isfinite(value) and np.isfinite(g).all()):
        return None
    dual, deviation = posterior.center(nu)
    slope, sharpness = g - z / variance, W + 1.0 / variance
    objective = value - float(nu @ z - 0.5 * W @ z**2 - 0.5 * nu @ deviation)
    converged = bool((slope**2 < CLOSE * sharpness).all())
    return GaussianApproximation.at(posterior, dual, deviation, objective, converged=converged)


def _modes(
    likelihood: Likelihood, mean: Array, variance: Array, f: Array, max_iterations: int = 50
) -> tuple[Array, float, Array, Array]:
    """Modes of p(y_i | f_i) N(f_i; m_i, v_i), all at once, with ℓ, g and W ≥ 0 there.

    Newton's method, with steps at most four times as long as the last. Between two points that
    are known to lie on either side of the mode a step that leaves them, or is not half as long as
    the last, goes to their middle instead.
    """
    low, high, last = np.full(f.size, -np.inf), np.full(f.size, np.inf), np.full(f.size, 0.25)
    for _ in range(max_iterations):
        value, g, W, _ = likelihood(f)
        W = np.maximum(W, 0.0)
        slope = g - (f - mean) / variance
        slope = np.where(np.isfinite(slope), slope, mean - f)  # not finite is too far
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
