"""Chains on a Dask cluster are those of `pm.sample`; they survive a worker, a day, and a folder.

PyTensor's functions run in Python, here and on the workers: what is compiled in a process and what
it has loaded from PyTensor's cache differ in their last bits.
"""

import os
import signal
import sys
import threading
import time

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pymc as pm
import pytensor
import pytest
import xarray as xr

from pytensor.compile.mode import Mode

import pymc_lgm as lgm

from pymc_lgm.distributed import cluster, keep
from pymc_lgm.distributed.plan import Chain
from pymc_lgm.model.fingerprint import described, fingerprint

dask = pytest.importorskip("distributed")

SETTINGS = {"draws": 20, "tune": 12, "chains": 3, "random_seed": 7}
QUIET = {"progressbar": False, "quiet": True}


def model(scale: float = 1.0) -> pm.Model:
    rng = np.random.default_rng(3)
    x = np.linspace(0, 1, 15)
    with pm.Model(coords={"place": [f"p{i}" for i in range(15)]}) as made:
        eta = pm.HalfNormal("eta", scale)
        cov = eta**2 * pm.gp.cov.Matern32(1, ls=0.3)
        f = pm.gp.Latent(cov_func=cov).prior("f", x[:, None], reparameterize=False, dims="place")
        pm.Deterministic("rate", pm.math.exp(f), dims="place")
        lgm.LogGaussianCox("y", f=f, observed=rng.poisson(2, 15), dims="place")
    return made


def whitened() -> pm.Model:
    """A model that has what f is computed from."""
    with pm.Model() as made:
        cov = pm.HalfNormal("eta") ** 2 * pm.gp.cov.Matern32(1, ls=pm.HalfNormal("ls"))
        f = pm.gp.Latent(cov_func=cov).prior("f", np.linspace(0, 1, 8)[:, None])
        lgm.Probit("y", f=f, observed=[0, 1, 1, 0, 1, 1, 0, 1])
    return made


def two_steps():
    """A length-scale that another step moves."""
    made = pm.modelcontext(None)
    ours = [rv for rv in made.free_RVs if rv.name != "ls"]
    return [lgm.ASIS(ours), pm.Slice([made["ls"]])]


def two_scales() -> pm.Model:
    """NUTS alone: its metric is made of the starting points of all chains."""
    with pm.Model() as made:
        sigma = pm.HalfNormal("sigma")
        pm.Normal("y", pm.Normal("mu"), sigma, observed=[0.3, 1.0, -0.2])
    return made


ASIS = {"step": lambda: lgm.ASIS(theta_repeats=2), "discard_tuned_samples": False}

CASES = {
    "asis": (model, ASIS),
    "default": (model, {"draws": 5, "tune": 4, "var_names": ["f", "eta"]}),
    "nuts": (two_scales, {"target_accept": 0.9, "nuts_sampler": "pymc"}),
}


@pytest.fixture(scope="module", autouse=True)
def interpreted_here():
    """As in the processes, whose mode is an environment variable."""
    with pytensor.config.change_flags(mode=Mode(linker="py", optimizer="fast_compile")):
        yield


@pytest.fixture(scope="module")
def local():
    """What `pm.sample` draws in two processes: forked before Dask has threads in this one."""
    traces = {}
    for name, (make, options) in CASES.items():
        with make():
            made = {"step": options["step"]()} if "step" in options else {}
            traces[name] = pm.sample(cores=2, **SETTINGS | QUIET | options | made)
    return traces


@pytest.fixture(scope="module")
def client(local, tmp_path_factory):
    """Two processes, which interpret PyTensor's functions."""
    with (
        dask.LocalCluster(
            n_workers=2,
            local_directory=str(tmp_path_factory.mktemp("dask")),
            env={"PYTENSOR_FLAGS": "linker=py,optimizer=fast_compile"},
            **cluster.OF_THIS_MACHINE,
        ) as workers,
        dask.Client(workers) as made,
    ):
        yield made
    end_offload()


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """A worker of two threads in this process."""
    options = cluster.OF_THIS_MACHINE | {"threads_per_worker": 2, "processes": False}
    with (
        dask.LocalCluster(
            n_workers=1, local_directory=str(tmp_path_factory.mktemp("dask")), **options
        ) as workers,
        dask.Client(workers) as made,
    ):
        yield made
    end_offload()


def end_offload():
    """End the thread that Dask leaves behind: other tests fork, and Python warns of threads."""
    dask.utils._offload_executor.shutdown()
    dask.utils._offload_executor = ThreadPoolExecutor(1, "Dask-Offload")


def run(client, made=None, **options):
    return lgm.distributed.sample(
        model() if made is None else made, client=client, **SETTINGS | QUIET | options
    )


def assert_same(one: xr.DataTree, other: xr.DataTree) -> None:
    """The same groups, variables, labels and numbers, but for those of the clock."""
    assert one.children.keys() == other.children.keys()
    for name in one.children:
        groups = [tree[name].to_dataset() for tree in (one, other)]
        left = [v for v in groups[0] if "perf_counter" not in v and "process_time" not in v]
        xr.testing.assert_equal(*(group[left] for group in groups))
        assert set(groups[0]) == set(groups[1])
        for v in left:
            assert groups[0][v].dtype == groups[1][v].dtype


@pytest.mark.slow  # processes start and import PyMC, here and below
@pytest.mark.parametrize("name", CASES)
def test_chains_on_workers_are_those_of_pm_sample(client, local, name):
    make, options = CASES[name]
    found = run(client, make(), **options)
    assert_same(found, local[name])
    attrs = found["posterior"].attrs
    assert attrs["tuning_steps"] == local[name]["posterior"].attrs["tuning_steps"]
    assert attrs["sampling_time"] > 0


@pytest.mark.slow
def test_the_report_reads_the_trace(kept):
    report = lgm.report(kept[1], {"theta": "eta", "f": "f"})
    assert report.statistics.loc["cubic_ops"].notna().all()
    assert report.groups["ess_per_second"].gt(0).all()


@pytest.mark.slow
def test_chains_are_shared_out(client, monkeypatch):
    """Both processes work: nothing that one of them has draws all chains to it."""
    seen = set()
    finished = lgm.distributed.finished

    def spied(*args):
        for number, chain in finished(*args):
            seen.add(chain.worker)
            yield number, chain

    monkeypatch.setattr("pymc_lgm.distributed.finished", spied)
    run(client, two_scales(), chains=4)
    assert seen == set(client.scheduler_info()["workers"])


def dies_once(marker: Path, draw: int, die):
    """A step that ends its process, or its chain, the first time that a chain gets to a draw."""

    def make():
        step = lgm.ASIS(theta_repeats=2)
        inner, calls = step.step, iter(range(10**9))

        def once(point):
            if next(calls) == draw and not marker.exists():
                marker.touch()
                die()
            return inner(point)

        step.step = once
        return step

    return make


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL")
def test_a_chain_whose_worker_is_killed_has_the_same_draws(client, local, tmp_path):
    marker = tmp_path / "killed"
    workers = set(client.scheduler_info()["workers"])
    step = dies_once(marker, 15, lambda: os.kill(os.getpid(), signal.SIGKILL))
    found = run(client, **ASIS | {"step": step})
    assert marker.exists()
    assert_same(found, local["asis"])
    assert set(client.scheduler_info()["workers"]) != workers


@pytest.mark.slow  # after another test a process starts and imports PyMC
def test_where_one_chain_fails_the_others_end(client, tmp_path):
    def die():
        time.sleep(1)  # until the other chain is at work
        raise RuntimeError("lost")

    client.wait_for_workers(2, timeout=60)
    step = dies_once(tmp_path / "failed", 5, die)
    with pytest.raises(RuntimeError, match="lost") as error:
        run(client, draws=10**6, chains=2, step=step)
    assert "This was chain" in str(error.value.__notes__)
    workers = client.scheduler_info()["workers"]
    free = [client.submit(abs, -1, workers=[w], pure=False) for w in workers]
    assert client.gather([future.result(timeout=60) for future in free]) == [1, 1]


# Folders


@pytest.fixture(scope="module")
def kept(here, local, tmp_path_factory):
    folder = tmp_path_factory.mktemp("study") / "kept"
    return folder, run(here, keep=folder, **ASIS)


@pytest.mark.slow
def test_threads_of_one_process_wait_for_each_other(kept, local):
    """Two chains at a time in a worker that has one step method."""
    assert_same(kept[1], local["asis"])


@pytest.mark.slow
def test_a_kept_study_needs_no_worker(kept, monkeypatch):
    folder, trace = kept
    monkeypatch.setattr("pymc_lgm.distributed.cluster_for", None)
    again = run(None, keep=folder, **ASIS, random_seed=None)
    for name in trace.children:
        xr.testing.assert_identical(again[name].to_dataset(), trace[name].to_dataset())
        for variable in trace[name].data_vars:
            assert again[name][variable].dtype == trace[name][variable].dtype


@pytest.mark.slow
def test_only_chains_that_are_missing_run(here, kept, monkeypatch, tmp_path):
    """As after an interrupt: the second chain was at work."""
    folder, trace = kept
    store = keep.StoredChains(tmp_path)
    store.begin(keep.StoredChains(folder).settings)
    for number in (0, 2):
        store.save(number, keep.StoredChains(folder).load(number))
    ran = []
    finished = lgm.distributed.finished
    monkeypatch.setattr(
        "pymc_lgm.distributed.finished",
        lambda client, plan, states, *args: (
            ran.extend(states) or finished(client, plan, states, *args)
        ),
    )
    again = run(here, keep=tmp_path, **ASIS)
    assert ran == [1]
    assert store.numbers() == [0, 1, 2]
    assert_same(again, trace)
    before = max(
        keep.StoredChains(folder).load(i).groups["posterior"].sampling_time for i in (0, 2)
    )
    assert again["posterior"].attrs["sampling_time"] > before


@pytest.mark.slow
def test_a_chain_that_goes_on_has_the_draws_of_a_longer_one(here, kept, local, tmp_path):
    """Factorizations included: K is at hand when it goes on."""
    short = run(here, draws=8, keep=tmp_path / "short", **ASIS)
    assert short["posterior"].sizes["draw"] == 8
    options = {"resume": tmp_path / "short", "keep": tmp_path / "long"}
    long = run(here, draws=12, **ASIS, **options)
    assert_same(long, local["asis"])
    # What is kept is as if it had been drawn at once, and goes on, too.
    again = run(here, draws=20, keep=tmp_path / "long", **ASIS)
    assert_same(again, local["asis"])


@pytest.mark.slow
def test_a_chain_of_two_steps_goes_on_too(here, tmp_path):
    options = {"step": two_steps, "tune": 6, "chains": 1}
    run(here, whitened(), draws=4, keep=tmp_path, **options)
    long = run(here, whitened(), draws=6, resume=tmp_path, **options)
    assert_same(long, run(here, whitened(), draws=10, **options))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"draws": 21}, "draws was 20 and is 21"),
        ({"tune": 13}, "tune was 12 and is 13"),
        ({"random_seed": 8}, "random_seed"),
        ({"made": model(2.0)}, "model"),
        ({"step": lambda: lgm.ASIS()}, "step"),
        ({"initvals": {"eta": 0.5}}, "options"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_chains_of_two_studies_are_not_mixed(kept, options, said):
    with pytest.raises(ValueError, match=rf"keep=.*other settings \({said}"):
        run(None, keep=kept[0], **ASIS | options)


@pytest.mark.slow
def test_resume_wants_a_whole_study(kept, tmp_path):
    with pytest.raises(ValueError, match="holds no chains"):
        run(None, resume=tmp_path)
    store = keep.StoredChains(tmp_path)
    store.begin(keep.StoredChains(kept[0]).settings)
    store.save(0, keep.StoredChains(kept[0]).load(0))
    with pytest.raises(ValueError, match="1 of 3 chains"):
        run(None, resume=tmp_path, **ASIS)
    for number in (1, 2):
        store.save(number, replace(keep.StoredChains(kept[0]).load(number), state=b""))
    with pytest.raises(ValueError, match="could not be pickled"):
        run(None, resume=tmp_path, **ASIS)


@pytest.mark.slow
def test_a_chain_is_stored_as_a_whole_or_not_at_all(kept, tmp_path, monkeypatch):
    chain = keep.StoredChains(kept[0]).load(0)
    store = keep.StoredChains(tmp_path)
    written = xr.Dataset.to_netcdf

    def full(self, path, **options):
        if Path(path).stem == "sample_stats":
            raise OSError("No space left on device")
        return written(self, path, **options)

    monkeypatch.setattr(xr.Dataset, "to_netcdf", full)
    with pytest.raises(OSError, match="No space"):
        store.save(0, chain)
    assert store.numbers() == []
    assert list(tmp_path.iterdir()) == []


def test_netcdf_gives_back_every_type(tmp_path):
    labels = {"chain": [3], "name": ["a", "bcd"], "day": np.array([0, 9], "datetime64[ns]")}
    group = xr.Dataset(
        {
            "x": (("chain", "name"), [[np.pi, np.nan]]),
            "small": ("name", np.array([1, 2], np.float32)),
            "large": ("day", np.array([2**40, -1])),
            "flag": ("name", [True, False]),
            "count": ((), np.uint8(200)),
        },
        labels,
        {"tuning_steps": 5, "sample_dims": ["chain", "draw"]},
    )
    store = keep.StoredChains(tmp_path)
    store.save(3, Chain({"posterior": group}, b"state"))
    found = store.load(3)
    xr.testing.assert_identical(found.groups["posterior"], group)
    for name in group.variables:
        assert found.groups["posterior"][name].dtype == group[name].dtype
    assert found.state == b"state"


@pytest.mark.slow  # four samplers are made
def test_a_comparison_on_a_cluster_is_the_one_made_here(here):
    samplers = {"once": lgm.ASIS, "twice": lambda: lgm.ASIS(theta_repeats=2)}
    options = {"draws": 10, "tune": 5, "random_seed": 2, "progressbar": False}
    found = lgm.compare_samplers(samplers, model(), client=here, **options)
    alike = lgm.compare_samplers(samplers, model(), cores=1, **options)
    clock = [name for name in alike.table if "second" in name]
    pd.testing.assert_frame_equal(found.table.drop(columns=clock), alike.table.drop(columns=clock))
    assert (found.table[clock] > 0).all(axis=None)


# Fingerprints


def test_a_fingerprint_tells_models_apart():
    prints = [fingerprint(made) for made in (model(), model(), model(2.0), two_scales())]
    assert prints[0] == prints[1]
    assert len(set(prints)) == 3


def test_functions_are_told_apart_by_what_they_do():
    many = 32
    makers = [
        lambda: lgm.PseudoMarginal(n_importance=16),
        lambda: lgm.PseudoMarginal(n_importance=many),
        lambda n=64: lgm.PseudoMarginal(n_importance=n),
        lambda *, n=64: lgm.PseudoMarginal(n_importance=n),
        lambda *, n=128: lgm.PseudoMarginal(n_importance=n),
        lgm.PseudoMarginal,
        lgm.ASIS,
    ]
    assert len({str(described(make)) for make in makers}) == len(makers)
    assert described(lambda: lgm.PseudoMarginal(n_importance=16)) == described(makers[0])


# What the call says


def test_labels_that_cannot_be_stored_are_refused_before_a_chain_runs(tmp_path):
    times = np.array(["2020-01-01T00:00:00.1234567", "2020-01-03"], dtype="datetime64[ns]")
    with pm.Model(coords={"time": times, "place": ["here"]}) as model:
        pm.Normal("x", dims="time")
        pm.Normal("z", dims="place")
    with pytest.raises(ValueError, match="keep= cannot store the labels of 'time'"):
        lgm.distributed.sample(model, draws=5, keep=tmp_path / "study")
    assert not (tmp_path / "study").exists()


def test_without_dask_the_call_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ImportError, match=r"pip install 'pymc_lgm\[distributed\]'"):
        run(None)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"callback": print}, "callback"),
        ({"mp_ctx": "fork"}, "Dask starts the processes"),
        ({"return_inferencedata": False}, "DataTree"),
        ({"nuts_sampler": "numpyro"}, "pm.sample"),
        ({"step": "ASIS"}, "write a class"),
        ({"draws": 0}, "1 or more"),
        ({"tune": -1}, "0 or more"),
        ({"chains": 1.5}, "whole number"),
        ({"client": "scheduler:8786"}, "distributed.Client"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_makes_no_sense_is_refused(options, said):
    with pytest.raises((TypeError, ValueError), match=said):
        run(**{"client": None} | options)


def test_a_model_that_is_all_data_is_refused():
    with pm.Model() as data:
        pm.Normal("y", observed=[1.0])
    with pytest.raises(ValueError, match="nothing to sample"):
        run(None, data)


def test_a_step_that_is_made_is_refused():
    with model():
        step = lgm.EllipticalSlice()
    with pytest.raises(TypeError, match=r"lambda: EllipticalSlice\(\.\.\.\)"):
        run(None, step=step)


def test_a_cluster_has_the_processes_that_it_has(here):
    with pytest.raises(TypeError, match="leave cores out"):
        run(here, cores=2)


def test_one_bar_counts_all_chains(monkeypatch):
    shown, handlers = [], {}

    class Bar:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def add_task(self, *_, **state):
            return shown.append(state)

        def update(self, _, **state):
            shown.append(state)

    class Client:
        subscribe_topic = staticmethod(handlers.__setitem__)
        unsubscribe_topic = staticmethod(handlers.pop)

    monkeypatch.setattr(cluster, "create_simple_progress", lambda shown: Bar())
    with cluster._progress(Client(), "study", 2, 30, True):
        for event in ((0, 10, 40), (1, 20, 40), (0, 5, 40)):  # the first begins again
            handlers["study"]((0.0, event))
        assert shown[0] == {"completed": 0, "total": 60}
        assert [state["completed"] for state in shown[1:]] == [10, 30, 25]
        assert shown[-1]["total"] == 80
    assert not handlers


@pytest.mark.slow  # a process starts and imports PyMC
def test_without_a_client_a_cluster_is_made_and_closed(monkeypatch, local):
    monkeypatch.setenv("PYTENSOR_FLAGS", "linker=py,optimizer=fast_compile")
    before = {thread.name for thread in threading.enumerate()}
    found = run(None, cores=2, **ASIS)
    assert_same(found, local["asis"])
    after = {thread.name for thread in threading.enumerate()} - before
    assert not {name for name in after if "Nanny" in name or "IO loop" in name}
    end_offload()
