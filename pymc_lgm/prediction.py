"""Prediction at new inputs: the exact Gaussian conditional of each draw, and the response.

    f_new | f, theta ~ N(m_new + K_newX K⁻¹ (f − m),  K_new − K_newX K⁻¹ K_Xnew)

Moments given a draw are closed forms, and are averaged over draws. Nothing is sampled.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
import xarray as xr

from numpy.typing import ArrayLike
from rich.progress import track

from pymc_lgm.conditionals import Conditional, NearestConditional, latent_of
from pymc_lgm.drawn import (
    model_of,
    of_present_data,
    posterior_of,
    refuse_new_data,
    thinned,
    trace_of,
)
from pymc_lgm.forecasting import forecast, moments_of
from pymc_lgm.linalg import Array
from pymc_lgm.observing import f_of, observations
from pymc_lgm.threads import few_threads
from pymc_lgm.vecchia import is_nearest

__all__ = ["predict"]

DRAWS = 1000
"""Default number of draws, of all chains together, that are used."""


def predict(
    idata: Any,
    gp: Any,
    Xnew: ArrayLike | None = None,
    *,
    steps: int | None = None,
    model: pm.Model | None = None,
    parameters: Mapping[str, ArrayLike] | None = None,
    response: Mapping[str, Callable[..., Any]] | None = None,
    thin: int | None = None,
    dims: str | None = None,
    random_seed: Any = None,
    extend_inferencedata: bool = False,
    progressbar: bool = True,
    compile_kwargs: dict[str, Any] | None = None,
) -> xr.DataTree:
    r"""Compute the predictive distribution of f and of y at new inputs, or of a series steps ahead.

    The distribution is exact for each draw. With :math:`K = L L^\top` the covariance of f, :math:`A
    = L^{-1} K(X, X_*)` and a draw :math:`(\theta, f)`,

    .. math::

       E[f_* \mid f, \theta] = m_* + A^\top L^{-1} (f - m), \qquad
       \operatorname{var}[f_{*j} \mid f, \theta] = k(x_{*j}, x_{*j}) - \sum_i A_{ij}^2 .

    A series :math:`x_t = c + \sum_k \rho_k x_{t-k} + \sigma \varepsilon_t` continues by the same
    recursion. The mean h steps ahead, :math:`E[x_{n+h} \mid x, \theta]`, follows the recursion
    without noise, and :math:`\operatorname{var}[x_{n+h} \mid x, \theta] = \sigma^2 \sum_{j<h}
    \psi_j^2` with :math:`\psi_j = \sum_k \rho_k \psi_{j-k}`, :math:`\psi_0 = 1`. A walk of order 2
    has the recursion :math:`x_t = 2 x_{t-1} - x_{t-2} + \sigma \varepsilon_t`, and a season
    :math:`x_t = -x_{t-1} - \dots - x_{t-p+1} + \sigma \varepsilon_t`. Their constraints, such as a
    sum of zero, hold for the elements in the model, and not for the steps to come.

    Parameters
    ----------
    idata : DataTree, or anything that ``arviz.convert_to_datatree`` takes
        A trace of the model by any sampler, with f and the variables that its mean and covariance
        depend on.
    gp : pymc.gp.Latent, pymc_lgm.gp.SparseLatent, list of them, or variable
        The process of the model whose ``prior`` made f. If each class has its own process, the list
        of processes in the order of the classes. Or the variable that `gp.Vecchia` returned, which
        is predicted given its nearest neighbors. Or a series, the variable that ``pm.AR`` or
        ``pm.GaussianRandomWalk`` returned, which may contain several series, or that
        ``lgm.gmrf.RandomWalk`` (not cyclic, at equal distances) or ``lgm.gmrf.Seasonal`` returned.
        Or a list of series, the terms of a sum.
    Xnew : array_like, shape (points, d)
        For a process: new inputs, with the columns of X. The index of a data frame labels the
        points.
    steps : int
        For a series: the number of steps after the last value.
    model : pymc.Model, optional
        By default the model of the context.
    parameters : mapping of str to array_like, optional
        Parameters of the likelihood at the new points, scalar or of shape (points,), such as
        ``{"exposure": 2.0}``. They are needed for parameters that differ between observations. All
        others are taken from the model, at each draw if they are random.
    response : mapping of str to callable, optional
        For a series: quantities to draw given its path. Each function takes the path as a PyTensor
        variable, and returns a distribution or an expression, which may contain other variables of
        the model: ``{"return": lambda x: pm.Normal.dist(0, pm.math.exp((level + x) / 2))}``. For a
        list of series the function takes a path of each, in their order:
        ``{"count": lambda trend, season: pm.Poisson.dist(pm.math.exp(trend + season))}``. The
        last axis of its result is that of the steps, as in ``level[:, None] + x`` for the steps of
        each group. An effect of a new group is a draw from its prior, such as ``pm.Normal.dist(0,
        sd)``. Data have their present values: covariates of the steps to come, if ``pm.set_data``
        set them.
    thin : int, optional
        Use every thin-th draw of each chain. The default for a process leaves some 1000 draws in
        total; the default for a series is all draws.
    dims : str
        Name of the dimension of the new points, by default "point", or of the steps, "step". With
        the name of the series' own dimension the steps have its dates or numbers.
    random_seed : int or numpy.random.Generator, optional
        Seed of the paths of a series, and of responses to them.
    extend_inferencedata : bool
        Add the groups to `idata` in place, as in `pymc.sample_posterior_predictive`.
    progressbar, compile_kwargs : optional
        As in `pymc.sample`.

    Returns
    -------
    DataTree
        Group ``predictions_constant_data`` with ``Xnew`` and group ``predictions`` with, for a
        latent "f" and a response "y",

        - ``f_conditional_mean``, ``f_conditional_variance`` (chain, draw, point): given a draw.
        - ``f_mean``, ``f_variance`` (point): given the data, by the law of total variance.
        - ``f`` (chain, draw, step), for a series: a path that continues the path of the draw.
        - ``y_mean``, ``y_variance`` (point): moments of a new observation.
        - ``y_probability``: p(y = 1), dims (point), for `Probit` and `Logistic`; of every
          category, dims (point, category), for `OrdinalProbit`, `Softmax` and `RobustMax`.

        The variables of y are included if a likelihood of this package reads f itself (not f + c).
        Draws of each ``response`` (chain, draw, step) have its name. Steps are counted from 1. If
        the series has dates or numbers at equal distances, those that follow are a coordinate, too.

    Raises
    ------
    ValueError
        If `gp` is not in the model, if f or theta is not in the trace, if a shape does not fit, if
        data in `pymc.Data` that the prior of f depends on are no longer those of the trace, if the
        innovations of a series are not normal, if `steps` is below 1, or if `response` is given for
        a process.
    numpy.linalg.LinAlgError
        If the covariance of a draw is not positive definite.

    See Also
    --------
    papers.scores.log_predictive_density : How good predicted probabilities are.
    gp.SparseLatent : A process with many points.

    Notes
    -----
    For a process, each run of draws with equal theta (a rejected proposal repeats theta) takes one
    O(n³) operation and O(n²) per point. Every other draw takes O(n² + n points). For a series a
    draw takes O(steps × order), computed for all draws at once, and one call of a small compiled
    function for its theta. Moments of y are closed forms for all likelihoods except three:
    `Logistic` uses a quadrature with an error below 1e-9, `RobustMax` its own quadrature, and
    `Softmax` a quadrature in as many dimensions as classes. Moments of `LogGaussianCox` and
    `CopulaVolatility` are those of exp(f). They are very large where f is uncertain, far from X,
    and infinite if they overflow.

    References
    ----------
    C. E. Rasmussen, C. K. I. Williams (2006). Gaussian Processes for Machine Learning, eqs. 2.19,
    3.82 (probit). G. E. P. Box, G. M. Jenkins, G. C. Reinsel (2008). Time Series Analysis, 4th
    edition, section 5.1 (series).

    Examples
    --------
    >>> import arviz as az, numpy as np, pymc as pm, pymc_lgm as lgm
    >>> with pm.Model():
    ...     gp = pm.gp.Latent(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0))
    ...     f = gp.prior("f", np.array([[0.0], [1.0]]), reparameterize=False)
    ...     y = lgm.Probit("y", f=f, observed=[0, 1])
    ...     idata = az.from_dict({"posterior": {"f": np.array([[[-1.0, 1.5]]])}})
    ...     tree = lgm.predict(idata, gp, [[1.0], [50.0]], progressbar=False)
    >>> tree["predictions"]["y_probability"].values.round(3)
    array([0.933, 0.5  ])
    >>> with pm.Model():
    ...     x = pm.AR("x", rho=[0.5], sigma=1.0, init_dist=pm.Normal.dist(0, 1), shape=2)
    ...     idata = az.from_dict({"posterior": {"x": np.array([[[0.0, 4.0]]])}})
    ...     tree = lgm.predict(idata, x, steps=3)
    >>> tree["predictions"]["x_mean"].values, tree["predictions"]["x_variance"].values
    (array([2. , 1. , 0.5]), array([1.    , 1.25  , 1.3125]))
    """
    model = model_of(model, "lgm.predict(idata, gp, Xnew)")
    tree = trace_of(idata)
    if steps is not None and Xnew is None:
        dataset = forecast(
            tree,
            gp,
            steps,
            model,
            parameters=parameters,
            response=response,
            thin=thin,
            dims=dims or "step",
            random_seed=random_seed,
            compile_kwargs=compile_kwargs,
        )
        return _grouped({"predictions": dataset}, tree if extend_inferencedata else None)
    if Xnew is None or steps is not None:
        raise ValueError(
            "Give one of Xnew and steps. Write predict(idata, gp, Xnew) for a process, or "
            "predict(idata, x, steps=20) for a series."
        )
    if response:
        raise ValueError(
            "response= is for a series. For a process draw from f_conditional_mean and _variance."
        )
    groups = _at_new_inputs(
        tree, gp, Xnew, model, parameters, thin, dims or "point", progressbar, compile_kwargs
    )
    return _grouped(groups, tree if extend_inferencedata else None)


def _at_new_inputs(
    tree: xr.DataTree,
    gp: Any,
    Xnew: ArrayLike,
    model: pm.Model,
    parameters: Mapping[str, ArrayLike] | None,
    thin: int | None,
    dims: str,
    progressbar: bool,
    compile_kwargs: dict[str, Any] | None,
) -> dict[str, xr.Dataset]:
    """Groups of the predictions of one or several processes: see `predict`."""
    processes: list[Any] = list(gp) if isinstance(gp, list | tuple) else [gp]
    latents = [latent_of(each, model) for each in processes]
    X = processes[0].tag.process.X if is_nearest(processes[0]) else processes[0].X
    n, d = (int(length) for length in pt.as_tensor(X).shape.eval())
    points = _points(Xnew, d)
    names = [latent.name for latent in latents]
    posterior = _fitting(thinned(posterior_of(tree, model), names, thin, most=DRAWS), latents, n)
    output, outputs = _outputs(posterior[names[0]])
    if dims in ("chain", "draw", "feature", "category", output):
        raise ValueError(f"The predictions have a dimension {dims!r} already: write dims='point'.")
    conditionals = [
        NearestConditional(latent, points, posterior, model, compile_kwargs)
        if is_nearest(each)
        else Conditional(each, latent, points, posterior, model, compile_kwargs)
        for each, latent in zip(processes, latents, strict=True)
    ]
    refuse_new_data(tree, [graph for each in conditionals for graph in each.prior], model)
    read = [f_of(each, latent) for each, latent in zip(processes, latents, strict=True)]
    inputs = pt.matrix("Xnew", dtype="float64")
    present = of_present_data(posterior, tree, model)
    ys = observations(read, parameters, points, inputs, present, model, compile_kwargs)

    means, variances = _moments(conditionals, ys, posterior, n, len(points), progressbar)
    variables: dict[str, Any] = {}
    for k, latent in enumerate(latents):
        # The name of a sparse process away from its inducing points.
        name, one = getattr(processes[k], "name", latent.name), (means, variances)
        if len(latents) > 1:
            one = means[:, :, k], variances[:, :, k]
        at = (output, dims) if one[0].ndim == 4 else (dims,)
        variables |= moments_of(name, *one, at)
    for y in ys:
        variables |= y.variables(output, dims)
    frame = Xnew if isinstance(Xnew, pd.DataFrame) else pd.DataFrame(points)
    labels, columns = {dims: frame.index.to_numpy()}, {"feature": frame.columns.to_numpy()}
    sampled = {key: posterior[key].values for key in ("chain", "draw")}
    constant = {"Xnew": ((dims, "feature"), points)}
    return {
        "predictions": xr.Dataset(variables, sampled | labels | outputs),
        "predictions_constant_data": xr.Dataset(constant, labels | columns),
    }


def _moments(
    conditionals: Sequence[Any],
    ys: Sequence[Any],
    posterior: xr.Dataset,
    n: int,
    m: int,
    progressbar: bool,
) -> Array:
    """Means and variances of f at m new inputs, (2, chains, draws, …); they are added to the ys."""
    moments: Array = np.empty(0)
    shape = posterior.sizes["chain"], posterior.sizes["draw"]
    where = list(np.ndindex(*shape))
    # The factorization of this size takes as long as the solves for all points.
    width = round((n * n * m) ** (1 / 3))
    with few_threads(max(n, width)):
        for i in track(where, "Predicting ...", disable=not progressbar):
            here = zip(*(conditional(i) for conditional in conditionals), strict=True)
            mean, variance = (of[0] if len(of) == 1 else np.vstack(of) for of in here)
            if not moments.size:
                moments = np.empty((2, *shape, *mean.shape))
            moments[:, *i] = mean, variance
            for y in ys:
                y.add(i, mean, variance)
    return moments


def _outputs(f: xr.DataArray) -> tuple[str, dict[str, Any]]:
    """Return the dimension name of a process's outputs, and their labels if there are any."""
    others = [dim for dim in f.dims if dim not in ("chain", "draw")]
    if len(others) < 2 or others[0] == f"{f.name}_dim_0":
        return "output", {}
    return str(others[0]), {str(others[0]): f[others[0]].values}


def _grouped(groups: Mapping[str, xr.Dataset], tree: xr.DataTree | None) -> xr.DataTree:
    """Return groups as a new tree, or add them to the tree of the trace."""
    if tree is None:
        return xr.DataTree.from_dict(dict(groups))
    for group, dataset in groups.items():
        tree[group] = xr.DataTree(dataset)
    return tree


def _points(Xnew: ArrayLike, d: int) -> Array:
    """Return new inputs as an array of shape (points, d)."""
    try:
        points = np.asarray(Xnew, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            "Xnew is not an array of numbers: give numbers, one row per point, and write "
            "categories as numbers, as for gp.X."
        ) from error
    if points.ndim == 1 and d == 1:
        points = points[:, None]
    if points.ndim != 2 or points.shape[1] != d:
        raise ValueError(
            f"Xnew has shape {points.shape} and gp.X has {d} column(s): Xnew needs the same "
            "columns, one row per point. For a single column write Xnew[:, None]."
        )
    if not len(points):
        raise ValueError("Xnew has no rows: write at least one point.")
    if not np.isfinite(points).all():
        row = int(np.flatnonzero(~np.isfinite(points).all(axis=1))[0])
        raise ValueError(f"Xnew[{row}] is {points[row]}: remove points that are not finite.")
    return points


def _fitting(posterior: xr.Dataset, latents: Sequence[Any], n: int) -> xr.Dataset:
    """Return the posterior after a check that it has all outputs of f, each of length n."""
    for latent in latents:
        shape = posterior[latent.name].transpose("chain", "draw", ...).shape
        if shape[-1] != n or len(shape) > 4 or (len(shape) > 3 and len(latents) > 1):
            raise ValueError(
                f"{latent.name} has shape {shape[2:]} in the posterior, but gp.X has {n} rows: set "
                "pm.Data back to the inputs of the trace. Processes with n_outputs > 1 are "
                "predicted one by one."
            )
        outputs = tuple(int(length) for length in latent.shape[:-1].eval())
        if shape[2:-1] != outputs:
            raise ValueError(
                f"{latent.name} has outputs of shape {shape[2:-1]} in the posterior, and {outputs} "
                "in the model. Pass the whole trace, and select from the predictions."
            )
    return posterior
