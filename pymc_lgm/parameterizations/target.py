"""A target: the density of theta once something about f is held fixed."""

from __future__ import annotations

import math

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pymc_lgm.linalg import Array
from pymc_lgm.state import State

__all__ = ["Fix", "Target"]


@dataclass(frozen=True)
class Target:
    """What a parameterization gives to a move on theta.

    Attributes
    ----------
    log_density : float
        Log density at the theta where it was fixed, up to a constant.
    evaluate : callable theta -> State or None
        The state at another theta with the same thing held fixed, ``None`` where there is none.
    log_density_of : callable State -> float
        Its log density, up to the same constant.
    """

    log_density: float
    evaluate: Callable[[Array], State | None]
    log_density_of: Callable[[State], float]

    def __call__(self, theta: Array) -> tuple[float, State | None]:
        """Log density at theta and the state there; (−inf, None) where there is none."""
        state = self.evaluate(theta)
        if state is None:
            return -math.inf, None
        return self.log_density_of(state), state


Fix = Callable[[np.random.Generator, State], Target]
"""A parameterization: ``fix(rng, state) -> target``."""
