"""Seconds from `pm.sample()` to the first draw, with and without compiled code on disk.

    python benchmarks/first_draw.py [--quick] [--repeats 3]

A process of its own for each: cold, with an empty compilation cache, then warm, with what the cold
one left. The coal-mining model of the README, one chain, without tuning, so that the first call of
the callback is the first draw. "import" is what comes before: PyMC and this package.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
import time

from typing import Any


def first_draw(_: int) -> tuple[float, float]:
    """Seconds of the imports, and from `pm.sample` to the first draw."""
    begin = time.perf_counter()
    import pymc as pm

    import pymc_lgm as lgm

    imported = time.perf_counter()
    data = lgm.datasets.load_coal_mining(bins=112)
    seen: list[float] = []

    def callback(**_: Any) -> None:
        seen.append(time.perf_counter())

    with pm.Model():
        mean = pm.Normal("mean", 0, 2)
        length = pm.InverseGamma("length", 3, 60)
        amplitude = pm.HalfNormal("amplitude", 1)
        cov = amplitude**2 * pm.gp.cov.Matern52(1, ls=length)
        gp = pm.gp.Latent(mean_func=pm.gp.mean.Constant(mean), cov_func=cov)
        f = gp.prior("f", data[["year_mid"]].to_numpy(), reparameterize=False)
        lgm.LogGaussianCox("disasters", f=f, observed=data["y"])
        asked = time.perf_counter()
        pm.sample(2, tune=0, chains=1, cores=1, callback=callback, progressbar=False, quiet=True)
    return imported - begin, seen[0] - asked


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="once")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    print(f"{'':6}{'import s':>10}{'first draw s':>14}")
    for _ in range(1 if args.quick else args.repeats):
        with tempfile.TemporaryDirectory() as cache:
            os.environ["PYTENSOR_FLAGS"] = f"base_compiledir={cache}"
            for name in ("cold", "warm"):
                with context.Pool(1) as pool:
                    imports, first = pool.apply(first_draw, (0,))
                print(f"{name:6}{imports:10.1f}{first:14.1f}", flush=True)


if __name__ == "__main__":
    main()
