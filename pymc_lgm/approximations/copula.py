"""A Gaussian copula: draws of q, transformed to the skewed marginals of the posterior.

A Gaussian q has most of the posterior's dependence, but it is symmetric. The posterior may be
skewed: if the prior variance of f_i is large, a binary observation says that f_i has one sign, and
cuts off the other half of its distribution. Among a hundred such components, a draw of q nearly
always has some with the wrong sign. The tilted marginals of expectation propagation, p(y_i |
f_i) q(f_i) / t_i(f_i), are close to the marginals of the posterior (Cseke and Heskes 2011,
*Approximate marginals in latent Gaussian models*, JMLR 12). This module moves each component of a
draw to the same quantile of its tilted marginal. Ferkingstad and Rue (2015), *Improving the INLA
approach for approximate Bayesian inference for latent Gaussian models*, EJS 9, correct INLA in the
same way. The transformed density is known, so importance sampling from it is exact.
"""

from __future__ import annotations

import math

from collections.abc import Callable
from dataclasses import dataclass

import numba
import numpy as np

from scipy.special import ndtri

from pymc_lgm.approximations.sites import Margins, Sites
from pymc_lgm.compile.loops.elementary import exp
from pymc_lgm.linalg import Array

__all__ = ["Copula", "tilted_copula"]

# The constants were measured by the standard deviation of log p̂ from 16 draws in antithetic pairs,
# at six thetas of labels and counts with 80 latents (`Labels` and `Counts` of tests/toys.py), with
# log variances from 0 to 6 and log length-scales from −4 to 0.

STEP = 0.3
"""Distance of two knots.

With 0.6 the standard deviation of log p̂ is 1.4 to 3.7 times as large if f is rough, for example
1.02 instead of 0.28. With 0.15 it is 0.4 to 1 times as large, for twice as many likelihood
evaluations.
"""

KNOTS = STEP * np.arange(-18, 19)
"""Points at which quantiles are computed, from −5.4 to 5.4 standard deviations of q about its
center. Between two of them the map is linear."""

HALF = 3.0
"""Value of Σ_ii (K⁻¹)_ii at which half of the correction is applied: see `tilted_copula`.

From 3 to 10 the standard deviation of log p̂ changes by less than a tenth. With 1 it is up to twice
as large, and without a copula up to a hundred times, if f is rough. With 100 it is a quarter larger
for labels with a smooth f, where the full correction is worse than none.
"""

TAIL = 1e-9
"""Share of the probability that lies below the first knot, and above the last.

It is positive so that no quantile is infinite. Results with 1e-13 are the same to three digits.
"""

STEEPEST = 0.02
"""Smallest slope of x in f. It bounds how far a draw moves where the tilted density is almost 0.

It is a safeguard: from 0.0002 to 0.3 no result changed in three digits.
"""


@dataclass(frozen=True, eq=False)
class Copula:
    """A bijection from draws x of q to f, component by component, piecewise linear.

    x_i = f̂_i + s_i X_i((f_i − f̂_i) / s_i) with X_i increasing.

    Attributes
    ----------
    center, scale : ndarray, shape (n,)
        f̂ and s.
    values : ndarray, shape (Q, n)
        X_i at `KNOTS`. Beyond them X_i continues with the slope of the last piece.
    """

    center: Array
    scale: Array
    values: Array

    def forward(self, x: Array) -> tuple[Array, Array]:
        """f of columns x, shape (n, N), and log |∂x/∂f| of each, shape (N,)."""
        rows, log_slopes = forward_rows(
            np.ascontiguousarray(x.T), self.center, self.scale, self.values
        )
        return rows.T, log_slopes

    def backward(self, f: Array) -> Array:
        """x of columns f, shape (n, N)."""
        rows: Array = backward_rows(np.ascontiguousarray(f.T), self.center, self.scale, self.values)
        return rows.T


@numba.njit(cache=True, error_model="numpy")
def forward_rows(rows: Array, center: Array, scale: Array, values: Array) -> tuple[Array, Array]:
    """`Copula.forward` for draws in rows.

    For each t = (x − f̂)/s it finds the two neighboring values of X between which t lies, and
    interpolates. X is close to the identity, so the search begins at the knot below t.
    """
    moved, log_slopes, last = np.empty_like(rows), np.empty(len(rows)), KNOTS.size - 2
    for draw in range(len(rows)):
        log_slope, slopes = 0.0, 1.0
        for i in range(center.size):
            t = (rows[draw, i] - center[i]) / scale[i]
            place = (t - KNOTS[0]) / STEP
            below = int(min(place, float(last))) if place > 0.0 else 0  # 0 also for NaN
            while below > 0 and values[below, i] > t:
                below -= 1
            while below < last and values[below + 1, i] <= t:
                below += 1
            slope = (values[below + 1, i] - values[below, i]) / STEP
            moved[draw, i] = center[i] + scale[i] * (KNOTS[below] + (t - values[below, i]) / slope)
            slopes *= slope
            if not 1e-100 < slopes < 1e100:  # one logarithm for many
                log_slope, slopes = log_slope + math.log(slopes), 1.0
        log_slopes[draw] = log_slope + math.log(slopes)
    return moved, log_slopes


@numba.njit(cache=True, error_model="numpy")
def backward_rows(rows: Array, center: Array, scale: Array, values: Array) -> Array:
    """`Copula.backward` for draws in rows."""
    back = np.empty_like(rows)
    for draw in range(len(rows)):
        for i in range(center.size):
            t = (rows[draw, i] - center[i]) / scale[i]
            # A position that overflows an integer belongs to the last piece.
            place = (t - KNOTS[0]) / STEP
            below = int(min(place, KNOTS.size - 2.0)) if place > 0.0 else 0  # 0 also for NaN
            slope = (values[below + 1, i] - values[below, i]) / STEP
            back[draw, i] = center[i] + scale[i] * (values[below, i] + (t - KNOTS[below]) * slope)
    return back


@np.errstate(over="ignore", invalid="ignore")
def tilted_copula(
    log_likelihoods: Callable[[Array], Array],
    mean: Array,
    center: Array,
    sites: Sites,
    margins: Margins,
) -> Copula | None:
    """Move the marginals of q towards its tilted marginals, each as far as the prior permits.

    The copula moves each f_i without its neighbors. If f is smooth, (K⁻¹)_ii is large, and such a
    move is improbable under the prior. In that case the marginals are nearly Gaussian anyway.
    Therefore component i gets only the share 1 / (1 + (Σ_ii (K⁻¹)_ii / 3)²) of its correction: all
    of it if f is rough, half of it at `HALF`, and almost none if f is smooth.

    Parameters
    ----------
    log_likelihoods : callable
        Rows of f (Q, n) -> ℓ_i(f_i), shape (Q, n).
    mean, center : ndarray, shape (n,)
        m and f̂.
    sites : Sites
    margins : Margins
        Σ_ii and (K⁻¹)_ii, or approximations of them. Any positive numbers that depend on theta
        alone give an exact sampler.

    Returns
    -------
    Copula or None
        ``None`` if every share is at most 0.01, or if a quantile is not finite.

    Notes
    -----
    One evaluation of the likelihood per knot, 37 in all, and no O(n³) operation.
    """
    share = 1.0 / (1.0 + (margins.variances * margins.precisions / HALF) ** 2)
    if not share.max() > 0.01:
        return None
    scale = np.sqrt(margins.variances)
    z = center - mean + KNOTS[:, None] * scale
    P = tilted_probabilities(log_likelihoods(mean + z), z, sites.nu, sites.precision)
    values = corrected(ndtri(P), share)
    if not np.isfinite(values).all():
        return None
    return Copula(center, scale, values)


@numba.njit(cache=True, error_model="numpy")
def tilted_probabilities(log_likelihood: Array, z: Array, nu: Array, precision: Array) -> Array:
    """P(f_i < m_i + z_qi) under p(y_i | f_i) q(f_i) / t_i(f_i), by the trapezoidal rule.

    Arrays have shape (Q, n). The probability beyond the first and the last knot is `TAIL` each.
    """
    Q, n = z.shape
    log_density, largest = np.empty((Q, n)), np.full(n, -np.inf)
    for q in range(Q):
        for i in range(n):
            x = z[q, i]
            value = log_likelihood[q, i] - x * (nu[i] - 0.5 * precision[i] * x)
            value -= 0.5 * KNOTS[q] ** 2
            if not value < np.inf:  # NaN and +inf in the tails
                value = -np.inf
            log_density[q, i] = value
            largest[i] = max(largest[i], value)
    P, density = np.zeros((Q, n)), np.empty((Q, n))
    for q in range(Q):
        for i in range(n):
            density[q, i] = exp(log_density[q, i] - largest[i])
    for q in range(1, Q):
        for i in range(n):
            P[q, i] = P[q - 1, i] + 0.5 * (density[q, i] + density[q - 1, i])
    for i in range(n):
        mass = P[Q - 1, i]
        for q in range(Q):
            P[q, i] = (P[q, i] + TAIL * mass) / ((1 + 2 * TAIL) * mass)
    return P


@numba.njit(cache=True)
def corrected(quantiles: Array, share: Array) -> Array:
    """X at the knots: ``share`` of the way from the identity to the quantiles.

    The slope of the quantiles is at least `STEEPEST`. The slope of the first and the last piece is
    at most 1. Therefore the tails of the importance density are at least as heavy as those of q.
    With lighter tails, values of f in the tails would rarely be drawn and would have large weights.
    """
    middle = KNOTS.size // 2
    values = quantiles.copy()
    last = KNOTS.size - 1
    for i in range(share.size):
        for q in range(middle, last):
            growth = max(quantiles[q + 1, i] - quantiles[q, i], STEEPEST * STEP)
            values[q + 1, i] = values[q, i] + (growth if q + 1 < last else min(growth, STEP))
        for q in range(middle, 0, -1):
            growth = max(quantiles[q, i] - quantiles[q - 1, i], STEEPEST * STEP)
            values[q - 1, i] = values[q, i] - (growth if q - 1 > 0 else min(growth, STEP))
        for q in range(KNOTS.size):
            values[q, i] = KNOTS[q] + share[i] * (values[q, i] - KNOTS[q])
    return values
