"""Sufficient augmentation (SA): theta moves with f held fixed.

Yu and Meng (2011); §3 of Filippone, Zhong and Girolami (2012). Mixes well where the data say
little about f, and slowly where they say much.
"""

from __future__ import annotations

import math

import numpy as np

from pymc_lgm.linalg import Array
from pymc_lgm.parameterizations.target import Target
from pymc_lgm.state import State

__all__ = ["sufficient"]


def sufficient(rng: np.random.Generator, state: State) -> Target:
    """Hold f: log N(f; m(theta), K(theta)) + ℓ(f, theta) + log p(theta).

    The likelihood is constant unless theta enters it. One factorization an evaluation, and one
    triangular solve; none if theta changes only the mean or the likelihood.
    """
    f = state.f

    def log_density(at: State) -> float:
        return at.prior.log_density(at.f - at.mean) + at.log_likelihood + at.log_prior

    def evaluate(theta: Array) -> tuple[float, State | None]:
        at = state.with_theta(theta, lambda mean, prior: f)
        return (-math.inf, None) if at is None else (log_density(at), at)

    return Target(state, log_density(state), evaluate)
