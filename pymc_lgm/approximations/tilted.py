"""Moments of the tilted marginals p(y_i | f_i) q(f_i) / t_i(f_i) of expectation propagation.

Rasmussen and Williams (2006), §3.6.
"""

from __future__ import annotations

import math

from typing import NamedTuple

import numba
import numpy as np

from scipy.special import erfcx, log_ndtr

from pymc_lgm.approximations.gaussian import SiteLikelihood
from pymc_lgm.approximations.sites import LEAST_SHARE, Effects
from pymc_lgm.compile.loops.elementary import exp
from pymc_lgm.linalg import LOG_2PI, Array

__all__ = [
    "FEWEST",
    "NODES",
    "Marginals",
    "Tilted",
    "effects_moments",
    "probit_moments",
    "quadrature_moments",
    "tilted_moments",
]


def _rule(nodes: int) -> tuple[Array, Array]:
    """Nodes, and logarithms of the weights, of expectations under N(0, 1)."""
    x, weights = np.polynomial.hermite_e.hermegauss(nodes)
    return x, np.log(weights) - 0.5 * LOG_2PI


NODES, LOG_WEIGHTS = FULL = _rule(32)
FEWER = _rule(12)
FEWEST = _rule(8)
"""Rules for a search, for a search over many elements, and for sites that are expected to fit."""

MANY = 1000
"""Number of elements above which a search uses the rule `FEWER`.

With so many elements the likelihood takes most of the time, and q is close to the tilted marginal
of each element. The log evidence of 5000 binary observations in 500 groups differs by less than
1e-9 between 12 and 32 nodes.
"""

TOGETHER = 64
"""Elements that one pass over the nodes handles, so that they stay in the processor's cache."""


class Marginals(NamedTuple):
    """Marginals of q(f) = N(f; m, K) ∏ t_i / Z, t_i = exp(ν_i z_i − ½ W_i z_i²), z = f − m."""

    mean: Array  # m
    nu: Array
    precision: Array  # W
    z: Array  # ẑ = f̂ − m
    variance: Array  # Σ_ii
    cavity: Array  # 1 − W_i Σ_ii, the share of the precision that does not come from site i

    @property
    def of_cavity(self) -> tuple[Array, Array]:
        """Variance and mean of z under the cavity q / t_i: (3.56)."""
        return self.variance / self.cavity, (self.z - self.variance * self.nu) / self.cavity

    @property
    def log_mass(self) -> Array:
        """Logarithm of the mass of q / t_i, which is part of S_i."""
        square = self.precision * self.z**2 - 2.0 * self.z * self.nu + self.variance * self.nu**2
        return 0.5 * (square / self.cavity - np.log(self.cavity))


class Tilted(NamedTuple):
    """Moments of the tilted marginals p(y_i | f_i) q(f_i) / t_i(f_i), each of shape (n,)."""

    log_scale: Array  # log S_i, S_i = ∫ p(y_i | f_i) q(f_i) / t_i(f_i) df_i
    z: Array
    variance: Array


def tilted_moments(likelihood: SiteLikelihood, q: Marginals) -> Tilted:
    """Moments in closed form if there is one, otherwise by quadrature."""
    if (signs := likelihood.probit_signs) is not None:
        return probit_moments(signs, q)
    if (effects := likelihood.effects) is not None:
        return effects_moments(effects, q)
    return quadrature_moments(likelihood, q)


def quadrature_moments(
    likelihood: SiteLikelihood, q: Marginals, rule: tuple[Array, Array] | None = None
) -> Tilted:
    """Moments by Gauss-Hermite quadrature weighted by q(f_i), close to the tilted marginal."""
    scale = np.sqrt(q.variance)
    nodes, log_weights = rule or (FEWER if q.z.size > MANY else FULL)
    values = likelihood.sites(_at_nodes(nodes, q.mean, q.z, scale))
    largest, total, x, spread = _summed(
        values, nodes, log_weights, q.z, scale, np.zeros_like(q.z), 0.5 * q.precision, -q.nu
    )
    return Tilted(largest + np.log(total), q.z + scale * x, q.variance * spread)


def probit_moments(signs: Array, q: Marginals) -> Tilted:
    """Moments for p(y_i | f_i) = Φ(s_i f_i): Rasmussen and Williams (3.58)."""
    cavity_variance, cavity_z = q.of_cavity
    width = np.sqrt(1.0 + cavity_variance)
    u = signs * (q.mean + cavity_z) / width
    hazard = math.sqrt(2.0 / math.pi) / erfcx(-u / math.sqrt(2.0))  # N(u) / Φ(u)
    return Tilted(
        log_ndtr(u) + q.log_mass,
        cavity_z + signs * cavity_variance * hazard / width,
        cavity_variance * (1.0 - cavity_variance * hazard * (u + hazard) / width**2),
    )


def effects_moments(effects: Effects, q: Marginals) -> Tilted:
    """Moments with integrated effects d_i w, by one integral per observation.

    With η = f + d w the cavity of η is N(μ, v + d²), and f is normal given η. So the moments of f
    follow from those of η under p(y_i | η) times its cavity.
    """
    v, z = q.of_cavity
    wide, share = v + effects.d**2, v / (v + effects.d**2)
    # The nodes are those of η: a site of f with precision W is a site of η with W / (1 − d² W).
    less = np.maximum(1.0 - effects.d**2 * q.precision, LEAST_SHARE)
    precision = 1.0 / wide + q.precision / less
    center, scale = (z / wide + q.nu / less) / precision, 1.0 / np.sqrt(precision)
    values = effects.sites(_at_nodes(NODES, q.mean, center, scale))
    largest, total, x, spread = _summed(
        *(values, NODES, LOG_WEIGHTS + 0.5 * NODES**2, center, scale),
        *(z, -0.5 / wide, np.zeros_like(z)),
    )
    return Tilted(
        largest + np.log(total * scale / np.sqrt(wide)) + q.log_mass,
        z + share * (center + scale * x - z),
        v * (1.0 - share) + share**2 * scale**2 * spread,
    )


@numba.njit(cache=True)
def _at_nodes(nodes: Array, mean: Array, center: Array, scale: Array) -> Array:
    """m + z at the nodes z of each element, shape (Q, n)."""
    rows = np.empty((nodes.size, mean.size))
    for k in range(nodes.size):
        for i in range(mean.size):
            rows[k, i] = mean[i] + (center[i] + nodes[k] * scale[i])
    return rows


@numba.njit(cache=True, error_model="numpy")
def _summed(
    values: Array,
    nodes: Array,
    log_weights: Array,
    center: Array,
    scale: Array,
    origin: Array,
    square: Array,
    slope: Array,
) -> tuple[Array, Array, Array, Array]:
    """Integrals of exp(ℓ + a t² + b t), t = z − o, by nodes z = c + s x; overwrites ``values``.

    Returns the logarithm of the largest term, the sum of all terms over the largest, and the mean
    and the variance of x. It processes `TOGETHER` elements at a time.
    """
    Q, n = values.shape
    largest, total, mean, spread = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    for begin in range(0, n, TOGETHER):
        end = min(begin + TOGETHER, n)
        c, s, o = center[begin:end], scale[begin:end], origin[begin:end]
        a, b = square[begin:end], slope[begin:end]
        top, mass = largest[begin:end], total[begin:end]
        middle, width = mean[begin:end], spread[begin:end]
        for i in range(mass.size):
            top[i], mass[i], middle[i], width[i] = -np.inf, 0.0, 0.0, 0.0
        for k in range(Q):
            row, x, log_weight = values[k, begin:end], nodes[k], log_weights[k]
            for i in range(row.size):
                t = c[i] + x * s[i] - o[i]
                value = row[i] + log_weight + t * (a[i] * t + b[i])
                row[i] = value if value < np.inf else -np.inf  # NaN and +inf in the tails
                top[i] = max(top[i], row[i])
        for k in range(Q):
            row, x = values[k, begin:end], nodes[k]
            for i in range(row.size):
                row[i] = exp(row[i] - top[i])
            for i in range(row.size):
                mass[i] += row[i]
                middle[i] += x * row[i]
        for i in range(mass.size):
            middle[i] /= mass[i]
        for k in range(Q):
            row, x = values[k, begin:end], nodes[k]
            for i in range(row.size):
                width[i] += (x - middle[i]) ** 2 * row[i]
        for i in range(mass.size):
            width[i] /= mass[i]
    return largest, total, mean, spread
