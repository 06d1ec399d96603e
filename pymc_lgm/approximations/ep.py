"""Expectation propagation: a Gaussian approximation of p(f | y, theta) by moment matching.

Rasmussen and Williams (2006), §3.6, with all sites updated at once as in van Gerven, Cseke, de
Lange and Heskes (2010), *Efficient Bayesian multivariate fMRI analysis using a sparsifying
spatio-temporal prior*. Filippone and Girolami (2014), §2.1.2, use it as importance distribution.
"""

from __future__ import annotations

import math

from collections.abc import Callable

import numba
import numpy as np

from pymc_lgm.approximations.gaussian import GaussianApproximation, SiteLikelihood
from pymc_lgm.approximations.site_search import Sweep, mismatch, site_search
from pymc_lgm.approximations.sites import Sites
from pymc_lgm.approximations.tilted import (
    FEWEST,
    Marginals,
    Tilted,
    quadrature_moments,
    tilted_moments,
)
from pymc_lgm.gaussian import Posterior, Prior
from pymc_lgm.linalg import Array

__all__ = ["ep", "evidence_gradient", "misfit"]


def ep(
    likelihood: SiteLikelihood,
    prior: Prior,
    *,
    start: Sites | None = None,
    tolerance: float = 1e-2,
    max_iterations: int = 50,
    differentiable: bool = False,
) -> GaussianApproximation | None:
    """Approximate p(f | y, theta) by a Gaussian with the moments of its tilted marginals.

    Each p(y_i | f_i) is replaced by a site t_i = exp(ν_i z_i − ½ W_i z_i²), z = f − m, such that
    q(f_i) has the mean and the variance of the tilted marginal p(y_i | f_i) q(f_i) / t_i(f_i). The
    search begins at the sites that are given, or at those of Laplace's method with a tolerance of
    3.

    Parameters
    ----------
    likelihood : SiteLikelihood
        f -> (ℓ, g, W, third derivative); ``likelihood.sites``: rows of f (N, n) -> ℓ_i,
        shape (N, n).
    prior : Prior
    start : Sites, optional
        ν and W at which to start. If the search does not converge from there, it starts again from
        the sites of Laplace's method. An exact sampler needs a result that is a deterministic
        function of theta, so ``start`` must depend on theta alone.
    tolerance : float
        Stop when the next sweep would move q by less than this many nats.
    max_iterations : int
        Largest number of Newton steps, and of sweeps. If a sweep does not reduce the mismatch of
        moments, its step is halved. After four such failures in a row the q with the smallest
        mismatch is returned.
    differentiable : bool
        Compute all of B⁻¹ in each sweep instead of its diagonal. `evidence_gradient` then needs no
        further O(n³) operation.

    Returns
    -------
    GaussianApproximation or None
        With W ≥ 0: if the likelihood is not log-concave, negative precisions are clipped at 0.
        Under a wide cavity the quadrature nodes can miss the likelihood. If the evidence is then
        more than n + 10 nats above ℓ(f̂) − ½ ẑᵀa − ½ log|B|, it is replaced by that value, and
        ``converged`` is false. If f̂ is not `plausible`, q is Laplace's approximation, searched for
        from m, and ``converged`` is false, too. ``None`` if the search meets values that are not
        finite.

    Notes
    -----
    One O(n³) operation per Newton step and two per sweep (B and the diagonal of its inverse); 2 to
    8 in all. A sweep evaluates the likelihood 32 times; for a probit it uses closed forms instead.
    With a logistic likelihood and a cavity variance of 100, quadrature errs by at most 3e-3 in log
    Z, in means and in variances.
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
    """Compute q with these sites, its evidence, and the sites that match its tilted moments."""
    prior, precision = posterior.prior, posterior.precision
    alpha, z = posterior.center(nu)  # (3.68): K⁻¹ ẑ
    cavity = posterior.one_minus_leverage  # (B⁻¹)_ii = 1 − W_i Σ_ii
    q = Marginals(prior.mean, nu, precision, z, posterior.variances, cavity)
    tilted = tilted_moments(likelihood, q)

    next_nu, next_precision, r, ratio = _asked(q.variance, cavity, z, nu, alpha, *tilted[1:])
    away = mismatch(posterior, r, ratio)
    # (3.65) as log ∫ N(z; 0, K) ∏ S_i t_i(z_i) dz, without K⁻¹ and W⁻¹.
    log_evidence = float(tilted.log_scale.sum() + 0.5 * z @ nu - 0.5 * posterior.log_determinant)
    if not (math.isfinite(away) and math.isfinite(log_evidence)):
        return None
    asked = Sites(next_nu, next_precision)
    return Sweep(Sites(nu, precision), posterior, alpha, z, log_evidence, away, asked, away)


@numba.njit(cache=True, error_model="numpy")
def _asked(
    variance: Array,
    cavity: Array,
    z: Array,
    nu: Array,
    alpha: Array,
    tilted_z: Array,
    tilted_variance: Array,
) -> tuple[Array, Array, Array, Array]:
    """Sites that match the tilted moments, the change of a to first order, and variance ratios."""
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
        r[i] = next_nu[i] - W * z[i] - alpha[i]
        ratio[i] = matched / variance[i]
    return next_nu, next_precision, r, ratio


@np.errstate(divide="ignore", invalid="ignore", over="ignore")
def misfit(
    likelihood: SiteLikelihood,
    posterior: Posterior,
    alpha: Array,
    z: Array,
    nu: Array,
    variances: Array,
    enough: float = 0.0,
) -> float:
    """Nats by which q would move in the next sweep, with given marginal variances.

    To compute the variances would take B⁻¹, an O(n³) operation. A few quadrature nodes suffice for
    sites that fit, since their tilted marginals are nearly those of q.

    Parameters
    ----------
    likelihood : SiteLikelihood
    posterior : Posterior
        The prior conditioned on W, a diagonal.
    alpha, z, nu : ndarray, shape (n,)
        a, ẑ = f̂ − m and ν.
    variances : ndarray, shape (n,)
        Approximations of Σ_ii.
    enough : float
        Misfit in nats up to which the quadrature with few nodes is accepted.

    Returns
    -------
    float
        Infinite if a cavity variance is not positive, or if the likelihood is not finite.

    Notes
    -----
    O(n²), and 8 evaluations of the likelihood. If these give more than ``enough``, as happens for
    binary data with a large prior variance, the full quadrature takes 32 more. The misfit at a
    fixed point is 0 only if the variances are exact.
    """
    W = posterior.precision
    cavity = 1.0 - W * variances
    if not cavity.min() > 0.0:
        return math.inf
    q = Marginals(posterior.prior.mean, nu, W, z, variances, cavity)

    def away(tilted: Tilted) -> float:
        *_, r, ratio = _asked(variances, cavity, z, nu, alpha, *tilted[1:])
        nats = mismatch(posterior, r, ratio)
        return nats if math.isfinite(nats) else math.inf

    nats = away(quadrature_moments(likelihood, q, FEWEST))
    return nats if nats <= enough else away(tilted_moments(likelihood, q))


def evidence_gradient(
    q: GaussianApproximation, *, likelihood_gradient: Callable[[Array], Array]
) -> Array | None:
    """Gradient in theta of the evidence of a q of `ep`.

    It is ⟨½ (a aᵀ − R), dK⟩ + aᵀ dm with a = K⁻¹(f̂ − m) and R = (K + W⁻¹)⁻¹, the gradient of
    log ∫ N(f; m, K) ∏ t_i(f_i) df with the sites fixed. The sites may be fixed because the evidence
    is stationary in sites that match moments (Rasmussen and Williams 2006, eq. (5.27)). If the
    likelihood has hyper-parameters, their part of the gradient is evaluated at f̂, which is an
    approximation.

    Parameters
    ----------
    q : GaussianApproximation
    likelihood_gradient : callable
        f -> ∂ℓ/∂theta at fixed f, shape (p,).

    Returns
    -------
    ndarray, shape (p,), or None
        ``None`` if it is not finite.

    Notes
    -----
    One O(n³) operation, the inverse of B, or none if the search was ``differentiable``.
    """
    gradient = q.posterior.evidence_gradient(q.alpha) + likelihood_gradient(q.center)
    return gradient if np.isfinite(gradient).all() else None
