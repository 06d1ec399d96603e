"""Comparison of samplers on one model with one budget: a table and plots."""

from __future__ import annotations

import html
import warnings

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr

from pymc.progress_bar import create_simple_progress
from pymc.vartypes import continuous_types

from pymc_lgm.diagnostics import efficiency, groups_of
from pymc_lgm.distributed import sample
from pymc_lgm.drawn import model_of
from pymc_lgm.model import find_latents
from pymc_lgm.steps.options import public_name

__all__ = ["Comparison", "compare_samplers"]

Sampler = Callable[[], Any] | None
"""Makes a step method inside the model context; None if `pymc.sample` chooses."""

PILOT = 100
"""Number of draws per chain, after tuning, of the pilot run that measures the cost of a draw.

Measured: with two chains of the default sampler on the example of the README, the mean cost of 100
draws has a standard deviation of 2.4 percent; that of 20 draws 5.4, and that of 200 draws 1.4.
"""

COSTS = {"per_1000_ops": "ESS per 1000 operations", "per_second": "ESS per second"}
"""Costs by which effective draws are divided: end of a column's name -> label in a plot."""

GROUP_COLUMNS = {
    "ess_bulk": "ess_{}",
    "r_hat": "r_hat_{}",
    "ess_per_1000_ops": "ess_{}_per_1000_ops",
    "ess_per_second": "ess_{}_per_second",
}
"""Columns of `efficiency` with a value per group, and their names here; {} is the group."""

SAMPLER_COLUMNS = ["theta_acceptance", "latent_acceptance", "cubic_ops"]
"""Columns of `efficiency` with one value per sampler."""


def compare_samplers(
    samplers: Mapping[str, Sampler] | Sequence[Sampler],
    model: pm.Model | None = None,
    *,
    draws: int | None = None,
    tune: int = 1000,
    chains: int = 2,
    operations: float | None = None,
    seconds: float | None = None,
    groups: Mapping[str, str | Sequence[str]] | None = None,
    random_seed: Any = None,
    progressbar: bool = True,
    client: Any = None,
    **sample_kwargs: Any,
) -> Comparison:
    """Run several samplers on one model with equal budgets, and tabulate their efficiency.

    Parameters
    ----------
    samplers : mapping of str to callable, or sequence of callables
        Row label -> function that makes the step method, called without arguments inside the model:
        a class (``lgm.ASIS``) or ``lambda: lgm.PseudoMarginal(n_importance=16)``. None means the
        choice of ``pm.sample()``. In a sequence the names of the classes are the labels.
    model : pymc.Model, optional
        By default the model of the context.
    draws, operations, seconds : optional
        The budget; give at most one. ``draws`` is the number per chain after tuning (by default
        1000). ``operations`` is the number of O(n³) operations of a chain after tuning. ``seconds``
        is the time of all chains together, with tuning and without compilation. The last two need a
        pilot run with the same tuning and 100 draws per chain, which measures the cost of a draw.
    groups : mapping of str to str or sequence of str, optional
        Label -> variables, as in `efficiency`. By default "f" has all latent variables that
        `pymc_lgm.read` finds, intercepts and effects included, and "theta" has the other continuous
        free variables. Deterministics are in neither. All samplers have the same groups, even if
        one integrates an intercept out.
    progressbar : bool
        Show one bar for all samplers.
    client : distributed.Client, optional
        Client of a Dask cluster that runs the chains: see `pymc_lgm.distributed.sample`.
    tune, chains, random_seed, **sample_kwargs
        Options of `pymc.sample` (``cores``, ``initvals``, ...), the same for all samplers.

    Returns
    -------
    Comparison
        It has a ``table``, the traces ``idata``, the ``failures``, and plots. If a sampler fails,
        there is a warning, its row is NaN, and the others continue. If all fail, the last error is
        raised. A keyboard interrupt ends the current sampler: PyMC returns its draws, and the next
        sampler begins.

    Raises
    ------
    TypeError
        If a sampler is not a function that makes a step method, or if there is ``step=``.
    ValueError
        If labels are not unique, if there are two budgets, if a budget is not positive or allows
        fewer than 4 draws, or if ``operations=`` is given for a sampler that counts none.

    See Also
    --------
    efficiency : The same numbers for one trace.
    report : Whether to trust a trace.

    Examples
    --------
    >>> import pymc as pm, pymc_lgm as lgm
    >>> samplers = {
    ...     "AA": lgm.papers.WhitenedMetropolis,
    ...     "twice": lambda: lgm.ASIS(latent_repeats=2),
    ... }
    >>> options = {"tune": 100, "cores": 1, "random_seed": 1, "progressbar": False}
    >>> with pm.Model():
    ...     rho = pm.Uniform("rho")
    ...     f = pm.MvNormal("f", mu=[0.0, 0.0], cov=pm.math.stack([[1, rho], [rho, 1]]))
    ...     y = lgm.Probit("y", f=f, observed=[0, 1])
    ...     comparison = lgm.compare_samplers(samplers, operations=200, **options)
    >>> comparison.table[["cubic_ops", "draws"]]
           cubic_ops  draws
    AA           1.0    200
    twice        2.0    100
    """
    model = model_of(model, "lgm.compare_samplers([...])")
    makers = _makers(samplers)
    rows = _groups(model, groups)
    budget = _budget(draws=draws, operations=operations, seconds=seconds)
    if "step" in sample_kwargs:
        raise TypeError("compare_samplers() has no step=: write it as one of the samplers.")
    if random_seed is None:  # one seed for all samplers
        random_seed = int(np.random.default_rng().integers(2**30))
    settings = {"tune": tune, "chains": chains, "random_seed": random_seed, "quiet": True}
    settings |= {"compute_convergence_checks": False} | sample_kwargs
    if client is not None:
        settings["client"] = client

    idata, table = {}, {}
    failures: dict[str, Exception] = {}
    progress: Any = create_simple_progress(progressbar)
    with progress:
        bar = progress.add_task("", completed=0, total=len(makers))
        for done, (name, make) in enumerate(makers.items()):
            progress.update(bar, completed=done, description=name, refresh=True)
            try:
                n = _draws_for(model, make, settings, *budget)
                share = 1 / (chains * (tune + n))
                trace = _run(
                    model, make, n, settings, lambda share=share, **_: progress.advance(bar, share)
                )
                table[name] = _row(trace, rows)
                idata[name] = trace
            except Exception as error:
                failures[name] = error
                warnings.warn(_failure(name, error), stacklevel=2)
        progress.update(bar, completed=len(makers), refresh=True)
    if not idata:
        last = list(failures.values())[-1]
        last.add_note(f"Every sampler failed ({', '.join(failures)}): this is the last failure.")
        raise last
    frame = pd.DataFrame.from_dict(table, orient="index").reindex(list(makers))
    return Comparison(frame.astype({"draws": "Int64"}), idata, failures, rows)


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """The result of `compare_samplers`. Groups are "theta" and "f" unless ``groups=`` was given.

    Attributes
    ----------
    table : pandas.DataFrame
        For each group ``ess_theta`` (least bulk ESS), ``r_hat_theta`` (greatest),
        ``ess_theta_per_1000_ops``, ``ess_theta_per_second``; then ``theta_acceptance``,
        ``latent_acceptance``, ``cubic_ops`` (mean per draw), ``draws`` (per chain), ``seconds``
        (all chains, with tuning). `efficiency` defines them.
    idata, failures, groups : dict
        The traces, the errors of the samplers that failed, and the variables of each group.
    """

    table: pd.DataFrame
    idata: dict[str, xr.DataTree]
    failures: dict[str, Exception]
    groups: dict[str, list[str]]

    def r_hat(self, group: str | None = None, *, every: int | None = None) -> xr.DataArray:
        """Compute the greatest R-hat of a group (theta) over the first draws of each chain.

        Returns an array with dimensions sampler and draw. The draws are multiples of `every` (by
        default a twentieth of the longest trace), and at least 4. Values beyond the end of a
        shorter trace are NaN.
        """
        traces = self._posteriors(group)
        if min(trace.sizes["chain"] for trace in traces.values()) < 2:
            raise ValueError("R-hat compares chains: write chains=2 or more in compare_samplers().")
        longest = max(trace.sizes["draw"] for trace in traces.values())
        every = max(longest // 20 if every is None else every, 4)
        ends = np.arange(every, longest + 1, every)
        values = [[_greatest_r_hat(trace, int(end)) for end in ends] for trace in traces.values()]
        return xr.DataArray(values, {"sampler": list(traces), "draw": ends}, name="r_hat")

    def plot_r_hat(
        self, group: str | None = None, *, every: int | None = None, backend: str | None = None
    ) -> az.PlotCollection:
        """Plot each sampler's `r_hat` against the draws, with a line at 1.01; any ArviZ backend."""
        curves = self.r_hat(group, every=every).to_dataset(name=group or next(iter(self.groups)))
        return _lines(curves, "draw", 1.01, "draws of each chain", "greatest R-hat", backend)

    def plot_autocorrelation(
        self, group: str | None = None, *, max_lag: int = 50, backend: str | None = None
    ) -> az.PlotCollection:
        """Plot the autocorrelation, mean over chains, of each element of a group (theta)."""
        with np.errstate(divide="ignore", invalid="ignore"):  # 0/0 if nothing moved
            curves = [
                trace.azstats.autocorr().mean("chain") for trace in self._posteriors(group).values()
            ]
        curves = [curve.isel(draw=slice(max_lag + 1)) for curve in curves]
        curves = [curve.assign_coords(draw=np.arange(curve.sizes["draw"])) for curve in curves]
        samplers = pd.Index(list(self.idata), name="sampler")
        lagged = xr.concat(curves, samplers, join="outer").rename(draw="lag")
        return _lines(lagged, "lag", 0.0, "lag (draws)", "autocorrelation", backend)

    def plot_efficiency(self, *, backend: str | None = None) -> az.PlotCollection:
        """Plot effective draws per cost as bars, with a panel for each group and cost."""
        columns = {f"ess_{g}_{c}": f"{g}: {COSTS[c]}" for g in self.groups for c in COSTS}
        ess = self.table[list(columns)].rename(columns=columns).rename_axis("sampler").to_xarray()
        # 0 for NaN, which ArviZ would omit together with its label.
        lengths = ess.where(np.isfinite(ess), 0.0)
        n = ess.sizes["sampler"]
        rows = [*range(n - 1, -1, -1)]
        height = (0.9 + 0.45 * n) * len(self.groups)
        plot, _ = _panels(
            lengths, [], height, backend, aes={"color": ["sampler"], "y": ["sampler"]}, y=rows
        )
        ends = lengths * xr.DataArray([0.0, 1.0], dims="end")
        plot.map(az.visuals.fill_between_y, "bars", x=ends, y_bottom=-0.45, y_top=-0.05)
        plot.map(_label, "labels", ess=ess, failures=self.failures, ignore_aes={"color"})
        once: Any = {"ignore_aes": "all", "store_artist": False}
        plot.map(az.visuals.set_ylim, limits=(-0.6, n - 0.4), **once)
        plot.map(az.visuals.remove_axis, axis="y", **once)
        return plot

    def _posteriors(self, group: str | None) -> dict[str, xr.Dataset]:
        """Return each sampler's draws of a group."""
        group = next(iter(self.groups)) if group is None else group
        if group not in self.groups:
            raise ValueError(f"There is no group {group!r}: write one of {list(self.groups)}.")
        traces = {name: trace["posterior"].to_dataset() for name, trace in self.idata.items()}
        return {n: trace[self.groups[group]].astype(np.float64) for n, trace in traces.items()}

    def __repr__(self) -> str:
        table = self.table.to_string(float_format="{:.3g}".format, line_width=100)
        return "\n".join([table, *(_failure(*failed) for failed in self.failures.items())])

    def _repr_html_(self) -> str:
        lines = [html.escape(_failure(*failed)) for failed in self.failures.items()]
        return self.table.to_html(float_format="{:.3g}".format) + "<br>".join(lines)


def _failure(name: str, error: Exception) -> str:
    return f"{name} failed: {type(error).__name__}: {error}"


def _makers(samplers: Any) -> dict[str, Sampler]:
    """Return label -> function that makes a step method; raise if it cannot make one."""
    if not isinstance(samplers, Mapping | list | tuple) or not samplers:
        raise TypeError(f"samplers is {samplers!r}: write {{'name': lgm.ASIS, ...}}.")
    named = samplers if isinstance(samplers, Mapping) else None
    makers = list(named.values() if named else samplers)
    for make in makers:
        if isinstance(make, str):
            raise TypeError(f"{make!r} is a string: write the class itself, as in [lgm.ASIS].")
        if make is not None and not callable(make):
            raise TypeError(
                f"{make!r} is not a function that makes a step method. A step that exists has "
                f"its own tuning: write the class, or lambda: {public_name(type(make))}(...)."
            )
    labels = list(named) if named else [getattr(make, "__name__", "default") for make in makers]
    if "<lambda>" in labels or len(set(labels)) < len(labels):
        raise ValueError(f"The labels {labels} are not unique: write {{'name': ..., ...}}.")
    return dict(zip(labels, makers, strict=True))


def _groups(
    model: pm.Model, groups: Mapping[str, str | Sequence[str]] | None
) -> dict[str, list[str]]:
    """Return label -> variables of the model, by default theta and f."""
    if groups is None:
        latents = [latent.rv for latent in find_latents(model).latents]
        hyper = [v for v in model.free_RVs if v not in latents and v.dtype in continuous_types]
        groups = {"theta": [v.name for v in hyper]} if hyper else {}
        groups |= {"f": [v.name for v in latents]}
    names = [str(variable.name) for variable in model.unobserved_RVs]
    return groups_of(groups, names)


def _budget(**budgets: float | None) -> tuple[str, float]:
    """Return the kind of the budget and its amount."""
    given = {kind: amount for kind, amount in budgets.items() if amount is not None}
    if len(given) > 1:
        raise ValueError(f"Give one budget, not both {' and '.join(given)}.")
    kind, amount = next(iter(given.items()), ("draws", 1000))
    if not 0 < amount < np.inf or (kind == "draws" and amount != int(amount)):
        raise ValueError(f"{kind}={amount!r}: write a positive number, and for draws an integer.")
    return kind, amount


def _run(
    model: pm.Model, make: Sampler, draws: int, settings: dict[str, Any], callback: Any
) -> xr.DataTree:
    if "client" in settings:
        return sample(model, draws=draws, step=make, **settings)
    # If PyMC chooses the sampler, a callback would prevent it from choosing nutpie.
    settings = {"callback": None if make is None else callback} | settings
    with model:
        return pm.sample(draws, step=None if make is None else make(), **settings)


def _draws_for(
    model: pm.Model, make: Sampler, settings: dict[str, Any], kind: str, amount: float
) -> int:
    """Return the number of draws per chain for the budget, after a pilot run if needed."""
    if kind == "draws":
        return int(amount)
    stamps: list[float] = []
    pilot = _run(model, make, PILOT, settings, lambda **_: stamps.append(perf_counter()))
    table = efficiency(pilot)
    ops, elapsed = table["cubic_ops"].iloc[0], table.attrs["sampling_time"]
    if kind == "operations":
        if not ops > 0:
            raise ValueError(
                "This sampler counts no O(n³) operations: compare by draws= or seconds=."
            )
        draws = amount / ops
    else:
        # The time before the first draw, mostly compilation, does not grow with the draws.
        span = stamps[-1] - stamps[0] if stamps else elapsed
        tune = settings["tune"]
        draws = (amount - np.fmax(elapsed - span, 0.0)) * (tune + PILOT) / span - tune
    if not draws >= 4:  # also if the clock was set back
        raise ValueError(f"{kind}={amount:g} allows fewer than 4 draws: give more, or tune less.")
    return round(draws)


def _row(trace: xr.DataTree, groups: dict[str, list[str]]) -> dict[str, float]:
    """Return a row of the table."""
    table = efficiency(trace, groups)
    row: dict[str, float] = {}
    for column, name in GROUP_COLUMNS.items():
        row |= {name.format(group): table.loc[group, column] for group in groups}
    row |= dict(table.iloc[0][SAMPLER_COLUMNS])
    return row | {"draws": table.attrs["draws"], "seconds": table.attrs["sampling_time"]}


def _greatest_r_hat(trace: xr.Dataset, end: int) -> float:
    if end > trace.sizes["draw"]:
        return np.nan
    with np.errstate(divide="ignore", invalid="ignore"):  # 0/0 if nothing moved
        r_hat = az.rhat(trace.isel(draw=slice(end)))
    return float(np.fmax.reduce([np.fmax.reduce(np.ravel(values)) for values in r_hat.values()]))


def _panels(
    data: xr.Dataset, dims: Sequence[Hashable], height: float, backend: str | None, **kwargs: Any
) -> tuple[az.PlotCollection, dict[str, Any]]:
    """Make titled panels, two per row, for variables along dims, with a legend."""
    layout, legend = {}, {}
    if (backend or az.rcParams["plot.backend"]) == "matplotlib":  # outside of the panels
        layout, legend = {"layout": "constrained"}, {"loc": "outside lower center", "ncols": 2}
    figure = {"figsize": (6.4, height), **layout}
    cols = ["__variable__", *dims]
    plot = az.PlotCollection.wrap(
        data, cols, col_wrap=2, backend=backend, figure_kwargs=figure, **kwargs
    )
    labeller = az.labels.BaseLabeller()
    plot.map(az.visuals.labelled_title, labeller=labeller, subset_info=True, ignore_aes="all")
    return plot, legend


def _lines(
    curves: xr.Dataset, along: str, level: float, x: str, y: str, backend: str | None
) -> az.PlotCollection:
    """Plot curves along a dimension: a panel for each element, a color for each sampler."""
    element = curves.isel({along: 0, "sampler": 0})
    rows = -(-sum(values.size for values in element.values()) // 2)
    aes = {"color": ["sampler"]}
    plot, legend = _panels(curves, [*element.dims], 1.0 + 2.8 * rows, backend, aes=aes)
    levels = xr.full_like(element, level)
    plot.map(az.visuals.hline, "level", data=levels, color="gray", ignore_aes="all")
    plot.map(az.visuals.line, "lines", xname=along)
    plot.map(az.visuals.labelled_x, text=x, ignore_aes="all")
    plot.map(az.visuals.labelled_y, text=y, ignore_aes="all")
    plot.add_legend("sampler", **legend)
    return plot


def _label(da: xr.DataArray, target: Any, ess: xr.DataArray, failures: Any, **place: Any) -> Any:
    """Write a sampler's name and number above its bar."""
    name = str(da["sampler"].item())
    value = "not counted" if np.isnan(ess) else f"{ess.item():.3g}"
    text = f"{name}: {'failed' if name in failures else value}"
    place |= {"x": 0.0, "horizontal_align": "left", "vertical_align": "bottom"}
    return az.visuals.annotate_xy(da, target, text=text, **place)
