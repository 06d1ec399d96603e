"""A linear model of the site parameters in theta, which tuning fits.

Near the posterior the sites of expectation propagation hardly depend on theta. A linear model,
fitted to sites that tuning has found, predicts sites whose q is as good as that of a search.
"""

from __future__ import annotations

import math

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numba
import numpy as np

from numpy.typing import NDArray

from pymc_lgm.approximations.site_coordinates import SiteCoordinates
from pymc_lgm.approximations.sites import Margins, PredictedSites, Sites
from pymc_lgm.linalg import Array

__all__ = ["SitesLine", "SitesTuning"]

REACH = 3.0
"""Extrapolation radius: standard deviations of the thetas of the fit, times √p."""

NEAR = 0.8
"""Predicted sites with a copula are trusted up to √p + `NEAR` standard deviations.

Normal thetas lie at a distance of √p ± 0.7, so at one theta in eight the prediction is only the
start of a search. Farther out some predicted q give one importance draw all the weight, and chains
become stuck there.
"""

DISTANT = 3.0
"""Distance of q's center from the prior mean, in widths of a site, above which z₀ is the center.

Sites of binary data are 0 to 2 widths away and scale with the prior, so z₀ = 0 is best for them.
The sites of 150 weights of about 250 g are 40 widths away. With z₀ = 0 a model linear in the
logarithm of the variance misplaces each by half a width, all to the same side, which changes the
evidence by a factor of e^100.
"""


@dataclass(frozen=True, eq=False)
class SitesLine:
    """Linear model of site coordinates in theta, clipped to the range of the fit.

    Attributes
    ----------
    coordinates : SiteCoordinates
        The bijection between coordinates s and sites.
    value, slope : ndarray, shape (m,), (m, p)
        s at c, and its derivative in theta.
    lowest, highest : ndarray, shape (m,)
        Range of each element of s in the fit.
    theta : ndarray, shape (p,)
        c.
    whiten : ndarray, shape (p, p)
        Inverse of a Cholesky factor of the covariance of the thetas in the fit.
    origin : ndarray, shape (n,), optional
        z₀: the model is that of the sites as a function of z − z₀.
    """

    coordinates: SiteCoordinates
    value: Array
    slope: Array
    lowest: Array
    highest: Array
    theta: Array
    whiten: Array
    origin: Array | None = None

    def __eq__(self, other: object) -> bool:
        """Whether it is the same model, or a copy."""
        if self is other or not isinstance(other, SitesLine):
            return self is other
        both = ((self.theta, other.theta), (self.value, other.value), (self.slope, other.slope))
        return all(np.array_equal(mine, its) for mine, its in both)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(self.theta.tobytes())

    def __call__(self, theta: Array) -> PredictedSites:
        """Sites at theta; O(m p)."""
        away = theta - self.theta
        unit = math.sqrt(max(away.size, 1))
        s, distance = _predicted(
            away, self.whiten, self.value, self.slope, self.lowest, self.highest, REACH * unit
        )
        sites = self.coordinates.sites(s, trusted=distance <= unit + NEAR)
        if self.origin is None:
            return sites
        return replace(sites, nu=sites.nu + sites.precision * self.origin)


@numba.njit(cache=True)
def _predicted(
    away: Array,
    whiten: Array,
    value: Array,
    slope: Array,
    lowest: Array,
    highest: Array,
    reach: float,
) -> tuple[Array, float]:
    """s at c + ``away``, or at the extrapolation radius in that direction, and the distance."""
    p, distance = away.size, 0.0
    for j in range(p):
        step = 0.0
        for i in range(p):
            step += whiten[j, i] * away[i]
        distance += step**2
    distance = math.sqrt(distance)
    share, s = min(1.0, reach / max(distance, reach)), np.empty(value.size)
    for k in range(value.size):
        there = value[k]
        for j in range(p):
            there += slope[k, j] * away[j] * share
        s[k] = min(max(there, lowest[k]), highest[k])
    return s, distance


class SitesTuning(NamedTuple):
    """The linear model of site coordinates s in theta, and the moments for the next one.

    Attributes
    ----------
    coordinates : SiteCoordinates
    moments, products : ndarray, shape (1 + p, 1 + p), (m, 1 + p)
        Σ x xᵀ and Σ s xᵀ with x = (1, theta).
    lowest, highest : ndarray, shape (m,)
        Range of each element of s so far.
    origin : ndarray, shape (n,), optional
        z₀: elements of the center of the first q that are far from the prior mean, and 0 for
        the others.
    line : SitesLine, optional
        The model, fitted at the last renewal; ``None`` before the first.
    """

    coordinates: SiteCoordinates
    moments: Array
    products: Array
    lowest: Array
    highest: Array
    origin: Array | None = None
    line: SitesLine | None = None

    @classmethod
    def start(cls, coordinates: SiteCoordinates, p: int) -> SitesTuning:
        """Start without data, whatever m is."""
        nothing, high = np.zeros((1, 1 + p)), np.full(1, np.inf)
        return cls(coordinates, np.zeros((1 + p, 1 + p)), nothing, high, -high)

    @property
    def thetas(self) -> int:
        """Number of thetas in the regression."""
        return int(self.moments[0, 0])

    def update(
        self,
        theta: Array,
        sites: Sites,
        margins: Margins | None = None,
        z: Array | None = None,
    ) -> SitesTuning:
        """Add the sites at one theta, and the margins if there is a copula; O(m p).

        ``z`` is the center of their q less the prior mean.
        """
        origin = self.origin
        if self.thetas == 0 and z is not None:
            origin = _origin(sites, z)
        x = np.concatenate([[1.0], theta])
        s = self.coordinates.of(sites.seen_from(origin), margins)
        return SitesTuning(
            self.coordinates,
            self.moments + np.outer(x, x),
            self.products + np.outer(s, x),
            np.minimum(self.lowest, s),
            np.maximum(self.highest, s),
            origin,
            self.line,
        )

    def renewed(self) -> SitesTuning:
        """Fit the linear model, and begin the sums again."""
        start = SitesTuning.start(self.coordinates, len(self.moments) - 1)
        return start._replace(line=self.fit())

    def fit(self) -> SitesLine:
        """Fit the linear model. A ridge shrinks its slope in directions with little data."""
        count = self.thetas
        theta, value = self.moments[0, 1:] / count, self.products[:, 0] / count
        cov = self.moments[1:, 1:] / count - np.outer(theta, theta)
        cov[np.diag_indices_from(cov)] += 1e-3 + 0.01 * np.trace(cov) / max(theta.size, 1)
        whiten = np.linalg.inv(np.linalg.cholesky(cov))
        slope = (self.products[:, 1:] / count - np.outer(value, theta)) @ whiten.T @ whiten
        return SitesLine(
            coordinates=self.coordinates,
            value=value,
            slope=slope,
            lowest=self.lowest,
            highest=self.highest,
            theta=theta,
            whiten=whiten,
            origin=self.origin,
        )


def _origin(sites: Sites, z: Array) -> Array | None:
    """Elements of z that are `DISTANT`, and 0 for the others; ``None`` if there are none."""
    if not isinstance(sites.precision, np.ndarray):
        return None
    distant: NDArray[np.bool_] = np.abs(z) * np.sqrt(sites.precision) > DISTANT
    return np.where(distant, z, 0.0) if distant.any() else None
