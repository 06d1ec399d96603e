"""Models as their users write them: the default sampler's posterior means beside those of NUTS.

    python benchmarks/as_written.py [--quick] [--problems softmax ...] [--draws 1500]
    python benchmarks/as_written.py --problems pima ionosphere --nuts nutpie

Three processes stacked into a softmax, `gp.prior(n_outputs=3)` into a categorical, a mean with its
own noise, an intercept with coefficients, effects and a process, a process that the model whitens,
HSGP; an autoregression as log variance, a random walk of counts, areas; a hundred rows of Pima and
of ionosphere, probit, with one length-scale an input. NUTS samples the same model, with processes
whitened; it is PyMC's own, or nutpie where that is asked for.

Printed: the largest distance of two posterior means in Monte Carlo standard errors of both, over
the hyper-parameters and over everything; of how many, and what the largest of so many independent
normal numbers is in the median. NUTS is to be believed where its R-hat says so.
"""

from __future__ import annotations

import argparse
import time

from collections.abc import Callable
from typing import Any

import arviz as az
import numpy as np
import pymc as pm

from _design import standardized
from _results import Table, arguments
from scipy.stats import norm

import pymc_lgm as lgm

Build = Callable[[np.random.Generator, bool], list[str]]
PROBLEMS: dict[str, Build] = {}


def problem(build: Build) -> Build:
    """Add a model: (rng, whitened) -> the names of what is compared, hyper-parameters first."""
    PROBLEMS[build.__name__] = build
    return build


def process(name: str, t: np.ndarray, whitened: bool, **kwargs: Any) -> Any:
    scale, length = pm.HalfNormal(f"scale_{name}", 1), pm.InverseGamma(f"length_{name}", 3, 3)
    gp = pm.gp.Latent(cov_func=scale**2 * pm.gp.cov.Matern52(1, ls=length))
    return gp.prior(name, t, reparameterize=whitened, **kwargs)


def inputs(rng: np.random.Generator, n: int) -> np.ndarray:
    return np.sort(rng.uniform(0, 8, n))[:, None]


def classes(rng: np.random.Generator, t: np.ndarray) -> np.ndarray:
    eta = 2 * np.stack([np.sin(t[:, 0]), np.cos(0.5 * t[:, 0]), np.zeros(len(t))])
    return (eta + rng.gumbel(size=eta.shape)).argmax(axis=0)


@problem
def softmax(rng: np.random.Generator, whitened: bool) -> list[str]:
    t = inputs(rng, 25)
    f = [process(f"f{c}", t, whitened) for c in range(3)]
    lgm.Softmax("y", f=f, observed=classes(rng, t))
    return [f"{what}_f{c}" for what in ("scale", "length") for c in range(3)] + ["f0", "f1", "f2"]


@problem
def categorical(rng: np.random.Generator, whitened: bool) -> list[str]:
    t = inputs(rng, 25)
    f = process("f", t, True, n_outputs=3)
    pm.Categorical("y", logit_p=f.T, observed=classes(rng, t))
    return ["scale_f", "length_f", "f"]


@problem
def mean_and_noise(rng: np.random.Generator, whitened: bool) -> list[str]:
    t = inputs(rng, 30)
    group = np.arange(60) % 30  # two observations of each
    f, g = process("f", t, whitened), process("g", t, whitened)
    mean, log_sd = np.sin(t[:, 0]), -1 + np.cos(0.5 * t[:, 0])
    y = mean[group] + np.exp(log_sd[group]) * rng.standard_normal(60)
    pm.Normal("y", f[group], pm.math.exp(g[group]), observed=y)
    return ["scale_f", "length_f", "scale_g", "length_g", "f", "g"]


@problem
def additive(rng: np.random.Generator, whitened: bool) -> list[str]:
    week, subject = np.arange(60) % 20, np.arange(60) % 7
    X = rng.standard_normal((60, 2))
    a, beta = pm.Normal("a", 0, 2), pm.Normal("beta", 0, 1, shape=2)
    spread = pm.HalfNormal("spread", 1)
    if whitened:
        b = pm.Deterministic("b", spread * pm.Normal("z", 0, 1, shape=7))
    else:
        b = pm.Normal("b", 0, spread, shape=7)
    f = process("f", np.arange(20.0)[:, None] / 3, whitened)
    rate = np.exp(0.5 + X @ [0.5, -0.3] + 0.4 * rng.standard_normal(7)[subject] + np.sin(week / 3))
    eta = a + X @ beta + b[subject] + f[week]
    pm.Poisson("y", pm.math.exp(eta), observed=rng.poisson(rate))
    return ["spread", "scale_f", "length_f", "a", "beta", "b", "f"]


@problem
def whitened_by_the_model(rng: np.random.Generator, whitened: bool) -> list[str]:
    t = inputs(rng, 40)
    f = process("f", t, True)
    pm.Poisson("y", pm.math.exp(f), observed=rng.poisson(np.exp(1 + np.sin(t[:, 0]))))
    return ["scale_f", "length_f", "f"]


@problem
def basis_functions(rng: np.random.Generator, whitened: bool) -> list[str]:
    t = inputs(rng, 40)
    scale, length = pm.HalfNormal("scale", 1), pm.InverseGamma("length", 3, 3)
    gp = pm.gp.HSGP(m=[15], c=1.5, cov_func=scale**2 * pm.gp.cov.Matern52(1, ls=length))
    f = gp.prior("f", t)
    pm.Poisson("y", pm.math.exp(f), observed=rng.poisson(np.exp(1 + np.sin(t[:, 0]))))
    return ["scale", "length", "f"]


@problem
def volatility(rng: np.random.Generator, whitened: bool) -> list[str]:
    n, x = 500, np.zeros(500)
    for t in range(1, n):
        x[t] = 0.95 * x[t - 1] + 0.3 * rng.standard_normal()
    level, sigma = pm.Normal("level", 0, 2), pm.HalfNormal("sigma", 1)
    persistence = pm.Beta("persistence", 20, 1.5)
    rho = 2 * persistence - 1
    start = pm.Normal.dist(0, sigma / pm.math.sqrt(1 - rho**2))
    path = pm.AR("x", rho=[rho], sigma=sigma, init_dist=start, shape=n)
    y = np.exp((-0.4 + x) / 2) * rng.standard_normal(n)
    pm.Normal("y", 0, pm.math.exp((level + path) / 2), observed=y)
    return ["level", "persistence", "sigma", "x"]


@problem
def random_walk(rng: np.random.Generator, whitened: bool) -> list[str]:
    y = rng.poisson(np.exp(1 + np.cumsum(0.15 * rng.standard_normal(200))))
    sigma = pm.HalfNormal("sigma", 0.5)
    x = pm.GaussianRandomWalk("x", sigma=sigma, init_dist=pm.Normal.dist(0, 2), shape=200)
    pm.Poisson("y", pm.math.exp(x), observed=y)
    return ["sigma", "x"]


@problem
def areas(rng: np.random.Generator, whitened: bool) -> list[str]:
    across = np.arange(49)
    row, column = across // 7, across % 7
    near = np.abs(row[:, None] - row) + np.abs(column[:, None] - column)
    W = (near == 1).astype(float)
    Q = 4.0 * (np.diag(W.sum(axis=1)) - 0.9 * W)
    phi = np.linalg.solve(np.linalg.cholesky(Q).T, rng.standard_normal(49))
    b, alpha, sd = pm.Normal("b", 0, 2), pm.Beta("alpha", 3, 2), pm.HalfNormal("sd", 1)
    f = pm.CAR("phi", mu=np.zeros(49), W=W, alpha=alpha, tau=1 / sd**2)
    pm.Poisson("y", 3.0 * pm.math.exp(b + f), observed=rng.poisson(3.0 * np.exp(0.3 + phi)))
    return ["b", "alpha", "sd", "phi"]


def first_rows(name: str, whitened: bool) -> list[str]:
    table = getattr(lgm.datasets, f"load_{name}")()[:100]
    X = standardized(table.drop(columns="y").to_numpy(float))
    sigma = pm.Gamma("sigma", 1.1, 0.1)
    length = pm.Gamma("length", 1.0, 1 / np.sqrt(X.shape[1]), shape=X.shape[1])
    gp = pm.gp.Latent(cov_func=sigma * pm.gp.cov.ExpQuad(X.shape[1], ls=length))
    f = gp.prior("f", X, reparameterize=whitened, jitter=1e-6)
    pm.Bernoulli("y", pm.math.invprobit(f), observed=table["y"].to_numpy(int))
    return ["sigma", "length", "f"]


@problem
def pima(rng: np.random.Generator, whitened: bool) -> list[str]:
    return first_rows("pima", whitened)


@problem
def ionosphere(rng: np.random.Generator, whitened: bool) -> list[str]:
    return first_rows("ionosphere", whitened)


def sampled(build: Build, seed: int, nuts: bool, args: argparse.Namespace) -> Any:
    begin = time.perf_counter()
    with pm.Model():
        names = build(np.random.default_rng(seed), nuts)
        if nuts and args.nuts != "pymc":
            how: dict[str, Any] = {"nuts_sampler": args.nuts, "nuts": {"target_accept": 0.95}}
        else:
            how = {"step": pm.NUTS(target_accept=0.95) if nuts else lgm.PseudoMarginal()}
        idata = pm.sample(
            args.draws,
            tune=args.tune,
            chains=4,
            cores=2,
            random_seed=seed,
            progressbar=False,
            quiet=True,
            compute_convergence_checks=False,
            **how,
        )
    return names, idata, time.perf_counter() - begin


def moments(idata: Any, name: str) -> tuple[np.ndarray, np.ndarray]:
    data = idata["posterior"].dataset[[name]]
    return np.ravel(data[name].mean(["chain", "draw"])), np.ravel(az.mcse(data)[name])


def main() -> None:
    parser = arguments(__doc__, quick="one model, short chains")
    parser.add_argument("--problems", nargs="*", choices=PROBLEMS, default=list(PROBLEMS))
    parser.add_argument("--draws", type=int, default=1500)
    parser.add_argument("--tune", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--nuts", choices=("pymc", "nutpie"), default="pymc")
    args = parser.parse_args()
    if args.quick:
        args.problems, args.draws, args.tune = ["basis_functions"], 100, 100
    columns = {"model": "<21", "theta": ".1f", "all": ".1f", "means": "", "expected": ".1f"}
    columns |= {"R-hat ours": ".3f", "R-hat NUTS": ".3f", "ESS ours": ".0f", "ESS NUTS": ".0f"}
    columns |= {"s ours": ".0f", "s NUTS": ".0f"}
    title = f"4 chains of {args.draws} draws after {args.tune}"
    table = Table(args, title, columns, keys=1)
    for name in args.problems:
        if table.has(name):
            continue
        both = [sampled(PROBLEMS[name], args.seed, nuts, args) for nuts in (False, True)]
        ours, theirs = both
        names, apart = ours[0], {}
        for what in names:
            (mean, error), (other, its) = (moments(run[1], what) for run in both)
            apart[what] = np.abs(mean - other) / np.hypot(error, its)
        every = np.concatenate(list(apart.values()))
        numbers = [what for what in names if apart[what].size == 1]
        r_hat, ess = (
            [float(each(run[1]["posterior"].dataset[names]).to_array().pipe(worst)) for run in both]
            for each, worst in ((az.rhat, np.max), (az.ess, np.min))
        )
        largest = max((float(apart[what].max()) for what in numbers), default=float("nan"))
        # Median of the largest of as many independent standard normals.
        expected = norm.isf(0.5 * (1 - 0.5 ** (1 / every.size)))
        of = (largest, every.max(), every.size, expected)
        table.row(name, *of, *r_hat, *ess, ours[2], theirs[2])


if __name__ == "__main__":
    main()
