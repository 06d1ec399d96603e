"""Finnish pine saplings on a 32 × 32 grid, n = 1024: seconds an effective sample of theta.

    python benchmarks/finpines.py [--quick] [--draws 1000] [--tune 500]

Log-Gaussian Cox process, squared exponential covariance with Gamma priors on variance and
length-scale and a mean, all inferred; the default sampler, one chain on one core, full covariance.
Hensman, Matthews, Filippone and Ghahramani (2015), *MCMC for variationally sparse Gaussian
processes*, §5: 554 s an effective sample for full MCMC, 3.4 s with 225 inducing points, on the
machine of the time.
"""

from __future__ import annotations

import numpy as np
import pymc as pm

from _results import Table, arguments

import pymc_lgm as lgm

THETA = ["mean", "variance", "length"]


def pines(rows: int | None) -> pm.Model:
    table = lgm.datasets.load_finpines()
    if rows is not None:
        table = table[(table["ix"] <= rows) & (table["iy"] <= rows)]
    X = table[["x1", "x2"]].to_numpy(float)
    with pm.Model() as model:
        mean = pm.Normal("mean", np.log(table["y"].mean()), 2.0)
        variance = pm.Gamma("variance", 2.0, 1.0)
        length = pm.Gamma("length", 2.0, 1.0)
        cov = variance * pm.gp.cov.ExpQuad(2, ls=length)
        gp = pm.gp.Latent(mean_func=pm.gp.mean.Constant(mean), cov_func=cov)
        f = gp.prior("f", X, reparameterize=False, jitter=1e-6)
        lgm.LogGaussianCox("y", f=f, observed=table["y"].to_numpy(int))
    return model


def main() -> None:
    parser = arguments(__doc__, quick="8 × 8 cells, 200 draws")
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--tune", type=int, default=500)
    args = parser.parse_args()
    if args.quick:
        args.draws, args.tune = 200, 200
    with pines(8 if args.quick else None) as model:
        idata = pm.sample(
            args.draws, tune=args.tune, chains=1, cores=1, random_seed=1, progressbar=False,
            quiet=True, compute_convergence_checks=False, discard_tuned_samples=False,
        )  # fmt: skip
    seconds = float(idata.posterior.attrs["sampling_time"])
    row = lgm.efficiency(idata, {"theta": THETA}).loc["theta"]
    stats = idata["sample_stats"]
    columns = {"n": "", "draws": "", "tuning": "", "s": ".0f", "ESS": ".0f", "s/ESS": ".2f"}
    columns |= {"accept": ".2f", "ops/draw": ".2f"} | {f"{name} (sd)": ">14" for name in THETA}
    table = Table(args, "", columns, keys=3)
    accept, ops = (float(stats[name].mean()) for name in ("theta_acceptance", "cubic_ops"))
    ess, posterior = row["ess_bulk"], [idata.posterior[name].values for name in THETA]
    shown = [f"{values.mean():.3f} ({values.std():.3f})" for values in posterior]
    n = model["f"].type.shape[0]
    table.row(n, args.draws, args.tune, seconds, ess, seconds / ess, accept, ops, *shown)


if __name__ == "__main__":
    main()
