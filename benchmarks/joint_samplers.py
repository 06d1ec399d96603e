"""(theta, f) together: samplers side by side, beside Table 5 of Filippone et al. (2013).

    python benchmarks/joint_samplers.py [--quick] [--n 100] [--d 2] [--draws 20000] [--datasets 5]

One chain each, started at the values that made the data, 5000 draws of tuning. ESS is ArviZ's bulk
ESS, the smallest over theta, scaled to 20000 draws; the paper's is that of Robert and Casella,
smallest over theta and f. Medians over data sets.
"""

from __future__ import annotations

import statistics

import numpy as np

from _design import LABELS, LIKELIHOODS, min_ess, run, simulate
from _results import Table, arguments

import pymc_lgm as lgm

SAMPLERS = {
    "AA": (lgm.papers.WhitenedMetropolis, {}),
    "ASIS": (lgm.ASIS, {}),
    "KHR": (lgm.papers.KnorrHeldRue, {}),
    "SA": (lgm.papers.SufficientMetropolis, {}),
    "SURR": (lgm.SurrogateSlice, {}),
    "PM, random walk": (lgm.PseudoMarginal, {"move": "metropolis"}),
    "PM, no copula": (lgm.PseudoMarginal, {"importance": lgm.Importance(copula=False)}),
    "PM, default": (lgm.PseudoMarginal, {}),
}

# Filippone, Zhong and Girolami (2013), Table 5 (LRG): mean min ESS of 20000 draws, by (n, d).
TABLE_5 = {
    "AA": {(100, 2): 131, (100, 10): 117, (400, 2): 94, (400, 10): 47},
    "ASIS": {(100, 2): 138, (100, 10): 168, (400, 2): 98, (400, 10): 60},
    "KHR": {(100, 2): 856, (100, 10): 177, (400, 2): 481, (400, 10): 116},
    "SA": {(100, 2): 8, (100, 10): 59, (400, 2): 5, (400, 10): 14},
    "SURR": {(100, 2): 173, (100, 10): 90, (400, 2): 157, (400, 10): 35},
}


def main() -> None:
    parser = arguments(__doc__, quick="1 data set, 1000 draws, logistic")
    parser.add_argument("--n", type=int, default=100)
    parser.add_argument("--d", type=int, default=2)
    parser.add_argument("--draws", type=int, default=20000)
    parser.add_argument("--tune", type=int, default=5000)
    parser.add_argument("--datasets", type=int, default=5)
    parser.add_argument("--likelihoods", nargs="+", default=list(LIKELIHOODS))
    parser.add_argument("--samplers", nargs="+", choices=SAMPLERS, default=list(SAMPLERS))
    args = parser.parse_args()
    if args.quick:
        args.datasets, args.draws, args.tune, args.likelihoods = 1, 1000, 500, ["logistic"]
    share = 20_000 / args.draws
    columns = {"model": "<5", "sampler": "<15", "ESS theta": ".0f", "ESS f": ".0f", "table 5": ""}
    columns |= {"ops/draw": ".2f", "per 1000 ops": ".1f", "per second": ".1f", "accept": ".2f"}
    table = Table(
        args,
        f"n = {args.n}, d = {args.d}: medians of {args.datasets} data sets, {args.draws} draws "
        f"after {args.tune}; ESS is per 20000 draws",
        columns | {"ms/draw": ".2f"},
        keys=2,
    )
    for likelihood in args.likelihoods:
        if table.has(LABELS[likelihood]):
            continue
        rows: dict[str, list[tuple[float, ...]]] = {name: [] for name in args.samplers}
        for k in range(args.datasets):
            model = simulate(likelihood, args.n, args.d, np.random.default_rng(k), infer=True)
            for name in args.samplers:
                sampler, options = SAMPLERS[name]
                step = sampler(model=model, **options)
                result = run(step, model, args.tune, args.draws, seed=k)
                ess, stats = min_ess(result["theta"]), result["stats"]
                rows[name].append(
                    (
                        ess,
                        min_ess(result["f"]),
                        stats["cubic_ops"],
                        1000 * ess / (args.draws * stats["cubic_ops"]),
                        ess / result["seconds"],
                        stats["theta_acceptance"],
                        1e3 * result["seconds"] / args.draws,
                    )
                )
        for name, of_name in rows.items():
            ess, f, *others = (statistics.median(column) for column in zip(*of_name, strict=True))
            published = TABLE_5.get(name, {}) if likelihood == "logistic" else {}
            theirs = published.get((args.n, args.d))
            table.row(LABELS[likelihood], name, share * ess, share * f, theirs, *others)


if __name__ == "__main__":
    main()
