"""The Laplace approximation of p(f | y, theta): Newton's method in the dual variable.

Rasmussen and Williams (2006), Algorithms 3.1 and 5.1; the pseudo-marginal samplers of Filippone
and Girolami (2014) use it as importance distribution.
"""

from __future__ import annotations

import math

from typing import Protocol

import numpy as np

from pymc_lgm.approximations.gaussian import GaussianApproximation
from pymc_lgm.linalg import Array, CholeskyFactor, Covariance

__all__ = ["Likelihood", "laplace"]


class Likelihood(Protocol):
    """ℓ and its derivatives in f, at one theta: f -> (ℓ, g, W, ∂³ℓ/∂f³)."""

    def __call__(self, f: Array) -> tuple[float, Array, Array, Array]:
        """Evaluate at f, shape (n,)."""


def laplace(
    likelihood: Likelihood,
    mean: Array,
    covariance: Covariance,
    *,
    start: Array | None = None,
    tolerance: float = 1e-2,
    max_iterations: int = 50,
) -> GaussianApproximation | None:
    """Approximate p(f | y, theta) by a Gaussian at its mode.

    Maximizes Ψ = ℓ(f) − ½ aᵀ K a over f = m + K a. A Newton step from any f, with g and W there,
    is a = b − W^½ B⁻¹ W^½ K b, b = W (f − m) + g, B = I + W^½ K W^½; from f = m + K a it is

        a ← a + r − W^½ B⁻¹ W^½ K r,   r = g − a.

    B is kept for as long as steps with it gain fourfold (chord steps, O(n²) each), and factorized
    anew when they do not; steps are halved until Ψ grows. Where the likelihood is not log-concave
    W is clipped at zero.

    Parameters
    ----------
    likelihood : callable
        f -> (ℓ, g, W, third derivative).
    mean : ndarray, shape (n,)
    covariance : Covariance
    start : ndarray, shape (n,), optional
        f at which to start, by default m. Any fixed vector makes the result a deterministic
        function of theta, as an exact sampler needs; the center of the posterior of f is close
        for every theta.
    tolerance : float
        Stop when Ψ can grow by no more than this: half the squared distance to the mode in
        standard deviations of q.
    max_iterations : int
        Factorizations before giving up.

    Returns
    -------
    GaussianApproximation or None
        With the W and B of the last factorization. ``None`` if the search leaves the numbers.

    Notes
    -----
    One O(n³) operation a factorization, 1 to 3 from a good start.
    """
    f = mean if start is None else start
    log_likelihood, g, W, _ = likelihood(f)
    if not (math.isfinite(log_likelihood) and np.isfinite(g).all()):
        # A start that is good elsewhere can be impossible here; the prior's mean seldom is. Still
        # a function of theta alone.
        if start is None:
            return None
        return laplace(
            likelihood, mean, covariance, tolerance=tolerance, max_iterations=max_iterations
        )
    precision = np.maximum(W, 0.0)
    B = covariance.condition(precision)
    if B is None:
        return None
    iterations = 1
    # The first step knows f and not its a, so it cannot be halved: where it overshoots, begin at
    # a = 0 instead, that is f = m.
    a = _newton(covariance, B, precision, precision * (f - mean) + g)
    z = covariance.covariance_times(a)
    log_likelihood, g, W, _ = likelihood(mean + z)
    objective = log_likelihood - 0.5 * float(z @ a)
    at_mean = likelihood(mean)
    if not objective > at_mean[0] or not np.isfinite(g).all():
        objective, g, W, _ = at_mean
        a, z = np.zeros_like(mean), np.zeros_like(mean)
        if not (math.isfinite(objective) and np.isfinite(g).all()):
            return None
    remaining = math.inf
    while True:
        r = g - a
        step = _newton(covariance, B, precision, r)
        step_z = covariance.covariance_times(step)
        before, remaining = remaining, 0.5 * float(r @ step_z)
        converged = remaining < tolerance
        if converged or iterations >= max_iterations:
            break
        if remaining > 0.25 * before:
            precision = np.maximum(W, 0.0)
            B = covariance.condition(precision)
            if B is None:
                return None
            iterations += 1
            step = _newton(covariance, B, precision, r)
            step_z = covariance.covariance_times(step)
            remaining = math.inf
        for halvings in range(30):
            share = 0.5**halvings
            a_next, z_next = a + share * step, z + share * step_z
            log_likelihood, g_next, W_next, _ = likelihood(mean + z_next)
            reached = log_likelihood - 0.5 * float(z_next @ a_next)
            if reached >= objective - 1e-9 * abs(objective) and np.isfinite(g_next).all():
                break
        else:
            return None
        a, z, g, W, objective = a_next, z_next, g_next, W_next, reached
    return GaussianApproximation(
        mean=mean,
        covariance=covariance,
        dual=a,
        center=mean + z,
        precision=precision,
        B=B,
        log_evidence=objective - 0.5 * B.log_determinant,
        iterations=iterations,
        converged=converged,
    )


def _newton(covariance: Covariance, B: CholeskyFactor, W: Array, b: Array) -> Array:
    """(I + W K)⁻¹ b = b − W^½ B⁻¹ W^½ K b."""
    root = np.sqrt(W)
    solved: Array = b - root * B.inverse_times(root * covariance.covariance_times(b))
    return solved
