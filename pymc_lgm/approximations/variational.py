"""The Gaussian q(f) that minimizes KL(q ‖ posterior).

Opper and Archambeau (2009), *The variational Gaussian approximation revisited*, Neural Computation
21, show that its precision is K⁻¹ + W with a diagonal W; the sites follow natural gradients, as in
Khan and Lin (2017), *Conjugate-computation variational inference*, AISTATS. This q is for
likelihoods that are not log-concave, for example with Student errors. For these, moment matching
need not have a solution, and the curvature at a mode is a poor measure of the posterior's width.
"""

from __future__ import annotations

import math

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from pymc_lgm.approximations.gaussian import (
    GaussianApproximation,
    SiteLikelihood,
)
from pymc_lgm.approximations.quadrature import at_nodes, nodes_of_sets, normal_rule
from pymc_lgm.approximations.site_search import Sweep, mismatch, site_search
from pymc_lgm.approximations.sites import Sites
from pymc_lgm.gaussian import Posterior, Prior
from pymc_lgm.gaussian.sites import SiteBlocks, cholesky_factors, congruent, eigenvalues, scattered
from pymc_lgm.linalg import Array

__all__ = ["evidence_gradient", "floored", "variational"]

NODES, WEIGHTS = normal_rule(32)
"""As many nodes as `ep` has."""

LEAST = 0.01
"""Smallest W_i K_ii if W_i must be positive. It keeps log W_i, which a linear model in theta
predicts, finite for a site without curvature. Such a site reduces the variance of f_i by at most a
hundredth. The value has not been tuned."""

NARROWEST = 1e-3
"""Smallest ratio of the precisions of f_i after and before a step, in the distance of the two q. A
proposed negative site may make the precision negative. This bound keeps its logarithm finite; the
search then takes a shorter step."""


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
    the step is halved. The bound is never more than log p(y | theta), so the search converges also
    where `ep` has no fixed point.

    Parameters
    ----------
    likelihood, prior, start, tolerance, max_iterations, differentiable
        As in `ep`.

    Returns
    -------
    GaussianApproximation or None
        W_i is negative if E_q ∂²ℓ_i/∂f_i² is positive and the prior allows negative sites; if it
        does not, W_i K_ii ≥ 0.01. ``log_evidence`` is the bound. ``None`` if the search meets
        values that are not finite, except for ℓ_i = −∞ at the outer nodes.

    Notes
    -----
    Two O(n³) operations and 32 evaluations of the likelihood per sweep, as in `ep`. Integration by
    parts reduces both expectations to values of ℓ_i. If an observation reads several f_i, the sites
    have a block for each set. A sweep then takes an evaluation for each node of `nodes_of_sets`: 19
    to 256 for sets of up to ten.
    """
    return site_search(
        _sweep if likelihood.sets is None else _sweep_of_sets,
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
    alpha, z = posterior.center(nu)
    one_minus_leverage, variance = posterior.one_minus_leverage, posterior.variances
    scale = np.sqrt(variance)
    values = floored(likelihood.sites(prior.mean + z + NODES[:, None] * scale))
    # E ∂ℓ/∂f = E x ℓ / s and E ∂²ℓ/∂f² = E (x² − 1) ℓ / s² with f = f̂ + s x, by parts.
    slope = (WEIGHTS * NODES) @ values / scale
    curvature = -(WEIGHTS * (NODES**2 - 1.0)) @ values / variance
    asked_precision = curvature
    if not prior.allows_negative_sites:
        least = np.where(values.any(axis=0), LEAST / prior.variances, 0.0)  # 0 if nothing reads f_i
        asked_precision = np.maximum(curvature, least)
    asked = Sites(slope + asked_precision * z, asked_precision)
    # Precisions of f_i after a full step, over those of q: 1 + (W_i' − W_i) Σ_ii.
    ratio = np.maximum(one_minus_leverage + asked_precision * variance, NARROWEST)
    away = mismatch(posterior, slope - alpha, 1.0 / ratio)
    # KL = ½ (tr K⁻¹Σ − n + ẑᵀ K⁻¹ ẑ + log|B|), and tr K⁻¹Σ = tr B⁻¹.
    trace = float(one_minus_leverage.sum())
    divergence = 0.5 * (trace - z.size + float(z @ alpha) + posterior.log_determinant)
    bound = float((WEIGHTS @ values).sum()) - divergence
    if not (math.isfinite(away) and math.isfinite(bound)):
        return None
    return Sweep(Sites(nu, precision), posterior, alpha, z, bound, away, asked, -bound)


def floored(values: Array) -> Array:
    """Replace −inf at the outer nodes of an element by its smallest finite value.

    PyMC's log probability that a time is censored is −inf where the probability underflows. The
    expectation is then −inf for every q, and no search could begin. Importance weights still use ℓ
    as it is.
    """
    if not (values == -math.inf).any():
        return values
    least = np.where(np.isfinite(values), values, math.inf).min(axis=0)
    return np.where((values == -math.inf) & (least < math.inf), least, values)


# Observations that read several f_i: a block W_g for each set of them. The fixed point is the same,
# W_g = −E_q ∇²ℓ_g and ν_g = E_q ∇ℓ_g + (W ẑ)_g, with derivatives in the f_i of the set and
# expectations under their joint marginal of q, N(f̂_g, V_g).


LEAST_EIGENVALUE = 1e-4
"""Smallest eigenvalue of W_g in units of the prior's variances if W must be positive. It keeps W
invertible. The value has not been tuned."""


@np.errstate(divide="ignore", invalid="ignore", over="ignore")
def _sweep_of_sets(likelihood: SiteLikelihood, nu: Array, posterior: Posterior) -> Sweep | None:
    """Compute q with these sites, its bound, and the sites of a natural gradient step.

    It takes two O(n³) operations, B and B⁻¹, and the likelihood at every node.
    """
    prior, W = posterior.prior, posterior.precision
    assert isinstance(W, SiteBlocks)
    alpha, z = posterior.center(nu)
    root, inverse = cholesky_factors(posterior.site_covariances)
    nodes, weights, products = _rule(W.sets.shape[1], len(W.sets))
    values = likelihood.sites(at_nodes(prior.mean + z, W.sets, root, nodes))
    # By parts, E ∇ℓ = C⁻ᵀ E x ℓ and E ∇²ℓ = C⁻ᵀ E (x xᵀ − I) ℓ C⁻¹ with f_g = f̂_g + C x.
    slope = (inverse * (values.T @ (weights[:, None] * nodes))[:, :, None]).sum(axis=1)
    curvature = congruent(inverse, (-values.T @ products).reshape(root.shape))
    if not (np.isfinite(slope).all() and np.isfinite(curvature).all()):
        return None
    asked_W = W.like(curvature)
    if not prior.allows_negative_sites:
        asked_W = asked_W.at_least(LEAST_EIGENVALUE, np.sqrt(prior.variances))
    gradient = scattered(W.sets, slope, z.size)
    asked = Sites(gradient + asked_W.times(z), asked_W)
    # Eigenvalues of the precisions after a full step, relative to those of q.
    change = congruent(root, asked_W.values - W.values)
    ratio = np.maximum(1.0 + eigenvalues(change).ravel(), NARROWEST)
    away = mismatch(posterior, gradient - alpha, 1.0 / ratio)
    # KL = ½ (tr K⁻¹Σ − n + ẑᵀ K⁻¹ ẑ + log|B|), and K⁻¹Σ = I − W Σ.
    trace = float(posterior.one_minus_leverage.sum())
    divergence = 0.5 * (trace - z.size + float(z @ alpha) + posterior.log_determinant)
    bound = float((weights @ values).sum()) - divergence
    if not (math.isfinite(away) and math.isfinite(bound)):
        return None
    return Sweep(Sites(nu, W), posterior, alpha, z, bound, away, asked, -bound)


@lru_cache
def _rule(s: int, sets: int) -> tuple[Array, Array, Array]:
    """Nodes x_k (Q, s), weights w_k (Q,), and w_k (x_k x_kᵀ − I) as rows (Q, s²)."""
    nodes, weights = nodes_of_sets(s, sets)
    products = nodes[:, :, None] * nodes[:, None, :] - np.eye(s)
    return nodes, weights, weights[:, None] * products.reshape(len(nodes), -1)


# The gradient of the bound


def evidence_gradient(
    q: GaussianApproximation, *, likelihood_gradient: Callable[[Array, Array], Array] | None
) -> Array | None:
    """Gradient in theta of the bound of a q of `variational`.

    It is ½ tr((a aᵀ − R) dK) + aᵀ dm + E_q dℓ with a = K⁻¹(f̂ − m) and R = (K + W⁻¹)⁻¹ =
    K⁻¹ − K⁻¹ Σ K⁻¹. These are the partial derivatives at fixed q, because at its maximum the bound
    is stationary in q.

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
    gradient = q.posterior.evidence_gradient(q.alpha)
    if likelihood_gradient is not None:
        # ℓ is a sum over f_i or over sets of them, so all can be at their k-th node at once.
        if isinstance(W := q.precision, SiteBlocks):
            root, _ = cholesky_factors(q.posterior.site_covariances)
            nodes, weights = nodes_of_sets(W.sets.shape[1], len(W.sets))
            rows = at_nodes(q.center, W.sets, root, nodes)
        else:
            rows = q.center + NODES[:, None] * np.sqrt(q.posterior.variances)
            weights = WEIGHTS
        gradient = gradient + likelihood_gradient(rows, weights)
    return gradient if np.isfinite(gradient).all() else None
