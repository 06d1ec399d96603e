"""Sparse factors by dense blocks: columns of L with the same rows are one array, for BLAS.

A supernode is a run of columns, each of which has the rows of the one before it without the first
(Liu, Ng and Peyton 1993, *On finding supernodes for sparse matrix computations*, SIAM Journal on
Matrix Analysis 14). Its elements are an array of h rows and w columns, in row order, whose first
w rows are lower triangular. Each supernode is updated by those on its left (Ng and Peyton
1993, *Block sparse Cholesky algorithms on advanced uniprocessor computers*, SIAM Journal on
Scientific Computing 14). The inverse on the pattern is computed from the last one to the first
(Takahashi, Fagan and Chen 1973, *Formation of a sparse bus impedance matrix and its application to
short circuit study*, PICA; here in blocks).

``starts`` and ``below`` have the pattern of L in compressed columns, as in
`pymc_lgm.gaussian.sparse.Pattern`: the rows of column c are ``below[starts[c] : starts[c + 1]]``,
its diagonal first, and increase. `places` says where each of these elements is in the blocks,
which follow one another in one array, and `to_blocks` copies columns to them. `cholesky` needs
about Σ_c h_c² operations, with h_c the length of column c of L, and `takahashi` twice as many.
Loops over columns need as many; in blocks each operation is faster.
"""

from __future__ import annotations

import numba
import numpy as np

from numpy.typing import NDArray

from pymc_lgm.compile.loops import blas
from pymc_lgm.linalg import Array

__all__ = [
    "cholesky",
    "find_supernodes",
    "multiply",
    "multiply_transposed",
    "places",
    "postorder",
    "relax",
    "solve",
    "solve_transposed",
    "takahashi",
    "to_blocks",
]

Index = NDArray[np.intp]

SMALL = 200
"""Multiplications of an update up to which a loop is used instead of BLAS, whose calls cost more.

For 12 or 25 rows and up to 8 columns the loop took 0.3 to 0.85 of the time of a call with 20 to 200
multiplications, and 0.7 to 1.2 of it with 400.
"""


NARROW = 8
"""Most columns of a triangle for which a loop solves one right-hand side, instead of BLAS.

By hand, for 10 000 areas and for counts of 144 areas in 15 periods, 8 columns were faster than 16
and 32, and a `SMALL` of 200 than 500 and 1000.
"""

PANEL = 64
"""Columns that are computed by one product, where only a lower triangle is needed.

By hand, with 10 000 nearest neighbors a factor takes 95 ms, and 104 by products of all columns.
"""

TOGETHER = 256
"""Most columns of earlier supernodes that update a supernode by one product.

2000 effects of groups beside 196 basis functions are 2000 supernodes of one column, each of which
has the same rows of the last supernode. By hand, a factorization took 73 ms with a product for each
of them, and takes 7.0 ms; 9.8, 7.2 and 8.1 with 32, 64 and 1024 columns.
"""

RELAXED = ((4, np.inf), (16, 0.8), (48, 0.1))
"""Pairs (columns, share): a column may join a supernode that then has at most this many columns if
less than this share of its elements are zeros. These are the numbers of CHOLMOD (Chen, Davis, Hager
and Rajamanickam 2008, *Algorithm 887*, ACM TOMS 35), as is `WIDE`."""

WIDE = 0.05
"""The share for a supernode of any number of columns."""


@numba.njit(cache=True)
def postorder(starts: Index, below: Index) -> Index:
    """An order of the columns in which each comes after its subtree, and before other subtrees.

    The parent of a column is its first row below the diagonal. In this order L has the same
    elements, and the last child of a column is the one before it (Liu 1990, *The role of
    elimination trees in sparse factorization*, SIAM Journal on Matrix Analysis 11).
    """
    n = starts.size - 1
    # Column n is the parent of columns without one. The children of a column are a linked list.
    child, sibling = np.full(n + 1, -1), np.full(n + 1, -1)
    for c in range(n - 1, -1, -1):
        parent = below[starts[c] + 1] if starts[c + 1] - starts[c] > 1 else n
        sibling[c] = child[parent]
        child[parent] = c
    # From the last to the first: a column, then the subtrees of its children.
    order, stack = np.empty(n, dtype=np.intp), [n]
    k = n
    while stack:
        c = stack.pop()
        if c < n:
            k -= 1
            order[k] = c
        c = child[c]
        while c != -1:
            stack.append(c)
            c = sibling[c]
    return order


@numba.njit(cache=True)
def _heights(starts: Index, below: Index, widths: Index, shares: Array) -> Index:
    """The length of each column after `relax`: one that joins the next column gets its rows."""
    n = starts.size - 1
    heights = np.empty(n, dtype=np.intp)
    # Zeros, elements and columns of the supernode that begins at column c + 1.
    zeros, size, width = 0, 0, 0
    for c in range(n - 1, -1, -1):
        h = starts[c + 1] - starts[c]
        heights[c] = h
        if h > 1 and below[starts[c] + 1] == c + 1:
            taller = heights[c + 1] + 1
            more = zeros + taller - h
            share = WIDE
            for k in range(widths.size - 1, -1, -1):
                if width + 1 <= widths[k]:
                    share = shares[k]
            if more == 0 or more < share * (size + taller):
                heights[c] = taller
                zeros, size, width = more, size + taller, width + 1
                continue
        zeros, size, width = 0, h, 1
    return heights


@numba.njit(cache=True)
def _with_heights(starts: Index, below: Index, heights: Index) -> tuple[Index, Index]:
    """The pattern in which columns have these lengths."""
    n = starts.size - 1
    begins = np.zeros(n + 1, dtype=np.intp)
    begins[1:] = np.cumsum(heights)
    rows = np.empty(begins[n], dtype=np.intp)
    for c in range(n - 1, -1, -1):
        begin, h = begins[c], heights[c]
        if h == starts[c + 1] - starts[c]:
            rows[begin : begin + h] = below[starts[c] : starts[c + 1]]
        else:
            rows[begin] = c
            rows[begin + 1 : begin + h] = rows[begins[c + 1] : begins[c + 2]]
    return begins, rows


def relax(starts: Index, below: Index) -> tuple[Index, Index]:
    """A pattern with zeros in L, so that there are fewer supernodes, each with more columns.

    A column whose parent is the next column may have all of that column's rows (Ashcraft and Grimes
    1989, *The influence of relaxed supernode partitions on the multifrontal method*, ACM TOMS 15).
    Operations on zeros cost less than calls of BLAS for each small supernode.
    """
    widths, shares = (np.array(each) for each in zip(*RELAXED, strict=True))
    relaxed: tuple[Index, Index] = _with_heights(
        starts, below, _heights(starts, below, widths, shares)
    )
    return relaxed


@numba.njit(cache=True)
def find_supernodes(starts: Index, below: Index) -> Index:
    """The first column of each supernode, and n.

    Column c belongs to the supernode of column c − 1 if c is the next row of that column, and if it
    has one row fewer. No row has to be compared: fill gives c all later rows of such a column.
    """
    n = starts.size - 1
    begins = [0]
    for c in range(1, n):
        height = starts[c] - starts[c - 1]
        if height < 2 or below[starts[c - 1] + 1] != c or starts[c + 1] - starts[c] != height - 1:
            begins.append(c)
    begins.append(n)
    return np.array(begins)


@numba.njit(cache=True)
def _offsets(starts: Index, begins: Index) -> Index:
    """Where the h × w array of each supernode begins, if one follows another, and their size."""
    offsets = np.zeros(begins.size, dtype=np.intp)
    for s in range(begins.size - 1):
        c = begins[s]
        offsets[s + 1] = offsets[s] + (starts[c + 1] - starts[c]) * (begins[s + 1] - c)
    return offsets


@numba.njit(cache=True)
def places(starts: Index, begins: Index) -> tuple[Index, int]:
    """The place in the blocks of each element of L, and the size of the blocks.

    The elements are in the order of ``below``. Places above the triangle of a block belong to none.
    """
    offsets = _offsets(starts, begins)
    found = np.empty(starts[-1], dtype=np.intp)
    for s in range(begins.size - 1):
        first, w = begins[s], begins[s + 1] - begins[s]
        for c in range(w):
            start = starts[first + c]
            for t in range(starts[first + c + 1] - start):
                found[start + t] = offsets[s] + (c + t) * w + c
    return found, offsets[begins.size - 1]


@numba.njit(cache=True)
def to_blocks(starts: Index, begins: Index, L: Array) -> Array:
    """Blocks F from columns L, one h × w array after another."""
    offsets = _offsets(starts, begins)
    F = np.zeros(offsets[begins.size - 1])
    for s in range(begins.size - 1):
        first, w = begins[s], begins[s + 1] - begins[s]
        for c in range(w):
            start = starts[first + c]
            for t in range(starts[first + c + 1] - start):
                F[offsets[s] + (c + t) * w + c] = L[start + t]
    return F


@numba.njit(cache=True)
def cholesky(starts: Index, below: Index, begins: Index, F: Array) -> bool:
    """Overwrite the lower triangle of A with L, A = L Lᵀ; false if A is not positive definite.

    Parameters
    ----------
    starts, below : ndarray of int
        The pattern of L.
    begins : ndarray of int
        Result of `find_supernodes`.
    F : ndarray
        Blocks with the elements of A, and zeros everywhere else.
    """
    n, count = starts.size - 1, begins.size - 1
    offsets = _offsets(starts, begins)
    owner = _owners(begins)
    # Where each row is in the current block. Values left by other blocks are never read, because
    # all rows of an update are rows of the block.
    local = np.zeros(n, dtype=np.intp)
    # A linked list for each supernode s: the finished ones whose next row is a column of s. They
    # update s. at[k] is the position of that row among the rows of supernode k.
    head, after = np.full(count, -1), np.full(count, -1)
    at = np.zeros(count, dtype=np.intp)
    # Columns that have not updated the current block yet: see `_gather`.
    space = np.empty(_tallest(starts, begins) * TOGETHER)
    for s in range(count):
        first, last = begins[s], begins[s + 1]
        w, rows = last - first, below[starts[first] : starts[first + 1]]
        h = rows.size
        block = F[offsets[s] : offsets[s + 1]].reshape(h, w)
        for t in range(h):
            local[rows[t]] = t
        gathered, above, columns = space[: h * TOGETHER].reshape(h, TOGETHER), 0, 0
        k = head[s]
        while k != -1:
            following, p = after[k], at[k]
            earlier_rows = below[starts[begins[k]] : starts[begins[k] + 1]]
            width = begins[k + 1] - begins[k]
            earlier = F[offsets[k] : offsets[k + 1]].reshape(earlier_rows.size, width)
            # Rows p to q of supernode k are columns of s.
            q = p
            while q < earlier_rows.size and earlier_rows[q] < last:
                q += 1
            has_all = earlier_rows.size - p == h - local[earlier_rows[p]]
            if has_all and w * h > SMALL and width <= TOGETHER:
                above, columns = _gather(block, above, gathered, columns, earlier[p:])
            else:
                _update(block, first, local, earlier, earlier_rows, p, q)
            if q < earlier_rows.size:  # next it updates the supernode of its row q
                _append(k, q, owner[earlier_rows[q]], at, head, after)
            k = following
        _update_at_once(block, above, gathered, columns)
        if not _factorize_block(block):
            return False
        if h > w:
            _append(s, w, owner[rows[w]], at, head, after)
    return True


@numba.njit(cache=True)
def _update(
    block: Array, first: int, local: Index, earlier: Array, earlier_rows: Index, p: int, q: int
) -> None:
    """Subtract earlier[p:] earlier[p:q]ᵀ from the block of the supernode with this first column.

    ``earlier`` is the block of a finished supernode, ``earlier_rows`` are its rows, and ``local``
    is where each row is in the block that is updated.
    """
    width = earlier.shape[1]
    if width * (q - p) * (earlier_rows.size - p) <= SMALL:
        for b in range(p, q):
            column = earlier_rows[b] - first
            for a in range(b, earlier_rows.size):
                total = 0.0
                for c in range(width):
                    total += earlier[a, c] * earlier[b, c]
                block[local[earlier_rows[a]], column] -= total
        return
    # Only the lower triangle is needed, so panels of columns begin at their own rows.
    for begin in range(p, q, PANEL):
        end = min(begin + PANEL, q)
        change = blas.product(earlier[begin:], earlier[begin:end].T)
        for a in range(earlier_rows.size - begin):
            mine, lost = block[local[earlier_rows[begin + a]]], change[a]
            for b in range(end - begin):
                mine[earlier_rows[begin + b] - first] -= lost[b]


@numba.njit(cache=True)
def _owners(begins: Index) -> Index:
    """The supernode of each column."""
    owner = np.empty(begins[-1], dtype=np.intp)
    for s in range(begins.size - 1):
        owner[begins[s] : begins[s + 1]] = s
    return owner


@numba.njit(cache=True)
def _append(k: int, position: int, target: int, at: Index, head: Index, after: Index) -> None:
    """Let supernode k, from the row at this position on, be one that updates the target."""
    at[k], after[k], head[target] = position, head[target], k


@numba.njit(cache=True)
def _tallest(starts: Index, begins: Index) -> int:
    """Rows of the supernode with the most rows."""
    most = 0
    for s in range(begins.size - 1):
        most = max(most, starts[begins[s] + 1] - starts[begins[s]])
    return most


@numba.njit(cache=True)
def _gather(
    block: Array, above: int, gathered: Array, columns: int, earlier: Array
) -> tuple[int, int]:
    """Add rows of an earlier supernode to those that will update a block at once.

    They are all rows of the block but the first. The number of these, ``above``, must be the same
    for all that are gathered: if it changes, or if there is no room, the block is updated first.

    Returns
    -------
    int, int
        ``above``, and the number of columns that are gathered.
    """
    taller, width = earlier.shape
    skipped = block.shape[0] - taller
    if skipped != above or columns + width > TOGETHER:
        _update_at_once(block, above, gathered, columns)
        columns = 0
    for t in range(taller):
        for c in range(width):
            gathered[t, columns + c] = earlier[t, c]
    return skipped, columns + width


@numba.njit(cache=True)
def _update_at_once(block: Array, above: int, gathered: Array, columns: int) -> None:
    """Subtract G Gᵀ from a block (h, w) without the first rows and columns.

    G are the first columns of an array with a row for each other row of the block.
    """
    if columns == 0:
        return
    h, w = block.shape
    G = np.ascontiguousarray(gathered[: h - above, :columns])
    change = blas.product(G, G[: w - above].T)
    for a in range(h - above):
        for b in range(w - above):
            block[above + a, above + b] -= change[a, b]


@numba.njit(cache=True)
def _factorize_block(block: Array) -> bool:
    """Overwrite a block (h, w) by its columns of L; false if it is not positive definite."""
    h, w = block.shape
    if w == 1:
        if not 0.0 < block[0, 0] < np.inf:
            return False
        root = np.sqrt(block[0, 0])
        block[0, 0] = root
        for t in range(1, h):
            block[t, 0] /= root
        return True
    # BLAS reads the lower triangle in row order as an upper one, Lᵀ, in column order.
    upper = block[:w].T
    if not blas.factorize_upper(upper):
        return False
    for c in range(w):
        if not 0.0 < block[c, c] < np.inf:
            return False
    if h > w:
        blas.solve(upper, False, True, block[w:])  # each row r becomes L⁻¹ r
    return True


@numba.njit(cache=True)
def takahashi(starts: Index, below: Index, begins: Index, F: Array, T: Array) -> None:
    """Write Σ = (L Lᵀ)⁻¹ into blocks T where L has elements, from the blocks F of L.

    With the k rows R below the triangle of a supernode J, and Y = L_RJ L_JJ⁻¹, (k, w),

        Σ_RJ = −Σ_RR Y,   Σ_JJ = L_JJ⁻ᵀ L_JJ⁻¹ − Yᵀ Σ_RJ.

    Σ_RR, (k, k), is gathered from supernodes on the right of J: by fill they have all its elements.
    """
    count = begins.size - 1
    offsets = _offsets(starts, begins)
    owner = _owners(begins)
    most = 0
    for s in range(count):
        c = begins[s]
        most = max(most, starts[c + 1] - starts[c] - (begins[s + 1] - c))
    # The space of every Σ_RR, and the position of each row of R in a supernode on the right.
    space, place = np.empty(most * most), np.empty(most, dtype=np.intp)
    gathered = below[:0]  # the rows of the Σ_RR that is in the space
    for s in range(count - 1, -1, -1):
        first = begins[s]
        w, rows = begins[s + 1] - first, below[starts[first] : starts[first + 1]]
        h = rows.size
        k = h - w
        block = F[offsets[s] : offsets[s + 1]].reshape(h, w)
        out = T[offsets[s] : offsets[s + 1]].reshape(h, w)
        upper = block[:w].T
        inverse = block[:w].copy()  # its lower triangle, the upper one in column order
        blas.invert_upper(inverse.T)
        if k:
            Y = block[w:].copy()
            blas.solve(upper, False, False, Y)
            Sigma_RR = space[: k * k].reshape(k, k)  # its lower triangle
            # The next supernode to the right often has the same rows R.
            a = k if np.array_equal(rows[w:], gathered) else 0
            gathered = rows[w:]
            _gather_inverse(Sigma_RR, a, rows[w:], owner, starts, below, begins, offsets, T, place)
            Yt = np.ascontiguousarray(Y.T)
            YtS = blas.symmetric_times(1.0, Sigma_RR.T, Yt)  # Yᵀ Σ_RR
            for start in range(0, w, PANEL):
                end = min(start + PANEL, w)
                change = blas.product(YtS[start:end], Yt[:end].T)
                for a in range(start, end):
                    for c in range(a + 1):
                        inverse[a, c] += change[a - start, c]
            for t in range(k):
                for c in range(w):
                    out[w + t, c] = -YtS[c, t]
        # Numba would compile an assignment of arrays for seconds: its error has the shapes as text.
        for a in range(w):
            for c in range(a + 1):
                out[a, c] = inverse[a, c]


@numba.njit(cache=True)
def _gather_inverse(
    Sigma_RR: Array,
    a: int,
    R: Index,
    owner: Index,
    starts: Index,
    below: Index,
    begins: Index,
    offsets: Index,
    T: Array,
    place: Index,
) -> None:
    """Copy the lower triangle of Σ_RR, from column a on, from blocks T of supernodes on the right.

    ``owner`` are the supernodes of columns, and ``place`` is space for as many integers as R has.
    """
    k = R.size
    while a < k:
        # Rows a to stop of R are columns of supernode o.
        o = owner[R[a]]
        begin, end = begins[o], begins[o + 1]
        right_rows = below[starts[begin] : starts[begin + 1]]
        right_block = T[offsets[o] : offsets[o + 1]].reshape(right_rows.size, end - begin)
        stop = a
        while stop < k and R[stop] < end:
            stop += 1
        t = 0
        for b in range(a, k):
            while right_rows[t] < R[b]:
                t += 1
            place[b] = t
        for b in range(a, k):
            row, mine = right_block[place[b]], Sigma_RR[b]
            for c in range(a, min(stop, b + 1)):
                mine[c] = row[R[c] - begin]
        a = stop


@numba.njit(cache=True)
def solve(starts: Index, below: Index, begins: Index, F: Array, x: Array) -> None:
    """x ← L⁻¹ x for columns x, (n, N), from the blocks F of L."""
    offsets = _offsets(starts, begins)
    for s in range(begins.size - 1):
        first, w, h = _sizes(starts, begins, s)
        _solve_triangle(F, offsets[s], x, first, w, False)
        _add_to_rows(-1.0, F, offsets[s], x, first, w, below, starts[first], h)


@numba.njit(cache=True)
def solve_transposed(starts: Index, below: Index, begins: Index, F: Array, x: Array) -> None:
    """x ← L⁻ᵀ x for columns x, (n, N), from the blocks F of L."""
    offsets = _offsets(starts, begins)
    for s in range(begins.size - 2, -1, -1):
        first, w, h = _sizes(starts, begins, s)
        _add_from_rows(-1.0, F, offsets[s], x, first, w, below, starts[first], h)
        _solve_triangle(F, offsets[s], x, first, w, True)


@numba.njit(cache=True)
def multiply(starts: Index, below: Index, begins: Index, F: Array, x: Array) -> None:
    """x ← L x for columns x, (n, N), from the blocks F of L."""
    offsets = _offsets(starts, begins)
    for s in range(begins.size - 2, -1, -1):
        first, w, h = _sizes(starts, begins, s)
        _add_to_rows(1.0, F, offsets[s], x, first, w, below, starts[first], h)
        for c in range(x.shape[1]):
            for a in range(w - 1, -1, -1):
                total = 0.0
                for b in range(a + 1):
                    total += F[offsets[s] + a * w + b] * x[first + b, c]
                x[first + a, c] = total


@numba.njit(cache=True)
def multiply_transposed(starts: Index, below: Index, begins: Index, F: Array, x: Array) -> None:
    """x ← Lᵀ x for columns x, (n, N), from the blocks F of L."""
    offsets = _offsets(starts, begins)
    for s in range(begins.size - 1):
        first, w, h = _sizes(starts, begins, s)
        for c in range(x.shape[1]):
            for b in range(w):
                total = 0.0
                for a in range(b, w):
                    total += F[offsets[s] + a * w + b] * x[first + a, c]
                x[first + b, c] = total
        _add_from_rows(1.0, F, offsets[s], x, first, w, below, starts[first], h)


@numba.njit(cache=True)
def _sizes(starts: Index, begins: Index, s: int) -> tuple[int, int, int]:
    """The first column J of supernode s, the number w of its columns, and h of its rows."""
    first = begins[s]
    return first, begins[s + 1] - first, starts[first + 1] - starts[first]


# These three get no slices of arrays: with them, a solve for 10 000 areas takes 1.4 times as long.


@numba.njit(cache=True)
def _solve_triangle(F: Array, at: int, x: Array, first: int, w: int, transposed: bool) -> None:
    """x_J ← L_JJ⁻¹ x_J or L_JJ⁻ᵀ x_J. The block begins at F[at]."""
    N = x.shape[1]
    if N == 1 and w > NARROW:
        upper = F[at : at + w * w].reshape(w, w).T
        blas.solve(upper, False, not transposed, x[first : first + w].reshape(1, w))
        return
    for k in range(w):
        a = w - 1 - k if transposed else k
        for b in range(a + 1, w) if transposed else range(a):
            factor = F[at + b * w + a] if transposed else F[at + a * w + b]
            for c in range(N):
                x[first + a, c] -= factor * x[first + b, c]
        for c in range(N):
            x[first + a, c] /= F[at + a * w + a]


@numba.njit(cache=True)
def _add_to_rows(
    sign: float, F: Array, at: int, x: Array, first: int, w: int, below: Index, start: int, h: int
) -> None:
    """Add ± L_RJ x_J to x_R, with the rows R of a supernode after its first w."""
    N = x.shape[1]
    if w * (h - w) * N <= SMALL:
        for t in range(w, h):
            row = below[start + t]
            for c in range(N):
                total = 0.0
                for b in range(w):
                    total += F[at + t * w + b] * x[first + b, c]
                x[row, c] += sign * total
        return
    block = F[at + w * w : at + h * w].reshape(h - w, w)
    change = blas.product(block, x[first : first + w])
    for t in range(h - w):
        for c in range(N):
            x[below[start + w + t], c] += sign * change[t, c]


@numba.njit(cache=True)
def _add_from_rows(
    sign: float, F: Array, at: int, x: Array, first: int, w: int, below: Index, start: int, h: int
) -> None:
    """Add ± L_RJᵀ x_R to x_J, with the rows R of a supernode after its first w."""
    N = x.shape[1]
    if w * (h - w) * N <= SMALL:
        for t in range(w, h):
            row = below[start + t]
            for c in range(N):
                other = sign * x[row, c]
                for b in range(w):
                    x[first + b, c] += F[at + t * w + b] * other
        return
    of_rows = np.empty((h - w, N))
    for t in range(h - w):
        for c in range(N):
            of_rows[t, c] = x[below[start + w + t], c]
    block = F[at + w * w : at + h * w].reshape(h - w, w)
    change = blas.product(block.T, of_rows)
    for b in range(w):
        for c in range(N):
            x[first + b, c] += sign * change[b, c]
