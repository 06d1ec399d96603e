"""The evidence, its gradient in theta, and the theta that maximizes it."""

import itertools
import math

from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from close import differences
from models import MODELS, QUICK
from pytensor.compile.ops import wrap_py
from scipy import stats

import pymc_lgm as lgm

from pymc_lgm import evidence
from pymc_lgm.approximations.laplace import evidence_gradient, laplace
from pymc_lgm.gaussian import DensePrior
from pymc_lgm.gaussian.sites import negative_part
from pymc_lgm.linalg import tally
from pymc_lgm.state import LikelihoodAt

pytestmark = pytest.mark.usefixtures("interpreted")


def outlier():
    """A negative W, a rate of exp(-30), and theta everywhere: sigma twice, mu in mean and y."""
    with pm.Model() as model:
        mu, eta, sigma = (pm.Normal(name) for name in ("mu", "eta", "sigma"))
        distance = np.abs(np.subtract.outer(np.arange(6), np.arange(6)))
        K = pm.math.exp(eta + 0.2 * sigma) * np.exp(-distance / 3.0)
        f = pm.MvNormal("f", mu=mu * np.arange(6) / 3, cov=K)
        y = [0.3, 4.0, 0.1, -0.2]
        pm.StudentT("y", nu=3, mu=f[:4] + 0.2 * mu, sigma=pm.math.exp(sigma), observed=y)
        pm.Poisson("counts", mu=pm.math.exp(f[4:] + np.array([0.0, -30.0])), observed=[2, 0])
    return model


TARGETS = {**MODELS, "outlier": outlier}


@cache
def reader(name):
    return lgm.read(TARGETS[name](), compile_kwargs=QUICK)


@cache
def thetas(name):
    model, rng = reader(name), np.random.default_rng(1)
    if name == "outlier":
        return [np.array([0.2, 0.3, -0.4]), np.array([-0.1, 0.5, -0.3])]
    start = model.theta_of(TARGETS[name]().initial_point())
    return [start + 0.4 * rng.standard_normal(model.p)]


def approximated(model, theta):
    """Laplace's q with W and B at the mode, to the last digits."""
    q, prior = None, model.prior(theta)
    for _ in range(3):
        q = laplace(LikelihoodAt(model, theta), prior, start=q and q.center, tolerance=1e-16)
    return q


def parts(model, theta):
    """Everything that `evidence_gradient` takes."""
    return {
        "q": approximated(model, theta),
        "likelihood": LikelihoodAt(model, theta),
        "likelihood_vjp": lambda f, v, u: model.likelihood_terms_vjp(f, theta, v, u),
    }


@cache
def by_differences(name):
    return [
        differences(lambda t: approximated(reader(name), t).log_evidence, theta)
        for theta in thetas(name)
    ]


# Laplace's evidence and its gradient

# What Laplace's method itself errs by: twice what was measured. student_t has a clipped W_i.
ERRORS = {
    "logistic": 0.008,
    "probit": 0.008,
    "log_gaussian_cox": 0.008,
    "copula_volatility": 0.03,
    "ordinal_probit": 0.01,
    "student_t": 0.7,
    "negative_binomial": 0.03,
}


DEAR = {"negative_binomial", "ordinal_probit", "copula_volatility", "logistic"}
"""Their derivatives are slow in Python; `outlier` and the others have all that they have."""


def some(names):
    return [pytest.param(name, marks=[pytest.mark.slow] * (name in DEAR)) for name in names]


@pytest.mark.slow
@pytest.mark.parametrize("name", some(MODELS))
def test_the_evidence_is_near_that_of_quadrature(name):
    """Gauss-Hermite over whitened f, 16³ points."""
    model = reader(name)
    x, weights = np.polynomial.hermite_e.hermegauss(16)
    nodes = np.array(list(itertools.product(x, repeat=3)))
    mass = np.prod(list(itertools.product(weights, repeat=3)), axis=1) / (2 * math.pi) ** 1.5
    theta = thetas(name)[0]
    f = model.mean(theta) + nodes @ np.linalg.cholesky(model.cov(theta)).T
    values = model.log_likelihoods(f, theta)
    q, exact = approximated(model, theta), math.log(mass @ np.exp(values))
    assert abs(q.log_evidence - exact) < ERRORS[name]
    without_determinant = q.log_evidence + 0.5 * q.posterior.log_determinant
    assert abs(without_determinant - exact) > 10 * ERRORS[name] or name == "student_t"


@pytest.mark.fast("outlier")
@pytest.mark.parametrize("name", some(TARGETS))
def test_the_gradient_is_that_of_the_evidence(name):
    """theta in the mean, the covariance and (noise, sigma, alpha) the likelihood."""
    model = reader(name)
    for theta, expected in zip(thetas(name), by_differences(name), strict=True):
        gradient = evidence_gradient(**parts(model, theta))
        np.testing.assert_allclose(gradient, expected, rtol=1e-7, atol=1e-8)


def test_the_outlier_is_one():
    model = reader("outlier")
    for theta in thetas("outlier"):
        W = model.likelihood_terms(approximated(model, theta).center, theta)[2]
        assert W.min() < -0.01
        assert 0.0 < W[5] < 1e-12


def without_implicit_terms(given):
    """R & W's eq. (5.22) alone: f̂ does not move."""
    return given | {"likelihood": lambda f: (*given["likelihood"](f)[:3], np.zeros(f.size))}


def with_a_clipped_hessian(given):
    """The mode moves as if W had been clipped in ℓ itself."""

    def clipped(f):
        value, g, W, third = given["likelihood"](f)
        return value, g, np.maximum(W, 0.0), third

    return given | {"likelihood": clipped}


def with_the_slope_of_a_clipped_w(given):
    """A W that has been clipped moves log|B| all the same."""

    def folded(f):
        value, g, W, third = given["likelihood"](f)
        return value, g, np.abs(W), third

    return given | {"likelihood": folded}


def without_the_likelihood(given):
    return given | {"likelihood_vjp": lambda f, v, u: 0.0}


def without_the_slope_of_g(given):
    return given | {"likelihood_vjp": lambda f, v, u: given["likelihood_vjp"](f, 0.0 * v, u)}


def without_the_slope_of_w(given):
    return given | {"likelihood_vjp": lambda f, v, u: given["likelihood_vjp"](f, v, 0.0 * u)}


class Changed:
    """A model some of whose functions are others."""

    def __init__(self, model, **functions):
        self.model = model
        vars(self).update(functions)

    def __getattr__(self, name):
        return getattr(self.model, name)


def with_a_changed_model(given, **functions):
    """The same q of a prior whose model has these functions."""
    q = given["q"]
    prior, W = q.prior, q.precision
    changed = DensePrior.at(Changed(prior.model, **functions), prior.theta)
    return given | {"q": replace(q, posterior=changed.condition(W))}


def without_the_mean(given):
    return with_a_changed_model(given, mean_vjp=lambda theta, v: 0.0)


def with_half_of_v(given):
    """M made symmetric with v gᵀ on one side of the diagonal only."""
    cov_vjp = given["q"].prior.model.cov_vjp
    return with_a_changed_model(given, cov_vjp=lambda theta, M: cov_vjp(theta, np.tril(M)))


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("mutant", "name"),
    [
        (without_implicit_terms, "logistic"),
        (without_implicit_terms, "outlier"),
        (with_a_clipped_hessian, "outlier"),
        (with_the_slope_of_a_clipped_w, "outlier"),
        (without_the_likelihood, "ordinal_probit"),
        (without_the_likelihood, "outlier"),
        (without_the_slope_of_g, "negative_binomial"),
        (without_the_slope_of_w, "negative_binomial"),
        (without_the_mean, "copula_volatility"),
        (with_half_of_v, "log_gaussian_cox"),
    ],
)
def test_a_wrong_gradient_is_noticed(mutant, name, dies):
    model, theta, expected = reader(name), thetas(name)[0], by_differences(name)[0]
    wrong = evidence_gradient(**mutant(parts(model, theta)))
    what = f"evidence: gradient {mutant.__name__.replace('_', ' ')}, {name}"
    dies(what, np.abs(wrong - expected).max(), above=1e-3)


@pytest.mark.fast("outlier-2")
@pytest.mark.parametrize(("name", "operations"), [("logistic", 1), ("outlier", 2)])
def test_the_gradient_costs_one_inverse(name, operations):
    """And one factorization, of the size of the clipped part of W."""
    model, theta = reader(name), thetas(name)[0]
    given = parts(model, theta)
    before = tally.cubic_ops
    evidence_gradient(**given)
    assert tally.cubic_ops - before == operations


# Curvature that is negative, which q leaves out


def location_and_scale():
    """Blocks of two f_i, each of which has a negative eigenvalue unless y_i = f_i."""
    with pm.Model() as model:
        eta = pm.HalfNormal("eta")
        f = pm.MvNormal("f", mu=[0.0, 0.0], cov=eta**2 * pt.as_tensor([[1.0, 0.5], [0.5, 1.0]]))
        h = pm.MvNormal("h", mu=[0.0, 0.0], cov=[[0.3, 0.1], [0.1, 0.3]])
        pm.Normal("y", f, pm.math.exp(h), observed=[1.5, -0.7])
    return model


@pytest.mark.parametrize("make", [outlier, location_and_scale])
def test_laplace_has_all_of_the_curvature(make):
    pymc_model = make()
    model = lgm.read(pymc_model, compile_kwargs=QUICK, collapse=False)
    laplaces = evidence.Evidence("laplace", model, pymc_model)
    theta = np.array([0.2, 0.3, -0.4])[: model.p]
    q, prior = approximated(model, theta), model.prior(theta)
    W = model.likelihood_terms(q.center, theta)[2]
    dense = np.diag(W) if isinstance(W, np.ndarray) else W.times(np.eye(model.n))
    assert np.linalg.eigvalsh(dense)[0] < -0.01
    K, z = prior.covariance_times(np.eye(model.n)), q.center - prior.mean
    at_mode = model.log_likelihood(q.center, theta) - 0.5 * z @ np.linalg.solve(K, z)
    expected = at_mode - 0.5 * np.linalg.slogdet(np.eye(model.n) + K @ dense)[1]
    found = laplaces._approximate(theta)
    # Eigenvalues of q's blocks are a millionth of the largest, or more.
    assert found.log_evidence == pytest.approx(expected, abs=1e-5)
    assert q.log_evidence < expected - 0.01
    sigma = np.linalg.inv(np.linalg.inv(K) + dense)
    np.testing.assert_allclose(evidence._variances(found), sigma.diagonal(), rtol=1e-5)
    value, gradient = laplaces._value_and_gradient(theta, prior=False)
    expected = differences(lambda t: laplaces._value(t, prior=False), theta)
    np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-5)
    assert value == found.log_evidence


def test_a_saddle_has_no_evidence():
    def double_well(f):
        return float(-((f**2 - 1) ** 2).sum()), -4 * f * (f**2 - 1), 12 * f**2 - 4, -24 * f

    saddle = laplace(double_well, DensePrior(np.zeros(2), np.eye(2)))
    E = negative_part(double_well(saddle.center)[2])
    assert evidence.Mode.of(saddle, E) is None


def test_a_saddle_has_no_gradient():
    """Two modes at ±1 and the prior's mean between them, which the search starts at."""

    def double_well(f):
        return float(-((f**2 - 1) ** 2).sum()), -4 * f * (f**2 - 1), 12 * f**2 - 4, -24 * f

    def nothing(*_):
        return np.zeros(1)

    model = SimpleNamespace(cov_vjp=nothing, mean_vjp=nothing)
    saddle = laplace(double_well, DensePrior(np.zeros(2), np.eye(2), model=model))
    assert saddle.converged
    assert np.array_equal(saddle.center, np.zeros(2))
    assert evidence_gradient(saddle, double_well, likelihood_vjp=nothing) is None
    mode = laplace(double_well, DensePrior(np.full(2, 0.3), np.eye(2), model=model))
    assert evidence_gradient(mode, double_well, likelihood_vjp=nothing) is not None


def test_a_w_next_to_nothing_is_not_divided_by():
    """At an inflection of ℓ W is tiny and its slope is not: a + v by dense algebra."""
    W, third, y = np.array([1.0, 1e-13, 2.0, 0.0]), np.array([0.2, 0.5, -0.3, 0.7]), np.ones(4)

    def inflected(f):
        return float(-0.5 * W @ (y - f) ** 2), W * (y - f), W, third

    K = np.exp(-0.3 * np.abs(np.subtract.outer(np.arange(4), np.arange(4))))
    model = SimpleNamespace(cov_vjp=lambda theta, M: np.zeros(4), mean_vjp=lambda theta, x: x)
    q = laplace(inflected, DensePrior(np.zeros(4), K.copy(), model=model), tolerance=1e-16)
    posterior = np.linalg.inv(np.linalg.inv(K) + np.diag(W))
    s = 0.5 * posterior.diagonal() * third * (W > 0)
    v = np.linalg.solve(np.eye(4) + W[:, None] * K, s)
    ours = evidence_gradient(q, inflected, likelihood_vjp=lambda f, v, u: np.zeros(4))
    np.testing.assert_allclose(ours, q.alpha + v, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", some(["ordinal_probit", "student_t", "negative_binomial", "logistic"])
)
def test_the_likelihoods_terms_in_theta(name):
    model, theta = reader(name), thetas(name)[0]
    f, v, u = np.random.default_rng(0).standard_normal((3, model.n))

    def weighted(theta):
        value, g, W, _ = model.likelihood_terms(f, theta)
        return value + v @ g + u @ W

    ours = model.likelihood_terms_vjp(f, theta, v, u)
    np.testing.assert_allclose(ours, differences(weighted, theta), rtol=1e-8, atol=1e-9)
    assert ours.shape == (model.p,)
    zero = np.zeros(model.n)
    np.testing.assert_allclose(
        model.likelihood_terms_vjp(f, theta, zero, zero),
        model.log_likelihood_theta_gradient(f, theta),
        rtol=1e-12,
    )


@pytest.mark.parametrize("curvature", [math.nan, math.inf, -math.inf])
def test_a_search_does_not_start_where_w_is_no_number(curvature):
    """From elsewhere it goes back to the prior's mean, as it does where ℓ or g is no number."""
    y = np.array([1.0, -0.5])

    def gaussian_but(f):
        W = np.where(f < 5.0, 1.0, curvature)
        return float(-0.5 * (y - f) @ (y - f)), y - f, W, np.zeros(2)

    K = np.array([[1.0, 0.5], [0.5, 1.0]])
    before = tally.cubic_ops
    assert laplace(gaussian_but, DensePrior(np.array([0.0, 6.0]), K)) is None
    assert tally.cubic_ops == before
    q = laplace(gaussian_but, DensePrior(np.zeros(2), K), start=np.array([0.0, 6.0]))
    exact = stats.multivariate_normal(np.zeros(2), K + np.eye(2)).logpdf(y)
    assert q.log_evidence == pytest.approx(exact + math.log(2 * math.pi))


# lgm.laplace() and lgm.ep()


@pytest.mark.fast("ep")
@pytest.mark.parametrize("approximation", ["laplace", "ep"])
def test_exact_for_a_gaussian_likelihood(approximation):
    """With its gradient, a variable of vector shape, and theta in every part."""
    X = np.array([[0.0, 0.3], [0.5, 0.1], [1.4, 0.2], [1.5, 0.9]])
    y = np.array([0.3, -1.2, 0.8, 0.5])
    with pm.Model():
        mu = pm.Normal("mu")
        ls = pm.LogNormal("ls", shape=2)
        sigma = pm.HalfNormal("sigma")
        gp = pm.gp.Latent(mean_func=pm.gp.mean.Constant(mu), cov_func=pm.gp.cov.ExpQuad(2, ls=ls))
        f = gp.prior("f", X, reparameterize=False)
        pm.Normal("y", f, sigma, observed=y)
        e = getattr(evidence, approximation)()

    def marginal(theta):
        """N(y; m, A), and its gradient ½ tr[(αα' − A⁻¹) ∂A] + α'∂m, α = A⁻¹(y − m)."""
        scaled = X / np.exp(theta[1:3])
        squares = (scaled[:, None] - scaled) ** 2
        K = np.exp(-0.5 * squares.sum(-1))
        noise = math.exp(2 * theta[3])
        inverse = np.linalg.inv(K + (1e-6 + noise) * np.eye(4))
        alpha = inverse @ (y - theta[0])
        half = 0.5 * (np.outer(alpha, alpha) - inverse)
        changes = [K * squares[:, :, 0], K * squares[:, :, 1], 2 * noise * np.eye(4)]
        value = stats.multivariate_normal(np.full(4, theta[0]), np.linalg.inv(inverse)).logpdf(y)
        return value, np.array([alpha.sum(), *(np.sum(half * dA) for dA in changes)])

    theta = np.array([0.2, *np.log([0.7, 1.3, 0.5])])
    value, gradient = marginal(theta)
    point = {"mu": 0.2, "ls": [0.7, 1.3], "sigma": 0.5}
    assert e.log_evidence(point) == pytest.approx(value, abs=1e-8)
    ours = e._value_and_gradient(theta, prior=False)
    assert ours[0] == pytest.approx(value, abs=1e-8)
    np.testing.assert_allclose(ours[1], gradient, atol={"laplace": 1e-7, "ep": 1e-5}[approximation])
    # What a point leaves out is at the initial point.
    assert e.log_evidence() == e.log_evidence({"mu": 0.0})
    assert e.log_evidence({"sigma": 0.5}) == e.log_evidence({"mu": 0.0, "sigma": 0.5})
    assert e.log_evidence() != e.log_evidence({"sigma": 0.5})


def beside_theta():
    """y depends on f and z on theta alone, with the exact log p(y, z | s)."""
    K = np.exp(-0.3 * np.abs(np.subtract.outer(range(4), range(4))))
    y = [0.3, -0.2, 1.2, 2.0]
    with pm.Model() as model:
        s = pm.HalfNormal("s", 1.0)
        f = pm.MvNormal("f", np.zeros(4), s**2 * K)
        pm.Normal("y", f, 0.5, observed=y)
        pm.Normal("z", s, 0.2, observed=2.5)
        pm.Potential("of the prior", -3.0 * s)

    def exact(s):
        law = stats.multivariate_normal(np.zeros(4), s**2 * K + 0.25 * np.eye(4))
        return law.logpdf(y) + stats.norm(s, 0.2).logpdf(2.5)

    return model, exact


@pytest.mark.parametrize("approximation", ["laplace", "ep"])
def test_observations_that_depend_on_theta_alone_are_data(approximation):
    """A type-II fit needs them as much as those that depend on f."""
    model, exact = beside_theta()
    found = getattr(lgm, approximation)(model)
    assert found.log_evidence({"s": 1.5}) == pytest.approx(exact(1.5), abs=1e-6)
    fit, grid = found.fit(prior=False), np.linspace(2.0, 3.0, 1001)
    values = [exact(s) for s in grid]
    assert fit.log_evidence == pytest.approx(max(values), abs=1e-5)
    assert fit.point["s"] == pytest.approx(grid[np.argmax(values)], abs=2e-3)
    with_prior = exact(2.0) + stats.halfnorm.logpdf(2.0) - 6.0 + np.log(2.0)
    assert found._value(np.log([2.0]), prior=True) == pytest.approx(with_prior, abs=1e-6)


@pytest.mark.mutant
def test_an_evidence_without_observations_of_theta_is_noticed(monkeypatch, dies):
    monkeypatch.setattr(evidence.Evidence, "_of", lambda self, q, *_: q.log_evidence)
    model, exact = beside_theta()
    error = abs(lgm.laplace(model).log_evidence({"s": 1.5}) - exact(1.5))
    dies("evidence: without observations of theta alone", error, above=1e-3)


@cache
def coal():
    data = lgm.datasets.load_coal_mining()
    with pm.Model() as model:
        mean = pm.Normal("mean", 0, 2)
        length = pm.InverseGamma("length", 3, 60)
        amplitude = pm.HalfNormal("amplitude", 1)
        gp = pm.gp.Latent(
            mean_func=pm.gp.mean.Constant(mean),
            cov_func=amplitude**2 * pm.gp.cov.Matern52(1, ls=length),
        )
        f = gp.prior("f", data["year_mid"].to_numpy()[:, None], reparameterize=False)
        lgm.LogGaussianCox("y", f=f, observed=data["y"].to_numpy())
    return model


@cache
def coal_evidence(approximation="laplace"):
    return getattr(evidence, approximation)(coal())


@cache
def coal_fit(prior):
    return coal_evidence().fit(prior=prior)


@pytest.mark.slow
@pytest.mark.parametrize("prior", [False, True])
def test_the_fit_is_a_maximum(prior):
    """Of the evidence, or with the prior: MAP on the unconstrained scale."""
    e, fit = coal_evidence(), coal_fit(prior)
    theta = np.array([fit.point["mean"], *np.log([fit.point["length"], fit.point["amplitude"]])])

    def objective(theta):
        mean, length, amplitude = theta[0], *np.exp(theta[1:])
        value = e.log_evidence({"mean": mean, "length": length, "amplitude": amplitude})
        if prior:
            value += stats.norm(0, 2).logpdf(mean)
            value += stats.invgamma(3, scale=60).logpdf(length) + theta[1]
            value += stats.halfnorm().logpdf(amplitude) + theta[2]
        return value

    assert fit.converged, fit.message
    assert fit.evaluations < 60  # a line search that ends in rounding takes up to 20 in vain
    assert fit.log_evidence == pytest.approx(e.log_evidence(fit.point), abs=1e-9)
    np.testing.assert_allclose(differences(objective, theta), 0.0, atol=2e-4)
    rng, best = np.random.default_rng(0), objective(theta)
    for size in (0.02, 0.1, 0.5):
        for _ in range(3):
            assert objective(theta + size * rng.standard_normal(3)) < best


@pytest.mark.slow
@pytest.mark.parametrize("lost", [1e-10, 1e-8])
def test_a_fit_that_sees_only_rounding_errors_has_converged(lost, monkeypatch):
    """Each evidence is a little worse than the last: the line search fails next to the maximum."""
    e, count = coal_evidence(), itertools.count()
    exact, expected = e._value_and_gradient, coal_fit(True)

    def worse_and_worse(theta, prior):
        value, gradient = exact(theta, prior)
        return value - lost * next(count), gradient

    monkeypatch.setattr(e, "_value_and_gradient", worse_and_worse)
    fit = e.fit()
    assert fit.converged, fit.message
    for name, value in expected.point.items():
        assert fit.point[name] == pytest.approx(value, rel=1e-4)


def test_f_at_the_fit():
    """Its moments are those of Laplace's q; the rate of accidents falls over the years."""
    e, fit = coal_evidence(), coal_fit(True)
    theta = e._scale.theta_of(fit.point)
    q, K = approximated(e.lgm, theta), e.lgm.cov(theta)
    np.testing.assert_allclose(fit.f_mean, q.center, atol=1e-7)
    variance = np.linalg.inv(np.linalg.inv(K) + np.diag(q.precision)).diagonal()
    np.testing.assert_allclose(fit.f_variance, variance, rtol=1e-5)
    assert fit.f_mean[:30].mean() > fit.f_mean[-30:].mean() + 0.5


def test_a_prior_moves_the_fit_and_lowers_its_evidence():
    ml, map_ = coal_fit(False), coal_fit(True)
    assert ml.log_evidence > map_.log_evidence + 1e-3
    assert abs(ml.point["length"] / map_.point["length"] - 1) > 0.05


@pytest.mark.slow
def test_the_fit_does_not_depend_on_its_start():
    fit = coal_evidence().fit(start={"length": 5.0, "amplitude": 2.0})
    for name, value in coal_fit(True).point.items():
        assert fit.point[name] == pytest.approx(value, rel=1e-3)


def test_options_reach_the_optimizer():
    fit = coal_evidence().fit(maxiter=1)
    assert not fit.converged
    assert "ITERATIONS" in fit.message
    assert "converged=False" in repr(fit)


@pytest.mark.slow
def test_the_surface_has_its_maximum_at_the_type_ii_fit():
    e, fit = coal_evidence(), coal_fit(False)
    axes = {
        "length": fit.point["length"] * np.linspace(0.55, 1.5, 11),
        "amplitude": fit.point["amplitude"] * np.linspace(0.75, 1.2, 8),
    }
    surface = e.surface(axes, at=fit.point)
    assert surface.dims == ("length", "amplitude")
    assert surface.name == "log_evidence"
    best = surface.argmax(...)
    for name, axis in axes.items():
        assert abs(axis[best[name].item()] - fit.point[name]) <= np.diff(axis)[0]
    assert fit.log_evidence - 0.05 < surface.max() < fit.log_evidence
    there = fit.point | {"length": axes["length"][2], "amplitude": axes["amplitude"][5]}
    assert surface[2, 5].item() == e.log_evidence(there)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("approximation", "most"), [("laplace", 5), pytest.param("ep", 31, marks=pytest.mark.slow)]
)
def test_an_evidence_takes_a_few_operations(approximation, most):
    e = coal_evidence(approximation)
    for point in ({}, {"length": 3.0, "amplitude": 3.0}, {"amplitude": 0.01}, {"mean": 2.0}):
        before = tally.cubic_ops
        e.log_evidence(point)
        assert 1 < tally.cubic_ops - before <= most


@pytest.mark.slow
def test_ep_is_near_laplace_on_counts():
    fit = coal_fit(True)
    near = coal_evidence("ep").log_evidence(fit.point)
    assert near == pytest.approx(fit.log_evidence, abs=0.1)
    assert near != pytest.approx(fit.log_evidence, abs=1e-6)


@pytest.mark.slow
def test_ep_fits_and_is_better_than_laplace_on_a_probit():
    """n = 2: p(y | theta) is the probability of a quadrant of two correlated normals."""
    with pm.Model() as model:
        eta = pm.LogNormal("eta", 1.0, 0.5)
        f = pm.MvNormal("f", mu=[0.0, 0.0], cov=eta**2 * pm.math.stack([[1, 0.6], [0.6, 1]]))
        lgm.Probit("y", f=f, observed=[1, 1])
    by_ep, by_laplace = evidence.ep(model), evidence.laplace(model)

    def truth(eta):
        correlation = 0.6 * eta**2 / (1 + eta**2)
        return math.log(0.25 + math.asin(correlation) / (2 * math.pi))

    for eta in (0.5, 1.0, 3.0):
        errors = [abs(e.log_evidence({"eta": eta}) - truth(eta)) for e in (by_ep, by_laplace)]
        assert errors[0] < 0.02
        assert errors[0] < 0.5 * errors[1]
    fit = by_ep.fit()
    assert fit.converged
    grid = np.linspace(-1, 2.5, 3501)
    exact = [truth(math.exp(t)) - 2 * (t - 1.0) ** 2 for t in grid]
    assert math.log(fit.point["eta"]) == pytest.approx(grid[np.argmax(exact)], abs=0.02)


@pytest.mark.slow
def test_without_a_gradient_it_takes_differences():
    """The same model with a covariance that PyTensor can and cannot differentiate."""

    @wrap_py(itypes=[pt.dscalar], otypes=[pt.dmatrix])
    def opaque(eta):
        return np.array([[eta, 0.5 * eta], [0.5 * eta, eta]])

    fits = []
    for cov in (opaque, lambda eta: eta * np.array([[1.0, 0.5], [0.5, 1.0]])):
        with pm.Model():
            f = pm.MvNormal("f", mu=np.zeros(2), cov=cov(pm.HalfNormal("eta")))
            lgm.LogGaussianCox("y", f=f, observed=[9, 4])
            fits.append(evidence.laplace().fit())
    assert fits[0].converged
    assert fits[0].point["eta"] == pytest.approx(fits[1].point["eta"], rel=1e-3)


@pytest.mark.slow
def test_a_theta_that_fails_is_avoided():
    """Beyond its start the mean is not a number: the fit stays on this side."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 10)
        mean = pm.math.switch(mu < 1.2, mu, np.nan)
        f = pm.MvNormal("f", mu=[mean, mean], cov=np.eye(2) * 0.01)
        pm.Normal("y", f, 0.01, observed=[1.0, 1.1])
    e = evidence.laplace(model)
    assert math.isnan(e.log_evidence({"mu": 1.5}))
    assert np.isnan(e.surface({"mu": [1.0, 1.5]})).values.tolist() == [False, True]
    # The first step of the optimizer is 1 long: too far from here.
    assert e.fit(prior=False, start={"mu": 0.5}).point["mu"] == pytest.approx(1.05, abs=1e-4)
    with pytest.raises(ValueError, match=r"Start elsewhere, as in fit\(start=\{'mu': \.\.\.\}\)"):
        e.fit(start={"mu": 1.5})


@pytest.mark.slow
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("approximation", ["laplace", "ep"])
def test_a_covariance_that_is_no_number_has_no_evidence(approximation, value):
    with pm.Model() as model:
        scale = pm.math.switch(pm.HalfNormal("eta") < 2.0, 1.0, value)
        f = pm.MvNormal("f", mu=[0.0, 0.0], cov=scale * pm.math.stack([[1, 0.5], [0.5, 1]]))
        pm.StudentT("y", nu=3, mu=f, sigma=1, observed=[9.0, 9.0])
    e = getattr(evidence, approximation)(model)
    assert math.isfinite(e.log_evidence({"eta": 1.0}))
    assert math.isnan(e.log_evidence({"eta": 3.0}))


@pytest.mark.slow
def test_bounds_that_are_random_are_followed():
    """A transform with another variable in it."""
    with pm.Model() as model:
        top = pm.HalfNormal("top")
        mu = pm.Uniform("mu", 0.0, top)
        f = pm.MvNormal("f", mu=[mu, mu], cov=np.eye(2))
        pm.Normal("y", f, 1.0, observed=[1.0, 1.1])
    e = evidence.laplace(model)
    exact = stats.norm(0.7, math.sqrt(2)).logpdf([1.0, 1.1]).sum()
    assert e.log_evidence({"top": 2.0, "mu": 0.7}) == pytest.approx(exact, abs=1e-9)
    with pytest.raises(ValueError, match=r"mu = 0\.7 is not inside"):
        e.log_evidence({"top": 0.5, "mu": 0.7})


# Refusals


@pytest.mark.parametrize(
    ("point", "message"),
    [
        ({"eta": 1.0}, r"\['eta'\].*Write values of \['mean', 'length', 'amplitude'\]"),
        ({"length_log__": 1.0}, "natural scale"),
        ({"length": -3.0}, "length = -3.0 is not inside"),
        ({"length": math.nan}, "length = nan is not inside"),
        ({"mean": [0.0, 1.0]}, r"mean has shape \(2,\)"),
    ],
)
def test_points_that_are_refused(point, message):
    e = coal_evidence()
    for refusing in (e.log_evidence, lambda p: e.fit(start=p), lambda p: e.surface({}, at=p)):
        with pytest.raises(ValueError, match=message):
            refusing(point)


def test_grids_that_are_refused():
    with pytest.raises(ValueError, match=r"\['eta'\] are not hyper-parameters"):
        coal_evidence().surface({"eta": [1.0, 2.0]})
    with pytest.raises(ValueError, match=r"mean has shape \(1,\)"):
        coal_evidence().surface({"mean": [[0.0]]})


def test_models_that_are_refused():
    with pm.Model() as between:
        f = pm.MvNormal("f", mu=np.zeros(3), cov=np.eye(3))
        z = pm.StudentT("z", 4.0, f[0])
        pm.Normal("y", pm.math.stack([z, f[1], f[2]]), 1.0, observed=[0.3, 0.0, 0.8])
    with pytest.raises(ValueError, match=r"\['z'\] depend on 'f', and other densities on them"):
        evidence.laplace(between)
    with pm.Model() as discrete:
        k = pm.Bernoulli("k", 0.5)
        f = pm.MvNormal("f", mu=np.zeros(3), cov=np.eye(3) * (1 + k))
        lgm.Probit("y", f=f, observed=[0, 1, 1])
    with pytest.raises(ValueError, match=r"\['k'\] are discrete"):
        evidence.laplace(discrete)


@pytest.mark.slow
def test_a_likelihood_without_a_gradient_is_refused():
    @wrap_py(itypes=[pt.dvector], otypes=[pt.dvector])
    def opaque(f):
        return 2 * f

    with pm.Model() as model:
        f = pm.MvNormal("f", mu=np.zeros(3), cov=np.eye(3))
        pm.Normal("y", opaque(f), 1.0, observed=[0.1, 0.2, 0.3])
    with pytest.raises(ValueError, match=r"\(y\) cannot be differentiated in 'f'"):
        evidence.ep(model)


def test_without_hyperparameters_there_is_nothing_to_fit():
    with pm.Model() as fixed:
        f = pm.MvNormal("f", mu=np.zeros(3), cov=np.eye(3))
        lgm.Probit("y", f=f, observed=[0, 1, 1])
    e = evidence.ep(fixed)
    assert e.log_evidence() == pytest.approx(3 * math.log(0.5), abs=1e-6)
    with pytest.raises(ValueError, match="no hyper-parameters to fit"):
        e.fit()
