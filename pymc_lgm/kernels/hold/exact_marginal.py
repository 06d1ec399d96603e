"""The exact marginal target of theta, for models whose Gaussian vector is observed.

The vector that other models call f is here the data y ~ N(m(theta), K(theta)), as in
`pymc.gp.Marginal`, whose K is a kernel plus noise. The density and its gradient are those of
Rasmussen and Williams (2006), eqs. (2.30) and (5.9).
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
    """log N(y; m(theta), K(theta)) + log p(theta): the target of `sufficient`, with a ``slope``.

    An evaluation costs one factorization, and a slope one more O(n³) operation. Slopes are cached
    for the life of the target, without their states, each of which has an n × n factor: `evaluate`
    factorizes K once more at the end of a trajectory. The state that it returns has its slope for
    the next target.

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
    gradient, slopes = target.gradient, dict[bytes, Slope | None]()
    assert gradient is not None

    def slope_at(at: State, log_density: float) -> Slope | None:
        slope = Slope(at.theta, log_density, gradient(at))
        return slope if np.isfinite(slope.gradient).all() else None

    # A state's own cache has its slope under the key `exact_marginal`.

    def slope(theta: Array) -> Slope | None:
        if theta is state.theta:  # a trajectory begins here: K is factorized already
            return state.once(exact_marginal, lambda: slope_at(state, target.log_density))
        key = theta.tobytes()
        if key not in slopes:
            log_density, there = target.evaluate(theta)
            slopes[key] = None if there is None else slope_at(there, log_density)
        return slopes[key]

    def evaluate(theta: Array) -> tuple[float, State | None]:
        log_density, there = target.evaluate(theta)
        key = theta.tobytes()
        if there is not None and key in slopes:
            there.once(exact_marginal, lambda: slopes[key])
        return log_density, there

    return replace(target, evaluate=evaluate, slope=slope)
