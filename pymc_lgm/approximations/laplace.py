"""The Laplace approximation of p(f | y, theta), by Newton's method in a = K⁻¹(f − m).

Rasmussen and Williams (2006), Algorithms 3.1 and 5.1; the pseudo-marginal samplers of Filippone
and Girolami (2014) use it as importance distribution.
"""

from __future__ import annotations

import math

from collections.abc import Callable
from typing import Any

import numpy as np

from pymc_lgm.approximations.gaussian import (
    GaussianApproximation,
    Likelihood,
    plausible,
)
from pymc_lgm.gaussian import Prior
from pymc_lgm.gaussian.sites import SiteBlocks, is_finite, nonnegative
from pymc_lgm.linalg import Array, factorize

__all__ = ["ascent", "evidence_gradient", "laplace"]


def laplace(
    likelihood: Likelihood,
    prior: Prior,
    *,
    start: Array | None = None,
    tolerance: float = 1e-2,
    max_iterations: int = 50,
) -> GaussianApproximation | None:
    """Approximate p(f | y, theta) by a Gaussian at its mode.

    Maximizes Ψ = ℓ(f) − ½ aᵀ K a over f = m + K a. A Newton step from any f, with g and W there,
    is a = b − W^½ B⁻¹ W^½ K b, b = W (f − m) + g, B = I + W^½ K W^½; from f = m + K a it is

        a ← a + r − W^½ B⁻¹ W^½ K r,   r = g − a.

    The factor of B is reused (chord steps, O(n²) each) as long as each step reduces the possible
    growth of Ψ fourfold. Otherwise B is factorized again. Steps are halved until Ψ grows. If the
    likelihood is not log-concave, W is clipped at zero; if W has blocks, their eigenvalues are
    clipped.

    Parameters
    ----------
    likelihood : callable
        f -> (ℓ, g, W, third derivative).
    prior : Prior
    start : ndarray, shape (n,), optional
        f at which to start, by default m. An exact sampler needs a result that is a deterministic
        function of theta, so ``start`` must be a fixed vector. The posterior mean of f is a good
        one for every theta. If the first step from ``start`` ends below ℓ(m), the search begins
        again at m.
    tolerance : float
        Stop when Ψ can grow by no more than this. That is half the squared distance to the mode in
        standard deviations of q.
    max_iterations : int
        Largest number of factorizations.

    Returns
    -------
    GaussianApproximation or None
        q with the W and B of the last factorization, or ``None`` if the search meets values that
        are not finite.

    Notes
    -----
    One O(n³) operation per factorization, 1 to 3 from a good start.
    """
    mean = prior.mean
    f = mean if start is None else start
    of_start = log_likelihood, g, W, _ = likelihood(f)
    posterior = None
    if math.isfinite(log_likelihood) and np.isfinite(g).all() and is_finite(W):
        posterior = prior.condition(nonnegative(W, singular=prior.allows_negative_sites))
    overshot = True
    if posterior is not None:
        # Here f is known but its a is not, so the step cannot be halved.
        a, z = posterior.center(posterior.precision_times(f - mean) + g)
        log_likelihood, g, W, _ = likelihood(mean + z)
        objective = log_likelihood - 0.5 * float(z @ a)
        at_mean = of_start if start is None else likelihood(mean)
        overshot = not objective >= at_mean[0] or not np.isfinite(g).all()
    if overshot and start is not None:
        # A start that is good at other theta can have likelihood 0 here; the prior mean rarely has.
        # W at such a start can be huge, and with its B any f would meet the tolerance. The result
        # is still a function of theta alone.
        return laplace(likelihood, prior, tolerance=tolerance, max_iterations=max_iterations)
    if posterior is None:
        return None
    if overshot:
        objective, g, W, _ = of_start
        a, z = np.zeros_like(mean), np.zeros_like(mean)
    iterations = 1
    remaining = math.inf
    while True:
        r = g - a
        step, step_z = posterior.center(r)
        before, remaining = remaining, 0.5 * float(r @ step_z)
        converged = remaining < tolerance
        if converged or iterations >= max_iterations:
            break
        if remaining > 0.25 * before:
            posterior = prior.condition(nonnegative(W, singular=prior.allows_negative_sites))
            if posterior is None:
                return None
            iterations += 1
            step, step_z = posterior.center(r)
            remaining = math.inf
        reached = ascent(likelihood, mean, (a, z), (step, step_z), objective)
        if reached is None:
            return None
        a, z, g, W, objective = reached
    converged = converged and plausible(objective, at_mean[0], mean.size)
    return GaussianApproximation.at(
        posterior, a, z, objective, iterations=iterations, converged=converged
    )


def ascent(
    likelihood: Likelihood,
    mean: Array,
    here: tuple[Array, Array],
    step: tuple[Array, Array],
    objective: float,
) -> tuple[Array, Array, Array, Any, float] | None:
    """Take a Newton step, halved until Ψ does not fall.

    Parameters
    ----------
    likelihood : callable
        f -> (ℓ, g, W, third derivative).
    mean : ndarray, shape (n,)
    here, step : tuple of ndarray
        a and K a, and their changes.
    objective : float
        Ψ at a.

    Returns
    -------
    tuple or None
        a, K a, g, W and Ψ after the step; ``None`` if 29 halvings do not keep Ψ from falling.
    """
    for halvings in range(30):
        share = 0.5**halvings
        a = here[0] + share * step[0]
        z = here[1] + share * step[1]
        log_likelihood, g, W, _ = likelihood(mean + z)
        reached = log_likelihood - 0.5 * float(z @ a)
        if reached >= objective - 1e-9 * abs(objective) and np.isfinite(g).all():
            return a, z, g, W, reached
    return None


def evidence_gradient(
    q: GaussianApproximation,
    likelihood: Likelihood,
    *,
    likelihood_vjp: Callable[[Array, Array, Array], Array],
    curvature_gradient: Callable[[Array, Array], Array] | None = None,
) -> Array | None:
    """Gradient in theta of Laplace's evidence, log q(y | theta) = ℓ(f̂) − ½ ẑᵀa − ½ log|B|.

    With Σ = (K⁻¹ + W)⁻¹, R = (K + W⁻¹)⁻¹, u_i = Σ_ii where W_i is positive and 0 where it has been
    clipped, and the derivatives dℓ, dg, dW in theta at fixed f,

        d log q = ⟨½ a aᵀ − ½ R + v aᵀ, dK⟩ + (a + v)ᵀ dm + dℓ + (K v)ᵀ dg − ½ uᵀ dW.

    The terms in v are the dependence on the mode: sᵀ df̂ with s = ½ u ∘ ∂³ℓ/∂f³. From f̂ = m + K
    g(f̂, theta), (I + K W) df̂ = dm + dK a + K dg, with W before clipping, so v = (I + W K)⁻¹ s.

    If observations read several f_i, u has the blocks Σ_g of Σ, uᵀ dW is Σ_g ⟨Σ_g, dW_g⟩, and s =
    −½ ∂/∂f Σ_g ⟨Σ_g, W_g(f)⟩. The clipping of blocks is ignored here, so the gradient is
    approximate if a block is clipped.

    Parameters
    ----------
    q : GaussianApproximation
        A result of `laplace` with W and B at the mode, that is of a search that began at the mode.
    likelihood : callable
        f -> (ℓ, g, W, third derivative).
    likelihood_vjp : callable
        (f, v, u) -> ∂/∂theta of ℓ + ⟨v, g⟩ + ⟨u, W⟩ at fixed f, shape (p,).
    curvature_gradient : callable, optional
        (f, u) -> ∂/∂f of Σ_g ⟨u_g, W_g⟩, shape (n,). Needed if W has blocks.

    Returns
    -------
    ndarray, shape (p,), or None
        ``None`` if K⁻¹ + W, with W before clipping, is not positive definite. Then f̂ is a saddle
        point.

    Notes
    -----
    One O(n³) operation, the inverse of B. If r of the W_i are clipped, O(n² r) more and a Cholesky
    factorization of an r × r matrix. Rasmussen and Williams (2006), Algorithm 5.1 and eqs. (5.21)
    to (5.24), extended by the mean, by hyper-parameters of the likelihood and by clipped W_i.
    """
    _, _, W, third = likelihood(q.center)
    posterior = q.posterior.differentiable()
    if isinstance(W, SiteBlocks):
        assert curvature_gradient is not None
        blocks = posterior.site_covariances
        v = posterior.alpha(-0.5 * curvature_gradient(q.center, blocks))
        Kv = q.prior.covariance_times(v)
        return posterior.evidence_gradient(q.alpha, v) + likelihood_vjp(q.center, Kv, -0.5 * blocks)
    u = np.where(W > 0.0, posterior.variances, 0.0)
    s = 0.5 * u * third
    v = posterior.alpha(s)
    negative = np.flatnonzero(W < 0.0)
    if negative.size:
        # I + W K = I + W⁺ K − E D² Eᵀ K. The columns of E select the negative W_i = −D_i².
        D = np.sqrt(-W[negative])
        C = factorize(np.eye(D.size) - D[:, None] * posterior.block(negative) * D)
        if C is None:
            return None
        s[negative] += D * C.inverse_times(D * q.prior.covariance_times(v)[negative])
        v = posterior.alpha(s)
    Kv = q.prior.covariance_times(v)
    return posterior.evidence_gradient(q.alpha, v) + likelihood_vjp(q.center, Kv, -0.5 * u)
