"""Small models for the exactness tests: every likelihood, theta in mean, covariance and noise.

A model of the list is built once per session, and read once for all steps on it, so that a test
takes the time of what it tests alone.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any
from unittest.mock import patch

import arviz as az
import numpy as np
import pymc as pm
import pytensor

from pytensor.compile.mode import Mode
from pytensor.graph.rewriting.db import RewriteDatabaseQuery

import pymc_lgm as lgm

from pymc_lgm.compile.graphs.functions import ONCE
from pymc_lgm.testing import joint_test

X = np.array([[0.0], [0.5], [1.4]])


def _normal(mu, sigma, size):
    return pm.Normal.dist(mu, sigma, size=size)


def _latent(n: int = 3):
    """f with hyper-parameters in its mean and its covariance.

    The mean is large against the standard deviation: a kernel that forgets it must be noticed. A mu
    that is seen to be normal would be integrated out with f.
    """
    mu = pm.CustomDist("mu", 1.2, 0.5, dist=_normal)
    ls = pm.LogNormal("ls", 0.0, 0.5)
    eta = pm.LogNormal("eta", -0.4, 0.4)
    gp = pm.gp.Latent(
        mean_func=pm.gp.mean.Constant(mu), cov_func=eta**2 * pm.gp.cov.Matern32(1, ls=ls)
    )
    return gp.prior("f", X[:n], reparameterize=False, jitter=1e-6)


def logistic(n: int = 3):
    with pm.Model() as model:
        lgm.Logistic("y", f=_latent(n), observed=pm.Data("data", [0, 1, 1][:n]))
    return model


def probit(n: int = 3):
    with pm.Model() as model:
        lgm.Probit("y", f=_latent(n), observed=pm.Data("data", [0, 1, 1][:n]))
    return model


def log_gaussian_cox(n: int = 3):
    with pm.Model() as model:
        lgm.LogGaussianCox(
            "y", f=_latent(n), exposure=2.0, offset=-0.3, observed=pm.Data("data", [0, 3, 1][:n])
        )
    return model


def copula_volatility(n: int = 3):
    with pm.Model() as model:
        lgm.likelihoods.CopulaVolatility(
            "y", f=_latent(n), observed=pm.Data("data", [0.3, -1.2, 0.8][:n])
        )
    return model


def ordinal_probit(n: int = 3):
    with pm.Model() as model:
        f = _latent(n)
        noise = pm.LogNormal("noise", -0.5, 0.3)
        lgm.OrdinalProbit(
            "y",
            f=f,
            cutpoints=[0.2, 1.2, 2.1],
            noise=noise,
            observed=pm.Data("data", [0, 3, 1][:n]),
        )
    return model


def student_t(n: int = 3):
    """A PyMC likelihood that is not log-concave, with a parameter of its own."""
    with pm.Model() as model:
        f = _latent(n)
        sigma = pm.LogNormal("sigma", -0.7, 0.4)
        pm.StudentT("y", nu=4, mu=f, sigma=sigma, observed=pm.Data("data", [0.3, -1.2, 0.8][:n]))
    return model


def negative_binomial(n: int = 3):
    """Several observations of one latent, and a dispersion parameter."""
    with pm.Model() as model:
        f = _latent(n)
        alpha = pm.LogNormal("alpha", 0.7, 0.4)
        index = np.array([0, 1, 1, 2, 0])
        index = index[index < n]
        pm.NegativeBinomial(
            "y",
            mu=pm.math.exp(f[index]),
            alpha=alpha,
            observed=pm.Data("data", np.array([0, 3, 1, 2, 5])[: len(index)]),
        )
    return model


MODELS = {
    "logistic": logistic,
    "probit": probit,
    "log_gaussian_cox": log_gaussian_cox,
    "copula_volatility": copula_volatility,
    "ordinal_probit": ordinal_probit,
    "student_t": student_t,
    "negative_binomial": negative_binomial,
}


QUICK = {
    "mode": Mode(
        linker="py",
        optimizer=RewriteDatabaseQuery(
            # The only canonical rewrites are PyMC's own, which return -inf outside a support.
            ["merge", "canonicalize_db"],
            extra_rewrites=ONCE.provided_optimizer.extra_rewrites,
        ),
    )
}
"""Nothing is compiled: for tests that evaluate a function a hundred times, not a million.

The package itself calls functions once in this mode: rewriting a graph takes longer than evaluating
it. A shape may need a draw: write `shape_of(v)`, not ``v.shape.eval()``.
"""

COMPILED = {"mode": pytensor.config.mode}
"""What users have, for `pytensor.config.change_flags` in a module that is interpreted."""


@cache
def listed(name: str, n: int = 3) -> pm.Model:
    """A model of the list. A test that replaces its data must restore them."""
    return MODELS[name](n=n)


_from_pymc = lgm.model.LatentGaussianModel.from_pymc
_read: dict[object, tuple[lgm.model.LatentGaussianModel, pm.Model]] = {}


@contextmanager
def reading_once(compiled: bool = False) -> Iterator[None]:
    """A context in which steps on the same model share its reading and its compiled functions.

    They share the values of variables of other steps, too, so two steps that must both notice that
    these have moved cannot be made here. ``compiled`` is for tests that evaluate a model thousands
    of times. All other functions, such as draws from the prior in a joint test, are interpreted.
    """

    def once(model, latent=None, theta=None, *, initial_point=None, compile_kwargs=None):
        key = (id(model), str(latent), str(theta), compiled)
        if key not in _read:
            kwargs = COMPILED if compiled else QUICK
            _read[key] = _from_pymc(model, latent, theta, compile_kwargs=kwargs), model
        return _read[key][0]

    with (
        patch.object(lgm.model.LatentGaussianModel, "from_pymc", once),
        pytensor.config.change_flags(**QUICK),
    ):
        yield


def build(sampler, model, *, compiled=False, **options):
    """``sampler(model=model, **options)`` for a model that all tests read and compile once.

    ``model`` is one of PyMC, or the name of one of the list.
    """
    model = listed(model) if isinstance(model, str) else model
    with reading_once(compiled):
        return sampler(model=model, **options)


def joint_law(sampler, model, *, seed=5, compiled=True, options=None, **how):
    """`joint_test` of ``sampler(model=model, **options)``; all tests read the model once."""
    with reading_once(compiled):
        step = sampler(model=model, **(options or {}))
        return joint_test(step, model, rng=np.random.default_rng(seed), **how)


def gap_to_nuts(model: pm.Model, functions: list[tuple[str, Callable[[Any], Any]]]) -> float:
    """The largest difference of means between the default and NUTS, in its standard errors.

    The means are those of functions of variables, which are given by name.
    """
    with model:
        runs = [
            pm.sample(
                1500, tune=1000, chains=2, cores=1, step=step, random_seed=1, progressbar=False,
                compute_convergence_checks=False,
            )
            for step in (lgm.PseudoMarginal(), pm.NUTS(target_accept=0.95))
        ]  # fmt: skip
    gaps = []
    for name, function in functions:
        one, two = (function(run.posterior[name].to_numpy()).reshape(2, 1500, -1) for run in runs)
        errors = [np.asarray(az.mcse(each)) for each in (one, two)]
        gaps.append(np.abs(one.mean((0, 1)) - two.mean((0, 1))) / np.hypot(*errors))
    return float(np.concatenate(gaps).max())
