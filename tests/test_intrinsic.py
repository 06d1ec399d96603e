"""Intrinsic areas: `pymc.ICAR` as the normal vector that its density is, and its scale."""

import math
import tracemalloc

from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytest

from close import close
from scipy.sparse import csc_array, csr_array, issparse
from test_areas import NEIGHBORS, Y

import pymc_lgm as lgm

from pymc_lgm import spatial
from pymc_lgm.gaussian.factors import UpdatedFactor
from pymc_lgm.gaussian.structure import IntrinsicMap
from pymc_lgm.model.forms.sum import SumPredictor

pytestmark = pytest.mark.usefixtures("interpreted")

W = spatial.adjacency(NEIGHBORS)
RIVER = spatial.adjacency([(0, 1), (1, 2), (3, 4)], n=6)
"""Three areas, two more beyond a river, and an island."""


def besag_york_mollie():
    """As it is written by users of PyMC."""
    with pm.Model() as model:
        b0, sigma = pm.Normal("b0", 0.2, 0.5), pm.HalfNormal("sigma", 1.0)
        rho = pm.Beta("rho", 2.0, 2.0)
        theta = pm.Normal("theta", 0.0, 1.0, shape=6)
        phi = pm.ICAR("phi", W=W)
        scaled = pm.math.sqrt(rho / spatial.scaling_factor(W)) * phi
        eta = b0 + sigma * (pm.math.sqrt(1.0 - rho) * theta + scaled)
        pm.Poisson("y", 1.5 * pm.math.exp(eta), observed=Y)
    return model


def test_a_map_of_one_area_is_a_normal_number():
    prior = IntrinsicMap(csc_array((1, 1), dtype=float), 0.3)
    np.testing.assert_allclose(prior.factor.inverse_diagonal, 0.3**2, rtol=1e-12)


def test_its_prior_is_the_models():
    with pm.Model() as model:
        scale = pm.HalfNormal("scale")
        phi = pm.ICAR("phi", W=W, sigma=0.7)
        pm.Poisson("y", pm.math.exp(scale * phi), observed=Y)
    assert max(lgm.read(model).check(draws=4).values()) < 1e-6


def test_the_sum_of_structured_and_unstructured_effects_is_one_vector(monkeypatch):
    """If it is not read as a sum."""
    monkeypatch.setattr(SumPredictor, "of", lambda setting: None)
    ours = lgm.read(besag_york_mollie())
    assert ours.theta_names == ("sigma_log__", "rho_logodds__")
    sigma, rho = 0.8, 1.0 / (1.0 + math.exp(-0.4))
    Q = np.diag(W.sum(axis=1)) - W + 1.0 / (6 * 0.001) ** 2
    structured = rho / spatial.scaling_factor(W) * np.linalg.inv(Q)
    right = 0.25 + sigma**2 * ((1.0 - rho) * np.eye(6) + structured)
    close(ours.cov(np.array([math.log(sigma), 0.4])), right)


def test_a_random_scale_is_refused():
    """PyMC's density of it is not normalized in sigma: its own logp shows it."""
    with pm.Model() as model:
        sigma = pm.HalfNormal("sigma")
        phi = pm.ICAR("phi", W=W, sigma=sigma)
        pm.Poisson("y", pm.math.exp(phi), observed=Y)
    with pytest.raises(ValueError, match=r"leaves out -\(n - 1\) log\(sigma\)") as error:
        lgm.read(model)
    # What to write instead is the model of `besag_york_mollie`.
    assert "Write pm.ICAR('phi', W=W), and multiply it by the scale" in str(error.value)
    assert "sigma * (pm.math.sqrt(1 - rho) * theta + pm.math.sqrt(rho / s) * phi)" in str(
        error.value
    )
    assert "s = lgm.spatial.scaling_factor(W)" in str(error.value)
    at = np.array([0.3, -0.1, 0.2, 0.0, -0.4, 0.0])
    one, two = (pm.logp(pm.ICAR.dist(W=W, sigma=s), at).eval() for s in (1.0, 2.0))
    Q = np.diag(W.sum(axis=1)) - W
    close(float(two - one), 0.5 * (1.0 - 0.25) * at @ Q @ at)  # if this fails, PyMC has mended it


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [(1, 0, "must be a symmetric matrix"), (-1, -1, "only 1s and 0s"), (2, 2, "only 1s and 0s")],
)
def test_weights_that_are_none_are_refused_by_pymc(one, other, message):
    """Were they not, `as_intrinsic` would have to."""
    weights = np.array(W)
    weights[0, 3], weights[3, 0] = one, other
    with pm.Model(), pytest.raises(ValueError, match=message):
        pm.ICAR("phi", W=weights)


def test_a_map_in_parts_is_refused():
    with pm.Model() as model:
        phi = pm.ICAR("phi", W=RIVER)
        pm.Poisson("y", pm.math.exp(phi), observed=Y)
    with pytest.raises(ValueError, match=r"3 connected parts, of 3, 2, 1 areas"):
        lgm.read(model)


# Maps


def by_pinv(W):
    Q = np.diag(W.sum(axis=1)) - W
    return np.exp(np.mean(np.log(np.diag(np.linalg.pinv(Q, rcond=1e-9, hermitian=True)))))


def test_the_scaling_factor_is_that_of_the_generalized_inverse():
    close(spatial.scaling_factor(W), by_pinv(W))
    assert spatial.scaling_factor(csr_array(W)) == spatial.scaling_factor(W)
    each = spatial.scaling_factor(RIVER)
    close(each, np.array([*[by_pinv(RIVER[:3, :3])] * 3, *[by_pinv(RIVER[3:5, 3:5])] * 2, 1.0]))


def lattice(rows, columns):
    """Pairs of neighbors."""
    at = np.arange(rows * columns).reshape(rows, columns)
    pairs = [(at[:, :-1], at[:, 1:]), (at[:-1], at[1:])]
    return np.vstack([np.column_stack([a.ravel(), b.ravel()]) for a, b in pairs])


def test_the_scaling_factor_of_more_areas_is_the_same_to_rounding():
    """Numbered by chance, with unequal weights, and as a path, whose variances are large."""
    rng = np.random.default_rng(3)
    map_ = spatial.adjacency(rng.permutation(240)[lattice(12, 20)])
    weights = np.triu(map_ * 10.0 ** rng.uniform(-3, 3, map_.shape))
    path = spatial.adjacency(lattice(1, 300))
    for W in (map_, weights + weights.T, path):
        close(spatial.scaling_factor(W), by_pinv(W), 1e-8)


@pytest.mark.slow  # loops of a heavy factor are compiled
def test_the_scaling_factor_makes_no_square_array():
    n = 10_000
    W = spatial.adjacency(lattice(100, 100), sparse=True)
    tracemalloc.start()
    try:
        s = spatial.scaling_factor(W)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * n * 1000
    close(s, 1.0321532180, 1e-9)  # of the dense inverse


@pytest.mark.mutant
@pytest.mark.parametrize("name", ["squared", "without its correction"])
def test_a_wrong_scaling_factor_is_noticed(name, monkeypatch, dies):
    """Scaled, the variances of the areas have a geometric mean of one."""
    if name == "squared":
        s = spatial.scaling_factor(W) ** 2
    else:
        of_base = property(lambda self: self.base.inverse_diagonal + 1.0)
        monkeypatch.setattr(UpdatedFactor, "inverse_diagonal", of_base)
        s = spatial.scaling_factor(W)
    Q = np.diag(W.sum(axis=1)) - W
    error = abs(np.mean(np.log(np.diag(np.linalg.pinv(Q)) / s)))
    dies(f"areas: scaling factor {name}", float(error), above=0.01)


def test_a_map_is_made_of_pairs():
    for pairs in (NEIGHBORS, [(j, i) for i, j in NEIGHBORS], [*NEIGHBORS, *NEIGHBORS]):
        np.testing.assert_array_equal(spatial.adjacency(pairs), W)
    islands = np.empty((0, 2), dtype=int)
    np.testing.assert_array_equal(spatial.adjacency(islands, n=3), np.zeros((3, 3)))
    for pairs, said in ((islands, "no pairs"), ([(0, -2), (0, 1)], "has area -2")):
        with pytest.raises(ValueError, match=said):
            spatial.adjacency(pairs)
    of_libpysal = SimpleNamespace(sparse=csr_array(0.5 * W))
    np.testing.assert_array_equal(spatial.adjacency(of_libpysal), W)
    for sparse in (spatial.adjacency(each, sparse=True) for each in (NEIGHBORS, of_libpysal)):
        assert issparse(sparse)
        assert sparse.nnz == 2 * len(NEIGHBORS)
        np.testing.assert_array_equal(sparse.toarray(), W)


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([(1, 6)], "count from 0"),
        ([(-1, 2)], "count from 0"),
        ([(2, 2)], "its own neighbor"),
        ([0, 1, 2], "pairs of areas"),
        ([(0.5, 1.0)], "pairs of areas"),
    ],
)
def test_pairs_that_cannot_be_are_refused(pairs, message):
    with pytest.raises(ValueError, match=message):
        spatial.adjacency(pairs, n=6)


def test_a_matrix_that_is_no_map_is_refused():
    for wrong, message in [
        (np.eye(3)[:2], "square"),
        (np.array([[0, 1], [0, 0]]), "symmetric"),
        (np.array([[0, -1], [-1, 0]]), "negative"),
    ]:
        with pytest.raises(ValueError, match=message):
            spatial.scaling_factor(wrong)
