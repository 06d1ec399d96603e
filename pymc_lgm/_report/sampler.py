"""Verdicts on sampler statistics: why draws are poor, or which problems R-hat may miss."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import arviz as az
import numpy as np

from pymc_lgm._report.healthy import HEALTHY, R_HAT, STILL, Healthy
from pymc_lgm._report.numbers import Numbers
from pymc_lgm._report.verdict import LONGER, START, Verdict, good, problem, warning

__all__ = ["evidence_level", "statistics", "tuning"]

TAKING_TURNS = 2
"""Most values of a scale within a chain after tuning: one of each of two moves that alternate."""

MOVED = {"theta_acceptance": "theta", "latent_acceptance": "f"}
"""The variables that a statistic is about, for messages."""


def tuning(numbers: Numbers) -> Iterator[Verdict]:
    """Detect draws from tuning by a scale that changes within a chain."""
    for name in ("theta_scale", "theta_step_size"):
        if name not in numbers.statistics.index:
            continue
        values = numbers.stats[name].transpose("chain", "draw", ...).values
        # With several steps each has its own scales.
        each = np.moveaxis(values.reshape(*values.shape[:2], -1), 1, -1).reshape(-1, numbers.draws)
        first = _first_after_tuning(each)
        if first > 0:
            yield warning(
                name,
                "It changes within a chain, so some of these draws are from tuning.",
                "It changes until the last draws. Sample again with tune=1000 and more draws."
                if first >= numbers.draws - 1
                else f"Leave them out: idata.isel(draw=slice({first}, None)).",
            )


def _first_after_tuning(each: np.ndarray) -> int:
    """The first draw from which on every scale (row) has at most `TAKING_TURNS` values."""
    first = 0
    for scales in each:
        known = np.flatnonzero(~np.isnan(scales))
        seen: set[float] = set()
        for i in known[::-1]:
            seen.add(float(scales[i]))
            if len(seen) > TAKING_TURNS:
                first = max(first, int(i) + 1)
                break
    return first


def evidence_level(numbers: Numbers) -> Iterator[Verdict]:
    """Check by R-hat whether log p̃(y | theta) drifts."""
    if "log_evidence" not in numbers.statistics.index:
        return
    level = numbers.stats["log_evidence"].transpose("chain", "draw", ...)
    if level.ndim == 2 and numbers.chains > 1 and np.isfinite(level).all():
        with np.errstate(divide="ignore", invalid="ignore"):
            r_hat = float(az.rhat(level.values))
        if r_hat > R_HAT:
            yield warning(
                "log_evidence",
                f"It drifts, or differs between chains: R-hat {r_hat:.4g} (limit {R_HAT}).",
                f"{LONGER}, and draw longer.",
            )


def statistics(numbers: Numbers, enough: bool) -> Iterator[Verdict]:
    """Compare each statistic with the first range that applies to it."""
    ranges: dict[str, Healthy] = {}
    for healthy in HEALTHY:
        if healthy.applies(numbers.names):
            ranges.setdefault(healthy.statistic, healthy)
    judged = {name: _held_against(healthy, numbers, enough) for name, healthy in ranges.items()}
    yield from (verdict for verdict in judged.values() if verdict)
    if fine := [name for name, verdict in judged.items() if not verdict]:
        yield good("sampler statistics", f"In their healthy ranges: {', '.join(fine)}.")


def _held_against(healthy: Healthy, numbers: Numbers, enough: bool) -> Verdict | None:
    """Judge a statistic; ``None`` if it is in its range."""
    row: Any = numbers.statistics.loc[healthy.statistic]
    if healthy.statistic in MOVED and row["lowest"] < STILL:
        return problem(
            healthy.statistic,
            f"{_short(row['lowest'])} in a chain: {MOVED[healthy.statistic]} does not move there.",
            f"{LONGER}, and {START}. With many numerical_rejections raise the jitter.",
        )
    unit = numbers.theta_size if healthy.per_parameter else 1
    if row["lowest"] < healthy.low:
        advice = healthy.below
    elif row["mean"] > healthy.high * unit:
        advice = healthy.above
    else:
        return None
    seen = f"{_short(row['mean'])} on average"
    if _short(row["lowest"]) != _short(row["highest"]):
        seen += f" ({_short(row['lowest'])} to {_short(row['highest'])} by chain)"
    seen += f", healthy is {healthy}."
    if healthy.always or not enough:
        return warning(healthy.statistic, seen, advice)
    return good(healthy.statistic, f"{seen} Harmless here: R-hat and ESS are good.")


def _short(value: float) -> str:
    return f"{value:.2g}" if abs(value) < 100 else f"{value:.0f}"
