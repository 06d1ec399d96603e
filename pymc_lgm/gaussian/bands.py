"""Algebra of banded matrices with few diagonals, and their inverses on the band.

Series have such matrices: the precision of an autoregression of order b has bandwidth b.

A lower triangular or symmetric matrix M of bandwidth b is an array of shape (b + 1, n) with
M[j + k, j] at (k, j), as in LAPACK. The array's entries that are beyond the last row of M are 0.
A function costs O(n b) operations per column of x, or O(n b²) without an x.

The functions are loops, because LAPACK calls a routine of BLAS for each column of M, and the call
takes longer than the few operations in it. By hand, for n = 1000, `cholesky` takes 0.4 of LAPACK's
time if b is 1 or 2, the same time if b is 4, and twice the time if b is 8.
"""

from __future__ import annotations

import math

from dataclasses import dataclass
from functools import cached_property

import numba
import numpy as np

from pymc_lgm.linalg import Array

__all__ = [
    "BandFactor",
    "WhitenerFactor",
    "cholesky",
    "flipped",
    "gram",
    "inverse_on_band",
    "multiply",
    "multiply_transposed",
    "outer",
    "product_on_band",
    "solve",
    "solve_transposed",
]


def multiply(T: Array, x: Array) -> Array:
    """T x, for a vector (n,) or columns (n, N)."""
    y: Array = _scaled(T[0], x)
    for k in range(1, len(T)):
        y[k:] += _scaled(T[k, :-k], x[:-k])
    return y


def multiply_transposed(T: Array, x: Array) -> Array:
    """Tᵀ x."""
    y: Array = _scaled(T[0], x)
    for k in range(1, len(T)):
        y[:-k] += _scaled(T[k, :-k], x[k:])
    return y


def _scaled(d: Array, x: Array) -> Array:
    return d * x if x.ndim == 1 else d[:, None] * x


def solve(T: Array, x: Array) -> Array:
    """T⁻¹ x, for a T without a zero on its diagonal."""
    solution = np.array(x.reshape(len(x), -1), order="F")
    _solve(T, solution)
    return solution.reshape(x.shape)


def solve_transposed(T: Array, x: Array) -> Array:
    """T⁻ᵀ x."""
    solution = np.array(x.reshape(len(x), -1), order="F")
    _solve_transposed(T, solution)
    return solution.reshape(x.shape)


# The last term of each sum is the one of the element that has just been computed, so that the
# processor can add the other terms before this element is ready.


@numba.njit(cache=True, error_model="numpy", fastmath={"contract"})
def _solve(T: Array, x: Array) -> None:
    width, n = T.shape
    for column in range(x.shape[1]):
        for j in range(n):
            inverse = 1.0 / T[0, j]
            total = x[j, column] * inverse
            for k in range(min(width - 1, j), 0, -1):
                total -= (T[k, j - k] * inverse) * x[j - k, column]
            x[j, column] = total


@numba.njit(cache=True, error_model="numpy", fastmath={"contract"})
def _solve_transposed(T: Array, x: Array) -> None:
    width, n = T.shape
    for column in range(x.shape[1]):
        for j in range(n - 1, -1, -1):
            inverse = 1.0 / T[0, j]
            total = x[j, column] * inverse
            for k in range(min(width, n - j) - 1, 0, -1):
                total -= (T[k, j] * inverse) * x[j + k, column]
            x[j, column] = total


@numba.njit(cache=True)
def gram(T: Array) -> Array:
    """TᵀT, symmetric of the same bandwidth."""
    width, n = T.shape
    Q = np.zeros((width, n))
    for j in range(n):
        for k in range(min(width, n - j)):
            for row in range(k, min(width, n - j)):
                Q[k, j] += T[row, j] * T[row - k, j + k]
    return Q


def cholesky(A: Array) -> Array | None:
    """L with A = L Lᵀ, lower triangular; ``None`` if A is not numerically positive definite."""
    L = np.array(A)
    return L if _factorize(L) and np.isfinite(L[0].sum()) else None


@numba.njit(cache=True, error_model="numpy")
def _factorize(L: Array) -> bool:
    """Factorize in place; return whether the matrix is positive definite.

    With D the squares of L's diagonal, L D^½ is computed first, which needs no square roots. If a
    column needed one, the next column would have to wait for it.
    """
    width, n = L.shape
    inverse = np.empty(n)
    if not (_factorize_chain(L, inverse) if width == 2 else _factorize_band(L, inverse)):
        return False
    for j in range(n):
        inverse[j] = math.sqrt(inverse[j])
    for k in range(width):
        for j in range(n):
            L[k, j] *= inverse[j]
    return True


@numba.njit(cache=True, error_model="numpy")
def _factorize_band(L: Array, inverse: Array) -> bool:
    """Overwrite A by L D^½, and ``inverse`` by D⁻¹."""
    width, n = L.shape
    for j in range(n):
        for k in range(min(width, n - j)):
            for i in range(min(width - 1 - k, j), 0, -1):
                L[k, j] -= (L[k + i, j - i] * L[i, j - i]) * inverse[j - i]
        if not L[0, j] > 0.0:
            return False
        inverse[j] = 1.0 / L[0, j]
    return True


@numba.njit(cache=True, error_model="numpy")
def _factorize_chain(L: Array, inverse: Array) -> bool:
    """Do as `_factorize_band` for bandwidth 1: the same results in half of the time.

    A column changes only the diagonal element of the next one, which stays in a register.
    """
    n, pivot = L.shape[1], L[0, 0]
    for j in range(n):
        if not pivot > 0.0:
            return False
        L[0, j], inverse[j] = pivot, 1.0 / pivot
        if j + 1 < n:
            pivot = L[0, j + 1] - (L[1, j] * L[1, j]) * inverse[j]
    return True


def flipped(T: Array) -> Array:
    """L = J Tᵀ J, where J reverses the order of elements.

    L is lower triangular, and J TᵀT J = L Lᵀ. So a function of L Lᵀ serves for TᵀT, too.
    """
    L = np.zeros_like(T)
    n = T.shape[1]
    for k in range(len(T)):
        L[k, : n - k] = T[k, : n - k][::-1]
    return L


@numba.njit(cache=True)
def inverse_on_band(L: Array) -> Array:
    """S = (L Lᵀ)⁻¹ on the band of L: O(n b²) operations (Takahashi, Fagan and Chen 1973).

    S L = L⁻ᵀ is upper triangular with 1 / L_jj on its diagonal. So column j of S follows from the
    columns after it, and only from their elements on the band,

        S_ij = (δ_ij / L_jj − Σ_{k=j+1}^{j+b} S_ik L_kj) / L_jj,   i ≥ j.
    """
    width, n = L.shape
    out = np.zeros((width, n))
    for j in range(n - 1, -1, -1):
        last = min(width - 1, n - 1 - j)
        for i in range(last, -1, -1):
            total = 1.0 / L[0, j] if i == 0 else 0.0
            for k in range(1, last + 1):
                total -= L[k, j] * out[abs(i - k), j + min(i, k)]
            out[i, j] = total / L[0, j]
    return out


def outer(x: Array, y: Array, width: int) -> Array:
    """x yᵀ on a lower band of ``width`` diagonals."""
    M = np.zeros((width, x.size))
    for k in range(width):
        M[k, : x.size - k] = x[k:] * y[: x.size - k]
    return M


@numba.njit(cache=True)
def product_on_band(T: Array, S: Array) -> Array:
    """T S on the band of T, from a symmetric S on the same band.

    It is exact if S is the band of a full matrix: (T S)_ij = Σ_k T_ik S_kj for i − b ≤ j ≤ i needs
    k from i − b to i only, and these S_kj are on the band.
    """
    width, n = T.shape
    out = np.zeros((width, n))
    for j in range(n):
        for i in range(j, min(j + width, n)):
            for k in range(max(0, i - width + 1), i + 1):
                out[i - j, j] += T[i - k, k] * S[abs(k - j), min(k, j)]
    return out


# Factors of a banded precision


@dataclass(frozen=True, eq=False)
class BandFactor:
    """A = T Tᵀ, with a lower triangular band matrix T. Its methods are those of a `Factor`.

    A method costs O(n b) operations per column of x.

    Attributes
    ----------
    T : ndarray, shape (b + 1, n)
    """

    T: Array

    @cached_property
    def log_determinant(self) -> float:
        """log|A|."""
        return 2.0 * float(np.log(self.T[0]).sum())

    def solve(self, x: Array) -> Array:
        """T⁻¹ x."""
        return solve(self.T, x)

    def solve_transposed(self, x: Array) -> Array:
        """T⁻ᵀ x."""
        return solve_transposed(self.T, x)

    def multiply(self, x: Array) -> Array:
        """T x."""
        return multiply(self.T, x)

    def multiply_transposed(self, x: Array) -> Array:
        """Tᵀ x."""
        return multiply_transposed(self.T, x)

    @cached_property
    def inverse_on_band(self) -> Array:
        """A⁻¹ on the band of A: O(n b²)."""
        return inverse_on_band(self.T)

    @property
    def inverse_diagonal(self) -> Array:
        """(A⁻¹)_ii."""
        result: Array = self.inverse_on_band[0]
        return result


class WhitenerFactor(BandFactor):
    """Q = TᵀT, with the root Tᵀ, where a `BandFactor` has the root T.

    T whitens a series: T x = u + ε with ε ~ N(0, I). So Q is the precision of x, and m = T⁻¹ u its
    mean.
    """

    solve, solve_transposed = BandFactor.solve_transposed, BandFactor.solve
    multiply, multiply_transposed = BandFactor.multiply_transposed, BandFactor.multiply

    @classmethod
    def of(cls, T: Array) -> WhitenerFactor | None:
        """The factor of TᵀT; ``None`` if T is not finite or its diagonal is not positive."""
        return cls(T) if np.isfinite(T).all() and (T[0] > 0.0).all() else None

    def mean(self, u: Array) -> Array | None:
        """m; ``None`` if it is not finite."""
        mean = solve(self.T, u)
        return mean if np.isfinite(mean).all() else None

    def vjp(self, M: Array, mean: Array, v: Array) -> tuple[Array, Array]:
        """Derivatives of ½ ⟨M, Q⟩ + ⟨v, m⟩ in T and in u, with a symmetric M on the band.

        They are T M − w mᵀ on the band, and w = T⁻ᵀ v, because ∂Q = ∂Tᵀ T + Tᵀ ∂T and
        ∂m = T⁻¹ (∂u − ∂T m).
        """
        of_u = self.solve(v)
        return product_on_band(self.T, M) - outer(of_u, mean, len(self.T)), of_u

    @cached_property
    def product(self) -> Array:
        """Q on the band of T."""
        return gram(np.ascontiguousarray(self.T))  # Numba compiles for one layout

    @cached_property
    def inverse_on_band(self) -> Array:
        """Q⁻¹ on the band of T."""
        reversed_K = inverse_on_band(flipped(self.T))
        # Entry (j + k, j) of the reversed matrix is (n − 1 − j, n − 1 − j − k) of K.
        return flipped(reversed_K)
