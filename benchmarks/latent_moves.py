"""f given theta: min ESS of the latent moves, beside Table 2 of Filippone et al. (2013).

    python benchmarks/latent_moves.py [--quick] [--n 100] [--d 2] [--draws 20000] [--datasets 10]

theta is fixed at the values that made the data. ESS is ArviZ's bulk ESS, the paper's that of
Robert and Casella; both are for 20000 draws.
"""

from __future__ import annotations

import statistics

import numpy as np

from _design import LABELS, LIKELIHOODS, min_ess, run, simulate
from _results import Table, arguments

import pymc_lgm as lgm

MOVES = {
    "EllipticalSlice": (lgm.EllipticalSlice, {}, "ELL-SS"),
    "LatentHMC(rotation)": (lgm.LatentHMC, {"integrator": "rotation"}, "HMC v2"),
    "LatentHMC(leapfrog)": (lgm.LatentHMC, {"integrator": "leapfrog"}, "HMC v2"),
    "LatentHMC(curvature)": (lgm.LatentHMC, {"metric": "curvature"}, "HMC v1"),
    "LatentHMC(identity)": (lgm.LatentHMC, {"metric": "identity"}, "-"),
    "AuxiliaryGradient": (lgm.AuxiliaryGradient, {}, "-"),
    "LatentSMMALA": (lgm.papers.LatentSMMALA, {}, "SMMALA"),
    "NealMetropolis v1": (lgm.papers.NealMetropolis, {"proposal": "random-walk"}, "MH v1"),
    "NealMetropolis v2": (lgm.papers.NealMetropolis, {}, "MH v2"),
}

# Filippone, Zhong and Girolami (2013), Table 2: mean min ESS of 20000 draws, by (n, d).
TABLE_2 = {
    ("LRG", "MH v1"): {(100, 2): 67, (100, 10): 47, (400, 2): 22, (400, 10): 8},
    ("LRG", "MH v2"): {(100, 2): 204, (100, 10): 151, (400, 2): 67, (400, 10): 30},
    ("LRG", "SMMALA"): {(100, 2): 756, (100, 10): 262, (400, 2): 457, (400, 10): 48},
    ("LRG", "HMC v1"): {(100, 2): 3395, (100, 10): 5163, (400, 2): 1352, (400, 10): 2962},
    ("LCX", "SMMALA"): {(100, 2): 217, (100, 10): 39, (400, 2): 258, (400, 10): 7},
    ("LCX", "HMC v1"): {(100, 2): 372, (100, 10): 188, (400, 2): 199, (400, 10): 81},
    ("VLT", "SMMALA"): {(100, 2): 424, (100, 10): 117, (400, 2): 418, (400, 10): 61},
    ("VLT", "HMC v1"): {(100, 2): 1494, (100, 10): 449, (400, 2): 1384, (400, 10): 249},
    ("ORD", "SMMALA"): {(100, 2): 48, (100, 10): 2, (400, 2): 107, (400, 10): 1},
    ("ORD", "HMC v1"): {(100, 2): 539, (100, 10): 472, (400, 2): 176, (400, 10): 257},
    ("LRG", "ELL-SS"): {(100, 2): 321, (100, 10): 241, (400, 2): 104, (400, 10): 50},
    ("LRG", "HMC v2"): {(100, 2): 4004, (100, 10): 5225, (400, 2): 1566, (400, 10): 2995},
    ("LCX", "ELL-SS"): {(100, 2): 39, (100, 10): 11, (400, 2): 11, (400, 10): 2},
    ("LCX", "HMC v2"): {(100, 2): 254, (100, 10): 188, (400, 2): 64, (400, 10): 80},
    ("VLT", "ELL-SS"): {(100, 2): 46, (100, 10): 18, (400, 2): 22, (400, 10): 4},
    ("VLT", "HMC v2"): {(100, 2): 418, (100, 10): 443, (400, 2): 183, (400, 10): 245},
    ("ORD", "ELL-SS"): {(100, 2): 21, (100, 10): 10, (400, 2): 9, (400, 10): 2},
    ("ORD", "HMC v2"): {(100, 2): 175, (100, 10): 483, (400, 2): 61, (400, 10): 255},
}


def main() -> None:
    parser = arguments(__doc__, quick="2 data sets, 2000 draws")
    parser.add_argument("--n", type=int, default=100)
    parser.add_argument("--d", type=int, default=2)
    parser.add_argument("--draws", type=int, default=20000)
    parser.add_argument("--tune", type=int, default=2000)
    parser.add_argument("--datasets", type=int, default=10)
    parser.add_argument("--noise", type=float, default=1.0, help="of the ordinal model")
    args = parser.parse_args()
    if args.quick:
        args.datasets, args.draws, args.tune = 2, 2000, 1000
    share = 20_000 / args.draws
    columns = {"model": "<5", "latent move": "<20", "min ESS": ".0f", "table 2": ""}
    columns |= {"per 1000 evals": ".2f", "per second": ".0f", "accept": ".2f", "us/draw": ".0f"}
    table = Table(
        args,
        f"n = {args.n}, d = {args.d}: medians of {args.datasets} data sets, {args.draws} draws "
        f"after {args.tune}; ESS is per 20000 draws",
        columns,
        keys=2,
    )
    for likelihood in LIKELIHOODS:
        label = LABELS[likelihood]
        if table.has(label):
            continue
        rows: dict[str, list[tuple[float, ...]]] = {name: [] for name in MOVES}
        for k in range(args.datasets):
            rng = np.random.default_rng(k)
            model = simulate(likelihood, args.n, args.d, rng, infer=False, noise=args.noise)
            for name, (sampler, options, _) in MOVES.items():
                step = sampler(model=model, **options)
                result = run(step, model, args.tune, args.draws, seed=k)
                ess, stats = min_ess(result["f"]), result["stats"]
                # Moves that do not count their evaluations have one a draw.
                evaluations = stats.get("latent_evaluations", 1.0)
                rows[name].append(
                    (
                        ess,
                        1000 * ess / (args.draws * evaluations),
                        ess / result["seconds"],
                        stats["latent_acceptance"],
                        1e6 * result["seconds"] / args.draws,
                    )
                )
        for name, (_, _, theirs) in MOVES.items():
            ess, *others = (statistics.median(column) for column in zip(*rows[name], strict=True))
            published = TABLE_2.get((label, theirs), {}).get((args.n, args.d))
            table.row(label, name, share * ess, published, *others)


if __name__ == "__main__":
    main()
