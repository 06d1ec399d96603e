"""Roots R of a precision A = R Rᵀ, and of A with an update of low rank, a constraint or a scale.

Bands, sparse matrices and meshes have roots in files of their own: `pymc_lgm.gaussian.bands`,
`sparse`, `neighbors` and `spde`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numba
import numpy as np

from scipy.linalg import block_diag, lapack, solve_triangular
from scipy.sparse import csr_array

from pymc_lgm.linalg import Array

__all__ = [
    "BlockFactor",
    "ConstrainedFactor",
    "Constraints",
    "DiagonalFactor",
    "Factor",
    "FactorInBasis",
    "Root",
    "ScaledFactor",
    "UpdatedFactor",
    "constrained_and_updated",
]


class Root(Protocol):
    """A root R of A = R Rᵀ. x has the order of f; ξ may have another one, and fewer elements."""

    @property
    def log_determinant(self) -> float:
        """log|A|."""

    def solve(self, x: Array) -> Array:
        """R⁻¹ x."""

    def solve_transposed(self, xi: Array) -> Array:
        """R⁻ᵀ ξ."""

    def multiply(self, xi: Array) -> Array:
        """R ξ."""

    def multiply_transposed(self, x: Array) -> Array:
        """Rᵀ x."""


class Factor(Root, Protocol):
    """A root that knows the diagonal of the inverse."""

    @property
    def inverse_diagonal(self) -> Array:
        """(A⁻¹)_ii."""


@dataclass(frozen=True, eq=False)
class DiagonalFactor:
    """A = diag(s⁻²).

    Attributes
    ----------
    sd : ndarray, shape (n,)
        s.
    """

    sd: Array

    @cached_property
    def log_determinant(self) -> float:
        """log|A|."""
        return -2.0 * float(np.log(self.sd).sum())

    def solve(self, x: Array) -> Array:
        """R⁻¹ x = s x."""
        return (self.sd * x.T).T

    solve_transposed = solve

    def multiply(self, xi: Array) -> Array:
        """R ξ = ξ / s."""
        return (xi.T / self.sd).T

    multiply_transposed = multiply


@dataclass(frozen=True, eq=False)
class BlockFactor:
    """A root of a block-diagonal A whose inverse has blocks L Lᵀ: R = L⁻ᵀ.

    A product or a solve costs O(n b).

    Attributes
    ----------
    L : ndarray, shape (B, b, b)
        Lower triangular. If B = 1, all n / b blocks are equal.
    n : int
        Number of rows of A: B b, or any multiple of b if B = 1.
    """

    L: Array
    n: int

    @cached_property
    def log_determinant(self) -> float:
        """log|A|."""
        total = float(np.log(np.diagonal(self.L, axis1=1, axis2=2)).sum())
        return -2.0 * total * (self.n // (len(self.L) * self.L.shape[1]))

    def solve(self, x: Array) -> Array:
        """R⁻¹ x = Lᵀ x."""
        return self._times(self.L.swapaxes(1, 2), x)

    def solve_transposed(self, xi: Array) -> Array:
        """R⁻ᵀ ξ = L ξ."""
        return self._times(self.L, xi)

    def multiply(self, xi: Array) -> Array:
        """R ξ = L⁻ᵀ ξ."""
        return self._solved(xi, transposed=True)

    def multiply_transposed(self, x: Array) -> Array:
        """Rᵀ x = L⁻¹ x."""
        return self._solved(x, transposed=False)

    def _times(self, L: Array, x: Array) -> Array:
        of_blocks = x.reshape(self.n // L.shape[1], L.shape[1], -1)
        return np.asarray(L @ of_blocks).reshape(x.shape)

    def _solved(self, x: Array, *, transposed: bool) -> Array:
        b = self.L.shape[1]
        of_blocks = x.reshape(self.n // b, b, -1)
        if len(self.L) == 1:  # all right-hand sides at once
            columns = of_blocks.swapaxes(0, 1).reshape(b, -1)
            solved = solve_triangular(self.L[0], columns, lower=True, trans=transposed)
            return solved.reshape(b, len(of_blocks), -1).swapaxes(0, 1).reshape(x.shape)
        L = self.L.swapaxes(1, 2) if transposed else self.L
        return np.asarray(np.linalg.solve(L, of_blocks)).reshape(x.shape)


class UpdatedFactor:
    """A factor of A + U S Uᵀ, from a factor of A = R Rᵀ and a U, (n, k), with few columns.

    `of` makes one. With R⁻¹ U = G H, where G has orthonormal columns, and N Nᵀ = I + H S Hᵀ,

        A + U S Uᵀ = R C Cᵀ Rᵀ,   C = I + G (N − I) Gᵀ,   C⁻¹ = I + G (N⁻¹ − I) Gᵀ.

    S may have negative eigenvalues, as long as the sum is positive definite. `of` costs k solves
    with R and O(n k²) operations; a product or a solve costs O(n k) more than one with R.
    """

    def __init__(self, factor: Factor, G: Array, N: Array):
        self.base, self._G, self._N = factor, G, N

    @classmethod
    def of(cls, factor: Factor, U: Array, S: Array) -> UpdatedFactor | None:
        """Return one, or ``None`` if the sum is not positive definite. S has the shape (k, k)."""
        return cls.of_whitened(factor, factor.solve(U), S)

    @classmethod
    def of_whitened(cls, factor: Factor, whitened: Array, S: Array) -> UpdatedFactor | None:
        """Do as `of`, from R⁻¹ U instead of U."""
        G, H = np.linalg.qr(whitened)
        try:
            N = np.linalg.cholesky(np.eye(len(H)) + H @ S @ H.T)
        except np.linalg.LinAlgError:
            return None
        return cls(factor, G, N) if np.isfinite(N).all() else None

    @cached_property
    def log_determinant(self) -> float:
        """log|A + U S Uᵀ| = log|A| + 2 log|N|."""
        return self.base.log_determinant + 2.0 * float(np.log(np.diag(self._N)).sum())

    @cached_property
    def downdate(self) -> tuple[Array, Array]:
        """Z, shape (n, k), and D with (A + U S Uᵀ)⁻¹ = A⁻¹ − Z D Zᵀ.

        If x is constrained, A⁻¹ is the inverse without the constraints.
        """
        inverse = self._inverse
        D = np.eye(len(inverse)) - inverse.T @ inverse
        if not isinstance(self.base, ConstrainedFactor):
            return self.base.solve_transposed(self._G), D
        base, space = self.base.base, self.base.space
        both = np.hstack([space.normals, space.extend(self._G)])
        return base.solve_transposed(both), block_diag(np.eye(space.k), D)

    @property
    def inverse_diagonal(self) -> Array:
        """Diagonal of (A + U S Uᵀ)⁻¹."""
        Z, D = self.downdate
        base = self.base.base if isinstance(self.base, ConstrainedFactor) else self.base
        result: Array = base.inverse_diagonal - np.einsum("ij,ij->i", Z @ D, Z)
        return result

    def solve(self, x: Array) -> Array:
        """C⁻¹ R⁻¹ x."""
        return self._along(self.base.solve(x), self._inverse)

    def solve_transposed(self, xi: Array) -> Array:
        """R⁻ᵀ C⁻ᵀ ξ."""
        return self.base.solve_transposed(self._along(xi, self._inverse.T))

    def multiply(self, xi: Array) -> Array:
        """R C ξ."""
        return self.base.multiply(self._along(xi, self._N))

    def multiply_transposed(self, x: Array) -> Array:
        """Cᵀ Rᵀ x."""
        return self._along(self.base.multiply_transposed(x), self._N.T)

    @cached_property
    def _inverse(self) -> Array:
        # Not by LAPACK: for two rows its threads took 7 ms on a busy machine.
        return _inverse_of_lower(self._N)

    def _along(self, y: Array, N: Array) -> Array:
        """(I + G (N − I) Gᵀ) y, for any N of this shape."""
        in_G = self._G.T @ y
        result: Array = y + self._G @ (N @ in_G - in_G)
        return result


@numba.njit(cache=True)
def _inverse_of_lower(N: Array) -> Array:
    """N⁻¹ of a small lower triangular N."""
    k = len(N)
    out = np.zeros((k, k))
    for j in range(k):
        out[j, j] = 1.0 / N[j, j]
        for i in range(j + 1, k):
            total = 0.0
            for m in range(j, i):
                total -= N[i, m] * out[m, j]
            out[i, j] = total / N[i, i]
    return out


# Linear constraints


class Constraints:
    """Coordinates z of the space Cᵀ x = 0: x = E z with orthonormal columns E.

    E is all but the first k columns of H = I − V T Vᵀ, where C = H (R, 0). H is a product of
    Householder reflections, one per constraint. So E z costs O(n k), and no n × n array is made
    (Golub and Van Loan 2013, section 5.2).

    Parameters
    ----------
    C : ndarray, shape (n, k)
        A column per constraint, linearly independent.

    Attributes
    ----------
    n, k : int
    V, T : ndarray, shape (n, k) and (k, k)
        The product of reflections H in compact form. Schreiber and Van Loan (1989), *A
        storage-efficient WY representation for products of Householder transformations*, SIAM
        Journal on Scientific and Statistical Computing 10.
    log_volume : float
        ½ log|Cᵀ C|.
    """

    def __init__(self, C: Array):
        self.n, self.k = C.shape
        packed, tau = np.zeros((self.n, 0)), np.zeros(0)
        if self.k:
            packed, tau, _, _ = lapack.dgeqrf(C)
        with np.errstate(divide="ignore"):
            self.log_volume = float(np.log(np.abs(np.diagonal(packed)[: self.k])).sum())
        V = self.V = np.tril(packed, -1)
        V[np.arange(self.k), np.arange(self.k)] = 1.0
        VV = V.T @ V
        T = self.T = np.diag(tau[: self.k])
        for j in range(1, self.k):
            T[:j, j] = -tau[j] * (T[:j, :j] @ VV[:j, j])

    @cached_property
    def normals(self) -> Array:
        """Orthonormal columns that span those of C, (n, k)."""
        return self._reflected(np.eye(self.n, self.k))

    def extend(self, z: Array) -> Array:
        """E z, for a vector or columns: (n − k, ...) -> (n, ...)."""
        return self._reflected(np.concatenate([np.zeros((self.k, *z.shape[1:])), z]))

    def reduce(self, x: Array) -> Array:
        """Eᵀ x, for a vector or columns: (n, ...) -> (n − k, ...)."""
        reflected_back: Array = x - self.V @ (self.T.T @ (self.V.T @ x))
        return reflected_back[self.k :]

    def _reflected(self, y: Array) -> Array:
        """H y."""
        result: Array = y - self.V @ (self.T @ (self.V.T @ y))
        return result


class ConstrainedFactor:
    """A factor of Eᵀ A E, the precision of z if x = E z has the precision A = R Rᵀ.

    ξ has k elements fewer than x. With y = Rᵀ x the constraints are Kᵀ y = 0, K = R⁻¹ C, and y is
    standard normal in that space: y = F ξ with the coordinates F of `Constraints`.

    Parameters
    ----------
    base : Factor
        A factor of A, which is positive definite.
    K : ndarray, shape (n, k)
        R⁻¹ C, where C has orthonormal columns.

    Attributes
    ----------
    space : Constraints
        The coordinates F.
    """

    def __init__(self, base: Factor, K: Array):
        self.base, self.space = base, Constraints(K)

    @property
    def log_determinant(self) -> float:
        """log|Eᵀ A E| = log|A| + log|Cᵀ A⁻¹ C|."""
        return self.base.log_determinant + 2.0 * self.space.log_volume

    @cached_property
    def downdate(self) -> tuple[Array, Array]:
        """Z, shape (n, k), and D = I with E (Eᵀ A E)⁻¹ Eᵀ = A⁻¹ − Z D Zᵀ."""
        return self.base.solve_transposed(self.space.normals), np.eye(self.space.k)

    @property
    def inverse_diagonal(self) -> Array:
        """Variances of x."""
        Z, _ = self.downdate
        result: Array = self.base.inverse_diagonal - np.einsum("ij,ij->i", Z, Z)
        return result

    def solve(self, x: Array) -> Array:
        """Fᵀ R⁻¹ x."""
        return self.space.reduce(self.base.solve(x))

    def solve_transposed(self, xi: Array) -> Array:
        """R⁻ᵀ F ξ."""
        return self.base.solve_transposed(self.space.extend(xi))

    def multiply(self, xi: Array) -> Array:
        """R F ξ."""
        return self.base.multiply(self.space.extend(xi))

    def multiply_transposed(self, x: Array) -> Array:
        """Fᵀ Rᵀ x."""
        return self.space.reduce(self.base.multiply_transposed(x))


def constrained_and_updated(
    factor: Factor, C: Array, U: Array, S: Array
) -> Factor | ConstrainedFactor | UpdatedFactor | None:
    """A factor of A + U S Uᵀ on Cᵀ x = 0, with one solve for the columns of both.

    C has orthonormal columns, and may have none, as U may. ``None`` if the sum is not positive
    definite there.
    """
    k = C.shape[1]
    if not k + U.shape[1]:
        return factor
    whitened = factor.solve(np.hstack([C, U]))
    if not k:
        return UpdatedFactor.of_whitened(factor, whitened, S)
    constrained = ConstrainedFactor(factor, whitened[:, :k])
    if not U.shape[1]:
        return constrained
    return UpdatedFactor.of_whitened(constrained, constrained.space.reduce(whitened[:, k:]), S)


class ScaledFactor:
    """A factor of A / s², from a factor of A.

    Parameters
    ----------
    base : Root
    scale : float
        s.
    rank : int
        r, the number of elements of ξ.
    """

    def __init__(self, base: Root, scale: float, rank: int):
        self.base, self._scale, self._rank = base, scale, rank

    @property
    def log_determinant(self) -> float:
        """log|A| − 2 r log s."""
        return self.base.log_determinant - 2.0 * self._rank * float(np.log(self._scale))

    def solve(self, x: Array) -> Array:
        """s R⁻¹ x."""
        return self._scale * self.base.solve(x)

    def solve_transposed(self, xi: Array) -> Array:
        """s R⁻ᵀ ξ."""
        return self._scale * self.base.solve_transposed(xi)

    def multiply(self, xi: Array) -> Array:
        """R ξ / s."""
        return self.base.multiply(xi) / self._scale

    def multiply_transposed(self, x: Array) -> Array:
        """Rᵀ x / s."""
        return self.base.multiply_transposed(x) / self._scale


class FactorInBasis:
    """A factor of the precision of x = B z, from a factor R Rᵀ of the precision of z.

    Parameters
    ----------
    base : Factor
    B : sparse array, shape (n, m)
        With orthonormal columns. The coordinates that an element of x reads must be independent, so
        that its variance is a sum of theirs.
    """

    def __init__(self, base: Factor, B: csr_array):
        self.base, self._B = base, B

    @property
    def log_determinant(self) -> float:
        """The log determinant of the precision of z."""
        return self.base.log_determinant

    @property
    def inverse_diagonal(self) -> Array:
        """Variances of x."""
        return np.asarray(self._B.multiply(self._B) @ self.base.inverse_diagonal)

    def solve(self, x: Array) -> Array:
        """R⁻¹ Bᵀ x."""
        return self.base.solve(self._B.T @ x)

    def solve_transposed(self, xi: Array) -> Array:
        """B R⁻ᵀ ξ."""
        return np.asarray(self._B @ self.base.solve_transposed(xi))

    def multiply(self, xi: Array) -> Array:
        """B R ξ."""
        return np.asarray(self._B @ self.base.multiply(xi))

    def multiply_transposed(self, x: Array) -> Array:
        """Rᵀ Bᵀ x."""
        return self.base.multiply_transposed(self._B.T @ x)
