"""A target: the density of theta with f held fixed in some coordinates, or integrated out.

The module also has the derivatives that all targets share: those of log p(theta) + ℓ(f, theta) at
fixed f.
"""

from __future__ import annotations

import math

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pymc_lgm.linalg import Array
from pymc_lgm.state import State

__all__ = [
    "Fix",
    "Screened",
    "Slope",
    "Target",
    "explicit_gradient",
    "explicit_information",
]


@dataclass(frozen=True)
class Screened:
    """First stage of delayed acceptance: a cheap approximation at a proposal.

    Attributes
    ----------
    log_density : float
        A cheap approximation of the target at the proposal.
    complete : callable () -> (float, State or None)
        Second stage: computes the target itself and the state.
    """

    log_density: float
    complete: Callable[[], tuple[float, State | None]]


@dataclass(frozen=True, eq=False)
class Slope:
    """A log density at theta and its gradient there.

    Attributes
    ----------
    theta : ndarray, shape (p,)
    log_density : float
    gradient : ndarray, shape (p,)
    """

    theta: Array
    log_density: float
    gradient: Array


@dataclass(frozen=True)
class Target:
    """The target that a parameterization gives to a move on theta.

    Attributes
    ----------
    state : State
        The current state, which a rejected move returns.
    log_density : float
        Log density at ``state``, up to a constant.
    evaluate : callable theta -> (float, State or None)
        Log density at another theta and the state there; (−inf, None) if there is none.
    screen : callable theta -> Screened or None, optional
        First stage at theta, cheaper than ``evaluate``; ``None`` if there is none.
    screened_log_density : float
        The value of ``screen`` at the state's own theta.
    gradient : callable State -> ndarray (p,), optional
        Gradient in theta of the log density at ``state``, or at a state that ``evaluate`` has
        returned: nothing is factorized twice.
    geometry : callable State -> (ndarray (p,), ndarray (p, p)), optional
        The gradient and a symmetric matrix G that describes the curvature of the density at that
        state, both at the cost of G alone. G is a function of theta and the variables held fixed;
        it is positive definite where possible.
    slope : callable ndarray (p,) -> Slope or None, optional
        An approximation of the log density with its gradient, at any theta: a function of theta
        alone; ``None`` if it is not finite. Trajectories follow it; ``evaluate`` is called at their
        ends.
    noisy : bool
        Whether two evaluations at one theta differ. Slice sampling needs a target that is not
        noisy.
    """

    state: State
    log_density: float
    evaluate: Callable[[Array], tuple[float, State | None]]
    screen: Callable[[Array], Screened | None] | None = None
    screened_log_density: float = math.nan
    gradient: Callable[[State], Array] | None = None
    geometry: Callable[[State], tuple[Array, Array]] | None = None
    slope: Callable[[Array], Slope | None] | None = None
    noisy: bool = False

    def __call__(self, theta: Array) -> tuple[float, State | None]:
        """Log density at theta and the state there; (−inf, None) where there is none."""
        return self.evaluate(theta)


Fix = Callable[[np.random.Generator, State], Target]
"""A parameterization: ``fix(rng, state) -> target``."""


def explicit_gradient(state: State) -> Array:
    """∂/∂theta of log p(theta) + ℓ(f, theta) at fixed f, shape (p,): the part without K."""
    return _explicit_gradient(state, state.theta)


def explicit_information(state: State) -> Array:
    """−∂²/∂theta² of log p(theta) + ℓ(f, theta) at fixed f, shape (p, p), not always positive.

    Central differences of the gradient, 2p evaluations of O(n). A metric need not be exact to be
    valid, and the second derivatives of a prior may not exist as a graph.
    """
    p, steps = state.theta.size, 1e-4 * np.maximum(1.0, np.abs(state.theta))
    hessian = np.empty((p, p))
    for j, step in enumerate(steps):
        offset = step * (np.arange(p) == j)
        ahead = _explicit_gradient(state, state.theta + offset)
        hessian[j] = (ahead - _explicit_gradient(state, state.theta - offset)) / (2 * step)
    result: Array = -0.5 * (hessian + hessian.T)
    return result


def _explicit_gradient(state: State, theta: Array) -> Array:
    prior = state.model.log_prior_gradient(theta)
    return prior + state.model.log_likelihood_theta_gradient(state.f, theta)
