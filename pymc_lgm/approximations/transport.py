"""A transport map that corrects the skewness of q, all components jointly.

A Gaussian q ignores the third derivatives of ℓ. A `Copula` corrects each component alone. In a long
series of dependent elements the gain is lost, because the prior penalizes such moves. The map here
propagates the correction of each element to the others through Σ. A draw x ~ N(0, Σ) goes to

    f = f̂ + x + Σ h(x),   h_i(x) = W_i [(e^{a_i x_i} − 1)/a_i − x_i] − c_i,   a = E_q ℓ'''/(3 W),

where c_i is such that E h_i = 0. The map cancels every cubic term of the log weight to first order.
It is a bijection: with A = Σ⁻¹ its derivative is Σ (A + diag h'), and A + diag h' = K⁻¹ + W e^{a x}
is positive definite. A draw takes one factorization, which is cheap for a banded precision.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np

from pymc_lgm.approximations.gaussian import GaussianApproximation, SiteLikelihood
from pymc_lgm.compile.loops.elementary import expm1
from pymc_lgm.linalg import Array

__all__ = ["Transport", "transport"]

AT = np.sqrt(3.0) * np.array([0.0, 1.0, -1.0])
SHARES = np.array([4.0, 1.0, 1.0]) / 6.0
"""Nodes and weights of Gauss and Hermite, exact for polynomials of degree five under N(0, 1)."""

STRONGEST = 1.0
"""Largest |a_i s_i|. With a larger one ℓ is not close to a cubic within a standard deviation.

A safeguard: measured on series of 500 counts and of 500 returns, the largest was 0.52.
"""

LEAST = 1e-5
"""Smallest |a_i s_i|. With a smaller one (e^{a x} − 1)/a − x is lost in rounding."""

STEPS = 100
"""Most steps of Newton's method. In the same series 4 to 6 sufficed for draws at 3 sd."""

SHORTEST = 1e-6
"""Smallest share of a step that is tried: 20 halvings, which only rounding errors ask for."""

NEAR = 0.01
"""A step of fewer standard deviations keeps its factor for the next one.

Each further step is then shorter by about this factor, and costs no factorization.
"""

CLOSE = 1e-7
"""A step of fewer standard deviations is the last. The error left is at most `NEAR` times it."""

RISE = 2.0
"""Largest growth of the positive part of an exponent a_i x_i in one step.

Newton's method overshoots an exponential. With this bound the curvature changes by less than a
factor of e² per step.
"""


@dataclass(frozen=True, eq=False)
class Transport:
    """A bijection from draws x of q to f, with the interface of `Copula`.

    Attributes
    ----------
    q : GaussianApproximation
    a : ndarray, shape (n,)
        Strength of the skewness correction of each element, per unit of f.
    middle : ndarray, shape (n,)
        c/W = (e^{a² Σ_ii / 2} − 1)/a.
    """

    q: GaussianApproximation
    a: Array
    middle: Array

    def forward(self, x: Array) -> tuple[Array, Array]:
        """f of columns x, shape (n, N), and log |∂x/∂f| of each column, shape (N,)."""
        f, log_slopes, _ = self.weighed(x)
        return f, log_slopes

    def weighed(self, x: Array) -> tuple[Array, Array, Array]:
        """`forward`, and the change of −log N(f; m, K) from x to f, each (N,).

        With g = f − x = Σ h it is gᵀ K⁻¹ (x − m + ½ g), and K⁻¹ g = h − W g, since Σ⁻¹ = K⁻¹ + W.
        So no root of K is needed. If K is singular, K⁻¹ g is one of the vectors that K maps to g.
        """
        q = self.q
        deviations = x - q.center[:, None]
        h, growth = self._correction(deviations.T)
        g = q.posterior.covariance_times(h.T)
        middle = x - q.mean[:, None] + 0.5 * g
        squares = np.einsum("ij,ij->j", middle, h.T - q.posterior.precision_times(g))
        return x + g, np.array([self._log_slope(each) for each in growth]), squares

    def backward(self, f: Array) -> Array:
        """x of columns f, each by Newton's method for a convex function."""
        return np.stack([self._backward(column) for column in f.T], axis=1)

    def _log_slope(self, growth: Array) -> float:
        """log|A| − log|A + diag h'|, in which log|K| cancels."""
        updated = self.q.prior.condition(self.q.precision + growth)
        if updated is None:
            return np.nan
        return self.q.posterior.log_determinant - updated.log_determinant

    def _correction(self, d: Array) -> tuple[Array, Array]:
        """h and h' = W (e^{a x} − 1) at rows x = d."""
        return _corrections(np.ascontiguousarray(d), self.a, self.q.precision, self.middle)

    def _backward(self, f: Array) -> Array:
        """Solve x + Σ h(x) = f, the root of the gradient A (x − d) + h with d = f − f̂."""
        q = self.q
        d = f - q.center

        def slope(x: Array) -> tuple[Array, Array]:
            h, growth = self._correction(x[None])
            return q.prior.inverse_times(x - d) + q.precision * (x - d) + h[0], growth[0]

        # If an exponent is large, f is an exponential of x, so x is a logarithm of f.
        exponents = self.a * d
        if q.prior.rank < q.prior.n:  # x is in the range of K, as d is
            x = d * min(1.0, RISE / max(exponents.max(), RISE))
        else:
            x = np.where(exponents > RISE, RISE / self.a, d)
        left, growth = slope(x)
        updated = None
        for _ in range(STEPS):
            if updated is None:
                updated = q.prior.condition(q.precision + growth)
            if updated is None:
                break
            step = updated.covariance_times(left)
            # An exponential that is nearly 0 may grow by more than `RISE`.
            along, rise = abs(float(step @ left)), -self.a * step
            room = RISE + np.maximum(-self.a * x, 0.0)
            share = 1.0 / max(1.0, float((rise / room).max()))
            # The function is convex, so its slope along the step must shrink.
            new, growth = slope(x - share * step)
            while not abs(float(step @ new)) <= along and share > SHORTEST:
                share *= 0.5
                new, growth = slope(x - share * step)
            x, left = x - share * step, new
            square = updated.inv_quad_form(step)
            if share == 1.0 and square < CLOSE**2:
                break
            if share < 1.0 or not square < NEAR**2:
                updated = None
        result: Array = q.center + x
        return result


@numba.njit(cache=True, error_model="numpy")
def _corrections(d: Array, a: Array, W: Array, middle: Array) -> tuple[Array, Array]:
    h, slope = np.empty_like(d), np.empty_like(d)
    for k in range(len(d)):
        x, h_k, growth = d[k], h[k], slope[k]
        for i in range(a.size):
            growth[i] = expm1(a[i] * x[i])
        for i in range(a.size):
            h_k[i] = growth[i] / a[i] - x[i] - middle[i]
        for i in range(a.size):
            h_k[i] *= W[i]
            growth[i] *= W[i]
    return h, slope


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def transport(q: GaussianApproximation, likelihood: SiteLikelihood) -> Transport | None:
    """Fit the transport map by three evaluations of W and the third derivative.

    Any a and c make a bijection. If q has margins, their variances Σ_ii are used, and P⁻¹ is not
    computed: they are predicted, or those of a search.

    Parameters
    ----------
    q : GaussianApproximation
        With a diagonal W.
    likelihood : callable
        f -> (ℓ, g, W, third derivative).

    Returns
    -------
    Transport or None
        A function of theta alone, as q is. ``None`` if no element has a skewness to correct, or if
        a is not finite.
    """
    variances = q.posterior.variances if q.margins is None else q.margins.variances
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
