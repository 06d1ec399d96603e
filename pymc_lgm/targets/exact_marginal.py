"""The exact marginal target of theta, for models whose Gaussian vector is observed.

The vector that other models call f is here the data y ~ N(m(theta), K(theta)), as in
`pymc.gp.Marginal`, whose K is a kernel plus noise. The density and its gradient are those of
Rasmussen and Williams (2006), eqs. (2.30) and (5.9).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from pymc_lgm.linalg import Array
from pymc_lgm.state import State
from pymc_lgm.targets.sufficient import SufficientTarget
from pymc_lgm.targets.target import Slope

__all__ = ["ExactMarginalTarget"]


@dataclass(frozen=True, eq=False)
class ExactMarginalTarget(SufficientTarget):
    """log N(y; m(theta), K(theta)) + log p(theta): a `SufficientTarget` with a ``slope``.

    An evaluation costs one factorization, and a slope one more O(n³) operation. Slopes are cached
    for the life of the target, without their states, each of which has an n × n factor: `evaluate`
    factorizes K once more at the end of a trajectory. The state that it returns has its slope for
    the next target.
    """

    # Not in `AtTheta`: a slope depends on y, too, which is f here and may have missing values.
    _slopes: dict[bytes, Slope | None] = field(init=False, repr=False, default_factory=dict)

    @property
    def has_slope(self) -> bool:
        """Always."""
        return True

    def slope(self, theta: Array) -> Slope | None:
        """The target itself, with its gradient."""
        state = self.state
        if theta is state.theta:  # a trajectory begins here: K is factorized already
            return state.once(ExactMarginalTarget, lambda: self._slope_at(state, self.log_density))
        key = theta.tobytes()
        if key not in self._slopes:
            log_density, there = super().evaluate(theta)
            self._slopes[key] = None if there is None else self._slope_at(there, log_density)
        return self._slopes[key]

    def evaluate(self, theta: Array) -> tuple[float, State | None]:
        """As in `SufficientTarget`; the state caches its slope."""
        log_density, there = super().evaluate(theta)
        key = theta.tobytes()
        if there is not None and key in self._slopes:
            there.once(ExactMarginalTarget, lambda: self._slopes[key])
        return log_density, there

    def _slope_at(self, at: State, log_density: float) -> Slope | None:
        slope = Slope(at.theta, log_density, self.gradient(at))
        return slope if np.isfinite(slope.gradient).all() else None
