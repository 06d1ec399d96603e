"""What a draw costs: wall time against cubic_ops × dpotrf plus the covariance's own evaluation.

    python benchmarks/cost_of_a_draw.py [--quick] [--n 100 400 800]

One process. The ratio is wall / (cubic_ops × (dpotrf + covariance)); medians over repeats.
"""

from __future__ import annotations

import argparse
import statistics
import time

from collections.abc import Callable

import numpy as np

from _design import run, simulate
from scipy.linalg import lapack

import pymc_lgm as lgm

SWEEPS = {
    "AA, one slice move": (lgm.WhitenedMetropolis, {"latent": "slice"}),
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="n = 100 and 400, few repeats")
    parser.add_argument("--n", type=int, nargs="+", default=[100, 400, 800])
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    if args.quick:
        args.n, args.repeats = [100, 400], 2
    print("logistic likelihood, d = 2, milliseconds a draw")
    print(
        f"{'n':>5}  {'sweep':20}{'wall':>8}{'ops':>6}{'dpotrf':>8}{'cov':>8}{'ratio':>7}"
        f"{'HMC steps':>11}"
    )
    for n in args.n:
        model = simulate("logistic", n, 2, np.random.default_rng(1), infer=True)
        for name, (sampler, options) in SWEEPS.items():
            step = sampler(model=model, **options)
            theta = step.lgm.theta_of(model.initial_point())
            draws = max(50, 40_000 // n)
            walls, ratios = [], []
            for repeat in range(args.repeats):
                result = run(step, model, draws, draws, seed=repeat)
                ops = result["stats"]["cubic_ops"]
                cov = seconds(lambda t=theta, m=step.lgm: m.cov(t), 20)
                both = seconds(
                    lambda t=theta, m=step.lgm: lapack.dpotrf(
                        m.cov(t).T, lower=1, overwrite_a=1, clean=0
                    ),
                    20,
                )
                walls.append(result["seconds"] / draws)
                ratios.append(walls[-1] / (ops * both))
            evaluations = result["stats"]["latent_evaluations"]
            print(
                f"{n:5}  {name:20}{1e3 * statistics.median(walls):8.2f}{ops:6.2f}"
                f"{1e3 * (both - cov):8.2f}{1e3 * cov:8.2f}{statistics.median(ratios):7.2f}"
                f"{evaluations:11.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
