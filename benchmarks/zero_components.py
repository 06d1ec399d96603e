"""Variance components that may be zero, where a chain could be stuck: effective draws per draw.

    python benchmarks/zero_components.py [--quick] [--seeds 2]
    python benchmarks/zero_components.py --problems map --areas COUNTS.csv NEIGHBORS.csv

log s of a component that the data know nothing of but that it is small has a long left tail.
"counts": an intercept, a process and effects of 30 groups that are all 0. "labels": two crossed
effects, both 0, beside a process. "map": expected counts and counts of areas, with a structured and
an unstructured effect (BYM) in one dense covariance; the first file has columns expected and y, the
second pairs of neighbors by their row. Printed: the least ESS over the hyper-parameters by the
number of draws, R-hat, acceptance, and the 1 % quantile of the smallest component.
"""

from __future__ import annotations

import time

from typing import Any

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm

from _results import Table, arguments

import pymc_lgm as lgm


def process(t: np.ndarray) -> Any:
    scale, length = pm.HalfNormal("scale", 1), pm.InverseGamma("length", 3, 3)
    gp = pm.gp.Latent(cov_func=scale**2 * pm.gp.cov.Matern52(1, ls=length))
    return gp.prior("f", t[:, None], reparameterize=False)


def counts(rng: np.random.Generator) -> list[str]:
    t, group = np.sort(rng.uniform(0, 10, 150)), rng.permutation(np.arange(150) % 30)
    s = pm.HalfNormal("s", 1)
    b, a = pm.Normal("b", 0, s, shape=30), pm.Normal("a", 0, 2)
    eta = a + process(t) + b[group]
    pm.Poisson("y", pm.math.exp(eta), observed=rng.poisson(np.exp(0.5 + 0.7 * np.sin(t))))
    return ["s"]


def labels(rng: np.random.Generator) -> list[str]:
    t, row, column = np.sort(rng.uniform(0, 10, 200)), np.arange(200) % 20, np.arange(200) // 20
    s, r = pm.HalfNormal("s", 1), pm.HalfNormal("r", 1)
    b, c = pm.Normal("b", 0, s, shape=20), pm.Normal("c", 0, r, shape=10)
    eta = process(t) + b[row] + c[column]
    y = rng.uniform(size=200) < 1 / (1 + np.exp(-2 * np.sin(t)))
    pm.Bernoulli("y", logit_p=eta, observed=y)
    return ["s", "r"]


def bym(table: pd.DataFrame, pairs: pd.DataFrame) -> list[str]:
    n, (i, j) = len(table), pairs.to_numpy().T[:2]
    W = np.zeros((n, n))
    W[i, j] = W[j, i] = 1.0
    structured = np.linalg.pinv(np.diag(W.sum(axis=1)) - W)
    structured /= np.exp(np.log(structured.diagonal()).mean())
    s, r, b = pm.HalfNormal("s", 1), pm.HalfNormal("r", 1), pm.Normal("b", 0, 2)
    f = pm.MvNormal("f", mu=np.zeros(n), cov=r**2 * structured + (s**2 + 1e-8) * np.eye(n))
    mu = table["expected"].to_numpy() * pm.math.exp(b + f)
    pm.Poisson("y", mu, observed=table["y"].to_numpy())
    return ["s", "r"]


def main() -> None:
    parser = arguments(__doc__, quick="one model, short chains")
    parser.add_argument(
        "--problems", nargs="*", choices=["counts", "labels", "map"], default=["counts", "labels"]
    )
    parser.add_argument("--areas", nargs=2, metavar="CSV")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--tune", type=int, default=1000)
    args = parser.parse_args()
    if args.quick:
        args.problems, args.draws, args.tune = ["counts"], 50, 50
    if "map" in args.problems and args.areas is None:
        parser.error("the map needs --areas COUNTS.csv NEIGHBORS.csv")
    columns = {"problem": "<7", "seed": "", "ESS/draw": ".2f", "R-hat": ".3f", "accept": ".2f"}
    results = Table(args, "", columns | {"lowest 1 %": ".4f", "s": ".0f"}, keys=2)
    for problem in args.problems:
        for seed in range(args.seeds):
            if results.has(problem, seed):
                continue
            rng, begin = np.random.default_rng(seed), time.perf_counter()
            with pm.Model() as model:
                if problem == "map":
                    small = bym(*(pd.read_csv(path) for path in args.areas))
                else:
                    small = {"counts": counts, "labels": labels}[problem](rng)
                idata = pm.sample(
                    args.draws,
                    tune=args.tune,
                    chains=4,
                    cores=2,
                    random_seed=seed,
                    progressbar=False,
                    quiet=True,
                    compute_convergence_checks=False,
                    step=lgm.PseudoMarginal(),
                )
            theta = [v.name for v in model.free_RVs if v.name not in ("f", "b", "c", "a")]
            table = az.summary(idata, var_names=theta, round_to="none").astype(float)
            draws = idata["posterior"].dataset[small].to_array()
            accept = float(idata["sample_stats"].dataset["theta_acceptance"].mean())
            ess, r_hat = table["ess_bulk"].min() / (4 * args.draws), table["r_hat"].max()
            seconds = time.perf_counter() - begin
            results.row(problem, seed, ess, r_hat, accept, float(draws.quantile(0.01)), seconds)


if __name__ == "__main__":
    main()
