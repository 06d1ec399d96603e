"""Fast computation of V = K_fu R⁻ᵀ for processes with inducing variables.

K_fu is computed for some of its rows at a time, so that intermediate arrays stay in the processor's
cache and V is the only n × m array. It is multiplied by R⁻ᵀ in place, in a quarter of the time of
solving for n columns. The error is the same, of the order of the condition number of R.
"""

from __future__ import annotations

import math

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt

from numpy.typing import NDArray
from pytensor.compile.mode import optdb
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import clone_replace
from pytensor.graph.rewriting.db import RewriteDatabaseQuery
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.basic import Join
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.shape import Reshape
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor
from scipy.linalg import blas, lapack

from pymc_lgm.linalg import Array
from pymc_lgm.model.forms.base import Setting
from pymc_lgm.model.operations import Variable, core_of, known_value

__all__ = ["are_apart", "maps_by_rows"]

ELEMENTS = 2**17
"""Elements of K_fu that are computed together: a megabyte."""


def maps_by_rows(
    setting: Setting,
    maps: Sequence[Variable],
    shapes: Sequence[tuple[int, int]],
    roots: Sequence[Variable],
    reads: Sequence[Variable],
) -> Callable[[Array], list[NDArray[Any]]]:
    """Compile a function of theta that returns each V, each R, and further graphs.

    Parameters
    ----------
    setting : Setting
    maps : sequence of variable
        V = (R⁻¹ K_uf)ᵀ, for which `root_of` finds R. Equal ones are computed once.
    shapes : sequence of tuple of int
        (n, m) for each.
    roots : sequence of variable
        R for each, (m, m).
    reads : sequence of variable
        Further graphs of theta, and of V.

    Returns
    -------
    callable
        If an element of a V is not finite, all its elements are NaN.
    """
    theta, C, made = setting.theta, len(maps), [V.owner.inputs[0] for V in maps]
    every = _merged([*made, *roots, *reads])
    halves, factors, reads = every[:C], every[C : 2 * C], every[2 * C :]
    if any(x.owner is None for x in (*halves, *factors)):  # a constant takes no time
        return setting.compiled([theta], [*maps, *roots, *reads])
    crosses = {
        A: (x.owner.inputs[1], shape) for A, x, shape in zip(halves, made, shapes, strict=True)
    }
    rows = {A: _Rows(setting, *cross) for A, cross in crosses.items()}
    whose = dict(zip(halves, factors, strict=True))
    given = {x: x.type() for x in (*rows, *whose.values())}
    roots_at = setting.compiled([theta], list(whose.values()))
    rest = clone_replace(reads, given, rebuild_strict=False)
    rest_at = setting.compiled([theta, *given.values()], rest)

    def at(theta: Array) -> list[NDArray[Any]]:
        found = dict(zip(whose.values(), roots_at(theta), strict=True))
        V = {A: rows[A].times_inverse(theta, found[R]) for A, R in whose.items()}
        known = {A: each.T for A, each in V.items()} | found
        read = rest_at(theta, *(known[x] for x in given))
        return [*(V[A] for A in halves), *(found[R] for R in factors), *read]

    return at


def _merged(variables: list[Variable]) -> list[Variable]:
    """The same variables, canonicalized together, so that equal ones become one."""
    graph = FunctionGraph(outputs=variables, clone=True, copy_inputs=False)
    optdb.query(RewriteDatabaseQuery(include=["canonicalize"])).rewrite(graph)
    return list(graph.outputs)


class _Rows:
    """Rows of K_fu at a theta.

    If the graph shows that each row of K_fu reads only its own row of all matrices with n rows, a
    part of the rows is computed at a time. Otherwise, as with the mean of all inputs, all are.
    """

    def __init__(self, setting: Setting, K_uf: Variable, shape: tuple[int, int]):
        (n, m), bounds = shape, pt.lscalars("start", "stop")
        self._shape, self._together = shape, min(ELEMENTS // m, n)
        tall = {x: x[slice(*bounds)] for x in ancestors([K_uf]) if _height(x) == n}
        if self._together < n and are_apart(K_uf, tall):
            K_uf = clone_replace(K_uf, tall, rebuild_strict=False)
        else:
            self._together = n
        self._function = setting.compiled([setting.theta, *bounds], K_uf)

    def __call__(self, theta: Array, start: int, stop: int) -> Array:
        """K_fu[start:stop]."""
        K_uf: Array = self._function(theta, np.asarray(start), np.asarray(stop))
        return K_uf.T

    def times_inverse(self, theta: Array, R: Array) -> Array:
        """K_fu R⁻ᵀ in Fortran order; all NaN if an element is not finite."""
        (n, _), step = self._shape, self._together
        V = np.empty(self._shape, order="F")
        inverse, info = lapack.dtrtri(np.asfortranarray(R), lower=1)
        known = info == 0 and math.isfinite(inverse.sum())
        for start in range(0, n, step):
            K_fu = self(theta, start, min(start + step, n))
            V[start : start + step] = K_fu
            known = known and math.isfinite(K_fu.sum())
        if not known:
            V.fill(np.nan)
            return V
        product: Array = blas.dtrmm(1.0, inverse, V, side=1, lower=1, trans_a=1, overwrite_b=1)
        return product


def _height(x: Variable) -> int | None:
    """The number of rows of a matrix that is a constant or data; otherwise ``None``."""
    value = known_value(x)
    return len(value) if np.ndim(value) == 2 else None


def are_apart(K_uf: Variable, tall: Collection[Variable]) -> bool:
    """Whether the i-th column of a matrix depends only on the i-th rows of other matrices.

    Parameters
    ----------
    K_uf : variable
        (m, n).
    tall : collection of variable
        Matrices with n rows that are constants or data.

    Returns
    -------
    bool
        Whether the graph shows it. An operation without a rule counts as joining rows.

    Examples
    --------
    >>> X, Z = pt.matrix("X"), pt.matrix("Z")
    >>> are_apart(pt.dot(Z, X.T), [X]), are_apart(pt.dot(Z, (X - X.mean(axis=0)).T), [X])
    (True, False)
    """
    axes = dict.fromkeys(tall, 0)
    for node in toposort([K_uf]):
        if any(v in axes for v in node.inputs):
            axis = _axis_of_rows(node, [axes.get(v) for v in node.inputs])
            if axis is None:
                return False
            axes |= dict.fromkeys(node.outputs, axis)
    return axes.get(K_uf) == 1


def _axis_of_rows(node: Apply[Any, Any], axes: Sequence[int | None]) -> int | None:
    """The axis of the rows in a node's result, given the axes of the rows in its inputs."""
    op, v = node.op, node.inputs[0]
    if isinstance(core_of(op), Dot) and v.ndim == 2:
        if axes == [0, None]:
            return 0
        return 1 if axes == [None, 1] else None
    free = [x for x, each in zip(node.inputs, axes, strict=True) if each is None]
    k, *others = [each for each in axes if each is not None]
    is_one = all(each == k for each in others)
    if isinstance(op, Join):
        return k if is_one and not free and op.axis % node.outputs[0].ndim != k else None
    if isinstance(op, AdvancedSubtensor) and axes[0] is None:
        if v.ndim > len(op.idx_list) or any(isinstance(each, slice) for each in op.idx_list):
            return None
        free = free[1:] if all(x.ndim == node.outputs[0].ndim for x in node.inputs[1:]) else [v]
        return k if is_one and all(x.type.broadcastable[k] for x in free) else None
    if isinstance(op, Elemwise):
        # Only matrices of n rows are cut, so another input must have one element along this axis.
        return k if is_one and all(x.type.broadcastable[k] for x in free) else None
    if axes[0] is None:
        return None
    if isinstance(op, DimShuffle):
        return op.new_order.index(k) if k in op.new_order else None
    if isinstance(op, CAReduce):
        if op.axis is None or min(op.axis) < 0 or k in op.axis:
            return None
        return k - sum(axis < k for axis in op.axis)
    if any(each is not None for each in axes[1:]):
        return None
    if isinstance(op, Reshape):
        lengths = np.ravel(known_value(node.inputs[1])).tolist()
        is_column = v.ndim == 1 and sorted(lengths) == [-1] + [1] * (len(lengths) - 1)
        return lengths.index(-1) if is_column else None
    if isinstance(op, Subtensor | AdvancedSubtensor):
        index = [*op.idx_list, *[slice(None)] * v.ndim][: k + 1]
        if index[k] != slice(None):
            return None
        kept = sum(isinstance(each, slice) for each in index[:k])
        return kept if kept == k or isinstance(op, Subtensor) else None
    return None
