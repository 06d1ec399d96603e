"""Exactness: every sampler, tuned and frozen, leaves p(theta, f, y) invariant; mutants do not.

Kernels run on toys in NumPy, where a draw costs what the kernel costs. On models of PyMC, with the
derivatives of each likelihood, runs the default.
"""

import math

import numba
import numpy as np
import pymc as pm
import pytest

from models import MODELS, build, listed, reading_once
from mutants import Accepting
from samplers import CASES, VARIANTS, elements_of, label
from toys import TOYS, Chain, MadeTarget, invariance, invariance_after, least, until_noticed

import pymc_lgm as lgm

from pymc_lgm import samplers
from pymc_lgm.moves import latent
from pymc_lgm.moves.latent import elliptical_slice as slice_module
from pymc_lgm.moves.latent import hmc as hmc_module
from pymc_lgm.moves.latent.hmc import hmc
from pymc_lgm.moves.latent.stepping import Info
from pymc_lgm.moves.theta import metropolis as metropolis_module
from pymc_lgm.moves.theta.metropolis import MetropolisInfo
from pymc_lgm.testing import JointTest, joint_test

LEVEL = 1e-3 / (len(CASES) * len(TOYS))
"""Bonferroni over all that the three toys and the samplers are tried on."""

NOTICED = 1e-2 * LEVEL
"""Of a mutant: so far below that no rounding of any CPU brings it back."""


def tuning_of(case):
    """Long enough for an emulator and a line of sites, where a sampler learns them."""
    sampler, _ = case
    return 150 if issubclass(sampler, lgm.PseudoMarginal) else 40


# Options of the default that take half of the time, and whose parts have tests of their own.
LONG = [
    (lgm.PseudoMarginal, options)
    for options in VARIANTS["PseudoMarginal"]
    if options.get("move") in ("slice", "nuts") or {"latent_move", "sites"} & options.keys()
]

CHEAP = (
    "LatentHMC-integrator=leapfrog-repeats=2-max_steps=3",
    "SufficientMetropolis",
    "WhitenedMetropolis",
)
"""Whose parts many samplers share: with more replicates their mutants are noticed."""

OTHERS = [
    {"move": "hmc", "scale": 0.1},
    {"move": "smmala", "scale": 0.8, "parameterization": "sufficient"},
    {"parameterization": "posterior-taylor", "latent_move": "mgrad"},
    {"parameterization": ("surrogate-site", "whitened"), "latent_repeats": 2},
]
"""Sweeps of kernels that other sweeps have, too."""
LONG += [(lgm.Sweep, options) for options in OTHERS]

# A third of the rows of sampler × toy: each sampler on one toy, each toy with a third of all.
PAIRS = [
    pytest.param(case, toy, id=f"{label(case)}-{toy}", marks=[pytest.mark.slow] * (case in LONG))
    for i, case in enumerate(CASES)
    for j, toy in enumerate(TOYS)
    if (i + j) % 3 == 0
]


@pytest.mark.parametrize(("case", "toy"), PAIRS)
def test_leaves_the_posterior_invariant(case, toy):
    replicates, steps = (400, 5) if label(case) in CHEAP else (150, 2)
    elements, tune = elements_of(case, toy), tuning_of(case)
    if numba.config.DISABLE_JIT:  # Python in the place of machine code: that it runs, and is right
        replicates, tune = 20, tune // 2
    result = invariance(elements, TOYS[toy](), replicates=replicates, steps=steps, tune=tune)
    assert result.pvalue > LEVEL, result


# The other two thirds, by turns on the toy whose amplitude scales all of K: each sampler sees both,
# and one of them, the other for the next sampler, before each release only; so with all long ones.
OTHER_PAIRS = []
for i, case in enumerate(CASES):
    others = [toy for j, toy in enumerate(TOYS) if (i + j) % 3 != 0]
    for k, toy in enumerate(others):
        marks = [pytest.mark.whole] * (k != i % 2 or case in LONG)
        name = f"{label(case)}-{toy}"
        OTHER_PAIRS.append(pytest.param(case, toy, k == 1, id=name, marks=marks))


@pytest.mark.slow
@pytest.mark.parametrize(("case", "toy", "scaled"), OTHER_PAIRS)
def test_leaves_the_posterior_invariant_after_one_step_and_five(case, toy, scaled):
    elements, rng = elements_of(case, toy), np.random.default_rng(2)
    chain = Chain.start(elements, TOYS[toy](scaled=scaled), rng, tuning_of(case))
    for result in invariance_after((1, 5), chain, replicates=300):
        assert result.pvalue > LEVEL, result


IN_SLOW = ("log_gaussian_cox", "student_t")
"""A likelihood that is log-concave and one that is not; the others before a release."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.whole] * (n not in IN_SLOW)) for n in MODELS]
)
def test_the_default_is_exact_on_every_likelihood(name):
    """What tuning has learnt of one data set, frozen, on others from the prior."""
    model = listed(name)
    rng = np.random.default_rng(4)
    with reading_once(compiled=True):
        step = lgm.PseudoMarginal(model=model)
        result = joint_test(step, model, replicates=400, steps=2, tune=300, rng=rng)
    assert step.tunings[0].sites.line is not None
    assert result.pvalue > LEVEL, result


# Mutants of targets


def held(state, follow, density):
    """A target like those of the package, with a rule for f and a density of its own."""

    def evaluate(theta):
        at = state.with_theta(theta, follow)
        return (-math.inf, None) if at is None else (density(at), at)

    return MadeTarget(state, density(state), evaluate)


def whitened_density(at):
    return at.log_likelihood + at.log_prior


def sufficient_density(at):
    return at.prior.log_density(at.f) + at.log_likelihood + at.log_prior


def without_prior(rng, state):
    """The whitened target without p(theta)."""
    nu = state.prior.solve(state.f - state.mean)
    return held(state, lambda prior: prior.mean + prior.multiply(nu), lambda at: at.log_likelihood)


def without_gaussian(rng, state):
    """The sufficient target without log N(f; m, K)."""
    return held(state, lambda prior: state.f, whitened_density)


def without_mean(rng, state):
    """ν = L⁻¹ f: the mean forgotten on the way in, not on the way out."""
    nu = state.prior.solve(state.f)
    return held(state, lambda prior: prior.mean + prior.multiply(nu), whitened_density)


def without_new_mean(rng, state):
    """f' = m(theta) + L(theta') ν: the mean does not move with theta."""
    nu = state.prior.solve(state.f - state.mean)
    return held(state, lambda prior: state.mean + prior.multiply(nu), whitened_density)


def without_determinant(rng, state):
    """The sufficient target without ½ log|K|."""
    return held(
        state,
        lambda prior: state.f,
        lambda at: sufficient_density(at) + 0.5 * at.prior.factor.log_determinant,
    )


PARAMETERIZATION_MUTANTS = {
    "whitened": [without_prior, without_mean, without_new_mean],
    "sufficient": [without_gaussian, without_determinant],
}


def noticed_by(elements):
    """Of counts, which say much, and of labels, which say little, where counts do not notice."""

    def pvalue(replicates):
        return least(
            invariance(elements, TOYS[name](), replicates=replicates, steps=5, seed=5).pvalue
            for name in ("counts", "labels")
        )

    return until_noticed(pvalue, 200, 800, 2000)


def walk(name):
    """A random walk alone: what its target forgets no other kernel makes up for."""
    return (samplers.Theta(name, samplers.Metropolis(scale=0.7)),)


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("name", "mutant"),
    [(name, mutant) for name, mutants in PARAMETERIZATION_MUTANTS.items() for mutant in mutants],
)
def test_a_wrong_parameterization_is_noticed(name, mutant, monkeypatch, dies):
    monkeypatch.setitem(samplers.PARAMETERIZATIONS, name, mutant)
    dies(f"{name}: {mutant.__name__}", noticed_by(walk(name)), below=NOTICED)


# Mutants of moves


def flipped_sign(rng, target, *, factor):
    """Metropolis that prefers the worse point."""
    state = target.state
    xi = rng.standard_normal(state.theta.size)
    log_density, proposed = target.evaluate(state.theta + factor @ xi)
    acceptance = math.exp(min(0.0, target.log_density - log_density)) if proposed else 0.0
    if rng.uniform() < acceptance:
        return proposed, MetropolisInfo(acceptance, xi)
    return state, MetropolisInfo(acceptance, xi)


def always(rng, target, *, factor):
    """Metropolis that accepts whatever exists."""
    state = target.state
    xi = rng.standard_normal(state.theta.size)
    _, proposed = target.evaluate(state.theta + factor @ xi)
    return proposed or state, MetropolisInfo(1.0, xi)


def drifting(rng, target, *, factor):
    """A proposal that is not symmetric, without its Hastings ratio."""
    state = target.state
    xi = rng.standard_normal(state.theta.size) + 0.5
    log_density, proposed = target.evaluate(state.theta + factor @ xi)
    acceptance = math.exp(min(0.0, log_density - target.log_density))
    if proposed is not None and rng.uniform() < acceptance:
        return proposed, MetropolisInfo(acceptance, xi)
    return state, MetropolisInfo(acceptance, xi)


@pytest.mark.mutant
@pytest.mark.parametrize("mutant", [flipped_sign, always, drifting])
def test_a_wrong_move_is_noticed(mutant, monkeypatch, dies):
    monkeypatch.setattr(metropolis_module, "metropolis", mutant)
    dies(f"metropolis: {mutant.__name__}", noticed_by(walk("whitened")), below=NOTICED)


def ellipse_without_mean(rng, state):
    """An ellipse through f around 0 and not around m."""
    z, u = state.f, state.prior.multiply(rng.standard_normal(state.prior.n))
    threshold = state.log_likelihood - rng.standard_exponential()
    angle = rng.uniform(0.0, 2 * math.pi)
    low, high = angle - 2 * math.pi, angle
    while (value := state.at.log_likelihood(z * math.cos(angle) + u * math.sin(angle))) < threshold:
        low, high = (angle, high) if angle < 0 else (low, angle)
        angle = rng.uniform(low, high)
    f = z * math.cos(angle) + u * math.sin(angle)
    return state.with_f(f, value), Info(1.0, 1)


def ellipse_without_slice(rng, state):
    """A draw on the ellipse whatever the likelihood: the prior."""
    u = state.prior.multiply(rng.standard_normal(state.prior.n))
    angle = rng.uniform(0.0, 2 * math.pi)
    f = state.mean + (state.f - state.mean) * math.cos(angle) + u * math.sin(angle)
    return state.with_f(f), Info(1.0, 1)


@pytest.mark.mutant
@pytest.mark.parametrize("mutant", [ellipse_without_mean, ellipse_without_slice])
def test_a_wrong_ellipse_is_noticed(mutant, monkeypatch, dies):
    monkeypatch.setattr(slice_module, "elliptical_slice", mutant)
    dies(f"slice: {mutant.__name__}", noticed_by([latent.EllipticalSlice()]), below=NOTICED)


def hmc_that_accepts(rng, state, **options):
    """HMC without its accept step, at a coarse step size."""
    return hmc(Accepting(rng), state, **options)


class ForgetsTheMean(hmc_module._Whitened):
    def x(self, f):
        return self.prior.solve(f)


class ForgetsTheFactor(hmc_module._Whitened):
    """A wrong prior gradient: twice too strong, in the energy too."""

    def prior_gradient(self, x):
        return -2 * x


@pytest.mark.mutant
def test_hmc_without_its_accept_step_is_noticed(monkeypatch, dies):
    monkeypatch.setattr(hmc_module, "hmc", hmc_that_accepts)
    coarse = [latent.HMC(step_size=1.3, integrator="leapfrog")]
    dies("hmc: accepts always", noticed_by(coarse), below=NOTICED)


@pytest.mark.mutant
@pytest.mark.parametrize("mutant", [ForgetsTheMean, ForgetsTheFactor])
def test_wrong_coordinates_are_noticed(mutant, monkeypatch, dies):
    monkeypatch.setitem(hmc_module._COORDINATES, "prior", mutant)
    dies(f"hmc: {mutant.__name__}", noticed_by([latent.HMC(integrator="leapfrog")]), below=NOTICED)


# Mutants of a sweep: each kernel is right, and whether it runs depends on where f is


class Sometimes:
    """Theta given ν in half of the draws: those that a coin chooses, or those where ℓ is low."""

    stats = ("theta_acceptance", "theta_scale")

    def __init__(self, fair):
        self.fair, self.theta = fair, samplers.Theta("whitened", samplers.Metropolis(scale=0.7))

    def start(self, state, tune):
        return self.theta.start(state, tune)

    def run(self, rng, state, tuning, tune):
        chosen = rng.uniform() < 0.5 if self.fair else state.f[0] < 1.2
        if chosen:
            return self.theta.run(rng, state, tuning, tune)
        return state, tuning, {}


@pytest.mark.mutant
def test_a_share_that_looks_at_f_is_noticed(dies):
    fair = invariance([Sometimes(fair=True)], TOYS["counts"](), replicates=800, steps=5)
    assert fair.pvalue > LEVEL
    dies("sweep: f says how often theta moves", noticed_by([Sometimes(False)]), below=NOTICED)


class Restless(samplers.Metropolis):
    """A scale that the last draw has chosen, after tuning, too."""

    def run(self, rng, target, tuning, tune):
        scale = 0.05 if target.state.theta[0] > 1.2 else 0.5
        factor = scale * np.eye(target.state.theta.size)
        return super().run(rng, target, tuning._replace(factor=factor), False)


@pytest.mark.mutant
def test_adapting_for_ever_is_noticed(dies):
    restless = (samplers.Theta("whitened", Restless()),)
    dies("tuning: a walk that adapts for ever", noticed_by(restless), below=NOTICED)


# The test itself


def test_pairs_have_honest_pvalues():
    """Uniform under the hypothesis, also where most pairs do not change and tails are heavy."""
    rng, pvalues = np.random.default_rng(6), []
    for _ in range(400):
        x, y = rng.standard_cauchy((2, 200))
        stays = rng.uniform(size=200) < 0.8
        result = JointTest.of_pairs({"x": x}, {"x": np.where(stays, x, y)})
        pvalues.append(result.pvalues["x"])
    counts, _ = np.histogram(pvalues, bins=10, range=(0, 1))
    assert ((counts - 40.0) ** 2 / 40.0).sum() < 30.0  # χ² of 9: once in 2000
    assert min(pvalues) > 1e-5


def test_pairs_see_a_shift_and_a_spread():
    rng = np.random.default_rng(7)
    x = rng.standard_normal(400)
    assert JointTest.of_pairs({"x": x}, {"x": x + 0.01}).pvalue < 1e-10
    assert JointTest.of_pairs({"x": x}, {"x": 1.02 * x}).pvalue < 1e-10
    assert JointTest.of_pairs({"x": x}, {"x": x.copy()}).pvalue == 1.0
    with pytest.raises(ValueError, match="x is NaN"):
        JointTest.of_pairs({"x": x}, {"x": x * np.nan})


def test_the_joint_test_needs_replaceable_data():
    with pm.Model() as model:
        f = pm.MvNormal("f", mu=np.zeros(2), cov=np.eye(2))
        lgm.Probit("y", f=f, observed=[0, 1])
    step = build(lgm.EllipticalSlice, model)
    with pytest.raises(ValueError, match=r"observed=pm.Data\('y_data', y\)"):
        joint_test(step, model, rng=np.random.default_rng(1))
