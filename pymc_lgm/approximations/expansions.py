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

from pymc_lgm.linalg import Array

__all__ = ["CELLS", "Expansions", "Pairs"]

Index = NDArray[np.intp]

CELLS = 4_000_000
"""Largest number of elements of an array with rows of f: 32 MB."""

DEGREE = 24
"""Degree of the polynomials. By hand, with 16, 20 and 32 leaving out took 1.3, 1.3 and 1.0 times as
long for three models of 400 to 1000 observations."""

LEVELS = 2.0 ** np.arange(-4, 5)
"""Candidates for D_l, in standard deviations of the f_i under q. The largest is taken up to which
all polynomials are accurate."""

ACCURATE = 1e-9
"""Largest sum of the last two Chebyshev coefficients of a polynomial. The error of a sum over ten
thousand observations is then some 1e-5 at most."""

FINER, CHECKED = 2, 1e-8
"""Number of times as many nodes at which a density that is not log-concave is compared with its
polynomial, and the largest difference, which has room for rounding. They are choices."""

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
    """c_l of each pair."""


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
    site : ndarray of int, shape (E,)
        The element of f that each observation reads.
    reach : ndarray, shape (E,)
        D_l; 0 if no polynomial is accurate.
    coefficients : ndarray, shape (E, DEGREE + 1)
        a_lj.
    """

    elements: Callable[[Array], Array]
    f: Array
    base: Array
    site: Index
    reach: Array
    coefficients: Array

    @classmethod
    @np.errstate(all="ignore")  # densities may overflow far from f
    def of(
        cls,
        elements: Callable[[Array], Array],
        f: Array,
        base: Array,
        site: Index,
        scale: Array,
        *,
        is_log_concave: bool = False,
    ) -> Expansions:
        """Fit the polynomials, from the smallest of `LEVELS` on as long as they are accurate.

        ``scale``, of shape (n,), has the standard deviation of each element of f. A level takes 25
        evaluations of the likelihood, or 49 if it is not log-concave: such a density may have a
        narrow peak between two nodes of the polynomial, so it is compared there, too.
        """
        finer = 1 if is_log_concave else FINER
        _, to_chebyshev, to_powers = _chebyshev(DEGREE)
        checked = _chebyshev(finer * DEGREE)[0]
        powers = np.vander(checked, DEGREE + 1, increasing=True).T
        reach, coefficients = np.zeros(site.size), np.zeros((site.size, DEGREE + 1))
        scale = np.where(scale > 0.0, scale, 0.0)
        is_open = np.ones(site.size, dtype=bool)
        for level in LEVELS:
            values = (elements(f + np.outer(level * checked, scale)) - base).T
            chebyshev = values[:, ::finer] @ to_chebyshev.T
            is_open &= np.abs(chebyshev[:, -2:]).sum(axis=1) <= ACCURATE
            found = chebyshev @ to_powers.T
            if finer > 1:
                is_open &= np.abs(found @ powers - values).max(axis=1) <= CHECKED
            if not is_open.any():
                break
            reach[is_open] = level * scale[site[is_open]]
            coefficients[is_open] = found[is_open]
        return cls(elements, f, base, site, reach, coefficients)

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
        for begin in range(0, line.size, COLUMNS):
            part = slice(begin, begin + COLUMNS)
            columns = c, direction[part], line[part], of_line, np.abs(t[:, part]).max(axis=0)
            sums, count = _sums_over_all(*columns, self.site, self.reach, self.coefficients)
            near = _near_of_all(*columns, self.site, self.reach, np.append(0, np.cumsum(count)))
            out[:, part] = self._added(sums, Pairs(*near), t[:, part])
        return out

    def along_sparse(self, pairs: Pairs, t: Array) -> Array:
        """The same sum for lines along which few observations change, and which are given."""
        columns = pairs, np.abs(t).max(axis=0), self.reach
        sums, near = _sums_over_pairs(*columns, self.coefficients)
        return self._added(sums, Pairs(*near), t)

    def _added(self, sums: Array, near: Pairs, t: Array) -> Array:
        """The polynomials with coefficients (DEGREE + 1, K), and densities that are evaluated."""
        longest = np.abs(t).max(axis=0)
        u = t / np.where(longest > 0.0, longest, 1.0)
        total = np.zeros(t.shape)
        for each in sums[::-1]:
            total *= u
            total += each
        if not near.observation.size:
            return total
        nodes, n = len(t), self.f.size
        row = _rows_of_lines(near, self.site, n)
        order = np.argsort(row, kind="stable")
        block = max(1, CELLS // (nodes * max(n, self.base.size)))
        ends = np.searchsorted(row[order], np.arange(0, row[order[-1]] + 1 + block, block))
        for first, (begin, end) in enumerate(pairwise(ends)):
            mine = order[begin:end]
            own = row[mine] - first * block
            rows = np.tile(self.f, (int(own[-1]) + 1, nodes, 1))
            _move(rows, self.f, own, mine, t, near, self.site)
            values = self.elements(rows.reshape(-1, n)).reshape(len(rows), nodes, -1)
            _add_values(total, values, self.base, own, mine, near)
        return total


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
def _sums_over_all(
    c: Array,
    direction: Index,
    line: Index,
    of_line: Index,
    longest: Array,
    site: Index,
    reach: Array,
    coefficients: Array,
) -> tuple[Array, Index]:
    """Σ_l a_lj (c_l t / D_l)^j, t the longest step, over l within reach, and how many are not.

    Shapes (DEGREE + 1, K) and (K,). The lines are the last axis, so that the compiler vectorizes
    the loops over them.
    """
    (E, J), K = coefficients.shape, line.size
    sums, count = np.zeros((J, K)), np.zeros(K, dtype=np.intp)
    u, power = np.empty(K), np.empty(K)
    for e in range(E):
        row = c[site[e]]
        for k in range(K):
            step = row[direction[k]] * longest[k]
            is_far, is_own = abs(step) <= reach[e], of_line[e] == line[k]
            is_moved = is_far and abs(step) > SMALLEST * reach[e]
            u[k] = step / reach[e] if is_moved else 0.0
            power[k] = 1.0 if is_far and not is_own else 0.0
            count[k] += not is_far and not is_own
        for j in range(J):
            a = coefficients[e, j]
            for k in range(K):
                sums[j, k] += a * power[k]
                power[k] *= u[k]
    return sums, count


@numba.njit(cache=True)
def _near_of_all(
    c: Array,
    direction: Index,
    line: Index,
    of_line: Index,
    longest: Array,
    site: Index,
    reach: Array,
    starts: Index,
) -> tuple[Index, Index, Array]:
    """The observations beyond reach, line by line."""
    near, moves = np.empty(starts[-1], dtype=np.intp), np.empty(starts[-1])
    if not near.size:
        return starts, near, moves
    at = starts.copy()
    for e in range(site.size):
        row = c[site[e]]
        for k in range(line.size):
            is_far = abs(row[direction[k]] * longest[k]) <= reach[e]
            if not is_far and of_line[e] != line[k]:
                near[at[k]], moves[at[k]] = e, row[direction[k]]
                at[k] += 1
    return starts, near, moves


@numba.njit(cache=True)
def _sums_over_pairs(
    pairs: Pairs, longest: Array, reach: Array, coefficients: Array
) -> tuple[Array, tuple[Index, Index, Array]]:
    """The same sums over given pairs, and those beyond reach."""
    K, J = longest.size, coefficients.shape[1]
    sums, starts = np.zeros((J, K)), np.zeros(K + 1, dtype=np.intp)
    near, moves = np.empty(pairs.moves.size, dtype=np.intp), np.empty(pairs.moves.size)
    count = 0
    for k in range(K):
        for i in range(pairs.starts[k], pairs.starts[k + 1]):
            e = pairs.observation[i]
            step = pairs.moves[i] * longest[k]
            if abs(step) <= reach[e]:
                u = step / reach[e] if abs(step) > SMALLEST * reach[e] else 0.0
                power = 1.0
                for j in range(J):
                    sums[j, k] += coefficients[e, j] * power
                    power *= u
            else:
                near[count], moves[count] = e, pairs.moves[i]
                count += 1
        starts[k + 1] = count
    return sums, (starts, near[:count], moves[:count])


@numba.njit(cache=True)
def _rows_of_lines(near: Pairs, site: Index, n: int) -> Index:
    """A row for each line, which lines share if they move different elements of f there.

    Each goes to the first of the last `OPEN` rows that has room. −1 for a line that moves none.
    """
    K = near.starts.size - 1
    row, taken, rows = np.empty(K, dtype=np.intp), np.zeros((OPEN, n), dtype=np.bool_), 0
    for k in range(K):
        mine = near.observation[near.starts[k] : near.starts[k + 1]]
        row[k] = -1 if mine.size == 0 else rows
        for r in range(max(0, rows - OPEN + 1), rows):
            has_room = True
            for e in mine:
                if taken[r % OPEN, site[e]]:
                    has_room = False
                    break
            if has_room and mine.size:
                row[k] = r
                break
        if row[k] == rows:
            taken[rows % OPEN] = False
            rows += 1
        for e in mine:
            taken[row[k] % OPEN, site[e]] = True
    return row


@numba.njit(cache=True)
def _move(
    rows: Array, f: Array, row: Index, lines: Index, t: Array, near: Pairs, site: Index
) -> None:
    """Move the elements of f that lines move, in the rows (R, nodes, n)."""
    for i in range(lines.size):
        k = lines[i]
        for p in range(near.starts[k], near.starts[k + 1]):
            s = site[near.observation[p]]
            for m in range(t.shape[0]):
                rows[row[i], m, s] = f[s] + near.moves[p] * t[m, k]


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
