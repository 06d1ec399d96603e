"""The largest evidence lower bound: what its sites are, its gradient, and where it is better."""

import numpy as np
import pymc as pm
import pytest

from close import differences
from models import build
from test_ep import Gaussian, Likelihood, Logistic, brute_force, labels, spread_of_weights, squares
from toys import TOYS

import pymc_lgm as lgm

from pymc_lgm.approximations.ep import ep
from pymc_lgm.approximations.laplace import laplace
from pymc_lgm.approximations.sites import Sites
from pymc_lgm.approximations.variational import LEAST, evidence_gradient, variational
from pymc_lgm.gaussian import DensePrior
from pymc_lgm.linalg import tally
from pymc_lgm.state import AtTheta, LikelihoodAt


class Student(Likelihood):
    """y = f + scale × Student(4)."""

    def __init__(self, y, scale):
        self.y, self.scale = y, scale

    def __call__(self, f):
        e, c = self.y - f, 4.0 * self.scale**2
        d = c + e**2
        third = 10.0 * e * (e**2 - 3.0 * c) / d**3
        return self.sites(f).sum(), 5.0 * e / d, 5.0 * (c - e**2) / d**2, third

    def sites(self, f):
        return -2.5 * np.log1p((self.y - f) ** 2 / (4.0 * self.scale**2))


def outliers(n=40):
    """A smooth f, seen with errors of which three are outliers."""
    rng = np.random.default_rng(7)
    K, f = squares(n, rng, variance=1.0)
    y = f + 0.2 * rng.standard_normal(n)
    y[[3, 11, 25]] += (2.5, -3.0, 1.5)
    return Student(y, 0.2), DensePrior(np.full(n, 0.3), K)


def bound(likelihood, prior, nu, W):
    """E_q ℓ − KL of the q with these sites, from dense matrices."""
    m, K = prior.mean, prior.covariance_times(np.eye(prior.n))
    sigma = np.linalg.inv(np.linalg.inv(K) + np.diag(W))
    z = sigma @ nu
    x, w = np.polynomial.hermite_e.hermegauss(60)
    values = likelihood.sites(m + z + x[:, None] * np.sqrt(np.diag(sigma)))
    precision = np.linalg.inv(K)
    trace, logdet = np.trace(precision @ sigma), np.linalg.slogdet(precision @ sigma)[1]
    divergence = 0.5 * (trace - prior.n + z @ precision @ z - logdet)
    return float((w / w.sum() @ values).sum()) - divergence


def test_it_is_exact_for_a_gaussian_likelihood():
    rng = np.random.default_rng(3)
    A = rng.standard_normal((6, 6))
    K, mean, y = A @ A.T + np.eye(6), rng.standard_normal(6), rng.standard_normal(6)
    q = variational(Gaussian(y, 0.7), DensePrior(mean, K.copy()), tolerance=1e-12)
    exact = ep(Gaussian(y, 0.7), DensePrior(mean, K.copy()), tolerance=1e-12)
    assert q.converged
    assert q.log_evidence == pytest.approx(exact.log_evidence)
    np.testing.assert_allclose(q.center, exact.center)
    np.testing.assert_allclose(q.precision, 1 / 0.7)


def test_no_other_sites_have_a_larger_bound():
    rng = np.random.default_rng(5)
    K, f = squares(8, rng)
    likelihood, prior = labels(Logistic, f, rng), DensePrior(np.full(8, 0.3), K)
    q = variational(likelihood, prior, tolerance=1e-13)
    nu, W = q.sites.nu, q.precision
    largest = bound(likelihood, prior, nu, W)
    assert q.log_evidence == pytest.approx(largest, abs=1e-6)
    for _ in range(20):
        step, factor = 0.1 * rng.standard_normal(8), np.exp(0.1 * rng.standard_normal(8))
        assert bound(likelihood, prior, nu + step, W * factor) < largest


@pytest.mark.parametrize("name", TOYS)
def test_the_bound_is_below_the_evidence_and_near_it(name):
    toy = TOYS[name](3)
    likelihood = LikelihoodAt(toy, toy.prior_mean)
    mean, K = toy.mean(toy.prior_mean), toy.cov(toy.prior_mean)
    exact = brute_force(likelihood, mean, K)[0]
    q = variational(likelihood, DensePrior(mean, K))
    assert exact - 0.2 < q.log_evidence < exact


def test_the_gradient_has_what_theta_does_to_the_errors():
    """Of the toy whose theta is in the likelihood, too: E dℓ, and not dℓ at the center."""
    toy = TOYS["errors"](3)
    theta = toy.prior_mean + 0.1

    def q(theta):
        at = AtTheta.of(toy, theta)
        return variational(at.likelihood, at.prior, tolerance=1e-13, max_iterations=200)

    gradient = evidence_gradient(
        q(theta),
        likelihood_gradient=lambda rows, w: toy.log_likelihoods_theta_gradient(rows, theta, w),
    )
    expected = differences(lambda t: q(t).log_evidence, theta)
    np.testing.assert_allclose(gradient, expected, rtol=2e-3, atol=1e-3)


def test_outliers_get_sites_that_say_next_to_nothing():
    likelihood, prior = outliers()
    q = variational(likelihood, prior)
    assert q.converged
    assert (q.precision * prior.variances >= LEAST * (1 - 1e-12)).all()
    assert q.precision[[3, 11, 25]].max() < 0.05 * np.median(q.precision)


def test_with_outliers_weights_vary_less_than_with_laplace():
    likelihood, prior = outliers()
    by_mode, by_bound = (
        spread_of_weights(search(likelihood, prior), likelihood).log_weights.std()
        for search in (laplace, variational)
    )
    assert by_bound < 0.7 * by_mode


def test_from_its_own_sites_a_sweep_is_enough():
    likelihood, prior = outliers()
    q = variational(likelihood, prior)
    before = tally.cubic_ops
    again = variational(likelihood, prior, start=q.sites, differentiable=True)
    assert again.iterations == 1
    assert tally.cubic_ops - before == 2
    np.testing.assert_allclose(again.center, q.center, atol=1e-3)


def test_a_start_that_leads_nowhere_is_forgotten():
    likelihood, prior = outliers()
    q = variational(likelihood, prior)
    for nu, W in [(1e8, 1.0), (np.nan, 1.0), (0.0, np.inf)]:
        start = Sites(np.full(prior.n, nu), np.full(prior.n, W))
        found = variational(likelihood, prior, start=start)
        np.testing.assert_allclose(found.center, q.center, atol=0.05)


@pytest.mark.slow
class Survived:
    """log P(T > 1) = −exp f for each; with ``underflow``, P itself is computed before its log."""

    probit_signs = sets = effects = None

    def __init__(self, underflow):
        self.underflow = underflow

    def __call__(self, f):
        rate = np.exp(f)
        return self.sites(f).sum(), -rate, rate, -rate

    def value(self, f):
        return self.sites(f).sum()

    def sites(self, f):
        with np.errstate(divide="ignore"):
            return np.log(np.exp(-np.exp(f))) if self.underflow else -np.exp(f)


def test_a_probability_that_underflows_far_out_does_not_end_the_search():
    """PyMC's censored times are like this: ℓ = −∞ at the outer nodes of a wide prior."""
    prior = DensePrior(np.array([0.0, 1.0, 2.0]), 40.0 * np.eye(3))
    assert (Survived(True).sites(np.full(3, 8.0)) == -np.inf).all()
    found, right = (variational(Survived(cut), prior, tolerance=1e-4) for cut in (True, False))
    assert found.converged
    assert right.converged
    np.testing.assert_allclose(found.center, right.center, atol=0.5)
    ratio = found.posterior.variances / right.posterior.variances
    assert ratio.min() > 0.5
    assert ratio.max() < 2.0


@pytest.mark.slow
def test_student_errors_are_sampled_with_it_and_counts_with_ep():
    with_errors = build(lgm.PseudoMarginal, student())
    assert (with_errors.plan.approximation, with_errors.plan.sites) == ("variational", "optimized")
    assert build(lgm.PseudoMarginal, wide_errors()).plan.approximation == "variational"
    assert build(lgm.PseudoMarginal, heavy_returns()).plan.approximation == "ep"
    with_counts = build(lgm.PseudoMarginal, student(np.inf))
    assert (with_counts.plan.approximation, with_counts.plan.sites) == ("ep", "predicted")


def wide_errors():
    """Whose tails no f between -30 and 30 is in, where the scale begins."""
    with pm.Model() as model:
        f = pm.MvNormal("f", mu=np.zeros(3), cov=pm.HalfNormal("s") ** 2 * np.eye(3))
        pm.StudentT("y", nu=4, mu=f, sigma=pm.HalfNormal("sigma", 100), observed=[0.0, 1.0, -2.0])
    return model


def heavy_returns():
    """Log-concave in a log scale, but for rounding where that is far too small."""
    with pm.Model() as model:
        f = pm.MvNormal("f", mu=np.zeros(3), cov=pm.HalfNormal("s") ** 2 * np.eye(3))
        level, nu = pm.Normal("level", -9, 1), 2.0 + pm.Exponential("freedom", 0.1)
        pm.StudentT("y", nu=nu, sigma=pm.math.exp((level + f) / 2), observed=[0.01, -0.02, 1e-4])
    return model


def student(nu=4.0):
    with pm.Model() as model:
        s = pm.HalfNormal("s")
        f = pm.MvNormal("f", mu=np.zeros(3), cov=s**2 * np.eye(3))
        if np.isfinite(nu):
            pm.StudentT("y", nu=nu, mu=f, sigma=0.1, observed=[0.0, 1.0, -2.0])
        else:
            pm.Poisson("y", mu=pm.math.exp(f), observed=[0, 1, 2])
    return model


@pytest.mark.mutant
def test_a_wrong_bound_is_noticed(dies):
    rng = np.random.default_rng(5)
    K, f = squares(8, rng)
    likelihood, prior = labels(Logistic, f, rng), DensePrior(np.full(8, 0.3), K)
    q = variational(likelihood, prior, tolerance=1e-13)
    doubled = q.log_evidence - 0.5 * float((q.center - q.mean) @ q.alpha)
    error = abs(doubled - bound(likelihood, prior, q.sites.nu, q.precision))
    dies("variational: a divergence with its quadratic twice", error, above=1e-4)


@pytest.mark.mutant
def test_a_wrong_gradient_is_noticed(dies):
    toy = TOYS["errors"](3)
    at = AtTheta.of(toy, toy.prior_mean + 0.1)
    q = variational(at.likelihood, at.prior, tolerance=1e-13, max_iterations=200)
    right = evidence_gradient(
        q,
        likelihood_gradient=lambda rows, w: toy.log_likelihoods_theta_gradient(rows, at.theta, w),
    )
    center = q.posterior.evidence_gradient(q.alpha)
    center = center + toy.log_likelihood_theta_gradient(q.center, at.theta)
    dies("variational: dℓ at the center alone", np.abs(right - center).max(), above=0.01)
