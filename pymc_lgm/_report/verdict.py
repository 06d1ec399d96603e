"""One thing that a report says, and what all of them together come to."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

__all__ = [
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
"""``{tune}`` stands for twice the tuning that there was."""
START = "start from pm.sample(initvals=lgm.laplace().fit().point)"


@dataclass(frozen=True)
class Verdict:
    """One thing that a report says.

    Attributes
    ----------
    level : {"good", "warning", "problem"}
        "problem": do not use the draws. "warning": they may be right, look. "good": go on.
    subject : str
        What it is about: "R-hat", "effective draws", the name of a statistic or a variable.
    sentence : str
        What was seen.
    advice : str
        What to do next.
    """

    level: Level
    subject: str
    sentence: str
    advice: str = NOTHING


good = partial(Verdict, "good")
warning = partial(Verdict, "warning")
problem = partial(Verdict, "problem")


def headline(found: list[Verdict]) -> str:
    """Say in one line whether the draws can be trusted."""
    count = {level: sum(v.level == level for v in found) for level in ORDER}
    counted = " and ".join(
        f"{n} {level}{'s' * (n > 1)}" for level, n in count.items() if n and level != "good"
    )
    if count["problem"]:
        return f"Do not use these draws yet: {counted}."
    return f"Use these draws with care: {counted}." if counted else f"Trust these draws. {NOTHING}"
