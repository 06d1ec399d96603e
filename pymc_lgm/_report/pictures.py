"""The pictures of a report, made by `arviz_plots` and embedded in the page."""

from __future__ import annotations

import base64
import html
import io
import warnings

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import arviz as az
import numpy as np
import xarray as xr

from pymc_lgm._report.numbers import Numbers, element
from pymc_lgm._report.tables import worst

__all__ = ["BACKENDS", "Pictures", "draw"]

BACKENDS = ("matplotlib", "bokeh", "plotly", "none")

MOST_OF_A_GROUP = 3
"""Largest number of elements of a group in pictures."""

MOST = 8
"""Largest number of elements in pictures, of all groups together: two rows of ranks."""

FEWEST = 20
"""Number of draws below which there are no pictures."""

PER_ROW = 4
"""Panels of ranks per row."""

BY_DRAW = ("theta_acceptance", "latent_acceptance", "acceptance_rate", "log_evidence_sd")
WIDTH, HEIGHT = 10.0, 1.9
"""Width of a figure and height of a row of panels, in inches."""


@dataclass(frozen=True)
class Pictures:
    """HTML of the figures, the scripts that a page needs once, and the reason if there are none."""

    figures: list[str]
    once: str = ""
    missing: str = ""


def draw(numbers: Numbers, backend: str) -> Pictures:
    """Draw the worst elements and the acceptance, or give the reason why not."""
    if reason := _missing(numbers, backend):
        return Pictures([], missing=reason)
    embed = EMBED[backend]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a constant panel has no scale
        plots = [plot for make in (_draws, _ranks, _statistics) if (plot := make(numbers, backend))]
        figures = [_captioned(embed(*plot), plot[1]) for plot in plots]
    return Pictures(figures, _once(backend) if figures else "")


def _captioned(picture: str, caption: str) -> str:
    return f"<figure>{picture}<figcaption>{html.escape(caption)}</figcaption></figure>"


def _missing(numbers: Numbers, backend: str) -> str:
    if backend == "none":
        return "No pictures: backend is 'none'."
    try:
        import_module(f"arviz_plots.backend.{backend}")
    except ImportError as error:
        package = str(error.name).partition(".")[0]
        return (
            f"No pictures: {package} is not installed "
            f"(pip install 'arviz-plots[{backend}]', or choose another backend)."
        )
    if numbers.draws < FEWEST:
        return f"No pictures: {numbers.draws} draws are too few."
    return ""


def _draws(numbers: Numbers, backend: str) -> tuple[Any, str] | None:
    """Trace and autocorrelation of the worst elements."""
    chosen = _chosen(numbers, backend)
    if not chosen.data_vars:
        return None
    plot = az.combine_plots(
        az.convert_to_datatree(chosen),
        [(az.plot_trace, {}), (az.plot_autocorr, {"max_lag": min(100, numbers.draws - 1)})],
        plot_names=["trace", "autocorrelation"],
        backend=backend,
        figure_kwargs=_figure(backend, len(chosen.data_vars)),
    )
    return plot, (
        f"Up to {MOST_OF_A_GROUP} elements of each group, those with the fewest effective draws. "
        "Left, draws: chains should overlap. Right, autocorrelation: it should reach the gray band "
        "early. Each color is a chain."
    )


def _ranks(numbers: Numbers, backend: str) -> tuple[Any, str] | None:
    """Ranks of the worst elements, by chain."""
    chosen = _chosen(numbers, backend)
    if not chosen.data_vars or numbers.chains == 1:
        return None
    plot = az.plot_rank(
        az.convert_to_datatree(chosen),
        # ArviZ's test and envelope are omitted, because they assume independent draws and would
        # reject good chains. The band below counts effective draws.
        method="envelope",
        thin=False,
        stats={"ecdf_pit": {"n_simulations": 1}},
        visuals={"credible_interval": False, "remove_axis": False},
        backend=backend,
        col_wrap=PER_ROW,
        figure_kwargs=_figure(backend, -(-len(chosen.data_vars) // PER_ROW)),
    )
    ends = xr.DataArray([0.0, 1.0], dims="end")
    band = _band(chosen) * xr.ones_like(ends)
    gray: Any = {"color": "gray", "alpha": 0.2, "ignore_aes": "all"}
    plot.map(az.visuals.fill_between_y, "band", x=ends, y_bottom=-band, y_top=band, **gray)
    return plot, (
        "Ranks of a chain's draws among those of all chains, less their expectation. If chains "
        "agree, they rarely leave the gray band. It is wider with fewer effective draws."
    )


def _band(chosen: xr.Dataset) -> xr.Dataset:
    """Bound the deviation of a chain's empirical distribution (Dvoretzky, Kiefer, Wolfowitz).

    The level is 1 percent, with Massart's constant. The number of draws is the average of the
    effective sample sizes of single chains, because the joint effective sample size is small when
    chains disagree.
    """
    chains = [chosen.isel(chain=[i]) for i in range(chosen.sizes["chain"])]
    each = [np.minimum(az.ess(c, method="bulk"), az.ess(c, method="tail")) for c in chains]
    return np.sqrt(np.log(2.0 / 0.01) / (2.0 * sum(each) / len(each)))


def _chosen(numbers: Numbers, backend: str) -> xr.Dataset:
    """Return the worst elements that are not constant, each as a variable."""
    frame = worst(numbers, MOST_OF_A_GROUP, MOST)
    names = set(frame.index[frame["sd"] > 0.0])
    found = {}
    for values in numbers.posterior.data_vars.values():
        for index in np.ndindex(values.shape[2:]):
            if (name := element(values, index)) in names:
                found[_title(name, backend)] = (("chain", "draw"), values.values[(..., *index)])
    sampled = {key: numbers.posterior[key].values for key in ("chain", "draw")}
    return xr.Dataset(found, sampled)


def _title(name: str, backend: str) -> str:
    """Return a name that is valid in a DataTree, and that a backend shows as plain text.

    Matplotlib interprets formulas. The figures of bokeh and plotly are scripts in the page, and
    plotly interprets tags.
    """
    name = name.replace("/", "\N{DIVISION SLASH}")
    if backend == "matplotlib":
        return name.replace("$", r"\$")
    name = name.replace("<", "\N{SINGLE LEFT-POINTING ANGLE QUOTATION MARK}")
    return name.replace(">", "\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK}")


def _statistics(numbers: Numbers, backend: str) -> tuple[Any, str] | None:
    """Acceptance and noise of the evidence by draw, smoothed."""
    names = [name for name in BY_DRAW if name in numbers.statistics.index]
    if not names:
        return None
    window = max(numbers.draws // 40, 1)
    smooth = {}
    for name in names:
        values = numbers.stats[name]
        values = values.mean([dim for dim in values.dims if dim not in ("chain", "draw")])
        smooth[name] = values.rolling(draw=window, min_periods=1, center=True).mean()
    plot = az.plot_trace(
        az.convert_to_datatree(xr.Dataset(smooth)),
        backend=backend,
        col_wrap=2,
        figure_kwargs=_figure(backend, -(-len(names) // 2)),
    )
    return plot, (
        f"Sampler statistics, averaged over {window} draws. They should be level, and alike in all "
        "chains. log_evidence_sd is the noise of the estimated evidence."
    )


def _figure(backend: str, rows: int) -> dict[str, Any]:
    if backend == "matplotlib":
        size = {"figsize": (WIDTH, 0.3 + HEIGHT * rows), "layout": "constrained"}
    else:
        size = {"figsize": (96 * WIDTH, 96 * (0.5 + 1.3 * HEIGHT * rows)), "figsize_units": "dots"}
    return {"sharex": False, **size}  # every panel has numbers on its axis


def _png(plot: Any, caption: str) -> str:
    figure = plot.viz["figure"].item()
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=110)
    import_module("matplotlib.pyplot").close(figure)  # else a notebook shows it again
    data = base64.b64encode(file.getvalue()).decode()
    return f'<img alt="{html.escape(caption)}" src="data:image/png;base64,{data}">'


def _bokeh(plot: Any, caption: str) -> str:
    return "".join(import_module("bokeh.embed").components(plot.viz["figure"].item())[::-1])


def _plotly(plot: Any, caption: str) -> str:
    return plot.viz["figure"].item().to_html(full_html=False, include_plotlyjs=False)


def _once(backend: str) -> str:
    """Return the complete scripts of a backend, since a page must not load other files."""
    if backend == "bokeh":
        return import_module("bokeh.resources").INLINE.render()
    if backend == "plotly":
        return f"<script>{import_module('plotly.offline').get_plotlyjs()}</script>"
    return ""


EMBED: dict[str, Callable[[Any, str], str]] = {
    "matplotlib": _png,
    "bokeh": _bokeh,
    "plotly": _plotly,
}
