"""How long a chain stays in a tail that its emulator takes for too bad, and what optimism does.

    python benchmarks/long_stays.py [--quick] [--optimism 0 1] [--chains 20]

The seedlings of examples/own_likelihood.py: negative binomial counts, f of 25 blocks, and four
hyper-parameters whose posterior has long tails. Optimism is κ of the emulator: the evidence is
taken as the mean plus κ standard deviations. Chains start from the model's initial point, each with
its own seed. Printed are the bulk ESS of theta, the smallest over its elements: of all chains
together, for each of them, and of the worst chain by itself; the longest stay at one theta, median
and maximum over chains; O(n³) operations per draw.
"""

from __future__ import annotations

import numpy as np
import pymc as pm

from _design import min_ess, run
from _results import Table, arguments
from arviz import from_dict
from corner import longest_stay

import pymc_lgm as lgm

from pymc_lgm.approximations import emulator


def seedlings() -> pm.Model:
    """Redwood seedlings in 625 cells, with a latent variable for each block of 5 × 5."""
    cells = lgm.datasets.load_redwood()
    column, row = (cells["ix"].to_numpy() - 1) // 5, (cells["iy"].to_numpy() - 1) // 5
    across, up = np.meshgrid(np.arange(5), np.arange(5))
    centers = 26.0 * (np.column_stack([across.ravel(), up.ravel()]) + 0.5)
    with pm.Model() as model:
        mean = pm.Normal("mean", -1, 1)
        length = pm.InverseGamma("length", 3, 60)
        amplitude = pm.HalfNormal("amplitude", 1)
        gp = pm.gp.Latent(
            mean_func=pm.gp.mean.Constant(mean),
            cov_func=amplitude**2 * pm.gp.cov.Matern52(2, ls=length),
        )
        f = gp.prior("f", centers, reparameterize=False)
        dispersion = pm.LogNormal("dispersion", 0, 1)
        mu = pm.math.exp(f[5 * row + column])
        pm.NegativeBinomial("y", mu=mu, alpha=dispersion, observed=cells["y"].to_numpy())
    return model


def main() -> None:
    parser = arguments(__doc__, quick="2 chains of 200 draws")
    parser.add_argument("--optimism", type=float, nargs="+", default=[0.0, 1.0])
    parser.add_argument("--chains", type=int, default=20)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--tune", type=int, default=500)
    args = parser.parse_args()
    if args.quick:
        args.chains, args.draws, args.tune = 2, 200, 200
    model = seedlings()
    step = lgm.PseudoMarginal(model=model)
    columns = {"optimism": ".1f", "ESS a chain": ".0f", "worst": ".0f", "stay": ".0f"}
    title = f"{args.chains} chains of {args.draws} draws after {args.tune}"
    table = Table(args, title, columns | {"longest": "", "ops/draw": ".2f"}, keys=1)
    for optimism in args.optimism:
        if table.has(optimism):
            continue
        emulator.OPTIMISM = optimism
        results = [run(step, model, args.tune, args.draws, seed) for seed in range(args.chains)]
        theta = np.stack([result["theta"] for result in results])
        data = from_dict({"posterior": {"theta": theta}})
        pooled = float(lgm.efficiency(data, {"theta": "theta"}).loc["theta"]["ess_bulk"])
        stays = [longest_stay(of_chain) for of_chain in theta]
        ops = np.mean([result["stats"]["cubic_ops"] for result in results])
        of_chains = (pooled / args.chains, min(map(min_ess, theta)), np.median(stays), max(stays))
        table.row(optimism, *of_chains, ops)


if __name__ == "__main__":
    main()
