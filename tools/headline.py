"""The three numbers of the first page, from saved results and from what README's example prints.

`tables.py` puts them into README.md and docs/index.md.
"""

from __future__ import annotations

import sys

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

COMPARED = (
    ("sum of terms", "sums", ("model", "eta"), ("default", "nutpie")),
    ("time series", "series", ("problem", "n"), ("default", "nutpie")),
    ("map of areas", "areas_nuts", ("field", "n"), ("default", "nutpie")),
    ("normal noise", "gaussian", ("n",), ("exact", "pymc")),
    ("inducing variables", "sparse", ("problem", "n"), ("default", "nutpie")),
)
"""Of the overview: a kind of model, its file, the columns that say which, and the two samplers."""
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
    for kind, file, keys, (ours, theirs) in COMPARED:
        rows = {(row["sampler"], *(row[key] for key in keys)): row for row in tables[file]}
        for (sampler, *key), row in rows.items():
            if sampler == ours and (theirs, *key) in rows:
                *data, n = key
                name = DATA.get((*data, n), *data or ["simulated"])
                times = _ratio(row, rows[theirs, *key])
                lines.append(f"| {kind} | {name.replace('_', ' ')} | {n} | {times} |")
    return "\n".join(lines)


def _ratio(ours: Row, theirs: Row) -> str:
    """How many times the effective draws per second; in parentheses if NUTS has not converged."""
    rates = [float(row["ESS"]) / float(row.get("sampled, s") or row["s"]) for row in (ours, theirs)]
    times = f"{rates[0] / rates[1]:.{0 if rates[0] > 10 * rates[1] else 1}f}"
    return times if float(theirs["R-hat"].rstrip("!")) <= CONVERGED else f"({times})"


GROUPS = ("many_groups", "crossed", "correlated_slopes", "correlated_slopes_errors")
"""Models of `sums` that have groups alone."""


def groups(rows: list[Row]) -> str:
    """Return how many times as fast models of groups are, as the first page says it."""
    of = {(row["model"], row["sampler"]): row for row in rows}
    pairs = ((of[name, "default"], of[name, "nutpie"]) for name in GROUPS)
    ratios = [float(_ratio(*pair)) for pair in pairs]
    return f"[{min(ratios):.0f} to {max(ratios):.0f} times as fast]"


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
