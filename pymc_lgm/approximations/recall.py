"""A Gaussian approximation from sites that are known beforehand: no search.

Near the posterior the sites of expectation propagation hardly depend on theta. Those that tuning
has found, put on a line in theta, give a q as good as a search would, for one O(n³) operation; and
any q that is a function of theta alone is exact in a pseudo-marginal sampler. Far from where tuning
has been there is a search after all: a q that fails in the tails of theta keeps chains out of them.
"""

from __future__ import annotations

import math

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from pymc_lgm.approximations.copula import tilted_copula
from pymc_lgm.approximations.ep import SiteLikelihood, ep
from pymc_lgm.approximations.gaussian import GaussianApproximation, Sites, plausible
from pymc_lgm.approximations.laplace import laplace
from pymc_lgm.linalg import Array, CholeskyFactor, Covariance

__all__ = [
    "SitesLine",
    "SitesTuning",
    "laplace_from_sites",
    "recall",
    "sites_gradient",
    "with_copula",
]

REACH = 3.0
"""How far a line is followed, in standard deviations of the thetas it was fitted to, times √p."""

NEAR = 1.5
"""How far sites with a copula are taken from the line, in the same unit; beyond, it is a start."""

LEAST = 1e-8
"""Precision of a site that says nothing: it needs a logarithm."""

FLAT = 1e-3
"""c of ν / √(W + c): much wider sites hardly change with theta, and ν itself is on the line."""


def recall(
    likelihood: SiteLikelihood, mean: Array, covariance: Covariance, *, start: Sites
) -> GaussianApproximation | None:
    """Combine the prior at theta with given sites: q(f) = N(f̂, (K⁻¹ + W)⁻¹), f̂ = m + Σ ν.

    Parameters
    ----------
    likelihood : SiteLikelihood
        f -> (ℓ, g, W, third derivative); ``likelihood.sites``: rows of f (Q, n) -> ℓ_i.
    mean : ndarray, shape (n,)
    covariance : Covariance
    start : Sites
        ν and W; with Σ_ii and (K⁻¹)_ii, q gets a copula. Where they are ``far``, too, expectation
        propagation starts from them.

    Returns
    -------
    GaussianApproximation or None
        Its ``log_evidence`` is ℓ(f̂) − ½ ẑᵀa − ½ log|B|, as if f̂ were the mode. Where f̂ is not
        `plausible`, q is Laplace's, searched for from m: theta may be fine, and only the sites are
        those of another. ``None`` where that search leaves the numbers.

    Notes
    -----
    One O(n³) operation: the factor of B. Far out as many as `ep`, and two; where f̂ is not
    plausible those of `laplace` besides.
    """
    if start.far and start.stiffness is not None:
        found = ep(likelihood, mean, covariance, start=start, tolerance=0.05)
        if found is not None and found.converged:
            sites = found.sites._replace(stiffness=covariance.inverse_diagonal())
            return with_copula(found, likelihood, sites)
    combined = _combine(covariance, start)
    if combined is None:
        return laplace(likelihood, mean, covariance)
    B, dual, z = combined
    center = mean + z
    objective = likelihood(center)[0] - 0.5 * float(z @ dual)
    if not plausible(objective, likelihood(mean)[0], mean.size):
        return laplace(likelihood, mean, covariance)
    q = GaussianApproximation(
        mean=mean,
        covariance=covariance,
        dual=dual,
        center=center,
        precision=start.precision,
        B=B,
        log_evidence=objective - 0.5 * B.log_determinant,
        iterations=1,
        converged=True,
    )
    return q if start.stiffness is None else with_copula(q, likelihood, start)


def sites_gradient(
    mean: Array,
    covariance: Covariance,
    sites: Sites,
    *,
    cov_vjp: Callable[[Array], Array],
    mean_vjp: Callable[[Array], Array],
    likelihood_gradient: Callable[[Array], Array],
) -> Array | None:
    """Gradient in theta of log ∫ N(f; m, K) ∏ t_i(f_i) df at fixed sites, and of ℓ at its center.

    ⟨½ (a aᵀ − R), dK⟩ + aᵀ dm with a = K⁻¹(f̂ − m) and R = W^½ B⁻¹ W^½. Where sites have the
    moments of expectation propagation it is the gradient of the evidence, since that does not
    change with them (Rasmussen and Williams 2006, eq. (5.27)); but for a theta of the likelihood,
    whose derivative is taken at f̂.

    Parameters
    ----------
    mean : ndarray, shape (n,)
    covariance : Covariance
    sites : Sites
    cov_vjp, mean_vjp : callable
        M (n, n) -> ⟨∂K/∂theta_j, M⟩, and v (n,) -> ⟨∂m/∂theta_j, v⟩: shape (p,).
    likelihood_gradient : callable
        f -> ∂ℓ/∂theta at fixed f, shape (p,).

    Returns
    -------
    ndarray, shape (p,), or None
        ``None`` where it is not a number.

    Notes
    -----
    Two O(n³) operations, B and its inverse.
    """
    combined = _combine(covariance, sites)
    if combined is None:
        return None
    B, dual, z = combined
    root = np.sqrt(sites.precision)
    M = B.inverse()
    M *= -0.5 * root[:, None] * root
    M += np.outer(0.5 * dual, dual)
    gradient = cov_vjp(M) + mean_vjp(dual) + likelihood_gradient(mean + z)
    return gradient if np.isfinite(gradient).all() else None


def _combine(covariance: Covariance, sites: Sites) -> tuple[CholeskyFactor, Array, Array] | None:
    """B, a = (I + W K)⁻¹ ν and ẑ = K a."""
    B = covariance.condition(sites.precision)
    if B is None:
        return None
    dual = covariance.dual(B, sites.precision, sites.nu)
    return B, dual, covariance.covariance_times(dual)


def with_copula(
    q: GaussianApproximation, likelihood: SiteLikelihood, sites: Sites
) -> GaussianApproximation:
    """Give q the copula of its tilted marginals; 37 evaluations of the likelihood."""
    return replace(q, copula=tilted_copula(likelihood.sites, q.mean, q.center, sites))


def laplace_from_sites(
    likelihood: SiteLikelihood,
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
    combined = None if start is None else _combine(covariance, start)
    center = None if combined is None else mean + combined[2]
    near = laplace(likelihood, mean, covariance, start=center, tolerance=tolerance)
    if near is None or not at_mode:
        return near
    return laplace(likelihood, mean, covariance, start=near.center, tolerance=tolerance)


@dataclass(frozen=True, eq=False)
class SitesLine:
    """Sites as a function of theta, on a line through (c, s), followed as far as seen.

    On the line are ν / √W and logarithms, which change least: a datum that only cuts f_i off has a
    site whose width is that of the prior, and whose ν / √W does not depend on it.

    Attributes
    ----------
    value, slope : ndarray, shape (b n,), (b n, p)
        s = (ν / √(W + c), log W) at c, and its slope; for a copula with log Σ_ii and log (K⁻¹)_ii.
    lowest, highest : ndarray, shape (b n,)
        Of each element of s.
    theta : ndarray, shape (p,)
        c.
    whiten : ndarray, shape (p, p)
        Inverse of a Cholesky factor of the covariance of the thetas it was fitted to.
    """

    value: Array
    slope: Array
    lowest: Array
    highest: Array
    theta: Array
    whiten: Array
    blocks: int = 2

    def __call__(self, theta: Array) -> Sites:
        """Sites at theta; O(n p)."""
        away = theta - self.theta
        distance = math.sqrt(float(np.square(self.whiten @ away).sum()))
        unit = math.sqrt(max(away.size, 1))
        reach = REACH * unit
        there = self.value + self.slope @ (away * min(1.0, reach / max(distance, reach)))
        ratio, *logarithms = np.split(np.clip(there, self.lowest, self.highest), self.blocks)
        precision, *others = np.exp(logarithms)
        sites = Sites(ratio * np.sqrt(precision + FLAT), precision, *others)
        return sites._replace(far=distance > NEAR * unit)


class SitesTuning(NamedTuple):
    """Least squares of s = (ν / √(W + c), log W), or with what a copula needs, on theta.

    Attributes
    ----------
    moments, products : ndarray, shape (1 + p, 1 + p), (b n, 1 + p)
        Σ x xᵀ and Σ s xᵀ with x = (1, theta).
    lowest, highest : ndarray, shape (b n,)
        Of each element of s.
    blocks : int
        b: 2, or 4 for a copula.
    """

    moments: Array
    products: Array
    lowest: Array
    highest: Array
    blocks: int = 2

    @classmethod
    def start(cls, n: int, p: int, blocks: int = 2) -> SitesTuning:
        """Know nothing."""
        products = np.zeros((blocks * n, 1 + p))
        high = np.full(blocks * n, np.inf)
        return cls(np.zeros((1 + p, 1 + p)), products, high, -high, blocks)

    @property
    def thetas(self) -> int:
        """How many thetas it has seen."""
        return int(self.moments[0, 0])

    def update(self, theta: Array, sites: Sites) -> SitesTuning:
        """Learn the sites of one theta; O(n p)."""
        x = np.concatenate([[1.0], theta])
        positive = [part for part in sites[1 : self.blocks] if part is not None]
        logarithms = [np.log(np.maximum(part, LEAST)) for part in positive]
        ratio = sites.nu / np.sqrt(np.exp(logarithms[0]) + FLAT)
        s = np.concatenate([ratio, *logarithms])
        return SitesTuning(
            self.moments + np.outer(x, x),
            self.products + np.outer(s, x),
            np.minimum(self.lowest, s),
            np.maximum(self.highest, s),
            self.blocks,
        )

    def line(self) -> SitesLine:
        """Fit the line. A ridge holds it level where theta has hardly moved."""
        count = self.thetas
        theta, value = self.moments[0, 1:] / count, self.products[:, 0] / count
        cov = self.moments[1:, 1:] / count - np.outer(theta, theta)
        cov[np.diag_indices_from(cov)] += 1e-3 + 0.01 * np.trace(cov) / max(theta.size, 1)
        whiten = np.linalg.inv(np.linalg.cholesky(cov))
        slope = (self.products[:, 1:] / count - np.outer(value, theta)) @ whiten.T @ whiten
        return SitesLine(value, slope, self.lowest, self.highest, theta, whiten, self.blocks)
