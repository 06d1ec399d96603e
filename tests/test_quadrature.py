"""Accuracy: posterior moments of every sampler against quadrature on tiny models."""

import arviz as az
import numpy as np
import pymc as pm
import pytest

from samplers import CASES, ends_first, label

import pymc_lgm as lgm

from pymc_lgm import sweep
from pymc_lgm.model import LatentGaussianModel
from pymc_lgm.parameterizations.target import Target
from pymc_lgm.testing import quadrature

X = np.array([[0.0], [0.8]])
DRAWS = 12_000


def build(infer: bool) -> pm.Model:
    """Two counts that disagree; amplitude and mean inferred, or fixed for the latent moves."""
    with pm.Model() as model:
        eta = pm.LogNormal("eta", -0.2, 0.5) if infer else 0.9
        mu = pm.Normal("mu", 0.8, 0.6) if infer else 0.8
        gp = pm.gp.Latent(
            mean_func=pm.gp.mean.Constant(mu), cov_func=eta**2 * pm.gp.cov.Matern52(1, ls=1.0)
        )
        lgm.LogGaussianCox("y", f=gp.prior("f", X, reparameterize=False), observed=[0, 4])
    return model


F_GRID = (-6.5, 6.5, 91)
THETA_GRID = ((-2.6, 2.2, 41), (-2.2, 3.8, 41))


def solve(infer: bool, coarser: float = 1.0):
    """(model, reader, exact moments)."""

    def grid(low, high, points):
        return np.linspace(low, high, int(points / coarser))

    model = build(infer)
    reader = LatentGaussianModel.from_pymc(model)
    theta_grid = [grid(*limits) for limits in THETA_GRID] if infer else []
    return model, reader, quadrature(reader, theta_grid, grid(*F_GRID))


@pytest.fixture(scope="module")
def fixed():
    return solve(infer=False)


@pytest.fixture(scope="module")
def inferred():
    return solve(infer=True)


@pytest.mark.parametrize("infer", [False, True])
def test_quadrature_has_converged(infer, fixed, inferred):
    _, _, exact = inferred if infer else fixed
    _, _, coarse = solve(infer, coarser=1.5)
    np.testing.assert_allclose(coarse.mean, exact.mean, atol=2e-4)
    np.testing.assert_allclose(coarse.cov, exact.cov, atol=2e-4)


def draw(step, model, draws=DRAWS, tune=1500):
    """(theta, f) of one chain, shape (draws, p + n)."""
    rng = np.random.default_rng(11)
    step.setup_chain(rng, tune, draws)
    point = model.initial_point()
    x = np.empty((draws, step.lgm.p + step.lgm.n))
    for i in range(-tune, draws):
        if i == 0:
            step.stop_tuning()
        point, _ = step.step(point)
        if i >= 0:
            x[i] = [*step.lgm.theta_of(point), *point[step.lgm.latent]]
    return x


def z_scores(x, exact):
    """Deviations of the means and of the covariances in Monte Carlo standard errors."""
    centered = x - exact.mean
    i, j = np.triu_indices(x.shape[1])
    series = np.column_stack([centered, centered[:, i] * centered[:, j]])
    target = np.concatenate([np.zeros(x.shape[1]), exact.cov[i, j]])
    ess = az.ess(az.from_dict({"posterior": {"x": series[None]}}), method="mean")["x"].to_numpy()
    return (series.mean(0) - target) / (series.std(0) / np.sqrt(ess))


def assert_moments(case, oracle):
    sampler, options = case
    model, _, exact = oracle
    z = z_scores(draw(sampler(model=model, **options), model), exact)
    assert np.abs(z).max() < 5, z


LATENT, SWEEPS = (
    ends_first([c for c in CASES if c[0].moves_theta is moves_theta])
    for moves_theta in (False, True)
)


@pytest.mark.parametrize("case", LATENT, ids=label)
def test_latent_moves_agree_with_quadrature(case, fixed):
    assert_moments(case, fixed)


@pytest.mark.parametrize("case", SWEEPS, ids=label)
def test_sweeps_agree_with_quadrature(case, inferred):
    assert_moments(case, inferred)


def without_prior(rng, state):
    nu = state.prior.solve(state.f - state.mean)

    def evaluate(theta):
        at = state.with_theta(theta, lambda mean, prior: mean + prior.multiply(nu))
        return (-np.inf, None) if at is None else (at.log_likelihood, at)

    return Target(state, state.log_likelihood, evaluate)


def test_a_dropped_prior_is_noticed(inferred, monkeypatch):
    model, _, exact = inferred
    monkeypatch.setitem(sweep.PARAMETERIZATIONS, "whitened", without_prior)
    z = z_scores(draw(lgm.WhitenedMetropolis(model=model), model), exact)
    assert np.abs(z).max() > 5, z


def test_adapting_for_ever_is_noticed(inferred, monkeypatch):
    """A scale that depends on the last draw, after tuning too, biases the chain."""
    model, reader, exact = inferred

    class Restless(sweep.Metropolis):
        def run(self, rng, target, tuning, tune):
            state, _, stats = super().run(rng, target, tuning, False)
            scale = 0.15 if state.theta[0] > exact.mean[0] else 1.5
            return state, tuning._replace(factor=scale * np.eye(reader.p)), stats

    monkeypatch.setitem(sweep.THETA_MOVES, "metropolis", Restless)
    z = z_scores(draw(lgm.WhitenedMetropolis(model=model), model), exact)
    assert np.abs(z).max() > 5, z
