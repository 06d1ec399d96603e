"""Fields with a sparse precision: a series, or areas of a map, φ ~ N(m, Q⁻¹) (Rue and Held 2005).

Where Q has elements is known once per model; its numbers follow from few functions of theta.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from scipy.linalg import block_diag
from scipy.sparse import csc_array, diags_array, eye_array

from pymc_lgm.gaussian import bands
from pymc_lgm.gaussian.bands import BandFactor, WhitenerFactor
from pymc_lgm.gaussian.posterior import Factor
from pymc_lgm.gaussian.sparse import Pattern, SparseFactor
from pymc_lgm.linalg import Array

__all__ = [
    "BandPattern",
    "Elements",
    "FieldAt",
    "FieldMaker",
    "IndependentMaker",
    "IntrinsicField",
    "JoinedField",
    "JoinedMaker",
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
    """Elements of a band, (width, n), as `pymc_lgm.gaussian.bands` has them."""

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


# An intrinsic field of areas, as a sparse one that has a density and a rank-two correction:
#
#     φ ~ N(0, Q⁻ + s² 11ᵀ),   Q = D − W,
#
# Q⁻ the generalized inverse: the law of `pymc.ICAR`, whose mean over the areas has standard
# deviation s. Q has no inverse, since Q 1 = 0. With δ added at area p, Q_p = Q + δ e_p e_pᵀ has
# one, and is as sparse: Q_p⁻¹ = G + 11ᵀ/δ, where G is zero at p, and with g = G 1/n and
# ḡ = 1ᵀG 1/n²
#
#     Q⁻ = (I − J) G (I − J) = Q_p⁻¹ − 1 gᵀ − g 1ᵀ + (ḡ − 1/δ) 11ᵀ,   J = 11ᵀ/n.


class IntrinsicField:
    """φ, by Q_p and what makes it Q⁻ + s² 11ᵀ.

    Parameters
    ----------
    W : sparse array, shape (n, n)
        Symmetric weights of a connected map.
    sd : float
        s.
    scale : float
        Multiplies φ but for its mean.

    Attributes
    ----------
    pattern : Pattern
    precision : ndarray
        Elements of Q_p.
    columns, covariance : ndarray, shape (n, 2) and (2, 2)
        U = (1, g) and S with Q⁻ + s² 11ᵀ = Q_p⁻¹ + U S Uᵀ.
    mean : ndarray, shape (n,)
        Zero.
    factor : SparseFactor
        Of Q_p, known once per model.
    """

    def __init__(self, W: csc_array, sd: float, scale: float = 1.0):
        self.n, self.sd, self.mean = W.shape[0], sd, np.zeros(W.shape[0])
        neighbors = np.asarray(W.sum(axis=0)).ravel()
        Q = csc_array(diags_array(neighbors) - W)
        self.pattern = Pattern.of(Q)
        own = self._own = self.pattern.elements(Q) / scale**2
        pin = int(self.pattern.diagonal[np.argmax(neighbors)])

        def held(by: float) -> Array:
            values = own.copy()
            values[pin] += by
            return values

        delta = 1.0
        if self.n > 1:
            # With 1/δ as large as G is, neither of the two is lost beside the other.
            weak = held(own[pin])
            spread = self._factorize(weak).inverse_diagonal.mean() - 1.0 / own[pin]
            delta = 1.0 / max(spread, 1e-300)
        self.precision = held(delta)
        self.factor = self._factorize(self.precision)
        self._pin, self._delta = int(self.pattern.order[self.pattern.rows[pin]]), delta
        g = (self._inverse_times(np.ones(self.n)) - self.n / delta) / self.n
        self.columns = np.column_stack([np.ones(self.n), g])
        self.covariance = np.array([[g.mean() - 1.0 / delta + sd**2, -1.0], [-1.0, 0.0]])

    def _factorize(self, values: Array) -> SparseFactor:
        factor = self.pattern.factorize(values)
        if factor is None:
            raise np.linalg.LinAlgError("The map is not connected.")
        return factor

    def _inverse_times(self, x: Array) -> Array:
        """Q_p⁻¹ x."""
        return self.factor.solve_transposed(self.factor.solve(x))

    @property
    def update(self) -> tuple[Array, Array]:
        """U (n, 2) and S (2, 2) with Q + 11ᵀ/(n s)² = Q_p + U S Uᵀ; s > 0."""
        U = np.zeros((self.n, 2))
        U[:, 0], U[self._pin, 1] = 1.0 / (self.n * self.sd), 1.0
        return U, np.diag([1.0, -self._delta])

    @property
    def variances(self) -> Array:
        """(Q⁻ + s² 11ᵀ)_ii."""
        U = self.columns
        added: Array = np.einsum("ij,jk,ik->i", U, self.covariance, U)
        return self.factor.inverse_diagonal + added

    def at(self) -> IntrinsicField:
        """Itself, at every theta."""
        return self

    def inverse_times(self, x: Array) -> Array:
        """(Q⁻ + s² 11ᵀ)⁻¹ x = (Q + 11ᵀ/(n s)²) x."""
        of_mean: Array = x.sum(axis=0) / (self.n * self.sd) ** 2
        return self.pattern.times(self._own, x) + of_mean


# Several independent fields, one after another: the parts of a map, and its islands


class IndependentMaker:
    """φ ~ N(0, diag(v)): areas without neighbors."""

    def __init__(self, n: int):
        self.pattern, self._mean = Pattern.of(csc_array(eye_array(n))), np.zeros(n)

    def at(self, variances: Array) -> MarkovField | None:
        """Of v; ``None`` where one is zero or no number."""
        if not (np.isfinite(variances).all() and (variances > 0.0).all()):
            return None
        return MarkovField(self.pattern, 1.0 / variances, self._mean)


class JoinedField:
    """Fields as one: see `pymc_lgm.gaussian.gmrf.FieldAt`.

    Parameters
    ----------
    parts : sequence of FieldAt
    pattern : Pattern
        Of them all.
    """

    def __init__(self, parts: Sequence[FieldAt], pattern: Pattern):
        self._parts, self._pattern = parts, pattern
        self.mean = np.concatenate([part.mean for part in parts])
        self.precision = np.concatenate([part.precision for part in parts])
        self.columns = block_diag(*(part.columns for part in parts))
        self.covariance = block_diag(*(part.covariance for part in parts))
        self._ends = np.cumsum([part.mean.size for part in parts])[:-1]

    @cached_property
    def factor(self) -> SparseFactor | None:
        """Of Q."""
        return self._pattern.factorize(self.precision)

    def inverse_times(self, x: Array) -> Array:
        """(Q⁻¹ + U S Uᵀ)⁻¹ x."""
        return np.concatenate([part.inverse_times(own) for part, own in self._each(x)])

    def _each(self, x: Array) -> list[tuple[FieldAt, Array]]:
        return list(zip(self._parts, np.split(x, self._ends), strict=True))


class JoinedMaker:
    """Fields as a function of what a model says of each.

    Parameters
    ----------
    makers : sequence of FieldMaker
        With a `Pattern` each.
    counts : sequence of int
        How many values each takes.
    """

    def __init__(self, makers: Sequence[FieldMaker], counts: Sequence[int]):
        self._makers, self._ends = makers, np.cumsum([0, *counts])
        patterns = [maker.pattern for maker in makers]
        self.pattern = Pattern.joined([each for each in patterns if isinstance(each, Pattern)])

    def at(self, *values: Array) -> JoinedField | None:
        """Of the values of all; ``None`` where something is no number."""
        ends = self._ends
        parts = [maker.at(*values[ends[k] : ends[k + 1]]) for k, maker in enumerate(self._makers)]
        known = [part for part in parts if part is not None]
        return JoinedField(known, self.pattern) if len(known) == len(parts) else None
