"""The metric of the class frequencies: the constant f that fits best, and F̂ = K⁻¹ + W there."""

import numpy as np
import pytest

from close import close
from test_latent_moves import Counts, Noisy, Volatile, rng_of, state_of
from test_predictor import process
from test_sets import at, from_pymc, mean_with_noise_and_counts

import pymc_lgm as lgm

from pymc_lgm.linalg import tally
from pymc_lgm.moves import latent
from pymc_lgm.papers.homogeneous_hmc import best_constant, class_frequency
from pymc_lgm.state import AtTheta


def test_the_constant_of_counts_is_the_logarithm_of_their_mean():
    at_theta = state_of(Counts()).at
    f0 = best_constant(at_theta.likelihood, at_theta.prior.mean)
    # The prior of constants, N(0, 10²), moves it by less than its own precision moves a count.
    np.testing.assert_allclose(np.exp(f0), Counts.y.mean(), rtol=1e-2)


@pytest.mark.slow
def test_of_classes_the_precision_is_that_of_their_frequencies():
    labels = np.array([0, 0, 1, 2, 0, 0, 2])

    def model():
        f = process(rows=np.arange(7.0)[:, None], mean=0.0, n_outputs=3)
        lgm.Softmax("y", f=f, observed=labels)

    ours = from_pymc(model)
    here = AtTheta.of(ours, np.zeros(ours.p))
    q = class_frequency(here.likelihood, here.prior)
    pi = np.bincount(labels) / labels.size
    expected = np.diag(pi) - np.outer(pi, pi)
    assert q.precision.values.shape == (7, 3, 3)
    for block in q.precision.values:
        np.testing.assert_allclose(block, expected, atol=5e-3)


@pytest.mark.parametrize(
    "name", [pytest.param("classes", marks=pytest.mark.slow), "mean_and_noise"]
)
def test_it_is_one_step_of_newton_from_the_constant(name):
    here = at(name)
    q = class_frequency(here.likelihood, here.prior)
    n = q.center.size
    f0 = best_constant(here.likelihood, here.prior.mean)
    g = here.likelihood(f0)[1]
    K, W = here.prior.covariance_times(np.eye(n)), q.precision.times(np.eye(n))
    sigma = np.linalg.inv(np.linalg.inv(K) + W)
    close(q.center, f0 + sigma @ (g - np.linalg.solve(K, f0 - here.prior.mean)))
    close(q.posterior.covariance_times(np.eye(n)), sigma)


def test_it_costs_one_factorization_a_theta():
    here = state_of(Counts()).at
    here.prior.solve(np.zeros(5))
    before = tally.cubic_ops
    here.approximation(class_frequency)
    here.approximation(class_frequency)
    assert tally.cubic_ops == before + 1


def test_a_gaussian_posterior_is_found_in_one_step():
    model = Noisy()
    q = state_of(model).at.approximation(class_frequency)
    mean, cov = model.posterior()
    close(q.center, mean)
    close(q.posterior.variances, np.diag(cov))


@pytest.mark.slow
def test_sets_of_different_sizes():
    ours = from_pymc(mean_with_noise_and_counts)
    here = AtTheta.of(ours, np.full(ours.p, 0.1))
    f0 = best_constant(here.likelihood, here.prior.mean)
    assert np.isfinite(f0).all()
    assert class_frequency(here.likelihood, here.prior) is not None


@np.errstate(over="ignore", invalid="ignore")
def test_it_does_not_depend_on_where_f_is():
    element = latent.LATENT_MOVES["hmc-class-frequency"](step_size=0.5)
    for model in (Counts(), Volatile()):
        one, other = state_of(model), state_of(model, np.full(5, -2.0))
        centers = [state.at.approximation(class_frequency).center for state in (one, other)]
        np.testing.assert_array_equal(*centers)
        moved, _, reported = element.run(rng_of(1), one, element.start(one, 0), False)
        assert np.isfinite(moved.f).all()
        assert reported["latent_evaluations"] >= 2


def test_without_a_likelihood_there_is_none():
    class Nowhere(Counts):
        def likelihood_terms(self, f, theta):
            return -np.inf, np.zeros(5), np.zeros(5), np.zeros(5)

    likelihood = state_of(Counts()).at.likelihood
    nowhere = type(likelihood)(Nowhere(), np.zeros(1))
    assert best_constant(nowhere, np.zeros(5)) is None
