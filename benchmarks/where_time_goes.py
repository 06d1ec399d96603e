"""Where the time of a draw goes: shares of the default sampler's draws, after tuning.

    python benchmarks/where_time_goes.py [--quick] [--n 100 400 800] [--d 2]

A timer interrupts the process as it computes and looks which function of the package is at work, or
has called what is: nothing is slowed down, unlike by a profiler that sees each call. Simulated
designs of `_design`, one chain.
"""

from __future__ import annotations

import argparse
import signal
import time

from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from _design import LABELS, LIKELIHOODS, machine, run, simulate

import pymc_lgm as lgm

PACKAGE = str(Path(lgm.__file__).parent)

PARTS = {
    "linalg.py:factorize": "factors of K and B",
    "priors/dense.py:condition": "factors of K and B",
    "linalg.py:inverse": "inverses",
    "linalg.py:inverse_times": "products and solves, O(n²)",
    "linalg.py:inverse_factor": "inverses",
    "linalg.py:_inverse_triangle": "inverses",
    "linalg.py": "products and solves, O(n²)",
    "priors": "products and solves, O(n²)",
    "model/functions.py:cov": "K(theta)",
    "model": "likelihood and prior",
    "approximations/copula.py": "skewed marginals",
    "approximations/importance.py": "importance draws",
    "approximations/emulator.py": "emulator",
    "kernels/theta/emulated.py": "emulator",
    "approximations": "q",
    "": "the rest, in Python",
}
"""Files and functions of the package, and what they are for; the longest name that fits counts."""


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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="n = 50, few draws")
    parser.add_argument("--models", nargs="+", choices=LIKELIHOODS, default=["logistic"])
    parser.add_argument("--n", type=int, nargs="+", default=[100, 400, 800])
    parser.add_argument("--d", type=int, default=2)
    parser.add_argument("--tune", type=int, default=1000)
    args = parser.parse_args()
    if args.quick:
        args.n, args.tune = [50], 100
    print(machine())
    for likelihood in args.models:
        for n in args.n:
            model = simulate(likelihood, n, args.d, np.random.default_rng(0), infer=True)
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
            show(f"{LABELS[likelihood]} n = {n}, d = {args.d}", columns)


def moved(step: lgm.PseudoMarginal, point: dict[str, Any], draws: int) -> dict[str, Any]:
    for _ in range(draws):
        point, _ = step.step(point)
    return point


def show(title: str, columns: list[dict[str, float]]) -> None:
    tuning, drawing = columns
    print(f"\n{title:36}{'tuning':>16}{'draws':>16}")
    for part in sorted(tuning | drawing, key=lambda part: -drawing.get(part, 0.0)):
        row = f"{part:36}"
        for column in columns:
            ms = column.get(part, 0.0)
            row += f"{ms:9.2f} ms{ms / sum(column.values()):5.0%}"
        print(row)
    print(
        f"{'together':36}" + "".join(f"{sum(c.values()):9.2f} ms{'':5}" for c in columns),
        flush=True,
    )


if __name__ == "__main__":
    main()
