"""Which elements of f an observation reads: what the graph says holds wherever it is evaluated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from models import QUICK
from pytensor.raise_op import assert_op

import pymc_lgm as lgm

from pymc_lgm.compile.graphs.functions import called_once
from pymc_lgm.model.reads import (
    Evaluation,
    Reads,
    groups_of,
    joined,
    reads_of,
    sets_of,
    terms_of,
    within,
)

pytestmark = pytest.mark.usefixtures("interpreted")

f, theta = pt.vector("f", shape=(6,)), pt.vector("theta", shape=(2,))
AT = {f: np.linspace(0.1, 0.9, 6), theta: np.array([0.3, -0.2])}
A = np.array([[1.0, 0.0, 2.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0, 0.0, 1.0]])
ROWS = f.reshape((2, 3))
ALL = [list(range(6))]

KNOWN: dict[str, tuple[Any, list[list[int]]]] = {
    "a slice": (f[1:4] * theta[0], [[1], [2], [3]]),
    "a lag": (f[2:] + f[:-2], [[0, 2], [1, 3], [2, 4], [3, 5]]),
    "an index": (pt.exp(f[np.array([4, 0, 0])]), [[4], [0], [0]]),
    "an index that moves": (f[pt.cast(theta[0] > 0, "int64")], ALL),
    "an index that f moves": (theta[pt.cast(f[:1] > 0, "int64")], [[0]]),
    "a product with zeros": (f * np.array([1.0, 0, 1, 0, 0, 0]), [[0], [], [2], [], [], []]),
    "a matrix of numbers": (pt.dot(A, f), [[0, 2], [3, 5]]),
    "a matrix on the right": (pt.dot(f, A.T), [[0, 2], [3, 5]]),
    "rows by a matrix": (pt.dot(ROWS, np.eye(3)[:, :2]), [[0], [1], [3], [4]]),
    "a matrix by rows": (pt.dot(np.array([[0.0, 1.0]]), ROWS), [[3], [4], [5]]),
    "both move": (pt.dot(ROWS[:, :1], ROWS[:1]), [[0], [0, 1], [0, 2], [0, 3], [1, 3], [2, 3]]),
    "a sum": (ROWS.sum(axis=0), [[0, 3], [1, 4], [2, 5]]),
    "softmax": (pt.special.log_softmax(ROWS, axis=1), [[0, 1, 2]] * 3 + [[3, 4, 5]] * 3),
    "a sum of what came before": (pt.cumsum(f[:2]), [[0, 1]] * 2),
    "set": (pt.zeros(3)[np.array([2, 0])].set(f[:2]), [[1], [], [0]]),
    "added twice": (pt.zeros(2)[np.array([0, 0])].inc(f[:2]), [[0, 1], []]),
    "joined": (pt.concatenate([f[:1], theta, f[4:5]]), [[0], [], [], [4]]),
    "stacked": (pt.stack([f[3], theta[0] * f[1]]), [[3], [1]]),
    "chosen": (pt.switch(f[:2] > 0, f[2:4], 0.0), [[0, 2], [1, 3]]),
    "filled": (pt.zeros_like(f[:2]) + theta[0], [[], []]),
    "its length": (theta[0] * f.shape[0], [[]]),
    "an operation for each row": (
        pt.linalg.solve(np.eye(3)[None], ROWS, b_ndim=1),
        [[0, 1, 2]] * 3 + [[3, 4, 5]] * 3,
    ),
    "a number for each row": (pt.linalg.det(f[:2, None, None]), [[0], [1]]),
    "a matrix for all rows": (
        pt.linalg.solve(pt.diag(f[:2]), np.ones((2, 2)), b_ndim=1),
        [[0, 1]] * 4,
    ),
    "no rule": (pt.linalg.inv(pt.diag(f[:2])), [[0, 1]] * 4),
}


def rows_of(reads: Reads) -> list[list[int]]:
    return [sorted(reads.pattern[[k]].indices.tolist()) for k in range(reads.many.size)]


@pytest.mark.parametrize("name", KNOWN)
def test_each_rule(name: str) -> None:
    output, expected = KNOWN[name]
    (found,) = reads_of(Evaluation([output], AT), f)
    assert rows_of(found) == expected
    assert not found.many.any()


def test_elements_that_are_too_many() -> None:
    (found,) = reads_of(Evaluation([pt.stack([f.sum(), f[0]])], AT), f, most=3)
    assert found.many.tolist() == [True, False]
    assert found.counts.tolist() == [4, 1]
    assert joined([found]) is None


def random_graph(rng: np.random.Generator) -> Any:
    """Vectors of operations at random."""
    pool: list[Any] = [f, f[::-1], theta[0] * f, pt.exp(theta[1]) + pt.zeros(6)]
    unary: list[Callable[[Any], Any]] = [
        *(pt.exp, pt.sigmoid, pt.cumsum, pt.neg, lambda a: a[np.array([0, 0, 1, 2, 5, 4])]),
        *(lambda a: pt.special.softmax(a.reshape((3, 2)), axis=1).ravel(), lambda a: a * MASK),
        *(lambda a: pt.dot(PERMUTED, a), lambda a: a.reshape((2, 3)).T.ravel(), lambda a: a**2),
        *(lambda a: a - a.mean(), lambda a: pt.concatenate([a[3:], a[:3]]), pt.sort),
        *(lambda a: pt.broadcast_to(a.reshape((2, 3)).max(axis=0), (2, 3)).ravel(),),
    ]
    binary: list[Callable[[Any, Any], Any]] = [
        *(pt.add, pt.mul, pt.maximum, lambda a, b: pt.switch(a > theta[0], a, b)),
        *(
            lambda a, b: pt.set_subtensor(a[1:3], b[:2]),
            lambda a, b: pt.inc_subtensor(a[::2], b[3:]),
        ),
        *(lambda a, b: pt.dot(pt.outer(a, b), MASK), lambda a, b: pt.where(MASK > 0, a, b)),
    ]
    for _ in range(4):
        a, b = (pool[k] for k in rng.integers(len(pool), size=2))
        two = rng.uniform() < 0.5
        pool.append(
            binary[rng.integers(len(binary))](a, b) if two else unary[rng.integers(len(unary))](a)
        )
    return pool[-1]


MASK = np.array([1.0, 0.0, 1.0, 1.0, 0.0, 1.0])
PERMUTED = np.eye(6)[[2, 0, 1, 5, 3, 4]]


@pytest.mark.slow
def test_what_a_random_graph_does_not_read_does_not_move_it() -> None:
    rng, apart = np.random.default_rng(0), 0
    for _ in range(150):
        graph = random_graph(rng)
        (found,) = reads_of(Evaluation([graph], AT), f)
        reads = found.pattern.toarray() | found.many[:, None]
        value = called_once([f, theta], graph)
        for _ in range(4):
            x, at = 2.0 * rng.standard_normal(6), rng.standard_normal(2)
            for j in range(6):
                moved = np.where(np.arange(6) == j, 3.0 * rng.standard_normal(), x)
                same = value(x, at) == value(moved, at)
                assert same[~reads[:, j]].all()
        apart += int((~reads).any())
    assert apart > 75


def test_a_density_is_taken_apart_into_its_terms() -> None:
    mean, scale = f[:3] * theta[0], pt.exp(theta[1])
    normal = pm.logp(pm.Normal.dist(mean, scale), np.zeros(3))
    checked = assert_op(normal.sum() + 2.0 * f[3:].sum() / scale, pt.all(f > -9.0))
    of_each = reads_of(Evaluation(terms_of(checked, f), AT), f)
    assert all((each.counts <= 1).all() for each in of_each)
    for joint in (
        pt.exp(f.sum()),
        1.0 * pt.cast((f[0] > 0) & (f[1] > 0), "float64"),
        pt.switch(pt.all(f > 0), 1.0, 0.0),
        pt.log(normal.sum()),
    ):
        assert any(
            (each.counts > 1).any() for each in reads_of(Evaluation(terms_of(joint, f), AT), f)
        )


def test_sets_are_what_is_joined() -> None:
    reads = reads_of(Evaluation([f[:2] * f[3:5], pt.exp(f[5:])], AT), f)
    group = joined(reads)
    assert group is not None
    sets = sets_of(group)
    assert sets is not None
    assert sets.tolist() == [[0, 3], [1, 4], [2, -1], [5, -1]]
    assert groups_of(sets, 6).tolist() == group.tolist()
    (elements,) = reads_of(Evaluation([pt.concatenate([f[4:5], theta, f[2:3]])], AT), f)
    found = within(elements, group)
    assert found is not None
    assert found.tolist() == [1, 0, 0, 2]
    (several,) = reads_of(Evaluation([f[:1] + f[1:2]], AT), f)
    assert within(several, group) is None


def late_lag() -> pm.Model:
    """What is read a lag later is multiplied by a coefficient that begins at zero."""
    rng = np.random.default_rng(0)
    with pm.Model() as model:
        k, b = pm.Normal("k", initval=0.0), pm.Normal("b")
        x = pm.AR("x", rho=[0.5], sigma=0.3, init_dist=pm.Normal.dist(), shape=30)
        g = pm.math.exp(x + b * rng.standard_normal(30))
        pm.Normal("y", g[1:] + k * g[:-1], 1.0, observed=rng.standard_normal(29))
    return model


def test_a_lag_whose_coefficient_begins_at_zero_is_read() -> None:
    with late_lag(), pytest.raises(ValueError, match="joins more than 12 elements"):
        lgm.PseudoMarginal(compile_kwargs=QUICK)


@pytest.mark.fast("True")
@pytest.mark.parametrize("two", [False, True])
def test_ordered_logistic_reads_one_element(two: bool) -> None:
    shape, cuts = ((3, 2) if two else (6,)), np.array([-1.0, 0.0, 1.0])
    observed = np.array([0, 1, 2, 3, 1, 0]).reshape(shape)
    with pm.Model() as model:
        s = pm.HalfNormal("s")
        pm.OrderedLogistic(
            "y", eta=pm.Normal("b", 0, s, shape=shape), cutpoints=cuts, observed=observed
        )
    read = lgm.read(model, compile_kwargs=QUICK)
    assert read.coupled is None
    assert max(read.check(draws=5).values()) < 1e-6


@pytest.mark.fast("False")
@pytest.mark.parametrize("two", [False, True])
def test_ordered_probit_reads_one_element(two: bool) -> None:
    """Its density has slices of the differences from cut points, with both signs."""
    shape, observed = ((3, 2) if two else (6,)), np.array([0, 1, 2, 3, 1, 0])
    with pm.Model() as model:
        s = pm.HalfNormal("s")
        first, steps = pm.Laplace("first", -1, 1), pm.Exponential("steps", 1, shape=2)
        cuts = pm.math.stack([first, first + steps[0], first + steps[0] + steps[1]])
        b = pm.Normal("b", 0, 1, shape=3)
        eta = pt.reshape(b[np.array([0, 1, 2, 0, 1, 2])] + np.arange(6.0), shape)
        pm.OrderedProbit("y", eta, cuts, sigma=s, observed=observed.reshape(shape))
    read = lgm.read(model, compile_kwargs=QUICK)
    assert read.n == 6
    assert np.sort(read.element_reads[:, 0]).tolist() == list(range(6))
    assert max(read.check(draws=5).values()) < 1e-6


@pytest.mark.fast("None")
@pytest.mark.parametrize("other", [0.0, None])
def test_a_class_of_reference_is_no_element_of_f(other: float | None) -> None:
    """It joins no observations, whether it is zero or moves with theta."""
    rng, group = np.random.default_rng(0), np.repeat(np.arange(8), 3)
    with pm.Model() as model:
        s, level = pm.HalfNormal("s"), pm.StudentT("level", 4)
        b = pm.Normal("b", 0, s, shape=(8, 2))
        last = pt.zeros((24, 1)) + (level if other is None else other)
        eta = pt.concatenate([b[group], last], axis=1)
        pm.Categorical("y", logit_p=eta, observed=rng.integers(0, 3, 24))
    read = lgm.read(model, compile_kwargs=QUICK)
    assert read.n == 16
    assert read.sets is not None
    assert read.sets.tolist() == np.arange(16).reshape(8, 2).tolist()
    assert read.is_log_concave
    assert max(read.check(draws=5).values()) < 1e-6
