"""O(n³) operations on a GPU: `use_device` compared with LAPACK with all its threads.

    python benchmarks/device.py [--quick] [--n 1000 2000 ...] [--draws-n 4000 ...] [--tune 12]

"verbs": seconds of each, medians, on K of the simulated design of `_design` with theta as it was
drawn, and W of a logistic likelihood; the error is the largest difference between the two in units
of the largest element. "draws": one chain of the default is tuned briefly with the device. Then it
continues twice from the same state with the same random numbers, with and without the device. A
part of the seconds of a draw is K(theta), and its transfer to the device. Without a GPU the script
says so; with `--quick` NumPy then stands in for CuPy.
"""

from __future__ import annotations

import argparse
import sys
import time

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np

from _design import simulate
from _results import Table, arguments

import pymc_lgm as lgm

from pymc_lgm.gaussian import DensePrior
from pymc_lgm.gaussian.dense import DensePosterior
from pymc_lgm.linalg import CholeskyFactor, factorize
from pymc_lgm.on_device import Device, OnDevice, by_cupy, by_numpy, use_device

VERBS = {"n": "", "verb": "<22", "CPU": ".4f", "GPU": ".4f", "ratio": ".1f", "error": ".0e"}
DRAWS = {"n": "", "by": "<3", "seconds a draw": ".2f", "ratio": ".1f", "operations": ".1f"}
DRAWS |= {"K(theta)": ".2f", "sent": ".2f", "the rest": ".2f", "difference": ".0e"}


def median(call: Callable[..., Any], *prepare: Callable[[], Any]) -> tuple[Any, float]:
    """Result of the first call, and the median seconds of 3 or more later calls."""
    result, times = call(*(make() for make in prepare)), []
    while (len(times) < 3 or sum(times) < 0.2) and sum(times) < 10.0:
        given = [make() for make in prepare]
        begin = time.perf_counter()
        call(*given)
        times.append(time.perf_counter() - begin)
    return result, float(np.median(times))


def seen(result: Any, x: np.ndarray) -> np.ndarray:
    """Numbers that tell one result from another."""
    if isinstance(result, CholeskyFactor):
        return result.multiply(x)
    return result.weighted_residual(x) if isinstance(result, DensePosterior) else result


def verbs(args: argparse.Namespace, device: Device, n: int) -> None:
    """Print a row for each verb."""
    table = Table(args, "seconds of a verb", VERBS, keys=2, part="verbs")
    if table.has(n):
        return
    rng = np.random.default_rng(0)
    scaled = rng.uniform(size=(n, 2)) / np.exp(rng.uniform(-3, -1, size=2))
    K = (scaled**2).sum(1) + (scaled**2).sum(1)[:, None] - 2.0 * scaled @ scaled.T
    K = np.exp(2.0 - 0.5 * K) + 1e-6 * np.eye(n)
    W, x, columns = rng.uniform(0.02, 0.25, n), rng.standard_normal(n), rng.standard_normal((n, 32))
    columns, copied = np.asfortranarray(columns), lambda: K.copy()
    here = DensePrior(np.zeros(n), K.copy())
    with use_device(device):
        there = DensePrior(np.zeros(n), K)
    held = there._matrix.on_device

    row = Rows(table, n, x)
    row("K sent", None, lambda: sent_at_once(device, K) and None)
    row("factor of K", (factorize, copied), held.factor)
    row("factor of K, sent", None, lambda: device.put(K).factor())
    ours, theirs = row("condition on W", lambda: here.condition(W), lambda: there.condition(W))
    for name, v in {"1 column": x, "32 columns": columns}.items():
        row(f"K x, {name}", *(lambda p=p, v=v: p.covariance_times(v) for p in (here, there)))
        row(f"L⁻¹ x, {name}", *(lambda p=p, v=v: p.solve(v) for p in (here, there)))
    row("diagonal of B⁻¹", *(lambda q=q: q._B.inverse_diagonal() for q in (ours, theirs)))
    row("B⁻¹", *(lambda q=q: q._B.inverse() for q in (ours, theirs)))


class Rows:
    """Rows of a table: time both, compare what they return."""

    def __init__(self, table: Table, n: int, x: np.ndarray):
        self.table, self.n, self.x, self.last = table, n, x, (None, 0.0)

    def __call__(self, name: str, cpu: Any, gpu: Callable[[], Any]) -> tuple[Any, Any]:
        """``cpu``: a call, or one and what makes its argument anew; None: as in the row before."""
        if cpu is not None:
            self.last = median(*cpu) if isinstance(cpu, tuple) else median(cpu)
        ours, ours_s = self.last
        theirs, theirs_s = median(gpu)
        if theirs is None:
            self.table.row(self.n, name, None, theirs_s)
            return None, None
        expected, actual = seen(ours, self.x), seen(theirs, self.x)
        error = np.abs(actual - expected).max() / np.abs(expected).max()
        self.table.row(self.n, name, ours_s, theirs_s, ours_s / theirs_s, error)
        return ours, theirs


@contextmanager
def clock(owner: Any, name: str) -> Iterator[list[float]]:
    """Seconds that calls take in the block."""
    spent, call = [], getattr(owner, name)

    def watched(*given: Any) -> Any:
        begin = time.perf_counter()
        result = call(*given)
        spent.append(time.perf_counter() - begin)
        return result

    with patch.object(owner, name, watched):
        yield spent


def draws(args: argparse.Namespace, device: Device, n: int) -> None:
    """Print a row for the GPU and one for the CPU."""
    title = f"a draw, move={args.move!r}, logistic, d = 2, after {args.tune} draws of tuning"
    table = Table(args, title, DRAWS, keys=2, part="draws")
    if table.has(n):
        return
    begin = time.perf_counter()
    model = simulate("logistic", n, 2, np.random.default_rng(0), infer=True)
    step, point = lgm.PseudoMarginal(model=model, move=args.move), model.initial_point()
    step.setup_chain(np.random.default_rng(1), args.tune, args.draws)
    print(f"n = {n}: a model in {time.perf_counter() - begin:.0f} s", file=sys.stderr, flush=True)
    with use_device(device):
        for _ in range(args.tune):
            point, _ = step.step(point)
    step.stop_tuning()
    print(f"n = {n}: tuned by {time.perf_counter() - begin:.0f} s", file=sys.stderr, flush=True)
    tuned = step.sampling_state
    runs = {}
    with use_device(device):
        runs["GPU"] = timed(step, tuned, point, args.draws)
    runs["CPU"] = timed(step, tuned, point, args.draws)
    ends = [end for end, *_ in runs.values()]
    largest = [max(np.abs(end[name]).max() for end in ends) for name in ends[0]]
    apart = [np.abs(ends[0][name] - ends[1][name]).max() for name in ends[0]]
    difference = max(a / b for a, b in zip(apart, largest, strict=True))
    for by, (_, seconds, ops, cov, sent) in runs.items():
        rest = seconds - cov - sent
        ratio = runs["CPU"][1] / seconds
        table.row(n, by, seconds, ratio, ops, cov, sent or None, rest, difference)


def timed(
    step: Any, tuned: Any, point: dict[str, Any], n_draws: int
) -> tuple[dict[str, Any], float, float, float, float]:
    """Where a chain is after some draws; seconds, operations, and seconds of parts of a draw."""
    step.sampling_state, ops = tuned, 0
    point, _ = step.step(point)  # its first theta is computed anew
    with (
        patch.object(Device, "put", sent_at_once),
        clock(Device, "put") as sent,
        clock(step.lgm, "cov") as cov,
    ):
        begin = time.perf_counter()
        for _ in range(n_draws):
            point, (stats,) = step.step(point)
            ops += stats["cubic_ops"]
        seconds = time.perf_counter() - begin
    return point, *(x / n_draws for x in (seconds, ops, sum(cov), sum(sent)))


def sent_at_once(device: Device, C: np.ndarray) -> OnDevice:
    """Replacement of `Device.put`; the product waits until C is on the device."""
    held = OnDevice(C, device)
    held.times(np.ones(len(C)))
    return held


def main() -> None:
    parser = arguments(__doc__, quick="n = 100, few draws")
    parser.add_argument("--n", type=int, nargs="*", default=[1000, 2000, 4000, 8000, 16000])
    parser.add_argument("--draws-n", type=int, nargs="*", default=[1000, 4000, 8000, 16000])
    parser.add_argument("--move", default="metropolis", help="of `lgm.PseudoMarginal`")
    parser.add_argument("--tune", type=int, default=12)
    parser.add_argument("--draws", type=int, default=5)
    args = parser.parse_args()
    if args.quick:
        args.n, args.draws_n, args.tune, args.draws = [100], [100], 10, 3
    try:
        device = by_cupy(rows=2)
    except ImportError as error:
        print(f"No GPU can be used here. {error}")
        if not args.quick:
            return
        print("NumPy stands in for it: the columns of the GPU say nothing.")
        device = by_numpy(rows=2)
    for n in args.n:
        verbs(args, device, n)
    for n in args.draws_n:
        draws(args, device, n)


if __name__ == "__main__":
    main()
