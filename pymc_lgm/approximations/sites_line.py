"""Sites as a function of theta: what tuning learns of them.

Near the posterior the sites of expectation propagation hardly depend on theta. A line in theta
through those that tuning has found gives a q as good as a search would.
"""

from __future__ import annotations

import math

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pymc_lgm.approximations.sites import Margins, Recalled, Sites
from pymc_lgm.linalg import Array

__all__ = ["SitesLine", "SitesTuning"]

REACH = 3.0
"""How far a line is followed, in standard deviations of the thetas it was fitted to, times √p."""


NEAR = 1.5
"""How far sites with a copula are taken from the line, in the same unit; beyond, it is a start."""


LEAST = 1e-8
"""Precision of a site that says nothing: it needs a logarithm."""


FLAT = 1e-3
"""c of ν / √(W + c): much wider sites hardly change with theta, and ν itself is on the line."""


@dataclass(frozen=True, eq=False)
class SitesLine:
    """Sites as a function of theta, on a line through (c, s), followed as far as seen.

    On the line are ν / √W and logarithms, which change least: a datum that only cuts f_i off has a
    site whose width is that of the prior, and whose ν / √W does not depend on it.

    Attributes
    ----------
    value, slope : ndarray, shape (b n,), (b n, p)
        s = (ν / √(W + c), log W) at c, and its slope; for a copula with log Σ_ii and log (K⁻¹)_ii.
    lowest, highest : ndarray, shape (b n,)
        Of each element of s.
    theta : ndarray, shape (p,)
        c.
    whiten : ndarray, shape (p, p)
        Inverse of a Cholesky factor of the covariance of the thetas it was fitted to.
    """

    value: Array
    slope: Array
    lowest: Array
    highest: Array
    theta: Array
    whiten: Array
    blocks: int = 2

    def __call__(self, theta: Array) -> Recalled:
        """Sites at theta; O(n p)."""
        away = theta - self.theta
        distance = math.sqrt(float(np.square(self.whiten @ away).sum()))
        unit = math.sqrt(max(away.size, 1))
        reach = REACH * unit
        there = self.value + self.slope @ (away * min(1.0, reach / max(distance, reach)))
        ratio, *logarithms = np.split(np.clip(there, self.lowest, self.highest), self.blocks)
        precision, *others = np.exp(logarithms)
        nu = ratio * np.sqrt(precision + FLAT)
        margins = Margins(*others) if others else None
        return Recalled(nu, precision, margins, trusted=distance <= NEAR * unit)


class SitesTuning(NamedTuple):
    """Least squares of s = (ν / √(W + c), log W), or with what a copula needs, on theta.

    Attributes
    ----------
    moments, products : ndarray, shape (1 + p, 1 + p), (b n, 1 + p)
        Σ x xᵀ and Σ s xᵀ with x = (1, theta).
    lowest, highest : ndarray, shape (b n,)
        Of each element of s.
    blocks : int
        b: 2, or 4 for a copula.
    """

    moments: Array
    products: Array
    lowest: Array
    highest: Array
    blocks: int = 2

    @classmethod
    def start(cls, n: int, p: int, blocks: int = 2) -> SitesTuning:
        """Know nothing."""
        products = np.zeros((blocks * n, 1 + p))
        high = np.full(blocks * n, np.inf)
        return cls(np.zeros((1 + p, 1 + p)), products, high, -high, blocks)

    @property
    def thetas(self) -> int:
        """How many thetas it has seen."""
        return int(self.moments[0, 0])

    def update(self, theta: Array, sites: Sites, margins: Margins | None = None) -> SitesTuning:
        """Learn the sites of one theta, and for a copula the margins; O(n p)."""
        x = np.concatenate([[1.0], theta])
        positive = [sites.precision]
        if margins is not None:
            positive += [margins.variances, margins.precisions]
        logarithms = [np.log(np.maximum(part, LEAST)) for part in positive]
        ratio = sites.nu / np.sqrt(np.exp(logarithms[0]) + FLAT)
        s = np.concatenate([ratio, *logarithms])
        return SitesTuning(
            self.moments + np.outer(x, x),
            self.products + np.outer(s, x),
            np.minimum(self.lowest, s),
            np.maximum(self.highest, s),
            self.blocks,
        )

    def line(self) -> SitesLine:
        """Fit the line. A ridge holds it level where theta has hardly moved."""
        count = self.thetas
        theta, value = self.moments[0, 1:] / count, self.products[:, 0] / count
        cov = self.moments[1:, 1:] / count - np.outer(theta, theta)
        cov[np.diag_indices_from(cov)] += 1e-3 + 0.01 * np.trace(cov) / max(theta.size, 1)
        whiten = np.linalg.inv(np.linalg.cholesky(cov))
        slope = (self.products[:, 1:] / count - np.outer(value, theta)) @ whiten.T @ whiten
        return SitesLine(value, slope, self.lowest, self.highest, theta, whiten, self.blocks)
