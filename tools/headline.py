"""The three numbers of the first page, from saved results and from what README's example prints.

`tables.py` puts them into README.md and docs/index.md.
"""

from __future__ import annotations

import sys

from collections.abc import Iterable
from pathlib import Path

import readme

sys.path.insert(0, str(Path(__file__).parents[1] / "docs" / "figures"))
import against_stan
import speed

Row = dict[str, str]

FILES = ["beats_nuts", "beats_nuts_numpyro", "beats_nuts_one_thread", "beats_nuts_large", "series"]
LONG = "volatility", "10000"
"""The longest series: its problem and n."""


def table(series: list[Row]) -> str:
    """Return a table of three columns: a number, and below it what it is."""
    panels = speed.panels(speed.ratios())
    ratios = [ratio for row in panels.values() for cell in row.values() for ratio in cell.values()]
    measured = [ratio.times for ratio in ratios if ratio.kind == "measured"]
    page = readme.PAGES[0].read_text(encoding="utf-8")
    shown = readme.numbers(readme.PRINTED.findall(page)[0][1])
    (long,) = (row for row in series if (row["problem"], row["n"]) == LONG)
    cells = {
        f"{min(measured):.0f} to {max(measured):.0f} ×": (
            "the effective draws per second of the best NUTS, in the "
            f"{len(measured)} of {len(ratios)} comparisons in which NUTS converged"
        ),
        f"{shown['cubic_ops', 'theta']:.1f}": (
            "matrix factorizations per draw in the example below; "
            "NUTS needs one, and its derivative, at each of many leapfrog steps"
        ),
        f"{long['s']} s": (
            f"for {long['draws']} draws, {long['ESS']} of them effective, of the volatility "
            f"of {int(long['n']) // 1000}\u202f000 simulated days"
        ),
    }
    lines = [cells.keys(), [":---:"] * len(cells), cells.values()]
    return "\n".join(f"| {' | '.join(texts)} |" for texts in lines)


CONVERGED = 1.05
"""Largest R-hat of chains whose ratio is more than an indication."""

NUTS = ("nutpie", "numpyro", "pymc")

COMPARED = (
    ("sum of terms", "sums", ("model", "eta"), "default"),
    ("time series", "series", ("problem", "n"), "default"),
    ("map of areas", "areas_nuts", ("field", "n"), "default"),
    ("normal noise", "gaussian", ("n",), "exact"),
    ("inducing variables", "sparse", ("problem", "n"), "default"),
)
"""Of the overview: a kind of model, its file, the columns that say which, and our sampler."""
OVERVIEW = [*FILES[:4], *(file for _, file, _, _ in COMPARED)]


def overview(tables: dict[str, list[Row]]) -> str:
    """Return one row for each comparison with NUTS: how fast, against what, on what."""
    lines = [
        "| model | data | n | times the best NUTS |",
        "|---|---|---:|---:|",
    ]
    for d, row in speed.panels(speed.ratios()).items():
        for n, cells in row.items():
            least, *_, most = sorted(cells.values())
            lines.append(
                f"| Gaussian process, {d} length-scales | simulated, {len(cells)} likelihoods "
                f"| {n} | {_times(least)} to {_times(most)} |"
            )
    for kind, file, keys, sampler in COMPARED:
        for ours in (row for row in tables[file] if row["sampler"] == sampler):
            *data, n = key = [ours[name] for name in keys]
            same = [row for row in tables[file] if [row[name] for name in keys] == key]
            if (best := _best_nuts(same)) is None:
                continue
            name = DATA.get((*data, n), *data or ["simulated"]).replace("_", " ")
            lines.append(f"| {kind} | {name} | {n} | {_ratio(ours, best)} |")
    return "\n".join(lines)


def _best_nuts(rows: Iterable[Row]) -> Row | None:
    """The fastest NUTS that has converged, or else that with the smallest R-hat."""
    runs = [row for row in rows if row["sampler"] in NUTS]
    converged = [row for row in runs if _r_hat(row) <= CONVERGED]
    return max(converged, key=_rate_of) if converged else min(runs, key=_r_hat, default=None)


def _r_hat(row: Row) -> float:
    return float(row["R-hat"].rstrip("!"))


def _rate_of(row: Row) -> float:
    """Effective draws per second of all that a run takes, compilation included."""
    seconds = float(row.get("made, s", "0")) + float(row.get("sampled, s") or row["s"])
    return float(row["ESS"]) / seconds


def _ratio(ours: Row, theirs: Row) -> str:
    """How many times the effective draws per second; in parentheses if NUTS has not converged."""
    ratio = _rate_of(ours) / _rate_of(theirs)
    times = f"{ratio:.{0 if ratio > 10 else 1}f}"
    return times if _r_hat(theirs) <= CONVERGED else f"({times})"


GROUPS = ("many_groups", "crossed", "correlated_slopes", "correlated_slopes_errors")
"""Models of `sums` that have groups alone."""


def groups(rows: list[Row]) -> str:
    """Return how many times as fast models of groups are, as the first page says it."""
    ratios = []
    for name in GROUPS:
        of_model = [row for row in rows if row["model"] == name]
        (ours,) = (row for row in of_model if row["sampler"] == "default")
        best = _best_nuts(of_model)
        assert best is not None
        ratios.append(_rate_of(ours) / _rate_of(best))
    return f"[{min(ratios):.1f} to {max(ratios):.1f} times as fast]"


def peers() -> str:
    """Return the rates of the default, nutpie and Stan, a row for each model."""
    lines = [
        "| model | n | default | nutpie | Stan | default is |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for (model, n), cell in against_stan.rates().items():
        cells = [_rate(*cell[name]) if name in cell else "" for name in against_stan.MARKS]
        times = f"{against_stan.rounded(against_stan.times(cell))} ×"
        lines.append(f"| {' | '.join([against_stan.MODELS[model], str(n), *cells, times])} |")
    return "\n".join(lines)


def _rate(rate: float, converged: bool) -> str:
    return f"{rate:.{0 if rate >= 10 else 1}f}{'' if converged else '!'}"


def _times(ratio: speed.Ratio) -> str:
    return f"{'≥ ' * (ratio.kind == 'bound')}{ratio.times:.0f}"


DATA = {
    ("icar", "56"): "lip cancer in Scotland",
    ("icar", "100"): "simulated lattice",
    ("icar", "1921"): "census tracts of New York",
    ("counts", "1000"): "simulated counts",
    ("volatility", "500"): "simulated returns",
    ("space_time_independent", "432"): "space by time, independent",
    ("trend_and_season_errors", "192"): "trend and season, normal errors",
    ("correlated_slopes_errors", "600"): "correlated slopes, normal errors",
    ("coal", "100"): "coal-mining disasters",
}
"""What the keys of a file mean."""
