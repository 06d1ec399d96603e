"""What the rules of reading say of random graphs, held against the numbers of these graphs.

`test_random_models.py` asks the same of whole models, which take a second each. A graph takes a
twentieth of it, so that many more operations are met behind and beside each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest

from numpy.typing import NDArray
from pytensor.raise_op import Assert
from pytensor.tensor.special import softmax

from pymc_lgm.compile.graphs.functions import called_once
from pymc_lgm.model import elements, operations, reads
from pymc_lgm.model.affine import find_frontier
from pymc_lgm.model.amplitudes import find_amplitudes
from pymc_lgm.model.columns import columns_move
from pymc_lgm.model.elements import distinct_elements
from pymc_lgm.model.integrates import is_positive
from pymc_lgm.model.operations import is_affine_elementwise, sources
from pymc_lgm.model.reads import Evaluation, joined, reads_of, terms_of

Array = NDArray[np.float64]
Variable = Any

N, P = 4, 3
PARTS = [slice(0, 2), slice(2, 4)]
LARGEST = 24
TOLERANCE = 1e-9

pytestmark = pytest.mark.usefixtures("interpreted")


class Graph(NamedTuple):
    """A vector that is made of x and theta, and a matrix that is made of theta alone."""

    x: Variable
    theta: Variable
    output: Variable
    matrix: Variable


class Writer:
    """Writes one graph: each step makes a variable of some that there are."""

    def __init__(self, rng: np.random.Generator, roots: list[Variable]):
        self.rng, self.pool = rng, roots

    def step(self) -> None:
        made = STEPS[int(self.rng.integers(len(STEPS)))](self, self.one())
        if made is None or None in made.type.shape or made.type.ndim > 2:
            return
        if 0 < np.prod(made.type.shape) <= LARGEST:
            self.pool.append(made)

    def one(self) -> Variable:
        """One of the variables, the last ones first."""
        back = min(int(self.rng.geometric(0.35)), len(self.pool))
        return self.pool[-back]

    def numbers(self, shape: tuple[int, ...]) -> Array:
        return self.rng.choice([-1.0, 0.0, 1.0, 1.0, 2.0], shape)

    def beside(self, a: Variable) -> Variable:
        """Something that can be added to a: of its shape, a number, or constants."""
        fit = [v for v in self.pool if v.type.shape in (a.type.shape, ())]
        if fit and self.rng.uniform() < 0.7:
            return fit[int(self.rng.integers(len(fit)))]
        return pt.constant(self.numbers(a.type.shape))

    def index(self, length: int, size: int | None = None) -> NDArray[np.intp]:
        return self.rng.integers(0, length, size or int(self.rng.integers(1, 6)))

    def elementwise(self, a: Variable) -> Variable:
        kind, b = int(self.rng.integers(6)), self.beside(a)
        if kind == 5:
            condition = pt.gt(self.beside(a), 0.5) if self.rng.uniform() < 0.5 else b > 0.0
            return pt.switch(condition, a, b)
        return (pt.add, pt.sub, pt.mul, pt.mul, pt.maximum)[kind](a, b)

    def function(self, a: Variable) -> Variable:
        functions = (pt.neg, pt.sqr, pt.abs, pt.tanh, pt.sigmoid, lambda v: pt.exp(0.3 * v))
        return functions[int(self.rng.integers(len(functions)))](a)

    def quotient(self, a: Variable) -> Variable:
        b = self.beside(a)
        return a / (1.0 + pt.sqr(b)) if self.rng.uniform() < 0.5 else a / 2.0

    def picked(self, a: Variable) -> Variable | None:
        if a.type.ndim == 0:
            return None
        length, kind = a.type.shape[-1], int(self.rng.integers(5))
        if kind == 0:
            return a[..., self.index(length)]
        if kind == 1:
            return a[..., ::-1]
        if kind == 2:
            return a[..., 1:] if length > 1 else None
        if kind == 3:
            return a[int(self.rng.integers(a.type.shape[0]))]
        first = a[..., pt.switch(self.beside(pt.constant(0.0)) > 0.3, 0, length - 1)]
        return first if first.type.ndim == a.type.ndim - 1 else None

    def arranged(self, a: Variable) -> Variable | None:
        kind, size = int(self.rng.integers(6)), int(np.prod(a.type.shape))
        if kind == 0:
            return a.ravel()
        if kind == 1:
            return a.reshape((size // 2, 2)) if size % 2 == 0 else None
        if kind == 2:
            return a.T
        if kind == 3:
            return a[..., None] if a.type.ndim < 2 else None
        if kind == 4:
            return pt.alloc(a, 2, *a.type.shape)
        return Assert("never")(a, pt.gt(pt.exp(self.beside(pt.constant(0.0)).sum()), 0.0))

    def joined(self, a: Variable) -> Variable | None:
        b = self.beside(a)
        if a.type.ndim == 0:
            return pt.stack([a, b.sum()])
        if b.type.shape != a.type.shape:
            return None
        axis = int(self.rng.integers(a.type.ndim))
        return pt.concatenate([a, b], axis=axis)

    def put(self, a: Variable) -> Variable | None:
        if a.type.ndim != 1:
            return None
        at = self.index(a.type.shape[0], 2)
        value = self.beside(a[at])
        if self.rng.uniform() < 0.5:
            return pt.inc_subtensor(a[at], value)
        return pt.set_subtensor(a[np.unique(at)], value if value.type.ndim == 0 else value[0])

    def parted(self, a: Variable) -> Variable | None:
        if a.type.ndim == 2 and a.type.shape[0] == a.type.shape[1]:
            return pt.diagonal(a)
        if a.type.ndim != 1 or a.type.shape[0] < 2:
            return None
        sizes = [1, a.type.shape[0] - 1]
        return pt.split(a, sizes, n_splits=2)[int(self.rng.integers(2))]

    def summed(self, a: Variable) -> Variable | None:
        if a.type.ndim == 0:
            return None
        axis = int(self.rng.integers(a.type.ndim))
        kind = int(self.rng.integers(4))
        if kind == 0:
            return pt.cumsum(a, axis=axis)
        if kind == 1:
            return softmax(a, axis=axis)
        return a.sum(axis=axis) if kind == 2 else a.max(axis=axis)

    def multiplied(self, a: Variable) -> Variable | None:
        if a.type.ndim == 0:
            return None
        length, kind = a.type.shape[0], int(self.rng.integers(4))
        if kind == 0:
            return pt.dot(self.numbers((3, length)), a)
        if kind == 1:
            return pt.dot(a, self.numbers((a.type.shape[-1], 2)))
        if kind == 2:
            b = self.beside(a)
            return pt.dot(a, b.T) if b.type.ndim == a.type.ndim else None
        lower = np.tril(self.numbers((length, length)), -1) + np.eye(length)
        return pt.linalg.solve_triangular(lower, a, lower=True, b_ndim=a.type.ndim)


STEPS: list[Callable[[Writer, Variable], Variable | None]] = [
    *(Writer.elementwise, Writer.elementwise, Writer.elementwise, Writer.function),
    *(Writer.quotient, Writer.picked, Writer.picked, Writer.arranged, Writer.joined, Writer.put),
    *(Writer.parted, Writer.summed, Writer.multiplied),
]


def random_graph(rng: np.random.Generator) -> Graph:
    x, theta = pt.vector("x", shape=(N,)), pt.vector("theta", shape=(P,))
    of_theta = [pt.constant(np.array([0.0, 1.0, 1.0])), theta[1:], theta[0], pt.exp(theta[2])]
    alone = Writer(rng, list(of_theta))
    for _ in range(6):
        alone.step()
    both = Writer(rng, [*alone.pool, x[2:4], x[0:2]])
    for _ in range(int(rng.integers(3, 10))):
        both.step()
    last = [v.astype("float64").ravel() for v in both.pool[-2:]]
    return Graph(x, theta, pt.concatenate(last), alone.pool[-1].astype("float64"))


# Claims, each with the share by which numbers refute it


def refuted(graph: Graph, rng: np.random.Generator) -> Iterator[tuple[str, float]]:
    x, theta, output, matrix = graph
    here = {x: np.zeros(N), theta: np.full(P, 0.3)}
    frontier = find_frontier([output], [x], []).predictor
    at_here = Evaluation([output], here)
    (read,) = reads_of(at_here, x, most=N)
    _, index = distinct_elements(at_here)
    density = pt.sum(output)
    terms = terms_of(density, x)
    groups = joined(reads_of(Evaluation(terms, here), x, most=N)) if terms else None
    affine = [v for v in frontier if v.type.ndim <= 2]
    flat = [v.astype("float64").ravel() for v in affine]
    move = [columns_move(v, x, PARTS, [theta]) for v in flat]
    amplitudes = find_amplitudes(matrix, theta)
    positive = is_positive(matrix)
    function = called_once([x, theta], [output, density, matrix, *flat])

    def at(x: Array, theta: Array) -> list[Array]:
        with np.errstate(all="ignore"):
            return [np.asarray(each) for each in function(x, theta)]

    first: list[Array] = []
    for _ in range(3):
        t, a, b = 2.0 * rng.standard_normal(P), *rng.standard_normal((2, N))
        of_a, of_b, between = at(a, t), at(b, t), at(0.25 * a + 0.75 * b, t)
        yield "elements that are one", apart(of_a[0], of_a[0][first_of(index)[index]])
        for j in range(N):
            moved = at(np.where(np.arange(N) == j, b, a), t)[0]
            unread = ~read.pattern[:, [j]].toarray().ravel() & ~read.many
            yield "elements that are read", apart(moved[unread], of_a[0][unread])
        if groups is not None:
            which = (rng.integers(0, 2, N) == 1)[groups]
            rows = (a, np.where(which, a, b), np.where(which, b, a), b)
            one, two, three, four = (at(each, t)[1] for each in rows)
            yield "sets that a density joins", apart(one + four, two + three)
        zero, units = at(np.zeros(N), t), [at(e, t) for e in np.eye(N)]
        for k in range(len(flat)):
            line = 0.25 * of_a[3 + k] + 0.75 * of_b[3 + k]
            yield "a predictor is affine", apart(between[3 + k], line)
            A = np.stack([e[3 + k] - zero[3 + k] for e in units], axis=1)
            still = [part for part, moves in zip(PARTS, move[k], strict=True) if not moves]
            if len(first) == len(flat):
                for part in still:
                    yield "columns that stay", apart(A[:, part], first[k][:, part])
            else:
                first.append(A)
        for j in range(P):
            grown = at(a, t + 0.7 * (np.arange(P) == j))[2]
            if amplitudes[j]:
                yield "an amplitude", apart(grown, of_a[2] * np.exp(0.7 * amplitudes[j]))
        yield "a positive number", float(positive and not (of_a[2] > 0).all())


def first_of(index: NDArray[np.intp]) -> NDArray[np.intp]:
    """Where each number of an index is first."""
    return np.unique(index, return_index=True)[1]


def apart(a: Array, b: Array) -> float:
    """The largest difference, as a share of the size; 0 where one is not finite."""
    if a.shape != b.shape:
        return np.inf
    with np.errstate(all="ignore"):
        error = np.abs(a - b) / (1.0 + np.abs(a).max(initial=0.0) + np.abs(b).max(initial=0.0))
    return float(np.max(error[np.isfinite(error)], initial=0.0))


def largest(seeds: range) -> tuple[float, str]:
    """The claim that is refuted most, and of which graph."""
    worst = 0.0, "nothing"
    for seed in seeds:
        rng = np.random.default_rng(seed)
        graph = random_graph(rng)
        for what, error in refuted(graph, rng):
            worst = max(worst, (error, f"graph {seed}: {what}"))
    return worst


FAST, SOME, CHUNKS, IN_A_CHUNK = 60, 6, 20, 100


def test_what_is_said_of_random_graphs_is_true() -> None:
    error, where = largest(range(FAST))
    assert error < TOLERANCE, where


@pytest.mark.slow
@pytest.mark.parametrize(
    "chunk",
    [pytest.param(k, marks=[pytest.mark.whole] * (k >= SOME)) for k in range(CHUNKS)],
)
def test_what_is_said_of_many_random_graphs_is_true(chunk: int) -> None:
    begin = FAST + chunk * IN_A_CHUNK
    error, where = largest(range(begin, begin + IN_A_CHUNK))
    assert error < TOLERANCE, where


def a_maximum_called_affine(op: Any, dependent: Any) -> bool:
    return isinstance(op, ps.ScalarMaximum) or is_affine_elementwise(op, dependent)


def from_the_other_end(*args: Any) -> Any:
    """Of elements that are moved, others."""
    return [each[::-1] if each.ndim else each for each in sources(*args)]


MUTANTS: dict[str, tuple[Any, str, Any]] = {
    "a maximum called affine": (operations, "is_affine_elementwise", a_maximum_called_affine),
    "elements from the other end, merged": (elements, "sources", from_the_other_end),
    "elements from the other end, read": (reads, "sources", from_the_other_end),
}


@pytest.mark.mutant
@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_rule_is_noticed(name: str, monkeypatch: Any, dies: Any) -> None:
    monkeypatch.setattr(*MUTANTS[name])
    dies(f"random graphs: {name}", largest(range(20))[0], above=TOLERANCE)
