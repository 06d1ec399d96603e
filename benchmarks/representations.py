"""Six representations × slice sampling on the four problems of Murray and Adams (2010), §5.

    python benchmarks/representations.py [--quick] [--problems mining redwood] [--chains 2]

Each draw: ten elliptical slices of f, then component-wise slices of theta with f, whitened f,
surrogate data or posterior-whitened f held. "effective" is the bulk ESS of the trace of
log p(y, f | theta), the paper's measure, per 1000 likelihood evaluations, per 1000 covariances that
were built, and per second of drawing; "theta" is the smallest over the logarithms of the
hyper-parameters. Beside them a random walk in the whitened representation (AA) and the default
sampler, each with moves of f of its own. `agreement.py` compares what they say of theta.

The paper prints bars and no figures: its order is in `PUBLISHED`. It does not give its priors;
here log length-scales (in units of the inputs' range), log variances and the mean offset have
standard normal priors.
"""

from __future__ import annotations

import time

from collections.abc import Callable
from typing import Any

import numpy as np
import pymc as pm

from _design import min_ess, standardized
from _results import Table, arguments

import pymc_lgm as lgm

TEN = {"latent_move": "slice", "latent_repeats": 10}
REPRESENTATIONS = {
    "fixed": "sufficient",
    "prior-white": "whitened",
    "surr-site": "surrogate-site",
    "surr-taylor": "surrogate-taylor",
    "post-site": "posterior-site",
    "post-taylor": "posterior-taylor",
}
# Figure 3, by effective samples per covariance construction: best first.
PUBLISHED = {
    "ionosphere": "surr-site and post-site, far from the others",
    "synthetic": "post and surr alike, far from the others",
    "mining": "all but fixed and prior-white alike",
    "redwood": "surr-site and post-site",
}


def gaussian_process(X: np.ndarray, mean: Any = 0.0) -> Any:
    """f and its hyper-parameters, one length-scale for each input."""
    d = X.shape[1]
    variance = pm.LogNormal("variance", 0.0, 1.0)
    length = pm.LogNormal("length", 0.0, 1.0, shape=d)
    spread = np.ptp(X, axis=0) / np.sqrt(d)
    gp = pm.gp.Latent(
        mean_func=pm.gp.mean.Constant(mean), cov_func=variance * pm.gp.cov.ExpQuad(d, ls=length)
    )
    return gp.prior("f", X / spread, reparameterize=False, jitter=1e-6)


def ionosphere(rows: int) -> pm.Model:
    table = lgm.datasets.load_ionosphere().sample(rows, random_state=1)
    X = standardized(table.drop(columns="y").to_numpy(float))
    with pm.Model() as model:
        lgm.Logistic("y", f=gaussian_process(X), observed=table["y"].to_numpy(int))
    return model


def synthetic(rows: int) -> pm.Model:
    """Noisy values of a process of unit variance, ten length-scales uniform on (0, √10)."""
    rng = np.random.default_rng(1)
    X = rng.uniform(size=(rows, 10))
    scaled = X / rng.uniform(0.0, np.sqrt(10.0), size=10)
    distance = ((scaled[:, None] - scaled[None]) ** 2).sum(-1)
    K = np.exp(-0.5 * distance) + 1e-9 * np.eye(rows)
    y = np.linalg.cholesky(K) @ rng.standard_normal(rows) + 0.3 * rng.standard_normal(rows)
    with pm.Model() as model:
        pm.Normal("y", gaussian_process(X), 0.3, observed=y)
    return model


def cox(X: np.ndarray, y: np.ndarray) -> pm.Model:
    with pm.Model() as model:
        mean = pm.Normal("mean", np.log(y.mean()), 1.0)
        lgm.LogGaussianCox("y", f=gaussian_process(X, mean), observed=y)
    return model


def mining(rows: int) -> pm.Model:
    table = lgm.datasets.load_coal_mining(811)[:rows]
    return cox(table[["bin"]].to_numpy(float), table["y"].to_numpy(int))


def redwood(rows: int) -> pm.Model:
    table = lgm.datasets.load_redwood()[:rows]
    return cox(table[["x1", "x2"]].to_numpy(float), table["y"].to_numpy(int))


PROBLEMS: dict[str, tuple[Callable[[int], pm.Model], int]] = {
    "ionosphere": (ionosphere, 200),
    "synthetic": (synthetic, 200),
    "mining": (mining, 811),
    "redwood": (redwood, 625),
}


def samplers(model: pm.Model) -> dict[str, Callable[[], Any]]:
    made: dict[str, Callable[[], Any]] = {}
    for name, held in REPRESENTATIONS.items():
        made[name] = lambda held=held: lgm.Sweep(
            model=model, parameterization=held, move="slice", **TEN
        )
    made["AA, random walk"] = lambda: lgm.papers.WhitenedMetropolis(model=model)
    made["default"] = lambda: lgm.PseudoMarginal(model=model)
    return made


def complete_log_density(step: Any, theta: np.ndarray, f: np.ndarray) -> float:
    """log p(y, f | theta)."""
    L = np.linalg.cholesky(step.lgm.cov(theta))
    nu = np.linalg.solve(L, f - step.lgm.mean(theta))
    return float(step.lgm.log_likelihood(f, theta) - 0.5 * nu @ nu - np.log(np.diagonal(L)).sum())


def run(step: Any, model: pm.Model, tune: int, draws: int, seed: int) -> dict[str, Any]:
    """Sample one chain; tuning and the complete-data density are not in its seconds."""
    step.setup_chain(np.random.default_rng(seed), tune, draws)
    point = model.initial_point()
    for _ in range(tune):
        point, _ = step.step(point)
    step.stop_tuning()
    kept, stats = [], []
    begin = time.perf_counter()
    for _ in range(draws):
        point, (info,) = step.step(point)
        theta = step.lgm.theta_of(point)
        kept.append((theta, step.lgm.f_of(theta, point)))
        stats.append(info)
    seconds = time.perf_counter() - begin
    mean = {name: float(np.mean([s.get(name, np.nan) for s in stats])) for name in stats[0]}
    # A random walk and an importance estimate each build one covariance a draw; an estimate also
    # evaluates the likelihood once for each of its draws.
    covariances = mean.get("theta_evaluations", 1.0)
    likelihoods = covariances * mean.get("n_importance", 1.0) + mean.get("latent_evaluations", 0.0)
    return {
        "theta": np.array([theta for theta, _ in kept]),
        "complete": np.array([complete_log_density(step, *draw) for draw in kept]),
        "covariances": covariances,
        "likelihoods": likelihoods,
        "ops": mean["cubic_ops"],
        "seconds": seconds,
    }


def main() -> None:
    parser = arguments(__doc__, quick="60 rows, 200 draws, one chain")
    parser.add_argument("--problems", nargs="+", default=list(PROBLEMS))
    parser.add_argument("--samplers", nargs="+", help="names of rows; all by default")
    parser.add_argument("--draws", type=int, default=5000)
    parser.add_argument("--tune", type=int, default=1000)
    parser.add_argument("--chains", type=int, default=2)
    args = parser.parse_args()
    if args.quick:
        args.draws, args.tune, args.chains, args.problems = 200, 100, 1, ["mining"]
    for problem in args.problems:
        make, rows = PROBLEMS[problem]
        model = make(60 if args.quick else rows)
        columns = {"sampler": "<15", "effective": ".0f", "per 1000 likelih.": ".2f"}
        columns |= {"per 1000 covariances": ".1f", "per second": ".2f", "theta": ".0f"}
        columns |= {"theta per 1000 ops": ".2f", "theta per second": ".2f", "ops/draw": ".1f"}
        title = f"{args.draws} draws after {args.tune}, means over {args.chains} chains"
        table = Table(args, f"{problem}, {title}; the paper: {PUBLISHED[problem]}", columns, keys=1)
        for name, sampler in samplers(model).items():
            if (args.samplers and name not in args.samplers) or table.has(name):
                continue
            step = sampler()
            seeds = range(args.chains)
            chains = [run(step, model, args.tune, args.draws, seed) for seed in seeds]
            rows_of = np.array(
                [
                    (
                        (complete := min_ess(c["complete"][:, None])),
                        1e3 * complete / (args.draws * c["likelihoods"]),
                        1e3 * complete / (args.draws * c["covariances"]),
                        complete / c["seconds"],
                        (theta := min_ess(c["theta"])),
                        1e3 * theta / (args.draws * c["ops"]),
                        theta / c["seconds"],
                        c["ops"],
                    )
                    for c in chains
                ]
            ).mean(axis=0)
            table.row(name, *rows_of)


if __name__ == "__main__":
    main()
