"""Models that are sums of families: what is read of them is what PyMC's density says."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from test_sums import W_OF_MAP

import pymc_lgm as lgm

from pymc_lgm.compile.graphs.functions import shape_of
from pymc_lgm.model.forms.sum import SumPredictor

pytestmark = pytest.mark.usefixtures("interpreted")

MODELS = {}


def model(build):
    MODELS[build.__name__] = build
    return build


@model
def trend_season_and_covariate():
    s = pm.HalfNormal("s", 1, shape=2)
    first = pm.Normal.dist(0, 1)
    trend = pm.GaussianRandomWalk("trend", sigma=s[0], init_dist=pm.Normal.dist(1, 2), shape=10)
    season = pm.AR("season", rho=-np.ones(3), sigma=s[1], init_dist=first, shape=10)
    return trend + season + pm.Normal("b", 0, 1) * (np.arange(10) > 6)


@model
def walk_of_standard_normals():
    z = pm.Normal("z", 0, 1, shape=8)
    return pm.HalfNormal("s", 1) * pt.cumsum(pt.cumsum(z)) + pm.Normal("a", 0, 1)


@model
def walk_of_scaled_normals_that_are_read_too():
    z = pm.Normal("z", 0.2, 1, shape=8)
    s = pm.HalfNormal("s", 1)
    return pt.cumsum(s * z) + 0.5 * z + pm.Normal("a", 0, 1)


@model
def walk_that_is_discounted():
    """A cumulative product of theta, which is not a sum."""
    z, s = pm.Normal("z", 0.1, 1, shape=8), pm.HalfNormal("s", 1)
    return pt.cumsum(s * z) * pt.cumprod(pt.repeat(0.5 + s, 8)) + pm.Normal("a", 0, 1)


@model
def coefficients_that_walk():
    """Cumulative sums along the first axis, with a scale for each column."""
    z = pm.Normal("z", 0.1, np.array([[1.0, 0.5]]), shape=(8, 2))
    walks = pm.Normal("b", 0, 1, shape=2) + pt.cumsum(z * pm.HalfNormal("s", 1, shape=2), axis=0)
    return pt.sum(np.linspace(0.5, 3, 16).reshape(8, 2) ** [1, -1] * walks, axis=1)


@model
def walks_of_walks_in_rows():
    """The second sums are of the second axis, counted from the last."""
    z = pm.Normal("z", 0, 1, shape=(3, 4))
    s = pm.HalfNormal("s", 1, shape=(3, 1))
    return pt.cumsum(s * pt.cumsum(z, axis=-1), axis=1) + 0.3 * z + pm.Normal("a", 0, 1)


@model
def walk_whose_first_value_is_a_step():
    z, s = pm.Normal("z", 0.1, 1, shape=7), pm.HalfNormal("s", 1)
    return pt.cumsum(pt.concatenate([pm.Normal("a", 0, 2)[None], s * z]))


@model
def level_and_slope_of_standard_normals():
    s = pm.HalfNormal("s", 1, shape=2)
    slope = pm.Normal("d", 0, 1) + pt.concatenate(
        [[0.0], pt.cumsum(pm.Normal("w", shape=6) * s[0])]
    )
    steps = pt.cumsum(2 * (slope + pm.Normal("z", 0.1, 1, shape=7) * s[1]))
    return pm.Normal("a", 0, 2) + pt.concatenate([[0.0], steps])


@model
def walk_whose_scales_have_a_sum_in_their_prior():
    s = pm.HalfNormal("s", pt.cumsum(pm.HalfNormal("w", 1, shape=8)), shape=8)
    return s * pt.cumsum(pm.Normal("z", shape=8)) + pm.Normal("a", 0, 1)


@model
def level_and_slope():
    s, first = pm.HalfNormal("s", 1, shape=2), pm.Normal.dist(0.1, 1)
    slope = pm.GaussianRandomWalk("slope", sigma=s[0], init_dist=first, shape=8)
    level = pm.GaussianRandomWalk("level", mu=0.2, sigma=s[1], init_dist=first, shape=8)
    return level + pt.cumsum(slope)


@model
def panel_of_autoregressions():
    s, first = pm.HalfNormal("s", 1, shape=3), pm.Normal.dist(0.5, 2)
    rho = pm.Normal("rho", 0, 0.5, shape=(3, 3))
    x = pm.AR("x", rho=rho, constant=True, sigma=s, init_dist=first, shape=(3, 5))
    return x + pm.Normal("b", 0, 1)


@model
def panel_of_walks():
    s = pm.HalfNormal("s", 1, shape=3)
    first = pm.Normal.dist(np.arange(3.0), s)
    x = pm.GaussianRandomWalk("x", mu=np.arange(3.0), sigma=s, init_dist=first, shape=(3, 5))
    return x + pm.Normal("b", 0, 1)


@model
def walk_of_vectors():
    chol, *_ = pm.LKJCholeskyCov("chol", n=3, eta=2, sd_dist=pm.HalfNormal.dist(1))
    first = pm.MvNormal.dist(np.ones(3), np.eye(3) + 0.3)
    return pm.MvGaussianRandomWalk(
        "x", mu=[0.0, 0.1, 0.2], chol=chol, init_dist=first, shape=(5, 3)
    )


@model
def map_beside_series():
    s, W = pm.HalfNormal("s", 1, shape=2), W_OF_MAP.toarray()
    first = pm.Normal.dist(0, 1)
    f = pm.AR("f", rho=[2.0, -1.0], sigma=s[1], init_dist=first, shape=4)
    return s[0] * pm.ICAR("phi", W=W) + pm.Normal("v", 0, s[1], shape=6) + f[[0, 1, 3, 3, 2, 0]]


@model
def correlated_slopes():
    chol, *_ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=pm.HalfNormal.dist(1))
    b = pm.MvNormal("b", pm.Normal("mu", 0, 1, shape=2), chol=chol, shape=(4, 2))
    g = np.arange(9) % 4
    return b[g, 0] + b[g, 1] * np.linspace(-1, 1, 9)


@model
def range_that_theta_moves():
    a, t = pm.Normal("a", 0, 1, shape=2), np.arange(7.0)
    return a[0] * pt.exp(-pm.HalfNormal("rate", 1) * t) + a[1] * pt.maximum(pm.Normal("k") - t, 0)


@model
def process_beside_groups():
    scale, length = pm.HalfNormal("scale", 1), pm.InverseGamma("length", 3, 1)
    gp = pm.gp.Latent(cov_func=scale**2 * pm.gp.cov.Matern32(1, ls=length))
    f, u = gp.prior("f", np.arange(4.0)[:, None]), pm.Normal("u", 0, scale, shape=3)
    return f[[0, 1, 2, 3, 0, 1]] + u[[0, 0, 1, 1, 2, 2]]


@model
def effects_of_a_part_of_a_batch():
    s = pm.HalfNormal("s", 1, shape=2)
    K = s[:, None, None] ** 2 * (np.eye(2) + 0.4)
    u = pm.MvNormal("u", np.zeros(2), K, shape=(3, 2, 2))
    return u.sum(axis=-1).ravel() + pm.Normal("a", 0, 1)


def with_lengths():
    """Of the model that is being written."""
    built = pm.modelcontext(None)
    for name, length in (("subject", 3), ("time", 4), ("element", 2)):
        built.add_coord(name, range(length))


@model
def panel_whose_lengths_dims_say():
    with_lengths()
    s, first = pm.HalfFlat("s"), pm.Normal.dist(0, 1)
    rho = pm.Uniform("rho", -1, 1, dims="subject")
    w = pm.GaussianRandomWalk("w", sigma=s, init_dist=first, dims=("subject", "time"))
    x = pm.AR("x", rho=rho[:, None], sigma=s, init_dist=first, dims=("subject", "time"))
    return w + x


@model
def walk_of_vectors_whose_lengths_dims_say():
    with_lengths()
    mean = pm.HalfNormal("mean", 1) * np.ones(2)
    first = pm.MvNormal.dist(mean, np.eye(2))
    cov = np.eye(2) + 0.3
    x = pm.MvGaussianRandomWalk(
        "x", mu=np.zeros(2), cov=cov, init_dist=first, dims=("time", "element")
    )
    return x + pm.Normal("b", 0, 1, dims="element")


@model
def walk_in_a_mean_times_a_coefficient():
    s, first = pm.HalfNormal("s", 1, shape=2), pm.Normal.dist(0, 1)
    w = pm.GaussianRandomWalk("w", sigma=s[0], init_dist=first, shape=14)
    e = pm.Normal("e", pm.Normal("k", 1, 0.5) * w, s[1], shape=14)
    return pt.concatenate([w, e])


@model
def effects_whose_sum_is_near_zero():
    s, first = pm.HalfNormal("s", 1, shape=2), pm.Normal.dist(0, 1)
    w = pm.GaussianRandomWalk("w", sigma=s[0], init_dist=first, shape=14)
    u = pm.Normal("u", 0, s[1], shape=14)
    pm.Potential("zero_sum", pm.logp(pm.Normal.dist(0, 0.1), pt.sum(u)))
    return w + u


@pytest.fixture
def forced(monkeypatch):
    """Small models, too, are read as sums."""
    monkeypatch.setattr("pymc_lgm.model.forms.sum._is_cheaper", lambda *sizes: True)


def read_by_name(name):
    with pm.Model() as built:
        eta = MODELS[name]()
        shape = shape_of(eta)
        y = np.arange(np.prod(shape)).reshape(shape) % 4
        pm.Poisson("y", pm.math.exp(eta), observed=y)
    return lgm.read(built)


@pytest.mark.fast("walk_of_scaled_normals_that_are_read_too", "panel_of_walks")
@pytest.mark.parametrize("name", MODELS)
def test_a_sum_is_what_pymc_says(name, forced, quick):
    read = read_by_name(name)
    assert isinstance(read.form, SumPredictor)
    assert max(read.check(5).values()) < 1e-8


SUMMED = (
    "coefficients_that_walk",
    "walks_of_walks_in_rows",
    "walk_whose_first_value_is_a_step",
    "level_and_slope_of_standard_normals",
)


@pytest.mark.fast("coefficients_that_walk", "level_and_slope_of_standard_normals")
@pytest.mark.parametrize("name", SUMMED)
def test_sums_of_steps_are_walks(name, forced, quick):
    """An element of the predictor reads few of them, not all steps before it."""
    read = read_by_name(name)
    assert "cumulative sums" in repr(read)
    assert read.form.layout.columns.size <= 5 * read.form.layout.E


def test_what_does_not_depend_on_theta_is_computed_once(forced, quick):
    """Neither A nor c is computed again, and one covariance of all vectors is not copied."""
    form = read_by_name("correlated_slopes").form
    one, two = (form.sum_at(np.full(3, x)) for x in (0.1, 0.2))
    assert one.A is two.A
    assert one.c is two.c
    assert one.families[-1].values[0].shape == (2, 2)
    assert (one.families[-1].elements != two.families[-1].elements).any()
    form = read_by_name("coefficients_that_walk").form
    one, two = (form.sum_at(np.full(form._setting.at.size, x)) for x in (0.1, 0.2))
    assert (one.A != two.A).any()


def two_predictors():
    g = np.arange(169) % 13
    s = pm.HalfNormal("s", 1, shape=2)
    u, v = pm.Normal("u", 0, s[0], shape=13), pm.Normal("v", 0, s[1], shape=13)
    mu = pm.math.exp(pm.Normal("b", 0, 1) * np.linspace(-1, 1, 169) + u[g])
    psi = pm.math.invlogit(pm.Normal("z", 0, 1) + v[g])
    pm.ZeroInflatedPoisson("y", psi=psi, mu=mu, observed=np.arange(169) % 3)


def leverage():
    sigma, phi = pm.HalfNormal("sigma", 1), pm.Beta("phi", 5, 2)
    first = pm.Normal.dist(0, sigma / pm.math.sqrt(1 - phi**2))
    h = pm.AR("h", rho=[phi], sigma=sigma, init_dist=first, shape=9)
    sd, rho = pm.math.exp(h[:-1] / 2), pm.Uniform("rho", -1, 1)
    mean = rho * sd * (h[1:] - phi * h[:-1]) / sigma
    pm.Normal("y", mean, sd * pm.math.sqrt(1 - rho**2), observed=np.linspace(-1, 1, 8))


@pytest.mark.parametrize("build", [two_predictors, leverage])
def test_observations_that_read_several_elements(build, quick):
    """Shared by a group, an element of one predictor would join all observations of the group."""
    with pm.Model() as built:
        build()
    read = lgm.PseudoMarginal(model=built).lgm
    assert isinstance(read.form, SumPredictor)
    assert read.sets is not None
    assert read.sets.shape[1] == 2
    assert max(read.check(5).values()) < 1e-8


def test_a_panel_that_nothing_sparse_reads_is_refused(quick):
    """Each observation reads most elements of x, and no element is read by all."""
    reads = np.arange(600) % 4 != np.arange(4)[:, None]
    with pm.Model() as built:
        chol = np.eye(2)
        first = pm.MvNormal.dist(np.zeros(2), np.eye(2))
        x = pm.MvGaussianRandomWalk("x", mu=np.zeros(2), chol=chol, init_dist=first, shape=(300, 2))
        pm.Poisson("y", pm.math.exp(reads.astype(float) @ x.ravel()), observed=[1, 0, 2, 1])
    with pytest.raises(ValueError, match="reads too many of its elements"):
        lgm.read(built)


@pytest.mark.parametrize(
    ("shape", "W", "said"),
    [((2, 6), W_OF_MAP.toarray(), "a batch of pm.CAR"), (6, None, "pm.CAR of a map that may")],
)
def test_a_refusal_says_which_areas_are_not_read(shape, W, said, quick):
    """The refusal does not say that pm.CAR is never integrated out."""
    with pm.Model() as built:
        W = pm.Data("W", W_OF_MAP.toarray()) if W is None else W
        phi = pm.CAR("phi", mu=np.zeros(shape), W=W, alpha=0.5, tau=pm.Gamma("tau", 2, 1))
        u = pm.Normal("u", 0, 1, shape=6)
        pm.Poisson("y", pm.math.exp(phi + u), observed=np.ones(shape, dtype=int))
    with pytest.raises(ValueError, match=f"does not integrate out {said}"):
        lgm.read(built)


@pytest.mark.parametrize("all_read", [True, False])
def test_many_elements_of_x_may_be_read_by_all_of_eta(all_read):
    """Coefficients of 210 functions beside effects of groups, and a process drawn by a matrix."""
    rng = np.random.default_rng(1)
    phi = rng.standard_normal((1200, 210))
    phi = phi if all_read else np.tril(phi)
    with pm.Model() as model:
        b = pm.Normal("b", 0, pm.HalfNormal("s"), shape=210)
        u = pm.Normal("u", 0, pm.HalfNormal("t"), shape=600)
        pm.Poisson("y", pm.math.exp(phi @ b + u[np.arange(1200) % 600]), observed=np.ones(1200))
    read = lgm.read(model)
    assert isinstance(read.form, SumPredictor) == all_read
    assert max(read.check(2).values()) < 1e-8


def test_many_elements_of_x_are_not_read_by_sets_of_eta(monkeypatch):
    """Each pair of elements in a set would have 210 x 210 products."""
    monkeypatch.setattr("pymc_lgm.model.forms.sum._is_cheaper", lambda *sizes: True)
    rng = np.random.default_rng(1)
    phi = rng.standard_normal((2, 70, 210))
    with pm.Model() as model:
        b = pm.Normal("b", 0, pm.HalfNormal("s"), shape=210)
        u = pm.Normal("u", 0, pm.HalfNormal("t"), shape=35)
        mean = phi[0] @ b + u[np.arange(70) % 35]
        pm.Normal("y", mean, pm.math.exp(phi[1] @ b), observed=np.zeros(70))
    assert not isinstance(lgm.read(model).form, SumPredictor)


def test_basis_functions_alone_are_dense(quick):
    """Products of A with itself cost the same in both forms, and a dense factor costs less."""
    phi = np.random.default_rng(1).standard_normal((600, 60))
    with pm.Model() as model:
        b = pm.Normal("b", 0, pm.HalfNormal("s"), shape=60)
        pm.Poisson("y", pm.math.exp(phi @ b), observed=np.ones(600))
    assert not isinstance(lgm.read(model).form, SumPredictor)


@pytest.mark.parametrize("size", [{"shape": 4}, {"dims": "group"}])
def test_a_potential_may_read_the_shape_of_a_latent(size, quick):
    """The density of a pm.MvNormal does. The latent was in it, to be drawn for its shape."""
    with pm.Model(coords={"group": range(4)}) as model:
        b = pm.Normal("b", 0, pm.HalfNormal("s"), **size)
        pm.Potential("prior", pm.logp(pm.MvNormal.dist(np.zeros(4), np.eye(4)), b))
        pm.Poisson("y", pm.math.exp(pm.Normal("a") + b), observed=[1, 0, 2, 1])
    assert max(lgm.read(model).check(3).values()) < 1e-8
