"""Observations that read next to nothing of a field: a walk times a covariate that is near zero."""

import numpy as np
import pymc as pm
import pytest

from models import QUICK
from scipy.stats import multivariate_normal

import pymc_lgm as lgm

from pymc_lgm.approximations.laplace import laplace
from pymc_lgm.model.forms.sum import SumPredictor
from pymc_lgm.state import AtTheta

N, WEAK = 30, 4
WALK = np.minimum.outer(np.arange(N), np.arange(N))
RNG = np.random.default_rng(5)
X, Y, COVARIATE = RNG.standard_normal((N, 2)), RNG.standard_normal(N), RNG.standard_normal(N)
THETA = np.array([-0.4])

TINY = [1e-3, 5e-4, 1e-8, 1e-12, 0.0]


def covariate(tiny):
    return np.where(np.arange(N) == WEAK, tiny, COVARIATE)


def read(tiny):
    """A level, two coefficients, that of the covariate itself, and its walk; normal noise."""
    x = covariate(tiny)
    with pm.Model() as model:
        slope, a = pm.Normal("slope", 0.0, 2.0), pm.Normal("a", 0.3, 1.0)
        b = pm.Normal("b", 0.0, 1.0, shape=2)
        start = pm.Normal.dist(0.0, 1.0)
        walk = pm.GaussianRandomWalk("walk", sigma=pm.HalfNormal("s"), init_dist=start, shape=N)
        eta = a + slope * x + pm.math.dot(X, b) + x * walk
        pm.Normal("y", eta, 0.8, observed=Y)
    return lgm.read(model, compile_kwargs=QUICK)


@pytest.fixture(params=[pytest.param(x, marks=[pytest.mark.slow] * (x != 1e-12)) for x in TINY])
def tiny(request):
    return request.param


def parts(tiny):
    """K_walk, and C and V with eta = 0.3 + x walk + C (slope, a, b), of variances V."""
    K = 1.0 + np.exp(2.0 * THETA[0]) * WALK
    return K, np.column_stack([covariate(tiny), np.ones(N), X]), np.array([4.0, 1.0, 1.0, 1.0])


def predictor_law(tiny):
    K, C, V = parts(tiny)
    x = covariate(tiny)
    return x[:, None] * K * x + C * V @ C.T


def error_of_evidence(tiny):
    ours = read(tiny)
    assert isinstance(ours.form, SumPredictor)  # no n × n array
    at = AtTheta.of(ours, THETA)
    q = at.approximation(laplace)
    assert q is not None
    right = multivariate_normal.logpdf(Y, np.full(N, 0.3), predictor_law(tiny) + 0.64 * np.eye(N))
    return abs(q.log_evidence - right)


def test_the_evidence_is_that_of_dense_algebra(tiny):
    """It was off by 6e-7 at 1e-3 and by 1e-5 at 5e-4, and there was no prior at 1e-8."""
    assert error_of_evidence(tiny) < 1e-8


def test_moments_are_those_of_dense_algebra(tiny):
    ours, K = read(tiny), predictor_law(tiny)
    q = AtTheta.of(ours, THETA).approximation(laplace)
    gain = np.linalg.solve(K + 0.64 * np.eye(N), K).T
    np.testing.assert_allclose(q.center[-N:], 0.3 + gain @ (Y - 0.3), rtol=0, atol=1e-8)
    np.testing.assert_allclose(q.posterior.variances[-N:], np.diag(K - gain @ K), rtol=1e-8)
