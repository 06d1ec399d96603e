"""Draws of a model from its prior, and observations replaced by them, for tests of samplers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import pymc as pm

from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.traversal import ancestors
from pytensor.scalar.basic import Cast
from pytensor.tensor.elemwise import Elemwise

from pymc_lgm.compile.graphs.nodes import op_of
from pymc_lgm.linalg import Array
from pymc_lgm.model.points import unconstrained

__all__ = ["kept", "prior_draws", "replace", "replaceable_data"]


def replaceable_data(model: pm.Model) -> dict[str, SharedVariable]:
    """Return the `pymc.Data` of each observed variable; raise if a variable has none."""
    data: dict[str, SharedVariable] = {}
    for rv in model.observed_RVs:
        shared = [v for v in ancestors([model.rvs_to_values[rv]]) if isinstance(v, SharedVariable)]
        value = model.rvs_to_values[rv]
        while isinstance(op_of(value), Elemwise):
            if not isinstance(value.owner.op.scalar_op, Cast):
                break
            value = value.owner.inputs[0]
        # If observations are an expression of the data, the data for given draws are not known.
        if shared != [value] or value in data.values():
            raise ValueError(
                f"The test replaces the observations of {rv.name!r} in each replicate: "
                f"write observed=pm.Data({rv.name + '_data'!r}, y), with its own data."
            )
        data[rv.name] = value
    return data


def prior_draws(
    model: pm.Model, draws: int, rng: np.random.Generator
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Independent draws of the value variables and of the observations.

    Raises
    ------
    ValueError
        If a transform restricts the support, as ``ordered`` does, since PyMC's draws ignore it.
    """
    graphs = [*unconstrained(model, model.free_RVs), *model.observed_RVs]
    with np.errstate(invalid="ignore"):
        drawn = pm.draw(graphs, draws=draws, random_seed=rng)
    if draws == 1:  # PyMC omits the axis of draws.
        drawn = [np.asarray(values)[None] for values in drawn]
    names = [model.rvs_to_values[rv].name for rv in model.free_RVs]
    points = dict(zip(names, drawn, strict=False))
    for rv in model.free_RVs:
        if np.isnan(points[model.rvs_to_values[rv].name]).any():
            raise ValueError(
                f"PyMC draws {rv.name!r} from its prior without regard to its transform, and some "
                "draws are where the density of the model is 0. So they are not from the model's "
                "prior. For ordered cutpoints write a first one and positive differences, as in "
                "pm.math.cumsum(pm.math.concatenate([[first], differences]))."
            )
    observed = {
        rv.name: values for rv, values in zip(model.observed_RVs, drawn[len(names) :], strict=True)
    }
    return points, observed


def replace(data: Mapping[str, SharedVariable], observed: Mapping[str, Array]) -> None:
    """Replace the observations of a model."""
    for name, variable in data.items():
        variable.set_value(np.asarray(observed[name]).astype(variable.dtype), borrow=True)


@contextmanager
def kept(data: Mapping[str, SharedVariable]) -> Iterator[None]:
    """Restore the observations of a model at the end."""
    own = {name: variable.get_value() for name, variable in data.items()}
    try:
        yield
    finally:
        for name, variable in data.items():
            variable.set_value(own[name])
