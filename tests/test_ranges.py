"""The range of A(theta), as the graph has it: it holds at every theta, and is no larger."""

from __future__ import annotations

from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from models import QUICK

import pymc_lgm as lgm

from pymc_lgm.model.compiling import called_once
from pymc_lgm.model.ranges import range_of

pytestmark = pytest.mark.usefixtures("interpreted")

x, theta = pt.vector("x", shape=(6,)), pt.vector("theta", shape=(4,))
VALUES = {x: np.zeros(6), theta: np.zeros(4)}
GROUP, TIME = np.repeat(np.arange(3), 3), np.tile(np.arange(3.0), 3)
X = np.random.default_rng(0).standard_normal((9, 3))
SCALE = pt.exp(theta[0])
L = pt.stack([pt.stack([SCALE, 0.0 * SCALE]), pt.stack([theta[1], pt.exp(theta[2])])])

RANKS: dict[str, tuple[Any, int]] = {
    "a scale": (SCALE * x[:3][GROUP], 3),
    "a scale of each group": (pt.exp(theta[:3])[GROUP] * x[:3][GROUP], 3),
    "slopes of a covariate": (((TIME * SCALE) * x[:3][GROUP]) + theta[1] * TIME, 3),
    "a quotient": (x[:3][GROUP] * (TIME / SCALE), 3),
    "a linear model": (pt.dot(X, SCALE * x[:3]), 3),
    "a scaled matrix": (pt.dot(X * SCALE, x[:3]), 3),
    "a matrix with scaled columns": (pt.dot(X * pt.exp(theta[None, :3]), x[:3]), 3),
    "correlated effects": (pt.dot(X[:, :2], pt.dot(L, x[:2])), 2),
    "correlated effects of groups": ((pt.dot(x.reshape((3, 2)), L.T)[GROUP] * X[:, :2]).sum(1), 6),
    "read twice": (pt.concatenate([SCALE * x[:3], 2.0 * SCALE * x[:3] + theta[0]]), 3),
    "a level and effects": (x[5] + SCALE * x[:3][GROUP], 3),
    "two scales": (SCALE * x[0] * X[:, 0] + pt.exp(theta[1]) * x[0] * X[:, 1], 2),
    "a decay": (pt.exp(-SCALE * TIME) * x[0], 3),
    "a hinge": (pt.maximum(TIME - theta[0], 0.0) * x[0], 3),
    "a switch": (pt.switch(theta[0] < TIME, x[0], x[1]), 3),
    "an index": (x[pt.cast(pt.floor(SCALE), "int64") + np.arange(2)], 2),
    "a sum along an axis": ((SCALE * x.reshape((2, 3))).sum(axis=0), 3),
}


@pytest.mark.parametrize("name", RANKS)
def test_the_range_is_found(name: str) -> None:
    eta, rank = RANKS[name]
    R = range_of(eta, x, np.arange(6), [theta], VALUES)
    assert np.linalg.matrix_rank(R) == rank
    value, rng = called_once([x, theta], eta), np.random.default_rng(0)
    onto = R @ np.linalg.pinv(R)
    for _ in range(10):
        at = 2.0 * rng.standard_normal(4)
        if name == "an index":
            at[0] = rng.uniform(0.0, 1.5)
        A = np.stack([value(e, at) - value(np.zeros(6), at) for e in np.eye(6)], axis=1)
        np.testing.assert_allclose(onto @ A, A, atol=1e-9 * (1.0 + np.abs(A).max()))


def test_a_switch_that_theta_moves_has_no_range_that_stays() -> None:
    """Where the change starts, the effects are those before it and after it: not elsewhere."""
    year = 10.0 * np.arange(8)
    with pm.Model():
        change = pm.Normal("change", 35, 15)
        a, b = pm.Normal("a"), pm.Normal("b")
        rate = pm.math.exp(pt.switch(year > change, a, b))
        pm.Poisson("y", rate, observed=np.arange(8))
        with pytest.raises(ValueError, match="depends on theta"):
            lgm.LatentGaussianModel.from_pymc(latent=["a", "b"], compile_kwargs=QUICK)
