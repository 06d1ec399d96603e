r"""Effects of which each element of f has one of its own: integrated out of the likelihood.

    p(y_i | f_i) = ∫ p(y_i | f_i + d_i w) N(w; 0, 1) dw

is one integral an element, by a Gauss–Hermite rule that is laid where the integrand is (Liu and
Pierce 1994, *A note on Gauss–Hermite quadrature*, Biometrika 81): around its mode, as wide as its
curvature there says. So n variables and the noise of their estimate are gone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numba
import numpy as np

from numpy.polynomial.hermite_e import hermegauss

from pymc_lgm.linalg import Array

__all__ = ["NODES", "OwnEffects"]

NODES = 16
"""Of the rule: good to 1e-6 for counts near their rate with an effect of variance 1."""

STEPS, FARTHEST = 5, 2.0
"""Of Newton's method: how many, and how far one goes in the linear predictor."""

X, _WEIGHTS = hermegauss(NODES)
LOG_WEIGHTS = np.log(_WEIGHTS / _WEIGHTS.sum()) + 0.5 * X**2
"""With w = center + s x, N(w; 0, 1) dw = s exp(x²/2 − w²/2) N(x; 0, 1) dx."""

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
        w = np.zeros_like(rows)
        for _ in range(STEPS):
            _, slope, bend, _ = self.derivatives(rows + d * w)
            _newton(w, slope, bend, d)
        bend = self.derivatives(rows + d * w)[2]
        return w, 1.0 / np.sqrt(1.0 + d**2 * np.maximum(-bend, 0.0))

    def elements(self, rows: Array, d: Array) -> Array:
        """ℓ_i = log p(y_i | f_i) of each row of f, shape (N, n) -> (N, n).

        23 evaluations of the likelihood with effects.
        """
        center, scale = self.laid(rows, d)
        return _integral(self.value(_at_nodes(rows, d, center, scale)), center, scale)

    def terms(self, f: Array, d: Array) -> Derivatives:
        """ℓ_i, and its derivatives in f_i, each of shape (n,).

        With E and the cumulants those of the rule's nodes given y, and ℓ° of f + d w,

            ℓ' = E ℓ°',   ℓ'' = E ℓ°'' + Var ℓ°',   ℓ''' = E ℓ°''' + 3 Cov(ℓ°', ℓ°'') + κ₃(ℓ°').

        The rule is not moved with f: its error is that of `elements`.
        """
        rows = f[None]
        center, scale = self.laid(rows, d)
        return _derivatives(
            *self.derivatives(_at_nodes(rows, d, center, scale)), center[0], scale[0]
        )


@numba.njit(cache=True, error_model="numpy")
def _newton(w: Array, slope: Array, bend: Array, d: Array) -> None:
    """A step to the mode of ℓ°(f + d w) − w²/2, not too long."""
    for r in range(w.shape[0]):
        for i in range(w.shape[1]):
            longest = FARTHEST / max(abs(d[i]), 1e-3)
            up = d[i] * slope[r, i] - w[r, i]
            step = up / (1.0 + d[i] ** 2 * max(-bend[r, i], 0.0))
            if np.isnan(step):
                # inf/inf where a rate overflows: as far as a step may go.
                step = longest * np.sign(-w[r, i] if np.isnan(up) else up)
            w[r, i] += min(max(step, -longest), longest)


@numba.njit(cache=True, error_model="numpy")
def _at_nodes(rows: Array, d: Array, center: Array, scale: Array) -> Array:
    """f + d w at the nodes of each element: N rows for each node."""
    N, n = rows.shape
    out = np.empty((NODES * N, n))
    for k in range(NODES):
        for r in range(N):
            for i in range(n):
                out[k * N + r, i] = rows[r, i] + d[i] * (center[r, i] + scale[r, i] * X[k])
    return out


@numba.njit(cache=True, error_model="numpy")
def _log_terms(values: Array, center: float, scale: float) -> float:
    """Of one element, in place: the integrand in units of its largest, whose logarithm returns."""
    top = -np.inf
    for k in range(NODES):
        values[k] += LOG_WEIGHTS[k] - 0.5 * (center + scale * X[k]) ** 2
        top = max(top, values[k])
    for k in range(NODES):
        values[k] = np.exp(values[k] - top)
    return top


@numba.njit(cache=True, error_model="numpy")
def _integral(values: Array, center: Array, scale: Array) -> Array:
    N, n = center.shape
    out, at = np.empty((N, n)), np.empty(NODES)
    for r in range(N):
        for i in range(n):
            for k in range(NODES):
                at[k] = values[k * N + r, i]
            top = _log_terms(at, center[r, i], scale[r, i])
            out[r, i] = top + np.log(at.sum() * scale[r, i]) if top > -np.inf else top
    return out


@numba.njit(cache=True, error_model="numpy")
def _derivatives(
    values: Array, slope: Array, bend: Array, third: Array, center: Array, scale: Array
) -> Derivatives:
    n = center.size
    ell, g, h, t = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    at = np.empty(NODES)
    for i in range(n):
        at[:] = values[:, i]
        top = _log_terms(at, center[i], scale[i])
        total = at.sum()
        ell[i] = top + np.log(total * scale[i]) if top > -np.inf else top
        g[i] = h[i] = t[i] = 0.0
        for k in range(NODES):
            if at[k] > 0.0:  # elsewhere a slope may be infinite
                g[i] += at[k] / total * slope[k, i]
        for k in range(NODES):
            if at[k] > 0.0:
                share, apart = at[k] / total, slope[k, i] - g[i]
                h[i] += share * (bend[k, i] + apart**2)
                t[i] += share * (third[k, i] + 3.0 * apart * bend[k, i] + apart**3)
    return ell, g, h, t
