"""Random features: their covariance, and chains on the model that is linear in them."""

from functools import cache

import numpy as np
import pymc as pm
import pytensor
import pytest

from models import COMPILED, QUICK, joint_law

import pymc_lgm as lgm

from pymc_lgm.papers import random_features

pytestmark = pytest.mark.usefixtures("interpreted")

RNG = np.random.default_rng(0)
X = RNG.normal(0, 1, (6, 3))


def covariances():
    yield 1.7**2 * pm.gp.cov.ExpQuad(3, ls=[0.7, 1.0, 2.0])
    yield 0.5 * pm.gp.cov.Matern52(3, ls=1.3)
    yield pm.gp.cov.Matern32(3, ls=0.8, active_dims=[0, 2]) * 2.0
    yield 0.6 * lgm.papers.ArcCosine(3, ls=[1.0, 0.5, 2.0])
    yield pm.gp.cov.ExpQuad(3, ls=1.0) + 0.3 * lgm.papers.ArcCosine(3, ls=1.0)


def off_by(cov, N=40_000, groups=40):
    """The largest distance of ΦΦᵀ from K, in standard errors of N independent frequencies."""
    gp = random_features.RandomFeatures(N, cov_func=cov)
    Phi, K = (graph.eval(**QUICK) for graph in (gp.features(X), cov(X)))
    of_frequency = np.arange(Phi.shape[1]) % N
    parts = [
        groups * Phi[:, of_frequency % groups == k] @ Phi[:, of_frequency % groups == k].T
        for k in range(groups)
    ]
    error = np.std(parts, axis=0, ddof=1) / np.sqrt(groups)
    # What is known exactly, as k(x, x) of a stationary covariance, has no error but rounding.
    return np.max(np.abs(np.mean(parts, axis=0) - K) / (error + 1e-9))


@pytest.mark.parametrize("cov", list(covariances()), ids=lambda cov: type(cov).__name__)
def test_products_of_features_estimate_the_covariance(cov):
    assert off_by(cov) < 7.0


def without_t(patch):
    patch.setattr(
        random_features, "_frequencies", lambda cov, N, rng: rng.standard_normal((cov.n_dims, N))
    )


def with_terms(change):
    """The mutant that changes the factor and the covariance of each term."""

    def broken(patch):
        class Wrong(random_features.RandomFeatures):
            def __init__(self, *args, **options):
                super().__init__(*args, **options)
                self._terms = [(*change(v, cov), omega) for v, cov, omega in self._terms]

        patch.setattr(random_features, "RandomFeatures", Wrong)

    return broken


def of_a_length(variance, cov):
    return variance, type(cov)(3, ls=1.0 / cov.ls)


def not_doubled(variance, cov):
    return (0.5 * variance if isinstance(cov, lgm.papers.ArcCosine) else variance), cov


WRONG = {
    "features: frequencies without the t": without_t,
    "features: of a length, not its inverse": with_terms(of_a_length),
    "features: arc-cosine not doubled": with_terms(not_doubled),
}


@pytest.mark.mutant
@pytest.mark.parametrize("mutant", WRONG)
def test_wrong_features_are_noticed(mutant, dies, monkeypatch):
    WRONG[mutant](monkeypatch)
    cov = 0.6 * lgm.papers.ArcCosine(3, ls=1.0) + pm.gp.cov.Matern32(3, ls=0.8)
    dies(mutant, off_by(cov), above=7.0)


def counts(n=12, features=3):
    x = np.linspace(0, 3, n)[:, None]
    with pm.Model() as model:
        scale, length = pm.HalfNormal("scale", 1), pm.InverseGamma("length", 3, 3)
        cov = scale**2 * pm.gp.cov.Matern52(1, ls=length)
        gp = lgm.papers.RandomFeatures(features, cov_func=cov)
        f = gp.prior("f", x)
        pm.Poisson("y", pm.math.exp(0.5 + f), observed=pm.Data("counts", np.arange(n) % 4))
    return model, gp


shared = cache(counts)
"""A model that is read and compiled once for all samplers of it."""


def classes(n=6, features=2):
    """Three processes that are columns of one matrix, with a mean."""
    x = np.linspace(0, 3, n)[:, None]
    with pm.Model() as model:
        scale = pm.HalfNormal("scale", 1)
        mean = pm.gp.mean.Linear(coeffs=0.5)
        cov = scale**2 * pm.gp.cov.Matern52(1, ls=1.0)
        gp = lgm.papers.RandomFeatures(features, mean_func=mean, cov_func=cov)
        f = gp.prior("f", x, n_outputs=3)
        tilt = np.array([0.0, 1.0, -1.0])
        labels = pm.Data("labels", np.arange(n) % 3)
        pm.Categorical("y", logit_p=f + tilt * f[:, :1], observed=labels)
    return model, gp


shared_classes = cache(classes)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "steps", "tune"),
    [
        pytest.param(lgm.PseudoMarginal, 2, 60, marks=pytest.mark.whole),
        (lgm.papers.WhitenedMetropolis, 3, 0),
    ],
)
def test_every_sampler_leaves_the_joint_law_of_classes(step, steps, tune):
    model, _ = shared_classes()
    how = {"compiled": step is lgm.PseudoMarginal, "steps": steps, "tune": tune}
    test = joint_law(step, model, seed=6, replicates=300, **how)
    assert test.pvalue > 1e-4, test


@pytest.mark.slow
def test_columns_are_read_as_a_list_of_processes_is():
    """The same density, theta and prior, and a likelihood of rows takes the transpose."""
    x, labels = np.linspace(0, 3, 7)[:, None], np.arange(7) % 2
    read = []
    for how in ("columns", "list"):
        with pm.Model() as model:
            length = pm.InverseGamma("length", 3, 3)
            cov = pm.gp.cov.ExpQuad(1, ls=length)
            gps = [lgm.papers.RandomFeatures(4, cov_func=cov) for _ in range(2)]
            if how == "columns":
                f = gps[0].prior("f", x, n_outputs=2).T
            else:
                f = [gp.prior(f"f{c}", x) for c, gp in enumerate(gps)]
            lgm.Softmax("y", f=f, observed=labels)
        read.append(lgm.read(model, compile_kwargs=QUICK))
    assert "f (7 × 2) by 8 random features" in repr(read[0])
    columns, several = read
    theta = np.array([0.3])
    f = several.prior(theta).multiply(np.random.default_rng(1).standard_normal(16))
    np.testing.assert_array_equal(columns.sets, several.sets)
    assert columns.log_likelihood(f, theta) == several.log_likelihood(f, theta)
    np.testing.assert_array_equal(columns.cov(theta), several.cov(theta))
    point = columns.latents_of(np.random.default_rng(2), columns.prior(theta), f)
    assert point["f_weights"].shape == (8, 2)
    np.testing.assert_array_equal(columns.f_of(theta, point), f)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "steps", "tune"),
    [
        pytest.param(lgm.PseudoMarginal, 1, 60, marks=pytest.mark.whole),
        (lgm.PseudoMarginal, 5, 60),
        (lgm.papers.WhitenedMetropolis, 2, 0),
    ],
)
def test_every_sampler_leaves_the_joint_law(step, steps, tune):
    model, _ = shared(n=6)
    how = {"compiled": tune > 0, "steps": steps, "tune": tune}
    test = joint_law(step, model, replicates=300 if tune else 150, **how)
    assert test.pvalue > 1e-4, test


def mean_and_noise(n=8):
    """Two processes of one observation each, whose likelihood is not log-concave."""
    x = np.linspace(0, 3, n)[:, None]
    with pm.Model() as model:
        scale = pm.HalfNormal("scale", 1)
        cov = scale**2 * pm.gp.cov.Matern52(1, ls=1.0)
        f, g = (
            lgm.papers.RandomFeatures(2, cov_func=cov, random_seed=k).prior(name, x)
            for k, name in enumerate("fg")
        )
        pm.Normal("y", f, pm.math.exp(0.3 * g - 1), observed=pm.Data("seen", np.cos(np.arange(n))))
    return model


@pytest.mark.slow
def test_a_mean_and_a_noise_are_no_classes():
    """The default samples them: labels of a robust maximum cut f off, and these do not."""
    how = {"replicates": 200, "steps": 2, "tune": 40}
    test = joint_law(lgm.PseudoMarginal, mean_and_noise(), seed=7, **how)
    assert test.pvalue > 1e-4, test


@pytest.mark.slow
def test_it_is_read_and_sampled_and_predicted():
    model, gp = counts(n=40)
    with model:
        idata = pm.sample(
            50, tune=100, chains=1, step=lgm.PseudoMarginal(), progressbar=False, random_seed=1
        )
        gp.conditional("f_new", np.array([[0.5], [9.0]]))
        drawn = pm.sample_posterior_predictive(
            idata, var_names=["f_new"], progressbar=False, random_seed=1
        )
    w = idata.posterior["f_weights"].values[0]
    assert w.shape == (50, 6)
    at = {name: idata.posterior[name].values[0, -1] for name in ("scale", "length")}
    omega = gp._terms[0][2][0]
    inner = np.array([0.5, 9.0])[:, None] / at["length"] * omega
    Phi = at["scale"] * np.concatenate([np.cos(inner), np.sin(inner)], axis=1) / np.sqrt(3)
    f_new = drawn.posterior_predictive["f_new"].values[0, -1]
    np.testing.assert_allclose(f_new, Phi @ w[-1], rtol=1e-10)


def deep(x, y, total_size=None):
    """Two layers; the second reads the inputs beside the first."""
    first = lgm.papers.RandomFeatures(8, cov_func=pm.gp.cov.ExpQuad(1, ls=1.0))
    second = lgm.papers.RandomFeatures(8, cov_func=4 * pm.gp.cov.ExpQuad(3, ls=2.0))

    def through(hidden, x):
        return pm.math.concatenate([hidden, x], axis=1)

    with pm.Model() as model:
        f = second.prior("f", through(first.prior("hidden", x, n_outputs=2), x))
        lgm.Logistic("y", f=f, observed=y, total_size=total_size)
    return model, lambda name, x: second.conditional(
        name, through(first.conditional(f"{name}_hidden", x), x)
    )


@pytest.mark.whole
@pytensor.config.change_flags(**COMPILED)
def test_layers_are_fitted_by_minibatches_and_predict():
    rng = np.random.default_rng(3)
    x = rng.uniform(-2, 2, (400, 1))
    # PyMC casts other integers, and takes no cast of a minibatch for data.
    y = (np.abs(x[:, 0]) > 1).astype("int32")
    model, conditional = deep(*pm.Minibatch(x, y, batch_size=50), 400)
    with model:
        fitted = pm.fit(
            1500,
            obj_optimizer=pm.adam(learning_rate=0.03),
            random_seed=1,
            progressbar=False,
        )
        conditional("f_new", np.array([[-1.6], [0.0], [1.6]]))
        idata = fitted.sample(100, random_seed=1)
        drawn = pm.sample_posterior_predictive(
            idata, var_names=["f_new"], progressbar=False, random_seed=1
        )
    assert idata.posterior["hidden_weights"].shape == (1, 100, 16, 2)
    f_new = drawn.posterior_predictive["f_new"].mean(("chain", "draw")).to_numpy().ravel()
    assert f_new[0] > 0.5
    assert f_new[1] < -0.5
    assert f_new[2] > 0.5


def two_layers(outer, x=X[:, :1]):
    with pm.Model() as model:
        cov = pm.gp.cov.ExpQuad(2, ls=1.0)
        hidden = lgm.papers.RandomFeatures(3, cov_func=pm.gp.cov.ExpQuad(1, ls=1.0))
        outer(cov, hidden.prior("hidden", x, n_outputs=2))
    return model


@pytest.mark.parametrize(
    "outer",
    [
        lambda cov, hidden: lgm.papers.RandomFeatures(3, cov_func=cov).prior("f", hidden),
        lambda cov, hidden: pm.gp.Latent(cov_func=cov).prior("f", hidden, reparameterize=False),
    ],
)
@pytest.mark.parametrize("sampler", [lgm.PseudoMarginal, lgm.EllipticalSlice, None])
def test_a_hidden_layer_is_refused_by_name(outer, sampler):
    model = two_layers(
        lambda cov, hidden: lgm.Probit("y", f=outer(cov, hidden), observed=np.arange(6) % 2)
    )
    says = (
        r"'hidden_weights' enters .* not affine: 'hidden' is the input of the process 'f'.*pm.fit"
    )
    with model, pytest.raises(ValueError, match=f"(?s){says}"):
        sampler() if sampler else pm.sample(10, tune=10, chains=1, progressbar=False)


def test_minibatches_are_for_fits_alone():
    with pm.Model():
        x, y = pm.Minibatch(X, np.zeros(6, dtype="int32"), batch_size=2)
        f = lgm.papers.RandomFeatures(3, cov_func=pm.gp.cov.ExpQuad(3, ls=1.0)).prior("f", x)
        lgm.Probit("y", f=f, observed=y, total_size=6)
        with pytest.raises(ValueError, match=r"a pm.Minibatch: each evaluation"):
            lgm.EllipticalSlice()


def test_the_arc_cosine_covariance_is_that_of_a_layer():
    K = lgm.papers.ArcCosine(3, ls=2.0)(X).eval()
    np.testing.assert_allclose(np.diag(K), (X**2).sum(axis=1) / 4, rtol=1e-6)
    np.testing.assert_allclose(
        lgm.papers.ArcCosine(3, ls=2.0)(X, diag=True).eval(), np.diag(K), 1e-6
    )
    across = lgm.papers.ArcCosine(3, ls=2.0)(X, X[:2]).eval()
    np.testing.assert_allclose(across, K[:, :2])
    assert np.linalg.eigvalsh(K).min() > -1e-6


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: pm.gp.cov.Periodic(1, period=1, ls=1), "no features of Periodic"),
        (lambda: pm.gp.cov.ExpQuad(1, 1.0) * pm.gp.cov.Matern32(1, 1.0), "ExpQuad \\* Matern32"),
        (lambda: pm.gp.cov.ExpQuad(1, 1.0) + pm.gp.cov.WhiteNoise(1.0), "WhiteNoise"),
        (lambda: pm.gp.cov.ExpQuad(1, 1.0) * np.ones(3), "times numbers"),
    ],
)
def test_a_covariance_without_features_is_refused(make, says):
    with pytest.raises(ValueError, match=says):
        lgm.papers.RandomFeatures(cov_func=make())


def test_bad_numbers_and_orders_are_refused():
    cov = pm.gp.cov.ExpQuad(1, 1.0)
    with pytest.raises(ValueError, match="at least 1"):
        lgm.papers.RandomFeatures(0, cov_func=cov)
    with pm.Model(), pytest.raises(ValueError, match="a number of processes"):
        lgm.papers.RandomFeatures(3, cov_func=cov).prior("f", X, n_outputs=0)
    with pytest.raises(ValueError, match=r"call gp\.prior"):
        lgm.papers.RandomFeatures(3, cov_func=cov).conditional("f_new", X)
    model, gp = counts()
    with model, pytest.raises(ValueError, match=r"use gp\.conditional"):
        lgm.predict({"posterior": {"s": np.ones((1, 1))}}, gp, X)
