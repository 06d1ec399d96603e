"""Families of Gaussian vectors by their sparse precision: which elements Q has, and its numbers.

A family says once which elements of the lower triangle Q has, and at each theta what they are. What
would be dense in Q is said as an update: the precision is Q + U S Uᵀ, U of few columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from numpy.typing import NDArray
from scipy.linalg import lapack

from pymc_lgm.gaussian.factors import BlockFactor, DiagonalFactor, UpdatedFactor
from pymc_lgm.linalg import Array
from pymc_lgm.priors.intrinsic import IntrinsicField
from pymc_lgm.priors.markov import BandPattern, FieldMaker
from pymc_lgm.priors.precision_posterior import Factor
from pymc_lgm.priors.sparse import Pattern

__all__ = ["DenseBlocks", "Family", "FamilyAt", "Independent", "OfField"]

Index = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class FamilyAt:
    """N(m, (Q + U S Uᵀ)⁻¹) at one theta.

    Attributes
    ----------
    mean : ndarray, shape (n,)
        m.
    elements : ndarray
        Those of Q, in the order of the family's ``rows`` and ``columns``.
    factor : Factor
        Of Q + U S Uᵀ.
    """

    mean: Array
    elements: Array
    factor: Factor


class Family(Protocol):
    """A Gaussian vector as a function of what a model says of it."""

    @property
    def n(self) -> int:
        """Its elements."""

    @property
    def rows(self) -> Index:
        """Of the elements of Q in its lower triangle."""

    @property
    def columns(self) -> Index:
        """Of the same."""

    @property
    def update(self) -> tuple[Array, Array]:
        """U, shape (n, k), and S, the same at every theta."""

    def at(self, *values: Array) -> FamilyAt | None:
        """Of the values of what the model says; ``None`` where there is no proper prior."""


class Independent:
    """x_i ~ N(0, v_i), of the variances v.

    Parameters
    ----------
    n : int
    """

    def __init__(self, n: int):
        self.n, self.rows, self.columns = n, np.arange(n), np.arange(n)
        self.update = np.zeros((n, 0)), np.zeros((0, 0))
        self._mean = np.zeros(n)

    def at(self, *values: Array) -> FamilyAt | None:
        """``None`` where a variance is not positive and finite."""
        (variances,) = values
        if not (np.isfinite(variances).all() and (variances > 0.0).all()):
            return None
        return FamilyAt(self._mean, 1.0 / variances, DiagonalFactor(np.sqrt(variances)))


class DenseBlocks:
    """Vectors of b elements, one after another, of covariances K: one for all, or one for each.

    Parameters
    ----------
    blocks, b : int
    """

    def __init__(self, blocks: int, b: int):
        self.n, self._blocks, self._b = blocks * b, blocks, b
        rows, columns = np.tril_indices(b)
        begins = b * np.arange(blocks)[:, None]
        self.rows, self.columns = (begins + rows).ravel(), (begins + columns).ravel()
        self.update = np.zeros((self.n, 0)), np.zeros((0, 0))
        self._mean, self._lower = np.zeros(self.n), (rows, columns)

    def at(self, *values: Array) -> FamilyAt | None:
        """Of K, (b, b) or (..., b, b); ``None`` where it is not numerically positive definite."""
        K = np.asarray(values[0]).reshape(-1, self._b, self._b)
        if not np.isfinite(K).all():
            return None
        try:
            L = np.linalg.cholesky(K)
        except np.linalg.LinAlgError:
            return None
        inverses = np.empty_like(K)
        for k, each in enumerate(L):
            lower, info = lapack.dpotri(each, lower=1)
            if info != 0:
                return None
            inverses[k] = lower
        elements = np.broadcast_to(
            inverses[:, self._lower[0], self._lower[1]], (self._blocks, self._lower[0].size)
        )
        return FamilyAt(self._mean, elements.ravel(), BlockFactor(L, self.n))


class OfField:
    """A series, or areas of a map, as `pymc_lgm.priors.markov` makes them.

    Parameters
    ----------
    maker : FieldMaker
    n : int
    """

    def __init__(self, maker: FieldMaker, n: int):
        self.n, self._maker = n, maker
        pattern = maker.pattern
        self.update = np.zeros((n, 0)), np.zeros((0, 0))
        if isinstance(pattern, BandPattern):
            below, column = np.indices((pattern.width, n))
            inside = below + column < n
            self._which = np.flatnonzero(inside.ravel())
            self.rows, self.columns = (below + column)[inside], column[inside]
            return
        assert isinstance(pattern, Pattern)
        self._which = np.arange(pattern.rows.size)
        rows, columns = pattern.places
        self.rows, self.columns = np.maximum(rows, columns), np.minimum(rows, columns)
        if isinstance(maker, IntrinsicField):
            self.update = maker.update

    def at(self, *values: Array) -> FamilyAt | None:
        """``None`` where the field has no proper prior."""
        field = self._maker.at(*values)
        factor = None if field is None else field.factor
        if field is None or factor is None or not np.isfinite(field.mean).all():
            return None
        whole = factor if not self.update[1].size else UpdatedFactor.of(factor, *self.update)
        if whole is None:
            return None
        return FamilyAt(field.mean, field.precision.ravel()[self._which], whole)
