"""Sums of Gaussian families: eta = c + A x with a sparse A, where x has a part for each family.

The sampled vector is f = (x, eta). The likelihood depends on eta alone. Since x determines f, the
matrix A is arbitrary: its range may depend on theta, rows may be equal, and eta may have more or
fewer elements than x. A posterior needs one sparse factor, of

    P = Q + U S Uᵀ + W_x + Aᵀ W_eta A,

The pattern of P does not depend on theta or W, so the order of elimination is chosen once per
model. The marginal variances of eta are a_iᵀ P⁻¹ a_i with a_i the rows of A. They need only those
elements of P⁻¹ at which the factor may be nonzero, and Takahashi's equations compute these without
the rest (Takahashi, Fagan and Chen 1973; Rue and Held 2005).

If a family has a basis, its part of x is B z, and Q and P are precisions of z. Then z is in the
place of x in these formulas, A B in that of A, and x = B z, too, is a sum that f has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Protocol

import numpy as np

from numpy.typing import NDArray
from scipy.linalg import block_diag
from scipy.sparse import block_diag as sparse_block_diag
from scipy.sparse import csc_array, csr_array, eye_array

from pymc_lgm.gaussian.base import PrecisionPosterior, Prior, StatePrior
from pymc_lgm.gaussian.factors import (
    ConstrainedFactor,
    Factor,
    UpdatedFactor,
    constrained_and_updated,
)
from pymc_lgm.gaussian.families import Family, FamilyAt
from pymc_lgm.gaussian.rows import (
    Numbers,
    Rows,
    add_products,
    add_weighted_rows_of_pairs,
    bilinear_forms,
)
from pymc_lgm.gaussian.sites import Precision, SiteBlocks, diagonal
from pymc_lgm.gaussian.sparse import Pattern, SparseFactor
from pymc_lgm.linalg import Array, tally

__all__ = ["Layout", "SumAt", "SumModel", "SumPosterior", "SumPrior", "blocks_at"]

Index = NDArray[np.intp]


class Layout:
    """The patterns of Q, A and P, made once per model.

    Parameters
    ----------
    families : sequence of Family
    starts, columns : ndarray of int
        A in compressed rows: the start of each row, (E + 1,), and the element of x that each of its
        numbers multiplies.
    sets : ndarray of int, shape (G, s), optional
        Sets of f_i that enter one observation together, as in `SiteBlocks`.

    Attributes
    ----------
    N, M, E : int
        Elements of x, of z and of eta. x = z, and M = N, if no family has a basis.
    B : tuple of Rows and Numbers, or None
        x = B z: the pattern and the numbers of B.
    starts, columns, A : ndarray of int, and Rows
        The pattern of A B.
    """

    def __init__(
        self,
        families: Sequence[Family],
        starts: Index,
        columns: Index,
        sets: Index | None = None,
    ):
        self.families, self.sets = families, sets
        ends = np.cumsum([0, *(family.m for family in families)])
        self.parts = [slice(int(a), int(b)) for a, b in pairwise(ends)]
        self._columns_of_x = columns
        self.N, self.M = sum(family.n for family in families), int(ends[-1])
        self.E = starts.size - 1
        self.B: tuple[Rows, Numbers] | None = None
        self._fixed: _FixedRows | None = None
        self._through: csr_array | None = None
        if any(family.basis is not None for family in families):
            starts, columns = self._in_coordinates(starts, columns)
        self.starts, self.columns = starts, columns
        self.row_of = np.repeat(np.arange(starts.size - 1), np.diff(starts))
        self.A = Rows(starts, columns, self.M)
        U = [family.update[0] for family in families]
        self.U: Array = block_diag(*U).reshape(self.M, sum(u.shape[1] for u in U))
        self.S: Array = block_diag(*(family.update[1] for family in families))
        self.S = self.S.reshape(self.U.shape[1], self.U.shape[1])
        self.of_U = np.repeat(np.arange(len(U)), [u.shape[1] for u in U])
        C = [family.constraint for family in families]
        self.C: Array = block_diag(*C).reshape(self.M, sum(c.shape[1] for c in C))
        self.rank = self.M - self.C.shape[1]
        free = np.cumsum([0, *(family.rank for family in families)])
        self.coordinates = [slice(int(a), int(b)) for a, b in pairwise(free)]
        rows_of_Q = np.concatenate(
            [family.rows + part.start for family, part in zip(families, self.parts, strict=True)]
        )
        columns_of_Q = np.concatenate(
            [family.columns + part.start for family, part in zip(families, self.parts, strict=True)]
        )
        self.joined, self.of_joined = _joined(sets, self.N)
        s, (g, p, q) = 1 if sets is None else sets.shape[1], self.of_joined
        self.at_joined = (g * s + p) * s + q
        third, fourth = _products(starts, columns, self.joined)
        nothing = np.zeros(0, dtype=np.intp)
        fifth, sixth = (nothing, nothing) if self.B is None else (self.B[0].first, self.B[0].second)
        rows = np.concatenate([rows_of_Q, self.A.first, third, fifth])
        across = np.concatenate([columns_of_Q, self.A.second, fourth, sixth])
        there = csc_array((np.ones(rows.size), (rows, across)), shape=(self.M, self.M))
        self.pattern = Pattern.of(csc_array(there + there.T))
        self._keys = self.pattern.columns * self.M + self.pattern.rows
        self.rows_of_Q, self.columns_of_Q = rows_of_Q, columns_of_Q
        self.ends_of_Q = np.cumsum([family.rows.size for family in families])[:-1]
        self.of_Q = self.positions(rows_of_Q, columns_of_Q)
        self.pairs = self.positions(self.A.first, self.A.second)
        self.products = self.positions(third, fourth)
        self.pairs_of_B = self.positions(fifth, sixth)
        self.pairs_of_L, self.products_of_L = (
            self.pattern.place[each] for each in (self.pairs, self.products)
        )

    def _in_coordinates(self, starts: Index, columns: Index) -> tuple[Index, Index]:
        """Make B, and the pattern of A B, which is returned.

        Two numbers of a row of A may multiply one z_j: `_through` adds their products with B.
        """
        each = [eye_array(f.n) if f.basis is None else f.basis for f in self.families]
        B = csr_array(sparse_block_diag(each))
        B.sort_indices()
        at, to = B.indptr.astype(np.intp), B.indices.astype(np.intp)
        rows_of_B = Rows(at, to, self.M)
        self.B = rows_of_B, rows_of_B.split(np.array(B.data))
        # A number of A, and a number of B that it multiplies.
        counts = np.diff(at)[columns]
        number = np.repeat(np.arange(columns.size), counts)
        step = np.arange(number.size) - np.repeat(np.cumsum(counts) - counts, counts)
        of_B = at[columns[number]] + step
        row = np.repeat(np.arange(self.E), np.diff(starts))
        keys, place = np.unique(row[number] * self.M + to[of_B], return_inverse=True)
        self._through = csr_array((B.data[of_B], (place, number)), shape=(keys.size, columns.size))
        inside = np.searchsorted(keys, np.arange(self.E + 1) * self.M)
        return inside.astype(np.intp), (keys % self.M).astype(np.intp)

    def numbers(self, A: Array, scale: Array | None = None) -> Array:
        """The numbers of A diag(s) B from those of A."""
        A = A if scale is None else A * scale[self._columns_of_x]
        return A if self._through is None else np.asarray(self._through @ A)

    def numbers_vjp(self, weights: Array) -> Array:
        """Weights of the numbers of A from those of the numbers of A B."""
        return weights if self._through is None else np.asarray(self._through.T @ weights)

    def fixed(self, A: Array) -> _FixedRows:
        """The results that are computed once for an A that is the same array at every theta."""
        if self._fixed is None or self._fixed.A is not A:
            self._fixed = _FixedRows(self, A)
        return self._fixed

    def scaled_on_both_sides(self, elements: Array, scale: Array) -> Array:
        """The elements of diag(s) M diag(s) from those of M on the pattern of P."""
        s = np.empty(self.M)
        s[self.pattern.back] = scale
        result: Array = s[self.pattern.rows] * elements * s[self.pattern.columns]
        return result

    def positions(self, rows: Index, columns: Index) -> Index:
        """The positions of pairs of elements of z among the elements of P; −1 if it is 0 there."""
        one, two = self.pattern.back[rows], self.pattern.back[columns]
        key = np.minimum(one, two) * self.M + np.maximum(one, two)
        found = np.minimum(np.searchsorted(self._keys, key), self._keys.size - 1)
        return np.where(self._keys[found] == key, found, -1)

    def positions_of_blocks(self, sets: Index) -> Index:
        """`positions` of all pairs in sets of elements of z, (K, d) -> (K, d, d); −1 is padding."""
        found = np.full((*sets.shape, sets.shape[1]), -1, dtype=np.int32)
        k, p, q = np.nonzero((sets[:, :, None] >= 0) & (sets[:, None, :] >= 0))
        found[k, p, q] = self.positions(sets[k, p], sets[k, q])
        return found

    @cached_property
    def longest(self) -> int:
        """Elements of the longest column of the factor."""
        return int(np.diff(self.pattern.starts).max(initial=0))

    @property
    def flops(self) -> int:
        """Multiplications of one factorization of P."""
        return int((np.diff(self.pattern.starts).astype(np.float64) ** 2).sum())


class _FixedRows:
    """The numbers of an A that does not depend on theta, and Aᵀ A on the pattern of P."""

    def __init__(self, layout: Layout, A: Array):
        self._layout, self.A = layout, A
        self.rows = layout.A.split(A)

    @cached_property
    def gram(self) -> Array:
        layout = self._layout
        gram = np.zeros(layout.pattern.rows.size)
        layout.A.add_gram(self.rows, np.ones(layout.E), layout.pairs, gram)
        return gram


def _joined(sets: Index | None, N: int) -> tuple[Index, tuple[Index, Index, Index]]:
    """Pairs of rows of A in the same set, (K, 2), and their places in `SiteBlocks.values`."""
    if sets is None or sets.shape[1] == 1:
        nothing = np.zeros(0, dtype=np.intp)
        return np.zeros((0, 2), dtype=np.intp), (nothing, nothing, nothing)
    p, q = np.tril_indices(sets.shape[1], -1)
    rows = np.stack([sets[:, p], sets[:, q]], axis=-1) - N
    g, k = np.nonzero((rows >= 0).all(axis=-1))
    return np.ascontiguousarray(rows[g, k]), (g, p[k], q[k])


def _products(starts: Index, columns: Index, rows: Index) -> tuple[Index, Index]:
    """Pairs of elements of x that two rows of A read, in the order of `add_products`."""
    nothing = np.zeros(0, dtype=np.intp)
    first, second = [nothing], [nothing]
    for i, j in rows:
        one, two = columns[starts[i] : starts[i + 1]], columns[starts[j] : starts[j + 1]]
        first.append(np.repeat(one, two.size))
        second.append(np.tile(two, one.size))
    return np.concatenate(first), np.concatenate(second)


def blocks_at(positions: Index, elements: Array) -> Array:
    """Blocks of Q or P, from its elements and `Layout.positions_of_blocks`; padded by ones."""
    blocks = np.append(elements, 0.0)[positions]
    np.einsum("kii->ki", blocks)[np.einsum("kii->ki", positions) < 0] = 1.0
    return blocks


@dataclass(frozen=True, eq=False)
class SumAt:
    """The numbers of a sum at one theta.

    Attributes
    ----------
    c : ndarray, shape (E,)
        eta at x = 0.
    offset : ndarray, shape (N,)
        Added to x in f: the first elements of f are x + offset.
    A : ndarray
        The numbers of A, row by row, in the order of the columns that `Layout` was made with; those
        of A' if A = A' diag(s).
    families : list of FamilyAt
        The priors of the parts of x.
    scale : ndarray, shape (N,), optional
        s.
    is_fixed : bool
        Whether ``A`` is the same array at every theta.
    """

    c: Array
    offset: Array
    A: Array
    families: list[FamilyAt]
    scale: Array | None = None
    is_fixed: bool = False


class SumModel(Protocol):
    """A sum as a function of theta."""

    @property
    def layout(self) -> Layout:
        """The patterns, the same at every theta."""

    def sum_at(self, theta: Array) -> SumAt | None:
        """The sum at a theta; ``None`` if it has no proper prior there."""

    def sum_vjp(
        self, theta: Array, c: Array, offset: Array, A: Array, families: list[list[Array]]
    ) -> Array:
        """Derivatives in theta, (p,), of the numbers of `SumAt` with these weights.

        ``families`` has weights of the values that each family is computed from.
        """


class SumPrior(StatePrior):
    """The prior of f = (x, c + A x), made by `at`. It has no derivatives in theta."""

    allows_negative_sites = True

    def __init__(self, model: SumModel, theta: Array, at: SumAt):
        layout = self.layout = model.layout
        self.model, self.numbers = model, at
        pairs = zip(at.families, layout.families, strict=True)
        if all(each.mean is family.zero_mean for each, family in pairs):
            mean = np.zeros(layout.N + layout.E)
        else:
            mean = self.expand(np.concatenate([each.mean for each in at.families]))
        mean[: layout.N] += at.offset
        mean[layout.N :] += at.c
        super().__init__(mean, theta, layout.rank)

    @classmethod
    def at(cls, model: SumModel, theta: Array) -> SumPrior | None:
        """The prior at a theta; ``None`` if a family is not proper or a number is not finite."""
        numbers = model.sum_at(theta)
        return None if numbers is None else cls(model, theta, numbers)

    def moved(self, theta: Array) -> SumPrior | None:
        """The prior at another theta."""
        return self.at(self.model, theta)

    def has_covariance_of(self, other: Prior) -> bool:
        """Whether both priors share one `SumAt`."""
        return isinstance(other, SumPrior) and self.numbers is other.numbers

    @cached_property
    def A(self) -> Array:
        """The numbers of A B, row by row."""
        return self.layout.numbers(self.numbers.A, self.numbers.scale)

    @cached_property
    def rows(self) -> Numbers:
        """The same, split into full columns and others."""
        layout, at = self.layout, self.numbers
        if layout.B is not None or not at.is_fixed:
            return layout.A.split(self.A)
        rows = layout.fixed(at.A).rows
        return rows if at.scale is None else layout.A.scaled(rows, at.scale)

    def expand(self, x: Array) -> Array:
        """(B z, A B z) for a vector z or columns."""
        layout = self.layout
        out = np.zeros((layout.N + layout.E, *x.shape[1:]))
        columns = x.reshape(layout.M, -1)
        both = out.reshape(layout.N + layout.E, -1)
        if layout.B is None:
            both[: layout.N] = columns
        else:
            B, numbers = layout.B
            B.times(numbers, columns, both[: layout.N])
        layout.A.times(self.rows, columns, both[layout.N :])
        return out

    def expand_transposed(self, g: Array) -> Array:
        """Bᵀ (g_x + Aᵀ g_eta)."""
        layout = self.layout
        out = self.state(g)
        below = np.ascontiguousarray(g[layout.N :]).reshape(layout.E, -1)
        layout.A.times_transposed(self.rows, below, out.reshape(layout.M, -1))
        return out

    def state(self, z: Array) -> Array:
        """Bᵀ x, a new array, which is z if (x, eta) = (B z, A B z)."""
        layout = self.layout
        if layout.B is None:
            return np.array(z[: layout.N], dtype=np.float64)
        B, numbers = layout.B
        out = np.zeros((layout.M, *z.shape[1:]))
        of_x = np.ascontiguousarray(z[: layout.N]).reshape(layout.N, -1)
        B.times_transposed(numbers, of_x, out.reshape(layout.M, -1))
        return out

    @cached_property
    def log_determinant(self) -> float:
        """log|Q⁻¹|, the log determinant in the density of x."""
        return -sum(each.factor.log_determinant for each in self.numbers.families)

    @cached_property
    def elements(self) -> Array:
        """The elements of Q on the pattern of P."""
        layout = self.layout
        elements = np.zeros(layout.pattern.rows.size)
        elements[layout.of_Q] = np.concatenate([each.elements for each in self.numbers.families])
        return elements

    def elements_with(self, W: Precision) -> Array:
        """The elements of Q + Aᵀ W A, with the precisions of eta in sites of all of f."""
        layout, elements = self.layout, self.elements.copy()
        weights = diagonal(W)[layout.N :]
        if not isinstance(W, SiteBlocks) and (gram := self._gram(weights)) is not None:
            return elements + gram
        layout.A.add_gram(self.rows, weights, layout.pairs, elements)
        if isinstance(W, SiteBlocks):
            across = W.values.take(layout.at_joined)
            A = layout.starts, layout.columns, self.A
            add_products(*A, layout.joined, across, layout.products, elements)
        return elements

    def _gram(self, weights: Array) -> Array | None:
        """The elements of Aᵀ W A if W = w I and A is fixed, except for scales of its columns."""
        layout, at = self.layout, self.numbers
        if layout.B is not None or not at.is_fixed or not (weights == weights[0]).all():
            return None
        gram = layout.fixed(at.A).gram
        if at.scale is not None:
            gram = layout.scaled_on_both_sides(gram, at.scale)
        result: Array = weights[0] * gram
        return result

    @cached_property
    def scaled_S(self) -> Array:
        """S, times the scale of each family."""
        scale = np.array([each.scale for each in self.numbers.families])[self.layout.of_U]
        return scale * self.layout.S

    @cached_property
    def variances(self) -> Array:
        """K_ii: one factorization."""
        posterior = self.condition(np.zeros(self.n))
        return np.full(self.n, np.nan) if posterior is None else posterior.variances

    def condition(self, W: Precision) -> SumPosterior | None:
        """Factorize P, counted as one operation; ``None`` if P is not positive definite."""
        tally.cubic_ops += 1
        own = diagonal(W)[: self.layout.N]
        layout, pattern = self.layout, self.layout.pattern
        P = self.elements_with(W)
        if layout.B is None:
            P[pattern.diagonal] += own
        elif own.any():
            B, numbers = layout.B
            B.add_gram(numbers, own, layout.pairs_of_B, P)
        factor = pattern.factorize(P)
        if factor is None:
            return None
        whole: Factor | None = factor
        if layout.C.size or layout.U.size:
            whole = constrained_and_updated(factor, layout.C, layout.U, self.scaled_S)
        return None if whole is None else SumPosterior(self, W, factor, whole)

    def precision_times(self, x: Array) -> Array:
        """(Q + U S Uᵀ) x, on the space that the constraints allow."""
        return self._each(self._each(x, "multiply_transposed"), "multiply")

    def inverse_of_Q(self, x: Array) -> Array:
        """(Q + U S Uᵀ)⁻¹ x, on the space that the constraints allow."""
        return self._each(self._each(x, "solve"), "solve_transposed")

    def multiply(self, xi: Array) -> Array:
        """(x, A x) with x = R⁻ᵀ ξ, Q = R Rᵀ."""
        return self.expand(self._each(xi, "solve_transposed"))

    def multiply_transposed(self, g: Array) -> Array:
        """R⁻¹ (g_x + Aᵀ g_eta)."""
        return self._each(self.expand_transposed(g), "solve")

    def solve(self, z: Array) -> Array:
        """Rᵀ times the state."""
        return self._each(self.state(z), "multiply_transposed")

    def inverse_times(self, z: Array) -> Array:
        """(B Q z, 0) for the state z, since K (B Q z, 0) = (B z, A B z)."""
        out = self.expand(self.precision_times(self.state(z)))
        out[self.layout.N :] = 0.0
        return out

    # The latent variables as values

    has_values = True

    def values(self, f: Array) -> Array:
        """x + offset: the latent variables up to terms that do not depend on theta."""
        return np.array(f[: self.layout.N])

    def with_values(self, u: Array) -> Array:
        """(u, c + A x) with x = u − offset."""
        f = self.expand(self.state(u - self.numbers.offset))
        f[: self.layout.N] = u
        f[self.layout.N :] += self.numbers.c
        return f

    def log_density_of_values(self, f: Array) -> float:
        """The log density of x."""
        return self.log_density(f)

    def _each(self, x: Array, verb: str) -> Array:
        """Apply a method of each family's factor to its part of x, or to its coordinates."""
        of_x = verb in ("solve", "multiply_transposed")
        of_all = self.layout.parts if of_x else self.layout.coordinates
        parts = zip(self.numbers.families, of_all, strict=True)
        return np.concatenate([getattr(each.factor, verb)(x[part]) for each, part in parts])


class SumPosterior(PrecisionPosterior):
    """A `SumPrior` conditioned on sites W. P = Q + Aᵀ W A is positive definite."""

    prior: SumPrior

    def __init__(
        self,
        prior: SumPrior,
        W: Precision,
        sparse: SparseFactor,
        whole: Factor,
    ):
        super().__init__(prior, W, whole)
        self._sparse = sparse
        self._updated = whole if isinstance(whole, UpdatedFactor | ConstrainedFactor) else None

    @cached_property
    def _downdate(self) -> tuple[Array, Array] | None:
        """V Z and D. Low-rank updates and constraints subtract V Z D Zᵀ Vᵀ from Σ; V = (I, Aᵀ)ᵀ."""
        if self._updated is None:
            return None
        Z, D = self._updated.downdate
        return self.prior.expand(Z), D

    @cached_property
    def variances(self) -> Array:
        """Σ_ii, from the inverse on the pattern of the factor."""
        layout = self.prior.layout
        if layout.B is None:
            of_x = self._sparse.inverse_diagonal
        else:
            B, numbers = layout.B
            pairs = self._sparse.pattern.place[layout.pairs_of_B]
            of_x = B.quadratic_forms(numbers, pairs, self._sparse.inverse)
        of_eta = layout.A.quadratic_forms(self.prior.rows, layout.pairs_of_L, self._sparse.inverse)
        variances = np.concatenate([of_x, of_eta])
        if self._downdate is not None:
            VZ, D = self._downdate
            variances -= np.einsum("ij,ij->i", VZ @ D, VZ)
        return variances

    @cached_property
    def site_covariances(self) -> Array:
        """Σ's blocks on the sets of W, (G, s, s), padded by the identity if a set is smaller."""
        W, layout = self.precision, self.prior.layout
        if not isinstance(W, SiteBlocks):
            return super().site_covariances
        A, (g, p, q) = self.prior.A, layout.of_joined
        across = bilinear_forms(
            layout.starts, A, layout.joined, layout.products_of_L, self._sparse.inverse
        )
        if self._downdate is not None:
            VZ, D = self._downdate
            one, two = (VZ[layout.N + layout.joined[:, k]] for k in (0, 1))
            across -= np.einsum("ij,ij->i", one @ D, two)
        blocks = np.where(W.filling, np.eye(W.sets.shape[1]), 0.0)
        g_own, slot = np.nonzero(W.sets >= 0)
        blocks[g_own, slot, slot] = self.variances[W.sets[g_own, slot]]
        blocks[g, p, q] = blocks[g, q, p] = across
        return blocks

    def evidence_gradient(self, a: Array, v: Array | None = None) -> Array:
        """⟨½ a aᵀ − ½ R + v aᵀ, ∂K⟩ + (a + v)ᵀ ∂m, R = (K + W⁻¹)⁻¹, from ∂Q, ∂A and ∂c.

        With f = V x, K = V Q⁻¹ Vᵀ, α = Q⁻¹ Vᵀ a and β = Q⁻¹ Vᵀ v, and since R V Q⁻¹ = W V P⁻¹,

            ½ ∂log|Q| − ½ ⟨P⁻¹ + α αᵀ + α βᵀ + β αᵀ, ∂Q⟩
            + ⟨(a + v) αᵀ + a βᵀ − W V P⁻¹, ∂V⟩ + (a + v)ᵀ ∂m.
        """
        prior, layout = self.prior, self.prior.layout
        total = a if v is None else a + v
        alpha = prior.inverse_of_Q(prior.expand_transposed(a))
        beta = np.zeros(layout.M) if v is None else prior.inverse_of_Q(prior.expand_transposed(v))
        j, k = layout.rows_of_Q, layout.columns_of_Q
        inverse = self._sparse.inverse[self._sparse.pattern.place[layout.of_Q]]
        if self._updated is not None:
            Z, D = self._updated.downdate
            inverse = inverse - np.einsum("ij,ij->i", (Z @ D)[j], Z[k])
        inverse = inverse + alpha[j] * alpha[k] + alpha[j] * beta[k] + beta[j] * alpha[k]
        elements = np.where(j == k, -0.5, -1.0) * inverse
        mean = np.concatenate([each.mean for each in prior.numbers.families])
        of_eta, row = total[layout.N :], layout.row_of
        right = of_eta[row] * (alpha + mean)[layout.columns]
        right += a[layout.N :][row] * beta[layout.columns]
        right -= self._weighted_rows()
        of_mean = prior.expand_transposed(total)
        at = zip(
            layout.families,
            prior.numbers.families,
            np.split(elements, layout.ends_of_Q),
            layout.parts,
            strict=True,
        )
        families = [
            family.vjp(each, weights, of_mean[part], 0.5) for family, each, weights, part in at
        ]
        of_x = total[: layout.N]
        of_A = layout.numbers_vjp(right)
        return prior.model.sum_vjp(prior.theta, of_eta, of_x, of_A, families)

    def _weighted_rows(self) -> Array:
        """(W A P⁻¹)_ij for each number A_ij."""
        layout, A, W = self.prior.layout, self.prior.A, self.precision
        out, own = np.zeros(A.size), diagonal(W)[layout.N :]
        inverse = self._sparse.inverse
        layout.A.add_weighted_rows(self.prior.rows, own, layout.pairs_of_L, inverse, out)
        if isinstance(W, SiteBlocks):
            across = W.values.take(layout.at_joined)
            add_weighted_rows_of_pairs(
                layout.starts, A, layout.joined, across, layout.products_of_L, inverse, out
            )
        if self._downdate is not None and self._updated is not None:
            VZ, D = self._downdate
            weighted = self._W.times(VZ)[layout.N :] @ D
            out -= np.einsum(
                "ij,ij->i", weighted[layout.row_of], self._updated.downdate[0][layout.columns]
            )
        return out
