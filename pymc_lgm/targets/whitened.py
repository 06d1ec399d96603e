"""Ancillary augmentation (AA): theta moves with the whitened variables held fixed.

Also called whitening, or the non-centered parameterization. §3 of Filippone, Zhong and Girolami
(2012); Murray and Adams (2010), "prior-white". It mixes well if each observation is weakly
informative: counts, binary outcomes. Gradient: appendix A.2.2 of the former.
"""

from __future__ import annotations

import math

from dataclasses import dataclass

import numpy as np

from pymc_lgm.linalg import Array
from pymc_lgm.state import State
from pymc_lgm.targets.target import Target, explicit_gradient

__all__ = ["WhitenedTarget"]


@dataclass(frozen=True, eq=False)
class WhitenedTarget(Target):
    """Hold ν = L⁻¹(f − m): ℓ(m(theta) + L(theta) ν, theta) + log p(theta).

    ν ~ N(0, I) for every theta, so its density is constant. An evaluation costs one factorization,
    one triangular product and one likelihood. The f of the new state has moved with theta.

    With g = ∂ℓ/∂f the gradient is gᵀ (∂m + ∂L ν) plus that of ℓ + log p at fixed f. ∂L is applied
    in reverse mode: two O(n³) operations for any p.
    """

    nu: Array

    @classmethod
    def fix(cls, rng: np.random.Generator, state: State) -> WhitenedTarget:
        """Hold the ν of a state."""
        nu = state.prior.solve(state.f - state.mean)
        return cls(state, cls.log_density_at(state), nu)

    @staticmethod
    def log_density_at(at: State) -> float:
        """Log density at a state with the ν of this target."""
        return at.log_likelihood + at.log_prior

    def evaluate(self, theta: Array) -> tuple[float, State | None]:
        """Let f follow theta."""
        at = self.state.with_theta(theta, lambda prior: prior.mean + prior.multiply(self.nu))
        return (-math.inf, None) if at is None else (self.log_density_at(at), at)

    def gradient(self, at: State) -> Array:
        """See the class."""
        _, g = at.model.log_likelihood_gradient(at.f, at.theta)
        return explicit_gradient(at, at.theta) + at.prior.whitened_gradient(self.nu, g)
