"""Draws of q that are bent together: a bijection, its slope, unbiased estimates, and mutants."""

import math

from dataclasses import replace
from functools import cache

import numpy as np
import pymc as pm
import pytest

from close import close
from models import QUICK
from mutants import Instead
from samplers import elements_of
from scipy.stats import multivariate_normal
from toys import Chain, Counts, SeriesOfCounts, invariance_of

import pymc_lgm as lgm

from pymc_lgm.approximations import importance as importance_module
from pymc_lgm.approximations import transport as transport_module
from pymc_lgm.approximations.ep import ep
from pymc_lgm.approximations.importance import (
    CachedSample,
    Coordinates,
    Proposal,
    Scheme,
    importance_sample,
)
from pymc_lgm.approximations.sites import Margins
from pymc_lgm.approximations.transport import Transport, transport
from pymc_lgm.approximations.variational import variational
from pymc_lgm.gaussian import SumPrior
from pymc_lgm.state import AtTheta

pytestmark = pytest.mark.usefixtures("quick")

THETA = np.array([0.4, 0.3, 0.2])


def bent(toy, search=variational, theta=THETA):
    here = AtTheta.of(toy, theta)
    q = search(here.likelihood, here.prior, tolerance=1e-4)
    q = replace(q, margins=Margins(q.posterior.variances, here.prior.precisions))
    return here, Proposal(q, transport(q, here.likelihood))


@pytest.fixture
def series():
    return bent(SeriesOfCounts())


def sample(here, proposal, rng, scheme):
    coordinates = Coordinates.fresh(rng, proposal, scheme)
    return importance_sample(proposal, here.log_likelihoods, coordinates, scheme)


@pytest.mark.parametrize("far", [1.0, 3.0, 8.0])
def test_it_is_a_bijection_with_its_slope(series, rng, far):
    _, proposal = series
    q, transport_map = proposal.q, proposal.skewness
    scale = np.sqrt(q.posterior.variances)
    x = q.center[:, None] + far * scale[:, None] * rng.standard_normal((3, 20))
    f, log_slopes = transport_map.forward(x)
    np.testing.assert_allclose(transport_map.backward(f), x, rtol=1e-7, atol=1e-9)
    h = 1e-6 * np.diag(scale)
    for column, expected in zip(x.T, log_slopes, strict=True):
        ahead, behind = (transport_map.forward(column[:, None] + side * h)[0] for side in (1, -1))
        J = (ahead - behind) / (2e-6 * scale)
        assert -np.linalg.slogdet(J)[1] == pytest.approx(expected, abs=1e-5 * far)


def test_any_f_comes_from_one_draw(series, rng):
    """However far it is."""
    _, proposal = series
    f = proposal.q.center[:, None] + 1e3 * rng.standard_normal((3, 20))
    x = proposal.skewness.backward(f)
    np.testing.assert_allclose(proposal.skewness.forward(x)[0], f, rtol=1e-8)


def test_weights_are_the_ratio_of_densities(series, rng):
    here, proposal = series
    q, drawn = proposal.q, sample(here, proposal, rng, Scheme(8))
    K = here.prior.covariance_times(np.eye(3))
    covariance = np.linalg.inv(np.linalg.inv(K) + np.diag(q.precision))
    x = proposal.skewness.backward(drawn.f)
    log_slopes = proposal.skewness.forward(x)[1]
    expected = (
        here.log_likelihoods(np.ascontiguousarray(drawn.f.T))
        + multivariate_normal(here.prior.mean, K).logpdf(drawn.f.T)
        - multivariate_normal(q.center, covariance).logpdf(x.T)
        - log_slopes
    )
    close(drawn.log_weights, expected, 1e-8)


@pytest.mark.parametrize("search", [variational, ep])
def test_estimates_are_unbiased_and_quiet(search, rng):
    here, proposal = bent(SeriesOfCounts(), search)
    plain = replace(proposal, skewness=None)
    with_it, without = (
        np.exp(sample(here, each, rng, Scheme(40_000, False)).log_weights)
        for each in (proposal, plain)
    )
    assert with_it.std() < without.std() / 3
    error = math.hypot(with_it.std(), without.std()) / math.sqrt(40_000)
    assert abs(with_it.mean() - without.mean()) < 5 * error


def test_margins_of_q_make_another_bijection_and_the_same_estimate(rng):
    """Variances that are predicted poorly: the noise changes, the mean does not."""
    here, proposal = bent(SeriesOfCounts())
    q = proposal.q
    poor = replace(q, margins=replace(q.margins, variances=2.0 * q.margins.variances))
    other = Proposal(poor, transport(poor, here.likelihood))
    assert not np.allclose(other.skewness.b, proposal.skewness.b)
    one, two = (
        np.exp(sample(here, each, rng, Scheme(40_000, False)).log_weights)
        for each in (proposal, other)
    )
    error = math.hypot(one.std(), two.std()) / math.sqrt(40_000)
    assert abs(one.mean() - two.mean()) < 5 * error


def test_a_gaussian_posterior_is_not_bent(series):
    _, proposal = series

    class Of:
        def __init__(self, power):
            self.power = power

        def sites(self, rows):
            return -0.5 * rows**2 + 1e-3 * np.array([0.0, 1.0, 0.0]) * rows**self.power

    gaussian, cubic = (transport(proposal.q, Of(power)) for power in (2, 3))
    scale = np.sqrt(proposal.q.posterior.variances)
    np.testing.assert_allclose(gaussian.t, 0.0, atol=1e-14)
    np.testing.assert_allclose(
        cubic.t.ravel(), [0.0, 2e-3 * scale[1] ** 3, 0.0], rtol=1e-8, atol=1e-14
    )


def test_a_dense_prior_can_be_bent_too(rng):
    """At a factorization per draw: the verbs are all it needs."""
    here, proposal = bent(Counts())
    weights = sample(here, proposal, rng, Scheme(2000, False)).log_weights
    plain = sample(here, replace(proposal, skewness=None), rng, Scheme(2000, False)).log_weights
    assert weights.std() < 0.5 * plain.std()


def tuned(**options):
    """A tuned chain whose every move of theta and f is an importance draw."""
    options = {"n_importance": 1, "latent_move": None, "interweave": False} | options
    elements = elements_of((lgm.PseudoMarginal, options), "counts")
    elements = [replace(elements[0], transported=True)]
    return Chain.start(elements, SeriesOfCounts(), np.random.default_rng(1), 200)


@pytest.mark.slow
def test_a_tuned_chain_bends_its_draws(monkeypatch):
    made = []
    name = "forward_with_squares"
    right = getattr(Transport, name)
    monkeypatch.setattr(Transport, name, lambda self, x: made.append(x) or right(self, x))
    chain = tuned()
    made.clear()
    chain.step()
    assert made


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "made"),
    [
        pytest.param({}, transport, id="as it is"),
        pytest.param({"n_importance": 3}, "too far", id="redrawn around f"),
        pytest.param(
            {"importance": lgm.Importance(defensive=0.2)},
            "too far",
            id="too far",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_the_posterior_is_left_invariant(options, made, monkeypatch):
    if made == "too far":
        monkeypatch.setattr(importance_module, "transport", too_far)
    test = invariance_of(tuned(**options), replicates=300, steps=3)
    assert test.pvalue > 1e-4


def error_of_redrawing(redrawn):
    """Whether the first draw is f with its weight, and all draws are those of their coordinates."""
    here, proposal = bent(SeriesOfCounts())
    rng, scheme = np.random.default_rng(4), Scheme(3, False)
    coordinates = Coordinates.fresh(rng, proposal, scheme)
    sample = importance_sample(proposal, here.log_likelihoods, coordinates, scheme)
    cached = CachedSample((), coordinates, sample)
    f = sample.f[:, 1]
    new = redrawn(cached, rng, f, proposal, here.log_likelihoods, scheme)
    again = importance_sample(proposal, here.log_likelihoods, new.coordinates, scheme)
    pairs = [
        (new.sample.f[:, 0], f),
        (new.sample.log_weights[0], sample.log_weights[1]),
        (new.sample.f, again.f),
        (new.sample.log_likelihood, again.log_likelihood),
        (new.sample.log_weights, again.log_weights),
    ]
    assert not np.isin(new.sample.f[:, 1:], sample.f).any()
    return max(float(np.abs(a - b).max()) for a, b in pairs)


def test_a_sample_is_redrawn_around_f():
    assert error_of_redrawing(CachedSample.redrawn) < 1e-9


@pytest.mark.mutant
def test_redrawing_around_another_draw_is_noticed(dies):
    def around_another(cached, rng, f, *arguments):
        return cached.redrawn(rng, cached.sample.f[:, 2], *arguments)

    error = error_of_redrawing(around_another)
    dies("transport: the refresh keeps another draw than f", error, above=1e-3)


def too_far(q, likelihood):
    """Three times as far as it should, and as convex as before: mistakes cannot hide."""
    transport_map = transport(q, likelihood)
    if transport_map is None:
        return None
    return replace(transport_map, t=3.0 * transport_map.t, bound=transport_map.bound / 3.0)


def with_slope(change):
    """The mutant whose log determinants have been changed."""

    def broken(patch):
        right = Transport._log_slope
        patch.setattr(Transport, "_log_slope", lambda self, growth: change(right(self, growth)))

    return broken


MUTANTS = {
    "without its determinant": with_slope(lambda log_slope: 0.0),
    "with the determinant of the way back": with_slope(lambda log_slope: -log_slope),
    "that goes back in a straight line": lambda patch: patch.setattr(
        Transport, "_backward", lambda self, f: f
    ),
    "that goes back by one step": lambda patch: patch.setattr(transport_module, "STEPS", 1),
}


def error(transport_map, rng):
    """How far from its own Jacobian, and from its own inverse, a transport is."""
    scale = np.sqrt(transport_map.q.posterior.variances)
    x = transport_map.q.center[:, None] + 2 * scale[:, None] * rng.standard_normal((3, 10))
    f, log_slopes = transport_map.forward(x)
    h = 1e-6 * np.diag(scale)
    J = [
        (transport_map.forward(c[:, None] + h)[0] - transport_map.forward(c[:, None] - h)[0]) / 2e-6
        for c in x.T
    ]
    exact = np.log(scale).sum() - np.linalg.slogdet(np.array(J))[1]
    return max(np.abs(log_slopes - exact).max(), np.abs(transport_map.backward(f) - x).max())


def roughly(rows):
    """A likelihood with a kink, whose third derivative is large."""
    return -4.0 * np.abs(rows - 0.3) + 2.0 * rows


@pytest.mark.parametrize("strength", [1.0, 5.0])
def test_a_strong_correction_gets_a_smaller_bound(strength, series, rng):
    """If none is small enough there is no map."""
    here, proposal = series
    q = proposal.q
    each = transport(q, Instead(here.likelihood, sites=lambda rows: strength * roughly(rows)))
    assert (each is None) == (strength > 1.0)
    if each is not None:
        assert each.bound < proposal.skewness.bound
        assert error(each, rng) < 1e-5


def error_without_a_check(rng):
    """Of the way back, of a map that is too strong."""
    here, proposal = bent(SeriesOfCounts())
    likelihood = Instead(here.likelihood, sites=lambda rows: 50.0 * roughly(rows))
    each = transport(proposal.q, likelihood)
    if each is None:
        return 0.0
    x = proposal.q.center[:, None] + 2.0 * proposal.q.posterior.deviations(
        rng.standard_normal((1, 3, 50))
    )
    return np.abs(each.backward(each.forward(x)[0]) - x).max()


@pytest.mark.mutant
def test_a_map_that_folds_is_noticed(rng, monkeypatch, dies):
    assert error_without_a_check(rng) == 0.0
    monkeypatch.setattr(transport_module, "_is_convex", lambda prior, W: True)
    dies("transport: that folds", error_without_a_check(rng), above=1e-2)


@pytest.mark.mutant
@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_transport_is_noticed(name, series, rng, monkeypatch, dies):
    _, proposal = series
    assert error(proposal.skewness, rng) < 1e-6
    MUTANTS[name](monkeypatch)
    dies(f"transport: {name}", error(proposal.skewness, rng), above=1e-2)


# Observations that read two and three elements of f


def counts_with_extra_zeros():
    rng = np.random.default_rng(3)
    g = np.repeat(np.arange(4), 6)
    y = rng.binomial(1, 0.6, g.size) * rng.poisson(3.0, g.size)
    u, v = (pm.Normal(name, 0, 0.7, shape=4) for name in "uv")
    b = pm.Normal("b", 0.5, 1, shape=2)
    x = np.linspace(-1.0, 1.0, g.size)
    psi, mu = pm.math.invlogit(b[0] + u[g]), pm.math.exp(b[1] + 0.4 * x + v[g])
    pm.ZeroInflatedPoisson("y", psi=psi, mu=mu, observed=y)


def counts_of_three():
    """Extra zeros, a mean and a dispersion, each with effects."""
    rng = np.random.default_rng(3)
    g = np.repeat(np.arange(4), 6)
    y = rng.binomial(1, 0.8, g.size) * rng.negative_binomial(3.0, 0.4, g.size)
    u, v, w = (pm.Normal(name, 0, 0.4, shape=4) for name in "uvw")
    x = np.linspace(-1.0, 1.0, g.size)
    mu, alpha = pm.math.exp(1.5 + 0.4 * x + u[g]), pm.math.exp(1.0 + v[g])
    pm.ZeroInflatedNegativeBinomial("y", pm.math.invlogit(1.0 + w[g]), mu, alpha, observed=y)


SETS = {"extra zeros": counts_with_extra_zeros, "three": counts_of_three}


@cache
def of_sets(name):
    with pm.Model() as model:
        sd = pm.HalfNormal("sd", 1)
        pm.Potential("none", 0.0 * sd)
        SETS[name]()
    with pytest.MonkeyPatch.context() as patch:  # small as it is
        patch.setattr("pymc_lgm.model.forms.sum._is_cheaper", lambda *sizes: True)
        read = lgm.read(model, compile_kwargs=QUICK)
    here = AtTheta.of(read, np.zeros(1))
    q = variational(here.likelihood, here.prior, tolerance=1e-6)
    return here, Proposal(q, transport(q, here.likelihood))


def error_of_sets(name, rng):
    """How far a map of sets is from its own Jacobian and inverse, and from its prior densities."""
    here, proposal = of_sets(name)
    q, each, rank = proposal.q, proposal.skewness, proposal.q.prior.rank
    xi, h = 1.5 * rng.standard_normal((rank, 4)), 1e-6 * np.eye(rank)
    x = q.center[:, None] + q.posterior.multiply(xi)
    f, log_slopes, squares = each.forward_with_squares(x)
    errors = [np.abs(each.backward(f) - x).max()]
    for k, column in enumerate(xi.T):
        ahead, behind = (
            each.forward(q.center[:, None] + q.posterior.multiply(column[:, None] + side * h))[0]
            for side in (1, -1)
        )
        J = (q.posterior.solve(ahead) - q.posterior.solve(behind)) / 2e-6
        lower = here.prior.log_density(x[:, k]) - here.prior.log_density(f[:, k])
        errors += [abs(np.linalg.slogdet(J)[1] + log_slopes[k]), abs(squares[k] - lower)]
    return max(errors)


@pytest.mark.slow
@pytest.mark.fast("extra zeros")
@pytest.mark.parametrize("name", SETS)
def test_sets_of_elements_have_a_bijection_with_its_slope(name, rng):
    here, proposal = of_sets(name)
    assert isinstance(here.prior, SumPrior)
    assert proposal.skewness.sets.shape[0] == {"extra zeros": 2, "three": 3}[name]
    assert error_of_sets(name, rng) < 1e-5


@pytest.mark.mutant
def test_a_slope_of_sets_element_by_element_is_noticed(rng, monkeypatch, dies):
    right = Transport._correction

    def apart(self, rows):
        h, growth = right(self, rows)
        return h, growth * np.eye(growth.shape[-1])

    monkeypatch.setattr(Transport, "_correction", apart)
    dies(
        "transport: a slope without what joins a set", error_of_sets("extra zeros", rng), above=1e-3
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS)
def test_estimates_of_sets_are_unbiased_and_quiet(name, rng):
    here, proposal = of_sets(name)
    log_weights = [
        sample(here, each, rng, Scheme(2000, False)).log_weights
        for each in (proposal, replace(proposal, skewness=None))
    ]
    with_it, without = (np.exp(each - log_weights[0].mean()) for each in log_weights)
    assert log_weights[0].std() < 0.5 * log_weights[1].std()
    error = math.hypot(with_it.std(), without.std()) / math.sqrt(2000)
    assert abs(with_it.mean() - without.mean()) < 5 * error


def test_sites_may_be_negative_where_the_posterior_has_a_precision(monkeypatch):
    """The bound is higher with the curvature that the sites ask for."""
    here, proposal = of_sets("extra zeros")
    W = proposal.q.precision
    assert np.linalg.eigvalsh(W.values).min() < -0.1
    monkeypatch.setattr(type(here.prior), "allows_negative_sites", False)
    clipped = variational(here.likelihood, here.prior, tolerance=1e-6)
    assert np.linalg.eigvalsh(clipped.precision.values).min() > 0.0
    assert proposal.q.log_evidence > clipped.log_evidence + 0.01
