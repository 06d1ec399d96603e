"""The terms of a linear predictor at the data: what each latent variable adds, draw by draw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr

from pymc_lgm.drawn import (
    model_of,
    posterior_of,
    refuse_new_data,
    refuse_other_shapes,
    thinned,
    trace_of,
)
from pymc_lgm.linalg import Array
from pymc_lgm.model import LatentGaussianModel, Observations, latents_beside, matrix_functions
from pymc_lgm.model.missing import places_of, without_added
from pymc_lgm.model.points import Point, Points

__all__ = ["terms"]

INSTEAD = "For others compute terms from the draws, as idata.posterior['a'] + idata.posterior['f']."

REST = "constant"
"""Name of the part of the predictor that does not depend on a latent variable."""


def terms(
    idata: Any,
    names: Sequence[str] | str | None = None,
    model: pm.Model | None = None,
    *,
    var_name: str | None = None,
    theta: Sequence[Any] | str | None = None,
    thin: int | None = None,
    compile_kwargs: dict[str, Any] | None = None,
) -> xr.Dataset:
    r"""Compute what each latent variable adds to the linear predictor of each observation.

    The predictor is affine in the latent variables,

    .. math:: \eta = c(\theta) + \sum_k A_k(\theta)\, x_k,

    and the term of :math:`x_k` is :math:`A_k(\theta)\, x_k`, of every draw: a trend, a season, the
    effects of groups, a covariate times its coefficient. Their sum with ``constant`` is the
    predictor itself.

    Parameters
    ----------
    idata : DataTree, or anything that ``arviz.convert_to_datatree`` takes
        A trace of the model by any sampler, with theta and all latent variables.
    names : sequence of str, or str, optional
        Latent variables, by default all. The process of ``gp.prior("f", X)`` is "f".
    model : pymc.Model, optional
        By default the model of the context.
    var_name : str, optional
        The observed variable, if several depend on the predictor.
    theta : sequence of variables or names, optional
        Hyper-parameters that could be latent, as in `leave_one_out`. Their part of the predictor
        belongs to ``constant``.
    thin : int, optional
        Use every thin-th draw of each chain, by default all.
    compile_kwargs : optional
        As in `pymc.sample`.

    Returns
    -------
    Dataset
        A variable for each term, with dims chain, draw and those of the observed variable, and
        ``constant``, :math:`c(\theta)`. Bands are ``terms.quantile([0.05, 0.95], ("chain",
        "draw"))``, and ``terms[["trend", "season"]].to_array().sum("variable")`` is a sum of terms.
        With ``v = terms[["trend", "season"]].var("month").to_array()`` the share of each term in
        their variances over the observations is ``v / v.sum("variable")``, of every draw.

        An observation that depends on no latent variable, such as one whose only covariate is 0,
        has no predictor: its terms are NaN. So are those of a missing observation.

    Raises
    ------
    ValueError
        If a name is not that of a latent variable, if a latent variable has the name "constant", if
        the trace lacks a variable, if an observation depends on several elements of the predictor,
        or if data in `pymc.Data` are no longer those of the trace and the prior or the shape of f
        depends on them.

    See Also
    --------
    predict : The same at new inputs, or steps ahead.

    Notes
    -----
    The predictor is the largest affine expression that a density depends on: in
    ``pm.math.exp(-eta)`` it is −eta, and its terms have that sign. An exposure that multiplies
    ``pm.math.exp(eta)`` is not a part of it. The logarithm of an exposure that is added to eta
    belongs to ``constant``.

    The term of a latent variable contains its mean, so a coefficient in that mean, as in
    ``pm.gp.mean.Constant(c)``, has a term of 0. If the model whitens the process, as ``gp.prior``
    does by default, the mean is not in the term of the process but in that of the coefficient.

    If ``pm.set_data`` has replaced covariates or groups, the terms are those of the new rows with
    the coefficients and effects of the trace, as in `pymc.sample_posterior_predictive`. If
    their number changes, set a placeholder of the observed values, too, which needs a `pymc.Data`.

    O(n) or O(n²) operations per draw and term, and no factorization for a dense process unless the
    model has it whitened.

    Examples
    --------
    >>> import arviz as az, numpy as np, pymc as pm, pymc_lgm as lgm
    >>> with pm.Model():
    ...     a = pm.Normal("a")
    ...     b = pm.Normal("b")
    ...     y = pm.Poisson("y", pm.math.exp(a + b * np.array([0.0, 1.0, 2.0])), observed=[1, 2, 4])
    ...     idata = az.from_dict({"posterior": {"a": np.array([[0.5]]), "b": np.array([[2.0]])}})
    ...     found = lgm.terms(idata)
    >>> found["a"].values[0, 0], found["b"].values[0, 0], found["constant"].values[0, 0]
    (array([0.5, 0.5, 0.5]), array([0., 2., 4.]), array([0., 0., 0.]))
    >>> v = found[["a", "b"]].var("y_dim_0").to_array()
    >>> (v / v.sum("variable")).values.ravel()
    array([0., 1.])
    """
    model = model_of(model, "lgm.terms(idata)")
    tree = trace_of(idata)
    posterior = posterior_of(tree, model)
    model = without_added(model, set(map(str, posterior)))
    lgm = LatentGaussianModel.from_pymc(
        model, latents_beside(model, theta), compile_kwargs=compile_kwargs or {}, integrates=False
    )
    y = Observations(model, lgm, var_name, instead=INSTEAD)
    rvs = {value.name: rv for value, rv in model.values_to_rvs.items()}
    needed = {*lgm.theta_names, *lgm.latents, *lgm.other_names}
    refuse_new_data(tree, [*(rvs[v] for v in needed), *matrix_functions(model.observed_RVs)], model)
    values = {str(rvs[v].name).removesuffix("_rotated_"): v for v in lgm.latents}
    names = [names] if isinstance(names, str) else names
    chosen = list(values) if names is None else list(names)
    if unknown := [name for name in chosen if name not in values]:
        raise ValueError(
            f"{unknown} are not latent variables of the predictor. Write names of {list(values)}."
        )
    if REST in chosen:
        raise ValueError(
            f"A latent variable has the name {REST!r}, which terms gives to the part that depends "
            "on no latent variable. Give that variable another name in the model and in the "
            "trace, or leave it out of names=."
        )
    posterior = thinned(posterior, [str(rvs[v].name) for v in needed], thin)
    refuse_other_shapes(posterior, model.eval_rv_shapes())
    points = Points(model, posterior)
    shape = posterior.sizes["chain"], posterior.sizes["draw"]
    found = np.empty((len(chosen) + 1, *shape, y.site.size))
    for i in np.ndindex(*shape):
        found[:, *i] = _terms(lgm, points(i), [values[name] for name in chosen])[:, y.site]
    # An observation without latent variables has no predictor.
    found[..., y.is_free] = np.nan
    return _dataset(model, posterior, y, [*chosen, REST], found)


def _terms(lgm: LatentGaussianModel, point: Point, values: Sequence[str]) -> Array:
    """A_k x_k of each latent variable, and c, (K + 1, n): f with one of them, and with none."""
    lgm.read(point)
    theta = lgm.theta_of(point)
    zeros = point | {name: np.zeros_like(point[name]) for name in lgm.latents}
    c = lgm.f_of(theta, zeros)
    parts = [lgm.f_of(theta, zeros | {name: point[name]}) - c for name in values]
    return np.array([*parts, c])


def _dataset(
    model: pm.Model, posterior: xr.Dataset, y: Observations, names: Sequence[str], found: Array
) -> xr.Dataset:
    """Variables with the dims of y, and NaN for missing observations."""
    whole, places = places_of(model, y.name, y.values.shape)
    dims = model.named_vars_to_dims.get(whole, ())
    dims = [dim or f"{whole}_dim_{k}" for k, dim in enumerate(dims)]
    dims = dims or [f"{whole}_dim_{k}" for k in range(places.ndim)]
    coords = {name: posterior[name].values for name in ("chain", "draw")}
    for dim, length in zip(dims, places.shape, strict=True):
        labels = model.coords.get(dim)
        coords[dim] = np.arange(length) if labels is None else np.asarray(labels)
    values = np.full((*found.shape[:3], *places.shape), np.nan)
    values[..., places >= 0] = found[..., places[places >= 0]]
    variables = {
        name: (("chain", "draw", *dims), each) for name, each in zip(names, values, strict=True)
    }
    return xr.Dataset(variables, coords)
