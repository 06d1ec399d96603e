"""The simulated design of Filippone, Zhong and Girolami (2013), §5.1, as PyMC models.

X uniform on the unit hyper-cube, K = sigma × ARD squared exponential with sigma = exp(2) and log
length-scales uniform on [-3, -1]; priors Gamma(1, 1) on length-scales, inverse Gamma(1, 1) on
sigma. The paper does not give the ordinal model's thresholds and noise: five classes of equal
frequency and unit noise here, unless said otherwise.
"""

from __future__ import annotations

import time

from typing import Any

import arviz as az
import numpy as np
import pymc as pm

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
            lgm.CopulaVolatility("y", f=f, observed=rng.normal(scale=np.exp(f_true)))
        else:
            noisy = f_true + noise * rng.standard_normal(n)
            cutpoints = np.quantile(noisy, [0.2, 0.4, 0.6, 0.8])
            y = np.searchsorted(cutpoints, noisy)
            lgm.OrdinalProbit("y", f=f, cutpoints=cutpoints, noise=noise, observed=y)
    return model


def run(step: Any, model: pm.Model, tune: int, draws: int, seed: int) -> dict[str, Any]:
    """One chain without PyMC's driver: draws of (theta, f), statistics, seconds."""
    step.setup_chain(np.random.default_rng(seed), tune, draws)
    point = model.initial_point()
    for _ in range(tune):
        point, _ = step.step(point)
    step.stop_tuning()
    theta = np.empty((draws, step.lgm.p))
    f = np.empty((draws, step.lgm.n))
    stats = []
    begin = time.perf_counter()
    for i in range(draws):
        point, (info,) = step.step(point)
        theta[i], f[i] = step.lgm.theta_of(point), point[step.lgm.latent]
        stats.append(info)
    seconds = time.perf_counter() - begin
    means = {name: float(np.mean([s[name] for s in stats])) for name in stats[0]}
    return {"theta": theta, "f": f, "stats": means, "seconds": seconds}


def min_ess(draws: np.ndarray) -> float:
    """Smallest bulk ESS of the columns of one chain."""
    if draws.shape[1] == 0:
        return float("nan")
    data = az.from_dict({"posterior": {"x": draws[None]}})
    return float(az.ess(data)["x"].min())
