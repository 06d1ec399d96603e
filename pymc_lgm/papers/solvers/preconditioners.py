"""Preconditioners of a kernel system: P near A with a cheap inverse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from scipy.linalg import cho_solve, cholesky, solve_triangular

from pymc_lgm.linalg import Array

__all__ = ["Identity", "LowRankAndBlocks", "Preconditioner"]


class Preconditioner(Protocol):
    """P, symmetric and positive definite.

    Attributes
    ----------
    is_linear : bool
        Whether P⁻¹ is linear. It is not if an iteration computes it.
    log_determinant : float or None
        log|P|, or ``None`` if it is not known. Then P has no draws.
    """

    @property
    def is_linear(self) -> bool:
        """Whether P⁻¹ is linear."""

    @property
    def log_determinant(self) -> float | None:
        """log|P|, if it is known."""

    def solve(self, V: Array) -> Array:
        """P⁻¹ V, for columns (n, N)."""

    def draw(self, rng: np.random.Generator, count: int) -> Array:
        """Columns z, (n, N), with E z zᵀ = P."""


class Identity:
    """P = I: no preconditioner. Its draws have elements ±1."""

    is_linear = True
    log_determinant: float | None = 0.0

    def __init__(self, n: int):
        self.n = n

    def solve(self, V: Array) -> Array:
        """V."""
        return V

    def draw(self, rng: np.random.Generator, count: int) -> Array:
        """Random signs: zᵀA z has the smallest variance among z with E z zᵀ = I."""
        signs: Array = 2.0 * rng.integers(2, size=(self.n, count)).astype(float) - 1.0
        return signs


class LowRankAndBlocks:
    """P = D + U Uᵀ, with D diagonal or block diagonal and U of few columns.

    By Woodbury's identity and the matrix determinant lemma

        P⁻¹ = D⁻¹ − D⁻¹ U (I + Uᵀ D⁻¹ U)⁻¹ Uᵀ D⁻¹,   log|P| = log|D| + log|I + Uᵀ D⁻¹ U|.

    With K̂ = Φ Φᵀ and D = λ I this is λ⁻¹ [I − Φ (λ I + ΦᵀΦ)⁻¹ Φᵀ], and with Nyström's Φ = K_XU
    L⁻ᵀ, L Lᵀ = K_UU, λ⁻¹ [I − K_XU (λ K_UU + K_UX K_XU)⁻¹ K_UX]. Cutajar et al. (2016) omit λ in
    both brackets. In Laplace's B = I + W^½ K W^½, D = I and U = W^½ Φ.

    Parameters
    ----------
    blocks : ndarray, shape (n,), or sequence of ndarray
        The diagonal of D, or its blocks in order.
    U : ndarray, shape (n, m)

    Notes
    -----
    O(n m²) once, and O(n b²) more with blocks of b rows. Then O(n m + n b) per column.

    Raises
    ------
    numpy.linalg.LinAlgError
        If a block is not positive definite.
    """

    is_linear = True

    def __init__(self, blocks: Array | Sequence[Array], U: Array):
        self.U = U
        self._roots: Array | list[Array]
        if isinstance(blocks, np.ndarray):
            if not (blocks > 0.0).all():
                raise np.linalg.LinAlgError("The diagonal of a preconditioner is not positive.")
            self._roots = np.sqrt(blocks)
            logs = float(np.log(blocks).sum())
        else:
            self._roots = [cholesky(block, lower=True) for block in blocks]
            logs = 2.0 * sum(float(np.log(root.diagonal()).sum()) for root in self._roots)
        self._V = self._whitened(U)
        self._inner = cholesky(np.eye(U.shape[1]) + self._V.T @ self._V, lower=True)
        self.log_determinant: float | None
        self.log_determinant = logs + 2.0 * float(np.log(self._inner.diagonal()).sum())

    def _each(self, x: Array, inverse: bool, transposed: bool = False) -> Array:
        """D^½ x or D^−½ x, block by block."""
        if isinstance(self._roots, np.ndarray):
            roots = self._roots[:, None]
            return x / roots if inverse else x * roots
        result = np.empty_like(x)
        start = 0
        for root in self._roots:
            part = slice(start, start + len(root))
            if inverse:
                result[part] = solve_triangular(
                    root, x[part], lower=True, trans=int(transposed), check_finite=False
                )
            else:
                result[part] = root @ x[part]
            start += len(root)
        return result

    def _whitened(self, x: Array) -> Array:
        return self._each(x, inverse=True)

    def solve(self, V: Array) -> Array:
        """P⁻¹ V, with V whitened by D first: P = D^½ (I + V Vᵀ) D^½ᵀ."""
        x = self._whitened(V)
        x = x - self._V @ cho_solve((self._inner, True), self._V.T @ x, check_finite=False)
        return self._each(x, inverse=True, transposed=True)

    def draw(self, rng: np.random.Generator, count: int) -> Array:
        """Normal draws D^½ ε + U ε'."""
        n, m = self.U.shape
        own = self._each(rng.standard_normal((n, count)), inverse=False)
        return own + self.U @ rng.standard_normal((m, count))
