"""A Gaussian vector that cannot be integrated out is no hyper-parameter in silence."""

import logging
import re

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from models import QUICK
from scipy import stats

import pymc_lgm as lgm

pytestmark = pytest.mark.usefixtures("interpreted")

ROWS = 40
GROUP = np.arange(ROWS) % 20
X = np.linspace(0.0, 1.0, ROWS)[:, None]
Y = np.arange(ROWS) % 3


def process(name="f"):
    gp = pm.gp.Latent(cov_func=pm.HalfNormal(f"eta_{name}") ** 2 * pm.gp.cov.ExpQuad(1, ls=0.3))
    return gp.prior(name, X, reparameterize=False, jitter=1e-6)


def of_a_grid():
    b = pm.MatrixNormal("b", np.zeros((4, 5)), rowcov=np.eye(4), colcov=np.eye(5))
    return b.flatten()


def matrix_normal():
    b = of_a_grid()
    pm.Poisson("y", pm.math.exp(process() + b[GROUP]), observed=Y)


def batch_of_series():
    b = pm.AR("b", rho=[0.5], init_dist=pm.Normal.dist(0.0, 1.0), shape=(5, 8))
    pm.Poisson("y", pm.math.exp(process() + b.flatten()), observed=Y)


def batch_of_walks():
    b = pm.GaussianRandomWalk("b", 0.0, 1.0, init_dist=pm.Normal.dist(0.0, 1.0), shape=(5, 8))
    pm.Poisson("y", pm.math.exp(process() + b.flatten()), observed=Y)


def walk_of_vectors():
    start = pm.MvNormal.dist(np.zeros(2), np.eye(2))
    b = pm.MvGaussianRandomWalk("b", np.zeros(2), cov=np.eye(2), init_dist=start, shape=(20, 2))
    pm.Poisson("y", pm.math.exp(process() + b.flatten()), observed=Y)


def scales_of_many_groups():
    b = pm.Normal("b", 0.0, 1.0, shape=20)
    pm.MvNormal("g", np.zeros(20), pt.diag(pm.math.exp(b)))
    pm.Poisson("y", pm.math.exp(process() + pt.tile(pm.modelcontext(None)["g"], 2)), observed=Y)


def covariance_through_a_function():
    b = pm.Normal("b", 0.0, 1.0, shape=20)
    g = pm.MvNormal("g", pm.math.exp(b), np.eye(20))
    pm.Poisson("y", pm.math.exp(g[GROUP]), observed=Y)


CASES = {
    matrix_normal: "pm.MatrixNormal",
    scales_of_many_groups: "'g' depends on it",
    covariance_through_a_function: "'g' depends on it",
}


# PyMC's density of a MatrixNormal warns of a name that PyTensor moves.
pytestmark = pytest.mark.filterwarnings("ignore:pytensor.tensor.linalg.trace:FutureWarning")


def named(model, *names):
    return [model[name] for name in names]


@pytest.mark.parametrize("build", CASES, ids=lambda make: make.__name__)
@pytest.mark.parametrize("read", [lgm.PseudoMarginal, lgm.read])
def test_it_is_refused_by_name(build, read):
    with pm.Model() as model:
        build()
    text = f"(?s)'b' is Gaussian and has 20 elements.*{CASES[build]}.*pm.NUTS.*pm.NUTS"
    with pytest.raises(ValueError, match=text):
        read(model=model, compile_kwargs=QUICK)


@pytest.mark.fast("batch_of_series")
@pytest.mark.parametrize("build", [batch_of_series, batch_of_walks, walk_of_vectors])
def test_series_beside_a_process_are_latent_with_it(build):
    """They were hyper-parameters in silence, and then refused."""
    with pm.Model() as model:
        build()
    ours = lgm.read(model, compile_kwargs=QUICK)
    assert "b" in ours.latents
    assert max(ours.check(draws=3).values()) < 1e-6


def test_what_pymc_assigns_is_refused_too():
    """Of a likelihood of ours the default step is given all of the value variables."""
    with pm.Model() as model:
        b = of_a_grid()
        lgm.LogGaussianCox("y", f=process() + b[GROUP], observed=Y)
    with model, pytest.raises(ValueError, match="'b' is Gaussian and has 20 elements"):
        pm.sample(draws=2, tune=2, chains=1, progressbar=False)


def test_alone_it_is_refused_by_its_name():
    with pm.Model() as model:
        b = of_a_grid()
        pm.Poisson("y", pm.math.exp(b[GROUP]), observed=Y)
    with pytest.raises(ValueError, match=r"'b' is Gaussian.*pm.MatrixNormal.*pm.NUTS\(\)"):
        lgm.PseudoMarginal(model=model, compile_kwargs=QUICK)


@pytest.mark.parametrize("beside", [False, True])
def test_log_normal_effects_could_be_latent(beside):
    """What the message says to write is read."""
    with pm.Model() as model:
        lam = pm.LogNormal("lam", pm.Normal("mu") if beside else 0.0, 1.0, shape=20)
        pm.Poisson("y", lam[GROUP], observed=Y)
    with pytest.raises(ValueError, match=r"write lam = pm.math.exp\(pm.Normal\('log_lam'"):
        lgm.read(model)
    with pm.Model() as model:
        lam = pm.math.exp(pm.Normal("log_lam", pm.Normal("mu") if beside else 0.0, 1.0, shape=20))
        pm.Poisson("y", lam[GROUP], observed=Y)
    assert lgm.read(model).latents == (("mu", "log_lam") if beside else ("log_lam",))


@pytest.mark.slow
def test_who_names_it_gets_it():
    with pm.Model() as model:
        matrix_normal()
    step = lgm.EllipticalSlice(named(model, "f"), model=model, compile_kwargs=QUICK)
    assert [v.name for v in step.vars] == ["f"]
    step = lgm.ASIS(named(model, "f", "eta_f", "b"), model=model, compile_kwargs=QUICK)
    assert {v.name for v in step.vars} == {"f", "eta_f_log__", "b"}
    ours = lgm.read(model, theta="b", compile_kwargs=QUICK)
    assert (ours.latents, set(ours.theta_names)) == (("f",), {"eta_f_log__", "b"})
    assert lgm.PseudoMarginal(theta=["b"], model=model, compile_kwargs=QUICK).lgm.p == 21


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 3])
def test_a_few_are_hyper_parameters_and_said(size, caplog):
    """Log length scales, say. One number needs no word."""
    with pm.Model() as model:
        ls = pm.Normal("log_ls", 0.0, 1.0, shape=size)
        cov = pm.gp.cov.ExpQuad(3, ls=pm.math.exp(ls))
        f = pm.gp.Latent(cov_func=cov).prior("f", np.eye(4)[:, :3], reparameterize=False)
        pm.Poisson("y", pm.math.exp(f), observed=[1, 0, 2, 1])
    with caplog.at_level(logging.INFO, "pymc.lgm"):
        ours = lgm.read(model, compile_kwargs=QUICK)
    assert ours.p == size
    found = [each.message for each in caplog.records if "log_ls" in each.message]
    assert len(found) == (size > 1)
    assert all("3 elements" in text for text in found)


def rows(missing):
    y = np.random.default_rng(1).standard_normal((20, 2))
    y[:missing, 0] = np.nan
    with pm.Model() as model:
        u = pm.Normal("u", 0.0, pm.HalfNormal("s"), shape=20)
        pm.MvNormal("y", u[:, None], cov=np.array([[1.0, 0.4], [0.4, 1.0]]), observed=y)
    return model


@pytest.mark.filterwarnings("ignore:Data in y contains:pymc.exceptions.ImputationWarning")
def test_missing_elements_of_rows_are_said_or_refused(caplog):
    """With what to write instead: `test_rows_that_lack_the_same_elements` does."""
    text = r"(?s){}.*completes rows.*mu\[rows\]\[:, seen\]"
    with caplog.at_level(logging.INFO, "pymc.lgm"):
        ours = lgm.read(rows(2), compile_kwargs=QUICK)
    assert ours.theta_names == ("s_log__", "y_unobserved")
    (found,) = caplog.messages
    assert re.search(text.format("sampled among the hyper-parameters"), found)
    with pytest.raises(ValueError, match=text.format("'y_unobserved' is Gaussian.* 15 elements")):
        lgm.read(rows(15), compile_kwargs=QUICK)


def test_rows_that_lack_the_same_elements(rng):
    """Observed as a variable of their own, they have the joint density without what is missing."""
    y, cov = rng.standard_normal((6, 2)), np.array([[1.0, 0.4], [0.4, 2.0]])
    seen = np.array([[1, 1], [1, 1], [0, 1], [1, 1], [0, 1], [1, 1]], dtype=bool)
    with pm.Model() as model:
        mu = pm.Normal("u", 0.0, pm.HalfNormal("s"), shape=6)[:, None] + np.array([0.0, 1.0])
        for k, pattern in enumerate(np.unique(seen, axis=0)):
            which, columns = (seen == pattern).all(axis=1), np.flatnonzero(pattern)
            of_these = cov[columns][:, columns]
            observed = y[which][:, columns]
            pm.MvNormal(f"y_{k}", mu[which][:, columns], cov=of_these, observed=observed)
    ours = lgm.read(model, compile_kwargs=QUICK)
    assert ours.theta_names == ("s_log__",)
    theta, u = np.array([0.2]), rng.standard_normal(6)
    f = ours.f_of(theta, ours.point_of(theta) | {"u": u})
    expected = sum(
        stats.multivariate_normal(u_i + np.array([0.0, 1.0])[s], cov[s][:, s]).logpdf(y_i[s])
        for u_i, y_i, s in zip(u, y, seen, strict=True)
    )
    np.testing.assert_allclose(ours.log_likelihood(f, theta), expected)


def of_weights(n, mean=0.0):
    """A covariance of ``n`` observations that depends on normal weights."""
    w = pm.Normal("w", shape=2)
    cov = pt.outer(w[np.arange(n) % 2], w[np.arange(n) % 2]) + np.eye(n)
    pm.MvNormal("y", mean * np.ones(n), cov, observed=np.ones(n))


def test_what_the_covariance_of_a_process_depends_on_is_a_hyperparameter():
    """As the weights of outputs whose process is integrated out."""
    with pm.Model() as model:
        of_weights(13, pm.Normal("mean"))
    ours = lgm.read(model, compile_kwargs=QUICK)
    assert (ours.latents, ours.theta_names) == (("mean",), ("w",))
    with pm.Model() as model:
        of_weights(13)
    with pytest.raises(ValueError, match=r"'y' is an observed pm.MvNormal.*lgm.ExactMarginal\(\)"):
        lgm.PseudoMarginal(model=model, compile_kwargs=QUICK)


@pytest.mark.parametrize("is_shared", [True, False], ids=["one covariance", "one for each row"])
def test_what_the_covariance_of_rows_depends_on_is_latent_if_each_has_its_own(is_shared):
    """As loadings of items, and as log scales that move."""
    with pm.Model() as model:
        mean, w = pm.Normal("mean"), pm.Normal("w", shape=1 if is_shared else 7)
        cov = pm.math.exp(w)[:, None, None] * np.eye(2)
        pm.MvNormal("y", mean, cov[0] if is_shared else cov, observed=np.ones((7, 2)))
    ours = lgm.read(model, compile_kwargs=QUICK)
    assert ("w" in ours.latents) != is_shared
