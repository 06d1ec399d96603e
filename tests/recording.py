"""Seeded traces of every sampler, before and after a change that shall change no draw.

    python tests/recording.py build/recording.npz    # the first time: record
    python tests/recording.py build/recording.npz    # from then on: compare

Each row of `samplers.CASES`, and some more, runs on the toys and on the same with forty latents;
the default and ASIS run on a PyMC model, too. What is recorded is every draw of theta and f with
all of its statistics. Two processors round differently: record and compare on one. Compiled code
may round differently if it was compiled after other code, and Numba's keys contain the path: record
both times in a checkout at the same path, with an empty `NUMBA_CACHE_DIR` and `PYTHONHASHSEED=0`.
"""

from __future__ import annotations

import sys

from pathlib import Path

import numpy as np

from models import build, listed
from samplers import CASES, elements_of, label
from toys import TOYS, Chain, Toy

import pymc_lgm as lgm

TUNE, DRAWS = 150, 50
MORE = [
    (lgm.PseudoMarginal, {"importance": lgm.Importance(copula=False), "interweave": False}),
    (lgm.PseudoMarginal, {"importance": lgm.Importance(defensive=0.1, antithetic=False)}),
    (lgm.papers.ApproximateMarginal, {}),
    (lgm.PseudoMarginal, {"sites": "optimized", "approximation": "laplace"}),
]


def middle(name: str) -> Toy:
    """The toy of that name with forty latents."""
    n, toy = 40, TOYS[name](scaled=True)
    rng = np.random.default_rng(3)
    toy.n, toy.x = n, np.linspace(0.0, 6.0, n)
    toy.distance = np.abs(toy.x[:, None] - toy.x)
    if name == "errors":
        toy.index = np.arange(n)
        toy.sums = np.eye(n)
    toy.y = toy.draw_y(rng, 1.0 + np.sin(toy.x), toy.prior_mean)
    return toy


def chain_on(toy: Toy, case: tuple, name: str) -> dict[str, np.ndarray]:
    """Draws and statistics of a chain, tuning included."""
    chain = Chain.start(elements_of(case, name), toy, np.random.default_rng(7))
    chain.tunings = [e.start(chain.state, TUNE) for e in chain.elements]
    rows = []
    for i in range(TUNE + DRAWS):
        stats = chain.step(tune=i < TUNE)
        rows.append({"theta": chain.state.theta, "f": chain.state.f} | stats)
    return {key: np.array([row[key] for row in rows]) for key in rows[0]}


def chain_of(name: str, sampler: type) -> dict[str, np.ndarray]:
    """The same of a step method on a PyMC model."""
    step = build(sampler, name, compiled=True)
    step.setup_chain(np.random.default_rng(7), TUNE, DRAWS)
    point, rows = listed(name).initial_point(), []
    for i in range(TUNE + DRAWS):
        if i == TUNE:
            step.stop_tuning()
        point, (stats,) = step.step(point)
        rows.append(point | stats)
    return {key: np.array([row[key] for row in rows]) for key in rows[0]}


def record() -> dict[str, np.ndarray]:
    recorded = {}
    for name in TOYS:
        for size, toy in (("small", TOYS[name](scaled=True)), ("middle", middle(name))):
            for case in [*CASES, *MORE]:
                if size == "middle" and case[1].get("metric") == "identity":
                    continue  # it hardly moves
                chain = chain_on(toy, case, name)
                recorded |= {f"{label(case)} / {name}, {size} / {k}": v for k, v in chain.items()}
    for name in ("log_gaussian_cox", "student_t"):
        for sampler in (lgm.PseudoMarginal, lgm.ASIS):
            chain = chain_of(name, sampler)
            recorded |= {f"{sampler.__name__} / {name} / {k}": v for k, v in chain.items()}
    return recorded


def main() -> None:
    path = Path(sys.argv[1])
    now = record()
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(path, **now)
        print(f"{len(now)} arrays recorded in {path}")
        return
    before, same = np.load(path), 0
    for key in sorted({*now, *before.files}):
        if key not in now or key not in before.files:
            print(f"{'gone' if key not in now else 'new':>10}  {key}")
        elif now[key].tobytes() == before[key].tobytes():
            same += 1
        else:
            a, b = np.asarray(now[key], float), np.asarray(before[key], float)
            changed = (a != b) & ~(np.isnan(a) & np.isnan(b))
            first = np.flatnonzero(changed.reshape(len(a), -1).any(axis=1))[0]
            error = np.nanmax(np.abs(a - b)[first] / (1e-3 + np.abs(b[first])))
            print(f"{error:10.1e}  {key}, from draw {first}")
    print(f"{same} of {len(before.files)} arrays are the same to the last bit")


if __name__ == "__main__":
    main()
