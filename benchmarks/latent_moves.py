"""f given theta: min ESS of the latent moves, beside Table 2 of Filippone et al. (2013).

    python benchmarks/latent_moves.py [--quick] [--n 100] [--d 2] [--draws 20000] [--datasets 10]

theta is fixed at the values that made the data. ESS is ArviZ's bulk ESS, the paper's that of
Robert and Casella; the column "table 2" is for 20000 draws.
"""

from __future__ import annotations

import argparse
import statistics

import numpy as np

from _design import LABELS, LIKELIHOODS, min_ess, run, simulate

import pymc_lgm as lgm

MOVES = {
    "EllipticalSlice": (lgm.EllipticalSlice, {}, "ELL-SS"),
    "LatentHMC(rotation)": (lgm.LatentHMC, {"integrator": "rotation"}, "HMC v2"),
    "LatentHMC(leapfrog)": (lgm.LatentHMC, {"integrator": "leapfrog"}, "HMC v2"),
    "LatentHMC(identity)": (lgm.LatentHMC, {"metric": "identity"}, "-"),
}

# Filippone, Zhong and Girolami (2013), Table 2: mean min ESS of 20000 draws, by (n, d).
TABLE_2 = {
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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="2 data sets, 2000 draws")
    parser.add_argument("--n", type=int, default=100)
    parser.add_argument("--d", type=int, default=2)
    parser.add_argument("--draws", type=int, default=20000)
    parser.add_argument("--tune", type=int, default=2000)
    parser.add_argument("--datasets", type=int, default=10)
    parser.add_argument("--noise", type=float, default=1.0, help="of the ordinal model")
    args = parser.parse_args()
    if args.quick:
        args.datasets, args.draws, args.tune = 2, 2000, 1000
    print(f"n = {args.n}, d = {args.d}: medians of {args.datasets} data sets, {args.draws} draws")
    print(
        f"{'model':6}{'latent move':22}{'min ESS':>9}{'table 2':>9}{'per 1000 evals':>16}"
        f"{'per second':>12}{'accept':>8}{'us/draw':>9}"
    )
    for likelihood in LIKELIHOODS:
        label = LABELS[likelihood]
        rows: dict[str, list[tuple[float, ...]]] = {name: [] for name in MOVES}
        for k in range(args.datasets):
            rng = np.random.default_rng(k)
            model = simulate(likelihood, args.n, args.d, rng, infer=False, noise=args.noise)
            for name, (sampler, options, _) in MOVES.items():
                step = sampler(model=model, **options)
                result = run(step, model, args.tune, args.draws, seed=k)
                ess, stats = min_ess(result["f"]), result["stats"]
                rows[name].append(
                    (
                        ess,
                        1000 * ess / (args.draws * stats["latent_evaluations"]),
                        ess / result["seconds"],
                        stats["latent_acceptance"],
                        1e6 * result["seconds"] / args.draws,
                    )
                )
        for name, (_, _, theirs) in MOVES.items():
            ess, per_evaluation, per_second, accept, cost = (
                statistics.median(column) for column in zip(*rows[name], strict=True)
            )
            published = TABLE_2.get((label, theirs), {}).get((args.n, args.d), "")
            print(
                f"{label:6}{name:22}{ess:9.0f}{published:>9}{per_evaluation:16.2f}"
                f"{per_second:12.0f}{accept:8.2f}{cost:9.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
