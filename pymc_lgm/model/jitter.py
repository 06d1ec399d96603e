"""Find the jitter that is added to the diagonal of a process's covariance."""

from __future__ import annotations

from typing import Any

import numpy as np

from pytensor.graph.basic import Constant
from pytensor.tensor.basic import Eye
from pytensor.tensor.elemwise import DimShuffle

__all__ = ["jitter_of"]


def jitter_of(latent: Any) -> float | None:
    """The ``jitter`` of ``gp.prior(..., reparameterize=False, jitter=)``, found in the graph.

    ``None`` if the covariance is not K + jitter · I.
    """
    _, cov = latent.owner.op.dist_params(latent.owner)
    for term in _inputs(cov):
        factors = _inputs(term)
        if any(each.owner is not None and isinstance(each.owner.op, Eye) for each in factors):
            numbers = [_constant(each) for each in factors]
            return next((number for number in numbers if number is not None), None)
    return None


def _inputs(variable: Any) -> list[Any]:
    return [] if variable.owner is None else list(variable.owner.inputs)


def _constant(variable: Any) -> float | None:
    while variable.owner is not None and isinstance(variable.owner.op, DimShuffle):
        (variable,) = variable.owner.inputs
    if not isinstance(variable, Constant) or np.size(variable.data) != 1:
        return None
    return float(np.ravel(variable.data)[0])
