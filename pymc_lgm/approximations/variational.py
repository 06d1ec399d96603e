"""The Gaussian q(f) that is nearest to the posterior in Kullback-Leibler divergence from q.

Opper and Archambeau (2009), *The variational Gaussian approximation revisited*, Neural Computation
21, show that its precision is K⁻¹ + W with a diagonal W; the sites follow natural gradients, as in
Khan and Lin (2017), *Conjugate-computation variational inference*, AISTATS. Where a likelihood is
not log-concave, as one with Student errors, it is what is left: moments that match need not exist,
and the curvature at a mode says little of the posterior's width.
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
from pymc_lgm.approximations.tilted import NODES, WEIGHTS
from pymc_lgm.approximations.variational_sets import points_of_sets, sweep_of_sets
from pymc_lgm.gaussian import Posterior, Prior
from pymc_lgm.gaussian.sites import SiteBlocks
from pymc_lgm.linalg import Array

__all__ = ["evidence_gradient", "variational"]

SHARES = WEIGHTS / WEIGHTS.sum()
"""Weights of the nodes x_k of a standard normal: E g(x) = Σ_k w_k g(x_k)."""

LEAST = 0.01
"""Least W_i K_ii: a site without curvature stays next to flat, and its logarithm a number."""


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

    A sweep moves all sites to what q asks for, a natural gradient step of length 1; where that
    does not raise the bound it goes half as far. The bound has a maximum for every likelihood, so
    the search ends where `ep` would not.

    Parameters
    ----------
    likelihood, prior, start, tolerance, max_iterations, differentiable
        As in `ep`.

    Returns
    -------
    GaussianApproximation or None
        With W_i K_ii ≥ 0.01, also where the expected curvature is negative. Its ``log_evidence`` is
        the bound. ``None`` if the search meets values that are not finite.

    Notes
    -----
    Two O(n³) operations a sweep, as one of `ep`, and the likelihood 32 times: both expectations are
    those of ℓ_i alone, by parts. Where an observation reads several f_i, the sites have a block for
    each set of them, and the likelihood is evaluated 50 to 300 times: see `variational_sets`.
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
    """Find q with these sites, its bound, and the sites of a natural gradient step."""
    prior, precision = posterior.prior, posterior.precision
    dual, z = posterior.center(nu)
    shares, variance = posterior.shares, posterior.variances
    scale = np.sqrt(variance)
    values = likelihood.sites(prior.mean + z + NODES[:, None] * scale)
    # E ∂ℓ/∂f = E x ℓ / s and E ∂²ℓ/∂f² = E (x² − 1) ℓ / s² with f = f̂ + s x, by parts.
    slope = (SHARES * NODES) @ values / scale
    curvature = -(SHARES * (NODES**2 - 1.0)) @ values / variance
    least = np.where(values.any(axis=0), LEAST / prior.variances, 0.0)  # 0 of what nothing reads
    asked_precision = np.maximum(curvature, least)
    asked = Sites(slope + asked_precision * z, asked_precision)
    away = mismatch(posterior, slope - dual, 1.0 / (shares + asked_precision * variance))
    # KL: ½ (tr K⁻¹Σ − n + ẑᵀ K⁻¹ ẑ + log|B|), and K⁻¹Σ has the trace of B⁻¹.
    divergence = 0.5 * (float(shares.sum() - shares.size + z @ dual) + posterior.log_determinant)
    bound = float((SHARES @ values).sum()) - divergence
    if not (math.isfinite(away) and math.isfinite(bound)):
        return None
    return Sweep(Sites(nu, precision), posterior, dual, z, bound, away, asked, -bound)


def evidence_gradient(
    q: GaussianApproximation, *, likelihood_gradient: Callable[[Array, Array], Array] | None
) -> Array | None:
    """Gradient in theta of the bound of a q of `variational`.

    ⟨½ (a aᵀ − R), dK⟩ + aᵀ dm + E_q dℓ with a = K⁻¹(f̂ − m) and R = (K + W⁻¹)⁻¹ = K⁻¹ − K⁻¹ Σ K⁻¹:
    the bound's own dependence on theta, since at its maximum it does not change with q.

    Parameters
    ----------
    q : GaussianApproximation
    likelihood_gradient : callable or None
        (rows of f, w) -> ∂/∂theta of Σ_k w_k ℓ(f_k) at fixed rows, shape (p,). ``None``: theta is
        not in ℓ.

    Returns
    -------
    ndarray, shape (p,), or None
        ``None`` where it is not a number.

    Notes
    -----
    One O(n³) operation, the inverse of B, none if the search was ``differentiable``; and the
    likelihood's gradient at as many rows as the search has nodes.
    """
    gradient = q.posterior.evidence_gradient(q.dual)
    if likelihood_gradient is not None:
        if isinstance(q.precision, SiteBlocks):
            points = points_of_sets(q)
        else:
            points = q.center + NODES[:, None] * np.sqrt(q.posterior.variances), SHARES
        if points is None:
            return None
        # ℓ is a sum over the f_i, or sets of them, so all can be at their k-th node at once.
        gradient = gradient + likelihood_gradient(*points)
    return gradient if np.isfinite(gradient).all() else None
