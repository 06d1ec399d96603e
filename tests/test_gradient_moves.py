"""Moves on theta that use gradients: derivatives, what they cost, exactness, and mutants."""

from __future__ import annotations

import math

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from close import differences
from models import QUICK, listed
from mutants import Accepting
from pytensor import wrap_py
from toys import TOYS, Counts, MadeTarget, Series, until_noticed

import pymc_lgm as lgm

from pymc_lgm.gaussian.dense import multiply_vjp
from pymc_lgm.linalg import CholeskyFactor, factorize, tally
from pymc_lgm.moves.theta.hmc import HMCInfo, hmc
from pymc_lgm.papers import smmala as smmala_module
from pymc_lgm.papers.smmala import metric, smmala
from pymc_lgm.state import State
from pymc_lgm.targets.sufficient import SufficientTarget
from pymc_lgm.targets.whitened import WhitenedTarget
from pymc_lgm.testing import JointTest

PARAMETERIZATIONS = {"sufficient": SufficientTarget.fix, "whitened": WhitenedTarget.fix}


# The verbs of a factor


@pytest.fixture(params=[True, False], ids=["lower", "upper"])
def factor(request):
    """A Cholesky factor, as LAPACK may have left it: in either triangle, with rubbish beside it."""
    rng = np.random.default_rng(1)
    A = rng.standard_normal((6, 8))
    L = np.linalg.cholesky(A @ A.T)
    rubbish = np.triu(rng.standard_normal((6, 6)), 1)
    packed = L + rubbish
    packed = np.asfortranarray(packed if request.param else packed.T)
    return CholeskyFactor(packed, request.param), A @ A.T, rng


def symmetric(rng, n=6):
    A = rng.standard_normal((n, n))
    return A + A.T


def test_derivatives_of_the_factor(factor):
    L, A, rng = factor
    dA, x, g = symmetric(rng), rng.standard_normal(6), rng.standard_normal(6)
    step = 1e-5
    ahead, behind = (np.linalg.cholesky(A + s * dA) @ x for s in (step, -step))
    dL_x = (ahead - behind) / (2 * step)
    vjp = multiply_vjp(L, x, g)
    np.testing.assert_array_equal(vjp, vjp.T)
    assert np.sum(vjp * dA) == pytest.approx(g @ dL_x, rel=1e-7)


def test_derivatives_of_the_factor_are_counted(factor):
    L, _, rng = factor
    x = rng.standard_normal(6)
    assert spent(lambda: multiply_vjp(L, x, x)) == 2


def spent(function):
    before = tally.cubic_ops
    function()
    return tally.cubic_ops - before


# Gradients and metrics of the targets


class MeansOnly(Counts):
    """Theta in the mean alone; the covariance is a constant."""

    def __init__(self):
        super().__init__()
        self.enters_cov = np.zeros(3, dtype=bool)

    def cov(self, theta):
        return np.eye(3) + 0.5

    def cov_vjp(self, theta, M):
        return np.zeros(3)


class CountsInASeries(Series, Counts):
    """A prior with a banded precision, whose mean depends on all of theta."""


TARGETS = {**TOYS, "means_only": MeansOnly, "series": CountsInASeries}


def state_of(name, seed=0):
    model, rng = TARGETS[name](), np.random.default_rng(seed)
    theta = model.prior_mean + 0.3 * rng.standard_normal(model.p)
    state = State.of(model, theta, model.mean(theta))
    return state.with_f(state.mean + state.prior.multiply(rng.standard_normal(model.n)))


@pytest.mark.parametrize("fix", PARAMETERIZATIONS.values(), ids=PARAMETERIZATIONS)
@pytest.mark.parametrize("name", TARGETS)
def test_gradients(name, fix):
    for seed in range(3):
        target = fix(None, state_of(name, seed))
        # At the state where it was fixed, and at one that it has returned.
        _, moved = target.evaluate(target.state.theta + 0.2)
        for at in (target.state, moved):
            expected = differences(lambda theta, target=target: target.evaluate(theta)[0], at.theta)
            np.testing.assert_allclose(target.gradient(at), expected, rtol=1e-7, atol=1e-8)


def minus_hessian_at_fixed_f(state):
    def gradient(theta):
        prior = state.model.log_prior_gradient(theta)
        return prior + state.model.log_likelihood_theta_gradient(state.f, theta)

    return -differences(gradient, state.theta)


@pytest.mark.parametrize("name", TARGETS)
def test_the_metric_of_held_f_is_the_fisher_information_of_the_prior(name):
    state = state_of(name)
    model = state.model
    G = metric(SufficientTarget.fix(None, state), state)
    dm, dK = differences(model.mean, state.theta), differences(model.cov, state.theta)
    K_inverse = np.linalg.inv(model.cov(state.theta))
    expected = minus_hessian_at_fixed_f(state) + dm.T @ K_inverse @ dm
    expected += 0.5 * np.einsum("abi,bc,cdj,da->ij", dK, K_inverse, dK, K_inverse)
    np.testing.assert_allclose(G, expected, rtol=1e-6, atol=1e-6)


def test_the_fisher_information_is_the_covariance_of_the_score():
    """E[∇ ∇ᵀ] over f ~ N(m, K), for a theta that the likelihood does not depend on."""
    state, rng = state_of("labels"), np.random.default_rng(7)
    model = state.model
    scores = np.empty((4000, model.p))
    for score in scores:
        f = state.mean + state.prior.multiply(rng.standard_normal(model.n))
        at = replace(state, f=f)
        score[:] = SufficientTarget.fix(None, at).gradient(at) - model.log_prior_gradient(at.theta)
    G = metric(SufficientTarget.fix(None, state), state)
    information = G - minus_hessian_at_fixed_f(state)
    products = scores[:, :, None] * scores[:, None, :]
    error = products.std(0) / math.sqrt(len(scores))
    assert np.abs((products.mean(0) - information) / error).max() < 5


@pytest.mark.parametrize("name", TARGETS)
def test_the_metric_of_held_nu_is_that_of_f_pulled_back(name):
    state = state_of(name)
    model = state.model
    target = WhitenedTarget.fix(None, state)
    G = metric(target, state)
    J = differences(lambda theta: target.evaluate(theta)[1].f, state.theta)
    _, _, W, _ = model.likelihood_terms(state.f, state.theta)
    expected = minus_hessian_at_fixed_f(state) + (J.T * np.maximum(W, 0)) @ J
    np.testing.assert_allclose(G, expected, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(G, G.T)


@pytest.mark.parametrize(
    ("name", "fix", "gradient", "of_metric"),
    [
        # Two of the four components of theta enter K in these models.
        ("errors", SufficientTarget.fix, 1, 2 * 2),
        ("errors", WhitenedTarget.fix, 2, 2 * 2),
        ("means_only", SufficientTarget.fix, 0, 0),
        ("means_only", WhitenedTarget.fix, 0, 0),
    ],
)
def test_gradients_are_counted(name, fix, gradient, of_metric):
    target = fix(None, state_of(name))
    assert spent(lambda: target.gradient(target.state)) == gradient
    assert spent(lambda: metric(target, target.state)) == of_metric


@pytest.mark.parametrize(
    ("fix", "per_gradient"), [(SufficientTarget.fix, 1), (WhitenedTarget.fix, 2)]
)
def test_a_trajectory_evaluates_each_point_once(fix, per_gradient):
    rng, state = np.random.default_rng(2), state_of("errors")
    counts = []
    for _ in range(20):
        before, target = tally.cubic_ops, fix(rng, state)
        options = {"step_size": 0.1, "max_steps": 6}
        state, info = hmc(rng, target, factor=np.eye(4), **options)
        N = info.theta_evaluations
        assert tally.cubic_ops - before == N + (N + 1) * per_gradient
        counts.append(N)
    assert set(counts) == {1, 2, 3, 4, 5, 6}


# Wrong moves, on a target of theta alone that says at once how theta should be distributed


def funnel(theta):
    """A ~ N(0, 1), b | a ~ N(0, e^a), with the metric 1.5, e^-a: a point as `Target` wants it."""
    a, b = theta
    gradient = np.array([-a - 0.5 + 0.5 * b**2 * math.exp(-a), -b * math.exp(-a)])
    log_density = -0.5 * (a**2 + a + b**2 * math.exp(-a))
    return SimpleNamespace(
        theta=theta,
        log_density=log_density,
        gradient=gradient,
        G=np.diag([1.5, math.exp(-a)]),
    )


def funnel_target(at):
    def evaluate(theta):
        there = funnel(theta)
        return there.log_density, there

    return MadeTarget(
        at,
        at.log_density,
        evaluate,
        gradient=lambda at: at.gradient,
    )


def with_metric(function):
    """SMMALA with another metric."""

    def move(rng, target, **options):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(smmala_module, "metric", function)
            return smmala(rng, target, **options)

    return move


funnel_smmala = with_metric(lambda target, at: at.G)
wrong_end_smmala = with_metric(lambda target, at: target.state.G)
"""The way back spreads like the way there."""


def pvalue_of(move, options, fix=funnel_target, replicates=800, steps=3):
    """Start from exact draws, move a few times, and compare pairs."""
    rng, before, after = np.random.default_rng(11), [], []
    for _ in range(replicates):
        a, z = rng.standard_normal(2)
        at = funnel(np.array([a, math.exp(a / 2) * z]))
        before.append(at.theta)
        for _ in range(steps):
            at, _ = move(rng, fix(at), **options)
        after.append(at.theta)
    sides = []
    for rows in (before, after):
        a, b = np.array(rows).T
        z = b * np.exp(-a / 2)
        sides.append({"a": a, "z": z, "sum": a + z, "difference": a - z})
    return JointTest.of_pairs(*sides).pvalue


HMC = {"factor": np.array([[1.0, 0.0], [0.4, 0.8]]), "step_size": 0.7, "max_steps": 4}
SMMALA = {"step_size": 1.2}


@pytest.mark.parametrize(("move", "options"), [(hmc, HMC), (funnel_smmala, SMMALA)])
def test_leaves_a_funnel_invariant(move, options):
    assert pvalue_of(move, options) > 1e-4


def stale_gradient(at):
    """The force at the start, all along the trajectory: there is no way back."""
    return replace(funnel_target(at), gradient=lambda there: at.gradient)


def without_kinetic_energy(rng, target, *, factor, step_size, max_steps):
    """Leapfrog steps, accepted by the density alone."""
    state = at = target.state
    r = rng.standard_normal(state.theta.size)
    for _ in range(int(rng.integers(1, max_steps, endpoint=True))):
        r = r + 0.5 * step_size * factor.T @ target.gradient(at)
        log_density, at = target.evaluate(at.theta + step_size * (factor @ r))
        r = r + 0.5 * step_size * factor.T @ target.gradient(at)
    acceptance = math.exp(min(0.0, log_density - target.log_density))
    return (at if rng.uniform() < acceptance else state), HMCInfo(acceptance, 1)


def without_accept_step(move):
    return lambda rng, *args, **options: move(Accepting(rng), *args, **options)


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("move", "options", "fix"),
    [
        (hmc, HMC, stale_gradient),
        (without_kinetic_energy, HMC, funnel_target),
        (without_accept_step(hmc), HMC, funnel_target),
        (without_accept_step(funnel_smmala), SMMALA, funnel_target),
        (wrong_end_smmala, SMMALA, funnel_target),
    ],
    ids=["stale-force", "no-kinetic-energy", "hmc-accepts", "smmala-accepts", "metric-wrong-end"],
)
def test_a_wrong_move_is_noticed(move, options, fix, request, dies):
    mutant = request.node.callspec.id
    pvalue = until_noticed(lambda replicates: pvalue_of(move, options, fix, replicates), 400, 2000)
    dies(f"moves by gradients: {mutant}", pvalue, below=1e-6)


def without_determinant(proposal, theta):
    xi = proposal.V.T @ (theta - proposal.mean) / proposal.scale
    return -0.5 * float(xi @ xi)


def without_density(proposal, theta):
    return 0.0


def without_drift(proposal, theta):
    """The reverse density of a proposal that does not climb: wrong on either way."""
    centered = proposal._replace(mean=0.0 * proposal.mean)
    return real_log_density(centered, theta)


real_log_density = smmala_module._Proposal.log_density


@pytest.mark.mutant
@pytest.mark.parametrize("mutant", [without_determinant, without_density, without_drift])
def test_a_wrong_proposal_density_is_noticed(mutant, monkeypatch, dies):
    monkeypatch.setattr(smmala_module._Proposal, "log_density", mutant)
    pvalue = until_noticed(
        lambda replicates: pvalue_of(funnel_smmala, SMMALA, replicates=replicates), 400, 2000
    )
    dies(f"smmala: {mutant.__name__}", pvalue, below=1e-6)


# What cannot be computed


def broken(target, **changes):
    """Derivatives that are NaN everywhere but at the start."""
    p, start = target.state.theta.size, target.state
    nan = np.full(p, np.nan)
    return MadeTarget.like(
        target,
        gradient=lambda at: target.gradient(at) if at is start else nan,
    )


plain_smmala = with_metric(lambda target, at: np.eye(at.theta.size))


@pytest.mark.parametrize("move", [hmc, plain_smmala], ids=["hmc", "smmala"])
def test_derivatives_that_are_not_numbers_reject(move):
    state = state_of("errors")
    target = broken(WhitenedTarget.fix(None, state))
    options = {"step_size": 0.1} | ({"factor": np.eye(4)} if move is hmc else {})
    lost = tally.numerical_rejections
    at, info = move(np.random.default_rng(1), target, **options)
    assert at is state
    assert info.theta_acceptance == 0.0
    assert tally.numerical_rejections == lost + 1


def test_a_metric_without_density_beside_the_state_rejects(monkeypatch):
    """A target that has a density at one theta alone."""
    state = state_of("errors")
    target = WhitenedTarget.fix(None, state)
    monkeypatch.setattr(WhitenedTarget, "evaluate", lambda self, theta: (-math.inf, None))
    assert np.isnan(metric(target, state)).all()
    lost = tally.numerical_rejections
    at, info = smmala(np.random.default_rng(1), target, step_size=0.1)
    assert at is state
    assert info.theta_acceptance == 0.0
    assert tally.numerical_rejections == lost + 1


@pytest.mark.parametrize("move", [hmc, plain_smmala], ids=["hmc", "smmala"])
def test_a_theta_without_density_rejects(move):
    state = state_of("errors")
    target = MadeTarget.like(
        WhitenedTarget.fix(None, state), evaluate=lambda theta: (-math.inf, None)
    )
    options = {"step_size": 0.1} | ({"factor": np.eye(4)} if move is hmc else {})
    at, info = move(np.random.default_rng(1), target, **options)
    assert at is state
    assert info.theta_acceptance == 0.0


def test_a_metric_that_is_not_positive_is_made_so(monkeypatch):
    """SMMALA takes the absolute values of its eigenvalues, and none below the floor."""
    state = state_of("labels")
    G = np.diag([4.0, -0.25, 0.0])
    monkeypatch.setattr(smmala_module, "metric", lambda target, at: G)
    target = MadeTarget.like(
        WhitenedTarget.fix(None, state), gradient=lambda at: np.array([1.0, 2.0, 0.0])
    )
    proposal = smmala_module._proposal(target, state, 0.5)
    covariance = proposal.V @ np.diag(proposal.scale**2) @ proposal.V.T
    np.testing.assert_allclose(np.diag(covariance), 0.25 / np.array([4, 0.25, 1e-6]))
    np.testing.assert_allclose(proposal.mean - state.theta, 0.125 * np.array([0.25, 8.0, 0.0]))


def test_the_proposal_density_is_that_of_the_proposal():
    """Differences of log q against a Gaussian that knows G."""
    state, rng = state_of("errors"), np.random.default_rng(3)
    target = SufficientTarget.fix(None, state)
    proposal = smmala_module._proposal(target, state, 0.7)
    gradient, G = target.gradient(state), metric(target, state)
    covariance = 0.49 * np.linalg.inv(G)
    prior = factorize(covariance.copy())
    mean = state.theta + 0.5 * covariance @ gradient
    constant = 0.5 * 4 * math.log(2 * math.pi)
    for theta in rng.standard_normal((3, 4)):
        expected = prior.log_density(theta - mean) + constant
        assert proposal.log_density(theta) == pytest.approx(expected)


@pytest.mark.slow
def test_a_covariance_without_a_gradient_is_known():
    """Before a chain starts: a sweep can then refuse to move theta by gradients."""

    @wrap_py(itypes=[pt.dscalar], otypes=[pt.dmatrix])
    def opaque(eta):
        return eta * np.eye(2)

    with pm.Model() as model:
        f = pm.MvNormal("f", mu=np.zeros(2), cov=opaque(pm.HalfNormal("eta")))
        lgm.Probit("y", f=f, observed=[0, 1])
    opaque_reader = lgm.read(model, compile_kwargs=QUICK)
    assert not opaque_reader.has_theta_gradient
    assert opaque_reader.has_gradient
    other = lgm.read(listed("student_t"), compile_kwargs=QUICK)
    assert other.has_theta_gradient
