"""Whether three samplers say the same of theta, on the point patterns of Murray and Adams (2010).

    python benchmarks/agreement.py [--quick] [--problems mining redwood] [--minutes 20]
    python benchmarks/agreement.py --problems pima-100 ionosphere-100 --samplers prior-white

The default sampler, a random walk in the whitened representation (prior-white, AA), and slices
with surrogate data held (surr-site), one chain each, by time: an effective draw costs them very
different amounts. Printed: bulk ESS of the slowest component, and mean and standard deviation of
each component of theta with its distance from the default's in Monte Carlo standard errors of both;
of more than six components the largest distances alone. pima-100 and ionosphere-100 are probit
models of the first hundred rows with one length-scale an input.
"""

from __future__ import annotations

import time

from functools import partial
from typing import Any

import arviz as az
import numpy as np
import pymc as pm

from _design import classification, min_ess, standardized
from _results import Table, arguments
from representations import PROBLEMS

import pymc_lgm as lgm


def ard(name: str, rows: int) -> pm.Model:
    table = getattr(lgm.datasets, f"load_{name}")()[:rows]
    X = standardized(table.drop(columns="y").to_numpy(float))
    return classification(X, table["y"].to_numpy(int), ard=True)


ARD = {f"{name}-100": (partial(ard, name), 100) for name in ("pima", "ionosphere")}


def samplers(model: pm.Model) -> dict[str, Any]:
    return {
        "default": lgm.PseudoMarginal(model=model),
        "prior-white": lgm.papers.WhitenedMetropolis(model=model, latent_repeats=2),
        "surr-site": lgm.SurrogateSlice(model=model),
    }


def draw(step: Any, model: pm.Model, tune: int, minutes: float, seed: int = 0) -> np.ndarray:
    """Draws of theta of one chain until the time is over; tuning does not count."""
    step.setup_chain(np.random.default_rng(seed), tune, 1)
    point = model.initial_point()
    for _ in range(tune):
        point, _ = step.step(point)
    step.stop_tuning()
    theta, begin = [], time.perf_counter()
    while time.perf_counter() - begin < 60 * minutes:
        point, _ = step.step(point)
        theta.append(step.lgm.theta_of(point))
    return np.array(theta)


def moments(theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means and standard deviations, one below the other, and their Monte Carlo errors."""
    data = az.from_dict({"posterior": {"x": theta[None]}})
    errors = [az.mcse(data, method=method)["x"].values for method in ("mean", "sd")]
    return np.array([theta.mean(axis=0), theta.std(axis=0, ddof=1)]), np.array(errors)


def main() -> None:
    parser = arguments(__doc__, quick="60 rows of mining, six seconds each")
    parser.add_argument("--problems", nargs="+", default=["mining", "redwood"])
    parser.add_argument("--samplers", nargs="+", default=["prior-white", "surr-site"])
    parser.add_argument("--minutes", type=float, default=20.0, help="of drawing, for each sampler")
    parser.add_argument("--tune", type=int, default=1000)
    args = parser.parse_args()
    if args.quick:
        args.problems, args.minutes, args.tune = ["mining"], 0.1, 100
    for problem in args.problems:
        make, rows = (PROBLEMS | ARD)[problem]
        model = make(60 if args.quick else rows)
        steps = samplers(model)
        start, names = model.initial_point(), []
        for name in steps["default"].lgm.theta_names:
            short, size = name.removesuffix("_log__"), np.size(start[name])
            names += [f"{short}[{i}]" for i in range(size)] if size > 1 else [short]
        columns = {"sampler": "<11", "theta": "<12", "draws": "", "ESS": ".0f", "mean": ".3f"}
        columns |= {"±": ".3f", "apart": "+.1f", "sd": ".3f", "sd ±": ".3f", "sd apart": "+.1f"}
        table = Table(args, f"{problem}, {args.minutes:g} minutes each", columns, keys=2)
        of_default = None
        for name in ("default", *args.samplers):
            theta = draw(steps[name], model, args.tune, args.minutes)
            of_this = moments(theta)
            first, apart = (len(theta), min_ess(theta)), np.full((2, len(names)), None)
            if of_default is not None:
                apart = (of_this[0] - of_default[0]) / np.hypot(of_this[1], of_default[1])
            if len(names) > 6:
                mean, sd = (None, None) if of_default is None else np.abs(apart).max(axis=1)
                table.row(name, f"worst of {len(names)}", *first, None, None, mean, None, None, sd)
            for j, component in enumerate(names if len(names) <= 6 else ()):
                (mean, sd), (error, its) = (of[:, j] for of in of_this)
                (z, sds), cells = apart[:, j], (name, component, *first)
                table.row(*cells, mean, error, z, sd, its, sds)
            of_default = of_this if name == "default" else of_default


if __name__ == "__main__":
    main()
