r"""Leave out single observations of a sum along lines that move few elements of x.

In `pymc_lgm.approximations.left_out` the line of an observation k moves all of f, so each line
takes evaluations of the whole likelihood. But the densities are exact for every direction that is a
function of theta. In a sum eta = c + A x of sparse families, elements of x far from k say little
about eta_k if those near it are known. So let S be a set of elements around k, and

    c = P_SS⁻¹ a / aᵀ P_SS⁻¹ a,     P = Q + Aᵀ W A,

where a are the numbers of S in row k of A, and W the precisions of the sites of q. Along f + c t
only the observations that read S change, and t is the change of eta_k. Its variance under q is
1 / cᵀPc = aᵀ P_SS⁻¹ a if all x outside of S are known: of all directions in S, this one has the
largest. The densities that change are `Expansions` of few terms.

If the observation reads several elements of eta, a belongs to the combination about which it is
most informative, as in `left_out`. If they are more than two, the densities are evaluated, and
lines that change different observations share rows of f. In a series of thousands of observations,
some fifty rows have a node of each line.

If C_Sᵀ x is fixed by a constraint, x_S = F y, where F projects onto the vectors that C_Sᵀ makes 0.
Then (F P_SS F + I − F)⁻¹ F a is in the place of P_SS⁻¹ a.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from numpy.typing import NDArray
from scipy.sparse import csr_array, eye_array, vstack

from pymc_lgm.approximations.expansions import CELLS, Expansions, Pairs, in_columns
from pymc_lgm.approximations.gaussian import GaussianApproximation
from pymc_lgm.approximations.left_out import (
    LeftOut,
    ObservationLines,
    combinations,
    integrate_lines,
    zero_if_undefined,
)
from pymc_lgm.gaussian.sites import as_operator, cholesky_factors, nonnegative
from pymc_lgm.gaussian.sums import Layout, SumPrior, blocks_at
from pymc_lgm.linalg import Array

__all__ = ["LocalLines", "are_few", "left_out_locally"]

Index = NDArray[np.intp]

GOOD, LEAST = 0.97, 0.9
"""Share of the variance of eta_k under q that is left if all x outside of S are known. S grows
until the share is `GOOD`. With less than `LEAST` the line is along all of x.

The rest of x is informative about eta_k, and depends on y_k itself, so the weights vary more than
those of lines along all of x. Measured by hand on a map of 400 areas with small counts, 200 draws:
with a share of 0.9, 0.95 and 0.98 the median standard deviation of a log density among draws was
0.22, 0.17 and 0.11, and along all of x 0.04. The largest Pareto k was 0.78, 0.78, 0.60 and 0.37.
"""

SMALL, AFFORDABLE = 100_000, 1_000_000
"""Products of the numbers of observations and elements of eta up to which lines are along all of x.

If observations read several elements of eta, those with less than `GOOD` are so from `SMALL` to
`AFFORDABLE`; otherwise all are up to `AFFORDABLE`. By hand, 1000 lines of a series of 1000 counts
took 36 ms per draw along all of x, and 17 ms in sets, which had twice the standard deviations among
draws. 3000 lines of crossed effects took 0.9 and 0.2 s.
"""

NEAR = 0.1
"""S grows by the elements whose partial correlation with one of S is larger than this. It is a
choice: neighbors in a series have about 0.5, areas with six borders 0.17."""

LARGEST = 64
"""Largest number of elements of S. Beyond `LEAST` it also bounds the rows of A that read S: for
crossed effects a third element that brings 40 rows took three times as long for a share of 0.95
instead of 0.93."""

READERS = 0.25
"""An element that a larger part of the rows of A reads, such as an intercept, is in no S: lines
that move it could not share rows."""


@dataclass(frozen=True, eq=False)
class LocalLines:
    """Sets of elements of x, one for each observation, and what changes along its line.

    The sets are chosen once, at some theta of the trace. They decide in which direction a line goes
    and how much the weights vary, and not whether the densities along it are right.

    Attributes
    ----------
    layout : Layout
    chosen, which : ndarray of int, shape (M,)
        The observations k that have a set: their places among those that are left out, and their
        numbers.
    rows : ndarray of int, shape (M, s)
        The rows of A that each may read, padded with −1.
    sets : _Sets
        The set S of each.
    batches : list of ndarray of int
        Lines that share rows of f; none if there are `Expansions`.
    moved, others : csr_array, shapes (M, E) and (M, observations)
        1 at the rows of A that read S, and at the observations beside k that read these.
    number, line, place, pair : ndarray of int
        For each number of A that multiplies an element of an S: the number, the line, the place of
        the element in S, and which of the ones of ``moved`` it contributes to.
    all_reads, at_moved : ndarray of int, shapes (observations, s) and (..., s), optional
        The elements of f that each observation of the model may read, in the order of `in_columns`.
        And for each of the ones of ``others`` those of ``moved`` in the rows that it reads, or −1.
        ``None`` if there is no such order.
    """

    layout: Layout
    chosen: Index
    which: Index
    rows: Index
    sets: _Sets
    batches: list[Index]
    moved: csr_array
    others: csr_array
    number: Index
    line: Index
    place: Index
    pair: Index
    all_reads: Index | None
    at_moved: Index | None

    @classmethod
    @np.errstate(invalid="ignore")  # a variance is 0 if a constraint leaves no direction
    def of(
        cls, layout: Layout, reads: Index, which: Index, examples: Sequence[GaussianApproximation]
    ) -> LocalLines | None:
        """Find a set for each observation, and what changes along its line.

        ``None`` if the model is small, if no observation has a set, or if there are no `Expansions`
        and hardly any lines can share rows of f.

        Parameters
        ----------
        layout : Layout
        reads : ndarray of int, shape (observations, s)
            The elements of eta that each observation of the model may read, padded with −1.
        which : ndarray of int, shape (M,)
            Observations that are left out.
        examples : sequence of GaussianApproximation
            q at some theta of the posterior. A set has its share of the variance at each.
        """
        several = reads.shape[1] > 1
        if are_few(which.size, layout.E, several=several):
            return None
        chosen = np.flatnonzero((reads[which] >= 0).any(axis=1))
        members, share = _grown(layout, reads[which[chosen]], examples)
        has_set = share >= (GOOD if which.size * layout.E <= AFFORDABLE else LEAST)
        chosen, members = chosen[has_set], members[has_set]
        if not chosen.size:
            return None
        which, rows, total = which[chosen], reads[which[chosen]], which.size
        sets = _Sets.of(layout, members, rows)
        # The numbers of A by the element that they multiply.
        numbers = np.argsort(layout.columns, kind="stable")
        count = np.bincount(layout.columns, minlength=layout.M)
        first = np.cumsum(count) - count
        line, place = np.nonzero(sets.elements >= 0)
        element = sets.elements[line, place]
        which_of_S, step = _counted(count[element])
        if step.size > CELLS:
            return None
        number = numbers[first[element][which_of_S] + step]
        line, place = line[which_of_S], place[which_of_S]
        moved = _ones(line, layout.row_of[number], (which.size, layout.E))
        moved.sort_indices()
        keys = np.repeat(np.arange(which.size), np.diff(moved.indptr)) * layout.E + moved.indices
        pair = np.searchsorted(keys, line * layout.E + layout.row_of[number])
        reader, slot = np.nonzero(reads >= 0)
        reading = _ones(reads[reader, slot], reader, (layout.E, len(reads)))
        changed = _pattern_of(_pattern_of(moved) @ reading)
        others = csr_array(changed - _ones(np.arange(which.size), which, changed.shape))
        others.eliminate_zeros()  # a density may be infinite
        batches: list[Index] = []
        all_reads, at_moved = in_columns(reads, layout.E), None
        if all_reads is None:
            batches = _apart(changed)
            if 2 * (len(batches) + total - which.size) > total:
                return None
        else:
            of_other = np.repeat(np.arange(which.size), np.diff(others.indptr))
            read = all_reads[others.indices]
            key = of_other[:, None] * layout.E + read
            at_moved = np.searchsorted(keys, key).clip(max=keys.size - 1)
            at_moved[(read < 0) | (keys[at_moved] != key)] = -1
            all_reads = np.where(all_reads >= 0, layout.N + all_reads, -1)
        return cls(
            layout, chosen, which, rows, sets, batches, moved, others, number, line, place, pair,
            all_reads, at_moved,
        )  # fmt: skip


def are_few(observations: int, elements: int, *, several: bool) -> bool:
    """Whether all lines are along all of x. ``several`` is whether observations read several f."""
    return observations * elements <= (SMALL if several else AFFORDABLE)


class _Directions(NamedTuple):
    """The line of each of K observations: its direction c in S, and what changes with t."""

    c: Array  # (K, d)
    moves: Array  # (K, s): the change of each element of eta that the observation reads
    variance: Array  # (K,): 1 / cᵀPc, that of t under q
    curvature: Array  # (K,): cᵀQc


@dataclass(frozen=True, eq=False)
class _Sets:
    """Sets S of elements of x, padded to one size, for observations that read rows of A.

    Attributes
    ----------
    elements : ndarray of int, shape (K, d)
        The elements of each set, padded with −1.
    positions : ndarray of int, shape (K, d, d)
        Where the elements of P_SS are among those of P, or −1.
    of_A : ndarray of int, shape (K, s, d)
        The number of each row of A that multiplies each element, or −1.
    free : ndarray, shape (K, d, d), or None
        F; ``None`` without constraints.
    """

    elements: Index
    positions: Index
    of_A: Index
    free: Array | None = None

    @classmethod
    def of(cls, layout: Layout, members: csr_array, rows: Index) -> _Sets:
        """From a matrix with a row for each set, and the rows of A of each observation."""
        size = np.diff(members.indptr)
        d = int(size.max(initial=1))
        k, slot = _counted(size)
        elements = np.full((len(rows), d), -1)
        elements[k, slot] = members.indices
        # Counted from 1: the matrix is 0 where the pattern of A has nothing.
        counted = (np.arange(1, layout.columns.size + 1), layout.columns, layout.starts)
        number = csr_array(counted, shape=(layout.E, layout.M))
        k, j, p = np.nonzero((rows >= 0)[:, :, None] & (elements >= 0)[:, None, :])
        of_A = np.full((*rows.shape, d), -1)
        of_A[k, j, p] = np.asarray(number[rows[k, j], elements[k, p]]).ravel() - 1
        free = None
        if layout.C.shape[1]:
            C = np.where(elements[:, :, None] >= 0, layout.C[elements], 0.0)
            free = np.eye(d) - C @ np.linalg.pinv(C)
        return cls(elements, layout.positions_of_blocks(elements), of_A, free)

    def variances(self, at: _At) -> Array:
        """The variances of the rows of A x if all x outside of S are known, (K, s)."""
        parts = [(half**2).sum(axis=2) for _, _, _, half in self._halves(at)]
        return np.concatenate(parts)

    def directions(self, at: _At, combined: Callable[[slice, Array], Array]) -> _Directions:
        """The lines, given a function from the covariances of the rows of A x to weights (K, s)."""
        found = []
        for part, A, inverse, half in self._halves(at):
            weights = combined(part, half @ half.swapaxes(1, 2))
            of_t = np.einsum("ks,ksi->ki", weights, half)
            variance = (of_t**2).sum(axis=1)
            c = np.einsum("kji,kj->ki", inverse, of_t) / variance[:, None]
            curvature = np.einsum("ki,kij,kj->k", c, self._blocks(at, at.Q, part), c)
            found.append((c, np.einsum("ksi,ki->ks", A, c), variance, curvature))
        return _Directions(*map(np.concatenate, zip(*found, strict=True)))

    def _halves(self, at: _At) -> Iterator[tuple[slice, Array, Array, Array]]:
        """Some sets at a time: rows of A, L⁻¹ with P_SS = L Lᵀ, and the rows of A L⁻ᵀ."""
        block = max(1, CELLS // self.elements.shape[1] ** 2)
        for begin in range(0, len(self.elements), block):
            part = slice(begin, begin + block)
            A = np.where(self.of_A[part] >= 0, at.A[self.of_A[part]], 0.0)
            P, free = self._blocks(at, at.P, part), A
            if self.free is not None:
                F = self.free[part]
                free = A @ F
                P = F @ P @ F + np.eye(A.shape[2]) - F
            _, inverse = cholesky_factors(P)
            yield part, A, inverse, free @ inverse.swapaxes(1, 2)

    def _blocks(self, at: _At, elements: Array, part: slice) -> Array:
        """The blocks of Q or P of some sets."""
        blocks = blocks_at(self.positions[part], elements)
        if at.S.size:
            U = np.where(self.elements[part, :, None] >= 0, at.U[self.elements[part]], 0.0)
            blocks += U @ at.S @ U.swapaxes(1, 2)
        return blocks


class _At:
    """The numbers of q: A, W, and Q and P = Q + Aᵀ W A by their elements and the update U S Uᵀ."""

    def __init__(self, q: GaussianApproximation):
        assert isinstance(q.prior, SumPrior)
        layout, prior = q.prior.layout, q.prior
        self.A, self.U, self.S = prior.A, layout.U, prior.scaled_S
        self.W = nonnegative(q.precision, singular=True)
        self.Q, self.P = prior.elements, prior.elements_with(self.W)


def _grown(
    layout: Layout, rows: Index, examples: Sequence[GaussianApproximation]
) -> tuple[csr_array, Array]:
    """A set for each observation, as the rows of a matrix, and its least share of a variance.

    A set begins with the elements that the rows of A read, and grows by their neighbors.
    """
    at = [_At(q) for q in examples]
    variances = [q.posterior.variances[layout.N :][rows] for q in examples]
    readers = np.bincount(layout.columns, minlength=layout.M)
    used = readers <= READERS * layout.E
    near = _neighbors(layout, at, used)
    mine = used[layout.columns]
    A = _ones(layout.row_of[mine], layout.columns[mine], (layout.E, layout.M))
    k, slot = np.nonzero(rows >= 0)
    A = _pattern_of(_ones(k, rows[k, slot], (len(rows), layout.E)) @ A)
    share, size = np.zeros(len(rows)), np.diff(A.indptr)
    of_kept, todo = [np.flatnonzero(size == 0)], np.flatnonzero(size)
    kept, members = [A[of_kept[0]]], A[todo]
    while todo.size:
        sets = _Sets.of(layout, members, rows[todo])
        parts = [sets.variances(each) / v[todo] for each, v in zip(at, variances, strict=True)]
        share[todo] = np.where(rows[todo] >= 0, np.min(parts, axis=0), 1.0).min(axis=1)
        larger = _pattern_of(members @ near)
        size = np.diff(larger.indptr)
        is_done = (share[todo] >= GOOD) | (size > LARGEST) | (size == np.diff(members.indptr))
        is_done |= (share[todo] >= LEAST) & (larger @ readers > LARGEST)
        kept.append(members[is_done])
        of_kept.append(todo[is_done])
        members, todo = larger[~is_done], todo[~is_done]
    members = csr_array(vstack(kept))[np.argsort(np.concatenate(of_kept))]
    members.sort_indices()
    return members, share


def _neighbors(layout: Layout, at: list[_At], used: NDArray[np.bool_]) -> csr_array:
    """1 at pairs of elements whose partial correlation is above `NEAR`, and at the diagonal."""
    i, j = layout.pattern.places
    largest = np.zeros(i.size)
    for each in at:
        scale = np.sqrt(each.P[layout.pattern.diagonal])
        largest = np.maximum(largest, np.abs(each.P) / (scale[i] * scale[j]))
    joined = (largest > NEAR) & used[i] & used[j] & (i != j)
    half = _ones(i[joined], j[joined], (layout.M, layout.M))
    return csr_array(half + half.T + eye_array(layout.M))


def _counted(count: Index) -> tuple[Index, Index]:
    """0 for count[0] times, 1 for count[1] times, and so on; and the number of each among its."""
    which = np.repeat(np.arange(count.size), count)
    return which, np.arange(which.size) - np.repeat(np.cumsum(count) - count, count)


def _ones(rows: Index, columns: Index, shape: tuple[int, int]) -> csr_array:
    """A sparse matrix of ones at these places, or of more where one is given repeatedly."""
    return csr_array((np.ones(rows.size), (rows, columns)), shape=shape)


def _pattern_of(matrix: csr_array) -> csr_array:
    """1 where a matrix is not zero."""
    rows, columns = matrix.nonzero()
    return _ones(rows, columns, matrix.shape)


def _apart(moves: csr_array) -> list[Index]:
    """Batches of lines that move different rows of A: each goes to the first that has room.

    ``moves`` has a row for each line.
    """
    taken = np.zeros((0, moves.shape[1]), dtype=bool)
    batch = np.empty(moves.shape[0], dtype=np.intp)
    for k in range(batch.size):
        rows = moves.indices[moves.indptr[k] : moves.indptr[k + 1]]
        full = taken[:, rows].any(axis=1)
        batch[k] = full.size if full.all() else np.argmin(full)
        if batch[k] == len(taken):
            taken = np.vstack([taken, np.zeros((1, moves.shape[1]), dtype=bool)])
        taken[batch[k], rows] = True
    return [np.flatnonzero(batch == each) for each in range(len(taken))]


@np.errstate(all="ignore")
def left_out_locally(
    elements: Callable[[Array], Array],
    local: LocalLines,
    q: GaussianApproximation,
    f: Array,
    uniform: Array,
    *,
    is_log_concave: bool = False,
) -> LeftOut:
    """Integrate over the line of each observation, for one draw f: see `LocalLines`.

    Parameters
    ----------
    elements, q, f, uniform, is_log_concave
        As in `left_out`; the prior of q is a sum.
    local : LocalLines

    Notes
    -----
    65 evaluations of the likelihood for each piece of all lines, mostly one or two, or some ten if
    it is not log-concave, and those of `Expansions`. If observations read more than two elements of
    eta, 20 to 40 or 200 evaluations for each batch of lines instead of the latter.
    """
    lines = _LocalLines(elements, local, q, f, is_log_concave=is_log_concave)
    log_density, t = integrate_lines(lines, uniform[:, 0], is_unimodal=is_log_concave)
    return LeftOut(log_density, lines.read_at(t), lines.base[local.which])


class _LocalLines(ObservationLines):
    """The lines f + c t of observations along which few elements of x move."""

    def __init__(
        self,
        elements: Callable[[Array], Array],
        local: LocalLines,
        q: GaussianApproximation,
        f: Array,
        *,
        is_log_concave: bool = False,
    ):
        N, prior = local.layout.N, q.prior
        assert isinstance(prior, SumPrior)
        self._elements, self._f, self._q, self._local, self._N = elements, f, q, local, N
        self._which, self.reads = local.which, np.where(local.rows >= 0, N + local.rows, -1)
        self.count = local.which.size
        self._direction = np.arange(self.count)
        self.base = elements(f[None])[0]
        at, sets = _At(q), local.sets

        def combined(part: slice, cov: Array) -> Array:
            if cov.shape[1] == 1:
                return np.ones(cov.shape[:2])
            which, reads = local.which[part], self.reads[part]
            return combinations(elements, which, reads, q.center, cov)

        self.along = sets.directions(at, combined)
        c, self.moves, self._variance, self._curvature = self.along
        change = np.bincount(local.pair, at.A[local.number] * c[local.line, local.place])
        pattern, shape = (local.moved.indices, local.moved.indptr), local.moved.shape
        self._change = csr_array((change, *pattern), shape)
        z = f - prior.mean
        of_Q = prior.precision_times(prior.state(z))
        self._slope = (c * np.where(sets.elements >= 0, of_Q[sets.elements], 0.0)).sum(axis=1)
        pull = (q.sites.nu - as_operator(at.W).times(z))[N:]
        self._center = self._variance * (self._change @ pull - self._slope)
        self._expansions = None
        if local.all_reads is not None:
            sd = np.sqrt(q.posterior.variances)
            args = elements, f, self.base, local.all_reads, sd
            self._expansions = Expansions.of(*args, is_log_concave=is_log_concave)

    def _log_g(self, line: Index, t: Array) -> Array:
        """log g_k of pieces at t, (nodes, pieces). Several pieces may be of one line.

        `_others` takes each line once, with any number of nodes. So it evaluates the first piece of
        every line, then the second of those that have one, and then two, four and more pieces of a
        line at once. `Expansions` are in its place if observations read one or two elements of f.
        """
        if self._expansions is not None:
            prior = -t * (self._slope[line] + 0.5 * self._curvature[line] * t)
            return zero_if_undefined(prior + self._expansions.along_sparse(self._pairs(line), t))
        values, nodes, rank = np.empty(t.shape), len(t), _ranks(line)
        most = max(1, CELLS // (nodes * max(self._f.size, self.base.size)))
        begin, end = 0, 1
        while (mine := np.flatnonzero((rank >= begin) & (rank < end))).size:
            which, at = np.unique(line[mine], return_inverse=True)
            slot = rank[mine] - begin
            joined = np.zeros((int(slot.max()) + 1, nodes, which.size))
            joined[slot, :, at] = t[:, mine].T
            found = self._others(which, joined.reshape(-1, which.size)).reshape(joined.shape)
            values[:, mine] = found[slot, :, at].T
            begin, end = end, end + min(end, most)
        return zero_if_undefined(values)

    def _pairs(self, line: Index) -> Pairs:
        """The observations that change along each line beside its own."""
        others, at_moved = self._local.others, self._local.at_moved
        assert at_moved is not None
        which, at = _entries(others, line)
        ends = np.cumsum(np.bincount(which, minlength=line.size))
        moves = np.where(at_moved[at] >= 0, self._change.data[at_moved[at]], 0.0)
        return Pairs(np.append(0, ends), others.indices[at].astype(np.intp), moves)

    def _others(self, lines: Index, t: Array) -> Array:
        """log g_k at t, (nodes, lines), up to a constant."""
        along = np.zeros((len(t), self.count))
        along[:, lines] = t
        out = -along * (self._slope + 0.5 * self._curvature * along)
        is_open = np.zeros(self.count, dtype=bool)
        is_open[lines] = True
        change, others = self._change, self._local.others
        for batch in self._local.batches:
            k = batch[is_open[batch]]
            if not k.size:
                continue
            rows = np.tile(self._f, (len(t), 1))
            of_k, at = _entries(change, k)
            rows[:, self._N + change.indices[at]] += along[:, k[of_k]] * change.data[at]
            values = self._elements(rows) - self.base
            of_k, at = _entries(others, k)
            has = np.diff(others.indptr)[k] > 0
            begin = np.flatnonzero(np.diff(of_k, prepend=-1))
            if begin.size:
                out[:, k[has]] += np.add.reduceat(values[:, others.indices[at]], begin, axis=1)
        return out[:, lines]


def _ranks(line: Index) -> Index:
    """For each piece, the number of pieces before it that are of the same line."""
    order = np.argsort(line, kind="stable")
    first = np.searchsorted(line[order], line[order])
    rank = np.empty_like(line)
    rank[order] = np.arange(line.size) - first
    return rank


def _entries(matrix: csr_array, rows: Index) -> tuple[Index, Index]:
    """Positions of the elements of some rows of a matrix, and the row of each, counted from 0."""
    which, step = _counted(np.diff(matrix.indptr)[rows])
    return which, matrix.indptr[rows][which] + step
