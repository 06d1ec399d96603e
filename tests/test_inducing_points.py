"""Inducing points moved by a Gaussian variational fit, before sampling."""

import math

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from scipy.stats import multivariate_normal

import pymc_lgm as lgm

pytestmark = pytest.mark.usefixtures("interpreted")

NOISE = 0.3
X = np.linspace(0.0, 3.0, 25)[:, None] ** 1.5
SIGNAL = np.sin(3.0 * X[:, 0])
START = np.linspace(0.0, 5.0, 4)[:, None]

OBSERVED = {
    "normal": SIGNAL + NOISE * np.random.default_rng(0).standard_normal(25),
    "binary": (SIGNAL > 0.0).astype(int),
    "counts": np.random.default_rng(1).poisson(np.exp(SIGNAL)),
}


def built(kind, with_theta=True):
    def build(Z):
        with pm.Model() as model:
            eta = pm.LogNormal("eta", 0.0, 0.5) if with_theta else 1.0
            gp = lgm.gp.SparseLatent(cov_func=eta**2 * pm.gp.cov.Matern32(1, ls=1.0))
            f, y = gp.prior("f", X, Xu=Z), OBSERVED[kind]
            if kind == "normal":
                lgm.gp.Expected("y", lambda f: pm.Normal.dist(f, NOISE), f, observed=y)
            elif kind == "binary":
                lgm.Probit("y", f=f, observed=y)
            else:
                lgm.LogGaussianCox("y", f=f, observed=y)
        return model

    return build


@pytest.mark.slow
@pytest.mark.parametrize("kind", OBSERVED)
def test_the_bound_rises_where_points_move(kind):
    placed = lgm.gp.place_inducing_points(built(kind), START, max_iterations=60)
    assert placed.points.shape == START.shape
    assert np.abs(placed.points - START).max() > 0.01
    assert placed.bound > placed.bound_at_start + 0.01
    model = built(kind)(placed.points)
    point = {"eta_log__": 0.0, "f_u_rotated_": np.zeros(4)}
    assert math.isfinite(model.compile_logp()(point))


def matern(r):
    return (1.0 + math.sqrt(3.0) * r) * np.exp(-math.sqrt(3.0) * r)


def test_of_normal_data_the_bound_is_that_of_the_best_q_and_below_the_evidence():
    """At fixed Z the best q is known, and so is the bound (Titsias 2009, eq. 9)."""
    placed = lgm.gp.place_inducing_points(built("normal", with_theta=False), START)
    y, K = OBSERVED["normal"], matern(abs(X - X.T))
    evidence = multivariate_normal(np.zeros(25), K + NOISE**2 * np.eye(25)).logpdf(y)

    def collapsed(Z):
        K_fu = matern(abs(X - Z.T))
        Q = K_fu @ np.linalg.solve(matern(abs(Z - Z.T)) + 1e-6 * np.eye(4), K_fu.T)
        data = multivariate_normal(np.zeros(25), Q + NOISE**2 * np.eye(25)).logpdf(y)
        return data - 0.5 * np.trace(K - Q) / NOISE**2

    assert placed.bound_at_start == pytest.approx(collapsed(START), abs=0.02)
    assert placed.bound == pytest.approx(collapsed(placed.points), abs=0.02)
    assert placed.bound_at_start < placed.bound < evidence


@pytest.mark.slow
def test_what_cannot_be_placed_is_refused():
    with pytest.raises(ValueError, match="one row of finite numbers"):
        lgm.gp.place_inducing_points(built("normal"), START[:, 0])

    def without(Z):
        with pm.Model() as model:
            pm.Normal("x")
        return model

    with pytest.raises(ValueError, match=r"no lgm.gp.SparseLatent"):
        lgm.gp.place_inducing_points(without, START)

    def nowhere(Z):
        model = built("normal")(Z)
        with model:
            pm.Potential("outside", pt.constant(-np.inf))
        return model

    with pytest.raises(ValueError, match="not finite where the fit begins"):
        lgm.gp.place_inducing_points(nowhere, START)


def test_a_model_that_is_built_afterwards_is_not_one_of_a_fit():
    model = built("binary")(START)
    assert {v.name for v in model.value_vars} == {"eta_log__", "f_u_rotated_"}
    assert math.isfinite(model.compile_logp()(model.initial_point()))
