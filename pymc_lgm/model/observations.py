"""The observations of a variable one by one: the element of f that each reads, and new values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pymc as pm

from numpy.typing import NDArray
from pymc.pytensorf import compile as pymc_compile
from pymc.pytensorf import extract_obs_data
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors

from pymc_lgm.linalg import Array
from pymc_lgm.model.points import Point
from pymc_lgm.model.read import LatentGaussianModel

__all__ = ["Observations"]

Index = NDArray[np.intp]


class Observations:
    """The observations of one variable that depends on f.

    ``instead`` ends the message if observations do not read one f_i each: what to write for them.

    Attributes
    ----------
    name : str
    values : ndarray
        Observed values.
    which, site : ndarray of int, shape (M,)
        For each observation, its element of the likelihood and the f_i that it reads, or the first
        f_i if it reads none.
    is_free : ndarray of bool, shape (M,)
        Whether an observation reads no f_i, as one whose only covariates are 0.
    """

    def __init__(
        self,
        model: pm.Model,
        lgm: LatentGaussianModel,
        var_name: str | None = None,
        *,
        instead: str,
    ):
        rv = self._rv = _chosen(model, lgm, var_name)
        self.name = str(rv.name)
        self.values = np.asarray(extract_obs_data(model.rvs_to_values[rv]))
        numbers = [
            str(rv.name)
            for rv in model.free_RVs
            if not rv.ndim and model.rvs_to_values[rv].name in lgm.latents
        ]
        self.which, self.site = _observations(lgm, self.name, self.values.size, numbers, instead)
        self.is_free = lgm.free_elements[self.which]
        self._model, self._lgm = model, lgm

    def layers(self) -> list[Index]:
        """Groups of observations in which no two read the same f_i."""
        left = np.arange(self.site.size)
        layers = []
        while left.size:
            _, first = np.unique(self.site[left], return_index=True)
            layers.append(left[np.sort(first)])
            left = np.delete(left, first)
        return layers

    def replication(
        self, random_seed: int, compile_kwargs: dict[str, Any]
    ) -> Callable[[Array, Point, dict[Any, Any]], Array]:
        """A function from a row of f, a draw's point and its variables to new observations."""
        lgm, model = self._lgm, self._model
        # A copy of a random variable is another one, drawn from its prior.
        of_draw = {v: v.type() for v in model.free_RVs}
        others_observed = [v for v in model.observed_RVs if v is not self._rv]
        given = of_draw | {v: model.rvs_to_values[v] for v in others_observed}
        (y,) = clone_replace([self._rv], given | dict(lgm.graphs.cuts), rebuild_strict=False)
        reached = set(ancestors([y]))
        form: Any = lgm.form
        # In the form of a sum, observations read the last elements, eta.
        eta = getattr(form, "_eta", None)
        is_sum = eta is not None and eta in reached
        others = [v for v, value in of_draw.items() if value in reached]
        # An observation that reads no f_i has an offset, a graph of a point.
        offset = [value for value in model.value_vars if value in reached]
        inputs = [eta if is_sum else form.f, *offset, *(of_draw[v] for v in others)]
        options = {"on_unused_input": "ignore", "random_seed": random_seed} | compile_kwargs
        draw = pymc_compile(inputs, y, **options)

        def replicate(row: Array, point: Point, natural: dict[Any, Any]) -> Array:
            seen = row[form.of_eta] if is_sum else row
            values = *(point[v.name] for v in offset), *(natural[v] for v in others)
            return np.asarray(draw(seen, *values))

        return replicate


def _chosen(model: pm.Model, lgm: LatentGaussianModel, var_name: str | None) -> Any:
    """The observed variable that is named, or the only one that reads f."""
    observed = {str(rv.name): rv for rv in model.observed_RVs}
    names = [name for name in lgm.likelihood_names if name in observed]
    if f"{var_name}_observed" in names:  # PyMC has split off the missing values of ``var_name``
        var_name = f"{var_name}_observed"
    if var_name not in names and (var_name is not None or len(names) != 1):
        raise ValueError(
            f"Observed variables that depend on {lgm.latent!r} are {names}: name one of them, as "
            f"in var_name={(names or ['y'])[0]!r}."
        )
    return observed[names[0] if var_name is None else var_name]


def _observations(
    lgm: LatentGaussianModel, name: str, size: int, numbers: list[str], instead: str
) -> tuple[Index, Index]:
    """The elements of the likelihood for the observations of a variable, and the f_i they read."""
    point = lgm.generic_theta
    values = lgm.graphs.term_values(np.array(lgm.mean(point)), point)
    sizes = dict(zip(lgm.likelihood_names, (np.size(v) for v in values), strict=True))
    begin = 0
    for other in lgm.likelihood_names:
        if other == name:
            break
        begin += sizes[other]
    which = begin + np.arange(sizes[name])
    sites = lgm.element_sites
    if sites is not None and sizes[name] != size:
        raise ValueError(
            f"{name} has {sizes[name]} joint densities of its {size} values, as the rows of a "
            f"pm.MvNormal have. This is for densities of single values, p(y_k | f_i). {instead}"
        )
    if sites is None and lgm.coupled is None:
        names = np.repeat(list(sizes), list(sizes.values()))
        summed = names[lgm.element_counts > 1][0]
        raise ValueError(
            f"{summed} is one number, a sum over several elements of {lgm.latent!r}. This is for "
            "densities that read one element each, p(y_k | f_i): write the terms of the sum as a "
            f"vector, without .sum(). {instead}"
        )
    if sites is None:
        raise ValueError(
            f"{lgm.coupled} reads several elements of {lgm.latent!r} together. This is "
            "for densities that read one element each, p(y_k | f_i)."
            + (
                f" If they do so once {' and '.join(numbers)} is known, write theta={numbers!r}."
                if len(numbers) < len(lgm.latents) and numbers
                else ""
            )
            + f" {instead}"
        )
    return which, sites[which]
