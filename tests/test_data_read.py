"""Inputs that are replaced after a step was made: no mixture of old and new."""

import cloudpickle
import numpy as np
import pymc as pm
import pytest

from models import QUICK

import pymc_lgm as lgm

pytestmark = pytest.mark.usefixtures("interpreted")

GROUP = np.arange(12) % 4


def build():
    with pm.Model() as model:
        X, y = pm.Data("X", np.linspace(-1, 1, 12)), pm.Data("Y", np.arange(12) % 3)
        b = pm.Normal("b", 0.0, pm.HalfNormal("s", 1.0), shape=4)
        pm.Poisson("y", pm.math.exp(pm.Normal("beta") * X + b[GROUP]), observed=y)
    return model


@pytest.mark.fast("False")
@pytest.mark.parametrize("copied", [False, True])
def test_new_inputs_are_refused_and_new_observations_are_not(copied):
    model = build()
    step = lgm.ASIS(model=model, compile_kwargs=QUICK)
    pm.set_data({"Y": np.ones(12, int)}, model=model)
    step.setup_chain(np.random.default_rng(1), 1, 1)
    pm.set_data({"X": np.linspace(0, 1, 12)}, model=model)
    step = cloudpickle.loads(cloudpickle.dumps(step)) if copied else step
    with pytest.raises(ValueError, match=r"The data X were replaced.*after pm.set_data"):
        step.setup_chain(np.random.default_rng(1), 1, 1)
    with pytest.raises(ValueError, match="The data X"):
        step.lgm.refuse_changes()
    pm.set_data({"X": np.linspace(-1, 1, 12)}, model=model)
    lgm.ASIS(model=model, compile_kwargs=QUICK).setup_chain(1, 1, 1)


@pytest.mark.parametrize("use", ["log_evidence", "fit", "check"])
def test_an_evidence_and_a_check_refuse_new_inputs(use):
    """The evidence of old inputs was returned, and `check` said that the model was misread."""
    model = build()
    made = lgm.read(model) if use == "check" else lgm.laplace(model=model)
    pm.set_data({"X": np.linspace(0, 1, 12)}, model=model)
    with pytest.raises(ValueError, match=r"The data X were replaced.*after pm.set_data"):
        getattr(made, use)()


def test_indices_of_one_vector_are_read_once():
    with pm.Model():
        f, which = pm.MvNormal("f", np.zeros(4), np.eye(4)), pm.Data("which", GROUP)
        pm.Poisson("y", pm.math.exp(f)[which], observed=np.arange(12) % 3)
        step = lgm.ASIS(compile_kwargs=QUICK)
        pm.set_data({"which": GROUP[::-1].copy()})
    with pytest.raises(ValueError, match="The data which"):
        step.setup_chain(np.random.default_rng(1), 1, 1)


def test_a_sample_that_starts_after_it_stops():
    model = build()
    with model:
        step = lgm.ASIS(compile_kwargs=QUICK)
        pm.set_data({"X": np.linspace(0, 1, 12), "Y": np.ones(12, int)})
        with pytest.raises(ValueError, match="The data X"):
            pm.sample(draws=2, tune=2, chains=1, step=step, progressbar=False)


def of_labels(build, before, after):
    """A step made with observations, before others are put in their place."""
    with pm.Model() as model:
        build(pm.Data("labels", np.array(before)))
        step = lgm.ASIS(compile_kwargs=QUICK)
        pm.set_data({"labels": np.array(after)}, model=model)
    return step


def test_observations_that_say_which_elements_are_read_are_read_once():
    """Each observation was taken for one of the element that its first value had named."""

    def build(labels):
        f = pm.Normal("f", 0.0, pm.HalfNormal("s"), shape=3)
        pm.CustomDist(
            "y", f, logp=lambda value, f: -((f[value] - 1.0) ** 2), observed=labels,
            dtype="int64", signature="(n)->(n)", shape=(3,),
        )  # fmt: skip

    step = of_labels(build, [0, 1, 2], [2, 2, 1])
    with pytest.raises(ValueError, match="The data labels were replaced"):
        step.setup_chain(np.random.default_rng(1), 1, 1)


@pytest.mark.slow
def test_new_labels_of_classes_are_seen():
    """They pick one of the probabilities, each of which reads all classes."""

    def build(labels):
        f = pm.Normal("f", 0.0, pm.HalfNormal("s"), shape=(3, 4))
        pm.Categorical("y", logit_p=f, observed=labels)

    of_labels(build, [0, 1, 2], [3, 2, 1]).setup_chain(np.random.default_rng(1), 1, 1)


def late_potential(model):
    pm.Potential("late", -model["s"])


ADDED = {
    "potential": late_potential,
    "observation": lambda model: pm.Normal("late", model["beta"], observed=5.0),
    "free variable": lambda model: pm.Normal("late", model["b"]),
}


@pytest.mark.fast("potential", "observation")
@pytest.mark.parametrize("what", ADDED)
def test_a_step_refuses_what_was_added_after_it(what):
    """The chain was that of the model without it."""
    with build() as model:
        step = lgm.ASIS(compile_kwargs=QUICK)
        pm.Deterministic("rate", pm.math.exp(model["b"]))
        step.setup_chain(np.random.default_rng(1), 1, 1)
        ADDED[what](model)
    for each in (step, cloudpickle.loads(cloudpickle.dumps(step))):
        with pytest.raises(ValueError, match=r"late was added .* after the last variable"):
            each.setup_chain(np.random.default_rng(1), 1, 1)


@pytest.mark.parametrize("use", ["log_evidence", "check"])
def test_an_evidence_and_a_check_refuse_what_was_added_after_them(use):
    model = build()
    made = lgm.read(model) if use == "check" else lgm.laplace(model=model)
    with model:
        late_potential(model)
    with pytest.raises(ValueError, match=r"late was added .* after the last variable"):
        getattr(made, use)()
