"""Long series: stochastic volatility and counts, the default against nutpie, and its estimates.

    python benchmarks/series.py [--quick] [--problems dax volatility counts] [--samplers nutpie]
    python benchmarks/series.py --problems returns --returns LOG_RETURNS.csv
    python benchmarks/series.py --estimates

"dax" is 1859 daily returns, "volatility" n simulated ones: returns with a log variance that is an
autoregression about a level, rho .98 and sigma .2. "heavy" are the same with errors of a t
distribution, degrees of freedom unknown. "returns" are the last column of a file, with the priors
of the R package stochvol: level N(0, 10²), (rho + 1)/2 Beta(5, 1.5), sigma half normal. "counts"
has a log rate that is a random walk, "binary" a logit that is an autoregression about a level.
nutpie samples the same model with `pm.AR` and `pm.GaussianRandomWalk` as PyMC has them. ESS is
ArviZ's bulk ESS, the smallest over the hyper-parameters; ESS/s per second of tuning, sampling and
compilation.

``--estimates`` prints the standard deviation of log p(y | theta)'s estimate, near the posterior's
center, and its cost: of draws of a Gaussian, with a copula, and bent all together.
"""

from __future__ import annotations

import argparse
import time

from typing import Any

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm

from _results import Table, arguments

import pymc_lgm as lgm

from pymc_lgm.approximations.copula import tilted_copula
from pymc_lgm.approximations.ep import ep
from pymc_lgm.approximations.importance import Coordinates, Proposal, Scheme, importance_sample
from pymc_lgm.approximations.sites import Margins
from pymc_lgm.approximations.transport import transport
from pymc_lgm.state import AtTheta

PROBLEMS = ("dax", "volatility", "heavy", "returns", "counts", "binary")


def simulated(n: int, rng: np.random.Generator) -> np.ndarray:
    """An autoregression."""
    x = np.empty(n)
    x[0] = rng.normal(0, 0.2 / np.sqrt(1 - 0.98**2))
    for t in range(1, n):
        x[t] = 0.98 * x[t - 1] + 0.2 * rng.standard_normal()
    return x


def simulated_returns(n: int, rng: np.random.Generator) -> np.ndarray:
    return np.exp((-0.4 + simulated(n, rng)) / 2) * rng.standard_normal(n)


def about_a_level(n: int, sd: float = 2.0, a: float = 20.0) -> Any:
    level = pm.Normal("level", 0, sd)
    persistence, sigma = pm.Beta("persistence", a, 1.5), pm.HalfNormal("sigma", 1)
    rho = 2 * persistence - 1
    start = pm.Normal.dist(0, sigma / pm.math.sqrt(1 - rho**2))
    return level + pm.AR("x", rho=[rho], sigma=sigma, init_dist=start, shape=n)


def volatility(returns: np.ndarray, *, heavy: bool = False, **priors: float) -> pm.Model:
    with pm.Model() as model:
        scale = pm.math.exp(about_a_level(returns.size, **priors) / 2)
        if heavy:
            nu = 2 + pm.Exponential("freedom", 0.1)
            pm.StudentT("y", nu=nu, mu=0, sigma=scale, observed=returns)
        else:
            pm.Normal("y", 0, scale, observed=returns)
    return model


def binary(n: int, rng: np.random.Generator) -> pm.Model:
    y = rng.uniform(size=n) < 1 / (1 + np.exp(-simulated(n, rng)))
    with pm.Model() as model:
        pm.Bernoulli("y", logit_p=about_a_level(n), observed=y)
    return model


def counts(n: int, rng: np.random.Generator) -> pm.Model:
    y = rng.poisson(np.exp(1 + np.cumsum(0.1 * rng.standard_normal(n))))
    with pm.Model() as model:
        sigma = pm.HalfNormal("sigma", 0.5)
        start = pm.Normal.dist(0, 2)
        x = pm.GaussianRandomWalk("x", sigma=sigma, init_dist=start, shape=n)
        pm.Poisson("y", pm.math.exp(x), observed=y)
    return model


def build(problem: str, n: int, seed: int, file: str | None = None) -> pm.Model:
    rng = np.random.default_rng(seed)
    if problem in ("counts", "binary"):
        return {"counts": counts, "binary": binary}[problem](n, rng)
    if problem == "volatility":
        return volatility(simulated_returns(n, rng))
    if problem == "heavy":
        tails = np.sqrt(5 / rng.chisquare(5, n))
        return volatility(simulated_returns(n, rng) * tails, heavy=True)
    if problem == "returns":
        returns = pd.read_csv(file).iloc[:, -1].to_numpy()
        return volatility(returns - returns.mean(), sd=10.0, a=5.0)
    returns = lgm.datasets.load_eustocks()["DAX"].to_numpy()
    return volatility(returns - returns.mean())


def estimates(args: argparse.Namespace, problem: str) -> None:
    n, seed, repeats = args.n, args.seed, 20 if args.quick else 200
    model = lgm.read(build(problem, n, seed))
    center = {"level": -0.4, "persistence_logodds__": 4.6, "sigma_log__": np.log(0.2)}
    theta = np.array([center[name] for name in model.theta_names])
    here, rng = AtTheta.of(model, theta), np.random.default_rng(seed)
    assert here is not None
    q = ep(here.likelihood, here.prior)
    assert q is not None
    margins = Margins(q.posterior.variances, here.prior.precisions)
    sites = here.likelihood.sites
    bends: dict[str, Any] = {
        "Gaussian": None,
        "copula": tilted_copula(sites, q.mean, q.center, q.sites, margins),
        "transport": transport(q, here.likelihood),
    }
    columns = {"draws": "<10", "N": "", "sd": ".3f", "mean": ".3f", "ms": ".2f"}
    table = Table(args, f"{problem}, n = {n}", columns, keys=2, part="estimates")
    for name, bend in bends.items():
        for N in (1, 2, 4) if name == "transport" else (2, 8, 64):
            proposal, scheme = Proposal(q, bend), Scheme(N, antithetic=name != "transport")
            begin = time.perf_counter()
            values = [
                importance_sample(
                    proposal,
                    here.log_likelihoods,
                    Coordinates.fresh(rng, proposal, scheme),
                    scheme,
                ).log_evidence
                for _ in range(repeats)
            ]
            cost = 1e3 * (time.perf_counter() - begin) / repeats
            table.row(name, N, np.std(values), np.mean(values), cost)


def main() -> None:
    parser = arguments(__doc__, quick="100 elements, short chains")
    parser.add_argument("--problems", nargs="*", choices=PROBLEMS, default=["dax", "volatility"])
    parser.add_argument("--returns", metavar="CSV")
    samplers = ["default", "nutpie"]
    parser.add_argument("--samplers", nargs="*", choices=samplers, default=["default"])
    parser.add_argument("--n", type=int, default=3500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--tune", type=int, default=1000)
    parser.add_argument("--chains", type=int, default=4)
    parser.add_argument("--estimates", action="store_true")
    args = parser.parse_args()
    if args.quick:
        args.problems, args.n, args.draws, args.tune, args.chains = ["volatility"], 100, 50, 50, 2
    if "returns" in args.problems and args.returns is None:
        parser.error("returns needs --returns LOG_RETURNS.csv")
    if args.estimates:
        for problem in args.problems:
            if problem in ("dax", "volatility"):
                estimates(args, problem)
        return
    columns = {"problem": "<10", "n": "", "sampler": "<7", "R-hat": ".3f", "ESS": ".0f"}
    columns |= {"draws": "", "ESS/s": ".1f", "s": ".0f", "posterior mean (sd)": "<19"}
    results = Table(args, "", columns, keys=3)
    for problem in args.problems:
        for sampler in args.samplers:
            model = build(problem, args.n, args.seed, args.returns)
            n = model["x"].eval().size
            if results.has(problem, n, sampler):
                continue
            with model:
                begin = time.perf_counter()
                how: dict[str, Any] = (
                    {"step": lgm.PseudoMarginal()}
                    if sampler == "default"
                    else {"nuts_sampler": "nutpie"}
                )
                idata = pm.sample(
                    args.draws,
                    tune=args.tune,
                    chains=args.chains,
                    cores=2,
                    random_seed=args.seed,
                    progressbar=False,
                    quiet=True,
                    compute_convergence_checks=False,
                    **how,
                )
                seconds = time.perf_counter() - begin
            theta = [v.name for v in model.free_RVs if v.name != "x"]
            table = az.summary(idata, var_names=theta, round_to="none").astype(float)
            ess = float(table["ess_bulk"].min())
            means = ", ".join(
                f"{name} {row['mean']:.3f} ({row['sd']:.3f})" for name, row in table.iterrows()
            )
            draws, r_hat = args.draws * args.chains, table["r_hat"].max()
            cells = (r_hat, ess, draws, ess / seconds, seconds, means)
            results.row(problem, n, sampler, *cells)


if __name__ == "__main__":
    main()
