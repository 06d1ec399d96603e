"""How a list of elements is run on one state."""

from __future__ import annotations

import math

from collections.abc import Sequence
from typing import Any

import numpy as np

from pymc_lgm.linalg import tally
from pymc_lgm.moves.element import Element, Stats
from pymc_lgm.state import State

__all__ = ["averaged", "run", "statistics"]


def statistics(elements: Sequence[Element]) -> dict[str, type]:
    """Names and types of what `run` reports for these elements."""
    types: dict[str, type] = {name: float for element in elements for name in element.stats}
    return types | {"cubic_ops": int, "numerical_rejections": int}


def run(
    rng: np.random.Generator,
    state: State,
    elements: Sequence[Element],
    tunings: Sequence[Any],
    tune: bool,
) -> tuple[State, list[Any], dict[str, float]]:
    """Leave p(theta, f | y) invariant by running the elements in order.

    Returns
    -------
    state : State
    tunings : list
        One per element; changed only if ``tune``.
    stats : dict
        The values named by `statistics`. If several elements report the same name, their mean.
    """
    ops, lost = tally.cubic_ops, tally.numerical_rejections
    learnt = []
    reports = []
    # An overflow before a rejection is counted with the rejection and needs no warning per draw.
    with np.errstate(over="ignore", invalid="ignore"):
        for element, tuning in zip(elements, tunings, strict=True):
            state, tuning, stats = element.run(rng, state, tuning, tune)
            learnt.append(tuning)
            reports.append(stats)
    summary = averaged(reports)
    summary["cubic_ops"] = tally.cubic_ops - ops
    summary["numerical_rejections"] = tally.numerical_rejections - lost
    return state, learnt, summary


def averaged(reports: Sequence[Stats]) -> Stats:
    """Mean of each statistic over the reports in which it is not NaN; NaN if there are none.

    ``theta_scale`` is the last: two moves that take turns have two scales, but means of several
    scales would differ from draw to draw, as they do in tuning.
    """
    if len(reports) == 1:
        return dict(reports[0])
    names = dict.fromkeys(name for report in reports for name in report)
    values = ((name, [report.get(name, math.nan) for report in reports]) for name in names)
    known = {name: [x for x in of_name if not math.isnan(x)] for name, of_name in values}
    means = {name: sum(x) / len(x) if x else math.nan for name, x in known.items()}
    return means | {name: known[name][-1] for name in ("theta_scale",) if known.get(name)}
