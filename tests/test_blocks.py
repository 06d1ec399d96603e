"""A prior of independent parts, against the dense prior of the same law."""

from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytest

from models import QUICK
from test_priors import close, differences
from toys import Counts, Labels

import pymc_lgm as lgm

from pymc_lgm.gaussian import BlocksPrior, DensePrior
from pymc_lgm.gaussian.sites import SiteBlocks
from pymc_lgm.linalg import tally

THETA = np.array([1.1, 0.3, -0.5])
INDEX = [np.array([0, 3, 5]), np.array([4, 1, 2])]
W = np.array([2.0, 0.3, 0.0, 5.0, 1.5, 0.2])
SETS = SiteBlocks(np.array([[0, 4], [3, 1], [5, 2]]), np.array([[[2.0, 0.9], [0.9, 1.0]]] * 3))
"""Each joins an f_i of one part with one of the other."""


def scattered(verb):
    """A function of theta (and more) of the parts, joined."""

    def joined(*args):
        first, second = (verb(part, i, *args) for part, i in zip(PARTS, INDEX, strict=True))
        out = np.zeros((6, *first.shape[1:]))
        out[INDEX[0]], out[INDEX[1]] = first, second
        return out

    return joined


PARTS = [Counts(), Labels()]
BLOCKS = list(zip(INDEX, PARTS, strict=True))


def cov(theta):
    K = np.zeros((6, 6))
    for i, part in zip(INDEX, PARTS, strict=True):
        K[np.ix_(i, i)] = part.cov(theta)
    return K


def cov_vjp(theta, M):
    return sum(p.cov_vjp(theta, M[np.ix_(i, i)]) for i, p in zip(INDEX, PARTS, strict=True))


DENSE = SimpleNamespace(
    enters_cov=PARTS[0].enters_cov | PARTS[1].enters_cov,
    amplitudes=np.zeros(3),
    mean=scattered(lambda part, i, theta: part.mean(theta)),
    mean_vjp=lambda theta, v: sum(
        p.mean_vjp(theta, v[i]) for i, p in zip(INDEX, PARTS, strict=True)
    ),
    cov=cov,
    cov_vjp=cov_vjp,
)


@pytest.fixture
def pair():
    return BlocksPrior.at(BLOCKS, THETA), DensePrior.at(DENSE, THETA)


def test_the_verbs_of_a_prior(pair, rng):
    ours, dense = pair
    x, columns = rng.standard_normal(6), rng.standard_normal((6, 4))
    L = ours.multiply(np.eye(6))
    close(L @ L.T, cov(THETA))
    assert (ours.n, ours.rank, ours.is_proper) == (6, 6, True)
    for name in ("mean", "variances", "precisions", "theta"):
        close(getattr(ours, name), getattr(dense, name))
    close(ours.log_density(x), dense.log_density(x))
    for v in (x, columns):
        close(ours.solve(L @ v), v)
        close(ours.multiply_transposed(v), L.T @ v)
        close(ours.inverse_times(v), dense.inverse_times(v))
        close(ours.covariance_times(v), dense.covariance_times(v))


@pytest.mark.parametrize("precision", [W, SETS], ids=["one by one", "joined"])
def test_the_verbs_of_a_posterior(pair, rng, precision):
    ours, dense = (prior.condition(precision) for prior in pair)
    x, columns = rng.standard_normal(6), rng.standard_normal((6, 4))
    for name in ("log_determinant", "one_minus_leverage", "variances", "site_covariances"):
        close(getattr(ours, name), getattr(dense, name))
    for name in ("quad_form", "inv_quad_form", "log_density_of_data"):
        close(getattr(ours, name)(x), getattr(dense, name)(x))
    for name in (
        "alpha",
        "covariance_times",
        "conditional_mean",
        "weighted_residual",
        "precision_times",
    ):
        close(getattr(ours, name)(x), getattr(dense, name)(x))
    close(ours.alpha(columns), dense.alpha(columns))
    close(ours.in_noise_units(x, dense.prior.mean), dense.in_noise_units(x, dense.prior.mean))
    some = np.array([4, 0, 3, 2])
    close(ours.block(some), dense.block(some))
    A = ours.multiply(np.eye(6))
    close(A @ A.T, dense.covariance_times(np.eye(6)))
    close(ours.solve(A @ x), x)
    xi = np.concatenate([np.eye(6, 12), np.eye(6, 12, 6)]).reshape(2, 6, 12)
    D = ours.deviations(xi)
    close(D @ D.T, dense.covariance_times(np.eye(6)))
    close(ours.deviations(ours.coordinates(rng, x)[:, :, None])[:, 0], x)


def test_derivatives(pair, rng):
    ours, dense = pair
    f, nu, g, a, v = rng.standard_normal((5, 6))
    close(ours.log_density_gradient(f), dense.log_density_gradient(f))

    def at(theta):
        there = BlocksPrior.at(BLOCKS, theta)
        return there.mean + there.multiply(nu)

    J = differences(at, THETA)
    close(ours.whitened_gradient(nu, g), g @ J, 1e-5)
    for precision in (W, SETS):
        q, r = ours.condition(precision).differentiable(), dense.condition(precision)
        close(q.evidence_gradient(a), r.evidence_gradient(a))
    close(q.evidence_gradient(a, v), r.evidence_gradient(a, v))


def test_a_part_that_theta_does_not_enter_keeps_its_factor(pair):
    ours, _ = pair
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


def test_a_part_without_a_number_leaves_nothing(pair):
    scaled = [(INDEX[0], PARTS[0]), (INDEX[1], Counts(scaled=True))]
    with np.errstate(over="ignore", invalid="ignore"):
        assert BlocksPrior.at(scaled, np.array([0.0, 0.0, 400.0])) is None
    assert pair[0].condition(np.full(6, 1e30)) is None
