"""Processes whose covariances differ in constants alone are compiled once, and each is its own."""

from collections.abc import Callable

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

import pymc_lgm as lgm

from pymc_lgm.model.parts import in_common, simplified

pytestmark = pytest.mark.usefixtures("interpreted")

RNG = np.random.default_rng(0)
X, Z = RNG.uniform(0, 1, (6, 2)), RNG.uniform(0, 1, (6, 2))


def two_processes(kinds: list[type], rows: list[np.ndarray]) -> lgm.model.LatentGaussianModel:
    with pm.Model() as model:
        scale = pm.HalfNormal("scale", 1, shape=2)
        length = pm.InverseGamma("length", 3, 1, shape=2)
        f = []
        for k, (kind, x) in enumerate(zip(kinds, rows, strict=True)):
            cov = scale[k] ** 2 * kind(2, ls=length[k]) + pm.gp.cov.WhiteNoise(0.1 * (k + 1))
            gp = pm.gp.Latent(cov_func=cov)
            f.append(gp.prior(f"f{k}", x, reparameterize=False))
        pm.Normal("y", f[0], pm.math.exp(f[1]), observed=np.zeros(6))
    return lgm.read(model)


@pytest.mark.fast("kinds2-rows2-False")
@pytest.mark.parametrize(
    ("kinds", "rows", "shared"),
    [
        ([pm.gp.cov.Matern52, pm.gp.cov.Matern52], [X, X], True),
        ([pm.gp.cov.Matern52, pm.gp.cov.Matern52], [X, Z], True),
        ([pm.gp.cov.Matern52, pm.gp.cov.ExpQuad], [X, X], False),
    ],
)
def test_each_part_has_its_own_covariance(
    kinds: list[type], rows: list[np.ndarray], shared: bool
) -> None:
    model = two_processes(kinds, rows)
    theta, parts = RNG.standard_normal(4), model.form.parts(model)
    (_, first), (_, second) = parts
    assert (first._cov is second._cov) == shared
    M, v = RNG.standard_normal((6, 6)), RNG.standard_normal(4)
    K, scale, length = model.graphs.cov(theta), np.exp(theta[:2]), np.exp(theta[2:])
    for k, (index, part) in enumerate(parts):
        cov = scale[k] ** 2 * kinds[k](2, ls=length[k])
        expected = cov(rows[k]).eval() + (0.1 * (k + 1)) ** 2 * np.eye(6) + 1e-6 * np.eye(6)
        np.testing.assert_allclose(part.cov(theta), expected, rtol=1e-12)
        np.testing.assert_allclose(K[np.ix_(index, index)], expected, rtol=1e-12)
        step = 1e-5
        ahead, behind = part.cov(theta + step * v), part.cov(theta - step * v)
        slope = (ahead - behind) / (2 * step)
        np.testing.assert_allclose(part.cov_vjp(theta, M) @ v, (M * slope).sum(), atol=1e-8)


def test_in_common_refuses_what_differs_in_more_than_constants() -> None:
    theta, other = pt.vector("theta"), pytensor.shared(np.zeros(3))
    graph, inputs, constants = in_common([theta[0] * np.arange(2.0), theta[1] * np.ones(2)])
    assert [len(inputs), len(constants)] == [2, 2]
    value = pytensor.function([theta, *inputs], graph)
    np.testing.assert_array_equal(value(np.array([2.0, 3.0]), *constants[1]), [3.0, 3.0])
    assert in_common([theta[0] * np.ones(2), theta[0] * np.ones(3)]) is None
    assert in_common([theta[0] + 1.0, theta[0] * 1.0]) is None
    assert in_common([theta * 1.0, other * 1.0]) is None
    assert in_common([theta[0], 2.0 * theta[0]]) is None


def test_what_one_input_makes_is_differentiated_without_a_matrix_product() -> None:
    length = pt.scalar("length")
    cov = pm.gp.cov.Matern52(1, ls=length)(X[:, :1])
    nodes = [v.owner.op for v in pytensor.graph.traversal.ancestors([simplified(cov)]) if v.owner]
    assert not any(isinstance(op, pt.math.Dot) for op in nodes)


@pytest.mark.mutant
def test_constants_of_another_part_are_noticed(dies: Callable[..., None]) -> None:
    theta = pt.vector("theta")
    graph, inputs, constants = in_common([theta[0] * np.ones(2), theta[1] * np.ones(2)])
    value = pytensor.function([theta, *inputs], graph)(np.array([2.0, 3.0]), *constants[0])
    dies("parts: constants of another part", np.abs(value - 3.0).max(), above=0.01)
