"""Whether a long chain drifts or grows, and whether models that are dropped are freed.

    python benchmarks/endurance.py [--quick] [--draws 1000000] [--models 200] [--interpreted 200]

A chain of the default on logistic data, n = 50: memory of the process beyond what is kept of the
draws, mean acceptance of theta and f, and posterior mean and standard deviation of log length-scale
and log amplitude in its first and in its last tenth, the difference in Monte Carlo standard errors.
Then models are built, stepped ten times and dropped, compiled as users do and interpreted:
memory a model over the second half of them, and the objects that each leaves behind.
"""

from __future__ import annotations

import argparse
import gc
import os
import time

from collections.abc import Iterator
from contextlib import nullcontext

import arviz as az
import numpy as np
import pymc as pm
import pytensor

from _results import Table, arguments
from pytensor.compile.executor import Function
from pytensor.compile.mode import Mode

import pymc_lgm as lgm

INTERPRETED = {"mode": Mode(linker="py", optimizer="fast_compile")}
KINDS = (pm.Model, Function, lgm.model.LatentGaussianModel, lgm.PseudoMarginal, np.ndarray)


def model_of(n: int) -> pm.Model:
    rng = np.random.default_rng(0)
    X = np.linspace(0.0, 1.0, n)[:, None]
    p = 1.0 / (1.0 + np.exp(-2.0 * np.sin(6.0 * X[:, 0])))
    with pm.Model() as model:
        length = pm.LogNormal("length", np.log(0.3), 0.5)
        amplitude = pm.LogNormal("amplitude", 0.5, 0.5)
        gp = pm.gp.Latent(cov_func=amplitude**2 * pm.gp.cov.Matern52(1, ls=length))
        f = gp.prior("f", X, reparameterize=False, jitter=1e-6)
        lgm.Logistic("y", f=f, observed=rng.uniform(size=n) < p)
    return model


def megabytes() -> float:
    """Memory that the process has in use, once everything that is free has been given back."""
    gc.collect()
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def long_chain(args: argparse.Namespace, draws: int, tune: int, tenths: int = 10) -> None:
    model = model_of(50)
    step = lgm.PseudoMarginal(model=model)
    step.setup_chain(np.random.default_rng(1), tune, draws)
    point = model.initial_point()
    for _ in range(tune):
        point, _ = step.step(point)
    step.stop_tuning()
    names = ("theta_acceptance", "latent_acceptance", "cubic_ops", "numerical_rejections")
    kept = np.full((tenths, draws // tenths, 2 + len(names)), 0.0)
    begin, used = time.perf_counter(), [megabytes()]
    title = f"n = 50, {draws} draws after {tune} of tuning"
    columns = {"tenth": "", "MB": ".1f", "ms/draw": ".2f", "accept theta": ".3f", "f": ".3f"}
    columns |= {"ops": ".2f", "lost": ".4f", "kB/draw from the first": ".4f"}
    table = Table(args, title, columns, keys=1)
    for tenth in range(tenths):
        for row in kept[tenth]:
            point, [stats] = step.step(point)
            row[:2] = step.lgm.theta_of(point)
            row[2:] = [float(stats[name]) for name in names]
        used.append(megabytes())
        means = np.nanmean(kept[tenth, :, 2:], axis=0)
        seconds, begin = time.perf_counter() - begin, time.perf_counter()
        each = len(kept[tenth])
        growth = 1e3 * (used[-1] - used[1]) / (each * tenth) if tenth else None
        table.row(tenth + 1, used[-1], 1e3 * seconds / each, *means, growth)
    columns = {"theta": "<15", "mean": ".4f", "then": ".4f", "apart": "+.1f"}
    columns |= {"sd": ".4f", "sd then": ".4f", "sd apart": "+.1f"}
    table = Table(args, f"{title}: first tenth, then last", columns, keys=1, part="theta")
    for j, name in enumerate(step.lgm.theta_names):
        (first, e1), (last, e2) = (moments(kept[k, :, j]) for k in (0, -1))
        z = (last - first) / np.hypot(e1, e2)
        table.row(name, first[0], last[0], z[0], first[1], last[1], z[1])


def moments(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation, and their Monte Carlo errors."""
    errors = [float(az.mcse(x[None], method=method)) for method in ("mean", "sd")]
    return np.array([x.mean(), x.std(ddof=1)]), np.array(errors)


def alive() -> dict[str, int]:
    gc.collect()
    found = [type(item) for item in gc.get_objects()]
    return {kind.__name__: sum(issubclass(t, kind) for t in found) for kind in KINDS}


def one(n: int) -> None:
    model = model_of(n)
    step, point = lgm.PseudoMarginal(model=model), model.initial_point()
    step.setup_chain(np.random.default_rng(1), 5, 5)
    for i in range(10):
        if i == 5:
            step.stop_tuning()
        point, _ = step.step(point)


def many_models(table: Table, models: int, interpreted: bool) -> None:
    settings = pytensor.config.change_flags(**INTERPRETED) if interpreted else nullcontext()
    with settings:
        used = list(dropped(models))
    half = len(used) // 2
    counts = ", ".join(f"{name} {a}, then {b}" for name, (a, b) in count(used, half).items())
    growth = (used[-1][0] - used[half][0]) / max(len(used) - 1 - half, 1)
    kind = "interpreted" if interpreted else "compiled"
    table.row(kind, models, used[half][0], used[-1][0], growth, counts)


def dropped(models: int) -> Iterator[tuple[float, dict[str, int]]]:
    for _ in range(models):
        one(8)
        yield megabytes(), alive()


def count(used: list[tuple[float, dict[str, int]]], half: int) -> dict[str, tuple[int, int]]:
    return {name: (n, used[-1][1][name]) for name, n in used[half][1].items()}


def main() -> None:
    parser = arguments(__doc__, quick="2000 draws, two models, ten")
    parser.add_argument("--draws", type=int, default=1_000_000)
    parser.add_argument("--tune", type=int, default=1000)
    parser.add_argument("--models", type=int, default=200, help="compiled")
    parser.add_argument("--interpreted", type=int, default=200, help="models that are not compiled")
    args = parser.parse_args()
    if args.quick:
        args.draws, args.tune, args.models, args.interpreted = 2000, 200, 2, 10
    if args.draws:
        long_chain(args, args.draws, args.tune)
    if args.models or args.interpreted:
        columns = {"models": "<11", "dropped": "", "MB after half": ".0f", "at the end": ".0f"}
        columns |= {"MB/model": ".3f", "alive after half, and at the end": "<40"}
        table = Table(args, "", columns, keys=1, part="models")
        for models, interpreted in ((args.models, False), (args.interpreted, True)):
            if models:
                many_models(table, models, interpreted)


if __name__ == "__main__":
    main()
