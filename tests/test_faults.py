"""What happens when: faults that are injected one by one, and what is promised of each.

`FAULTS` is the table of docs/troubleshooting.md.
"""

from __future__ import annotations

import errno
import math
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import traceback

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import arviz as az
import cloudpickle
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

from models import COMPILED, build
from pymc.backends.ndarray import NDArray
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from scipy import stats
from threadpoolctl import threadpool_info

import pymc_lgm as lgm

pytestmark = pytest.mark.usefixtures("interpreted")

PAGE = Path(__file__).parents[1] / "docs" / "troubleshooting.md"
N = 12
X = np.linspace(0.0, 1.0, N)[:, None]
Y = np.array([0, 0, 1, 0, 1, 1, 1, 0, 1, 1, 0, 0])


@dataclass(frozen=True)
class Fault:
    """A row of the page: when, what happens then, and what to do."""

    when: str
    happens: str
    do: str

    def __str__(self) -> str:
        return f"| {self.when} | {self.happens} | {self.do} |"


FAULTS: dict[str, Fault] = {}


def promised(when: str, happens: str, do: str) -> Callable[[Any], Any]:
    """List a row of the page, above the test that it holds."""

    def listed(test: Any) -> Any:
        FAULTS[test.__name__] = Fault(when, happens, do)
        return test

    return listed


def test_the_page_has_this_table() -> None:
    (table,) = re.findall(r"^\| when \|.*?\n\n", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    rows = ["| when | what happens | what to do |", "|---|---|---|", *map(str, FAULTS.values())]
    assert table.splitlines()[:-1] == rows, "\n".join(rows)


# A small model, with faults that can be turned on, and what its chain draws while none is

NONE, NO_COVARIANCE, NOT_A_NUMBER, INFINITE = range(4)


def one_in_ten(x: Any) -> Any:
    """True for one number in ten, in stripes that are narrow against any posterior."""
    return pt.mod(100.0 * x, 1.0) < 0.1


def small(op: Callable[[Any], Any] = lambda f: f) -> pm.Model:
    """Binary data of a Gaussian process, whose log density a user's ``op`` may enter."""
    with pm.Model() as model:
        fault = pm.Data("fault", NONE)
        ls = pm.LogNormal("ls", -1.0, 0.5)
        eta = pm.LogNormal("eta", 0.0, 0.5)
        K = (eta**2 * pm.gp.cov.Matern52(1, ls=ls))(X) + 1e-6 * np.eye(N)
        bad = one_in_ten(pt.log(ls))
        K = pt.switch(bad & pt.eq(fault, NO_COVARIANCE), -K, K)
        f = pm.MvNormal("f", mu=np.zeros(N), cov=K)
        values = pt.switch(pt.eq(fault, NOT_A_NUMBER), np.nan, np.inf)
        pm.Potential("user", pt.switch(bad & pt.ge(fault, NOT_A_NUMBER), values, 0.0))
        lgm.Probit("y", f=op(f), observed=Y)
    return model


def sample(model: pm.Model, step: Any = lgm.ASIS, compiled: bool = False, **options: Any) -> Any:
    options = {
        "draws": 20,
        "tune": 20,
        "chains": 1,
        "cores": 1,
        "random_seed": 3,
        "progressbar": False,
        "compute_convergence_checks": False,
    } | options
    with model:
        step = build(step, model, compiled=compiled) if isinstance(step, type) else step
        return pm.sample(step=step, **options)


def moments(idata: Any) -> tuple[np.ndarray, np.ndarray]:
    """Means of functions of theta and f, and their Monte Carlo errors."""
    posterior = idata["posterior"].to_dataset()
    log_ls, log_eta, f = np.log(posterior["ls"]), np.log(posterior["eta"]), posterior["f"]
    chosen = {"ls": log_ls, "eta": log_eta, "ls2": log_ls**2, "f0": f[..., 0], "f9": f[..., 9]}
    chains = [values.values for values in chosen.values()]
    errors = [float(az.mcse(x, method="mean")) for x in chains]
    return np.array([x.mean() for x in chains]), np.array(errors)


@pytest.fixture(scope="module")
def switched() -> Iterator[Callable[..., Any]]:
    """Long chains of one model that is compiled once, with a fault turned on."""
    with pytensor.config.change_flags(**COMPILED):
        model = small()
        initial = model.initial_point()

        def draws(fault: int, sampler: Any) -> Any:
            with pytensor.config.change_flags(**COMPILED):
                model.set_data("fault", fault)
                return sample(model, sampler, compiled=True, draws=800, tune=200)

        assert not np.mod(100.0 * initial["ls_log__"], 1.0) < 0.1
        yield draws


@pytest.fixture(scope="module")
def right(switched: Any) -> tuple[np.ndarray, np.ndarray]:
    """What `moments` are where nothing is wrong."""
    return moments(switched(NONE, lgm.ASIS))


def assert_same_target(idata: Any, right: tuple[np.ndarray, np.ndarray]) -> None:
    """Means agree within Monte Carlo errors: a false alarm in 10⁵, of all five together."""
    posterior = idata["posterior"].to_dataset()
    assert all(np.isfinite(values).all() for values in posterior.values())
    stripes = np.mod(100.0 * np.log(posterior["ls"].values), 1.0)
    assert (stripes > 0.1 - 1e-6).all()
    found = moments(idata)
    z = (found[0] - right[0]) / np.hypot(found[1], right[1])
    assert (2 * stats.norm.sf(np.abs(z))).min() > 1e-5 / z.size, z


def rejections(idata: Any) -> int:
    return int(idata["sample_stats"]["numerical_rejections"].sum())


# Values that cannot be computed

both = pytest.mark.parametrize(
    "sampler",
    [lgm.ASIS, pytest.param(lgm.PseudoMarginal, marks=pytest.mark.slow)],
    ids=lambda sampler: sampler.__name__,
)


@pytest.mark.slow
@promised(
    "the covariance cannot be factorized, for example at one theta in ten",
    "the proposal is rejected and counted in `numerical_rejections`; at all other theta"
    " the posterior is not changed",
    "nothing, if they are few; otherwise a [jitter](#jitter)",
)
@both
def test_covariances_that_fail(sampler: Any, switched: Any, right: Any) -> None:
    idata = switched(NO_COVARIANCE, sampler)
    assert rejections(idata) > 0
    assert_same_target(idata, right)


@pytest.mark.slow
@promised(
    "a model's own code returns NaN or +inf",
    "the proposal is rejected and counted in `numerical_rejections`; elsewhere the "
    "posterior is not changed",
    "return NaN if a value cannot be computed, −inf if the density is 0",
)
@pytest.mark.parametrize("fault", [NOT_A_NUMBER, INFINITE], ids=["nan", "inf"])
@both
def test_values_that_are_no_numbers(sampler: Any, fault: int, switched: Any, right: Any) -> None:
    idata = switched(fault, sampler)
    assert rejections(idata) > 0
    assert_same_target(idata, right)


@pytest.mark.slow
@promised(
    "exp(f) overflows",
    "a proposal with density 0 is rejected, and one with NaN is rejected and counted; "
    "every draw has a positive density",
    "nothing; a prior of the amplitude that excludes f above 700 avoids such proposals",
)
def test_exp_overflows() -> None:
    with pm.Model() as model:
        scale = pm.HalfNormal("scale", 300.0, initval=1.0)
        f = pm.MvNormal("f", mu=np.zeros(3), cov=scale**2 * np.eye(3))
        lgm.LogGaussianCox("y", f=f, observed=[0, 0, 0])
    idata = sample(model, lgm.papers.SufficientMetropolis, draws=200, tune=50)
    f = idata["posterior"]["f"].values
    assert np.isfinite(f).all()
    assert f.max() < 710.0
    assert f.min() < -30.0


# Errors and signals in the middle of a chain


class Broken(Op):
    """A user's code: the identity, but for what it does at its k-th evaluation."""

    __props__ = ()

    def __init__(self, act: Callable[[], None] = lambda: None):
        self.act, self.left = act, -1

    def make_node(self, x: Any) -> Apply:
        x = pt.as_tensor_variable(x)
        return Apply(self, [x], [x.type()])

    def perform(self, node: Any, inputs: Any, outputs: Any) -> None:
        outputs[0][0] = inputs[0].copy()
        self.left -= 1
        if self.left == 0:
            self.act()

    def pullback(self, inputs: Any, outputs: Any, output_grads: Any) -> Any:
        return output_grads


@pytest.fixture(scope="module")
def broken() -> tuple[pm.Model, Broken, Any]:
    """A model, the code in it that goes wrong, and a step that evaluates it once per proposal."""
    op = Broken()
    model = small(op)
    return model, op, build(lgm.papers.SufficientMetropolis, model, latent_move="slice")


def noted(seen: list[Any]) -> Callable[..., None]:
    """A callback that keeps each draw."""
    return lambda trace, draw: seen.append((draw.chain, draw.draw_idx, draw.point["f"].copy()))


@pytest.fixture(scope="module")
def whole(broken: Any) -> list[Any]:
    """All draws of the chain that nothing interrupts."""
    model, _, step = broken
    seen: list[Any] = []
    sample(model, step, tune=0, draws=40, callback=noted(seen))
    return seen


def same(draws: list[Any], whole: list[Any]) -> bool:
    """Whether draws are the first ones of a chain."""
    pairs = zip(draws, whole[: len(draws)], strict=True)
    return all(np.array_equal(one[2], other[2]) for one, other in pairs)


@pytest.mark.slow
@promised(
    "a model's own code raises an error in the middle of a chain",
    "the error is raised, with a note of the theta at which the draw began; a callback,"
    " or a trace on disk, has the draws before it, and the step can be used again",
    "return NaN if a value cannot be computed; write `pm.sample(trace=...)` to store draws",
)
@pytest.mark.parametrize("cores", [1, 2])
def test_an_error_in_the_graph(cores: int, broken: Any, whole: list[Any]) -> None:
    def fail() -> None:
        raise ArithmeticError("the solver did not converge")

    model, op, step = broken
    op.act, op.left, seen = fail, 101, []
    says = r"(?s)solver did not converge.*"
    if cores == 2:  # PyMC passes on the text of what another process has raised
        says = r"(?s)Chain \d failed"
    with pytest.raises(Exception, match=says) as caught:
        sample(model, step, tune=0, draws=40, chains=cores, cores=cores, callback=noted(seen))
    op.left = -1
    shown = "".join(traceback.format_exception(caught.value))
    assert re.search(r"(?s)ended a draw from \{ls_log__=.*return NaN.*trace=", shown)
    first = [draw for draw in seen if draw[0] == 0]
    assert 0 < len(first) < 40
    if cores == 1:
        assert same(first, whole)
    again: list[Any] = []
    sample(model, step, tune=0, draws=10, callback=noted(again))
    assert same(again, whole)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Python's own answer to SIGINT, whatever other tests have put in its place."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.slow
@promised(
    "Ctrl-C, SIGINT, at any moment",
    "`pm.sample` returns the complete draws, which equal those of a whole run; the "
    "number of BLAS threads is restored",
    "nothing: the step can be used again",
)
def test_an_interrupt_at_a_random_moment(
    broken: Any, whole: list[Any], interruptible: None
) -> None:
    model, op, step = broken
    rng = np.random.default_rng(5)
    threads = [pool["num_threads"] for pool in threadpool_info()]
    for _ in range(4):
        # To this thread, at once: what is sent to the process may reach another one, and later.
        op.act = lambda: signal.raise_signal(signal.SIGINT)
        # The first draw is compared with PyMC's density, which calls the operation some ten times.
        op.left = int(rng.integers(25, 90))
        idata = sample(model, step, tune=0, draws=40)
        op.left = -1
        f = idata["posterior"]["f"].values[0]
        assert 0 < len(f) < 40
        assert all(np.array_equal(x, draw[2]) for x, draw in zip(f, whole, strict=False))
        assert [pool["num_threads"] for pool in threadpool_info()] == threads


@promised(
    "a process of `pm.sample(cores=...)` is killed, for example because memory ran out",
    "PyMC soon raises `EOFError` or `ConnectionError`; the other processes end; a "
    "callback, or a trace on disk, has the draws before it",
    "use fewer `cores` or [less memory](#memory); the system log has the cause",
)
def test_a_worker_is_killed(broken: Any) -> None:
    model, op, step = broken
    parent, seen = os.getpid(), []

    def die() -> None:
        if os.getpid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)

    op.act, op.left = die, 101
    with pytest.raises((EOFError, ConnectionError)):
        sample(model, step, tune=0, draws=40, chains=2, cores=2, callback=noted(seen))
    op.left = -1
    assert seen
    assert not multiprocessing.active_children()


# Where draws are written


class Folder(NDArray):
    """A trace that writes each draw of f into a file of its own, on a disk with room for some."""

    def __init__(self, path: Path, room: float = math.inf, **options: Any):
        super().__init__(**options)
        self.path, self.room = path, room

    def record(self, point: Any, sampler_stats: Any = None, *, in_warmup: bool) -> None:
        if self.draw_idx >= self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
        np.save(self.path / f"{self.draw_idx:04d}.npy", point["f"])
        super().record(point, sampler_stats, in_warmup=in_warmup)

    @staticmethod
    def read(path: Path) -> list[np.ndarray]:
        return [np.load(file) for file in sorted(path.glob("*.npy"))]


@pytest.mark.slow
@promised(
    "the disk is full below a trace that is written draw by draw",
    "`OSError: No space left on device` from the trace; the draws written before are "
    "readable, and the step can be used again",
    "free space, or omit f: `pm.sample(var_names=...)`",
)
def test_a_full_disk(broken: Any, whole: list[Any], tmp_path: Path) -> None:
    model, _, step = broken
    with pytest.raises(OSError, match="No space left"):
        sample(model, step, tune=0, draws=40, trace=Folder(tmp_path, room=12, model=model))
    written = Folder.read(tmp_path)
    assert len(written) == 12
    assert all(np.array_equal(x, draw[2]) for x, draw in zip(written, whole, strict=False))
    again: list[Any] = []
    sample(model, step, tune=0, draws=10, callback=noted(again))
    assert same(again, whole)


@pytest.mark.slow
@promised(
    "the folder of such a trace vanishes",
    "`FileNotFoundError` from the trace at the next draw, with the folder's name; the step can be "
    "used again",
    "write to a disk that stays",
)
def test_a_folder_that_vanishes(broken: Any, whole: list[Any], tmp_path: Path) -> None:
    model, _, step = broken
    folder, seen = tmp_path / "trace", []
    folder.mkdir()

    def remove(trace: Any, draw: Any) -> None:
        seen.append((draw.chain, draw.draw_idx, draw.point["f"].copy()))
        if len(seen) == 7:
            shutil.rmtree(folder)

    with pytest.raises(FileNotFoundError, match="trace"):
        sample(model, step, tune=0, draws=40, trace=Folder(folder, model=model), callback=remove)
    assert len(seen) == 7
    assert same(seen, whole)


@pytest.mark.slow
@promised(
    "the clock is set forward or back",
    "the draws are the same; a sampling time that is not positive counts as unknown, so that "
    "`ess_per_second` is NaN",
    "nothing",
)
def test_a_clock_that_jumps(broken: Any, whole: list[Any], monkeypatch: Any) -> None:
    model, _, step = broken
    rng, clock, seen = np.random.default_rng(7), time.time, []
    with monkeypatch.context() as patched:
        for name in ("time", "perf_counter", "monotonic"):
            patched.setattr(time, name, lambda: clock() + rng.uniform(-7200.0, 7200.0))
        idata = sample(model, step, tune=0, draws=40, callback=noted(seen), progressbar=True)
    assert same(seen, whole)
    idata["posterior"].attrs["sampling_time"] = -3600.0
    assert np.isnan(lgm.efficiency(idata)["ess_per_second"]).all()
    assert "-3600" not in str(lgm.report(idata, backend="none"))


RESUMED = """
import pickle, sys
import cloudpickle
import numpy as np
step, point = cloudpickle.loads(open(sys.argv[1], "rb").read())
found = []
for _ in range(3):
    point, _ = step.step(point)
    found.append(point["f"])
np.save(sys.argv[2], np.array(found))
"""


@promised(
    "a pickled step continues in another process, with another number of cores or on "
    "another processor",
    "below n = 1000 the number of cores does not change a bit; another processor rounds"
    " differently, so draws agree at first and differ later, with the same posterior",
    "nothing; compare posteriors instead of draws",
)
@pytest.mark.slow
def test_a_step_goes_on_elsewhere(broken: Any, tmp_path: Path) -> None:
    model = small()
    step = build(lgm.ASIS, model, latent_move="slice")
    step.setup_chain(np.random.default_rng(1), 30, 10)
    point = model.initial_point()
    for _ in range(30):
        point, _ = step.step(point)
    step.stop_tuning()
    (tmp_path / "step").write_bytes(cloudpickle.dumps((step, point)))
    expected = []
    for _ in range(3):
        point, _ = step.step(point)
        expected.append(point["f"])
    script = tmp_path / "resume.py"
    script.write_text(RESUMED)
    ours = {"PYTHONPATH": str(Path(lgm.__file__).parents[1])}
    for name, settings in {
        "threads": {"OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"},
        "processor": {"OPENBLAS_CORETYPE": "Haswell"},
    }.items():
        command = [sys.executable, script, tmp_path / "step", tmp_path / f"{name}.npy"]
        subprocess.run(command, check=True, timeout=300, env=os.environ | ours | settings)
        np.testing.assert_allclose(np.load(tmp_path / f"{name}.npy"), expected, rtol=1e-6)
    np.testing.assert_array_equal(np.load(tmp_path / "threads.npy"), expected)
