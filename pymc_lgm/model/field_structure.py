"""A linear predictor of a field, coefficients, and effects, one per element of the field.

    eta_i = c_i + e_i φ_i + b_iᵀ β + d_i w_i.

Several observations may read an element of it, each with an offset of its own. The field may be
several, each element of the predictor reading one of them. Independent effects are a field, too,
where coefficients beside them are so vague that a dense covariance has no digits left for the
effects: `VAGUE`. That a model has this structure follows from its graph; c, e, b and d are graphs
of theta.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt

from numpy.typing import NDArray
from pymc.distributions.distribution import PartialObservedRV
from pytensor.graph.replace import clone_replace, vectorize_graph
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.elemwise import Elemwise

from pymc_lgm.gaussian.gmrf import FieldAt, FieldMaker, JoinedMaker
from pymc_lgm.linalg import Array
from pymc_lgm.model.affine_graph import AffineGraph
from pymc_lgm.model.compiling import called_once
from pymc_lgm.model.elements import distinct_slopes
from pymc_lgm.model.field_parts import FieldParts, Independent, find_parts
from pymc_lgm.model.forms.base import Setting
from pymc_lgm.model.hyperparameters import discrete_in
from pymc_lgm.model.latents import FieldLaw
from pymc_lgm.model.operations import INDEXING, OF_SHAPES
from pymc_lgm.model.reads import reads_of
from pymc_lgm.model.refutations import generator, moved_a_little, thetas_near
from pymc_lgm.model.series import Series

__all__ = ["FieldStructure", "Picks", "Pieces"]

Variable = Any

VAGUE = 1e9
"""Variance of a predictor by its coefficients beyond which effects are no part of a dense K.

K_ii is rounded by 1e-16 of that, and log|I + W^½ K W^½| by n W_i as much: at a hundred observations
of precision 10 by 1e-4.
"""


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
    means : ndarray, shape (N,)
        Of the model's latent variables, one after another; that of φ without ``field.mean``.
    """

    c: Array
    e: Array
    d: Array
    scale: Array
    columns: Array
    within: Array
    variances: Array
    field: FieldAt | None
    means: Array


PICKS = (*INDEXING, PartialObservedRV)


class Picks(NamedTuple):
    """Elements of the predictor, one for each observation, and how many it has.

    A model may pick after it has transformed, as in ``rate[seen]``: so PyMC itself writes a
    likelihood of which some observations are missing.
    """

    which: NDArray[np.intp]
    size: int

    def whole(self, eta: Variable) -> Variable:
        """The predictor, of what observations read of it; elements that none reads are zero."""
        # Observations that read the same element all set it to the same value.
        return pt.zeros(self.size)[self.which].set(eta)

    @classmethod
    def of(cls, setting: Setting, graph: AffineGraph, reader: Variable) -> Picks | None:
        """Which element of the predictor each observation reads; ``None`` if it is not one."""
        (predictor,) = setting.reading.frontier
        whole = reader
        seen = slice(None)
        if isinstance(reader.owner.op, PartialObservedRV):
            whole, missing = reader.owner.inputs
            seen = ~missing.data
        inputs = [v for v in whole.owner.inputs if predictor in set(ancestors([v]))]
        inputs = [v for v in inputs if v.dtype == predictor.dtype]
        if not inputs:
            return None
        once = called_once([graph.x, graph.theta], graph.raw)
        size = once(np.zeros(graph.size), setting.at).size
        eta = pt.vector("eta", shape=(size,))
        nodes = graph.nodes | {predictor: eta}
        (total,) = setting.place([sum(clone_replace(inputs, nodes, rebuild_strict=False))])
        values = {eta: np.linspace(0.1, 0.7, size)} | setting.start
        (reads,) = reads_of([total], eta, values, most=1)
        return cls(reads.first[seen], size) if (reads.counts == 1).all() else None


class FieldStructure:
    """Which latent variable is what, and the graphs of its pieces. Made by `of`.

    Attributes
    ----------
    found : FieldParts
        Which elements of x are what.
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
        found: FieldParts,
        spread: Variable,
        picks: Picks | None,
    ):
        self.found, self.picks = found, picks
        self.n, self.size = found.field.size, found.index.size
        self.index = None if np.array_equal(found.index, np.arange(self.n)) else found.index
        self.makers = [law.maker(n) for law, n in zip(found.laws, found.sizes, strict=True)]
        counts = [len(law.reads) for law in found.laws]
        joined = len(self.makers) > 1
        self.maker: FieldMaker = JoinedMaker(self.makers, counts) if joined else self.makers[0]
        self.parts = _parts(graph)
        N = graph.size
        # x at zero, of the field alone, of the effects alone, and each coefficient alone.
        probes = np.zeros((3 + found.few.size, N))
        probes[1, found.field] = 1.0
        if found.own is not None:
            probes[2, found.own[found.own >= 0]] = 1.0
        probes[3 + np.arange(found.few.size), found.few] = 1.0
        of_each = vectorize_graph(graph.raw, {graph.x: pt.constant(probes)})
        seen = of_each
        if self.index is not None:
            # An element that nothing reads is the field's own.
            alone = np.zeros((len(probes), self.n))
            alone[1] = 1.0
            read, first = np.unique(self.index, return_index=True)
            seen = pt.set_subtensor(pt.constant(alone)[:, read], of_each[:, first])
            self._offsets = of_each[0] - seen[0][self.index]
        of_values = setting.model.replace_rvs_by_values(
            [spread, *(x for law in found.laws for x in law.reads)]
        )
        self.of_values = [graph.of_values, *of_values]
        spread, *of_laws = setting.place(of_values)
        self._reads = len(of_laws)
        scale = pt.constant(np.zeros(self.n))
        if found.own is not None:
            scale = pt.sqrt(pt.where(found.own < 0, 0.0, spread[found.own]))
        self.d = (seen[2] - seen[0]) * scale
        values = pt.concatenate([value.ravel() for value in graph.values])
        means = clone_replace(values, {graph.x: pt.zeros(N)}, rebuild_strict=False)
        # No graph of zeros: one of the model's is the same, and may be given another shape.
        within = pt.constant(np.zeros((found.few.size, self.n)))
        latents = setting.reading.latents
        moved_by = {latents[k].node for k in self._which(found.few)}
        fields = [latents[k].mean for k in self._which(found.field)]
        if not moved_by.isdisjoint(ancestors(fields)):
            moved = vectorize_graph(values[found.field], {graph.x: pt.constant(probes)})
            within = moved[3:] - moved[0]
        self.outputs = [seen, self.d, scale, within, spread[found.few], *of_laws, means]

    def _which(self, elements: NDArray[np.intp]) -> list[int]:
        """Latents that have one of these elements."""
        return [k for k, part in enumerate(self.parts) if np.isin(part, elements).any()]

    @cached_property
    def which(self) -> tuple[list[int], list[int], list[int]]:
        """Latents that are the field, coefficients, and effects."""
        own = self.found.own
        ours = self._which(own[own >= 0]) if own is not None else []
        return self._which(self.found.field), self._which(self.found.few), ours

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
        independent = all(latent.field or latent.variances is not None for latent in latents)
        if any(latent.zero_sum is not None for latent in latents):
            return None
        series = [k for k in fields if isinstance(latents[k].field, Series)]
        alone = len(fields) == 1 or (fields and not series)
        effects = None if fields else _one_each(setting)
        if not (alone or effects is not None) or len(reading.frontier) != 1 or not independent:
            return None
        if discrete_in(setting.model, reading.frontier):
            return None
        reader = _read_one_by_one(reading.frontier[0], reading.terms)
        if reader is None:
            return None
        # The mean of a series is found where its precision is.
        graph = AffineGraph(setting, series[:1])
        picks = None
        if _has_picks(reading.frontier[0], reader):
            picks = Picks.of(setting, graph, reader)
            if picks is None:
                return None
            graph.raw, graph.of_values = graph.raw[picks.which], graph.of_values[picks.which]

        def reads(elements: NDArray[np.intp]) -> NDArray[np.intp] | None:
            (found,) = reads_of([graph.raw], graph.x, graph.start, elements=elements, most=1)
            return None if found.many.any() else found.first

        spreads = [
            pt.zeros(int(np.prod(shape)))
            if latent.field is not None
            else pt.broadcast_to(latent.variances, shape).ravel()
            for latent, shape in zip(latents, shapes, strict=True)
        ]
        spread = pt.concatenate(spreads)
        names = [str(latent.rv.name) for latent in latents]
        laws: list[FieldLaw | None] = [latent.field for latent in latents]
        if effects is not None:
            laws[effects] = Independent(spread[graph.parts[effects]], names[effects])
        found = find_parts(reads, _parts(graph), laws, spread, names)
        if found is None or (series and len(found.laws) > 1):
            return None
        # Rows that read the same element of the field must be the same row of A.
        slopes = distinct_slopes(graph.raw, graph.x, [setting.theta, *setting.others], graph.start)
        if (
            np.unique(np.stack([found.index, slopes]), axis=1).shape[1]
            > np.unique(found.index).size
        ):
            return None
        structure = cls(setting, graph, found, spread, picks)
        # Coefficients may be in the mean of the field. In all others no latent variable is.
        field, few, own = structure.which
        coefficients = {latents[k].node for k in few}
        nodes = {latent.node for latent in latents}
        means = ancestors([latents[k].mean for k in (*few, *own)])
        means_of_field = ancestors([latents[k].mean for k in field if k not in series])
        if not (nodes.isdisjoint(means) and (nodes - coefficients).isdisjoint(means_of_field)):
            return None
        if effects is not None and not structure._is_vague(setting):
            return None
        return structure if structure._may_have_density(setting) else None

    def pieces(
        self, seen: Array, d: Array, scale: Array, within: Array, variances: Array, *others: Array
    ) -> Pieces:
        """Of the values of ``outputs``."""
        c, columns = seen[0], (seen[3:] - seen[0]).T
        field, means = self.maker.at(*others[: self._reads]), others[self._reads]
        return Pieces(c, seen[1] - c, d, scale, columns, within.T, variances, field, means)

    def improper(self, *values: Array) -> FieldLaw:
        """Which part of the field has no prior, of the values of ``outputs``."""
        others = values[-1 - self._reads : -1]
        for law, maker in zip(self.found.laws, self.makers, strict=True):
            part = maker.at(*others[: len(law.reads)])
            if part is None or part.factor is None:
                break
            others = others[len(law.reads) :]
        return law

    def _is_vague(self, setting: Setting) -> bool:
        """Whether variances of coefficients leave nothing of effects beside them in an array."""
        at = self.pieces(*called_once([setting.theta], self.outputs)(setting.at))
        return bool((at.columns**2 @ at.variances).max(initial=0.0) > VAGUE)

    def _may_have_density(self, setting: Setting) -> bool:
        """Whether numbers at two theta do not refute that f is finite, and has a density."""
        rng = generator()
        offsets = pt.zeros(0) if self.index is None else self._offsets
        once = called_once([setting.theta], [offsets, *self.outputs])
        for k, theta in enumerate(thetas_near(setting.at, 1, rng)):
            with moved_a_little(setting.others if k else [], rng):
                beside, *values = once(theta)
            at = self.pieces(*values)
            unread = at.columns[at.e == 0.0]
            is_finite = all(np.isfinite(x).all() for x in (beside, at.c, at.e, at.columns))
            if not is_finite or np.linalg.matrix_rank(unread) < len(unread):
                return False
        return True


def _one_each(setting: Setting) -> int | None:
    """Which latent has an independent effect for each element that observations read, if any."""
    sizes = [int(np.prod(shape)) for shape in setting.shapes]
    frontier, latents = setting.reading.frontier, setting.reading.latents
    if len(frontier) != 1 or len(latents) < 2 or any(each.variances is None for each in latents):
        return None
    (read,) = frontier
    n = max(sizes)
    size = read.type.shape[0] if read.type.ndim == 1 else None
    return sizes.index(n) if n > 1 and size in (n, None) and sizes.count(n) == 1 else None


def _parts(graph: AffineGraph) -> list[NDArray[np.intp]]:
    """Which elements of x each latent is."""
    return [np.arange(part.start, part.stop) for part in graph.parts]


def _read_one_by_one(predictor: Variable, terms: Sequence[Variable]) -> Variable | None:
    """The one density that reads the predictor, if it reads elements one by one."""
    readers: list[Variable] = [term for term in terms if predictor in set(ancestors([term]))]
    if len(readers) != 1 or predictor.ndim != 1:
        return None
    reached = {predictor}
    for node in toposort(readers, blockers=[predictor]):
        # The size of a draw follows from the predictor's shape, not from its elements.
        if reached.isdisjoint(node.inputs) or isinstance(node.op, OF_SHAPES):
            continue
        value = node.outputs[-1]
        one_by_one = isinstance(node.op, Elemwise) or getattr(node.op, "ndim_supp", 1) == 0
        if isinstance(node.op, INDEXING):
            one_by_one = reached.isdisjoint(node.inputs[1:])
        if value.ndim != 1 or not one_by_one:
            return None
        reached.add(value)
    return readers[0]


def _has_picks(predictor: Variable, reader: Variable) -> bool:
    """Whether a density reads elements of functions of the predictor."""
    picks = [
        node for node in toposort([reader], blockers=[predictor]) if isinstance(node.op, PICKS)
    ]
    return any(predictor in set(ancestors(node.inputs[:1])) for node in picks)
