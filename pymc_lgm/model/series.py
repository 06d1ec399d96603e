"""Series as PyMC has them: an autoregression or a random walk as T x = u + ε with a banded T.

See `pymc_lgm.priors.banded`. `pymc.AR` says x_t = c + Σ_k ρ_k x_{t−k} + σ ε_t after its first
values, `pymc.GaussianRandomWalk` x_t = x_{t−1} + μ + σ ε_t; their first values are normal.
"""

from __future__ import annotations

from typing import Any

import pytensor.tensor as pt

from pymc.distributions.timeseries import AutoRegressiveRV, RandomWalkRV
from pytensor.tensor.random.basic import NormalRV

__all__ = ["as_series", "is_series"]

Variable = Any


def is_series(rv: Variable) -> bool:
    """Whether a random variable is one series with normal first values and innovations."""
    op = rv.owner.op
    if rv.ndim != 1 or not isinstance(op, AutoRegressiveRV | RandomWalkRV):
        return False
    if isinstance(op, AutoRegressiveRV):
        return _is_normal(rv.owner.inputs[2])
    start, innovation, _ = rv.owner.inputs
    return _is_normal(start) and _is_normal(innovation)


def as_series(rv: Variable) -> tuple[Variable, Variable]:
    """T in bands and u, graphs of what the series depends on."""
    if isinstance(rv.owner.op, AutoRegressiveRV):
        rho, sigma, start, steps, *_ = rv.owner.inputs
        constant = rv.owner.op.constant_term
        lags = [rho[k] for k in range(int(constant), rv.owner.op.ar_order + int(constant))]
        drift = rho[0] if constant else 0.0
    else:
        start, innovation, steps = rv.owner.inputs
        drift, sigma = _parameters(innovation)
        lags = [1.0]
    first, scale = _parameters(start)
    order = len(lags)

    def each(value: Variable, count: Variable) -> Variable:
        return pt.broadcast_to(pt.as_tensor(value).astype("float64"), (count,))

    sigma = each(sigma, steps)
    first, scale = each(first, order), each(scale, order)
    bands = [pt.concatenate([1.0 / scale, 1.0 / sigma])]
    for k, rho_k in enumerate(lags, start=1):
        # T_{j+k, j} of rows j + k ≥ order; those before are first values, which depend on none.
        bands.append(pt.concatenate([pt.zeros(order - k), -rho_k / sigma, pt.zeros(k)]))
    drive = pt.concatenate([first / scale, each(drift, steps) / sigma])
    return pt.stack(bands), drive


def _is_normal(rv: Variable) -> bool:
    return rv.owner is not None and isinstance(rv.owner.op, NormalRV)


def _parameters(rv: Variable) -> tuple[Variable, Variable]:
    """Mean and standard deviation."""
    mean, sd = rv.owner.op.dist_params(rv.owner)
    return mean, sd
