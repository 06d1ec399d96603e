"""Find from the graph of a linear predictor c + A x how the columns of A depend on theta.

A column is constant if no operation between x and the predictor multiplies it by a variable that
depends on theta, or selects it by one. Columns through an operation without a rule here count as
not constant.

If theta enters A through analytic operations only, the rank of A(theta) is the same at almost every
theta, and so is the range if it is the same at two random theta, because a minor that is zero on a
set of positive measure is zero everywhere. So evaluations at a few theta determine the range. This
does not hold with a maximum, a switch or an index, where A(theta) may differ beyond a threshold.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Sequence
from typing import Any

import numpy as np
import pytensor.scalar as ps

from pytensor.graph.basic import Apply, Constant
from pytensor.graph.traversal import toposort
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.elemwise import CAReduce, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.special import LogSoftmax, Softmax
from pytensor.tensor.subtensor import Subtensor

from pymc_lgm.model.operations import (
    OF_SHAPES,
    PRODUCTS,
    Variable,
    carried,
    core_of,
    depending,
    is_added,
    moved,
    performed,
)

__all__ = ["columns_move", "jump_in", "matrix_moves"]

ANALYTIC = (
    *(ps.Add, ps.Sub, ps.Mul, ps.TrueDiv, ps.Neg, ps.Reciprocal, ps.Identity, ps.Second, ps.Sqr),
    *(ps.Exp, ps.Exp2, ps.Expm1, ps.Log, ps.Log2, ps.Log10, ps.Log1p, ps.Sqrt, ps.Pow),
    *(ps.Sin, ps.Cos, ps.Tan, ps.Sinh, ps.Cosh, ps.Tanh, ps.ArcTan, ps.ArcSinh),
    *(ps.Sigmoid, ps.Softplus, ps.Log1mexp, ps.Erf, ps.Erfc, ps.Erfcx, ps.GammaLn, ps.Psi),
    *(ps.Gamma, ps.I0, ps.I1, ps.Ive, ps.J0, ps.J1, ps.Jv),
)
"""Analytic functions of numbers."""

SMOOTH = (*PRODUCTS, CumOp, Softmax, LogSoftmax)
"""Operations that are jointly analytic in all inputs; where undefined, there is no density."""

SUMS = (ps.Add, ps.Mul)
"""Functions of two numbers that reduce an axis analytically: sums and products."""


def columns_move(
    output: Variable, x: Variable, parts: Sequence[slice], moving: Sequence[Variable]
) -> list[bool]:
    """Whether, for each part of x, a column of A may depend on the variables in ``moving``.

    Parameters
    ----------
    output : variable
        c + A x, found to be affine by `pymc_lgm.model.affine`.
    x : variable
        A vector, which the graph reads by constant slices.
    parts : sequence of slice
        The parts of x for the latent variables.
    moving : sequence of variable
        Theta, and variables of other steps.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> x, theta = pt.vector("x", shape=(4,)), pt.scalar("theta")
    >>> eta = x[0:2] + theta + theta * x[2:4]
    >>> columns_move(eta, x, [slice(0, 2), slice(2, 4)], [theta])
    [False, True]
    """
    depends = depending([output], moving)
    reached = _reached(output, x, parts)
    moves = set[int]().union(*(reached[v] for v in _multiplied([output], reached, depends)))
    return [k in moves for k in range(len(parts))]


def matrix_moves(
    outputs: Sequence[Variable],
    latents: Sequence[Variable],
    moving: Sequence[Variable],
    given: Sequence[Variable] = (),
) -> bool:
    """Whether A of ``outputs``, c + A x, may depend on the variables in ``moving``.

    x consists of ``latents``. Variables in ``given`` have values of their own: their inputs do not
    count.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> x, k = pt.vector("x"), pt.iscalar("k")
    >>> matrix_moves([2.0 * (x + k)], [x], [k]), matrix_moves([x * k], [x], [k])
    (False, True)
    """
    ends = {*given, *latents, *moving}
    reached, depends = (depending(outputs, on, ends) for on in (latents, moving))
    return any(True for _ in _multiplied(outputs, reached, depends, ends))


def _multiplied(
    outputs: Sequence[Variable],
    reached: Container[Variable],
    depends: Container[Variable],
    ends: Collection[Variable] = (),
) -> Iterator[Variable]:
    """Variables of x that are multiplied or selected by a variable that depends on theta."""
    for node in toposort(outputs, blockers=ends):
        if node.outputs[0] not in reached or not set(ends).isdisjoint(node.outputs):
            continue
        for position, v in enumerate(node.inputs):
            if v in depends and v not in reached and not is_added(node, position):
                yield node.outputs[0]


def jump_in(
    output: Variable, x: Variable, parts: Sequence[slice], moving: Sequence[Variable]
) -> list[Apply[Any, Any] | None]:
    """For each part of x, an operation by which its columns of A(theta) may jump, or ``None``.

    The arguments are those of `columns_move`.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> x, theta = pt.vector("x", shape=(2,)), pt.scalar("theta")
    >>> eta = pt.exp(theta) * x[0:1] + pt.maximum(theta, 0.0) * x[1:2]
    >>> [node is not None for node in jump_in(eta, x, [slice(0, 1), slice(1, 2)], [theta])]
    [False, True]
    """
    depends = depending([output], moving)
    reached = _reached(output, x, parts)
    jumps: dict[Variable, Apply[Any, Any]] = {}
    found: list[Apply[Any, Any] | None] = [None] * len(parts)
    for node in toposort([output]):
        if isinstance(node.op, OF_SHAPES) or depends.isdisjoint(node.inputs):
            continue
        of_x = reached.get(node.outputs[0])
        # A term that is added to x does not enter A.
        entering = [
            v
            for position, v in enumerate(node.inputs)
            if of_x is None or not (v in reached or is_added(node, position))
        ]
        at = next((jumps[v] for v in entering if v in jumps), None)
        if at is None and not _is_analytic(node, depends):
            at = node
        if at is None:
            continue
        if of_x is None:
            jumps |= dict.fromkeys(node.outputs, at)
        else:
            for k in of_x:
                found[k] = found[k] or at
    return found


def _reached(output: Variable, x: Variable, parts: Sequence[slice]) -> dict[Variable, set[int]]:
    """The parts of x that each variable depends on; all parts if x is not read by a slice."""

    def rule(node: Apply[Any, Any], facts: list[set[int] | None]) -> set[int]:
        which = _part_of(node, x, parts)
        return set().union(*filter(None, facts)) if which is None else {which}

    return carried([output], {x: set(range(len(parts)))}, rule)


def _part_of(node: Apply[Any, Any], x: Variable, parts: Sequence[slice]) -> int | None:
    """The part of x that contains a node's slice of x; ``None`` if there is none."""
    if not isinstance(node.op, Subtensor) or node.inputs[0] is not x:
        return None
    if not all(isinstance(each, Constant) for each in node.inputs[1:]):
        return None
    size = int(x.type.shape[0])
    (taken,) = performed(node, [np.arange(size), *(v.data for v in node.inputs[1:])])
    taken = np.ravel(taken)
    for k, part in enumerate(parts):
        inside = np.arange(*part.indices(size))
        if taken.size and np.isin(taken, inside).all():
            return k
    return None


def _is_analytic(node: Apply[Any, Any], depends: Container[Variable]) -> bool:
    op = core_of(node.op)
    moves = [v in depends for v in node.inputs]
    if count := moved(op, node.inputs):
        return isinstance(op, CheckAndRaise) or not any(moves[count:])
    if isinstance(op, Elemwise):
        if isinstance(op.scalar_op, ps.Switch):
            return not moves[0]
        if isinstance(op.scalar_op, ps.Cast):
            return bool(op.scalar_op.o_type.dtype.startswith("float"))
        return isinstance(op.scalar_op, ANALYTIC)
    if isinstance(op, CAReduce):
        return isinstance(op.scalar_op, SUMS)
    return isinstance(op, SMOOTH)
