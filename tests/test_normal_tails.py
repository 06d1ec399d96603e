"""PyMC's logarithms of normal probabilities are replaced by functions with stated derivatives."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

from pymc.distributions.dist_math import log_diff_normal_cdf, normal_lccdf, normal_lcdf
from pytensor.graph.traversal import ancestors
from scipy.stats import norm

import pymc_lgm as lgm

from pymc_lgm.compile.graphs.nodes import function_of
from pymc_lgm.likelihoods.normal import LogNdtr
from pymc_lgm.model.normal_tails import log_ndtr_between, with_log_ndtr

pytestmark = pytest.mark.usefixtures("interpreted")

Z, W = pt.vector("z"), pt.vector("w")
AT = {Z: np.array([-40.0, -3.0, 0.1, 8.0, 40.0]), W: np.array([0.7, 1.0, 0.4, 2.0, 0.3])}


def values(graph, inputs=None):
    inputs = AT if inputs is None else inputs
    used = {v: x for v, x in inputs.items() if v in set(ancestors([graph]))}
    return pytensor.function(list(used), graph, mode="FAST_COMPILE")(*used.values())


def count(graphs):
    return sum(isinstance(function_of(v), LogNdtr) for v in ancestors(graphs))


@pytest.mark.parametrize(
    ("graph", "calls"),
    [
        (normal_lcdf(0, 1, Z), 1),
        (normal_lcdf(W, 0.5, Z[:, None]), 1),
        (normal_lccdf(Z, W, 0.3), 1),
        (log_diff_normal_cdf(Z, W, Z + 2.0 * W, Z + W), 2),
        (log_diff_normal_cdf(0.0, 1.0, Z[2:] + 0.1, -W[2:]), 2),
        (normal_lcdf(0, 1, normal_lccdf(0, 1, Z[:3])) + Z[0], 2),
    ],
)
def test_values_are_those_of_pymc(graph, calls):
    (found,) = with_log_ndtr([graph])
    assert count([found]) == calls
    assert found.type.ndim == graph.type.ndim
    # PyMC's formulas have constants in float32.
    np.testing.assert_allclose(values(found), values(graph), rtol=3e-7, atol=1e-20)


def test_other_graphs_stay():
    """A formula with another limit, or of two variables, is not that of a normal; nor is a sum."""
    limit = pt.switch(
        pt.lt(Z, -2.0),
        pt.log(pt.erfcx(-Z / pt.sqrt(2.0)) / 2.0) - pt.sqr(Z) / 2.0,
        pt.log1p(-pt.erfc(Z / pt.sqrt(2.0)) / 2.0),
    )
    two = pt.switch(
        pt.lt(Z, -1.0),
        pt.log(pt.erfcx(-Z / pt.sqrt(2.0)) / 2.0) - pt.sqr(W) / 2.0,
        pt.log1p(-pt.erfc(Z / pt.sqrt(2.0)) / 2.0),
    )
    three = pt.add(np.log(0.5), Z, W)
    for graph in (limit, two, three, pt.exp(Z)):
        assert with_log_ndtr([graph])[0] is graph


@pytest.mark.parametrize(
    ("a", "b"), [(-30.0, -29.0), (-1.0, 0.5), (5.0, 9.0), (-3.0, 40.0), (30.0, 30.5)]
)
def test_between_has_accurate_derivatives(a, b):
    """In a shift of both limits they are central moments of a truncated normal."""
    t = pt.dscalar("t")
    graphs = [log_ndtr_between(a - t, b - t)]
    for _ in range(3):
        graphs.append(pt.grad(graphs[-1], t))
    found = pytensor.function([t], graphs, mode="FAST_COMPILE")(0.0)
    mode = np.clip(0.0, a, b)
    low, high = max(a, mode - 12.0), min(b, mode + 12.0)
    nodes, weights = np.polynomial.legendre.leggauss(200)
    x = 0.5 * (low + high) + 0.5 * (high - low) * nodes
    density = 0.5 * (high - low) * weights * np.exp(0.5 * (mode**2 - x**2))
    mean = density @ x / density.sum()
    second, third = (density @ (x - mean) ** k / density.sum() for k in (2, 3))
    value = np.log(density.sum() / np.sqrt(2.0 * np.pi)) - 0.5 * mode**2
    np.testing.assert_allclose(found, [value, mean, second - 1.0, third], rtol=1e-6, atol=1e-8)


def test_derivatives_are_finite_at_infinite_limits():
    """Each of the three limits is -inf or inf for one of several observations."""
    t, infinite = pt.dscalar("t"), np.inf
    low, high = np.array([-infinite, 0.5, -infinite]), np.array([0.5, infinite, infinite])
    graphs = [log_ndtr_between(low - t, high - t)]
    for _ in range(3):
        graphs.append(pt.grad(graphs[-1].sum(), t))
    value, *derivatives = pytensor.function([t], graphs, mode="FAST_COMPILE")(0.0)
    np.testing.assert_allclose(value, norm.logcdf([0.5, -0.5, 40.0]))
    r = norm.pdf(0.5) / norm.cdf([0.5, -0.5])
    np.testing.assert_allclose(derivatives[0], r[1] - r[0])
    assert np.isfinite(derivatives).all()


OBSERVED = {
    "censored": lambda f: pm.Censored(
        "y", pm.Normal.dist(f, 0.5), lower=-1.0, upper=1.0, observed=[-1.0, 0.2, 1.0]
    ),
    "truncated": lambda f: pm.TruncatedNormal(
        "y", f, 0.5, lower=-1.0, upper=1.0, observed=[-0.9, 0.2, 0.9]
    ),
    "truncated below": lambda f: pm.TruncatedNormal("y", f, 0.5, lower=-1.0, observed=[0, 1, 2.0]),
    "truncated for some": lambda f: pm.TruncatedNormal(
        "y", f, 0.5, lower=-np.inf, upper=[np.inf, 1.0, 2.0], observed=[0, 1, 2.0]
    ),
    "ordered probit": lambda f: pm.OrderedProbit(
        "y", f, cutpoints=[-1.0, 0.5, 2.0], sigma=0.5, compute_p=False, observed=[0, 1, 3]
    ),
}


@pytest.mark.parametrize("kind", OBSERVED)
def test_the_curvature_is_finite_far_away(kind):
    """W and its derivative, at observations that are 16 to 19 sd away."""
    with pm.Model() as model:
        f = pm.Normal("f", 0.0, 1.0, shape=3)
        OBSERVED[kind](f)
    read = lgm.read(model)
    assert max(read.check(draws=5).values()) < 1e-6
    f = np.array([8.0, -9.0, -7.0])
    value, gradient, W, third = read.likelihood_terms(f, np.zeros(0))
    assert np.isfinite([value, *gradient, *W, *third]).all()
    # sigma² W is the share of a normal that lies outside, between 0 and 1.
    assert (W > -1e-9).all()
    assert (W < 4.0 + 1e-9).all()
