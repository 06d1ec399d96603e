"""ULISSE on the concrete data, beside its published efficiency and beside `ExactMarginal`.

    python benchmarks/ulisse.py [--quick] [--concrete concrete_1030.csv] [--draws 1000]

Regression with one length-scale, inputs and response standardized: the model of Filippone and
Engler (2015), §5.1, whose table of one row, 0.1 % effective draws and 27 s for an independent one,
was made with 40 000 draws on the hardware of its time. ESS is ArviZ's bulk ESS, the smallest of the
three hyper-parameters, of one chain; a step size that is as small as the paper's rule has it moves
so little that its ESS is a guess from below 10. Seconds are those of kept draws, after compilation
and tuning. Moments are of log theta: with `ExactMarginal`'s of length-scale, noise and amplitude
as reference, "mean off" is the largest difference in its standard deviations, "sd ratio" the range
of ratios.
"""

from __future__ import annotations

import time

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm

from _design import min_ess, standardized
from _results import Table, arguments

import pymc_lgm as lgm


def regression(path: Path | None, n: int) -> pm.Model:
    if path is None:
        rng = np.random.default_rng(0)
        X = standardized(rng.uniform(size=(n, 8)))
        y = np.sin(X[:, 0]) + 0.5 * X[:, 1] + 0.3 * rng.standard_normal(n)
    else:
        table = pd.read_csv(path)
        X = standardized(table.iloc[:, :-1].to_numpy(float))
        y = table.iloc[:, -1].to_numpy(float)
    with pm.Model() as model:
        sigma, noise = pm.HalfNormal("sigma", 2.0), pm.HalfNormal("noise", 1.0)
        length = pm.InverseGamma("length", 3.0, 3.0)
        gp = pm.gp.Marginal(cov_func=sigma**2 * pm.gp.cov.ExpQuad(8, ls=length))
        gp.marginal_likelihood("y", X, y=(y - y.mean()) / y.std(), sigma=noise)
    return model


def chain(step: Any, model: pm.Model, tune: int, draws: int) -> dict[str, Any]:
    step.setup_chain(np.random.default_rng(1), tune, draws)
    point = model.initial_point()
    for _ in range(tune):
        point, _ = step.step(point)
    step.stop_tuning()
    theta, stats = np.empty((draws, step.lgm.p)), []
    begin = time.perf_counter()
    for i in range(draws):
        point, (info,) = step.step(point)
        theta[i] = step.lgm.theta_of(point)
        stats.append(info)
    seconds = time.perf_counter() - begin
    means = {name: float(np.mean([each[name] for each in stats])) for name in stats[0]}
    return {"theta": theta, "seconds": seconds, "stats": means, "ess": min_ess(theta)}


def main() -> None:
    parser = arguments(__doc__, quick="small simulated data, short chains")
    parser.add_argument("--concrete", type=Path, help="its file")
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--tune", type=int, default=1000)
    args = parser.parse_args()
    if args.quick:
        args.draws, args.tune = 100, 100
    model = regression(args.concrete, 100 if args.quick else 1030)
    with model:
        samplers = {
            "ExactMarginal": lgm.ExactMarginal(),
            "ULISSE, the paper's rule": lgm.papers.ULISSE(),
            "ULISSE, q = 0.1": lgm.papers.ULISSE(early_stop=0.1),
            "q = 0.1, step 0.05": lgm.papers.ULISSE(early_stop=0.1, step_size=0.05),
            "q = 0.01, beta = 0.3, probes anew": lgm.papers.ULISSE(
                early_stop=0.01, beta=0.3, probes_kept=1, step_size=0.05
            ),
        }
    columns = {"sampler": "<33", "step size": ".5f", "CG": ".1f", "% ESS": ".2f", "ms/draw": ".1f"}
    columns |= {"s/independent": ".2f", "mean off": ".2f", "sd ratio": ">9"}
    title = f"n = {len(model['y'].eval())}, {args.draws} draws after {args.tune}"
    table = Table(args, title, columns, keys=1)
    reference = None
    for name, step in samplers.items():
        tune, draws = args.tune, args.draws
        if name == "ExactMarginal":
            tune, draws = min(tune, 500), min(draws, 1000)
        found = chain(step, model, tune, draws)
        theta = found["theta"]
        reference = theta if reference is None else reference
        off = np.abs(theta.mean(0) - reference.mean(0)) / reference.std(0)
        ratio = theta.std(0) / reference.std(0)
        stats, of_draws = found["stats"], found["seconds"] / draws
        solver = ("approximate_step_size", "solver_iterations")
        table.row(
            name,
            *(stats.get(each, np.nan) for each in solver),
            100 * found["ess"] / draws,
            1e3 * of_draws,
            of_draws * draws / found["ess"],
            off.max(),
            f"{ratio.min():.2f}-{ratio.max():.2f}",
        )
    table.row("published", None, None, 0.1, None, 27, None, None)


if __name__ == "__main__":
    main()
