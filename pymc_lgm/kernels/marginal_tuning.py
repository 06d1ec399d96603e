"""Tuning of the elements that move theta with f integrated out."""

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
    """Tuning of the move on theta, the sites of q and the number of importance draws.

    ``line`` is the linear model of the site parameters, fitted to the draws before the last
    renewal; it is ``None`` before the first. The first ``exploring`` draws of tuning use the
    approximate evidence. If they stopped early, ``left`` exact draws still tune; otherwise ``left``
    is ``None``.
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

        Renew it also at the last exploring draw, unless the sums of the sites were reset shortly
        before. If the move on theta has converged (``settled``), this draw is the last one, and
        half of the usual exact draws of tuning follow.
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
            # The sums start at the last renewal: after half of these draws, or at the first.
            line = sites.line()
            sites = SitesTuning.start(sites.coordinates, theta.size)
            if draws < self.exploring:
                noise = noise._replace(total=0.0, ratios=0)
        return self._replace(line=line, sites=sites, draws=draws, noise=noise)

    def sampled(self) -> MarginalTuning:
        """Count an exact draw of tuning."""
        return self if self.left is None else self._replace(left=self.left - 1)
