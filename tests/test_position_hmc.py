"""HMC with the metric at f itself: its equations, the way back, exactness, refusals and mutants."""

import math

import numpy as np
import pymc as pm
import pytest

from close import differences
from models import build, reading_once
from scipy.special import logsumexp, softmax
from test_joint import LEVEL
from test_latent_moves import (
    THETA,
    Counts,
    Noisy,
    Silent,
    assert_standard_normal,
    functions,
    rng_of,
    state_of,
)
from test_predictor import read
from test_sets import at as of_sets
from toys import TOYS, invariance

import pymc_lgm as lgm

from pymc_lgm.gaussian.sites import ClassBlocks, SiteBlocks
from pymc_lgm.linalg import tally
from pymc_lgm.model.functions import ModelFunctions
from pymc_lgm.papers import position_hmc as module
from pymc_lgm.papers.position_hmc import PositionMove, fixed_point, place, position_hmc, step
from pymc_lgm.state import AtTheta, State
from pymc_lgm.steps.options import refuse_no_metric
from pymc_lgm.testing import JointTest, joint_test


def logistic():
    return at_of(build(lgm.LatentHMC, "logistic").lgm)


def at_of(model):
    at = AtTheta.of(model, np.full(model.p, 0.1))
    assert at is not None
    return at


class Choices(Counts):
    """One of three classes, twice: f as it lies, of one dense covariance."""

    n, sets, y = 6, np.arange(6).reshape(2, 3), np.eye(3)[[0, 2]].ravel()
    x = np.linspace(0, 1, n)

    def likelihood_terms(self, f, theta):
        rows = f.reshape(2, 3)
        pi = np.exp(rows - logsumexp(rows, axis=1, keepdims=True))
        W = pi[:, :, None] * (np.eye(3) - pi[:, None, :])
        value = float(self.y @ np.log(pi).ravel())
        return value, self.y - pi.ravel(), ClassBlocks.nearest(self.sets, W), np.full(6, np.nan)

    def curvature_gradient(self, f, theta, M):
        """W (diag(M) − 2 M π)."""
        pi = np.exp(f.reshape(2, 3) - logsumexp(f.reshape(2, 3), axis=1, keepdims=True))
        inner = np.einsum("gcc->gc", M) - 2.0 * np.einsum("gcd,gd->gc", M, pi)
        return (pi * (inner - (pi * inner).sum(axis=1, keepdims=True))).ravel()


PLACES = {
    "counts": lambda: state_of(Counts()).at,
    "choices": lambda: state_of(Choices(), np.zeros(6)).at,
    "gaussian": lambda: state_of(Noisy()).at,
    "logistic": logistic,
    "classes": lambda: of_sets("classes"),
    "classes_with_kernels_of_their_own": lambda: of_sets("classes_with_kernels_of_their_own"),
}
every_place = pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n == "classes")) for n in PLACES]
)


def somewhere(name, seed=1):
    """A place, a momentum there, and how a step looks at others."""
    at, rng = PLACES[name](), rng_of(seed)
    here = place(at, rng.standard_normal(at.prior.rank))
    return here, here.draw(rng), lambda nu: place(at, nu)


# Hamilton's equations


@pytest.mark.fast("counts", "choices", "gaussian", "logistic")
@every_place
def test_the_energy_is_that_of_the_dense_formula(name):
    """In f and p = L⁻ᵀ π, up to ½ log|K|, which no f changes."""
    here, momentum, _ = somewhere(name)
    identity = np.eye(here.f.size)
    K, L = here.at.prior.covariance_times(identity), here.at.prior.multiply(identity)
    _, _, W, _ = here.at.likelihood(here.f)
    W = W.times(identity) + module.RIDGE * identity if isinstance(W, SiteBlocks) else np.diag(W)
    G, p, z = np.linalg.inv(K) + W, np.linalg.solve(L.T, momentum), here.f - here.at.prior.mean
    expected = -here.log_likelihood + 0.5 * z @ np.linalg.solve(K, z)
    expected += 0.5 * (np.linalg.slogdet(G)[1] + np.linalg.slogdet(K)[1])
    expected += 0.5 * p @ np.linalg.solve(G, p)
    assert here.energy(momentum) == pytest.approx(expected, rel=1e-6)


@pytest.mark.fast("counts", "choices", "gaussian", "logistic")
@every_place
def test_the_equations_are_the_derivatives_of_the_energy(name):
    here, momentum, look = somewhere(name)
    of_nu = differences(lambda nu: look(nu).energy(momentum), here.nu)
    of_momentum = differences(here.energy, momentum)
    np.testing.assert_allclose(here.slope(momentum), of_nu, atol=1e-6)
    np.testing.assert_allclose(here.velocity(momentum), of_momentum, atol=1e-6)


@pytest.mark.parametrize("name", ["counts", "choices"])
def test_momenta_have_the_covariance_of_the_metric(name):
    here, _, _ = somewhere(name)
    rng = rng_of(2)
    momenta = np.array([here.draw(rng) for _ in range(4000)])
    inverse = np.array([here.velocity(e) for e in np.eye(here.nu.size)])
    assert_standard_normal(momenta @ np.linalg.cholesky(0.5 * (inverse + inverse.T)))


@pytest.mark.slow
def test_of_a_softmax_the_slope_of_the_curvature_has_a_closed_form():
    at = of_sets("classes_with_kernels_of_their_own")
    f, M = rng_of(1).standard_normal(9), rng_of(2).standard_normal((3, 3, 3))
    M += M.swapaxes(1, 2)
    pi = softmax(f[at.model.sets], axis=1)
    inner = np.einsum("gcc->gc", M) - 2.0 * np.einsum("gcd,gd->gc", M, pi)
    expected = np.empty(9)
    expected[at.model.sets] = pi * (inner - (pi * inner).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(at.model.curvature_gradient(f, at.theta, M), expected, atol=1e-12)


# A step


@every_place
@pytest.mark.parametrize("step_size", [0.1, 0.5])
def test_a_step_comes_back(name, step_size):
    here, momentum, look = somewhere(name)
    there, end = step(here, momentum, step_size, look)
    assert np.abs(there.nu - here.nu).max() > 0.05 * step_size
    back, begin = step(there, -end, step_size, look)
    np.testing.assert_allclose(back.nu, here.nu, atol=1e-9)
    np.testing.assert_allclose(-begin, momentum, atol=1e-8)


def log_volume(step, here, momentum, look, step_size=0.5):
    """log |det| of the Jacobian of (ν, π) -> (ν', π')."""
    r = here.nu.size

    def mapped(x):
        there, end = step(look(x[:r]), x[r:], step_size, look)
        return np.concatenate([there.nu, end])

    jacobian = differences(mapped, np.concatenate([here.nu, momentum]))
    return np.linalg.slogdet(jacobian)[1]


@pytest.mark.fast("counts", "choices", "gaussian")
@every_place
def test_a_step_keeps_volumes(name):
    assert log_volume(step, *somewhere(name)) == pytest.approx(0.0, abs=1e-5)


@pytest.mark.parametrize("name", ["counts", "choices"])
def test_the_energy_error_falls_with_the_cube_of_the_step(name):
    here, momentum, look = somewhere(name)

    def error(step_size):
        there, end = step(here, momentum, step_size, look)
        return abs(there.energy(end) - here.energy(momentum))

    assert error(0.02) / error(0.01) == pytest.approx(8.0, rel=0.2)


def test_a_step_too_long_is_none():
    here, momentum, look = somewhere("counts")
    assert step(here, 50.0 * momentum, 3.0, look) is None


def test_a_step_that_would_not_come_back_is_none(monkeypatch):
    """The search from the other end takes another solution."""
    here, momentum, look = somewhere("counts")
    real, calls = module._implicit, []

    def implicit(*args):
        calls.append(args)
        middle, there = real(*args)
        return (middle, there) if len(calls) == 1 else (middle, place(there.at, there.nu + 1e-6))

    monkeypatch.setattr(module, "_implicit", implicit)
    assert step(here, momentum, 0.3, look) is None
    assert len(calls) == 2


def test_a_fixed_point_is_found_and_paid_for_less():
    A = np.diag([0.9, -0.5, 0.2, 0.1])
    calls = []

    def image(x):
        calls.append(x)
        return A @ x + 1.0, len(calls)

    x, last = fixed_point(image, np.zeros(4))
    np.testing.assert_allclose(x, 1.0 / (1.0 - A.diagonal()), rtol=1e-8)
    assert last == len(calls) <= 7
    assert fixed_point(lambda x: (x + 1.0, None), np.zeros(1)) is None
    assert fixed_point(lambda x: (x * np.nan, None), np.zeros(1)) is None
    assert fixed_point(lambda x: None, np.zeros(1)) is None
    assert module.MEMORY >= 1


# The kernel


def test_a_rejection_returns_the_state_and_is_counted():
    before, state = tally.numerical_rejections, state_of(Counts())
    moved, info = position_hmc(rng_of(1), state, step_size=30.0)
    assert moved is state
    assert info.latent_acceptance == 0.0
    assert tally.numerical_rejections == before + 1


def test_where_there_is_no_metric_nothing_moves():
    class Bent(Counts):
        def likelihood_terms(self, f, theta):
            value, g, W, third = super().likelihood_terms(f, theta)
            return value, g, W - 0.5, third

    state = state_of(Bent(), np.full(5, -2.0))
    assert position_hmc(rng_of(1), state, step_size=0.1)[0] is state
    assert place(state.at, np.zeros(5)) is not None


def test_what_is_stored_is_what_is_evaluated():
    rng, state = rng_of(8), state_of(Counts())
    for _ in range(10):
        state, info = position_hmc(rng, state, step_size=0.3, max_steps=3)
        assert state.log_likelihood == state.model.log_likelihood(state.f, THETA)
        assert info.latent_evaluations >= 1


def test_operations_are_one_an_evaluation_and_one_a_place_that_is_kept():
    here, momentum, look = somewhere("counts")
    evaluated = []
    _ = here.at_rest
    before = tally.cubic_ops
    step(here, momentum, 0.3, lambda nu: evaluated.append(nu) or look(nu))
    assert tally.cubic_ops - before == len(evaluated) + 1


def test_without_data_it_is_leapfrog_in_the_whitened_prior():
    here = place(state_of(Silent()).at, np.arange(5.0))
    there, end = step(here, np.ones(5), 0.1, lambda nu: place(here.at, nu))
    middle = np.ones(5) - 0.05 * here.nu
    np.testing.assert_allclose(there.nu, here.nu + 0.1 * middle, atol=1e-9)
    np.testing.assert_allclose(end, middle - 0.05 * there.nu, atol=1e-9)


@pytest.mark.slow
def test_fewer_degrees_of_freedom_than_elements():
    """K is singular: nothing divides by it."""
    at = at_of(read("basis_functions"))
    here = place(at, rng_of(1).standard_normal(at.prior.rank))
    momentum = here.draw(rng_of(2))
    assert here.nu.size < here.f.size
    of_nu = differences(lambda nu: place(at, nu).energy(momentum), here.nu)
    np.testing.assert_allclose(here.slope(momentum), of_nu, atol=1e-6)


@pytest.mark.slow
def test_leaves_the_posterior_of_choices_invariant():
    """Softmax: f from the prior, y given f, one step."""
    rng, model, before, after = rng_of(20), Choices(), [], []
    base = state_of(model, np.zeros(6))
    for _ in range(80):
        f = base.mean + base.prior.multiply(rng.standard_normal(6))
        rows = f.reshape(2, 3)
        chosen = (rows + rng.gumbel(size=rows.shape)).argmax(axis=1)
        model.y = np.eye(3)[chosen].ravel()
        state = State.of(model, THETA, f)
        before.append(functions(state))
        after.append(functions(position_hmc(rng, state, step_size=0.6, max_steps=3)[0]))
    columns = [dict(enumerate(np.array(rows).T)) for rows in (before, after)]
    assert JointTest.of_pairs(*columns).pvalue > 1e-4


@pytest.mark.fast("labels")
@pytest.mark.parametrize("toy", ["counts", "labels"])
def test_leaves_the_posterior_of_a_toy_invariant(toy):
    """With what tuning has learnt, theta held."""
    result = invariance([PositionMove()], TOYS[toy](), replicates=60, steps=2, tune=40)
    assert result.pvalue > LEVEL, result


def three_classes():
    """Three classes of two observations."""
    with pm.Model() as model:
        ls = pm.LogNormal("ls", 0.0, 0.4)
        gp = pm.gp.Latent(
            mean_func=pm.gp.mean.Constant(0.7), cov_func=1.7 * pm.gp.cov.Matern32(1, ls=ls)
        )
        f = gp.prior("f", np.array([[0.0], [0.6]]), n_outputs=3, reparameterize=False, jitter=1e-6)
        lgm.Softmax("y", f=f, observed=pm.Data("data", [0, 2]))
    return model


def labels():
    with pm.Model() as model:
        f = pm.MvNormal("f", mu=[0.7, -0.3], cov=[[2.0, 0.9], [0.9, 1.5]])
        lgm.Logistic("y", f=f, observed=pm.Data("data", [0, 1]))
    return model


SOFT = {"logistic": labels, "softmax": three_classes}


def softly(name, **options):
    model = SOFT[name]()
    with model:
        return model, lgm.papers.PositionHMC(model["f"], max_steps=3, step_size=0.5, **options)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["logistic", pytest.param("softmax", marks=pytest.mark.whole)])
def test_leaves_the_posterior_of_a_model_invariant(name):
    """After one step, and after two with what tuning has learnt."""
    with reading_once(compiled=True):
        model, ours = softly(name)
        for replicates, steps, tune in ((100, 1, 0), (60, 2, 40)):
            result = joint_test(
                ours, model, replicates=replicates, steps=steps, tune=tune, rng=rng_of(steps)
            )
            assert result.pvalue > 1e-4, result


# Refusals


@pytest.mark.slow
def test_a_likelihood_that_is_not_log_concave_is_refused():
    with pytest.raises(
        ValueError, match=r"not known to be .* in 'f'.*Write lgm.LatentHMC\(metric='curvature'\)"
    ):
        build(lgm.papers.PositionHMC, "student_t")
    with pytest.raises(ValueError, match="Write latent_move='hmc-curvature'"):
        build(lgm.papers.WhitenedMetropolis, "student_t", latent_move="hmc-position")


@pytest.mark.slow
def test_beside_importance_draws_it_is_refused_as_well():
    with pytest.raises(ValueError, match="Write latent_move='hmc-curvature'"):
        build(lgm.PseudoMarginal, "student_t", latent_move="hmc-position")


@pytest.mark.slow
def test_sets_without_a_metric_are_refused():
    with pytest.raises(ValueError, match=r"not known to be log-concave in 'f \+ g'.*Write nothing"):
        refuse_no_metric(read("mean_and_noise"), PositionMove(), "nothing")


def test_a_curvature_without_a_slope_is_refused(monkeypatch):
    monkeypatch.setattr(ModelFunctions, "has_third_derivative", False)
    with pytest.raises(ValueError, match="cannot be differentiated"):
        build(lgm.papers.PositionHMC, "logistic")


def test_a_step_takes_ten_steps_at_most():
    move = build(lgm.papers.PositionHMC, "logistic").move
    assert (move.max_steps, move.integrator) == (10, "leapfrog")


# Mutants


def forgets_the_determinant(patch):
    def at_rest(self):
        return self.nu - self.at.prior.multiply_transposed(self.gradient)

    patch.setattr(module.Place, "at_rest", property(at_rest))


def covariance_plus_square(patch):
    slope = module.Place.slope
    patch.setattr(
        module.Place, "slope", lambda self, momentum: 2.0 * self.at_rest - slope(self, momentum)
    )


def without_determinant(patch):
    energy = module.Place.energy

    def wrong(self, momentum):
        return energy(self, momentum) - 0.5 * self.posterior.log_determinant

    patch.setattr(module.Place, "energy", wrong)


def with_the_old_metric(patch):
    """The second equation, explicit: the velocity is that of the start of the step."""

    def wrong(here, momentum, step_size, look):
        half = 0.5 * step_size
        kicked = fixed_point(lambda middle: (momentum - half * here.slope(middle), None), momentum)
        middle = kicked[0]
        return middle, look(here.nu + step_size * here.velocity(middle))

    patch.setattr(module, "_implicit", wrong)


WRONG = {
    "forgets the determinant": forgets_the_determinant,
    "M = Sigma + v v'": covariance_plus_square,
    "no determinant in the energy": without_determinant,
    "the metric of the old place": with_the_old_metric,
}


@pytest.mark.mutant
@pytest.mark.parametrize("wrong", list(WRONG)[:3])
@pytest.mark.parametrize("name", ["counts", "choices"])
def test_a_wrong_slope_is_noticed(name, wrong, monkeypatch, dies):
    WRONG[wrong](monkeypatch)
    at = PLACES[name]()
    here = place(at, rng_of(1).standard_normal(at.prior.rank))
    momentum = here.draw(rng_of(2))
    of_nu = differences(lambda nu: place(at, nu).energy(momentum), here.nu)
    error = np.abs(here.slope(momentum) - of_nu).max()
    dies(f"position, {name}: {wrong}", error, above=1e-3)


@pytest.mark.mutant
@pytest.mark.parametrize("wrong", ["M = Sigma + v v'", "the metric of the old place"])
def test_a_wrong_step_changes_volumes(wrong, monkeypatch, dies):
    """The mutant takes every step, though it does not come back."""
    WRONG[wrong](monkeypatch)
    monkeypatch.setattr(module, "CHECK", math.inf)
    at, rng = PLACES["counts"](), rng_of(1)
    here = place(at, rng.standard_normal(5))
    momentum = here.draw(rng)
    error = abs(log_volume(step, here, momentum, lambda nu: place(at, nu)))
    dies(f"position, volume: {wrong}", error, above=1e-3)
