"""Models that Bambi wrote: this package's default sampler beside NUTS, compilation included.

    python benchmarks/models_of_bambi.py [--quick] [--models "random slopes" "500 groups"]

It needs Bambi, and nutpie for its rows: `pip install bambi nutpie`. Data are simulated. Each model
is built by Bambi, once for each sampler, with Bambi's own priors; all sample the PyMC model that it
made, in one process. "CPU, s" is all of a run, of all its threads: reading and compiling the model,
tuning and sampling. CPU seconds, so that other work on the machine matters little. PyTensor
keeps compiled code on disk, so the first run of a model may take longer. ESS is ArviZ's bulk ESS,
the smallest over the standard deviations, length-scales and common effects; "ESS/s" is per second
of these. "!": R-hat above 1.05, so the ESS means little.
"""

from __future__ import annotations

import importlib.util
import sys
import time

from typing import Any

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm

from _results import Table, arguments

import pymc_lgm as lgm

SAMPLERS = ("default", "nutpie", "pymc")
R_HAT = 1.05
# Name -> formula, family, groups, and what else bambi.Model is given.
MODELS: dict[str, tuple[str, str, int, dict[str, Any]]] = {
    "random slopes": ("normal ~ x + (x|g)", "gaussian", 60, {}),
    "centered": ("normal ~ x + (x|g)", "gaussian", 60, {"noncentered": False}),
    "binomial groups": ("p(hits, tries) ~ x + (1|g)", "binomial", 60, {}),
    "Bernoulli, crossed": ("binary ~ x + (1|g) + (1|h)", "bernoulli", 60, {}),
    "hsgp": ("count ~ x + hsgp(t, m=20, c=2)", "poisson", 60, {}),
    "500 groups": ("count ~ x + (x|g) + (1|h)", "poisson", 500, {}),
}


def simulated(groups: int, each: int = 8) -> pd.DataFrame:
    """Rows of groups with correlated levels and slopes, crossed with twenty others."""
    rng = np.random.default_rng(groups)
    g, n = np.repeat(np.arange(groups), each), groups * each
    h, x, t = rng.integers(0, 20, n), rng.standard_normal(n), np.linspace(0.0, 1.0, n)
    u = rng.multivariate_normal([0.0, 0.0], [[0.3, 0.1], [0.1, 0.1]], groups)
    eta = 0.3 + 0.4 * x + u[g, 0] + u[g, 1] * x + 0.3 * rng.standard_normal(20)[h]
    eta = eta + 0.5 * np.sin(6.0 * t)
    share = 1.0 / (1.0 + np.exp(-eta))
    columns = {
        "g": g.astype(str), "h": h.astype(str), "x": x, "t": t, "tries": np.full(n, 10),
        "normal": rng.normal(eta, 0.8), "count": rng.poisson(np.exp(eta)),
        "binary": rng.binomial(1, share), "hits": rng.binomial(10, share),
    }  # fmt: skip
    return pd.DataFrame(columns)


def main() -> None:
    parser = arguments(__doc__, quick="one small model, short chains")
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--samplers", nargs="+", default=list(SAMPLERS), choices=SAMPLERS)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--tune", type=int, default=1000)
    args = parser.parse_args()
    if args.quick:
        args.models, args.draws, args.tune = ["binomial groups"], 50, 50
    if importlib.util.find_spec("bambi") is None:
        print("Bambi is not installed: pip install bambi")
        return
    import bambi

    columns = {
        "model": "<20", "sampler": "<8", "latent": "d", "CPU, s": ".1f",
        "ESS": ".0f", "R-hat": ".3f", "ESS/s": ".1f",
    }  # fmt: skip
    title = f"Models of Bambi, 2 chains, {args.tune} + {args.draws} draws, CPU seconds"
    table = Table(args, title, columns, keys=2)
    for name in args.models:
        formula, family, groups, options = MODELS[name]
        data = simulated(groups)
        for sampler in args.samplers:
            if table.has(name, sampler):
                continue
            if sampler == "nutpie" and importlib.util.find_spec(sampler) is None:
                print("nutpie is not installed", file=sys.stderr)
                continue
            model = bambi.Model(formula, data, family=family, **options)
            model.build()
            pymc_model = model.backend.model
            effects = sum(int(np.prod(rv.shape.eval())) for rv in pymc_model.free_RVs if rv.ndim)
            begin = time.process_time()
            chosen: dict[str, Any] = {"nuts_sampler": sampler}
            with pymc_model:
                if sampler == "default":
                    chosen = {"step": lgm.PseudoMarginal()}
                try:
                    idata = pm.sample(
                        args.draws, tune=args.tune, chains=2, cores=1, random_seed=1,
                        progressbar=False, **chosen,
                    )  # fmt: skip
                except ValueError as error:  # nutpie 0.16 takes the commas in a name for dims
                    print(f"{name}, {sampler}: {error}", file=sys.stderr)
                    continue
            total = time.process_time() - begin
            names = [v.name for v in pymc_model.free_RVs if not v.ndim]
            ess = float(az.ess(idata, var_names=names).to_dataset().to_array().min())
            r_hat = float(az.rhat(idata, var_names=names).to_dataset().to_array().max())
            table.row(
                name, sampler, effects, total, (ess, r_hat > R_HAT), r_hat,
                ess / total,
            )  # fmt: skip


if __name__ == "__main__":
    main()
