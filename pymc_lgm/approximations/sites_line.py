"""Sites as a function of theta: what tuning learns of them.

Near the posterior the sites of expectation propagation hardly depend on theta. A line in theta
through those that tuning has found gives a q as good as a search would.
"""

from __future__ import annotations

import math

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pymc_lgm.approximations.site_coordinates import SiteCoordinates
from pymc_lgm.approximations.sites import Margins, Recalled, Sites
from pymc_lgm.linalg import Array

__all__ = ["SitesLine", "SitesTuning"]

REACH = 3.0
"""How far a line is followed, in standard deviations of the thetas it was fitted to, times √p."""


NEAR = 0.8
"""How far beyond √p standard deviations sites with a copula are taken from the line.

Normal thetas are at √p ± 0.7, so it is one in eight where the line is but a start. Some of those
farther out have a q of which one importance draw has all the weight, and chains stick there.
"""


@dataclass(frozen=True, eq=False)
class SitesLine:
    """Sites as a function of theta, on a line through (c, s), followed as far as seen.

    Attributes
    ----------
    coordinates : SiteCoordinates
        What s says of the sites.
    value, slope : ndarray, shape (m,), (m, p)
        s at c, and its slope.
    lowest, highest : ndarray, shape (m,)
        Of each element of s.
    theta : ndarray, shape (p,)
        c.
    whiten : ndarray, shape (p, p)
        Inverse of a Cholesky factor of the covariance of the thetas it was fitted to.
    """

    coordinates: SiteCoordinates
    value: Array
    slope: Array
    lowest: Array
    highest: Array
    theta: Array
    whiten: Array

    def __call__(self, theta: Array) -> Recalled:
        """Sites at theta; O(m p)."""
        away = theta - self.theta
        distance = math.sqrt(float(np.square(self.whiten @ away).sum()))
        unit = math.sqrt(max(away.size, 1))
        reach = REACH * unit
        there = self.value + self.slope @ (away * min(1.0, reach / max(distance, reach)))
        s = np.clip(there, self.lowest, self.highest)
        return self.coordinates.sites(s, trusted=distance <= unit + NEAR)


class SitesTuning(NamedTuple):
    """Least squares of the coordinates s of sites on theta.

    Attributes
    ----------
    coordinates : SiteCoordinates
    moments, products : ndarray, shape (1 + p, 1 + p), (m, 1 + p)
        Σ x xᵀ and Σ s xᵀ with x = (1, theta).
    lowest, highest : ndarray, shape (m,)
        Of each element of s.
    """

    coordinates: SiteCoordinates
    moments: Array
    products: Array
    lowest: Array
    highest: Array

    @classmethod
    def start(cls, coordinates: SiteCoordinates, p: int) -> SitesTuning:
        """Know nothing."""
        products, high = np.zeros((coordinates.size, 1 + p)), np.full(coordinates.size, np.inf)
        return cls(coordinates, np.zeros((1 + p, 1 + p)), products, high, -high)

    @property
    def thetas(self) -> int:
        """How many thetas it has seen."""
        return int(self.moments[0, 0])

    def update(self, theta: Array, sites: Sites, margins: Margins | None = None) -> SitesTuning:
        """Learn the sites of one theta, and for a copula the margins; O(m p)."""
        x, s = np.concatenate([[1.0], theta]), self.coordinates.of(sites, margins)
        return SitesTuning(
            self.coordinates,
            self.moments + np.outer(x, x),
            self.products + np.outer(s, x),
            np.minimum(self.lowest, s),
            np.maximum(self.highest, s),
        )

    def line(self) -> SitesLine:
        """Fit the line. A ridge holds it level where theta has hardly moved."""
        count = self.thetas
        theta, value = self.moments[0, 1:] / count, self.products[:, 0] / count
        cov = self.moments[1:, 1:] / count - np.outer(theta, theta)
        cov[np.diag_indices_from(cov)] += 1e-3 + 0.01 * np.trace(cov) / max(theta.size, 1)
        whiten = np.linalg.inv(np.linalg.cholesky(cov))
        slope = (self.products[:, 1:] / count - np.outer(value, theta)) @ whiten.T @ whiten
        return SitesLine(self.coordinates, value, slope, self.lowest, self.highest, theta, whiten)
