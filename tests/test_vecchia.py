"""Nearest-neighbor processes: density, draws, neighbors, and models of them."""

import pickle

import arviz as az
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

from close import close
from models import COMPILED, QUICK, gap_to_nuts, joint_law
from pymc.model.fgraph import clone_model
from scipy.stats import chi2, multivariate_normal
from test_sum_gradients import check_gradient

import pymc_lgm as lgm

from pymc_lgm.gaussian.neighbors import NearestNeighbors, Neighbors, max_min_order, nearest_before
from pymc_lgm.model.forms.sum import SumPredictor
from pymc_lgm.vecchia import conditionals

pytestmark = pytest.mark.usefixtures("interpreted")

RNG = np.random.default_rng(0)
N, M, JITTER = 14, 4, 1e-6
X = RNG.uniform(size=(N, 2))
MATERN = 2.0 * pm.gp.cov.Matern32(2, ls=0.4)


def known(m=M, X=X):
    order = max_min_order(X)
    return Neighbors(order, nearest_before(X[order], m))


def by_hand(K, neighbors):
    """B, a matrix, and D of a covariance in the order, point by point."""
    n, B = len(K), np.zeros(K.shape)
    D = np.diag(K).copy()
    for i in range(n):
        of = neighbors.of[i][neighbors.there[i]]
        B[i, of] = np.linalg.solve(K[np.ix_(of, of)], K[of, i])
        D[i] -= K[i, of] @ B[i, of]
    return B, D


def dense(cov_func, neighbors, X=X):
    """The covariance of the prior."""
    Z = X[neighbors.order]
    K = cov_func(Z).eval() + JITTER * np.eye(len(Z))
    B, D = by_hand(K, neighbors)
    root = np.linalg.solve(np.eye(len(Z)) - B, np.diag(np.sqrt(D)))[neighbors.back]
    return root @ root.T


# Neighbors


def test_the_order_puts_points_far_apart():
    order = max_min_order(X)
    center = ((X - X.mean(axis=0)) ** 2).sum(axis=1)
    assert order[0] == center.argmin()
    for k in range(1, N):
        apart = np.linalg.norm(X[:, None] - X[order[:k]], axis=2).min(axis=1)
        assert order[k] == apart.argmax()


def test_neighbors_are_the_nearest_before():
    neighbors = known()
    Z = X[neighbors.order]
    for i in range(N):
        apart = np.linalg.norm(Z[:i] - Z[i], axis=1)
        right = np.sort(np.argsort(apart)[:M])
        np.testing.assert_array_equal(neighbors.of[i][neighbors.there[i]], right)


def test_equal_neighbors_are_equal():
    assert known() == known() != known(M + 1)
    assert hash(known()) == hash(pickle.loads(pickle.dumps(known())))


# Density and draws


def test_with_all_neighbors_it_is_the_full_process():
    K, x = MATERN(X).eval() + JITTER * np.eye(N), RNG.standard_normal(N)
    for order in ("maxmin", np.arange(N)[::-1]):
        f = lgm.gp.Vecchia.dist(X, cov_func=MATERN, neighbors=N - 1, order=order)
        close(pm.logp(f, x).eval(), multivariate_normal(cov=K).logpdf(x))


COVARIANCES = {
    "matern": MATERN,
    "sum with noise": pm.gp.cov.ExpQuad(2, ls=[0.1, 0.4]) + pm.gp.cov.WhiteNoise(0.1),
    "product of columns": pm.gp.cov.Periodic(2, 1.0, ls=0.5, active_dims=[0])
    * pm.gp.cov.Matern12(2, ls=0.3, active_dims=[1]),
    "not stationary": pm.gp.cov.Linear(2, c=0.2) + 0.1 * pm.gp.cov.Exponential(2, ls=0.5),
    "scaled": pm.gp.cov.ScaledCov(2, MATERN, lambda X, a: 1.0 + a * X[:, :1] ** 2, (3.0,)),
    "coregion": pm.gp.cov.Coregion(2, W=np.ones((2, 1)), kappa=np.ones(2), active_dims=[1])
    * pm.gp.cov.Matern32(2, ls=0.4, active_dims=[0]),
}


@pytest.mark.parametrize("name", COVARIANCES)
def test_the_density_is_that_of_conditionals(name):
    points = X if name != "coregion" else np.column_stack([X[:, 0], np.arange(N) % 2])
    neighbors, x = known(X=points), RNG.standard_normal(N)
    cov = dense(COVARIANCES[name], neighbors, points)
    f = lgm.gp.Vecchia.dist(points, cov_func=COVARIANCES[name], neighbors=M)
    close(pm.logp(f, x).eval(mode=QUICK["mode"]), multivariate_normal(cov=cov).logpdf(x))


def test_draws_have_the_covariance():
    """Of 4000 draws: squares of whitened coordinates."""
    draws = 4000
    f = lgm.gp.Vecchia.dist(X, cov_func=MATERN, neighbors=M)
    B, D = (v.eval() for v in f.owner.op.dist_params(f.owner))
    x = f.owner.op.rng_fn(np.random.default_rng(2), B, D, (draws,))
    z = np.linalg.solve(np.linalg.cholesky(dense(MATERN, known())), x.T)
    S = z @ z.T / draws
    # Wilks: the likelihood ratio of a covariance.
    ratio = draws * (np.trace(S) - np.linalg.slogdet(S)[1] - N)
    assert chi2(N * (N + 1) / 2).sf(ratio) > 1e-6


@pytest.mark.slow
def test_compiled_draws_are_of_the_same_law():
    with pm.Model(coords={"place": range(N)}):
        eta = pm.HalfNormal("eta")
        f = lgm.gp.Vecchia("f", X, cov_func=eta**2 * MATERN, neighbors=M, dims="place")
        trace = pm.sample_prior_predictive(400, random_seed=1, compile_kwargs={"mode": "NUMBA"})
    prior = trace.prior.isel(chain=0)
    assert prior["f"].dims == ("draw", "place")
    # The jitter does not have the scale, and is lost beside the covariance.
    z = prior["f"].to_numpy() / prior["eta"].to_numpy()[:, None]
    total = np.einsum("di,ij,dj->", z, np.linalg.inv(dense(MATERN, known())), z)
    assert 1e-6 < chi2(400 * N).cdf(total) < 1 - 1e-6
    assert f.type.shape == (N,)


# The family


def test_the_family_is_that_of_the_density():
    """Its factor, its elements, and its derivatives."""
    neighbors, rng = known(), np.random.default_rng(4)
    family, cov = NearestNeighbors(neighbors), dense(MATERN, neighbors)
    values = [v.eval() for v in conditionals(MATERN, X, neighbors, JITTER)]
    at = family.at(*values)
    Q = np.zeros((N, N))
    Q[family.rows, family.columns] = Q[family.columns, family.rows] = at.elements
    close(Q @ cov, np.eye(N), rtol=1e-7)
    root = at.factor.solve_transposed(np.eye(N))
    close(root @ root.T, cov)
    close(at.factor.log_determinant, -np.linalg.slogdet(cov)[1])
    x = rng.standard_normal(N)
    close(at.factor.multiply(at.factor.multiply_transposed(x)), Q @ x)
    close(at.factor.solve_transposed(at.factor.solve(x)), cov @ x)
    e, h = rng.standard_normal(at.elements.size), 1e-6
    found = family.vjp(at, e, np.zeros(N), 0.7)

    def weighed(*values):
        there = family.at(*values)
        return e @ there.elements + 0.7 * there.factor.log_determinant

    for k, value in enumerate(values):
        step = rng.standard_normal(value.shape) * value
        up, down = ([*values[:k], value + s * h * step, *values[k + 1 :]] for s in (1, -1))
        slope = (weighed(*up) - weighed(*down)) / (2 * h)
        close((found[k] * step).sum(), slope, rtol=1e-5)
    assert family.at(values[0], -values[1]) is None
    assert family.at(np.nan * values[0], values[1]) is None


# Models


def built():
    rng = np.random.default_rng(5)
    with pm.Model() as model:
        ls, eta = pm.LogNormal("ls", -1, 0.5), pm.LogNormal("eta", -0.5, 0.5)
        cov = eta**2 * pm.gp.cov.Matern32(2, ls=ls)
        f = lgm.gp.Vecchia("f", X, cov_func=cov, neighbors=M)
        beta = pm.Normal("beta", 0, 1, shape=2)
        walk = lgm.gmrf.RandomWalk("walk", 1, 0.5, shape=5)
        eta = beta[0] + beta[1] * X[:, 0] + f + walk[np.arange(N) % 5]
        pm.Poisson("y", pm.math.exp(eta), observed=pm.Data("y_data", rng.poisson(1.0, N)))
    return model


@pytest.fixture(scope="module")
def read(interpreted):
    return lgm.read(built())


def test_it_is_read_as_a_sum_of_sparse_terms(read):
    assert isinstance(read.form, SumPredictor)
    assert read.p == 2
    assert "f (14): vecchia" in repr(read)
    assert max(read.check(5).values()) < 1e-7


def test_the_gradient_of_an_evidence(read):
    check_gradient(read, sets=False)


@pytest.mark.slow
def test_a_dense_form_reads_it_too(monkeypatch):
    """With its covariance, where no sparse form can have it."""
    monkeypatch.setattr(SumPredictor, "of", lambda setting: None)
    read = lgm.read(built())
    assert not isinstance(read.form, SumPredictor)
    assert max(read.check(3).values()) < 1e-7


def test_a_covariance_that_is_not_positive_definite_is_named():
    with pm.Model():
        cov = pm.HalfNormal("eta", initval=1.0) * pm.gp.cov.ExpQuad(2, ls=1e6)
        f = lgm.gp.Vecchia("f", X, cov_func=cov, neighbors=M, jitter=0.0)
        pm.Poisson("y", pm.math.exp(f), observed=np.arange(N) % 3)
        with pytest.raises(ValueError, match="write a larger jitter="):
            lgm.PseudoMarginal()


def test_predictions_are_conditionals_of_the_full_process():
    """With all neighbors, those of a process of PyMC."""
    rng = np.random.default_rng(3)
    new, f = rng.uniform(size=(5, 2)), rng.standard_normal((1, 2, N))
    idata = az.from_dict({"posterior": {"f": f, "eta": np.array([[0.7, 1.3]])}})
    found = []
    for m in (N - 1, 3, None):
        with pm.Model():
            cov = pm.LogNormal("eta") ** 2 * pm.gp.cov.Matern32(2, ls=0.4)
            if m is None:
                gp = pm.gp.Latent(cov_func=cov)
                gp.prior("f", X, reparameterize=False, jitter=JITTER)
            else:
                gp = lgm.gp.Vecchia("f", X, cov_func=cov, neighbors=m)
            tree = lgm.predict(idata, gp, new, progressbar=False, compile_kwargs=QUICK)
        found.append(tree["predictions"].to_dataset())
    for name in ("f_conditional_mean", "f_conditional_variance"):
        # All points but the farthest: what it adds is small, and not zero.
        np.testing.assert_allclose(found[0][name], found[2][name], rtol=0.05, atol=0.01)
    K = pm.gp.cov.Matern32(2, ls=0.4)
    for j, point in enumerate(new):
        of = np.argsort(np.linalg.norm(X - point, axis=1))[:3]
        inverse = np.linalg.inv(0.7**2 * K(X[of]).eval() + JITTER * np.eye(3))
        cross = 0.7**2 * K(point[None], X[of]).eval()[0]
        close(found[1]["f_conditional_mean"][0, 0, j], cross @ inverse @ f[0, 0, of])
        right = 0.7**2 - cross @ inverse @ cross
        close(found[1]["f_conditional_variance"][0, 0, j], right, rtol=1e-5)
    with pm.Model():
        f = lgm.gp.Vecchia("f", X, cov_func=MATERN, neighbors=M)
    with pytest.raises(ValueError, match="f is not a variable of this model"):
        lgm.predict(idata, f, new, model=pm.Model())
    # A copy's covariance function would read variables of the original.
    copy = clone_model(built())
    assert max(lgm.read(copy).check(2).values()) < 1e-7
    with pytest.raises(ValueError, match="f is of a copy of a model"):
        lgm.predict(idata, copy["f"], new, model=copy)


def test_predictions_at_the_points_themselves_without_jitter():
    """They are known: the covariance of such a point and its neighbors is singular."""
    f = np.random.default_rng(4).standard_normal((1, 1, N))
    idata = az.from_dict({"posterior": {"f": f}})
    with pm.Model():
        cov = pm.gp.cov.Matern32(2, ls=0.4)
        x = lgm.gp.Vecchia("f", X, cov_func=cov, neighbors=3, jitter=0.0)
        tree = lgm.predict(idata, x, X, progressbar=False, compile_kwargs=QUICK)
    np.testing.assert_allclose(tree["predictions"]["f_conditional_mean"], f, atol=1e-6)
    np.testing.assert_allclose(tree["predictions"]["f_conditional_variance"], 0.0, atol=1e-6)


@pytest.mark.slow
def test_its_posterior_is_left_invariant():
    assert joint_law(lgm.PseudoMarginal, built(), seed=7, replicates=300, steps=3).pvalue > 1e-5


@pytest.mark.whole
@pytensor.config.change_flags(**COMPILED)
def test_nuts_samples_the_same():
    functions = [(name, lambda x: np.log(abs(x))) for name in ("f", "ls", "eta")]
    assert gap_to_nuts(built(), functions) < 5.5


# Wrong on purpose


def nearest_of_all(Z, m):
    """The mutant that looks for neighbors after the point, too."""
    found = nearest_before(Z, m).copy()
    squares = ((Z[:, None] - Z) ** 2).sum(axis=2)
    found[m + 1 :] = np.sort(np.argsort(squares, axis=1)[m + 1 :, :m], axis=1)
    return found


class Unconditional(Neighbors):
    """The mutant whose elements all have the variance of the first."""

    def draw(self, xi, B, D):
        return super().draw(xi, B, np.full_like(D, D[0]))


WRONG = {
    "later neighbors": (Neighbors, nearest_of_all),
    "variances without conditions": (Unconditional, nearest_before),
}


def error_of_draws(neighbors):
    """Of the covariance of draws from standard normal numbers, one by one."""
    B, D = (v.eval() for v in conditionals(MATERN, X, neighbors, JITTER))
    root = np.column_stack([neighbors.draw(e, B, D) for e in np.eye(N)])
    return np.abs(root @ root.T - dense(MATERN, known())).max()


@pytest.mark.mutant
@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_neighbor_is_noticed(wrong, dies):
    assert error_of_draws(known()) < 1e-8
    (kind, nearest), order = WRONG[wrong], max_min_order(X)
    neighbors = kind(order, nearest(X[order], M))
    dies(f"vecchia: {wrong}", error_of_draws(neighbors), above=1e-3)


# Input that cannot be

TWICE = np.vstack([X, X[3]])


@pytest.mark.parametrize(
    ("X", "options", "message"),
    [
        (X[:, 0], {}, r"X has shape \(14,\): write one row per point"),
        (np.where(X[2] == X, np.nan, X), {}, r"X\[2\] is \[nan nan\]"),
        (X[:1], {}, "two or more"),
        (pt.as_tensor(X), {}, "an array of numbers"),
        (TWICE, {"jitter": 0.0}, r"X\[3\] and X\[14\] are the same point"),
        (X, {"jitter": -1.0}, "jitter is -1.0"),
        (X, {"neighbors": 0}, "from 1 to 13"),
        (X, {"neighbors": N}, "neighbors is 14: with 14 points"),
        (X, {"neighbors": 2.5}, "a whole number"),
        (X, {"order": "random"}, 'write "maxmin"'),
        (X, {"order": np.zeros(N, dtype=int)}, "not a permutation of 0, …, 13"),
        (X, {"mean_func": pm.gp.mean.Constant(1.0)}, "The mean of a Vecchia process is zero"),
        (X, {"cov_func": np.eye(N)}, "cov_func is a ndarray"),
        (X, {"shape": 5}, r"The shape is \(5,\), and X has 14 points"),
        (X, {"size": 2}, "write one for each"),
    ],
)
def test_input_that_cannot_be(X, options, message):
    with pytest.raises(ValueError, match=message):
        lgm.gp.Vecchia.dist(X, **{"cov_func": MATERN, "neighbors": M} | options)
    assert lgm.gp.Vecchia.dist(TWICE, cov_func=MATERN, neighbors=M).type.shape == (N + 1,)
