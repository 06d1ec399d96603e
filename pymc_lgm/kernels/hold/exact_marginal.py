"""The exact marginal target of theta, for models that observe the Gaussian vector.

For observations y ~ N(m(theta), C(theta)), for example of a Gaussian process with normal noise once
f is integrated out: Rasmussen and Williams (2006), eqs. (2.30) and (5.9).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pymc_lgm.kernels.hold.sufficient import sufficient
from pymc_lgm.kernels.hold.target import Slope, Target
from pymc_lgm.linalg import Array
from pymc_lgm.state import State

__all__ = ["exact_marginal"]


def exact_marginal(rng: np.random.Generator, state: State, *, differentiable: bool) -> Target:
    """log N(f; m(theta), K(theta)) + log p(theta), f observed: `sufficient` with a slope.

    An evaluation costs one factorization, and a slope one more O(n³) operation. A state that the
    chain moves to caches its slope.

    Parameters
    ----------
    rng : numpy.random.Generator
    state : State
    differentiable : bool
        Whether the target has a ``slope``.

    Returns
    -------
    Target
    """
    target = sufficient(rng, state)
    if not differentiable:
        return target
    gradient, seen = target.gradient, dict[bytes, Slope | None]()
    assert gradient is not None

    def of(at: State, log_density: float) -> Slope | None:
        slope = Slope(at.theta, log_density, gradient(at))
        return slope if np.isfinite(slope.gradient).all() else None

    def slope(theta: Array) -> Slope | None:
        if theta is state.theta:
            return state.once(exact_marginal, lambda: of(state, target.log_density))
        key = theta.tobytes()
        if key not in seen:
            log_density, there = target.evaluate(theta)
            seen[key] = None if there is None else of(there, log_density)
        return seen[key]

    def evaluate(theta: Array) -> tuple[float, State | None]:
        log_density, there = target.evaluate(theta)
        key = theta.tobytes()
        if there is not None and key in seen:
            there.once(exact_marginal, lambda: seen[key])
        return log_density, there

    return replace(target, evaluate=evaluate, slope=slope)
