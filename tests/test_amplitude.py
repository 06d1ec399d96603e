"""Amplitudes: what only multiplies K is found, and moves without a factorization."""

import math

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

from models import QUICK
from scipy import stats
from toys import Counts

import pymc_lgm as lgm

from pymc_lgm.compile.graphs.functions import STABLE
from pymc_lgm.gaussian import dense
from pymc_lgm.linalg import CholeskyFactor, factorize, tally
from pymc_lgm.model import LatentGaussianModel
from pymc_lgm.model.amplitudes import find_amplitudes
from pymc_lgm.moves.theta.slice import slice_componentwise
from pymc_lgm.state import State
from pymc_lgm.targets import PARAMETERIZATIONS

X = np.array([[0.0], [0.5], [1.4]])
C = np.exp(-np.abs(X - X.T)) + 1e-3 * np.eye(3)


def counts(cov, mu=1.2):
    """A model whose covariance, and perhaps mean, is a function that makes its own variables."""
    with pm.Model() as model:
        f = pm.MvNormal("f", mu=np.ones(3) * (mu() if callable(mu) else mu), cov=cov())
        lgm.LogGaussianCox("y", f=f, observed=pm.Data("data", [0, 3, 1]))
    return model


def gp(jitter, kernel=None):
    with pm.Model() as model:
        ls, eta = pm.LogNormal("ls", 0, 0.5), pm.HalfNormal("eta")
        inner = pm.gp.cov.Matern32(1, ls=ls)
        if kernel is not None:
            inner = kernel(inner)
        latent = pm.gp.Latent(cov_func=eta**2 * inner)
        f = latent.prior("f", X, reparameterize=False, jitter=jitter)
        lgm.LogGaussianCox("y", f=f, observed=pm.Data("data", [0, 3, 1]))
    return model


def with_nugget(kernel):
    return kernel + pm.gp.cov.WhiteNoise(1e-2)


def read(model):
    return LatentGaussianModel.from_pymc(model, compile_kwargs=QUICK)


# What is an amplitude


def two_terms():
    return pm.HalfNormal("eta") * C + pm.HalfNormal("noise") * np.eye(3)


def floored():
    return pm.math.maximum(pm.HalfNormal("eta"), 1e-4) * C


def bounded():
    return pm.Uniform("eta", 0, 3) * C


def a_product():
    return pm.HalfNormal("eta") * pm.InverseGamma("eta2", 3, 2) ** 2 * C


def since_a_change():
    """A term that is zero where the model starts: `before` is 1 for years before a change."""
    before = pt.lt(np.array([1950.0, 1990.0, 2020.0]), pm.Normal("cp", 1985, 10)) * 1.0
    eta, d = pm.HalfNormal("eta"), pm.HalfNormal("d")
    return eta**2 * C + d**2 * pt.outer(before, before)


def both_scaled():
    """A factor of each of two terms, as one variable or another, and of a root."""
    eta, ls = pm.HalfNormal("eta"), pm.LogNormal("ls")
    root = eta * pt.linalg.cholesky(pt.exp(-pt.abs(X - X.T) / ls))
    return root @ root.T + pt.set_subtensor(pt.zeros((3, 3))[0, 0], (2 * eta) ** 2)


def scale_of_each():
    """One scale is a factor of no more than a row and a column."""
    s = pm.HalfNormal("s", shape=3)
    return s[:, None] * C * s[None, :]


def first_scale():
    """The first of three scales is a factor of all."""
    return pm.HalfNormal("s", shape=3)[0] * C


DETECTED = {
    "a term that comes later": (lambda: counts(since_a_change), [0.0, 0.0, 0.0]),
    "both terms": (lambda: counts(both_scaled), [2.0, 0.0]),
    "a scale of each": (lambda: counts(scale_of_each), [0.0, 0.0, 0.0]),
    "one of three scales": (lambda: counts(first_scale), [1.0, 0.0, 0.0]),
    "sigma C": (lambda: counts(lambda: pm.HalfNormal("eta") * C), [1.0]),
    "eta² C": (lambda: counts(lambda: pm.HalfNormal("eta") ** 2 * C), [2.0]),
    "C / tau": (lambda: counts(lambda: C / pm.Gamma("tau", 2, 1)), [-1.0]),
    "log eta": (lambda: counts(lambda: pm.math.exp(2 * pm.Normal("log_eta")) * C), [2.0]),
    "a product": (lambda: counts(a_product), [1.0, 2.0]),
    "gp, nugget inside": (lambda: gp(0.0, with_nugget), [0.0, 2.0]),
    "gp, jitter outside": (lambda: gp(1e-6), [0.0, 0.0]),
    "gp, tiny jitter outside": (lambda: gp(1e-12), [0.0, 0.0]),
    "two terms": (lambda: counts(two_terms), [0.0, 0.0]),
    "a floor": (lambda: counts(floored), [0.0]),
    "another transform": (lambda: counts(bounded), [0.0]),
    "no covariance": (lambda: counts(lambda: C, lambda: pm.HalfNormal("mu")), [0.0]),
}


@pytest.mark.fast("a floor", "gp, nugget inside", "a product")
@pytest.mark.parametrize("name", DETECTED)
def test_amplitudes_are_found_and_nothing_else(name):
    build, expected = DETECTED[name]
    np.testing.assert_array_equal(read(build()).amplitudes, expected)


def random_graph(rng, theta):
    """A matrix of theta, by operations at random: each of a rule of its own, and some of none."""
    symmetric = np.exp(-np.abs(X - X.T))
    pool = [pt.exp(theta[0]), pt.exp(2 * theta[1]), theta[2], pt.as_tensor(symmetric)]
    pool += [pt.zeros((3, 3)), pt.exp(theta[:2])[:, None, None][1], pt.exp(-theta - 0.5).sum()]
    binary = [pt.add, pt.sub, pt.mul, pt.true_div, pt.maximum, pt.minimum, pt.dot]
    binary += [lambda a, b: pt.switch(pt.lt(a, b), a, b), lambda a, b: pt.stack([a, b]).sum(axis=0)]
    binary += [lambda a, b: pt.set_subtensor((a * symmetric)[1], b[0])]
    unary = [pt.exp, pt.log, pt.sqrt, pt.sqr, pt.abs, pt.neg, pt.reciprocal, pt.tanh, pt.sign]
    unary += [lambda a: a**3.0, lambda a: a[::-1], lambda a: a.sum(axis=0), lambda a: 2.0 * a]
    unary += [lambda a: pt.linalg.cholesky(pt.abs(a) * symmetric), lambda a: a.T, lambda a: 1.0 + a]
    for _ in range(5):
        a, b = (pool[k] for k in rng.integers(len(pool), size=2))
        a, b = (pt.broadcast_to(x, (3, 3)) for x in (a, b))
        f = binary[rng.integers(len(binary))] if rng.uniform() < 0.5 else None
        pool.append(f(a, b) if f else unary[rng.integers(len(unary))](a))
    return pt.broadcast_to(pool[-1], (3, 3))


@pytest.mark.slow
def test_what_random_graphs_claim_is_so():
    rng, claims = np.random.default_rng(0), 0
    theta = pt.vector("theta", shape=(3,))
    for _ in range(300):
        graph = random_graph(rng, theta)
        k = find_amplitudes(graph, theta)
        if not k.any():
            continue
        # PyTensor may write log(exp(x)) as x, which is finite where exp(x) is not.
        matrix = pytensor.function([theta], graph, mode=STABLE, on_unused_input="ignore")
        for at in 2.0 * rng.standard_normal((3, 3)):
            for j in np.flatnonzero(k):
                for d in (-5.0, 0.5, 5.0):
                    with np.errstate(all="ignore"):
                        right = np.exp(k[j] * d) * matrix(at)
                        found = matrix(at + d * (np.arange(3) == j))
                    np.testing.assert_allclose(found, right, rtol=1e-9)
        claims += int((k != 0.0).sum())
    assert claims > 50


def test_a_covariance_that_others_move_has_no_amplitudes():
    model = gp(0.0, with_nugget)
    ours = LatentGaussianModel.from_pymc(model, theta=[model["eta"]], compile_kwargs=QUICK)
    np.testing.assert_array_equal(ours.amplitudes, [0.0])


# The scaled factor


def test_a_scaled_factor_is_a_fresh_factorization():
    rng = np.random.default_rng(1)
    A = rng.standard_normal((6, 6))
    K, v = A @ A.T + np.eye(6), 2.7
    before = factorize(K.copy())
    spent = tally.cubic_ops
    scaled = before.times(math.log(v))
    assert tally.cubic_ops == spent
    fresh = factorize(v * K)
    x, X3, W = rng.standard_normal(6), rng.standard_normal((6, 3)), rng.uniform(0, 2, 6)
    for verb in (
        *(
            lambda L, n=name, c=columns: getattr(L, n)(c)
            for name in (
                "multiply",
                "multiply_transposed",
                "solve",
                "solve_transposed",
                "inverse_times",
            )
            for columns in (x, X3)
        ),
        lambda L: L.log_determinant,
        lambda L: L.log_density(x),
        lambda L: L.inverse(),
        lambda L: L.inverse_diagonal(),
        lambda L: L.inverse_factor(),
        lambda L: L.dense(),
        lambda L: dense.multiply_vjp(L, x, W),
    ):
        np.testing.assert_allclose(verb(scaled), verb(fresh), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(before.multiply(x), np.linalg.cholesky(K) @ x)  # left as it was
    scaled = dense.DensePrior(x, K.copy(), math.log(v))
    fresh = dense.DensePrior(x, v * K)
    for verb in (
        *(
            lambda prior, n=name, c=columns: getattr(prior, n)(c)
            for name in (
                "multiply",
                "multiply_transposed",
                "solve",
                "inverse_times",
                "covariance_times",
            )
            for columns in (x, X3)
        ),
        lambda prior: prior.log_density(W),
        lambda prior: prior.variances,
        lambda prior: prior.precisions,
        lambda prior: prior.condition(W)._B.dense(),
        lambda prior: prior.condition(W).variances,
    ):
        np.testing.assert_allclose(verb(scaled), verb(fresh), rtol=1e-10, atol=1e-12)


@pytest.fixture
def state():
    state = State.of(Counts(scaled=True), np.array([1.0, -0.2, 0.4]), np.array([0.5, 1.4, 0.3]))
    assert state is not None
    return state


def test_an_amplitude_moves_without_a_factorization(state):
    before = tally.cubic_ops
    there = state.with_theta(state.theta + np.array([0.1, 0.0, 0.9]), lambda prior: state.f)
    assert tally.cubic_ops == before
    fresh = State.of(state.model, there.theta, state.f)
    assert tally.cubic_ops == before + 1
    # To the last bit: a restored chain repeats itself.
    np.testing.assert_array_equal(there.prior.factor.dense(), fresh.prior.factor.dense())
    assert there.prior.factor.log_determinant == fresh.prior.factor.log_determinant
    K = state.model.cov(there.theta)
    np.testing.assert_allclose(there.prior.factor.dense(), np.linalg.cholesky(K), rtol=1e-10)
    np.testing.assert_allclose(there.prior.covariance_times(state.f), K @ state.f, rtol=1e-10)
    spent = tally.cubic_ops
    state.with_theta(state.theta + np.array([0.0, 0.1, 0.9]), lambda prior: state.f)
    assert tally.cubic_ops == spent + 1


@pytest.mark.parametrize("far", [-3000.0, 3000.0])
def test_an_amplitude_that_leaves_the_numbers_is_a_rejection(far):
    model = read(counts(lambda: pm.math.exp(pm.Normal("log_eta", 0, 100)) * C))
    here = State.of(model, np.zeros(1), np.ones(3))
    lost = tally.numerical_rejections
    assert here.with_theta(np.array([far]), lambda prior: here.f) is None
    assert State.of(model, np.array([far]), np.ones(3)) is None
    assert tally.numerical_rejections == lost + 2


# Exactness


def law_of(parameterization, state):
    """The log density of the scale t = theta_2 with f, or with whitened f, and the rest fixed."""
    toy, z = state.model, state.f - state.mean

    def log_density(t):
        theta = np.array([*state.theta[:2], t])
        f = state.f
        if parameterization == "whitened":
            f = state.mean + z * math.exp(t - state.theta[2])
            return toy.log_prior(theta) + toy.log_likelihood(f, theta)
        return toy.log_prior(theta) + stats.multivariate_normal.logpdf(z, cov=toy.cov(theta))

    return log_density


def pvalue_given(parameterization, toy):
    """K-S of draws of the scale from its law, by quadrature: a slice moves nothing else."""
    state = State.of(toy, np.array([1.0, -0.2, 0.4]), np.array([-0.5, 2.4, 2.0]))
    x = np.linspace(-3.0, 3.0, 2001)
    log_density = np.array([*map(law_of(parameterization, state), x)])
    cdf = np.cumsum(np.exp(log_density - log_density.max()))
    rng, at, draws = np.random.default_rng(4), state, []
    for _ in range(600):
        for _ in range(12):
            target = PARAMETERIZATIONS[parameterization](rng, at)
            at, _ = slice_componentwise(rng, target, widths=np.full(3, 0.7), components=[2])
        draws.append(at.theta[2])
    return stats.kstest(draws, lambda t: np.interp(t, x, cdf / cdf[-1])).pvalue


@pytest.mark.parametrize("parameterization", ["sufficient", "whitened"])
def test_the_scale_alone_has_its_law(parameterization):
    spent = tally.cubic_ops
    assert pvalue_given(parameterization, Counts(scaled=True)) > 1e-4
    assert tally.cubic_ops == spent + 1


def wrong_exponent(monkeypatch, toy):
    monkeypatch.setattr(toy, "amplitudes", 2 * toy.amplitudes)


def no_determinant(monkeypatch, toy):
    monkeypatch.setattr(CholeskyFactor, "times", leaving("log_determinant"))


def unscaled_root(monkeypatch, toy):
    monkeypatch.setattr(CholeskyFactor, "times", leaving("_scale"))


def leaving(attribute):
    """A scaled factor with one attribute as it was."""
    times = CholeskyFactor.times

    def forgetful(self, log_variance):
        factor = times(self, log_variance)
        setattr(factor, attribute, getattr(self, attribute))
        return factor

    return forgetful


MUTANTS = [
    ("sufficient", wrong_exponent),
    ("sufficient", no_determinant),
    ("sufficient", unscaled_root),
    ("whitened", wrong_exponent),
    ("whitened", unscaled_root),
]


@pytest.mark.mutant
@pytest.mark.parametrize(("parameterization", "mutant"), MUTANTS)
def test_a_mutant_is_noticed(parameterization, mutant, monkeypatch, dies):
    toy = Counts(scaled=True)
    mutant(monkeypatch, toy)
    pvalue = pvalue_given(parameterization, toy)
    dies(f"amplitude, {parameterization}: {mutant.__name__}", pvalue, below=1e-6)
