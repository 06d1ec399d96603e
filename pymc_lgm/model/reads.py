"""Find which elements of a vector each element of a variable depends on, or "reads".

There is one rule per operation. Only shapes and indices are evaluated. An operation without a rule
reads everything, and so does an index that depends on theta.
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
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import All, Dot, Sum
from pytensor.tensor.rewriting.ofg import inline_ofg_node
from pytensor.tensor.special import LogSoftmax, Softmax
from pytensor.tensor.subtensor import AdvancedSubtensor, IncSubtensor, Subtensor
from scipy.sparse import csr_array, diags_array, eye_array, vstack
from scipy.sparse.csgraph import connected_components

from pymc_lgm.compile.graphs.functions import called_once
from pymc_lgm.linalg import Array
from pymc_lgm.model.operations import (
    ARRANGING,
    OF_SHAPES,
    SETTING,
    SHAPING,
    Variable,
    constant_of,
    core_of,
    depending,
    is_affine_elementwise,
    moved,
    performed,
    sources,
)

__all__ = [
    "MOST",
    "Evaluation",
    "Reads",
    "groups_of",
    "joined",
    "reads_of",
    "reads_of_densities",
    "sets_of",
    "terms_of",
    "within",
]

Index = NDArray[np.intp]

MOST = 12
"""Most elements that an observation may read.

An expectation over s elements takes 2 s² + 1 nodes, 289 for twelve, and a set is a dense s × s
block. Measured for a softmax of 60 observations, with the default sampler: with 4, 8, 12, 16 and 20
classes 500 draws took 4, 13, 17, 27 and 80 CPU seconds. From 12 on the estimates take the largest
number of importance draws. Their logarithm has a standard deviation of 0.2 with 12 and 16, and 0.6
with 20, where Pareto's k is 0.96: too much to rely on. The bound leaves a margin.
"""


@dataclass(frozen=True, eq=False)
class Reads:
    """The elements of the source that each element of a variable reads.

    Attributes
    ----------
    pattern : csr_array of bool, shape (size, n)
        The elements that are read; none in a row of ``many``.
    many : ndarray of bool, shape (size,)
        Whether an element reads more than ``most``.
    most : int
    """

    pattern: csr_array
    many: NDArray[np.bool_]
    most: int

    @classmethod
    def of(cls, pattern: csr_array, many: NDArray[np.bool_], most: int) -> Reads:
        """Reads of a pattern, whose rows with more than ``most`` elements are moved to ``many``."""
        pattern = csr_array(pattern, dtype=bool)
        pattern.sum_duplicates()
        many = many | (np.diff(pattern.indptr) > most)
        if many.any():
            pattern = csr_array(diags_array((~many).astype(np.float64)) @ pattern, dtype=bool)
            pattern.eliminate_zeros()
        return cls(pattern, many, most)

    @classmethod
    def nothing(cls, size: int, n: int, most: int) -> Reads:
        """The reads of a variable that does not depend on the source."""
        return cls(csr_array((size, n), dtype=bool), np.zeros(size, dtype=bool), most)

    def equals(self, other: Reads) -> bool:
        """Whether both read the same elements."""
        same_size = self.pattern.shape == other.pattern.shape
        return bool(
            same_size
            and np.array_equal(self.many, other.many)
            and (self.pattern != other.pattern).nnz == 0
        )

    def take(self, index: Index) -> Reads:
        """The reads of the elements with these indices."""
        return Reads(self.pattern[index.ravel()], self.many[index.ravel()], self.most)

    def gathered(self, index: Index, size: int) -> Reads:
        """The reads of ``size`` elements: element i reads what all elements with index i read."""
        one = np.ones(index.size, dtype=np.int32)
        G = csr_array((one, (index.ravel(), np.arange(index.size))), (size, index.size))
        many = np.zeros(size, dtype=bool)
        many[index.ravel()[self.many]] = True
        return Reads.of(G @ self.pattern.astype(np.int32), many, self.most)

    def beside(self, other: Reads) -> Reads:
        """The reads of elements that read what both read."""
        return Reads.of(self.pattern + other.pattern, self.many | other.many, self.most)

    @property
    def first(self) -> Index:
        """The first element that each reads; −1 for none, or for too many."""
        count = np.diff(self.pattern.indptr)
        at = np.minimum(self.pattern.indptr[:-1], max(self.pattern.nnz - 1, 0))
        found = self.pattern.indices[at] if self.pattern.nnz else np.zeros(count.size, dtype=int)
        return np.where(count > 0, found, -1).astype(np.intp)

    @property
    def counts(self) -> Index:
        """The number of elements that each reads, or ``most`` + 1 if they are too many."""
        return np.where(self.many, self.most + 1, np.diff(self.pattern.indptr)).astype(np.intp)


class Evaluation:
    """Variables of a graph, with their values at one point, for rules that need shapes and indices.

    Parameters
    ----------
    outputs : sequence of variable
    inputs : mapping
        Values of all inputs that may change. Other shared variables count as constants.

    Attributes
    ----------
    outputs : list of variable
        With the inner graphs of operations inlined, except operations with a rule.
    moving : set of variable
        Variables that depend on the inputs.
    nodes : list of node
        Nodes that read variables that depend on the inputs, and not only their shapes, in order.
    """

    def __init__(self, outputs: Sequence[Variable], inputs: Mapping[Variable, Array]):
        self.outputs, self.inputs = _inlined(outputs), inputs
        self.moving = depending(self.outputs, list(inputs))
        self.nodes = [
            node
            for node in toposort(self.outputs)
            if not (self.moving.isdisjoint(node.inputs) or isinstance(node.op, OF_SHAPES))
        ]
        inner = dict.fromkeys(v for node in self.nodes for v in (*node.inputs, *node.outputs))
        wanted = [v for v in (*inner, *self.outputs) if not isinstance(v, Constant)]
        # A shared variable has its value, and is not an argument of a compiled function.
        arguments = [v for v in inputs if not isinstance(v, SharedVariable)]
        with np.errstate(all="ignore"):
            known = called_once(arguments, wanted)(*(inputs[v] for v in arguments))
        self._values = dict(zip(wanted, known, strict=True))

    def value(self, v: Variable) -> Any:
        """The value of a variable that is read by ``nodes``, or is an output."""
        return v.data if isinstance(v, Constant) else self._values[v]

    def shape(self, v: Variable) -> tuple[int, ...]:
        """The shape of its value."""
        return np.shape(self.value(v))


def reads_of(at: Evaluation, source: Variable, *, most: int = MOST) -> list[Reads]:
    """Find which elements of a vector, an input of ``at``, each output of it reads, raveled.

    Examples
    --------
    >>> import numpy as np
    >>> import pytensor.tensor as pt
    >>> f, theta = pt.vector("f", shape=(4,)), pt.scalar("theta")
    >>> at = Evaluation([f[1:] + theta * f[:-1]], {f: np.zeros(4), theta: np.zeros(())})
    >>> (found,) = reads_of(at, f)
    >>> found.pattern.toarray().astype(int)
    array([[1, 1, 0, 0],
           [0, 1, 1, 0],
           [0, 0, 1, 1]])
    """
    walk = _Walk(at, source, most)
    return [walk.of(v) for v in at.outputs]


def joined(reads: Sequence[Reads]) -> Index | None:
    """Find the smallest sets of elements of the source such that nothing reads from two sets.

    The result is the set of each element of the source, or ``None`` if something reads too many.
    """
    if any(each.many.any() for each in reads):
        return None
    rows = vstack([each.pattern for each in reads], format="csr")
    count, n = rows.shape
    # The sets are the components of a graph of the elements and their readers.
    below = csr_array((rows.data, rows.indices, rows.indptr), shape=(count, n + count))
    across = vstack([csr_array((n, n + count), dtype=bool), below], format="csr")
    _, label = connected_components(across, directed=False)
    _, group = np.unique(label[:n], return_inverse=True)
    return group.astype(np.intp)


def within(reads: Reads, group: Index) -> Index | None:
    """The set that each element reads from, 0 if it reads none; ``None`` if one reads from two."""
    if reads.many.any():
        return None
    row = np.repeat(np.arange(reads.many.size), np.diff(reads.pattern.indptr))
    first = np.where(reads.first >= 0, group[reads.first], 0).astype(np.intp)
    return first if (group[reads.pattern.indices] == first[row]).all() else None


def sets_of(group: Index) -> Index | None:
    """The sets (G, s) of a `SiteBlocks`, from the set of each f_i.

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
    """The set of each f_i."""
    group = np.empty(n, dtype=np.intp)
    g, slot = np.nonzero(sets >= 0)
    group[sets[g, slot]] = g
    return group


def reads_of_densities(
    densities: Sequence[Variable], f: Variable, values: Mapping[Variable, Array]
) -> list[Reads]:
    """The elements of f that each term of some log densities reads."""
    reading = [density for density in densities if f in set(ancestors([density]))]
    terms = [term for density in reading for term in terms_of(density, f)]
    return reads_of(Evaluation(terms, values), f)


def terms_of(density: Variable, source: Variable) -> list[Variable]:
    """Find variables such that a log density is a sum of functions of their single elements.

    Sums and multiples are split, and so are checks of parameters: a density that is 0 unless all
    of several conditions hold is the product of the density and the conditions.
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
"""Variables that another variable is split into, and whether each is a condition."""


def _summands(node: Any, depends: Collection[Variable]) -> Parts:
    """The terms of a node's result; ``None`` if it is not split."""
    op = node.op
    (first, *others) = node.inputs
    if isinstance(op, ARRANGING):  # an element may be repeated
        return [(first, False)]
    if isinstance(op, CheckAndRaise):
        return [(first, False), *((v, True) for v in others)]
    if isinstance(op, Sum | MakeVector):
        return [(v, False) for v in node.inputs]
    if not isinstance(op, Elemwise):
        return None
    if is_affine_elementwise(op.scalar_op, [v in depends for v in node.inputs]):
        return [(v, False) for v in node.inputs]
    if isinstance(op.scalar_op, ps.Switch) and np.all(constant_of(others[1]) == -np.inf):
        return [(first, True), (others[0], False)]
    return None


def _conditions(node: Any) -> Parts:
    """The conditions whose conjunction is a node's result; ``None`` if it is not split."""
    op = node.op
    if isinstance(op, ARRANGING):
        return [(node.inputs[0], True)]
    both = isinstance(op, Elemwise) and isinstance(op.scalar_op, ps.AND)
    if both and all(v.dtype == "bool" for v in node.inputs):
        return [(v, True) for v in node.inputs]
    if isinstance(op, All | MakeVector | CheckAndRaise):
        return [(v, True) for v in node.inputs]
    return None


class _Walk:
    """A walk through a graph, which finds what each variable reads of the source."""

    def __init__(self, at: Evaluation, source: Variable, most: int):
        self._at, self._most = at, most
        inputs = [v for v in ancestors(at.outputs) if v.owner is None]
        self._varying = depending(at.outputs, [v for v in inputs if not isinstance(v, Constant)])
        n = self._n = int(np.size(at.inputs[source]))
        itself = csr_array(eye_array(n, dtype=bool))
        self._reads = {source: Reads.of(itself, np.zeros(n, dtype=bool), most)}
        for node in at.nodes:
            if not self._reads.keys().isdisjoint(node.inputs):
                self._reads |= zip(node.outputs, self._made(node), strict=True)

    def of(self, v: Variable) -> Reads:
        """The reads of a variable."""
        if v not in self._reads:
            return Reads.nothing(int(np.size(self._at.value(v))), self._n, self._most)
        return self._reads[v]

    def _numbers(self, v: Variable) -> Index:
        """Numbers of the elements of a variable, in its shape."""
        shape = self._at.shape(v)
        return np.arange(int(np.prod(shape, dtype=np.intp))).reshape(shape)

    def _everything(self, node: Any) -> list[Reads]:
        """Reads of results whose elements each read what all inputs read."""
        whole = Reads.nothing(1, self._n, self._most)
        for v in node.inputs:
            whole = whole.beside(self._along(v, None, keep=False))
        sizes = [int(np.prod(self._at.shape(v), dtype=np.intp)) for v in node.outputs]
        return [whole.take(np.zeros(size, dtype=np.intp)) for size in sizes]

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
            return [self._along(node.inputs[0], (op.axis,), keep=True)]
        if isinstance(op, Softmax | LogSoftmax):
            return [self._along(node.inputs[0], op.axis, keep=True)]
        if isinstance(core_of(op), Dot):
            return [self._product(node)]
        if isinstance(op, Blockwise):
            return self._blockwise(node)
        return self._everything(node)

    def _moved(self, node: Any, count: int) -> list[Reads]:
        """The reads of the results of an operation that moves elements of its first inputs."""
        has_index = not isinstance(node.op, (*SHAPING, CheckAndRaise))
        if has_index and not self._at.moving.isdisjoint(node.inputs[count:]):
            # The index may change, so any element may be read.
            return self._everything(node)
        if isinstance(node.op, SETTING) and not node.op.set_instead_of_inc:
            return self._added(node)
        pool = [self.of(v) for v in node.inputs[:count]]
        pattern = vstack([each.pattern for each in pool], format="csr")
        both = Reads(pattern, np.concatenate([each.many for each in pool]), self._most)
        return [both.take(each) for each in sources(node, self._at.shape, self._at.value)]

    def _added(self, node: Any) -> list[Reads]:
        """The reads of elements that have others added at fixed places."""
        base, value, *index = node.inputs
        pick = Subtensor if isinstance(node.op, IncSubtensor) else AdvancedSubtensor
        numbers = self._numbers(base)
        reading = pick(node.op.idx_list).make_node(base, *index)
        (places,) = performed(reading, [numbers, *map(self._at.value, index)])
        places = np.asarray(places).astype(np.intp)
        values = np.broadcast_to(self._numbers(value), places.shape)
        added = self.of(value).take(values).gathered(places, numbers.size)
        return [self.of(base).beside(added)]

    def _elementwise(self, node: Any) -> list[Reads]:
        shape = np.broadcast_shapes(*map(self._at.shape, node.inputs))
        total = Reads.nothing(int(np.prod(shape, dtype=np.intp)), self._n, self._most)
        inputs = list(node.inputs)
        if isinstance(node.op.scalar_op, ps.Second):
            inputs = inputs[1:]
        kept = np.ones(shape, dtype=bool)
        if isinstance(node.op.scalar_op, ps.Mul):
            for v in filter(self._is_constant, inputs):
                kept = kept & (self._at.value(v) != 0.0)
        for v in inputs:
            if v in self._reads:
                each = self.of(v)
                if self._at.shape(v) != shape:
                    each = each.take(np.broadcast_to(self._numbers(v), shape))
                total = total.beside(each)
        if not kept.all():
            # An element that is multiplied by 0 is not read.
            keep = diags_array(kept.ravel().astype(np.float64))
            pattern = csr_array(keep @ total.pattern, dtype=bool)
            pattern.eliminate_zeros()
            total = Reads(pattern, total.many & kept.ravel(), self._most)
        return [total] * len(node.outputs)

    def _along(self, v: Variable, axes: Any, *, keep: bool) -> Reads:
        """The union of the reads along some axes, or all, for each index left, or each element."""
        shape = self._at.shape(v)
        along = range(len(shape)) if axes is None else np.atleast_1d(axes)
        along = [axis % max(len(shape), 1) for axis in along]
        left = tuple(1 if axis in along else length for axis, length in enumerate(shape))
        size = int(np.prod(left, dtype=np.intp))
        index = np.broadcast_to(np.arange(size).reshape(left), shape)
        total = self.of(v).gathered(index, size)
        return total.take(index) if keep else total

    def _product(self, node: Any) -> Reads:
        """The reads of products of matrices, or of batches of them: Σ_k a_ik b_kj."""
        a, b = node.inputs
        if len(self._at.shape(a)) == 2 and self._is_constant(a):
            return self._by_constant(self._at.value(a), b)
        if len(self._at.shape(a)) == 2 and self._is_constant(b):
            return self._by_constant(self._at.value(b).T, a, transposed=True)
        rows, columns = self._along(a, (-1,), keep=False), self._along(b, (-2,), keep=False)
        left = self._at.shape(a)[:-1]
        right = (*self._at.shape(b)[:-2], self._at.shape(b)[-1])
        of_rows = np.arange(int(np.prod(left))).reshape(left)[..., :, None]
        of_columns = np.arange(int(np.prod(right))).reshape(right)[..., None, :]
        of_rows, of_columns = np.broadcast_arrays(of_rows, of_columns)
        return rows.take(of_rows).beside(columns.take(of_columns))

    def _blockwise(self, node: Any) -> list[Reads]:
        """The reads of an operation that is repeated along the first axes of its inputs."""
        batch = node.op.batch_ndim(node)
        shapes = [self._at.shape(v) for v in node.inputs]
        left = np.broadcast_shapes(*(shape[:batch] for shape in shapes))
        each = Reads.nothing(int(np.prod(left, dtype=np.intp)), self._n, self._most)
        for v, shape in zip(node.inputs, shapes, strict=True):
            own = np.arange(int(np.prod(shape[:batch], dtype=np.intp))).reshape(shape[:batch])
            inner = self._along(v, range(batch, len(shape)), keep=False)
            each = each.beside(inner.take(np.broadcast_to(own, left)))
        numbers = np.arange(each.many.size)
        sizes = [int(np.prod(self._at.shape(v)[batch:], dtype=np.intp)) for v in node.outputs]
        return [each.take(np.repeat(numbers, size)) for size in sizes]

    def _by_constant(self, A: Array, v: Variable, *, transposed: bool = False) -> Reads:
        """The reads of A v, or (A vᵀ)ᵀ, for a constant A: its zeros read nothing."""
        numbers = self._numbers(v).T if transposed else self._numbers(v)
        rows, inner = np.nonzero(A)
        shape = A.shape[0], numbers.shape[1]
        size = shape[0] * shape[1]
        target = rows[:, None] * shape[1] + np.arange(shape[1])
        found = self.of(v).take(numbers[inner]).gathered(target, size)
        return found.take(np.arange(size).reshape(shape).T) if transposed else found


def _inlined(outputs: Sequence[Variable]) -> list[Variable]:
    """The graph with the inner graphs of operations inlined, except operations with a rule."""
    outputs = list(outputs)
    for node in toposort(outputs):
        if isinstance(node.op, OpFromGraph) and not isinstance(node.op, Softmax | LogSoftmax):
            inner = dict(zip(node.outputs, inline_ofg_node(node), strict=True))
            return _inlined(clone_replace(outputs, inner, rebuild_strict=False))
    return outputs
