"""Whether runs of the default sampler, tuning included, end in the posterior, on every likelihood.

    python benchmarks/calibrate.py [--quick] [--models logistic probit] [--replicates 500]
    python benchmarks/calibrate.py --figure docs/figures/calibration.png
    python benchmarks/calibrate.py --models effects two_processes mean_and_noise classes

Simulation-based calibration (Talts et al. 2018) of what `pm.sample()` runs: a Gaussian process at n
points of the unit interval, with a mean, a length-scale and an amplitude that are unknown, or one
of the models in `GENERAL`; theta, f and y are drawn from the model, and the run's 1000 draws of
tuning and all others are made anew for each y. Printed: replicates, the p-value of uniform ranks of
all functions together (Bonferroni) and the smallest, the median of the least effective draws of a
run, seconds a replicate.
"""

from __future__ import annotations

import math
import time

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm

from _results import Table, arguments

import pymc_lgm as lgm

LIKELIHOODS = (
    "logistic",
    "probit",
    "log_gaussian_cox",
    "copula_volatility",
    "ordinal_probit",
    "student_t",
    "negative_binomial",
)
BY_PYMC = ("student_t", "negative_binomial", "effects", "two_processes", "mean_and_noise", "walk")
"""Whose likelihood is PyMC's: it does not choose our sampler by itself."""
KINDS = ("latent variables", "log-likelihood", "hyper-parameters")


def kind_of(name: str) -> str:
    """Which kind a test function is; hyper-parameters are numbers here."""
    if name.startswith("log_likelihood"):
        return "log-likelihood"
    return "latent variables" if "[" in name else "hyper-parameters"


def model_of(likelihood: str, n: int) -> pm.Model:
    """The model whose prior draws are fitted; its own observations do not matter."""
    if likelihood in GENERAL:
        with pm.Model() as model:
            reals = likelihood == "mean_and_noise"
            data = pm.Data("data", np.zeros(n, dtype="float64" if reals else "int64"))
            GENERAL[likelihood](n, data)
        return model
    X = np.linspace(0.0, 1.0, n)[:, None]
    with pm.Model() as model:
        mean = pm.Normal("mean", 0.3, 0.5)
        length = pm.LogNormal("length", np.log(0.3), 0.5)
        amplitude = pm.LogNormal("amplitude", 0.0, 0.5)
        gp = pm.gp.Latent(
            mean_func=pm.gp.mean.Constant(mean),
            cov_func=amplitude**2 * pm.gp.cov.Matern52(1, ls=length),
        )
        f = gp.prior("f", X, reparameterize=False, jitter=1e-6)
        reals = likelihood in ("copula_volatility", "student_t")
        data = pm.Data("data", np.zeros(n, dtype="float64" if reals else "int64"))
        if likelihood == "logistic":
            lgm.Logistic("y", f=f, observed=data)
        elif likelihood == "probit":
            lgm.Probit("y", f=f, observed=data)
        elif likelihood == "log_gaussian_cox":
            lgm.LogGaussianCox("y", f=f, observed=data)
        elif likelihood == "copula_volatility":
            lgm.likelihoods.CopulaVolatility("y", f=f, observed=data)
        elif likelihood == "ordinal_probit":
            noise = pm.LogNormal("noise", -0.5, 0.3)
            cuts = [-0.5, 0.3, 1.0]
            lgm.OrdinalProbit("y", f=f, cutpoints=cuts, noise=noise, observed=data)
        elif likelihood == "student_t":
            sigma = pm.LogNormal("sigma", -0.7, 0.4)
            pm.StudentT("y", nu=4, mu=f, sigma=sigma, observed=data)
        else:
            alpha = pm.LogNormal("alpha", 0.7, 0.4)
            mu = pm.math.exp(f)
            pm.NegativeBinomial("y", mu=mu, alpha=alpha, observed=data)
    return model


def process(name: str, n: int, length: float = 0.3) -> Any:
    """A process of mean 0 at n points of the unit interval."""
    ls = pm.LogNormal(f"length_{name}", np.log(length), 0.5)
    amplitude = pm.LogNormal(f"amplitude_{name}", -0.3, 0.4)
    gp = pm.gp.Latent(cov_func=amplitude**2 * pm.gp.cov.Matern52(1, ls=ls))
    return gp.prior(name, np.linspace(0.0, 1.0, n)[:, None], reparameterize=False, jitter=1e-6)


def effects(n: int, data: Any) -> None:
    """A process, a level, and six groups with effects of one unknown variance."""
    sd, level = pm.LogNormal("sd", -0.5, 0.4), pm.Normal("level", 0.3, 0.5)
    group = pm.Normal("group", 0.0, sd, shape=6)
    logit_p = process("f", n) + level + group[np.arange(n) % 6]
    pm.Bernoulli("y", logit_p=logit_p, observed=data)


def two_processes(n: int, data: Any) -> None:
    """Counts by the sum of a short and of a long process."""
    eta = 0.5 + process("f", n, 0.1) + process("g", n, 0.5)
    pm.Poisson("y", pm.math.exp(eta), observed=data)


def mean_and_noise(n: int, data: Any) -> None:
    """A process for the mean, another for the logarithm of the noise."""
    f, g = process("f", n), process("g", n)
    pm.Normal("y", f, pm.math.exp(g - 1.0), observed=data)


def classes(n: int, data: Any) -> None:
    """Three classes, a process each."""
    lgm.Softmax("y", f=[process(f"f_{k}", n) for k in "abc"], observed=data)


def features(n: int, data: Any) -> None:
    """Fifteen random features of a squared exponential."""
    ls, amplitude = pm.LogNormal("length", np.log(0.3), 0.5), pm.LogNormal("amplitude", 0.0, 0.4)
    gp = lgm.papers.RandomFeatures(15, cov_func=amplitude**2 * pm.gp.cov.ExpQuad(1, ls=ls))
    lgm.Logistic("y", f=gp.prior("f", np.linspace(0.0, 1.0, n)[:, None]), observed=data)


def walk(n: int, data: Any) -> None:
    """Counts by a random walk."""
    sigma, start = pm.LogNormal("sigma", -1.5, 0.5), pm.Normal.dist(0.5, 0.5)
    f = pm.GaussianRandomWalk("f", sigma=sigma, init_dist=start, steps=n - 1)
    lgm.LogGaussianCox("y", f=f, observed=data)


GENERAL = {
    build.__name__: build
    for build in (effects, two_processes, mean_and_noise, classes, features, walk)
}
"""Models of the general form that PyMC can draw from. (It draws no `pm.ICAR`.)"""


def within(minutes: float) -> Any:
    """A map that stops when the time is over: replicates are independent, so any number will do."""

    def until(run: Any, jobs: Iterable[Any]) -> Iterator[Any]:
        begin = time.perf_counter()
        for job in jobs:
            yield run(job)
            if time.perf_counter() - begin > 60.0 * minutes:
                return

    return until


def main() -> None:
    parser = arguments(__doc__, quick="two models, n = 8, five runs")
    parser.add_argument(
        "--models", nargs="+", choices=(*LIKELIHOODS, *GENERAL), default=LIKELIHOODS
    )
    parser.add_argument("--n", type=int, default=30)
    parser.add_argument("--replicates", type=int, default=500)
    parser.add_argument("--draws", type=int, default=250)
    parser.add_argument("--tune", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=math.inf, help="for each model")
    parser.add_argument("--figure", type=Path, help="where to draw the ranks, if at all")
    args = parser.parse_args()
    if args.quick:
        args.models, args.n = ("logistic", "effects"), 8
        args.replicates, args.draws, args.tune = 5, 60, 100
    columns = {"model": "<17", "replicates": "", "p-value": ".2g", "smallest of": "<18"}
    title = f"n = {args.n}, one chain of {args.draws} draws after {args.tune} of tuning"
    table = Table(args, title, columns | {"ESS": ".0f", "s": ".2f"}, keys=1)
    results = {}
    for likelihood in args.models:
        if args.figure is None and table.has(likelihood):
            continue
        model = model_of(likelihood, args.n)
        begin = time.perf_counter()
        result = lgm.testing.calibrate(
            model,
            lgm.PseudoMarginal if likelihood in BY_PYMC else None,
            replicates=args.replicates,
            draws=args.draws,
            tune=args.tune,
            map=within(args.minutes),
            rng=np.random.default_rng(1),
        )
        seconds = (time.perf_counter() - begin) / result.replicates
        name = min(result.pvalues, key=lambda name: result.pvalues[name])
        least = np.median(np.min(list(result.effective.values()), axis=0))
        smallest = f"{len(result.pvalues)}: {name}"
        table.row(likelihood, result.replicates, result.pvalue, smallest, least, seconds)
        results[likelihood] = result
    if args.figure is not None:
        draw(results).savefig(args.figure, dpi=110)


def draw(results: dict[str, Any]) -> Any:
    """A panel for each model, and one legend for all."""
    columns = min(len(results), 3)
    rows = -(-len(results) // columns)
    size = {"figsize": (3.2 * columns, 0.8 + 2.2 * rows), "layout": "constrained"}
    figure, axes = plt.subplots(rows, columns, sharex=True, sharey=True, squeeze=False, **size)
    for ax in axes.flat[len(results) :]:
        ax.axis("off")
    keys = {}
    for ax, (likelihood, result) in zip(axes.flat, results.items(), strict=False):
        result.plot(ax, title=f"{likelihood.replace('_', ' ')}, {result.replicates} runs")
        for line in ax.get_lines():
            kind = kind_of(line.get_label())
            line.set(color=f"C{KINDS.index(kind)}", label=kind)
        keys |= {key.get_label(): key for key in (*ax.collections, *ax.get_lines())}
        ax.label_outer()
    figure.legend(handles=list(keys.values()), loc="outside lower center", ncols=len(keys))
    return figure


if __name__ == "__main__":
    main()
