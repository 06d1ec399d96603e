"""Seconds from `pm.sample()` to the first draw, with and without compiled code on disk.

    python benchmarks/first_draw.py [--quick] [--models coal inputs classes] [--repeats 3]

A process of its own for each: cold, with empty caches of PyTensor and of Numba, as after an
installation; warm, with what the cold one has left; and new, with what another of the models has
left, as for each model that a user writes. "coal" is the model of the README, "inputs" logistic
regression on ten inputs with a length-scale each, "classes" a softmax of three processes of one
input. One chain without tuning, so that the first call of the callback is the first draw. "import"
is what comes before: PyMC and this package.
"""

from __future__ import annotations

import multiprocessing
import os
import time

from tempfile import TemporaryDirectory
from typing import Any

from _results import Table, arguments


def coal() -> None:
    import pymc as pm

    import pymc_lgm as lgm

    data = lgm.datasets.load_coal_mining(bins=112)
    mean = pm.Normal("mean", 0, 2)
    length = pm.InverseGamma("length", 3, 60)
    amplitude = pm.HalfNormal("amplitude", 1)
    cov = amplitude**2 * pm.gp.cov.Matern52(1, ls=length)
    gp = pm.gp.Latent(mean_func=pm.gp.mean.Constant(mean), cov_func=cov)
    f = gp.prior("f", data[["year_mid"]].to_numpy(), reparameterize=False)
    lgm.LogGaussianCox("disasters", f=f, observed=data["y"])


def inputs() -> None:
    import numpy as np
    import pymc as pm

    import pymc_lgm as lgm

    rng = np.random.default_rng(0)
    X = rng.uniform(size=(100, 10))
    scale = pm.HalfNormal("scale", 2)
    length = pm.InverseGamma("length", 3, 3, shape=10)
    gp = pm.gp.Latent(cov_func=scale**2 * pm.gp.cov.ExpQuad(10, ls=length))
    f = gp.prior("f", X, reparameterize=False)
    lgm.Logistic("y", f=f, observed=(rng.uniform(size=100) < X[:, 0]).astype(int))


def classes() -> None:
    import numpy as np
    import pymc as pm

    import pymc_lgm as lgm

    rng = np.random.default_rng(0)
    t = np.sort(rng.uniform(0, 10, 100))
    logits = 2 * np.stack([np.sin(t), np.cos(0.5 * t), np.zeros(100)])
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=0)
    scale = pm.HalfNormal("scale", 1, shape=3)
    length = pm.InverseGamma("length", 3, 3, shape=3)
    f = []
    for k in range(3):
        cov = scale[k] ** 2 * pm.gp.cov.Matern52(1, ls=length[k])
        gp = pm.gp.Latent(cov_func=cov)
        f.append(gp.prior(f"f{k}", t[:, None], reparameterize=False))
    lgm.Softmax("y", f=f, observed=labels)


MODELS = {build.__name__: build for build in (coal, inputs, classes)}


def first_draw(name: str) -> tuple[float, float]:
    """Seconds of the imports, and from `pm.sample` to the first draw."""
    begin = time.perf_counter()
    import pymc as pm

    import pymc_lgm  # noqa: F401  its likelihoods call its sampler

    imported = time.perf_counter()
    seen: list[float] = []

    def callback(**_: Any) -> None:
        seen.append(time.perf_counter())

    with pm.Model():
        MODELS[name]()
        asked = time.perf_counter()
        pm.sample(2, tune=0, chains=1, cores=1, callback=callback, progressbar=False, quiet=True)
    return imported - begin, seen[0] - asked


def in_a_process(name: str, caches: str) -> tuple[float, float]:
    """`first_draw` with the caches in this folder."""
    os.environ["PYTENSOR_FLAGS"] = f"base_compiledir={caches}"
    os.environ["NUMBA_CACHE_DIR"] = caches
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(first_draw, (name,))


def main() -> None:
    parser = arguments(__doc__, quick="once, the first model")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    if args.quick:
        args.models, args.repeats = args.models[:1], 1
    columns = {"model": "<7", "run": "", "caches": "<6", "import s": ".1f", "first draw s": ".1f"}
    table = Table(args, "", columns, keys=3)
    for name, other in zip(args.models, [*args.models[1:], args.models[0]], strict=True):
        for repeat in range(1, args.repeats + 1):
            if table.has(name, repeat):
                continue
            with TemporaryDirectory() as own, TemporaryDirectory() as others:
                table.row(name, repeat, "cold", *in_a_process(name, own))
                table.row(name, repeat, "warm", *in_a_process(name, own))
                if other != name:
                    in_a_process(other, others)
                    table.row(name, repeat, "new", *in_a_process(name, others))


if __name__ == "__main__":
    main()
