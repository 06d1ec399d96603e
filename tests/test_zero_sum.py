"""`pm.ZeroSumNormal` is latent: E z, with z as PyMC samples it."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from models import joint_law
from pymc.distributions.transforms import ZeroSumTransform

import pymc_lgm as lgm

from pymc_lgm.gaussian.structure import Structure
from pymc_lgm.model.forms.linear import LinearPredictor
from pymc_lgm.model.forms.sum import SumPredictor
from pymc_lgm.model.latents import Latent
from pymc_lgm.model.read import LatentGaussianModel

pytestmark = pytest.mark.usefixtures("interpreted")

N = 24
GROUP, TIME = np.arange(N) % 5, np.arange(N) // 6
Y = np.arange(N) % 4
MODELS = {}


def model(build):
    MODELS[build.__name__] = build
    return build


@model
def groups():
    return pm.ZeroSumNormal("b", pm.HalfNormal("s", 1), shape=5)[GROUP] + pm.Normal("a", 0, 2)


@model
def two_axes():
    b = pm.ZeroSumNormal("b", pm.HalfNormal("s", 1), shape=(5, 4), n_zerosum_axes=2)
    return b[GROUP, TIME] + pm.Normal("a", 0, 2)


@model
def rows_with_scales_of_their_own():
    s = pm.HalfNormal("s", 1, shape=5)
    return pm.ZeroSumNormal("b", s[:, None], shape=(5, 4))[GROUP, TIME]


@model
def many_short_rows():
    """A constraint for each would cost more than the dense blocks of their coordinates."""
    return pm.ZeroSumNormal("b", pm.HalfNormal("s", 1), shape=(12, 2))[np.arange(N) % 12, TIME % 2]


@model
def beside_a_walk():
    walk = pm.GaussianRandomWalk("walk", sigma=0.3, init_dist=pm.Normal.dist(0, 1), shape=N)
    return walk + pm.ZeroSumNormal("b", pm.HalfNormal("s", 1), shape=5)[GROUP]


@model
def summed_up():
    """z has one element fewer than what is summed up."""
    b = pm.ZeroSumNormal("b", pm.HalfNormal("s", 1), shape=N)
    return pm.Normal("a", 0, 2) + pt.cumsum(b)


@model
def with_a_slope():
    b = pm.ZeroSumNormal("b", 1.5, dims="group")
    return pm.HalfNormal("s", 1) * b[GROUP] * np.linspace(-1, 1, N) + pm.Normal("a", b[0], 2)


def built(name):
    with pm.Model(coords={"group": list("abcde")}) as model:
        pm.Poisson("y", pm.math.exp(MODELS[name]()), observed=pm.Data("y_data", Y))
    return model


@pytest.fixture(params=[LinearPredictor, SumPredictor])
def form(request, monkeypatch):
    """Each of the two that can read it."""
    is_sum = request.param is SumPredictor
    monkeypatch.setattr("pymc_lgm.model.forms.sum._is_cheaper", lambda *sizes: is_sum)
    if not is_sum:
        monkeypatch.setattr(SumPredictor, "of", lambda setting: None)
    return request.param


@pytest.mark.fast("LinearPredictor-groups", "SumPredictor-two_axes")
@pytest.mark.parametrize("name", MODELS)
def test_what_is_read_is_what_pymc_says(name, form):
    read = lgm.read(built(name))
    assert isinstance(read.form, form)
    assert "b_zerosum__" in read.latents
    assert "b" in read.latent
    assert max(read.check(10).values()) < 1e-8


def without_normalization(self, z):
    """The last element makes the sum zero, and the others are z."""
    return z if self.zero_sum is None else z.dot(np.eye(5)[:4] - np.eye(5)[4])


@pytest.mark.mutant
def test_columns_that_are_not_orthonormal_are_noticed(monkeypatch, dies):
    monkeypatch.setattr(Latent, "extended", without_normalization)
    read = lgm.read(built("groups"))
    point = read.audit.prior_points(0, 1)[0]
    worst = max(each.relative for each in read.audit.differences(point, moments=True))
    dies("zero sum: columns that are not orthonormal", worst, above=1e-6)


@pytest.mark.mutant
def test_a_forgotten_constraint_is_noticed(monkeypatch, dies):
    """The sums along one axis, of two."""
    whole = Structure.zero_sum
    monkeypatch.setattr(Structure, "zero_sum", lambda shape, axes: whole(shape, axes - 1))
    monkeypatch.setattr("pymc_lgm.model.forms.sum._is_cheaper", lambda *sizes: True)
    read = lgm.read(built("two_axes"))
    worst = max(read.check(10).values())
    dies("zero sum: a forgotten constraint", worst, above=1e-6)


@pytest.mark.parametrize(("name", "elements"), [("two_axes", 20 + 1), ("many_short_rows", 12)])
def test_constraints_instead_of_coordinates_if_they_are_cheaper(name, elements):
    """x has all elements of the first, and the coordinates of the second."""
    read = LatentGaussianModel.from_pymc(built(name), as_sum=True)
    assert elements == read.form.layout.N


@pytest.mark.slow
@pytest.mark.parametrize("name", ["groups", "two_axes"])
def test_its_posterior_is_left_invariant(name, form):
    """Drawn given f in one form, and a part of f in the other."""
    step = lgm.ASIS if form is LinearPredictor else lgm.PseudoMarginal
    assert joint_law(step, built(name), replicates=300, steps=3).pvalue > 1e-5


@pytest.mark.slow
def test_draws_sum_to_zero():
    with built("two_axes"):
        trace = pm.sample(
            5, tune=5, chains=1, step=lgm.ASIS(), progressbar=False, random_seed=1, cores=1
        )
    b = trace.posterior["b"].to_numpy()
    assert b.std() > 0
    np.testing.assert_allclose([b.sum(-1).max(), b.sum(-2).min()], 0, atol=1e-12)


@pytest.mark.parametrize("default", [{}, {"default_transform": None}])
def test_with_another_transform_it_is_no_latent(default):
    """PyMC samples other coordinates than z then."""
    with pm.Model() as model:
        b = pm.ZeroSumNormal("b", shape=(4, 5), transform=ZeroSumTransform([0]), **default)
    assert not lgm.model.is_gaussian(model, b)


def test_with_another_transform_it_is_refused():
    with pm.Model() as model:
        other = {"default_transform": None, "transform": ZeroSumTransform([0])}
        b = pm.ZeroSumNormal("b", shape=(4, 5), **other)
        pm.Poisson("y", pm.math.exp(b.flatten()), observed=np.arange(20) % 4)
    with pytest.raises(ValueError, match=r"pm\.ZeroSumNormal with a transform other"):
        lgm.read(model)
