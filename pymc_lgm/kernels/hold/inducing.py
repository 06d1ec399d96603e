"""Sufficient augmentation of a process with inducing variables: theta moves with u held fixed.

u = R v, R Rᵀ = K_uu(theta), are the values at the inducing points, and u ~ N(0, K_uu). With v held
fixed, all of f = V(theta) v moves with theta. With u held fixed, f moves only between the inducing
points, as far as the covariance interpolates differently. If a likelihood truncates f on all sides,
as a robust maximum does, theta can move only with u fixed.
"""

from __future__ import annotations

import math

import numpy as np

from pymc_lgm.kernels.hold.target import Target
from pymc_lgm.linalg import Array
from pymc_lgm.priors import InducingPrior, Prior
from pymc_lgm.state import State

__all__ = ["holds_values", "inducing"]


def holds_values(prior: Prior) -> bool:
    """Whether a prior can compute the values u from its coordinates v."""
    return isinstance(prior, InducingPrior) and prior.has_values


def inducing(rng: np.random.Generator, state: State) -> Target:
    """Hold u = R v: log N(u; 0, K_uu) + ℓ(V R⁻¹ u, theta) + log p(theta).

    In the coordinates v of the chain, N(u; 0, K_uu) = N(v; 0, I) / |R|. An evaluation costs one V,
    O(n m²), a triangular product and a triangular solve, O(m²).
    """
    u = _of(state).values(state.f)

    def log_density(at: State) -> float:
        return _of(at).log_density_of_values(at.f) + at.log_likelihood + at.log_prior

    def evaluate(theta: Array) -> tuple[float, State | None]:
        at = state.with_theta(theta, lambda prior: _known(prior).with_values(u))
        return (-math.inf, None) if at is None else (log_density(at), at)

    return Target(state, log_density(state), evaluate)


def _of(state: State) -> InducingPrior:
    return _known(state.prior)


def _known(prior: Prior) -> InducingPrior:
    assert isinstance(prior, InducingPrior)
    return prior
