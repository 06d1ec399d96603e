"""Classes whose processes are seen through inducing variables: expectations, and what samples."""

import itertools
import math

import arviz as az
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

from close import close
from models import QUICK, build, reading_once
from samplers import CASES, label
from scipy.special import log_softmax, logsumexp, ndtr, softmax
from scipy.stats import chisquare, multivariate_normal, norm
from test_inducing import X, Z, is_refused, matern, started
from toys import Toy, invariance_after

import pymc_lgm as lgm

from pymc_lgm.gaussian import InducingPrior
from pymc_lgm.gaussian.sites import SiteBlocks
from pymc_lgm.likelihoods import robust_max
from pymc_lgm.likelihoods.expectations import expected_log_sum, probability_of_largest
from pymc_lgm.likelihoods.robust_max import RobustMax
from pymc_lgm.testing import joint_test

pytestmark = pytest.mark.usefixtures("interpreted")

EPSILON = 0.02
MEAN = np.array([[0.3, -1.0, 0.5, 2.0], [0.6, 0.2, 0.4, -0.3], [-0.4, 0.1, 0.0, 1.4]])
VARIANCE = np.array([[0.2, 1.0, 0.01, 0.3], [0.3, 0.8, 0.02, 0.1], [0.4, 1.3, 0.01, 0.2]])
Y = np.array([0, 2, 1, 2])


def largest(y, mean, variance):
    """P(f_y > f_c for all other c): the distribution function of the differences."""
    others = [c for c in range(len(mean)) if c != y]
    cov = np.diag(variance[others]) + variance[y]
    return multivariate_normal.cdf(np.zeros(len(others)), mean[others] - mean[y], cov)


def product_rule(function, mean, variance, nodes):
    """E of a function of independent normals, by a product of Gauss-Hermite rules."""
    x, w = np.polynomial.hermite_e.hermegauss(nodes)
    at = [m + math.sqrt(v) * x for m, v in zip(mean, variance, strict=True)]
    weights = math.prod(np.ix_(*[w / w.sum()] * len(mean)))
    return float((weights * function(np.stack(np.meshgrid(*at, indexing="ij")))).sum())


# Expectations


@pytest.mark.fast("2")
@pytest.mark.parametrize("classes", [2, 3])
def test_the_probability_of_the_largest_is_that_of_an_orthant(classes):
    for i, y in itertools.product(range(4), range(classes)):
        mean, variance = MEAN[:classes, i], VARIANCE[:classes, i]
        ours = probability_of_largest(np.arange(classes) == y, mean, variance).eval()
        assert float(ours) == pytest.approx(largest(y, mean, variance), abs=2e-4)


def test_of_two_it_is_a_probit():
    mean, sd = np.array([0.3, -0.2]), 0.8
    ours = probability_of_largest(np.array([True, False]), mean, np.full(2, sd**2)).eval()
    assert float(ours) == pytest.approx(ndtr(0.5 / (math.sqrt(2.0) * sd)), abs=1e-7)


@pytest.mark.parametrize(("classes", "nodes"), [(1, 40), (2, 40), (3, 40), (4, 14), (5, 10)])
def test_the_expected_logarithm_of_a_sum(classes, nodes):
    rng = np.random.default_rng(classes)
    mean, variance = rng.standard_normal(classes), rng.uniform(0.1, 1.0, classes)
    right = product_rule(lambda f: logsumexp(f, axis=0), mean, variance, nodes)
    assert float(expected_log_sum(mean, variance).eval()) == pytest.approx(right, abs=1e-5)


def expected(likelihood, mean, variance, y):
    """The log densities of a model, as a graph of the moments of f."""
    options = {"epsilon": EPSILON} if likelihood is RobustMax else {}
    params = [pt.constant(value) for value in options.values()]
    return likelihood.expected_logp(
        pt.as_tensor(y), pt.moveaxis(mean, 0, -1), pt.moveaxis(variance, 0, -1), *params
    )


@pytest.mark.fast("RobustMax")
@pytest.mark.parametrize("likelihood", [RobustMax, lgm.Softmax])
def test_a_model_of_them_has_the_expectation_of_their_log_density(likelihood):
    options = {"epsilon": EPSILON} if likelihood is RobustMax else {}
    with pm.Model() as model:
        f = [lgm.gp.Projected(m, v) for m, v in zip(MEAN, VARIANCE, strict=True)]
        likelihood("y", f=f, observed=Y, **options)
    right = 0.0
    for y, mean, variance in zip(Y, MEAN.T, VARIANCE.T, strict=True):
        if likelihood is RobustMax:
            p = largest(y, mean, variance)
            right += p * math.log(1 - EPSILON) + (1 - p) * math.log(EPSILON / 2)
        else:
            right += product_rule(lambda f, y=y: log_softmax(f, axis=0)[y], mean, variance, 30)
    assert model.compile_logp(**QUICK)({}) == pytest.approx(right, abs=1e-3)
    with model:
        draws = pm.sample_prior_predictive(4000, random_seed=1, compile_kwargs=QUICK)
    drawn = draws.prior_predictive["y"].values[0, :, 0]
    p = np.array([largest(c, MEAN[:, 0], VARIANCE[:, 0]) for c in range(3)])
    p = (1 - EPSILON) * p + EPSILON / 2 * (1 - p)
    if likelihood is lgm.Softmax:
        p = np.array(
            [
                product_rule(lambda f, c=c: softmax(f, axis=0)[c], MEAN[:, 0], VARIANCE[:, 0], 30)
                for c in range(3)
            ]
        )
    assert chisquare(np.bincount(drawn, minlength=3), 4000 * p / p.sum()).pvalue > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("classes", [3, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize("likelihood", [RobustMax, lgm.Softmax])
def test_slopes_are_right_and_tails_finite(likelihood, classes):
    mean, variance = (pt.matrix(name, shape=(classes, 4)) for name in ("mean", "variance"))
    values = expected(likelihood, mean, variance, np.array([0, 1, 0, 2]))
    along = np.random.default_rng(3).standard_normal((2, classes, 4))
    slopes = pt.grad(values.sum(), [mean, variance])
    slope = pt.sum(slopes[0] * along[0]) + pt.sum(slopes[1] * along[1])
    curved = pt.grad(slope, [mean, variance])
    function = pytensor.function([mean, variance], [values, slope, *slopes, *curved], **QUICK)
    rng = np.random.default_rng(classes)
    at = np.stack([rng.standard_normal((classes, 4)), rng.uniform(0.2, 1.5, (classes, 4))])
    low, high = function(*(at - 1e-5 * along)), function(*(at + 1e-5 * along))
    _, slope, *_ = here = function(*at)
    assert (high[0] - low[0]).sum() / 2e-5 == pytest.approx(float(slope), rel=1e-6)
    for k in (2, 3):
        np.testing.assert_allclose((high[k] - low[k]) / 2e-5, here[k + 2], atol=1e-6)
    far = np.zeros((classes, 4))
    far[0] = [1000.0, 1000.0, -1000.0, 0.0]
    for spread in (1e-10, 1.0, 100.0):
        assert all(np.isfinite(x).all() for x in function(far, np.full_like(far, spread)))


@pytest.mark.mutant
@pytest.mark.parametrize("wrong", ["printed", "own"])
def test_a_wrong_expectation_of_a_robust_maximum_is_noticed(wrong, monkeypatch, dies):
    """The formula as printed, p log ε + ..., and f_y taken for its mean."""
    if wrong == "printed":
        monkeypatch.setattr(
            robust_max,
            "_log_density",
            lambda p, e, C: p * pt.log(e) + (1.0 - p) * pt.log(e / (C - 1)),
        )
    else:
        monkeypatch.setattr(
            robust_max,
            "probability_of_largest",
            lambda chosen, m, v: probability_of_largest(chosen, m, pt.switch(chosen, 1e-10, v)),
        )
    ours = expected(RobustMax, pt.as_tensor(MEAN), pt.as_tensor(VARIANCE), Y).eval()
    p = np.array([largest(*of) for of in zip(Y, MEAN.T, VARIANCE.T, strict=True)])
    right = p * math.log(1 - EPSILON) + (1 - p) * math.log(EPSILON / 2)
    dies(f"robust max: {wrong}", np.abs(ours - right).max(), above=0.01)


# The distribution of labels given f itself


def test_the_density_is_that_of_the_largest():
    y = np.array(list(itertools.product(range(3), repeat=4)))
    right = np.where(MEAN.argmax(axis=0) == y, math.log(1 - EPSILON), math.log(EPSILON / 2))
    close(pm.logp(RobustMax.dist(f=MEAN, epsilon=EPSILON), y).eval(), right)
    f = [pt.as_tensor(row) for row in MEAN]
    assert np.isneginf(pm.logp(RobustMax.dist(f=f), [3, -1, 0, 0]).eval()[:2]).all()


def test_draws_of_the_largest():
    f = np.repeat(MEAN[:, :1], 20_000, axis=1)
    drawn = pm.draw(RobustMax.dist(f=f, epsilon=0.3), random_seed=3)
    assert chisquare(np.bincount(drawn), 20_000 * np.array([0.15, 0.7, 0.15])).pvalue > 1e-3
    assert pm.draw(RobustMax.dist(f=MEAN, shape=(7, 4)), random_seed=3).shape == (
        7,
        4,
    )


def test_labels_have_dims_and_a_random_share_of_errors():
    with pm.Model(coords={"obs": np.arange(4)}) as model:
        share = pm.Beta("share", 1, 20)
        f = [lgm.gp.Projected(m, v) for m, v in zip(MEAN, VARIANCE, strict=True)]
        RobustMax("y", f=f, epsilon=share, observed=Y, dims="obs")
    assert model.named_vars_to_dims["y"] == ("obs",)
    slope = model.compile_dlogp(**QUICK)(model.initial_point())
    assert np.isfinite(slope).all()


@pytest.mark.parametrize(
    ("observed", "options", "message"),
    [
        ([0, 1, 3, 2], {}, r"observed\[2\] is 3.0 .*class from 0 to 2.*recode labels"),
        ([0, 1, -1, 2], {}, r"observed\[2\] is -1.0 .*class from 0 to 2.*recode labels"),
        ([0, 1, 0.5, 2], {}, r"observed\[2\] is 0.5 .*number of a class"),
        ([0, 1, 2], {}, "one value of f for each observation"),
        ([0, 1, 2, 1], {"epsilon": 0.0}, "between 0 and 1"),
        ([0, 1, 2, 1], {"epsilon": 1.5}, "between 0 and 1"),
        ([0, 0, 0, 0], {"f": [[0.0] * 4]}, "two classes or more"),
        ([0, 0, 0, 0], {"f": 0.5}, "RobustMax needs f of shape"),
        ([0, 0, 0, 0], {"f": np.zeros((4, 3))}, r"first axis of f, of length 4, .*write f\.T"),
    ],
)
def test_labels_that_cannot_be_are_refused(observed, options, message):
    for likelihood in (RobustMax,) if options else (RobustMax, lgm.Softmax):
        with pm.Model(), pytest.raises(ValueError, match=message):
            likelihood("y", observed=observed, **({"f": MEAN} | options))
        if "f" not in options:
            f = [lgm.gp.Projected(m, v) for m, v in zip(MEAN, VARIANCE, strict=True)]
            with pm.Model(), pytest.raises(ValueError, match=message):
                likelihood("y", observed=observed, f=f, **options)


def test_missing_labels_and_half_a_list_are_refused():
    f = [lgm.gp.Projected(m, v) for m, v in zip(MEAN, VARIANCE, strict=True)]
    with pm.Model(), pytest.raises(ValueError, match="missing values"):
        lgm.Softmax("y", f=f, observed=np.ma.MaskedArray(Y, [False, True, False, False]))
    with pm.Model(), pytest.raises(TypeError, match=r"all as lgm\.gp\.SparseLatent"):
        lgm.Softmax("y", f=[f[0], pt.as_tensor(MEAN[1]), f[2]], observed=Y)


# f = (V_1 v_1, V_2 v_2, V_3 v_3, v)


class SeenClasses(Toy):
    """Three observations of three classes, two inducing variables each, as softmax says."""

    prior_mean, prior_sd = np.array([0.2, 0.3]), np.array([0.4, 0.4])
    theta_names = ("ls_log__", "eta_log__")
    classes = False

    def __init__(self):
        super().__init__(3)
        self.n, self.enters_cov, self.amplitudes = 15, np.ones(2, dtype=bool), np.zeros(2)
        self.sets = np.full((9, 3), -1)
        self.sets[:3], self.sets[3:, 0] = np.arange(9).reshape(3, 3).T, np.arange(9, 15)
        self.y = np.array([0, 2, 1])

    def maps(self, theta):
        """A length-scale of its own for each class."""
        found = []
        for c, R in enumerate(self.roots(theta)):
            scale = math.exp(-theta[0]) * (1.0 + 0.5 * c)
            cross = 4.0 * math.exp(2.0 * theta[1]) * matern(scale * abs(Z[:, None] - X))
            found.append(np.ascontiguousarray(np.linalg.solve(R, cross).T))
        return found

    def roots(self, theta):
        found = []
        for c in range(3):
            scale = math.exp(-theta[0]) * (1.0 + 0.5 * c)
            K = matern(scale * abs(Z[:, None] - Z)) + 1e-6 * np.eye(2)
            found.append(2.0 * math.exp(theta[1]) * np.linalg.cholesky(K))
        return found

    def prior(self, theta):
        return InducingPrior.at(self, theta)

    def mean(self, theta):
        return np.zeros(15)

    def cov(self, theta):
        root = self.prior(theta).root
        return root @ root.T

    def draw(self, rng):
        theta = self.draw_theta(rng)
        f = self.prior(theta).multiply(rng.standard_normal(6))
        self.y = self.draw_y(rng, f, theta)
        return theta, f

    def draw_y(self, rng, f, theta):
        cumulative = softmax(f[:9].reshape(3, 3), axis=0).cumsum(axis=0)
        return (rng.uniform(size=3) > cumulative[:-1]).sum(axis=0)

    def site_log_likelihoods(self, rows, theta):
        rows = np.asarray(rows)
        of = log_softmax(rows[..., :9].reshape(*rows.shape[:-1], 3, 3), axis=-2)
        own = np.take_along_axis(of, np.broadcast_to(self.y, (*of.shape[:-2], 1, 3)), axis=-2)
        return np.concatenate([own[..., 0, :], np.zeros((*rows.shape[:-1], 6))], axis=-1)

    def log_likelihood(self, f, theta):
        return float(self.site_log_likelihoods(f, theta).sum())

    def likelihood_terms(self, f, theta):
        pi = softmax(f[:9].reshape(3, 3), axis=0)
        g = np.concatenate([(np.eye(3)[:, self.y] - pi).ravel(), np.zeros(6)])
        values = np.tile(np.eye(3), (9, 1, 1))
        values[3:, 0, 0] = 0.0
        values[:3] = pi.T[:, :, None] * np.eye(3) - pi.T[:, :, None] * pi.T[:, None, :]
        W = SiteBlocks(self.sets, values)
        return self.log_likelihood(f, theta), g, W, np.full(15, np.nan)


AT = np.array([0.2, 0.3])


def test_the_prior_of_several_processes_is_block_diagonal():
    toy, rng = SeenClasses(), np.random.default_rng(0)
    prior, root = toy.prior(AT), toy.prior(AT).root
    for c, V in enumerate(toy.maps(AT)):
        close(root[3 * c : 3 * c + 3, 2 * c : 2 * c + 2], V)
    assert np.count_nonzero(root) == 3 * 6 + 6
    v, g = rng.standard_normal(6), rng.standard_normal(15)
    close(prior.multiply(v), root @ v)
    close(prior.multiply_transposed(g), root.T @ g)
    close(prior.covariance_times(g), root @ root.T @ g)
    close(prior.variances, np.diag(root @ root.T))
    close(prior.solve(root @ v), v)
    assert prior.log_density(root @ v) == pytest.approx(norm.logpdf(v).sum())
    assert prior.log_density(root @ v + np.eye(15)[4]) == -math.inf
    assert prior.has_covariance_of(prior)
    assert not prior.has_covariance_of(toy.prior(AT))
    columns = rng.standard_normal((15, 4))
    close(prior.multiply_transposed(columns), root.T @ columns)


@pytest.mark.parametrize("blocks", [True, False])
def test_it_is_conditioned_on_blocks_and_on_a_diagonal(blocks):
    toy, rng = SeenClasses(), np.random.default_rng(1)
    prior, root = toy.prior(AT), toy.prior(AT).root
    if blocks:
        halves = rng.standard_normal((9, 3, 3))
        W = SiteBlocks.of_products(toy.sets, np.zeros((3, 15))).like(
            halves @ halves.swapaxes(1, 2) + 0.1 * np.eye(3)
        )
        W.values[3:, 0, 1:] = W.values[3:, 1:, 0] = 0.0
        dense = W.times(np.eye(15))
    else:
        W = rng.uniform(0.1, 2.0, 15)
        dense = np.diag(W)
    posterior, x = prior.condition(W), rng.standard_normal(15)
    inner = np.linalg.inv(np.eye(6) + root.T @ dense @ root)
    Sigma = root @ inner @ root.T
    close(posterior.covariance_times(x), Sigma @ x)
    close(posterior.log_determinant, -np.linalg.slogdet(inner)[1])
    close(posterior.variances, np.diag(Sigma))
    close(posterior.alpha(x), x - dense @ Sigma @ x)
    A = posterior.multiply(np.eye(6))
    close(A @ A.T, Sigma)
    if blocks:
        close(posterior.site_covariances[:3], Sigma[toy.sets[:3, :, None], toy.sets[:3, None]])


TAKEN = [case for case in CASES if not is_refused(case)]
FEW = [(lgm.EllipticalSlice, {"repeats": 2}), (lgm.ASIS, {}), (lgm.PseudoMarginal, {})]
"""Of f, of both, and of theta with f integrated out: tests/test_inducing.py has all samplers."""
assert all(case in TAKEN for case in FEW)

LEVEL = 1e-3 / len(TAKEN)


def classes_model(likelihood="Softmax", points=X, inducing=Z, y=(0, 2, 1), **options):
    """The toy in PyMC, with the variance of f given v beside it."""
    with pm.Model() as made:
        ls, eta = pm.LogNormal("ls", 0.2, 0.4), pm.LogNormal("eta", 0.3, 0.4)
        gps = [
            lgm.gp.SparseLatent(
                cov_func=(2.0 * eta) ** 2 * pm.gp.cov.Matern32(1, ls=ls / (1.0 + 0.5 * c))
            )
            for c in range(3)
        ]
        f = [gp.prior(f"f{c}", points[:, None], Xu=inducing[:, None]) for c, gp in enumerate(gps)]
        getattr(lgm.likelihoods, likelihood)("y", f=f, observed=list(y), **options)
    return made, gps


@pytest.fixture(scope="module")
def twin():
    return classes_model()[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=[pytest.mark.whole] * (case not in FEW)) for case in TAKEN],
    ids=label,
)
def test_a_tuned_step_leaves_the_joint_law_unchanged(case, twin):
    sampler, options = case
    elements = build(sampler, twin, **options).elements
    chain = started(elements, SeenClasses(), 3, 20)
    for result in invariance_after((1, 5), chain, replicates=100):
        assert result.pvalue > LEVEL, result


# The density of a PyMC model


def moments(c, theta, v):
    """Mean and variance of f_c given v, by hand."""
    scale, amplitude = (1.0 + 0.5 * c) * math.exp(-theta[0]), 2.0 * math.exp(theta[1])
    R = np.linalg.cholesky(amplitude**2 * matern(scale * abs(Z[:, None] - Z)) + 1e-6 * np.eye(2))
    A = np.linalg.solve(R, amplitude**2 * matern(scale * abs(Z[:, None] - X)))
    return A.T @ v, amplitude**2 - (A**2).sum(axis=0)


def by_hand(likelihood, theta, v):
    """Σ E log p(y_i | f_i), by hand."""
    found = [moments(c, theta, v[2 * c : 2 * c + 2]) for c in range(3)]
    mean, variance = (np.stack(of) for of in zip(*found, strict=True))
    total = 0.0
    for y, m, s in zip([0, 2, 1], mean.T, variance.T, strict=True):
        if likelihood == "RobustMax":
            p = largest(y, m, s)
            total += p * math.log(1 - EPSILON) + (1 - p) * math.log(EPSILON / 2)
        else:
            total += product_rule(lambda f, y=y: log_softmax(f, axis=0)[y], m, s, 30)
    return total


def point_of(theta, v):
    return {"ls_log__": theta[0], "eta_log__": theta[1]} | {
        f"f{c}_u_rotated_": v[2 * c : 2 * c + 2] for c in range(3)
    }


@pytest.fixture(
    scope="module", params=["RobustMax", pytest.param("Softmax", marks=pytest.mark.slow)]
)
def read(request):
    options = {"epsilon": EPSILON} if request.param == "RobustMax" else {}
    model, _ = classes_model(request.param, **options)
    ours = lgm.read(model, compile_kwargs=QUICK)
    return request.param, model, ours


def test_the_density_of_a_model_is_that_of_the_bound(read):
    likelihood, model, ours = read
    assert "f1 (3) seen through 2 inducing variables" in repr(ours)
    assert repr(ours).count("samples the optimal variational posterior") == 1
    assert ours.sets[:3].tolist() == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]
    assert (ours.n, ours.rank, ours.classes) == (15, 6, False)
    logp, rng = model.compile_logp(**QUICK), np.random.default_rng(5)
    points = [(rng.normal(0.2, 0.3, 2), rng.standard_normal(6)) for _ in range(3)]
    for theta, v in [*points, points[0], points[2]]:
        point = point_of(theta, v)
        f = ours.f_of(theta, point)
        value = ours.log_likelihood(f, theta)
        assert value == pytest.approx(by_hand(likelihood, theta, v), abs=3e-3)
        total = value + ours.prior(theta).log_density(f) + ours.log_prior(theta)
        assert total == pytest.approx(float(logp(point)), rel=1e-9)
        sites = ours.site_log_likelihoods(f[None], theta)
        assert sites.shape == (1, 9)
        assert sites.sum() == pytest.approx(value)
        assert not sites[0, 3:].any()
        back = ours.latents_of(rng, ours.prior(theta), f)
        for name, x in back.items():
            np.testing.assert_array_equal(x, point[name])


@pytest.mark.mutant
@pytest.mark.parametrize("read", ["RobustMax"], indirect=True)
@pytest.mark.parametrize("wrong", ["order", "stale"])
def test_maps_of_other_classes_are_noticed(read, wrong, monkeypatch, dies):
    """Each class has the V of its neighbor, or the variances are those of another theta."""
    likelihood, _, ours = read
    kept, v, theta = ours.form.at_theta, np.linspace(-1.0, 2.0, 6), np.array([0.4, -0.3])
    maps = kept.maps
    kept.place(np.zeros(2))
    if wrong == "order":
        monkeypatch.setattr(kept, "maps", lambda theta: maps(theta)[::-1])
    else:
        monkeypatch.setattr(kept, "place", lambda theta: None)
    f = ours.f_of(theta, point_of(theta, v))
    error = abs(ours.log_likelihood(f, theta) - by_hand(likelihood, theta, v))
    dies(f"sparse classes: {wrong}", error, above=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", ["RobustMax", "Softmax"])
def test_with_all_points_it_is_the_density_of_the_processes_themselves(likelihood):
    """Z = X, up to what jitter leaves of a variance; away from where two f cross."""
    sparse, _ = classes_model(likelihood, inducing=X)
    with pm.Model() as dense:
        ls, eta = pm.LogNormal("ls", 0.2, 0.4), pm.LogNormal("eta", 0.3, 0.4)
        f = [
            pm.gp.Latent(
                cov_func=(2.0 * eta) ** 2 * pm.gp.cov.Matern32(1, ls=ls / (1.0 + 0.5 * c))
            ).prior(f"f{c}", X[:, None])
            for c in range(3)
        ]
        getattr(lgm.likelihoods, likelihood)("y", f=f, observed=[0, 2, 1])
    one, other = sparse.compile_logp(**QUICK), dense.compile_logp(**QUICK)
    for v in np.random.default_rng(6).standard_normal((3, 3, 3)):
        theta = {"ls_log__": 0.1, "eta_log__": 0.3}
        ours = one(theta | {f"f{c}_u_rotated_": v[c] for c in range(3)})
        right = other(theta | {f"f{c}_rotated_": v[c] for c in range(3)})
        assert ours == pytest.approx(float(right), abs=1e-4)


# What samples f itself, which is flat, and what is refused


def dense_model():
    with pm.Model() as model:
        eta = pm.LogNormal("eta", 0.3, 0.4)
        f = [
            pm.MvNormal(f"f{c}", np.zeros(3), (1.0 + c) * eta * np.exp(-abs(X[:, None] - X)))
            for c in range(3)
        ]
        RobustMax("y", f=f, epsilon=0.2, observed=pm.Data("seen", [0, 2, 1]))
    return model


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{"sampler": lgm.PseudoMarginal}, {"latent_move": "hmc"}, {"move": "hmc"}]
)
def test_a_density_without_a_slope_is_refused_to_who_needs_it(options):
    model, options = dense_model(), dict(options)
    sampler = options.pop("sampler", lgm.ASIS)
    with pytest.raises(ValueError, match=r"Write (lgm\.ASIS|latent_move='slice'|move='slice')"):
        build(sampler, model, **options)


@pytest.mark.slow
def test_slices_sample_it():
    model = dense_model()
    step = build(lgm.ASIS, model)
    assert step.latent_move is None
    with reading_once():
        result = joint_test(step, model, replicates=60, steps=1, rng=np.random.default_rng(5))
    assert result.pvalue > 1e-3, result


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", ["RobustMax", "Softmax"])
def test_classes_are_predicted(likelihood):
    model, gps = classes_model(likelihood)
    rng = np.random.default_rng(3)
    posterior = {"ls": np.exp(0.3 * rng.normal(size=(1, 30))), "eta": np.ones((1, 30))}
    posterior |= {f"f{c}_u": rng.normal(size=(1, 30, 2)) for c in range(3)}
    idata = az.from_dict({"posterior": posterior})
    points = np.array([[0.1], [0.9]])
    tree = lgm.predict(idata, gps, points, model=model, progressbar=False, compile_kwargs=QUICK)[
        "predictions"
    ]
    found = [
        np.stack([tree[f"f{c}_conditional_{what}"].values[0] for c in range(3)], axis=1)
        for what in ("mean", "variance")
    ]
    xi = np.random.default_rng(5).standard_normal((2000, *found[0].shape))
    f = found[0] + np.sqrt(found[1]) * xi
    if likelihood == "Softmax":
        p = softmax(f, axis=2)
    else:
        p = np.moveaxis(np.eye(3)[f.argmax(axis=2)], -1, 2)
        p = 0.999 * p + 0.0005 * (1.0 - p)
    p = p.mean(axis=1)
    probability = tree["y_probability"]
    assert probability.dims == ("point", "category")
    error = np.abs(probability.values.T - p.mean(axis=0))
    assert (error < 5.0 * p.std(axis=0) / np.sqrt(len(p)) + 1e-4).all()
    np.testing.assert_allclose(probability.sum("category"), 1.0, atol=1e-12)


@pytest.mark.slow
def test_importance_draws_of_a_robust_maximum_are_refused_unless_asked_for():
    model, _ = classes_model("RobustMax")
    with pytest.raises(ValueError, match=r"not log-concave .* Write step="):
        build(lgm.PseudoMarginal, model)
    asked = build(lgm.PseudoMarginal, model, approximation="variational")
    assert asked.elements[-1].interweave is not None


def test_outputs_of_one_sparse_process_are_refused():
    gp = lgm.gp.SparseLatent(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0))
    with pm.Model(), pytest.raises(ValueError, match=r"For classes write a list"):
        gp.prior("f", X[:, None], Xu=Z[:, None], n_outputs=3)


@pytest.mark.slow
def test_processes_of_different_lengths_are_read_apart():
    """Two processes with observations of their own: nothing joins them."""
    with pm.Model() as model:
        eta = pm.HalfNormal("eta")
        for k, n in enumerate((3, 2)):
            gp = lgm.gp.SparseLatent(cov_func=eta**2 * pm.gp.cov.Matern32(1, ls=1.0))
            f = gp.prior(f"f{k}", X[:n, None], Xu=Z[:, None])
            lgm.Probit(f"y{k}", f=f, observed=[0, 1, 1][:n])
    ours = lgm.read(model, compile_kwargs=QUICK)
    assert (ours.n, ours.rank, ours.sets, ours.coupled) == (9, 4, None, None)
    build(lgm.PseudoMarginal, model)
