"""Observations of one of several classes: their sites, and f in parts conditioned on them."""

import numpy as np
import pytest

from close import close
from toys import Counts, Labels

from pymc_lgm.approximations.site_coordinates import InClasses
from pymc_lgm.approximations.sites import Sites
from pymc_lgm.gaussian import BlocksPrior
from pymc_lgm.gaussian.blocks import JoinedPosterior
from pymc_lgm.gaussian.dense import DensePosterior, joined_by
from pymc_lgm.gaussian.sites import ClassBlocks, SiteBlocks
from pymc_lgm.linalg import tally

THETA = np.array([1.1, 0.3, -0.5])
INDEX = [np.array([0, 3, 5]), np.array([4, 1, 8]), np.array([7, 2, 6])]
BLOCKS = list(zip(INDEX, [Counts(), Labels(), Counts()], strict=True))
SETS = np.array([[0, 4, 7], [2, 3, 8], [1, 6, 5]])
"""Each joins one f_i of every part, the parts in three different orders."""


@pytest.fixture
def prior():
    return BlocksPrior.at(BLOCKS, THETA)


def softmax(rng, *shape, spread=1.0):
    """diag(π) − π πᵀ of random probabilities."""
    eta = spread * rng.standard_normal(shape)
    pi = np.exp(eta - eta.max(axis=-1, keepdims=True))
    pi /= pi.sum(axis=-1, keepdims=True)
    return pi[..., None] * np.eye(shape[-1]) - pi[..., :, None] * pi[..., None, :]


def some_W(rng):
    return ClassBlocks.nearest(SETS, 5.0 * softmax(rng, 3, 3)).at_least(1e-3, np.ones(9))


@pytest.mark.parametrize("s", [3, 4, 10])
@pytest.mark.parametrize("spread", [1.0, 5.0])
def test_the_curvature_of_a_softmax_is_of_this_form(rng, s, spread):
    curvature = softmax(rng, 20, s, spread=spread)
    sets = np.arange(20 * s).reshape(20, s)
    W = ClassBlocks.nearest(sets, curvature)
    np.testing.assert_allclose(W.values, curvature, rtol=0, atol=1e-10)
    D, _, gap = W.at_least(1e-4, np.full(20 * s, 2.0)).minus_rank_one
    close(D, W.D + 1e-4 / 4.0)
    assert (gap > 0.0).all()


def test_an_expected_curvature_keeps_its_diagonal_and_what_it_says_nothing_of(rng):
    curvature = softmax(rng, 20, 400, 5, spread=2.0).mean(axis=1)
    W = ClassBlocks.nearest(np.arange(100).reshape(20, 5), curvature)
    close(np.einsum("gcc->gc", W.values), np.einsum("gcc->gc", curvature))
    np.testing.assert_allclose(W.minus_rank_one[2], 0.0, atol=1e-12)
    assert np.abs(W.values - curvature).max() < 0.2 * curvature.max()


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0, -1.0, 1e-300])
def test_a_curvature_that_is_none(rng, value):
    curvature = softmax(rng, 3, 3)
    curvature[1] *= value
    W = ClassBlocks.nearest(SETS, curvature)
    assert np.isfinite(W.values).all() == np.isfinite(value)
    if np.isfinite(value):
        raised = W.at_least(1e-3, np.ones(9))
        assert np.linalg.eigvalsh(raised.values).min() > 0.9e-3


def test_what_is_between_two_is_positive(rng):
    one, other = some_W(rng), some_W(rng)
    half = one.lerp(other, 0.5)
    assert (half.minus_rank_one[2] > 0.0).all()
    for name in ("values", "u"):
        close(getattr(one.lerp(other, 1.0), name), getattr(other, name))


def test_parts_are_conditioned_in_one_factorization_each_and_one_more(prior, rng):
    W = some_W(rng)
    assert prior.is_proper
    before = tally.cubic_ops
    posterior = prior.condition(W)
    assert isinstance(posterior, JoinedPosterior)
    assert tally.cubic_ops == before + 3 + 3 + 1  # B_c, B_c⁻¹, M
    two_of_one_part = SiteBlocks(np.array([[0, 3, 1], [2, 5, 8], [4, 6, 7]]), W.values)
    assert type(prior.condition(two_of_one_part)) is DensePosterior


def test_the_verbs_are_those_of_a_dense_posterior(prior, rng):
    W = some_W(rng)
    ours, dense = prior.condition(W).differentiable(), joined_by(W, prior)
    x, v = rng.standard_normal((2, 9))
    columns = rng.standard_normal((9, 4))
    for name in ("log_determinant", "one_minus_leverage", "variances", "site_covariances"):
        close(getattr(ours, name), getattr(dense, name))
    for name in ("quad_form", "inv_quad_form", "log_density_of_data", "evidence_gradient"):
        close(getattr(ours, name)(x), getattr(dense, name)(x))
    close(ours.evidence_gradient(x, v), dense.evidence_gradient(x, v))
    for name in (
        "alpha",
        "covariance_times",
        "conditional_mean",
        "weighted_residual",
        "multiply",
        "solve",
    ):
        close(getattr(ours, name)(x), getattr(dense, name)(x))
    for name in ("alpha", "covariance_times", "conditional_mean"):
        close(getattr(ours, name)(columns), getattr(dense, name)(columns))
    xi = rng.standard_normal((2, 9, 5))
    close(ours.deviations(xi), dense.deviations(xi))
    close(ours.block(np.array([4, 0])), dense.block(np.array([4, 0])))


def test_coordinates_are_a_bijection(rng):
    W, coordinates = some_W(rng), InClasses(SETS)
    sites = Sites(rng.standard_normal(9), W)
    s = coordinates.of(sites, None)
    back = coordinates.sites(s, trusted=True)
    close(back.nu, sites.nu)
    close(back.precision.values, W.values)
    anywhere = coordinates.sites(3.0 * rng.standard_normal(s.size), trusted=False)
    assert np.linalg.eigvalsh(anywhere.precision.values).min() > 0.0


@pytest.mark.mutant
@pytest.mark.parametrize("wrong", ["gap", "v", "order"])
def test_a_wrong_joint_posterior_is_noticed(prior, rng, wrong, monkeypatch, dies):
    W = some_W(rng)
    right = joined_by(W, prior).site_covariances
    D, v, gap = W.minus_rank_one
    if wrong == "gap":  # M with what it is without W's own
        gap = 2.0 * gap
    elif wrong == "v":
        v = np.roll(v, 1, axis=1)
    else:
        D, v = D[:, ::-1], v[:, ::-1]
    monkeypatch.setattr(ClassBlocks, "minus_rank_one", (D, v, gap))
    mutated = prior.condition(W).site_covariances
    dies(f"classes: {wrong}", np.abs(mutated - right).max(), above=1e-6)
