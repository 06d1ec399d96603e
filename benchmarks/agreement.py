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

import argparse
import time

from functools import partial
from typing import Any

import arviz as az
import numpy as np
import pymc as pm

from _design import classification, min_ess, standardized
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
        "prior-white": lgm.WhitenedMetropolis(model=model, latent_repeats=2),
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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="60 rows of mining, six seconds each")
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
        names = [name.removesuffix("_log__") for name in steps["default"].lgm.theta_names]
        print(f"\n{problem}, {args.minutes:g} minutes each; theta: {', '.join(names)}")
        of_default = None
        for name in ("default", *args.samplers):
            theta = draw(steps[name], model, args.tune, args.minutes)
            of_this = moments(theta)
            print(f"{name}: {len(theta)} draws, ESS {min_ess(theta):.0f}")
            if of_default is not None:
                both = np.hypot(of_this[1], of_default[1])
                largest = np.abs((of_this[0] - of_default[0]) / both).max(axis=1)
                print("  largest distances: mean {:.1f}, sd {:.1f}".format(*largest), flush=True)
            for row, statistic in enumerate(("mean", "sd") if theta.shape[1] <= 6 else ()):
                cells = []
                for j, (value, error) in enumerate(
                    zip(of_this[0][row], of_this[1][row], strict=True)
                ):
                    cell = f"{value:8.3f} ± {error:.3f}"
                    if of_default is not None:
                        both = np.hypot(error, of_default[1][row, j])
                        cell += f" ({(value - of_default[0][row, j]) / both:+.1f})"
                    cells.append(cell)
                print(f"  {statistic:5}" + "  ".join(cells), flush=True)
            of_default = of_this if name == "default" else of_default


if __name__ == "__main__":
    main()
