"""Which hyper-parameters only multiply the covariance: K need not be factorized when they move."""

from __future__ import annotations

import math

import numpy as np

from pymc_lgm.linalg import Array
from pymc_lgm.priors.base import GaussianModel

__all__ = ["find_amplitudes"]

DISTANCES = (0.7, -15.0, 15.0)
"""Where `find_amplitudes` looks: as far as it takes a floor or a jitter to show beside K."""


def find_amplitudes(model: GaussianModel) -> Array:
    """Find the components of theta that do no more than multiply the covariance.

    Parameters
    ----------
    model : GaussianModel
        Its ``cov`` and ``enters_cov`` are used.

    Returns
    -------
    ndarray, shape (p,)
        k_j with K(theta + δ e_j) = exp(k_j δ) K(theta): 1 for log σ if K = σ C, 2 if K = σ² C, −1
        if K = C/σ. 0 where there is no multiple of ½ for which that holds to 12 digits, at three
        random theta and for small and large δ of both signs.

    Notes
    -----
    One evaluation of K for each component, and nine for each that passes the first.
    """
    k = np.full(model.enters_cov.size, math.nan)
    candidates = np.flatnonzero(model.enters_cov)
    for theta in np.random.default_rng(0).standard_normal((3, k.size)):
        K, found = _cov_or_nan(model, theta), np.zeros_like(k)
        for j in candidates:
            found[j] = _exponent(model, theta, K, int(j))
        k = np.where(np.isnan(k) | (found == k), found, 0.0)
        candidates = np.flatnonzero(k)
    return k


def _exponent(model: GaussianModel, theta: Array, K: Array, j: int) -> float:
    """k_j at one theta; 0 if theta_j does anything else to K."""
    k, scale = 0.0, np.sqrt(np.abs(K.diagonal()))
    for distance in DISTANCES:
        moved = _cov_or_nan(model, theta + distance * (np.arange(theta.size) == j))
        with np.errstate(all="ignore"):
            if k == 0.0:
                slope = float(np.log(moved.trace() / K.trace())) / distance
                k = round(2 * slope) / 2 if math.isfinite(slope) else 0.0
            error = np.abs(moved * math.exp(-k * distance) - K)
            if k == 0.0 or not (error <= 1e-12 * np.outer(scale, scale)).all():
                return 0.0
    return k


def _cov_or_nan(model: GaussianModel, theta: Array) -> Array:
    """K(theta); NaN where it cannot be computed, far from where any chain will be."""
    try:
        return model.cov(theta)
    except (ValueError, ArithmeticError):
        return np.full((1, 1), math.nan)
