"""Find the amplitudes, the hyper-parameters that only multiply the covariance K.

If an amplitude moves, the factor of K is multiplied by a number, and K need not be factorized.

Amplitudes are found from the graph of K. If theta_j grows by δ, each variable of the graph grows by
r δ, is multiplied by exp(k δ), or changes in another way. There is one rule per operation.
"""

from __future__ import annotations

import math

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytensor.scalar as ps

from pytensor.graph.basic import Constant
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import Max, Min, Sum

from pymc_lgm.compile.graphs.nodes import function_of
from pymc_lgm.linalg import Array
from pymc_lgm.model.operations import (
    JOINING,
    PICKING,
    POWERS,
    SETTING,
    SHAPING,
    Variable,
    carried,
    core_of,
    number_of,
    powers_of,
    sources,
)

__all__ = ["find_amplitudes"]

ORDERING = (ps.LT, ps.LE, ps.GT, ps.GE, ps.EQ, ps.NEQ)
"""Comparisons, whose results stay the same if both sides are multiplied by one positive number."""


class _Growth(NamedTuple):
    """The effect on a variable if theta_j grows by δ, for each j.

    Attributes
    ----------
    added : ndarray, shape (..., p)
        r if the variable grows by r δ, otherwise NaN. The shape is (p,) if r is the same for all
        elements.
    factor : ndarray, shape (..., p)
        k if the variable is multiplied by exp(k δ), otherwise NaN. If the variable does not change,
        r and k are both 0.
    """

    added: Array
    factor: Array

    @classmethod
    def of(cls, added: Array, factor: Array) -> _Growth:
        """The growth by r and k. If one of them is 0, so is the other."""
        is_free = (added == 0.0) | (factor == 0.0)
        return cls(np.where(is_free, 0.0, added), np.where(is_free, 0.0, factor))

    @property
    def is_free(self) -> Array:
        """Whether δ has no effect."""
        result: Array = self.added == 0.0
        return result

    def alike(self) -> _Growth:
        """The growth that all elements have in common, of shape (p,)."""
        return _Growth.of(*(_agreed([each.reshape(-1, each.shape[-1])]) for each in self))


def find_amplitudes(cov: Variable, theta: Variable) -> Array:
    """Find the components of theta that only multiply the covariance.

    Parameters
    ----------
    cov : variable
        K, a graph of theta.
    theta : variable
        A vector.

    Returns
    -------
    ndarray, shape (p,)
        k_j with K(theta + δ e_j) = exp(k_j δ) K(theta) for all theta and δ: 1 for log σ if
        K = σ C, 2 if K = σ² C, −1 if K = C/σ. 0 if the graph does not show it.

    Notes
    -----
    The graph is not evaluated. A sum has a factor only if each of its terms has the same factor.

    Examples
    --------
    >>> import numpy as np
    >>> import pytensor.tensor as pt
    >>> theta = pt.vector("theta", shape=(2,))
    >>> C = pt.exp(-pt.exp(theta[0]) * np.ones((3, 3)))
    >>> find_amplitudes(pt.exp(theta[1]) ** 2 * C, theta).tolist()
    [0.0, 2.0]
    >>> find_amplitudes(pt.exp(theta[1]) ** 2 * C + np.eye(3), theta).tolist()
    [0.0, 0.0]
    """
    p = int(theta.type.shape[0])
    if p == 0:
        return np.zeros(0)
    free = _Growth(np.zeros(p), np.zeros(p))
    start = _Growth(np.eye(p), np.where(np.eye(p) == 1.0, np.nan, 0.0))
    growth = carried(
        [cov],
        {theta: start},
        lambda node, facts: _growth_of(node, [each or free for each in facts]),
    )
    return np.nan_to_num(growth.get(cov, free).alike().factor)


def _growth_of(node: Any, inputs: list[_Growth]) -> _Growth:
    """The growth of a node's results."""
    op = core_of(node.op)
    if isinstance(op, CheckAndRaise):
        return inputs[0]
    if isinstance(op, PICKING):
        return _picked(node, inputs)
    if isinstance(op, Elemwise) and len(inputs) == 1:
        return _of_one(op.scalar_op, inputs[0])
    inputs = [each.alike() for each in inputs]
    zero = [_is_zero(v) for v in node.inputs]
    if isinstance(op, Elemwise):
        return _elementwise(op.scalar_op, node.inputs, inputs, zero)
    if isinstance(op, JOINING):
        return _in_common(inputs, zero)
    if isinstance(op, SETTING):  # of an array, values that are set or added, and their indices
        if not all(each.is_free.all() for each in inputs[2:]):
            return _without_rule(inputs)
        both = _in_common(inputs[:2], zero[:2])
        return (
            both if op.set_instead_of_inc else _Growth.of(_without_rule(inputs).added, both.factor)
        )
    if isinstance(op, Max | Min):
        return inputs[0]
    if isinstance(op, Sum):
        return _Growth.of(_without_rule(inputs).added, inputs[0].factor)
    if (powers := powers_of(op)) is not None:
        of_each = zip(powers, inputs, strict=True)
        factor = np.sum([k * each.factor for k, each in of_each], axis=0)
        return _Growth.of(_without_rule(inputs).added, factor)
    return _without_rule(inputs)


def _picked(node: Any, inputs: list[_Growth]) -> _Growth:
    """The growth of the result of an operation that picks elements of its first input."""
    first, *others = inputs
    if not isinstance(node.op, SHAPING) and not all(each.is_free.all() for each in others):
        return _without_rule([each.alike() for each in inputs])
    if first.added.ndim == 1:
        return first
    if not all(isinstance(v, Constant) for v in node.inputs[1:]) or len(node.outputs) > 1:
        return first.alike()
    (which,) = sources(node, lambda v: first.added.shape[:-1], lambda v: v.data)
    return _Growth(*(each.reshape(-1, each.shape[-1])[which] for each in first))


def _of_one(op: Any, x: _Growth) -> _Growth:
    """The growth of a function of one number."""
    other = np.where(x.is_free, 0.0, np.nan)
    if isinstance(op, ps.Exp):
        return _Growth.of(other, x.added)
    if isinstance(op, ps.Log):
        return _Growth.of(x.factor, other)
    if isinstance(op, ps.Neg):
        return _Growth(-x.added, x.factor)
    if isinstance(op, ps.Identity):
        return x
    if isinstance(op, ps.Cast):
        return x if op.o_type.dtype == "float64" else _Growth(other, other)
    if isinstance(op, ps.Sign):
        return _Growth.of(np.where(np.isfinite(x.factor), 0.0, np.nan), other)
    for kind, power in POWERS.items():
        if isinstance(op, kind):
            return _Growth.of(other, power * x.factor)
    return _Growth(other, other)


def _elementwise(
    op: Any, variables: Sequence[Variable], inputs: list[_Growth], zero: list[bool]
) -> _Growth:
    """The growth of a function of several numbers."""
    other = _without_rule(inputs).added
    if isinstance(op, ps.Add | ps.Sub):
        signs = [1.0, *([-1.0 if isinstance(op, ps.Sub) else 1.0] * (len(inputs) - 1))]
        added = np.sum([s * x.added for s, x in zip(signs, inputs, strict=True)], axis=0)
        return _Growth.of(added, _in_common(inputs, zero).factor)
    if isinstance(op, ps.Mul):
        moving = [k for k, each in enumerate(inputs) if not each.is_free.all()]
        beside = [number_of(v) for k, v in enumerate(variables) if k not in moving]
        numbers = [each for each in beside if each is not None]
        is_scaled = len(moving) == 1 and len(numbers) == len(beside)
        added = inputs[moving[0]].added * math.prod(numbers) if is_scaled else other
        return _Growth.of(added, np.sum([each.factor for each in inputs], axis=0))
    if isinstance(op, ps.TrueDiv):
        by = number_of(variables[1])
        added = inputs[0].added / by if by else other
        return _Growth.of(added, inputs[0].factor - inputs[1].factor)
    if isinstance(op, ps.Pow):
        power = number_of(variables[1])
        factor = other if power is None else power * inputs[0].factor
        return _Growth.of(other, factor)
    if isinstance(op, ps.Second):
        return inputs[1]
    if isinstance(op, ps.Maximum | ps.Minimum):
        return _in_common(inputs, zero)
    if isinstance(op, ps.Switch):
        condition = np.where(inputs[0].is_free, 0.0, np.nan)
        added, factor = _in_common(inputs[1:], zero[1:])
        return _Growth.of(added + condition, factor + condition)
    if isinstance(op, ORDERING):
        both = _in_common(inputs, zero)
        is_same = np.isfinite(both.added) | np.isfinite(both.factor)
        result = np.where(is_same, 0.0, np.nan)
        return _Growth(result, result)
    return _Growth(other, other)


def _in_common(inputs: Sequence[_Growth], zero: Sequence[bool]) -> _Growth:
    """The growth that all inputs have in common. A zero may have any factor."""
    added = _agreed([each.added for each in inputs])
    known = [each.factor for each, is_zero in zip(inputs, zero, strict=True) if not is_zero]
    factor = _agreed(known) if known else np.zeros_like(added)
    return _Growth.of(added, factor)


def _without_rule(inputs: Sequence[_Growth]) -> _Growth:
    """0 if no input changes, otherwise NaN."""
    is_free = np.logical_and.reduce(
        [np.all(np.atleast_2d(each.is_free), axis=0) for each in inputs]
    )
    result = np.where(is_free, 0.0, np.nan)
    return _Growth(result, result)


def _agreed(rows: Sequence[Array]) -> Array:
    """The numbers in which all rows agree, and NaN if they differ."""
    stacked = np.concatenate([np.atleast_2d(each) for each in rows])
    result: Array = np.where((stacked == stacked[0]).all(axis=0), stacked[0], np.nan)
    return result


def _is_zero(v: Variable) -> bool:
    """Whether a variable is a constant 0, or a product with one, such as a jitter of 0."""
    if (function := function_of(v)) is not None:
        return isinstance(function, ps.Mul) and any(map(_is_zero, v.owner.inputs))
    return number_of(v) == 0.0
