"""Finnish pine saplings on a 32 × 32 grid, n = 1024: seconds an effective sample of theta.

    python benchmarks/finpines.py [--quick] [--draws 1000] [--tune 500]

Log-Gaussian Cox process, squared exponential covariance with Gamma priors on variance and
length-scale and a mean, all inferred; the default sampler, one chain on one core, full covariance.
Hensman, Matthews, Filippone and Ghahramani (2015), *MCMC for variationally sparse Gaussian
processes*, §5: 554 s an effective sample for full MCMC, 3.4 s with 225 inducing points, on the
machine of the time.
"""

from __future__ import annotations

import argparse

import numpy as np
import pymc as pm

from _design import machine

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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="8 × 8 cells, 200 draws")
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--tune", type=int, default=500)
    args = parser.parse_args()
    if args.quick:
        args.draws, args.tune = 200, 200
    print(machine())
    with pines(8 if args.quick else None) as model:
        idata = pm.sample(
            args.draws, tune=args.tune, chains=1, cores=1, random_seed=1, progressbar=False,
            quiet=True, compute_convergence_checks=False, discard_tuned_samples=False,
        )  # fmt: skip
    seconds = float(idata.posterior.attrs["sampling_time"])
    row = lgm.efficiency(idata, {"theta": THETA}).loc["theta"]
    stats = idata["sample_stats"]
    print(
        f"n = {model['f'].type.shape[0]}, {args.draws} draws after {args.tune}: {seconds:.0f} s, "
        f"ESS {row['ess_bulk']:.0f}, R-hat {row['r_hat']:.3f}, acceptance "
        f"{float(stats['theta_acceptance'].mean()):.2f}, {float(stats['cubic_ops'].mean()):.2f} "
        f"operations a draw\n"
        f"seconds an effective sample: {seconds / row['ess_bulk']:.2f}, tuning in it"
    )
    for name in THETA:
        values = idata.posterior[name].values
        print(f"{name:9}{values.mean():8.3f} ± {values.std():.3f}")


if __name__ == "__main__":
    main()
