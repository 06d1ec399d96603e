"""Missing observations: integrated out, and drawn given all else."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from close import close
from models import QUICK
from scipy import stats
from test_areas import W

import pymc_lgm as lgm

from pymc_lgm.approximations.variational import variational
from pymc_lgm.gaussian import BandedPrior, SumPrior
from pymc_lgm.model.forms.sum import SumPredictor
from pymc_lgm.model.missing import Missing
from pymc_lgm.state import AtTheta

pytestmark = [
    pytest.mark.usefixtures("interpreted"),
    pytest.mark.filterwarnings(
        "ignore:Data in y contains missing:pymc.exceptions.ImputationWarning"
    ),
]

Y = np.ma.masked_array([1, 0, 3, 2, 0, 1], mask=[0, 1, 0, 0, 1, 0])
SEEN = ~Y.mask
COV = np.exp(-0.3 * np.abs(np.subtract.outer(np.arange(6), np.arange(6))))


def normal(f, s, y):
    pm.Normal("y", f, s, observed=y)


def poisson(f, s, y):
    pm.Poisson("y", s * pm.math.exp(f), observed=y)


def gamma(f, s, y):
    """On the log scale, where PyMC has it."""
    pm.Gamma("y", 2.0, s * pm.math.exp(f), observed=y)


LAWS = {
    normal: lambda f, s: stats.norm(f, s),
    poisson: lambda f, s: stats.poisson(s * np.exp(f)),
    gamma: lambda f, s: stats.gamma(2.0, scale=np.exp(-f) / s),
}


def build(likelihood, whole=True):
    with pm.Model() as model:
        s = pm.HalfNormal("s", 1.0)
        f = pm.MvNormal("f", np.zeros(6), COV)
        likelihood(f if whole else f[SEEN], s, Y if whole else Y[SEEN])
    return model


@pytest.mark.fast("normal")
@pytest.mark.parametrize("likelihood", LAWS, ids=lambda make: make.__name__)
def test_missing_observations_leave_nothing_behind(likelihood, rng):
    """Neither in theta nor in the likelihood."""
    ours, theirs = (
        lgm.read(build(likelihood, whole), compile_kwargs=QUICK) for whole in (True, False)
    )
    assert ours.theta_names == ("s_log__",)
    assert [name.removesuffix("_log__") for name in ours.missing] == ["y_unobserved"]
    assert theirs.missing == ()
    for _ in range(3):
        f, theta = rng.standard_normal(6), rng.standard_normal(1)
        close(ours.log_likelihood(f, theta), theirs.log_likelihood(f, theta))


def pvalue(likelihood, rng, draws=1000):
    """That of draws of the two against their law; of counts by their randomized ranks."""
    ours = lgm.read(build(likelihood), compile_kwargs=QUICK)
    f, theta = np.array([0.3, -0.5, 0.1, 0.0, 0.9, 0.2]), np.array([-0.2])
    (name,) = ours.missing
    values = np.array([ours.missing_of(rng, theta, {"f": f})[name] for _ in range(draws)])
    values = np.exp(values) if likelihood is gamma else values
    law = LAWS[likelihood](f[~SEEN], np.exp(theta[0]))
    ranks = law.cdf(values)
    if likelihood is poisson:
        ranks -= rng.uniform(size=ranks.shape) * law.pmf(values)
    assert abs(np.corrcoef(ranks.T)[0, 1]) < 5.0 / np.sqrt(draws)
    return min(1.0, 2.0 * min(stats.kstest(column, "uniform").pvalue for column in ranks.T))


@pytest.mark.fast("poisson")
@pytest.mark.parametrize("likelihood", LAWS, ids=lambda make: make.__name__)
def test_they_are_drawn_from_their_law(likelihood, rng):
    assert pvalue(likelihood, rng) > 1e-4


@pytest.mark.mutant
def test_a_transform_that_is_forgotten_is_noticed(rng, monkeypatch, dies):
    """A point of PyMC has a positive number's logarithm."""
    draw = Missing.draw
    wrong = lambda self, rng, *values: [np.exp(value) for value in draw(self, rng, *values)]  # noqa: E731 (of one line)
    monkeypatch.setattr(Missing, "draw", wrong)
    dies("missing: without its transform", pvalue(gamma, rng), below=1e-6)


def test_a_step_draws_them(rng):
    model = build(poisson)
    with model:
        step = lgm.EllipticalSlice(compile_kwargs=QUICK, rng=1)
        assert [v.name for v in step.vars] == ["f", "y_unobserved"]
        point = model.initial_point()
        drawn = []
        for _ in range(20):
            point, _ = step.step(point)
            drawn.append(point["y_unobserved"])
    assert np.ptp(drawn, axis=0).min() > 0
    again = lgm.EllipticalSlice(model=model, compile_kwargs=QUICK, rng=1)
    point = model.initial_point()
    for each in drawn:
        point, _ = again.step(point)
        np.testing.assert_array_equal(point["y_unobserved"], each)


def test_what_a_density_reads_is_not_missing():
    with pm.Model() as model:
        f = pm.MvNormal("f", np.zeros(6), COV)
        z = pm.Normal("z", f[0], 1.0)
        pm.Poisson("y", pm.math.exp(f), observed=np.ones(6, dtype=int))
        pm.Potential("low", -pm.math.exp(z))
    ours = lgm.read(model, compile_kwargs=QUICK)
    assert ours.missing == ()


def of_a_covariate(lacks):
    """Responses, some missing, of a covariate that ``lacks`` some elements."""
    with pm.Model() as model:
        b, s = pm.Normal("b", 0.0, 1.0), pm.HalfNormal("s", 1.0)
        x = pm.Normal("x", 0.0, 1.0, observed=np.where(lacks, np.nan, np.arange(6.0)))
        pm.Normal("y", b * x, s, observed=Y)
    return model


@pytest.mark.filterwarnings("ignore:Data in x contains missing:pymc.exceptions.ImputationWarning")
def test_a_missing_response_of_a_missing_covariate():
    """Its mean has elements of the covariate, of which some are data and others are latent."""
    ours = lgm.read(of_a_covariate([False, True, True, False, False, False]), compile_kwargs=QUICK)
    assert ours.latents == ("x_unobserved",)
    assert ours.missing == ("y_unobserved",)
    assert ours.theta_names == ("b", "s_log__")


@pytest.mark.filterwarnings("ignore:Data in x contains missing:pymc.exceptions.ImputationWarning")
def test_a_covariate_that_only_missing_responses_have_is_refused():
    with pytest.raises(ValueError, match="does not depend on 'x_unobserved'"):
        lgm.read(of_a_covariate(Y.mask), compile_kwargs=QUICK)


def test_a_support_that_a_transform_restricts_is_sampled():
    """Three ordered numbers are not three draws of the distribution that is written."""
    with pm.Model() as model:
        s, f = pm.HalfNormal("s", 1.0), pm.MvNormal("f", np.zeros(6), COV)
        ordered = pm.distributions.transforms.ordered
        pm.Normal("cuts", 0.0, s, shape=3, transform=ordered, initval=[-1.0, 0.0, 1.0])
        pm.Poisson("y", pm.math.exp(s * f), observed=np.ones(6, dtype=int))
    ours = lgm.read(model, compile_kwargs=QUICK)
    assert ours.missing == ()
    assert ours.theta_names == ("s_log__", "cuts_ordered__")


def test_a_prediction_in_the_model_is_drawn_too():
    with pm.Model() as model:
        f = pm.MvNormal("f", np.zeros(6), COV)
        pm.Poisson("y", pm.math.exp(f), observed=np.ones(6, dtype=int))
        pm.StudentT("tomorrow", nu=4, mu=f[5], sigma=0.5)
    ours = lgm.read(model, compile_kwargs=QUICK)
    assert ours.missing == ("tomorrow",)
    assert ours.theta_names == ()


@pytest.mark.fast("True")
@pytest.mark.parametrize("ours", [False, True])
def test_areas_without_an_observation_stay_sparse(ours, rng):
    """With effects of their own, that are integrated out where there is an observation."""

    def read(y, which):
        with pm.Model() as model:
            w, phi = pm.Normal("w", 0.0, 1.0, shape=6), pm.ICAR("phi", W=W, zero_sum_stdev=0.1)
            eta = pm.HalfNormal("scale", 0.7) * phi + 0.5 * w
            if ours:
                lgm.LogGaussianCox("y", f=eta[which], observed=y)
            else:
                pm.Poisson("y", pm.math.exp(eta)[which], observed=y)
        return lgm.read(model, compile_kwargs=QUICK)

    masked, seen = read(Y, slice(None)), read(Y[SEEN].data, np.flatnonzero(SEEN))
    assert isinstance(masked.form, SumPredictor)
    assert masked.missing == ("y_unobserved",)
    for _ in range(2):
        theta, values = rng.standard_normal(1), {k: rng.standard_normal(6) for k in ("w", "phi")}
        one, other = (
            model.log_likelihood(model.f_of(theta, model.point_of(theta) | values), theta)
            for model in (masked, seen)
        )
        close(one, other)
        known = []
        for model in (masked, seen):
            prior = model.prior(theta)
            of_eta = prior.covariance_times(np.eye(prior.n))[prior.rank :, prior.rank :]
            known.append(of_eta if len(of_eta) == SEEN.sum() else of_eta[np.ix_(SEEN, SEEN)])
        close(*known)


def series(whole, with_level, y=Y):
    with pm.Model() as model:
        sigma = pm.LogNormal("sigma", -0.5, 0.5)
        start = pm.Normal.dist(0.2, 0.7)
        x = pm.AR("x", [0.8], sigma, init_dist=start, shape=6)
        eta = x + (pm.Normal("level", 0.1, 0.6) if with_level else 0.0)
        pm.Poisson("y", pm.math.exp(eta if whole else eta[SEEN]), observed=y if whole else y[SEEN])
    return model


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")  # of NaN, by PyMC
@pytest.mark.parametrize("y", [Y, np.where(SEEN, Y.data, np.nan)], ids=["masked", "NaN"])
@pytest.mark.parametrize("with_level", [False, True])
def test_a_series_with_gaps_has_the_posterior_of_what_is_seen(with_level, y):
    """Evidence, and the best Gaussian where there are observations."""
    laws = []
    for whole in (True, False):
        model = series(whole, with_level, y)
        ours = lgm.read(model, compile_kwargs=QUICK)
        assert ours.missing == (("y_unobserved",) if whole else ())
        at = AtTheta.of(ours, np.array([-0.3]))
        assert isinstance(at.prior, SumPrior if with_level else BandedPrior)
        laws.append(variational(at.likelihood, at.prior, tolerance=1e-8))
    one, other = laws
    close(one.log_evidence, other.log_evidence)
    # Of a sum the predictor comes after the latent variables; the second may have what is seen only
    index = [np.flatnonzero(SEEN)] * 2
    if with_level:
        is_short = other.prior.n - other.prior.rank < SEEN.size
        index = [q.prior.rank + which for q, which in zip(laws, index, strict=True)]
        index[1] = other.prior.rank + np.arange(SEEN.sum()) if is_short else index[1]
    close(one.center[index[0]], other.center[index[1]], 1e-7)
    close(one.posterior.block(index[0]), other.posterior.block(index[1]), 1e-7)


@pytest.mark.slow
def test_a_step_fills_the_gaps_of_a_series():
    model, drawn = series(True, True), []
    step = lgm.PseudoMarginal(model=model, compile_kwargs=QUICK, rng=1)
    point = model.initial_point()
    for _ in range(10):
        point, _ = step.step(point)
        drawn.append(point["y_unobserved"])
    assert np.ptp(drawn, axis=0).min() > 0
    assert np.min(drawn) >= 0


def own_interval(b, s):
    pm.Uniform("z", 0.0, pm.math.exp(b) + 1.0)


def other_interval(b, s):
    interval = pm.distributions.transforms.Interval(0.2, 0.3)
    pm.Uniform("z", 0.0, pm.math.exp(b) + 1.0, default_transform=interval, initval=0.25)


def positive_scale(b, s):
    pm.Normal("z", b, s)


def sum_of_squares(b, s):
    pm.StudentT("z", nu=s + 2.0, mu=b, sigma=pm.math.sqrt(b**2 + s**2))


def scale_that_can_be_negative(b, s):
    pm.Normal("z", 0.0, b)


def bound_that_can_be_negative(b, s):
    pm.Uniform("z", 0.0, b)


def elements_with_scales_of_their_own(b, s):
    pm.Normal("z", 0.0, pm.math.stack([s, b]), shape=2)


def scales_of_which_one_is_set(b, s):
    pm.Normal("z", 0.0, pt.ones(2)[0].set(s), shape=2)


def scales_of_which_one_is_set_to_any_number(b, s):
    pm.Normal("z", 0.0, pt.ones(2)[0].set(b), shape=2)


def share_less_than_one(b, s):
    pm.Beta("z", 1.0 - pm.math.invlogit(b), s + 1.0)


def share_that_can_be_one(b, s):
    k = pm.Bernoulli("k", 0.5)
    pm.Beta("z", 1.0 - pt.constant([1.0, 0.5])[k], pm.math.exp(b))


def mean_with_a_factor_of_its_own(b, s):
    cov = pt.stack([pt.stack([2.0, b]), pt.stack([b, 2.0])])
    pm.Normal("z", pt.linalg.cholesky(cov) @ np.ones(2), s, shape=2)


OF_ONE = (own_interval, positive_scale, sum_of_squares, scales_of_which_one_is_set)
INTEGRATED = dict.fromkeys([*OF_ONE, share_less_than_one], True) | dict.fromkeys(
    [
        share_that_can_be_one,
        mean_with_a_factor_of_its_own,
        other_interval,
        scale_that_can_be_negative,
        scales_of_which_one_is_set_to_any_number,
        bound_that_can_be_negative,
        elements_with_scales_of_their_own,
    ],
    False,
)


@pytest.mark.fast("own_interval", "positive_scale")
@pytest.mark.parametrize("unread", INTEGRATED, ids=lambda make: make.__name__)
def test_what_nothing_reads_is_left_out_only_if_it_integrates_to_one(unread):
    with pm.Model(check_bounds=False) as model:
        b, s = pm.Normal("b", 1.0, 1.0), pm.HalfNormal("s", 1.0)
        f = pm.MvNormal("f", np.zeros(6), COV)
        unread(b, s)
        pm.Normal("y", f * pm.math.exp(b), s, observed=np.ones(6))
    ours = lgm.read(model, compile_kwargs=QUICK)
    (name,) = [v.name for v in model.value_vars if v.name.startswith("z")]
    assert (name in ours.missing) == INTEGRATED[unread]
    assert (name in ours.theta_names) != INTEGRATED[unread]


def process_of(make, **kwargs):
    X = np.linspace(0.0, 2.0, 6)[:, None]
    cov_func = pm.HalfNormal("eta") ** 2 * pm.gp.cov.Matern52(1, pm.HalfNormal("ls"))
    return make(cov_func=cov_func, **kwargs).prior("f", X)


def correlated_effects():
    chol, *_ = pm.LKJCholeskyCov("chol", n=2, eta=2.0, sd_dist=pm.HalfNormal.dist(1.0, shape=2))
    return (pm.Normal("z", 0, 1, shape=(3, 2)) @ chol.T)[[0, 1, 2, 0, 1, 2], 0]


MEANS = {
    "a process": lambda: process_of(pm.gp.Latent),
    "a basis": lambda: process_of(pm.gp.HSGP, m=[5], c=1.5),
    "correlated effects": correlated_effects,
}


@pytest.mark.parametrize("mean", MEANS)
def test_missing_normal_observations_are_no_hyperparameters(mean):
    """That the mean is finite follows from its graph."""
    y = np.where(SEEN, 0.3, np.nan)
    with pm.Model() as model:
        eta = MEANS[mean]()
        with pytest.warns(pm.exceptions.ImputationWarning):
            pm.Normal("y", eta, 1.0, observed=y)
    ours = lgm.read(model, compile_kwargs=QUICK)
    assert ours.missing == ("y_unobserved",)
    assert "y_unobserved" not in ours.theta_names


def test_missing_shares_are_no_hyperparameters():
    """One less a probability is positive."""
    y = np.where(SEEN, 0.3, np.nan)
    with pm.Model() as model:
        mu = pm.math.invlogit(pm.MvNormal("f", np.zeros(6), COV))
        nu = pm.HalfNormal("nu", 9.0)
        with pytest.warns(pm.exceptions.ImputationWarning):
            pm.Beta("y", mu=mu, nu=nu, observed=y)
    assert lgm.read(model, compile_kwargs=QUICK).missing == ("y_unobserved_logodds__",)


@pytest.mark.slow
def test_a_prediction_whose_mean_is_latent_is_drawn_back():
    """That of a new effect, of which the mean of all effects is integrated out."""
    group, y = np.arange(12) % 4, np.arange(12) % 3
    with pm.Model() as model:
        d, s = pm.Normal("d", 0.0, 1.0), pm.HalfNormal("s", 1.0)
        delta = pm.Normal("delta", d, s, shape=4)
        pm.Poisson("y", pm.math.exp(delta[group]), observed=y)
        pm.Normal("delta_new", d, s)
    ours = lgm.read(model, compile_kwargs=QUICK)
    assert ours.missing == ("delta_new",)
    step, drawn = lgm.PseudoMarginal(model=model, compile_kwargs=QUICK, rng=1), []
    point = model.initial_point()
    for _ in range(10):
        point, _ = step.step(point)
        drawn.append(float(point["delta_new"]))
    assert np.ptp(drawn) > 0


@pytest.mark.parametrize("is_shared", [True, False], ids=["one covariance", "one for each row"])
def test_a_missing_row_whose_mean_is_not_affine(is_shared):
    """PyMC makes the missing rows of a multivariate normal a variable that no density reads."""
    y = np.array([[0.1, 0.4], [np.nan, np.nan], [-0.6, 0.2]])
    with pm.Model() as model:
        rho, k = pm.Uniform("rho", -1, 1), pm.Normal("k", 1, 0.5)
        u = pm.Normal("u", 0, 1, shape=3)
        cov = pt.stack([pt.stack([1.0, rho]), pt.stack([rho, 1.0])])
        cov = cov if is_shared else cov * np.array([1.0, 2.0, 3.0])[:, None, None]
        mean = pt.stack([u, k * pm.math.exp(u)], axis=1)
        pm.MvNormal("y", mean, cov=cov, observed=y)
    ours = lgm.read(model, compile_kwargs=QUICK)
    # A covariance that the missing row alone has may be singular: PyMC's density is then 0.
    assert ours.missing == (("y_unobserved",) if is_shared else ())
    assert ("y_unobserved" in ours.theta_names) != is_shared
    assert ours.latents == ("u",)
    assert max(ours.check(draws=3).values()) < 1e-6
