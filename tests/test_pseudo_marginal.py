"""Gaussian approximations, importance estimates, and wrong pseudo-marginal kernels."""

import math

from dataclasses import replace
from functools import partial

import numpy as np
import pymc as pm
import pytest

from models import MODELS
from test_quadrature import draw, solve, z_scores

import pymc_lgm as lgm

from pymc_lgm import sweep
from pymc_lgm.approximations.importance import Coordinates, Scheme, importance_sample
from pymc_lgm.approximations.laplace import laplace
from pymc_lgm.linalg import Covariance, factorize, tally
from pymc_lgm.parameterizations import pseudo_marginal as module
from pymc_lgm.testing import joint_test


def gaussian_likelihood(y, noise):
    """ℓ, g, W and the third derivative of y ~ N(f, noise): Laplace's method is exact."""

    def terms(f):
        r = y - f
        value = -0.5 * float((r**2).sum()) / noise - 0.5 * y.size * math.log(2 * math.pi * noise)
        return value, r / noise, np.full(y.size, 1 / noise), np.zeros(y.size)

    return terms


@pytest.fixture
def rng():
    return np.random.default_rng(3)


@pytest.fixture
def gaussian(rng):
    A = rng.standard_normal((5, 5))
    K = A @ A.T + np.eye(5)
    mean, y, noise = rng.standard_normal(5), rng.standard_normal(5), 0.7
    return K, mean, y, noise, gaussian_likelihood(y, noise)


def test_laplace_is_exact_for_a_gaussian_likelihood(gaussian):
    K, mean, y, noise, terms = gaussian
    q = laplace(terms, mean, Covariance(K.copy()), tolerance=1e-8)
    evidence = factorize(K + noise * np.eye(5)).log_density(y - mean)
    assert q.log_evidence == pytest.approx(evidence)
    posterior_mean = mean + K @ np.linalg.solve(K + noise * np.eye(5), y - mean)
    np.testing.assert_allclose(q.center, posterior_mean)
    assert q.converged
    assert q.iterations == 1


def test_importance_weights_are_constant_where_q_is_exact(gaussian, rng):
    K, mean, _, _, terms = gaussian
    prior = factorize(K.copy())
    q = laplace(terms, mean, prior, tolerance=1e-8)
    scheme = Scheme(8)
    sample = importance_sample(
        q, prior, lambda f: terms(f)[0], Coordinates.fresh(rng, 5, scheme), scheme
    )
    np.testing.assert_allclose(sample.log_weights, q.log_evidence)
    assert sample.log_evidence_sd == pytest.approx(0.0, abs=1e-10)


def test_draws_have_the_covariance_of_q(gaussian, rng):
    K, mean, _, noise, terms = gaussian
    prior = factorize(K.copy())
    q = laplace(terms, mean, prior)
    draws = q.deviations(prior, rng.standard_normal((2, 5, 200_000)))
    expected = np.linalg.inv(np.linalg.inv(K) + np.eye(5) / noise)
    # Elements of a sample covariance have standard error √((S_ij² + S_ii S_jj)/N).
    error = np.sqrt((expected**2 + np.outer(*[np.diag(expected)] * 2)) / 200_000)
    assert np.abs((np.cov(draws) - expected) / error).max() < 5


def test_coordinates_invert_deviations(gaussian, rng):
    K, mean, _, _, terms = gaussian
    prior = factorize(K.copy())
    q = laplace(terms, mean, prior)
    deviation = rng.standard_normal(5)
    xi = q.coordinates(rng, prior, deviation)
    np.testing.assert_allclose(q.deviations(prior, xi[:, :, None])[:, 0], deviation)


@pytest.mark.parametrize("defensive", [0.0, 0.3])
def test_coordinates_around_a_draw_are_standard_normal_on_average(gaussian, rng, defensive):
    """f from q, then ξ given f: ξ has the law it would have had without f."""
    K, mean, _, _, terms = gaussian
    prior = factorize(K.copy())
    q = laplace(terms, mean, prior)
    scheme = Scheme(1, antithetic=False, defensive=defensive)
    xi, marks = [], []
    for _ in range(4000):
        first = Coordinates.fresh(rng, 5, scheme)
        f = importance_sample(q, prior, lambda f: 0.0, first, scheme).f[:, 0]
        again = Coordinates.around(rng, f, q, prior, scheme)
        np.testing.assert_allclose(
            importance_sample(q, prior, lambda f: 0.0, again, scheme).f[:, 0], f
        )
        xi.append(again.xi.ravel())
        marks.append(again.from_prior[0])
    moments = np.cov(np.array(xi).T) - np.eye(10)
    assert np.abs(moments * np.sqrt(4000 / (1 + np.eye(10)))).max() < 5
    assert abs(np.mean(marks) - defensive) <= 5 * math.sqrt(defensive * (1 - defensive) / 4000)


@pytest.mark.parametrize("name", MODELS)
def test_estimates_are_unbiased(name, rng):
    """The mean of p̃ is the integral of p(y | f) N(f; m, K), by brute force over the prior."""
    model = MODELS[name](n=2)
    reader = lgm.LatentGaussianModel.from_pymc(model)
    theta = reader.theta_of(model.initial_point())
    mean, prior = reader.mean(theta), factorize(reader.cov(theta))
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    grid = np.array([[a, b] for a in nodes for b in nodes]).T
    f = mean[:, None] + prior.multiply(grid)
    values = np.exp([reader.log_likelihood(c, theta) for c in np.ascontiguousarray(f.T)])
    exact = float(np.outer(weights, weights).ravel() @ values) / (2 * math.pi)

    q = laplace(lambda f: reader.likelihood_terms(f, theta), mean, prior, tolerance=0.5)
    for scheme in (Scheme(2000, antithetic=False), Scheme(2000), Scheme(2000, defensive=0.2)):
        sample = importance_sample(
            q,
            prior,
            lambda f: reader.log_likelihood(f, theta),
            Coordinates.fresh(rng, 2, scheme),
            scheme,
        )
        w = np.exp(sample.log_weights)
        if scheme.pairs:  # the two of a pair are not independent
            w = w.reshape(2, -1).mean(0)
        assert abs(w.mean() - exact) < 5 * w.std() / math.sqrt(w.size) + 1e-12 * exact


def test_newton_takes_few_factorizations(rng):
    model = MODELS["logistic"]()
    reader = lgm.LatentGaussianModel.from_pymc(model)
    theta = reader.theta_of(model.initial_point())
    before = tally.cubic_ops
    q = laplace(
        lambda f: reader.likelihood_terms(f, theta),
        reader.mean(theta),
        Covariance(reader.cov(theta)),
        tolerance=1e-2,
    )
    assert tally.cubic_ops - before == q.iterations <= 4


def test_a_search_that_leaves_the_numbers_is_a_value():
    def terms(f):
        return -1.0, np.full(3, np.nan), np.ones(3), np.zeros(3)

    assert laplace(terms, np.zeros(3), Covariance(np.eye(3))) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_importance": 0}, "n_importance must be a whole number of at least 1, not 0"),
        ({"n_importance": 2.5}, "n_importance must be a whole number"),
        ({"approximation": "variational"}, "approximation='variational' is unknown.*'laplace'"),
        ({"latent": "gibbs"}, "latent='gibbs' is unknown"),
        ({"correlation": 1.5}, "correlation must lie between 0 and 1, not 1.5"),
        ({"defensive": -0.1}, "defensive must lie between 0 and 1"),
        ({"defensive": 1.0}, "defensive must be below 1"),
        (
            {"n_importance": 1, "correlation": 1.0, "latent": None},
            "f moves only as theta carries it. Write latent='hmc'",
        ),
    ],
)
def test_bad_options_are_refused(options, message):
    with MODELS["probit"](), pytest.raises(ValueError, match=message):
        lgm.PseudoMarginal(**options)


def poor(likelihood, mean, covariance, *, start=None, tolerance=1e-2, too_large=4):
    """A valid q that is deliberately too narrow."""
    q = laplace(likelihood, mean, covariance, start=start, tolerance=tolerance)
    precision = too_large * q.precision
    return replace(q, precision=precision, B=covariance.condition(precision))


def poor_step(**options):
    model = MODELS["log_gaussian_cox"]()
    options = {"scale": 0.7, "n_importance": 1, "correlation": 0.0, "latent": None} | options
    with model:
        step = lgm.PseudoMarginal(**options)
    step.elements = (replace(step.elements[0], search=poor),)
    return step, model


def notice(step, model):
    result = joint_test(step, model, replicates=3000, steps=5, rng=np.random.default_rng(2))
    return result.pvalue


@pytest.mark.parametrize("n_importance", [1, 16])
def test_a_poor_approximation_is_still_exact(n_importance):
    step, model = poor_step(n_importance=n_importance)
    assert notice(step, model) > 1e-3


def test_recomputing_the_estimate_from_fresh_draws_is_noticed(monkeypatch):
    """The mutant keeps f, but weighs the current theta by N draws that do not contain it."""
    step, model = poor_step()
    rng = np.random.default_rng(9)

    def fresh_weights(rng_of_step, state, **options):
        target, info = module.pseudo_marginal(rng_of_step, state, **options)
        at, scheme = target.state, options["scheme"]
        sample = importance_sample(
            at.approximation,
            at.prior,
            at.log_likelihood_at,
            Coordinates.fresh(rng, at.f.size, scheme),
            scheme,
        )
        return replace(target, log_density=sample.log_evidence + at.log_prior), info

    monkeypatch.setattr(sweep, "pseudo_marginal", fresh_weights)
    result = joint_test(step, model, replicates=6000, steps=5, rng=np.random.default_rng(2))
    assert result.pvalue < 1e-3, result


def test_delayed_acceptance_without_its_second_stage_is_noticed(monkeypatch):
    step, model = poor_step(n_importance=4, delayed=True)
    assert notice(step, model) > 1e-3
    real = sweep.delayed_metropolis

    def first_stage_only(rng, state, target, *, factor):
        def screen(theta):
            screened = target.screen(theta)
            if screened is None:
                return None

            def complete():
                _, there = screened.complete()
                return screened.log_density, there

            return replace(screened, complete=complete)

        first = replace(target, screen=screen, log_density=target.screened_log_density)
        return real(rng, state, first, factor=factor)

    monkeypatch.setattr(sweep, "delayed_metropolis", first_stage_only)
    result = joint_test(step, model, replicates=6000, steps=5, rng=np.random.default_rng(2))
    assert result.pvalue < 1e-3, result


def test_delayed_acceptance_reports_how_often_it_moves():
    model = MODELS["probit"]()
    with model:
        step = lgm.PseudoMarginal(scale=0.7, delayed=True, latent=None)
    step.setup_chain(np.random.default_rng(5), 0, 3000)
    step.stop_tuning()
    point, moved, reported = model.initial_point(), [], []
    for _ in range(3000):
        new, [stats] = step.step(point)
        moved.append(new["mu"] != point["mu"])
        reported.append(stats["theta_acceptance"])
        point = new
    difference = np.array(moved) - np.array(reported)
    assert abs(difference.mean()) < 5 * difference.std() / math.sqrt(difference.size)


@pytest.mark.parametrize("sampler", [lgm.KnorrHeldRue, lgm.PseudoMarginal, lgm.ASIS])
def test_f_moves_where_there_is_no_theta(sampler):
    with pm.Model() as model:
        f = pm.MvNormal("f", mu=np.zeros(2), cov=np.array([[1.0, 0.6], [0.6, 1.0]]))
        lgm.Probit("y", f=f, observed=[0, 1])
        step = sampler()
    f = draw(step, model, draws=500, tune=100)
    assert len(np.unique(f[:, 0])) > 100


@pytest.mark.slow
def test_dropping_the_refresh_is_noticed(monkeypatch):
    """The estimate of the last acceptance is kept, and another kernel has moved f since."""
    model, _, exact = solve(infer=True)
    options = {"scale": 0.7, "n_importance": 1, "correlation": 0.0, "latent": None}
    step = lgm.PseudoMarginal(model=model, **options)
    very_poor = partial(poor, too_large=30)
    step.elements = (replace(step.elements[0], search=very_poor), sweep.EllipticalSlice())
    assert np.abs(z_scores(draw(step, model, draws=40_000), exact)).max() < 5
    kept = {"theta": b"", "estimate": 0.0, "proposals": {}}

    def without_refresh(rng, state, **options):
        target, info = module.pseudo_marginal(rng, state, **options)
        theta = state.theta.tobytes()
        if kept["theta"] != theta:
            kept["estimate"] = kept["proposals"].get(theta, info.log_evidence)
            kept["theta"] = theta
        kept["proposals"] = {}

        def evaluate(theta):
            log_density, there = target.evaluate(theta)
            if there is not None:
                kept["proposals"][theta.tobytes()] = log_density - there.log_prior
            return log_density, there

        stale = kept["estimate"] + state.log_prior
        return replace(target, log_density=stale, evaluate=evaluate), info

    monkeypatch.setattr(sweep, "pseudo_marginal", without_refresh)
    assert np.abs(z_scores(draw(step, model, draws=40_000), exact)).max() > 5


@pytest.mark.slow
def test_a_search_that_remembers_the_chain_is_noticed():
    """A warm start so loose that it ends where it began: q is centered on the chain's own f."""
    model, _, exact = solve(infer=True)
    step = lgm.PseudoMarginal(model=model, scale=0.7, n_importance=1, correlation=0.0, latent=None)
    assert np.abs(z_scores(draw(step, model, draws=60_000), exact)).max() < 5

    def warm(likelihood, mean, covariance, *, start=None, tolerance=None):
        remembered = np.zeros(mean.size)
        if step._state is not None:
            remembered = step._state.prior.inverse_times(step._state.f - step._state.mean)
        q = laplace(likelihood, mean, covariance)
        center = mean + covariance.covariance_times(remembered)
        return replace(q, dual=remembered, center=center)

    step.elements = (replace(step.elements[0], search=warm),)
    assert np.abs(z_scores(draw(step, model, draws=60_000), exact)).max() > 5


def test_after_tuning_q_is_a_function_of_theta():
    """Frozen searches: the same theta gives the same q, whatever the chain did in between."""
    model = MODELS["log_gaussian_cox"]()
    with model:
        step = lgm.PseudoMarginal()
    step.setup_chain(np.random.default_rng(1), 120, 50)
    point = model.initial_point()
    for i in range(170):
        if i == 120:
            step.stop_tuning()
            start = step.tunings[1].start
        point, _ = step.step(point)
    assert step.tunings[1].start is start
    assert start is not None
    theta, reader = step.lgm.theta_of(point), step.lgm
    searches = [
        step.elements[1].search(
            lambda f: reader.likelihood_terms(f, theta),
            reader.mean(theta),
            Covariance(reader.cov(theta)),
            start=start,
        )
        for _ in range(2)
    ]
    np.testing.assert_array_equal(searches[0].center, searches[1].center)


def test_without_hyperparameters_it_draws_f_alone():
    with pm.Model() as model:
        f = pm.MvNormal("f", mu=np.array([0.3, 0.0]), cov=np.array([[1.0, 0.6], [0.6, 1.0]]))
        lgm.Probit("y", f=f, observed=pm.Data("data", [0, 1]))
        step = lgm.PseudoMarginal(n_importance=4, latent=None)
    assert joint_test(step, model, rng=np.random.default_rng(4)).pvalue > 1e-3
