r"""Leave-one-out densities p(y_k | y_-k, r, theta) of one draw, f integrated out along a line.

Let observation k read f_i, and let c be a direction with c_i = 1. A draw f is r + c f_i with
r = f − c f_i. Given r, f lies on the line r + c t, where t = f_i has the posterior density
∝ p(y_k | t) g_k(t). So

    p(y_k | y_-k, r, theta) = ∫ p(y_k | t) g_k(t) dt / ∫ g_k(t) dt,
    g_k(t) = N(r + c t; m, K) ∏_{l≠k} p(y_l | r + c t),

and its inverse is the importance weight of the draw (r, theta) for the posterior without y_k. This
is exact for every c that is a function of theta and y. With c = e_i it would integrate over f_i
alone, which changes little if the neighbors of f_i determine it. Here c is column i of Σ, divided
by Σ_ii, where Σ is the covariance of the Laplace approximation at theta: the neighbors move with
f_i. If the posterior of f is normal, r is independent of f_i, and the density is p(y_k | y_-k,
theta), of which `left_out_of_normal` has the closed form.

Vehtari, Mononen, Tolvanen, Sivula and Winther (2016), *Bayesian leave-one-out cross-validation
approximations for Gaussian latent variable models*, Journal of Machine Learning Research 17, have
the weights of theta (§2.2), with f integrated out by approximation.

An observation may read several elements of f: one for its mean and one for its standard deviation,
or one of each class. Then t is aᵀf_S, a combination of the elements that it reads, and c is
Σ a / aᵀΣa. All that y_k says of other combinations remains in r, and the weights correct it. So a
is the combination of which y_k says most. With f_S = E[f_S] + R u, R Rᵀ = Σ_SS, and the gradient g
and the curvature H of log p(y_k | u) at u = 0, the mean of ∇ log p ∇ log pᵀ under q is about
g gᵀ + H². Along its first eigenvector log p varies most. Constantine, Dow and Wang (2014), *Active
subspace methods in theory and practice*, SIAM Journal on Scientific Computing 36, reduce dimensions
in this way.

A group of observations is left out in the same way: y_k is then all of its observations, and t the
average of the f_i that they read. Again r is independent of t if the posterior of f is normal. If
y_k depends on f by more than that average, r depends on y_k, and the weights correct it.

The code measures t from the draw: t = 0 is f.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from numpy.typing import NDArray
from scipy.special import ndtri

from pymc_lgm.approximations.gaussian import GaussianApproximation
from pymc_lgm.gaussian.sites import SiteBlocks, are_nonnegative
from pymc_lgm.linalg import Array

__all__ = [
    "LeftOut",
    "ObservationLines",
    "combinations",
    "integrate_lines",
    "left_out",
    "left_out_groups",
    "left_out_of_normal",
]

Index = NDArray[np.intp]

LEVELS = (9, 17, 33, 65, 129)
"""Numbers of Chebyshev nodes at which log g_k is evaluated on a line, until its log density is
stable.

log g_k is a quadratic with a small analytic remainder. With a process of 60 elements, 47 % of the
lines were stable with 17 nodes for counts, 33 % for labels and 2 % for Student errors. All others
were with 33, except for 6 % of those with Student errors. The nodes of each level include those of
the one before.
"""

ENOUGH = 1e-4
"""A line needs no further nodes if its log density changes by less than this from one level to the
next. Interpolation at Chebyshev nodes converges geometrically, so the remaining error is smaller:
beside 129 nodes at most 3e-7 for these counts and labels, and 1e-5 with Student errors."""

ROUGH = 1e-2
"""If after the last round the log density on all points differs by more than this from that on
every second one, it is NaN."""

DEEP = 60.0
"""A line is cut off where its log density, with y_k and without, is this far below the maximum:
e⁻⁶⁰ is 1e-26."""

REACH = 7.0
"""Standard deviations of the posterior and of the cavity g_k that a line covers on each side at
first. A normal density has 3e-12 of its mass beyond."""

NEEDED = 5.0
"""Standard deviations that a line must cover after its integration has measured them; otherwise it
is made longer and integrated again. A normal density has 6e-7 of its mass beyond."""

WASTE = 4.0
"""A line that is this many times longer than needed is made shorter and integrated again, because
its nodes are too far apart."""

FEWEST, FEWEST_AGAIN = 101, 401
MOST = 4001
"""Bounds of the number of points of the trapezoidal rule on a line. Between them, there are two per
standard deviation of the posterior: for a normal density the error of the rule is then
2 exp(−8π²), or 1e-34. `FEWEST` is enough for a line of 50 standard deviations. Lines that are
integrated again have at least `FEWEST_AGAIN`. If 129 nodes are not enough, as for a narrow peak
with heavy tails, log g_k is evaluated at all points."""

ROUNDS = 6
"""Largest number of attempts to find the ends of a line, by integration and by cutting off. The
result of the last is used. Draws of the likelihoods in tests/test_loo.py needed one or two."""

STEP = 0.1
"""Step of differences, in standard deviations of the posterior. They give first guesses and
directions, which need a digit or two."""

LOST = 1e-12
"""Smallest precision of a cavity of normal observations, relative to that of the posterior. With a
smaller one rounding leaves few digits of it, so its density is NaN. It is a choice."""

CELLS = 4_000_000
"""Largest number of elements of an array with rows of f: 32 MB."""


class LeftOut(NamedTuple):
    """Leave-one-out results of each observation for one draw, of shape (M,) except for ``f``."""

    log_density: Array  # log p(y_k | y_-k, r, theta)
    f: Array  # a draw of the f_i that y_k reads, given y_-k, r and theta: (M, s)
    own: Array  # log p(y_k | f_i, theta), of the draw itself

    def fill(self, index: Index | NDArray[np.bool_], some: LeftOut) -> None:
        """Set the results of some of the observations."""
        for mine, theirs in zip(self, some, strict=True):
            mine[index] = theirs


def left_out(
    elements: Callable[[Array], Array],
    which: Index,
    reads: Index,
    q: GaussianApproximation,
    f: Array,
    uniform: Array,
) -> LeftOut:
    """Integrate over the line of each observation, for one draw f.

    Parameters
    ----------
    elements : callable
        Rows of f (N, n) -> the log density of every observation, (N, E).
    which : ndarray of int, shape (M,)
        Observations k that are left out.
    reads : ndarray of int, shape (M, s)
        The elements of f that each may read, padded with −1: one, or a set of the sites of q.
    q : GaussianApproximation
        q at this theta, from which come the directions c and the first ends of the lines.
    f : ndarray, shape (n,)
        A draw from p(f | y, theta).
    uniform : ndarray, shape (M, s)
        Uniform numbers in (0, 1). From the first ones the f_i are drawn.

    Returns
    -------
    LeftOut
        NaN if the density on a line is not finite.

    Notes
    -----
    For a dense process, O(n²) for each f_i, or for each observation that reads several; and mostly
    17 M to 33 M rows of the likelihood, O(M E).
    """
    lines = ObservationLines(elements, which, reads, q, f)
    log_density, t = integrate_lines(lines, uniform[:, 0])
    return LeftOut(log_density, lines.read_at(t), lines.base[which])


def left_out_of_normal(
    elements: Callable[[Array], Array],
    which: Index,
    reads: Index,
    q: GaussianApproximation,
    f: Array,
    uniform: Array,
) -> LeftOut:
    """Leave out single observations in closed form, if q is the posterior of f given theta.

    Let f_S − E[f_S] be R u, where R Rᵀ is its covariance, and log p(y_k | u) = ℓ + gᵀu + ½ uᵀH u.
    The cavity, the density of u without y_k, is normal with precision B = I + H and mean −B⁻¹g, and
    p(y_k | u) times it is p(y_k | y_-k, theta) N(u; 0, I). At u = 0 this gives

        log p(y_k | y_-k, theta) = ℓ − ½ gᵀB⁻¹g + ½ log|B|.

    Parameters
    ----------
    elements, which, reads, q, f, uniform
        As in `left_out`. All observations are normal with means that are affine in f.

    Returns
    -------
    LeftOut
        NaN if nothing but y_k says anything of an element.
    """
    root = _symmetric_roots(_covariances(q, reads))
    value, g, H = _expanded(elements, which, reads, q.center, root, step=1.0)
    B = np.eye(g.shape[1]) + H
    is_lost = ~are_nonnegative(B - LOST * np.eye(g.shape[1]))
    B[is_lost] = np.eye(g.shape[1])
    L = np.linalg.cholesky(B)
    half = np.linalg.solve(L, g[:, :, None])
    log_density = value - 0.5 * (half**2).sum(axis=(1, 2))
    log_density += np.log(np.einsum("kii->ki", L)).sum(axis=1)
    log_density[is_lost] = np.nan
    u = np.linalg.solve(L.swapaxes(1, 2), ndtri(uniform)[:, :, None] - half)[:, :, 0]
    drawn = q.center[reads] + np.einsum("kij,kj->ki", root, u)
    return LeftOut(log_density, drawn, elements(f[None])[0, which])


def left_out_groups(
    elements: Callable[[Array], Array],
    which: Index,
    site: Index,
    group: Index,
    q: GaussianApproximation,
    f: Array,
) -> tuple[Array, Array]:
    """Leave out the observations of each group together, for one draw f.

    Parameters
    ----------
    elements, which, site, q, f
        As in `left_out`.
    group : ndarray of int, shape (M,)
        The group of each observation, 0 to G - 1.

    Returns
    -------
    log_density : ndarray, shape (G,)
        log p(y_g | y_-g, r, theta); NaN if the density on a line is not finite.
    own : ndarray, shape (G,)
        log p(y_g | f, theta), of the draw itself.

    Notes
    -----
    For a dense process, O(n²) for each group; and mostly 120 G to 140 G rows of the likelihood,
    O(G E).
    """
    lines = _Groups(elements, which, site, group, q, f)
    log_density, _ = integrate_lines(lines, np.full(lines.count, 0.5))
    return log_density, np.bincount(group, lines.base[which])


def integrate_lines(lines: _Lines, uniform: Array) -> tuple[Array, Array]:
    """log p(y_k | y_-k, r, theta) of each line, and a draw of t from g_k."""
    low, high = lines.first_guess()
    todo = np.arange(lines.count)
    log_density = np.empty(lines.count)
    drawn = np.empty(lines.count)
    for fewest in (FEWEST, *[FEWEST_AGAIN] * (ROUNDS - 1)):
        tried = low[todo], high[todo]
        t, log_g, own, low[todo], high[todo], is_rough = lines.on_grid(todo, *tried, fewest)
        log_density[todo] = _log_sum(log_g + own) - _log_sum(log_g)
        log_density[todo[is_rough]] = np.nan
        drawn[todo] = _drawn(t, log_g, uniform[todo])
        begin, end = _ends(_moments(t, log_g), _moments(t, log_g + own))
        # If an end has been cut off, the density beyond it is negligible.
        is_good = (begin > low[todo]) | (low[todo] > tried[0])
        is_good &= (end < high[todo]) | (high[todo] < tried[1])
        is_good &= high[todo] - low[todo] < WASTE * (end - begin)
        # Without a density anywhere there is nowhere to go.
        moved = np.isfinite(begin + end) & (is_rough | ~is_good)
        if not moved.any():
            break
        todo = todo[moved]
        margin = (REACH - NEEDED) / (2.0 * NEEDED) * (end - begin)[moved]
        low[todo], high[todo] = begin[moved] - margin, end[moved] + margin
    return log_density, drawn


class _Lines:
    """The line f + c t of each observation or group.

    Parameters
    ----------
    elements, q, f
        As in `left_out`.
    averages : ndarray, shape (n, J)
        a of each direction: t is aᵀf less that of the draw, and c = Σ a / aᵀΣa.
    direction : ndarray of int, shape (lines,)
        The column of ``averages`` of each line: several observations may read one f_i.

    Attributes
    ----------
    count : int
        Number of lines.
    base : ndarray, shape (E,)
        The log density of every observation at the draw f.
    """

    def __init__(
        self,
        elements: Callable[[Array], Array],
        q: GaussianApproximation,
        f: Array,
        averages: Array,
        direction: Index,
    ):
        self._elements = elements
        self._f = f
        self._q = q
        self._direction = direction
        self.count = direction.size
        sigma = q.posterior.covariance_times(averages)
        self._variance = np.einsum("ij,ij->j", averages, sigma)
        # Along a line −log N(f + c t; m, K) is slope t + ½ curvature t², up to a constant, with
        # slope cᵀK⁻¹z and curvature cᵀK⁻¹c. K may be singular, so K⁻¹Σ is computed as I − W Σ.
        z = f - q.mean
        W_sigma = q.posterior.precision_times(sigma)
        square = np.einsum("ij,ij->j", sigma, W_sigma)
        self._slope = (averages.T @ z - W_sigma.T @ z) / self._variance
        self._curvature = (self._variance - square) / self._variance**2
        self._c = np.ascontiguousarray((sigma / self._variance).T)
        self._center = averages.T @ (q.center - f)
        self.base = elements(f[None])[0]

    def first_guess(self) -> tuple[Array, Array]:
        """Where the lines begin and end, if q and the cavities q(t) / p(y_k | t) are normal."""
        variance = self._variance[self._direction]
        center = self._center[self._direction]
        deviation = np.sqrt(variance)
        h = STEP * deviation
        steps = np.outer([-1.0, 0.0, 1.0], h)
        below, at, above = self._at(np.arange(self.count), self._q.center, steps)
        slope, curvature = (above - below) / (2.0 * h), (2.0 * at - above - below) / h**2
        # The variance of a cavity is at most a thousand times that of q.
        curvature = np.where(np.isfinite(curvature), np.clip(curvature, 0.0, 0.999 / variance), 0.0)
        slope = np.where(np.isfinite(slope), slope, 0.0)
        precision = 1.0 / variance - curvature
        mean, scale = center - slope / precision, 1.0 / np.sqrt(precision)
        low = np.minimum(mean - REACH * scale, center - REACH * deviation)
        return low, np.maximum(mean + REACH * scale, center + REACH * deviation)

    def _at(self, lines: Index, center: Array, t: Array) -> Array:
        """log p(y_k | f) at f = center + c t, (points, lines)."""
        raise NotImplementedError(f"{type(self).__name__} must say what y_k is.")

    def _leave_out(self, values: Array, lines: Index) -> None:
        """Set the y_k of each line to 0 in elements of the log density, (lines, nodes, E)."""
        raise NotImplementedError(f"{type(self).__name__} must say what y_k is.")

    def on_grid(
        self, lines: Index, low: Array, high: Array, fewest: int
    ) -> tuple[Array, Array, Array, Array, Array, NDArray[np.bool_]]:
        """t, log g_k and log p(y_k | t) on a grid, (points, lines), and the ends of each line.

        The last result is whether the grid is too coarse for its density.
        """
        low, high, others = self._trimmed(lines, low, high)
        width = (high - low) / np.sqrt(self._variance[self._direction[lines]])
        points = int(np.clip(2.0 * width.max(), fewest, MOST))
        middle, half = 0.5 * (low + high), 0.5 * (high - low)
        t = middle + half * np.linspace(-1.0, 1.0, points)[:, None]
        own = _zero_if_undefined(self._at(lines, self._f, t))
        unstable = np.arange(lines.size)
        log_g = _chebyshev(LEVELS[0], points)[1] @ others
        density = _log_sum(log_g + own) - _log_sum(log_g)
        change = np.full(lines.size, np.inf)
        for level in LEVELS[1:]:
            nodes, to_grid = _chebyshev(level, points)
            finer = np.empty((level, unstable.size))
            finer[::2] = others
            at = middle[unstable] + half[unstable] * nodes[1::2, None]
            finer[1::2] = self._others(lines[unstable], at)
            log_g[:, unstable] = to_grid @ finer
            again = _log_sum(log_g[:, unstable] + own[:, unstable]) - _log_sum(log_g[:, unstable])
            change[unstable] = np.abs(again - density)
            is_open = ~(change[unstable] <= ENOUGH)
            unstable, others, density = unstable[is_open], finer[:, is_open], again[is_open]
            if not unstable.size:
                break
        if unstable.size:
            log_g[:, unstable] = _zero_if_undefined(self._others(lines[unstable], t[:, unstable]))
            both = log_g[:, unstable] + own[:, unstable]
            fine, coarse = (
                _log_sum(both[::step]) - _log_sum(log_g[::step, unstable]) for step in (1, 2)
            )
            change[unstable] = np.abs(fine - coarse)
        return t, log_g, own, low, high, ~(change <= ROUGH)

    def _trimmed(self, lines: Index, low: Array, high: Array) -> tuple[Array, Array, Array]:
        """Cut off what is `DEEP`; return the ends, and log g_k at the nodes of the first level.

        If log g_k were 1e10 nats below the maximum at an end, the polynomial would be wrong
        everywhere.
        """
        low, high = low.copy(), high.copy()
        nodes = _chebyshev(LEVELS[0], FEWEST)[0][::-1, None]  # from low to high
        others = np.empty((nodes.size, lines.size))
        todo = np.arange(lines.size)
        for _ in range(ROUNDS):
            middle, half = 0.5 * (low + high)[todo], 0.5 * (high - low)[todo]
            t = middle + half * nodes
            others[:, todo] = self._others(lines[todo], t)
            log_g = np.where(np.isfinite(others[:, todo]), others[:, todo], -np.inf)
            both = log_g + _zero_if_undefined(self._at(lines[todo], self._f, t))
            # If a density is 0 everywhere, −inf is compared with −inf: nothing is deep.
            is_deep = (log_g < log_g.max(axis=0) - DEEP) & ~(both >= both.max(axis=0) - DEEP)
            first = np.maximum(np.argmin(is_deep, axis=0) - 1, 0)
            last = nodes.size - np.maximum(np.argmin(is_deep[::-1], axis=0), 1)
            each = np.arange(todo.size)
            low[todo], high[todo] = t[first, each], t[last, each]
            todo = todo[(first > 0) | (last < nodes.size - 1)]
            if not todo.size:
                break
        else:
            middle, half = 0.5 * (low + high)[todo], 0.5 * (high - low)[todo]
            others[:, todo] = self._others(lines[todo], middle + half * nodes)
        return low, high, others[::-1]

    def _others(self, lines: Index, t: Array) -> Array:
        """log g_k at t, (nodes, lines), up to a constant."""
        out = np.empty(t.shape)
        wide = max(self._f.size, self.base.size)
        block = max(1, CELLS // (t.shape[0] * wide))
        for begin in range(0, lines.size, block):
            part = slice(begin, begin + block)
            k = lines[part]
            j, along = self._direction[k], t[:, part].T
            rows = self._f + self._c[j][:, None, :] * along[:, :, None]
            values = self._elements(rows.reshape(-1, self._f.size)) - self.base
            values = values.reshape(k.size, t.shape[0], -1)
            self._leave_out(values, k)
            prior = -along * (self._slope[j][:, None] + 0.5 * self._curvature[j][:, None] * along)
            out[:, part] = (values.sum(axis=2) + prior).T
        return out


class ObservationLines(_Lines):
    """The lines of single observations, each along Σ times what its observation says most of.

    Attributes
    ----------
    reads : ndarray of int, shape (M, s)
        The elements of f that each observation may read, padded with −1.
    moves : ndarray, shape (M, s)
        How much each of them changes with t.
    """

    def __init__(
        self,
        elements: Callable[[Array], Array],
        which: Index,
        reads: Index,
        q: GaussianApproximation,
        f: Array,
    ):
        self._which, self.reads = which, reads
        if reads.shape[1] == 1:
            sites, direction = np.unique(reads[:, 0], return_inverse=True)
            averages = np.zeros((f.size, sites.size), order="F")
            averages[sites, np.arange(sites.size)] = 1.0
        else:
            direction = np.arange(which.size)
            weights = combinations(elements, which, reads, q.center, _covariances(q, reads))
            averages = np.zeros((f.size, which.size), order="F")
            k, slot = np.nonzero(reads >= 0)
            averages[reads[k, slot], k] = weights[k, slot]
        super().__init__(elements, q, f, averages, direction)
        self.moves = np.take_along_axis(self._c[direction], reads, axis=1)

    def read_at(self, t: Array) -> Array:
        """The elements of f that each observation reads, at t of its line."""
        found: Array = self._f[self.reads] + self.moves * t[:, None]
        return found

    def _leave_out(self, values: Array, lines: Index) -> None:
        values[np.arange(lines.size), :, self._which[lines]] = 0.0

    def _at(self, lines: Index, center: Array, t: Array) -> Array:
        reads, steps = self.reads[lines], t[:, :, None] * self.moves[lines]
        return _densities(self._elements, self._which[lines], reads, center, steps)


def _densities(
    elements: Callable[[Array], Array], which: Index, reads: Index, center: Array, steps: Array
) -> Array:
    """log p(y_k | center_S + step), (points, M), for steps (points, M, s).

    A row of f has a step for every set S.
    """
    out = np.empty(steps.shape[:2])
    left = np.arange(which.size)
    block = max(1, CELLS // center.size)
    while left.size:
        _, first = np.unique(reads[left, 0], return_index=True)
        now = left[first]
        k, slot = np.nonzero(reads[now] >= 0)
        for begin in range(0, len(out), block):
            part = slice(begin, begin + block)
            rows = np.tile(center, (len(out[part]), 1))
            rows[:, reads[now][k, slot]] += steps[part][:, now[k], slot]
            out[part, now] = elements(rows)[:, which[now]]
        left = np.delete(left, first)
    return out


def _expanded(
    elements: Callable[[Array], Array],
    which: Index,
    reads: Index,
    center: Array,
    root: Array,
    *,
    step: float,
) -> tuple[Array, Array, Array]:
    """ℓ, g and H of log p(y_k | center_S + R u) = ℓ + gᵀu + ½ uᵀH u + …, by differences.

    Shapes (M,), (M, s) and (M, s, s). They are exact if there are no further terms.
    """
    s = reads.shape[1]
    one = step * np.eye(s)
    i, j = np.triu_indices(s, 1)
    u = np.concatenate([np.zeros((1, s)), one, -one, one[i] + one[j]])
    values = _densities(elements, which, reads, center, np.einsum("kij,pj->pki", root, u))
    at, above, below = values[0], values[1 : s + 1], values[s + 1 : 2 * s + 1]
    H = np.empty((which.size, s, s))
    H[:, range(s), range(s)] = (above - 2.0 * at + below).T / step**2
    H[:, i, j] = H[:, j, i] = (values[2 * s + 1 :] - above[i] - above[j] + at).T / step**2
    return at, (above - below).T / (2.0 * step), H


def combinations(
    elements: Callable[[Array], Array], which: Index, reads: Index, center: Array, cov: Array
) -> Array:
    """a of each observation, (M, s): the combination aᵀf_S of which log p(y_k | f_S) says most.

    ``cov`` are covariances of the f_S, (M, s, s).
    """
    root = _symmetric_roots(cov)
    _, g, H = _expanded(elements, which, reads, center, root, step=STEP)
    says = np.nan_to_num(g[:, :, None] * g[:, None, :] + H @ H, posinf=0.0, neginf=0.0)
    most = np.linalg.eigh(says)[1][:, :, -1]
    weights: Array = np.einsum("kij,kj->ki", np.linalg.pinv(root), most)  # cov a is R u
    return weights


def _covariances(q: GaussianApproximation, reads: Index) -> Array:
    """The blocks of Σ on the elements that are read, (M, s, s)."""
    W = q.posterior.precision
    if not isinstance(W, SiteBlocks):
        return q.posterior.variances[reads][:, :, None]
    index = np.empty(W.n, dtype=np.intp)
    index[W.sets[:, 0]] = np.arange(len(W.sets))
    blocks: Array = np.where(W.filling, 0.0, q.posterior.site_covariances)[index[reads[:, 0]]]
    return blocks


def _symmetric_roots(cov: Array) -> Array:
    """Symmetric roots of covariances (M, s, s); an element may be known, with a variance of 0."""
    values, vectors = np.linalg.eigh(np.nan_to_num(cov))
    scaled = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    roots: Array = scaled @ vectors.swapaxes(1, 2)
    return roots


class _Groups(_Lines):
    """The lines of groups of observations, each along Σ times an average of its f_i."""

    def __init__(
        self,
        elements: Callable[[Array], Array],
        which: Index,
        site: Index,
        group: Index,
        q: GaussianApproximation,
        f: Array,
    ):
        count = int(group.max()) + 1
        averages = np.zeros((f.size, count), order="F")
        np.add.at(averages, (site, group), 1.0 / np.bincount(group)[group])
        super().__init__(elements, q, f, averages, np.arange(count))
        self._is_left_out = np.zeros((count, self.base.size), dtype=bool)
        self._is_left_out[group, which] = True

    def _leave_out(self, values: Array, lines: Index) -> None:
        np.copyto(values, 0.0, where=self._is_left_out[lines][:, None, :])

    def _at(self, lines: Index, center: Array, t: Array) -> Array:
        out = np.empty(t.shape)
        block = max(1, CELLS // max(self._f.size, self.base.size))
        for j, line in enumerate(lines):
            own = self._is_left_out[line]
            for begin in range(0, t.shape[0], block):
                part = slice(begin, begin + block)
                rows = center + np.outer(t[part, j], self._c[line])
                out[part, j] = self._elements(rows)[:, own].sum(axis=1)
        return out


@lru_cache(maxsize=16)
def _chebyshev(nodes: int, points: int) -> tuple[Array, Array]:
    """Nodes from 1 to −1, and the matrix from values there to values at equidistant points."""
    vandermonde = np.polynomial.chebyshev.chebvander
    x = np.cos(np.pi * np.arange(nodes) / (nodes - 1))
    ends = np.ones(nodes)
    ends[[0, -1]] = 0.5
    to_coefficients = 2.0 / (nodes - 1) * ends[:, None] * vandermonde(x, nodes - 1).T * ends
    fine = np.linspace(-1.0, 1.0, points)
    result: Array = vandermonde(fine, nodes - 1) @ to_coefficients
    return x, result


def _zero_if_undefined(log_density: Array) -> Array:
    """−inf instead of NaN and +inf, to which a likelihood may overflow far from the draw."""
    return np.where(log_density < np.inf, log_density, -np.inf)


def _log_sum(values: Array) -> Array:
    """log Σ exp of each column."""
    top = values.max(axis=0)
    result: Array = top + np.log(np.exp(values - top).sum(axis=0))
    return result


def _moments(t: Array, log_density: Array) -> tuple[Array, Array]:
    """Mean and standard deviation of t under the density of each column.

    The deviation is at least a step of the grid, since a peak may lie between two points.
    """
    weight = np.exp(log_density - log_density.max(axis=0))
    weight /= weight.sum(axis=0)
    mean = (weight * t).sum(axis=0)
    deviation = np.sqrt((weight * (t - mean) ** 2).sum(axis=0))
    return mean, np.maximum(deviation, t[1] - t[0])


def _ends(cavity: tuple[Array, Array], posterior: tuple[Array, Array]) -> tuple[Array, Array]:
    """From `NEEDED` standard deviations below both means to as many above both."""
    low = np.minimum(*(mean - NEEDED * deviation for mean, deviation in (cavity, posterior)))
    high = np.maximum(*(mean + NEEDED * deviation for mean, deviation in (cavity, posterior)))
    return low, high


def _drawn(t: Array, log_density: Array, uniform: Array) -> Array:
    """Draws of t from densities on a grid, by inverse distribution functions."""
    weight = np.exp(log_density - log_density.max(axis=0))
    total = np.cumsum(0.5 * (weight[1:] + weight[:-1]), axis=0)
    total = np.vstack([np.zeros(t.shape[1]), total])
    out = np.empty(t.shape[1])
    for k in range(out.size):
        out[k] = np.interp(uniform[k] * total[-1, k], total[:, k], t[:, k])
    return out
