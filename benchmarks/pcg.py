"""Iterations of conjugate gradients with each preconditioner, and Laplace's evidence at n = 20 000.

    python benchmarks/pcg.py [--quick] [--concrete concrete_1030.csv] [--power power_plant.csv]
        [--no-tables] [--large 20000]

Tables: (K + 0.01 I) x = y, K the squared exponential of one length-scale and variance 1, inputs and
response standardized, until the residual is below 1e-5 an element, as in Figure 1 of Cutajar et al.
(2016), whose counts of plain conjugate gradients and of Nyström's preconditioner are beside ours.
A number is the median of three draws of what is random. "m" is the rank of a preconditioner, √n or
4 √n, or the rows of a block; products of inner iterations count ("shifted", δ a hundred times the
noise). Files have the response last; without one the data are simulated.

Large: Poisson counts of a Matérn field in two dimensions, `lgm.papers.laplace_by_pcg` at one theta,
with its time, the most memory that the process has had, and what K alone would take.
"""

from __future__ import annotations

import argparse
import math
import resource
import time

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pymc as pm

from _design import standardized
from _results import Table, arguments

import pymc_lgm as lgm

from pymc_lgm.papers import solvers
from pymc_lgm.papers.solvers import KernelMatrix, KernelSystem, conjugate_gradients

NOISE = 1e-2
MOST = 100_000
PUBLISHED = {
    "concrete": {-1: (82, 146), 0: (246, 177), 1: (54, 9), 2: (12, 1)},
    "power": {0: (741, 135), 1: (43, 2), 2: (8, 1)},
}
"""log10 of the length-scale -> iterations without a preconditioner, and with Nyström's."""


def data(path: Path | None, n: int) -> tuple[np.ndarray, np.ndarray]:
    if path is None:
        rng = np.random.default_rng(0)
        X = standardized(rng.uniform(size=(n, 8)))
        y = np.sin(X[:, 0]) + 0.5 * X[:, 1] ** 2 + 0.3 * rng.standard_normal(n)
    else:
        table = pd.read_csv(path)
        X = standardized(table.iloc[:, :-1].to_numpy(float))
        y = table.iloc[:, -1].to_numpy(float)
    return X, (y - y.mean()) / y.std()


def exponential(X: np.ndarray) -> KernelMatrix:
    """Squared exponential of points that have been divided by the length-scale."""

    def k(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        distance = (a**2).sum(1)[:, None] + (b**2).sum(1) - 2 * a @ b.T
        return np.exp(-0.5 * np.maximum(distance, 0.0))

    return KernelMatrix.of_points(k, X)


Count = Callable[[KernelSystem, np.ndarray, np.ndarray, np.random.Generator], int]


def counted(approximate: Callable[..., solvers.Approximation]) -> Count:
    def count(system, X, y, rng):
        P = approximate(system.kernel, X, rng).preconditioner(system)
        return iterations(system, y, P)

    return count


def iterations(system: KernelSystem, y: np.ndarray, P: solvers.Preconditioner | None) -> int:
    atol = math.sqrt(y.size) * 1e-5
    solution = conjugate_gradients(system.times, y, P, rtol=0.0, atol=atol, max_iterations=MOST)
    inner = P.products if isinstance(P, solvers.Shifted) else 0
    return solution.iterations + inner if solution.converged else MOST


def schemes(n: int) -> dict[str, Count]:
    few, many = math.isqrt(n), 4 * math.isqrt(n)
    rows: dict[str, Count] = {
        "none": lambda system, X, y, rng: iterations(system, y, None),
        f"Nyström, m={few}": counted(lambda K, X, rng: solvers.nystrom(K, few, rng)),
        f"FITC, m={few}": counted(lambda K, X, rng: solvers.fitc(K, few, rng)),
        f"PITC, m={few}": counted(lambda K, X, rng: solvers.pitc(K, few, rng)),
        f"Fourier, m={few}": counted(
            lambda K, X, rng: solvers.random_features(X, few + few % 2, rng)
        ),
        f"SVD, m={few}": counted(lambda K, X, rng: solvers.randomized_svd(K, few, rng)),
        f"blocks, m={few}": counted(lambda K, X, rng: solvers.block_jacobi(K, few)),
        "shifted": lambda system, X, y, rng: iterations(
            system, y, solvers.Shifted(system, 100 * NOISE)
        ),
        f"Nyström, m={many}": counted(lambda K, X, rng: solvers.nystrom(K, many, rng)),
        f"PITC, m={many}": counted(lambda K, X, rng: solvers.pitc(K, many, rng, size=few)),
        f"SVD, m={many}": counted(lambda K, X, rng: solvers.randomized_svd(K, many, rng)),
    }
    return rows


def counts(args: argparse.Namespace, name: str, path: Path | None, n: int, seeds: int) -> None:
    X, y = data(path, n)
    published = PUBLISHED.get(name, {}) if path is not None else {}
    lengths = [f"{length:g}" for length in args.lengths]
    columns = {"log10 length-scale": "<24"} | dict.fromkeys(lengths, "")
    title = f"{name}, n = {y.size}, {X.shape[1]} inputs, noise {NOISE}"
    table = Table(args, title, columns, keys=1)
    if table.has():
        return
    counts: dict[str, list[int]] = {scheme: [] for scheme in schemes(y.size)}
    for length in args.lengths:
        points = X / 10**length
        system = KernelSystem(exponential(points), NOISE)
        for scheme, count in schemes(y.size).items():
            of = range(1 if scheme in ("none", "shifted") else seeds)
            found = [count(system, points, y, np.random.default_rng(seed)) for seed in of]
            counts[scheme].append(int(np.median(found)))
    for scheme, row in counts.items():
        table.row(scheme, *row)
    for k, label in enumerate(("none", f"Nyström, m={math.isqrt(y.size)}")):
        if published:
            cells = [published[at][k] if at in published else None for at in args.lengths]
            table.row(f"published: {label}", *cells)


def large(args: argparse.Namespace, n: int) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(n, 2))
    y = rng.poisson(np.exp(np.sin(6 * X[:, 0]) + np.cos(5 * X[:, 0] * X[:, 1])))
    with pm.Model():
        eta, ls = pm.HalfNormal("eta", 2), pm.InverseGamma("ls", 3, 1)
        gp = pm.gp.Latent(cov_func=eta**2 * pm.gp.cov.Matern52(2, ls=ls))
        f = gp.prior("f", X, reparameterize=False)
        pm.Poisson("y", mu=pm.math.exp(f), observed=y)
        evidence = lgm.papers.laplace_by_pcg(gp, random_seed=1)
    point = {"eta": 1.0, "ls": 0.3}
    evidence.kernel(point).columns(np.arange(2))  # compiles
    begin, busy = time.perf_counter(), time.process_time()
    mode = evidence.at(point)
    seconds, busy = time.perf_counter() - begin, time.process_time() - busy
    assert mode is not None
    begin = time.perf_counter()
    mode.predict(rng.uniform(size=(10, 2)))
    predicting = time.perf_counter() - begin
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    columns = {"n": "", "rank": "", "probes": "", "log evidence": ".3f", "sd": ".3f"}
    columns |= {"Newton steps": "", "iterations": "", "s": ".0f", "processor s": ".0f"}
    columns |= {"s for ten new points": ".0f", "GiB": ".2f", "GiB of K alone": ".2f"}
    title = "Poisson counts; iterations of log|B| are included"
    found = (mode.log_evidence, mode.log_evidence_sd, mode.newton_steps, mode.iterations)
    cost = (seconds, busy, predicting, memory, 8 * n * n / 2**30)
    table = Table(args, title, columns, keys=1, part="large")
    table.row(n, evidence.rank, evidence.probes, *found, *cost)


def main() -> None:
    parser = arguments(__doc__, quick="small simulated data")
    parser.add_argument("--concrete", type=Path, help="its file")
    parser.add_argument("--power", type=Path, help="its file")
    parser.add_argument("--lengths", type=float, nargs="*", default=[-1.0, 0.0, 1.0, 2.0])
    parser.add_argument("--no-tables", action="store_true")
    parser.add_argument("--large", type=int, default=20_000, help="n, or 0 to leave it out")
    args = parser.parse_args()
    if not args.no_tables:
        counts(args, "concrete", args.concrete, 200 if args.quick else 1030, 3)
        if args.power:
            counts(args, "power", args.power, 0, 1)
    if args.large:
        large(args, 1500 if args.quick else args.large)


if __name__ == "__main__":
    main()
