"""The phases of a chain, and when each ends.

    EXPLORE  ->  EXACT  ->  FROZEN
                   |           ^
                   +->  REST --+

A chain explores in the first three quarters of tuning: theta moves on an evidence without noise, so
the chain cannot stick. The rest of tuning is on the target that is sampled afterwards, so that the
chain reaches it and the moves adapt to its noise. The share is a choice: a longer exploration fits
the sites better. Nothing is tuned after tuning ends.

Exploration stops early if the move on theta has converged. Half of the usual exact draws of tuning
follow, and the chain rests until tuning ends.
"""

from __future__ import annotations

import math

from enum import Enum
from typing import NamedTuple

__all__ = ["Phase", "Schedule"]


class Phase(Enum):
    """The purpose of a draw."""

    EXPLORE = "explore"
    """Tune on the approximate evidence."""
    EXACT = "exact"
    """Tune on the target that is sampled after tuning."""
    REST = "rest"
    """Repeat the state: tuning has nothing left to learn."""
    FROZEN = "frozen"
    """Sample. Nothing is tuned."""


class Schedule(NamedTuple):
    """Where a chain is in its phases.

    Attributes
    ----------
    exploring : int
        Number of draws of exploration.
    explored : int
        How many of them have been made.
    left : int or None
        Exact draws that still tune after exploration has stopped early; ``None`` if it has not.
    """

    exploring: int
    explored: int = 0
    left: int | None = None

    @classmethod
    def start(cls, tune: int) -> Schedule:
        """Begin ``tune`` draws of tuning."""
        return cls(3 * tune // 4)

    def phase(self, tune: bool) -> Phase:
        """The phase of the next draw."""
        if not tune:
            return Phase.FROZEN
        if self.explored < self.exploring:
            return Phase.EXPLORE
        return Phase.REST if self.left == 0 else Phase.EXACT

    def after(self, phase: Phase, *, converged: bool = False) -> Schedule:
        """Count a draw; stop exploring at a renewal if the move on theta has ``converged``."""
        if phase is Phase.EXACT and self.left is not None:
            return self._replace(left=self.left - 1)
        if phase is not Phase.EXPLORE:
            return self
        counted = self._replace(explored=self.explored + 1)
        if converged and counted.is_renewal and not counted.is_explored:
            return Schedule(counted.explored, counted.explored, math.ceil(self.exploring / 6))
        return counted

    @property
    def is_renewal(self) -> bool:
        """Whether fits are due after the last draw of exploration: draws 5, 10, 20, 40, ..."""
        return self.explored > 0 and self.next_renewal == 2 * self.explored

    @property
    def next_renewal(self) -> int:
        """The draw of exploration after which fits are due next."""
        return 5 << (self.explored // 5).bit_length()

    def is_last_fit(self, fewest: int) -> bool:
        """Whether exploration may end before fits are renewed, early from draw ``fewest`` on."""
        return self.is_explored or self.next_renewal >= min(fewest, self.exploring)

    @property
    def is_explored(self) -> bool:
        """Whether the last draw of exploration has been made."""
        return self.explored >= self.exploring
