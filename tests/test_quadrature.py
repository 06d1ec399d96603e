"""Accuracy: posterior moments of samplers, tuned as users tune them, against quadrature."""

import arviz as az
import numpy as np
import pytest

from samplers import CASES, elements_of, label
from toys import Chain, Pair

from pymc_lgm import samplers
from pymc_lgm.steps import LatentHMC
from pymc_lgm.testing import quadrature

F_GRID = (-6.5, 6.5, 81)
THETA_GRID = ((-2.2, 3.8, 27), (-2.6, 2.2, 27))


def solve(coarser=1.0):
    """The posterior moments of (theta, f), to many digits."""
    grids = [
        np.linspace(low, high, int(points / coarser)) for low, high, points in (*THETA_GRID, F_GRID)
    ]
    return quadrature(Pair(), grids[:-1], grids[-1])


@pytest.fixture(scope="module")
def exact():
    return solve()


@pytest.mark.slow
def test_quadrature_has_converged(exact):
    coarse = solve(coarser=1.3)
    np.testing.assert_allclose(coarse.mean, exact.mean, atol=2e-4)
    np.testing.assert_allclose(coarse.cov, exact.cov, atol=2e-4)


def z_scores(x, exact):
    """Deviations of the means and of the covariances in Monte Carlo standard errors."""
    centered = x - exact.mean
    i, j = np.triu_indices(x.shape[1])
    series = np.column_stack([centered, centered[:, i] * centered[:, j]])
    target = np.concatenate([np.zeros(x.shape[1]), exact.cov[i, j]])
    ess = az.ess(az.from_dict({"posterior": {"x": series[None]}}), method="mean")["x"].to_numpy()
    return (series.mean(0) - target) / (series.std(0) / np.sqrt(ess))


def worst(elements, exact, draws=2000, tune=300):
    """The largest z-score of one chain."""
    chain = Chain.start(elements, Pair(), np.random.default_rng(11), tune)
    return np.abs(z_scores(chain.draws(draws), exact)).max()


IN_SLOW = ("ASIS", "KnorrHeldRue", "PseudoMarginal", "SurrogateSlice")
"""Each way to move theta and f; the others before a release, and joint tests have all."""
SWEEPS = [
    pytest.param(case, id=label(case), marks=[pytest.mark.whole] * (label(case) not in IN_SLOW))
    for case in CASES
    if case[0].moves_theta
]


@pytest.mark.slow
def test_a_move_of_f_beside_a_walk_agrees_with_quadrature(exact):
    walk = samplers.Theta("whitened", samplers.Metropolis())
    assert worst((*elements_of((LatentHMC, {}), "counts"), walk), exact) < 5


@pytest.mark.slow
@pytest.mark.parametrize("case", SWEEPS)
def test_every_sampler_agrees_with_quadrature(case, exact):
    assert worst(elements_of(case, "counts"), exact, draws=3000, tune=400) < 5
