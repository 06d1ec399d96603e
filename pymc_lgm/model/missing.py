"""Missing observations and other variables that no density reads, drawn given all others.

PyMC makes the missing elements of an observed variable a variable ``y_unobserved``. Its density
integrates to one, so the samplers move theta and f without it. A draw of it given theta and f then
completes a draw from the joint posterior.
"""

from __future__ import annotations

import math

from collections.abc import Callable, Container
from functools import cached_property
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt

from numpy.typing import NDArray
from pymc.pytensorf import find_rng_nodes
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.type import RandomGeneratorType

from pymc_lgm.linalg import Array
from pymc_lgm.model.forms.base import Setting
from pymc_lgm.model.operations import Variable

__all__ = ["Missing", "places_of", "without_added"]


def without_added(model: pm.Model, drawn: Container[str]) -> pm.Model:
    """The model as it was sampled, if variables were added later, as by ``gp.conditional``.

    Parameters
    ----------
    model : pymc.Model
    drawn : container of str
        Names of the variables in a trace. A free variable that is not there has been added if
        neither one that is there nor a density of data depends on it.

    Returns
    -------
    pymc.Model
        ``model`` if nothing was added, and otherwise a model of its other variables themselves.
    """
    absent = [rv for rv in model.free_RVs if rv.name not in drawn]
    known = [rv for rv in model.basic_RVs if rv not in absent]
    read = set(ancestors([*known, *model.potentials])) if absent else set()
    added = [rv for rv in absent if rv not in read]
    if not added:
        return model
    # PyMC's copies of a model have other variables, and it copies none with initial values.
    before = object.__new__(type(model))
    vars(before).update(vars(model))
    before.free_RVs = [rv for rv in model.free_RVs if rv not in added]
    return before


def places_of(model: pm.Model, name: str, shape: tuple[int, ...]) -> tuple[str, NDArray[np.intp]]:
    """The variable that an observed one is a part of, and which element of it is where in that.

    Parameters
    ----------
    model : pymc.Model
    name : str
        An observed variable; "y_observed" is what has been observed of a "y" with missing elements.
    shape : tuple of int
        Its shape.

    Returns
    -------
    name : str
    places : ndarray
        In the shape of the whole variable, with -1 for missing elements.
    """
    own = np.arange(math.prod(shape)).reshape(shape)
    whole = name.removesuffix("_observed")
    if name == whole or f"{whole}_unobserved" not in model.named_vars:
        return name, own
    seen, missing = model[name], model[f"{whole}_unobserved"]
    parts = {seen: pt.constant(own.astype(seen.dtype)), missing: pt.full_like(missing, -1)}
    (joined,) = clone_replace([model[whole]], parts, rebuild_strict=False)
    return whole, joined.eval().astype(np.intp)


class Missing:
    """Draws of free random variables that no density reads.

    Attributes
    ----------
    graphs : list of variable
        Draws, on the scale of a PyMC point.
    """

    def __init__(self, setting: Setting):
        model, reading, self._compiled = setting.model, setting.reading, setting.compiled
        latents = (model.rvs_to_values[latent.rv] for latent in reading.latents)
        self._inputs = [setting.theta, *(value for value in latents if value in model.value_vars)]
        draws = []
        for rv in reading.missing:
            node, transform = rv.owner, model.rvs_to_transforms[rv]
            given = [v for v in node.inputs if not _is_generator(v)]
            parameters = iter(setting.place(model.replace_rvs_by_values(given)))
            inputs = [v if _is_generator(v) else next(parameters) for v in node.inputs]
            draw = node.clone_with_new_inputs(inputs).outputs[node.outputs.index(rv)]
            draws.append(draw if transform is None else transform.forward(draw, *inputs))
        # Generators of its own, since the model's generators are shared.
        own = {v: pytensor.shared(np.random.default_rng(0)) for v in find_rng_nodes(draws)}
        self.graphs = clone_replace(draws, own, rebuild_strict=False)
        self._generators = list(own.values())

    @cached_property
    def _draws(self) -> Callable[..., Any]:
        return self._compiled(self._inputs, self.graphs)

    def draw(self, rng: np.random.Generator, *values: Array) -> list[NDArray[Any]]:
        """Draw the variables, given values of theta and of the latents."""
        draws = self._draws  # compiled first, because PyMC then seeds the generators
        for generator in self._generators:
            generator.set_value(np.random.default_rng(rng.integers(2**63)), borrow=True)
        return [np.array(value) for value in draws(*values)]


def _is_generator(v: Variable) -> bool:
    return isinstance(v.type, RandomGeneratorType)
