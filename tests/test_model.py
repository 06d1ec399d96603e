"""The model reader: differently written PyMC models, as functions of (theta, f).

Each row of `CASES` is a way to write a latent Gaussian model. Whatever it is, what was read must
have PyMC's densities, and every derivative must agree with finite differences.
"""

from __future__ import annotations

import pickle
import warnings

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import cloudpickle
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from close import differences
from models import MODELS
from pymc.exceptions import ImputationWarning
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.graph.traversal import toposort
from scipy import stats

import pymc_lgm as lgm

from pymc_lgm.compile.graphs.functions import STABLE, called_once
from pymc_lgm.model import LatentGaussianModel
from pymc_lgm.model.reading import find_latent

# PyTensor's own, on machines where its C compiler finds no BLAS.
pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning")

X = np.array([[0.0, 0.3], [0.5, -0.2], [1.4, 0.1], [2.0, 0.9]])
COUNTS = np.array([1, 0, 3, 2])
REALS = np.array([0.3, -1.2, 0.8, 0.1])
# A graph as it is written, which takes milliseconds instead of a second; one test below looks at
# what users have, which is rewritten and compiled.
QUICK = {"mode": Mode(linker="py", optimizer=None)}


class Case(NamedTuple):
    build: Callable[[], pm.Model]
    latent: str | None = None
    theta: list[str] | None = None
    others: tuple[str, ...] = ()
    """Variables that another step must own."""
    fixes_cov: tuple[str, ...] = ()
    """Components of theta that do not enter the covariance."""
    missing: tuple[str, ...] = ()
    """Variables that nothing reads."""
    has_gradient: bool = True


CASES: dict[str, Case] = {name: Case(build, fixes_cov=("mu",)) for name, build in MODELS.items()}
CASES["ordinal_probit"] = Case(MODELS["ordinal_probit"], fixes_cov=("mu", "noise_log__"))
CASES["student_t"] = Case(MODELS["student_t"], fixes_cov=("mu", "sigma_log__"))
CASES["negative_binomial"] = Case(MODELS["negative_binomial"], fixes_cov=("mu", "alpha_log__"))


def case(**kwargs: Any) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """List a function that writes a model."""

    def listed(write: Callable[[], None]) -> Callable[[], None]:
        def build() -> pm.Model:
            with pm.Model() as model, warnings.catch_warnings():
                warnings.simplefilter("ignore", ImputationWarning)
                write()
            return model

        CASES[write.__name__] = Case(build, **kwargs)
        return write

    return listed


def latent(cov: Any, mean: Any = None, X: Any = X, **kwargs: Any) -> Any:
    gp = pm.gp.Latent(mean_func=mean or pm.gp.mean.Zero(), cov_func=cov)
    return gp.prior("f", X, reparameterize=False, jitter=1e-6, **kwargs)


def simple_latent(**kwargs: Any) -> Any:
    eta = pm.HalfNormal("eta", 1)
    return latent(eta**2 * pm.gp.cov.Matern52(2, ls=0.7), **kwargs)


# Mean and covariance functions of pm.gp


@case(fixes_cov=("slope", "intercept"))
def linear_mean_ard_and_white_noise() -> None:
    ls = pm.InverseGamma("ls", 3, 3, shape=2)
    eta = pm.HalfNormal("eta", 1)
    sigma = pm.HalfNormal("sigma", 1)
    mean = pm.gp.mean.Linear(pm.Normal("slope", shape=2), pm.Normal("intercept"))
    cov = eta**2 * pm.gp.cov.ExpQuad(2, ls=ls) + pm.gp.cov.WhiteNoise(sigma)
    pm.Poisson("y", pm.math.exp(latent(cov, mean)), observed=COUNTS)


@case(fixes_cov=("mu",))
def sum_and_product_of_covariances() -> None:
    ls = pm.Gamma("ls", 4, 4)
    period = pm.LogNormal("period")
    alpha = pm.HalfNormal("alpha")
    Cov = pm.gp.cov
    cov = Cov.ExpQuad(2, ls, active_dims=[0]) * Cov.Periodic(2, period, ls=1, active_dims=[0])
    cov += Cov.RatQuad(2, alpha, ls=0.5, active_dims=[1]) + Cov.Linear(2, c=0.2) + Cov.Constant(0.3)
    mean = pm.gp.mean.Constant(pm.Normal("mu")) + pm.gp.mean.Constant(0.5)
    pm.Bernoulli("y", logit_p=latent(cov, mean), observed=[0, 1, 1, 0])


@case()
def additive_process() -> None:
    a = pm.gp.Latent(cov_func=pm.HalfNormal("eta") ** 2 * pm.gp.cov.ExpQuad(2, ls=0.5))
    b = pm.gp.Latent(cov_func=pm.gp.cov.Exponential(2, ls=pm.LogNormal("ls")))
    f = (a + b).prior("f", X, reparameterize=False)
    lgm.Probit("y", f=f, observed=[0, 1, 1, 0])


# pm.MvNormal itself


@case()
def mvnormal_cov() -> None:
    cov = pm.HalfNormal("eta") * np.array([[2, 1], [1, 3]]) + np.eye(2)
    f = pm.MvNormal("f", mu=pm.math.stack([0.5, -0.5]), cov=cov)
    pm.Normal("y", f, 1, observed=REALS[:2])


@case()
def mvnormal_chol_from_lkj() -> None:
    sd = pm.Exponential.dist(1, shape=3)
    chol, _, _ = pm.LKJCholeskyCov("chol", n=3, eta=2, sd_dist=sd, compute_corr=True)
    f = pm.MvNormal("f", mu=np.zeros(3), chol=chol)
    pm.Normal("y", f[[0, 0, 1, 2]], 1, observed=REALS)


@case()
def mvnormal_tau() -> None:
    rho = pm.Uniform("rho", -0.4, 0.4)
    tau = pm.math.stack([[1.0, rho, 0.0], [rho, 1.5, rho], [0.0, rho, 1.0]])
    f = pm.MvNormal("f", mu=1.0, tau=tau, shape=3)
    lgm.LogGaussianCox("y", f=f, observed=COUNTS[:3])


@case(fixes_cov=("mu",))
def constants_of_integer_type() -> None:
    cov = np.array([[2, 1], [1, 2]])
    f = pm.MvNormal("f", mu=np.array([1, 2]), cov=cov)
    pm.Normal("y", pm.Normal("mu") + f, 1, observed=[0, 1])


@case()
def nothing_but_f() -> None:
    f = latent(pm.gp.cov.ExpQuad(2, ls=0.5))
    lgm.Logistic("y", f=f, observed=[0, 1, 1, 0])


@case()
def one_latent_variable() -> None:
    f = pm.MvNormal("f", mu=[0.0], cov=pm.Exponential("v", 1)[None, None])
    pm.Poisson("y", pm.math.exp(f[0]), observed=COUNTS)


# Hyper-parameters


@case(fixes_cov=("center", "free", "level"))
def hierarchical_hyperparameters() -> None:
    center = pm.Normal("center", 0, 1)
    ls = pm.LogNormal("ls", center, 0.5, shape=2)
    pm.Normal("free")  # enters nothing
    level = pm.Normal("level", pm.math.log(ls).sum(), 1)
    f = latent(pm.gp.cov.Matern32(2, ls=ls))
    pm.Potential("pull", -((pm.math.log(ls[0]) - pm.math.log(ls[1])) ** 2))
    lgm.LogGaussianCox("y", f=f, offset=level, observed=COUNTS)


@case(fixes_cov=("weights_simplex__",))
def simplex() -> None:
    w = pm.Dirichlet("weights", [1.0, 2.0, 3.0])
    f = simple_latent()
    parts = [pm.Normal.dist(f, s) for s in (0.3, 1.0, 5.0)]
    pm.Mixture("y", w=w, comp_dists=parts, observed=REALS)


@case(others=("kernel",))
def discrete_hyperparameter() -> None:
    kernel = pm.Bernoulli("kernel", 0.3)
    eta = pm.HalfNormal("eta")
    Xs = pt.as_tensor(X)
    K = pm.math.switch(
        kernel, pm.gp.cov.ExpQuad(2, 0.5).full(Xs), pm.gp.cov.Matern12(2, 0.5).full(Xs)
    )
    f = pm.MvNormal("f", mu=np.ones(4), cov=eta**2 * K + 1e-6 * np.eye(4))
    lgm.Logistic("y", f=f, observed=[0, 1, 1, 0])


@case(theta=["ls"], others=("eta_log__",))
def one_hyperparameter_left_to_another_step() -> None:
    ls, eta = pm.LogNormal("ls"), pm.HalfNormal("eta")
    f = latent(eta**2 * pm.gp.cov.Matern32(2, ls=ls))
    lgm.Logistic("y", f=f, observed=[0, 1, 1, 0])


@case(latent="f", theta=["ls"], others=("eta_log__", "g"))
def two_latents() -> None:
    ls, eta = pm.LogNormal("ls"), pm.HalfNormal("eta")
    f = latent(pm.gp.cov.Matern32(2, ls=ls))
    second = pm.gp.Latent(cov_func=eta**2 * pm.gp.cov.Matern52(2, ls=ls))
    g = second.prior("g", X, reparameterize=False)
    pm.Poisson("y", pm.math.exp(f + g), observed=COUNTS)


# Data


@case()
def dims_coords_and_data() -> None:
    pm.modelcontext(None).add_coords({"place": list("abcd"), "visit": range(6)})
    inputs = pm.Data("X", X, dims=("place", "axis"))
    where = pm.Data("where", [0, 0, 1, 2, 3, 3], dims="visit")
    f = simple_latent(X=inputs, dims="place")
    rate = pm.Deterministic("rate", pm.math.exp(f), dims="place")
    seen = pm.Data("seen", [1, 2, 0, 1, 4, 3], dims="visit")
    pm.Poisson("y", rate[where], observed=seen, dims="visit")


@case(fixes_cov=("nu_log__", "sigma_log__"))
def student_t_with_random_parameters() -> None:
    nu, sigma = pm.Gamma("nu", 2, 0.1), pm.HalfNormal("sigma")
    f = simple_latent()
    pm.StudentT("y", nu=nu, mu=f, sigma=sigma, observed=REALS)


@case(missing=("y_unobserved",))
def missing_continuous_values() -> None:
    y = np.where([False, True, False, False], np.nan, REALS)
    pm.Normal("y", simple_latent(), 1, observed=y)


@case(missing=("y_unobserved",))
def missing_discrete_values() -> None:
    y = np.ma.masked_array(COUNTS, [False, True, False, True])
    pm.Poisson("y", pm.math.exp(simple_latent()), observed=y)


@case(missing=("y_unobserved",))
def missing_values_of_our_likelihood() -> None:
    lgm.LogGaussianCox("y", f=simple_latent(), observed=[1.0, np.nan, 3.0, np.nan])


# Likelihoods


@case()
def potential_on_f() -> None:
    f = simple_latent()
    pm.Potential("bound", -0.1 * (f**4).sum())
    lgm.likelihoods.CopulaVolatility("y", f=f, observed=REALS)


@case(fixes_cov=("sigma_log__",))
def several_likelihoods() -> None:
    f, sigma = simple_latent(), pm.HalfNormal("sigma")
    pm.Normal("y", f, sigma, observed=REALS)
    pm.Poisson("counts", pm.math.exp(f[1:]), observed=COUNTS[1:])
    pm.Normal("repeated", f[:, None], sigma, observed=REALS[:, None] * np.ones((4, 3)))


@case()
def censored() -> None:
    normal = pm.Normal.dist(simple_latent(), 1)
    pm.Censored("y", normal, lower=None, upper=0.5, observed=np.minimum(REALS, 0.5))


@case(fixes_cov=("sigma_log__",))
def custom_distribution() -> None:
    def logp(value: Any, f: Any, sigma: Any) -> Any:
        return -pm.math.log(sigma) - pm.math.log(pm.math.cosh((value - f) / sigma))

    f, sigma = simple_latent(), pm.HalfNormal("sigma")
    pm.CustomDist("y", f, sigma, logp=logp, observed=REALS)


@case()
def part_of_a_larger_data_set() -> None:
    pm.Bernoulli("y", logit_p=simple_latent(), observed=[0, 1, 1, 0], total_size=40)


class NumpySoftplus(Op):
    """What a user wraps: NumPy code without a gradient."""

    def make_node(self, x: Any) -> Apply:
        x = pt.as_tensor_variable(x)
        return Apply(self, [x], [x.type()])

    def perform(self, node: Any, inputs: Any, outputs: Any) -> None:
        outputs[0][0] = np.logaddexp(0.0, inputs[0])


@case(has_gradient=False)
def no_gradient() -> None:
    pm.Normal("y", NumpySoftplus()(simple_latent()), 1, observed=REALS)


@case()
def steps_have_no_gradient() -> None:
    pm.Bernoulli("y", p=pm.math.switch(simple_latent() > 1e-3, 0.8, 0.3), observed=[0, 1, 1, 0])


def conditioned_on_a_hyperparameter() -> pm.Model:
    return pm.do(MODELS["student_t"](), {"sigma": 0.4})


CASES["do"] = Case(conditioned_on_a_hyperparameter, fixes_cov=("mu",))


@cache
def read(name: str) -> tuple[pm.Model, LatentGaussianModel]:
    case = CASES[name]
    model = case.build()
    theta = None if case.theta is None else [model[v] for v in case.theta]
    latent = find_latent(model, case.latent)
    return model, LatentGaussianModel.from_pymc(model, latent, theta, compile_kwargs=QUICK)


def some_point(model: pm.Model, ours: LatentGaussianModel) -> tuple[Any, Any, Any]:
    """(theta, f, point), with f from the prior and variables of other steps at their start."""
    rng = np.random.default_rng(len(model.basic_RVs))
    start = model.initial_point()
    theta = ours.theta_of(start) + 0.3 * rng.standard_normal(ours.p)
    L = np.linalg.cholesky(ours.cov(theta))
    f = ours.mean(theta) + 0.7 * L @ rng.standard_normal(ours.n)
    return theta, f, start | ours.point_of(theta) | {ours.latent: f}


few = pytest.mark.fast(
    "logistic",
    "negative_binomial",
    "mvnormal_cov",
    "mvnormal_tau",
    "mvnormal_chol_from_lkj",
    "nothing_but_f",
    "one_latent_variable",
    "discrete_hyperparameter",
    "two_latents",
    "missing_discrete_values",
    "part_of_a_larger_data_set",
    "constants_of_integer_type",
)
"""One of each form, and of what may be beside it."""


@few
@pytest.mark.parametrize("name", CASES)
def test_densities_and_the_law_of_f_are_the_models(name: str) -> None:
    _, ours = read(name)
    assert max(ours.check(draws=3).values()) < 1e-6
    theta = np.zeros(ours.p)
    assert ours.mean(theta).dtype == ours.cov(theta).dtype == np.float64


@few
@pytest.mark.parametrize("name", CASES)
def test_what_was_read_is_named(name: str) -> None:
    case = CASES[name]
    model, ours = read(name)
    assert ours.other_names == case.others
    assert ours.missing == case.missing
    assert ours.has_gradient == case.has_gradient
    point = model.initial_point()
    theta = np.random.default_rng(1).standard_normal(ours.p)
    f = np.arange(ours.n) / 7
    prior = ours.prior(theta)
    assert prior is not None
    moved = ours.latents_of(np.random.default_rng(1), prior, f) | ours.point_of(theta)
    assert list(moved) == [ours.latent, *ours.theta_names]
    assert set(moved) | set(ours.other_names) | set(ours.missing) <= set(point)
    assert all(np.shape(moved[v]) == np.shape(point[v]) for v in moved)
    assert all(isinstance(value, np.ndarray) for value in moved.values())
    assert np.array_equal(ours.theta_of(moved), theta)
    assert not np.shares_memory(moved[ours.latent], f)
    flags = [np.full(np.size(point[v]), v not in case.fixes_cov) for v in ours.theta_names]
    assert np.array_equal(ours.enters_cov, np.concatenate([*flags, np.empty(0, bool)]))


# Where theta is, and what it enters. How a density is written is PyTensor's to differentiate: slow.
DERIVATIVES = {
    "student_t",
    "negative_binomial",
    "linear_mean_ard_and_white_noise",
    "mvnormal_chol_from_lkj",
    "constants_of_integer_type",
    "nothing_but_f",
    "hierarchical_hyperparameters",
    "discrete_hyperparameter",
    "two_latents",
    "dims_coords_and_data",
    "missing_continuous_values",
    "several_likelihoods",
    "steps_have_no_gradient",
}
assert CASES.keys() >= DERIVATIVES


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in DERIVATIVES & {*few.args} else pytest.mark.slow)
        for name, case in CASES.items()
        if case.has_gradient
    ],
)
def test_derivatives_match_finite_differences(name: str) -> None:
    model, ours = read(name)
    rng = np.random.default_rng(2)
    theta, f, _ = some_point(model, ours)
    M, v = rng.standard_normal((ours.n, ours.n)), rng.standard_normal(ours.n)

    value, gradient, W, third = ours.likelihood_terms(f, theta)
    assert value == pytest.approx(ours.log_likelihood(f, theta), abs=1e-12, rel=1e-12)
    again, same = ours.log_likelihood_gradient(f, theta)
    assert value == pytest.approx(again, rel=1e-12)
    np.testing.assert_allclose(same, gradient, rtol=1e-10, atol=1e-12)
    # Everything factorizes: one shift of all f_i gives every diagonal element at once.
    shift = np.zeros(1)
    derivatives: list[tuple[Any, Callable[[Any], Any], Any]] = [
        (gradient, lambda x: ours.log_likelihood(x, theta), f),
        (W[:, None], lambda h: -ours.likelihood_terms(f + h, theta)[1], shift),
        (third[:, None], lambda h: -ours.likelihood_terms(f + h, theta)[2], shift),
        (ours.log_prior_gradient(theta), ours.log_prior, theta),
        (ours.log_likelihood_theta_gradient(f, theta), lambda t: ours.log_likelihood(f, t), theta),
        (ours.mean_vjp(theta, v), lambda t: ours.mean(t) @ v, theta),
        (ours.cov_vjp(theta, M), lambda t: np.sum(ours.cov(t) * M), theta),
    ]
    for derivative, function, at in derivatives:
        assert derivative.shape[-1] == at.size
        if at.size:
            np.testing.assert_allclose(derivative, differences(function, at), rtol=1e-6, atol=1e-6)
    unmoved = ours.cov_vjp(theta, M)[~ours.enters_cov]
    assert np.array_equal(unmoved, np.zeros_like(unmoved))


def test_derivatives_of_a_simplified_gradient_are_small_and_finite(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of the gradient as PyTensor writes it they are 639 operations, and the curvature is NaN."""
    ours = read("negative_binomial")[1]
    graphs = ours.graphs
    seen: list[Any] = []
    monkeypatch.setattr(graphs, "compiled", lambda *made: seen.extend(made))
    type(graphs).likelihood_terms.func(graphs)
    inputs, outputs, _ = seen
    assert len(list(toposort(outputs))) < 400
    values = called_once(inputs, outputs, STABLE)(np.full(ours.n, -40.0), np.zeros(ours.p))
    assert all(np.isfinite(value).all() for value in values)


def test_derivatives_far_in_a_tail_are_those_of_a_stable_gradient() -> None:
    """exp overflows at the second observation, and its sigmoid does not."""
    with pm.Model() as model:
        s = pm.HalfNormal("s")
        f = pm.MvNormal("f", np.zeros(2), np.eye(2))
        pm.Logistic("y", f, s, observed=[-2.0, -8.0])
    ours = lgm.read(model, compile_kwargs={"mode": STABLE})
    at, theta = np.array([-1.0, 2.0]), np.log([0.01])
    _, gradient, W, third = ours.likelihood_terms(at, theta)
    np.testing.assert_allclose(gradient, [-100.0, -100.0])
    np.testing.assert_allclose([W, third], 0.0, atol=1e-30)


def test_results_are_the_callers_to_overwrite() -> None:
    _, ours = read("constants_of_integer_type")
    theta = np.zeros(1)
    first = ours.cov(theta)
    first[:] = np.nan
    ours.mean(theta)[:] = np.nan
    assert np.isfinite(ours.cov(theta)).all()
    assert np.isfinite(ours.mean(theta)).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "variable", "cov_moves"),
    [
        ("discrete_hyperparameter", "kernel", True),
        ("one_hyperparameter_left_to_another_step", "eta_log__", True),
        ("two_latents", "g", False),
        ("two_latents", "eta_log__", False),
    ],
)
def test_read_takes_over_what_others_have_moved(name: str, variable: str, cov_moves: bool) -> None:
    model, ours = read(name)
    logp = model.compile_logp(**QUICK)
    start = model.initial_point()
    other = start | {variable: start[variable] + np.ones_like(start[variable])}
    if name == "discrete_hyperparameter":
        other[variable] = 1 - start[variable]
    moves = ours.theta_of(start) + 0.2, np.linspace(-1, 1, ours.n)

    def rest(theta: Any, f: Any) -> float:
        gaussian = stats.multivariate_normal(ours.mean(theta), ours.cov(theta)).logpdf(f)
        return float(ours.log_prior(theta) + gaussian + ours.log_likelihood(f, theta))

    start, other = ({k: np.array(v) for k, v in point.items()} for point in (start, other))
    for point, expected in [
        (start, (False, False)),
        (other, (cov_moves, True)),
        (other, (False, False)),
        (start, (cov_moves, True)),
    ]:
        assert ours.read(point) == expected
        here = ours.theta_of(point), point[ours.latent]
        moved = point | ours.point_of(moves[0]) | {ours.latent: moves[1]}
        difference = logp(moved) - logp(point)
        assert rest(*moves) - rest(*here) == pytest.approx(difference, abs=1e-8)
    # A copy: the parallel driver writes the next point into the same memory.
    other[variable][...] = start[variable]
    assert ours.read(start) == (False, False)


def test_one_number_of_another_step_is_that_of_all_elements() -> None:
    """An axis of length 1 broadcasts, as it does in the model."""
    with pm.Model() as model:
        eta, shift = pm.HalfNormal("eta", shape=1), pm.HalfNormal("shift", shape=1)
        f = pm.MvNormal("f", np.zeros(3), eta**2 * np.eye(3))
        pm.Poisson("y", pm.math.exp(f) + shift, observed=[1, 0, 2])
    ours = LatentGaussianModel.from_pymc(model, f, [], compile_kwargs=QUICK)
    point = model.initial_point() | {"eta_log__": np.array([0.3])}
    ours.read(point)
    np.testing.assert_allclose(ours.cov(np.empty(0)), np.exp(0.6) * np.eye(3))
    expected = model.compile_logp([model["y"]], **QUICK)(point)
    assert ours.log_likelihood(point["f"], np.empty(0)) == pytest.approx(float(expected))


@pytest.mark.fast("pickle-False")
@pytest.mark.parametrize(("pickler", "compiled"), [(pickle, False), (cloudpickle, True)])
def test_pickles_keep_their_values_and_their_shared_variables(pickler: Any, compiled: bool) -> None:
    with pm.Model() as model:
        rate = (1 + pm.Poisson("k", 1.0)) * pm.math.exp(simple_latent())
        pm.Poisson("y", rate, observed=COUNTS)
    ours = LatentGaussianModel.from_pymc(model, compile_kwargs=QUICK)
    theta, f, point = some_point(model, ours)
    if compiled:
        ours.likelihood_terms(f, theta)
    copy = pickle.loads(pickler.dumps(ours))
    moved = point | {"k": point["k"] + 2}
    before = ours.log_likelihood(f, theta)
    assert copy.read(moved) == (False, True)
    ours.read(moved)
    assert repr(copy) == repr(ours)
    assert copy.log_likelihood(f, theta) == ours.log_likelihood(f, theta) != before
    for a, b in zip(copy.likelihood_terms(f, theta), ours.likelihood_terms(f, theta), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(copy.cov(theta), ours.cov(theta))
    np.testing.assert_array_equal(copy.mean(theta), ours.mean(theta))
    assert copy.log_prior(theta) == ours.log_prior(theta)


@pytest.mark.slow
def test_the_default_linker_gives_the_same_values() -> None:
    model, quick = read("student_t")
    ours = LatentGaussianModel.from_pymc(model)
    theta, f, _ = some_point(model, quick)
    for a, b in zip(ours.likelihood_terms(f, theta), quick.likelihood_terms(f, theta), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10)
    # Of the diagonal alone a length-scale has no derivative, but for rounding.
    M = np.random.default_rng(0).standard_normal((ours.n, ours.n))
    np.testing.assert_allclose(ours.cov_vjp(theta, M), quick.cov_vjp(theta, M), atol=1e-12)
    np.testing.assert_allclose(ours.log_prior_gradient(theta), quick.log_prior_gradient(theta))


def test_the_latent_is_found_by_name_variable_or_value() -> None:
    model, _ = read("two_latents")
    for latent in ("g", model["g"], model.rvs_to_values[model["g"]]):
        assert find_latent(model, latent) is model["g"]


@pytest.mark.parametrize("expected", [False, True])
def test_theta_in_the_likelihood_is_seen(expected: bool) -> None:
    with pm.Model():
        length = pm.InverseGamma("length", 3.0, 2.0)
        gp = pm.gp.Latent(cov_func=pm.gp.cov.Matern52(2, ls=length))
        f = gp.prior("f", X, reparameterize=False)
        noise = pm.HalfNormal("noise") if expected else 0.3
        pm.Normal("y", f, noise, observed=REALS)
        assert LatentGaussianModel.from_pymc(compile_kwargs=QUICK).theta_in_likelihood == expected


def test_data_can_be_exchanged() -> None:
    """New values in `pm.Data` reach the functions that were compiled before."""
    case = CASES["dims_coords_and_data"]
    model = case.build()
    ours = LatentGaussianModel.from_pymc(model, compile_kwargs=QUICK)
    theta, f = np.zeros(1), np.zeros(4)
    before = ours.log_likelihood(f, theta), ours.cov(theta)
    pm.set_data({"seen": np.zeros(6, int), "X": X[::-1]}, model=model)
    assert ours.log_likelihood(f, theta) == pytest.approx(-6.0) != before[0]
    np.testing.assert_allclose(ours.cov(theta), before[1][::-1, ::-1])
