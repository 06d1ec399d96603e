"""Surrogate data, posterior whitening and slice sampling of theta: exact, and cheap as promised.

Sweeps made of them are run on every model in test_joint.py and test_quadrature.py.
"""

import math
import re
import sys

from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from models import build, listed
from mutants import Instead
from pymc.exceptions import SamplingError
from scipy import stats
from toys import TOYS, MadeTarget, least, until_noticed

import pymc_lgm as lgm

from pymc_lgm import adaptation, samplers
from pymc_lgm.approximations import site_posteriors
from pymc_lgm.approximations.laplace import laplace
from pymc_lgm.approximations.site_posteriors import site_approximation, taylor_approximation
from pymc_lgm.gaussian import DensePrior
from pymc_lgm.gaussian.dense import DensePosterior
from pymc_lgm.linalg import factorize, tally
from pymc_lgm.moves.theta import slice as slice_module
from pymc_lgm.moves.theta.slice import slice_componentwise
from pymc_lgm.state import LikelihoodAt, State
from pymc_lgm.targets.posterior_whitened import PosteriorWhitenedTarget
from pymc_lgm.targets.surrogate import SurrogateTarget
from pymc_lgm.targets.whitened import WhitenedTarget
from pymc_lgm.testing import JointTest

# Each function has the name of its module.
surrogate_module = sys.modules[SurrogateTarget.__module__]
posterior_module = sys.modules[PosteriorWhitenedTarget.__module__]

FIXES = {
    "surr-site": partial(SurrogateTarget.fix, search=site_approximation),
    "surr-taylor": partial(SurrogateTarget.fix, search=taylor_approximation),
    "post-site": partial(PosteriorWhitenedTarget.fix, search=site_approximation),
    "post-taylor": partial(PosteriorWhitenedTarget.fix, search=taylor_approximation),
}


def state_of(name):
    """A state off the center of the prior."""
    toy, rng = TOYS[name](), np.random.default_rng(8)
    theta = toy.prior_mean + 0.3 * rng.standard_normal(toy.p)
    prior = toy.prior(theta)
    return State.of(toy, theta, prior.mean + prior.multiply(rng.standard_normal(prior.n)))


# Targets


def steep(likelihood, prior):
    """Precise surrogate data whose noise follows theta closely: any function of theta will do."""
    q = site_approximation(likelihood, prior)
    return replace(q, posterior=prior.condition(4.0 / prior.variances**2))


def errors_of(fix, state, theta, noise=None):
    """How far a move to theta is from preserving p(theta, f | y) N(ξ; 0, I), and from its inverse.

    With ξ the noise of the surrogate data in its own units, holding (η, h) carries (f, ξ) to
    (f', ξ'), and the target must change by the log of

        p(y, f', theta') N(ξ') |∂(f', ξ')/∂(f, ξ)| / p(y, f, theta) N(ξ).

    The map is affine, so that differences give its Jacobian exactly. A target without surrogate
    data (``noise=None``) leaves ξ where it is.
    """
    n, model = state.f.size, state.model

    def h(f, xi, at):
        """g in its own units, W^½ (f − f̂) + ξ."""
        q = noise(LikelihoodAt(model, at), model.prior(at))
        return np.sqrt(q.precision) * (f - q.center) + xi

    def carry(x, start, end):
        f, xi = np.split(x, 2)
        target = fix(SimpleNamespace(standard_normal=lambda size: xi), State.of(model, start, f))
        log_density, there = target.evaluate(end)
        if noise is not None:
            xi = h(f, xi, start) - h(there.f, 0.0, end)
        return log_density - target.log_density, np.concatenate([there.f, xi])

    def log_joint(x, at):
        f, xi = np.split(x, 2)
        prior = stats.multivariate_normal(model.mean(at), model.cov(at))
        rest = model.log_likelihood(f, at) + model.log_prior(at) - 0.5 * xi @ xi
        return prior.logpdf(f) + rest

    x = np.concatenate([state.f, np.random.default_rng(7).standard_normal(n)])
    change, there = carry(x, state.theta, theta)
    jacobian = [carry(x + e, state.theta, theta)[1] - there for e in np.eye(2 * n)]
    expected = log_joint(there, theta) - log_joint(x, state.theta)
    expected += np.linalg.slogdet(np.array(jacobian))[1]
    back = carry(there, theta, state.theta)[1]
    return abs(change - expected), np.abs(back - x).max()


def worst_error(fix, state, noise=None):
    rng = np.random.default_rng(3)
    thetas = state.theta + 0.4 * rng.standard_normal((3, state.theta.size))
    return np.max([errors_of(fix, state, theta, noise) for theta in thetas])


@pytest.mark.parametrize("name", TOYS)
@pytest.mark.parametrize("noise", [site_approximation, taylor_approximation, steep])
def test_surrogate_data_preserve_the_joint_density(noise, name):
    fix = partial(SurrogateTarget.fix, search=noise)
    assert worst_error(fix, state_of(name), noise) < 1e-9


@pytest.mark.parametrize("name", TOYS)
@pytest.mark.parametrize(
    "search", [site_approximation, taylor_approximation, partial(laplace, tolerance=1e-6)]
)
def test_posterior_whitening_preserves_the_joint_density(search, name):
    assert worst_error(partial(PosteriorWhitenedTarget.fix, search=search), state_of(name)) < 1e-9


@pytest.mark.parametrize("name", TOYS)
@pytest.mark.parametrize("fix", FIXES)
def test_a_target_at_its_own_theta_gives_f_back(fix, name, rng):
    state = state_of(name)
    target = FIXES[fix](rng, state)
    log_density, there = target.evaluate(state.theta)
    assert log_density == pytest.approx(target.log_density, abs=1e-8)
    np.testing.assert_allclose(there.f, state.f, atol=1e-9)
    assert target.state.f is state.f


@pytest.mark.parametrize("fix", FIXES)
def test_a_target_is_a_deterministic_function(fix, rng):
    state = state_of("counts")
    target = FIXES[fix](rng, state)
    (first, one), (second, two) = (target.evaluate(state.theta + 0.3) for _ in range(2))
    assert first == second
    np.testing.assert_array_equal(one.f, two.f)
    assert not np.allclose(one.f, state.f)


@pytest.mark.parametrize("fix", FIXES)
def test_operations_are_as_promised(fix, rng):
    state = state_of("labels")
    assert spent(lambda: FIXES[fix](rng, state)) == 1  # a state that another kernel has made
    target = FIXES[fix](rng, state)
    assert spent(lambda: target.evaluate(state.theta + 0.1)) == 2
    _, there = target.evaluate(state.theta + 0.1)
    assert spent(lambda: FIXES[fix](rng, there)) == 0
    only_the_mean = np.where(state.model.enters_cov, state.theta, state.theta + 0.1)
    assert spent(lambda: target.evaluate(only_the_mean)) == 1


def spent(work):
    before = tally.cubic_ops
    work()
    return tally.cubic_ops - before


def test_a_theta_without_a_density_is_a_value(rng):
    state = state_of("labels")
    for fix in FIXES.values():
        assert fix(rng, state).evaluate(np.full(state.theta.size, np.nan)) == (-math.inf, None)


def test_without_an_approximation_theta_stays(rng):
    state, lost = state_of("labels"), tally.numerical_rejections
    target = SurrogateTarget.fix(rng, state, search=lambda likelihood, prior: None)
    assert tally.numerical_rejections == lost + 1
    assert target.evaluate(state.theta) == (-math.inf, None)
    assert slice_componentwise(rng, target, widths=np.ones(state.theta.size))[0] is state


def test_a_start_without_an_approximation_is_an_error(monkeypatch):
    """Theta would never move, and no draw after the first would count a rejection."""
    nothing = partial(SurrogateTarget.fix, search=lambda likelihood, prior: None)
    monkeypatch.setitem(samplers.PARAMETERIZATIONS, "surrogate-site", nothing)
    step = build(lgm.SurrogateSlice, "probit")
    step.setup_chain(np.random.default_rng(1), 0, 1)
    with pytest.raises(SamplingError, match=r"No Gaussian approximation.*'surrogate-site'.*ASIS"):
        step.step(listed("probit").initial_point())


def test_another_parameterization_may_leave_a_start_without_an_approximation(monkeypatch):
    nothing = partial(SurrogateTarget.fix, search=lambda likelihood, prior: None)
    monkeypatch.setitem(samplers.PARAMETERIZATIONS, "surrogate-site", nothing)
    both = ("surrogate-site", "whitened")
    step = build(lgm.Sweep, "probit", parameterization=both, move="slice")
    step.setup_chain(np.random.default_rng(1), 0, 1)
    start = listed("probit").initial_point()
    point, _ = step.step(start)
    assert any(point[name] != start[name] for name in step.lgm.theta_names)


def test_surrogate_data_are_whitened_variables_where_the_data_say_nothing(rng):
    """S = ∞ needs no truncation."""
    state = state_of("labels")

    def silent(likelihood, prior):
        q, W = site_approximation(likelihood, prior), np.zeros(prior.n)
        posterior = prior.condition(W)
        return replace(q, alpha=W, center=prior.mean, posterior=posterior, log_evidence=0.0)

    targets = [SurrogateTarget.fix(rng, state, search=silent), WhitenedTarget.fix(rng, state)]
    (ours, here), (theirs, there) = (target.evaluate(state.theta + 0.2) for target in targets)
    np.testing.assert_allclose(here.f, there.f)
    changes = [ours - targets[0].log_density, theirs - targets[1].log_density]
    assert changes[0] == pytest.approx(changes[1])


def test_the_surrogate_density_is_that_of_the_paper():
    """Where S and f̂ stand still, h is g in other units: eq. (11) up to a constant."""
    state = state_of("counts")
    W, center = np.array([0.5, 3.0, 1.5]), np.array([0.2, 1.0, 0.3])

    def still(likelihood, prior):
        q = site_approximation(likelihood, prior)
        return replace(q, center=center, posterior=prior.condition(W))

    target = SurrogateTarget.fix(np.random.default_rng(4), state, search=still)
    g = state.f + np.random.default_rng(4).standard_normal(3) / np.sqrt(W)
    theta = state.theta + 0.2
    log_density, there = target.evaluate(theta)

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


@pytest.mark.parametrize("name", ["counts", "errors"])
def test_posterior_whitening_is_equation_14(name, rng):
    state = state_of(name)
    for search in (site_approximation, partial(laplace, tolerance=1e-6)):
        target = PosteriorWhitenedTarget.fix(rng, state, search=search)
        log_density, there = target.evaluate(state.theta + 0.2)

        def joint(state, search=search):
            K, W = state.model.cov(state.theta), state.at.approximation(search).precision
            log_jacobian = 0.5 * np.linalg.slogdet(posterior_covariance(K, W))[1]
            gaussian = state.prior.log_density(state.f)
            return gaussian + state.log_likelihood + state.log_prior + log_jacobian

        expected = joint(there) - joint(target.state)
        assert log_density - target.log_density == pytest.approx(expected)


def posterior_covariance(K, W):
    return np.linalg.inv(np.linalg.inv(K) + np.diag(W))


@pytest.mark.parametrize("scale", [0.0, 1e-3, 1.0, 1e4])
def test_the_root_is_a_root(scale, rng):
    A = rng.standard_normal((6, 6))
    K = A @ A.T + np.eye(6)
    W = scale * rng.exponential(size=6)
    posterior = DensePrior(np.zeros(6), K.copy()).condition(W)
    root = np.column_stack([posterior.multiply(column) for column in np.eye(6)])
    np.testing.assert_allclose(root @ root.T, posterior_covariance(K, W), rtol=1e-7)
    x = rng.standard_normal(6)
    np.testing.assert_allclose(posterior.solve(posterior.multiply(x)), x)


# Sites


@pytest.mark.parametrize("name", TOYS)
def test_sites_sit_at_the_modes_of_site_posteriors(name):
    state = state_of(name)
    likelihood = LikelihoodAt(state.model, state.theta)
    variance = state.model.cov(state.theta).diagonal()
    f, value, _, W = site_posteriors._modes(likelihood, state.mean, variance)
    grid = np.linspace(-8.0, 8.0, 3201)
    log_posterior = likelihood.sites(np.repeat(grid[:, None], 3, axis=1))
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

    f, _, g, W = site_posteriors._modes(poisson, mean, variance)
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

    terms.sets = None
    for search in (site_approximation, taylor_approximation):
        q = search(terms, DensePrior(mean, K.copy()))
        np.testing.assert_allclose(1 / q.precision, noise)
        gain = K @ np.linalg.inv(K + noise * np.eye(5))
        np.testing.assert_allclose(q.center, mean + gain @ (y - mean))
        evidence = factorize(K + noise * np.eye(5)).log_density(y - mean)
        assert q.log_evidence == pytest.approx(evidence)


def test_taylor_does_not_look_at_the_prior():
    """Counts at their maximum: W = y. A zero says nothing.

    The search stops within 0.01/√W of the maximum, where W is off by the factor exp(0.01/√W).
    """
    state = state_of("counts")
    likelihood = LikelihoodAt(state.model, state.theta)
    for scale in (0.1, 1.0):
        prior = DensePrior(state.mean, scale * state.model.cov(state.theta))
        W = taylor_approximation(likelihood, prior).precision
        np.testing.assert_allclose(W[1:], [3.0, 1.0], rtol=0.0101)
        assert 0 <= W[0] < 1e-4


# Slice sampling


def density_target(log_density, x):
    """A target without a model: its state is theta."""

    def evaluate(theta):
        return float(log_density(theta)), SimpleNamespace(theta=theta)

    state = SimpleNamespace(theta=np.asarray(x, dtype=float))
    return MadeTarget(state, evaluate(state.theta)[0], evaluate)


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


def uniform(theta):
    return 0.0 if 0 < theta[0] < 1 else -math.inf


def draw_uniform(rng, N):
    return rng.uniform(size=(N, 1))


def normal(theta):
    return -0.5 * float(theta @ theta)


def draw_normal(rng, N):
    return rng.standard_normal((N, 4))


CASES = {
    "two modes, wide": (mixture, draw_mixture, [6.0], 1),
    "four components": (normal, draw_normal, [4.0, 4.0, 4.0, 4.0], 1),
    "walls": (uniform, draw_uniform, [1.0], 1),
    "walls, stepping out": (uniform, draw_uniform, [0.3], 3),
    "two modes": (mixture, draw_mixture, [2.0], 4),
    "wide": (correlated, draw_correlated, [4.0, 6.0], 1),
    "narrow": (correlated, draw_correlated, [0.3, 0.1], 1),
    "stepping out": (correlated, draw_correlated, [0.5, 0.2], 6),
}
"""Density, exact draws, widths, max_widths."""


def slice_pvalue(case, move=slice_componentwise, replicates=700):
    """Start from exact draws: after three moves they must still be exact."""
    log_density, draws, widths, max_widths = CASES[case]
    rng = np.random.default_rng(6)
    start, after = draws(rng, replicates), []
    for x in start:
        state = density_target(log_density, x).state
        for _ in range(3):
            target = density_target(log_density, state.theta)
            state, _ = move(rng, target, widths=np.array(widths), max_widths=max_widths)
        after.append(state.theta)

    def columns(x):
        density = np.array([log_density(row) for row in x])
        return dict(enumerate(x.T)) | {"product": x.prod(axis=1), "density": density}

    return JointTest.of_pairs(columns(start), columns(np.array(after))).pvalue


@pytest.mark.parametrize("case", CASES)
def test_slice_sampling_leaves_a_density_invariant(case):
    assert slice_pvalue(case) > 1e-4


def test_slice_sampling_moves_every_component_and_counts(rng):
    calls = 0

    def counted(theta):
        nonlocal calls
        calls += 1
        return correlated(theta)

    target = density_target(counted, [0.3, -0.4])
    calls = 0
    start = target.state.theta.copy()
    state, info = slice_componentwise(rng, target, widths=np.array([3.0, 3.0]))
    assert info.theta_evaluations == calls
    assert info.theta_acceptance == 2 / calls
    np.testing.assert_array_equal(state.theta, start + info.jumps)
    assert np.all(info.jumps != 0)
    np.testing.assert_array_equal(target.state.theta, start)


def test_an_interval_that_has_shrunk_to_nothing_stays(rng):
    target = replace(density_target(correlated, [0.0, 0.0]), log_density=math.inf)
    state, info = slice_componentwise(rng, target, widths=np.ones(2))
    assert state is target.state
    assert info.theta_evaluations == 2 * slice_module.MAX_SHRINKS


def test_giving_up_early_is_exact(monkeypatch):
    monkeypatch.setattr(slice_module, "MAX_SHRINKS", 2)
    assert slice_pvalue("wide") > 1e-4
    assert slice_pvalue("two modes, wide") > 1e-4


# Mutants


def by_chance(**others):
    """The mutant whose generator has other methods."""

    def move(rng, target, **how):
        verbs = {name: partial(verb, rng) for name, verb in others.items()}
        return slice_componentwise(Instead(rng, **verbs), target, **how)

    return move


def forgets_the_last_density(rng, target, **how):
    state = target.state
    for j in rng.permutation(state.theta.size):
        here = replace(target, state=state)
        state, info = slice_componentwise(rng, here, components=[j], **how)
    return state, info


def keeps_the_first_state(rng, target, **how):
    log_density = target.log_density
    for j in rng.permutation(target.state.theta.size):
        here = replace(target, log_density=log_density)
        state, info = slice_componentwise(rng, here, components=[j], **how)
        log_density = target.evaluate(state.theta)[0]
    return state, info


SLICE_MUTANTS = {
    "takes whatever is higher": by_chance(standard_exponential=lambda rng: 0.0),
    "has a uniform threshold": by_chance(standard_exponential=lambda rng: rng.uniform()),
    "places the interval in the middle": by_chance(
        uniform=lambda rng, *ends: rng.uniform(*ends) if ends else 0.5
    ),
    "steps out without a budget": by_chance(integers=lambda rng, widths: widths - 1),
    "shares the budget in halves": by_chance(integers=lambda rng, widths: widths // 2),
    "forgets the last density": forgets_the_last_density,
    "keeps the first state": keeps_the_first_state,
}


def share_of_stays(move):
    """Of a density with one mode, seen through an interval that is much too wide."""
    rng, x, stays = np.random.default_rng(6), np.zeros(2), 0
    for _ in range(300):
        target = density_target(correlated, x)
        state, _ = move(rng, target, widths=np.array([20.0, 20.0]))
        x, stays = state.theta, stays + np.any(state.theta == x)
    return stays / 300


def test_an_interval_shrinks_to_the_current_point():
    assert share_of_stays(slice_componentwise) == 0.0


class Mirrored(float):
    """A number that is above others if it is below them."""

    def __gt__(self, other):
        return float(self) < float(other)


class WrongSide(slice_module._Line):
    def __init__(self, *args):
        super().__init__(*args)
        self.x = Mirrored(self.x)


@pytest.mark.mutant
def test_shrinking_to_the_wrong_side_is_noticed(monkeypatch, dies):
    """It is nearly reversible; but an interval without the current point shrinks to nothing."""
    monkeypatch.setattr(slice_module, "_Line", WrongSide)
    share = share_of_stays(slice_componentwise)
    dies("slice sampling shrinks to the wrong side", share, above=0.1)


@pytest.mark.mutant
@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name == "forgets the last density"))
        for name in SLICE_MUTANTS
    ],
)
def test_a_wrong_slice_is_noticed(mutant, dies):
    move = SLICE_MUTANTS[mutant]
    cases = {"forgets the last density": ["four components"], "keeps the first state": ["wide"]}
    cases = cases.get(mutant, CASES)

    def pvalue(replicates):
        return least(slice_pvalue(case, move, replicates) for case in cases)

    dies(f"slice sampling {mutant}", until_noticed(pvalue, 700, 5000, 10_000), below=1e-6)


def with_verbs(fix, here=None, there=None):
    """The mutant with other methods of q's posterior: at the current theta, or at all others.

    A method takes the state of the chain and q first.
    """

    def wrong(rng, state, **how):
        def changed(at, verbs):
            def approximation(search):
                q = at.approximation(search)
                bound = {name: partial(verb, state, q) for name, verb in verbs.items()}
                return q and Instead(q, posterior=Instead(q.posterior, **bound))

            return Instead(at, approximation=approximation)

        def moved(theta):
            at = state.at.moved(theta)
            return at and changed(at, there or {})

        at = Instead(changed(state.at, here or {}), moved=moved)
        return fix(rng, Instead(state, at=at), **how)

    return lambda patch: wrong


def with_density(change):
    """The mutant whose target has another log density, by a function of the state."""

    def wrong(rng, state, **how):
        target = SurrogateTarget.fix(rng, state, **how)

        def evaluate(theta):
            value, there = target.evaluate(theta)
            return (value if there is None else value + change(there)), there

        density = target.log_density + change(state)
        return MadeTarget.like(target, log_density=density, evaluate=evaluate)

    return lambda patch: wrong


seen_from = surrogate_module._seen_from


def with_data(wrong):
    """The mutant with another E[f | g] and another log p(h | theta), from q, h and g − m."""

    def seen(q, h):
        return wrong(q, h, h + q.posterior.in_noise_units(q.center, q.mean))

    def broken(patch):
        patch.setattr(surrogate_module, "_seen_from", seen)
        return SurrogateTarget.fix

    return broken


def without_mean(q, h, x):
    x = h + q.posterior.in_noise_units(q.center, 0.0)
    return q.mean + q.posterior.conditional_mean(x), q.posterior.log_density_of_data(x)


def without_prior(q, h, x):
    mu = q.mean + q.prior.covariance_times(np.sqrt(q.precision) * x)
    return mu, q.posterior.log_density_of_data(x)


def keeps_what_is_expected(patch):
    kept = {}
    patch.setattr(
        surrogate_module, "_seen_from", lambda q, h: kept.setdefault("first", seen_from(q, h))
    )

    def fix(rng, state, **how):
        kept.clear()
        return SurrogateTarget.fix(rng, state, **how)

    return fix


def without_noise(rng, state, **how):
    return SurrogateTarget.fix(SimpleNamespace(standard_normal=np.zeros), state, **how)


def of_variance_W(state, q, f, center):
    is_data = center is q.center
    return (f - center) / q.precision if is_data else q.posterior.in_noise_units(f, center)


def around_the_mean(state, q, f, center):
    return q.posterior.in_noise_units(f, q.mean if center is q.center else center)


def old_root(state, q, eta):
    return state.prior.condition(q.precision).multiply(eta)


SURROGATE_MUTANTS = {
    "forgets p(theta)": with_density(lambda state: -state.log_prior),
    "forgets the likelihood": with_density(lambda state: -state.log_likelihood),
    "forgets p(h | theta)": with_data(lambda q, h, x: (seen_from(q, h)[0], 0.0)),
    "takes h for white noise": with_data(lambda q, h, x: (seen_from(q, h)[0], -0.5 * float(x @ x))),
    "draws no noise": lambda patch: without_noise,
    "puts noise of variance W on f": with_verbs(
        SurrogateTarget.fix, here={"in_noise_units": of_variance_W}
    ),
    "holds h around the prior's mean": with_verbs(
        SurrogateTarget.fix, here={"in_noise_units": around_the_mean}
    ),
    "forgets the prior's mean": with_data(without_mean),
    "forgets the prior in E[f | g]": with_data(without_prior),
    "keeps E[f | g]": keeps_what_is_expected,
    "keeps the root": with_verbs(SurrogateTarget.fix, there={"multiply": old_root}),
    "whitens by the prior at theta'": with_verbs(
        SurrogateTarget.fix, there={"multiply": lambda state, q, eta: q.prior.multiply(eta)}
    ),
    "whitens by the prior at theta": with_verbs(
        SurrogateTarget.fix, here={"solve": lambda state, q, d: q.prior.solve(d)}
    ),
}


@pytest.mark.mutant
@pytest.mark.parametrize("mutant", SURROGATE_MUTANTS)
def test_wrong_surrogate_data_are_noticed(mutant, monkeypatch, dies):
    wrong = partial(SURROGATE_MUTANTS[mutant](monkeypatch), search=site_approximation)
    error = worst_error(wrong, state_of("counts"), site_approximation)
    dies(f"surrogate data: {mutant}", error, above=0.01)


def with_log_density(wrong):
    """The mutant with another log density, a function of q and the state."""

    def broken(patch):
        patch.setattr(posterior_module, "_log_density", wrong)
        return PosteriorWhitenedTarget.fix

    return broken


log_density_of_posterior = posterior_module._log_density

POSTERIOR_MUTANTS = {
    "forgets p(theta)": with_log_density(
        lambda q, at: log_density_of_posterior(q, at) - at.log_prior
    ),
    "forgets log|A|": with_log_density(
        lambda q, at: at.log_likelihood + at.prior.log_density(at.f) + at.log_prior
    ),
    "is whitened": with_log_density(lambda q, at: at.log_likelihood + at.log_prior),
    "forgets the center": with_verbs(
        PosteriorWhitenedTarget.fix,
        here={"solve": lambda state, q, d: q.posterior.solve(d + q.center)},
    ),
    "goes back to the prior's mean": with_verbs(
        PosteriorWhitenedTarget.fix,
        there={"multiply": lambda state, q, xi: q.posterior.multiply(xi) - q.center + q.mean},
    ),
    "keeps the root": with_verbs(PosteriorWhitenedTarget.fix, there={"multiply": old_root}),
}


@pytest.mark.mutant
@pytest.mark.parametrize("mutant", POSTERIOR_MUTANTS)
def test_wrong_posterior_whitening_is_noticed(mutant, monkeypatch, dies):
    fix = partial(POSTERIOR_MUTANTS[mutant](monkeypatch), search=site_approximation)
    dies(f"posterior whitening: {mutant}", worst_error(fix, state_of("counts")), above=0.01)


@pytest.mark.mutant
def test_a_wrong_root_is_noticed(monkeypatch, dies):
    monkeypatch.setattr(DensePosterior, "_shifted", lambda self: self._B)
    fix = partial(PosteriorWhitenedTarget.fix, search=site_approximation)
    dies("posterior whitening: has no root", worst_error(fix, state_of("counts")), above=0.01)


def noise_at_f(rng, state, noise=site_approximation):
    """S from the curvature at f: it does not stay where it is as f moves."""

    def at_f(likelihood, prior):
        W = np.maximum(likelihood(state.f)[2], 0.0)
        return replace(noise(likelihood, prior), posterior=prior.condition(W))

    return SurrogateTarget.fix(rng, state, search=at_f)


def noise_of_old_theta(rng, state, noise=site_approximation):
    """S is that of the current theta at the proposal, too."""
    W = noise(LikelihoodAt(state.model, state.theta), state.prior).precision

    def at_old_theta(likelihood, prior):
        return replace(noise(likelihood, prior), posterior=prior.condition(W))

    return SurrogateTarget.fix(rng, state, search=at_old_theta)


@pytest.mark.mutant
@pytest.mark.parametrize("mutant", [noise_at_f, noise_of_old_theta])
def test_noise_that_is_no_function_of_theta_is_noticed(mutant, dies):
    error = worst_error(mutant, state_of("counts"), site_approximation)
    dies(f"surrogate data: {mutant.__name__}", error, above=0.01)


def center_at_f(rng, state):
    """Post-whitening around the f of the chain: tempting, and another Jacobian."""

    def at_f(likelihood, prior):
        q, moved = site_approximation(likelihood, prior), 0.5 * (state.f - state.mean)
        return replace(q, center=prior.mean + moved, alpha=state.prior.inverse_times(moved))

    return PosteriorWhitenedTarget.fix(rng, state, search=at_f)


@pytest.mark.mutant
def test_a_center_that_is_no_function_of_theta_is_noticed(dies):
    error = worst_error(center_at_f, state_of("counts"))
    dies("posterior whitening: center_at_f", error, above=0.01)


# Sweeps


@pytest.mark.parametrize("name", samplers.PARAMETERIZATIONS)
def test_what_has_a_gradient_says_so(name, rng):
    target = samplers.PARAMETERIZATIONS[name](rng, state_of("counts"))
    has_it = name in samplers.DIFFERENTIABLE
    with nullcontext() if has_it else pytest.raises(NotImplementedError):
        target.gradient(target.state)


@pytest.mark.parametrize("move", ["hmc", "smmala"])
@pytest.mark.parametrize(
    "name", sorted(samplers.PARAMETERIZATIONS.keys() - samplers.DIFFERENTIABLE)
)
def test_a_move_that_needs_a_gradient_is_refused(name, move):
    says = (
        f"move='{move}' needs a gradient in theta, which parameterization='{name}' does not have. "
        "Choose from 'sufficient', 'whitened', or write move='metropolis' or move='slice'."
    )
    for held in (name, ("whitened", name)):
        with pytest.raises(ValueError, match=re.escape(says)):
            build(lgm.Sweep, "probit", parameterization=held, move=move)


# Widths


def test_widths_are_six_times_the_mean_jump():
    """Of the draws since the last renewal, at 8, 16, 32, ...; a fifth is the least."""
    assert_widths(adaptation.WidthTuning)


def assert_widths(rule):
    tuning = start = rule.start(3, 2.0)
    for draw in range(1, 65):
        jumps = np.array([0.5, 0.5 * draw, 0.0]) * (-1) ** draw
        before, tuning = tuning, tuning.update(jumps)
        if draw not in (8, 16, 32, 64):
            assert tuning.widths is before.widths
            continue
        # The mean of draws 1 to 8, 9 to 16, 17 to 32, ...
        mean = 4.5 if draw == 8 else 0.75 * draw + 0.5
        least = 0.2 * before.widths[2]
        np.testing.assert_allclose(tuning.widths, [3.0, 6 * 0.5 * mean, least])
    np.testing.assert_array_equal(start.widths, 2.0)
    assert tuning.widths[2] == pytest.approx(2.0 * 0.2**4)
    assert tuning.scale == pytest.approx(tuning.widths.prod() ** (1 / 3))


@pytest.mark.parametrize("start", [0.05, 50.0])
def test_widths_settle_near_the_slice(start, rng):
    """At 1.57 times a uniform slice, where an interval of width w jumps w/6 on average."""
    lengths = np.array([0.5, 3.0])

    def box(x):
        return 0.0 if np.all(np.abs(x) < 0.5 * lengths) else -math.inf

    tuning, x = adaptation.WidthTuning.start(2, start), np.zeros(2)
    for _ in range(2048):
        target = density_target(box, x)
        state, info = slice_componentwise(rng, target, widths=tuning.widths)
        x, tuning = state.theta, tuning.update(info.jumps)
    # The last 1024 jumps have a standard deviation of 0.21 slices.
    error = 6 * 0.21 / math.sqrt(1024)
    np.testing.assert_allclose(tuning.widths / lengths, 1.57, atol=5 * error)


def widths_by(*, size=np.abs, mean=None, least=0.2, keeps_total=False, renewed=None):
    """The rule of `WidthTuning`, written out, with one part replaced."""

    class Rule(adaptation.WidthTuning):
        def update(self, jumps):
            draws, total = self.draws + 1, self.jumps + size(jumps)
            if not (renewed or (lambda draws: draws >= 8 and not draws & (draws - 1)))(draws):
                return self._replace(jumps=total, draws=draws)
            since = (mean or (lambda draws: 8 if draws == 8 else draws // 2))(draws)
            widths = np.maximum(6.0 * total / since, least * self.widths)
            return self._replace(widths=widths, jumps=keeps_total * total, draws=draws)

    return Rule


def test_the_rule_that_is_written_out_is_right():
    assert_widths(widths_by())


WIDTHS = {
    "signed jumps": {"size": lambda jumps: jumps},
    "three times the mean jump": {"mean": lambda draws: 2 * (8 if draws == 8 else draws // 2)},
    "mean over all draws": {"mean": lambda draws: draws},
    "half of the first eight": {"mean": lambda draws: draws // 2},
    "no least width": {"least": 0.0},
    "a total that stays": {"keeps_total": True},
    "renewed at every draw from the eighth": {"renewed": lambda draws: draws >= 8},
}


@pytest.mark.mutant
@pytest.mark.parametrize("mutant", WIDTHS)
def test_wrong_widths_are_noticed(mutant, dies):
    failed = 0.0
    try:
        assert_widths(widths_by(**WIDTHS[mutant]))
    except AssertionError:
        failed = 1.0
    dies(f"widths: {mutant}", failed, above=0.5)
