"""Leave-one-out cross-validation after sampling, with the latent value integrated out."""

from __future__ import annotations

import math

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
import xarray as xr

from numpy.typing import ArrayLike
from pymc.backends.arviz import coords_and_dims_for_inferencedata
from pymc.pytensorf import extract_obs_data
from pymc.variational.minibatch_rv import MinibatchRandomVariable, get_scaling
from rich.progress import track
from scipy.special import logsumexp

from pymc_lgm.approximations.expansions import in_columns
from pymc_lgm.approximations.gaussian import GaussianApproximation
from pymc_lgm.approximations.laplace import laplace
from pymc_lgm.approximations.left_out import (
    LeftOut,
    left_out,
    left_out_groups,
    left_out_groups_of_normal,
    left_out_of_normal,
)
from pymc_lgm.approximations.left_out_effects import OwnElements, left_out_effects
from pymc_lgm.approximations.left_out_locally import LocalLines, are_few, left_out_locally
from pymc_lgm.drawn import (
    group_of,
    model_of,
    posterior_of,
    refuse_new_data,
    refuse_other_shapes,
    refuse_other_variables,
    thinned,
    trace_of,
)
from pymc_lgm.gaussian import Prior
from pymc_lgm.gaussian.sums import Layout
from pymc_lgm.linalg import LOG_2PI, Array
from pymc_lgm.model import (
    LatentGaussianModel,
    Observations,
    find_observed,
    latents_beside,
    observed_behind,
)
from pymc_lgm.model.missing import without_added
from pymc_lgm.model.points import Point, Points
from pymc_lgm.state import LikelihoodAt
from pymc_lgm.threads import few_threads

__all__ = ["leave_one_out", "loo"]

DRAWS = 1000
"""By default about this many draws are used, of all chains together."""

FEWEST = 25
"""Fewest draws for Pareto k. ArviZ fits a Pareto distribution to the largest fifth of the weights,
which must be five or more."""

MANY_GROUPS = 30
"""Number of groups beyond which an effect per group is integrated out, instead of a line per group.

A line also integrates over what the groups share, such as a level, about which one group of many is
hardly informative. The time of lines grows with the square of the number of groups. The number is a
choice.
"""

MOST_READ = 1000
"""Largest number of elements of f that a group of normal observations may read for the closed form,
whose covariances take 8 MB then. It is a choice."""

INSTEAD = "For others write pm.compute_log_likelihood(idata) and az.loo(idata)."

EQUAL = 1e-9
"""Largest difference of log densities that counts as rounding. The error of a log density of a line
is larger: see the notes of `leave_one_out`."""


def loo(
    idata: Any,
    model: pm.Model | None = None,
    *,
    var_name: str | None = None,
    groups: ArrayLike | None = None,
    theta: Sequence[Any] | str | None = None,
    thin: int | None = None,
    random_seed: Any = None,
    progressbar: bool = True,
    compile_kwargs: dict[str, Any] | None = None,
) -> Any:
    r"""Estimate the expected log predictive density by leave-one-out cross-validation.

    The latent value of the observation that is left out is integrated out, so the importance
    weights vary far less than those of ``az.loo``. The result is that of
    ``az.loo(lgm.leave_one_out(idata))``, except for ``p``: the effective number of parameters needs
    densities given f, which that tree does not have. It is NaN if the model integrates f out.

    Parameters
    ----------
    idata, model, var_name, groups, theta, thin, random_seed, progressbar, compile_kwargs
        As in `leave_one_out`. With ``groups`` it leaves out one group at a time.

    Returns
    -------
    arviz_stats.ELPDDataLOO
        With ``elpd``, ``se``, ``p``, and, for each observation or group, ``elpd_i`` and
        ``pareto_k``. ``az.compare`` takes it.

    Raises
    ------
    ValueError
        As `leave_one_out`.

    See Also
    --------
    leave_one_out : The densities, and replicated data for leave-one-out PIT values.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_lgm as lgm
    >>> with pm.Model():
    ...     f = pm.MvNormal("f", mu=[0.0, 0.0], cov=[[1.0, 0.5], [0.5, 1.0]])
    ...     y = lgm.Probit("y", f=f, observed=[0, 1])
    ...     idata = pm.sample(200, tune=100, chains=2, random_seed=1, progressbar=False)
    ...     found = lgm.loo(idata, progressbar=False)
    >>> found.elpd_i.sizes["y_dim_0"], bool((found.pareto_k < 0.7).all())
    (2, True)

    Leave out the pupils of a school together:

    >>> school = np.array([0, 0, 1, 1, 2, 2])
    >>> with pm.Model():
    ...     effect = pm.Normal("effect", 0, 1, shape=3)
    ...     y = pm.Normal("y", effect[school], 0.5, observed=[0.1, 0.4, -0.9, -0.2, 1.1, 0.8])
    ...     step = lgm.EllipticalSlice()
    ...     idata = pm.sample(200, tune=50, chains=2, step=step, random_seed=1, progressbar=False)
    ...     by_school = lgm.loo(idata, groups=school, progressbar=False)
    >>> by_school.elpd_i.sizes
    Frozen({'group': 3})
    """
    tree, own = _left_out(
        idata, model, var_name, groups, theta, thin, random_seed, progressbar, compile_kwargs
    )
    if len(own) < FEWEST:
        raise ValueError(
            f"{len(own)} draws are too few for Pareto k: lgm.loo needs {FEWEST} of all chains "
            "together, and 400 are better. Sample more, or write a smaller thin=."
        )
    found = az.loo(tree, pointwise=True)
    # p is the log density given all data less that given the others. ArviZ computes the former from
    # densities of the tree, which are already given the others.
    fit = logsumexp(own, axis=0) - np.log(own.shape[0])
    found.p = float(fit.sum() - found.elpd)
    return found


def leave_one_out(
    idata: Any,
    model: pm.Model | None = None,
    *,
    var_name: str | None = None,
    groups: ArrayLike | None = None,
    theta: Sequence[Any] | str | None = None,
    thin: int | None = None,
    random_seed: Any = None,
    progressbar: bool = True,
    compile_kwargs: dict[str, Any] | None = None,
) -> xr.DataTree:
    r"""Compute leave-one-out densities and replicated data, for ArviZ's functions.

    Let observation k read :math:`f_i`. A draw is split as :math:`f = r + c f_i`, where c is column
    i of the covariance of the Laplace approximation at theta, divided by its i-th element. Along
    the line :math:`r + c t` everything is known up to a constant, so

    .. math::

       p(y_k \mid y_{-k}, r, \theta) = \frac{\int p(y_k \mid t)\, g_k(t)\, dt}{\int g_k(t)\, dt},
       \qquad g_k(t) = N(r + c t;\, m, K) \prod_{l \ne k} p(y_l \mid r + c t)

    is a ratio of one-dimensional integrals. If observation k depends on several elements of f, such
    as one of each class, t is the linear combination of them about which it is most informative,
    and c is the column of this combination. The weights :math:`1 / p(y_k \mid y_{-k}, r, \theta)`
    turn draws of :math:`(r, \theta)` from the posterior into draws from the posterior without
    :math:`y_k`. They are exact for the model: the approximation only chooses the direction c. If
    the posterior of f is normal given theta, the density of an observation, or of a group, is
    :math:`p(y_k \mid y_{-k}, \theta)` in closed form, and no draw of f enters it. With many
    observations of a sum of series, maps or effects, c is zero except for the latent variables near
    the observation, if they have nearly all of the posterior variance of :math:`f_i` once the
    others are known. The observations then share evaluations of the likelihood.

    Parameters
    ----------
    idata : DataTree, or anything that ``arviz.convert_to_datatree`` takes
        A trace of the model by any exact sampler, with theta and all latent variables.
    model : pymc.Model, optional
        By default the model of the context.
    var_name : str, optional
        The observed variable, if several depend on f.
    groups : array_like, optional
        A label for each observation, of the shape of the observed variable, or without its last
        axis if rows have one density each: all observations with the same label are left out
        together, as the pupils of a school. With normal noise all of f is integrated out. With
        other likelihoods, if every group has latent variables of its own, such as an intercept and
        a slope, or a series, they are integrated out. With up to 30 groups this
        needs two or more such variables per group, unless observations read several elements of f.
        Otherwise the line is that of the average of their :math:`f_i`. If the Pareto k of a group
        is above 0.7, this is not enough: fit the model without the group.
    theta : sequence of variables or names, optional
        Hyper-parameters that could be latent, such as a cutpoint or an onset with a ``pm.Normal``
        prior. Name them if observations otherwise depend on too many elements of f. The densities
        are exact with and without it, also if the sampler treated these variables differently.
    thin : int, optional
        Use every thin-th draw of each chain: by default the least that leaves some 1000 draws
        of all chains together.
    random_seed : int or numpy.random.Generator, optional
        Seed of the replicated data.
    progressbar, compile_kwargs : optional
        As in `pymc.sample`.

    Returns
    -------
    DataTree
        - ``log_likelihood``: :math:`\log p(y_k \mid y_{-k}, r, \theta)` of each draw. With it
          ``az.loo`` is leave-one-out cross-validation with the latent value integrated out.
        - ``posterior_predictive``: a draw of :math:`y_k` given :math:`y_{-k}, r, \theta`. With the
          weights of ``log_likelihood`` it has the leave-one-out predictive law, so that
          ``az.loo_pit`` and ``az.plot_loo_pit`` are right for this tree, unless rows have one
          density each. Counts are randomized.
        - ``observed_data`` and ``posterior``, of the draws that are used.

        With ``groups`` the densities have the dimension "group", and no data are replicated.

    Raises
    ------
    ValueError
        If labels do not have the shape of the densities, or are all the same; if an observation
        depends on more than 12 elements of f, or on several in a group without latent variables of
        its own; if densities that are not observed depend on f; if the trace lacks a variable or is
        approximate; if data in `pymc.Data` are no longer those of the trace; or if a density is not
        finite.

    See Also
    --------
    loo : The expected log predictive density.
    predict : Predictions at new inputs.

    Notes
    -----
    A draw takes a Laplace approximation if theta has changed, which is :math:`O(n^3)` for a dense
    process. Near a draw the log density of an observation that reads one or two elements of f is a
    polynomial of them, to nine digits, so the :math:`n` lines take :math:`O(n^2)` operations and
    few evaluations of the likelihood. In a long series, or with effects of many groups, few terms
    change along a line. If observations read more elements of f, each line takes some 20 to 40
    evaluations of the likelihood of all data, or 200 if it is not log-concave. A group takes some
    65. If groups have latent variables of their own, all of them together take a few hundred. More
    than three for a group are integrated by importance sampling, with a standard error of mostly
    0.03 or less. Each log density has an error of about 1e-5, at most 1e-4. Only a narrow peak of a
    likelihood without heavy tails that is not log-concave may be missed, if it is far from the
    draw. If the model integrates the process out, as `pymc.gp.Marginal` does, the
    densities have a closed form (Sundararajan and Keerthi 2001).

    References
    ----------
    A. Vehtari, T. Mononen, V. Tolvanen, T. Sivula, O. Winther (2016). Bayesian leave-one-out
    cross-validation approximations for Gaussian latent variable models. JMLR 17, section 2.2.
    C. Czado, T. Gneiting, L. Held (2009). Predictive model assessment for count data. Biometrics
    65 (randomized PIT values). S. Sundararajan, S. S. Keerthi (2001). Predictive approaches for
    choosing hyperparameters in Gaussian processes. Neural Computation 13. E. C. Merkle, D. Furr,
    S. Rabe-Hesketh (2019). Bayesian comparison of latent variable models: conditional versus
    marginal likelihoods. Psychometrika 84 (groups).

    Examples
    --------
    >>> import arviz as az, numpy as np, pymc as pm, pymc_lgm as lgm
    >>> with pm.Model():
    ...     f = pm.MvNormal("f", mu=[0.0, 0.0], cov=[[1.0, 0.5], [0.5, 1.0]])
    ...     y = pm.Poisson("y", mu=pm.math.exp(f), observed=[2, 1])
    ...     step = lgm.PseudoMarginal()
    ...     idata = pm.sample(200, tune=100, chains=2, step=step, random_seed=1, progressbar=False)
    ...     tree = lgm.leave_one_out(idata, random_seed=1, progressbar=False)
    >>> tree["log_likelihood"]["y"].sizes == tree["posterior_predictive"]["y"].sizes
    True
    >>> pit = az.loo_pit(tree, random_state=1)["y"]
    >>> bool(((pit > 0.0) & (pit < 1.0)).all())
    True
    """
    tree, _ = _left_out(
        idata, model, var_name, groups, theta, thin, random_seed, progressbar, compile_kwargs
    )
    return tree


def _left_out(
    idata: Any,
    model: pm.Model | None,
    var_name: str | None,
    groups: ArrayLike | None,
    theta: Sequence[Any] | str | None,
    thin: int | None,
    random_seed: Any,
    progressbar: bool,
    compile_kwargs: dict[str, Any] | None,
) -> tuple[xr.DataTree, Array]:
    """The tree of `leave_one_out`, and log p(y_k | f, theta) of each draw, (draws, M)."""
    model = model_of(model, "lgm.loo(idata)")
    tree = trace_of(idata)
    _refuse_approximate(tree)
    posterior = posterior_of(tree, model)
    model = without_added(model, set(map(str, posterior)))
    refuse_new_data(
        tree, [*model.basic_RVs, *model.potentials, *model.rvs_to_values.values()], model
    )
    refuse_other_variables(tree, model)
    rng = np.random.default_rng(random_seed)
    seed = int(rng.integers(2**31))
    read = partial(_source, model, var_name, theta, seed, compile_kwargs or {})
    source, labels, group = _source_for(groups, read)
    _refuse_reader(model, source.name)
    _refuse_scaled(model[source.name], source.observed.shape)
    posterior = thinned(posterior, [str(rv.name) for rv in source.needed], thin, most=DRAWS)
    refuse_other_shapes(posterior, model.eval_rv_shapes())
    points = Points(model, posterior)
    where = list(np.ndindex(posterior.sizes["chain"], posterior.sizes["draw"]))
    if group is None:
        some = np.linspace(0, len(where) - 1, 3).astype(int)
        source.choose_sets([points(where[s]) for s in some])
    count = math.prod(source.shape)
    found = np.empty((2, len(where), count if group is None else labels.size))
    replicated = np.empty((len(where), *source.observed.shape))
    with few_threads(source.dense_rows), np.errstate(all="ignore"):
        for s, i in enumerate(track(where, "Leaving one out ...", disable=not progressbar)):
            natural = {v: draws[i] for v, draws in points.natural.items()}
            if group is None:
                *found[:, s], replicated[s] = source(points(i), natural, rng)
            else:
                found[:, s] = source.without_groups(points(i), group, rng)
            _refuse_infinite(source, found[0, s], i)
    _separate(found[0])
    data = replicated if group is None else None
    return _tree(source, found[0], data, labels, posterior, model), found[1]


def _tree(
    source: _OfLatent | _OfNormal,
    log_density: Array,
    replicated: Array | None,
    labels: Any,
    posterior: xr.Dataset,
    model: pm.Model,
) -> xr.DataTree:
    """The tree of `leave_one_out`, with labels of groups or with replicated data."""
    sizes = posterior.sizes["chain"], posterior.sizes["draw"]
    coords, dims = coords_and_dims_for_inferencedata(model)
    coords |= {name: posterior[name].values for name in ("chain", "draw")}
    if labels is None:
        shape, given = source.shape, dims.get(source.name)
        of_density = {source.name: given[: len(shape)]} if given else {}
    else:
        shape, of_density = (labels.size,), {source.name: ["group"]}
        coords |= {"group": labels}
    densities = {source.name: log_density.reshape(*sizes, *shape)}
    tree = az.from_dict({"log_likelihood": densities}, coords=coords, dims=of_density)
    if replicated is not None:
        data = {
            "posterior_predictive": {
                source.name: replicated.reshape(*sizes, *replicated.shape[1:])
            },
            "observed_data": {source.name: source.observed},
        }
        tree.update(az.from_dict(data, coords=coords, dims=dims).children)
    tree["posterior"] = xr.DataTree(posterior)
    return tree


def _source_for(groups: ArrayLike | None, read: Callable[..., Any]) -> tuple[Any, Any, Any]:
    """The densities of a model, the different labels, and the index of each observation's label.

    The model is read as a sum if lines then move few elements of f, or if latent variables of
    groups are then integrated out.
    """
    source = read(as_sum=groups is not None)
    labels, group = _labels(source, groups)
    if group is None and source.is_sparse:
        source = read(as_sum=True)
    if group is not None and not source.integrate_effects_of(group):
        source = read()
        if source.reads_several:
            raise ValueError(
                f"Observations of {source.name} read several elements of f each. groups= leaves "
                "such groups out if each has latent variables of its own, which no other "
                "observation reads: at least one, and at most 200. Otherwise fit the model without "
                "the group, or leave observations out one at a time."
            )
    return source, labels, group


def _labels(source: _OfLatent | _OfNormal, groups: ArrayLike | None) -> tuple[Any, Any]:
    """The different labels, and the index of each observation's label; ``None`` without groups."""
    if groups is None:
        return None, None
    given = np.asarray(groups)
    if given.shape != source.shape:
        raise ValueError(
            f"groups has shape {given.shape}, and the densities of {source.name} have shape "
            f"{source.shape}. Write a label for each observation."
        )
    # As objects: an array of strings would have a label 'nan'.
    each = np.asarray(groups, dtype=object).ravel()
    if (missing := np.flatnonzero(pd.isna(each))).size:
        raise ValueError(
            f"groups has no label for observation {missing[0]} ({each[missing[0]]}). Write "
            "one for each: one of its own leaves an observation out alone."
        )
    try:
        labels, group = np.unique(given.ravel(), return_inverse=True)
    except TypeError as error:
        raise ValueError(
            "groups has labels of several types, such as numbers and strings, which have no order: "
            "write all as strings, as [str(label) for label in groups]."
        ) from error
    if labels.size == 1:
        raise ValueError(
            f"All observations of {source.name} are in the group {labels[0]!r}, so none is left "
            "to predict it from."
        )
    return labels, group


def _refuse_infinite(source: _OfLatent | _OfNormal, log_density: Array, i: tuple[int, ...]) -> None:
    """Raise if a density of draw i is 0, or not finite."""
    bad = np.flatnonzero(~np.isfinite(log_density))
    if bad.size:
        raise ValueError(
            f"The leave-one-out density of {source.name}, element {bad[0]}, is "
            f"{np.exp(log_density[bad[0]])} in draw {i[1]} of chain {i[0]}: the likelihood is 0, "
            "or not finite, near that draw, or its integral was not found."
        )


def _refuse_reader(model: pm.Model, name: str) -> None:
    """Raise if another observed variable, or a potential, depends on the one that is left out."""
    read = {str(rv.name): rv.owner.inputs for rv in model.observed_RVs if rv.name != name}
    read |= {str(potential.name): [potential] for potential in model.potentials}
    readers = [each for each, graphs in read.items() if name in observed_behind(model, graphs)]
    if readers:
        raise ValueError(
            f"{name} is left out, but {readers} depend on it: without an observation of {name} "
            "their densities are not known. Fit the model again without it, or let them depend on "
            "data of their own."
        )


def _refuse_scaled(rv: Any, shape: tuple[int, ...]) -> None:
    """Raise if a density is multiplied to stand for a larger data set."""
    if not isinstance(rv.owner.op, MinibatchRandomVariable):
        return
    times = float(get_scaling(rv.owner.inputs[1:], pt.as_tensor(shape, dtype="int64")).eval())
    if times != 1.0:
        raise ValueError(
            f"{rv.name} has total_size=, so each of its observations counts {times:g} times: there "
            "is no density of one of them given the others. Fit the model again without "
            "total_size=."
        )


def _separate(log_density: Array) -> None:
    """Space densities of an observation evenly if they are equal up to rounding, in place.

    They are equal if theta is known and the posterior of f is normal. ArviZ fits a Pareto
    distribution to the largest weights, and its fit is NaN, or an error, if these are equal.
    """
    equal = np.ptp(log_density, axis=0) < EQUAL
    evenly = EQUAL * np.linspace(-0.5, 0.5, log_density.shape[0])[:, None]
    log_density[:, equal] = log_density[:, equal].mean(axis=0) + evenly


def _refuse_approximate(tree: xr.DataTree) -> None:
    """Raise if the draws are of an approximate posterior and have not been reweighted."""
    stats = group_of(tree, "sample_stats")
    corrected = "posterior" in tree.children and "importance_ess" in tree["posterior"].attrs
    if "approximate_log_evidence" in stats and not corrected:
        raise ValueError(
            "The trace is of an approximate posterior, and the weights are for the exact one. "
            "Write lgm.loo(lgm.reweight(idata)), or sample lgm.PseudoMarginal()."
        )


def _source(
    model: pm.Model,
    var_name: str | None,
    theta: Sequence[Any] | str | None,
    seed: int,
    compile_kwargs: dict[str, Any],
    as_sum: bool = False,
) -> _OfLatent | _OfNormal:
    """The densities of a model: with f in the trace, or integrated out in the model."""
    latents = latents_beside(model, theta)
    try:
        lgm = LatentGaussianModel.from_pymc(
            model, latents, compile_kwargs=compile_kwargs, integrates=False, as_sum=as_sum
        )
        y = Observations(model, lgm, var_name, instead=INSTEAD, together=True)
        return _OfLatent(model, lgm, y, seed, compile_kwargs)
    except ValueError as error:
        try:
            rv = find_observed(model)
        except ValueError:
            raise error from None
        if var_name not in (None, rv.name):
            raise
    lgm = LatentGaussianModel.from_pymc(model, rv, compile_kwargs=compile_kwargs)
    return _OfNormal(model, lgm, rv)


def _refuse(model: pm.Model, lgm: LatentGaussianModel) -> None:
    """Raise if f has no leave-one-out densities, or no gradient of the likelihood."""
    free = {str(rv.name) for rv in model.free_RVs}
    if unobserved := [name for name in lgm.likelihood_names if name in free]:
        raise ValueError(
            f"{unobserved} depend on {lgm.latent!r} and are not observed: leave-one-out integrates "
            "over one element of the latents given all data. Write "
            "pm.compute_log_likelihood(idata) and az.loo(idata)."
        )
    if lgm.form.caveats:
        raise ValueError(
            "The model has inducing variables and draws of the optimal variational posterior, "
            "which is not that of its likelihood: there are no leave-one-out densities of it."
        )
    if not lgm.has_gradient:
        raise ValueError(
            f"The likelihood ({', '.join(lgm.likelihood_names)}) cannot be differentiated in "
            f"{lgm.latent!r}. Write it with PyTensor's own functions."
        )


class _OfLatent:
    """Leave-one-out densities of an observed variable that depends on f.

    Attributes
    ----------
    name : str
    observed : ndarray
        Its values.
    shape : tuple of int
        Shape of its densities.
    dense_rows : int
        Rows of the largest dense matrix, by which threads are limited: see `Form`.
    needed : list of variable
        Variables that the trace must have.
    """

    def __init__(
        self,
        model: pm.Model,
        lgm: LatentGaussianModel,
        y: Observations,
        seed: int,
        compile_kwargs: dict[str, Any],
    ):
        _refuse(model, lgm)
        self._lgm, self.dense_rows, self._y = lgm, lgm.form.dense_rows, y
        self._replicate = y.replication(seed, compile_kwargs)
        names = {*lgm.theta_names, *lgm.latents, *lgm.other_names}
        self.needed = [rv for rv in model.free_RVs if model.rvs_to_values[rv].name in names]
        self.name, self.observed, self.shape = y.name, y.values, y.shape
        self._layers = y.layers()
        self._theta: Any = None
        layout = getattr(lgm.form, "layout", None)
        self._layout = layout if isinstance(layout, Layout) else None
        self._own: OwnElements | None = None
        self._is_closed = False
        self._local: LocalLines | None = None

    def __call__(
        self, point: Point, natural: dict[Any, Any], rng: np.random.Generator
    ) -> tuple[Array, Array, Array]:
        """Log densities of a draw, log p(y | f, theta), each (M,), and a replicated y."""
        elements, f, q = self._at(point)
        if q is None:
            nothing = np.full(self._y.which.size, np.nan)
            return nothing, nothing, np.full(self.observed.shape, np.nan)
        uniform = rng.random(self._y.reads.shape)
        if self._lgm.is_quadratic:
            found = left_out_of_normal(elements, self._y.which, self._y.reads, q, f, uniform)
        else:
            found = self._along_lines(elements, q, f, uniform)
        return found.log_density, found.own, self._replicated(found, f, point, natural)

    def _along_lines(
        self,
        elements: Callable[[Array], Array],
        q: GaussianApproximation,
        f: Array,
        uniform: Array,
    ) -> LeftOut:
        """Integrate along the line of each observation: in its set, or along all of f."""
        count = len(uniform)
        found = LeftOut(np.empty(count), np.empty(uniform.shape), np.empty(count))
        rest = np.ones(count, dtype=bool)
        options: dict[str, Any] = {"is_log_concave": self._lgm.is_log_concave}
        if self._local is not None:
            of_sets = self._local.chosen
            some = left_out_locally(elements, self._local, q, f, uniform[of_sets], **options)
            found.fill(of_sets, some)
            rest[of_sets] = False
        if rest.any():
            which, reads = self._y.which[rest], self._y.reads[rest]
            options["all_reads"] = self._in_columns
            found.fill(rest, left_out(elements, which, reads, q, f, uniform[rest], **options))
        return found

    @property
    def is_sparse(self) -> bool:
        """Whether f is a long series or a large map that has not been read as a sum."""
        if self._layout is not None or self._lgm.is_quadratic:
            return False
        is_small = are_few(self._y.which.size, self._lgm.n, several=self.reads_several)
        return not is_small and 2 * self.dense_rows < self._lgm.n

    @property
    def reads_several(self) -> bool:
        """Whether an observation reads several elements of f."""
        return self._y.reads.shape[1] > 1

    @cached_property
    def _in_columns(self) -> Any:
        """The elements of f that each observation of the model may read, if they are one or two."""
        reads = self._lgm.element_reads
        assert reads is not None  # `Observations` refuses others
        return in_columns(reads, self._lgm.n)

    def choose_sets(self, points: Sequence[Point]) -> None:
        """Let lines move few elements each, chosen at some points, where that pays."""
        if self._layout is None or self._lgm.is_quadratic:
            return
        examples = [q for q in (self._at(point)[2] for point in points) if q is not None]
        if examples:
            reads = self._reads(self._layout)
            self._local = LocalLines.of(self._layout, reads, self._y.which, examples)

    def integrate_effects_of(self, group: Any) -> bool:
        """Let `without_groups` integrate over latent variables that each group has alone.

        Return whether it does, or has a closed form: groups must have such variables, and lines
        must not be the better choice.
        """
        self._is_closed = self._lgm.is_quadratic and self._reads_of(group) <= MOST_READ
        if self._is_closed:
            return True
        if self._layout is None:
            return False
        own = OwnElements.of(self._layout, self._reads(self._layout), self._y.which, group)
        single = own is not None and own.at.shape[1] == 1 and not self.reads_several
        if own is not None and (not single or len(own.at) > MANY_GROUPS):
            self._own = own
        return self._own is not None

    def _reads_of(self, group: Any) -> int:
        """The largest number of elements of f that a group reads."""
        pairs = np.stack([np.broadcast_to(group[:, None], self._y.reads.shape), self._y.reads])
        different = np.unique(pairs[:, self._y.reads >= 0], axis=1)
        return int(np.bincount(different[0]).max(initial=0))

    def without_groups(
        self, point: Point, group: Any, rng: np.random.Generator
    ) -> tuple[Array, Array]:
        """Log densities of a draw without each group, and log p(y_g | f, theta), each (G,)."""
        elements, f, q = self._at(point)
        if q is None:
            nothing = np.full(group.max() + 1, np.nan)
            return nothing, nothing
        which = self._y.which
        if self._is_closed:
            return left_out_groups_of_normal(elements, which, self._y.reads, group, q, f)
        if self._own is not None:
            likelihood = LikelihoodAt(self._lgm, self._theta[0])
            return left_out_effects(elements, likelihood, self._own, which, group, q, f, rng)
        options = {"is_log_concave": self._lgm.is_log_concave}
        return left_out_groups(elements, which, self._in_columns[:, 0], group, q, f, **options)

    def _reads(self, layout: Layout) -> Any:
        """The elements of eta that each observation of the model may read, (E, s), padded with −1.

        In a sum f is (x, eta), and x has N elements.
        """
        reads = self._lgm.element_reads
        assert reads is not None  # `Observations` refuses others
        return np.where((reads < 0) | self._lgm.free_elements[:, None], -1, reads - layout.N)

    def _at(
        self, point: Point
    ) -> tuple[Callable[[Array], Array], Array, GaussianApproximation | None]:
        """The likelihood of rows of f at the point's theta, its f, and Laplace's approximation."""
        lgm = self._lgm
        lgm.read(point)
        theta = lgm.theta_of(point)
        others = [point[name] for name in lgm.other_names]
        if self._theta is None or not all(map(np.array_equal, self._theta, [theta, *others])):
            prior = lgm.prior(theta)
            self._q = None if prior is None else laplace(LikelihoodAt(lgm, theta), prior)
            self._theta = [theta, *others]

        def elements(rows: Array) -> Array:
            return lgm.likelihood.elements(rows, theta)

        return elements, lgm.f_of(theta, point), self._q

    def _replicated(self, found: LeftOut, f: Array, point: Point, natural: dict[Any, Any]) -> Array:
        """y given the f_i that are drawn without it.

        Observations that read the same f_i have different draws of it, so they are replicated one
        after another: a layer has one observation of each f_i.
        """
        y = np.empty((self._y.which.size, self.observed.size // self._y.which.size))
        for layer in self._layers:
            row = f.copy()
            reads, drawn = self._y.reads[layer], found.f[layer]
            row[reads[reads >= 0]] = drawn[reads >= 0]
            y[layer] = self._replicate(row, point, natural).reshape(y.shape)[layer]
        return y.reshape(self.observed.shape)


class _OfNormal:
    """Densities of a multivariate normal y, whose process the model has integrated out."""

    def __init__(self, model: pm.Model, lgm: LatentGaussianModel, rv: Any):
        self._lgm, self.n, self.name = lgm, lgm.n, str(rv.name)
        self.dense_rows = lgm.form.dense_rows
        names = {*lgm.theta_names, *lgm.other_names}
        self.needed = [v for v in model.free_RVs if model.rvs_to_values[v].name in names]
        self.observed = np.asarray(extract_obs_data(model.rvs_to_values[rv]), dtype=np.float64)
        self.shape = self.observed.shape

    def __call__(
        self, point: Point, natural: dict[Any, Any], rng: np.random.Generator
    ) -> tuple[Array, Array, Array]:
        """log N(y_k; y_k − a_k / P_kk, 1 / P_kk), P = K⁻¹ and a = P (y − m); NaN; and a new y.

        NaN stands for log p(y_k | f, theta), since it is not known how much of K is noise. See
        Rasmussen and Williams (2006), *Gaussian processes for machine learning*, equation 5.12.
        """
        prior = self._prior(point)
        nothing = np.full(self.n, np.nan)
        if prior is None:
            return nothing, nothing, nothing
        precision = prior.precisions
        away = prior.inverse_times(self.observed - prior.mean) / precision
        density = 0.5 * (np.log(precision) - LOG_2PI - precision * away**2)
        noise = rng.standard_normal(self.n) / np.sqrt(precision)
        return density, nothing, self.observed - away + noise

    @property
    def is_sparse(self) -> bool:
        """Whether f is a series or a map: it is one dense vector."""
        return False

    @property
    def reads_several(self) -> bool:
        """Whether an observation reads several elements of f: its density is that of y alone."""
        return False

    def choose_sets(self, points: Sequence[Point]) -> None:
        """Do nothing: there are no lines."""

    def integrate_effects_of(self, group: Any) -> bool:
        """Return whether latent variables of groups are integrated out: all of f is."""
        return True

    def without_groups(
        self, point: Point, group: Any, rng: np.random.Generator
    ) -> tuple[Array, Array]:
        """log N(y_g; y_g − P_gg⁻¹ a_g, P_gg⁻¹) of each group, P = K⁻¹ and a = P (y − m)."""
        prior = self._prior(point)
        found = np.full(group.max() + 1, np.nan)
        nothing = np.full_like(found, np.nan)
        if prior is None:
            return found, nothing
        a = prior.inverse_times(self.observed - prior.mean)
        for g in range(found.size):
            members = np.flatnonzero(group == g)
            units = np.zeros((self.n, members.size), order="F")
            units[members, np.arange(members.size)] = 1.0
            precision = prior.inverse_times(units)[members]
            square = a[members] @ np.linalg.solve(precision, a[members])
            log_determinant = np.linalg.slogdet(precision)[1]
            found[g] = 0.5 * (log_determinant - members.size * LOG_2PI - square)
        return found, nothing

    def _prior(self, point: Point) -> Prior | None:
        """N(m, K) at the point's theta; ``None`` if it is not proper."""
        self._lgm.read(point)
        prior = self._lgm.prior(self._lgm.theta_of(point))
        return prior if prior is not None and prior.is_proper else None
