"""The range of A(theta), for all theta at once, from the graph of c + A x.

A x = R g(theta, x) with a matrix R of numbers: what is done to x by numbers is in R, and what
theta does is in the g_k. So the range of A(theta) is in that of R wherever theta is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytensor.scalar as ps

from numpy.typing import NDArray
from pytensor.graph.traversal import toposort
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot, Sum
from scipy.sparse import csr_array, eye_array, kron, vstack

from pymc_lgm.linalg import Array
from pymc_lgm.model.affine import core_of
from pymc_lgm.model.elements import JOINING, PICKING, Bits, Codes, depending, performed

__all__ = ["range_of"]

Variable = Any
Index = NDArray[np.intp]


def range_of(
    output: Variable,
    x: Variable,
    elements: Index,
    moving: Sequence[Variable],
    values: Mapping[Variable, Array],
) -> Array:
    """Find columns that span the range of some columns of A(theta), whatever theta is.

    Parameters
    ----------
    output : variable
        A vector c + A x, affine in x as `pymc_lgm.model.affine` has found.
    x : variable
    elements : ndarray of int
        Which columns of A.
    moving : sequence of variable
        Theta, and what other steps own.
    values : mapping
        A value of x and of each of them: it says how large variables are.

    Returns
    -------
    ndarray, shape (E, r)
        Of an operation that has no rule each different element of the result is a g_k.

    Examples
    --------
    >>> import numpy as np
    >>> import pytensor.tensor as pt
    >>> x, theta = pt.vector("x", shape=(2,)), pt.scalar("theta")
    >>> values = {x: np.zeros(2), theta: np.zeros(())}
    >>> eta = np.array([1.0, 2.0, 3.0]) * theta * x[0]
    >>> range_of(eta, x, np.arange(2), [theta], values).tolist()
    [[1.0], [2.0], [3.0]]
    >>> decay = pt.exp(-theta * np.arange(3)) * x[0]
    >>> range_of(decay, x, np.arange(2), [theta], values).tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    R = _Walk(output, x, elements, moving, values).of(output)
    used, first, column = np.unique(R.indices, return_index=True, return_inverse=True)
    column = np.argsort(np.argsort(first))[column]  # in the order of rows
    found = csr_array((R.data, column, R.indptr), shape=(R.shape[0], used.size)).toarray()
    result: Array = found[:, found.any(axis=0)]
    return result


class _Walk:
    """Through a graph, from x on: R of each variable, with a column for each g_k there is."""

    def __init__(
        self,
        output: Variable,
        x: Variable,
        elements: Index,
        moving: Sequence[Variable],
        values: Mapping[Variable, Array],
    ):
        self._codes = Codes(output, [x, *moving], values)
        self._slopes = Codes(output, [x, *moving], values, slopes_in=x)
        self._moving = depending([output], moving)
        self._columns: dict[tuple[Any, ...], int] = {}
        n = int(np.size(values[x]))
        columns = [self._column("x", j) for j in range(elements.size)]
        start = csr_array((np.ones(elements.size), (elements, columns)), shape=(n, elements.size))
        self._found = {x: start}
        touched = depending([output], [x])
        for node in toposort([output]):
            # What an operation without a rule is made of has no code.
            if touched.isdisjoint(node.outputs) or any(v not in self._codes for v in node.outputs):
                continue
            known = all(v in self._codes for v in node.inputs)
            made = self._made(node) if known else None
            if made is None:
                made = [self._each(v) for v in node.outputs]
            self._found |= zip(node.outputs, made, strict=True)

    def of(self, v: Variable) -> csr_array:
        """R of a variable, with a column for each g_k so far; zeros if it is free of x."""
        count = len(self._columns)
        if v not in self._found:
            return csr_array((int(np.prod(self._shape(v), dtype=np.intp)), count))
        R = self._found[v]
        return csr_array((R.data, R.indices, R.indptr), shape=(R.shape[0], count))

    def _column(self, *what: Any) -> int:
        return self._columns.setdefault(what, len(self._columns))

    def _shape(self, v: Variable) -> tuple[int, ...]:
        return self._codes.of(v).shape[:-1]

    def _numbers(self, v: Variable) -> Index:
        shape = self._shape(v)
        return np.arange(int(np.prod(shape, dtype=np.intp))).reshape(shape)

    def _each(self, v: Variable) -> csr_array:
        """Elements whose slopes are different expressions, each a g_k."""
        codes = self._slopes.of(v).reshape(-1, 2)
        columns = [self._column("slope", *code) for code in codes.tolist()]
        count = len(columns)
        return csr_array(
            (np.ones(count), (np.arange(count), columns)), shape=(count, len(self._columns))
        )

    def _made(self, node: Any) -> list[csr_array] | None:
        """R of what a node makes; ``None`` if it has no rule."""
        op = node.op
        if isinstance(op, CheckAndRaise):
            return [self.of(node.inputs[0])]
        if isinstance(op, PICKING):
            fixed = self._moving.isdisjoint(node.inputs[1:])
            return self._pooled(node, [0]) if fixed else None
        if isinstance(op, JOINING):
            return self._pooled(node, range(len(node.inputs)))
        if isinstance(op, Sum):
            return [self._summed(node)]
        if isinstance(op, Elemwise):
            return self._elementwise(node)
        return self._product(node) if isinstance(core_of(op), Dot) else None

    def _pooled(self, node: Any, picked: Sequence[int]) -> list[csr_array]:
        pool, inputs, begin = [], [], 0
        for k, v in enumerate(node.inputs):
            if k not in picked:
                inputs.append(self._codes.value(v))
                continue
            numbers = self._numbers(v)
            inputs.append(begin + numbers)
            pool.append(self.of(v))
            begin += numbers.size
        both = vstack(pool, format="csr")
        return [both[np.asarray(each).astype(np.intp).ravel()] for each in performed(node, inputs)]

    def _summed(self, node: Any) -> csr_array:
        (v,) = node.inputs
        shape = self._shape(v)
        axes = range(len(shape)) if node.op.axis is None else node.op.axis
        left = tuple(1 if axis in axes else length for axis, length in enumerate(shape))
        size = int(np.prod(left, dtype=np.intp))
        index = np.broadcast_to(np.arange(size).reshape(left), shape).ravel()
        G = csr_array((np.ones(index.size), (index, np.arange(index.size))), (size, index.size))
        return csr_array(G @ self.of(v))

    def _elementwise(self, node: Any) -> list[csr_array] | None:
        op, of_x = node.op.scalar_op, [v in self._found for v in node.inputs]
        shape = np.broadcast_shapes(*map(self._shape, node.inputs))
        if isinstance(op, ps.Add | ps.Sub):
            signs = [1.0] + [-1.0 if isinstance(op, ps.Sub) else 1.0] * (len(of_x) - 1)
            terms = zip(signs, node.inputs, of_x, strict=True)
            return [sum(sign * self._spread(v, shape) for sign, v, one in terms if one)]
        if isinstance(op, ps.Neg):
            return [-self.of(node.inputs[0])]
        if isinstance(op, ps.Identity | ps.Cast):
            return [self.of(node.inputs[0])]
        if isinstance(op, ps.Second):
            return [self._spread(node.inputs[1], shape)]
        if isinstance(op, ps.Mul | ps.TrueDiv) and sum(of_x) == 1:
            return [self._scaled(node, of_x.index(True), shape)]
        return None

    def _spread(self, v: Variable, shape: tuple[int, ...]) -> csr_array:
        if self._shape(v) == shape:
            return self.of(v)
        return self.of(v)[np.broadcast_to(self._numbers(v), shape).ravel()]

    def _scaled(self, node: Any, which: int, shape: tuple[int, ...]) -> csr_array:
        """By numbers, which are in R, and by what theta moves, which makes other g_k."""
        R = self._spread(node.inputs[which], shape)
        divided = isinstance(node.op.scalar_op, ps.TrueDiv)
        for v in (v for k, v in enumerate(node.inputs) if k != which):
            numbers, factors = self._factors(v, divided, shape)
            R = _by_numbers(R, numbers)
            for codes, by in factors:
                R = self._times(R, codes.reshape(-1, 2), by)
        return R

    def _factors(
        self, v: Variable, divided: bool, shape: tuple[int, ...]
    ) -> tuple[Array, list[tuple[Bits, bool]]]:
        """Numbers, and codes of what theta moves, of which something is the product."""
        numbers, factors = np.ones(shape), []
        todo: list[tuple[Variable, bool, list[Any]]] = [(v, divided, [])]
        while todo:
            v, divided, turned = todo.pop()
            inner = self._inner(v)
            if v not in self._moving:
                value = _turned(np.asarray(self._codes.value(v), dtype=np.float64), turned)
                numbers = numbers / value if divided else numbers * value
            elif inner is None:
                index = _turned(self._numbers(v), turned)
                codes = self._codes.of(v).reshape(-1, 2)[index]
                factors.append((np.broadcast_to(codes, (*shape, 2)), divided))
            elif isinstance(v.owner.op, DimShuffle):
                todo.append((inner[0], divided, [v.owner, *turned]))
            else:
                below = isinstance(v.owner.op.scalar_op, ps.TrueDiv)
                todo += [(u, divided ^ (below and k == 1), turned) for k, u in enumerate(inner)]
        return numbers, factors

    def _inner(self, v: Variable) -> list[Variable] | None:
        """What something is the product of, or the quotient, or with other axes."""
        node = v.owner
        if node is None or any(u not in self._codes for u in node.inputs):
            return None
        factors = isinstance(node.op, Elemwise) and isinstance(
            node.op.scalar_op, ps.Mul | ps.TrueDiv
        )
        return list(node.inputs) if factors or isinstance(node.op, DimShuffle) else None

    def _times(self, R: csr_array, codes: Bits, divided: bool) -> csr_array:
        row = np.repeat(np.arange(R.shape[0]), np.diff(R.indptr))
        which, factor = np.unique(codes, axis=0, return_inverse=True)
        pairs = np.stack([R.indices, factor.ravel()[row]], axis=1)
        each, column = np.unique(pairs, axis=0, return_inverse=True)
        made = [self._column(int(k), divided, *which[c].tolist()) for k, c in each]
        indices = np.asarray(made, dtype=np.intp)[column.ravel()]
        return csr_array((R.data, indices, R.indptr), shape=(R.shape[0], len(self._columns)))

    def _product(self, node: Any) -> list[csr_array] | None:
        """Σ_k a_ik b_kj, where one of the two is a matrix, or a vector, of numbers."""
        a, b = node.inputs
        left, right = self._shape(a), self._shape(b)
        if not 0 < len(left) <= 2 or not 0 < len(right) <= 2:
            return None
        if a not in self._found:
            A, factors = self._factors(a, False, left)
            columns = right[1] if len(right) == 2 else 1
            R = self.of(b)
            for codes, divided in factors:
                # Of each element of b one factor, the same in all sums that it is in.
                if (codes != codes[:1]).any() and len(left) == 2:
                    return None
                each = codes[0] if len(left) == 2 else codes
                R = self._times(R, np.repeat(each, columns, axis=0), divided)
            return [csr_array(kron(csr_array(np.atleast_2d(A)), eye_array(columns)) @ R)]
        if b in self._moving:
            return None
        B = np.asarray(self._codes.value(b), dtype=np.float64).reshape(right[0], -1)
        rows = left[0] if len(left) == 2 else 1
        return [csr_array(kron(eye_array(rows), csr_array(B.T)) @ self.of(a))]


def _by_numbers(R: csr_array, numbers: Array) -> csr_array:
    scale = np.repeat(numbers.ravel(), np.diff(R.indptr))
    return csr_array((R.data * scale, R.indices, R.indptr), shape=R.shape)


def _turned(value: NDArray[Any], nodes: Sequence[Any]) -> NDArray[Any]:
    """With axes as some nodes put them, the first one first."""
    for node in nodes:
        (value,) = performed(node, [value])
    return value
