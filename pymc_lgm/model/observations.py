"""The observations of a variable one by one: the element of f that each reads, and new values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pymc as pm

from numpy.typing import NDArray
from pymc.pytensorf import compile as pymc_compile
from pymc.pytensorf import extract_obs_data
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors

from pymc_lgm.linalg import Array
from pymc_lgm.model.read import LatentGaussianModel

__all__ = ["Observations"]

Index = NDArray[np.intp]


class Observations:
    """The observations of one variable that depends on f.

    Attributes
    ----------
    name : str
    values : ndarray
        What was observed.
    which, site : ndarray of int, shape (M,)
        Elements of the likelihood that the observations are, and the f_i that each reads.
    replicate : callable
        A row of f and the other variables of a draw -> a new observation of each element.
    """

    def __init__(
        self,
        model: pm.Model,
        lgm: LatentGaussianModel,
        var_name: str | None,
        compile_kwargs: dict[str, Any],
    ):
        rv = _chosen(model, lgm, var_name)
        self.name = str(rv.name)
        self.values = np.asarray(extract_obs_data(model.rvs_to_values[rv]))
        self.which, self.site = _observations(lgm, self.name, self.values.size)
        self.replicate = _replication(model, lgm, rv, compile_kwargs)

    def layers(self) -> list[Index]:
        """Observations in groups, of which none has two that read the same f_i."""
        left, layers = np.arange(self.site.size), []
        while left.size:
            _, first = np.unique(self.site[left], return_index=True)
            layers.append(left[np.sort(first)])
            left = np.delete(left, first)
        return layers


def _chosen(model: pm.Model, lgm: LatentGaussianModel, var_name: str | None) -> Any:
    """The observed variable, or say why there is none."""
    free = {str(rv.name) for rv in model.free_RVs}
    if unobserved := [name for name in lgm.likelihood_names if name in free]:
        raise ValueError(
            f"{unobserved} depend on {lgm.latent!r} and are not observed: leave-one-out integrates "
            "over one element of the latents given all data. Write "
            "pm.compute_log_likelihood(idata) and az.loo(idata)."
        )
    observed = {str(rv.name): rv for rv in model.observed_RVs}
    names = [name for name in lgm.likelihood_names if name in observed]
    if var_name not in names and (var_name is not None or len(names) != 1):
        raise ValueError(
            f"Observed variables that depend on {lgm.latent!r} are {names}: name one of them, as "
            f"in lgm.loo(idata, var_name={(names or ['y'])[0]!r})."
        )
    if lgm.form.whose:
        raise ValueError(
            "The model has inducing variables and draws of the optimal variational posterior, "
            "which is not that of its likelihood: there are no leave-one-out densities of it."
        )
    if not lgm.has_gradient:
        raise ValueError(
            f"The likelihood ({', '.join(lgm.likelihood_names)}) cannot be differentiated in "
            f"{lgm.latent!r}. Write it with PyTensor's own functions."
        )
    return observed[names[0] if var_name is None else var_name]


def _observations(lgm: LatentGaussianModel, name: str, size: int) -> tuple[Index, Index]:
    """Elements of the likelihood that are observations of a variable, and the f_i they read."""
    point = lgm.generic_theta
    values = lgm.graphs.term_values(np.array(lgm.mean(point)), point)
    sizes = dict(zip(lgm.likelihood_names, (np.size(v) for v in values), strict=True))
    begin = 0
    for other in lgm.likelihood_names:
        if other == name:
            break
        begin += sizes[other]
    which = begin + np.arange(sizes[name])
    sites = lgm.element_sites
    if sites is None or sizes[name] != size:
        raise ValueError(
            f"An observation of {name!r} reads several elements of {lgm.latent!r}, and "
            "leave-one-out integrates over one. Write pm.compute_log_likelihood(idata) and "
            "az.loo(idata)."
        )
    return which, sites[which]


def _replication(
    model: pm.Model, lgm: LatentGaussianModel, rv: Any, compile_kwargs: dict[str, Any]
) -> Callable[[Array, dict[Any, Any]], Array]:
    """A row of f and the other variables of a draw -> a replicated y."""
    (y,) = clone_replace([rv], dict(lgm.graphs.cuts), rebuild_strict=False)
    reached = set(ancestors([y]))
    form: Any = lgm.form
    eta = getattr(form, "_eta", None)
    is_sum = eta is not None and eta in reached
    inputs = [v for v in model.free_RVs if v in reached]
    draw = pymc_compile(
        [eta if is_sum else form.f, *inputs], y, on_unused_input="ignore", **compile_kwargs
    )

    def replicate(row: Array, natural: dict[Any, Any]) -> Array:
        seen = row[form.of_eta] if is_sum else row
        return np.asarray(draw(seen, *(natural[v] for v in inputs)))

    return replicate
