"""How theta moves in a target: one file each, the kernel first and below it what tuning learns.

``move(rng, target) -> (state, info)`` leaves the target invariant. A rejected move returns the
target's state.
"""

from __future__ import annotations

from typing import Any

from pymc_lgm.moves.theta.emulated import Emulated as Emulated
from pymc_lgm.moves.theta.hmc import ThetaHMC as ThetaHMC
from pymc_lgm.moves.theta.metropolis import Metropolis as Metropolis
from pymc_lgm.moves.theta.move import Move as Move
from pymc_lgm.moves.theta.nuts import NUTS as NUTS
from pymc_lgm.moves.theta.slice import Slice as Slice

__all__ = [
    "NUTS",
    "THETA_MOVES",
    "Emulated",
    "Metropolis",
    "Move",
    "Slice",
    "ThetaHMC",
]

THETA_MOVES: dict[str, type[Any]] = {
    "metropolis": Metropolis,
    "slice": Slice,
    "hmc": ThetaHMC,
}
"""Moves on theta by their name in ``move=``; ``tunes`` is the option that ``scale=`` sets.

Importing `pymc_lgm.papers` adds more.
"""
