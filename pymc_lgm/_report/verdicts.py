"""Verdicts on a trace from its numbers: convergence first, then explanations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from pymc_lgm._report.healthy import (
    CHAINS,
    EFFECTIVE,
    EFFECTIVE_OF_A_CHAIN,
    FEW_DRAWS,
    FEW_EFFECTIVE,
    LONG_STAY,
    LONG_STAY_SHARE,
    PARETO_K,
    R_HAT,
    R_HAT_LARGE,
)
from pymc_lgm._report.numbers import Numbers
from pymc_lgm._report.sampler import evidence_level, statistics, tuning
from pymc_lgm._report.verdict import COMPARE, LONGER, ORDER, START, Verdict, good, problem, warning

__all__ = ["verdicts"]


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
            *tuning(numbers),
            *evidence_level(numbers),
            *statistics(numbers, enough),
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
        yield good("chains", f"{chains} chains of {draws} draws.")
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
    worst, high = r_hat.max(), r_hat[r_hat > R_HAT].sort_values(ascending=False)
    if not len(high):
        where = r_hat.idxmax()
        yield good("R-hat", f"At most {worst:.3f} ({where}): the chains agree (limit {R_HAT}).")
        return
    seen = (
        f"{len(high)} of {len(r_hat)} elements above {R_HAT}, at most {worst:.4g}: the chains do "
        f"not agree on {_named(high.index)}."
    )
    if worst > R_HAT_LARGE:
        yield problem(
            "R-hat", seen, f"{LONGER}. Look at the traces: if one chain is elsewhere, {START}."
        )
    else:
        yield warning("R-hat", seen, f"{LONGER}, and draw longer.")


def _effective(numbers: Numbers, disagree: bool) -> Iterator[Verdict]:
    elements = numbers.elements
    ess = elements[["ess_bulk", "ess_tail"]].min(axis=1).drop(numbers.broken).dropna()
    ess = ess.drop(elements.index[elements["variable"].isin(numbers.constant)], errors="ignore")
    if not len(ess):
        return
    needed = max(EFFECTIVE, EFFECTIVE_OF_A_CHAIN * numbers.chains)
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
            "Run lgm.reweight(idata), and report on its result.",
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
