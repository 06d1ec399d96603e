"""A linear predictor of a field, coefficients, and effects, one an element of the field.

    eta_i = c_i + e_i φ_i + b_iᵀ β + d_i w_i.

Several observations may read an element of it, each with an offset of its own. That a model has
this structure is proved by numbers; c, e, b and d are graphs of theta.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt

from numpy.typing import NDArray
from pytensor.graph.replace import clone_replace, vectorize_graph
from pytensor.graph.traversal import ancestors

from pymc_lgm.linalg import Array
from pymc_lgm.model.affine_graph import AffineGraph
from pymc_lgm.model.forms.base import Setting
from pymc_lgm.model.picks import Picks, has_picks, read_one_by_one
from pymc_lgm.model.series import Series
from pymc_lgm.priors.markov import FieldAt

__all__ = ["FieldStructure", "Pieces"]

Variable = Any

MOST = 200
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
    within : ndarray, shape (n, k)
        What a coefficient adds to the mean of φ: a part of b.
    variances : ndarray, shape (k,)
        Of β.
    field : FieldAt or None
        φ; ``None`` where something is no number.
    means : list of ndarray
        Of the model's latent variables; that of φ without ``field.mean``.
    """

    c: Array
    e: Array
    d: Array
    scale: Array
    columns: Array
    within: Array
    variances: Array
    field: FieldAt | None
    means: list[Array]


class FieldStructure:
    """Which latent variable is what, and the graphs of its pieces. Made by `of`.

    Attributes
    ----------
    field : int
        Which of the latents is the field.
    own : int or None
        Which are the effects, one an element of the field.
    few : list of int
        Which are coefficients.
    n, size : int
        Elements of the field, and of the predictor that observations read.
    index : ndarray of int, shape (size,), or None
        Which element of the field each of the predictor reads, if they are not the same.
    picks : Picks or None
        Which elements of the model's predictor observations read, if not each one.
    maker : FieldMaker
    outputs : list of variable
        Graphs of theta: what `pieces` takes.
    d : variable, shape (n,)
    of_values : list of variable
        What the pieces are made of, as graphs of the model's value variables.
    """

    def __init__(
        self,
        setting: Setting,
        graph: AffineGraph,
        index: NDArray[np.intp],
        field: int,
        own: int | None,
        few: list[int],
        picks: Picks | None,
    ):
        self.field, self.own, self.few, self.picks = field, own, few, picks
        self.n, self.size = int(np.prod(setting.shapes[field])), index.size
        self.index = None if np.array_equal(index, np.arange(self.n)) else index
        latents = setting.reading.latents
        law = latents[field].field
        assert law is not None
        self.maker = law.maker(self.n)
        self._x, self._raw, self.parts = graph.x, graph.raw, graph.parts
        self._of_field = graph.values[field]
        N = int(graph.x.type.shape[0])
        # x at zero, of the field alone, of the effects alone, and each coefficient alone.
        at = np.concatenate([np.empty(0, dtype=int), *(np.arange(N)[self.parts[k]] for k in few)])
        probes = np.zeros((3 + at.size, N))
        probes[1, self.parts[field]] = 1.0
        if own is not None:
            probes[2, self.parts[own]] = 1.0
        probes[3 + np.arange(at.size), at] = 1.0
        self._coefficients = at
        of_each = vectorize_graph(graph.raw, {graph.x: pt.constant(probes)})
        seen = of_each
        if self.index is not None:
            # An element that nothing reads is the field's own.
            alone = np.zeros((len(probes), self.n))
            alone[1] = 1.0
            read, first = np.unique(self.index, return_index=True)
            seen = pt.set_subtensor(pt.constant(alone)[:, read], of_each[:, first])
            self._offsets = of_each[0] - seen[0][self.index]
        beside = [k for k in (own, *few) if k is not None]
        spreads = [pt.broadcast_to(latents[k].variances, setting.shapes[k]).ravel() for k in beside]
        of_values = setting.model.replace_rvs_by_values([*law.reads, *spreads])
        self.of_values = [graph.of_values, *of_values]
        placed = setting.place(of_values)
        of_law, variances = placed[: len(law.reads)], placed[len(law.reads) :]
        self._reads = len(of_law)
        variances.insert(0, pt.constant(np.empty(0)))
        own_variances = variances.pop(1) if own is not None else pt.zeros(self.n)
        scale = pt.sqrt(own_variances)
        self.d = (seen[2] - seen[0]) * scale
        means = clone_replace(graph.values, {graph.x: pt.zeros(N)}, rebuild_strict=False)
        within = pt.zeros((at.size, self.n))
        if not {latents[k].node for k in few}.isdisjoint(ancestors([latents[field].mean])):
            moved = vectorize_graph(self._of_field, {graph.x: pt.constant(probes)})
            within = moved[3:] - moved[0]
        self.outputs = [seen, self.d, scale, within, pt.concatenate(variances), *of_law, *means]

    def read_by(self, f: Variable) -> Variable:
        """The predictor without the effects, of a vector f."""
        return f if self.index is None else f[self.index] + self._offsets

    @cached_property
    def is_once(self) -> bool:
        """Whether no element of the field is read by two observations."""
        return self.index is None or np.unique(self.index).size == self.size

    def spread(self, values: Array, rest: float) -> Array:
        """Values of observations in the place of the elements that they read, if that is once."""
        if self.index is None or not self.is_once:
            return values
        out = np.full((*values.shape[:-1], self.n), rest)
        out[..., self.index] = values
        return out

    def gathered(self, density: Variable) -> Variable:
        """Sums of the densities that read each element of the field."""
        if self.index is None:
            return density
        return pt.inc_subtensor(pt.zeros(self.n)[self.index], density)

    @classmethod
    def of(cls, setting: Setting) -> FieldStructure | None:
        """The structure of a model; ``None`` if it has another."""
        latents, shapes, reading = setting.reading.latents, setting.shapes, setting.reading
        fields = [k for k, latent in enumerate(latents) if latent.field is not None]
        beside = [k for k in range(len(latents)) if k not in fields]
        independent = all(latents[k].variances is not None for k in beside)
        if len(fields) != 1 or len(reading.frontier) != 1 or not independent:
            return None
        (field,) = fields
        own = [k for k in beside if shapes[k] == shapes[field]]
        few = [k for k in beside if k not in own]
        if len(own) > 1 or sum(int(np.prod(shapes[k])) for k in few) > MOST:
            return None
        reader = read_one_by_one(reading.frontier[0], reading.terms)
        if reader is None:
            return None
        # The mean of a series is found where its precision is.
        graph = AffineGraph(setting, field if isinstance(latents[field].field, Series) else None)
        picks = None
        if has_picks(reading.frontier[0], reader):
            picks = Picks.of(setting, graph, reader)
            if picks is None:
                return None
            graph.raw, graph.of_values = graph.raw[picks.which], graph.of_values[picks.which]
        index = _index(setting, graph, graph.parts[field])
        if index is None:
            return None
        structure = cls(setting, graph, index, field, own[0] if own else None, few, picks)
        return structure if structure._is_true(setting) else None

    def pieces(
        self, seen: Array, d: Array, scale: Array, within: Array, variances: Array, *others: Array
    ) -> Pieces:
        """Of the values of ``outputs``."""
        c, columns = seen[0], (seen[3:] - seen[0]).T
        field, means = self.maker.at(*others[: self._reads]), list(others[self._reads :])
        return Pieces(c, seen[1] - c, d, scale, columns, within.T, variances, field, means)

    def _is_true(self, setting: Setting) -> bool:
        """Whether the predictor of a random x is what the pieces say, at two theta."""
        rng = np.random.default_rng(0)
        offsets = pt.zeros(0) if self.index is None else self._offsets
        outputs = [self._raw, offsets, self._of_field, *self.outputs]
        once = AffineGraph.once([self._x, setting.theta], outputs)
        for theta in (setting.at, setting.at + 0.3 * rng.standard_normal(setting.at.size)):
            x = rng.standard_normal(self._x.type.shape[0])
            raw, offsets, phi, *values = once(x, theta)
            at = self.pieces(*values)
            if not np.isfinite(raw).all() or not at.e.all():
                return False
            right = at.c + at.e * x[self.parts[self.field]] + at.columns @ x[self._coefficients]
            if self.own is not None:
                right += at.d / at.scale * x[self.parts[self.own]]
            beta = x[self._coefficients]
            own = phi - at.means[self.field] - x[self.parts[self.field]] - at.within @ beta
            if np.abs(own).max() > 1e-8 * (1.0 + np.abs(phi).max()):
                return False
            if self.index is not None:
                right = right[self.index] + offsets
            if not np.allclose(raw, right, rtol=1e-8, atol=1e-8 * (1.0 + np.abs(at.c).max())):
                return False
        return True


def _index(setting: Setting, graph: AffineGraph, part: slice) -> NDArray[np.intp] | None:
    """Which element of the field each of the predictor reads; ``None`` if it is not one."""
    once = AffineGraph.once([graph.x, graph.theta], graph.raw)
    x = np.zeros((3, graph.x.type.shape[0]))
    n = part.stop - part.start
    x[1, part], x[2, part] = 1.0, np.arange(1, n + 1)
    zero, one, counted = (once(each, setting.at) for each in x)
    with np.errstate(divide="ignore", invalid="ignore"):
        index = (counted - zero) / (one - zero) - 1.0
    if not np.isfinite(index).all():
        return None
    nearest: NDArray[np.intp] = np.rint(index).astype(np.intp)
    known = (np.abs(index - nearest) < 1e-6).all() and nearest.min() >= 0 and nearest.max() < n
    return nearest if known else None
