"""What a prior of fewer degrees of freedom than elements has beside the verbs of all priors."""

import math

import numpy as np
import pytest

from close import close, differences
from scipy.stats import multivariate_normal
from test_priors import THETA, TwoFreedoms

from pymc_lgm.linalg import tally


@pytest.fixture
def prior():
    return TwoFreedoms().prior(THETA)


def test_its_density_is_that_of_the_freedoms_and_nothing_outside(prior, rng):
    f = prior.mean + prior.multiply(rng.standard_normal(2))
    w = prior.basis.T @ (f - prior.mean)
    close(prior.log_density(f), multivariate_normal.logpdf(w, cov=TwoFreedoms().cov(THETA)))
    assert prior.log_density(f + 1e-3 * rng.standard_normal(5)) == -math.inf


def test_whitened_derivatives_of_a_mean_that_leaves_the_range(rng):
    nu, g, at = rng.standard_normal(2), rng.standard_normal(5), TwoFreedoms(outside=1.0).prior
    J = differences(lambda t: at(t).mean + at(t).multiply(nu), THETA)
    close(at(THETA).whitened_gradient(nu, g), g @ J, 1e-5)


def test_a_prior_that_has_moved_shares_what_it_can(prior):
    before = tally.cubic_ops
    assert prior.is_proper
    moved = prior.moved(THETA + np.array([1.0, 0.0, 0.0]))
    assert moved.has_covariance_of(prior)
    assert moved.is_proper
    assert tally.cubic_ops == before + 1


def test_precisions_without_end_leave_nothing(prior):
    assert prior.condition(np.full(5, 1e20)) is None
