"""Unbiased solutions, the gradients that are made of them, and the dynamics that follow those."""

import sys

from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import arviz as az
import numpy as np
import pymc as pm
import pytest

from close import differences
from models import COMPILED, QUICK
from mutants import Instead
from scipy import stats
from scipy.linalg import hadamard

import pymc_lgm as lgm

from pymc_lgm.linalg import tally
from pymc_lgm.papers import solvers
from pymc_lgm.papers import ulisse as langevin
from pymc_lgm.papers.solvers.pcg import iterations
from pymc_lgm.papers.ulisse import Solver, of_subset, scheduled, stochastic_gradient
from pymc_lgm.state import AtTheta

pytestmark = pytest.mark.usefixtures("interpreted")

ulisse_module = sys.modules["pymc_lgm.papers.solvers.ulisse"]

N = 40
X = np.sort(np.random.default_rng(1).uniform(0, 4, N))[:, None]
Y = np.sin(2 * X[:, 0]) + 0.4 * np.random.default_rng(2).standard_normal(N)
A = np.exp(-0.5 * (X - X.T) ** 2) + 0.5 * np.eye(N)
EASY = Solver(probes=2, early=1.0, beta=0.1)
"""A tail that is not heavy: with β = 1 averages of thousands miss what comes once in e¹⁰."""


def regression():
    # Not Matern32: with one input, PyMC's derivative of it has 1e-5 of rounding.
    with pm.Model() as model:
        length, sigma = pm.InverseGamma("length", 3, 2), pm.HalfNormal("sigma", 0.5)
        mean = pm.gp.mean.Constant(pm.Normal("mean", 0, 1))
        gp = pm.gp.Marginal(mean_func=mean, cov_func=pm.gp.cov.Matern52(1, ls=length))
        gp.marginal_likelihood("y", X, y=Y, sigma=sigma)
    return model


@cache
def reader():
    return lgm.read(regression(), "y", compile_kwargs=QUICK)


# Solutions


def solution_pvalue(module, start=None):
    """Of 6000 copies of two systems: five functionals of each, by a t test, Bonferroni."""
    rng = np.random.default_rng(5)
    b = rng.standard_normal((N, 2))
    some = module.ulisse(lambda V: A @ V, b, rng, copies=6000, early=1.0, beta=0.1, start=start)
    # Of eigenvectors: what comes after the early stop is along some of them.
    w = np.linalg.eigh(A)[1][:, ::9]
    errors = np.einsum("ij,cik->cjk", w, some.x - np.linalg.solve(A, b))
    pvalues = stats.ttest_1samp(errors.reshape(6000, -1), 0.0).pvalue
    return float(min(1.0, pvalues.size * pvalues.min()))


@pytest.mark.parametrize("start", [None, np.full((N, 2), 0.1)])
def test_solutions_are_unbiased(start):
    assert solution_pvalue(ulisse_module, start) > 1e-5


def weighted_by(weights):
    """The estimator, copy by copy, whose weights are a function of w_1, ..., w_j."""

    def estimate(times, b, rng, *, copies, early, beta, start):
        x, w = np.zeros((copies, *b.shape)), np.exp(beta * np.arange(1.0, 200.0))
        w = np.insert(w, 0, 1.0)
        for column in range(b.shape[1]):
            steps, after, r = [], -1, b[:, column : column + 1]
            run = iterations(times, r, solvers.Identity(len(b)))
            step = next(run)
            while True:
                after += after >= 0 or step.residuals[0] < early * np.sqrt(len(b))
                steps.append((max(after, 0), step.increments[:, 0]))
                if step.residuals[0] < 1e-8 * np.sqrt(len(b)):
                    break
                step = run.send(np.array([True]))
            last = [np.argmax(rng.uniform(size=w.size) * w >= 1.0) for _ in range(copies)]
            for j, increment in steps:
                x[:, :, column] += np.outer(np.array(last) > j, weights(w[: j + 1]) * increment)
        return SimpleNamespace(x=x)

    return SimpleNamespace(ulisse=estimate)


def test_the_estimator_copy_by_copy_is_unbiased():
    assert solution_pvalue(weighted_by(np.prod)) > 1e-5


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("what", "weights"),
    [("weights forgotten", lambda w: 1.0), ("the last weight only", lambda w: w[-1])],
)
def test_wrong_weights_are_noticed(what, weights, dies):
    dies(f"ulisse: {what}", solution_pvalue(weighted_by(weights)), below=1e-6)


def test_without_chance_a_copy_is_the_solution(rng, monkeypatch):
    """β = 0 goes on to the end; a large β ends with the first increment below the early stop."""
    b = rng.standard_normal((N, 2))
    exact = np.linalg.solve(A, b)
    whole = ulisse_module.ulisse(lambda V: A @ V, b, rng, copies=3, beta=0.0)
    np.testing.assert_allclose(whole.x, np.broadcast_to(exact, (3, N, 2)), atol=1e-6)
    np.testing.assert_allclose(whole.reached, exact, atol=1e-6)
    cut = ulisse_module.ulisse(lambda V: A @ V, b, rng, copies=3, beta=50.0, early=0.1)
    assert 1 < cut.iterations < whole.iterations
    assert (cut.x == cut.x[0]).all()
    assert np.linalg.norm(A @ cut.x[0] - b, axis=0).max() < 0.1 * np.sqrt(N)
    done = ulisse_module.ulisse(lambda V: A @ V, b, rng, start=exact)
    assert done.iterations == 0
    np.testing.assert_array_equal(done.x[0], exact)
    monkeypatch.setattr(ulisse_module, "LONGEST", 2 / N)
    assert ulisse_module.ulisse(lambda V: A @ V, b, rng, early=1e-9).iterations == 2


# Gradients

THETA = np.array([-0.3, -0.5, 0.2])


def gradient_pvalue(estimates=1500, instead=AtTheta.of):
    """The mean of estimates against the gradient of the model's own density."""
    model, rng = reader(), np.random.default_rng(7)
    at = instead(model, THETA)
    exact = regression_gradient() - model.log_prior_gradient(THETA)
    values = []
    for _ in range(estimates):
        probes = 2.0 * rng.integers(2, size=(N, EASY.probes)) - 1.0
        values.append(stochastic_gradient(rng, at, Y, probes, EASY).value)
    pvalues = stats.ttest_1samp(np.array(values), exact).pvalue
    return float(min(1.0, 3 * pvalues.min()))


@cache
def regression_gradient():
    model = regression()
    return model.compile_dlogp(**QUICK)(reader().point_of(THETA))


@pytest.mark.slow
def test_the_mean_of_gradients_is_the_gradient():
    assert gradient_pvalue() > 1e-5


def of_model(**others):
    """AtTheta of the model with other derivatives: each is changed after it is computed."""

    def at(model, theta):
        right = AtTheta.of(model, theta)

        def changed(name, change):
            return lambda theta, M: change(getattr(model, name), theta, M)

        verbs = {name: changed(name, change) for name, change in others.items()}
        return Instead(right, model=Instead(model, **verbs))

    return at


def one_solution_twice(patch):
    def wrong(*args, **options):
        solved = ulisse_module.ulisse(*args, **options)
        x = solved.x.copy()
        x[1, :, 0] = x[0, :, 0]
        return replace(solved, x=x)

    patch.setattr(langevin, "ulisse", wrong)
    return AtTheta.of


def not_halved(patch):
    """Solutions are √2 times as long, except for the mean."""

    def wrong(*args, **options):
        solved = ulisse_module.ulisse(*args, **options)
        x = solved.x.copy()
        x[:, :, 0] *= np.sqrt(2.0)
        return replace(solved, x=x)

    patch.setattr(langevin, "ulisse", wrong)
    return of_model(mean_vjp=lambda vjp, theta, v: vjp(theta, v / np.sqrt(2.0)))


def without_mean(patch):
    return of_model(mean_vjp=lambda vjp, theta, v: vjp(theta, 0.0 * v))


GRADIENTS = {
    "one solution twice": one_solution_twice,
    "quadratic form not halved": not_halved,
    "without the mean": without_mean,
}


@pytest.mark.mutant
@pytest.mark.parametrize("what", GRADIENTS)
def test_a_wrong_gradient_is_noticed(what, monkeypatch, dies):
    pvalue = gradient_pvalue(instead=GRADIENTS[what](monkeypatch))
    dies(f"ulisse: gradient, {what}", pvalue, below=1e-6)


@pytest.mark.slow
def test_exact_solutions_and_all_probes_give_the_gradient(rng):
    """Probes that are orthogonal make the trace exact, and β = 0 the solutions."""
    keep = hadamard(64)[:N].astype(float)
    at = AtTheta.of(reader(), THETA)
    found = stochastic_gradient(rng, at, Y, keep, Solver(64, early=1e-12, beta=0.0))
    exact = regression_gradient() - reader().log_prior_gradient(THETA)
    np.testing.assert_allclose(found.value, exact, rtol=1e-6)
    again = stochastic_gradient(rng, at, Y, keep, Solver(64), start=found.reached)
    assert again.iterations <= 3


# M, and the steps


@pytest.mark.slow
def test_the_metric_of_all_data_is_the_inverse_hessian():
    at = AtTheta.of(reader(), np.zeros(3))
    found = of_subset(at, Y, N)
    logp = regression().compile_logp(**QUICK)
    dlogp = regression().compile_dlogp(**QUICK)
    point = reader().point_of
    np.testing.assert_allclose(dlogp(point(found.mode)), 0.0, atol=1e-2)
    H = differences(lambda theta: dlogp(point(theta)), found.mode)
    np.testing.assert_allclose(found.covariance, np.linalg.inv(-0.5 * (H + H.T)), rtol=1e-4)
    assert logp(point(found.mode)) > logp(point(found.mode + 0.1))
    half = of_subset(at, Y, N // 2)
    assert np.diag(half.covariance)[1] > np.diag(found.covariance)[1]  # of the noise


@pytest.mark.slow
def test_the_schedule_and_the_rule_that_ends_it():
    assert scheduled(0, 500) == pytest.approx(0.1)
    assert scheduled(500, 500) == pytest.approx(1e-4)
    step = lgm.papers.ULISSE(model=regression(), compile_kwargs=QUICK, early_stop=0.1, subset=20)
    stats_of, point = [], regression().initial_point()
    step.setup_chain(np.random.default_rng(0), 250, 20)
    for i in range(270):
        if i == 250:
            step.stop_tuning()
        point, (info,) = step.step(point)
        stats_of.append(info)
    size = np.array([each["approximate_step_size"] for each in stats_of])
    ratio = np.array([each["gradient_noise_ratio"] for each in stats_of])
    np.testing.assert_allclose(size[:100], [scheduled(t, 250) for t in range(100)])
    assert np.isnan(ratio[:100]).all()
    assert (ratio[100:] > 0).all()
    frozen = [t for t in (100, 200) if ratio[t] < 2e-3]
    if frozen:
        assert (size[frozen[0] :] == size[frozen[0] - 1]).all()
    assert (size[250:] == size[250]).all()
    assert all(each["solver_iterations"] >= 1 for each in stats_of)
    assert sum(each["cubic_ops"] for each in stats_of[1:]) == 0


def test_a_quiet_gradient_freezes_the_step_size():
    element = langevin.Langevin(Solver(4), 20)
    state = lgm_state()
    knows = element.start(state, 1000)
    for t in range(100):
        loud = element._learnt(knows, np.array([0.0, 0.0, 100.0 * (-1) ** t]), True)
        quiet = knows = element._learnt(knows, np.array([0.0, 0.0, 1e-3 * (-1) ** t]), True)
    assert quiet.frozen
    assert 0.0 < quiet.ratio < 2e-3
    assert not loud.frozen
    V = np.zeros((3, 3))
    V[2, 2] = 1e-6 * 100 / 99
    M = knows.metric.covariance
    expected = 0.25 * 0.1 * np.linalg.eigvals(M @ V).real.max()
    assert quiet.ratio == pytest.approx(expected, rel=1e-6)
    assert element._learnt(knows, np.zeros(3), False) is knows


def lgm_state():
    return AtTheta.of(reader(), np.zeros(3)).state(Y)


def test_where_theta_cannot_go_it_stays(rng):
    element, state = langevin.Langevin(Solver(2), 20, 0.5), lgm_state()
    before = tally.numerical_rejections
    assert element._moved(state, np.full(3, np.nan)) is state
    assert element._moved(state, np.array([0.0, 800.0, 0.0])) is state
    assert tally.numerical_rejections == before + 2


@cache
def exact_moments():
    """Of the posterior by quadrature over a grid."""
    model, logp = reader(), regression().compile_logp(**QUICK)
    found = of_subset(AtTheta.of(model, np.zeros(3)), Y, N)
    root = np.linalg.cholesky(found.covariance)
    axis = np.linspace(-5, 5, 15)
    grid = np.array(np.meshgrid(axis, axis, axis)).reshape(3, -1).T @ root.T + found.mode
    values = np.array([float(logp(model.point_of(theta))) for theta in grid])
    w = np.exp(values - values.max())
    w /= w.sum()
    mean = w @ grid
    return mean, np.sqrt(w @ (grid - mean) ** 2)


@pytest.mark.whole
def test_draws_are_near_the_posterior():
    """The variance is at most (1 + ε λ(M V) / 4) / (1 − ε / 4) of it, V as measured at the mode.

    That is for a normal posterior and M its covariance, as it is here nearly: a tenth more for what
    it is not. A mean may be off by a tenth of a standard deviation, and both by four standard
    errors. β is small: with 1 a measured V lacks what comes once in e⁶ solutions.

    One chain of four is kicked more than six standard deviations away, since V has no bound where
    theta is far from the mode; the way back can be half of a variance of 4000 draws. So draws
    beyond three standard deviations count as three, which takes half a percent from a normal
    posterior's variance.
    """
    mean, sd = exact_moments()
    size, count = 0.2, 4000
    how = {"early_stop": 0.1, "beta": 0.3, "n_probes": 8, "probes_kept": 1}
    step = lgm.papers.ULISSE(model=regression(), step_size=size, compile_kwargs=COMPILED, **how)
    draws, point = [], regression().initial_point()
    step.setup_chain(np.random.default_rng(0), 300, count)
    for t in range(300 + count):
        if t == 300:
            step.stop_tuning()
        point, _ = step.step(point)
        draws.append(step.lgm.theta_of(point))
    draws = np.clip(np.array(draws[300:]), mean - 3 * sd, mean + 3 * sd)
    metric, rng = step.tunings[0].metric, np.random.default_rng(1)
    at = AtTheta.of(reader(), metric.mode)
    probes = 2.0 * rng.integers(2, size=(200, N, 8)) - 1.0
    slopes = [stochastic_gradient(rng, at, Y, each, step.solver).value for each in probes]
    noise = np.linalg.eigvals(metric.covariance @ np.cov(np.array(slopes).T)).real.max()
    bound = (1 + size * noise / 4) / (1 - size / 4)
    ess = az.ess(az.from_dict({"posterior": {"theta": draws[None]}}))["theta"].values
    ratio = draws.var(axis=0) / sd**2
    assert bound < 1.6
    assert (ess > 50).all()
    assert (ess < 2 * count * size / 4).all()
    assert (np.abs(draws.mean(axis=0) - mean) < sd * (0.1 + 4 / np.sqrt(ess))).all()
    assert (ratio < 1.1 * bound + 4 * np.sqrt(2 / ess)).all()
    assert (ratio > 1 / 1.1 - 4 * np.sqrt(2 / ess)).all()


# The step method


@pytest.mark.slow
def test_it_is_labelled_as_approximate():
    model = regression()
    step = lgm.papers.ULISSE(model=model, compile_kwargs=QUICK)
    assert repr(step) == "ULISSE([length_log__, sigma_log__, mean], approximate)"
    with model:
        idata = pm.sample(
            30,
            tune=30,
            step=lgm.papers.ULISSE(compile_kwargs=QUICK, step_size=0.05),
            chains=1,
            random_seed=1,
            progressbar=False,
            compute_convergence_checks=False,
        )
    assert (idata["sample_stats"]["approximate_step_size"] == 0.05).all()
    (verdict,) = [each for each in lgm.report(idata).verdicts if each.subject == "approximate"]
    assert verdict.level == "warning"
    assert "lgm.ExactMarginal()" in verdict.advice
    assert np.ptp(idata["posterior"]["sigma"].values) > 0


def test_what_it_cannot_do_is_refused():
    with pm.Model():
        pm.Normal("y", pm.Normal("m"), 1.0, observed=0.1)
        with pytest.raises(ValueError, match="marginal_likelihood"):
            lgm.papers.ULISSE()
    for option in ({"step_size": 1.5}, {"early_stop": 0.0}, {"beta": -1.0}):
        with pytest.raises(ValueError, match=next(iter(option))):
            lgm.papers.ULISSE(model=regression(), **option)
    with pytest.raises(ValueError, match="n_probes"):
        lgm.papers.ULISSE(model=regression(), n_probes=0)
    with pytest.raises(TypeError, match=r"has no option 'move'\. It has: beta, blocked"):
        lgm.papers.ULISSE(model=regression(), move="nuts")
