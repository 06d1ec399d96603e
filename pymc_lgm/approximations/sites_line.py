"""Sites as a function of theta.

Near the posterior the sites of expectation propagation hardly depend on theta. A line in theta
through those that tuning has found gives a q as good as a search would.
"""

from __future__ import annotations

import math

from dataclasses import dataclass, replace
from functools import cached_property

import numba
import numpy as np

from pymc_lgm.approximations.site_coordinates import SiteCoordinates
from pymc_lgm.approximations.sites import Recalled
from pymc_lgm.linalg import Array

__all__ = ["SitesLine"]

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
    origin : ndarray, shape (n,), optional
        z₀: the line is that of sites of z − z₀.
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
        """Whether it is the same line, or a copy."""
        if self is other or not isinstance(other, SitesLine):
            return self is other
        both = ((self.theta, other.theta), (self.value, other.value), (self.slope, other.slope))
        return all(np.array_equal(mine, its) for mine, its in both)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(self.theta.tobytes())

    def __call__(self, theta: Array) -> Recalled:
        """Sites at theta; O(m p)."""
        away = theta - self.theta
        unit = math.sqrt(max(away.size, 1))
        line = self.value, self.slope, self.lowest, self.highest
        s, distance = followed(away, self.whiten, *line, REACH * unit)
        sites = self.coordinates.sites(s, trusted=distance <= unit + NEAR)
        if self.origin is None:
            return sites
        return replace(sites, nu=sites.nu + sites.precision * self.origin)


@numba.njit(cache=True)
def followed(
    away: Array,
    whiten: Array,
    value: Array,
    slope: Array,
    lowest: Array,
    highest: Array,
    reach: float,
) -> tuple[Array, float]:
    """s at c + ``away``, or where the reach ends on the way there; and how far it is."""
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
