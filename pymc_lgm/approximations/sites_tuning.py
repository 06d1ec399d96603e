"""Sites as a function of theta: how tuning learns them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pymc_lgm.approximations.site_coordinates import SiteCoordinates
from pymc_lgm.approximations.sites import Margins, Sites
from pymc_lgm.approximations.sites_line import SitesLine
from pymc_lgm.linalg import Array

__all__ = ["SitesTuning"]


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
