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

from pytensor.compile.executor import Function
from pytensor.compile.mode import Mode

import pymc_lgm as lgm

INTERPRETED = {"mode": Mode(linker="py", optimizer="fast_compile")}
KINDS = (pm.Model, Function, lgm.LatentGaussianModel, lgm.PseudoMarginal, np.ndarray)


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


def long_chain(draws: int, tune: int, tenths: int = 10) -> None:
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
    print(f"n = 50, {draws} draws after {tune} of tuning")
    print(f"{'tenth':>5}{'MB':>9}{'ms/draw':>9}{'accept theta':>14}{'f':>7}{'ops':>7}{'lost':>7}")
    for tenth in range(tenths):
        for row in kept[tenth]:
            point, [stats] = step.step(point)
            row[:2] = step.lgm.theta_of(point)
            row[2:] = [float(stats[name]) for name in names]
        used.append(megabytes())
        means = np.nanmean(kept[tenth, :, 2:], axis=0)
        seconds, begin = time.perf_counter() - begin, time.perf_counter()
        print(
            f"{tenth + 1:5}{used[-1]:9.1f}{1e3 * seconds / len(kept[tenth]):9.2f}{means[0]:14.3f}"
            f"{means[1]:7.3f}{means[2]:7.2f}{means[3]:7.4f}",
            flush=True,
        )
    growth = 1e3 * (used[-1] - used[1]) / (draws * (1 - 1 / tenths))
    print(f"growth from the first tenth to the last: {growth:.4f} kB a draw")
    for j, name in enumerate(step.lgm.theta_names):
        (m1, e1), (m2, e2) = (moments(kept[k, :, j]) for k in (0, -1))
        z = (m2 - m1) / np.hypot(e1, e2)
        print(
            f"{name}: mean {m1[0]:.4f}, then {m2[0]:.4f} ({z[0]:+.1f}); "
            f"sd {m1[1]:.4f}, then {m2[1]:.4f} ({z[1]:+.1f})"
        )


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


def many_models(models: int, interpreted: bool) -> None:
    settings = pytensor.config.change_flags(**INTERPRETED) if interpreted else nullcontext()
    with settings:
        used = list(dropped(models))
    half = len(used) // 2
    counts = ", ".join(f"{name} {a}, then {b}" for name, (a, b) in count(used, half).items())
    growth = (used[-1][0] - used[half][0]) / max(len(used) - 1 - half, 1)
    print(
        f"{models} models dropped, {'interpreted' if interpreted else 'compiled'}: "
        f"{used[half][0]:.0f} MB after half, {used[-1][0]:.0f} at the end, "
        f"{growth:.3f} MB a model\n  alive after half and at the end: {counts}",
        flush=True,
    )


def dropped(models: int) -> Iterator[tuple[float, dict[str, int]]]:
    for _ in range(models):
        one(8)
        yield megabytes(), alive()


def count(used: list[tuple[float, dict[str, int]]], half: int) -> dict[str, tuple[int, int]]:
    return {name: (n, used[-1][1][name]) for name, n in used[half][1].items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="2000 draws, two models, ten")
    parser.add_argument("--draws", type=int, default=1_000_000)
    parser.add_argument("--tune", type=int, default=1000)
    parser.add_argument("--models", type=int, default=200, help="compiled")
    parser.add_argument("--interpreted", type=int, default=200, help="models that are not compiled")
    args = parser.parse_args()
    if args.quick:
        args.draws, args.tune, args.models, args.interpreted = 2000, 200, 2, 10
    if args.draws:
        long_chain(args.draws, args.tune)
    if args.models:
        many_models(args.models, interpreted=False)
    if args.interpreted:
        many_models(args.interpreted, interpreted=True)


if __name__ == "__main__":
    main()
