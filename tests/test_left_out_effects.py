"""Groups with latent variables of their own are left out by integrals over these."""

from dataclasses import replace

import arviz as az
import numpy as np
import pymc as pm
import pytest

from scipy.sparse import csr_array
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, norm, poisson
from test_loo import densities_without, faked

import pymc_lgm as lgm

from pymc_lgm import cross_validation
from pymc_lgm.approximations import left_out_effects as module
from pymc_lgm.approximations.left_out_effects import LocalLines, OwnElements

pytestmark = pytest.mark.usefixtures("interpreted")

G = np.array([0, 0, 0, 1, 1, 2, 2, 2, 2])
RNG = np.random.default_rng(0)
X = np.where(G == 1, 0.0, RNG.standard_normal(G.size))
"""The second group does not read its slope, which is then none of its own elements."""
Y = RNG.standard_normal(G.size)
COUNTS = RNG.poisson(2.0, G.size)
SCALES = {"a": 0.9, "b": 0.6, "c": 0.4}


def effects(names="ab"):
    """An intercept, a slope and a curvature per group, with known scales."""
    powers = {"a": X**0, "b": X, "c": X**2}
    return sum(pm.Normal(name, 0, SCALES[name], shape=3)[G] * powers[name] for name in names)


def normal(names="ab"):
    with pm.Model() as model:
        level, sd = pm.Normal("level"), pm.HalfNormal("sd")
        pm.Normal("y", level + effects(names), sd, observed=Y)
    return model


def left_out(model, idata, groups=G):
    tree = lgm.leave_one_out(idata, model, groups=groups, progressbar=False)
    return tree["log_likelihood"]["y"].values


def covariance(names):
    K = sum(SCALES[name] ** 2 * np.outer(X**k, X**k) for k, name in enumerate("abc"[: len(names)]))
    return np.where(G[:, None] == G, K, 0.0)


def error_for_normal_noise(monkeypatch, names):
    """Largest error of log p(y_g | level, sd), of which a normal model has a closed form."""
    monkeypatch.setattr(cross_validation, "MANY_GROUPS", 0)
    model = normal(names)
    idata = faked(model)
    found = left_out(model, idata)
    errors = []
    for i in range(2):
        level, sd = (float(idata["posterior"][name].values[0, i]) for name in ("level", "sd"))
        K = covariance(names) + sd**2 * np.eye(G.size)
        for g in range(3):
            of_g = np.flatnonzero(g == G)
            exact = multivariate_normal.logpdf(Y[of_g] - level, cov=K[np.ix_(of_g, of_g)])
            errors.append(abs(found[0, i, g] - exact))
    return max(errors)


@pytest.mark.parametrize("names", ["a", "ab", "abc"])
def test_they_are_integrated_out_exactly(monkeypatch, names):
    assert error_for_normal_noise(monkeypatch, names) < 1e-6


def counts(names="ab"):
    with pm.Model() as model:
        level = pm.Normal("level")
        pm.Poisson("y", pm.math.exp(level + effects(names)), observed=COUNTS)
    return model


def on_a_grid(level):
    """Log densities of all counts, and of the effects, at the points of a grid of them."""
    a, b = np.linspace(-6, 6, 241)[:, None, None], np.linspace(-4, 4, 161)[:, None]
    ell = poisson.logpmf(COUNTS, np.exp(level + a + b * X))
    return ell, (norm.logpdf(a, scale=0.9) + norm.logpdf(b, scale=0.6))[..., 0]


def test_counts_are_integrated_as_on_a_fine_grid():
    model = counts()
    idata = faked(model)
    found = left_out(model, idata)[0, 0]
    ell, prior = on_a_grid(float(idata["posterior"]["level"].values[0, 0]))
    terms = [ell[..., g == G].sum(axis=-1) + prior for g in range(3)]
    exact = [logsumexp(each) + np.log(0.05**2) for each in terms]  # cells of 0.05 by 0.05
    np.testing.assert_allclose(found, exact, atol=2e-4)


def test_weights_take_the_posterior_to_that_without_a_group():
    """1 / p(y_g | y_-g) is the mean of 1 / p(y_g | r) under the posterior."""
    with pm.Model() as model:
        level = pm.Normal("level")
        pm.Normal("y", level + effects(), 0.5, observed=Y)
    A = np.column_stack(
        [np.ones(G.size), G[:, None] == range(3), (G[:, None] == range(3)) * X[:, None]]
    )
    P = A.T @ A / 0.25 + np.diag(1.0 / np.repeat([1.0, 0.9, 0.6], [1, 3, 3]) ** 2)
    cov = np.linalg.inv(P)
    x = np.random.default_rng(1).multivariate_normal(cov @ A.T @ Y / 0.25, cov, (1, 400))
    draws = {"level": x[..., 0], "a": x[..., 1:4], "b": x[..., 4:]}
    found = left_out(model, az.from_dict({"posterior": draws}))[0]
    K = 1.0 + covariance("ab") + 0.25 * np.eye(G.size)
    inverse = np.exp(-found)
    errors = inverse.std(axis=0) / inverse.mean(axis=0) / np.sqrt(len(found))
    away = np.log(len(found)) - logsumexp(-found, axis=0) - densities_without(K, Y, G)
    assert np.abs(away / errors).max() < 5.0


def two_variables():
    a = pm.Normal("a", shape=3)
    pm.Poisson("z", pm.math.exp(a[0]), observed=1)
    return a[G]


MODELS = {
    "alone": (lambda: pm.Normal("a", shape=3)[G], 1),
    "two": (effects, 2),
    "three": (lambda: effects("abc"), 3),
    "correlated": (lambda: pm.MvNormal("a", np.zeros(2), np.eye(2) + 0.5, shape=(3, 2))[G, 1], 2),
    "a sum of zero": (lambda: pm.ZeroSumNormal("a", shape=3)[G], None),
    "a walk": (lambda: pm.GaussianRandomWalk("a", init_dist=pm.Normal.dist(), steps=2)[G], None),
    "shared": (lambda: pm.Normal("a", shape=2)[(G > 1).astype(int)], None),
    "one for each observation": (lambda: pm.Normal("a", shape=G.size), None),
    "observed elsewhere": (two_variables, None),
}


def patterns(make):
    """The layout of a sum, the element of eta that each observation reads, and which are y's."""
    with pm.Model() as model:
        pm.Poisson("y", pm.math.exp(pm.Normal("level") + make()), observed=COUNTS)
    read = lgm.model.LatentGaussianModel.from_pymc(model, integrates=False, as_sum=True)
    layout, reads = read.form.layout, read.element_sites - read.form.layout.N
    return layout, reads, np.arange(reads.size - G.size, reads.size)


@pytest.mark.parametrize("name", MODELS)
def test_they_are_read_by_one_group_and_independent_of_all_else(name):
    make, d = MODELS[name]
    found = OwnElements.of(*patterns(make), G)
    assert (None if found is None else found.at.shape[1]) == d


# One observation at a time


def error_of_lines(monkeypatch, names):
    """Largest error of log p(y_k | y of its group, level, sd); a group without a slope has none."""
    monkeypatch.setattr(module, "SHARE", 0.0)
    monkeypatch.setattr("pymc_lgm.model.forms.sum._is_cheaper", lambda *sizes: True)
    model = normal(names)
    idata = faked(model)
    found = left_out(model, idata, None)
    errors = []
    for i in range(2):
        level, sd = (float(idata["posterior"][name].values[0, i]) for name in ("level", "sd"))
        P = np.linalg.inv(covariance(names) + sd**2 * np.eye(G.size))
        away, scale = P @ (Y - level) / P.diagonal(), P.diagonal() ** -0.5
        errors.append(np.abs(found[0, i] - norm.logpdf(away, scale=scale)).max())
    return max(errors)


def test_an_observation_is_left_out_along_the_effect_of_its_group(monkeypatch):
    assert error_of_lines(monkeypatch, "a") < 2e-4


def test_a_count_is_left_out_as_on_a_fine_grid(monkeypatch):
    monkeypatch.setattr(module, "SHARE", 0.0)
    monkeypatch.setattr("pymc_lgm.model.forms.sum._is_cheaper", lambda *sizes: True)
    model = counts("a")
    idata = faked(model)
    found = left_out(model, idata, None)[0, 0]
    a = np.linspace(-6, 6, 2401)
    eta = float(idata["posterior"]["level"].values[0, 0]) + a[:, None]
    ell, prior = poisson.logpmf(COUNTS, np.exp(eta)), norm.logpdf(a, scale=0.9)[:, None]
    whole = np.stack([ell[:, g == G].sum(axis=1) for g in G], axis=1) + prior
    np.testing.assert_allclose(found, logsumexp(whole, 0) - logsumexp(whole - ell, 0), atol=2e-4)


def test_replicated_data_are_those_without_the_observation(monkeypatch):
    monkeypatch.setattr(module, "SHARE", 0.0)
    monkeypatch.setattr("pymc_lgm.model.forms.sum._is_cheaper", lambda *sizes: True)
    draws = 300
    once = faked(normal("a"), 1)["posterior"].to_dataset()
    many = {k: np.repeat(v.values, draws, axis=1) for k, v in once.items()}
    idata = az.from_dict({"posterior": many})
    tree = lgm.leave_one_out(idata, normal("a"), random_seed=1, progressbar=False)
    y = tree["posterior_predictive"]["y"].values[0]
    level, sd = (float(once[name].values[0, 0]) for name in ("level", "sd"))
    P = np.linalg.inv(covariance("a") + sd**2 * np.eye(G.size))
    mean, scale = Y - P @ (Y - level) / P.diagonal(), P.diagonal() ** -0.5
    assert np.abs((y.mean(axis=0) - mean) / scale).max() < 5.0 / np.sqrt(draws)
    assert np.abs(y.std(axis=0) / scale - 1.0).max() < 5.0 / np.sqrt(2.0 * draws)


@pytest.mark.parametrize("name", MODELS)
def test_lines_share_rows_if_no_observation_reads_two_of_them(name):
    make, _ = MODELS[name]
    layout, reads, which = patterns(make)
    local = LocalLines.of(layout, reads, which)
    assert (local is None) == (name in ("a sum of zero", "a walk", "shared"))
    if local is None:
        return
    assert np.array_equal(np.sort(np.concatenate(local.batches)), np.arange(G.size))
    readers = local.others.toarray()
    readers[np.arange(G.size), which] += 1.0
    assert all((readers[batch].sum(axis=0) <= 1.0).all() for batch in local.batches)


@pytest.mark.mutant
def test_lines_that_keep_their_own_observation_are_noticed(monkeypatch, dies):
    def of(layout, reads, which):
        local = find(layout, reads, which)
        own = csr_array((np.ones(which.size), (np.arange(which.size), which)), local.others.shape)
        return replace(local, others=csr_array(local.others + own))

    find = LocalLines.of
    monkeypatch.setattr(LocalLines, "of", of)
    dies("loo: a line with its own observation", error_of_lines(monkeypatch, "a"), above=1e-2)


@pytest.mark.mutant
def test_effects_without_their_prior_are_noticed(monkeypatch, dies):
    def flat(self):
        self._Q = 1e-3 * self._Q
        return log_density(self)

    log_density = module._Integrals.log_density
    monkeypatch.setattr(module._Integrals, "log_density", flat)
    error = error_for_normal_noise(monkeypatch, "ab")
    dies("loo: effects with another prior", error, above=1e-3)


@pytest.mark.mutant
def test_effects_that_do_not_move_are_noticed(monkeypatch, dies):
    def at_the_center(self, u):
        return given(self, 0.0 * u + self._center)

    given = module._Integrals._given
    monkeypatch.setattr(module._Integrals, "_given", at_the_center)
    error = error_for_normal_noise(monkeypatch, "ab")
    dies("loo: effects that do not move", error, above=1e-3)
