"""Leave-one-out densities against quadrature over f and theta, and what must be refused."""

from functools import partial

import arviz as az
import numpy as np
import pymc as pm
import pytest
import xarray as xr

from scipy.special import gammaln, log_ndtr, logsumexp
from scipy.stats import multivariate_normal, norm

import pymc_lgm as lgm

from pymc_lgm import cross_validation
from pymc_lgm.approximations import left_out as module
from pymc_lgm.approximations.expansions import in_columns
from pymc_lgm.approximations.laplace import laplace
from pymc_lgm.approximations.left_out import left_out, left_out_groups
from pymc_lgm.compile.graphs.functions import shape_of
from pymc_lgm.gaussian import DensePrior
from pymc_lgm.model import LatentGaussianModel
from pymc_lgm.model.forms.sum import SumPredictor
from pymc_lgm.model.points import Points
from pymc_lgm.state import LikelihoodAt

pytestmark = pytest.mark.usefixtures("interpreted")

Y = np.array([0, 9, 2])
SITE = np.array([0, 1, 1])
"""Two observations of the second element: neither is the other's cavity."""


def poisson(f):
    return Y * f - np.exp(f) - gammaln(Y + 1)


def binary(f):
    return log_ndtr(np.array([1, -1, 1]) * 3.0 * f)


def student_t(f):
    return -2.5 * np.log1p((np.array([0.1, 4.0, 0.5]) - f) ** 2 / (4 * 0.2))


def waiting(f):
    """A time far too short, and one far too long: the ends of a long line are 1e20 nats down."""
    return -f - np.array([1e-4, 40.0, 2.0]) * np.exp(-f)


def normal(f):
    return -0.5 * ((np.array([0.1, 4.0, 0.5]) - f) / 0.3) ** 2


class Likelihood:
    """ℓ of f by ``density``, elementwise in the observations, with derivatives by differences."""

    sets = probit_signs = effects = None

    def __init__(self, density, site=SITE):
        self.density, self.site = density, site

    def elements(self, rows):
        return self.density(rows[:, self.site])

    sites = elements  # EP asks where each f_i has one observation

    def value(self, f):
        return float(self.elements(f[None]).sum())

    def __call__(self, f):
        h = 1e-4
        below, at, above = self.elements(f + np.outer([-h, 0, h], np.ones(f.size)))
        g, W = (above - below) / (2 * h), (2 * at - above - below) / h**2
        of_f = [np.bincount(self.site, each, f.size) for each in (g, W)]
        return float(at.sum()), *of_f, np.zeros(f.size)


class Constant:
    """N(m, K), whatever theta is."""

    enters_cov = np.zeros(0, dtype=bool)
    amplitudes = np.zeros(0)

    def __init__(self, mean, cov):
        self._mean, self._cov = np.asarray(mean), np.asarray(cov)

    def mean(self, theta):
        return self._mean.copy()

    def cov(self, theta):
        return self._cov.copy()


MEAN = np.array([0.3, 0.8])
COV = np.array([[1.0, 0.6], [0.6, 0.8]])


def on_grid(likelihood, center, scale, points):
    """f and log p(y, f) at a grid of ± 9 standard deviations, less its largest value."""
    x = np.linspace(-9.0, 9.0, points)
    z = np.stack(np.meshgrid(x, x, indexing="ij"), axis=-1).reshape(-1, 2)
    f = center + z @ np.linalg.cholesky(scale).T
    nu = np.linalg.solve(np.linalg.cholesky(COV), (f - MEAN).T)
    ell = likelihood.elements(f)
    return f, ell, ell.sum(axis=1) - 0.5 * (nu**2).sum(axis=0)


def inverse_densities(density, left_out=left_out, group=None):
    """E[1 / p(y_k | y_-k, r)] over the posterior of f by quadrature, and p(y_-k) / p(y)."""
    likelihood = Likelihood(density)
    prior = DensePrior.at(Constant(MEAN, COV), np.zeros(0))
    q = laplace(likelihood, prior)
    # The prior is wide enough for every p(f | y_-k): the trapezoidal rule is exact on a fine grid.
    _, ell, joint = on_grid(likelihood, MEAN, COV, 401)
    which, uniform = np.arange(Y.size), np.full(Y.size, 0.5)
    of = which if group is None else group
    own = np.array([ell[:, of == g].sum(axis=1) for g in np.unique(of)])
    exact = logsumexp(joint - own, axis=1) - logsumexp(joint)
    # Few points for what is slow. Without a group of two elements the posterior is far wider.
    if group is None or len(set(SITE[group == group[0]])) == 1:
        f, _, joint = on_grid(likelihood, q.center, q.posterior.block(np.arange(2)), 25)
        keep = np.flatnonzero(joint - logsumexp(joint) > -14.0)
    else:
        f, _, joint = on_grid(likelihood, MEAN, COV, 61)
        keep = np.flatnonzero(joint - joint.max() > -300.0)
    joint -= logsumexp(joint)
    if group is None:
        args = likelihood.elements, which, SITE[:, None], q
        options = {"all_reads": SITE[:, None]}
        found = [left_out(*args, f[i], uniform[:, None], **options)[0] for i in keep]
    else:
        found = [left_out_groups(likelihood.elements, which, SITE, of, q, f[i])[0] for i in keep]
    found = np.array(found)
    return logsumexp(joint[keep][:, None] - found, axis=0), exact, found


OTHER_DENSITIES = (binary, student_t, waiting)


@pytest.mark.fast("poisson", "binary", "normal")
@pytest.mark.parametrize("density", [poisson, normal, *OTHER_DENSITIES])
def test_weights_take_the_posterior_to_that_without_an_observation(density):
    """E[1 / p(y_k | y_-k, r)] = p(y_-k) / p(y) at a fixed theta, whatever q is."""
    mean, exact, found = inverse_densities(density)
    np.testing.assert_allclose(mean, exact, atol=3e-4)
    if density is normal:
        assert found.std(axis=0).max() < 1e-6  # no draw of f enters it


@pytest.mark.fast("poisson-of one element")
@pytest.mark.parametrize("group", [[0, 1, 1], [0, 0, 1]], ids=["of one element", "of two elements"])
@pytest.mark.parametrize(
    "density",
    [poisson, normal, *(pytest.param(d, marks=pytest.mark.whole) for d in OTHER_DENSITIES)],
)
def test_weights_take_the_posterior_to_that_without_a_group(density, group):
    mean, exact, found = inverse_densities(density, group=np.array(group))
    np.testing.assert_allclose(mean, exact, atol=3e-4)
    if density is normal and group == [0, 1, 1]:
        assert found.std(axis=0).max() < 1e-6


def student(nu, scale, *y):
    """Errors with heavy tails, which make a narrow peak, or several."""
    width = np.sqrt(nu) * scale
    return lambda f: -0.5 * (nu + 1.0) * np.log1p(((np.array(y) - f) / width) ** 2)


def with_outliers(f):
    """A mixture of narrow and wide errors: Laplace's approximation is at the mode of the wide."""
    narrow, wide = (norm.logpdf([0.3, 0.31, 1.0], f, sd) for sd in (0.01, 2.0))
    return np.logaddexp(np.log(0.9) + narrow, np.log(0.1) + wide)


def censored(f):
    """Two observations above a limit, and one just below it: a cliff at the limit."""
    is_above = [True, True, False]
    return np.where(is_above, norm.logsf(0.5, f, 0.01), norm.logpdf(0.49, f, 0.01))


@pytest.mark.parametrize(
    ("density", "is_log_concave", "draws"),
    [
        (student(4.0, 0.03, 0.3, 0.33, 0.285), False, (0.31, 0.28)),
        (student(1.0, 0.05, 0.3, 0.35, 0.275), False, (0.31, 0.25)),
        (student(4.0, 0.001, 0.3, 0.301, 0.2995), False, (0.3, 0.3008)),
        (student(3.0, 0.05, 0.3, -0.8, 0.32), False, (0.31, -0.78)),
        (with_outliers, False, (0.305, 0.29)),
        (censored, True, (0.5, 0.53)),
        (lambda f: -np.logaddexp(0.0, 200.0 * f * np.array([1.0, -1.0, -1.0])), True, (0.0, 0.004)),
    ],
    ids=["peak", "cauchy", "needle", "two modes", "mixture", "cliff", "labels"],
)
def test_a_density_of_one_element_is_the_same_for_every_draw(density, is_log_concave, draws):
    """Its line is integrated piece by piece, until peaks, cliffs and further modes are resolved."""
    likelihood = Likelihood(density, np.zeros(3, dtype=int))
    prior = DensePrior.at(Constant([0.0], [[1.0]]), np.zeros(0))
    q = laplace(likelihood, prior)
    reads, uniform = np.zeros((3, 1), dtype=int), np.full((3, 1), 0.5)
    t = 10.0 ** np.linspace(-7.0, 1.0, 3001)
    grids = [x + np.r_[-t, 0.0, t] for x in (0.0, 0.3, 0.31, 0.49, 0.5, -0.8, *q.center)]
    f = np.unique(np.concatenate(grids))
    ell = likelihood.elements(f[:, None])
    joint = ell.sum(axis=1) - 0.5 * f**2 + np.log(np.gradient(f))
    exact = logsumexp(joint) - logsumexp(joint[:, None] - ell, axis=0)
    for draw in draws:
        found = left_out(
            likelihood.elements, np.arange(3), reads, q, np.array([draw]), uniform,
            all_reads=reads, is_log_concave=is_log_concave,
        )  # fmt: skip
        np.testing.assert_allclose(found.log_density, exact, atol=1e-4)


def mean_and_scale():
    """Observations that read a mean and the logarithm of a standard deviation."""
    f = pm.MvNormal("f", mu=MEAN, cov=COV)
    pm.Normal("y", f[0], pm.math.exp(0.5 * f[1]), observed=[0.1, 4.0, -1.0])


def three_classes():
    f = pm.MvNormal("f", mu=np.append(MEAN, 0.0), cov=np.pad(COV, (0, 1)) + np.diag([0, 0, 1.0]))
    lgm.Softmax("y", f=f[None].repeat(3, axis=0), observed=[0, 2, 2])


def counts_of_classes():
    """Each row has one density."""
    f = pm.MvNormal("f", mu=np.append(MEAN, 0.0), cov=np.pad(COV, (0, 1)) + np.diag([0, 0, 1.0]))
    p = pm.math.softmax(f)[None].repeat(3, axis=0)
    pm.Multinomial("y", n=4, p=p, observed=[[4, 0, 0], [1, 2, 1], [0, 1, 3]])


def error_of_sets(make, points):
    """As for observations of one element: E[1 / p(y_k | y_-k, r)] beside p(y_-k) / p(y)."""
    with pm.Model() as model:
        make()
    read = LatentGaussianModel.from_pymc(model, integrates=False)
    nothing = np.zeros(0)
    q = laplace(LikelihoodAt(read, nothing), read.prior(nothing))
    K = read.prior(nothing).covariance_times(np.asfortranarray(np.eye(read.n)))
    mean = read.mean(nothing)

    def on_grid(center, scale, points, reach):
        x = np.linspace(-reach, reach, points)
        z = np.stack(np.meshgrid(*[x] * read.n, indexing="ij"), axis=-1).reshape(-1, read.n)
        f = center + z @ np.linalg.cholesky(scale).T
        ell = read.likelihood.elements(f, nothing)
        nu = np.linalg.solve(np.linalg.cholesky(K), (f - mean).T)
        return f, ell, ell.sum(axis=1) - 0.5 * (nu**2).sum(axis=0)

    _, ell, joint = on_grid(mean, K, 401 if read.n == 2 else 61, 8.0)
    exact = logsumexp(joint - ell.T, axis=1) - logsumexp(joint)
    scale = q.posterior.block(np.arange(read.n))
    f, _, joint = on_grid(q.center, scale, points, 9.0 if read.n == 2 else 5.0)
    joint -= logsumexp(joint)
    keep = np.flatnonzero(joint > -14.0)
    which = np.arange(3)
    reads, uniform = read.element_reads[which], np.full((3, read.n), 0.5)
    elements = partial(read.likelihood.elements, theta=nothing)
    args, options = (
        (elements, which, reads, q),
        {"all_reads": in_columns(read.element_reads, read.n)},
    )
    found = [module.left_out(*args, f[i], uniform, **options)[0] for i in keep]
    return np.abs(logsumexp(joint[keep][:, None] - np.array(found), axis=0) - exact).max()


SETS = [(mean_and_scale, 25), (three_classes, 9), (counts_of_classes, 9)]


@pytest.mark.parametrize(("make", "points"), SETS)
def test_observations_may_read_several_elements(make, points):
    assert error_of_sets(make, points) < 3e-3


def of_training_points(patch):
    def wrong(*args, **kwargs):
        found = left_out(*args, **kwargs)
        return found._replace(log_density=found.own)

    return wrong


def with_own_observation(patch):
    log_g = module._Lines._log_g

    def wrong(self, lines, at):
        return log_g(self, lines, at) + self._at(lines, self._f, at)

    patch.setattr(module._Lines, "_log_g", wrong)
    return left_out


def with_lines(change):
    """The mutant whose lines have been changed after they were made."""

    def broken(patch):
        class Wrong(module.ObservationLines):
            def __init__(self, *args, **kwargs):
                super().__init__(*args, **kwargs)
                change(self)

        patch.setattr(module, "ObservationLines", Wrong)
        return left_out

    return broken


def flat_prior(lines):
    lines._slope, lines._curvature = 0.0 * lines._slope, 0.0 * lines._curvature


def slope_upside_down(lines):
    lines._slope = -2.0 * lines._slope


def neighbors_that_stay(lines):
    lines._c = (lines._c > 0.999).astype(float)


def scale_that_stays(lines):
    lines.moves[:, 1] = 0.0


MUTANTS = {
    "density of the training point": of_training_points,
    "cavity with its own observation": with_own_observation,
    "prior flat along the line": with_lines(flat_prior),
    "slope of the prior upside down": with_lines(slope_upside_down),
    "neighbors stay where they are": with_lines(neighbors_that_stay),
}


@pytest.mark.mutant
@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_density_is_noticed(name, monkeypatch, dies):
    mean, exact, _ = inverse_densities(poisson, MUTANTS[name](monkeypatch))
    dies(f"loo: {name}", np.abs(mean - exact).max(), above=1e-3)


@pytest.mark.mutant
def test_elements_that_stay_are_noticed(monkeypatch, dies):
    with_lines(scale_that_stays)(monkeypatch)
    dies("loo: the scale stays where it is", error_of_sets(mean_and_scale, 25), above=0.03)


@pytest.mark.mutant
def test_a_group_of_which_some_stays_is_noticed(monkeypatch, dies):
    class Wrong(module._Groups):
        def _log_g(self, line, t):
            of_line, self._of_line = self._of_line, np.where(np.arange(3) == 2, -1, self._of_line)
            found = super()._log_g(line, t)
            self._of_line = of_line
            return found

    monkeypatch.setattr(module, "_Groups", Wrong)
    mean, exact, _ = inverse_densities(poisson, group=np.array([0, 1, 1]))
    dies("loo: some of a group stays", np.abs(mean - exact).max(), above=1e-3)


# Models: every form of f, beside the closed form of normal noise

N = 12
X = np.sort(np.random.default_rng(1).uniform(0, 10, N))[:, None]
PATH = np.eye(N, k=1) + np.eye(N, k=-1)


def process(**kwargs):
    cov = pm.gp.cov.Matern32(1, ls=pm.InverseGamma("ls", 3, 3))
    return pm.gp.Latent(cov_func=cov).prior("f", X, jitter=1e-6, **kwargs)


def walk():
    first = pm.Normal.dist(0, 1)
    return pm.GaussianRandomWalk("x", sigma=pm.HalfNormal("s"), init_dist=first, shape=N)


def trend_and_season():
    first = pm.Normal.dist(0, 1)
    season = pm.AR("season", rho=[-0.3], sigma=0.5, init_dist=first, shape=5)
    return walk()[np.arange(N) // 2] + season[np.arange(N) % 5] + pm.Normal("a", 0, 2)


FORMS = {
    "process": lambda: process(reparameterize=False),
    "whitened": process,
    "process and line": lambda: process(reparameterize=False) + pm.Normal("b") * X[:, 0],
    "pairs": lambda: process(reparameterize=False)[np.arange(N) // 2],
    "walk": walk,
    "trend and season": trend_and_season,
    "walk and effects": lambda: walk() + pm.Normal("e", 0, pm.HalfNormal("se"), shape=N),
    "map": lambda: pm.ICAR("phi", W=PATH) * pm.HalfNormal("tau") + pm.Normal("a"),
    "groups": lambda: pm.Normal("e", 0, pm.HalfNormal("s"), shape=5)[np.arange(N) % 5],
}
AS_SUMS = ["whitened", "trend and season", "walk and effects", "map", "groups"]


def faked(model, draws=2, seed=1):
    """A trace of points that nobody has sampled: densities of one draw are right at any."""
    rng = np.random.default_rng(seed)
    found = {}
    for rv in model.free_RVs:
        z = 0.7 * rng.standard_normal((1, draws, *shape_of(rv)))
        found[rv.name] = z if model.rvs_to_transforms[rv] is None else np.exp(z)
    return az.from_dict({"posterior": found})


def with_noise(make):
    with pm.Model() as model:
        eta = make()
        y = np.random.default_rng(2).standard_normal(N)
        pm.Normal("y", eta, pm.HalfNormal("sigma"), observed=y)
    return model


def given_theta(model, idata, form):
    """y, and its mean and covariance given the theta of each draw."""
    read = lgm.read(model, integrates=False)
    assert form in type(read.form).__name__
    points = Points(model, idata["posterior"])
    at = read.element_reads[:, 0]
    for i in range(idata["posterior"].sizes["draw"]):
        prior = read.prior(read.theta_of(points((0, i))))
        K = prior.covariance_times(np.asfortranarray(np.eye(read.n)))[np.ix_(at, at)]
        sigma = float(idata["posterior"]["sigma"].values[0, i])
        yield read.observed["y"].data, prior.mean[at], K + sigma**2 * np.eye(N)


def in_closed_form(model, idata, form):
    """Mean and standard deviation of y_k given y_-k and theta, (draws, n), and its density."""
    found = []
    for y, mean, cov in given_theta(model, idata, form):
        P = np.linalg.inv(cov)
        found.append((y - P @ (y - mean) / np.diag(P), np.diag(P) ** -0.5))
    mean, sd = np.moveaxis(np.array(found), 1, 0)
    return mean, sd, norm.logpdf(y, mean, sd)


@pytest.mark.fast("process-", "trend and season-Sum")
@pytest.mark.parametrize(
    ("name", "form"), [*((name, "") for name in FORMS), *((name, "Sum") for name in AS_SUMS)]
)
def test_every_form_of_f_leaves_one_out(name, form, monkeypatch):
    """Of normal noise each draw has the closed form, whatever f it has."""
    if form:
        monkeypatch.setattr(SumPredictor, "may_be_cheaper", lambda setting: True)
        monkeypatch.setattr(SumPredictor, "is_cheaper", True)
    assert error_of_densities(name, form) < 1e-9


@pytest.mark.fast("process-", "trend and season-Sum")
@pytest.mark.parametrize(
    ("name", "form"), [*((name, "") for name in FORMS), *((name, "Sum") for name in AS_SUMS)]
)
def test_every_form_of_f_leaves_groups_out(name, form, monkeypatch):
    """Of normal noise in closed form, too, also if groups share all latent variables."""
    if form:
        monkeypatch.setattr(SumPredictor, "may_be_cheaper", lambda setting: True)
        monkeypatch.setattr(SumPredictor, "is_cheaper", True)
    model = with_noise(FORMS[name])
    idata = faked(model)
    groups = np.array(list("abbcccddabdd"))
    tree = lgm.leave_one_out(idata, model, groups=groups, random_seed=1, progressbar=False)
    found = tree["log_likelihood"]["y"].values[0]
    for i, (y, mean, cov) in enumerate(given_theta(model, idata, form)):
        np.testing.assert_allclose(found[i], densities_without(cov, y - mean, groups), atol=1e-8)


def error_of_densities(name, form=""):
    model = with_noise(FORMS[name])
    idata = faked(model)
    tree = lgm.leave_one_out(idata, model, random_seed=1, progressbar=False)
    *_, density = in_closed_form(model, idata, form)
    return np.abs(tree["log_likelihood"]["y"].values[0] - density).max()


@pytest.mark.parametrize("name", ["process", "walk and effects"])
def test_lines_give_the_densities_of_the_closed_form(name, monkeypatch):
    """Along all of f, of normal noise."""
    monkeypatch.setattr(LatentGaussianModel, "is_quadratic", False)
    assert error_of_densities(name) < 1e-9


@pytest.mark.mutant
def test_a_cavity_of_the_posterior_is_noticed(monkeypatch, dies):
    def with_own(elements, which, reads, q, f, uniform):
        found = closed(elements, which, reads, q, f, uniform)
        return found._replace(log_density=elements(q.center[None])[0, which])

    closed = cross_validation.left_out_of_normal
    monkeypatch.setattr(cross_validation, "left_out_of_normal", with_own)
    dies("loo: a closed form with its own observation", error_of_densities("process"), above=1e-3)


def two_responses():
    """Rows with correlated errors, and the covariance of all that is observed."""
    K = np.exp(-0.5 * (X - X.T) ** 2) + 1e-6 * np.eye(N)
    errors = np.array([[0.5, 0.3], [0.3, 0.8]])
    y = np.random.default_rng(4).standard_normal((N, 2))
    with pm.Model(coords={"week": np.arange(N), "response": ["a", "b"]}) as model:
        f, g = (pm.MvNormal(name, mu=np.zeros(N), cov=K) for name in "fg")
        mean = pm.math.stack([f, g + f], axis=1)
        pm.MvNormal("y", mean, cov=errors, observed=y, dims=("week", "response"))
    mixing = np.array([[1.0, 1.0], [1.0, 2.0]])
    return model, np.kron(K, mixing) + np.kron(np.eye(N), errors), y


@pytest.mark.fast("")
@pytest.mark.parametrize("form", ["", "Sum"])
def test_rows_with_correlated_errors_have_the_closed_form(form, monkeypatch):
    if form:
        monkeypatch.setattr(SumPredictor, "may_be_cheaper", lambda setting: True)
        monkeypatch.setattr(SumPredictor, "is_cheaper", True)
    model, cov, y = two_responses()
    tree = lgm.leave_one_out(faked(model), model, random_seed=1, progressbar=False)
    found = tree["log_likelihood"]["y"]
    assert found.dims == ("chain", "draw", "week")
    assert tree["posterior_predictive"]["y"].dims == ("chain", "draw", "week", "response")
    exact = densities_without(cov, y.ravel(), np.repeat(range(N), 2))
    np.testing.assert_allclose(found[0], np.tile(exact, (2, 1)), atol=1e-6)


def test_replicated_data_have_the_law_without_their_own_observation():
    """ArviZ's PIT values are those of the normal law of y_k given y_-k."""
    with pm.Model() as model:
        f = pm.MvNormal("f", mu=[0.5, -0.5], cov=[[1.0, 0.6], [0.6, 1.0]])
        pm.Normal("y", f, 0.7, observed=[1.0, 0.2])
    draws = np.random.default_rng(3).standard_normal((2, 500, 2))
    tree = lgm.leave_one_out(
        az.from_dict({"posterior": {"f": draws}}), model, random_seed=1, progressbar=False
    )
    # y_0 given y_1, and the other way round.
    v = 1.0 + 0.49
    sd = np.sqrt(v - 0.36 / v)
    mean = np.array([0.5 + 0.6 / v * (0.2 + 0.5), -0.5 + 0.6 / v * (1.0 - 0.5)])
    pit = az.loo_pit(tree, random_state=1)["y"].values
    np.testing.assert_allclose(pit, norm.cdf([1.0, 0.2], mean, sd), atol=4 * np.sqrt(0.25 / 1000))
    y = tree["posterior_predictive"]["y"].values.reshape(-1, 2)
    np.testing.assert_allclose(y.mean(axis=0), mean, atol=4 * sd / np.sqrt(400))
    np.testing.assert_allclose(y.std(axis=0), sd, rtol=4 / np.sqrt(2000))


@pytest.mark.slow
@pytest.mark.fast("False")
@pytest.mark.parametrize("with_field", [False, True])
def test_replicated_data_have_the_hyperparameters_of_their_draw(with_field):
    """Not those of the prior, for f of a process and for a sum; and a variable that is observed."""
    with pm.Model() as model:
        s, known = pm.HalfNormal("s", 0.1), pm.HalfNormal("known", 0.1, observed=2.0)
        f = pm.Normal("f", shape=2)
        if with_field:
            f = f + lgm.gmrf.RandomWalk("walk", sigma=1.0, shape=2)
        pm.Normal("y", f, s * known, observed=[1.0, 0.2])
    draws = {
        "s": np.full((1, 1000), 5.0),
        "f": np.zeros((1, 1000, 2)),
        "walk": np.zeros((1, 1000, 2)),
    }
    tree = lgm.leave_one_out(
        az.from_dict({"posterior": draws}), model, random_seed=1, progressbar=False
    )
    y = tree["posterior_predictive"]["y"].values
    # y_k has a variance of 1 or 1.25 for f, and of 10² for itself.
    assert abs(y.std() - 10.0) < 1.0


def test_an_observation_without_latents_has_an_offset():
    """y_0 has the covariate 0, so only its own offset is left."""
    with pm.Model() as model:
        offset = pm.Exponential("offset", 1.0)
        slope = pm.Normal("slope")
        pm.Normal("y", offset + slope * np.array([0.0, 1.0]), 0.1, observed=[1.0, 0.2])
    draws = {"offset": np.full((1, 50), 3.0), "slope": np.zeros((1, 50))}
    tree = lgm.leave_one_out(
        az.from_dict({"posterior": draws}), model, random_seed=1, progressbar=False
    )
    density, y = (
        tree[name]["y"].values[0, :, 0] for name in ("log_likelihood", "posterior_predictive")
    )
    np.testing.assert_allclose(density, norm.logpdf(1.0, 3.0, 0.1), rtol=1e-6)
    np.testing.assert_allclose(y, 3.0, atol=0.7)


def test_a_process_that_is_integrated_out_in_the_model():
    y = np.random.default_rng(2).standard_normal(N)
    with pm.Model() as model:
        ls = pm.InverseGamma("ls", 3, 3)
        gp = pm.gp.Marginal(cov_func=pm.gp.cov.Matern32(1, ls=ls))
        gp.marginal_likelihood("y", X, y, sigma=pm.HalfNormal("sigma"))
    idata = faked(model)
    tree = lgm.leave_one_out(idata, model, random_seed=1, progressbar=False)
    for i in range(2):
        ls, sigma = (float(idata["posterior"][v].values[0, i]) for v in ("ls", "sigma"))
        K = pm.gp.cov.Matern32(1, ls=ls)(X).eval() + (sigma**2 + 1e-6) * np.eye(N)
        P = np.linalg.inv(K)
        density = norm.logpdf(P @ y / np.diag(P), scale=np.diag(P) ** -0.5)
        np.testing.assert_allclose(tree["log_likelihood"]["y"].values[0, i], density, atol=1e-6)
        groups = np.repeat(["a", "b", "c"], 4)
        without = lgm.leave_one_out(idata, model, groups=groups, progressbar=False)
        found = without["log_likelihood"]["y"].isel(chain=0, draw=i)
        assert list(found["group"].values) == ["a", "b", "c"]
        np.testing.assert_allclose(found, densities_without(K, y, groups), atol=1e-6)


def densities_without(K, y, groups):
    """log N(y; 0, K) less that of the other groups, for each group."""
    whole = multivariate_normal.logpdf(y, cov=K)
    others = [groups != g for g in np.unique(groups)]
    return [whole - multivariate_normal.logpdf(y[o], cov=K[np.ix_(o, o)]) for o in others]


def test_schools_are_left_out_as_gaussian_algebra_says():
    """The pupils of a school read its effect alone, so no draw enters its density."""
    school = np.array([2, 0, 1, 1, 0, 2, 1, 0])
    y = np.random.default_rng(3).standard_normal(8)
    with pm.Model() as model:
        b, u = pm.Normal("b"), pm.Normal("u", 0, 0.7, shape=3)
        pm.Normal("y", b + u[school], 0.5, observed=y)
    idata = faked(model)
    tree = lgm.leave_one_out(idata, model, groups=school, progressbar=False)
    found = tree["log_likelihood"]["y"]
    K = 1.0 + 0.49 * (school[:, None] == school) + 0.25 * np.eye(8)
    assert found.dims == ("chain", "draw", "group")
    np.testing.assert_allclose(found.values[0], [densities_without(K, y, school)] * 2, atol=1e-6)
    with pytest.raises(ValueError, match="Write a label for each observation"):
        lgm.loo(idata, model, groups=school[:4], progressbar=False)
    with pytest.raises(ValueError, match="none is left to predict it from"):
        lgm.loo(idata, model, groups=np.zeros(8), progressbar=False)
    for none in (np.nan, None):
        with pytest.raises(ValueError, match=rf"no label for observation 1 \({none}\)"):
            lgm.loo(idata, model, groups=[*"a", none, *"bbccdd"], progressbar=False)
        with pytest.raises(ValueError, match="no label for observation 7"):
            lgm.loo(idata, model, groups=np.array([*range(7), none], float), progressbar=False)


# Draws of theta and f together

T = np.arange(4.0)
COUNTED = np.array([1, 0, 2, 3])


def with_an_onset():
    """Counts that rise after an onset, whose prior is normal: its term is not affine in it."""
    with pm.Model() as model:
        u, onset = pm.Normal("u", 0, 1, shape=2), pm.Normal("onset", 1.5, 1)
        rate = pm.math.exp(u[[0, 1, 0, 1]] + 0.3 * pm.math.maximum(T - onset, 0))
        pm.Poisson("y", rate, observed=COUNTED)
    return model


def draws_with_an_onset(rng, size):
    """Independent draws of the posterior on a grid, and log p(y_k | y_-k)."""
    effect, at = np.linspace(-4.5, 3.5, 81), np.linspace(-3.0, 6.0, 91)
    u, v, onset = (each.ravel() for each in np.meshgrid(effect, effect, at))
    eta = np.stack([u, v, u, v], axis=-1) + 0.3 * np.maximum(T - onset[..., None], 0)
    ell = COUNTED * eta - np.exp(eta) - gammaln(COUNTED + 1)
    joint = ell.sum(axis=-1) + norm.logpdf([u, v]).sum(axis=0) + norm.logpdf(onset, 1.5)
    joint -= logsumexp(joint)
    at = rng.choice(joint.size, size=size, p=np.exp(joint))
    draws = {"u": np.stack([u, v], axis=-1)[at][None], "onset": onset[at][None]}
    exact = -logsumexp(joint[:, None] - ell, axis=0)
    return az.from_dict({"posterior": draws}), exact


@pytest.mark.slow
def test_a_normal_variable_may_be_named_as_a_hyperparameter():
    """Samplers and terms read the model in the same way."""
    idata, _ = draws_with_an_onset(np.random.default_rng(31), 20)
    with with_an_onset() as model:
        step = lgm.EllipticalSlice(model["u"], theta=[model["onset"]])
        assert (step.lgm.latents, step.lgm.theta_names) == (("u",), ())
        read = lgm.PseudoMarginal(theta="onset").lgm
        assert (read.latents, read.theta_names) == (("u",), ("onset",))
        named = lgm.read(theta=["onset"])
        assert (named.latents, named.theta_names) == (read.latents, read.theta_names)
        terms = lgm.terms(idata, theta=["onset"])
        with pytest.raises(ValueError, match=r"once onset is known, write theta=\['onset'\]"):
            lgm.terms(idata)
        for wrong in (lambda: lgm.PseudoMarginal(theta=["on"]), lambda: lgm.loo(idata, theta="?")):
            with pytest.raises(ValueError, match="' cannot be part of theta"):
                wrong()
        with pytest.raises(ValueError, match="'u' cannot be part of theta"):
            lgm.read(latent="u", theta=["u"])
    posterior = idata["posterior"]
    assert set(terms) == {"u", "constant"}
    np.testing.assert_allclose(terms["u"], posterior["u"].values[..., [0, 1, 0, 1]])
    rise = 0.3 * np.maximum(T - posterior["onset"].values[..., None], 0)
    np.testing.assert_allclose(terms["constant"], rise, atol=1e-12)


def test_a_variable_with_missing_values_has_its_name():
    """PyMC calls what was observed of it y_observed."""
    with pm.Model() as model:
        u = pm.Normal("u", 0.0, 1.0, shape=3)
        with pytest.warns(pm.exceptions.ImputationWarning):
            pm.Normal("y", u, 1.0, observed=np.array([0.3, np.nan, -0.2]))
    draws = {"u": np.zeros((1, 4, 3)), "y_unobserved": np.zeros((1, 4, 1))}
    idata = az.from_dict({"posterior": draws})
    by_name, by_part = (lgm.terms(idata, model=model, var_name=y) for y in ("y", "y_observed"))
    assert by_name.identical(by_part)
    with pytest.raises(ValueError, match="name one of them, as in var_name='y_observed'"):
        lgm.terms(idata, model=model, var_name="z")


@pytest.mark.parametrize("read", [lgm.read, lgm.PseudoMarginal])
def test_the_only_process_is_no_hyperparameter(read):
    """Its name in theta= was passed over in silence."""
    with pm.Model():
        f = pm.MvNormal("f", mu=[0.0, 0.0], cov=[[1.0, 0.5], [0.5, 1.0]])
        pm.Poisson("y", mu=pm.math.exp(f), observed=[2, 1])
        with pytest.raises(ValueError, match="'f' cannot be part of theta"):
            read(theta="f")


@pytest.mark.slow
@pytest.mark.parametrize("theta", ["onset", None])
def test_densities_are_exact_whether_a_normal_variable_is_a_hyperparameter(theta):
    idata, exact = draws_with_an_onset(np.random.default_rng(31), 400)
    model = with_an_onset()
    tree = lgm.leave_one_out(idata, model, theta=theta, progressbar=False)
    found = lgm.loo(idata, model, theta=theta, progressbar=False)
    weights = np.exp(-tree["log_likelihood"]["y"].values[0])
    error = weights.std(axis=0) / weights.mean(axis=0) / np.sqrt(400)
    z = (found.elpd_i.values - exact) / np.hypot(error, 1e-3)
    assert np.abs(z).max() < norm.isf(1e-3 / 2 / 4)


# What is refused


def refused(match, idata=None, model=None, **kwargs):
    with pytest.raises(ValueError, match=match):
        lgm.leave_one_out(
            faked(model) if idata is None else idata, model, progressbar=False, **kwargs
        )


def test_what_conditional_adds_after_sampling_is_left_alone():
    with pm.Model() as model:
        gp = pm.gp.Latent(cov_func=pm.gp.cov.Matern32(1, ls=1.0))
        f = gp.prior("f", X, reparameterize=False, jitter=1e-6)
        pm.Poisson("y", pm.math.exp(f), observed=np.arange(N) % 3)
    idata = faked(model)
    before = lgm.leave_one_out(idata, model, random_seed=1, progressbar=False)
    with model:
        gp.conditional("f_new", X + 0.1)
    after = lgm.leave_one_out(idata, model, random_seed=1, progressbar=False)
    assert after["log_likelihood"].equals(before["log_likelihood"])
    with pytest.raises(ValueError, match="2 draws are too few for Pareto k"):
        lgm.loo(idata, model, progressbar=False)


def test_an_observation_that_alone_says_something_of_an_element_is_refused():
    """Its cavity is the prior, which is lost in rounding beside the posterior."""
    with pm.Model() as model:
        a = pm.Normal("a", 0.0, 1e8, shape=2)
        pm.Normal("y", a[[0, 1, 1]], 1.0, observed=[0.0, 1.0, 2.0])
    refused("its integral was not found", model=model)


def test_says_what_cannot_be_left_out():
    with pm.Model() as model:
        f = pm.MvNormal("f", mu=np.zeros(4), cov=np.eye(4))
        pm.Normal("y", f[:2] * f[2:], 1.0, observed=[0.0, 1.0])
    with pytest.raises(ValueError, match=r"y reads several elements.*from the draws"):
        lgm.terms(faked(model), model=model)
    refused("has latent variables of its own", model=model, groups=[0, 1])
    with pm.Model() as potential:
        f = pm.MvNormal("f", mu=np.zeros(2), cov=np.eye(2))
        pm.Potential("p", -(f**2))
    refused(r"No observed variable depends on 'f', only \['p'\]", model=potential)
    with pm.Model() as joined:
        f = pm.MvNormal("f", mu=np.zeros(30), cov=np.eye(30))
        pm.Normal("y", (f**2).sum() * np.ones(2), 1.0, observed=[0.0, 1.0])
    refused("y reads several elements", model=joined)
    with pm.Model() as rows:
        f = pm.MvNormal("f", mu=np.zeros(3), cov=np.eye(3))
        pm.MvNormal("y", f[:, None] * np.ones(2), np.eye(2), observed=np.zeros((3, 2)))
    joint = "y has 3 joint densities of its 6 values"
    with pytest.raises(ValueError, match=rf"{joint}.*from the draws"):
        lgm.terms(faked(rows), model=rows)
    with pm.Model() as model:
        f = pm.MvNormal("f", mu=np.zeros(2), cov=np.eye(2))
        pm.Normal("y", f, 1.0, observed=[0.0, 1.0])
        pm.Poisson("z", pm.math.exp(f), observed=[0, 1])
    refused("name one of them", model=model)
    refused("name one of them", model=model, var_name="f")
    other = az.from_dict({"posterior": {"g": np.zeros((1, 2))}})
    refused("f is not in the posterior", other, model, var_name="y")
    draws = {"f": np.zeros((1, 2, 2))}
    stats = {"log_evidence": np.zeros((1, 2)), "approximate_log_evidence": np.zeros((1, 2))}
    trace = az.from_dict({"posterior": draws, "sample_stats": stats})
    refused("lgm.reweight", trace, model, var_name="y")
    with pm.Model() as read_on:
        f = pm.MvNormal("f", mu=np.zeros(2), cov=np.eye(2))
        y = pm.Normal("y", f, 1.0, observed=[0.0, 1.0])
        pm.Normal("z", 2.0 * y, 0.5, observed=[0.0, 2.0])
    refused(r"y is left out, but \['z'\] depend on it", model=read_on, var_name="y")
    with pm.Model() as summed:
        f = pm.MvNormal("f", mu=np.zeros(3), cov=np.eye(3))
        pm.Poisson("y", pm.math.exp(f), observed=[0, 2, 1])
        pm.Potential("p", -(f**2).sum())
    refused(r"p is one number, a sum over.*without \.sum\(\)", model=summed)
    with pm.Model() as in_a_potential:
        y = pm.Normal("y", pm.MvNormal("f", mu=np.zeros(2), cov=np.eye(2)), observed=[0.0, 1.0])
        pm.Potential("p", -(pm.HalfNormal("s") * y.sum()))
    refused(r"y is left out, but \['p'\] depend on it", faked(model), in_a_potential)
    tree = lgm.leave_one_out(faked(model), model, var_name="z", progressbar=False)
    assert tree["log_likelihood"]["z"].sizes == {"chain": 1, "draw": 2, "z_dim_0": 2}


def test_an_observation_that_stands_for_several_is_not_left_out():
    """Its density is a power of that of one, and the others have the same observation again."""
    with pm.Model() as model:
        f = pm.MvNormal("f", mu=np.zeros(2), cov=np.eye(2))
        pm.Normal("y", f, 1.0, observed=[0.0, 1.0], total_size=6)
        pm.Poisson("z", pm.math.exp(f), observed=[0, 1], total_size=2)
    refused(
        "y has total_size=, so each of its observations counts 3 times", model=model, var_name="y"
    )
    tree = lgm.leave_one_out(faked(model), model, var_name="z", progressbar=False)
    assert tree["log_likelihood"]["z"].sizes == {"chain": 1, "draw": 2, "z_dim_0": 2}


def test_data_that_have_been_replaced_since_the_draws_are_refused():
    """Covariates or observations: the draws are not of the posterior given the new ones."""
    with pm.Model() as model:
        x, data = pm.Data("x", [0.0, 1.0]), pm.Data("data", [1.0, 2.0])
        f = pm.MvNormal("f", mu=np.zeros(2), cov=np.eye(2))
        pm.Normal("y", f + x, 1.0, observed=data)
    idata = faked(model)
    # PyMC has data that are only observed values in the group of the observed variable.
    idata["constant_data"] = xr.DataTree(xr.Dataset({"x": ("i", [0.0, 1.0])}))
    idata["observed_data"] = xr.DataTree(xr.Dataset({"y": ("i", [1.0, 2.0])}))
    lgm.leave_one_out(idata, model, progressbar=False)
    for name, before in (("x", [0.0, 1.0]), ("data", [1.0, 2.0])):
        pm.set_data({name: [5.0, 6.0]}, model=model)
        refused(f"data {name} of the model have been replaced", idata, model)
        pm.set_data({name: before}, model=model)


def test_observations_of_another_model_are_refused():
    """As `pymc.observe` makes it: they are constants, which nothing was compared with."""
    with pm.Model() as model:
        f = pm.MvNormal("f", mu=np.zeros(2), cov=np.eye(2))
        pm.Normal("y", f, 1.0)
    idata = faked(model := pm.observe(model, {"y": [1.0, 2.0]}))
    idata["observed_data"] = xr.DataTree(xr.Dataset({"y": ("i", [5.0, 6.0])}))
    refused("data y of the model have been replaced", idata, model)


def test_an_observed_variable_that_was_added_after_the_draws_is_refused():
    """The densities of y were given z, and the draws were not."""
    with pm.Model() as model:
        f = pm.MvNormal("f", mu=np.zeros(2), cov=np.eye(2))
        pm.Normal("y", f, 1.0, observed=[1.0, 2.0])
    idata = faked(model)
    idata["observed_data"] = xr.DataTree(xr.Dataset({"y": ("i", [1.0, 2.0])}))
    with model:
        pm.Normal("z", f, 0.1, observed=[3.0, 3.0])
    refused(r"observed variables \['z'\], and the trace was drawn without them", idata, model)


def test_a_part_of_a_variable_is_refused():
    """It was an IndexError of NumPy."""
    with pm.Model() as model:
        u = pm.Normal("u", 0, 1, shape=3)
        pm.Normal("y", u[[0, 1, 2, 2]], 1.0, observed=np.arange(4.0))
    part = faked(model).isel(u_dim_0=[0, 1])
    refused(r"u has shape \(2,\) in the trace, and \(3,\) in the model", part, model)


def test_labels_of_several_types_are_refused():
    with pm.Model() as model:
        f = pm.MvNormal("f", mu=np.zeros(2), cov=np.eye(2))
        pm.Normal("y", f, 1.0, observed=[1.0, 2.0])
    refused("write all as strings", model=model, groups=np.array([1, "a"], dtype=object))


@pytest.mark.parametrize("fix", [pm.observe, pm.do])
def test_a_variable_that_was_drawn_and_has_become_data_is_refused(fix):
    """Draws of f were of all scales, and their densities of one."""
    with pm.Model() as model:
        scale = pm.HalfNormal("scale")
        f = pm.MvNormal("f", mu=np.zeros(2), cov=scale**2 * np.eye(2))
        pm.Normal("y", f, 1.0, observed=[1.0, 2.0])
    idata = faked(model)
    refused(r"draws of \['scale'\], which are data in the model", idata, fix(model, {"scale": 0.1}))


def test_data_of_a_trace_may_be_rounded_and_in_another_order():
    """Both were called replaced."""
    with pm.Model(coords={"i": ["a", "b"]}) as model:
        x, data = pm.Data("x", [0.1, 1.3], dims="i"), pm.Data("data", [1.7, 2.0])
        f = pm.MvNormal("f", mu=np.zeros(2), cov=np.eye(2), dims="i")
        pm.Normal("y", f + x, 1.0, observed=data, dims="i")
    tree = lambda values: xr.DataTree(xr.Dataset(values, {"i": ["b", "a"]}))  # noqa: E731
    idata = faked(model)
    idata["constant_data"] = tree({"x": ("i", np.array([1.3, 0.1], np.float32))})
    idata["observed_data"] = tree({"y": ("i", np.array([2.0, 1.7], np.float32))})
    lgm.leave_one_out(idata, model, progressbar=False)


def test_densities_that_no_draw_changes():
    """With normal noise and without hyper-parameters: ArviZ's fit to equal weights is NaN."""
    y, group = np.array([0.3, 1.2, -0.5, 0.9]), np.array([0, 1, 0, 1])
    with pm.Model() as model:
        u = pm.Normal("u", 0, 1, shape=2)
        pm.Normal("y", u[group], 0.5, observed=y)
    draws = np.random.default_rng(0).standard_normal((2, 100, 2))
    found = lgm.loo(az.from_dict({"posterior": {"u": draws}}), model, progressbar=False)
    other = y[[2, 3, 0, 1]]
    expected = norm.logpdf(y, other / 1.25, np.sqrt(0.2 + 0.25))
    np.testing.assert_allclose(found.elpd_i, expected, atol=1e-6)
    assert (found.pareto_k < 0.7).all()


def test_effective_parameters_are_those_of_the_whole_fit():
    """p_loo is the fit to all data less elpd: of y ~ N(f, 1), f ~ N(0, 1) in closed form."""
    y = np.array([0.3, -1.0, 2.0])
    with pm.Model() as model:
        f = pm.MvNormal("f", mu=np.zeros(3), cov=np.eye(3))
        pm.Normal("y", f, 1.0, observed=y)
    draws = y / 2 + np.sqrt(0.5) * np.random.default_rng(0).standard_normal((2, 2000, 3))
    trace = az.from_dict({"posterior": {"f": draws}})
    found = lgm.loo(trace, model, thin=20, progressbar=False)
    np.testing.assert_allclose(found.elpd, norm.logpdf(y, 0.0, np.sqrt(2.0)).sum(), atol=1e-6)
    fit = norm.logpdf(y, y / 2, np.sqrt(1.5)).sum()
    np.testing.assert_allclose(found.p, fit - found.elpd, atol=0.15)
