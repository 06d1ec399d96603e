"""A move on theta: a kernel on a target, and its tuning."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from pymc_lgm.moves.element import Stats
from pymc_lgm.state import State
from pymc_lgm.targets.target import Target

__all__ = ["Move"]


class Move(Protocol):
    """A kernel on a target and its tuning rule."""

    @property
    def stats(self) -> tuple[str, ...]:
        """Names of the statistics that `run` returns."""

    @property
    def needs_gradient(self) -> bool:
        """Whether the target must have a ``gradient``."""

    def start(self, state: State, tune: int) -> Any:
        """Initial tuning, before the first of ``tune`` draws of tuning."""

    def run(
        self, rng: np.random.Generator, target: Target, tuning: Any, tune: bool
    ) -> tuple[State, Any, Stats]:
        """Move from ``target.state``; learn from it if ``tune``."""
