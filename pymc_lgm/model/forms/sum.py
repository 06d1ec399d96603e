"""f = (x, eta): latent variables of sparse precision, and what observations read of their sum.

    eta = c(theta) + A(theta) x,   x = (x_1, …, x_B) of independent families, A sparse.

Examples are a trend beside a season, a map beside series, crossed effects, and coefficients beside
a field. `pymc_lgm.gaussian.sums` has the algebra, which factorizes the sparse P = Q + Aᵀ W A. f has
x in it, so its values are those of the latent variables, and nothing has to be drawn given eta.

One latent variable may be observation-level effects: independent, with each element of eta reading
at most one of its own. These are not in x. They are integrated out of the likelihood
(`pymc_lgm.model.forms.integrated`), and drawn given f and y.
"""

from __future__ import annotations

import math

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt

from numpy.typing import NDArray
from pymc.distributions.transforms import ZeroSumTransform
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.replace import clone_replace, vectorize_graph
from pytensor.graph.traversal import ancestors

from pymc_lgm.adaptation import FEWEST_DRAWS
from pymc_lgm.approximations.emulator import MANY_HYPERPARAMETERS
from pymc_lgm.approximations.sites import Effects
from pymc_lgm.approximations.transport import LARGEST_SET
from pymc_lgm.compile.graphs.functions import called_once, shape_of
from pymc_lgm.gaussian import (
    DenseBlocks,
    Family,
    FamilyAt,
    Independent,
    Layout,
    Prior,
    SumAt,
    SumPrior,
)
from pymc_lgm.gaussian.families import BandedSeries
from pymc_lgm.gaussian.structure import IntrinsicFamily, Structure
from pymc_lgm.linalg import Array
from pymc_lgm.model import refusals
from pymc_lgm.model.cumulative_sums import CumulativeSums, cumulative_sums, distributed
from pymc_lgm.model.forms.base import (
    Direction,
    Form,
    FormModel,
    LastThetas,
    LikelihoodFunctions,
    PriorAt,
    Probe,
    Setting,
)
from pymc_lgm.model.forms.integrated import IntegratedEffects
from pymc_lgm.model.latents import Latent
from pymc_lgm.model.log_concave import are_bent_slowly, are_log_concave, are_quadratic
from pymc_lgm.model.operations import Variable, depending
from pymc_lgm.model.predictor import AffineGraph, Elements
from pymc_lgm.model.reading import discrete_in
from pymc_lgm.model.reads import MOST as MOST_READ
from pymc_lgm.model.reads import Evaluation, joined, reads_of, reads_of_densities, sets_of
from pymc_lgm.model.series import Series

__all__ = ["SumPredictor"]

Index = NDArray[np.intp]

MOST, MOST_OWN = 1000, 200
"""Elements of x that an element of eta may read, and those that not all elements of eta read.

One that reads m of them makes a dense m × m block of P. With more than these, a dense form is left
to do it. BLAS computes the block of the elements that all read, such as coefficients of basis
functions; the others, and all if observations read sets of elements of eta, are found pair by pair.
The numbers are choices.
"""

SPARSE, DENSE = 2e-9, 2e-10
"""Seconds of a posterior per multiplication of its factorization, sparse and dense.

Measured by hand on the models of `benchmarks/sums.py`, with the prior and the variances of a
posterior: 1.8 ns at 5 million multiplications and 6 at half a million, the overhead included; 0.18
and 0.24 ns for dense forms. They decide which form is faster, never what is drawn.
"""

FEWEST_INTEGRATED = 4
"""Number of importance draws if effects are integrated out. Each draw then costs 20 evaluations of
the likelihood or more.

By hand on a map of 144 areas by 15 periods, effective draws per second and two chains: counts 23,
28 and 32 with 2, 4 and 8 draws, binomial observations 15, 13 and 9.
"""

MANY_PROCESSES = 20
"""Independent dense processes up to which each is factorized by LAPACK.

Four classes of 300 points took 15 ms per approximation by themselves, and 90 ms as one sparse sum.
The bound is a choice: each process costs a call of its own, which many small ones do not repay.
"""

OVERHEAD = 3e-4
"""Seconds of a sparse posterior of any size: 0.3 to 0.6 ms were measured on small models. A dense
one is given half of it, which is a guess."""


class SumPredictor(Form):
    """f = (x, c + A x), with N elements of x and E of eta. Made by `of`.

    The graph's vector, `AffineGraph.x`, has all latent variables. x is that vector without the
    effects that are integrated out, in the same order.

    Attributes
    ----------
    layout : Layout
        Where A and the precision have elements.
    """

    algebra = "a sparse matrix"
    by_covariance, has_theta_gradient, has_evidence_gradient = False, False, True
    has_transport = True
    _sets: Index | None = None

    def __init__(
        self,
        setting: Setting,
        graph: AffineGraph,
        elements: Elements,
        readers: list[_Reader],
        own: _Own | None,
        *,
        is_apart: bool = False,
    ):
        super().__init__(setting)
        self._is_apart = is_apart
        # Whether equal elements join more observations than one reads elements: see `prepare`.
        self._joins = False
        self._setting, self._graph, self._elements, self._own = setting, graph, elements, own
        self._first = elements.first
        self._readers = readers
        self._in_x = [k for k in range(len(readers)) if own is None or k != own.latent]
        # The order of the families' values in ``theta_graphs``: the effects come last.
        self._order = [*self._in_x, *([] if own is None else [own.latent])]
        self._families = [readers[k].family for k in self._in_x]
        # The positions of x in the graph's vector, and of each latent variable in x.
        self._index = np.concatenate([np.r_[graph.parts[k]] for k in self._in_x])
        sizes = [each.n for each in self._families]
        ends = np.cumsum(sizes).tolist()
        self._parts = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
        self._N = self._index.size
        self.n = self._index.size + self._first.size
        self.rank = sum(each.rank for each in self._families)
        # Elements of A: rows are elements of eta, columns those of the graph's vector.
        self._rows, self._columns = _reads(elements)
        self._is_of_x = np.isin(self._columns, self._index)
        counts = np.bincount(self._rows[self._is_of_x], minlength=self._first.size)
        starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.intp)
        columns = np.searchsorted(self._index, self._columns[self._is_of_x])
        self._pattern = starts, columns.astype(np.intp)
        self._make_numbers(graph)
        self.f = pt.vector("f", shape=(self.n,))
        self._eta = pt.vector("eta", shape=(self._first.size,))
        self.mean = self.cov = pt.zeros(self.n)
        # Once effects are integrated out, the posterior is close to a Gaussian: no transport.
        self.is_close, self.has_transport = own is not None, own is None
        self.fewest = FEWEST_DRAWS if own is None else FEWEST_INTEGRATED
        self.has_evidence_gradient = own is None
        self._integrated: IntegratedEffects | None = None
        self._last = LastThetas[_Numbers | None](1)

    @classmethod
    def of(cls, setting: Setting, *, is_apart: bool = False) -> SumPredictor | None:
        """The form of a model; ``None`` if it is not a sum of families with a sparse A.

        If ``is_apart``, every element of the predictor is one of eta, equal to another or not.
        """
        latents = setting.reading.latents
        if discrete_in(setting.model, setting.reading.frontier, latents):
            return None
        given = [*(latent.node for latent in latents), *setting.model.basic_RVs]
        predictor = distributed(setting.reading.frontier, given)
        sums = cumulative_sums(latents, predictor)
        readers = []
        constrained = {
            k: shape_of(latent.rv) for k, latent in enumerate(latents) if _is_constrained(latent)
        }
        for k, latent in enumerate(latents):
            shape = constrained.get(k, setting.shapes[k])
            family = _family(latent, shape, sums.get(k), is_constrained=k in constrained)
            if family is None:
                return None
            readers.append(family)
        whole = {k for k, latent in enumerate(latents) if isinstance(latent.field, Series)}
        graph = AffineGraph(setting, whole, sums, constrained, predictor)
        is_apart = is_apart or setting.reading.joins
        elements = graph.elements(MOST, apart=is_apart)
        if elements.reads.many.any() or not elements.first.size:
            return None
        if _most_own(elements) > MOST_OWN:
            return None
        own = _own_effects(setting, graph, elements, readers)
        return cls(setting, graph, elements, readers, own, is_apart=is_apart)

    def alternatives(self) -> Iterator[SumPredictor]:
        """Itself, and if densities do not fit it, one that they may fit.

        If it integrates effects out, another has them in x. In the last one equal elements are
        apart, so that they do not join the observations that read them to one large set.
        """
        yield self
        whole = self
        if self._own is not None:
            graph, elements = self._graph, self._elements
            options = {"is_apart": self._is_apart}
            whole = SumPredictor(self._setting, graph, elements, self._readers, None, **options)
            yield whole
        if whole._joins and (apart := self.of(self._setting, is_apart=True)) is not None:
            yield apart

    def _make_numbers(self, graph: AffineGraph) -> None:
        """Make the graphs of c, A and the families' values, and compute the constant part of A.

        A is found by evaluating the predictor at seeds: at x = 0, which gives c, and at one vector
        of zeros and ones per color. No row of A has two columns of one color, so the value of a row
        at the seed of a color, minus c, is one element of A (Curtis, Powell and Reid 1974). Columns
        that depend neither on theta nor on other steps are evaluated once, here. If A is
        A' diag(s), this is done for A': see `AffineGraph.scales`.
        """
        setting, N, scales = self._setting, graph.size, graph.scales
        picked = scales.output[self._first]
        sizes = [part.stop - part.start for part in graph.parts]
        moves = np.repeat(graph.columns_move, sizes)[self._columns]

        def seeded(which: NDArray[np.bool_]) -> tuple[Variable, tuple[Index, Index, Index]]:
            """The predictor at seeds for some elements of A; positions, seeds and rows of these."""
            rows, columns = self._rows[which], self._columns[which]
            color = _colors(rows, columns, N)
            seeds = np.zeros((2 + int(color.max(initial=-1)), N))
            seeds[1 + color[columns], columns] = 1.0
            of_seeds = vectorize_graph(picked, {graph.x: pt.constant(seeds)})
            return of_seeds, (np.flatnonzero(which), 1 + color[columns], rows)

        # Elements of A, also those that multiply integrated effects: the constant ones, and what
        # gives the others.
        self._steady = np.zeros(self._columns.size)
        of_seeds, (at, level, row) = seeded(~moves)
        if at.size:
            found = np.asarray(called_once([setting.theta], of_seeds)(setting.at))
            with np.errstate(invalid="ignore"):  # c may be infinite, which `explain` says
                self._steady[at] = found[level, row] - found[0, row]
        of_seeds, self._moving = seeded(moves)
        # The number of the factor of each element of x, and of each number of A; the last is 1.
        scaled = scales.scaled
        numbers = np.full(N, scaled.size, dtype=np.intp)
        numbers[scaled] = np.arange(scaled.size)
        self._factor_of_x, self._factor_of = numbers[self._index], numbers[self._columns]
        # An intrinsic field is in x as it is, and has no mean.
        whole = [
            graph.values[k].ravel() if family.rank == family.n else pt.zeros(family.n)
            for k, family in zip(self._in_x, self._families, strict=True)
        ]
        zero = {graph.x: pt.zeros(N)}
        offset = clone_replace(pt.concatenate(whole), zero, rebuild_strict=False)
        of_values = setting.model.replace_rvs_by_values(
            [x for k in self._order for x in self._readers[k].reads]
        )
        graphs, moving = [of_seeds, offset], graph.moving
        if setting.reading.is_one_vector:  # its mean stays a function of data
            moving = [*moving, *(v for v in ancestors(graphs) if isinstance(v, SharedVariable))]
        self._is_fixed = depending(graphs, moving).isdisjoint(graphs)
        self.of_values = [graph.of_values, *of_values]
        self.theta_graphs = [*graphs, scales.factors, *setting.place(of_values)]

    @classmethod
    def may_be_cheaper(cls, setting: Setting) -> bool:
        """Whether a sparse factor can be cheaper, by the sizes alone, before the form is made.

        The dense blocks of processes bound the sparse cost from below: b² n / 3 multiplications.
        """
        latents, shapes = setting.reading.latents, setting.shapes
        if not setting.reading.frontier:
            return False
        if setting.reading.joins or setting.reading.as_sum or _has_a_field(latents):
            return True
        N = sum(int(np.prod(shape)) for shape in shapes)
        sizes = [v.type.shape for v in setting.reading.frontier]
        if any(None in shape for shape in sizes):
            return True
        E = sum(int(np.prod(shape)) for shape in sizes)
        dense = [
            int(np.prod(shape)) * shape[-1] ** 2 / 3
            for latent, shape in zip(latents, shapes, strict=True)
            if latent.field is None and latent.variances is None and shape
        ]
        return _is_cheaper(N, E, sum(dense))

    @property
    def dense_rows(self) -> int:
        """Elements of the longest column of the factor, which bounds its dense blocks."""
        return self.layout.longest

    @property
    def is_cheaper(self) -> bool:
        """Whether a factor of P costs less than one of a dense covariance of f.

        With a series or a map the answer is always yes: each is sparse, and the dense covariance of
        an intrinsic one loses digits.
        """
        reading = self._setting.reading
        if reading.joins or reading.as_sum or _has_a_field(reading.latents):
            return True
        # Dense algebra factorizes processes one by one if nothing adds their elements.
        processes = [each for each in self._families if isinstance(each, DenseBlocks)]
        are_apart = np.diff(self._pattern[0]).max(initial=0) <= 1
        are_few = sum(each.blocks for each in processes) <= MANY_PROCESSES
        if len(processes) == len(self._families) and are_apart and are_few:
            return False
        reads = np.diff(self._pattern[0]).astype(np.float64)
        gram = float((reads**2).sum())
        return _is_cheaper(self._graph.size, self._first.size, self.layout.flops, gram)

    @cached_property
    def layout(self) -> Layout:
        """Where A and the precision have elements."""
        return Layout(self._families, *self._pattern, self._sets)

    @cached_property
    def seconds(self) -> float:  # type: ignore[override]  # an attribute of other forms
        """The time of a factorization, roughly."""
        return SPARSE * self.layout.flops

    @cached_property
    def cuts(self) -> Any:  # type: ignore[override]  # emptied when densities have been made
        """The frontier's variables as graphs of eta, which here includes integrated effects."""
        return self._graph.cuts(self._eta[self._elements.read], self._elements.is_free)

    def prepare(self, densities: list[Variable]) -> list[Variable] | None:
        """The densities as graphs of f; ``None`` if one reads many elements of eta together.

        If effects are integrated out, each observation must read one element, and be log-concave:
        only then are draws of the effects given f exact.
        """
        if self._own is not None:
            density = self._by_elements(densities)
            if density is None:
                return None
            self._integrated = IntegratedEffects(
                self._setting, density, self._eta, self._scales, self.n
            )
        eta = {self._eta: self.f[self._N :]}
        densities = clone_replace(densities, eta, rebuild_strict=False)
        if self._own is not None:
            return densities
        values = {self.f: np.zeros(self.n)} | self._setting.start
        found = reads_of_densities(densities, self.f, values)
        if any((each.counts > 1).any() for each in found):
            group = joined(found)
            sets = None if group is None else sets_of(group)
            most = max(int(each.counts.max()) for each in found)
            if sets is None or most <= LARGEST_SET < sets.shape[1]:
                self._joins = not self._is_apart and most <= MOST_READ
                if sets is None or self._joins:
                    return None
            if np.diff(self._pattern[0]).max(initial=0) > MOST_OWN:
                return None
            self._sets = sets
            self.has_transport = sets.shape[1] <= LARGEST_SET
            self.__dict__.pop("layout", None)
        return densities

    def _by_elements(self, densities: list[Variable]) -> Variable | None:
        """ℓ of each element of eta, (E,); ``None`` if effects cannot be integrated out."""
        of_model = self._setting.reading.terms, self.cuts
        if not (are_log_concave(*of_model) and are_bent_slowly(*of_model)):
            return None
        if are_quadratic(*of_model):  # q is the posterior of f if they stay in x
            return None
        reading = [each for each in densities if self._eta in set(ancestors([each]))]
        values = {self._eta: np.zeros(self._first.size)} | self._setting.start
        found = reads_of(Evaluation(reading, values), self._eta, most=1)
        if not found or any(each.many.any() for each in found):
            return None
        index = np.concatenate([each.first for each in found])
        terms = pt.concatenate([each.ravel() for each in reading])
        if np.array_equal(index, np.arange(self._first.size)):
            return terms
        # A term that reads no element is a number: it may be added to any of them.
        return pt.inc_subtensor(pt.zeros(self._first.size)[np.maximum(index, 0)], terms)

    def likelihood(self, graphs: LikelihoodFunctions) -> LikelihoodFunctions:
        """The likelihood of f, with effects integrated out if there are some."""
        return graphs if self._integrated is None else self._integrated

    def effects(self, theta: Array) -> Effects | None:
        """The effects that are integrated out, if there are some."""
        return None if self._integrated is None else self._integrated.effects(theta)

    def _scales(self, theta: Array) -> Array:
        """Standard deviations of the effects as eta has them, (E,); NaN if there is no prior."""
        numbers = self._numbers_at(theta)
        return np.full(self._first.size, np.nan) if numbers is None else numbers.d

    @property
    def of_eta(self) -> slice:
        """Elements of f after x."""
        return slice(self._N, self.n)

    def sets(self) -> Index | None:
        """Elements of eta that observations read together."""
        return self._sets

    def _numbers(self, theta: Array) -> list[Array]:
        """The values of ``theta_graphs``; those of the predictor are computed once if they can."""
        fixed = self._at_seeds
        return [*fixed, *(self._moving_numbers(theta) if self.theta_graphs[len(fixed) :] else ())]

    @cached_property
    def _at_seeds(self) -> list[Array]:
        """The predictor at the seeds and the offset, unless they depend on theta or other steps."""
        if not self._is_fixed:
            return []
        theta, at = self._setting.theta, self._setting.at
        return list(called_once([theta], list(self.theta_graphs[:2]))(at))

    @cached_property
    def _moving_numbers(self) -> Callable[[Array], list[Array]]:
        graphs = list(self.theta_graphs[len(self._at_seeds) :])
        return self._setting.compiled([self._setting.theta], graphs)

    @cached_property
    def _values(self) -> Callable[[Array, Array], list[Array]]:
        """x and theta -> the latent variables, in the model's own shapes."""
        return self._setting.compiled([self._graph.x, self._setting.theta], self._graph.values)

    @cached_property
    def _innovations(self) -> Callable[..., list[Array]]:
        """Theta and PyMC's values of the latents -> x and the effects, one array per latent.

        They have no mean, and are cumulative sums where x has these.
        """
        setting = self._setting
        latents = setting.reading.latents
        both = setting.model.replace_rvs_by_values([y for x in latents for y in (x.node, x.mean)])
        both = setting.place(both)
        x = []
        triples = zip(latents, both[::2], both[1::2], self._readers, strict=True)
        for latent, node, mean, reader in triples:
            z = node if isinstance(latent.field, Series) else node - mean
            is_whole = reader.family.rank < reader.family.n
            if isinstance(latent.zero_sum, ZeroSumTransform) and not is_whole:
                z = setting.model.rvs_to_values[latent.rv]
            if reader.sums is not None:
                for _ in reader.sums.later:
                    z = pt.cumsum(z, axis=reader.sums.axis)
                z = reader.sums.flat(z)
            x.append(z)
        values = [setting.model.rvs_to_values[latent.rv] for latent in latents]
        return setting.compiled_if_repeated([setting.theta, *values], [each.ravel() for each in x])

    def forget(self) -> None:
        """Clear the cached numbers at theta."""
        self._last.forget()

    def is_infinite(self, theta: Array, f: Array) -> bool:
        """Whether c or A is not finite at theta; f is NaN there."""
        return not all(np.isfinite(each).all() for each in self._numbers(theta)[:3])

    def sum_at(self, theta: Array) -> SumAt | None:
        """c, A and the families."""
        numbers = self._numbers_at(theta)
        return None if numbers is None else numbers.of_x

    def _numbers_at(self, theta: Array) -> _Numbers | None:
        return self._last.at(theta, self._made_at)

    def _made_at(self, theta: Array) -> _Numbers | None:
        """c, A, families and effects at theta; ``None`` if one is not finite or not proper."""
        rows, offset, factors, *values = self._numbers(theta)
        affine = self._fixed_affine if self._is_fixed else self._affine_of(rows, offset)
        if affine is None or not np.isfinite(factors).all():
            return None
        families = []
        for _, family in self._families_at(values):
            if family is None:
                return None
            families.append(family)
        in_x = families[: len(self._in_x)]
        factors = np.append(factors, 1.0)
        scale = None if factors.size == 1 else factors[self._factor_of_x]
        at = SumAt(affine.c, affine.offset, affine.of_x, in_x, scale, self._is_steady)
        if self._own is None:
            return _Numbers(at, np.zeros(0), np.zeros(self._first.size), affine.A, factors)
        (variances,) = families[-1].values
        sd = np.sqrt(variances)
        own = ~self._is_of_x
        d = np.zeros(self._first.size)
        d[self._rows[own]] = affine.A[own] * factors[self._factor_of[own]]
        d *= sd[self._own.read]
        return _Numbers(at, sd, d, affine.A, factors)

    def _affine_of(self, rows: Array, offset: Array) -> _Affine | None:
        """c and A from the predictor at the seeds; ``None`` if a number is not finite."""
        if not (np.isfinite(rows).all() and np.isfinite(offset).all()):
            return None
        A = self._numbers_of_A(rows)
        of_x = A
        if self._own is not None:
            of_x = self._steady_of_x if self._is_steady else A[self._is_of_x]
        return _Affine(rows[0].copy(), offset, A, of_x)

    def _numbers_of_A(self, rows: Array) -> Array:
        """The numbers of A', from the predictor at the seeds, whose first row is c."""
        if self._is_steady:
            return self._steady
        at, level, row = self._moving
        A = self._steady.copy()
        A[at] = rows[level, row] - rows[0, row]
        return A

    @property
    def _is_steady(self) -> bool:
        """Whether A' is the same at every theta."""
        return self._moving[0].size == 0

    @cached_property
    def _steady_of_x(self) -> Array:
        return self._steady[self._is_of_x]

    @cached_property
    def _fixed_affine(self) -> _Affine | None:
        return self._affine_of(*self._at_seeds)

    def _families_at(self, values: list[Array]) -> Iterator[tuple[Latent, FamilyAt | None]]:
        """The latent variables with their families, given their values; the effects come last."""
        for k in self._order:
            count = len(self._readers[k].reads)
            yield self._setting.reading.latents[k], self._readers[k].family.at(*values[:count])
            values = values[count:]

    @cached_property
    def _gradient(self) -> Callable[..., Array]:
        """Theta and weights of ``theta_graphs`` -> the derivatives of their sum."""
        weights = [v.type() for v in self.theta_graphs]
        pairs = zip(self.theta_graphs, weights, strict=True)
        total = sum(pt.sum(v * w) for v, w in pairs)
        theta = self._setting.theta
        gradient = pt.grad(total, theta, disconnected_inputs="ignore")
        return self._setting.compiled([theta, *weights], gradient)

    def sum_vjp(
        self, theta: Array, c: Array, offset: Array, A: Array, families: list[list[Array]]
    ) -> Array:
        """Derivatives in theta of weighted c, offset, A and values of families: see `SumModel`."""
        numbers = self._numbers_at(theta)
        assert numbers is not None
        count = numbers.factors.size
        of_factors = np.bincount(self._factor_of, A * numbers.A, minlength=count)[:-1]
        A = A * numbers.factors[self._factor_of]
        (at, level, row), E = self._moving, c.size
        levels = 1 + int(level.max(initial=0))
        rows = np.zeros((levels, E))
        rows[level, row] = A[at]  # each number of A' has a place of its own
        rows[0] = c - np.bincount(row, A[at], minlength=E)
        of_values = [each for weights in families for each in weights]
        return self._gradient(theta, rows, offset, of_factors, *of_values)

    def prior_of(self, model: FormModel) -> PriorAt:
        """A sum of families."""
        return partial(SumPrior.at, self)

    def f_of(self, prior_at: PriorAt, theta: Array, values: list[Array]) -> Array:
        """x and c + A x."""
        prior = prior_at(theta)
        if not isinstance(prior, SumPrior):
            return np.full(self.n, np.nan)
        innovations = self._innovations(theta, *values)
        x = np.concatenate([innovations[k] for k in self._in_x])
        f = prior.expand(prior.state(x))
        f[: self._N] += prior.numbers.offset
        f[self._N :] += prior.numbers.c
        return f

    def values_of(self, rng: np.random.Generator, prior: Prior, f: Array) -> list[Array]:
        """The part x of f in PyMC's form, and effects, which are drawn given f and y."""
        assert isinstance(prior, SumPrior)
        x = f[: self._N] - prior.numbers.offset
        if self._own is None:
            return self._latents(prior, x)
        numbers = self._numbers_at(prior.theta)
        assert numbers is not None
        assert self._integrated is not None
        # An effect that nothing reads has its prior.
        w = rng.standard_normal(numbers.sd.size)
        has = self._own.read >= 0
        w[self._own.read[has]] = self._integrated.draw(rng, f, prior.theta)[has]
        return self._latents(prior, x, numbers.sd * w)

    def _latents(self, prior: SumPrior, x: Array, effects: Array | None = None) -> list[Array]:
        """The model's latent variables from x and from the effects, zero by default."""
        both = np.zeros(self._graph.size)
        both[self._index] = x
        if self._own is not None and effects is not None:
            both[self._graph.parts[self._own.latent]] = effects
        values = [np.array(each, dtype=np.float64) for each in self._values(both, prior.theta)]
        latents = self._setting.reading.latents
        for k, at, part in zip(self._in_x, prior.numbers.families, self._parts, strict=True):
            if latents[k].is_whitened:  # the model has ν with L ν = x
                nu = at.factor.multiply_transposed(x[part])
                values[k] = nu.reshape(values[k].shape)
        return values

    def probe(self, prior: Prior, rng: np.random.Generator) -> Probe | None:
        """Directions of the latents, f = B x: Q⁻¹ Bᵀ w, a draw R⁻ᵀ ξ, and one of the effects."""
        assert isinstance(prior, SumPrior)
        mean = prior.mean[: self._N] - prior.numbers.offset
        means = self._latents(prior, mean)
        # The first is almost only of the largest variances: see `vectors_to_probe`.
        halves = {
            "K w": prior.multiply_transposed(rng.standard_normal(self.n)),
            "R⁻ᵀ ξ": rng.standard_normal(prior.rank),
        }
        directions = []
        for name, half in halves.items():
            f = prior.multiply(half)
            there = self._latents(prior, mean + f[: self._N])
            steps = [b - a for a, b in zip(means, there, strict=True)]
            directions.append(Direction(name, steps, float(half @ half), f))
        if self._own is not None:
            numbers = self._numbers_at(prior.theta)
            assert numbers is not None
            xi = rng.standard_normal(numbers.sd.size)
            there = self._latents(prior, mean, numbers.sd * xi)
            steps = [b - a for a, b in zip(means, there, strict=True)]
            directions.append(Direction("of the effects", steps, float(xi @ xi), None))
        return Probe(means, directions)

    def log_likelihood_of(self, model: Any, latents: list[Array], f: Array, theta: Array) -> float:
        """ℓ with the given effects, not integrated out."""
        if self._integrated is None or self._own is None:
            return super().log_likelihood_of(model, latents, f, theta)
        numbers = self._numbers_at(theta)
        assert numbers is not None
        w = self._innovations(theta, *latents)[self._own.latent] / numbers.sd
        w = np.where(self._own.read >= 0, w[self._own.read], 0.0)
        return self._integrated.log_likelihood_with(w, f, theta)

    def describe(self) -> list[str]:
        """A line per family, and what the precision costs."""
        layout = self.layout
        names = self._setting.reading.latents
        lines = [
            f"eta ({layout.E}) = c(theta) + A(theta) x ({layout.N}); A has {layout.columns.size} "
            f"non-zeros, the factor of the precision {layout.pattern.size}"
        ]
        for k, (latent, reader) in enumerate(zip(names, self._readers, strict=True)):
            is_own = self._own is not None and k == self._own.latent
            kind = "one per element of eta, integrated out" if is_own else reader.kind
            lines.append(f"{latent.rv.name} ({reader.family.n}): {kind}")
        return lines

    def explain(self, model: FormModel, prior_at: PriorAt, theta: Array, where: str) -> str | None:
        """Say what is not finite, or which family has no proper prior."""
        if prior_at(theta) is not None:
            return None
        rows, offset, factors, *values = self._numbers(theta)
        what = f"The linear predictor of {self.label!r}"
        if (bad := np.flatnonzero(~np.isfinite(rows).all(axis=0))).size:
            k = bad[self._first[bad].argmin()]
            value = next(v for v in rows[:, k] if not np.isfinite(v))
            return refusals.not_finite(what, value, int(self._first[k]), where)
        of_A = np.append(factors, 1.0)[self._factor_of]
        if (bad := np.flatnonzero(~np.isfinite(of_A))).size:
            k = bad[self._first[self._rows[bad]].argmin()]
            return refusals.not_finite(what, of_A[k], int(self._first[self._rows[k]]), where)
        if not np.isfinite(offset).all():
            return f"The mean of {self.label!r} is not finite {where}."
        latent = next(latent for latent, family in self._families_at(values) if family is None)
        if latent.field is not None:
            return latent.field.explain(where)
        return (
            f"The covariance of {latent.rv.name!r} is not positive definite, or not finite, "
            f"{where}. Start its scale away from both, as with initval=1."
        )


def _is_cheaper(N: int, E: int, flops: float, gram: float = 0.0) -> bool:
    """Whether a sparse factor with so many multiplications beats a dense form.

    Aᵀ A takes as many as ``gram``, most of them by BLAS. A dense form has n = min(N, E)
    coordinates: n² E multiplications to compute its n × n matrix, and n³ to factorize it.
    """
    n = min(N, E)
    sparse = OVERHEAD + SPARSE * flops + DENSE * gram
    return sparse < 0.5 * OVERHEAD + DENSE * float(n) ** 2 * (n + E)


def _is_constrained(latent: Latent) -> bool:
    """Whether x has all elements of a variable, under constraints, instead of its coordinates.

    An intrinsic field does. So does a `pymc.ZeroSumNormal` with one scale, if this is faster: each
    of its elements reads all coordinates, which makes dense blocks of the precision, while k
    constraints of N elements take N k² dense multiplications.
    """
    if not isinstance(latent.zero_sum, ZeroSumTransform):
        return latent.zero_sum is not None
    assert latent.variances is not None
    shape = shape_of(latent.rv)
    summed = [shape[axis] for axis in latent.zero_sum.zerosum_axes]
    N, rank = math.prod(shape), math.prod(length - 1 for length in summed)
    blocks = N // math.prod(summed)
    k = N - blocks * rank
    has_one_scale = all(length == 1 for length in latent.variances.type.shape)
    return has_one_scale and DENSE * N * k**2 < SPARSE * blocks * rank**3 / 3


def _has_a_field(latents: Sequence[Latent]) -> bool:
    """Whether a latent has a sparse precision of its own, such as a series or a map."""
    return any(latent.field is not None for latent in latents)


class _Own(NamedTuple):
    """Observation-level effects: each element of eta reads one of its own, or none.

    Attributes
    ----------
    latent : int
        Which latent variable they are.
    read : ndarray of int, shape (E,)
        Which of them each element of eta reads; −1 if it reads none.
    """

    latent: int
    read: Index


class _Affine(NamedTuple):
    """eta = c + A' (s ∘ x) before the factors s, with effects in x, and what is added to x in f.

    ``of_x`` has the numbers of A' without the effects' columns.
    """

    c: Array
    offset: Array
    A: Array
    of_x: Array


class _Numbers(NamedTuple):
    """The numbers at one theta.

    Attributes
    ----------
    of_x : SumAt
        c, A and the families of x.
    sd : ndarray
        Standard deviations of the effects in the model; empty if there are none.
    d : ndarray, shape (E,)
        For each element of eta, the standard deviation of its effect times its coefficient; 0 if it
        reads no effect.
    A, factors : ndarray
        The numbers of A', and the different factors s, the last of them 1: see `scales_of`.
    """

    of_x: SumAt
    sd: Array
    d: Array
    A: Array
    factors: Array


def _reads(elements: Elements) -> tuple[Index, Index]:
    """Rows and columns of the elements of A, row by row: which eta_i reads which latent."""
    pattern = elements.reads.pattern[elements.first]
    pattern.sort_indices()
    rows = np.repeat(np.arange(elements.first.size), np.diff(pattern.indptr))
    return rows, pattern.indices.astype(np.intp)


def _most_own(elements: Elements) -> int:
    """The most elements of x that one eta_i reads, without those that every eta_i reads."""
    rows, columns = _reads(elements)
    is_own = np.bincount(columns)[columns] < elements.first.size
    return int(np.bincount(rows[is_own]).max(initial=0))


def _own_effects(
    setting: Setting, graph: AffineGraph, elements: Elements, readers: Sequence[_Reader]
) -> _Own | None:
    """The latent variable to integrate out: the largest that is observation-level effects.

    ``None`` if there is none, or if integration is refused: because the predictors are joined, the
    caller does not want it, nothing would be left in x, or theta has too many components.
    """
    latents = setting.reading.latents
    if setting.reading.joins or not setting.reading.integrates or len(latents) < 2:
        return None
    if setting.at.size > MANY_HYPERPARAMETERS:
        return None  # theta moves by the evidence's gradient, which a quadrature does not have
    rows, columns = _reads(elements)
    found = None
    for k, (latent, reader, part) in enumerate(zip(latents, readers, graph.parts, strict=True)):
        others = [each.mean for each in latents if each is not latent]
        if not isinstance(reader.family, Independent) or latent.node in ancestors(others):
            continue
        if latent.zero_sum is not None or latent.is_whitened:
            continue
        mine = (columns >= part.start) & (columns < part.stop)
        at = rows[mine]
        which = columns[mine] - part.start
        if at.size < 2 or np.unique(at).size < at.size or np.unique(which).size < at.size:
            continue
        if found is None or at.size > (found.read >= 0).sum():
            read = np.full(elements.first.size, -1, dtype=np.intp)
            read[at] = which
            found = _Own(k, read)
    return found


class _Reader(NamedTuple):
    """A family, and the graphs whose values it takes.

    ``kind`` describes it to the user. ``sums`` says of what x has cumulative sums, if it has.
    """

    family: Family
    reads: list[Variable]
    kind: str
    sums: CumulativeSums | None = None


def _family(
    latent: Latent, shape: tuple[int, ...], sums: CumulativeSums | None, *, is_constrained: bool
) -> _Reader | None:
    """The family of a latent variable, or of its cumulative sums; ``None`` if it has none."""
    n = int(np.prod(shape))
    if latent.through is not None or n == 0:
        return None
    if sums is not None:
        return _of_sums(latent, shape, sums)
    if latent.field is not None:
        family = latent.field.family(n)
        constraints = n - family.rank
        kind = f"intrinsic, {constraints} constraint(s)" if constraints else latent.field.kind
        return _Reader(family, latent.field.reads, kind)
    if is_constrained:
        assert isinstance(latent.zero_sum, ZeroSumTransform)
        assert latent.variances is not None
        structure = Structure.zero_sum(shape, len(latent.zero_sum.zerosum_axes))
        sigma = pt.sqrt(latent.variances).reshape(())
        kind = f"independent, {n - structure.rank} constraint(s)"
        return _Reader(IntrinsicFamily(structure), [sigma], kind)
    if latent.variances is not None:
        variances = pt.broadcast_to(latent.variances, shape).ravel()
        return _Reader(Independent(n), [variances], "independent")
    if latent.is_whitened and len(shape) != 1:
        return None
    b = shape[-1]
    cov = latent.cov
    assert cov is not None
    if all(length == 1 for length in cov.type.shape[:-2]):  # all vectors share one
        cov = cov.reshape((b, b))
    else:  # one for each vector of a batch, or for those along some of its axes
        cov = pt.broadcast_to(cov, (*shape, b))
    return _Reader(DenseBlocks(n // b, b), [cov], f"{n // b} dense of {b}")


def _of_sums(latent: Latent, shape: tuple[int, ...], sums: CumulativeSums) -> _Reader:
    """The family of cumulative sums s of a series z, T z = u + ε.

    z = D s with first differences D, so T D s = u + ε: T has one more diagonal for each sum. The
    sums of several series, one after another, have no differences between two series.
    """
    n = int(np.prod(shape))
    if isinstance(latent.field, Series):
        (T, drive), width = latent.field.reads, latent.field.width
    else:
        T = (1.0 / pt.sqrt(sums.flat(pt.broadcast_to(latent.variances, shape))))[None]
        drive, width = pt.zeros(n), 1
    length = shape[sums.axis]
    is_within = np.arange(1, n) % length > 0
    for _ in sums.later:
        after = pt.concatenate([T[:, 1:] * is_within, pt.zeros((width, 1))], axis=1)
        nothing = pt.zeros((1, n))
        T = pt.concatenate([T, nothing]) - pt.concatenate([nothing, after])
        width += 1
    several = "" if n == length else f" of {n // length} series"
    kind = f"cumulative sums{several}, {len(sums.later)} times"
    return _Reader(BandedSeries(n, width, length), [T, drive], kind, sums)


def _colors(rows: Index, columns: Index, N: int) -> Index:
    """A color of each column, so that no row has two columns of one color; −1 for empty columns.

    Each column in turn gets the first color that is free in all of its rows. A bit of ``taken`` is
    a color that a row has already.
    """
    color = np.full(N, -1, dtype=np.intp)
    taken = [0] * (int(rows.max(initial=-1)) + 1)
    order = np.argsort(columns, kind="stable")
    rows, columns = rows[order], columns[order]
    begins = [*np.flatnonzero(np.diff(columns, prepend=-1)), columns.size]
    for begin, end in pairwise(begins):
        mine = rows[begin:end].tolist()
        used = 0
        for row in mine:
            used |= taken[row]
        free = 0
        while used >> free & 1:
            free += 1
        for row in mine:
            taken[row] |= 1 << free
        color[columns[begin]] = free
    return color
