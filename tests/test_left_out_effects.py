"""Groups with latent variables of their own are left out by integrals over these."""

import arviz as az
import numpy as np
import pymc as pm
import pytest

from scipy.special import logsumexp
from scipy.stats import multivariate_normal, norm, poisson
from test_loo import densities_without, faked

import pymc_lgm as lgm

from pymc_lgm import cross_validation
from pymc_lgm.approximations import left_out_effects as module
from pymc_lgm.approximations.left_out_effects import OwnElements
from pymc_lgm.model import LatentGaussianModel

pytestmark = pytest.mark.usefixtures("interpreted", "without_closed_form")


@pytest.fixture
def without_closed_form(monkeypatch):
    """Integrate with normal noise, too, which then shows the error of the integrals."""
    monkeypatch.setattr(LatentGaussianModel, "is_quadratic", False)


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


def test_effects_of_the_mean_and_of_the_scale_are_integrated_out():
    with pm.Model() as model:
        level = pm.Normal("level")
        a, b = (pm.Normal(name, 0, SCALES[name], shape=3) for name in "ab")
        pm.Normal("y", level + a[G], pm.math.exp(b[G]), observed=Y)
    idata = faked(model)
    found = left_out(model, idata)[0, 0]
    level = float(idata["posterior"]["level"].values[0, 0])
    a, b = np.linspace(-6, 6, 241)[:, None, None], np.linspace(-4, 4, 161)[:, None]
    ell = norm.logpdf(Y, level + a, np.exp(b))
    prior = (norm.logpdf(a, scale=0.9) + norm.logpdf(b, scale=0.6))[..., 0]
    terms = [ell[..., g == G].sum(axis=-1) + prior for g in range(3)]
    exact = [logsumexp(each) + np.log(0.05**2) for each in terms]  # cells of 0.05 by 0.05
    np.testing.assert_allclose(found, exact, atol=3e-3)


def test_many_elements_are_sampled_to_an_error_that_is_given(monkeypatch):
    """With the rule's own case, and bounds below which neither error may be."""
    model = counts()
    idata = faked(model)
    exact = left_out(model, idata)[0, 0]
    monkeypatch.setattr(module, "PER_AXIS", {})
    found = left_out(model, idata)[0, 0]
    assert 1e-9 < np.abs(found - exact).max() < 5.0 * module.ERROR


def test_sampled_integrals_that_are_not_found_are_refused(monkeypatch):
    def far_away(self, likelihood):
        self._center = self._center + 8.0

    model = counts()
    monkeypatch.setattr(module, "PER_AXIS", {})
    monkeypatch.setattr(module._Integrals, "center_by", far_away)
    with pytest.raises(ValueError, match="its integral was not found"):
        left_out(model, faked(model))


def walks():
    first = pm.Normal.dist(0, 1)
    return pm.GaussianRandomWalk("x", sigma=0.5, init_dist=first, shape=(3, 6)).ravel()


def error_of_series():
    """With normal noise the proposal is the integrand, and there is no error."""
    y, of_walk = np.random.default_rng(3).standard_normal(18), np.repeat(range(3), 6)
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("level") + walks(), pm.HalfNormal("sd"), observed=y)
    idata = faked(model)
    found = left_out(model, idata, of_walk)[0, 0]
    level, sd = (float(idata["posterior"][name].values[0, 0]) for name in ("level", "sd"))
    K = 1.0 + 0.25 * np.minimum.outer(np.arange(6), np.arange(6)) + sd**2 * np.eye(6)
    exact = [multivariate_normal.logpdf(each, cov=K) for each in (y - level).reshape(3, 6)]
    return np.abs(found - exact).max()


def test_a_series_of_each_group_is_integrated_out():
    assert error_of_series() < 1e-6


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
    "one for each observation": (lambda: pm.Normal("a", shape=G.size), 4),
    "observed elsewhere": (two_variables, None),
}


def patterns(make):
    """The layout of a sum, the element of eta that each observation reads, and which are y's."""
    with pm.Model() as model:
        pm.Poisson("y", pm.math.exp(pm.Normal("level") + make()), observed=COUNTS)
    read = lgm.model.LatentGaussianModel.from_pymc(model, integrates=False, as_sum=True)
    layout, reads = read.form.layout, read.element_reads - read.form.layout.N
    return layout, reads, np.arange(len(reads) - G.size, len(reads))


@pytest.mark.parametrize("name", MODELS)
def test_they_are_read_by_one_group_and_independent_of_all_else(name):
    make, d = MODELS[name]
    found = OwnElements.of(*patterns(make), G)
    assert (None if found is None else found.at.shape[1]) == d


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


@pytest.mark.mutant
def test_sampled_integrals_without_their_root_are_noticed(monkeypatch, dies):
    def without_root(self, rng):
        return sampled(self, rng) - np.log(np.einsum("gii->gi", self._root)).sum(axis=1)

    sampled = module._Integrals.sampled_log_density
    monkeypatch.setattr(module._Integrals, "sampled_log_density", without_root)
    dies("loo: sampled groups without their root", error_of_series(), above=1e-3)
