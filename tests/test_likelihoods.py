"""The likelihood distributions: densities, derivatives, draws, and life inside PyMC.

Everything is parametrized over `CASES`: a new likelihood is tested by being listed.
"""

from __future__ import annotations

import itertools
import pickle

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import cloudpickle
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import xarray as xr

from models import QUICK
from pymc.exceptions import ImputationWarning
from pymc.logprob.utils import ParameterValueError
from pymc.sampling.mcmc import assign_step_methods
from pytensor.compile.mode import Mode
from scipy import stats
from scipy.special import log_softmax, softmax

import pymc_lgm as lgm

from pymc_lgm.likelihoods import (
    CopulaVolatility,
    LatentGaussianLikelihood,
    LogGaussianCox,
    Logistic,
    OrdinalProbit,
    Probit,
    is_latent_gaussian_likelihood,
)
from pymc_lgm.likelihoods.registry import is_marked

pytestmark = pytest.mark.usefixtures("interpreted")

CUTPOINTS = np.array([-2.0, -0.5, 0.1, 1.5])


class Case(NamedTuple):
    distribution: Any
    kwargs: dict[str, Any]
    frozen: Callable[[Any], Any]
    """SciPy's distribution of y given f."""
    values: list[float]
    """Legal observations, extreme ones included."""
    illegal: list[float]


def ordinal(cutpoints: Any, noise: float, illegal: list[float]) -> Case:
    cutpoints = np.asarray(cutpoints)

    def frozen(f: Any) -> Any:
        edges = np.concatenate([[-np.inf], cutpoints, [np.inf]])
        z = (edges - np.reshape(f, (-1, 1))) / noise
        # The difference of two upper tails where those of two lower tails are both almost 1.
        p = np.where(z[:, :-1] > 0, -np.diff(stats.norm.sf(z)), np.diff(stats.norm.cdf(z)))
        return np.squeeze(p)

    kwargs = {"cutpoints": cutpoints, "noise": noise}
    return Case(OrdinalProbit, kwargs, frozen, list(range(len(cutpoints) + 1)), illegal)


CASES = {
    "logistic": Case(
        Logistic, {}, lambda f: stats.bernoulli(1 / (1 + np.exp(-f))), [0, 1], [-1, 0.5, 2]
    ),
    "probit": Case(Probit, {}, lambda f: stats.bernoulli(stats.norm.cdf(f)), [0, 1], [-1, 0.5, 2]),
    "log_gaussian_cox": Case(
        LogGaussianCox,
        {"exposure": 1.7, "offset": -0.3},
        lambda f: stats.poisson(1.7 * np.exp(f - 0.3)),
        [0, 1, 7, 10**6],
        [-1, 0.5],
    ),
    "copula_volatility": Case(
        CopulaVolatility, {}, lambda f: stats.norm(0, np.exp(f)), [0.0, 1e-3, 1.3, -50.0], []
    ),
    "ordinal_probit": ordinal(CUTPOINTS, 1.0, [-1, 0.5, 5]),
    "ordinal_probit_sharp": ordinal(CUTPOINTS, 0.1, [-1, 0.5, 5]),
    "ordinal_probit_binary": ordinal([0.3], 1.0, [-1, 0.5, 2]),
}
each_case = pytest.mark.parametrize("key", CASES)
each_distribution = pytest.mark.parametrize("key", list(CASES)[:5])


# Compiled fast is the one that has code of its own for the normal distribution's tails.
MODES = {"PY": QUICK["mode"], "NUMBA": "NUMBA", "CVM": "CVM"}


@pytest.fixture(autouse=True)
def _c_compiler(request: pytest.FixtureRequest) -> None:
    if "-CVM" in request.node.name:
        request.getfixturevalue("c_compiler")


BY_NUMBA = list(CASES)[:5]
BY_C = ["log_gaussian_cox", "ordinal_probit"]
"""Those that slow runs compile; before a release each back end compiles all."""


def each_backend(keys: Any) -> Any:
    """Every case in Python, and some by each back end in slow runs."""
    in_slow = {"PY": keys, "NUMBA": BY_NUMBA, "CVM": BY_C}
    params = []
    for key in keys:
        for mode in MODES:
            marks = [pytest.mark.slow] * (mode != "PY")
            marks += [pytest.mark.whole] * (key not in in_slow[mode])
            params.append(pytest.param(key, mode, marks=marks, id=f"{key}-{mode}"))
    return pytest.mark.parametrize(("key", "mode"), params)


# (y, f, log p and its three derivatives in f), computed with mpmath at 460 digits.
# fmt: off
REFERENCE = {
    "logistic": [
        (1, -1000, -1000.0, 1.0, -0.0, -0.0),
        (1, -30, -30.0, 1.0, -9.35762296884e-14, -9.35762296884e-14),
        (0, -6.5, -0.00150231015975, -0.00150118225674, -0.00149892870857, -0.00149442837821),
        (1, 0.3, -0.554355244469, 0.425557483188, -0.244458311691, 0.0363961839556),
        (0, 2, -2.12692801104, -0.880797077978, -0.104993585404, 0.0799625010562),
        (1, 25, -1.38879438649e-11, 1.38879438648e-11, -1.38879438646e-11, 1.38879438642e-11),
    ],
    "probit": [
        (1, -1000, -500007.826695, 1000.001, -0.999999000006, 1.9999760003e-09),
        (1, -30, -454.321243956, 30.0332596674, -0.998896228488, 7.30999301578e-05),
        (1, -6.5, -23.9381494952, 6.64730136119, -0.979156538747, 0.00567832261539),
        (1, -5.5, -17.7793763526, 5.6714103139, -0.972138222146, 0.00861894352232),
        (0, 0.3, -0.962102818169, -0.998165968858, -0.69688551073, -0.183983179924),
        (0, 8, -35.0134371599, -8.12136811224, -0.985675116557, -0.00329187656634),
        (1, 25, -3.05669670638e-138, 7.65392973642e-137, -1.9134824341e-135, 4.77605215553e-134),
    ],
    "log_gaussian_cox": [
        (0, -30, -1.17849059159e-13, -1.17849059159e-13, -1.17849059159e-13, -1.17849059159e-13),
        (7, 0.3, -6.51076360363, 5.3, -1.7, -1.7),
        (1000000, 14, -99439.1157606, -514548.982165, -1514548.98216, -1514548.98216),
        (2, 30, -1.34584496442e+13, -1.34584496442e+13, -1.34584496442e+13, -1.34584496442e+13),
    ],
    "copula_volatility": [
        (0, -30, 29.0810614668, -1.0, 0.0, 0.0),
        (1.3, -30, -9.64996244394e+25, 1.92999248879e+26, -3.85998497758e+26, 7.71996995515e+26),
        (-50, 0.3, -687.233483651, 1371.02909024, -2744.05818047, 5488.11636094),
        (0.001, 8, -8.9189385332, -1.0, -2.25070349439e-13, 4.50140698877e-13),
        (1.3, 30, -30.9189385332, -1.0, -2.95970063779e-26, 5.91940127558e-26),
    ],
    "ordinal_probit": [
        (0, -25, -2.33063700622e-117, -5.37056036502e-116, -1.2352288839e-114, -2.8356558727e-113),
        (0, 1000, -502009.828693, -1002.000998, -0.999999003994, -1.98802407934e-09),
        (1, -1000, -498009.824693, 998.001002002, -0.999998995994, 2.01202391934e-09),
        (1, 0.3, -1.60379740723, -1.299472185, -0.860308026907, -0.0368047761177),
        (2, -30, -439.429474626, 29.5338208341, -0.9988587585, 7.68420797388e-05),
        (2, 6, -20.1481435516, -6.04766698837, -0.983160100167, -0.00257423712886),
        (3, 0.3, -0.767461243327, 0.424086305954, -0.850332786703, 0.0127827060096),
        (3, 30, -410.395070002, -28.53500185, -0.998777854176, -8.51392687418e-05),
        (4, -6.5, -35.0134371599, 8.12136811224, -0.985675116557, 0.00329187656634),
    ],
    "ordinal_probit_sharp": [
        (0, 30, -51206.6872693, -3200.03124939, -99.9990234947, -6.10280045656e-05),
        (1, -8, -1805.01356068, 600.166574202, -99.9722684117, 0.00922850181962),
        (2, -0.3, -0.0230453183945, 0.551127030414, -11.4084517309, 182.38982524),
        (3, 1000, -49850122.6278, -99850.0010015, -99.999998997, -2.00902682584e-09),
        (4, -30, -49619.1715212, 3150.03174539, -99.9989922504, 6.39802327063e-05),
    ],
    "ordinal_probit_binary": [
        (0, -30, -5.73172350332e-202, -1.73859978083e-200, -5.2679573359e-199, -1.594452473e-197),
        (1, 8, -6.80331154077e-15, 5.32414837225e-14, -4.09959424663e-13, 3.10344608619e-12),
    ],
}
# fmt: on


def scipy_logp(case: Case, y: Any, f: Any) -> np.ndarray:
    frozen = case.frozen(f)
    if isinstance(frozen, np.ndarray):
        p = np.broadcast_to(frozen, (np.size(f), frozen.shape[-1]))
        with np.errstate(divide="ignore"):
            return np.log(p[np.arange(len(p)), np.asarray(y, dtype=int)])
    return frozen.logpdf(y) if hasattr(frozen.dist, "pdf") else frozen.logpmf(y)


@cache
def derivatives(key: str, mode: str) -> Callable[[Any, Any], np.ndarray]:
    """Compile (f, y) -> four rows: the elementwise log p and its derivatives by autodiff."""
    case = CASES[key]
    f, y = pt.vector("f"), pt.vector("y")
    terms = [pm.logp(case.distribution.dist(f=f, **case.kwargs), y)]
    for _ in range(3):
        terms.append(pt.grad(terms[-1].sum(), f))
    function = pytensor.function([f, y], terms, mode=MODES[mode], on_unused_input="ignore")
    return lambda f, y: np.array(function(np.asarray(f, float), np.asarray(y, float)))


def model_with(
    key: str, observed: Any = None, n: int = 4, f: Any = None, **kwargs: Any
) -> pm.Model:
    case = CASES[key]
    with pm.Model(coords={"obs": range(n)}) as model:
        f = pm.Normal("f", dims="obs") if f is None else f
        case.distribution("y", f=f, observed=observed, **case.kwargs, **kwargs)
    return model


def some_values(key: str, n: int = 4) -> np.ndarray:
    return np.resize(CASES[key].values[:3], n).astype(float)


# Densities and derivatives


@pytest.mark.fast("logistic", "probit", "log_gaussian_cox", "copula_volatility", "ordinal_probit")
@each_case
def test_logp_equals_scipy(key: str) -> None:
    case = CASES[key]
    f = np.tile(np.linspace(-2, 2, 9), len(case.values))
    y = np.repeat(case.values, 9)
    expected = scipy_logp(case, y, f)
    ok = np.isfinite(expected) & (expected > -600)
    np.testing.assert_allclose(
        derivatives(key, "PY")(f, y)[0][ok], expected[ok], rtol=1e-9, atol=1e-9
    )


@pytest.mark.fast("logistic", "probit", "log_gaussian_cox", "copula_volatility", "ordinal_probit")
@each_case
def test_probabilities_sum_to_one(key: str) -> None:
    case = CASES[key]
    for f in (-3.0, 0.4, 2.5):
        if issubclass(case.distribution, pm.Continuous):
            y = np.linspace(-12, 12, 4001) * np.exp(f)
            weight = y[1] - y[0]
        else:
            y = np.arange(200) if case.distribution is LogGaussianCox else np.array(case.values)
            weight = 1.0
        logp = derivatives(key, "PY")(np.full(len(y), f), y)[0]
        assert np.exp(logp).sum() * weight == pytest.approx(1.0, abs=1e-12)


@each_backend(CASES)
def test_derivatives_match_mpmath(key: str, mode: str) -> None:
    table = np.array(REFERENCE[key]).T
    y, f, expected = table[0], table[1], table[2:]
    computed = derivatives(key, mode)(f, y)
    near = np.abs(f) <= 30
    np.testing.assert_allclose(computed[:, near], expected[:, near], rtol=1e-9)
    np.testing.assert_allclose(computed[:, ~near], expected[:, ~near], rtol=1e-6)


@pytest.mark.fast("logistic-PY", "probit-PY", "log_gaussian_cox-PY", "copula_volatility-PY")
@each_backend(CASES)
def test_each_derivative_is_that_of_the_one_before(key: str, mode: str) -> None:
    case = CASES[key]
    f = np.tile(np.linspace(-4, 4, 41), len(case.values))
    y = np.repeat(case.values, 41)
    step = 1e-3
    far_plus, plus, minus, far_minus = (
        derivatives(key, mode)(f + k * step, y)[:3] for k in (2, 1, -1, -2)
    )
    difference = (8 * (plus - minus) - (far_plus - far_minus)) / (12 * step)
    computed = derivatives(key, mode)(f, y)[1:]
    scale = 1 + np.abs(computed).max(axis=0)
    np.testing.assert_array_less(np.abs(difference - computed) / scale, 1e-6)


@each_backend(CASES)
def test_finite_for_extreme_f_and_y(key: str, mode: str) -> None:
    values = CASES[key].values
    f = np.repeat([0, 1, -1, 30, -30, 300, -300, 1e3, -1e3], len(values))
    computed = derivatives(key, mode)(f, np.tile(values, 9))
    assert np.isfinite(computed).all()


@each_case
def test_gradient_points_back_from_an_extreme_f(key: str) -> None:
    case = CASES[key]
    if case.distribution is CopulaVolatility:
        f, y = [-1e3, 1e3], [1.3, 1.3]
    elif case.distribution is LogGaussianCox:
        f, y = [-1e3, 1e3], [7, 7]
    else:
        f, y = [-1e3, 1e3], [case.values[-1], 0]
    _, gradient, second, _ = derivatives(key, "PY")(f, y)
    assert gradient[0] > 0
    assert gradient[1] < 0
    assert (second <= 0).all()


@each_case
def test_illegal_values_have_probability_zero(key: str) -> None:
    illegal = CASES[key].illegal
    if illegal:
        computed = derivatives(key, "PY")(np.full(len(illegal), 0.3), illegal)
        assert (computed[0] == -np.inf).all()
        assert (computed[1:] == 0).all()


def test_ordinal_gradients_in_cutpoints_and_noise() -> None:
    cutpoints, noise = pt.vector("cutpoints"), pt.scalar("noise")
    f, y = np.array([-3.0, 0.2, 0.4, 8.0, 3.0, -30.0]), np.array([0, 1, 2, 3, 4, 3])
    logp = pm.logp(OrdinalProbit.dist(f=f, cutpoints=cutpoints, noise=noise), y).sum()
    gradients = pt.grad(logp, [cutpoints, noise])
    function = pytensor.function([cutpoints, noise], [logp, *gradients])
    _, by_cutpoint, by_noise = function(CUTPOINTS, 0.8)
    step = 1e-5
    for k in range(len(CUTPOINTS)):
        shift = step * np.eye(len(CUTPOINTS))[k]
        high, low = function(CUTPOINTS + shift, 0.8)[0], function(CUTPOINTS - shift, 0.8)[0]
        assert by_cutpoint[k] == pytest.approx((high - low) / (2 * step), rel=1e-6)
    high, low = function(CUTPOINTS, 0.8 + step)[0], function(CUTPOINTS, 0.8 - step)[0]
    assert by_noise == pytest.approx((high - low) / (2 * step), rel=1e-6)


def test_ordinal_tails_need_no_rewrite() -> None:
    """A graph as it is written has derivatives in its tails, too."""
    f = pt.vector("f")
    y = np.array([0, 0, 4, 4, 2, 2])
    logp = pm.logp(OrdinalProbit.dist(f=f, cutpoints=CUTPOINTS, noise=0.5), y).sum()
    slope = pt.grad(logp, f)
    outputs = [logp, slope, pt.grad(slope.sum(), f)]
    as_written = pytensor.function([f], outputs, mode=Mode(linker="py", optimizer=None))
    at = np.array([-50.0, 50.0, -50.0, 50.0, -50.0, 50.0])
    for found, expected in zip(as_written(at), pytensor.function([f], outputs)(at), strict=True):
        assert np.isfinite(found).all()
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-12)


def test_ordinal_with_a_row_of_cutpoints_for_each_observation() -> None:
    f, y = np.array([0.1, 0.2, 0.3]), np.array([0, 1, 2])
    cutpoints = np.array([[0.0, 1.0], [0.0, 2.0], [-1.0, 1.0]])
    together = pm.logp(OrdinalProbit.dist(f=f, cutpoints=cutpoints), y).eval()
    alone = [
        pm.logp(OrdinalProbit.dist(f=f[i], cutpoints=cutpoints[i]), y[i]).eval() for i in range(3)
    ]
    np.testing.assert_allclose(together, alone)
    assert pm.draw(OrdinalProbit.dist(f=f, cutpoints=cutpoints), draws=5).shape == (5, 3)


def test_ordinal_stays_accurate_in_narrow_categories() -> None:
    f = pt.vector("f")
    logp = pm.logp(OrdinalProbit.dist(f=f, cutpoints=[0.0, 1e-2]), np.ones(3, dtype=int))
    gradient = pt.grad(logp.sum(), f)
    at = np.array([-20.0, 0.3, 20.0])
    # An interval of width w at distance d from f: log p = log(w phi(d)) + O(w^2).
    expected = stats.norm.logpdf(0.005 - at) + np.log(1e-2)
    np.testing.assert_allclose(logp.eval({f: at}), expected, atol=2e-3)
    np.testing.assert_allclose(gradient.eval({f: at}), 0.005 - at, atol=2e-4)


def test_logcdf() -> None:
    p = np.cumsum(ordinal(CUTPOINTS, 1.0, []).frozen(0.3))
    logcdf = pm.logcdf(OrdinalProbit.dist(f=0.3, cutpoints=CUTPOINTS), np.arange(-1, 6)).eval()
    np.testing.assert_allclose(np.exp(logcdf), [0, *p, 1])
    logcdf = pm.logcdf(CopulaVolatility.dist(f=0.3), [-1.0, 2.0]).eval()
    np.testing.assert_allclose(logcdf, stats.norm(0, np.exp(0.3)).logcdf([-1.0, 2.0]))


# Draws


@each_backend(CASES)
def test_draws_follow_the_density(key: str, mode: str) -> None:
    case, f, n = CASES[key], 0.4, 20_000
    draws = pm.draw(
        case.distribution.dist(f=f, **case.kwargs, shape=n), random_seed=1, mode=MODES[mode]
    )
    if issubclass(case.distribution, pm.Continuous):
        p_value = stats.kstest(draws, case.frozen(f).cdf).pvalue
    else:
        y = np.arange(20 if case.distribution is LogGaussianCox else len(case.values))
        assert draws.max() <= y[-1]
        expected = n * np.exp(derivatives(key, mode)(np.full(len(y), f), y)[0])
        counts = np.bincount(draws, minlength=len(y))
        # Values too rare for the chi-square approximation share one cell with the most common one.
        group = np.where(expected >= 5, y, np.argmax(expected))
        observed = np.bincount(group, weights=counts)
        expected = np.bincount(group, weights=expected)
        used = expected > 0
        statistic = ((observed - expected)[used] ** 2 / expected[used]).sum()
        p_value = stats.chi2.sf(statistic, used.sum() - 1)
    assert p_value > 1e-4


@pytest.mark.fast("logistic", "log_gaussian_cox", "ordinal_probit")
@each_distribution
def test_shapes_of_draws_and_starting_points(key: str) -> None:
    case = CASES[key]
    for f, shape, expected in ((0.3, None, ()), ([0.1, 0.2], None, (2,)), (0.3, (3, 2), (3, 2))):
        rv = case.distribution.dist(f=f, **case.kwargs, shape=shape)
        assert pm.draw(rv, random_seed=1).shape == expected
        point = pm.distributions.distribution.support_point(rv)
        assert point.dtype == rv.dtype
        assert point.eval().shape == expected
        assert np.isfinite(pm.logp(rv, point).eval()).all()


def test_counts_too_large_for_an_integer_are_drawn_at_the_largest_rate() -> None:
    draws = pm.draw(LogGaussianCox.dist(f=[60.0, 1e3, -1e3]), random_seed=1)
    np.testing.assert_allclose(draws, [1e18, 1e18, 0], rtol=1e-6)


# Life inside PyMC


@each_distribution
def test_predictive_sampling_and_log_likelihood(key: str) -> None:
    case, y = CASES[key], some_values(key)
    model = model_with(key, y, dims="obs")
    with model:
        prior: Any = pm.sample_prior_predictive(draws=7, random_seed=1)
        draws = prior["prior_predictive"]["y"]
        assert draws.dims == ("chain", "draw", "obs")
        shapes = {name: np.shape(value) for name, value in case.kwargs.items()}
        assert not case.distribution.outside_support(draws.values, shapes)[0].any()
        f = prior["prior"]["f"]
        fit: Any = xr.DataTree.from_dict({"posterior": xr.Dataset({"f": f})})
        pm.compute_log_likelihood(fit, progressbar=False)
    terms = fit["log_likelihood"]["y"].values[0]
    for draw, term in zip(f.values[0], terms, strict=True):
        expected = scipy_logp(case, y, draw)
        np.testing.assert_allclose(term, expected, rtol=1e-8)


@each_distribution
def test_observed_in_a_data_container(key: str) -> None:
    y = some_values(key)
    with pm.Model() as model:
        f = pm.Normal("f", shape=4)
        data = pm.Data("data", y)
        CASES[key].distribution("y", f=f, observed=data, **CASES[key].kwargs)
    logp = model.compile_logp(vars=[model["y"]])
    point = {"f": np.linspace(-1, 1, 4)}
    assert logp(point) == pytest.approx(scipy_logp(CASES[key], y, point["f"]).sum())
    pm.set_data({"data": y[::-1].copy()}, model=model)
    assert logp(point) == pytest.approx(scipy_logp(CASES[key], y[::-1], point["f"]).sum())


@pytest.mark.fast("logistic")
@pytest.mark.parametrize("key", list(CASES)[:5])
def test_missing_values_become_variables(key: str) -> None:
    y = some_values(key)
    y[1] = np.nan
    with pytest.warns(ImputationWarning):
        model = model_with(key, y)
    assert [rv.name for rv in model.free_RVs] == ["f", "y_unobserved"]
    assert [is_latent_gaussian_likelihood(rv) for rv in model.free_RVs] == [False, True]
    assert [is_latent_gaussian_likelihood(rv) for rv in model.observed_RVs] == [True]
    point = model.initial_point()
    complete = np.where(np.isnan(y), point["y_unobserved"][0], y)
    expected = scipy_logp(CASES[key], complete, point["f"]).sum() + stats.norm.logpdf(0) * 4
    assert model.compile_logp(**QUICK)(point) == pytest.approx(expected)
    assert np.isfinite(model.compile_dlogp(**QUICK)(point)).all()


def test_masked_arrays_and_lists_with_nan_are_missing_values_too() -> None:
    for y in (np.ma.masked_equal([0, 9, 1, 1], 9), [0, np.nan, 1, 1]):
        with pytest.warns(ImputationWarning):
            model = model_with("logistic", y)
        assert model["y_unobserved"].eval().shape == (1,)


@pytest.mark.fast("logistic")
@each_distribution
def test_marker_survives_copies(key: str) -> None:
    y = some_values(key)
    model = model_with(key, y)
    unobserved = model_with(key, dims="obs")
    copies = [
        cloudpickle.loads(cloudpickle.dumps(model)),
        pm.observe(unobserved, {"y": y.astype(unobserved["y"].dtype)}),
        pm.model.fgraph.clone_model(model),
    ]
    expected = model.compile_logp()(model.initial_point())
    for copy in copies:
        [rv] = copy.observed_RVs
        assert isinstance(rv.owner.op, LatentGaussianLikelihood)
        assert is_latent_gaussian_likelihood(rv)
    assert copies[0].compile_logp()(model.initial_point()) == pytest.approx(expected)
    assert is_latent_gaussian_likelihood(pm.do(model, {"f": np.zeros(4)})["y"])
    assert is_latent_gaussian_likelihood(model_with(key, y, total_size=100).observed_RVs[0])
    logp = pm.logp(CASES[key].distribution.dist(f=[0.1, 0.2], **CASES[key].kwargs), y[:2])
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(logp)).eval(), logp.eval())


def test_what_a_likelihood_depends_on_is_marked_for_the_step_methods() -> None:
    with pm.Model() as model:
        eta = pm.HalfNormal("eta")
        other = pm.Normal("other")
        f = pm.MvNormal("f", mu=np.zeros(2), cov=eta * np.eye(2))
        Logistic("y", f=f, observed=[0, 1])
    assert is_marked(f)
    assert is_marked(eta)
    assert not is_marked(other)
    copy = model.copy()
    assert is_marked(copy["f"])
    assert is_marked(copy["eta"])


FOR_THE_DEFAULT = {
    "CAR": lambda s: pm.CAR("f", np.zeros(3), W=1.0 - np.eye(3), alpha=0.5, tau=s),
    "ICAR": lambda s: s * pm.ICAR("f", W=1.0 - np.eye(3)),
    "AR": lambda s: pm.AR("f", rho=[0.5], sigma=s, init_dist=pm.Normal.dist(0, s), shape=3),
    "walk": lambda s: pm.GaussianRandomWalk("f", sigma=s, init_dist=pm.Normal.dist(), steps=2),
    "field": lambda s: lgm.gmrf.RandomWalk("f", sigma=s, shape=3),
    "HSGP": lambda s: pm.gp.HSGP([4], c=1.5, cov_func=s**2 * pm.gp.cov.ExpQuad(1, ls=1.0)).prior(
        "f", np.arange(3.0)[:, None]
    ),
}
"""Gaussian vectors beside `pymc.MvNormal`, with a scale."""


@pytest.mark.parametrize("key", FOR_THE_DEFAULT)
def test_with_series_maps_and_fields_pm_sample_chooses_the_default(key: str) -> None:
    """It samples f, its scale and a coefficient beside it."""
    with pm.Model() as model:
        slope = pm.Normal("slope")
        f = FOR_THE_DEFAULT[key](pm.HalfNormal("s"))
        Logistic("y", f=slope + f, observed=[0, 1, 1])
    ((chosen, variables),) = assign_step_methods(model)[1].items()
    assert chosen.name == "pseudo_marginal"
    assert variables == model.value_vars


def test_series_and_processes_that_are_not_normal_are_left_to_nuts() -> None:
    with pm.Model() as model:
        heavy = pm.StudentT.dist(4)
        walk = pm.RandomWalk("walk", pm.Normal.dist(), innovation_dist=heavy, steps=2)
        rho = pm.Normal("rho")
        series = pm.AR("series", rho=[rho], sigma=1.0, init_dist=heavy, shape=3)
        process = pm.gp.TP(scale_func=pm.gp.cov.ExpQuad(1, ls=1.0), nu=4).prior(
            "process", np.arange(3.0)[:, None]
        )
        Logistic("y", f=walk + series + process, observed=[0, 1, 1])
    assert not any(map(is_marked, model.free_RVs))


def test_a_regression_without_a_gaussian_vector_is_left_to_nuts() -> None:
    with pm.Model():
        slope = pm.Normal("slope")
        Logistic("y", f=slope * np.array([1.0, 2.0]), observed=[0, 1])
    assert not is_marked(slope)


def test_other_distributions_are_not_marked() -> None:
    assert not is_latent_gaussian_likelihood(pm.Bernoulli.dist(logit_p=0.3))
    assert not is_latent_gaussian_likelihood(pt.vector())
    with pytest.warns(ImputationWarning), pm.Model() as model:
        pm.Normal("y", observed=[1.0, np.nan])
    assert not any(is_latent_gaussian_likelihood(rv) for rv in model.basic_RVs)


# Refusals


@each_distribution
def test_impossible_observations_are_refused(key: str) -> None:
    legal = some_values(key)
    for wrong in [*CASES[key].illegal, np.inf]:
        y = legal.copy()
        y[2] = wrong
        with pytest.raises(ValueError, match=rf"y: observed\[2\] is {wrong}.* needs "):
            model_with(key, y)
        with pytest.raises(ValueError, match=r"observed\[2\]"), pm.Model():
            CASES[key].distribution(
                "y", f=np.zeros(4), observed=pm.Data("data", y), **CASES[key].kwargs
            )


def test_shapes_that_disagree_are_refused() -> None:
    with pytest.raises(ValueError, match=r"f has shape \(4,\) and observed has shape \(3,\)"):
        model_with("probit", [0, 1, 1])
    with pm.Model():
        inputs = pm.Data("inputs", np.arange(5.0)[:, None])
        gp = pm.gp.Latent(cov_func=pm.gp.cov.ExpQuad(1, ls=pm.HalfNormal("ls")))
        f = gp.prior("f", inputs, reparameterize=False)
        with pytest.raises(ValueError, match=r"f has shape \(5,\) and observed has shape \(3,\)"):
            Logistic("y", f=f, observed=[0, 1, 1])
        with pytest.raises(ValueError, match=r"exposure has shape \(2,\) and observed has"):
            LogGaussianCox("y", f=f, exposure=[1.0, 2.0], observed=[1, 2, 3, 4, 5])


def test_scalar_f_and_repeated_measurements_are_accepted() -> None:
    model_with("logistic", [[0, 1, 1, 0], [1, 1, 1, 0]])
    model_with("logistic", [0, 1, 1], f=0.3)


@pytest.mark.parametrize(
    ("distribution", "name", "value", "message"),
    [
        (LogGaussianCox, "exposure", 0.0, "exposure must be positive"),
        (OrdinalProbit, "noise", 0.0, "noise must be positive"),
        (OrdinalProbit, "cutpoints", [1.0, 0.0], "cutpoints must increase"),
        (OrdinalProbit, "cutpoints", [1.0, 1.0], "cutpoints must increase"),
        (OrdinalProbit, "cutpoints", 1.0, "cutpoints must be a vector"),
    ],
)
def test_illegal_parameters_are_refused(
    distribution: Any, name: str, value: Any, message: str
) -> None:
    others = {"cutpoints": [0.0, 1.0]} if distribution is OrdinalProbit else {}
    with pytest.raises(ValueError, match=message):
        distribution.dist(f=0.0, **(others | {name: value}))
    if np.ndim(value) or name != "cutpoints":
        variable = pt.tensor(shape=(None,) * np.ndim(value), dtype="float64")
        logp = pm.logp(distribution.dist(f=0.0, **(others | {name: variable})), 1)
        with pytest.raises(ParameterValueError, match=name):
            logp.eval({variable: np.asarray(value)})


# Several latent variables an observation


F = np.array([[0.3, -1.0, 900.0], [1.2, 0.4, 0.0], [-0.5, 0.1, -900.0]])


@pytest.mark.slow
@pytest.mark.parametrize("f", [F, [pt.as_tensor(row) for row in F]], ids=["array", "list"])
def test_classes_have_their_probabilities(f):
    for y in itertools.product(range(3), repeat=3):
        expected = log_softmax(F, axis=0)[list(y), range(3)]
        np.testing.assert_allclose(pm.logp(lgm.Softmax.dist(f=f), y).eval(), expected, atol=1e-12)
    assert (pm.logp(lgm.Softmax.dist(f=f), [3, -1, 0]).eval()[:2] == -np.inf).all()


def test_the_slope_of_a_class_adds_up_to_nothing():
    f = pt.matrix("f")
    total = pm.logp(lgm.Softmax.dist(f=f), [2, 0, 2]).sum()
    slope = pt.grad(total, f).eval({f: F})
    expected = np.eye(3)[[2, 0, 2]].T - softmax(F, axis=0)
    np.testing.assert_allclose(slope, expected, atol=1e-12)


def test_draws_of_classes():
    f = np.repeat(F[:, :1], 20_000, axis=1)
    counts = np.bincount(pm.draw(lgm.Softmax.dist(f=f), random_seed=3), minlength=3)
    assert stats.chisquare(counts, 20_000 * softmax(F[:, 0])).pvalue > 1e-3


def test_missing_classes_start_at_the_most_probable_class():
    for likelihood in (lgm.Softmax, lgm.likelihoods.RobustMax):
        with pm.Model() as model, pytest.warns(ImputationWarning):
            likelihood("y", f=F, observed=[np.nan, 1, np.nan])
        np.testing.assert_array_equal(model.initial_point()["y_unobserved"], [1, 0])


def of_each(cov):
    """A process a class, the classes apart by their means."""
    means = [pm.gp.mean.Constant(c) for c in (1.0, 0.0, -1.5)]
    gps = [pm.gp.Latent(mean_func=mean, cov_func=cov) for mean in means]
    return [gp.prior(f"f{c}", POINTS, reparameterize=False) for c, gp in enumerate(gps)]


def of_outputs(cov, **kwargs):
    return pm.gp.Latent(cov_func=cov).prior("f", POINTS, n_outputs=3, **kwargs)


POINTS = np.array([[0.0], [0.4], [2.0]])

DENSE = {
    "list": of_each,
    "stack": lambda cov: pm.math.stack(of_each(cov)),
    "outputs": lambda cov: of_outputs(cov, reparameterize=False),
    "whitened outputs": of_outputs,
}


@pytest.mark.slow
@pytest.mark.parametrize("form", DENSE)
@pytest.mark.filterwarnings("ignore:Detected variables likely created by GP")
def test_classes_of_processes_have_dims_and_predictions(form):
    """Labels drawn from the prior and from a posterior have the probabilities of their own f."""
    with pm.Model(coords={"place": list("uvw")}) as model:
        f = DENSE[form](2.0 * pm.gp.cov.Matern32(1, ls=pm.LogNormal("ls")))
        pm.Deterministic("eta", pm.math.stack(f) if form == "list" else f)
        lgm.Softmax("y", f=f, observed=pm.Data("seen", [0, 2, 1], dims="place"), dims="place")
        prior = pm.sample_prior_predictive(draws=400, random_seed=1)
        fit = xr.DataTree.from_dict(
            {"posterior": prior["prior"].to_dataset().isel(draw=slice(0, 300))}
        )
        pm.compute_log_likelihood(fit, progressbar=False)
        predicted = pm.sample_posterior_predictive(fit, progressbar=False, random_seed=2)
    assert model.named_vars_to_dims["y"] == ("place",)
    eta = prior["prior"]["eta"].values[0]
    draws = prior["prior_predictive"]["y"], predicted["posterior_predictive"]["y"]
    for y, p in zip(draws, (softmax(eta, axis=1), softmax(eta[:300], axis=1)), strict=True):
        assert y.dims == ("chain", "draw", "place")
        assert y["place"].values.tolist() == list("uvw")
        drawn = np.eye(3)[y.values[0]].transpose(0, 2, 1)
        # Of another f their residuals would go against p.
        for weights in (1.0, p - p.mean(axis=0)):
            variance = (weights**2 * p * (1.0 - p)).sum(axis=0)
            z = (weights * (drawn - p)).sum(axis=0) / np.sqrt(variance)
            assert np.abs(z).max() < 4.5
    terms = fit["log_likelihood"]["y"]
    assert terms.dims == ("chain", "draw", "place")
    expected = log_softmax(eta[:300], axis=1)[:, [0, 2, 1], range(3)]
    np.testing.assert_allclose(terms.values[0], expected, atol=1e-10)
