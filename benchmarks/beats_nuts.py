"""The default sampler against NUTS on the whitened model: effective samples of theta a second.

    python benchmarks/beats_nuts.py [--quick] [--models logistic] [--n 100 400] [--d 2 10]

`pm.sample()` on the simulated designs of `_design` and, on the same data, cores and chains, on what
users of NUTS write: `gp.prior` that whitens f, and PyMC's own likelihoods. Before a data set is
sampled, the two log densities are compared at a random point. The three NUTS are nutpie (PyMC's
default where it is installed), PyMC's own, and NumPyro; one that is not installed is named and left
out.

ESS is ArviZ's bulk ESS of all chains together, the smallest over the elements of theta. ESS/s is
per second of tuning and sampling, by the trace's `sampling_time`. "compile" is the rest of a run:
building the model, and all that `pm.sample` does besides. (NumPyro compiles its sampler within its
sampling time; that part is moved to "compile". PyTensor keeps compiled code on disk, so the first
run of a model can take longer.) The columns "compiled" are per second of both.

Rows are medians over data sets, one a seed; "runs" counts those that ended within the time limit.
Each run is a separate process. A run of NUTS that reached the time limit is counted as the best
possible run: all of its draws, in the time that it took. Rates of a row with such runs, ">", are
too high, so the ratio for the default is a lower bound. "!": R-hat above 1.05, so the ESS means
little. "default is" is the default's ESS/s over the row's ESS/s. "by ops" is this ratio if the
default took no longer than its O(n³) operations, with those of tuning, each in the time of one
`dpotrf`: an upper bound of the gain from faster code. The best NUTS is the one with the smallest
ratio.

`--nuts-draws` shortens NUTS where it takes hours, with as many draws of tuning as are kept, which
is the proportion of PyMC's defaults. The first draws of tuning are the dearest, and a short tuning
adapts less: short runs are not quite the rate of NUTS at 1000 after 1000.
"""

from __future__ import annotations

import importlib.util
import itertools
import math
import multiprocessing
import os
import signal
import statistics
import sys
import time

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pymc as pm

from _design import LABELS, LIKELIHOODS, simulate
from _results import Table, arguments
from scipy.linalg import lapack

import pymc_lgm as lgm

SAMPLERS = ("default", "nutpie", "pymc", "numpyro")
THETA = ["sigma", "length"]
R_HAT = 1.05
TOLERANCE = 1e-6  # of log densities, relative; K has a condition number of up to n sigma / jitter
ALLOWANCE = 60.0  # seconds of a run for building and compiling, twice what they take


class Run(NamedTuple):
    """One run of one sampler on one data set: ESS and R-hat of theta, seconds, operations a chain.

    ``cut``, 0 or 1: it did not end, and no run as long can have been better.
    """

    ess: float
    r_hat: float
    sampling: float
    compile: float
    operations: float = math.nan
    cut: float = 0.0

    @property
    def doubtful(self) -> bool:
        """Whether it ended and its chains disagree; NaN is the R-hat of chains that never moved."""
        ended = not (self.cut and math.isnan(self.r_hat))
        return ended and not self.r_hat <= R_HAT

    @property
    def rate(self) -> float:
        """ESS a second of tuning and sampling."""
        return self.ess / self.sampling

    @property
    def whole_rate(self) -> float:
        """ESS a second with compilation."""
        return self.ess / (self.sampling + self.compile)


class Job(NamedTuple):
    """A run; picklable, since each run is a process."""

    likelihood: str
    n: int
    d: int
    seed: int
    sampler: str
    draws: int
    tune: int
    chains: int


def installed(sampler: str) -> bool:
    return sampler in ("default", "pymc") or importlib.util.find_spec(sampler) is not None


def centered(job: Job) -> pm.Model:
    rng = np.random.default_rng(job.seed)
    return simulate(job.likelihood, job.n, job.d, rng, infer=True)


def whitened(job: Job) -> pm.Model:
    """The same posterior, as a user of NUTS writes it."""
    model = centered(job)
    # The inputs are the first numbers that `simulate` draws; `disagreement` would notice.
    X = np.random.default_rng(job.seed).uniform(size=(job.n, job.d))
    likelihood = model["y"]
    y = np.asarray(model.rvs_to_values[likelihood].data)
    start = model.initial_point()
    with pm.Model() as white:
        sigma = pm.InverseGamma("sigma", 1, 1, initval=np.exp(start["sigma_log__"]))
        length = pm.Gamma("length", 1, 1, shape=job.d, initval=np.exp(start["length_log__"]))
        gp = pm.gp.Latent(cov_func=sigma * pm.gp.cov.ExpQuad(job.d, ls=length))
        f = gp.prior("f", X, reparameterize=True, jitter=1e-6)
        if job.likelihood == "logistic":
            pm.Bernoulli("y", logit_p=f, observed=y)
        elif job.likelihood == "log_gaussian_cox":
            pm.Poisson("y", pm.math.exp(f), observed=y)
        elif job.likelihood == "copula_volatility":
            pm.Normal("y", 0.0, pm.math.exp(f), observed=y)
        else:
            *_, cutpoints, noise = (
                np.asarray(parameter.eval()) for parameter in likelihood.owner.inputs[-2:]
            )
            pm.OrderedProbit(
                "y", eta=f, cutpoints=cutpoints, sigma=noise, compute_p=False, observed=y
            )
    return white


def disagreement(job: Job) -> float:
    """How far the two log densities are apart at a random point, beside log|L|; f = L ν."""
    rng = np.random.default_rng(job.seed)
    model, white = centered(job), whitened(job)
    point = {
        name: value + 0.3 * rng.standard_normal(np.shape(value))
        for name, value in white.initial_point().items()
    }
    nu = point.pop("f_rotated_")
    reader = lgm.read(model)
    L = np.linalg.cholesky(reader.cov(reader.theta_of(point)))
    ours = model.compile_logp()(point | {"f": L @ nu}) + np.log(np.diagonal(L)).sum()
    theirs = white.compile_logp()(point | {"f_rotated_": nu})
    return abs(float(ours - theirs)) / abs(float(theirs))


def sample(job: Job) -> Run:
    settings: dict[str, Any] = {
        "chains": job.chains,
        "cores": job.chains,
        "random_seed": job.seed,
        "progressbar": False,
        "quiet": True,
        "compute_convergence_checks": False,
    }
    compilations = [0.0]
    if job.sampler == "numpyro":
        os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={job.chains}"
        import jax

        def note(event: str, seconds: float, **_: Any) -> None:
            if event.endswith("backend_compile_duration"):
                compilations.append(seconds)

        jax.monitoring.register_event_duration_secs_listener(note)
    if job.sampler == "default":
        settings["discard_tuned_samples"] = False  # they have operations, too
    else:
        settings["nuts_sampler"] = job.sampler
    begin = time.perf_counter()
    with centered(job) if job.sampler == "default" else whitened(job):
        idata = pm.sample(job.draws, tune=job.tune, **settings)
    wall = time.perf_counter() - begin
    row = lgm.efficiency(idata, {"theta": THETA}).loc["theta"]
    # By far the longest compilation is that of the sampler itself.
    sampling = float(idata.posterior.attrs["sampling_time"]) - max(compilations)
    operations = math.nan
    if job.sampler == "default":
        groups = ("warmup_sample_stats", "sample_stats")
        operations = sum(float(idata[group]["cubic_ops"].sum()) for group in groups) / job.chains
    return Run(float(row["ess_bulk"]), float(row["r_hat"]), sampling, wall - sampling, operations)


def in_child(target: Callable[[Job], Any], job: Job, connection: Any) -> None:
    os.setsid()  # the processes of its chains can then be ended with it
    # Chains start as in a user's script: PyMC would spawn them as this process was, in seconds.
    multiprocessing.set_start_method(None, force=True)
    connection.send(target(job))


def within(limit: float, target: Callable[[Job], Any], job: Job) -> Any:
    """Run in a process of its own; None if that fails, TimeoutError if it takes longer."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=in_child, args=(target, job, sender))
    process.start()
    sender.close()
    result = None
    try:
        if not receiver.poll(limit):
            raise TimeoutError
        result = receiver.recv()
        process.join(10)
    except EOFError:  # the process has printed why
        pass
    finally:
        if process.is_alive():
            os.killpg(process.pid, signal.SIGKILL)
        process.join()
    return result


def measured(job: Job, limit: float) -> Run | None:
    """One run, or the best that a NUTS can have been which ``limit`` has cut."""
    try:
        run: Run | None = within(limit + ALLOWANCE, sample, job)
    except TimeoutError:
        if job.sampler == "default":
            return None
        return Run(job.chains * job.draws, math.nan, limit, 0.0, cut=1.0)
    return run


def factorization(n: int) -> float:
    """Seconds of a `dpotrf`, median of 20."""
    A = np.random.default_rng(0).standard_normal((n, n))
    A = np.asfortranarray(A @ A.T + n * np.eye(n))
    times = []
    for _ in range(20):
        begin = time.perf_counter()
        lapack.dpotrf(A, lower=1, clean=0)
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def median(runs: list[Run]) -> Run:
    """Median of each column; R-hat is that of complete runs, "cut" is whether any was not."""
    middle = Run(*(statistics.median(column) for column in zip(*runs, strict=True)))
    r_hats = [run.r_hat for run in runs if not run.cut]
    return middle._replace(
        r_hat=statistics.median(r_hats) if r_hats else math.nan, cut=max(run.cut for run in runs)
    )


def show(table: Table, cell: Any, runs: dict[str, list[Run]], seeds: int, factor: float) -> None:
    """The rows of one cell, and how the default compares with each NUTS."""
    middle = {name: median(of_name) for name, of_name in runs.items() if of_name}
    default = middle.get("default")
    for name, of_name in runs.items():
        ended = f"{sum(not run.cut for run in of_name)}/{seeds}"
        if name not in middle:
            table.row(*cell, name, ended)
            continue
        m, ratios = middle[name], []
        if default and name != "default":
            alone = default.ess / (default.operations * factor)
            ratios = [default.rate / m.rate, default.whole_rate / m.whole_rate, alone / m.rate]
        shown = (m.ess, (m.r_hat, m.doubtful), m.sampling, (m.compile, ">" * bool(m.cut)))
        table.row(*cell, name, ended, *shown, m.rate, m.whole_rate, *ratios)


def main() -> None:
    parser = arguments(__doc__, quick="n = 30, 1 seed, few draws")
    parser.add_argument("--models", nargs="+", choices=LIKELIHOODS, default=list(LIKELIHOODS))
    parser.add_argument("--n", type=int, nargs="+", default=[100, 200, 400, 800])
    parser.add_argument("--d", type=int, nargs="+", default=[2, 10])
    parser.add_argument("--seeds", type=int, default=5, help="how many, from 0")
    parser.add_argument("--draws", type=int, default=1000, help="kept, of each of the chains")
    parser.add_argument("--tune", type=int, default=1000)
    parser.add_argument("--nuts-draws", type=int, help="kept and of tuning; as above by default")
    parser.add_argument("--samplers", nargs="+", choices=SAMPLERS, default=list(SAMPLERS))
    parser.add_argument("--chains", type=int, default=2, help="on as many cores")
    parser.add_argument(
        "--time-limit", type=float, default=3600, help="seconds of sampling of any one run"
    )
    args = parser.parse_args()
    if args.quick:
        args.models, args.n, args.d, args.seeds = ["logistic"], [30], [2], 1
        args.draws, args.tune, args.nuts_draws = 250, 250, 50
    missing = [name for name in args.samplers if not installed(name)]
    samplers = [name for name in args.samplers if installed(name)]
    nuts = (args.nuts_draws or args.draws, args.nuts_draws or args.tune)
    for name in missing:
        print(f"{name}: not installed")
    columns = {"model": "<5", "n": "", "d": "", "sampler": "<7", "runs": ">5", "ESS": ".0f"}
    columns |= {"R-hat": ".3f", "sampling s": ".2f", "compile": ".2f", "ESS/s": ".3f"}
    columns |= {"compiled ESS/s": ".3f", "default is": ".1f", "compiled": ".1f", "by ops": ".0f"}
    title = f"{args.chains} chains of {args.draws} draws after {args.tune}; ! R-hat above {R_HAT}"
    table = Table(args, title, columns, keys=4)
    for likelihood, d, n in itertools.product(args.models, args.d, args.n):
        cell = (LABELS[likelihood], n, d)
        if table.has(*cell):
            continue
        factor = factorization(n)
        runs: dict[str, list[Run]] = {name: [] for name in samplers}
        for seed in range(args.seeds):
            default = Job(likelihood, n, d, seed, "default", args.draws, args.tune, args.chains)
            apart = within(args.time_limit + ALLOWANCE, disagreement, default)
            if apart is None or apart > TOLERANCE:
                sys.exit(f"{cell} seed {seed}: not the same posterior, log densities {apart} apart")
            for name in samplers:
                job = default
                if name != "default":
                    job = job._replace(sampler=name, draws=nuts[0], tune=nuts[1])
                run = measured(job, args.time_limit)
                if run is not None:
                    runs[name].append(run)
                print(f"{cell} seed {seed} {name}: {run}", file=sys.stderr, flush=True)
        show(table, cell, runs, args.seeds, factor)


if __name__ == "__main__":
    main()
