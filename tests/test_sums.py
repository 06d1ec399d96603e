"""Sums of Gaussian families: their algebra, and models of them."""

from itertools import combinations_with_replacement

import numpy as np
import pytest

from scipy.linalg import block_diag
from scipy.sparse import csc_array, csr_array

from pymc_lgm.gaussian import DenseBlocks, Independent, Layout, OfField, SumAt, SumPrior
from pymc_lgm.priors.intrinsic import IntrinsicField
from pymc_lgm.priors.markov import MapMaker, PrecisionMaker, SeriesMaker
from pymc_lgm.priors.precision import SiteBlocks
from pymc_lgm.priors.sparse import Pattern

W_OF_MAP = csc_array(
    np.diag(np.ones(5), 1)
    + np.diag(np.ones(5), -1)
    + np.diag([1.0] * 3, 3)
    + np.diag([1.0] * 3, -3)
)
TAU = csc_array(4.0 * np.eye(6) + W_OF_MAP.toarray())
"""Six areas in a row, with three more borders."""


def random_spd(rng, b, batch=()):
    X = rng.standard_normal((*batch, b, b + 2))
    return X @ X.swapaxes(-1, -2) + 0.1 * np.eye(b)


def independent(rng):
    v = rng.uniform(0.5, 2.0, 4)
    return Independent(4), [v], np.zeros(4), np.diag(1 / v)


def shared_blocks(rng):
    K = random_spd(rng, 2)
    return DenseBlocks(3, 2), [K], np.zeros(6), np.kron(np.eye(3), np.linalg.inv(K))


def own_blocks(rng):
    K = random_spd(rng, 3, (2,))
    return DenseBlocks(2, 3), [K], np.zeros(6), block_diag(*np.linalg.inv(K))


def series(rng):
    bands, u = np.array([np.full(7, 1.3), np.append(np.full(6, -0.8), 0.0)]), rng.standard_normal(7)
    T = np.diag(bands[0]) + np.diag(bands[1, :-1], -1)
    return OfField(SeriesMaker(7, 2), 7), [bands, u], np.linalg.solve(T, u), T.T @ T


def areas(rng):
    W = W_OF_MAP.toarray()
    Q = 1.7 * (np.diag(W.sum(axis=0)) - 0.6 * W)
    return OfField(MapMaker(W_OF_MAP), 6), [np.array(1.7), np.array(0.6)], np.zeros(6), Q


def intrinsic(rng):
    W = W_OF_MAP.toarray()
    Q = (np.diag(W.sum(axis=0)) - W) / 0.7**2 + 1.0 / (6 * 0.05) ** 2
    return OfField(IntrinsicField(W_OF_MAP, 0.05, 0.7), 6), [], np.zeros(6), Q


def precision(rng):
    pattern = Pattern.of(TAU)
    elements = pattern.elements(TAU)
    return (
        OfField(PrecisionMaker(pattern, "x"), 6),
        [elements, elements],
        np.zeros(6),
        TAU.toarray(),
    )


FAMILIES = [independent, shared_blocks, own_blocks, series, areas, intrinsic, precision]


class Toy:
    """Families of fixed numbers, a random sparse A with a dense column, and the same as arrays."""

    def __init__(self, makers, seed=0, E=9):
        rng = np.random.default_rng(seed)
        families, values, means, precisions = zip(*(make(rng) for make in makers), strict=True)
        N = sum(family.n for family in families)
        A = rng.standard_normal((E, N)) * (rng.uniform(size=(E, N)) < 0.25)
        A[:, 0], A[3] = rng.standard_normal(E), A[2]  # and two elements that are one
        sparse = csr_array(A)
        sparse.sort_indices()
        rest = [[k, -1, -1] for k in (*range(N + 1), N + 4)]
        self.sets = np.array([[N + 1, N + 5, -1], [N + 2, N + 3, N + 8], [N + 6, N + 7, -1], *rest])
        starts, columns = sparse.indptr.astype(np.intp), sparse.indices.astype(np.intp)
        self.layout = Layout(families, starts, columns, self.sets)
        at = [family.at(*each) for family, each in zip(families, values, strict=True)]
        self._at = SumAt(rng.standard_normal(E), rng.standard_normal(N), sparse.data, at)
        self.A, self.Q, self.mean_of_x = A, block_diag(*precisions), np.concatenate(means)
        self.B = np.vstack([np.eye(N), A])
        self.K = self.B @ np.linalg.inv(self.Q) @ self.B.T
        self.mean = self.B @ self.mean_of_x + np.concatenate([self._at.offset, self._at.c])

    def sum_at(self, theta):
        return self._at

    def prior(self):
        return SumPrior.at(self, np.zeros(1))


PAIRS = [*([make] for make in FAMILIES), *combinations_with_replacement(FAMILIES, 2)]
NAMES = [" + ".join(make.__name__ for make in pair) for pair in PAIRS]


def close(actual, expected, rtol=1e-8):
    expected = np.asarray(expected)
    np.testing.assert_allclose(actual, expected, rtol, rtol * np.abs(expected).max(initial=1e-300))


@pytest.mark.parametrize("makers", PAIRS, ids=NAMES)
def test_the_verbs_of_a_sum(makers):
    rng, toy = np.random.default_rng(1), Toy(makers)
    prior, K, N = toy.prior(), toy.K, len(toy.Q)
    L = prior.multiply(np.eye(N))
    close(L @ L.T, K)
    close(prior.mean, toy.mean)
    close(prior.variances, np.diag(K))
    x, g = L @ rng.standard_normal(N), rng.standard_normal(prior.n)
    close(prior.multiply_transposed(g), L.T @ g)
    close(prior.solve(x), np.linalg.lstsq(L, x, rcond=None)[0])
    close(prior.covariance_times(g), K @ g)
    close(K @ prior.inverse_times(x), x)
    square = x[:N] @ toy.Q @ x[:N]
    expected = 0.5 * (np.linalg.slogdet(toy.Q)[1] - square - N * np.log(2 * np.pi))
    close(prior.log_density(toy.mean + x), expected)
    assert prior.log_density(toy.mean + x + 0.01 * (np.arange(x.size) == N + 1)) == -np.inf


@pytest.mark.parametrize("makers", PAIRS, ids=NAMES)
def test_the_verbs_of_a_sum_given_sites(makers):
    rng, toy = np.random.default_rng(2), Toy(makers)
    prior, N = toy.prior(), len(toy.Q)
    W = rng.uniform(0.0, 3.0, prior.n) * (rng.uniform(size=prior.n) < 0.7)
    posterior = prior.condition(W)
    P = toy.Q + toy.B.T @ (W[:, None] * toy.B)
    Sigma = toy.B @ np.linalg.inv(P) @ toy.B.T
    B = np.eye(prior.n) + np.sqrt(W)[:, None] * toy.K * np.sqrt(W)
    close(posterior.log_determinant, np.linalg.slogdet(B)[1])
    g, columns = rng.standard_normal(prior.n), rng.standard_normal((prior.n, 3))
    for v in (g, columns):
        close(posterior.covariance_times(v), Sigma @ v)
        close(posterior.dual(v), np.linalg.solve(np.eye(prior.n) + W[:, None] * toy.K, v))
    close(posterior.center(g)[1], Sigma @ g)
    close(posterior.variances, np.diag(Sigma))
    close(posterior.shares, 1 - W * np.diag(Sigma))
    close(posterior.spread(g), g @ Sigma @ g)
    R = posterior.multiply(np.eye(N))
    close(R @ R.T, Sigma)
    d = R @ rng.standard_normal(N)
    close(posterior.multiply(posterior.solve(d)), d)
    close(posterior.square(d), d[:N] @ P @ d[:N])
    index = np.array([0, N, N + 3])
    close(posterior.block(index), Sigma[np.ix_(index, index)])


@pytest.mark.parametrize("makers", PAIRS, ids=NAMES)
def test_the_verbs_of_a_sum_given_sites_of_several_elements(makers):
    rng, toy = np.random.default_rng(3), Toy(makers)
    prior, sets = toy.prior(), toy.sets
    X = rng.standard_normal((len(sets), 3, 3))
    W = SiteBlocks(sets, np.zeros((len(sets), 3, 3))).like(X @ X.swapaxes(1, 2))
    whole = W.times(np.eye(prior.n))
    posterior = prior.condition(W)
    Sigma = toy.B @ np.linalg.inv(toy.Q + toy.B.T @ whole @ toy.B) @ toy.B.T
    close(posterior.log_determinant, np.linalg.slogdet(np.eye(prior.n) + whole @ toy.K)[1])
    g = rng.standard_normal(prior.n)
    close(posterior.covariance_times(g), Sigma @ g)
    close(posterior.variances, np.diag(Sigma))
    close(posterior.site_covariances, W.own(Sigma))
    close(posterior.shares, 1 - np.diag(whole @ Sigma))


def test_a_family_without_a_prior_is_a_value():
    assert Independent(2).at(np.array([1.0, 0.0])) is None
    assert DenseBlocks(1, 2).at(np.array([[1.0, 2.0], [2.0, 1.0]])) is None
    assert OfField(MapMaker(W_OF_MAP), 6).at(np.array(1.0), np.array(1.0)) is None
