"""Moves of f given theta: proposal ratios against dense normals, exactness, costs, and mutants."""

from __future__ import annotations

import gc
import math
import weakref

from dataclasses import replace
from functools import partial

import numpy as np
import pymc as pm
import pytest

from models import build, listed
from mutants import Accepting
from pymc.exceptions import SamplingError
from toys import until_noticed

from pymc_lgm.approximations.laplace import laplace
from pymc_lgm.gaussian import DensePrior
from pymc_lgm.linalg import tally
from pymc_lgm.moves import latent
from pymc_lgm.moves.latent import auxiliary_gradient as mgrad_module
from pymc_lgm.moves.latent.auxiliary_gradient import auxiliary_gradient
from pymc_lgm.moves.latent.curvature_hmc import curvature_hmc, curvature_metric
from pymc_lgm.papers import LatentSMMALA, NealMetropolis
from pymc_lgm.papers.latent_smmala import latent_smmala as smmala
from pymc_lgm.papers.neal_metropolis import metropolis
from pymc_lgm.state import LikelihoodAt, State
from pymc_lgm.steps import ASIS, AuxiliaryGradient, LatentHMC
from pymc_lgm.testing import JointTest

THETA = np.zeros(1)


class Counts:
    """Poisson counts of a Gaussian vector with a mean of its own; theta scales the covariance."""

    n = 5
    enters_cov = np.array([True])
    amplitudes = np.zeros(1)
    sets = None
    x = np.linspace(0, 1, n)
    y = np.array([0.0, 3.0, 1.0, 4.0, 0.0])

    def prior(self, theta):
        return DensePrior.at(self, theta)

    def has_latents(self, prior):
        return True

    def mean(self, theta):
        return np.linspace(0.3, 1.1, self.n)

    def cov(self, theta):
        return np.exp(theta[0]) * 1.3 * np.exp(-3 * np.abs(self.x[:, None] - self.x))

    def log_prior(self, theta):
        return 0.0

    def likelihood_terms(self, f, theta):
        rate = np.exp(f)
        return float(self.y @ f - rate.sum()), self.y - rate, rate, -rate

    def log_likelihood_gradient(self, f, theta):
        return self.likelihood_terms(f, theta)[:2]

    def log_likelihood(self, f, theta):
        return self.likelihood_terms(f, theta)[0]

    def probit_signs(self):
        return None

    def effects(self, theta):
        return None


class Noisy(Counts):
    """Gaussian observations, of which some say much: the posterior is known."""

    precision = np.array([1.0, 50.0, 0.0, 4.0, 0.2])

    def likelihood_terms(self, f, theta):
        d = self.y - f
        W = self.precision
        return -0.5 * float(W @ d**2), W * d, W, np.zeros(self.n)

    def posterior(self):
        prior_precision = np.linalg.inv(self.cov(THETA))
        cov = np.linalg.inv(prior_precision + np.diag(self.precision))
        return cov @ (prior_precision @ self.mean(THETA) + self.precision * self.y), cov


class Lifted(Counts):
    """A second theta, which moves the mean alone."""

    enters_cov = np.array([True, False])
    amplitudes = np.zeros(2)

    def mean(self, theta):
        return super().mean(theta) + theta[1]


class Silent(Counts):
    """No data: the posterior is the prior."""

    def likelihood_terms(self, f, theta):
        return 0.0, np.zeros(self.n), np.zeros(self.n), np.zeros(self.n)


class Volatile(Counts):
    """y ~ N(0, exp(f)²)."""

    y = np.exp([-5.0, 5.0, 1.0, 5.0, -3.0])

    def likelihood_terms(self, f, theta):
        square = self.y**2 * np.exp(-2 * f)
        value = -float(f.sum() + 0.5 * square.sum())
        return value, square - 1, 2 * square, -4 * square


def state_of(model, f=(0.3, 0.1, 0.9, 1.1, -0.2)):
    state = State.of(model, THETA, np.array(f, dtype=float))
    assert state is not None
    return state


def rng_of(seed):
    return np.random.default_rng(seed)


def curvature(rng, state, **options):
    """HMC with the metric of the Laplace approximation, as the sweep runs it."""
    return curvature_hmc(rng, state, state.at.approximation(curvature_metric), **options)


def random_walk(rng, state, **options):
    return metropolis(rng, state, proposal="random-walk", **options)


KERNELS = {
    "metropolis": (metropolis, {"step_size": 0.6}),
    "random-walk": (random_walk, {"step_size": 0.6}),
    "smmala": (smmala, {"step_size": 1.1}),
    "mgrad": (auxiliary_gradient, {"step_size": 0.8}),
    "rotation": (curvature, {"step_size": 0.9, "max_steps": 3}),
    "leapfrog": (curvature, {"step_size": 0.9, "max_steps": 3, "integrator": "leapfrog"}),
}
every_kernel = pytest.mark.parametrize("name", KERNELS)

# log π(f) and log q(f' | f), written with dense matrices


def normal(x, mean, cov):
    """log N(x; mean, cov), up to ½ n log 2π."""
    d = x - mean
    return -0.5 * (d @ np.linalg.solve(cov, d) + np.linalg.slogdet(cov)[1])


def log_target(at):
    return at.log_likelihood + normal(at.f, at.mean, at.model.cov(at.theta))


def dense_metropolis(at, to, step_size):
    shrunk = math.sqrt(1 - step_size**2) * (at.f - at.mean)
    return normal(to.f - at.mean, shrunk, step_size**2 * at.model.cov(at.theta))


def dense_random_walk(at, to, step_size):
    return normal(to.f, at.f, step_size**2 * at.model.cov(at.theta))


def dense_smmala(at, to, step_size, metric_of=None):
    _, g, _, _ = at.model.likelihood_terms(at.f, at.theta)
    W = at.model.likelihood_terms((metric_of or at).f, at.theta)[2]
    precision = np.linalg.inv(at.model.cov(at.theta))
    cov = np.linalg.inv(precision + np.diag(np.maximum(W, 0)))
    mean = at.f + 0.5 * step_size**2 * cov @ (g - precision @ (at.f - at.mean))
    return normal(to.f, mean, step_size**2 * cov)


def dense_mgrad(at, to, step_size, gradient=1.0):
    """The paper's own form: A = (K⁻¹ + 2/δ I)⁻¹, mean 2/δ A (z + δ/2 g), covariance 2/δ A² + A."""
    g = gradient * at.model.log_likelihood_gradient(at.f, at.theta)[1]
    A = np.linalg.inv(np.linalg.inv(at.model.cov(at.theta)) + 2 / step_size * np.eye(at.f.size))
    mean = at.mean + 2 / step_size * A @ (at.f - at.mean + 0.5 * step_size * g)
    return normal(to.f, mean, 2 / step_size * A @ A + A)


DENSE = {
    "metropolis": dense_metropolis,
    "random-walk": dense_random_walk,
    "smmala": dense_smmala,
    "mgrad": dense_mgrad,
}


def log_ratio(log_q, at, to, step_size):
    """Metropolis and Hastings' own."""
    forward, backward = log_q(at, to, step_size), log_q(to, at, step_size)
    return log_target(to) - log_target(at) + backward - forward


@pytest.mark.parametrize("name", DENSE)
def test_the_acceptance_is_the_ratio_of_dense_normals(name):
    kernel, options = KERNELS[name]
    rng, state, seen = rng_of(1), state_of(Counts()), []
    for _ in range(50):
        proposed, info = kernel(Accepting(rng), state, **options)
        expected = math.exp(min(0.0, log_ratio(DENSE[name], state, proposed, **options)))
        assert info.latent_acceptance == pytest.approx(expected, rel=1e-9)
        seen.append(expected)
        state = proposed
    assert sum(a < 0.9 for a in seen) > 10
    assert sum(a == 1.0 for a in seen) > 5


@pytest.mark.parametrize("name", DENSE)
def test_proposals_have_the_mean_and_the_covariance_of_the_formula(name):
    kernel, options = KERNELS[name]
    rng, state, draws = rng_of(2), state_of(Counts()), 2000
    f = np.array([kernel(Accepting(rng), state, **options)[0].f for _ in range(draws)])
    # Whitened by the formula, whose mean and covariance are read off log q, they are N(0, I).
    n, log_q = state.f.size, lambda x: DENSE[name](state, replace(state, f=x), **options)
    axes = np.eye(n)
    up, down = (np.array([log_q(sign * e) for e in axes]) for sign in (1.0, -1.0))
    pairs = np.array([[log_q(a + b) for b in axes] for a in axes])
    precision = up[:, None] + up - pairs - log_q(np.zeros(n))
    center = np.linalg.solve(precision, 0.5 * (up - down))
    assert_standard_normal((f - center) @ np.linalg.cholesky(precision))


def test_the_smoothers_are_what_their_names_say():
    state, delta, rng = state_of(Counts()), 0.7, rng_of(3)
    K, x = state.model.cov(THETA), rng.standard_normal(5)
    P = K @ np.linalg.inv(K + 0.5 * delta * np.eye(5))
    parts = mgrad_module.smoother(state.prior, delta=delta)
    np.testing.assert_allclose(parts.smooth(x), P @ x)
    np.testing.assert_allclose(parts.solve(x), np.linalg.solve(np.eye(5) + P, x))


@pytest.mark.parametrize("name", ["metropolis", "mgrad", "rotation"])
def test_without_data_everything_is_accepted(name):
    kernel, options = KERNELS[name]
    rng, state = rng_of(4), state_of(Silent())
    for _ in range(20):
        state, info = kernel(rng, state, **options)
        assert info.latent_acceptance == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("step_size", [0.1, 1.0, math.pi / 2])
def test_the_rotation_is_exact_for_a_gaussian_posterior(step_size):
    rng, state = rng_of(5), state_of(Noisy())
    for _ in range(20):
        state, info = curvature(rng, state, step_size=step_size, max_steps=20)
        assert info.latent_acceptance == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize(
    ("kernel", "options", "model"),
    [
        (metropolis, {"step_size": 1.0}, Silent()),
        (curvature, {"step_size": math.pi / 2, "max_steps": 1}, Noisy()),
    ],
)
def test_some_steps_are_independent_draws(kernel, options, model):
    """A step that forgets f goes to the same place from everywhere."""
    one, _ = kernel(rng_of(6), state_of(model), **options)
    two, _ = kernel(rng_of(6), state_of(model, np.zeros(5)), **options)
    np.testing.assert_allclose(one.f, two.f, atol=1e-12)


@pytest.mark.parametrize("integrator", ["rotation", "leapfrog"])
def test_the_energy_error_falls_with_the_square_of_the_step(integrator):
    def worst(step_size):
        runs = (
            curvature(
                rng_of(k),
                state_of(Counts()),
                step_size=step_size,
                max_steps=1,
                integrator=integrator,
            )
            for k in range(50)
        )
        return max(-math.log(info.latent_acceptance) for _, info in runs)

    # One step errs by ε³; the same draws of the momentum at every ε.
    assert worst(0.1) / worst(0.05) == pytest.approx(8, rel=0.3)
    assert worst(0.01) < 1e-5


def assert_standard_normal(xi):
    """Mean 0 and covariance I within five standard errors."""
    draws, n = xi.shape
    assert np.abs(xi.mean(0)).max() < 5 / math.sqrt(draws)
    assert np.abs(xi.T @ xi / draws - np.eye(n)).max() < 5 * math.sqrt(2 / draws)


# What is stored, counted, and given back


@every_kernel
def test_stored_densities_equal_their_evaluation(name):
    kernel, options = KERNELS[name]
    rng, state = rng_of(8), state_of(Counts())
    for _ in range(20):
        state, _ = kernel(rng, state, **options)
        assert state.log_likelihood == state.model.log_likelihood(state.f, THETA)


@every_kernel
def test_a_rejection_returns_the_state(name):
    kernel, options = KERNELS[name]
    rng, state = rng_of(9), state_of(Counts())
    rejections = 0
    for _ in range(50):
        before = state
        state, _ = kernel(rng, before, **options)
        rejections += state is before
        assert state is before or not np.array_equal(state.f, before.f)
    assert rejections > (0 if name in ("rotation", "leapfrog") else 3)


class Overflowing(Counts):
    """Numbers at the first f only."""

    def likelihood_terms(self, f, theta):
        value, g, W, third = super().likelihood_terms(f, theta)
        return (value, g, W, third) if f[0] == 0.3 else (value, g * np.nan, W * np.nan, third)


@pytest.mark.parametrize("name", ["smmala", "mgrad"])
def test_a_proposal_without_a_gradient_is_counted(name):
    kernel, options = KERNELS[name]
    state, before = state_of(Overflowing()), tally.numerical_rejections
    same, info = kernel(rng_of(10), state, **options)
    assert same is state
    assert info.latent_acceptance == 0.0
    assert tally.numerical_rejections == before + 1


def test_a_trajectory_that_leaves_the_numbers_is_counted():
    q = state_of(Counts()).at.approximation(laplace)
    state, before = state_of(Overflowing()), tally.numerical_rejections
    same, info = curvature_hmc(rng_of(10), state, q, step_size=0.5, max_steps=4)
    assert same is state
    assert info.latent_acceptance == 0.0
    assert tally.numerical_rejections == before + 1


def cubic_ops(kernel, state, **options):
    before = tally.cubic_ops
    state, _ = kernel(rng_of(11), state, **options)
    return tally.cubic_ops - before, state


@pytest.mark.parametrize("name", ["metropolis", "random-walk"])
def test_neals_proposals_cost_no_factorization(name):
    kernel, options = KERNELS[name]
    assert cubic_ops(kernel, state_of(Counts()), **options)[0] == 0


def test_mgrad_factorizes_twice_for_a_theta_and_a_delta():
    ops, state = cubic_ops(auxiliary_gradient, state_of(Counts()), step_size=0.8)
    assert ops == 2
    for _ in range(5):
        ops, state = cubic_ops(auxiliary_gradient, state, step_size=0.8)
        assert ops == 0
    assert cubic_ops(auxiliary_gradient, state, step_size=0.7)[0] == 2
    there = state.with_theta(THETA + 0.1, lambda prior: state.f)
    assert cubic_ops(auxiliary_gradient, there, step_size=0.7)[0] == 2
    assert cubic_ops(auxiliary_gradient, state, step_size=0.7)[0] == 0


def test_mgrad_factorizes_nothing_again_where_only_the_mean_moves():
    state = State.of(Lifted(), np.zeros(2), state_of(Counts()).f)
    assert cubic_ops(auxiliary_gradient, state, step_size=0.7)[0] == 2
    before = tally.cubic_ops
    there = state.with_theta(np.array([0.0, 0.1]), lambda prior: state.f)
    ours = auxiliary_gradient(rng_of(11), there, step_size=0.7)[0]
    assert tally.cubic_ops == before
    fresh = State.of(there.model, there.theta, there.f)
    ops, theirs = cubic_ops(auxiliary_gradient, fresh, step_size=0.7)
    assert ops == 2
    np.testing.assert_array_equal(ours.f, theirs.f)
    assert ours is not there


def test_smmala_factorizes_once_a_proposal():
    ops, state = cubic_ops(smmala, state_of(Counts()), step_size=0.8)
    assert ops == 2
    for step_size in (0.8, 1.2, 1.9, 0.1):
        ops, state = cubic_ops(smmala, state, step_size=step_size)
        assert ops == 1


def test_the_curvature_metric_is_made_once_a_theta():
    ops, state = cubic_ops(curvature, state_of(Counts()), step_size=0.8)
    assert ops == 1 + state.at.approximation(curvature_metric).iterations
    assert cubic_ops(curvature, state, step_size=0.5)[0] == 0


@np.errstate(over="ignore", invalid="ignore")
def test_the_curvature_metric_is_laplaces_for_fewer_factorizations():
    """Standard deviations from exp(−5) to exp(5): far from the prior's mean."""
    model, theta = Volatile(), THETA + 2.0
    state = State.of(model, theta, model.mean(theta))
    likelihood = LikelihoodAt(model, theta)
    from_the_mean = laplace(likelihood, state.prior)
    mode = laplace(likelihood, state.prior, tolerance=1e-12).center
    before = tally.cubic_ops
    q = curvature_metric(likelihood, state.prior)
    assert tally.cubic_ops - before <= 3
    assert from_the_mean.iterations > 6
    assert abs(q.center - mode).max() < abs(from_the_mean.center - mode).max()


@pytest.mark.parametrize("name", ["smmala", "mgrad", "rotation"])
def test_what_is_kept_changes_no_draw(name):
    kernel, options = KERNELS[name]
    (one, two), (first, second) = (rng_of(12), rng_of(12)), (state_of(Counts()),) * 2
    for _ in range(20):
        first, _ = kernel(one, first, **options)
        fresh = State.of(second.model, THETA, second.f)  # of which nothing is known
        second, _ = kernel(two, fresh, **options)
        np.testing.assert_array_equal(first.f, second.f)


@pytest.mark.slow
def test_what_is_kept_is_forgotten_with_its_owner():
    state = state_of(Counts())
    for kernel in (auxiliary_gradient, smmala, curvature):
        kernel(rng_of(1), state, step_size=0.5)
    owners = [weakref.ref(owner) for owner in (state, state.at, state.prior)]
    del state
    gc.unfreeze()
    gc.collect()
    assert [owner() for owner in owners] == [None, None, None]


def test_the_last_result_alone_is_kept():
    calls, at = [], state_of(Counts()).at

    def double(x):
        return at.last("double", x, lambda: calls.append(x) or 2 * x)

    assert [double(x) for x in (1, 1, 2, 1)] == [2, 2, 4, 2]
    assert calls == [1, 2, 1]


@pytest.mark.parametrize("owner", [lambda state: state, lambda state: state.at])
def test_a_result_is_computed_once(owner):
    calls, state = [], state_of(Counts())

    def ask(what, state=state):
        return owner(state).once(what, lambda: calls.append(what) or {"a": 1}.get(what))

    assert [ask(what) for what in ("a", "a", "b", "a", "b")] == [1, 1, None, 1, None]
    assert calls == ["a", "b"]
    there = state.with_theta(THETA + 0.1, lambda prior: state.f)
    assert ask("a", there) == 1
    assert calls == ["a", "b", "a"]


def test_what_depends_on_theta_alone_is_kept_as_f_moves():
    state = state_of(Counts())
    there = state.with_f(state.f + 0.1)
    assert state.at.once("a", lambda: 1) == there.at.once("a", lambda: 2) == 1
    assert state.once("a", lambda: 3) == 3
    assert there.once("a", lambda: 4) == 4


# Exactness of the bare kernels, and mutants of them: the kernel's proposals, a wrong ratio


@np.errstate(over="ignore", invalid="ignore")
def paired_pvalue(kernel, *, replicates=300, steps=3, **options):
    """The joint law of (f, y) before and after some steps, replicate by replicate.

    f from the prior, y given f: then f is a draw from p(f | y), and so is what the kernel makes of
    it.
    """
    rng, model = rng_of(20), Counts()
    base, before, after = state_of(model), [], []
    for _ in range(replicates):
        f = base.mean + base.prior.multiply(rng.standard_normal(model.n))
        model.y = rng.poisson(np.exp(f)).astype(float)
        state = State.of(model, THETA, f)  # what is known at theta is of other data
        before.append(functions(state))
        for _ in range(steps):
            state, _ = kernel(rng, state, **options)
        after.append(functions(state))
    columns = [dict(enumerate(np.array(rows).T)) for rows in (before, after)]
    return JointTest.of_pairs(*columns).pvalue


def functions(at):
    z = at.f - at.mean
    _, score = at.model.log_likelihood_gradient(at.f, THETA)
    return np.concatenate([at.f, score, score * z, [at.log_likelihood]])


@every_kernel
def test_draws_from_the_joint_law_stay_draws_from_it(name):
    kernel, options = KERNELS[name]
    assert paired_pvalue(kernel, **options) > 1e-4


def accepted_by(ratio, kernel):
    """The kernel, but accepted with min(1, exp(ratio(state, proposed, step_size)))."""

    def mutant(rng, state, *, step_size):
        proposed, _ = kernel(Accepting(rng), state, step_size=step_size)
        return proposed if math.log(rng.uniform()) < ratio(
            state, proposed, step_size
        ) else state, ()

    return mutant


def likelihood_ratio(at, to, step_size):
    return to.log_likelihood - at.log_likelihood


def target_ratio(at, to, step_size):
    return log_target(to) - log_target(at)


def upside_down(log_q):
    """The proposal's ratio with the wrong sign."""
    return lambda at, to, step_size: (
        2 * target_ratio(at, to, step_size) - log_ratio(log_q, at, to, step_size)
    )


def with_another_way_back(log_q, way_back):
    """The density of the reverse move is not that of a move."""
    return lambda at, to, step_size: (
        target_ratio(at, to, step_size) + way_back(at, to, step_size) - log_q(at, to, step_size)
    )


def metric_of_the_old_f(at, to, step_size):
    return dense_smmala(to, at, step_size, metric_of=at)


def another_delta(at, to, step_size):
    return dense_mgrad(to, at, 3 * step_size)


def no_gradient(at, to, step_size):
    return dense_mgrad(to, at, step_size, gradient=0.0)


def forgets_the_mean(rng, state, *, step_size):
    """The autoregressive proposal around 0 and not around m."""
    z = math.sqrt(1 - step_size**2) * state.f
    to = state.with_f(z + step_size * state.prior.multiply(rng.standard_normal(state.prior.n)))
    accepted = math.log(rng.uniform()) < likelihood_ratio(state, to, step_size)
    return (to if accepted else state), None


def accepts_always(rng, state, **options):
    return curvature(Accepting(rng), state, **options)


def metric_of_f(rng, state, **options):
    """HMC whose metric looks at where f is, and is not the same on the way back."""
    W = state.model.likelihood_terms(state.f, THETA)[2]
    q = replace(state.at.approximation(laplace), posterior=state.prior.condition(W))
    return curvature_hmc(rng, state, q, **options)


class Wide:
    """A momentum from the prior, whose covariance is not that of the kinetic energy."""

    def __init__(self, posterior):
        self.posterior = posterior

    def deviations(self, xi):
        return self.posterior.prior.multiply(xi[0])

    def __getattr__(self, name):
        return getattr(self.posterior, name)


def momentum_of_the_prior(rng, state, **options):
    q = state.at.approximation(laplace)
    return curvature_hmc(rng, state, replace(q, posterior=Wide(q.posterior)), **options)


MUTANTS = {
    "metropolis: the target decides": (accepted_by(target_ratio, metropolis), 0.6),
    "metropolis: around 0": (forgets_the_mean, 0.6),
    "random-walk: the likelihood decides": (accepted_by(likelihood_ratio, random_walk), 0.6),
    "smmala: old metric on the way back": (
        accepted_by(with_another_way_back(dense_smmala, metric_of_the_old_f), smmala),
        1.1,
    ),
    "smmala: upside down": (accepted_by(upside_down(dense_smmala), smmala), 1.1),
    "smmala: no proposal ratio": (accepted_by(target_ratio, smmala), 1.1),
    "mgrad: another delta on the way back": (
        accepted_by(with_another_way_back(dense_mgrad, another_delta), auxiliary_gradient),
        0.8,
    ),
    "mgrad: no gradient on the way back": (
        accepted_by(with_another_way_back(dense_mgrad, no_gradient), auxiliary_gradient),
        0.8,
    ),
    "mgrad: no correction for the gradient": (
        accepted_by(likelihood_ratio, auxiliary_gradient),
        0.8,
    ),
    "mgrad: upside down": (accepted_by(upside_down(dense_mgrad), auxiliary_gradient), 0.8),
    "hmc: accepts always": (accepts_always, 1.2),
    "hmc: metric of f": (partial(metric_of_f, max_steps=2), 0.7),
    "hmc: momentum of the prior": (momentum_of_the_prior, 0.9),
}


WEAK = {
    "metropolis: the target decides",
    "smmala: no proposal ratio",
    "smmala: old metric on the way back",
    "mgrad: another delta on the way back",
    "mgrad: no gradient on the way back",
    "mgrad: upside down",
    "hmc: accepts always",
}
"""Those that take thousands of pairs."""


@pytest.mark.mutant
@pytest.mark.parametrize(
    "mutant",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in WEAK)) for name in MUTANTS],
)
def test_a_wrong_move_is_noticed(mutant, dies):
    kernel, step_size = MUTANTS[mutant]
    pvalue = until_noticed(
        lambda replicates: paired_pvalue(
            kernel, step_size=step_size, replicates=replicates, steps=4
        ),
        *((2500, 4000) if mutant in WEAK else (600, 3000)),
    )
    dies(f"latent, {mutant}", pvalue, below=1e-6)


# The elements and the steps


CURVED = ("smmala", "hmc-curvature", "hmc-class-frequency", "hmc-position")


@pytest.mark.parametrize("name", latent.LATENT_MOVES)
def test_an_element_says_what_it_needs_and_reports(name):
    element = latent.LATENT_MOVES[name](repeats=2)
    assert element.needs_gradient == (name not in ("slice", "metropolis", "random-walk"))
    assert element.needs_curvature == (name in CURVED)
    state = state_of(Counts())
    tuning = element.start(state, 10)
    with np.errstate(over="ignore", invalid="ignore"):  # as `samplers.run` does
        state, learnt, reported = element.run(rng_of(13), state, tuning, tune=True)
        assert element.run(rng_of(13), state, learnt, tune=False)[1] == learnt
    assert reported.keys() == set(element.stats)
    assert (learnt != tuning) == (name != "slice")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hmc-curvature", "metropolis", "mgrad", "random-walk", "smmala"])
@np.errstate(over="ignore", invalid="ignore")
def test_tuning_reaches_its_target(name):
    element = latent.LATENT_MOVES[name]()
    rng, state = rng_of(14), state_of(Counts())
    tuning = element.start(state, 1500)
    for _ in range(1500):
        state, tuning, _ = element.run(rng, state, tuning, tune=True)
    acceptance = []
    for _ in range(800):
        state, tuning, reported = element.run(rng, state, tuning, tune=False)
        acceptance.append(reported["latent_acceptance"])
    if name == "hmc-curvature":  # a quarter of a turn is the longest step
        assert np.mean(acceptance) > 0.75
    else:
        assert np.mean(acceptance) == pytest.approx(element.target_accept, abs=0.06)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["metropolis", "mgrad", "hmc-curvature"])
@np.errstate(over="ignore", invalid="ignore")
def test_without_data_a_step_size_stays_within_bounds(name):
    element = latent.LATENT_MOVES[name]()
    rng, state = rng_of(15), state_of(Silent())
    tuning = element.start(state, 2000)
    for _ in range(2000):
        state, tuning, reported = element.run(rng, state, tuning, tune=True)
    assert reported["latent_acceptance"] == pytest.approx(1.0, abs=1e-6)
    largest = {"metropolis": 1.0, "mgrad": 650.0, "hmc-curvature": math.pi / 2}
    assert tuning.value(False) == pytest.approx(largest[name], rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["smmala", "mgrad"])
def test_a_chain_that_is_stuck_raises_nothing(name):
    element = latent.LATENT_MOVES[name]()
    rng, state = rng_of(16), state_of(Overflowing())
    tuning = element.start(state, 8000)
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(8000):
            state, tuning, reported = element.run(rng, state, tuning, tune=True)
    assert reported["latent_step_size"] > 0


@pytest.mark.parametrize(
    ("sampler", "options", "message"),
    [
        (NealMetropolis, {"step_size": 1.5}, "at most 1 for proposal='autoregressive'"),
        (NealMetropolis, {"step_size": 0.0}, "must be positive"),
        (NealMetropolis, {"proposal": "wide"}, "'autoregressive', 'random-walk'"),
        (LatentHMC, {"metric": "fisher"}, "'prior', 'curvature', 'identity'"),
        (LatentHMC, {"metric": "identity", "integrator": "rotation"}, "integrator='leapfrog'"),
        (AuxiliaryGradient, {"repeats": 0}, "whole number of at least 1"),
        (LatentSMMALA, {"metric": "prior"}, "has no option 'metric'"),
    ],
)
def test_options_that_make_no_sense_are_refused(sampler, options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        build(sampler, "log_gaussian_cox", **options)


def test_a_random_walk_may_be_wide():
    step = build(NealMetropolis, "log_gaussian_cox", proposal="random-walk", step_size=1.5)
    assert step.elements[0].step_size == 1.5


@pytest.mark.parametrize(
    ("sampler", "options"), [(LatentSMMALA, {}), (LatentHMC, {"metric": "curvature"})]
)
def test_a_likelihood_without_curvature_is_refused(sampler, options):
    with pm.Model() as model:
        f = pm.MvNormal("f", mu=np.zeros(2), cov=np.eye(2))
        pm.Laplace("y", mu=f, b=1.0, observed=[0.3, -0.1])
    with pytest.raises(ValueError, match="nowhere strictly concave"):
        build(sampler, model, **options)
    assert build(AuxiliaryGradient, model).elements[0].needs_gradient


@pytest.mark.parametrize("sampler", [ASIS, AuxiliaryGradient, LatentHMC])
def test_a_start_without_a_gradient_is_an_error(sampler):
    """No proposal from there is accepted: f would be 0 in every draw, as theta moves."""
    with pm.Model() as model:
        scale = pm.HalfNormal("scale")
        f = pm.Normal("f", 0, scale if sampler is ASIS else 1.0, shape=2)
        pm.Normal("y", pm.math.sqrt(f**2), 1.0, observed=[0.3, 0.1])
    step = build(sampler, model)
    step.setup_chain(np.random.default_rng(1), 0, 1)
    start = model.initial_point()
    with pytest.raises(SamplingError, match=r"gradient.*'f' is not finite.*(slice|Elliptical)"):
        step.step(start)
    step.setup_chain(np.random.default_rng(1), 0, 1)
    assert step.step(start | {"f": np.array([0.3, 0.2])})[1][0]["latent_acceptance"] > 0


def test_a_start_without_a_metric_is_an_error(monkeypatch):
    step = build(LatentHMC, "log_gaussian_cox", metric="curvature")
    nothing = replace(step.elements[0], search=lambda likelihood, prior: None)
    monkeypatch.setattr(step, "move", nothing)
    step.setup_chain(np.random.default_rng(1), 0, 1)
    with pytest.raises(SamplingError, match=r"No Gaussian approximation.*EllipticalSlice"):
        step.step(listed("log_gaussian_cox").initial_point())
