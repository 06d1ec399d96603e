"""The numbers of a report: ArviZ's diagnostics per element, and means of sampler statistics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import arviz as az
import numpy as np
import pandas as pd
import xarray as xr

from pymc_lgm._report.healthy import LATENT_TRAJECTORY
from pymc_lgm.diagnostics import groups_of, per_draw, sampling_seconds, with_posterior, written
from pymc_lgm.drawn import group_of

__all__ = ["Numbers", "element", "numbers"]


@dataclass(frozen=True, eq=False)
class Numbers:
    """The numbers from which verdicts, tables and pictures are made.

    Attributes
    ----------
    posterior, stats : xarray.Dataset
        Draws of the reported variables, as float64, and the sampler's statistics, perhaps empty.
    attrs : dict
        Attributes of the posterior group.
    rows : dict
        Group -> variables.
    elements : pandas.DataFrame
        One row per element of a variable: ``variable``, ``mean``, ``sd``, ``mcse_mean``,
        ``ess_bulk``, ``ess_tail``, ``r_hat``.
    groups : pandas.DataFrame
        The worst element of each group, and the cost per effective draw.
    statistics : pandas.DataFrame
        ``mean`` of each numeric statistic, and the ``lowest`` and ``highest`` of its means per
        chain (and per step, if several report it).
    sizes : list of int
        Number of elements of each variable of the trace, whether or not it belongs to a group.
    stays : dict
        Continuous variable -> (most draws in a row at one value, chain).
    constant : list
        Continuous variables with one value in all draws of all chains.
    broken : list
        Elements with a draw that is NaN or infinite.
    ops, seconds : float
        Number of O(n³) operations of the draws after tuning, and wall time with tuning. NaN if the
        trace does not have them.
    """

    posterior: xr.Dataset
    stats: xr.Dataset
    attrs: dict[str, Any]
    rows: dict[str, list[str]]
    elements: pd.DataFrame
    groups: pd.DataFrame
    statistics: pd.DataFrame
    stays: dict[str, tuple[int, Any]]
    sizes: list[int]
    constant: list[str]
    broken: list[str]
    ops: float
    seconds: float

    @property
    def chains(self) -> int:
        """Number of chains."""
        return self.posterior.sizes["chain"]

    @property
    def draws(self) -> int:
        """Draws of each chain."""
        return self.posterior.sizes["draw"]

    @property
    def names(self) -> set[str]:
        """Names of statistics in the trace, with `LATENT_TRAJECTORY` if it applies."""
        names = {str(name) for name in self.statistics.index}
        if "latent_evaluations" in self.stats:
            counts = per_draw(self.stats, "latent_evaluations")
            if (np.fmin.reduce(counts) < np.fmax.reduce(counts)).any():
                names.add(LATENT_TRAJECTORY)
        return names

    @property
    def theta_size(self) -> int:
        """Bound of the number of hyper-parameters: all elements but the largest variable's."""
        total, largest = sum(self.sizes), max(self.sizes)
        return (total - largest) or total


def numbers(idata: Any, groups: Mapping[str, str | Sequence[str]] | None) -> Numbers:
    """Compute all numbers; errors are those of `pymc_lgm.efficiency`."""
    tree = with_posterior(idata)
    draws = tree["posterior"].to_dataset()
    shown = [str(name) for name, values in draws.data_vars.items() if values.size]
    rows = groups_of(groups, shown)
    used = draws[list(dict.fromkeys(name for row in rows.values() for name in row))]
    continuous = [str(name) for name, x in used.data_vars.items() if x.dtype.kind == "f"]
    posterior = used.astype(np.float64, copy=False).transpose("chain", "draw", ...)
    finite = np.isfinite(posterior).all(["chain", "draw"])
    broken = [label for label, ok in zip(_labels(posterior), _ravel(finite), strict=True) if not ok]
    if broken:
        posterior = posterior.where(finite)  # the mean of an infinity is not finite
    stats = _numeric_statistics(tree)
    elements = _elements(posterior)
    ops = float(per_draw(stats, "cubic_ops").sum())
    seconds = sampling_seconds(draws.attrs)
    # A draw that is not finite counts neither as a move nor as a stay.
    known = {name: _flat(posterior[name])[:, :, _flat(finite[name])] for name in continuous}
    known = {name: values for name, values in known.items() if values.shape[2]}
    moving = {name: _moving(values) for name, values in known.items()}
    constant = [name for name, values in known.items() if _is_constant(values)]
    labels = draws["chain"].values
    stays = {}
    for name, moved in moving.items():
        if name not in constant:
            of_chains = [_longest_stay(of_chain) for of_chain in moved]
            stays[name] = max(zip(of_chains, labels, strict=True))
    return Numbers(
        posterior=posterior,
        stats=stats,
        attrs=dict(draws.attrs),
        rows=rows,
        elements=elements,
        groups=_groups(elements, rows, ops, seconds),
        statistics=_statistics(stats),
        stays=stays,
        sizes=[
            draws[name].size // (posterior.sizes["chain"] * posterior.sizes["draw"])
            for name in written(shown)
        ],
        constant=constant,
        broken=broken,
        ops=ops,
        seconds=seconds,
    )


def _numeric_statistics(tree: xr.DataTree) -> xr.Dataset:
    """Return the statistics that have one number or several in each draw."""
    stats = group_of(tree, "sample_stats")
    numeric = [
        name
        for name, x in stats.data_vars.items()
        if x.dtype.kind in "bif" and {"chain", "draw"} <= set(x.dims)
    ]
    return stats[numeric]


def element(values: xr.DataArray, index: tuple[int, ...]) -> str:
    """Name an element by its coordinates, as in ``f[1851.5]``."""
    dims = [dim for dim in values.dims if dim not in ("chain", "draw")]
    if not dims:
        return str(values.name)
    at = [values[dim].values[i] for dim, i in zip(dims, index, strict=True)]
    labels = [f"{x:.6g}" if isinstance(x, float | np.floating) else str(x) for x in at]
    return f"{values.name}[{', '.join(labels)}]"


def _indices(values: xr.DataArray) -> Iterator[tuple[int, ...]]:
    return np.ndindex(values.shape[2:])


def _labels(posterior: xr.Dataset) -> list[str]:
    return [element(values, i) for values in posterior.data_vars.values() for i in _indices(values)]


def _ravel(values: xr.Dataset) -> np.ndarray:
    return np.concatenate([np.ravel(x.values) for x in values.data_vars.values()])


def _elements(posterior: xr.Dataset) -> pd.DataFrame:
    """Return ArviZ's diagnostics of all elements, in the order of the posterior."""
    variable = [str(name) for name, x in posterior.data_vars.items() for _ in _indices(x)]
    sampled = ["chain", "draw"]
    n_draws = posterior.sizes["chain"] * posterior.sizes["draw"]
    with np.errstate(divide="ignore", invalid="ignore"):  # 0/0 if nothing moved
        columns = {
            "mean": posterior.mean(sampled, skipna=False),
            "sd": posterior.std(sampled, skipna=False, ddof=int(n_draws > 1)),
            "mcse_mean": az.mcse(posterior, method="mean"),
            "ess_bulk": az.ess(posterior, method="bulk"),
            "ess_tail": az.ess(posterior, method="tail"),
            "r_hat": az.rhat(posterior),
        }
    data = {name: _ravel(values) for name, values in columns.items()}
    return pd.DataFrame(
        {"variable": variable} | data, index=pd.Index(_labels(posterior), name="element")
    )


def _flat(values: xr.DataArray) -> np.ndarray:
    """Flatten all axes to one, except those of chains and draws, which come first."""
    sampled = [dim for dim in ("chain", "draw") if dim in values.dims]
    rows = values.transpose(*sampled, ...).values
    return rows.reshape(*rows.shape[: len(sampled)], -1)


def _groups(
    elements: pd.DataFrame, rows: dict[str, list[str]], ops: float, seconds: float
) -> pd.DataFrame:
    """Return the worst element of each group, as in `pymc_lgm.efficiency`."""
    table = {}
    for row, names in rows.items():
        some = elements[elements["variable"].isin(names)]
        error = (some["mcse_mean"] / some["sd"].where(some["sd"] > 0.0)).max()
        worst = {column: some[column].min(skipna=False) for column in ("ess_bulk", "ess_tail")}
        table[row] = {"elements": len(some), **worst} | {
            "r_hat": some["r_hat"].max(),
            "mcse_per_sd": error,
            "ess_per_1000_ops": np.divide(1000 * worst["ess_bulk"], ops) if ops else np.inf,
            "ess_per_second": worst["ess_bulk"] / seconds,
        }
    return pd.DataFrame.from_dict(table, orient="index").astype({"elements": int})


def _statistics(stats: xr.Dataset) -> pd.DataFrame:
    """Return the means of statistics, and their lowest and highest among chains and steps."""
    table = {}
    for name in sorted(map(str, stats.data_vars)):
        steps = per_draw(stats, name).reshape(stats.sizes["chain"], stats.sizes["draw"], -1)
        known = ~np.isnan(steps)
        if not known.any():
            continue
        counts = known.sum(axis=1)
        means = np.where(known, steps, 0.0).sum(axis=1)[counts > 0] / counts[counts > 0]
        mean = steps[known].mean()
        table[name] = {"mean": mean, "lowest": means.min(), "highest": means.max()}
    return pd.DataFrame.from_dict(table, orient="index", columns=["mean", "lowest", "highest"])


def _moving(values: np.ndarray) -> np.ndarray:
    """Return whether any element differs from the previous draw, shape (chains, draws - 1)."""
    moved: np.ndarray = (np.diff(values, axis=1) != 0.0).any(axis=2)
    return moved


def _is_constant(values: np.ndarray) -> bool:
    return values.shape[1] > 1 and bool((values == values[:1, :1]).all())


def _longest_stay(moved: np.ndarray) -> int:
    """Return the largest number of draws in a row that one chain stays at one value."""
    leaves = np.flatnonzero(np.concatenate([[True], moved, [True]]))
    return int(np.diff(leaves).max())
