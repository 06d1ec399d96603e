"""report(): every defect is found, no healthy trace is blamed, and pages need nothing else."""

import itertools
import re
import sys

from html.parser import HTMLParser
from pathlib import Path

import arviz as az
import matplotlib
import models
import numpy as np
import pymc as pm
import pytest
import xarray as xr

from scipy.signal import lfilter
from scipy.stats import kstest

from pymc_lgm._report import verdicts
from pymc_lgm._report.healthy import HEALTHY
from pymc_lgm._report.numbers import _longest_stay, _moving, numbers
from pymc_lgm._report.pictures import _band, _chosen
from pymc_lgm.diagnostics import efficiency
from pymc_lgm.reporting import report

pytestmark = pytest.mark.usefixtures("quick")

matplotlib.use("Agg")

CHAINS, DRAWS = 4, 600
GROUPS = {"theta": ["ls", "eta"], "f": "f"}


def trace(chains=CHAINS, draws=DRAWS, plant=lambda posterior, stats: None, **attrs):
    """Return what a healthy default sampler would, with a defect planted in it."""
    rng = np.random.default_rng(3)
    shape = (chains, draws)
    posterior = {"ls": rng.normal(size=shape), "eta": rng.normal(size=shape)}
    posterior["f"] = rng.normal(size=(*shape, 5))
    stats = {
        "theta_acceptance": rng.uniform(0.4, 0.8, shape),
        "theta_scale": np.where(rng.uniform(size=shape) < 0.2, np.nan, 0.5),
        "latent_acceptance": rng.uniform(0.7, 0.9, shape),
        "latent_evaluations": rng.integers(1, 9, shape).astype(float),
        "latent_step_size": np.full(shape, 0.3),
        "log_evidence": rng.normal(-40.0, 1.0, shape),
        "log_evidence_sd": rng.uniform(0.02, 0.1, shape),
        "pareto_k": rng.uniform(-0.1, 0.6, shape),
        "n_importance": np.full(shape, 32.0),
        "mode_iterations": np.ones(shape),
        "cubic_ops": np.full(shape, 2),
        "numerical_rejections": np.zeros(shape, dtype=int),
    }
    plant(posterior, stats)
    idata = az.from_dict({"posterior": posterior, "sample_stats": stats}, dims={"f": ["year"]})
    idata["posterior"].attrs |= {"sampling_time": 2.0, "tuning_steps": 500} | attrs
    return idata


def slow(posterior):
    """Make eta creep, so that ESS is poor and statistics have something to explain."""
    x = posterior["eta"]
    for t in range(1, x.shape[1]):
        x[:, t] = 0.9 * x[:, t - 1] + 0.43 * x[:, t]


def moved_chain(posterior, stats):
    posterior["eta"][2] += 1.0


def slightly_moved_chain(posterior, stats):
    posterior["eta"][2] += 0.45


def creeping(posterior, stats):
    slow(posterior)


def stuck_chain(posterior, stats):
    posterior["ls"][1, 100:] = posterior["ls"][1, 100]


def long_stay(posterior, stats):
    posterior["ls"][1, 100:220] = posterior["ls"][1, 100]


def constant(posterior, stats):
    posterior["ls"][:] = 1.5


def infinite(posterior, stats):
    posterior["f"][0, 7, 2] = np.inf


def set_to(name, value, also=()):
    """Plant a statistic in a trace that mixes slowly; `also` leaves others out."""

    def plant(posterior, stats):
        slow(posterior)
        stats[name] = np.full((CHAINS, DRAWS), value)
        for other in also:
            del stats[other]

    return plant


def tuning_draws(posterior, stats):
    stats["theta_scale"][:, :50] = np.linspace(2.0, 0.5, 50)


def drifting(posterior, stats):
    stats["log_evidence"] += np.linspace(-3.0, 3.0, DRAWS)


def approximate(posterior, stats):
    stats["approximate_log_evidence"] = stats["log_evidence"] + 0.1


def one_chain_rejects(posterior, stats):
    stats["theta_acceptance"][3] = 0.0


def heavy_tail(posterior, stats):
    stats["pareto_k"] += 0.8


def lost_proposals(posterior, stats):
    stats["numerical_rejections"] += 1


def diverging(posterior, stats):
    stats["diverging"] = np.arange(DRAWS) % 100 == np.zeros((CHAINS, 1))


def tree_depth(posterior, stats):
    slow(posterior)
    stats["reached_max_treedepth"] = np.ones((CHAINS, DRAWS), dtype=bool)


WALK = ("log_evidence", "log_evidence_sd")

DEFECTS = {
    "moved chain": (moved_chain, "R-hat", "problem"),
    "slightly moved chain": (slightly_moved_chain, "R-hat", "warning"),
    "creeping": (creeping, "effective draws", "warning"),
    "stuck chain": (stuck_chain, "longest stay", "problem"),
    "long stay": (long_stay, "longest stay", "warning"),
    "constant": (constant, "constant", "warning"),
    "infinite": (infinite, "not finite", "warning"),
    "draws from tuning": (tuning_draws, "theta_scale", "warning"),
    "drift": (drifting, "log_evidence", "warning"),
    "approximate": (approximate, "approximate", "warning"),
    "one chain rejects": (one_chain_rejects, "theta_acceptance", "problem"),
    "estimates reject": (set_to("theta_acceptance", 0.1), "theta_acceptance", "warning"),
    "walk too far": (set_to("theta_acceptance", 0.1, WALK), "theta_acceptance", "warning"),
    "walk too near": (set_to("theta_acceptance", 0.9, WALK), "theta_acceptance", "warning"),
    "slice widths": (set_to("theta_evaluations", 40.0), "theta_evaluations", "warning"),
    "HMC": (set_to("latent_acceptance", 0.3), "latent_acceptance", "warning"),
    "latent walk": (
        set_to("latent_acceptance", 0.1, ("latent_evaluations",)),
        "latent_acceptance",
        "warning",
    ),
    "latent slice": (
        set_to("latent_acceptance", 0.02, ("latent_step_size",)),
        "latent_acceptance",
        "warning",
    ),
    "f evaluations": (set_to("latent_evaluations", 90.0), "latent_evaluations", "warning"),
    "f steps": (set_to("latent_step_size", 1e-3), "latent_step_size", "warning"),
    "noise": (set_to("log_evidence_sd", 0.9), "log_evidence_sd", "warning"),
    "heavy tail": (heavy_tail, "pareto_k", "warning"),
    "most importance draws": (set_to("n_importance", 64.0), "n_importance", "warning"),
    "long searches": (set_to("mode_iterations", 6.0), "mode_iterations", "warning"),
    "lost proposals": (lost_proposals, "numerical_rejections", "warning"),
    "divergences": (diverging, "diverging", "warning"),
    "deep trees": (tree_depth, "reached_max_treedepth", "warning"),
}


def blamed(found):
    return {verdict.subject: verdict.level for verdict in found.verdicts if verdict.level != "good"}


def test_a_healthy_trace_is_trusted():
    found = report(trace(), GROUPS)
    assert found.ok
    assert blamed(found) == {}
    assert all(verdict.advice == "Nothing to do." for verdict in found.verdicts)
    assert str(found).startswith("Trust these draws. Nothing to do.\n")
    told = {verdict.subject for verdict in found.verdicts}
    assert told == {"chains", "R-hat", "effective draws", "longest stay", "sampler statistics"}


def exactly(posterior, stats):
    """As `ExactMarginal` does: all jumps are accepted where the emulator is good."""
    slow(posterior)
    del posterior["f"]
    for name in [name for name in stats if name.startswith(("latent", "log", "pareto", "n_im"))]:
        del stats[name]
    stats["theta_acceptance"][:], stats["theta_steps"] = 0.98, np.zeros((CHAINS, DRAWS))


def whitened(posterior, stats):
    posterior["f_rotated_"] = posterior["f"] + 1.0


def test_a_report_has_the_names_that_the_user_wrote():
    """PyMC whitens f as f_rotated_, unless the user asks for that."""
    idata = trace(plant=whitened)
    assert "rotated" not in str(report(idata, backend="none"))
    assert "rotated" not in report(idata, backend="none")._repr_html_()
    assert "f_rotated_" not in efficiency(idata).index
    assert [*efficiency(idata, {"v": "f_rotated_"}).index] == ["v"]
    alone = idata["posterior"].to_dataset()[["f_rotated_"]]
    assert "f_rotated_" in efficiency(xr.DataTree.from_dict({"posterior": alone})).index


def test_an_emulator_is_no_walk_that_accepts_too_much():
    found = report(trace(plant=exactly), {"theta": ["ls", "eta"]})
    assert "theta_acceptance" not in blamed(found)

    def poor(posterior, stats):
        exactly(posterior, stats)
        stats["theta_acceptance"][:] = 0.1

    (verdict,) = (
        v
        for v in report(trace(plant=poor), {"theta": ["ls", "eta"]}).verdicts
        if v.subject == "theta_acceptance"
    )
    assert verdict.level != "good"
    assert 'ExactMarginal(move="nuts")' in verdict.advice


@pytest.mark.fast(
    "moved chain",
    "creeping",
    "stuck chain",
    "constant",
    "infinite",
    "draws from tuning",
    "drift",
    "approximate",
    "one chain rejects",
    "walk too far",
    "HMC",
    "heavy tail",
    "lost proposals",
)
@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_is_found_with_what_to_do(name):
    plant, subject, level = DEFECTS[name]
    found = report(trace(plant=plant), GROUPS)
    assert blamed(found)[subject] == level
    (verdict,) = (v for v in found.verdicts if v.subject == subject)
    assert verdict.advice != "Nothing to do."
    assert "{" not in str(found)
    levels = [v.level for v in found.verdicts]
    assert levels == sorted(levels, key=["problem", "warning", "good"].index)
    headline = "Do not use these draws yet" if "problem" in levels else "Use these draws with care"
    assert str(found).startswith(headline)


@pytest.mark.parametrize(("tuned", "advised"), [(500, 1000), (3000, 6000), (None, 2000), (0, 2000)])
def test_longer_is_twice_the_tuning_that_there_was(tuned, advised):
    found = report(trace(plant=moved_chain, tuning_steps=tuned), GROUPS)
    (verdict,) = (v for v in found.verdicts if v.subject == "R-hat")
    assert f"pm.sample(tune={advised})" in verdict.advice


def test_fewer_draws_than_must_be_effective_are_not_blamed_on_tuning():
    found = report(trace(1, 120), GROUPS)
    (verdict,) = (v for v in found.verdicts if v.subject == "effective draws")
    assert verdict.advice.startswith("Draw longer: more than 400 per chain")


@pytest.mark.slow
@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_is_the_only_one(name):
    """What is planted is blamed, with what it does to R-hat and ESS, and nothing else."""
    plant, subject, _ = DEFECTS[name]
    follow = {"R-hat", "effective draws", "longest stay"}
    assert set(blamed(report(trace(plant=plant), GROUPS))) - follow <= {subject}


@pytest.mark.parametrize("name", ["theta_acceptance", "log_evidence_sd", "n_importance"])
def test_odd_statistics_of_good_draws_are_harmless(name):
    def plant(posterior, stats):
        stats[name][:] = {"theta_acceptance": 0.1, "log_evidence_sd": 0.9, "n_importance": 64}[name]

    found = report(trace(plant=plant), GROUPS)
    assert found.ok
    (verdict,) = (v for v in found.verdicts if v.subject == name)
    assert "Harmless here" in verdict.sentence


def test_corrected_chains():
    good = report(trace(plant=approximate, importance_ess=900.0, pareto_k=0.3), GROUPS)
    few = report(trace(plant=approximate, importance_ess=90.0, pareto_k=0.3), GROUPS)
    heavy = report(trace(plant=approximate, importance_ess=90.0, pareto_k=0.9), GROUPS)
    found = [blamed(r).get("corrected", "good") for r in (good, few, heavy)]
    assert found == ["good", "warning", "problem"]
    assert "approximate" not in blamed(good)


def test_draws_through_inducing_variables_are_labeled():
    def plant(posterior, stats):
        stats["optimal_variational"] = np.ones((CHAINS, DRAWS), dtype=bool)

    found, other = report(trace(plant=plant), GROUPS), report(trace(), GROUPS)
    assert found.ok
    label = "Draws are of the optimal variational posterior, not of p(f, theta | y)."
    assert sum(verdict.sentence.startswith(label) for verdict in found.verdicts) == 1
    assert label in " ".join(str(found).split())
    assert "variational" not in str(other)


@pytest.mark.fast("1-1", "4-10")
@pytest.mark.parametrize(("chains", "draws"), [(1, 1), (1, 3), (2, 3), (1, 10), (4, 10), (2, 25)])
def test_short_chains_say_what_cannot_be_said(chains, draws, tmp_path):
    found = report(trace(chains, draws), path=tmp_path / "report.html")
    assert blamed(found)["draws"] == "problem"
    assert ("chains" in blamed(found)) == (chains < 4)
    assert not {"R-hat", "effective draws"} & {verdict.subject for verdict in found.verdicts}
    assert f"{chains} chain{'s' * (chains > 1)} of {draws} draw" in str(found)
    pictures = (tmp_path / "report.html").read_text().count("<figure>")
    assert (pictures > 0) == (draws >= 20)


@pytest.mark.parametrize("chains", [1, 2])
def test_few_chains(chains):
    found = report(trace(chains), GROUPS)
    assert blamed(found)["chains"] == "warning"
    assert ("R-hat" in {verdict.subject for verdict in found.verdicts}) == (chains > 1)


@pytest.mark.parametrize("groups", [None, GROUPS, {"all of it": ["f", "eta", "ls"]}])
def test_groups_are_those_of_efficiency(groups):
    idata = trace()
    table, expected = report(idata, groups).groups, efficiency(idata, groups)
    assert list(table.index) == list(expected.index)
    for column in ("ess_bulk", "ess_tail", "r_hat", "ess_per_1000_ops", "ess_per_second"):
        np.testing.assert_allclose(table[column], expected[column], rtol=1e-12)
    assert list(table["elements"])[-1] == (7 if groups != GROUPS else 5)


def test_elements_are_those_of_arviz():
    idata = trace(plant=moved_chain)
    elements, summary = report(idata).elements, az.summary(idata, round_to="none")
    assert list(elements.index[:2]) == ["ls", "eta"]
    assert list(elements["variable"]) == ["ls", "eta"] + ["f"] * 5
    for column in ("mean", "sd", "mcse_mean", "ess_bulk", "ess_tail", "r_hat"):
        np.testing.assert_allclose(elements[column], summary[column].astype(float), rtol=1e-10)


def test_the_longest_stay():
    rng = np.random.default_rng(0)
    for share in (0.0, 0.1, 0.6, 1.0):
        steps = rng.uniform(size=(1, 200)) < share
        values = np.cumsum(steps, axis=1).astype(float)
        expected = max(len(list(same)) for _, same in itertools.groupby(values[0]))
        assert _longest_stay(_moving(values[:, :, None])[0]) == expected


@pytest.mark.parametrize("healthy", HEALTHY, ids=lambda h: f"{h.statistic} {h}")
def test_ranges_are_those_of_the_documentation(healthy):
    page = (Path(__file__).parents[1] / "docs" / "sample_statistics.md").read_text()
    rows = [row for row in page.splitlines() if row.startswith(f"| `{healthy.statistic}` |")]
    if healthy.statistic in ("diverging", "reached_max_treedepth"):
        assert not rows  # of PyMC's samplers
        return
    (row,) = rows
    said = [float(number) for number in re.findall(r"\d+(?:\.\d+)?", row.split("|")[4])]
    assert {healthy.low, healthy.high} - {np.inf, -np.inf} <= set(said)


class Fetched(HTMLParser):
    """Collects what a page would fetch, its tags, and its text."""

    def __init__(self):
        super().__init__()
        self.urls, self.tags, self.open = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.urls += [value for name, value in attrs if name in ("src", "href", "srcset", "data")]
        if tag not in ("meta", "link", "img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def parsed(text):
    page = Fetched()
    page.feed(text)
    page.close()
    assert page.open == []
    return page


def test_a_page_is_self_contained_and_escapes_names(tmp_path):
    rng = np.random.default_rng(1)
    name = "<script>&\"x'"
    idata = az.from_dict(
        {"posterior": {name: rng.normal(size=(4, 200)), "f": rng.normal(size=(4, 200, 2))}},
        dims={"f": ["where"]},
        coords={"where": ["<b>here</b>", r"$\there$"]},
    )
    report(idata, {"<i>theta": name, "f": "f"}, path=tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    page = parsed(text)
    assert all(url.startswith("data:") for url in page.urls)
    assert page.tags.count("img") == page.tags.count("figure") == 2
    assert not {"script", "i", "iframe", "object"} & set(page.tags)
    assert "@import" not in text
    assert "url(" not in text
    assert "&lt;script&gt;" in text
    assert "&lt;b&gt;here" in text


@pytest.mark.slow
def test_pictures_show_a_few_elements_only():
    rng = np.random.default_rng(2)
    idata = az.from_dict(
        {"posterior": {"f": rng.normal(size=(4, 200, 300)), "ls": rng.normal(size=(4, 200))}}
    )
    computed = numbers(idata, None)
    chosen = _chosen(computed, "matplotlib")
    assert list(chosen.data_vars)[-1] == "ls"
    assert len(chosen.data_vars) == 4
    worst = computed.elements[["ess_bulk", "ess_tail"]].min(axis=1).drop("ls").nsmallest(3).index
    assert set(chosen.data_vars) == {*worst, "ls"}
    text = str(report(idata))
    assert len(text.splitlines()) < 40


def test_the_band_of_ranks_is_that_of_independent_draws_and_blames_a_moved_chain():
    posterior = trace(plant=moved_chain)["posterior"].to_dataset()[["eta", "ls"]]
    band = _band(posterior)
    for name in ("eta", "ls"):
        np.testing.assert_allclose(band[name], np.sqrt(np.log(200) / (2 * DRAWS)), rtol=0.2)
    away = {
        name: max(kstest(chain, values.values.ravel()).statistic for chain in values.values)
        for name, values in posterior.data_vars.items()
    }
    assert away["eta"] > 2 * band["eta"]
    assert away["ls"] < band["ls"]


@pytest.mark.fast("None", "stuck chain", "approximate", "HMC")
@pytest.mark.parametrize("name", [None, *DEFECTS])
def test_text_fits_a_terminal(name):
    plant = DEFECTS[name][0] if name else lambda posterior, stats: None
    found = report(trace(plant=plant))
    assert repr(found) == str(found)
    assert max(map(len, str(found).splitlines())) < 100
    assert found.verdicts[0].subject in str(found)


def test_long_names_fit_a_terminal():
    renamed = trace()["posterior"].to_dataset().rename({"ls": "length_scale_" * 8})
    text = str(report(az.convert_to_datatree(renamed)))
    assert max(map(len, text.splitlines())) < 100


def test_without_matplotlib_there_are_no_pictures(monkeypatch):
    for module in [name for name in sys.modules if name.startswith("arviz_plots.backend.matpl")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    text = report(trace())._repr_html_()
    assert "<figure" not in text
    assert "No pictures: matplotlib is not installed" in text
    parsed(text)


def test_without_a_backend_there_are_no_pictures():
    assert "No pictures: backend is" in report(trace(), backend="none")._repr_html_()
    with pytest.raises(ValueError, match="Choose from matplotlib, bokeh, plotly, none"):
        report(trace(), backend="pen")


def test_an_element_that_is_no_number_hides_no_chain_that_stays():
    def plant(posterior, stats):
        posterior["f"][1, 100:220] = posterior["f"][1, 100]
        posterior["f"][:, :, 2] = np.nan
        posterior["none"] = np.full((CHAINS, DRAWS), np.nan)

    found = numbers(trace(plant=plant), None)
    assert found.stays["f"] == (120, 1)
    assert "none" not in found.stays
    assert "none" not in found.constant


def test_scales_of_several_steps_are_no_tuning():
    found = trace()
    scale = found["sample_stats"]["theta_scale"]
    steps = xr.concat([scale * 0.0 + 0.1 * (k + 1) for k in range(3)], dim="step")
    found["sample_stats"] = found["sample_stats"].assign(theta_scale=steps)
    assert "theta_scale" not in blamed(report(found))
    steps[1, :, :50] = np.linspace(2.0, 0.5, 50)
    found["sample_stats"] = found["sample_stats"].assign(theta_scale=steps)
    assert "theta_scale" in blamed(report(found))


def test_groups_do_not_change_how_many_hyperparameters_there_are():
    assert (
        numbers(trace(), {"theta": ["ls", "eta"]}).theta_size == numbers(trace(), None).theta_size
    )


def test_moves_that_take_turns_are_no_tuning():
    found = trace()
    scale = found["sample_stats"]["theta_scale"]
    scale.values[:, ::3] = 0.2
    assert np.unique(scale.values[~np.isnan(scale.values)]).size == 2
    assert "theta_scale" not in blamed(report(found))


def test_errors_are_those_of_efficiency():
    with pytest.raises(ValueError, match="no posterior group"):
        report(az.from_dict({"prior": {"x": np.zeros((1, 3))}}))
    with pytest.raises(ValueError, match=r"names \['eta_log__'\], not in the posterior"):
        report(trace(), {"theta": "eta_log__"})


QUICK = {"tune": 20, "draws": 100, "chains": 2, "cores": 1, "random_seed": 3}
QUIET = {"progressbar": False, "compute_convergence_checks": False}


@pytest.mark.slow
def test_a_real_trace(interpreted, tmp_path):
    idata = models.build(pm.sample, "logistic", **QUICK, **QUIET)
    groups = {"theta": ["mu", "ls", "eta"], "f": "f"}
    found = report(idata, groups, path=tmp_path / "report.html")
    told = {verdict.subject for verdict in found.verdicts}
    assert {"chains", "R-hat", "effective draws", "longest stay"} <= told
    # Of the few importance draws that tuning may choose there is no pareto_k.
    stats = idata["sample_stats"].to_dataset()
    numbers = {name for name, values in stats.items() if not values.isnull().all()}
    known = {healthy.statistic for healthy in HEALTHY} & numbers
    said = " ".join(f"{verdict.subject} {verdict.sentence}" for verdict in found.verdicts)
    assert all(name in said for name in known)
    assert "theta_scale" not in blamed(found)  # tuning has ended
    assert parsed((tmp_path / "report.html").read_text()).tags.count("figure") == 3
    assert "O(n³) operations" in str(found)


@pytest.mark.slow
def test_a_trace_of_another_sampler(interpreted):
    with pm.Model():
        pm.Normal("x", shape=3)
        idata = pm.sample(step=pm.NUTS(), **QUICK, **QUIET)
    found = report(idata)
    told = {verdict.subject for verdict in found.verdicts}
    assert "theta_acceptance" not in str(found)
    assert "O(n³)" not in str(found)
    assert "longest stay" in told
    assert "acceptance_rate" in found.statistics.index
    assert "<img" in found._repr_html_()


def test_an_r_hat_just_above_the_limit_is_not_said_to_be_at_most_the_limit():
    found = numbers(trace(), None)
    found.elements["r_hat"] = 1.0
    found.elements.loc[found.elements.index[0], "r_hat"] = 1.0102
    (said,) = verdicts._r_hat(found)
    assert "above 1.01, at most 1.011: the chains do not agree on ls." in said.sentence


def many_elements(chains=CHAINS, draws=500, elements=80, phi=0.55):
    """Chains that agree, of which 500 draws are worth about 150."""
    rng = np.random.default_rng(6)
    f = lfilter([np.sqrt(1.0 - phi**2)], [1.0, -phi], rng.normal(size=(chains, draws, elements)), 1)
    return {"f": f}


def test_the_largest_of_many_r_hats_may_be_chance():
    posterior = many_elements()
    (said,) = verdicts._r_hat(numbers(az.from_dict({"posterior": posterior}), None))
    assert said.level == "good"
    assert "of 80 elements are above 1.01, as chance makes the largest of so many" in said.sentence
    posterior["f"][2, :, 7] += 0.6
    (said,) = verdicts._r_hat(numbers(az.from_dict({"posterior": posterior}), None))
    assert said.level != "good"
    assert said.sentence.startswith("1 of 80 elements")
    assert said.sentence.endswith("the chains do not agree on f[7].")
