"""Derivatives in theta of the evidence of a sum of families."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from close import differences
from test_sums import TAU, W_OF_MAP

import pymc_lgm as lgm

from pymc_lgm.compile.graphs.functions import shape_of
from pymc_lgm.gaussian import rows
from pymc_lgm.gaussian.sites import SiteBlocks
from pymc_lgm.model.forms.sum import SumPredictor

pytestmark = pytest.mark.usefixtures("interpreted")


def series_and_groups():
    s = pm.HalfNormal("s", 1, shape=2)
    rho = pm.Normal("rho", 0, 0.5, shape=2)
    first = pm.Normal.dist(0.3, s[0])
    x = pm.AR("x", rho=rho, constant=True, sigma=s[0], init_dist=first, shape=7)
    u = pm.Normal("u", pm.Normal("mu", 0, 1), s[1], shape=3)
    return x * (1 + s[1] * np.arange(7.0)) + u[np.arange(7) % 3]


def map_and_blocks():
    tau, alpha, k = pm.Gamma("tau", 2, 1), pm.Uniform("alpha", 0, 1), pm.Normal("k", 0, 1)
    phi = pm.CAR("phi", mu=np.zeros(6), W=W_OF_MAP.toarray(), alpha=alpha, tau=tau)
    chol, *_ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=pm.HalfNormal.dist(1))
    b = pm.MvNormal("b", 0, chol=chol, shape=(4, 2))
    return k + k * phi + b[np.arange(6) % 4, 0] + b[np.arange(6) % 4, 1] * np.linspace(-1, 1, 6)


def precision_and_intrinsic():
    tau, s = pm.Gamma("tau", 2, 1), pm.HalfNormal("s", 1)
    x = pm.MvNormal("x", 0, tau=tau * (TAU.toarray() + s * np.eye(6)))
    return x + s * pm.ICAR("phi", W=W_OF_MAP.toarray())


def basis_and_groups():
    """Full columns, which theta moves, beside sparse ones."""
    s, k = pm.HalfNormal("s", 1, shape=2), pm.HalfNormal("k", 1)
    X = np.cos(np.outer(np.arange(9.0), np.arange(5)))
    beta, u = pm.Normal("beta", 0.1, s[0], shape=5), pm.Normal("u", 0, s[1], shape=3)
    return (X * pm.math.exp(k * np.arange(5) / 5)) @ beta + u[np.arange(9) % 3]


def basis_without_centering():
    """A basis whose coefficients have a spectrum, beside groups whose scale is a factor."""
    s, k = pm.HalfNormal("s", 1, shape=2), pm.HalfNormal("k", 1)
    X = np.cos(np.outer(np.arange(9.0), np.arange(5)))
    beta, z = pm.Normal("beta", 0, 1, shape=5), pm.Normal("z", 0, 1, shape=3)
    groups = s[1] * z[np.arange(9) % 3]
    return s[0] * (X @ (beta * pm.math.exp(-k * np.arange(5)))) + groups + k


def panel():
    s, first = pm.HalfNormal("s", 1, shape=3), pm.Normal.dist(0, 1)
    x = pm.GaussianRandomWalk("x", mu=0.2, sigma=s, init_dist=first, shape=(3, 4))
    return (x + pm.Normal("b", 0, s[0])).ravel()


def walks_without_centering():
    """Two series of cumulative sums, whose steps have a scale before the sum and one after it."""
    s = pm.HalfNormal("s", 1, shape=3)
    z = pm.Normal("z", 0.2, s[2], shape=(5, 2))
    first = pm.Normal("first", 0, 1, shape=(1, 2))
    walks = s[0] * pt.cumsum(pt.concatenate([first, z * s[1:]]), axis=0)
    return pt.sum(walks * np.linspace(-1, 2, 12).reshape(6, 2), axis=1)


def read(make, monkeypatch):
    monkeypatch.setattr("pymc_lgm.model.forms.sum._is_cheaper", lambda *sizes: True)
    with pm.Model() as model:
        eta = make()
        (n,) = shape_of(eta)
        pm.Poisson("y", pm.math.exp(eta), observed=np.arange(n) % 3)
    read = lgm.read(model)
    assert isinstance(read.form, SumPredictor)
    return read


@pytest.mark.fast("series_and_groups", "precision_and_intrinsic", "basis_without_centering")
@pytest.mark.parametrize(
    "make",
    [
        *(series_and_groups, map_and_blocks, precision_and_intrinsic, basis_and_groups, panel),
        *(walks_without_centering, basis_without_centering),
    ],
)
def test_the_gradient_of_an_evidence(make, monkeypatch):
    """Where each observation reads one element, and where some read two."""
    monkeypatch.setattr(rows, "FULL", 5)
    model = read(make, monkeypatch)
    assert bool(model.form.layout.A.full.size) == (
        make in (basis_and_groups, basis_without_centering)
    )
    for sets in (False, True):
        check_gradient(model, sets)


def check_gradient(model, sets):
    rng = np.random.default_rng(0)
    form, theta = model.form, 0.3 * rng.standard_normal(model.p)
    N, n = form.rank, form.n
    a, v, W = rng.standard_normal(n), rng.standard_normal(n), rng.uniform(0, 2, n)
    if sets:
        pairs = np.arange(N, N + 2 * ((n - N) // 2)).reshape(-1, 2)
        alone = [[k, -1] for k in np.setdiff1d(np.arange(n), pairs)]
        form._sets = np.vstack([pairs, alone])
        del form.layout
        X = rng.standard_normal((len(form._sets), 2, 2))
        W = SiteBlocks(form._sets, np.zeros_like(X)).like(X @ X.swapaxes(1, 2))

    def value(at):
        prior = model.prior(at)
        Ka, log_B = prior.covariance_times(a), prior.condition(W).log_determinant
        return 0.5 * a @ Ka + v @ Ka - 0.5 * log_B + (a + v) @ prior.mean

    expected = differences(value, theta)
    found = model.prior(theta).condition(W).evidence_gradient(a, v)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())
