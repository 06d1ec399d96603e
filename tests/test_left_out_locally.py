"""Single observations of a sum are left out along lines that move few elements of x."""

from dataclasses import replace

import arviz as az
import numpy as np
import pymc as pm
import pytest

from scipy.special import logsumexp
from scipy.stats import norm, poisson
from test_left_out_effects import COUNTS, G, Y, counts, covariance, left_out, normal
from test_loo import faked

import pymc_lgm as lgm

from pymc_lgm import cross_validation
from pymc_lgm.approximations import left_out_locally as module
from pymc_lgm.approximations.laplace import laplace
from pymc_lgm.approximations.left_out_locally import LocalLines, left_out_locally
from pymc_lgm.model import LatentGaussianModel
from pymc_lgm.state import LikelihoodAt

pytestmark = pytest.mark.usefixtures("interpreted")

PEOPLE, ITEMS = np.repeat(np.arange(20), 3), np.tile(np.arange(15), 4)
AREAS = np.repeat(np.arange(25), 2)
STEP = np.abs(np.subtract.outer(np.arange(5), np.arange(5)))
W = (np.kron(STEP == 1, np.eye(5)) + np.kron(np.eye(5), STEP == 1)).astype(float)


def crossed():
    return pm.Normal("u", 0, 1.0, shape=20)[PEOPLE] + pm.Normal("v", 0, 0.7, shape=15)[ITEMS]


def walk():
    first = pm.Normal.dist(0, 2)
    return pm.GaussianRandomWalk("x", sigma=0.5, init_dist=first, shape=40)


def intrinsic_map():
    """Its soft constraint is an update of Q."""
    return (0.8 * pm.ICAR("phi", W=W, zero_sum_stdev=0.05) + pm.Normal("e", 0, 0.4, shape=25))[
        AREAS
    ]


def constrained_walk():
    return lgm.gmrf.RandomWalk("x", sigma=0.5, shape=40)


def mean_and_scale():
    x = pm.GaussianRandomWalk("x", sigma=0.2, init_dist=pm.Normal.dist(0, 1), shape=40)
    return x, pm.AR("h", rho=[0.8], sigma=0.2, init_dist=pm.Normal.dist(0, 0.3), shape=40)


def zero_sum():
    return pm.ZeroSumNormal("z", 1.0, shape=20)[PEOPLE]


SIZES = {crossed: 60, walk: 40, intrinsic_map: 50, constrained_walk: 40, mean_and_scale: 40}
MODELS = {each.__name__: each for each in SIZES}
SIZES[zero_sum] = 60


class Case:
    """A model of counts or with normal noise, its sets, and q at its start."""

    def __init__(self, make, *, counts=True):
        rng = np.random.default_rng(0)
        with pm.Model() as model:
            made, n = make(), SIZES[make]
            eta, scale = made if isinstance(made, tuple) else (made, None)
            eta += pm.Normal("level", 0, 2)
            if scale is not None:
                pm.Normal("y", eta, pm.math.exp(scale), observed=rng.normal(size=n))
            elif counts:
                pm.Poisson("y", pm.math.exp(eta), observed=rng.poisson(2.0, n))
            else:
                self.y = rng.standard_normal(n)
                pm.Normal("y", eta, 0.5, observed=self.y)
        self.model = model
        self.read = LatentGaussianModel.from_pymc(model, integrates=False, as_sum=True)
        self.theta = self.read.theta_of(model.initial_point())
        self.q = laplace(LikelihoodAt(self.read, self.theta), self.read.prior(self.theta))
        self.layout = self.read.form.layout
        reads = self.read.element_reads
        is_free = self.read.free_elements[:, None]
        self.reads = np.where((reads < 0) | is_free, -1, reads - self.layout.N)
        self.which = np.arange(len(self.reads))
        self.local = LocalLines.of(self.layout, self.reads, self.which, [self.q])

    def elements(self, rows):
        return self.read.likelihood.elements(rows, self.theta)

    def draw(self, rng):
        xi = rng.standard_normal(self.layout.rank)
        return self.q.center + self.q.posterior.multiply(xi)

    def left_out(self, f):
        uniform = np.full((self.local.chosen.size, 1), 0.5)
        return left_out_locally(self.elements, self.local, self.q, f, uniform)


@pytest.fixture(autouse=True)
def small_sets(monkeypatch):
    """Sets that leave four tenths of the variance, which a few elements do."""
    monkeypatch.setattr(module, "GOOD", 0.4)
    monkeypatch.setattr(module, "READERS", 0.4)
    for each in (module, cross_validation):
        monkeypatch.setattr(each, "are_few", lambda *sizes, several: False)


def largest_error(make):
    """Beside integrals on a grid along the same lines, with the densities of f as a whole.

    A direction must also satisfy the constraints.
    """
    case = Case(make)
    f, prior, layout = case.draw(np.random.default_rng(1)), case.q.prior, case.layout
    found = case.left_out(f)
    assert case.local.chosen.size == case.which.size
    lines = module._LocalLines(case.elements, case.local, case.q, f)
    errors = []
    for k in range(0, case.which.size, 5):
        x = np.zeros(layout.M)
        inside = case.local.sets.elements[k] >= 0
        x[case.local.sets.elements[k, inside]] = lines.along.c[k, inside]
        v = prior.expand(x)
        np.testing.assert_allclose(v[lines.reads[k]], lines.moves[k], atol=1e-9)
        t = np.sqrt(lines.along.variance[k]) * np.linspace(-12.0, 12.0, 1201)
        rows = f + np.outer(t, v)
        ell = case.elements(rows)
        both = ell.sum(axis=1) + np.array([prior.log_density(row) for row in rows])
        others = both - ell[:, case.which[k]]
        errors.append(found.log_density[k] - (logsumexp(both) - logsumexp(others)))
        errors.extend(layout.C.T @ x)
    return np.nan_to_num(np.abs(errors), nan=np.inf).max()


@pytest.mark.parametrize("name", MODELS)
def test_densities_are_those_on_a_grid_along_the_line(name):
    assert largest_error(MODELS[name]) < 2e-4


def test_weights_take_the_posterior_to_that_without_an_observation():
    """1 / p(y_k | y_-k) is the mean of 1 / p(y_k | r) under the posterior."""
    case, rng = Case(walk, counts=False), np.random.default_rng(2)
    found = np.array([case.left_out(case.draw(rng)).log_density for _ in range(300)])
    V = case.q.prior.multiply(np.eye(case.layout.rank))[case.layout.N :]
    P = np.linalg.inv(V @ V.T + 0.25 * np.eye(len(V)))
    exact = norm.logpdf((P @ case.y) / P.diagonal(), scale=P.diagonal() ** -0.5)
    inverse = np.exp(-found)
    errors = inverse.std(axis=0) / inverse.mean(axis=0) / np.sqrt(len(found))
    away = np.log(len(found)) - logsumexp(-found, axis=0) - exact
    assert np.abs(away / errors).max() < 5.0
    assert np.median(errors) < 0.1


def test_sets_grow_until_they_have_their_share(monkeypatch):
    size = {}
    for share in (0.3, 0.8, 0.97):
        monkeypatch.setattr(module, "GOOD", share)
        case = Case(walk)
        if case.local is None:
            size[share] = np.inf
            continue
        variance = case.local.sets.variances(module._At(case.q))[:, 0]
        whole = case.q.posterior.variances[case.layout.N + case.local.rows[:, 0]]
        assert (variance >= share * whole).all()
        size[share] = case.local.sets.elements.shape[1]
    assert size[0.3] < size[0.8] < size[0.97]


@pytest.fixture
def evaluated(monkeypatch):
    """No polynomials, as for observations that read three elements of eta or more."""
    monkeypatch.setattr(module, "in_columns", lambda reads, n: None)


@pytest.mark.parametrize("name", ["crossed", "mean_and_scale"])
def test_densities_are_evaluated_if_they_read_several_elements(name, evaluated):
    assert largest_error(MODELS[name]) < 2e-4


@pytest.mark.parametrize("name", MODELS)
def test_lines_share_rows_if_they_change_different_observations(name, evaluated):
    case = Case(MODELS[name])
    local = case.local
    assert np.array_equal(np.sort(np.concatenate(local.batches)), np.arange(local.chosen.size))
    readers = local.others.toarray()
    readers[np.arange(local.chosen.size), local.which] += 1.0
    assert all((readers[batch].sum(axis=0) <= 1.0).all() for batch in local.batches)


def test_effects_that_sum_to_zero_have_no_small_sets():
    """Each element of eta reads all coordinates."""
    assert Case(zero_sum).local is None


def test_observations_without_a_small_set_are_left_out_along_all_of_x(monkeypatch):
    case, rng = Case(walk), np.random.default_rng(3)
    variance = case.local.sets.variances(module._At(case.q))[:, 0]
    share = variance / case.q.posterior.variances[case.layout.N + case.local.rows[:, 0]]
    monkeypatch.setattr(module, "GOOD", np.quantile(share, 0.3))
    monkeypatch.setattr(module, "LARGEST", 1)
    draws = {"level": rng.normal(size=(1, 1)), "x": rng.normal(size=(1, 1, 40))}
    idata = az.from_dict({"posterior": draws})
    lines = []

    def of(*args):
        lines.append(find(*args))
        return lines[-1]

    def both():
        tree = lgm.leave_one_out(idata, case.model, random_seed=1, progressbar=False)
        return tree["log_likelihood"]["y"].values[0, 0]

    find = LocalLines.of
    monkeypatch.setattr(LocalLines, "of", of)
    some = both()
    monkeypatch.setattr(LocalLines, "of", lambda *_: None)
    none = both()
    chosen = np.isin(np.arange(40), lines[0].chosen)
    assert 20 < chosen.sum() < 40
    np.testing.assert_allclose(some[~chosen], none[~chosen], rtol=1e-12)
    assert (np.abs(some - none)[chosen] > 1e-6).all()


# By the effects of groups


@pytest.fixture
def as_sums(monkeypatch):
    """Sums, of normal data too, whose densities have a closed form otherwise."""
    monkeypatch.setattr("pymc_lgm.model.forms.sum._is_cheaper", lambda *sizes: True)
    monkeypatch.setattr(LatentGaussianModel, "is_quadratic", False)


def error_of_lines():
    """Largest error of log p(y_k | y of its group, level, sd); a group without a slope has none."""
    model = normal("a")
    idata = faked(model)
    found = left_out(model, idata, None)
    errors = []
    for i in range(2):
        level, sd = (float(idata["posterior"][name].values[0, i]) for name in ("level", "sd"))
        P = np.linalg.inv(covariance("a") + sd**2 * np.eye(G.size))
        away, scale = P @ (Y - level) / P.diagonal(), P.diagonal() ** -0.5
        errors.append(np.abs(found[0, i] - norm.logpdf(away, scale=scale)).max())
    return max(errors)


def test_an_observation_is_left_out_along_the_effect_of_its_group(as_sums):
    assert error_of_lines() < 2e-4


def test_a_count_is_left_out_as_on_a_fine_grid(as_sums):
    model = counts("a")
    idata = faked(model)
    found = left_out(model, idata, None)[0, 0]
    a = np.linspace(-6, 6, 2401)
    eta = float(idata["posterior"]["level"].values[0, 0]) + a[:, None]
    ell, prior = poisson.logpmf(COUNTS, np.exp(eta)), norm.logpdf(a, scale=0.9)[:, None]
    whole = np.stack([ell[:, g == G].sum(axis=1) for g in G], axis=1) + prior
    np.testing.assert_allclose(found, logsumexp(whole, 0) - logsumexp(whole - ell, 0), atol=2e-4)


def test_replicated_data_are_those_without_the_observation(as_sums):
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


# Mutants


@pytest.mark.mutant
def test_lines_that_keep_their_own_observation_are_noticed(monkeypatch, dies):
    def wrong(self, line, t):
        return log_g(self, line, t) + self._at(line, self._f, t)

    log_g = module._LocalLines._log_g
    monkeypatch.setattr(module._LocalLines, "_log_g", wrong)
    dies("loo: a line with its own observation", largest_error(walk), above=1e-2)


def without_constraint(self, *args):
    return directions(replace(self, free=None), *args)


def without_prior(self, *args, **kwargs):
    make_lines(self, *args, **kwargs)
    self._slope = 0.0 * self._slope


def without_neighbors(self, *args, **kwargs):
    make_lines(self, *args, **kwargs)
    self._change = 0.0 * self._change


directions, make_lines = module._Sets.directions, module._LocalLines.__init__
WRONG = {
    "without the slope of the prior": (module._LocalLines, "__init__", without_prior, walk),
    "neighbors stay": (module._LocalLines, "__init__", without_neighbors, crossed),
    "without the constraint": (module._Sets, "directions", without_constraint, constrained_walk),
}


@pytest.mark.mutant
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_line_is_noticed(name, monkeypatch, dies):
    where, attribute, wrong, make = WRONG[name]
    monkeypatch.setattr(where, attribute, wrong)
    dies(f"loo: lines in few elements, {name}", largest_error(make), above=1e-2)
