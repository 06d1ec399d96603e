"""Effective samples of theta per 1000 O(n³) operations, beside the best that is published.

    python benchmarks/operations_per_effective_sample.py [--quick] [--problems pima] [--seeds 5]

The default sampler of `pm.sample()`, logistic likelihood, one length-scale for each input: two
simulated designs, one data set a seed, and two UCI data sets, standardized, the constant column of
ionosphere dropped. Chains start from draws of the prior. Medians over seeds.

ESS is ArviZ's bulk ESS of all chains together, the smallest over theta. The first rate counts the
operations of the kept draws, as the paper does; the second those of tuning too, which weigh less
in a longer run. "!": R-hat above 1.05, an ESS that means little.

Published: Filippone, Zhong and Girolami, *A comparative evaluation of stochastic-based inference
methods for Gaussian process models*, Machine Learning 93 (2013): ESS of 20000 draws, that of Robert
and Casella, smallest over theta and f, and operations per draw as their Table 5 counts them.
"""

from __future__ import annotations

import argparse
import statistics

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pymc as pm

from _design import logistic, simulate
from _results import Table, arguments
from beats_nuts import R_HAT, THETA

import pymc_lgm as lgm


class Published(NamedTuple):
    """Best of a column by ESS per operation: sampler, ESS of 20000 draws, operations per draw."""

    table: int
    sampler: str
    ess: float
    ops: int

    @property
    def rate(self) -> float:
        """ESS per 1000 operations."""
        return self.ess / (20 * self.ops)


def simulated(n: int, d: int) -> Callable[[int, int | None], pm.Model]:
    def make(seed: int, rows: int | None) -> pm.Model:
        return simulate("logistic", rows or n, d, np.random.default_rng(seed), infer=True)

    return make


def uci(name: str) -> Callable[[int, int | None], pm.Model]:
    """The same priors on real inputs; a seed is one of the chains' alone."""

    def make(seed: int, rows: int | None) -> pm.Model:
        return logistic(getattr(lgm.datasets, f"load_{name}")()[:rows])

    return make


PROBLEMS = {
    "LRG-100-2": (simulated(100, 2), Published(5, "AA", 131, 1)),
    "LRG-400-10": (simulated(400, 10), Published(5, "AA", 47, 1)),
    "pima": (uci("pima"), Published(6, "AA", 34, 1)),
    "ionosphere": (uci("ionosphere"), Published(6, "AA", 12, 1)),
}


class Figures(NamedTuple):
    """Results of one run: ESS and R-hat of theta, operations per draw, ESS per 1000 operations."""

    ess: float
    r_hat: float
    ops: float
    per_1000: float
    per_1000_with_tuning: float
    per_second: float


def sample(model: pm.Model, seed: int, args: argparse.Namespace) -> Figures:
    with model:
        idata = pm.sample(
            args.draws,
            tune=args.tune,
            chains=args.chains,
            cores=args.cores,
            random_seed=seed,
            initvals=dict.fromkeys(THETA, "prior"),
            discard_tuned_samples=False,
            progressbar=False,
            quiet=True,
            compute_convergence_checks=False,
        )
    row: Any = lgm.efficiency(idata, {"theta": THETA}).loc["theta"]
    tuning, kept = (
        float(idata[group]["cubic_ops"].sum()) for group in ("warmup_sample_stats", "sample_stats")
    )
    return Figures(
        row["ess_bulk"],
        row["r_hat"],
        row["cubic_ops"],
        row["ess_per_1000_ops"],
        1000 * row["ess_bulk"] / (tuning + kept),
        row["ess_per_second"],
    )


def main() -> None:
    parser = arguments(__doc__, quick="60 rows, 1 seed, 200 draws")
    parser.add_argument("--problems", nargs="+", choices=PROBLEMS, default=list(PROBLEMS))
    parser.add_argument("--seeds", type=int, default=5, help="how many, from 0")
    parser.add_argument("--draws", type=int, default=5000, help="kept, of each of the chains")
    parser.add_argument("--tune", type=int, default=1000)
    parser.add_argument("--chains", type=int, default=2)
    parser.add_argument("--cores", type=int, default=2)
    args = parser.parse_args()
    if args.quick:
        args.problems, args.seeds, args.draws, args.tune = ["LRG-100-2", "pima"], 1, 200, 200
    columns = {"problem": "<10", "n": "", "d": "", "ESS": ".0f", "R-hat": ".3f"}
    columns |= {"per 1000 ops": ".1f", "and tuning": ".1f", "published": ">15", "times": ".1f"}
    columns |= {"goal 10 ×": ".1f", "ops/draw": ".2f", "ESS/s": ".2f"}
    title = f"{args.chains} chains, medians of seeds; ! R-hat above {R_HAT}"
    table = Table(args, title, columns, keys=1)
    for name in args.problems:
        if table.has(name):
            continue
        make, published = PROBLEMS[name]
        runs = []
        for seed in range(args.seeds):
            model = make(seed, 60 if args.quick else None)
            runs.append(sample(model, seed, args))
        m = Figures(*(statistics.median(column) for column in zip(*runs, strict=True)))
        n, d = model["f"].type.shape[0], model["length"].type.shape[0]
        theirs = f"{published.sampler} {published.rate:.1f}, table {published.table}"
        times, goal = m.per_1000 / published.rate, 10 * published.rate
        rates = (m.per_1000, m.per_1000_with_tuning, theirs, times, goal, m.ops, m.per_second)
        table.row(name, n, d, m.ess, (m.r_hat, not m.r_hat <= R_HAT), *rates)


if __name__ == "__main__":
    main()
