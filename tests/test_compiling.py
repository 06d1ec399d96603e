"""What is written otherwise so that it compiles sooner is the same function."""

import os
import pickle
import re
import subprocess
import sys
import warnings

from pathlib import Path

import numba
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

from models import QUICK, build
from pytensor.compile.mode import Mode
from pytensor.compile.ops import view_op
from pytensor.graph.basic import Constant
from pytensor.raise_op import Assert
from pytensor.scalar.basic import Exp, Log, Log1p
from pytensor.scalar.math import Erfcx, Log1mexp, Sigmoid, Softplus
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky
from pytensor.tensor.linalg.inverse import MatrixInverse
from pytensor.tensor.math import Sum
from pytensor.tensor.rewriting.scalarize import ScalarizedElemwise
from pytensor.tensor.special import LogSoftmax, Softmax, log_softmax, softmax
from scipy import special
from scipy.special import erfcx

import pymc_lgm as lgm

from pymc_lgm.compile.graphs.functions import ONCE, called_once, compiled, with_address
from pymc_lgm.compile.graphs.products import Product, times
from pymc_lgm.compile.graphs.rewrites import Elementary, _multiplied
from pymc_lgm.compile.graphs.smooth import SmoothFunction, bounded_exp, log_expit
from pymc_lgm.compile.loops import blas, elementary
from pymc_lgm.compile.loops.callbacks import LogDensity, call
from pymc_lgm.likelihoods.normal import log_ndtr
from pymc_lgm.model.allowed import in_rows

P = 5


@pytest.mark.slow
def test_the_logarithm_of_a_rate_is_its_linear_predictor():
    """With an exposure, where a constant has no logarithm, and where a rate is no double."""
    x, exposed = pt.matrix("x", shape=(None, 3)), np.array([2.0, 0.5, 30.0])
    some = np.array([2.0, 0.0, 1.0])
    graphs = [pt.log(exposed * pt.exp(x)), pt.log(some * pt.exp(x)), pt.log(exposed * x)]
    rows = np.array([[0.3, 1.0, 2.0], [5.0, 0.1, 700.0]])
    function = compiled([x], graphs, {})
    with np.errstate(divide="ignore"):
        rates = exposed * np.exp(rows), some * np.exp(rows), exposed * rows
        for seen, rate in zip(function(rows), rates, strict=True):
            np.testing.assert_allclose(seen, np.log(rate), rtol=1e-14)
    far = np.array([[-900.0, 900.0, 0.0]])
    np.testing.assert_allclose(function(far)[0], far + np.log(exposed), rtol=1e-14)


@pytest.mark.slow
@pytest.mark.parametrize("classes", [1, 3, 20])
def test_a_softmax_is_written_as_loops(classes):
    x = pt.matrix("x", shape=(None, classes))
    function = compiled([x], [softmax(x, axis=-1), log_softmax(x, axis=-1)], {})
    ops = {type(node.op) for node in function.maker.fgraph.apply_nodes}
    assert not ops & {Softmax, LogSoftmax}
    scales = np.array([[1.0], [10.0], [300.0], [0.0]])
    values = scales * np.random.default_rng(2).standard_normal((4, classes))
    weights = np.exp(values - values.max(axis=1, keepdims=True))
    expected = weights / weights.sum(axis=1, keepdims=True)
    got, logs = function(values)
    np.testing.assert_allclose(got, expected, rtol=1e-13)
    finite = expected > 0.0
    np.testing.assert_allclose(logs[finite], np.log(expected[finite]), rtol=1e-12, atol=1e-14)


@pytest.mark.slow  # one function with six loops to compile
def test_products_and_sums_and_fills_are_those_of_numpy():
    """What stands in for PyTensor's own, whose loops take Numba up to seventeen seconds each."""
    x, y = pt.matrix("x"), pt.matrix("y")
    outputs = [
        pt.dot(x, y.T),
        pt.dot(x[::-1, ::2], y[:, ::2].T),
        pt.all(x > 0.0, axis=1),
        pt.sum(x[::-1], axis=0),
        pt.max(x, axis=(0, 1)),
        pt.alloc(x[0, 0] * 2.0, 3),
    ]
    function = compiled([x, y], outputs, {})
    ops = [node.op for node in function.maker.fgraph.apply_nodes]
    assert sum(type(op) is Product for op in ops) == 2
    single = pt.dot(x.astype("float32"), y.T.astype("float32"))
    assert _multiplied(function.maker.fgraph, single.owner) is None
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((3, 4)), rng.standard_normal((2, 4))
    a[1] = np.abs(a[1])
    expected = [
        a @ b.T,
        a[::-1, ::2] @ b[:, ::2].T,
        (a > 0.0).all(axis=1),
        a.sum(axis=0),
        a.max(),
        np.full(3, 2.0 * a[0, 0]),
    ]
    got = pickle.loads(pickle.dumps(function))(a, b)
    for ours, numpys in zip(got, expected, strict=True):
        np.testing.assert_allclose(ours, numpys, rtol=1e-14)


@pytest.mark.slow
def test_loops_over_a_covariance_are_vectorized():
    n = 40
    M, x = pt.matrix("M", shape=(n, n)), pt.vector("x", shape=(n,))
    weighed = M * pt.exp(-pt.sqr(x[:, None] - x))
    slopes = M.T * pt.exp(x[0] - pt.sqr(x[:, None] - x))
    outputs = [weighed.sum(), weighed.sum(axis=0), weighed.sum(axis=1), slopes, slopes @ M]
    function = afresh([M, x], outputs)
    rng = np.random.default_rng(5)
    a, b = rng.standard_normal((n, n)), rng.standard_normal(n)
    squares = (b[:, None] - b) ** 2
    expected = a * np.exp(-squares)
    of_slopes = a.T * np.exp(b[0] - squares)
    sums = [expected.sum(), expected.sum(axis=0), expected.sum(axis=1)]
    got = function(a, b)
    for ours, numpys in zip(got, [*sums, of_slopes, of_slopes @ a], strict=True):
        np.testing.assert_allclose(ours, numpys, rtol=1e-13)
    assert is_vectorized(function.vm.jit_fn)


@pytest.mark.parametrize("several", [False, True])
def test_what_reads_no_input_is_computed_once(several):
    theta = pt.vector("theta", shape=(P,))
    zeros = pt.zeros_like(theta) + 1.0
    function = compiled([theta], [zeros, pt.constant(3.0)] if several else zeros, {})
    assert not hasattr(function, "maker")
    copy = pickle.loads(pickle.dumps(function))
    for each in (function, function, copy):
        value = each(np.ones(P))
        if several:
            value, three = value
            assert three == 3.0
        np.testing.assert_array_equal(value, np.ones(P))
        value[:] = 7.0  # a new array each time


def test_pymc_compiles_a_product_of_this_package():
    """As in the function that records a draw, which PyTensor's own linker compiles."""
    A, x = pt.matrix("A"), pt.vector("x")
    with pytensor.config.change_flags(numba__cache=True):
        function = pytensor.function([A, x], times(A, x), mode="NUMBA")
    np.testing.assert_allclose(function(np.eye(2) * 3.0, np.ones(2)), 3.0)


def test_nothing_inside_of_an_operation_is_compiled_in_c():
    """Python's linker compiles what is inside in C, as 40 seconds of a draw of correlations."""
    asked = []

    class Linker(type(ONCE.linker)):
        def make_thunk(self, *args, **kwargs):
            asked.append(pytensor.config.cxx)
            return super().make_thunk(*args, **kwargs)

    x = pt.vector("x")
    with pytensor.config.change_flags(cxx="g++"):
        mode = Mode(Linker(), "fast_compile")
        np.testing.assert_allclose(called_once([x], x + 1.0, mode)(np.zeros(2)), 1.0)
        assert pytensor.config.cxx == "g++"
    assert set(asked) == {""}


def test_results_that_read_no_input_are_not_compiled_with_the_others():
    theta = pt.vector("theta", shape=(P,))
    function = compiled([theta], [pt.ones(2), 2.0 * theta, pt.zeros(3)], {"mode": "FAST_COMPILE"})
    assert len(function.function.maker.fgraph.outputs) == 1
    for each in (function, function, pickle.loads(pickle.dumps(function))):
        ones, twice, zeros = each(np.arange(float(P)))
        np.testing.assert_array_equal(twice, 2.0 * np.arange(P))
        np.testing.assert_array_equal(ones, np.ones(2))
        np.testing.assert_array_equal(zeros, np.zeros(3))
        ones[:] = 7.0  # a new array each time


def test_no_name_of_many_rows_is_compiled():
    x, rows = pt.vector("x", shape=(P,)), pt.matrix("rows", shape=(None, P))
    graph = in_rows(view_op(x * np.arange(float(P)))[[1, 3]], x, rows)
    nodes = compiled([rows], graph, {}).maker.fgraph.apply_nodes
    assert not [node for node in nodes if isinstance(node.op, Blockwise)]


@pytest.mark.slow
@pytest.mark.parametrize("n", [300, 400])
def test_a_jitter_is_no_large_constant(n):
    """Reading n × n zeros from memory would take as long as the rest."""
    x, eye = pt.matrix("x", shape=(n, n)), pt.constant(np.eye(n))
    rows = np.random.default_rng(0).normal(size=(n, n))
    function = compiled([x], pt.exp(x) + 1e-6 * eye + 2.0 * eye, {})
    np.testing.assert_allclose(function(rows), np.exp(rows) + 2.000001 * np.eye(n), rtol=1e-12)
    graph = function.maker.fgraph
    constants = [each.data for each in graph.variables if isinstance(each, Constant)]
    assert max(np.asarray(data).nbytes for data in constants) < 10**6


def density_at(density, theta):
    out = np.empty(1 + theta.size)
    call(density.address, theta, out)
    density.check()
    return out


@pytest.mark.slow
def test_compiled_loops_call_the_prior_compiled_or_not():
    """What another step method owns may change, so a prior that reads it is left to Python."""
    theta = np.array([0.3, -0.2, 0.5])
    alone = build(lgm.PseudoMarginal, "log_gaussian_cox", compiled=True).lgm
    with pm.Model() as model:
        scale, length = pm.HalfNormal("scale", 1), pm.HalfNormal("length", 1)
        mean = pm.Normal("mean", 0, scale)
        m, k = pm.gp.mean.Constant(mean), pm.gp.cov.ExpQuad(1, ls=length)
        gp = pm.gp.Latent(mean_func=m, cov_func=k)
        f = gp.prior("f", np.arange(3.0)[:, None], reparameterize=False)
        pm.Poisson("y", pm.math.exp(f), observed=[1, 0, 2])
    other = lgm.model.LatentGaussianModel.from_pymc(model, [f], [mean, length])
    for read, is_compiled in ((alone, True), (other, False)):
        density, at = read.prior_density, theta[: read.p]
        assert (density.compiled is not None) == is_compiled
        expected = [read.log_prior(at), *read.log_prior_gradient(at)]
        copy = pickle.loads(pickle.dumps(density))
        for each in (density, copy):
            np.testing.assert_allclose(density_at(each, at), expected, rtol=1e-12)
    before = density_at(other.prior_density, theta[:2])
    other.read(model.initial_point() | {"scale_log__": np.array(1.0)})
    assert (density_at(other.prior_density, theta[:2]) != before).any()


def test_what_python_raises_in_a_compiled_loop_is_raised_after_it():
    def broken(theta):
        raise OverflowError(f"at {theta[0]}")

    density = LogDensity(broken, np.zeros_like, 1)
    out = np.zeros(2)
    call(density.address, np.array([2.0]), out)
    assert np.isnan(out).all()
    with pytest.raises(OverflowError, match=r"at 2\.0"):
        density.check()
    density.check()


@pytest.mark.slow
def test_what_a_compiled_prior_raises_is_no_number(monkeypatch, caplog):
    theta = pt.vector("theta", shape=(2,))
    checked = Assert("negative")(theta[0], theta[0] > 0.0)
    function = compiled([theta], [checked**2, pt.grad(checked**2, theta)], {})
    assert not caplog.records  # every rewrite knows what to do with a check
    code, said = with_address(function, 2), []
    monkeypatch.setattr(sys, "unraisablehook", said.append)
    for at, expected in ((3.0, [9.0, 6.0, 0.0]), (-3.0, [np.nan] * 3)):
        out = np.zeros(3)
        call(code.address, np.array([at, 1.0]), out)
        np.testing.assert_array_equal(out, expected)


UNCOMPILED = {
    # Chains take Python minutes, as do emulators of many visits, and it raises where compiled
    # arithmetic has no number.
    "loops": (
        "not (exact or default or unbiased or invariant or mutant or no_error or chain "
        "or long_series or not_seen or the_climb or many_visits or far_below)",
        [f"test_{name}.py" for name in ("copula", "sparse", "emulator", "series", "priors")],
    ),
    # Of the samplers whose draws are made of such loops; with slices it would be a minute more.
    "chains": ("invariant and PseudoMarginal and not slice", ["test_joint.py"]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", UNCOMPILED)
def test_all_runs_uncompiled_too(name):
    """Tests of functions that Numba compiles, with Python in its place: they are one code."""
    chosen, files = UNCOMPILED[name]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow"]
    command += ["-W", "ignore::RuntimeWarning", "-k", chosen, *files]
    result = subprocess.run(
        command,
        cwd=Path(__file__).parent,
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-2000:]


FAR = [np.nan, np.inf, -np.inf, 0.0, -0.0, 5e-324, -1e-310, 1e-300, 1e300, -1e300, 709.79, -745.2]
RNG = np.random.default_rng(4)
SIGNED = RNG.choice([-1.0, 1.0], 4000)

# Where each is looked at, what it shall be in a longer double, and by how many ulps it may differ.
KNOWN = {
    "exp": (RNG.uniform(-700.0, 709.0, 4000), np.exp, 2.0),
    "expm1": (SIGNED * 10.0 ** RNG.uniform(-18.0, 2.8, 4000), np.expm1, 5.0),
    "log": (10.0 ** RNG.uniform(-323.0, 308.0, 4000), np.log, 2.0),
    "log_near_one": (1.0 + SIGNED * 10.0 ** RNG.uniform(-16.0, -0.1, 4000), np.log, 2.0),
    "log1p": (10.0 ** RNG.uniform(-300.0, 308.0, 4000), np.log1p, 2.0),
    "log1p_near_zero": (SIGNED * 10.0 ** RNG.uniform(-18.0, -1e-3, 4000), np.log1p, 2.0),
    "log1mexp": (
        -(10.0 ** RNG.uniform(-300.0, 2.8, 4000)),
        lambda x: np.where(x < -0.7, np.log1p(-np.exp(x)), np.log(-np.expm1(x))),
        3.0,
    ),
    "softplus": (
        SIGNED * 10.0 ** RNG.uniform(-18.0, 2.8, 4000),
        lambda x: np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x))),
        2.0,
    ),
    # SciPy's has no longer double, and is as far off itself.
    "erfcx": (10.0 ** RNG.uniform(-18.0, 300.0, 4000), erfcx, 9.0),
    "erfcx_near_zero": (RNG.uniform(-3.0, 10.0, 4000), erfcx, 9.0),
}


def in_a_loop(function):
    @numba.njit(error_model="numpy")
    def loop(x, out):
        for i in range(x.size):
            out[i] = function(x[i])

    return loop


def has_vectors(loop):
    loop(np.ones(3), np.ones(3))
    return is_vectorized(loop)


def afresh(inputs, outputs):
    """A function that Numba compiles now, since it does not show what it has found on disk."""
    with pytensor.config.change_flags(numba__cache=False):
        return compiled(inputs, outputs, {})


def is_vectorized(function):
    """Whether compiled code divides, or multiplies, several doubles at once."""
    (code,) = function.inspect_llvm().values()
    return re.search(r"= f(mul|div) [^\n]*<\d+ x double>", code) is not None


@pytest.mark.parametrize("name", KNOWN)
def test_elementary_functions_are_good_to_an_ulp_or_two(name):
    at, known, ulps = KNOWN[name]
    values, far = np.empty_like(at), np.empty(len(FAR))
    loop = in_a_loop(getattr(elementary, name.split("_")[0]))
    loop(at, values)
    loop(np.array(FAR), far)
    with np.errstate(all="ignore"):
        expected = known(at if known is erfcx else at.astype(np.longdouble))
        beyond = known(np.array(FAR))
    usual = np.abs(expected) > 1e-306
    error = np.abs(values - expected) / np.spacing(np.abs(expected.astype(float)))
    assert error[usual].max() < ulps
    # What is no normal number may be taken for zero, and its logarithm has an imaginary part.
    np.testing.assert_allclose(far, beyond, rtol=1e-15, atol=3e-308)


@pytest.mark.parametrize(
    "sizes",
    [(3, 4, 5), (1, 4, 5), (3, 1, 5), (0, 4, 5), (3, 0, 5), (3, 4, 1), (0, 4, 1), (3, 0, 1)],
)
@pytest.mark.parametrize("orders", ["CC", "CF", "FC", "FF"])
def test_a_product_is_numpys_in_either_order(sizes, orders):
    rng, (n, inner, m) = np.random.default_rng(5), sizes
    A, B = rng.standard_normal((n, inner)), rng.standard_normal((inner, m))
    got = blas.product(np.asarray(A, order=orders[0]), np.asarray(B, order=orders[1]))
    np.testing.assert_allclose(got, A @ B, rtol=1e-14, atol=1e-15)


@pytest.mark.fast("exp")
@pytest.mark.parametrize("name", sorted({name.split("_")[0] for name in KNOWN}))
def test_elementary_functions_are_taken_of_several_numbers_at_once(name):
    assert has_vectors(in_a_loop(getattr(elementary, name)))


X = pt.matrix("x")
GRAPHS = {
    "exp": pt.exp(X),
    "logistic": pt.sigmoid(X),
    "log_logistic": log_expit(X) + 1.0,
    "softplus": 2.0 * pt.softplus(X),
    "probit": log_ndtr(X),
    "student": -3.0 * pt.log1p(X**2 / 5.0),
    "counts": bounded_exp(X) - pt.log(1.0 + X**2),
}
OTHERS = (Exp, Sigmoid, Softplus, Log, Log1p, Log1mexp, Erfcx, SmoothFunction)


@pytest.mark.fast("counts")
@pytest.mark.parametrize("name", GRAPHS)
def test_compiled_functions_are_made_of_elementary_ones(name):
    """And with what is around them they are in the loop itself, not called there."""
    graph = GRAPHS[name]
    rows = np.array([FAR, np.random.default_rng(4).normal(0.0, 30.0, len(FAR))])
    function = afresh([X], [graph])
    with np.errstate(all="ignore"):
        (expected,) = compiled([X], [graph], QUICK)(rows)
    np.testing.assert_allclose(function(rows)[0], expected, rtol=2e-14, atol=3e-308)
    (node,) = function.maker.fgraph.apply_nodes
    op = node.op.scalar_op
    inner = (
        {type(op)} if isinstance(op, Elementary) else {type(n.op) for n in op.fgraph.apply_nodes}
    )
    assert Elementary in inner
    assert not any(issubclass(each, OTHERS) for each in inner)
    assert is_vectorized(function.vm.jit_fn)


MANY_FAR = np.tile(FAR, 8)
"""A loop of a few elements is unrolled, and not vectorized."""
SEEN = np.arange(len(MANY_FAR)) % 3
OF_PYMC = {
    "bernoulli": lambda eta: pm.Bernoulli.dist(logit_p=eta),
    "binomial": lambda eta: pm.Binomial.dist(n=2, p=pm.math.sigmoid(eta)),
    "counts": lambda eta: pm.NegativeBinomial.dist(mu=pt.exp(eta), alpha=3.0),
}


@pytest.mark.fast("bernoulli")
@pytest.mark.parametrize("name", OF_PYMC)
def test_checks_of_parameters_are_in_the_loop(name):
    """They took four fifths of a binomial's time. An element that is not finite is one element."""
    eta = pt.vector("eta", shape=(len(MANY_FAR),))
    graph = in_rows(pm.logp(OF_PYMC[name](eta), SEEN), eta, X)
    rows = np.array([MANY_FAR, np.tile(np.random.default_rng(4).normal(0.0, 30.0, len(FAR)), 8)])
    function = afresh([X], graph)
    with np.errstate(all="ignore"):
        expected = compiled([X], graph, QUICK)(rows)
    # Without PyTensor's rewrites log(1 − p) has few digits if p is nearly 1, and may be −∞.
    known = np.isfinite(expected)
    np.testing.assert_allclose(function(rows)[known], expected[known], rtol=1e-6, atol=1e-7)
    np.testing.assert_array_equal(np.isneginf(expected[0, np.isnan(MANY_FAR)]), True)
    (node,) = function.maker.fgraph.apply_nodes
    inner = {type(each.op) for each in node.op.scalar_op.fgraph.apply_nodes}
    assert inner.isdisjoint({Exp, Sigmoid})
    assert is_vectorized(function.vm.jit_fn)


def test_a_number_is_no_input_of_its_own_in_a_loop():
    """PyTensor makes it one, and the loop would not be vectorized: three times as slow."""
    checked = pt.switch(pt.all(X < 1e3), pt.softplus(X), -np.inf)
    applied = compiled([X], checked, {}).maker.fgraph.apply_nodes
    assert not any(isinstance(node.op, ScalarizedElemwise) for node in applied)


@pytest.mark.slow
def test_single_precision_keeps_functions_of_its_own():
    x = pt.matrix("x", dtype="float32")
    function = compiled([x], [pt.exp(x), pt.softplus(x)], {})
    at = np.array([[-3.0, 0.5]], dtype="float32")
    np.testing.assert_allclose(function(at)[0], np.exp(at), rtol=1e-6)
    ops = {type(each.op.scalar_op) for each in function.maker.fgraph.apply_nodes}
    assert Elementary not in ops


def test_a_sum_along_an_axis_that_one_number_does_not_have():
    """NumPy refuses it, and the density of a `pymc.CAR` has one."""
    x = pt.scalar("x")
    for of, right in ((x, 3.0), (pt.log(pt.constant(np.e)), 1.0)):
        function = called_once([x], Sum(axis=(0,))(of))
        assert float(function(3.0)) == pytest.approx(right)


def test_what_reads_no_input_is_computed_when_a_function_is_made():
    """Chains of it, too, as from the matrix of a map to its edges."""
    x = pt.vector("x")
    i, j = pt.nonzero(pt.eq(2 * pt.tril(pt.as_tensor(np.eye(3, k=-1))), 2))
    function = called_once([x], ((x[i] - x[j]) ** 2).sum())
    for node in function.maker.fgraph.apply_nodes:
        assert not all(isinstance(each, Constant) for each in node.inputs), node
    assert function(np.array([1.0, 3.0, 4.0])) == 5.0


def test_the_shape_of_a_mean_needs_no_inverse_of_tau() -> None:
    """PyMC gives the mean of a `pymc.MvNormal` the shape of a row of the inverse."""
    with pm.Model() as model:
        pm.MvNormal("f", 0.5, tau=pm.HalfNormal("s") * np.eye(3))
        function = called_once(model.value_vars, model.logp())
    ops = {type(getattr(node.op, "core_op", node.op)) for node in function.maker.fgraph.apply_nodes}
    assert Cholesky in ops
    assert MatrixInverse not in ops
    point = model.initial_point()
    expected = model.compile_logp()(point)
    np.testing.assert_allclose(function(*point.values()), expected)


@pytest.mark.fast("1")
@pytest.mark.parametrize("n", [1, 2, 3])
def test_polygamma_functions_are_those_of_scipy_without_python(n):
    """The curvature of a beta density has them: PyTensor called Python for each, with a warning."""
    x = np.array([0.0, 1e-8, 0.3, 1.0, 7.5, 16.0, 300.0, 1e9, np.inf, np.nan])
    graph = pt.polygamma(n, X) + (pt.tri_gamma(X) if n == 1 else 0.0)
    function = afresh([X], [graph])
    expected = special.polygamma(n, x) * (1.0 + (n == 1))
    np.testing.assert_allclose(function(x[None])[0][0], expected, rtol=2e-15)


@pytest.mark.slow
def test_a_loop_of_many_arrays_is_no_warning():
    """PyTensor does not fuse it without C, which users can do nothing about."""
    x = [pt.vector(f"x{k}", shape=(3,)) for k in range(33)]
    total = sum(pt.exp(v) * (k + 1.0) for k, v in enumerate(x))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        function = compiled(x, total * total, {})
    assert not said
    np.testing.assert_allclose(function(*np.zeros((33, 3))), 561.0**2)
