"""`variational` for observations that read several f_i: a block W_g for each set of them.

The fixed point is the same, W_g = −E_q ∇²ℓ_g and ν_g = E_q ∇ℓ_g + (W ẑ)_g, with derivatives in the
f_i of the set and expectations under their joint marginal of q, N(f̂_g, V_g).
"""

from __future__ import annotations

import math

from functools import lru_cache
from itertools import combinations, product

import numpy as np

from pymc_lgm.approximations.gaussian import (
    GaussianApproximation,
    SiteLikelihood,
)
from pymc_lgm.approximations.site_search import Sweep, mismatch
from pymc_lgm.approximations.sites import Sites
from pymc_lgm.gaussian import Posterior
from pymc_lgm.gaussian.sites import SiteBlocks, scattered
from pymc_lgm.linalg import Array

__all__ = ["nodes_of_sets", "points_of_sets", "sweep_of_sets"]

LEAST = 1e-4
"""Smallest eigenvalue of W_g in units of the prior's variances, which keeps W invertible."""

PER_AXIS = {1: 32, 2: 9, 3: 6, 4: 4}
"""Gauss-Hermite nodes per axis, by the size of a set. More change the bound by less than 0.001."""

MOST = 2**15
"""Largest number of sets times nodes of a product rule. Beyond it the rule of degree 5 is accurate
enough for a q."""

OF_MANY_PAIRS = 5
"""Gauss-Hermite nodes per axis for more sets of two than that. The bounds for 300 returns with
leverage, and for 800 counts with extra zeros, differed by at most 0.0003 from those with 9 or
13."""

LIGHT = 1e-12
"""Weight below which a node is omitted."""


@lru_cache
def nodes_of_sets(s: int, sets: int = 1) -> tuple[Array, Array]:
    """Nodes x_k, shape (Q, s), and weights of expectations under N(0, I).

    The rule is a product of Gauss-Hermite rules up to s = 4, with fewer nodes for hundreds of sets
    of two. For larger sets, and for hundreds of sets of three or more, it is the fully symmetric
    rule of degree 5 with 2 s² + 1 nodes (McNamee and Stenger 1967, *Construction of fully symmetric
    numerical integration formulas*, Numerische Mathematik 10).

    Examples
    --------
    >>> import numpy as np
    >>> for s in (2, 3, 7):
    ...     x, w = nodes_of_sets(s)
    ...     print(
    ...         x.shape[1], np.round([w.sum(), w @ x[:, 0] ** 4, w @ (x[:, 0] * x[:, 1]) ** 2], 6)
    ...     )
    2 [1. 3. 1.]
    3 [1. 3. 1.]
    7 [1. 3. 1.]
    """
    is_product = s in PER_AXIS and sets * PER_AXIS[s] ** s <= MOST
    if s <= 2 or is_product:
        x, w = np.polynomial.hermite_e.hermegauss(
            OF_MANY_PAIRS if s == 2 and not is_product else PER_AXIS[s]
        )
        nodes = np.array(list(product(x, repeat=s)))
        weights = np.array([math.prod(each) for each in product(w / w.sum(), repeat=s)])
        kept = weights > LIGHT
        return nodes[kept], weights[kept] / weights[kept].sum()
    identity = math.sqrt(3.0) * np.eye(s)
    signs = (1.0, -1.0)
    pairs = [
        a * identity[i] + b * identity[j]
        for i, j in combinations(range(s), 2)
        for a, b in product(signs, signs)
    ]
    nodes = np.concatenate([np.zeros((1, s)), identity, -identity, pairs])
    alone = [1.0 + (s * s - 7.0 * s) / 18.0, *[(4.0 - s) / 18.0] * (2 * s)]
    return nodes, np.array(alone + [1.0 / 36.0] * len(pairs))


@np.errstate(divide="ignore", invalid="ignore", over="ignore")
def sweep_of_sets(likelihood: SiteLikelihood, nu: Array, posterior: Posterior) -> Sweep | None:
    """Compute q with these sites, its bound, and the sites of a natural gradient step.

    It takes two O(n³) operations, B and B⁻¹, and the likelihood at every node.
    """
    prior, W = posterior.prior, posterior.precision
    assert isinstance(W, SiteBlocks)
    dual, z = posterior.center(nu)
    root = _roots(posterior)
    if root is None:
        return None
    nodes, weights = nodes_of_sets(W.sets.shape[1], len(W.sets))
    values = likelihood.sites(_rows(prior.mean + z, W, root, nodes))
    # By parts, E ∇ℓ = C⁻ᵀ E x ℓ and E ∇²ℓ = C⁻ᵀ E (x xᵀ − I) ℓ C⁻¹ with f_g = f̂_g + C x.
    across = np.linalg.inv(root)
    weighted = weights[:, None] * values
    slope = across.swapaxes(1, 2) @ (weighted.T @ nodes)[:, :, None]
    squares = nodes[:, :, None] * nodes[:, None, :] - np.eye(nodes.shape[1])
    curvature = -across.swapaxes(1, 2) @ np.einsum("kg,kab->gab", weighted, squares) @ across
    if not (np.isfinite(slope).all() and np.isfinite(curvature).all()):
        return None
    asked_W = W.like(curvature).at_least(LEAST, np.sqrt(prior.variances))
    gradient = scattered(W.sets, slope[:, :, 0], z.size)
    asked = Sites(gradient + asked_W.times(z), asked_W)
    change = root.swapaxes(1, 2) @ (asked_W.values - W.values) @ root
    spread = np.linalg.eigvalsh(np.eye(nodes.shape[1]) + change)
    away = mismatch(posterior, gradient - dual, 1.0 / spread.ravel())
    # KL = ½ (tr K⁻¹Σ − n + ẑᵀ K⁻¹ ẑ + log|B|), and K⁻¹Σ = I − W Σ.
    trace = float(posterior.one_minus_leverage.sum())
    divergence = 0.5 * (trace - z.size + float(z @ dual) + posterior.log_determinant)
    bound = float(weighted.sum()) - divergence
    if not (math.isfinite(away) and math.isfinite(bound)):
        return None
    return Sweep(Sites(nu, W), posterior, dual, z, bound, away, asked, -bound)


def points_of_sets(q: GaussianApproximation) -> tuple[Array, Array] | None:
    """Rows of f with each set at its k-th node under q, and the weights of the nodes."""
    W, root = q.precision, _roots(q.posterior)
    nodes, weights = nodes_of_sets(W.sets.shape[1], len(W.sets))
    return None if root is None else (_rows(q.center, W, root, nodes), weights)


def _roots(posterior: Posterior) -> Array | None:
    """C of each set, V_g = C Cᵀ; ``None`` if a V_g is not positive definite by rounding."""
    try:
        root: Array = np.linalg.cholesky(posterior.site_covariances)
    except np.linalg.LinAlgError:
        return None
    return root


def _rows(center: Array, W: SiteBlocks, root: Array, nodes: Array) -> Array:
    """f̂ + C x_k of all sets at once, shape (Q, n)."""
    return np.ascontiguousarray(center + scattered(W.sets, root @ nodes.T, center.size).T)
