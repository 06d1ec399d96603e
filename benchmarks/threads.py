"""The cost of BLAS threads, and the gain from a limit of one thread during a draw.

    python benchmarks/threads.py [--quick] [--unlimited] [--n 100 400 ...] [--only readme ...]

No environment variable is needed: each row is a separate process, which starts with OMP_NUM_THREADS
unset, 1 or 2. `--unlimited` switches `few_threads` off, as in earlier versions.

"calls": milliseconds of `dpotrf`, of `dpotri` and of a product with 64 columns, with one thread and
with two; `few_threads` has no say in them. "draws": one chain of the default on the model of the
README with n bins, from the second draw on, half of it tuning. "sum": the same on "everything" of
sums.py, whose f has 1284 elements, and whose factor a dense block of 234 rows. "readme": seconds
that `pm.sample` takes for the chains of the README's example, in one process, and in two at a time
that are forked, spawned, or forked from a server.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time

from collections.abc import Callable
from typing import Any

import numpy as np
import pymc as pm
import sums
import threadpoolctl

from _results import Table, arguments
from scipy.linalg import lapack

import pymc_lgm as lgm

from pymc_lgm import threads

TABLES = ("calls", "draws", "sum", "readme")
SETTINGS = (None, 1, 2)
MODES: dict[str, dict[str, Any]] = {
    "cores=1": {"cores": 1},
    "cores=2, fork": {"cores": 2, "mp_ctx": "fork"},
    "cores=2, spawn": {"cores": 2, "mp_ctx": "spawn"},
    "cores=2, forkserver": {"cores": 2, "mp_ctx": "forkserver"},
}

if "--unlimited" in sys.argv:  # also in spawned processes, which have our arguments
    nothing = threadpoolctl.ThreadpoolController().select(user_api="none")
    threads._pools = lambda forked: nothing


def coal_mining(n: int) -> pm.Model:
    """The example of the README, with n bins."""
    dates = lgm.datasets.load_coal_mining_dates()["date"]
    y, edges = np.histogram(dates, np.linspace(1851, 1963, n + 1))
    years = (edges[1:] + edges[:-1]) / 2
    with pm.Model() as model:
        mean = pm.Normal("mean", 0, 2)
        length = pm.InverseGamma("length", 3, 60)
        amplitude = pm.HalfNormal("amplitude", 1)
        cov = amplitude**2 * pm.gp.cov.Matern52(1, ls=length)
        gp = pm.gp.Latent(mean_func=pm.gp.mean.Constant(mean), cov_func=cov)
        f = gp.prior("f", years[:, None], reparameterize=False)
        lgm.LogGaussianCox("disasters", f=f, exposure=112 / n, observed=y)
    return model


def milliseconds(function: Callable[[], object], budget: float) -> float:
    """Milliseconds of one call, the median of as many calls as fit into a budget of seconds."""
    function()
    times: list[float] = []
    while sum(times) < budget or len(times) < 5:
        begin = time.perf_counter()
        function()
        times.append(time.perf_counter() - begin)
    return 1e3 * float(np.median(times))


def kernels(n: int, budget: float) -> list[list[float]]:
    """Milliseconds of dpotrf, dpotri and a product, by one thread and by two."""
    rng = np.random.default_rng(0)
    x = np.linspace(0, 10, n)
    K = np.asfortranarray(np.exp(-np.abs(x[:, None] - x)))
    L, columns = lapack.dpotrf(K, lower=1)[0], rng.standard_normal((n, 64))
    calls = [
        lambda: lapack.dpotrf(K, lower=1, clean=0),
        lambda: lapack.dpotri(L, lower=1),
        lambda: K @ columns,
    ]
    result = []
    for limit in (1, 2):
        with threadpoolctl.threadpool_limits(limit, user_api="blas"):
            result.append([milliseconds(call, budget) for call in calls])
    return result


def chain(n: int, draws: int) -> tuple[float, int]:
    """Seconds and number of draws of one chain on the README's model."""
    return timed(coal_mining(n), draws)


def everything(draws: int) -> tuple[float, int]:
    """The same on a sum of a process, a series, effects and coefficients."""
    with pm.Model() as model:
        sums.everything(np.random.default_rng(0))
    return timed(model, draws)


def timed(model: pm.Model, draws: int) -> tuple[float, int]:
    """Seconds and number of draws of one chain after its first draw, half of them tuning."""
    step = lgm.PseudoMarginal(model=model)
    step.setup_chain(np.random.default_rng(1), draws, draws)
    point, _ = step.step(model.initial_point())
    begin = time.perf_counter()
    for i in range(2 * draws):
        if i == draws:
            step.stop_tuning()
        point, _ = step.step(point)
    return time.perf_counter() - begin, 2 * draws


def readme(mode: str, draws: int) -> tuple[float, int]:
    """Seconds of sampling as PyMC counts them, and draws of all chains with their tuning."""
    tune = min(1000, draws)
    with coal_mining(112):
        idata = pm.sample(
            draws, tune=tune, chains=4, random_seed=1, progressbar=False, quiet=True, **MODES[mode]
        )
    return float(idata["posterior"].attrs["sampling_time"]), 4 * (draws + tune)


JOBS = {"kernels": kernels, "chain": chain, "everything": everything, "readme": readme}


def in_a_process(job: str, *arguments: Any, omp: int | None = None, unlimited: bool = False) -> Any:
    """Result of a function of this file in a new process, with OMP_NUM_THREADS set or unset."""
    named = {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"}
    environment = {name: value for name, value in os.environ.items() if name not in named}
    if omp is not None:
        environment["OMP_NUM_THREADS"] = str(omp)
    command = [sys.executable, __file__, "--job", json.dumps([job, *arguments])]
    command += ["--unlimited"] if unlimited else []
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def chains(args: argparse.Namespace, part: str, rows: dict[str, tuple[Any, ...]]) -> None:
    """Run a function for each row and each setting of OMP_NUM_THREADS; print its fastest run."""
    repeats, unlimited = args.repeats, args.unlimited
    columns = {part: "<19", "OMP_NUM_THREADS": ">15", "seconds": ".2f", "draws/s": ".1f"}
    table = Table(args, few(args), columns | {"ratio to 1": ".2f"}, keys=2, part=part)
    for name, job in rows.items():
        if table.has(name):
            continue
        results: dict[int | None, list[Any]] = {omp: [] for omp in SETTINGS}
        for _ in range(repeats):  # in turn; the first round also compiles
            for omp, runs in results.items():
                runs.append(in_a_process(*job, omp=omp, unlimited=unlimited))
        best = {omp: min(runs) for omp, runs in results.items()}
        for omp, (seconds, draws) in best.items():
            setting = "unset" if omp is None else omp
            table.row(name, str(setting), seconds, draws / seconds, seconds / best[1][0])


def few(args: argparse.Namespace) -> str:
    """Return the title that says whether the package limited threads."""
    return "without few_threads" if args.unlimited else ""


def main() -> None:
    parser = arguments(__doc__, quick="n = 100, few draws")
    parser.add_argument("--unlimited", action="store_true", help="without few_threads")
    parser.add_argument("--n", type=int, nargs="*", default=[100, 400, 1000, 2000])
    parser.add_argument("--draws", type=int, default=2000, help="of each chain of the README's")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--modes", nargs="*", default=list(MODES), choices=MODES)
    parser.add_argument("--only", nargs="*", default=TABLES, choices=TABLES)
    parser.add_argument("--job", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        job, *given = args.job
        print(json.dumps(JOBS[job](*given)))
        return
    budget, work = 2.0, 100_000
    if args.quick:
        args.n, args.draws, args.modes = [100], 20, ["cores=1", "cores=2, fork"]
        args.repeats, budget, work = 1, 0.05, 2_000
    if "calls" in args.only:
        names = [f"{call} × {limit}" for call in ("dpotrf", "dpotri", "K @ 64") for limit in (1, 2)]
        columns = {"n": ""} | dict.fromkeys(names, ".3f")
        table = Table(args, "milliseconds by one thread, and by two", columns, 1, part="calls")
        for n in args.n:
            one, two = in_a_process("kernels", n, budget)
            table.row(n, *(ms for pair in zip(one, two, strict=True) for ms in pair))
    if "draws" in args.only:
        rows = {f"n = {n}": ("chain", n, max(15, work // n)) for n in args.n}
        chains(args, "draws", rows)
    if "sum" in args.only:
        chains(args, "sum", {"everything": ("everything", max(15, args.draws // 7))})
    if "readme" in args.only:
        rows = {mode: ("readme", mode, args.draws) for mode in args.modes}
        chains(args, "readme", rows)


if __name__ == "__main__":
    main()
