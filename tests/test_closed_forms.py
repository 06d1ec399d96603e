"""Expectations of a log density in closed form: right where there is one, and none elsewhere."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

import pymc_lgm as lgm

from pymc_lgm.likelihoods import closed_forms
from pymc_lgm.likelihoods.closed_forms import closed_form
from pymc_lgm.likelihoods.expected import observe

pytestmark = pytest.mark.usefixtures("interpreted")

X = np.array([0.2, -1.0, 0.7])
MEAN, VARIANCE, SCALE = np.array([0.3, -0.8, 1.1]), np.array([0.4, 1.0, 1e-10]), 1.3
COUNTS, NUMBERS = np.array([0, 3, 1]), np.array([0.4, -2.0, 1.5])

SEEN = {
    "normal": (lambda f, s: pm.Normal.dist(f, s), NUMBERS),
    "normal, tau": (lambda f, s: pm.Normal.dist(X - f, tau=s), NUMBERS),
    "normal, moved": (lambda f, s: pm.Normal.dist(X + s - 2.0 * f / s + 0.5 * f, s), NUMBERS),
    "normal, log sd": (lambda f, s: pm.Normal.dist(s, pm.math.exp(-f / 2.0)), NUMBERS),
    "normal, sd times": (lambda f, s: pm.Normal.dist(X, s * pm.math.exp(f - 1.0)), NUMBERS),
    "Poisson": (lambda f, s: pm.Poisson.dist(pm.math.exp(f)), COUNTS),
    "Poisson, moved": (lambda f, s: pm.Poisson.dist(s * pm.math.exp(X - s * f)), COUNTS),
    "Poisson, divided": (lambda f, s: pm.Poisson.dist(s / pm.math.exp(f / 2.0)), COUNTS),
    "Poisson, twice": (
        lambda f, s: pm.Poisson.dist(pm.math.exp(f) * 2.0 * pm.math.exp(s * f)),
        COUNTS,
    ),
}

UNSEEN = {
    "normal, curved": lambda f, s: pm.Normal.dist(f**2, s),
    "normal, product": lambda f, s: pm.Normal.dist(f * (f + s), s),
    "normal, reciprocal": lambda f, s: pm.Normal.dist(s / f, s),
    "normal, both": lambda f, s: pm.Normal.dist(f, s * pm.math.exp(f)),
    "normal, sd": lambda f, s: pm.Normal.dist(s, pm.math.exp(f) + s),
    "normal, of others": lambda f, s: pm.Normal.dist(f[::-1], s),
    "Poisson, sum": lambda f, s: pm.Poisson.dist(pm.math.exp(f) + s),
    "Poisson, softplus": lambda f, s: pm.Poisson.dist(pt.softplus(f)),
    "Poisson, curved": lambda f, s: pm.Poisson.dist(pm.math.exp(f * f)),
    "Student": lambda f, s: pm.StudentT.dist(nu=4.0, mu=f, sigma=s),
    "Bernoulli": lambda f, s: pm.Bernoulli.dist(logit_p=f),
}

mean, variance, scale = pt.vector("m"), pt.vector("v"), pt.scalar("s")


def by_quadrature(dist, y):
    """A rule of 60 nodes, written out."""
    x, w = np.polynomial.hermite_e.hermegauss(60)
    rows = mean + x[:, None] * pt.sqrt(variance)
    return (w / w.sum()) @ pm.logp(dist(rows, scale), y)


def with_slopes(graph):
    """Its values, and slopes of their sum in mean, variance and scale."""
    slopes = pt.grad(graph.sum(), [mean, variance, scale], disconnected_inputs="ignore")
    function = pytensor.function(
        [mean, variance, scale], [graph, *slopes], on_unused_input="ignore"
    )
    return np.concatenate([np.ravel(x) for x in function(MEAN, VARIANCE, SCALE)])


@pytest.mark.fast("normal", "Poisson, twice")
@pytest.mark.parametrize("name", SEEN)
def test_it_is_the_quadrature(name):
    dist, y = SEEN[name]
    found = closed_form(dist, pt.constant(y), mean, variance, [scale])
    right = with_slopes(by_quadrature(dist, y))
    # The slope of a rule in a variance of 1e-10 is a quotient of 1e-5, with eleven digits less.
    exact = np.arange(10) != 8
    np.testing.assert_allclose(with_slopes(found)[exact], right[exact], rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(with_slopes(found), right, rtol=1e-4)


@pytest.mark.parametrize("name", UNSEEN)
def test_what_has_none_is_left_to_the_quadrature(name):
    assert closed_form(UNSEEN[name], pt.constant(COUNTS), mean, variance, [scale]) is None


@pytest.mark.parametrize(
    ("likelihood", "y", "params"),
    [(lgm.LogGaussianCox, COUNTS, [SCALE, X]), (lgm.likelihoods.CopulaVolatility, NUMBERS, [])],
)
def test_likelihoods_of_this_package_have_theirs(likelihood, y, params):
    found = likelihood.expected_logp(pt.constant(y), mean, variance, *map(pt.constant, params))
    right = by_quadrature(lambda f, s: likelihood.dist(f, *params), y)
    exact = np.arange(10) != 8
    np.testing.assert_allclose(
        with_slopes(found)[exact], with_slopes(right)[exact], rtol=1e-10, atol=1e-10
    )


def test_a_model_has_them():
    """Where f is wide, twelve nodes are not enough."""
    f = lgm.gp.Projected(np.array([0.3, -1.0, 0.5]), np.array([9.0, 16.0, 4.0]))
    with pm.Model() as model:
        lgm.gp.Expected("a", lambda f: pm.Poisson.dist(pm.math.exp(f)), f, observed=COUNTS)
        lgm.LogGaussianCox("b", f=f, observed=COUNTS)
    rate = np.exp(f.mean + 0.5 * f.variance)
    right = (COUNTS * f.mean - rate - np.log([1.0, 6.0, 1.0])).sum()
    for name in "ab":
        logp = model.compile_logp(vars=[model[name]])
        assert logp({}) == pytest.approx(right, rel=1e-12)
    x, w = np.polynomial.hermite_e.hermegauss(12)
    of_rule = (w / w.sum()) @ np.exp(f.mean + x[:, None] * np.sqrt(f.variance))
    assert abs(of_rule / rate - 1.0).max() > 1e-4


def test_a_count_that_cannot_be_has_no_density():
    dist, _ = SEEN["Poisson"]
    with pm.Model() as model:
        f = lgm.gp.Projected(MEAN, VARIANCE)
        observe("y", lambda f: dist(f, 1.0), f, [], observed=np.array([0, -1, 2]))
    assert model.compile_logp()({}) == -np.inf


@pytest.mark.mutant
@pytest.mark.parametrize("wrong", ["b", "half"])
def test_a_wrong_formula_is_noticed(wrong, monkeypatch, dies):
    """A slope that is forgotten, or a half."""
    dist, y = SEEN["Poisson, moved" if wrong == "b" else "normal"]
    if wrong == "b":
        monkeypatch.setattr(closed_forms, "_slope_of_log", lambda x, f: 1.0)
    times = 2.0 if wrong == "half" else 1.0
    found = with_slopes(closed_form(dist, pt.constant(y), mean, times * variance, [scale]))
    error = abs(found - with_slopes(by_quadrature(dist, y))).max()
    dies(f"closed expectation: {wrong}", error, above=0.01)
