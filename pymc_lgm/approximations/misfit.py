"""Misfit of sites: how far the next sweep of expectation propagation would move their q.

It is a sweep of `pymc_lgm.approximations.ep` with given marginal variances, since their computation
takes B⁻¹, an O(n³) operation. A few quadrature nodes suffice for sites that fit, since their tilted
marginals are nearly those of q.
"""

from __future__ import annotations

import math

import numba
import numpy as np

from pymc_lgm.approximations.gaussian import SiteLikelihood
from pymc_lgm.approximations.tilted import Marginals, tilted_moments
from pymc_lgm.compile.loops.elementary import exp
from pymc_lgm.gaussian import Posterior
from pymc_lgm.linalg import LOG_2PI, Array

__all__ = ["misfit"]

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(8)
LOG_WEIGHTS = np.log(WEIGHTS) - 0.5 * LOG_2PI


@np.errstate(divide="ignore", invalid="ignore", over="ignore")
def misfit(
    likelihood: SiteLikelihood,
    posterior: Posterior,
    dual: Array,
    z: Array,
    nu: Array,
    variances: Array,
    enough: float = 0.0,
) -> float:
    """Nats by which q would move in the next sweep of expectation propagation.

    Parameters
    ----------
    likelihood : SiteLikelihood
    posterior : Posterior
        The prior conditioned on W, a diagonal.
    dual, z, nu : ndarray, shape (n,)
        a, ẑ = f̂ − m and ν.
    variances : ndarray, shape (n,)
        Approximations of Σ_ii.
    enough : float
        Misfit in nats up to which the quadrature with few nodes is accepted.

    Returns
    -------
    float
        Infinite if a cavity variance is not positive, or if the likelihood is not finite.

    Notes
    -----
    O(n²), and 8 evaluations of the likelihood. If these give more than ``enough``, as happens for
    binary data with a large prior variance, the full quadrature of expectation propagation takes 32
    more. The misfit at a fixed point is 0 only if the variances are exact.
    """
    W = posterior.precision
    rows = posterior.prior.mean + z + NODES[:, None] * np.sqrt(variances)
    moments = _few(likelihood.sites(rows), W, z, nu, variances)
    away = _away(posterior, dual, z, nu, variances, *moments)
    if away <= enough or not (cavity := 1.0 - W * variances).min() > 0.0:
        return away
    marginals = Marginals(posterior.prior.mean, nu, W, z, variances, cavity)
    tilted = tilted_moments(likelihood, marginals)
    return _away(posterior, dual, z, nu, variances, tilted.z - z, tilted.variance / variances)


def _away(
    posterior: Posterior,
    dual: Array,
    z: Array,
    nu: Array,
    variances: Array,
    shift: Array,
    spread: Array,
) -> float:
    r, of_variances = _step(posterior.precision, dual, z, nu, variances, shift, spread)
    if not math.isfinite(of_variances):
        return math.inf
    away = 0.5 * (posterior.quad_form(r) + of_variances)
    return away if math.isfinite(away) else math.inf


@numba.njit(cache=True, error_model="numpy")
def _few(
    values: Array, precision: Array, z: Array, nu: Array, variances: Array
) -> tuple[Array, Array]:
    """Tilted means less ẑ, and tilted variances over Σ_ii, by quadrature weighted by q(f_i)."""
    Q, n = values.shape
    shift, spread, log_density = np.empty(n), np.empty(n), np.empty(Q)
    for i in range(n):
        sd, W, largest = math.sqrt(variances[i]), precision[i], -np.inf
        for k in range(Q):
            away = NODES[k] * sd
            log_density[k] = values[k, i] + LOG_WEIGHTS[k]
            log_density[k] -= away * (nu[i] - W * z[i] - 0.5 * W * away)
            largest = max(largest, log_density[k])
        mass = first = second = 0.0
        for k in range(Q):
            density = exp(log_density[k] - largest)
            mass += density
            first += density * NODES[k]
            second += density * NODES[k] ** 2
        first /= mass
        shift[i], spread[i] = sd * first, second / mass - first**2
    return shift, spread


@numba.njit(cache=True, error_model="numpy")
def _step(
    precision: Array,
    dual: Array,
    z: Array,
    nu: Array,
    variances: Array,
    shift: Array,
    spread: Array,
) -> tuple[Array, float]:
    """Change of a in the next sweep, and twice the KL divergence of the variances."""
    r, total = np.empty(z.size), 0.0
    for i in range(z.size):
        cavity = (1.0 - precision[i] * variances[i]) / variances[i]
        if not (spread[i] > 0.0 and cavity > 0.0):
            return r, np.inf
        asked = max(1.0 / (variances[i] * spread[i]) - cavity, 0.0)
        ratio = 1.0 / ((cavity + asked) * variances[i])
        # ν' − W' ẑ − a, where ν' = (cavity + W') × tilted mean − (ẑ / Σ_ii − ν).
        r[i] = shift[i] / (ratio * variances[i]) + nu[i] - precision[i] * z[i] - dual[i]
        total += ratio - 1.0 - math.log(ratio)
    return r, total
