"""Draws of q with the skewed marginals of the posterior: a Gaussian copula.

A Gaussian q has much of the posterior's dependence, and none of its skewness. Where the prior lets
each f_i vary by itself, a binary observation cuts it off at 0, and of a hundred such components of
a draw some are always on the wrong side. The tilted marginals of expectation
propagation, p(y_i | f_i) q(f_i) / t_i(f_i), are close to the posterior's (Cseke and Heskes 2011,
*Approximate marginals in latent Gaussian models*, JMLR 12): moving each component of a draw to the
same quantile of those makes it nearly one of the posterior, as the copula correction of
Ferkingstad and Rue (2015), *Improving the INLA approach for approximate Bayesian inference for
latent Gaussian models*, EJS 9, does for INLA. As an importance distribution it is exact.
"""

from __future__ import annotations

import math

from collections.abc import Callable
from dataclasses import dataclass

import numba
import numpy as np

from scipy.special import ndtri

from pymc_lgm.approximations.sites import Margins, Sites
from pymc_lgm.elementary import exp
from pymc_lgm.linalg import Array

__all__ = ["Copula", "tilted_copula"]

STEP = 0.3
KNOTS = STEP * np.arange(-18, 19)
"""Where quantiles are known, in standard deviations of q about its center."""

FREE = 3.0
"""Σ_ii (K⁻¹)_ii, how far f_i goes beyond where the other f would have it, of a half correction."""

TAIL = 1e-9
"""Probability below the first knot and above the last."""

STEEPEST = 0.02
"""Least of the slopes of x in f: where the tilted density is nothing, no draw shall go far."""


@dataclass(frozen=True, eq=False)
class Copula:
    """A bijection of draws x of q to f, component by component, linear between knots.

    x_i = f̂_i + s_i X_i((f_i − f̂_i) / s_i) with X_i increasing.

    Attributes
    ----------
    center, scale : ndarray, shape (n,)
        f̂ and s.
    values : ndarray, shape (Q, n)
        X_i at `KNOTS`; beyond them it goes on as between the last two.
    """

    center: Array
    scale: Array
    values: Array

    def forward(self, x: Array) -> tuple[Array, Array]:
        """f of columns x, shape (n, N), and log |∂x/∂f| of each, shape (N,)."""
        rows, log_slopes = bend(np.ascontiguousarray(x.T), self.center, self.scale, self.values)
        return rows.T, log_slopes

    def backward(self, f: Array) -> Array:
        """x of columns f, shape (n, N)."""
        rows: Array = straighten(np.ascontiguousarray(f.T), self.center, self.scale, self.values)
        return rows.T


@numba.njit(cache=True, error_model="numpy")
def bend(rows: Array, center: Array, scale: Array, values: Array) -> tuple[Array, Array]:
    """`Copula.forward` of rows: each t = (x − f̂)/s is looked for between two values of X.

    X is not far from the identity, so the search begins at the knot below t.
    """
    bent, log_slopes, last = np.empty_like(rows), np.empty(len(rows)), KNOTS.size - 2
    for draw in range(len(rows)):
        log_slope, slopes = 0.0, 1.0
        for i in range(center.size):
            t = (rows[draw, i] - center[i]) / scale[i]
            place = (t - KNOTS[0]) / STEP
            below = int(min(place, float(last))) if place > 0.0 else 0  # NaN, too
            while below > 0 and values[below, i] > t:
                below -= 1
            while below < last and values[below + 1, i] <= t:
                below += 1
            slope = (values[below + 1, i] - values[below, i]) / STEP
            bent[draw, i] = center[i] + scale[i] * (KNOTS[below] + (t - values[below, i]) / slope)
            slopes *= slope
            if not 1e-100 < slopes < 1e100:  # one logarithm for many
                log_slope, slopes = log_slope + math.log(slopes), 1.0
        log_slopes[draw] = log_slope + math.log(slopes)
    return bent, log_slopes


@numba.njit(cache=True, error_model="numpy")
def straighten(rows: Array, center: Array, scale: Array, values: Array) -> Array:
    """`Copula.backward` of rows."""
    straight = np.empty_like(rows)
    for draw in range(len(rows)):
        for i in range(center.size):
            t = (rows[draw, i] - center[i]) / scale[i]
            # A position beyond what an integer holds is as far out as the last piece.
            place = (t - KNOTS[0]) / STEP
            below = int(min(place, KNOTS.size - 2.0)) if place > 0.0 else 0  # NaN, too
            slope = (values[below + 1, i] - values[below, i]) / STEP
            straight[draw, i] = center[i] + scale[i] * (
                values[below, i] + (t - KNOTS[below]) * slope
            )
    return straight


@np.errstate(over="ignore", invalid="ignore")
def tilted_copula(
    log_likelihoods: Callable[[Array], Array],
    mean: Array,
    center: Array,
    sites: Sites,
    margins: Margins,
) -> Copula | None:
    """Move the marginals of q towards its tilted marginals, as far as the prior lets each go.

    A correction of one component alone costs what (K⁻¹)_ii makes of it: where f is smooth it would
    make a draw impossible, and the marginals are nearly Gaussian anyway. So component i is
    corrected by the share 1 / (1 + (Σ_ii (K⁻¹)_ii / 3)²).

    Parameters
    ----------
    log_likelihoods : callable
        Rows of f (Q, n) -> ℓ_i(f_i), shape (Q, n).
    mean, center : ndarray, shape (n,)
        m and f̂.
    sites : Sites
    margins : Margins
        Σ_ii and (K⁻¹)_ii, or what is taken for them. Any positive numbers that depend on theta
        alone give an exact sampler.

    Returns
    -------
    Copula or None
        ``None`` if it would correct next to nothing.

    Notes
    -----
    37 evaluations of the likelihood, no O(n³) operation.
    """
    share = 1.0 / (1.0 + (margins.variances * margins.precisions / FREE) ** 2)
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
    """P(f_i < m_i + z_qi) under p(y_i | f_i) q(f_i) / t_i(f_i), by trapezoids; shapes (Q, n).

    At the first knot and at the last `TAIL` is left on either side.
    """
    Q, n = z.shape
    log_density, largest = np.empty((Q, n)), np.full(n, -np.inf)
    for q in range(Q):
        for i in range(n):
            x = z[q, i]
            value = log_likelihood[q, i] - x * (nu[i] - 0.5 * precision[i] * x)
            value -= 0.5 * KNOTS[q] ** 2
            if not value < np.inf:  # NaN and +inf far out
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
    """X at the knots: so much of the way to the quantiles, whose slope is `STEEPEST` at least.

    Beyond the knots it is 1 at most, the tail no lighter than that of q: f goes farther than the
    tilted marginals say, and no importance draw would ever come from where it is.
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
