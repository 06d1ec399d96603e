"""Rows of K_fu that are made apart: a claim about its graph, held against numbers."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from models import QUICK
from pytensor.graph.replace import clone_replace
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.special import softmax
from pytensor.tensor.subtensor import Subtensor

import pymc_lgm as lgm

from pymc_lgm.compile.graphs.functions import called_once
from pymc_lgm.model.forms import rows
from pymc_lgm.model.forms.rows import are_apart

pytestmark = pytest.mark.usefixtures("interpreted")

N, M, TOLERANCE = 6, 3, 1e-9
Variable = Any


def one_of(rng: np.random.Generator, of: Any) -> Any:
    return of[int(rng.integers(len(of)))]


def warped(rng: np.random.Generator, X: Variable, theta: Variable) -> Variable:
    """A matrix that is made of X, of as many rows."""
    t = one_of(rng, list(theta))
    joining: list[Callable[[], Variable]] = [
        lambda: X - X.mean(axis=0),
        lambda: pt.switch(t > 0.5, X[::-1], X),
        lambda: X[pt.switch(t > 0.5, np.arange(N)[::-1], np.arange(N))],
        lambda: pt.maximum(X, t * pt.max(X)),
        lambda: X * softmax(t * X, axis=0),
        lambda: X + t * np.arange(float(N))[:, None],
        lambda: pt.cumsum(X, axis=0),
        lambda: X.T.reshape((N, X.type.shape[1])),
        lambda: pt.set_subtensor(X[2:4], t),
        lambda: X.sum() * X,
    ]
    apart: list[Callable[[], Variable]] = [
        lambda: X * t,
        lambda: pt.switch(t < X, X, 0.0),
        lambda: pt.maximum(X - t, 0.0),
        lambda: X[:, ::-1],
        lambda: X[:, :1],
        lambda: X[:, np.array([0, -1])],
        lambda: pt.concatenate([X, pt.exp(-X)], axis=1),
        lambda: X @ pt.outer(pt.ones(X.type.shape[1]), theta[:2]),
        lambda: X.sum(axis=1)[:, None] + X,
        lambda: X.T[0].reshape((-1, 1)) - X,
        lambda: pt.stack([X[:, 0], X[:, -1] * t], axis=1),
    ]
    return one_of(rng, [*apart, *apart, *apart, *joining])()


def crossed(rng: np.random.Generator, Z: Variable, X: Variable, theta: Variable) -> Variable:
    """A matrix with a row for each of Z and a column for each of X."""
    a, b = Z.sum(axis=1), X.sum(axis=1)
    squares = pt.sqr(Z).sum(axis=1).reshape((-1, 1)) + pt.sqr(X).sum(axis=1).reshape((1, -1))
    kinds = [
        lambda: pt.exp(-0.3 * pt.clip(squares - 2.0 * pt.dot(Z, X.T), 0.0, np.inf)),
        lambda: pt.outer(a, b) + theta[0],
        lambda: pt.dot(X, Z.T).T,
        lambda: pt.exp(-abs(a[:, None] - b)),
        lambda: pt.outer(theta, theta)[
            pt.cast(a > 0, "int64")[:, None], pt.cast(b > theta[2], "int64")[None]
        ],
        lambda: pt.lt(a[:, None], b) * theta[1] + pt.dot(Z, X.T),
    ]
    return one_of(rng, kinds)()


def largest(seeds: range) -> tuple[float, int]:
    """By how much rows made apart differ from those of the whole; and how many graphs have such."""
    worst, found = 0.0, 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        X, Z = rng.standard_normal((N, 2)), rng.standard_normal((M, 2))
        X, Z, theta = pt.constant(X), pt.constant(Z), pt.vector("theta", shape=(3,))
        of_X = X
        for _ in range(int(rng.integers(3))):
            of_X = warped(rng, of_X, theta)
        width = of_X.type.shape[1]
        of_Z = pt.concatenate([Z] * width, axis=1)[:, :width]
        K = crossed(rng, of_Z, of_X, theta)
        if not are_apart(K, [X]):
            continue
        found += 1
        begin = int(rng.integers(N - 1))
        cut = slice(begin, int(rng.integers(begin + 1, N)))
        part = clone_replace(K, {X: X[cut]}, rebuild_strict=False)
        function = called_once([theta], [K, part])
        for scale in (0.3, 1.0, 3.0):
            whole, own = function(scale * rng.standard_normal(3))
            assert own.shape == whole[:, cut].shape, seed
            error = np.abs(whole[:, cut] - own).max() / (1.0 + np.abs(whole).max())
            worst = max(worst, float(error))
    return worst, found


def test_rows_that_are_apart_are_those_of_the_whole() -> None:
    error, found = largest(range(120))
    assert error < TOLERANCE
    assert 30 < found < 120


axis_of_rows = rows._axis_of_rows


@pytest.mark.mutant
def test_a_row_that_reads_others_is_noticed(monkeypatch: Any, dies: Any) -> None:
    def wrong(node: Any, axes: Any) -> Any:
        """Rows stay where they are if an index picks some, or if they are added up."""
        found, moves = axis_of_rows(node, axes), (Subtensor, CumOp)
        return 0 if found is None and isinstance(node.op, moves) and axes[0] == 0 else found

    monkeypatch.setattr(rows, "_axis_of_rows", wrong)
    dies("rows: a row of others", largest(range(120))[0], above=TOLERANCE)


class Centered(pm.gp.cov.Covariance):
    """Beyond a threshold a row reads the mean of all inputs."""

    def __init__(self, threshold: Variable):
        super().__init__(1)
        self.threshold = threshold

    def full(self, X: Variable, Xs: Variable = None) -> Variable:
        X = pt.as_tensor(X)
        Xs = X if Xs is None else pt.as_tensor(Xs)
        mean = pt.switch(self.threshold > 2.0, pt.mean(Xs, axis=0), 0.0)
        return 1.0 + pt.dot(X, (Xs - mean).T) + pt.exp(-abs(X - Xs.T))

    def diag(self, X: Variable) -> Variable:
        return pt.diag(self.full(X))


def test_a_row_that_reads_others_beyond_a_threshold(monkeypatch: Any) -> None:
    monkeypatch.setattr(rows, "ELEMENTS", 14)
    inputs, Xu = np.linspace(0.0, 2.0, 30)[:, None], np.array([[0.2], [1.1]])
    with pm.Model() as model:
        threshold = pm.Normal("threshold", 0.0, 1.0)
        cov = Centered(threshold)
        f = lgm.gp.SparseLatent(cov_func=cov).prior("f", inputs, Xu=Xu)
        lgm.Probit("y", f=f, observed=np.arange(30) % 2)
    form: Any = lgm.read(model, compile_kwargs=QUICK).form
    for at in (0.0, 3.0):
        (V,) = form.at_theta.maps(np.array([at]))
        K_uf = cov(Xu, inputs).eval({threshold: at})
        R = np.linalg.cholesky(cov(Xu).eval({threshold: at}) + 1e-6 * np.eye(2))
        np.testing.assert_allclose(V, np.linalg.solve(R, K_uf).T, rtol=1e-7)
