"""Series as PyMC has them: an autoregression or a random walk as T x = u + ε with a banded T.

See `pymc_lgm.priors.banded`. `pymc.AR` says x_t = c + Σ_k ρ_k x_{t−k} + σ ε_t after its first
values, `pymc.GaussianRandomWalk` x_t = x_{t−1} + μ + σ ε_t; their first values are normal.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytensor.tensor as pt

from pymc.distributions.timeseries import AutoRegressiveRV, RandomWalkRV
from pytensor.tensor.random.basic import NormalRV

from pymc_lgm.priors.markov import SeriesMaker

__all__ = ["Recursion", "Series", "as_series", "is_series", "recursion_of"]

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
        if not _is_normal(innovation):
            raise ValueError(
                f"{rv.name!r} is a random walk whose innovations are not univariate normal: write "
                "pm.GaussianRandomWalk, or go on with its draws by hand."
            )
        if any(each.type.shape[0] != 1 for each in _parameters(innovation)):
            raise ValueError(
                f"{rv.name!r} has innovations that differ from step to step, so that those of the "
                "steps to come are unknown: give it one mu and one sigma."
            )
    _, _, lags, *others = _parts(rv)
    if is_walk:  # one for all steps
        others = [each[0] for each in others]
    numbers = [pt.shape_padleft(each, rv.ndim - 1 - each.ndim) for each in others]
    return Recursion(pt.shape_padleft(lags, rv.ndim - lags.ndim), *numbers)


def is_series(rv: Variable) -> bool:
    """Whether a random variable is one series with normal first values and innovations."""
    op = rv.owner.op
    if rv.ndim != 1 or not isinstance(op, AutoRegressiveRV | RandomWalkRV):
        return False
    if isinstance(op, AutoRegressiveRV):
        return _is_normal(rv.owner.inputs[2])
    start, innovation, _ = rv.owner.inputs
    return _is_normal(start) and _is_normal(innovation)


def as_series(rv: Variable) -> Series:
    """T in bands and u, graphs of what the series depends on."""
    start, steps, lags, drift, sigma = _parts(rv)
    first, scale = _parameters(start)
    order = rv.owner.op.ar_order if isinstance(rv.owner.op, AutoRegressiveRV) else 1

    def each(value: Variable, count: Variable) -> Variable:
        return pt.broadcast_to(pt.as_tensor(value).astype("float64"), (count,))

    sigma = each(sigma, steps)
    first, scale = each(first, order), each(scale, order)
    bands = [pt.concatenate([1.0 / scale, 1.0 / sigma])]
    for k in range(1, order + 1):
        # T_{j+k, j} of rows j + k ≥ order; those before are first values, which depend on none.
        bands.append(pt.concatenate([pt.zeros(order - k), -lags[k - 1] / sigma, pt.zeros(k)]))
    drive = pt.concatenate([first / scale, each(drift, steps) / sigma])
    whitener = pt.stack(bands).astype("float64")
    return Series(whitener, drive.astype("float64"), order + 1, str(rv.name))


def _is_normal(rv: Variable) -> bool:
    return rv.owner is not None and isinstance(rv.owner.op, NormalRV)


def _parts(rv: Variable) -> tuple[Variable, ...]:
    """First values, steps, ρ of shape (..., order), c and σ; those of a walk with steps first."""
    if isinstance(rv.owner.op, RandomWalkRV):
        start, innovation, steps = rv.owner.inputs
        return start, steps, pt.ones(1), *_parameters(innovation)
    rho, sigma, start, steps, *_ = rv.owner.inputs
    constant = int(rv.owner.op.constant_term)
    order = rv.owner.op.ar_order
    if rho.type.shape[-1] != constant + order:  # one number for all lags, or unknown how many
        rho = pt.broadcast_to(rho, (*rho.shape[:-1], constant + order))
    return start, steps, rho[..., constant:], rho[..., 0] if constant else pt.zeros(()), sigma


def _parameters(rv: Variable) -> tuple[Variable, Variable]:
    """Mean and standard deviation."""
    mean, sd = rv.owner.op.dist_params(rv.owner)
    return mean, sd
