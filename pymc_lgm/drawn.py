"""Draws of a trace for the functions that analyze it, and values of graphs at each draw.

The functions convert the user's arguments, order draws as the model does, thin them, and raise an
error if data of the model are no longer those of the trace.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr

from pymc.pytensorf import extract_obs_data
from pytensor.graph.traversal import vars_between

from pymc_lgm.compile.graphs.functions import compiled
from pymc_lgm.linalg import Array
from pymc_lgm.model import data_behind, observed_behind
from pymc_lgm.model.refusals import no_model

__all__ = [
    "Evaluator",
    "group_of",
    "model_of",
    "of_present_data",
    "posterior_of",
    "refuse_new_data",
    "refuse_other_shapes",
    "refuse_other_variables",
    "thinned",
    "trace_of",
]


def trace_of(idata: Any) -> xr.DataTree:
    """Return a trace as a DataTree, or raise an error that says what to write instead."""
    if isinstance(idata, dict) and "posterior" not in idata:
        raise TypeError(
            "idata is a dict: write the trace that pm.sample returns. If the dict has an array of "
            "shape (chain, draw, ...) per variable, write az.from_dict({'posterior': idata})."
        )
    if isinstance(idata, xr.DataTree) and idata.name == "posterior":  # idata.posterior
        idata = idata.to_dataset() if idata.parent is None else idata.parent
    try:
        tree = az.from_dict(idata) if isinstance(idata, dict) else az.convert_to_datatree(idata)
    except ValueError as error:
        if isinstance(idata, str):  # a file that cannot be read: xarray gives the reason
            raise
        raise TypeError(
            f"idata is a {type(idata).__name__}: write the trace that pm.sample returns."
        ) from error
    posterior = group_of(tree, "posterior")
    if posterior and not {"chain", "draw"} <= set(posterior.dims):
        raise ValueError(
            f"The posterior has the dimensions {list(posterior.dims)}, without chain and draw: "
            "write the trace that pm.sample returns. One chain is idata.isel(chain=[0]), and "
            ".unstack('sample') undoes az.extract."
        )
    if posterior and not posterior.sizes["chain"] * posterior.sizes["draw"]:
        raise ValueError("The posterior has no draws: write the trace that pm.sample returns.")
    return tree


def posterior_of(tree: xr.DataTree, model: pm.Model | None = None) -> xr.Dataset:
    """Return the posterior draws of a trace, or an empty dataset if it has none.

    With a model, the axes of a variable, and the labels along them, are put in the model's order.
    """
    posterior = group_of(tree, "posterior")
    if model is None:
        return posterior
    _refuse_other_labels(tree, model)
    posterior = _in_order(posterior, model)
    for name in map(str, posterior.keys() & model.named_vars.keys()):
        named = model.named_vars_to_dims.get(name, ())
        dims = [dim or f"{name}_dim_{k}" for k, dim in enumerate(named)]
        dims = dims or [f"{name}_dim_{k}" for k in range(model[name].ndim)]
        if set(dims) == set(posterior[name].dims) - {"chain", "draw"}:
            posterior[name] = posterior[name].transpose("chain", "draw", *dims)
    return posterior


def _in_order(group: xr.Dataset, model: pm.Model) -> xr.Dataset:
    """Return a group of a trace with its labels in the model's order, if they are the same ones."""
    for dim, labels in model.coords.items():
        if labels is None or dim not in group.indexes:
            continue
        here, there = group.indexes[dim], pd.Index(labels)
        if len(here) == len(there) and here.is_unique and there.is_unique:
            at = here.get_indexer(there)
            if (at >= 0).all() and not np.array_equal(at, np.arange(at.size)):
                group = group.isel({dim: at})
    return group


def _refuse_other_labels(tree: xr.DataTree, model: pm.Model) -> None:
    """Raise if the labels of a trace do not say which element of the model a draw belongs to.

    A label may occur twice in the trace, as after a selection. Or labels of the model were put in
    another order, as by ``set_dim``, and data were not: inputs that are no `pymc.Data`, such as X
    of a process, keep their order then, while draws would follow the labels. If the trace was
    reordered, its data were reordered with it.
    """
    for dim, index in group_of(tree, "posterior").indexes.items():
        labels = model.coords.get(str(dim))
        if labels is None or len(labels) != len(index) or index.is_unique:
            continue
        if pd.Index(labels).is_unique:
            twice = index[index.duplicated()][0]
            raise ValueError(
                f"The trace has the label {twice!r} of {dim!r} more than once, and the model has "
                "it once or not at all. Pass the whole trace, or sample again."
            )
    now: dict[str, Any] = {str(v.name): v for v in model.data_vars}
    now |= {str(rv.name): model.rvs_to_values[rv] for rv in model.observed_RVs}
    for group in ("constant_data", "observed_data"):
        then = group_of(tree, group)
        ordered = _in_order(then, model)
        for name in sorted(now.keys() & set(map(str, then))):
            moved = [d for d in then[name].dims if not then[name][d].equals(ordered[name][d])]
            if not moved:
                continue
            value = now[name].eval()
            if _differ(value, ordered[name].values) and not _differ(value, then[name].values):
                raise ValueError(
                    f"The labels of {moved} are in another order in the model than in the trace, "
                    f"but {name} has the same values in the same order. Set the labels back with "
                    "model.set_dim, or sample again."
                )


def model_of(model: pm.Model | None, call: str) -> pm.Model:
    """Return the model, by default that of the context; raise an error if there is none.

    ``call`` is what the user called, for this error.
    """
    try:
        return pm.modelcontext(model)
    except TypeError as error:
        raise TypeError(no_model(call)) from error


def refuse_new_data(tree: xr.DataTree, graphs: Iterable[Any], model: pm.Model) -> None:
    """Raise a `ValueError` if graphs read data that have been replaced since the trace was drawn.

    Parameters
    ----------
    tree : DataTree
        A trace. `pymc.sample` stores each `pymc.Data` in its group ``constant_data``, and observed
        values in ``observed_data``; data that are not there are not compared.
    graphs : iterable of variable
        Priors and densities of the variables that were drawn. Data may be replaced if the graphs
        read only their shape.
    model : pymc.Model
        The observed values of those of its variables that the graphs read are compared, too.
    """
    if changed := _replaced(tree, graphs, model):
        raise ValueError(
            f"The data {', '.join(changed)} of the model have been replaced since the trace was "
            "drawn (see its groups constant_data and observed_data). Set the data back with "
            "pm.set_data, or sample again."
        )


def refuse_other_variables(tree: xr.DataTree, model: pm.Model) -> None:
    """Raise a `ValueError` if the draws are not of the posterior of this model's variables.

    Variables that were drawn may have become data, as by `pymc.do` and `pymc.observe`, and observed
    variables may have been added. These are compared if the trace has the group ``observed_data``.
    """
    drawn, seen = group_of(tree, "posterior"), group_of(tree, "observed_data")
    free = {str(v.name) for v in [*model.free_RVs, *model.deterministics]}
    known = {str(v.name) for v in [*model.observed_RVs, *model.data_vars]} - free
    if fixed := sorted(known & set(map(str, drawn))):
        raise ValueError(
            f"The trace has draws of {fixed}, which are data in the model: the draws are of "
            "another posterior. Pass the model that was sampled, or sample this one."
        )
    observed = {str(rv.name) for rv in model.observed_RVs if _is_stored(model.rvs_to_values[rv])}
    if seen and (added := sorted(observed - set(map(str, seen)))):
        raise ValueError(
            f"The model has the observed variables {added}, and the trace was drawn without them "
            "(see its group observed_data). Pass the model that was sampled, or sample again."
        )


def refuse_other_shapes(posterior: xr.Dataset, shapes: Mapping[str, Sequence[int]]) -> None:
    """Raise if a variable has another shape in the model than its draws have."""
    for name in sorted(map(str, posterior.keys() & shapes.keys())):
        drawn = posterior[name].transpose("chain", "draw", ...).shape[2:]
        if drawn != (now := tuple(map(int, shapes[name]))):
            raise ValueError(
                f"{name} has shape {drawn} in the trace, and {now} in the model. Set the data or "
                "the coords back with pm.set_data, or sample again."
            )


def _is_stored(value: Any) -> bool:
    """Whether `pymc.sample` stores an observed value, which it does not for an expression."""
    try:
        extract_obs_data(value)
    except TypeError:
        return False
    return True


def _replaced(tree: xr.DataTree, graphs: Iterable[Any], model: pm.Model) -> list[str]:
    """Names of the data behind graphs that are no longer those of the trace."""
    graphs = list(graphs)
    then = _in_order(group_of(tree, "constant_data"), model)
    data = data_behind(graphs)
    changed = {
        name
        for name in data.keys() & set(map(str, then))
        if _differ(data[name].get_value(), then[name].values)
    }
    # Data that are only observed values are not in constant_data.
    then = _in_order(group_of(tree, "observed_data"), model)
    for name, value in observed_behind(model, graphs).items():
        if name in then and _differ(value.eval(), then[name].values):
            changed |= data_behind([value]).keys() or {name}
    return sorted(changed)


def _differ(now: np.ndarray, then: np.ndarray) -> bool:
    """Whether data differ from those of a trace, which may be stored with fewer digits."""
    now = now.astype(then.dtype) if then.dtype.kind == "f" else now
    return not np.array_equal(now, then, equal_nan=True)


def group_of(tree: xr.DataTree, name: str) -> xr.Dataset:
    """A group of a trace, or an empty dataset if it has none of this name."""
    return tree[name].to_dataset() if name in tree.children else xr.Dataset()


def of_present_data(posterior: xr.Dataset, tree: xr.DataTree, model: pm.Model) -> xr.Dataset:
    """Return draws without each `pymc.Deterministic` that depends on data that have been replaced.

    Graphs then compute it from the draws of the free variables and the present data.
    """
    recorded = [v for v in model.deterministics if v.name in posterior]
    return posterior.drop_vars([v.name for v in recorded if _replaced(tree, [v], model)])


class Evaluator:
    """Graphs of Xnew and of variables in the posterior, compiled once for all draws.

    Variables in the posterior are inputs of the compiled function, so their values are those of the
    trace, without transforms. Observed variables have their data.
    """

    def __init__(
        self,
        graphs: list[Any],
        Xnew: Any,
        posterior: xr.Dataset,
        model: pm.Model,
        compile_kwargs: dict[str, Any] | None,
    ):
        sampled = [v for v in [*model.free_RVs, *model.deterministics] if v.name in posterior]
        reached = set(vars_between([*sampled, *model.observed_RVs], graphs))
        missing = [v.name for v in model.free_RVs if v in reached and v not in sampled]
        if missing:
            raise ValueError(
                f"The posterior has no {missing}, which prediction depends on (variables: "
                f"{sorted(map(str, posterior))}): sample with var_names=None, or with them in it."
            )
        inputs = [v for v in sampled if v in reached]
        self.names = [v.name for v in inputs]
        draws = (posterior[v.name].transpose("chain", "draw", ...).values for v in inputs)
        self._values = [values.astype(v.dtype) for v, values in zip(inputs, draws, strict=True)]
        self._dtype = Xnew.dtype
        observed = [v for v in model.observed_RVs if v in reached]
        self._observed = [model.rvs_to_values[v].eval().astype(v.dtype) for v in observed]
        self._function = compiled([Xnew, *inputs, *observed], graphs, compile_kwargs or {})

    def theta(self, i: tuple[int, ...]) -> list[np.ndarray]:
        """Return the values of ``names``, the variables of the posterior that the graphs read.

        ``i`` is (chain, draw).
        """
        return [np.asarray(values[i]) for values in self._values]

    def __call__(self, points: Array, i: tuple[int, ...]) -> list[np.ndarray]:
        """Return the values of the graphs at `points`, in draw i."""
        values = *self.theta(i), *self._observed
        result: list[np.ndarray] = self._function(np.asarray(points, self._dtype), *values)
        return result


def thinned(
    posterior: xr.Dataset, latents: Sequence[str], thin: int | None, *, most: int | None = None
) -> xr.Dataset:
    """Return every thin-th draw of each chain; raise an error if there is no draw of a latent.

    By default there remain at most ``most`` draws of all chains together, or at most one more per
    chain.
    """
    for latent in latents:
        if latent not in posterior:
            raise ValueError(
                f"{latent} is not in the posterior (variables: {sorted(map(str, posterior))}): "
                f"sample with var_names=None, or with {latent!r} in it."
            )
    if thin is None:
        thin = -(-posterior.sizes["chain"] * posterior.sizes["draw"] // most) if most else 1
    if thin < 1 or thin != int(thin):
        raise ValueError(f"thin is {thin}: write 1 to use every draw, k to use every k-th.")
    return posterior.isel(draw=slice(None, None, int(thin)))
