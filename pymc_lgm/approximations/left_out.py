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
theta). `left_out_of_normal` computes it in closed form.

Vehtari, Mononen, Tolvanen, Sivula and Winther (2016), *Bayesian leave-one-out cross-validation
approximations for Gaussian latent variable models*, Journal of Machine Learning Research 17, weight
draws of theta in this way (§2.2), where they integrate f out by an approximation.

An observation may read several elements of f: one for its mean and one for its standard deviation,
or one of each class. Then t is aᵀf_S, a combination of the elements that it reads, and c is
Σ a / aᵀΣa. The information of y_k about other combinations remains in r, and the weights correct
it. So a is the combination about which y_k is most informative. Let f_S = E[f_S] + R u with
R Rᵀ = Σ_SS, and let g and H be the gradient and the Hessian of log p(y_k | u) at u = 0. Then the
mean of ∇ log p ∇ log pᵀ under q is about g gᵀ + H², and log p varies most along its first
eigenvector. Constantine, Dow and Wang (2014), *Active subspace methods in theory and practice*,
SIAM Journal on Scientific Computing 36, reduce dimensions in this way.

A group of observations is left out in the same way: y_k is then all of its observations, and t the
average of the f_i that they read. Again r is independent of t if the posterior of f is normal. If
y_k depends on f through more than that average, r depends on y_k, and the weights correct it.

The code measures t from the draw: t = 0 is f.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numba
import numpy as np

from numpy.typing import NDArray
from scipy.special import ndtri

from pymc_lgm.approximations.expansions import CELLS, Expansions, Pairs
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
    "left_out_groups_of_normal",
    "left_out_of_normal",
    "zero_if_undefined",
]

Index = NDArray[np.intp]

NODES = (9, 17)
"""Numbers of Chebyshev nodes on a piece of a line at which log g_k is evaluated: few, since it is a
quadratic with a small analytic remainder. The second number is used if every other node of the
first gives another result."""

FINE = 65
"""Nodes of the Clenshaw–Curtis rule on a piece, which include those of `NODES`. log p(y_k | t) is
evaluated at all of them, which costs little, and log g_k is interpolated."""

CLOSE = 1e-4
"""A piece whose integral changes by less than this share of that over the line, from one rule to
the next, needs no finer one: rules for analytic functions converge geometrically. Among 33
likelihoods, one had an error of 7e-5, and all others had at most 3e-6."""

EXACT = 1e-6
"""The same share, if every other node of the Clenshaw–Curtis rule is left out instead. This rule
needs only log p(y_k | t) at more nodes, which costs little, so it is more accurate."""

ROUGH = 1e-2
"""If the changes of all pieces after the last halving add up to more than this share of the
integral, the log density is NaN."""

NEGLIGIBLE = 1e-8
"""Share of the integral below which a tail is left out. It is far below `EXACT`."""

DEEP = 60.0
"""Nats below the maximum of the line, with y_k and without, at which a piece counts as empty: e⁻⁶⁰
is 1e-26."""

REACH = 7.0
"""Standard deviations of the posterior, of the cavity g_k and of the prior that a line covers on
each side. A normal density has 3e-12 of its mass beyond."""

OUTWARD = REACH * 2.0 ** np.arange(7)
INWARD = 16.0 ** -np.arange(3)
"""Ends of the first pieces of a line if g_k may have several modes, in standard deviations of q.

The first are on both sides of the center of q, and the second on both sides of the draw, which is
where the posterior has mass. A narrow mode between two nodes may be missed if the likelihood has no
heavy tails. It is a choice.
"""

HALVINGS = 30
"""Largest number of times that a piece is halved. At a jump of p(y_k | t) the error is halved each
time, and 17 are enough."""

MOST = 300
"""Number of pieces of a line at which halving ends: a density that needs more is noise."""

STEP = 0.1
"""Step of differences, in standard deviations of the posterior. They give first guesses and
directions, which need a digit or two."""

FLATTEST = 1e-6
"""Smallest precision of the prior along a line, relative to that of the posterior."""

OVERSHOOT = 3.0
"""Nats by which an interpolated log g_k may exceed its values at the nodes of a piece. It is a
choice.

A polynomial through values near a jump may be far too large between the nodes, and its exponential
would overflow.
"""

LOST = 1e-12
"""Smallest precision of a cavity of normal observations, relative to that of the posterior. With a
smaller one rounding leaves few digits of it, so its density is NaN. It is a choice."""


class LeftOut(NamedTuple):
    """Leave-one-out results of each observation for one draw, of shape (M,) except for ``f``."""

    log_density: Array  # log p(y_k | y_-k, r, theta)
    f: Array  # a new draw of the f_i that y_k reads, given y_-k, r and theta: (M, s)
    own: Array  # log p(y_k | f_i, theta) at the draw f from the posterior

    def fill(self, index: Index | NDArray[np.bool_], some: LeftOut) -> None:
        """Set the results of the observations at ``index``."""
        for mine, theirs in zip(self, some, strict=True):
            mine[index] = theirs


def left_out(
    elements: Callable[[Array], Array],
    which: Index,
    reads: Index,
    q: GaussianApproximation,
    f: Array,
    uniform: Array,
    *,
    all_reads: Index | None = None,
    is_log_concave: bool = False,
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
        Uniform numbers in (0, 1). The first column gives the draws of t.
    all_reads : ndarray of int, shape (E, s), optional
        The elements of f that each observation of the model may read, padded with −1, in the order
        of `in_columns`. With them `Expansions` are in the place of most evaluations of the
        likelihood.
    is_log_concave : bool
        Whether the likelihood is log-concave. If so, g_k has one mode.

    Returns
    -------
    LeftOut
        NaN if the density on a line is not finite.

    Notes
    -----
    For a dense process the directions cost O(n²) for each f_i, or for each observation that reads
    several. Without ``all_reads`` the likelihood of all E observations is evaluated at some 20
    values of f per observation that is left out, or at 200 if it is not log-concave.
    """
    args = elements, which, reads, q, f, all_reads
    lines = ObservationLines(*args, is_log_concave=is_log_concave)
    log_density, t = integrate_lines(lines, uniform[:, 0], is_unimodal=is_log_concave)
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
    The cavity, which is the density of u without y_k, is normal with precision B = I + H and mean
    −B⁻¹g. The product of p(y_k | u) and the cavity is p(y_k | y_-k, theta) N(u; 0, I). At u = 0
    this gives

        log p(y_k | y_-k, theta) = ℓ − ½ gᵀB⁻¹g + ½ log|B|.

    Parameters
    ----------
    elements, which, reads, q, f, uniform
        As in `left_out`. All observations are normal with means that are affine in f.

    Returns
    -------
    LeftOut
        NaN if only y_k is informative about an element.
    """
    root = _symmetric_roots(_covariances(q, reads))
    value, g, H = _expanded(elements, which, reads, q.center, root, step=1.0)
    log_density, L, half = _without_normal(value, g, H)
    u = np.linalg.solve(L.swapaxes(1, 2), ndtri(uniform)[:, :, None] - half)[:, :, 0]
    drawn = q.center[reads] + np.einsum("kij,kj->ki", root, u)
    return LeftOut(log_density, drawn, elements(f[None])[0, which])


def _without_normal(value: Array, g: Array, H: Array) -> tuple[Array, Array, Array]:
    """The density of `left_out_of_normal`, (M,), with B = L Lᵀ, and L⁻¹ g, (M, s, 1)."""
    identity = np.eye(g.shape[1])
    B = identity + H
    is_lost = ~are_nonnegative(B - LOST * identity)
    B[is_lost] = identity
    L = np.linalg.cholesky(B)
    half = np.linalg.solve(L, g[:, :, None])
    log_density = value - 0.5 * (half**2).sum(axis=(1, 2))
    log_density += np.log(np.einsum("kii->ki", L)).sum(axis=1)
    log_density[is_lost] = np.nan
    return log_density, L, half


def left_out_groups_of_normal(
    elements: Callable[[Array], Array],
    which: Index,
    reads: Index,
    group: Index,
    q: GaussianApproximation,
    f: Array,
) -> tuple[Array, Array]:
    """Leave out groups of normal observations in closed form.

    The formula is that of `left_out_of_normal`, with log p(y_g | u) in the place of log p(y_k | u).

    Parameters
    ----------
    elements, which, reads, q, f
        As in `left_out_of_normal`.
    group : ndarray of int, shape (M,)
        The group of each observation, 0 to G - 1.

    Returns
    -------
    log_density : ndarray, shape (G,)
        log p(y_g | y_-g, theta); NaN if only y_g is informative about an element.
    own : ndarray, shape (G,)
        log p(y_g | f, theta) at the draw f.

    Notes
    -----
    O(n² s + s³) for a group that reads s elements of a dense process of n.
    """
    n = f.size
    sd = np.sqrt(q.posterior.variances)
    sd[~(sd > 0.0)] = 1.0
    scales = np.where(reads >= 0, sd[reads], 1.0)
    values, slopes, curvatures = _expanded(
        elements, which, reads, q.center, scales[:, :, None] * np.eye(reads.shape[1]), step=1.0
    )
    log_density = np.empty(group.max() + 1)
    for k in range(log_density.size):
        members = np.flatnonzero(group == k)
        read = reads[members]
        S = np.unique(read[read >= 0])
        units = np.zeros((n, S.size), order="F")
        units[S, np.arange(S.size)] = 1.0
        cov = q.posterior.covariance_times(units)[S] / (sd[S][:, None] * sd[S])
        root = _symmetric_roots(0.5 * (cov + cov.T)[None])
        # The last element is that of padding, whose slopes and curvatures are 0.
        at = np.where(read >= 0, np.searchsorted(S, read), S.size)
        g, H = np.zeros(S.size + 1), np.zeros((S.size + 1, S.size + 1))
        np.add.at(g, at, slopes[members])
        np.add.at(H, (at[:, :, None], at[:, None, :]), curvatures[members])
        value = values[members].sum(keepdims=True)
        of_u = root @ g[:-1], root @ H[:-1, :-1] @ root
        log_density[k] = _without_normal(value, *of_u)[0][0]
    return log_density, np.bincount(group, elements(f[None])[0, which])


def left_out_groups(
    elements: Callable[[Array], Array],
    which: Index,
    site: Index,
    group: Index,
    q: GaussianApproximation,
    f: Array,
    *,
    is_log_concave: bool = False,
) -> tuple[Array, Array]:
    """Leave out the observations of each group together, for one draw f.

    Parameters
    ----------
    elements, which, q, f
        As in `left_out`.
    site : ndarray of int, shape (E,)
        The element of f that each observation reads, also those that are not left out.
    group : ndarray of int, shape (M,)
        The group of each observation, 0 to G - 1.
    is_log_concave : bool
        As in `left_out`.

    Returns
    -------
    log_density : ndarray, shape (G,)
        log p(y_g | y_-g, r, theta); NaN if the density on a line is not finite.
    own : ndarray, shape (G,)
        log p(y_g | f, theta) at the draw f.

    Notes
    -----
    For a dense process the directions cost O(n²) for each group. The likelihood of all E
    observations is evaluated at some 65 values of f per group, or at more if it is not log-concave.
    """
    lines = _Groups(elements, which, site, group, q, f, is_log_concave=is_log_concave)
    middle = np.full(lines.count, 0.5)
    log_density, _ = integrate_lines(lines, middle, is_unimodal=is_log_concave)
    return log_density, np.bincount(group, lines.base[which])


def integrate_lines(
    lines: _Lines, uniform: Array, *, is_unimodal: bool = False
) -> tuple[Array, Array]:
    """log p(y_k | y_-k, r, theta) of each line, and a draw of t from g_k.

    A line is divided into pieces, and pieces are halved until this changes the integrals of g_k and
    of p(y_k | t) g_k no more. ``is_unimodal`` says that g_k has one mode, as it does if the
    likelihood is log-concave.
    """
    log_density, drawn = np.empty(lines.count), np.empty(lines.count)
    block = CELLS // (FINE * 2 * (OUTWARD.size + INWARD.size))
    for begin in range(0, lines.count, block):
        which = np.arange(begin, min(begin + block, lines.count))
        log_density[which], drawn[which] = _integrated(lines, which, uniform[which], is_unimodal)
    return log_density, drawn


@np.errstate(all="ignore")
def _integrated(
    lines: _Lines, which: Index, uniform: Array, is_unimodal: bool
) -> tuple[Array, Array]:
    """The results of `integrate_lines` for some of the lines."""
    edges = lines.first_edges(which, is_unimodal)
    if is_unimodal:
        # The middle piece covers the posterior and the cavity. Mostly the tails are negligible.
        pieces = lines.on_pieces(*_between(which, edges[1:3]), is_unimodal=True)
        has_tail = ~(pieces.beyond <= np.log(NEGLIGIBLE))
        for tail, two in zip(has_tail, (edges[:2], edges[2:]), strict=True):
            if tail.any():
                beyond = _between(which[tail], two[:, tail])
                pieces = pieces.joined(lines.on_pieces(*beyond, is_unimodal=True))
    else:
        pieces = lines.on_pieces(*_between(which, edges))
    for halving in range(HALVINGS + 1):
        line = pieces.line - which[0]
        top, total = np.full((2, which.size), -np.inf), np.full((2, which.size), -np.inf)
        for k in range(2):
            np.maximum.at(top[k], line, pieces.top[k])
        has_mass = ((pieces.top >= top[:, line] - DEEP) & np.isfinite(pieces.top)).any(axis=0)
        for k in range(2):
            np.logaddexp.at(total[k], line[has_mass], pieces.integral[k, has_mass])
        shares = np.where(pieces.change > -np.inf, np.exp(pieces.change - total[:, line]), 0.0)
        share = np.where(has_mass, shares.max(axis=0), 0.0)
        is_open = ~(share <= CLOSE) & (np.bincount(line)[line] <= MOST)
        if not is_open.any() or halving == HALVINGS:
            break
        k, low, high = pieces.line[is_open], pieces.low[is_open], pieces.high[is_open]
        middle = 0.5 * (low + high)
        halves = (np.tile(k, 2), np.concatenate([low, middle]), np.concatenate([middle, high]))
        finer = lines.on_pieces(*halves, is_unimodal=is_unimodal)
        pieces = pieces.only(~is_open).joined(finer)
    log_density = total[1] - total[0]
    log_density[~(np.bincount(line, share, which.size) <= ROUGH)] = np.nan
    return log_density, _draws(pieces.only(has_mass), line[has_mass], uniform)


class _Pieces(NamedTuple):
    """Pieces of lines, m of them, and integrals over them, of g_k and of p(y_k | t) g_k.

    Attributes
    ----------
    line : ndarray of int, shape (m,)
    low, high : ndarray, shape (m,)
    beyond : ndarray, shape (2, m)
        For the lower and the upper end, the logarithm of a bound of the mass beyond it, as a share
        of the integral, if the integrands are log-concave. It is the larger one of the two.
    top : ndarray, shape (2, m)
        The largest log integrand at a node, for each of the two integrands.
    integral : ndarray, shape (2, m)
        Log integrals of the two integrands.
    change : ndarray, shape (2, m)
        Logarithms of the differences between these integrals and those of a coarser rule.
    mass : ndarray, shape (FINE, m)
        Logarithms of the terms, one per node, that add up to the integral of g_k.
    """

    line: Index
    low: Array
    high: Array
    beyond: Array
    top: Array
    integral: Array
    change: Array
    mass: Array

    @classmethod
    def empty(cls, line: Index, low: Array, high: Array) -> _Pieces:
        """Pieces without mass."""
        beyond, top, integral, change = np.full((4, 2, line.size), -np.inf)
        nothing = np.full((FINE, line.size), -np.inf)
        return cls(line, low, high, beyond, top, integral, change, nothing)

    def fill(self, index: Index, integrals: tuple[Array, ...]) -> None:
        """Set the result of `_integrals` for the pieces at ``index``."""
        for mine, found in zip(self[3:], integrals, strict=True):
            mine[:, index] = found

    def only(self, some: NDArray[np.bool_] | Index) -> _Pieces:
        """Some of the pieces."""
        return _Pieces._make(each[..., some] for each in self)

    def joined(self, other: _Pieces) -> _Pieces:
        """These pieces and others."""
        pairs = zip(self, other, strict=True)
        return _Pieces._make(np.concatenate(pair, axis=-1) for pair in pairs)


class _Lines:
    """The line f + c t of each observation or group.

    Parameters
    ----------
    elements, q, f
        As in `left_out`.
    averages : ndarray, shape (n, J)
        The vector a of each direction: t is aᵀ(f' − f) at a point f' of the line through the draw
        f, and c = Σ a / aᵀΣa.
    direction : ndarray of int, shape (lines,)
        For each line its column of ``averages``, which lines may share: several observations may
        read one f_i.
    of_line : ndarray of int, shape (E,)
        The line that leaves each observation out, or −1.
    all_reads, is_log_concave
        As in `left_out`.

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
        of_line: Index,
        all_reads: Index | None,
        *,
        is_log_concave: bool,
    ):
        self._elements = elements
        self._f = f
        self._q = q
        self._direction = direction
        self._of_line = of_line
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
        self._c = np.ascontiguousarray(sigma / self._variance)
        self._center = averages.T @ (q.center - f)
        self.base = elements(f[None])[0]
        self._expansions = None
        if all_reads is not None:
            sd = np.sqrt(q.posterior.variances)
            self._expansions = Expansions.of(
                elements, f, self.base, all_reads, sd, is_log_concave=is_log_concave
            )

    def first_edges(self, lines: Index, is_unimodal: bool) -> Array:
        """Edges of the first pieces of some lines, which cover posterior, cavity and prior of t.

        With one mode there are three pieces: the middle one covers the posterior and the cavity,
        and the others reach to the ends of the prior.
        """
        low, high = self._guess(lines)
        variance = self._variance[self._direction[lines]]
        slope, curvature = (each[self._direction[lines]] for each in (self._slope, self._curvature))
        # The prior may be flat along a line.
        curvature = np.maximum(curvature, FLATTEST / variance)
        reach = REACH / np.sqrt(curvature)
        first = np.minimum(low, -slope / curvature - reach)
        last = np.maximum(high, -slope / curvature + reach)
        edges = np.stack([first, low, high, last])
        if not is_unimodal:
            center, deviation = self._center[self._direction[lines]], np.sqrt(variance)
            outward, inward = (
                np.outer(np.r_[-each, each], deviation) for each in (OUTWARD, INWARD)
            )
            edges = np.concatenate([edges, center + outward, inward])
        return np.sort(np.clip(edges, first, last), axis=0)

    def _guess(self, lines: Index) -> tuple[Array, Array]:
        """Where posteriors and cavities begin and end, if q and the cavities are normal.

        The cavities are q(t) / p(y_k | t).
        """
        variance = self._variance[self._direction[lines]]
        center = self._center[self._direction[lines]]
        deviation = np.sqrt(variance)
        h = STEP * deviation
        steps = np.outer([-1.0, 0.0, 1.0], h)
        below, at, above = self._at(lines, self._q.center, steps)
        slope, curvature = (above - below) / (2.0 * h), (2.0 * at - above - below) / h**2
        # The variance of a cavity is at most a thousand times that of q. It is a choice.
        curvature = np.where(np.isfinite(curvature), np.clip(curvature, 0.0, 0.999 / variance), 0.0)
        slope = np.where(np.isfinite(slope), slope, 0.0)
        precision = 1.0 / variance - curvature
        mean, scale = center - slope / precision, 1.0 / np.sqrt(precision)
        low = np.minimum(mean - REACH * scale, center - REACH * deviation)
        return low, np.maximum(mean + REACH * scale, center + REACH * deviation)

    def on_pieces(
        self, line: Index, low: Array, high: Array, *, is_unimodal: bool = False
    ) -> _Pieces:
        """Integrate over pieces of lines, with more nodes where the first are not enough.

        If g_k has one mode, a line has few pieces, and most need more nodes, so they get them.
        """
        middle, half = 0.5 * (low + high), 0.5 * (high - low)
        few, many = (middle + half * _rule(n)[0][:, None] for n in NODES)
        if is_unimodal:
            own = self._own(line, middle + half * _rule(FINE)[0][:, None])
            return _Pieces(line, low, high, *_integrals(self._log_g(line, many), own, half))
        pieces = _Pieces.empty(line, low, high)
        at_few = self._log_g(line, few)
        own = at_few + self._own(line, few)
        (some,) = np.nonzero(self._have_mass(line, np.stack([at_few.max(axis=0), own.max(axis=0)])))
        fine = middle[some] + half[some] * _rule(FINE)[0][:, None]
        own = self._own(line[some], fine)
        pieces.fill(some, _integrals(at_few[:, some], own, half[some]))
        is_open = self._have_mass(line, pieces.top)[some]
        is_open &= ~(pieces.change <= pieces.integral + np.log(CLOSE)).all(axis=0)[some]
        if is_open.any():
            rest = some[is_open]
            at_many = np.empty((NODES[1], rest.size))
            at_many[::2] = at_few[:, rest]
            at_many[1::2] = self._log_g(line[rest], many[1::2, rest])
            pieces.fill(rest, _integrals(at_many, own[:, is_open], half[rest]))
        return pieces

    def _own(self, line: Index, t: Array) -> Array:
        """log p(y_k | t) of pieces at t, (nodes, pieces)."""
        return zero_if_undefined(self._at(line, self._f, t))

    def _have_mass(self, line: Index, top: Array) -> NDArray[np.bool_]:
        """Whether the largest integrand of a piece is not far below that of its line."""
        of_line = np.full((2, self.count), -np.inf)
        for k in range(2):
            np.maximum.at(of_line[k], line, top[k])
        return (top >= of_line[:, line] - DEEP).any(axis=0)

    def _log_g(self, line: Index, t: Array) -> Array:
        """log g_k of pieces at t, (nodes, pieces). Several pieces may be of one line."""
        j = self._direction[line]
        prior = -t * (self._slope[j] + 0.5 * self._curvature[j] * t)
        if self._expansions is None:
            return zero_if_undefined(prior + self._others(line, t))
        others = self._expansions.along(self._c, j, line, self._of_line, t)
        return zero_if_undefined(prior + others)

    def _others(self, line: Index, t: Array) -> Array:
        """Σ_l log p(y_l | f + c t) − log p(y_l | f) without the observations of the line itself."""
        out = np.empty(t.shape)
        wide = max(self._f.size, self.base.size)
        block = max(1, CELLS // (t.shape[0] * wide))
        for begin in range(0, line.size, block):
            part = slice(begin, begin + block)
            k, c = line[part], self._c.T[self._direction[line[part]]]
            rows = self._f + c[:, None, :] * t[:, part].T[:, :, None]
            values = self._elements(rows.reshape(-1, self._f.size)) - self.base
            values = values.reshape(k.size, t.shape[0], -1)
            np.copyto(values, 0.0, where=(self._of_line == k[:, None])[:, None, :])
            out[:, part] = values.sum(axis=2).T
        return out

    def _at(self, lines: Index, center: Array, t: Array) -> Array:
        """log p(y_k | f) at f = center + c t, (points, lines)."""
        raise NotImplementedError(f"{type(self).__name__} must say what y_k is.")


class ObservationLines(_Lines):
    """The lines of single observations, each along Σ a of `combinations`.

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
        all_reads: Index | None = None,
        *,
        is_log_concave: bool = False,
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
        of_line = np.full(elements(f[None]).shape[1], -1)
        of_line[which] = np.arange(which.size)
        args = elements, q, f, averages, direction, of_line, all_reads
        super().__init__(*args, is_log_concave=is_log_concave)
        self.moves = self._c[reads, direction[:, None]]

    def read_at(self, t: Array) -> Array:
        """The elements of f that each observation reads, at t of its line."""
        found: Array = self._f[self.reads] + self.moves * t[:, None]
        return found

    def _own(self, line: Index, t: Array) -> Array:
        if self._expansions is None:
            return super()._own(line, t)
        which, reads = self._which[line], self.reads[line]
        columns = self._expansions.reads[which]
        moves = np.where(columns == reads, self.moves[line], self.moves[line, ::-1])
        pairs = Pairs(np.arange(line.size + 1), which, np.where(columns >= 0, moves, 0.0))
        return zero_if_undefined(self.base[which] + self._expansions.along_sparse(pairs, t))

    def _at(self, lines: Index, center: Array, t: Array) -> Array:
        reads, steps = self.reads[lines], t[:, :, None] * self.moves[lines]
        return _densities(self._elements, self._which[lines], reads, center, steps)


def _densities(
    elements: Callable[[Array], Array], which: Index, reads: Index, center: Array, steps: Array
) -> Array:
    """log p(y_k | center_S + step), (points, M), for steps (points, M, s).

    One row of f has a step for every set S, so observations of different sets share it.
    """
    out = np.empty(steps.shape[:2])
    pending = np.arange(which.size)
    block = max(1, CELLS // center.size)
    while pending.size:
        _, first = np.unique(reads[pending, 0], return_index=True)
        now = pending[first]
        k, slot = np.nonzero(reads[now] >= 0)
        for begin in range(0, len(out), block):
            part = slice(begin, begin + block)
            rows = np.tile(center, (len(out[part]), 1))
            rows[:, reads[now][k, slot]] += steps[part][:, now[k], slot]
            out[part, now] = elements(rows)[:, which[now]]
        pending = np.delete(pending, first)
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
    """a of each observation, (M, s), along which log p(y_k | f_S) varies most.

    ``cov`` are covariances of the f_S, (M, s, s). The module's docstring has the formula.
    """
    root = _symmetric_roots(cov)
    _, g, H = _expanded(elements, which, reads, center, root, step=STEP)
    variation = np.nan_to_num(g[:, :, None] * g[:, None, :] + H @ H, posinf=0.0, neginf=0.0)
    u = np.linalg.eigh(variation)[1][:, :, -1]
    # f_S moves along cov a, which is R u if a is R⁻¹ u.
    weights: Array = np.einsum("kij,kj->ki", np.linalg.pinv(root), u)
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
        *,
        is_log_concave: bool,
    ):
        count = int(group.max()) + 1
        averages = np.zeros((f.size, count), order="F")
        np.add.at(averages, (site[which], group), 1.0 / np.bincount(group)[group])
        of_line = np.full(elements(f[None]).shape[1], -1)
        of_line[which] = group
        args = elements, q, f, averages, np.arange(count), of_line, site[:, None]
        super().__init__(*args, is_log_concave=is_log_concave)

    def _at(self, lines: Index, center: Array, t: Array) -> Array:
        out = np.empty(t.shape)
        block = max(1, CELLS // max(self._f.size, self.base.size))
        for j, line in enumerate(lines):
            own = self._of_line == line
            for begin in range(0, t.shape[0], block):
                part = slice(begin, begin + block)
                rows = center + np.outer(t[part, j], self._c[:, line])
                out[part, j] = self._elements(rows)[:, own].sum(axis=1)
        return out


@lru_cache
def _to_coefficients(nodes: int) -> tuple[Array, Array]:
    """Chebyshev nodes from −1 to 1, and the matrix from values there to coefficients."""
    x = -np.cos(np.pi * np.arange(nodes) / (nodes - 1))
    ends = np.ones(nodes)
    ends[[0, -1]] = 0.5
    vandermonde = np.polynomial.chebyshev.chebvander(x, nodes - 1)
    return x, 2.0 / (nodes - 1) * ends[:, None] * vandermonde.T * ends


@lru_cache
def _rule(nodes: int) -> tuple[Array, Array]:
    """The Clenshaw–Curtis rule on [−1, 1]: nodes and weights."""
    x, to_coefficients = _to_coefficients(nodes)
    order = np.arange(0, nodes, 2)
    return x, (2.0 / (1.0 - order**2)) @ to_coefficients[::2]


@lru_cache
def _interpolation(nodes: int) -> Array:
    """The matrix from values at Chebyshev nodes to those at the nodes of the fine rule."""
    vandermonde = np.polynomial.chebyshev.chebvander(_rule(FINE)[0], nodes - 1)
    result: Array = vandermonde @ _to_coefficients(nodes)[1]
    return result


def _integrals(log_g: Array, own: Array, half: Array) -> tuple[Array, ...]:
    """The last five attributes of `_Pieces`.

    Parameters
    ----------
    log_g : ndarray, shape (9 or 17, m)
        log g_k at Chebyshev nodes, from which it is interpolated.
    own : ndarray, shape (FINE, m)
        log p(y_k | t) at the nodes of the Clenshaw–Curtis rule.
    half : ndarray, shape (m,)
        Half of the length of each piece.

    Notes
    -----
    If g_k is 0 at a node, it has no logarithm to interpolate. Then the integrals are those of a
    rule with the nodes of ``log_g`` alone, and their change is set to the integral itself, so that
    the piece is halved if it has mass.
    """
    nodes = len(log_g)
    at_nodes = own[:: (FINE - 1) // (nodes - 1)]
    top = np.stack([log_g.max(axis=0), (log_g + at_nodes).max(axis=0)])
    # Near a jump the polynomial may be far too large between the nodes. The coarse one then
    # differs, and the piece is halved.
    fine, coarse = (
        np.minimum(_interpolation(len(values)) @ values, top[0] + OVERSHOOT)
        for values in (log_g, log_g[::2])
    )
    fine, coarse, half_fine = (
        values + np.log(_rule(len(values))[1])[:, None] + np.log(half)
        for values in (fine, coarse, fine[::2])
    )
    integral, change = np.empty_like(top), np.empty_like(top)
    for k, added in enumerate((np.zeros_like(own), own)):
        integral[k] = _log_sum(fine + added)
        of_nodes = _log_difference(integral[k], _log_sum(coarse + added))
        of_rule = _log_difference(integral[k], _log_sum(half_fine + added[::2]))
        change[k] = np.maximum(of_nodes, of_rule + np.log(CLOSE / EXACT))
    if (is_zero := ~np.isfinite(log_g).all(axis=0)).any():
        values = (log_g + np.log(_rule(nodes)[1])[:, None] + np.log(half))[:, is_zero]
        integral[:, is_zero] = _log_sum(values), _log_sum(values + at_nodes[:, is_zero])
        change[:, is_zero] = integral[:, is_zero]
        fine[:, is_zero] = -np.inf
        fine[:: (FINE - 1) // (nodes - 1), is_zero] = values
    # Beyond an end a log-concave density decreases at least as fast as between the last two nodes,
    # so the mass there is at most the density over the slope.
    both = np.stack([log_g, log_g + at_nodes], axis=1)
    step = half * (_rule(nodes)[0][1] + 1.0)
    slopes = (both[[1, -2]] - both[[0, -1]]) / step
    mass = both[[0, -1]] - np.log(np.maximum(slopes, 0.0)) - integral
    return mass.max(axis=1), top, integral, change, fine


def _between(lines: Index, edges: Array) -> tuple[Index, Array, Array]:
    """The line and the ends of each piece between edges, (edges, lines), without empty ones."""
    low, high = edges[:-1].ravel(), edges[1:].ravel()
    is_some = ~(high <= low)
    return np.tile(lines, len(edges) - 1)[is_some], low[is_some], high[is_some]


def zero_if_undefined(log_density: Array) -> Array:
    """−inf instead of NaN and +inf, to which a likelihood may overflow far from the draw."""
    return np.where(log_density < np.inf, log_density, -np.inf)


def _log_sum(values: Array) -> Array:
    """log Σ exp of each column; −inf if all are."""
    top = values.max(axis=0)
    top = np.where(np.isfinite(top), top, 0.0)
    result: Array = top + np.log(np.exp(values - top).sum(axis=0))
    return result


def _log_difference(a: Array, b: Array) -> Array:
    """log |exp(a) − exp(b)|."""
    top = np.maximum(a, b)
    difference = top + np.log(-np.expm1(-np.abs(a - b)))
    return np.where(top == -np.inf, -np.inf, difference)


def _draws(pieces: _Pieces, line: Index, uniform: Array) -> Array:
    """Draws of t from g_k of each line, by the inverse of its distribution function."""
    order = np.lexsort([pieces.low, line])
    bounds = np.searchsorted(line[order], np.arange(uniform.size + 1))
    some = pieces.only(order)
    piece, share = _chosen(bounds, some.integral[0], uniform)
    is_found = piece >= 0
    some, share = some.only(piece[is_found]), share[is_found]
    # Count half of the mass of a node as below it.
    within = np.exp(some.mass - some.integral[0])
    cumulative = np.cumsum(within, axis=0)
    target = share * cumulative[-1]
    cumulative -= 0.5 * within
    x, last = _rule(FINE)[0], FINE - 1
    above = (cumulative < target).sum(axis=0).clip(0, last)
    below = (above - 1).clip(0)
    columns = np.arange(target.size)
    low, high = cumulative[below, columns], cumulative[above, columns]
    part = np.where(high > low, (target - low) / np.where(high > low, high - low, 1.0), 0.0)
    at = x[below] + part.clip(0.0, 1.0) * (x[above] - x[below])
    out = np.full(uniform.size, np.nan)
    out[is_found] = 0.5 * (some.low + some.high) + 0.5 * (some.high - some.low) * at
    return out


@numba.njit(cache=True)
def _chosen(bounds: Index, log_mass: Array, uniform: Array) -> tuple[Index, Array]:
    """The piece of each line in which the draw is, and the share of its mass below the draw.

    The pieces of line k are ``bounds[k]`` to ``bounds[k + 1]``, in their order; −1 if it has none.
    """
    piece, part = np.full(uniform.size, -1), np.zeros(uniform.size)
    for k in range(uniform.size):
        begin, end = bounds[k], bounds[k + 1]
        if begin == end:
            continue
        top = log_mass[begin:end].max()
        total = 0.0
        for m in range(begin, end):
            total += np.exp(log_mass[m] - top)
        left = uniform[k] * total
        for m in range(begin, end):
            mass = np.exp(log_mass[m] - top)
            if mass > 0.0:
                piece[k], part[k] = m, min(left / mass, 1.0)
            if left <= mass:
                break
            left -= mass
    return piece, part
