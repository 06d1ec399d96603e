"""Observations that read several f_i: which, their curvature in blocks, and variational sites."""

from functools import partial

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

from close import close, differences
from models import QUICK, joint_law
from pytensor.compile.mode import Mode, get_mode
from test_predictor import COUPLED, T, X, build, process, read, shared

import pymc_lgm as lgm

from pymc_lgm.approximations.importance import Coordinates, Proposal, Scheme, importance_sample
from pymc_lgm.approximations.laplace import laplace
from pymc_lgm.approximations.quadrature import at_nodes, nodes_of_sets
from pymc_lgm.approximations.site_coordinates import InSets
from pymc_lgm.approximations.sites import Sites
from pymc_lgm.approximations.variational import (
    LEAST_EIGENVALUE,
    evidence_gradient,
    variational,
)
from pymc_lgm.gaussian import Posterior
from pymc_lgm.gaussian.sites import (
    SiteBlocks,
    are_nonnegative,
    cholesky_factors,
    congruent,
    eigenvalues,
)
from pymc_lgm.state import AtTheta

pytestmark = pytest.mark.usefixtures("quick")


def at(name, theta=None):
    ours = read(name)
    return AtTheta.of(ours, np.full(ours.p, 0.1) if theta is None else theta)


def from_pymc(build, **kwargs):
    with pm.Model() as model:
        build()
    return lgm.read(model, compile_kwargs=QUICK, **kwargs)


def mean_with_noise_and_counts():
    """Two observations of f and g together, and counts that read f alone."""
    f, g = process(), process("g", rows=T[:2])
    pm.Normal("y", f[:2], pm.math.exp(g), observed=[0.3, -0.2])
    pm.Poisson("z", pm.math.exp(f[1:]), observed=[1, 2])


def noise_of_many():
    """One noise for all of twenty observations."""
    f, g = process(rows=np.arange(20.0)[:, None]), process("g", rows=T[:1])
    pm.Normal("y", f, pm.math.exp(g[0]), observed=np.zeros(20))


def switched():
    k = pm.Bernoulli("k", 0.5)
    f = process()
    pm.Normal("y", f[0], pm.math.exp(pm.math.switch(k, f[1], f[2])), observed=0.5)


@pytest.mark.fast("mean_and_noise-sets0", "classes_with_kernels_of_their_own-sets4")
@pytest.mark.parametrize(
    ("name", "sets"),
    [
        ("mean_and_noise", [[0, 4], [1, 5], [2, 6], [3, 7]]),
        ("classes", [[0, 1, 2], [3, 4, 5], [6, 7, 8]]),
        ("mean_and_noise_of_groups", [[0, 3], [1, 4], [2, 5]]),
        ("whitened_classes", [[0, 1, 2], [3, 4, 5], [6, 7, 8]]),
        ("classes_with_kernels_of_their_own", [[0, 1, 2], [3, 4, 5], [6, 7, 8]]),
        ("two_processes", None),
    ],
)
def test_which_elements_are_read_together(name, sets):
    found = read(name).sets
    assert found is None if sets is None else found.tolist() == sets


@pytest.mark.slow
def test_sets_of_different_sizes_are_filled_up():
    ours = from_pymc(mean_with_noise_and_counts)
    assert sorted((ours.sets >= 0).sum(axis=1)) == [1, 2, 2]
    here = AtTheta.of(ours, np.full(ours.p, 0.1))
    q = variational(here.likelihood, here.prior)
    W = q.precision.times(np.eye(5))
    sigma = np.linalg.inv(np.linalg.inv(here.prior.covariance_times(np.eye(5))) + W)
    close(q.posterior.variances, np.diag(sigma))
    assert q.converged
    assert (W != 0.0).sum() == 9


def scaled():
    """A process that another one scales: neither is read where the other is zero."""
    f, g = process(mean=0.0), process("g", mean=0.0)
    pm.Normal("y", f * pm.math.exp(g), 0.3, observed=[0.3, -0.2, 0.1])


def multiplied():
    f, g = process(mean=0.0), process("g", mean=0.0)
    pm.Normal("y", f * g, 0.3, observed=[0.3, -0.2, 0.1])


@pytest.mark.slow
@pytest.mark.parametrize("build", [scaled, multiplied])
def test_a_factor_that_is_zero_at_the_mean_hides_nothing(build):
    ours = from_pymc(build)
    assert ours.sets.tolist() == [[0, 3], [1, 4], [2, 5]]
    here = AtTheta.of(ours, np.zeros(ours.p))
    f = np.array([0.5, -0.4, 0.8, 0.2, 0.7, -0.3])
    W = here.likelihood(f)[2].times(np.eye(6))
    close(W, -differences(lambda x: here.likelihood(x)[1], f), 1e-6)
    assert variational(here.likelihood, here.prior) is not None


def coefficient():
    """One that begins at zero, where the likelihood reads nothing."""
    f, beta = process(mean=0.0), pm.Normal("beta")
    pm.Normal("y", beta * pm.math.sigmoid(f), 0.3, observed=[0.3, -0.2, 0.1])


def one_of_two():
    f, g, beta = process(mean=0.0), process("g", mean=0.0), pm.Normal("beta")
    pm.Normal("y", f + beta * pm.math.sigmoid(g), 0.3, observed=[0.3, -0.2, 0.1])


@pytest.mark.slow
def test_a_coefficient_that_begins_at_zero_hides_nothing():
    ours = from_pymc(coefficient)
    assert ours.coupled is None
    rows, theta = np.array([[0.5, -0.4, 0.8]]), np.full(ours.p, 0.7)
    each = ours.site_log_likelihoods(rows, theta)
    assert each.shape == (1, 3)
    moved = ours.site_log_likelihoods(rows + np.array([0.0, 1.0, 0.0]), theta)
    assert ((moved != each) == np.array([[False, True, False]])).all()
    assert not ours.is_log_concave
    assert from_pymc(one_of_two).sets.tolist() == [[0, 3], [1, 4], [2, 5]]


GROUPS = np.arange(30) % 2


def noise_by_group(group, *, whitened=False, flat=False):
    f = process(rows=np.arange(30.0)[:, None], reparameterize=whitened)
    log_sd = pm.Normal("log_sd", shape=int(group.max()) + 1)
    if flat:
        log_sd = log_sd * pm.HalfFlat("scale")
    pm.Normal("y", f, pm.math.exp(log_sd[group]), observed=np.zeros(30))


def elsewhere_by_group():
    noise_by_group(np.arange(30) // 3)
    pm.Poisson("z", pm.math.exp(pm.Normal("level", shape=2)[GROUPS]), observed=GROUPS)


@pytest.mark.fast("flat")
@pytest.mark.parametrize(
    ("build", "latents"),
    [
        (partial(noise_by_group, GROUPS), ("f",)),
        (partial(noise_by_group, GROUPS, whitened=True), ("f_rotated_",)),
        (partial(noise_by_group, GROUPS, flat=True), ("f",)),
        (partial(noise_by_group, np.arange(30) // 3), ("f", "log_sd")),
        (elsewhere_by_group, ("f", "log_sd", "level")),
    ],
    ids=["two groups", "whitened", "flat", "of three", "of another likelihood"],
)
def test_effects_that_many_observations_share_beside_f_are_hyperparameters(build, latents):
    assert from_pymc(build).latents == latents


@pytest.mark.slow
def test_sets_without_end_are_refused():
    assert from_pymc(noise_of_many).sets is None
    with pm.Model():
        noise_of_many()
        with pytest.raises(ValueError, match=r"joins more than 12 elements .* write lgm\.ASIS"):
            lgm.PseudoMarginal(compile_kwargs=QUICK)


@pytest.mark.slow
def test_what_a_discrete_variable_may_choose_is_read():
    assert from_pymc(switched, latent="f").sets.tolist() == [[0, 1, 2]]


@pytest.mark.fast("mean_and_noise", "mean_and_noise_of_groups")
@pytest.mark.parametrize("name", sorted(COUPLED))
def test_the_curvature_in_blocks_is_the_hessian(name):
    here = at(name)
    f = here.prior.mean + 0.3
    value, g, W, _ = here.likelihood(f)
    assert value == pytest.approx(here.log_likelihood(f))
    close(g, differences(here.log_likelihood, f), 1e-6)
    close(W.times(np.eye(f.size)), -differences(lambda x: here.likelihood(x)[1], f), 1e-6)


@pytest.mark.fast("mean_and_noise", "mean_and_noise_of_groups", "classes_with_kernels_of_their_own")
@pytest.mark.parametrize("name", sorted(COUPLED))
def test_log_densities_are_those_of_the_sets(name):
    here = at(name)
    rows = here.prior.mean + np.random.default_rng(2).standard_normal((5, here.prior.n))
    values, sets = here.likelihood.sites(rows), here.likelihood.sets
    close(values.sum(axis=1), here.log_likelihoods(rows))
    moved = rows.copy()
    moved[:, sets[1, 0]] += 0.5
    changed = here.likelihood.sites(moved) != values
    assert changed[:, 1].all()
    assert not np.delete(changed, 1, axis=1).any()


@pytest.mark.parametrize("s", [1, 2, 3, 4, 5, 9])
def test_nodes_have_the_moments_of_a_normal(s):
    x, w = nodes_of_sets(s)
    np.testing.assert_allclose(w @ x, np.zeros(s), atol=1e-12)
    close((w[:, None] * x).T @ x, np.eye(s), 1e-6)
    close(w @ x[:, -1] ** 4, 3.0, 1e-5)


@pytest.mark.parametrize(("s", "sets", "nodes"), [(3, 150, 216), (3, 900, 19), (2, 10**5, 25)])
def test_hundreds_of_sets_of_classes_have_fewer_nodes(s, sets, nodes):
    x, w = nodes_of_sets(s, sets)
    assert len(x) == len(w) == nodes
    close((w[:, None] * x).T @ x, np.eye(s), 1e-6)


@pytest.mark.parametrize("s", [1, 2, 3])
def test_products_of_small_blocks_are_those_of_numpy(s):
    rng = np.random.default_rng(s)
    A, M = rng.standard_normal((2, 5, s, s))
    M, V = M + M.swapaxes(1, 2), A @ A.swapaxes(1, 2) + np.eye(s)
    C, inverse = cholesky_factors(V)
    close(C, np.linalg.cholesky(V))
    close(inverse, np.linalg.inv(C))
    close(congruent(A, M), A.swapaxes(1, 2) @ M @ A)
    close(eigenvalues(M), np.linalg.eigvalsh(M))
    assert np.isnan(cholesky_factors(-V)[0]).any(axis=(1, 2)).all()


def test_blocks_of_sets_that_are_filled_up_are_parts_of_a_matrix():
    sets, rng = np.array([[2, 0], [1, -1]]), np.random.default_rng(0)
    values = rng.standard_normal((2, 2, 2))
    W = SiteBlocks(sets, values + values.swapaxes(1, 2))
    whole = np.zeros((3, 3))
    whole[np.ix_(sets[0], sets[0])], whole[1, 1] = W.values[0], W.values[1, 0, 0]
    x = rng.standard_normal((3, 4))
    close(W.times(x), whole @ x)
    close(W.times(x[:, 0]), whole @ x[:, 0])
    close(W.diagonal(W.values), np.diagonal(whole))
    center, nodes = rng.standard_normal(3), rng.standard_normal((4, 2))
    C = np.tril(W.values)
    found = at_nodes(center, sets, C, nodes)
    close(found[:, sets[0]], center[sets[0]] + nodes @ C[0].T)
    close(found[:, 1], center[1] + nodes @ C[1, 0])


def test_a_block_that_rounding_makes_singular_has_no_covariance():
    """Such a W was an error that ended a chain: a search now rejects it like any other failure."""
    sets, values = np.array([[0, 1], [2, 3]]), np.array([np.full((2, 2), 1e20), np.eye(2)])
    values[0, 0, 0] += 1e-4
    found = SiteBlocks(sets, values).covariances(0.25 * np.eye(4))
    assert np.isnan(found[0]).all()
    close(found[1], 0.75 * np.eye(2))


def test_only_blocks_with_a_negative_eigenvalue_are_raised():
    """A block of zeros, as of elements that nothing reads, stays; so do padded ones."""
    sets = np.array([[0, 1], [2, 3], [4, 5], [6, -1], [7, -1]])
    values = np.array([[[2.0, 1.0], [1.0, 2.0]], np.zeros((2, 2)), [[1.0, 2.0], [2.0, 1.0]]])
    padded = np.array([np.diag([-3.0, 1.0]), np.diag([0.0, 1.0])])
    W = SiteBlocks(sets, np.concatenate([values, padded]))
    assert are_nonnegative(W.values).tolist() == [True, True, False, False, True]
    raised = W.at_least(0.0, np.ones(8))
    np.testing.assert_array_equal(raised.values[[0, 1, 4]], W.values[[0, 1, 4]])
    close(raised.values[2], np.full((2, 2), 1.5))
    close(raised.values[3], np.diag([0.0, 1.0]))
    assert raised.at_least(-1e-9, np.ones(8)) is raised


def test_sites_of_a_mean_and_its_noise_have_a_closed_form():
    """With V the covariance of (f, g) under q, E = exp(2 V_gg − 2 g) and e = y − f + 2 V_fg."""
    here = at("mean_and_noise")
    q = variational(here.likelihood, here.prior, tolerance=1e-9, max_iterations=300)
    assert q.converged
    # The log sd comes first in the frontier.
    V, (g, f) = q.posterior.site_covariances, q.center.reshape(2, 4)
    E, e = np.exp(2 * V[:, 0, 0] - 2 * g), X[:, 0] - f + 2 * V[:, 0, 1]
    squares = e**2 + V[:, 1, 1]
    slope = np.concatenate([squares * E - 1.0, e * E])
    W = np.array([[2 * squares * E, 2 * e * E], [2 * e * E, E]]).transpose(2, 0, 1)
    # An expected curvature may be negative, and sites are not.
    asked = SiteBlocks(here.likelihood.sets, W).at_least(
        LEAST_EIGENVALUE, np.sqrt(here.prior.variances)
    )
    close(q.precision.values, asked.values, 1e-3)
    close(q.sites.nu, slope + q.precision.times(q.center - q.mean), 1e-3)


def estimated(here, search):
    """q, and an estimate of the evidence by many of its draws."""
    q = search(here.likelihood, here.prior, tolerance=1e-6)
    scheme, proposal = Scheme(40_000, antithetic=False), Proposal.of(q, here.likelihood)
    coordinates = Coordinates.fresh(np.random.default_rng(4), proposal, scheme)
    return q, importance_sample(proposal, here.log_likelihoods, coordinates, scheme).estimate


def apart(one, other):
    """Two estimates, in standard errors of their difference."""
    sd = np.hypot(one.log_evidence_sd, other.log_evidence_sd)
    return abs(one.log_evidence - other.log_evidence) / sd


@pytest.mark.fast("classes_with_kernels_of_their_own")
@pytest.mark.parametrize("name", ["classes", "classes_with_kernels_of_their_own"])
def test_the_bound_is_below_the_evidence_and_its_weights_vary_little(name):
    here = at(name)
    q, ours = estimated(here, variational)
    _, other = estimated(here, laplace)
    assert apart(ours, other) < 4
    assert ours.log_evidence_sd < other.log_evidence_sd
    assert 0.0 < ours.log_evidence - q.log_evidence < 0.1


@pytest.mark.parametrize(
    "name", [pytest.param("classes", marks=pytest.mark.slow), "mean_and_noise"]
)
def test_the_gradient_of_the_bound(name):
    theta = np.full(read(name).p, 0.1)

    def fitted(theta):
        here = at(name, theta)
        return here, variational(here.likelihood, here.prior, tolerance=1e-12, max_iterations=300)

    here, q = fitted(theta)
    gradient = evidence_gradient(
        q,
        likelihood_gradient=lambda rows, w: here.model.log_likelihoods_theta_gradient(
            rows, theta, w
        ),
    )
    expected = differences(lambda t: np.array(fitted(t)[1].log_evidence), theta)
    # Blocks are kept from being singular, which moves the bound's maximum a little.
    np.testing.assert_allclose(gradient, expected, atol=2e-3)


@pytest.mark.slow
@pytensor.config.change_flags(**QUICK)
@pytest.mark.parametrize("name", ["classes", "classes_with_kernels_of_their_own"])
def test_laplaces_evidence_of_classes(name):
    """Its value by dense algebra at the mode, its gradient by differences; a fit climbs it."""
    evidence = lgm.laplace(build(name))
    theta = np.full(evidence.lgm.p, 0.1)
    value, gradient = evidence._value_and_gradient(theta, prior=False)
    here = at(name)
    q = laplace(here.likelihood, here.prior, tolerance=1e-16)
    f = q.center
    K, W = here.prior.covariance_times(np.eye(f.size)), here.likelihood(f)[2].times(np.eye(f.size))
    z = f - here.prior.mean
    determinant = np.linalg.slogdet(np.eye(f.size) + K @ W)[1]
    expected = here.log_likelihood(f) - 0.5 * z @ np.linalg.solve(K, z) - 0.5 * determinant
    assert value == pytest.approx(expected)
    close(gradient, differences(lambda t: np.array(evidence._value(t, prior=False)), theta), 1e-6)
    assert evidence.fit().converged


@pytest.mark.slow
def test_laplaces_slope_where_theta_is_in_the_likelihood_of_sets():
    """Of a mean and its noise in a t density: K, ℓ, g and W change with theta."""

    def heavy_tails():
        f, g = process(rows=X), process("g", rows=X, mean=-0.5)
        nu = pm.Gamma("nu", 9, 1)
        pm.StudentT("y", nu=nu, mu=f, sigma=pm.math.exp(g), observed=[0.3, -0.2, 0.1, 0.2])

    ours = from_pymc(heavy_tails)
    f = np.array([0.2, -0.1, 0.2, 0.1, -0.3, -0.4, -0.2, -0.5])
    rng = np.random.default_rng(3)
    v, M = rng.standard_normal(8), rng.standard_normal((4, 2, 2))
    M += M.swapaxes(1, 2)

    def total(theta, f=f):
        value, g, W, _ = ours.likelihood_terms(f, theta)
        return np.array(value + v @ g + (M * W.values).sum())

    theta = np.full(ours.p, 0.2)
    close(ours.likelihood_terms_vjp(f, theta, v, M), differences(total, theta), 1e-6)

    def of_curvature(f):
        return np.array((M * ours.likelihood_terms(f, theta)[2].values).sum())

    close(ours.curvature_gradient(f, theta, M), differences(of_curvature, f), 1e-6)


@pytest.mark.slow
def test_a_class_without_data_is_no_trouble():
    with pm.Model() as model:
        lgm.Softmax("y", f=[process(f"f{c}") for c in range(3)], observed=[0, 1, 1])
    here = AtTheta.of(lgm.read(model, compile_kwargs=QUICK), np.zeros(3))
    q = variational(here.likelihood, here.prior)
    assert q.converged
    of_class = q.center[here.likelihood.sets].mean(axis=0)
    assert of_class.argmin() == 2


def test_coordinates_of_sites_are_a_bijection():
    rng = np.random.default_rng(1)
    sets = np.array([[0, 2, 4], [1, 3, -1]])
    A = rng.standard_normal((2, 3, 3))
    W = SiteBlocks(sets, np.zeros((2, 3, 3))).at_least(0.3, np.ones(5))
    values = np.where(W.filling, np.eye(3), A @ A.swapaxes(1, 2) + W.values)
    sites = Sites(rng.standard_normal(5), SiteBlocks(sets, values))
    coordinates = InSets(sets)
    s = coordinates.of(sites, None)
    back = coordinates.sites(s, trusted=True)
    close(back.nu, sites.nu)
    close(back.precision.values, values)
    # Whatever the numbers are, they are sites: precisions are positive.
    anywhere = coordinates.sites(rng.standard_normal(s.size), trusted=False)
    assert np.linalg.eigvalsh(anywhere.precision.values).min() > 0.0


@pytest.mark.slow
def test_expectation_propagation_is_refused():
    with build("classes"), pytest.raises(ValueError, match=r"approximation='ep' needs"):
        lgm.PseudoMarginal(approximation="ep", compile_kwargs=QUICK)


@pytest.mark.slow
def test_it_is_exact():
    """By Laplace's method."""
    options = {"approximation": "laplace", "n_importance": 4}
    how = {"compiled": False, "options": options, "replicates": 300}
    assert joint_law(lgm.PseudoMarginal, shared("classes"), **how).pvalue > 1e-4


def flipped(W):
    """Cross-curvature with a wrong sign."""
    return SiteBlocks(W.sets, (2.0 * np.eye(W.sets.shape[1]) - 1.0) * W.values)


def elsewhere(W):
    """Sites of other observations."""
    return SiteBlocks(np.roll(W.sets, 1, axis=0), W.values)


@pytest.mark.mutant
@pytest.mark.parametrize("wrong", [flipped, elsewhere])
def test_wrong_blocks_are_noticed(wrong, monkeypatch, dies):
    """In the weights of draws, which are columns, and not in the draws."""
    times, here = Posterior.precision_times, at("mean_and_noise")
    right = estimated(here, variational)[1]
    monkeypatch.setattr(
        Posterior,
        "precision_times",
        lambda self, x: wrong(self.precision).times(x) if x.ndim == 2 else times(self, x),
    )
    mutated = estimated(here, variational)[1]
    dies(f"sets: {wrong.__name__}", apart(right, mutated), above=10)


@pytest.mark.mutant
def test_a_hessian_of_other_sets_is_noticed(monkeypatch, dies):
    here = at("mean_and_noise")
    f = here.prior.mean + 0.3
    expected = -differences(lambda x: here.likelihood(x)[1], f)
    monkeypatch.setitem(here.model.__dict__, "_colors", here.model._colors[::-1].copy())
    error = np.abs(here.likelihood(f)[2].times(np.eye(f.size)) - expected).max()
    dies("sets: columns of other elements", error, above=0.01)


def occupancy():
    """A site is occupied or not, and an occupied one is not always seen to be."""
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=6), rng.normal(size=(6, 3))
    seen = rng.integers(0, 2, (6, 3)) * np.array([1, 0, 1, 1, 0, 1])[:, None]
    with pm.Model() as model:
        b, a = pm.Normal("b", 0.0, 1.5, shape=2), pm.Normal("a", 0.0, 1.5, shape=2)
        occupied = b[0] + b[1] * x + pm.Normal("e", 0.0, pm.HalfNormal("s"), shape=6)
        detected = a[0] + a[1] * w
        of_seen = (seen * detected - pt.softplus(detected)).sum(1)
        pm.Potential(
            "y", pm.math.logaddexp(-pt.softplus(-occupied) + of_seen, -pt.softplus(occupied))
        )
    return model


@pytest.mark.slow
def test_repetitions_of_repeated_arrays_are_no_shape_error():
    """PyTensor took a length that it did not know yet to be 1 for a wrong one."""
    fast = Mode("py", get_mode("FAST_RUN").excluding("fusion", "inplace").provided_optimizer)
    terms = []
    for kwargs in ({"mode": fast}, QUICK):
        ours = lgm.read(occupancy(), compile_kwargs=kwargs)
        f = np.linspace(-1.0, 1.0, ours.n)
        terms.append(ours.likelihood_terms(f, np.array([0.1])))
    (value, gradient, W, _), others = terms
    close(value, others[0])
    close(gradient, others[1])
    close(W.values, others[2].values)
