"""Fields with a sparse precision: a series, or areas of a map, φ ~ N(m, Q⁻¹) (Rue and Held 2005).

Where Q has elements is known once per model; its numbers follow from few functions of theta.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from scipy.sparse import csc_array, diags_array

from pymc_lgm.linalg import Array
from pymc_lgm.priors import bands
from pymc_lgm.priors.band_factors import BandFactor, WhitenerFactor
from pymc_lgm.priors.precision_posterior import Factor
from pymc_lgm.priors.sparse import Pattern

__all__ = [
    "BandPattern",
    "Elements",
    "FieldAt",
    "FieldMaker",
    "MapMaker",
    "MarkovField",
    "PrecisionMaker",
    "SeriesMaker",
]


class Elements(Protocol):
    """Where Q has elements, and its algebra: a `Pattern`, or a `BandPattern`."""

    @property
    def size(self) -> int:
        """How many elements a factor of Q has."""

    @property
    def diagonal(self) -> Any:
        """Which are the diagonal's: an index of the array of elements."""

    def scales(self, e: Array) -> Array:
        """e_i e_j of each element."""

    def times(self, values: Array, x: Array) -> Array:
        """Q x, of a vector or of columns."""

    def factorize(self, values: Array) -> Factor | None:
        """A factor of Q; ``None`` if it is not numerically positive definite."""


class BandPattern:
    """Elements of a band, (width, n), as `pymc_lgm.priors.bands` has them."""

    diagonal = 0

    def __init__(self, n: int, width: int):
        self.n, self.width, self.size = n, width, n * width

    def scales(self, e: Array) -> Array:
        """e_i e_j, and 1 where the band has ended."""
        scales = bands.outer(e, e, self.width)
        for k in range(1, self.width):
            scales[k, self.n - k :] = 1.0
        return scales

    def times(self, values: Array, x: Array) -> Array:
        """The lower triangle, and the upper one without the diagonal."""
        both = bands.multiply(values, x) + bands.multiply_transposed(values, x)
        result: Array = both - bands.multiply(values[:1], x)
        return result

    def factorize(self, values: Array) -> BandFactor | None:
        """L in bands."""
        L = bands.cholesky(values)
        return None if L is None else BandFactor(L)


class FieldAt(Protocol):
    """φ ~ N(m, Q⁻¹ + U S Uᵀ) at one theta."""

    @property
    def precision(self) -> Array:
        """Elements of Q."""

    @property
    def columns(self) -> Array:
        """U, shape (n, k)."""

    @property
    def mean(self) -> Array:
        """m, shape (n,)."""

    @property
    def covariance(self) -> Array:
        """S, shape (k, k)."""

    @property
    def factor(self) -> Factor | None:
        """Of Q; ``None`` if it is not numerically positive definite."""

    def inverse_times(self, x: Array) -> Array:
        """(Q⁻¹ + U S Uᵀ)⁻¹ x, of a vector or of columns."""


class FieldMaker(Protocol):
    """A field as a function of what a model says of it."""

    @property
    def pattern(self) -> Elements:
        """Where Q has elements."""

    @property
    def at(self) -> Callable[..., FieldAt | None]:
        """Numbers -> the field; ``None`` where something is no number."""


class MarkovField:
    """φ ~ N(m, Q⁻¹).

    Parameters
    ----------
    pattern : Elements
    precision : ndarray
        Elements of Q.
    mean : ndarray, shape (n,)
    factor : Factor, optional
        Of Q, where it is known.
    """

    covariance = np.zeros((0, 0))

    def __init__(
        self, pattern: Elements, precision: Array, mean: Array, factor: Factor | None = None
    ):
        self._pattern, self.precision, self.mean = pattern, precision, mean
        self.columns, self._known = np.zeros((mean.size, 0)), factor

    @cached_property
    def factor(self) -> Factor | None:
        """Of Q."""
        return self._known or self._pattern.factorize(self.precision)

    def inverse_times(self, x: Array) -> Array:
        """Q x."""
        return self._pattern.times(self.precision, x)


class SeriesMaker:
    """T φ = u + ε with a banded T, so that Q = TᵀT and m = T⁻¹ u.

    Parameters
    ----------
    n, width : int
        Elements, and diagonals of T.
    """

    def __init__(self, n: int, width: int):
        self.pattern = BandPattern(n, width)

    def at(self, T: Array, u: Array) -> MarkovField | None:
        """Of T in bands and u; ``None`` where T has no inverse."""
        if not (np.isfinite(T).all() and (T[0] > 0.0).all()):
            return None
        return MarkovField(self.pattern, bands.gram(T), bands.solve(T, u), WhitenerFactor(T))


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

    def at(self, tau: Array, alpha: Array) -> MarkovField | None:
        """Of two numbers; ``None`` where τ is not positive, or α not between −1 and 1.

        With α = ±1 only rounding would make Q positive definite, or keep it from being so.
        """
        if not (0.0 < tau < np.inf and -1.0 < alpha < 1.0):
            return None
        precision = float(tau) * (self._D - float(alpha) * self._W)
        return MarkovField(self.pattern, precision, self._mean)

    def vjp(self, weights: Array, tau: Array, alpha: Array) -> list[Array]:
        """Derivatives of ⟨weights, Q's elements⟩ in the two numbers."""
        of_alpha = float(weights @ self._W)
        of_tau = float(weights @ self._D) - float(alpha) * of_alpha
        return [np.asarray(of_tau), np.asarray(-float(tau) * of_alpha)]


class PrecisionMaker:
    """Q by its elements, mean 0.

    Parameters
    ----------
    pattern : Pattern
    name : str
        Of the field, for an error.
    """

    def __init__(self, pattern: Pattern, name: str):
        self.pattern, self._name, self._mean = pattern, name, np.zeros(pattern.n)

    def at(self, lower: Array, upper: Array) -> MarkovField | None:
        """Of the elements, and of those across the diagonal.

        Raises
        ------
        ValueError
            If they are not the same.
        """
        if not np.isfinite(lower).all():
            return None
        apart = np.abs(lower - upper)
        worst = int(apart.argmax())
        if apart[worst] > 1e-8 * np.abs(lower).max():
            i, j = (int(at[worst]) for at in self.pattern.places)
            raise ValueError(
                f"tau of {self._name!r} is not symmetric: tau[{i}, {j}] is {lower[worst]:g}, and "
                f"tau[{j}, {i}] is {upper[worst]:g}. Write 0.5 * (tau + tau.T)."
            )
        return MarkovField(self.pattern, lower, self._mean)

    def vjp(self, weights: Array, lower: Array, upper: Array) -> list[Array]:
        """Derivatives of ⟨weights, Q's elements⟩: the elements are those of ``lower``."""
        return [weights, np.zeros_like(upper)]
