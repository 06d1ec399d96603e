"""Expectation propagation: a Gaussian approximation of p(f | y, theta) by matched moments.

Rasmussen and Williams (2006), §3.6, with all sites updated at once as in van Gerven, Cseke,
de Lange and Heskes (2010), *Efficient Bayesian multivariate fMRI analysis using a sparsifying
spatio-temporal prior*; an importance distribution of Filippone and Girolami (2014), §2.1.2.
"""

from __future__ import annotations

import math

from collections.abc import Callable
from typing import NamedTuple

import numba
import numpy as np

from scipy.special import erfcx, log_ndtr

from pymc_lgm.approximations.gaussian import (
    Effects,
    GaussianApproximation,
    SiteLikelihood,
    center_of,
)
from pymc_lgm.approximations.site_search import Sweep, mismatch, site_search
from pymc_lgm.approximations.sites import Sites
from pymc_lgm.elementary import exp
from pymc_lgm.linalg import LOG_2PI, Array
from pymc_lgm.priors import Posterior, Prior

__all__ = ["Marginals", "Tilted", "ep", "evidence_gradient", "probit_moments", "quadrature_moments"]

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(32)
LOG_WEIGHTS = np.log(WEIGHTS) - 0.5 * LOG_2PI

TOGETHER = 64
"""Elements of which all nodes are looked at in turn."""

LEAST_SHARE = 0.02
"""Least 1 − d² W: of a log-concave likelihood it is positive."""


class Marginals(NamedTuple):
    """Marginals of q(f) = N(f; m, K) ∏ t_i / Z, t_i = exp(ν_i z_i − ½ W_i z_i²), z = f − m."""

    mean: Array  # m
    nu: Array
    precision: Array  # W
    z: Array  # ẑ = f̂ − m
    variance: Array  # Σ_ii
    cavity: Array  # 1 − W_i Σ_ii: the share of the precision that is not site i's

    @property
    def of_cavity(self) -> tuple[Array, Array]:
        """Variance and mean of z under q / t_i: (3.56)."""
        return self.variance / self.cavity, (self.z - self.variance * self.nu) / self.cavity

    @property
    def log_mass(self) -> Array:
        """S_i has q / t_i in it, which is the normalized cavity times the exponential of this."""
        square = self.precision * self.z**2 - 2.0 * self.z * self.nu + self.variance * self.nu**2
        return 0.5 * (square / self.cavity - np.log(self.cavity))


class Tilted(NamedTuple):
    """Moments of the tilted marginals p(y_i | f_i) q(f_i) / t_i(f_i), each of shape (n,)."""

    log_scale: Array  # log S_i, S_i = ∫ p(y_i | f_i) q(f_i) / t_i(f_i) df_i
    z: Array
    variance: Array


def ep(
    likelihood: SiteLikelihood,
    prior: Prior,
    *,
    start: Sites | None = None,
    tolerance: float = 1e-2,
    max_iterations: int = 50,
    differentiable: bool = False,
) -> GaussianApproximation | None:
    """Approximate p(f | y, theta) by a Gaussian that has the moments of its tilted marginals.

    Each p(y_i | f_i) is replaced by a site t_i = exp(ν_i z_i − ½ W_i z_i²), z = f − m, such that
    q(f_i) has the mean and the variance of the tilted marginal p(y_i | f_i) q(f_i) / t_i(f_i). The
    first sites are those given, or those of Laplace's method at a tolerance of 3.

    Parameters
    ----------
    likelihood : SiteLikelihood
        f -> (ℓ, g, W, third derivative); ``likelihood.sites``: rows of f (N, n) -> ℓ_i,
        shape (N, n).
    prior : Prior
    start : Sites, optional
        ν and W at which to start; if that does not converge, the first are those of Laplace. Sites
        that depend on theta alone make the result a deterministic function of theta, as an exact
        sampler needs.
    tolerance : float
        Stop at a q from which the next sweep would move by less than this many nats.
    max_iterations : int
        Newton steps and sweeps at most. If a sweep brings q no nearer to moments that match, the
        sites go half as far; after that has failed four times the nearest q is returned.
    differentiable : bool
        Make all of B⁻¹ in each sweep, not its diagonal alone: `evidence_gradient` needs it then.

    Returns
    -------
    GaussianApproximation or None
        With W ≥ 0: the negative precision that a likelihood without a concave logarithm can ask
        for is clipped. Where quadrature finds an evidence more than n + 10 nats above
        ℓ(f̂) − ½ ẑᵀa − ½ log|B|, since its nodes skip all of a likelihood under a wide cavity, it
        is replaced by that, and q has not converged. Where f̂ is not `plausible`, q is that of
        Laplace's method, which climbs from m, and has not converged either. ``None`` if the search
        meets values that are not finite.

    Notes
    -----
    One O(n³) operation a Newton step and two a sweep, B and the diagonal of its inverse; 2 to 8 in
    all. A sweep evaluates the likelihood 32 times, that of a probit never. Under a cavity of
    variance 100 quadrature of a logistic is good to 3e-3 in log Z, in means and in variances.
    """
    return site_search(
        _sweep,
        likelihood,
        prior,
        start=start,
        tolerance=tolerance,
        max_iterations=max_iterations,
        differentiable=differentiable,
    )


@np.errstate(divide="ignore", invalid="ignore", over="ignore")
def _sweep(likelihood: SiteLikelihood, nu: Array, posterior: Posterior) -> Sweep | None:
    """Find q with these sites, its evidence, and the sites that its tilted marginals ask for."""
    prior, precision = posterior.prior, posterior.precision
    dual, z = center_of(posterior, nu)  # (3.68): K⁻¹ ẑ
    cavity = posterior.shares  # (B⁻¹)_ii = 1 − W_i Σ_ii
    q = Marginals(prior.mean, nu, precision, z, posterior.variances, cavity)
    tilted = tilted_moments(likelihood, q)

    cavity_precision = cavity / q.variance  # (3.56)
    next_precision = np.maximum(1.0 / tilted.variance - cavity_precision, 0.0)  # (3.59)
    # The mean is matched where W is clipped, too.
    variance = 1.0 / (cavity_precision + next_precision)
    next_nu = tilted.z / variance - (z / q.variance - nu)
    r = next_nu - next_precision * z - dual
    away = mismatch(posterior, r, variance / q.variance)
    # (3.65) as log ∫ N(z; 0, K) ∏ S_i t_i(z_i) dz: neither K⁻¹ nor W⁻¹ is in it.
    log_evidence = float(tilted.log_scale.sum() + 0.5 * z @ nu - 0.5 * posterior.log_determinant)
    if not (math.isfinite(away) and math.isfinite(log_evidence)):
        return None
    asked = Sites(next_nu, next_precision)
    return Sweep(Sites(nu, precision), posterior, dual, z, log_evidence, away, asked, away)


def evidence_gradient(
    q: GaussianApproximation, *, likelihood_gradient: Callable[[Array], Array]
) -> Array | None:
    """Gradient in theta of the evidence of a q of `ep`.

    ⟨½ (a aᵀ − R), dK⟩ + aᵀ dm with a = K⁻¹(f̂ − m) and R = (K + W⁻¹)⁻¹: that of
    log ∫ N(f; m, K) ∏ t_i(f_i) df at fixed sites, since the evidence does not change with sites
    that match moments (Rasmussen and Williams 2006, eq. (5.27)). What a theta of the likelihood
    adds is taken at f̂, and is not quite the gradient.

    Parameters
    ----------
    q : GaussianApproximation
    likelihood_gradient : callable
        f -> ∂ℓ/∂theta at fixed f, shape (p,).

    Returns
    -------
    ndarray, shape (p,), or None
        ``None`` where it is not a number.

    Notes
    -----
    One O(n³) operation, the inverse of B; none if the search was ``differentiable``.
    """
    gradient = q.posterior.evidence_gradient(q.dual) + likelihood_gradient(q.center)
    return gradient if np.isfinite(gradient).all() else None


def tilted_moments(likelihood: SiteLikelihood, q: Marginals) -> Tilted:
    """Moments in closed form where there is one, and else by quadrature."""
    if (signs := likelihood.probit_signs) is not None:
        return probit_moments(signs, q)
    if (effects := likelihood.effects) is not None:
        return effects_moments(effects, q)
    return quadrature_moments(likelihood, q)


def quadrature_moments(likelihood: SiteLikelihood, q: Marginals) -> Tilted:
    """Moments by Gauss-Hermite quadrature with q(f_i) as weight: where EP ends, q is tilted's."""
    scale = np.sqrt(q.variance)
    values = likelihood.sites(_at_nodes(q.mean, q.z, scale))
    largest, total, x, spread = _summed(
        values, LOG_WEIGHTS, q.z, scale, np.zeros_like(q.z), 0.5 * q.precision, -q.nu
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
    """Moments where effects d_i w have been integrated out: one integral an observation, not two.

    With η = f + d w the cavity of η is N(μ, v + d²), and f is normal given η: the moments of η
    under p(y_i | η) times its cavity say those of f.
    """
    v, z = q.of_cavity
    wide, share = v + effects.d**2, v / (v + effects.d**2)
    # Nodes where η is: a site of f with precision W is one of η with W / (1 − d² W).
    less = np.maximum(1.0 - effects.d**2 * q.precision, LEAST_SHARE)
    precision = 1.0 / wide + q.precision / less
    center, scale = (z / wide + q.nu / less) / precision, 1.0 / np.sqrt(precision)
    values = effects.sites(_at_nodes(q.mean, center, scale))
    largest, total, x, spread = _summed(
        *(values, LOG_WEIGHTS + 0.5 * NODES**2, center, scale),
        *(z, -0.5 / wide, np.zeros_like(z)),
    )
    return Tilted(
        largest + np.log(total * scale / np.sqrt(wide)) + q.log_mass,
        z + share * (center + scale * x - z),
        v * (1.0 - share) + share**2 * scale**2 * spread,
    )


@numba.njit(cache=True)
def _at_nodes(mean: Array, center: Array, scale: Array) -> Array:
    """m + z of the nodes z of each element, shape (Q, n)."""
    rows = np.empty((NODES.size, mean.size))
    for k in range(NODES.size):
        for i in range(mean.size):
            rows[k, i] = mean[i] + (center[i] + NODES[k] * scale[i])
    return rows


@numba.njit(cache=True, error_model="numpy")
def _summed(
    values: Array,
    log_weights: Array,
    center: Array,
    scale: Array,
    origin: Array,
    square: Array,
    slope: Array,
) -> tuple[Array, Array, Array, Array]:
    """Integrals of exp(ℓ + a t² + b t), t = z − o, by the nodes z = c + s x; ``values`` are lost.

    The largest logarithm of a term, the sum of all terms divided by it, and the mean and the
    variance of x. As many elements at a time as a processor has at hand.
    """
    Q, n = values.shape
    largest, total = np.full(n, -np.inf), np.zeros(n)
    mean, spread = np.zeros(n), np.zeros(n)
    for begin in range(0, n, TOGETHER):
        end = min(begin + TOGETHER, n)
        c, s, o = center[begin:end], scale[begin:end], origin[begin:end]
        a, b = square[begin:end], slope[begin:end]
        top, mass = largest[begin:end], total[begin:end]
        middle, width = mean[begin:end], spread[begin:end]
        for k in range(Q):
            row, x, log_weight = values[k, begin:end], NODES[k], log_weights[k]
            for i in range(row.size):
                t = c[i] + x * s[i] - o[i]
                value = row[i] + log_weight + t * (a[i] * t + b[i])
                row[i] = value if value < np.inf else -np.inf  # NaN and +inf far out
                top[i] = max(top[i], row[i])
        for k in range(Q):
            row, x = values[k, begin:end], NODES[k]
            for i in range(row.size):
                row[i] = exp(row[i] - top[i])
            for i in range(row.size):
                mass[i] += row[i]
                middle[i] += x * row[i]
        for i in range(mass.size):
            middle[i] /= mass[i]
        for k in range(Q):
            row, x = values[k, begin:end], NODES[k]
            for i in range(row.size):
                width[i] += (x - middle[i]) ** 2 * row[i]
        for i in range(mass.size):
            width[i] /= mass[i]
    return largest, total, mean, spread
