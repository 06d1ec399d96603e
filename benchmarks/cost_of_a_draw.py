"""The cost of a draw: wall time compared with its O(n³) operations; memory.

    python benchmarks/cost_of_a_draw.py [--quick] [--n 100 400 800] [--memory 2000]

One process, logistic likelihood, d = 2, 500 draws of tuning. "per op" is wall / (cubic_ops ×
dpotrf), "and cov" is wall / (cubic_ops × (dpotrf + covariance)); medians over repeats. `--memory`
runs twenty draws of the default at that n in a separate process, and prints the increase of its
peak memory by the draws, in n × n arrays, and the peak of the whole process.
"""

from __future__ import annotations

import multiprocessing
import resource
import statistics
import time

from collections.abc import Callable

import numpy as np

from _design import run, simulate
from _results import Table, arguments
from scipy.linalg import lapack

import pymc_lgm as lgm

SWEEPS = {
    "default": (lgm.PseudoMarginal, {}),
    "AA, one slice move": (lgm.papers.WhitenedMetropolis, {"latent_move": "slice"}),
    "AA, one HMC move": (lgm.papers.WhitenedMetropolis, {}),
    "ASIS, one HMC move": (lgm.ASIS, {}),
}


def seconds(function: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        function()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def peak() -> float:
    """Resident memory of this process at its highest, MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def memory(n: int) -> tuple[float, float]:
    """Increase of the peak memory by draws, and the peak, in MB."""
    model = simulate("logistic", n, 2, np.random.default_rng(1), infer=True)
    step = lgm.PseudoMarginal(model=model)
    before = peak()
    run(step, model, 15, 5, seed=0)
    return peak() - before, peak()


def main() -> None:
    parser = arguments(__doc__, quick="n = 100 and 400, few repeats")
    parser.add_argument("--n", type=int, nargs="*", default=[100, 400, 800])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--memory", type=int, default=2000, help="its n; 0 for none")
    args = parser.parse_args()
    tune = 500
    if args.quick:
        args.n, args.repeats, args.memory, tune = [100], 1, 200, 100
    columns = {"n": "", "sweep": "<18", "wall": ".2f", "ops": ".2f", "dpotrf": ".2f", "cov": ".2f"}
    columns |= {"per op": ".2f", "and cov": ".2f", "likelihoods": ".1f"}
    table = Table(args, "milliseconds a draw", columns, keys=2)
    for n in args.n:
        model = simulate("logistic", n, 2, np.random.default_rng(1), infer=True)
        for name, (sampler, options) in SWEEPS.items():
            if table.has(n, name):
                continue
            step = sampler(model=model, **options)
            theta = step.lgm.theta_of(model.initial_point())
            draws = max(60, 40_000 // n)
            walls, per_op, and_cov = [], [], []
            for repeat in range(args.repeats):
                result = run(step, model, tune, draws, seed=repeat)
                ops = result["stats"]["cubic_ops"]
                cov = seconds(lambda t=theta, m=step.lgm: m.cov(t), 20)
                K = step.lgm.cov(theta).T
                factor = seconds(lambda K=K: lapack.dpotrf(K, lower=1, clean=0), 20)
                walls.append(result["seconds"] / draws)
                per_op.append(walls[-1] / (ops * factor))
                and_cov.append(walls[-1] / (ops * (factor + cov)))
            wall, *ratios = map(statistics.median, (walls, per_op, and_cov))
            likelihoods, ms = result["stats"]["latent_evaluations"], (1e3 * factor, 1e3 * cov)
            table.row(n, name, 1e3 * wall, ops, *ms, *ratios, likelihoods)
    if args.memory:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            more, whole = pool.apply(memory, (args.memory,))
        arrays = more * 1024**2 / (8 * args.memory**2)
        columns = {"n": "", "arrays of n × n": ".1f", "MB": ".0f", "MB in all": ".0f"}
        memories = Table(args, "memory of the default's draws", columns, keys=1, part="memory")
        memories.row(args.memory, arrays, more, whole)


if __name__ == "__main__":
    main()
