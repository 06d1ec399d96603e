"""Verdicts on a trace from its numbers: convergence first, then explanations."""

from __future__ import annotations

import math

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import arviz as az
import numpy as np
import pandas as pd

from scipy.stats import chi2

from pymc_lgm._report.healthy import (
    CHAINS,
    CHANCE,
    EFFECTIVE,
    EFFECTIVE_OF_A_CHAIN,
    FEW_DRAWS,
    FEW_EFFECTIVE,
    LONG_STAY,
    LONG_STAY_SHARE,
    MANY,
    PARETO_K,
    R_HAT,
    R_HAT_LARGE,
    STILL,
    Healthy,
    healthy_ranges,
)
from pymc_lgm._report.numbers import Numbers

__all__ = ["NOTHING", "Verdict", "headline", "verdicts"]

Level = Literal["good", "warning", "problem"]
ORDER = ("problem", "warning", "good")
NOTHING = "Nothing to do."
LONGER = "Tune longer, pm.sample(tune={tune})"
"""``{tune}`` is replaced by twice the number of tuning draws of the trace."""
COMPARE = "lgm.compare_samplers([lgm.PseudoMarginal, lgm.ASIS])"
START = "start from pm.sample(initvals=lgm.laplace().fit().point)"

TAKING_TURNS = 2
"""Most values of a scale within a chain after tuning: one of each of two moves that alternate."""

MOVED = {"theta_acceptance": "theta", "latent_acceptance": "f"}
"""The variables that a statistic is about, for messages."""


@dataclass(frozen=True)
class Verdict:
    """One finding of a report.

    Attributes
    ----------
    level : {"good", "warning", "problem"}
        "problem": do not use the draws. "warning": the draws may be right, so check.
        "good": no action is needed.
    subject : str
        Subject: "R-hat", "effective draws", the name of a statistic or a variable.
    sentence : str
        The finding.
    advice : str
        The recommended action.
    """

    level: Level
    subject: str
    sentence: str
    advice: str = NOTHING


good = partial(Verdict, "good")
warning = partial(Verdict, "warning")
problem = partial(Verdict, "problem")


def headline(found: list[Verdict]) -> str:
    """Summarize in one line whether the draws can be trusted."""
    count = {level: sum(v.level == level for v in found) for level in ORDER}
    counted = " and ".join(
        f"{n} {level}{'s' * (n > 1)}" for level, n in count.items() if n and level != "good"
    )
    if count["problem"]:
        return f"Do not use these draws yet: {counted}."
    return f"Use these draws with care: {counted}." if counted else f"Trust these draws. {NOTHING}"


def verdicts(numbers: Numbers) -> list[Verdict]:
    """Return all verdicts on a trace, the worst first."""
    found = [*_size(numbers), *_finite(numbers), *_exactness(numbers)]
    if numbers.draws >= FEW_DRAWS:
        agree = list(_r_hat(numbers))
        trust = [*agree, *_effective(numbers, any(v.level == "problem" for v in agree))]
        enough = bool(trust) and all(verdict.level == "good" for verdict in trust)
        found += [
            *trust,
            *_stays(numbers),
            *_tuning(numbers),
            *_evidence_level(numbers),
            *_statistics(numbers, enough),
        ]
    longer = _longer(numbers.attrs.get("tuning_steps"))
    found = [replace(each, advice=each.advice.replace("{tune}", longer)) for each in found]
    return sorted(found, key=lambda verdict: ORDER.index(verdict.level))


def _longer(tuned: Any) -> str:
    """Twice the number of tuning draws, or twice PyMC's default of 1000 if it is not known."""
    known = isinstance(tuned, int | np.integer) and tuned > 0
    return str(2 * int(tuned) if known else 2000)


def _size(numbers: Numbers) -> Iterator[Verdict]:
    chains, draws = numbers.chains, numbers.draws
    more = f"Sample {CHAINS} chains, pm.sample(chains={CHAINS})."
    if chains == 1:
        yield warning(
            "chains", "One chain: R-hat needs several chains to detect disagreement.", more
        )
    elif chains < CHAINS:
        yield warning(
            "chains", f"{chains} chains: {CHAINS} detect disagreement more reliably.", more
        )
    else:
        yield good("chains", f"{chains} chains of {draws} draw{'s' * (draws > 1)}.")
    if draws < FEW_DRAWS:
        yield problem(
            "draws",
            f"{draws} draw{'s' * (draws > 1)} per chain: too few to judge whether they can be "
            "trusted.",
            "Draw longer, pm.sample(draws=1000).",
        )


def _finite(numbers: Numbers) -> Iterator[Verdict]:
    if broken := numbers.broken:
        yield warning(
            "not finite",
            f"Some draws are NaN or infinite and are excluded: {_named(broken)}.",
            "Check the formula of a deterministic, or the prior of a parameter.",
        )


def _r_hat(numbers: Numbers) -> Iterator[Verdict]:
    r_hat = numbers.elements["r_hat"].dropna()
    if not len(r_hat):
        return
    worst, where = r_hat.max(), r_hat.idxmax()
    above = r_hat[r_hat > R_HAT]
    if not len(above):
        yield good("R-hat", f"At most {worst:.3f} ({where}): the chains agree (limit {R_HAT}).")
        return
    high = above[above > _by_chance(numbers)[above.index]].sort_values(ascending=False)
    if not len(high):
        yield good(
            "R-hat",
            f"At most {worst:.3f} ({where}): the chains agree. {len(above)} of {len(r_hat)} "
            f"elements {'is' if len(above) == 1 else 'are'} above {R_HAT}, as chance makes the "
            "largest of so many.",
        )
        return
    worst = high.iloc[0]
    bound = math.ceil(1000.0 * worst) / 1000.0  # "above 1.01, at most 1.01" would be odd
    seen = (
        f"{len(high)} of {len(r_hat)} elements above {R_HAT}, at most {bound:.4g}: the chains do "
        f"not agree on {_named(high.index)}."
    )
    if worst > R_HAT_LARGE:
        yield problem(
            "R-hat", seen, f"{LONGER}. Look at the traces: if one chain is elsewhere, {START}."
        )
    else:
        yield warning("R-hat", seen, f"{LONGER}, and draw longer.")


def _by_chance(numbers: Numbers) -> pd.Series:
    """R-hat of each element that may be chance, if the chains agree and there are enough draws.

    Let M chains have E effective draws each. If they agree, the variance of their means, as a
    multiple of that of the draws, is χ² / ((M − 1) E) with M − 1 degrees of freedom, and R-hat² is
    about 1 plus that (Gelman, Carlin, Stern, Dunson, Vehtari and Rubin 2013, *Bayesian Data
    Analysis*, section 11.4). ArviZ splits each chain in two, and takes the larger R-hat of draws
    and of their distances from the median. So n elements have 2n of them, and the largest is above
    that of the χ² with the probability `CHANCE` / 2n in at most the share `CHANCE` of all traces.

    Variables with few elements keep the limit `R_HAT`.
    """
    elements = numbers.elements
    M = 2 * numbers.chains
    chi_squared = chi2.isf(CHANCE / (2.0 * len(elements)), M - 1)
    ess = elements[["ess_bulk", "ess_tail"]].min(axis=1)
    size = elements.groupby("variable")["variable"].transform("size")
    is_lenient = (ess >= _needed(numbers)) & (size >= MANY)
    return np.sqrt(1.0 + chi_squared / (M - 1) * M / ess).where(is_lenient, R_HAT)


def _needed(numbers: Numbers) -> int:
    """How many effective draws are enough."""
    return max(EFFECTIVE, EFFECTIVE_OF_A_CHAIN * numbers.chains)


def _effective(numbers: Numbers, disagree: bool) -> Iterator[Verdict]:
    elements = numbers.elements
    ess = elements[["ess_bulk", "ess_tail"]].min(axis=1).drop(numbers.broken).dropna()
    ess = ess.drop(elements.index[elements["variable"].isin(numbers.constant)], errors="ignore")
    if not len(ess):
        return
    needed = _needed(numbers)
    least, low = ess.min(), ess[ess < needed].sort_values()
    total = numbers.chains * numbers.draws
    if not len(low):
        where = ess.idxmin()
        yield good(
            "effective draws",
            f"At least {least:.0f} of {total} ({where}), {needed} are enough.",
        )
        return
    seen = (
        f"{len(low)} of {len(ess)} elements below {needed}, as few as {least:.0f} of {total}: too "
        f"few for {_named(low.index)}."
    )
    wanted = 100 * np.ceil(1.2 * numbers.draws * needed / least / 100)
    if disagree:  # then ESS measures how far apart the chains are, not how long they must be
        advice = "First make the chains agree: see R-hat."
    elif total < needed:  # even independent draws would be too few
        per_chain = int(np.ceil(needed / numbers.chains))
        advice = f"Draw longer: more than {per_chain} per chain, as PyMC's default pm.sample(1000)."
    elif least < FEW_EFFECTIVE:  # too few to estimate how many draws are enough
        advice = f"{LONGER}, or measure other samplers, {COMPARE}."
    else:
        advice = f"Draw longer: by these numbers pm.sample(draws={wanted:.0f}) is enough."
    level = problem if least < FEW_EFFECTIVE else warning
    yield level("effective draws", seen, advice)


def _stays(numbers: Numbers) -> Iterator[Verdict]:
    if constant := numbers.constant:
        level = warning if numbers.stays else problem
        yield level(
            "constant",
            f"One value in all draws of all chains: {_named(constant)}.",
            "This is right for a constant. Otherwise the sampler is stuck: look at its "
            "acceptance below.",
        )
    if not numbers.stays:
        return
    name, (stay, chain) = max(numbers.stays.items(), key=lambda item: item[1][0])
    seen = f"{name} stays at one value for {stay} of {numbers.draws} draws in chain {chain}."
    advice = f"{LONGER}, or write lgm.ASIS()."
    if "log_evidence" in numbers.names:
        advice = f"Look at log_evidence_sd and pareto_k. {advice}"
    if stay >= max(LONG_STAY / 2, LONG_STAY_SHARE * numbers.draws):
        yield problem("longest stay", seen, advice)
    elif stay >= LONG_STAY:
        yield warning("longest stay", seen, advice)
    else:
        yield good(
            "longest stay",
            f"No chain is stuck: {stay} of {numbers.draws} draws in a row at one value, at most "
            f"({name}, chain {chain}).",
        )


def _exactness(numbers: Numbers) -> Iterator[Verdict]:
    if "optimal_variational" in numbers.stats:
        yield good(
            "inducing variables",
            "Draws are of the optimal variational posterior, not of p(f, theta | y). With more "
            "inducing points the two are closer.",
        )
    if "approximate_step_size" in numbers.stats:
        yield warning(
            "approximate",
            "These are draws of Langevin dynamics that accept every step, not of the exact "
            "posterior.",
            "Sample the posterior itself, lgm.ExactMarginal(), or try a smaller step_size.",
        )
    if "approximate_log_evidence" not in numbers.stats:
        return
    ess, pareto_k = (numbers.attrs.get(name) for name in ("importance_ess", "pareto_k"))
    if ess is None:
        yield warning(
            "approximate",
            "These are draws on an approximate evidence, not of the exact posterior.",
            "Run lgm.reweight(idata), and report on its result."
            if "log_evidence" in numbers.stats
            else "Sample the posterior itself, lgm.PseudoMarginal(): another step moved variables, "
            "so no weights make these draws exact.",
        )
        return
    direct = 'Sample the posterior itself, lgm.PseudoMarginal(), or write approximation="ep".'
    if pareto_k is not None and pareto_k > PARETO_K:
        yield problem(
            "corrected",
            f"Pareto-k of the weights is {pareto_k:.2f}, above {PARETO_K}: the approximation "
            "misses a part of the posterior.",
            direct,
        )
    elif ess < EFFECTIVE:
        yield warning(
            "corrected", f"The weights leave {ess:.0f} effective draws, below {EFFECTIVE}.", direct
        )
    else:
        yield good("corrected", f"Made exact by weights with {ess:.0f} effective draws.")


def _named(names: Any, most: int = 3) -> str:
    """List the first names."""
    listed = [str(name) for name in names]
    more = len(listed) - most
    return ", ".join(listed[:most]) + (f" and {more} more" if more > 0 else "")


# Sampler statistics: why draws are poor, or which problems R-hat may miss


def _tuning(numbers: Numbers) -> Iterator[Verdict]:
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


def _evidence_level(numbers: Numbers) -> Iterator[Verdict]:
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


def _statistics(numbers: Numbers, enough: bool) -> Iterator[Verdict]:
    """Compare each statistic with the first range that applies to it."""
    ranges = healthy_ranges(numbers.names)
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
