"""Leave-one-out densities against quadrature over f, refits, and what must be refused."""

import numpy as np
import pytest

from scipy.special import gammaln, log_ndtr, logsumexp

from pymc_lgm.approximations.laplace import laplace
from pymc_lgm.approximations.left_out import left_out
from pymc_lgm.gaussian import DensePrior

pytestmark = pytest.mark.usefixtures("interpreted")

Y = np.array([0, 9, 2])
SITE = np.array([0, 1, 1])
"""Two observations of the second element: neither is the other's cavity."""


def poisson(f):
    return Y * f - np.exp(f) - gammaln(Y + 1)


def binary(f):
    return log_ndtr(np.array([1, -1, 1]) * 3.0 * f)


def student_t(f):
    return -2.5 * np.log1p((np.array([0.1, 4.0, 0.5]) - f) ** 2 / (4 * 0.2))


def normal(f):
    return -0.5 * ((np.array([0.1, 4.0, 0.5]) - f) / 0.3) ** 2


class Likelihood:
    """ℓ of f by ``density``, elementwise in the observations, with derivatives by differences."""

    sets = probit_signs = effects = None

    def __init__(self, density, site=SITE):
        self.density, self.site = density, site

    def elements(self, rows):
        return self.density(rows[:, self.site])

    def value(self, f):
        return float(self.elements(f[None]).sum())

    def __call__(self, f):
        h = 1e-4
        below, at, above = self.elements(f + np.outer([-h, 0, h], np.ones(f.size)))
        g, W = (above - below) / (2 * h), (2 * at - above - below) / h**2
        of_f = [np.bincount(self.site, each, f.size) for each in (g, W)]
        return float(at.sum()), *of_f, np.zeros(f.size)


class Constant:
    """N(m, K), whatever theta is."""

    enters_cov = np.zeros(0, dtype=bool)
    amplitudes = np.zeros(0)

    def __init__(self, mean, cov):
        self._mean, self._cov = np.asarray(mean), np.asarray(cov)

    def mean(self, theta):
        return self._mean.copy()

    def cov(self, theta):
        return self._cov.copy()


MEAN = np.array([0.3, 0.8])
COV = np.array([[1.0, 0.6], [0.6, 0.8]])


def on_grid(likelihood, center, scale, points):
    """f and log p(y, f) at a grid of ± 9 standard deviations, less its largest value."""
    x = np.linspace(-9.0, 9.0, points)
    z = np.stack(np.meshgrid(x, x, indexing="ij"), axis=-1).reshape(-1, 2)
    f = center + z @ np.linalg.cholesky(scale).T
    nu = np.linalg.solve(np.linalg.cholesky(COV), (f - MEAN).T)
    ell = likelihood.elements(f)
    return f, ell, ell.sum(axis=1) - 0.5 * (nu**2).sum(axis=0)


def inverse_densities(density, left_out=left_out):
    """E[1 / p(y_k | y_-k, r)] over the posterior of f by quadrature, and p(y_-k) / p(y)."""
    likelihood = Likelihood(density)
    prior = DensePrior.at(Constant(MEAN, COV), np.zeros(0))
    q = laplace(likelihood, prior)
    # The prior is wide enough for every p(f | y_-k): the trapezoidal rule is exact on a fine grid.
    _, ell, joint = on_grid(likelihood, MEAN, COV, 601)
    exact = np.array([logsumexp(joint - ell[:, k]) - logsumexp(joint) for k in range(Y.size)])
    # Few points for what is slow.
    f, _, joint = on_grid(likelihood, q.center, q.posterior.block(np.arange(2)), 46)
    joint -= logsumexp(joint)
    keep = np.flatnonzero(joint > -18.0)
    which, uniform = np.arange(Y.size), np.full(Y.size, 0.5)
    found = np.array(
        [left_out(likelihood.elements, which, SITE, q, f[i], uniform).log_density for i in keep]
    )
    return logsumexp(joint[keep][:, None] - found, axis=0), exact, found


@pytest.mark.parametrize("density", [poisson, binary, student_t, normal])
def test_weights_take_the_posterior_to_that_without_an_observation(density):
    """E[1 / p(y_k | y_-k, r)] = p(y_-k) / p(y) at a fixed theta: exact, whatever q is."""
    mean, exact, found = inverse_densities(density)
    print(density.__name__, mean, exact, found.std(axis=0))
    np.testing.assert_allclose(mean, exact, atol=2e-4)
