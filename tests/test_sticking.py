"""Models of the BUGS manual that chains once stuck in, as users write them, and what freed them."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import arviz as az
import numpy as np
import pymc as pm
import pytest

from models import QUICK
from toys import Counts, MadeTarget

import pymc_lgm as lgm
import pymc_lgm.approximations.recall as recall_module

from pymc_lgm.adaptation import History, ProposalTuning, StepSizeTuning
from pymc_lgm.approximations.ep import ep, misfit
from pymc_lgm.approximations.recall import recall
from pymc_lgm.approximations.site_coordinates import OneByOne
from pymc_lgm.approximations.sites import Margins, PredictedSites, Sites
from pymc_lgm.approximations.sites_line import SitesTuning
from pymc_lgm.gaussian import DensePrior
from pymc_lgm.linalg import tally
from pymc_lgm.model import refutations
from pymc_lgm.moves.latent import AdaptiveHMC
from pymc_lgm.moves.theta import Emulated
from pymc_lgm.moves.theta.climb import WORTH, climb
from pymc_lgm.moves.theta.emulated import EmulatorFit, EmulatorTuning
from pymc_lgm.moves.theta.survey import survey
from pymc_lgm.state import AtTheta, LikelihoodAt, State
from pymc_lgm.targets.target import FirstStage, Slope

RATS = """
151 199 246 283 320  145 199 249 293 354  147 214 263 312 328  155 200 237 272 297
135 188 230 280 323  159 210 252 298 331  141 189 231 275 305  159 201 248 297 338
177 236 285 350 376  134 182 220 260 296  160 208 261 313 352  143 188 220 273 314
154 200 244 289 325  171 221 270 326 358  163 216 242 281 312  160 207 248 288 324
142 187 234 280 316  156 203 243 283 317  157 212 259 307 336  152 203 246 286 321
154 205 253 298 334  139 190 225 267 302  146 191 229 272 302  157 211 250 285 323
132 185 237 286 331  160 207 257 303 345  169 216 261 295 333  157 205 248 289 316
137 180 219 258 291  153 200 244 286 324
"""
"""Weights of 30 rats at 5 ages, in grams: Gelfand, Hills, Racine-Poon and Smith (1990)."""


def rats():
    weights = np.array(RATS.split(), float)
    rat, day = np.repeat(np.arange(30), 5), np.tile([8.0, 15.0, 22.0, 29.0, 36.0], 30) - 22.0
    with pm.Model() as model:
        mu_alpha, mu_beta = pm.Normal("mu_alpha", 0, 1000), pm.Normal("mu_beta", 0, 1000)
        var_y = pm.InverseGamma("var_y", 0.001, 0.001)
        var_alpha = pm.InverseGamma("var_alpha", 0.001, 0.001)
        var_beta = pm.InverseGamma("var_beta", 0.001, 0.001)
        alpha = pm.Normal("alpha", mu_alpha, pm.math.sqrt(var_alpha), shape=30)
        beta = pm.Normal("beta", mu_beta, pm.math.sqrt(var_beta), shape=30)
        eta = alpha[rat] + beta[rat] * day
        pm.Normal("y", eta, pm.math.sqrt(var_y), observed=weights)
    return model


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, pytest.param(2, marks=pytest.mark.whole)])
def test_growth_curves_with_vague_variances_mix(seed):
    """R-hat was 1.15 with seed 3, and there were 9 effective draws of 2000."""
    with rats():
        idata = pm.sample(
            step=lgm.PseudoMarginal(), chains=2, cores=1, random_seed=seed, progressbar=False
        )
    for name, r_hat in az.rhat(idata).data_vars.items():
        assert float(r_hat.max()) <= 1.01, name
    for name, ess in az.ess(idata).data_vars.items():
        assert float(ess.min()) >= 400, name
    assert float(idata.sample_stats["cubic_ops"].mean()) <= 10


def predicted(z):
    """Sites of weights of 200 to 300 with variances about 37, and what a line says of them."""
    rng = np.random.default_rng(1)
    y, tuning = rng.uniform(200, 300, size=5), SitesTuning.start(OneByOne(5), 1)
    for theta in np.log(37.0) + 0.15 * rng.standard_normal((200, 1)):
        W = np.full(5, np.exp(-theta[0]))
        tuning = tuning.update(theta, Sites(y * W, W), z=y + rng.standard_normal(5) if z else None)
    W = np.exp(-tuning.fit().theta[0] - 0.3)
    sites = tuning.fit()(tuning.fit().theta + 0.3)
    return (sites.nu / sites.precision - y) * np.sqrt(W)


def test_sites_far_from_the_prior_are_predicted_where_they_are():
    assert np.abs(predicted(True)).max() < 0.1


@pytest.mark.mutant
def test_sites_seen_from_the_mean_of_the_prior_are_noticed(dies):
    dies("sites: seen from the mean of the prior", np.abs(predicted(False)).max(), above=0.2)


def test_sites_near_the_prior_are_seen_from_its_mean():
    """As ever: those of labels go with the scale of f."""
    tuning = SitesTuning.start(OneByOne(3), 1)
    tuning = tuning.update(np.zeros(1), Sites(np.ones(3), np.ones(3)), z=np.full(3, 2.0))
    assert tuning.origin is None
    assert tuning.fit().origin is None


def missed(wrong):
    """Standard deviations by which q misses the center of EP, from sites that are wrong."""
    toy = Counts()
    theta = toy.prior_mean
    likelihood, mean, K = LikelihoodAt(toy, theta), toy.mean(theta), toy.cov(theta)

    def prior():
        return DensePrior(mean, K.copy())

    q = ep(likelihood, prior(), tolerance=1e-8)
    margins = Margins(q.posterior.variances, prior().precisions)
    fixed = PredictedSites(q.sites.nu, q.sites.precision, margins)
    z = q.center - q.mean
    assert misfit(likelihood, q.posterior, q.alpha, z, fixed.nu, margins.variances) < 1e-6
    assert np.isinf(misfit(likelihood, q.posterior, q.alpha, z, fixed.nu, 1e3 * margins.variances))
    before = tally.cubic_ops
    recall(likelihood, prior(), start=fixed)
    assert tally.cubic_ops - before == 1
    found = recall(likelihood, prior(), start=wrong(fixed))
    return float((np.abs(found.center - q.center) / np.sqrt(margins.variances)).max())


def moved(sites):
    return replace(sites, nu=1.5 * sites.nu + sites.precision)


def test_sites_that_do_not_fit_are_searched_for():
    """However near theta is to those of tuning."""
    assert missed(moved) < 0.5


@pytest.mark.mutant
def test_sites_that_are_not_tested_are_noticed(monkeypatch, dies):
    monkeypatch.setattr(recall_module, "MISFIT", np.inf)
    dies("recall: without a test of q", missed(moved), above=0.5)


class Banana:
    """log density −50 (x − y²)² − ½ y², of a state that is its theta."""

    class State:
        def __init__(self, theta):
            self.theta = theta

    def target(self, theta, slope):
        def value(theta):
            x, y = theta
            return -50.0 * (x - y**2) ** 2 - 0.5 * y**2

        def slope_at(theta):
            x, y = theta
            gradient = np.array([-100.0 * (x - y**2), 200.0 * y * (x - y**2) - y])
            return Slope(theta, value(theta), gradient)

        def evaluate(theta):
            return value(theta), self.State(theta)

        start = self.State(np.array(theta))
        return MadeTarget(start, value(start.theta), evaluate, slope=slope_at if slope else None)


@pytest.mark.parametrize("slope", [True, False])
def test_a_climb_comes_to_where_the_mass_is(slope):
    """From 6e5 nats below, along a bent valley."""
    target = Banana().target([-30.0, 9.0], slope)
    state = climb(target, 60)
    assert target.evaluate(state.theta)[0] > -WORTH


@pytest.mark.parametrize("slope", [True, False])
def test_a_climb_of_one_gradient_makes_no_differences(slope):
    """The draws that compile a sampler must compile a slope, and nothing else of the climb."""
    target = Banana().target([-30.0, 9.0], slope)
    name, evaluated = "slope" if slope else "evaluate", []
    of = getattr(target, name)
    target = replace(target, **{name: lambda theta: evaluated.append(theta) or of(theta)})
    assert climb(target, 1) is target.state
    assert len(evaluated) == slope


def test_a_start_that_is_good_enough_stays():
    target = Banana().target([4.0, 2.0], True)
    assert climb(target, 60) is target.state


def beside(what, climbs=None):
    """A step for w and s beside one for effects or indicators, and log s after three draws."""
    with pm.Model() as model:
        s = pm.HalfNormal("s", 1.0)
        w = pm.Normal("w", 0.0, 1.0, shape=6)
        u = pm.Normal("u", 0.0, s, shape=6) if what == "effects" else s * pm.Bernoulli("k", 0.5)
        pm.Poisson("y", pm.math.exp(w + u), observed=[2, 0, 3, 5, 1, 2])
        step = lgm.PseudoMarginal([w, s], compile_kwargs=QUICK, rng=1)
    if climbs is not None:
        step.elements = [replace(step.element, climbs=climbs)]
    point = model.initial_point()
    for _ in range(3):
        point, _ = step.step(point)
    return step, float(point["s_log__"])


@pytest.mark.parametrize("what", ["effects", "indicators"])
def test_theta_does_not_climb_given_effects_of_zero(what):
    """Their scale has no mode there: it fell to 4e-28, and NUTS moved nothing after that."""
    step, log_s = beside(what)
    assert step.plan.facts.climbs == (what == "indicators")
    assert step.element.climbs == step.plan.facts.climbs
    assert step.plan.warmup_move != "survey" or step.plan.facts.climbs
    assert log_s > -5.0


@pytest.mark.mutant
def test_a_climb_given_effects_of_zero_is_noticed(dies):
    _, log_s = beside("effects", climbs=True)
    dies("climb: given effects of zero", -log_s, above=5.0)


class Level:
    """Two observations of each of 6 elements that share a level of standard deviation ``wide``."""

    n, sets = 6, None

    def __init__(self, wide):
        self.wide = wide

    def prior(self, theta):
        return DensePrior(np.zeros(self.n), np.eye(self.n) + self.wide**2)

    def has_latents(self, prior):
        return True

    def log_prior(self, theta):
        return 0.0

    def log_likelihood(self, f, theta):
        return -float(np.square(f - 1.0).sum())

    def log_likelihood_gradient(self, f, theta):
        return self.log_likelihood(f, theta), -2.0 * (f - 1.0)

    def likelihood_terms(self, f, theta):
        return *self.log_likelihood_gradient(f, theta), np.full(self.n, 2.0), np.zeros(self.n)

    def site_log_likelihoods(self, rows, theta):
        return -np.square(rows - 1.0)


@pytest.mark.parametrize(("wide", "by_curvature"), [(1.0, False), (1e3, True)])
def test_a_vague_level_is_moved_by_curvature(wide, by_curvature):
    rng, move = np.random.default_rng(2), AdaptiveHMC()
    state = State.of(Level(wide), np.zeros(0), np.ones(6))
    tuning, f = move.start(state, 400), []
    for draw in range(1400):
        state, tuning, stats = move.run(rng, state, tuning, draw < 400)
        f.append(state.f)
    assert tuning.by_curvature == by_curvature
    assert stats["latent_step_size"] > 0.1
    precision = np.linalg.inv(np.eye(6) + wide**2) + 2.0 * np.eye(6)
    sd = np.sqrt(np.linalg.inv(precision).diagonal())
    np.testing.assert_allclose(np.std(f[400:], axis=0), sd, rtol=0.2)


def test_a_vague_level_is_moved_by_the_prior_if_there_is_no_other_metric(monkeypatch):
    """In a metric that is not found f would stay where it is."""
    move = AdaptiveHMC()
    state = State.of(Level(1e3), np.zeros(0), np.ones(6))
    monkeypatch.setattr(AtTheta, "approximation", lambda self, search: None)
    rng, tuning = np.random.default_rng(2), move.start(state, 100)
    for _ in range(100):
        state, tuning, _ = move.run(rng, state, tuning, True)
    assert not tuning.by_curvature
    assert move.run(rng, state, tuning, False)[2]["latent_acceptance"] > 0


class Ridges:
    """A normal density of 12 components of which two are correlated by 0.99, with a screen."""

    p = 12

    def __init__(self):
        self.cov = np.diag(np.linspace(0.01, 4.0, self.p))
        self.cov[0, 1] = self.cov[1, 0] = 0.99 * np.sqrt(self.cov[0, 0] * self.cov[1, 1])
        self.precision = np.linalg.inv(self.cov)
        self.theta, self.model = np.full(self.p, 3.0), self

    def log_prior(self, theta):
        return 0.0

    def value(self, theta):
        return -0.5 * float(theta @ self.precision @ theta)

    def target(self):
        def first_stage(theta):
            return FirstStage(self.value(theta), SimpleNamespace(theta=theta), None)

        def second_stage(first):
            return first.log_density, first.at

        return MadeTarget(
            self,
            self.value(self.theta),
            lambda theta: second_stage(first_stage(theta)),
            first_stage=first_stage,
            second_stage=second_stage,
        )


def at_the_mode():
    ridges = Ridges()
    ridges.theta = climb(ridges.target(), 60, worth=0.0).theta
    return ridges


def test_a_survey_finds_the_covariance():
    ridges = at_the_mode()
    found = survey(np.random.default_rng(0), ridges.target())
    np.testing.assert_allclose(found.root @ found.root.T, ridges.cov, atol=0.02)
    for theta in np.random.default_rng(1).multivariate_normal(np.zeros(12), ridges.cov, size=20):
        emulated = found.emulator.log_evidence(theta) - found.emulator.log_evidence(np.zeros(12))
        assert emulated == pytest.approx(ridges.value(theta), abs=1.5)


@pytest.mark.parametrize(("surveys", "tune", "begins"), [(1, 60, 1), (0, 60, 0), (1, 40, 0)])
def test_an_emulator_begins_with_a_survey_if_there_is_time(surveys, tune, begins):
    ridges, move = at_the_mode(), Emulated(surveys=bool(surveys))
    start = ProposalTuning.start(ridges.p), None, StepSizeTuning.start()
    tuning = EmulatorTuning(*start, EmulatorFit(None, (), History((), 9)), judged_from=tune // 2)
    learnt = move._surveyed(np.random.default_rng(0), ridges.target(), tuning)
    assert (learnt.fit.emulator is not None) == begins
    walk = learnt.other.factor @ learnt.other.factor.T * ridges.p / 2.38**2
    assert np.allclose(walk, ridges.cov, atol=0.02) == begins


def hospitals():
    """Deaths after heart surgery: the BUGS manual's *Surgical*."""
    n = np.array([47, 148, 119, 810, 211, 196, 148, 215, 207, 97, 256, 360])
    died = np.array([0, 18, 8, 46, 8, 13, 9, 31, 14, 8, 29, 24])
    with pm.Model() as model:
        mu, variance = pm.Normal("mu", 0, 1000), pm.InverseGamma("variance", 0.001, 0.001)
        b = pm.Normal("b", mu, pm.math.sqrt(variance), shape=12)
        pm.Binomial("r", n, pm.math.invlogit(b), observed=died)
    return model


@pytest.mark.slow
def test_asis_mixes_with_a_vague_intercept():
    """R-hat was 1.84, with steps of 1e-4."""
    with hospitals():
        idata = pm.sample(step=lgm.ASIS(), chains=2, cores=1, random_seed=1, progressbar=False)
    assert max(float(r.max()) for r in az.rhat(idata).data_vars.values()) <= 1.02
    assert float(idata.posterior["mu"].mean()) == pytest.approx(-2.55, abs=0.03)


REVERTANTS = "15 21 29 16 18 21 16 26 33 27 41 60 33 38 41 20 27 42"
"""Colonies of Salmonella on three plates at each of six doses of quinoline: Breslow (1984)."""
DOSE = np.repeat([0.0, 10.0, 33.0, 100.0, 333.0, 1000.0], 3)


def salm(unit=1.0):
    """The BUGS manual's *Salm*, of doses in some unit; the prior of the predictor is the same."""
    with pm.Model() as model:
        alpha, beta = pm.Normal("alpha", 0, 1000), pm.Normal("beta", 0, 1000)
        gamma = pm.Normal("gamma", 0, 1000 * unit)
        sd = 1 / pm.math.sqrt(pm.Gamma("tau", 0.001, 0.001))
        effect = pm.Normal("effect", 0, sd, shape=18)
        eta = alpha + beta * np.log(DOSE + 10) + gamma * (DOSE / unit) + effect
        pm.Poisson("y", pm.math.exp(eta), observed=np.array(REVERTANTS.split(), int))
    return model


def evidence_of_salm(unit=1.0):
    """EP's, at ten thetas that are 1e-4 apart."""
    ours = lgm.read(salm(unit), compile_kwargs=QUICK)
    found = [
        AtTheta.of(ours, np.array([theta])).approximation(partial(ep, tolerance=1e-8))
        for theta in 2.5 + 1e-4 * np.arange(10)
    ]
    return np.array([q.log_evidence for q in found])


def roughness_of_salm():
    evidence = evidence_of_salm()
    return float(np.abs(np.diff(evidence, 2)).max() / np.abs(evidence).max())


@pytest.mark.slow
def test_the_evidence_beside_vague_coefficients_is_smooth():
    """Second differences were 32 nats."""
    assert roughness_of_salm() < 1e-8
    np.testing.assert_allclose(evidence_of_salm(unit=500.0), evidence_of_salm(), rtol=1e-9)


@pytest.mark.mutant
def test_vague_coefficients_in_a_dense_covariance_are_noticed(monkeypatch, dies):
    monkeypatch.setattr(refutations, "VAGUE", np.inf)
    dies("reading: vague coefficients in a dense K", roughness_of_salm(), above=1e-5)


@pytest.mark.slow
def test_counts_with_a_covariate_that_is_not_scaled_mix():
    with salm():
        idata = pm.sample(
            step=lgm.PseudoMarginal(), chains=2, cores=1, random_seed=1, progressbar=False
        )
    assert max(float(r.max()) for r in az.rhat(idata).data_vars.values()) <= 1.01
    assert min(float(e.min()) for e in az.ess(idata).data_vars.values()) >= 400
    assert float(idata.posterior["gamma"].mean()) == pytest.approx(-0.00098, abs=5e-5)


def series():
    """Counts with 12 hyper-parameters, and a series beside coefficients."""
    rng = np.random.default_rng(3)
    X, Z, z = rng.normal(size=(240, 9)), rng.normal(size=(240, 2)), np.zeros(240)
    for t in range(1, 240):
        z[t] = 0.9 * z[t - 1] + 0.3 * rng.normal()
    y = rng.poisson(np.exp(1.0 + z + 0.2 * X[:, 0] + 0.3 * Z[:, 0]))
    with pm.Model() as model:
        rho, s = pm.Uniform("rho", 0, 1), pm.HalfNormal("s", 1)
        w, c = pm.Laplace("w", 0, 1, shape=9), pm.StudentT("c", nu=4, mu=0, sigma=2)
        b = pm.Normal("b", 0, 1, shape=2)
        f = pm.AR("f", rho=[rho], sigma=s, init_dist=pm.Normal.dist(0, 2), shape=240)
        eta = f + c + pm.math.dot(X, w) + pm.math.dot(Z, b)
        pm.Poisson("y", pm.math.exp(eta), observed=y)
    return model


@pytest.mark.whole
def test_twelve_hyperparameters_mix():
    """R-hat was 1.35, and there were 5 effective draws of 2000: now 160 to 790, as the seed is."""
    with series():
        step = lgm.PseudoMarginal()
        idata = pm.sample(step=step, chains=2, cores=1, random_seed=1, progressbar=False)
    assert max(float(r.max()) for r in az.rhat(idata).data_vars.values()) <= 1.05
    assert min(float(e.min()) for e in az.ess(idata).data_vars.values()) >= 100
    assert float(idata.sample_stats["cubic_ops"].mean()) <= 10
