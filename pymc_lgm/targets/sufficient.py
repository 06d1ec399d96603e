"""Sufficient augmentation (SA): theta moves with f held fixed.

Yu and Meng (2011); §3 of Filippone, Zhong and Girolami (2012). It mixes well if the data are
informative about f, as large counts are, and slowly if they are not, as with binary outcomes.
Gradient: appendix A.1.3 there.

If f = f(u; theta) is a function of theta and of values u, theta moves with u held. If a process is
seen through inducing variables, u = R v are the values at the inducing points, R Rᵀ = K_uu(theta)
and u ~ N(0, K_uu). With v held, f = V(theta) v moves with theta as a whole; with u held it moves
between the inducing points alone, as far as the covariance interpolates otherwise. If a likelihood
cuts f off on all sides, as a robust maximum does, theta can move in no other way. In a sum, u are
the latent variables, and the linear predictor c(theta) + A(theta) u follows.
"""

from __future__ import annotations

import math

from dataclasses import dataclass

import numpy as np

from pymc_lgm.linalg import Array
from pymc_lgm.state import State
from pymc_lgm.targets.target import Target, explicit_gradient

__all__ = ["SufficientTarget", "ValuesTarget"]


@dataclass(frozen=True, eq=False)
class SufficientTarget(Target):
    """Hold f: log N(f; m(theta), K(theta)) + ℓ(f, theta) + log p(theta).

    The likelihood is constant unless theta enters it. An evaluation costs one factorization and one
    triangular solve; if theta changes only the mean or the likelihood, no factorization.

    With a = K⁻¹(f − m) the gradient is ⟨½ (a aᵀ − K⁻¹), ∂K⟩ + aᵀ ∂m plus that of ℓ + log p at fixed
    f. It costs one O(n³) operation, an inverse from the factor.

    If f is a function of theta and of values, these are held fixed: see `ValuesTarget`.
    """

    @classmethod
    def fix(cls, rng: np.random.Generator, state: State) -> Target:
        """Hold the f of a state, or its values."""
        if state.prior.has_values:
            return ValuesTarget.fix(rng, state)
        return cls(state, cls.log_density_at(state))

    @staticmethod
    def log_density_at(at: State) -> float:
        """Log density at a state with the f of this target."""
        return at.prior.log_density(at.f) + at.log_likelihood + at.log_prior

    def evaluate(self, theta: Array) -> tuple[float, State | None]:
        """Keep f; only its density changes."""
        at = self.state.with_theta(theta, lambda prior: self.state.f)
        return (-math.inf, None) if at is None else (self.log_density_at(at), at)

    def gradient(self, at: State) -> Array:
        """See the class."""
        return explicit_gradient(at, at.theta) + at.prior.log_density_gradient(at.f)


@dataclass(frozen=True, eq=False)
class ValuesTarget(Target):
    """Hold u: log p(u | theta) + ℓ(f(u; theta), theta) + log p(theta).

    It is the density of theta given u and y. An evaluation costs one prior and f(u; theta).
    """

    u: Array

    @classmethod
    def fix(cls, rng: np.random.Generator, state: State) -> ValuesTarget:
        """Hold the values of a state."""
        return cls(state, cls.log_density_at(state), state.prior.values(state.f))

    @staticmethod
    def log_density_at(at: State) -> float:
        """Log density at a state with the values of this target."""
        return at.prior.log_density_of_values(at.f) + at.log_likelihood + at.log_prior

    def evaluate(self, theta: Array) -> tuple[float, State | None]:
        """Let f follow theta."""
        at = self.state.with_theta(theta, lambda prior: prior.with_values(self.u))
        return (-math.inf, None) if at is None else (self.log_density_at(at), at)
