"""Models that Bambi wrote are read, and sampled as well as NUTS samples them."""

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
import pytest

import pymc_lgm as lgm

bambi = pytest.importorskip("bambi")
# Bambi's use of pandas, which pandas warns of.
pytestmark = pytest.mark.filterwarnings("ignore::pandas.errors.Pandas4Warning")

# Formula, family, what else bambi.Model is given, and how many latent variables are integrated out.
MODELS = {
    "random slopes": ("normal ~ x + (x|g)", "gaussian", {}, 2 + 2 * 40),
    "centered": ("normal ~ x + (x|g)", "gaussian", {"noncentered": False}, 2 + 2 * 40),
    "binomial groups": ("p(hits, tries) ~ x + (1|g)", "binomial", {}, 2 + 40),
    "Bernoulli, crossed": ("binary ~ x + (1|g) + (1|h)", "bernoulli", {}, 2 + 40 + 20),
    "hsgp": ("count ~ x + hsgp(t, m=10, c=2)", "poisson", {}, 2 + 10),
}


def simulated(groups):
    rng = np.random.default_rng(groups)
    g, n = np.repeat(np.arange(groups), 8), 8 * groups
    h, x, t = rng.permutation(np.arange(n) % 20), rng.standard_normal(n), np.linspace(0, 1, n)
    u = rng.multivariate_normal([0, 0], [[0.3, 0.1], [0.1, 0.1]], groups)
    eta = 0.3 + 0.4 * x + u[g, 0] + u[g, 1] * x + 0.5 * np.sin(6 * t)
    share = 1 / (1 + np.exp(-eta))
    columns = {"g": g.astype(str), "h": h.astype(str), "x": x, "t": t, "tries": np.full(n, 10)}
    columns |= {"normal": rng.normal(eta, 0.8), "count": rng.poisson(np.exp(eta))}
    columns |= {"binary": rng.binomial(1, share), "hits": rng.binomial(10, share)}
    return pd.DataFrame(columns)


def build(name, groups=40):
    formula, family, options, _ = MODELS[name]
    model = bambi.Model(formula, simulated(groups), family=family, **options)
    model.build()
    return model


def default(model, **options):
    with model.backend.model:
        step = lgm.PseudoMarginal()
        return pm.sample(chains=2, cores=1, step=step, random_seed=1, progressbar=False, **options)


@pytest.mark.parametrize("name", MODELS)
def test_it_is_read_and_its_reading_is_right(name):
    model = build(name).backend.model
    read, point = lgm.read(model), model.initial_point()
    assert sum(point[value].size for value in read.latents) == MODELS[name][3]
    assert max(read.check(draws=3).values()) < 1e-8


def test_five_hundred_groups_with_levels_and_slopes():
    formula = "count ~ x + (x|g) + (1|h)"
    for options in ({}, {"noncentered": False}):
        model = bambi.Model(formula, simulated(500), family="poisson", **options)
        model.build()
        read = lgm.read(model.backend.model)
        assert len(read.theta_names) == 3
        assert max(read.check(draws=2).values()) < 1e-8


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_it_agrees_with_nuts_and_bambi_predicts_from_it(name):
    model = build(name)
    ours = default(model, draws=1000, tune=500)
    with model.backend.model:
        nuts = pm.sample(
            1000, tune=1000, chains=2, cores=1, random_seed=2, progressbar=False,
            target_accept=0.95, nuts_sampler="pymc",
        )  # fmt: skip
    names = [rv.name for rv in model.backend.model.free_RVs if not rv.ndim]
    assert float(az.rhat(ours, var_names=names).to_dataset().to_array().max()) < 1.03
    for each in names:
        a, b = (trace["posterior"][each] for trace in (ours, nuts))
        error = np.hypot(*(float(az.mcse(trace, var_names=each)[each]) for trace in (ours, nuts)))
        assert abs(float(a.mean() - b.mean())) < 5.5 * error
    new = simulated(40).iloc[:3]
    predicted = model.predict(ours, data=new, inplace=False)
    parameter = "p" if MODELS[name][1] in ("binomial", "bernoulli") else "mu"
    assert predicted["posterior"][parameter].shape == (2, 1000, 3)
