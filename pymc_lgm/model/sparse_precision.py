"""Priors with a sparse precision, and those that a `pymc.MvNormal` with a sparse ``tau=`` has.

The graph shows which elements of tau can differ from 0: in a sum, those that can in any of its
terms; in a product, those that can in all of its factors. A precision whose zeros depend on theta
stays dense. The elements that can differ from 0 are computed one by one, without an n × n array.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor.tensor as pt

from numpy.typing import NDArray
from pymc.distributions.multivariate import MvNormalRV
from pytensor.graph.basic import Constant
from pytensor.scalar import Add, Cast, Mul, Sub, TrueDiv, UnaryScalarOp
from pytensor.sparse.basic import DenseFromSparse
from pytensor.tensor.basic import AllocDiag, Eye
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.linalg.inverse import MatrixInverse
from scipy.sparse import csc_array, eye_array, issparse

from pymc_lgm.compile.graphs.nodes import op_of
from pymc_lgm.gaussian import Family
from pymc_lgm.gaussian.families import ByPrecision
from pymc_lgm.gaussian.sparse import Pattern
from pymc_lgm.model.operations import Variable, core_of

__all__ = ["FieldLaw", "as_sparse_precision"]

Index = NDArray[np.intp]

MOST = 0.25
"""Largest share of the triangle that the factor may fill; beyond it a dense factor is as fast."""


@dataclass(frozen=True, eq=False)
class FieldLaw:
    """The prior of a latent vector with a sparse precision.

    Attributes
    ----------
    kind : str
        Its name when a model is printed.
    reads : list of variable
        Graphs whose values `Family.at` takes.
    family : callable
        n -> the family of n elements, a function of the values of ``reads``.
    covariance : callable
        () -> a graph of the covariance, shape (n, n), for models that need a dense one: O(n³).
    fault, remedy : str
        The parts of `explain`.
    """

    kind: str
    reads: list[Variable]
    family: Callable[[int], Family]
    covariance: Callable[[], Variable]
    fault: str
    remedy: str

    def explain(self, where: str) -> str:
        """Say why there is no proper prior, and what to write instead."""
        return f"{self.fault} {where}{self.remedy}"


def as_sparse_precision(rv: Variable) -> FieldLaw | None:
    """The sparse precision of a random variable; ``None`` if its graph does not show one.

    The variable must be one vector. Its precision may be composed of elementwise sums, products and
    functions, ``pt.diag``, ``pt.eye``, transposes, and constants.
    """
    if not isinstance(rv.owner.op, MvNormalRV) or rv.ndim != 1:
        return None
    _, cov = rv.owner.op.dist_params(rv.owner)
    if not isinstance(core_of(op_of(cov)), MatrixInverse):
        return None
    (tau,) = cov.owner.inputs
    n = tau.type.shape[-1]
    there = None if n is None else _pattern(tau, n)
    if there is None or (there != there.T).nnz > 0:
        return None
    pattern = Pattern.of(there.astype(np.float64))
    if pattern.size > MOST * n * (n + 1) / 2:
        return None
    rows, columns = pattern.places
    lower, upper = (
        _elements(tau, *at).astype("float64") for at in ((rows, columns), (columns, rows))
    )
    name = str(rv.name)
    return FieldLaw(
        kind="sparse precision",
        reads=[lower, upper],  # on both sides of the diagonal, since tau must be symmetric
        family=lambda n: ByPrecision(pattern, name),
        covariance=lambda: cov.astype("float64"),
        fault=f"The precision tau of {name!r} is not positive definite",
        remedy=". D - alpha W of a map needs -1 < alpha < 1; an intrinsic one, with alpha = 1, is "
        "pm.ICAR.",
    )


def _pattern(x: Variable, n: int) -> csc_array | None:
    """Where an (n, n) graph can differ from 0; ``None`` if the graph does not show it."""
    if x.type.shape != (n, n):
        return None
    if isinstance(x, Constant):
        return _of_numbers(x.data)
    if x.owner is None:
        return None
    op, inputs = x.owner.op, x.owner.inputs
    if isinstance(op, DenseFromSparse) and isinstance(inputs[0], Constant):
        return _of_numbers(inputs[0].data)
    if (isinstance(op, AllocDiag) and op.offset == 0) or _is_identity(x):
        return csc_array(eye_array(n, dtype=bool))
    if isinstance(op, DimShuffle) and op.new_order == (1, 0):
        inner = _pattern(inputs[0], n)
        return None if inner is None else csc_array(inner.T)
    if not isinstance(op, Elemwise):
        return None
    patterns = [_pattern(each, n) for each in inputs]
    known = [each for each in patterns if each is not None]
    match op.scalar_op:
        case Add() | Sub() if len(known) == len(inputs):
            return csc_array(sum(known[1:], start=known[0]))
        case Mul() if known:
            shared = known[0]
            for each in known[1:]:
                shared = shared.multiply(each)
            return csc_array(shared)
        case TrueDiv() if patterns[1] is None:
            return patterns[0]
        case UnaryScalarOp() if known and _keeps_zero(op.scalar_op):
            return patterns[0]
    return None


def _keeps_zero(op: Any) -> bool:
    """Whether a function of one number is 0 at 0."""
    try:
        with np.errstate(all="ignore"):
            return isinstance(op, Cast) or bool(op.impl(0.0) == 0.0)
    except (ArithmeticError, ValueError, NotImplementedError):
        return False


def _elements(x: Variable, rows: Index, columns: Index) -> Variable:
    """x[rows, columns] of a graph; if x has a pattern, without its n × n arrays."""
    if x.ndim == 0:
        return x
    first, second = (
        0 if one else at for one, at in zip(x.broadcastable, (rows, columns), strict=True)
    )
    if isinstance(x, Constant):
        return pt.constant(np.asarray(x.data)[first, second])
    if x.owner is not None:
        op, inputs = x.owner.op, x.owner.inputs
        if isinstance(op, Elemwise):
            return op(*(_elements(each, rows, columns) for each in inputs))
        if isinstance(op, DenseFromSparse) and isinstance(inputs[0], Constant):
            return pt.constant(np.asarray(csc_array(inputs[0].data)[rows, columns]).ravel())
        if isinstance(op, AllocDiag) and op.offset == 0:
            return pt.where(rows == columns, inputs[0][rows], 0.0)
        if _is_identity(x):
            return pt.constant((rows == columns).astype(x.dtype))
        if isinstance(op, DimShuffle) and op.new_order == (1, 0):
            return _elements(inputs[0], columns, rows)
    return x[first, second]


def _of_numbers(data: Any) -> csc_array | None:
    """Where a constant is not 0; ``None`` if it is not sparse."""
    there = csc_array(data if issparse(data) else np.asarray(data)) != 0
    return there if there.nnz <= MOST * there.shape[0] * (there.shape[0] + 1) else None


def _is_identity(x: Variable) -> bool:
    """Whether a graph is an identity matrix."""
    if not isinstance(x.owner.op, Eye):
        return False
    _, _, offset = x.owner.inputs
    return isinstance(offset, Constant) and int(offset.data) == 0
