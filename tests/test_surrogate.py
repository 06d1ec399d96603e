"""Surrogate data, posterior whitening and slice sampling of theta: exact, and cheap as promised."""

import math

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from models import MODELS
from scipy import stats

import pymc_lgm as lgm

from pymc_lgm import sweep
from pymc_lgm.approximations import sites
from pymc_lgm.approximations.laplace import laplace
from pymc_lgm.approximations.sites import NOISES, site_approximation, taylor_approximation
from pymc_lgm.linalg import Covariance, factorize, tally
from pymc_lgm.moves import slice as slice_module
from pymc_lgm.moves.metropolis import metropolis
from pymc_lgm.moves.slice import slice_componentwise
from pymc_lgm.parameterizations import surrogate as surrogate_module
from pymc_lgm.parameterizations.posterior_whitened import PosteriorRoot, posterior_whitened
from pymc_lgm.parameterizations.surrogate import surrogate
from pymc_lgm.parameterizations.target import Target
from pymc_lgm.state import LikelihoodAt, State
from pymc_lgm.testing import joint_test

FIXES = {
    "surr-site": partial(surrogate, noise="site"),
    "surr-taylor": partial(surrogate, noise="taylor"),
    "post-site": partial(posterior_whitened, search=site_approximation),
    "post-taylor": partial(posterior_whitened, search=taylor_approximation),
}


def slices(rng, state, target, max_widths=1):
    widths = np.full(state.theta.size, 1.5)
    return slice_componentwise(rng, state, target, widths=widths, max_widths=max_widths)


def walks(rng, state, target):
    return metropolis(rng, state, target, factor=0.5 * np.eye(state.theta.size))


MOVES = {"slice": slices, "slice-out": partial(slices, max_widths=3), "metropolis": walks}


@dataclass(frozen=True)
class Move:
    """One parameterization and one move, without tuning."""

    fix: Callable
    move: Callable
    stats = ()

    def start(self, state, tune):
        return None

    def run(self, rng, state, tuning, tune):
        target = self.fix(rng, state)
        return self.move(rng, target.state, target)[0], None, {}


@pytest.fixture(scope="module")
def steps():
    """Model and step by name: compiled once, the sweep is exchanged."""
    made = {}

    def step(name, *elements):
        if name not in made:
            model = MODELS[name]()
            with model:
                made[name] = lgm.WhitenedMetropolis(latent="slice"), model
        made[name][0].elements = elements
        return made[name]

    return step


@pytest.fixture(scope="module")
def state_of(steps):
    """A state off the center of the prior."""

    def state(name):
        step, model = steps(name)
        step.lgm.read(model.initial_point())
        rng = np.random.default_rng(8)
        theta = step.lgm.theta_of(model.initial_point())
        theta = theta + 0.3 * rng.standard_normal(theta.size)
        mean, prior = step.lgm.mean(theta), factorize(step.lgm.cov(theta))
        return State.at(step.lgm, theta, mean + prior.multiply(rng.standard_normal(mean.size)))

    return state


def assert_invariant(step, model, replicates, counts):
    for count in counts:
        rng = np.random.default_rng(count)
        result = joint_test(step, model, replicates=replicates, steps=count, rng=rng)
        assert result.pvalue > 1e-3 / len(MODELS) / len(FIXES), result


# Invariance


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("noise", NOISES)
def test_they_leave_the_posterior_invariant_together(noise, name, steps):
    step, model = steps(
        name,
        sweep.EllipticalSlice(),
        Move(FIXES[f"surr-{noise}"], slices),
        Move(FIXES[f"surr-{noise}"], walks),
        Move(FIXES[f"post-{noise}"], walks),
    )
    assert_invariant(step, model, 600, [1])


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("fix", FIXES)
def test_each_leaves_the_posterior_invariant(fix, move, name, steps):
    step, model = steps(name, Move(FIXES[fix], MOVES[move]))
    assert_invariant(step, model, 2000, [1, 5])


# Targets


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("fix", FIXES)
def test_a_target_at_its_own_theta_gives_f_back(fix, name, state_of, rng):
    state = state_of(name)
    target = FIXES[fix](rng, state)
    log_density, there = target(state.theta)
    assert log_density == pytest.approx(target.log_density, abs=1e-8)
    np.testing.assert_allclose(there.f, state.f, atol=1e-9)
    assert target.state.f is state.f


@pytest.mark.parametrize("fix", FIXES)
def test_a_target_is_a_deterministic_function(fix, state_of, rng):
    state = state_of("log_gaussian_cox")
    target = FIXES[fix](rng, state)
    (first, one), (second, two) = (target(state.theta + 0.3) for _ in range(2))
    assert first == second
    np.testing.assert_array_equal(one.f, two.f)
    assert not np.allclose(one.f, state.f)


@pytest.mark.parametrize("fix", FIXES)
def test_operations_are_as_promised(fix, state_of, rng):
    state = state_of("logistic")
    assert spent(lambda: FIXES[fix](rng, state)) == 1  # a state that another kernel has made
    target = FIXES[fix](rng, state)
    assert spent(lambda: target(state.theta + 0.1)) == 2
    _, there = target(state.theta + 0.1)
    assert spent(lambda: FIXES[fix](rng, there)) == 0
    only_the_mean = np.where(state.model.enters_cov, state.theta, state.theta + 0.1)
    assert spent(lambda: target(only_the_mean)) == 1


def spent(work):
    before = tally.cubic_ops
    work()
    return tally.cubic_ops - before


def test_a_theta_without_a_density_is_a_value(state_of, rng):
    state = state_of("logistic")
    for fix in FIXES.values():
        assert fix(rng, state)(np.full(state.theta.size, np.nan)) == (-math.inf, None)


def test_without_an_approximation_theta_stays(state_of, rng, monkeypatch):
    state = state_of("logistic")
    monkeypatch.setitem(NOISES, "none", lambda *arguments, start=None: None)
    lost = tally.numerical_rejections
    target = surrogate(rng, state, noise="none")
    assert tally.numerical_rejections == lost + 1
    assert target(state.theta) == (-math.inf, None)
    assert slices(rng, state, target)[0] is state


def test_surrogate_data_are_whitened_variables_where_the_data_say_nothing(
    state_of, rng, monkeypatch
):
    """S = ∞ needs no truncation."""
    state = state_of("probit")

    def silent(likelihood, mean, covariance, *, start=None):
        q = site_approximation(likelihood, mean, covariance)
        W = np.zeros(mean.size)
        return replace(
            q, dual=W, center=mean, precision=W, B=covariance.condition(W), log_evidence=0.0
        )

    monkeypatch.setitem(NOISES, "silent", silent)
    targets = [surrogate(rng, state, noise="silent"), sweep.whitened(rng, state)]
    (ours, here), (theirs, there) = (target(state.theta + 0.2) for target in targets)
    np.testing.assert_allclose(here.f, there.f)
    changes = [ours - targets[0].log_density, theirs - targets[1].log_density]
    assert changes[0] == pytest.approx(changes[1])


def test_the_surrogate_density_is_that_of_the_paper(state_of, rng, monkeypatch):
    """Where S and f̂ stand still, h is g in other units: eq. (11) up to a constant."""
    state = state_of("log_gaussian_cox")
    W, center = np.array([0.5, 3.0, 1.5]), np.array([0.2, 1.0, 0.3])

    def still(likelihood, mean, covariance, *, start=None):
        q = site_approximation(likelihood, mean, covariance)
        return replace(q, center=center, precision=W, B=covariance.condition(W))

    monkeypatch.setitem(NOISES, "still", still)
    target = surrogate(np.random.default_rng(4), state, noise="still")
    g = state.f + np.random.default_rng(4).standard_normal(3) / np.sqrt(W)
    theta = state.theta + 0.2
    log_density, there = target(theta)

    def at(theta):
        K, m = state.model.cov(theta), state.model.mean(theta)
        return K, m, np.linalg.inv(np.linalg.inv(K) + np.diag(W)), K + np.diag(1 / W)

    def log_surrogate(theta):
        _, m, _, cov = at(theta)
        return stats.multivariate_normal(m, cov).logpdf(g)

    expected = (
        there.log_likelihood
        - state.log_likelihood
        + log_surrogate(theta)
        - log_surrogate(state.theta)
        + there.log_prior
        - state.log_prior
    )
    assert log_density - target.log_density == pytest.approx(expected)
    # |η|² = (f − μ)ᵀ R⁻¹ (f − μ) is the same at both.
    lengths = []
    for point in (state, there):
        K, m, R, cov = at(point.theta)
        deviation = point.f - m - K @ np.linalg.solve(cov, g - m)
        lengths.append(deviation @ np.linalg.solve(R, deviation))
    assert lengths[0] == pytest.approx(lengths[1])


@pytest.mark.parametrize("name", ["log_gaussian_cox", "student_t"])
def test_posterior_whitening_is_equation_14(name, state_of, rng):
    state = state_of(name)
    for search in (site_approximation, partial(laplace, tolerance=1e-6)):
        target = posterior_whitened(rng, state, search=search)
        log_density, there = target(state.theta + 0.2)

        def joint(at):
            q = at.approximation
            log_jacobian = 0.5 * np.linalg.slogdet(posterior_covariance(at.prior, q.precision))[1]
            gaussian = at.prior.log_density(at.f - at.mean)
            return gaussian + at.log_likelihood + at.log_prior + log_jacobian

        expected = joint(there) - joint(target.state)
        assert log_density - target.log_density == pytest.approx(expected)


def posterior_covariance(prior, W):
    L = prior.dense()
    return np.linalg.inv(np.linalg.inv(L @ L.T) + np.diag(W))


@pytest.mark.parametrize("scale", [0.0, 1e-3, 1.0, 1e4])
def test_the_root_is_a_root(scale, rng):
    A = rng.standard_normal((6, 6))
    K = A @ A.T + np.eye(6)
    W = scale * rng.exponential(size=6)
    prior = factorize(K.copy())
    q = SimpleNamespace(precision=W, B=prior.condition(W))
    root = PosteriorRoot(q, prior)
    dense = np.column_stack([root.multiply(column) for column in np.eye(6)])
    np.testing.assert_allclose(dense @ dense.T, posterior_covariance(prior, W), rtol=1e-7)
    x = rng.standard_normal(6)
    np.testing.assert_allclose(root.solve(root.multiply(x)), x)


# Sites


@pytest.mark.parametrize("name", MODELS)
def test_sites_sit_at_the_modes_of_site_posteriors(name, state_of):
    state = state_of(name)
    likelihood = LikelihoodAt(state.model, state.theta)
    variance = state.model.cov(state.theta).diagonal()
    f, value, _, W = sites._modes(likelihood, state.mean, variance, state.mean)
    grid = np.linspace(-8.0, 8.0, 3201)
    log_posterior = np.array([likelihood.sites(np.full(3, x)) for x in grid])
    log_posterior -= 0.5 * (grid[:, None] - state.mean) ** 2 / variance
    np.testing.assert_allclose(f, grid[log_posterior.argmax(axis=0)], atol=0.02)
    assert value == likelihood(f)[0]
    np.testing.assert_array_equal(W, np.maximum(likelihood(f)[2], 0.0))


def test_modes_are_found_from_far_away():
    """A thousand counts where the prior expects one: Newton's first step overflows."""
    y, mean, variance = np.array([1000.0, 0.0, 3.0]), np.array([0.0, 30.0, -20.0]), np.full(3, 50.0)

    def poisson(f):
        with np.errstate(over="ignore"):
            rate = np.exp(f)
        return float((y * f - rate).sum()), y - rate, rate, -rate

    f, _, g, W = sites._modes(poisson, mean, variance, mean)
    slope = g - (f - mean) / variance
    assert np.all(np.abs(slope) < 0.02 * np.sqrt(W + 1 / variance))


def test_sites_are_exact_for_a_gaussian_likelihood(rng):
    """S is the noise of the observations, q the posterior and its evidence the evidence."""
    A = rng.standard_normal((5, 5))
    K, mean, y, noise = A @ A.T + np.eye(5), rng.standard_normal(5), rng.standard_normal(5), 0.09

    def terms(f):
        r = y - f
        value = -0.5 * float((r**2).sum()) / noise - 2.5 * math.log(2 * math.pi * noise)
        return value, r / noise, np.full(5, 1 / noise), np.zeros(5)

    for search in NOISES.values():
        q = search(terms, mean, Covariance(K.copy()))
        np.testing.assert_allclose(1 / q.precision, noise)
        gain = K @ np.linalg.inv(K + noise * np.eye(5))
        np.testing.assert_allclose(q.center, mean + gain @ (y - mean))
        evidence = factorize(K + noise * np.eye(5)).log_density(y - mean)
        assert q.log_evidence == pytest.approx(evidence)


def test_taylor_does_not_look_at_the_prior(state_of):
    """Counts at their maximum: W = y. A zero says nothing."""
    state = state_of("log_gaussian_cox")
    likelihood = LikelihoodAt(state.model, state.theta)
    for scale in (0.1, 1.0):
        cov = Covariance(scale * state.model.cov(state.theta))
        W = taylor_approximation(likelihood, state.mean, cov).precision
        np.testing.assert_allclose(W[1:], [3.0, 1.0], rtol=1e-3)
        assert 0 <= W[0] < 1e-4


# Slice sampling


def density_target(log_density, x):
    """A target without a model: its state is theta."""

    def evaluate(theta):
        return float(log_density(theta)), SimpleNamespace(theta=theta)

    state = SimpleNamespace(theta=np.asarray(x, dtype=float))
    return Target(state, evaluate(state.theta)[0], evaluate)


def correlated(theta):
    return -0.5 * (theta[0] ** 2 + theta[1] ** 2 - 1.2 * theta[0] * theta[1]) / (1 - 0.36)


def mixture(theta):
    return np.logaddexp(-0.5 * (theta[0] + 2) ** 2, math.log(0.5) - 2 * (theta[0] - 3) ** 2)


def draw_correlated(rng, N):
    x = rng.standard_normal((N, 2))
    return np.column_stack([x[:, 0], 0.6 * x[:, 0] + 0.8 * x[:, 1]])


def draw_mixture(rng, N):
    left = rng.uniform(size=N) < 0.8
    x = rng.standard_normal(N)
    return np.where(left, x - 2, 3 + 0.5 * x)[:, None]


CASES = {
    "wide": (correlated, draw_correlated, [4.0, 6.0], 1),
    "narrow": (correlated, draw_correlated, [0.3, 0.1], 1),
    "stepping out": (correlated, draw_correlated, [0.5, 0.2], 6),
    "two modes": (mixture, draw_mixture, [2.0], 4),
    "two modes, wide": (mixture, draw_mixture, [6.0], 1),
}


def slice_pvalue(case, move=slice_componentwise, replicates=4000):
    """Start from exact draws: after one move and after three they must still be exact."""
    log_density, draws, widths, max_widths = CASES[case]
    rng = np.random.default_rng(6)
    after = []
    for x in draws(rng, replicates):
        state = density_target(log_density, x).state
        for _ in range(3):
            target = density_target(log_density, state.theta)
            state, _ = move(rng, state, target, widths=np.array(widths), max_widths=max_widths)
        after.append(state.theta)
    after, fresh = np.array(after), draws(rng, 10 * replicates)
    columns = [(after[:, j], fresh[:, j]) for j in range(after.shape[1])]
    columns += [(after.prod(axis=1), fresh.prod(axis=1))]
    return len(columns) * min(stats.ks_2samp(*pair).pvalue for pair in columns)


@pytest.mark.parametrize("case", CASES)
def test_slice_sampling_leaves_a_density_invariant(case):
    assert slice_pvalue(case) > 1e-3 / len(CASES)


def test_slice_sampling_moves_every_component_and_counts(rng):
    calls = 0

    def counted(theta):
        nonlocal calls
        calls += 1
        return correlated(theta)

    target = density_target(counted, [0.3, -0.4])
    calls = 0
    start = target.state.theta.copy()
    state, info = slice_componentwise(rng, target.state, target, widths=np.array([3.0, 3.0]))
    assert info.theta_evaluations == calls
    assert info.theta_acceptance == 2 / calls
    np.testing.assert_array_equal(state.theta, start + info.jumps)
    assert np.all(info.jumps != 0)
    np.testing.assert_array_equal(target.state.theta, start)


def test_an_interval_that_has_shrunk_to_nothing_stays(rng):
    target = replace(density_target(correlated, [0.0, 0.0]), log_density=math.inf)
    state, info = slice_componentwise(rng, target.state, target, widths=np.ones(2))
    assert state is target.state
    assert info.theta_evaluations == 2 * slice_module.MAX_SHRINKS


def test_giving_up_early_is_exact(monkeypatch):
    monkeypatch.setattr(slice_module, "MAX_SHRINKS", 2)
    assert slice_pvalue("wide") > 1e-3
    assert slice_pvalue("two modes, wide") > 1e-3


# Mutants


def test_a_wrong_slice_is_noticed(monkeypatch):
    source = {
        "shrinks to the wrong side": ("x < line.x", "x > line.x"),
        "takes whatever is higher": ("- rng.standard_exponential()", ""),
        "has a uniform threshold": ("- rng.standard_exponential()", "- rng.uniform()"),
        "places the interval in the middle": ("widths[j] * rng.uniform()", "widths[j] * 0.5"),
        "steps out without a budget": ("rng.integers(widths)", "widths - 1"),
        "forgets the last density": ("state, log_density = there, density_there", "state = there"),
        "keeps the first state": ("_Line(target, state.theta", "_Line(target, start"),
    }
    text = Path(slice_module.__file__).read_text()
    for wrong, (right, mutated) in source.items():
        assert text.count(right) == 1, wrong
        namespace = {"__name__": "mutant"}
        exec(compile(text.replace(right, mutated), wrong, "exec"), namespace)
        pvalues = [slice_pvalue(case, namespace["slice_componentwise"]) for case in CASES]
        assert min(pvalues) < 1e-3 / len(CASES), wrong


def noise_at_f(rng, state):
    """S from the curvature at f: it does not stay where it is as f moves."""

    def at_f(likelihood, mean, covariance, *, start=None):
        q = site_approximation(likelihood, mean, covariance)
        W = np.maximum(likelihood(state.f)[2], 0.0)
        return replace(q, precision=W, B=covariance.condition(W))

    NOISES["mutant"] = at_f
    return surrogate(rng, state, noise="mutant")


def noise_of_old_theta(rng, state):
    """S is that of the current theta at the proposal, too."""
    W = site_approximation(
        LikelihoodAt(state.model, state.theta), state.mean, state.prior
    ).precision

    def at_old_theta(likelihood, mean, covariance, *, start=None):
        q = site_approximation(likelihood, mean, covariance)
        return replace(q, precision=W, B=covariance.condition(W))

    NOISES["mutant"] = at_old_theta
    return surrogate(rng, state, noise="mutant")


def without_surrogate_density(rng, state):
    real = surrogate_module._seen_from
    surrogate_module._seen_from = lambda q, h: (real(q, h)[0], 0.0)
    try:
        target = surrogate(rng, state)
    finally:
        surrogate_module._seen_from = real
    log_density = target.state.log_likelihood + target.state.log_prior

    def evaluate(theta):
        _, there = target(theta)
        value = -math.inf if there is None else there.log_likelihood + there.log_prior
        return value, there

    return replace(target, log_density=log_density, evaluate=evaluate)


def without_jacobian(rng, state):
    target = posterior_whitened(rng, state, search=site_approximation)

    def density(at):
        return at.log_likelihood + at.prior.log_density(at.f - at.mean) + at.log_prior

    def evaluate(theta):
        _, there = target(theta)
        return (-math.inf, None) if there is None else (density(there), there)

    return replace(target, log_density=density(target.state), evaluate=evaluate)


def center_at_f(rng, state):
    """Post-whitening around the f of the chain: tempting, and another Jacobian."""

    def at_f(likelihood, mean, covariance, *, start=None):
        q = site_approximation(likelihood, mean, covariance)
        moved = 0.5 * (state.f - state.mean)
        return replace(q, center=mean + moved, dual=state.prior.inverse_times(moved))

    return posterior_whitened(rng, state, search=at_f)


@pytest.mark.parametrize(
    "mutant",
    [
        noise_at_f,
        noise_of_old_theta,
        without_surrogate_density,
        without_jacobian,
        center_at_f,
    ],
)
def test_a_wrong_parameterization_is_noticed(mutant, steps, monkeypatch):
    monkeypatch.setitem(NOISES, "mutant", site_approximation)
    results = []
    for name in ("log_gaussian_cox", "probit", "copula_volatility"):
        step, model = steps(name, Move(mutant, walks))
        rng = np.random.default_rng(5)
        results.append(joint_test(step, model, replicates=1500, steps=5, rng=rng))
        if results[-1].pvalue < 1e-4:
            return
    pytest.fail(f"not noticed: {results}")


@pytest.fixture
def rng():
    return np.random.default_rng(12)
