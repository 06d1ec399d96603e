"""Deep Gaussian processes from random features, by `pymc.fit`: error rate and log density.

    python benchmarks/deep.py [--quick] [--mnist FILE] [--layers 1 2 3] [--width 10]
        [--features 100] [--iterations 10000] [--rate 0.01] [--seed 1]

One layer is a Gaussian process a class; with two, those read `--width` processes of the inputs, and
with three, processes of these; where "X to" says all, the inputs are handed on to every layer. Each
layer is random features of a squared exponential with a length-scale and an amplitude that are
fitted with the weights. Stochastic gradients of mean-field ADVI, a draw and 200 rows a step.
Seconds are with compilation.

The data are scikit-learn's 1797 digits of 8 x 8 pixels where it is installed, else 1200 simulated
points in three rings, or the MNIST of a csv file whose rows are a label and 784 pixels, its last
10 000 rows held out; of the others a quarter is. "log p" is the mean log density of a held-out
label, "bound" the evidence lower bound a row, "MNIST" the error of Cutajar et al. (2017) there.
"""

from __future__ import annotations

import argparse
import time

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm

from _results import Table, arguments
from scipy.special import log_softmax, logsumexp

import pymc_lgm as lgm

PUBLISHED = {2: 0.0196, 3: 0.0207}
"""Errors of Cutajar et al. (2017) on MNIST, with 500 features and 50 processes a layer."""
BATCH = 200
Data = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def rings(rng: np.random.Generator, n: int = 1200) -> Data:
    y = rng.integers(3, size=n)
    angle, radius = rng.uniform(0, 2 * np.pi, n), 1 + y + 0.3 * rng.standard_normal(n)
    X = radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    return apart(X, y, n // 4)


def digits(rng: np.random.Generator) -> Data:
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    order = rng.permutation(len(X))
    return apart(X[order] / 16.0, y[order], len(X) // 4)


def mnist(path: Path) -> Data:
    table = pd.read_csv(path, header=None).to_numpy()
    return apart(table[:, 1:] / 255.0, table[:, 0], 10_000)


def apart(X: np.ndarray, y: np.ndarray, held_out: int) -> Data:
    # PyMC casts other integers, and takes no cast of a minibatch for data.
    y = y.astype("int32")
    return X[:-held_out], y[:-held_out], X[-held_out:], y[-held_out:]


def layer(name: str, d: int, scale: float, args: argparse.Namespace) -> Any:
    """Random features of d inputs, whose distances are of the order of ``scale``."""
    ls = pm.LogNormal(f"{name}_ls", np.log(scale), 0.5)
    amplitude = pm.LogNormal(f"{name}_amplitude", 0.0, 1.0)
    cov = amplitude**2 * pm.gp.cov.ExpQuad(d, ls=ls)
    return lgm.papers.RandomFeatures(args.features, cov_func=cov)


def fit(
    data: Data, layers: int, fed: bool, args: argparse.Namespace, rng: np.random.Generator
) -> Any:
    """Log densities of all labels in held-out rows, the bound, weights, and seconds."""
    X, y, X_new, _ = data
    begin, spread = time.perf_counter(), np.sqrt(2.0 * X.var(axis=0).sum())
    start, gps = {}, []
    with pm.Model() as model:
        x, labels = pm.Minibatch(X, y, batch_size=BATCH)
        read, d, scale = x, X.shape[1], spread
        for k in range(layers):
            last = k == layers - 1
            name, width = ("f", int(y.max()) + 1) if last else (f"hidden{k + 1}", args.width)
            gps.append(layer(name, d, scale, args))
            read = f = gps[-1].prior(name, read, n_outputs=width)
            # From zero, with the noise of the prior, deep layers do not begin to learn.
            shape = model[f"{name}_weights"].type.shape
            start[f"{name}_weights"] = rng.standard_normal(shape)
            d, scale = width, np.sqrt(2.0 * width)
            if fed and not last:
                read, d = pm.math.concatenate([f, x], axis=1), width + X.shape[1]
                scale = np.hypot(scale, spread)
        lgm.Softmax("y", f=f.T, observed=labels, total_size=len(X))
        fitted = pm.fit(
            args.iterations,
            obj_optimizer=pm.adam(learning_rate=args.rate),
            start=start,
            start_sigma=dict.fromkeys(start, 0.1),
            random_seed=args.seed,
            progressbar=False,
        )
        at = X_new
        for k, gp in enumerate(gps):
            f_new = gp.conditional(f"f_new{k}", at)
            at = pm.math.concatenate([f_new, X_new], axis=1) if fed else f_new
    seconds = time.perf_counter() - begin
    drawn = pm.sample_posterior_predictive(
        fitted.sample(100, random_seed=args.seed),
        model=model,
        var_names=[f_new.name],
        progressbar=False,
        random_seed=args.seed,
    )
    f_new = drawn.posterior_predictive[f_new.name].to_numpy()[0]
    log_p = logsumexp(log_softmax(f_new, axis=-1), axis=0) - np.log(len(f_new))
    weights = sum(each.size for each in start.values())
    # PyMC scales the cost to the size of a minibatch.
    bound = -np.mean(fitted.hist[-len(fitted.hist) // 10 :]) / BATCH
    return log_p, bound, weights, seconds


def main() -> None:
    """Print a row for each number of layers."""
    parser = arguments(__doc__, quick="simulated rings, few iterations")
    parser.add_argument("--mnist", type=Path, help="csv file: a label and 784 pixels a row")
    parser.add_argument("--layers", nargs="*", type=int, default=[1, 2, 3])
    parser.add_argument("--width", type=int, default=10, help="processes of a hidden layer")
    parser.add_argument("--features", type=int, default=100)
    parser.add_argument("--iterations", type=int, default=10_000)
    parser.add_argument("--rate", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if args.quick:
        args.layers, args.features, args.iterations = [1, 2], 10, 200
    rng = np.random.default_rng(args.seed)
    if args.mnist:
        name, data = "MNIST", mnist(args.mnist)
    elif find_spec("sklearn") and not args.quick:
        name, data = "digits", digits(rng)
    else:
        name, data = "rings", rings(rng)
    title = f"{name}: {len(data[0])} rows to learn from, {len(data[2])} held out"
    columns = {"layers": "", "X to": "<5", "weights": "", "error": ".4f", "MNIST": ".4f"}
    table = Table(args, title, columns | {"log p": ".3f", "bound": ".3f", "s": ".0f"}, keys=2)
    for layers, fed in [(k, fed) for k in args.layers for fed in (False, True)[: 1 + (k > 1)]]:
        to = "all" if fed else "first"
        if table.has(layers, to):
            continue
        log_p, bound, weights, seconds = fit(data, layers, fed, args, rng)
        y, published = data[3], PUBLISHED.get(layers)
        error, density = np.mean(log_p.argmax(axis=1) != y), np.mean(log_p[np.arange(y.size), y])
        table.row(layers, to, weights, error, published, density, bound, seconds)


if __name__ == "__main__":
    main()
