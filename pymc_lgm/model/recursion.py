"""How a series of PyMC goes on after its last value: what a forecast needs of its graph."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytensor.tensor as pt

from pymc.distributions.timeseries import AutoRegressiveRV, RandomWalkRV

from pymc_lgm.model.series import is_normal, parameters, parts

__all__ = ["Recursion", "recursion_of"]

Variable = Any


class Recursion(NamedTuple):
    """x_t = c + Σ_k ρ_k x_{t−k} + σ ε_t: how a series goes on, of one series or of several.

    Attributes
    ----------
    lags : variable
        ρ, (..., order).
    drift, sigma : variable
        c and σ, (...).
    """

    lags: Variable
    drift: Variable
    sigma: Variable


def recursion_of(rv: Variable) -> Recursion:
    """How a series goes on after its last value, whatever its first values are distributed as.

    Raises
    ------
    ValueError
        If `rv` is no series, or its innovations are not normal, or not alike in all steps.
    """
    op = getattr(getattr(rv, "owner", None), "op", None)
    if not isinstance(op, AutoRegressiveRV | RandomWalkRV):
        kind = type(rv).__name__ if op is None else f"made by {op}"
        raise ValueError(
            f"{getattr(rv, 'name', rv)!r} is no series ({kind}): steps= goes on with a pm.AR or a "
            "pm.GaussianRandomWalk. Of a sum pass the series in it, and add the rest to its draws."
        )
    if is_walk := isinstance(op, RandomWalkRV):
        innovation = rv.owner.inputs[1]
        if not is_normal(innovation):
            raise ValueError(
                f"{rv.name!r} is a random walk whose innovations are not univariate normal: write "
                "pm.GaussianRandomWalk, or go on with its draws by hand."
            )
        if any(each.type.shape[0] != 1 for each in parameters(innovation)):
            raise ValueError(
                f"{rv.name!r} has innovations that differ from step to step, so that those of the "
                "steps to come are unknown: give it one mu and one sigma."
            )
    _, _, lags, *others = parts(rv)
    if is_walk:  # one for all steps
        others = [each[0] for each in others]
    numbers = [pt.shape_padleft(each, rv.ndim - 1 - each.ndim) for each in others]
    return Recursion(pt.shape_padleft(lags, rv.ndim - lags.ndim), *numbers)
