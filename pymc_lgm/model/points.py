"""Points of a model on the natural scale of its variables, and on the unconstrained one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr

from numpy.typing import ArrayLike, NDArray
from pymc.pytensorf import compile as pymc_compile

from pymc_lgm.compile.graphs.functions import without_c
from pymc_lgm.linalg import Array
from pymc_lgm.model.functions import ModelFunctions

__all__ = ["NaturalScale", "Point", "Points", "start_of", "unconstrained"]

Point = dict[str, NDArray[Any]]
"""Values on the unconstrained scale, by the names of value variables."""


def start_of(model: pm.Model) -> Point:
    """The model's initial point, without compiling parts of it in C, as PyMC does in any mode."""
    with without_c():
        return dict(model.initial_point())


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
    posterior : xarray.Dataset

    Attributes
    ----------
    natural : dict of variable to ndarray
        Draws of free variables, (chain, draw, ...).
    """

    def __init__(self, model: pm.Model, posterior: xr.Dataset):
        rvs = [rv for rv in model.free_RVs if rv.name in posterior]
        draws = [posterior[rv.name].transpose("chain", "draw", ...).values for rv in rvs]
        self.natural = {rv: each.astype(rv.dtype) for rv, each in zip(rvs, draws, strict=True)}
        self._names = [model.rvs_to_values[rv].name for rv in rvs]
        self._unconstrain = pymc_compile(rvs, unconstrained(model, rvs), on_unused_input="ignore")

    def __call__(self, i: tuple[int, ...]) -> Point:
        """The point of draw i = (chain, draw)."""
        values = self._unconstrain(*(draws[i] for draws in self.natural.values()))
        return dict(zip(self._names, map(np.asarray, values), strict=True))


class NaturalScale:
    """Convert between theta and the model's variables on their natural scale.

    Attributes
    ----------
    initial : dict of str to ndarray
        The variables in theta, at the model's initial point.
    """

    def __init__(self, lgm: ModelFunctions, model: pm.Model):
        self._lgm = lgm
        by_name = {value.name: value for value in model.value_vars}
        values = [by_name[name] for name in lgm.theta_names]
        variables = [model.values_to_rvs[value] for value in values]
        backward = model.replace_rvs_by_values(variables)
        forward = unconstrained(model, variables)
        self._unconstrain = pymc_compile(variables, forward, on_unused_input="ignore")
        self._constrain = pymc_compile(values, backward, on_unused_input="ignore")
        self._names = [rv.name for rv in variables]
        self.initial = self.point_of(lgm.theta_of(start_of(model)))

    def point_of(self, theta: Array) -> dict[str, NDArray[Any]]:
        """The variables in theta (p,)."""
        point = self._lgm.point_of(theta)
        values = self._constrain(*(point[name] for name in self._lgm.theta_names))
        return {name: np.array(value) for name, value in zip(self._names, values, strict=True)}

    def theta_of(self, point: Mapping[str, ArrayLike]) -> Array:
        """Theta, shape (p,), from variables; ``initial`` has those that are not in ``point``.

        Raises
        ------
        ValueError
            If a name is not a variable in theta, or if a shape or a value is not possible.
        """
        if unknown := [name for name in point if name not in self._names]:
            raise ValueError(
                f"{unknown} are not hyper-parameters of this model. Write values of "
                f"{self._names}, on their natural scale."
            )
        values = []
        for name, initial in self.initial.items():
            value = np.asarray(point.get(name, initial), dtype=initial.dtype)
            if value.shape != initial.shape:
                raise ValueError(
                    f"{name} has shape {value.shape}. Write a value of shape {initial.shape}."
                )
            values.append(value)
        with np.errstate(invalid="ignore", divide="ignore"):
            unconstrained = self._unconstrain(*values)
        for name, value, moved in zip(self._names, values, unconstrained, strict=True):
            if not np.isfinite(moved).all():
                raise ValueError(
                    f"{name} = {value} is not inside the support of its prior. Write a value like "
                    f"{self.initial[name]}, on the natural scale of {name}."
                )
        return self._lgm.theta_of(dict(zip(self._lgm.theta_names, unconstrained, strict=True)))
