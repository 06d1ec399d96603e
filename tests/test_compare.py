"""Samplers compared: equal budgets, the table, what survives a failure, R-hat, plots."""

import re
import warnings

import arviz as az
import matplotlib
import models
import numpy as np
import pandas as pd
import pymc as pm
import pytest

import pymc_lgm as lgm

from pymc_lgm import comparison as module
from pymc_lgm.comparison import Comparison, compare_samplers
from pymc_lgm.diagnostics import efficiency

matplotlib.use("Agg")

QUICK = {"tune": 10, "chains": 2, "cores": 1, "random_seed": 3, "progressbar": False}
GROUPS = {"theta": ["mu", "ls", "eta"], "f": "f"}
SAMPLERS = {
    "AA": lgm.papers.WhitenedMetropolis,
    "twice": lambda: lgm.ASIS(latent_repeats=2),
}


def broken():
    raise RuntimeError("<no> such sampler")


@pytest.fixture(scope="module", autouse=True)
def _one_reading(interpreted):
    """One small model for all samplers, read once."""
    with models.reading_once():
        yield


@pytest.fixture(scope="module")
def model():
    return models.listed("logistic")


@pytest.fixture(scope="module")
def comparison(model):
    with pytest.warns(UserWarning, match=r"^broken failed: RuntimeError: <no> such sampler$"):
        return compare_samplers(
            {"AA": SAMPLERS["AA"], "broken": broken, "twice": SAMPLERS["twice"]},
            model,
            draws=120,
            **QUICK,
        )


def test_table_is_what_efficiency_says_of_each_trace(comparison):
    assert list(comparison.table.index) == ["AA", "broken", "twice"]
    for name, trace in comparison.idata.items():
        expected, row = efficiency(trace, GROUPS), comparison.table.loc[name]
        for group in GROUPS:
            assert row[f"ess_{group}"] == expected.loc[group, "ess_bulk"]
            assert row[f"r_hat_{group}"] == expected.loc[group, "r_hat"]
            for cost in ("per_1000_ops", "per_second"):
                assert row[f"ess_{group}_{cost}"] == expected.loc[group, f"ess_{cost}"]
        for column in ("theta_acceptance", "latent_acceptance", "cubic_ops"):
            assert row[column] == expected[column].iloc[0]
        assert row["seconds"] == trace["posterior"].attrs["sampling_time"]
        assert row["draws"] == 120
    assert comparison.table["cubic_ops"].dropna().tolist() == [1.0, 2.0]


def test_a_failure_is_a_row_of_nan(comparison):
    assert comparison.table.loc["broken"].isna().all()
    assert list(comparison.idata) == ["AA", "twice"]
    (error,) = comparison.failures.values()
    assert isinstance(error, RuntimeError)
    assert "broken failed: RuntimeError: <no> such sampler" in repr(comparison)
    assert "ess_theta" in repr(comparison)
    assert "&lt;no&gt; such sampler" in comparison._repr_html_()
    assert "<table" in comparison._repr_html_()


@pytest.mark.slow
def test_runs_are_those_of_pm_sample_with_the_same_seed(comparison, model):
    with model:
        trace = pm.sample(
            120,
            tune=10,
            chains=2,
            cores=1,
            random_seed=3,
            quiet=True,
            step=lgm.papers.WhitenedMetropolis(),
            compute_convergence_checks=False,
        )
    for name in ("f", "eta"):
        np.testing.assert_array_equal(
            trace["posterior"][name], comparison.idata["AA"]["posterior"][name]
        )


def test_r_hat_evolution_is_that_of_truncated_traces(comparison):
    r_hat = comparison.r_hat(every=30)
    assert r_hat.dims == ("sampler", "draw")
    assert r_hat["draw"].values.tolist() == [30, 60, 90, 120]
    for name, trace in comparison.idata.items():
        for end in (30, 60, 90, 120):
            part = trace["posterior"].to_dataset()[["mu", "ls", "eta"]].isel(draw=slice(0, end))
            worst = max(float(v) for v in az.rhat(part).data_vars.values())
            assert float(r_hat.sel(sampler=name, draw=end)) == pytest.approx(worst, rel=1e-12)
    last = comparison.r_hat("f").isel(draw=-1).sel(sampler="twice")
    assert float(last) == pytest.approx(comparison.table.loc["twice", "r_hat_f"], rel=1e-12)
    assert comparison.r_hat().sizes["draw"] == 20


def test_r_hat_of_a_shorter_trace_ends_in_nan(comparison):
    short = comparison.idata["AA"].isel(draw=slice(50))
    mixed = Comparison(comparison.table, comparison.idata | {"AA": short}, {}, comparison.groups)
    r_hat = mixed.r_hat(every=25)
    np.testing.assert_array_equal(
        np.isnan(r_hat.sel(sampler="AA")), [False, False, True, True, True][: r_hat.sizes["draw"]]
    )
    assert not np.isnan(r_hat.sel(sampler="twice")).any()
    figure = mixed.plot_autocorrelation(max_lag=80).viz["figure"].item()
    lengths = {len(line.get_xdata()) for line in figure.axes[0].lines}
    assert 81 in lengths
    _close()


def test_r_hat_refusals(comparison):
    with pytest.raises(ValueError, match=r"no group 'phi': write one of \['theta', 'f'\]"):
        comparison.r_hat("phi")
    assert comparison.r_hat(every=1)["draw"].values[:2].tolist() == [4, 8]
    one = {name: trace.isel(chain=[0]) for name, trace in comparison.idata.items()}
    single = Comparison(comparison.table, one, {}, comparison.groups)
    with pytest.raises(ValueError, match="chains=2"):
        single.r_hat()


def _close():
    matplotlib.pyplot.close("all")


@pytest.mark.parametrize("plot", ["plot_r_hat", "plot_autocorrelation", "plot_efficiency"])
def test_plots_without_a_backend(comparison, plot):
    assert isinstance(getattr(comparison, plot)(backend="none"), az.PlotCollection)


def test_plot_r_hat(comparison, tmp_path):
    plot = comparison.plot_r_hat(every=20)
    (ax,) = plot.viz["figure"].item().axes
    assert (ax.get_title(), ax.get_xlabel(), ax.get_ylabel()) == (
        "theta",
        "draws of each chain",
        "greatest R-hat",
    )
    level, *curves = ax.lines
    assert set(level.get_ydata()) == {1.01}
    expected = comparison.r_hat(every=20)
    for curve, name in zip(curves, ["AA", "twice"], strict=True):
        np.testing.assert_array_equal(curve.get_xdata(), expected["draw"])
        np.testing.assert_array_equal(curve.get_ydata(), expected.sel(sampler=name))
    _legend_is(plot, ["AA", "twice"])
    plot.savefig(tmp_path / "r_hat.png")
    _close()


@pytest.mark.slow
def test_plot_autocorrelation(comparison, tmp_path):
    plot = comparison.plot_autocorrelation(max_lag=10)
    figure = plot.viz["figure"].item()
    axes = figure.axes[:3]  # the fourth is empty
    assert [ax.get_title() for ax in axes] == ["mu", "ls", "eta"]
    for ax, name in zip(axes, ["mu", "ls", "eta"], strict=True):
        assert (ax.get_xlabel(), ax.get_ylabel()) == ("lag (draws)", "autocorrelation")
        _, *curves = ax.lines
        for curve, trace in zip(curves, comparison.idata.values(), strict=True):
            x = trace["posterior"][name].values
            np.testing.assert_allclose(curve.get_ydata()[1], np.mean([_lag_one(c) for c in x]))
            assert curve.get_xdata().tolist() == list(range(11))
    _legend_is(plot, ["AA", "twice"])
    plot.savefig(tmp_path / "autocorrelation.png")
    _close()


def _lag_one(x):
    z = x - x.mean()
    return (z[1:] * z[:-1]).sum() / (z**2).sum()


def test_plot_efficiency(comparison, tmp_path):
    figure = comparison.plot_efficiency().viz["figure"].item()
    titles = [
        f"{group}: {cost}"
        for group in ("theta", "f")
        for cost in ("ESS per 1000 operations", "ESS per second")
    ]
    assert [ax.get_title() for ax in figure.axes] == titles
    columns = [
        "ess_theta_per_1000_ops",
        "ess_theta_per_second",
        "ess_f_per_1000_ops",
        "ess_f_per_second",
    ]
    for ax, column in zip(figure.axes, columns, strict=True):
        aa, _, twice = comparison.table[column]
        assert [text.get_text() for text in ax.texts] == [
            f"AA: {aa:.3g}",
            "broken: failed",
            f"twice: {twice:.3g}",
        ]
        widths = [bar.get_paths()[0].get_extents().x1 for bar in ax.collections]
        np.testing.assert_allclose(widths, [aa, 0.0, twice])
        heights = [bar.get_paths()[0].get_extents().y1 for bar in ax.collections]
        assert heights == sorted(heights, reverse=True)
        assert ax.get_ylim()[1] > 2.5
    figure.savefig(tmp_path / "efficiency.png")
    _close()


def _legend_is(plot, names):
    (legend,) = plot.viz["figure"].item().legends
    assert [text.get_text() for text in legend.get_texts()] == names


@pytest.fixture
def short_pilot(monkeypatch):
    monkeypatch.setattr(module, "PILOT", 20)


@pytest.mark.slow
def test_equal_operations(model, short_pilot):
    table = compare_samplers(SAMPLERS, model, operations=40, **QUICK).table
    assert (table["cubic_ops"] * table["draws"]).tolist() == [40, 40]
    assert table["draws"].tolist() == [40, 20]


@pytest.fixture
def clock(monkeypatch):
    """Make a run of the first sampler last 2 s and 10 ms an iteration, of the second 20 ms."""
    sample, now, runs = pm.sample, [0.0], []

    def timed(draws, *, step, tune, callback, **kwargs):
        per_draw = 0.01 if isinstance(step, lgm.papers.WhitenedMetropolis) else 0.02
        now[0] += 2.0

        def tick(**told):
            now[0] += per_draw / kwargs["chains"]
            callback(**told)

        trace = sample(draws, step=step, tune=tune, callback=tick, **kwargs)
        trace["posterior"].attrs["sampling_time"] = 2.0 + per_draw * (tune + draws)
        runs.append((draws, tune))
        return trace

    monkeypatch.setattr(module.pm, "sample", timed)
    monkeypatch.setattr(module, "perf_counter", lambda: now[0])
    return runs


@pytest.mark.slow
def test_equal_seconds(model, clock, short_pilot):
    table = compare_samplers(SAMPLERS, model, seconds=2.6, **QUICK).table
    assert clock[::2] == [(20, 10)] * 2  # the pilots
    # (2.6 - 2) s / 10 ms - 10; the clock sees all draws but the first
    np.testing.assert_allclose(table["draws"].astype(float), [50, 20], atol=2)
    np.testing.assert_allclose(table["seconds"], 2.6, rtol=0.01)


@pytest.mark.slow
def test_a_budget_that_cannot_be_kept_fails_that_row_alone(model, short_pilot):
    samplers = {"AA": lgm.papers.WhitenedMetropolis, "none": lambda: [pm.Metropolis()]}
    with pytest.warns(
        UserWarning, match=r"none failed: ValueError: This sampler counts no O\(n³\) operations"
    ):
        table = compare_samplers(samplers, model, operations=50, **QUICK).table
    assert table["draws"].tolist() == [50, pd.NA]
    with (
        pytest.warns(UserWarning, match="fewer than 4 draws"),
        pytest.raises(ValueError, match="operations=3 allows fewer than 4") as raised,
    ):
        compare_samplers([lgm.papers.WhitenedMetropolis], model, operations=3, **QUICK)
    assert raised.value.__notes__ == [
        "Every sampler failed (WhitenedMetropolis): this is the last failure."
    ]


@pytest.mark.slow
def test_none_is_what_pymc_picks_and_sequences_are_labeled(model):
    with model, models.reading_once():
        quick = QUICK | {"tune": 10, "progressbar": True}
        found = compare_samplers([None, lgm.ASIS], draws=10, **quick)
        own = pm.sample(10, tune=10, chains=2, cores=1, random_seed=3, quiet=True)
    assert list(found.table.index) == ["default", "ASIS"]
    np.testing.assert_array_equal(found.idata["default"]["posterior"]["f"], own["posterior"]["f"])


def test_no_callback_keeps_pymc_from_picking_nutpie(model, monkeypatch):
    callbacks = {}

    def sample(draws, *, step, callback, **_):
        callbacks[step is None] = callback
        raise RuntimeError("seen enough")

    monkeypatch.setattr(module.pm, "sample", sample)
    with (
        pytest.warns(UserWarning, match="seen enough"),
        pytest.raises(RuntimeError, match="seen enough"),
    ):
        compare_samplers({"picked": None, "made": lgm.ASIS}, model, **QUICK)
    assert callbacks[True] is None
    assert callable(callbacks[False])


@pytest.mark.slow
@pytest.mark.parametrize("seed", [None, np.random.default_rng(1)])
def test_one_stream_of_random_numbers_for_all(model, seed):
    quick = QUICK | {"random_seed": seed, "tune": 5}
    found = compare_samplers({"a": lgm.ASIS, "b": lgm.ASIS}, model, draws=5, **quick).idata
    np.testing.assert_array_equal(found["a"]["posterior"]["f"], found["b"]["posterior"]["f"])


class Bar:
    """A progress bar that remembers where it has been when it was given a name."""

    def __init__(self, shown):
        self.shown, self.at, self.seen = shown, 0.0, []

    __enter__ = __exit__ = lambda self, *_: None

    def add_task(self, description, *, completed, total):
        self.total = total

    def advance(self, task, share):
        self.at += share

    def update(self, task, *, completed, refresh, description=None):
        self.seen.append((description, self.at))
        self.at = completed


@pytest.mark.slow
def test_one_bar_over_all_samplers(model, monkeypatch):
    bars = []
    monkeypatch.setattr(
        module, "create_simple_progress", lambda shown: bars.append(Bar(shown)) or bars[-1]
    )
    options = QUICK | {"progressbar": True, "tune": 5}
    compare_samplers({"first": lgm.ASIS, "second": lgm.ASIS}, model, draws=5, **options)
    (bar,) = bars
    assert (bar.shown, bar.total, bar.at) == (True, 2, 2)
    names, positions = zip(*bar.seen, strict=True)
    assert names == ("first", "second", None)
    np.testing.assert_allclose(positions, [0.0, 1.0, 2.0])


@pytest.mark.slow
def test_other_groups_and_an_infinite_ess(model):
    fixed = {"amplitude": "eta", "others": ["mu", "ls"]}
    found = compare_samplers(SAMPLERS, model, draws=20, groups=fixed, **QUICK)
    assert found.groups == {"amplitude": ["eta"], "others": ["mu", "ls"]}
    assert {"ess_amplitude", "r_hat_others", "ess_others_per_second"} <= set(found.table)
    assert "ess_f" not in found.table
    assert found.plot_r_hat(backend="none") is not None
    endless = found.table.assign(ess_others_per_1000_ops=[np.inf, np.nan])
    axes = (
        Comparison(endless, found.idata, {}, found.groups)
        .plot_efficiency()
        .viz["figure"]
        .item()
        .axes
    )
    assert [text.get_text() for text in axes[2].texts] == ["AA: inf", "twice: not counted"]
    _close()


def test_theta_is_the_continuous_free_variables_but_f():
    with pm.Model() as model:
        pm.Bernoulli("flag", 0.5)
        eta = pm.HalfNormal("eta")
        pm.Deterministic("eta2", eta**2)
        f = pm.MvNormal("f", mu=np.zeros(2), cov=eta * np.eye(2))
        lgm.Probit("y", f=f, observed=[0, 1])
    assert module._groups(model, None) == {"theta": ["eta"], "f": ["f"]}
    assert module._groups(model, {"a": "eta2"}) == {"a": ["eta2"]}
    with pm.Model() as fixed:
        pm.MvNormal("g", mu=np.zeros(2), cov=np.eye(2))
    assert module._groups(fixed, None) == {"f": ["g"]}


def _made(model):
    with model:
        return lgm.ASIS()


@pytest.mark.parametrize(
    ("samplers", "kwargs", "error", "message"),
    [
        ({}, {}, TypeError, r"samplers is {}: write {'name': lgm.ASIS, ...}."),
        (lgm.ASIS, {}, TypeError, "write {'name': lgm.ASIS, ...}."),
        ("ASIS", {}, TypeError, "samplers is 'ASIS'"),
        (_made, {}, TypeError, "write the class, or lambda: lgm.ASIS(...)."),
        ([lambda: lgm.ASIS()], {}, ValueError, "['<lambda>'] are not unique"),
        ([lgm.ASIS, lgm.ASIS], {}, ValueError, "['ASIS', 'ASIS'] are not unique"),
        ([lgm.ASIS], {"draws": 9, "seconds": 9}, ValueError, "not both draws and seconds"),
        ([lgm.ASIS], {"operations": -1}, ValueError, "operations=-1: write a positive number"),
        ([lgm.ASIS], {"seconds": np.nan}, ValueError, "seconds=nan: write a positive number"),
        ([lgm.ASIS], {"draws": 1.5}, ValueError, "for draws an integer"),
        ([lgm.ASIS], {"groups": {"a": "x"}}, ValueError, "groups['a'] names ['x']"),
        ([lgm.ASIS], {"step": 1}, TypeError, "write it as one of the samplers"),
    ],
)
def test_refusals(model, samplers, kwargs, error, message):
    samplers = {"a": _made(model)} if samplers is _made else samplers
    with warnings.catch_warnings(), pytest.raises(error, match=re.escape(message)):
        compare_samplers(samplers, model, **kwargs, **QUICK)


def test_no_swallowed_interrupt(model):
    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compare_samplers({"a": interrupted, "b": lgm.ASIS}, model, **QUICK)
