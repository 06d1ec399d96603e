"""A transport map that corrects the skewness of q, all elements jointly.

A Gaussian q ignores the third derivatives of ℓ. A `Copula` corrects each element alone. In a long
series of dependent elements that gains nothing, because the prior penalizes changes of single
elements. The map here propagates the correction of each element to the others through Σ, the
covariance of q. It maps a deviation x ~ N(0, Σ) from the center f̂ to

    f = f̂ + x + Σ h(x),   h(x) = Σ_k t_k [ρ(y_k) − E ρ(y_k)] b_k,   y_k = b_kᵀ x ~ N(0, 1),
    ρ(y) = c² log cosh(y/c),   ρ'(y) = c tanh(y/c).

If each observation reads one element of f, b_k has one element that is not 0, 1/√Σ_ii. If
observations read sets of elements, there are several directions b_k per set: `directions`. The
numbers t_k are such that

    Σ_k t_k b_k ⊗ b_k ⊗ b_k = T / 3,   T = E_q ∇³ℓ.

The log weight of f̂ + x has the cubic term T[x, x, x] / 6. The map adds −xᵀ h(x) to it, and this is
−T[x, x, x] / 6 to first order, since ρ(y) ≈ y²/2 near 0. So the map cancels every cubic term.

h is the gradient of a function φ, and the map is a bijection if ½ xᵀ Σ⁻¹ x + φ(x) is strictly
convex. Its second derivative is Σ⁻¹ + Σ_k t_k ρ'(y_k) b_k b_kᵀ, and |ρ'| < c. So it is convex if
Σ⁻¹ − c Σ_k |t_k| b_k b_kᵀ is positive definite, which is checked at every theta. The density of
each draw takes one factorization, of Σ⁻¹ + ∂h/∂x. It is cheap for a sparse precision.
"""

from __future__ import annotations

import math

from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, combinations_with_replacement, product

import numba
import numpy as np

from numpy.typing import NDArray

from pymc_lgm.approximations.gaussian import GaussianApproximation, SiteLikelihood
from pymc_lgm.approximations.quadrature import at_nodes, product_rule
from pymc_lgm.approximations.variational import floored
from pymc_lgm.compile.loops.elementary import exp, log1p
from pymc_lgm.gaussian import Prior
from pymc_lgm.gaussian.sites import Precision, SiteBlocks, are_nonnegative, cholesky_factors
from pymc_lgm.linalg import Array

__all__ = ["LARGEST_SET", "Transport", "directions", "transport"]

BOUNDS = (5.0, 3.0, 2.0, 1.0)
"""Values of c. The first of them that makes a bijection is used.

With a larger c, ρ is close to y²/2 for larger y, but fewer maps are bijections. By hand, standard
deviations of log weights:

    c                                2      3      5      8
    a trend and a season             0.20   0.11   0.09   0.10
    40 series of 50 counts           0.67   0.45   0.32   0.29
    500 returns                      0.12   0.08   0.06   0.06
    rare counts                      0.37   0.30   often no bijection
    counts with extra zeros          0.40   0.39   often no bijection

An exponential W (eᵃˣ − 1) instead of tanh had 0.09, 0.63 and 0.05 in the first three models, and
exists only for W > 0.
"""

LARGEST_SET = 3
"""Largest set of elements of f that one observation may read. Four would need 256 evaluations."""

NODES = 4
"""Gauss-Hermite nodes per axis for T. They are exact if ℓ is a polynomial of degree four, because
four nodes are exact to degree seven, and ℓ is multiplied by a polynomial of degree three."""

STEPS = 100
"""Largest number of steps of Newton's method. On series of 500 counts and of 500 returns 4 to 6
sufficed for draws at 3 sd."""

SHORTEST = 1e-6
"""Smallest share of a step that is tried, after 20 halvings. The function is convex, so that only
rounding errors make so many necessary."""

NEAR = 0.01
"""If a step is shorter than this, in standard deviations, the next one uses the same factorization.

Each further step is then shorter than the one before by about this factor.
"""

CLOSE = 1e-7
"""A step of fewer standard deviations is the last. The remaining error is about `NEAR` times it."""


@lru_cache
def directions(s: int) -> Array:
    """Unit vectors u_k, (K, s), whose cubes u_k ⊗ u_k ⊗ u_k span all symmetric tensors.

    They are the axes, and the diagonals of two and of three axes.

    Examples
    --------
    >>> directions(2).round(3)
    array([[ 1.   ,  0.   ],
           [ 0.   ,  1.   ],
           [ 0.707,  0.707],
           [ 0.707, -0.707]])
    """
    rows = []
    for size in (1, 2, 3):
        for axes in combinations(range(s), size):
            for signs in product((1.0, -1.0), repeat=size - 1):
                row = np.zeros(s)
                row[list(axes)] = 1.0, *signs
                rows.append(row / math.sqrt(size))
    return np.array(rows)


@lru_cache
def _rule(s: int) -> tuple[Array, Array]:
    """Nodes (Q, s), and the matrix (Q, K) that maps ℓ at the nodes to t.

    With f = f̂ + C z, the expectation of a third derivative of ℓ in z is E ℓ(z) He_α(z), where He_α
    is a product of Hermite's polynomials of degree |α| = 3. This is integration by parts. The
    pseudo-inverse solves the equation for t in the docstring of this module.
    """
    nodes, weights = product_rule(NODES, s)
    hermite = [np.polynomial.hermite_e.hermeval(nodes, np.eye(4)[a]) for a in range(4)]
    monomials = list(combinations_with_replacement(range(s), 3))
    powers = np.array([[each.count(i) for i in range(s)] for each in monomials])
    third = [weights * math.prod(hermite[a][:, i] for i, a in enumerate(alpha)) for alpha in powers]
    cubes = np.array([(directions(s) ** alpha).prod(axis=1) for alpha in powers])
    return nodes, (np.linalg.pinv(cubes) @ np.array(third) / 3.0).T.copy()


@dataclass(frozen=True, eq=False)
class Transport:
    """The bijection from draws of q to draws f that are corrected for skewness.

    It has the interface of `Copula`, and `forward_with_squares`. In these methods x is the draw
    itself, f̂ plus the deviation.

    Attributes
    ----------
    q : GaussianApproximation
    sets : ndarray of int, shape (s, G)
        The elements of f that each observation reads, padded with −1.
    b : ndarray, shape (K, s, G)
        The directions of each set; 0 where it is padded.
    t : ndarray, shape (K, G)
        The strength of the correction in each direction.
    bound : float
        c.
    """

    q: GaussianApproximation
    sets: NDArray[np.intp]
    b: Array
    t: Array
    bound: float

    def forward(self, x: Array) -> tuple[Array, Array]:
        """f of columns x, shape (n, N), and log |∂x/∂f| of each column, shape (N,)."""
        f, log_slopes, _ = self.forward_with_squares(x)
        return f, log_slopes

    def forward_with_squares(self, x: Array) -> tuple[Array, Array, Array]:
        """`forward`, and −log N(f; m, K) + log N(x; m, K), each (N,).

        With g = f − x = Σ h this difference is gᵀ K⁻¹ (x − m + ½ g), and K⁻¹ g = h − W g, since
        Σ⁻¹ = K⁻¹ + W. So no root of K is needed. If K is singular, K⁻¹ g is one of the vectors that
        K maps to g.
        """
        q, rows = self.q, np.ascontiguousarray(x.T)
        h, hessian = self._correction(rows - q.center)
        g = q.posterior.covariance_times(np.ascontiguousarray(h.T))
        f, squares = _moved(rows, q.mean, g, h, q.posterior.precision_times(g))
        return f.T, np.array([self._log_slope(each) for each in hessian]), squares

    def backward(self, f: Array) -> Array:
        """x of columns f, each by Newton's method for a convex function."""
        return np.stack([self._backward(column) for column in f.T], axis=1)

    def _log_slope(self, hessian: Array) -> float:
        """log |∂x/∂f| = log|Σ⁻¹| − log|Σ⁻¹ + ∂h/∂x|, in which log|K| cancels."""
        updated = self.q.prior.condition(_plus(self.q.precision, hessian))
        if updated is None:
            return np.nan
        return self.q.posterior.log_determinant - updated.log_determinant

    def _correction(self, rows: Array) -> tuple[Array, Array]:
        """h (N, n) and the blocks of ∂h/∂x (N, G, s, s) at rows x."""
        middle = _middle(self.bound)
        h, hessian = _corrections(rows, self.sets, self.b, self.t, self.bound, middle)
        return h, hessian

    def _backward(self, f: Array) -> Array:
        """The x for one f: the deviation minimizes a convex function.

        With d = f − f̂, the gradient of that function is Σ⁻¹ (x − d) + h(x).
        """
        q = self.q
        d = f - q.center

        def gradient_at(x: Array) -> tuple[Array, Array]:
            h, hessian = self._correction(x[None])
            moved = x - d
            of_q = q.prior.inverse_times(moved) + q.posterior.precision_times(moved)
            return of_q + h[0], hessian[0]

        x = d
        gradient, hessian = gradient_at(x)
        updated = None
        for _ in range(STEPS):
            if updated is None:
                updated = q.prior.condition(_plus(q.precision, hessian))
            if updated is None:
                break
            step = updated.covariance_times(gradient)
            # As the function is convex, its derivative along a step of the right length is smaller.
            along = abs(float(step @ gradient))
            share = 1.0
            new, hessian = gradient_at(x - step)
            while not abs(float(step @ new)) <= along and share > SHORTEST:
                share *= 0.5
                new, hessian = gradient_at(x - share * step)
            x, gradient = x - share * step, new
            square = updated.inv_quad_form(step)
            if share == 1.0 and square < CLOSE**2:
                break
            if share < 1.0 or not square < NEAR**2:
                updated = None
        result: Array = q.center + x
        return result


def _plus(W: Precision, hessian: Array) -> Precision:
    """W plus the blocks of a Hessian, (G, s, s)."""
    if isinstance(W, SiteBlocks):
        return SiteBlocks(W.sets, W.values + hessian)
    return W + hessian[:, 0, 0]


@lru_cache
def _middle(bound: float) -> float:
    """E ρ(y), y ~ N(0, 1)."""
    y, w = np.polynomial.hermite_e.hermegauss(41)
    return float(bound**2 * (w @ np.log(np.cosh(y / bound))) / w.sum())


@numba.njit(cache=True, error_model="numpy")
def _corrections(
    rows: Array, sets: NDArray[np.intp], b: Array, t: Array, bound: float, middle: float
) -> tuple[Array, Array]:
    """h (N, n) and ∂h/∂x (N, G, s, s) at rows x; shapes (s, G), (K, s, G) and (K, G).

    The sets are the last axis, so that the compiler vectorizes the loops over them.
    """
    (K, s, G), (N, n) = b.shape, rows.shape
    out, hessian = np.zeros((N, n)), np.empty((N, G, s, s))
    x, h, slopes = np.empty((s, G)), np.empty((s, G)), np.empty((s, s, G))
    y, rho, slope = np.empty(G), np.empty(G), np.empty(G)
    log_2, per_bound, square = math.log(2.0), 1.0 / bound, bound * bound
    for row in range(N):
        for i in range(s):
            for g in range(G):
                x[i, g] = rows[row, sets[i, g]] if sets[i, g] >= 0 else 0.0
        h[:] = 0.0
        slopes[:] = 0.0
        for k in range(K):
            y[:] = 0.0
            for i in range(s):
                for g in range(G):
                    y[g] += b[k, i, g] * x[i, g]
            for g in range(G):
                a = abs(y[g]) * per_bound
                small = exp(-2.0 * a)
                tanh = (1.0 - small) / (1.0 + small)
                rho[g] = t[k, g] * (square * (a + log1p(small) - log_2) - middle)
                slope[g] = t[k, g] * bound * (tanh if y[g] >= 0.0 else -tanh)
            for i in range(s):
                for g in range(G):
                    h[i, g] += b[k, i, g] * rho[g]
                for j in range(i + 1):
                    for g in range(G):
                        slopes[i, j, g] += b[k, i, g] * b[k, j, g] * slope[g]
        for i in range(s):
            for g in range(G):
                if sets[i, g] >= 0:
                    out[row, sets[i, g]] = h[i, g]
            for j in range(i + 1):
                for g in range(G):
                    hessian[row, g, i, j] = slopes[i, j, g]
                    hessian[row, g, j, i] = slopes[i, j, g]
    return out, hessian


@numba.njit(cache=True)
def _moved(x: Array, mean: Array, g: Array, h: Array, weighted: Array) -> tuple[Array, Array]:
    """x + g for rows x (N, n) and columns g (n, N), and (x − m + ½ g)ᵀ (h − W g) of each row."""
    (N, n), f, squares = x.shape, np.empty_like(x), np.zeros(len(x))
    for k in range(N):
        for i in range(n):
            f[k, i] = x[k, i] + g[i, k]
            squares[k] += (x[k, i] - mean[i] + 0.5 * g[i, k]) * (h[k, i] - weighted[i, k])
    return f, squares


@numba.njit(cache=True, error_model="numpy")
def _strengths(
    values: Array, rule: Array, u: Array, inverse: Array, sets: NDArray[np.intp]
) -> tuple[Array, Array, Array]:
    """t (K, G) and b (K, s, G), and −Σ_k |t_k| b_k b_kᵀ of each set, (G, s, s).

    They follow from ℓ at the nodes (Q, G), the matrix (Q, K) of `_rule`, `directions`, and the
    inverse of a root of each set's covariance.
    """
    (K, s), (Q, G) = u.shape, values.shape
    t, b, lowest = np.zeros((K, G)), np.zeros((K, s, G)), np.zeros((G, s, s))
    for k in range(K):
        for q in range(Q):
            for g in range(G):
                t[k, g] += rule[q, k] * values[q, g]
        for g in range(G):
            for i in range(s):
                for j in range(s):
                    if sets[g, i] >= 0:
                        b[k, i, g] += u[k, j] * inverse[g, j, i]
            for i in range(s):
                for j in range(s):
                    lowest[g, i, j] -= abs(t[k, g]) * b[k, i, g] * b[k, j, g]
    return t, b, lowest


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def transport(q: GaussianApproximation, likelihood: SiteLikelihood) -> Transport | None:
    """Fit the transport map by evaluations of ℓ: 4, or 16 and 64 for sets of two and three.

    Any t makes a bijection if c is small enough. If q has margins, Σ_ii is taken from them, whether
    they are predicted or those of a search, so that Σ need not be computed.

    Returns
    -------
    Transport or None
        A function of theta alone, as q is. ``None`` if no element has a skewness to correct, if T
        is not finite, or if no c of `BOUNDS` makes a bijection.
    """
    W = q.precision
    if isinstance(W, SiteBlocks):
        sets = W.sets
        C, inverse = cholesky_factors(q.posterior.site_covariances)
    else:
        sets = np.arange(q.center.size)[:, None]
        variances = q.posterior.variances if q.margins is None else q.margins.variances
        C = np.sqrt(variances)[:, None, None]
        inverse = 1.0 / C
    nodes, to_strengths = _rule(sets.shape[1])
    values = floored(likelihood.sites(at_nodes(q.center, sets, C, nodes)))
    t, b, lowest = _strengths(values, to_strengths, directions(sets.shape[1]), inverse, sets)
    if not (np.isfinite(t).all() and t.any()):
        return None
    sets = np.ascontiguousarray(sets.T)
    for bound in BOUNDS:
        if _is_convex(q.prior, _plus(W, bound * lowest)):
            return Transport(q, sets, b, t, bound)
    return None


def _is_convex(prior: Prior, W: Precision) -> bool:
    """Whether K⁻¹ + W is positive definite. It is if W ≥ 0; otherwise a factorization decides."""
    alone = W.min() >= 0.0 if not isinstance(W, SiteBlocks) else are_nonnegative(W.values).all()
    return bool(alone) or prior.condition(W) is not None
