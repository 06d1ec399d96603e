"""Pima, 768 × 8, isotropic: convergence from the prior, and agreement with two other samplers.

    python benchmarks/pima.py [--quick] [--grid 30] [--whitened 60000] [--nuts 500]

Four chains of the default sampler start from the prior: R-hat of theta after 250, 500 and 1000
draws, 1000 of tuning before. Then the posterior of theta by quadrature, with an importance estimate
of the evidence of 64 draws at each point of a grid, which takes a minute; and beside long runs of
whitened Metropolis and of PyMC's NUTS on the whitened model, from half an hour to hours each.
Differences of means and standard deviations in Monte Carlo standard errors.
"""

from __future__ import annotations

from functools import partial

import arviz as az
import numpy as np
import pymc as pm

from _design import classification, standardized
from _results import Table, arguments

import pymc_lgm as lgm

from pymc_lgm.approximations.ep import ep
from pymc_lgm.approximations.importance import Coordinates, Proposal, Scheme, importance_sample
from pymc_lgm.state import LikelihoodAt

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


def compare(table: Table, name: str, ours: az.Dataset, theirs: az.Dataset) -> None:
    for variable in THETA:
        x, y = ours[variable], theirs[variable]
        for statistic, of in (("mean", np.mean), ("sd", np.std)):
            errors = [float(az.mcse(z.to_dataset(), method=statistic)[variable]) for z in (x, y)]
            ours_is, theirs_is = (float(of(z.values)) for z in (x, y))
            z = (ours_is - theirs_is) / np.hypot(*errors)
            pairs = (ours_is, errors[0], theirs_is, errors[1])
            table.row(name, f"log {variable}", statistic, *pairs, z)


def quadrature(table: Table, model: pm.Model, ours: az.Dataset, points: int) -> None:
    """Posterior of theta on a grid of 5 standard deviations about the mean."""
    reader = lgm.read(model)
    rng, scheme = np.random.default_rng(0), Scheme(64)
    axes = []
    for variable in THETA:
        mean, sd = float(ours[variable].mean()), float(ours[variable].std())
        axes.append(np.linspace(mean - 5 * sd, mean + 5 * sd, points))
    log_posterior = np.full((points, points), -np.inf)
    for at in np.ndindex(points, points):
        theta = np.array([axis[i] for axis, i in zip(axes, at, strict=True)])
        prior = reader.prior(theta)
        q = None if prior is None else ep(LikelihoodAt(reader, theta), prior)
        if q is not None and q.prior.is_proper:
            proposal = Proposal(q)
            draws = importance_sample(
                proposal,
                partial(reader.log_likelihoods, theta=theta),
                Coordinates.fresh(rng, proposal, scheme),
                scheme,
            )
            log_posterior[at] = draws.log_evidence + reader.log_prior(theta)
    p = np.exp(log_posterior - log_posterior.max())
    for k, (variable, axis) in enumerate(zip(THETA, axes, strict=True)):
        marginal = p.sum(axis=1 - k) / p.sum()
        mean = marginal @ axis
        sd = np.sqrt(marginal @ (axis - mean) ** 2)
        for statistic, of, exact in (("mean", np.mean, mean), ("sd", np.std, sd)):
            estimate = float(of(ours[variable].values))
            error = float(az.mcse(ours[variable].to_dataset(), method=statistic)[variable])
            apart = (estimate - exact) / error
            table.row("grid", f"log {variable}", statistic, estimate, error, exact, None, apart)


def main() -> None:
    parser = arguments(__doc__, quick="the first 100 rows, 250 draws")
    parser.add_argument("--grid", type=int, default=0, help="points a side of the grid")
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
    columns = {"draws": "", "sigma R-hat": ".4f", "sigma ESS": ".0f"}
    columns |= {"length R-hat": ".4f", "length ESS": ".0f"}
    table = Table(args, f"4 chains from the prior, {draws} draws of tuning", columns, keys=1)
    for count in (250, 500, 1000):
        if count <= draws:
            first = ours.isel(draw=slice(0, count))
            rhat, ess = az.rhat(first), az.ess(first)
            table.row(count, *(float(of[v]) for v in THETA for of in (rhat, ess)))
    title = f"4 chains of {draws} draws after {draws}"
    efficiency = lgm.efficiency(idata, {"theta": THETA, "f": "f"}).T
    columns = {"statistic": "<17"} | dict.fromkeys(efficiency.columns, ".3f")
    table = Table(args, title, columns, keys=1, part="efficiency")
    for name, values in efficiency.iterrows():
        table.row(name, *values)
    columns = {"beside": "<8", "of": "<10", "moment": "<6", "default": ".4f", "±": ".4f"}
    columns |= {"the other": ".4f", "its ±": ".4f", "standard errors": "+.1f"}
    table = Table(args, title, columns, keys=3, part="compared")
    if args.grid:
        quadrature(table, model, ours, args.grid)
    if args.whitened:
        with model:
            other = pm.sample(
                args.whitened,
                tune=2000,
                step=lgm.papers.WhitenedMetropolis(latent_repeats=2),
                var_names=THETA,
                **settings | {"chains": 2},
            )
        compare(table, "whitened", ours, log_theta(other))
    if args.nuts:
        with whitened_in_the_model(X, y):
            other = pm.sample(
                args.nuts, tune=args.nuts, nuts_sampler="pymc", **settings | {"chains": 2}
            )
        compare(table, "NUTS", ours, log_theta(other))


if __name__ == "__main__":
    main()
