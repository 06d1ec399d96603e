"""W, the precision of Gaussian sites: a diagonal matrix, or a block for each set of f_i.

If each observation reads one f_i, W is a vector. If an observation reads several, such as one
latent variable per class, f is divided into sets such that each observation reads elements of one
set only. Then W has a block for each set: `SiteBlocks`, or `ClassBlocks` for the curvature of a
softmax. A posterior uses W through W x and W^½ x.
"""

from __future__ import annotations

import math

from dataclasses import dataclass, replace
from functools import cached_property

import numba
import numpy as np

from numpy.typing import NDArray

from pymc_lgm.linalg import Array

__all__ = [
    "ClassBlocks",
    "Diagonal",
    "Precision",
    "SiteBlocks",
    "add_columns",
    "are_nonnegative",
    "as_operator",
    "cholesky_factors",
    "congruent",
    "diagonal",
    "eigenvalues",
    "gathered",
    "is_finite",
    "lerp",
    "negative_part",
    "nonnegative",
    "scattered",
]

SINGULAR = 1e-6
"""Eigenvalue of a block, relative to the largest, that may be a rounding error. It is a choice."""

TINY = 1e-10
"""Smallest eigenvalue of a block of `nonnegative` if the elements of all blocks are below 1e-4."""


@dataclass(frozen=True, eq=False)
class SiteBlocks:
    """W with W_ij = 0 if f_i and f_j are in different sets.

    Attributes
    ----------
    sets : ndarray of int, shape (G, s)
        The f_i in each set, every f_i once. A smaller set is padded with −1.
    values : ndarray, shape (G, s, s)
        The block of each set, symmetric; padded with an identity.

    Examples
    --------
    >>> import numpy as np
    >>> values = np.array([[[2.0, 1.0], [1.0, 2.0]], [[3.0, 0.0], [0.0, 1.0]]])
    >>> W = SiteBlocks(np.array([[0, 2], [1, -1]]), values)  # f_1 is alone
    >>> W.times(np.array([1.0, 10.0, 100.0]))
    array([102.,  30., 201.])
    """

    sets: NDArray[np.intp]
    values: Array

    @classmethod
    def of_products(cls, sets: NDArray[np.intp], products: Array) -> SiteBlocks:
        """The blocks of a matrix M, symmetrized, from its products with s vectors.

        Row k of ``products``, (s, n), is M v_k, where v_k is 1 at the k-th element of every set and
        0 elsewhere.
        """
        M = products[:, sets]  # (s, G, s)
        values = 0.5 * np.add(M.transpose(1, 2, 0), M.transpose(1, 0, 2), order="C")
        return cls(sets, values).like(values)

    def times(self, x: Array) -> Array:
        """W x, for a vector (n,) or columns (n, N)."""
        return self._through(x)

    def root_times(self, x: Array) -> Array:
        """W^½ x, with the symmetric root."""
        return replace(self, values=self._root)._through(x)

    def _through(self, x: Array) -> Array:
        columns = np.ascontiguousarray(x).reshape(len(x), -1)
        out = np.empty(columns.shape)
        _times(np.ascontiguousarray(self.sets), np.ascontiguousarray(self.values), columns, out)
        return out.reshape(x.shape)

    def like(self, values: Array) -> SiteBlocks:
        """Blocks of this kind with these values, or with the nearest that the kind can have."""
        if (self.sets < 0).any():
            values = np.where(self.filling, np.eye(self.sets.shape[1]), values)
        return replace(self, values=values)

    def lerp(self, other: SiteBlocks, share: float) -> SiteBlocks:
        """W + share (V − W)."""
        return replace(self, values=self.values + share * (other.values - self.values))

    @property
    def minus_rank_one(self) -> tuple[Array, Array, Array] | None:
        """D > 0, v and 1 − |v_g|² with W_g = D_g^½ (I − v_g v_gᵀ) D_g^½.

        Shapes (G, s), (G, s) and (G,). They exist for all positive definite blocks of two f_i;
        ``None`` if they do not.
        """
        if self.sets.shape[1] != 2 or (self.sets < 0).any():
            return None
        # W_g = D − u uᵀ with −u_1 u_2 = b.
        b = self.values[:, 0, 1]
        u = np.stack([np.sqrt(np.abs(b)), -np.sign(b) * np.sqrt(np.abs(b))], axis=1)
        D = np.einsum("gii->gi", self.values) + u**2
        determinant = self.values[:, 0, 0] * self.values[:, 1, 1] - b**2
        if not ((D > 0.0).all() and (determinant > 0.0).all()):
            return None
        return D, u / np.sqrt(D), determinant / D.prod(axis=1)

    @cached_property
    def n(self) -> int:
        """Number of elements of f."""
        return int((self.sets >= 0).sum())

    @cached_property
    def spectrum(self) -> tuple[Array, Array]:
        """Eigenvalues (G, s) and eigenvectors of the blocks."""
        eigenvalues, vectors = np.linalg.eigh(self.values)
        return eigenvalues, vectors

    @cached_property
    def _root(self) -> Array:
        """W^½, which exists also if a block is singular."""
        eigenvalues, vectors = self.spectrum
        scaled = vectors * np.sqrt(np.maximum(eigenvalues, 0.0))[:, None, :]
        root: Array = scaled @ vectors.swapaxes(1, 2)
        return root

    @cached_property
    def _inverse_root(self) -> Array:
        """W^−½; NaN for a block that is singular, perhaps only by rounding."""
        eigenvalues, vectors = self.spectrum
        inverse = 1.0 / np.sqrt(np.where(eigenvalues > 0.0, eigenvalues, np.nan))
        root: Array = (vectors * inverse[:, None, :]) @ vectors.swapaxes(1, 2)
        return root

    def blocks_of(self, M: Array) -> Array:
        """The blocks of an n × n array on the same sets, padded as those of W."""
        blocks = M[self.sets[:, :, None], self.sets[:, None, :]]
        return np.where(self.filling, np.eye(self.sets.shape[1]), blocks)

    def covariances(self, inverse: Array) -> Array:
        """Σ's blocks from B⁻¹ = I − W^½ Σ W^½; NaN if a block of W is singular."""
        identity, root = np.eye(self.sets.shape[1]), self._inverse_root
        sigma = root @ (identity - self.blocks_of(inverse)) @ root
        return np.where(self.filling, identity, sigma)

    def diagonal(self, blocks: Array) -> Array:
        """The diagonal of an n × n array from its blocks on the sets, shape (n,)."""
        return scattered(self.sets, np.einsum("gii->gi", blocks), self.n)

    @cached_property
    def filling(self) -> NDArray[np.bool_]:
        """Where a set is padded, shape (G, s, s)."""
        beyond = self.sets < 0
        filling: NDArray[np.bool_] = beyond[:, :, None] | beyond[:, None, :]
        return filling

    def at_least(self, least: float, scale: Array) -> SiteBlocks:
        """W such that no eigenvalue of s_i W_ij s_j is below ``least``, where s is ``scale``, (n,).

        Eigenvectors stay as they are, and only smaller eigenvalues are raised.
        """
        s = gathered(self.sets, scale)
        s[self.sets < 0] = 1.0
        both = s[:, :, None] * s[:, None, :]
        scaled = both * self.values
        low = ~are_nonnegative(scaled - least * np.eye(s.shape[1]))
        if not low.any():
            return self
        eigenvalues, vectors = np.linalg.eigh(scaled[low])
        raised = (vectors * np.maximum(eigenvalues, least)[:, None, :]) @ vectors.swapaxes(1, 2)
        values = self.values.copy()
        values[low] = np.where(self.filling[low], values[low], raised / both[low])
        return replace(self, values=values)


class Diagonal:
    """W as a diagonal matrix."""

    def __init__(self, values: Array):
        self.values = values

    @cached_property
    def _root(self) -> Array:
        return np.sqrt(self.values)

    def times(self, x: Array) -> Array:
        """W x."""
        result: Array = (self.values if x.ndim == 1 else self.values[:, None]) * x
        return result

    def root_times(self, x: Array) -> Array:
        """W^½ x."""
        result: Array = (self._root if x.ndim == 1 else self._root[:, None]) * x
        return result


Precision = Array | SiteBlocks
"""W, as a diagonal (n,) or as blocks."""


def as_operator(W: Precision) -> Diagonal | SiteBlocks:
    """Return W as an object with the products W x and W^½ x."""
    return W if isinstance(W, SiteBlocks) else Diagonal(W)


def diagonal(W: Precision) -> Array:
    """W_ii, shape (n,)."""
    return W.diagonal(W.values) if isinstance(W, SiteBlocks) else W


def nonnegative(W: Precision, *, singular: bool = False) -> Precision:
    """W with negative values replaced by 0; blocks are positive definite unless ``singular``."""
    if isinstance(W, SiteBlocks):
        least = 0.0 if singular else max(SINGULAR * np.abs(W.values).max(), TINY)
        return W.at_least(least, np.ones(W.n))
    return np.maximum(W, 0.0)


def negative_part(W: Precision) -> Array:
    """E, shape (n, r), such that W + E Eᵀ is W with its negative values replaced by 0.

    It has a column for each negative W_i, or for each negative eigenvalue of a block. Eigenvalues
    that may be rounding errors count as 0.
    """
    if not isinstance(W, SiteBlocks):
        (i,) = np.nonzero(W < 0.0)
        E = np.zeros((W.size, i.size))
        E[i, np.arange(i.size)] = np.sqrt(-W[i])
        return E
    eigenvalues, vectors = W.spectrum
    largest = np.abs(eigenvalues).max(axis=1, keepdims=True)
    g, k = np.nonzero(eigenvalues < -SINGULAR * largest)
    E = np.zeros((W.n + 1, g.size))  # the last row, with index −1, is for the padding
    E[W.sets[g].T, np.arange(g.size)] = (vectors[g, :, k] * np.sqrt(-eigenvalues[g, k])[:, None]).T
    return E[:-1]


def lerp(W: Precision, V: Precision, share: float) -> Precision:
    """W + share (V − W)."""
    if isinstance(W, SiteBlocks):
        assert isinstance(V, SiteBlocks)
        return W.lerp(V, share)
    assert not isinstance(V, SiteBlocks)
    return W + share * (V - W)


def is_finite(W: Precision) -> bool:
    """Whether W is finite."""
    return bool(np.isfinite(W.values if isinstance(W, SiteBlocks) else W).all())


def gathered(sets: NDArray[np.intp], x: Array) -> Array:
    """Elements of a vector or rows of columns by set, (G, s) or (G, s, N), padded with 0."""
    rows: Array = x[sets]
    rows[sets < 0] = 0.0
    return rows


def scattered(sets: NDArray[np.intp], by_set: Array, n: int) -> Array:
    """The inverse of `gathered`."""
    rows = np.ascontiguousarray(by_set).reshape(*sets.shape, -1)
    columns = np.empty((n, rows.shape[2]))
    _scatter(np.ascontiguousarray(sets), rows, columns)
    return columns.reshape(n, *by_set.shape[2:])


@numba.njit(cache=True)
def _scatter(sets: NDArray[np.intp], rows: Array, columns: Array) -> None:
    for g in range(sets.shape[0]):
        for i in range(sets.shape[1]):
            if sets[g, i] >= 0:
                for c in range(columns.shape[1]):
                    columns[sets[g, i], c] = rows[g, i, c]


@numba.njit(cache=True)
def _times(sets: NDArray[np.intp], blocks: Array, columns: Array, out: Array) -> None:
    (G, s), N = sets.shape, columns.shape[1]
    for g in range(G):
        for i in range(s):
            if sets[g, i] >= 0:
                for c in range(N):
                    total = 0.0
                    for j in range(s):
                        if sets[g, j] >= 0:
                            total += blocks[g, i, j] * columns[sets[g, j], c]
                    out[sets[g, i], c] = total


@numba.njit(cache=True)
def add_columns(columns: Array, index: NDArray[np.intp], out: Array) -> None:
    """Add column k of an array (N, K) to column ``index[k]`` of another."""
    for row in range(columns.shape[0]):
        for k in range(columns.shape[1]):
            out[row, index[k]] += columns[row, k]


# Stacks of small matrices


@numba.njit(cache=True, error_model="numpy")
def cholesky_factors(V: Array) -> tuple[Array, Array]:
    """Return Cholesky factors C of blocks (G, s, s), and C⁻¹; NaN if a block has no factor."""
    (G, s, _), C, inverse = V.shape, np.zeros_like(V), np.zeros_like(V)
    for g in range(G):
        for i in range(s):
            for j in range(i + 1):
                rest = V[g, i, j]
                for k in range(j):
                    rest -= C[g, i, k] * C[g, j, k]
                C[g, i, j] = math.sqrt(rest) if i == j else rest / C[g, j, j]
            for j in range(i + 1):
                rest = 1.0 if i == j else 0.0
                for k in range(j, i):
                    rest -= C[g, i, k] * inverse[g, k, j]
                inverse[g, i, j] = rest / C[g, i, i]
    return C, inverse


@numba.njit(cache=True, error_model="numpy")
def are_nonnegative(M: Array) -> NDArray[np.bool_]:
    """Whether each of some symmetric blocks (G, s, s) has no negative eigenvalue.

    A singular block may count as negative by rounding; one with rows of zeros does not.
    """
    (G, s, _), C = M.shape, np.zeros(M.shape[1:])
    found = np.ones(G, dtype=np.bool_)
    for g in range(G):
        for i in range(s):
            for j in range(i + 1):
                rest = M[g, i, j]
                for k in range(j):
                    rest -= C[i, k] * C[j, k]
                if i == j:
                    found[g] &= rest >= 0.0
                    C[i, i] = math.sqrt(max(rest, 0.0))
                elif C[j, j] == 0.0:
                    found[g] &= rest == 0.0
                    C[i, j] = 0.0
                else:
                    C[i, j] = rest / C[j, j]
    return found


def eigenvalues(M: Array) -> Array:
    """Eigenvalues of symmetric blocks (G, s, s), shape (G, s)."""
    if M.shape[1] == 2:
        middle, half = 0.5 * (M[:, 0, 0] + M[:, 1, 1]), 0.5 * (M[:, 0, 0] - M[:, 1, 1])
        distance = np.hypot(half, M[:, 0, 1])
        return np.stack([middle - distance, middle + distance], axis=1)
    result: Array = np.linalg.eigvalsh(M)
    return result


@numba.njit(cache=True)
def congruent(C: Array, M: Array) -> Array:
    """C_gᵀ M_g C_g of symmetric M_g, for stacks (G, s, s)."""
    (G, s, _), out, row = C.shape, np.empty_like(C), np.empty(C.shape[1])
    for g in range(G):
        for i in range(s):
            row[:] = 0.0
            for a in range(s):
                for b in range(s):
                    row[b] += C[g, a, i] * M[g, a, b]
            for j in range(i + 1):
                total = 0.0
                for b in range(s):
                    total += row[b] * C[g, b, j]
                out[g, i, j] = total
                out[g, j, i] = total
    return out


# Blocks of classes


LEAST = 1e-12
"""Smallest −W_cd, relative to √(W_cc W_dd), and smallest W_cc, relative to the largest W_dd, whose
logarithm is taken. It is a choice."""

LEAST_CURVATURE = 1e-100
"""Smallest W_cc. Its square is not 0 in floating point."""

NEWTON_STEPS = 30
"""Largest number of steps of Newton's method for log t² in `ClassBlocks.nearest`."""

LONGEST_STEP = 2.0
"""Longest of these steps. If every u_c²/D_c is near 0 or 1 the slope is nearly 0, and a Newton step
would be far too long."""


@dataclass(frozen=True, eq=False)
class ClassBlocks(SiteBlocks):
    """Blocks W_g = diag(D_g) − u_g u_gᵀ with u > 0 and Σ_c u_c²/D_c < 1, for sets of s ≥ 3 f_i.

    They are a convex set, because u_c²/D_c is jointly convex in u_c and D_c.

    Attributes
    ----------
    u : ndarray, shape (G, s)

    Examples
    --------
    >>> import numpy as np
    >>> pi = np.array([0.5, 0.3, 0.2])
    >>> W = ClassBlocks.nearest(np.array([[0, 1, 2]]), np.diag(pi)[None] - np.outer(pi, pi))
    >>> np.round(W.u, 6)
    array([[0.5, 0.3, 0.2]])
    """

    u: Array

    @classmethod
    def of(cls, sets: NDArray[np.intp], D: Array, u: Array) -> ClassBlocks:
        """Blocks from D and u, each of shape (G, s)."""
        values = -u[:, :, None] * u[:, None, :]
        values[:, *np.diag_indices(u.shape[1])] += D
        return cls(sets, values, u)

    @classmethod
    def nearest(cls, sets: NDArray[np.intp], curvature: Array) -> ClassBlocks:
        """Blocks with the diagonal of a curvature (G, s, s), and nearly its other elements.

        A block of this form has log(−W_cd) = log u_c + log u_d. Least squares for log u have a
        closed form. Then u is multiplied by a factor t that makes the block singular, as it is for
        a softmax: Σ_c t²u_c²/D_c = 1 with D_c = W_cc + t²u_c². The blocks of a softmax have this
        form, so they are found exactly, with t = 1.
        """
        s = curvature.shape[1]
        if not np.isfinite(curvature).all():
            return cls(sets, curvature, np.full(sets.shape, np.nan))
        diagonal = np.einsum("gcc->gc", curvature)
        least = np.maximum(LEAST * diagonal.max(axis=1, keepdims=True), LEAST_CURVATURE)
        diagonal = np.maximum(diagonal, least)
        scale = np.sqrt(diagonal)
        relative = -curvature / (scale[:, :, None] * scale[:, None, :])
        logarithms = np.log(np.maximum(relative, LEAST))
        sums = logarithms.sum(axis=2) - np.einsum("gcc->gc", logarithms)
        log_ratio = sums - sums.sum(axis=1, keepdims=True) / (2.0 * (s - 1))
        log_ratio *= 2.0 / (s - 2)  # log(u_c²/W_cc)
        for _ in range(NEWTON_STEPS):
            share = 1.0 / (1.0 + np.exp(-log_ratio))  # u_c²/D_c
            excess = share.sum(axis=1) - 1.0
            if np.abs(excess).max() < 1e-14 * s:
                break
            slope = (share * (1.0 - share)).sum(axis=1)
            log_ratio -= np.clip(excess / slope, -LONGEST_STEP, LONGEST_STEP)[:, None]
        u = scale * np.exp(0.5 * log_ratio)
        return cls.of(sets, diagonal + u**2, u)

    @property
    def D(self) -> Array:
        """D, shape (G, s)."""
        result: Array = np.einsum("gcc->gc", self.values) + self.u**2
        return result

    @property
    def minus_rank_one(self) -> tuple[Array, Array, Array]:
        """See `SiteBlocks`."""
        D = self.D
        v = self.u / np.sqrt(D)
        return D, v, 1.0 - (v**2).sum(axis=1)

    def like(self, values: Array) -> ClassBlocks:
        """Blocks of this kind near these values."""
        return self.nearest(self.sets, values)

    def lerp(self, other: SiteBlocks, share: float) -> ClassBlocks:
        """Interpolate D and u linearly."""
        assert isinstance(other, ClassBlocks)
        D, u = self.D, self.u
        return self.of(self.sets, D + share * (other.D - D), u + share * (other.u - u))

    def at_least(self, least: float, scale: Array) -> ClassBlocks:
        """W such that no eigenvalue of s_i W_ij s_j is below ``least``, as blocks of this kind.

        All eigenvalues are raised, by ``least``, since W has no negative ones.
        """
        return self.of(self.sets, self.D + least / gathered(self.sets, scale) ** 2, self.u)
