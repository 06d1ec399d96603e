"""Prove from the graph that the curvature of classes in f has blocks diag(D) − u uᵀ at every f.

A density that is a sum Σ w_rc log softmax(h_r)_c with weights w ≥ 0 has the curvature
Σ_r w_r (diag(π_r) − π_r π_rᵀ) in h. `pymc_lgm.model.log_concave` declares which distributions are
such a sum. The graph between f and h must show the rest: each element of a row h_r is a different
element of f, and rows that read the same elements have the same π.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt

from numpy.typing import NDArray
from pytensor.graph.traversal import toposort
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.special import LogSoftmax, Softmax

from pymc_lgm.linalg import Array
from pymc_lgm.model.operations import OF_SHAPES, SETTING, Variable, depending, moved
from pymc_lgm.model.reads import Evaluation, groups_of, reads_of

__all__ = ["Logits", "logits_of"]

ADDED_TO = {ps.Add: None, ps.Sub: 0, ps.Second: 1, ps.Identity: 0, ps.Cast: 0}
"""Functions that add a term to one of their inputs, and the index of that input.

``None`` means that it may be any input. ``Second(a, b)`` is b in the shape of a.
"""


@dataclass(frozen=True, eq=False)
class Logits:
    """Arguments h of softmax functions: elements of f plus terms that do not depend on f.

    Attributes
    ----------
    rows : list of variable, shape (..., C)
    are_shifted : bool
        Whether terms are added to elements of f. Two rows of the same elements may then differ.
    """

    rows: list[Variable]
    are_shifted: bool

    def are_classes(
        self, sets: NDArray[np.intp], f: Variable, values: Mapping[Variable, Array]
    ) -> bool:
        """Whether the curvature of each set of f_i, a row of ``sets``, has the form of classes.

        Shapes are evaluated at ``values``, as in `pymc_lgm.model.reads.Evaluation`.
        """
        n = np.size(values[f])
        s = sets.shape[1]
        if s < 3 or (sets < 0).any():
            return False
        graphs = [v for h in self.rows for v in (h, h[..., 0])]
        found = reads_of(Evaluation(graphs, values), f)
        for of_all, of_first in zip(found[::2], found[1::2], strict=True):
            if (of_all.counts != 1).any() or of_all.many.size != s * of_first.many.size:
                return False
        rows = np.concatenate([each.first.reshape(-1, s) for each in found[::2]])
        group = groups_of(sets, n)[rows[:, 0]]
        are_sets = np.array_equal(np.sort(rows), np.sort(sets[group]))
        return are_sets and not (self.are_shifted and np.unique(group).size < group.size)


def logits_of(densities: Sequence[Variable], f: Variable) -> Logits | None:
    """The arguments of the softmax functions through which densities read f.

    ``None`` if one of them is not of the form of `Logits`.
    """
    depends = depending(densities, [f])
    rows: dict[tuple[Variable, tuple[int, ...]], Variable] = {}
    for node in toposort(densities):
        if isinstance(node.op, Softmax | LogSoftmax) and node.inputs[0] in depends:
            (h,), axis = node.inputs, node.op.axis
            if len(axis) > 1:  # one softmax of a whole matrix
                return None
            rows[h, axis] = pt.moveaxis(h, axis, -1)
    are_shifted = False
    for node in toposort([h for h, _ in rows], blockers=[f]):
        dependent = [v in depends for v in node.inputs]
        if isinstance(node.op, OF_SHAPES) or not any(dependent):
            continue
        if isinstance(node.op, Elemwise) and _is_added_to(node.op.scalar_op, dependent):
            are_shifted |= len(node.inputs) > 1
        elif not _is_moved(node, dependent):
            return None
    return Logits(list(rows.values()), are_shifted)


def _is_moved(node: Any, dependent: Sequence[bool]) -> bool:
    """Whether each element of the results is an element of an input."""
    count = moved(node.op, node.inputs)
    is_sum = isinstance(node.op, SETTING) and not node.op.set_instead_of_inc
    return count > 0 and not is_sum and not any(dependent[count:])


def _is_added_to(op: Any, dependent: Sequence[bool]) -> bool:
    """Whether a function is its only input that depends on f plus a term of the others."""
    if type(op) not in ADDED_TO or sum(dependent) != 1:
        return False
    which = ADDED_TO[type(op)]
    return which is None or dependent[which]
