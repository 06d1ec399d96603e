"""A target: the density of theta with f held fixed in some coordinates, or integrated out.

Each target is a subclass of `Target` that defines `Target.evaluate`, and says which other methods
it has. The module also has the derivatives that targets share: those of log p(theta) + ℓ(f, theta)
at fixed f.
"""

from __future__ import annotations

import math

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from pymc_lgm.approximations.gaussian import GaussianApproximation
from pymc_lgm.linalg import Array
from pymc_lgm.state import AtTheta, State

__all__ = [
    "FirstStage",
    "Fix",
    "Nowhere",
    "Slope",
    "Target",
    "explicit_gradient",
]


@dataclass(frozen=True, eq=False)
class FirstStage:
    """First stage of delayed acceptance: an approximation of the target at a proposal.

    Attributes
    ----------
    log_density : float
        The approximation's log density at the proposal.
    at : AtTheta
        The proposal.
    q : GaussianApproximation
        The approximation of p(f | y, theta) there.
    """

    log_density: float
    at: AtTheta
    q: GaussianApproximation


@dataclass(frozen=True, eq=False)
class Slope:
    """A point of a trajectory: theta, and a log density with its gradient there.

    Attributes
    ----------
    theta : ndarray, shape (p,)
    log_density : float
    gradient : ndarray, shape (p,)
    """

    theta: Array
    log_density: float
    gradient: Array


@dataclass(frozen=True, eq=False)
class Target:
    """The density of theta that a move leaves invariant.

    Every target evaluates. ``has_stages`` and ``has_slope`` say whether it has some of the other
    methods. Those that it lacks raise an error.

    Attributes
    ----------
    state : State
        The current state, which a rejected move returns.
    log_density : float
        Log density at ``state``, up to a constant.
    """

    state: State
    log_density: float

    def evaluate(self, theta: Array) -> tuple[float, State | None]:
        """Log density at theta, and the state there; (−inf, None) if the density is 0."""
        raise NotImplementedError(f"{type(self).__name__} must define evaluate().")

    @property
    def is_noisy(self) -> bool:
        """Whether two evaluations at one theta differ, which slice sampling does not allow."""
        return False

    @property
    def has_stages(self) -> bool:
        """Whether there are `first_stage`, `second_stage` and `first_log_density`."""
        return False

    @property
    def has_slope(self) -> bool:
        """Whether there is a `slope`."""
        return False

    def gradient(self, at: State) -> Array:
        """Gradient in theta, shape (p,), at ``state`` or at a state that `evaluate` has returned.

        It uses the factor that the state has.
        """
        self._refuse("gradient")

    def first_stage(self, theta: Array) -> FirstStage | None:
        """First stage at theta, cheaper than `evaluate`; ``None`` if no q is found there."""
        self._refuse("first stage")

    def second_stage(self, first: FirstStage) -> tuple[float, State | None]:
        """`evaluate` at the theta of a first stage."""
        self._refuse("second stage")

    @property
    def first_log_density(self) -> float:
        """Log density of the first stage at ``state``."""
        self._refuse("first stage")

    def slope(self, theta: Array) -> Slope | None:
        """An approximation of the log density with its gradient; ``None`` if it is not finite.

        It is a function of theta alone. Trajectories follow it; `evaluate` is called at their ends.
        """
        self._refuse("slope")

    def _refuse(self, what: str) -> NoReturn:
        raise NotImplementedError(f"{type(self).__name__} has no {what}: use metropolis.")


@dataclass(frozen=True, eq=False)
class Nowhere(Target):
    """A target that rejects every move, because there is no approximation q at its state."""

    log_density: float = 0.0

    def evaluate(self, theta: Array) -> tuple[float, State | None]:
        """A density of 0 at every theta."""
        return -math.inf, None


Fix = Callable[[np.random.Generator, State], Target]
"""A parameterization: ``fix(rng, state) -> target``."""


def explicit_gradient(state: State, theta: Array) -> Array:
    """∂/∂theta of log p(theta) + ℓ(f, theta) at the f of a state, shape (p,): without m and K."""
    prior = state.model.log_prior_gradient(theta)
    return prior + state.model.log_likelihood_theta_gradient(state.f, theta)
