"""Quadrature: expectations under standard normal distributions, E g(x) = Σ_k w_k g(x_k)."""

from __future__ import annotations

import math

from functools import lru_cache
from itertools import combinations, product

import numba
import numpy as np

from numpy.typing import NDArray

from pymc_lgm.linalg import Array

__all__ = ["at_nodes", "nodes_of_sets", "normal_rule", "product_rule"]

PER_AXIS = {1: 32, 2: 9, 3: 6, 4: 4}
"""Gauss-Hermite nodes per axis, by the size of a set. More change the bound by less than 0.001."""

MOST = 2**15
"""Largest number of sets times nodes of a product rule. Beyond it the rule of degree 5 is accurate
enough for a q."""

OF_MANY_PAIRS = 5
"""Gauss-Hermite nodes per axis for more sets of two than that.

The bounds for 300 returns with leverage, and for 800 counts with extra zeros, differed by at most
0.0003 from those with 9 or 13.
"""

LIGHT = 1e-12
"""Weight below which a node is omitted."""


def normal_rule(n: int) -> tuple[Array, Array]:
    """The n nodes of the Gauss–Hermite rule for N(0, 1), and their weights, whose sum is 1."""
    x, w = np.polynomial.hermite_e.hermegauss(n)
    return x, w / w.sum()


def product_rule(n: int, s: int) -> tuple[Array, Array]:
    """Nodes (n^s, s) and weights for N(0, I) in s dimensions, with n nodes per axis."""
    x, w = normal_rule(n)
    nodes = np.array(list(product(x, repeat=s)))
    return nodes, np.array([math.prod(each) for each in product(w, repeat=s)])


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
        n = OF_MANY_PAIRS if s == 2 and not is_product else PER_AXIS[s]
        nodes, weights = product_rule(n, s)
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


@numba.njit(cache=True)
def at_nodes(center: Array, sets: NDArray[np.intp], C: Array, nodes: Array) -> Array:
    """f̂ + C_g x_k of all sets at once, shape (Q, n).

    Parameters
    ----------
    center : ndarray, shape (n,)
    sets : ndarray of int, shape (G, s)
        Padded with −1.
    C : ndarray, shape (G, s, s)
        Lower triangular.
    nodes : ndarray, shape (Q, s)
    """
    (G, s), Q = sets.shape, len(nodes)
    out = np.empty((Q, center.size))
    for k in range(Q):
        for g in range(G):
            for i in range(s):
                if sets[g, i] >= 0:
                    value = center[sets[g, i]]
                    for a in range(i + 1):
                        value += C[g, i, a] * nodes[k, a]
                    out[k, sets[g, i]] = value
    return out
