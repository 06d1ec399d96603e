"""PyMC's contract: our step methods behave in `pymc.sample` as PyMC's own do.

What is tested is glue: a model is read once for all steps of it, and nothing is compiled but where
a test is about that.
"""

import gc
import pickle
import threading
import time

from dataclasses import is_dataclass
from functools import cached_property

import cloudpickle
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from models import QUICK, build, listed
from pymc.sampling.mcmc import assign_step_methods
from pymc.step_methods import STEP_METHODS
from pymc.step_methods.compound import CompoundStep
from pymc.step_methods.state import equal_dataclass_values
from pytensor.compile.ops import wrap_py
from samplers import CASES, VARIANTS, label

import pymc_lgm as lgm

from pymc_lgm import moves, samplers, steps
from pymc_lgm.linalg import tally
from pymc_lgm.model import read
from pymc_lgm.model.graphs import Graphs
from pymc_lgm.state import AtTheta, State
from pymc_lgm.steps.messages import announced

pytestmark = pytest.mark.usefixtures("interpreted")

# One of each kind of tuning: none, a step size (of f, of theta), a proposal, widths, an emulator.
KINDS = [
    (lgm.EllipticalSlice, {}),
    (lgm.LatentHMC, {}),
    (lgm.LatentHMC, {"metric": "curvature"}),
    (lgm.AuxiliaryGradient, {"step_size": 1.0}),
    (lgm.ASIS, {"scale": 0.4}),
    (lgm.Sweep, {"move": "slice"}),
    (lgm.Sweep, {"move": "hmc", "parameterization": "sufficient"}),
    (lgm.PseudoMarginal, {}),
    (lgm.PseudoMarginal, {"move": "slice", "n_importance": 2, "approximation": "laplace"}),
]
# What is left of the registry: the first and the last variant of each sampler.
OTHERS = [
    (sampler, options)
    for sampler in steps.SAMPLERS
    for variants in [VARIANTS.get(sampler.__name__, [{}])]
    for options in variants[:: max(1, len(variants) - 1)]
    if (sampler, options) not in KINDS
]
every_kind = pytest.mark.parametrize(
    "case", [*KINDS, *(pytest.param(case, marks=pytest.mark.whole) for case in OTHERS)], ids=label
)
every_sampler = pytest.mark.parametrize(
    "case", [*KINDS, *(pytest.param(case, marks=pytest.mark.slow) for case in OTHERS)], ids=label
)


def quick(model=None, **kwargs):
    """`pymc.sample`, a few draws of it."""
    options = {
        "tune": 6,
        "draws": 4,
        "chains": 2,
        "cores": 1,
        "random_seed": 7,
        "progressbar": False,
        "compute_convergence_checks": False,
    }
    return build(pm.sample, pm.modelcontext(model), **(options | kwargs))


@pytest.fixture(scope="module")
def trace():
    """The default sampler's draws of `logistic`, those of tuning too, and what a callback saw."""
    seen = []
    idata = quick(
        listed("logistic"),
        discard_tuned_samples=False,
        callback=lambda trace, draw: seen.append(draw),
    )
    return idata, seen


def make(case, model="logistic", rng=3, **kwargs):
    sampler, options = case
    return build(sampler, model, rng=rng, **options, **kwargs)


def run(step, point, draws):
    """Points and statistics of the next draws."""
    history = []
    for _ in range(draws):
        point, stats = step.step(point)
        history.append((point, stats))
    return history


def warm(case, tune=6, draws=6):
    """A step after some draws of tuning, and where its chain is."""
    step = make(case)
    step.setup_chain(np.random.default_rng(3), tune, 10)
    return step, run(step, listed("logistic").initial_point(), draws)[-1][0]


def same_traces(one, other):
    return all(
        np.array_equal(values, other[group][name], equal_nan=values.dtype.kind == "f")
        for group in ("posterior", "sample_stats")
        for name, values in one[group].data_vars.items()
    )


def with_neighbors():
    """f and theta beside variables of other steps: in the covariance, the mean, the likelihood."""
    X = np.array([0.0, 0.4, 1.1, 1.5])[:, None]
    with pm.Model() as model:
        ls = pm.LogNormal("ls", 0.0, 0.5)
        mu = pm.Normal("mu", 0.5, 0.5)
        sigma = pm.LogNormal("sigma", -0.5, 0.3)
        copies = pm.Poisson("copies", 2.0)
        shift = pm.Bernoulli("shift", 0.4)
        group = pm.Bernoulli("group", 0.5)
        mean = pm.gp.mean.Constant(mu + shift)
        gp = pm.gp.Latent(mean_func=mean, cov_func=(1 + copies) * pm.gp.cov.Matern52(1, ls=ls))
        f = gp.prior("f", X, reparameterize=False)
        lgm.LogGaussianCox("y", f=f, exposure=sigma * (1 + group), observed=[0, 2, 1, 1])
    return model


@pytest.fixture(scope="module")
def neighbors():
    return with_neighbors()


@pytest.fixture(scope="module")
def two_latents():
    X = np.array([0.0, 0.7, 1.3])[:, None]
    with pm.Model() as model:
        ls = pm.LogNormal("ls", 0.0, 0.5)
        for name in ("f", "g"):
            gp = pm.gp.Latent(cov_func=pm.gp.cov.Matern52(1, ls=ls))
            gp.prior(name, X, reparameterize=False)
        lgm.Logistic("y", f=model["f"], observed=[0, 1, 1])
        lgm.LogGaussianCox("counts", f=model["g"], observed=[3, 0, 1])
    return model


# Which step method PyMC assigns


def test_registered_once():
    lgm.register()
    assert [STEP_METHODS.count(sampler) for sampler in steps.SAMPLERS] == [1] * len(steps.SAMPLERS)


def test_a_model_without_our_likelihoods_keeps_nuts():
    opted_in = listed("logistic")
    with pm.Model() as other:
        f = pm.MvNormal("f", np.zeros(3), np.eye(3))
        pm.Bernoulli("y", p=pm.math.invprobit(f), observed=[0, 1, 1])
        assert set(assign_step_methods(other)[1]) == {pm.NUTS}
    assert set(assign_step_methods(other)[1]) == {pm.NUTS}
    with opted_in:
        assert set(assign_step_methods(other)[1]) == {pm.NUTS}


def test_an_opted_in_model_gets_the_default():
    model = listed("logistic")
    assert steps.DEFAULT is lgm.PseudoMarginal
    assert assign_step_methods(model)[1] == {steps.DEFAULT: model.value_vars}
    with model:
        assert assign_step_methods(model)[1] == {steps.DEFAULT: model.value_vars}


@pytest.mark.fast("alone")
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside another"])
def test_the_default_takes_a_model_without_hyperparameters(beside):
    with pm.Model() as model:
        f = pm.MvNormal("f", mu=np.zeros(3), cov=np.eye(3) + 0.5)
        lgm.Logistic("y", f=f, observed=[0, 1, 1])
        if beside:
            pm.Normal("unrelated")
    idata = quick(model)
    assert "log_evidence" in idata["sample_stats"]
    assert np.ptp(idata["posterior"]["f"].values) > 0


def test_sample_takes_the_default_with_and_without_a_context(trace):
    outside, _ = trace
    with listed("logistic"):
        inside = quick()
    assert "log_evidence" in inside["sample_stats"]
    assert same_traces(inside, outside)


# The state of a step


@pytest.mark.fast("PseudoMarginal-tuning", "PseudoMarginal-tuned")
@pytest.mark.parametrize("tuning", [True, False], ids=["tuning", "tuned"])
@every_kind
def test_sampling_state_and_a_pickle_reproduce_the_next_draws(case, tuning):
    step, point = warm(case, draws=3 if tuning else 6)
    if not tuning:
        step.stop_tuning()
    saved = pickle.loads(pickle.dumps(step.sampling_state))
    copies = [cloudpickle.loads(cloudpickle.dumps(step))] if tuning else []
    expected = draws_of(run(step, point, 3))
    for restored in (step, make(case, rng=99)):
        restored.sampling_state = saved
        copies.append(restored)
    for copy in copies:
        assert equal_dataclass_values(draws_of(run(copy, point, 3)), expected)


def draws_of(records, but=("cubic_ops",)):
    """Points and statistics; without the factorizations that a step pays again to resume.

    NaN is a value here: the Pareto-k of fewer than 30 draws.
    """
    return [
        (point, [{k: repr(v) for k, v in stats.items() if k not in but} for stats in all_stats])
        for point, all_stats in records
    ]


@pytest.mark.slow
def test_a_pickled_step_still_reads_its_neighbors(neighbors):
    step = build(lgm.ASIS, neighbors, vars=[neighbors["f"], neighbors["ls"]], rng=3)
    point = run(step, neighbors.initial_point(), 3)[-1][0]
    copy = cloudpickle.loads(cloudpickle.dumps(step))
    moved = point | {"copies": np.array(5), "shift": np.array(1), "group": np.array(1)}
    assert equal_dataclass_values(run(copy, moved, 3), run(step, moved, 3))


@pytest.mark.fast("PseudoMarginal")
@every_kind
def test_a_chain_does_not_depend_on_the_chain_before(case):
    step, start = make(case), listed("logistic").initial_point()
    elsewhere = start | {"f": start["f"] + 1.0}

    def chain(seed, start):
        step.setup_chain(np.random.default_rng(seed), 4, 3)
        tuning = run(step, start, 4)
        step.stop_tuning()
        return draws_of(tuning + run(step, tuning[-1][0], 3), but=())

    first = chain(1, start)
    chain(2, elsewhere)
    assert equal_dataclass_values(chain(1, start), first)


@pytest.mark.slow
def test_two_processes_draw_what_one_draws():
    """The default for what another step of ours leaves; the lines of test_workflow.py are more."""
    model = listed("logistic")
    one, two = (
        quick(model, step=[build(lgm.EllipticalSlice, model)], cores=cores) for cores in (1, 2)
    )
    assert same_traces(one, two)


@pytest.mark.slow  # a new process imports PyMC, and two do it here
def test_processes_that_start_from_a_pickle_draw_the_same():
    step = build(lgm.papers.WhitenedMetropolis, "logistic")
    model = listed("logistic")
    one = quick(model, step=step)
    assert same_traces(one, quick(model, step=step, cores=2, mp_ctx="forkserver"))


@pytest.fixture
def rehearsed(monkeypatch):
    """Interpreted functions that are taken for compiled ones: steps rehearse when they are made."""
    monkeypatch.setattr(Graphs, "is_compiled", True)

    def make(**options):
        model = listed("logistic")
        return lgm.PseudoMarginal(model=model, rng=3, compile_kwargs=QUICK, **options)

    return make


def compiled_by(step):
    return {
        name
        for name in vars(step.lgm.graphs)
        if isinstance(vars(Graphs).get(name), cached_property)
    }


@pytest.mark.slow
def test_forked_chains_have_nothing_left_to_compile(rehearsed):
    """But what a chain whose emulator fails asks for in the middle of tuning."""
    step = rehearsed()
    before = compiled_by(step)
    assert {"elements", "likelihood_terms", "log_prior"} <= before
    assert "_score" not in before
    step.setup_chain(np.random.default_rng(3), 60, 10)
    point = run(step, listed("logistic").initial_point(), 60)[-1][0]
    assert step.tunings[0].move.fit.emulator is not None
    step.stop_tuning()
    run(step, point, 10)
    assert compiled_by(step) == before


@pytest.mark.slow
def test_a_rehearsal_changes_no_draw(rehearsed, monkeypatch):
    made = [rehearsed(move="nuts")]
    monkeypatch.setattr(Graphs, "is_compiled", False)
    made.append(rehearsed(move="nuts"))
    assert compiled_by(made[1]) < compiled_by(made[0])
    one, other = (draws_of(run(step, listed("logistic").initial_point(), 5)) for step in made)
    assert equal_dataclass_values(one, other)


@pytest.mark.slow
def test_a_rehearsal_that_takes_long_is_announced(rehearsed, monkeypatch, caplog):
    """While it goes on, since there is no progress bar yet; and no thread is left to be forked."""
    step = lgm.PseudoMarginal.step

    def slow(*arguments):
        until = time.monotonic() + 60.0
        while not caplog.records and time.monotonic() < until:
            time.sleep(0.01)
        return step(*arguments)

    monkeypatch.setattr(lgm.PseudoMarginal, "step", slow)
    monkeypatch.setattr(steps.base, "announced", lambda message: announced(message, after=0.0))
    before = threading.active_count()
    with caplog.at_level("INFO", logger="pymc.lgm"):
        rehearsed()
        assert ["Compiling the model for PseudoMarginal" in each for each in caplog.messages] == [1]
        with announced("not this", after=1000.0):
            pass
    assert len(caplog.messages) == 1
    assert threading.active_count() == before


@pytest.mark.slow
def test_a_large_covariance_is_not_rehearsed(rehearsed, monkeypatch):
    monkeypatch.setattr(steps.base, "ROWS_WORTH_THREADS", 2)
    monkeypatch.setattr(lgm.PseudoMarginal, "step", lambda *arguments: pytest.fail("rehearsed"))
    rehearsed()


@pytest.mark.slow
def test_what_fails_in_a_rehearsal_is_said_by_the_chain(rehearsed, monkeypatch):
    monkeypatch.setattr(State, "of", lambda *_: None)
    step = rehearsed()
    with pytest.raises(pm.exceptions.SamplingError, match="at the starting point"):
        step.step(listed("logistic").initial_point())


def parts(tuning):
    """What a tuning holds; ``None`` if it holds nothing but itself."""
    held = list(vars(tuning).values()) if is_dataclass(tuning) else tuning
    return held if isinstance(held, list | tuple) else None


def plain(tuning):
    """A tuning as tuples: its arrays compare by value, and so must what holds them."""
    held = parts(tuning)
    return tuning if held is None else tuple(map(plain, held))


def kinds(tuning):
    """The types that a tuning is made of."""
    return {type(tuning), *(kind for part in parts(tuning) or () for kind in kinds(part))}


def tunings_move_after_tuning(case, draws):
    step, point = warm(case)
    step.stop_tuning()
    before = step.sampling_state.tunings
    run(step, point, draws)
    return not equal_dataclass_values(plain(step.sampling_state.tunings), plain(before))


@pytest.mark.slow
def test_every_kind_of_tuning_is_tested():
    def started(cases):
        found = set()
        for step in map(make, cases):
            state = step._arrive(listed("logistic").initial_point())
            step._begin(state)
            found |= kinds([element.start(state, 6) for element in step.elements])
        return found

    assert started(OTHERS) <= started(KINDS)


@pytest.mark.fast(
    "LatentHMC",
    "LatentHMC-metric=curvature",
    "AuxiliaryGradient-step_size=1.0",
    "ASIS-scale=0.4",
    "Sweep-move=slice",
    "Sweep-move=hmc-parameterization=sufficient",
    "PseudoMarginal",
    "PseudoMarginal-move=slice-n_importance=2-approximation=laplace",
)
@every_kind
def test_frozen_after_tuning(case):
    assert not tunings_move_after_tuning(case, draws=12)


@pytest.mark.mutant
@pytest.mark.parametrize("case", [c for c in KINDS if c[0] is not lgm.EllipticalSlice], ids=label)
def test_a_sweep_that_keeps_adapting_is_noticed(case, monkeypatch, dies):
    frozen = samplers.run
    monkeypatch.setattr(samplers, "run", lambda *arguments: frozen(*arguments[:-1], True))
    dies(
        f"contract: {label(case)} keeps adapting", tunings_move_after_tuning(case, draws=3), above=0
    )


def test_a_chain_without_tuning_learns_nothing():
    step = build(lgm.ASIS, "logistic")
    point = listed("logistic").initial_point()
    step.setup_chain(np.random.default_rng(1), 0, 5)
    start = [element.start(step._arrive(point), 0) for element in step.elements]
    run(step, point, 5)
    assert equal_dataclass_values(step.tunings, start)


# One draw


@pytest.fixture(scope="module")
def logp():
    return listed("logistic").compile_logp()


@pytest.mark.fast("PseudoMarginal")
@every_sampler
def test_stored_densities_are_the_models(case, logp):
    step, point = make(case), listed("logistic").initial_point()
    for _ in range(5):
        point, _ = step.step(point)
        state = step._state
        fresh = State.of(step.lgm, step.lgm.theta_of(point), point["f"])
        # Stored by another compiled function, of rows or with a gradient: equal to rounding.
        assert state.log_likelihood == pytest.approx(fresh.log_likelihood, rel=1e-12, abs=1e-12)
        assert state.log_prior == fresh.log_prior
        np.testing.assert_array_equal(state.mean, fresh.mean)
        np.testing.assert_array_equal(state.prior.factor.dense(), fresh.prior.factor.dense())
        gaussian = state.prior.log_density(state.f)
        joint = state.log_likelihood + state.log_prior + gaussian
        # With theta held by another step, the prior's terms are constants that the step leaves out.
        constant = 0.0 if step.lgm.p else logp(point) - joint
        np.testing.assert_allclose(joint + constant, logp(point), rtol=1e-9)


def test_an_unchanged_point_starts_from_the_stored_state():
    step = build(lgm.ASIS, "logistic")
    point = run(step, listed("logistic").initial_point(), 3)[-1][0]
    assert step._arrive(point) is step._state


def is_known_after(model, changes):
    """Whether a chain that moves to a theta finds the value that a trajectory computed there."""
    variables = [model[name] for name in ("f", "ls", "mu", "sigma")]
    step = lgm.ASIS(variables, model=model, latent_move="slice", rng=3)
    start = model.initial_point() | {"shift": np.array(0), "group": np.array(0)}
    point = run(step, start, 1)[-1][0]
    at = step._state.at
    theta = at.theta + 0.1
    at.elsewhere(theta, "visited", lambda there: True)
    return step._arrive(point | step.lgm.point_of(theta) | changes).at.once(
        "visited", lambda: False
    )


def test_what_trajectories_computed_is_forgotten_if_another_step_moves(neighbors):
    assert is_known_after(neighbors, {})
    assert not is_known_after(neighbors, {"shift": np.array(1)})
    assert not is_known_after(neighbors, {"copies": np.array(5)})


@pytest.mark.mutant
def test_a_step_that_forgets_nothing_is_noticed(neighbors, monkeypatch, dies):
    monkeypatch.setattr(AtTheta, "forget", lambda self: None)
    known = is_known_after(neighbors, {"shift": np.array(1)})
    dies("contract: nothing is forgotten if another step moves", float(known), above=0.5)


@pytest.mark.slow
@every_sampler
def test_points_keep_their_types_and_are_not_modified(case, neighbors):
    names = ["f", "ls", "mu", "sigma"] if case[0].moves_theta else ["f"]
    step = make(case, neighbors, vars=[neighbors[name] for name in names])
    start = neighbors.initial_point()
    for values in start.values():
        values.flags.writeable = False
    before = {name: values.copy() for name, values in start.items()}
    for point, _ in run(step, start, 2):
        assert point.keys() == start.keys()
        for name, values in point.items():
            assert isinstance(values, np.ndarray)
            assert (values.dtype, values.shape) == (start[name].dtype, start[name].shape)
    assert equal_dataclass_values(start, before)


def test_writing_into_a_returned_point_does_not_change_the_step():
    # The parallel driver passes the same memory each time.
    start = listed("logistic").initial_point()
    step, twin = (build(lgm.ASIS, "logistic", rng=3) for _ in range(2))
    point, _ = step.step(start)
    expected, _ = twin.step(start)
    moved = {name: np.array(values + 0.25) for name, values in expected.items()}
    for name, values in point.items():
        values[...] = moved[name]
    assert equal_dataclass_values(step.step(point), twin.step(moved))


MOVES = {
    "nothing": ({}, 0),
    "f": ({"f": 0.3}, 0),
    "theta in the covariance": ({"ls_log__": -0.2}, 1),
    "theta in the mean": ({"mu": 0.4}, 0),
    "theta in the likelihood": ({"sigma_log__": 0.2}, 0),
    "f and theta": ({"f": 0.3, "ls_log__": -0.2, "mu": 0.4}, 1),
    "a neighbor in the covariance": ({"copies": 2}, 1),
    "a neighbor in the mean": ({"shift": 1}, 0),
    "a neighbor in the likelihood": ({"group": 1}, 0),
    "a neighbor in the covariance, and theta in the mean": ({"copies": 2, "mu": 0.4}, 1),
}


@pytest.mark.fast("ASIS-options1")
@pytest.mark.parametrize(
    ("sampler", "options"),
    # By a slice mu stays a hyper-parameter.
    [(lgm.EllipticalSlice, {}), (lgm.ASIS, {"latent_move": "slice"})],
)
def test_what_other_steps_have_moved_is_recomputed_and_no_more(sampler, options, neighbors):
    theta = ["ls", "mu", "sigma"] if sampler.moves_theta else []
    variables = [neighbors[name] for name in ("f", *theta)]
    # Each reads the model for itself: what one has seen of a neighbor, the other must see too.
    step, fresh = (sampler(variables, model=neighbors, rng=3, **options) for _ in range(2))
    start = neighbors.initial_point() | {"shift": np.array(0), "group": np.array(0)}
    point = run(step, start, 5)[-1][0]
    own = 2 if sampler.moves_theta else 0
    for move, (changes, factorizations) in MOVES.items():
        moved = point | {name: np.array(point[name] + by) for name, by in changes.items()}
        fresh.sampling_state = step.sampling_state
        fresh._state = None
        before = tally.cubic_ops
        point, stats = step.step(moved)
        assert tally.cubic_ops - before == factorizations + own, move
        assert stats[0]["cubic_ops"] == factorizations + own, move
        ours, theirs = draws_of([(point, stats)]), draws_of([fresh.step(moved)])
        assert equal_dataclass_values(ours, theirs), move


def test_a_point_without_density_is_an_error_that_names_it():
    step = build(lgm.ASIS, "logistic")
    with pytest.raises(pm.exceptions.SamplingError, match="f"):
        step.step(listed("logistic").initial_point() | {"f": np.array([0.0, np.nan, 0.0])})


def test_a_point_that_another_step_has_left_is_not_called_the_start():
    step = build(lgm.ASIS, "logistic")
    point, _ = step.step(listed("logistic").initial_point())
    with pytest.raises(pm.exceptions.SamplingError, match="where another step has moved to"):
        step.step(point | {"f": np.array([0.0, np.nan, 0.0])})


# Beside other steps


@pytest.fixture(scope="module")
def nuts():
    """PyMC's sampler for theta of `logistic`."""
    with listed("logistic") as model:
        return pm.NUTS([model["ls"], model["eta"], model["mu"]])


@pytest.mark.slow
def test_elliptical_slice_beside_nuts(nuts):
    model = listed("logistic")
    idata = quick(model, step=[build(lgm.EllipticalSlice, model, vars=model["f"]), nuts])
    stats = idata["sample_stats"]
    for name in ("latent_acceptance", "cubic_ops", "tree_depth", "diverging"):
        assert stats[name].dims == ("chain", "draw")
    # NUTS has moved theta before nearly every draw: one factorization each.
    assert stats["cubic_ops"].isin([0, 1]).all()
    assert stats["cubic_ops"].mean() > 0.5
    assert np.isfinite(idata["posterior"]["f"]).all()
    assert len(np.unique(idata["posterior"]["f"].values)) == 2 * 4 * 3


@pytest.mark.slow
def test_nuts_is_assigned_to_what_our_step_leaves():
    model = listed("logistic")
    step = build(lgm.papers.WhitenedMetropolis, model, vars=[model["ls"]])
    with model:
        provided, assigned = assign_step_methods(model, step)
    # The model has opted in, so the default would claim the rest; it moves them with f.
    assert [step.vars[1:] for step in provided] == [[model.rvs_to_values[model["ls"]]]]
    assert set(assigned) == {steps.DEFAULT}


@pytest.mark.slow
def test_whitened_metropolis_beside_discrete_steps(neighbors):
    theta = [neighbors[name] for name in ("f", "ls", "mu", "sigma")]
    step = build(lgm.papers.WhitenedMetropolis, neighbors, vars=theta)
    idata = quick(neighbors, step=step, draws=30)
    assert idata["sample_stats"]["theta_acceptance"].dims == ("chain", "draw")
    for name in ("copies", "shift", "group"):
        assert idata["posterior"][name].dtype.kind == "i"
        assert len(np.unique(idata["posterior"][name])) > 1


@pytest.mark.slow
def test_missing_data_are_drawn_by_the_step_of_f():
    with pm.Model() as model:
        eta = pm.LogNormal("eta", -0.4, 0.4)
        gp = pm.gp.Latent(cov_func=eta**2 * pm.gp.cov.Matern32(1, ls=1.0))
        f = gp.prior("f", np.arange(4.0)[:, None], reparameterize=False)
        with pytest.warns(pm.exceptions.ImputationWarning):
            lgm.Logistic("y", f=f, observed=np.ma.MaskedArray([0, 1, 0, 1], [0, 0, 1, 0]))
        provided, assigned = assign_step_methods(model)
        idata = quick(tune=2, draws=12)
    assert not provided
    assert [v.name for v in assigned[steps.DEFAULT]] == ["eta_log__", "f", "y_unobserved"]
    assert len(assigned) == 1
    assert set(np.unique(idata["posterior"]["y_unobserved"])) == {0, 1}


@pytest.mark.slow
def test_two_steps_for_two_latents(two_latents):
    model = two_latents
    step = [
        build(lgm.ASIS, model, vars=[model["f"], model["ls"]]),
        build(lgm.EllipticalSlice, model, vars=model["g"]),
    ]
    idata = quick(model, step=step)
    stats = idata["sample_stats"]
    assert stats["theta_acceptance"].dims == ("chain", "draw")
    # PyMC stacks statistics that several steps report.
    assert stats["latent_acceptance"].shape == (2, 4, 2)
    assert stats["cubic_ops"].dtype.kind == "i"
    for name in ("f", "g"):
        assert (idata["posterior"][name].std("draw") > 0).all()


@pytest.mark.slow
def test_a_compound_step_restores_its_state(two_latents):
    model = two_latents
    asis = build(lgm.ASIS, model, vars=[model["f"], model["ls"]], rng=1)
    compound = CompoundStep([asis, build(lgm.LatentHMC, model, vars=model["g"], rng=2)])
    point = run(compound, model.initial_point(), 4)[-1][0]
    saved = pickle.loads(pickle.dumps(compound.sampling_state))
    expected = run(compound, point, 4)
    compound.sampling_state = saved
    assert equal_dataclass_values(draws_of(run(compound, point, 4)), draws_of(expected))


# Back ends


@pytest.mark.slow
@pytest.mark.usefixtures("c_compiler")
@pytest.mark.parametrize("case", [(lgm.ASIS, {"scale": 0.4}), (lgm.PseudoMarginal, {})], ids=label)
def test_both_linkers_draw_the_same(case):
    model, (sampler, options) = listed("logistic"), case
    numba, c = (
        sampler(model=model, rng=3, compile_kwargs={"mode": mode}, **options)
        for mode in ("NUMBA", "CVM")
    )
    point = model.initial_point()
    for _ in range(8):
        # One draw at a time, from the same place: rounding has no time to grow.
        one, [stats] = numba.step(point)
        other, [others] = c.step(point)
        for name, values in one.items():
            assert np.isfinite(values).all()
            np.testing.assert_allclose(values, other[name], rtol=1e-6)
        for name in {"latent_acceptance", "theta_acceptance"} & stats.keys():
            np.testing.assert_allclose(stats[name], others[name], rtol=1e-6)
        point, c.sampling_state = one, numba.sampling_state


@pytest.mark.fast("c-VMLinker")
@pytest.mark.parametrize(("backend", "linker"), [("numba", "LoopLinker"), ("c", "VMLinker")])
def test_sample_passes_its_backend_on(backend, linker, monkeypatch):
    """Up to the functions that the model is evaluated by; no chain is run."""
    linkers = []

    class EnoughSeenError(Exception):
        pass

    def spy(model, theta, f, **_):
        linkers.append(type(model.graphs.log_prior.maker.linker).__name__)
        raise EnoughSeenError

    monkeypatch.setattr(read, "check_model", spy)
    with pytest.raises(EnoughSeenError):
        pm.sample(model=listed("logistic"), backend=backend, progressbar=False)
    assert linkers == [linker]


# What pm.sample returns


def test_dims_and_coords_reach_the_trace():
    coords = {"place": ["a", "b", "c"], "axis": ["x", "y"]}
    X = np.array([[0.0, 0.1], [0.5, 0.9], [1.4, 0.2]])
    with pm.Model(coords=coords):
        ls = pm.LogNormal("ls", 0.0, 0.5, dims="axis")
        gp = pm.gp.Latent(cov_func=pm.gp.cov.Matern32(2, ls=ls))
        f = gp.prior("f", X, reparameterize=False, dims="place")
        lgm.Logistic("y", f=f, observed=[0, 1, 1], dims="place")
        pm.Deterministic("p", pm.math.invprobit(f), dims="place")
        posterior = quick(step=lgm.ASIS(), tune=2, draws=2)["posterior"]
    for name, dim in {"f": "place", "p": "place", "ls": "axis"}.items():
        assert posterior[name].dims == ("chain", "draw", dim)
        assert list(posterior[name].coords[dim].values) == coords[dim]
    assert "ls_log__" not in posterior


@pytest.mark.slow
def test_scalar_parameters_are_scalars_in_the_trace(trace):
    posterior = trace[0]["posterior"]
    assert {posterior[name].shape for name in ("mu", "ls", "eta")} == {(2, 4)}
    assert posterior["f"].shape == (2, 4, 3)


def test_var_names_selects_what_is_stored():
    idata = quick(listed("logistic"), step=build(lgm.ASIS, "logistic"), var_names=["ls"])
    assert set(idata["posterior"].data_vars) == {"ls"}


def test_tuning_draws_can_be_kept(trace):
    idata, _ = trace
    assert idata["warmup_posterior"].sizes["draw"] == 6
    assert idata["posterior"].sizes["draw"] == 4
    scale = idata["warmup_sample_stats"]["theta_scale"]
    assert (scale.std("draw") > 0).all()
    frozen = idata["sample_stats"]["theta_scale"]
    assert (frozen.max("draw") == frozen.min("draw")).all()


def test_initvals_are_where_the_chain_starts():
    start = {"f": np.array([2.0, -1.0, 0.5]), "mu": 3.0, "ls": 0.7, "eta": 1.3}
    # HMC steps of almost no length, and a random walk of almost no scale.
    step = build(lgm.papers.SufficientMetropolis, "logistic", scale=1e-9)
    step.elements = (moves.latent.HMC(step_size=1e-9), *step.elements[1:])
    idata = quick(listed("logistic"), step=step, initvals=start, draws=1, tune=0, chains=1)
    for name, value in start.items():
        assert (abs(idata["posterior"][name] - value) < 1e-5).all()


def test_an_interrupt_leaves_a_partial_trace():
    def callback(trace, draw):
        if draw.draw_idx == 8:
            raise KeyboardInterrupt

    idata = quick(listed("logistic"), step=build(lgm.ASIS, "logistic"), callback=callback, chains=1)
    assert idata["posterior"].sizes["draw"] == 3
    assert idata["sample_stats"]["cubic_ops"].sizes["draw"] == 3


def test_the_callback_sees_our_statistics(trace):
    _, seen = trace
    for chain in (0, 1):
        own = [draw for draw in seen if draw.chain == chain]
        assert [draw.tuning for draw in own] == [True] * 6 + [False] * 4
    assert all(draw.stats[0].keys() == seen[0].stats[0].keys() for draw in seen)
    assert isinstance(seen[0].point["ls_log__"], np.ndarray)


@pytest.mark.slow
@pytest.mark.parametrize("mixed", [False, True], ids=["alone", "beside NUTS"])
@pytest.mark.parametrize("bar", ["split+stats", "combined+stats", "combined"])
def test_the_progress_bar_renders(bar, mixed, nuts, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "240")
    step = [build(lgm.LatentHMC, "logistic"), nuts] if mixed else build(lgm.ASIS, "logistic")
    quick(listed("logistic"), step=step, progressbar=bar, tune=3, draws=2)
    shown = "".join(capsys.readouterr())
    for column in ("f accept", "O(n³) ops") if "stats" in bar else ():
        assert column in shown


@pytest.mark.fast("PseudoMarginal", "ASIS-scale=0.4", "LatentHMC", "Sweep-move=slice")
@every_sampler
def test_every_statistic_is_declared_and_a_number(case):
    step = make(case)
    for i, (_, [stats]) in enumerate(run(step, listed("logistic").initial_point(), 5)):
        # A chain that explores looks at f in one draw of four.
        unseen = ("log_evidence", "log_evidence_sd", "latent_") if i % 4 and step.lgm.p else ()
        assert stats.keys() == step.stats_dtypes_shapes.keys()
        for name, value in stats.items():
            dtype, shape = step.stats_dtypes_shapes[name]
            assert np.shape(value) == tuple(shape)
            assert np.isfinite(value) or name.startswith(("pareto_k", *unseen))
            assert np.can_cast(np.min_scalar_type(value), dtype)
        assert 0 <= np.nan_to_num(stats.get("latent_acceptance", 0)) <= 1
        assert 0 <= stats.get("theta_acceptance", 0) <= 1
        # A trajectory of theta may diverge while its step size is sought.
        assert stats["numerical_rejections"] == 0 or case[1].get("move") == "hmc"


@pytest.mark.slow
def test_no_name_of_ours_is_one_of_pymcs():
    # PyMC would stack statistics of the same name, and hand our options to another step.
    theirs = [step for step in STEP_METHODS if step not in steps.SAMPLERS]
    ours = {name for case in CASES for name in make(case, "copula_volatility").stats_dtypes_shapes}
    assert ours.isdisjoint(name for step in theirs for name in step.stats_dtypes_shapes)
    names = [step.name for step in STEP_METHODS]
    assert all(names.count(sampler.name) == 1 for sampler in steps.SAMPLERS)


def test_a_zarr_trace_holds_the_draws(trace, monkeypatch):
    pytest.importorskip("zarr.sync")  # zarr 2: what PyMC 6.4 can write
    from pymc.backends.zarr import ZarrTrace

    # PyMC pickles the state of any step; what this test reads back it has just written itself.
    monkeypatch.setattr("numcodecs.pickles.ALLOW_UNSAFE_PICKLE_DECODE", True, raising=False)
    with pytest.warns(FutureWarning, match="return_inferencedata"):
        stored = quick(listed("logistic"), trace=ZarrTrace(), return_inferencedata=False)
    expected, _ = trace
    for name in ("f", "ls"):
        np.testing.assert_array_equal(stored.posterior[name][:], expected["posterior"][name])
    ops = expected["sample_stats"]["cubic_ops"]
    np.testing.assert_array_equal(np.squeeze(stored.sample_stats["sampler_0__cubic_ops"][:]), ops)


@wrap_py(itypes=[pt.dvector], otypes=[pt.dvector])
def opaque(f):
    return 2 * f


@pytest.mark.slow
def test_where_f_moves_by_a_slice_a_level_stays_a_hyperparameter():
    """Asked for, or because the likelihood has no gradient."""
    with pm.Model() as model:
        mu, scale = pm.Normal("mu"), pm.HalfNormal("scale")
        f = pm.MvNormal("f", mu=mu * np.ones(3), cov=scale**2 * np.eye(3))
        pm.Normal("smooth", f, 1.0, observed=[0.1, 0.2, 0.3])
    with model:
        assert lgm.ASIS().lgm.theta_names == ("scale_log__",)
        assert lgm.ASIS(latent_move="slice").lgm.theta_names == ("mu", "scale_log__")
    with model:
        pm.Normal("y", opaque(f), 1.0, observed=[0.1, 0.2, 0.3])
        assert lgm.ASIS().lgm.theta_names == ("mu", "scale_log__")


@pytest.mark.fast("PseudoMarginal")
@pytest.mark.parametrize(("sampler", "options"), CASES, ids=[label(case) for case in CASES])
def test_nothing_of_a_draw_waits_for_the_garbage_collector(sampler, options):
    """Cycles of a few objects with matrices of n × n in them: the collector counts objects."""
    step = build(sampler, "logistic", **options)
    step.setup_chain(np.random.default_rng(1), 12, 4)
    point = listed("logistic").initial_point()
    gc.freeze()  # what is there by now is not looked at again
    gc.disable()
    try:
        run(step, point, 12)
        step.stop_tuning()
        run(step, point, 4)
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left = {type(each).__qualname__ for each in gc.garbage if is_ours(each)}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
        gc.unfreeze()
    assert not left


def is_ours(thing):
    return type(thing).__module__.startswith("pymc_lgm")
