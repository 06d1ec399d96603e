"""What the elements that move theta with f integrated out learn in tuning."""

from __future__ import annotations

import math

from typing import Any, NamedTuple

from pymc_lgm.adaptation import NoiseTuning
from pymc_lgm.approximations.gaussian import GaussianApproximation
from pymc_lgm.approximations.sites_line import SitesLine
from pymc_lgm.approximations.sites_tuning import SitesTuning
from pymc_lgm.linalg import Array

__all__ = ["MarginalTuning"]


class MarginalTuning(NamedTuple):
    """A move on theta, the sites of q, how many importance draws.

    ``line`` goes through the sites of the draws before the last renewal; ``None`` before the first.
    The first ``exploring`` draws of tuning are on the approximate evidence. If these were ended
    early, ``left`` of the exact ones have still something to learn; else it is ``None``.
    """

    move: Any
    latent: Any
    line: SitesLine | None
    sites: SitesTuning
    draws: int
    exploring: int
    noise: NoiseTuning
    interweaving: Any = None
    left: int | None = None

    @property
    def is_exploring(self) -> bool:
        """Whether the next draw of tuning is on the approximate evidence."""
        return self.draws < self.exploring

    def update(
        self, theta: Array, seen: GaussianApproximation | None, *, settled: bool = False
    ) -> MarginalTuning:
        """Learn the sites at one draw; renew the line at draws 5, 10, 20, 40, ...

        And at the last, unless the sums of the sites have begun anew not long before. Where the
        move on theta has ``settled`` this is the last. Half as many exact draws of tuning follow as
        would have otherwise.
        """
        draws = self.draws + 1
        rounds, rest = divmod(draws, 5)
        double = rest == 0 and rounds & (rounds - 1) == 0
        if double and settled and draws < self.exploring:
            ended = self._replace(exploring=draws, left=math.ceil(self.exploring / 6))
            return ended.update(theta, seen)
        line, noise = self.line, self.noise
        sites = self.sites
        if seen is not None:
            z = seen.center - seen.mean
            sites = sites.update(theta, seen.sites, seen.margins, z)
        last = draws == self.exploring and 4 * sites.thetas >= draws
        if sites.thetas and (double or last):
            # The sums began at the last renewal: at half of these draws, or at the first.
            line = sites.line()
            sites = SitesTuning.start(sites.coordinates, theta.size)
            if draws < self.exploring:
                noise = noise._replace(total=0.0, ratios=0)
        return self._replace(line=line, sites=sites, draws=draws, noise=noise)

    def sampled(self) -> MarginalTuning:
        """Count an exact draw of tuning."""
        return self if self.left is None else self._replace(left=self.left - 1)
