"""Gaussian approximations, importance estimates, and wrong pseudo-marginal kernels."""

import math

from dataclasses import replace
from functools import partial

import arviz as az
import numpy as np
import pymc as pm
import pytest
import xarray as xr

from models import MODELS, _latent
from pymc.exceptions import SamplingError
from test_quadrature import draw, solve, z_scores

import pymc_lgm as lgm

from pymc_lgm import sweep
from pymc_lgm.adaptation import NoiseTuning
from pymc_lgm.approximations.importance import (
    Coordinates,
    Scheme,
    importance_sample,
    pareto_shape,
)
from pymc_lgm.approximations.laplace import laplace
from pymc_lgm.approximations.recall import laplace_from_sites
from pymc_lgm.linalg import Covariance, factorize, tally
from pymc_lgm.parameterizations import pseudo_marginal as module
from pymc_lgm.state import LikelihoodAt
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
        q,
        prior,
        lambda rows: np.array([terms(f)[0] for f in rows]),
        Coordinates.fresh(rng, 5, scheme),
        scheme,
    )
    np.testing.assert_allclose(sample.log_weights, q.log_evidence)
    assert sample.estimate.log_evidence_sd == pytest.approx(0.0, abs=1e-10)


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
        f = importance_sample(q, prior, lambda rows: np.zeros(len(rows)), first, scheme).f[:, 0]
        again = Coordinates.around(rng, f, q, prior, scheme)
        np.testing.assert_allclose(
            importance_sample(q, prior, lambda rows: np.zeros(len(rows)), again, scheme).f[:, 0], f
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
            lambda rows: reader.log_likelihoods(rows, theta),
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
        ({"move": "gibbs"}, "move='gibbs' is unknown.*'emulator', 'hmc', 'metropolis', 'slice'"),
        ({"move": "slice", "correlation": 0.9}, "needs a target that is a function of theta"),
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


def poor(likelihood, mean, covariance, *, start=None, too_large=4):
    """A valid q that is deliberately too narrow."""
    q = laplace_from_sites(likelihood, mean, covariance, start=start)
    precision = too_large * q.precision
    return replace(q, precision=precision, B=covariance.condition(precision))


PLAIN = {
    "move": "metropolis",
    "scale": 0.7,
    "n_importance": 1,
    "correlation": 0.0,
    "latent": None,
    "interweave": False,
}


def searching(element, search):
    """The same element with another way to q."""
    return replace(element, explore=search, search=search)


def poor_step(**options):
    model = MODELS["log_gaussian_cox"]()
    options = PLAIN | options
    with model:
        step = lgm.PseudoMarginal(**options)
    step.elements = (searching(step.elements[0], poor),)
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
    step.elements = (searching(step.elements[0], partial(poor, too_large=16)),)
    assert notice(step, model) > 1e-3
    rng = np.random.default_rng(9)

    def fresh_weights(rng_of_step, state, **options):
        target = module.pseudo_marginal(rng_of_step, state, **options)
        at, scheme = target.state, options["scheme"]
        sample = importance_sample(
            at.approximation,
            at.prior,
            at.log_likelihoods_at,
            Coordinates.fresh(rng, at.f.size, scheme),
            scheme,
        )
        return replace(target, log_density=sample.log_evidence + at.log_prior)

    monkeypatch.setattr(sweep.pseudo_marginal, "pseudo_marginal", fresh_weights)
    assert notice(step, model) < 1e-3


def test_delayed_acceptance_without_its_second_stage_is_noticed(monkeypatch):
    step, model = poor_step(n_importance=4, delayed=True)
    assert notice(step, model) > 1e-3
    real = sweep.theta.delayed_metropolis

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

    monkeypatch.setattr(sweep.theta, "delayed_metropolis", first_stage_only)
    result = joint_test(step, model, replicates=6000, steps=5, rng=np.random.default_rng(2))
    assert result.pvalue < 1e-3, result


def test_delayed_acceptance_reports_how_often_it_moves():
    model = MODELS["probit"]()
    with model:
        step = lgm.PseudoMarginal(move="metropolis", scale=0.7, delayed=True)
    step.setup_chain(np.random.default_rng(5), 0, 3000)
    step.stop_tuning()
    point, moved, reported = model.initial_point(), [], []
    for _ in range(3000):
        new, [stats] = step.step(point)
        moved.append(new["mu"] != point["mu"])
        reported.append(stats["theta_acceptance"])
        point = new
    alpha = np.array(reported)
    assert abs(np.sum(moved - alpha)) < 5 * math.sqrt((alpha * (1 - alpha)).sum())


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
    step = lgm.PseudoMarginal(model=model, **PLAIN)
    very_poor = partial(poor, too_large=30)
    step.elements = (searching(step.elements[0], very_poor), sweep.EllipticalSlice())
    assert np.abs(z_scores(draw(step, model, draws=40_000), exact)).max() < 5
    kept = {"theta": b"", "estimate": 0.0, "proposals": {}}

    def without_refresh(rng, state, **options):
        target = module.pseudo_marginal(rng, state, **options)
        theta = state.theta.tobytes()
        if kept["theta"] != theta:
            kept["estimate"] = kept["proposals"].get(theta, target.state.estimate.log_evidence)
            kept["theta"] = theta
        kept["proposals"] = {}

        def evaluate(theta):
            log_density, there = target.evaluate(theta)
            if there is not None:
                kept["proposals"][theta.tobytes()] = log_density - there.log_prior
            return log_density, there

        stale = kept["estimate"] + state.log_prior
        return replace(target, log_density=stale, evaluate=evaluate)

    monkeypatch.setattr(sweep.pseudo_marginal, "pseudo_marginal", without_refresh)
    assert np.abs(z_scores(draw(step, model, draws=40_000), exact)).max() > 5


@pytest.mark.slow
def test_a_search_that_remembers_the_chain_is_noticed():
    """A warm start so loose that it ends where it began: q is centered on the chain's own f."""
    model, _, exact = solve(infer=True)
    step = lgm.PseudoMarginal(model=model, **PLAIN)
    assert np.abs(z_scores(draw(step, model, draws=60_000), exact)).max() < 5

    def warm(likelihood, mean, covariance, *, start=None, tolerance=None):
        remembered = np.zeros(mean.size)
        if step._state is not None:
            remembered = step._state.prior.inverse_times(step._state.f - step._state.mean)
        q = laplace(likelihood, mean, covariance)
        center = mean + covariance.covariance_times(remembered)
        return replace(q, dual=remembered, center=center)

    step.elements = (searching(step.elements[0], warm),)
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
            start = step.tunings[0].start
        point, _ = step.step(point)
    assert step.tunings[0].start is start
    assert start is not None
    theta, reader = step.lgm.theta_of(point), step.lgm
    searches = [
        step.elements[0].search(
            LikelihoodAt(reader, theta),
            reader.mean(theta),
            Covariance(reader.cov(theta)),
            start=start(theta),
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


@pytest.mark.parametrize("size", [30, 64, 1000])
def test_pareto_k_is_that_of_arviz(size, rng):
    log_weights = 1.5 * rng.standard_normal(size)
    # ArviZ takes log-likelihoods, whose negatives are the log weights of leave-one-out.
    expected = xr.DataArray(-log_weights, dims="sample").azstats.psislw(dim="sample", r_eff=1)[1]
    assert pareto_shape(np.exp(log_weights)) == pytest.approx(float(expected), rel=1e-6)


def test_theta_moves_without_estimates_now_and_then_and_always_where_those_fail(monkeypatch):
    model = MODELS["log_gaussian_cox"]()
    model.set_data("data", np.array([20, 90, 40]))
    with model:
        step = lgm.PseudoMarginal(n_importance=1, correlation=0.0)
    whitened, calls = sweep.PARAMETERIZATIONS["whitened"], []
    monkeypatch.setitem(
        sweep.PARAMETERIZATIONS, "whitened", lambda *at: calls.append(1) or whitened(*at)
    )
    for too_large, share in ((1.0, 0.2), (1e-4, 1.0)):
        step.elements = (searching(step.elements[0], partial(poor, too_large=too_large)),)
        tuned(step, model)
        calls.clear()
        point = model.initial_point()
        for _ in range(400):
            point, _ = step.step(point)
        assert abs(len(calls) / 400 - share) <= 5 * math.sqrt(share * (1 - share) / 400)


def test_pareto_k_needs_a_tail(rng):
    assert math.isnan(pareto_shape(rng.exponential(size=29)))
    assert math.isnan(pareto_shape(np.ones(100)))
    assert pareto_shape(np.exp(-20.0 * np.arange(100))) == math.inf


@pytest.mark.parametrize(
    ("change", "expected"), [(0.0, 32), (0.6, 32), (0.7, 64), (3.0, 64), (math.nan, 64)]
)
def test_noisy_ratios_ask_for_more_draws(change, expected):
    noise = NoiseTuning()
    for _ in range(20):
        noise = noise.update(change)
    assert noise.n_importance == expected


def tuned(step, model, tune=300):
    """Tune; return the last statistics."""
    step.setup_chain(np.random.default_rng(8), tune, 1)
    point = model.initial_point()
    for _ in range(tune):
        point, _ = step.step(point)
    step.stop_tuning()
    _, [stats] = step.step(point)
    return stats


def test_tuning_chooses_the_number_of_draws():
    """More where q is poor, the fewest where it is good; as many as the user says if told."""
    model = MODELS["log_gaussian_cox"]()
    model.set_data("data", np.array([20, 90, 40]))  # a q with W / 100 is next to the prior
    with model:
        step = lgm.PseudoMarginal(correlation=0.0)
        told = lgm.PseudoMarginal(correlation=0.0, n_importance=6)
    assert tuned(step, model)["n_importance"] == 32
    step.elements = (searching(step.elements[0], partial(poor, too_large=0.01)),)
    assert tuned(step, model)["n_importance"] == 64
    assert "n_importance" not in tuned(told, model)
    step.setup_chain(np.random.default_rng(8), 8, 1)
    _, [exploring] = step.step(model.initial_point())
    assert exploring["n_importance"] == 4


def test_a_likelihood_without_curvature_is_refused():
    with pm.Model() as model:
        pm.Laplace("y", mu=_latent(), b=1.0, observed=np.array([0.3, -1.2, 0.8]))
    with pytest.raises(ValueError, match=r"no curvature in 'f' anywhere.*approximation='ep'"):
        lgm.PseudoMarginal(model=model, approximation="laplace")
    # EP matches moments, which it has.
    step = lgm.PseudoMarginal(model=model, n_importance=32)
    assert tuned(step, model)["pareto_k"] < 1


def test_a_search_that_fails_at_the_start_is_an_error():
    model = MODELS["probit"]()
    with model:
        step = lgm.PseudoMarginal()
    nothing = searching(step.pseudo_marginal, lambda *args, **kwargs: None)
    step.pseudo_marginal, step.elements = nothing, (nothing,)
    step.setup_chain(np.random.default_rng(1), 0, 1)
    with pytest.raises(SamplingError, match=r"No Gaussian approximation of 'f'.*initvals"):
        step.step(model.initial_point())


def test_a_search_that_fails_at_a_proposal_is_a_counted_rejection():
    model = MODELS["probit"]()
    with model:
        step = lgm.PseudoMarginal()
    element, calls = step.elements[0], []

    def only_once(*args, **kwargs):
        calls.append(1)
        return element.explore(*args, **kwargs) if len(calls) == 1 else None

    step.pseudo_marginal = searching(element, only_once)
    step.elements = (step.pseudo_marginal,)
    step.setup_chain(np.random.default_rng(1), 0, 1)
    point = model.initial_point()
    for _ in range(3):
        new, [stats] = step.step(point)
        assert stats["numerical_rejections"] == 1
        assert stats["theta_acceptance"] == 0.0
        assert new["mu"] == point["mu"]


def test_corrected_draws_are_exact():
    """The approximate chain is off, and weights bring it back."""
    model, _, exact = solve(infer=True)
    step = lgm.PseudoMarginal(
        model=model, approximate=True, approximation="laplace", n_importance=4
    )
    with model:
        idata = pm.sample(
            30_000, tune=1000, chains=1, step=step, random_seed=5, progressbar=False, quiet=True
        )

    def scores(tree):
        theta = np.column_stack([np.log(tree.posterior["eta"][0]), tree.posterior["mu"][0]])
        return np.abs(z_scores(np.column_stack([theta, tree.posterior["f"][0]]), exact)).max()

    corrected = lgm.correct(idata, random_seed=1)
    assert scores(idata) > 4  # once in 3000 for an exact one
    assert scores(corrected) < 5
    assert corrected.posterior.attrs["pareto_k"] < 0.7
    assert 1000 < corrected.posterior.attrs["importance_ess"] < 30_000
    assert set(az.summary(corrected).index) == set(az.summary(idata).index)


def approximate_trace(log_ratio):
    """A trace whose draws are their own numbers, with these log weights."""
    chains, draws = log_ratio.shape
    theta = np.arange(chains * draws, dtype=float).reshape(chains, draws)
    stats = {"log_evidence": log_ratio, "approximate_log_evidence": np.zeros_like(log_ratio)}
    return az.from_dict({"posterior": {"theta": theta}, "sample_stats": stats})


def test_a_chain_far_below_the_others_keeps_its_own_draws(rng):
    log_ratio = 0.1 * rng.standard_normal((2, 500)) - np.array([[0.0], [2000.0]])
    corrected = lgm.correct(approximate_trace(log_ratio), random_seed=1)
    for chain in (0, 1):
        kept = np.unique(corrected.posterior["theta"][chain])
        assert kept.size > 300
        assert (kept // 500 == chain).all()


def test_a_draw_without_an_evidence_cannot_be_weighed(rng):
    log_ratio = rng.standard_normal((2, 50))
    log_ratio[1, 7] = np.nan
    with pytest.raises(ValueError, match=r"draw 7 of chain 1 is NaN.*lgm.PseudoMarginal"):
        lgm.correct(approximate_trace(log_ratio))


def test_an_exact_chain_needs_no_correction():
    model = MODELS["probit"]()
    with model:
        idata = pm.sample(
            20,
            tune=20,
            chains=1,
            random_seed=1,
            progressbar=False,
            quiet=True,
            compute_convergence_checks=False,
        )
    assert "approximate_log_evidence" not in idata.sample_stats
    with pytest.raises(ValueError, match=r"no approximate_log_evidence.*approximate=True"):
        lgm.correct(idata)
