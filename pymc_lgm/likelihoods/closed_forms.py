"""E log p(y | f) of a normal f in closed form, if the graph of a distribution shows it.

The closed forms are for a normal y whose mean is a + b f, or whose standard deviation is
e^(a + b f), and for a Poisson y whose rate is e^(a + b f), where a and b do not depend on f. The
operations between f and the parameter must show this form: sums, differences, products with and
quotients by variables that do not depend on f, and one exponential. With any other operation there
is no formula.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import add, mul, sub, truediv
from typing import Any

import pymc as pm
import pytensor.scalar as ps
import pytensor.tensor as pt

from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import NormalRV, PoissonRV

from pymc_lgm.compile.graphs.nodes import function_of, op_of

__all__ = ["closed_form"]

Variable = Any


def closed_form(
    dist: Callable[..., Any], value: Any, mean: Any, variance: Any, params: Sequence[Any]
) -> Variable | None:
    r"""E log p(value | f) for f ~ N(mean, variance); ``None`` if the graph shows no formula.

    With c = b² variance, and a bar for functions of f at its mean,

    .. math::

       y \sim N(a + b f, \sigma^2): \quad & \log \bar p - c / (2 \sigma^2), \\
       y \sim N(\mu, e^{2 (a + b f)}): \quad & \log N(y; \mu, \bar\sigma^2 e^{-2 c}) - c, \\
       y \sim \text{Poisson}(e^{a + b f}): \quad & \log \bar p - \bar\lambda (e^{c / 2} - 1) .

    Parameters
    ----------
    dist : callable
        (f, ``*params``) -> a distribution of y, each element of which depends on its own f_i.
    value, mean, variance : tensor
    params : sequence of tensor
    """
    f = mean.type("f")
    rv = dist(f, *params)
    if not isinstance(op_of(rv), NormalRV | PoissonRV):
        return None
    given = rv.owner.op.dist_params(rv.owner)
    at_mean = graph_replace(given, {f: mean}, strict=False)
    if isinstance(rv.owner.op, PoissonRV):
        b, (rate,) = _slope_of_log(given[0], f), at_mean
        rise = None if b is None else rate * pt.expm1(0.5 * b**2 * variance)
        return None if rise is None else pm.logp(pm.Poisson.dist(rate), value) - rise
    mu, sigma = at_mean
    b, d = _slope(given[0], f), _slope_of_log(given[1], f)
    if b is not None and not _reads(given[1], f):
        return pm.logp(pm.Normal.dist(mu, sigma), value) - 0.5 * variance * (b / sigma) ** 2
    if d is not None and not _reads(given[0], f):
        c = d**2 * variance
        return pm.logp(pm.Normal.dist(mu, sigma * pt.exp(-c)), value) - c
    return None


def _reads(x: Variable, f: Variable) -> bool:
    return f in set(ancestors([x]))


def _slope(x: Variable, f: Variable) -> Variable | None:
    """The b of x = a + b f, with a and b free of f; ``None`` if the graph does not show it."""
    if x is f:
        return 1.0
    if not _reads(x, f):
        return 0.0
    match function_of(x):
        case ps.Add():
            return _joined(add, [_slope(each, f) for each in x.owner.inputs])
        case ps.Sub():
            return _joined(sub, [_slope(each, f) for each in x.owner.inputs])
        case ps.Neg():
            return _joined(mul, [-1.0, _slope(x.owner.inputs[0], f)])
        case ps.Mul():
            with_f = [each for each in x.owner.inputs if _reads(each, f)]
            others = [each for each in x.owner.inputs if not _reads(each, f)]
            return _joined(mul, [_slope(with_f[0], f), *others]) if len(with_f) == 1 else None
        case ps.TrueDiv():
            above, below = x.owner.inputs
            return None if _reads(below, f) else _joined(truediv, [_slope(above, f), below])
    return None


def _slope_of_log(x: Variable, f: Variable) -> Variable | None:
    """The b of x = a e^(b f), with a and b free of f; ``None`` if the graph does not show it."""
    if not _reads(x, f):
        return 0.0
    match function_of(x):
        case ps.Exp():
            return _slope(x.owner.inputs[0], f)
        case ps.Mul():
            return _joined(add, [_slope_of_log(each, f) for each in x.owner.inputs])
        case ps.TrueDiv():
            return _joined(sub, [_slope_of_log(each, f) for each in x.owner.inputs])
    return None


def _joined(operation: Callable[..., Any], terms: Sequence[Variable | None]) -> Variable | None:
    return None if any(term is None for term in terms) else reduce(operation, terms)
