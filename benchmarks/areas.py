"""Areas with structured and unstructured effects: the default against nutpie.

    python benchmarks/areas.py [--quick] [--lattice 10] [--areas COUNTS.csv EDGES.csv]
                               [--field icar car] [--samplers default nutpie]

"icar" is the model of Besag, York and Mollié as Riebler et al. (2016) write it, with `pm.ICAR`:
counts whose log rate is a level and a share rho of structured, 1 - rho of unstructured effects.
"car" has `pm.CAR` in its place, with a scale of its own. Data are simulated on a square lattice, or
read: counts with columns "y" and "expected", edges of pairs counted from 0. ESS is ArviZ's bulk
ESS, the smallest of the hyper-parameters'; ESS/s per second of tuning, sampling and compilation.
"""

from __future__ import annotations

import itertools
import time

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm

from _design import sampled
from _results import Table, arguments

import pymc_lgm as lgm


def lattice(side: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    at = np.arange(side * side).reshape(side, side)
    right, below = (at[:, :-1].ravel(), at[:, 1:].ravel()), (at[:-1].ravel(), at[1:].ravel())
    pairs = np.hstack([right, below]).T
    W, rng = lgm.spatial.adjacency(pairs), np.random.default_rng(0)
    Q = np.diag(W.sum(axis=1)) - W
    variances, vectors = np.linalg.eigh(np.linalg.pinv(Q, rcond=1e-10, hermitian=True))
    structured = vectors * np.sqrt(np.maximum(variances, 0.0))
    phi = structured @ rng.standard_normal(len(W)) / np.sqrt(lgm.spatial.scaling_factor(W))
    eta = 0.6 * (np.sqrt(0.7) * phi + np.sqrt(0.3) * rng.standard_normal(len(W)))
    expected = rng.gamma(2.0, 5.0, len(W))
    return rng.poisson(expected * np.exp(eta)), expected, W


def read(counts: str, edges: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    table = pd.read_csv(counts)
    W = lgm.spatial.adjacency(pd.read_csv(edges).to_numpy(), n=len(table))
    return table["y"].to_numpy(), table["expected"].to_numpy(dtype=float), W


def besag_york_mollie(y: np.ndarray, expected: np.ndarray, W: np.ndarray) -> pm.Model:
    s = lgm.spatial.scaling_factor(W)
    with pm.Model() as model:
        b0, sigma = pm.Normal("b0", 0, 5), pm.HalfNormal("sigma", 1)
        rho = pm.Beta("rho", 0.5, 0.5)
        theta, phi = pm.Normal("theta", 0, 1, shape=len(W)), pm.ICAR("phi", W=W)
        effects = pm.math.sqrt(1 - rho) * theta + pm.math.sqrt(rho / s) * phi
        pm.Poisson("y", expected * pm.math.exp(b0 + sigma * effects), observed=y)
    return model


def conditional(y: np.ndarray, expected: np.ndarray, W: np.ndarray) -> pm.Model:
    with pm.Model() as model:
        b0, alpha, tau = pm.Normal("b0", 0, 5), pm.Beta("alpha", 4, 1), pm.Gamma("tau", 2, 1)
        theta = pm.Normal("theta", 0, pm.HalfNormal("sigma", 1), shape=len(W))
        phi = pm.CAR("phi", mu=np.zeros(len(W)), W=W, alpha=alpha, tau=tau)
        pm.Poisson("y", expected * pm.math.exp(b0 + theta + phi), observed=y)
    return model


FIELDS = {"icar": besag_york_mollie, "car": conditional}


def main() -> None:
    parser = arguments(__doc__, quick="25 areas, short chains")
    parser.add_argument("--lattice", type=int, default=10, help="areas along a side")
    parser.add_argument("--areas", nargs=2, metavar="CSV")
    parser.add_argument("--field", nargs="*", choices=FIELDS, default=["icar"])
    parser.add_argument("--samplers", nargs="*", default=["default"], help="default, nutpie, pymc")
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--tune", type=int, default=1000)
    parser.add_argument("--chains", type=int, default=4)
    args = parser.parse_args()
    if args.quick:
        args.lattice, args.draws, args.tune, args.chains = 5, 50, 50, 2
    y, expected, W = read(*args.areas) if args.areas else lattice(args.lattice)
    columns = {"field": "<5", "n": "", "sampler": "<7", "R-hat": ".3f", "ESS": ".0f", "draws": ""}
    columns |= {"ESS/s": ".1f", "s": ".0f", "posterior mean (sd)": "<19"}
    table = Table(args, "", columns, keys=3)
    for field, sampler in itertools.product(args.field, args.samplers):
        if table.has(field, len(W), sampler):
            continue
        begin = time.perf_counter()
        model = FIELDS[field](y, expected, W)
        ours = sampler == "default"
        how = {"step": lgm.PseudoMarginal(model=model)} if ours else {"nuts_sampler": sampler}
        idata = sampled(model, args.draws, args.tune, args.chains, **how)
        seconds = time.perf_counter() - begin
        names = [v.name for v in model.free_RVs if v.name not in ("theta", "phi")]
        posterior = idata.posterior.to_dataset()[names]
        shown = [f"{k} {float(v.mean()):.3f} ({float(v.std()):.3f})" for k, v in posterior.items()]
        ess = min(float(v) for k, v in az.ess(posterior).items() if k != "b0")
        rhat = max(float(v) for v in az.rhat(posterior).values())
        draws = args.draws * args.chains
        of = ", ".join(shown)
        table.row(field, len(W), sampler, rhat, ess, draws, ess / seconds, seconds, of)


if __name__ == "__main__":
    main()
