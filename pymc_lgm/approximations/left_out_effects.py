r"""Leave out groups that have latent variables of their own, such as an intercept and a slope each.

In a sum of families let x_g be the elements of x that the observations y_g of a group read, and no
others. If they are independent of the rest r of x given theta, they enter nothing else, so that

    p(y_g | y_-g, r, theta) = p(y_g | r, theta) = ∫ p(y_g | x_g, r) N(x_g; m_g, Q_g⁻¹) dx_g.

It is an integral over the elements of x_g. One to three elements are integrated by a product of
Gauss-Hermite rules. More, as a series of the group's own, are integrated by importance sampling
from Laplace's approximation. No observation is in two groups, so all groups share rows of f: each
row has a node of every group. A draw takes some hundred evaluations of the likelihood, however many
groups there are. The line of `pymc_lgm.approximations.left_out` takes more than a hundred for each
group, and integrates over one direction only.

Merkle, Furr and Rabe-Hesketh (2019), *Bayesian comparison of latent variable models: conditional
versus marginal likelihoods*, Psychometrika 84, leave out clusters by such integrals.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from numpy.typing import NDArray
from scipy.sparse import csr_array

from pymc_lgm.approximations.expansions import CELLS
from pymc_lgm.approximations.gaussian import GaussianApproximation, Likelihood
from pymc_lgm.approximations.left_out import ROUGH
from pymc_lgm.approximations.quadrature import product_rule
from pymc_lgm.gaussian.sites import Precision, as_operator, cholesky_factors, is_finite, nonnegative
from pymc_lgm.gaussian.sums import Layout, SumPrior, blocks_at
from pymc_lgm.linalg import Array

__all__ = ["OwnElements", "left_out_effects"]

Index = NDArray[np.intp]

PER_AXIS = {1: 24, 2: 12, 3: 8}
"""Nodes per axis by the number of elements of x_g. With more elements the integral is sampled.

With them `ENOUGH` is met in two to four rounds for groups of one to fifty counts.
"""

ENOUGH = 1e-4
"""An integral that changes by less than this share from one rule to the next needs no further one.
It is a choice."""

ROUNDS = 10
"""Largest number of rules for one integral, each at the moments that the one before has found."""

LARGEST = 200
"""Largest number of elements of x_g. Their blocks of the precision are dense. It is a choice."""

NEWTON = 6
"""Newton steps to the center of the proposals. Fewer cost draws, and no exactness."""

DRAWS, ERROR, MOST = 32, 0.03, 2048
"""Importance draws of each x_g at once, in pairs that mirror each other. They are repeated until
the standard error of every logarithm is `ERROR`, or there are `MOST` draws. The error adds to the
variation of the weights among draws of the trace, which is larger."""

POOR = 0.3
"""With a larger standard error after all draws an integral counts as not found. It is a choice."""

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
    positions : ndarray of int, shape (G, d, d)
        Where the blocks of P are among its elements.
    """

    layout: Layout
    at: Index
    slot: Index
    positions: Index

    @classmethod
    def of(cls, layout: Layout, reads: Index, which: Index, group: Index) -> OwnElements | None:
        """Find them from the patterns of A and Q alone.

        Parameters
        ----------
        layout : Layout
        reads : ndarray of int, shape (observations, s)
            The elements of eta that each observation of the model may read, padded with −1.
        which, group : ndarray of int, shape (M,)
            Observations that are left out, and the group of each, 0 to G − 1.

        Returns
        -------
        OwnElements or None
            ``None`` if a group has none, or more than `LARGEST`.
        """
        if layout.B is not None:
            return None
        count = int(group.max()) + 1
        of_reader = np.full(len(reads), SEVERAL)
        of_reader[which] = group
        reader, slot = np.nonzero(reads >= 0)
        of_row = _common(reads[reader, slot], of_reader[reader], layout.E)
        owner = _common(layout.columns, of_row[layout.row_of], layout.N)
        owner[(layout.C != 0.0).any(axis=1) | (layout.U != 0.0).any(axis=1)] = SEVERAL
        _spread(owner, layout.rows_of_Q, layout.columns_of_Q)
        sizes = np.bincount(owner[owner >= 0], minlength=count)
        if sizes.min() < 1 or sizes.max() > LARGEST or count * sizes.max() ** 2 > CELLS:
            return None
        at, slot = _numbered(owner)
        return cls(layout, at, slot, layout.positions_of_blocks(at))


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
    likelihood: Likelihood,
    own: OwnElements,
    which: Index,
    group: Index,
    q: GaussianApproximation,
    f: Array,
    rng: np.random.Generator,
) -> tuple[Array, Array]:
    """Leave out the observations of each group together, for one draw f.

    Parameters
    ----------
    elements, which, q, f
        As in `left_out`; the prior of q is a sum.
    likelihood : Likelihood
        ℓ and its derivatives as a function of f.
    own : OwnElements
    group : ndarray of int, shape (M,)
        The group of each observation, 0 to G − 1.
    rng : numpy.random.Generator
        For importance draws, if a group has more than three elements.

    Returns
    -------
    log_density : ndarray, shape (G,)
        log p(y_g | r, theta); NaN if the integral is not found. With more than three elements it
        has a standard error of mostly `ERROR` or less.
    own : ndarray, shape (G,)
        log p(y_g | f, theta), of the draw itself.

    Notes
    -----
    Mostly a hundred rows of the likelihood for one element of x_g, 500 for two, 2000 for three, and
    40 to some hundred for more.
    """
    integrals = _Integrals(elements, own, which, group, q, f)
    if integrals.d in PER_AXIS:
        found = integrals.log_density()
    else:
        integrals.center_by(likelihood)
        found = integrals.sampled_log_density(rng)
    return found, np.bincount(group, elements(f[None])[0][which])


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
        self._own, self._q = own, q
        self._of_group = csr_array((np.ones(group.size), (group, np.arange(group.size))))
        layout, prior = own.layout, q.prior
        assert isinstance(prior, SumPrior)
        self.G, self.d = own.at.shape
        number = np.flatnonzero(own.slot[layout.columns] >= 0)
        places = layout.row_of[number], own.slot[layout.columns[number]]
        self._J = csr_array((prior.A[number], places), shape=(layout.E, own.at.size))
        u = np.where(own.at >= 0, (f - prior.mean)[own.at], 0.0).ravel()
        self._eta = f[self._N :] - self._J @ u  # at u = 0
        # The first rule is that of q's sites.
        W, z = nonnegative(q.precision, singular=True), f - prior.mean
        z[self._N :] -= self._J @ u
        pull = q.sites.nu - as_operator(W).times(z)
        self._Q = blocks_at(own.positions, prior.elements)
        self._go_to(W, pull[self._N :])

    def _go_to(self, W: Precision, pull: Array) -> None:
        """Center and root of the Gaussian with sites exp(pullᵀ Ju − ½ uᵀJᵀ W Ju)."""
        prior = self._q.prior
        assert isinstance(prior, SumPrior)
        _, inverse = cholesky_factors(blocks_at(self._own.positions, prior.elements_with(W)))
        self._root = np.ascontiguousarray(inverse.swapaxes(1, 2))
        half = np.einsum("gij,gj->gi", inverse, (self._J.T @ pull).reshape(self.G, self.d))
        self._center = np.einsum("gij,gj->gi", self._root, half)

    def center_by(self, likelihood: Likelihood) -> None:
        """Newton steps to the modes of the u_g."""
        f = self._f.copy()
        for _ in range(NEWTON):
            change = np.append(np.zeros(self._N), self._J @ self._center.ravel())
            f[self._N :] = self._eta + change[self._N :]
            _, gradient, W, _ = likelihood(f)
            if not (is_finite(W) and np.isfinite(gradient).all()):
                return
            W = nonnegative(W, singular=True)
            self._go_to(W, (gradient + as_operator(W).times(change))[self._N :])

    def sampled_log_density(self, rng: np.random.Generator) -> Array:
        """Importance sampling of all integrals."""
        log_Q = np.linalg.slogdet(self._Q)[1]
        log_root = np.log(np.einsum("gii->gi", self._root)).sum(axis=1)
        terms = np.empty((0, self.G))
        while len(terms) < MOST:
            xi = rng.standard_normal((DRAWS // 2, self.G, self.d))
            xi = np.concatenate([xi, -xi])
            u = self._center + np.einsum("gij,kgj->kgi", self._root, xi)
            squares = np.einsum("kgi,gij,kgj->kg", u, self._Q, u)
            new = self._given(u) - 0.5 * squares + 0.5 * (xi**2).sum(axis=2)
            new[~(new < np.inf)] = -np.inf
            # The mean of a pair, since its draws are not independent.
            terms = np.concatenate([terms, np.logaddexp(*np.split(new, 2)) - np.log(2.0)])
            top = terms.max(axis=0)
            weights = np.exp(terms - top)
            mean = weights.mean(axis=0)
            error = weights.std(axis=0) / (mean * np.sqrt(len(terms)))
            if (error <= ERROR).all():
                break
        return np.where(error <= POOR, top + np.log(mean) + 0.5 * log_Q + log_root, np.nan)

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
    return center, cholesky_factors(cov)[0]


@lru_cache
def _rule(d: int) -> tuple[Array, Array]:
    """Nodes ξ_k, (K, d), and log w_k + ½ |ξ_k|².

    With x_k = c + R ξ_k, ∫ h(x) dx is (2π)^(d/2) |R| Σ_k w_k exp(½ |ξ_k|²) h(x_k).
    """
    nodes, weights = product_rule(PER_AXIS[d], d)
    return nodes, np.log(weights) + 0.5 * (nodes**2).sum(axis=1)


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
