"""Which observations are of classes, by what their graph says: their W is diag(D) − u uᵀ at all f.

The cases that are told apart look alike at one f, or at a theta of zero.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

from models import QUICK
from scipy.special import log_softmax, softmax

import pymc_lgm as lgm

from pymc_lgm.approximations.laplace import laplace
from pymc_lgm.compile.graphs.functions import STABLE
from pymc_lgm.gaussian.sites import ClassBlocks
from pymc_lgm.model.class_sets import Logits, logits_of
from pymc_lgm.model.log_concave import are_softmaxes
from pymc_lgm.model.reads import joined, reads_of_densities, sets_of
from pymc_lgm.state import AtTheta

pytestmark = pytest.mark.usefixtures("interpreted")

f, theta = pt.vector("f", shape=(12,)), pt.scalar("theta")
ROWS = f.reshape((3, 4))
GROUP, Y, X = np.array([0, 1, 0, 2, 1]), np.array([0, 3, 1, 2, 0]), np.arange(20.0).reshape(5, 4)
COUNTS = np.array([[3, 0, 2, 1], [0, 0, 0, 0], [1, 1, 0, 7]])
VALUES = {f: np.zeros(12), theta: np.zeros(())}

CLASSES: dict[str, list[tuple[Any, Any]]] = {
    "ours": [(lgm.Softmax.dist(f=ROWS.T), Y[:3])],
    "Categorical": [(pm.Categorical.dist(logit_p=ROWS), Y[:3])],
    "along the first axis": [(pm.Categorical.dist(p=pt.special.softmax(ROWS.T, axis=0).T), Y[:3])],
    "Multinomial": [(pm.Multinomial.dist(6, p=pt.special.softmax(ROWS, axis=-1)), COUNTS)],
    "rows again and again": [(pm.Categorical.dist(logit_p=ROWS[GROUP]), Y)],
    "in another order": [(pm.Categorical.dist(logit_p=ROWS[GROUP][:, [2, 0, 3, 1]]), Y)],
    "two of them": [
        (pm.Categorical.dist(logit_p=ROWS), Y[:3]),
        (pm.Multinomial.dist(6, p=pt.special.softmax(ROWS, axis=-1)), COUNTS),
    ],
    "offsets": [(pm.Categorical.dist(logit_p=ROWS - theta * X[:3]), Y[:3])],
    "stacked": [(pm.Categorical.dist(logit_p=pt.stack([f[c::4] for c in range(4)], 1)), Y[:3])],
}

OTHERS: dict[str, list[tuple[Any, Any]]] = {
    "rows again, with other offsets": [(pm.Categorical.dist(logit_p=ROWS[GROUP] + theta * X), Y)],
    "two of them, one with offsets": [
        (pm.Categorical.dist(logit_p=ROWS), Y[:3]),
        (pm.Categorical.dist(logit_p=ROWS + theta * X[:3]), Y[:3]),
    ],
    "rows again, one scaled": [
        (pm.Categorical.dist(logit_p=ROWS), Y[:3]),
        (pm.Categorical.dist(logit_p=(1.0 + theta) * ROWS), Y[:3]),
    ],
    "a normal beside them": [
        (pm.Categorical.dist(logit_p=ROWS), Y[:3]),
        (pm.Normal.dist(theta * ROWS[:, 0]), X[0, :3]),
    ],
    "a reference class": [
        (pm.Categorical.dist(logit_p=pt.concatenate([ROWS, np.zeros((3, 1))], 1)), Y[:3])
    ],
    "a class twice": [(pm.Categorical.dist(logit_p=ROWS[:, [0, 1, 2, 3, 0]]), Y[:3])],
    "bent": [(pm.Categorical.dist(logit_p=ROWS + theta * ROWS**2), Y[:3])],
    "a value that is added to another": [
        (pm.Categorical.dist(logit_p=pt.inc_subtensor(ROWS[:, 0], theta * ROWS[:, 1])), Y[:3])
    ],
    "two classes": [(pm.Categorical.dist(logit_p=f.reshape((6, 2))), Y[:3][[0, 0, 0, 0, 0, 0]])],
    "rows that overlap": [
        (pm.Categorical.dist(logit_p=pt.stack([f[:2], f[1:3], f[2:4]])), np.array([0, 1, 1]))
    ],
    "a robust maximum": [(lgm.likelihoods.RobustMax.dist(f=ROWS.T), Y[:3])],
    "probabilities that are given": [
        (pm.Categorical.dist(p=0.1 + 0.6 * pt.special.softmax(ROWS, axis=-1)), Y[:3])
    ],
}


def density(terms: list[tuple[Any, Any]]) -> list[Any]:
    return [pm.logp(rv, np.asarray(observed)) for rv, observed in terms]


def are_classes(terms: list[tuple[Any, Any]], sets: Any) -> bool:
    densities = density(terms)
    logits = logits_of(densities, f) if are_softmaxes([rv for rv, _ in terms], [f]) else None
    return logits is not None and logits.are_classes(sets, f, VALUES)


def sets_in(terms: list[tuple[Any, Any]]) -> Any:
    return sets_of(joined(reads_of_densities(density(terms), f, VALUES)))


@pytest.mark.parametrize("name", CLASSES)
def test_what_is_proved_holds_at_every_f_and_theta(name: str) -> None:
    terms = CLASSES[name]
    sets = sets_in(terms)
    assert are_classes(terms, sets)
    total = sum(pt.sum(each) for each in density(terms))
    hessian = pt.jacobian(pt.grad(total, f), f)
    curvature = pytensor.function([f, theta], -hessian, mode=STABLE, on_unused_input="ignore")
    rng = np.random.default_rng(0)
    for scale in (0.3, 2.0, 6.0):
        W = curvature(scale * rng.standard_normal(12), scale * rng.standard_normal())
        blocks = W[sets[:, :, None], sets[:, None, :]]
        nearest = ClassBlocks.nearest(sets, blocks).values
        np.testing.assert_allclose(nearest, blocks, rtol=0, atol=1e-9 * np.abs(W).max())
        assert np.abs(blocks).sum() == pytest.approx(np.abs(W).sum())


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_not_proved_takes_the_general_path(name: str) -> None:
    terms = OTHERS[name]
    if (sets := sets_in(terms)) is None:
        sets = np.arange(12).reshape(3, 4)
    assert not are_classes(terms, sets)


# Evidence of a model that looks like classes where it is read

SD, OFFSETS = 2.0, np.random.default_rng(7).standard_normal((5, 4))


@cache
def alike_at_the_start() -> lgm.model.LatentGaussianModel:
    """Two observations of a set of f_i, with the same π where gamma is 0."""
    with pm.Model() as model:
        gamma = pm.Uniform("gamma", -3.0, 3.0, initval=0.0)
        x = pm.MvNormal("x", np.zeros(12), SD**2 * np.eye(12))
        logits = x.reshape((3, 4))[GROUP] + gamma * OFFSETS
        pm.Categorical("y", logit_p=logits, observed=Y)
    return lgm.read(model, compile_kwargs=QUICK)


def error_of_evidence(model: lgm.model.LatentGaussianModel) -> float:
    """Of Laplace's method at gamma = 2, against the formula at its mode."""
    gamma = 2.0
    here = AtTheta.of(model, np.log([(gamma + 3.0) / (3.0 - gamma)]))
    q = laplace(here.likelihood, here.prior, tolerance=1e-16)
    q = laplace(here.likelihood, here.prior, start=q.center, tolerance=1e-16)  # B at the mode
    h = q.center.reshape(3, 4)[GROUP] + gamma * OFFSETS
    pi, W = softmax(h, axis=1), np.zeros((3, 4, 4))
    np.add.at(W, GROUP, pi[:, :, None] * np.eye(4) - pi[:, :, None] * pi[:, None, :])
    ell = np.take_along_axis(log_softmax(h, axis=1), Y[:, None], axis=1).sum()
    log_det = np.linalg.slogdet(np.eye(4) + SD**2 * W)[1].sum()
    right = ell - 0.5 * (q.center @ q.center) / SD**2 - 0.5 * log_det
    return abs(q.log_evidence - right)


def test_the_evidence_is_right_where_rows_differ_away_from_the_start() -> None:
    model = alike_at_the_start()
    assert model.sets.tolist() == np.arange(12).reshape(3, 4).tolist()
    assert not model.classes
    assert error_of_evidence(model) < 1e-4


@pytest.mark.mutant
def test_classes_that_are_looked_for_at_one_theta_are_noticed(
    monkeypatch: pytest.MonkeyPatch, dies: Any
) -> None:
    """At the start the blocks of W have the form of classes."""
    model = alike_at_the_start()
    W = model.likelihood_terms(np.linspace(-1.0, 1.0, 12), np.zeros(1))[2]
    is_class = np.allclose(ClassBlocks.nearest(W.sets, W.values).values, W.values, atol=1e-9)
    monkeypatch.setattr(model, "classes", is_class)
    dies("classes: looked for", error_of_evidence(model), above=0.01)


def test_one_softmax_of_a_whole_matrix_is_left_to_the_general_form() -> None:
    assert logits_of([pt.log(pt.special.softmax(ROWS, axis=None))], f) is None


@pytest.mark.mutant
def test_offsets_that_are_forgotten_are_noticed(monkeypatch: pytest.MonkeyPatch, dies: Any) -> None:
    """Rows of the same elements are taken for rows with the same π."""
    terms = OTHERS["rows again, with other offsets"]
    logits = logits_of(density(terms), f)
    wrong = Logits(logits.rows, are_shifted=False).are_classes(sets_in(terms), f, VALUES)
    dies("classes: without offsets", float(wrong), above=0.5)
