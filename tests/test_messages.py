"""Mistakes of a first hour: each gets a sentence that says what to write."""

import numpy as np
import pandas as pd
import pymc as pm
import pytest

from models import QUICK

import pymc_lgm as lgm

from pymc_lgm._report.sampler import _settled
from pymc_lgm.prediction import _points

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


def test_labels_that_are_strings():
    with pm.Model():
        f = pm.MvNormal("f", np.zeros(2), np.eye(2))
        with pytest.raises(ValueError, match=r"strings, which are not numbers.*return_inverse"):
            lgm.Probit("y", f=f, observed=np.array(["yes", "no"]))


@pytest.mark.parametrize(
    "call", [lgm.PseudoMarginal, lambda: lgm.predict(None, None, X)], ids=["step", "predict"]
)
def test_outside_of_a_model(call):
    with pytest.raises(TypeError, match="needs a model: write it inside `with model:`"):
        call()


def test_a_dict_is_no_trace():
    with pytest.raises(TypeError, match=r"idata is a dict.*pm.sample"):
        lgm.report({"f": np.zeros((2, 10))})


def test_the_name_of_a_sampler_is_no_sampler():
    with pytest.raises(TypeError, match=r"'ASIS' is a string.*\[lgm.ASIS\]"):
        lgm.compare(["ASIS"], pm.Model())


@pytest.mark.parametrize("given", [pd.DataFrame(X), X.tolist(), X[:, 0], pd.Series(X[:, 0])])
def test_new_inputs_of_any_kind_are_taken(given):
    np.testing.assert_array_equal(_points(given, 1), X)


def test_new_inputs_that_are_no_numbers():
    with pytest.raises(ValueError, match="not an array of numbers"):
        _points([["a"], ["b"]], 1)


def test_the_first_draw_after_tuning_is_said():
    from pymc_lgm._report.sampler import TAKING_TURNS

    scales = np.concatenate([np.arange(30.0), np.resize(np.arange(TAKING_TURNS), 20) + 100.0])
    assert _settled(scales[None]) == 30
