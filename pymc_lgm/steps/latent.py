"""The base class of step methods that move f given theta."""

from __future__ import annotations

from collections.abc import Sequence
from typing import override

from pymc_lgm import samplers
from pymc_lgm.model.diagnose import refuse_large_sets, refuse_no_curvature
from pymc_lgm.moves.latent import LatentMove
from pymc_lgm.state import State
from pymc_lgm.steps.base import LatentGaussianStep
from pymc_lgm.steps.options import no_gradient, public_name, refuse_no_metric, refuse_no_way_out

__all__ = ["LatentStep"]


class LatentStep(LatentGaussianStep):
    """One move of f given theta. A subclass sets ``self.move`` before calling this constructor."""

    moves_theta = False
    move: LatentMove

    def _sweep(self) -> Sequence[samplers.Element]:
        if self.move.needs_gradient and not self.lgm.has_gradient:
            raise ValueError(no_gradient(self.lgm, "lgm.EllipticalSlice()"))
        if self.move.needs_curvature:
            refuse_large_sets(self.lgm, f"{public_name(type(self))} with a curvature")
            refuse_no_curvature(self.lgm, "lgm.LatentHMC() or lgm.EllipticalSlice()")
        refuse_no_metric(self.lgm, self.move, "lgm.LatentHMC(metric='curvature')")
        return [self.move]

    @override
    def _begin(self, state: State) -> None:
        refuse_no_way_out(self.move, state, self.lgm, "lgm.EllipticalSlice()")
