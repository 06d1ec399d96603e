"""Fields with a sparse precision: a series, or areas of a map, φ ~ N(m, Q⁻¹) (Rue and Held 2005).

Where Q has elements is known once a model; its numbers follow from few functions of theta.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Protocol

import numpy as np

from scipy.sparse import csc_array, diags_array

from pymc_lgm.linalg import Array
from pymc_lgm.priors import bands
from pymc_lgm.priors.sparse import Pattern, SparseFactor

__all__ = ["FieldAt", "FieldMaker", "MapMaker", "MarkovField", "SeriesMaker"]


class FieldAt(Protocol):
    """φ ~ N(m, Q⁻¹ + U S Uᵀ) at one theta."""

    @property
    def mean(self) -> Array:
        """m, shape (n,)."""

    @property
    def covariance(self) -> Array:
        """S, shape (k, k)."""

    def times(self, e: Array) -> tuple[Array, Array]:
        """Elements of Q, and U (n, k), of e φ, with e of no zero: S is the same."""

    def draw(self, rng: np.random.Generator) -> Array:
        """φ − m from its prior."""

    def covariance_times(self, x: Array) -> Array:
        """(Q⁻¹ + U S Uᵀ) x."""


class FieldMaker(Protocol):
    """A field as a function of what a model says of it."""

    @property
    def pattern(self) -> Pattern:
        """Where Q has elements."""

    @property
    def at(self) -> Callable[..., FieldAt | None]:
        """Numbers -> the field; ``None`` where something is no number."""


class MarkovField:
    """φ ~ N(m, Q⁻¹).

    Parameters
    ----------
    pattern : Pattern
    precision : ndarray, shape (q,)
        Elements of Q.
    mean : ndarray, shape (n,)
    """

    covariance = np.zeros((0, 0))

    def __init__(self, pattern: Pattern, precision: Array, mean: Array):
        self._pattern, self._precision, self.mean = pattern, precision, mean

    @cached_property
    def _factor(self) -> SparseFactor:
        factor = self._pattern.factorize(self._precision)
        if factor is None:
            raise np.linalg.LinAlgError("The precision of a field is not positive definite.")
        return factor

    def times(self, e: Array) -> tuple[Array, Array]:
        """Of e φ."""
        return self._precision / self._pattern.scales(e), np.zeros((e.size, 0))

    def draw(self, rng: np.random.Generator) -> Array:
        """L⁻ᵀ ξ."""
        return self._factor.solve_transposed(rng.standard_normal(self.mean.size))

    def covariance_times(self, x: Array) -> Array:
        """L⁻ᵀ L⁻¹ x."""
        return self._factor.solve_transposed(self._factor.solve(x))


class SeriesMaker:
    """T φ = u + ε with a banded T, so that Q = TᵀT and m = T⁻¹ u.

    Parameters
    ----------
    n, width : int
        Elements, and diagonals of T.
    """

    def __init__(self, n: int, width: int):
        offsets = range(1 - width, width)
        band = diags_array([np.ones(n - abs(k)) for k in offsets], offsets=list(offsets))
        self.pattern = Pattern.of(csc_array(band), order=np.arange(n))
        self._below = self.pattern.rows - self.pattern.columns

    def at(self, T: Array, u: Array) -> MarkovField | None:
        """Of T in bands and u; ``None`` where T has no inverse."""
        if not (np.isfinite(T).all() and (T[0] > 0.0).all()):
            return None
        precision = bands.gram(T)[self._below, self.pattern.columns]
        return MarkovField(self.pattern, precision, bands.solve(T, u))


class MapMaker:
    """Q = τ (D − α W), of symmetric weights W whose sums are D.

    Parameters
    ----------
    W : sparse array, shape (n, n)
    """

    def __init__(self, W: csc_array):
        self.pattern = Pattern.of(W)
        self._D = self.pattern.elements(csc_array(diags_array(W.sum(axis=0))))
        self._W, self._mean = self.pattern.elements(W), np.zeros(W.shape[0])

    def at(self, tau: Array, alpha: Array) -> MarkovField:
        """Of two numbers."""
        precision = float(tau) * (self._D - float(alpha) * self._W)
        return MarkovField(self.pattern, precision, self._mean)
