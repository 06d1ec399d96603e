"""A Gaussian approximation from predicted sites, without a search.

A linear model in theta (a *line*: see `pymc_lgm.approximations.sites_line`) predicts sites, whose q
takes one O(n³) operation. In a pseudo-marginal sampler any q that is a function of theta alone is
exact. If theta lies far from those of tuning, q comes from a search instead, since a poor q in the
tails of theta would keep chains out of them.

`recall` takes q from the sites unless they fit poorly, and `Recall` is that with a line. The others
always search, and only start at predicted sites: `WarmSearch` with any search, and
`laplace_near_sites` and `laplace_from_sites` with Newton's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from pymc_lgm.approximations.ep import ep, misfit
from pymc_lgm.approximations.gaussian import (
    GaussianApproximation,
    SiteLikelihood,
    plausible,
)
from pymc_lgm.approximations.laplace import laplace
from pymc_lgm.approximations.sites import Margins, PredictedSites, Sites
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
"""Largest misfit in nats of predicted sites; with a larger one the sites are re-optimized.

Measured on growth curves, labels and counts: with a misfit of 0.1 the log ratio of two estimates
had a standard deviation of 0.4, and with 0.5 one of 0.8 and more. Near the thetas of tuning most
misfits are about 0.005, and none reached 0.05.
"""

LOOSE = 0.05
"""Tolerance of a search after a misfit, half of `MISFIT`: any q is exact, so it may end early."""

SearchFrom = Callable[..., GaussianApproximation | None]
"""(likelihood, prior, *, start=, tolerance=) -> q: a search with a start and a tolerance."""


def recall(
    likelihood: SiteLikelihood, prior: Prior, *, start: PredictedSites, search: SearchFrom = ep
) -> GaussianApproximation | None:
    """Combine the prior at theta with given sites: q(f) = N(f̂, (K⁻¹ + W)⁻¹), f̂ = m + Σ ν.

    Parameters
    ----------
    likelihood : SiteLikelihood
        f -> (ℓ, g, W, third derivative); ``likelihood.sites``: rows of f (Q, n) -> ℓ_i.
    prior : Prior
    start : PredictedSites
        ν and W, and perhaps margins, which become those of q. Only sites with margins are checked:
        if they are not ``trusted``, or have a `misfit` above `MISFIT`, a search starts from them
        and computes its own margins. Sites without margins are used as they are.
    search : callable
        `ep` or `pymc_lgm.approximations.variational.variational`.

    Returns
    -------
    GaussianApproximation or None
        Its ``log_evidence`` is ℓ(f̂) − ½ ẑᵀa − ½ log|B|, with ẑ = f̂ − m and a = K⁻¹ ẑ. It is
        Laplace's if f̂ is the mode. If f̂ is not `plausible`, q is Laplace's approximation, searched
        for from m, because theta may be plausible although its predicted sites are wrong. ``None``
        if that search meets values that are not finite.

    Notes
    -----
    One O(n³) operation, the factor of B. If a search follows, two more and those of `ep`. If f̂ is
    not plausible, those of `laplace` in addition.
    """
    if start.margins is not None and not start.trusted:
        found = _searched(likelihood, prior, start, search)
        if found is not None:
            return found
    combined = _combine(prior, start)
    if combined is None:
        return laplace(likelihood, prior)
    posterior, alpha, z = combined
    objective = likelihood.value(prior.mean + z) - 0.5 * float(z @ alpha)
    if not plausible(objective, likelihood.value(prior.mean), prior.n):
        return laplace(likelihood, prior)
    if start.margins is not None and start.trusted:
        variances = start.margins.variances
        nats = misfit(likelihood, posterior, alpha, z, start.nu, variances, MISFIT)
        found = None if nats <= MISFIT else _searched(likelihood, prior, start, search)
        if found is not None:
            return found
    return GaussianApproximation.at(posterior, alpha, z, objective, margins=start.margins)


def _searched(
    likelihood: SiteLikelihood, prior: Prior, start: Sites, search: SearchFrom
) -> GaussianApproximation | None:
    """Re-optimize the sites, and compute the margins of q; ``None`` if that does not converge."""
    found = search(likelihood, prior, start=start, tolerance=LOOSE)
    if found is None or not found.converged:
        return None
    return replace(found, margins=Margins(found.posterior.variances, prior.precisions))


def _combine(prior: Prior, sites: Sites) -> tuple[Posterior, Array, Array] | None:
    """The posterior, a = (I + W K)⁻¹ ν and ẑ = K a, each (n,); ``None`` if B has no factor."""
    posterior = prior.condition(sites.precision)
    return None if posterior is None else (posterior, *posterior.center(sites.nu))


def laplace_from_sites(
    likelihood: SiteLikelihood,
    prior: Prior,
    *,
    start: Sites | None = None,
    tolerance: float = 1e-3,
) -> GaussianApproximation | None:
    """Find the Laplace approximation from sites, with W and B at the mode.

    Laplace's evidence needs log|B| at the mode. A search ends with the W of an earlier step: its q
    is equally good, but its evidence can be wrong by nats. Therefore a second search starts from
    the mode.

    Parameters
    ----------
    likelihood, prior, tolerance
        As in `laplace`.
    start : Sites, optional
        The search begins at the center of the q with these sites.

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
    """`laplace_from_sites` without its second search, if only q is needed: two operations."""
    combined = None if start is None else _combine(prior, start)
    center = None if combined is None else prior.mean + combined[2]
    return laplace(likelihood, prior, start=center, tolerance=tolerance)


@dataclass(frozen=True)
class WarmSearch:
    """A search that begins at the sites predicted by a linear model.

    Two searches with the same arguments compare equal, and `AtTheta.approximation` caches their
    result.
    """

    search: SearchFrom
    tolerance: float
    line: SitesLine | None = None

    def __call__(self, likelihood: SiteLikelihood, prior: Prior) -> GaussianApproximation | None:
        """Search from the sites predicted at the prior's theta."""
        start = None
        if self.line is not None:
            start = self.line(prior.theta).without_effects(likelihood.effects)
        return self.search(likelihood, prior, start=start, tolerance=self.tolerance)

    def with_line(self, line: SitesLine | None) -> WarmSearch:
        """The same search with another linear model; ``None`` restores its default start."""
        return self if line is self.line else WarmSearch(self.search, self.tolerance, line)


@dataclass(frozen=True)
class Recall:
    """`recall` of the sites predicted by a linear model, once tuning has fitted one."""

    search: SearchFrom = ep
    line: SitesLine | None = None

    def __call__(self, likelihood: SiteLikelihood, prior: Prior) -> GaussianApproximation | None:
        """Use the sites predicted at the prior's theta."""
        if self.line is None:
            raise ValueError("There is no linear model of the sites yet: set one by with_line.")
        start = self.line(prior.theta).without_effects(likelihood.effects)
        return recall(likelihood, prior, start=start, search=self.search)

    def with_line(self, line: SitesLine | None) -> Recall:
        """The same search with another linear model."""
        return self if line is self.line else Recall(self.search, line)


LineSearch = WarmSearch | Recall
"""A search that uses a linear model of the site parameters."""
