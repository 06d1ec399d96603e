"""PyMC's logarithms of normal probabilities, as functions that state their derivatives.

Censored and truncated normal data and `pymc.OrderedProbit` have them: log Φ(z), log(1 − Φ(z)) and
log(Φ(b) − Φ(a)). PyMC writes each as a choice between formulas. Automatic differentiation of these
is not accurate far in the tails, where the third derivative becomes NaN, and its code takes long to
compile. So they are found in a graph, and replaced by `pymc_lgm.likelihoods.normal.log_ndtr`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt

from pymc.distributions.dist_math import log_diff_normal_cdf, normal_lccdf, normal_lcdf
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors, toposort

from pymc_lgm.compile.graphs.nodes import function_of
from pymc_lgm.compile.graphs.smooth import log1mexp
from pymc_lgm.likelihoods.normal import log_ndtr
from pymc_lgm.model.operations import Variable, bare, number_of

__all__ = ["log_ndtr_between", "with_log_ndtr"]

FARTHEST = 1e30
"""Infinite limits count as limits of this size, since derivatives of log Φ are 0 · inf there."""


def with_log_ndtr(graphs: Sequence[Variable]) -> list[Variable]:
    """Graphs of the same functions, with `log_ndtr` instead of PyMC's formulas.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from pymc.distributions.dist_math import normal_lcdf
    >>> z = pt.dscalar("z")
    >>> (graph,) = with_log_ndtr([normal_lcdf(0.0, 1.0, z)])
    >>> W = -pt.grad(pt.grad(graph, z), z)
    >>> round(float(W.eval({z: -1e6})), 6)
    1.0
    """
    found = dict[Variable, Variable]()
    for v in (node.outputs[0] for node in toposort(graphs)):
        if not isinstance(function_of(v), ps.Switch | ps.Add):
            continue
        for formula in _formulas():
            inputs = dict[Variable, Variable]()
            if _is_alike(formula.graph, v, set(formula.inputs), inputs):
                # One of the inputs may contain another of these probabilities.
                own = graph_replace([inputs[x] for x in formula.inputs], found, strict=False)
                found[v] = formula.instead(*own)
    return list(graph_replace(list(graphs), found, strict=False)) if found else list(graphs)


def log_ndtr_between(a: Variable, b: Variable) -> Variable:
    """log(Φ(b) − Φ(a)) for a < b, where a may be -inf and b inf."""
    a, b = pt.clip(a, -FARTHEST, FARTHEST), pt.clip(b, -FARTHEST, FARTHEST)
    # Both are in the left tail of one of the two orders, where Φ keeps its digits.
    mirror = pt.gt(a + b, 0.0)
    upper = log_ndtr(pt.switch(mirror, -a, b))
    lower = log_ndtr(pt.switch(mirror, -b, a))
    return upper + log1mexp(lower - upper)


class _Formula(NamedTuple):
    """A function of scalars as PyMC writes it, and the same with stated derivatives."""

    graph: Variable
    inputs: list[Variable]
    instead: Callable[..., Variable]


@cache
def _formulas() -> list[_Formula]:
    """Formulas of the PyMC that is installed."""
    x, y = pt.dscalar("x"), pt.dscalar("y")
    below, above = normal_lcdf(0.0, 1.0, x), normal_lccdf(0.0, 1.0, x)
    between = log_diff_normal_cdf(0.0, 1.0, x, y)
    of_below, of_above = _argument(below, x), _argument(above, x)
    of_x, of_y = _argument(between, x), _argument(between, y)
    root = np.sqrt(2.0)
    return [
        _Formula(below, [of_below], lambda z: log_ndtr(pt.minimum(z, FARTHEST))),
        _Formula(above, [of_above], lambda z: log_ndtr(pt.minimum(-z, FARTHEST))),
        _Formula(between, [of_x, of_y], lambda b, a: log_ndtr_between(root * a, root * b)),
    ]


def _argument(formula: Variable, x: Variable) -> Variable:
    """The last function of x alone that all terms share: z = (x − mu)/sigma, or z/√2."""
    for node in reversed(list(toposort([formula]))):
        v = node.outputs[0]
        free = {each for each in ancestors([v]) if each.owner is None and each.name}
        if free == {x} and x not in ancestors([formula], blockers=[v]) and v is not formula:
            return v
    return x


def _is_alike(
    formula: Variable, v: Variable, ends: set[Variable], inputs: dict[Variable, Variable]
) -> bool:
    """Whether a variable is the formula of some ``inputs``, which are found in it."""
    if formula in ends:
        return inputs.setdefault(formula, v) is v
    if (number := number_of(formula)) is not None:
        return number_of(v) == number
    if v.owner is not None and function_of(v) is None:
        v = bare(v)  # √2, to which axes were added
    function = function_of(v)
    if function is None or function != function_of(formula):
        return False
    if len(formula.owner.inputs) != len(v.owner.inputs):
        return False  # a sum of three
    pairs = zip(formula.owner.inputs, v.owner.inputs, strict=True)
    return all(_is_alike(a, b, ends, inputs) for a, b in pairs)
