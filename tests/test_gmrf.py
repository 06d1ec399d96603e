"""Intrinsic fields: density, draws, structures, and how models of them are read and sampled."""

import math
import pickle

import numpy as np
import pymc as pm
import pytensor
import pytest

from close import close
from models import COMPILED, QUICK, gap_to_nuts, joint_law
from pymc.model.fgraph import clone_model
from scipy.integrate import quad
from scipy.linalg import null_space
from scipy.sparse import csr_array, eye_array
from scipy.stats import chi2, multivariate_normal
from test_sum_gradients import check_gradient
from test_sums import evidences

import pymc_lgm as lgm

from pymc_lgm import gmrf
from pymc_lgm.gaussian.factors import ConstrainedFactor, Constraints, ScaledFactor
from pymc_lgm.gaussian.families import FamilyAt
from pymc_lgm.gaussian.structure import IntrinsicFamily, Structure
from pymc_lgm.model.fingerprint import fingerprint
from pymc_lgm.model.forms.linear import LinearPredictor
from pymc_lgm.model.forms.sum import SumPredictor

pytestmark = pytest.mark.usefixtures("interpreted")

EDGES = [(0, 1), (1, 2), (0, 2), (2, 3), (4, 5)]
W = lgm.spatial.adjacency(EDGES, 7)
"""Four areas, two more across a river, and an island."""

N = 9
RAGGED = np.array([0.0, 0.4, 1.0, 1.1, 2.5, 3.0, 3.2, 4.0, 7.0])
SMOOTH = np.diff(np.eye(N), 2, axis=0).T @ np.diff(np.eye(N), 2, axis=0)
LINE = np.vstack([np.ones(N), np.arange(N)])

DISTRIBUTIONS = {
    "walk": lambda s: gmrf.RandomWalk.dist(1, s, shape=N),
    "walk of order 2": lambda s: gmrf.RandomWalk.dist(2, s, shape=N),
    "cyclic walk": lambda s: gmrf.RandomWalk.dist(1, s, cyclic=True, shape=N),
    "cyclic walk of order 2": lambda s: gmrf.RandomWalk.dist(2, s, cyclic=True, shape=N),
    "ragged walk": lambda s: gmrf.RandomWalk.dist(1, s, locations=RAGGED),
    "ragged walk of order 2": lambda s: gmrf.RandomWalk.dist(2, s, locations=RAGGED, scale=True),
    "season": lambda s: gmrf.Seasonal.dist(4, s, shape=N),
    "map": lambda s: gmrf.ICAR.dist(W, s),
    "scaled sparse map": lambda s: gmrf.ICAR.dist(csr_array(W), s, scale=True),
    "type II": lambda s: gmrf.Interaction.dist((None, gmrf.Structure.walk(4)), s, shape=(3, 4)),
    "type III": lambda s: gmrf.Interaction.dist((gmrf.Structure.map(W), None), s, shape=(7, 2)),
    "type IV": lambda s: gmrf.Interaction.dist((gmrf.Structure.map(W), gmrf.Structure.walk(4)), s),
    "type I": lambda s: gmrf.Interaction.dist((None, None), s, shape=(2, 3)),
    "dense": lambda s: gmrf.Intrinsic.dist(SMOOTH, s, scale=True),
    "more constraints": lambda s: gmrf.Intrinsic.dist(
        SMOOTH, s, constraint=np.vstack([LINE, np.eye(N)[4]])
    ),
    "other constraints": lambda s: gmrf.Intrinsic.dist(SMOOTH, s, constraint=np.eye(N)[[0, 5]]),
    "proper": lambda s: gmrf.Intrinsic.dist(SMOOTH + np.eye(N), s, constraint=np.ones(N)),
}
each_distribution = pytest.mark.parametrize("name", DISTRIBUTIONS)


def dense(name, sigma):
    """R, an orthonormal basis of the constraint space, and the covariance."""
    op = DISTRIBUTIONS[name](1.0).owner.op
    R, C = op.structure.R.toarray(), op.structure.constraint
    E = null_space(C.T) if C.size else np.eye(len(R))
    return R, E, sigma**2 * E @ np.linalg.inv(E.T @ R @ E) @ E.T


# Density and draws


@each_distribution
def test_the_density_is_that_of_the_constraint_space(name):
    """Its constant, in sigma too, is that of a normal density of orthonormal coordinates."""
    rng = np.random.default_rng(1)
    for sigma in (0.3, 4.0):
        R, E, _ = dense(name, sigma)
        x, z = DISTRIBUTIONS[name](sigma), rng.standard_normal(E.shape[1])
        at = (E @ z).reshape(x.owner.op.shape)
        right = multivariate_normal(cov=sigma**2 * np.linalg.inv(E.T @ R @ E)).logpdf(z)
        close(pm.logp(x, at).eval(), right)


def test_off_the_constraint_space_it_is_zero():
    x = DISTRIBUTIONS["walk"](1.0)
    assert pm.logp(x, np.ones(N)).eval() == -np.inf
    assert np.isfinite(pm.logp(x, np.zeros(N)).eval())


@each_distribution
def test_coordinates_are_orthonormal_and_come_back(name):
    op = DISTRIBUTIONS[name](1.0).owner.op
    space, transform = (
        op.structure.coordinates,
        gmrf.ConstraintTransform(op.structure, op.shape),
    )
    E = space.extend(np.eye(op.structure.rank))
    close(E.T @ E, np.eye(op.structure.rank))
    np.testing.assert_allclose(op.structure.constraint.T @ E, 0.0, atol=1e-12)
    z = np.random.default_rng(0).standard_normal(op.structure.rank)
    x = transform.backward(z).eval()
    close(x.ravel(), E @ z)
    close(transform.forward(x).eval(), z)
    close(space.reduce(E @ z), z)


@each_distribution
def test_draws_have_the_covariance(name):
    """Of 4000 draws: squares of whitened coordinates."""
    sigma, draws = 0.7, 4000
    R, E, _ = dense(name, sigma)
    op = DISTRIBUTIONS[name](1.0).owner.op
    rng = np.random.default_rng(2)
    x = op.rng_fn(rng, np.full(draws, sigma), None).reshape(draws, -1)
    np.testing.assert_allclose(x @ op.structure.constraint, 0.0, atol=1e-7 * np.abs(x).max())
    root = np.linalg.cholesky(E.T @ R @ E / sigma**2)
    z = x @ E @ root
    k = z.shape[1]
    S = z.T @ z / draws
    # Wilks: the likelihood ratio of a covariance.
    ratio = draws * (np.trace(S) - np.linalg.slogdet(S)[1] - k)
    assert chi2(k * (k + 1) / 2).sf(ratio) > 1e-4


@pytest.mark.slow
def test_compiled_draws_are_of_the_same_law():
    with pm.Model() as model:
        sigma = pm.HalfNormal("sigma")
        x = gmrf.RandomWalk("x", 2, sigma, shape=N)
        trace = pm.sample_prior_predictive(500, random_seed=1, compile_kwargs={"mode": "NUMBA"})
    prior = trace.prior.isel(chain=0)
    op = x.owner.op
    square = np.einsum("di,ij,dj->d", prior["x"], op.structure.R.toarray(), prior["x"])
    total = float((square / prior["sigma"] ** 2).sum())
    assert 1e-4 < chi2(500 * op.structure.rank).cdf(total) < 1 - 1e-4
    assert model["x"] is x


def test_a_scaled_structure_has_variances_of_geometric_mean_one():
    for name in ("ragged walk of order 2", "dense"):
        _, _, cov = dense(name, 1.0)
        close(np.log(np.diag(cov)).mean() + 1.0, 1.0)
    _, _, cov = dense("scaled sparse map", 1.0)
    variances = np.diag(cov)
    close([np.exp(np.log(variances[part]).mean()) for part in ([0, 1, 2, 3], [4, 5], [6])], 1.0)


def test_the_structures():
    step = np.random.default_rng(0).standard_normal(N)
    square = step @ gmrf.Structure.walk(N, 1, locations=RAGGED).R @ step
    close(square, (np.diff(step) ** 2 / np.diff(RAGGED)).sum())
    regular = gmrf.Structure.walk(N, 2, locations=3.0 + np.arange(N))
    close(regular.R.toarray(), SMOOTH)
    cyclic = gmrf.Structure.walk(N, 2, cyclic=True).R
    second = np.roll(step, 1) - 2 * step + np.roll(step, -1)
    close(step @ cyclic @ step, (second**2).sum())
    season = gmrf.Structure.season(N, 4)
    sums = np.convolve(step, np.ones(4), "valid")
    close(step @ season.R @ step, (sums**2).sum())
    assert season.null.shape == (N, 3)
    both = gmrf.Structure.map(W).product(gmrf.Structure.walk(4))
    assert both.null.shape[1] == 28 - 5 * 3
    close(both.null.T @ both.null, np.eye(13))
    np.testing.assert_allclose(both.R @ both.null, 0.0, atol=1e-12)
    close(Structure.of(both.R).log_determinant, both.log_determinant)


INTERACTIONS = {
    "by its second axis": ("map", "walk", 6, 3),
    "by its first axis": ("walk", "map", 6, 3),
    "independent rows": ("none", "walk", 6, 3),
    "independent columns": ("walk", "none", 6, 3),
    "a walk of order two": ("map", "smooth", 6, 2),
}


@pytest.mark.parametrize("name", INTERACTIONS)
def test_coordinates_of_an_interaction_meet_most_constraints(name):
    """They have the covariance of the structure by its constraints, without coordinates."""
    first, second, kept, t = INTERACTIONS[name]
    by_name = {
        "map": gmrf.Structure.map(lgm.spatial.adjacency([(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)])),
        "walk": gmrf.Structure.walk(4),
        "smooth": gmrf.Structure.walk(4, 2),
        "none": Structure(eye_array(6).tocsc(), np.zeros((6, 0))),
    }
    one, two = by_name[first], by_name[second]
    both = one.product(two)
    assert both.within is not None
    B, inner = both.within
    assert B.shape == (24, kept * t)
    parts = 0 if "none" in (first, second) else 1
    assert inner.null.shape == (kept * t, parts * t)
    B = B.toarray()
    close(B.T @ B, np.eye(kept * t))
    np.testing.assert_allclose(both.null.T @ B @ null_space(inner.null.T), 0.0, atol=1e-12)
    plain = Structure(both.R, both.null)
    close(both.covariance(), plain.covariance())
    close(both.log_determinant, plain.log_determinant)
    close(both.factor.inverse_diagonal, plain.factor.inverse_diagonal)
    close(both.scaled().R.toarray(), plain.scaled().R.toarray())
    close(both.scaled().covariance(), plain.scaled().covariance())


def test_an_interaction_with_few_constraints_has_no_coordinates():
    proper = Structure.of(np.diag([2.0, 3.0]))
    assert proper.product(proper).within is None
    # An axis of a long walk would make dense blocks of its length.
    long, few = gmrf.Structure.walk(400), gmrf.Structure.walk(2)
    both = long.product(few)
    assert both.within is not None
    assert both.within[0].shape == (800, 400)


def test_the_galerkin_walk_follows_curvature_not_spacing():
    """Lindgren and Rue (2008): its square of a function is about the integral of x''²."""
    t = np.sort(np.random.default_rng(3).uniform(0, 3, 400))
    R = gmrf.Structure.walk(400, 2, locations=t).R
    square = np.sin(t) @ R @ np.sin(t)
    integral = quad(lambda u: np.sin(u) ** 2, t[0], t[-1])[0]
    assert abs(square / integral - 1.0) < 0.03


def test_a_long_walk_has_its_known_determinant():
    """Of order 2 the pseudo-determinant is n² (n² − 1)/12."""
    n = 3000.0
    structure = gmrf.Structure.walk(3000, 2)
    close(structure.log_determinant, math.log(n**2 * (n**2 - 1) / 12), rtol=1e-6)
    assert structure.coordinates.extend(np.zeros(2998)).shape == (3000,)


def test_reflections_of_unit_vectors():
    """LAPACK's reflection of a unit vector is the identity."""
    space = Constraints(np.eye(5)[:, :2])
    close(space.extend(np.arange(3.0)), [0.0, 0.0, 0.0, 1.0, 2.0])


# Priors of a few variables


def test_bym2_has_the_variances_that_it_says():
    with pm.Model():
        u = gmrf.BYM2("u", W=W, sigma=2.0, rho=0.3)
        draws = pm.draw(u, 1500, random_seed=1, mode=QUICK["mode"])
    assert draws.shape == (1500, 7)
    variances = draws.var(axis=0)
    structured = np.diag(dense("scaled sparse map", 1.0)[2])
    np.testing.assert_allclose(variances, 4.0 * (0.3 * structured + 0.7), rtol=0.2)


def test_leroux_is_between_independent_areas_and_a_map():
    with pm.Model():
        x = gmrf.Leroux("x", W=W, sigma=2.0, rho=0.6)
        at = np.random.default_rng(0).standard_normal(7)
        Q = (0.6 * gmrf.Structure.map(W).R.toarray() + 0.4 * np.eye(7)) / 4.0
        close(pm.logp(x, at).eval(), multivariate_normal(cov=np.linalg.inv(Q)).logpdf(at))


def test_pc_priors_have_the_probabilities_that_they_say():
    with pm.Model():
        sigma = gmrf.pc_prior("sigma", upper=2.0, alpha=0.1)
        close(1.0 - np.exp(pm.logcdf(sigma, 2.0).eval()), 0.1)
        for d in (1, 2, 3):
            ell = gmrf.pc_prior(f"ell{d}", lower=0.5, alpha=0.2, d=d)
            density = pm.logp(ell, np.array(0.0) + (grid := np.linspace(1e-3, 0.5, 4001))).eval()
            below = np.trapezoid(np.exp(density), grid)
            assert abs(below - 0.2) < 1e-5
            # Fuglstad et al. (2019), theorem 2.6, of the range.
            rate = -math.log(0.2) * 0.5 ** (d / 2)
            right = math.log(d / 2 * rate) - (d / 2 + 1) * np.log(grid) - rate * grid ** (-d / 2)
            close(density, right)


# Families


@each_distribution
def test_the_family_is_that_of_the_op(name):
    """Its factor, at two scales, and its derivatives."""
    structure = DISTRIBUTIONS[name](1.0).owner.op.structure
    family, rng = IntrinsicFamily(structure), np.random.default_rng(4)
    B = np.eye(structure.n) if family.basis is None else family.basis.toarray()
    assert (family.basis is not None) == (name in ("type II", "type III", "type IV"))
    assert family.at(np.array(0.0)) is None
    assert family.at(np.array(np.nan)) is None
    for sigma in (1e-4, 0.8, 1e4):
        _, _, cov = dense(name, sigma)
        at = family.at(np.array(sigma))
        assert isinstance(at, FamilyAt)
        root = at.factor.solve_transposed(np.eye(structure.rank))
        close(B @ root @ root.T @ B.T, cov)
        z = root @ rng.standard_normal(structure.rank)
        square = (B @ z) @ structure.R @ (B @ z) / sigma**2
        close(at.factor.multiply(at.factor.multiply_transposed(z)) @ z, square)
        e, h = rng.standard_normal(at.elements.size), 1e-6 * sigma
        U, S = family.update
        pinned = np.zeros(at.elements.size)
        for i in np.flatnonzero(U.any(axis=1)):
            pinned[(family.rows == i) & (family.columns == i)] = S[0, 0]

        def weighed(s, e=e, pinned=pinned):
            there = family.at(np.array(s))
            elements = there.elements + there.scale * pinned
            return e @ elements + 0.5 * there.factor.log_determinant

        slope = (weighed(sigma + h) - weighed(sigma - h)) / (2 * h)
        (found,) = family.vjp(at, e, np.zeros(family.m), 0.5)
        close(found, slope, rtol=1e-5)


# Models


T = np.linspace(-1.0, 1.0, 10)
MODELS = {}


def model(build):
    MODELS[build.__name__] = build
    return build


def sigma_of(name):
    return pm.LogNormal(f"s_{name}", -0.5, 0.5)


@model
def trend_with_a_line():
    beta = pm.Normal("beta", 0, 1, shape=2)
    return beta[0] + beta[1] * T + gmrf.RandomWalk("x", 2, sigma_of("x"), shape=10)


@model
def trend_alone():
    return gmrf.RandomWalk("x", 1, sigma_of("x"), shape=10)


@model
def season_and_walk():
    pattern = pm.ZeroSumNormal("pattern", sigma_of("pattern"), shape=4)[np.arange(10) % 4]
    season = gmrf.Seasonal("x", 4, sigma_of("x"), shape=10)
    walk = pm.GaussianRandomWalk("w", 0.1, sigma_of("w"), init_dist=pm.Normal.dist(0, 1), shape=10)
    return season + pattern + walk


@model
def smooth_of_a_covariate():
    unique, index = np.unique(np.round(3 * T**2, 1), return_inverse=True)
    return gmrf.RandomWalk("x", 2, sigma_of("x"), locations=unique, scale=True)[index]


@model
def bym2():
    area = np.arange(10) % 7
    return gmrf.BYM2("x", W, sigma_of("x"), pm.Beta("rho", 2, 2))[area] + pm.Normal("a")


@model
def leroux_with_a_scale():
    return gmrf.Leroux("x", W, sigma_of("x"), pm.Beta("rho", 2, 2))[np.arange(10) % 7]


@model
def interaction():
    path = gmrf.Structure.map(lgm.spatial.adjacency([(0, 1), (1, 2), (2, 3), (3, 4)]))
    x = gmrf.Interaction("x", (path, gmrf.Structure.walk(2)), sigma_of("x"), shape=(5, 2))
    space = gmrf.Intrinsic("space", path, sigma_of("space"))
    return x.ravel() + space[np.repeat(np.arange(5), 2)] + pm.Normal("a")


@model
def interaction_without_structures():
    x = gmrf.Interaction("x", (None, None), sigma_of("x"), shape=(5, 2))
    return x.T.ravel() + pm.Normal("a")


@model
def own_constraint():
    R = gmrf.Structure.walk(10, 1).R
    x = gmrf.Intrinsic("x", R, sigma_of("x"), constraint=np.eye(10)[[0, 4]])
    return x[::-1] * T + pm.Normal("a", 0, 2)


def built(name, likelihood=None):
    rng = np.random.default_rng(5)
    with pm.Model() as model:
        eta = MODELS[name]()
        if likelihood == "normal":
            pm.Normal(
                "y", eta, sigma_of("noise"), observed=pm.Data("y_data", rng.standard_normal(10))
            )
        else:
            pm.Poisson("y", pm.math.exp(eta), observed=pm.Data("y_data", np.arange(10) % 4))
    return model


@pytest.fixture(params=[LinearPredictor, SumPredictor])
def form(request, monkeypatch):
    """Each of the two that can read it."""
    is_sum = request.param is SumPredictor
    if not is_sum:
        monkeypatch.setattr(SumPredictor, "of", lambda setting: None)
    return request.param


FIELDS = [name for name in MODELS if name not in ("leroux_with_a_scale", "season_and_walk")]


@pytest.mark.fast("LinearPredictor-trend_with_a_line", "SumPredictor-interaction")
@pytest.mark.parametrize("name", FIELDS)
def test_what_is_read_is_what_pymc_says(name, form):
    read = lgm.read(built(name))
    assert isinstance(read.form, form)
    assert max(read.check(10).values()) < 1e-7


@pytest.mark.slow
@pytest.mark.parametrize("name", ["leroux_with_a_scale", "season_and_walk"])
def test_what_is_read_beside_others_is_what_pymc_says(name):
    read = lgm.read(built(name))
    assert max(read.check(10).values()) < 1e-7


def test_a_gaussian_sigma_is_a_hyperparameter():
    """It is no mean, although the field has no other parameter."""
    with pm.Model() as model:
        s = pm.Normal("s", 0.5, 1.0)
        x = gmrf.RandomWalk("x", 1, 2.0 * s, shape=10)
        pm.Poisson("y", pm.math.exp(x), observed=np.arange(10) % 4)
    read = lgm.read(model)
    assert read.theta_names == ("s",)
    assert max(read.check(5).values()) < 1e-7
    assert read.prior(np.array([-1.0])) is None


def error_of_evidence(name):
    model = built(name, "normal")
    ours, theirs = evidences(model, lgm.read(model))
    return np.abs(ours - theirs).max()


@pytest.mark.fast("SumPredictor-trend_with_a_line", "LinearPredictor-own_constraint")
@pytest.mark.parametrize("name", ["trend_with_a_line", "interaction", "own_constraint", "bym2"])
def test_the_evidence_is_that_of_brute_force(name, form):
    assert error_of_evidence(name) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "trend_with_a_line",
        *(
            pytest.param(name, marks=pytest.mark.whole)
            for name in MODELS
            if name != "trend_with_a_line"
        ),
    ],
)
def test_its_posterior_is_left_invariant(name):
    assert joint_law(lgm.PseudoMarginal, built(name), seed=7, replicates=300, steps=3).pvalue > 1e-5


@pytest.mark.whole
@pytest.mark.parametrize("name", MODELS)
@pytensor.config.change_flags(**COMPILED)
def test_the_default_agrees_with_nuts(name):
    model = built(name)
    names = [rv.name for rv in model.free_RVs]
    functions = [(each, power) for each in names for power in (free_elements, squares)]
    assert gap_to_nuts(model, functions) < 6


def free_elements(draws):
    """Draws of the elements that no constraint fixes."""
    return draws[..., draws.std((0, 1)) > 1e-9]


def squares(draws):
    return free_elements(draws) ** 2


@pytest.mark.parametrize("name", ["trend_with_a_line", "interaction"])
def test_the_gradient_of_an_evidence(name):
    check_gradient(lgm.read(built(name, "normal")), sets=False)


def test_a_copy_is_the_same_model_and_another_structure_is_another():
    one, two = (gmrf.Structure.walk(8, order) for order in (1, 2))
    assert one == gmrf.Structure.walk(8, 1) != two
    assert hash(one) == hash(pickle.loads(pickle.dumps(one)))
    models = []
    for structure in (one, one, two):
        with pm.Model() as model:
            x = gmrf.Intrinsic("x", structure, pm.HalfNormal("s"))
            pm.Poisson("y", pm.math.exp(x), observed=np.arange(8))
        models.append(model)
    prints = [fingerprint(each) for each in models]
    assert prints[0] == prints[1] != prints[2]
    copy = clone_model(models[0])
    assert max(lgm.read(copy).check(3).values()) < 1e-7
    assert lgm.read(pm.do(models[0], {"s": 1.0})).p == 0


def test_a_normal_sigma_is_no_mean():
    """It is the first parameter of the field, and was taken for its mean."""
    with pm.Model() as model:
        x = gmrf.RandomWalk("x", 1, pm.Normal("s", 5.0, 0.1), shape=5)
        pm.Poisson("y", pm.math.exp(x), observed=np.arange(5))
    read = lgm.read(model)
    assert list(read.latents) == ["x_constrained__"]
    assert max(read.check(3).values()) < 1e-7


def test_another_transform_is_refused():
    with pm.Model():
        x = gmrf.RandomWalk("x", 1, pm.HalfNormal("s"), shape=5, default_transform=None)
        pm.Poisson("y", pm.math.exp(x), observed=np.arange(5))
        with pytest.raises(ValueError, match="with a transform other than its own"):
            lgm.read()


# Wrong on purpose


WRONG = {
    "a determinant without its constraints": lambda patch: patch.setattr(
        ConstrainedFactor, "log_determinant", property(lambda self: self.base.log_determinant)
    ),
    "a power of sigma for each element": lambda patch: patch.setattr(
        ScaledFactor,
        "log_determinant",
        property(lambda self: self.base.log_determinant - 20.0 * math.log(self._scale)),
    ),
    "a pin that stays": lambda patch: patch.setattr(
        Structure, "update", property(lambda self: (np.zeros((self.n, 0)), np.zeros((0, 0))))
    ),
}


@pytest.mark.mutant
@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_algebra_of_constraints_is_noticed(wrong, monkeypatch, dies):
    WRONG[wrong](monkeypatch)
    dies(f"intrinsic: {wrong}", error_of_evidence("own_constraint"), above=1e-3)


# Input that cannot be


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: gmrf.Intrinsic.dist(np.triu(np.ones((3, 3)))),
            r"not symmetric: R\[0, 1\]",
        ),
        (lambda: gmrf.Intrinsic.dist(np.diag([1.0, -1.0])), "not positive semidefinite"),
        (lambda: gmrf.Intrinsic.dist(np.ones((2, 3))), r"shape \(2, 3\): it must be a square"),
        (lambda: gmrf.Intrinsic.dist(np.diag([1.0, np.nan])), "not finite"),
        (lambda: gmrf.Intrinsic.dist(np.zeros((2, 2))), "zero everywhere"),
        (lambda: gmrf.Intrinsic.dist(SMOOTH, constraint=np.ones(N)), "leave 1 of its directions"),
        (
            lambda: gmrf.Intrinsic.dist(SMOOTH, constraint=np.vstack([LINE, LINE[0]])),
            "1 of the 3 rows of constraint",
        ),
        (lambda: gmrf.Intrinsic.dist(SMOOTH, constraint=np.ones(3)), "3 elements|9 elements each"),
        (
            lambda: gmrf.Intrinsic.dist(SMOOTH, constraint=np.zeros(N)),
            "Row 0 of constraint is zero",
        ),
        (lambda: gmrf.Intrinsic.dist(np.eye(2), constraint=np.eye(2)), "leave nothing of 2"),
        (lambda: gmrf.Intrinsic.dist(SMOOTH, shape=4), r"shape is \(4,\), and the structure has 9"),
        (lambda: gmrf.Intrinsic.dist(SMOOTH, sigma=np.ones(3)), "a field has one number"),
        (lambda: gmrf.RandomWalk.dist(3, shape=9), "order 1 or 2"),
        (lambda: gmrf.RandomWalk.dist(2, shape=2), "needs 3 or more"),
        (lambda: gmrf.RandomWalk.dist(2), "write shape=n"),
        (lambda: gmrf.RandomWalk.dist(1, shape=(2, 9)), "is one vector"),
        (lambda: gmrf.RandomWalk.dist(1, locations=[0.0, 2.0, 2.0]), "2 is in locations twice"),
        (
            lambda: gmrf.RandomWalk.dist(1, locations=[0.0, 2.0, 1.0]),
            "not sorted: 2 comes before 1",
        ),
        (lambda: gmrf.RandomWalk.dist(1, locations=[0.0, np.nan, 1.0]), r"locations\[1\] is not"),
        (lambda: gmrf.RandomWalk.dist(1, locations=[0.0, 1.0], shape=3), "the walk has 3"),
        (
            lambda: gmrf.RandomWalk.dist(1, cyclic=True, locations=[0.0, 1.0, 2.0]),
            "cyclic walk has no locations",
        ),
        (lambda: gmrf.Seasonal.dist(12, shape=9), "9 elements, and the period is 12"),
        (
            lambda: gmrf.RandomWalk.dist(
                1, locations=np.array(["2020-01-01", "2020-03-01"], "datetime64[ns]")
            ),
            "locations are dates",
        ),
        (lambda: gmrf.Seasonal.dist(1, shape=9), "period is 1: it is a whole number, 2 or more"),
        (lambda: gmrf.Seasonal.dist(3.5, shape=9), "period is 3.5: it is a whole number"),
        (lambda: gmrf.Leroux("x", W, sigma=np.ones(len(W))), "sigma has 1 axis"),
        (lambda: gmrf.Leroux("x", W, rho=np.full(len(W), 0.5)), "rho has 1 axis"),
        (lambda: gmrf.Seasonal.dist(4), "write shape=n"),
        (lambda: gmrf.ICAR.dist(np.triu(W)), r"W is not symmetric"),
        (lambda: gmrf.ICAR.dist(-W), "negative"),
        (lambda: gmrf.ICAR.dist(np.eye(3)), "Area 0 is its own neighbor"),
        (lambda: gmrf.ICAR.dist(W[:3]), "square"),
        (lambda: gmrf.Interaction.dist((None, gmrf.Structure.walk(3))), "has no length"),
        (
            lambda: gmrf.Interaction.dist((None, gmrf.Structure.walk(3)), shape=(2, 4)),
            "An axis has 4 elements, and its structure 3",
        ),
        (lambda: gmrf.Interaction.dist((None,)), "two structures"),
        (lambda: gmrf.pc_prior("x"), "upper= of a standard deviation, or lower="),
        (lambda: gmrf.pc_prior("x", upper=1.0, alpha=1.0), "between 0 and 1"),
        (lambda: gmrf.pc_prior("x", upper=-1.0), "upper is -1.0: a positive"),
        (lambda: gmrf.pc_prior("x", lower=1.0, d=0), "d is 0"),
    ],
)
def test_input_that_cannot_be(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_large_structure_says_what_its_null_space_is():
    R = gmrf.Structure.walk(2500, 1).R
    with pytest.raises(ValueError, match="rows that span it, and no others"):
        gmrf.Intrinsic.dist(R)
    x = gmrf.Intrinsic.dist(R, constraint=np.ones(2500))
    close(x.owner.op.structure.log_determinant, math.log(2500))
    with pytest.raises(ValueError, match="all of its null space"):
        gmrf.Intrinsic.dist(gmrf.Structure.walk(2500, 2).R, constraint=np.ones(2500))
    assert gmrf.Intrinsic.dist(R + eye_array(2500)).owner.op.structure.rank == 2500


def test_an_eigenvalue_that_may_be_zero_is_asked_about():
    """Of a long walk of order 2: it was constrained in silence when zero was 1e-10."""
    R = gmrf.Structure.walk(1500, 2).R
    eigenvalues = np.diag([0.0, 1e-13, 1.0])
    with pytest.raises(ValueError, match="cannot be told by its eigenvalues"):
        gmrf.Intrinsic.dist(eigenvalues * np.array([1.0, 0.05, 1.0]))
    rows = np.vstack([np.ones(1500), np.arange(1500)])
    structure = gmrf.Intrinsic.dist(R, constraint=rows).owner.op.structure
    n = 1500.0
    close(structure.log_determinant, math.log(n**2 * (n**2 - 1) / 12), rtol=1e-6)
