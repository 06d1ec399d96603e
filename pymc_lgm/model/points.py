"""Convert draws of a trace to PyMC points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm

from numpy.typing import NDArray
from pymc.pytensorf import compile as pymc_compile

__all__ = ["Point", "Points", "unconstrained"]

Point = dict[str, NDArray[Any]]
"""Values on the unconstrained scale, by the names of value variables."""


def unconstrained(model: pm.Model, rvs: Sequence[Any]) -> list[Any]:
    """Graphs of random variables on the unconstrained scale."""
    transforms = [model.rvs_to_transforms[rv] for rv in rvs]
    return [
        rv if transform is None else transform.forward(rv, *rv.owner.inputs)
        for rv, transform in zip(rvs, transforms, strict=True)
    ]


class Points:
    """Draws of a trace as PyMC points.

    Parameters
    ----------
    model : pymc.Model
    draws : dict of str to ndarray
        Draws of free variables, (chain, draw, ...), by name.

    Attributes
    ----------
    natural : dict of variable to ndarray
        The draws by variable.
    """

    def __init__(self, model: pm.Model, draws: dict[str, NDArray[Any]]):
        rvs = [rv for rv in model.free_RVs if rv.name in draws]
        self.natural = {rv: draws[rv.name].astype(rv.dtype) for rv in rvs}
        self._names = [model.rvs_to_values[rv].name for rv in rvs]
        self._unconstrain = pymc_compile(rvs, unconstrained(model, rvs), on_unused_input="ignore")

    def __call__(self, i: tuple[int, ...]) -> Point:
        """The point of draw i = (chain, draw)."""
        values = self._unconstrain(*(draws[i] for draws in self.natural.values()))
        return dict(zip(self._names, map(np.asarray, values), strict=True))
