"""The exact marginal target of theta, for models whose Gaussian vector is observed.

The vector that other models call f is here the data y ~ N(m(theta), K(theta)), as in
`pymc.gp.Marginal`, whose K is a kernel plus noise. The density and its gradient are those of
Rasmussen and Williams (2006), eqs. (2.30) and (5.9).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pymc_lgm.linalg import Array
from pymc_lgm.state import AtTheta
from pymc_lgm.targets.sufficient import SufficientTarget
from pymc_lgm.targets.target import Slope

__all__ = ["ExactMarginalTarget"]


@dataclass(frozen=True, eq=False)
class ExactMarginalTarget(SufficientTarget):
    """log N(y; m(theta), K(theta)) + log p(theta): a `SufficientTarget` with a ``slope``.

    An evaluation costs one factorization, and a slope one more O(n³) operation. Slopes are cached
    without their states, each of which has an n × n factor: `evaluate` factorizes K once more at
    the end of a trajectory. The state that it returns has its slope for the next target.
    """

    @property
    def has_slope(self) -> bool:
        """Always."""
        return True

    def slope(self, theta: Array) -> Slope | None:
        """The target itself, with its gradient."""
        # A slope depends on y, too, which is f here and may have missing values.
        f = self.state.f
        what = self.state.once(ExactMarginalTarget, lambda: (ExactMarginalTarget, f.tobytes()))
        return self.state.at.elsewhere(theta, what, self._slope_at)

    def _slope_at(self, at: AtTheta) -> Slope | None:
        here = at is self.state.at
        state = self.state if here else at.state(self.state.f) if at.is_proper else None
        if state is None:
            return None
        slope = Slope(at.theta, self.log_density_at(state), self.gradient(state))
        return slope if np.isfinite(slope.gradient).all() else None
