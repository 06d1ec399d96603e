"""Tests of uniformity by simultaneous bands of the empirical distribution function.

Säilynoja, Bürkner and Vehtari (2022), *Graphical test for discrete uniformity and its applications
in goodness-of-fit evaluation and multiple sample comparison*, Statistics and Computing 32. They
estimate by simulation the probability that a distribution function lies within a band; here it is
computed exactly.
"""

from __future__ import annotations

import numpy as np

from numpy.typing import NDArray
from scipy.special import bdtr
from scipy.stats import poisson

from pymc_lgm.linalg import Array

__all__ = ["envelope", "uniformity_pvalue"]

STEPS = 24
"""Halvings in the search for a band. The last ones no longer change any count."""

LOWEST = -30.0
"""Smallest logarithm of a tail probability in this search: 1e-13, below any level of a test."""

MOST = 24
"""Largest number of points in one interval; more have a probability of 1e-24."""

SLACK = 1e-9
"""Relative difference of two tail probabilities that counts as rounding."""


def uniformity_pvalue(u: Array) -> float:
    """Compute the p-value of uniformity on (0, 1) of R independent numbers.

    The statistic is the smallest two-sided binomial tail probability among the counts C_i = #{u ≤
    i/R}, i = 1 … R − 1.

    Parameters
    ----------
    u : ndarray, shape (R,)

    Returns
    -------
    float
        Exact up to rounding errors of 1e-12, and at least the smallest tail probability.
    """
    R = u.size
    counts = np.searchsorted(np.sort(u), _points(R), side="right")
    tails = _tails(R)
    lowest = float(tails[np.arange(R - 1), counts].min(initial=1.0))
    return min(1.0, max(1.0 - _inside(tails, lowest), lowest))


def envelope(R: int, level: float) -> tuple[Array, Array, Array]:
    """Compute a simultaneous band for the empirical distribution function.

    Parameters
    ----------
    R : int
        Number of uniform numbers.
    level : float
        Lower bound of the probability that the function lies within the band.

    Returns
    -------
    points, lower, upper : ndarray, shape (R − 1,)
        i/R, and the bounds there.
    """
    tails = _tails(R)
    low, high = LOWEST, 0.0
    for _ in range(STEPS):
        middle = 0.5 * (low + high)
        if _inside(tails, np.exp(middle)) >= level:
            low = middle
        else:
            high = middle
    allowed = _allowed(tails, float(np.exp(low)))
    counts = np.arange(R + 1)
    lower = np.where(allowed, counts, R).min(axis=1)
    upper = np.where(allowed, counts, 0).max(axis=1)
    return _points(R), lower / R, upper / R


def _points(R: int) -> Array:
    return np.arange(1, R) / R


def _tails(R: int) -> Array:
    """The smaller of P(C_i ≤ c) and P(C_i ≥ c) for binomial counts, shape (R − 1, R + 1)."""
    z = _points(R)[:, None]
    counts = np.arange(R + 1.0)
    # By the R − c numbers above z, since a difference from 1 would lose small probabilities.
    return np.minimum(bdtr(counts, R, z), bdtr(R - counts, R, 1.0 - z))


def _allowed(tails: Array, tail: float) -> NDArray[np.bool_]:
    """Counts with more than this tail probability on either side."""
    return tails > tail * (1.0 + SLACK)


def _inside(tails: Array, tail: float) -> float:
    """Probability that all C_i have tail probabilities above this.

    The C_i are counts of a Poisson process given R points in total: its increments are independent,
    and given their sum the points are uniform.
    """
    R = tails.shape[1] - 1
    step = poisson.pmf(np.arange(min(R + 1, MOST)), 1.0)
    law = np.zeros(R + 1)
    law[0] = 1.0
    for within in _allowed(tails, tail):
        law = np.convolve(law, step)[: R + 1] * within
    return float(np.convolve(law, step)[R] / poisson.pmf(R, R))
