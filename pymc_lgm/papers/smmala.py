"""Simplified manifold MALA on theta: a Langevin proposal whose covariance follows the target.

Girolami and Calderhead (2011), *Riemann manifold Langevin and Hamiltonian Monte Carlo methods*,
JRSS B 73, §5; Filippone, Zhong and Girolami (2012), §4.4.2, Algorithm 4, with the metrics of
appendices A.1.4 and A.2.3.
"""

from __future__ import annotations

import math

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from pymc_lgm.adaptation import StepSizeTuning
from pymc_lgm.gaussian.sites import as_operator, nonnegative
from pymc_lgm.linalg import Array, tally
from pymc_lgm.moves.element import Stats
from pymc_lgm.state import State, acceptance_probability
from pymc_lgm.targets.target import Target, explicit_gradient
from pymc_lgm.targets.whitened import WhitenedTarget

__all__ = ["SMMALA", "SMMALAInfo", "metric", "smmala"]

FLOOR = 1e-6
"""Smallest eigenvalue of a metric: the widest proposal has standard deviation 1000 ε."""

STEP = 1e-4
"""Step of central differences in theta, which err by the third derivative times 2e-9."""


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
    are those at the condition. G is the `metric`.

    Parameters
    ----------
    rng : numpy.random.Generator
    target : SufficientTarget or WhitenedTarget
    step_size : float
        ε: about 1 where the target is Gaussian and G its precision.

    Returns
    -------
    State, SMMALAInfo
        The same state if the proposal is rejected. One evaluation of the target, two of its
        gradient and of the metric.

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
    """q(. | theta); ``None``, counted as a rejection, if ∇ or G is not finite.

    No proposal is made from such a theta, and none that arrives there is accepted.
    """
    gradient, G = target.gradient(state), metric(target, state)
    if not (np.isfinite(gradient).all() and np.isfinite(G).all()):
        tally.numerical_rejections += 1
        return None
    eigenvalues, V = np.linalg.eigh(G)
    scale = step_size / np.sqrt(np.maximum(np.abs(eigenvalues), FLOOR))
    mean = state.theta + 0.5 * V @ (scale**2 * (V.T @ gradient))
    return _Proposal(mean, V, scale)


def metric(target: Target, at: State) -> Array:
    """G at a state that the target has returned: a symmetric array (p, p).

    It is the expected curvature of the density in m and K = L Lᵀ, minus the second derivatives of
    ℓ + log p at fixed f. With ν held, the former is Jᵀ max(W, 0) J, J = ∂f/∂theta. W is the
    observed curvature, not the expected one; for a canonical link they are equal. With f held, it
    is the Fisher information of N(m, K). With D_j = L⁻¹ ∂_jL = −∂_j(L⁻¹) L it is

        G_jk = ½ tr(K⁻¹ ∂_jK K⁻¹ ∂_kK) + ∂_jmᵀ K⁻¹ ∂_km
             = tr(D_j D_k) + tr(D_j D_kᵀ) + (L⁻¹ ∂_jm)ᵀ (L⁻¹ ∂_km).

    Derivatives are central differences with a step of `STEP`. A metric need not be exact to be
    valid, and a prior then needs no derivatives of L. For each component of theta the target is
    evaluated twice. G is NaN if it has no density at one of these points.
    """
    theta = at.theta
    prior = at.prior
    # The same target, from where a theta_j that does not enter K shares its factor.
    target = replace(target, state=at)
    steps = STEP * np.maximum(1.0, np.abs(theta))
    near: list[tuple[State, State]] = []
    for h in np.diag(steps):
        ahead, behind = (target.evaluate(there)[1] for there in (theta + h, theta - h))
        if ahead is None or behind is None:
            return np.full((theta.size, theta.size), np.nan)
        near.append((ahead, behind))

    def derivatives(of: Callable[[State], Array]) -> Array:
        """Derivatives of a function of the state in each theta_j, along a new first axis."""
        pairs = zip(near, steps, strict=True)
        return np.array(
            [(of(ahead) - of(behind)) / (2.0 * step) for (ahead, behind), step in pairs]
        )

    hessian = derivatives(lambda there: explicit_gradient(at, there.theta))
    if isinstance(target, WhitenedTarget):
        W = at.model.likelihood_terms(at.f, theta)[2]
        scaled = as_operator(nonnegative(W)).root_times(derivatives(lambda there: there.f).T)
        curvature = scaled.T @ scaled
    else:
        one = np.eye(prior.rank)
        L = prior.multiply(one)

        def ratio(there: State) -> Array:
            """L(theta')⁻¹ L."""
            return one if there.prior.has_covariance_of(prior) else there.prior.solve(L)

        D = -derivatives(ratio)
        dm = np.array([prior.solve(each) for each in derivatives(lambda there: there.mean)])
        curvature = np.einsum("jab,kab->jk", D, D + D.swapaxes(1, 2)) + dm @ dm.T
    result: Array = curvature - 0.5 * (hessian + hessian.T)
    return result


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
