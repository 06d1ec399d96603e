"""Which Gaussians are hyper-parameters: what follows from the graph, not from a draw of it."""

from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from models import QUICK
from pymc.distributions.transforms import Chain, Transform, ZeroSumTransform

import pymc_lgm as lgm

from pymc_lgm.model import reading
from pymc_lgm.model.reads import MOST

pytestmark = pytest.mark.usefixtures("interpreted")

N = 30
GROUP, HALF = np.arange(N) % 5, np.arange(N) % 2


def spread_beyond_a_threshold() -> pm.Model:
    """A log standard deviation whose elements are all different, but 0 where the prior is."""
    with pm.Model() as model:
        b, c = pm.Normal("b", 0.0, 1.0, shape=5), pm.Normal("c", 0.0, 1.0, shape=2)
        t = pm.Normal("t", -3.0, 0.1)
        spread = c[HALF] * np.linspace(0.5, 1.5, N) * pt.gt(t, 0.0)
        pm.Normal("y", b[GROUP], pm.math.exp(spread), observed=np.sin(np.arange(N)))
    return model


def test_elements_that_are_equal_by_chance_are_not_one() -> None:
    ours = lgm.read(spread_beyond_a_threshold(), compile_kwargs=QUICK)
    assert list(ours.latents) == ["b", "c"]
    ours.check(draws=3)


@pytest.mark.mutant
def test_elements_that_are_equal_in_a_draw_are_noticed(monkeypatch: Any, dies: Any) -> None:
    def drawn(predictor: Any, _: Any) -> bool:
        _, counts = np.unique(pm.draw(predictor, random_seed=0), return_counts=True)
        return bool(counts.max() >= MOST)

    monkeypatch.setattr(reading, "_is_shared", drawn)
    ours = lgm.read(spread_beyond_a_threshold(), compile_kwargs=QUICK)
    dies("left: equal in a draw", float(list(ours.latents) != ["b", "c"]), above=0.5)


class Doubled(Transform):
    name = "doubled"

    def forward(self, value: Any, *inputs: Any) -> Any:
        return 2.0 * value

    def backward(self, value: Any, *inputs: Any) -> Any:
        return value / 2.0

    def log_jac_det(self, value: Any, *inputs: Any) -> Any:
        return -np.log(2.0) * pt.ones_like(value).sum(axis=-1)


@pytest.mark.parametrize("also", [True, False])
def test_a_composed_transform_of_effects_that_sum_to_zero_is_refused(also: bool) -> None:
    chain = Chain([Doubled(), ZeroSumTransform([-1])])
    with pm.Model() as model:
        z = pm.ZeroSumNormal("z", 1.0, shape=5, default_transform=chain)
        b = pm.Normal("b", 0.0, 1.0, shape=5) if also else 0.0
        pm.Poisson("y", pm.math.exp((z + b)[GROUP]), observed=GROUP)
    with pytest.raises(ValueError, match=r"'z' is Gaussian .* a transform other than PyMC's own"):
        lgm.read(model)


def test_a_flat_prior_has_no_draw_and_needs_none() -> None:
    with pm.Model() as model:
        b, c = pm.Normal("b", 0.0, 1.0, shape=5), pm.Normal("c", 0.0, 1.0, shape=2)
        spread = pm.Flat("level") + c[HALF]
        pm.Normal("y", b[GROUP], pm.math.exp(spread), observed=np.sin(np.arange(N)))
    ours = lgm.read(model, compile_kwargs=QUICK)
    assert list(ours.latents) == ["b"]


def test_few_effects_with_a_penalty_on_their_sum_are_latent() -> None:
    """The sum is one number that a density reads alone; the predictor is made of them, too."""
    with pm.Model() as model:
        b = pm.Normal("b", 0, pm.HalfNormal("s"), shape=4)
        pm.Poisson("y", pm.math.exp(b[np.arange(8) % 4]), observed=np.arange(8) % 3)
        pm.Potential("penalty", -10.0 * b.sum() ** 2)
    read = lgm.read(model, compile_kwargs=QUICK)
    assert read.latents == ("b",)
    assert (read.n, read.rank) == (5, 4)
    assert max(read.check(draws=3).values()) < 1e-9


def effects_times(scale: Any) -> Any:
    return pm.Normal("a", 0.0, 1.0) + scale * pm.Normal("z", 0.0, 1.0, shape=20)[np.arange(N) % 20]


FACTORS = {
    "a scale of either sign": (lambda: effects_times(pm.Normal("lam", 0.5, 1.0)), {"lam"}),
    "a log scale": (lambda: effects_times(pm.math.exp(pm.Normal("lam", 0.0, 1.0))), {"lam"}),
    "a precision": (lambda: effects_times(1.0 / pm.math.exp(pm.Normal("lam"))), {"lam"}),
    "a positive scale": (lambda: effects_times(pm.HalfNormal("lam", 1.0)), {"lam_log__"}),
    "a scale of each group": (
        lambda: effects_times(pm.math.exp(pm.Normal("lam", shape=5))[GROUP]),
        {"lam"},
    ),
    "loadings": (lambda: effects_times(pm.Normal("lam", 0.5, 1.0, shape=5)[GROUP]), {"lam"}),
}


@pytest.mark.fast("a log scale", "loadings")
@pytest.mark.parametrize("kind", FACTORS)
def test_of_two_factors_the_smaller_is_given_and_what_is_added_stays(kind: str) -> None:
    """The intercept was a hyper-parameter, too, if a normal number multiplied the effects."""
    build, theta = FACTORS[kind]
    with pm.Model() as model:
        pm.Poisson("y", pm.math.exp(build()), observed=GROUP)
    ours = lgm.read(model, compile_kwargs=QUICK)
    assert (set(ours.latents), set(ours.theta_names)) == ({"a", "z"}, theta)
    assert max(ours.check(draws=3).values()) < 1e-6


def test_two_large_factors_are_both_latent() -> None:
    """Neither is one for theta, so both are f, and a sampler that approximates says why not."""
    with pm.Model() as model:
        u, v = pm.Normal("u", 0.0, 1.0, shape=15), pm.Normal("v", 0.0, 1.0, shape=15)
        pm.Poisson("y", pm.math.exp(u[np.arange(N) % 15] * v[np.arange(N) // 2]), observed=GROUP)
    ours = lgm.read(model, compile_kwargs=QUICK)
    assert ours.latents == ("u", "v")
