"""What a prior of independent parts has beside the verbs of all priors."""

import numpy as np
import pymc as pm
import pytest

from close import close
from models import QUICK
from test_priors import BLOCKS, INDEX, PARTS, THETA
from toys import Counts

import pymc_lgm as lgm

from pymc_lgm.gaussian import BlocksPrior
from pymc_lgm.linalg import tally


@pytest.fixture
def ours():
    return BlocksPrior.at(BLOCKS, THETA)


def test_a_part_that_theta_does_not_enter_keeps_its_factor(ours):
    assert ours.is_proper
    before = tally.cubic_ops
    moved = ours.moved(THETA + np.array([0.5, 0.0, 0.0]))
    assert moved.is_proper
    assert moved.has_covariance_of(ours)
    assert tally.cubic_ops == before


def test_parts_of_one_covariance_share_its_factor(rng):
    parts = list(zip(INDEX, [Counts(), Counts()], strict=True))
    ours, apart = BlocksPrior.at(parts, THETA, [0, 0]), BlocksPrior.at(parts, THETA)
    before = tally.cubic_ops
    assert ours.is_proper
    assert ours.moved(THETA).is_proper
    assert tally.cubic_ops == before + 1
    there = THETA + np.array([0.1, 0.2, -0.3])
    M, v = rng.standard_normal((6, 6)), rng.standard_normal(6)
    for one, other in ((ours, apart), (ours.moved(there), apart.moved(there))):
        close(one.multiply(np.eye(6)), other.multiply(np.eye(6)))
        close(one.mean, other.mean)
        close(one.vjp(M + M.T, v), other.vjp(M + M.T, v))


def outputs(*, whitened, beside=False):
    """Three processes with one covariance, as PyMC writes them, read as columns."""
    x = np.linspace(0.0, 3.0, 5)[:, None]
    with pm.Model() as model:
        cov = pm.gp.cov.Matern32(1, ls=pm.LogNormal("ls"))
        gp = pm.gp.Latent(mean_func=pm.gp.mean.Constant(0.3), cov_func=cov)
        f = gp.prior("f", x, n_outputs=3, reparameterize=whitened)
        level = pm.Normal("level", shape=3)[:, None] if beside else 0.0
        pm.Categorical("y", logit_p=(f + level).T, observed=[0, 2, 1, 1, 0])
    return lgm.read(model, compile_kwargs=QUICK)


@pytest.mark.slow
@pytest.mark.parametrize("whitened", [True, False])
def test_outputs_of_a_process_have_one_covariance(whitened, rng):
    ours = outputs(whitened=whitened)
    prior = ours.prior(np.zeros(1))
    assert isinstance(prior, BlocksPrior)
    before = tally.cubic_ops
    f = prior.mean + prior.multiply(rng.standard_normal(15))
    assert tally.cubic_ops == before + 1
    values = ours.latents_of(rng, prior, f)
    close(ours.f_of(prior.theta, values), f)
    assert ours.sets.tolist() == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11], [12, 13, 14]]


@pytest.mark.slow
def test_outputs_with_levels_are_drawn_back_whitened(rng):
    ours = outputs(whitened=True, beside=True)
    prior = ours.prior(np.zeros(ours.p))
    f = prior.mean + prior.multiply(rng.standard_normal(15))
    close(ours.f_of(prior.theta, ours.latents_of(rng, prior, f)), f)


def test_a_part_without_a_number_leaves_nothing(ours):
    scaled = [(INDEX[0], PARTS[0]), (INDEX[1], Counts(scaled=True))]
    with np.errstate(over="ignore", invalid="ignore"):
        assert BlocksPrior.at(scaled, np.array([0.0, 0.0, 400.0])) is None
    assert ours.condition(np.full(6, 1e30)) is None
