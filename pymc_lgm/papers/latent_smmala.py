"""Simplified manifold MALA on f given theta: a Langevin proposal shaped by the curvature at f.

Girolami and Calderhead (2011), *Riemann manifold Langevin and Hamiltonian Monte Carlo methods*,
JRSS B 73, §5; eq. (10) and Algorithm 2 of Filippone, Zhong and Girolami (2013).
"""

from __future__ import annotations

import math

from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np

from pymc_lgm.gaussian import Posterior
from pymc_lgm.gaussian.sites import is_finite, nonnegative
from pymc_lgm.linalg import Array, tally
from pymc_lgm.moves.latent.stepping import Info, Stepping
from pymc_lgm.state import State, acceptance_probability
from pymc_lgm.steps.latent import LatentStep
from pymc_lgm.steps.options import StepOptions

__all__ = ["Geometry", "LatentSMMALA", "SMMALAMove", "latent_smmala"]


@dataclass(frozen=True, eq=False)
class Geometry:
    """The metric G = K⁻¹ + W at one f, and the Newton step from there.

    Attributes
    ----------
    posterior : Posterior
        The prior conditioned on W ≥ 0, the curvature of the likelihood at f, clipped at zero.
    newton : ndarray, shape (n,)
        z + G⁻¹∇, where Newton's method would go from z = f − m, with ∇ = g − K⁻¹z the gradient of
        the log posterior. It is computed as G⁻¹(g + W z), which does not need K⁻¹.
    """

    posterior: Posterior
    newton: Array

    def log_density(self, d: Array, step_size: float) -> float:
        """log N(d; 0, ε² G⁻¹) without the terms that are equal for every f, such as log|K|."""
        square = self.posterior.inv_quad_form(d) / step_size**2
        return 0.5 * self.posterior.log_determinant - 0.5 * square


def geometry(state: State) -> Geometry | None:
    """Compute `Geometry` at a state, by one O(n³) operation, and keep it with the state.

    ``None`` if a value is not finite or B cannot be factorized; that is counted as a numerical
    rejection.
    """

    def compute() -> Geometry | None:
        _, g, W, _ = state.model.likelihood_terms(state.f, state.theta)
        finite = np.isfinite(g).all() and is_finite(W)
        posterior = state.prior.condition(nonnegative(W)) if finite else None
        if posterior is None:
            tally.numerical_rejections += 1
            return None
        pull = g + posterior.precision_times(state.f - state.mean)
        return Geometry(posterior, posterior.covariance_times(pull))

    return state.once("geometry", compute)


def latent_smmala(
    rng: np.random.Generator, state: State, *, step_size: float
) -> tuple[State, Info]:
    """Leave p(f | y, theta) invariant by a proposal that climbs along G⁻¹∇ and spreads as G⁻¹.

    With G(f) = K⁻¹ + W(f) and ∇ the gradient of log p(f | y, theta),

        f' ~ q(. | f) = N(f + ½ ε² G⁻¹∇, ε² G⁻¹),

    accepted with probability min(1, p(f' | y, theta) q(f | f') / (p(f | y, theta) q(f' | f))).
    q(f | f') has G and ∇ of f'. The mean of a proposal is ½ ε² of the way to the end of a Newton
    step.

    Parameters
    ----------
    rng : numpy.random.Generator
    state : State
    step_size : float
        ε: about 1 where the posterior is Gaussian.

    Returns
    -------
    State, Info

    Notes
    -----
    Requires the curvature of the likelihood. A negative W_i is replaced by 0. This is exact: any
    W ≥ 0 that is a function of f gives a valid proposal. Cost: one O(n³) operation per proposal,
    the factor of I + W^½ K W^½ at f'. There is one more if another kernel has moved f.
    """
    here = geometry(state)
    if here is None:
        return state, Info(0.0, 1)
    prior = state.prior
    drift = 0.5 * step_size**2
    z = state.f - state.mean
    step = drift * (here.newton - z)
    xi = rng.standard_normal((*here.posterior.coordinates_shape, 1))
    noise = step_size * here.posterior.deviations(xi)[:, 0]
    proposed = state.with_f(state.f + step + noise)
    there = None if proposed is None else geometry(proposed)
    if proposed is None or there is None:
        return state, Info(0.0, 2)
    z_new = proposed.f - state.mean
    back = z - z_new - drift * (there.newton - z_new)
    nu, nu_new = prior.solve(z), prior.solve(z_new)
    log_ratio = proposed.log_likelihood - state.log_likelihood
    log_ratio += 0.5 * float(nu @ nu - nu_new @ nu_new)
    log_ratio += there.log_density(back, step_size) - here.log_density(noise, step_size)
    tally.numerical_rejections += math.isnan(log_ratio)
    info = Info(acceptance_probability(log_ratio), 2)
    return (proposed if rng.uniform() < info.latent_acceptance else state), info


@dataclass(frozen=True)
class SMMALAMove(Stepping):
    """Simplified manifold MALA on f; learns the step size. One factorization per proposal."""

    step_size: float = 0.5
    target_accept: float = 0.3
    needs_curvature = True

    def _move(self, rng: np.random.Generator, state: State, step_size: float) -> tuple[State, Info]:
        return latent_smmala(rng, state, step_size=step_size)


class LatentSMMALA(LatentStep):
    """Move f given theta by simplified manifold MALA; leaves p(f | y, theta) invariant.

    For comparison. The Langevin proposal is shaped by the curvature at the current f, so each
    proposal costs one O(n³) factorization. See `latent_smmala`.

    Parameters
    ----------
    vars : variable, optional
        f; may be left out if the model has one latent.
    target_accept : float
        Acceptance probability to which tuning brings the step size.
    step_size : float
        Initial step size.
    repeats : int
        Moves per draw.
    **kwargs
        ``model``, ``theta``, ``rng``, ``initial_point`` and others: see `LatentGaussianStep`.

    References
    ----------
    Girolami and Calderhead (2011), JRSS B 73, §5; Filippone, Zhong and Girolami (2013), eq. (10).

    Examples
    --------
    >>> import pymc as pm, pymc_lgm as lgm
    >>> with pm.Model():
    ...     f = pm.MvNormal("f", mu=[0.0, 0.0], cov=[[1.0, 0.5], [0.5, 1.0]])
    ...     y = lgm.Probit("y", f=f, observed=[0, 1])
    ...     step = lgm.papers.LatentSMMALA(f)
    >>> step
    LatentSMMALA([f])
    """

    name = "latent_smmala"

    def __init__(
        self,
        vars: Any = None,
        *,
        target_accept: float = 0.3,
        step_size: float = 0.5,
        repeats: int = 1,
        **kwargs: Unpack[StepOptions],
    ):
        super().__init__(vars, SMMALAMove(repeats, step_size, target_accept), **kwargs)
