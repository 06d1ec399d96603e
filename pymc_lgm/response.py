"""Moments and class probabilities of a new observation from moments of f.

There is one rule per likelihood, dispatched on its op. ``response.register`` adds a rule for your
own likelihood.
"""

from functools import singledispatch
from typing import Any

import numpy as np

from scipy.special import expit, ndtr, softmax

from pymc_lgm.approximations.quadrature import nodes_of_sets, normal_rule
from pymc_lgm.likelihoods import (
    CopulaVolatility,
    LogGaussianCox,
    Logistic,
    OrdinalProbit,
    Probit,
    RobustMax,
    Softmax,
)
from pymc_lgm.linalg import Array

__all__ = ["response"]

NODES, WEIGHTS = normal_rule(32)
"""Gauss–Hermite rule for a standard normal variable."""

LOGISTIC_NODES = 0.75 * np.arange(-45, 46)
LOGISTIC_WEIGHTS = 0.75 * expit(LOGISTIC_NODES) * expit(-LOGISTIC_NODES)
"""Trapezoidal rule for a standard logistic variable. It ends at ±33.75, where the distribution
function is within e^−33.75 = 2e-15 of 0 and 1."""

NARROW = 1.5
"""Standard deviation of f below which the normal rule is used, and above which the logistic one.

Measured: both err by less than 1e-9 there, the normal rule by 1e-7 at 2, the logistic by 5e-9 at 1.
"""


@singledispatch
def response(op: Any, mean: Array, variance: Array) -> Array:
    """Return E[y], E[y²] and class probabilities for f ~ N(mean, variance), as rows.

    The function is dispatched on the likelihood's op, and its parameters other than f are further
    arguments. The result has shape (2 + r, points), with r = 0 if y is not a class, and r = 1 for
    two classes. If the likelihood has one latent variable per class, mean and variance have shape
    (classes, points).
    """
    raise NotImplementedError(f"There is no rule for the response of {type(op).__name__}.")


@response.register(Probit.rv_type)
def _(op: Any, mean: Array, variance: Array) -> Array:
    """E[Φ(f)] = Φ(mean / √(1 + variance))."""
    p = ndtr(mean / np.sqrt(1.0 + variance))
    return np.stack([p, p, p])  # y is 0 or 1, so E[y] and E[y²] are p


@response.register(Logistic.rv_type)
def _(op: Any, mean: Array, variance: Array) -> Array:
    """E[1 / (1 + exp(−f))] with an error below 1e-9, by one of two quadrature rules.

    If the standard deviation of f is small, it uses Gauss–Hermite quadrature in f. If it is large,
    the sigmoid is steep relative to the normal density, but E[Φ((mean + u) / sd)] over a logistic u
    is smooth, and it uses the trapezoidal rule.
    """
    mean, sd = mean[:, None], np.sqrt(variance)[:, None]
    narrow = expit(mean + sd * NODES) @ WEIGHTS
    wide = ndtr((mean + LOGISTIC_NODES) / np.maximum(sd, 1.0)) @ LOGISTIC_WEIGHTS
    p = np.where(sd[:, 0] < NARROW, narrow, wide)
    return np.stack([p, p, p])


@response.register(LogGaussianCox.rv_type)
def _(op: Any, mean: Array, variance: Array, exposure: Array, offset: Array) -> Array:
    """Moments of a Poisson count whose rate is log-normal."""
    with np.errstate(over="ignore"):
        rate = exposure * np.exp(mean + offset + 0.5 * variance)
        return np.stack([rate, rate + exposure**2 * np.exp(2.0 * (mean + offset + variance))])


@response.register(CopulaVolatility.rv_type)
def _(op: Any, mean: Array, variance: Array) -> Array:
    """E[y] = 0 and E[y²] = E[exp(2f)] = exp(2 mean + 2 variance)."""
    with np.errstate(over="ignore"):
        square = np.exp(2.0 * mean + 2.0 * variance)
    return np.stack([np.zeros_like(square), square])


@response.register(OrdinalProbit.rv_type)
def _(op: Any, mean: Array, variance: Array, cutpoints: Array, noise: Array) -> Array:
    """Probabilities of the intervals between cutpoints, under f plus noise."""
    scaled = ((cutpoints - mean[:, None]) / np.sqrt(variance + noise**2)[:, None]).T
    beyond = np.full((1, len(mean)), np.inf)
    lower, upper = np.concatenate([-beyond, scaled]), np.concatenate([scaled, beyond])
    mirror = lower + upper > 0.0  # subtract the tails in which both are small
    p = np.where(mirror, ndtr(-lower) - ndtr(-upper), ndtr(upper) - ndtr(lower))
    return _of_categories(p)


@response.register(Softmax.rv_type)
def _(op: Any, mean: Array, variance: Array) -> Array:
    """Class probabilities by quadrature; the f of the classes are independent given a draw."""
    x, weights = nodes_of_sets(len(mean))
    f = mean + np.sqrt(variance) * x[:, :, None]
    # Beyond four classes some weights are negative.
    p = np.maximum(np.einsum("k,kci->ci", weights, softmax(f, axis=1)), 0.0)
    p /= p.sum(axis=0)
    return _of_categories(p)


@response.register(RobustMax.rv_type)
def _(op: Any, mean: Array, variance: Array, epsilon: Array) -> Array:
    """Probability that each f is the largest, by quadrature over it, with ε for the others."""
    C, sd = len(mean), np.maximum(np.sqrt(variance), 1e-10)  # a known f would divide by 0
    at = mean[:, None] + sd[:, None] * NODES[:, None]
    below = ndtr((at[:, None] - mean[:, None]) / sd[:, None])  # class, other class, node, point
    below[np.arange(C), np.arange(C)] = 1.0
    largest = np.einsum("cki,k->ci", below.prod(axis=1), WEIGHTS)
    largest /= largest.sum(axis=0)
    p = largest * (1.0 - epsilon) + (1.0 - largest) * epsilon / (C - 1)
    return _of_categories(p)


def _of_categories(p: Array) -> Array:
    """The result of `response` for categories 0, 1, … with probabilities p, one per row."""
    category = np.arange(len(p))
    return np.stack([category @ p, category**2 @ p, *p])
