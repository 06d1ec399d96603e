"""The verdicts of a report, and their summary."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

__all__ = [
    "COMPARE",
    "LONGER",
    "NOTHING",
    "ORDER",
    "START",
    "Level",
    "Verdict",
    "good",
    "headline",
    "problem",
    "warning",
]

Level = Literal["good", "warning", "problem"]
ORDER = ("problem", "warning", "good")
NOTHING = "Nothing to do."
LONGER = "Tune longer, pm.sample(tune={tune})"
"""``{tune}`` is replaced by twice the number of tuning draws of the trace."""
COMPARE = "lgm.compare_samplers([lgm.PseudoMarginal, lgm.ASIS])"
START = "start from pm.sample(initvals=lgm.laplace().fit().point)"


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
