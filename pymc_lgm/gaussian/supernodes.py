"""Sparse factors by dense blocks: columns of L with the same rows are one array, for BLAS.

A supernode is a run of columns, each of which has the rows of the one before it without the first
(Liu, Ng and Peyton 1993). Its elements are an array of h rows and w columns, in row order, of which
the first w rows are lower triangular. Each supernode is updated by those on its left (Ng and Peyton
1993, left-looking), and the inverse on the pattern is computed from the last one to the first
(Takahashi, Fagan and Chen 1973, in blocks).
"""

from __future__ import annotations

import numba
import numpy as np

from numpy.typing import NDArray

from pymc_lgm import blas
from pymc_lgm.linalg import Array

__all__ = ["cholesky", "find", "takahashi"]

Index = NDArray[np.intp]

SMALL = 200
"""Multiplications of an update up to which a loop is faster than a call of BLAS."""


@numba.njit(cache=True)
def find(starts: Index, below: Index) -> Index:
    """Where each supernode begins, and n."""
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
    """Where the array of each supernode begins, in row order, one after another."""
    offsets = np.zeros(begins.size, dtype=np.intp)
    for s in range(begins.size - 1):
        c = begins[s]
        offsets[s + 1] = offsets[s] + (starts[c + 1] - starts[c]) * (begins[s + 1] - c)
    return offsets


@numba.njit(cache=True)
def _to_blocks(starts: Index, begins: Index, offsets: Index, L: Array, F: Array) -> None:
    for s in range(begins.size - 1):
        first, w = begins[s], begins[s + 1] - begins[s]
        for c in range(w):
            start = starts[first + c]
            for t in range(starts[first + c + 1] - start):
                F[offsets[s] + (c + t) * w + c] = L[start + t]


@numba.njit(cache=True)
def _from_blocks(starts: Index, begins: Index, offsets: Index, F: Array, L: Array) -> None:
    for s in range(begins.size - 1):
        first, w = begins[s], begins[s + 1] - begins[s]
        for c in range(w):
            start = starts[first + c]
            for t in range(starts[first + c + 1] - start):
                L[start + t] = F[offsets[s] + (c + t) * w + c]


@numba.njit(cache=True)
def cholesky(starts: Index, below: Index, begins: Index, L: Array) -> bool:
    """A in the place of L becomes L; false if A is not positive definite.

    Parameters
    ----------
    starts, below : ndarray of int
        As those of `Pattern`.
    begins : ndarray of int
        From `find`.
    L : ndarray
    """
    n, count = starts.size - 1, begins.size - 1
    offsets = _offsets(starts, begins)
    F = np.zeros(offsets[count])
    _to_blocks(starts, begins, offsets, L, F)
    owner = np.empty(n, dtype=np.intp)
    for s in range(count):
        owner[begins[s] : begins[s + 1]] = s
    local = np.zeros(n, dtype=np.intp)
    # Supernodes whose next row is in supernode s are a list: its head, and what follows each.
    head, after = np.full(count, -1), np.full(count, -1)
    at = np.zeros(count, dtype=np.intp)
    for s in range(count):
        first, last = begins[s], begins[s + 1]
        w, rows = last - first, below[starts[first] : starts[first + 1]]
        h = rows.size
        mine = F[offsets[s] : offsets[s + 1]].reshape(h, w)
        for t in range(h):
            local[rows[t]] = t
        k = head[s]
        while k != -1:
            following, p = after[k], at[k]
            others = below[starts[begins[k]] : starts[begins[k] + 1]]
            width = begins[k + 1] - begins[k]
            whole = F[offsets[k] : offsets[k + 1]].reshape(others.size, width)
            q = p
            while q < others.size and others[q] < last:
                q += 1
            if width * (q - p) * (others.size - p) <= SMALL:
                for b in range(p, q):
                    column = others[b] - first
                    for a in range(b, others.size):
                        total = 0.0
                        for c in range(width):
                            total += whole[a, c] * whole[b, c]
                        mine[local[others[a]], column] -= total
            else:
                less = blas.product(whole[p:], whole[p:q].T)
                for a in range(others.size - p):
                    row = local[others[p + a]]
                    for b in range(q - p):
                        mine[row, others[p + b] - first] -= less[a, b]
            if q < others.size:
                at[k] = q
                target = owner[others[q]]
                after[k] = head[target]
                head[target] = k
            k = following
        square = mine[:w].T
        if w == 1:
            if not 0.0 < mine[0, 0] < np.inf:
                return False
            root = np.sqrt(mine[0, 0])
            mine[0, 0] = root
            for t in range(1, h):
                mine[t, 0] /= root
        else:
            if not blas.factorize_upper(square):
                return False
            for c in range(w):
                if not 0.0 < mine[c, c] < np.inf:
                    return False
            if h > w:
                blas.solve(square, False, True, mine[w:])
        if h > w:
            at[s] = w
            target = owner[rows[w]]
            after[s] = head[target]
            head[target] = s
    _from_blocks(starts, begins, offsets, F, L)
    return True


@numba.njit(cache=True)
def takahashi(starts: Index, below: Index, begins: Index, L: Array, S: Array) -> None:
    """(L Lᵀ)⁻¹ where L has elements, into S.

    With the rows R below those of a supernode J, Y = L_RJ L_JJ⁻¹ and Σ = (L Lᵀ)⁻¹,

        Σ_RJ = −Σ_RR Y,   Σ_JJ = L_JJ⁻ᵀ L_JJ⁻¹ − Yᵀ Σ_RJ.
    """
    n, count = starts.size - 1, begins.size - 1
    offsets = _offsets(starts, begins)
    F, T = np.zeros(offsets[count]), np.zeros(offsets[count])
    _to_blocks(starts, begins, offsets, L, F)
    owner = np.empty(n, dtype=np.intp)
    for s in range(count):
        owner[begins[s] : begins[s + 1]] = s
    most = 0
    for s in range(count):
        c = begins[s]
        most = max(most, starts[c + 1] - starts[c] - (begins[s + 1] - c))
    space, place = np.empty(most * most), np.empty(most, dtype=np.intp)
    for s in range(count - 1, -1, -1):
        first = begins[s]
        w, rows = begins[s + 1] - first, below[starts[first] : starts[first + 1]]
        h = rows.size
        k = h - w
        mine = F[offsets[s] : offsets[s + 1]].reshape(h, w)
        out = T[offsets[s] : offsets[s + 1]].reshape(h, w)
        square = mine[:w].T
        E = np.eye(w)
        blas.solve(square, False, True, E)
        inverse = blas.product(E, E.T)
        if k:
            Y = mine[w:].copy()
            blas.solve(square, False, False, Y)
            G = space[: k * k].reshape(k, k)
            a = 0
            while a < k:
                of = owner[rows[w + a]]
                begin, end = begins[of], begins[of + 1]
                others = below[starts[begin] : starts[begin + 1]]
                width = end - begin
                there = T[offsets[of] : offsets[of + 1]].reshape(others.size, width)
                stop = a
                while stop < k and rows[w + stop] < end:
                    stop += 1
                t = 0
                for b in range(a, k):
                    while others[t] < rows[w + b]:
                        t += 1
                    place[b] = t
                for b in range(a, k):
                    line = there[place[b]]
                    for c in range(a, min(stop, b + 1)):
                        G[b, c] = line[rows[w + c] - begin]
                a = stop
            of_rows = blas.symmetric_times(1.0, G.T, np.ascontiguousarray(Y.T))
            inverse += blas.product(of_rows, Y)
            for t in range(k):
                for c in range(w):
                    out[w + t, c] = -of_rows[c, t]
        out[:w] = inverse
    _from_blocks(starts, begins, offsets, T, S)
