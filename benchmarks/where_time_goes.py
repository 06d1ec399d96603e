"""Where the time of a draw goes: shares of the default sampler's draws, after tuning.

    python benchmarks/where_time_goes.py [--quick] [--n 100 400 800] [--d 2]

A timer interrupts the process as it computes and looks which function of the package is at work, or
has called what is: nothing is slowed down, unlike by a profiler that sees each call. Simulated
designs of `_design`, one chain.
"""

from __future__ import annotations

import signal
import time

from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from _design import LABELS, LIKELIHOODS, run, simulate
from _results import Table, arguments

import pymc_lgm as lgm

PACKAGE = str(Path(lgm.__file__).parent)

PARTS = {
    "linalg.py:factorize": "factors of K and B",
    "gaussian/dense.py:of": "factors of K and B",
    "linalg.py:inverse": "inverses",
    "linalg.py:inverse_times": "products and solves, O(n²)",
    "linalg.py:inverse_factor": "inverses",
    "linalg.py:_inverse_triangle": "inverses",
    "linalg.py": "products and solves, O(n²)",
    "gaussian": "products and solves, O(n²)",
    "model/functions.py:cov": "K(theta)",
    "model": "likelihood and prior",
    "approximations/copula.py": "skewed marginals",
    "approximations/importance.py": "importance draws",
    "approximations/emulator.py": "emulator",
    "moves/theta/emulated.py": "emulator",
    "moves/theta/on_emulator.py": "emulator",
    "approximations": "q",
    "": "the rest, in Python",
}
"""Files and functions of the package, and what they are for; the longest name that fits counts."""

COLUMNS = {"milliseconds": "<24", "tuning": ".2f", "of tuning": ".0%"}
COLUMNS |= {"draws": ".2f", "of draws": ".0%"}


class Watch:
    """Counts at ticks of the process's clock which part is at work."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.seconds = 0.0

    def __enter__(self) -> Watch:
        self.seconds = -time.process_time()
        signal.signal(signal.SIGPROF, self._look)
        signal.setitimer(signal.ITIMER_PROF, 1e-3, 1e-3)
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        self.seconds += time.process_time()

    def _look(self, _: int, frame: FrameType | None) -> None:
        while frame is not None and not frame.f_code.co_filename.startswith(PACKAGE):
            frame = frame.f_back
        if frame is not None:
            file = frame.f_code.co_filename.removeprefix(PACKAGE).lstrip("/")
            name = f"{file}:{frame.f_code.co_name}"
            self.counts[PARTS[max(filter(name.startswith, PARTS), key=len)]] += 1


def main() -> None:
    parser = arguments(__doc__, quick="n = 50, few draws")
    parser.add_argument("--models", nargs="+", choices=LIKELIHOODS, default=["logistic"])
    parser.add_argument("--n", type=int, nargs="+", default=[100, 400, 800])
    parser.add_argument("--d", type=int, default=2)
    parser.add_argument("--tune", type=int, default=1000)
    args = parser.parse_args()
    if args.quick:
        args.n, args.tune = [50], 100
    for likelihood in args.models:
        for n in args.n:
            model = simulate(likelihood, n, args.d, np.random.default_rng(0), infer=True)
            results = Table(args, f"{LABELS[likelihood]} n = {n}, d = {args.d}", COLUMNS, keys=1)
            if results.has():
                continue
            step, draws = lgm.PseudoMarginal(model=model), max(100, 100_000 // n)
            run(step, model, 20, 5, seed=0)  # compiles
            step.setup_chain(np.random.default_rng(1), args.tune, draws)
            point, columns = model.initial_point(), []
            for length in (args.tune, draws):
                with Watch() as watch:
                    point = moved(step, point, length)
                ms = 1e3 * watch.seconds / length / watch.counts.total()
                columns.append({part: ms * count for part, count in watch.counts.items()})
                step.stop_tuning()
            show(results, columns)


def moved(step: lgm.PseudoMarginal, point: dict[str, Any], draws: int) -> dict[str, Any]:
    for _ in range(draws):
        point, _ = step.step(point)
    return point


def show(table: Table, columns: list[dict[str, float]]) -> None:
    tuning, drawing = columns
    sums = [sum(column.values()) for column in columns]
    for part in sorted(tuning | drawing, key=lambda part: -drawing.get(part, 0.0)):
        ms = [column.get(part, 0.0) for column in columns]
        table.row(part, ms[0], ms[0] / sums[0], ms[1], ms[1] / sums[1])
    table.row("together", sums[0], None, sums[1])


if __name__ == "__main__":
    main()
