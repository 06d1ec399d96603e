"""Moves of f given theta, one file each: first the kernel, then its tuning.

``kernel(rng, state) -> (state, info)`` leaves p(f | y, theta) invariant. Each costs
O(n²), once what depends on theta alone has been computed.
"""

from __future__ import annotations

from collections.abc import Callable

from pymc_lgm.moves.latent.adaptive_hmc import AdaptiveHMC as AdaptiveHMC
from pymc_lgm.moves.latent.auxiliary_gradient import AuxiliaryGradient as AuxiliaryGradient
from pymc_lgm.moves.latent.curvature_hmc import CurvatureHMC as CurvatureHMC
from pymc_lgm.moves.latent.elliptical_slice import EllipticalSlice as EllipticalSlice
from pymc_lgm.moves.latent.hmc import HMC as HMC
from pymc_lgm.moves.latent.stepping import LatentMove as LatentMove

__all__ = [
    "HMC",
    "LATENT_MOVES",
    "AdaptiveHMC",
    "AuxiliaryGradient",
    "CurvatureHMC",
    "EllipticalSlice",
    "LatentMove",
]

LATENT_MOVES: dict[str, Callable[..., LatentMove]] = {
    "hmc": HMC,
    "slice": EllipticalSlice,
    "hmc-curvature": CurvatureHMC,
    "mgrad": AuxiliaryGradient,
}
"""Latent moves by their name in ``latent_move=``. Importing `pymc_lgm.papers` adds more."""
