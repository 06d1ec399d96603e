"""`predict` is the exact conditional of every draw, and the scores are what they are defined as."""

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
import pytest
import xarray as xr

from scipy.integrate import quad
from scipy.special import expit, ndtr, softmax
from scipy.stats import norm

import pymc_lgm as lgm

from pymc_lgm.linalg import tally
from pymc_lgm.papers.scores import (
    abstention_curve,
    brier_score,
    capacity,
    log_predictive_density,
)
from pymc_lgm.prediction import predict
from pymc_lgm.response import response

pytestmark = pytest.mark.usefixtures("interpreted")

X = np.array([[0.0], [0.7], [1.1], [2.0]])
XNEW = np.array([[-0.5], [0.7], [5.0]])
JITTER = 1e-3


def gp_model(likelihood=lgm.Probit, X=X, reparameterize=False, jitter=JITTER, **kwargs):
    with pm.Model() as model:
        ls = pm.LogNormal("ls", 0.0, 0.4)
        eta = pm.LogNormal("eta", 0.0, 0.4)
        mu = pm.Normal("mu", 0.5, 1.0)
        gp = pm.gp.Latent(
            mean_func=pm.gp.mean.Constant(mu), cov_func=eta**2 * pm.gp.cov.ExpQuad(1, ls=ls)
        )
        f = gp.prior("f", X, reparameterize=reparameterize, jitter=jitter)
        likelihood("y", f=f, observed=[0, 1, 1, 0], **kwargs)
    return model, gp


def make_trace(chains=2, draws=5, repeat=1, **more):
    """Draws of (theta, f) as a sampler could have left them, each repeated."""
    rng = np.random.default_rng(7)

    def draw(*shape):
        return np.repeat(rng.normal(size=(chains, draws, *shape)), repeat, axis=1)

    posterior = {
        "ls": np.exp(0.4 * draw()),
        "eta": np.exp(0.4 * draw()),
        "mu": draw(),
        "f": draw(4),
    }
    return az.from_dict({"posterior": posterior | more})


def dense(posterior, i, Xnew=XNEW):
    """The textbook formula, with an inverse."""
    ls, eta, mu = (float(posterior[name].values[i]) for name in ("ls", "eta", "mu"))

    def k(a, b):
        return eta**2 * np.exp(-0.5 * (a - b.T) ** 2 / ls**2)

    inverse = np.linalg.inv(k(X, X) + JITTER * np.eye(4))
    mean = mu + k(Xnew, X) @ inverse @ (posterior["f"].values[i] - mu)
    return mean, np.diag(k(Xnew, Xnew) - k(Xnew, X) @ inverse @ k(X, Xnew))


@pytest.mark.parametrize("reparameterize", [False, True])
def test_the_moments_are_the_dense_formula_draw_by_draw(reparameterize):
    model, gp = gp_model(reparameterize=reparameterize)
    idata = make_trace()
    result = predict(idata, gp, XNEW, model=model, progressbar=False)["predictions"]
    for i in np.ndindex(2, 5):
        mean, variance = dense(idata["posterior"], i)
        np.testing.assert_allclose(result["f_conditional_mean"].values[i], mean, atol=1e-10)
        np.testing.assert_allclose(result["f_conditional_variance"].values[i], variance, atol=1e-10)


@pytest.mark.slow  # PyMC draws thousands; the formula has a test of its own
def test_agrees_with_pymc():
    """PyMC draws f_new and y where `predict` integrates: the same within Monte Carlo error."""
    model, gp = gp_model()
    idata = make_trace(draws=1000)
    with model:
        result = predict(idata, gp, XNEW, thin=1, progressbar=False)["predictions"]
        f_new = gp.conditional("f_new", XNEW, jitter=JITTER)
        lgm.Probit("y_new", f=f_new)
        drawn = pm.sample_posterior_predictive(
            idata, var_names=["f_new", "y_new"], random_seed=3, progressbar=False, predictions=True
        )["predictions"]
    f, y = (drawn[name].values.reshape(2000, 3) for name in ("f_new", "y_new"))
    error = f.std(axis=0) / np.sqrt(2000)
    assert (np.abs(f.mean(axis=0) - result["f_mean"].values) < 4 * error).all()
    square = (f - f.mean(axis=0)) ** 2
    error = square.std(axis=0) / np.sqrt(2000)
    assert (np.abs(square.mean(axis=0) - result["f_variance"].values) < 4 * error).all()
    p = result["y_probability"].values
    assert (np.abs(y.mean(axis=0) - p) < 4 * np.sqrt(p * (1 - p) / 2000)).all()


MOMENTS = [(0.3, 1e-6), (0.3, 0.8), (-2.0, 2.2), (-2.0, 2.3), (5.0, 30.0), (1.0, 400.0)]


def integral(function, mean, variance):
    """E[function(f)] by adaptive quadrature, f ~ N(mean, variance)."""
    sd = np.sqrt(variance)
    kinks = [z for z in (-mean / sd,) if abs(z) < 12]
    value, _ = quad(
        lambda z: function(mean + sd * z) * norm.pdf(z),
        -12,
        12,
        points=[*kinks, 0.0, 2 * sd, -2 * sd] if sd < 6 else kinks,
        limit=500,
        epsabs=1e-12,
        epsrel=1e-12,
    )
    return value


@pytest.mark.parametrize(("mean", "variance"), MOMENTS)
@pytest.mark.parametrize(("likelihood", "link"), [(lgm.Probit, ndtr), (lgm.Logistic, expit)])
def test_class_probabilities_are_integrals(likelihood, link, mean, variance):
    op = likelihood.dist(f=0.0).owner.op
    row = response(op, np.array([mean]), np.array([variance]))[:, 0]
    np.testing.assert_allclose(row, integral(link, mean, variance), atol=1e-9)


@pytest.mark.parametrize(("mean", "variance"), MOMENTS[:4])
def test_count_and_volatility_moments_are_integrals(mean, variance):
    op = lgm.LogGaussianCox.dist(f=0.0).owner.op
    rows = response(op, np.array([mean]), np.array([variance]), 2.0, -0.4)[:, 0]
    rate = integral(lambda f: 2 * np.exp(f - 0.4), mean, variance)
    square = integral(lambda f: 2 * np.exp(f - 0.4) + 4 * np.exp(2 * f - 0.8), mean, variance)
    np.testing.assert_allclose(rows, [rate, square], rtol=1e-8)
    op = lgm.likelihoods.CopulaVolatility.dist(f=0.0).owner.op
    rows = response(op, np.array([mean]), np.array([variance]))[:, 0]
    np.testing.assert_allclose(
        rows, [0, integral(lambda f: np.exp(2 * f), mean, variance)], rtol=1e-8
    )


@pytest.mark.parametrize(("mean", "variance"), MOMENTS[:5])
def test_category_probabilities_are_integrals(mean, variance):
    cutpoints, noise = np.array([-1.0, 0.2, 1.5]), 0.7
    op = lgm.OrdinalProbit.dist(f=0.0, cutpoints=cutpoints).owner.op
    first, second, *p = response(op, np.array([mean]), np.array([variance]), cutpoints, noise)[:, 0]

    def below(f):
        return np.array([0.0, *ndtr((cutpoints - f) / noise), 1.0])

    for k in range(4):
        exact = integral(lambda f, k=k: below(f)[k + 1] - below(f)[k], mean, variance)
        assert p[k] == pytest.approx(exact, abs=1e-9)
    assert np.sum(p) == pytest.approx(1.0)
    assert first == pytest.approx(np.dot(range(4), p))
    assert second == pytest.approx(np.dot(np.arange(4) ** 2, p))


def test_random_likelihood_parameters_come_from_the_draw():
    with pm.Model():
        noise = pm.LogNormal("noise")
        gp = pm.gp.Latent(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0))
        f = gp.prior("f", X, reparameterize=False)
        lgm.OrdinalProbit("y", f=f, cutpoints=[0.0, 1.0], noise=noise, observed=[0, 1, 2, 0])
        noises = np.array([[0.1, 2.0]])
        idata = az.from_dict({"posterior": {"f": np.full((1, 2, 4), 0.4), "noise": noises}})
        result = predict(idata, gp, XNEW, progressbar=False)["predictions"]
    assert result["y_probability"].dims == ("point", "category")
    m, v = result["f_conditional_mean"].values[0], result["f_conditional_variance"].values[0]
    first = ndtr((0.0 - m) / np.sqrt(v + noises[0][:, None] ** 2)).mean(axis=0)
    np.testing.assert_allclose(result["y_probability"].values[:, 0], first, atol=1e-12)
    p = result["y_probability"].values
    np.testing.assert_allclose(result["y_mean"].values, p @ [0, 1, 2])
    np.testing.assert_allclose(
        result["y_variance"].values, p @ [0, 1, 4] - result["y_mean"].values ** 2
    )


def test_observed_hyperparameters_are_their_data():
    """A process and a series with hyper-parameters that `pm.observe` may have made data."""
    with pm.Model() as model:
        ls, s = pm.Exponential("ls", 1.0, observed=0.7), pm.HalfNormal("s", 1.0, observed=0.5)
        gp = pm.gp.Latent(cov_func=s**2 * pm.gp.cov.ExpQuad(1, ls=ls))
        gp.prior("f", X, reparameterize=False)
        x = pm.AR("x", rho=[0.5], sigma=s, init_dist=pm.Normal.dist(), shape=3)
    draws = {"f": np.zeros((1, 2, 4)), "x": np.ones((1, 2, 3))}
    idata = az.from_dict({"posterior": draws})
    ahead = predict(idata, x, steps=1, model=model)["predictions"]
    np.testing.assert_allclose(ahead["x_conditional_variance"], 0.25)
    far = predict(idata, gp, [[50.0], [0.7 + 1.1]], model=model, progressbar=False)["predictions"]
    K, k = (0.25 * np.exp(-0.5 * (X - at) ** 2 / 0.49) for at in (X.T, 1.8))
    expected = 0.25 - k.T @ np.linalg.solve(K + 1e-6 * np.eye(4), k)
    np.testing.assert_allclose(
        far["f_conditional_variance"][0, 0], [0.25, expected.item()], rtol=1e-3
    )


@pytest.mark.slow
def test_exposures_of_new_points():
    model, gp = gp_model(lgm.LogGaussianCox, exposure=[1.0, 2.0, 3.0, 4.0], offset=0.5)
    idata = make_trace()
    with model:
        with pytest.raises(ValueError, match=r"exposure of y has one value .* 3 new points"):
            predict(idata, gp, XNEW, progressbar=False)
        result = predict(idata, gp, XNEW, parameters={"exposure": [1, 2, 4]}, progressbar=False)
        with pytest.raises(ValueError, match=r"no parameter .*exposures"):
            predict(idata, gp, XNEW, parameters={"exposures": 1}, progressbar=False)
        with pytest.raises(ValueError, match=r"\(4,\): write one value for all, or .* 3 points"):
            predict(idata, gp, XNEW, parameters={"exposure": [1, 2, 3, 4]}, progressbar=False)
    values = result["predictions"]
    log_rate = values["f_conditional_mean"] + 0.5 + values["f_conditional_variance"] / 2
    expected = np.exp(log_rate).mean(("chain", "draw")) * [1, 2, 4]
    np.testing.assert_allclose(values["y_mean"], expected)


def test_infinite_moments_are_no_warning_and_no_nan():
    model, gp = gp_model(lgm.LogGaussianCox)
    idata = make_trace()
    idata["posterior"]["eta"][0, 0] = 50.0
    result = predict(idata, gp, XNEW, model=model, progressbar=False)["predictions"]
    assert result["y_mean"][2] > 1e300
    assert result["y_variance"][2] == np.inf
    assert np.isfinite(result["f_variance"]).all()


def test_a_linear_mean_at_new_inputs():
    """Its slope is one number: PyMC drops the axis of a column only if it knows that it is one."""
    with pm.Model() as model:
        slope, level = pm.Normal("slope"), pm.Normal("level")
        mean = pm.gp.mean.Linear(slope, level)
        gp = pm.gp.Latent(mean_func=mean, cov_func=pm.gp.cov.ExpQuad(1, ls=1.0))
        gp.prior("f", X, reparameterize=False)
    rng = np.random.default_rng(0)
    shapes = {"slope": (), "level": (), "f": (4,)}
    trace = az.from_dict({"posterior": {k: rng.normal(size=(2, 3, *v)) for k, v in shapes.items()}})
    found = predict(trace, gp, XNEW, model=model, progressbar=False)["predictions"]

    def k(a, b):
        return np.exp(-0.5 * (a - b.T) ** 2)

    slope, level, f = (trace["posterior"][name].values for name in shapes)
    rest = f - level[..., None] - slope[..., None] * X[:, 0]
    expected = rest @ np.linalg.solve(k(X, X) + 1e-6 * np.eye(4), k(X, XNEW))
    expected += level[..., None] + slope[..., None] * XNEW[:, 0]
    np.testing.assert_allclose(found["f_conditional_mean"], expected, atol=1e-6)


def test_white_noise_and_inputs_in_pm_data():
    """The prior variance of a new point has the noise, its covariance with f has not."""
    with pm.Model() as model:
        data = pm.Data("X", X)
        cov_func = pm.gp.cov.ExpQuad(1, ls=1.0) + pm.gp.cov.WhiteNoise(0.5)
        gp = pm.gp.Latent(cov_func=cov_func)
        gp.prior("f", data, reparameterize=False)
    idata = make_trace()
    result = predict(idata, gp, X, model=model, progressbar=False)["predictions"]
    k = np.exp(-0.5 * (X - X.T) ** 2)
    inverse = np.linalg.inv(k + (0.25 + 1e-6) * np.eye(4))
    np.testing.assert_allclose(
        result["f_conditional_mean"].values[1, 2],
        k @ inverse @ idata["posterior"]["f"].values[1, 2],
    )
    np.testing.assert_allclose(
        result["f_conditional_variance"].values[1, 2], 1.25 - np.diag(k @ inverse @ k)
    )
    pm.set_data({"X": XNEW}, model=model)
    with pytest.raises(ValueError, match=r"set pm\.Data back"):
        predict(idata, gp, XNEW, model=model, progressbar=False)
    # As many inputs as before, but others.
    idata["constant_data"] = xr.DataTree(xr.Dataset({"X": (("X_dim_0", "X_dim_1"), X)}))
    pm.set_data({"X": X + 1.0}, model=model)
    with pytest.raises(ValueError, match="data X of the model have been replaced"):
        predict(idata, gp, XNEW, model=model, progressbar=False)
    pm.set_data({"X": X}, model=model)
    predict(idata, gp, XNEW, model=model, progressbar=False)


def test_an_observed_length_scale_has_the_value_of_the_draws():
    """New values of y alone do not matter: draws of f are those of the trace."""
    with pm.Model() as model:
        seen, y = pm.Data("seen", 0.5), pm.Data("values", [1, 0, 2, 1])
        length = pm.Gamma("length", 3, 3, observed=seen)
        gp = pm.gp.Latent(cov_func=pm.gp.cov.ExpQuad(1, ls=length))
        f = gp.prior("f", X, reparameterize=False)
        lgm.LogGaussianCox("y", f=f, observed=y)
    idata = make_trace()
    observed = xr.Dataset({"length": 0.5, "y": ("y_dim_0", [1, 0, 2, 1])})
    idata["observed_data"] = xr.DataTree(observed)
    pm.set_data({"values": [0, 0, 0, 0]}, model=model)
    predict(idata, gp, XNEW, model=model, progressbar=False)
    pm.set_data({"seen": 2.0}, model=model)
    with pytest.raises(ValueError, match="data seen of the model have been replaced"):
        predict(idata, gp, XNEW, model=model, progressbar=False)
    with pytest.raises(ValueError, match="data seen of the model have been replaced"):
        lgm.terms(idata, model=model)


def test_missing_observations_do_not_hide_the_likelihood():
    with pm.Model():
        gp = pm.gp.Latent(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0))
        f = gp.prior("f", X, reparameterize=False)
        with pytest.warns(pm.exceptions.ImputationWarning):
            lgm.Probit("y", f=f, observed=np.array([0, np.nan, 1, 0]))
        result = predict(make_trace(), gp, XNEW, progressbar=False)["predictions"]
    m, v = result["f_conditional_mean"], result["f_conditional_variance"]
    expected = ndtr(m / np.sqrt(1 + v)).mean(("chain", "draw"))
    np.testing.assert_allclose(result["y_probability"], expected)


def test_other_likelihoods_have_moments_only():
    with pm.Model():
        gp = pm.gp.Latent(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0))
        f = gp.prior("f", X, reparameterize=False)
        lgm.Logistic("y", f=f + 1.0, observed=[0, 1, 1, 0])
        result = predict(make_trace(), gp, XNEW, progressbar=False)["predictions"]
    assert set(result.data_vars) == {
        "f_mean",
        "f_variance",
        "f_conditional_mean",
        "f_conditional_variance",
    }


@pytest.mark.parametrize("repeat", [1, 3])
def test_one_factorization_for_each_distinct_theta(repeat):
    model, gp = gp_model()
    idata = make_trace(repeat=repeat)
    before = tally.cubic_ops
    result = predict(idata, gp, XNEW, model=model, progressbar=False)["predictions"]
    assert tally.cubic_ops - before == 10
    once = predict(make_trace(), gp, XNEW, model=model, progressbar=False)["predictions"]
    xr.testing.assert_allclose(result["f_mean"], once["f_mean"])


def test_a_moving_mean_does_not_refactorize_and_is_not_forgotten():
    model, gp = gp_model()
    idata = make_trace(chains=1)
    idata["posterior"]["ls"][:] = idata["posterior"]["eta"][:] = 1.3
    before = tally.cubic_ops
    result = predict(idata, gp, XNEW, model=model, progressbar=False)["predictions"]
    assert tally.cubic_ops - before == 1
    for i in np.ndindex(1, 5):
        mean, _ = dense(idata["posterior"], i)
        np.testing.assert_allclose(result["f_conditional_mean"].values[i], mean, atol=1e-10)


def test_dims_coords_and_thinning():
    model, gp = gp_model()
    idata = make_trace(draws=600)
    Xnew = pd.DataFrame({"x": XNEW[:, 0]}, index=["a", "b", "c"])
    tree = predict(idata, gp, Xnew, model=model, dims="site", progressbar=False)
    assert set(tree.children) == {"predictions", "predictions_constant_data"}
    result = tree["predictions"]
    assert result["f_conditional_mean"].dims == ("chain", "draw", "site")
    assert result["y_probability"].dims == result["f_variance"].dims == ("site",)
    assert result["site"].values.tolist() == ["a", "b", "c"]
    assert result["draw"].values.tolist() == list(range(0, 600, 2))  # 2 x 600 draws, at most 1000
    assert tree["predictions_constant_data"]["Xnew"].sel(site="c", feature="x") == 5.0
    few = predict(idata, gp, XNEW, model=model, thin=100, progressbar=False)["predictions"]
    assert few["draw"].values.tolist() == [0, 100, 200, 300, 400, 500]
    assert few["point"].values.tolist() == [0, 1, 2]
    kept = result["f_conditional_mean"].sel(draw=few["draw"]).values
    np.testing.assert_array_equal(few["f_conditional_mean"].values, kept)
    np.testing.assert_allclose(few["y_variance"], few["y_mean"] * (1 - few["y_mean"]))
    spread = few["f_conditional_mean"].var(("chain", "draw"))
    noise = few["f_conditional_variance"].mean(("chain", "draw"))
    np.testing.assert_allclose(few["f_variance"], spread + noise)


def test_extending_the_trace():
    model, gp = gp_model()
    idata = make_trace()
    for points in (XNEW, XNEW[:2]):
        tree = predict(idata, gp, points, model=model, extend_inferencedata=True, progressbar=False)
        assert tree is idata
        assert idata["predictions"].sizes["point"] == len(points)
    assert "posterior" in idata.children


def test_errors_say_what_to_write():
    model, gp = gp_model()
    idata = make_trace()
    other, _ = gp_model()

    def go(idata=idata, gp=gp, Xnew=XNEW, model=model, **kwargs):
        predict(idata, gp, Xnew, model=model, progressbar=False, **kwargs)

    with pytest.raises(ValueError, match=r"\(3, 2\) and gp.X has 1 column"):
        go(Xnew=np.ones((3, 2)))
    with pytest.raises(ValueError, match="Xnew has no rows"):
        go(Xnew=np.empty((0, 1)))
    with pytest.raises(ValueError, match="have a dimension 'draw' already"):
        go(dims="draw")
    with pytest.raises(ValueError, match=r"Xnew\[1\] is \[nan\]"):
        go(Xnew=[[1.0], [np.nan]])
    with pytest.raises(ValueError, match="not a variable of this model"):
        go(model=other)
    with pytest.raises(ValueError, match="gp has no f"):
        go(gp=pm.gp.Latent())
    with pytest.raises(ValueError, match="gp is a Marginal"):
        go(gp=pm.gp.Marginal())
    posterior = idata["posterior"].to_dataset()
    for missing, message in [
        ("f", r"f is not in the posterior .* 'f' in it"),
        ("ls", r"no \['ls'\]"),
        ("mu", r"no \['mu'\]"),
    ]:
        without = xr.DataTree.from_dict({"posterior": posterior.drop_vars(missing)})
        with pytest.raises(ValueError, match=message):
            go(idata=without)
    with pytest.raises(ValueError, match="f is not in the posterior"):
        go(idata=xr.DataTree())
    with pytest.raises(ValueError, match="thin is 0"):
        go(thin=0)
    short = xr.DataTree.from_dict({"posterior": posterior.isel(f_dim_0=slice(3))})
    with pytest.raises(ValueError, match=r"\(3,\) in the posterior, but gp.X has 4 rows"):
        go(idata=short)
    singular, gp = gp_model(X=np.zeros((4, 1)), reparameterize=True, jitter=0.0)
    with pytest.raises(np.linalg.LinAlgError, match=r"draw 0, at \['ls', 'eta'\] = "):
        go(model=singular, gp=gp)


def test_auc_counts_ties_one_half():
    # Pairs of a 1 and a 0: 0.4 beats 0.2, ties 0.4; 0.8 beats both: (1 + 0.5 + 2) / 4.
    curve = abstention_curve([0, 0, 1, 1], [0.2, 0.4, 0.4, 0.8], levels=[0.0])
    assert curve["auc"].item() == 3.5 / 4


def test_abstention_and_capacity_of_a_toy_case():
    y, p = [0, 1, 1, 0], [0.1, 0.9, 0.45, 0.7]
    curve = abstention_curve(y, p)
    assert list(curve.columns) == ["abstention", "accuracy", "auc"]
    np.testing.assert_allclose(curve.index, np.arange(51) / 100)
    assert np.isnan(curve.loc[0.5, ["accuracy", "auc"]]).all()
    # accuracy 1/2, 2/3, 1 at abstention 0, 1/4, 1/2; AUC 3/4, 1, 1
    expected = np.trapezoid([1 / 2, 2 / 3, 1], [0, 0.25, 0.5]) / 0.5
    assert capacity(y, p) == pytest.approx((expected, 0.9375))
    assert capacity([0, 1], [0.0, 1.0]) == (1.0, 1.0)  # never abstains
    assert capacity([1, 1], [0.6, 0.7])[0] == 1.0
    assert np.isnan(capacity([1, 1], [0.6, 0.7]).auc)


def test_abstention_of_several_classes():
    """At a level ρ what is told has a probability of (1 + 4 ρ) / 3."""
    y, p = [0, 1, 2, 0], [[0.8, 0.1, 0.1], [0.3, 0.4, 0.3], [0.1, 0.5, 0.4], [0.6, 0.2, 0.2]]
    curve = abstention_curve(y, p, levels=[0.0, 0.05, 0.125, 0.3, 0.5])
    np.testing.assert_allclose(curve["abstention"], [0.0, 0.0, 0.25, 0.75, 1.0])
    np.testing.assert_allclose(curve["accuracy"][:4], [0.75, 0.75, 2 / 3, 1.0])
    # Of each class against the others: all pairs right, 2 of 3, all.
    assert curve["auc"].iloc[0] == pytest.approx((1 + 2 / 3 + 1) / 3)
    # By accuracy 3/4, 2/3, 1, 1 at abstention 0, 1/4, 1/2, 3/4; by AUC 8/9, 1, and then one class.
    expected = np.trapezoid([3 / 4, 2 / 3, 1, 1], [0, 0.25, 0.5, 0.75]) / 0.75
    assert capacity(y, p) == pytest.approx((expected, (8 / 9 + 1) / 2))
    assert capacity([2, 0], np.eye(3)[[2, 0]]) == (1.0, 1.0)  # never abstains
    two = np.array([0.1, 0.9, 0.45, 0.7])
    assert capacity([0, 1, 1, 0], np.stack([1 - two, two], 1)) == capacity([0, 1, 1, 0], two)
    binary = abstention_curve([0, 1, 1, 0], two)
    pd.testing.assert_frame_equal(
        abstention_curve([0, 1, 1, 0], np.stack([1 - two, two], 1)), binary
    )


def test_log_predictive_density():
    assert log_predictive_density([1, 0], [0.8, 0.3]) == pytest.approx(np.log([0.8, 0.7]).mean())
    assert log_predictive_density([1], [0.0]) == -np.inf
    assert log_predictive_density([2], [[0.2, 0.3, 0.5]]) == pytest.approx(np.log(0.5))


def test_brier_score():
    y, p = [1, 0, 0], np.array([0.8, 0.3, 0.0])
    assert brier_score(y, p) == pytest.approx((0.04 + 0.09) / 3)
    assert brier_score(y, np.stack([1 - p, p], axis=1)) == pytest.approx(brier_score(y, p))
    assert (brier_score([0, 1], [0.0, 1.0]), brier_score([0, 1], [1.0, 0.0])) == (0.0, 1.0)
    rows = [[0.2, 0.3, 0.5], [0.6, 0.4, 0.0]]
    expected = (0.04 + 0.09 + 0.25 + 0.36 + 0.36) / 2
    assert brier_score([2, 1], rows) == pytest.approx(expected)
    assert brier_score([0, 2], np.eye(3)[[1, 1]]) == 2.0


def test_the_brier_score_is_proper():
    """On average no other probabilities have a smaller one than those that labels are drawn by."""
    rng = np.random.default_rng(1)
    p = rng.dirichlet(np.ones(4), size=20_000)
    y = (rng.uniform(size=(20_000, 1)) > p.cumsum(axis=1)).sum(axis=1)
    for other in (p**2, p**0.5, 0.9 * p + 0.025):
        other /= other.sum(axis=1, keepdims=True)
        assert brier_score(y, p) < brier_score(y, other)
    # E Σ_c (p_c − [y = c])² = 1 − Σ_c p_c², and y moves it by less than one.
    assert brier_score(y, p) == pytest.approx(1.0 - (p**2).sum(axis=1).mean(), abs=0.02)


@pytest.mark.parametrize(
    ("y", "p", "message"),
    [
        ([0, 1], [0.5], "y has shape"),
        ([], [], "y has shape"),
        ([1, 2], [0.5, 0.5], "counts from 0"),
        ([0, 1], [-1.2, 0.5], "outside"),
        ([0, 1], [np.nan, 0.5], "outside"),
        ([0, 1], [[0.3], [0.5]], r"shape \(2, 1\): give p\(y = 1\)"),
        ([0, 1], 0.5, r"shape \(\): give p\(y = 1\)"),
    ],
)
def test_scores_refuse_what_is_no_probability(y, p, message):
    for score in (log_predictive_density, brier_score, abstention_curve, capacity):
        with pytest.raises(ValueError, match=message):
            score(y, p)


# Classes


def classes_model(outputs):
    """Three classes: outputs of one process, or a process each."""
    with pm.Model() as model:
        ls = pm.LogNormal("ls", 0.0, 0.4)
        gps = [pm.gp.Latent(cov_func=pm.gp.cov.ExpQuad(1, ls=ls * (1.0 + k))) for k in range(3)]
        if outputs:
            gps, f = gps[0], gps[0].prior("f", X, n_outputs=3, reparameterize=False)
        else:
            f = [gp.prior(f"f{k}", X, reparameterize=False) for k, gp in enumerate(gps)]
        lgm.Softmax("y", f=f, observed=[0, 1, 2, 1])
    return model, gps


def classes_trace(outputs, draws=40):
    rng = np.random.default_rng(3)
    f = rng.normal(size=(1, draws, 3, 4))
    latents = {"f": f} if outputs else {f"f{k}": f[:, :, k] for k in range(3)}
    return f, az.from_dict(
        {"posterior": {"ls": np.exp(0.4 * rng.normal(size=(1, draws)))} | latents}
    )


@pytest.mark.fast("True")
@pytest.mark.parametrize("outputs", [True, False])
def test_classes_are_predicted_by_their_processes(outputs):
    model, gps = classes_model(outputs)
    _, idata = classes_trace(outputs)
    result = predict(idata, gps, XNEW, model=model, progressbar=False)["predictions"]
    one = [
        predict(idata, gp, XNEW, model=model, progressbar=False)["predictions"]
        for gp in ([] if outputs else gps)
    ]
    for k, alone in enumerate(one):
        name = f"f{k}_conditional_mean"
        np.testing.assert_allclose(result[name], alone[name])
        assert "y_mean" not in alone
    # Draws of f_new given each draw, and their softmax.
    if outputs:
        moments = [result[f"f_conditional_{what}"].values[0] for what in ("mean", "variance")]
        assert result["f_conditional_mean"].dims == ("chain", "draw", "output", "point")
    else:
        moments = [
            np.stack([result[f"f{k}_conditional_{what}"].values[0] for k in range(3)], axis=1)
            for what in ("mean", "variance")
        ]
    xi = np.random.default_rng(5).standard_normal((2000, *moments[0].shape))
    p = softmax(moments[0] + np.sqrt(moments[1]) * xi, axis=2).mean(axis=1)  # over draws
    error = p.std(axis=0) / np.sqrt(len(p))
    found = result["y_probability"]
    assert found.dims == ("point", "category")
    assert (np.abs(found.values.T - p.mean(axis=0)) < 4.5 * error + 1e-4).all()
    np.testing.assert_allclose(found.sum("category"), 1.0)
    np.testing.assert_allclose(result["y_mean"], found.values @ np.arange(3))


@pytest.mark.parametrize("classes", [2, 3, 6])
def test_probabilities_of_classes_are_those_of_their_softmax(classes):
    """For no spread; and of two, the logistic function of the difference."""
    rng = np.random.default_rng(1)
    mean = rng.normal(size=(classes, 5))
    op = lgm.Softmax.rv_type
    rows = response.dispatch(op)(None, mean, np.zeros_like(mean))
    np.testing.assert_allclose(rows[2:], softmax(mean, axis=0), atol=1e-12)
    if classes == 2:
        variance = rng.uniform(0.1, 2.0, size=mean.shape)
        binary = response.dispatch(lgm.Logistic.rv_type)
        expected = binary(None, mean[1] - mean[0], variance.sum(axis=0))[2]
        found = response.dispatch(op)(None, mean, variance)
        np.testing.assert_allclose(found[3], expected, atol=2e-4)


@pytest.mark.slow
def test_each_output_has_an_observation():
    """Of a process with outputs, as the likelihood reads them; they are called as in the model."""
    exposure, rng = np.array([1.0, 2.0]), np.random.default_rng(2)
    coords = {"species": ["oak", "elm"], "site": range(4)}
    with pm.Model(coords=coords) as model:
        gp = pm.gp.Latent(cov_func=pm.gp.cov.ExpQuad(1, ls=0.7))
        f = gp.prior("f", X, n_outputs=2, reparameterize=False, dims=("species", "site"))
        lgm.Probit("seen", f=f, observed=np.array([[0, 1, 1, 0], [1, 1, 0, 0]]))
        lgm.LogGaussianCox("counts", f=f, exposure=exposure[:, None], observed=np.ones((2, 4), int))
    draws = {"f": rng.normal(size=(1, 6, 2, 4))}
    idata = az.from_dict(
        {"posterior": draws}, dims={"f": ["species", "site"]}, coords={"species": ["oak", "elm"]}
    )
    given = {"parameters": {"exposure": 2.0}, "model": model, "progressbar": False}
    found = predict(idata, gp, XNEW, **given)["predictions"]
    assert found["seen_probability"].dims == found["counts_mean"].dims == ("species", "point")
    np.testing.assert_array_equal(found["species"], ["oak", "elm"])
    with pm.Model() as one:
        gp = pm.gp.Latent(cov_func=pm.gp.cov.ExpQuad(1, ls=0.7))
        f = gp.prior("f", X, reparameterize=False)
        lgm.Probit("seen", f=f, observed=[0, 1, 1, 0])
        lgm.LogGaussianCox("counts", f=f, exposure=3.0, observed=[1, 1, 1, 1])
    for k in range(2):
        alone = az.from_dict({"posterior": {"f": draws["f"][:, :, k]}})
        expected = predict(alone, gp, XNEW, **given | {"model": one})["predictions"]
        for name in ("f_mean", "seen_probability", "counts_mean", "counts_variance"):
            np.testing.assert_allclose(found[name].isel(species=k), expected[name])
    with pytest.raises(ValueError, match=r"seen, counts has no parameter \{'offst'\}"):
        predict(alone, gp, XNEW, model=one, parameters={"offst": 1.0}, progressbar=False)


@pytest.mark.slow
def test_processes_in_another_order_are_not_the_classes():
    model, gps = classes_model(outputs=False)
    _, idata = classes_trace(outputs=False)
    result = predict(idata, gps[::-1], XNEW, model=model, progressbar=False)["predictions"]
    assert not [name for name in result if str(name).startswith("y_")]


def test_terms_of_a_probit_are_those_of_what_the_model_has_written():
    """PyMC writes it as erfc(-eta / sqrt(2)) / 2: the predictor is eta."""
    with pm.Model() as model:
        a, b = pm.Normal("a"), pm.Normal("b", shape=3)
        p = pm.math.invprobit(a + 2.0 * b)
        pm.Bernoulli("y", p=p, observed=[0, 1, 1])
    b = np.array([[[0.5, -1.0, 2.0]]])
    idata = az.from_dict({"posterior": {"a": np.array([[3.0]]), "b": b}})
    found = lgm.terms(idata, model=model)
    np.testing.assert_allclose(found["a"], 3.0)
    np.testing.assert_allclose(found["b"], 2.0 * b)


@pytest.mark.fast("True")
@pytest.mark.parametrize("is_sum", [False, True])
def test_terms_of_a_sum_are_its_parts_draw_by_draw(is_sum, monkeypatch):
    """Each is what its variables make it, and all together are the predictor of PyMC."""
    monkeypatch.setattr("pymc_lgm.model.forms.sum._is_cheaper", lambda *sizes: is_sum)
    n, rng = 6, np.random.default_rng(3)
    covariate, month = rng.standard_normal(n), np.arange(n) % 3
    with pm.Model(coords={"time": np.arange(10, 10 + n), "month": list("abc")}) as model:
        first = pm.Normal.dist(0, 1)
        trend = pm.GaussianRandomWalk(
            "trend", sigma=pm.HalfNormal("s"), init_dist=first, dims="time"
        )
        season = pm.Normal("season", 0, 0.5, dims="month")
        slope, mu = pm.Normal("slope"), pm.HalfNormal("mu")
        eta = pm.Deterministic("eta", mu + trend + 2.0 * season[month] + slope * covariate)
        pm.Poisson("y", pm.math.exp(eta), observed=np.ones(n), dims="time")
        shapes = {"trend": (n,), "season": (3,), "slope": (), "s": (), "mu": ()}
        posterior = {k: np.exp(rng.standard_normal((2, 3, *v))) for k, v in shapes.items()}
        idata = az.from_dict({"posterior": posterior})
        found = lgm.terms(idata)
        expected = {
            "trend": posterior["trend"],
            "season": 2.0 * posterior["season"][..., month],
            "slope": posterior["slope"][..., None] * covariate,
            "constant": np.broadcast_to(posterior["mu"][..., None], (2, 3, n)),
        }
        for name, values in expected.items():
            np.testing.assert_allclose(found[name].values, values, atol=1e-12)
        assert found["trend"].dims == ("chain", "draw", "time")
        np.testing.assert_array_equal(found["time"], np.arange(10, 10 + n))
        assert set(lgm.terms(idata, ["season"])) == {"season", "constant"}
        with pytest.raises(ValueError, match=r"\['mu'\] are not latent variables"):
            lgm.terms(idata, ["mu"])
    assert eta.name in model.named_vars


def test_a_term_named_as_the_constant_is_refused():
    """The part without latent variables would take its place."""
    with pm.Model():
        a, b = pm.Normal("constant"), pm.Normal("b")
        pm.Poisson("y", pm.math.exp(a + b * np.arange(3.0)), observed=[1, 2, 4])
        draws = {"constant": np.array([[0.5]]), "b": np.array([[2.0]])}
        idata = az.from_dict({"posterior": draws})
        with pytest.raises(ValueError, match=r"has the name 'constant'.*another name"):
            lgm.terms(idata)
        np.testing.assert_allclose(lgm.terms(idata, ["b"])["b"].values[0, 0], [0.0, 2.0, 4.0])


@pytest.mark.parametrize("is_sum", [False, True])
def test_an_observation_without_latent_variables_has_no_terms(is_sum, monkeypatch):
    """It is not in the predictor. It had the terms of the first observation."""
    monkeypatch.setattr("pymc_lgm.model.forms.sum._is_cheaper", lambda *sizes: is_sum)
    x = np.array([1.0, 0.0, 2.0])
    with pm.Model() as model:
        pm.Normal("y", pm.HalfNormal("mu") + pm.Normal("b") * x, observed=x)
    idata = az.from_dict({"posterior": {"mu": np.array([[0.5]]), "b": np.array([[3.0]])}})
    found = lgm.terms(idata, model=model)
    np.testing.assert_allclose(found["b"].values[0, 0], [3.0, np.nan, 6.0])
    np.testing.assert_allclose(found["constant"].values[0, 0], [0.5, np.nan, 0.5])


def test_the_order_of_axes_and_labels_in_a_trace_does_not_matter():
    """A sorted or transposed trace has the same draws. Their places were taken for their names."""
    labels = {"area": list("cab"), "year": [2020, 2021, 2022]}
    with pm.Model(coords=labels) as model:
        x = pm.AR("x", rho=[0.5], init_dist=pm.Normal.dist(0, 1), dims=("area", "year"))
        pm.Poisson("y", pm.math.exp(x), observed=np.ones((3, 3)), dims=("area", "year"))
    values = np.random.default_rng(0).normal(size=(2, 4, 3, 3))
    idata = az.from_dict({"posterior": {"x": values}}, dims={"x": ["area", "year"]}, coords=labels)
    draws = idata["posterior"].to_dataset().transpose("year", "draw", "area", "chain")
    turned = xr.DataTree.from_dict({"posterior": draws.sortby("area")})
    found = lgm.terms(turned, model=model)
    np.testing.assert_array_equal(found["x"], values)
    assert "".join(found["area"].values) == "cab"
    ahead = [predict(trace, x, steps=2, model=model, random_seed=1) for trace in (idata, turned)]
    xr.testing.assert_identical(*(each["predictions"].to_dataset() for each in ahead))


@pytest.mark.parametrize("reparameterize", [False, True])
def test_a_part_of_the_outputs_is_refused(reparameterize):
    """Every output had the prediction of the one that was in the trace."""
    with pm.Model() as model:
        gp = pm.gp.Latent(cov_func=pm.gp.cov.ExpQuad(1, ls=0.5))
        f = gp.prior("f", X, n_outputs=2, reparameterize=reparameterize)
        pm.Poisson("y", pm.math.exp(f), observed=np.ones((2, 4)))
    idata = az.from_dict({"posterior": {"f": np.arange(8.0).reshape(1, 1, 2, 4)}})
    with pytest.raises(ValueError, match=r"outputs of shape \(1,\) in the posterior, and \(2,\)"):
        predict(idata.isel(f_dim_0=[1]), gp, X, model=model, progressbar=False)


def test_labels_of_the_model_in_another_order_are_refused():
    """Draws followed the labels, and X did not: the mean at X was that of another point."""
    y = np.array([0, 3, 1, 2])
    with pm.Model(coords={"site": list("abcd")}) as model:
        gp = pm.gp.Latent(cov_func=pm.gp.cov.ExpQuad(1, ls=0.5))
        f = gp.prior("f", X, reparameterize=False, dims="site")
        pm.Poisson("y", pm.math.exp(f), observed=y, dims="site")
    values = np.array([-1.0, 0.5, 2.0, 1.0])
    groups = {"posterior": {"f": values[None, None]}, "observed_data": {"y": y}}
    dims = {"f": ["site"], "y": ["site"]}
    idata = az.from_dict(groups, dims=dims, coords={"site": list("abcd")})
    for trace in (idata, idata.isel(site=[2, 0, 3, 1])):
        found = predict(trace, gp, X, model=model, progressbar=False)["predictions"]
        np.testing.assert_allclose(found["f_mean"], values, atol=1e-4)
    with pytest.raises(ValueError, match="the label 'a' of 'site' more than once"):
        predict(idata.isel(site=[0, 0, 1, 2]), gp, X, model=model, progressbar=False)
    model.set_dim("site", 4, coord_values=list("cabd"))
    with pytest.raises(ValueError, match=r"labels of \['site'\] are in another order"):
        predict(idata, gp, X, model=model, progressbar=False)
    with pytest.raises(ValueError, match="but y has the same values"):
        lgm.terms(idata, model=model)


def test_a_trace_is_one_whatever_its_wrapping_and_something_else_is_refused():
    with pm.Model() as model:
        a = pm.Normal("a")
        pm.Poisson("y", pm.math.exp(a + np.arange(3.0)), observed=[1, 2, 4])
    idata = az.from_dict({"posterior": {"a": np.arange(8.0).reshape(2, 4)}})
    node = idata.posterior
    for trace in (node, node.isel(draw=slice(None)), node.to_dataset()):
        xr.testing.assert_identical(lgm.terms(trace, "a", model), lgm.terms(idata, ["a"], model))
        assert lgm.efficiency(trace).equals(lgm.efficiency(idata))
    for wrong in (az.extract(idata), node.isel(chain=0), node.mean()):
        for use in (lgm.report, lgm.efficiency, lambda trace: lgm.terms(trace, model=model)):
            with pytest.raises(ValueError, match=r"without chain and draw.*isel\(chain=\[0\]\)"):
                use(wrong)


def test_terms_after_a_conditional_was_added_to_the_model():
    """It is not in the trace, and no density reads it: PyMC draws it by predictive sampling."""
    model, gp = gp_model()
    model.set_initval(model["ls"], 2.0)  # PyMC copies no such model
    expected = lgm.terms(make_trace(), model=model)
    with model:
        ahead = gp.conditional("ahead", XNEW)
        pm.Poisson("again", pm.math.exp(ahead))
    xr.testing.assert_identical(lgm.terms(make_trace(), model=model), expected)
    mu = model["mu"]
    known = lgm.terms(make_trace(), model=model, theta=[mu])
    np.testing.assert_allclose(known["f"] + known["constant"], expected["f"] + expected["mu"])
    assert {mu, ahead} < set(model.free_RVs)


def test_the_mean_of_a_process_is_in_its_term_unless_the_model_whitens_it():
    trace = make_trace(f_rotated_=np.random.default_rng(0).standard_normal((2, 5, 4)))
    f, mu = trace["posterior"]["f"].values, trace["posterior"]["mu"].values[..., None]
    found = lgm.terms(trace, model=gp_model()[0])
    np.testing.assert_allclose(found["f"], f)
    np.testing.assert_array_equal(found["mu"], 0.0)
    whitened = lgm.terms(trace, model=gp_model(reparameterize=True)[0])
    np.testing.assert_allclose(whitened["mu"], np.broadcast_to(mu, f.shape))


def test_terms_of_missing_observations_are_nan():
    y = np.ma.masked_array([[1, 9, 3], [9, 2, 0]], mask=[[0, 1, 0], [1, 0, 0]])
    with pm.Model(coords={"area": ["b", "a"], "day": [3, 4, 6]}) as model:
        mu = pm.math.exp(pm.Normal("u", shape=3) + np.zeros((2, 1)))
        with pytest.warns(pm.exceptions.ImputationWarning):
            pm.Poisson("y", mu, observed=y, dims=("area", "day"))
    draws = np.arange(6.0).reshape(1, 2, 3)
    found = lgm.terms(az.from_dict({"posterior": {"u": draws}}), model=model)["u"]
    assert found.dims == ("chain", "draw", "area", "day")
    assert list(found["day"]) == [3, 4, 6]
    expected = np.where(y.mask, np.nan, draws[:, :, None])
    np.testing.assert_array_equal(found, expected)


def test_terms_of_other_covariates_want_as_many_observations():
    with pm.Model():
        x = pm.Data("x", [0.0, 1.0, 2.0])
        pm.Poisson("y", pm.math.exp(pm.Normal("b") * x), observed=[1, 2, 4], shape=x.shape)
        pm.set_data({"x": [1.0, 2.0]})
        with pytest.raises(ValueError, match=r"\{'y': \(3,\)\}.*replace the observed data, too"):
            lgm.terms(az.from_dict({"posterior": {"b": np.zeros((1, 2))}}))


def test_terms_are_of_new_covariates_and_groups():
    with pm.Model() as model:
        x, group, y = pm.Data("x", [0.0, 1.0]), pm.Data("group", [0, 1]), pm.Data("seen", [1, 2])
        b, u = pm.Normal("b"), pm.Normal("u", shape=2)
        pm.Poisson("y", pm.math.exp(b * x + u[group]), observed=y, shape=x.shape)
    then = {"x": np.array([0.0, 1.0]), "group": np.array([0, 1]), "seen": np.array([1, 2])}
    draws = {"b": np.array([[2.0]]), "u": np.array([[[3.0, 4.0]]])}
    idata = az.from_dict({"posterior": draws, "constant_data": then})
    pm.set_data({"x": [5.0, 6.0, 7.0], "group": [1, 1, 0], "seen": [0, 0, 0]}, model=model)
    found = lgm.terms(idata, model=model)
    np.testing.assert_allclose(found["b"].values[0, 0], [10.0, 12.0, 14.0])
    np.testing.assert_allclose(found["u"].values[0, 0], [4.0, 4.0, 3.0])


def test_terms_of_effects_of_each_row_need_as_many_rows():
    with pm.Model() as model:
        x, y = pm.Data("x", [0.0, 1.0]), pm.Data("seen", [1, 2])
        e = pm.Normal("e", shape=x.shape)
        pm.Poisson("y", pm.math.exp(pm.Normal("b") * x + e), observed=y, shape=x.shape)
    draws = {"b": np.array([[2.0]]), "e": np.array([[[3.0, 4.0]]])}
    data = {"x": np.array([0.0, 1.0])}
    idata = az.from_dict({"posterior": draws, "constant_data": data})
    pm.set_data({"x": [5.0, 6.0]}, model=model)
    np.testing.assert_allclose(lgm.terms(idata, model=model)["e"].values[0, 0], [3.0, 4.0])
    pm.set_data({"x": [5.0, 6.0, 7.0], "seen": [0, 0, 0]}, model=model)
    with pytest.raises(
        ValueError, match=r"e has shape \(2,\) in the trace, and \(3,\) in the model"
    ):
        lgm.terms(idata, model=model)


@pytest.mark.parametrize("whitened", [False, True])
def test_terms_of_a_process_at_other_inputs_than_those_of_the_draws_are_refused(whitened):
    with pm.Model() as model:
        x = pm.Data("x", X)
        gp = pm.gp.Latent(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0))
        f = gp.prior("f", x, reparameterize=whitened)
        pm.Poisson("y", pm.math.exp(f + pm.Normal("b")), observed=[1, 2, 4, 2])
    draws = {"f_rotated_" if whitened else "f": np.zeros((1, 1, 4)), "b": np.zeros((1, 1))}
    idata = az.from_dict({"posterior": draws, "constant_data": {"x": X}})
    pm.set_data({"x": X + X**2}, model=model)
    with pytest.raises(ValueError, match="data x of the model have been replaced"):
        lgm.terms(idata, model=model)


def by_eigenvalues(K, v):
    """V √D v, where K = V D Vᵀ."""
    values, vectors = pt.linalg.eigh(K)
    return vectors @ (pt.sqrt(values) * v)


ROOTS = {
    "eigenvalues": by_eigenvalues,
    "inverse": lambda K, v: pt.linalg.inv(K) @ v,
    "solve": lambda K, v: pt.linalg.solve(K, np.eye(4)) @ v,
}


@pytest.mark.fast("eigenvalues")
@pytest.mark.parametrize("root", ROOTS)
def test_terms_of_other_roots_of_a_covariance_are_refused_at_other_inputs(root):
    """They have a value for each row, but not that of the process at the new inputs."""
    with pm.Model() as model:
        x = pm.Data("x", X[:, 0])
        K = pt.exp(-0.5 * (x[:, None] - x) ** 2) + 0.1 * np.eye(4)
        f = ROOTS[root](K, pm.Normal("v", shape=4))
        pm.Poisson("y", pm.math.exp(f + pm.Normal("b")), observed=[1, 2, 4, 2])
    draws = {"v": np.ones((1, 1, 4)), "b": np.zeros((1, 1))}
    idata = az.from_dict({"posterior": draws, "constant_data": {"x": X[:, 0]}})
    before = lgm.terms(idata, model=model)["v"].values[0, 0]
    expected = ROOTS[root](np.exp(-0.5 * (X - X.T) ** 2) + 0.1 * np.eye(4), np.ones(4)).eval()
    np.testing.assert_allclose(before, expected)
    pm.set_data({"x": (X + X**2)[:, 0]}, model=model)
    with pytest.raises(ValueError, match="data x of the model have been replaced"):
        lgm.terms(idata, model=model)


def test_terms_of_an_interpolation_are_of_new_points():
    """Columns of the right-hand side are new rows: their matrix K is that of the trace."""
    knots = np.linspace(0.0, 3.0, 4)[:, None]
    K = np.exp(-0.5 * (knots - knots.T) ** 2) + 0.1 * np.eye(4)
    with pm.Model() as model:
        x = pm.Data("x", X[:, 0])
        u = pm.Normal("u", shape=4)
        f = pt.linalg.solve(K, pt.exp(-0.5 * (knots - x) ** 2)).T @ u
        pm.Poisson("y", pm.math.exp(f), observed=[1, 2, 4, 2])
    values = np.arange(4.0)
    draws = {"u": values[None, None]}
    idata = az.from_dict({"posterior": draws, "constant_data": {"x": X[:, 0]}})
    pm.set_data({"x": (X + X**2)[:, 0]}, model=model)
    expected = np.exp(-0.5 * (X + X**2 - knots.T) ** 2) @ np.linalg.solve(K, values)
    np.testing.assert_allclose(lgm.terms(idata, model=model)["u"].values[0, 0], expected)


def test_the_term_of_a_whitened_process_is_its_values():
    model, _ = gp_model(reparameterize=True)
    whitened = np.random.default_rng(0).standard_normal((2, 5, 4))
    trace = make_trace(f_rotated_=whitened)
    found = lgm.terms(trace, model=model)
    for i in np.ndindex(2, 5):
        ls, eta, mu = (trace["posterior"][name].values[i] for name in ("ls", "eta", "mu"))
        r = (X - X.T) / ls
        L = np.linalg.cholesky(eta**2 * np.exp(-0.5 * r**2) + JITTER * np.eye(4))
        np.testing.assert_allclose(found["f"].values[i], L @ whitened[i], atol=1e-9)
        total = sum(found[name].values[i] for name in found)
        np.testing.assert_allclose(total, mu + L @ whitened[i], atol=1e-9)
