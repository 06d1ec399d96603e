"""Evidences of series and areas by tensor quadrature over all that is integrated out.

Three elements, so few that the field, a level and an effect each can be integrated on a grid, by
the law that the model writes: no covariance of f, and nothing of the form it is read in.
"""

from typing import NamedTuple

import numpy as np
import pymc as pm
import pytest

from scipy.special import expit, factorial
from test_sets import from_pymc

from pymc_lgm.approximations.ep import ep
from pymc_lgm.gaussian import BandedPrior, SumPrior
from pymc_lgm.model import sparse_precision
from pymc_lgm.state import AtTheta

pytestmark = pytest.mark.usefixtures("interpreted")

Y = np.array([2, 0, 4])
W = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
D = np.diag(W.sum(axis=0))
THETA = np.array([0.4, -0.3])


class Law(NamedTuple):
    """η = mean + root z + level z' + d w: z, z' and w of variance 1."""

    mean: np.ndarray
    root: np.ndarray
    level: float = 0.0
    d: float = 0.0


def estimated_evidence(model, theta, rng, draws=4000):
    """log p(y | theta) by so many importance draws, and its standard error."""
    at = AtTheta.of(model, theta)
    q = at.approximation(lambda likelihood, prior: ep(likelihood, prior, tolerance=1e-6))
    xi = rng.standard_normal((*q.posterior.coordinates_shape, draws))
    f = q.center[:, None] + q.posterior.deviations(xi)
    logs = q.log_weights(f, at.log_likelihoods(f.T))
    weights = np.exp(logs - logs.max())
    error = weights.std() / weights.mean() / np.sqrt(draws)
    return logs.max() + np.log(weights.mean()), error


def seen(eta):
    pm.Poisson("y", pm.math.exp(eta), observed=Y)


def level():
    return pm.Normal("level", 0.3, 0.7)


def effects():
    return 0.6 * pm.Normal("w", 0.0, 1.0, shape=3)


def root_of(Q):
    return np.linalg.cholesky(np.linalg.inv(Q))


def map_alone(a, b):
    seen(pm.CAR("phi", [0.2, 0.1, 0.0], W, alpha=pm.math.sigmoid(a), tau=pm.math.exp(-2 * b)))
    return Law(
        np.array([0.2, 0.1, 0.0]), root_of(np.exp(-2 * THETA[1]) * (D - expit(THETA[0]) * W))
    )


def map_with_a_level_in_its_mean(a, b):
    phi = pm.CAR("phi", level() * np.ones(3), W, alpha=pm.math.sigmoid(a), tau=pm.math.exp(-2 * b))
    seen(phi + effects())
    root = root_of(np.exp(-2 * THETA[1]) * (D - expit(THETA[0]) * W))
    return Law(np.full(3, 0.3), root, 0.7, 0.6)


def intrinsic_map(a, b):
    phi = pm.ICAR("phi", W=W, zero_sum_stdev=0.4)
    seen(level() + pm.math.exp(b) * phi + pm.math.sigmoid(a) * pm.Normal("w", 0, 1, shape=3))
    root = np.exp(THETA[1]) * root_of(D - W + 1.0 / (3 * 0.4) ** 2)
    return Law(np.full(3, 0.3), root, 0.7, expit(THETA[0]))


def sparse_tau(a, b):
    tau = pm.math.exp(-2 * b) * (D - pm.math.sigmoid(a) * W)
    seen(pm.MvNormal("phi", [0.2, 0.1, 0.0], tau=tau) + level())
    law = Law(np.array([0.5, 0.4, 0.3]), root_of(np.exp(-2 * THETA[1]) * (D - expit(THETA[0]) * W)))
    return law._replace(level=0.7)


def series_of_two_lags(a, b):
    start = pm.Normal.dist([0.2, -0.1], 0.5)
    seen(pm.AR("x", pm.math.stack([a, -0.2]), pm.math.exp(b), init_dist=start, steps=1))
    last = [-0.2 * 0.5, THETA[0] * 0.5, np.exp(THETA[1])]
    mean = [0.2, -0.1, -0.1 * THETA[0] - 0.2 * 0.2]
    return Law(np.array(mean), np.array([[0.5, 0.0, 0.0], [0.0, 0.5, 0.0], last]))


def series_with_a_level_and_effects(a, b):
    start = pm.Normal.dist(0.2, 0.5)
    x = pm.GaussianRandomWalk("x", mu=a, sigma=pm.math.exp(b), init_dist=start, steps=2)
    seen(level() + x + effects())
    steps = np.tril(np.ones((3, 3))) * np.array([0.5, *np.full(2, np.exp(THETA[1]))])
    return Law(0.5 + THETA[0] * np.arange(3), steps, 0.7, 0.6)


MODELS = {
    map_alone: SumPrior,
    map_with_a_level_in_its_mean: SumPrior,
    intrinsic_map: SumPrior,
    sparse_tau: SumPrior,
    series_of_two_lags: BandedPrior,
    series_with_a_level_and_effects: SumPrior,
}


def by_quadrature(law, nodes=20):
    """p(y): Gauss and Hermite's rule in z, z' and, of each element by itself, w."""
    x, weights = np.polynomial.hermite_e.hermegauss(nodes)
    weights = weights / weights.sum()
    z = np.array(np.meshgrid(*[x] * 4)).reshape(4, -1)
    of_z = np.prod(np.meshgrid(*[weights] * 4), axis=0).ravel()
    if not law.level:
        z, of_z = z[:, z[3] == x[0]], of_z[z[3] == x[0]] / weights[0]
    eta = law.mean[:, None] + law.root @ z[:3] + law.level * z[3]
    effect, of_effect = (x, weights) if law.d else (np.zeros(1), np.ones(1))
    for y, row in zip(Y, eta, strict=True):
        one = sum(
            weight * np.exp(y * (row + law.d * w) - np.exp(row + law.d * w))
            for w, weight in zip(effect, of_effect, strict=True)
        )
        of_z = of_z * one / factorial(y)
    return of_z.sum()


@pytest.mark.fast("series_with_a_level_and_effects")
@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_the_evidence_is_that_of_a_quadrature(make, monkeypatch):
    monkeypatch.setattr(sparse_precision, "MOST", 1.0)  # of three areas nothing is sparse
    laws = []

    def model():
        # Not normal: they stay in theta.
        laws.append(make(pm.Logistic("a", 0, 1), pm.Logistic("b", 0, 1)))

    ours = from_pymc(model)
    assert ours.theta_names == ("a", "b")
    assert isinstance(ours.prior(THETA), MODELS[make])
    right = np.log(by_quadrature(laws[0]))
    log_evidence, error = estimated_evidence(ours, THETA, np.random.default_rng(4), 16_000)
    assert abs(log_evidence - right) < 5.0 * error
    assert error < 0.003
