"""How far it goes: CPU time per effective draw, and memory, as the number of observations grows.

    python benchmarks/growth.py [--quick] [--families series] [--most 100000]

Each model has counts, an intercept, one observation per element of f (ten per group), and the
default sampler in one chain, in a process of its own. ESS is ArviZ's bulk ESS, the smallest of the
hyper-parameters'. "make" is CPU seconds until the first draw, compilation included, "ms" CPU
milliseconds per draw after tuning, "ms per effective" the same divided by the effective share of
the draws. "power" is p in "ms" ~ n^p from the row above, and "expected" what the algebra says for
large n. "MB" is the most memory that the process used, 400 of them for Python, PyMC and PyTensor.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
import time

from collections.abc import Callable
from typing import Any, NamedTuple

import arviz as az
import numpy as np
import pymc as pm

from _results import Table, arguments

import pymc_lgm as lgm


def dense(n: int, rng: np.random.Generator) -> pm.Model:
    X = rng.uniform(size=(n, 2))
    cov = 0.8**2 * pm.gp.cov.Matern32(2, ls=0.3)
    f = pm.draw(pm.MvNormal.dist(np.zeros(n), cov(X) + 1e-6 * np.eye(n)), random_seed=rng)
    with pm.Model() as model:
        cov = pm.HalfNormal("s", 1) ** 2 * pm.gp.cov.Matern32(2, ls=pm.InverseGamma("ls", 3, 0.8))
        eta = pm.Normal("b", 0, 2) + pm.gp.Latent(cov_func=cov).prior("f", X)
        pm.Poisson("y", pm.math.exp(eta), observed=rng.poisson(np.exp(0.5 + f)))
    return model


def neighbors(n: int, rng: np.random.Generator) -> pm.Model:
    X = rng.uniform(size=(n, 2))
    cov = 0.8**2 * pm.gp.cov.Matern32(2, ls=0.3)
    f = pm.draw(lgm.gp.Vecchia.dist(X, cov_func=cov, neighbors=20), random_seed=rng)
    with pm.Model() as model:
        cov = pm.HalfNormal("s", 1) ** 2 * pm.gp.cov.Matern32(2, ls=pm.InverseGamma("ls", 3, 0.8))
        eta = pm.Normal("b", 0, 2) + lgm.gp.Vecchia("f", X, cov_func=cov, neighbors=20)
        pm.Poisson("y", pm.math.exp(eta), observed=rng.poisson(np.exp(0.5 + f)))
    return model


def series(n: int, rng: np.random.Generator) -> pm.Model:
    f = np.empty(n)
    f[0] = rng.normal(0, 0.2 / math.sqrt(1 - 0.95**2))
    for t in range(1, n):
        f[t] = 0.95 * f[t - 1] + rng.normal(0, 0.2)
    with pm.Model() as model:
        rho, sigma = pm.Beta("rho", 20, 1.5), pm.HalfNormal("sigma", 0.5)
        start = pm.Normal.dist(0, sigma / pm.math.sqrt(1 - rho**2))
        f_ = pm.AR("f", rho=rho, sigma=sigma, init_dist=start, shape=n)
        eta = pm.Normal("b", 0, 2) + f_
        pm.Poisson("y", pm.math.exp(eta), observed=rng.poisson(np.exp(0.5 + f)))
    return model


def lattice(n: int, rng: np.random.Generator) -> pm.Model:
    side = math.isqrt(n)
    at = np.arange(side * side).reshape(side, side)
    right, below = (at[:, :-1].ravel(), at[:, 1:].ravel()), (at[:-1].ravel(), at[1:].ravel())
    W = lgm.spatial.adjacency(np.hstack([right, below]).T, sparse=True)
    f = pm.draw(lgm.gmrf.ICAR.dist(W=W, sigma=0.6), random_seed=rng)
    with pm.Model() as model:
        eta = pm.Normal("b", 0, 2) + lgm.gmrf.ICAR("f", W=W, sigma=pm.HalfNormal("sigma", 1))
        pm.Poisson("y", pm.math.exp(eta), observed=rng.poisson(np.exp(0.5 + f)))
    return model


def groups(n: int, rng: np.random.Generator) -> pm.Model:
    group = np.repeat(np.arange(n // 10), 10)
    f = rng.normal(0, 0.6, n // 10)
    with pm.Model() as model:
        u = pm.Normal("u", 0, pm.HalfNormal("sigma", 1), shape=n // 10)
        eta = pm.Normal("b", 0, 2) + u[group]
        pm.Poisson("y", pm.math.exp(eta), observed=rng.poisson(np.exp(0.5 + f[group])))
    return model


class Family(NamedTuple):
    """A kind of model, the sizes that are tried, and how the cost should grow."""

    make: Callable[[int, np.random.Generator], pm.Model]
    sizes: tuple[int, ...]
    expected: str


FAMILIES = {
    "series": Family(series, (100, 1000, 10_000, 100_000), "1"),
    "groups": Family(groups, (100, 1000, 10_000, 100_000), "1"),
    "lattice": Family(lattice, (100, 900, 2500, 10_000), "1.5"),
    "neighbors": Family(neighbors, (100, 1000, 4000), "1.5"),
    "dense": Family(dense, (100, 400, 1600), "3"),
}


def cell(family: str, n: int, draws: int) -> dict[str, float]:
    """Run one chain, and measure it."""
    model = FAMILIES[family].make(n, np.random.default_rng(1))
    clock = [time.process_time()]
    seen: list[float] = []

    def tell(trace: Any, draw: Any) -> None:
        if not seen or (len(seen) == 1 and not draw.tuning):
            seen.append(time.process_time())

    with model:
        idata = pm.sample(
            draws, tune=draws, step=lgm.PseudoMarginal(), chains=1, cores=1, random_seed=1,
            progressbar=False, compute_convergence_checks=False, callback=tell,
        )  # fmt: skip
    end = time.process_time()
    names = [rv.name for rv in model.free_RVs if rv.type.ndim == 0 and rv.name != "b"]
    ess = az.summary(idata, var_names=names, round_to="none").astype(float)["ess_bulk"].min()
    return {
        "make": seen[0] - clock[0],
        "ms": 1e3 * (end - seen[1]) / draws,
        "share": ess / draws,
        "MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def main() -> None:
    parser = arguments(__doc__, quick="small models, short chains")
    parser.add_argument("--families", nargs="*", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--most", type=int, default=100_000, help="the largest n")
    parser.add_argument("--draws", type=int, default=400)
    parser.add_argument("--cell", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.cell:
        print(json.dumps(cell(args.cell[0], int(args.cell[1]), args.draws)))
        return
    if args.quick:
        args.most, args.draws = 100, 30
    columns = {"model": "<9", "n": "", "make": ".0f", "ms": ".3g", "ESS per draw": ".2f"}
    columns |= {"ms per effective": ".3g", "power": ".2f", "expected": ">8", "MB": ".0f"}
    table = Table(args, "CPU time and memory of one chain", columns, keys=2)
    for name in args.families:
        before: tuple[int, float] | None = None
        for n in FAMILIES[name].sizes:
            if n > args.most:
                continue
            command = [sys.executable, __file__, "--cell", name, str(n), "--draws", str(args.draws)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                sys.exit(done.stderr)
            found = json.loads(done.stdout.splitlines()[-1])
            power = before and math.log(found["ms"] / before[1]) / math.log(n / before[0])
            table.row(
                name, n, found["make"], found["ms"], found["share"], found["ms"] / found["share"],
                power, FAMILIES[name].expected, found["MB"],
            )  # fmt: skip
            before = n, found["ms"]


if __name__ == "__main__":
    main()
