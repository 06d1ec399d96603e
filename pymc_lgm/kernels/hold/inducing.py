"""Sufficient augmentation of a process seen through inducing variables: theta moves with u held.

u = R v, R Rᵀ = K_uu(theta), are the values at the inducing points, and u ~ N(0, K_uu). With v held,
f = V(theta) v moves with theta as a whole; with u held it moves between the inducing points alone,
as far as the covariance interpolates otherwise. Where a likelihood cuts f off on all sides, as a
robust maximum does, that is all that it lets theta do.
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
    """Whether a prior knows the values u of its coordinates v."""
    return isinstance(prior, InducingPrior) and prior.has_values


def inducing(rng: np.random.Generator, state: State) -> Target:
    """Hold u = R v: log N(u; 0, K_uu) + ℓ(V R⁻¹ u, theta) + log p(theta).

    In v, which is what the chain has, N(u; 0, K_uu) = N(v; 0, I) / |R|. One V an evaluation,
    O(n m²), and a triangular product and a solution, O(m²).
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
