"""Ancillary augmentation (AA): theta moves with the whitened variables held fixed.

Also called whitening, or the non-centered parameterization. §3 of Filippone, Zhong and Girolami
(2012); Murray and Adams (2010), "prior-white". Mixes well where the data say little *each*:
counts, binary outcomes.
"""

from __future__ import annotations

import math

import numpy as np

from pymc_lgm.linalg import Array
from pymc_lgm.parameterizations.target import Target
from pymc_lgm.state import State

__all__ = ["whitened"]


def whitened(rng: np.random.Generator, state: State) -> Target:
    """Hold ν = L⁻¹(f − m): ℓ(m(theta) + L(theta) ν, theta) + log p(theta).

    ν ~ N(0, I) whatever theta is, so its density is constant. One factorization an evaluation,
    one triangular product, one likelihood. The new state's f has moved with theta.
    """
    nu = state.prior.solve(state.f - state.mean)

    def log_density(at: State) -> float:
        return at.log_likelihood + at.log_prior

    def evaluate(theta: Array) -> tuple[float, State | None]:
        at = state.with_theta(theta, lambda mean, prior: mean + prior.multiply(nu))
        return (-math.inf, None) if at is None else (log_density(at), at)

    return Target(state, log_density(state), evaluate)
