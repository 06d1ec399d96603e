"""Gaussian vectors with a sparse precision Q: walks, maps, independent effects and others.

A `Family` says where the elements of Q are; that is the same at every theta. At a theta it computes
the elements, a factor of Q, and derivatives. If a part of the precision would be dense, it is added
as an update of low rank, Q + U S Uᵀ, where U has few columns. A `Root` is a root R of a precision
A = R Rᵀ. See Rue and Held (2005), *Gaussian Markov random fields*, chapter 2.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from numpy.typing import NDArray
from scipy.linalg import lapack
from scipy.sparse import csc_array, csr_array, diags_array

from pymc_lgm.gaussian.bands import WhitenerFactor
from pymc_lgm.gaussian.factors import BlockFactor, DiagonalFactor, Root
from pymc_lgm.gaussian.sparse import Pattern, SparseFactor
from pymc_lgm.linalg import Array

__all__ = [
    "BandedSeries",
    "ByPrecision",
    "DenseBlocks",
    "Family",
    "FamilyAt",
    "Independent",
    "Map",
]

Index = NDArray[np.intp]

ASYMMETRY = 1e-8
"""Largest |Q_ij − Q_ji|, relative to the largest element of Q, that counts as rounding."""


@dataclass(frozen=True, eq=False)
class FamilyAt:
    """N(m, (Q + U S Uᵀ)⁻¹) at one theta.

    Attributes
    ----------
    mean : ndarray, shape (m,)
        The mean; if the family has a basis, that of the coordinates.
    elements : ndarray
        Elements of Q, in the order of the family's ``rows`` and ``columns``.
    factor : Root
        A root of Q + U S Uᵀ.
    values : tuple of ndarray
        The arguments of `Family.at`.
    scale : float
        Multiplies the family's S.
    """

    mean: Array
    elements: Array
    factor: Root
    values: tuple[Array, ...]
    scale: float = 1.0


class Family(ABC):
    """A Gaussian vector as a function of values that a model computes from theta.

    Each family documents its values: variances, covariances, or the bands of a matrix.

    Parameters
    ----------
    n : int
        Number of elements of the vector x.
    rows, columns : ndarray of int
        Where the elements of Q are in its lower triangle.
    update : tuple of ndarray, optional
        U, shape (m, k), and S. At a theta, S is multiplied by `FamilyAt.scale`.
    constraint : ndarray, shape (m, k), optional
        C, of orthonormal columns: Cᵀ x = 0.
    basis : sparse array, shape (n, m), optional
        B, of orthonormal columns: x = B z. With a basis, Q, the update, the constraint and the mean
        are those of the coordinates z.

    Attributes
    ----------
    m : int
        Number of coordinates: n without a basis.
    rank : int
        Dimension of the space of x: m less the number of constraints.
    zero_mean : ndarray, shape (m,)
    """

    def __init__(
        self,
        n: int,
        rows: Index,
        columns: Index,
        update: tuple[Array, Array] | None = None,
        constraint: Array | None = None,
        basis: csr_array | None = None,
    ):
        self.n, self.rows, self.columns, self.basis = n, rows, columns, basis
        m = self.m = n if basis is None else basis.shape[1]
        self.update = (np.zeros((m, 0)), np.zeros((0, 0))) if update is None else update
        self.constraint = np.zeros((m, 0)) if constraint is None else constraint
        self.rank, self.zero_mean = m - self.constraint.shape[1], np.zeros(m)

    @abstractmethod
    def at(self, *values: Array) -> FamilyAt | None:
        """The prior with these values; ``None`` if it is not proper."""

    @abstractmethod
    def vjp(self, at: FamilyAt, elements: Array, mean: Array, log_weight: float) -> list[Array]:
        """Derivatives of ⟨e, Q⟩ + ⟨m̄, m⟩ + w log|Q + U S Uᵀ| with respect to the values of `at`.

        Parameters
        ----------
        at : FamilyAt
        elements : ndarray
            e: one weight for each element of the lower triangle of Q.
        mean : ndarray, shape (m,)
            m̄.
        log_weight : float
            w.

        Returns
        -------
        list of ndarray
            One array for each value, of the same shape.
        """


class Independent(Family):
    """x_i ~ N(0, v_i). The value is v, shape (n,)."""

    def __init__(self, n: int):
        super().__init__(n, np.arange(n), np.arange(n))

    def at(self, *values: Array) -> FamilyAt | None:
        """``None`` if a variance is not positive and finite."""
        (variances,) = values
        if not (np.isfinite(variances).all() and (variances > 0.0).all()):
            return None
        factor = DiagonalFactor(np.sqrt(variances))
        return FamilyAt(self.zero_mean, 1.0 / variances, factor, values)

    def vjp(self, at: FamilyAt, elements: Array, mean: Array, log_weight: float) -> list[Array]:
        """∂(1/v) = −1/v² and ∂log|Q| = −1/v."""
        return [-(elements * at.elements + log_weight) * at.elements]


class DenseBlocks(Family):
    """Independent vectors of b elements, one after another, with dense covariances K.

    The value is K: shape (b, b) if all vectors have the same covariance, otherwise (..., b, b). A
    factor costs O(b³) operations for each K.

    Parameters
    ----------
    blocks, b : int
        Number of vectors, and of elements of each.
    """

    def __init__(self, blocks: int, b: int):
        rows, columns = self._lower = np.tril_indices(b)
        begins = b * np.arange(blocks)[:, None]
        super().__init__(blocks * b, (begins + rows).ravel(), (begins + columns).ravel())
        self.blocks, self._b = blocks, b

    def at(self, *values: Array) -> FamilyAt | None:
        """``None`` if a K is not finite, or not positive definite."""
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
        elements = inverses[:, *self._lower].repeat(self.blocks // len(K), axis=0).ravel()
        return FamilyAt(self.zero_mean, elements, BlockFactor(L, self.n), values)

    def vjp(self, at: FamilyAt, elements: Array, mean: Array, log_weight: float) -> list[Array]:
        """∂K⁻¹ = −K⁻¹ ∂K K⁻¹ and ∂log|Q| = −tr(K⁻¹ ∂K); summed over the vectors if they share K."""
        rows, columns = self._lower
        e, inverse = np.zeros((2, self.blocks, self._b, self._b))
        e[:, rows, columns] = elements.reshape(self.blocks, -1)
        inverse[:, rows, columns] = at.elements.reshape(self.blocks, -1)
        weights = 0.5 * (e + e.swapaxes(1, 2))
        inverse = inverse + np.tril(inverse, -1).swapaxes(1, 2)
        each = -(inverse @ weights @ inverse) - log_weight * inverse
        K = at.values[0]
        shared = K.size == self._b**2
        return [each.sum(axis=0).reshape(K.shape) if shared else each.reshape(K.shape)]


class BandedSeries(Family):
    """T x = u + ε, ε ~ N(0, I), with a lower triangular banded T: Q = TᵀT, m = T⁻¹ u.

    The values are T in bands, shape (width, n) with T_{j+k, j} at [k, j], and u, shape (n,). All
    operations cost O(n width²) or less.

    Parameters
    ----------
    n, width : int
        Elements of x, and diagonals of T.
    length : int, optional
        Elements of each of several series: T is 0 between two of them. By default there is one.
    """

    def __init__(self, n: int, width: int, length: int | None = None):
        length = length or n
        below, column = np.indices((width, n))
        inside = below + column % length < length
        self._which = np.flatnonzero(inside.ravel())
        super().__init__(n, (below + column)[inside], column[inside])

    def at(self, *values: Array) -> FamilyAt | None:
        """``None`` if T is not finite, or has no inverse."""
        T, u = values
        factor = WhitenerFactor.of(T)
        mean = None if factor is None else factor.mean(u)
        if factor is None or mean is None:
            return None
        return FamilyAt(mean, factor.product.ravel()[self._which], factor, values)

    def vjp(self, at: FamilyAt, elements: Array, mean: Array, log_weight: float) -> list[Array]:
        """See `WhitenerFactor`; ∂log|Q| = 2 Σ ∂T_jj / T_jj."""
        assert isinstance(at.factor, WhitenerFactor)
        T = at.factor.T
        E = np.zeros(T.size)
        E[self._which] = elements
        M = E.reshape(T.shape)
        M[0] *= 2.0  # 2 E, where E is the symmetric matrix with ⟨e, Q⟩ = tr(E Q)
        of_T, of_u = at.factor.vjp(M, at.mean, mean)
        of_T[0] += 2.0 * log_weight / T[0]
        return [of_T, of_u]


class _Sparse(Family):
    """x ~ N(0, Q⁻¹) with a general sparse Q. The base of families with a sparse Cholesky factor."""

    def __init__(self, pattern: Pattern):
        super().__init__(pattern.n, *pattern.lower)
        self.pattern = pattern

    def _at(self, elements: Array, values: tuple[Array, ...]) -> FamilyAt | None:
        factor = self.pattern.factorize(elements)
        return None if factor is None else FamilyAt(self.zero_mean, elements, factor, values)

    def _weights(self, at: FamilyAt, elements: Array, log_weight: float) -> Array:
        """e + w ∂log|Q|, the derivatives in the elements of Q.

        ∂log|Q| needs the elements of Q⁻¹ on the pattern of Q only.
        """
        assert isinstance(at.factor, SparseFactor)
        weights: Array = elements + log_weight * at.factor.log_determinant_slopes
        return weights


class Map(_Sparse):
    """Areas of a map as in `pymc.CAR`: Q = τ (D − α W), with the row sums of W in the diagonal D.

    The values are the numbers τ and α.

    Parameters
    ----------
    W : sparse array, shape (n, n)
        Symmetric weights of neighbors.
    """

    def __init__(self, W: csc_array):
        super().__init__(Pattern.of(W))
        self._D = self.pattern.elements(csc_array(diags_array(W.sum(axis=0))))
        self._W = self.pattern.elements(W)

    def at(self, *values: Array) -> FamilyAt | None:
        """``None`` if τ is not positive, or α not between −1 and 1.

        If α is 1, Q is singular, and whether its factorization fails depends on rounding.
        """
        tau, alpha = values
        if not (0.0 < tau < np.inf and -1.0 < alpha < 1.0):
            return None
        return self._at(float(tau) * (self._D - float(alpha) * self._W), values)

    def vjp(self, at: FamilyAt, elements: Array, mean: Array, log_weight: float) -> list[Array]:
        """∂Q = ∂τ (D − α W) − τ ∂α W."""
        (tau, alpha), weights = at.values, self._weights(at, elements, log_weight)
        of_alpha = float(weights @ self._W)
        of_tau = float(weights @ self._D) - float(alpha) * of_alpha
        return [np.asarray(of_tau), np.asarray(-float(tau) * of_alpha)]


class ByPrecision(_Sparse):
    """x ~ N(0, Q⁻¹) with a Q that the model computes, as in `pymc.MvNormal` with a sparse ``tau``.

    The values are the elements Q_ij of the pattern, in its order, and the elements Q_ji. The latter
    only serve to check that Q is symmetric.

    Parameters
    ----------
    pattern : Pattern
    name : str
        Name of x, for an error.
    """

    def __init__(self, pattern: Pattern, name: str):
        super().__init__(pattern)
        self._name = name

    def at(self, *values: Array) -> FamilyAt | None:
        """``None`` if Q is not numerically positive definite.

        Raises
        ------
        ValueError
            If Q is not symmetric, up to rounding: its two halves may be computed in different ways.
        """
        lower, upper = values
        if not np.isfinite(lower).all():
            return None
        difference = np.abs(lower - upper)
        worst = int(difference.argmax())
        if difference[worst] > ASYMMETRY * np.abs(lower).max():
            i, j = (int(at[worst]) for at in self.pattern.places)
            raise ValueError(
                f"tau of {self._name!r} is not symmetric: tau[{i}, {j}] is {lower[worst]:g}, and "
                f"tau[{j}, {i}] is {upper[worst]:g}. Write 0.5 * (tau + tau.T)."
            )
        return self._at(lower, values)

    def vjp(self, at: FamilyAt, elements: Array, mean: Array, log_weight: float) -> list[Array]:
        """Only the first value enters the density."""
        return [self._weights(at, elements, log_weight), np.zeros_like(at.values[1])]
