"""Classes with several kernels each: HMC in two metrics and the default, beside Filippone (2017).

    python benchmarks/class_kernels.py [--quick] [--weights gamma|dirichlet] [--seeds 3]

Four classes of 18, 16, 14 and 14 subjects; five sources of data, of which two tell the classes
apart, simulated, as the subjects of that thesis are private. f_c ~ N(0, sum_s w_cs C_s), with 20
weights w_cs ~ Gamma(2, 2), or Dirichlet ones for each class with concentrations of Exp(1). C_s is
X_s X_s' of rows with unit norm and then standardized columns, by the number of columns.

"F" moves f by HMC with the homogeneous metric, "G_f" by Riemann manifold HMC with the metric at f
itself, up to 10 implicit steps a draw. Both move the weights by Metropolis on AA, as the thesis
does. Percent are effective draws per 100 draws (ArviZ's bulk ESS): mean, least and largest over f
and over theta. ESS/s is the least over theta, per second of tuning and sampling.
"""

from __future__ import annotations

import time

from typing import Any

import arviz as az
import numpy as np
import pymc as pm

from _results import Table, arguments

import pymc_lgm as lgm

COUNTS = [18, 16, 14, 14]
STRENGTH = [1.0, 0.5, 0.0, 0.0, 0.0]
COLUMNS = 60

PUBLISHED = {
    "F": ("27.04 (5.31, 48.06)", "0.34 (0.21, 0.48)"),
    "G_f": ("24.11 (5.71, 42.86)", "0.31 (0.19, 0.42)"),
}
"""Published results for five modalities: f and theta."""


def sources(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """C_s (5, n, n) and the classes (n,)."""
    y = np.repeat(np.arange(4), COUNTS)
    kernels = []
    for strength in STRENGTH:
        shift = strength * rng.standard_normal((4, COLUMNS))
        X = shift[y] + 2 * rng.standard_normal((y.size, COLUMNS))
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        X = (X - X.mean(0)) / X.std(0)
        kernels.append(X @ X.T / COLUMNS)
    return np.array(kernels), y


def build(weights: str, seed: int) -> pm.Model:
    C, y = sources(np.random.default_rng(seed))
    with pm.Model() as model:
        if weights == "gamma":
            w = pm.Gamma("w", 2, 2, shape=(4, 5))
        else:
            w = pm.Dirichlet("w", pm.Exponential("alpha", 1, shape=5), shape=(4, 5))
        jitter = 1e-6 * np.eye(y.size)
        f = []
        for c in range(4):
            K = pm.math.sum(w[c][:, None, None] * C, axis=0) + jitter
            f.append(pm.MvNormal(f"f{c}", mu=np.zeros(y.size), cov=K))
        lgm.Softmax("y", f=f, observed=y)
    return model


SAMPLERS: dict[str, tuple[type, dict[str, Any]]] = {
    "F": (
        lgm.papers.WhitenedMetropolis,
        {"move": "metropolis", "latent_move": "hmc-class-frequency"},
    ),
    "G_f": (lgm.papers.WhitenedMetropolis, {"move": "metropolis", "latent_move": "hmc-position"}),
    "default": (lgm.PseudoMarginal, {}),
}


def percent(ess: Any, names: list[str], draws: int) -> tuple[str, float]:
    values = np.concatenate([np.ravel(ess[name]) for name in names])
    share = 100 * values / draws
    return f"{share.mean():.2f} ({share.min():.2f}, {share.max():.2f})", float(values.min())


def main() -> None:
    parser = arguments(__doc__, quick="one data set, short chains")
    parser.add_argument("--weights", choices=["gamma", "dirichlet"], default="gamma")
    parser.add_argument("--samplers", nargs="*", choices=SAMPLERS, default=list(SAMPLERS))
    parser.add_argument("--seeds", type=int, default=3, help="how many data sets, from 0")
    parser.add_argument("--draws", type=int, default=1000, help="of the default; ten times for HMC")
    parser.add_argument("--chains", type=int, default=2)
    args = parser.parse_args()
    if args.quick:
        args.seeds, args.draws = 1, 20
    columns = {"sampler": "<7", "seed": "", "draws": "", "percent of f": ">21", "thesis": ">20"}
    columns |= {"percent of theta": ">19", "thesis, theta": ">17", "R-hat": ".2f"}
    title = f"weights {args.weights}, {args.chains} chains"
    table = Table(args, title, columns | {"ESS/s": ".2f", "s": ".0f"}, keys=3)
    for seed in range(args.seeds):
        model = build(args.weights, seed)
        for name in args.samplers:
            draws = args.draws * (1 if name == "default" else 10)
            if table.has(name, seed, draws):
                continue
            kind, options = SAMPLERS[name]
            begin = time.perf_counter()
            with model:
                idata = pm.sample(
                    draws,
                    tune=min(draws, 1000) // 2,
                    chains=args.chains,
                    cores=2,
                    step=kind(**options),
                    random_seed=seed,
                    progressbar=False,
                    quiet=True,
                    compute_convergence_checks=False,
                )
            seconds = time.perf_counter() - begin
            ess, theta = az.ess(idata), ["w"]
            of_f, _ = percent(ess, [f"f{c}" for c in range(4)], draws * args.chains)
            of_theta, least = percent(ess, theta, draws * args.chains)
            r_hat = float(az.rhat(idata, var_names=theta)["w"].max())
            theirs = PUBLISHED.get(name, ("", ""))
            cells = (of_f, theirs[0], of_theta, theirs[1], r_hat, least / seconds, seconds)
            table.row(name, seed, draws, *cells)


if __name__ == "__main__":
    main()
