"""The element that moves theta with something about f held fixed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_lgm.moves.element import Stats
from pymc_lgm.moves.theta import THETA_MOVES, Move
from pymc_lgm.state import State
from pymc_lgm.targets import DIFFERENTIABLE, PARAMETERIZATIONS
from pymc_lgm.targets.target import Nowhere

__all__ = ["Theta"]


@dataclass(frozen=True)
class Theta:
    """One move on theta in one parameterization."""

    parameterization: str
    move: Move

    def __post_init__(self) -> None:
        """Raise if the move needs a gradient and the target has none."""
        if self.move.needs_gradient and self.parameterization not in DIFFERENTIABLE:
            name = next(n for n, move in THETA_MOVES.items() if isinstance(self.move, move))
            raise ValueError(
                f"move={name!r} needs a gradient in theta, which parameterization="
                f"{self.parameterization!r} does not have. Choose from "
                f"{', '.join(map(repr, sorted(DIFFERENTIABLE)))}, or write move='metropolis' or "
                "move='slice'."
            )

    @property
    def stats(self) -> tuple[str, ...]:
        """Statistics of the move."""
        return self.move.stats

    def has_target(self, state: State) -> bool:
        """Whether theta can move from a state: not if its target needs a q that is not found."""
        target = PARAMETERIZATIONS[self.parameterization](np.random.default_rng(0), state)
        return not isinstance(target, Nowhere)

    def start(self, state: State, tune: int) -> Any:
        """Begin as the move does."""
        return self.move.start(state, tune)

    def run(
        self, rng: np.random.Generator, state: State, tuning: Any, tune: bool
    ) -> tuple[State, Any, Stats]:
        """Fix the parameterization's variable at its current value, and move theta."""
        target = PARAMETERIZATIONS[self.parameterization](rng, state)
        return self.move.run(rng, target, tuning, tune)
