"""The regression of site coordinates on theta, which tuning updates."""

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
"""Distance of q's center from the prior mean, in widths of a site, above which z₀ is the center.

Sites of binary data are 0 to 2 widths away and scale with the prior, so z₀ = 0 is best for them.
The sites of 150 weights of about 250 g are 40 widths away. With z₀ = 0 a model linear in the
logarithm of the variance misplaces each by half a width, all to the same side, which changes the
evidence by a factor of e^100.
"""


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
        """Start without data."""
        products, high = np.zeros((coordinates.size, 1 + p)), np.full(coordinates.size, np.inf)
        return cls(coordinates, np.zeros((1 + p, 1 + p)), products, high, -high)

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
        x, s = np.concatenate([[1.0], theta]), self.coordinates.of(sites.seen_from(origin), margins)
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
            *(self.coordinates, value, slope, self.lowest, self.highest, theta, whiten, self.origin)
        )


def _origin(sites: Sites, z: Array) -> Array | None:
    """Elements of z that are `DISTANT`, and 0 for the others; ``None`` if there are none."""
    if not isinstance(sites.precision, np.ndarray):
        return None
    distant: NDArray[np.bool_] = np.abs(z) * np.sqrt(sites.precision) > DISTANT
    return np.where(distant, z, 0.0) if distant.any() else None
