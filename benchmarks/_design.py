"""The designs of the papers as PyMC models, and how a chain is run and measured.

`simulate`: Filippone, Zhong and Girolami (2013), §5.1. X uniform on the unit hyper-cube, K = sigma
× ARD squared exponential with sigma = exp(2) and log length-scales uniform on [-3, -1]; priors
Gamma(1, 1) on length-scales, inverse Gamma(1, 1) on sigma. The paper does not give the ordinal
model's thresholds and noise: five classes of equal frequency and unit noise here, unless said
otherwise.

`balanced_probit` and `classification`: Filippone and Girolami (2014), §4.2 and §4.5. K = sigma ×
squared exponential, length-scales Gamma(1, 1/√d) by shape and rate, one for all inputs or one each.
"""

from __future__ import annotations

import os
import platform
import sys
import time

from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
import threadpoolctl

from pymc.initial_point import make_initial_point_fn

import pymc_lgm as lgm

LIKELIHOODS = ("logistic", "log_gaussian_cox", "copula_volatility", "ordinal_probit")
LABELS = {
    "logistic": "LRG",
    "log_gaussian_cox": "LCX",
    "copula_volatility": "VLT",
    "ordinal_probit": "ORD",
}


def simulate(
    likelihood: str, n: int, d: int, rng: np.random.Generator, *, infer: bool, noise: float = 1.0
) -> pm.Model:
    """One data set of the design and the model it was drawn from; theta fixed unless ``infer``."""
    X = rng.uniform(size=(n, d))
    length = np.exp(rng.uniform(-3, -1, size=d))
    sigma = np.exp(2.0)
    scaled = X / length
    distance = ((scaled[:, None] - scaled[None]) ** 2).sum(-1)
    K = sigma * np.exp(-0.5 * distance) + 1e-6 * np.eye(n)
    f_true = np.linalg.cholesky(K) @ rng.standard_normal(n)
    with pm.Model() as model:
        if infer:
            sigma = pm.InverseGamma("sigma", 1, 1, initval=sigma)
            length = pm.Gamma("length", 1, 1, shape=d, initval=np.full(d, np.exp(-2.0)))
        gp = pm.gp.Latent(cov_func=sigma * pm.gp.cov.ExpQuad(d, ls=length))
        f = gp.prior("f", X, reparameterize=False, jitter=1e-6)
        if likelihood == "logistic":
            lgm.Logistic("y", f=f, observed=rng.uniform(size=n) < 1 / (1 + np.exp(-f_true)))
        elif likelihood == "log_gaussian_cox":
            lgm.LogGaussianCox("y", f=f, observed=rng.poisson(np.exp(f_true)))
        elif likelihood == "copula_volatility":
            lgm.likelihoods.CopulaVolatility("y", f=f, observed=rng.normal(scale=np.exp(f_true)))
        else:
            noisy = f_true + noise * rng.standard_normal(n)
            cutpoints = np.quantile(noisy, [0.2, 0.4, 0.6, 0.8])
            y = np.searchsorted(cutpoints, noisy)
            lgm.OrdinalProbit("y", f=f, cutpoints=cutpoints, noise=noise, observed=y)
    return model


def classification(
    X: np.ndarray, y: np.ndarray, *, ard: bool, sigma: tuple[float, float] = (1.1, 0.1)
) -> pm.Model:
    """A probit model of two classes; ``sigma`` is the shape and rate of its Gamma prior."""
    d = X.shape[1]
    with pm.Model() as model:
        scale = pm.Gamma("sigma", *sigma)
        length = pm.Gamma("length", 1.0, 1 / np.sqrt(d), shape=d if ard else ())
        gp = pm.gp.Latent(cov_func=scale * pm.gp.cov.ExpQuad(d, ls=length))
        f = gp.prior("f", X, reparameterize=False, jitter=1e-6)
        lgm.Probit("y", f=f, observed=y)
    return model


def logistic(table: pd.DataFrame) -> pm.Model:
    """Two classes in the last column, y, with the priors of the simulated design; ARD."""
    X = standardized(table.drop(columns="y").to_numpy(float))
    d = X.shape[1]
    with pm.Model() as model:
        sigma = pm.InverseGamma("sigma", 1, 1)
        length = pm.Gamma("length", 1, 1, shape=d)
        gp = pm.gp.Latent(cov_func=sigma * pm.gp.cov.ExpQuad(d, ls=length))
        f = gp.prior("f", X, reparameterize=False, jitter=1e-6)
        lgm.Logistic("y", f=f, observed=table["y"].to_numpy(int))
    return model


def balanced_probit(n: int, d: int, rng: np.random.Generator, *, ard: bool) -> pm.Model:
    """Simulated classes of equal size. The paper gives tau = 0.35, sigma = 2.08 for d = 2 (§4.1).

    For other d the length-scale is 0.35 √(d/2), which keeps distances between inputs alike.
    """
    X = rng.uniform(size=(8 * n, d))
    scaled = X / (0.35 * np.sqrt(d / 2))
    squares = (scaled**2).sum(1)
    distance = squares[:, None] + squares - 2 * scaled @ scaled.T
    K = 2.08 * np.exp(-0.5 * distance) + 1e-6 * np.eye(8 * n)
    f = np.linalg.cholesky(K) @ rng.standard_normal(8 * n)
    y = f + rng.standard_normal(8 * n) > 0
    chosen = np.concatenate([np.flatnonzero(y == label)[: n // 2] for label in (False, True)])
    assert chosen.size == n, "a data set with next to one class: take another seed"
    return classification(X[chosen], y[chosen].astype(int), ard=ard, sigma=(1.2, 0.2))


def machine() -> str:
    """Where the numbers come from: processor, cores, GPU, versions, threads of BLAS.

    A GPU is named where a script has loaded what computes on it.
    """
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    blas = {
        f"{pool['internal_api']} {pool['version']} × {pool['num_threads']} threads"
        for pool in threadpoolctl.threadpool_info()
        if pool["user_api"] == "blas"
    }
    cupy, gpu = sys.modules.get("cupy"), ""
    if cupy is not None:
        gpu = f", {cupy.cuda.runtime.getDeviceProperties(0)['name'].decode()}"
    rivals = [name for name in ("nutpie", "numpyro", "jax") if find_spec(name) is not None]
    versions = [f"{name} {version(name)}" for name in ("pymc", "numpy", "scipy", *rivals)]
    versions += [f"cupy {cupy.__version__}"] if cupy is not None else []
    return "; ".join(
        [
            f"{os.cpu_count()} cores, {models[0] if models else platform.processor()}{gpu}",
            f"Python {platform.python_version()}, " + ", ".join(versions),
            ", ".join(sorted(blas)),
        ]
    )


def standardized(X: np.ndarray) -> np.ndarray:
    """Columns of mean 0 and variance 1; constant ones dropped."""
    X = X[:, X.std(0) > 0]
    return (X - X.mean(0)) / X.std(0)


def from_prior(model: pm.Model, seed: int) -> dict[str, np.ndarray]:
    """A starting point drawn from the prior, as the papers start their chains."""
    drawn = dict.fromkeys(model.free_RVs, "prior")
    return make_initial_point_fn(model=model, overrides=drawn)(seed)


def run(
    step: Any,
    model: pm.Model,
    tune: int,
    draws: int,
    seed: int,
    start: dict[str, np.ndarray] | None = None,
) -> dict[str, Any]:
    """One chain without PyMC's driver: draws of (theta, f), statistics, CPU seconds."""
    step.setup_chain(np.random.default_rng(seed), tune, draws)
    point = model.initial_point() if start is None else start
    for _ in range(tune):
        point, _ = step.step(point)
    step.stop_tuning()
    theta = np.empty((draws, step.lgm.p))
    f = np.empty((draws, step.lgm.n))
    stats = []
    begin = time.process_time()
    for i in range(draws):
        point, (info,) = step.step(point)
        theta[i] = step.lgm.theta_of(point)
        f[i] = step.lgm.f_of(theta[i], point)
        stats.append(info)
    seconds = time.process_time() - begin
    means = {name: float(np.mean([s[name] for s in stats])) for name in stats[0]}
    return {"theta": theta, "f": f, "stats": means, "seconds": seconds}


def min_ess(draws: np.ndarray) -> float:
    """Smallest bulk ESS of the columns of one chain; 1 if one never moved."""
    if draws.shape[1] == 0:
        return float("nan")
    if (np.ptp(draws, axis=0) == 0).any():
        return 1.0
    data = az.from_dict({"posterior": {"x": draws[None]}})
    return float(az.ess(data)["x"].min())


def sampled(
    model: pm.Model, draws: int, tune: int, chains: int, *, seed: int = 1, **how: Any
) -> Any:
    """A trace on two cores, without a word."""
    with model:
        return pm.sample(
            draws,
            tune=tune,
            chains=chains,
            cores=2,
            random_seed=seed,
            progressbar=False,
            quiet=True,
            compute_convergence_checks=False,
            **how,
        )
