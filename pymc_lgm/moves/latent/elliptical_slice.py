"""Elliptical slice sampling of f given theta.

Murray, Adams and MacKay (2010), *Elliptical slice sampling*, AISTATS; Algorithm 5 of Filippone,
Zhong and Girolami (2012).
"""

from __future__ import annotations

import math

from dataclasses import dataclass

import numpy as np

from pymc_lgm.moves.element import Stats
from pymc_lgm.moves.latent.stepping import Info
from pymc_lgm.state import State

__all__ = ["EllipticalSlice", "elliptical_slice"]

MAX_SHRINKS = 100
"""Largest number of angles tried; the bracket has shrunk to a point long before."""


def elliptical_slice(rng: np.random.Generator, state: State) -> tuple[State, Info]:
    """Leave p(f | y, theta) invariant by slice sampling on an ellipse through f.

    With z = f − m and u ~ N(0, K), every point of the ellipse

        f'(α) = m + z cos α + u sin α

    has the same prior density as (z, u); the likelihood alone decides. No tuning, no gradient.

    Notes
    -----
    Cost: one product L ξ, O(n²), and usually 2 to 10 likelihood evaluations. The bracket
    [α − 2π, α] shrinks to the *rejected angle* (Murray et al., Figure 2); Algorithm 5 of
    Filippone et al. prints a shrinkage to 0, which would stop the chain. After `MAX_SHRINKS`
    shrinkages the bracket is a point. If even f itself is not on the slice, its likelihood is not
    reproducible, and f does not change.
    """
    z = state.f - state.mean
    u = state.prior.multiply(rng.standard_normal(state.prior.rank))
    threshold = state.log_likelihood - rng.standard_exponential()
    angle = rng.uniform(0.0, 2 * math.pi)
    low, high = angle - 2 * math.pi, angle
    evaluations = 1
    for _ in range(MAX_SHRINKS):
        f = state.mean + z * math.cos(angle) + u * math.sin(angle)
        log_likelihood = state.at.log_likelihood(f)
        if log_likelihood > threshold:
            moved = state.with_f(f, log_likelihood) or state
            return moved, Info(1.0 / evaluations, evaluations)
        if angle < 0:
            low = angle
        else:
            high = angle
        angle = rng.uniform(low, high)
        evaluations += 1
    return state, Info(0.0, evaluations - 1)


@dataclass(frozen=True)
class EllipticalSlice:
    """Elliptical slice on f, ``repeats`` times. Nothing to tune, no gradient needed."""

    repeats: int = 1
    stats = ("latent_acceptance", "latent_evaluations")
    needs_gradient = needs_curvature = needs_metric = False

    def start(self, state: State, tune: int) -> None:
        """Nothing to learn."""

    def run(
        self, rng: np.random.Generator, state: State, tuning: None, tune: bool
    ) -> tuple[State, None, Stats]:
        """Move f ``repeats`` times."""
        acceptance = evaluations = 0.0
        for _ in range(self.repeats):
            state, info = elliptical_slice(rng, state)
            acceptance += info.latent_acceptance / self.repeats
            evaluations += info.latent_evaluations
        return state, None, {"latent_acceptance": acceptance, "latent_evaluations": evaluations}
