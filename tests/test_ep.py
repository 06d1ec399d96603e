"""Expectation propagation: moments, sites, evidence, cost, and a sampler that rests on it."""

import math

import numpy as np
import pymc as pm
import pytest

from models import QUICK
from scipy import stats
from scipy.special import erfcx, log_expit, log_ndtr
from toys import TOYS

import pymc_lgm as lgm

from pymc_lgm.approximations.ep import ep
from pymc_lgm.approximations.importance import Coordinates, Proposal, Scheme, importance_sample
from pymc_lgm.approximations.laplace import laplace
from pymc_lgm.approximations.sites import Sites
from pymc_lgm.approximations.tilted import Marginals, probit_moments, quadrature_moments
from pymc_lgm.approximations.variational import variational
from pymc_lgm.gaussian import BandedPrior, DensePrior
from pymc_lgm.gaussian.banded import BandedModel
from pymc_lgm.gaussian.base import PrecisionPosterior
from pymc_lgm.gaussian.dense import DensePosterior
from pymc_lgm.linalg import factorize, tally
from pymc_lgm.state import LikelihoodAt


class Likelihood:
    """What likelihoods of independent observations share."""

    probit_signs = sets = effects = None

    def value(self, f):
        return self(f)[0]


class Gaussian(Likelihood):
    """y ~ N(f, noise): EP is exact."""

    def __init__(self, y, noise):
        self.y, self.noise = y, noise

    def __call__(self, f):
        r = (self.y - f) / self.noise
        return self.sites(f).sum(), r, np.full(f.size, 1.0) / self.noise, np.zeros(f.size)

    def sites(self, f):
        return -0.5 * ((self.y - f) ** 2 / self.noise + np.log(2 * math.pi * self.noise))


class Flat(Gaussian):
    """Sites that say nothing at all, some of them: noise without end."""

    def __init__(self, y, noise):
        super().__init__(y, np.where(np.arange(y.size) % 2, noise, math.inf))

    def sites(self, f):
        return np.where(np.isfinite(self.noise), super().sites(f), 0.0)


class Probit(Likelihood):
    """y = 1 with probability Φ(f), with or without the closed form."""

    def __init__(self, signs, closed=True):
        self.signs, self.probit_signs = signs, signs if closed else None

    def __call__(self, f):
        u = self.signs * f
        hazard = math.sqrt(2 / math.pi) / erfcx(-u / math.sqrt(2))
        return self.sites(f).sum(), self.signs * hazard, hazard * (u + hazard), np.zeros(f.size)

    def sites(self, f):
        return log_ndtr(self.signs * f)


class Logistic(Likelihood):
    def __init__(self, signs):
        self.signs = signs

    def __call__(self, f):
        p = np.exp(log_expit(-self.signs * f))
        return self.sites(f).sum(), self.signs * p, p * (1 - p), p * (1 - p) * (2 * p - 1)

    def sites(self, f):
        return log_expit(self.signs * f)


@pytest.fixture
def rng():
    return np.random.default_rng(3)


def at_initial_point(model):
    reader = lgm.read(model, compile_kwargs=QUICK)
    theta = reader.theta_of(model.initial_point())
    return LikelihoodAt(reader, theta), reader.mean(theta), reader.cov(theta)


def listed(name, n=3):
    """The likelihood, the mean and the covariance of a toy at the center of its prior."""
    toy = TOYS[name](n)
    theta = toy.prior_mean
    return LikelihoodAt(toy, theta), toy.mean(theta), toy.cov(theta)


def squares(n, rng, variance=4.0):
    """A squared exponential covariance over n points of the unit square, and f from it."""
    points = rng.uniform(size=(n, 2))
    distance = ((points[:, None] - points) ** 2).sum(-1)
    K = variance * np.exp(-0.5 * distance / 0.09) + 1e-6 * np.eye(n)
    return K, np.linalg.cholesky(K) @ rng.standard_normal(n)


def labels(kind, f, rng):
    """A likelihood with labels drawn from it."""
    noise = rng.standard_normal(f.size) if kind is Probit else rng.logistic(size=f.size)
    return kind(np.where(f + noise > 0, 1.0, -1.0))


@pytest.mark.parametrize("kind", [Gaussian, Flat])
def test_it_is_exact_for_a_gaussian_likelihood(kind, rng):
    A = rng.standard_normal((6, 6))
    K, mean, y = A @ A.T + np.eye(6), rng.standard_normal(6), rng.standard_normal(6)
    likelihood = kind(y, 0.7)
    q = ep(likelihood, DensePrior(mean, K.copy()), tolerance=1e-10)
    seen = np.flatnonzero(likelihood(mean)[2])
    noisy = factorize(K[np.ix_(seen, seen)] + 0.7 * np.eye(seen.size))
    residual = (y - mean)[seen]
    assert q.converged
    assert q.log_evidence == pytest.approx(noisy.log_density(residual))
    np.testing.assert_allclose(q.center, mean + K[:, seen] @ noisy.inverse_times(residual))
    np.testing.assert_allclose(q.precision, likelihood(mean)[2], atol=1e-8)


def brute_force(likelihood, mean, K, nodes=50):
    """log p(y), and mean and variances of the posterior, over a grid of whitened f."""
    x, weights = np.polynomial.hermite_e.hermegauss(nodes)
    n = mean.size
    grid = np.stack(np.meshgrid(*[x] * n)).reshape(n, -1)
    mass = np.prod(np.stack(np.meshgrid(*[weights] * n)).reshape(n, -1), axis=0)
    f = mean[:, None] + np.linalg.cholesky(K) @ grid
    values = likelihood.sites(np.ascontiguousarray(f.T)).sum(axis=1)
    p = mass / (2 * math.pi) ** (n / 2) * np.exp(values)
    center = f @ p / p.sum()
    return math.log(p.sum()), center, (f - center[:, None]) ** 2 @ p / p.sum()


# The largest error of log Z, and of the means and variances in posterior sd and variances: EP's
# own, not that of the arithmetic. They are twice what was measured.
ERRORS = {
    "labels": (3e-4, 1e-4, 2e-3),
    "counts": (3e-3, 1e-3, 2e-2),
    "errors": (1e-3, 1e-2, 3e-2),
}


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("name", TOYS)
def test_it_agrees_with_brute_force(name, n):
    likelihood, mean, K = listed(name, n)
    exact, center, variance = brute_force(likelihood, mean, K)
    q = ep(likelihood, DensePrior(mean, K.copy()), tolerance=1e-8)
    ours = np.linalg.inv(np.linalg.inv(K) + np.diag(q.precision)).diagonal()
    evidence_error, mean_error, variance_error = ERRORS[name]
    assert abs(q.log_evidence - exact) < evidence_error
    assert np.abs((q.center - center) / np.sqrt(variance)).max() < mean_error
    assert np.abs(ours / variance - 1).max() < variance_error
    rough = laplace(likelihood, DensePrior(mean, K.copy()), tolerance=1e-8)
    assert np.abs(q.center - center).max() < 0.1 * np.abs(rough.center - center).max()
    if name == "labels":
        assert abs(q.log_evidence - exact) < 0.1 * abs(rough.log_evidence - exact)


@pytest.mark.parametrize("variance", [0.1, 1.0, 10.0, 100.0])
def test_moments_of_one_site(variance):
    """For n = 1 EP is exact but for its quadrature, which a wide cavity strains."""
    for m in math.sqrt(variance) * np.array([-2.0, -0.5, 0.0, 1.0]):
        f = m + math.sqrt(variance) * np.linspace(-12, 12, 4_001)
        for likelihood, error in (
            (Probit(np.ones(1)), 1e-8),
            (Probit(np.ones(1), closed=False), 3e-2 if variance > 10 else 1e-4),
            (Logistic(np.ones(1)), 1e-2 if variance > 10 else 1e-4),
        ):
            p = np.exp(likelihood.sites(f) - 0.5 * (f - m) ** 2 / variance)
            evidence = p.sum() * (f[1] - f[0]) / math.sqrt(2 * math.pi * variance)
            center = f @ p / p.sum()
            spread = (f - center) ** 2 @ p / p.sum()
            q = ep(likelihood, DensePrior(np.array([m]), np.array([[variance]])), tolerance=1e-9)
            assert q.log_evidence == pytest.approx(math.log(evidence), abs=error)
            assert abs(q.center[0] - center) < error * math.sqrt(spread)
            assert 1 / (1 / variance + q.precision[0]) == pytest.approx(spread, rel=error)


def test_the_closed_form_of_a_probit_equals_quadrature(rng):
    n = 20
    variance, precision = rng.uniform(0.1, 0.8, n), rng.uniform(0.0, 1.0, n)
    q = Marginals(
        mean=rng.standard_normal(n),
        nu=rng.standard_normal(n),
        precision=precision,
        z=rng.standard_normal(n),
        variance=variance,
        cavity=1 - precision * variance,
    )
    likelihood = Probit(rng.choice([-1.0, 1.0], n))
    closed, by_quadrature = probit_moments(likelihood.signs, q), quadrature_moments(likelihood, q)
    for ours, theirs in zip(closed, by_quadrature, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


@pytest.mark.parametrize("name", TOYS)
def test_sites_add_up_to_the_likelihood(name, rng):
    likelihood, mean, _ = listed(name)
    f = mean + rng.standard_normal(3)
    sites = likelihood.sites(f[None])[0]
    assert sites.sum() == pytest.approx(likelihood(f)[0])
    for i in range(3):
        moved = likelihood.sites((f + 0.3 * np.eye(3)[i])[None])[0] != sites
        np.testing.assert_array_equal(moved, np.arange(3) == i)
    assert (likelihood.probit_signs is not None) == (name == "labels")
    if name == "labels":
        np.testing.assert_array_equal(likelihood.probit_signs, [-1, 1, 1])


@pytest.mark.slow
def test_sites_of_several_terms_and_shapes(rng):
    """A matrix of observations, a scalar one, a potential, and an observation of no f at all."""
    y = rng.poisson(2.0, size=(4, 5))
    with pm.Model() as model:
        f = pm.MvNormal("f", mu=np.zeros(5), cov=np.eye(5))
        pm.Poisson("counts", mu=pm.math.exp(f), observed=y)
        pm.Normal("one", mu=f[3], observed=0.3)
        pm.Normal("two", mu=pm.math.stack([f[1], 0.0]), observed=[1.0, 2.0])
        pm.Potential("curb", -((f[::-1] / 5) ** 4))
        lgm.Probit("again", f=f, observed=[0, 1, 1, 0, 1])
    likelihood, _, _ = at_initial_point(model)
    assert likelihood.probit_signs is None
    f = rng.standard_normal(5)
    sites = likelihood.sites(f[None])[0]
    assert sites.sum() == pytest.approx(likelihood(f)[0])
    for i in range(5):
        moved = likelihood.sites((f + 0.3 * np.eye(5)[i])[None])[0] != sites
        np.testing.assert_array_equal(moved, np.arange(5) == i)


def test_a_sum_cannot_be_split():
    with pm.Model() as model:
        f = pm.MvNormal("f", mu=np.zeros(3), cov=np.eye(3))
        pm.Potential("penalty", -pm.math.sum(f**4))
    likelihood, mean, K = at_initial_point(model)
    with pytest.raises(ValueError, match=r"(?s)penalty.*without its sum.*approximation='laplace'"):
        ep(likelihood, DensePrior(mean, K))


def test_a_discrete_index_of_another_step_may_read_any_element():
    with pm.Model() as model:
        f = pm.MvNormal("f", mu=np.zeros(2), cov=np.eye(2))
        k = pm.Bernoulli("k", 0.5)
        pm.Normal("y", mu=f[k], observed=1.0)
    reader = lgm.read(model, compile_kwargs=QUICK)
    assert reader.sets.tolist() == [[0, 1]]
    f = np.array([0.0, 5.0])
    for k in (0, 1, 0):
        reader.read(model.initial_point() | {"k": np.array(k)})
        sites = reader.site_log_likelihoods(f[None], np.empty(0))
        assert sites == pytest.approx(reader.log_likelihood(f, np.empty(0)), rel=1e-12)
        assert sites[0, 0] == pytest.approx(stats.norm.logpdf(1.0, f[k]), rel=1e-12)


@pytest.mark.parametrize("name", TOYS)
def test_the_result_is_a_valid_q_and_a_function_of_its_arguments(name, rng):
    likelihood, mean, K = listed(name)
    for start in (None, Sites(0.5 * rng.standard_normal(3), rng.uniform(size=3))):
        one, two = (ep(likelihood, DensePrior(mean, K.copy()), start=start) for _ in range(2))
        np.testing.assert_array_equal(one.center, two.center)
        np.testing.assert_array_equal(one.precision, two.precision)
        assert one.log_evidence == two.log_evidence
        assert (one.precision >= 0).all()
        np.testing.assert_allclose(one.center, mean + K @ one.alpha)
        B = np.eye(3) + np.sqrt(np.outer(one.precision, one.precision)) * K
        assert one.posterior.log_determinant == pytest.approx(np.linalg.slogdet(B)[1])


def test_outliers_of_a_student_t_are_clipped(rng):
    """Two observations that no Gaussian site describes ask for negative precisions."""
    K, f = squares(30, rng)
    y = f + 0.2 * rng.standard_normal(30)
    y[[4, 9]] += 3.0
    with pm.Model() as model:
        latent = pm.MvNormal("f", mu=np.zeros(30), cov=K)
        pm.StudentT("y", nu=3, mu=latent, sigma=0.2, observed=y)
    likelihood, mean, _ = at_initial_point(model)
    q = ep(likelihood, DensePrior(mean, K.copy()))
    assert (q.precision >= 0).all()
    assert q.precision[[4, 9]].max() < 0.05 * np.median(q.precision)
    assert np.abs(q.center - f).max() < 1.0
    sample = spread_of_weights(q, likelihood)
    assert abs(sample.log_evidence - q.log_evidence) < 0.2


def spread_of_weights(q, likelihood):
    scheme, proposal = Scheme(2000, antithetic=False), Proposal(q)
    coordinates = Coordinates.fresh(np.random.default_rng(1), proposal, scheme)
    return importance_sample(
        proposal, lambda rows: likelihood.sites(rows).sum(axis=1), coordinates, scheme
    )


def test_weights_vary_less_than_with_laplace(rng):
    K, f = squares(30, rng)
    likelihood = labels(Probit, f, rng)
    mean = np.zeros(30)
    ours = spread_of_weights(ep(likelihood, DensePrior(mean, K.copy())), likelihood)
    theirs = spread_of_weights(laplace(likelihood, DensePrior(mean, K.copy())), likelihood)
    assert ours.log_weights.std() < 0.75 * theirs.log_weights.std()
    assert ours.log_evidence == pytest.approx(theirs.log_evidence, abs=0.2)


@pytest.mark.parametrize("kind", [Probit, Logistic])
def test_a_few_operations_are_enough(kind, rng):
    K, f = squares(100, rng)
    likelihood = labels(kind, f, rng)
    mean = np.zeros(100)
    start = ep(likelihood, DensePrior(mean, K.copy()), tolerance=1e-6).sites
    for scale in (0.8, 1.0, 1.3):
        before = tally.cubic_ops
        q = ep(likelihood, DensePrior(mean, scale * K), start=start)
        assert q.converged
        assert tally.cubic_ops - before <= 8
        # A sweep more would change nothing that matters.
        exact = ep(likelihood, DensePrior(mean, scale * K), start=start, tolerance=1e-7)
        assert q.log_evidence == pytest.approx(exact.log_evidence, abs=0.1)


def test_without_convergence_it_is_still_a_q(rng):
    K, f = squares(30, rng)
    likelihood = labels(Probit, f, rng)
    q = ep(likelihood, DensePrior(np.zeros(30), K.copy()), tolerance=0.0, max_iterations=6)
    assert not q.converged
    assert q.iterations <= 6
    sample = spread_of_weights(q, likelihood)
    assert sample.estimate.log_evidence_sd < 0.1


def test_a_search_that_leaves_the_numbers_is_a_value():
    class Nowhere(Gaussian):
        def __call__(self, f):
            return -1.0, np.full(3, np.nan), np.ones(3), np.zeros(3)

    assert ep(Nowhere(np.zeros(3), 1.0), DensePrior(np.zeros(3), np.eye(3))) is None


def test_where_moments_are_lost_it_is_laplaces():
    class Lost(Gaussian):
        def __call__(self, f):
            return Gaussian(self.y, self.noise)(f)

        def sites(self, f):
            return np.full(f.shape, np.nan)

    q = ep(Lost(np.zeros(3), 1.0), DensePrior(np.ones(3), np.eye(3)))
    assert not q.converged
    np.testing.assert_allclose(q.center, 0.5)


class Curve:
    """A walk of second order: each step of the slope has standard deviation exp(theta_0)."""

    n = 200

    def cov(self, theta):
        T = np.zeros((3, self.n))
        T[0, 2:], T[1, 1:-1], T[2, :-2] = 1.0, -2.0, 1.0
        T *= np.exp(-theta[0])
        T[0, :2] = 0.1
        return T

    def mean(self, theta):
        return np.zeros(self.n)


class Poisson(Gaussian):
    """Counts with rate exp(f)."""

    def __init__(self, y):
        super().__init__(y, 1.0)

    def __call__(self, f):
        rate = np.exp(f)
        return self.sites(f).sum(), self.y - rate, rate, -rate

    def sites(self, f):
        return self.y * f - np.exp(f)


def roughness_of_evidence(search, log_sd=-5.0):
    """Largest second difference at steps of 1e-4, as a share of the evidence."""
    rng, curve = np.random.default_rng(0), Curve()
    likelihood = Poisson(rng.poisson(np.exp(1.0 + np.sin(np.linspace(0.0, 6.0, curve.n)))))
    thetas, model = log_sd + 1e-4 * np.arange(10), BandedModel(curve, np.array([True]))
    found = [search(likelihood, BandedPrior.at(model, np.array([theta]))) for theta in thetas]
    evidence = np.array([q.log_evidence for q in found])
    return np.abs(np.diff(evidence, 2)).max() / np.abs(evidence).max()


@pytest.mark.parametrize("search", [ep, laplace, variational])
@pytest.mark.parametrize("log_sd", [-6.0, -3.0, -1.0])
def test_the_evidence_of_a_smooth_series_is_smooth(search, log_sd):
    """Variances of f are 1e7: second differences of EP were 5 nats, those of Laplace 0.006."""
    assert roughness_of_evidence(search, log_sd) < 1e-8


@pytest.mark.mutant
def test_a_center_by_the_covariance_of_the_prior_is_noticed(monkeypatch, dies):
    monkeypatch.setattr(PrecisionPosterior, "center", DensePosterior.center)
    dies("ep: the center is K times a", roughness_of_evidence(ep), above=1e-6)


def evidence_without(term, q):
    """A mutant of the evidence, from the same q."""
    z = q.center - q.mean
    missing = {
        "determinant": q.posterior.log_determinant,
        "quadratic": -z @ (q.alpha + q.precision * z),
    }
    return q.log_evidence + 0.5 * missing[term]


@pytest.mark.mutant
@pytest.mark.parametrize("term", ["determinant", "quadratic"])
def test_a_wrong_evidence_is_noticed(term, dies):
    likelihood, mean, K = listed("labels")
    exact, _, _ = brute_force(likelihood, mean, K)
    q = ep(likelihood, DensePrior(mean, K.copy()), tolerance=1e-8)
    error = abs(evidence_without(term, q) - exact)
    dies(f"ep: evidence without its {term}", error, above=10 * ERRORS["labels"][0])


# Where quadrature has no answer


@pytest.mark.fast("10.0-1e-08", "-100.0-1e-08")
@pytest.mark.parametrize(
    ("nu", "precision"), [(10.0, 1e-8), (10.0, 1e-3), (100.0, 1e-8), (1e4, 1.0), (-1e2, 1e-8)]
)
def test_sites_of_quite_another_theta_do_no_harm(nu, precision):
    """Where exp(f) is not a number, or next to 0, moments match by accident."""
    X, n = np.linspace(0, 1, 12)[:, None], 12
    K = 100.0 * np.exp(-8.0 * (X - X.T) ** 2) + 1e-6 * np.eye(n)
    with pm.Model() as model:
        f = pm.MvNormal("f", mu=np.zeros(n), cov=K)
        lgm.LogGaussianCox("y", f=f, observed=np.arange(n) % 4)
    reader = lgm.read(model, compile_kwargs=QUICK)
    likelihood, mean = LikelihoodAt(reader, np.empty(0)), np.zeros(n)
    start = Sites(np.full(n, nu), np.full(n, precision))
    with np.errstate(over="ignore"):
        q = ep(likelihood, DensePrior(mean, K.copy()), start=start, tolerance=1e-6)
    right = ep(likelihood, DensePrior(mean, K.copy()), tolerance=1e-6)
    assert q.converged
    np.testing.assert_allclose(q.center, right.center, atol=0.05)
    assert q.log_evidence == pytest.approx(right.log_evidence, abs=1e-3)


def test_a_center_without_a_likelihood_is_no_approximation():
    """Its evidence would not be a number, and a Metropolis ratio that is none looks like 1."""

    class Hole(Gaussian):
        def __call__(self, f):
            return (math.nan, *super().__call__(f)[1:])

    likelihood, K = Hole(np.zeros(2), 1.0), np.eye(2)
    start = Sites(np.zeros(2), np.ones(2))
    assert ep(likelihood, DensePrior(np.zeros(2), K.copy())) is None
    assert ep(likelihood, DensePrior(np.zeros(2), K.copy()), start=start) is None
