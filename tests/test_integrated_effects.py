"""Sums whose observations have independent effects of their own: these are integrated out."""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

from models import reading_once
from test_random_models import ONCE
from test_sums import evidences

import pymc_lgm as lgm

from pymc_lgm.approximations.ep import ep, misfit
from pymc_lgm.approximations.recall import Recall, WarmSearch
from pymc_lgm.approximations.site_coordinates import site_coordinates
from pymc_lgm.approximations.sites import Sites
from pymc_lgm.approximations.sites_line import SitesTuning
from pymc_lgm.compile.graphs.functions import shape_of
from pymc_lgm.model.forms import sum as module
from pymc_lgm.model.forms.integrated import IntegratedEffects
from pymc_lgm.model.forms.sum import SumPredictor
from pymc_lgm.state import AtTheta
from pymc_lgm.testing import joint_test

N = 12
GROUP, AGAIN = np.arange(N) % 4, np.array([3, 0, 0, 7])
Y = np.random.default_rng(5).poisson(2.0, N)


@pytest.fixture(autouse=True)
def forced(monkeypatch):
    """Every model that can be a sum is one."""
    monkeypatch.setattr(module, "_is_cheaper", lambda *sizes: True)
    with pytensor.config.change_flags(**ONCE):
        yield


def rest():
    """What observations read beside their effects."""
    s, t = pm.LogNormal("s", -0.5, 0.4), pm.LogNormal("t", -0.5, 0.4)
    walk = pm.GaussianRandomWalk("walk", 0, s, init_dist=pm.Normal.dist(0.2, 1), shape=N)
    return walk + pm.Normal("group", 0.3, t, shape=4)[GROUP]


def scale():
    return pm.LogNormal("scale", -0.4, 0.4)


def scaled():
    return rest() + pm.Normal("effect", 0.1, scale(), shape=N)


def standard_times_a_scale():
    return rest() - scale() * np.linspace(0.5, 2.0, N) * pm.Normal("effect", shape=N)


def centered():
    return pm.Normal("effect", rest(), scale(), shape=N)


def in_another_order():
    return rest() + pm.Normal("effect", 0, scale() * np.linspace(0.5, 2.0, N), shape=N)[::-1]


def of_some():
    eta = rest()
    return pt.set_subtensor(eta[3:], eta[3:] + pm.Normal("effect", 0, scale(), shape=N - 3))


def more_than_are_read():
    return rest() + pm.Normal("effect", 0, scale(), shape=N + 2)[1:-1]


def read_again():
    return (rest() + pm.Normal("effect", 0, scale(), shape=N))[
        np.concatenate([np.arange(N), AGAIN])
    ]


INTEGRATED = [
    *(scaled, standard_times_a_scale, centered, in_another_order, of_some),
    *(more_than_are_read, read_again),
]


def with_noise(make, likelihood="counts", times=1):
    with pm.Model() as model:
        eta = make()
        y = pm.Data("data", times * np.resize(Y, shape_of(eta)))
        if likelihood == "counts":
            pm.Poisson("y", pm.math.exp(eta), observed=y)
        else:
            pm.Normal("y", eta, 0.7, observed=y)
    return model


@pytest.mark.fast("read_again")
@pytest.mark.parametrize("make", INTEGRATED, ids=lambda make: make.__name__)
def test_effects_are_integrated_out_and_the_rest_is_as_pymc_says(make):
    read = lgm.read(with_noise(make))
    assert isinstance(read.form, SumPredictor)
    assert "integrated out" in repr(read)
    assert read.rank == N + 4
    assert max(read.check(5).values()) < 1e-8


SHARP = {
    "laplace": lambda eta: pm.Laplace("y", eta, 0.5, observed=Y),
    "logistic": lambda eta: pm.Logistic("y", eta, 0.1, observed=Y),
    "gumbel": lambda eta: pm.Gumbel("y", eta, 0.1, observed=Y),
    "weibull": lambda eta: pm.Weibull("y", 5.0, pm.math.exp(eta), observed=1.0 + Y),
    "power": lambda eta: pm.Poisson("y", pm.math.exp(eta) ** 3, observed=Y),
}


@pytest.mark.fast("power")
@pytest.mark.parametrize("name", SHARP)
def test_a_density_too_sharp_for_a_quadrature_keeps_its_effects(name):
    """It would err by up to 0.6 nats per observation."""
    with pm.Model() as model:
        SHARP[name](scaled())
    read = lgm.read(model)
    assert read.is_log_concave
    assert "integrated out" not in repr(read)
    assert max(read.check(3).values()) < 1e-8


def test_effects_of_normal_observations_stay():
    """Their posterior is Gaussian as it is."""
    read = lgm.read(with_noise(scaled, "normal"))
    assert read.is_quadratic
    assert "integrated out" not in repr(read)
    assert max(read.check(3).values()) < 1e-8


def error_of_evidence(make):
    """Largest error of log p(y, theta) beside brute force: observations are normal."""
    model = with_noise(make, "normal")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "are_quadratic", lambda *_: False)
        read = lgm.read(model)
    assert "integrated out" in repr(read)
    ours, theirs = evidences(model, read)
    return np.abs(ours - theirs).max()


@pytest.mark.fast("standard_times_a_scale")
@pytest.mark.parametrize("make", INTEGRATED, ids=lambda make: make.__name__)
def test_the_evidence_is_that_of_brute_force(make):
    """But for the rule's error."""
    assert error_of_evidence(make) < 1e-5


def in_the_mean_of_another():
    effect = pm.Normal("effect", 0, scale(), shape=N)
    return rest() + effect + pm.Normal("other", effect, 1.0, shape=N)


def of_two():
    effect = pm.Normal("effect", 0, scale(), shape=N)
    return rest() + effect + 0.5 * pt.concatenate([effect[1:], effect[:1]])


@pytest.mark.fast("of_two")
@pytest.mark.parametrize("make", [in_the_mean_of_another, of_two])
def test_effects_that_are_read_otherwise_stay(make):
    read = lgm.read(with_noise(make))
    assert "effect (12): independent" in repr(read)
    assert max(read.check(5).values()) < 1e-8


def test_effects_stay_if_the_likelihood_is_not_log_concave():
    """They could not be drawn by rejection."""
    with pm.Model() as model:
        pm.StudentT("y", nu=4, mu=scaled(), sigma=1.0, observed=Y)
    read = lgm.read(model)
    assert "integrated out" not in repr(read)


def test_effects_stay_if_an_observation_reads_two():
    with pm.Model() as model:
        eta = scaled()
        pm.Normal("y", eta[:-1] + eta[1:], 1.0, observed=Y[1:])
    read = lgm.read(model)
    assert "integrated out" not in repr(read)


def test_effects_stay_if_theta_moves_by_the_gradient_of_the_evidence(monkeypatch):
    monkeypatch.setattr(module, "MANY_HYPERPARAMETERS", 2)
    read = lgm.read(with_noise(scaled))
    assert "integrated out" not in repr(read)
    assert read.has_evidence_gradient


def result_of(make, replicates, sampler=lgm.PseudoMarginal):
    with reading_once(compiled=True):
        model = with_noise(make)
        step = sampler(model=model)
        assert "integrated out" in repr(step.lgm)
        rng = np.random.default_rng(4)
        return joint_test(step, model, replicates=replicates, steps=1, tune=150, rng=rng)


@pytest.mark.slow
@pytest.mark.parametrize("make", [centered, more_than_are_read])
def test_the_default_leaves_the_posterior_invariant(make):
    assert result_of(make, 200).pvalue > 1e-5


def misfit_of_predicted_sites():
    """Nats by which a sweep would move q, with sites predicted where the effects are smaller."""
    model, rng = with_noise(scaled, times=20), np.random.default_rng(4)
    read = lgm.read(model)
    coordinates = site_coordinates(read, read.n, copula=False)
    tuning = SitesTuning.start(coordinates, read.p)
    here = read.theta_of(model.initial_point())
    for _ in range(20):
        at = AtTheta.of(read, here + 0.4 * rng.standard_normal(read.p))
        q = at.approximation(WarmSearch(ep, 1e-4))
        tuning = tuning.update(at.theta, q.sites.with_effects(at.likelihood.effects))
    smaller = read.theta_of(model.initial_point() | {"scale_log__": -1.5})
    at = AtTheta.of(read, smaller)
    q = at.approximation(Recall(ep).with_line(tuning.fit()))
    z = q.center - q.mean
    return misfit(at.likelihood, q.posterior, q.alpha, z, q.sites.nu, q.posterior.variances)


def test_sites_are_predicted_for_the_predictor_with_its_effects():
    assert misfit_of_predicted_sites() < 0.2


# Mutants


@pytest.mark.mutant
@pytest.mark.slow
def test_effects_drawn_from_their_prior_are_noticed(monkeypatch, dies):
    """As if y said nothing of them."""
    monkeypatch.setattr(
        IntegratedEffects, "draw", lambda self, rng, f, theta: rng.standard_normal(N)
    )
    pvalue = result_of(scaled, 300, sampler=lgm.EllipticalSlice).pvalue
    dies("sum: effects of their prior", pvalue, below=1e-6)


@pytest.mark.mutant
def test_effects_without_their_coefficient_are_noticed(monkeypatch, dies):
    made = SumPredictor._made_at

    def wrong(self, theta):
        numbers = made(self, theta)
        return numbers._replace(d=numbers.sd[self._own.read])

    monkeypatch.setattr(SumPredictor, "_made_at", wrong)
    error = error_of_evidence(standard_times_a_scale)
    dies("sum: effects without their coefficient", error, above=0.01)


@pytest.mark.mutant
def test_effects_that_two_elements_read_are_noticed(monkeypatch, dies):
    """As if the first element that reads one were the only one."""
    found = module._own_effects

    def wrong(setting, graph, elements, readers):
        own = found(setting, graph, elements, readers)
        names = [latent.rv.name for latent in setting.reading.latents]
        k = names.index("effect")
        return own or module._Own(k, np.arange(N))

    monkeypatch.setattr(module, "_own_effects", wrong)
    dies("sum: effects that two elements read", error_of_evidence(of_two), above=0.01)


@pytest.mark.mutant
def test_sites_predicted_for_integrals_are_noticed(monkeypatch, dies):
    monkeypatch.setattr(Sites, "with_effects", lambda sites, _: sites)
    monkeypatch.setattr(Sites, "without_effects", lambda sites, _: sites)
    dies("sites: predicted for integrals", misfit_of_predicted_sites(), above=1.0)
