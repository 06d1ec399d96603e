"""Factors on a device, with NumPy in CuPy's place: what travels, and what comes back."""

import sys

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from models import build, listed
from toys import Counts

import pymc_lgm as lgm

from pymc_lgm.gaussian import DensePrior
from pymc_lgm.gaussian.sites import SiteBlocks
from pymc_lgm.linalg import DEVICE, CholeskyFactor, factorize, tally
from pymc_lgm.on_device import DeviceFactor, by_numpy, use_device

N = 6
THETA = np.array([1.1, 0.3, -0.5])
HERE = by_numpy(rows=2)

RNG = np.random.default_rng(3)
ROOT = RNG.standard_normal((N, N))
A = ROOT @ ROOT.T + np.eye(N)
X, COLUMNS = RNG.standard_normal(N), RNG.standard_normal((N, 2))

SETS = SiteBlocks(
    np.array([[0, 2], [1, -1]]),
    np.array([[[2.0, -1.5], [-1.5, 3.0]], [[3.0, 0.0], [0.0, 1.0]]]),
)

OF_A_FACTOR = {
    "multiply": lambda factor, x: factor.multiply(x),
    "multiply_transposed": lambda factor, x: factor.multiply_transposed(x),
    "solve": lambda factor, x: factor.solve(x),
    "solve_transposed": lambda factor, x: factor.solve_transposed(x),
    "inverse_times": lambda factor, x: factor.inverse_times(x),
    "log_density": lambda factor, _: factor.log_density(X),
    "log_determinant": lambda factor, _: factor.log_determinant,
    "inverse": lambda factor, _: factor.inverse(),
    "inverse_diagonal": lambda factor, _: factor.inverse_diagonal(),
    "inverse_factor": lambda factor, _: factor.inverse_factor(),
    "dense": lambda factor, _: factor.dense(),
    "n": lambda factor, _: factor.n,
}

OF_A_PRIOR = {
    "solve": lambda prior: prior.solve(np.ones(3)),
    "covariance_times": lambda prior: prior.covariance_times(np.ones(3)),
    "of columns": lambda prior: prior.covariance_times(np.eye(3, 2)),
    "precisions": lambda prior: prior.precisions,
    "dense": lambda prior: prior.dense(),
    "whitened_gradient": lambda prior: prior.whitened_gradient(np.arange(3.0), np.ones(3)),
    "evidence": lambda prior: conditioned(prior).log_determinant,
    "variances": lambda prior: conditioned(prior).variances,
    "root": lambda prior: conditioned(prior).multiply(np.arange(3.0)),
    "block": lambda prior: conditioned(prior).block(np.array([0, 2])),
    "alpha": lambda prior: conditioned(prior).alpha(np.arange(3.0)),
    "spread": lambda prior: conditioned(prior).quad_form(np.arange(3.0)),
    "whitened": lambda prior: conditioned(prior).whitened_deviations(np.ones((2, 3, 2)))[1],
    "deviations": lambda prior: conditioned(prior).deviations(np.ones((2, 3, 2))),
    "gradient": lambda prior: conditioned(prior).evidence_gradient(np.arange(3.0)),
    "sets": lambda prior: prior.condition(SETS).covariance_times(np.ones(3)),
}


def conditioned(prior):
    return prior.condition(np.array([2.0, 0.0, 5.0]))


def close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=1e-11, atol=1e-12)


def answers(verb):
    """What the verb says at a theta, and where a factor is shared; the operations of both."""
    before, prior = tally.cubic_ops, Counts(scaled=True).prior(THETA)
    there = prior.moved(THETA + np.array([0.0, 0.0, 0.4]))
    return verb(prior), verb(there), tally.cubic_ops - before


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("x", [X, COLUMNS], ids=["vector", "columns"])
@pytest.mark.parametrize("verb", OF_A_FACTOR)
def test_a_verb_of_a_factor(verb, x, lower):
    ask, triangle = OF_A_FACTOR[verb], np.tril(A) if lower else np.triu(A)
    expected = factorize(np.asfortranarray(triangle), lower=lower)
    with use_device(HERE):
        factor = factorize(np.asfortranarray(triangle), lower=lower)
    assert type(expected) is CholeskyFactor
    assert type(factor) is DeviceFactor
    for log_variance in (0.0, 0.7):
        ops = []
        for each in (expected, factor):
            before = tally.cubic_ops
            answer = ask(each.times(log_variance), x)
            ops.append(tally.cubic_ops - before)
        close(answer, ask(expected.times(log_variance), x))
        assert ops[0] == ops[1]


@pytest.mark.parametrize("verb", OF_A_PRIOR)
def test_a_verb_of_a_prior_and_of_the_same_conditioned(verb):
    expected = answers(OF_A_PRIOR[verb])
    with use_device(HERE):
        actual = answers(OF_A_PRIOR[verb])
    for answer, right in zip(actual, expected, strict=True):
        close(answer, right)


def test_no_array_of_n_by_n_travels_but_the_covariance_once():
    sent, fetched = Counter(), Counter()

    def counted(counter):
        def see(x):
            counter[np.ndim(x)] += np.shape(x) == (N, N) or np.ndim(x) < 2
            return np.asarray(x)

        return see

    xp = SimpleNamespace(asarray=counted(sent), linalg=np.linalg, eye=np.eye, arange=np.arange)
    with use_device(replace(HERE, xp=xp, fetched=counted(fetched))):
        prior = DensePrior(np.zeros(N), A.copy())
        for W in (np.ones(N), np.arange(N)):
            posterior = prior.condition(W)
            assert posterior is not None
            posterior.deviations(np.ones((2, N, 3)))
            assert posterior.variances.shape == (N,)
        prior.covariance_times(X)
        prior.log_density(X)
    assert sent[2] == 1
    assert fetched[2] == 0
    assert fetched[1] > 0


def test_what_cannot_be_factorized_is_a_value_and_counted():
    not_a_number = A.copy()
    not_a_number[3, 3] = np.nan
    indefinite = A.copy()
    indefinite[4, 4] = -1.0
    before = tally.cubic_ops
    with use_device(HERE):
        assert factorize(indefinite) is None
        assert factorize(not_a_number) is None
        prior = DensePrior(np.zeros(2), np.array([[1.0, 2.0], [2.0, 1.0]]))
        assert not prior.is_proper
    assert tally.cubic_ops == before + 3


def test_the_switch_is_off_outside_and_small_matrices_stay():
    with use_device(by_numpy(rows=N + 1)):
        assert type(factorize(A.copy())) is CholeskyFactor
    with pytest.raises(RuntimeError, match="in the block"), use_device(HERE):
        raise RuntimeError("in the block")
    assert DEVICE.get() is None
    in_place = np.asfortranarray(A)
    assert type(factorize(in_place)) is CholeskyFactor
    assert not np.array_equal(in_place, A)
    prior = DensePrior(np.zeros(N), A.copy())
    assert type(prior.factor) is CholeskyFactor


def test_without_cupy_the_switch_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(ImportError, match="pip install cupy"), use_device():
        pass
    assert DEVICE.get() is None


def chain():
    step, point = build(lgm.PseudoMarginal, "probit"), listed("probit").initial_point()
    step.setup_chain(np.random.default_rng(1), 2, 2)
    for draw in range(4):
        if draw == 2:
            step.stop_tuning()
        point, _ = step.step(point)
    return point


@pytest.mark.slow
def test_a_chain_is_the_same_up_to_rounding():
    expected = chain()
    with use_device(by_numpy(rows=1)):
        actual = chain()
    for name, value in expected.items():
        np.testing.assert_allclose(actual[name], value, rtol=1e-6)
