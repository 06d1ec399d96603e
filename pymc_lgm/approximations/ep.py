"""Expectation propagation: a Gaussian approximation of p(f | y, theta) by matched moments.

Rasmussen and Williams (2006), §3.6, with all sites updated at once as in van Gerven, Cseke,
de Lange and Heskes (2010), *Efficient Bayesian multivariate fMRI analysis using a sparsifying
spatio-temporal prior*; an importance distribution of Filippone and Girolami (2014), §2.1.2.
"""

from __future__ import annotations

import math

from collections.abc import Callable

import numba
import numpy as np

from pymc_lgm.approximations.gaussian import GaussianApproximation, SiteLikelihood
from pymc_lgm.approximations.site_search import Sweep, mismatch, site_search
from pymc_lgm.approximations.sites import Sites
from pymc_lgm.approximations.tilted import Marginals, tilted_moments
from pymc_lgm.gaussian import Posterior, Prior
from pymc_lgm.linalg import Array

__all__ = ["ep", "evidence_gradient"]


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
    dual, z = posterior.center(nu)  # (3.68): K⁻¹ ẑ
    cavity = posterior.shares  # (B⁻¹)_ii = 1 − W_i Σ_ii
    q = Marginals(prior.mean, nu, precision, z, posterior.variances, cavity)
    tilted = tilted_moments(likelihood, q)

    next_nu, next_precision, r, ratio = _asked(q.variance, cavity, z, nu, dual, *tilted[1:])
    away = mismatch(posterior, r, ratio)
    # (3.65) as log ∫ N(z; 0, K) ∏ S_i t_i(z_i) dz: neither K⁻¹ nor W⁻¹ is in it.
    log_evidence = float(tilted.log_scale.sum() + 0.5 * z @ nu - 0.5 * posterior.log_determinant)
    if not (math.isfinite(away) and math.isfinite(log_evidence)):
        return None
    asked = Sites(next_nu, next_precision)
    return Sweep(Sites(nu, precision), posterior, dual, z, log_evidence, away, asked, away)


@numba.njit(cache=True, error_model="numpy")
def _asked(
    variance: Array,
    cavity: Array,
    z: Array,
    nu: Array,
    dual: Array,
    tilted_z: Array,
    tilted_variance: Array,
) -> tuple[Array, Array, Array, Array]:
    """The sites that tilted moments ask for, how a goes to them at first, and Σ_ii by Σ_ii."""
    n = z.size
    next_nu, next_precision, r, ratio = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    for i in range(n):
        cavity_precision = cavity[i] / variance[i]  # (3.56)
        W = 1.0 / tilted_variance[i] - cavity_precision  # (3.59)
        W = 0.0 if W < 0.0 else W  # NaN stays
        # The mean is matched where W is clipped, too.
        matched = 1.0 / (cavity_precision + W)
        next_nu[i] = tilted_z[i] / matched - (z[i] / variance[i] - nu[i])
        next_precision[i] = W
        r[i] = next_nu[i] - W * z[i] - dual[i]
        ratio[i] = matched / variance[i]
    return next_nu, next_precision, r, ratio


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
