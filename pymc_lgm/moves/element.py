"""An element of a sweep: a kernel and its tuning."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from pymc_lgm.state import State

__all__ = ["Element", "Stats"]

Stats = dict[str, float]


class Element(Protocol):
    """One kernel of a sweep and its tuning rule.

    The tuning is data that the step method owns. With ``tune=False`` it is returned unchanged.
    """

    @property
    def stats(self) -> tuple[str, ...]:
        """Names of the statistics that `run` returns."""

    def start(self, state: State, tune: int) -> Any:
        """Initial tuning, before the first of ``tune`` draws of tuning."""

    def run(
        self, rng: np.random.Generator, state: State, tuning: Any, tune: bool
    ) -> tuple[State, Any, Stats]:
        """Move the state; learn from it if ``tune``."""
