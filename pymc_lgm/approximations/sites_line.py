"""A linear model of the site parameters in theta.

Near the posterior the sites of expectation propagation hardly depend on theta. A linear model,
fitted to sites that tuning has found, predicts sites whose q is as good as that of a search.
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
"""Extrapolation radius: standard deviations of the thetas of the fit, times √p."""


NEAR = 0.8
"""Predicted sites with a copula are trusted up to √p + `NEAR` standard deviations.

Normal thetas lie at a distance of √p ± 0.7, so at one theta in eight the prediction is only the
start of a search. Farther out some predicted q give one importance draw all the weight, and chains
become stuck there.
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
