"""How far sites are from those that their own q asks for: a test of q that makes no search.

A sweep of `pymc_lgm.approximations.ep` at marginal variances that are known beforehand: to compute
them takes B⁻¹, an O(n³) operation. Few nodes are enough, since sites that fit have tilted marginals
that are nearly those of q.
"""

from __future__ import annotations

import math

import numba
import numpy as np

from pymc_lgm.approximations.gaussian import SiteLikelihood
from pymc_lgm.elementary import exp
from pymc_lgm.linalg import LOG_2PI, Array
from pymc_lgm.priors import Posterior

__all__ = ["misfit"]

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(8)
LOG_WEIGHTS = np.log(WEIGHTS) - 0.5 * LOG_2PI


def misfit(
    likelihood: SiteLikelihood,
    posterior: Posterior,
    dual: Array,
    z: Array,
    nu: Array,
    variances: Array,
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
        What is taken for Σ_ii.

    Returns
    -------
    float
        Infinite where no cavity has such a variance, or where the likelihood is not finite.

    Notes
    -----
    O(n²), and 8 evaluations of the likelihood. It is 0 at a fixed point only where the variances
    are right, too.
    """
    center = posterior.prior.mean + z
    values = likelihood.sites(center + NODES[:, None] * np.sqrt(variances))
    r, of_variances = _step(values, posterior.precision, dual, z, nu, variances)
    away = 0.5 * (posterior.spread(r) + of_variances) if math.isfinite(of_variances) else math.inf
    return away if math.isfinite(away) else math.inf


@numba.njit(cache=True, error_model="numpy")
def _step(
    values: Array, precision: Array, dual: Array, z: Array, nu: Array, variances: Array
) -> tuple[Array, float]:
    """How a would go to the sites that are asked for, and twice the KL of the variances."""
    Q, n = values.shape
    r, total = np.empty(n), 0.0
    log_density = np.empty(Q)
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
        spread = second / mass - first**2
        cavity = (1.0 - W * variances[i]) / variances[i]
        asked = max(1.0 / (variances[i] * spread) - cavity, 0.0)
        ratio = 1.0 / ((cavity + asked) * variances[i])
        if not (cavity > 0.0 and ratio > 0.0):
            return r, np.inf
        # ν' − W' ẑ − a, where ν' = (cavity + W') × tilted mean − (ẑ / Σ_ii − ν).
        r[i] = sd * first / (ratio * variances[i]) + nu[i] - W * z[i] - dual[i]
        total += ratio - 1.0 - math.log(ratio)
    return r, total
