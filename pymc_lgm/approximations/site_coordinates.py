"""A bijection between sites and vectors of unconstrained numbers.

A site is exp(ν_i z_i − ½ W_i z_i²), z = f − m. `pymc_lgm.approximations.sites_line` predicts ν and
W at a new theta by a linear model, which needs coordinates without bounds. A precision W is
represented by its logarithm, and a block of precisions by D and U, with W_g = U D Uᵀ and U unit
lower triangular. For a block of classes see `InClasses`. ν is represented by ν / √(W + c), because
this quotient changes little with theta. For example, if an observation only fixes the sign of f_i,
the width of the site is proportional to that of the prior, and ν / √W does not change. If W may be
negative, W and ν represent themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from numpy.typing import NDArray

from pymc_lgm.approximations.sites import Margins, PredictedSites, Sites
from pymc_lgm.gaussian.sites import ClassBlocks, SiteBlocks, gathered, scattered
from pymc_lgm.linalg import Array

__all__ = [
    "OFFSET",
    "InClasses",
    "InSets",
    "OneByOne",
    "SiteCoordinates",
    "Themselves",
    "site_coordinates",
]

LEAST = 1e-8
"""Smallest precision that is represented: a site without information has a finite logarithm. It is
a choice."""

OFFSET = 1e-3
"""c in ν / √(W + c). It keeps the coordinate finite as W → 0, where it becomes proportional to ν.
It is a choice."""


class SiteCoordinates(Protocol):
    """A bijection between sites and vectors, except for precisions below `LEAST`."""

    def of(self, sites: Sites, margins: Margins | None) -> Array:
        """Return the vector that represents sites, and their margins if there is a copula."""

    def sites(self, s: Array, trusted: bool) -> PredictedSites:
        """Return the sites that a vector represents, marked as ``trusted`` or not."""


@dataclass(frozen=True)
class OneByOne:
    """Coordinates of sites of one f_i each: (ν / √(W + c), log W).

    For a copula, log Σ_ii and log (K⁻¹)_ii follow.
    """

    n: int
    copula: bool = False

    def of(self, sites: Sites, margins: Margins | None) -> Array:
        """See `SiteCoordinates`."""
        positive = [sites.precision]
        if self.copula:
            assert margins is not None
            positive += [margins.variances, margins.precisions]
        logarithms = [np.log(np.maximum(part, LEAST)) for part in positive]
        ratio = sites.nu / np.sqrt(np.exp(logarithms[0]) + OFFSET)
        return np.concatenate([ratio, *logarithms])

    def sites(self, s: Array, trusted: bool) -> PredictedSites:
        """See `SiteCoordinates`."""
        ratio, *logarithms = s.reshape(-1, self.n)
        precision, *others = np.exp(logarithms)
        nu = ratio * np.sqrt(precision + OFFSET)
        return PredictedSites(nu, precision, Margins(*others) if others else None, trusted)


@dataclass(frozen=True, eq=False)
class InSets:
    """Coordinates of sites of sets of f_i, W_g = U D Uᵀ.

    They are (U⁻¹ ν) / √(D + c), log D, and the elements of U below its diagonal.

    Attributes
    ----------
    sets : ndarray of int, shape (G, s)
        As in `SiteBlocks`.
    """

    sets: NDArray[np.intp]

    def of(self, sites: Sites, margins: Margins | None) -> Array:
        """See `SiteCoordinates`."""
        root = np.linalg.cholesky(sites.precision.values)
        diagonal = np.einsum("gii->gi", root)
        U = root / diagonal[:, None, :]
        logarithms = np.maximum(2.0 * np.log(diagonal), np.log(LEAST))
        nu = np.linalg.solve(U, gathered(self.sets, sites.nu)[:, :, None])[:, :, 0]
        ratio = nu / np.sqrt(np.exp(logarithms) + OFFSET)
        return np.concatenate([ratio.ravel(), logarithms.ravel(), U[:, *self._below].ravel()])

    def sites(self, s: Array, trusted: bool) -> PredictedSites:
        """See `SiteCoordinates`."""
        G, size = self.sets.shape
        ratio, logarithms = s[: 2 * G * size].reshape(2, G, size)
        U = np.tile(np.eye(size), (G, 1, 1))
        U[:, *self._below] = s[2 * G * size :].reshape(G, -1)
        D = np.exp(logarithms)
        precision = SiteBlocks(self.sets, (U * D[:, None, :]) @ U.swapaxes(1, 2))
        nu = (U @ (ratio * np.sqrt(D + OFFSET))[:, :, None])[:, :, 0]
        n = int((self.sets >= 0).sum())
        return PredictedSites(scattered(self.sets, nu, n), precision, None, trusted)

    @property
    def _below(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        return np.tril_indices(self.sets.shape[1], -1)


@dataclass(frozen=True, eq=False)
class InClasses:
    """Coordinates of sites of classes, W_g = D − u uᵀ with a diagonal D.

    They are ν / √(D + c), log D, and log (v² / (1 − |v|²)) with v_c = u_c / √D_c.

    Attributes
    ----------
    sets : ndarray of int, shape (G, s)
        As in `SiteBlocks`, without padding.
    """

    sets: NDArray[np.intp]

    def of(self, sites: Sites, margins: Margins | None) -> Array:
        """See `SiteCoordinates`."""
        D, v, gap = sites.precision.minus_rank_one
        D = np.maximum(D, LEAST)
        ratio = gathered(self.sets, sites.nu) / np.sqrt(D + OFFSET)
        shares = np.maximum(v**2, LEAST) / np.maximum(gap, LEAST)[:, None]
        return np.concatenate([ratio.ravel(), np.log(D).ravel(), np.log(shares).ravel()])

    def sites(self, s: Array, trusted: bool) -> PredictedSites:
        """See `SiteCoordinates`."""
        ratio, logarithms, of_shares = s.reshape(3, *self.sets.shape)
        D, shares = np.exp(logarithms), np.exp(of_shares)
        v = np.sqrt(shares / (1.0 + shares.sum(axis=1, keepdims=True)))
        precision = ClassBlocks.of(self.sets, D, v * np.sqrt(D))
        nu = scattered(self.sets, ratio * np.sqrt(D + OFFSET), self.sets.size)
        return PredictedSites(nu, precision, None, trusted)


@dataclass(frozen=True, eq=False)
class Themselves:
    """ν, and the elements of W or of its blocks on and below the diagonal: for any W.

    Attributes
    ----------
    n : int
    sets : ndarray of int, shape (G, s), or None
        As in `SiteBlocks`, if W has blocks.
    """

    n: int
    sets: NDArray[np.intp] | None = None

    def of(self, sites: Sites, margins: Margins | None) -> Array:
        """See `SiteCoordinates`."""
        W = sites.precision
        below = W if self.sets is None else W.values[:, *self._below].ravel()
        return np.concatenate([sites.nu, below])

    def sites(self, s: Array, trusted: bool) -> PredictedSites:
        """See `SiteCoordinates`."""
        nu, W = s[: self.n], s[self.n :]
        if self.sets is None:
            return PredictedSites(nu, W, None, trusted)
        G, size = self.sets.shape
        i, j = self._below
        values = np.empty((G, size, size))
        values[:, i, j] = values[:, j, i] = W.reshape(G, -1)
        return PredictedSites(nu, SiteBlocks(self.sets, values), None, trusted)

    @property
    def _below(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        assert self.sets is not None
        return np.tril_indices(self.sets.shape[1])


def site_coordinates(
    model: Any, n: int, copula: bool = False, *, may_be_negative: bool = False
) -> SiteCoordinates:
    """Return coordinates for the sites of a model's observations.

    ``may_be_negative`` says that precisions may be negative, or 0 for a whole set. With classes
    they are not, since `ClassBlocks` are positive definite.
    """
    if model.sets is not None and model.classes:
        return InClasses(model.sets)
    if may_be_negative:
        return Themselves(n, model.sets)
    return OneByOne(n, copula) if model.sets is None else InSets(model.sets)
