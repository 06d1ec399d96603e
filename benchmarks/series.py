"""Long series: stochastic volatility and counts, the default against nutpie, and its estimates.

    python benchmarks/series.py [--quick] [--problems dax volatility counts] [--samplers nutpie]
    python benchmarks/series.py --estimates

"dax" is 1859 daily returns, "volatility" n simulated ones: returns with a log variance that is an
autoregression about a level, rho .98 and sigma .2. "counts" has a log rate that is a random walk.
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
import pymc as pm

from _results import Table, arguments

import pymc_lgm as lgm

from pymc_lgm.approximations.copula import tilted_copula
from pymc_lgm.approximations.ep import ep
from pymc_lgm.approximations.importance import Coordinates, Proposal, Scheme, importance_sample
from pymc_lgm.approximations.sites import Margins
from pymc_lgm.approximations.transport import transport
from pymc_lgm.state import AtTheta

PROBLEMS = ("dax", "volatility", "counts")


def simulated_returns(n: int, rng: np.random.Generator) -> np.ndarray:
    x = np.empty(n)
    x[0] = rng.normal(0, 0.2 / np.sqrt(1 - 0.98**2))
    for t in range(1, n):
        x[t] = 0.98 * x[t - 1] + 0.2 * rng.standard_normal()
    return np.exp((-0.4 + x) / 2) * rng.standard_normal(n)


def volatility(returns: np.ndarray) -> pm.Model:
    with pm.Model() as model:
        level = pm.Normal("level", 0, 2)
        persistence, sigma = pm.Beta("persistence", 20, 1.5), pm.HalfNormal("sigma", 1)
        rho = 2 * persistence - 1
        start = pm.Normal.dist(0, sigma / pm.math.sqrt(1 - rho**2))
        x = pm.AR("x", rho=[rho], sigma=sigma, init_dist=start, shape=returns.size)
        pm.Normal("y", 0, pm.math.exp((level + x) / 2), observed=returns)
    return model


def counts(n: int, rng: np.random.Generator) -> pm.Model:
    y = rng.poisson(np.exp(1 + np.cumsum(0.1 * rng.standard_normal(n))))
    with pm.Model() as model:
        sigma = pm.HalfNormal("sigma", 0.5)
        start = pm.Normal.dist(0, 2)
        x = pm.GaussianRandomWalk("x", sigma=sigma, init_dist=start, shape=n)
        pm.Poisson("y", pm.math.exp(x), observed=y)
    return model


def build(problem: str, n: int, seed: int) -> pm.Model:
    rng = np.random.default_rng(seed)
    if problem == "counts":
        return counts(n, rng)
    if problem == "volatility":
        return volatility(simulated_returns(n, rng))
    returns = lgm.datasets.load_eustocks()["DAX"].to_numpy()
    return volatility(returns - returns.mean())


def estimates(args: argparse.Namespace, problem: str) -> None:
    n, seed, repeats = args.n, args.seed, 20 if args.quick else 200
    model = lgm.LatentGaussianModel.from_pymc(build(problem, n, seed))
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
    table = Table(args, f"{problem}, n = {model.n}", columns, keys=2, part="estimates")
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
    parser.add_argument("--problems", nargs="*", choices=PROBLEMS, default=list(PROBLEMS))
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
    if args.estimates:
        for problem in args.problems:
            if problem != "counts":
                estimates(args, problem)
        return
    columns = {"problem": "<10", "n": "", "sampler": "<7", "R-hat": ".3f", "ESS": ".0f"}
    columns |= {"draws": "", "ESS/s": ".1f", "s": ".0f", "posterior mean (sd)": "<19"}
    results = Table(args, "", columns, keys=3)
    for problem in args.problems:
        for sampler in args.samplers:
            model = build(problem, args.n, args.seed)
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
