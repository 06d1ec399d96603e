"""Sums of Gaussian families: their algebra, and models of them."""

import math
import re

from dataclasses import replace
from functools import cache
from itertools import combinations, combinations_with_replacement, pairwise

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import test_random_models

from close import close
from models import build, reading_once
from pytensor.graph.replace import clone_replace
from samplers import CASES, ONE_OF_EACH, label
from scipy.linalg import block_diag, null_space
from scipy.sparse import csc_array, csr_array
from scipy.stats import multivariate_normal
from test_random_models import ONCE, all_right, read_model
from toys import RIVER, Chain, HeldSumOfCounts, SumOfCounts, invariance_after, invariance_of

import pymc_lgm as lgm

from pymc_lgm.approximations.importance import Coordinates, Proposal, Scheme, importance_sample
from pymc_lgm.approximations.laplace import laplace
from pymc_lgm.approximations.sites import Margins
from pymc_lgm.approximations.transport import Transport, transport
from pymc_lgm.approximations.variational import variational
from pymc_lgm.gaussian import (
    DenseBlocks,
    Independent,
    Layout,
    SumAt,
    SumPrior,
    sparse_loops,
    sums,
)
from pymc_lgm.gaussian import rows as rows_of_A
from pymc_lgm.gaussian.families import BandedSeries, ByPrecision, Map
from pymc_lgm.gaussian.neighbors import NearestNeighbors, Neighbors
from pymc_lgm.gaussian.rows import Rows
from pymc_lgm.gaussian.sites import SiteBlocks
from pymc_lgm.gaussian.sparse import Pattern
from pymc_lgm.gaussian.spde import OfMesh
from pymc_lgm.gaussian.structure import IntrinsicFamily, IntrinsicMap, Structure
from pymc_lgm.model import predictor
from pymc_lgm.model.fields import FIELDS
from pymc_lgm.model.forms.sum import SumPredictor
from pymc_lgm.model.series import as_series, is_series
from pymc_lgm.state import AtTheta, State
from pymc_lgm.steps import plan
from pymc_lgm.targets.sufficient import SufficientTarget
from pymc_lgm.testing import joint_test

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
    return BandedSeries(7, 2), [bands, u], np.linalg.solve(T, u), T.T @ T


def areas(rng):
    W = W_OF_MAP.toarray()
    Q = 1.7 * (np.diag(W.sum(axis=0)) - 0.6 * W)
    return Map(W_OF_MAP), [np.array(1.7), np.array(0.6)], np.zeros(6), Q


def intrinsic(rng):
    W = W_OF_MAP.toarray()
    Q = (np.diag(W.sum(axis=0)) - W) / 0.7**2 + 1.0 / (6 * 0.05) ** 2
    return IntrinsicMap(W_OF_MAP, 0.05, 0.7), [], np.zeros(6), Q


def precision(rng):
    pattern = Pattern.of(TAU)
    elements = pattern.elements(TAU)
    return ByPrecision(pattern, "x"), [elements, elements], np.zeros(6), TAU.toarray()


def structured(rng):
    """A walk of order two whose mean and slope are zero, and one more element."""
    R = sum(np.outer(row, row) for row in np.diff(np.eye(7), 2, axis=0))
    rows = np.vstack([np.ones(7), np.arange(7), np.eye(7)[2]])
    sigma = rng.uniform(0.5, 2.0)
    return IntrinsicFamily(Structure.of(R, rows)), [np.array(sigma)], np.zeros(7), R / sigma**2


def interaction(rng):
    """A map of two parts by a walk: it has coordinates, and two constraints on these."""
    space = Structure.map(lgm.spatial.adjacency([(0, 1), (2, 3)]))
    both = space.product(Structure.walk(2))
    sigma = rng.uniform(0.5, 2.0)
    return IntrinsicFamily(both), [np.array(sigma)], np.zeros(8), both.R.toarray() / sigma**2


def on_mesh(rng):
    """Six vertices of two squares."""
    places = np.array([[0, 0], [1, 0], [2, 0], [0, 1], [1, 1], [2, 1]])
    mesh = lgm.gmrf.Mesh(places, [[0, 1, 4], [0, 4, 3], [1, 2, 5], [1, 5, 4]])
    C, G = mesh.C.toarray(), mesh.G.toarray()
    kappa, tau = rng.uniform(0.5, 2.0, 2)
    K = kappa**2 * C + G
    Q = tau**2 * K @ np.linalg.inv(C) @ K
    return OfMesh(mesh.elements), [np.array(kappa), np.array(tau)], np.zeros(6), Q


def nearest(rng):
    """Five elements in another order, each given two before it."""
    of = np.array([[0, 1], [0, 1], [0, 1], [1, 2], [0, 3]])
    neighbors = Neighbors(np.array([3, 0, 4, 1, 2]), of)
    B, D = rng.standard_normal((5, 2)) * neighbors.there, rng.uniform(0.5, 2.0, 5)
    whole = np.eye(5)
    np.add.at(whole, (np.repeat(np.arange(5), 2), of.ravel()), -B.ravel())
    back = np.ix_(neighbors.back, neighbors.back)
    Q = (whole.T @ np.diag(1 / D) @ whole)[back]
    return NearestNeighbors(neighbors), [B, D], np.zeros(5), Q


FAMILIES = [
    *(independent, shared_blocks, own_blocks, series, areas, intrinsic, precision, structured),
    on_mesh,
    nearest,
    interaction,
]


def space_of(family):
    """Orthonormal columns that span what x may be."""
    B = np.eye(family.n) if family.basis is None else family.basis.toarray()
    return B @ null_space(family.constraint.T) if family.constraint.size else B


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
        self.E = block_diag(*(space_of(family) for family in families))
        self.K = self.seen(self.Q)
        self.mean = self.B @ self.mean_of_x + np.concatenate([self._at.offset, self._at.c])

    def sum_at(self, theta):
        return self._at

    def prior(self):
        return SumPrior.at(self, np.zeros(1))

    def seen(self, Q):
        """The covariance of (x, A x) of a precision of x."""
        return self.B @ self.E @ np.linalg.inv(self.E.T @ Q @ self.E) @ self.E.T @ self.B.T


PAIRS = [*([make] for make in FAMILIES), *combinations_with_replacement(FAMILIES, 2)]
NAMES = [" + ".join(make.__name__ for make in pair) for pair in PAIRS]


@pytest.mark.parametrize("makers", PAIRS, ids=NAMES)
def test_the_verbs_of_a_sum(makers):
    rng, toy = np.random.default_rng(1), Toy(makers)
    prior, K, N = toy.prior(), toy.K, len(toy.Q)
    r = prior.rank
    L = prior.multiply(np.eye(r))
    close(L @ L.T, K)
    close(prior.mean, toy.mean)
    close(prior.variances, np.diag(K))
    x, g = L @ rng.standard_normal(r), rng.standard_normal(prior.n)
    close(prior.multiply_transposed(g), L.T @ g)
    close(prior.solve(x), np.linalg.lstsq(L, x, rcond=None)[0])
    close(prior.covariance_times(g), K @ g)
    close(K @ prior.inverse_times(x), x)
    square = x[:N] @ toy.Q @ x[:N]
    log_determinant = np.linalg.slogdet(toy.E.T @ toy.Q @ toy.E)[1]
    expected = 0.5 * (log_determinant - square - r * np.log(2 * np.pi))
    close(prior.log_density(toy.mean + x), expected)
    assert prior.log_density(toy.mean + x + 0.01 * (np.arange(x.size) == N + 1)) == -np.inf


@pytest.mark.parametrize("makers", PAIRS, ids=NAMES)
def test_the_verbs_of_a_sum_given_sites(makers):
    rng, toy = np.random.default_rng(2), Toy(makers)
    prior, N = toy.prior(), len(toy.Q)
    W = rng.uniform(0.0, 3.0, prior.n) * (rng.uniform(size=prior.n) < 0.7)
    posterior = prior.condition(W)
    P = toy.Q + toy.B.T @ (W[:, None] * toy.B)
    Sigma = toy.seen(P)
    B = np.eye(prior.n) + np.sqrt(W)[:, None] * toy.K * np.sqrt(W)
    close(posterior.log_determinant, np.linalg.slogdet(B)[1])
    g, columns = rng.standard_normal(prior.n), rng.standard_normal((prior.n, 3))
    for v in (g, columns):
        close(posterior.covariance_times(v), Sigma @ v)
        close(posterior.alpha(v), np.linalg.solve(np.eye(prior.n) + W[:, None] * toy.K, v))
    close(posterior.center(g)[1], Sigma @ g)
    close(posterior.variances, np.diag(Sigma))
    close(posterior.one_minus_leverage, 1 - W * np.diag(Sigma))
    close(posterior.quad_form(g), g @ Sigma @ g)
    R = posterior.multiply(np.eye(prior.rank))
    close(R @ R.T, Sigma)
    d = R @ rng.standard_normal(prior.rank)
    close(posterior.multiply(posterior.solve(d)), d)
    close(posterior.inv_quad_form(d), d[:N] @ P @ d[:N])
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
    Sigma = toy.seen(toy.Q + toy.B.T @ whole @ toy.B)
    close(posterior.log_determinant, np.linalg.slogdet(np.eye(prior.n) + whole @ toy.K)[1])
    g = rng.standard_normal(prior.n)
    close(posterior.covariance_times(g), Sigma @ g)
    close(posterior.variances, np.diag(Sigma))
    close(posterior.site_covariances, W.blocks_of(Sigma))
    close(posterior.one_minus_leverage, 1 - np.diag(whole @ Sigma))


def test_a_family_without_a_prior_is_a_value():
    assert Independent(2).at(np.array([1.0, 0.0])) is None
    assert DenseBlocks(1, 2).at(np.array([[1.0, 2.0], [2.0, 1.0]])) is None
    assert Map(W_OF_MAP).at(np.array(1.0), np.array(1.0)) is None


@pytest.mark.parametrize("read", ["all", "own", "both"])
def test_products_by_blas_and_by_loops_are_those_of_the_whole_matrix(read, monkeypatch):
    monkeypatch.setattr(rows_of_A, "FULL", 1)
    rng, N, E = np.random.default_rng(8), 9, 6
    own = [[3], [1, 7], [], [7], [0, 1, 3], [8]]
    common = {"all": 5, "own": 0, "both": 5}[read]
    every = [4, 2, 5, 0, 6][:common]
    others = [[j for j in row if j not in every and read != "all"] for row in own]
    by_row = [rng.permutation(every + row).astype(np.intp) for row in others]
    sizes, columns = [row.size for row in by_row], np.concatenate(by_row)
    starts, row = np.cumsum([0, *sizes]), np.repeat(np.arange(E), sizes)
    rows = Rows(starts, columns, N)
    assert sorted(rows.full) == sorted(every)
    numbers, S = rng.standard_normal(columns.size), rng.standard_normal((N, N))
    A, w, whole, S = rows.split(numbers), rng.uniform(size=E), np.zeros((E, N)), S + S.T
    whole[row, columns] = numbers
    read_together = (whole != 0.0).T @ (whole != 0.0) > 0
    listed = np.zeros((N, N), dtype=bool)
    listed[rows.first, rows.second] = listed[rows.second, rows.first] = True
    np.testing.assert_array_equal(listed, read_together)
    # In one triangle, each element of S and of the product has one place.
    lower = np.maximum(rows.first, rows.second) * N + np.minimum(rows.first, rows.second)
    known = np.where(listed, S, np.nan).ravel()

    x, g, out = rng.standard_normal((N, 2)), rng.standard_normal((E, 2)), np.ones((E, 2))
    rows.times(A, x, out)
    np.testing.assert_allclose(out, 1.0 + whole @ x)
    out = np.ones((N, 2))
    rows.times_transposed(A, g, out)
    np.testing.assert_allclose(out, 1.0 + whole.T @ g)
    forms = rows.quadratic_forms(A, lower, known)
    np.testing.assert_allclose(forms, np.einsum("ij,jk,ik->i", whole, S, whole))
    out = np.ones(numbers.size)
    rows.add_weighted_rows(A, w, lower, known, out)
    np.testing.assert_allclose(out, 1.0 + (w[:, None] * (whole @ S))[row, columns])
    gram = np.zeros(N * N)
    rows.add_gram(A, w, lower, gram)
    expected = np.tril(whole.T @ (w[:, None] * whole))
    np.testing.assert_allclose(gram.reshape(N, N), expected, atol=1e-12)


# Models of PyMC


X = np.linspace(-1.0, 1.0, 8)
MAP = W_OF_MAP.toarray().astype(int)
FOUR, SIX = np.arange(8) // 2, np.arange(8) % 6


def s_of(name):
    return pm.LogNormal(f"s_{name}", -0.3, 0.5)


def effects():
    b = pm.Normal("effects", pm.StudentT("mean", 4), s_of("effects"), shape=4)
    return b[FOUR[::-1]]


def coefficients():
    """With a column of zeros, and a covariate that theta moves."""
    Z = np.stack([X, np.zeros(8), X**2], axis=1)
    beta = pm.Normal("beta", 0.1, np.array([1.0, 2.0, 100.0]), shape=3)
    return Z @ beta + (X + 1.1) ** s_of("power") * beta[0]


def slopes():
    chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=pm.Exponential.dist(1.0))
    u = pm.MvNormal("slopes", [0.3, 0.0], chol=chol, shape=(4, 2))
    return u[FOUR, 0] + X * u[FOUR, 1]


def slopes_of_their_own():
    s = pm.LogNormal("s_own", 0, 0.5, shape=4)
    K = s[:, None, None] ** 2 * np.array([[1.0, 0.3], [0.3, 1.0]])
    u = pm.MvNormal("own", np.zeros(2), K, shape=(4, 2))
    return u[FOUR, 0] + X * u[FOUR, 1]


def autoregression():
    rho, first = pm.Normal("rho", 0, 0.3, shape=3), pm.Normal.dist(0.5, 2.0, shape=2)
    return pm.AR("ar", rho, s_of("ar"), constant=True, init_dist=first, steps=6)


def walks():
    """Two, with a drift and a scale of their own."""
    drift, s = pm.StudentT("drift", 4, shape=2), pm.LogNormal("s_walks", 0, 0.5, shape=2)
    first = pm.Normal.dist(0.2, 1.5, shape=2)
    return pm.GaussianRandomWalk("walks", drift, s, init_dist=first, shape=(2, 4)).ravel()


def conditional_areas():
    tau, alpha = s_of("tau"), pm.Beta("alpha", 2, 2)
    return pm.CAR("car", np.full(6, 0.4), MAP, alpha, tau)[SIX]


def intrinsic_areas():
    return s_of("icar") * pm.ICAR("icar", W=MAP, sigma=1.7, zero_sum_stdev=0.1)[SIX]


def sparse_precision():
    tau = s_of("precision") * TAU_OF_8
    return pm.MvNormal("precision", np.full(8, 0.1), tau=tau)[::-1]


def process():
    K = s_of("process") ** 2 * np.exp(-np.abs(X[:, None] - X))
    return pm.MvNormal("process", X, K, shape=8)


TAU_OF_8 = 2.2 * np.eye(8) - np.diag(np.ones(7), 1) - np.diag(np.ones(7), -1)

SUMMANDS = [
    *(effects, coefficients, slopes, slopes_of_their_own, autoregression, walks),
    *(conditional_areas, intrinsic_areas, sparse_precision, process),
]

Y = np.random.default_rng(5).standard_normal(9)


@pytest.fixture
def forced(monkeypatch):
    """Every model that can be a sum is one."""
    monkeypatch.setattr("pymc_lgm.model.forms.sum._is_cheaper", lambda *sizes: True)
    with pytensor.config.change_flags(**ONCE):
        yield


def seen_with_noise(*summands):
    """Elements of a sum, and two of them together, with normal noise."""
    with pm.Model() as model:
        eta = sum(make() for make in summands)
        both = pt.concatenate([eta, [eta[3] + 2.0 * eta[5]]])
        pm.Normal("y", both, s_of("noise"), observed=Y)
    return model


class Brute:
    """log p(y, theta) of a model whose log density is a quadratic in its latent variables."""

    def __init__(self, model, latents):
        self._values = [value for value in model.value_vars if value.name in latents]
        self._shapes = [np.shape(model.initial_point()[v.name]) for v in self._values]
        self._ends = np.cumsum([int(np.prod(shape)) for shape in self._shapes])
        x = pt.vector("x", shape=(int(self._ends[-1]),))
        pieces = zip(self._values, self._split(x), strict=True)
        total = clone_replace(model.logp(), dict(pieces), rebuild_strict=False)
        self._others = [v for v in model.value_vars if v not in self._values]
        outputs = [total, pt.grad(total, x)]
        self._function = pytensor.function([x, *self._others], outputs, on_unused_input="ignore")

    def _split(self, x):
        begins = [0, *self._ends[:-1]]
        return [
            x[int(a) : int(b)].reshape(shape)
            for a, b, shape in zip(begins, self._ends, self._shapes, strict=True)
        ]

    def __call__(self, point):
        others, N = [point[v.name] for v in self._others], int(self._ends[-1])
        value, gradient = self._function(np.zeros(N), *others)
        P = np.array([gradient - self._function(e, *others)[1] for e in np.eye(N)])
        P = 0.5 * (P + P.T)
        root = np.linalg.cholesky(P)
        half = np.linalg.solve(root, gradient)
        return value + 0.5 * (half @ half + N * np.log(2 * np.pi)) - np.log(root.diagonal()).sum()


def evidences(model, read):
    """log p(y, theta) at some theta, by the package and by brute force: it is exact."""
    brute, rng, start = Brute(model, read.latents), np.random.default_rng(3), model.initial_point()
    ours, theirs = [], []
    for _ in range(3):
        point = {k: v + 0.5 * rng.standard_normal(np.shape(v)) for k, v in start.items()}
        theta = read.theta_of(point)
        at = AtTheta.of(read, theta)
        q = at.approximation(lambda likelihood, prior: laplace(likelihood, prior, tolerance=1e-9))
        ours.append(np.nan if q is None else q.log_evidence + read.log_prior(theta))
        theirs.append(brute(point))
    return np.array(ours), np.array(theirs)


def error_of(*summands):
    """Largest error of the evidence; of areas PyMC leaves a constant out."""
    model = seen_with_noise(*summands)
    read = lgm.read(model)
    assert isinstance(read.form, SumPredictor)
    ours, theirs = evidences(model, read)
    errors = ours - theirs
    if not {conditional_areas, intrinsic_areas}.isdisjoint(summands):
        errors -= errors[0]
    return np.abs(errors).max() if np.isfinite(errors).all() else np.inf


SUMS = [*combinations(SUMMANDS, 2), (intrinsic_areas, walks, effects)]
IN_A_RING = set(pairwise([*SUMMANDS, SUMMANDS[0]]))
FAST_SUMS = (
    "effects + walks",
    "coefficients + intrinsic_areas",
    "slopes + conditional_areas",
    "autoregression + sparse_precision",
)


def label_of_sum(summands):
    return " + ".join(make.__name__ for make in summands)


def is_whole(summands):
    """Each family beside two others; before a release beside all, as the toys' verbs always are."""
    in_ring = not IN_A_RING.isdisjoint({summands, summands[::-1]})
    return not (in_ring or len(summands) > 2 or label_of_sum(summands) in FAST_SUMS)


@pytest.mark.fast(*FAST_SUMS)
@pytest.mark.parametrize(
    "summands",
    [pytest.param(s, marks=[pytest.mark.whole] * is_whole(s)) for s in SUMS],
    ids=label_of_sum,
)
def test_the_evidence_is_that_of_brute_force(summands, forced):
    assert error_of(*summands) < 1e-7


def test_full_columns_leave_an_evidence_as_it_is(monkeypatch, forced):
    """The three coefficients have a number in each row, one of which theta moves."""
    monkeypatch.setattr(rows_of_A, "FULL", 1)
    assert error_of(coefficients, effects) < 1e-7


def random_sums(seeds):
    """What is wrong with random models, and how many of them are sums."""
    found = []

    def counted(made):
        read = read_model(made)
        found.append(type(read.form))
        return read

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(test_random_models, "read_model", counted)
        all_right(seeds)
    return sum(form is SumPredictor for form in found)


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param((1, 2, 5, 8, *range(12, 16)), id="some", marks=pytest.mark.slow),
        pytest.param(range(16, 69), id="others", marks=pytest.mark.whole),
    ],
)
def test_many_random_sums_are_right(seeds, forced):
    assert random_sums(seeds) >= len(seeds) / 3


@pytest.mark.fast("coefficients")
@pytest.mark.parametrize("read_by", ["effects", "coefficients", "areas"])
def test_what_has_another_latent_in_its_mean_is_no_part_of_a_field(read_by):
    """It was read as if its mean were a number, which the audit refused."""
    with pytensor.config.change_flags(**ONCE), pm.Model() as model:
        if read_by == "areas":
            field = pm.CAR("field", np.zeros(6), 1.0 * MAP, 0.5, s_of("field"))[SIX]
        else:
            field = pm.GaussianRandomWalk("field", 0, s_of("field"), init_dist=first(), steps=7)
        if read_by == "coefficients":
            mean = pm.Normal("mean")
            field = field + pm.Normal("b", mean, s_of("b"), shape=4)[FOUR]
        else:
            field = field + pm.Normal("e", field, s_of("e"), shape=8)
        pm.Poisson("y", pm.math.exp(field), observed=np.arange(8))
        checked = lgm.read(model).check(draws=5)
    assert max(checked.values()) < 1e-6


def first():
    return pm.Normal.dist(0.0, 1.0)


# Draws


def toy_and_bend():
    toy = SumOfCounts()
    here = AtTheta.of(toy, np.array([0.4, 0.1, -0.2]))
    q = variational(here.likelihood, here.prior, tolerance=1e-4)
    q = replace(q, margins=Margins(q.posterior.variances, here.prior.precisions))
    return toy, here, Proposal(q, transport(q, here.likelihood))


@pytest.mark.parametrize("make", [SumOfCounts, HeldSumOfCounts])
def test_the_toy_is_what_it_says(make):
    toy, theta = make(), np.array([0.4, 0.3, -0.2])
    prior = toy.prior(theta)
    close(prior.mean, toy.mean(theta))
    close(prior.covariance_times(np.eye(toy.n)), toy.cov(theta))


@pytest.mark.parametrize("far", [1.0, 5.0, 20.0])
def test_a_draw_that_is_bent_comes_back(far):
    """In the range of the prior, from where exponentials are large, and from where they vanish."""
    _, here, proposal = toy_and_bend()
    rng, q, transport_map = np.random.default_rng(6), proposal.q, proposal.skewness
    xi = far * rng.standard_normal((here.prior.rank, 20))
    x = q.center[:, None] + q.posterior.multiply(xi)
    np.testing.assert_allclose(
        transport_map.backward(transport_map.forward(x)[0]), x, rtol=1e-6, atol=1e-6
    )
    f = q.center[:, None] + here.prior.multiply(xi)
    np.testing.assert_allclose(
        transport_map.forward(transport_map.backward(f))[0], f, rtol=1e-6, atol=1e-6
    )


def error_of_slopes():
    """How far the map's log |∂x/∂f| is from that of differences, in the degrees of freedom."""
    toy, _, proposal = toy_and_bend()
    q, transport_map, N = proposal.q, proposal.skewness, toy.N
    xi, h = 1.5 * np.random.default_rng(8).standard_normal((N, 4)), 1e-6 * np.eye(N)
    errors = []
    for column, slope in zip(xi.T, transport_map.forward(bent_at(q, xi))[1], strict=True):
        ahead, behind = (
            q.posterior.solve(transport_map.forward(bent_at(q, column[:, None] + each))[0])
            for each in (h, -h)
        )
        errors.append(slope + np.linalg.slogdet((ahead - behind) / 2e-6)[1])
    return np.abs(errors).max()


def bent_at(q, xi):
    return q.center[:, None] + q.posterior.multiply(xi)


def test_the_weight_of_a_bend_is_a_difference_of_prior_densities():
    """K is singular: f has x and eta."""
    _, _, proposal = toy_and_bend()
    q, rng = proposal.q, np.random.default_rng(6)
    x = q.center[:, None] + q.posterior.deviations(rng.standard_normal((1, q.prior.rank, 5)))
    f, _, squares = proposal.skewness.forward_with_squares(x)
    expected = [
        q.prior.log_density(a) - q.prior.log_density(b) for a, b in zip(x.T, f.T, strict=True)
    ]
    np.testing.assert_allclose(squares, expected, rtol=1e-8, atol=1e-8)
    assert np.abs(squares).max() > 1e-3


def test_the_slope_of_a_bend():
    assert error_of_slopes() < 1e-5


def estimate_error(draws=4000):
    """Of the evidence by bent draws, in standard errors, against draws of eta from a wide normal.

    These know a covariance of eta as an array, and nothing else of the sum.
    """
    toy, here, proposal = toy_and_bend()
    rng, scheme = np.random.default_rng(7), Scheme(draws, False)
    coordinates = Coordinates.fresh(rng, proposal, scheme)
    ours = importance_sample(proposal, here.log_likelihoods, coordinates, scheme).log_weights
    m, K = toy.mean(here.theta)[toy.N :], toy.cov(here.theta)[toy.N :, toy.N :]
    W = 2.0 * np.exp(proposal.q.center[toy.N :])
    around = multivariate_normal(
        proposal.q.center[toy.N :], 1.7 * np.linalg.inv(np.linalg.inv(K) + np.diag(W))
    )
    eta = around.rvs(100_000, random_state=rng)
    rows = np.hstack([np.zeros((len(eta), toy.N)), eta])
    values = toy.log_likelihoods(rows, here.theta)
    theirs = values + multivariate_normal(m, K).logpdf(eta) - around.logpdf(eta)
    (one, first), (other, second) = (mean_of(each) for each in (ours, theirs))
    return abs(one - other) / np.hypot(first, second)


def mean_of(logs):
    weights = np.exp(logs - logs.max())
    error = weights.std() / weights.mean() / np.sqrt(logs.size)
    return logs.max() + np.log(weights.mean()), error


def test_bent_draws_estimate_the_evidence():
    assert estimate_error() < 5.5


@cache
def twin_of_the_toy(held=False):
    """A model from which a step knows what it may do."""
    at = SumOfCounts.x_of_eta
    with pm.Model() as model:
        mu = pm.CustomDist("mu", 1.2, 0.5, dist=lambda m, s, size: pm.Normal.dist(m, s, size=size))
        s, t = pm.LogNormal("s"), pm.LogNormal("t")
        level, begin, scale, effect = (0.2, mu, 0.7, s) if held else (mu, 0.0, s, t)
        phi = pm.ICAR("phi", W=(RIVER > 0).astype(int))
        f = pm.GaussianRandomWalk("f", 0, t, init_dist=pm.Normal.dist(begin, 1), shape=(2, 2))
        b = pm.Normal("b", 0, effect, shape=2)
        eta = level + scale * phi[at[:, 0]] + f.ravel()[at[:, 1] - 3] + b[at[:, 2] - 7]
        pm.Poisson("y", pm.math.exp(eta), observed=SumOfCounts().y.astype(int))
    return model


HOLDERS = (lgm.ASIS, lgm.papers.SufficientMetropolis)

LEVEL = 1e-5
"""Of each sampler: one is refused that is right in a thousand runs of all."""


FAST = ("PseudoMarginal", "EllipticalSlice-repeats=2")


def is_another(case):
    """A variant of a sampler that another case tries: few options see of what f is made."""
    return case not in ONE_OF_EACH and label(case) not in FAST


@pytest.mark.fast(*FAST)
@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=[pytest.mark.whole] * is_another(case)) for case in CASES],
    ids=label,
)
def test_samplers_of_a_sum_are_right_or_refused(case, forced):
    sampler, options = case
    step, refused = None, ""
    try:
        step = build(sampler, twin_of_the_toy(), **options)
    except ValueError as error:
        refused = str(error)
    if step is None:
        assert re.search("degrees of freedom|differentiates", refused)
        return
    assert isinstance(step.lgm.form, SumPredictor)
    tune = 150 if sampler is lgm.PseudoMarginal else 40
    chain = Chain.start(step.elements, SumOfCounts(), np.random.default_rng(1), tune)
    assert invariance_of(chain, replicates=100, steps=2).pvalue > LEVEL


HOLDING = [case for case in CASES if "sufficient" in label(case) or case[0] in HOLDERS]


@pytest.mark.fast("ASIS")
@pytest.mark.parametrize("case", HOLDING, ids=label)
def test_a_sum_is_held_where_theta_is_not_in_it(case, forced):
    sampler, options = case
    if options.get("move") in ("hmc", "smmala"):
        with pytest.raises(ValueError, match="does not do so for a sparse matrix"):
            build(sampler, twin_of_the_toy(held=True), **options)
        return
    step = build(sampler, twin_of_the_toy(held=True), **options)
    chain = Chain.start(step.elements, HeldSumOfCounts(), np.random.default_rng(1), 40)
    assert invariance_of(chain, replicates=150, steps=2).pvalue > LEVEL


@pytest.mark.slow
@pytest.mark.parametrize("is_costly", [False, True])
def test_the_default_leaves_the_posterior_invariant_after_one_step_and_five(
    is_costly, forced, monkeypatch
):
    """If a factorization is costly, with a single importance draw."""
    monkeypatch.setattr(plan, "COSTLY", -1.0 if is_costly else math.inf)
    step = build(lgm.PseudoMarginal, twin_of_the_toy())
    assert step.plan.fewest == (1 if is_costly else 2)
    assert step.element.looser is not None  # tuning begins with a survey
    chain = Chain.start(step.elements, SumOfCounts(), np.random.default_rng(2), 300)
    assert chain.tunings[0].noise.n_importance == step.plan.fewest
    for result in invariance_after((1, 5), chain, replicates=300):
        assert result.pvalue > LEVEL, result


@cache
def observations_of_two_elements():
    """A mean and a log scale, each a sum, that a walk and effects are part of."""
    with pm.Model() as model:
        y = pm.Data("data", np.array([0.3, -1.2, 0.8, 1.0]))
        s, t = pm.LogNormal("s", -0.5, 0.4), pm.LogNormal("t", -0.5, 0.4)
        walk = pm.GaussianRandomWalk("walk", 0, s, init_dist=first(), steps=2)
        b = pm.Normal("b", 0.5, t, shape=2)
        mean = walk[[0, 1, 2, 0]] + b[[0, 1, 0, 1]]
        scale = pm.math.exp(0.5 * walk[[0, 2, 1, 0]] + 0.3 * b[0])
        pm.Normal("y", mean, scale, observed=y)
    return model


@pytest.mark.slow
@pytest.mark.parametrize("steps", [1, 5])
def test_the_default_is_exact_where_observations_read_two_elements(steps, forced):
    model = observations_of_two_elements()
    rng = np.random.default_rng(4)
    with reading_once(compiled=True):
        step = lgm.PseudoMarginal(model=model)
        assert isinstance(step.lgm.form, SumPredictor)
        assert step.lgm.sets is not None
        count = 300 // steps
        result = joint_test(step, model, replicates=count, steps=steps, tune=150, rng=rng)
    assert result.pvalue > LEVEL, result


# Mutants


def error_of_verbs(makers, sets=False):
    """Largest error of log|B| and of marginal variances, of the toy of these families."""
    rng, toy = np.random.default_rng(2), Toy(makers)
    prior = toy.prior()
    if sets:
        X = rng.standard_normal((len(toy.sets), 3, 3))
        W = SiteBlocks(toy.sets, np.zeros((len(toy.sets), 3, 3))).like(X @ X.swapaxes(1, 2))
        whole = W.times(np.eye(prior.n))
    else:
        W = rng.uniform(0.5, 3.0, prior.n)
        whole = np.diag(W)
    posterior = prior.condition(W)
    Sigma = toy.seen(toy.Q + toy.B.T @ whole @ toy.B)
    log_B = np.linalg.slogdet(np.eye(prior.n) + whole @ toy.K)[1]
    errors = np.append(posterior.variances - Sigma.diagonal(), posterior.log_determinant - log_B)
    return np.abs(errors).max() if np.isfinite(errors).all() else np.inf


def without_update(monkeypatch):
    posterior = sums.SumPosterior
    monkeypatch.setattr(sums, "SumPosterior", lambda *args: posterior(*args[:3], args[2]))
    return error_of_verbs([intrinsic, series])


def log_determinant_without_update(monkeypatch):
    def of_base(self):
        factors = (each.factor for each in self.numbers.families)
        return -sum(getattr(each, "base", each).log_determinant for each in factors)

    monkeypatch.setattr(SumPrior, "log_determinant", property(of_base))
    return error_of_verbs([intrinsic, series])


def inverse_on_the_pattern_of_Q(monkeypatch):
    toy = Toy([series, areas])
    layout, whole = toy.layout, sparse_loops.takahashi

    def masked(*args):
        inverse = whole(*args)
        there = np.isin(np.arange(inverse.size), layout.pattern.place[layout.of_Q])
        return np.where(there, inverse, 0.0)

    monkeypatch.setattr(sparse_loops, "takahashi", masked)
    return error_of_verbs([series, areas])


def pairs_of_sets_dropped(monkeypatch):
    monkeypatch.setattr(sums, "add_products", lambda *args: None)
    return error_of_verbs([series, independent], sets=True)


def a_covariate_dropped(monkeypatch):
    numbers = SumPredictor._numbers_of_A
    monkeypatch.setattr(
        SumPredictor, "_numbers_of_A", lambda self, rows: np.sign(numbers(self, rows))
    )
    return error_of(slopes, effects)


def no_breaks(monkeypatch):
    def joined(rv):
        """The last element of each series enters the first of the next."""
        mean, series = as_series(rv)
        T, drive = series.reads
        T = T.reshape((series.width, *series.batch, -1))
        T = T[1:, ..., -1].set(-0.5).reshape((series.width, -1))
        return mean, replace(series, reads=[T, drive])

    monkeypatch.setitem(FIELDS, is_series, joined)
    return error_of(walks, effects)


def columns_frozen(monkeypatch):
    monkeypatch.setattr(predictor, "columns_move", lambda output, x, parts, _: [False] * len(parts))
    return error_of(coefficients, effects)


def a_mean_forgotten(monkeypatch):
    monkeypatch.setattr(BandedSeries, "at", without_mean(BandedSeries.at))
    return error_of(walks, effects)


def without_mean(at):
    def wrong(self, *values):
        found = at(self, *values)
        return found and replace(found, mean=np.zeros(self.n))

    return wrong


MUTANTS = {
    "an update of low rank forgotten": without_update,
    "log|Q| without its update": log_determinant_without_update,
    "an inverse on the pattern of Q": inverse_on_the_pattern_of_Q,
    "pairs of sets dropped": pairs_of_sets_dropped,
    "a covariate dropped from A": a_covariate_dropped,
    "a batch whose T has no breaks": no_breaks,
    "columns of A frozen that theta moves": columns_frozen,
    "the mean of a series forgotten": a_mean_forgotten,
}


@pytest.mark.mutant
@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_sum_is_noticed(name, forced, monkeypatch, dies):
    dies(f"sums: {name}", MUTANTS[name](monkeypatch), above=1e-3)


@pytest.mark.mutant
def test_a_transport_without_its_determinant_is_noticed(monkeypatch, dies):
    monkeypatch.setattr(Transport, "_log_slope", lambda self, growth: 0.0)
    dies("sums: a transport without its determinant", error_of_slopes(), above=1e-2)


def error_of_held_latents():
    """Of the target when theta moves with the latent variables held, beside PyMC's density."""
    model = seen_with_noise(effects, coefficients, walks)
    read, rng = lgm.read(model), np.random.default_rng(4)
    logp, start = model.compile_logp(), model.initial_point()
    point = {k: v + 0.3 * rng.standard_normal(np.shape(v)) for k, v in start.items()}
    theta = read.theta_of(point)
    state = State.of(read, theta, read.f_of(theta, point))
    target = SufficientTarget.fix(rng, state)
    errors = []
    for moved in theta + 0.3 * rng.standard_normal((4, theta.size)):
        value, there = target.evaluate(moved)
        then = point | read.point_of(moved)
        errors.append(value - target.log_density - (logp(then) - logp(point)))
        np.testing.assert_allclose(there.f, read.f_of(moved, then), atol=1e-9)
    return np.abs(errors).max()


def test_latents_that_are_held_have_the_density_of_pymc(forced):
    assert error_of_held_latents() < 1e-8


@pytest.mark.mutant
def test_a_prior_of_held_values_that_is_forgotten_is_noticed(forced, monkeypatch, dies):
    """Theta moves with the latent variables held, as if their law did not depend on it."""
    monkeypatch.setattr(SumPrior, "log_density_of_values", lambda self, f: 0.0)
    dies("sums: a prior of held values forgotten", error_of_held_latents(), above=0.01)
