"""`efficiency` reports ArviZ's numbers and divides them by the right costs."""

import time

from typing import ClassVar

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr

from pymc_lgm.diagnostics import efficiency

COLUMNS = [
    "ess_bulk",
    "ess_tail",
    "r_hat",
    "theta_acceptance",
    "latent_acceptance",
    "cubic_ops",
    "ess_per_1000_ops",
    "ess_per_second",
]


def ar1(rng, phi, chains, draws):
    """Return stationary AR(1) chains with unit variance, as (chains, draws)."""
    x = rng.normal(size=(chains, draws))
    for t in range(1, draws):
        x[:, t] = phi * x[:, t - 1] + np.sqrt(1 - phi**2) * x[:, t]
    return x


def make_trace(posterior, stats=None, sampling_time=None):
    """Return a DataTree as `pm.sample` would."""
    idata = az.from_dict({"posterior": posterior} | ({"sample_stats": stats} if stats else {}))
    if sampling_time is not None:
        idata["posterior"].attrs.update(sampling_time=sampling_time, tuning_steps=100)
    return idata


@pytest.fixture
def posterior():
    rng = np.random.default_rng(20)
    chains, draws = 4, 500
    f = rng.normal(size=(chains, draws, 2, 3))
    f[:, :, 1, 2] = ar1(rng, 0.8, chains, draws)
    return {
        "ls": rng.normal(size=(chains, draws, 2)),
        "eta": ar1(rng, 0.5, chains, draws),
        "f": f,
    }


def test_default_rows_are_the_variables_and_all(posterior):
    table = efficiency(make_trace(posterior))
    assert list(table.index) == ["ls", "eta", "f", "all"]
    assert list(table.columns) == COLUMNS
    assert (table.dtypes == np.float64).all()
    rows = table.drop(index="all")
    assert table.loc["all", "ess_bulk"] == rows["ess_bulk"].min()
    assert table.loc["all", "ess_tail"] == rows["ess_tail"].min()
    assert table.loc["all", "r_hat"] == rows["r_hat"].max()


def test_worst_element_by_arviz(posterior):
    table = efficiency(make_trace(posterior), groups={"theta": ["ls", "eta"], "f": "f"})
    assert list(table.index) == ["theta", "f"]
    elements = {
        "theta": [posterior["eta"], posterior["ls"][..., 0], posterior["ls"][..., 1]],
        "f": [posterior["f"][..., i, j] for i in range(2) for j in range(3)],
    }
    for row, draws in elements.items():
        bulk = min(float(az.ess(x, method="bulk")) for x in draws)
        assert table.loc[row, "ess_bulk"] == pytest.approx(bulk, rel=1e-12)
        labelled = [xr.DataArray(x, dims=["chain", "draw"]) for x in draws]
        tail = min(float(az.ess(x, method="tail")) for x in labelled)
        assert table.loc[row, "ess_tail"] == pytest.approx(tail, rel=1e-12)
        r_hat = max(float(az.rhat(x)) for x in draws)
        assert table.loc[row, "r_hat"] == pytest.approx(r_hat, rel=1e-12)


def test_ess_of_known_processes():
    """AR(1) with coefficient phi has N (1 - phi) / (1 + phi) effective draws; iid draws have N."""
    rng = np.random.default_rng(21)
    chains, draws = 4, 5000
    trace = make_trace({f"x{phi}": ar1(rng, phi, chains, draws) for phi in (0.0, 0.5, 0.9)})
    table = efficiency(trace)
    for phi in (0.0, 0.5, 0.9):
        expected = chains * draws * (1 - phi) / (1 + phi)
        assert table.loc[f"x{phi}", "ess_bulk"] == pytest.approx(expected, rel=0.15)
    assert table.loc["all", "r_hat"] < 1.01


def test_chains_that_disagree_have_large_r_hat(posterior):
    posterior["f"][0, :, 0, 1] += 5.0
    table = efficiency(make_trace(posterior))
    assert table.loc["f", "r_hat"] > 1.2
    assert table.loc["f", "ess_bulk"] < 20
    assert table.loc[["ls", "eta"], "r_hat"].max() < 1.05


def test_ess_per_second_and_attrs(posterior):
    table = efficiency(make_trace(posterior, sampling_time=2.5))
    np.testing.assert_array_equal(table["ess_per_second"], table["ess_bulk"] / 2.5)
    assert table.attrs["sampling_time"] == 2.5
    assert table.attrs["tuning_steps"] == 100
    assert (table.attrs["chains"], table.attrs["draws"]) == (4, 500)


def test_operations_of_kept_draws(posterior):
    ops = np.tile([1.0, 2.0, 3.0, 4.0, 5.0], (4, 100))  # 3 a draw, 4 * 500 * 3 = 6000 in all
    table = efficiency(make_trace(posterior, {"cubic_ops": ops}))
    assert (table["cubic_ops"] == 3.0).all()
    np.testing.assert_allclose(table["ess_per_1000_ops"], table["ess_bulk"] / 6, rtol=1e-14)
    assert table.attrs["total_cubic_ops"] == 6000.0


def test_statistics_stacked_by_two_steps(posterior):
    """PyMC stacks a statistic of two steps in a last dimension: ops add up, acceptances average."""
    ops = np.empty((4, 500, 2), dtype=np.int64)
    ops[...] = (2, 5)
    accept = np.empty((4, 500, 2))
    accept[...] = (0.25, np.nan)
    accept[0, :, 0] = 0.75  # one chain of four: mean 0.375
    stats = {"cubic_ops": ops, "theta_acceptance": accept, "latent_acceptance": accept[..., 1]}
    table = efficiency(make_trace(posterior, stats))
    assert (table["cubic_ops"] == 7.0).all()
    assert table.attrs["total_cubic_ops"] == 7.0 * 4 * 500
    assert (table["theta_acceptance"] == 0.375).all()
    assert table["latent_acceptance"].isna().all()


def test_statistics_are_read_by_dimension_name(posterior):
    idata = make_trace(posterior, {"cubic_ops": np.full((4, 500, 3), 2.0)})
    stats = idata["sample_stats"].to_dataset()
    idata["sample_stats"] = xr.DataTree(stats.transpose("cubic_ops_dim_0", "draw", "chain"))
    assert (efficiency(idata)["cubic_ops"] == 6.0).all()


def test_no_operations_give_infinite_efficiency(posterior):
    table = efficiency(make_trace(posterior, {"cubic_ops": np.zeros((4, 500))}))
    assert (table["cubic_ops"] == 0.0).all()
    assert np.isposinf(table["ess_per_1000_ops"]).all()


def test_absent_statistics_are_nan(posterior):
    absent = [name for name in COLUMNS if name not in ("ess_bulk", "ess_tail", "r_hat")]
    table = efficiency(make_trace(posterior))
    assert table[absent].isna().all(axis=None)
    assert table[["ess_bulk", "ess_tail", "r_hat"]].notna().all(axis=None)


def test_single_chain_has_no_r_hat(posterior):
    one = {name: values[:1] for name, values in posterior.items()}
    table = efficiency(make_trace(one, {"cubic_ops": np.ones((1, 500))}, sampling_time=1.0))
    assert table["r_hat"].isna().all()
    assert table[["ess_bulk", "ess_tail", "ess_per_1000_ops"]].notna().all(axis=None)


def test_constant_elements(posterior):
    """A triangular factor has a constant zero: R-hat skips it, and its ESS is not the least."""
    posterior["f"][:, :, 0, 0] = 0.0
    posterior["stuck"] = np.full((4, 500), 3.0)
    posterior["apart"] = np.repeat(np.arange(4.0)[:, None], 500, axis=1)
    table = efficiency(make_trace(posterior))
    assert 0.9 < table.loc["f", "r_hat"] < 1.1
    assert table.loc["f", "ess_bulk"] < 2000
    assert np.isnan(table.loc["stuck", "r_hat"])
    assert table.loc["stuck", "ess_bulk"] == 2000
    assert table.loc["apart", "r_hat"] > 100  # chains stuck at different points


def test_nan_draws_are_not_hidden(posterior):
    posterior["f"][1, 7, 0, 0] = np.nan
    table = efficiency(make_trace(posterior))
    assert table.loc[["f", "all"], "ess_bulk"].isna().all()
    assert table.loc[["ls", "eta"], "ess_bulk"].notna().all()


def test_discrete_and_empty_variables(posterior):
    rng = np.random.default_rng(22)
    posterior["switch"] = rng.integers(0, 2, size=(4, 500)).astype(bool)
    posterior["count"] = rng.poisson(3.0, size=(4, 500))
    posterior["none"] = np.empty((4, 500, 0))
    table = efficiency(make_trace(posterior))
    assert "none" not in table.index
    assert (table.loc[["switch", "count"], "ess_bulk"] > 1000).all()


def test_var_names_as_in_arviz(posterior):
    idata = make_trace(posterior)
    full = efficiency(idata)
    pd.testing.assert_frame_equal(
        efficiency(idata, var_names=["ls", "eta"]).drop(index="all"), full.loc[["ls", "eta"]]
    )
    assert list(efficiency(idata, var_names="~f").index) == ["ls", "eta", "all"]
    assert list(efficiency(idata, var_names="l", filter_vars="like").index) == ["ls", "all"]
    assert set(idata["posterior"].data_vars) == set(posterior)
    with pytest.raises(KeyError, match="lenghtscale"):
        efficiency(idata, var_names="lenghtscale")


def test_a_variable_may_be_in_two_groups(posterior):
    table = efficiency(make_trace(posterior), groups={"f": ["f"], "both": ("f", "eta")})
    assert table.loc["both", "ess_bulk"] <= table.loc["f", "ess_bulk"]


def test_dataset_and_dict_are_accepted(posterior):
    idata = make_trace(posterior)
    expected = efficiency(idata)
    pd.testing.assert_frame_equal(efficiency(idata["posterior"].to_dataset()), expected)


def test_no_posterior():
    idata = az.from_dict({"prior": {"a": np.zeros((1, 5))}})
    with pytest.raises(ValueError, match=r"no posterior group \(groups found: \['prior'\]\)"):
        efficiency(idata)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({"theta": ["ls", "lenght"]}, r"groups\['theta'\] names \['lenght'\].*'ls', 'eta', 'f'"),
        ({"theta": "lenght"}, r"groups\['theta'\] names \['lenght'\].*'ls', 'eta', 'f'"),
        ({"theta": []}, r"groups\['theta'\] is empty.*'ls', 'eta', 'f'"),
        ({}, r"groups is empty.*'ls', 'eta', 'f'"),
        (["ls", "eta"], r"groups is a list: write variables by label, as \{'theta': \['ls'\]\}"),
    ],
)
def test_bad_groups(posterior, groups, message):
    with pytest.raises(ValueError, match=message):
        efficiency(make_trace(posterior), groups)


def test_no_variable():
    idata = make_trace({"none": np.empty((2, 10, 0))})
    with pytest.raises(ValueError, match="holds no variable"):
        efficiency(idata)


@pytest.mark.slow
def test_nuts_trace(interpreted):
    with pm.Model():
        mu = pm.Normal("mu")
        x = pm.Normal("x", mu, shape=3)
        pm.Deterministic("total", x.sum())
        idata = pm.sample(
            draws=200,
            tune=100,
            chains=2,
            cores=1,
            random_seed=23,
            progressbar=False,
            compute_convergence_checks=False,
        )
    table = efficiency(idata, groups={"theta": "mu", "f": ["x", "total"]})
    seconds = idata["posterior"].attrs["sampling_time"]
    np.testing.assert_array_equal(table["ess_per_second"], table["ess_bulk"] / seconds)
    summary = az.summary(idata, round_to="none")
    assert table.loc["theta", "ess_bulk"] == pytest.approx(summary.loc["mu", "ess_bulk"])
    assert table.loc["f", "ess_bulk"] == pytest.approx(summary.drop("mu")["ess_bulk"].min())
    assert table.loc["f", "ess_tail"] == pytest.approx(summary.drop("mu")["ess_tail"].min())
    assert table.loc["f", "r_hat"] == pytest.approx(summary.drop("mu")["r_hat"].max())
    assert table[["theta_acceptance", "latent_acceptance", "cubic_ops"]].isna().all(axis=None)
    assert table.attrs["tuning_steps"] == 100


class CountingMetropolis(pm.Metropolis):
    """Metropolis that reports two operations per step, under the names of our steps."""

    stats_dtypes_shapes: ClassVar = {
        "cubic_ops": (np.int64, []),
        "theta_acceptance": (np.float64, []),
    }

    def astep(self, q0):
        point, _ = super().astep(q0)
        return point, [{"cubic_ops": 2, "theta_acceptance": 0.5}]


def test_two_steps_in_one_compound_step(interpreted):
    """Not only synthetic statistics: PyMC itself stacks what two steps report."""
    with pm.Model():
        a, b = pm.Normal("a"), pm.Normal("b")
        idata = pm.sample(
            draws=50,
            tune=10,
            chains=2,
            cores=1,
            step=[CountingMetropolis([a]), CountingMetropolis([b])],
            random_seed=24,
            progressbar=False,
            compute_convergence_checks=False,
        )
    assert idata["sample_stats"]["cubic_ops"].shape == (2, 50, 2)
    table = efficiency(idata)
    assert (table["cubic_ops"] == 4.0).all()
    assert table.attrs["total_cubic_ops"] == 4 * 2 * 50  # tuning is not counted
    assert (table["theta_acceptance"] == 0.5).all()


@pytest.mark.slow
def test_thousand_latents_take_seconds():
    rng = np.random.default_rng(25)
    idata = make_trace({"f": rng.normal(size=(4, 500, 1000))})
    efficiency(make_trace({"f": rng.normal(size=(2, 10))}))  # imports are not timed
    start = time.process_time()
    efficiency(idata)
    assert time.process_time() - start < 10
