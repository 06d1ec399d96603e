"""A Gaussian approximation from sites that are known beforehand: no search.

Near the posterior the sites of expectation propagation hardly depend on theta. Those that tuning
has found, put on a line in theta, give a q as good as a search would, for one O(n³) operation; and
any q that is a function of theta alone is exact in a pseudo-marginal sampler.
"""

from __future__ import annotations

import math

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pymc_lgm.approximations.gaussian import GaussianApproximation, Sites
from pymc_lgm.approximations.laplace import Likelihood, laplace
from pymc_lgm.linalg import Array, Covariance

__all__ = ["SitesLine", "SitesTuning", "laplace_from_sites", "recall"]

REACH = 3.0
"""How far a line is followed, in standard deviations of the thetas it was fitted to, times √p."""

LEAST = 1e-8
"""Precision of a site that says nothing: it needs a logarithm."""


def recall(
    likelihood: Likelihood, mean: Array, covariance: Covariance, *, start: Sites
) -> GaussianApproximation | None:
    """Combine the prior at theta with given sites: q(f) = N(f̂, (K⁻¹ + W)⁻¹), f̂ = m + Σ ν.

    Parameters
    ----------
    likelihood : callable
        f -> (ℓ, g, W, third derivative).
    mean : ndarray, shape (n,)
    covariance : Covariance
    start : Sites
        ν and W.

    Returns
    -------
    GaussianApproximation or None
        Its ``log_evidence`` is ℓ(f̂) − ½ ẑᵀa − ½ log|B|, as if f̂ were the mode. ``None`` where
        that is not a number.

    Notes
    -----
    One O(n³) operation: the factor of B.
    """
    B = covariance.condition(start.precision)
    if B is None:
        return None
    root = np.sqrt(start.precision)
    # a = (I + W K)⁻¹ ν
    dual = start.nu - root * B.inverse_times(root * covariance.covariance_times(start.nu))
    z = covariance.covariance_times(dual)
    log_evidence = likelihood(mean + z)[0] - 0.5 * float(z @ dual) - 0.5 * B.log_determinant
    if not math.isfinite(log_evidence):
        return None
    return GaussianApproximation(
        mean=mean,
        covariance=covariance,
        dual=dual,
        center=mean + z,
        precision=start.precision,
        B=B,
        log_evidence=log_evidence,
        iterations=1,
        converged=True,
    )


def laplace_from_sites(
    likelihood: Likelihood,
    mean: Array,
    covariance: Covariance,
    *,
    start: Sites | None = None,
    tolerance: float = 1e-3,
    at_mode: bool = True,
) -> GaussianApproximation | None:
    """Find the Laplace approximation from sites, with the W and B of the mode itself.

    Laplace's evidence needs log|B| of the mode: with a W from the way there it is off by nats, and
    q is as good. So the search ends with another, from where it was, unless only q is wanted.

    Parameters
    ----------
    likelihood, mean, covariance, tolerance
        As in `laplace`.
    start : Sites, optional
        The search begins at the center of the q that they make.
    at_mode : bool
        Whether W and B must be those of the mode.

    Returns
    -------
    GaussianApproximation or None

    Notes
    -----
    Three O(n³) operations from good sites, two without ``at_mode``.
    """
    before = None if start is None else recall(likelihood, mean, covariance, start=start)
    center = None if before is None else before.center
    near = laplace(likelihood, mean, covariance, start=center, tolerance=tolerance)
    if near is None or not at_mode:
        return near
    return laplace(likelihood, mean, covariance, start=near.center, tolerance=tolerance)


@dataclass(frozen=True, eq=False)
class SitesLine:
    """Sites as a function of theta: ν and log W on a line through (c, s), followed so far.

    Attributes
    ----------
    value, slope : ndarray, shape (2 n,), (2 n, p)
        s = (ν, log W) at c, and its slope.
    theta : ndarray, shape (p,)
        c.
    whiten : ndarray, shape (p, p)
        Inverse of a Cholesky factor of the covariance of the thetas it was fitted to.
    """

    value: Array
    slope: Array
    theta: Array
    whiten: Array

    def __call__(self, theta: Array) -> Sites:
        """ν and W at theta; O(n p)."""
        away = theta - self.theta
        distance = math.sqrt(float(np.square(self.whiten @ away).sum()))
        reach = REACH * math.sqrt(max(away.size, 1))
        there = self.value + self.slope @ (away * min(1.0, reach / max(distance, reach)))
        n = there.size // 2
        return Sites(there[:n], np.exp(there[n:]))


class SitesTuning(NamedTuple):
    """Least squares of s = (ν, log W) on theta.

    Attributes
    ----------
    moments, products : ndarray, shape (1 + p, 1 + p), (2 n, 1 + p)
        Σ x xᵀ and Σ s xᵀ with x = (1, theta).
    """

    moments: Array
    products: Array

    @classmethod
    def start(cls, n: int, p: int) -> SitesTuning:
        """Know nothing."""
        return cls(np.zeros((1 + p, 1 + p)), np.zeros((2 * n, 1 + p)))

    @property
    def thetas(self) -> int:
        """How many thetas it has seen."""
        return int(self.moments[0, 0])

    def update(self, theta: Array, sites: Sites) -> SitesTuning:
        """Learn the sites of one theta; O(n p)."""
        x = np.concatenate([[1.0], theta])
        s = np.concatenate([sites.nu, np.log(np.maximum(sites.precision, LEAST))])
        return SitesTuning(self.moments + np.outer(x, x), self.products + np.outer(s, x))

    def line(self) -> SitesLine:
        """Fit the line. A ridge holds it level where theta has hardly moved."""
        count = self.thetas
        theta, value = self.moments[0, 1:] / count, self.products[:, 0] / count
        cov = self.moments[1:, 1:] / count - np.outer(theta, theta)
        cov[np.diag_indices_from(cov)] += 1e-3 + 0.01 * np.trace(cov) / max(theta.size, 1)
        whiten = np.linalg.inv(np.linalg.cholesky(cov))
        slope = (self.products[:, 1:] / count - np.outer(value, theta)) @ whiten.T @ whiten
        return SitesLine(value, slope, theta, whiten)
