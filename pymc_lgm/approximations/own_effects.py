r"""Effects of which each element of f has one of its own: integrated out of the likelihood.

    p(y_i | f_i) = ∫ p(y_i | f_i + d_i w) N(w; 0, 1) dw

is one integral an element, by a Gauss–Hermite rule that is laid where the integrand is (Liu and
Pierce 1994, *A note on Gauss–Hermite quadrature*, Biometrika 81): around its mode, as wide as its
curvature there says. So n variables and the noise of their estimate are gone.

Where an effect is large the integrand is steep on one side and long on the other, and no curvature
says how long. There it is the trapezoidal rule from one end of the integrand to the other, whose
step is halved until that changes nothing.

One file of more than 300 lines: both rules share the mode, the nodes, and the sums over them.
"""

from __future__ import annotations

import math

from collections.abc import Callable
from typing import NamedTuple

import numba
import numpy as np

from numpy.polynomial.hermite_e import hermegauss

from pymc_lgm.elementary import exp
from pymc_lgm.linalg import Array

__all__ = ["NODES", "OwnEffects"]

NODES = 16
"""Of the rule: good to 1e-6 for counts near their rate with an effect of variance 1."""

FEWER = ((0.1, 6), (0.3, 8), (0.45, 10), (0.7, 12))
"""Of the rule where no effect has a larger standard deviation than this: as good."""

LARGE = 1.0
"""The trapezoidal rule takes over where an effect has a larger standard deviation than this: of
Poisson zeros the rule of 16 nodes errs by 2e-7 at 1, and by 5e-3 at 4."""

DROP = 18.0
"""Where the integrand ends: e^-18 of its top. It is log-concave, and falls at least as N(0, 1)."""

ENDS = 6
"""Steps to the ends. Each keeps outside of them, so more would only spare nodes."""

HALVINGS, FIRST = 5, 16
"""Of the step of the trapezoidal rule, which begins with so many intervals: 512 at last."""

CHANGE = 1e-4
"""Of a log integral by the last halving. What is left is 3e-5 at most at 6, and 3e-6 at 4."""

STEPS, FARTHEST, CLOSE = 60, 2.0, 0.1
"""Of the steps to a mode: how many, how far one goes in the linear predictor, and the last, which
is shorter than this share of a standard deviation: the next would be about its square. Six are
enough for effects of variance 1; of variance 36, a mode is 20 steps away."""

BLOCK = 16000
"""Numbers at a time: arrays of more are new pages of memory each time, which cost more than exp."""

TOGETHER = 64
"""Elements of which all nodes are looked at in turn."""


def _rule(nodes: int) -> tuple[Array, Array]:
    """Nodes, and logarithms of weights.

    With w = center + s x, N(w; 0, 1) dw = s exp(x²/2 − w²/2) N(x; 0, 1) dx.
    """
    x, weights = hermegauss(nodes)
    return x, np.log(weights / weights.sum()) + 0.5 * x**2


X, LOG_WEIGHTS = _rule(NODES)
RULES = [(largest, *_rule(nodes)) for largest, nodes in (*FEWER, (np.inf, NODES))]

Derivatives = tuple[Array, Array, Array, Array]
"""ℓ°_i and its first three derivatives, each of shape (N, n)."""


class OwnEffects(NamedTuple):
    """The likelihood of f with effects w ~ N(0, I) of its elements integrated out.

    Attributes
    ----------
    value : callable
        ℓ°_i of each row of f + d w, shape (N, n) -> (N, n).
    derivatives : callable
        The same, and its first three derivatives.
    """

    value: Callable[[Array], Array]
    derivatives: Callable[[Array], Derivatives]

    def laid(self, rows: Array, d: Array) -> tuple[Array, Array]:
        """Where the rule is laid: the mode of each w given f and y, and its standard deviation.

        By the curvature there. What is not log-concave is no reason for a wider rule than the
        prior's.
        """
        w, scale = np.zeros_like(rows), np.zeros_like(rows)
        for _ in range(STEPS):
            _, slope, bend, third = self.derivatives(rows + d * w)
            if not _approach(w, scale, slope, bend, third, d):
                break
        return w, np.abs(scale)

    def elements(self, rows: Array, d: Array) -> Array:
        """ℓ_i = log p(y_i | f_i) of each row of f, shape (N, n) -> (N, n).

        9 to 22 evaluations of the likelihood with effects: small ones need fewer nodes, and those
        of a standard deviation above 1 need 50 to 280.
        """
        N, n = rows.shape
        if N > 1 and N * n > BLOCK:
            parts = np.array_split(rows, min(-(-N * n // BLOCK), N))
            return np.concatenate([self.elements(part, d) for part in parts])
        center, scale = self.laid(rows, d)
        widest = np.abs(d).max()
        if widest > LARGE:
            return self._by_trapezoids(rows, d, *self._ends(rows, d, center, scale))[0]
        x, log_weights = next(rule[1:] for rule in RULES if not widest > rule[0])
        return self._sums(rows, d, center, scale, x, log_weights)

    def terms(self, f: Array, d: Array) -> Derivatives:
        """ℓ_i, and its derivatives in f_i, each of shape (n,).

        With E and the cumulants those of the rule's nodes given y, and ℓ° of f + d w,

            ℓ' = E ℓ°',   ℓ'' = E ℓ°'' + Var ℓ°',   ℓ''' = E ℓ°''' + 3 Cov(ℓ°', ℓ°'') + κ₃(ℓ°').

        The rule is not moved with f: its error is that of `elements`.
        """
        rows = f[None]
        center, scale = self.laid(rows, d)
        x, log_weights = X, LOG_WEIGHTS
        if np.abs(d).max() > LARGE:
            center, scale = self._ends(rows, d, center, scale)
            x, log_weights = _trapezoids(self._by_trapezoids(rows, d, center, scale)[1])
        return _derivatives(
            *self.derivatives(_at_nodes(rows, d, center, scale, x)),
            *(center[0], scale[0], x, log_weights),
        )

    def _sums(
        self, rows: Array, d: Array, center: Array, scale: Array, x: Array, log_weights: Array
    ) -> Array:
        """Logarithms of the integrals by one rule."""
        N, n = rows.shape
        values, many = np.empty((x.size, N * n)), max(BLOCK // (N * n), 1)
        for k in range(0, x.size, many):
            some = slice(k, k + many)
            at_nodes = self.value(_at_nodes(rows, d, center, scale, x[some]))
            values[some] = at_nodes.reshape(-1, N * n)
        sums = _log_sums(values, center.ravel(), scale.ravel(), x, log_weights)
        return sums.reshape(N, n)

    def _ends(self, rows: Array, d: Array, center: Array, scale: Array) -> tuple[Array, Array]:
        """The middle between the ends of each integrand, and half of what is between them.

        How far the logarithm has dropped from the mode is convex in the distance r, so that the
        tangent anywhere leads to where it has dropped by no less than `DROP`.
        """
        farthest = math.sqrt(2.0 * DROP)
        sides = np.array([-1.0, 1.0])[:, None, None]
        top = self.value(rows + d * center) - 0.5 * center**2
        inside = np.zeros((2, *rows.shape))
        outside = np.full_like(inside, farthest)
        r = np.minimum(farthest * scale, farthest) + inside
        with np.errstate(all="ignore"):
            for _ in range(ENDS):
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
        self, rows: Array, d: Array, center: Array, scale: Array
    ) -> tuple[Array, int]:
        """Logarithms of the integrals, and how many intervals the last of them has needed.

        An integral is left as it is once a halving has changed it by less than `CHANGE`, so it
        depends on nothing but its own f_i.
        """
        intervals = FIRST
        sums = self._sums(rows, d, center, scale, *_trapezoids(intervals))
        going = np.ones(rows.shape, dtype=bool)
        for _ in range(HALVINGS):
            x, log_weights = _trapezoids(intervals)
            between = self._sums(rows, d, center, scale, x[:-1] + 1.0 / intervals, log_weights[:-1])
            finer = np.logaddexp(sums, between) - math.log(2.0)
            with np.errstate(invalid="ignore"):  # of two integrals that are 0, which is no change
                change = np.abs(finer - sums)
            sums = np.where(going, finer, sums)
            going &= change > CHANGE
            intervals *= 2
            if not going.any():
                break
        return sums, intervals


def _trapezoids(intervals: int) -> tuple[Array, Array]:
    """Nodes from −1 to 1, and logarithms of weights, also at the ends."""
    x = np.linspace(-1.0, 1.0, intervals + 1)
    return x, np.full(x.size, math.log(2.0 / intervals) - 0.5 * math.log(2.0 * math.pi))


@numba.njit(cache=True, error_model="numpy")
def _approach(w: Array, scale: Array, slope: Array, bend: Array, third: Array, d: Array) -> int:
    """A step to the mode of ℓ°(f + d w) − w²/2, not too long; how many have not arrived.

    It is Halley's, which knows the third derivative, too, where that leads up, and else Newton's.
    A scale is positive where one has arrived, and negative where not. So the rule of an element
    depends on nothing but its own f_i.
    """
    left = 0
    for r in range(w.shape[0]):
        for i in range(w.shape[1]):
            if scale[r, i] > 0.0:
                continue
            longest = FARTHEST / max(abs(d[i]), 1e-3)
            up, precision = d[i] * slope[r, i] - w[r, i], 1.0 + d[i] ** 2 * max(-bend[r, i], 0.0)
            step = up / precision
            further = 1.0 - 0.5 * step * d[i] ** 3 * third[r, i] / precision
            step /= further if 0.2 < further < 5.0 else 1.0
            if np.isnan(step):
                # inf/inf where a rate overflows: as far as a step may go.
                step = longest * np.sign(-w[r, i] if np.isnan(up) else up)
            w[r, i] += min(max(step, -longest), longest)
            scale[r, i] = 1.0 / np.sqrt(precision)
            if not abs(step) < CLOSE * scale[r, i]:
                scale[r, i] *= -1.0
                left += 1
    return left


@numba.njit(cache=True)
def _at_nodes(rows: Array, d: Array, center: Array, scale: Array, x: Array) -> Array:
    """f + d w at nodes of each element: N rows for each node."""
    N, n = rows.shape
    out = np.empty((x.size * N, n))
    for k in range(x.size):
        for r in range(N):
            for i in range(n):
                out[k * N + r, i] = rows[r, i] + d[i] * (center[r, i] + scale[r, i] * x[k])
    return out


@numba.njit(cache=True, error_model="numpy")
def _log_sums(values: Array, center: Array, scale: Array, x: Array, log_weights: Array) -> Array:
    """Logarithms of the integrals, of values at nodes, (Q, m), which are lost.

    As many elements at a time as a processor has at hand.
    """
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
    bend: Array,
    third: Array,
    center: Array,
    scale: Array,
    x: Array,
    log_weights: Array,
) -> Derivatives:
    """Of `OwnEffects.terms`, by nodes x."""
    n = center.size
    ell, g, h, t = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    for i in range(n):
        w = center[i] + scale[i] * x
        terms = values[:, i] + log_weights - 0.5 * w**2
        top = terms.max()
        at = np.exp(terms - top)
        total = at.sum()
        ell[i] = top + np.log(total * scale[i])
        g[i] = h[i] = t[i] = 0.0
        for k in range(x.size):
            if at[k] > 0.0:  # elsewhere a slope may be infinite
                g[i] += at[k] / total * slope[k, i]
        for k in range(x.size):
            if at[k] > 0.0:
                share, apart = at[k] / total, slope[k, i] - g[i]
                h[i] += share * (bend[k, i] + apart**2)
                t[i] += share * (third[k, i] + 3.0 * apart * bend[k, i] + apart**3)
    return ell, g, h, t
