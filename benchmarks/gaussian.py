"""Regression with normal noise, f integrated out by `pm.gp.Marginal`: ExactMarginal against NUTS.

    python benchmarks/gaussian.py [--quick] [--n 200 1000] [--samplers exact pymc]

Matern 5/2 on a line, three hyper-parameters, simulated data. NUTS is given fewer draws, since it
takes long: ``--nuts-draws`` of them after as many. ESS is ArviZ's bulk ESS, the smallest of the
hyper-parameters'; ESS/s per second of tuning, sampling and compilation.
"""

from __future__ import annotations

import itertools
import time

import arviz as az
import numpy as np
import pymc as pm

from _design import sampled
from _results import Table, arguments

import pymc_lgm as lgm


def regression(n: int) -> pm.Model:
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(0, n / 20, n))
    y = np.sin(x) + 0.5 * np.cos(3 * x) + 0.3 * rng.standard_normal(n)
    with pm.Model() as model:
        length, eta = pm.InverseGamma("length", 3, 3), pm.HalfNormal("eta", 2)
        gp = pm.gp.Marginal(cov_func=eta**2 * pm.gp.cov.Matern52(1, ls=length))
        gp.marginal_likelihood("y", x[:, None], y=y, sigma=pm.HalfNormal("sigma", 1))
    return model


def main() -> None:
    parser = arguments(__doc__, quick="50 rows, short chains")
    parser.add_argument("--n", type=int, nargs="*", default=[200])
    parser.add_argument("--samplers", nargs="*", default=["exact"], help="exact, pymc, nutpie")
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--nuts-draws", type=int, default=200)
    parser.add_argument("--chains", type=int, default=2)
    args = parser.parse_args()
    if args.quick:
        args.n, args.draws, args.nuts_draws = [50], 50, 50
    columns = {"n": "", "sampler": "<7", "R-hat": ".3f", "ESS": ".0f", "draws": "", "ops": ".2f"}
    columns |= {"s": ".0f", "ESS/s": ".2f", "posterior mean (sd)": "<19"}
    table = Table(args, "", columns, keys=2)
    for n, sampler in itertools.product(args.n, args.samplers):
        if table.has(n, sampler):
            continue
        begin = time.perf_counter()
        model, ours = regression(n), sampler == "exact"
        draws = args.draws if ours else args.nuts_draws
        how = {"step": lgm.ExactMarginal(model=model)} if ours else {"nuts_sampler": sampler}
        idata = sampled(model, draws, draws, args.chains, **how)
        seconds = time.perf_counter() - begin
        posterior = idata.posterior.to_dataset()
        shown = [f"{k} {float(v.mean()):.3f} ({float(v.std()):.3f})" for k, v in posterior.items()]
        ess = min(float(v) for v in az.ess(posterior).values())
        rhat = max(float(v) for v in az.rhat(posterior).values())
        ops = float(idata.sample_stats["cubic_ops"].mean()) if ours else np.nan
        cells = (rhat, ess, draws * args.chains, ops, seconds, ess / seconds, ", ".join(shown))
        table.row(n, sampler, *cells)


if __name__ == "__main__":
    main()
