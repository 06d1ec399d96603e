"""Nearest-neighbor processes: how close they are to the full one, and what they cost.

    python benchmarks/vecchia.py [--quick] [--points 2000 10000] [--neighbors 20]

First the Kullback–Leibler divergence from the full process to the prior with m neighbors, in nats,
for 1000 points in the unit square, by covariance function and order. For a prior of conditionals of
the full process it is ½ (Σ log D_i − log|K|).

Then CPU seconds of the parts of one evaluation: the order and the neighbors (once), B and D and
their gradient in theta, the factor of the posterior's precision with one observation per point, and
the inverse on its pattern. Multiplications of that factor are in millions.

`benchmarks/gmrf.py` has a chain of the default sampler.
"""

from __future__ import annotations

import time

from collections.abc import Callable
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt

from _results import Table, arguments
from scipy.sparse import csr_array, eye_array

from pymc_lgm.gaussian import Layout
from pymc_lgm.gaussian.neighbors import NearestNeighbors, Neighbors, max_min_order, nearest_before
from pymc_lgm.vecchia import conditionals

JITTER = 1e-6
COVARIANCES: dict[str, Callable[[Any], Any]] = {
    "Matern12": lambda ls: pm.gp.cov.Matern12(2, ls=ls),
    "Matern32": lambda ls: pm.gp.cov.Matern32(2, ls=ls),
    "Matern52": lambda ls: pm.gp.cov.Matern52(2, ls=ls),
}


def points(n: int) -> np.ndarray:
    return np.random.default_rng(0).uniform(size=(n, 2))


def neighbors_of(X: np.ndarray, m: int, order: str) -> Neighbors:
    first = max_min_order(X) if order == "maxmin" else np.argsort(X[:, 0])
    return Neighbors(first, nearest_before(X[first], m))


def seconds(run: Callable[[], Any], times: int = 3) -> float:
    """CPU seconds of one call, the least of several, after one that compiles."""
    run()
    found = []
    for _ in range(times):
        begin = time.process_time()
        run()
        found.append(time.process_time() - begin)
    return min(found)


def divergences(args: Any) -> None:
    n = 200 if args.quick else 1000
    columns = {"covariance": "<10", "order": "<10"} | {f"m = {m}": ".3g" for m in (5, 10, 20, 40)}
    table = Table(args, f"KL from the full process, {n} points", columns, keys=2, part="close")
    X = points(n)
    for name, make in COVARIANCES.items():
        cov = make(0.2)
        log_determinant = np.linalg.slogdet(cov(X).eval() + JITTER * np.eye(n))[1]
        for order in ("maxmin", "coordinate"):
            found = []
            for m in (5, 10, 20, 40):
                _, D = conditionals(cov, X, neighbors_of(X, m, order), JITTER)
                found.append(0.5 * (np.log(D.eval()).sum() - log_determinant))
            table.row(name, order, *found)


def parts(args: Any) -> None:
    columns = {"points": "", "m": "", "order": "<10", "order s": ".2f", "B, D": ".3f"}
    columns |= {"gradient": ".3f", "Q": ".3f", "fill": "", "million": ".0f"}
    columns |= {"factor": ".3f", "inverse": ".3f"}
    table = Table(args, "CPU seconds of the parts", columns, keys=3, part="parts")
    for n in args.points:
        X = points(n)
        for order in ("maxmin", "coordinate"):
            found = neighbors_of(X, args.neighbors, order)
            once = seconds(lambda X=X, order=order: neighbors_of(X, args.neighbors, order), 1)
            theta, rng = pt.vector("theta", shape=(2,)), np.random.default_rng(1)
            cov = pt.exp(theta[0]) ** 2 * COVARIANCES["Matern32"](pt.exp(theta[1]))
            BD = conditionals(cov, X, found, JITTER)
            weights = [rng.standard_normal((n, args.neighbors)), rng.standard_normal(n)]
            total = sum(pt.sum(w * v) for w, v in zip(weights, BD, strict=True))
            at = np.array([-0.2, -2.0])
            value = pytensor.function([theta], BD, mode="NUMBA")
            slope = pytensor.function([theta], pt.grad(total, theta), mode="NUMBA")
            family, B_and_D = NearestNeighbors(found), value(at)
            A = csr_array(eye_array(n))
            layout = Layout([family], A.indptr.astype(np.intp), A.indices.astype(np.intp))
            elements = family.at(*B_and_D).elements  # type: ignore[union-attr]
            P = np.zeros(layout.pattern.rows.size)
            P[layout.of_Q] = elements
            P[layout.pattern.diagonal] += 1.5
            factor = seconds(lambda layout=layout, P=P: layout.pattern.factorize(P))
            inverse = seconds(lambda layout=layout, P=P: layout.pattern.factorize(P).inverse)
            table.row(
                n, args.neighbors, order, once,
                seconds(lambda value=value, at=at: value(at)),
                seconds(lambda slope=slope, at=at: slope(at)),
                seconds(lambda family=family, B_and_D=B_and_D: family.at(*B_and_D)),
                layout.pattern.size, layout.flops / 1e6, factor, inverse - factor,
            )  # fmt: skip


def main() -> None:
    parser = arguments(__doc__, quick="few points")
    parser.add_argument("--points", type=int, nargs="*", default=[2000, 10_000])
    parser.add_argument("--neighbors", type=int, default=20)
    args = parser.parse_args()
    if args.quick:
        args.points = [300]
    divergences(args)
    parts(args)


if __name__ == "__main__":
    main()
