"""Series: bands against dense algebra, autoregressions and random walks as PyMC has them."""

import math
import tracemalloc

from functools import cache

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import scipy.stats

from close import close
from models import QUICK, joint_law
from test_sets import from_pymc

import pymc_lgm as lgm

from pymc_lgm.approximations.variational import variational
from pymc_lgm.gaussian import BandedPrior, SumPrior, bands
from pymc_lgm.model.series import is_series
from pymc_lgm.state import AtTheta

pytestmark = pytest.mark.usefixtures("quick")

Y = np.array([2, 0, 1, 3])


def dense(T):
    n = T.shape[1]
    return sum(np.diag(T[k, : n - k], -k) for k in range(len(T)))


def band(M, width):
    return np.array([np.pad(np.diag(M, -k), (0, k)) for k in range(width)])


@pytest.mark.parametrize("width", [1, 2, 4])
@pytest.mark.parametrize("n", [4, 9, 10])
def test_bands_are_what_dense_matrices_are(rng, width, n):
    M = np.tril(rng.standard_normal((n, n)))
    T = band(M - np.tril(M, -width), width)
    T[0] = 1.0 + np.abs(T[0])
    full, x, columns = dense(T), rng.standard_normal(n), rng.standard_normal((n, 3))
    Q = full.T @ full
    close(dense(bands.gram(T)), np.tril(Q))
    close(dense(bands.flipped(T)), full[::-1, ::-1].T)
    for v in (x, columns):
        close(bands.multiply(T, v), full @ v)
        close(bands.multiply_transposed(T, v), full.T @ v)
        close(bands.solve(T, v), np.linalg.solve(full, v))
        close(bands.solve_transposed(T, v), np.linalg.solve(full.T, v))
    close(dense(bands.cholesky(bands.gram(T))), np.linalg.cholesky(Q))
    inverse = bands.inverse_on_band(bands.cholesky(bands.gram(T)))
    close(inverse, band(np.linalg.inv(Q), width))
    uncompiled = getattr(bands.inverse_on_band, "py_func", bands.inverse_on_band)
    close(uncompiled(bands.cholesky(bands.gram(T))), inverse)
    close(bands.outer(x, columns[:, 0], width), band(np.outer(x, columns[:, 0]), width))
    close(bands.product_on_band(T, inverse), band(full @ np.linalg.inv(Q), width))


def test_a_band_that_has_no_factor():
    assert bands.cholesky(np.array([[1.0, 1.0], [2.0, 0.0]])) is None
    assert bands.cholesky(np.array([[1.0, np.nan], [0.0, 0.0]])) is None


# Series as PyMC has them

MODELS = {}


def model(build):
    MODELS[build.__name__] = build
    return build


def observe(eta):
    pm.Poisson("y", pm.math.exp(eta), observed=pm.Data("seen", Y))


@model
def stationary():
    rho, sigma = pm.Uniform("rho", -1, 1), pm.LogNormal("sigma", -0.5, 0.5)
    start = pm.Normal.dist(0, sigma / pm.math.sqrt(1 - rho**2))
    observe(pm.LogNormal("mu", -1.0, 0.5) + pm.AR("x", [rho], sigma, init_dist=start, shape=4))


@model
def of_two_lags_and_a_constant():
    rho = pm.Normal("rho", 0, 0.3, shape=3)
    start = pm.Normal.dist([0.2, -0.1], 0.5)
    observe(pm.AR("x", rho, sigma=0.6, init_dist=start, constant=True, steps=2))


@model
def explosive():
    """Of no stationary law, but for its start as proper as others."""
    rho, sigma = pm.Normal("rho", 1.3, 0.1), pm.LogNormal("sigma", -1.5, 0.3)
    observe(pm.AR("x", [rho], sigma, init_dist=pm.Normal.dist(0.2, 0.4), shape=4))


@model
def random_walk_with_drift():
    drift, sigma = pm.Normal("drift", 0.1, 0.2), pm.LogNormal("sigma", -1, 0.5)
    start = pm.Normal.dist(0.5, 0.7)
    observe(pm.GaussianRandomWalk("x", mu=drift, sigma=sigma, init_dist=start, shape=4))


@model
def random_walk_seen_now_and_then():
    sigma = pm.LogNormal("sigma", -1, 0.5)
    start = pm.Normal.dist(0.5, 0.7)
    x = pm.GaussianRandomWalk("x", sigma=sigma, init_dist=start, steps=3)
    observe(x[[0, 1, 1, 3]])


def equation(change):
    """A stochastic differential equation in steps of 0.2."""
    rate, sigma = pm.LogNormal("rate", -1, 0.5), pm.LogNormal("sigma", -1, 0.5)
    start = pm.Normal.dist(0.5, 0.7)
    of_start = {"init_dist": start, "initval": np.zeros(4)}
    observe(pm.EulerMaruyama("x", 0.2, change, [rate, sigma], shape=4, **of_start))


@model
def linear_stochastic_equation():
    equation(lambda x, rate, sigma: (rate * (0.3 - x), sigma**2))


def build(name):
    with pm.Model() as built:
        MODELS[name]()
    return built


@cache
def shared(name):
    """A model that is read and compiled once for all samplers of it."""
    return build(name)


def read(name):
    return lgm.read(build(name), compile_kwargs=QUICK)


@pytest.mark.fast("stationary", "linear_stochastic_equation")
@pytest.mark.parametrize("name", MODELS)
def test_the_density_is_the_models(name):
    ours = read(name)
    assert isinstance(ours.prior(np.full(ours.p, 0.1)), BandedPrior)
    assert max(ours.check(draws=3).values()) < 1e-6


def test_what_is_read():
    ours = read("stationary")
    assert ours.latents == ("x",)
    assert list(ours.theta_names) == ["rho_interval__", "sigma_log__", "mu_log__"]
    assert ours.enters_cov.tolist() == [True, True, False]
    assert repr(ours.prior(np.zeros(3))) == "BandedPrior(n=4)"
    K = 0.5 * ours.cov(np.zeros(3)) + 0.5 * ours.cov(np.zeros(3)).T
    close(ours.prior(np.zeros(3)).variances, np.diag(K))


@pytest.mark.slow
def test_an_explosive_series_has_the_covariance_of_its_recursion():
    root = np.diag([0.4, *np.full(3, np.exp(-1.5))])
    for t in range(1, 4):
        root[t] += 1.3 * root[t - 1]
    prior = read("explosive").prior(np.array([1.3, -1.5]))
    close(prior.covariance_times(np.eye(4)), root @ root.T)
    close(prior.mean, 0.2 * 1.3 ** np.arange(4))


SAMPLERS = {
    "PseudoMarginal": (lgm.PseudoMarginal, {"n_importance": 4}),
    "ASIS": (lgm.ASIS, {}),
    "SurrogateSlice": (lgm.SurrogateSlice, {}),
    "Sweep-smmala": (lgm.Sweep, {"move": "smmala", "scale": 0.8}),
    "Sweep-smmala-sufficient": (
        lgm.Sweep,
        {"move": "smmala", "scale": 0.8, "parameterization": "sufficient"},
    ),
    "Sweep-hmc": (lgm.Sweep, {"move": "hmc", "scale": 0.1}),
    "KnorrHeldRue": (lgm.papers.KnorrHeldRue, {}),
    "LatentHMC-curvature": (lgm.LatentHMC, {"metric": "curvature"}),
    "EllipticalSlice": (lgm.EllipticalSlice, {}),
    "LatentSMMALA": (lgm.papers.LatentSMMALA, {"step_size": 0.8}),
    "NealMetropolis": (lgm.papers.NealMetropolis, {"step_size": 0.5}),
    "AuxiliaryGradient": (lgm.AuxiliaryGradient, {"step_size": 0.3}),
}


IN_SLOW = {
    ("stationary", "PseudoMarginal", 3),
    ("stationary", "Sweep-hmc", 3),
    ("stationary", "KnorrHeldRue", 3),
    ("stationary", "LatentHMC-curvature", 3),
    ("of_two_lags_and_a_constant", "PseudoMarginal", 3),
    ("explosive", "ASIS", 3),
    ("random_walk_with_drift", "ASIS", 3),
    ("random_walk_seen_now_and_then", "PseudoMarginal", 3),
}
"""Each model, and each way to use the algebra of bands; the other pairs before a release."""

TRIED = [
    (name, sampler, steps)
    for name in MODELS
    for sampler in (SAMPLERS if name == "stationary" else ("PseudoMarginal", "ASIS"))
    for steps in ((1, 3) if (name, sampler) == ("stationary", "PseudoMarginal") else (3,))
]
assert {*TRIED} >= IN_SLOW


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "sampler", "steps"),
    [pytest.param(*case, marks=[pytest.mark.whole] * (case not in IN_SLOW)) for case in TRIED],
)
def test_every_tuned_sampler_leaves_the_joint_law(name, sampler, steps):
    cls, options = SAMPLERS[sampler]
    test = joint_law(cls, shared(name), options=options, replicates=300, steps=steps, tune=60)
    assert test.pvalue > 1e-4


@pytest.mark.slow
def test_a_long_series_makes_no_square_array():
    n = 20_000

    def long():
        sigma = pm.LogNormal("sigma", -2, 0.5)
        start = pm.Normal.dist(0, 1)
        x = pm.GaussianRandomWalk("x", sigma=sigma, init_dist=start, shape=n)
        pm.Poisson("y", pm.math.exp(x), observed=np.ones(n, dtype=int))

    ours = from_pymc(long)
    tracemalloc.start()
    try:
        here = AtTheta.of(ours, np.full(1, -2.0))
        q = variational(here.likelihood, here.prior)
        gradient = q.posterior.evidence_gradient(q.alpha)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert np.isfinite(gradient).all()
    assert q.converged
    assert peak < 8 * n * 500  # 500 vectors, and a square array is 20 000 of them


# Series that are added to others, or summed up, are sums


def walk(name, sd=1.0):
    return pm.GaussianRandomWalk(name, sigma=sd, init_dist=pm.Normal.dist(0.2, 1), shape=4)


def two_series():
    observe(walk("x") + walk("z", 0.5))


def a_series_and_a_process():
    observe(walk("x") + pm.MvNormal("f", np.zeros(4), np.eye(4)))


def sums():
    observe(walk("x").cumsum())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "A", "beside"),
    [
        (two_series, np.eye(4), lambda K: 0.25 * (K - 1.0) + 1.0),
        (a_series_and_a_process, np.eye(4), lambda K: np.eye(4)),
        (sums, np.tril(np.ones((4, 4))), np.zeros_like),
    ],
)
def test_series_may_be_added(make, A, beside):
    K = 1.0 + np.minimum.outer(np.arange(4.0), np.arange(4.0))
    prior = from_pymc(make).prior(np.empty(0))
    assert isinstance(prior, SumPrior)
    of_eta = prior.covariance_times(np.eye(prior.n))[-4:, -4:]
    close(of_eta, A @ K @ A.T + beside(K))
    close(prior.mean[-4:], 0.2 * A.sum(axis=1) * (2 if make is two_series else 1))


# What is refused


def coupled():
    x = pm.GaussianRandomWalk("x", sigma=1.0, init_dist=pm.Normal.dist(0, 1), shape=4)
    pm.Normal("y", x[:2], pm.math.exp(x[2:]), observed=[0.3, 0.1])


def not_stationary():
    rho = pm.Normal("rho", 0, 1, initval=1.5)
    start = pm.Normal.dist(0, 1 / pm.math.sqrt(1 - rho**2))
    observe(pm.AR("x", [rho], 1.0, init_dist=start, shape=4))


def of_student_steps():
    innovation = pm.StudentT.dist(4, mu=0, sigma=1)
    start = pm.Normal.dist(0, 1)
    observe(pm.RandomWalk("x", init_dist=start, innovation_dist=innovation, steps=3))


NOT_LINEAR = {
    "drift": lambda x, rate, sigma: (-rate * x**2, sigma),
    "scale": lambda x, rate, sigma: (-rate * x, sigma * pm.math.abs(x)),
    "elements joined": lambda x, rate, sigma: (-rate * pt.mean(x), sigma),
}


@pytest.mark.parametrize("change", NOT_LINEAR.values(), ids=NOT_LINEAR)
def test_an_equation_that_is_not_linear_is_no_series(change):
    with pm.Model() as built:
        equation(change)
    assert not is_series(built["x"])


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (not_stationary, r"needs \|rho\| < 1"),
        (of_student_steps, "no latent Gaussian vector"),
    ],
)
@pytest.mark.filterwarnings("ignore:invalid value encountered in sqrt:RuntimeWarning")
def test_what_is_refused(build, message):
    with pytest.raises(ValueError, match=message):
        from_pymc(build)


def test_an_observation_that_reads_two_elements_joins_them():
    with pm.Model() as model:
        coupled()
    read = lgm.read(model, compile_kwargs=QUICK)
    assert read.sets is not None
    assert read.sets.shape[1] == 2
    assert max(read.check(5).values()) < 1e-8


def test_an_evidence_that_is_lost_in_rounding_counts_as_not_computable():
    """An explosive series has a huge prior mean, whose rounding errors exceed the evidence."""
    n, start, constant, sigma = 120, 9.0, 10.0, 0.12
    rng = np.random.default_rng(5)
    y = 5.0 + 0.3 * rng.standard_normal(n)
    with pm.Model() as model:
        rho = pm.Normal("rho", 0.0, 1.0)
        coefficients = pt.stack([constant, rho])
        init = pm.Normal.dist(start, 0.1)
        x = pm.AR("x", coefficients, sigma=sigma, init_dist=init, constant=True, shape=n)
        pm.Normal("y", x, sigma, observed=y)

    def exact(rho):
        T = np.eye(n) - rho * np.eye(n, k=-1)
        means = np.linalg.solve(T, np.r_[start, np.full(n - 1, constant)])
        root = np.linalg.solve(T, np.diag(np.r_[0.1, np.full(n - 1, sigma)]))
        return scipy.stats.multivariate_normal.logpdf(
            y, means, root @ root.T + sigma**2 * np.eye(n)
        )

    evidence = lgm.laplace(model)
    for good in (-0.9, -1.05):
        assert evidence.log_evidence({"rho": good}) == pytest.approx(exact(good), rel=1e-6)
    for lost in (-1.2, -3.5):
        assert math.isnan(evidence.log_evidence({"rho": lost}))
