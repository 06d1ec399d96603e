"""Which elements of a vector the elements of a graph read, whatever else they depend on.

It follows from the graph, one rule per operation. Only shapes and indices are evaluated. An
operation without a rule reads everything; so does an index that theta moves.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor.scalar as ps

from numpy.typing import NDArray
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors, toposort
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import MakeVector
from pytensor.tensor.elemwise import CAReduce, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import All, Dot, Sum
from pytensor.tensor.rewriting.ofg import inline_ofg_node
from pytensor.tensor.special import LogSoftmax, Softmax
from pytensor.tensor.subtensor import AdvancedSubtensor, IncSubtensor, Subtensor
from scipy.sparse import csr_array, diags_array, vstack
from scipy.sparse.csgraph import connected_components

from pymc_lgm.linalg import Array
from pymc_lgm.model.compiling import called_once
from pymc_lgm.model.operations import (
    ARRANGING,
    OF_SHAPES,
    SETTING,
    SHAPING,
    bare,
    core_of,
    depending,
    is_affine_elementwise,
    moved,
    performed,
    sources,
)

__all__ = [
    "MOST",
    "Reads",
    "groups_of",
    "joined",
    "reads_of",
    "reads_of_densities",
    "sets_of",
    "terms_of",
    "within",
]

Variable = Any
Index = NDArray[np.intp]

MOST = 12
"""Elements that an observation may read: expectations over more take too many nodes."""


@dataclass(frozen=True, eq=False)
class Reads:
    """What each element of a variable reads.

    Attributes
    ----------
    pattern : csr_array of bool, shape (size, n)
        Which elements of the source; no element where they are too many.
    many : ndarray of bool, shape (size,)
        Where they are more than `most`.
    most : int
    """

    pattern: csr_array
    many: NDArray[np.bool_]
    most: int

    @classmethod
    def of(cls, pattern: csr_array, many: NDArray[np.bool_], most: int) -> Reads:
        """With rows that have become too long put among those that read too many."""
        pattern = csr_array(pattern, dtype=bool)
        pattern.sum_duplicates()
        many = many | (np.diff(pattern.indptr) > most)
        if many.any():
            pattern = csr_array(diags_array((~many).astype(np.float64)) @ pattern, dtype=bool)
            pattern.eliminate_zeros()
        return cls(pattern, many, most)

    @classmethod
    def nothing(cls, size: int, n: int, most: int) -> Reads:
        """Of what does not depend on the source."""
        return cls(csr_array((size, n), dtype=bool), np.zeros(size, dtype=bool), most)

    def equals(self, other: Reads) -> bool:
        """Whether the same is read."""
        same_size = self.pattern.shape == other.pattern.shape
        return bool(
            same_size
            and np.array_equal(self.many, other.many)
            and (self.pattern != other.pattern).nnz == 0
        )

    def take(self, index: Index) -> Reads:
        """Of elements of it."""
        return Reads(self.pattern[index.ravel()], self.many[index.ravel()], self.most)

    def gathered(self, index: Index, size: int) -> Reads:
        """Of ``size`` elements, of which each reads what those with its index do."""
        one = np.ones(index.size, dtype=np.int32)
        G = csr_array((one, (index.ravel(), np.arange(index.size))), (size, index.size))
        many = np.zeros(size, dtype=bool)
        many[index.ravel()[self.many]] = True
        return Reads.of(G @ self.pattern.astype(np.int32), many, self.most)

    def beside(self, other: Reads) -> Reads:
        """Of elements that read what both read."""
        return Reads.of(self.pattern + other.pattern, self.many | other.many, self.most)

    @property
    def first(self) -> Index:
        """The first element that each reads; −1 if it reads none, or too many."""
        count = np.diff(self.pattern.indptr)
        at = np.minimum(self.pattern.indptr[:-1], max(self.pattern.nnz - 1, 0))
        found = self.pattern.indices[at] if self.pattern.nnz else np.zeros(count.size, dtype=int)
        return np.where(count > 0, found, -1).astype(np.intp)

    @property
    def counts(self) -> Index:
        """How many elements each reads, more than `most` where they are too many."""
        return np.where(self.many, self.most + 1, np.diff(self.pattern.indptr)).astype(np.intp)


def reads_of(
    outputs: Sequence[Variable],
    source: Variable,
    values: Mapping[Variable, Array],
    *,
    elements: Index | None = None,
    most: int = MOST,
) -> list[Reads]:
    """Find which elements of a vector each element of some variables reads.

    Parameters
    ----------
    outputs : sequence of variable
    source : variable
        A vector.
    values : mapping
        A value of the source and of all other inputs of the graph: shapes are evaluated there.
        What is neither, constants and shared variables that are not in it, does not move.
    elements : ndarray of int, optional
        Which elements of the source are asked for; by default all.
    most : int

    Returns
    -------
    list of Reads
        Of each output, raveled.

    Examples
    --------
    >>> import numpy as np
    >>> import pytensor.tensor as pt
    >>> f, theta = pt.vector("f", shape=(4,)), pt.scalar("theta")
    >>> (found,) = reads_of([f[1:] + theta * f[:-1]], f, {f: np.zeros(4), theta: np.zeros(())})
    >>> found.pattern.toarray().astype(int)
    array([[1, 1, 0, 0],
           [0, 1, 1, 0],
           [0, 0, 1, 1]])
    """
    return _Walk(outputs, source, values, elements, most).found()


def joined(reads: Sequence[Reads]) -> Index | None:
    """Find the smallest sets of elements of the source that nothing joins with others.

    Parameters
    ----------
    reads : sequence of Reads
        Of the same source.

    Returns
    -------
    ndarray of int, shape (n,), or None
        In which set each element of the source is. ``None`` if something reads too many.
    """
    if any(each.many.any() for each in reads):
        return None
    rows = vstack([each.pattern for each in reads], format="csr")
    count, n = rows.shape
    # A graph of elements and of what reads them: the sets are its components.
    below = csr_array((rows.data, rows.indices, rows.indptr), shape=(count, n + count))
    across = vstack([csr_array((n, n + count), dtype=bool), below], format="csr")
    _, label = connected_components(across, directed=False)
    _, group = np.unique(label[:n], return_inverse=True)
    return group.astype(np.intp)


def within(reads: Reads, group: Index) -> Index | None:
    """In which set what each element reads is, the first if it is nothing; ``None``: in several."""
    if reads.many.any():
        return None
    row = np.repeat(np.arange(reads.many.size), np.diff(reads.pattern.indptr))
    first = np.where(reads.first >= 0, group[reads.first], 0).astype(np.intp)
    return first if (group[reads.pattern.indices] == first[row]).all() else None


def sets_of(group: Index) -> Index | None:
    """Sets (G, s), as `SiteBlocks` has them, of which each f_i is in one.

    ``None`` if one has more than `MOST` elements.
    """
    sizes = np.bincount(group)
    if sizes.max() > MOST:
        return None
    sets = np.full((sizes.size, sizes.max()), -1, dtype=np.intp)
    order = np.argsort(group, kind="stable")
    begins = np.cumsum(sizes) - sizes
    sets[group[order], np.arange(group.size) - begins[group[order]]] = order
    return sets


def groups_of(sets: Index, n: int) -> Index:
    """In which set each f_i is."""
    group = np.empty(n, dtype=np.intp)
    g, slot = np.nonzero(sets >= 0)
    group[sets[g, slot]] = g
    return group


def reads_of_densities(
    densities: Sequence[Variable], f: Variable, values: Mapping[Variable, Array]
) -> list[Reads]:
    """Which elements of f each term of some log densities reads."""
    reading = [density for density in densities if f in set(ancestors([density]))]
    terms = [term for density in reading for term in terms_of(density, f)]
    with np.errstate(all="ignore"):
        return reads_of(terms, f, values)


def terms_of(density: Variable, source: Variable) -> list[Variable]:
    """Find variables such that a density is a sum of functions, one for each element of each.

    Sums and multiples are taken apart, and so is a check of parameters: a density that is zero
    where one of several conditions does not hold is a product of the density and of conditions.
    """
    depends = depending([density], [source])
    found: dict[Variable, None] = {}
    todo = [(density, False)]
    seen: set[tuple[Variable, bool]] = set()
    while todo:
        v, is_condition = todo.pop()
        if (v, is_condition) in seen or v not in depends:
            continue
        seen.add((v, is_condition))
        inner = None
        if v.owner is not None:
            inner = _conditions(v.owner) if is_condition else _summands(v.owner, depends)
        if inner is None:
            found[v] = None
        else:
            todo += inner
    return list(found)


Parts = list[tuple[Variable, bool]] | None
"""Variables that another is made of, and whether each is a condition."""


def _summands(node: Any, depends: Collection[Variable]) -> Parts:
    """What a result is the sum of; ``None`` if it is taken as it is."""
    op, (first, *others) = node.op, node.inputs
    if isinstance(op, ARRANGING):  # an element that is repeated counts as often
        return [(first, False)]
    if isinstance(op, CheckAndRaise):
        return [(first, False), *((v, True) for v in others)]
    if isinstance(op, Sum | MakeVector):
        return [(v, False) for v in node.inputs]
    if not isinstance(op, Elemwise):
        return None
    if is_affine_elementwise(op.scalar_op, [v in depends for v in node.inputs]):
        return [(v, False) for v in node.inputs]
    if isinstance(op.scalar_op, ps.Switch) and _is_minus_infinity(others[1]):
        return [(first, True), (others[0], False)]
    return None


def _conditions(node: Any) -> Parts:
    """Conditions that all have to hold, so that one does; ``None`` if it is taken as it is."""
    op = node.op
    if isinstance(op, ARRANGING):
        return [(node.inputs[0], True)]
    both = isinstance(op, Elemwise) and isinstance(op.scalar_op, ps.AND)
    if both and all(v.dtype == "bool" for v in node.inputs):
        return [(v, True) for v in node.inputs]
    if isinstance(op, All | MakeVector | CheckAndRaise):
        return [(v, True) for v in node.inputs]
    return None


def _is_minus_infinity(v: Variable) -> bool:
    v = bare(v)
    return isinstance(v, Constant) and bool(np.all(v.data == -np.inf))


class _Walk:
    """Through a graph, from the source on."""

    def __init__(
        self,
        outputs: Sequence[Variable],
        source: Variable,
        values: Mapping[Variable, Array],
        elements: Index | None,
        most: int,
    ):
        self._most = most
        outputs = _inlined(outputs)
        self._outputs = outputs
        self._moving = depending(outputs, list(values))
        inputs = [v for v in ancestors(outputs) if v.owner is None]
        self._varying = depending(outputs, [v for v in inputs if not isinstance(v, Constant)])
        touched = depending(outputs, [source])
        nodes = [node for node in toposort(outputs) if not touched.isdisjoint(node.inputs)]
        nodes = [node for node in nodes if not isinstance(node.op, OF_SHAPES)]
        inner = dict.fromkeys(v for node in nodes for v in (*node.inputs, *node.outputs))
        wanted = [v for v in (*inner, *outputs) if not isinstance(v, Constant)]
        inputs = [v for v in values if not isinstance(v, SharedVariable)]
        with np.errstate(all="ignore"):
            known = called_once(inputs, wanted)(*(values[v] for v in inputs))
        self._values = dict(zip(wanted, known, strict=True))
        n = int(np.size(values[source]))
        kept = np.arange(n) if elements is None else np.asarray(elements)
        self._n = kept.size
        one = np.ones(kept.size, dtype=bool)
        start = csr_array((one, (kept, np.arange(kept.size))), shape=(n, kept.size))
        self._reads = {source: Reads.of(start, np.zeros(n, dtype=bool), most)}
        for node in nodes:
            made = self._made(node)
            self._reads |= zip(node.outputs, made, strict=True)

    def found(self) -> list[Reads]:
        """Of each output."""
        return [self._of(v) for v in self._outputs]

    def _of(self, v: Variable) -> Reads:
        if v not in self._reads:
            return Reads.nothing(int(np.size(self._value(v))), self._n, self._most)
        return self._reads[v]

    def _value(self, v: Variable) -> Any:
        return v.data if isinstance(v, Constant) else self._values[v]

    def _shape(self, v: Variable) -> tuple[int, ...]:
        return np.shape(self._value(v))

    def _numbers(self, v: Variable) -> Index:
        """The elements of a variable, numbered."""
        shape = self._shape(v)
        return np.arange(int(np.prod(shape, dtype=np.intp))).reshape(shape)

    def _everything(self, node: Any) -> list[Reads]:
        """Each element of the results reads all that an input does."""
        whole = self._union([self._all_of(v) for v in node.inputs])
        sizes = [int(np.prod(self._shape(v), dtype=np.intp)) for v in node.outputs]
        return [whole.take(np.zeros(size, dtype=np.intp)) for size in sizes]

    def _all_of(self, v: Variable) -> Reads:
        """One element that reads all that those of a variable do."""
        each = self._of(v)
        return each.gathered(np.zeros(each.many.size, dtype=np.intp), 1)

    def _union(self, each: Sequence[Reads]) -> Reads:
        total = each[0]
        for other in each[1:]:
            total = total.beside(other)
        return total

    def _is_fixed(self, variables: Sequence[Variable]) -> bool:
        return self._moving.isdisjoint(variables)

    def _is_constant(self, v: Variable) -> bool:
        return v not in self._varying

    def _made(self, node: Any) -> list[Reads]:
        op = node.op
        if count := moved(op, node.inputs):
            return self._moved(node, count)
        if isinstance(op, Elemwise):
            return self._elementwise(node)
        if isinstance(op, CAReduce):
            return [self._along(node.inputs[0], op.axis, keep=False)]
        if isinstance(op, CumOp):
            axis = None if op.axis is None else (op.axis,)
            return [self._along(node.inputs[0], axis, keep=True)]
        if isinstance(op, Softmax | LogSoftmax):
            return [self._along(node.inputs[0], op.axis, keep=True)]
        if isinstance(core_of(op), Dot):
            return [self._product(node)]
        return self._everything(node)

    def _moved(self, node: Any, count: int) -> list[Reads]:
        """Of an operation that moves elements of its first inputs."""
        says_where = not isinstance(node.op, (*SHAPING, CheckAndRaise))
        if says_where and not self._is_fixed(node.inputs[count:]):
            # Which elements they are may change.
            return self._everything(node)
        if isinstance(node.op, SETTING) and not node.op.set_instead_of_inc:
            return self._added(node)
        pool = [self._of(v) for v in node.inputs[:count]]
        pattern = vstack([each.pattern for each in pool], format="csr")
        both = Reads(pattern, np.concatenate([each.many for each in pool]), self._most)
        return [both.take(each) for each in sources(node, self._shape, self._value)]

    def _added(self, node: Any) -> list[Reads]:
        """Of elements that are added to others, at fixed places."""
        base, value, *index = node.inputs
        pick = Subtensor if isinstance(node.op, IncSubtensor) else AdvancedSubtensor
        numbers = self._numbers(base)
        reading = pick(node.op.idx_list).make_node(base, *index)
        (places,) = performed(reading, [numbers, *map(self._value, index)])
        places = np.asarray(places).astype(np.intp)
        values = np.broadcast_to(self._numbers(value), places.shape)
        added = self._of(value).take(values).gathered(places, numbers.size)
        return [self._of(base).beside(added)]

    def _elementwise(self, node: Any) -> list[Reads]:
        shape = np.broadcast_shapes(*map(self._shape, node.inputs))
        total = Reads.nothing(int(np.prod(shape, dtype=np.intp)), self._n, self._most)
        inputs = list(node.inputs)
        if isinstance(node.op.scalar_op, ps.Second):
            inputs = inputs[1:]
        kept = np.ones(shape, dtype=bool)
        if isinstance(node.op.scalar_op, ps.Mul):
            for v in filter(self._is_constant, inputs):
                kept = kept & (self._value(v) != 0.0)
        for v in inputs:
            if v in self._reads:
                each = self._of(v)
                if self._shape(v) != shape:
                    each = each.take(np.broadcast_to(self._numbers(v), shape))
                total = total.beside(each)
        if not kept.all():
            # An element that is multiplied by zero is not read.
            keep = diags_array(kept.ravel().astype(np.float64))
            pattern = csr_array(keep @ total.pattern, dtype=bool)
            pattern.eliminate_zeros()
            total = Reads(pattern, total.many & kept.ravel(), self._most)
        return [total] * len(node.outputs)

    def _along(self, v: Variable, axes: Any, *, keep: bool) -> Reads:
        """All along some axes: for each that is left, or for each element."""
        shape = self._shape(v)
        along = range(len(shape)) if axes is None else np.atleast_1d(axes)
        along = [axis % max(len(shape), 1) for axis in along]
        left = tuple(1 if axis in along else length for axis, length in enumerate(shape))
        size = int(np.prod(left, dtype=np.intp))
        index = np.broadcast_to(np.arange(size).reshape(left), shape)
        total = self._of(v).gathered(index, size)
        return total.take(index) if keep else total

    def _product(self, node: Any) -> Reads:
        """Of products of matrices, or of vectors: Σ_k a_ik b_kj."""
        a, b = node.inputs
        if self._shape(a) == () or self._shape(b) == ():
            return self._everything(node)[0]
        if len(self._shape(a)) == 2 and len(self._shape(b)) <= 2 and self._is_constant(a):
            return self._by_constant(self._value(a), b)
        if len(self._shape(b)) == 2 and len(self._shape(a)) <= 2 and self._is_constant(b):
            return self._by_constant(self._value(b).T, a, transposed=True)
        rows = self._along(a, (-1,), keep=False)
        columns = self._along(b, (-2 if len(self._shape(b)) > 1 else 0,), keep=False)
        left, right = self._shape(a)[:-1], self._shape(b)
        right = (*right[:-2], right[-1]) if len(right) > 1 else ()
        if len(left) > 1 or len(right) > 1:  # many products: batches of rows and of columns
            batch = np.broadcast_shapes(left[:-1], right[:-1])
            of_rows = np.arange(int(np.prod(left))).reshape(left)[..., :, None]
            of_columns = np.arange(int(np.prod(right))).reshape(right)[..., None, :]
            shape = (*batch, left[-1], right[-1])
            of_rows, of_columns = (np.broadcast_to(x, shape) for x in (of_rows, of_columns))
        else:
            size_left, size_right = int(np.prod(left)), int(np.prod(right))
            of_rows = np.repeat(np.arange(size_left), size_right)
            of_columns = np.tile(np.arange(size_right), size_left)
        return rows.take(of_rows).beside(columns.take(of_columns))

    def _by_constant(self, A: Array, v: Variable, *, transposed: bool = False) -> Reads:
        """Of A v, or (A vᵀ)ᵀ, with A of numbers: zeros of A read nothing."""
        numbers = self._numbers(v).T if transposed else self._numbers(v)
        rows, inner = np.nonzero(A)
        columns = numbers.reshape(numbers.shape[0], -1)
        count = columns.shape[1]
        target = (rows[:, None] * count + np.arange(count)).ravel()
        found = self._of(v).take(columns[inner].ravel()).gathered(target, A.shape[0] * count)
        if transposed and numbers.ndim == 2:
            order = np.arange(A.shape[0] * count).reshape(A.shape[0], count).T
            return found.take(order)
        return found


def _inlined(outputs: Sequence[Variable]) -> list[Variable]:
    """The graph with what operations have inside, but for those that have a rule."""
    outputs = list(outputs)
    for node in toposort(outputs):
        if isinstance(node.op, OpFromGraph) and not isinstance(node.op, Softmax | LogSoftmax):
            inner = dict(zip(node.outputs, inline_ofg_node(node), strict=True))
            return _inlined(clone_replace(outputs, inner, rebuild_strict=False))
    return outputs
