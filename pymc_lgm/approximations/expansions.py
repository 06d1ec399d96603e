r"""Log densities of observations near a draw of f, as polynomials.

Along a line f + c t observation l has the log density ℓ_l(f_l + c_l t), where f_l is the element of
f that it reads. Leave-one-out densities need the sum of these over all l, at some tens of t on a
line for each observation, which would be that many evaluations of the whole likelihood. But ℓ_l is
a function of one number. Let it be a polynomial on |δ| ≤ D_l,

    ℓ_l(f_l + δ) − ℓ_l(f_l) = Σ_j a_lj (δ / D_l)^j,

whose coefficients are found once per draw. Then the sum over l is a polynomial in t for each line,
whose coefficients are Σ_l a_lj (c_l / D_l)^j. They take a few multiplications for each pair of a
line and an observation, and no evaluation of a density.

Where |c_l t| > D_l, the density is evaluated. Mostly these are few observations per line, those
near the one that is left out. Lines that move different elements there share rows of f, and so
evaluations of the likelihood.

If an observation reads two elements of f, such as a mean and a scale, its density is a polynomial
of two numbers, and again one of t along a line.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numba
import numpy as np

from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from pymc_lgm.linalg import Array

__all__ = ["CELLS", "Expansions", "Pairs", "in_columns"]

Index = NDArray[np.intp]

CELLS = 4_000_000
"""Largest number of elements of an array with rows of f: 32 MB."""

DEGREES = (24, 12)
"""Degree of the polynomials for observations that read one element of f, and two.

By hand, with 16, 20 and 32 instead of 24 leaving out took 1.3, 1.3 and 1.0 times as long for three
models of 400 to 1000 observations.
"""

LEVELS = 2.0 ** np.arange(-2, 5)
"""Candidates for D_l, in standard deviations of the f_i under q. The largest is taken up to which
all polynomials are accurate."""

ACCURATE = 1e-9
"""Largest sum of the last two Chebyshev coefficients of a polynomial. The error of a sum over ten
thousand observations is then some 1e-5 at most."""

CHECKED = 1e-8
"""Largest difference of a polynomial from a density that is not log-concave, between the nodes. It
has room for rounding. It is a choice."""

COLUMNS = 512
"""Lines whose sums are computed together, so that their coefficients stay in the cache."""

OPEN = 64
"""Number of rows that a line may join, of the last that were begun."""

SMALLEST = 1e-15
"""A smaller c_l t / D_l counts as 0, so that no power is a subnormal number, which is slow."""


class Pairs(NamedTuple):
    """The observations that change along each of K lines, one line after another."""

    starts: Index
    """Where the pairs of each line begin, and their number, (K + 1,)."""

    observation: Index
    """The observation l of each pair."""

    moves: Array
    """c of each element that it reads, (pairs, s)."""


@dataclass(frozen=True, eq=False)
class Expansions:
    """Polynomials for every observation, near one draw f.

    Attributes
    ----------
    elements : callable
        Rows of f (N, n) -> the log density of every observation, (N, E).
    f : ndarray, shape (n,)
    base : ndarray, shape (E,)
        The log density of every observation at f.
    reads : ndarray of int, shape (E, s)
        The elements of f that each observation reads, one or two, padded with −1.
    reach : ndarray, shape (E, s)
        D_l for each of them; 0 if no polynomial is accurate.
    coefficients : ndarray, shape (E, terms)
        a_l of each term of `_degrees`.
    """

    elements: Callable[[Array], Array]
    f: Array
    base: Array
    reads: Index
    reach: Array
    coefficients: Array

    @classmethod
    @np.errstate(all="ignore")  # densities may overflow far from f
    def of(
        cls,
        elements: Callable[[Array], Array],
        f: Array,
        base: Array,
        reads: Index,
        scale: Array,
        *,
        is_log_concave: bool = False,
    ) -> Expansions:
        """Fit the polynomials, from the smallest of `LEVELS` on as long as they are accurate.

        ``scale``, of shape (n,), has the standard deviation of each element of f. An element is in
        one column of ``reads`` only: see `in_columns`. A level takes 25 evaluations of the
        likelihood, or 169 for pairs. If it is not log-concave, these are 49 or 313: such a density
        may have a narrow peak between the nodes of the polynomial, so it is compared there, too.
        """
        E, s = reads.shape
        d = DEGREES[s - 1]
        nodes, to_chebyshev, to_powers = _chebyshev(d)
        terms, grid = _degrees(s, d), _grid(nodes, s)
        size = grid.shape[1]
        between = _grid(_chebyshev(2 * d)[0][1::2], s)
        powers = np.prod(between[:, None, :] ** terms.T[:, :, None], axis=0)
        if not is_log_concave:
            grid = np.concatenate([grid, between], axis=1)
        last = np.indices((d + 1,) * s).sum(axis=0) >= d - 1
        # Each element moves along the axis of its column.
        steps = np.zeros((s, f.size))
        for column in range(s):
            mine = reads[reads[:, column] >= 0, column]
            steps[column, mine] = np.where(scale[mine] > 0.0, scale[mine], 0.0)
        of_reads = np.where(reads >= 0, np.take_along_axis(steps, reads.T, axis=1).T, 1.0)
        reach, coefficients = np.zeros((E, s)), np.zeros((E, len(terms)))
        is_open = np.ones(E, dtype=bool)
        for level in LEVELS:
            values = (elements(f + level * (grid.T @ steps)) - base).T
            tensor = values[:, :size].reshape(E, *[d + 1] * s)
            chebyshev = _along_axes(tensor, to_chebyshev)
            is_open &= np.abs(chebyshev[:, last]).sum(axis=1) <= ACCURATE
            chebyshev[:, np.indices((d + 1,) * s).sum(axis=0) > d] = 0.0
            found = _along_axes(chebyshev, to_powers)[:, *terms.T]
            if not is_log_concave:
                is_open &= np.abs(found @ powers - values[:, size:]).max(axis=1) <= CHECKED
            if not is_open.any():
                break
            reach[is_open] = level * of_reads[is_open]
            coefficients[is_open] = found[is_open]
        return cls(elements, f, base, reads, reach, coefficients)

    def along(self, c: Array, direction: Index, line: Index, of_line: Index, t: Array) -> Array:
        """Σ_l [ℓ_l(f_l + c_l t) − ℓ_l(f_l)] without the observations of the line itself.

        Parameters
        ----------
        c : ndarray, shape (n, J)
            Directions.
        direction : ndarray of int, shape (K,)
            The direction of each line.
        line : ndarray of int, shape (K,)
            The number of each line.
        of_line : ndarray of int, shape (E,)
            The line that leaves each observation out, or −1.
        t : ndarray, shape (nodes, K)

        Returns
        -------
        ndarray, shape (nodes, K)
        """
        out = np.empty(t.shape)
        block = max(1, min(COLUMNS, CELLS // self.base.size))  # all pairs may be beyond reach
        for begin in range(0, line.size, block):
            part = slice(begin, begin + block)
            columns = c, direction[part], line[part], of_line, np.abs(t[:, part]).max(axis=0)
            sums, count = _sums_over_all(*columns, self.reads, self.reach, self.coefficients)
            near = _near_of_all(*columns, self.reads, self.reach, np.append(0, np.cumsum(count)))
            out[:, part] = self._added(sums, Pairs(*near), t[:, part])
        return out

    def along_sparse(self, pairs: Pairs, t: Array) -> Array:
        """The same sum for lines along which few observations change, and which are given."""
        columns = pairs, np.abs(t).max(axis=0), self.reach
        sums, near = _sums_over_pairs(*columns, self.coefficients)
        return self._added(sums, Pairs(*near), t)

    def _added(self, sums: Array, near: Pairs, t: Array) -> Array:
        """The polynomials with coefficients (degree + 1, K), and densities that are evaluated."""
        longest = np.abs(t).max(axis=0)
        u = t / np.where(longest > 0.0, longest, 1.0)
        total = np.zeros(t.shape)
        for each in sums[::-1]:
            total *= u
            total += each
        if not near.observation.size:
            return total
        nodes, n = len(t), self.f.size
        row = _rows_of_lines(near, self.reads, n)
        order = np.argsort(row, kind="stable")
        block = max(1, CELLS // (nodes * max(n, self.base.size)))
        ends = np.searchsorted(row[order], np.arange(0, row[order[-1]] + 1 + block, block))
        for first, (begin, end) in enumerate(pairwise(ends)):
            mine = order[begin:end]
            own = row[mine] - first * block
            rows = np.tile(self.f, (int(own[-1]) + 1, nodes, 1))
            _move(rows, self.f, own, mine, t, near, self.reads)
            values = self.elements(rows.reshape(-1, n)).reshape(len(rows), nodes, -1)
            _add_values(total, values, self.base, own, mine, near)
        return total


def in_columns(reads: Index, n: int) -> Index | None:
    """Reads of one or two elements, (E, s), such that each element of f is in one column.

    ``None`` if there is no such order, or if an observation reads more elements.
    """
    if reads.shape[1] == 1:
        return np.maximum(reads, 0)
    if reads.shape[1] > 2:
        return None
    # Elements are joined to copies of those that are read with them. If an element is not joined
    # to its own copy, the two columns are the two sides.
    a, b = reads[(reads >= 0).all(axis=1)].T
    joined = csr_array((np.ones(2 * a.size), (np.r_[a, a + n], np.r_[b + n, b])), (2 * n, 2 * n))
    _, part = connected_components(joined, directed=False)
    if (part[:n] == part[n:]).any():
        return None
    column = (part[:n] < part[n:]).astype(np.intp)
    out = np.full_like(reads, -1)
    k, slot = np.nonzero(reads >= 0)
    out[k, column[reads[k, slot]]] = reads[k, slot]
    return out


def _along_axes(values: Array, matrix: Array) -> Array:
    """Multiply each axis but the first by a matrix."""
    for axis in range(1, values.ndim):
        values = np.moveaxis(np.tensordot(values, matrix, (axis, 1)), -1, axis)
    return values


def _grid(nodes: Array, s: int) -> Array:
    """All points with these coordinates, (s, points)."""
    return np.stack(np.meshgrid(*[nodes] * s, indexing="ij")).reshape(s, -1)


@lru_cache
def _degrees(s: int, degree: int) -> Index:
    """The powers of each term, (terms, s), in the order of the loops of `_accumulate`."""
    powers = np.indices((degree + 1,) * s).reshape(s, -1).T
    return np.ascontiguousarray(powers[powers.sum(axis=1) <= degree])


@lru_cache
def _chebyshev(degree: int) -> tuple[Array, Array, Array]:
    """Chebyshev nodes, the matrix from values there to coefficients, and from these to powers."""
    nodes = -np.cos(np.pi * np.arange(degree + 1) / degree)
    ends = np.ones(degree + 1)
    ends[[0, -1]] = 0.5
    vandermonde = np.polynomial.chebyshev.chebvander(nodes, degree)
    to_chebyshev = 2.0 / degree * ends[:, None] * vandermonde.T * ends
    to_powers = np.zeros((degree + 1, degree + 1))
    for j in range(degree + 1):
        to_powers[: j + 1, j] = np.polynomial.chebyshev.cheb2poly(np.eye(degree + 1)[j, : j + 1])
    return nodes, to_chebyshev, to_powers


@numba.njit(cache=True)
def _accumulate(sums: Array, a: Array, u: Array, weight: Array) -> None:
    """Add Σ a_ij u_1^i u_2^j to the row i + j of the sums (degree + 1, K); ``weight`` is 0 or 1.

    The lines are the last axis, so that the compiler vectorizes the loops over them. ``weight`` is
    overwritten.
    """
    J, K = sums.shape
    if len(u) == 1:
        for j in range(J):
            for k in range(K):
                sums[j, k] += a[j] * weight[k]
                weight[k] *= u[0, k]
        return
    power, term = np.empty(K), 0
    for i in range(J):
        power[:] = weight
        for j in range(J - i):
            for k in range(K):
                sums[i + j, k] += a[term] * power[k]
                power[k] *= u[1, k]
            term += 1
        for k in range(K):
            weight[k] *= u[0, k]


@numba.njit(cache=True)
def _step_of(
    c: Array, direction: int, longest: float, reads: Index, reach: Array, u: Array
) -> bool:
    """Set u to the step of an observation in shares of its reach; return whether it is within."""
    for i in range(reads.size):
        step = c[reads[i], direction] * longest if reads[i] >= 0 else 0.0
        if not abs(step) <= reach[i]:
            return False
        u[i] = step / reach[i] if abs(step) > SMALLEST * reach[i] else 0.0
    return True


@numba.njit(cache=True)
def _sums_over_all(
    c: Array,
    direction: Index,
    line: Index,
    of_line: Index,
    longest: Array,
    reads: Index,
    reach: Array,
    coefficients: Array,
) -> tuple[Array, Index]:
    """The terms of each degree, with t the longest step, over l within reach; how many are not.

    Shapes (degree + 1, K) and (K,).
    """
    (E, s), K = reads.shape, line.size
    J = DEGREES[0] + 1 if s == 1 else DEGREES[1] + 1
    sums, count = np.zeros((J, K)), np.zeros(K, dtype=np.intp)
    u, weight, one = np.zeros((s, K)), np.empty(K), np.empty(s)
    for e in range(E):
        for k in range(K):
            is_far = _step_of(c, direction[k], longest[k], reads[e], reach[e], one)
            is_own = of_line[e] == line[k]
            weight[k] = 1.0 if is_far and not is_own else 0.0
            for i in range(s):
                u[i, k] = one[i] if is_far else 0.0
            count[k] += not is_far and not is_own
        _accumulate(sums, coefficients[e], u, weight)
    return sums, count


@numba.njit(cache=True)
def _near_of_all(
    c: Array,
    direction: Index,
    line: Index,
    of_line: Index,
    longest: Array,
    reads: Index,
    reach: Array,
    starts: Index,
) -> tuple[Index, Index, Array]:
    """The observations beyond reach, line by line."""
    E, s = reads.shape
    near, moves = np.empty(starts[-1], dtype=np.intp), np.zeros((starts[-1], s))
    if not near.size:
        return starts, near, moves
    at, one = starts.copy(), np.empty(s)
    for e in range(E):
        for k in range(line.size):
            if of_line[e] == line[k]:
                continue
            if not _step_of(c, direction[k], longest[k], reads[e], reach[e], one):
                near[at[k]] = e
                for i in range(s):
                    if reads[e, i] >= 0:
                        moves[at[k], i] = c[reads[e, i], direction[k]]
                at[k] += 1
    return starts, near, moves


@numba.njit(cache=True)
def _sums_over_pairs(
    pairs: Pairs, longest: Array, reach: Array, coefficients: Array
) -> tuple[Array, tuple[Index, Index, Array]]:
    """The same sums over given pairs, and those beyond reach."""
    K, (P, s) = longest.size, pairs.moves.shape
    J = DEGREES[0] + 1 if s == 1 else DEGREES[1] + 1
    sums, starts = np.zeros((K, J, 1)), np.zeros(K + 1, dtype=np.intp)
    near, moves = np.empty(P, dtype=np.intp), np.empty((P, s))
    u, weight, count = np.empty((s, 1)), np.empty(1), 0
    for k in range(K):
        for p in range(pairs.starts[k], pairs.starts[k + 1]):
            e, is_far = pairs.observation[p], True
            for i in range(s):
                step = pairs.moves[p, i] * longest[k]
                is_far = is_far and abs(step) <= reach[e, i]
                is_moved = is_far and abs(step) > SMALLEST * reach[e, i]
                u[i, 0] = step / reach[e, i] if is_moved else 0.0
            if is_far:
                weight[0] = 1.0
                _accumulate(sums[k], coefficients[e], u, weight)
            else:
                near[count], moves[count] = e, pairs.moves[p]
                count += 1
        starts[k + 1] = count
    return np.ascontiguousarray(sums[:, :, 0].T), (starts, near[:count], moves[:count])


@numba.njit(cache=True)
def _rows_of_lines(near: Pairs, reads: Index, n: int) -> Index:
    """A row for each line, which lines share if they move different elements of f there.

    Each goes to the first of the last `OPEN` rows that has room. −1 for a line that moves none.
    """
    K = near.starts.size - 1
    row, taken, rows = np.empty(K, dtype=np.intp), np.zeros((OPEN, n), dtype=np.bool_), 0
    for k in range(K):
        mine = reads[near.observation[near.starts[k] : near.starts[k + 1]]]
        row[k] = -1 if mine.size == 0 else rows
        for r in range(max(0, rows - OPEN + 1), rows):
            has_room = True
            for e in range(len(mine)):
                for i in mine[e]:
                    has_room = has_room and not (i >= 0 and taken[r % OPEN, i])
                if not has_room:
                    break
            if has_room and mine.size:
                row[k] = r
                break
        if row[k] == rows:
            taken[rows % OPEN] = False
            rows += 1
        for e in range(len(mine)):
            for i in mine[e]:
                if i >= 0:
                    taken[row[k] % OPEN, i] = True
    return row


@numba.njit(cache=True)
def _move(
    rows: Array, f: Array, row: Index, lines: Index, t: Array, near: Pairs, reads: Index
) -> None:
    """Move the elements of f that lines move, in the rows (R, nodes, n)."""
    for i in range(lines.size):
        k = lines[i]
        for p in range(near.starts[k], near.starts[k + 1]):
            for slot in range(reads.shape[1]):
                s = reads[near.observation[p], slot]
                if s >= 0:
                    for m in range(t.shape[0]):
                        rows[row[i], m, s] = f[s] + near.moves[p, slot] * t[m, k]


@numba.njit(cache=True)
def _add_values(
    total: Array, values: Array, base: Array, row: Index, lines: Index, near: Pairs
) -> None:
    """Add the densities of the observations of each line, (R, nodes, E), to its total."""
    for i in range(lines.size):
        k = lines[i]
        for p in range(near.starts[k], near.starts[k + 1]):
            e = near.observation[p]
            for m in range(total.shape[0]):
                total[m, k] += values[row[i], m, e] - base[e]
