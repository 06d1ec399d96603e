"""What is declared to be log-concave is, wherever one looks; what bends otherwise is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

from pymc.distributions.censored import CensoredRV

import pymc_lgm as lgm

from pymc_lgm.compile.graphs.functions import STABLE
from pymc_lgm.model.log_concave import (
    KINDS,
    KINDS_OF_CENSORED,
    are_bent_slowly,
    are_log_concave,
    are_quadratic,
)

pytestmark = pytest.mark.usefixtures("interpreted")

f, free = pt.vector("f", shape=(6,)), pt.scalar("free")
ROWS, CUTS = f.reshape((2, 3)), np.array([-0.5, 0.3, 1.0])
POSITIVE, COUNTS = np.array([0.1, 0.7, 1.3, 2.0, 5.0, 30.0]), np.array([0, 1, 2, 3, 7, 40])

CENSORED = np.array([0.7, 0.7, 1.3, 2.0, 5.0, 5.0])
"""Observations at the bounds, and between them."""

CONCAVE: dict[str, tuple[Any, Any]] = {
    "normal": (pm.Normal.dist(2.0 * f - 1.0, free), POSITIVE),
    "multivariate normal": (
        pm.MvNormal.dist(2.0 * ROWS - 1.0, cov=np.eye(3) + free),
        POSITIVE.reshape((2, 3)),
    ),
    "volatility": (pm.Normal.dist(0.0, pt.exp(f / 2)), POSITIVE),
    "precision": (pm.Normal.dist(0.0, tau=pt.exp(f)), POSITIVE),
    "lognormal": (pm.LogNormal.dist(f, free), POSITIVE),
    "laplace": (pm.Laplace.dist(f, free), POSITIVE),
    "laplace, scale": (pm.Laplace.dist(0.0, pt.exp(f)), POSITIVE),
    "logistic": (pm.Logistic.dist(f, free), POSITIVE),
    "gumbel": (pm.Gumbel.dist(f, free), POSITIVE),
    "moyal": (pm.Moyal.dist(f, free), POSITIVE),
    "skew normal": (pm.SkewNormal.dist(alpha=-2.0, mu=f, sigma=free), POSITIVE),
    "exponential and normal": (pm.ExGaussian.dist(f, free, nu=0.7), POSITIVE),
    "quantile": (pm.AsymmetricLaplace.dist(mu=f, b=free, q=0.8), POSITIVE),
    "truncated normal": (pm.TruncatedNormal.dist(f, free, lower=0.0), POSITIVE),
    "truncated on both sides": (pm.TruncatedNormal.dist(f, free, lower=0, upper=31), POSITIVE),
    "half Cauchy": (pm.HalfCauchy.dist(pt.exp(f)), POSITIVE),
    "half Student": (pm.HalfStudentT.dist(nu=free, sigma=pt.exp(f)), POSITIVE),
    "pareto": (pm.Pareto.dist(alpha=pt.exp(f), m=0.1), POSITIVE),
    "Cauchy, scale": (pm.Cauchy.dist(0.0, pt.exp(f)), POSITIVE),
    "Student, scale": (pm.StudentT.dist(nu=free, mu=0.5, sigma=pt.exp(f)), POSITIVE),
    "half normal": (pm.HalfNormal.dist(pt.exp(f)), POSITIVE),
    "gamma": (pm.Gamma.dist(alpha=free, beta=free / pt.exp(f)), POSITIVE),
    "inverse gamma": (pm.InverseGamma.dist(free, beta=pt.exp(f)), POSITIVE),
    "weibull": (pm.Weibull.dist(free, pt.exp(f)), POSITIVE),
    "exponential": (pm.Exponential.dist(lam=3.0 * pt.exp(f) ** 2), POSITIVE),
    "poisson": (pm.Poisson.dist(free * pt.exp(f) / 2.0), COUNTS),
    "logit": (pm.Bernoulli.dist(logit_p=f), COUNTS % 2),
    "probit": (pm.Bernoulli.dist(p=pm.math.invprobit(f)), COUNTS % 2),
    "complementary log-log": (pm.Bernoulli.dist(p=1 - pt.exp(-pt.exp(f))), COUNTS % 2),
    "geometric": (pm.Geometric.dist(pm.math.sigmoid(f)), COUNTS + 1),
    "binomial": (pm.Binomial.dist(n=50, logit_p=f), COUNTS),
    "negative binomial": (pm.NegativeBinomial.dist(mu=pt.exp(f), alpha=free), COUNTS),
    "softmax": (pm.Categorical.dist(logit_p=pt.concatenate([ROWS, [[0.0], [0.0]]], 1)), [3, 1]),
    "ordered": (pm.OrderedLogistic.dist(eta=f, cutpoints=CUTS), COUNTS % 4),
    "multinomial": (pm.Multinomial.dist(5, p=pt.special.softmax(ROWS, axis=-1)), [[5, 0, 0]] * 2),
    "censored normal": (pm.Censored.dist(pm.Normal.dist(f, free), 0.7, 5.0), CENSORED),
    "censored lognormal": (pm.Censored.dist(pm.LogNormal.dist(f, free), 0.7, 5.0), CENSORED),
    "censored laplace": (pm.Censored.dist(pm.Laplace.dist(f, free), None, 5.0), CENSORED),
    "censored logistic": (pm.Censored.dist(pm.Logistic.dist(f, free), 0.7, 5.0), CENSORED),
    "censored gumbel": (pm.Censored.dist(pm.Gumbel.dist(f, free), 0.7, 5.0), CENSORED),
    "censored half normal": (
        pm.Censored.dist(pm.HalfNormal.dist(pt.exp(f)), 0.7, 5.0),
        CENSORED,
    ),
    "censored gamma": (
        pm.Censored.dist(pm.Gamma.dist(alpha=free, beta=pt.exp(-f)), 0.7, 5.0),
        CENSORED,
    ),
    "censored inverse gamma": (
        pm.Censored.dist(pm.InverseGamma.dist(free, beta=pt.exp(f)), 0.7, 5.0),
        CENSORED,
    ),
    "censored weibull": (
        pm.Censored.dist(pm.Weibull.dist(free, pt.exp(-f / free)), None, [2, 2, 2, 2, 5, np.inf]),
        CENSORED,
    ),
    "censored exponential": (pm.Censored.dist(pm.Exponential.dist(pt.exp(f)), 0.7, 5.0), CENSORED),
    "censored poisson": (pm.Censored.dist(pm.Poisson.dist(pt.exp(f)), 1, 7), np.clip(COUNTS, 1, 7)),
    "ours, probit": (lgm.Probit.dist(f=f), COUNTS % 2),
    "ours, logit": (lgm.Logistic.dist(f=f), COUNTS % 2),
    "ours, counts": (lgm.LogGaussianCox.dist(f=f, exposure=2.0), COUNTS),
    "ours, volatility": (lgm.likelihoods.CopulaVolatility.dist(f=f), POSITIVE),
    "ours, softmax": (lgm.Softmax.dist(f=ROWS), [0, 1, 1]),
    "ours, ordinal": (lgm.OrdinalProbit.dist(f=f, cutpoints=CUTS, noise=0.4), COUNTS % 4),
}

BENT: dict[str, Any] = {
    "Student errors": pm.StudentT.dist(nu=4, mu=f, sigma=free),
    "Cauchy errors": pm.Cauchy.dist(f, free),
    "mean and scale": pm.Normal.dist(f, pt.exp(f[::-1])),
    "a square": pm.Normal.dist(f**2, free),
    "a covariance that f moves": pm.MvNormal.dist(ROWS, cov=pt.diag(pt.exp(f[:3]))),
    "a rate that is affine": pm.Poisson.dist(f),
    "a probability beside zero": pm.Bernoulli.dist(0.1 + 0.8 * pm.math.sigmoid(f)),
    "censored, by a scale of two signs": pm.Censored.dist(pm.Normal.dist(0, pt.exp(f)), 0.7, 5.0),
    "censored, with a bound that f moves": pm.Censored.dist(pm.Normal.dist(f, free), f, None),
    "censored errors": pm.Censored.dist(pm.StudentT.dist(nu=4, mu=f, sigma=free), 0.7, 5.0),
    "censored classes": pm.Censored.dist(pm.Bernoulli.dist(logit_p=f), 0, 1),
    "more zeros": pm.ZeroInflatedPoisson.dist(0.5, pt.exp(f)),
    "a sum of rates": pm.Poisson.dist(pt.exp(f) + 1.0),
    "a scale that f moves": lgm.OrdinalProbit.dist(f=f, cutpoints=CUTS, noise=pt.exp(f)),
    "ours of a square": lgm.Probit.dist(f=f**2),
    "ours, robust": lgm.likelihoods.RobustMax.dist(f=ROWS),
    "the other half": pm.Bernoulli.dist(0.4 * pt.erfc(f)),
    "another power": pm.Gamma.dist(alpha=pt.exp(f), beta=1.0),
}


@pytest.mark.parametrize("name", CONCAVE)
def test_what_is_declared_is_log_concave(name: str) -> None:
    rv, observed = CONCAVE[name]
    assert are_log_concave([rv], [f])
    density = pytensor.function(
        [f, free], pm.logp(rv, np.asarray(observed)).sum(), mode=STABLE, on_unused_input="ignore"
    )
    rng = np.random.default_rng(0)
    for scale in (0.3, 2.0, 8.0):
        for at in (0.05, 1.0, 6.0):
            x, step = scale * rng.standard_normal((2, 6))
            ends = [float(density(x + k * step, at)) for k in (-1.0, 0.0, 1.0)]
            rounding = 1e-10 * (1.0 + np.abs(ends).max())
            assert ends[1] >= (ends[0] + ends[2]) / 2.0 - rounding


@pytest.mark.parametrize("name", BENT)
def test_what_is_not_declared_is_not(name: str) -> None:
    assert not are_log_concave([BENT[name]], [f])


def test_what_is_quadratic_is_declared() -> None:
    """Third differences are 0 of those, and not of the logistic distribution."""
    everything = {name: rv for name, (rv, _) in CONCAVE.items()} | BENT
    found = {name for name, rv in everything.items() if are_quadratic([rv], [f])}
    assert found == {"normal", "lognormal", "multivariate normal"}
    x, step = np.random.default_rng(0).standard_normal((2, 6))
    for name in (*found, "logistic"):
        rv, observed = CONCAVE[name]
        function = pytensor.function([f, free], pm.logp(rv, observed).sum(), mode=STABLE)
        ends = [float(function(x + k * step, 0.7)) for k in (-1.0, 0.0, 1.0, 2.0)]
        third = abs(ends[3] - 3.0 * ends[2] + 3.0 * ends[1] - ends[0])
        assert (third < 1e-9 * (1.0 + np.abs(ends).max())) == (name in found), name


def test_each_distribution_of_the_table_is_tested() -> None:
    tested = {type(rv.owner.op) for rv, _ in CONCAVE.values()}
    assert set(KINDS) <= tested
    censored = [rv for rv, _ in CONCAVE.values() if isinstance(rv.owner.op, CensoredRV)]
    assert set(KINDS_OF_CENSORED) <= {type(rv.owner.inputs[0].owner.op) for rv in censored}


def test_a_scale_of_f_makes_a_likelihood_of_this_package_sharp() -> None:
    """With noise 0.03 the quadrature over effects of ordinal data erred by 0.1 nats for each."""
    assert are_bent_slowly([lgm.Probit.dist(f=f)], [f])
    assert not are_bent_slowly([lgm.OrdinalProbit.dist(f=f, cutpoints=CUTS, noise=0.03)], [f])


def test_what_is_sharp_is_sharp_where_it_is_censored() -> None:
    assert are_bent_slowly([pm.Censored.dist(pm.Exponential.dist(pt.exp(f)), 0.7, None)], [f])
    assert not are_bent_slowly([pm.Censored.dist(pm.Poisson.dist(pt.exp(f)), None, 1000)], [f])
    assert not are_bent_slowly([pm.Censored.dist(pm.Laplace.dist(f, 0.1), 0.7, None)], [f])
    assert not are_bent_slowly([pm.Censored.dist(pm.Normal.dist(f, 0.1), 0.7, None)], [f])
    assert not are_bent_slowly([pm.TruncatedNormal.dist(f, 0.1, lower=0.7)], [f])


ITEMS = f[:, None] - np.array([-0.4, 0.5])
SLOW: dict[str, Any] = {
    "ability": pm.Bernoulli.dist(logit_p=ITEMS),
    "difficulty": pm.Bernoulli.dist(logit_p=-ITEMS / 2.0),
    "products of constants": pm.Bernoulli.dist(logit_p=10.0 * ITEMS * 0.1),
    "standard deviation": pm.Normal.dist(0.0, pt.exp(f / 2.0)),
    "precision": pm.Normal.dist(0.0, tau=pt.exp(f)),
    "exposure": pm.Poisson.dist(free * pt.exp(f)),
    "probit": pm.Bernoulli.dist(p=pm.math.invprobit(f)),
    "trials": pm.Binomial.dist(50, logit_p=f),
    "rates of events": pm.Binomial.dist(50, p=1.0 - pt.exp(-pt.exp(f))),
}
STEEP: dict[str, Any] = {
    "discrimination": pm.Bernoulli.dist(logit_p=free * ITEMS),
    "discrimination of items": pm.Bernoulli.dist(logit_p=ITEMS * np.array([1.0, 12.0])),
    "noise": pm.Bernoulli.dist(logit_p=ITEMS / 0.1),
    "a product of matrices": pm.Poisson.dist(pt.exp(pt.dot(3.0 * np.eye(6), f))),
    "a sum": pm.Poisson.dist(pt.exp(f + f)),
    "a product": pm.Poisson.dist(pt.exp(f) * pt.exp(f)),
    "a square": pm.Poisson.dist(pt.sqr(pt.exp(f))),
    "a power": pm.Poisson.dist(pt.exp(f) ** free),
    "censored": pm.Censored.dist(pm.Exponential.dist(pt.exp(3.0 * f)), 0.7, None),
    "rare events": pm.Binomial.dist(10_000, p=pm.math.invprobit(f)),
}


@pytest.mark.parametrize("name", [*SLOW, *STEEP])
def test_what_multiplies_f_makes_a_likelihood_sharp(name: str) -> None:
    """A quadrature over abilities erred by 2.5 nats for each, with a discrimination of 10."""
    assert are_log_concave([(SLOW | STEEP)[name]], [f])
    assert are_bent_slowly([(SLOW | STEEP)[name]], [f]) == (name in SLOW)


def test_a_potential_of_f_is_not_declared() -> None:
    normal = pm.Normal.dist(f, free)
    assert not are_log_concave([normal, -pt.sum(f**2)], [f])
    assert are_log_concave([normal, -pt.sum(free**2)], [f])
