"""The mean of a process as a hyper-parameter, and integrated out with it.

    python benchmarks/collapsed.py [--quick] [--problems coal redwood linear additive]
    python benchmarks/collapsed.py --problems coal --sampler ASIS
    python benchmarks/collapsed.py --problems linear --sampler ASIS --latent-move slice

A constant or linear mean with normal coefficients is Gaussian given the covariance, as f is, and
so are a level and coefficients beside f and effects ("additive").
"collapsed" is the default: they are integrated out, and drawn back given f. "kept" leaves them
among the hyper-parameters, by the same prior under another name. (A sweep that was asked for a
slice keeps them by itself; here it is told what is latent.) ESS is ArviZ's bulk ESS, the
smallest over all coefficients and hyper-parameters, and over f ("f"); "s" are seconds of tuning
and sampling.
"""

from __future__ import annotations

import time

from typing import Any

import arviz as az
import numpy as np
import pymc as pm

from _design import sampled
from _results import Table, arguments
from linear_predictors import simulated

import pymc_lgm as lgm


def coefficient(name: str, kept: bool, **kwargs: int) -> Any:
    """N(0, 2²). That a skew normal variable has no skewness is not read, and so it is kept."""
    if kept:
        return pm.SkewNormal(name, mu=0, sigma=2, alpha=0, **kwargs)
    return pm.Normal(name, 0, 2, **kwargs)


def covariance(d: int) -> pm.gp.cov.Covariance:
    scale, length = pm.HalfNormal("scale", 1), pm.InverseGamma("length", 3, 30 if d == 1 else 1)
    return scale**2 * pm.gp.cov.Matern52(d, ls=length)


def coal(kept: bool) -> list[str]:
    data = lgm.datasets.load_coal_mining(bins=112)
    mean = pm.gp.mean.Constant(coefficient("mean", kept))
    gp = pm.gp.Latent(mean_func=mean, cov_func=covariance(1))
    f = gp.prior("f", data["year_mid"].to_numpy()[:, None], reparameterize=False)
    lgm.LogGaussianCox("y", f=f, observed=data["y"].to_numpy())
    return ["mean"]


def redwood(kept: bool) -> list[str]:
    data = lgm.datasets.load_redwood()
    X, y = data[["x1", "x2"]].to_numpy()[::2], data["y"].to_numpy()[::2]
    mean = pm.gp.mean.Constant(coefficient("mean", kept))
    f = pm.gp.Latent(mean_func=mean, cov_func=covariance(2)).prior(
        "f", X, reparameterize=False, jitter=1e-6
    )
    lgm.LogGaussianCox("y", f=f, observed=y)
    return ["mean"]


def linear(kept: bool) -> list[str]:
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (150, 2))
    mean = pm.gp.mean.Linear(coefficient("slope", kept, shape=2), coefficient("mean", kept))
    f = pm.gp.Latent(mean_func=mean, cov_func=covariance(2)).prior(
        "f", X, reparameterize=False, jitter=1e-6
    )
    eta = 0.5 + X @ [1.0, -2.0] + np.sin(6 * X[:, 0])
    lgm.Logistic("y", f=f, observed=(rng.logistic(size=150) < eta).astype(int))
    return ["slope", "mean"]


def additive(kept: bool) -> list[str]:
    """Counts of `linear_predictors`: a level, four coefficients, effects of 30 subjects."""
    data = simulated(200, 0)
    spread = pm.HalfNormal("spread", 1)
    b = pm.Normal("b", 0, spread, shape=30)
    mean, beta = coefficient("mean", kept), coefficient("slope", kept, shape=4)
    f = pm.gp.Latent(cov_func=covariance(1)).prior("f", data["t"], reparameterize=False)
    eta = mean + pm.math.dot(data["X"], beta) + b[data["subject"]] + f
    pm.Poisson("y", pm.math.exp(eta), observed=data["y"])
    return ["slope", "mean", "spread"]


def integrating_out(sampler: type[Any]) -> type[Any]:
    """The sampler, with coefficients integrated out whatever it would do by itself."""
    always = property(lambda self: True, lambda self, chosen: None)
    return type(sampler.__name__, (sampler,), {"collapses": always})


PROBLEMS = {build.__name__: build for build in (coal, redwood, linear, additive)}


def main() -> None:
    parser = arguments(__doc__, quick="short chains, one seed")
    parser.add_argument("--problems", nargs="+", choices=PROBLEMS, default=list(PROBLEMS))
    parser.add_argument("--sampler", default="PseudoMarginal", help="another: ASIS, say")
    parser.add_argument("--latent-move", help="an option of that sampler")
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--chains", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    options = {"latent_move": args.latent_move} if args.latent_move else {}
    draws, seeds = (50, 1) if args.quick else (args.draws, args.seeds)
    columns = {"problem": "<8", "mean": "<9", "p": "", "R-hat": ".3f", "ESS": ".0f", "f": ".0f"}
    title = f"{args.sampler}: {args.chains} chains of {draws} draws after {draws}, medians of seeds"
    table = Table(args, title, columns | {"ops/draw": ".2f", "ms": ".2f", "s": ".1f"}, keys=2)
    for name in args.problems:
        for how in ("kept", "collapsed"):
            if table.has(name, how):
                continue
            rows = []
            for seed in range(seeds):
                with pm.Model() as model:
                    coefficients = PROBLEMS[name](how == "kept")
                    step = integrating_out(getattr(lgm, args.sampler))(**options)
                p, begin = step.lgm.p, time.perf_counter()
                idata = sampled(model, draws, draws, args.chains, seed=seed, step=step)
                seconds = time.perf_counter() - begin
                f = idata.posterior.to_dataset()[["f"]]
                posterior = idata.posterior.to_dataset()[[*coefficients, "scale", "length"]]
                rows.append(
                    [
                        float(az.rhat(posterior).to_array().max()),
                        float(az.ess(posterior).to_array().min()),
                        float(az.ess(f).to_array().min()),
                        float(idata.sample_stats["cubic_ops"].mean()),
                        1e3 * seconds / (2 * args.chains * draws),
                        seconds,
                    ]
                )
            table.row(name, how, p, *np.median(rows, axis=0))


if __name__ == "__main__":
    main()
