"""The linear predictor of areas: a field, coefficients, and effects of which each area has one.

    eta_i = c_i + e_i φ_i + b_iᵀ β + d_i w_i.

That a model has this structure is proved by numbers; c, e, b and d are graphs of theta.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt

from pytensor.graph.replace import clone_replace, vectorize_graph
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import Elemwise

from pymc_lgm.linalg import Array
from pymc_lgm.model.affine_graph import AffineGraph
from pymc_lgm.model.forms.base import Setting

__all__ = ["FieldStructure", "Pieces"]

Variable = Any

MOST = 50
"""Coefficients: with more they are no few columns."""


class Pieces(NamedTuple):
    """At one theta.

    Attributes
    ----------
    c, e, d : ndarray, shape (n,)
        ``d`` is of effects of variance 1, and zero where there are none.
    scale : ndarray, shape (n,)
        What the model's effects are of those of variance 1.
    columns : ndarray, shape (n, k)
        b.
    variances : ndarray, shape (k,)
        Of β.
    means : list of ndarray
        Of the model's latent variables.
    """

    c: Array
    e: Array
    d: Array
    scale: Array
    columns: Array
    variances: Array
    means: list[Array]


class FieldStructure:
    """Which latent variable is what, and the graphs of its pieces. Made by `of`.

    Attributes
    ----------
    field : int
        Which of the latents is the field.
    own : int or None
        Which are the effects, one an area.
    few : list of int
        Which are coefficients.
    n : int
        Areas.
    outputs : list of variable
        Graphs of theta: what `pieces` takes.
    d : variable, shape (n,)
    of_values : list of variable
        What the pieces are made of, as graphs of the model's value variables.
    """

    def __init__(
        self, setting: Setting, graph: AffineGraph, field: int, own: int | None, few: list[int]
    ):
        self.field, self.own, self.few = field, own, few
        self.n = int(np.prod(setting.shapes[field]))
        latents = setting.reading.latents
        self._x, self._raw, self.parts = graph.x, graph.raw, graph.parts
        N = int(graph.x.type.shape[0])
        # x at zero, of the field alone, of the effects alone, and each coefficient alone.
        at = np.concatenate([np.empty(0, dtype=int), *(np.arange(N)[self.parts[k]] for k in few)])
        probes = np.zeros((3 + at.size, N))
        probes[1, self.parts[field]] = 1.0
        if own is not None:
            probes[2, self.parts[own]] = 1.0
        probes[3 + np.arange(at.size), at] = 1.0
        self._coefficients = at
        seen = vectorize_graph(graph.raw, {graph.x: pt.constant(probes)})
        beside = [k for k in (own, *few) if k is not None]
        spreads = [pt.broadcast_to(latents[k].variances, setting.shapes[k]).ravel() for k in beside]
        of_values = setting.model.replace_rvs_by_values(spreads)
        self.of_values = [graph.of_values, *of_values]
        variances = [pt.constant(np.empty(0)), *setting.place(of_values)]
        own_variances = variances.pop(1) if own is not None else pt.zeros(self.n)
        scale = pt.sqrt(own_variances)
        self.d = (seen[2] - seen[0]) * scale
        means = clone_replace(graph.values, {graph.x: pt.zeros(N)}, rebuild_strict=False)
        self.outputs = [seen, self.d, scale, pt.concatenate(variances), *means]

    @classmethod
    def of(cls, setting: Setting) -> FieldStructure | None:
        """The structure of a model; ``None`` if it has another."""
        latents, shapes, reading = setting.reading.latents, setting.shapes, setting.reading
        fields = [k for k, latent in enumerate(latents) if latent.intrinsic is not None]
        beside = [k for k in range(len(latents)) if k not in fields]
        independent = all(latents[k].variances is not None for k in beside)
        if len(fields) != 1 or len(reading.frontier) != 1 or not independent:
            return None
        own = [k for k in beside if shapes[k] == shapes[fields[0]]]
        few = [k for k in beside if k not in own]
        if len(own) > 1 or sum(int(np.prod(shapes[k])) for k in few) > MOST:
            return None
        if not _is_read_one_by_one(reading.frontier[0], reading.terms):
            return None
        graph = AffineGraph(setting)
        if graph.size_at(setting.at) != int(np.prod(shapes[fields[0]])):
            return None
        structure = cls(setting, graph, fields[0], own[0] if own else None, few)
        return structure if structure._is_true(setting) else None

    def pieces(
        self, seen: Array, d: Array, scale: Array, variances: Array, *means: Array
    ) -> Pieces:
        """Of the values of ``outputs``."""
        c, columns = seen[0], (seen[3:] - seen[0]).T
        return Pieces(c, seen[1] - c, d, scale, columns, variances, list(means))

    def _is_true(self, setting: Setting) -> bool:
        """Whether the predictor of a random x is what the pieces say, at two theta."""
        rng = np.random.default_rng(0)
        outputs = [self._raw, *self.outputs]
        once = AffineGraph.once([self._x, setting.theta], outputs)
        for theta in (setting.at, setting.at + 0.3 * rng.standard_normal(setting.at.size)):
            x = rng.standard_normal(self._x.type.shape[0])
            raw, *values = once(x, theta)
            at = self.pieces(*values)
            if raw.shape != at.c.shape or not np.isfinite(raw).all() or not at.e.all():
                return False
            right = at.c + at.e * x[self.parts[self.field]] + at.columns @ x[self._coefficients]
            if self.own is not None:
                right += at.d / at.scale * x[self.parts[self.own]]
            if not np.allclose(raw, right, rtol=1e-8, atol=1e-8 * (1.0 + np.abs(at.c).max())):
                return False
        return True


def _is_read_one_by_one(predictor: Variable, terms: Sequence[Variable]) -> bool:
    """Whether one density reads the predictor, element by element."""
    readers = [term for term in terms if predictor in set(ancestors([term]))]
    if len(readers) != 1 or predictor.ndim != 1:
        return False
    between = {v.owner for v in ancestors(readers, blockers=[predictor]) if v.owner is not None}
    on_the_way = [node for node in between if predictor in set(ancestors(node.outputs[-1:]))]
    return all(
        node.outputs[-1].ndim == 1
        and (isinstance(node.op, Elemwise) or getattr(node.op, "ndim_supp", 1) == 0)
        for node in on_the_way
    )
