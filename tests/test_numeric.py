"""The numeric layers alone: factors, states, kernels and tuning rules, mostly without chance."""

import contextvars
import math
import threading

import numpy as np
import pytest

from mutants import Instead
from toys import Counts

from pymc_lgm import linalg
from pymc_lgm.adaptation import ProposalTuning, StepSizeTuning
from pymc_lgm.gaussian import DensePrior
from pymc_lgm.linalg import factorize, tally
from pymc_lgm.moves.latent.elliptical_slice import elliptical_slice
from pymc_lgm.moves.latent.hmc import hmc
from pymc_lgm.moves.theta.metropolis import metropolis
from pymc_lgm.samplers.sweep import run
from pymc_lgm.state import VISITED, AtTheta, State, acceptance_probability
from pymc_lgm.targets.sufficient import SufficientTarget
from pymc_lgm.targets.whitened import WhitenedTarget


class Toy(Counts):
    """Counts whose amplitude is at most exp(2)."""

    def log_prior(self, theta):
        return super().log_prior(theta) if theta[2] < 2.0 else -math.inf


@pytest.fixture
def state():
    state = State.of(Toy(), np.array([0.4, -0.2, 0.1]), np.array([0.5, 0.8, -0.3]))
    assert state is not None
    return state


@pytest.fixture
def K(rng):
    A = rng.standard_normal((7, 7))
    return A @ A.T + np.eye(7)


@pytest.mark.parametrize("columns", [(), (3,)])
def test_factor_verbs_agree_with_dense_algebra(K, rng, columns):
    factor, L = factorize(K.copy()), np.linalg.cholesky(K)
    x = rng.standard_normal((7, *columns))
    np.testing.assert_allclose(factor.dense(), L)
    np.testing.assert_allclose(factor.multiply(x), L @ x)
    np.testing.assert_allclose(factor.multiply_transposed(x), L.T @ x)
    np.testing.assert_allclose(factor.solve(x), np.linalg.solve(L, x))
    np.testing.assert_allclose(factor.solve_transposed(x), np.linalg.solve(L.T, x))
    np.testing.assert_allclose(factor.inverse(), np.linalg.inv(K))
    np.testing.assert_allclose(factor.inverse_diagonal(), np.linalg.inv(K).diagonal())
    assert factor.log_determinant == pytest.approx(np.linalg.slogdet(K)[1])
    prior = DensePrior(np.zeros(7), K.copy())
    before = prior.covariance_times(x)
    np.testing.assert_allclose(before, K @ x)
    np.testing.assert_array_equal(prior.multiply(x), factor.multiply(x))
    np.testing.assert_array_equal(prior.covariance_times(x), before)


@pytest.mark.parametrize("n", [1, 63, 64, 65, 150])
def test_inverses_from_either_triangle(n, rng):
    A = rng.standard_normal((n, n))
    A = 3.0 * (A @ A.T + n * np.eye(n))
    expected, before = np.linalg.inv(A), tally.cubic_ops
    lower = factorize(A / 3.0).times(np.log(3.0))
    upper = DensePrior(np.zeros(n), A - np.eye(n)).condition(np.ones(n))._B
    assert (lower._lower, upper._lower) == (True, False)
    for factor in (lower, upper):
        inverse = factor.inverse()
        np.testing.assert_allclose(inverse, expected, atol=1e-12 * expected.max())
        np.testing.assert_array_equal(inverse, inverse.T)
        np.testing.assert_allclose(factor.inverse_diagonal(), expected.diagonal())
        np.testing.assert_allclose(factor.inverse_factor() @ factor.dense(), np.eye(n), atol=1e-12)
    assert tally.cubic_ops == before + 8


def test_what_the_other_triangle_holds_is_not_computed_with(rng):
    """It may be memory that nothing has been written to; a signaling NaN is what would warn."""
    A = rng.standard_normal((70, 70))
    A = np.asfortranarray(A @ A.T + 70.0 * np.eye(70))
    expected = np.linalg.inv(3.0 * A)
    A[np.triu_indices(70, 1)] = np.uint64(0x7FF0000000000001).view(np.float64)
    factor = factorize(A).times(np.log(3.0))
    np.testing.assert_allclose(factor.inverse(), expected, atol=1e-12 * expected.max())
    np.testing.assert_allclose(factor.inverse_diagonal(), expected.diagonal())
    np.testing.assert_allclose(factor.inverse_factor() @ factor.dense(), np.eye(70), atol=1e-12)


def test_conditioning_agrees_with_dense_algebra(K, rng):
    """B, and (I + W K)⁻¹ b before and after K has been factorized; a W_i of 0 too."""
    W, b = np.r_[0.0, rng.uniform(0.1, 3.0, 6)], rng.standard_normal(7)
    root, expected = np.sqrt(W), np.linalg.solve(np.eye(7) + W[:, None] * K, b)
    fresh, factorized = (DensePrior(np.zeros(7), K.copy()) for _ in range(2))
    assert factorized.is_proper
    for prior in (fresh, factorized):
        posterior = prior.condition(W)
        B = posterior._B
        np.testing.assert_allclose(
            B.dense() @ B.dense().T, np.eye(7) + root[:, None] * K * root, atol=1e-12
        )
        np.testing.assert_allclose(posterior.alpha(b), expected)
        np.testing.assert_allclose(
            B.inverse_diagonal(), np.linalg.inv(B.dense() @ B.dense().T).diagonal()
        )
        np.testing.assert_array_equal(posterior.one_minus_leverage, B.inverse_diagonal())


def test_conditioning_that_rounding_has_lost_is_a_value(K):
    """Σ = K − K W^½ B⁻¹ W^½ K, in which all digits cancel as K grows: then there is no B."""
    lost = []
    for exponent in range(0, 240, 3):
        prior = DensePrior(np.zeros(7), 10.0**exponent * K)
        posterior = prior.condition(np.ones(7))
        lost.append(posterior is None)
        if posterior is not None:
            right = 1.0 - np.linalg.inv(np.eye(7) + 10.0**exponent * K).diagonal()
            A = posterior._B.solve(10.0**exponent * K)
            variance = prior.variances - np.einsum("ij,ij->j", A, A)
            assert np.abs(variance / right - 1.0).max() < 1.0, exponent
    assert not any(lost[:5])
    assert all(lost[6:])


@pytest.mark.parametrize(
    ("log_ratio", "probability"),
    [(0.5, 1.0), (-1.0, math.exp(-1.0)), (-math.inf, 0.0), (math.inf, 1.0), (math.nan, 0.0)],
)
def test_the_acceptance_probability(log_ratio, probability):
    assert acceptance_probability(log_ratio) == probability


def test_factorize_works_in_place_in_either_order(K):
    for order in "CF":
        work = np.array(K, order=order)
        factor = factorize(work)
        assert np.shares_memory(factor._packed, work)
        np.testing.assert_allclose(factor.dense(), np.linalg.cholesky(K))


def test_verbs_do_not_change_their_argument(K, rng):
    factor = factorize(K.copy())
    x = rng.standard_normal(7)
    before = x.copy()
    factor.multiply(x), factor.multiply_transposed(x), factor.solve(x), factor.solve_transposed(x)
    np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize(
    "bad", [np.array([[1.0, 2.0], [2.0, 1.0]]), np.full((3, 3), np.nan), np.diag([1.0, np.nan])]
)
def test_what_cannot_be_factorized_is_a_value(bad):
    before = tally.cubic_ops
    assert factorize(bad.copy()) is None
    assert tally.cubic_ops == before + 1


def test_state_factorizes_only_when_the_covariance_moves(state):
    before = tally.cubic_ops
    shifted = state.with_theta(state.theta + np.array([1.0, 0.0, 0.0]), lambda prior: state.f)
    assert shifted.prior.has_covariance_of(state.prior)
    assert tally.cubic_ops == before
    scaled = state.with_theta(state.theta + np.array([0.0, 0.0, 0.1]), lambda prior: state.f)
    assert not scaled.prior.has_covariance_of(state.prior)
    assert tally.cubic_ops == before + 1


def test_state_outside_the_prior_costs_nothing(state):
    before = tally.cubic_ops
    assert state.with_theta(np.array([0.0, 0.0, 3.0]), lambda prior: state.f) is None
    assert tally.cubic_ops == before


def rejections(state):
    """Rejections counted at two proposals, neither of which has a likelihood."""
    before = tally.numerical_rejections
    assert state.with_f(state.f + 1) is None
    assert state.with_theta(state.theta + 0.1, lambda prior: state.f) is None
    return tally.numerical_rejections - before


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_density_that_is_no_number_is_counted(state, value, monkeypatch):
    monkeypatch.setattr(Toy, "log_likelihood", lambda self, f, theta: value)
    assert rejections(state) == 2


@pytest.mark.parametrize("fix", [SufficientTarget.fix, WhitenedTarget.fix])
def test_target_at_its_own_theta_is_the_state(state, rng, fix):
    target = fix(rng, state)
    log_density, same = target.evaluate(state.theta.copy())
    assert log_density == pytest.approx(target.log_density, rel=1e-12)
    np.testing.assert_allclose(same.f, state.f, rtol=1e-12, atol=1e-15)


def test_the_two_targets_hold_what_they_say(state, rng):
    theta = state.theta + np.array([0.2, 0.1, -0.3])
    _, held_f = SufficientTarget.fix(rng, state).evaluate(theta)
    np.testing.assert_array_equal(held_f.f, state.f)
    _, held_nu = WhitenedTarget.fix(rng, state).evaluate(theta)
    np.testing.assert_allclose(
        held_nu.prior.solve(held_nu.f - held_nu.mean), state.prior.solve(state.f - state.mean)
    )


def test_whitened_target_differs_from_the_joint_by_the_jacobian(state, rng):
    """p(theta, ν | y) dν = p(theta, f | y) df with |df/dν| = |L|."""
    theta = state.theta + np.array([0.2, 0.1, -0.3])
    log_density, there = WhitenedTarget.fix(rng, state).evaluate(theta)

    def joint(at):
        return at.log_prior + at.prior.log_density(at.f) + at.log_likelihood

    jacobian = 0.5 * (there.prior.factor.log_determinant - state.prior.factor.log_determinant)
    difference = log_density - WhitenedTarget.fix(rng, state).log_density
    assert difference == pytest.approx(joint(there) - joint(state) + jacobian)


def test_a_rejection_returns_the_same_object(state, rng):
    target = WhitenedTarget.fix(rng, state)
    factor = 100.0 * np.eye(3)  # proposals far outside the prior
    same, info = metropolis(rng, target, factor=factor)
    assert same is state
    assert info.theta_acceptance == 0.0


def at_angle(rng, angle):
    """A generator that always proposes the same angle, and a threshold that everything passes."""
    return Instead(rng, uniform=lambda low, high: angle, standard_exponential=lambda: 1e6)


def test_angle_zero_gives_the_position_back(state, rng):
    same, _ = elliptical_slice(at_angle(rng, 0.0), state)
    np.testing.assert_allclose(same.f, state.f)


def test_half_a_turn_is_the_mirror_image_in_the_mean(state, rng):
    mirrored, _ = elliptical_slice(at_angle(rng, math.pi), state)
    np.testing.assert_allclose(mirrored.f, 2 * state.mean - state.f, atol=1e-14)


@pytest.mark.parametrize("kernel", ["slice", "rotation", "leapfrog", "identity"])
def test_stored_densities_equal_their_evaluation(state, rng, kernel):
    for _ in range(20):
        if kernel == "slice":
            state, _ = elliptical_slice(rng, state)
        elif kernel == "identity":
            options = {"metric": "identity", "integrator": "leapfrog"}
            state, _ = hmc(rng, state, step_size=0.1, **options)
        else:
            state, _ = hmc(rng, state, step_size=0.2, integrator=kernel)
        assert state.log_likelihood == state.model.log_likelihood(state.f, state.theta)


def test_small_steps_conserve_the_energy(state, rng):
    for options in (
        {"integrator": "rotation"},
        {"integrator": "leapfrog"},
        {"integrator": "leapfrog", "metric": "identity"},
    ):
        _, info = hmc(rng, state, step_size=1e-4, max_steps=1, **options)
        assert info.latent_acceptance == pytest.approx(1.0, abs=1e-6)


def test_the_rotation_is_exact_without_data(state, rng, monkeypatch):
    """No likelihood, no force: every trajectory is accepted, whatever its length."""
    monkeypatch.setattr(Toy, "log_likelihood", lambda self, f, theta: 0.0)
    monkeypatch.setattr(
        Toy, "log_likelihood_gradient", lambda self, f, theta: (0.0, np.zeros(self.n))
    )
    start = State.of(Toy(), state.theta, state.f)
    _, info = hmc(rng, start, step_size=1.3, max_steps=50, integrator="rotation")
    assert info.latent_acceptance == pytest.approx(1.0, abs=1e-9)


def test_a_trajectory_that_leaves_the_numbers_is_counted(state, rng, monkeypatch):
    def overflowing(self, f, theta):
        return (-1.0, np.full(self.n, np.inf)) if f is not state.f else (-1.0, np.ones(self.n))

    monkeypatch.setattr(Toy, "log_likelihood_gradient", overflowing)
    before = tally.numerical_rejections
    with np.errstate(invalid="ignore", over="ignore"):
        same, info = hmc(rng, state, step_size=0.1, max_steps=3)
    assert same is state
    assert info.latent_acceptance == 0.0
    assert tally.numerical_rejections == before + 1


def test_the_proposal_finds_scale_and_shape(rng):
    """On N(0, Σ) the learnt C Cᵀ is near a multiple of Σ, and accepts as often as asked."""
    scales = np.array([10.0, 0.1])
    tuning = ProposalTuning.start(2, target=0.35)
    x = np.zeros(2)
    accepted = []
    for _ in range(20_000):
        xi = rng.standard_normal(2)
        proposal = x + tuning.factor @ xi
        log_ratio = 0.5 * float(((x / scales) ** 2).sum() - ((proposal / scales) ** 2).sum())
        acceptance = math.exp(min(0.0, log_ratio))
        accepted.append(acceptance)
        if rng.uniform() < acceptance:
            x = proposal
        tuning = tuning.update(xi, acceptance)
    shape = np.sqrt(np.diag(tuning.factor @ tuning.factor.T)) / scales
    assert shape.max() / shape.min() < 1.5
    assert np.mean(accepted[5000:]) == pytest.approx(0.35, abs=0.02)


def test_the_step_size_reaches_its_target():
    """For an acceptance of exp(−ε) the target 0.8 is met at ε = −log 0.8."""
    tuning = StepSizeTuning.start(1.0, target=0.8)
    for _ in range(5000):
        tuning = tuning.update(math.exp(-tuning.value(tune=True)))
    assert tuning.value(tune=False) == pytest.approx(-math.log(0.8), rel=0.02)


def test_the_step_size_respects_its_maximum():
    tuning = StepSizeTuning.start(0.5, maximum=1.0)
    for _ in range(200):
        tuning = tuning.update(1.0)
    assert tuning.value(tune=True) <= 1.0 + 1e-12
    assert tuning.value(tune=False) <= 1.0 + 1e-12


# Counters of a chain, and values cached at a theta


class Factorizing:
    """An element that factorizes a matrix ``times`` times, after the other chain's turn."""

    stats = ()

    def __init__(self, times, turn):
        self.times, self.turn = times, turn

    def run(self, rng, state, tuning, tune):
        for _ in range(self.times):
            self.turn()
            factorize(np.eye(2))
            self.turn()
        return state, tuning, {}


def test_chains_that_alternate_in_threads_count_their_own_operations():
    barrier, counts = threading.Barrier(2, timeout=60), {}

    def chain(name, times):
        elements = [Factorizing(times, barrier.wait), Factorizing(4 - times, barrier.wait)]
        counts[name] = run(None, None, elements[:1], [None], True)[2]["cubic_ops"]
        run(None, None, elements[1:], [None], True)

    chains = [threading.Thread(target=chain, args=(times, times)) for times in (1, 3)]
    for each in chains:
        each.start()
    for each in chains:
        each.join()
    assert counts == {1: 1, 3: 3}


def counts_of_contexts():
    """Operations in two contexts of one thread that alternate, and in the thread's own."""
    one, other = contextvars.copy_context(), contextvars.copy_context()
    before = tally.cubic_ops
    for context in (one, other, one):
        context.run(factorize, np.eye(2))
    counts = one.run(lambda: tally.cubic_ops), other.run(lambda: tally.cubic_ops), tally.cubic_ops
    return np.array(counts) - before


def test_contexts_that_alternate_in_one_thread_count_their_own_operations():
    np.testing.assert_array_equal(counts_of_contexts(), [2, 1, 0])


OPERATIONS = ("inverse", "inverse_diagonal", "inverse_factor")


def counts_of_a_factor():
    """Operations that a factorization and methods of the factor count."""
    counts = [tally.cubic_ops]
    factor = factorize(np.eye(2))
    counts.append(tally.cubic_ops)
    for name in OPERATIONS:
        getattr(factor, name)()
        counts.append(tally.cubic_ops)
    return np.diff(counts)


def test_each_operation_of_a_factor_is_counted_once():
    np.testing.assert_array_equal(counts_of_a_factor(), 1)


class Everywhere:
    """A count that all contexts share."""

    def __init__(self):
        self.count = 0

    def get(self):
        return self.count

    def set(self, count):
        self.count = count


class Uncounted(Everywhere):
    """A count that stays 0."""

    def set(self, count):
        pass


@pytest.mark.mutant
def test_a_count_of_all_contexts_is_noticed(monkeypatch, dies):
    monkeypatch.setattr(vars(linalg.Tally)["cubic_ops"], "value", Everywhere())
    error = np.abs(counts_of_contexts() - [2, 1, 0]).max()
    dies("tally: contexts share a count", float(error), above=0.5)


@pytest.mark.mutant
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_that_is_not_counted_is_noticed(name, monkeypatch, dies):
    right = getattr(linalg.CholeskyFactor, name)

    def uncounted(self):
        before = tally.cubic_ops
        result = right(self)
        tally.cubic_ops = before
        return result

    monkeypatch.setattr(linalg.CholeskyFactor, name, uncounted)
    error = np.abs(counts_of_a_factor() - 1).max()
    dies(f"tally: {name} is not counted", float(error), above=0.5)


@pytest.mark.mutant
def test_a_rejection_that_is_not_counted_is_noticed(state, monkeypatch, dies):
    monkeypatch.setattr(Toy, "log_likelihood", lambda self, f, theta: math.nan)
    counts = vars(linalg.Tally)["numerical_rejections"]
    monkeypatch.setattr(counts, "value", Uncounted())
    dies("tally: rejections are not counted", abs(rejections(state) - 2.0), above=0.5)


def test_a_value_at_another_theta_is_computed_once_and_goes_with_the_chain():
    calls = []

    def compute(at):
        calls.append(at.theta)
        return float(at.theta.sum())

    at = AtTheta.of(Toy(), np.array([0.1, 0.2, 0.0]))
    theta = np.array([0.3, 0.4, 0.0])
    assert at.elsewhere(theta, "sum", compute) == at.elsewhere(theta.copy(), "sum", compute)
    assert at.moved(theta).once("sum", lambda: None) == theta.sum()
    assert at.elsewhere(at.theta, "sum", compute) == at.once("sum", lambda: None)
    assert len(calls) == 2
    at.forget()
    assert at.moved(theta).once("sum", lambda: None) is None
    at.elsewhere(theta, "sum", compute)
    for x in np.linspace(0.0, 1.0, VISITED):
        at.elsewhere(np.array([x, 0.0, 0.0]), "sum", compute)
    at.elsewhere(theta, "sum", compute)
    assert len(calls) == VISITED + 4
