"""The base class of step methods for models whose Gaussian vector is observed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pymc as pm

from pymc.util import get_value_vars_from_user_vars

from pymc_lgm.model import find_latents, find_observed
from pymc_lgm.model.reading import Reading
from pymc_lgm.state import State
from pymc_lgm.steps.base import LatentGaussianStep

__all__ = ["ObservedNormalStep"]


class ObservedNormalStep(LatentGaussianStep):
    """A step on theta for a model that observes one multivariate normal vector."""

    def _reading_and_theta(
        self, vars: Sequence[Any] | None, model: pm.Model, candidates: list[Any] | None
    ) -> tuple[Reading, list[Any]]:
        reading = find_latents(model, find_observed(model))
        missing = [model.rvs_to_values[rv] for rv in reading.missing]
        theta = model.continuous_value_vars
        if vars is not None:
            theta = get_value_vars_from_user_vars(
                vars if isinstance(vars, list | tuple) else [vars], model
            )
        theta = [value for value in theta if value not in missing]
        self._refuse_discrete(theta)
        if not theta:
            raise ValueError(
                f"{type(self).__name__} moves continuous hyper-parameters, and was given none. "
                "Leave it out: pm.sample() has a step for all else."
            )
        return reading, theta

    def _depart(self, state: State) -> dict[str, Any]:
        """Return theta alone: f is data."""
        data = {self.lgm.latent: state.f}
        return self.lgm.missing_of(self.rng, state.theta, data) | self.lgm.point_of(state.theta)
