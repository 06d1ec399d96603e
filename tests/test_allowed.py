"""Parameters that a density does not allow: of one row of f, and of one element."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from models import QUICK
from scipy import stats

import pymc_lgm as lgm

from pymc_lgm.model import allowed

N = 6
Y = np.array([1, 0, 3, 2, 0, 1])
K = np.exp(-(np.subtract.outer(np.arange(N), np.arange(N)) ** 2) / 4.0)
FINE = np.array([0.3, -0.2, 0.5, 0.1, -0.4, 0.2])


def counts(f, alpha):
    """A rate that is not on the log scale."""
    pm.Poisson("y", 3.0 + f, observed=Y)


def overdispersed_counts(f, alpha):
    pm.NegativeBinomial("y", mu=3.0 + f, alpha=alpha, observed=Y)


def noise(f, alpha):
    """A scale that is not, with observations that a vector of weights multiplies."""
    pm.Normal("y", 0.2 * alpha, (3.0 + f) * np.linspace(1.0, 2.0, N), observed=Y)


def trials(f, alpha):
    """With numbers of trials that are data."""
    n = pm.Data("n", np.full(N, 4))
    pm.Binomial("y", n=n, p=0.6 + 0.2 * f, observed=Y)


def several_observations(f, alpha):
    """Of which some are missing."""
    pm.Gamma("y", 2.0, (3.0 + f)[[0, 2, 2, 5]], observed=1.0 + Y[:4])


def classes(f, alpha):
    """Vectors whose probabilities are no elements of f."""
    p = pt.stack([0.3 + 0.1 * f, 0.7 - 0.1 * f], axis=-1)
    pm.Multinomial("y", n=4, p=p, observed=np.column_stack([Y, 4 - Y]))


MODELS = [counts, overdispersed_counts, noise, trials, several_observations, classes]


def read(make):
    with pm.Model() as model:
        alpha, s = pm.LogNormal("alpha", 0.0, 0.3), pm.HalfNormal("s")
        make(pm.MvNormal("f", np.zeros(N), s**2 * K), alpha)
    return lgm.read(model, compile_kwargs=QUICK)


def rows_apart(ours):
    """How far ℓ of rows is from that of each row; 1 if one is finite alone and not with others."""
    theta, bad = np.zeros(ours.p), FINE.copy()
    bad[2] = -20.0
    rows = np.array([FINE, bad, -FINE])
    each = np.array([ours.log_likelihoods(row[None], theta)[0] for row in rows])
    assert np.isfinite(each).tolist() == [True, False, True]
    together = ours.log_likelihoods(rows, theta)
    is_same = np.isfinite(together) == np.isfinite(each)
    return float(np.abs(together[::2] - each[::2]).max()) if is_same.all() else 1.0


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_a_row_that_is_not_allowed_is_one_row(make):
    assert rows_apart(read(make)) < 1e-12


def inflated(f, alpha):
    """Zeros come from another component, too."""
    pm.ZeroInflatedPoisson("y", psi=0.5, mu=3.0 + f, observed=Y)


def mixed(f, alpha):
    """Both components are one array."""
    mu, sigma = (pt.stack([a + f, b + f], axis=-1) for a, b in [(0.0, 1.0), (3.0, 30.0)])
    pm.NormalMixture("y", w=[0.3, 0.7], mu=mu, sigma=sigma, observed=Y)


def two_laws(f, alpha):
    """PyMC leaves out the second of all elements if it is not allowed in one."""
    components = [pm.Normal.dist(0.0, 1.0), pm.Normal.dist(0.0, 3.0 + f)]
    pm.Mixture("y", w=[0.3, 0.7], comp_dists=components, observed=Y)


@pytest.mark.fast("inflated")
@pytest.mark.parametrize("make", [inflated, mixed, two_laws], ids=lambda make: make.__name__)
def test_a_component_that_is_not_allowed_is_as_pymc_has_it(make):
    """Its element would be finite without it, of another component."""
    ours = read(make)
    with pm.Model() as model:
        make(pm.Normal("f", shape=N), 1.0)
    bad = FINE.copy()
    bad[1] = -3.5
    theirs = model.compile_logp(vars=model.observed_RVs, **QUICK)
    rows = np.array([FINE, bad])
    right = [theirs({"f": row}) for row in rows]
    assert np.isfinite(right).tolist() == [True, make is two_laws]
    np.testing.assert_allclose(ours.log_likelihoods(rows, np.zeros(ours.p)), right, rtol=1e-10)


@pytest.mark.filterwarnings("ignore:Data in y contains missing:pymc.exceptions.ImputationWarning")
def test_the_law_of_a_missing_observation_has_to_be_allowed():
    """PyMC's density of what is observed checks the parameters of all elements."""
    data = np.ma.masked_array(Y, mask=np.arange(N) == 1)
    with pm.Model() as model:
        s = pm.HalfNormal("s")
        f = pm.MvNormal("f", np.zeros(N), s**2 * K)
        pm.AsymmetricLaplace("y", kappa=3.0 + f, mu=0.0, b=1.0, observed=data)
    ours, bad = lgm.read(model, compile_kwargs=QUICK), FINE.copy()
    assert ours.missing == ("y_unobserved",)
    bad[1] = -3.5
    assert np.isfinite(ours.log_likelihoods(np.array([FINE, bad]), np.zeros(1))).tolist() == [
        True,
        False,
    ]
    assert not np.isfinite(ours.log_likelihood_gradient(bad, np.zeros(1))[0])


@pytest.mark.mutant
def test_a_check_of_all_rows_is_noticed(monkeypatch, dies):
    monkeypatch.setattr(allowed, "by_elements", list)
    dies("allowed: a check of all rows", rows_apart(read(counts)), above=0.5)


@pytest.mark.parametrize("make", [counts, noise])
def test_an_element_that_is_not_allowed_is_one_element(make):
    ours, bad = read(make), FINE.copy()
    bad[2] = -20.0
    sites = ours.site_log_likelihoods(bad[None], np.zeros(ours.p))[0]
    assert np.isneginf(sites).tolist() == (np.arange(N) == 2).tolist()


def test_an_estimate_has_the_right_mean():
    """Of draws that are often not allowed: each has its own weight."""
    ours, theta, rng = read(counts), np.array([0.0, np.log(2.0)]), np.random.default_rng(1)
    prior = ours.prior(theta)
    rows = prior.mean + prior.multiply(rng.standard_normal((N, 40_000))).T
    right = np.prod(stats.poisson.pmf(Y, np.maximum(3.0 + rows, 0.0)), axis=1)
    right *= (rows >= -3.0).all(axis=1)
    assert 0.2 < (right > 0.0).mean() < 0.9
    together = np.exp(ours.log_likelihoods(rows, theta))
    np.testing.assert_allclose(together, right, rtol=1e-10)


def sum_of(rate):
    with pm.Model() as model:
        w = pm.Normal("w", 0.0, pm.HalfNormal("s"), shape=N)
        x = pm.GaussianRandomWalk("x", sigma=0.5, init_dist=pm.Normal.dist(), shape=N)
        pm.Poisson("y", rate(x + w), observed=Y)
    return lgm.read(model, compile_kwargs=QUICK)


@pytest.mark.parametrize(("rate", "is_smooth"), [(pt.exp, True), (lambda eta: 3.0 + eta, False)])
def test_effects_are_integrated_out_only_of_a_smooth_density(rate, is_smooth):
    """A quadrature of a density that ends at a rate of zero would not be exact: not log-concave."""
    assert ("integrated out" in repr(sum_of(rate))) == is_smooth
