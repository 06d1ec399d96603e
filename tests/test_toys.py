"""The toys are the PyMC models that they stand for, and their derivatives are right."""

import numpy as np
import pymc as pm
import pytest

from close import differences
from models import QUICK, _latent
from toys import TOYS, Chain, Counts, invariance

import pymc_lgm as lgm

from pymc_lgm import samplers

every_toy = pytest.mark.parametrize("name", TOYS)


def twin(name):
    """The same model in PyMC."""
    toy = TOYS[name]()
    with pm.Model() as model:
        f = _latent()
        if name == "counts":
            lgm.LogGaussianCox("y", f=f, exposure=2.0, observed=toy.y.astype(int))
        elif name == "labels":
            lgm.Probit("y", f=f, observed=(toy.y > 0).astype(int))
        else:
            sigma = pm.LogNormal("sigma", -0.7, 0.4)
            pm.StudentT("y", nu=4, mu=f[toy.index], sigma=sigma, observed=toy.y)
    return toy, lgm.read(model, compile_kwargs=QUICK)


@pytest.mark.fast("errors")
@every_toy
def test_a_toy_is_the_model_of_the_same_name(name):
    toy, model = twin(name)
    assert toy.theta_names == model.theta_names
    np.testing.assert_array_equal(toy.enters_cov, model.enters_cov)
    rng, constants = np.random.default_rng(1), []
    for _ in range(2):
        theta = toy.prior_mean + 0.5 * rng.standard_normal(toy.p)
        f = rng.standard_normal(3)
        rows, M = rng.standard_normal((4, 3)), rng.standard_normal((3, 3))
        constants.append(model.log_prior(theta) - toy.log_prior(theta))
        for verb, arguments in {
            "mean": (theta,),
            "cov": (theta,),
            "log_likelihood": (f, theta),
            "log_likelihoods": (rows, theta),
            "site_log_likelihoods": (rows, theta),
            "cov_vjp": (theta, M),
            "mean_vjp": (theta, f),
            "log_prior_gradient": (theta,),
            "log_likelihood_theta_gradient": (f, theta),
        }.items():
            ours, theirs = getattr(toy, verb)(*arguments), getattr(model, verb)(*arguments)
            np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-7, err_msg=verb)
        for ours, theirs in zip(
            toy.likelihood_terms(f, theta), model.likelihood_terms(f, theta), strict=True
        ):
            np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(
            toy.log_likelihood_gradient(f, theta)[1], model.log_likelihood_gradient(f, theta)[1]
        )
    assert constants[0] == pytest.approx(constants[1])
    signs = model.probit_signs()
    assert (signs is None) == (toy.probit_signs() is None)
    if signs is not None:
        np.testing.assert_array_equal(signs, toy.probit_signs())


def test_a_scaled_toy_has_an_amplitude():
    for scaled in (False, True):
        toy = Counts(scaled=scaled)
        theta = toy.prior_mean + 0.3
        for j, k in enumerate(toy.amplitudes):
            moved = toy.cov(theta + 0.7 * (np.arange(3) == j)) * np.exp(-0.7 * k)
            assert np.allclose(moved, toy.cov(theta)) == (k != 0.0 or not toy.enters_cov[j])
        along = [toy.cov_vjp(theta, M) for M in np.eye(9).reshape(9, 3, 3)]
        expected = differences(toy.cov, theta).reshape(9, 3)
        np.testing.assert_allclose(along, expected, atol=1e-8)


@every_toy
def test_draws_have_the_law_that_the_densities_say(name):
    """E[∂ log p(y | f, theta)] = 0 in f and in theta, over draws of all three."""
    toy, rng = TOYS[name](), np.random.default_rng(2)
    scores = []
    for _ in range(2000):
        theta, f = toy.draw(rng)
        score = toy.log_likelihood_gradient(f, theta)[1] / np.sqrt(1.0 + np.exp(f))
        scores.append([*score, *toy.log_likelihood_theta_gradient(f, theta)])
    scores = np.array(scores)[:, np.ptp(scores, axis=0) > 0]
    assert np.abs(scores.mean(0) / scores.std(0) * np.sqrt(2000)).max() < 5


def test_a_chain_is_what_the_step_method_runs():
    """Same elements, same numbers: `Chain` is `LatentGaussianStep.step` without the glue."""
    toy, elements = Counts(), (samplers.HMC(), samplers.Theta("whitened", samplers.Metropolis()))
    one, two = (Chain.start(elements, toy, np.random.default_rng(3), tune=20) for _ in range(2))
    np.testing.assert_array_equal(one.draws(5), two.draws(5))
    assert invariance(elements, toy, replicates=50).pvalue > 1e-5
