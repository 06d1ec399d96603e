"""Pseudo-marginal schemes beside Table 1 of Filippone and Girolami (2014): probit, simulated.

    python benchmarks/importance_schemes.py [--quick] [--draws 10000] [--chains 10]

Laplace (LA) and expectation propagation (EP) with 1 and 64 uncorrelated importance draws, whitened
Metropolis (AA), and this package's default. Chains start from the prior, 5000 draws of tuning. Each
scheme tunes its own proposal; the paper tunes one, under EP(64), for all. ESS is the smallest over
theta, ArviZ's bulk ESS of one chain; the paper's is that of its reference [43]. Means and standard
deviations over chains, all on one data set a cell, as in the paper.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from _design import balanced_probit, from_prior, min_ess, run
from _results import Table, arguments

import pymc_lgm as lgm

# As the paper has them: a random walk, q searched for at each proposal, f moves with theta alone.
PAPER: dict[str, Any] = {
    "move": "metropolis",
    "importance": lgm.Importance(correlation=0.0),
    "latent_move": None,
    "sites": "optimized",
    "interweave": False,
}
LA: dict[str, Any] = PAPER | {"approximation": "laplace"}
EP: dict[str, Any] = PAPER | {"approximation": "ep"}
SCHEMES = {
    "PM LA(1)": (lgm.PseudoMarginal, LA | {"n_importance": 1}),
    "PM LA(64)": (lgm.PseudoMarginal, LA | {"n_importance": 64}),
    "PM EP(1)": (lgm.PseudoMarginal, EP | {"n_importance": 1}),
    "PM EP(64)": (lgm.PseudoMarginal, EP | {"n_importance": 64}),
    "AA": (lgm.papers.WhitenedMetropolis, {}),
    "default": (lgm.PseudoMarginal, {}),
}

# Table 1 of the paper: ESS, its standard deviation, acceptance in %; and its Table 2: O(n³)
# operations per iteration of LA and EP.
TABLE_1 = {
    ("iso", 50, 2): {
        "PM LA(1)": (749, 73, 23.9),
        "PM LA(64)": (752, None, 24.8),
        "PM EP(1)": (747, None, 24.4),
        "PM EP(64)": (793, None, 24.9),
        "AA": (287, None, 22.7),
    },
    ("ard", 50, 2): {
        "PM LA(1)": (131, 41, 13.0),
        "PM LA(64)": (212, None, 16.6),
        "PM EP(1)": (208, None, 16.1),
        "PM EP(64)": (252, None, 19.9),
        "AA": (20, None, 20.3),
    },
    ("iso", 50, 10): {
        "PM LA(1)": (237, 147, 18.2),
        "PM LA(64)": (348, 126, 21.8),
        "PM EP(1)": (282, 47, 19.2),
        "PM EP(64)": (583, 51, 26.1),
        "AA": (71, 23, 22.8),
    },
    ("ard", 50, 10): {
        "PM LA(1)": (19, None, 7.1),
        "PM LA(64)": (78, 23, 20.2),
        "PM EP(1)": (63, 18, 15.6),
        "PM EP(64)": (108, 28, 26.3),
        "AA": (74, 6, 22.4),
    },
    ("iso", 200, 2): {
        "PM LA(1)": (717, None, 31.7),
        "PM LA(64)": (730, 26, 32.6),
        "PM EP(1)": (736, 47, 32.8),
        "PM EP(64)": (721, 43, 32.6),
        "AA": (112, 49, 21.6),
    },
    ("ard", 200, 2): {
        "PM LA(1)": (318, 29, 38.3),
        "PM LA(64)": (355, 42, 43.6),
        "PM EP(1)": (349, 26, 42.0),
        "PM EP(64)": (354, 37, 43.9),
        "AA": (41, 8, 23.0),
    },
    ("iso", 200, 10): {
        "PM LA(1)": (115, 53, 27.1),
        "PM LA(64)": (145, 62, 28.7),
        "PM EP(1)": (75, None, 18.2),
        "PM EP(64)": (130, 64, 25.5),
        "AA": (26, 6, 23.7),
    },
    ("ard", 200, 10): {
        "PM LA(1)": (27, 10, 12.3),
        "PM LA(64)": (37, 31, 13.2),
        "PM EP(1)": (26, None, 10.3),
        "PM EP(64)": (45, None, 17.4),
        "AA": (22, 7, 21.6),
    },
}


def main() -> None:
    parser = arguments(__doc__, quick="two cells, 1 chain, 500 draws")
    parser.add_argument("--draws", type=int, default=10_000)
    parser.add_argument("--tune", type=int, default=5000)
    parser.add_argument("--chains", type=int, default=10)
    parser.add_argument("--n", type=int, nargs="+", default=[50, 200])
    args = parser.parse_args()
    cells = [cell for cell in TABLE_1 if cell[1] in args.n]
    if args.quick:
        args.draws, args.tune, args.chains, cells = 500, 500, 1, cells[:2]
    columns = {"n": "", "d": "", "cov": "<3", "scheme": "<9", "ESS": ".0f", "sd": ".0f"}
    columns |= {"paper": "", "paper's sd": "", "accept %": ".1f", "paper's %": "", "ops": ".2f"}
    columns |= {"per 1000 ops": ".1f", "ms/draw": ".2f"}
    title = f"{args.draws} draws after {args.tune}, {args.chains} chains. ESS is per 10000 draws."
    table = Table(args, title, columns, keys=4)
    for cov, n, d in cells:
        model = balanced_probit(n, d, np.random.default_rng(n + d), ard=cov == "ard")
        for name, (sampler, options) in SCHEMES.items():
            if table.has(n, d, cov, name):
                continue
            step = sampler(model=model, **options)
            results = [
                run(step, model, args.tune, args.draws, seed, from_prior(model, seed))
                for seed in range(args.chains)
            ]
            ess = np.array([min_ess(r["theta"]) for r in results])
            ops, accept = (
                np.mean([r["stats"][stat] for r in results])
                for stat in ("cubic_ops", "theta_acceptance")
            )
            ms = 1e3 * np.mean([r["seconds"] for r in results]) / args.draws
            published = TABLE_1[cov, n, d].get(name, (None, None, None))
            paper, paper_sd, paper_accept = published
            share, per_op = 10_000 / args.draws, 1000 * ess.mean() / (args.draws * ops)
            both = (share * ess.mean(), share * ess.std(), paper, paper_sd)
            table.row(n, d, cov, name, *both, 100 * accept, paper_accept, ops, per_op, ms)


if __name__ == "__main__":
    main()
