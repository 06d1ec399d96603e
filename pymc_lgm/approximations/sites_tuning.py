"""Sites as a function of theta: how tuning learns them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from numpy.typing import NDArray

from pymc_lgm.approximations.site_coordinates import SiteCoordinates
from pymc_lgm.approximations.sites import Margins, Sites
from pymc_lgm.approximations.sites_line import SitesLine
from pymc_lgm.linalg import Array

__all__ = ["SitesTuning"]

DISTANT = 3.0
"""Widths of a site from the prior's mean beyond which it is seen from q's center.

A label's sites are 0 to 2 away, wherever they scale with the prior, and are best left there. Those
of 150 weights of some 250 g are 40 away: seen from the mean, on a line in the logarithm of their
variance, they are off by half a width each, all on one side, and the evidence by e^100.
"""


class SitesTuning(NamedTuple):
    """Least squares of the coordinates s of sites on theta.

    Attributes
    ----------
    coordinates : SiteCoordinates
    moments, products : ndarray, shape (1 + p, 1 + p), (m, 1 + p)
        Σ x xᵀ and Σ s xᵀ with x = (1, theta).
    lowest, highest : ndarray, shape (m,)
        Of each element of s.
    origin : ndarray, shape (n,), optional
        z₀ that the sites are seen from: the center of the first q, where a datum puts it far from
        the prior's mean.
    """

    coordinates: SiteCoordinates
    moments: Array
    products: Array
    lowest: Array
    highest: Array
    origin: Array | None = None

    @classmethod
    def start(cls, coordinates: SiteCoordinates, p: int) -> SitesTuning:
        """Know nothing."""
        products, high = np.zeros((coordinates.size, 1 + p)), np.full(coordinates.size, np.inf)
        return cls(coordinates, np.zeros((1 + p, 1 + p)), products, high, -high)

    @property
    def thetas(self) -> int:
        """How many thetas it has seen."""
        return int(self.moments[0, 0])

    def update(
        self,
        theta: Array,
        sites: Sites,
        margins: Margins | None = None,
        z: Array | None = None,
    ) -> SitesTuning:
        """Learn the sites of one theta, and for a copula the margins; O(m p).

        ``z`` is the center of their q, less the prior's mean.
        """
        origin = self.origin
        if self.thetas == 0 and z is not None:
            origin = _origin(sites, z)
        x, s = np.concatenate([[1.0], theta]), self.coordinates.of(sites.seen_from(origin), margins)
        return SitesTuning(
            self.coordinates,
            self.moments + np.outer(x, x),
            self.products + np.outer(s, x),
            np.minimum(self.lowest, s),
            np.maximum(self.highest, s),
            origin,
        )

    def line(self) -> SitesLine:
        """Fit the line. A ridge holds it level where theta has hardly moved."""
        count = self.thetas
        theta, value = self.moments[0, 1:] / count, self.products[:, 0] / count
        cov = self.moments[1:, 1:] / count - np.outer(theta, theta)
        cov[np.diag_indices_from(cov)] += 1e-3 + 0.01 * np.trace(cov) / max(theta.size, 1)
        whiten = np.linalg.inv(np.linalg.cholesky(cov))
        slope = (self.products[:, 1:] / count - np.outer(value, theta)) @ whiten.T @ whiten
        return SitesLine(
            *(self.coordinates, value, slope, self.lowest, self.highest, theta, whiten, self.origin)
        )


def _origin(sites: Sites, z: Array) -> Array | None:
    """Elements of z that are `DISTANT`, and 0 for the others; ``None`` if there are none."""
    if not isinstance(sites.precision, np.ndarray):
        return None
    distant: NDArray[np.bool_] = np.abs(z) * np.sqrt(sites.precision) > DISTANT
    return np.where(distant, z, 0.0) if distant.any() else None
