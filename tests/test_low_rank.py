"""A prior of fewer degrees of freedom than elements, against dense algebra with K = U K_w Uᵀ."""

import math

from types import SimpleNamespace

import numpy as np
import pytest

from scipy.stats import multivariate_normal
from test_priors import close, differences, root_of

from pymc_lgm.gaussian import LowRankPrior
from pymc_lgm.gaussian.sites import SiteBlocks
from pymc_lgm.linalg import tally

THETA = np.array([0.7, 0.2, -0.4])
W = {
    "one by one": np.array([2.0, 0.0, 0.3, 5.0, 1.0]),
    "joined": SiteBlocks(
        np.array([[0, 2], [1, 4], [3, -1]]),
        np.array([[[2.0, 0.9], [0.9, 1.0]], [[1.0, -0.5], [-0.5, 4.0]], [[3.0, 0.0], [0.0, 1.0]]]),
    ),
}
ROOT = np.array([[1.0, 0.4], [0.4, 2.0]])


def model(outside=0.0):
    """c(theta) = theta_0 h and K_w = e^theta_1 C + e^theta_2 I: five elements, two freedoms."""
    rng = np.random.default_rng(8)
    U = np.linalg.qr(rng.standard_normal((5, 2)))[0]
    h = U @ np.array([0.5, -1.0]) + outside * rng.standard_normal(5)

    def cov(theta):
        return np.exp(theta[1]) * ROOT + np.exp(theta[2]) * np.eye(2)

    def parts(theta):
        return [np.zeros((2, 2)), np.exp(theta[1]) * ROOT, np.exp(theta[2]) * np.eye(2)]

    return SimpleNamespace(
        basis=U,
        enters_cov=np.array([False, True, True]),
        amplitudes=np.zeros(3),
        mean=lambda theta: theta[0] * h,
        cov=cov,
        cov_vjp=lambda theta, M: np.array([(M * part).sum() for part in parts(theta)]),
        mean_vjp=lambda theta, v: np.array([v @ h, 0.0, 0.0]),
    )


def at(theta, outside=0.0):
    return LowRankPrior.at(model(outside), model().basis, theta)


@pytest.fixture
def prior():
    return at(THETA)


@pytest.fixture
def K(prior):
    return prior.basis @ model().cov(THETA) @ prior.basis.T


@pytest.fixture(params=W)
def posterior(request, prior):
    return prior.condition(W[request.param])


@pytest.fixture
def R(posterior):
    return root_of(posterior.precision, 5)


@pytest.fixture
def Sigma(K, R):
    return K - K @ R @ np.linalg.solve(np.eye(5) + R.T @ K @ R, R.T @ K)


def test_the_verbs_of_a_prior(prior, K, rng):
    L = prior.multiply(np.eye(2))
    close(L @ L.T, K)
    close(prior.variances, np.diag(K))
    assert (prior.n, prior.rank) == (5, 2)
    for xi in (rng.standard_normal(2), rng.standard_normal((2, 3))):
        close(prior.solve(L @ xi), xi)
        close(prior.multiply(xi), L @ xi)
    for x in (rng.standard_normal(5), rng.standard_normal((5, 3))):
        close(prior.multiply_transposed(x), L.T @ x)
        close(prior.covariance_times(x), K @ x)
        close(prior.inverse_times(x), np.linalg.pinv(K) @ x)


def test_its_density_is_that_of_the_freedoms_and_nothing_outside(prior, rng):
    f = prior.mean + prior.multiply(rng.standard_normal(2))
    w = prior.basis.T @ (f - prior.mean)
    close(prior.log_density(f), multivariate_normal.logpdf(w, cov=model().cov(THETA)))
    assert prior.log_density(f + 1e-3 * rng.standard_normal(5)) == -math.inf


def test_the_verbs_of_a_posterior(posterior, Sigma, K, R, rng):
    x, columns = rng.standard_normal(5), rng.standard_normal((5, 3))
    B, precision = np.eye(5) + R.T @ K @ R, R @ R.T
    close(posterior.log_determinant, np.linalg.slogdet(B)[1])
    close(posterior.alpha(x), np.linalg.solve(np.eye(5) + precision @ K, x))
    close(posterior.quad_form(x), x @ Sigma @ x)
    close(posterior.variances, np.diag(Sigma))
    close(posterior.one_minus_leverage, 1.0 - np.diag(precision @ Sigma))
    close(posterior.precision_times(x), precision @ x)
    close(posterior.in_noise_units(x, np.ones(5)), R.T @ (x - 1.0))
    close(posterior.block(np.array([0, 3])), Sigma[np.ix_([0, 3], [0, 3])])
    close(posterior.conditional_mean(x), K @ R @ np.linalg.solve(B, x))
    close(posterior.log_density_of_data(x), multivariate_normal.logpdf(x, np.zeros(5), B))
    close(posterior.weighted_residual(x), np.linalg.solve(B, x))
    for v in (x, columns):
        close(posterior.covariance_times(v), Sigma @ v)
    d = posterior.prior.multiply(rng.standard_normal(2))
    close(posterior.inv_quad_form(d), d @ np.linalg.pinv(Sigma) @ d)
    close(posterior.multiply(posterior.solve(d)), d)


def test_roots_and_draws_have_the_posteriors_covariance(posterior, Sigma, rng):
    A = posterior.multiply(np.eye(2))
    close(A @ A.T, Sigma)
    assert posterior.coordinates_shape == (1, 2)
    D = posterior.deviations(np.eye(2)[None])
    close(D @ D.T, Sigma)
    d = posterior.prior.multiply(rng.standard_normal(2))
    close(posterior.deviations(posterior.coordinates(rng, d)[:, :, None])[:, 0], d)


def test_derivatives_of_a_prior(prior, rng):
    f = prior.mean + prior.multiply(rng.standard_normal(2))
    by_theta = differences(lambda theta: at(theta).log_density(f), THETA)
    close(prior.log_density_gradient(f), by_theta, 1e-5)


@pytest.mark.parametrize("outside", [0.0, 1.0])
def test_whitened_derivatives_also_of_a_mean_that_leaves_the_range(outside, rng):
    nu, g, prior = rng.standard_normal(2), rng.standard_normal(5), at(THETA, outside)
    J = differences(lambda t: at(t, outside).mean + at(t, outside).multiply(nu), THETA)
    close(prior.whitened_gradient(nu, g), g @ J, 1e-5)


def test_the_gradient_of_an_evidence(posterior, rng):
    nu = rng.standard_normal(5)

    def log_evidence(theta):
        """log ∫ N(f; m, K) exp(ν z − ½ W z²) df, z = f − m(here): sites stay as m moves."""
        there = at(theta)
        shift = there.mean - posterior.prior.mean
        q, pull = there.condition(posterior.precision), posterior.precision_times(shift)
        b, constant = nu - pull, nu @ shift - 0.5 * pull @ shift
        return constant + 0.5 * b @ q.covariance_times(b) - 0.5 * q.log_determinant

    close(posterior.evidence_gradient(posterior.alpha(nu)), differences(log_evidence, THETA), 1e-5)


def test_a_prior_that_has_moved_shares_what_it_can(prior):
    before = tally.cubic_ops
    assert prior.is_proper
    moved = prior.moved(THETA + np.array([1.0, 0.0, 0.0]))
    assert moved.has_covariance_of(prior)
    assert moved.is_proper
    assert tally.cubic_ops == before + 1


def test_precisions_without_end_leave_nothing(prior):
    assert prior.condition(np.full(5, 1e20)) is None
