"""What tuning learns: scales, covariances, step sizes. Frozen when tuning ends.

Each rule is three pure functions in a class without behavior of its own: how to start, how to
``update`` after a draw, and which value the kernel should use. The step method holds the result
and stops updating it when tuning ends; a kernel never adapts itself.
"""

from __future__ import annotations

import math

from typing import NamedTuple

import numpy as np

from pymc_lgm.linalg import Array

__all__ = ["ProposalTuning", "StepSizeTuning"]


class ProposalTuning(NamedTuple):
    """A random walk's proposal: covariance learnt from the chain, scale from its acceptance.

    Algorithm 4 of Andrieu and Thoms (2008), *A tutorial on adaptive MCMC*: with γ_t = t^−0.6,

        log s ← log s + γ_t (acceptance − target)
        μ ← μ + γ_t (theta − μ)
        Σ ← Σ + γ_t ((theta − μ)(theta − μ)ᵀ − Σ)

    and proposals from N(0, s² Σ).
    """

    draws: int
    log_scale: float
    mean: Array
    cov: Array
    target: float

    @classmethod
    def start(cls, theta: Array, target: float | None = None) -> ProposalTuning:
        """Start at theta with unit covariance and the scale 2.4/√p of a Gaussian target.

        ``target`` acceptance is 0.44 for one component, 0.35 for two and falls to 0.25 (Roberts,
        Gelman and Gilks 1997; the papers tune to 0.25).
        """
        p = theta.size
        if target is None:
            target = {1: 0.44, 2: 0.35, 3: 0.3}.get(p, 0.25)
        # A tenth of the unit scale: the first proposals must not all be rejected.
        return cls(0, math.log(0.24 / math.sqrt(max(p, 1))), theta.copy(), np.eye(p), target)

    def update(self, theta: Array, acceptance: float) -> ProposalTuning:
        """Learn from one draw."""
        draws = self.draws + 1
        gamma = draws**-0.6
        log_scale = self.log_scale + gamma * (acceptance - self.target)
        if draws < 50:
            # The first draws are on their way to the posterior: their spread is not its spread.
            return self._replace(draws=draws, log_scale=log_scale, mean=theta.copy())
        gamma_cov = (draws - 40) ** -0.6
        delta = theta - self.mean
        cov = self.cov + gamma_cov * (np.outer(delta, delta) - self.cov)
        return self._replace(
            draws=draws, log_scale=log_scale, mean=self.mean + gamma_cov * delta, cov=cov
        )

    @property
    def scale(self) -> float:
        """s."""
        return math.exp(self.log_scale)

    @property
    def factor(self) -> Array:
        """s C with C Cᵀ = Σ, shape (p, p)."""
        # Σ is a convex combination of the identity and outer products: positive definite, but
        # it may come close to singular in some direction; 1e-10 keeps every direction alive.
        p = self.cov.shape[0]
        root = np.linalg.cholesky(self.cov + 1e-10 * (1 + np.trace(self.cov) / p) * np.eye(p))
        return np.asarray(self.scale * root)


class StepSizeTuning(NamedTuple):
    """A step size that brings HMC to a target acceptance, by dual averaging.

    Hoffman and Gelman (2014), *The No-U-Turn sampler*, §3.2, eq. (6), with their constants
    γ = 0.05, t₀ = 10, κ = 0.75.
    """

    draws: int
    log_step: float
    log_step_average: float
    error: float
    anchor: float
    target: float
    log_max: float

    @classmethod
    def start(
        cls, step_size: float = 0.1, target: float = 0.8, maximum: float = math.inf
    ) -> StepSizeTuning:
        """Start from a step size; it never exceeds ``maximum`` (a rotation has no use for more)."""
        log_step = math.log(step_size)
        return cls(0, log_step, log_step, 0.0, math.log(10 * step_size), target, math.log(maximum))

    def update(self, acceptance: float) -> StepSizeTuning:
        """Learn from the acceptance probability of one trajectory."""
        t = self.draws + 1
        error = self.error + (self.target - acceptance - self.error) / (t + 10)
        log_step = min(self.anchor - math.sqrt(t) / 0.05 * error, self.log_max)
        weight = t**-0.75
        average = weight * log_step + (1 - weight) * self.log_step_average
        return self._replace(draws=t, log_step=log_step, log_step_average=average, error=error)

    def value(self, tune: bool) -> float:
        """Step size to use: the last one tried while tuning, their average afterwards."""
        return math.exp(self.log_step if tune else self.log_step_average)
