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

    ``instead`` ends the message if observations read what they may not: what to write for them.
    With ``together`` they may read several f_i, and be the rows of a `pymc.MvNormal`; otherwise
    each is a number that reads one f_i.

    Attributes
    ----------
    name : str
    values : ndarray
        Observed values.
    shape : tuple of int
        Shape of their densities: that of ``values``, or without the last axis if these are rows.
    which : ndarray of int, shape (M,)
        The element of the likelihood for each observation.
    reads : ndarray of int, shape (M, s)
        The f_i that each may read, padded with −1: one, or the set with all that it reads. If it
        reads none, they are those of the first f_i.
    site : ndarray of int, shape (M,)
        The first of them.
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
        together: bool = False,
    ):
        rv = self._rv = _chosen(model, lgm, var_name)
        self.name = str(rv.name)
        self.values = np.asarray(extract_obs_data(model.rvs_to_values[rv]))
        numbers = [
            str(rv.name)
            for rv in model.free_RVs
            if not rv.ndim and model.rvs_to_values[rv].name in lgm.latents
        ]
        self.which, self.shape = _elements_of(lgm, self.name)
        if lgm.sets is None or not together:
            _refuse_joint_reads(lgm, self.name, numbers, instead)
        rows = self.values.shape[:-1] if together else self.values.shape
        if self.shape not in (self.values.shape, rows) or not self.shape:
            raise ValueError(
                f"{self.name} has {self.which.size} joint densities of its {self.values.size} "
                "values, as the rows of a pm.MvNormal have. This is for densities of "
                f"{'single values or rows' if together else 'single values, p(y_k | f_i)'}. "
                f"{instead}"
            )
        reads = lgm.element_reads
        assert reads is not None
        self.reads = reads[self.which]
        self.site = self.reads[:, 0]
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
    if not names:
        raise ValueError(
            f"No observed variable depends on {lgm.latent!r}, only {list(lgm.likelihood_names)}: "
            "there are no observations one by one."
        )
    if var_name not in names and (var_name is not None or len(names) != 1):
        raise ValueError(
            f"Observed variables that depend on {lgm.latent!r} are {names}: name one of them, as "
            f"in var_name={(names or ['y'])[0]!r}."
        )
    return observed[names[0] if var_name is None else var_name]


def _elements_of(lgm: LatentGaussianModel, name: str) -> tuple[Index, tuple[int, ...]]:
    """The elements of the likelihood for the observations of a variable, and their shape."""
    point = lgm.generic_theta
    values = lgm.graphs.term_values(np.array(lgm.mean(point)), point)
    begin = 0
    for other, value in zip(lgm.likelihood_names, values, strict=True):
        if other == name:
            return begin + np.arange(np.size(value)), np.shape(value)
        begin += np.size(value)
    raise AssertionError(f"{name} has no density")


def _refuse_joint_reads(
    lgm: LatentGaussianModel, name: str, numbers: list[str], instead: str
) -> None:
    """Raise if a density reads several f_i."""
    if lgm.sets is None and lgm.coupled is None:
        if lgm.element_reads is not None:
            return
        point = lgm.generic_theta
        values = lgm.graphs.term_values(np.array(lgm.mean(point)), point)
        names = np.repeat(lgm.likelihood_names, [np.size(value) for value in values])
        summed = names[lgm.element_counts > 1][0]
        raise ValueError(
            f"{summed} is one number, a sum over several elements of {lgm.latent!r}. This is for "
            "densities that read one element each, p(y_k | f_i): write the terms of the sum as a "
            f"vector, without .sum(). {instead}"
        )
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
