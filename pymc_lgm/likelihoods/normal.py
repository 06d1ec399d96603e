r"""The standard normal distribution function in log space, with three accurate derivatives.

With :math:`\phi` and :math:`\Phi` the standard normal density and distribution function,

.. math::

   (\log \Phi)' = r, \qquad r' = -r h, \qquad h' = v, \qquad v' = r (h^2 - v),

where :math:`r(z) = \phi(z) / \Phi(z)` is the inverse Mills ratio, and :math:`h = z + r` and
:math:`v = 1 - r h` are the mean and the variance of the excess :math:`z - Z` of a standard normal
:math:`Z` given :math:`Z < z`. For :math:`z \to -\infty` the differences :math:`z + r`,
:math:`1 - r h` and :math:`h^2 - v` cancel (they are of order :math:`|z|^{-1}, |z|^{-2}` and
:math:`|z|^{-4}`), so below :math:`z = -6` the first two come from Laplace's continued fraction

.. math::

   h(-t) = \cfrac{1}{t + \cfrac{2}{t + \cfrac{3}{t + \cdots}}}

which has no subtraction. The third keeps a relative error of :math:`10^{-16} z^2`.
"""

import math

from typing import override

import pytensor.scalar as ps

from pytensor.scalar.basic import ScalarVariable
from pytensor.tensor.elemwise import Elemwise

from pymc_lgm.compile.graphs.smooth import SmoothFunction

__all__ = ["log_ndtr"]

TAIL = 6.0
"""Below -`TAIL` the continued fraction is used; there the differences still have 11 digits."""

LEVELS = 20
"""Levels of the fraction. h^2 - v, the least accurate, has relative error 6e-13 at -`TAIL`."""


def tail_moments(z: ScalarVariable) -> tuple[ScalarVariable, ScalarVariable]:
    """Return (h, 1 - t h) at t = max(-z, TAIL), both free of cancellation."""
    t = ps.maximum(-z, TAIL)
    u = 1.0 / (t * t)
    # The fraction as one division: t h = a_3 / a_2 with a_j = a_{j+1} + j u a_{j+2}.
    a = [ps.as_scalar(1.0), ps.as_scalar(1.0)]
    for j in range(LEVELS, 1, -1):
        a = [a[0] + j * u * a[1], *a[:2]]
    a2, a3, a4 = a
    return a3 / (a2 * t), 2.0 * u * a4 / a2


def tail_parts(z: ScalarVariable) -> tuple[ScalarVariable, ScalarVariable]:
    """Return t and exp(-z^2 / 2), whose product is Phi(-|z|): t in (0, 1/2] does not underflow."""
    return 0.5 * ps.erfcx(abs(z) * math.sqrt(0.5)), ps.exp(-0.5 * z * z)


class LogNdtr(SmoothFunction):
    """log Phi(z)."""

    @override
    def value(self, z: ScalarVariable) -> ScalarVariable:
        tail, e = tail_parts(z)
        # One logarithm for both signs of z. Below zero, the rounding error of tail - 1 matters only
        # if tail is tiny, and then z^2 / 2 is far larger.
        less = ps.switch(z < 0.0, tail - 1.0, -tail * e)
        return ps.log1p(less) - ps.switch(z < 0.0, 0.5 * z * z, 0.0)

    @override
    def derivative(self, z: ScalarVariable) -> ScalarVariable:
        return inverse_mills(z)


class InverseMills(SmoothFunction):
    """r(z) = phi(z) / Phi(z)."""

    @override
    def value(self, z: ScalarVariable) -> ScalarVariable:
        tail, e = tail_parts(z)
        odds = ps.switch(z < 0.0, 1.0, e) / ps.switch(z < 0.0, tail, 1.0 - tail * e)
        return odds * (1.0 / math.sqrt(2.0 * math.pi))

    @override
    def derivative(self, z: ScalarVariable) -> ScalarVariable:
        return -inverse_mills(z) * excess_mean(z)


class ExcessMean(SmoothFunction):
    """h(z) = z + r(z) = E[z - Z | Z < z]."""

    @override
    def value(self, z: ScalarVariable) -> ScalarVariable:
        mean, _ = tail_moments(z)
        return ps.switch(z < -TAIL, mean, z + inverse_mills(z))

    @override
    def derivative(self, z: ScalarVariable) -> ScalarVariable:
        return excess_variance(z)


class ExcessVariance(SmoothFunction):
    """v(z) = 1 - r(z) h(z) = Var[z - Z | Z < z]."""

    @override
    def value(self, z: ScalarVariable) -> ScalarVariable:
        mean, one_minus_t_mean = tail_moments(z)
        r = inverse_mills(z)
        return ps.switch(z < -TAIL, one_minus_t_mean - mean * mean, 1.0 - r * (z + r))

    @override
    def derivative(self, z: ScalarVariable) -> ScalarVariable:
        mean = excess_mean(z)
        return inverse_mills(z) * (mean * mean - excess_variance(z))


inverse_mills = InverseMills()
excess_mean = ExcessMean()
excess_variance = ExcessVariance()

log_ndtr = Elemwise(LogNdtr())
