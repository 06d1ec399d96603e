"""The Laplace approximation of p(f | y, theta): Newton's method in the dual variable.

Rasmussen and Williams (2006), Algorithms 3.1 and 5.1; the pseudo-marginal samplers of Filippone
and Girolami (2014) use it as importance distribution.
"""

from __future__ import annotations

import math

from typing import Protocol

import numpy as np

from pymc_lgm.approximations.gaussian import GaussianApproximation
from pymc_lgm.linalg import Array, Covariance

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

    Maximizes Ψ(a) = ℓ(m + K a) − ½ aᵀ K a by Newton steps: with g and W at the current f,

        b = W (f − m) + g,   a ← b − W^½ B⁻¹ W^½ K b,   B = I + W^½ K W^½,

    halved until Ψ grows. Where the likelihood is not log-concave W is clipped at zero.

    Parameters
    ----------
    likelihood : callable
        f -> (ℓ, g, W, third derivative).
    mean : ndarray, shape (n,)
    covariance : Covariance
    start : ndarray, shape (n,), optional
        Dual vector a at which to start, by default zero: f = m. Any fixed vector makes the result
        a deterministic function of theta, as an exact sampler needs.
    tolerance : float
        Stop when a step gains less than this in Ψ. Newton's method squares its error: a step
        that gained 1e-2 leaves about 1e-4.
    max_iterations : int

    Returns
    -------
    GaussianApproximation or None
        Centered on the last Newton step, with the W and B of that step: no factorization is
        spent on a closer look. ``None`` if the search leaves the numbers.

    Notes
    -----
    One O(n³) operation a step, typically 2 to 4 steps from a good start.
    """
    a = np.zeros(mean.size) if start is None else start
    z = covariance.covariance_times(a)
    log_likelihood, gradient, W, _ = likelihood(mean + z)
    objective = log_likelihood - 0.5 * float(z @ a)
    if not math.isfinite(objective):
        # A start that is good elsewhere can be impossible here (counts overflow): the prior's
        # mean is a start everywhere. Still a function of theta alone.
        if start is None:
            return None
        return laplace(
            likelihood,
            mean,
            covariance,
            tolerance=tolerance,
            max_iterations=max_iterations,
        )
    iterations, converged = 0, False
    while not converged and iterations < max_iterations:
        iterations += 1
        precision = np.maximum(W, 0.0)
        B = covariance.condition(precision)
        if B is None or not np.isfinite(gradient).all():
            return None
        root = np.sqrt(precision)
        b = precision * z + gradient
        newton = b - root * B.inverse_times(root * covariance.covariance_times(b))
        step, step_z = newton - a, covariance.covariance_times(newton - a)
        share, gain = 1.0, -math.inf
        while share > 1e-4:
            a_next, z_next = a + share * step, z + share * step_z
            log_likelihood, gradient, W, _ = likelihood(mean + z_next)
            gain = log_likelihood - 0.5 * float(z_next @ a_next) - objective
            if gain > -1e-9 * (1 + abs(objective)):
                break
            share *= 0.5
        else:
            return None
        a, z, objective = a_next, z_next, objective + gain
        converged = gain < tolerance
    assert B is not None
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
