"""A Gaussian whose precision is the same wherever f is: K⁻¹ + W at the constant f that fits best.

The homogeneous metric F̂ of Filippone's multinomial logit with several kernels, where W is that of
the class frequencies.
"""

from __future__ import annotations

import math

import numpy as np

from pymc_lgm.approximations.gaussian import (
    GaussianApproximation,
    SiteLikelihood,
)
from pymc_lgm.gaussian import Prior
from pymc_lgm.gaussian.sites import SiteBlocks, is_finite, nonnegative
from pymc_lgm.linalg import Array

__all__ = ["best_constant", "class_frequency"]

SPREAD = 10.0
"""Standard deviation of constants: a class without data has one, and a shift does not drift."""


def best_constant(likelihood: SiteLikelihood, start: Array) -> Array | None:
    """Maximize ℓ over f that is one number, or one number per class.

    Newton's method with halved steps for ℓ(f⁰) − ½ |c|²/10², where f⁰_i = c_k if f_i is the k-th
    that its observation reads. Of a softmax c_k is the logarithm of the frequency of class k,
    up to a shift; of counts it is that of their mean.

    Parameters
    ----------
    likelihood : callable
        f -> (ℓ, g, W, third derivative).
    start : ndarray, shape (n,)
        The search begins at its means.

    Returns
    -------
    ndarray, shape (n,), or None
        f⁰; ``None`` where ℓ at the start is not finite.
    """
    kind = _places(likelihood, start.size)
    count = np.bincount(kind)
    c = np.bincount(kind, weights=start) / count
    log_likelihood, g, W, _ = likelihood(c[kind])
    objective = log_likelihood - 0.5 * float(c @ c) / SPREAD**2
    if not (math.isfinite(objective) and np.isfinite(g).all() and is_finite(W)):
        return None
    for _ in range(50):
        slope = np.bincount(kind, weights=g) - c / SPREAD**2
        positive, each = nonnegative(W), np.eye(count.size)[kind]
        product = positive.times(each) if isinstance(positive, SiteBlocks) else positive[:, None]
        curvature = each.T @ product + np.eye(count.size) / SPREAD**2
        step = np.linalg.solve(curvature, slope)
        if float(slope @ step) < 1e-8:
            break
        for halvings in range(30):
            there = c + 0.5**halvings * step
            log_likelihood, g_there, W_there, _ = likelihood(there[kind])
            reached = log_likelihood - 0.5 * float(there @ there) / SPREAD**2
            if reached > objective and np.isfinite(g_there).all() and is_finite(W_there):
                break
        else:
            break
        c, g, W, objective = there, g_there, W_there, reached
    return c[kind]


def class_frequency(
    likelihood: SiteLikelihood, prior: Prior, *, start: Array | None = None
) -> GaussianApproximation | None:
    """Approximate p(f | y, theta) by one step of Newton's method from the best constant f⁰.

    With g and W at f⁰, the precision is F̂ = K⁻¹ + W, and the center is m + K a with
    a = (I + W K)⁻¹ (W (f⁰ − m) + g). Of a softmax W is diag(π) − π πᵀ for each observation, π the
    class frequencies of the data.

    Parameters
    ----------
    likelihood : callable
        f -> (ℓ, g, W, third derivative).
    prior : Prior
    start : ndarray, shape (n,), optional
        Not needed: the constant does not depend on where the posterior of f is.

    Returns
    -------
    GaussianApproximation or None
        A function of theta alone. ``None`` where f⁰ or K⁻¹ + W are not finite.

    Notes
    -----
    One O(n³) operation per theta, and C + 1 for C classes; no search. "RM-HMC" with F̂ in
    Filippone (2017), a habilitation thesis.
    """
    constant = best_constant(likelihood, prior.mean)
    if constant is None:
        return None
    log_likelihood, g, W, _ = likelihood(constant)
    posterior = prior.condition(nonnegative(W))
    if posterior is None:
        return None
    a, z = posterior.center(posterior.precision_times(constant - prior.mean) + g)
    log_likelihood, *_ = likelihood(prior.mean + z)
    return GaussianApproximation.at(posterior, a, z, log_likelihood - 0.5 * float(z @ a))


def _places(likelihood: SiteLikelihood, n: int) -> np.ndarray:
    """Which place f_i has in its set, shape (n,)."""
    if likelihood.sets is None:
        return np.zeros(n, dtype=np.intp)
    of_f = np.zeros(n, dtype=np.intp)
    at = np.nonzero(likelihood.sets >= 0)
    of_f[likelihood.sets[at]] = at[1]
    return of_f
