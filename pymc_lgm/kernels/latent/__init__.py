"""Moves of f given theta, one file each: first the kernel, then its tuning.

``kernel(rng, state) -> (state, info)`` leaves p(f | y, theta) invariant. All but `smmala` and
`position_hmc` cost O(n²), once what depends on theta alone has been computed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from pymc_lgm.approximations.homogeneous import class_frequency
from pymc_lgm.kernels.latent.adaptive_hmc import AdaptiveHMC as AdaptiveHMC
from pymc_lgm.kernels.latent.auxiliary_gradient import AuxiliaryGradient as AuxiliaryGradient
from pymc_lgm.kernels.latent.curvature_hmc import CurvatureHMC as CurvatureHMC
from pymc_lgm.kernels.latent.elliptical_slice import EllipticalSlice as EllipticalSlice
from pymc_lgm.kernels.latent.hmc import HMC as HMC
from pymc_lgm.kernels.latent.metropolis import NealMetropolis as NealMetropolis
from pymc_lgm.kernels.latent.position_hmc import PositionHMC as PositionHMC
from pymc_lgm.kernels.latent.smmala import SMMALA as SMMALA
from pymc_lgm.kernels.latent.stepping import LatentMove as LatentMove

__all__ = [
    "HMC",
    "LATENT_MOVES",
    "SMMALA",
    "AdaptiveHMC",
    "AuxiliaryGradient",
    "CurvatureHMC",
    "EllipticalSlice",
    "LatentMove",
    "NealMetropolis",
    "PositionHMC",
]

LATENT_MOVES: dict[str, Callable[..., LatentMove]] = {
    "hmc": HMC,
    "slice": EllipticalSlice,
    "hmc-curvature": CurvatureHMC,
    "hmc-class-frequency": partial(CurvatureHMC, search=class_frequency),
    "hmc-position": PositionHMC,
    "mgrad": AuxiliaryGradient,
    "metropolis": NealMetropolis,
    "random-walk": partial(NealMetropolis, proposal="random-walk"),
    "smmala": SMMALA,
}
"""Latent moves by their name in ``latent_move=``."""
