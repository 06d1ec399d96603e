"""A target: the density of theta once something about f is held fixed, or integrated out."""

from __future__ import annotations

import math

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pymc_lgm.linalg import Array
from pymc_lgm.state import State

__all__ = ["Fix", "Screened", "Target"]


@dataclass(frozen=True)
class Screened:
    """A proposal that has been looked at, not yet paid for.

    Attributes
    ----------
    log_density : float
        A cheap approximation of the target there.
    complete : callable () -> (float, State or None)
        The target itself and the state.
    """

    log_density: float
    complete: Callable[[], tuple[float, State | None]]


@dataclass(frozen=True)
class Target:
    """What a parameterization gives to a move on theta.

    Attributes
    ----------
    state : State
        Where it was fixed: the state that a rejected move returns.
    log_density : float
        Log density there, up to a constant.
    evaluate : callable theta -> (float, State or None)
        Log density at another theta and the state there; (−inf, None) where there is none.
    screen : callable theta -> Screened or None, optional
        A look at theta that costs less than ``evaluate``, where the parameterization has one.
    screened_log_density : float
        What ``screen`` says of the state's own theta.
    """

    state: State
    log_density: float
    evaluate: Callable[[Array], tuple[float, State | None]]
    screen: Callable[[Array], Screened | None] | None = None
    screened_log_density: float = math.nan

    def __call__(self, theta: Array) -> tuple[float, State | None]:
        """Log density at theta and the state there; (−inf, None) where there is none."""
        return self.evaluate(theta)


Fix = Callable[[np.random.Generator, State], Target]
"""A parameterization: ``fix(rng, state) -> target``."""
