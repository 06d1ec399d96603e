"""Maps and series beside coefficients and effects, as sums; and effects that are integrated out."""

from functools import cache

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import test_areas

from close import close
from models import QUICK, joint_law
from pymc.distributions.multivariate import CARRV, ICARRV
from scipy import stats
from scipy.special import expit, logsumexp
from test_areas import W, Y

import pymc_lgm as lgm

from pymc_lgm.approximations import observation_effects
from pymc_lgm.approximations.gaussian import Effects
from pymc_lgm.approximations.log_concave import draw_log_concave
from pymc_lgm.approximations.observation_effects import ObservationEffects
from pymc_lgm.approximations.tilted import Marginals, effects_moments, quadrature_moments
from pymc_lgm.model.forms.sum import SumPredictor
from pymc_lgm.spatial import adjacency

pytestmark = [
    pytest.mark.usefixtures("interpreted"),
    pytest.mark.filterwarnings("ignore:Input has data type int64:FutureWarning"),
]

EXPOSED = np.array([1.5, 0.4, 1.0, 2.0, 0.7, 1.2])
POOR = np.array([0.3, -1.2, 0.8, 0.1, 1.4, -0.6])
AREA = np.array([0, 0, 2, 5, 1, 4, 0])
SOME = np.array([5, 0, 2, 4])
OFFSET = np.array([0.3, -0.2, 0.1, 0.0, 0.5, -0.4, 0.2])
MODELS = {}


def model(build):
    MODELS[build.__name__] = build
    return build


def seen(y=Y):
    return pm.Data("seen", y)


@model
def besag_york_mollie():
    """Structured and unstructured effects share one variance, and a covariate is beside them."""
    sigma, rho = pm.HalfNormal("sigma", 1.0), pm.Beta("rho", 2.0, 2.0)
    b0, b1 = pm.Normal("b0", 0.2, 0.5), pm.Normal("b1", -0.1, 0.4)
    w, phi = pm.Normal("w", 0.0, 1.0, shape=6), pm.ICAR("phi", W=W, zero_sum_stdev=0.05)
    eta = b0 + b1 * POOR + sigma * (pm.math.sqrt(1.0 - rho) * w + pm.math.sqrt(rho / 0.5) * phi)
    pm.Poisson("y", EXPOSED * pm.math.exp(eta), observed=seen())


@model
def effects_with_a_scale_of_their_own():
    """Centered effects, several coefficients, and a likelihood with a parameter."""
    scale, alpha = pm.HalfNormal("scale", 0.7), pm.LogNormal("alpha", 0.5, 0.3)
    b = pm.Normal("b", [0.1, -0.2], 0.5, shape=2)
    w = pm.Normal("w", 0.3, pm.HalfNormal("s", 0.6), shape=6)
    phi = pm.ICAR("phi", W=W, sigma=0.7, zero_sum_stdev=0.1)
    eta = scale * phi + w + pm.math.dot(np.column_stack([np.ones(6), POOR]), b)
    pm.NegativeBinomial("y", mu=EXPOSED * pm.math.exp(eta), alpha=alpha, observed=seen())


@model
def a_field_alone():
    """Nothing is integrated out."""
    scale = pm.HalfNormal("scale", 0.7)
    phi = pm.ICAR("phi", W=W, zero_sum_stdev=0.3)
    p = pm.math.invlogit(0.1 + scale * (1.0 + 0.1 * POOR) * phi)
    pm.Binomial("y", n=4, p=p, observed=seen())


@model
def areas_of_a_car():
    """The field has a mean of its own, in which a coefficient is."""
    alpha, tau = pm.Beta("alpha", 3, 2), pm.Gamma("tau", 6, 4)
    b0, b1 = pm.Normal("b0", 0.2, 0.5), pm.Normal("b1", -0.1, 0.4)
    w = pm.Normal("w", 0.0, 0.6 * pm.HalfNormal("s", 1.0), shape=6)
    phi = pm.CAR("phi", mu=0.1 * np.arange(6) + b1 * POOR, W=W, alpha=alpha, tau=tau)
    pm.Poisson("y", EXPOSED * pm.math.exp(b0 + phi + w), observed=seen())


@model
def a_series_with_a_level():
    """And counts that vary more than Poisson's."""
    rho, sigma = pm.Uniform("rho", -0.8, 0.8), pm.LogNormal("sigma", -0.7, 0.3)
    start = pm.Normal.dist(0.4, sigma / pm.math.sqrt(1 - rho**2))
    level, w = pm.Normal("level", 0.3, 0.5), pm.Normal("w", 0.0, 1.0, shape=6)
    x = pm.AR("x", [rho], sigma, init_dist=start, shape=6)
    pm.Poisson("y", pm.math.exp(level + x + 0.6 * w), observed=seen())


@model
def areas_of_which_some_are_seen():
    """In another order, and with an exposure."""
    scale, b = pm.HalfNormal("scale", 0.7), pm.Normal("b", 0.1, 0.4)
    w, phi = pm.Normal("w", 0.0, 1.0, shape=6), pm.ICAR("phi", W=W, zero_sum_stdev=0.1)
    area = b + scale * phi + 0.5 * w
    pm.Poisson("y", EXPOSED[SOME] * pm.math.exp(area[SOME]), observed=seen(Y[SOME]))


@model
def areas_of_which_the_rate_is_seen():
    """As PyMC writes missing counts: the rates of the others are picked."""
    w, phi = pm.Normal("w", 0.0, 1.0, shape=6), pm.ICAR("phi", W=W, zero_sum_stdev=0.1)
    rate = pm.math.exp(pm.HalfNormal("scale", 0.7) * phi + 0.5 * w)
    pm.Poisson("y", rate[SOME], observed=seen(Y[SOME]))


@model
def several_observations_an_area():
    """Each with an offset, so that they share effects; nothing is seen of the fourth area."""
    scale, b = pm.HalfNormal("scale", 0.7), pm.Normal("b", 0.1, 0.4)
    w, phi = pm.Normal("w", 0.0, 1.0, shape=6), pm.ICAR("phi", W=W, zero_sum_stdev=0.1)
    area = b + scale * phi + 0.5 * w
    pm.Poisson("y", pm.math.exp(area[AREA] + OFFSET), observed=seen(np.append(Y, 2)))


@model
def a_series_that_is_seen_now_and_then():
    """Nothing is integrated out, and the likelihood is not log-concave."""
    sigma, level = pm.LogNormal("sigma", -1, 0.5), pm.Normal("level", 0.3, 0.5)
    start = pm.Normal.dist(0.5, 0.7)
    x = pm.GaussianRandomWalk("x", mu=0.1, sigma=sigma, init_dist=start, shape=6)
    pm.StudentT("y", nu=4, mu=(level + x)[AREA], sigma=0.5, observed=seen(0.5 * np.append(Y, 2)))


NORTH, SOUTH = (adjacency(pairs) for pairs in ([(0, 1), (1, 2)], [(0, 1)]))
"""A map in two parts, and beside them one area is an island."""
FIRST, SECOND, ISLAND = np.array([4, 0, 2]), np.array([5, 1]), 3
PART = np.array([0, 1, 0, 2, 0, 1])
ONCE_EACH = np.array([0, 2, 5, 1, 4])
"""Areas that `AREA` has, as they come."""


@model
def a_map_in_parts():
    """Each with a scale of its own; the island has an effect in the place of a part."""
    sigma, rho = pm.HalfNormal("sigma", 1.0), pm.Beta("rho", 2.0, 2.0)
    b0, w = pm.Normal("b0", 0.2, 0.5), pm.Normal("w", 0.0, 1.0, shape=6)
    north = pm.ICAR("north", W=NORTH, zero_sum_stdev=0.1)
    south = pm.ICAR("south", W=SOUTH, zero_sum_stdev=0.2)
    island = pm.Normal("island", 0.1, pm.HalfNormal("s", 1.0), shape=1)
    phi = pt.concatenate([0.5 * north, 0.7 * south, island])
    eta = b0 + sigma * (pm.math.sqrt(1.0 - rho) * w + pm.math.sqrt(rho) * phi)
    pm.Poisson("y", EXPOSED * pm.math.exp(eta), observed=seen())


def in_parts():
    """By areas. Parts have a level each, and the island no effect but that of any area."""
    scale, w = pm.HalfNormal("scale", 0.7), pm.Normal("w", 0.2, 0.6, shape=6)
    level = pm.Normal("level", 0.1, 0.4, shape=3)
    north = pm.ICAR("north", W=NORTH, zero_sum_stdev=0.1)
    south = pm.CAR("south", 0.3 * np.ones(2), W=SOUTH, alpha=pm.Beta("alpha", 3, 2), tau=2.0)
    phi = pt.zeros(6)[FIRST].set(north)[SECOND].set(south)
    return level[PART] + scale * phi + w


@model
def a_map_in_parts_by_areas():
    """With an offset."""
    pm.Poisson("y", EXPOSED * pm.math.exp(in_parts()), observed=seen())


@model
def a_map_in_parts_without_its_island():
    """Nothing is seen of the island, and of an area of the south."""
    pm.Poisson("y", pm.math.exp(in_parts()[[0, 5, 2, 4]]), observed=seen(Y[SOME]))


@model
def areas_and_an_island_without_effects():
    """Seen several times."""
    alpha, tau = pm.Beta("alpha", 3, 2), pm.Gamma("tau", 6, 4)
    north, south = (
        pm.CAR(name, np.zeros(len(each)), W=each, alpha=alpha, tau=tau)
        for name, each in (("north", NORTH), ("south", SOUTH))
    )
    island = pm.Normal("island", 0.0, 0.8)
    area = pt.concatenate([north, south, island[None]]) + pm.Normal("level", 0.1, 0.4)
    pm.Poisson("y", pm.math.exp(area[AREA]), observed=seen(np.append(Y, 2)))


def build(make):
    with pm.Model() as model:
        make()
    return model


@cache
def read(name):
    return lgm.read(build(MODELS[name]), compile_kwargs=QUICK)


READ_FAST = ("besag_york_mollie", "a_map_in_parts")
"""A map, and one in parts: the others differ from them in details."""


@pytest.fixture(
    params=[
        pytest.param(name, marks=() if name in READ_FAST else pytest.mark.slow) for name in MODELS
    ]
)
def ours(request):
    return read(request.param)


def covariance(sigma, sd, W=W):
    """Of `pymc.ICAR`, whose mean has a standard deviation."""
    Q = (np.diag(W.sum(axis=1)) - W) / sigma**2
    return np.linalg.inv(Q + 1.0 / (len(W) * sd) ** 2)


# How it is read


ALL_IN_F = {
    "a_field_alone",
    "several_observations_an_area",
    "a_series_that_is_seen_now_and_then",
    "areas_and_an_island_without_effects",
}
"""Models of which no effects are integrated out."""


def test_a_sum_is_read_as_pymc_has_it(ours, request):
    assert isinstance(ours.form, SumPredictor)
    for latent in ours.latents:
        assert latent in repr(ours)
    has_effects = request.node.callspec.params["ours"] not in ALL_IN_F
    assert ("one per element of eta, integrated out" in repr(ours)) == has_effects
    assert max(ours.check(draws=4).values()) < 1e-6


def test_the_effects_and_coefficients_of_a_map_are_latent():
    ours = read("besag_york_mollie")
    assert ours.latents == ("b0", "b1", "w", "phi")
    assert ours.theta_names == ("sigma_log__", "rho_logodds__")


def test_latents_give_f(ours, rng):
    theta = 0.4 * rng.standard_normal(ours.p)
    prior, point = ours.prior(theta), ours.point_of(theta)
    for _ in range(3):
        f = prior.mean + prior.multiply(rng.standard_normal(prior.rank))
        drawn = ours.latents_of(rng, prior, f)
        assert list(drawn) == list(ours.latents)
        close(ours.f_of(theta, point | drawn), f, 1e-8)


@pytest.mark.fast("a_map_in_parts-s_log__-The covariance of 'island' is not positive definite")
@pytest.mark.parametrize(
    ("name", "hyper", "message"),
    [
        ("a_map_in_parts", "s_log__", "The covariance of 'island' is not positive definite"),
        ("areas_and_an_island_without_effects", "alpha_logodds__", "The precision of 'north'"),
    ],
)
def test_a_part_without_a_prior_is_named(name, hyper, message):
    ours = read(name)
    theta = np.where(np.array(ours.theta_names) == hyper, -900.0 if hyper == "s_log__" else 50, 0)
    assert ours.prior(theta) is None
    assert message in ours.form.explain(ours, ours.form.prior_of(ours), theta, "at the start")


def test_a_map_is_printed_with_the_kind_of_its_prior():
    assert ": intrinsic areas" in repr(read("besag_york_mollie"))


# That samplers leave their law


def draw_by_cholesky(cls, rng, W, sigma, zero_sum_stdev, size):
    """What PyMC has no draws of: its own density says what they are."""
    root = np.linalg.cholesky(covariance(sigma, zero_sum_stdev, W))
    return root @ rng.standard_normal(len(W))


@pytest.fixture
def drawn(monkeypatch):
    monkeypatch.setattr(ICARRV, "rng_fn", classmethod(draw_by_cholesky))
    monkeypatch.setattr(CARRV, "rng_fn", classmethod(test_areas.draw_by_cholesky))


SAMPLERS = {
    "PseudoMarginal": (lgm.PseudoMarginal, {"n_importance": 2}),
    "PseudoMarginal-moves": (
        lgm.PseudoMarginal,
        {"n_importance": 4, "latent_move": "hmc", "interweave": True, "move": "metropolis"},
    ),
    "ASIS": (lgm.ASIS, {}),
    "LatentHMC-curvature": (lgm.LatentHMC, {"metric": "curvature"}),
    "EllipticalSlice": (lgm.EllipticalSlice, {}),
}
CASES = [
    ("besag_york_mollie", "PseudoMarginal"),
    ("besag_york_mollie", "PseudoMarginal-moves"),
    ("effects_with_a_scale_of_their_own", "ASIS"),
    ("areas_of_which_some_are_seen", "EllipticalSlice"),
    ("a_series_that_is_seen_now_and_then", "LatentHMC-curvature"),
]
WHOLE = [
    ("besag_york_mollie", "EllipticalSlice"),
    ("besag_york_mollie", "LatentHMC-curvature"),
    ("effects_with_a_scale_of_their_own", "PseudoMarginal"),
    ("a_series_with_a_level", "PseudoMarginal"),
    ("areas_of_which_some_are_seen", "PseudoMarginal"),
    ("a_series_that_is_seen_now_and_then", "ASIS"),
    ("areas_of_a_car", "PseudoMarginal"),
    ("a_map_in_parts", "PseudoMarginal"),
    ("a_field_alone", "PseudoMarginal"),
    ("several_observations_an_area", "PseudoMarginal"),
    ("a_series_that_is_seen_now_and_then", "PseudoMarginal"),
    ("a_map_in_parts_by_areas", "PseudoMarginal"),
]
"""Before a release: models that differ little from one of the others."""


@cache
def shared(name):
    """A model that is read and compiled once for all samplers of it."""
    return build(MODELS[name])


def pvalue_of(name, cls, options, tune=0, replicates=300):
    test = joint_law(cls, shared(name), options=options, replicates=replicates, tune=tune)
    return test.pvalue


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "sampler"),
    [*CASES, *(pytest.param(*case, marks=pytest.mark.whole) for case in WHOLE)],
)
def test_every_sampler_leaves_the_joint_law(name, sampler, drawn):
    cls, options = SAMPLERS[sampler]
    tune = 60 if cls is lgm.PseudoMarginal else 0
    assert pvalue_of(name, cls, options, tune=tune, replicates=200) > 1e-4


@pytest.mark.mutant
def test_a_rule_that_forgets_its_weights_is_noticed(monkeypatch, dies):
    """N(w; 0, 1) dw in units of the rule is not N(x; 0, 1) dx."""
    rows, effects = np.array([[-1.0, 0.0, 1.0]]), ObservationEffects(*of_counts(0))
    right = effects.elements(rows, np.ones(3))
    rules = [
        (largest, x, np.zeros_like(weights)) for largest, x, weights in observation_effects.RULES
    ]
    monkeypatch.setattr(observation_effects, "RULES", rules)
    other = effects.elements(rows, np.ones(3))
    dies("effects: a rule without its weights", np.abs(right - other).max(), above=0.01)


# Effects that stay, and observations that another step tells apart


def not_log_concave():
    phi, w = pm.ICAR("phi", W=W), pm.Normal("w", 0, 1, shape=6)
    eta = pm.HalfNormal("s") * phi + w
    pm.StudentT("y", nu=4, mu=eta, sigma=0.5, observed=0.5 * Y)


def zeros_beside_a_rate():
    """Where a 0 is as likely either way the density bends up, which is far from where f begins."""
    phi, w = pm.ICAR("phi", W=W), pm.Normal("w", 0, 1, shape=6)
    rate = 1e5 * pm.math.exp(pm.HalfNormal("s") * phi + w)
    pm.ZeroInflatedPoisson("y", 0.7, rate, observed=np.zeros(6, int))


def outliers_where_the_noise_is_small():
    phi, w = pm.ICAR("phi", W=W), pm.Normal("w", 0, 1, shape=6)
    noise = pm.HalfNormal("noise", 1000.0)
    pm.StudentT("y", nu=4, mu=pm.HalfNormal("s") * phi + w, sigma=noise, observed=0.5 * Y)


@pytest.mark.slow
@pytest.mark.parametrize(
    "make", [not_log_concave, zeros_beside_a_rate, outliers_where_the_noise_is_small]
)
def test_effects_stay_if_a_density_is_not_log_concave(make):
    ours = lgm.read(build(make), compile_kwargs=QUICK)
    assert "integrated out" not in repr(ours)
    assert np.isfinite(ours.log_likelihood(np.zeros(ours.n), np.zeros(ours.p)))


X_OF = np.array([0.0, 1.0, 0.0, 1.0, -1.0, 0.5, 2.0])


@pytest.mark.slow
@pytest.mark.parametrize("discrete", [True, False])
def test_what_another_step_moves_may_tell_observations_of_an_area_apart(discrete):
    """A slope that begins at 0, or is switched off: all of an area read the same then."""
    with pm.Model() as made:
        on = pm.Bernoulli("on", 0.2) if discrete else pm.Normal("on")
        phi, s = pm.ICAR("phi", W=W), pm.HalfNormal("s")
        eta = 0.3 + s * phi[AREA] * (1.0 + 0.7 * on * X_OF)
        pm.Poisson("y", pm.math.exp(eta), observed=np.append(Y, 2))
    ours = lgm.read(made, [made["phi"]], [made["s"]], compile_kwargs=QUICK)
    for now in (0, 1):
        point = made.initial_point() | {"on": np.array(now, dtype=made["on"].dtype)}
        point["phi"] = np.linspace(-0.4, 0.4, 6)
        ours.read(point)
        theta = ours.theta_of(point)
        expected = made.compile_logp([made["y"]], **QUICK)(point)
        value = ours.log_likelihood(ours.f_of(theta, point), theta)
        assert value == pytest.approx(float(expected))


# Effects


def of_counts(y):
    """Poisson observations with a log rate: ℓ°, and with it its derivatives."""

    def derivatives(rows):
        rate = np.exp(rows)
        return y * rows - rate, y - rate, -rate, -rate

    return lambda rows: y * rows - np.exp(rows), derivatives


@pytest.mark.parametrize("y", [0, 3, 50])
def test_the_rule_is_as_good_as_it_says(y):
    """To 1e-6 with an effect of variance 1, against a sum over the line."""
    r = np.log(y + 0.5) + np.linspace(-3.0, 3.0, 25)
    (seen,) = ObservationEffects(*of_counts(y)).elements(r[None], np.ones(25))
    w = np.linspace(-10.0, 10.0, 4001)[:, None]
    values = y * (r + w) - np.exp(r + w) + stats.norm.logpdf(w) + np.log(0.005)
    np.testing.assert_allclose(seen, logsumexp(values, axis=0), atol=1e-6, rtol=0)


@pytest.mark.parametrize("d", [largest for largest, _ in observation_effects.FEWER])
@pytest.mark.parametrize("y", [0, 1, 3, 10, 50, 500])
def test_smaller_effects_need_fewer_nodes(y, d):
    """The largest for which each is used, within four standard deviations of f."""
    f = np.log(y + 0.5) + np.sqrt(d**2 + 1.0 / (y + 0.5)) * np.linspace(-4.0, 4.0, 25)
    (seen,) = ObservationEffects(*of_counts(y)).elements(f[None], np.full(25, d))
    w = np.linspace(-14.0, 14.0, 14_001)[:, None]
    values = y * (f + d * w) - np.exp(f + d * w) + stats.norm.logpdf(w) + np.log(0.002)
    np.testing.assert_allclose(seen, logsumexp(values, axis=0), atol=2e-7, rtol=0)


def of_trials(y, trials):
    """Binomial observations with a logit: ℓ°, and with it its derivatives."""

    def value(rows):
        return y * rows - trials * np.logaddexp(0.0, rows)

    def derivatives(rows):
        p = expit(rows)
        bend = -trials * p * (1.0 - p)
        return value(rows), y - trials * p, bend, bend * (1.0 - 2.0 * p)

    return value, derivatives


def brute_force(density, f, d):
    """Log integrals by 1601 trapezoids: 40 standard deviations to each side of each mode.

    The mode by bisection of the slope, which falls.
    """
    value, derivatives = density
    low, high = np.full(f.size, -400.0), np.full(f.size, 400.0)
    for _ in range(80):
        w = 0.5 * (low + high)
        with np.errstate(over="ignore"):
            up = d * derivatives(f + d * w)[1] - w > 0.0
        low, high = np.where(up, w, low), np.where(up, high, w)
    scale = 1.0 / np.sqrt(1.0 - d**2 * derivatives(f + d * w)[2])
    at = w + scale * np.linspace(-40.0, 40.0, 1601)[:, None]
    with np.errstate(over="ignore"):
        return logsumexp(value(f + d * at) + stats.norm.logpdf(at), axis=0) + np.log(0.05 * scale)


@pytest.mark.parametrize("y", [0, 1, 50])
@pytest.mark.parametrize("trials", [None, 1, 60])
@pytest.mark.parametrize("d", [1.1, 2.0, 4.0, 6.0])
def test_large_effects_are_integrated_to_the_end(y, trials, d):
    """Within four standard deviations of f. An integrand is a step there, or has a long tail."""
    if trials == 1 and y > 1:
        return
    density = of_counts(y) if trials is None else of_trials(y, trials)
    center = np.log(y + 0.5) if trials is None else np.log((y + 0.5) / (trials - y + 0.5))
    f = center + d * np.linspace(-4.0, 4.0, 41)
    exact, each = brute_force(density, f, d), ObservationEffects(*density)
    np.testing.assert_allclose(each.elements(f[None], np.full(41, d))[0], exact, atol=1e-4, rtol=0)
    value, slope, bend, _ = each.terms(f, np.full(41, d))
    np.testing.assert_allclose(value, exact, atol=1e-5, rtol=0)
    h = 1e-3
    below, above = (brute_force(density, f + step, d) for step in (-h, h))
    np.testing.assert_allclose(slope, (above - below) / (2 * h), atol=1e-4, rtol=0)
    np.testing.assert_allclose(bend, (above - 2 * exact + below) / h**2, atol=1e-3, rtol=0)


@pytest.mark.parametrize("density", [of_counts(0), of_trials(1, 1)], ids=["count", "label"])
def test_effects_of_any_size_are_integrated(density):
    """An integrand is a step of a width of 1 / d. With 512 intervals a sum errs by up to 0.09."""
    f, d = np.linspace(-9.0, 9.0, 100), 1000.0
    # The step is smooth in units of the predictor: a grid of half a unit misses less than 1e-8.
    w = np.linspace(-8.0, 8.0, round(32 * d))[:, None]
    with np.errstate(over="ignore"):
        values = density[0](f + d * w) + stats.norm.logpdf(w) + np.log(w[1] - w[0])
        (seen,) = ObservationEffects(*density).elements(f[None], np.full(100, d))
    assert abs(seen.sum() - logsumexp(values, axis=0).sum()) < 0.01


def lost_in_rounding(density):
    """The same as a computer may have it: derivatives that are 0/0, and a logarithm of 0."""
    value, derivatives = density

    def with_cut(rows):
        return np.where(value(rows) < -700.0, -np.inf, value(rows))

    def with_nan(rows):
        known = np.abs(rows) < 5.0
        return with_cut(rows), *(np.where(known, each, np.nan) for each in derivatives(rows)[1:])

    return with_cut, with_nan


@pytest.mark.parametrize("y", [0, 60])
@pytest.mark.parametrize("d", [1.0, 5.0])
def test_effects_are_found_from_where_a_density_is_lost_in_rounding(y, d):
    """As log Φ(9), whose slope PyTensor computes as 0/0, or log 0 of what is censored far out."""
    f, density = np.linspace(-20.0, 20.0, 31), of_trials(y, 60)
    each, scale = ObservationEffects(*lost_in_rounding(density)), np.full(31, d)
    (seen,) = each.elements(f[None], scale)
    np.testing.assert_allclose(seen, brute_force(density, f, d), atol=1e-4, rtol=0)
    exact, terms = ObservationEffects(*density).terms(f, scale), each.terms(f, scale)
    for one, other, error in zip(terms, exact, (1e-4, 1e-3, 1e-2), strict=False):
        np.testing.assert_allclose(one, other, atol=error, rtol=error)


def test_an_integral_does_not_depend_on_the_others():
    """So a density is one function of f and theta, however many draws are looked at."""
    f = np.linspace(-20.0, 20.0, 41)
    each, d = ObservationEffects(*of_counts(0)), np.full(41, 5.0)
    together = each.elements(np.array([f, f[::-1], 0.0 * f]), d)
    alone = [each.elements(np.array([[x]]), d[:1])[0, 0] for x in f]
    np.testing.assert_allclose(together[0], alone, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(together[1], alone[::-1], rtol=1e-13, atol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["counts", "binary", "trials"])
@pytest.mark.parametrize("sd", [0.1, 0.5, 1.0, 1.5, 4.0, 6.0])
def test_the_posterior_of_a_standard_deviation_is_exact(kind, sd, rng):
    """Of 10 000 areas: off by less than 0.02 of its own standard deviation.

    With 16 nodes it was off by 0.73 of it for counts at 4, of which half are zeros.
    """
    f = -0.5
    eta = f + sd * rng.standard_normal(10_000)
    trials = {"counts": 0, "binary": 1, "trials": 10}[kind]
    seen = rng.binomial(trials, expit(eta)) if trials else rng.poisson(np.exp(eta))
    y, many = np.unique(seen, return_counts=True)
    y, rows = y.astype(float), np.full(y.size, f)
    density = of_trials(y, trials) if trials else of_counts(y)

    def log_likelihood(log_sd, by):
        d = np.exp(log_sd)
        if by == "brute force":
            return many @ brute_force(density, rows, d)
        return many @ ObservationEffects(*density).elements(rows[None], np.full(y.size, d))[0]

    # The posterior is normal in the logarithm: where its top is, and how wide it is.
    at, h = np.log(sd), 0.05
    for _ in range(8):
        values = [log_likelihood(at + step, "brute force") for step in (-h, 0.0, h)]
        slope = (values[2] - values[0]) / (2 * h)
        bend = min((values[0] - 2 * values[1] + values[2]) / h**2, -10.0)
        at += np.clip(-slope / bend, -0.3, 0.3)
        if abs(slope) < 0.1 * np.sqrt(-bend):
            break
    width = 1.0 / np.sqrt(-bend)
    grid = at + width * np.linspace(-4.0, 4.0, 9)
    means = []
    for by in ("brute force", "ours"):
        terms = np.array([log_likelihood(x, by) for x in grid])
        share = np.exp(terms - terms.max())
        means.append(np.exp(grid) @ share / share.sum())
    exact = means[0]
    spread = exact * width
    assert abs(means[1] - exact) < 0.02 * spread


@pytest.mark.parametrize("d", [0.3, 1.0])
def test_derivatives_are_those_of_the_integral(d):
    """By complex steps of a sum over the line."""
    y, f, scale = 3, np.linspace(-2.0, 3.0, 11), np.full(11, d)
    terms = ObservationEffects(*of_counts(y)).terms(f, scale)
    w = np.linspace(-9.0, 9.0, 6001)[:, None]

    def integral(f):
        terms = y * (f + d * w) - np.exp(f + d * w) - 0.5 * w**2
        top = terms.real.max(axis=0)
        return top + np.log(np.exp(terms - top).sum(axis=0) * 0.003 / np.sqrt(2 * np.pi))

    # f(x + h) with h on a circle: the Taylor coefficients.
    h = 0.05 * np.exp(2j * np.pi * np.arange(8) / 8)
    around = np.array([integral(f + step) for step in h])
    for order, factor in enumerate((1.0, 1.0, 2.0, 6.0)):
        seen = factor * (around / h[:, None] ** order).mean(axis=0).real
        # The rule stays where it is: each order errs by about a factor of ten more than the last.
        np.testing.assert_allclose(terms[order], seen, atol=1e-6 * 10**order, rtol=0)


@pytest.mark.mutant
def test_a_third_derivative_without_its_covariance_is_noticed(monkeypatch, dies):
    """The second derivative enters the third by the covariance alone."""
    f, d, effects = np.linspace(-2.0, 3.0, 11), np.ones(11), ObservationEffects(*of_counts(3))
    right, derivatives = effects.terms(f, d)[3], observation_effects._derivatives

    def without_covariance(values, slope, bend, *others):
        terms = derivatives(values, slope, bend, *others)
        return (*terms[:3], derivatives(values, slope, np.zeros_like(bend), *others)[3])

    monkeypatch.setattr(observation_effects, "_derivatives", without_covariance)
    other = effects.terms(f, d)[3]
    dies("effects: a third derivative without a term", np.abs(right - other).max(), above=0.01)


def gumbel(w):
    """Skewed, and log-concave: log density and slope."""
    shift = np.linspace(-2.0, 3.0, w.shape[1])
    x = w - shift
    return -x - np.exp(-x), -1.0 + np.exp(-x)


def test_draws_have_the_law_of_the_density(rng):
    """From bad centers and scales: they matter for the time only."""
    shift = np.linspace(-2.0, 3.0, 4000)
    for center, scale in ((0.0, 1.0), (4.0, 0.1), (-3.0, 5.0)):
        w = draw_log_concave(rng, gumbel, np.full(4000, center), np.full(4000, scale))
        assert stats.kstest(w - shift, stats.gumbel_r.cdf).pvalue > 1e-4


class NeverRejects:
    """The third numbers of each round, which accept or reject, are almost 0."""

    def __init__(self, rng):
        self.rng, self.calls = rng, 0

    def random(self, size):
        self.calls += 1
        return np.full(size, 1e-300) if self.calls % 3 == 0 else self.rng.random(size)


@pytest.mark.mutant
def test_effects_that_are_never_rejected_are_noticed(rng, dies):
    """As if the density were its tangents."""
    shift, zero = np.linspace(-2.0, 3.0, 4000), np.zeros(4000)
    w = draw_log_concave(NeverRejects(rng), gumbel, zero, zero + 1.0)
    pvalue = float(stats.kstest(w - shift, stats.gumbel_r.cdf).pvalue)
    dies("effects: tangents always accepted", pvalue, below=1e-6)


def test_a_density_with_two_modes_is_refused(rng):
    def two_modes(w):
        return np.logaddexp(-2 * (w - 2) ** 2, -2 * (w + 2) ** 2), -4 * (w - 2 * np.tanh(8 * w))

    with pytest.raises(ValueError, match="not log-concave"):
        draw_log_concave(rng, two_modes, np.zeros(200), np.ones(200))


class Counts:
    """Poisson observations whose effects have been integrated out by a rule of their own."""

    def __init__(self, y, d):
        self._one, self._d = ObservationEffects(*of_counts(y)), np.full(3, d)
        self.effects = Effects(np.full(3, d), lambda rows: y * rows - np.exp(rows))

    def sites(self, rows):
        return self._one.elements(rows, self._d)


@pytest.mark.parametrize("y", [0, 3, 40])
@pytest.mark.parametrize("d", [0.05, 0.5, 1.0])
def test_moments_are_those_of_two_integrals(y, d):
    """At sites that are near the likelihood's."""
    likelihood, rate = Counts(y, d), y + np.array([0.6, 1.0, 1.5])
    W = rate / (1.0 + d**2 * rate)
    variance, mean, z = 1.0 / (W + np.array([0.8, 1.5, 2.0])), np.log(rate), np.zeros(3)
    q = Marginals(mean, np.array([0.1, 0.0, -0.1]), W, z, variance, 1.0 - W * variance)
    ours, theirs = effects_moments(likelihood.effects, q), quadrature_moments(likelihood, q)
    for one, two in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-5)


def test_an_observation_that_no_effect_explains_has_no_density_and_no_warning():
    """As one that is censored far out, whose logarithm has underflowed at all nodes."""

    def value(f):
        return np.full_like(f, -np.inf)

    def derivatives(f):
        zeros = np.zeros_like(f)
        return value(f), zeros, zeros, zeros

    each = ObservationEffects(value, derivatives)
    with np.errstate(invalid="raise"):
        found = each.elements(np.zeros((2, 3)), np.full(3, 5.0))
    assert np.isneginf(found).all()
