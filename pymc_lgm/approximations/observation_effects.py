r"""Observation-level random effects, integrated out of the likelihood.

    p(y_i | f_i) = ∫ exp(ℓ°_i(f_i + d_i w)) N(w; 0, 1) dw

is one integral per element, where ℓ°_i(η_i) is the log density of y_i given its predictor η_i, and
d_i the standard deviation of its effect. A Gauss–Hermite rule computes the integral, centered at
the mode of the integrand and scaled by its curvature there (Liu and Pierce 1994, *A note on
Gauss–Hermite quadrature*, Biometrika 81). This removes n variables, and the noise that they would
add to an importance sampling estimate.

If an effect is large, the integrand is skewed, and the curvature at its mode does not determine its
width. In that case the trapezoidal rule covers the integrand from end to end, and its step is
halved until the integral converges. This needs a log-concave ℓ°_i.

The errors below are absolute errors of ℓ_i = log p(y_i | f_i), each the largest one for counts of 0
to 500 whose f_i is within four standard deviations of the value that the count suggests.
"""

from __future__ import annotations

import math

from collections.abc import Callable
from typing import NamedTuple

import numba
import numpy as np

from pymc_lgm.approximations.quadrature import normal_rule
from pymc_lgm.compile.loops.elementary import exp
from pymc_lgm.linalg import Array

__all__ = ["NODES", "ObservationEffects"]

NODES = 16
"""Nodes of the Gauss–Hermite rule. Its error is 2e-7 for effects with standard deviation 1."""

FEWER = ((0.1, 6), (0.3, 8), (0.45, 10), (0.7, 12))
"""Pairs (largest standard deviation of the effects, nodes that suffice for an error of 2e-7)."""

LARGE = 1.0
"""Standard deviation of an effect above which the trapezoidal rule is used. The error of the
Gauss–Hermite rule would be 5e-3 with standard deviation 4, for counts of 0."""

DROP = 18.0
"""The trapezoidal rule covers the integrand until it is e^-18 = 1.5e-8 of its maximum. Beyond, the
log-concave integrand decreases at least as fast as N(0, 1) does there, so the tails are negligible:
they change ℓ_i by 1e-9."""

END_STEPS = 6
"""Number of steps of the search for the ends. After any number of steps the bounds lie beyond the
true ends, and more steps bring them closer, which saves nodes. The interval is up to 1.4 times as
long as necessary after 2 steps, 1.1 times after 4, and 1.01 times after 6."""

FIRST_INTERVALS = 16
"""Number of intervals of the first trapezoidal rule."""

HALVINGS = 9
"""Largest number of times that the intervals are halved, to 8192 of them. It is enough for huge
effects, too: with a standard deviation of 1000, none of 400 counts of 0 needs more than 4096. The
log density of all 400 then has an error of 0.001, and of 0.006 with a standard deviation of 300."""

HALVINGS_OF_SITES = 5
"""Largest number of halvings in `ObservationEffects.terms`, which needs memory for all nodes. Only
the search for q, and Laplace's approximation, depend on it."""

TOLERANCE = 1e-4
"""The halvings stop when the log integral changes by less than this. The remaining error is at most
3e-6 for effects with standard deviation 4, 3e-5 with 6, and 1e-3 with 30."""

MODE_STEPS = 60
"""Largest number of steps to a mode. Five suffice for effects with standard deviation 1, 15 with 6.
With 30, a search from an f that is four standard deviations away takes all 60."""

LONGEST_STEP = 2.0
"""Longest of these steps, in the linear predictor: a longer one may lead to where exp overflows."""

CLOSE = 0.1
"""A step of fewer standard deviations is the last. Newton's method converges quadratically, so the
next step would have the length of about its square. A rule need not be centered any better."""

DIFFERENCE = 1e-2
"""Distance, in the linear predictor, of the differences that replace derivatives which are 0/0. A
second difference has a relative error of about 1e-5, and of 2e-10 from rounding if ℓ° is 100."""

STARTS = np.arange(-12.0, 12.25, 0.25)
"""Values of w. A search begins at the best of them if the density is not finite at 0. N(0, 1) is
e^-72 of its maximum at 12."""

BLOCK = 16000
"""Array elements that are processed at a time. Larger arrays take new pages of memory at every
call. By hand, 64 rows of 200 counts take three times as long in one piece, and twice as long in
blocks of 1000."""

TOGETHER = 64
"""Elements that one pass over the nodes handles, so that they stay in the processor's cache. By
hand, this takes 0.7 of the time of a pass over all elements with 128 nodes, and the same time with
16."""


def _rule(nodes: int) -> tuple[Array, Array]:
    """Nodes, and logarithms of their weights.

    With w = center + s x, N(w; 0, 1) dw = s exp(x²/2 − w²/2) N(x; 0, 1) dx.
    """
    x, weights = normal_rule(nodes)
    return x, np.log(weights) + 0.5 * x**2


X, LOG_WEIGHTS = _rule(NODES)
RULES = [(largest, *_rule(nodes)) for largest, nodes in (*FEWER, (np.inf, NODES))]

Derivatives = tuple[Array, Array, Array, Array]
"""ℓ°_i and its first three derivatives, each of shape (N, n)."""


class ObservationEffects(NamedTuple):
    """The likelihood of f with effects w ~ N(0, I), one per element, integrated out.

    Attributes
    ----------
    value : callable
        ℓ°_i of each row of η = f + d w, shape (N, n) -> (N, n).
    raw_derivatives : callable
        ℓ°_i of each row, and its first three derivatives. Some of these may be NaN.
    """

    value: Callable[[Array], Array]
    raw_derivatives: Callable[[Array], Derivatives]

    def derivatives(self, rows: Array) -> Derivatives:
        """ℓ°_i of each row, and its first three derivatives, finite wherever ℓ°_i is.

        A derivative may be 0/0 where the density is not, as for log Φ(η) at 9 as PyTensor computes
        it, or for a censored observation. There, differences of ℓ° replace the first and the second
        derivative, and 0 replaces the third.
        """
        value, slope, curvature, third = self.raw_derivatives(rows)
        with np.errstate(invalid="ignore", divide="ignore"):
            if all(np.isfinite(each.sum()) for each in (slope, curvature, third)):
                return value, slope, curvature, third
            above, below = self.value(rows + DIFFERENCE), self.value(rows - DIFFERENCE)
            second = (above - 2.0 * value + below) / DIFFERENCE**2
            is_known = np.isfinite([above, below])
            above, below = np.where(is_known, [above, below], value)
            first = (above - below) / (DIFFERENCE * is_known.sum(axis=0))
        second = np.where(is_known.all(axis=0), second, 0.0)
        slope = np.where(np.isfinite(slope), slope, first)
        curvature = np.where(np.isfinite(curvature), curvature, second)
        return value, slope, curvature, np.where(np.isfinite(third), third, 0.0)

    def center_and_scale(self, rows: Array, d: Array) -> tuple[Array, Array]:
        """The mode of each w given f and y, and a standard deviation from the curvature there."""
        start = np.zeros_like(rows)
        value, *found = self.derivatives(rows)
        if not np.isfinite(value.sum()):
            start = self._start(rows, d, value)
            _, *found = self.derivatives(rows + d * start)
        w, scale = start.copy(), np.zeros_like(rows)
        for _ in range(MODE_STEPS):
            slope, curvature, third = found
            if not _step_to_modes(w, scale, slope, curvature, third, d, start):
                break
            _, *found = self.derivatives(rows + d * w)
        return w, np.abs(scale)

    def _start(self, rows: Array, d: Array, value: Array) -> Array:
        """The w at which a search for a mode begins: 0, unless ℓ° there is not finite."""
        start, top = np.zeros_like(rows), np.where(np.isfinite(value), np.inf, -np.inf)
        for w in STARTS:
            here = self.value(rows + d * w) - 0.5 * w**2
            start = np.where(here > top, w, start)
            top = np.fmax(top, here)
        return start

    def elements(self, rows: Array, d: Array) -> Array:
        """ℓ_i = log p(y_i | f_i) of each row of f, shape (N, n) -> (N, n).

        It evaluates ℓ° of all elements 8 times for effects with a standard deviation of 0.05, 20
        times with 1, 50 times with 2, and 80 to 150 times with 4 to 10, by hand for 200 counts,
        labels or numbers of successes.
        """
        N, n = rows.shape
        if N > 1 and N * n > BLOCK:
            parts = np.array_split(rows, min(-(-N * n // BLOCK), N))
            return np.concatenate([self.elements(part, d) for part in parts])
        center, scale = self.center_and_scale(rows, d)
        widest = np.abs(d).max()
        if widest > LARGE:
            return self._by_trapezoids(rows, d, *self._ends(rows, d, center, scale))[0]
        x, log_weights = next(rule[1:] for rule in RULES if not widest > rule[0])
        return self._sums(rows, d, center, scale, x, log_weights)

    def terms(self, f: Array, d: Array) -> Derivatives:
        """ℓ_i, and its derivatives in f_i, each of shape (n,).

        With expectations and cumulants over w given f and y, and ℓ° evaluated at f + d w,

            ℓ' = E ℓ°',   ℓ'' = E ℓ°'' + Var ℓ°',   ℓ''' = E ℓ°''' + 3 Cov(ℓ°', ℓ°'') + κ₃(ℓ°').

        These are the derivatives of the sum over the nodes as if the nodes did not depend on f. The
        error of ℓ_i is that of `elements`, and larger only for effects with standard deviations
        above 30, because of `HALVINGS_OF_SITES`.
        """
        rows = f[None]
        center, scale = self.center_and_scale(rows, d)
        x, log_weights = X, LOG_WEIGHTS
        if np.abs(d).max() > LARGE:
            center, scale = self._ends(rows, d, center, scale)
            intervals = self._by_trapezoids(rows, d, center, scale, HALVINGS_OF_SITES)[1]
            x, log_weights = _trapezoids(intervals)
        return _derivatives(
            *self.derivatives(_at_nodes(rows, d, center, scale, x)),
            *(center[0], scale[0], x, log_weights),
        )

    def _sums(
        self, rows: Array, d: Array, center: Array, scale: Array, x: Array, log_weights: Array
    ) -> Array:
        """Logarithms of the integrals by one rule."""
        N, n = rows.shape
        values = np.empty((x.size, N * n))
        nodes_at_a_time = max(BLOCK // (N * n), 1)
        for k in range(0, x.size, nodes_at_a_time):
            part = slice(k, k + nodes_at_a_time)
            at_nodes = self.value(_at_nodes(rows, d, center, scale, x[part]))
            values[part] = at_nodes.reshape(-1, N * n)
        sums = _log_sums(values, center.ravel(), scale.ravel(), x, log_weights)
        return sums.reshape(N, n)

    def _ends(self, rows: Array, d: Array, center: Array, scale: Array) -> tuple[Array, Array]:
        """The midpoint between the ends of each integrand, and half the distance between them.

        The logarithm of the integrand drops from its mode by a convex function of the distance r. A
        tangent is below a convex function. So where the tangent is `DROP`, the drop is that or
        more, and the integrand has ended. The search is a bisection that uses the tangents, too.
        """
        farthest = math.sqrt(2.0 * DROP)  # the end for N(0, 1), which is the widest integrand
        sides = np.array([-1.0, 1.0])[:, None, None]
        top = self.value(rows + d * center) - 0.5 * center**2
        inside = np.zeros((2, *rows.shape))
        outside = np.full_like(inside, farthest)
        r = np.minimum(farthest * scale, farthest) + inside
        with np.errstate(all="ignore"):
            for _ in range(END_STEPS):
                w = center + sides * r
                at = (rows + d * w).reshape(-1, rows.shape[1])
                value, slope, *_ = (each.reshape(r.shape) for each in self.derivatives(at))
                drop = top - value + 0.5 * w**2
                rise = sides * (w - d * slope)
                is_inside = drop < DROP
                inside = np.where(is_inside, np.maximum(inside, r), inside)
                outside = np.where(is_inside, outside, np.minimum(outside, r))
                tangent = r + (DROP - drop) / rise
                outside = np.where(tangent > inside, np.fmin(outside, tangent), outside)
                r = 0.5 * (inside + outside)
        low, high = center - outside[0], center + outside[1]
        return 0.5 * (low + high), 0.5 * (high - low)

    def _by_trapezoids(
        self, rows: Array, d: Array, center: Array, scale: Array, halvings: int = HALVINGS
    ) -> tuple[Array, int]:
        """Logarithms of the integrals, and the largest number of intervals that one has needed.

        An integral is final once a halving has changed it by less than `TOLERANCE`. So it is a
        function of its own f_i, whether or not others need further halvings.
        """
        intervals = FIRST_INTERVALS
        sums = self._sums(rows, d, center, scale, *_trapezoids(intervals))
        is_open = np.ones(rows.shape, dtype=bool)
        for _ in range(halvings):
            x, log_weights = _trapezoids(intervals)
            between = self._sums(rows, d, center, scale, x[:-1] + 1.0 / intervals, log_weights[:-1])
            finer = np.logaddexp(sums, between) - math.log(2.0)
            with np.errstate(invalid="ignore"):  # -inf - -inf: both integrals are 0
                change = np.abs(finer - sums)
            sums = np.where(is_open, finer, sums)
            is_open &= change > TOLERANCE
            intervals *= 2
            if not is_open.any():
                break
        return sums, intervals


def _trapezoids(intervals: int) -> tuple[Array, Array]:
    """Nodes from −1 to 1, and logarithms of their weights.

    The weights at the ends are not halved, because the integrand is negligible there.
    """
    x = np.linspace(-1.0, 1.0, intervals + 1)
    return x, np.full(x.size, math.log(2.0 / intervals) - 0.5 * math.log(2.0 * math.pi))


@numba.njit(cache=True, error_model="numpy")
def _step_to_modes(
    w: Array, scale: Array, slope: Array, curvature: Array, third: Array, d: Array, start: Array
) -> int:
    """Step towards the modes of ℓ°(f + d w) − w²/2; returns how many have not converged.

    A step is Halley's, which uses the third derivative. If it were more than 5 times as long as
    Newton's, or less than 0.2 times, the third derivative changes too much over its length, and the
    step is Newton's. A step changes the linear predictor by at most `LONGEST_STEP`.

    ``w`` and ``scale`` are overwritten. A scale is positive if its element has converged, and 0 or
    negative before. A converged element no longer moves, so its rule depends on its own f_i alone.
    """
    not_converged = 0
    for r in range(w.shape[0]):
        for i in range(w.shape[1]):
            if scale[r, i] > 0.0:
                continue
            longest = LONGEST_STEP / max(abs(d[i]), 1e-3)  # d may be 0
            gradient = d[i] * slope[r, i] - w[r, i]
            precision = 1.0 + d[i] ** 2 * max(-curvature[r, i], 0.0)
            step = gradient / precision
            newton_over_halley = 1.0 - 0.5 * step * d[i] ** 3 * third[r, i] / precision
            step /= newton_over_halley if 0.2 < newton_over_halley < 5.0 else 1.0
            if np.isnan(step):
                # inf/inf if a rate overflows: take the longest step.
                back = start[r, i] - w[r, i]
                step = longest * np.sign(back if np.isnan(gradient) else gradient)
            w[r, i] += min(max(step, -longest), longest)
            scale[r, i] = 1.0 / np.sqrt(precision)
            if not abs(step) < CLOSE * scale[r, i]:
                scale[r, i] *= -1.0
                not_converged += 1
    return not_converged


@numba.njit(cache=True)
def _at_nodes(rows: Array, d: Array, center: Array, scale: Array, x: Array) -> Array:
    """f + d w at the nodes of each element: N rows per node."""
    N, n = rows.shape
    out = np.empty((x.size * N, n))
    for k in range(x.size):
        for r in range(N):
            for i in range(n):
                out[k * N + r, i] = rows[r, i] + d[i] * (center[r, i] + scale[r, i] * x[k])
    return out


@numba.njit(cache=True, error_model="numpy")
def _log_sums(values: Array, center: Array, scale: Array, x: Array, log_weights: Array) -> Array:
    """Logarithms of m integrals from values ℓ° at Q nodes, shape (Q, m), which are overwritten."""
    sums = np.empty(center.size)
    for begin in range(0, center.size, TOGETHER):
        end = min(begin + TOGETHER, center.size)
        middle, s = center[begin:end], scale[begin:end]
        top, total = np.full(s.size, -np.inf), np.zeros(s.size)
        for k in range(x.size):
            row, log_weight = values[k, begin:end], log_weights[k]
            for i in range(row.size):
                w = middle[i] + s[i] * x[k]
                row[i] = row[i] + log_weight - 0.5 * w**2
                top[i] = max(top[i], row[i])
        for i in range(s.size):
            top[i] = top[i] if np.isfinite(top[i]) else 0.0
        for k in range(x.size):
            row = values[k, begin:end]
            for i in range(row.size):
                total[i] += exp(row[i] - top[i])
        for i in range(s.size):
            sums[begin + i] = top[i] + math.log(total[i] * s[i])
    return sums


@numba.njit(cache=True, error_model="numpy")
def _derivatives(
    values: Array,
    slope: Array,
    curvature: Array,
    third: Array,
    center: Array,
    scale: Array,
    x: Array,
    log_weights: Array,
) -> Derivatives:
    """The sums of `ObservationEffects.terms` over nodes x."""
    n = center.size
    ell, g, h, t = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    for i in range(n):
        w = center[i] + scale[i] * x
        terms = values[:, i] + log_weights - 0.5 * w**2
        top = terms.max()
        weights = np.exp(terms - top)
        total = weights.sum()
        ell[i] = top + np.log(total * scale[i])
        g[i] = h[i] = t[i] = 0.0
        for k in range(x.size):
            if weights[k] > 0.0:  # where it is 0, a slope may be infinite
                g[i] += weights[k] / total * slope[k, i]
        for k in range(x.size):
            if weights[k] > 0.0:
                share, away = weights[k] / total, slope[k, i] - g[i]
                h[i] += share * (curvature[k, i] + away**2)
                t[i] += share * (third[k, i] + 3.0 * away * curvature[k, i] + away**3)
    return ell, g, h, t
