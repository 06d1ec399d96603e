"""What a model has and nothing reads: missing observations, drawn given all else.

PyMC makes a variable ``y_unobserved`` of the missing elements of an observed one. Integrated out,
it leaves nothing behind; so theta and f move without it, and a draw of it given theta and f makes
the joint law that of the posterior.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pymc as pm
import pytensor

from numpy.typing import NDArray
from pymc.pytensorf import find_rng_nodes
from pytensor.graph.replace import clone_replace
from pytensor.tensor.random.type import RandomGeneratorType

from pymc_lgm.linalg import Array

__all__ = ["Missing"]

Variable = Any


class Missing:
    """Draws of free random variables that nothing reads.

    Parameters
    ----------
    model : pymc.Model
    rvs : sequence of variable
    latents : sequence of variable
        Value variables of f.
    theta : variable
    place : callable
        Puts theta, and what other steps own, in the place of the model's value variables.
    compiled : callable
        Inputs and outputs -> a function of arrays.

    Attributes
    ----------
    graphs : list of variable
        Draws, on the scale that a point of PyMC has them on.
    """

    def __init__(
        self,
        model: pm.Model,
        rvs: Sequence[Variable],
        latents: Sequence[Variable],
        theta: Variable,
        place: Callable[[list[Variable]], list[Variable]],
        compiled: Callable[[list[Variable], Any], Callable[..., Any]],
    ):
        self._inputs, self._compiled = [theta, *latents], compiled
        draws = []
        for rv in rvs:
            node, transform = rv.owner, model.rvs_to_transforms[rv]
            given = [v for v in node.inputs if not _is_generator(v)]
            parameters = iter(place(model.replace_rvs_by_values(given)))
            inputs = [v if _is_generator(v) else next(parameters) for v in node.inputs]
            draw = node.clone_with_new_inputs(inputs).outputs[node.outputs.index(rv)]
            draws.append(draw if transform is None else transform.forward(draw, *inputs))
        # Of its own: the model's are shared by all who draw from it.
        own = {v: pytensor.shared(np.random.default_rng(0)) for v in find_rng_nodes(draws)}
        self.graphs = clone_replace(draws, own, rebuild_strict=False)
        self._generators = list(own.values())

    @cached_property
    def _draws(self) -> Callable[..., Any]:
        return self._compiled(self._inputs, self.graphs)

    def draw(self, rng: np.random.Generator, *values: Array) -> list[NDArray[Any]]:
        """Values of theta and of the latents -> those of the missing."""
        draws = self._draws  # PyMC seeds generators when it compiles
        for generator in self._generators:
            generator.set_value(np.random.default_rng(rng.integers(2**63)), borrow=True)
        return [np.array(value) for value in draws(*values)]


def _is_generator(v: Variable) -> bool:
    return isinstance(v.type, RandomGeneratorType)
