"""Gaussian approximations, importance estimates, and wrong pseudo-marginal kernels."""

import math

from copy import deepcopy
from dataclasses import replace
from functools import partial

import arviz as az
import numpy as np
import pymc as pm
import pytest
import xarray as xr

from models import QUICK, _latent, build, listed
from mutants import Instead
from pymc.exceptions import SamplingError
from samplers import elements_of
from test_quadrature import solve, z_scores
from toys import (
    TOYS,
    Chain,
    Counts,
    Labels,
    MadeTarget,
    Pair,
    invariance,
    invariance_of,
    until_noticed,
)

import pymc_lgm as lgm

from pymc_lgm import samplers
from pymc_lgm.adaptation import LARGEST_NOISE, History, NoiseTuning
from pymc_lgm.approximations.ep import ep
from pymc_lgm.approximations.importance import (
    Coordinates,
    Proposal,
    Scheme,
    importance_sample,
)
from pymc_lgm.approximations.laplace import laplace
from pymc_lgm.approximations.recall import WarmSearch, laplace_from_sites, recall
from pymc_lgm.approximations.weights import pareto_shape
from pymc_lgm.gaussian import DensePrior
from pymc_lgm.linalg import factorize, tally
from pymc_lgm.moves import latent
from pymc_lgm.moves.theta import metropolis as metropolis_module
from pymc_lgm.moves.theta.climb import WORTH
from pymc_lgm.moves.theta.emulated import SETTLED, Acceptance, is_settled
from pymc_lgm.samplers import marginal, sweep
from pymc_lgm.samplers import pseudo_marginal as element_module
from pymc_lgm.samplers.interweaving import IN_A_ROW
from pymc_lgm.samplers.schedule import Phase, Schedule
from pymc_lgm.state import LikelihoodAt, State
from pymc_lgm.targets import pseudo_marginal as module

pytestmark = pytest.mark.usefixtures("quick")


def gaussian_likelihood(y, noise):
    """ℓ, g, W and the third derivative of y ~ N(f, noise): Laplace's method is exact."""

    def terms(f):
        r = y - f
        value = -0.5 * float((r**2).sum()) / noise - 0.5 * y.size * math.log(2 * math.pi * noise)
        return value, r / noise, np.full(y.size, 1 / noise), np.zeros(y.size)

    return terms


@pytest.fixture
def gaussian(rng):
    A = rng.standard_normal((5, 5))
    K = A @ A.T + np.eye(5)
    mean, y, noise = rng.standard_normal(5), rng.standard_normal(5), 0.7
    return K, mean, y, noise, gaussian_likelihood(y, noise)


def test_laplace_is_exact_for_a_gaussian_likelihood(gaussian):
    K, mean, y, noise, terms = gaussian
    q = laplace(terms, DensePrior(mean, K.copy()), tolerance=1e-8)
    evidence = factorize(K + noise * np.eye(5)).log_density(y - mean)
    assert q.log_evidence == pytest.approx(evidence)
    posterior_mean = mean + K @ np.linalg.solve(K + noise * np.eye(5), y - mean)
    np.testing.assert_allclose(q.center, posterior_mean)
    assert q.converged
    assert q.iterations == 1


def test_importance_weights_are_constant_where_q_is_exact(gaussian, rng):
    K, mean, _, _, terms = gaussian
    q = laplace(terms, DensePrior(mean, K.copy()), tolerance=1e-8)
    proposal, scheme = Proposal(q), Scheme(8)
    sample = importance_sample(
        proposal,
        lambda rows: np.array([terms(f)[0] for f in rows]),
        Coordinates.fresh(rng, proposal, scheme),
        scheme,
    )
    np.testing.assert_allclose(sample.log_weights, q.log_evidence)
    assert sample.estimate.log_evidence_sd == pytest.approx(0.0, abs=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("defensive", [0.0, 0.3])
def test_coordinates_around_a_draw_are_standard_normal_on_average(gaussian, rng, defensive):
    """f from q, then ξ given f: ξ has the law it would have had without f."""
    K, mean, _, _, terms = gaussian
    q = laplace(terms, DensePrior(mean, K.copy()))
    proposal, scheme = Proposal(q, None, defensive), Scheme(1, antithetic=False)

    def drawn(coordinates):
        return importance_sample(proposal, lambda rows: np.zeros(len(rows)), coordinates, scheme).f[
            :, 0
        ]

    xi, marks = [], []
    for _ in range(4000):
        f = drawn(Coordinates.fresh(rng, proposal, scheme))
        again = Coordinates.around(rng, f, proposal, scheme)
        np.testing.assert_allclose(drawn(again), f)
        xi.append(again.xi.ravel())
        marks.append(again.from_prior[0])
    moments = np.cov(np.array(xi).T) - np.eye(10)
    assert np.abs(moments * np.sqrt(4000 / (1 + np.eye(10)))).max() < 5
    assert abs(np.mean(marks) - defensive) <= 5 * math.sqrt(defensive * (1 - defensive) / 4000)


@pytest.mark.parametrize("toy", TOYS)
def test_estimates_are_unbiased(toy, rng):
    """The mean of p̃ is the integral of p(y | f) N(f; m, K), by brute force over the prior."""
    reader = TOYS[toy](n=2)
    theta = reader.prior_mean
    prior = reader.prior(theta)
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    grid = np.array([[a, b] for a in nodes for b in nodes]).T
    f = prior.mean[:, None] + prior.multiply(grid)
    values = np.exp([reader.log_likelihood(c, theta) for c in np.ascontiguousarray(f.T)])
    exact = float(np.outer(weights, weights).ravel() @ values) / (2 * math.pi)

    q = laplace(lambda f: reader.likelihood_terms(f, theta), prior, tolerance=0.5)
    for antithetic, defensive in ((False, 0.0), (True, 0.0), (True, 0.2)):
        proposal, scheme = Proposal(q, None, defensive), Scheme(2000, antithetic)
        sample = importance_sample(
            proposal,
            lambda rows: reader.log_likelihoods(rows, theta),
            Coordinates.fresh(rng, proposal, scheme),
            scheme,
        )
        w = np.exp(sample.log_weights)
        if scheme.pairs:  # the two of a pair are not independent
            w = w.reshape(2, -1).mean(0)
        assert abs(w.mean() - exact) < 5 * w.std() / math.sqrt(w.size) + 1e-12 * exact


def test_newton_takes_few_factorizations():
    toy = Labels()
    theta = toy.prior_mean
    before = tally.cubic_ops
    q = laplace(LikelihoodAt(toy, theta), DensePrior(toy.mean(theta), toy.cov(theta)))
    assert tally.cubic_ops - before == q.iterations <= 4


def test_a_search_that_leaves_the_numbers_is_a_value():
    def terms(f):
        return -1.0, np.full(3, np.nan), np.ones(3), np.zeros(3)

    assert laplace(terms, DensePrior(np.zeros(3), np.eye(3))) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_importance": 0}, "n_importance must be a whole number of at least 1, not 0"),
        ({"n_importance": 2.5}, "n_importance must be a whole number"),
        ({"approximation": "vb"}, "approximation='vb' is unknown.*'laplace'"),
        (
            {"move": "gibbs"},
            "move='gibbs' is unknown.*"
            "'emulator', 'nuts', 'metropolis', 'delayed-metropolis', 'slice'",
        ),
        (
            {"move": "slice", "importance": {"correlation": 0.9}},
            "needs a target that is a function of theta",
        ),
        ({"latent_move": "gibbs"}, "latent_move='gibbs' is unknown"),
        ({"importance": {"correlation": 1.5}}, "correlation must lie between 0 and 1, not 1.5"),
        ({"importance": {"defensive": -0.1}}, "defensive must lie between 0 and 1"),
        ({"importance": {"defensive": 1.0}}, "defensive must lie .* below 1, not 1.0"),
        (
            {"n_importance": 1, "importance": {"correlation": 1.0}, "latent_move": None},
            "f moves only as theta carries it. Write latent_move='hmc'",
        ),
    ],
)
def test_bad_options_are_refused(options, message):
    given = options.get("importance", {})
    with pytest.raises(ValueError, match=message):
        build(lgm.PseudoMarginal, "probit", **options | {"importance": lgm.Importance(**given)})


def poor(likelihood, prior, *, start=None, tolerance=1e-3, too_large=4):
    """A valid q that is deliberately too narrow."""
    q = laplace_from_sites(likelihood, prior, start=start, tolerance=tolerance)
    return replace(q, posterior=prior.condition(too_large * q.precision))


INDEPENDENT = {"importance": lgm.Importance(correlation=0.0)}
PLAIN = INDEPENDENT | {
    "move": "metropolis",
    "scale": 0.7,
    "n_importance": 1,
    "latent_move": None,
    "interweave": False,
}


def searching(element, search):
    """The same element with another way to q."""
    warm = WarmSearch(search, element.explore.tolerance)
    return replace(element, explore=warm, search=warm)


def poor_element(too_large=4.0, independent=False, **options):
    """The plain sampler with a q that is too narrow, or too wide."""
    (element,) = elements_of((lgm.PseudoMarginal, PLAIN | options), "counts")
    element = replace(element, independent=independent)
    return searching(element, partial(poor, too_large=too_large))


def pvalue_of(*elements, replicates=200, steps=3, n=3):
    return invariance(elements, Counts(n), replicates=replicates, steps=steps, seed=2).pvalue


def noticed_by(*elements, steps=4, n=3, sizes=(200, 800, 2500)):
    def pvalue(replicates):
        return pvalue_of(*elements, replicates=replicates, steps=steps, n=n)

    return until_noticed(pvalue, *sizes)


def single(**options):
    """One datum, short steps, a q that is much too narrow: f decides what is accepted."""
    return poor_element(too_large=8.0, scale=0.15, **options)


@pytest.mark.parametrize(
    "options",
    [
        {},
        pytest.param({"n_importance": 16}, marks=pytest.mark.slow),
        pytest.param({"too_large": 16.0}, marks=pytest.mark.slow),
        pytest.param({"n_importance": 4, "move": "delayed-metropolis"}, marks=pytest.mark.slow),
        {"importance": lgm.Importance(correlation=0.0, defensive=0.5)},
        pytest.param(
            {"independent": True, "n_importance": 4, "too_large": 1.5}, marks=pytest.mark.slow
        ),
        {"independent": True, "n_importance": 2, "interweave": True, "too_large": 0.7},
    ],
    ids=str,
)
def test_a_poor_approximation_is_still_exact(options):
    assert pvalue_of(poor_element(**options)) > 1e-4


@pytest.mark.mutant
def test_recomputing_the_estimate_from_fresh_draws_is_noticed(monkeypatch, dies):
    """The mutant keeps f, but weighs the current theta by N draws that do not contain it."""

    class FreshWeights(module.PseudoMarginalTarget):
        @classmethod
        def fix(cls, rng, state, **options):
            target = super().fix(rng, state, **options)
            at, scheme = target.state.at, options["scheme"]
            proposal = module.proposal_at(at, options["search"], scheme)
            fresh = Coordinates.fresh(rng, proposal, scheme)
            sample = importance_sample(proposal, at.log_likelihoods, fresh, scheme)
            return replace(target, log_density=sample.log_evidence + at.log_prior)

    monkeypatch.setattr(element_module, "PseudoMarginalTarget", FreshWeights)
    pvalue = noticed_by(poor_element(too_large=16.0))
    dies("pseudo-marginal: fresh draws in place of a refresh", pvalue, below=1e-6)


@pytest.mark.slow
@pytest.mark.mutant
def test_dropping_the_refresh_is_noticed(monkeypatch, dies):
    """The estimate of the last acceptance is kept, and another kernel has moved f since."""
    kept = {}

    class WithoutRefresh(module.PseudoMarginalTarget):
        @classmethod
        def fix(cls, rng, state, **options):
            target = super().fix(rng, state, **options)
            at = state.theta.tobytes()
            stale = kept.get(at, target.log_density)
            kept.clear()
            kept[at] = stale
            return replace(target, log_density=stale)

        def evaluate(self, theta):
            log_density, there = super().evaluate(theta)
            kept[theta.tobytes()] = log_density
            return log_density, there

    right = (latent.EllipticalSlice(repeats=2), single())
    assert pvalue_of(*right, n=1) > 1e-4
    monkeypatch.setattr(element_module, "PseudoMarginalTarget", WithoutRefresh)
    dies(
        "pseudo-marginal: the refresh is dropped",
        pvalue_of(*right, replicates=2500, n=1),
        below=1e-6,
    )


def error_of_kept(*elements, draws=60):
    """How far the draws that states keep are from those that their theta makes of the same numbers.

    And in how many of the draws they were made anew where theta stayed.
    """
    chain, errors, anew = Chain.start(elements, Counts(), np.random.default_rng(5)), [0.0], 0
    for _ in range(draws):
        before = chain.state
        chain.step()
        here, kept = chain.state, chain.state.cached
        if kept is None:
            continue
        search, scheme = kept.made_by
        proposal = module.proposal_at(here.at, search, scheme)
        right = importance_sample(proposal, here.at.log_likelihoods, kept.coordinates, scheme)
        errors.append(np.abs(kept.sample.log_weights - right.log_weights).max())
        errors.append(np.abs(right.f - here.f[:, None]).max(axis=0).min())
        anew += kept is not before.cached and here.at is before.at
    return max(errors), anew


WALK = samplers.Theta("whitened", samplers.Metropolis(scale=0.7))


def test_draws_that_are_kept_are_those_of_theta():
    element = poor_element(1.0, independent=True, n_importance=4)
    error, anew = error_of_kept(element)
    assert error == 0.0
    assert 0 < anew < 30  # in a fifth of the draws in which theta stays
    error, _ = error_of_kept(WALK, latent.EllipticalSlice(), element)
    assert error == 0.0
    state = Chain.start((element,), Counts(), np.random.default_rng(5), tune=1).state
    assert state.with_f(state.f + 0.1).cached is None


def test_draws_of_another_sampler_are_not_kept():
    """Two that make them otherwise, in one sweep: each draws its own around f."""
    one = poor_element(1.0, independent=True, n_importance=4)
    chain = Chain.start((one,), Counts(), np.random.default_rng(5))
    chain.step()
    for of, stays in ((one, True), (poor_element(2.0, independent=True, n_importance=4), False)):
        search = of.search.with_line(None)
        target = module.PseudoMarginalTarget.fix(
            np.random.default_rng(6), chain.state, search=search, scheme=Scheme(4), keep=True
        )
        assert (target.state.cached is chain.state.cached) == stays


def test_a_copy_of_a_line_is_the_same_line(rng):
    """A chain that goes on elsewhere from its sampling state keeps its draws."""
    default = elements_of((lgm.PseudoMarginal, {}), "counts")
    line = Chain.start(default, informed(), rng, tune=20).tunings[0].sites.line
    copy = deepcopy(line)
    assert copy is not line
    assert (copy, hash(copy)) == (line, hash(line))
    assert replace(copy, value=copy.value + 1.0) != line


@pytest.mark.mutant
def test_draws_kept_from_another_theta_are_noticed(monkeypatch, dies):
    """A state that has moved keeps the draws that its proposal was compared with."""

    class Keeping(module.PseudoMarginalTarget):
        def second_stage(self, first):
            log_density, there = super().second_stage(first)
            return log_density, there and replace(there, cached=self.state.cached)

    monkeypatch.setattr(element_module, "PseudoMarginalTarget", Keeping)
    error, _ = error_of_kept(poor_element(1.0, independent=True, n_importance=4))
    dies("pseudo-marginal: draws kept from another theta", error, above=0.1)


@pytest.mark.mutant
def test_draws_kept_where_another_kernel_moves_theta_are_noticed(monkeypatch, dies):
    with_theta = State.with_theta

    def keeping(state, theta, follow):
        there = with_theta(state, theta, follow)
        return there if there is None else replace(there, cached=state.cached)

    monkeypatch.setattr(State, "with_theta", keeping)
    error, _ = error_of_kept(WALK, poor_element(1.0, independent=True, n_importance=4))
    dies("pseudo-marginal: draws kept while another kernel moves theta", error, above=0.1)


@pytest.mark.slow
@pytest.mark.mutant
def test_moving_f_after_the_refresh_is_noticed(monkeypatch, dies):
    """A wrong order: the estimate knows f as it was, and a rejection keeps f as it is."""

    class MovedInBetween(module.PseudoMarginalTarget):
        @classmethod
        def fix(cls, rng, state, **options):
            target = super().fix(rng, state, **options)
            element = latent.EllipticalSlice(repeats=3)
            return replace(target, state=element.run(rng, target.state, None, False)[0])

    monkeypatch.setattr(element_module, "PseudoMarginalTarget", MovedInBetween)
    pvalue = noticed_by(single(), n=1, sizes=(1500, 3000))
    dies("pseudo-marginal: f moves between its refresh and theta", pvalue, below=1e-6)


@pytest.mark.slow
@pytest.mark.mutant
def test_a_flag_without_f_is_noticed(monkeypatch, dies):
    """Whether f came from the prior is drawn as if f said nothing of it."""

    class WithoutF(Coordinates):
        @classmethod
        def around(cls, rng, f, proposal, scheme):
            blind = Instead(proposal, log_prior_over_q=lambda f: np.zeros(1))
            return super().around(rng, f, blind, scheme)

    monkeypatch.setattr(module, "Coordinates", WithoutF)
    pvalue = noticed_by(single(importance=lgm.Importance(correlation=0.99, defensive=0.5)), n=1)
    dies("pseudo-marginal: a defensive flag that does not look at f", pvalue, below=1e-6)


@pytest.mark.slow
@pytest.mark.mutant
def test_delayed_acceptance_without_its_second_stage_is_noticed(monkeypatch, dies):
    real = metropolis_module.delayed_metropolis

    def first_stage_only(rng, target, *, factor):
        def second_stage(first):
            return first.log_density, target.second_stage(first)[1]

        changes = {"second_stage": second_stage, "log_density": target.first_log_density}
        return real(rng, MadeTarget.like(target, **changes), factor=factor)

    monkeypatch.setattr(metropolis_module, "delayed_metropolis", first_stage_only)
    element = poor_element(n_importance=4, move="delayed-metropolis")
    pvalue = noticed_by(element, steps=5, sizes=(2500,))
    dies("delayed acceptance: without its second stage", pvalue, below=1e-6)


@pytest.mark.mutant
def test_a_search_that_remembers_the_chain_is_noticed(dies):
    """A warm start so loose that it ends where it began: q is centered on the chain's own f."""
    (element,) = elements_of((lgm.PseudoMarginal, PLAIN), "counts")
    toy, rng = Counts(), np.random.default_rng(2)
    chain = Chain.start((element,), toy, rng)

    def warm(likelihood, prior, *, start=None, tolerance=None):
        remembered = chain.state.prior.inverse_times(chain.state.f - chain.state.mean)
        q = laplace(likelihood, prior)
        center = prior.mean + prior.covariance_times(remembered)
        return replace(q, alpha=remembered, center=center)

    chain.elements = (searching(element, warm),)
    pvalue = until_noticed(
        lambda replicates: invariance_of(chain, replicates=replicates, steps=4).pvalue, 250, 1500
    )
    dies("pseudo-marginal: a search that remembers the chain", pvalue, below=1e-6)


@pytest.mark.slow
@pytest.mark.mutant
def test_sites_that_follow_the_chain_are_noticed(dies):
    """Predicted sites are a function of theta that tuning has fixed; these look at f."""
    plain = PLAIN | {"importance": lgm.Importance(correlation=0.0, copula=False)}
    (element,) = elements_of((lgm.PseudoMarginal, plain), "counts")
    chain = Chain.start((element,), Counts(), np.random.default_rng(2), tune=200)

    def following(likelihood, prior, *, start, tolerance):
        W = 4.0 * start.precision
        nu = W * (chain.state.f - prior.mean)
        return recall(likelihood, prior, start=replace(start, nu=nu, precision=W))

    chain.elements = (replace(element, search=WarmSearch(following, 0.0)),)
    pvalue = until_noticed(
        lambda replicates: invariance_of(chain, replicates=replicates, steps=4).pvalue, 250, 1500
    )
    dies("pseudo-marginal: recalled sites that follow the chain", pvalue, below=1e-6)


class Tempting(samplers.PseudoMarginal):
    """Interweaving alone where f is high: its share is no longer a coin's."""

    def run(self, rng, state, tuning, tune):
        if state.f[0] > 1.2:
            walk = self.interweave.walk
            return walk.run(rng, state, tuning.interweaving.walk, False)[0], tuning, {}
        return super().run(rng, state, tuning, tune)


@pytest.mark.mutant
def test_interweaving_where_f_says_so_is_noticed(dies):
    (element,) = elements_of((lgm.PseudoMarginal, {"scale": 0.7}), "labels")
    tempting = Tempting(**vars(element))
    pvalue = invariance((tempting,), Labels(), replicates=400, steps=3, tune=60).pvalue
    dies("pseudo-marginal: interweaving's share depends on f", pvalue, below=1e-6)


class QuietByF(samplers.PseudoMarginal):
    """Independent estimates, and no move of f, where f is high: not what tuning has seen."""

    def run(self, rng, state, tuning, tune):
        right = samplers.PseudoMarginal(**vars(self) | {"independent": state.f[0] > 1.2})
        return right.run(rng, state, tuning, tune)


@pytest.mark.mutant
def test_estimates_that_are_independent_where_f_says_so_are_noticed(dies):
    options = {
        "move": "metropolis",
        "scale": 0.7,
        "n_importance": 1,
        "interweave": False,
        "importance": lgm.Importance(correlation=0.99),
    }
    (element,) = elements_of((lgm.PseudoMarginal, options), "labels")
    mutant = QuietByF(**vars(element))

    def pvalue(replicates):
        return invariance((mutant,), Labels(), replicates=replicates, steps=3, tune=60).pvalue

    noticed = until_noticed(pvalue, 1500, 3000)
    dies("pseudo-marginal: independent estimates where f is high", noticed, below=1e-6)


@pytest.mark.slow
def test_delayed_acceptance_reports_how_often_it_moves():
    chain = Chain.start(
        elements_of((lgm.PseudoMarginal, {"move": "delayed-metropolis", "scale": 0.7}), "labels"),
        Labels(),
        np.random.default_rng(5),
    )
    moved, reported = [], []
    for _ in range(1500):
        before = chain.state.theta[0]
        reported.append(chain.step()["theta_acceptance"])
        moved.append(chain.state.theta[0] != before)
    alpha = np.array(reported)
    assert abs(np.sum(moved - alpha)) < 5 * math.sqrt((alpha * (1 - alpha)).sum())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sampler", "options"),
    [
        (lgm.papers.KnorrHeldRue, {"latent_move": "hmc"}),
        (lgm.PseudoMarginal, {}),
        (lgm.ASIS, {}),
    ],
)
def test_f_moves_where_there_is_no_theta(sampler, options):
    with pm.Model() as model:
        f = pm.MvNormal("f", mu=np.zeros(2), cov=np.array([[1.0, 0.6], [0.6, 1.0]]))
        lgm.Probit("y", f=f, observed=[0, 1])
        step = sampler(compile_kwargs=QUICK, **options)
    step.setup_chain(np.random.default_rng(1), 5, 50)
    point, f0 = model.initial_point(), []
    for _ in range(50):
        point, _ = step.step(point)
        f0.append(point["f"][0])
    assert len(np.unique(f0)) > 20


def test_f_stays_where_no_importance_draw_has_a_weight():
    """As of data that rule out all but a corner: a state that they rule out would be none."""
    chain = Chain.start((samplers.LATENT_MOVES["slice"](),), Labels(), np.random.default_rng(5))
    state, search = chain.state, WarmSearch(laplace_from_sites, 1e-3)
    proposal = module.proposal_at(state.at, search, Scheme(4))

    def nothing(rows, theta):
        return np.full(len(rows), -np.inf)

    chain.toy.log_likelihoods = nothing
    draws = module.draw_latent(np.random.default_rng(6), state, proposal, Scheme(4))
    assert draws is state
    del chain.toy.log_likelihoods
    assert module.draw_latent(np.random.default_rng(6), state, proposal, Scheme(4)) is not state


def test_an_ellipse_without_a_point_on_the_slice_ends():
    """Of a likelihood that is not the same twice: lower than it was, everywhere."""
    state = Chain.start((latent.EllipticalSlice(),), Labels(), np.random.default_rng(5)).state
    higher = replace(state, log_likelihood=state.log_likelihood + 1e6)
    moved, info = latent.elliptical_slice.elliptical_slice(np.random.default_rng(6), higher)
    assert moved is higher
    assert info.latent_acceptance == 0.0


def test_a_copy_of_a_sampler_makes_draws_as_it_does():
    """A chain that goes on elsewhere keeps its importance draws, whatever made them."""
    for options in ({}, {"sites": "optimized"}, {"approximation": "laplace", "sites": "optimized"}):
        (element,) = elements_of((lgm.PseudoMarginal, options), "counts")
        assert deepcopy(element.search) == element.search


def test_a_draw_of_several_moves_reports_those_that_have_a_number():
    reports = [{"a": 1.0, "b": math.nan}, {"a": math.nan, "b": math.nan}, {"a": 3.0}]
    of_all = sweep.averaged(reports)
    assert of_all["a"] == 2.0
    assert math.isnan(of_all["b"])


def test_searches_of_exploration_begin_at_the_sites_of_the_first_theta():
    """Until the sites at more thetas are known, these are where each search begins."""
    (element,) = elements_of((lgm.PseudoMarginal, {}), "counts")
    starts = []

    def noted(*args, start=None, **options):
        starts.append(start)
        return element.explore.search(*args, start=start, **options)

    noting = searching(element, noted)
    chain = Chain.start((noting,), Counts(), np.random.default_rng(1))
    chain.tunings = [noting.start(chain.state, 40)]
    chain.step(tune=True)
    assert starts[0] is None
    line, first = chain.tunings[0].sites.line, len(starts)
    one, two = (line(chain.state.theta + x) for x in (0.0, 0.3))
    np.testing.assert_allclose(one.precision, two.precision, rtol=1e-9)
    chain.step(tune=True)
    assert len(starts) > first
    assert all(start is not None for start in starts[first:])


def test_after_tuning_q_is_a_function_of_theta():
    """Frozen searches: the same theta gives the same q, whatever the chain did in between."""
    (element,) = elements_of((lgm.PseudoMarginal, {}), "counts")
    chain = Chain.start((element,), Counts(), np.random.default_rng(1), tune=120)
    line = chain.tunings[0].sites.line
    chain.draws(50)
    assert chain.tunings[0].sites.line is line
    assert line is not None
    theta, toy = chain.state.theta, chain.toy
    search = element.search.with_line(line)
    one, two = (search(LikelihoodAt(toy, theta), toy.prior(theta)) for _ in range(2))
    np.testing.assert_array_equal(one.center, two.center)


class OnlyF(Labels):
    """No hyper-parameters."""

    prior_mean = prior_sd = np.empty(0)
    theta_names = ()

    def mean(self, theta):
        return np.array([0.3, 0.0, -0.2])

    def cov(self, theta):
        return super().cov(np.zeros(3))


@pytest.mark.slow
def test_without_hyperparameters_it_draws_f_alone():
    elements = elements_of((lgm.PseudoMarginal, {"n_importance": 4, "latent_move": None}), "labels")
    assert invariance(elements, OnlyF(), replicates=800, tune=20).pvalue > 1e-4


@pytest.mark.parametrize("size", [30, 64, 1000])
def test_pareto_k_is_that_of_arviz(size, rng):
    log_weights = 1.5 * rng.standard_normal(size)
    # ArviZ takes log-likelihoods, whose negatives are the log weights of leave-one-out.
    expected = xr.DataArray(-log_weights, dims="sample").azstats.psislw(dim="sample", r_eff=1)[1]
    assert pareto_shape(log_weights) == pytest.approx(float(expected), rel=1e-6)


def informed():
    """Counts that say much."""
    toy = Counts()
    toy.y = np.array([20.0, 90.0, 40.0])
    return toy


@pytest.fixture
def walks(monkeypatch):
    """A list with one item for each step of the walk that needs no estimate."""
    whitened, steps = samplers.PARAMETERIZATIONS["whitened"], []
    monkeypatch.setitem(
        samplers.PARAMETERIZATIONS, "whitened", lambda *at: steps.append(1) or whitened(*at)
    )
    return steps


@pytest.mark.slow
def test_theta_moves_without_estimates_now_and_then_and_always_where_those_fail(walks):
    (element,) = elements_of((lgm.PseudoMarginal, INDEPENDENT | {"n_importance": 1}), "counts")
    for too_large, share in ((1.0, 0.2), (1e-4, 1.0)):
        search = searching(element, partial(poor, too_large=too_large))
        chain = Chain.start((search,), informed(), np.random.default_rng(8), tune=200)
        walks.clear()
        chain.draws(400)
        assert abs(len(walks) / 400 - share) <= 5 * math.sqrt(share * (1 - share) / 400)


@pytest.mark.parametrize("independent", [True, False])
def test_the_walk_is_tuned_by_as_many_steps_as_draws(independent, walks):
    """On low-noise estimates in a row, in a quarter of the draws: f moves with the walk."""
    (element,) = elements_of((lgm.PseudoMarginal, INDEPENDENT), "counts")
    element = replace(element, independent=independent)
    chain = Chain.start((element,), informed(), np.random.default_rng(8), tune=0)
    steps = []
    for _ in range(100):
        walks.clear()
        chain.step(tune=True)
        steps.append(len(walks))
    if independent:
        assert set(steps) == {0, IN_A_ROW}
        assert abs(sum(steps) / 100 - 1) < 5 * math.sqrt(3 / 100)
    else:
        assert set(steps) == {1}
    assert chain.tunings[0].interweaving.draws == 100


def test_pareto_k_needs_a_tail(rng):
    assert math.isnan(pareto_shape(np.log(rng.exponential(size=29))))
    assert math.isnan(pareto_shape(np.zeros(100)))
    assert pareto_shape(-20.0 * np.arange(100)) == math.inf


@pytest.mark.parametrize(
    ("change", "expected"),
    [(0.0, 8), (0.25, 8), (0.4, 16), (0.6, 32), (0.7, 64), (3.0, 64), (math.nan, 64)],
)
def test_noisy_ratios_ask_for_more_draws(change, expected):
    noise = NoiseTuning()
    for _ in range(20):
        noise = noise.update(change)
    assert noise.n_importance == expected


def test_where_no_noise_was_seen_draws_are_four_times_the_fewest():
    assert NoiseTuning().n_importance == 32
    assert NoiseTuning(fewest=2).n_importance == 8


@pytest.mark.parametrize(
    ("options", "measured", "chosen"),
    [({}, 4, 32), ({"fewest": 2}, 2, 16), ({"given": 7}, 7, 7)],
)
def test_noise_is_measured_with_no_more_draws_than_an_estimate_may_have(options, measured, chosen):
    noise = NoiseTuning(**options).update(0.5)
    assert noise.measured == measured
    assert noise.n_importance == chosen


def test_costly_draws_may_be_noisier():
    """Four times the variance for a quarter of the draws: estimates count as low-noise alike."""
    noise = NoiseTuning(), NoiseTuning(limit=LARGEST_NOISE)
    few, fewer = (each._replace(total=20 * 0.4, ratios=20, fewest=2) for each in noise)
    assert (few.n_importance, fewer.n_importance) == (16, 4)
    assert few.is_low_noise
    assert fewer.is_low_noise


@pytest.mark.slow
def test_tuning_chooses_the_number_of_draws():
    """More where q is poor, the fewest where it is good; as many as the user says if told."""
    (element,) = elements_of((lgm.PseudoMarginal, INDEPENDENT), "counts")
    (told,) = elements_of((lgm.PseudoMarginal, INDEPENDENT | {"n_importance": 6}), "counts")

    def stats_of(element, tune=200):
        chain = Chain.start((element,), informed(), np.random.default_rng(8), tune)
        return chain.step()

    assert stats_of(element)["n_importance"] == 8
    # A q with W / 1000 is next to the prior.
    poorer = searching(element, partial(poor, too_large=0.001))
    assert stats_of(poorer)["n_importance"] == 64
    assert "n_importance" not in stats_of(told, 20)
    chain = Chain.start((element,), informed(), np.random.default_rng(8))
    chain.tunings = [element.start(chain.state, 8)]
    assert chain.step(tune=True)["n_importance"] == 4


@pytest.mark.slow
def test_a_likelihood_without_curvature_is_refused():
    with pm.Model() as model:
        pm.Laplace("y", mu=_latent(), b=1.0, observed=np.array([0.3, -1.2, 0.8]))
    with pytest.raises(ValueError, match=r"nowhere strictly concave in 'f'.*approximation='ep'"):
        build(lgm.PseudoMarginal, model, approximation="laplace")
    # EP matches moments, which it has.
    step = build(lgm.PseudoMarginal, model, n_importance=32)
    step.setup_chain(np.random.default_rng(8), 8, 1)
    point = model.initial_point()
    for _ in range(8):
        point, _ = step.step(point)
    step.stop_tuning()
    assert step.step(point)[1][0]["pareto_k"] < 1


def test_a_search_that_fails_at_the_start_is_an_error():
    step = build(lgm.PseudoMarginal, "probit")
    nothing = searching(step.element, lambda *args, **kwargs: None)
    step.element, step.elements = nothing, (nothing,)
    step.setup_chain(np.random.default_rng(1), 0, 1)
    with pytest.raises(SamplingError, match=r"No Gaussian approximation of 'f'.*initvals"):
        step.step(listed("probit").initial_point())


def test_a_search_that_fails_at_a_proposal_is_a_counted_rejection():
    (element,) = elements_of((lgm.PseudoMarginal, {"interweave": False}), "labels")
    calls = []

    def only_once(*args, **kwargs):
        calls.append(1)
        return element.explore.search(*args, **kwargs) if len(calls) == 1 else None

    chain = Chain.start((searching(element, only_once),), Labels(), np.random.default_rng(1))
    theta = chain.state.theta
    for _ in range(3):
        stats = chain.step()
        assert stats["numerical_rejections"] == 1
        assert stats["theta_acceptance"] == 0.0
        np.testing.assert_array_equal(chain.state.theta, theta)


@pytest.mark.slow
def test_corrected_draws_are_exact():
    """The approximate chain is off, by an evidence that is; and weights bring it back."""
    options = {"approximation": "laplace", "n_importance": 4}
    (element,) = elements_of((lgm.papers.ApproximateMarginal, options), "counts")

    def biased(likelihood, prior, **options):
        q = element.explore.search(likelihood, prior, **options)
        return replace(q, log_evidence=q.log_evidence + 0.5 * math.log(prior.variances[0]))

    off = replace(element, explore=replace(element.explore, search=biased))
    chain = Chain.start((off,), Pair(), np.random.default_rng(5), tune=200)
    draws, stats = [], []
    for _ in range(4000):
        stats.append(chain.step())
        draws.append([*chain.state.theta, *chain.state.f])
    trace = az.from_dict(
        {
            "posterior": {"x": np.array(draws)[None]},
            "sample_stats": {
                name: np.array([row[name] for row in stats])[None]
                for name in ("log_evidence", "approximate_log_evidence")
            },
        }
    )

    def score(tree):
        return np.abs(z_scores(tree["posterior"]["x"].values[0], solve())).max()

    corrected = lgm.reweight(trace, random_seed=1)
    assert score(trace) > 7
    assert score(corrected) < 5
    assert corrected.posterior.attrs["pareto_k"] < 0.7
    assert 500 < corrected.posterior.attrs["importance_ess"] < 4000
    assert set(az.summary(corrected).index) == set(az.summary(trace).index)


def approximate_trace(log_ratio):
    """A trace whose draws are their own numbers, with these log weights."""
    chains, draws = log_ratio.shape
    theta = np.arange(chains * draws, dtype=float).reshape(chains, draws)
    stats = {"log_evidence": log_ratio, "approximate_log_evidence": np.zeros_like(log_ratio)}
    return az.from_dict({"posterior": {"theta": theta}, "sample_stats": stats})


def test_a_chain_far_below_the_others_keeps_its_own_draws(rng):
    log_ratio = 0.1 * rng.standard_normal((2, 500)) - np.array([[0.0], [2000.0]])
    corrected = lgm.reweight(approximate_trace(log_ratio), random_seed=1)
    for chain in (0, 1):
        kept = np.unique(corrected.posterior["theta"][chain])
        assert kept.size > 300
        assert (kept // 500 == chain).all()


def test_a_draw_without_an_evidence_cannot_be_weighed(rng):
    log_ratio = rng.standard_normal((2, 50))
    log_ratio[1, 7] = np.nan
    with pytest.raises(ValueError, match=r"draw 7 of chain 1 is NaN.*lgm.PseudoMarginal"):
        lgm.reweight(approximate_trace(log_ratio))


def test_draws_are_not_weighed_twice(rng):
    """Also not after a part of them was taken."""
    once = lgm.reweight(approximate_trace(rng.standard_normal((2, 50))), random_seed=1)
    for trace in (once, once.isel(draw=slice(10, None))):
        with pytest.raises(ValueError, match="reweighted before"):
            lgm.reweight(trace, random_seed=2)


def test_what_else_is_of_the_draws_is_corrected_with_them(rng):
    """Or is gone, where it is of other draws; what is of the prior stays."""
    trace = approximate_trace(rng.standard_normal((2, 50)))
    x = trace["posterior"].to_dataset()
    trace["log_likelihood"] = xr.DataTree(2.0 * x)
    trace["posterior_predictive"] = xr.DataTree(x.isel(draw=slice(None, None, 2)))
    trace["prior"] = xr.DataTree(x.isel(chain=[0]))
    corrected = lgm.reweight(trace, random_seed=1)
    new = corrected["posterior"].to_dataset()
    xr.testing.assert_equal(corrected["log_likelihood"].to_dataset(), 2.0 * new)
    assert not new.equals(x)
    assert "posterior_predictive" not in corrected.children
    xr.testing.assert_equal(corrected["prior"].to_dataset(), trace["prior"].to_dataset())


def test_an_exact_chain_needs_no_correction(rng):
    trace = approximate_trace(rng.standard_normal((2, 50)))
    del trace["sample_stats"]["approximate_log_evidence"]
    with pytest.raises(
        ValueError, match=r"no approximate_log_evidence.*lgm.papers.ApproximateMarginal\(\)"
    ):
        lgm.reweight(trace)


def test_no_weights_make_draws_exact_if_another_step_moves_variables(rng):
    """The steps together leave neither the posterior nor q(y | theta) p(theta) invariant."""
    with pm.Model():
        scale = pm.HalfNormal("scale")
        shift = pm.Normal("shift")
        f = pm.Normal("f", 0.0, scale, shape=3)
        pm.Bernoulli("y", logit_p=f + shift**3, observed=[0, 1, 0])
        kwargs = {"n_importance": 4, "compile_kwargs": QUICK}
        alone = lgm.papers.ApproximateMarginal(**kwargs).stats_dtypes[0]
        beside = lgm.papers.ApproximateMarginal([f, scale], **kwargs).stats_dtypes[0]
    assert alone.keys() - beside.keys() == {"log_evidence"}
    trace = approximate_trace(rng.standard_normal((2, 50)))
    del trace["sample_stats"]["log_evidence"]
    with pytest.raises(ValueError, match=r"another step moved variables.*lgm.PseudoMarginal\(\)"):
        lgm.reweight(trace)
    assert "no weights make these draws exact" in str(lgm.report(trace))


def test_the_exact_chain_begins_with_an_f_of_its_own_importance_draws():
    """Draws of a poor q in tuning are far out, and no exact draw would leave them soon."""
    (element,) = elements_of((lgm.PseudoMarginal, INDEPENDENT | {"n_importance": 2}), "counts")
    element = replace(
        element,
        explore=WarmSearch(partial(poor, too_large=0.001), element.explore.tolerance),
        search=element.explore,
        latent=None,
    )

    def log_likelihoods(draws):
        found = []
        for seed in range(20):
            chain = Chain.start((element,), informed(), np.random.default_rng(seed))
            chain.tunings = [element.start(chain.state, 8)]
            for _ in range(draws):
                chain.step(tune=True)
            found.append(chain.state.log_likelihood)
        return np.array(found)

    exploring, departing = log_likelihoods(5), log_likelihoods(6)
    assert np.median(exploring) < np.median(departing) - 20.0
    assert departing.min() > np.median(exploring)


@pytest.mark.slow
def test_where_estimates_are_quiet_f_moves_by_itself_in_one_draw_of_ten():
    """An f that no importance draw comes from would otherwise stay with its estimate."""
    (element,) = elements_of((lgm.PseudoMarginal, {}), "counts")
    chain = Chain.start((element,), informed(), np.random.default_rng(8), tune=200)
    assert chain.tunings[0].noise.is_low_noise
    moved = sum(not math.isnan(chain.step()["latent_acceptance"]) for _ in range(400))
    assert abs(moved / 400 - 0.1) <= 5 * math.sqrt(0.1 * 0.9 / 400)


@pytest.mark.slow
@pytest.mark.parametrize("rests", [True, False])
def test_tuning_rests_where_nothing_is_left_to_learn(rests, rng):
    """And only there: by then most jumps on the emulator are accepted, and draws move on."""
    (element,) = elements_of((lgm.PseudoMarginal, {}), "counts")
    assert element.rests  # no other step is beside it
    chain = Chain.start((replace(element, rests=rests),), informed(), rng, tune=0)
    chain.tunings = [element.start(chain.state, 500)]
    learns, drawn = [], []
    for _ in range(500):
        before, learnt = chain.state, chain.tunings[0]
        stats = chain.step(tune=True)
        learns.append(chain.tunings[0] is not learnt)
        drawn.append(not math.isnan(stats["latent_acceptance"]))
        if not learns[-1]:
            assert chain.state is before
            assert stats.pop("cubic_ops") == stats.pop("numerical_rejections") == 0
            assert all(math.isnan(value) for value in stats.values())
    (tuning,) = chain.tunings
    if not rests:
        assert all(learns)
        assert all(drawn[:375])
        assert tuning.schedule == Schedule(375, 375)
        return
    assert tuning.move.acceptance.mean >= SETTLED
    assert tuning.schedule == Schedule(320, 320, 0)
    assert learns == 383 * [True] + 117 * [False]
    # While it explores theta does not ask for f: every fourth draw is enough to learn its move.
    assert drawn[:320] == 80 * [True, False, False, False]
    assert all(chain.step()["cubic_ops"] > 0 for _ in range(5))
    test = invariance_of(chain, replicates=300, steps=3)
    assert test.pvalue > 1e-4


@pytest.mark.parametrize(("rests", "first", "last"), [(True, 160, 320), (False, 320, 372)])
def test_noise_is_measured_after_the_fits_that_may_be_the_last(rests, first, last, monkeypatch):
    """Fits are renewed after draws 160 and 320, and exploration ends after 320 or 375."""
    (element,) = elements_of((lgm.PseudoMarginal, {}), "counts")
    element = replace(element, rests=rests)
    chain = Chain.start((element,), informed(), np.random.default_rng(0), tune=0)
    chain.tunings = [element.start(chain.state, 500)]
    draws = []
    measured = []
    monkeypatch.setattr(marginal, "noise_of_ratio", lambda *_: measured.append(len(draws)) or 0.0)
    while not chain.tunings[0].schedule.is_explored:
        draws.append(None)
        chain.step(tune=True)
    assert measured == list(range(first, last + 1, 4))
    assert chain.tunings[0].noise.ratios == len(measured)


def test_searches_of_a_climb_begin_at_the_sites_of_the_start(rng):
    """Tens of evaluations, of which only the first is a search from nothing."""
    (element,) = elements_of((lgm.PseudoMarginal, {}), "counts")
    starts = []

    def noted(likelihood, prior, *, start=None, **options):
        starts.append(start)
        return ep(likelihood, prior, start=start, **options)

    element = searching(replace(element, surrogate=None), noted)
    chain = Chain.start((element,), informed(), rng, tune=0)
    chain.tunings = [element.start(chain.state, 500)]
    chain.step(tune=True)
    assert starts[0] is None
    assert len(starts) > 10
    assert all(start is not None for start in starts[1:])


def test_a_survey_is_made_at_the_mode(rng):
    """The climb ends there even if it gains less than the default asks for."""
    (element,) = elements_of((lgm.PseudoMarginal, {}), "counts")
    chain = Chain.start((element,), informed(), rng, tune=0)
    start = chain.state
    assert (element._climb(start, element.start(start, 500)).theta == start.theta).all()
    element = replace(element, move=replace(element.move, surveys=True))
    # The few draws that compile a sampler make no survey.
    assert (element._climb(start, element.start(start, 5)).theta == start.theta).all()
    mode = element._climb(start, element.start(start, 500))

    def density(state):
        return state.at.approximation(element.explore).log_evidence + state.log_prior

    assert 0.1 < density(mode) - density(start) < WORTH


def test_searches_are_looser_after_the_draw_of_the_survey(rng):
    tolerances = []

    def noted(likelihood, prior, *, tolerance, **options):
        tolerances.append(tolerance)
        return ep(likelihood, prior, tolerance=tolerance, **options)

    (element,) = elements_of((lgm.PseudoMarginal, {}), "counts")
    assert element.looser is None
    element = searching(replace(element, surrogate=None, looser=0.02), noted)
    chain = Chain.start((element,), informed(), rng, tune=0)
    chain.tunings = [element.start(chain.state, 500)]
    for expected in (element.explore.tolerance, 0.02, 0.02):
        tolerances.clear()
        chain.step(tune=True)
        assert set(tolerances) == {expected}


def test_an_emulator_of_few_jumps_goes_on_learning(rng):
    """However many draws: it may yet become better."""
    (element,) = elements_of((lgm.PseudoMarginal, {}), "counts")
    chain = Chain.start((element,), informed(), rng, tune=0)
    tuning = element.start(chain.state, 500)
    history = History(tuple(np.zeros((320, 2))), 400)
    fit = tuning.move.fit._replace(history=history)
    move = tuning.move._replace(fit=fit, acceptance=Acceptance(SETTLED, 100))
    assert is_settled(move)
    assert not is_settled(move._replace(acceptance=Acceptance(SETTLED - 0.01, 100)))
    assert not is_settled(move._replace(acceptance=Acceptance(SETTLED, 49)))
    fewer = fit._replace(history=History(history.rows[1:], 400))
    assert not is_settled(move._replace(fit=fewer))


def test_exploration_ends_early_only_at_a_renewal_of_a_move_that_has_converged():
    for draws, converged, expected in (
        (319, False, Schedule(375, 320)),
        (319, True, Schedule(320, 320, 63)),
        (200, True, Schedule(375, 201)),
    ):
        assert Schedule(375, draws).after(Phase.EXPLORE, converged=converged) == expected


def test_a_chain_explores_then_tunes_on_its_target_then_rests_or_is_frozen():
    schedule, phases = Schedule.start(8), []
    for _ in range(8):
        phase = schedule.phase(tune=True)
        phases.append(phase)
        schedule = schedule.after(phase)
    assert phases == 6 * [Phase.EXPLORE] + 2 * [Phase.EXACT]
    assert schedule.phase(tune=False) is Phase.FROZEN
    assert schedule.after(Phase.FROZEN) == schedule
    assert Schedule(5, 5, 1).after(Phase.EXACT).phase(tune=True) is Phase.REST
    assert Schedule(0).phase(tune=True) is Phase.EXACT
