"""Theta of observations that are multivariate normal: nothing is held, nothing estimated."""

import numpy as np
import pymc as pm
import pytest

from models import QUICK
from toys import TOYS, Chain, invariance

import pymc_lgm as lgm

from pymc_lgm import samplers
from pymc_lgm.linalg import tally
from pymc_lgm.moves.theta.emulated import is_settled
from pymc_lgm.state import State
from pymc_lgm.targets.exact_marginal import ExactMarginalTarget
from pymc_lgm.targets.sufficient import SufficientTarget

pytestmark = pytest.mark.usefixtures("interpreted")

X = np.array([0.0, 0.3, 0.7, 1.1, 1.6, 2.4])[:, None]
Y = np.array([0.2, 0.5, 0.1, -0.6, -0.9, 0.4])


def regression(y=Y, more=lambda: None):
    with pm.Model() as model:
        length, sigma = pm.InverseGamma("length", 3, 2), pm.HalfNormal("sigma", 0.5)
        mean = pm.gp.mean.Constant(pm.Normal("mean", 0, 1))
        gp = pm.gp.Marginal(mean_func=mean, cov_func=pm.gp.cov.Matern32(1, ls=length))
        gp.marginal_likelihood("y", X, y=y, sigma=sigma)
        more()
    return model


def target_of(model, theta):
    ours = lgm.read(model, "y", compile_kwargs=QUICK)
    state = State.of(ours, theta, ours.f_of(theta, {}))
    return ours, ExactMarginalTarget.fix(np.random.default_rng(1), state)


@pytest.mark.slow
def test_the_target_is_the_models_density_and_the_slope_its_gradient(rng):
    model = regression()
    ours, target = target_of(model, np.zeros(3))
    assert repr(ours).startswith("LatentGaussianModel(latent=y (6), theta=[length_log__, sigma")
    logp, dlogp = model.compile_logp(**QUICK), model.compile_dlogp(**QUICK)
    for theta in rng.standard_normal((2, 3)):
        point = ours.point_of(theta)
        slope = target.slope(theta)
        assert target.evaluate(theta)[0] == pytest.approx(float(logp(point)), rel=1e-10)
        assert slope.log_density == pytest.approx(float(logp(point)), rel=1e-10)
        np.testing.assert_allclose(slope.gradient, dlogp(point), rtol=1e-8)


@pytest.mark.slow
def test_a_state_that_is_moved_to_keeps_its_slope(rng):
    _, target = target_of(regression(), np.zeros(3))
    theta = 0.1 * rng.standard_normal(3)
    slope = target.slope(theta)
    _, there = target.evaluate(theta)
    before = tally.cubic_ops
    again = ExactMarginalTarget.fix(rng, there).slope(there.theta)
    assert again is slope
    assert tally.cubic_ops == before


@pytest.mark.fast("emulator")
@pytest.mark.parametrize("move", ["emulator", "nuts"])
def test_it_leaves_the_joint_law_invariant(move):
    """Of f and theta, whatever else depends on f: tuned, three steps of several moves each."""
    nuts = samplers.NUTS(n_jumps=1)
    theta = samplers.Emulated(nuts, good=1.5) if move == "emulator" else nuts
    element = samplers.ExactMarginal(theta, True)
    result = invariance([element], TOYS["counts"](), replicates=250, tune=100)
    assert result.pvalue > 1e-3, result


def test_a_draw_makes_as_many_moves_as_the_emulator_is_worth(monkeypatch):
    """Of which the statistics are the means, the scale the last; in tuning it makes one."""
    element = samplers.ExactMarginal(samplers.Emulated(), False)
    chain = Chain.start((element,), TOYS["counts"](), np.random.default_rng(1), tune=0)
    learnt = element.start(chain.state, 50)._replace(share=0.1)
    assert learnt.rounds == 3
    steps = iter([2.0, 4.0, 9.0, 7.0])

    def run(self, rng, target, tuning, tune):
        each = next(steps)
        return target.state, tuning, {"theta_steps": each, "theta_scale": each}

    monkeypatch.setattr(samplers.Emulated, "run", run)
    for tune, mean, last in ((False, 5.0, 9.0), (True, 7.0, 7.0)):
        state, tuning, stats = element.run(chain.rng, chain.state, learnt, tune)
        assert (state, tuning) == (chain.state, learnt)
        assert stats == {"theta_steps": mean, "theta_scale": last}


def test_it_rests_in_tuning_once_the_emulator_has_nothing_to_learn():
    walk = samplers.Emulated(warmup=samplers.Metropolis(), n_jumps=0, n_trajectories=3)
    element = samplers.ExactMarginal(walk, True, rests=True)
    chain = Chain.start((element,), TOYS["counts"](), np.random.default_rng(1), tune=400)
    (learnt,) = chain.tunings
    assert is_settled(learnt)
    assert len(learnt.fit.history.rows) < 400
    before = chain.state
    assert chain.step(tune=True)["cubic_ops"] == 0
    assert chain.state is before
    assert all(chain.step()["cubic_ops"] > 0 for _ in range(5))


@pytest.mark.mutant
def test_a_density_without_its_determinant_is_noticed(dies):
    toy, right = TOYS["counts"](), SufficientTarget.log_density_at

    def without_determinant(at):
        return right(at) + 0.5 * np.linalg.slogdet(toy.cov(at.theta))[1]

    element = samplers.ExactMarginal(samplers.Metropolis(scale=0.5), False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SufficientTarget, "log_density_at", staticmethod(without_determinant))
        result = invariance([element], toy, replicates=500, steps=5)
    dies("exact marginal: without its determinant", result.pvalue, below=1e-6)


@pytest.mark.slow
def test_a_step_moves_theta_alone_and_sees_what_others_have_moved():
    with pm.Model() as model:
        y, k = pm.Data("data", Y), pm.Bernoulli("k", 0.5)
        length = pm.InverseGamma("length", 3, 2)
        mean = pm.gp.mean.Constant(2.0 * k)
        gp = pm.gp.Marginal(mean_func=mean, cov_func=pm.gp.cov.Matern32(1, ls=length))
        gp.marginal_likelihood("y", X, y=y, sigma=0.3)
        pm.Normal("later", length, 1.0)
        step = lgm.ExactMarginal(compile_kwargs=QUICK, rng=1)
        assert [v.name for v in step.vars] == ["length_log__", "later"]
        assert not step.elements[0].rests  # another step moves k
        point = model.initial_point()
        for _ in range(3):
            point, _ = step.step(point)
        assert set(point) == {"length_log__", "k", "later"}
        for k in (0, 1):
            after, _ = step.step(point | {"k": np.array(k)})
            state = step._state
            expected = model.compile_logp([model["y"], model["length"]], **QUICK)(after)
            assert state.prior.log_density(state.f) + state.log_prior == pytest.approx(expected)
        pm.set_data({"data": Y + 1.0})
        step.setup_chain(1, 10, 10)
        step.step(point)
        np.testing.assert_array_equal(step._state.f, Y + 1.0)


@pytest.mark.slow
def test_a_mean_that_is_no_number_is_a_counted_rejection():
    """And no theta that the emulator learns from."""
    with pm.Model() as model:
        slope = pm.Normal("slope", 0.5, 0.5)
        mean = pm.gp.mean.Constant(pm.math.sqrt(slope))
        gp = pm.gp.Marginal(mean_func=mean, cov_func=pm.gp.cov.Matern32(1, ls=1.0))
        gp.marginal_likelihood("y", X, y=Y, sigma=0.3)
        step = lgm.ExactMarginal(compile_kwargs=QUICK, rng=1)
    step.setup_chain(np.random.default_rng(1), 300, 100)
    point, lost = model.initial_point(), 0
    with np.errstate(invalid="ignore"):
        for k in range(400):
            if k == 300:
                step.stop_tuning()
            point, (stats,) = step.step(point)
            lost += stats["numerical_rejections"]
            assert point["slope"] > 0.0
    assert lost > 0


@pytest.mark.slow
def test_what_is_refused():
    with pm.Model():
        f = pm.MvNormal("f", np.zeros(2), np.eye(2) * pm.HalfNormal("s"))
        pm.Normal("y", f, 1.0, observed=[0.1, 0.2])
        with pytest.raises(ValueError, match=r"No vector .* is a pm.MvNormal.*PseudoMarginal\(\)"):
            lgm.ExactMarginal()
    with pm.Model():
        pm.Normal("y", pm.Normal("m"), 1.0, observed=0.1)
        with pytest.raises(ValueError, match=r"marginal_likelihood.*PseudoMarginal\(\)"):
            lgm.ExactMarginal()

    def again():
        pm.MvNormal("z", np.zeros(2), np.eye(2), observed=np.zeros(2))

    model = regression(more=again)
    with pytest.raises(ValueError, match="observes 2 multivariate normal vectors: y, z"):
        lgm.ExactMarginal(model=model)
    with pytest.raises(ValueError, match="move='hmc' is unknown"):
        lgm.ExactMarginal(model=regression(), move="hmc")
    with pytest.raises(ValueError, match="move='slice' has none"):
        lgm.ExactMarginal(model=regression(), move="slice", target_accept=0.3)
    with pm.Model():
        pm.MvNormal("y", pm.Bernoulli("k", 0.5) * np.ones(2), np.eye(2), observed=[0.1, 0.2])
        with pytest.raises(ValueError, match="was given none"):
            lgm.ExactMarginal()
    discrete = regression(more=lambda: pm.Poisson("k", 2.0))
    with pytest.raises(ValueError, match="cannot move 'k': it is discrete"):
        lgm.ExactMarginal([discrete["k"]], model=discrete)
