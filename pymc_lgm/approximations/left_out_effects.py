r"""Leave out groups that have latent variables of their own, such as an intercept and a slope each.

In a sum of families let x_g be the elements of x that the observations y_g of a group read, and no
others. If they are independent of the rest r of x given theta, they enter nothing else, so that

    p(y_g | y_-g, r, theta) = p(y_g | r, theta) = ∫ p(y_g | x_g, r) N(x_g; m_g, Q_g⁻¹) dx_g.

It is an integral over the one to three elements of x_g, by a product of Gauss-Hermite rules. No
observation is in two groups. So one row of f can have a node of every group, and a draw takes a few
hundred evaluations of the likelihood for any number of groups. The line of
`pymc_lgm.approximations.left_out` takes more than a hundred for each group, and integrates over one
direction only.

Merkle, Furr and Rabe-Hesketh (2019), *Bayesian comparison of latent variable models: conditional
versus marginal likelihoods*, Psychometrika 84, leave out clusters by such integrals.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array
from scipy.sparse.csgraph import connected_components

from pymc_lgm.approximations.gaussian import GaussianApproximation
from pymc_lgm.approximations.left_out import (
    CELLS,
    ENOUGH,
    ROUGH,
    LeftOut,
    ObservationLines,
    integrate_lines,
)
from pymc_lgm.approximations.quadrature import product_rule
from pymc_lgm.gaussian.sites import roots
from pymc_lgm.gaussian.sums import Layout, SumPrior
from pymc_lgm.linalg import Array

__all__ = ["LocalLines", "OwnElements", "left_out_effects", "left_out_locally"]

Index = NDArray[np.intp]

PER_AXIS = {1: 24, 2: 12, 3: 8}
"""Nodes per axis by the number of elements of x_g. More elements are too many for a product rule.

With them `ENOUGH` is met in two to four rounds for groups of one to fifty counts.
"""

ROUNDS = 10
"""Largest number of rules for one integral, each at the moments that the one before has found."""

LEAST = 1e-10
"""Smallest diagonal element that is added to a covariance, relative to its diagonal, so that it has
a Cholesky factor if the nodes have nearly all weight in one of them."""


SEVERAL, NOBODY = -1, -2
"""Instead of a group: more than one reads an element, or no observation does."""


@dataclass(frozen=True, eq=False)
class OwnElements:
    """The elements of x that each group has of its own.

    Attributes
    ----------
    layout : Layout
        The patterns of the sum.
    at : ndarray of int, shape (G, d)
        The elements of x_g, padded with −1.
    slot : ndarray of int, shape (N,)
        The place of each element of x in ``at``, counted row by row; −1 if no group owns it.
    """

    layout: Layout
    at: Index
    slot: Index

    @classmethod
    def of(cls, layout: Layout, reads: Index, which: Index, group: Index) -> OwnElements | None:
        """Find them from the patterns of A and Q alone.

        Parameters
        ----------
        layout : Layout
        reads : ndarray of int, shape (E,)
            The element of eta that each observation of the model reads, or −1.
        which, group : ndarray of int, shape (M,)
            Observations that are left out, and the group of each, 0 to G − 1.

        Returns
        -------
        OwnElements or None
            ``None`` if a group has none, or more than three.
        """
        if layout.B is not None:
            return None
        count = int(group.max()) + 1
        of_reader = np.full(reads.size, SEVERAL)
        of_reader[which] = group
        seen = reads >= 0
        of_row = _common(reads[seen], of_reader[seen], layout.E)
        owner = _common(layout.columns, of_row[layout.row_of], layout.N)
        owner[(layout.C != 0.0).any(axis=1) | (layout.U != 0.0).any(axis=1)] = SEVERAL
        _spread(owner, layout.rows_of_Q, layout.columns_of_Q)
        sizes = np.bincount(owner[owner >= 0], minlength=count)
        if not (sizes.min() >= 1 and sizes.max() <= max(PER_AXIS)):
            return None
        return cls(layout, *_numbered(owner))


def _common(place: Index, label: Index, size: int) -> Index:
    """The label that all entries of a place have, `SEVERAL` if they differ, or `NOBODY`."""
    least, largest = np.full(size, np.iinfo(np.intp).max), np.full(size, NOBODY)
    np.minimum.at(least, place, label)
    np.maximum.at(largest, place, label)
    return np.where((least == largest) | (largest == NOBODY), largest, SEVERAL)


def _spread(owner: Index, j: Index, k: Index) -> None:
    """Let elements that nothing reads be those of their neighbors in Q; others must agree."""
    j, k = np.concatenate([j, k]), np.concatenate([k, j])
    while (free := (owner[j] == NOBODY) & (owner[k] != NOBODY)).any():
        owner[j[free]] = owner[k[free]]
    while (differ := owner[j] != owner[k]).any():
        owner[j[differ]] = SEVERAL


@np.errstate(all="ignore")
def left_out_effects(
    elements: Callable[[Array], Array],
    own: OwnElements,
    which: Index,
    group: Index,
    q: GaussianApproximation,
    f: Array,
) -> tuple[Array, Array]:
    """Leave out the observations of each group together, for one draw f.

    Parameters
    ----------
    elements, which, q, f
        As in `left_out`; the prior of q is a sum.
    own : OwnElements
    group : ndarray of int, shape (M,)
        The group of each observation, 0 to G − 1.

    Returns
    -------
    log_density : ndarray, shape (G,)
        log p(y_g | r, theta); NaN if the integral is not found.
    own : ndarray, shape (G,)
        log p(y_g | f, theta), of the draw itself.

    Notes
    -----
    Mostly a hundred rows of the likelihood for one element of x_g, 500 for two, 2000 for three.
    """
    integrals = _Integrals(elements, own, which, group, q, f)
    return integrals.log_density(), np.bincount(group, elements(f[None])[0][which])


class _Blocks:
    """Blocks of x that are independent of the rest given theta, at one draw f.

    Attributes
    ----------
    J : csr_array, shape (E, B d)
        Numbers of A in the blocks.
    u : ndarray, shape (B, d)
        x less its prior mean.
    Q, P : ndarray, shape (B, d, d)
        Precisions of the prior, and with the sites of q. A smaller block is padded by an
        identity.
    W, pull : ndarray, shape (E,)
        Precisions of the sites, and the derivatives of their logarithms at the draw's eta.
    """

    def __init__(self, layout: Layout, at: Index, slot: Index, q: GaussianApproximation, f: Array):
        prior = q.prior
        assert isinstance(prior, SumPrior)
        self.count, self.d = at.shape
        numbers, N = prior.numbers, layout.N
        of_number = slot[layout.columns]
        inside = of_number >= 0
        places = (layout.row_of[inside], of_number[inside])
        self.J = csr_array((prior.A[inside], places), shape=(layout.E, self.count * self.d))
        mean = np.concatenate([each.mean for each in numbers.families])
        self.u = np.where(at >= 0, (f[:N] - numbers.offset - mean)[at], 0.0)
        elements_of_Q = np.concatenate([each.elements for each in numbers.families])
        j, k = slot[layout.rows_of_Q], slot[layout.columns_of_Q]
        inside = j >= 0
        self.Q = self._of(j[inside], k[inside], elements_of_Q[inside])
        self.Q[at < 0] = np.eye(self.d)[np.nonzero(at < 0)[1]]
        self.W = np.maximum(q.precision[N:], 0.0)
        self.pull = q.sites.nu[N:] - self.W * (f - prior.mean)[N:]
        gram = (self.J.T @ (self.W[:, None] * self.J)).tocoo()
        within = (gram.row >= gram.col) & (gram.row // self.d == gram.col // self.d)
        self.P = self.Q + self._of(gram.row[within], gram.col[within], gram.data[within])

    def _of(self, i: Index, j: Index, values: Array) -> Array:
        """Symmetric blocks with these elements, at places that are counted as those of u."""
        blocks = np.zeros((self.count, self.d, self.d))
        blocks[i // self.d, i % self.d, j % self.d] = values
        blocks[i // self.d, j % self.d, i % self.d] = values
        return blocks


class _Integrals:
    """The integrals of all groups at one draw, in u_g = x_g − m_g; blocks are (G, d, d)."""

    def __init__(
        self,
        elements: Callable[[Array], Array],
        own: OwnElements,
        which: Index,
        group: Index,
        q: GaussianApproximation,
        f: Array,
    ):
        self._elements, self._which, self._f, self._N = elements, which, f, own.layout.N
        self._of_group = csr_array((np.ones(group.size), (group, np.arange(group.size))))
        blocks = _Blocks(own.layout, own.at, own.slot, q, f)
        self.G, self.d, self._J, self._Q = blocks.count, blocks.d, blocks.J, blocks.Q
        self._eta = f[self._N :] - self._J @ blocks.u.ravel()  # at u = 0
        # The first rule is that of q's sites.
        pull = blocks.pull + blocks.W * (self._J @ blocks.u.ravel())
        _, inverse = roots(blocks.P)
        self._root = np.ascontiguousarray(inverse.swapaxes(1, 2))
        half = np.einsum("gij,gj->gi", inverse, (self._J.T @ pull).reshape(self.G, self.d))
        self._center = np.einsum("gij,gj->gi", self._root, half)

    def log_density(self) -> Array:
        """Integrate by rules at better and better centers, until two agree."""
        nodes, log_weights = _rule(self.d)
        log_Q = np.linalg.slogdet(self._Q)[1]
        found, change = np.full(self.G, np.nan), np.full(self.G, np.inf)
        for _ in range(ROUNDS):
            u = self._center + np.einsum("gij,kj->kgi", self._root, nodes)
            squares = np.einsum("kgi,gij,kgj->kg", u, self._Q, u)
            log_root = np.log(np.einsum("gii->gi", self._root)).sum(axis=1)
            terms = self._given(u) - 0.5 * squares + log_weights[:, None]
            terms[~(terms < np.inf)] = -np.inf
            top = terms.max(axis=0)
            weights = np.exp(terms - top)
            total = weights.sum(axis=0)
            again = top + np.log(total) + 0.5 * log_Q + log_root
            change, found = np.abs(again - found), again
            if (change <= ENOUGH).all():
                break
            self._center, self._root = _moments(u, weights / total)
        found[~(change <= ROUGH)] = np.nan
        return found

    def _given(self, u: Array) -> Array:
        """log p(y_g | x_g, r) at nodes u (K, G, d), shape (K, G)."""
        out = np.empty(u.shape[:2])
        block = max(1, CELLS // self._f.size)
        for begin in range(0, len(u), block):
            part = slice(begin, begin + block)
            rows = np.tile(self._f, (len(u[part]), 1))
            rows[:, self._N :] = self._eta + (self._J @ u[part].reshape(len(rows), -1).T).T
            out[part] = (self._of_group @ self._elements(rows)[:, self._which].T).T
        return out


def _moments(u: Array, weights: Array) -> tuple[Array, Array]:
    """Means (G, d), and roots (G, d, d) of the covariances, of weighted nodes (K, G, d)."""
    center = np.einsum("kg,kgi->gi", weights, u)
    away = u - center
    cov = np.einsum("kg,kgi,kgj->gij", weights, away, away)
    diagonal = np.einsum("gii->gi", cov)
    diagonal += LEAST * diagonal + np.finfo(np.float64).tiny
    return center, roots(cov)[0]


@lru_cache
def _rule(d: int) -> tuple[Array, Array]:
    """Nodes ξ_k, (K, d), and log w_k + ½ |ξ_k|².

    With x_k = c + R ξ_k, ∫ h(x) dx is (2π)^(d/2) |R| Σ_k w_k exp(½ |ξ_k|²) h(x_k).
    """
    nodes, weights = product_rule(PER_AXIS[d], d)
    return nodes, np.log(weights) + 0.5 * (nodes**2).sum(axis=1)


# One observation at a time


LARGEST = 3
"""Largest number of elements of x along which a line of one observation goes."""

SHARE = 0.9
"""Smallest share of the variance of eta_k under q that is left if the rest of x is known.

With less, the rest of x is informative about eta_k, and depends on y_k itself. It is a choice.
Measured by hand: 60 groups of ten have at least 0.97, and densities of an observation vary among
draws by 0.048, along Σ by 0.040. Crossed effects have 0.35 to 0.9.
"""


@dataclass(frozen=True, eq=False)
class LocalLines:
    """Lines along which few observations change, because one small block of x moves.

    A block of x is independent of the rest given theta, as the effects of one group are. Along the
    line of an observation k moves one block B of those that it reads, by c t with
    c = P_BB⁻¹ a / aᵀ P_BB⁻¹ a, where a are the numbers of B in its row of A: t is the change of
    eta_k. Lines whose blocks have no observation in common share rows of f. With 500 groups of ten
    observations, ten rows have a node of each of the 5000 lines.

    Attributes
    ----------
    layout : Layout
    which, row, block : ndarray of int, shape (M,)
        The observations k, their rows of A, and their blocks.
    elements : ndarray of int, shape (B, d)
        The elements of x of each block, padded with −1.
    slot : ndarray of int, shape (N,)
        The place of each element of x in ``elements``, counted row by row; −1 if it is in no block.
    others : csr_array, shape (M, E)
        1 at the observations beside k that read k's block.
    number, line : ndarray of int
        Numbers of A in a block, and a line of this block: all pairs.
    batches : list of ndarray of int
        Lines that share rows of f.
    """

    layout: Layout
    which: Index
    row: Index
    block: Index
    elements: Index
    slot: Index
    others: csr_array
    number: Index
    line: Index
    batches: list[Index]

    @classmethod
    def of(cls, layout: Layout, reads: Index, which: Index) -> LocalLines | None:
        """Find a block for each observation, that which is read least.

        ``None`` if an observation has none, or if hardly any lines can share rows.

        Parameters
        ----------
        layout : Layout
        reads : ndarray of int, shape (E,)
            The element of eta that each observation of the model reads, or −1.
        which : ndarray of int, shape (M,)
            Observations that are left out.
        """
        row = reads[which]
        if layout.B is not None or (row < 0).any():
            return None
        of_row, size = _least_read_blocks(layout)
        label = of_row[row]
        if (label < 0).any() or size[label].sum() > CELLS:
            return None
        kept, block = np.unique(label, return_inverse=True)
        new = np.full(layout.N, -1)
        new[kept] = np.arange(kept.size)
        elements, slot = _numbered(new[_blocks_of(layout)])
        inside = slot[layout.columns] >= 0
        number = np.flatnonzero(inside)
        of_number = slot[layout.columns[number]] // elements.shape[1]
        # Rows of A, and observations, that read each block.
        seen = _ones(of_number, layout.row_of[number], (kept.size, layout.E))
        readers = np.flatnonzero(reads >= 0)
        reading = _ones(reads[readers], readers, (layout.E, reads.size))
        lines = np.arange(row.size)
        of_lines = _ones(lines, block, (row.size, kept.size))
        itself = _ones(lines, which, (row.size, reads.size))
        others = csr_array((of_lines @ seen @ reading > 0.0).astype(np.float64) - itself)
        others.eliminate_zeros()  # a density may be infinite
        pairs = (
            of_lines @ _ones(of_number, np.arange(number.size), (kept.size, number.size))
        ).tocoo()
        batches = _apart(seen, block)
        if 2 * len(batches) > row.size:
            return None
        pairs_of = number[pairs.col], pairs.row.astype(np.intp)
        return cls(layout, which, row, block, elements, slot, others, *pairs_of, batches)


def _ones(rows: Index, columns: Index, shape: tuple[int, int]) -> csr_array:
    """A sparse matrix of ones at these places."""
    return csr_array((np.ones(rows.size), (rows, columns)), shape=shape)


def _blocks_of(layout: Layout) -> Index:
    """The block of each element of x: elements that Q joins have one label."""
    joined = _ones(layout.rows_of_Q, layout.columns_of_Q, (layout.N, layout.N))
    _, label = connected_components(joined, directed=False)
    return label.astype(np.intp)


def _least_read_blocks(layout: Layout) -> tuple[Index, Index]:
    """The small block of each row of A with the fewest numbers of A, or −1; and all their numbers.

    An element that is constrained, or updated with others, is in no small block.
    """
    label = _blocks_of(layout)
    sizes = np.bincount(label)
    is_small = sizes <= LARGEST
    is_small[label[(layout.C != 0.0).any(axis=1) | (layout.U != 0.0).any(axis=1)]] = False
    of_number = label[layout.columns]
    at = np.flatnonzero(is_small[of_number])
    count = np.bincount(of_number[at], minlength=sizes.size)
    # The numbers of a row, those of the least read block first.
    order = np.lexsort((of_number[at], count[of_number[at]], layout.row_of[at]))
    rows, first = np.unique(layout.row_of[at][order], return_index=True)
    of_row = np.full(layout.E, -1)
    of_row[rows] = of_number[at][order][first]
    return of_row, count


def _numbered(block: Index) -> tuple[Index, Index]:
    """The elements of each block, padded with −1, and the place of each element there or −1.

    ``block`` has the block of each element of x, or a negative number.
    """
    inside = np.flatnonzero(block >= 0)
    inside = inside[np.argsort(block[inside], kind="stable")]
    width = np.bincount(block[inside])
    place = np.arange(inside.size) - np.repeat(np.cumsum(width) - width, width)
    elements, slot = np.full((width.size, width.max()), -1), np.full(block.size, -1)
    elements[block[inside], place] = inside
    slot[inside] = block[inside] * width.max() + place
    return elements, slot


def _apart(seen: csr_array, block: Index) -> list[Index]:
    """Batches of lines whose blocks are read by different rows of A.

    ``seen`` has a row for each block. A block is put into the first layer in which no other is read
    by the same rows; a batch has one line of each block of a layer.
    """
    layers: list[NDArray[np.bool_]] = []
    layer = np.empty(seen.shape[0], dtype=np.intp)
    for b in range(seen.shape[0]):
        rows = seen.indices[seen.indptr[b] : seen.indptr[b + 1]]
        free = (k for k, taken in enumerate(layers) if not taken[rows].any())
        layer[b] = next(free, len(layers))
        if layer[b] == len(layers):
            layers.append(np.zeros(seen.shape[1], dtype=bool))
        layers[layer[b]][rows] = True
    order = np.argsort(block, kind="stable")
    counts = np.bincount(block, minlength=seen.shape[0])
    rank = np.empty(block.size, dtype=np.intp)
    rank[order] = np.arange(block.size) - np.repeat(np.cumsum(counts) - counts, counts)
    key = layer[block] * (rank.max() + 1) + rank
    return [np.flatnonzero(key == each) for each in np.unique(key)]


@np.errstate(all="ignore")
def left_out_locally(
    elements: Callable[[Array], Array],
    local: LocalLines,
    q: GaussianApproximation,
    f: Array,
    uniform: Array,
) -> LeftOut | None:
    """Integrate over the line of each observation, for one draw f: see `LocalLines`.

    Parameters
    ----------
    elements, q, f, uniform
        As in `left_out`; the prior of q is a sum.
    local : LocalLines

    Returns
    -------
    LeftOut or None
        ``None`` if at this theta the rest of x determines an eta_k: see `SHARE`.

    Notes
    -----
    Mostly 17 to 33 rows of the likelihood for each batch of lines, and 100 for all lines.
    """
    lines = _EffectLines(elements, local, q, f)
    if not lines.are_wide:
        return None
    log_density, t = integrate_lines(lines, uniform)
    return LeftOut(log_density, t + f[local.layout.N + local.row], lines.base[local.which])


class _EffectLines(ObservationLines):
    """The lines f + c t of observations along which one small block of x moves."""

    def __init__(
        self,
        elements: Callable[[Array], Array],
        local: LocalLines,
        q: GaussianApproximation,
        f: Array,
    ):
        layout, N = local.layout, local.layout.N
        self._elements, self._f, self._q, self._local, self._N = elements, f, q, local, N
        self._which, self._site = local.which, N + local.row
        self.count = local.which.size
        self._direction = np.arange(self.count)
        self.base = elements(f[None])[0]
        blocks = _Blocks(layout, local.elements, local.slot, q, f)
        assert isinstance(q.prior, SumPrior)
        A, line = q.prior.A[local.number], local.line
        place = local.slot[layout.columns[local.number]] % blocks.d
        row = layout.row_of[local.number]
        mine = row == local.row[line]
        a = np.zeros((self.count, blocks.d))
        a[line[mine], place[mine]] = A[mine]
        _, inverse = roots(blocks.P)
        half = np.einsum("kij,kj->ki", inverse[local.block], a)
        self._variance = (half**2).sum(axis=1)  # of eta_k, if the rest of x is known
        c = np.einsum("kji,kj->ki", inverse[local.block], half) / self._variance[:, None]
        self._change = csc_array((A * c[line, place], (row, line)), (layout.E, self.count))
        of_Q = np.einsum("kij,kj->ki", blocks.Q[local.block], c)
        self._curvature = (of_Q * c).sum(axis=1)
        self._slope = (of_Q * blocks.u[local.block]).sum(axis=1)
        self._center = self._variance * (self._change.T @ blocks.pull - self._slope)

    @property
    def are_wide(self) -> bool:
        """Whether each eta_k keeps `SHARE` of its variance if the rest of x is known."""
        return bool((self._variance >= SHARE * self._q.posterior.variances[self._site]).all())

    def _others(self, lines: Index, t: Array) -> Array:
        """log g_k at t, (nodes, lines), up to a constant."""
        out = np.empty(t.shape)
        position = np.full(self.count, -1)
        position[lines] = np.arange(lines.size)
        for batch in self._local.batches:
            k = batch[position[batch] >= 0]
            if not k.size:
                continue
            along = t[:, position[k]]
            rows = np.tile(self._f, (len(t), 1))
            rows[:, self._N :] += (self._change[:, k] @ along.T).T
            values = self._elements(rows) - self.base
            prior = -along * (self._slope[k] + 0.5 * self._curvature[k] * along)
            out[:, position[k]] = (self._local.others[k] @ values.T).T + prior
        return out
