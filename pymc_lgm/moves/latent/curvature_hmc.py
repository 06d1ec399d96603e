"""Hamiltonian Monte Carlo on f given theta, with the covariance of a Gaussian posterior as metric.

"HMC v1" of Filippone, Zhong and Girolami (2013), §3.6: M⁻¹ = (K⁻¹ + W)⁻¹ with W held fixed. The
rotation is the splitting of Shahbaba, Lan, Johnson and Neal (2014), *Split Hamiltonian Monte
Carlo*, Statistics and Computing 24: the motion under a Gaussian q(f) is solved exactly, and only
what p(f | y, theta) differs from it by kicks.
"""

from __future__ import annotations

import math

from dataclasses import dataclass

import numpy as np

from pymc_lgm.approximations.gaussian import GaussianApproximation, Search, SiteLikelihood
from pymc_lgm.approximations.laplace import laplace
from pymc_lgm.approximations.site_posteriors import site_approximation
from pymc_lgm.gaussian import Prior
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

__all__ = ["CurvatureHMC", "curvature_hmc", "curvature_metric"]


def curvature_metric(likelihood: SiteLikelihood, prior: Prior) -> GaussianApproximation | None:
    """Laplace approximation of p(f | y, theta), searched from the center of the site posteriors.

    A search without a start begins at m and takes up to 12 factorizations if the data are
    informative. The center of the site posteriors is also a function of theta alone; it costs one
    factorization and leaves 1 or 2 for the mode. If an observation reads several f_i, there are no
    site posteriors.
    """
    joined = likelihood.sets is not None
    sites = None if joined else site_approximation(likelihood, prior)
    return laplace(likelihood, prior, start=None if sites is None else sites.center)


def curvature_hmc(
    rng: np.random.Generator,
    state: State,
    q: GaussianApproximation,
    *,
    step_size: float,
    max_steps: int = 10,
    integrator: Integrator = "rotation",
) -> tuple[State, Info]:
    """Leave p(f | y, theta) invariant by following Hamilton's equations with M⁻¹ = Σ.

    q(f) = N(f̂, Σ), Σ = (K⁻¹ + W)⁻¹, is a Gaussian approximation. In d = f − f̂ and the velocity
    v = Σ × momentum ~ N(0, Σ),

        H = −ℓ(f) + ½ zᵀ K⁻¹ z + ½ vᵀ Σ⁻¹ v,   log p(f | y, theta) = log q(f) + r(f) + constant,

    where r(f) = ℓ(f) − aᵀ z + ½ dᵀ W d has the gradient g − a + W d. Under q alone (d, v)
    rotates; r kicks v by Σ∇r, and not at all if the posterior is q.

    Parameters
    ----------
    rng : numpy.random.Generator
    state : State
    q : GaussianApproximation
        A function of theta alone, whatever f is: then it is exact, however poor q may be.
    step_size : float
        ε; for ``integrator="rotation"`` an angle in radians.
    max_steps : int
        Each trajectory takes 1 to ``max_steps`` steps, uniformly.
    integrator : {"rotation", "leapfrog"}
        "leapfrog" moves d along v and kicks by all of Σ∇ log p(f | y, theta), as the paper does.

    Notes
    -----
    Requires the gradient of the likelihood. The only O(n³) operations are those of q, once per
    theta. A step costs one gradient and one product with Σ, which is four products of O(n²), twice
    as many as with M⁻¹ = K. A trajectory that meets a value that is not finite is rejected and
    counted in `pymc_lgm.linalg.tally`.
    """
    d_start = state.f - q.center
    xi = rng.standard_normal((*q.posterior.coordinates_shape, 1))
    v_start = q.posterior.deviations(xi)[:, 0]
    steps = int(rng.integers(1, max_steps, endpoint=True))

    def at(f: Array, d: Array) -> Force:
        log_likelihood, g = state.model.log_likelihood_gradient(f, state.theta)
        kick = q.posterior.covariance_times(g - q.alpha + q.posterior.precision_times(d))
        return Force(f, log_likelihood, kick if integrator == "rotation" else kick - d)

    def force(d: Array) -> Force | None:
        there = at(q.center + d, d)
        return there if math.isfinite(there.log_likelihood) else None

    _, v, end, evaluations = leapfrog(
        d_start,
        v_start,
        at(state.f, d_start),
        step_size=step_size,
        steps=steps,
        drift=DRIFTS[integrator](step_size),
        force=force,
    )
    log_ratio = -math.inf
    if end is not None:
        log_ratio = end.log_likelihood - state.log_likelihood
        log_ratio += _prior_energy(state, state.f) - _prior_energy(state, end.f)
        log_ratio += 0.5 * (q.posterior.inv_quad_form(v_start) - q.posterior.inv_quad_form(v))
    return accept(rng, state, end, log_ratio, 1 + evaluations)


def _prior_energy(state: State, f: Array) -> float:
    """½ zᵀ K⁻¹ z."""
    nu = state.prior.solve(f - state.mean)
    return 0.5 * float(nu @ nu)


@dataclass(frozen=True)
class CurvatureHMC(Trajectories):
    """HMC on f with a Gaussian approximation's covariance for M⁻¹; learns the step size."""

    search: Search = curvature_metric
    """Computes q, a function of theta alone."""
    needs_curvature = True

    def _move(self, rng: np.random.Generator, state: State, step_size: float) -> tuple[State, Info]:
        q = state.at.approximation(self.search)
        if q is None:
            return state, Info(0.0, 0)
        return curvature_hmc(
            rng,
            state,
            q,
            step_size=step_size,
            max_steps=self._most(step_size),
            integrator=self.integrator,
        )
