"""HMC along a force: exact for any force, tuned on the evidence alone, taken where it is needed."""

import math

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from models import build
from mutants import mutated
from samplers import elements_of
from toys import TOYS, Chain, Counts, invariance, invariance_of, until_noticed

import pymc_lgm as lgm

from pymc_lgm import kernels
from pymc_lgm.adaptation import ProposalTuning
from pymc_lgm.approximations.ep import ep
from pymc_lgm.approximations.recall import WarmSearch, sites_gradient
from pymc_lgm.approximations.sites import Recalled
from pymc_lgm.kernels.hold.evidence_force import evidence_force
from pymc_lgm.kernels.hold.target import Screened, Target
from pymc_lgm.kernels.theta import guided as module
from pymc_lgm.kernels.theta.guided import FIRST, WALK, Guided, guided_hmc
from pymc_lgm.linalg import tally
from pymc_lgm.priors import DensePrior
from pymc_lgm.state import LikelihoodAt
from pymc_lgm.testing import JointTest


@pytest.fixture
def rng():
    return np.random.default_rng(3)


# The kernel


def wrong_force(theta):
    """Nobody's gradient, and not even one."""
    return 2.0 * np.sin(2.0 * theta) - 3.0 * theta + np.tanh(np.roll(theta, 1))


class Guesses:
    """A move that follows a wrong force, and never learns."""

    stats = ("theta_acceptance",)
    needs_gradient = False
    kernel = staticmethod(guided_hmc)

    def start(self, state, tune):
        return None

    def run(self, rng, target, tuning, tune):
        target = replace(target, force=wrong_force)
        factor = 0.3 * np.eye(target.state.theta.size)
        state, info = self.kernel(rng, target, factor=factor, step_size=1.2)
        return state, None, {"theta_acceptance": info.theta_acceptance}


@pytest.mark.parametrize("toy", TOYS)
def test_a_wrong_force_is_exact(toy):
    elements = (kernels.Theta("whitened", Guesses()), kernels.latent.EllipticalSlice())
    assert invariance(elements, TOYS[toy](), replicates=300).pvalue > 1e-4


LINES = {
    "the kinetic energy": ("0.5 * float(r_start @ r_start - r @ r)", "0.0"),
    "half a step at the end": ("(step if taken < steps else 0.5 * step)", "step"),
    "the target": ("log_density - target.log_density", "0.0"),
    "half a step at the start": ("state.theta + 0.5 * step * (factor @ r)", "state.theta"),
}


@pytest.mark.mutant
@pytest.mark.parametrize("name", LINES)
def test_a_wrong_line_is_noticed(name, dies):
    wrong = mutated(module, *LINES[name]).guided_hmc
    pvalue = until_noticed(lambda replicates: pushed_pvalue(wrong, replicates), 1000, 5000)
    dies(f"guided hmc: without {name}", pvalue, below=1e-6)


def test_it_leaves_a_gaussian_invariant():
    assert pushed_pvalue(guided_hmc) > 1e-4


def pushed_pvalue(kernel, replicates=2000):
    """Pairs from a standard Gaussian, by a wrong force."""
    rng, before, after = np.random.default_rng(2), [], []
    for _ in range(replicates):
        state = SimpleNamespace(theta=rng.standard_normal(2))
        before.append(state.theta)
        for _ in range(3):
            target = replace(gaussian_target(state.theta, np.ones(2)), force=pushing_force)
            state, _ = kernel(rng, target, factor=np.eye(2), step_size=1.3)
        after.append(state.theta)
    columns = [dict(zip("ab", np.array(rows).T, strict=True)) for rows in (before, after)]
    return JointTest.of_pairs(*columns).pvalue


def pushing_force(theta):
    return 0.5 - theta + 0.5 * np.sin(2.0 * theta)


def test_without_a_force_on_the_way_it_stays(rng):
    state = SimpleNamespace(theta=np.zeros(2))
    target = Target(state, 0.0, lambda theta: pytest.fail("evaluated"), force=lambda theta: None)
    before = tally.numerical_rejections
    moved, info = guided_hmc(rng, target, factor=np.eye(2), step_size=0.5)
    assert moved is state
    assert info == (0.0, 1)
    assert tally.numerical_rejections == before + 1


@pytest.mark.parametrize(("step_size", "steps"), [(0.5, 4), (1.6, 1), (0.01, 10)])
def test_it_goes_as_far_with_any_step_size(step_size, steps, rng):
    """But for more steps than it may take."""
    visited = []
    state = SimpleNamespace(theta=np.zeros(2))

    def force(theta):
        visited.append(theta)
        return np.zeros(2)

    target = Target(state, 0.0, lambda theta: (0.0, theta), force=force)
    end, info = guided_hmc(rng, target, factor=np.eye(2), step_size=step_size)
    assert info == (1.0, steps)
    assert len(visited) == steps
    # Without a force it goes straight on.
    np.testing.assert_allclose(end, visited[0] * 2 * steps)


# The force


@pytest.mark.parametrize("toy", ["labels", "counts"])
def test_sites_that_match_have_the_gradient_of_the_evidence(toy):
    reader = TOYS[toy]()
    theta = reader.prior_mean + 0.1

    def q(theta):
        return ep(LikelihoodAt(reader, theta), reader.prior(theta), tolerance=1e-13)

    sites = q(theta).sites
    force = evidence_force(reader, lambda theta: sites, None)
    before = tally.cubic_ops
    gradient = force(theta) - reader.log_prior_gradient(theta)
    assert tally.cubic_ops - before == 2
    steps = 1e-4 * np.eye(theta.size)
    numeric = [(q(theta + h).log_evidence - q(theta - h).log_evidence) / 2e-4 for h in steps]
    np.testing.assert_allclose(gradient, numeric, rtol=1e-3, atol=1e-4)


def test_a_far_site_is_searched_for():
    reader = Counts()
    theta = reader.prior_mean.copy()
    poor = Recalled(np.full(reader.n, 3.0), np.full(reader.n, 2.0))
    search = WarmSearch(ep, tolerance=1e-6)
    near, far = (
        evidence_force(reader, lambda theta, sites=sites: sites, search)(theta)
        for sites in (poor, replace(poor, trusted=False))
    )
    q = ep(LikelihoodAt(reader, theta), reader.prior(theta))
    right = evidence_force(reader, lambda theta: q.sites, None)(theta)
    assert np.linalg.norm(far - right) < 0.1 * np.linalg.norm(near - right)


def test_there_is_no_force_outside_the_numbers():
    reader = Counts()
    theta = reader.prior_mean.copy()
    sites = Recalled(np.zeros(reader.n), np.ones(reader.n))
    force = evidence_force(reader, lambda theta: sites, None)
    assert force(np.full_like(theta, np.nan)) is None
    assert force(theta + 1e4) is None


def test_sites_that_are_no_sites_have_no_gradient():
    nothing = sites_gradient(
        DensePrior(np.zeros(2), np.eye(2)),
        Recalled(np.zeros(2), np.full(2, np.nan)),
        likelihood_gradient=lambda f: pytest.fail("used"),
    )
    assert nothing is None


# Tuning


def gaussian_target(theta, sd, noisy=False):
    """A Gaussian with standard deviations sd, and its force."""

    def evaluate(theta):
        return -0.5 * float(np.square(theta / sd).sum()), SimpleNamespace(theta=theta)

    state = SimpleNamespace(theta=theta)
    return Target(
        state, evaluate(theta)[0], evaluate, force=lambda theta: -theta / sd**2, noisy=noisy
    )


def test_it_learns_scales_and_a_step_size(rng):
    sd, move = np.array([0.1, 3.0]), Guided()
    state = SimpleNamespace(theta=np.zeros(2))
    tuning, acceptance = move.start(state, 1000), []
    for i in range(1500):
        tune = i < 1000
        state, tuning, stats = move.run(rng, gaussian_target(state.theta, sd), tuning, tune)
        acceptance += [] if tune else [stats["theta_acceptance"]]
    np.testing.assert_allclose(np.sqrt(np.square(tuning.factor).sum(axis=1)), sd, rtol=0.4)
    assert 0.4 < np.mean(acceptance) < 1.0
    assert tuning.step_size.value(False) > 0.3


def test_it_learns_from_noise_until_tuning_ends(rng):
    """The last quarter of tuning has it; where HMC came late, it is the better part."""
    move, theta = Guided(), np.zeros(2)
    tuning = move.start(SimpleNamespace(theta=theta), 100)
    tuning = tuning._replace(chain=tuple(rng.standard_normal((WALK, 2))))
    target = gaussian_target(theta, np.ones(2), noisy=True)
    learnt = move.run(rng, target, tuning, True)[1]
    assert len(learnt.chain) == WALK + 1
    assert learnt.step_size != tuning.step_size
    assert move.run(rng, target, learnt, False)[1] is learnt


def test_at_first_and_without_a_force_it_walks(rng):
    move, theta = Guided(), np.zeros(2)
    tuning = move.start(SimpleNamespace(theta=theta), 100)
    no_force = replace(gaussian_target(theta, np.ones(2)), force=lambda theta: pytest.fail("used"))
    assert move.run(rng, no_force, tuning, True)[1].local.draws == 1
    later = tuning._replace(chain=tuple(rng.standard_normal((WALK, 2))))
    without = replace(no_force, force=None)
    assert move.run(rng, without, later, False)[0].theta.shape == (2,)
    with pytest.raises(pytest.fail.Exception):
        move.run(rng, no_force, later, True)


def test_it_goes_on_with_a_chain(rng):
    sd = np.array([0.2, 2.0])
    chain = tuple(sd * rng.standard_normal((FIRST + 50, 2)))
    tuning = Guided().follow(ProposalTuning.start(2), chain)
    np.testing.assert_allclose(np.sqrt(np.square(tuning.factor).sum(axis=1)), sd, rtol=0.3)
    assert tuning.next_fit == math.ceil(1.5 * len(chain))
    np.testing.assert_array_equal(
        Guided().follow(ProposalTuning.start(2), chain[:20]).factor, np.eye(2)
    )


# When the emulator gives way


def judged(acceptance, tune=100, visited=40):
    """What an emulator has learnt of proposals of this acceptance by the time it is judged."""
    move = kernels.Emulated(guided=Guided())
    rng = np.random.default_rng(3)
    state = SimpleNamespace(theta=np.zeros(2))
    tuning = move.start(state, tune)
    for _ in range(60):
        tuning = tuning.note(acceptance)
    for theta in rng.standard_normal((visited, 2)):
        tuning = tuning.learn([(theta, -0.5 * float(theta @ theta), 0.0)], theta)
    return move, move._judged(tuning.learn([], state.theta), followed=False)


@pytest.mark.parametrize(
    ("acceptance", "guidance", "emulated"), [(0.9, 0.0, True), (0.5, 0.2, True), (0.2, 1.0, False)]
)
def test_an_emulator_is_helped_or_replaced(acceptance, guidance, emulated):
    _, tuning = judged(acceptance, visited=60)
    assert tuning.guidance == guidance
    assert (tuning.emulator is not None) == emulated
    # One that is replaced had hardly moved the chain: nothing of that is followed.
    assert len(tuning.guided.chain) == (61 if emulated else 0)


def test_one_that_fails_late_leaves_its_mass_matrix():
    """HMC that began again might not have the draws left to learn another."""
    move, tuning = judged(0.5, visited=150)
    late = move._judged(tuning._replace(acceptance=0.2), followed=False)
    assert late.guidance == 1.0
    assert late.emulator is None
    assert len(late.guided.chain) > FIRST
    np.testing.assert_array_equal(late.guided.factor, tuning.guided.factor)


def test_it_is_not_judged_too_early():
    _, tuning = judged(0.0, visited=40)
    assert tuning.guidance == 0.0
    assert tuning.guided is None
    assert tuning.emulator is not None


@pytest.mark.parametrize(("acceptance", "looks"), [(0.9, 0), (0.5, 2)])
def test_a_poor_emulator_tries_more(acceptance, looks):
    """Each look is a screen, that is no factor of K, and a visit."""
    move, tuning = judged(acceptance, visited=40)
    rng = np.random.default_rng(5)
    model = SimpleNamespace(log_prior=lambda t: 0.0, log_prior_gradient=lambda t: np.zeros(2))
    state = SimpleNamespace(theta=np.zeros(2), model=model, log_prior=0.0)
    looked, evaluated = [], []

    def evaluate(theta):
        evaluated.append(theta)
        return -0.5 * float(theta @ theta), replace_theta(state, theta)

    def screen(theta):
        looked.append(theta)
        return Screened(-0.5 * float(theta @ theta), lambda: pytest.fail("completed"))

    target = Target(state, 0.0, evaluate, screen)
    jumps = 0
    for _ in range(100):
        before = len(looked) + len(evaluated)
        _, after, _ = move.run(rng, target, tuning, True)
        jumps += after.proposals > tuning.proposals
        assert len(after.visits) - len(tuning.visits) == len(looked) + len(evaluated) - before
        tuning = after._replace(acceptance=acceptance, judged_from=10_000)
    # A jump whose trajectories are all rejected on the emulator looks nowhere.
    assert 0.9 * looks * jumps <= len(looked) <= looks * jumps
    assert move.run(rng, replace(target, noisy=True), tuning, True)[1].visits == tuning.visits


def replace_theta(state, theta):
    return SimpleNamespace(**vars(state) | {"theta": theta})


# The step


@pytest.mark.parametrize("toy", ["counts", pytest.param("errors", marks=pytest.mark.slow)])
def test_the_default_that_has_given_way_is_exact(toy):
    (element,) = elements_of((lgm.PseudoMarginal, {}), toy)
    given_way = replace(element, move=replace(element.move, fair=1.1, judgment=0.4))
    chain = Chain.start((given_way,), TOYS[toy](), np.random.default_rng(4), tune=200)
    assert chain.tunings[0].move.guidance == 1.0
    assert invariance_of(chain, replicates=200, steps=2).pvalue > 1e-4


def test_a_model_without_a_gradient_in_theta_is_refused(monkeypatch):
    """The default does without."""
    monkeypatch.setattr(lgm.LatentGaussianModel, "has_theta_gradient", False)
    with pytest.raises(ValueError, match="Write move='metropolis'"):
        build(lgm.PseudoMarginal, "probit", move="hmc")
    step = build(lgm.PseudoMarginal, "probit")
    (element,) = step.elements
    assert element.move.guided is None
    assert element.guide is None
    chain = Chain.start(step.elements, TOYS["labels"](), np.random.default_rng(1))
    assert np.isfinite(chain.draws(1)).all()
