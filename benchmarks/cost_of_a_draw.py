"""What a draw costs: wall time against its O(n³) operations; memory.

    python benchmarks/cost_of_a_draw.py [--quick] [--n 100 400 800] [--memory 2000]

One process, logistic likelihood, d = 2, 500 draws of tuning. "per op" is wall / (cubic_ops ×
dpotrf), "and cov" is wall / (cubic_ops × (dpotrf + covariance)); medians over repeats. `--memory`
runs twenty draws of the default at that n in a process of its own: its peak above what it had
before the first, in n × n arrays, and the peak of the whole process.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import statistics
import time

from collections.abc import Callable

import numpy as np

from _design import run, simulate
from scipy.linalg import lapack

import pymc_lgm as lgm

SWEEPS = {
    "default": (lgm.PseudoMarginal, {}),
    "AA, one slice move": (lgm.WhitenedMetropolis, {"latent_move": "slice"}),
    "AA, one HMC move": (lgm.WhitenedMetropolis, {}),
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
    """What draws add to the peak, and the peak, in MB."""
    model = simulate("logistic", n, 2, np.random.default_rng(1), infer=True)
    step = lgm.PseudoMarginal(model=model)
    before = peak()
    run(step, model, 15, 5, seed=0)
    return peak() - before, peak()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="n = 100 and 400, few repeats")
    parser.add_argument("--n", type=int, nargs="*", default=[100, 400, 800])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--memory", type=int, default=2000, help="its n; 0 for none")
    args = parser.parse_args()
    tune = 500
    if args.quick:
        args.n, args.repeats, args.memory, tune = [100], 1, 200, 100
    print("milliseconds a draw")
    print(
        f"{'n':>5}  {'sweep':20}{'wall':>8}{'ops':>6}{'dpotrf':>8}{'cov':>8}{'per op':>8}"
        f"{'and cov':>9}{'likelihoods':>13}"
    )
    for n in args.n:
        model = simulate("logistic", n, 2, np.random.default_rng(1), infer=True)
        for name, (sampler, options) in SWEEPS.items():
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
            likelihoods = result["stats"]["latent_evaluations"]
            print(
                f"{n:5}  {name:20}{1e3 * statistics.median(walls):8.2f}{ops:6.2f}"
                f"{1e3 * factor:8.2f}{1e3 * cov:8.2f}{statistics.median(per_op):8.2f}"
                f"{statistics.median(and_cov):9.2f}{likelihoods:13.1f}",
                flush=True,
            )
    if args.memory:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            more, whole = pool.apply(memory, (args.memory,))
        arrays = more * 1024**2 / (8 * args.memory**2)
        print(
            f"n = {args.memory}: {arrays:.1f} arrays of n × n ({more:.0f} MB), "
            f"{whole:.0f} MB in all"
        )


if __name__ == "__main__":
    main()
