"""Pima, 768 × 8, isotropic: convergence from the prior, and agreement with two other samplers.

    python benchmarks/pima.py [--quick] [--whitened 60000] [--nuts 500]

Four chains of the default sampler start from the prior: R-hat of theta after 250, 500 and 1000
draws, 1000 of tuning before. Then the posterior of theta beside long runs of whitened Metropolis
and of PyMC's NUTS on the whitened model: differences of means and standard deviations in standard
errors. Each of the two takes from half an hour to hours, so they run only when asked for.
"""

from __future__ import annotations

import argparse

import arviz as az
import numpy as np
import pymc as pm

from _design import classification, standardized

import pymc_lgm as lgm

THETA = ["sigma", "length"]


def data(rows: int | None) -> tuple[np.ndarray, np.ndarray]:
    table = lgm.datasets.load_pima()[:rows]
    return standardized(table.drop(columns="y").to_numpy(float)), table["y"].to_numpy(int)


def whitened_in_the_model(X: np.ndarray, y: np.ndarray) -> pm.Model:
    """The same posterior in the form that NUTS needs."""
    with pm.Model() as model:
        scale = pm.Gamma("sigma", 1.1, 0.1)
        length = pm.Gamma("length", 1.0, 1 / np.sqrt(X.shape[1]))
        gp = pm.gp.Latent(cov_func=scale * pm.gp.cov.ExpQuad(X.shape[1], ls=length))
        f = gp.prior("f", X, jitter=1e-6)
        pm.Potential("y", (pm.logcdf(pm.Normal.dist(), (2 * y - 1) * f)).sum())
    return model


def log_theta(idata: az.DataTree) -> az.Dataset:
    return np.log(idata.posterior.to_dataset()[THETA])


def compare(name: str, ours: az.Dataset, theirs: az.Dataset) -> None:
    for variable in THETA:
        x, y = ours[variable], theirs[variable]
        for statistic, of in (("mean", np.mean), ("sd", np.std)):
            errors = [float(az.mcse(z.to_dataset(), method=statistic)[variable]) for z in (x, y)]
            z = (float(of(x.values)) - float(of(y.values))) / np.hypot(*errors)
            left, right = (
                f"{float(of(values.values)):8.4f} ± {error:.4f}"
                for values, error in zip((x, y), errors, strict=True)
            )
            print(
                f"log {variable:7}{statistic:5} default {left}   {name} {right}   "
                f"{z:+.1f} standard errors",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="the first 100 rows, 250 draws")
    parser.add_argument("--whitened", type=int, default=0, help="draws of whitened Metropolis")
    parser.add_argument("--nuts", type=int, default=0, help="draws of NUTS, as many of tuning")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    X, y = data(100 if args.quick else None)
    draws = 250 if args.quick else 1000
    settings = {"chains": 4, "cores": 2, "random_seed": args.seed, "progressbar": False}
    model = classification(X, y, ard=False)
    with model:
        idata = pm.sample(draws, tune=draws, initvals=dict.fromkeys(THETA, "prior"), **settings)
    ours = log_theta(idata)
    for count in (250, 500, 1000):
        if count <= draws:
            first = ours.isel(draw=slice(0, count))
            rhat, ess = az.rhat(first), az.ess(first)
            print(
                f"{count:5} draws  "
                + "  ".join(
                    f"{v}: R-hat {float(rhat[v]):.4f} ESS {float(ess[v]):.0f}" for v in THETA
                )
            )
    print(lgm.efficiency(idata, {"theta": THETA, "f": "f"}).T.round(3).to_string())
    if args.whitened:
        with model:
            other = pm.sample(
                args.whitened,
                tune=2000,
                step=lgm.WhitenedMetropolis(latent_repeats=2),
                **settings | {"chains": 2},
            )
        compare("whitened", ours, log_theta(other))
    if args.nuts:
        with whitened_in_the_model(X, y):
            other = pm.sample(
                args.nuts, tune=args.nuts, nuts_sampler="pymc", **settings | {"chains": 2}
            )
        compare("NUTS", ours, log_theta(other))


if __name__ == "__main__":
    main()
