"""Where nothing is: searches that begin, or end, far below the posterior, on any processor.

Far out a log density can be a plateau of -1e217, whose differences are lost in rounding. What is
left of them depends on the processor and the compiler; here NumPy's numbers say what it is.
"""

import numpy as np
import pytest

from scipy.special import log_ndtr
from test_ep import Gaussian, Likelihood

from pymc_lgm.approximations.ep import ep
from pymc_lgm.approximations.gaussian import plausible
from pymc_lgm.approximations.importance import (
    Coordinates,
    Proposal,
    Scheme,
    importance_sample,
)
from pymc_lgm.approximations.laplace import laplace
from pymc_lgm.approximations.recall import laplace_from_sites, recall
from pymc_lgm.approximations.site_posteriors import site_approximation
from pymc_lgm.approximations.sites import Margins, PredictedSites, Sites
from pymc_lgm.gaussian import DensePrior

N = 12
X = np.linspace(0.0, 1.0, N)
K = 100.0 * np.exp(-8.0 * (X[:, None] - X) ** 2) + 1e-6 * np.eye(N)
M = np.zeros(N)
CLIFF = 500.0
RNG = np.random.default_rng(1)
ULPS = {
    "all values equal": np.zeros((64, 1)),
    "equal at each f_i": RNG.integers(0, 2, size=(1, N)),
    "noise": RNG.integers(0, 2, size=(64, N)),
}


class Counts(Likelihood):
    """Poisson counts of rate exp(f), computed as exp(500) where it is larger, and no better."""

    y = np.arange(N) % 4

    def __init__(self, ulps):
        self.ulps = 1.0 + np.finfo(float).eps * ulps

    def __call__(self, f):
        rate = np.exp(np.minimum(f, CLIFF))
        return float((self.y * f - rate).sum()), self.y - rate, rate, -rate

    def sites(self, rows):
        rate = np.exp(np.minimum(rows, CLIFF))
        return self.y * rows - np.where(rows > CLIFF, np.exp(CLIFF) * self.ulps[: len(rows)], rate)


class TwoBumps(Likelihood):
    """Half of a normal around 1, and e^-100 of another around 30: each has moments of its own."""

    def sites(self, rows):
        return np.logaddexp(-0.5 * (rows - 1.0) ** 2, -100.0 - 2.0 * (rows - 30.0) ** 2)

    def __call__(self, f):
        near, far = -0.5 * (f - 1.0) ** 2, -100.0 - 2.0 * (f - 30.0) ** 2
        value = np.logaddexp(near, far)
        p = np.exp(near - value)
        slopes, mean_slope = (1.0 - f, 4.0 * (30.0 - f)), p * (1.0 - f) + (1 - p) * 4 * (30.0 - f)
        spread = p * (slopes[0] - mean_slope) ** 2 + (1 - p) * (slopes[1] - mean_slope) ** 2
        return float(value.sum()), mean_slope, p + 4.0 * (1 - p) - spread, np.zeros(f.size)


def sites_around(f, precision):
    """Normal sites with mean f."""
    return Sites(np.full(N, precision * f), np.full(N, precision))


@pytest.mark.parametrize(("nu", "precision"), [(10.0, 1e-8), (10.0, 1e-3), (1e4, 1.0), (-1e4, 1.0)])
@pytest.mark.parametrize("ulps", ULPS)
def test_moments_that_match_on_a_plateau_are_no_result(ulps, nu, precision):
    likelihood, start = Counts(ULPS[ulps]), Sites(np.full(N, nu), np.full(N, precision))
    right = ep(likelihood, DensePrior(M, K.copy()), tolerance=1e-6)
    q = ep(likelihood, DensePrior(M, K.copy()), start=start, tolerance=1e-6)
    assert q.converged
    np.testing.assert_allclose(q.center, right.center, atol=1e-3)
    assert q.log_evidence == pytest.approx(right.log_evidence, abs=1e-4)


def test_nor_are_those_of_a_bump_that_has_no_part_in_the_posterior():
    start = sites_around(30.0, 4.0)
    right = ep(TwoBumps(), DensePrior(M, K.copy()), tolerance=1e-6)
    q = ep(TwoBumps(), DensePrior(M, K.copy()), start=start, tolerance=1e-6)
    assert q.converged
    assert right.converged
    np.testing.assert_allclose(q.center, right.center, atol=1e-3)
    assert np.abs(q.center).max() < 2.0


def test_where_ep_itself_ends_nowhere_the_result_is_laplaces():
    """Sites that disagree with their sum take the place of whatever may lead there."""

    class Elsewhere(Gaussian):
        def __call__(self, f):
            return Gaussian(self.y - 20.0, self.noise)(f)

    likelihood = Elsewhere(np.full(N, 20.0), 10.0)
    q = ep(likelihood, DensePrior(M, K.copy()))
    mode = laplace(likelihood, DensePrior(M, K.copy()), tolerance=3.0)
    assert not q.converged
    np.testing.assert_array_equal(q.center, mode.center)
    assert q.log_evidence == mode.log_evidence


@pytest.mark.parametrize("f", [10.0, 20.0, 29.0, 31.0, 100.0, 600.0, 4000.0, -4000.0])
def test_a_start_on_a_cliff_does_no_harm(f):
    """W of e^20 makes any f look like the mode, and one of e^31 leaves no digits of q."""
    likelihood = Counts(ULPS["all values equal"])
    mode = laplace(likelihood, DensePrior(M, K.copy()), tolerance=1e-10)
    q = laplace(likelihood, DensePrior(M, K.copy()), start=np.full(N, f))
    assert q.converged
    assert np.abs(q.center - mode.center).max() < 0.2
    assert np.abs(np.log(q.precision / likelihood(mode.center)[2])).max() < 1.0


@pytest.mark.parametrize("likelihood", [Counts(ULPS["all values equal"]), TwoBumps()])
@pytest.mark.parametrize(
    "start",
    [
        sites_around(30.0, 4.0),
        sites_around(700.0, 1e-3),
        sites_around(-300.0, 1.0),
        Sites(np.ones(N), np.full(N, 1e14)),
    ],
    ids=["bump", "plateau", "below", "no digits"],
)
@pytest.mark.parametrize("stiff", [False, True])
def test_sites_of_a_place_where_nothing_is_are_not_recalled(stiff, start, likelihood):
    """In an exact chain q would be a hopeless proposal at a theta that may be fine."""
    margins = Margins(np.ones(N), np.ones(N)) if stiff else None
    start = PredictedSites(start.nu, start.precision, margins)
    mode = laplace(likelihood, DensePrior(M, K.copy()), tolerance=1e-10)
    one, two = (recall(likelihood, DensePrior(M, K.copy()), start=start) for _ in range(2))
    assert one.converged
    assert np.abs(one.center - mode.center).max() < 0.3
    np.testing.assert_array_equal(one.center, two.center)
    assert one.log_evidence == two.log_evidence
    proposal, scheme = Proposal.of(one, likelihood), Scheme(64)
    sample = importance_sample(
        proposal,
        lambda rows: likelihood.sites(rows).sum(axis=1),
        Coordinates.fresh(np.random.default_rng(0), proposal, scheme),
        scheme,
    )
    assert sample.estimate.log_evidence_sd < 0.3
    again = laplace_from_sites(likelihood, DensePrior(M, K.copy()), start=start, tolerance=1e-10)
    np.testing.assert_allclose(again.center, mode.center, atol=1e-4)
    np.testing.assert_allclose(again.precision, likelihood(mode.center)[2], rtol=1e-3)


def test_a_site_without_a_mode_has_not_converged():
    """A kink: the search halves its bracket until it gives up."""

    def kink(f):
        return float(-1e3 * np.abs(f - 0.3).sum()), -1e3 * np.sign(f - 0.3), 0.0 * f, 0.0 * f

    kink.sets = None
    assert not site_approximation(kink, DensePrior(M, K.copy())).converged
    assert site_approximation(Counts(ULPS["noise"]), DensePrior(M, K.copy())).converged


@pytest.mark.parametrize(
    ("objective", "at_mean", "expected"),
    [
        (-40.0, -20.0, True),
        (-43.0, -20.0, False),
        (-1e9, -np.inf, True),
        (-20.0, np.nan, True),
        (np.nan, -20.0, False),
        (np.nan, np.nan, False),
        (np.inf, -20.0, False),
        (-np.inf, -np.inf, False),
        (-1.4e217, -1.4e217, False),
    ],
)
def test_what_is_plausible(objective, at_mean, expected):
    assert plausible(objective, at_mean, N) == expected


@pytest.mark.parametrize("slope", [0.0, 3.0, 30.0])
@pytest.mark.parametrize("kind", ["cliff", "probit"])
def test_a_mean_is_at_most_n_nats_below_the_mode(kind, slope):
    """n = 1 by brute force; a prior cut off by a cliff comes near to the bound."""
    f = np.linspace(-40.0, 10.0, 400_001)
    log_p = -0.5 * f**2 / 25.0 + slope * f
    log_p = log_p - np.exp(np.minimum(40.0 * f, CLIFF)) if kind == "cliff" else log_p + log_ndtr(-f)
    p = np.exp(log_p - log_p.max())
    deficit = log_p.max() - np.interp(f @ p / p.sum(), f, log_p)
    assert 0.0 <= deficit <= 1.0
    if kind == "cliff" and slope == 3.0:
        assert deficit > 0.5
