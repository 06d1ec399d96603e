"""The emulator, surrogate transitions, and sites that are recalled: exact, whatever they learnt."""

import math

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numba
import numpy as np
import pytest

from close import differences
from samplers import elements_of
from scipy.linalg import solve_triangular
from scipy.spatial.distance import cdist, pdist
from toys import (
    TOYS,
    Chain,
    Counts,
    Labels,
    MadeTarget,
    gaussian_target,
    invariance,
    invariance_of,
    model_of_theta,
    pairs_pvalue,
    until_noticed,
)

import pymc_lgm as lgm

from pymc_lgm import moves, samplers
from pymc_lgm.adaptation import History
from pymc_lgm.approximations.emulator import (
    FARTHEST,
    LENGTHS,
    LEVEL,
    NOISES,
    SCALES,
    Emulator,
    Visits,
    coordinates_of,
    emulate,
    evidence_at,
    theta_of,
)
from pymc_lgm.approximations.ep import ep
from pymc_lgm.approximations.laplace import laplace
from pymc_lgm.approximations.recall import laplace_from_sites, recall
from pymc_lgm.approximations.site_coordinates import OFFSET, OneByOne
from pymc_lgm.approximations.sites import Margins, PredictedSites, Sites
from pymc_lgm.approximations.sites_line import SitesTuning
from pymc_lgm.gaussian import DensePrior
from pymc_lgm.linalg import tally
from pymc_lgm.moves.theta import emulated as module
from pymc_lgm.moves.theta import on_emulator
from pymc_lgm.moves.theta.emulated import EmulatorFit, surrogate_transition
from pymc_lgm.moves.theta.prior_jump import jump_of_target
from pymc_lgm.state import LikelihoodAt

ROOT = np.array([[0.5, 0.0], [0.3, 0.8]])
CENTER = np.array([1.0, -2.0])


def bent(theta):
    """A log evidence that is no quadratic and levels off."""
    z = np.linalg.solve(ROOT, theta - CENTER)
    return 3.0 - np.log1p(z @ z) + 0.5 * np.tanh(z[0])


def visits(count, rng, spread=2.0):
    theta = CENTER + spread * rng.standard_normal((count, 2)) @ ROOT.T
    return Visits(theta, np.array([bent(t) for t in theta]), np.zeros(count))


# The emulator


def test_it_predicts_what_it_has_not_seen(rng):
    emulator = emulate(visits(150, rng), CENTER, ROOT)
    unseen = visits(200, rng, spread=1.0)
    predicted = [emulator.log_evidence(t) for t in unseen.theta]
    assert np.std(predicted - unseen.log_evidence) < 0.05 * np.std(unseen.log_evidence)


def test_a_quadratic_is_learnt_from_few_thetas(rng):
    A = np.array([[-1.0, 0.3], [0.3, -0.5]])
    z = rng.standard_normal((12, 2))
    u = LEVEL * np.tanh(z / LEVEL)
    y = 40.0 + u @ [0.5, -0.2] + 0.5 * np.einsum("ij,jk,ik->i", u, A, u)
    emulator = emulate(Visits(CENTER + z @ ROOT.T, y, np.zeros(12)), CENTER, ROOT)
    for at in rng.standard_normal((20, 2)):
        u = LEVEL * np.tanh(at / LEVEL)
        truth = 40.0 + u @ [0.5, -0.2] + 0.5 * u @ A @ u
        assert evidence_at(at, emulator)[0] == pytest.approx(truth, abs=0.2)


def test_its_gradient_is_that_of_its_value(rng):
    emulator = emulate(visits(60, rng), CENTER, ROOT)
    for z in 2.0 * rng.standard_normal((10, 2)):
        expected = differences(lambda z: evidence_at(z, emulator)[0], z)
        np.testing.assert_allclose(evidence_at(z, emulator)[1], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_its_surface_is_one_code_compiled_or_not(rng):
    emulator = emulate(visits(60, rng), CENTER, ROOT)
    compiled = [evidence_at(z, emulator) for z in emulator.points.T]
    interpreted = getattr(evidence_at, "py_func", evidence_at)
    for z, (value, gradient) in zip(emulator.points.T, compiled, strict=True):
        expected, slope = interpreted(z, emulator)
        assert value == pytest.approx(expected, rel=1e-9)
        np.testing.assert_allclose(gradient, slope, rtol=1e-6, atol=1e-9)


def test_far_out_it_is_flat(rng):
    """No quadratic that falls for ever: a chain that gets there by itself must come back."""
    emulator = emulate(visits(100, rng), CENTER, ROOT)
    lowest = visits(100, rng).log_evidence.min()
    for direction in rng.choice([-1.0, 1.0], size=(20, 2)):
        far, farther = (evidence_at(s * direction, emulator)[0] for s in (100.0, 1e6))
        assert farther == pytest.approx(far, abs=1e-6)
        assert far > lowest - 50.0


def process(emulator):
    """Length, scale and noise of an emulator whose visits are all near the best, and K + σ²I."""
    i, j, of_noise = emulator.grid
    length, s, noise = LENGTHS[i], SCALES[j], NOISES[of_noise]
    away = cdist(emulator.points.T, emulator.points.T, "sqeuclidean")
    cov = s**2 * np.exp(-0.5 * away / length**2) + noise**2 * np.eye(len(away))
    return length, s, noise, cov


def test_it_is_optimistic_by_a_standard_deviation_of_the_process(rng):
    seen = visits(80, rng)
    hopeful = emulate(seen, CENTER, ROOT)
    length, s, noise, cov = process(hopeful)
    at = np.vstack([2.0 * rng.standard_normal((20, 2)), coordinates_of(seen.theta[0], hopeful)])
    raised = np.array([evidence_at(z, hopeful)[0] for z in at])
    raised -= [evidence_at(z, hopeful._replace(optimism=0.0))[0] for z in at]
    u = LEVEL * np.tanh(at / LEVEL)
    k = s**2 * np.exp(-0.5 * cdist(u, hopeful.points.T, "sqeuclidean") / length**2)
    sd = np.sqrt(s**2 - np.einsum("ij,ji->i", k, np.linalg.solve(cov, k.T)))
    np.testing.assert_allclose(raised, sd, rtol=1e-6)
    assert raised[-1] < noise  # where a visit has been


def test_of_many_visits_those_widest_apart_say_how_sure_it_is(rng):
    count = 150 if numba.config.DISABLE_JIT else 400
    emulator = emulate(visits(count, rng), CENTER, ROOT)
    assert emulator.points.shape == (2, count)
    _, s, _, cov = process(emulator)
    expected = s**4 * np.linalg.inv(cov[:FARTHEST, :FARTHEST])
    np.testing.assert_allclose(emulator.precision, expected, atol=1e-7 * np.abs(expected).max())
    apart = pdist(emulator.points.T[:20]).min()
    assert apart > 3.0 * pdist(emulator.points.T[-20:]).min()


def test_it_does_not_bend_for_what_is_far_below(rng):
    seen = visits(100, rng)
    value = seen.log_evidence.copy()
    value[:10] -= 35.0
    one = emulate(seen, CENTER, ROOT)
    other = emulate(seen._replace(log_evidence=value), CENTER, ROOT)
    near = [CENTER + ROOT @ z for z in 0.5 * rng.standard_normal((20, 2))]
    for theta in near:
        assert abs(one.log_evidence(theta) - other.log_evidence(theta)) < 0.5


def test_the_climb_comes_down_the_ridge_of_long_and_large(rng):
    """A rough evidence is found from a smooth one: steps along one axis would stop on the way."""
    u = rng.standard_normal((120, 3))
    cov = np.exp(-0.5 * cdist(u, u, "sqeuclidean")) + 1e-8 * np.eye(120)
    value = np.linalg.cholesky(cov) @ rng.standard_normal(120)
    smooth = LENGTHS.index(5.0), SCALES.index(10.0), 0
    emulator = emulate(Visits(u, value, np.zeros(120)), np.zeros(3), np.eye(3), smooth)
    i, j, _ = emulator.grid
    assert LENGTHS[i] <= 1.1
    assert SCALES[j] == 1.0


def test_coordinates(rng):
    emulator = emulate(visits(40, rng), CENTER, ROOT)
    theta = rng.standard_normal(2)
    np.testing.assert_allclose(theta_of(coordinates_of(theta, emulator), emulator), theta)
    z = solve_triangular(ROOT, theta - CENTER, lower=True)
    np.testing.assert_allclose(coordinates_of(theta, emulator), z)


# Surrogate transitions


def wrong_emulator(p):
    """Too narrow, and centered where the posterior is not."""
    return Emulator(
        center=np.full(p, 0.3),
        root=0.7 * np.eye(p),
        constant=5.0,
        linear=np.full(p, 0.4),
        quadratic=-0.8 * np.eye(p),
        points=np.ascontiguousarray(np.linspace(-1.0, 1.0, 4 * p).reshape(4, p).T),
        weights=np.array([0.5, -0.5, 0.8, -0.2]),
        precision=0.002 * np.eye(3),
        grid=(0, 0, 0),
    )


class Jumps:
    """A move that proposes with a wrong emulator that never learns."""

    stats = ("theta_acceptance",)
    needs_gradient = False
    kernel = staticmethod(surrogate_transition)

    def start(self, state, tune):
        return None

    def run(self, rng, target, tuning, tune):
        emulator = wrong_emulator(target.state.theta.size)
        state, info = self.kernel(rng, target, emulator=emulator, step_size=0.8)
        return state, None, {"theta_acceptance": info.theta_acceptance}


WITH_JUMPS = partial(surrogate_transition, n_jumps=2)


def pvalue_of(kernel, toy="counts", replicates=250):
    move = Jumps()
    move.kernel = kernel
    elements = (samplers.Theta("whitened", move), moves.latent.EllipticalSlice())
    return invariance(elements, TOYS[toy](), replicates=replicates, steps=3).pvalue


@pytest.mark.fast("counts-surrogate_transition", "labels-kernel1")
@pytest.mark.parametrize("kernel", [surrogate_transition, WITH_JUMPS])
@pytest.mark.parametrize("toy", TOYS)
def test_a_wrong_emulator_is_exact(toy, kernel):
    assert pvalue_of(kernel, toy) > 1e-4


@pytest.mark.slow
def test_a_coin_says_whether_jumps_come_first(rng):
    """In a fixed order the two would not be reversible, and the ratio at the end would be wrong."""
    thetas = []

    def log_prior(theta):
        thetas.append(theta)
        return 0.0

    model, first = model_of_theta(log_prior, np.zeros_like, 1), 0
    state = SimpleNamespace(theta=np.zeros(1), model=model)
    target = MadeTarget(state, 0.0, lambda theta: (-math.inf, None))
    for _ in range(400):
        thetas.clear()
        surrogate_transition(
            rng, target, emulator=wrong_emulator(1), step_size=1.0, n_trajectories=1, n_jumps=1
        )
        # A jump begins by looking at the prior where the chain is; a trajectory looks elsewhere.
        start, then = thetas[:2]
        first += np.allclose(start, then, rtol=0.0, atol=1e-12)
    assert abs(first - 200) < 5 * 10  # five standard deviations


def without_target(rng, target, *, emulator, step_size):
    """The mutant believes the emulator: whatever it proposes is accepted."""
    return with_ratio(rng, target, emulator, step_size, lambda log_density, ratio: ratio)


def upside_down(rng, target, *, emulator, step_size):
    """The mutant multiplies by the emulator's ratio instead of dividing."""

    def twice(log_density, ratio):
        return log_density + 2.0 * ratio

    return with_ratio(rng, target, emulator, step_size, twice)


def with_ratio(rng, target, emulator, step_size, change):
    state = target.state

    def log_density(theta):
        return emulator.log_evidence(theta) + state.model.log_prior(theta)

    def evaluate(theta):
        value, there = target.evaluate(theta)
        if there is None:
            return value, there
        ratio = log_density(theta) - log_density(state.theta)
        return target.log_density + change(value - target.log_density, ratio), there

    wrong = MadeTarget.like(target, evaluate=evaluate)
    return surrogate_transition(rng, wrong, emulator=emulator, step_size=step_size)


@pytest.mark.mutant
@pytest.mark.parametrize("mutant", [without_target, upside_down])
def test_a_wrong_ratio_is_noticed(mutant, dies):
    pvalue = until_noticed(lambda replicates: pvalue_of(mutant, replicates=replicates), 150, 600)
    dies(f"surrogate transition: {mutant.__name__}", pvalue, below=1e-6)


def without_ratio(rng, target, *, emulator, step_size):
    """The mutant forgets the emulator's ratio."""

    def forgets(log_density, ratio):
        return log_density + ratio  # which the move subtracts

    return with_ratio(rng, target, emulator, step_size, forgets)


@pytest.mark.mutant
def test_without_the_emulators_ratio_it_is_noticed(dies):
    noticed = partial(pvalue_of, without_ratio)
    pvalue = until_noticed(lambda replicates: noticed(replicates=replicates), 150, 1000)
    dies("surrogate transition: without the emulator's ratio", pvalue, below=1e-6)


LOOK, TRAJECTORY, JUMP = on_emulator.look, on_emulator.trajectory, on_emulator.jump


def _in_python(loop):
    """The Python function of a loop, which NUMBA_DISABLE_JIT has in the loop's place already."""
    return getattr(loop, "py_func", loop)


def interpreted(patch, **others):
    """Propose by the Python functions of the loops, with others for some of them."""
    loops = {"trajectory": _in_python(TRAJECTORY), "jump": _in_python(JUMP)}
    for name, function in (loops | others).items():
        patch.setattr(on_emulator, name, function)
    patch.setattr(module, "propose", _in_python(on_emulator.propose))


def test_the_loops_need_no_compilation(monkeypatch):
    interpreted(monkeypatch)
    assert pvalue_of(surrogate_transition, replicates=150) > 1e-4


@pytest.mark.mutant
def test_without_the_end_of_a_trajectory_it_is_noticed(dies, monkeypatch):
    def trajectory(rng, here, step, n_steps, emulator, prior):
        """Accept by the change of the kinetic energy alone."""

        def level(z, emulator, prior):
            return here._replace(z=z, kick=LOOK(z, emulator, prior).kick)

        with monkeypatch.context() as patch:
            patch.setattr(on_emulator, "look", level)
            end, log_ratio = _in_python(TRAJECTORY)(rng, here, step, n_steps, emulator, prior)
        return LOOK(end.z, emulator, prior), log_ratio

    interpreted(monkeypatch, trajectory=trajectory)
    noticed = partial(pvalue_of, surrogate_transition)
    pvalue = until_noticed(lambda replicates: noticed(replicates=replicates), 150, 600)
    dies("surrogate transition: without end of the trajectory", pvalue, below=1e-6)


def transition(kernel):
    """Three transitions of a Gaussian on a wrong emulator, with jumps."""

    def move(rng, theta):
        for _ in range(3):
            target = gaussian_target(theta, np.ones(2))
            state, _ = kernel(
                rng, target, emulator=wrong_emulator(2), step_size=0.8, n_trajectories=1, n_jumps=3
            )
            theta = state.theta
        return theta

    return move


def test_jumps_leave_a_gaussian_invariant():
    assert pairs_pvalue(transition(surrogate_transition), 1000) > 1e-4


def jumping(kernel):
    def move(rng, theta):
        for _ in range(3):
            theta = kernel(rng, gaussian_target(theta, np.ones(2))).theta
        return theta

    return move


def test_a_jump_of_the_target_leaves_it_invariant():
    assert pairs_pvalue(jumping(jump_of_target), 2000) > 1e-4


@pytest.mark.mutant
def test_a_jump_that_forgets_where_it_was_is_noticed(dies):
    def forgets(rng, target):
        return jump_of_target(rng, replace(target, log_density=0.0))

    pvalue = until_noticed(partial(pairs_pvalue, jumping(forgets)), 1000, 3000)
    dies("prior jump: of a target, its density forgotten", pvalue, below=1e-6)


@pytest.mark.mutant
def test_jumps_outside_the_ratio_are_noticed(dies, monkeypatch):
    """Those before the trajectories: the ratio begins after them."""
    seen = []

    def jump(rng, here, *others):
        seen.append((False, here.log_evidence + here.log_prior))
        return JUMP(rng, here, *others)

    def trajectory(rng, here, *others):
        seen.append((True, here.log_evidence + here.log_prior))
        return TRAJECTORY(rng, here, *others)

    def propose(*arguments):
        seen.clear()
        theta, log_ratio, acceptance, moved = _in_python(on_emulator.propose)(*arguments)
        begin = next(at for is_trajectory, at in seen if is_trajectory)
        return theta, log_ratio - (begin - seen[0][1]), acceptance, moved

    interpreted(monkeypatch, jump=jump, trajectory=trajectory)
    monkeypatch.setattr(module, "propose", propose)
    move = transition(surrogate_transition)
    pvalue = until_noticed(partial(pairs_pvalue, move), 1000, 3000)
    dies("surrogate transition: jumps outside the emulator's ratio", pvalue, below=1e-6)


@pytest.mark.slow
def test_an_emulator_of_another_density_costs_acceptance_alone(monkeypatch):
    """Trajectories and the ratio know the same: of the evidence alone, without the prior."""

    def look(*arguments):
        return LOOK(*arguments)._replace(log_prior=0.0)

    interpreted(monkeypatch, look=look)
    assert pvalue_of(surrogate_transition) > 1e-4


def test_outside_numbers_it_stays(rng):
    """A start where the emulator has no number is left to the other moves."""
    nowhere = wrong_emulator(2)._replace(constant=math.nan)
    model = model_of_theta(lambda t: 0.0, np.zeros_like, 2)
    state = SimpleNamespace(theta=np.zeros(2), model=model)
    target = MadeTarget(state, 0.0, lambda theta: pytest.fail("evaluated"))
    moved, info = surrogate_transition(rng, target, emulator=nowhere, step_size=1.0)
    assert moved is state
    assert info.theta_acceptance == 0.0


def test_a_rehearsal_compiles_what_draws_call(monkeypatch, rng):
    """Arrays of the same layouts: of others the loops would be compiled again, in each chain."""
    seen = []
    monkeypatch.setattr(on_emulator, "propose", lambda *arguments: seen.append(arguments))
    model = model_of_theta(lambda t: 0.0, np.zeros_like, 2)
    on_emulator.rehearse(SimpleNamespace(theta=np.zeros(2), model=model))
    known = emulate(visits(40, rng), CENTER, ROOT)
    ((_, theta, emulator, *_),) = seen
    assert list(map(numba.typeof, emulator)) == list(map(numba.typeof, known))
    assert numba.typeof(theta) == numba.typeof(CENTER)


# Learning


def learner():
    return EmulatorFit(None, (), History((), 20))


def test_it_is_fitted_when_the_draws_have_grown_by_a_fifth(rng):
    tuning, fits = learner(), []
    for i in range(60):
        theta = CENTER + ROOT @ rng.standard_normal(2)
        before = tuning.emulator
        tuning = tuning.learn([(theta, bent(theta), 0.0)], theta)
        if tuning.emulator is not before:
            fits.append(i + 1)
    assert fits == [20, 24, 29, 35, 42, 51]
    past = np.array(tuning.history.rows[51 // 3 : 51])
    np.testing.assert_allclose(tuning.emulator.center, past.mean(axis=0))


def test_it_waits_for_enough_thetas(rng):
    tuning = learner()
    for _ in range(40):
        tuning = tuning.learn([], CENTER)
    assert tuning.emulator is None


def test_it_forgets_the_oldest(rng):
    tuning = learner()._replace(history=History((), 10_000))
    for i in range(600):
        tuning = tuning.learn([(np.full(2, float(i)), 0.0, 0.0)], CENTER)
    assert len(tuning.visits) == 360
    assert tuning.visits[0][0][0] == 240.0


def tuned(tune=200):
    """A chain of the default on labels, tuned."""
    elements = elements_of((lgm.PseudoMarginal, {}), "labels")
    return Chain.start(elements, Labels(), np.random.default_rng(1), tune)


class Restless(samplers.Emulated):
    """An emulator that sits where the chain is: too high here, too low everywhere else."""

    def run(self, rng, target, tuning, tune):
        at = target.state.theta
        here = wrong_emulator(at.size)._replace(
            center=at, root=0.25 * np.eye(at.size), linear=0.0 * at
        )
        return super().run(
            rng, target, tuning._replace(fit=tuning.fit._replace(emulator=here)), tune
        )


@pytest.mark.slow
@pytest.mark.mutant
def test_an_emulator_that_learns_for_ever_is_noticed(dies):
    chain = tuned()
    assert chain.tunings[0].move.fit.emulator is not None
    (element,) = chain.elements
    chain.elements = (replace(element, move=Restless(**vars(element.move))),)
    pvalue = until_noticed(
        lambda replicates: invariance_of(chain, replicates=replicates, steps=3).pvalue, 250, 800
    )
    dies("tuning: an emulator that learns for ever", pvalue, below=1e-6)


class UntilLikelier(samplers.PseudoMarginal):
    """Moves until f is likelier than before, ten times at most."""

    def _sample(self, rng, state, tuning, tune):
        start = state.log_likelihood
        for _ in range(10):
            state, tuning, stats = self._round(rng, state, tuning, tune)
            if state.log_likelihood > start:
                break
        return state, tuning, stats


@pytest.mark.mutant
def test_rounds_that_end_with_luck_are_noticed(dies):
    """How many moves a draw makes may depend on what was learnt, not on where they lead."""
    chain = tuned()
    (element,), (tuning,) = chain.elements, chain.tunings
    chain.tunings = [tuning._replace(move=tuning.move._replace(share=0.1))]
    assert chain.tunings[0].move.rounds == 3
    assert invariance_of(chain, replicates=250, steps=2).pvalue > 1e-4
    chain.elements = (UntilLikelier(**vars(element)),)
    pvalue = until_noticed(
        lambda replicates: invariance_of(chain, replicates=replicates, steps=2).pvalue, 250, 800
    )
    dies("pseudo-marginal: as many rounds as it takes to be likelier", pvalue, below=1e-6)


def test_precisions_of_the_prior_are_asked_for_once_at_each_theta():
    chain = tuned(tune=0)
    (element,) = chain.elements
    chain.tunings = [element.start(chain.state, 50)]
    chain.step(tune=True)
    state = chain.state
    before = tally.cubic_ops
    q = state.at.approximation(element.explore)
    seen = Margins(q.posterior.variances, state.prior.precisions)
    expected = np.linalg.inv(chain.toy.cov(state.theta)).diagonal()
    np.testing.assert_allclose(seen.precisions, expected)
    sites = SitesTuning.start(OneByOne(3, copula=True), 3).update(state.theta, q.sites, seen)
    np.testing.assert_array_equal(chain.tunings[0].sites.products, sites.products)
    there = state.with_f(state.f + 0.1)
    np.testing.assert_array_equal(there.prior.precisions, seen.precisions)
    assert tally.cubic_ops == before


# Sites


def test_sites_on_a_line_are_learnt(rng):
    slope = rng.standard_normal((6, 2))
    tuning = SitesTuning.start(OneByOne(3), 2)
    for theta in rng.standard_normal((200, 2)):
        s = slope @ theta + 1.0
        W = np.exp(s[3:])
        tuning = tuning.update(theta, Sites(s[:3] * np.sqrt(W + OFFSET), W))
    line = tuning.fit()
    theta = np.array([0.5, -0.5])
    s = slope @ theta + 1.0
    sites = line(theta)
    np.testing.assert_allclose(sites.nu / np.sqrt(sites.precision + OFFSET), s[:3], atol=0.1)
    np.testing.assert_allclose(np.log(sites.precision), s[3:], atol=0.1)
    assert sites.trusted
    # It is not followed far beyond the thetas that it was fitted to.
    far, farther = (line(line.theta + s * np.array([1.0, -1.0])) for s in (50.0, 500.0))
    np.testing.assert_allclose(far.nu, farther.nu, rtol=1e-6)
    assert not far.trusted


@pytest.mark.parametrize("p", [1, 3, 11, 34])
def test_sites_are_recalled_where_tuning_has_been(p):
    """As many standard deviations from its center as a Gaussian is, and a little more."""
    rng = np.random.default_rng(p)
    tuning = SitesTuning.start(OneByOne(1), p)
    for theta in rng.standard_normal((3000, p)):
        tuning = tuning.update(theta, Sites(np.ones(1), np.ones(1)))
    line = tuning.fit()
    away = np.linalg.solve(line.whiten, np.full(p, 1.0) / math.sqrt(p))
    for beyond, trusted in ((-1.0, True), (0.7, True), (0.9, False)):
        assert line(line.theta + (math.sqrt(p) + beyond) * away).trusted == trusted


def test_one_theta_makes_a_level_line():
    tuning = SitesTuning.start(OneByOne(1), 2).update(
        np.ones(2), Sites(np.array([2.0]), np.array([0.0]))
    )
    sites = tuning.fit()(np.array([5.0, -3.0]))
    assert sites.nu == pytest.approx(2.0)
    assert 0 < sites.precision < 1e-7


def center_of(toy):
    """Likelihood, mean and covariance at the prior's center of theta."""
    theta = toy.prior_mean
    return LikelihoodAt(toy, theta), toy.mean(theta), toy.cov(theta)


@pytest.mark.parametrize("toy", TOYS)
@pytest.mark.parametrize("search", [ep, laplace_from_sites])
def test_recalled_sites_make_the_same_q(toy, search):
    likelihood, mean, K = center_of(TOYS[toy]())
    q = search(likelihood, DensePrior(mean, K.copy()))
    before = tally.cubic_ops
    sites = PredictedSites(q.sites.nu, q.sites.precision)
    again = recall(likelihood, DensePrior(mean, K.copy()), start=sites)
    assert tally.cubic_ops - before == 1
    np.testing.assert_allclose(again.center, q.center, atol=1e-10)
    np.testing.assert_allclose(again.alpha, q.alpha, atol=1e-10)
    np.testing.assert_array_equal(again.precision, q.precision)
    assert again.posterior.log_determinant == pytest.approx(q.posterior.log_determinant)


def test_laplace_from_sites_has_the_curvature_of_the_mode(rng):
    likelihood, mean, K = center_of(Counts())
    for start in (None, Sites(rng.standard_normal(3), rng.uniform(1, 5, size=3))):
        q = laplace_from_sites(likelihood, DensePrior(mean, K.copy()), start=start, tolerance=1e-10)
        np.testing.assert_allclose(q.precision, likelihood(q.center)[2], rtol=1e-3)
    loose = laplace(likelihood, DensePrior(mean, K.copy()), tolerance=0.5)
    assert not np.allclose(loose.precision, likelihood(loose.center)[2], rtol=1e-3)
