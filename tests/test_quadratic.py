"""Observations whose log density is quadratic in f: given theta, q is the posterior of f."""

from __future__ import annotations

from typing import Any

import numpy as np
import pymc as pm
import pytest

from models import QUICK, reading_once
from scipy.stats import multivariate_normal

import pymc_lgm as lgm

from pymc_lgm.testing import joint_test

pytestmark = pytest.mark.usefixtures("interpreted")

GROUP = np.array([0, 0, 0, 1, 1, 2, 2, 2, 3, 3])
X = np.linspace(-1.0, 1.0, GROUP.size)
Y = np.array([0.3, 0.8, 0.1, 1.9, 1.2, -0.4, 0.2, -0.9, 0.5, 0.9])
SIZES = np.array([1.2, 0.7, 2.9])


def groups(y: Any = Y) -> pm.Model:
    """Groups, a slope, and sizes that read the first three of these effects as well."""
    with pm.Model() as model:
        s, noise = pm.HalfNormal("s", 1.0), pm.HalfNormal("noise", 1.0)
        u, b = pm.Normal("u", 0.0, s, shape=4), pm.Normal("b", 0.0, 2.0)
        pm.Normal("y", u[GROUP] + b * X, noise, observed=pm.Data("data", y))
        pm.LogNormal("sizes", 0.5 * u[:3], 0.6, observed=pm.Data("data of sizes", SIZES))
    return model


def process(y: Any = Y) -> pm.Model:
    """A process, and noise with a standard deviation for each half."""
    with pm.Model() as model:
        length, noise = pm.InverseGamma("length", 3, 2), pm.HalfNormal("noise", 1.0, shape=2)
        gp = pm.gp.Latent(cov_func=pm.gp.cov.Matern32(1, ls=length))
        f = gp.prior("f", X[:, None], reparameterize=False)
        pm.Normal("y", f, noise[np.repeat([0, 1], 5)], observed=pm.Data("data", y))
    return model


def pairs(y: Any = Y) -> pm.Model:
    """Pairs of observations with correlated errors, each of which reads two effects."""
    with pm.Model() as model:
        s, noise = pm.HalfNormal("s", 1.0, shape=2), pm.HalfNormal("noise", 1.0)
        means = pm.math.stack([pm.Normal(name, 0.0, s[k], shape=5) for k, name in enumerate("uv")])
        cov = noise**2 * np.array([[1.0, 0.6], [0.6, 1.0]])
        pm.MvNormal("y", means.T, cov=cov, observed=pm.Data("data", y.reshape((5, 2))))
    return model


def evidence_of_pairs(s: Any, noise: float) -> float:
    cov = np.diag(s**2) + noise**2 * np.array([[1.0, 0.6], [0.6, 1.0]])
    return float(multivariate_normal.logpdf(Y.reshape((5, 2)), cov=cov).sum())


def evidence_of_groups(s: float, noise: float) -> float:
    rows = np.zeros((13, 5))
    rows[np.arange(10), GROUP] = 1.0
    rows[:10, 4] = X
    rows[np.arange(10, 13), np.arange(3)] = 0.5
    cov = (rows * np.array([s, s, s, s, 2.0]) ** 2) @ rows.T
    cov += np.diag(np.repeat([noise, 0.6], [10, 3]) ** 2)
    log_sizes = np.log(SIZES)
    y = np.concatenate([Y, log_sizes])
    return float(multivariate_normal.logpdf(y, cov=cov) - log_sizes.sum())


@pytest.mark.slow
@pytest.mark.fast("groups-evidence_of_groups-True")
@pytest.mark.parametrize("is_sparse", [True, False])
@pytest.mark.parametrize(
    ("build", "evidence"), [(groups, evidence_of_groups), (pairs, evidence_of_pairs)]
)
def test_the_evidence_is_exact(
    build: Any, evidence: Any, is_sparse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a sum of effects: two observed variables, one lognormal; and correlated pairs."""
    monkeypatch.setattr("pymc_lgm.model.forms.sum._is_cheaper", lambda *_, **__: is_sparse)
    with build():
        step = lgm.PseudoMarginal(compile_kwargs=QUICK)
        idata = pm.sample(15, tune=60, chains=1, step=step, random_seed=1, progressbar=False)
    assert (step.plan.approximation, step.plan.sites) == ("laplace", "exact")
    stats, posterior = idata["sample_stats"], idata["posterior"]
    assert float(stats["log_evidence_sd"].max()) < 1e-10
    assert float(stats["mode_iterations"].max()) == 1.0
    if build is groups:
        # Dense: the factors of K, of K + W⁻¹, and of the law of u and b given f.
        assert float(stats["cubic_ops"].max()) == (1.0 if is_sparse else 3.0)
    thetas = zip(posterior["s"].values[0], posterior["noise"].values[0], strict=True)
    exact = [evidence(s, noise) for s, noise in thetas]
    np.testing.assert_allclose(stats["log_evidence"].values[0], exact, atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("build", [groups, process, pairs])
def test_the_tuned_default_leaves_the_joint_law_unchanged(build: Any) -> None:
    model = build()
    with reading_once(compiled=True):
        step = lgm.PseudoMarginal(model=model)
        rng = np.random.default_rng(3)
        test = joint_test(step, model, replicates=300, steps=1, tune=100, rng=rng)
    assert step.plan.sites == "exact"
    assert test.pvalue > 1e-4


def test_a_sum_whose_density_does_not_split(monkeypatch: pytest.MonkeyPatch) -> None:
    """A potential that reads two pairs of predictors at once: importance draws are not bent."""
    monkeypatch.setattr("pymc_lgm.model.forms.sum._is_cheaper", lambda *_, **__: True)
    precision = np.linalg.inv([[1.0, 0.6], [0.6, 1.0]])
    with pm.Model():
        s = pm.HalfNormal("s", 1.0, shape=2)
        means = pm.math.stack([pm.Normal(name, 0.0, s[k], shape=5) for k, name in enumerate("uv")])
        errors = Y.reshape((5, 2)) - means.T
        pm.Potential("y", -0.5 * (pm.math.dot(errors, precision) * errors).sum(axis=1))
        step = lgm.PseudoMarginal(compile_kwargs=QUICK)
        idata = pm.sample(15, tune=60, chains=1, step=step, random_seed=1, progressbar=False)
    assert (step.plan.approximation, step.plan.skewness) == ("laplace", None)
    constant = 5.0 * (np.log(2.0 * np.pi) - 0.5 * np.linalg.slogdet(precision)[1])
    exact = [evidence_of_pairs(s, 1.0) + constant for s in idata["posterior"]["s"].values[0]]
    np.testing.assert_allclose(idata["sample_stats"]["log_evidence"].values[0], exact, atol=0.3)


def test_f_moves_although_there_is_no_theta() -> None:
    """With a pair of importance draws it had two values in a whole chain."""
    with pm.Model() as errors:
        pm.Normal("y", pm.Normal("u", 0.0, 1.0, shape=4)[GROUP], 0.5, observed=Y)
    with pm.Model() as labels:
        gp = lgm.gp.SparseLatent(cov_func=pm.gp.cov.ExpQuad(1, ls=0.5))
        f = gp.prior("f", X[:, None], Xu=X[::4, None])
        lgm.Probit("y", f=f, observed=(Y > 0.4).astype(int))
    for model in (errors, labels):
        with model:
            step = lgm.PseudoMarginal(compile_kwargs=QUICK)
        step.setup_chain(np.random.default_rng(1), tune=20, draws=60)
        point, seen = model.initial_point(), set()
        for draw in range(80):
            if draw == 20:
                step.stop_tuning()
            point, _ = step.step(point)
            seen.add(next(iter(point.values())).tobytes())
        # Each draw is another with probability 1/2.
        assert len(seen) > 20
