"""A Gaussian approximation from sites that are known beforehand: no search.

Near the posterior the sites of expectation propagation hardly depend on theta. Those that tuning
has found, put on a line in theta, give a q as good as a search would, for one O(n³) operation; and
any q that is a function of theta alone is exact in a pseudo-marginal sampler. Far from where tuning
has been there is a search after all: a q that fails in the tails of theta keeps chains out of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from pymc_lgm.approximations.ep import ep
from pymc_lgm.approximations.gaussian import (
    GaussianApproximation,
    SiteLikelihood,
    plausible,
)
from pymc_lgm.approximations.laplace import laplace
from pymc_lgm.approximations.misfit import misfit
from pymc_lgm.approximations.sites import Margins, Recalled, Sites
from pymc_lgm.approximations.sites_line import SitesLine
from pymc_lgm.gaussian import Posterior, Prior
from pymc_lgm.linalg import Array

__all__ = [
    "LineSearch",
    "Recall",
    "SearchFrom",
    "WarmSearch",
    "laplace_from_sites",
    "laplace_near_sites",
    "recall",
]

MISFIT = 0.1
"""Nats by which recalled sites may miss those that their q asks for; beyond, q is searched for.

Of growth curves, labels and counts q's at 0.1 had a ratio of estimates with a noise of 0.4, and
those at 0.5 one of 0.8 and more. Where tuning has been most are at 0.005, and none was at 0.05.
"""

SearchFrom = Callable[..., GaussianApproximation | None]
"""(likelihood, prior, *, start=, tolerance=) -> q: it may be told where to begin, when to end."""


def recall(
    likelihood: SiteLikelihood, prior: Prior, *, start: Recalled, search: SearchFrom = ep
) -> GaussianApproximation | None:
    """Combine the prior at theta with given sites: q(f) = N(f̂, (K⁻¹ + W)⁻¹), f̂ = m + Σ ν.

    Parameters
    ----------
    likelihood : SiteLikelihood
        f -> (ℓ, g, W, third derivative); ``likelihood.sites``: rows of f (Q, n) -> ℓ_i.
    prior : Prior
    start : Recalled
        ν and W; their margins are those of q. Where they have margins, and are not ``trusted`` or
        have a `misfit` above `MISFIT`, a search starts from them, and its margins are computed.
    search : callable
        Which: `ep` or `pymc_lgm.approximations.variational.variational`.

    Returns
    -------
    GaussianApproximation or None
        Its ``log_evidence`` is ℓ(f̂) − ½ ẑᵀa − ½ log|B|, as if f̂ were the mode. Where f̂ is not
        `plausible`, q is Laplace's, searched for from m: theta may be fine, and only the sites are
        those of another. ``None`` where that search meets values that are not finite.

    Notes
    -----
    One O(n³) operation: the factor of B. Not good enough, as many as `ep`, and two; where f̂ is not
    plausible those of `laplace` besides.
    """
    if start.margins is not None and not start.trusted:
        found = _searched(likelihood, prior, start, search)
        if found is not None:
            return found
    combined = _combine(prior, start)
    if combined is None:
        return laplace(likelihood, prior)
    posterior, dual, z = combined
    objective = likelihood.value(prior.mean + z) - 0.5 * float(z @ dual)
    if not plausible(objective, likelihood.value(prior.mean), prior.n):
        return laplace(likelihood, prior)
    if start.margins is not None and start.trusted:
        known = start.nu, start.margins.variances, MISFIT
        away = misfit(likelihood, posterior, dual, z, *known)
        found = None if away <= MISFIT else _searched(likelihood, prior, start, search)
        if found is not None:
            return found
    return GaussianApproximation.at(posterior, dual, z, objective, margins=start.margins)


def _searched(
    likelihood: SiteLikelihood, prior: Prior, start: Sites, search: SearchFrom
) -> GaussianApproximation | None:
    """The q that a search from the sites ends at, with margins of its own."""
    found = search(likelihood, prior, start=start, tolerance=0.05)
    if found is None or not found.converged:
        return None
    return replace(found, margins=Margins(found.posterior.variances, prior.precisions))


def _combine(prior: Prior, sites: Sites) -> tuple[Posterior, Array, Array] | None:
    """The posterior, a = (I + W K)⁻¹ ν and ẑ = K a."""
    posterior = prior.condition(sites.precision)
    return None if posterior is None else (posterior, *posterior.center(sites.nu))


def laplace_from_sites(
    likelihood: SiteLikelihood,
    prior: Prior,
    *,
    start: Sites | None = None,
    tolerance: float = 1e-3,
) -> GaussianApproximation | None:
    """Find the Laplace approximation from sites, with the W and B of the mode itself.

    Laplace's evidence needs log|B| of the mode: with a W from the way there it is off by nats, and
    q is as good. So the search ends with another, from where it was.

    Parameters
    ----------
    likelihood, prior, tolerance
        As in `laplace`.
    start : Sites, optional
        The search begins at the center of the q that they make.

    Returns
    -------
    GaussianApproximation or None

    Notes
    -----
    Three O(n³) operations from good sites.
    """
    near = laplace_near_sites(likelihood, prior, start=start, tolerance=tolerance)
    if near is None:
        return None
    return laplace(likelihood, prior, start=near.center, tolerance=tolerance)


def laplace_near_sites(
    likelihood: SiteLikelihood,
    prior: Prior,
    *,
    start: Sites | None = None,
    tolerance: float = 1e-3,
) -> GaussianApproximation | None:
    """As `laplace_from_sites`, with the W and B of the way: two operations, for q alone."""
    combined = None if start is None else _combine(prior, start)
    center = None if combined is None else prior.mean + combined[2]
    return laplace(likelihood, prior, start=center, tolerance=tolerance)


class LineSearch(Protocol):
    """A search that follows a line of sites."""

    def __call__(self, likelihood: SiteLikelihood, prior: Prior) -> GaussianApproximation | None:
        """Find q: see `Search`."""

    def along(self, line: SitesLine | None) -> LineSearch:
        """The same search along another line; ``None``: it begins where it always does."""


@dataclass(frozen=True)
class WarmSearch:
    """A search that begins at the sites of a line.

    Two of them are equal if they find the same: `AtTheta.approximation` keeps what one has found.
    """

    search: SearchFrom
    tolerance: float
    line: SitesLine | None = None

    def __call__(self, likelihood: SiteLikelihood, prior: Prior) -> GaussianApproximation | None:
        """Search from the line's sites at the prior's theta."""
        start = None if self.line is None else self.line(prior.theta)
        return self.search(likelihood, prior, start=start, tolerance=self.tolerance)

    def along(self, line: SitesLine | None) -> WarmSearch:
        """The same along another line."""
        return self if line is self.line else WarmSearch(self.search, self.tolerance, line)


@dataclass(frozen=True)
class Recall:
    """`recall` of the sites of a line, once there is one; a search from them where they are far."""

    search: SearchFrom = ep
    line: SitesLine | None = None

    def __call__(self, likelihood: SiteLikelihood, prior: Prior) -> GaussianApproximation | None:
        """Recall the line's sites at the prior's theta."""
        if self.line is None:
            raise ValueError("There is no line of sites yet: use along(line).")
        return recall(likelihood, prior, start=self.line(prior.theta), search=self.search)

    def along(self, line: SitesLine | None) -> Recall:
        """The same along another line."""
        return self if line is self.line else Recall(self.search, line)
