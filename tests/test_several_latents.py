"""What users do with a model of a process and effects: judge, compare, correct and predict."""

import arviz as az
import numpy as np
import pymc as pm
import pytest

import pymc_lgm as lgm

pytestmark = pytest.mark.usefixtures("interpreted")

X = np.linspace(0.0, 2.0, 6)[:, None]
GROUP = np.array([0, 1, 2, 0, 1, 2])
COUNTS = np.array([1, 0, 3, 2, 1, 4])
GROUPS = {"theta": ["ls", "s"], "f": ["c", "f", "b"]}
JITTER = 1e-6

QUIET = {"progressbar": False, "compute_convergence_checks": False, "cores": 1}


def matern(distance, ls):
    r = np.sqrt(3.0) * distance / ls
    return 0.5 * (1.0 + r) * np.exp(-r)


def counts(**kwargs):
    with pm.Model(coords={"group": ["u", "v", "w"]}) as model:
        ls, c = pm.LogNormal("ls", 0.0, 0.4), pm.Normal("c", 0.5, 0.5)
        mean, cov = pm.gp.mean.Constant(c), 0.5 * pm.gp.cov.Matern32(1, ls=ls)
        gp = pm.gp.Latent(mean_func=mean, cov_func=cov)
        f = gp.prior("f", X, jitter=JITTER, **({"reparameterize": False} | kwargs))
        b = pm.Normal("b", 0.0, pm.LogNormal("s", -0.7, 0.4), dims="group")
        lgm.LogGaussianCox("y", f=f + b[GROUP], observed=COUNTS)
    return model, gp


@pytest.fixture(
    scope="module", params=[lgm.ASIS, pytest.param(lgm.PseudoMarginal, marks=pytest.mark.whole)]
)
def trace(request, interpreted):
    with counts()[0]:
        options = {"draws": 120, "tune": 40, "chains": 2, "random_seed": 3, "quiet": True}
        return pm.sample(step=request.param(), **options, **QUIET)


@pytest.mark.slow
def test_efficiency_is_that_of_the_worst_of_all_latents(trace):
    table, posterior = lgm.efficiency(trace, GROUPS), trace["posterior"].to_dataset()
    for group, names in GROUPS.items():
        each = az.ess(posterior[names], method="bulk")
        worst = min(float(each[name].min()) for name in names)
        assert table.loc[group, "ess_bulk"] == pytest.approx(worst, rel=1e-12)
    assert list(lgm.efficiency(trace).index) == [*posterior.data_vars, "all"]
    assert (table["cubic_ops"] > 0.0).all()


@pytest.mark.slow
def test_a_report_has_a_row_for_each_effect_and_names_the_one_that_is_wrong(trace):
    found = lgm.report(trace, GROUPS, backend="none")
    elements = [f"f[{i}]" for i in range(6)] + ["b[u]", "b[v]", "b[w]", "c", "ls", "s"]
    assert sorted(found.elements.index) == sorted(elements)
    columns = ["ess_bulk", "r_hat"]
    expected = lgm.efficiency(trace, GROUPS)[columns]
    np.testing.assert_allclose(found.groups.loc[list(GROUPS), columns], expected)
    assert "<table" in found._repr_html_()
    moved = trace.copy(deep=True)
    moved["posterior"]["b"][1, :, 1] += 20.0
    verdict = next(v for v in lgm.report(moved, GROUPS).verdicts if v.subject == "R-hat")
    assert verdict.level == "problem"
    assert "b[v]" in verdict.sentence


@pytest.mark.slow
def test_compare_groups_what_is_integrated_out_with_f():
    """Whether a sampler moves the level of the process with f or with theta."""
    samplers = {"collapsed": lgm.ASIS, "kept": lambda: lgm.ASIS(latent_move="slice")}
    found = lgm.compare_samplers(
        samplers, counts()[0], draws=30, tune=20, random_seed=3, chains=2, **QUIET
    )
    assert found.groups == GROUPS
    for name, trace in found.idata.items():
        expected = lgm.efficiency(trace, GROUPS)
        for group in GROUPS:
            assert found.table.loc[name, f"ess_{group}"] == expected.loc[group, "ess_bulk"]


@pytest.mark.slow
def test_corrected_draws_keep_latents_and_theta_together():
    with counts()[0]:
        step = lgm.papers.ApproximateMarginal(approximation="laplace", n_importance=2)
        idata = pm.sample(40, tune=20, chains=1, step=step, random_seed=1, quiet=True, **QUIET)
    # Weights that vary.
    idata["sample_stats"]["log_evidence"] += np.random.default_rng(1).uniform(size=(1, 40))
    corrected = lgm.reweight(idata, random_seed=1)
    names = ["ls", "s", "c", "f", "b"]
    before, after = (
        np.hstack([tree["posterior"][name].values[0].reshape(40, -1) for name in names])
        for tree in (idata, corrected)
    )
    chosen = [np.flatnonzero((before == row).all(axis=1)) for row in after]
    assert all(rows.size for rows in chosen)
    assert len({rows[0] for rows in chosen}) < 40


@pytest.mark.parametrize("reparameterize", [False, True])
def test_the_process_is_predicted_without_the_effects(reparameterize):
    """With the level of its own draw. Of a response there is nothing: f alone is not observed."""
    model, gp = counts(reparameterize=reparameterize)
    rng, Xnew = np.random.default_rng(7), np.array([[-0.5], [0.4], [3.0]])
    posterior = {
        "ls": np.exp(0.4 * rng.normal(size=(1, 5))),
        "c": rng.normal(size=(1, 5)),
        "b": rng.normal(size=(1, 5, 3)),
        "f": rng.normal(size=(1, 5, 6)),
    }
    idata = az.from_dict({"posterior": posterior})
    found = lgm.predict(idata, gp, Xnew, model=model, progressbar=False)
    found = found["predictions"]
    for i in range(5):
        ls, c, f = (posterior[name][0, i] for name in ("ls", "c", "f"))
        K, k = matern(np.abs(X - X.T), ls) + JITTER * np.eye(6), matern(np.abs(Xnew - X.T), ls)
        gain = k @ np.linalg.inv(K)
        mean, variance = c + gain @ (f - c), 0.5 - (gain * k).sum(axis=1)
        np.testing.assert_allclose(found["f_conditional_mean"].values[0, i], mean, atol=1e-8)
        np.testing.assert_allclose(
            found["f_conditional_variance"].values[0, i], variance, atol=1e-8
        )
    assert all(str(name).startswith("f_") for name in found.data_vars)
