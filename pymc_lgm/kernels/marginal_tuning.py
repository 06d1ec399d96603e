"""What the elements that move theta with f integrated out learn in tuning."""

from __future__ import annotations

from typing import Any, NamedTuple

from pymc_lgm.adaptation import NoiseTuning
from pymc_lgm.approximations.gaussian import GaussianApproximation
from pymc_lgm.approximations.sites_line import SitesLine, SitesTuning
from pymc_lgm.linalg import Array

__all__ = ["MarginalTuning"]


class MarginalTuning(NamedTuple):
    """A move on theta, the sites of q, how many importance draws.

    ``line`` goes through the sites of the draws before the last renewal; ``None`` before the first.
    """

    move: Any
    latent: Any
    line: SitesLine | None
    sites: SitesTuning
    draws: int
    exploring: int
    noise: NoiseTuning
    interweaving: Any = None

    def update(self, theta: Array, seen: GaussianApproximation | None) -> MarginalTuning:
        """Learn the sites at one draw; renew the line at draws 5, 10, 20, 40, ... and the last."""
        draws, line, noise = self.draws + 1, self.line, self.noise
        sites = self.sites if seen is None else self.sites.update(theta, seen.sites, seen.margins)
        rounds, rest = divmod(draws, 5)
        double = rest == 0 and rounds & (rounds - 1) == 0
        last = draws == self.exploring and 4 * sites.thetas >= draws
        if sites.thetas and (double or last):
            # The sums began at the last renewal: at half of these draws, or at the first.
            line = sites.line()
            sites = SitesTuning.start(sites.coordinates, theta.size)
            if draws < self.exploring:
                noise = noise._replace(total=0.0, ratios=0)
        return self._replace(line=line, sites=sites, draws=draws, noise=noise)
