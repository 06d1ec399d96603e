"""Models of the BUGS manual that chains once stuck in, as users write them, and what freed them."""

import arviz as az
import numpy as np
import pymc as pm
import pytest

from toys import Counts

import pymc_lgm as lgm

from pymc_lgm.approximations.ep import ep
from pymc_lgm.approximations.misfit import misfit
from pymc_lgm.approximations.recall import MISFIT, recall
from pymc_lgm.approximations.site_coordinates import OneByOne
from pymc_lgm.approximations.sites import Margins, Recalled, Sites
from pymc_lgm.approximations.sites_tuning import SitesTuning
from pymc_lgm.kernels.hold.target import Slope, Target
from pymc_lgm.kernels.theta.climb import WORTH, climb
from pymc_lgm.linalg import tally
from pymc_lgm.priors import DensePrior
from pymc_lgm.state import LikelihoodAt

RATS = """
151 199 246 283 320  145 199 249 293 354  147 214 263 312 328  155 200 237 272 297
135 188 230 280 323  159 210 252 298 331  141 189 231 275 305  159 201 248 297 338
177 236 285 350 376  134 182 220 260 296  160 208 261 313 352  143 188 220 273 314
154 200 244 289 325  171 221 270 326 358  163 216 242 281 312  160 207 248 288 324
142 187 234 280 316  156 203 243 283 317  157 212 259 307 336  152 203 246 286 321
154 205 253 298 334  139 190 225 267 302  146 191 229 272 302  157 211 250 285 323
132 185 237 286 331  160 207 257 303 345  169 216 261 295 333  157 205 248 289 316
137 180 219 258 291  153 200 244 286 324
"""
"""Weights of 30 rats at 5 ages, in grams: Gelfand, Hills, Racine-Poon and Smith (1990)."""


def rats():
    weights = np.array(RATS.split(), float)
    rat, day = np.repeat(np.arange(30), 5), np.tile([8.0, 15.0, 22.0, 29.0, 36.0], 30) - 22.0
    with pm.Model() as model:
        mu_alpha, mu_beta = pm.Normal("mu_alpha", 0, 1000), pm.Normal("mu_beta", 0, 1000)
        var_y = pm.InverseGamma("var_y", 0.001, 0.001)
        var_alpha = pm.InverseGamma("var_alpha", 0.001, 0.001)
        var_beta = pm.InverseGamma("var_beta", 0.001, 0.001)
        alpha = pm.Normal("alpha", mu_alpha, pm.math.sqrt(var_alpha), shape=30)
        beta = pm.Normal("beta", mu_beta, pm.math.sqrt(var_beta), shape=30)
        eta = alpha[rat] + beta[rat] * day
        pm.Normal("y", eta, pm.math.sqrt(var_y), observed=weights)
    return model


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3])
def test_growth_curves_with_vague_variances_mix(seed):
    """R-hat was 1.15 with seed 3, and there were 9 effective draws of 2000."""
    with rats():
        idata = pm.sample(
            step=lgm.PseudoMarginal(), chains=2, cores=1, random_seed=seed, progressbar=False
        )
    for name, r_hat in az.rhat(idata).data_vars.items():
        assert float(r_hat.max()) <= 1.01, name
    for name, ess in az.ess(idata).data_vars.items():
        assert float(ess.min()) >= 400, name
    assert float(idata.sample_stats["cubic_ops"].mean()) <= 10


def predicted(z):
    """Sites of weights of 200 to 300 with variances about 37, and what a line says of them."""
    rng = np.random.default_rng(1)
    y, tuning = rng.uniform(200, 300, size=5), SitesTuning.start(OneByOne(5), 1)
    for theta in np.log(37.0) + 0.15 * rng.standard_normal((200, 1)):
        W = np.full(5, np.exp(-theta[0]))
        tuning = tuning.update(theta, Sites(y * W, W), z=y + rng.standard_normal(5) if z else None)
    W = np.exp(-tuning.line().theta[0] - 0.3)
    sites = tuning.line()(tuning.line().theta + 0.3)
    return (sites.nu / sites.precision - y) * np.sqrt(W)


def test_sites_far_from_the_prior_are_predicted_where_they_are(dies):
    error = np.abs(predicted(True)).max()
    assert error < 0.1
    dies("sites: seen from the mean of the prior", np.abs(predicted(False)).max(), above=0.2)


def test_sites_near_the_prior_are_seen_from_its_mean():
    """As ever: those of labels go with the scale of f."""
    tuning = SitesTuning.start(OneByOne(3), 1)
    tuning = tuning.update(np.zeros(1), Sites(np.ones(3), np.ones(3)), z=np.full(3, 2.0))
    assert tuning.origin is None
    assert tuning.line().origin is None


def test_sites_that_do_not_fit_are_searched_for(dies):
    """However near theta is to those of tuning."""
    toy = Counts()
    theta = toy.prior_mean
    likelihood, mean, K = LikelihoodAt(toy, theta), toy.mean(theta), toy.cov(theta)

    def prior():
        return DensePrior(mean, K.copy())

    q = ep(likelihood, prior(), tolerance=1e-8)
    margins = Margins(q.posterior.variances, prior().precisions)
    fixed = Recalled(q.sites.nu, q.sites.precision, margins)
    z = q.center - q.mean
    at_fixed = misfit(likelihood, q.posterior, q.dual, z, fixed.nu, margins.variances)
    assert at_fixed < 1e-6
    before = tally.cubic_ops
    recall(likelihood, prior(), start=fixed)
    assert tally.cubic_ops - before == 1
    wrong = Recalled(1.5 * fixed.nu + fixed.precision, fixed.precision, margins)
    found = recall(likelihood, prior(), start=wrong)
    away = np.abs(found.center - q.center) / np.sqrt(margins.variances)
    assert away.max() < 0.5
    trusting = recall(likelihood, prior(), start=Recalled(wrong.nu, wrong.precision))
    taken = np.abs(trusting.center - q.center) / np.sqrt(margins.variances)
    dies("recall: without a test of q", taken.max(), above=0.5)
    assert np.isinf(misfit(likelihood, q.posterior, q.dual, z, fixed.nu, 1e3 * margins.variances))
    assert MISFIT > 0.0


class Banana:
    """log density −50 (x − y²)² − ½ y², of a state that is its theta."""

    class State:
        def __init__(self, theta):
            self.theta = theta

    def target(self, theta, slope):
        def value(theta):
            x, y = theta
            return -50.0 * (x - y**2) ** 2 - 0.5 * y**2

        def slope_at(theta):
            x, y = theta
            gradient = np.array([-100.0 * (x - y**2), 200.0 * y * (x - y**2) - y])
            return Slope(theta, value(theta), gradient)

        def evaluate(theta):
            return value(theta), self.State(theta)

        start = self.State(np.array(theta))
        return Target(start, value(start.theta), evaluate, slope=slope_at if slope else None)


@pytest.mark.parametrize("slope", [True, False])
def test_a_climb_comes_to_where_the_mass_is(slope):
    """From 6e5 nats below, along a bent valley."""
    target = Banana().target([-30.0, 9.0], slope)
    state = climb(target, 60)
    assert target(state.theta)[0] > -WORTH


def test_a_start_that_is_good_enough_stays():
    target = Banana().target([4.0, 2.0], True)
    assert climb(target, 60) is target.state
