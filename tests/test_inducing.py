"""Processes seen through inducing variables: their prior, their density, and what samples them."""

import math
import subprocess
import sys

from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

from close import close
from models import COMPILED, QUICK, build, gap_to_nuts
from pytensor.graph.traversal import ancestors
from samplers import CASES, label
from scipy.stats import multivariate_normal, norm
from toys import TOYS, Chain, Counts, invariance_after, invariance_of

import pymc_lgm as lgm

from pymc_lgm import moves, samplers
from pymc_lgm.approximations.laplace import laplace
from pymc_lgm.gaussian import InducingPrior
from pymc_lgm.linalg import ROWS, gram
from pymc_lgm.model import LatentGaussianModel
from pymc_lgm.model.forms import inducing as inducing_form
from pymc_lgm.model.forms import rows
from pymc_lgm.state import AtTheta, State

pytestmark = pytest.mark.usefixtures("interpreted")
chains = pytensor.config.change_flags(**COMPILED)

THETA = np.array([0.7, 0.2, -0.4])
X, Z = np.array([0.0, 0.6, 1.5]), np.array([0.2, 1.1])


def matern(r):
    return (1.0 + math.sqrt(3.0) * r) * np.exp(-math.sqrt(3.0) * r)


class Seen(Counts):
    """Counts that read V(theta) v + theta_0, v of two inducing variables: f = (V v, v)."""

    prior_sd = np.array([0.5, 0.5, 1.0])

    def __init__(self):
        super().__init__(3)
        self.n = 5

    def maps(self, theta):
        (R,), scale = self.roots(theta), np.exp(-theta[1])
        cross = np.exp(2.0 * theta[2]) * matern(scale * abs(Z[:, None] - X))
        return [np.ascontiguousarray(np.linalg.solve(R, cross).T)]

    def roots(self, theta):
        K = matern(np.exp(-theta[1]) * abs(Z[:, None] - Z)) + 1e-6 * np.eye(2)
        return [np.exp(theta[2]) * np.linalg.cholesky(K)]

    def prior(self, theta):
        return InducingPrior.at(self, theta)

    def mean(self, theta):
        return np.zeros(5)

    def cov(self, theta):
        root = self.prior(theta).root
        return root @ root.T

    def draw(self, rng):
        theta = self.draw_theta(rng)
        f = self.prior(theta).multiply(rng.standard_normal(2))
        self.y = self.draw_y(rng, f, theta)
        return theta, f

    def site_log_likelihoods(self, rows, theta):
        read = super().site_log_likelihoods(rows[..., :3] + theta[0], theta)
        return np.concatenate([read, np.zeros((*read.shape[:-1], 2))], axis=-1)

    def likelihood_terms(self, f, theta):
        value, *slopes = super().likelihood_terms(f[:3] + theta[0], theta)
        return value, *(np.concatenate([slope, np.zeros(2)]) for slope in slopes)

    def draw_y(self, rng, f, theta):
        return super().draw_y(rng, f[:3] + theta[0], theta)


def _first(toy):
    prior = toy.prior(toy.prior_mean)
    return prior.multiply(np.ones(prior.rank))


def started(elements, toy, seed, tune):
    """A chain whose first f is one of the prior's."""
    rng = np.random.default_rng(seed)
    state = State.of(toy, toy.prior_mean.copy(), _first(toy))
    chain = Chain(tuple(elements), toy, rng, state, [e.start(state, tune) for e in elements])
    for _ in range(tune):
        chain.step(True)
    return chain


# Its verbs, against dense algebra with K = (V, I)(V, I)ᵀ


def test_the_verbs_of_its_prior():
    toy, rng = Seen(), np.random.default_rng(1)
    prior, K = toy.prior(THETA), toy.cov(THETA)
    L = prior.multiply(np.eye(2))
    close(L, prior.root)
    close(prior.variances, np.diag(K))
    assert (prior.n, prior.rank) == (5, 2)
    for xi in (rng.standard_normal(2), rng.standard_normal((2, 3))):
        close(prior.solve(L @ xi), xi)
        close(K @ prior.inverse_times(L @ xi), L @ xi)
        z = L @ xi
        close((z * prior.inverse_times(z)).sum(axis=0), (xi**2).sum(axis=0))
    for x in (rng.standard_normal(5), rng.standard_normal((5, 3))):
        close(prior.multiply_transposed(x), L.T @ x)
        close(prior.covariance_times(x), K @ x)
    v = np.array([0.3, -2.0])
    close(prior.log_density(L @ v), norm.logpdf(v).sum())
    assert prior.log_density(L @ v + np.eye(5)[0]) == -math.inf
    assert prior.moved(THETA + 1.0).log_density(L @ v) == -math.inf


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("n", [3, ROWS, 2 * ROWS + 5])
def test_a_weighted_product_of_either_order(n, order):
    rng = np.random.default_rng(4)
    V, W = np.array(rng.standard_normal((n, 4)), order=order), rng.uniform(0.0, 2.0, n)
    close(np.tril(gram(V, W)), np.tril(V.T @ (W[:, None] * V)))


def test_the_values_of_its_coordinates():
    """u = R v stays where theta moves; of another prior f itself does."""
    toy, rng = Seen(), np.random.default_rng(3)
    prior, there = toy.prior(THETA), toy.prior(THETA - 0.4)
    v = rng.standard_normal(2)
    f, (R,) = prior.multiply(v), toy.roots(THETA)
    u = prior.values(f)
    close(u, R @ v)
    close(prior.with_values(u), f)
    close(there.values(there.with_values(u)), u)
    close(prior.log_density_of_values(f), multivariate_normal(np.zeros(2), R @ R.T).logpdf(u))
    assert prior.has_values
    counts = TOYS["counts"]()
    assert not counts.prior(counts.prior_mean).has_values


@pytest.mark.mutant
def test_values_held_without_their_volume_are_noticed(monkeypatch, dies):
    monkeypatch.setattr(InducingPrior, "log_density_of_values", InducingPrior.log_density)
    element = samplers.Theta("sufficient", samplers.Metropolis(scale=0.7))
    chain = started((element, moves.latent.EllipticalSlice()), Seen(), 3, 0)
    result = invariance_of(chain, replicates=400, steps=5)
    dies("inducing: values held without their volume", result.pvalue, below=1e-6)


def test_the_verbs_of_its_posterior():
    toy, rng = Seen(), np.random.default_rng(2)
    W = np.array([2.0, 0.0, 5.0, 0.0, 0.7])
    K, prior = toy.cov(THETA), toy.prior(THETA)
    posterior = prior.condition(W)
    B = np.eye(5) + np.diag(W) @ K
    Sigma = K @ np.linalg.inv(B)
    x, L = rng.standard_normal(5), prior.root
    close(posterior.log_determinant, np.linalg.slogdet(B)[1])
    close(posterior.alpha(x), np.linalg.solve(B, x))
    close(posterior.covariance_times(x), Sigma @ x)
    close(posterior.quad_form(x), x @ Sigma @ x)
    close(posterior.variances, np.diag(Sigma))
    close(posterior.one_minus_leverage, 1.0 - W * np.diag(Sigma))
    A = posterior.multiply(np.eye(2))
    close(A @ A.T, Sigma)
    d = L @ np.array([0.4, -1.0])
    close(posterior.multiply(posterior.solve(d)), d)
    close(posterior.inv_quad_form(d), np.array([0.4, -1.0]) @ np.array([0.4, -1.0]) + d @ (W * d))
    r = rng.standard_normal(5)
    B_of_data = np.eye(5) + np.sqrt(np.outer(W, W)) * K
    close(posterior.log_density_of_data(r), multivariate_normal.logpdf(r, np.zeros(5), B_of_data))


def test_where_it_has_no_number_there_is_none():
    nowhere = SimpleNamespace(maps=lambda theta: None)
    assert InducingPrior.at(nowhere, THETA) is None
    assert Seen().prior(THETA).condition(np.full(5, np.inf)) is None


# Kernels, as steps of a PyMC model make them, on the toy


def model():
    """What the toy is, in PyMC, with the variance of f given v beside it."""
    with pm.Model() as made:
        mu, ls = pm.Normal("mu", 1.2, 0.5), pm.LogNormal("ls", 0.0, 0.5)
        eta = pm.LogNormal("eta", -0.4, 0.4)
        cov = eta**2 * pm.gp.cov.Matern32(1, ls=ls)
        gp = lgm.gp.SparseLatent(mean_func=pm.gp.mean.Constant(mu), cov_func=cov)
        f = gp.prior("f", X[:, None], Xu=Z[:, None])
        lgm.LogGaussianCox("y", f=f, exposure=2.0, observed=[0, 3, 1])
    return made


REFUSED = ("hmc", "smmala", "nuts")


def is_refused(case):
    _, options = case
    return options.get("move") in REFUSED or options.get("metric") == "identity"


TAKEN = [case for case in CASES if not is_refused(case)]
FAST = (lgm.EllipticalSlice, {"repeats": 2})
SLOW = [*{sampler: (sampler, options) for sampler, options in TAKEN}.values()]
"""The last of each sampler: the others differ in what does not see of what f is made."""
LEVEL = 1e-3 / len(TAKEN)


@pytest.fixture(scope="module")
def twin():
    return model()


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{"move": "slice"}, {"importance": lgm.Importance(correlation=1.0)}]
)
def test_f_moves_where_one_importance_draw_is_held(options, twin):
    """That draw is f itself, and stays where it is as theta moves."""
    first, *_ = build(lgm.PseudoMarginal, twin, n_importance=1, **options).elements
    assert isinstance(first, samplers.LATENT_MOVES["hmc"])
    assert len(build(lgm.PseudoMarginal, twin, n_importance=2, **options).elements) == 1


def marks_of(case):
    """Fast, slow, or before a release."""
    if case == FAST:
        return []
    return [pytest.mark.slow] + [pytest.mark.whole] * (case not in SLOW)


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=marks_of(case)) for case in TAKEN], ids=label
)
def test_a_tuned_step_leaves_the_joint_law_unchanged(case, twin):
    sampler, options = case
    elements = build(sampler, twin, **options).elements
    chain = started(elements, Seen(), 3, 120 if sampler is lgm.PseudoMarginal else 20)
    for result in invariance_after((1, 5), chain, replicates=150):
        assert result.pvalue > LEVEL, result


@pytest.mark.slow
@pytest.mark.parametrize("case", [c for c in CASES if is_refused(c)], ids=label)
def test_what_needs_slopes_or_holds_f_is_refused(case, twin):
    sampler, options = case
    with pytest.raises(ValueError, match=r"Write|Choose"):
        build(sampler, twin, **options)


# The density of a PyMC model


def expected_log_density(at, theta):
    """log p(theta) N(v; 0, I) exp Σ E log p(y_i | f_i), by hand."""
    mu, ls, eta = theta[0], math.exp(theta[1]), math.exp(theta[2])
    R = np.linalg.cholesky(eta**2 * matern(abs(Z[:, None] - Z) / ls) + 1e-6 * np.eye(2))
    A = np.linalg.solve(R, eta**2 * matern(abs(Z[:, None] - X) / ls))
    mean, variance = mu + A.T @ at, eta**2 - (A**2).sum(axis=0)
    y = np.array([0, 3, 1])
    # E e^f = e^(mean + variance / 2)
    rate = 2.0 * np.exp(mean + 0.5 * variance)
    likelihood = y * (mean + math.log(2.0)) - rate - np.array([math.lgamma(k + 1) for k in y])
    return likelihood.sum() + norm.logpdf(at).sum()


def log_prior(theta):
    return norm.logpdf(theta, [1.2, 0.0, -0.4], [0.5, 0.5, 0.4]).sum()


def test_its_density_is_that_of_the_bound(twin):
    logp, rng = twin.compile_logp(), np.random.default_rng(5)
    ours = lgm.read(twin)
    assert "2 inducing variables: samples the optimal variational posterior" in repr(ours)
    points = [(rng.standard_normal(3), rng.standard_normal(2)) for _ in range(3)]
    # To and fro: what is kept of a theta is that of this theta.
    for theta, v in [*points, points[0], points[2], points[0]]:
        point = {"mu": theta[0], "ls_log__": theta[1], "eta_log__": theta[2], "f_u_rotated_": v}
        right = expected_log_density(v, theta) + log_prior(theta)
        assert logp(point) == pytest.approx(right, rel=1e-9)
        f = ours.f_of(theta, point)
        total = ours.log_likelihood(f, theta) + ours.prior(theta).log_density(f)
        assert total + ours.log_prior(theta) == pytest.approx(right, rel=1e-9)
        np.testing.assert_array_equal(ours.latents_of(rng, None, f)["f_u_rotated_"], v)


@pytest.mark.mutant
@pytest.mark.parametrize("stale", ["V", "densities"])
def test_what_is_kept_of_another_theta_is_noticed(twin, stale, monkeypatch, dies):
    """V, or the densities' part of theta, stays what it was at the first theta."""
    ours, v = lgm.read(twin), np.array([0.4, -1.0])
    inducing = ours.form.at_theta
    if stale == "V":
        maps = inducing.maps(np.zeros(3))
        monkeypatch.setattr(inducing, "maps", lambda theta: maps)
    else:
        monkeypatch.setattr(inducing, "place", lambda theta: None)
    f = ours.f_of(THETA, {"f_u_rotated_": v})
    right = expected_log_density(v, THETA) - norm.logpdf(v).sum()
    dies(
        f"inducing: {stale} of another theta", abs(ours.log_likelihood(f, THETA) - right), above=0.1
    )


def test_with_all_points_it_is_the_process_itself():
    """Z = X: the density of a `pymc.gp.Latent`, up to what jitter leaves of a variance."""

    def made(process, **options):
        with pm.Model() as model:
            eta = pm.LogNormal("eta", 0.0, 0.4)
            gp = process(cov_func=eta**2 * pm.gp.cov.Matern32(1, ls=0.7))
            f = gp.prior("f", X[:, None], **options)
            lgm.Probit("y", f=f, observed=[0, 1, 1])
        return model.compile_logp()

    sparse = made(lgm.gp.SparseLatent, Xu=X[:, None])
    dense = made(pm.gp.Latent)
    for v in np.random.default_rng(6).standard_normal((3, 3)):
        one = sparse({"eta_log__": 0.3, "f_u_rotated_": v})
        assert one == pytest.approx(dense({"eta_log__": 0.3, "f_rotated_": v}), abs=1e-4)


class OfDistanceToTheMean(pm.gp.cov.Covariance):
    """No function of two points: a row reads all inputs."""

    def full(self, X, Xs=None):
        X = pt.as_tensor(X)
        Xs = X if Xs is None else pt.as_tensor(Xs)
        return 1.0 + pt.outer(X[:, 0] - pt.mean(X), Xs[:, 0] - pt.mean(Xs))

    def diag(self, X):
        return pt.diag(self.full(X))


@pytest.mark.slow
@pytest.mark.parametrize("parts", [True, False])
def test_rows_of_V_are_made_in_parts(parts, monkeypatch):
    """Where a row reads its own inputs: the others are made together."""
    monkeypatch.setattr(rows, "ELEMENTS", 14)
    inputs, Xu = np.linspace(0.0, 2.0, 30)[:, None], Z[:, None]
    asked, call = [], rows._Rows.__call__
    with pm.Model() as model:
        eta = pm.LogNormal("eta", -0.4, 0.4)
        cov = pm.gp.cov.Matern32(1, ls=0.8) if parts else OfDistanceToTheMean(1)
        f = lgm.gp.SparseLatent(cov_func=eta**2 * cov).prior("f", inputs, Xu=Xu)
        lgm.Probit("y", f=f, observed=np.arange(30) % 2)
    ours = lgm.read(model, compile_kwargs=QUICK)
    monkeypatch.setattr(
        rows._Rows, "__call__", lambda self, *at: asked.append(at[1:]) or call(self, *at)
    )
    (V,) = ours.form.at_theta.maps(np.array([0.3]))
    assert asked == ([(k, min(k + 7, 30)) for k in range(0, 30, 7)] if parts else [(0, 30)])
    K_uu, K_uf = (np.exp(0.6) * cov(*at).eval() for at in ((Xu,), (Xu, inputs)))
    R = np.linalg.cholesky(K_uu + 1e-6 * np.eye(2))
    np.testing.assert_allclose(V, np.linalg.solve(R, K_uf).T, rtol=1e-9)


def test_what_densities_read_of_theta_is_made_of_the_V_that_is_known(monkeypatch, twin):
    """It would be made twice, for the prior and for the variance of f given v."""
    solved = []

    def compiled(setting, inputs, outputs):
        of = outputs if isinstance(outputs, list) else [outputs]
        names = [str(x.owner.op) for x in ancestors(of) if x.owner is not None]
        solved.append(sum("SolveTriangular" in name for name in names))
        return kept(inputs, outputs)

    made = rows.maps_by_rows

    def watched(setting, *args):
        nonlocal kept
        kept = setting.compiled
        return made(replace(setting, compiled=partial(compiled, setting)), *args)

    kept = None
    monkeypatch.setattr(inducing_form, "maps_by_rows", watched)
    lgm.read(twin, compile_kwargs=QUICK)
    assert solved == [0, 0, 0]


# With all points as inducing points and normal noise its posterior given eta is known


NOISE = 0.3


def all_points():
    """Twenty inputs, observations with noise, and the sparse model of them with Z = X."""
    rng = np.random.default_rng(11)
    inputs = np.sort(rng.uniform(0.0, 5.0, 20))
    y = 1.5 * np.sin(2.0 * inputs) + NOISE * rng.standard_normal(20)
    with pm.Model() as made:
        eta = pm.LogNormal("eta", 0.0, 0.5)
        gp = lgm.gp.SparseLatent(cov_func=eta**2 * pm.gp.cov.Matern32(1, ls=1.0))
        f = gp.prior("f", inputs[:, None], Xu=inputs[:, None])
        lgm.gp.Expected("y", lambda f: pm.Normal.dist(f, NOISE), f, observed=y)
    return inputs, y, made


def dense(inputs, y, log_eta):
    """log p(y | eta), and mean and variance of f: those of the process itself."""
    K = np.exp(2.0 * log_eta) * matern(abs(inputs[:, None] - inputs))
    S = K + NOISE**2 * np.eye(20)
    gain = np.linalg.solve(S, K).T
    variance = np.diag(K - gain @ K)
    return multivariate_normal(np.zeros(20), S).logpdf(y), gain @ y, variance


@pytest.mark.slow
def test_with_all_points_each_theta_has_the_evidence_and_f_of_the_process():
    inputs, y, made = all_points()
    ours = lgm.read(made)
    for log_eta in (-1.0, 0.2, 1.2):
        right, mean, variance = dense(inputs, y, log_eta)
        at = AtTheta.of(ours, np.array([log_eta]))
        q = laplace(at.likelihood, at.prior)
        assert q.log_evidence == pytest.approx(right, abs=1e-3)
        np.testing.assert_allclose(q.center[:20], mean, atol=1e-4)
        np.testing.assert_allclose(q.posterior.variances[:20], variance, rtol=1e-3)


@pytest.mark.whole
@chains
def test_nuts_draws_from_the_same_posterior(fitted):
    """The model is an ordinary one of PyMC: its NUTS and the default agree."""
    functions = [("eta", np.log), ("eta", lambda x: np.log(x) ** 2), ("f_u", np.asarray)]
    assert gap_to_nuts(fitted[0], [*functions, ("f_u", np.square)]) < 4.0


@pytest.mark.slow
def test_a_variable_of_another_step_moves_what_is_kept():
    with pm.Model() as model:
        eta, scale = pm.HalfNormal("eta"), pm.HalfNormal("scale")
        gp = lgm.gp.SparseLatent(cov_func=eta**2 * pm.gp.cov.Matern32(1, ls=0.5))
        f = gp.prior("f", X[:, None], Xu=Z[:, None])
        y = np.array([0.3, -1.0, 2.0])
        lgm.gp.Expected("y", lambda f, s: pm.Normal.dist(f, s), f, scale, observed=y)
    ours = LatentGaussianModel.from_pymc(model, theta=[scale])
    logp, v = model.compile_logp(), np.array([0.4, -1.0])
    for eta_log in (0.0, 0.8, 0.0):
        point = {"eta_log__": eta_log, "scale_log__": 0.2, "f_u_rotated_": v}
        ours.read(point)
        theta = ours.theta_of(point)
        f = ours.f_of(theta, point)
        total = ours.log_likelihood(f, theta) + ours.prior(theta).log_density(f)
        prior = norm.logpdf(math.exp(eta_log)) + math.log(2.0) + eta_log
        whole = total + ours.log_prior(theta) + prior
        assert whole == pytest.approx(logp(point), rel=1e-9)


@pytest.mark.fast("Probit")
@pytest.mark.parametrize("name", ["Probit", "Logistic", "OrdinalProbit", "CopulaVolatility"])
def test_every_likelihood_reads_a_projected_f(name):
    observed = {"OrdinalProbit": [0, 2, 1], "CopulaVolatility": [0.1, -2.0, 0.4]}
    options = {"cutpoints": [-1.0, 1.0]} if name == "OrdinalProbit" else {}
    likelihood, y = getattr(lgm.likelihoods, name), observed.get(name, [0, 1, 1])
    f = lgm.gp.Projected(np.array([0.3, -1.0, 0.5]), np.array([0.2, 0.5, 1e-10]))
    with pm.Model() as model:
        likelihood("y", f=f, observed=y, **options)
    x, w = np.polynomial.hermite_e.hermegauss(60)
    rows = f.mean + x[:, None] * np.sqrt(f.variance)
    plain = pm.logp(likelihood.dist(f=rows, **options), np.array(y)).eval()
    assert model.compile_logp()({}) == pytest.approx((w / w.sum() @ plain).sum(), rel=1e-5)
    with model:
        drawn = pm.sample_prior_predictive(500, random_seed=1)
    assert drawn.prior_predictive["y"].shape == (1, 500, 3)


@pytest.mark.slow
def test_what_another_step_owns_is_read_where_theta_hides_it(twin):
    """The amplitude is beside theta in V, and in the variance that is kept of a theta."""
    ours = LatentGaussianModel.from_pymc(twin, theta=[twin["mu"], twin["ls"]])
    assert ours.other_names == ("eta_log__",)
    v, theta = np.array([0.4, -1.0]), np.array([1.0, 0.2])
    for eta_log in (-0.4, 0.5, -0.4):
        point = {"eta_log__": np.array(eta_log), "f_u_rotated_": v}
        cov_moved, moved = ours.read(point)
        assert cov_moved
        assert moved
        f = ours.f_of(theta, point)
        right = expected_log_density(v, np.array([*theta, eta_log])) - norm.logpdf(v).sum()
        assert ours.log_likelihood(f, theta) == pytest.approx(right, rel=1e-9)


def test_it_can_be_indexed_and_moved():
    f = lgm.gp.Projected(np.array([0.3, -1.0]), np.array([0.2, 0.5]))
    moved = 2.0 + f[np.array([1, 1, 0])] + np.array([0.0, 1.0, 0.0])
    np.testing.assert_allclose(moved.mean, [1.0, 2.0, 2.3])
    np.testing.assert_allclose(moved.variance, [0.5, 0.5, 0.2])
    for left in (np.array([1.0, 2.0]), pt.constant([1.0, 2.0])):
        sums = pm.math.stack([(left + f).mean, (f + left).mean]).eval()
        np.testing.assert_allclose(sums, [[1.3, 1.0]] * 2)


# From the first line to predictions


@pytest.fixture(scope="module")
def fitted():
    """A chain that is interpreted: Numba compiles this likelihood, a quadrature, for a minute."""
    rng = np.random.default_rng(7)
    inputs = np.sort(rng.uniform(0, 6, 60))[:, None]
    y = (np.sin(inputs[:, 0]) + 0.5 * rng.standard_normal(60) > 0).astype(int)
    with pm.Model() as model:
        eta = pm.HalfNormal("eta", 2.0)
        gp = lgm.gp.SparseLatent(cov_func=eta**2 * pm.gp.cov.Matern32(1, ls=1.0))
        f = gp.prior("f", inputs, Xu=np.linspace(0, 6, 8)[:, None])
        lgm.Probit("y", f=f, observed=y)
        idata = pm.sample(
            300, tune=200, chains=1, cores=1, random_seed=1, progressbar=False,
            compute_convergence_checks=False,
        )  # fmt: skip
    return model, gp, idata


@pytest.mark.slow
def test_the_default_takes_it(fitted):
    _, _, idata = fitted
    assert idata.posterior["f_u"].shape == (1, 300, 8)
    assert "log_evidence" in idata.sample_stats
    assert (idata.sample_stats["n_importance"] <= 16).all()


@pytest.mark.slow
def test_a_trace_says_of_which_posterior_it_is(fitted):
    """Whatever sampler has made it; of a model that is exact there is no such statistic."""
    model, _, idata = fitted
    label = idata.sample_stats["optimal_variational"]
    assert label.dtype == bool
    assert label.all()
    assert "optimal variational posterior, not of p(f, theta | y)" in " ".join(
        str(lgm.report(idata)).split()
    )
    for sampler in (lgm.EllipticalSlice, lgm.ASIS):
        assert build(sampler, model).stats_dtypes_shapes["optimal_variational"] == (bool, [])
    assert "optimal_variational" not in build(lgm.ASIS, "probit").stats_dtypes_shapes
    with pm.Model() as features:
        gp = lgm.papers.RandomFeatures(4, cov_func=pm.gp.cov.ExpQuad(1, ls=1.0))
        lgm.Probit("y", f=gp.prior("f", X[:, None]), observed=[0, 1, 1])
    assert "optimal_variational" not in build(lgm.EllipticalSlice, features).stats_dtypes_shapes


@pytest.mark.slow
def test_prediction_is_that_of_the_conditional(fitted):
    model, gp, idata = fitted
    points = np.array([[1.5], [4.7], [40.0]])
    tree = lgm.predict(idata, gp, points, model=model, progressbar=False)["predictions"]
    probability = tree["y_probability"].values
    assert probability[0] > 0.8
    assert probability[1] < 0.2
    assert probability[2] == pytest.approx(0.5, abs=1e-3)  # far from all data
    assert set(tree) >= {"f_mean", "f_variance", "y_mean"}
    with model:
        gp.conditional("f_new", points, jitter=1e-6)
        drawn = pm.sample_posterior_predictive(
            idata, var_names=["f_new"], random_seed=2, progressbar=False
        ).posterior_predictive["f_new"]
    se = np.sqrt(tree["f_variance"].values / drawn.shape[1])
    difference = drawn.mean(("chain", "draw")).values - tree["f_mean"].values
    assert (abs(difference) < 5.0 * se).all()


LARGE = """
import sys
import arviz as az, numpy as np, pymc as pm, pymc_lgm as lgm

n, m, draws = map(int, sys.argv[1:])
rng = np.random.default_rng(0)
X, Xu = rng.uniform(size=(n, 2)), rng.uniform(size=(m, 2))
with pm.Model() as model:
    ls, eta = pm.LogNormal("ls", -1.0, 0.5), pm.HalfNormal("eta", 3.0)
    gp = lgm.gp.SparseLatent(cov_func=eta**2 * pm.gp.cov.Matern52(2, ls=ls))
    lgm.Probit("y", f=gp.prior("f", X, Xu=Xu), observed=(X[:, 0] > X[:, 1]).astype(int))
    posterior = {name: np.exp(0.1 * rng.standard_normal((1, draws))) for name in ("ls", "eta")}
    posterior["f_u"] = rng.standard_normal((1, draws, m))
    tree = lgm.predict(az.from_dict({"posterior": posterior}), gp, X, progressbar=False)
assert tree["predictions"]["f_conditional_mean"].shape == (1, draws, n)
(peak,) = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")]
print(int(peak) / 2**20)
"""


def peak(n, m, draws):
    """GiB that a process needs at most that predicts at n points, by draws of different theta."""
    script = [sys.executable, "-c", LARGE, *map(str, (n, m, draws))]
    done = subprocess.run(script, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr
    return float(done.stdout)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="The peak is read from /proc.")
def test_fifty_thousand_points_are_predicted_in_less_than_three_gibibytes():
    """By 500 inducing points and 500 draws: what a draw takes with its V, and what all of them do.

    The process itself, 0.27 GiB, is counted twice.
    """
    assert peak(50_000, 500, 3) + peak(50_000, 10, 500) < 3.0


# What is refused


def sparse(inputs=X[:, None], points=Z[:, None], **options):
    gp = lgm.gp.SparseLatent(cov_func=pm.gp.cov.Matern32(1, ls=0.5))
    return gp.prior("f", inputs, Xu=points, **options)


def test_points_that_cannot_be_are_refused():
    for options, message in [
        ({"points": None}, "kmeans_inducing_points"),
        ({"points": np.linspace(0, 1, 4)[:, None]}, "must not have more"),
        ({"points": np.zeros((2, 2))}, "equal columns"),
        ({"points": Z}, "one row per point"),
        ({"points": np.array([[0.0], [np.nan]])}, "not finite"),
    ]:
        with pm.Model(), pytest.raises(ValueError, match=message):
            sparse(**options)


@pytest.mark.slow
def test_repeated_points_are_taken_as_far_as_jitter_goes():
    with pm.Model() as model:
        lgm.Probit("y", f=sparse(points=np.array([[0.2], [0.2]])), observed=[0, 1, 1])
    assert np.isfinite(model.compile_logp()(model.initial_point()))
    lgm.read(model)
    with pm.Model() as model:
        lgm.Probit("y", f=sparse(points=np.array([[0.2], [0.2]]), jitter=-1e-3), observed=[0, 1, 1])
    with pytest.raises(ValueError, match=r"inducing points .* not positive definite"):
        lgm.read(model)


def test_a_likelihood_that_takes_a_number_refuses_it():
    with pm.Model():
        f = sparse()
        with pytest.raises(TypeError, match=r"lgm.gp.Expected"):
            pm.Poisson("y", pm.math.exp(f), observed=[0, 3, 1])
        with pytest.raises(TypeError, match="SparseLatent returned"):
            lgm.gp.Expected("y", pm.Poisson.dist, 1.0, observed=[0, 3, 1])


def test_missing_observations_are_refused():
    """exp E log p does not sum to one over them."""
    for y in ([0.0, np.nan, 1.0], np.ma.MaskedArray([0, 1, 1], [False, True, False])):
        with pm.Model(), pytest.raises(ValueError, match="missing values"):
            lgm.Probit("y", f=sparse(), observed=y)


@pytest.mark.slow
def test_one_draw_and_no_theta_still_move_f():
    with pm.Model() as model:
        lgm.Probit("y", f=sparse(), observed=[0, 1, 1])
    step = build(lgm.PseudoMarginal, model, n_importance=1)
    assert len(step.elements) == 2


def test_a_process_beside_it_is_refused():
    with pm.Model() as model:
        f = sparse()
        g = pm.MvNormal("g", np.zeros(3), np.eye(3))
        lgm.Probit("y", f=f + g, observed=[0, 1, 1])
    with pytest.raises(ValueError, match="cannot be combined"):
        lgm.read(model)


def test_a_density_of_the_inducing_variables_themselves_is_refused():
    with pm.Model() as model:
        f = sparse()
        pm.Potential("p", -(model["f_u_rotated_"] ** 2).sum())
        lgm.Probit("y", f=f, observed=[0, 1, 1])
    with pytest.raises(ValueError, match="themselves"):
        lgm.read(model)


@pytest.mark.slow
def test_coefficients_beside_it_are_hyperparameters():
    with pm.Model() as model:
        beta = pm.Normal("beta")
        lgm.Probit("y", f=sparse() + beta * X, observed=[0, 1, 1])
    assert lgm.read(model).theta_names == ("beta",)


@pytest.mark.mutant
def test_a_forgotten_variance_is_noticed(monkeypatch, dies):
    """A likelihood of the mean alone is that of another, overconfident model."""
    kept = lgm.gp.Projected.__init__
    monkeypatch.setattr(
        lgm.gp.Projected,
        "__init__",
        lambda self, m, v: kept(self, m, 1e-10 * v),
    )
    theta, v = np.array([1.0, 0.2, -0.4]), np.array([0.4, -1.0])
    point = {"mu": theta[0], "ls_log__": theta[1], "eta_log__": theta[2], "f_u_rotated_": v}
    right = expected_log_density(v, theta) + log_prior(theta)
    dies("inducing: without the variance", abs(model().compile_logp()(point) - right), above=0.1)
