"""Eight chains on a Dask cluster of two processes against `pm.sample(cores=2)`: the same seconds.

    python benchmarks/chains_on_dask.py [--quick] [--repeats 3] [--draws 1000]

The coal-mining model of the README. "call": from the call to the trace, with what each call
compiles, by the cache that the first ones have filled; the cluster is there before, as that of a
user is. "draws": `sampling_time` of the trace. The two alternate, "alike"
is whether their draws are the same, bit for bit; the last line is the ratio of the medians.
(Not `distributed.py`: beside a script of that name Dask could not be imported.)
"""

from __future__ import annotations

import logging
import time

from typing import Any

import numpy as np
import pymc as pm

from _results import Table, arguments

import pymc_lgm as lgm

from pymc_lgm.distributed.cluster import OF_THIS_MACHINE


def coal_mining() -> pm.Model:
    """The example of the README."""
    data = lgm.datasets.load_coal_mining(bins=112)
    with pm.Model() as model:
        mean = pm.Normal("mean", 0, 2)
        length = pm.InverseGamma("length", 3, 60)
        amplitude = pm.HalfNormal("amplitude", 1)
        cov = amplitude**2 * pm.gp.cov.Matern52(1, ls=length)
        gp = pm.gp.Latent(mean_func=pm.gp.mean.Constant(mean), cov_func=cov)
        f = gp.prior("f", data[["year_mid"]].to_numpy(), reparameterize=False)
        lgm.LogGaussianCox("disasters", f=f, observed=data["y"])
    return model


def main() -> None:
    parser = arguments(__doc__, quick="few draws, once")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--draws", type=int, default=1000, help="of a chain, after as many of tuning"
    )
    args = parser.parse_args()
    draws, repeats = (20, 1) if args.quick else (args.draws, args.repeats)
    import distributed

    logging.getLogger("pymc").setLevel(logging.ERROR)
    model = coal_mining()
    options: dict[str, Any] = {"random_seed": 1, "compute_convergence_checks": False}
    options |= {"model": model, "chains": 8, "progressbar": False}
    seconds: dict[str, list[tuple[float, float]]] = {"cores=2": [], "Dask": []}
    columns = {"run": "<7", "chains by": "<9", "call s": ".1f", "draws s": ".1f", "alike": ">3"}
    table = Table(args, f"8 chains of {draws} draws after as many", columns, keys=2)
    with (
        distributed.LocalCluster(n_workers=2, **OF_THIS_MACHINE) as cluster,
        distributed.Client(cluster) as client,
    ):
        calls = {
            "cores=2": lambda n: pm.sample(n, tune=n, cores=2, **options),
            "Dask": lambda n: lgm.distributed.sample(draws=n, tune=n, client=client, **options),
        }
        for call in calls.values():  # fills the cache, and lets the workers import
            call(10)
        for run in range(repeats):
            traces = {}
            for name, call in calls.items():
                began = time.perf_counter()
                traces[name] = call(draws)["posterior"]
                spent = time.perf_counter() - began
                seconds[name].append((spent, traces[name].attrs["sampling_time"]))
            one, other = (trace["f"].values for trace in traces.values())
            same = "yes" if np.array_equal(one, other) else "no"
            for name in calls:
                table.row(f"{run + 1}", name, *seconds[name][-1], same)
    here, there = (np.median(seconds[name], axis=0) for name in ("cores=2", "Dask"))
    call, drawing = (f"{ratio:.2f}" for ratio in there / here)
    table.row("medians", "ratio", call, drawing)


if __name__ == "__main__":
    main()
