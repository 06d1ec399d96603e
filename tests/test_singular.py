"""A process whose covariance is singular to rounding, with noise beside it: that of f is not."""

from functools import cache

import numpy as np
import pymc as pm
import pytest

from models import QUICK
from scipy.stats import norm

import pymc_lgm as lgm

from pymc_lgm.linalg import factorize
from pymc_lgm.model import draw_back
from pymc_lgm.model.draw_back import SymmetricRoot

N, NOISE = 40, 0.3
ROWS = np.linspace(0.0, 1.0, N)
K = np.exp(-0.5 * np.square(np.subtract.outer(ROWS, ROWS) / 0.5))
Y = np.sin(6.0 * ROWS) + 0.2 * np.random.default_rng(0).standard_normal(N)


@cache
def process_and_noise():
    with pm.Model() as model:
        gp = pm.gp.Latent(cov_func=pm.gp.cov.ExpQuad(1, 0.5))
        g = gp.prior("g", ROWS[:, None], reparameterize=False, jitter=0.0)
        eps = pm.Normal("eps", 0.0, NOISE, shape=N)
        pm.StudentT("y", nu=4, mu=g + eps, sigma=0.1, observed=Y)
    return model


def test_only_rounding_keeps_the_covariance_from_a_factor():
    assert factorize(K.copy()) is None
    root = SymmetricRoot.of(K).multiply(np.eye(N))
    np.testing.assert_allclose(root @ root.T, K, rtol=0, atol=1e-12)
    assert SymmetricRoot.of(K - 1e-6 * np.eye(N)) is None
    assert SymmetricRoot.of(np.full((2, 2), np.nan)) is None


def pvalue_of_process(draws=3000):
    """Of g given f, against its law by dense algebra, along what has a variance in it."""
    ours = lgm.read(process_and_noise(), compile_kwargs=QUICK)
    prior, rng = ours.prior(np.empty(0)), np.random.default_rng(3)
    f = Y.copy()
    g = np.empty((draws, N))
    for k in range(draws):
        values = ours.latents_of(rng, prior, f)
        np.testing.assert_allclose(values["g"] + values["eps"], f, rtol=0, atol=1e-10)
        g[k] = values["g"]
    gain = np.linalg.solve(K + NOISE**2 * np.eye(N), K).T
    sizes, vectors = np.linalg.eigh(K - gain @ K)
    few = sizes > 1e-8
    z = (g - gain @ f) @ vectors[:, few] / np.sqrt(sizes[few])
    scores = [z.sum(axis=0), (z**2 - 1.0).sum(axis=0) / np.sqrt(2.0)]
    scores.append((z.T @ z)[np.triu_indices(few.sum(), 1)])
    p = 2.0 * norm.sf(np.abs(np.concatenate(scores)) / np.sqrt(draws))
    return min(1.0, p.min() * p.size)


def test_the_process_given_f_has_its_law():
    """It was an error in mid-chain."""
    assert pvalue_of_process() > 1e-3


@pytest.mark.mutant
def test_a_root_that_is_none_is_noticed(monkeypatch, dies):
    """As if eigenvalues were their own roots."""

    def wrong(C):
        eigenvalues, vectors = np.linalg.eigh(C)
        return SymmetricRoot(vectors * np.maximum(eigenvalues, 0.0))

    monkeypatch.setattr(SymmetricRoot, "of", wrong)
    dies("draw back: eigenvalues for their roots", pvalue_of_process(), below=1e-6)


def test_a_draw_that_the_model_has_no_density_of_is_rejected(monkeypatch):
    """As where the covariance has negative eigenvalues that no rounding has made."""
    model = process_and_noise()
    with model:
        step = lgm.EllipticalSlice(compile_kwargs=QUICK)
    step.setup_chain(np.random.default_rng(0), tune=0, draws=3)
    start = model.initial_point()
    moved, [stats] = step.step(start)
    assert not np.array_equal(moved["g"], start["g"])
    assert stats["numerical_rejections"] == 0
    monkeypatch.setattr(draw_back, "_root_of", lambda C: None)
    step.lgm.form.forget()
    for _ in range(2):
        stayed, [stats] = step.step(moved)
        assert all(np.array_equal(stayed[name], moved[name]) for name in moved)
        assert stats["numerical_rejections"] == 1


COUPLED, SEEN = np.array([[1.0, 0.6], [0.6, 1.0]]), np.array([1.0, 0.2])


@pytest.mark.slow
def test_moves_reject_one_by_one_where_there_is_nothing_to_draw_back(monkeypatch):
    """A draw of f, and then an s that x has no density at: f moves, and s does not.

    To reject both for the sake of s favored an f that s does not follow. Here none was ever kept.
    """
    root_of = draw_back._root_of

    def root(C):
        return root_of(C) if abs(np.log(C[0, 0])) < 0.01 else None

    monkeypatch.setattr(draw_back, "_root_of", root)
    with pm.Model() as model:
        s = pm.LogNormal("s", 0.0, 1.0)
        g = pm.MvNormal("g", np.zeros(2), s**2 * COUPLED)
        eps = pm.Normal("eps", 0.0, NOISE, shape=2)
        pm.Normal("y", g + eps, 3.0, observed=SEEN)
        # The elliptical slice is followed by slices of s.
        options = {"move": "slice", "latent_move": "slice", "scale": 3.0}
        step = lgm.Sweep(**options, compile_kwargs=QUICK)
    point, f, rejected = model.initial_point() | {"s_log__": np.array(0.0)}, [], 0
    step.setup_chain(np.random.default_rng(1), tune=0, draws=120)
    for _ in range(120):
        point, [stats] = step.step(point)
        rejected += stats["numerical_rejections"]
        assert abs(2.0 * point["s_log__"]) < 0.01
        f.append(point["g"] + point["eps"])
    assert rejected > 120
    K = COUPLED + NOISE**2 * np.eye(2)
    mean = K @ np.linalg.solve(K + 9.0 * np.eye(2), SEEN)
    sd = np.sqrt((K - K @ np.linalg.solve(K + 9.0 * np.eye(2), K)).diagonal())
    np.testing.assert_allclose((np.mean(f, axis=0) - mean) / sd, 0.0, atol=0.4)
    np.testing.assert_allclose(np.std(f, axis=0) / sd, 1.0, atol=0.3)
