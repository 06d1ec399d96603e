"""Mistakes of a first hour: each gets a sentence that says what to write."""

import cloudpickle
import numpy as np
import pandas as pd
import pymc as pm
import pytest

from models import QUICK, build
from pymc.sampling.mcmc import assign_step_methods

import pymc_lgm as lgm

from pymc_lgm._report.verdicts import TAKING_TURNS, _first_after_tuning
from pymc_lgm.prediction import _points
from pymc_lgm.steps import messages
from pymc_lgm.steps.messages import LARGE, REPEATED, say_what_is_repeated

pytestmark = pytest.mark.usefixtures("interpreted")

X = np.linspace(0.0, 1.0, 4)[:, None]


def test_an_observed_process_names_exact_marginal():
    with pm.Model():
        gp = pm.gp.Marginal(cov_func=pm.HalfNormal("s") ** 2 * pm.gp.cov.ExpQuad(1, ls=0.3))
        gp.marginal_likelihood("y", X, y=np.ones(4), sigma=0.3)
        with pytest.raises(ValueError, match=r"'y' is an observed.*lgm.ExactMarginal\(\)"):
            lgm.PseudoMarginal(compile_kwargs=QUICK)


def test_a_start_outside_the_support_names_initval():
    with pm.Model():
        f, upper = pm.MvNormal("f", np.zeros(4), np.eye(4)), pm.HalfNormal("u", 1.0, initval=0.1)
        pm.Uniform("y", -upper, upper + pm.math.exp(f), observed=np.full(4, 5.0))
        with pytest.raises(ValueError, match=r"initval= .*initvals={\.\.\.}"):
            lgm.ASIS(compile_kwargs=QUICK)


@pytest.mark.parametrize(
    ("prior", "is_said"),
    [(pm.StudentT, True), (pm.Normal, False)],
    ids=["Student effects", "normal effects"],
)
def test_many_hyper_parameters_beside_few_latents_are_said(prior, is_said, caplog):
    with pm.Model() as model, caplog.at_level("INFO", logger="pymc.lgm"):
        shape = {"nu": 4} if prior is pm.StudentT else {}
        u = prior("u", **shape, mu=0, sigma=pm.HalfNormal("s", 1), shape=15)
        pm.Poisson("y", pm.math.exp(pm.Normal("a", 0, 2) + u), observed=np.ones(15))
        build(lgm.PseudoMarginal, model)
    said = [each for each in caplog.messages if "pm.NUTS()" in each]
    assert len(said) == is_said
    if is_said:
        assert said[0].startswith("'u' has 15 of the 16 hyper-parameters")
        assert "f has rank 1." in said[0]


LABELS = ["yes", "no"]


@pytest.mark.parametrize(
    "labels",
    [LABELS, np.array(LABELS), np.array(LABELS, object), pd.Series(LABELS), pd.Categorical(LABELS)],
    ids=["list", "array", "objects", "series", "categorical"],
)
def test_labels_that_are_strings(labels):
    with pm.Model():
        f = pm.MvNormal("f", np.zeros(2), np.eye(2))
        with pytest.raises(ValueError, match=r"strings, which are not numbers.*return_inverse"):
            lgm.Probit("y", f=f, observed=labels)


@pytest.mark.parametrize(
    "call",
    [
        lgm.PseudoMarginal,
        lambda: lgm.predict(None, None, X),
        lambda: lgm.compare_samplers([lgm.ASIS]),
        lgm.laplace,
        lgm.ep,
    ],
    ids=["step", "predict", "compare", "laplace", "ep"],
)
def test_outside_of_a_model(call):
    with pytest.raises(TypeError, match="needs a model: write it inside `with model:`"):
        call()


def test_a_dict_is_no_trace():
    with pytest.raises(TypeError, match=r"idata is a dict.*pm.sample"):
        lgm.report({"f": np.zeros((2, 10))})


@pytest.mark.parametrize("given", [None, pd.DataFrame(), 1.0])
@pytest.mark.parametrize("take", [lgm.report, lgm.efficiency, lgm.reweight])
def test_what_is_no_trace(take, given):
    with pytest.raises(TypeError, match=rf"idata is a {type(given).__name__}: write the trace"):
        take(given)


def test_a_step_takes_names_of_variables():
    with pm.Model() as model:
        ls = pm.HalfNormal("ls")
        f = pm.MvNormal("f", np.zeros(2), ls * np.eye(2))
        lgm.Probit("y", f=f, observed=[1, 0])
        step = lgm.ASIS(["f", "ls", f], compile_kwargs=QUICK)
    assert step.vars == [model.rvs_to_values[f], model.rvs_to_values[ls]]


def test_a_step_of_an_observed_process_takes_names_too():
    with pm.Model() as model:
        ls = pm.HalfNormal("ls")
        pm.MvNormal("y", np.zeros(2), ls * np.eye(2), observed=[0.3, 0.1])
        step = lgm.ExactMarginal(["ls", ls], compile_kwargs=QUICK)
    assert step.vars == [model.rvs_to_values[ls]]


def test_a_pickled_reading_says_that_it_cannot_be_checked():
    with pm.Model() as model:
        f = pm.MvNormal("f", np.zeros(2), np.eye(2))
        lgm.Probit("y", f=f, observed=[1, 0])
    copy = cloudpickle.loads(cloudpickle.dumps(lgm.read(model, compile_kwargs=QUICK)))
    with pytest.raises(ValueError, match="pickled has no"):
        copy.check()


@pytest.mark.parametrize("process", ["SparseLatent", "RandomFeatures"])
@pytest.mark.parametrize("given", [pd.DataFrame(X), X.tolist(), X.astype(object)])
def test_inputs_of_any_kind_are_taken(process, given):
    with pm.Model():
        cov = pm.gp.cov.ExpQuad(1, ls=0.3)
        if process == "SparseLatent":
            f = lgm.gp.SparseLatent(cov_func=cov).prior("f", given, Xu=given[:2])
            f = f.mean
        else:
            f = lgm.papers.RandomFeatures(3, cov_func=cov).prior("f", given)
    assert f.eval().shape == (4,)


@pytest.mark.parametrize(
    ("given", "said"),
    [(X[:, 0], r"shape \(4,\).*X\[:, None\]"), ([["a"], ["b"]], "X is not an array of numbers")],
)
def test_inputs_that_are_not_rows_of_numbers(given, said):
    with pm.Model():
        gp = lgm.papers.RandomFeatures(3, cov_func=pm.gp.cov.ExpQuad(1, ls=0.3))
        with pytest.raises(ValueError, match=said):
            gp.prior("f", given)


@pytest.mark.parametrize("written", [(), (pm.gp.cov.ExpQuad(1, ls=0.3),)])
def test_a_vecchia_process_written_as_a_gp_says_that_it_is_a_distribution(written):
    with pm.Model(), pytest.raises(TypeError, match=r'Write f = lgm\.gp\.Vecchia\("f", X'):
        lgm.gp.Vecchia(*written, neighbors=2)


def poisson_process(**options):
    with pm.Model() as model:
        gp = pm.gp.Latent(cov_func=pm.HalfNormal("s") ** 2 * pm.gp.cov.ExpQuad(1, ls=0.3))
        f = gp.prior("f", X, **options)
        pm.Poisson("y", pm.math.exp(f), observed=np.ones(4))
    return model


@pytest.mark.parametrize("whitens", [True, False])
def test_a_large_process_that_pymc_computes_again_is_said_once(whitens, caplog):
    X = np.linspace(0, 1, LARGE)[:, None]
    with pm.Model() as model:
        length = pm.HalfNormal("length")
        cov = pm.gp.cov.Matern32(1, ls=length)
        pm.gp.Latent(cov_func=cov).prior("f", X, reparameterize=whitens)
        pm.gp.Latent(cov_func=cov).prior("small", X[:9])
        grid = [np.linspace(0, 1, LARGE // 10)[:, None], np.linspace(0, 1, 10)[:, None]]
        pm.gp.LatentKron(cov_funcs=[cov, cov]).prior("grid", grid)
    with caplog.at_level("INFO", logger="pymc.lgm"):
        say_what_is_repeated(model)
        say_what_is_repeated(model)
    assert caplog.messages == ([REPEATED.format("f")] if whitens else [])


def offered(model, caplog, step=None):
    """What the package says while PyMC chooses steps."""
    with caplog.at_level("INFO", logger="pymc"), model:
        assign_step_methods(model, step)
    return [record.getMessage() for record in caplog.records if record.name == "pymc.lgm"]


@pytest.mark.parametrize("options", [{}, {"reparameterize": False}], ids=["whitened", "normal"])
def test_a_process_that_nuts_would_move_is_offered_the_default_once(caplog, options):
    model = poisson_process(**options)
    (said,) = offered(model, caplog)
    assert said.startswith("'f' is Gaussian given the rest of the model, and NUTS samples it")
    assert said.endswith("pm.sample(step=lgm.PseudoMarginal()).")
    caplog.clear()
    assert not offered(model, caplog)


@pytest.mark.parametrize("quiet", [False, True])
def test_the_offer_knows_the_model_and_the_quiet_of_pm_sample(caplog, monkeypatch, quiet):
    """Also outside of a ``with`` block. PyMC stops after it has chosen steps."""
    monkeypatch.setattr("pymc.sampling.mcmc.instantiate_steppers", lambda *args, **kwargs: 1 / 0)
    monkeypatch.setattr("pymc.sampling.mcmc.init_nuts", lambda *args, **kwargs: 1 / 0)
    with caplog.at_level("INFO", logger="pymc"), pytest.raises(ZeroDivisionError):
        pm.sample(model=poisson_process(), quiet=quiet, nuts_sampler="pymc")
    said = [record for record in caplog.records if record.name == "pymc.lgm"]
    assert len(said) == (not quiet)


def test_nothing_is_offered_where_a_step_has_read_the_model(caplog, monkeypatch):
    """Nor is the model read again."""
    model = poisson_process(reparameterize=False)
    with model:
        step = lgm.EllipticalSlice(model["f"], compile_kwargs=QUICK)
    read = []
    monkeypatch.setattr(messages, "find_latents", read.append)
    assert not offered(model, caplog, step)
    assert not read


def test_nothing_is_offered_or_raised_for_other_models(caplog, monkeypatch):
    """Mixed models, which NUTS is good at; models without data; models that cannot be read."""
    with pm.Model() as effects:
        b = pm.Normal("b", 0, pm.HalfNormal("s"), shape=3)
        pm.Poisson("y", pm.math.exp(b[[0, 1, 2]]), observed=np.ones(3))
    with pm.Model() as without_data:
        pm.MvNormal("f", np.zeros(3), np.eye(3))
    assert not offered(effects, caplog)
    assert not offered(without_data, caplog)
    read = []
    monkeypatch.setattr(messages, "find_latents", lambda model: read.append(model) or 1 / 0)
    assert not offered(poisson_process(), caplog)
    assert len(read) == 1


def test_a_model_with_a_likelihood_of_this_package_is_not_read_twice(caplog, monkeypatch):
    with pm.Model() as model:
        f = pm.MvNormal("f", np.zeros(2), pm.HalfNormal("s") * np.eye(2))
        pm.Normal("other")
        lgm.Probit("y", f=f, observed=[1, 0])
    read = []
    monkeypatch.setattr(messages, "find_latents", read.append)
    assert not offered(model, caplog)
    assert not read


def test_the_name_of_a_sampler_is_no_sampler():
    with pytest.raises(TypeError, match=r"'ASIS' is a string.*\[lgm.ASIS\]"):
        lgm.compare_samplers(["ASIS"], pm.Model())


@pytest.mark.parametrize("given", [pd.DataFrame(X), X.tolist(), X[:, 0], pd.Series(X[:, 0])])
def test_new_inputs_of_any_kind_are_taken(given):
    np.testing.assert_array_equal(_points(given, 1), X)


def test_new_inputs_that_are_no_numbers():
    with pytest.raises(ValueError, match="not an array of numbers"):
        _points([["a"], ["b"]], 1)


def test_the_first_draw_after_tuning_is_said():
    scales = np.concatenate([np.arange(30.0), np.resize(np.arange(TAKING_TURNS), 20) + 100.0])
    assert _first_after_tuning(scales[None]) == 30
