"""Sums of sparse families: effective draws per second of the default, beside those of NUTS.

    python benchmarks/sums.py [--quick] [--models trend_and_season ...] [--nuts nutpie numpyro]

Models as users of R-INLA, mgcv, brms and dlm write them, on simulated data: trend beside season, of
counts and with normal errors, a level beside a coefficient that moves, a panel of autoregressions,
a map beside an effect of a covariate, areas by time with an interaction, crossed effects,
correlated slopes, of counts and with normal errors, a volatility with leverage, counts with extra
zeros that have effects of their own, daily births by two HSGPs and effects of weekdays, and a
process beside a series, effects and coefficients.

Printed: the elements of x and of eta, non-zeros of the factor, the largest R-hat and the least bulk
effective draws of all hyper-parameters and coefficients, seconds to make the step, seconds of
tuning and sampling of four chains, effective draws per second. With --nuts the same of NUTS by
these programs, and the largest distance of two posterior means in Monte Carlo standard errors of
both.
"""

from __future__ import annotations

import os
import time

from collections.abc import Callable
from typing import Any

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt

from _results import Table, arguments

import pymc_lgm as lgm

Build = Callable[[np.random.Generator], None]
MODELS: dict[str, Build] = {}


def model(build: Build) -> Build:
    """Add a model: it is built in the context of one."""
    MODELS[build.__name__] = build
    return build


def grid(rows: int, columns: int) -> np.ndarray:
    """Which cells of a grid have a side in common."""
    W = np.zeros((rows * columns, rows * columns))
    for k in range(rows * columns):
        if k % columns + 1 < columns:
            W[k, k + 1] = W[k + 1, k] = 1
        if k + columns < rows * columns:
            W[k, k + columns] = W[k + columns, k] = 1
    return W


def months(rng: np.random.Generator, n: int = 192) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    t = np.arange(n)
    law = (t >= 169).astype(float)
    eta = 3 + 0.4 * np.sin(t / 40) + 0.3 * np.cos(2 * np.pi * t / 12) - 0.3 * law
    return t, law, rng.poisson(np.exp(eta))


@model
def trend_and_season(rng: np.random.Generator) -> None:
    t, law, y = months(rng)
    s = pm.HalfNormal("s", [0.3, 0.1])
    beta, first = pm.Normal("beta", 0, 1), pm.Normal.dist(0, 1)
    trend = pm.GaussianRandomWalk("trend", sigma=s[0], init_dist=pm.Normal.dist(3, 2), shape=t.size)
    season = pm.AR("season", rho=-np.ones(11), sigma=s[1], init_dist=first, shape=t.size)
    pm.Poisson("y", pm.math.exp(trend + season + beta * law), observed=y)


@model
def trend_and_season_errors(rng: np.random.Generator) -> None:
    t, law, _ = months(rng)
    y = 10 + 0.5 * np.sin(t / 40) + np.cos(2 * np.pi * t / 12) - 0.5 * law
    y += 0.3 * rng.standard_normal(t.size)
    s, noise, beta = pm.HalfNormal("s", [0.3, 0.1]), pm.HalfNormal("noise", 1), pm.Normal("beta")
    trend = lgm.gmrf.RandomWalk("trend", order=1, sigma=s[0], shape=t.size)
    season = lgm.gmrf.Seasonal("season", period=12, sigma=s[1], shape=t.size)
    level = pm.Normal("level", 10, 5)
    pm.Normal("y", level + trend + season + beta * law, noise, observed=y)


@model
def moving_coefficient(rng: np.random.Generator) -> None:
    n, x = 300, rng.standard_normal(300)
    walks = np.cumsum([[0.05], [0.03]] * rng.standard_normal((2, n)), axis=1)
    y = rng.poisson(np.exp(1 + walks[0] + x * (0.3 + walks[1])))
    s, first = pm.HalfNormal("s", 0.2, shape=2), pm.Normal.dist(0, 2)
    level = pm.GaussianRandomWalk("level", sigma=s[0], init_dist=first, shape=n)
    beta = pm.GaussianRandomWalk("beta", sigma=s[1], init_dist=first, shape=n)
    pm.Poisson("y", pm.math.exp(level + x * beta), observed=y)


@model
def panel(rng: np.random.Generator) -> None:
    subjects, n = 40, 50
    x = np.zeros((subjects, n))
    for i in range(1, n):
        x[:, i] = 0.8 * x[:, i - 1] + 0.3 * rng.standard_normal(subjects)
    rho, sigma = pm.Uniform("rho", -1, 1), pm.HalfNormal("sigma", 1)
    first = pm.Normal.dist(0, 1)
    f = pm.AR("f", rho=[rho], sigma=sigma, init_dist=first, shape=(subjects, n))
    pm.Poisson("y", pm.math.exp(pm.Normal("b", 0, 2) + f), observed=rng.poisson(np.exp(0.5 + x)))


@model
def map_and_covariate(rng: np.random.Generator) -> None:
    n, levels = 400, 50
    x, E = rng.integers(0, levels, n), rng.uniform(5, 30, n)
    y = rng.poisson(E * np.exp(0.3 * rng.standard_normal(n) + 0.3 * np.sin(x / 8)))
    b, s = pm.Normal("b", 0, 1), pm.HalfNormal("s", 0.5, shape=3)
    noise, phi = pm.Normal("noise", 0, 1, shape=n), pm.ICAR("phi", W=grid(20, 20))
    first = pm.Normal.dist(0, 1)
    f = pm.AR("f", rho=[2.0, -1.0], sigma=0.1 * s[2], init_dist=first, shape=levels)
    pm.Poisson("y", E * pm.math.exp(b + s[0] * noise + s[1] * phi + f[x]), observed=y)


def space_and_time(rng: np.random.Generator, side: int, T: int, *, structured: bool) -> None:
    areas, W = side * side, grid(side, side)
    E = rng.uniform(5, 30, (areas, T))
    eta = 0.2 * rng.standard_normal((areas, 1)) + np.cumsum(0.1 * rng.standard_normal(T))
    y = rng.poisson(E * np.exp(eta + 0.15 * rng.standard_normal((areas, T))))
    b, s = pm.Normal("b", 0, 1), pm.HalfNormal("s", 0.5, shape=3)
    phi, first = pm.ICAR("phi", W=W), pm.Normal.dist(0, 0.5)
    time = pm.GaussianRandomWalk("time", sigma=s[1], init_dist=first, shape=T)
    if structured:
        D = np.diff(np.eye(T), axis=0)
        R = np.kron(np.diag(W.sum(axis=1)) - W, D.T @ D)
        tau = R / s[2] ** 2 + 1e-2 * np.eye(areas * T)
        delta = pm.MvNormal("delta", 0, tau=tau).reshape((areas, T))
    else:
        delta = pm.Normal("delta", 0, s[2], shape=(areas, T))
    pm.Poisson("y", E * pm.math.exp(b + s[0] * phi[:, None] + time + delta), observed=y)


@model
def space_time_independent(rng: np.random.Generator) -> None:
    space_and_time(rng, 6, 12, structured=False)


@model
def space_time_structured(rng: np.random.Generator) -> None:
    space_and_time(rng, 6, 12, structured=True)


@model
def space_time_144_areas(rng: np.random.Generator) -> None:
    space_and_time(rng, 12, 15, structured=True)


@model
def many_groups(rng: np.random.Generator) -> None:
    groups, n = 500, 5000
    g, x = np.repeat(np.arange(groups), 10), rng.standard_normal(n)
    p = 1 / (1 + np.exp(-(0.5 * x + 0.7 * rng.standard_normal(groups)[g])))
    b, sd = pm.Normal("b", 0, 2, shape=2), pm.HalfNormal("sd", 1)
    w = pm.Normal("w", 0, sd, shape=groups)
    pm.Bernoulli("y", logit_p=b[0] + b[1] * x + w[g], observed=rng.binomial(1, p))


@model
def crossed(rng: np.random.Generator) -> None:
    rows, columns, n = 400, 100, 4000
    i, j = rng.integers(0, rows, n), rng.integers(0, columns, n)
    eta = 1 + 0.5 * rng.standard_normal(rows)[i] + 0.4 * rng.standard_normal(columns)[j]
    b, sd = pm.Normal("b", 0, 2), pm.HalfNormal("sd", 1, shape=2)
    u, v = pm.Normal("u", 0, sd[0], shape=rows), pm.Normal("v", 0, sd[1], shape=columns)
    pm.Poisson("y", pm.math.exp(b + u[i] + v[j]), observed=rng.poisson(np.exp(eta)))


@model
def crossed_answers(rng: np.random.Generator) -> None:
    rows, columns, n = 2000, 500, 20_000
    i, j = rng.integers(0, rows, n), rng.integers(0, columns, n)
    eta = 0.5 + 0.8 * rng.standard_normal(rows)[i] + 0.6 * rng.standard_normal(columns)[j]
    b, sd = pm.Normal("b", 0, 2), pm.HalfNormal("sd", 1, shape=2)
    u, v = pm.Normal("u", 0, sd[0], shape=rows), pm.Normal("v", 0, sd[1], shape=columns)
    y = rng.uniform(size=n) < 1 / (1 + np.exp(-eta))
    pm.Bernoulli("y", logit_p=b + u[i] + v[j], observed=y.astype(int))


@model
def correlated_slopes(rng: np.random.Generator) -> None:
    groups, n = 60, 600
    g, x = np.repeat(np.arange(groups), 10), rng.standard_normal(n)
    u = rng.multivariate_normal([0.5, 0.3], [[0.3, 0.1], [0.1, 0.1]], groups)
    sd = pm.HalfNormal.dist(1)
    chol, *_ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=sd)
    b = pm.MvNormal("b", pm.Normal("mu", 0, 1, shape=2), chol=chol, shape=(groups, 2))
    y = rng.poisson(np.exp(u[g, 0] + u[g, 1] * x))
    pm.Poisson("y", pm.math.exp(b[g, 0] + b[g, 1] * x), observed=y)


@model
def correlated_slopes_errors(rng: np.random.Generator) -> None:
    groups, n = 60, 600
    g, x = np.repeat(np.arange(groups), 10), rng.standard_normal(n)
    u = rng.multivariate_normal([0.5, 0.3], [[0.3, 0.1], [0.1, 0.1]], groups)
    sd, noise = pm.HalfNormal.dist(1), pm.HalfNormal("noise", 1)
    chol, *_ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=sd)
    b = pm.MvNormal("b", pm.Normal("mu", 0, 1, shape=2), chol=chol, shape=(groups, 2))
    y = u[g, 0] + u[g, 1] * x + 0.5 * rng.standard_normal(n)
    pm.Normal("y", b[g, 0] + b[g, 1] * x, noise, observed=y)


@model
def two_responses(rng: np.random.Generator) -> None:
    groups, n = 60, 600
    g, x = np.repeat(np.arange(groups), 10), rng.standard_normal(n)
    eta = 1 + 0.3 * x[:, None] + 0.5 * rng.standard_normal((groups, 2))[g]
    y = eta + rng.standard_normal((n, 2)) @ [[0.8, 0.4], [0.0, 0.7]]
    b, beta = pm.Normal("b", 0, 2, shape=2), pm.Normal("beta", 0, 1, shape=2)
    of_sd = pm.HalfNormal.dist(1, shape=2)
    chol, _, _ = pm.LKJCholeskyCov("errors", n=2, eta=2, sd_dist=of_sd, compute_corr=True)
    u = pm.Normal("u", 0, pm.HalfNormal("sd", 1, shape=2), shape=(groups, 2))
    pm.MvNormal("y", b + x[:, None] * beta + u[g], chol=chol, observed=y)


def stock_returns(rng: np.random.Generator, n: int) -> None:
    h = np.zeros(n + 1)
    noise = rng.standard_normal((2, n))
    for i in range(n):
        h[i + 1] = 0.95 * h[i] + 0.25 * (-0.5 * noise[0, i] + np.sqrt(0.75) * noise[1, i])
    y = np.exp((h[:-1] - 1) / 2) * noise[0]
    mu, phi = pm.Normal("mu", 0, 2), pm.Beta("phi", 20, 1.5)
    sigma, rho = pm.HalfNormal("sigma", 0.5), pm.Uniform("rho", -1, 1)
    first = pm.Normal.dist(0, sigma / pm.math.sqrt(1 - phi**2))
    f = pm.AR("f", rho=[phi], sigma=sigma, init_dist=first, shape=n + 1)
    sd = pm.math.exp((mu + f[:-1]) / 2)
    mean = rho * sd * (f[1:] - phi * f[:-1]) / sigma
    pm.Normal("y", mean, sd * pm.math.sqrt(1 - rho**2), observed=y)


@model
def leverage(rng: np.random.Generator) -> None:
    stock_returns(rng, 300)


@model
def leverage_14_years(rng: np.random.Generator) -> None:
    stock_returns(rng, 3522)


@model
def extra_zeros(rng: np.random.Generator) -> None:
    groups, n = 40, 800
    g, x = rng.integers(0, groups, n), rng.standard_normal(n)
    share = 1 / (1 + np.exp(-(0.8 + 0.7 * rng.standard_normal(groups)[g])))
    rate = np.exp(1 + 0.4 * x + 0.4 * rng.standard_normal(groups)[g])
    b, z, sd = pm.Normal("b", 0, 2, shape=2), pm.Normal("z", 0, 2), pm.HalfNormal("sd", 1, shape=2)
    u, v = (pm.Normal(name, 0, sd[k], shape=groups) for k, name in enumerate("uv"))
    psi, mu = pm.math.invlogit(z + v[g]), pm.math.exp(b[0] + b[1] * x + u[g])
    y = rng.binomial(1, share) * rng.poisson(rate)
    pm.ZeroInflatedPoisson("y", psi=psi, mu=mu, observed=y)


@model
def births(rng: np.random.Generator) -> None:
    """Ten years of days, as the births of PyMC's example gallery: 39 + 20 basis functions."""
    day = np.arange(3650)
    scale = day.std()
    x = (day - day.mean()) / scale
    weekday = day % 7
    mean = 0.4 * np.sin(3 * x) + 0.3 * np.cos(2 * np.pi * day / 365.25)
    y = mean + np.where(weekday > 4, -1.0, 0.3) + 0.3 * rng.standard_normal(day.size)
    X = pm.Data("x", x)[:, None]
    slow = pm.HalfNormal("slow", 1)
    length = pm.LogNormal("length", np.log(700 / scale), 1)
    trend = pm.gp.HSGP(m=[20], c=1.5, cov_func=slow * pm.gp.cov.ExpQuad(1, ls=length))
    yearly = pm.HalfNormal("yearly", 1)
    width = pm.LogNormal("width", np.log(7000 / scale), 1)
    periodic = pm.gp.cov.Periodic(1, period=365.25 / scale, ls=width)
    year = pm.gp.HSGPPeriodic(m=20, scale=yearly, cov_func=periodic)
    effects = pm.Normal("effects", 0, 1, shape=7)
    eta = trend.prior("trend", X=X) + year.prior("year", X=X) + effects[weekday]
    pm.Normal("y", eta, pm.HalfNormal("noise", 0.5), observed=y)


@model
def everything(rng: np.random.Generator) -> None:
    n, places, T, groups = 1000, 200, 50, 30
    X, Z = rng.uniform(0, 1, (places, 2)), rng.standard_normal((n, 3))
    v, t, g = (rng.integers(0, size, n) for size in (places, T, groups))
    field = 0.6 * np.sin(4 * X[:, 0]) * np.cos(5 * X[:, 1])
    eta = 0.5 + field[v] + np.cumsum(0.1 * rng.standard_normal(T))[t] + Z @ [0.3, -0.2, 0.0]
    y = rng.poisson(np.exp(eta + 0.4 * rng.standard_normal(groups)[g]))
    b, beta = pm.Normal("b", 0, 2), pm.Normal("beta", 0, 1, shape=3)
    scale, length = pm.HalfNormal("scale", 1), pm.InverseGamma("length", 3, 0.6)
    rho, s, sd = pm.Uniform("rho", -1, 1), pm.HalfNormal("s", 1), pm.HalfNormal("sd", 1)
    f = pm.gp.Latent(cov_func=scale**2 * pm.gp.cov.Matern32(2, ls=length)).prior("f", X)
    a = pm.AR("a", rho=[rho], sigma=s, init_dist=pm.Normal.dist(0, 1), shape=T)
    u = pm.Normal("u", 0, sd, shape=groups)
    pm.Poisson("y", pm.math.exp(b + pt.dot(Z, beta) + f[v] + a[t] + u[g]), observed=y)


def numbers(idata: Any, names: list[str]) -> tuple[float, float]:
    """The largest R-hat, and the least bulk effective draws."""
    chosen = idata["posterior"].dataset[names]
    r_hat, ess = az.rhat(chosen), az.ess(chosen)
    # Elements that do not move, as the diagonal of a correlation matrix, have neither.
    largest = max(float(np.nanmax(r_hat[name])) for name in names)
    return largest, min(float(np.nanmin(ess[name])) for name in names)


def apart(one: Any, two: Any, names: list[str]) -> float:
    """The largest difference of two posterior means in Monte Carlo standard errors of both."""
    found = []
    for name in names:
        means, errors = [], []
        for idata in (one, two):
            x = idata["posterior"][name]
            means.append(x.mean(("chain", "draw")).values)
            sd = x.std(("chain", "draw")).values
            errors.append(sd / np.sqrt(az.ess(idata["posterior"].dataset[[name]])[name].values))
        found.append(np.nanmax(np.abs(means[0] - means[1]) / np.hypot(*errors)))
    return float(max(found))


def main() -> None:
    parser = arguments(__doc__, quick="two short chains of the smallest models")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--nuts", nargs="*", choices=["pymc", "nutpie", "numpyro"], default=[])
    args = parser.parse_args()
    # NumPyro runs chains in parallel on as many devices as JAX sees when it is imported.
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
    draws, chains = (100, 2) if args.quick else (args.draws, 4)
    names_of = ["trend_and_season", "correlated_slopes"] if args.quick else args.models
    columns = {
        "model": "<24",
        "x": "d",
        "eta": "d",
        "factor": "d",
        "sampler": "<8",
        "R-hat": ".3f",
        "ESS": ".0f",
        "made, s": ".1f",
        "sampled, s": ".1f",
        "ESS/s": ".1f",
        "apart": ".1f",
    }
    title = f"Sums: {chains} chains of {draws} draws after as many of tuning"
    table = Table(args, title, columns, keys=5)
    for name in names_of:
        if table.has(name):
            continue
        with pm.Model() as built:
            MODELS[name](np.random.default_rng(0))
        common: dict[str, Any] = {
            "draws": draws,
            "tune": draws,
            "chains": chains,
            "cores": 2,
            "quiet": True,
            "random_seed": 1,
            "progressbar": False,
            "compute_convergence_checks": False,
            "model": built,
        }
        begin = time.perf_counter()
        step = lgm.PseudoMarginal(model=built)
        made = time.perf_counter() - begin
        layout = getattr(step.lgm.form, "layout", None)
        sizes = (step.lgm.rank, step.lgm.n, 0)
        if layout is not None:
            sizes = (layout.N, layout.E, layout.pattern.size)
        begin = time.perf_counter()
        idata = pm.sample(step=step, **common)
        seconds = time.perf_counter() - begin
        small = [rv.name for rv in built.free_RVs if int(np.prod(rv.shape.eval())) <= 12]
        r_hat, ess = numbers(idata, small)
        table.row(name, *sizes, "default", r_hat, ess, made, seconds, ess / seconds, np.nan)
        for nuts in args.nuts:
            begin = time.perf_counter()
            if nuts == "pymc":
                other = pm.sample(step=pm.NUTS(model=built), **common)
            else:
                other = pm.sample(nuts_sampler=nuts, **common)
            seconds = time.perf_counter() - begin
            r_hat, ess = numbers(other, small)
            distance = apart(idata, other, small)
            table.row(name, *sizes, nuts, r_hat, ess, 0.0, seconds, ess / seconds, distance)


if __name__ == "__main__":
    main()
