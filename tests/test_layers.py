"""A likelihood that joins all of f: y = F²(F¹) + noise, with the second process integrated out."""

import numpy as np
import pymc as pm
import pytest

from models import build, joint_law
from test_joint import NOTICED, ellipse_without_mean, ellipse_without_slice
from toys import until_noticed

import pymc_lgm as lgm

from pymc_lgm import papers, steps
from pymc_lgm.moves.latent import elliptical_slice as slice_module

LEVEL = 1e-4
MANY = 14
"""More elements than a Gaussian approximation has blocks for."""

HELPLESS = {
    "HomogeneousHMC",
    "KnorrHeldRue",
    "LatentSMMALA",
    "PositionHMC",
    "PseudoMarginal",
    "SurrogateSlice",
}
"""Samplers that approximate p(f | y)."""


def layers(n, by="MvNormal", mean=0.7, infer=True):
    """y | f ~ N(0, K(f) + λ I): f has both signs where its mean is 0."""
    x = np.linspace(-2, 2, n)
    with pm.Model() as model:
        length = pm.LogNormal("length", 0.0, 0.3) if infer else 1.0
        scale = pm.LogNormal("scale", 0.0, 0.3) if infer else 1.0
        gp = pm.gp.Latent(
            mean_func=pm.gp.mean.Constant(mean), cov_func=pm.gp.cov.ExpQuad(1, ls=length)
        )
        f = gp.prior("f", x[:, None], reparameterize=False)
        cov = scale**2 * pm.gp.cov.ExpQuad(1, ls=0.7)(f[:, None]) + 0.05 * np.eye(n)
        y = pm.Data("data", np.sin(x) + 0.1 * np.cos(7 * x))
        if by == "MvNormal":
            pm.MvNormal("y", mu=np.zeros(n), cov=cov, observed=y)
        else:
            pm.Potential("y", pm.logp(pm.MvNormal.dist(mu=np.zeros(n), cov=cov), y))
    return model


MODELS = {n: layers(n) for n in (2, MANY)}


def pvalue(sampler, n, replicates, steps, **options):
    how = {"seed": n, "replicates": replicates, "steps": steps}
    return joint_law(sampler, MODELS[n], options=options, **how).pvalue


TAKEN = [
    (lgm.EllipticalSlice, {}),
    (lgm.papers.NealMetropolis, {"step_size": 0.4}),
    (lgm.LatentHMC, {"step_size": 0.1}),
    (lgm.ASIS, {"latent_move": "slice", "scale": 0.3}),
    (lgm.papers.WhitenedMetropolis, {"scale": 0.3}),
]
IN_SLOW = {(lgm.EllipticalSlice, MANY), (lgm.ASIS, 2)}
"""Of f alone, and of both; the others before a release."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sampler", "options", "n"),
    [
        pytest.param(
            sampler,
            options,
            n,
            id=f"{sampler.__name__}-{n}",
            marks=[pytest.mark.whole] * ((sampler, n) not in IN_SLOW),
        )
        for sampler, options in TAKEN
        for n in (2, MANY)
    ],
)
def test_leaves_the_joint_law(sampler, options, n):
    assert pvalue(sampler, n, 200, 3, **options) > LEVEL


@pytest.mark.mutant
@pytest.mark.parametrize("mutant", [ellipse_without_mean, ellipse_without_slice])
def test_a_wrong_ellipse_is_noticed(mutant, monkeypatch, dies):
    monkeypatch.setattr(slice_module, "elliptical_slice", mutant)
    noticed = until_noticed(lambda R: pvalue(lgm.EllipticalSlice, MANY, R, 5), 300, 1000)
    dies(f"layers: {mutant.__name__}", noticed, below=NOTICED)


@pytest.mark.fast("PseudoMarginal-MvNormal")
@pytest.mark.parametrize("by", ["MvNormal", "Potential"])
@pytest.mark.parametrize(
    "sampler", [*steps.SAMPLERS, *papers.SAMPLERS], ids=lambda sampler: sampler.__name__
)
def test_what_approximates_refuses_it_by_name(sampler, by):
    """What needs p(y | f, theta) as a number, and its gradient, takes it."""
    model = REFUSING[by]
    if sampler.__name__ not in HELPLESS:
        assert build(sampler, model).lgm.coupled == "y"
        return
    with pytest.raises(ValueError, match=r"(?s)of 'y' joins more than .* of 'f'.*EllipticalSlice"):
        build(sampler, model)


REFUSING = {by: layers(MANY, by) for by in ("MvNormal", "Potential")}


@pytest.mark.slow
def test_both_signs_are_visited_as_often_as_quadrature_says():
    """Of two elements: the posterior on a grid, and draws."""
    model = layers(2, mean=0.0, infer=False)
    read = build(lgm.EllipticalSlice, model).lgm
    at = np.linspace(-5, 5, 62)  # 0 is between two nodes
    nodes = np.stack(np.meshgrid(at, at, indexing="ij"), axis=-1).reshape(-1, 2)
    none = np.empty(0)
    weights = np.exp(
        [read.log_likelihood(f, none) + read.prior(none).log_density(f) for f in nodes]
    )
    weights /= weights.sum()
    right = np.array([weights @ (nodes[:, 0] > 0), weights @ nodes.prod(axis=1)])
    assert right[0] == pytest.approx(0.5)
    with model:
        idata = pm.sample(
            4000,
            tune=0,
            chains=1,
            step=lgm.EllipticalSlice(),
            random_seed=1,
            progressbar=False,
            compute_convergence_checks=False,
        )
    f = idata.posterior["f"].to_numpy()[0]
    np.testing.assert_allclose([np.mean(f[:, 0] > 0), f.prod(axis=1).mean()], right, atol=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("whitened", [True, False])
def test_a_first_layer_in_the_covariance_of_the_second_is_a_hyperparameter(whitened):
    """Exact, if slow: whether the model whitens the second layer or not."""
    with pm.Model() as model:
        cov = pm.gp.cov.ExpQuad(1, ls=1.0)
        first = pm.gp.Latent(cov_func=cov).prior("first", np.arange(4.0)[:, None])
        gp = pm.gp.Latent(cov_func=cov)
        f = gp.prior("f", first[:, None], reparameterize=whitened)
        lgm.Probit("y", f=f, observed=[0, 1, 1, 0])
    read = lgm.read(model)
    assert read.theta_names == ("first_rotated_",)
    assert read.latent == "f"
