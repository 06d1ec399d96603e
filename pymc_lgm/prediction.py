"""Prediction at new inputs: the exact Gaussian conditional of each draw, and the response.

    f_new | f, theta ~ N(m_new + K_newX K⁻¹ (f − m),  K_new − K_newX K⁻¹ K_Xnew)

Nothing is sampled: the moments given a draw are closed forms, and the draws are averaged.

One file of more than 300 lines, a third of them what users read of `predict`.
"""

import inspect

from collections.abc import Mapping, Sequence
from typing import Any

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
import xarray as xr

from numpy.typing import ArrayLike
from pymc.gp.util import JITTER_DEFAULT
from pymc.pytensorf import compile as pymc_compile
from rich.progress import track

from pymc_lgm.conditionals import Conditional, Evaluator, latent_of
from pymc_lgm.gp import SparseLatent
from pymc_lgm.likelihoods import RobustMax, Softmax, is_latent_gaussian_likelihood
from pymc_lgm.likelihoods.base import LatentGaussianLikelihood
from pymc_lgm.likelihoods.registry import expectation_of
from pymc_lgm.linalg import Array
from pymc_lgm.response import response
from pymc_lgm.threads import few_threads

__all__ = ["predict"]

OF_CLASSES = (Softmax.rv_type, RobustMax.rv_type)
"""Likelihoods with a latent variable a class."""

DRAWS = 1000
"""By default about this many draws are used, of all chains together."""


def predict(
    idata: Any,
    gp: Any,
    Xnew: ArrayLike,
    *,
    model: pm.Model | None = None,
    parameters: Mapping[str, ArrayLike] | None = None,
    thin: int | None = None,
    jitter: float = JITTER_DEFAULT,
    dims: str = "point",
    extend_inferencedata: bool = False,
    progressbar: bool = True,
    compile_kwargs: dict[str, Any] | None = None,
) -> xr.DataTree:
    r"""Compute the predictive distribution of f and of y at new inputs, exactly for each draw.

    With :math:`K = L L^\top` the covariance of f, :math:`A = L^{-1} K(X, X_*)` and a draw
    :math:`(\theta, f)`,

    .. math::

       E[f_* \mid f, \theta] = m_* + A^\top L^{-1} (f - m), \qquad
       \operatorname{var}[f_{*j} \mid f, \theta] = k(x_{*j}, x_{*j}) - \sum_i A_{ij}^2 .

    Parameters
    ----------
    idata : DataTree or whatever ``arviz.convert_to_datatree`` takes
        A trace of the model by any sampler, with f and what its mean and covariance depend on.
    gp : pymc.gp.Latent, pymc_lgm.gp.SparseLatent or list of them
        The process of the model, whose ``prior`` made f; for classes with a process each, all of
        them in the order of the classes.
    Xnew : array_like, shape (points, d)
        New inputs, with the columns of X. A data frame's index labels the points.
    model : pymc.Model, optional
        By default the model of the context.
    parameters : mapping of str to array_like, optional
        Parameters of the likelihood at the new points, scalar or of shape (points,), such as
        ``{"exposure": 2.0}``. Needed for those that differ between observations; all others are
        the model's, drawn with theta if they are random.
    thin : int, optional
        Use every thin-th draw of each chain: by default the least that leaves at most 1000 draws
        of all chains together.
    jitter : float
        That of ``gp.prior(..., reparameterize=True)``. With ``reparameterize=False`` it is read
        from the model.
    dims : str
        Name of the dimension of the new points.
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
        - ``y_mean``, ``y_variance`` (point): of a new observation.
        - ``y_probability``: p(y = 1), dims (point), for `Probit` and `Logistic`; of every
          category, dims (point, category), for `OrdinalProbit`, `Softmax` and `RobustMax`.

        Those of y are there if a likelihood of this package observes f itself (not f + c).

    Raises
    ------
    ValueError
        `gp` is not in the model, f or theta not in the trace, or a shape disagrees.
    numpy.linalg.LinAlgError
        The covariance of a draw is not positive definite.

    Notes
    -----
    One O(n³) operation for each run of draws with equal theta (a rejected proposal repeats it),
    with O(n²) a point; O(n² + n points) for every other draw. Closed forms for all likelihoods
    but `Logistic`, a quadrature with an error below 1e-9, `RobustMax`, one as its own, and
    `Softmax`, one in as many dimensions as classes. Moments of `LogGaussianCox` and
    `CopulaVolatility` are those of exp(f): where f is uncertain, far from X, they are huge, and
    infinite beyond what float64 holds.

    References
    ----------
    C. E. Rasmussen, C. K. I. Williams (2006). Gaussian Processes for Machine Learning, eqs. 2.19,
    3.82 (probit).

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
    """
    model = pm.modelcontext(model)
    tree = az.convert_to_datatree(idata)
    posterior = tree["posterior"].to_dataset() if "posterior" in tree.children else xr.Dataset()
    processes: list[Any] = list(gp) if isinstance(gp, list | tuple) else [gp]
    latents = [latent_of(each, model) for each in processes]
    n, d = (int(length) for length in pt.as_tensor(processes[0].X).shape.eval())
    points = _points(Xnew, d)
    posterior = _thinned(posterior, [latent.name for latent in latents], n, thin)
    conditionals = [
        Conditional(each, latent, points, posterior, model, jitter, compile_kwargs)
        for each, latent in zip(processes, latents, strict=True)
    ]
    read = [_f_of(each, latent) for each, latent in zip(processes, latents, strict=True)]
    y, op, arguments = _likelihood(model, read, parameters or {}, len(points))
    inputs = pt.matrix("Xnew", dtype="float64")
    parameters_at = Evaluator(list(arguments), inputs, posterior, model, compile_kwargs)

    moments: list[tuple[Array, Array]] = []
    y_total: Any = 0.0
    where = list(np.ndindex(posterior.sizes["chain"], posterior.sizes["draw"]))
    # As wide as a factorization that takes as long as solving for all points.
    width = round((n * n * len(points)) ** (1 / 3))
    with few_threads(max(n, width)):
        for i in track(where, "Predicting ...", disable=not progressbar):
            here = zip(*(conditional(i) for conditional in conditionals), strict=True)
            mean, variance = (of[0] if len(of) == 1 else np.vstack(of) for of in here)
            moments.append((mean, variance))
            if y:
                y_total = y_total + response(op, mean, variance, *parameters_at(points, i))

    shape = posterior.sizes["chain"], posterior.sizes["draw"]
    means, variances = (
        np.array(of).reshape(*shape, *of[0].shape) for of in zip(*moments, strict=True)
    )
    variables: dict[str, Any] = {}
    for k, latent in enumerate(latents):
        # Of a sparse process, what it is called where it is not at its inducing points.
        name, one = getattr(processes[k], "name", latent.name), (means, variances)
        if len(latents) > 1:
            one = means[:, :, k], variances[:, :, k]
        at = ("output", dims) if one[0].ndim == 4 else (dims,)
        conditional = ("chain", "draw", *at)
        variables |= {
            f"{name}_conditional_mean": (conditional, one[0]),
            f"{name}_conditional_variance": (conditional, one[1]),
            f"{name}_mean": (at, one[0].mean(axis=(0, 1))),
            f"{name}_variance": (at, one[1].mean(axis=(0, 1)) + one[0].var(axis=(0, 1))),
        }
    if y:
        y_mean, y_square, *probability = y_total / len(where)
        variables[f"{y}_mean"] = (dims, y_mean)
        with np.errstate(over="ignore", invalid="ignore"):  # a square beyond float64 is infinite
            y_variance = np.where(np.isinf(y_square), np.inf, y_square - y_mean**2)
        variables[f"{y}_variance"] = (dims, np.maximum(y_variance, 0.0))
        if len(probability) == 1:
            variables[f"{y}_probability"] = (dims, probability[0])
        elif probability:
            variables[f"{y}_probability"] = ((dims, "category"), np.transpose(probability))
    frame = Xnew if isinstance(Xnew, pd.DataFrame) else pd.DataFrame(points)
    labels, columns = {dims: frame.index.to_numpy()}, {"feature": frame.columns.to_numpy()}
    sampled = {key: posterior[key].values for key in ("chain", "draw")}
    constant = {"Xnew": ((dims, "feature"), points)}
    groups = {
        "predictions": xr.Dataset(variables, sampled | labels),
        "predictions_constant_data": xr.Dataset(constant, labels | columns),
    }
    if not extend_inferencedata:
        return xr.DataTree.from_dict(groups)
    for group, dataset in groups.items():
        tree[group] = xr.DataTree(dataset)
    return tree


def _points(Xnew: ArrayLike, d: int) -> Array:
    """Return new inputs as an array of shape (points, d)."""
    points = np.asarray(Xnew, dtype=np.float64)
    if points.ndim != 2 or points.shape[1] != d:
        raise ValueError(
            f"Xnew has shape {points.shape} and gp.X has {d} column(s): Xnew needs the same "
            "columns, one row a point. For a single column write Xnew[:, None]."
        )
    if not np.isfinite(points).all():
        row = int(np.flatnonzero(~np.isfinite(points).all(axis=1))[0])
        raise ValueError(f"Xnew[{row}] is {points[row]}: leave out points that are not finite.")
    return points


def _thinned(posterior: xr.Dataset, latents: Sequence[str], n: int, thin: int | None) -> xr.Dataset:
    """Return every thin-th draw of a posterior that has f, and outputs of it, of length n."""
    for latent in latents:
        if latent not in posterior:
            raise ValueError(
                f"{latent} is not in the posterior (variables: {sorted(map(str, posterior))}): "
                f"sample with var_names=None, or with {latent!r} in it."
            )
        shape = posterior[latent].transpose("chain", "draw", ...).shape
        if shape[-1] != n or len(shape) > 4 or (len(shape) > 3 and len(latents) > 1):
            raise ValueError(
                f"{latent} has shape {shape[2:]} in the posterior, but gp.X has {n} rows: set "
                "pm.Data back to the inputs of the trace. Processes with n_outputs > 1 are "
                "predicted one by one."
            )
    if thin is None:
        thin = -(-shape[0] * shape[1] // DRAWS)
    if thin < 1:
        raise ValueError(f"thin is {thin}: write 1 to use every draw, k to use every k-th.")
    return posterior.isel(draw=slice(None, None, thin))


def _f_of(gp: Any, latent: Any) -> Any:
    """What likelihoods read of a process: its values, or their mean given inducing variables."""
    return gp.seen.mean if isinstance(gp, SparseLatent) else latent


def _reads(f: Any, latents: Sequence[Any], *, is_class_each: bool) -> bool:
    """Whether a likelihood's f is the latent itself, or its classes are the rows of latents."""
    if not is_class_each:
        return len(latents) == 1 and f is latents[0]
    rng = np.random.default_rng(0)
    values = [rng.standard_normal(latent.shape.eval()) for latent in latents]
    kwargs: dict[str, Any] = {"on_unused_input": "ignore", "mode": "FAST_COMPILE"}
    classes = np.moveaxis(np.vstack(values), 0, -1)
    found: bool = np.array_equal(pymc_compile(list(latents), f, **kwargs)(*values), classes)
    return found


def _likelihood(
    model: pm.Model, latents: Sequence[Any], given: Mapping[str, ArrayLike], points: int
) -> tuple[str | None, Any, Sequence[Any]]:
    """Return name, op and parameters other than f of what observes f itself, if there is one."""
    for observed in model.observed_RVs:
        rv = expectation_of(observed)
        if rv is None and not is_latent_gaussian_likelihood(observed):
            continue
        rv = observed if rv is None else rv
        while not isinstance(rv.owner.op, LatentGaussianLikelihood):
            rv = rv.owner.inputs[0]  # PyMC wraps partly observed and rescaled data
        name: str = rv.name or observed.name
        op: Any = rv.owner.op
        f, *arguments = op.dist_params(rv.owner)
        known = response.dispatch(type(op)) is not response.dispatch(object)
        if not known or not _reads(f, latents, is_class_each=isinstance(op, OF_CLASSES)):
            continue
        names = list(inspect.signature(response.dispatch(type(op))).parameters)[3:]
        if unknown := set(given) - set(names):
            raise ValueError(f"{name} has no parameter {unknown}: it has {names}.")
        for k, key in enumerate(names):
            if key in given:
                value = np.asarray(given[key], dtype=np.float64)
                if value.shape[: value.ndim - op.ndims_params[k + 1]] not in {(), (points,)}:
                    raise ValueError(
                        f"parameters[{key!r}] has shape {value.shape}: write one value for all, "
                        f"or one for each of the {points} points."
                    )
                arguments[k] = pt.as_tensor(value)
            elif arguments[k].ndim > op.ndims_params[k + 1]:
                raise ValueError(
                    f"{key} of {name} has one value for each observation: write its "
                    f"values at the {points} new points, as parameters={{{key!r}: ...}}."
                )
        return name, op, arguments
    if given:
        raise ValueError(f"parameters is {set(given)}, but no known likelihood observes f itself.")
    return None, None, ()
