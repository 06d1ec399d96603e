"""Where the map from x to the linear predictor may jump, or stand still, as theta moves.

The rank of A(theta), and its range if that is the same at two theta chosen at random, are the same
at almost every theta if theta enters A by operations that are analytic: a minor that is zero on a
set of positive measure is zero everywhere. So a look at a few theta says what the range is. It says
nothing of a maximum, a switch or an index: A(theta) may be another matrix beyond a threshold.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

import pytensor.scalar as ps

from pytensor.graph.basic import Apply
from pytensor.graph.traversal import toposort
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.elemwise import CAReduce, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky
from pytensor.tensor.linalg.inverse import MatrixInverse
from pytensor.tensor.linalg.solvers.general import Solve
from pytensor.tensor.linalg.solvers.psd import CholeskySolve
from pytensor.tensor.linalg.solvers.triangular import SolveTriangular
from pytensor.tensor.math import Dot
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.special import LogSoftmax, Softmax
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    IncSubtensor,
)

from pymc_lgm.model.affine import core_of
from pymc_lgm.model.elements import JOINING, PICKING, part_of

__all__ = ["jump_in"]

Variable = Any

ANALYTIC = (
    *(ps.Add, ps.Sub, ps.Mul, ps.TrueDiv, ps.Neg, ps.Reciprocal, ps.Identity, ps.Second, ps.Sqr),
    *(ps.Exp, ps.Exp2, ps.Expm1, ps.Log, ps.Log2, ps.Log10, ps.Log1p, ps.Sqrt, ps.Pow),
    *(ps.Sin, ps.Cos, ps.Tan, ps.Sinh, ps.Cosh, ps.Tanh, ps.ArcTan, ps.ArcSinh),
    *(ps.Sigmoid, ps.Softplus, ps.Log1mexp, ps.Erf, ps.Erfc, ps.Erfcx, ps.GammaLn, ps.Psi),
    *(ps.Gamma, ps.I0, ps.I1, ps.Ive, ps.J0, ps.J1, ps.Jv),
)
"""Of numbers."""

SMOOTH = (
    *(Dot, CumOp, Softmax, LogSoftmax, Cholesky, MatrixInverse),
    *(Solve, CholeskySolve, SolveTriangular, *JOINING),
)
"""Of all inputs together; where they are not defined there is no density."""

SUMS = (ps.Add, ps.Mul)


def jump_in(
    output: Variable, x: Variable, parts: Sequence[slice], moving: Sequence[Variable]
) -> list[Apply[Any, Any] | None]:
    """For each part of x an operation by which A(theta) may jump, or ``None``.

    Parameters
    ----------
    output : variable
        Affine in x.
    x : variable
        Read by slices.
    parts : sequence of slice
        Those of the latent variables.
    moving : sequence of variable
        Theta, and what other steps own.

    Returns
    -------
    list of node or None

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> x, theta = pt.vector("x", shape=(2,)), pt.scalar("theta")
    >>> eta = pt.exp(theta) * x[0:1] + pt.maximum(theta, 0.0) * x[1:2]
    >>> [node is not None for node in jump_in(eta, x, [slice(0, 1), slice(1, 2)], [theta])]
    [False, True]
    """
    depends = set(moving)
    jumps: dict[Variable, Apply[Any, Any]] = {}
    touched: dict[Variable, set[int]] = {}
    found: list[Apply[Any, Any] | None] = [None] * len(parts)
    for node in toposort([output]):
        if isinstance(node.op, Shape | Shape_i):
            continue
        reached = set().union(*(touched.get(v, set()) for v in node.inputs))
        if x in node.inputs:
            which = part_of(node, x, parts)
            reached = set(range(len(parts))) if which is None else {which}
        if reached:
            touched |= dict.fromkeys(node.outputs, reached)
        moved = [v for v in node.inputs if v in depends]
        if not moved:
            continue
        depends.update(node.outputs)
        at = next((jumps[v] for v in moved if v in jumps), None)
        if reached:
            # A term that is added to x does not enter A.
            at = next((jumps[v] for v in moved if v in jumps and v not in touched), None)
            if at is not None and _adds(node):
                at = None
        if at is None and not _is_analytic(node, depends):
            at = node
        if at is None:
            continue
        if reached:
            for k in reached:
                found[k] = found[k] or at
        else:
            jumps |= dict.fromkeys(node.outputs, at)
    return found


def _adds(node: Apply[Any, Any]) -> bool:
    """Whether what is free of x is added, or put beside it."""
    if isinstance(node.op, Elemwise):
        return isinstance(node.op.scalar_op, ps.Add | ps.Sub)
    return isinstance(node.op, (*JOINING, IncSubtensor, AdvancedIncSubtensor))


def _is_analytic(node: Apply[Any, Any], depends: Container[Variable]) -> bool:
    op = core_of(node.op)
    moves = [v in depends for v in node.inputs]
    if isinstance(op, Elemwise):
        if isinstance(op.scalar_op, ps.Switch):
            return not moves[0]
        if isinstance(op.scalar_op, ps.Cast):
            return bool(op.scalar_op.o_type.dtype.startswith("float"))
        return isinstance(op.scalar_op, ANALYTIC)
    if isinstance(op, CAReduce):
        return isinstance(op.scalar_op, SUMS)
    if isinstance(op, IncSubtensor | AdvancedIncSubtensor):
        return not any(moves[2:])
    if isinstance(op, PICKING):
        return isinstance(op, CheckAndRaise) or not any(moves[1:])
    return isinstance(op, SMOOTH)
