"""Areas: `pymc.CAR` by its sparse precision."""

import tracemalloc

import numpy as np
import pymc as pm
import pytest

from close import close
from models import QUICK, joint_law
from pymc.distributions.multivariate import CARRV
from scipy.sparse import csr_matrix
from test_sets import from_pymc

import pymc_lgm as lgm

from pymc_lgm.approximations.variational import variational
from pymc_lgm.gaussian import SumPrior
from pymc_lgm.state import AtTheta

NEIGHBORS = [(0, 4), (4, 2), (1, 3), (3, 5), (0, 1), (4, 3), (2, 5)]
"""A map of two rows of three, its areas numbered by chance."""
W = np.zeros((6, 6))
for i, j in NEIGHBORS:
    W[i, j] = W[j, i] = 1.0
Y = np.array([2, 0, 1, 3, 0, 1])


def areas(weights=W, mean=0.3, initval=None, alpha=None):
    alpha = pm.Beta("alpha", 3, 2, initval=initval) if alpha is None else alpha()
    tau = pm.Gamma("tau", 6, 4)
    phi = pm.CAR("phi", mu=mean + 0.1 * np.arange(6), W=weights, alpha=alpha, tau=tau)
    pm.Poisson("y", pm.math.exp(phi), observed=pm.Data("seen", Y))


def with_a_mean_of_its_own():
    areas(mean=pm.LogNormal("b", -1.0, 0.4))


def in_two_parts():
    """Its precision is proper: only that of `pymc.ICAR` needs a part to be joined."""
    areas(lgm.spatial.adjacency([(0, 4), (4, 2), (1, 3), (3, 5)]))


MODELS = {
    "areas": areas,
    "with a mean": with_a_mean_of_its_own,
    "in two parts": in_two_parts,
}


pytestmark = [
    pytest.mark.filterwarnings("ignore:Numba will use object mode:UserWarning"),
    pytest.mark.filterwarnings("ignore:Input has data type int64:FutureWarning"),
]


@pytest.fixture(params=MODELS, scope="module")
def built(request):
    with pm.Model() as model:
        MODELS[request.param]()
    return model


@pytest.fixture
def ours(built):
    return lgm.read(built, compile_kwargs=QUICK)


def draw_by_cholesky(cls, rng, mu, W, alpha, tau, W_is_valid, size):
    W = np.asarray(W.todense()) if hasattr(W, "todense") else np.asarray(W)
    Q = float(np.ravel(tau)[0]) * (np.diag(W.sum(axis=0)) - float(np.ravel(alpha)[0]) * W)
    return mu + np.linalg.solve(np.linalg.cholesky(Q).T, rng.standard_normal(len(W)))


def test_pymcs_own_draws_are_not_of_this_law():
    """Their covariance is Q⁻², not Q⁻¹: where this fails, `draw_by_cholesky` is not needed."""
    given = [np.zeros(6), W, np.array(0.5), np.array(4.0), np.array(True)]
    x = CARRV.rng_fn(np.random.default_rng(1), *given, (4000,))
    Q = 4.0 * (np.diag(W.sum(axis=0)) - 0.5 * W)
    assert np.abs(np.cov(x.T) - np.linalg.inv(Q)).max() > 0.1
    np.testing.assert_allclose(np.cov(x.T), np.linalg.inv(Q @ Q), atol=0.02)


@pytest.mark.fast("areas")
def test_the_density_is_the_models(ours):
    assert isinstance(ours.prior(np.zeros(ours.p)), SumPrior)
    assert max(ours.check(draws=4).values()) < 1e-6


SAMPLERS = {
    "PseudoMarginal": (lgm.PseudoMarginal, {"n_importance": 2}),
    "ASIS": (lgm.ASIS, {}),
    "LatentHMC-curvature": (lgm.LatentHMC, {"metric": "curvature"}),
}


IN_SLOW = {("areas", "LatentHMC-curvature"), ("with a mean", "PseudoMarginal")}
"""Of f, and of both; a map in parts is read as any other is. The others before a release."""

TRIED = [
    pytest.param(name, sampler, marks=[pytest.mark.whole] * ((name, sampler) not in IN_SLOW))
    for name in MODELS
    for sampler in SAMPLERS
]


@pytest.mark.slow
@pytest.mark.parametrize(("built", "sampler"), TRIED, indirect=["built"])
def test_every_tuned_sampler_leaves_the_joint_law(built, sampler, monkeypatch):
    monkeypatch.setattr(CARRV, "rng_fn", classmethod(draw_by_cholesky))
    cls, options = SAMPLERS[sampler]
    test = joint_law(cls, built, options=options, replicates=200, steps=3, tune=60)
    assert test.pvalue > 1e-4


@pytest.mark.slow
def test_a_sparse_map_is_read_as_a_dense_one():
    def sparse():
        areas(csr_matrix(W))

    def with_stored_zeros():
        weights = csr_matrix(np.where(W > 0.0, W, 1e-9 * (1.0 - np.eye(6))))
        weights.data[weights.data < 1.0] = 0.0
        areas(weights)

    theta = np.full(2, 0.2)
    theirs = from_pymc(areas).prior(theta).covariance_times(np.eye(12))
    for build in (sparse, with_stored_zeros):
        ours = from_pymc(build)
        close(ours.prior(theta).covariance_times(np.eye(12)), theirs)
        (family,) = ours.form.layout.families
        assert family.rows.size == 6 + len(NEIGHBORS)


def read_and_drawn(n):
    """From a model of n areas to a draw of q and of the latent variables."""
    at = np.arange(n).reshape(-1, 20)
    pairs = np.hstack([(at[:, :-1].ravel(), at[:, 1:].ravel()), (at[:-1].ravel(), at[1:].ravel())])
    rng = np.random.default_rng(6)

    def many():
        weights = lgm.spatial.adjacency(rng.permutation(n)[pairs.T], sparse=True)
        level, alpha = pm.Normal("level", 0, 1), pm.Beta("alpha", 3, 2)
        phi = pm.CAR("phi", np.zeros(n), W=weights, alpha=alpha, tau=2.0)
        w = pm.Normal("w", 0.0, 0.5, shape=n)
        pm.Poisson("y", pm.math.exp(level + phi + w), observed=rng.poisson(1.0, n))

    ours = from_pymc(many)
    here = AtTheta.of(ours, np.zeros(1))
    q = variational(here.likelihood, here.prior)
    assert q.converged
    f = q.center + q.posterior.multiply(rng.standard_normal(here.prior.rank))
    drawn = ours.latents_of(rng, here.prior, f)
    np.testing.assert_allclose(ours.f_of(here.theta, ours.point_of(here.theta) | drawn), f)


@pytest.mark.slow
def test_many_areas_make_no_square_array():
    """A thousand vectors at most: a square array of all areas has twice as many numbers."""
    read_and_drawn(200)  # what is imported and compiled first is no part of the peak
    n = 2_000
    tracemalloc.start()
    try:
        read_and_drawn(n)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * n * 1000


@pytest.mark.slow
def test_two_maps_may_be_added():
    def two():
        a, b = (pm.CAR(k, np.zeros(6), W, alpha=x, tau=2.0) for k, x in (("a", 0.3), ("b", 0.8)))
        pm.Poisson("y", pm.math.exp(a + 0.5 * b), observed=Y)

    one, other = (2.0 * (np.diag(W.sum(axis=0)) - x * W) for x in (0.3, 0.8))
    K = np.linalg.inv(one) + 0.25 * np.linalg.inv(other)
    prior = from_pymc(two).prior(np.empty(0))
    close(prior.covariance_times(np.eye(18))[12:, 12:], K)


def changed(i, j, value, other=None):
    weights = W.copy()
    weights[i, j], weights[j, i] = value, value if other is None else other
    return weights


def island():
    weights = W.copy()
    weights[4] = weights[:, 4] = 0.0
    return weights


@pytest.mark.parametrize(
    ("weights", "initval", "message"),
    [
        (changed(0, 4, 1.0, 0.0), None, r"W of 'phi' is not symmetric: W\[0, 4\] is 1"),
        (changed(0, 4, -1.0), None, "has a negative weight"),
        (
            island(),
            None,
            r"Area 4 of 'phi' has no neighbor in W.* pt.concatenate\(\[phi, pm.Normal",
        ),
        (W, 1.0, "log density of 'alpha' is -inf"),
    ],
)
def test_what_is_refused(weights, initval, message):
    with pytest.raises(ValueError, match=message):
        from_pymc(lambda: areas(weights, initval=initval))


TRIANGLE = changed(0, 2, 1.0)
"""With three areas around a corner D - alpha W is positive definite for alpha below -1, too."""

ALPHA = {
    "number": lambda alpha: alpha,
    "data": lambda alpha: pm.Data("alpha", alpha),
    "start": lambda alpha: pm.Normal("alpha", 0.0, 2.0, initval=alpha),
}


@pytest.mark.fast("start--1.0", "number-1.5")
@pytest.mark.parametrize("alpha", [1.0, -1.0, -1.05, 1.5])
@pytest.mark.parametrize("given", ALPHA)
def test_alpha_is_between_its_bounds(given, alpha):
    """As in PyMC's own density, and whatever rounding makes of a singular precision."""
    message = (
        r"The precision of 'phi', tau \(D - alpha W\), is not positive definite at the starting "
        r"point .*: it needs tau > 0 and -1 < alpha < 1\. Give alpha a pm\.Beta prior"
    )
    with pytest.raises(ValueError, match=message):
        from_pymc(lambda: areas(TRIANGLE, alpha=lambda: ALPHA[given](alpha)))


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.999999, -0.999999])
def test_alpha_next_to_its_bounds(alpha, rng):
    prior = from_pymc(lambda: areas(alpha=lambda: alpha)).prior(np.array([0.3]))
    Q = np.exp(0.3) * (np.diag(W.sum(axis=0)) - alpha * W)
    f = prior.with_values(rng.standard_normal(6))
    z = f[:6] - prior.mean[:6]
    right = 0.5 * (np.linalg.slogdet(Q)[1] - z @ Q @ z - 6 * np.log(2 * np.pi))
    close(prior.log_density(f), right)
    of_x = np.append(z, np.zeros(6))
    close(prior.covariance_times(of_x)[:6], np.linalg.solve(Q, z), 1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("maps", [1, 2])
def test_a_theta_beyond_the_bounds_has_no_prior(maps):
    """PyMC's density is zero there."""

    def model():
        alpha = pm.Normal("alpha", 0.0, 2.0, initval=0.5)
        phi = [pm.CAR(f"phi{k}", np.zeros(6), TRIANGLE, alpha=alpha, tau=2.0) for k in range(maps)]
        pm.Poisson("y", pm.math.exp(sum(phi)), observed=Y)

    with pm.Model() as built:
        model()
    density, point, ours = built.compile_logp(**QUICK), built.initial_point(), from_pymc(model)
    for alpha, there in ((-0.9, True), (-1.05, False), (0.9, True), (1.05, False)):
        assert np.isfinite(density(point | {"alpha": np.array(alpha)})) == there
        prior = ours.prior(np.array([alpha]))
        assert (prior is not None and prior.is_proper) == there
