"""Draws with skewed marginals: a bijection, its density, unbiased estimates of low noise."""

from __future__ import annotations

import math

from dataclasses import replace

import numpy as np
import pytest

from samplers import elements_of
from scipy.integrate import quad
from scipy.special import log_ndtr
from scipy.stats import multivariate_normal
from toys import Chain, Labels, invariance_of, until_noticed

import pymc_lgm as lgm

from pymc_lgm.approximations import copula as copula_module
from pymc_lgm.approximations import importance as importance_module
from pymc_lgm.approximations.copula import (
    KNOTS,
    STEP,
    Copula,
    backward_rows,
    forward_rows,
    tilted_copula,
)
from pymc_lgm.approximations.ep import ep
from pymc_lgm.approximations.importance import (
    Coordinates,
    Proposal,
    Scheme,
    importance_sample,
)
from pymc_lgm.approximations.recall import recall
from pymc_lgm.approximations.site_coordinates import OneByOne
from pymc_lgm.approximations.sites import Margins, PredictedSites
from pymc_lgm.approximations.sites_line import SitesTuning
from pymc_lgm.linalg import tally
from pymc_lgm.state import LikelihoodAt

LARGE = 6.0  # standard deviation of f: a binary datum cuts half of it off
SCHEME = Scheme(32)


class Binary(Labels):
    """Probit data on f of large variance, independent or as smooth as asked; theta = log eta."""

    prior_mean, prior_sd = np.array([math.log(LARGE)]), np.array([0.5])

    def __init__(self, n: int = 40, smooth: float = 0.0):
        super().__init__()
        self.n, self.p, self.enters_cov = n, 1, np.array([True])
        self.K = np.eye(n)
        if smooth:
            place = np.arange(n)[:, None]
            self.K = np.exp(-0.5 * ((place - place.T) / smooth) ** 2) + 1e-6 * self.K
        self.y = np.where(np.random.default_rng(3).uniform(size=n) < 0.5, 1.0, -1.0)

    def mean(self, theta):
        return np.full(self.n, 0.3)

    def cov(self, theta):
        return np.exp(2.0 * theta[0]) * self.K


def with_copula(reader, theta):
    """Draws of q by expectation propagation, with a copula of its own margins."""
    likelihood, prior = LikelihoodAt(reader, theta), reader.prior(theta)
    q = ep(likelihood, prior, tolerance=1e-6)
    margins = Margins(q.posterior.variances, prior.precisions)
    return Proposal.of(replace(q, margins=margins), likelihood)


def freed(of):
    """A q, or sites, as if the prior let each f_i vary by itself."""
    variances = of.margins.variances
    return replace(of, margins=Margins(variances, 1 / variances))


def sample(reader, theta, proposal, rng, scheme=SCHEME):
    coordinates = Coordinates.fresh(rng, proposal, scheme)
    return importance_sample(
        proposal, lambda rows: reader.log_likelihoods(rows, theta), coordinates, scheme
    )


@pytest.fixture(scope="module")
def independent():
    reader = Binary()
    theta = np.array([math.log(LARGE)])
    return reader, theta, with_copula(reader, theta)


def test_a_bijection_with_its_slope(independent, rng):
    *_, proposal = independent
    copula = proposal.skewness
    center, scale = copula.center[:, None], copula.scale[:, None]
    x = center + 8.0 * scale * rng.standard_normal((center.size, 50))
    f, log_slopes = copula.forward(x)
    np.testing.assert_allclose(copula.backward(f), x, atol=1e-8)
    h = 1e-7 * scale
    above, below = copula.backward(f + h), copula.backward(f - h)
    slopes = (above - below) / (2 * h)
    # A step across a knot has the slope of neither side.
    smooth = np.isclose(copula.forward(above)[1], copula.forward(below)[1], rtol=0, atol=1e-12)
    assert smooth.sum() > 40
    np.testing.assert_allclose(np.log(slopes).sum(axis=0)[smooth], log_slopes[smooth], atol=1e-4)
    assert (np.diff(copula.values, axis=0) > 0).all()


@pytest.mark.parametrize("pairs", [True, False])
@pytest.mark.parametrize("bent", [True, False])
def test_draws_are_weighed_by_what_is_known_of_them(independent, rng, pairs, bent):
    """As from f alone: nothing is solved twice."""
    _, _, proposal = independent
    proposal = proposal if bent else replace(proposal, skewness=None)
    xi = rng.standard_normal((2, proposal.q.mean.size, 3))
    f, log_ratio = proposal.drawn(xi, pairs)
    assert f.shape == (proposal.q.mean.size, 6 if pairs else 3)
    np.testing.assert_allclose(log_ratio, proposal.log_prior_over_q(f), rtol=1e-9, atol=1e-9)


def test_beyond_its_knots_it_is_no_lighter_than_q(independent, rng):
    """There the tilted marginals are nothing, and f goes there all the same: HMC moves it, too."""
    reader, theta, proposal = independent
    growth = np.diff(proposal.skewness.values, axis=0)
    assert growth[[0, -1]].max() <= STEP + 1e-12
    assert growth[1:-1].max() > 2 * STEP, "there is something to bound"
    f = sample(reader, theta, proposal, rng).f[:, :1]
    typical = proposal.log_prior_over_q(f)[0]
    for away in (-9.0, 9.0):
        far = f.copy()
        far[0] = proposal.q.center[0] + away * proposal.skewness.scale[0]
        assert proposal.log_prior_over_q(far)[0] < typical + 60.0


@pytest.mark.parametrize("verb", [forward_rows, backward_rows])
def test_loops_are_one_code_compiled_or_not(independent, verb, rng):
    *_, proposal = independent
    copula, interpreted = proposal.skewness, getattr(verb, "py_func", verb)
    rows = copula.center + 8.0 * copula.scale * rng.standard_normal((5, copula.center.size))
    # Far out, and no number: neither is looked for beyond the knots.
    rows[0, :4] = 1e300, -1e300, np.inf, np.nan
    one, other = (
        loop(rows, copula.center, copula.scale, copula.values) for loop in (verb, interpreted)
    )
    ours, theirs = (each if verb is forward_rows else (each,) for each in (one, other))
    for mine, its in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, its, rtol=1e-12)
    assert np.isnan(ours[0][0, 3])
    assert np.isfinite(ours[0][1:]).all()


def test_a_copula_is_one_code_compiled_or_not(independent, monkeypatch):
    reader, theta, proposal = independent
    for name in ("tilted_probabilities", "corrected"):
        loop = getattr(copula_module, name)
        monkeypatch.setattr(copula_module, name, getattr(loop, "py_func", loop))
    again = Proposal.of(proposal.q, LikelihoodAt(reader, theta))
    np.testing.assert_allclose(again.skewness.values, proposal.skewness.values, atol=1e-9)


def test_scales_and_slopes_of_zero_are_no_error(rng):
    """What a far theta makes of margins may underflow: its draws are lost, the chain is not."""
    copula = Copula(np.zeros(3), np.zeros(3), np.zeros((KNOTS.size, 3)))
    f, _ = copula.forward(rng.standard_normal((3, 2)))
    assert np.isnan(f).all()
    assert np.isnan(copula.backward(np.zeros((3, 2)))).all()


def test_no_correction_is_the_identity(rng):
    center, scale = rng.standard_normal(3), rng.uniform(1, 2, 3)
    copula = Copula(center, scale, np.repeat(KNOTS[:, None], 3, axis=1))
    x = 10 * rng.standard_normal((3, 20))
    f, log_slopes = copula.forward(x)
    np.testing.assert_allclose(f, x, atol=1e-12)
    np.testing.assert_allclose(log_slopes, 0.0, atol=1e-12)
    np.testing.assert_allclose(copula.backward(x), x, atol=1e-12)


def test_weights_are_the_ratio_of_densities(rng):
    """log w = ℓ(f) + log N(f; m, K) − log N(x; f̂, Σ) − log |∂x/∂f|, each term by itself."""
    reader = Binary(n=5, smooth=0.7)
    theta = np.array([math.log(LARGE)])
    proposal = with_copula(reader, theta)
    q, drawn = proposal.q, sample(reader, theta, proposal, rng, Scheme(8))
    K, mean = reader.cov(theta), reader.mean(theta)
    covariance = np.linalg.inv(np.linalg.inv(K) + np.diag(q.precision))
    x = proposal.skewness.backward(drawn.f)
    log_slopes = proposal.skewness.forward(x)[1]
    expected = (
        reader.log_likelihoods(np.ascontiguousarray(drawn.f.T), theta)
        + multivariate_normal(mean, K).logpdf(drawn.f.T)
        - multivariate_normal(q.center, covariance).logpdf(x.T)
        - log_slopes
    )
    np.testing.assert_allclose(drawn.log_weights, expected, atol=1e-8)


def test_where_f_is_independent_estimates_are_quiet(independent, rng):
    """The evidence is a product of integrals over a line each, and the marginals are the tilted."""
    reader, theta, proposal = independent
    signs = reader.probit_signs()
    exact = sum(
        math.log(
            quad(
                lambda f, s=s: math.exp(log_ndtr(s * f) - 0.5 * ((f - 0.3) / LARGE) ** 2),
                *(-12 * LARGE, 12 * LARGE),
                points=[0.0],
            )[0]
            / (LARGE * math.sqrt(2 * math.pi))
        )
        for s in signs
    )
    plain = replace(proposal, skewness=None)
    with_it, without = (
        np.array([sample(reader, theta, each, rng).log_evidence for _ in range(40)])
        for each in (proposal, plain)
    )
    assert with_it.std() < 0.1 * without.std()
    error = with_it.std(ddof=1) / math.sqrt(with_it.size)
    # The logarithm of an unbiased estimate is low by half its variance.
    assert abs(with_it.mean() + 0.5 * with_it.var() - exact) < 5 * error


@pytest.mark.parametrize("defensive", [0.0, 0.3])
@pytest.mark.parametrize("antithetic", [True, False])
def test_estimates_are_unbiased(defensive, antithetic, rng):
    reader = Binary(n=4, smooth=1.0)
    theta = np.array([math.log(LARGE)])
    proposal = with_copula(reader, theta)
    # A poor one: half of the correction goes the wrong way.
    copula, prior = proposal.skewness, proposal.q.prior
    values = copula.values.copy()
    values[:, :2] = -copula.values[::-1, :2]
    proposal = replace(proposal, skewness=replace(copula, values=values), defensive=defensive)
    draws = prior.multiply(rng.standard_normal((4, 400_000))) + reader.mean(theta)[:, None]
    p = np.exp(reader.log_likelihoods(np.ascontiguousarray(draws.T), theta))
    w = np.exp(sample(reader, theta, proposal, rng, Scheme(100_000, antithetic)).log_weights)
    if antithetic:
        w = w.reshape(2, -1).mean(axis=0)
    error = math.hypot(p.std() / math.sqrt(p.size), w.std() / math.sqrt(w.size))
    assert abs(w.mean() - p.mean()) < 5 * error


@pytest.mark.parametrize("defensive", [0.0, 0.5])
def test_coordinates_around_f_give_f(independent, defensive, rng):
    reader, theta, proposal = independent
    proposal, scheme = replace(proposal, defensive=defensive), Scheme(4)
    for _ in range(10):
        f = sample(reader, theta, proposal, rng, scheme).f[:, 0]
        around = Coordinates.around(rng, f, proposal, scheme)
        again = importance_sample(
            proposal, lambda rows: reader.log_likelihoods(rows, theta), around, scheme
        )
        np.testing.assert_allclose(again.f[:, 0], f, atol=1e-8)


def test_smooth_f_are_left_alone(rng):
    """Where K⁻¹ is large a correction of single components would make draws impossible."""
    reader = Binary(n=40, smooth=10.0)
    theta = np.array([math.log(LARGE)])
    proposal = with_copula(reader, theta)
    assert proposal.skewness is None
    bold = Proposal.of(freed(proposal.q), LikelihoodAt(reader, theta))
    assert bold.skewness is not None
    spread, bolder = (
        np.std([sample(reader, theta, each, rng).log_evidence for _ in range(20)])
        for each in (proposal, bold)
    )
    assert bolder > 2 * spread


def test_a_likelihood_without_numbers_makes_none(independent):
    *_, proposal = independent
    q = proposal.q

    def nothing(rows):
        return np.full_like(rows, np.nan)

    assert tilted_copula(nothing, q.mean, q.center, q.sites, q.margins) is None


def test_recalled_sites_make_the_same_copula(independent):
    reader, theta, proposal = independent
    q = proposal.q
    tuning = SitesTuning.start(OneByOne(reader.n, copula=True), 1).update(theta, q.sites, q.margins)
    line = tuning.fit()
    likelihood = LikelihoodAt(reader, theta)
    before = tally.cubic_ops
    again = Proposal.of(recall(likelihood, reader.prior(theta), start=line(theta)), likelihood)
    assert tally.cubic_ops - before == 1
    np.testing.assert_allclose(again.skewness.values, proposal.skewness.values, atol=1e-6)
    assert not line(theta + 50.0).trusted
    # Far out q is searched for, and its variances and those of the prior are its own.
    before = tally.cubic_ops
    theta = theta + 1.0
    likelihood, start = LikelihoodAt(reader, theta), replace(line(theta), trusted=False)
    searched = Proposal.of(recall(likelihood, reader.prior(theta), start=start), likelihood)
    assert tally.cubic_ops - before >= 4
    expected = with_copula(reader, theta)
    np.testing.assert_allclose(searched.q.center, expected.q.center, atol=0.3 * LARGE)
    np.testing.assert_allclose(searched.skewness.values, expected.skewness.values, atol=0.2)


# The sampler


def skewed(n_importance=2, tune=200, **options):
    """A tuned chain on labels whose every move of theta and f is an importance draw."""
    options = {"n_importance": n_importance, "latent_move": None, "interweave": False} | options
    elements = elements_of((lgm.PseudoMarginal, options), "labels")
    return Chain.start(elements, Labels(), np.random.default_rng(1), tune)


def lopsided(log_likelihoods, mean, center, sites, margins):
    """A copula that is far from the marginals: mistakes in its use cannot hide."""
    values = np.where(KNOTS < 0, 0.4 * KNOTS, 2.0 * KNOTS)[:, None]
    return Copula(center, np.sqrt(margins.variances), np.repeat(values, center.size, axis=1))


@pytest.mark.slow
def test_the_default_has_one():
    chain = skewed(4)
    toy, theta = chain.toy, chain.state.theta
    sites = chain.tunings[0].sites.line(theta)
    assert isinstance(sites, PredictedSites)
    assert sites.margins is not None
    # At theta of the chain, not only where it was made: independent f keep the whole correction.
    search = chain.elements[0].search.with_line(lambda theta: freed(sites))
    likelihood = LikelihoodAt(toy, theta)
    assert Proposal.of(search(likelihood, toy.prior(theta)), likelihood).skewness is not None


class Flat(Copula):
    """The mutant says that it stretches nothing."""

    def forward(self, x):
        f, log_slopes = super().forward(x)
        return f, np.zeros_like(log_slopes)


def without_jacobian(patch):
    def flat(*args):
        return Flat(**vars(lopsided(*args)))

    patch.setattr(importance_module, "tilted_copula", flat)


def without_the_square_of_f(patch):
    patch.setattr(importance_module.weights, "squares_moved", lambda *args: 0.0)


def in_coordinates_of_f(patch):
    around = Coordinates.around

    def without_copula(rng, f, proposal, scheme):
        return around(rng, f, replace(proposal, skewness=None), scheme)

    patch.setattr(Coordinates, "around", without_copula)


COPULA_MUTANTS = {
    "without its Jacobian": without_jacobian,
    "with the square of x alone": without_the_square_of_f,
    "whose coordinates are those of f": in_coordinates_of_f,
}


@pytest.mark.slow
@pytest.mark.mutant
@pytest.mark.parametrize("name", COPULA_MUTANTS)
def test_a_wrong_copula_is_noticed(name, monkeypatch, dies):
    monkeypatch.setattr(importance_module, "tilted_copula", lopsided)
    COPULA_MUTANTS[name](monkeypatch)
    chain = skewed()
    # Far from where tuning has been sites are searched for, so fewer draws use the line.
    is_weak = name == "whose coordinates are those of f"
    pvalue = until_noticed(
        lambda replicates: invariance_of(chain, replicates=replicates, steps=3).pvalue,
        *((4800,) if is_weak else (200, 1200, 4800)),
    )
    dies(f"copula: {name}", pvalue, below=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, marks=pytest.mark.slow),
        {"importance": lgm.Importance(defensive=0.3), "n_importance": 3},
    ],
)
def test_a_lopsided_copula_is_exact(options, monkeypatch):
    monkeypatch.setattr(importance_module, "tilted_copula", lopsided)
    assert invariance_of(skewed(**options), replicates=300, steps=3).pvalue > 1e-4
