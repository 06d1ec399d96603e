r"""Forecasts of a series: exact moments h steps ahead given a draw, and simulated paths.

    x_{n+h} | x, theta ~ N(μ_h, σ² Σ_{j<h} ψ_j²),
    μ_h = c + Σ_k ρ_k μ_{h−k},   ψ_j = Σ_k ρ_k ψ_{j−k}

for the series x_t = c + Σ_k ρ_k x_{t−k} + σ ε_t that ends at t = n. Here μ_h for h ≤ 0 is x_{n+h},
ψ_0 = 1, and ψ_j = 0 for j < 0. Given x and theta, future steps are independent of the data, so
these are also the distributions given x, theta and y. The same recursion computes μ, ψ and
simulated paths, for all draws at once.

A walk or a season of `pymc_lgm.gmrf` has the precision R / σ² with R = DᵀD. Row i of D has the
numbers d = (d_0, …, d_k) in columns i to i + k. So the recursion is Σ_j d_j x_{t+j} = σ ε_t. The
constraints of such a field, as a sum of zero, apply to the elements in the model, and not to later
ones.

References
----------
G. E. P. Box, G. M. Jenkins, G. C. Reinsel (2008). Time Series Analysis, 4th edition, sections 5.1
and 5.2: eqs. 5.2.3 (ψ weights) and 5.1.16 (variance).
H. Rue, L. Held (2005). Gaussian Markov Random Fields, sections 3.3.1 and 3.4.1 (walks), 3.4.3
(seasons).
"""

import math

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
import xarray as xr

from numpy.typing import ArrayLike
from scipy.sparse import diags_array

from pymc_lgm.compile.graphs.nodes import op_of
from pymc_lgm.drawn import Evaluator, of_present_data, posterior_of, refuse_new_data, thinned
from pymc_lgm.gaussian.structure import Structure
from pymc_lgm.gmrf.intrinsic import IntrinsicRV
from pymc_lgm.linalg import Array
from pymc_lgm.model import Recursion, is_apart_from_data, recursion_of
from pymc_lgm.observing import observations

__all__ = ["continued", "forecast", "increment", "moments_of"]

ROUNDING = 1e-8
"""Relative difference up to which the increments of a walk, or the distances between labels, count
as equal. If locations are rounded, so are the distances between them: 20000 locations in the year
2000, in units of a year, make differences of 6e-9 in the structure of a walk of order 2."""


def forecast(
    tree: xr.DataTree,
    series: Any,
    steps: int,
    model: pm.Model,
    *,
    parameters: Mapping[str, ArrayLike] | None,
    response: Mapping[str, Callable[..., Any]] | None,
    thin: int | None,
    dims: str,
    random_seed: Any,
    compile_kwargs: dict[str, Any] | None,
) -> xr.Dataset:
    """Return moments and paths for `steps` steps after the last: see `pymc_lgm.predict`.

    O(steps × order) operations on all draws at once. In addition, each draw calls one small
    compiled function for ρ, c and σ, and one for each response. Paths of several series are drawn
    independently, as they are given theta. A response that has the shape of a series gets its dims.
    """
    several: list[Any] = list(series) if isinstance(series, list | tuple) else [series]
    if not several:
        raise ValueError("There is no series: write predict(idata, [trend, season], steps=20).")
    recursions = [_recursion(x, model) for x in several]
    # The recursion must read the data of the trace. A response may read data of the steps to come.
    refuse_new_data(tree, several, model)
    posterior = posterior_of(tree, model)
    if isinstance(steps, bool) or not isinstance(steps, int | np.integer) or steps < 1:
        raise ValueError(f"steps is {steps!r}: write the number of steps ahead, 1 or more.")
    posterior = thinned(posterior, [x.name for x in several], thin)
    rng = np.random.default_rng(random_seed)
    variables: dict[str, Any] = {}
    coords: dict[str, Any] = {}
    paths: list[Array] = []
    dims_of: dict[tuple[int, ...], list[str]] = {}  # by the shape of a path
    for x, recursion in zip(several, recursions, strict=True):
        x_draws = _values(posterior, x)
        _refuse_a_part(x_draws, x, model)
        each = [*map(str, x_draws.dims[2:-1]), dims]
        if dims in (*each[:-1], "chain", "draw"):
            raise ValueError(f"{x.name} has a dimension {dims!r} already: write dims='ahead'.")
        of_draws = _of_draws(recursion, posterior, model, compile_kwargs)
        _refuse_other_batches(x.name, x_draws.shape[2:-1], of_draws)
        path, mean, variance = _ahead(np.asarray(x_draws, dtype=np.float64), of_draws, steps, rng)
        paths.append(path)
        dims_of[path.shape[2:]] = each
        drawn = ("chain", "draw", *each)
        variables |= {x.name: (drawn, path)} | moments_of(x.name, mean, variance, each)
        names = ("chain", "draw", *each[:-1])
        coords |= {name: x_draws[name].values for name in names if name in x_draws.coords}
        if (own := str(x_draws.dims[-1])) in model.coords and own in x_draws.coords:
            labels = _labels_after(x_draws[own].values, steps)
            coords |= {} if labels is None else {own: (dims, labels)}
    present = of_present_data(posterior, tree, model)
    inputs = present, model, compile_kwargs
    variables |= _observed(several, parameters, (mean, variance), dims, *inputs)
    taken = {*variables, dims, *coords, "chain", "draw"}
    for name, function in _functions(response, taken).items():
        values = _responses(name, function, paths, present, model, rng, compile_kwargs)
        others = [*(f"{name}_dim_{k}" for k in range(values.ndim - 3)), dims]
        variables[name] = (("chain", "draw", *dims_of.get(values.shape[2:], others)), values)
    return xr.Dataset(variables, {dims: np.arange(1, steps + 1)} | coords)


def _observed(
    series: Sequence[Any],
    parameters: Mapping[str, ArrayLike] | None,
    moments: tuple[Array, Array],
    dims: str,
    posterior: xr.Dataset,
    model: pm.Model,
    compile_kwargs: dict[str, Any] | None,
) -> dict[str, Any]:
    """Moments of the observations to come, if a likelihood of this package reads the series."""
    mean, variance = moments
    if len(series) > 1 or mean.ndim > 3:
        if parameters:
            raise ValueError(
                "parameters= is for a likelihood of one series. For several write response=, as "
                "{'y': lambda x, z: pm.Poisson.dist(exposure * pm.math.exp(x + z))}."
            )
        return {}
    ahead = np.arange(mean.shape[-1], dtype=np.float64)
    inputs = pt.vector("ahead"), posterior, model, compile_kwargs
    variables: dict[str, Any] = {}
    for y in observations(series, parameters, ahead, *inputs):
        for i in np.ndindex(*mean.shape[:2]):
            y.add(i, mean[i], variance[i])
        variables |= y.variables("output", dims)
    return variables


def _values(posterior: xr.Dataset, x: Any) -> xr.DataArray:
    """The draws of a series, (chain, draw, ..., time)."""
    values = posterior[x.name].transpose("chain", "draw", ...)
    if values.ndim != x.ndim + 2:
        raise ValueError(
            f"{x.name} has the dimensions {values.dims} in the trace, and {x.ndim} beside chain "
            "and draw in the model. Select by lists, as idata.isel(region=[1]), which keep them."
        )
    return values


def _refuse_a_part(draws: xr.DataArray, x: Any, model: pm.Model) -> None:
    """Raise if the trace lacks the last elements of a series.

    The draws of the other elements depend on all the data, so no forecast starts from them.
    """
    own, length = str(draws.dims[-1]), draws.shape[-1]
    # For a response, the model's labels and data may by now be those of the steps to come. Then
    # their number does not show whether the trace is complete.
    if own in model.coords:
        labels = np.asarray(model.coords[own])
        is_part = own in draws.coords and length < labels.size
        is_part = is_part and bool(np.isin(draws[own].values, labels).all())
    else:
        is_part = is_apart_from_data(model, x) and length < model.eval_rv_shapes()[x.name][-1]
    if is_part:
        raise ValueError(
            f"The trace has {length} elements of {x.name}, and the model more: what was observed "
            "later is in the draws of all elements, so this is no forecast from earlier data. "
            "Pass the whole trace, or sample a model of the earlier data."
        )


def _refuse_other_batches(
    name: str, batch: tuple[int, ...], recursion: tuple[Array, Array, Array]
) -> None:
    """Raise if ρ, c and σ are those of other series than the trace has."""
    lags, drift, sigma = recursion
    for each in (lags[0, 0, ..., 0], drift[0, 0], sigma[0, 0]):
        if any(of not in (1, here) for of, here in zip(each.shape, batch, strict=True)):
            raise ValueError(
                f"The trace has series of shape {batch} in {name}, and the model has parameters "
                f"for series of shape {each.shape}. Pass the whole trace, and select from the "
                "forecasts."
            )


def moments_of(name: str, mean: Array, variance: Array, dims: Sequence[str]) -> dict[str, Any]:
    """Return the variables of moments of f: given each draw, and given the data.

    The distribution given the data is the mixture over draws. Its variance is the mean of the
    variances plus the variance of the means.
    """
    drawn = ("chain", "draw", *dims)
    with np.errstate(over="ignore", invalid="ignore"):  # an explosive series becomes infinite
        total = variance.mean(axis=(0, 1)) + mean.var(axis=(0, 1))
    return {
        f"{name}_conditional_mean": (drawn, mean),
        f"{name}_conditional_variance": (drawn, variance),
        f"{name}_mean": (dims, mean.mean(axis=(0, 1))),
        f"{name}_variance": (dims, total),
    }


def _labels_after(labels: np.ndarray, steps: int) -> np.ndarray | None:
    """Continue dates or numbers that follow each other regularly; ``None`` for other labels."""
    if labels.dtype.kind == "M" and labels.size > 2:  # pandas infers a frequency from three dates
        freq = pd.DatetimeIndex(labels, freq="infer").freq
        if freq is None or labels[-1] < labels[0]:
            return None
        return pd.date_range(labels[-1], periods=steps + 1, freq=freq)[1:].to_numpy()
    if labels.dtype.kind in "iuf" and labels.size > 1:
        if labels.dtype.kind != "f":
            labels = labels.astype(np.int64)  # a difference of unsigned numbers is never negative
        step = labels[1] - labels[0]
        if step and np.allclose(np.diff(labels), step, rtol=ROUNDING, atol=0.0):
            ahead: np.ndarray = labels[-1] + step * np.arange(1, steps + 1)
            return ahead
    return None


def _recursion(x: Any, model: pm.Model) -> Recursion:
    """The recursion of a latent series of the model."""
    op = op_of(x)
    recursion = _of_field(x) if isinstance(op, IntrinsicRV) else recursion_of(x)
    if model.named_vars.get(x.name) is not x:
        raise ValueError(
            f"{x.name} is not a variable of this model (variables: {sorted(model.named_vars)}): "
            "pass the series of this model, or model= of this series."
        )
    if x not in model.free_RVs:
        raise ValueError(
            f"{x.name} is observed, and predict continues a latent series: write pm.AR('ahead', "
            f"..., init_dist=pm.DiracDelta.dist(its last values)) into the model, and "
            "pm.sample_posterior_predictive(idata, var_names=['ahead'], predictions=True)."
        )
    return recursion


def _of_field(x: Any) -> Recursion:
    """The recursion of an intrinsic field, whose increments are independent."""
    structure = x.owner.op.structure
    d = increment(structure) if x.ndim == 1 else None
    if d is None:
        raise ValueError(
            f"{x.name!r} is an intrinsic field without equal increments, as a map, a cyclic walk, "
            "a walk whose locations are not at one distance, or an interaction. steps= continues "
            "walks and seasons. Write the elements to come into the model, by a longer field or "
            "more locations: those without an observation follow from the others."
        )
    sigma = x.owner.op.dist_params(x.owner)[0]
    return Recursion(pt.constant(-d[-2::-1] / d[-1]), pt.zeros(()), sigma / d[-1])


def increment(structure: Structure) -> Array | None:
    """Return d of R = DᵀD if row i of D is d at columns i to i + k, and zero elsewhere.

    Parameters
    ----------
    structure : Structure
        It may be scaled, and have any constraint.

    Returns
    -------
    ndarray, shape (k + 1,), or None
        With a last element that is positive; ``None`` if R is of another form.

    Notes
    -----
    The first row of R begins with d_0 d, and its other elements are 0. So it determines d up to its
    sign. Then R is compared with DᵀD.

    Examples
    --------
    >>> import pymc_lgm as lgm
    >>> from pymc_lgm.forecasting import increment
    >>> increment(lgm.gmrf.Structure.walk(9, order=2))
    array([ 1., -2.,  1.])
    """
    R, n = structure.R, structure.n
    first = R[[0]].toarray()[0]
    if not first[0] > 0.0:
        return None
    d = first[: np.flatnonzero(first)[-1] + 1] / math.sqrt(first[0])
    k = d.size - 1
    D = diags_array(list(d), offsets=list(range(k + 1)), shape=(n - k, n))
    if k == 0 or abs(R - D.T @ D).max() > ROUNDING * abs(R).max():
        return None
    return d * np.sign(d[-1])


def _of_draws(
    recursion: Recursion,
    posterior: xr.Dataset,
    model: pm.Model,
    compile_kwargs: dict[str, Any] | None,
) -> tuple[Array, Array, Array]:
    """ρ, c and σ in every draw, with axes (chain, draw, ...)."""
    shape = posterior.sizes["chain"], posterior.sizes["draw"]
    nothing = np.empty(0)
    evaluate = Evaluator(list(recursion), pt.vector("nothing"), posterior, model, compile_kwargs)
    parts = zip(*(evaluate(nothing, i) for i in np.ndindex(*shape)), strict=True)
    lags, drift, sigma = (
        np.array(part, dtype=np.float64).reshape(*shape, *np.shape(part)[1:]) for part in parts
    )
    return lags, drift, sigma


def _ahead(
    x: Array, recursion: tuple[Array, Array, Array], steps: int, rng: np.random.Generator
) -> tuple[Array, Array, Array]:
    """A simulated path per draw, and the mean and variance of paths, (chain, draw, ..., steps).

    Parameters
    ----------
    x : ndarray, shape (chain, draw, ..., n)
    recursion
        ρ, with an axis of lags at the end, c and σ.
    """
    lags, drift, sigma = recursion
    last = x[..., -lags.shape[-1] :]
    shape = (*last.shape[:-1], steps)
    noise = sigma[..., None] * rng.standard_normal(shape)
    impulse = np.zeros(steps)
    impulse[0] = 1.0
    with np.errstate(over="ignore", invalid="ignore"):  # an explosive series becomes infinite
        mean = continued(last, lags, np.broadcast_to(drift[..., None], shape))
        path = continued(last, lags, drift[..., None] + noise)
        psi = continued(np.zeros_like(last), lags, np.broadcast_to(impulse, shape))
        variance = sigma[..., None] ** 2 * np.cumsum(psi**2, axis=-1)
    return path, mean, variance


def continued(last: Array, lags: Array, innovations: Array) -> Array:
    """Continue x_t = Σ_k ρ_k x_{t−k} + e_t after the `last` values.

    Parameters
    ----------
    last : ndarray, shape (..., order)
    lags : ndarray, shape (..., order)
        ρ, with ρ_1 first.
    innovations : ndarray, shape (..., steps)
        e, with the drift.

    Returns
    -------
    ndarray, shape (..., steps)

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_lgm.forecasting import continued
    >>> continued(np.array([1.0, 2.0]), np.array([0.5, 0.1]), np.zeros(3)).round(3)
    array([1.1  , 0.75 , 0.485])
    """
    order = lags.shape[-1]
    values = [last[..., k] for k in range(order)]
    for h in range(innovations.shape[-1]):
        ahead = innovations[..., h].copy()
        for k in range(order):
            ahead += lags[..., k] * values[-1 - k]
        values.append(ahead)
    return np.stack(values[order:], axis=-1)


def _functions(response: Any, taken: set[str]) -> dict[str, Callable[..., Any]]:
    """The functions of `response` by name; raises if `predict` returns another of these names."""
    if not isinstance(response or {}, Mapping):
        raise ValueError(
            f"response is a {type(response).__name__}: write functions by name, as "
            "{'y': lambda x: pm.Poisson.dist(pm.math.exp(x))}."
        )
    functions = dict(response or {})
    for name in functions.keys() & taken:
        raise ValueError(f"response={{{name!r}: ...}} hides what predict returns: rename it.")
    return functions


def _responses(
    name: str,
    function: Callable[..., Any],
    paths: list[Array],
    posterior: xr.Dataset,
    model: pm.Model,
    rng: np.random.Generator,
    compile_kwargs: dict[str, Any] | None,
) -> Array:
    """Evaluate `function` at the paths of each draw, or draw from the distribution it returns.

    Each of the paths has axes (chain, draw, ..., steps).
    """
    draws, shapes = paths[-1].shape[:2], [path.shape[2:] for path in paths]
    ends = np.cumsum([0, *(math.prod(shape) for shape in shapes)])
    flat = pt.vector("ahead", shape=(int(ends[-1]),), dtype="float64")
    parts = [
        flat[begin:end].reshape(shape)
        for (begin, end), shape in zip(pairwise(ends), shapes, strict=True)
    ]
    seeded = {"random_seed": int(rng.integers(2**31))} | (compile_kwargs or {})
    # Variables that the function names, if any, belong to this model, and not to the user's.
    with pm.Model(coords=model.coords, model=None):
        graph = pt.as_tensor(function(*parts))
    evaluate = Evaluator([graph], flat, posterior, model, seeded)
    try:
        values = [
            evaluate(np.concatenate([path[i].ravel() for path in paths]), i)[0]
            for i in np.ndindex(*draws)
        ]
    except ValueError as error:
        raise ValueError(
            f"response[{name!r}] cannot be computed for a path of shape {shapes[-1]}: "
            f"{str(error).splitlines()[0]}. Data have their present lengths: write covariates of "
            "the steps to come as an array, or set them with pm.set_data."
        ) from error
    if values[0].shape[-1:] != shapes[-1][-1:]:
        raise ValueError(
            f"response[{name!r}] returns an array of shape {values[0].shape} for a path of shape "
            f"{shapes[-1]}: return one value per step, as "
            "lambda x: pm.Normal.dist(0, pm.math.exp(x))."
        )
    return np.array(values).reshape((*draws, *values[0].shape))
