"""Simplified manifold MALA on theta: a Langevin proposal whose covariance follows the target.

Girolami and Calderhead (2011), *Riemann manifold Langevin and Hamiltonian Monte Carlo methods*,
JRSS B 73, §5; Filippone, Zhong and Girolami (2012), §4.4.2, Algorithm 4.
"""

from __future__ import annotations

import math

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pymc_lgm.adaptation import StepSizeTuning
from pymc_lgm.linalg import Array, tally
from pymc_lgm.moves.element import Stats
from pymc_lgm.state import State, acceptance_probability
from pymc_lgm.targets.target import Target

__all__ = ["SMMALA", "SMMALAInfo", "smmala"]

FLOOR = 1e-6
"""Smallest eigenvalue of a metric: the widest proposal has standard deviation 1000 ε."""


class SMMALAInfo(NamedTuple):
    """Statistics of one proposal."""

    theta_acceptance: float
    """Acceptance probability."""


class _Proposal(NamedTuple):
    """N(theta + ½ ε² G⁻¹∇, ε² G⁻¹) as its mean and ε² G⁻¹ = V diag(scale²) Vᵀ."""

    mean: Array
    V: Array
    scale: Array

    def draw(self, rng: np.random.Generator) -> Array:
        return self.mean + self.V @ (self.scale * rng.standard_normal(self.mean.size))

    def log_density(self, theta: Array) -> float:
        """Up to a constant that every theta shares."""
        xi = self.V.T @ (theta - self.mean) / self.scale
        return -0.5 * float(xi @ xi) - float(np.log(self.scale).sum())


def smmala(
    rng: np.random.Generator, target: Target, *, step_size: float
) -> tuple[State, SMMALAInfo]:
    """Leave the target π invariant by proposals q that climb along G⁻¹∇ and spread as G⁻¹.

        theta' ~ q(. | theta) = N(theta + ½ ε² G⁻¹∇ log π, ε² G⁻¹),

    accepted with min(1, π(theta') q(theta | theta') / (π(theta) q(theta' | theta))), where ∇ and G
    are those at the condition.

    Parameters
    ----------
    rng : numpy.random.Generator
    target : Target
        With ``geometry``.
    step_size : float
        ε: about 1 where the target is Gaussian and G its precision.

    Returns
    -------
    State, SMMALAInfo
        The same state if the proposal is rejected. One evaluation of the target, two of its
        geometry.

    Notes
    -----
    Any positive definite G that is a function of theta is valid. Eigenvalues are replaced by
    their absolute values, as in Betancourt (2013), *A general metric for Riemannian manifold
    Hamiltonian Monte Carlo*, and by 1e-6 at least.
    """
    state = target.state
    forward = _proposal(target, state, step_size)
    if forward is None:
        return state, SMMALAInfo(0.0)
    log_density, proposed = target.evaluate(forward.draw(rng))
    backward = None if proposed is None else _proposal(target, proposed, step_size)
    if proposed is None or backward is None:
        return state, SMMALAInfo(0.0)
    log_ratio = log_density - target.log_density
    log_ratio += backward.log_density(state.theta) - forward.log_density(proposed.theta)
    if math.isnan(log_ratio):
        tally.numerical_rejections += 1
        return state, SMMALAInfo(0.0)
    info = SMMALAInfo(acceptance_probability(log_ratio))
    return (proposed if rng.uniform() < info.theta_acceptance else state), info


def _proposal(target: Target, state: State, step_size: float) -> _Proposal | None:
    """q(. | theta); ``None``, counted as a rejection, if the geometry is not finite.

    No proposal is made from such a theta, and none that arrives there is accepted.
    """
    gradient, G = target.geometry(state)
    if not (np.isfinite(gradient).all() and np.isfinite(G).all()):
        tally.numerical_rejections += 1
        return None
    eigenvalues, V = np.linalg.eigh(G)
    scale = step_size / np.sqrt(np.maximum(np.abs(eigenvalues), FLOOR))
    mean = state.theta + 0.5 * V @ (scale**2 * (V.T @ gradient))
    return _Proposal(mean, V, scale)


@dataclass(frozen=True)
class SMMALA:
    """Simplified manifold MALA; learns the step size."""

    step_size: float = 0.5
    target_accept: float = 0.57
    stats = ("theta_acceptance", "theta_step_size")
    needs_gradient = True
    tunes = "step_size"

    def start(self, state: State, tune: int) -> StepSizeTuning:
        """Begin with ``step_size``."""
        return StepSizeTuning.start(self.step_size, self.target_accept)

    def run(
        self, rng: np.random.Generator, target: Target, tuning: StepSizeTuning, tune: bool
    ) -> tuple[State, StepSizeTuning, Stats]:
        """Propose once."""
        step_size = tuning.value(tune)
        state, info = smmala(rng, target, step_size=step_size)
        if tune:
            tuning = tuning.update(info.theta_acceptance)
        return state, tuning, info._asdict() | {"theta_step_size": step_size}
