"""Every prior, by its verbs, against dense algebra. A prior is tested by being listed."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest

from close import close, differences
from scipy.stats import multivariate_normal
from toys import Counts, Errors, Labels, Series

from pymc_lgm.gaussian import BandedPrior, BlocksPrior, DensePrior, LowRankPrior
from pymc_lgm.gaussian.sites import SiteBlocks, as_operator, lerp, nonnegative
from pymc_lgm.linalg import tally

THETA = np.array([1.1, 0.3, -0.5])


class Listed(NamedTuple):
    """The prior N(m, K) of a model, as functions of theta, and a theta."""

    at: Callable
    mean: Callable
    cov: Callable
    theta: np.ndarray = THETA

    @classmethod
    def of(cls, toy, theta=THETA):
        return cls(toy.prior, toy.mean, toy.cov, theta)


INDEX = [np.array([0, 3, 5]), np.array([4, 1, 2])]
PARTS = [Counts(), Labels()]
BLOCKS = list(zip(INDEX, PARTS, strict=True))


def of_blocks():
    """Two processes, whose elements of f alternate."""

    def mean(theta):
        m = np.zeros(6)
        for i, part in BLOCKS:
            m[i] = part.mean(theta)
        return m

    def cov(theta):
        K = np.zeros((6, 6))
        for i, part in BLOCKS:
            K[np.ix_(i, i)] = part.cov(theta)
        return K

    return Listed(lambda theta: BlocksPrior.at(BLOCKS, theta), mean, cov)


class TwoFreedoms:
    """c(theta) = theta_0 h and K_w = e^theta_1 C + e^theta_2 I: five elements, two freedoms.

    With ``outside`` the mean leaves the range of U.
    """

    enters_cov, amplitudes = np.array([False, True, True]), np.zeros(3)
    parts = np.array([[1.0, 0.4], [0.4, 2.0]]), np.eye(2)

    def __init__(self, outside=0.0):
        rng = np.random.default_rng(8)
        self.basis = np.linalg.qr(rng.standard_normal((5, 2)))[0]
        self.h = self.basis @ np.array([0.5, -1.0]) + outside * rng.standard_normal(5)

    def mean(self, theta):
        return theta[0] * self.h

    def mean_vjp(self, theta, v):
        return np.array([v @ self.h, 0.0, 0.0])

    def cov(self, theta):
        return sum(np.exp(t) * part for t, part in zip(theta[1:], self.parts, strict=True))

    def cov_vjp(self, theta, M):
        both = zip(theta[1:], self.parts, strict=True)
        return np.array([0.0, *(np.exp(t) * np.sum(M * part) for t, part in both)])

    def prior(self, theta):
        return LowRankPrior.at(self, self.basis, theta)


def of_low_rank():
    model = TwoFreedoms()
    U = model.basis
    return Listed(model.prior, model.mean, lambda theta: U @ model.cov(theta) @ U.T)


PRIORS = {
    "dense": lambda: Listed.of(Counts()),
    "dense, scaled": lambda: Listed.of(Counts(scaled=True)),
    "banded": lambda: Listed.of(Series()),
    "banded, long": lambda: Listed.of(Series(50)),
    "dense, theta in the likelihood": lambda: Listed.of(Errors(), np.append(THETA, -0.4)),
    "blocks": of_blocks,
    "low rank": of_low_rank,
}

SETS = {
    3: SiteBlocks(
        np.array([[0, 2], [1, -1]]),
        np.array([[[2.0, -1.5], [-1.5, 3.0]], [[3.0, 0.0], [0.0, 1.0]]]),
    ),
    5: SiteBlocks(
        np.array([[0, 2], [1, 4], [3, -1]]),
        np.array([[[2.0, 0.9], [0.9, 1.0]], [[1.0, -0.5], [-0.5, 4.0]], [[3.0, 0.0], [0.0, 1.0]]]),
    ),
    # Each joins an f_i of one process with one of the other.
    6: SiteBlocks(np.array([[0, 4], [3, 1], [5, 2]]), np.array([[[2.0, 0.9], [0.9, 1.0]]] * 3)),
}
W = {
    "all": lambda n: np.resize([2.0, 0.3, 5.0], n),
    "some": lambda n: np.resize([0.0, 1.5, 0.0], n),
    "sets": SETS.get,
}


def root_of(precision, n):
    """W^½ as an array."""
    return as_operator(precision).root_times(np.eye(n))


@pytest.fixture(params=PRIORS)
def listed(request):
    return PRIORS[request.param]()


@pytest.fixture
def prior(listed):
    return listed.at(listed.theta)


@pytest.fixture
def K(listed):
    return listed.cov(listed.theta)


@pytest.fixture(params=W)
def posterior(request, prior):
    if request.param == "sets" and isinstance(prior, BandedPrior):
        pytest.skip("an observation reads one f_i of a sparse prior")
    return prior.condition(W[request.param](prior.n))


@pytest.fixture
def Sigma(posterior, K):
    R = root_of(posterior.precision, len(K))
    return K - K @ R @ np.linalg.solve(np.eye(len(K)) + R.T @ K @ R, R.T @ K)


def test_the_verbs_of_a_prior(listed, prior, K, rng):
    n, r = prior.n, prior.rank
    L = prior.multiply(np.eye(r))
    assert prior.is_proper
    close(L @ L.T, K)
    close(prior.mean, listed.mean(listed.theta))
    close(prior.variances, np.diag(K))
    for x in (rng.standard_normal(n), rng.standard_normal((n, n + 1))):
        close(prior.covariance_times(x), K @ x)
        close(prior.multiply_transposed(x), L.T @ x)
        close(L.T @ prior.inverse_times(x), np.linalg.lstsq(L, x)[0])
    for xi in (rng.standard_normal(r), rng.standard_normal((r, n + 1))):
        close(prior.multiply(xi), L @ xi)
        close(prior.solve(L @ xi), xi)
    x = prior.mean + L @ rng.standard_normal(r)
    law = multivariate_normal(prior.mean, K, allow_singular=r < n)
    close(prior.log_density(x), law.logpdf(x))
    if r == n:
        close(prior.precisions, np.diag(np.linalg.inv(K)))


@pytest.mark.parametrize("j", range(3))
def test_the_prior_at_another_theta(listed, prior, j):
    """What the two share is shared where it is the same."""
    theta = prior.theta + 0.2 * (np.arange(prior.theta.size) == j)
    there = prior.moved(theta)
    close(there.mean, listed.mean(theta))
    K = listed.cov(theta)
    close(there.covariance_times(np.eye(prior.n)), K)
    assert prior.has_covariance_of(prior)
    assert there.has_covariance_of(prior) == np.array_equal(K, listed.cov(prior.theta))


def test_no_verb_writes_into_the_prior(prior, K, rng):
    x, xi = rng.standard_normal(prior.n), rng.standard_normal(prior.rank)
    before = prior.covariance_times(x)
    prior.multiply(xi)
    prior.condition(np.ones(prior.n))
    assert prior.covariance_times(x).tobytes() == before.tobytes()


def test_the_verbs_of_a_posterior(posterior, Sigma, K, rng):
    prior, n = posterior.prior, len(K)
    x, columns = rng.standard_normal(n), rng.standard_normal((n, n + 1))
    R = root_of(posterior.precision, n)
    B, precision = np.eye(n) + R.T @ K @ R, R @ R.T
    close(posterior.log_determinant, np.linalg.slogdet(B)[1])
    close(posterior.quad_form(x), x @ Sigma @ x)
    close(posterior.variances, np.diag(Sigma))
    close(posterior.one_minus_leverage, 1.0 - np.diag(precision @ Sigma))
    close(posterior.block(np.array([2, 0])), Sigma[np.ix_([2, 0], [2, 0])])
    close(posterior.in_noise_units(x, prior.mean), R.T @ (x - prior.mean))
    close(posterior.log_density_of_data(x), multivariate_normal.logpdf(x, np.zeros(n), B))
    close(posterior.weighted_residual(x), np.linalg.solve(B, x))
    for v in (x, columns, columns[:, :n]):
        close(posterior.alpha(v), np.linalg.solve(np.eye(n) + precision @ K, v))
        for ours, right in zip(posterior.center(v), (posterior.alpha(v), Sigma @ v), strict=True):
            close(ours, right)
        close(posterior.precision_times(v), precision @ v)
        close(posterior.covariance_times(v), Sigma @ v)
    close(posterior.conditional_mean(x), K @ R @ np.linalg.solve(B, x))


def test_roots_and_draws_have_the_posteriors_covariance(posterior, Sigma, rng):
    A, xi = (
        posterior.multiply(np.eye(posterior.prior.rank)),
        rng.standard_normal(posterior.prior.rank),
    )
    close(A @ A.T, Sigma)
    d = A @ xi
    close(posterior.solve(d), xi, 1e-8)
    close(posterior.inv_quad_form(d), xi @ xi, 1e-8)
    # Linear in ξ: unit vectors show the whole map.
    shape = posterior.coordinates_shape
    D = posterior.deviations(np.eye(np.prod(shape)).reshape(*shape, -1))
    close(D @ D.T, Sigma)
    close(posterior.deviations(posterior.coordinates(rng, d)[:, :, None])[:, 0], d, 1e-8)


def test_derivatives_of_a_prior(listed, prior, rng):
    nu, g, at = rng.standard_normal(prior.rank), rng.standard_normal(prior.n), listed.at
    f = prior.mean + prior.multiply(rng.standard_normal(prior.rank))
    by_theta = differences(lambda t: at(t).log_density(f), prior.theta)
    close(prior.log_density_gradient(f), by_theta, 1e-5)
    J = differences(lambda t: at(t).mean + at(t).multiply(nu), prior.theta)
    close(prior.whitened_gradient(nu, g), g @ J, 1e-5)


def test_derivatives_of_a_posterior(listed, posterior, rng):
    prior, n = posterior.prior, posterior.prior.n
    nu, a, v = rng.standard_normal((3, n))

    def log_evidence(theta):
        """log ∫ N(f; m, K) exp(ν z − ½ W z²) df with z = f − m(here): sites stay as m moves."""
        there = listed.at(theta)
        shift = there.mean - prior.mean
        q = there.condition(posterior.precision)
        pull = posterior.precision_times(shift)
        b = nu - pull
        constant = nu @ shift - 0.5 * pull @ shift
        return constant + 0.5 * b @ q.covariance_times(b) - 0.5 * q.log_determinant

    expected = differences(log_evidence, prior.theta)
    close(posterior.evidence_gradient(posterior.alpha(nu)), expected, 1e-5)
    extra = np.einsum("i,j,ijk->k", v, a, differences(listed.cov, prior.theta))
    extra += v @ differences(listed.mean, prior.theta)
    difference = posterior.evidence_gradient(a, v) - posterior.evidence_gradient(a)
    close(difference, extra, 1e-5)


def test_the_inverse_is_made_once_for_variances_and_gradient(prior):
    posterior, before = prior.condition(W["all"](prior.n)), tally.cubic_ops
    posterior.differentiable().evidence_gradient(np.ones(prior.n))
    assert posterior.variances.shape == (prior.n,)
    expected = {BandedPrior: 0, DensePrior: 1, BlocksPrior: 2, LowRankPrior: 3}
    assert tally.cubic_ops == before + expected[type(prior)]


def test_another_theta_costs_what_it_moves():
    here = Counts(scaled=True).prior(THETA)
    before = tally.cubic_ops
    assert here.is_proper
    assert tally.cubic_ops == before + 1
    moved = {0: (0, True), 1: (1, False), 2: (0, False)}  # mean, length-scale, amplitude
    for j, (ops, same) in moved.items():
        there = here.moved(THETA + 0.3 * (np.arange(3) == j))
        assert there.has_covariance_of(here) == same
        before = tally.cubic_ops
        L = there.multiply(np.eye(3))
        assert tally.cubic_ops == before + ops
        close(L @ L.T, there.model.cov(there.theta))
        fresh = there.model.prior(there.theta).multiply(np.eye(3))
        assert L.tobytes() == fresh.tobytes()


def test_a_covariance_that_is_none_is_a_value():
    improper = DensePrior(np.zeros(2), np.array([[1.0, 2.0], [2.0, 1.0]]))
    assert not improper.is_proper
    assert not improper.precisions.any()
    assert improper.condition(np.zeros(2)) is not None
    with pytest.raises(ValueError, match=r"ask prior\.is_proper first"):
        improper.multiply(np.ones(2))
    with pytest.raises(ValueError, match="without a model"):
        DensePrior(np.zeros(1), np.ones((1, 1))).log_density_gradient(np.zeros(1))
    assert Counts(scaled=True).prior(np.array([0.0, 0.0, 400.0])) is None


def in_sets(values):
    return SiteBlocks(np.array([[0, 2], [1, -1]]), np.array(values))


def test_covariances_of_sets_are_those_of_their_f(posterior, Sigma):
    blocks, precision = posterior.site_covariances, posterior.precision
    sets = getattr(precision, "sets", np.arange(len(Sigma))[:, None])
    for block, members in zip(blocks, sets, strict=True):
        some = members[members >= 0]
        expected = np.eye(members.size)
        expected[: some.size, : some.size] = Sigma[np.ix_(some, some)]
        close(block, expected)


def test_blocks_that_are_not_positive_are_made_so():
    precision = in_sets([[[1.0, 2.0], [2.0, 1.0]], [[-0.5, 0.0], [0.0, 1.0]]])
    least = np.linalg.eigvalsh(nonnegative(precision).values)[:, 0]
    assert (least > 0.0).all()
    close(nonnegative(precision).values[0], np.full((2, 2), 1.5), 1e-5)
    # In units of the prior's variances, and what is large enough stays.
    scale = np.array([10.0, 0.1, 10.0])
    raised = precision.at_least(1.0, scale)
    close(np.linalg.eigvalsh(100 * raised.values[0]), [1.0, 300.0])
    close(raised.values[1], np.diag([100.0, 1.0]))
    half = lerp(precision, raised, 0.5)
    close(half.values, 0.5 * (precision.values + raised.values))


def test_blocks_from_products_with_unit_vectors():
    full = np.array([[2.0, 0.0, -1.0], [0.0, 5.0, 0.0], [-1.0, 0.0, 3.0]])
    colors = np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    precision = SiteBlocks.of_products(np.array([[0, 2], [1, -1]]), colors @ full)
    close(precision.times(np.eye(3)), full)
    close(precision.values[1], [[5.0, 0.0], [0.0, 1.0]])


def test_covariances_far_below_rounding_are_zeros():
    """Their products are no normal numbers, with which processors are a hundred times slower."""
    x = np.linspace(0.0, 1.0, 30)
    K = np.exp(-(((x[:, None] - x) / 0.05) ** 2))
    assert 0.0 < K.min() < 1e-150
    prior, W = DensePrior(np.zeros(30), K.copy()), np.full(30, 2.0)
    posterior = prior.condition(W)
    L, B = prior.factor.dense(), np.eye(30) + 2.0 * K
    assert not ((np.abs(L) > 0.0) & (np.abs(L) < 1e-100)).any()
    np.testing.assert_allclose(L @ L.T, K, atol=1e-15)
    np.testing.assert_allclose(posterior.log_determinant, np.linalg.slogdet(B)[1], rtol=1e-13)
    np.testing.assert_allclose(prior.dense(), K, rtol=0, atol=0)
