"""Hamiltonian Monte Carlo on f given theta, preconditioned by the prior.

"HMC v2" of Filippone, Zhong and Girolami (2012), §5.2.1: a mass matrix with M⁻¹ = K, which needs
no factorization beyond that of K. The exact-rotation integrator is that of Beskos, Pinski,
Sanz-Serna and Stuart (2011), *Hybrid Monte Carlo on Hilbert spaces*.
"""

from __future__ import annotations

import math

from dataclasses import dataclass
from typing import Literal

import numpy as np

from pymc_lgm.linalg import Array
from pymc_lgm.moves.latent.stepping import (
    DRIFTS,
    Force,
    Info,
    Integrator,
    Trajectories,
    accept,
)
from pymc_lgm.moves.leapfrog import leapfrog
from pymc_lgm.state import State

__all__ = ["HMC", "Metric", "hmc"]

Metric = Literal["prior", "identity"]


class _Whitened:
    """Coordinates x in which the momentum is N(0, I), f = m + A x, with A = L: M⁻¹ = K in f."""

    def __init__(self, state: State):
        self.mean, self.prior = state.mean, state.prior

    def x(self, f: Array) -> Array:
        return self.prior.solve(f - self.mean)

    def f(self, x: Array) -> Array:
        return self.mean + self.prior.multiply(x)

    def pull_back(self, gradient: Array) -> Array:
        """Aᵀ g: a gradient in f as one in x."""
        return self.prior.multiply_transposed(gradient)

    def prior_gradient(self, x: Array) -> Array:
        """Gradient of log N(f; m, K) in x."""
        return -x


class _Identity(_Whitened):
    """A = I: x = z = f − m, the prior is N(0, K)."""

    def x(self, f: Array) -> Array:
        return f - self.mean

    def f(self, x: Array) -> Array:
        return self.mean + x

    def pull_back(self, gradient: Array) -> Array:
        return gradient

    def prior_gradient(self, x: Array) -> Array:
        return -self.prior.inverse_times(x)


_COORDINATES: dict[Metric, type[_Whitened]] = {"prior": _Whitened, "identity": _Identity}


def hmc(
    rng: np.random.Generator,
    state: State,
    *,
    step_size: float,
    max_steps: int = 10,
    metric: Metric = "prior",
    integrator: Integrator = "rotation",
) -> tuple[State, Info]:
    """Leave p(f | y, theta) invariant by following Hamilton's equations for a few steps.

    In coordinates x with momentum r ~ N(0, I), H = −ℓ(f(x)) − log N(f(x); m, K) + ½ |r|².
    With ``metric="prior"`` x = ν = L⁻¹(f − m): the prior is standard normal, its part of the
    motion is a rotation of (ν, r), and the likelihood's force is Lᵀ g.

    Parameters
    ----------
    rng : numpy.random.Generator
    state : State
    step_size : float
        ε; for ``integrator="rotation"`` an angle in radians.
    max_steps : int
        Each trajectory takes 1 to ``max_steps`` steps, uniformly: no periodic orbit survives.
    metric : {"prior", "identity"}
        M⁻¹ = K, or M = I for comparison.
    integrator : {"rotation", "leapfrog"}
        "rotation" solves the prior's motion exactly and lets only the likelihood kick, so the
        error does not grow with n; needs ``metric="prior"``.

    Notes
    -----
    Requires the gradient of the likelihood. A step costs one gradient and two O(n²) products
    ("prior") or solves ("identity"), without a factorization. A trajectory that meets a value that
    is not finite is rejected and counted in `pymc_lgm.linalg.tally`.
    """
    model, theta = state.model, state.theta
    coordinates = _COORDINATES[metric](state)
    x_start = coordinates.x(state.f)
    r_start = rng.standard_normal(x_start.size)
    steps = int(rng.integers(1, max_steps, endpoint=True))

    def at(f: Array, x: Array) -> Force:
        log_likelihood, g = model.log_likelihood_gradient(f, theta)
        kick = coordinates.pull_back(g)
        if integrator == "leapfrog":
            kick = kick + coordinates.prior_gradient(x)
        return Force(f, log_likelihood, kick)

    def force(x: Array) -> Force | None:
        there = at(coordinates.f(x), x)
        return there if math.isfinite(there.log_likelihood) else None

    x, r, end, evaluations = leapfrog(
        x_start,
        r_start,
        at(state.f, x_start),
        step_size=step_size,
        steps=steps,
        drift=DRIFTS[integrator](step_size),
        force=force,
    )
    log_ratio = -math.inf
    if end is not None:
        # log N(x) is quadratic in x, with no constant that changes along the trajectory.
        energy_start = -state.log_likelihood - 0.5 * x_start @ coordinates.prior_gradient(x_start)
        energy_end = -end.log_likelihood - 0.5 * x @ coordinates.prior_gradient(x)
        log_ratio = float(energy_start + 0.5 * r_start @ r_start - energy_end - 0.5 * r @ r)
    return accept(rng, state, end, log_ratio, 1 + evaluations)


@dataclass(frozen=True)
class HMC(Trajectories):
    """HMC on f, ``repeats`` times; its step size learns to be accepted ``target_accept``."""

    metric: Metric = "prior"

    def _move(self, rng: np.random.Generator, state: State, step_size: float) -> tuple[State, Info]:
        return hmc(
            rng,
            state,
            step_size=step_size,
            max_steps=self._most(step_size),
            metric=self.metric,
            integrator=self.integrator,
        )
