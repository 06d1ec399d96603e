"""PyMC's series, autoregressions and random walks, as T x = u + ε with a banded T.

See `pymc_lgm.gaussian.banded`. After its first values, which must be normal, `pymc.AR` is
x_t = c + Σ_k ρ_k x_{t−k} + σ ε_t, and `pymc.GaussianRandomWalk` is x_t = x_{t−1} + μ + σ ε_t. A
batch of series is one series with breaks: T has zeros where one of them ends and the next begins. A
`pymc.MvGaussianRandomWalk` of k elements is one series, time by time, with 2 k − 1 lags: with
innovations N(μ, L Lᵀ), the rows of T at a time are L⁻¹ (x_t − x_{t−1}) = L⁻¹ μ + ε_t.

`pymc.EulerMaruyama` is x_t = x_{t−1} + h a(x_{t−1}) + √h b(x_{t−1}) ε_t. It is a series if a(x) is
affine, a(x) = c + λ x, and b does not depend on x: then ρ = 1 + h λ, the drift is h c and σ = √h b.
"""

from __future__ import annotations

import math

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import pytensor.tensor as pt

from pymc.distributions.distribution import SymbolicRandomVariable
from pymc.distributions.multivariate import MvNormalRV
from pymc.distributions.timeseries import AutoRegressiveRV, EulerMaruyamaRV, RandomWalkRV
from pytensor.graph.basic import Constant
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.random.basic import NormalRV
from pytensor.tensor.random.op import RandomVariable

from pymc_lgm.compile.graphs.functions import shape_of
from pymc_lgm.compile.graphs.nodes import op_of
from pymc_lgm.gaussian.families import BandedSeries
from pymc_lgm.model.integrates import positive_or_nan
from pymc_lgm.model.operations import Variable, depending, is_affine
from pymc_lgm.model.sparse_precision import FieldLaw

__all__ = [
    "Recursion",
    "Series",
    "as_series",
    "as_vector_walk",
    "is_series",
    "is_vector_walk",
    "recursion_of",
]


@dataclass(frozen=True, eq=False)
class Series(FieldLaw):
    """A series T x = u + ε, whose ``reads`` are T in bands, shape (b + 1, n), and u, shape (n,).

    Attributes
    ----------
    width : int
        b + 1.
    batch : tuple of int
        Shape of the batch of series that x ravels, ``()`` for one series.
    """

    width: int
    batch: tuple[int, ...] = ()


def _series(
    rv: Variable,
    whitener: Variable,
    drive: Variable,
    width: int,
    covariance: Callable[[], Variable],
    batch: tuple[int, ...] = (),
) -> Series:
    return Series(
        kind="series",
        reads=[whitener, drive],
        family=lambda n: BandedSeries(n, width, n // math.prod(batch)),
        covariance=covariance,
        fault=f"The series {str(rv.name)!r} has a standard deviation that is not a positive number",
        remedy=". A stationary start, sigma / sqrt(1 - rho**2), needs |rho| < 1: give rho a prior "
        "on (-1, 1), as pm.Uniform('rho', -1, 1) or a pm.Beta.",
        width=width,
        batch=batch,
    )


def _dense(bands: Variable, width: int) -> Variable:
    """T of each series, shape (..., n, n), from its bands, (b + 1, ..., n)."""
    n = bands.shape[-1]
    row, column = pt.arange(n)[:, None], pt.arange(n)[None, :]
    return sum(pt.where(pt.eq(row - column, k), bands[k][..., None, :], 0.0) for k in range(width))


def is_vector_walk(rv: Variable) -> bool:
    """Whether a variable is one walk of vectors with normal first values and innovations."""
    if not isinstance(rv.owner.op, RandomWalkRV) or rv.ndim != 2:
        return False
    start, innovation, _ = rv.owner.inputs
    return all(isinstance(op_of(x), MvNormalRV) for x in (start, innovation))


def as_vector_walk(rv: Variable) -> tuple[Variable, Series]:
    """The mean and the prior of a walk, with the elements of x time by time."""
    start, innovation, _ = rv.owner.inputs
    # If ``dims`` gives the shape, its graph has a wrong check of k, which only a rewrite removes.
    n, k = shape_of(rv)
    blocks, drives = [], []
    for part, count in ((start, 1), (innovation, n - 1)):
        mean, cov = part.owner.op.dist_params(part.owner)
        L = pt.linalg.cholesky(pt.broadcast_to(cov, (count, k, k)).astype("float64"))
        eye = pt.broadcast_to(pt.eye(k), (count, k, k))
        inverse = pt.linalg.solve_triangular(L, eye, lower=True, b_ndim=2)
        mean = pt.broadcast_to(mean, (count, k)).astype("float64")
        blocks.append(inverse)
        drives.append((inverse @ mean[..., None])[..., 0])
    now = pt.concatenate(blocks)  # (n, k, k): L⁻¹ of each time
    after = pt.concatenate([blocks[1], pt.zeros((1, k, k))])  # L⁻¹ of the next time
    bands = []
    for d in range(2 * k):
        # T_{j+d, j} with j = t k + b: element (b + d, b) of L⁻¹ at t, or (b + d − k, b) at t + 1.
        columns = []
        for b in range(k):
            if b + d < k:
                columns.append(now[:, b + d, b])
            elif b <= b + d - k < k:
                columns.append(-after[:, b + d - k, b])
            else:
                columns.append(pt.zeros_like(now[:, 0, 0]))
        bands.append(pt.stack(columns, axis=-1).ravel())
    drive = pt.concatenate(drives).ravel()
    whitener = pt.stack(bands)
    mean = pt.linalg.solve_triangular(_dense(whitener, 2 * k), drive, lower=True, b_ndim=1)

    def covariance() -> Variable:
        raise ValueError(
            f"{str(rv.name)!r} is a pm.MvGaussianRandomWalk, and the linear predictor reads too "
            "many of its elements together. This package integrates it out if each element of the "
            "predictor reads few of them. Sample the model with step=pm.NUTS()."
        )

    return mean.reshape((-1, k)), _series(rv, whitener, drive, 2 * k, covariance)


def is_series(rv: Variable) -> bool:
    """Whether a variable is a series, or a batch, with normal first values and innovations."""
    op = rv.owner.op
    if isinstance(op, AutoRegressiveRV):
        return _is_normal(rv.owner.inputs[2])
    if isinstance(op, EulerMaruyamaRV):
        return _is_normal(rv.owner.inputs[0]) and _linear_equation(rv) is not None
    if not isinstance(op, RandomWalkRV):
        return False
    start, innovation, _ = rv.owner.inputs
    return _is_normal(start) and _is_normal(innovation)


def as_series(rv: Variable) -> tuple[Variable, Series]:
    """The mean and the prior of a series, as graphs of its parameters."""
    start, steps, lags, drift, sigma = _parts(rv)
    first, scale = _parameters(start)
    is_walk = isinstance(rv.owner.op, RandomWalkRV)
    order = rv.owner.op.ar_order if isinstance(rv.owner.op, AutoRegressiveRV) else 1
    batch = shape_of(rv)[:-1] if rv.ndim > 1 else ()

    def each(value: Variable, count: Variable) -> Variable:
        value = pt.as_tensor(value).astype("float64")
        if is_walk and batch:  # the innovations of a walk have time as their first axis
            return pt.moveaxis(pt.broadcast_to(value, (count, *batch)), 0, -1)
        return pt.broadcast_to(value, (*batch, count))

    def along(value: Variable) -> Variable:
        """A parameter of each series, with an axis for time."""
        return value[..., None] if batch and not is_walk and value.ndim > 0 else value

    sigma = each(along(positive_or_nan(sigma)), steps)
    first, scale = each(first, order), each(positive_or_nan(scale), order)
    bands = [pt.concatenate([1.0 / scale, 1.0 / sigma], axis=-1)]
    for k in range(1, order + 1):
        # T_{j+k, j} for rows j + k ≥ order. The rows before are first values, without lags.
        before, after = pt.zeros((*batch, order - k)), pt.zeros((*batch, k))
        bands.append(pt.concatenate([before, -along(lags[..., k - 1]) / sigma, after], axis=-1))
    drive = pt.concatenate([first / scale, each(along(drift), steps) / sigma], axis=-1)
    drive, whitener = drive.astype("float64"), pt.stack(bands).astype("float64")
    T = _dense(whitener, order + 1)

    def covariance() -> Variable:
        """T⁻¹ T⁻ᵀ of each series, shape (..., n, n)."""
        inverse = pt.linalg.solve_triangular(T, pt.eye(T.shape[-1]), lower=True, b_ndim=2)
        return inverse @ inverse.mT

    mean = pt.linalg.solve_triangular(T, drive, lower=True, b_ndim=1)
    if batch:
        whitener, drive = whitener.reshape((order + 1, -1)), drive.ravel()
    return mean, _series(rv, whitener, drive, order + 1, covariance, batch)


class Recursion(NamedTuple):
    """The recursion x_t = c + Σ_k ρ_k x_{t−k} + σ ε_t of one series or several.

    Attributes
    ----------
    lags : variable
        ρ, shape (..., order).
    drift, sigma : variable
        c and σ, shape (...).
    """

    lags: Variable
    drift: Variable
    sigma: Variable


def recursion_of(rv: Variable) -> Recursion:
    """The recursion that continues a series, for any distribution of its first values.

    Raises
    ------
    ValueError
        If `rv` is not a series, or if its innovations are not normal or differ between steps.
    """
    op = op_of(rv)
    if not isinstance(op, AutoRegressiveRV | RandomWalkRV):
        kind = type(rv).__name__ if op is None else "an expression"
        if isinstance(op, RandomVariable | SymbolicRandomVariable):
            kind = f"its distribution is {op.name}"
        raise ValueError(
            f"{getattr(rv, 'name', rv)!r} is not a series ({kind}): steps= continues a pm.AR, a "
            "pm.GaussianRandomWalk, an lgm.gmrf.RandomWalk or an lgm.gmrf.Seasonal. For a sum, "
            "pass the series in it, and add the rest to its draws."
        )
    if is_walk := isinstance(op, RandomWalkRV):
        innovation = rv.owner.inputs[1]
        if not _is_normal(innovation):
            raise ValueError(
                f"{rv.name!r} is a random walk whose innovations are not univariate normal: write "
                "pm.GaussianRandomWalk, or continue its draws by hand."
            )
        if any(each.type.shape[0] != 1 for each in _parameters(innovation)):
            raise ValueError(
                f"{rv.name!r} has innovations that differ from step to step, so the innovations of "
                "future steps are unknown: give it one mu and one sigma."
            )
    _, _, lags, *others = _parts(rv)
    if is_walk:  # the same for all steps
        others = [each[0] for each in others]
    numbers = [pt.shape_padleft(each, rv.ndim - 1 - each.ndim) for each in others]
    return Recursion(pt.shape_padleft(lags, rv.ndim - lags.ndim), *numbers)


def _is_normal(rv: Variable) -> bool:
    """Whether a distribution is a univariate normal."""
    return isinstance(op_of(rv), NormalRV)


def _parts(rv: Variable) -> tuple[Variable, ...]:
    """First values, steps, ρ of shape (..., order), c and σ (for a walk with time first)."""
    if isinstance(rv.owner.op, RandomWalkRV):
        start, innovation, steps = rv.owner.inputs
        return start, steps, pt.ones(1), *_parameters(innovation)
    if (equation := _linear_equation(rv)) is not None:
        start, steps, *_ = rv.owner.inputs
        rho, drift, sigma = equation
        return start, steps, rho[..., None], drift, sigma
    rho, sigma, start, steps, *_ = rv.owner.inputs
    constant = int(rv.owner.op.constant_term)
    order = rv.owner.op.ar_order
    if rho.type.shape[-1] != constant + order:  # one number for all lags, or an unknown length
        rho = pt.broadcast_to(rho, (*rho.shape[:-1], constant + order))
    return start, steps, rho[..., constant:], rho[..., 0] if constant else pt.zeros(()), sigma


def _linear_equation(rv: Variable) -> tuple[Variable, Variable, Variable] | None:
    """ρ, the drift and σ of each step of a linear stochastic differential equation.

    ``None`` for any other variable: if the graph does not show that the change of x is affine in x,
    element by element, and that its standard deviation does not depend on x.
    """
    op = rv.owner.op
    if not isinstance(op, EulerMaruyamaRV) or rv.ndim != 1 or not isinstance(op.dt, Constant):
        return None
    _, steps, *parameters, _ = rv.owner.inputs
    before = pt.vector("before")
    both = [pt.as_tensor(v) for v in op.sde_fn(before, *(v[..., None] for v in parameters))]
    change, scale = both
    moving = depending(both, [before])
    inputs = [v for v in ancestors(both, blockers=parameters) if v.owner is None]
    is_known = all(v is before or v in parameters or isinstance(v, Constant) for v in inputs)
    nodes = [v.owner for v in moving if v is not before]
    is_linear = change.ndim <= 1 and all(
        isinstance(node.op, Elemwise | DimShuffle)
        and is_affine(node, [v in moving for v in node.inputs])
        for node in nodes
    )
    if scale in moving or not is_known or not is_linear:
        return None
    # A clone would have random variables of its own.
    (drift, scale), (at_one, _) = (
        graph_replace(both, {before: x}, strict=False) for x in (pt.zeros(steps), pt.ones(steps))
    )
    return 1.0 + op.dt * (at_one - drift), op.dt * drift, pt.sqrt(op.dt) * scale


def _parameters(rv: Variable) -> tuple[Variable, Variable]:
    """Mean and standard deviation."""
    mean, sd = rv.owner.op.dist_params(rv.owner)
    return mean, sd
