"""Series as PyMC has them: an autoregression or a random walk as T x = u + ε with a banded T.

See `pymc_lgm.priors.banded`. `pymc.AR` says x_t = c + Σ_k ρ_k x_{t−k} + σ ε_t after its first
values, `pymc.GaussianRandomWalk` x_t = x_{t−1} + μ + σ ε_t; their first values are normal.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt

from pymc.distributions.timeseries import AutoRegressiveRV, RandomWalkRV
from pytensor.tensor.random.basic import NormalRV

from pymc_lgm.model.integrates import is_positive
from pymc_lgm.priors.markov import SeriesMaker

__all__ = ["Series", "as_series", "is_normal", "is_series", "parameters", "parts"]

Variable = Any


class Series(NamedTuple):
    """T x = u + ε: see `pymc_lgm.model.latents.FieldLaw`.

    Attributes
    ----------
    whitener : variable
        T in bands, (b + 1, n).
    drive : variable
        u, (n,).
    width : int
        b + 1.
    name : str
    """

    whitener: Variable
    drive: Variable
    width: int
    name: str

    @property
    def reads(self) -> list[Variable]:
        """T and u."""
        return [self.whitener, self.drive]

    def _dense(self) -> Variable:
        """T, (n, n)."""
        n = self.whitener.shape[1]
        return sum(pt.diag(self.whitener[k, : n - k], -k) for k in range(self.width))

    def mean(self) -> Variable:
        """T⁻¹ u, by a dense T."""
        return pt.linalg.solve_triangular(self._dense(), self.drive, lower=True, b_ndim=1)

    def covariance(self) -> Variable:
        """T⁻¹ T⁻ᵀ, (n, n)."""
        T = self._dense()
        inverse = pt.linalg.solve_triangular(T, pt.eye(T.shape[0]), lower=True, b_ndim=2)
        return inverse @ inverse.T

    def maker(self, n: int) -> SeriesMaker:
        """Q by its elements."""
        return SeriesMaker(n, self.width)

    def explain(self, where: str) -> str:
        """What keeps T from having an inverse."""
        return (
            f"The series {self.name!r} has a standard deviation that is not a positive number "
            f"{where}. A stationary start, sigma / sqrt(1 - rho**2), needs |rho| < 1: give rho a "
            "prior on (-1, 1), as pm.Uniform('rho', -1, 1) or a pm.Beta."
        )


def is_series(rv: Variable) -> bool:
    """Whether a random variable is one series with normal first values and innovations."""
    op = rv.owner.op
    if rv.ndim != 1 or not isinstance(op, AutoRegressiveRV | RandomWalkRV):
        return False
    if isinstance(op, AutoRegressiveRV):
        return is_normal(rv.owner.inputs[2])
    start, innovation, _ = rv.owner.inputs
    return is_normal(start) and is_normal(innovation)


def as_series(rv: Variable) -> Series:
    """T in bands and u, graphs of what the series depends on."""
    start, steps, lags, drift, sigma = parts(rv)
    first, scale = parameters(start)
    order = rv.owner.op.ar_order if isinstance(rv.owner.op, AutoRegressiveRV) else 1

    def each(value: Variable, count: Variable) -> Variable:
        return pt.broadcast_to(pt.as_tensor(value).astype("float64"), (count,))

    sigma = each(_positive(sigma), steps)
    first, scale = each(first, order), each(_positive(scale), order)
    bands = [pt.concatenate([1.0 / scale, 1.0 / sigma])]
    for k in range(1, order + 1):
        # T_{j+k, j} of rows j + k ≥ order; those before are first values, which depend on none.
        bands.append(pt.concatenate([pt.zeros(order - k), -lags[k - 1] / sigma, pt.zeros(k)]))
    drive = pt.concatenate([first / scale, each(drift, steps) / sigma])
    whitener = pt.stack(bands).astype("float64")
    return Series(whitener, drive.astype("float64"), order + 1, str(rv.name))


def _positive(sd: Variable) -> Variable:
    """A standard deviation; PyMC's density is zero where it is not positive, and NaN has none."""
    sd = pt.as_tensor(sd)
    return sd if is_positive(sd) else pt.switch(pt.gt(sd, 0.0), sd, np.nan)


def is_normal(rv: Variable) -> bool:
    """Whether a distribution is a univariate normal."""
    return rv.owner is not None and isinstance(rv.owner.op, NormalRV)


def parts(rv: Variable) -> tuple[Variable, ...]:
    """First values, steps, ρ of shape (..., order), c and σ; those of a walk with steps first."""
    if isinstance(rv.owner.op, RandomWalkRV):
        start, innovation, steps = rv.owner.inputs
        return start, steps, pt.ones(1), *parameters(innovation)
    rho, sigma, start, steps, *_ = rv.owner.inputs
    constant = int(rv.owner.op.constant_term)
    order = rv.owner.op.ar_order
    if rho.type.shape[-1] != constant + order:  # one number for all lags, or unknown how many
        rho = pt.broadcast_to(rho, (*rho.shape[:-1], constant + order))
    return start, steps, rho[..., constant:], rho[..., 0] if constant else pt.zeros(()), sigma


def parameters(rv: Variable) -> tuple[Variable, Variable]:
    """Mean and standard deviation."""
    mean, sd = rv.owner.op.dist_params(rv.owner)
    return mean, sd
