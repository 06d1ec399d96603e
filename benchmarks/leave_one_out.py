"""Leave-one-out cross-validation: Pareto k of plain weights and of those of `lgm.loo`.

    python benchmarks/leave_one_out.py [--quick] [--models counts ...]
    python benchmarks/leave_one_out.py --groups

"plain" are the weights 1 / p(y_k | f, theta) of ``az.loo``. "f_k alone" integrates over the one
element of f that the observation reads, given all others. "line" is `lgm.loo`. The columns have the
percentage of observations whose Pareto k is above 0.7, the largest k, the expected log predictive
density, and the seconds of CPU that `lgm.loo` took after sampling.

With --groups, on models of sums.py. Groups are left out by integrals over their own effects,
"effects", or along a line for each, "lines". Single observations are left out along lines that move
the few latent variables near them, "near", or along lines that move all, "all". Seconds include
reading the model. Fewer than 200 draws have no k.
"""

from __future__ import annotations

import argparse
import time
import warnings

from contextlib import ExitStack, nullcontext
from types import SimpleNamespace
from unittest.mock import patch

import arviz as az
import numpy as np
import pymc as pm
import sums

from _results import Table, arguments

import pymc_lgm as lgm

from pymc_lgm import cross_validation


def smooth(rng: np.random.Generator, n: int) -> pm.Model:
    x = np.sort(rng.uniform(0, 10, n))
    y = rng.poisson(np.exp(1.5 * np.sin(x)))
    return process(x, y, ls=1.5)


def rough(rng: np.random.Generator, n: int) -> pm.Model:
    x = np.sort(rng.uniform(0, 10, n))
    y = rng.poisson(np.exp(rng.standard_normal(n)))
    return process(x, y, ls=0.1)


def process(x: np.ndarray, y: np.ndarray, ls: float) -> pm.Model:
    with pm.Model() as model:
        eta, scale = pm.HalfNormal("eta", 1), pm.LogNormal("ls", np.log(ls), 0.3)
        gp = pm.gp.Latent(cov_func=eta**2 * pm.gp.cov.Matern32(1, ls=scale))
        f = gp.prior("f", x[:, None], reparameterize=False, jitter=1e-6)
        pm.Poisson("y", pm.math.exp(f), observed=y)
    return model


def series(rng: np.random.Generator, n: int) -> pm.Model:
    trend = np.cumsum(0.2 * rng.standard_normal(n))
    y = rng.poisson(np.exp(trend + 0.8 * rng.standard_normal(n)))
    with pm.Model() as model:
        first = pm.Normal.dist(0, 1)
        x = pm.GaussianRandomWalk("x", sigma=pm.HalfNormal("s"), init_dist=first, shape=n)
        e = pm.Normal("e", 0, pm.HalfNormal("overdispersion"), shape=n)
        pm.Poisson("y", pm.math.exp(x + e), observed=y)
    return model


def areas(rng: np.random.Generator, n: int) -> pm.Model:
    side = round(np.sqrt(n))
    at = np.arange(side**2).reshape(side, side)
    pairs = [at[:, :-1].ravel(), at[:, 1:].ravel()], [at[:-1].ravel(), at[1:].ravel()]
    W = lgm.spatial.adjacency(np.hstack([np.array(each) for each in pairs]).T)
    y = rng.poisson(5.0 * np.exp(0.6 * rng.standard_normal(side**2)))
    with pm.Model() as model:
        phi = pm.ICAR("phi", W=W)
        e = pm.Normal("e", 0, pm.HalfNormal("sigma"), shape=side**2)
        level = pm.Normal("level", 0, 2)
        pm.Poisson("y", 5.0 * pm.math.exp(level + pm.HalfNormal("tau") * phi + e), observed=y)
    return model


def mean_and_scale(rng: np.random.Generator, n: int) -> pm.Model:
    """Observations read two processes: their mean, and the logarithm of their sd."""
    x = np.sort(rng.uniform(0, 10, n))
    y = 1.5 * np.sin(x) + np.exp(0.5 * np.cos(x) - 0.7) * rng.standard_normal(n)
    with pm.Model() as model:
        eta, ls = pm.HalfNormal("eta", 2), pm.InverseGamma("ls", 3, 4)
        of_mean = pm.gp.Latent(cov_func=eta**2 * pm.gp.cov.Matern52(1, ls))
        of_scale = pm.gp.Latent(cov_func=pm.gp.cov.Matern52(1, 3.0))
        f, g = of_mean.prior("f", x[:, None]), of_scale.prior("g", x[:, None])
        pm.Normal("y", f, pm.math.exp(g - 0.7), observed=y)
    return model


def classes(rng: np.random.Generator, n: int) -> pm.Model:
    """Observations read the processes of three classes."""
    X = rng.uniform(-2, 2, (n, 2))
    y = np.where(X[:, 0] > 0.5, 0, np.where(X[:, 1] > 0.3, 1, 2))
    y = np.where(rng.random(n) < 0.2, rng.integers(0, 3, n), y)
    with pm.Model() as model:
        eta, ls = pm.HalfNormal("eta", 2), pm.InverseGamma("ls", 3, 3)
        cov_func = eta**2 * pm.gp.cov.ExpQuad(2, ls)
        f = [pm.gp.Latent(cov_func=cov_func).prior(f"f{c}", X) for c in range(3)]
        lgm.Softmax("y", f=f, observed=y)
    return model


def leverage(rng: np.random.Generator, n: int) -> pm.Model:
    """Returns read the log volatility of their day and of the next."""
    with pm.Model() as model:
        sums.stock_returns(rng, n)
    return model


def extra_zeros(rng: np.random.Generator, n: int) -> pm.Model:
    """Counts of twenty groups read the rate, and the share of zeros, of their group."""
    g = rng.integers(0, 20, n)
    rate, share = np.exp(0.5 + 0.7 * rng.standard_normal(20)), rng.uniform(0.3, 1, 20)
    y = rng.binomial(1, share[g]) * rng.poisson(rate[g])
    with pm.Model() as model:
        b, sd = pm.Normal("b", 0, 2, shape=2), pm.HalfNormal("sd", 1, shape=2)
        u, v = (pm.Normal(name, b[k], sd[k], shape=20) for k, name in enumerate("uv"))
        psi = pm.math.invlogit(v[g])
        pm.ZeroInflatedPoisson("y", psi=psi, mu=pm.math.exp(u[g]), observed=y)
    return model


ONE = (smooth, rough, series, areas)
SEVERAL = (mean_and_scale, classes, leverage, extra_zeros)
MODELS = {model.__name__: model for model in (*ONE, *SEVERAL)}


def alone(likelihood, prior):
    """As a q whose Σ is the identity: the direction is e_k, and I − W Σ has to be K⁻¹."""
    q = lgm_laplace(likelihood, prior)
    posterior = SimpleNamespace(
        covariance_times=lambda x: x,
        precision_times=lambda x: x - prior.inverse_times(x),
        variances=np.ones(prior.n),
    )
    return SimpleNamespace(posterior=posterior, center=q.center, mean=prior.mean)


lgm_laplace = cross_validation.laplace


OF_GROUPS = {
    "correlated_slopes": (60, 1, 1),
    "many_groups": (500, 5, 100),
    "crossed": (None, 5, 200),
    "panel": (None, 5, 200),
}
"""Models of sums.py, their number of groups of ten if groups are left out, and ``thin`` for both
ways. Lines along all latent variables take seconds per draw for thousands of observations."""


def by_lines() -> ExitStack:
    """A context in which every line moves all latent variables."""
    stack = ExitStack()
    for kind in (cross_validation.OwnElements, cross_validation.LocalLines):
        stack.enter_context(patch.object(kind, "of", lambda *_: None))
    return stack


def groups(args: argparse.Namespace) -> None:
    """Leave out groups, and single observations, in both ways."""
    columns = {"model": "<17", "left out": "<12", "by": "<7", "draws": "", "elpd": ".1f"}
    columns |= {"k > 0.7, %": ".1f", "largest k": ".2f", "CPU s": ".1f"}
    table = Table(args, "", columns, keys=3, part="groups")
    for name, (count, *thins) in OF_GROUPS.items():
        with pm.Model():
            sums.MODELS[name](np.random.default_rng(0))
            step = lgm.PseudoMarginal()
            idata = pm.sample(500, tune=500, chains=2, step=step, random_seed=1, progressbar=False)
            ways = [("observations", ("near", "all"), None)]
            if count is not None:
                ways.insert(0, ("groups", ("effects", "lines"), np.repeat(np.arange(count), 10)))
            for left, (fast, slow), given in ways:
                for by, thin in zip((fast, slow), thins, strict=True):
                    with by_lines() if by == slow else nullcontext():
                        start = time.process_time()
                        tree = lgm.leave_one_out(idata, groups=given, thin=thin, progressbar=False)
                        seconds = time.process_time() - start
                    draws, cells = 1000 // thin, [None, None, None]
                    if draws >= 200:
                        found = az.loo(tree, pointwise=True)
                        k = found.pareto_k
                        cells = [found.elpd, 100 * float((k > 0.7).mean()), float(k.max())]
                    table.row(name, left, by, draws, *cells, seconds)


def main() -> None:
    parser = arguments(__doc__, quick="25 observations, short chains")
    parser.add_argument("--models", nargs="*", choices=MODELS, default=list(MODELS))
    parser.add_argument("--n", type=int, default=100)
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--groups", action="store_true")
    args = parser.parse_args()
    warnings.filterwarnings("ignore", message="Estimated shape parameter")
    if args.groups:
        groups(args)
        return
    if args.quick:
        args.n, args.draws = 25, 50
    columns = {"model": "<14", "n": "", "plain, %": ".0f", "f_k alone, %": ".0f", "line, %": ".0f"}
    columns |= {"plain k": ".2f", "k": ".2f", "plain elpd": ".1f", "elpd": ".1f", "se": ".1f"}
    columns |= {"CPU s": ".0f"}
    table = Table(args, "", columns, keys=2)
    for name in args.models:
        if table.has(name, args.n):
            continue
        with MODELS[name](np.random.default_rng(0), args.n):
            idata = pm.sample(
                args.draws,
                tune=args.draws,
                chains=2,
                step=lgm.PseudoMarginal(),
                random_seed=1,
                progressbar=False,
            )
            start = time.process_time()
            found = lgm.loo(idata, progressbar=False)
            seconds = time.process_time() - start
            of_one = None
            if name in ("smooth", "rough"):
                with patch.object(cross_validation, "laplace", alone):
                    of_one = lgm.loo(idata, progressbar=False)
            pm.compute_log_likelihood(idata, progressbar=False)
            plain = az.loo(idata, pointwise=True)
        shares = [
            None if each is None else 100 * float((each.pareto_k > 0.7).mean())
            for each in (plain, of_one, found)
        ]
        largest = [float(each.pareto_k.max()) for each in (plain, found)]
        table.row(name, args.n, *shares, *largest, plain.elpd, found.elpd, found.se, seconds)


if __name__ == "__main__":
    main()
