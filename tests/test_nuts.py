"""NUTS on an approximate evidence: exact along any slope, and taken where an emulator is poor."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from close import differences
from models import build
from samplers import elements_of
from toys import (
    PRIOR,
    TOYS,
    Chain,
    Counts,
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
from pymc_lgm.adaptation import History, MetricTuning
from pymc_lgm.approximations.emulator import MANY_HYPERPARAMETERS
from pymc_lgm.approximations.ep import ep
from pymc_lgm.approximations.recall import WarmSearch, laplace_from_sites
from pymc_lgm.approximations.variational import variational
from pymc_lgm.linalg import tally
from pymc_lgm.moves.leapfrog import leapfrog
from pymc_lgm.moves.theta import NUTS, Emulated
from pymc_lgm.moves.theta import no_u_turn as no_u_turn_module
from pymc_lgm.moves.theta import nuts as module
from pymc_lgm.moves.theta import prior_jump as prior_jump_module
from pymc_lgm.moves.theta.no_u_turn import no_u_turn
from pymc_lgm.moves.theta.nuts import FIRST, SHALLOW, SHORTEST, nuts
from pymc_lgm.moves.theta.prior_jump import prior_jump
from pymc_lgm.moves.theta.watching import KEPT
from pymc_lgm.state import AtTheta, State
from pymc_lgm.targets.approximate_evidence import (
    ApproximateEvidence,
    gradient_of_ep,
    gradient_of_laplace,
    gradient_of_variational,
)
from pymc_lgm.targets.approximate_marginal import ApproximateMarginalTarget
from pymc_lgm.targets.target import Slope

# The kernel


def wrong_slope(theta):
    """Nobody's log density, with a gradient that is none, and not its own."""
    gradient = 2.0 * np.sin(2.0 * theta) - 3.0 * theta + np.tanh(np.roll(theta, 1))
    return Slope(theta, -0.7 * float(theta @ theta) + float(np.cos(theta).sum()), gradient)


class Guesses:
    """A move along a wrong slope that never learns."""

    stats = ("theta_acceptance",)
    needs_gradient = False

    def start(self, state, tune):
        return None

    def run(self, rng, target, tuning, tune):
        factor = 0.3 * np.eye(target.state.theta.size)
        target = MadeTarget.like(target, slope=wrong_slope)
        state, info = nuts(rng, target, factor=factor, step_size=1.2, max_depth=3, n_jumps=2)
        return state, None, {"theta_acceptance": info.theta_acceptance}


@pytest.mark.slow
@pytest.mark.parametrize("toy", TOYS)
def test_a_wrong_slope_is_exact(toy):
    elements = (samplers.Theta("whitened", Guesses()), moves.latent.EllipticalSlice())
    assert invariance(elements, TOYS[toy](), replicates=300).pvalue > 1e-4


def trajectory(kernel):
    """One trajectory by a gradient that is not quite that of the density."""

    def slope(theta):
        return Slope(theta, -0.5 * float(theta @ theta), 0.5 - theta + 0.5 * np.sin(2.0 * theta))

    def move(rng, theta):
        there, _, _ = kernel(rng, slope(theta), slope, factor=np.diag([1.0, 0.25]), step_size=0.8)
        return there.theta

    return move


def pushed_slope(theta):
    density = -0.35 * float(theta @ theta) + 0.4 * float(np.sin(theta).sum())
    return Slope(theta, density, 0.5 - theta + 0.5 * np.sin(2.0 * theta))


def jump(kernel):
    """Three jumps, for a Gaussian whose prior is quite another density."""

    def slope(theta):
        return Slope(theta, -0.5 * float(theta @ theta), np.zeros(2))

    def move(rng, theta):
        here = slope(theta)
        for _ in range(3):
            here = kernel(rng, here, slope, PRIOR.prior_density)
        return here.theta

    return move


def transition(kernel, factor=lambda theta: np.eye(2)):
    """Three transitions along the slope of another density."""

    def move(rng, theta):
        for _ in range(3):
            target = replace(gaussian_target(theta, np.ones(2)), slope=pushed_slope)
            theta = kernel(rng, target, factor=factor(theta), step_size=1.4)[0].theta
        return theta

    return move


MOVES = {
    "transition": transition(nuts),
    "trajectory": trajectory(no_u_turn),
    "jump": jump(prior_jump),
    "transition and jumps": transition(partial(nuts, n_jumps=1)),
}


@pytest.mark.fast("transition-1000", "trajectory-1000", "jump-1000")
@pytest.mark.parametrize("replicates", [1000, 3000])
@pytest.mark.parametrize("move", MOVES)
def test_it_leaves_a_gaussian_invariant(move, replicates):
    assert pairs_pvalue(MOVES[move], replicates) > 1e-4


def without_kinetic_energy(patch):
    patch.setattr(
        no_u_turn_module._Point, "energy", property(lambda self: self.at.slope.log_density)
    )


def without_draws_by_weight(patch):
    drawn = no_u_turn_module._drawn

    def wrong(rng, near, far, progressive):
        return drawn(rng, near, far, progressive) if progressive else far.chosen

    patch.setattr(no_u_turn_module, "_drawn", wrong)


def without_turns_within_a_doubling(patch):
    joined, turns = no_u_turn_module._joined, no_u_turn_module._turns

    def wrong(rng, near, far, sign, progressive):
        patch.setattr(no_u_turn_module, "_turns", turns if progressive else lambda *args: False)
        return joined(rng, near, far, sign, progressive)

    patch.setattr(no_u_turn_module, "_joined", wrong)


TRAJECTORY = {
    "the kinetic energy": without_kinetic_energy,
    "draws by weight": without_draws_by_weight,
    "turns within a doubling": without_turns_within_a_doubling,
}
TRANSITION = {
    "the target": lambda change, ratio: 0.0,
    "the approximation's ratio": lambda change, ratio: change + ratio,
    "the right ends of the ratio": lambda change, ratio: change + 2.0 * ratio,
}
"""The change of log π that the mutant takes, from the right one and that of log π*."""


def nuts_with(wrong):
    def kernel(rng, target, **how):
        def evaluate(theta):
            value, there = target.evaluate(theta)
            ratio = target.slope(theta).log_density - target.slope(target.state.theta).log_density
            return target.log_density + wrong(value - target.log_density, ratio), there

        return nuts(rng, replace(target, evaluate=evaluate), **how)

    return kernel


@pytest.mark.mutant
@pytest.mark.parametrize("name", [*TRAJECTORY, *TRANSITION])
def test_a_wrong_rule_is_noticed(name, monkeypatch, dies):
    if name in TRAJECTORY:
        TRAJECTORY[name](monkeypatch)
        move = trajectory(no_u_turn)
    else:
        move = transition(nuts_with(TRANSITION[name]))
    pvalue = until_noticed(partial(pairs_pvalue, move), 1000, 3000)
    dies(f"nuts: without {name}", pvalue, below=1e-6)


@pytest.mark.mutant
def test_a_wrong_leapfrog_is_noticed(dies, monkeypatch):
    def with_a_whole_kick(x, r, at, *, step_size, **how):
        return leapfrog(x, r + 0.5 * step_size * at.kick, at, step_size=step_size, **how)

    monkeypatch.setattr(no_u_turn_module, "leapfrog", with_a_whole_kick)
    pvalue = until_noticed(partial(pairs_pvalue, transition(nuts)), 1000, 3000)
    dies("nuts: without half a kick at the start", pvalue, below=1e-6)


@pytest.mark.mutant
def test_a_jump_that_knows_no_prior_is_noticed(dies, monkeypatch):
    slice_of_prior = prior_jump_module.slice_of_prior
    monkeypatch.setattr(
        prior_jump_module, "slice_of_prior", lambda *args: (slice_of_prior(*args)[0], 0.0, 0.0)
    )
    pvalue = until_noticed(partial(pairs_pvalue, jump(prior_jump)), 1000, 3000)
    dies("prior jump: its proposal is not that of the prior", pvalue, below=1e-6)


@pytest.mark.mutant
def test_a_mass_matrix_that_learns_for_ever_is_noticed(dies):
    """It is of where the chain is."""
    move = transition(nuts, lambda theta: np.diag([1.0, 0.25] * (0.3 + np.abs(theta))))
    pvalue = until_noticed(partial(pairs_pvalue, move), 1000, 3000)
    dies("tuning: a mass matrix that learns for ever", pvalue, below=1e-6)


def test_a_coin_says_whether_jumps_come_first(monkeypatch, rng):
    """In a fixed order the two would not be reversible, and the ratio at the end would be wrong."""
    order = []

    def jump(rng, here, slope, log_prior):
        order.append("jump")
        return here

    def trajectory(rng, here, slope, **options):
        order.append("trajectory")
        return here, 1, 1.0

    monkeypatch.setattr(module, "prior_jump", jump)
    monkeypatch.setattr(module, "no_u_turn", trajectory)
    target = gaussian_target(np.zeros(2), np.ones(2))
    for _ in range(400):
        nuts(rng, target, factor=np.eye(2), step_size=0.5, n_jumps=1)
    first = order[::2].count("jump")
    assert abs(first - 200) < 5 * 10  # five standard deviations
    assert order.count("jump") == order.count("trajectory") == 400


@pytest.mark.slow
@pytest.mark.parametrize("correlation", [0.0, 0.95])
def test_it_goes_as_far_as_the_density_is_wide(correlation, rng):
    """Draws of a Gaussian are next to independent; where it turns depends on its shape alone."""
    cov = np.array([[1.0, correlation], [correlation, 1.0]])
    precision, factor = np.linalg.inv(cov), np.linalg.cholesky(cov)

    def slope(theta):
        return Slope(theta, -0.5 * float(theta @ precision @ theta), -precision @ theta)

    here, draws, steps = slope(np.zeros(2)), [], []
    for _ in range(2000):
        here, taken, acceptance = no_u_turn(rng, here, slope, factor=factor, step_size=0.5)
        assert 0.0 < acceptance <= 1.0
        draws.append(here.theta)
        steps.append(taken)
    draws = np.array(draws)
    assert 3 <= np.mean(steps) <= 8
    for column in draws.T:
        assert abs(np.corrcoef(column[1:], column[:-1])[0, 1]) < 0.25
    z = np.linalg.solve(factor, draws.T).T
    # Of 2000 draws that are worth at least 1000: five standard errors.
    np.testing.assert_allclose(np.cov(z.T), np.eye(2), atol=5 * np.sqrt(2 / 1000))


def test_it_doubles_until_it_may_no_more(rng):
    """On a plain it never turns."""
    here = Slope(np.zeros(2), 0.0, np.zeros(2))
    there, steps, acceptance = no_u_turn(
        rng,
        here,
        lambda theta: Slope(theta, 0.0, np.zeros(2)),
        factor=np.eye(2),
        step_size=0.1,
        max_depth=4,
    )
    assert steps == 15
    assert acceptance == 1.0
    assert there is not here


def test_where_there_is_no_slope_it_stays(rng):
    state = SimpleNamespace(theta=np.zeros(2))
    target = MadeTarget(
        state, 0.0, lambda theta: pytest.fail("evaluated"), slope=lambda theta: None
    )
    before = tally.numerical_rejections
    moved, info = nuts(rng, target, factor=np.eye(2), step_size=0.5)
    assert moved is state
    assert info.theta_acceptance == 0.0
    assert tally.numerical_rejections == before + 1

    def only_here(theta):
        return Slope(theta, 0.0, np.ones(2)) if theta is state.theta else None

    moved, info = nuts(rng, replace(target, slope=only_here), factor=np.eye(2), step_size=0.5)
    assert moved is state
    assert info == (0.0, 1, 0.0)


def test_a_divergent_trajectory_ends(rng):
    here = pushed_slope(np.zeros(2))
    there, steps, _ = no_u_turn(rng, here, pushed_slope, factor=1e3 * np.eye(2), step_size=1.0)
    assert there is here
    assert steps == 1


# The slope


def surrogate_of(search, gradient, tolerance=1e-10):
    return ApproximateEvidence(WarmSearch(search, tolerance), gradient)


SLOPES = {
    "ep": surrogate_of(partial(ep, differentiable=True), gradient_of_ep, 1e-13),
    "laplace": surrogate_of(laplace_from_sites, gradient_of_laplace, 1e-16),
    "variational": surrogate_of(
        partial(variational, differentiable=True), gradient_of_variational, 1e-13
    ),
}


@pytest.mark.parametrize("toy", ["labels", "counts"])
@pytest.mark.parametrize("name", SLOPES)
def test_it_has_the_gradient_of_the_evidence(toy, name):
    reader, slope = TOYS[toy](), SLOPES[name]
    theta = reader.prior_mean + 0.1

    def density(theta):
        return slope(AtTheta.of(reader, theta)).log_density

    gradient = slope(AtTheta.of(reader, theta)).gradient
    np.testing.assert_allclose(gradient, differences(density, theta), rtol=1e-3, atol=1e-4)


def test_from_good_sites_it_takes_two_operations():
    """B and its inverse, of which both the moments and the gradient are made."""
    reader = Counts()
    at = AtTheta.of(reader, reader.prior_mean.copy())
    sites = SLOPES["ep"].search(at.likelihood, at.prior).sites
    slope = replace(SLOPES["ep"], search=replace(SLOPES["ep"].search, tolerance=1e-3))
    before = tally.cubic_ops
    assert slope.with_line(lambda theta: sites)(at) is not None
    assert tally.cubic_ops - before == 2


def test_there_is_no_slope_outside_the_numbers():
    reader = Counts()
    state = State.of(reader, reader.prior_mean.copy(), np.zeros(reader.n))
    search = WarmSearch(laplace_from_sites, 1e-3)
    target = ApproximateMarginalTarget.fix(state, search=search, evidence=SLOPES["ep"])
    slope = target.slope
    assert slope(np.full(reader.p, np.nan)) is None
    assert slope(reader.prior_mean + 1e4) is None


def test_a_state_keeps_the_slope_that_led_to_it(rng):
    reader, surrogate = Counts(), SLOPES["laplace"]
    state = State.of(reader, reader.prior_mean.copy(), np.zeros(reader.n))
    search = WarmSearch(laplace_from_sites, 1e-3)
    seen = ApproximateMarginalTarget.fix(state, search=search, evidence=surrogate)
    theta = state.theta + 0.1
    slope = seen.slope(theta)
    assert seen.slope(theta) is slope
    _, there = seen.evaluate(theta)
    before = tally.cubic_ops
    again = ApproximateMarginalTarget.fix(there, search=search, evidence=surrogate)
    assert again.slope(there.theta) is slope
    assert tally.cubic_ops == before


# Tuning


def test_draws_and_gradients_of_a_gaussian_show_its_covariance(rng):
    """Σ B Σ = A for any draws, but for what is drawn to the diagonals: 1 % here."""
    root = np.tril(rng.standard_normal((4, 4))) + 2.0 * np.eye(4)
    cov = root @ root.T
    thetas = rng.standard_normal((2000, 4)) @ root.T
    tuning = MetricTuning.start(4)._replace(history=History((), 2000))
    for theta in thetas:
        tuning = tuning.update(theta, -np.linalg.solve(cov, theta))
    found = tuning.factor @ tuning.factor.T
    scale = np.sqrt(np.outer(cov.diagonal(), cov.diagonal()))
    assert np.abs((found - cov) / scale).max() < 0.1


def test_the_mass_matrix_is_renewed_by_thirds(rng):
    tuning, renewed = MetricTuning.start(2), []
    for i in range(60):
        before = tuning.factor
        theta = rng.standard_normal(2)
        tuning = tuning.update(theta, -theta)
        renewed += [i + 1] if tuning.factor is not before else []
    assert renewed == [10, 14, 19, 26, 35, 47]
    assert tuning.draws == 60


@pytest.mark.slow
def test_it_learns_scales_and_a_step_size(rng):
    sd, move = np.array([0.1, 3.0]), NUTS()
    state = SimpleNamespace(theta=np.zeros(2))
    tuning, evaluations = move.start(state, 600), []
    for i in range(900):
        tune = i < 600
        state, tuning, stats = move.run(rng, gaussian_target(state.theta, sd), tuning, tune)
        evaluations += [] if tune else [stats["theta_steps"]]
    np.testing.assert_allclose(np.sqrt(np.square(tuning.metric.factor).sum(axis=1)), sd, rtol=0.4)
    assert tuning.step_size.value(False) > 0.3
    assert np.mean(evaluations) < 8
    assert tuning.metric.draws == tuning.last_fit == 540


def test_it_learns_from_noise_until_tuning_ends(rng):
    move, theta = NUTS(), np.zeros(2)
    tuning = move.start(SimpleNamespace(theta=theta), 100)
    target = gaussian_target(theta, np.ones(2), noisy=True)
    learnt = move.run(rng, target, tuning, True)[1]
    assert learnt.metric.draws == 1
    assert learnt.step_size != tuning.step_size
    assert move.run(rng, target, learnt, False)[1] is learnt


def test_first_trajectories_are_short(rng):
    """Nothing is known of the scales yet."""
    move, theta = NUTS(), np.zeros(2)
    tuning = move.start(SimpleNamespace(theta=theta), 100)
    short = tuning._replace(step_size=tuning.step_size.start(1e-6))
    target = gaussian_target(theta, np.ones(2))
    _, _, stats = move.run(rng, target, short, True)
    assert stats["theta_steps"] == 2**SHALLOW - 1
    _, _, stats = move.run(rng, target, short, False)
    assert stats["theta_steps"] == 2**move.max_depth - 1


def test_on_a_rough_slope_steps_do_not_shrink(rng):
    move, theta = NUTS(), np.zeros(2)
    tuning = move.start(SimpleNamespace(theta=theta), 100)
    known = tuning.metric._replace(history=History((np.stack([theta, theta]),) * FIRST, 10))
    rough = tuning._replace(metric=known, step_size=tuning.step_size.start(1e-6))
    target = replace(gaussian_target(theta, np.ones(2)), evaluate=lambda theta: (-np.inf, None))
    for _ in range(20):
        _, _, stats = move.run(rng, target, rough, False)
        assert stats["theta_steps"] <= 2**SHALLOW - 1
        assert stats["theta_scale"] == pytest.approx(SHORTEST)


def test_on_a_slope_of_which_no_step_is_accepted_tuning_goes_on():
    """The rule asks for steps without end shorter, and a renewed mass matrix begins anew."""
    rng = np.random.default_rng(4)
    tuning = NUTS().start(SimpleNamespace(theta=np.zeros(2)), 2000)
    begins = []
    for _ in range(1700):
        here = Slope(rng.standard_normal(2), 0.0, rng.standard_normal(2))
        tuning = tuning.learn(here, 0.05)
        begins += [tuning.step_size.value(True)] if tuning.step_size.draws == 0 else []
    assert len(begins) > 5
    assert min(begins) >= SHORTEST * (1.0 - 1e-12)


# When the emulator gives way


def judged(acceptance, tune=100, visited=60, other=None):
    """What an emulator has learnt of proposals of this acceptance by the time it is judged."""
    move = Emulated(NUTS() if other is None else other)
    rng = np.random.default_rng(3)
    state = SimpleNamespace(theta=np.zeros(2), model=PRIOR)
    tuning = move.start(state, tune)
    for _ in range(60):
        tuning = tuning._replace(acceptance=tuning.acceptance.note(acceptance))
    fit = tuning.fit
    for theta in rng.standard_normal((visited, 2)):
        fit = fit.learn([(theta, -0.5 * float(theta @ theta), 0.0)], theta)
    return move, move._judged(tuning._replace(fit=fit))


@pytest.mark.parametrize(
    ("acceptance", "share", "rounds", "emulated"),
    [
        (0.7, 0.0, 1, True),
        (0.6, 0.025, 2, True),
        (0.2, 0.125, 4, True),
        (0.05, 1.0, 1, False),
    ],
)
def test_an_emulator_is_helped_or_replaced(acceptance, share, rounds, emulated):
    _, tuning = judged(acceptance)
    assert tuning.share == pytest.approx(share)
    assert tuning.rounds == rounds
    assert (tuning.fit.emulator is not None) == emulated


def test_it_is_not_judged_too_early():
    _, tuning = judged(0.0, visited=40)
    assert tuning.share == 0.0
    assert tuning.fit.emulator is not None


@pytest.mark.parametrize(("acceptance", "walks"), [(0.05, True), (0.2, False)])
def test_a_walk_replaces_an_emulator_but_does_not_help_one(acceptance, walks):
    _, tuning = judged(acceptance, other=samplers.Metropolis())
    assert tuning.share == float(walks)
    assert (tuning.fit.emulator is None) == walks
    assert tuning.rounds == (4 if walks else 1)


def test_a_warmup_move_takes_its_place_until_the_emulator_needs_help(rng):
    """A walk explores; NUTS begins where the emulator's jumps have been found wanting."""
    move = Emulated(NUTS(), samplers.Metropolis())
    target = gaussian_target(np.zeros(2), np.ones(2), noisy=True)
    start = move.start(target.state, 400)
    _, explored, stats = move.run(rng, target, start, True)
    assert stats["theta_steps"] == 0.0
    assert explored.other is start.other
    assert explored.warmup is not start.warmup
    _, helped, stats = move.run(rng, target, start._replace(share=1.0), True)
    assert stats["theta_steps"] > 0.0
    assert helped.warmup is start.warmup


def test_with_an_emulator_jumps_take_the_place_of_the_warmup_move(rng):
    """Of one component, as its prior would have it: a walk would not see a long tail."""
    _, tuning = judged(0.9)
    move = Emulated(NUTS(), samplers.Metropolis(), other_share=1.0)
    target = gaussian_target(np.zeros(2), np.ones(2))
    tuning, changed = tuning._replace(warmup="a walk that is not taken"), []
    for _ in range(100):
        visits = len(tuning.fit.visits)
        state, tuning, stats = move.run(rng, target, tuning, True)
        changed.append((state.theta != target.state.theta).sum())
        assert stats["theta_acceptance"] in (0.0, 1.0)
        assert len(tuning.fit.visits) == visits + 1
    assert set(changed) == {0, 1}


def test_an_emulator_learns_what_trajectories_have_seen(rng):
    """A few points of each, whether they were accepted or not; nothing of noise."""
    move = Emulated(NUTS())
    model = model_of_theta(lambda theta: -1.0, np.zeros_like, 2)
    state = SimpleNamespace(theta=np.zeros(2), model=model, log_prior=-1.0)

    def evaluate(theta):
        log_density = -0.5 * float(theta @ theta)
        return log_density, SimpleNamespace(theta=theta, model=model, log_prior=-1.0)

    target = replace(gaussian_target(state.theta, np.ones(2)), state=state, evaluate=evaluate)
    tuning = move.start(state, 400)
    for _ in range(20):
        before = len(tuning.fit.visits)
        _, tuning, _ = move.run(rng, target, tuning, True)
        assert 1 <= len(tuning.fit.visits) - before <= KEPT
    for theta, log_evidence, of_prior in tuning.fit.visits:
        assert of_prior == -1.0
        assert log_evidence == pytest.approx(1.0 - 0.5 * float(theta @ theta))
    _, later, _ = move.run(rng, replace(target, is_noisy=True), tuning, True)
    assert later.fit.visits == tuning.fit.visits


# The step


@pytest.mark.slow
@pytest.mark.parametrize(
    ("toy", "share"), [("counts", 0.5), pytest.param("errors", 1.0, marks=pytest.mark.whole)]
)
def test_the_default_that_has_given_way_is_exact(toy, share):
    (element,) = elements_of((lgm.PseudoMarginal, {}), toy)
    fair = 1.1 if share == 1.0 else 0.0
    given_way = replace(element, move=replace(element.move, fair=fair, good=2.9, judged_after=0.4))
    chain = Chain.start((given_way,), TOYS[toy](), np.random.default_rng(4), tune=200)
    # Where nine of the emulator's jumps in ten are accepted, a quarter of what 2.9 is more.
    assert chain.tunings[0].move.share == pytest.approx(share, abs=0.15 if share < 1.0 else 0.0)
    assert invariance_of(chain, replicates=200, steps=2).pvalue > 1e-4


@pytest.mark.slow
def test_a_model_without_a_gradient_in_theta_is_refused(monkeypatch):
    """The default does without."""
    for gradient in ("has_theta_gradient", "has_evidence_gradient"):
        monkeypatch.setattr(lgm.model.LatentGaussianModel, gradient, False)
    with pytest.raises(ValueError, match="Write move='metropolis'"):
        build(lgm.PseudoMarginal, "probit", move="nuts")
    step = build(lgm.PseudoMarginal, "probit")
    (element,) = step.elements
    assert isinstance(element.move.other, samplers.Metropolis)
    assert element.surrogate is None
    chain = Chain.start(step.elements, TOYS["labels"](), np.random.default_rng(1))
    assert np.isfinite(chain.draws(1)).all()


@pytest.mark.slow
def test_many_hyper_parameters_have_no_emulator(monkeypatch):
    assert isinstance(build(lgm.PseudoMarginal, "probit").element.move, Emulated)
    monkeypatch.setattr("pymc_lgm.steps.plan.MANY_HYPERPARAMETERS", 1)
    assert MANY_HYPERPARAMETERS == 12
    step = build(lgm.PseudoMarginal, "probit")
    assert isinstance(step.element.move, NUTS)
    assert "emulator" not in repr(step.element.move)
