"""Columns of A that have factors in theta: A(theta) = A' diag(s(theta))."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from scipy.stats import multivariate_normal

import pymc_lgm as lgm

from pymc_lgm.approximations.laplace import laplace
from pymc_lgm.gaussian import rows
from pymc_lgm.gaussian.sums import Layout, SumPrior
from pymc_lgm.model import predictor, scales
from pymc_lgm.model.forms.linear import LinearPredictor
from pymc_lgm.model.forms.sum import SumPredictor
from pymc_lgm.model.scales import scales_of
from pymc_lgm.state import AtTheta

pytestmark = pytest.mark.usefixtures("interpreted")

X, THETA = pt.vector("x", shape=(6,)), pt.vector("theta", shape=(4,))
A, B = X[:3], X[3:]
PARTS = [slice(0, 3), slice(3, 6)]
PHI = np.cos(np.outer(np.arange(5.0), np.arange(1, 4)))

FACTORS = {
    "a number times elements": (THETA[0] * A[[0, 2, 2]], [0, 2]),
    "a number times a product": (THETA[0] * (PHI @ A) + B[0], [0, 1, 2]),
    "a vector times elements": (PHI @ (A * pt.exp(THETA[:3])) + THETA[3], [0, 1, 2]),
    "parts of a vector": (
        PHI[:, :2] @ (A[:2] * THETA[:2]) + PHI[:, 0] * (A[2] * THETA[0]),
        [0, 1, 2],
    ),
    "one after another": (THETA[0] * (THETA[1] * A + THETA[2] * B), [0, 1, 2, 3, 4, 5]),
    "with zeros before": (THETA[0] * pt.concatenate([[0.0], A]), [0, 1, 2]),
    "a vector times sums": ((A + B) * THETA[:3], [0, 1, 2, 3, 4, 5]),
    "columns of a matrix": ((PHI * pt.exp(THETA[:3])) @ A, [0, 1, 2]),
    "columns of two matrices": (
        ((PHI[:, :2] * THETA[:2]) @ ((PHI[:2] * THETA[1:]) @ X.reshape((3, 2))).T).ravel(),
        [0, 1, 2, 3, 4, 5],
    ),
    "a number that has the length of x": (THETA[0] / A.shape[0] * A, [0, 1, 2]),
    "a mean of zero": (THETA[0] * (pt.zeros(3) + A), [0, 1, 2]),
}

REFUSED = {
    "read without it, too": THETA[0] * A[1:] + A[:2],
    "two numbers": THETA[0] * A + THETA[1] * A,
    "two elements of a vector": A[[0, 0, 1]] * THETA[:3],
    "a vector times different sums": (A + A[::-1]) * THETA[:3],
    "rows of a matrix": ((PHI[:3] * THETA[:3, None]) @ X.reshape((3, 2))).ravel(),
    "rows of a square one": (
        (PHI[:3] * THETA[:3, None]) @ (A[:, None] * np.arange(1.0, 4.0))
    ).ravel(),
    "a mean that is not zero": THETA[0] * (A + 1.0),
    "the matrix moves, too": pt.exp(THETA[1] * PHI) @ (THETA[0] * A),
    "a lag": THETA[0] * (A + THETA[1] * B) + B,
}


def found_in(eta):
    return scales_of(eta, X, PARTS, [THETA], {X: np.zeros(6), THETA: np.linspace(0.2, 0.9, 4)})


def error_of_scales(eta):
    """Largest difference of c + A' (s ∘ x) from the graph."""
    found = found_in(eta)
    rng = np.random.default_rng(1)
    x, theta = rng.standard_normal(6), rng.uniform(0.1, 1.0, 4)
    scaled, options = x.copy(), {"on_unused_input": "ignore"}
    scaled[found.scaled] *= found.factors.eval({THETA: theta})
    ours = found.output.eval({X: scaled, THETA: theta}, **options)
    return np.abs(ours - eta.eval({X: x, THETA: theta}, **options)).max()


@pytest.mark.parametrize("case", FACTORS)
def test_factors_are_left_out(case):
    eta, expected = FACTORS[case]
    assert found_in(eta).scaled.tolist() == expected
    assert error_of_scales(eta) < 1e-12


@pytest.mark.parametrize("case", REFUSED)
def test_other_factors_stay(case):
    assert found_in(REFUSED[case]).scaled.size == 0


def test_a_part_whose_columns_move_in_another_way_keeps_its_factor():
    found = found_in(THETA[0] * A + pt.exp(THETA[1] * PHI[:3]) @ (THETA[2] * B))
    assert found.scaled.tolist() == [0, 1, 2]


GROUP = np.arange(12) % 3
BASIS = np.cos(np.outer(np.arange(12.0), np.arange(9)) / 4)
Y = np.random.default_rng(3).standard_normal(12)


def basis_and_groups():
    """Basis functions as in an HSGP, with group effects, without centering and normal data."""
    with pm.Model() as model:
        length, s, noise = (pm.LogNormal(name, 0, 0.5) for name in ("length", "s", "noise"))
        beta, z = pm.Normal("beta", 0, 1, shape=9), pm.Normal("z", 0, 1, shape=3)
        spectrum = pm.math.exp(-length * np.arange(9) / 4)
        eta = pm.Data("basis", BASIS) @ (beta * spectrum) + s * z[GROUP]
        pm.Normal("y", eta, noise, observed=Y)
    return model


def read_as_sum(model, monkeypatch):
    monkeypatch.setattr("pymc_lgm.model.forms.sum._is_cheaper", lambda *sizes: True)
    read = lgm.read(model)
    assert isinstance(read.form, SumPredictor)
    return read


def error_of_evidence(monkeypatch):
    """How far log p(y | theta) is from that of a dense covariance."""
    read = read_as_sum(basis_and_groups(), monkeypatch)
    errors = []
    for theta in 0.4 * np.random.default_rng(4).standard_normal((3, 3)):
        at = AtTheta.of(read, theta)
        q = at.approximation(lambda likelihood, prior: laplace(likelihood, prior, tolerance=1e-9))
        values = {
            name.removesuffix("_log__"): np.exp(value)
            for name, value in zip(read.theta_names, theta, strict=True)
        }
        of_basis = BASIS * np.exp(-values["length"] * np.arange(9) / 4)
        same = GROUP[:, None] == GROUP
        K = of_basis @ of_basis.T + values["s"] ** 2 * same + values["noise"] ** 2 * np.eye(12)
        expected = multivariate_normal(np.zeros(12), K).logpdf(Y)
        errors.append(np.inf if q is None else q.log_evidence - expected)
    return np.abs(errors).max()


@pytest.mark.parametrize("full", [4, 20])
def test_the_evidence_of_normal_data(full, monkeypatch):
    """Data with one variance need AᵀA, which is known but for the factors."""
    known, whole = [], SumPrior._gram
    monkeypatch.setattr(rows, "FULL", full)
    monkeypatch.setattr(SumPrior, "_gram", lambda *args: known.append(whole(*args)) or known[-1])
    assert error_of_evidence(monkeypatch) < 1e-9
    assert known
    assert all(each is not None for each in known)


def test_a_predictor_without_centering_is_evaluated_once(monkeypatch):
    read = read_as_sum(basis_and_groups(), monkeypatch)
    once = read.form._at_seeds
    assert once
    first, second = (read.prior(np.full(3, at)) for at in (0.1, 0.2))
    assert first.numbers.A is second.numbers.A
    assert (first.A != second.A).any()


def test_a_factor_that_is_not_finite_is_named(monkeypatch):
    read = read_as_sum(basis_and_groups(), monkeypatch)
    theta = np.where(np.array(read.theta_names) == "s_log__", 800.0, 0.0)
    with np.errstate(over="ignore"):
        assert read.prior(theta) is None
        said = read.form.explain(read, read.prior, theta, "there")
    assert said.startswith("The linear predictor of 'beta + z' is inf at index 0")


def low_rank():
    """Fewer basis functions than observations; groups have as many scales as they are."""
    scales = pm.LogNormal("scales", 0, 0.5, shape=3)
    return basis_of() + (scales * pm.Normal("z", 0, 1, shape=3))[GROUP]


def basis_of():
    beta = pm.Normal("beta", 0, 1, shape=9)
    return BASIS @ (beta * pm.math.exp(-pm.LogNormal("length", 0, 0.5) * np.arange(9) / 4))


def process():
    """A process that is multiplied by its standard deviation, or here by minus that."""
    ls, s = pm.LogNormal("ls", 0, 0.5), pm.LogNormal("s", 0, 0.5)
    gp = pm.gp.Latent(cov_func=pm.gp.cov.Matern52(1, ls=ls))
    f = gp.prior("f", np.arange(12.0)[:, None] / 6, reparameterize=False)
    return -s * f + pm.Normal("b", 0.2, 1)


def process_and_groups():
    """The second group has no factor, and the last two of four have the same."""
    s, z = pm.LogNormal("t", 0, 0.5), pm.Normal("z", 0, 1, shape=4)
    return process() + pt.concatenate([z[:2] * pt.stack([s, 1.0]), s**2 * z[2:]])[np.arange(12) % 4]


DENSE = {each.__name__: each for each in (low_rank, process, process_and_groups)}


def read_dense(build):
    with pm.Model() as model:
        pm.Poisson("y", pm.math.exp(build()), observed=np.arange(12) % 3)
    read = lgm.read(model)
    assert isinstance(read.form, LinearPredictor)
    return read


@pytest.mark.parametrize("name", DENSE)
def test_dense_forms_have_the_factors(name):
    """`check` compares the covariance of f with A Q⁻¹ Aᵀ by the model's own graph."""
    read = read_dense(DENSE[name])
    assert all(block.columns is not None for block in read.form.predictor.blocks)
    assert any(block.factors is not None for block in read.form.predictor.blocks)
    assert max(read.check(draws=5).values()) < 1e-9


@pytest.mark.parametrize("power", [0.0, 400.0, 720.0])
def test_small_factors_leave_the_rank(power):
    """The squares of exp(-400), the factor of the last of the basis functions, are 0."""
    with pm.Model() as model:
        decay = pt.exp(pm.Normal("t", 0, 0.05) - power * np.arange(9) / 8)
        eta = BASIS @ (pm.Normal("z", 0, 1, shape=9) * decay)
        pm.Poisson("y", pm.math.exp(eta), observed=Y > 0)
    read = lgm.read(model)
    assert read.form.rank == 9
    assert max(read.check(draws=3).values()) < 1e-9


def test_factors_that_underflow_near_the_start_are_not_zero():
    """exp(-2000) is 0 at the start, but f has three more degrees of freedom for small u."""
    with pm.Model() as model:
        u = pm.HalfNormal("u", 1, initval=2.0)
        z, w = pm.Normal("z", 0, 1, shape=4), pm.Normal("w", 0, 1, shape=3)
        eta = z[np.arange(12) % 4] + (pt.exp(-1000 * u) * w)[GROUP]
        pm.Poisson("y", pm.math.exp(eta), observed=Y > 0)
    read = lgm.read(model)
    point = model.initial_point() | {"u_log__": np.log(1e-4), "w": np.array([1.0, -2.0, 3.0])}
    assert max(each.relative for each in read.audit.differences(point, moments=True)) < 1e-9


def factors_forgotten(monkeypatch):
    whole = predictor.Block

    def without_factors(*args):
        return whole(*args[:-1], None)

    monkeypatch.setattr(predictor, "Block", without_factors)
    return max(read_dense(low_rank).check(draws=3).values())


def readers_ignored(monkeypatch):
    monkeypatch.setattr(scales, "_is_only_reader", lambda *args: True)
    return error_of_scales(REFUSED["read without it, too"])


def pairs_ignored(monkeypatch):
    monkeypatch.setattr(scales, "_is_only_reader", lambda *args: True)
    return error_of_scales(REFUSED["two numbers"])


def constant_terms_ignored(monkeypatch):
    monkeypatch.setattr(scales, "_linear", lambda output, x, on_x: on_x)
    return error_of_scales(REFUSED["a mean that is not zero"])


def factors_of_one_side(monkeypatch):
    def one_side(layout, elements, scale):
        s = np.empty(layout.M)
        s[layout.pattern.back] = scale
        return s[layout.pattern.rows] * elements

    monkeypatch.setattr(Layout, "scaled_on_both_sides", one_side)
    return error_of_evidence(monkeypatch)


MUTANTS = {
    "an element that is read without its factor, too": readers_ignored,
    "two factors of one element": pairs_ignored,
    "a constant term that has a factor": constant_terms_ignored,
    "factors on one side of AᵀA": factors_of_one_side,
    "a dense covariance without factors": factors_forgotten,
}


@pytest.mark.mutant
@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_factor_is_noticed(name, monkeypatch, dies):
    dies(f"scales: {name}", MUTANTS[name](monkeypatch), above=1e-3)
