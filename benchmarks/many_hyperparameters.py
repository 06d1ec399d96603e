"""Whether the default's chains agree with one length-scale for each input, and at what cost.

    python benchmarks/many_hyperparameters.py [--quick] [--problems pima ionosphere] [--seeds 3]
        [--thyroid new_thyroid_215.csv] [--spect spect_train_80.csv] [--concrete concrete_1030.csv]

Four chains from the prior and PyMC's own 1000 draws of tuning. Real data are probit models, inputs
standardized, with the priors of Filippone and Girolami (2014), §4.5; simulated data are those of
Filippone, Zhong and Girolami (2013), §5.1, a data set a seed. Three data sets are read from files
with their columns and the response last: thyroid (normal or not), SPECT, and concrete, a regression
of 200 of its rows with Student errors. R-hat and the bulk ESS are of the worst hyper-parameter;
"!": a goal that is missed. Operations are those of kept draws, and of tuning in the next column.
"""

from __future__ import annotations

import argparse
import time

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pymc as pm

from _design import LABELS, classification, simulate, standardized
from _results import Table, arguments

import pymc_lgm as lgm

THETA = ("sigma", "length", "noise")


def real(name: str, seed: int) -> pm.Model:
    return two_classes(getattr(lgm.datasets, f"load_{name}")())


def two_classes(table: pd.DataFrame) -> pm.Model:
    X = standardized(table.drop(columns="y").to_numpy(float))
    return classification(X, table["y"].to_numpy(int), ard=True)


def thyroid(path: Path, seed: int) -> pm.Model:
    table = pd.read_csv(path)
    return two_classes(table.assign(y=(table["y"] == 1).astype(int)))


def spect(path: Path, seed: int) -> pm.Model:
    return two_classes(pd.read_csv(path))


def concrete(path: Path, seed: int) -> pm.Model:
    table = pd.read_csv(path).sample(200, random_state=seed)
    X, y = standardized(table.iloc[:, :-1].to_numpy(float)), table.iloc[:, -1].to_numpy(float)
    with pm.Model() as model:
        sigma, noise = pm.HalfNormal("sigma", 2.0), pm.HalfNormal("noise", 1.0)
        length = pm.InverseGamma("length", 3.0, 3.0, shape=X.shape[1])
        gp = pm.gp.Latent(cov_func=sigma**2 * pm.gp.cov.ExpQuad(X.shape[1], ls=length))
        f = gp.prior("f", X, reparameterize=False, jitter=1e-6)
        pm.StudentT("y", nu=4, mu=f, sigma=noise, observed=(y - y.mean()) / y.std())
    return model


def simulated(likelihood: str, n: int, d: int, seed: int) -> pm.Model:
    return simulate(likelihood, n, d, np.random.default_rng(seed), infer=True)


class Problem(NamedTuple):
    """A model for a seed, and its goals for R-hat and for ESS per 1000 operations."""

    make: Callable[[int], pm.Model]
    r_hat: float
    per_1000: float


PROBLEMS = {
    "wisconsin": Problem(partial(real, "wisconsin"), 1.01, 30),
    "pima": Problem(partial(real, "pima"), 1.01, 30),
    "ionosphere": Problem(partial(real, "ionosphere"), 1.02, 6),
    "LRG-400-10": Problem(partial(simulated, "logistic", 400, 10), 1.01, 24),
} | {
    f"{label}-100-10": Problem(partial(simulated, likelihood, 100, 10), 1.01, 30)
    for likelihood, label in LABELS.items()
}
FILES = {"thyroid": (thyroid, 30), "spect": (spect, 6), "concrete": (concrete, 30)}


def sample(model: pm.Model, seed: int, args: argparse.Namespace) -> dict[str, float]:
    begin = time.perf_counter()
    names = [rv.name for rv in model.free_RVs if rv.name in THETA]
    with model:
        idata = pm.sample(
            args.draws,
            tune=args.tune,
            step=lgm.PseudoMarginal(move=args.move),
            chains=args.chains,
            cores=args.cores,
            random_seed=seed,
            initvals=dict.fromkeys(names, "prior"),
            discard_tuned_samples=False,
            progressbar=False,
            quiet=True,
            compute_convergence_checks=False,
        )
    seconds = time.perf_counter() - begin
    row: Any = lgm.efficiency(idata, {"theta": tuple(names)}).loc["theta"]
    stats = idata["sample_stats"]
    return {
        "p": sum(int(idata["posterior"][name][0, 0].size) for name in names),
        "r_hat": row["r_hat"],
        "ess": row["ess_bulk"],
        "per_1000": row["ess_per_1000_ops"],
        "ops": row["cubic_ops"],
        "tuning": float(idata["warmup_sample_stats"]["cubic_ops"].mean()),
        "accepted": float(stats["theta_acceptance"].mean()),
        "noise": float(stats["log_evidence_sd"].mean()),
        "seconds": seconds,
    }


def main() -> None:
    parser = arguments(__doc__, quick="one small problem, short chains")
    parser.add_argument("--problems", nargs="*", choices=PROBLEMS, default=list(PROBLEMS))
    parser.add_argument("--seeds", type=int, default=3, help="how many, from 0")
    parser.add_argument("--move", help="as in PseudoMarginal; by default its own choice")
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--tune", type=int, default=1000)
    parser.add_argument("--chains", type=int, default=4)
    parser.add_argument("--cores", type=int, default=2)
    for name in FILES:
        parser.add_argument(f"--{name}", type=Path, help="its file")
    args = parser.parse_args()
    if args.quick:
        args.problems, args.seeds, args.draws, args.tune = ["LRG-100-10"], 1, 100, 200
    problems = {name: PROBLEMS[name] for name in args.problems}
    for name, (make, per_1000) in FILES.items():
        if path := getattr(args, name):
            problems[name] = Problem(partial(make, path), 1.01, per_1000)
    columns = {"problem": "<10", "seed": "", "p": "", "R-hat": ".3f", "ESS": ".0f"}
    columns |= {"per 1000 ops": ".1f", "ops/draw": ".1f", "tuning": ".1f", "accepted": ".2f"}
    title = f"{args.chains} chains of {args.draws} draws after {args.tune}"
    table = Table(args, title, columns | {"sd": ".2f", "s": ".0f"}, keys=2)
    for name, problem in problems.items():
        for seed in range(args.seeds):
            if table.has(name, seed):
                continue
            m = sample(problem.make(seed), seed, args)
            table.row(
                name,
                seed,
                m["p"],
                (m["r_hat"], m["r_hat"] > problem.r_hat),
                (m["ess"], m["ess"] < 800),
                (m["per_1000"], m["per_1000"] < problem.per_1000),
                *(m[name] for name in ("ops", "tuning", "accepted", "noise", "seconds")),
            )


if __name__ == "__main__":
    main()
