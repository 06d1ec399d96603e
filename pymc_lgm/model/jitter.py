"""Find the jitter that is added to the diagonal of a process's covariance."""

from __future__ import annotations

from typing import Any

import numpy as np

from pytensor.tensor.basic import Eye

from pymc_lgm.model.operations import constant_of

__all__ = ["jitter_of"]


def jitter_of(latent: Any) -> float | None:
    """The ``jitter`` of ``gp.prior(..., reparameterize=False, jitter=)``, found in the graph.

    ``None`` if the covariance is not K + jitter · I.
    """
    _, cov = latent.owner.op.dist_params(latent.owner)
    for term in _inputs(cov):
        factors = _inputs(term)
        if any(each.owner is not None and isinstance(each.owner.op, Eye) for each in factors):
            numbers = [x for x in map(constant_of, factors) if x is not None and np.size(x) == 1]
            return float(np.ravel(numbers[0])[0]) if numbers else None
    return None


def _inputs(variable: Any) -> list[Any]:
    return [] if variable.owner is None else list(variable.owner.inputs)
