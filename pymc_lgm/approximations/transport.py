"""Draws of q bent towards the posterior, all components together.

A Gaussian q misses the third derivatives of ℓ. A `Copula` bends each component by itself, which in
a long series of elements that hang together costs as much as it gains. Here the draw x ~ N(0, Σ) is
followed by what the other elements make of each bend:

    f = f̂ + x + Σ h(x),   h_i(x) = W_i [(e^{a_i x_i} − 1)/a_i − x_i] − c_i,   a = E_q ℓ'''/(3 W),

with c_i so that E h_i = 0. The bend cancels every cubic term of the log weight to first order. It
is a bijection: with A = Σ⁻¹ its derivative is Σ (A + diag h'), and A + diag h' = K⁻¹ + W e^{a x} is
positive definite. So a draw takes a factorization, which is next to nothing for a banded precision.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np

from pymc_lgm.approximations.gaussian import GaussianApproximation, SiteLikelihood
from pymc_lgm.elementary import expm1
from pymc_lgm.linalg import Array

__all__ = ["Transport", "transport"]

AT, SHARES = np.sqrt([0.0, 3.0, 3.0]) * [1, 1, -1], np.array([4.0, 1.0, 1.0]) / 6.0
"""Nodes and weights that integrate polynomials of degree five against a standard normal."""

STRONGEST = 1.0
"""Largest a_i s_i: what bends further within a standard deviation is no cubic."""

LEAST = 1e-5
"""Least |a_i s_i|: with less (e^{a x} − 1)/a − x is lost in rounding."""

STEPS, SHORTEST, CLOSE = 100, 1e-6, 1e-7
"""Of Newton's method: how many, the least share of one, and in standard deviations the last."""

RISE = 2.0
"""How much an exponent a_i x_i, or what of it is above zero, may grow in a step."""


@dataclass(frozen=True, eq=False)
class Transport:
    """A bijection of draws x of q to f, as a `pymc_lgm.approximations.copula.Copula` is one.

    Attributes
    ----------
    q : GaussianApproximation
    a : ndarray, shape (n,)
        How far each element bends, per unit of f.
    middle : ndarray, shape (n,)
        c/W = (e^{a² Σ_ii / 2} − 1)/a.
    """

    q: GaussianApproximation
    a: Array
    middle: Array

    def forward(self, x: Array) -> tuple[Array, Array]:
        """f of columns x, shape (n, N), and log |∂x/∂f| of each column, shape (N,)."""
        h, growth = self._bend((x - self.q.center[:, None]).T)
        bent = x + self.q.posterior.covariance_times(h.T)
        return bent, np.array([self._log_slope(each) for each in growth])

    def backward(self, f: Array) -> Array:
        """x of columns f, each by Newton's method on a convex function."""
        return np.stack([self._straight(column) for column in f.T], axis=1)

    def _log_slope(self, growth: Array) -> float:
        """log|A| − log|A + diag h'|; both have log|K| in them."""
        bent = self.q.prior.condition(self.q.precision + growth)
        if bent is None:
            return np.nan
        return self.q.posterior.log_determinant - bent.log_determinant

    def _bend(self, d: Array) -> tuple[Array, Array]:
        """h and h' = W (e^{a x} − 1) of rows x = d."""
        return _bent(np.ascontiguousarray(d), self.a, self.q.precision, self.middle)

    def _straight(self, f: Array) -> Array:
        """x with x + Σ h(x) = f: the root of A (x − d) + h, d = f − f̂, which is a gradient."""
        q = self.q
        d = f - q.center

        def slope(x: Array) -> tuple[Array, Array]:
            h, growth = self._bend(x[None])
            return q.prior.inverse_times(x - d) + q.precision * (x - d) + h[0], growth[0]

        # Where an exponent is large f is an exponential of x, and x a logarithm of f.
        exponents = self.a * d
        if q.prior.rank < q.prior.n:  # x is in the range of K, as d is
            x = d * min(1.0, RISE / max(exponents.max(), RISE))
        else:
            x = np.where(exponents > RISE, RISE / self.a, d)
        left, growth = slope(x)
        for _ in range(STEPS):
            bent = q.prior.condition(q.precision + growth)
            if bent is None:
                break
            step = bent.covariance_times(left)
            # An exponential that is next to nothing may become one that is not.
            along, rise = abs(float(step @ left)), -self.a * step
            room = RISE + np.maximum(-self.a * x, 0.0)
            share = 1.0 / max(1.0, float((rise / room).max()))
            # The slope along the step, of a convex function, must shrink.
            new, growth = slope(x - share * step)
            while not abs(float(step @ new)) <= along and share > SHORTEST:
                share *= 0.5
                new, growth = slope(x - share * step)
            x, left = x - share * step, new
            # What is left is the square of the step.
            if share == 1.0 and bent.square(step) < CLOSE**2:
                break
        straight: Array = q.center + x
        return straight


@numba.njit(cache=True, error_model="numpy")
def _bent(d: Array, a: Array, W: Array, middle: Array) -> tuple[Array, Array]:
    h, slope = np.empty_like(d), np.empty_like(d)
    for k in range(len(d)):
        x, bend, growth = d[k], h[k], slope[k]
        for i in range(a.size):
            growth[i] = expm1(a[i] * x[i])
        for i in range(a.size):
            bend[i] = growth[i] / a[i] - x[i] - middle[i]
        for i in range(a.size):
            bend[i] *= W[i]
            growth[i] *= W[i]
    return h, slope


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def transport(q: GaussianApproximation, likelihood: SiteLikelihood) -> Transport | None:
    """Find how far the elements bend: three evaluations of W and the third derivative.

    Parameters
    ----------
    q : GaussianApproximation
        With a diagonal W.
    likelihood : callable
        f -> (ℓ, g, W, third derivative).

    Returns
    -------
    Transport or None
        A function of theta alone, as q is. ``None`` where nothing bends, or it is no number.
    """
    variances = q.posterior.variances
    scale = np.sqrt(variances)
    terms = [likelihood(q.center + each * scale) for each in AT]
    third = SHARES @ np.array([each[3] for each in terms])
    curvature = SHARES @ np.array([each[2] for each in terms])
    a = third / (3.0 * np.where(curvature > 0.0, curvature, np.inf))
    if not np.isfinite(a).all() or not (np.abs(a) * scale > LEAST).any():
        return None
    size = np.clip(np.abs(a) * scale, LEAST, STRONGEST)
    a = np.copysign(size, a) / scale
    return Transport(q, a, np.expm1(0.5 * size**2) / a)
