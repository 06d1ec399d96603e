"""The lines that users write, on real models: from the prior to the summary."""

from functools import partial

import arviz as az
import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm
import pytensor
import pytest

from models import COMPILED

import pymc_lgm as lgm

pytestmark = pytest.mark.usefixtures("interpreted")

X = np.linspace(0.0, 3.0, 20)[:, None]
X_NEW = np.array([[0.5], [3.5]])
ROUGH = np.sin(2 * X[:, 0]) + np.tile([0.3, -0.4], 10)


BINARY = (ROUGH > 0).astype(int)


@pytest.fixture(autouse=True)
def _no_windows():
    mpl.use("Agg")
    yield
    plt.close("all")


def latent():
    ls = pm.InverseGamma("ls", 3, 3)
    eta = pm.HalfNormal("eta", 2)
    gp = pm.gp.Latent(cov_func=eta**2 * pm.gp.cov.ExpQuad(1, ls=ls))
    return gp, gp.prior("f", X, reparameterize=False, dims="obs")


def classification(likelihood=lgm.Probit):
    with pm.Model(coords={"obs": np.arange(20)}) as model:
        gp, f = latent()
        likelihood("y", f=f, observed=BINARY, dims="obs")
    return model, gp


def counts():
    with pm.Model(coords={"obs": np.arange(20)}) as model:
        gp, f = latent()
        observed = np.round(np.exp(ROUGH + 1)).astype(int)
        lgm.LogGaussianCox("y", f=f, exposure=1.5, observed=observed, dims="obs")
    return model, gp


MODELS = {
    "Probit": classification,
    "Logistic": partial(classification, lgm.Logistic),
    "LogGaussianCox": counts,
}


def sample(**kwargs):
    """`pymc.sample`, a few draws of it."""
    options = {"tune": 8, "draws": 8, "chains": 2, "cores": 1, "random_seed": 5}
    quiet = {"progressbar": False, "compute_convergence_checks": False}
    return pm.sample(**(options | quiet | kwargs))


LINES = {
    "pm.sample()": lambda m: {},
    "step=lgm.ASIS()": lambda m: {"step": lgm.ASIS()},
    "step=[lgm.EllipticalSlice(f), pm.NUTS([ls, eta])]": lambda m: {
        "step": [lgm.EllipticalSlice(m["f"]), pm.NUTS([m["ls"], m["eta"]])]
    },
    'step=lgm.papers.WhitenedMetropolis(latent_move="slice")': lambda m: {
        "step": lgm.papers.WhitenedMetropolis(latent_move="slice")
    },
    'pseudo_marginal={"latent_move": "slice"}': lambda m: {
        "pseudo_marginal": {"latent_move": "slice"}
    },
}
# None: as many as the mode searches took.
FACTORIZATIONS = dict(zip(LINES, (None, 2, 1, 1, None), strict=True))
QUICK_LINES = ("pm.sample()", "step=lgm.ASIS()")
# Each line once, each model more than once.
EACH = [
    pytest.param(line, name, marks=[pytest.mark.slow] * (line not in QUICK_LINES))
    for line, name in zip(LINES, 3 * ("LogGaussianCox", "Logistic"), strict=False)
]


@pytest.mark.slow
@pytest.mark.parametrize(("line", "name"), EACH)
def test_one_process_and_two_draw_the_same(line, name):
    model, _ = MODELS[name]()
    with model:
        one = sample(**LINES[line](model))
        two = sample(**LINES[line](model), cores=2)
    for variable, values in one["posterior"].data_vars.items():
        assert np.isfinite(values).all()
        assert (values.std("draw") > 0).all()
        np.testing.assert_array_equal(values, two["posterior"][variable])
    if FACTORIZATIONS[line] is not None:
        # A NUTS that stays where it is costs nothing.
        assert (one["sample_stats"]["cubic_ops"] <= FACTORIZATIONS[line]).all()
        assert one["sample_stats"]["cubic_ops"].mean() > 0.7 * FACTORIZATIONS[line]
    assert ("log_evidence" in one["sample_stats"]) == (FACTORIZATIONS[line] is None)
    hmc = line in ("pm.sample()", "step=lgm.ASIS()")
    assert ("latent_step_size" in one["sample_stats"]) == hmc


@pytest.fixture(
    scope="module", params=[pytest.param("Probit", marks=pytest.mark.slow), "LogGaussianCox"]
)
def fitted(request):
    """(name, model, trace): of the default sampler as it is compiled for users, and of ASIS."""
    model, _ = MODELS[request.param]()
    with model:
        if request.param == "Probit":
            with pytensor.config.change_flags(**COMPILED):
                return request.param, model, sample(draws=200, tune=200)
        return request.param, model, sample(step=lgm.ASIS(), draws=60, tune=40)


def test_predictions_at_the_data_follow_f(fitted):
    _, model, idata = fitted
    with model:
        predictive = pm.sample_posterior_predictive(idata, random_seed=1, progressbar=False)
    drawn = predictive["posterior_predictive"]["y"]
    assert drawn.dims == ("chain", "draw", "obs")
    observed = model.rvs_to_values[model["y"]].data
    assert np.corrcoef(drawn.mean(("chain", "draw")), observed)[0, 1] > 0.5


def test_predictions_at_new_inputs(fitted):
    name, _, idata = fitted
    model, gp = MODELS[name]()
    with model:
        gp.conditional("f_new", X_NEW)
        drawn = pm.sample_posterior_predictive(
            idata, var_names=["f_new"], predictions=True, random_seed=1, progressbar=False
        )["predictions"]["f_new"]
    assert drawn.shape == (2, idata["posterior"].sizes["draw"], 2)
    # Between the data f is known better than beyond them.
    assert drawn[..., 0].std() < drawn[..., 1].std()


def test_prior_predictions(fitted):
    _, model, _ = fitted
    with model:
        prior = pm.sample_prior_predictive(draws=30, random_seed=1)
    assert prior["prior"]["f"].shape == (1, 30, 20)
    assert (prior["prior_predictive"]["y"] >= 0).all()


# A few hundred draws are too few for some of the twenty.
@pytest.mark.filterwarnings("ignore:Estimated shape parameter of Pareto distribution:UserWarning")
def test_leave_one_out(fitted):
    _, model, idata = fitted
    with model:
        scored = pm.compute_log_likelihood(idata.copy(), progressbar=False)
    assert scored["log_likelihood"]["y"].dims == ("chain", "draw", "obs")
    loo = az.loo(scored)
    assert loo.n_data_points == 20
    assert np.isfinite(loo.elpd)


def test_summary_and_plots(fitted):
    _, _, idata = fitted
    assert list(az.summary(idata, var_names=["ls", "eta"]).index) == ["ls", "eta"]
    az.plot_trace_dist(idata, var_names=["ls", "eta", "f"], backend="matplotlib")
    assert plt.get_fignums()


def test_efficiency(fitted):
    _, _, idata = fitted
    table = lgm.efficiency(idata, {"theta": ["ls", "eta"], "f": "f"})
    assert list(table.index) == ["theta", "f"]
    assert (table["cubic_ops"] > 1).all()
    assert (table["ess_per_second"] > 0).all()


@pytest.mark.slow
def test_fixing_a_parameter_keeps_the_sampler():
    with pm.do(counts()[0], {"eta": 1.3}):
        idata = sample()
    assert np.isfinite(idata["posterior"]["f"]).all()
    assert "log_evidence" in idata["sample_stats"]


def generative():
    with pm.Model(coords={"obs": np.arange(20)}) as model:
        _, f = latent()
        lgm.Logistic("y", f=f)
    return model


@pytest.mark.slow
def test_observing_later_keeps_the_sampler():
    with pm.observe(generative(), {"y": BINARY}):
        idata = sample()
    assert "log_evidence" in idata["sample_stats"]


CLONES = {
    "copy": lambda: counts()[0].copy(),
    "do": lambda: pm.do(counts()[0], {"eta": 1.3}),
    "observe": lambda: pm.observe(generative(), {"y": BINARY}),
}


@pytest.mark.slow
@pytest.mark.parametrize("clone", CLONES)
def test_a_clone_keeps_the_sampler_without_a_context(clone):
    idata = sample(model=CLONES[clone](), chains=1, tune=2, draws=2)
    assert "log_evidence" in idata["sample_stats"]


@pytest.mark.slow
def test_new_data_in_the_same_model():
    with pm.Model(coords={"obs": np.arange(20)}) as model:
        _, f = latent()
        y = pm.Data("labels", np.zeros(20, dtype=int), dims="obs")
        lgm.Logistic("y", f=f, observed=y, dims="obs")
        step = lgm.ASIS()
        zeros = sample(step=step, tune=20, draws=40)
        pm.set_data({"labels": np.ones(20, dtype=int)}, model=model)
        ones = sample(step=step, tune=20, draws=40)
    assert zeros["posterior"]["f"].mean() < 0 < ones["posterior"]["f"].mean()


# Exact samplers agree: as users run them, compiled and in two processes

EXACT = {
    "PseudoMarginal": (lgm.PseudoMarginal, 1_000),
    "WhitenedMetropolis": (lambda: lgm.papers.WhitenedMetropolis(latent_repeats=3), 5_000),
    "ASIS": (lgm.ASIS, 3_000),
}


def pima(reparameterize):
    """Diabetes of 20 women given glucose and body mass; whitened by the model, or by us."""
    table = lgm.datasets.load_pima().iloc[:20]
    inputs = table[["glucose", "mass"]].to_numpy(dtype=float)
    inputs = (inputs - inputs.mean(0)) / inputs.std(0)
    with pm.Model() as model:
        ls = pm.LogNormal("ls", 0.5, 0.5)
        eta = pm.LogNormal("eta", 0.0, 0.5)
        mu = pm.Normal("mu", 0.0, 1.0)
        gp = pm.gp.Latent(
            mean_func=pm.gp.mean.Constant(mu), cov_func=eta**2 * pm.gp.cov.Matern52(2, ls=ls)
        )
        f = gp.prior("f", inputs, reparameterize=reparameterize)
        if reparameterize:
            pm.Bernoulli("y", p=pm.math.invprobit(f), observed=table["y"])
        else:
            lgm.Probit("y", f=f, observed=table["y"])
    return model


@pytest.fixture(scope="module")
def nuts():
    with pima(reparameterize=True), pytensor.config.change_flags(**COMPILED):
        idata = sample(draws=1000, tune=600, cores=2)
    assert "tree_depth" in idata["sample_stats"]
    return moments(idata)


@pytest.mark.whole
@pytest.mark.parametrize("name", EXACT)
def test_exact_samplers_agree(name, nuts):
    make, draws = EXACT[name]
    with pima(reparameterize=False), pytensor.config.change_flags(**COMPILED):
        ours = moments(sample(step=make(), draws=draws, tune=1000, cores=2))
    for table in (ours, nuts):
        assert (table["ess"] > 100).all(), table
    z = (ours["mean"] - nuts["mean"]) / np.hypot(ours["mcse"], nuts["mcse"])
    assert (abs(z) < 5).all(), z


def moments(idata):
    """Posterior means of log theta, its square and some f, with their Monte Carlo errors."""
    posterior = idata["posterior"].to_dataset()
    values = {f"log {name}": np.log(posterior[name]) for name in ("ls", "eta")}
    values["mu"] = posterior["mu"]
    values |= {f"{name} squared": value**2 for name, value in values.items()}
    values |= {f"f {i}": posterior["f"][..., i] for i in (0, 7, 14)}
    rows = {
        name: {
            "mean": float(value.mean()),
            "mcse": float(az.mcse(value.values, method="mean")),
            "ess": float(az.ess(value.values, method="mean")),
        }
        for name, value in values.items()
    }
    return pd.DataFrame(rows).T
