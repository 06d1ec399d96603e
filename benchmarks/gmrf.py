"""Priors of this package: CPU seconds to 400 effective draws of the hyper-parameters.

    python benchmarks/gmrf.py [--quick] [--models rain drivers map mesh neighbors] [--nuts]

- rain: was a day of the year wet, in two years? 366 days, a cyclic random walk of order 2;
- drivers: `pymc_lgm.datasets.load_seatbelts`, a trend of order 2, a season that changes, a law;
- map: simulated counts of 100 areas in 20 years, BYM2, a walk of order 2, interaction of type IV;
- mesh: 1000 binary points, a Matérn field on a mesh with some 3000 vertices;
- neighbors: counts at 10 000 points, a process with 20 nearest neighbors.

Printed: the elements of x, the non-zeros of the factor, CPU seconds to read and compile the model,
to tune, and milliseconds per draw, the largest R-hat and the least bulk effective draws of the
hyper-parameters, and CPU seconds to 400 effective draws, all included, of one process. With --nuts
also nutpie on the same model, for rain, drivers and map.
"""

from __future__ import annotations

import time

from collections.abc import Callable
from typing import Any

import arviz as az
import numpy as np
import pymc as pm

from _results import Table, arguments

import pymc_lgm as lgm

ENOUGH = 400
"""Effective draws that are timed: as many as ArviZ asks for."""
MODELS: dict[str, Callable[[bool], tuple[pm.Model, list[str]]]] = {}
SLOW_FOR_NUTS = ("mesh", "neighbors")
"""Models that nutpie does not run: thousands of values that depend strongly on theta."""


def named(build: Callable[[bool], tuple[pm.Model, list[str]]]) -> Any:
    MODELS[build.__name__] = build
    return build


@named
def rain(quick: bool) -> tuple[pm.Model, list[str]]:
    days = 50 if quick else 366
    at = 2.0 * np.pi * np.arange(days) / days
    y = np.random.default_rng(1).binomial(2, 1.0 / (1.0 + np.exp(1.0 + np.cos(at + 1.0))))
    with pm.Model() as model:
        sigma = lgm.gmrf.pc_prior("sigma", upper=1.0, alpha=0.05)
        f = lgm.gmrf.RandomWalk("f", order=2, sigma=sigma, cyclic=True, scale=True, shape=days)
        pm.Binomial("y", n=2, logit_p=pm.Normal("level", 0.0, 2.0) + f, observed=y)
    return model, ["sigma"]


@named
def drivers(quick: bool) -> tuple[pm.Model, list[str]]:
    months = lgm.datasets.load_seatbelts()
    killed = months["y"].to_numpy()
    law = months["law"].to_numpy()
    n = len(months)
    with pm.Model() as model:
        line = pm.Normal("level", 5.0, 2.0) + pm.Normal("slope", 0.0, 1.0) * np.linspace(-1, 1, n)
        trend_sd = lgm.gmrf.pc_prior("trend_sd", upper=0.01, alpha=0.05)
        season_sd = lgm.gmrf.pc_prior("season_sd", upper=0.1, alpha=0.05)
        alpha = pm.Exponential("alpha", scale=500)
        trend = lgm.gmrf.RandomWalk("trend", order=2, sigma=trend_sd, shape=n)
        season = lgm.gmrf.Seasonal("season", period=12, sigma=season_sd, shape=n)
        log_rate = line + trend + season + pm.Normal("effect", 0.0, 1.0) * law
        pm.NegativeBinomial("killed", mu=pm.math.exp(log_rate), alpha=alpha, observed=killed)
    return model, ["trend_sd", "season_sd", "alpha"]


@named
def map(quick: bool) -> tuple[pm.Model, list[str]]:
    side, years = (3, 5) if quick else (10, 20)
    areas = side**2
    at = np.indices((side, side)).reshape(2, -1).T
    W = (np.abs(at[:, None] - at).sum(-1) == 1).astype(int)
    region = lgm.gmrf.Structure.map(W)
    path = lgm.gmrf.Structure.walk(years, order=2)
    area, year = (each.ravel() for each in np.indices((areas, years)))

    rng = np.random.default_rng(2)
    smooth = np.sin(at[:, 0] / 3.0) + 0.3 * rng.standard_normal(areas)
    wave = 0.25 * np.cos(np.arange(years) / 4.0)
    own = pm.draw(
        lgm.gmrf.Interaction.dist((region, path), sigma=0.3, shape=(areas, years)), random_seed=3
    )
    y = rng.poisson(20.0 * np.exp(0.5 * smooth[area] + wave[year] + own[area, year]))
    with pm.Model() as model:
        level = pm.Normal("level", 0.0, 2.0)
        rho = pm.Beta("rho", 1.0, 1.0)
        names = [f"{term}_sd" for term in ("place", "wave", "own")]
        sds = [lgm.gmrf.pc_prior(name, upper=2.0, alpha=0.05) for name in names]
        place = lgm.gmrf.BYM2("place", W=W, sigma=sds[0], rho=rho)
        wave = lgm.gmrf.RandomWalk("wave", order=2, sigma=sds[1], scale=True, shape=years)
        line = pm.Normal("line", 0.0, 1.0) * np.linspace(-1.0, 1.0, years)
        own = lgm.gmrf.Interaction("own", (region, path), sigma=sds[2], shape=(areas, years))
        log_risk = level + place[area] + (wave + line)[year] + own[area, year]
        pm.Poisson("y", 20.0 * pm.math.exp(log_risk), observed=y)
    return model, [*names, "rho"]


@named
def mesh(quick: bool) -> tuple[pm.Model, list[str]]:
    rng = np.random.default_rng(0)
    edge = 0.2 if quick else 0.0235
    points = rng.uniform(size=(100 if quick else 1000, 2))
    # The data are made on a mesh of their own.
    fine = lgm.gmrf.Mesh.around(points, max_edge=0.03, extension=0.4)
    field = pm.draw(lgm.gmrf.Matern.dist(fine, range=0.25, sigma=1.5), random_seed=1)
    y = rng.uniform(size=len(points)) < 1.0 / (1.0 + np.exp(-fine.at(points, field)))
    around = lgm.gmrf.Mesh.around(points, max_edge=edge, extension=0.4)
    with pm.Model() as model:
        reach = lgm.gmrf.pc_prior("range", lower=0.05, alpha=0.05)
        sigma = lgm.gmrf.pc_prior("sigma", upper=3.0, alpha=0.05)
        u = lgm.gmrf.Matern("u", around, range=reach, sigma=sigma)
        level = pm.Normal("level", 0.0, 2.0)
        pm.Bernoulli("y", logit_p=level + around.at(points, u), observed=y)
    return model, ["range", "sigma"]


@named
def neighbors(quick: bool) -> tuple[pm.Model, list[str]]:
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(300 if quick else 10_000, 2))
    matern = pm.gp.cov.Matern32
    true = lgm.gp.Vecchia.dist(X, cov_func=0.8**2 * matern(2, ls=0.15), neighbors=20)
    y = np.random.default_rng(1).poisson(np.exp(0.5 + pm.draw(true, random_seed=1)))
    with pm.Model() as model:
        ls = pm.InverseGamma("ls", 3.0, 0.4)
        sigma = pm.HalfNormal("sigma", 1.0)
        f = lgm.gp.Vecchia("f", X, cov_func=sigma**2 * matern(2, ls=ls), neighbors=20)
        pm.Poisson("y", pm.math.exp(pm.Normal("level", 0.0, 2.0) + f), observed=y)
    return model, ["ls", "sigma"]


class Clock:
    """CPU seconds at the last draw of tuning: a callback of `pymc.sample`, for one process."""

    def __init__(self) -> None:
        self.tuned = time.process_time()

    def __call__(self, trace: Any, draw: Any) -> None:
        """Note the time."""
        if draw.tuning:
            self.tuned = time.process_time()


def sampled(model: pm.Model, args: Any, **how: Any) -> Any:
    return pm.sample(
        args.draws,
        tune=args.tune,
        chains=1,
        cores=1,
        model=model,
        random_seed=1,
        progressbar=False,
        quiet=True,
        compute_convergence_checks=False,
        **how,
    )


def quality(idata: Any, names: list[str]) -> tuple[float, float]:
    """The largest R-hat of the halves of a chain, and the least effective draws."""
    theta = idata["posterior"].dataset[names]
    halves = theta.to_array().to_numpy()[:, 0]
    r_hat = max(float(az.rhat(np.stack(np.array_split(each, 2)))) for each in halves)
    return r_hat, float(az.ess(theta).to_array().min())


def default(model: pm.Model, names: list[str], args: Any) -> list[Any]:
    begin = time.process_time()
    step = lgm.PseudoMarginal(model=model)
    made = time.process_time() - begin
    clock = Clock()
    idata = sampled(model, args, step=step, callback=clock)
    end = time.process_time()
    r_hat, ess = quality(idata, names)
    tuned = clock.tuned - begin - made
    drawn = (end - clock.tuned) / args.draws
    total = made + tuned + drawn * args.draws * ENOUGH / ess
    layout = getattr(step.lgm.form, "layout", None)
    size = (step.lgm.form.dense_rows, None) if layout is None else (layout.N, layout.pattern.size)
    return [*size, made, tuned, 1e3 * drawn, (r_hat, r_hat > 1.05), ess, total]


def nuts(model: pm.Model, names: list[str], args: Any) -> list[Any]:
    begin = time.process_time()
    idata = sampled(model, args, nuts_sampler="nutpie")
    seconds = time.process_time() - begin
    r_hat, ess = quality(idata, names)
    # All of it: nutpie does not say how long it tuned.
    total = seconds * ENOUGH / ess
    return [None, None, None, None, None, (r_hat, r_hat > 1.05), ess, total]


def main() -> None:
    parser = arguments(__doc__, quick="small data, short chains")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--nuts", action="store_true")
    parser.add_argument("--draws", type=int, default=600)
    parser.add_argument("--tune", type=int, default=400)
    args = parser.parse_args()
    if args.quick:
        args.draws, args.tune = 100, 100
    columns = {"model": "<10", "sampler": "<8", "x": "d", "factor": "d", "made, s": ".1f"}
    columns |= {"tuned, s": ".1f", "draw, ms": ".1f", "R-hat": ".3f", "ESS": ".0f"}
    columns |= {"400 effective, s": ".0f"}
    title = f"One chain of {args.draws} draws after {args.tune}, CPU seconds"
    table = Table(args, title, columns, keys=2)
    for name in args.models:
        samplers = [default]
        if args.nuts and name not in SLOW_FOR_NUTS:
            samplers.append(nuts)
        for sampler in samplers:
            label = "default" if sampler is default else "nutpie"
            if not table.has(name, label):
                table.row(name, label, *sampler(*MODELS[name](args.quick), args))


if __name__ == "__main__":
    main()
