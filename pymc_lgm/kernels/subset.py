"""Mode and Hessian of p(theta | a subset of the data) for multivariate normal y."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from numpy.typing import NDArray
from scipy.optimize import minimize

from pymc_lgm.linalg import Array, factorize
from pymc_lgm.state import AtTheta

__all__ = ["SubsetMode", "of_subset"]

STEP = 1e-3
"""Step of the differences of gradients, in units of theta."""


@dataclass(frozen=True, eq=False)
class SubsetMode:
    """Mode and inverse negative Hessian, M, of the posterior given a subset of the data.

    Attributes
    ----------
    mode : ndarray, shape (p,)
        The theta that maximizes p(theta | y_S).
    covariance : ndarray, shape (p, p)
        The inverse of the negative Hessian of the log posterior at the mode. Eigenvalues that are
        not positive are replaced by 1.
    """

    mode: Array
    covariance: Array


def of_subset(at: AtTheta, y: Array, size: int) -> SubsetMode:
    """Compute M from ``size`` rows of the data, evenly spaced in a fixed permutation of them.

    The search begins at the theta of ``at``. An evaluation costs O(size³ + n²).
    """
    n = y.size
    rows = np.sort(np.random.default_rng(0).permutation(n)[: min(size, n)])
    mode = _mode(at, y, rows)
    p = mode.size
    slopes = []
    for step in STEP * np.eye(p):
        ends = [_density(at, mode + sign * step, y, rows) for sign in (1.0, -1.0)]
        slopes.append((ends[0][1] - ends[1][1]) / (2.0 * STEP))
    H = -np.array(slopes)
    values, vectors = np.linalg.eigh(0.5 * (H + H.T))
    values = np.where(values > 0.0, values, 1.0)
    return SubsetMode(mode, (vectors / values) @ vectors.T)


def _mode(at: AtTheta, y: Array, rows: NDArray[np.intp]) -> Array:
    worst, _ = _density(at, at.theta, y, rows)

    def negative(theta: Array) -> tuple[float, Array]:
        value, gradient = _density(at, theta, y, rows)
        if not (np.isfinite(value) and np.isfinite(gradient).all()):
            # Worse than the start, but not so bad that the line search stops early.
            return max(1e3, abs(worst)) - worst, np.zeros_like(theta)
        return -value, -gradient

    found = minimize(negative, at.theta, jac=True, method="L-BFGS-B", options={"maxiter": 100})
    mode: Array = found.x
    return mode


def _density(at: AtTheta, theta: Array, y: Array, rows: NDArray[np.intp]) -> tuple[float, Array]:
    """log N(y_S; m_S, K_SS) + log p(theta) and its gradient; NaN if either does not exist."""
    nothing = np.nan, np.full(theta.size, np.nan)
    model = at.model
    log_prior = model.log_prior(theta)
    if not np.isfinite(log_prior):
        return nothing
    K = model.cov(theta)[np.ix_(rows, rows)]
    factor = factorize(K)
    if factor is None:
        return nothing
    z = (y - model.mean(theta))[rows]
    a = factor.inverse_times(z)
    M = np.zeros((y.size, y.size))
    M[np.ix_(rows, rows)] = 0.5 * (np.outer(a, a) - factor.inverse())
    v = np.zeros(y.size)
    v[rows] = a
    gradient = model.cov_vjp(theta, M) + model.mean_vjp(theta, v)
    return factor.log_density(z) + log_prior, gradient + model.log_prior_gradient(theta)
