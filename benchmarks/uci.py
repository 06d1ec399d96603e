"""(theta, f) together on UCI data, beside Table 6 of Filippone, Zhong and Girolami (2013).

    python benchmarks/uci.py [--quick] [--data pima wisconsin] [--spect spect_train_80.csv]

Logistic likelihood, one length-scale for each input, priors as in the simulated design: Gamma(1, 1)
on length-scales, inverse Gamma(1, 1) on sigma; inputs standardized. Five HMC moves of f a sweep,
chains from the prior, as in the paper. ESS is ArviZ's bulk ESS of one chain, the smallest over
theta, per 20000 draws; the paper's that of Robert and Casella, smallest over theta and f. SPECT is
read from a file with its columns and the class last; it is not part of this package.
"""

from __future__ import annotations

import statistics

from typing import Any

import pandas as pd

from _design import from_prior, logistic, min_ess, run
from _results import Table, arguments

import pymc_lgm as lgm

FIVE: dict[str, Any] = {"latent_repeats": 5}
SAMPLERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "AA": (lgm.papers.WhitenedMetropolis, FIVE),
    "ASIS": (lgm.ASIS, FIVE),
    "KHR": (lgm.papers.KnorrHeldRue, {}),
    "SA": (lgm.papers.SufficientMetropolis, FIVE),
    "SURR": (lgm.SurrogateSlice, FIVE),
    "default": (lgm.PseudoMarginal, {}),
}
# Table 6: mean min ESS of 20000 draws, and its standard deviation over chains.
TABLE_6 = {
    "pima": {"AA": (34, 4), "ASIS": (35, 8), "KHR": (153, 14), "SA": (5, 2), "SURR": (76, 10)},
    "wisconsin": {
        "AA": (42, 15),
        "ASIS": (47, 11),
        "KHR": (20, 10),
        "SA": (7, 3),
        "SURR": (25, 14),
    },
    "spect": {
        "AA": (99, 18),
        "ASIS": (215, 23),
        "KHR": (101, 16),
        "SA": (97, 12),
        "SURR": (84, 14),
    },
    "ionosphere": {"AA": (12, 5), "ASIS": (24, 8), "KHR": (2, 2), "SA": (11, 7), "SURR": (9, 4)},
}


def main() -> None:
    parser = arguments(__doc__, quick="100 rows, 200 draws, one chain")
    parser.add_argument("--data", nargs="+", default=["pima", "wisconsin", "ionosphere"])
    parser.add_argument("--spect", help="path of the SPECT training data")
    parser.add_argument("--samplers", nargs="+", default=list(SAMPLERS))
    parser.add_argument("--draws", type=int, default=20_000)
    parser.add_argument("--tune", type=int, default=5000)
    parser.add_argument("--chains", type=int, default=3)
    args = parser.parse_args()
    if args.quick:
        args.draws, args.tune, args.chains, args.data = 200, 200, 1, ["pima"]
    tables = {name: getattr(lgm.datasets, f"load_{name}")() for name in args.data}
    if args.spect:
        tables["spect"] = pd.read_csv(args.spect)
    columns = {"data": "<10", "n": "", "d": "", "sampler": "<7", "ESS theta": ".0f", "table 6": ""}
    columns |= {"its sd": "", "ops/draw": ".2f", "per 1000 ops": ".2f", "table 6, per 1000": ".2f"}
    columns |= {"per second": ".3f", "accept": ".2f", "ms/draw": ".1f"}
    title = f"medians of {args.chains} chains, {args.draws} draws after {args.tune}"
    results = Table(args, f"{title}; ESS is per 20000 draws", columns, keys=4)
    for data, table in tables.items():
        model = logistic(table[:100] if args.quick else table)
        d = table.shape[1] - 1
        for name in args.samplers:
            if results.has(data, len(table), d, name):
                continue
            sampler, options = SAMPLERS[name]
            step = sampler(model=model, **options)
            rows = []
            for seed in range(args.chains):
                start = from_prior(model, seed)
                result = run(step, model, args.tune, args.draws, seed, start)
                ess, stats = min_ess(result["theta"]), result["stats"]
                rows.append(
                    (
                        ess * 20_000 / args.draws,
                        stats["cubic_ops"],
                        1000 * ess / (args.draws * stats["cubic_ops"]),
                        ess / result["seconds"],
                        stats["theta_acceptance"],
                        1e3 * result["seconds"] / args.draws,
                    )
                )
            ess, ops, per_op, *others = (
                statistics.median(column) for column in zip(*rows, strict=True)
            )
            published, sd = TABLE_6[data].get(name, (None, None))
            # O(n³) operations per iteration as the paper's Table 5 counts them; KHR takes ten.
            count = {"AA": 1, "ASIS": 2, "SA": 1, "SURR": 3, "KHR": 10}.get(name)
            theirs = published / (20 * count) if count else None
            of_theta = (ess, published, sd, ops, per_op, theirs)
            results.row(data, len(table), d, name, *of_theta, *others)


if __name__ == "__main__":
    main()
