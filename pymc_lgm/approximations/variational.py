"""The Gaussian q(f) that minimizes KL(q ‖ posterior).

Opper and Archambeau (2009), *The variational Gaussian approximation revisited*, Neural Computation
21, show that its precision is K⁻¹ + W with a diagonal W; the sites follow natural gradients, as in
Khan and Lin (2017), *Conjugate-computation variational inference*, AISTATS. It serves likelihoods
that are not log-concave, for example with Student errors. For these, moment matching need not have
a solution, and the curvature at a mode is a poor measure of the posterior's width.
"""

from __future__ import annotations

import math

from collections.abc import Callable

import numpy as np

from pymc_lgm.approximations.gaussian import (
    GaussianApproximation,
    SiteLikelihood,
)
from pymc_lgm.approximations.site_search import Sweep, mismatch, site_search
from pymc_lgm.approximations.sites import Sites
from pymc_lgm.approximations.tilted import NODES
from pymc_lgm.approximations.variational_sets import points_of_sets, sweep_of_sets
from pymc_lgm.gaussian import Posterior, Prior
from pymc_lgm.gaussian.sites import SiteBlocks
from pymc_lgm.linalg import Array

__all__ = ["evidence_gradient", "variational"]

_, WEIGHTS = np.polynomial.hermite_e.hermegauss(NODES.size)
SHARES = WEIGHTS / WEIGHTS.sum()
"""Weights of the nodes x_k of a standard normal: E g(x) = Σ_k w_k g(x_k)."""

LEAST = 0.01
"""Smallest W_i K_ii. It keeps log W_i finite for a site without curvature."""


def variational(
    likelihood: SiteLikelihood,
    prior: Prior,
    *,
    start: Sites | None = None,
    tolerance: float = 1e-2,
    max_iterations: int = 50,
    differentiable: bool = False,
) -> GaussianApproximation | None:
    """Approximate p(f | y, theta) by the Gaussian of largest evidence lower bound.

    The bound and the sites that maximize it are

        E_q ℓ(f) − KL(q ‖ N(m, K)),   q(f) ∝ N(f; m, K) ∏ exp(ν_i z_i − ½ W_i z_i²),  z = f − m,
        W_i = −E_q ∂²ℓ_i/∂f_i²,   ν_i = E_q ∂ℓ_i/∂f_i + W_i ẑ_i.

    A sweep is a natural gradient step of length 1 for all sites. If it does not increase the bound,
    the step is halved. The bound has a maximum for every likelihood, so the search converges also
    where `ep` has no fixed point.

    Parameters
    ----------
    likelihood, prior, start, tolerance, max_iterations, differentiable
        As in `ep`.

    Returns
    -------
    GaussianApproximation or None
        With W_i K_ii ≥ 0.01, also if the expected curvature is negative. Its ``log_evidence`` is
        the bound. ``None`` if the search meets values that are not finite, except for ℓ_i = −∞ at
        the outer nodes.

    Notes
    -----
    Two O(n³) operations and 32 evaluations of the likelihood per sweep, as in `ep`. Integration by
    parts reduces both expectations to values of ℓ_i. If an observation reads several f_i, the sites
    have a block for each set, and a sweep takes 50 to 300 evaluations: see `variational_sets`.
    """
    return site_search(
        _sweep if likelihood.sets is None else sweep_of_sets,
        likelihood,
        prior,
        start=start,
        tolerance=tolerance,
        max_iterations=max_iterations,
        differentiable=differentiable,
    )


@np.errstate(divide="ignore", invalid="ignore", over="ignore")
def _sweep(likelihood: SiteLikelihood, nu: Array, posterior: Posterior) -> Sweep | None:
    """Compute q with these sites, its bound, and the sites of a natural gradient step."""
    prior, precision = posterior.prior, posterior.precision
    dual, z = posterior.center(nu)
    shares, variance = posterior.one_minus_leverage, posterior.variances
    scale = np.sqrt(variance)
    values = _floored(likelihood.sites(prior.mean + z + NODES[:, None] * scale))
    # E ∂ℓ/∂f = E x ℓ / s and E ∂²ℓ/∂f² = E (x² − 1) ℓ / s² with f = f̂ + s x, by parts.
    slope = (SHARES * NODES) @ values / scale
    curvature = -(SHARES * (NODES**2 - 1.0)) @ values / variance
    least = np.where(values.any(axis=0), LEAST / prior.variances, 0.0)  # 0 if nothing reads f_i
    asked_precision = np.maximum(curvature, least)
    asked = Sites(slope + asked_precision * z, asked_precision)
    away = mismatch(posterior, slope - dual, 1.0 / (shares + asked_precision * variance))
    # KL = ½ (tr K⁻¹Σ − n + ẑᵀ K⁻¹ ẑ + log|B|), and tr K⁻¹Σ = tr B⁻¹.
    divergence = 0.5 * (float(shares.sum() - shares.size + z @ dual) + posterior.log_determinant)
    bound = float((SHARES @ values).sum()) - divergence
    if not (math.isfinite(away) and math.isfinite(bound)):
        return None
    return Sweep(Sites(nu, precision), posterior, dual, z, bound, away, asked, -bound)


def _floored(values: Array) -> Array:
    """Replace −inf at the outer nodes of an element by its smallest finite value.

    PyMC's log probability that a time is censored is −inf where the probability underflows. The
    expectation is then −inf for every q, and no search could begin. Importance weights still use ℓ
    as it is.
    """
    if not (values == -math.inf).any():
        return values
    least = np.where(np.isfinite(values), values, math.inf).min(axis=0)
    return np.where((values == -math.inf) & (least < math.inf), least, values)


def evidence_gradient(
    q: GaussianApproximation, *, likelihood_gradient: Callable[[Array, Array], Array] | None
) -> Array | None:
    """Gradient in theta of the bound of a q of `variational`.

    It is ⟨½ (a aᵀ − R), dK⟩ + aᵀ dm + E_q dℓ with a = K⁻¹(f̂ − m) and R = (K + W⁻¹)⁻¹ = K⁻¹ − K⁻¹
    Σ K⁻¹. These are the partial derivatives of the bound at fixed q, since it is stationary in q at
    its maximum.

    Parameters
    ----------
    q : GaussianApproximation
    likelihood_gradient : callable or None
        (rows of f, w) -> ∂/∂theta of Σ_k w_k ℓ(f_k) at fixed rows, shape (p,). ``None`` if ℓ does
        not depend on theta.

    Returns
    -------
    ndarray, shape (p,), or None
        ``None`` if it is not finite.

    Notes
    -----
    One O(n³) operation, the inverse of B, or none if the search was ``differentiable``. The
    gradient of the likelihood at as many rows as the search has nodes.
    """
    gradient = q.posterior.evidence_gradient(q.dual)
    if likelihood_gradient is not None:
        if isinstance(q.precision, SiteBlocks):
            points = points_of_sets(q)
        else:
            points = q.center + NODES[:, None] * np.sqrt(q.posterior.variances), SHARES
        if points is None:
            return None
        # ℓ is a sum over f_i or over sets of them, so all can be at their k-th node at once.
        gradient = gradient + likelihood_gradient(*points)
    return gradient if np.isfinite(gradient).all() else None
