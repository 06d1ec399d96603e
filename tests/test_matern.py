"""Matérn fields on a mesh: triangles, finite elements, density, draws, reading and sampling."""

import pickle

from pathlib import Path

import arviz as az
import matplotlib as mpl
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import xarray as xr

from close import close, differences
from models import COMPILED, QUICK, gap_to_nuts, joint_law
from pytensor import sparse
from scipy.integrate import dblquad
from scipy.sparse import csc_matrix, csr_matrix
from scipy.special import k1
from scipy.stats import chi2, multivariate_normal

import pymc_lgm as lgm

from pymc_lgm import gmrf
from pymc_lgm.approximations.laplace import laplace
from pymc_lgm.gaussian.spde import FiniteElements, MaternFactor, OfMesh
from pymc_lgm.model.fingerprint import fingerprint
from pymc_lgm.model.forms.sum import SumPredictor
from pymc_lgm.state import AtTheta

pytestmark = pytest.mark.usefixtures("interpreted")

SQUARE = gmrf.Mesh([[0, 0], [1, 0], [1, 1], [0, 1]], [[0, 1, 2], [0, 2, 3]])
POINTS = np.random.default_rng(0).uniform(size=(12, 2))
SMALL = gmrf.Mesh.around(POINTS, max_edge=0.5, extension=0.3)
PAIRS = [(0.3, 1.0), (2.0, 0.2), (0.1, 7.0)]
"""Range and sigma: shorter than an edge, and longer than the mesh."""


def dense(mesh, reach, sigma):
    """Q by Lindgren, Rue and Lindström (2011), equation 10, of arrays."""
    kappa = np.sqrt(8.0) / reach
    tau = 1.0 / (np.sqrt(4.0 * np.pi) * kappa * sigma)
    C, G = mesh.C.toarray(), mesh.G.toarray()
    return tau**2 * (kappa**4 * C + 2.0 * kappa**2 * G + G @ np.linalg.inv(C) @ G)


# Meshes


def test_the_finite_elements_of_a_triangle():
    """Of (0, 0), (2, 0), (0, 1): by hand, psi = 1 - x/2 - y, x/2, y."""
    mesh = gmrf.Mesh([[0, 0], [2, 0], [0, 1]], [[0, 2, 1]])
    assert mesh.triangles.tolist() == [[0, 1, 2]]  # counterclockwise
    close(mesh.areas, [1.0])
    close(mesh.C.toarray(), np.eye(3) / 3.0)
    close(mesh.G.toarray(), [[1.25, -0.25, -1.0], [-0.25, 0.25, 0.0], [-1.0, 0.0, 1.0]])
    close(mesh.angles, [[90.0, np.degrees(np.arctan(0.5)), np.degrees(np.arctan(2.0))]])


def test_elements_of_a_mesh_sum_to_integrals():
    """Of 1, and of the squared slope of a linear function."""
    area = SMALL.areas.sum()
    close(SMALL.C.sum(), area)
    line = SMALL.vertices @ [2.0, -1.0] + 3.0
    close(line @ SMALL.G @ line, 5.0 * area)
    np.testing.assert_allclose(SMALL.G @ np.ones(SMALL.n), 0.0, atol=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_a_made_mesh_is_fine_inside_and_has_no_small_angle(seed):
    rng = np.random.default_rng(seed)
    points = rng.uniform(size=(30, 2)) * rng.uniform(0.3, 3.0, 2) + [5.0, -7.0]
    edge, extension = rng.uniform(0.05, 0.2), rng.uniform(0.1, 2.0)
    mesh = gmrf.Mesh.around(points, max_edge=edge, extension=extension)
    assert mesh.angles.min() > 25.0
    corners = mesh.vertices[mesh.locate(points)[0]]
    lengths = np.linalg.norm(corners - np.roll(corners, 1, axis=1), axis=2)
    assert lengths.max() < edge * (1 + 1e-9)
    # What is within the extension of a point is in the mesh.
    turn = np.linspace(0.0, 2.0 * np.pi, 17)
    around = points[:, None] + extension * np.stack([np.cos(turn), np.sin(turn)], axis=1)
    mesh.locate(around.reshape(-1, 2))
    # No hole and no overlap: the area is that of the hull.
    low, high = mesh.vertices.min(axis=0), mesh.vertices.max(axis=0)
    inside = rng.uniform(low, high, size=(400, 2))
    hull = gmrf.meshes.Delaunay(mesh.vertices).find_simplex(inside) >= 0
    mesh.locate(inside[hull])


def test_a_region_may_be_any_polygon_and_points_on_one_line():
    corner = [[0, 0], [2, 0], [2, 1], [1, 1], [1, 2], [0, 2]]  # an L
    mesh = gmrf.Mesh.around(np.zeros((0, 2)), boundary=corner, max_edge=0.1, extension=1.0)
    fine = np.flatnonzero(mesh.areas < 1.01 * mesh.areas.min())
    centers = mesh.vertices[mesh.triangles].mean(axis=1)
    inside = ((centers > 0) & (centers < 1)).all(axis=1)
    assert np.isin(np.flatnonzero(inside), fine).all()
    assert mesh.areas[np.linalg.norm(centers - 2.0, axis=1) < 0.2].min() > 2.0 * mesh.areas.min()
    line = np.column_stack([np.arange(5.0), np.zeros(5)])
    assert gmrf.Mesh.around(line, max_edge=0.5).angles.min() > 25.0


def test_predict_says_how_to_predict_a_field_on_a_mesh():
    with pm.Model() as model:
        u = gmrf.Matern("u", SMALL, range=1.0, sigma=1.0)
        pm.Poisson("y", pm.math.exp(SMALL.at(POINTS, u)), observed=np.ones(len(POINTS), dtype=int))
    idata = az.from_dict({"posterior": {"u": np.zeros((1, 1, SMALL.n))}})
    with pytest.raises(ValueError, match=r"Write mesh.at\(Xnew, idata.posterior\['u'\]\)"):
        lgm.predict(idata, u, POINTS, model=model)


def test_the_projector_is_exact_for_linear_functions():
    rng = np.random.default_rng(1)
    points = np.vstack([POINTS, SMALL.vertices, rng.uniform(-0.2, 1.2, (200, 2))])
    A = SMALL.projector(points)
    assert A.shape == (len(points), SMALL.n)
    assert A.data.min() >= 0.0
    close(A @ SMALL.vertices, points)
    close(A.sum(axis=1), np.ones(len(points)))
    u = rng.standard_normal((2, 3, SMALL.n))
    right = u @ A.toarray().T
    close(SMALL.at(points, u), right)
    close(SMALL.at(points, pt.constant(u)).eval(mode=QUICK["mode"]), right)


def test_draws_at_new_points_keep_their_coordinates():
    with pm.Model():
        gmrf.Matern("u", SMALL, range=1.0, sigma=1.0)
        prior = pm.sample_prior_predictive(5, random_seed=1, compile_kwargs=QUICK).prior
    at = SMALL.at(POINTS, prior["u"], dim="place")
    assert at.dims == ("chain", "draw", "place")
    assert at.name == "u"
    close(at.sel(chain=0, draw=3), SMALL.projector(POINTS) @ prior["u"].sel(chain=0, draw=3))
    assert lgm.spatial.exceedance(at, 0.0).sizes == {"place": 12}


def test_a_mesh_is_drawn():
    mpl.use("Agg")
    ax = SMALL.plot(points=POINTS, color="red")
    edges = SMALL.triangles[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2)
    count = len(np.unique(np.sort(edges, axis=1), axis=0))
    lines, _, shown = ax.lines
    assert np.isnan(lines.get_xdata()).sum() == count
    close(shown.get_xydata(), POINTS)


# The field


def error_of_family():
    """Largest error of elements, factor and log|Q|, against dense algebra, relative."""
    worst = 0.0
    for reach, sigma in PAIRS:
        kappa, tau = gmrf.kappa_and_tau(reach, sigma)
        family, Q = OfMesh(SMALL.elements), dense(SMALL, reach, sigma)
        at = family.at(np.array(kappa), np.array(tau))
        there = np.zeros(Q.shape)
        there[family.rows, family.columns] = there[family.columns, family.rows] = at.elements
        root = at.factor.multiply(np.eye(SMALL.n))
        gaps = [
            np.abs(there - Q).max() / np.abs(Q).max(),
            np.abs(root @ root.T - Q).max() / np.abs(Q).max(),
            abs(at.factor.log_determinant - np.linalg.slogdet(Q)[1]),
        ]
        worst = max(worst, *gaps)
    return worst


def test_the_family_is_that_of_dense_algebra():
    assert error_of_family() < 1e-8
    family = OfMesh(SMALL.elements)
    for bad in [(0.0, 1.0), (np.nan, 1.0), (1.0, -1.0), (1.0, np.inf), (1e200, 1.0), (1e100, 1.0)]:
        assert family.at(*map(np.array, bad)) is None


def test_the_derivatives_of_the_family():
    family, rng = OfMesh(SMALL.elements), np.random.default_rng(2)
    e = rng.standard_normal(family.rows.size)

    def weighed(values):
        at = family.at(*values)
        return e @ at.elements + 0.7 * at.factor.log_determinant

    at = np.array([2.0, 0.4])
    found = family.vjp(family.at(*at), e, np.zeros(family.n), 0.7)
    np.testing.assert_allclose(found, differences(weighed, at), rtol=1e-6)


def density(mode):
    """Range, sigma and x -> the log density and its gradient."""
    reach, sigma, x = pt.dscalar(), pt.dscalar(), pt.dvector()
    value = pm.logp(gmrf.Matern.dist(SMALL, range=reach, sigma=sigma), x)
    slopes = pytensor.grad(value, [reach, sigma, x])
    return pytensor.function([reach, sigma, x], [value, *slopes], mode=mode)


def check_density(mode):
    evaluated, rng = density(mode), np.random.default_rng(3)
    for reach, sigma in PAIRS:
        cov = np.linalg.inv(dense(SMALL, reach, sigma))
        x = rng.multivariate_normal(np.zeros(SMALL.n), cov)
        value, *slopes = evaluated(reach, sigma, x)
        normal = multivariate_normal(cov=0.5 * (cov + cov.T), allow_singular=True)
        close(value, normal.logpdf(x), rtol=1e-7)
        point = np.concatenate([[reach, sigma], x])
        step = 1e-6 * np.maximum(np.abs(point), 1e-3)
        right = [
            (evaluated(*apart(point + h * e))[0] - evaluated(*apart(point - h * e))[0]) / (2 * h)
            for h, e in zip(step[:4], np.eye(point.size), strict=False)
        ]
        np.testing.assert_allclose([*slopes[:2], *slopes[2][:2]], right, rtol=1e-5)


def apart(point):
    return point[0], point[1], point[2:]


def test_the_density_is_that_of_a_normal_vector():
    check_density(QUICK["mode"])


@pytest.mark.slow
def test_the_compiled_density_and_draws_are_the_same():
    check_density("NUMBA")
    with pm.Model():
        gmrf.Matern("u", SMALL, range=pm.LogNormal("range"), sigma=pm.LogNormal("sigma"))
        prior = pm.sample_prior_predictive(300, random_seed=1, compile_kwargs={"mode": "NUMBA"})
    draws = prior.prior.isel(chain=0)
    total = sum(
        x @ dense(SMALL, float(r), float(s)) @ x
        for x, r, s in zip(draws["u"].values, draws["range"], draws["sigma"], strict=True)
    )
    assert 1e-6 < chi2(300 * SMALL.n).cdf(total) < 1 - 1e-6


def test_a_density_is_checked():
    value = pm.logp(gmrf.Matern.dist(SMALL, range=pt.constant(-1.0), sigma=1.0), np.zeros(SMALL.n))
    with pytest.raises(pm.logprob.utils.ParameterValueError, match="range > 0"):
        value.eval(mode=QUICK["mode"])
    reach = pt.dscalar("reach")
    _, slope = gmrf.matern.LogDeterminant(SMALL)(reach)
    with pytest.raises(pytensor.gradient.NullTypeGradError, match="second derivative"):
        pytensor.grad(slope, reach)


def test_a_draw_has_the_precision():
    """The map from standard normal coordinates to draws is a root of the covariance."""
    op = gmrf.Matern.dist(SMALL, range=1.0, sigma=1.0).owner.op
    draws = op.rng_fn(np.random.default_rng(4), [1.0, 0.3, -1.0], [2.0, 1.0, 1.0], None)
    xi = np.random.default_rng(4).standard_normal((3, SMALL.n))
    for x, z, pair in zip(draws[:2], xi[:2], [(1.0, 2.0), (0.3, 1.0)], strict=True):
        close(x @ dense(SMALL, *pair) @ x, z @ z)
    assert np.isnan(draws[2]).all()


def test_the_covariance_is_that_of_matern():
    """In the middle of a wide mesh, and closer on a finer one."""
    reach, sigma, errors = 0.8, 1.3, []
    for edge in (0.2, 0.1):
        mesh = gmrf.Mesh.around([[-0.8, -0.8], [0.8, 0.8]], max_edge=edge, extension=1.5)
        kappa, tau = gmrf.kappa_and_tau(reach, sigma)
        factor = MaternFactor(mesh.elements, kappa, tau, mesh.elements.factorize(kappa))
        r = np.linalg.norm(mesh.vertices, axis=1)
        center = np.eye(mesh.n)[np.argmin(r)]
        cov = factor.solve_transposed(factor.solve(center))
        r = kappa * np.maximum(np.linalg.norm(mesh.vertices - center @ mesh.vertices, axis=1), 1e-9)
        near = r < kappa * 0.8
        errors.append(np.abs(cov / sigma**2 - r * k1(r))[near].max())
    assert errors[1] < 0.07
    assert errors[1] < 0.5 * errors[0]


def test_joint_pc_priors():
    """Fuglstad et al. (2019), theorem 2.6, in two dimensions: one density of range and sigma."""
    with pm.Model() as model:
        gmrf.pc_prior("range", lower=0.5, alpha=0.2)
        gmrf.pc_prior("sigma", upper=2.0, alpha=0.1)
    rates = -np.log(0.2) * 0.5, -np.log(0.1) / 2.0
    values = [model.rvs_to_values[model[name]] for name in ("range", "sigma")]
    logp = pytensor.function(values, model.logp(jacobian=False), mode=QUICK["mode"])

    def right(sigma, reach):
        return rates[0] * rates[1] * reach**-2.0 * np.exp(-rates[0] / reach - rates[1] * sigma)

    for reach, sigma in PAIRS:
        close(logp(np.log(reach), np.log(sigma)), np.log(right(sigma, reach)))
    # By 1/range, which is exponential.
    total, _ = dblquad(lambda s, v: right(s, 1.0 / v) / v**2, 0.0, 60.0, 0.0, 40.0)
    below, _ = dblquad(lambda s, v: right(s, 1.0 / v) / v**2, 2.0, 60.0, 0.0, 40.0)
    close([total, below], [1.0, 0.2], rtol=1e-6)


# Models


def binary(way="at", mesh=SMALL, points=POINTS):
    y = np.arange(len(points)) % 2
    A = mesh.projector(points)
    products = {
        "at": lambda u: mesh.at(points, u),
        "dense": lambda u: pt.dot(A.toarray(), u),
        "structured_dot": lambda u: sparse.structured_dot(
            sparse.as_sparse(csr_matrix(A)), u[:, None]
        )[:, 0],
        "sparse.dot": lambda u: sparse.dot(sparse.as_sparse(csc_matrix(A)), u),
    }
    with pm.Model() as model:
        reach = gmrf.pc_prior("range", lower=0.3, alpha=0.1)
        u = gmrf.Matern("u", mesh, range=reach, sigma=gmrf.pc_prior("sigma", upper=2.0))
        eta = pm.Normal("b0", 0, 2) + products[way](u)
        pm.Bernoulli("y", logit_p=eta, observed=pm.Data("y_data", y))
    return model


@pytest.mark.fast("at", "sparse.dot")
@pytest.mark.parametrize("way", ["at", "dense", "structured_dot", "sparse.dot"])
def test_every_product_is_read_as_a_sparse_sum(way):
    read = lgm.read(binary(way))
    assert isinstance(read.form, SumPredictor)
    assert [each.kind for each in read.form._readers] == ["matern", "independent"]
    assert read.form.layout.columns.size <= 4 * len(POINTS)
    assert max(read.check(5).values()) < 1e-8


@pytest.mark.fast("by sums of all")
@pytest.mark.parametrize("is_read", ["itself", "by sums of all"])
def test_a_field_that_leaves_nothing_sparse(is_read, monkeypatch):
    """The covariance is an inverse."""
    monkeypatch.setattr(SumPredictor, "of", lambda setting: None)
    with pm.Model() as model:
        u = gmrf.Matern("u", SMALL, range=pm.LogNormal("range"), sigma=pm.LogNormal("sigma"))
        of_all = np.cos(np.outer(np.arange(5), np.arange(SMALL.n)))
        eta = u if is_read == "itself" else pt.dot(of_all, u)
        pm.Poisson("y", pm.math.exp(eta), observed=np.arange(eta.type.shape[0]) % 3)
    read = lgm.read(model)
    assert not isinstance(read.form, SumPredictor)
    assert max(read.check(5).values()) < 1e-7


def test_a_field_that_densities_read_itself():
    with pm.Model() as model:
        u = gmrf.Matern("u", SMALL, range=pm.LogNormal("range"), sigma=0.7)
        pm.Poisson("y", pm.math.exp(u), observed=np.arange(SMALL.n) % 3)
    read = lgm.read(model)
    assert max(read.check(5).values()) < 1e-8


def test_a_field_beside_a_walk_is_one_sum():
    with pm.Model() as model:
        u = gmrf.Matern("u", SMALL, range=pm.LogNormal("range"), sigma=pm.LogNormal("sigma"))
        walk = gmrf.RandomWalk("walk", 2, pm.LogNormal("s"), shape=6)
        eta = pm.Normal("b0", 0, 2) + SMALL.at(POINTS, u) + walk[np.arange(12) // 2]
        pm.Poisson("y", pm.math.exp(eta), observed=np.arange(12) % 3)
    read = lgm.read(model)
    assert isinstance(read.form, SumPredictor)
    assert max(read.check(5).values()) < 1e-8


def test_equal_meshes_make_equal_models():
    again = gmrf.Mesh.around(POINTS, max_edge=0.5, extension=0.3)
    assert again == SMALL != SQUARE
    assert hash(again) == hash(pickle.loads(pickle.dumps(SMALL)))
    other = gmrf.Mesh(SMALL.vertices + 1e-9, SMALL.triangles)
    prints = [fingerprint(binary("at", mesh)) for mesh in (SMALL, again, other)]
    assert prints[0] == prints[1] != prints[2]


def test_a_range_that_is_not_positive_is_named():
    with pm.Model():
        u = gmrf.Matern("u", SMALL, range=pm.Normal("range", -5.0, 0.1), sigma=1.0)
        pm.Poisson("y", pm.math.exp(SMALL.at(POINTS, u)), observed=np.arange(12))
        message = "range or the sigma of 'u' is not positive and finite at the starting point"
        with pytest.raises(ValueError, match=message):
            lgm.read()


def test_the_evidence_is_that_of_dense_algebra():
    """Laplace's method is exact for normal noise."""
    y = np.random.default_rng(5).standard_normal(12)
    with pm.Model() as model:
        u = gmrf.Matern("u", SMALL, range=pm.LogNormal("range"), sigma=pm.LogNormal("sigma"))
        eta = pm.Normal("b0", 0, 2) + SMALL.at(POINTS, u)
        pm.Normal("y", eta, pm.LogNormal("noise"), observed=y)
    read = lgm.read(model)
    A = SMALL.projector(POINTS).toarray()
    for reach, sigma in PAIRS:
        theta = np.log([reach, sigma, 0.5])
        here = AtTheta.of(read, theta)
        q = here.approximation(lambda ell, prior: laplace(ell, prior, tolerance=1e-10))
        cov = A @ np.linalg.inv(dense(SMALL, reach, sigma)) @ A.T + 4.0 + 0.25 * np.eye(12)
        close(q.log_evidence, multivariate_normal(cov=cov).logpdf(y))


@pytest.mark.slow
def test_its_posterior_is_left_invariant():
    mesh = gmrf.Mesh.around(POINTS[:6], max_edge=1.0, extension=0.2)
    model = binary("at", mesh, POINTS[:6])
    assert joint_law(lgm.PseudoMarginal, model, seed=7, replicates=300, steps=3).pvalue > 1e-5


@pytest.mark.whole
@pytensor.config.change_flags(**COMPILED)
def test_the_default_agrees_with_nuts():
    functions = [("u", np.asarray), ("u", np.tanh), ("range", np.log), ("sigma", np.log)]
    assert gap_to_nuts(binary(), functions) < 6


@pytest.mark.slow
def test_the_section_of_the_documentation_runs():
    """With a coarse mesh and few draws."""
    mpl.use("Agg")
    page = (Path(__file__).parents[1] / "docs" / "which_sampler.md").read_text()
    code = page.split("fields on a mesh\n")[1].split("```python\n")[1].split("```")[0]
    few = "pm.sample(60, tune=60, chains=1, random_seed=1, progressbar=False, "
    code = code.replace("pm.sample(", few).replace("max_edge=8", "max_edge=20")
    names = {"lgm": lgm, "pm": pm, "np": np}
    exec(code, names)
    assert names["old"]["probability"].shape == (400,)
    assert 10.0 < float(names["idata"].posterior["range"].median()) < 45.0


# Wrong on purpose


def with_square(patch):
    precision = FiniteElements.precision

    def wrong(self, kappa, tau):
        return precision(self, kappa, tau) + tau**2 * (kappa**2 - kappa**4) * self.terms[0]

    patch.setattr(FiniteElements, "precision", wrong)


def without_kappa(patch):
    patch.setattr(
        MaternFactor,
        "log_determinant",
        property(lambda self: -2.0 * float(np.log(self._root).sum())),
    )


WRONG = {"kappa squared for its fourth power": with_square, "log|Q| without kappa": without_kappa}


@pytest.mark.mutant
@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_precision_is_noticed(wrong, monkeypatch, dies):
    WRONG[wrong](monkeypatch)
    dies(f"matern: {wrong}", error_of_family(), above=1e-3)


# Input that cannot be


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: gmrf.Mesh([[0, 0, 0]], [[0, 0, 0]]), r"vertices has shape \(1, 3\)"),
        (lambda: gmrf.Mesh([[0, 0], [1, np.nan]], [[0, 1, 1]]), r"vertices\[1\] is not finite"),
        (lambda: gmrf.Mesh([[0, 0], [1, 0], [0, 1]], [[0, 1]]), "a row of three vertices"),
        (lambda: gmrf.Mesh([[0, 0], [1, 0], [0, 1]], [[0, 1, 2.5]]), "integers that count from 0"),
        (lambda: gmrf.Mesh([[0, 0], [1, 0], [0, 1]], [[1, 2, 3]]), "counted from 0 to 2"),
        (
            lambda: gmrf.Mesh([[0, 0], [1, 0], [0, 1], [1, 0]], [[0, 1, 2], [0, 3, 2]]),
            r"Vertices 1 and 3 are the same point, \(1, 0\)",
        ),
        (lambda: gmrf.Mesh([[0, 0], [1, 0], [0, 1], [1, 1]], [[0, 1, 2]]), "Vertex 3 belongs to"),
        (
            lambda: gmrf.Mesh([[0, 0], [1, 0], [2, 0], [0, 1]], [[0, 1, 2], [0, 1, 3]]),
            r"Triangle 0, of the vertices \[0, 1, 2\], has no area",
        ),
        (
            lambda: gmrf.Mesh(
                [[0, 0], [1, 0], [0, 1], [0, 2], [0, 3]], [[0, 1, 2], [0, 1, 3], [0, 1, 4]]
            ),
            "between vertices 0 and 1 belongs to 3 triangles",
        ),
        (
            lambda: SQUARE.projector([[0.5, 0.5], [0.5, 1.01], [2, 2]]),
            r"2 of 3 points .*points\[1\], \(0.5, 1.01\).*\[0, 1\] x \[0, 1\]",
        ),
        (lambda: SQUARE.projector([0.5, 0.5]), r"points has shape \(2,\)"),
        (lambda: SQUARE.at([[0.5, 0.5]], np.zeros(3)), "has 3 elements, and the mesh 4 vertices"),
        (lambda: SQUARE.at([[0.5, 0.5]], pt.zeros(3)), "has 3 elements, and the mesh 4 vertices"),
        (lambda: gmrf.Mesh.around(POINTS, max_edge=0.0), "max_edge is 0.0: a positive length"),
        (lambda: gmrf.Mesh.around(POINTS, max_edge=0.1, extension=-1.0), "extension is -1.0"),
        (lambda: gmrf.Mesh.around(POINTS, max_edge=1e-5), "write a larger max_edge"),
        (
            lambda: gmrf.Mesh.around(POINTS, max_edge=0.02, extension=50.0, max_outer_edge=0.02),
            "larger max_outer",
        ),
        (lambda: gmrf.Mesh.around(np.zeros((0, 2)), max_edge=1.0), "no points: write boundary="),
        (
            lambda: gmrf.Mesh.around(POINTS, max_edge=1.0, boundary=[[0, 0]]),
            "boundary has 1 corner",
        ),
        (lambda: gmrf.Mesh.around([[0, 0]], max_edge=1.0), "one place: write extension="),
        (lambda: gmrf.Matern.dist(SQUARE, range=1.0, sigma=1.0, nu=0.5), "nu is 0.5"),
        (lambda: gmrf.Matern.dist(SQUARE, range=[1.0], sigma=1.0), r"range has 1 axis"),
        (lambda: gmrf.Matern.dist(SQUARE, range=1.0, sigma=1.0, shape=3), "leave out shape="),
        (lambda: gmrf.Matern.dist(SQUARE, range=1.0, sigma=1.0, size=3), "in a loop"),
    ],
)
def test_input_that_cannot_be(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_matrix_is_no_mesh():
    with pytest.raises(TypeError, match="mesh is a ndarray"):
        gmrf.Matern.dist(np.eye(3), range=1.0, sigma=1.0)
    with pm.Model(), pytest.raises(TypeError, match="points is a variable of a model"):
        SQUARE.at(pm.Data("places", [[0.5, 0.5]]), np.zeros(4))


def test_a_field_has_dims():
    with pm.Model(coords={"vertex": range(SMALL.n), "few": range(3)}) as model:
        u = gmrf.Matern("u", SMALL, range=1.0, sigma=1.0, dims="vertex")
        assert u.type.shape == (SMALL.n,)
        with pytest.raises(ValueError, match=r"The shape is \(3,\), and the mesh has"):
            gmrf.Matern("v", SMALL, range=1.0, sigma=1.0, dims="few")
    assert model.named_vars_to_dims["u"] == ("vertex",)


def test_the_last_axis_of_draws_is_that_of_the_vertices():
    """With as many chains as vertices, chains were taken for vertices."""
    square = lgm.gmrf.Mesh([[0, 0], [1, 0], [1, 1], [0, 1]], [[0, 1, 2], [0, 2, 3]])
    u = xr.DataArray(np.arange(32.0).reshape(4, 2, 4), dims=("chain", "draw", "vertex"))
    with pytest.raises(ValueError, match="The last axis of u is 'chain'"):
        square.at([[0.5, 0.25]], u.transpose("vertex", "draw", "chain"))
