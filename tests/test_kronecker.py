"""Processes on a grid are dense processes: what is read of them is what PyMC's density says."""

from functools import reduce

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from models import joint_law

import pymc_lgm as lgm

from pymc_lgm.model import latents
from pymc_lgm.model.forms.linear import LinearPredictor
from pymc_lgm.model.forms.vector import OneVector

pytestmark = pytest.mark.usefixtures("interpreted")

AXES = [np.linspace(0, 1, 4)[:, None], np.linspace(0, 2, 3)[:, None], np.array([[0.0], [0.4]])]
MODELS = {}


def model(build):
    MODELS[build.__name__] = build
    return build


def kernels(count):
    length = pm.InverseGamma("length", 5, 2, shape=count)
    eta = pm.HalfNormal("eta", 1)
    covs = [pm.gp.cov.Matern32(1, ls=length[k]) for k in range(count)]
    return [eta**2 * covs[0], *covs[1:]]


@model
def latent_kron():
    return pm.gp.LatentKron(cov_funcs=kernels(2)).prior("f", Xs=AXES[:2])


@model
def of_three_axes_with_a_mean():
    level = pm.gp.mean.Constant(pm.Normal("level", 0, 1))
    return pm.gp.LatentKron(mean_func=level, cov_funcs=kernels(3)).prior("f", Xs=AXES)


@model
def kronecker_normal():
    covs = [k(X) + 1e-6 * pt.eye(len(X)) for k, X in zip(kernels(2), AXES[:2], strict=True)]
    mean = pm.Normal("a", 0, 1) * np.linspace(-1, 1, 12)
    return pm.KroneckerNormal("f", mean, covs=covs, sigma=0.3)


def built(name):
    with pm.Model() as model:
        f = MODELS[name]()
        y = np.arange(f.type.shape[0]) % 4
        pm.Poisson("y", pm.math.exp(f), observed=pm.Data("y_data", y))
    return model


@pytest.mark.fast("latent_kron")
@pytest.mark.parametrize("name", MODELS)
def test_what_is_read_is_what_pymc_says(name):
    read = lgm.read(built(name))
    assert isinstance(read.form, OneVector if name == "kronecker_normal" else LinearPredictor)
    assert max(read.check(10).values()) < 1e-8


@pytest.mark.slow
def test_a_product_in_another_order_is_no_grid():
    """It is an affine map of standard normal coordinates, as any other."""
    with pm.Model() as model:
        first, second = (
            pt.linalg.cholesky(k(X)) for k, X in zip(kernels(2), AXES[:2], strict=True)
        )
        v = pm.Normal("v", size=12)
        across = second.dot(first.dot(v.reshape((4, 3))).reshape((3, 4)))
        pm.Poisson("y", pm.math.exp(across.flatten()), observed=np.arange(12) % 4)
    assert latents.kronecker_product(model["v"], [model["y"]]) is None
    assert max(lgm.read(model).check(3).values()) < 1e-6


@pytest.mark.mutant
def test_axes_in_the_wrong_order_are_noticed(monkeypatch, dies):
    monkeypatch.setattr(latents, "reduce", lambda product, covs: reduce(product, covs[::-1]))
    read = lgm.read(built("latent_kron"))
    point = read.audit.prior_points(0, 1)[0]
    worst = max(each.relative for each in read.audit.differences(point, moments=True))
    dies("kronecker: axes in the wrong order", worst, above=1e-6)


@pytest.mark.slow
def test_its_posterior_is_left_invariant():
    test = joint_law(lgm.ASIS, built("latent_kron"), compiled=False, replicates=300, steps=3)
    assert test.pvalue > 1e-5
