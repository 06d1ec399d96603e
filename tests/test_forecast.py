"""Series steps ahead: brute-force recursions, closed forms, PyMC's own draws; errors say what."""

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
import pytest
import xarray as xr

from scipy.special import ndtr
from scipy.stats import chi2, ks_2samp, kstest

import pymc_lgm as lgm

from pymc_lgm import forecasting
from pymc_lgm.forecasting import continued
from pymc_lgm.prediction import predict

pytestmark = pytest.mark.usefixtures("interpreted")

N, STEPS = 6, 5
LEVEL = 1e-3
"""Of all comparisons of a test together."""


def trace(rng, chains=2, draws=4, **shapes):
    """Draws of theta and x as a sampler could have left them; names with "sigma" are positive."""
    posterior = {name: 0.4 * rng.normal(size=(chains, draws, *s)) for name, s in shapes.items()}
    return az.from_dict(
        {"posterior": {k: np.exp(v) if "sigma" in k else v for k, v in posterior.items()}}
    )


def start():
    return pm.Normal.dist(0.0, 1.0)


def of_one_lag():
    rho, sigma = pm.Normal("rho"), pm.LogNormal("sigma")
    return pm.AR("x", rho=[rho], sigma=sigma, init_dist=start(), shape=N)


def of_two_lags_and_a_constant():
    rho, sigma = pm.Normal("rhos", shape=3), pm.LogNormal("sigma")
    return pm.AR("x", rho=rho, sigma=sigma, init_dist=start(), constant=True, steps=N - 2)


def of_three_fixed_lags():
    pm.LogNormal("sigma")
    return pm.AR("x", rho=[0.5, -0.2, 0.1], tau=4.0, init_dist=start(), shape=N)


def one_number_for_two_lags():
    sigma = pm.Deterministic("twice", 2.0 * pm.LogNormal("sigma"))
    return pm.AR("x", rho=pm.Normal("rho"), ar_order=2, sigma=sigma, init_dist=start(), shape=N)


def walk_with_drift():
    mu, sigma = pm.Normal("mu"), pm.LogNormal("sigma")
    return pm.GaussianRandomWalk("x", mu=mu, sigma=sigma, init_dist=start(), shape=N)


def walk_from_a_heavy_tail():
    sigma = pm.LogNormal("sigma")
    first = pm.StudentT.dist(3)
    return pm.GaussianRandomWalk("x", sigma=sigma, init_dist=first, steps=N - 1)


LAWS = {
    of_one_lag: lambda d: ([d["rho"]], 0.0, d["sigma"]),
    of_two_lags_and_a_constant: lambda d: (d["rhos"][1:], d["rhos"][0], d["sigma"]),
    of_three_fixed_lags: lambda d: ([0.5, -0.2, 0.1], 0.0, 0.5),
    one_number_for_two_lags: lambda d: ([d["rho"], d["rho"]], 0.0, 2.0 * d["sigma"]),
    walk_with_drift: lambda d: ([1.0], d["mu"], d["sigma"]),
    walk_from_a_heavy_tail: lambda d: ([1.0], 0.0, d["sigma"]),
}
"""Of each series ρ, c and σ in a draw."""

SHAPES = {"x": (N,), "rho": (), "rhos": (3,), "mu": (), "sigma": (), "level": ()}


def brute(x, lags, drift, sigma, steps=STEPS):
    """Mean and covariance of the steps to come, by dense algebra: T x = u + σ ε."""
    order, lags = len(lags), np.asarray(lags)
    T = np.eye(steps + order)
    for row in range(order, steps + order):
        T[row, row - order : row] = -lags[::-1]
    inverse = np.linalg.inv(T)
    noise = np.diag(np.r_[np.zeros(order), np.full(steps, sigma**2)])
    mean = inverse @ np.r_[x[-order:], np.full(steps, drift)]
    return mean[order:], (inverse @ noise @ inverse.T)[order:, order:]


@pytest.mark.parametrize("build", LAWS, ids=lambda f: f.__name__)
def test_the_moments_are_those_of_dense_algebra_draw_by_draw(build):
    idata = trace(np.random.default_rng(1), **SHAPES)
    with pm.Model() as model:
        x = build()
    result = predict(idata, x, steps=STEPS, model=model, random_seed=1)["predictions"]
    drawn = {name: idata["posterior"][name].values for name in SHAPES}
    for i in np.ndindex(2, 4):
        d = {name: values[i] for name, values in drawn.items()}
        mean, cov = brute(d["x"], *LAWS[build](d))
        np.testing.assert_allclose(result["x_conditional_mean"].values[i], mean, atol=1e-12)
        found = result["x_conditional_variance"].values[i]
        np.testing.assert_allclose(found, np.diag(cov), rtol=1e-12)
    mean, variance = result["x_conditional_mean"], result["x_conditional_variance"]
    over = ("chain", "draw")
    np.testing.assert_allclose(result["x_mean"], mean.mean(over))
    np.testing.assert_allclose(result["x_variance"], variance.mean(over) + mean.var(over))


def test_data_are_those_of_the_draws_in_the_law_and_of_the_steps_in_a_response():
    with pm.Model() as model:
        slow, size = pm.Data("slow", 0.5), pm.Data("size", 1.0)
        x = pm.AR("x", rho=[slow], sigma=1.0, init_dist=start(), shape=2)
        pm.Poisson("y", size * pm.math.exp(x), observed=[1, 2])
        double = pm.Deterministic("double", 2.0 * size)
    draws = {"x": np.array([[[0.0, 4.0]]]), "double": np.array([[2.0]])}
    idata = az.from_dict({"posterior": draws})
    idata["constant_data"] = xr.DataTree(xr.Dataset({"slow": 0.5, "size": 1.0}))
    response = {"twice": lambda x: 2.0 * size + 0.0 * x, "named": lambda x: double + 0.0 * x}
    pm.set_data({"size": 10.0}, model=model)
    ahead = predict(idata, x, steps=2, model=model, response=response)["predictions"]
    np.testing.assert_allclose(ahead["x_mean"], [2.0, 1.0])
    np.testing.assert_allclose(ahead["twice"], 20.0)
    np.testing.assert_allclose(ahead["named"], 20.0)
    pm.set_data({"slow": -0.5}, model=model)
    with pytest.raises(ValueError, match="data slow of the model have been replaced"):
        predict(idata, x, steps=2, model=model)


def test_an_observed_variable_in_the_law_has_the_value_of_the_draws():
    with pm.Model() as model:
        seen = pm.Data("seen", 0.5)
        sigma = pm.HalfNormal("sigma", 1.0, observed=seen)
        x = pm.AR("x", rho=[0.5], sigma=sigma, init_dist=start(), shape=2)
        pm.Poisson("y", pm.math.exp(x), observed=[1, 2])
        double = pm.Deterministic("double", 2.0 * sigma)
    draws = {"x": np.array([[[0.0, 4.0]]]), "double": np.array([[1.0]])}
    idata = az.from_dict({"posterior": draws})
    idata["observed_data"] = xr.DataTree(xr.Dataset({"sigma": 0.5}))
    response = {"named": lambda x: double + 0.0 * x}
    ahead = predict(idata, x, steps=1, model=model, response=response)["predictions"]
    np.testing.assert_allclose(ahead["x_variance"], 0.25)
    np.testing.assert_allclose(ahead["named"], 1.0)
    pm.set_data({"seen": 3.0}, model=model)
    with pytest.raises(ValueError, match="data seen of the model have been replaced"):
        predict(idata, x, steps=1, model=model)


def one_law(rng, lags, drift, sigma, draws=4000, steps=STEPS):
    """Paths of many draws that are all alike, and the moments of one."""
    values = {"x": np.tile([0.3, -1.0, 0.8, 0.4], (1, draws, 1))}
    with pm.Model() as model:
        rho = np.r_[drift, lags]
        x = pm.AR("x", rho=rho, sigma=sigma, init_dist=start(), constant=True, shape=4)
    options = dict.fromkeys(("parameters", "response", "thin", "compile_kwargs"))
    result = forecasting.forecast(
        *(az.from_dict({"posterior": values}), x, steps, model),
        **options,
        dims="step",
        random_seed=rng,
    )
    return result["x"].values[0], result


def test_moments_in_closed_form():
    rng, h = np.random.default_rng(2), np.arange(1, STEPS + 1)
    _, one = one_law(rng, [0.8], 0.5, 0.6, draws=1)
    long_run = 0.5 / (1 - 0.8)
    np.testing.assert_allclose(one["x_mean"], long_run + 0.8**h * (0.4 - long_run))
    np.testing.assert_allclose(one["x_variance"], 0.36 * (1 - 0.8 ** (2 * h)) / (1 - 0.64))
    _, walk = one_law(rng, [1.0], 0.5, 0.6, draws=1)
    np.testing.assert_allclose(walk["x_mean"], 0.4 + 0.5 * h)
    np.testing.assert_allclose(walk["x_variance"], 0.36 * h)
    # Of two lags, far ahead: the stationary law.
    a, b = 0.5, 0.3
    _, two = one_law(rng, [a, b], 0.5, 0.6, draws=1, steps=200)
    np.testing.assert_allclose(two["x_mean"][-1], 0.5 / (1 - a - b), rtol=1e-8)
    variance = (1 - b) * 0.36 / ((1 + b) * ((1 - b) ** 2 - a**2))
    np.testing.assert_allclose(two["x_variance"][-1], variance, rtol=1e-8)


def misfit(paths, lags, drift, sigma):
    """The least p-value, of three, that paths are normal as dense algebra says; Bonferroni."""
    mean, cov = brute(np.array([0.3, -1.0, 0.8, 0.4]), lags, drift, sigma)
    white = np.linalg.solve(np.linalg.cholesky(cov), (paths - mean).T)
    tests = [
        kstest(white.ravel(), "norm").pvalue,
        kstest((white**2).sum(axis=0), chi2(STEPS).cdf).pvalue,
        kstest(white.sum(axis=0) / np.sqrt(STEPS), "norm").pvalue,
    ]
    return min(1.0, 3 * min(tests))


def test_paths_have_the_law_of_the_recursion_and_that_of_pymcs_draws():
    rng, lags, drift, sigma = np.random.default_rng(3), [0.6, 0.3], 0.4, 0.5
    paths, _ = one_law(rng, lags, drift, sigma)
    assert misfit(paths, lags, drift, sigma) > LEVEL
    first = pm.DiracDelta.dist([0.8, 0.4])
    law = {"rho": np.r_[drift, lags], "sigma": sigma, "init_dist": first, "constant": True}
    drawn = pm.draw(pm.AR.dist(**law, shape=(4000, STEPS + 2)), random_seed=4)[:, 2:]
    pairs = [(paths[:, h], drawn[:, h]) for h in range(STEPS)]
    pairs.append((np.diff(paths).ravel(), np.diff(drawn).ravel()))
    assert min(ks_2samp(*pair).pvalue for pair in pairs) > LEVEL / len(pairs)


WRONG_LAWS = {
    "lags in reverse": lambda lags, drift, sigma: (lags[..., ::-1], drift, sigma),
    "drift forgotten": lambda lags, drift, sigma: (lags, np.zeros_like(drift), sigma),
    "variance as deviation": lambda lags, drift, sigma: (lags, drift, sigma**2),
}


@pytest.mark.mutant
@pytest.mark.parametrize("mutant", WRONG_LAWS)
def test_a_wrong_path_is_noticed(mutant, monkeypatch, dies):
    right = forecasting._of_draws
    monkeypatch.setattr(forecasting, "_of_draws", lambda *args: WRONG_LAWS[mutant](*right(*args)))
    lags, drift, sigma = [0.6, 0.3], 0.4, 0.5
    paths, _ = one_law(np.random.default_rng(3), lags, drift, sigma)
    dies(f"forecast: {mutant}", misfit(paths, lags, drift, sigma), below=1e-6)


def test_the_law_of_later_steps_given_the_data_is_that_of_a_longer_series():
    """Draws of x given normal data, in closed form: forecasts are the end of a longer posterior."""
    rng, rho, sigma, size = np.random.default_rng(12), 0.9, 0.7, 4000
    whole = np.eye(N + STEPS) - rho * np.eye(N + STEPS, k=-1)
    whole[0, 0] = sigma  # T of a first value that has variance 1
    inverse = np.linalg.inv(whole / sigma)
    K, y = inverse @ inverse.T, rng.standard_normal(N)
    gain = K[:, :N] @ np.linalg.inv(K[:N, :N] + 0.25 * np.eye(N))
    mean, cov = gain @ y, K - gain @ K[:N]
    drawn = rng.multivariate_normal(mean[:N], cov[:N, :N], size=size)
    with pm.Model() as model:
        x = pm.AR("x", rho=[rho], sigma=sigma, init_dist=start(), shape=N)
    idata = az.from_dict({"posterior": {"x": drawn[None]}})
    result = predict(idata, x, steps=STEPS, model=model, random_seed=rng)["predictions"]
    sd = np.sqrt(np.diag(cov))[N:]
    p = [
        kstest((result["x"].values[0, :, h] - mean[N + h]) / sd[h], "norm").pvalue
        for h in range(STEPS)
    ]
    assert min(p) > LEVEL / STEPS
    error = sd / np.sqrt(size)  # at most: the noise of the steps is integrated out
    assert (abs(result["x_mean"] - mean[N:]) < 4.5 * error).all()
    np.testing.assert_allclose(result["x_variance"], sd**2, rtol=4.5 * np.sqrt(2 / size))


FIELDS = {
    "walk": lambda n: (lgm.gmrf.RandomWalk, {"order": 1, "shape": n}),
    "walk of order 2": lambda n: (lgm.gmrf.RandomWalk, {"order": 2, "shape": n}),
    "walk with gaps of 2": lambda n: (
        lgm.gmrf.RandomWalk,
        {"order": 2, "locations": 2.0 * np.arange(n)},
    ),
    "season": lambda n: (lgm.gmrf.Seasonal, {"period": 4, "shape": n}),
    "season of two": lambda n: (lgm.gmrf.Seasonal, {"period": 2, "shape": n}),
}
"""Classes and arguments of fields of n elements."""


def as_variable(field, **options):
    """A field of N elements in the model of the context."""
    kind, arguments = FIELDS[field](N)
    return kind("x", **arguments, **options)


def longer_structure(field, n, scale):
    """R of n elements, scaled as a field of N is, and the constraints of the first N."""

    def structure(n, scale=False):
        kind, arguments = FIELDS[field](n)
        return kind.dist(**arguments, scale=scale).owner.op.structure

    short = structure(N, scale)
    factor = short.R[0, 0] / structure(N).R[0, 0]
    constraint = np.vstack([short.constraint, np.zeros((n - N, short.constraint.shape[1]))])
    return factor * structure(n).R.toarray(), constraint


@pytest.mark.parametrize("scale", [False, True], ids=["plain", "scaled"])
@pytest.mark.parametrize("field", FIELDS)
def test_an_intrinsic_field_goes_on_as_the_longer_field_does(field, scale):
    """Mean and variance given x, by the precision of all elements, without a constraint."""
    idata = trace(np.random.default_rng(21), x=(N,), sigma=())
    with pm.Model() as model:
        x = as_variable(field, sigma=pm.LogNormal("sigma"), scale=scale)
    result = predict(idata, x, steps=STEPS, model=model, random_seed=1)["predictions"]
    R, _ = longer_structure(field, N + STEPS, scale)
    covariance = np.linalg.inv(R[N:, N:])
    for i in np.ndindex(2, 4):
        draw, s = idata["posterior"]["x"].values[i], idata["posterior"]["sigma"].values[i]
        found = result["x_conditional_mean"].values[i]
        np.testing.assert_allclose(found, -covariance @ R[N:, :N] @ draw, atol=1e-10)
        found = result["x_conditional_variance"].values[i]
        np.testing.assert_allclose(found, s**2 * np.diag(covariance), rtol=1e-9)


def forecast_of_field(field="walk of order 2"):
    """The least p-value, after Bonferroni, that forecasts given normal data are those of a field.

    The posterior of all elements is computed densely, with the constraints of the first N.
    """
    rng, sigma = np.random.default_rng(22), 0.7
    R, C = longer_structure(field, N + STEPS, True)
    E = np.linalg.svd(C, full_matrices=True)[0][:, C.shape[1] :]
    prior = E @ np.linalg.solve(E.T @ R @ E / sigma**2, E.T)
    gain = prior[:, :N] @ np.linalg.inv(prior[:N, :N] + 0.25 * np.eye(N))
    mean, cov = gain @ rng.standard_normal(N), prior - gain @ prior[:N]
    drawn = rng.multivariate_normal(mean[:N], cov[:N, :N], size=4000, method="eigh")
    with pm.Model() as model:
        x = as_variable(field, sigma=sigma, scale=True)
    idata = az.from_dict({"posterior": {"x": drawn[None]}})
    result = predict(idata, x, steps=STEPS, model=model, random_seed=rng)["predictions"]
    white = np.linalg.solve(np.linalg.cholesky(cov[N:, N:]), (result["x"].values[0] - mean[N:]).T)
    p = [kstest(each, "norm").pvalue for each in white]
    p.append(kstest((white**2).sum(axis=0), chi2(STEPS).cdf).pvalue)
    return min(1.0, len(p) * min(p))


@pytest.mark.parametrize("field", FIELDS)
def test_forecasts_of_an_intrinsic_field_are_the_end_of_a_longer_posterior(field):
    assert forecast_of_field(field) > LEVEL


WRONG_FIELDS = {
    "as if not scaled": lambda x, law: (law[0], law[1], x.owner.op.dist_params(x.owner)[0]),
    "lags of order 1": lambda x, law: (pt.constant([1.0, 0.0]), law[1], law[2]),
    "a drift": lambda x, law: (law[0], law[1] - 0.1 * law[2], law[2]),
}


@pytest.mark.mutant
@pytest.mark.parametrize("mutant", WRONG_FIELDS)
def test_a_wrong_field_ahead_is_noticed(mutant, monkeypatch, dies):
    law = forecasting._of_field
    monkeypatch.setattr(forecasting, "_of_field", lambda x: WRONG_FIELDS[mutant](x, law(x)))
    dies(f"forecast: field, {mutant}", forecast_of_field(), below=1e-6)


def test_increments_are_read_from_a_structure():
    walk, season = lgm.gmrf.Structure.walk, lgm.gmrf.Structure.season
    for structure, expected in [
        (walk(2), [-1.0, 1.0]),
        (walk(3, 2), [1.0, -2.0, 1.0]),
        (season(5, 5), np.ones(5)),
        (walk(9, locations=2.0 * np.arange(9)), [-(0.5**0.5), 0.5**0.5]),
        (lgm.gmrf.Structure.of(walk(8, 2).R, np.eye(8)[[0, 7]]), [1.0, -2.0, 1.0]),
    ]:
        np.testing.assert_allclose(forecasting.increment(structure), expected, rtol=1e-12)
    months = walk(24, locations=1900.0 + np.arange(24) / 12.0)
    np.testing.assert_allclose(forecasting.increment(months), [-(12**0.5), 12**0.5], rtol=1e-8)
    uneven = np.r_[0.0, 1.0, np.arange(3.0, 8.0)]
    W = lgm.spatial.adjacency([(0, 1), (1, 2), (2, 3), (0, 3)], 6)
    for structure in [
        walk(3, cyclic=True),
        walk(7, cyclic=True),
        walk(7, 2, cyclic=True),
        walk(7, locations=uneven),
        walk(7, 2, locations=uneven),
        lgm.gmrf.Structure.map(W),
        lgm.gmrf.Structure.map(W[:4][:, :4]),
        lgm.gmrf.Structure.of(np.eye(4)),
        lgm.gmrf.Structure.map(lgm.spatial.adjacency([(1, 2)], 3)),
    ]:
        assert forecasting.increment(structure) is None


def test_each_path_goes_on_with_its_own_draw():
    """(path − its own mean) / its own deviation is standard normal, whatever theta is."""
    idata = trace(np.random.default_rng(5), chains=2, draws=400, **SHAPES)
    with pm.Model() as model:
        x = of_two_lags_and_a_constant()
    result = predict(idata, x, steps=STEPS, model=model, random_seed=6)["predictions"]
    z = (result["x"] - result["x_conditional_mean"]) / result["x_conditional_variance"] ** 0.5
    p = [kstest(z.values[..., h].ravel(), "norm").pvalue for h in range(STEPS)]
    assert min(p) > LEVEL / STEPS


def test_series_side_by_side():
    """Each has its own last values, and lags or deviations of its own or shared ones."""
    rng = np.random.default_rng(7)
    posterior = {
        "rho": 0.4 * rng.normal(size=(1, 3, 2, 2)),
        "sigma": np.exp(rng.normal(size=(1, 3))),
    }
    posterior |= {name: rng.normal(size=(1, 3, 2, N)) for name in ("x", "walk")}
    posterior["mu"] = rng.normal(size=(1, 3, 2))
    dims = {"x": ["market", "day"], "walk": ["market", "day"]}
    idata = az.from_dict({"posterior": posterior}, dims=dims, coords={"market": ["a", "b"]})
    with pm.Model() as model:
        rho, sigma = pm.Normal("rho", shape=(2, 2)), pm.LogNormal("sigma")
        x = pm.AR("x", rho=rho, sigma=sigma, init_dist=start(), shape=(2, N))
        mu = pm.Normal("mu", shape=2)
        walk = pm.GaussianRandomWalk("walk", mu=mu, sigma=sigma, init_dist=start(), shape=(2, N))
    both = {v.name: predict(idata, v, steps=STEPS, model=model)["predictions"] for v in (x, walk)}
    assert both["x"]["x"].dims == ("chain", "draw", "market", "step")
    assert both["x"]["market"].values.tolist() == ["a", "b"]
    for draw, k in np.ndindex(3, 2):
        s = posterior["sigma"][0, draw]
        laws = {"x": (posterior["rho"][0, draw, k], 0.0, s)}
        laws["walk"] = [1.0], posterior["mu"][0, draw, k], s
        for name, law in laws.items():
            mean, cov = brute(posterior[name][0, draw, k], *law)
            for key, expected in (("mean", mean), ("variance", np.diag(cov))):
                found = both[name][f"{name}_conditional_{key}"].values[0, draw, k]
                np.testing.assert_allclose(found, expected, atol=1e-12)


def test_dims_thinning_seeds_and_the_trace_itself():
    idata = trace(np.random.default_rng(8), draws=6, **SHAPES)
    with pm.Model():
        x = walk_with_drift()
        one, same, other = (
            predict(idata, x, steps=3, thin=2, dims="day", random_seed=seed)["predictions"]
            for seed in (1, np.random.default_rng(1), 2)
        )
        assert predict(idata, x, steps=3, extend_inferencedata=True) is idata
    assert idata["predictions"]["x"].dims == ("chain", "draw", "step")
    assert idata["predictions"].sizes["draw"] == 6
    assert one["x"].dims == ("chain", "draw", "day")
    assert one["day"].values.tolist() == [1, 2, 3]
    assert one["draw"].values.tolist() == [0, 2, 4]
    xr.testing.assert_equal(one["x"], same["x"])
    assert (one["x"] != other["x"]).all()
    # Paths meet the trace's theta draw by draw.
    level = idata["posterior"]["level"] + one["x"]
    np.testing.assert_array_equal(
        level.values, idata["posterior"]["level"].values[:, ::2, None] + one["x"].values
    )


def test_steps_have_the_dates_that_follow():
    """For coordinates at equal distances, which a user has named."""
    months = pd.date_range("1984-07", periods=N, freq="MS")
    for labels, expected in [
        (months, pd.date_range("1985-01", periods=3, freq="MS")),
        (1900 + 10 * np.arange(N), [1960, 1970, 1980]),
        (0.5 * np.arange(N), [3.0, 3.5, 4.0]),
        ([1, 2, 3, 5, 8, 13], None),
        (list("abcdef"), None),
        (months[[0, 1, 2, 4, 5, 3]], None),
    ]:
        values = np.zeros((1, 2, N))
        idata = az.from_dict(
            {"posterior": {"x": values}}, dims={"x": ["when"]}, coords={"when": labels}
        )
        with pm.Model(coords={"when": labels}):
            x = lgm.gmrf.RandomWalk("x", dims="when")
            found = predict(idata, x, steps=3)["predictions"]
            named = predict(idata, x, steps=3, dims="when")["predictions"]
        np.testing.assert_array_equal(found["step"], [1, 2, 3])
        assert ("when" in found.coords) == (expected is not None)
        np.testing.assert_array_equal(named["when"], [1, 2, 3] if expected is None else expected)
        if expected is not None:
            assert found["when"].dims == ("step",)
            np.testing.assert_array_equal(found["when"], expected)


@pytest.mark.parametrize("shape", [{"shape": N}, {"dims": "year"}])
def test_a_part_of_a_series_is_refused(shape):
    """Draws of the first elements are given all data, so that no forecast begins there."""
    with pm.Model(coords={"year": np.arange(2000, 2000 + N)}) as model:
        x = pm.AR("x", rho=[0.5], sigma=1.0, init_dist=start(), **shape)
    dim = shape.get("dims", "x_dim_0")
    coords, dims = {dim: np.arange(N) + (2000 if dim == "year" else 0)}, {"x": [dim]}
    idata = az.from_dict({"posterior": {"x": np.zeros((1, 4, N))}}, coords=coords, dims=dims)
    predict(idata, x, steps=2, model=model)
    with pytest.raises(ValueError, match=f"has {N - 2} elements of x, and the model more"):
        predict(idata.isel({dim: slice(0, N - 2)}), x, steps=2, model=model)


def test_a_part_of_the_series_with_parameters_of_all_is_refused():
    """The error was one of NumPy about shapes that do not fit."""
    with pm.Model() as model:
        start = pm.Normal.dist(0, 1)
        x = pm.AR("x", rho=[[0.5], [0.2]], sigma=[1.0, 2.0], init_dist=start, shape=(2, 3))
        pm.Poisson("y", pm.math.exp(x), observed=np.ones((2, 3)))
    idata = az.from_dict({"posterior": {"x": np.ones((1, 2, 2, 3))}})
    with pytest.raises(ValueError, match=r"series of shape \(1,\) in x, and the model has"):
        predict(idata.isel(x_dim_0=[1]), x, steps=2, model=model)


def test_steps_go_on_from_small_numbers_and_not_from_equal_ones():
    """Unsigned numbers that fall went on 255, 510, …; equal ones were all the same step."""
    falling = np.arange(3, dtype=np.uint8)[::-1]
    assert forecasting._labels_after(falling, 3).tolist() == [-1, -2, -3]
    assert forecasting._labels_after(np.array([254, 255], dtype=np.uint8), 2).tolist() == [256, 257]
    assert forecasting._labels_after(np.array([5, 5, 5]), 3) is None


def test_what_is_observed_of_later_steps():
    """In closed form by a likelihood of this package, by draws of any distribution."""
    idata = trace(np.random.default_rng(9), draws=1000, **SHAPES)
    with pm.Model():
        x, level = of_one_lag(), pm.Normal("level")
        lgm.Probit("y", f=x, observed=[0, 1, 1, 0, 1, 1])
        result = predict(
            idata,
            x,
            steps=STEPS,
            random_seed=1,
            response={
                "again": lambda x: lgm.Probit.dist(f=x),
                "return": lambda x: pm.Normal.dist(level, pm.math.exp(x)),
                "since": lambda ahead: ahead - x[-1] + level,
            },
        )["predictions"]
    mean, variance = result["x_conditional_mean"], result["x_conditional_variance"]
    p = ndtr(mean / np.sqrt(1.0 + variance)).mean(("chain", "draw"))
    np.testing.assert_allclose(result["y_probability"], p)
    np.testing.assert_allclose(result["y_variance"], p * (1 - p))
    share = result["again"].mean(("chain", "draw"))
    assert (abs(share - p) < 4.5 * np.sqrt(p * (1 - p) / 2000)).all()  # p = 7e-6 each
    theta, last = idata["posterior"]["level"], idata["posterior"]["x"].values[..., -1:]
    z = (result["return"] - theta) / np.exp(result["x"])
    assert kstest(z.values.ravel(), "norm").pvalue > LEVEL
    expected = result["x"].values - last + theta.values[..., None]
    np.testing.assert_allclose(result["since"].values, expected)


def test_a_response_has_the_shape_of_one_of_its_series():
    """One for all regions, and one for each, in either order."""
    with pm.Model(coords={"region": list("ba")}):
        common = pm.AR("common", rho=[0.5], init_dist=start(), shape=4)
        first = pm.Normal.dist(0, 1, shape=(2, 1))
        own = pm.AR("own", rho=[0.5], init_dist=first, shape=(2, 4))
        rng = np.random.default_rng(0)
        posterior = {"common": rng.normal(size=(2, 3, 4)), "own": rng.normal(size=(2, 3, 2, 4))}
        coords = {"region": list("ba")}
        idata = az.from_dict({"posterior": posterior}, coords=coords, dims={"own": ["region"]})
        for series in ([common, own], [own, common]):
            response = {
                "sum": lambda one, other: one + other,
                "all": lambda one, other: (one + other).sum(axis=0),
                "of_groups": lambda one, other: np.arange(3.0)[:, None] * (one + other)[0],
            }
            found = predict(idata, series, steps=3, response=response)["predictions"]
            assert found["sum"].dims == ("chain", "draw", "region", "step")
            expected = (found["common"] + found["own"]).transpose(*found["sum"].dims)
            np.testing.assert_allclose(found["sum"], expected)
            np.testing.assert_allclose(found["all"], expected.sum("region"))
            assert found["of_groups"].dims == ("chain", "draw", "of_groups_dim_0", "step")
            np.testing.assert_allclose(found["of_groups"][:, :, 2], 2.0 * expected[:, :, 0])


def test_a_name_in_a_response_adds_nothing_to_the_model():
    idata = trace(np.random.default_rng(3), **SHAPES)
    with pm.Model() as model:
        x = of_one_lag()
        before = list(model.named_vars)
        responses = {"y": lambda x: pm.Normal("y", x, 1e-9), "z": lambda x: pm.Normal("y", x, 1.0)}
        found = predict(idata, x, steps=2, response=responses)["predictions"]
    np.testing.assert_allclose(found["y"], found["x"], atol=1e-7)
    assert list(model.named_vars) == before


def test_exposures_of_later_steps():
    idata = trace(np.random.default_rng(10), **SHAPES)
    with pm.Model():
        x = walk_with_drift()
        lgm.LogGaussianCox("y", f=x, exposure=np.arange(1.0, N + 1), observed=np.ones(N, int))
        with pytest.raises(ValueError, match=r"exposure of y has one value .* 2 new points"):
            predict(idata, x, steps=2)
        given = {"exposure": [1.0, 3.0]}
        result = predict(idata, x, steps=2, parameters=given)["predictions"]
    log_rate = result["x_conditional_mean"] + result["x_conditional_variance"] / 2
    np.testing.assert_allclose(result["y_mean"], np.exp(log_rate).mean(("chain", "draw")) * [1, 3])


def test_a_series_that_explodes_is_no_warning():
    far = continued(np.ones(1), np.array([2.0]), np.zeros(3))
    np.testing.assert_array_equal(far, [2.0, 4.0, 8.0])
    with np.errstate(over="raise"):
        _, result = one_law(np.random.default_rng(1), [5.0], 0.0, 1.0, draws=2, steps=400)
    assert result["x_variance"][-1] == np.inf


def test_errors_say_what_to_write():
    idata = trace(np.random.default_rng(11), **SHAPES)
    with pm.Model() as other:
        foreign = of_one_lag()
    with pm.Model():
        x, level = of_one_lag(), pm.Normal("level")
        eta = pm.Deterministic("eta", level + x)
        gp = pm.gp.Latent(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0))
        seen = pm.AR("seen", [0.5], init_dist=start(), observed=np.zeros(4))
        heavy = pm.RandomWalk(
            "heavy", innovation_dist=pm.StudentT.dist(3), init_dist=start(), steps=3
        )
        uneven = pm.GaussianRandomWalk("uneven", mu=[0.0, 1.0], init_dist=start(), shape=3)
        alone = pm.GaussianRandomWalk("alone", init_dist=start(), shape=3)
        circle = lgm.gmrf.RandomWalk("circle", cyclic=True, shape=12)
        places = lgm.gmrf.RandomWalk("places", order=2, locations=[0.0, 1.0, 3.0, 4.0])
        both = lgm.gmrf.Interaction("both", (None, lgm.gmrf.Structure.walk(3)), shape=(2, 3))
        of_data = lgm.gmrf.Seasonal("of_data", period=2, observed=[1.0, 0.0, -1.0])
        for steps in (0, -1, 2.5, True, [1, 2]):
            with pytest.raises(ValueError, match=r"steps is .*: write the number of steps ahead"):
                predict(idata, x, steps=steps)
        for no_series, message in [
            (eta, r"'eta' is not a series \(an expression\).*pm\.AR.* add the rest to its draws"),
            (level, r"'level' is not a series \(its distribution is normal\)"),
            ("x", r"'x' is not a series \(str\)"),
            (gp, r"not a series \(Latent\)"),
            (heavy, r"'heavy' .* not univariate normal: write pm\.GaussianRandomWalk"),
            (uneven, r"'uneven' has innovations that differ from step to step.* one mu"),
            (circle, r"'circle' is .* a cyclic walk, .* Write the elements to come into the model"),
            (places, r"'places' is .* not at one distance"),
            (both, r"'both' is an intrinsic field .* or an interaction"),
            (of_data, r"of_data is observed"),
            (seen, r"seen is observed.*DiracDelta"),
            (foreign, r"x is not a variable of this model"),
            (alone, r"alone is not in the posterior .* 'alone' in it"),
        ]:
            with pytest.raises(ValueError, match=message):
                predict(idata, no_series, steps=2)
        assert predict(idata, foreign, steps=2, model=other)
        for both in ({}, {"Xnew": [[1.0]], "steps": 2}):
            with pytest.raises(ValueError, match=r"predict\(idata, x, steps=20\) for a series"):
                predict(idata, x, **both)
        with pytest.raises(ValueError, match=r"TensorVariable.* or steps= and a series"):
            predict(idata, x, [[1.0]])
        with pytest.raises(ValueError, match="response= is for a series"):
            predict(idata, gp, [[1.0]], response={"y": lambda f: f})
        for thin in (0, 1.5):
            with pytest.raises(ValueError, match=f"thin is {thin}"):
                predict(idata, x, steps=2, thin=thin)
        with pytest.raises(ValueError, match="The posterior has no draws"):
            predict(idata.isel(draw=slice(0)), x, steps=2)
        with pytest.raises(
            ValueError, match=r"x has the dimensions .* and 1 beside .*isel\(region"
        ):
            predict(idata.isel(x_dim_0=0), x, steps=2)
        with pytest.raises(
            ValueError, match=r"response\['y'\] returns an array of shape \(\) .*\(2,\)"
        ):
            predict(idata, x, steps=2, response={"y": lambda x: pt.sum(x)})
        for name in ("x_mean", "step", "draw"):
            with pytest.raises(ValueError, match=rf"response=\{{'{name}': \.\.\.\}} hides"):
                predict(idata, x, steps=2, response={name: lambda x: x})
        with pytest.raises(ValueError, match="There is no series"):
            predict(idata, [], steps=2)
        with pytest.raises(ValueError, match=r"parameters= is for a likelihood of one series"):
            predict(idata, [x, x], steps=2, parameters={"exposure": 2.0})
        with pytest.raises(ValueError, match=r"response is a function: write functions by name"):
            predict(idata, x, steps=2, response=lambda x: x)
        covariate = pm.Data("covariate", np.zeros(N))
        with pytest.raises(ValueError, match=r"path of shape \(2,\).* covariates .* pm\.set_data"):
            predict(idata, x, steps=2, response={"y": lambda x: x + covariate})
        with pytest.raises(ValueError, match=r"x has a dimension 'draw' already: write dims="):
            predict(idata, x, steps=2, dims="draw")
        posterior = idata["posterior"].to_dataset()
        without = xr.DataTree.from_dict({"posterior": posterior.drop_vars(["rho"])})
        with pytest.raises(ValueError, match=r"no \['rho'\], which prediction depends on"):
            predict(without, x, steps=2)
        without = xr.DataTree.from_dict({"posterior": posterior.drop_vars(["level"])})
        with pytest.raises(ValueError, match=r"no \['level'\], which"):
            predict(without, x, steps=2, response={"y": lambda x: x + level})


def test_the_terms_of_a_sum_go_on_together():
    """Each series as if it were alone, and a response to all of them, with a new group's effect."""
    with pm.Model() as model:
        first = pm.Normal.dist(0, 1)
        s, sd = pm.HalfNormal("s"), pm.HalfNormal("sd")
        level = pm.GaussianRandomWalk("level", sigma=s, init_dist=first, shape=6)
        cycle = pm.AR("cycle", rho=[-0.5, 0.2], sigma=0.3, init_dist=first, shape=6)
        effect = pm.Normal("effect", 0, sd, shape=2)
        mu = level + cycle + effect[np.arange(6) % 2]
        pm.Poisson("y", pm.math.exp(mu), observed=np.ones(6))
        rng, shape = np.random.default_rng(5), (4, 250)
        posterior = {
            "s": np.full(shape, 0.4),
            "sd": np.full(shape, 2.0),
            "level": rng.standard_normal((*shape, 6)),
            "cycle": rng.standard_normal((*shape, 6)),
            "effect": rng.standard_normal((*shape, 2)),
        }
        idata = az.from_dict({"posterior": posterior})
        response = {
            "eta": lambda level, cycle: level + cycle,
            "new": lambda level, cycle: level + cycle + pm.Normal.dist(0, sd),
        }
        tree = lgm.predict(idata, [level, cycle], steps=3, response=response, random_seed=1)
        alone = {
            x.name: lgm.predict(idata, x, steps=3, random_seed=1)["predictions"]
            for x in (level, cycle)
        }
    found = tree["predictions"]
    for name, other in alone.items():
        for moment in ("mean", "variance", "conditional_mean", "conditional_variance"):
            xr.testing.assert_allclose(found[f"{name}_{moment}"], other[f"{name}_{moment}"])
    np.testing.assert_allclose(found["eta"], found["level"] + found["cycle"])
    # Paths of the two are independent given the draw.
    noise = [found[name] - found[f"{name}_conditional_mean"] for name in alone]
    z = np.sqrt(1000) * float(xr.corr(*(each.isel(step=0) for each in noise)))
    assert abs(z) < 4.5
    effects = (found["new"] - found["eta"]).values
    np.testing.assert_allclose(effects.std(), 2.0, rtol=0.15)
    assert np.ptp(effects, axis=-1).max() < 1e-12  # one for all steps of a draw
    assert model.named_vars["effect"] is effect
