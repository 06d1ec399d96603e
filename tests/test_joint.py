"""Exactness: samplers leave p(theta, f | y) invariant on every likelihood; mutants do not."""

import math

import numpy as np
import pytest

from models import MODELS
from samplers import CASES, label

import pymc_lgm as lgm

from pymc_lgm import sweep
from pymc_lgm.latent import hmc as hmc_module
from pymc_lgm.latent.elliptical_slice import EllipticalSliceInfo
from pymc_lgm.moves.metropolis import MetropolisInfo
from pymc_lgm.parameterizations.target import Target
from pymc_lgm.testing import joint_test


def assert_invariant(case, name, replicates, steps):
    sampler, options = case
    model = MODELS[name]()
    with model:
        step = sampler(**options)
    for count in steps:
        rng = np.random.default_rng(count)
        result = joint_test(step, model, replicates=replicates, steps=count, rng=rng)
        # Each likelihood is tried on tens of samplers: Bonferroni over them as well.
        assert result.pvalue > 1e-3 / len(CASES), result


# Each sampler on one or two likelihoods, each likelihood with a quarter of all samplers.
PAIRS = [
    pytest.param(case, name, id=f"{label(case)}-{name}")
    for i, case in enumerate(CASES)
    for j, name in enumerate(MODELS)
    if (i + j) % 4 == 0
]


@pytest.mark.parametrize(("case", "name"), PAIRS)
def test_leaves_the_posterior_invariant(case, name):
    assert_invariant(case, name, replicates=1000, steps=[3])


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("case", CASES, ids=label)
def test_leaves_the_posterior_invariant_after_one_step_and_five(case, name):
    assert_invariant(case, name, replicates=1000, steps=[1, 5])


def held(state, latent, density):
    """A target like those of the package, with a latent rule and a density of its own."""

    def evaluate(theta):
        at = state.with_theta(theta, latent)
        return (-math.inf, None) if at is None else (density(at), at)

    return Target(state, density(state), evaluate)


def whitened_density(at):
    return at.log_likelihood + at.log_prior


def sufficient_density(at):
    return at.prior.log_density(at.f - at.mean) + at.log_likelihood + at.log_prior


def without_prior(rng, state):
    """The whitened target without p(theta)."""
    nu = state.prior.solve(state.f - state.mean)
    return held(state, lambda m, L: m + L.multiply(nu), lambda at: at.log_likelihood)


def without_gaussian(rng, state):
    """The sufficient target without log N(f; m, K)."""
    return held(state, lambda m, L: state.f, whitened_density)


def without_mean(rng, state):
    """ν = L⁻¹ f: the mean forgotten on the way in, not on the way out."""
    nu = state.prior.solve(state.f)
    return held(state, lambda m, L: m + L.multiply(nu), whitened_density)


def without_new_mean(rng, state):
    """f' = m(theta) + L(theta') ν: the mean does not move with theta."""
    nu = state.prior.solve(state.f - state.mean)
    return held(state, lambda m, L: state.mean + L.multiply(nu), whitened_density)


def without_determinant(rng, state):
    """The sufficient target without ½ log|K|."""
    return held(
        state,
        lambda m, L: state.f,
        lambda at: sufficient_density(at) + 0.5 * at.prior.log_determinant,
    )


PARAMETERIZATION_MUTANTS = {
    "whitened": [without_prior, without_mean, without_new_mean],
    "sufficient": [without_gaussian, without_determinant],
}


@pytest.mark.parametrize(
    ("name", "mutant"),
    [(name, mutant) for name, mutants in PARAMETERIZATION_MUTANTS.items() for mutant in mutants],
)
def test_a_wrong_parameterization_is_noticed(name, mutant, monkeypatch):
    monkeypatch.setitem(sweep.PARAMETERIZATIONS, name, mutant)
    sampler = {"whitened": lgm.WhitenedMetropolis, "sufficient": lgm.SufficientMetropolis}[name]
    assert_noticed(sampler, {"scale": 0.7, "latent": "slice"})


def flipped_sign(rng, state, target, *, factor):
    """Metropolis that prefers the worse point."""
    xi = rng.standard_normal(state.theta.size)
    log_density, proposed = target(state.theta + factor @ xi)
    acceptance = math.exp(min(0.0, target.log_density - log_density)) if proposed else 0.0
    if rng.uniform() < acceptance:
        return proposed, MetropolisInfo(acceptance, xi)
    return state, MetropolisInfo(acceptance, xi)


def always(rng, state, target, *, factor):
    """Metropolis that accepts whatever exists."""
    xi = rng.standard_normal(state.theta.size)
    _, proposed = target(state.theta + factor @ xi)
    return proposed or state, MetropolisInfo(1.0, xi)


def drifting(rng, state, target, *, factor):
    """A proposal that is not symmetric, without its Hastings ratio."""
    xi = rng.standard_normal(state.theta.size) + 0.5
    log_density, proposed = target(state.theta + factor @ xi)
    acceptance = math.exp(min(0.0, log_density - target.log_density))
    if proposed is not None and rng.uniform() < acceptance:
        return proposed, MetropolisInfo(acceptance, xi)
    return state, MetropolisInfo(acceptance, xi)


@pytest.mark.parametrize("mutant", [flipped_sign, always, drifting])
def test_a_wrong_move_is_noticed(mutant, monkeypatch):
    monkeypatch.setattr(sweep.theta, "metropolis", mutant)
    assert_noticed(lgm.WhitenedMetropolis, {"scale": 0.7, "latent": "slice"})


def ellipse_without_mean(rng, state):
    """An ellipse through f around 0 and not around m."""
    z, u = state.f, state.prior.multiply(rng.standard_normal(state.prior.n))
    threshold = state.log_likelihood - rng.standard_exponential()
    angle = rng.uniform(0.0, 2 * math.pi)
    low, high = angle - 2 * math.pi, angle
    while (value := state.log_likelihood_at(z * math.cos(angle) + u * math.sin(angle))) < threshold:
        low, high = (angle, high) if angle < 0 else (low, angle)
        angle = rng.uniform(low, high)
    f = z * math.cos(angle) + u * math.sin(angle)
    return state.with_f(f, value), EllipticalSliceInfo(1.0, 1)


def ellipse_without_slice(rng, state):
    """A draw on the ellipse whatever the likelihood: the prior."""
    u = state.prior.multiply(rng.standard_normal(state.prior.n))
    angle = rng.uniform(0.0, 2 * math.pi)
    f = state.mean + (state.f - state.mean) * math.cos(angle) + u * math.sin(angle)
    return state.with_f(f), EllipticalSliceInfo(1.0, 1)


@pytest.mark.parametrize("mutant", [ellipse_without_mean, ellipse_without_slice])
def test_a_wrong_ellipse_is_noticed(mutant, monkeypatch):
    monkeypatch.setattr(sweep.latent, "elliptical_slice", mutant)
    assert_noticed(lgm.EllipticalSlice, {})


def hmc_that_accepts(rng, state, **options):
    """HMC without its accept step, at a coarse step size."""

    class AlwaysZero:
        def uniform(self):
            return 0.0

        def __getattr__(self, name):
            return getattr(rng, name)

    return hmc_module.hmc(AlwaysZero(), state, **options)


class ForgetsTheMean(hmc_module._Whitened):
    def x(self, f):
        return self.prior.solve(f)


class ForgetsTheFactor(hmc_module._Whitened):
    """A wrong prior gradient: twice too strong, in the energy too."""

    def prior_gradient(self, x):
        return -2 * x


def test_hmc_without_its_accept_step_is_noticed(monkeypatch):
    monkeypatch.setattr(sweep.latent, "hmc", hmc_that_accepts)
    assert_noticed(lgm.LatentHMC, {"step_size": 1.3, "integrator": "leapfrog"})


@pytest.mark.parametrize("mutant", [ForgetsTheMean, ForgetsTheFactor])
def test_wrong_coordinates_are_noticed(mutant, monkeypatch):
    monkeypatch.setitem(hmc_module._COORDINATES, "prior", mutant)
    assert_noticed(lgm.LatentHMC, {"integrator": "leapfrog"})


def assert_noticed(sampler, options):
    """The battery notices a mutant if one likelihood does: informative counts, or vague labels."""
    results = []
    for name in ("log_gaussian_cox", "probit"):
        model = MODELS[name]()
        with model:
            step = sampler(**options)
        results += [joint_test(step, model, replicates=1500, steps=5, rng=np.random.default_rng(5))]
        if results[-1].pvalue < 1e-3 / len(CASES):
            return
    pytest.fail(f"not noticed: {results}")


def test_the_joint_test_needs_replaceable_data():
    import pymc as pm

    with pm.Model() as model:
        f = pm.MvNormal("f", mu=np.zeros(2), cov=np.eye(2))
        lgm.Probit("y", f=f, observed=[0, 1])
        step = lgm.EllipticalSlice()
    with pytest.raises(ValueError, match=r"observed=pm.Data\('y_data', y\)"):
        joint_test(step, model, rng=np.random.default_rng(1))
