"""The marginal auxiliary gradient sampler of f given theta, "mGrad".

Titsias and Papaspiliopoulos (2018), *Auxiliary gradient-based sampling algorithms*, JRSS B 80. A
noisy copy u of f, moved along the gradient, is exact data for a Gaussian posterior that proposes
f'; u is then integrated out. The prior is taken into account exactly, the likelihood by its
gradient.
"""

from __future__ import annotations

import math

from dataclasses import dataclass

import numpy as np

from pymc_lgm.gaussian import Posterior, Prior
from pymc_lgm.linalg import Array, tally
from pymc_lgm.moves.latent.stepping import Force, Info, Stepping, accept
from pymc_lgm.state import State

__all__ = ["AuxiliaryGradient", "Smoother", "auxiliary_gradient"]


@dataclass(frozen=True, eq=False)
class Smoother:
    """P = K (K + s I)⁻¹, which smooths, and (I + P)⁻¹, with s = ½ δ; two factorizations per δ.

    With B_s = I + K/s, and since I + P = (2 K + s I)(K + s I)⁻¹,

        P = I − B_s⁻¹,   (I + P)⁻¹ = ½ (I + B_{s/2}⁻¹).

    Attributes
    ----------
    given_noise, given_half : Posterior
        The prior conditioned on data with noise variances s and s / 2.
    """

    given_noise: Posterior
    given_half: Posterior

    def smooth(self, x: Array) -> Array:
        """P x."""
        return x - self.given_noise.weighted_residual(x)

    def solve(self, x: Array) -> Array:
        """(I + P)⁻¹ x."""
        result: Array = 0.5 * (x + self.given_half.weighted_residual(x))
        return result


def smoother(prior: Prior, delta: float) -> Smoother | None:
    """Factorize for one δ; ``None``, and counted, if it cannot be. Two O(n³) operations."""
    given_noise = prior.condition(np.full(prior.n, 2.0 / delta))
    given_half = prior.condition(np.full(prior.n, 4.0 / delta))
    if given_noise is None or given_half is None:
        tally.numerical_rejections += 1
        return None
    return Smoother(given_noise, given_half)


def auxiliary_gradient(
    rng: np.random.Generator, state: State, *, step_size: float
) -> tuple[State, Info]:
    """Leave p(f | y, theta) invariant by a Gaussian proposal that is exact for the prior.

    With z = f − m, s = ½ δ, P = K (K + s I)⁻¹ and g = ∇ℓ(f), u ~ N(z + s g, s I) and z' from
    the density proportional to N(z'; 0, K) N(z'; u, s I), with u integrated out:

        z' ~ N(P (z + s g), s P (I + P)).

    Without the gradient this is reversible in the prior, as P K P + s P (I + P) = K says: the prior
    cancels, and the log of the acceptance ratio is

        ℓ(f') − ℓ(f) + h(z, f') − h(z', f),   h(z', f) = (z' − P (z + ½ s g))ᵀ (I + P)⁻¹ g.

    Parameters
    ----------
    rng : numpy.random.Generator
    state : State
    step_size : float
        δ, a variance. As δ grows the proposal tends to the prior moved along K g, and as it
        shrinks to f itself, rough directions first.

    Returns
    -------
    State, Info
        The same state if the proposal is rejected.

    Notes
    -----
    Requires the gradient of the likelihood. Each new pair of K and δ costs two O(n³) operations. A
    proposal then costs five products or solves of O(n²) and two evaluations of the gradient.
    """
    P = state.at.last("smoother", step_size, lambda: smoother(state.prior, step_size))
    if P is None:
        return state, Info(0.0, 0)
    model, theta = state.model, state.theta
    s = 0.5 * step_size
    z = state.f - state.mean
    _, g = model.log_likelihood_gradient(state.f, theta)
    z_new = _propose(rng, state.prior, P, z + s * g, s)
    f = state.mean + z_new
    log_likelihood, g_new = model.log_likelihood_gradient(f, theta)
    log_ratio = log_likelihood - state.log_likelihood
    log_ratio += _tilt(P, z, z_new, g_new, s) - _tilt(P, z_new, z, g, s)
    return accept(rng, state, Force(f, log_likelihood, g_new), log_ratio, 2)


def _propose(rng: np.random.Generator, prior: Prior, P: Smoother, center: Array, s: float) -> Array:
    """A draw from N(P x, s P (I + P)) for x = z + s g.

    Matheron's rule for u and z' at once: with v ~ N(0, K) and ξ ~ N(0, I), v + P (x − v + √(2 s) ξ)
    has covariance (I − P) K (I − P) + 2 s P², which is s P (I + P).
    """
    v = prior.multiply(rng.standard_normal(prior.rank))
    noise = math.sqrt(2.0 * s) * rng.standard_normal(prior.n)
    return v + P.smooth(center - v + noise)


def _tilt(P: Smoother, z_new: Array, z: Array, g: Array, s: float) -> float:
    """h(z', f): by how much the gradient g at z has raised the log density of z'."""
    return float((z_new - P.smooth(z + 0.5 * s * g)) @ P.solve(g))


@dataclass(frozen=True)
class AuxiliaryGradient(Stepping):
    """Auxiliary gradient sampler of f; learns δ. Two factorizations whenever theta or δ moves."""

    target_accept: float = 0.55

    def _maximum(self, state: State) -> float:
        # The trace is above every eigenvalue of K, so P is almost 0 at a hundred times the trace.
        return 100.0 * float(state.prior.variances.sum())

    def _move(self, rng: np.random.Generator, state: State, step_size: float) -> tuple[State, Info]:
        return auxiliary_gradient(rng, state, step_size=step_size)
