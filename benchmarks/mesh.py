"""Matérn fields on a mesh: seconds to 400 effective draws of range and sigma.

    python benchmarks/mesh.py [--quick] [--edges 0.05 0.0235] [--points 1000]

Binary observations at points in the unit square, of a field with range 0.25 and standard deviation
1.5, and an intercept; `pymc_lgm.gmrf.Matern` on meshes with edges of several lengths. Printed: the
vertices, non-zeros of the factor, CPU seconds to read and compile the model, to tune, and per draw,
factorizations per draw, the largest R-hat and the least effective draws of range and sigma, and CPU
seconds to 400 effective draws, all included, of one process.
"""

from __future__ import annotations

import time

from typing import Any

import arviz as az
import numpy as np
import pymc as pm

from _results import Table, arguments

import pymc_lgm as lgm

RANGE, SIGMA = 0.25, 1.5
ENOUGH = 400


def binary_field(edge: float, count: int) -> tuple[pm.Model, lgm.gmrf.Mesh]:
    """The data are the same for each mesh: they are made on a mesh of their own."""
    rng = np.random.default_rng(0)
    points = rng.uniform(size=(count, 2))
    fine = lgm.gmrf.Mesh.around(points, max_edge=0.03, extension=0.4)
    field = pm.draw(lgm.gmrf.Matern.dist(fine, range=RANGE, sigma=SIGMA), random_seed=1)
    y = rng.uniform(size=count) < 1.0 / (1.0 + np.exp(-fine.at(points, field)))
    mesh = lgm.gmrf.Mesh.around(points, max_edge=edge, extension=0.4)
    with pm.Model() as model:
        reach = lgm.gmrf.pc_prior("range", lower=0.05, alpha=0.05)
        sigma = lgm.gmrf.pc_prior("sigma", upper=3.0, alpha=0.05)
        u = lgm.gmrf.Matern("u", mesh, range=reach, sigma=sigma)
        b0 = pm.Normal("b0", 0.0, 2.0)
        pm.Bernoulli("y", logit_p=b0 + mesh.at(points, u), observed=y)
    return model, mesh


class Clock:
    """CPU seconds at the last draw of tuning: a callback of `pymc.sample`, for one process."""

    def __init__(self) -> None:
        self.tuned = time.process_time()

    def __call__(self, trace: Any, draw: Any) -> None:
        """Note the time."""
        if draw.tuning:
            self.tuned = time.process_time()


def main() -> None:
    parser = arguments(__doc__, quick="a coarse mesh, a short chain")
    parser.add_argument("--edges", type=float, nargs="+", default=[0.05, 0.0235])
    parser.add_argument("--points", type=int, default=1000)
    parser.add_argument("--draws", type=int, default=600)
    parser.add_argument("--tune", type=int, default=400)
    args = parser.parse_args()
    if args.quick:
        args.edges, args.points, args.draws, args.tune = [0.2], 100, 100, 100
    columns = {
        "edge": ".4f",
        "vertices": "d",
        "factor": "d",
        "made, s": ".1f",
        "tuned, s": ".1f",
        "draw, ms": ".0f",
        "factorizations": ".1f",
        "R-hat": ".3f",
        "ESS": ".0f",
        "400 effective, s": ".0f",
    }
    title = f"A Matérn field on a mesh, {args.points} binary points, one chain, CPU seconds"
    table = Table(args, title, columns, keys=1)
    for edge in args.edges:
        if table.has(edge):
            continue
        model, mesh = binary_field(edge, args.points)
        begin = time.process_time()
        step = lgm.PseudoMarginal(model=model)
        made = time.process_time() - begin
        clock = Clock()
        idata = pm.sample(
            args.draws,
            tune=args.tune,
            chains=1,
            cores=1,
            step=step,
            model=model,
            random_seed=1,
            callback=clock,
            progressbar=False,
            quiet=True,
            compute_convergence_checks=False,
        )
        end = time.process_time()
        tuned, drawn = clock.tuned - begin - made, (end - clock.tuned) / args.draws
        theta = idata["posterior"].dataset[["range", "sigma"]]
        ess = float(az.ess(theta).to_array().min())
        # Split in two, a chain has an R-hat, too.
        halves = np.array_split(theta.to_array().to_numpy()[:, 0], 2, axis=1)
        r_hat = max(float(az.rhat(np.stack(pair))) for pair in zip(*halves, strict=True))
        ops = float(idata["sample_stats"].dataset["cubic_ops"].mean())
        total = made + tuned + drawn * args.draws * ENOUGH / ess
        factor = step.lgm.form.layout.pattern.size
        table.row(edge, mesh.n, factor, made, tuned, 1e3 * drawn, ops, r_hat, ess, total)


if __name__ == "__main__":
    main()
