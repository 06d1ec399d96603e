"""The audit: what was read of a model against PyMC's own density, and inputs that were misread."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from models import QUICK
from pytensor.graph.replace import clone_replace

import pymc_lgm as lgm

from pymc_lgm.model import graphs, predictor, reading
from pymc_lgm.model.check import TOLERANCE, Audit, Difference
from pymc_lgm.model.columns import columns_move
from pymc_lgm.model.elements import distinct_elements
from pymc_lgm.model.read import LatentGaussianModel
from pymc_lgm.model.reads import Evaluation

pytestmark = pytest.mark.usefixtures("interpreted")


def threshold() -> pm.Model:
    """A dose that does nothing up to a threshold, which theta moves."""
    rng, groups = np.random.default_rng(0), np.repeat(np.arange(4), 6)
    dose = np.tile(np.arange(6.0), 4)
    with pm.Model() as model:
        s, thr = pm.HalfNormal("s"), pm.Uniform("thr", 0, 5)
        b = pm.Normal("b", 0, s, shape=4)
        hinge = pm.math.maximum(dose - thr, 0)
        pm.Poisson("y", pm.math.exp(b[groups] + 0.2 * hinge), observed=rng.poisson(2, 24))
    return model


def signed_scale() -> pm.Model:
    """A standard deviation that may be negative: PyMC's density is zero there."""
    rng = np.random.default_rng(0)
    with pm.Model() as model:
        s = pm.Normal("s", 0.5, 1)
        b = pm.Normal("b", 0, s + 0.1 * rng.uniform(size=5), shape=5)
        pm.Poisson("y", pm.math.exp(b), observed=rng.poisson(1, 5))
    return model


def scaled_effects() -> pm.Model:
    """Columns of A that theta moves, and some that it does not."""
    rng, x = np.random.default_rng(0), np.linspace(-1, 1, 12)
    with pm.Model() as model:
        s, a = pm.HalfNormal("s"), pm.Normal("a")
        z, slope = pm.Normal("z", shape=12), pm.Normal("slope")
        pm.Poisson("y", pm.math.exp(a + slope * x + s * z), observed=rng.poisson(1, 12))
    return model


def slope_after_a_threshold() -> pm.Model:
    """Columns of A that theta moves beyond a threshold, and not by a factor of each."""
    rng, days = np.random.default_rng(0), np.arange(12.0)
    with pm.Model() as model:
        rate, z, w = pm.HalfNormal("rate", 2.0), pm.Normal("z", shape=12), pm.Normal("w", shape=2)
        size = 1.0 + pt.maximum(rate - 2.5, 0.0) * days
        pm.Poisson("y", pm.math.exp(z + size * w[np.arange(12) % 2]), observed=rng.poisson(1, 12))
    return model


def since_a_change() -> pm.Model:
    """A term of the covariance that is zero where the model starts."""
    year = np.linspace(1950, 2020, 8)
    with pm.Model() as model:
        s, d, change = pm.HalfNormal("s"), pm.HalfNormal("d"), pm.Normal("change", 1985, 10)
        before = pt.lt(year, change) * 1.0
        distance = np.abs(year[:, None] - year) / 10
        K = s**2 * np.exp(-distance) + d**2 * pt.outer(before, before)
        f = pm.MvNormal("f", np.zeros(8), K)
        pm.Poisson("y", pm.math.exp(f), observed=np.arange(8))
    return model


@pytest.mark.fast("threshold", "scaled_effects")
@pytest.mark.parametrize("make", [threshold, signed_scale, scaled_effects, since_a_change])
def test_what_is_read_is_what_pymc_has(make: Any) -> None:
    found = lgm.read(make()).check(draws=20)
    assert len(found) >= 6
    assert max(found.values()) < TOLERANCE


def test_rows_with_other_covariates_are_not_one() -> None:
    model = lgm.read(threshold())
    assert model.n == 24


def test_a_negative_scale_has_no_prior() -> None:
    model = lgm.read(signed_scale())
    proper, improper = (model.prior(np.array([s])) for s in (0.5, -1.0))
    assert proper is not None
    assert proper.is_proper
    assert improper is None or not improper.is_proper


def test_the_audit_sees_a_scale_that_is_taken_for_a_factor_of_the_covariance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(graphs, "find_amplitudes", lambda cov, theta: np.array([2.0, 0.0, 0.0]))
    with since_a_change(), pytest.raises(ValueError, match="pymc_lgm has misread 'f'"):
        lgm.PseudoMarginal()


def test_an_unread_variable_whose_scale_may_be_negative_is_a_hyper_parameter() -> None:
    with pm.Model() as model:
        b, s = pm.Normal("b", 0.5, 1), pm.HalfNormal("s")
        pm.Normal("z", 0, b)
        f = pm.MvNormal("f", np.zeros(3), s**2 * np.eye(3))
        pm.Normal("y", f * b, 1.0, observed=[0.0, 1.0, 2.0])
    read = lgm.read(model)
    assert "z" in read.theta_names
    assert max(read.check(draws=20).values()) < TOLERANCE


def test_a_prior_whose_draws_are_outside_of_its_transform_is_compared_elsewhere() -> None:
    """Six independent normals are ordered in one draw of 720; in others no density is finite."""
    ordered = pm.distributions.transforms.ordered
    with pm.Model() as model:
        levels = pm.Normal("levels", 0, 1, shape=6, transform=ordered, initval=np.arange(6.0))
        v = pm.Normal("v", 0, 1, shape=3)
        pm.Normal("y", levels[[0, 2, 5]] + v, 1.0, observed=np.zeros(3))
    checked = lgm.read(model, theta=["levels"]).check(draws=2)
    assert any("levels" in name for name in checked)
    assert any(name.startswith("y") for name in checked)


@pytest.mark.slow
def test_a_cholesky_factor_that_is_written_as_a_covariance() -> None:
    """pm.LKJCorr was the correlation matrix once, and is its factor now."""
    with pm.Model() as model:
        L = pm.LKJCorr("L", n=2, eta=1)
        b = pm.MvNormal("b", np.zeros(2), cov=L, shape=(5, 2))
        pm.Poisson("y", pm.math.exp(b), observed=np.ones((5, 2), int))
    with pytest.raises(ValueError, match="covariance matrix of 'b' is not symmetric"):
        lgm.read(model).check(draws=2)


def test_elements_are_the_same_expression_or_not() -> None:
    x, theta = pt.vector("x", shape=(4,)), pt.vector("theta", shape=(2,))
    values = {x: np.zeros(4), theta: np.zeros(2)}
    g, X = np.array([0, 1, 1, 0]), np.array([[1.0, 2.0], [0.0, 1.0], [0.0, 1.0], [1.0, 3.0]])

    def index(output: Any) -> list[int]:
        return distinct_elements(Evaluation([output], values))[1].tolist()

    assert index(x[g] + pt.exp(theta[0])) == [0, 1, 1, 0]
    assert index(pt.constant(X) @ x[:2]) == [0, 1, 1, 2]
    assert index((pt.constant(X) * theta) @ x[:2]) == [0, 1, 1, 2]
    assert index(pt.maximum(X[:, 0] - theta[0], 0) * x[0]) == [0, 1, 1, 0]
    assert index(pt.concatenate([x[:2], theta[:1], x[:1]])) == [0, 1, 2, 0]
    assert index(pt.set_subtensor(x[1:3], theta[0])) == [0, 1, 1, 2]
    assert index(pt.cumsum(x[g])) == [0, 1, 2, 3]
    assert index(pt.stack([pt.sum(x[g]), pt.sum(x[g]), pt.sum(x[g[::-1]])])) == [0, 0, 0]
    # What is not known makes elements like no others.
    assert index(pt.linalg.cholesky(pt.eye(4) * pt.exp(theta[0])) @ x) == [0, 1, 2, 3]


def test_columns_that_theta_moves() -> None:
    x, theta = pt.vector("x", shape=(6,)), pt.vector("theta", shape=(2,))
    parts = [slice(0, 2), slice(2, 4), slice(4, 6)]
    eta = x[0:2] + theta * x[2:4] + theta**2 + pt.switch(theta > 0, x[4:6], 0.0)
    assert columns_move(eta, x, parts, [theta]) == [False, True, True]


def merged_by_a_look(at: Evaluation) -> Any:
    """Elements are one if they have the same value where one looks."""
    given = {v: pt.constant(np.asarray(value)) for v, value in at.inputs.items()}
    x, theta, *_ = given
    given[x], given[theta] = pt.constant(np.arange(1.0, 5.0)), pt.constant(np.array([0.0, 8.0]))
    seen = clone_replace(at.outputs[0], given, rebuild_strict=False).eval()
    _, first, index = np.unique(seen, return_index=True, return_inverse=True)
    return first, index


def largest(model: pm.Model) -> float:
    """The largest difference between what was read and PyMC, where there is no refusal."""
    read = lgm.read(model)
    points = read.audit.prior_points(0, 10)
    found = [d for point in points for d in read.audit.differences(point, moments=True)]
    return max(each.relative for each in found)


@pytest.mark.mutant
def test_rows_merged_by_a_look_are_noticed(monkeypatch: Any, dies: Any) -> None:
    monkeypatch.setattr(predictor, "distinct_elements", merged_by_a_look)
    dies("reading: rows merged by a look", largest(threshold()), above=TOLERANCE)


@pytest.mark.mutant
def test_columns_frozen_by_a_look_are_noticed(monkeypatch: Any, dies: Any) -> None:
    monkeypatch.setattr(predictor, "columns_move", lambda output, x, parts, _: [False] * len(parts))
    dies("reading: columns frozen by a look", largest(slope_after_a_threshold()), above=TOLERANCE)


def test_freedoms_lost_beyond_a_threshold_are_noticed(monkeypatch: Any) -> None:
    """By the audit, if the rule for it had not refused the model."""
    monkeypatch.setattr(predictor.Predictor, "_refuse_jumps", lambda *_: None)
    with pm.Model() as model:
        slope = pm.Normal("slope", 1.0, 1.0)
        b = pm.Normal("b", 0.0, 1.0, shape=2)
        eta = b[0] + pt.maximum(slope, 0.0) * b[1] * np.arange(3.0)
        pm.Poisson("y", pm.math.exp(eta), observed=[1, 0, 2])
    read = lgm.read(model, compile_kwargs=QUICK)
    (lost,) = read.audit.differences(read.start | {"slope": np.array(-1.0)}, moments=True)
    assert lost.what == "the number of degrees of freedom"
    assert (lost.read, lost.pymc) == (2, 1)


def test_what_rounds_to_an_impossible_datum_is_computed_again():
    """1 − p of a Bernoulli far out is 0 until PyTensor rewrites it: no difference, and no word."""
    x = np.array([-2.0, -1.0, 1.0, 2.0])
    with pm.Model() as model:
        s = pm.HalfNormal("s", 1.0)
        b = pm.Normal("b", 0.0, 100.0 * s)
        pm.Bernoulli("y", pm.math.sigmoid(b * x), observed=[1, 0, 1, 0])
    read = lgm.read(model, compile_kwargs=QUICK)
    assert max(read.check(draws=3).values()) < 1e-9
    assert read.audit._is_stable


@pytest.mark.parametrize("walk", [False, True])
def test_a_predictor_that_becomes_infinite_is_noticed(walk):
    """A rate of 0 has counts of 0, but no sampler of a Gaussian predictor visits such an onset."""
    days = np.arange(1.0, 5.0)
    with pm.Model() as model:
        onset, s = pm.Uniform("onset", -2, 3, initval=0.0), pm.HalfNormal("s")
        if walk:
            f = lgm.gmrf.RandomWalk("f", order=1, sigma=s, shape=4)
        else:
            f = pm.Normal("f", 0, s, shape=4)
        open_ = pm.math.maximum(days - onset, 0.0)
        pm.Poisson("y", pm.math.exp(f + pm.math.log(open_)), observed=[0, 0, 0, 2])
    with pytest.raises(ValueError, match=r"predictor of 'f' is infinite at.*must stand outside"):
        lgm.read(model).check(draws=20)


@pytest.mark.fast("ASIS")
@pytest.mark.parametrize("step", [lgm.PseudoMarginal, lgm.ASIS], ids=["PseudoMarginal", "ASIS"])
def test_a_chain_that_would_avoid_an_infinite_predictor_ends(step):
    """It is infinite in 1 of 40 draws of the prior: at none that is audited before sampling."""
    days = np.arange(1.0, 9.0)
    with pm.Model() as model:
        onset, s = pm.Uniform("onset", -39, 2, initval=-1.0), pm.HalfNormal("s", 0.2)
        f = pm.Normal("level") + lgm.gmrf.RandomWalk("f", order=1, sigma=s, shape=8)
        open_ = pm.math.maximum(days - onset, 0.0)
        pm.Poisson("y", pm.math.exp(f + pm.math.log(open_)), observed=[0, 0, 0, 0, 3, 5, 8, 11])
        one = step(compile_kwargs=QUICK)
    one.setup_chain(np.random.default_rng(1), tune=200, draws=0)

    def run(point):
        for _ in range(200):
            point, _ = one.step(point)

    with pytest.raises(ValueError, match="is infinite at"):
        run(model.initial_point())


def test_a_chain_is_compared_with_pymc_after_its_tuning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four draws of tuning, the first draw after it with the moments of f, and the last draw."""
    with pm.Model() as model:
        f = pm.Normal("f", 0.0, 1.0, shape=3)
        pm.Poisson("y", pm.math.exp(f), observed=[0, 1, 2])
        step = lgm.EllipticalSlice(f, compile_kwargs=QUICK)
    seen: list[tuple[int, bool, bool]] = []

    def compared(self: Audit, point: Any, *, moments: bool = False, is_draw: bool = False) -> None:
        seen.append((step._drawn, moments, is_draw))

    monkeypatch.setattr(Audit, "__call__", compared)
    step.setup_chain(np.random.default_rng(1), tune=20, draws=50)
    point = model.initial_point()
    for draw in range(70):
        if draw == 20:
            step.stop_tuning()
        point, _ = step.step(point)
    during = [(draw, False, False) for draw in (2, 7, 12, 17)]
    after = [(draw, draw == 20, True) for draw in (20, 29, 39, 49, 59, 69)]
    assert seen == during + after


def test_a_density_that_overflows_has_not_been_misread() -> None:
    """Draws of an explosive autoregression grow to 1e295, and PyMC's density has their squares."""
    with pm.Model() as model:
        rho, s = pm.Normal("rho", 0, 3, shape=1), pm.HalfNormal("s")
        f = pm.AR("f", rho=rho, sigma=s, init_dist=pm.Normal.dist(), steps=199)
        pm.Normal("y", f, 1.0, observed=np.zeros(200))
    audit = lgm.read(model).audit
    for growth, overflows in ((-3.0, False), (-30.0, True)):
        point = {
            "rho": np.array([growth]),
            "s_log__": np.array(0.0),
            "f": np.cumprod(np.full(200, growth)),
        }
        found = audit.differences(point, moments=True)
        assert all(np.isfinite(each.pymc) for each in found) != overflows
        audit(point, moments=True)


def test_an_impossible_point_need_not_have_a_density() -> None:
    """Both are 0 there. But where one is positive, and the other is not, the reading is wrong."""
    same, other = (Difference("y", "the density", read, -np.inf, 1.0) for read in (-1e17, -1e3))
    assert same.relative == 0.0
    assert other.relative == np.inf


def test_rounding_errors_of_a_density_are_not_a_misreading(monkeypatch: pytest.MonkeyPatch) -> None:
    """1 - sigmoid(x) has one digit at x = 36, which tiny changes of x do not show.

    At a draw whose density has no correct digit, the message says that it is lost in rounding.
    """
    with pm.Model() as model:
        b = pm.Normal("b", 0, pm.HalfCauchy("s", 5), shape=2)
        p = pm.math.sigmoid(b)
        pm.BetaBinomial("y", n=20, alpha=5 * p, beta=5 * (1 - p), observed=[3, 4])
        c = pm.Normal("c", 0, 5, shape=2)
        pm.DirichletMultinomial("z", n=8, a=pm.math.exp(c), observed=[3, 5])
    audit = lgm.read(model).audit
    start = {"s_log__": np.array(0.0), "b": np.zeros(2), "c": np.zeros(2)}
    one_digit, none = start | {"b": np.full(2, 36.0)}, start | {"c": np.array([40.0, 39.0])}
    differences, error = audit.differences, 0.0

    def rounded(point: Any, *, moments: bool) -> list[Difference]:
        """As on a processor that rounds otherwise."""
        found = differences(point, moments=moments)
        return [
            each._replace(read=each.read + error) if each.name == "y, z" else each for each in found
        ]

    monkeypatch.setattr(audit, "differences", rounded)
    audit(start)
    error = 0.3
    audit(one_digit, is_draw=True)
    with pytest.raises(ValueError, match="has misread 'y, z'"):
        audit(start)
    error = 30.0
    audit(none)
    with pytest.raises(ValueError, match="'y, z' is lost in rounding errors"):
        audit(none, is_draw=True)


def test_a_step_of_large_effects_stays_where_pymc_has_a_density() -> None:
    """A step of 5e4 standard deviations was a misreading: the sum of its effects is not zero."""
    with pm.Model() as model:
        a = pm.Normal("a", 4e4, 1e4)
        u = pm.ZeroSumNormal("u", sigma=3e4, shape=12)
        y = np.random.default_rng(1).normal(4e4, 3e3, 48)
        pm.Normal("y", a + u[np.arange(48) % 12], pm.HalfNormal("s", 3e3), observed=y)
    assert max(lgm.read(model, compile_kwargs=QUICK).check(draws=5).values()) < 1e-6


def test_a_covariance_beside_large_values_is_compared_to_their_rounding() -> None:
    """The steps of f are differences of numbers near 3e9. Without their size the error is 3e-7."""
    with pm.Model() as model:
        a, b = pm.Normal("a", 3e9, 1.0), pm.Normal("b", shape=3)
        eta = a + b[np.arange(12) % 3] - 3e9
        pm.Poisson("y", pm.math.exp(eta), observed=np.arange(12) % 3)
    found = lgm.read(model, compile_kwargs=QUICK).check(draws=3)
    assert max(value for key, value in found.items() if "covariance" in key) < 1e-8


def beside_a_vague_intercept(sd: float = 1e4) -> pm.Model:
    """A process and its intercept, whose variance is 10⁸ times as large."""
    x = np.linspace(0.0, 1.0, 12)[:, None]
    with pm.Model() as model:
        b = pm.Normal("b", 0.0, sd)
        gp = pm.gp.Latent(cov_func=pm.gp.cov.Matern32(1, 0.3))
        f = gp.prior("f", x, reparameterize=False, jitter=1e-6)
        pm.Poisson("y", pm.math.exp(b + f), observed=np.arange(12) % 3)
    return model


def effects_beside_a_vague_intercept() -> pm.Model:
    with pm.Model() as model:
        b, u = pm.Normal("b", 0.0, 1e4), pm.Normal("u", 0.0, 1.0, shape=3)
        pm.Poisson("y", pm.math.exp(b + u[np.arange(12) % 3]), observed=np.arange(12) % 3)
    return model


@pytest.mark.mutant
@pytest.mark.parametrize("as_sum", [False, True])
def test_a_small_variance_beside_a_large_one_is_compared(
    monkeypatch: Any, dies: Any, as_sum: bool
) -> None:
    """In the direction K w for a random w, eight digits of the curvature are the intercept's."""
    right = reading.gaussian

    def wrong(rv: Any, terms: Any) -> Any:
        latent = right(rv, terms)
        return replace(latent, variances=1.5 * latent.variances) if rv.name == "u" else latent

    monkeypatch.setattr(reading, "gaussian", wrong)
    model = effects_beside_a_vague_intercept()
    read = LatentGaussianModel.from_pymc(model, as_sum=as_sum)
    found = read.audit.differences(read.audit.prior_points(0, 1)[0], moments=True)
    seen = max(
        each.relative for each in found if "curvature" in each.what and "K w" not in each.what
    )
    dies(f"audit: a small variance{' in a sum' if as_sum else ''}", seen, above=TOLERANCE)


@pytest.mark.parametrize("sd", [10.0, 1e4, 1e5])
def test_a_covariance_without_digits_has_not_been_misread(sd: float) -> None:
    """At 1e5, the rounding error of an element of K is as large as the smallest eigenvalue."""
    audit = lgm.read(beside_a_vague_intercept(sd), compile_kwargs=QUICK).audit
    for point in audit.prior_points(0, 3):
        audit(point, moments=True)
