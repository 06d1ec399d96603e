"""Models written in ways that are not common: their evidence is that of PyMC's own density.

Data are normal, so Laplace's approximation is exact. Given theta PyMC's density is the exponential
of a quadratic function of the latent variables, whose integral is known.
"""

from __future__ import annotations

import math

from collections.abc import Callable
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

from models import QUICK

import pymc_lgm as lgm

from pymc_lgm.approximations.laplace import laplace
from pymc_lgm.state import AtTheta

pytestmark = pytest.mark.usefixtures("interpreted")

N = 8
GROUP, T = np.arange(N) % 4, np.arange(float(N))
X, Y = np.random.default_rng(0).standard_normal((2, N))
W = np.eye(4, k=1) + np.eye(4, k=-1)

MODELS: dict[str, Callable[[], Any]] = {}


def model(build: Callable[[], Any]) -> Callable[[], Any]:
    """List a function that returns the mean of the data."""
    MODELS[build.__name__] = build
    return build


def effects(name: str = "b", size: int = 4) -> Any:
    return pm.Normal(name, 0.3, pm.HalfNormal(f"s_{name}"), shape=size)


@model
def switched_by_a_threshold_that_moves() -> Any:
    return pt.switch(pm.Normal("cut") > X, effects()[GROUP], effects("c")[GROUP])


@model
def an_index_that_moves() -> Any:
    b = effects()
    return b[GROUP] + b[pt.floor(pm.Uniform("k", 0, 4)).astype("int64")]


@model
def a_choice_of_a_normal_number() -> Any:
    b = effects()
    return pt.switch(pm.Normal("k") > 0, b[GROUP], b[0])


@model
def what_is_added_is_taken_away() -> Any:
    b, k = effects(), pm.Normal("k")
    return b[GROUP] * k - k * b[GROUP] + b[GROUP[::-1]]


@model
def a_factor_by_hand() -> Any:
    r, s = pm.Uniform("r", -1, 1), pm.HalfNormal("s", shape=2)
    rows = [pt.stack([s[0], 0.0 * r]), pt.stack([r * s[1], s[1] * pt.sqrt(1 - r**2)])]
    b = pm.MvNormal("b", np.zeros(2), chol=pt.stack(rows), shape=(4, 2))
    return b[GROUP, 0] + b[GROUP, 1] * X


@model
def sums_of_zero_along_two_axes() -> Any:
    b = pm.ZeroSumNormal("b", sigma=pm.HalfNormal("s"), shape=(4, 2), n_zerosum_axes=2)
    return pm.Normal("a", 0, 3) + b[GROUP, np.arange(N) // 4]


@model
def a_constant_in_a_recursion() -> Any:
    rho = [pm.Normal("c"), pm.Uniform("r", -1, 1)]
    start = pm.Normal.dist(0, 2)
    b = pm.AR("b", rho=rho, sigma=pm.HalfNormal("s"), constant=True, init_dist=start, shape=N)
    return b + effects("e")[GROUP]


@model
def a_walk_with_a_drift_of_a_covariate() -> Any:
    drift, start = pm.Normal("mu") * X[1:], pm.Normal.dist(0, 2)
    s = pm.HalfNormal("s") * np.linspace(1, 2, N - 1)
    return pm.GaussianRandomWalk("b", mu=drift, sigma=s, init_dist=start, shape=N)


@model
def basis_functions_about_a_line() -> Any:
    line = pm.gp.mean.Linear(coeffs=pm.Normal("k"), intercept=pm.Normal("a"))
    cov = pm.HalfNormal("e") ** 2 * pm.gp.cov.ExpQuad(1, ls=pm.LogNormal("ls", 0, 0.5))
    gp = pm.gp.HSGP(m=[4], c=1.5, mean_func=line, cov_func=cov)
    return gp.prior("f", (T / 4 - 1)[:, None])


@model
def a_loop() -> Any:
    def step(e: Any, before: Any, r: Any) -> Any:
        return r * before + e

    r, start = pm.Uniform("r", -1, 1), [pt.zeros(())]
    return pytensor.scan(
        step,
        sequences=[effects("e", N)],
        outputs_info=start,
        non_sequences=[r],
        return_updates=False,
    )


@model
def a_system_that_moves() -> Any:
    A = np.eye(4) - pm.Uniform("r", -0.9, 0.9) * W / 2
    return pt.linalg.solve(A, effects())[GROUP]


@model
def a_mean_that_is_bent() -> Any:
    a = pm.Normal("a")
    return pm.Normal("b", a**2, pt.exp(a), shape=4)[GROUP]


@model
def a_rotation() -> Any:
    r = pm.Uniform("r", 0, 3)
    rotation = pt.stack([pt.stack([pt.cos(r), -pt.sin(r)]), pt.stack([pt.sin(r), pt.cos(r)])])
    return np.stack([X, T / 4], axis=1) @ (rotation @ effects(size=2))


def integral(model: pm.Model, read: lgm.model.LatentGaussianModel, point: dict[str, Any]) -> float:
    """log ∫ p(y | x, theta) p(x | theta) dx by PyMC's density, a quadratic function of x."""
    latents = [v for v in model.value_vars if v.name in read.latents]
    terms = [model.values_to_rvs[v] for v in latents] + model.observed_RVs
    density = model.logp(vars=terms)
    slope = pt.concatenate([each.ravel() for each in pytensor.grad(density, latents)])
    function = pytensor.function(
        model.value_vars, [density, slope], on_unused_input="ignore", **QUICK
    )
    shapes = [np.shape(point[v.name]) for v in latents]
    ends = np.cumsum([math.prod(shape) for shape in shapes])

    def at(x: Any) -> Any:
        pieces = zip(latents, np.split(x, ends[:-1]), shapes, strict=True)
        moved = point | {v.name: piece.reshape(shape) for v, piece, shape in pieces}
        return function(*(moved[v.name] for v in model.value_vars))

    n = int(ends[-1])
    value, g = at(np.zeros(n))
    P = np.stack([g - at(e)[1] for e in np.eye(n)])
    log_det = np.linalg.slogdet(P)[1]
    return float(value + 0.5 * g @ np.linalg.solve(P, g) + 0.5 * (n * np.log(2 * np.pi) - log_det))


def largest_error(build: Callable[[], Any], n_points: int = 3) -> float:
    """Of the evidence of a model as it is read, at points beside the start."""
    with pm.Model() as model:
        pm.Normal("y", build(), 0.7, observed=Y)
    read = lgm.read(model, compile_kwargs=QUICK)
    rng, start, errors = np.random.default_rng(1), model.initial_point(), []
    for _ in range(n_points):
        theta = read.theta_of(start) + rng.standard_normal(read.p)
        here = AtTheta.of(read, theta)
        q = laplace(here.likelihood, here.prior, tolerance=1e-14)
        right = integral(model, read, dict(start) | read.point_of(theta))
        errors.append(abs(q.log_evidence - right) / (1.0 + abs(right)))
    return max(errors)


@pytest.mark.fast("a_mean_that_is_bent")
@pytest.mark.parametrize("name", MODELS)
def test_the_evidence_is_that_of_pymcs_density(name: str) -> None:
    assert largest_error(MODELS[name]) < 1e-7


@pytest.mark.mutant
def test_a_prior_of_another_theta_is_noticed(monkeypatch: pytest.MonkeyPatch, dies: Any) -> None:
    """The prior of f stays what it is at the start."""
    stays = lambda self, theta: self._prior_at(self._start)  # noqa: E731
    monkeypatch.setattr(lgm.model.LatentGaussianModel, "prior", stays)
    error = largest_error(MODELS["a_mean_that_is_bent"])
    dies("awkward models: a prior that stays", error, above=0.01)
