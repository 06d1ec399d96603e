"""The tables of a report, as text that any page can lay out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from pymc_lgm._report.healthy import SHOWN, healthy_ranges
from pymc_lgm._report.numbers import Numbers

__all__ = ["Table", "cost", "tables", "worst"]

MOST_OF_A_GROUP = 5
"""Largest number of elements of a group in the table of elements, those that mix worst."""

MOST = 15
"""Largest number of elements in that table, of all groups together."""

NAME = 28
"""Letters of a name in a terminal, such that the tables have fewer than 100 columns."""


@dataclass(frozen=True)
class Table:
    """A title, a note, the names of columns, and rows of cells; the first cell names the row."""

    title: str
    note: str
    columns: list[str]
    rows: list[list[str]]


def tables(numbers: Numbers) -> list[Table]:
    """Return the tables that are not empty."""
    found = [_groups(numbers), _elements(numbers), _statistics(numbers)]
    return [table for table in found if table.rows]


def worst(numbers: Numbers, of_a_group: int, most: int) -> pd.DataFrame:
    """Return the elements with the fewest effective draws per group, in the order of the trace."""
    elements = numbers.elements.reset_index()
    least = elements[["ess_bulk", "ess_tail"]].min(axis=1)
    single = {name for row, names in numbers.rows.items() if row != "all" for name in names}
    chosen = {
        i
        for row, names in numbers.rows.items()
        if row != "all" or not single.issuperset(names)
        for i in least[elements["variable"].isin(names)].nsmallest(of_a_group, keep="first").index
    }
    kept = least[sorted(chosen)].nsmallest(most, keep="first").index
    return elements.loc[sorted(kept)].set_index("element")


def cost(numbers: Numbers) -> str:
    """Summarize in one line the draws and their cost."""
    chains, draws = numbers.chains, numbers.draws
    line = f"{chains} chain{'s' * (chains > 1)} of {draws} draw{'s' * (draws > 1)}"
    if (tuning := numbers.attrs.get("tuning_steps")) is not None:
        line += f" after {tuning} of tuning"
    if np.isfinite(numbers.seconds):
        line += f", {numbers.seconds:.3g} s in all"
    if np.isfinite(numbers.ops):
        line += f", {numbers.ops:,.0f} O(n³) operations after tuning"
    return f"{line}."


def _groups(numbers: Numbers) -> Table:
    formats = {
        "elements": "{:d}",
        "ess_bulk": "{:.0f}",
        "ess_tail": "{:.0f}",
        "r_hat": "{:.3f}",
        "mcse_per_sd": "{:.3f}",
        "ess_per_1000_ops": "{:.1f}",
        "ess_per_second": "{:.1f}",
    }
    return _table(
        "Groups",
        "The worst element of each: least ESS, greatest R-hat, greatest Monte Carlo error of a "
        "mean, in standard deviations.",
        "group",
        numbers.groups,
        formats,
    )


def _elements(numbers: Numbers) -> Table:
    formats = {
        "mean": "{:.3g}",
        "sd": "{:.3g}",
        "mcse_mean": "{:.2g}",
        "ess_bulk": "{:.0f}",
        "ess_tail": "{:.0f}",
        "r_hat": "{:.3f}",
    }
    note = f"Up to {MOST_OF_A_GROUP} per group, those with the fewest effective draws."
    return _table("Elements", note, "element", worst(numbers, MOST_OF_A_GROUP, MOST), formats)


def _statistics(numbers: Numbers) -> Table:
    frame = numbers.statistics.reindex([n for n in SHOWN if n in numbers.statistics.index])
    ranges = healthy_ranges(numbers.names)
    frame = frame.assign(healthy=[str(ranges.get(name, "")) for name in frame.index])
    formats = dict.fromkeys(["mean", "lowest", "highest"], "{:.3g}") | {"healthy": "{}"}
    note = "Means over draws: of all chains, of the lowest chain and of the highest chain."
    return _table("Sampler statistics", note, "statistic", frame, formats)


def _table(
    title: str, note: str, first: str, frame: pd.DataFrame, formats: dict[str, str]
) -> Table:
    """Format a frame; a column without a number is omitted."""
    shown = {name: form for name, form in formats.items() if frame[name].notna().any()}
    rows = []
    for name, row in zip(frame.index, frame.to_dict("records"), strict=True):
        cells = [_cell(form.format, row[column]) for column, form in shown.items()]
        rows.append([str(name), *cells])
    return Table(title, note, [first, *shown], rows)


def _cell(form: Callable[[Any], str], value: Any) -> str:
    return "-" if isinstance(value, float) and np.isnan(value) else form(value)
