"""Sparse Gaussian processes: the models of Hensman et al. (2015), and draws at n = 50 000.

    python benchmarks/sparse.py [--quick] [--problems coal pines binary features] [--samplers ...]
    python benchmarks/sparse.py --cost [--features] [--n 50000] [--m 500]
    python benchmarks/sparse.py --classes RobustMax Softmax [--ard] [--n 750] [--m 50]

"coal" is 100 bins of the mining disasters with 30 inducing points, "pines" the 32 x 32 counts with
225 on a grid, both with the priors of the paper's code; "binary" n simulated labels in two
dimensions, m points by k-means; "features" the same by m random features. nutpie samples the same
model, an ordinary one of PyMC. ESS is ArviZ's bulk ESS, the smallest over hyper-parameters and
values at the inducing points, or weights; ESS/s per second of tuning, sampling and compilation.

``--cost`` prints what a draw costs after a short tuning, beside AᵀWA, the smallest part of it that
is O(n m²), and the most memory that the process has had.

``--classes`` is the toy of three classes in two dimensions: labels drawn from three Gaussians,
of which the paper gives a picture, one kernel for all classes with a length-scale for both inputs
or one each, its code's priors and white noise. Error rate and log density are those of 750 further
labels. One chain begins at the best of ten thetas, in the middle of a variational q, and draws
for ``--seconds`` after a third of them for tuning, or more. ESS is the smallest over theta, and
the smallest over the values at the inducing points.
"""

from __future__ import annotations

import argparse
import resource
import time

from typing import Any

import arviz as az
import numpy as np
import pymc as pm

from _design import sampled
from _results import Table, arguments

import pymc_lgm as lgm

from pymc_lgm.approximations.variational import variational
from pymc_lgm.linalg import gram
from pymc_lgm.state import AtTheta

PROBLEMS = ("coal", "pines", "binary", "features")


def coal() -> pm.Model:
    years = lgm.datasets.load_coal_mining_dates()["date"].to_numpy()
    counts, edges = np.histogram(years, bins=100, range=(1851.2, 1962.3))
    X = 0.5 * (edges[1:] + edges[:-1])[:, None]
    with pm.Model() as model:
        ls, variance = pm.Gamma("ls", 1.1, 0.1), pm.Gamma("variance", 1.0, 0.3)
        gp = lgm.gp.SparseLatent(cov_func=variance * pm.gp.cov.ExpQuad(1, ls=ls))
        f = gp.prior("f", X, Xu=np.linspace(X[0], X[-1], 30))
        lgm.LogGaussianCox("y", f=f, observed=counts)
    return model


def pines() -> pm.Model:
    cells = lgm.datasets.load_finpines()
    X = cells[["x1", "x2"]].to_numpy()
    axes = [np.linspace(x.min(), x.max(), 15) for x in X.T]
    with pm.Model() as model:
        ls, variance = pm.Gamma("ls", 1.75, 1.0), pm.Gamma("variance", 1.2, 1.0)
        gp = lgm.gp.SparseLatent(cov_func=variance * pm.gp.cov.ExpQuad(2, ls=ls))
        f = gp.prior("f", X, Xu=pm.math.cartesian(*axes), jitter=1e-4)
        lgm.LogGaussianCox("y", f=f, observed=cells["y"].to_numpy())
    return model


def binary(n: int, m: int, by_features: bool = False) -> pm.Model:
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(n, 2))
    f = 3.0 * np.sin(6.0 * X[:, 0]) * np.cos(5.0 * X[:, 1])
    y = (f + rng.standard_normal(n) > 0.0).astype(int)
    near = X[rng.choice(n, min(n, 5000), replace=False)]
    with pm.Model() as model:
        ls, eta = pm.LogNormal("ls", -1.0, 0.5), pm.HalfNormal("eta", 3.0)
        cov = eta**2 * pm.gp.cov.Matern52(2, ls=ls)
        if by_features:
            f = lgm.papers.RandomFeatures(m // 2, cov_func=cov).prior("f", X)
        else:
            Xu = pm.gp.util.kmeans_inducing_points(m, near)
            f = lgm.gp.SparseLatent(cov_func=cov).prior("f", X, Xu=Xu)
        lgm.Probit("y", f=f, observed=y)
    return model


def labels(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Three Gaussians, all classes as frequent."""
    turn = np.array([[1.0, -1.0], [1.0, 1.0]]) / np.sqrt(2.0)
    means = np.array([[0.0, 0.5], [-1.5, 0.0], [1.5, 0.0]])
    covs = [np.diag([5.0, 0.1]), np.diag([0.05, 3.0]), turn @ np.diag([3.0, 0.1]) @ turn.T]
    y = rng.integers(3, size=n)
    X = np.stack([rng.multivariate_normal(means[c], covs[c]) for c in y])
    return X, y


def classes(likelihood: str, X: np.ndarray, y: np.ndarray, m: int, ard: bool) -> Any:
    """The paper's toy, with its processes."""
    with pm.Model() as model:
        variance, ls = pm.Gamma("variance", 3, 3), pm.Gamma("ls", 3, 2, shape=2 if ard else ())
        noise = pm.gp.cov.WhiteNoise(np.sqrt(1e-3))
        cov = variance * pm.gp.cov.ExpQuad(2, ls=ls) + noise
        Xu = pm.gp.util.kmeans_inducing_points(m, X, seed=1)
        gps = [lgm.gp.SparseLatent(cov_func=cov) for _ in range(3)]
        f = [gp.prior(f"f{c}", X, Xu=Xu) for c, gp in enumerate(gps)]
        getattr(lgm.likelihoods, likelihood)("y", f=f, observed=y)
    return model, gps


def fitted(step: Any, point: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Where the paper starts: the Gaussian of largest bound, at the best theta of a few."""
    ours, best = step.lgm, (-np.inf, point)
    for variance in (1.0, 3.0):
        for ls in (0.5, 1.0, 1.5, 2.0, 3.0):
            theta = point["variance_log__"].size + point["ls_log__"].size
            theta = np.log(np.r_[variance, np.full(theta - 1, ls)])
            here = AtTheta.of(ours, theta)
            q = variational(here.likelihood, here.prior, tolerance=1.0, max_iterations=15)
            if q is not None and q.log_evidence + here.log_prior > best[0]:
                latents = ours.latents_of(step.rng, here.prior, q.center)
                best = q.log_evidence + here.log_prior, ours.point_of(theta) | latents
    return best[1]


def by_class(table: Table, likelihood: str, n: int, m: int, ard: bool, seconds: float) -> None:
    rng = np.random.default_rng(0)
    (X, y), (new, label) = labels(n, rng), labels(750, rng)
    model, gps = classes(likelihood, X, y, m, ard)
    how: dict[str, Any] = {}
    if likelihood == "RobustMax":
        held = ["sufficient", "whitened"]
        how = {"latent_move": "hmc-curvature", "parameterization": held, "theta_repeats": 2}
    begin = time.perf_counter()
    with model:
        step = (lgm.Sweep if how else lgm.PseudoMarginal)(rng=1, **how)
        point, tune, trace = fitted(step, model.initial_point()), 100 if how else 250, []
        step.tune_length, tune_until = tune, time.perf_counter() + seconds / 3.0
        tuned = 0
        while tuned < tune or time.perf_counter() < tune_until:
            point, _ = step.step(point)
            tuned += 1
        step.stop_tuning()
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            point, _ = step.step(point)
            trace.append(point)
        total = time.perf_counter() - begin
        names = [f"f{c}_u_rotated_" for c in range(3)]
        posterior = {
            "variance": np.exp([p["variance_log__"] for p in trace]),
            "ls": np.exp([p["ls_log__"] for p in trace]),
        } | {name: np.array([p[name] for p in trace]) for name in names}
        idata = az.from_dict({"posterior": {k: v[None] for k, v in posterior.items()}})
        idata = pm.compute_deterministics(idata, extend_dataset=True, progressbar=False)
        tree = lgm.predict(idata, gps, new, progressbar=False)
    p = tree["predictions"]["y_probability"].values
    # ArviZ takes a chain that never moves for one of independent draws.
    moved = {k: float(v.std("draw").min()) > 0.0 for k, v in idata.posterior.data_vars.items()}
    ess = {k: float(v.min()) if moved[k] else 1.0 for k, v in az.ess(idata).data_vars.items()}
    of_theta, of_u = min(ess["variance"], ess["ls"]), min(ess[f"f{c}_u"] for c in range(3))
    log_p = np.log(p[np.arange(len(label)), label]).mean()
    shown = (
        f"ls {np.round(posterior['ls'].mean(axis=0), 2)}, "
        f"variance {posterior['variance'].mean():.2f} ({posterior['variance'].std():.2f})"
    )
    rates = (of_theta, of_u, len(trace), of_theta / total, of_u / total, total)
    error = (p.argmax(axis=1) != label).mean()
    table.row(likelihood, "ARD" if ard else "one", n, m, *rates, error, log_p, shown)


def build(problem: str, n: int, m: int) -> pm.Model:
    if problem in ("binary", "features"):
        return binary(n, m, problem == "features")
    return {"coal": coal, "pines": pines}[problem]()


def cost(args: argparse.Namespace, n: int, m: int, draws: int, by_features: bool) -> None:
    with binary(n, m, by_features) as model:
        begin = time.perf_counter()
        step = lgm.PseudoMarginal(rng=1)
        point = model.initial_point()
        step.tune_length, step.tune = draws, True
        for _ in range(draws):
            point, _ = step.step(point)
        step.stop_tuning()
        first = time.perf_counter() - begin
        times, accepted = [], []
        for _ in range(draws):
            begin = time.perf_counter()
            point, (stats,) = step.step(point)
            times.append(time.perf_counter() - begin)
            accepted.append(stats["theta_acceptance"])
        (V,) = step.lgm.form.at_theta.maps(step.lgm.theta_of(point))
    weighted = []
    for _ in range(5):
        begin = time.perf_counter()
        gram(V, np.ones(n))
        weighted.append(time.perf_counter() - begin)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    columns = {"basis": "<15", "n": "", "m": "", "s until tuned": ".0f", "s a draw": ".3f"}
    columns |= {"times AᵀWA": ".1f", "s of AᵀWA": ".3f", "accept": ".2f", "GiB": ".1f"}
    basis = "random features" if by_features else "inducing points"
    draw, product = np.median(times), np.median(weighted)
    cells = (first, draw, draw / product, product, np.mean(accepted), memory)
    table = Table(args, f"{draws} draws after {draws} of tuning", columns, keys=3, part="cost")
    table.row(basis, n, m, *cells)


def by_nutpie(model: pm.Model, draws: int, tune: int, chains: int) -> Any:
    """Not by `pm.sample`, which gives variables of our likelihoods a step of ours."""
    import nutpie

    return nutpie.sample(
        nutpie.compile_pymc_model(model),
        draws=draws,
        tune=tune,
        chains=chains,
        cores=2,
        seed=1,
        progress_bar=False,
    )


def main() -> None:
    parser = arguments(__doc__, quick="coal only, short chains")
    parser.add_argument("--problems", nargs="*", choices=PROBLEMS, default=list(PROBLEMS))
    samplers = ["default", "nutpie"]
    parser.add_argument("--samplers", nargs="*", choices=samplers, default=["default"])
    parser.add_argument("--n", type=int, default=None, help="of binary: 2000, and 50000 for --cost")
    parser.add_argument("--m", type=int, default=None, help="of binary: 50, and 500 for --cost")
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--tune", type=int, default=1000)
    parser.add_argument("--chains", type=int, default=2)
    parser.add_argument("--cost", action="store_true")
    parser.add_argument("--features", action="store_true", help="of --cost: not inducing points")
    parser.add_argument("--classes", nargs="*", choices=("RobustMax", "Softmax"), default=[])
    parser.add_argument("--ard", action="store_true", help="of classes: a length-scale an input")
    parser.add_argument("--seconds", type=float, default=300.0, help="of classes")
    args = parser.parse_args()
    if args.quick:
        args.problems, args.draws, args.tune = ["coal"], 50, 50
    if args.cost:
        cost(args, args.n or 50_000, args.m or 500, 20, args.features)
        return
    if args.classes:
        columns = {"likelihood": "<10", "ls": "<3", "n": "", "m": "", "ESS theta": ".0f"}
        columns |= {"ESS u": ".0f", "draws": "", "theta ESS/s": ".4f", "u ESS/s": ".4f", "s": ".0f"}
        columns |= {"error": ".3f", "log p": ".3f", "posterior mean": "<14"}
        results = Table(args, "", columns, keys=4, part="classes")
        for likelihood in args.classes:
            n = 150 if args.quick else args.n or 750
            m = 15 if args.quick else args.m or 50
            if not results.has(likelihood, "ARD" if args.ard else "one", n, m):
                seconds = 5.0 if args.quick else args.seconds
                by_class(results, likelihood, n, m, args.ard, seconds)
        return
    columns = {"problem": "<8", "n": "", "m": "", "sampler": "<7", "R-hat": ".3f", "ESS": ".0f"}
    columns |= {"draws": "", "ESS/s": ".2f", "s": ".0f", "posterior mean (sd)": "<19"}
    table = Table(args, "", columns, keys=4)
    for problem in args.problems:
        for sampler in args.samplers:
            model = build(problem, args.n or 2000, args.m or 50)
            n = int(model.rvs_to_values[model.observed_RVs[0]].eval().size)
            values = "f_weights" if problem == "features" else "f_u"
            key = (problem, n, int(model[values].shape[-1].eval()), sampler)
            if table.has(*key):
                continue
            begin = time.perf_counter()
            run = sampled if sampler == "default" else by_nutpie
            idata = run(model, args.draws, args.tune, args.chains)
            seconds = time.perf_counter() - begin
            posterior = idata.posterior.to_dataset()
            ours = [rv.name for rv in model.free_RVs if not rv.name.endswith("_rotated_")]
            names = [name for name in ours if name != values]
            shown = [
                f"{name} {float(posterior[name].mean()):.3f} ({float(posterior[name].std()):.3f})"
                for name in names
            ]
            kept = posterior[[*names, values]]
            ess = min(float(v.min()) for v in az.ess(kept).data_vars.values())
            rhat = max(float(v.max()) for v in az.rhat(kept).data_vars.values())
            draws = args.draws * args.chains
            table.row(*key, rhat, ess, draws, ess / seconds, seconds, ", ".join(shown))


if __name__ == "__main__":
    main()
