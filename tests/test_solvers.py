"""Conjugate gradients for kernel systems, their preconditioners, and what is built on them."""

import math

import numpy as np
import pymc as pm
import pytest

from scipy import stats

import pymc_lgm as lgm

from pymc_lgm.approximations.laplace import laplace
from pymc_lgm.gaussian import DensePrior
from pymc_lgm.papers import solvers
from pymc_lgm.papers.iterative_laplace import jitter_of, laplace_by_solves
from pymc_lgm.papers.solvers import (
    KernelMatrix,
    KernelSystem,
    conjugate_gradients,
    lanczos,
    log_determinant,
    preconditioners,
)
from pymc_lgm.papers.solvers import kernel_matrix as kernel_matrices

pytestmark = pytest.mark.usefixtures("interpreted")

N = 150
X = np.random.default_rng(1).uniform(0, 4, (N, 2))


def k(a, b):
    """Squared exponential, of length-scale 1."""
    return np.exp(-0.5 * ((a[:, None] - b) ** 2).sum(-1))


K = k(X, X)


@pytest.fixture(params=["regression", "laplace"])
def system(request):
    """K + λ I, and B = I + W^½ K W^½."""
    kernel = KernelMatrix.of_points(k, X)
    if request.param == "regression":
        return KernelSystem(kernel, 0.01)
    return KernelSystem(kernel, 1.0, np.sqrt(10 * np.random.default_rng(2).uniform(size=N)))


def dense(system):
    s = np.ones(N) if system.scale is None else system.scale
    return system.shift * np.eye(N) + np.outer(s, s) * K


APPROXIMATIONS = {
    "nystrom": lambda kernel, rng: solvers.nystrom(kernel, 40, rng),
    "fitc": lambda kernel, rng: solvers.fitc(kernel, 40, rng),
    "pitc": lambda kernel, rng: solvers.pitc(kernel, 20, rng),
    "block_jacobi": lambda kernel, rng: solvers.block_jacobi(kernel, 40),
    "random_features": lambda kernel, rng: solvers.random_features(X, 60, rng),
    "randomized_svd": lambda kernel, rng: solvers.randomized_svd(kernel, 30, rng),
}
every_approximation = pytest.mark.parametrize("name", APPROXIMATIONS)


# Products


@pytest.mark.parametrize("at_once", [1, 1000, 10**6])
def test_a_product_in_blocks_is_the_product(rng, monkeypatch, at_once):
    """Rows one by one, in uneven blocks, and all together; what is held is no larger."""
    monkeypatch.setattr(kernel_matrices, "AT_ONCE", at_once)
    sizes = []

    def entries(rows, columns):
        block = K[rows][:, columns]
        sizes.append(block.size)
        return block

    kernel, V = KernelMatrix(entries, N, stored=False), rng.standard_normal((N, 3))
    np.testing.assert_allclose(kernel.times(V), K @ V, atol=1e-12)
    np.testing.assert_allclose(kernel.times(V[:, 0]), K @ V[:, 0], atol=1e-12)
    np.testing.assert_array_equal(kernel.diagonal, np.ones(N))
    assert kernel.products == 4
    assert max(sizes) <= max(at_once, N, 16**2)


def test_a_small_matrix_is_computed_once(rng):
    calls = []
    kernel = KernelMatrix(lambda rows, columns: calls.append(1) or K[rows][:, columns], N)
    for _ in range(3):
        kernel.times(rng.standard_normal(N))
    assert len(calls) == 1


# Preconditioners


@every_approximation
def test_a_preconditioner_is_what_it_says(rng, system, name):
    """P⁻¹ and log|P| of c I + S (Φ Φᵀ + R) S, by dense algebra."""
    approximation = APPROXIMATIONS[name](system.kernel, rng)
    P = approximation.preconditioner(system)
    R = approximation.remainder
    if not isinstance(R, np.ndarray):
        whole, start = np.zeros((N, N)), 0
        for block in R:
            whole[start : start + len(block), start : start + len(block)] = block
            start += len(block)
    else:
        whole = np.diag(R)
    s = np.ones(N) if system.scale is None else system.scale
    inner = approximation.Phi @ approximation.Phi.T + whole
    matrix = system.shift * np.eye(N) + np.outer(s, s) * inner
    V = rng.standard_normal((N, 2))
    np.testing.assert_allclose(matrix @ P.solve(V), V, atol=1e-8)
    assert P.log_determinant == pytest.approx(np.linalg.slogdet(matrix)[1], abs=1e-7)
    # (wᵀz)² / wᵀP w of normal z is χ² of one degree: the sum of 4000.
    w = rng.standard_normal(N)
    draws = (w @ P.draw(rng, 4000)) ** 2 / (w @ matrix @ w)
    pvalue = 2 * min(stats.chi2(4000).cdf(draws.sum()), stats.chi2(4000).sf(draws.sum()))
    assert pvalue > 1e-5


def test_what_an_approximation_keeps_is_that_of_the_matrix(rng):
    """FITC has K's diagonal, PITC and block Jacobi its blocks, and all of it with all points."""
    kernel = KernelMatrix.of_points(k, X)
    fitc = solvers.fitc(kernel, 20, rng)
    np.testing.assert_allclose((fitc.Phi**2).sum(1) + fitc.remainder, np.ones(N), atol=1e-8)
    pitc = solvers.pitc(kernel, 20, rng, size=32)
    blocks = pitc.Phi[32:64] @ pitc.Phi[32:64].T + pitc.remainder[1]
    np.testing.assert_allclose(blocks, K[32:64, 32:64], atol=1e-8)
    np.testing.assert_array_equal(solvers.block_jacobi(kernel, 32).remainder[1], K[32:64, 32:64])
    whole = solvers.nystrom(kernel, N, rng).Phi
    np.testing.assert_allclose(whole @ whole.T, K, atol=1e-6)
    values = np.sort(np.linalg.eigvalsh(K))[::-1]
    svd = solvers.randomized_svd(kernel, 10, rng, oversampling=20).Phi
    np.testing.assert_allclose(np.linalg.svd(svd)[1] ** 2, values[:10], rtol=1e-2)


@pytest.mark.parametrize("nu", [None, 2.5])
def test_random_features_have_the_covariance_as_their_mean(rng, nu):
    """Of pairs of points, over 400 sets of 20 features; a pair by its own standard error."""
    points = X[:6]
    cov = pm.gp.cov.ExpQuad(2, ls=1.0) if nu is None else pm.gp.cov.Matern52(2, ls=1.0)
    exact = 2.0 * cov(points).eval()
    sets = np.array(
        [
            (Phi := solvers.random_features(points, 20, rng, variance=2.0, nu=nu).Phi) @ Phi.T
            for _ in range(400)
        ]
    )
    above = np.triu_indices(6, 1)
    error = (sets.mean(0) - exact)[above]
    z = np.abs(error) / (sets.std(0, ddof=1)[above] / math.sqrt(400))
    assert 15 * stats.norm.sf(z.max()) * 2 > 1e-4


# Conjugate gradients


@every_approximation
def test_solutions_are_those_of_a_factorization(rng, system, name):
    P = APPROXIMATIONS[name](system.kernel, rng).preconditioner(system)
    b = rng.standard_normal((N, 3))
    solution = conjugate_gradients(system.times, b, P, rtol=1e-10)
    assert solution.converged
    np.testing.assert_allclose(solution.x, np.linalg.solve(dense(system), b), atol=1e-5)
    np.testing.assert_allclose(dense(system) @ solution.x, b, atol=1e-7)


def test_a_shifted_system_preconditions_by_an_iteration_of_its_own(rng, system):
    P, b = solvers.Shifted(system, 1.0), rng.standard_normal(N)
    alone = conjugate_gradients(system.times, b, rtol=1e-10)
    solution = conjugate_gradients(system.times, b, P, rtol=1e-10)
    np.testing.assert_allclose(solution.x, np.linalg.solve(dense(system), b), atol=1e-5)
    assert solution.iterations < alone.iterations < P.products
    with pytest.raises(ValueError, match=r"log\|P\| of Shifted is not known"):
        log_determinant(system.times, N, rng, P)
    with pytest.raises(NotImplementedError, match="no cheap draws"):
        P.draw(rng, 1)


def test_columns_are_solved_each_by_itself(rng):
    """One of zeros, one that is an eigenvector, one that is neither."""
    A = np.diag(np.linspace(1.0, 3.0, N))
    b = rng.standard_normal((N, 3))
    b[:, 0], b[:, 1] = 0.0, np.eye(N)[7]
    solution = conjugate_gradients(lambda V: A @ V, b, rtol=1e-9)
    np.testing.assert_allclose(A @ solution.x, b, atol=1e-8)
    iterations = np.isfinite(solution.alphas).sum(axis=0)
    np.testing.assert_array_equal(iterations[:2], [0, 1])
    assert iterations[2] == solution.iterations > 5
    assert solution.converged
    alone = conjugate_gradients(lambda V: A @ V, b[:, 2], rtol=1e-9)
    np.testing.assert_allclose(alone.x, solution.x[:, 2], atol=1e-12)


def test_what_cannot_be_solved_is_said(rng):
    b = rng.standard_normal(N)
    short = conjugate_gradients(lambda V: K @ V + 1e-2 * V, b, max_iterations=3)
    assert (short.iterations, short.converged) == (3, False)
    assert not conjugate_gradients(lambda V: np.linspace(-1, 1, N)[:, None] * V, b).converged
    assert not conjugate_gradients(lambda V: np.nan * V, b).converged
    assert conjugate_gradients(lambda V: V, np.zeros(N)).iterations == 0
    with pytest.raises(np.linalg.LinAlgError, match="not positive"):
        preconditioners.LowRankAndBlocks(np.zeros(N), np.zeros((N, 0)))


def count(kind=preconditioners.LowRankAndBlocks):
    """Iterations that Nyström's preconditioner needs for K + 0.01 I, and those without it."""
    rng, kernel = np.random.default_rng(4), KernelMatrix.of_points(k, X)
    system, b = KernelSystem(kernel, 1e-2), rng.standard_normal(N)
    Phi = solvers.nystrom(kernel, 40, rng).Phi
    P = kind(np.full(N, system.shift), Phi)
    return [conjugate_gradients(system.times, b, p, rtol=1e-8).iterations for p in (P, None)]


def test_a_preconditioner_saves_iterations():
    with_P, alone = count()
    assert with_P <= 12
    assert alone >= 50


class WithoutNoise(preconditioners.LowRankAndBlocks):
    """The mutant forgets λ in Woodbury's brackets."""

    def _whitened(self, x):
        return x if x is self.U else super()._whitened(x)


@pytest.mark.mutant
def test_a_preconditioner_without_the_noise_is_noticed(dies):
    """Woodbury's λ forgotten, as printed: right all the same, and slow."""
    dies("pcg: without lambda in Woodbury, iterations", count(WithoutNoise)[0], above=12)


# Log-determinants


@pytest.mark.parametrize("name", [None, "nystrom", "fitc", "randomized_svd"])
def test_a_log_determinant_is_unbiased_and_its_error_honest(system, name):
    """Thirty estimates: their mean, and their spread against the errors that they state."""
    assert _pvalue(lanczos, system, name) > 1e-5


def _pvalue(module, system, name):
    exact = np.linalg.slogdet(dense(system))[1]
    P, rng = None, np.random.default_rng(5)
    if name is not None:
        P = APPROXIMATIONS[name](system.kernel, rng).preconditioner(system)
    estimates = [
        module.log_determinant(system.times, N, rng, P, probes=12, rtol=1e-6) for _ in range(30)
    ]
    values = np.array([each.value for each in estimates])
    mean = stats.ttest_1samp(values, exact).pvalue
    stated = math.sqrt(np.mean([each.sd**2 for each in estimates]))
    # Both variances have a good many degrees of freedom; probes are not quite normal.
    assert 0.5 < values.std(ddof=1) / stated < 2.0
    return mean


@pytest.mark.mutant
def test_a_quadrature_without_squares_is_noticed(monkeypatch, dies):
    eigh = lanczos.eigh_tridiagonal

    def with_roots(*args):
        """The square of these first elements is |τ|."""
        values, vectors = eigh(*args)
        return values, np.sqrt(np.abs(vectors))

    monkeypatch.setattr(lanczos, "eigh_tridiagonal", with_roots)
    system = KernelSystem(KernelMatrix.of_points(k, X), 0.01)
    exact = np.linalg.slogdet(dense(system))[1]
    estimate = lanczos.log_determinant(system.times, N, np.random.default_rng(0))
    errors = abs(estimate.value - exact) / estimate.sd
    dies("pcg: weights of the quadrature not squared", errors, above=6)


def test_a_single_probe_has_no_error(rng):
    with pytest.raises(ValueError, match="at least two probes"):
        log_determinant(lambda V: V, 5, rng, probes=1)


# Laplace's method


def counts():
    rng = np.random.default_rng(6)
    y = rng.poisson(np.exp(np.sin(X[:, 0])))
    return lambda f: (float(y @ f - np.exp(f).sum()), y - np.exp(f), np.exp(f), -np.exp(f))


def errors():
    """Student's errors, whose W is negative far away: it is clipped."""
    y = np.sin(X[:, 0]) + 0.2 * np.random.default_rng(6).standard_t(2, N)

    def terms(f):
        e, nu, v = y - f, 4.0, 0.04
        u = nu * v + e**2
        value = -0.5 * (nu + 1) * np.log(u).sum()
        return float(value), (nu + 1) * e / u, (nu + 1) * (nu * v - e**2) / u**2, np.zeros(N)

    return terms


@pytest.mark.parametrize("likelihood", [counts, errors])
@pytest.mark.parametrize("name", [None, "nystrom", "pitc"])
def test_the_mode_and_the_evidence_are_those_of_factorizations(rng, likelihood, name):
    mean, terms = np.full(N, 0.3), likelihood()
    kernel = KernelMatrix.of_points(lambda a, b: k(a, b) + 1e-6 * (a[:, None] == b).all(-1), X)
    if name is None:
        preconditioned = lambda system: solvers.Identity(N)  # noqa: E731
    else:
        preconditioned = APPROXIMATIONS[name](kernel, rng).preconditioner
    ours = laplace_by_solves(terms, mean, kernel, preconditioned, rng, probes=24)
    prior = DensePrior(mean, K + 1e-6 * np.eye(N))
    exact = laplace(terms, prior, tolerance=1e-14)
    exact = laplace(terms, prior, start=exact.center, tolerance=1e-14)
    assert ours.converged
    np.testing.assert_allclose(ours.center, exact.center, atol=3e-3)
    np.testing.assert_allclose(kernel.times(ours.alpha), ours.center - mean, atol=1e-8)
    # Student's t of 23 degrees of freedom, of six comparisons.
    z = (ours.log_evidence - exact.log_evidence) / ours.log_evidence_sd
    assert abs(z) < stats.t(23).isf(1e-5)
    variances = 1.0 + 1e-6 - ours.reduction(kernel.columns(np.arange(0, N, 7)))
    np.testing.assert_allclose(variances, exact.posterior.variances[::7], atol=1e-3)


def test_a_likelihood_that_is_not_finite_has_no_mode(rng):
    kernel, terms = KernelMatrix.of_points(k, X), counts()
    where = solvers.nystrom(kernel, 40, rng).preconditioner
    bad = lambda f: (math.nan, *terms(f)[1:])  # noqa: E731
    assert laplace_by_solves(bad, np.zeros(N), kernel, where, rng) is None


def poisson(noise=0.0, **how):
    y = np.random.default_rng(6).poisson(np.exp(np.sin(X[:, 0])))
    with pm.Model() as model:
        mu, ls = pm.Normal("mu"), pm.LogNormal("ls", shape=2)
        cov = pm.gp.cov.Matern52(2, ls=ls)
        if noise:
            cov = cov + pm.gp.cov.WhiteNoise(noise)
        gp = pm.gp.Latent(mean_func=pm.gp.mean.Constant(mu), cov_func=cov)
        f = gp.prior("f", X, **{"reparameterize": False, "jitter": 1e-5} | how)
        pm.Poisson("y", mu=pm.math.exp(f), observed=y)
    return model, gp


POINT = {"mu": 0.2, "ls": [0.8, 1.6]}


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_a_model_is_read_block_by_block(noise):
    """K with its jitter and white noise, the evidence within its error, predictions."""
    model, gp = poisson(noise)
    exact = lgm.laplace(model)
    theta = exact._scale.theta_of(POINT)
    evidence = lgm.papers.laplace_by_pcg(gp, model, random_seed=3)
    assert repr(evidence) == "IterativeEvidence(laplace, latent=f (150), theta=[mu, ls])"
    cov = exact.lgm.cov(theta)
    kernel = evidence.kernel(POINT)
    kernel.stored = False
    np.testing.assert_allclose(kernel.times(np.eye(N)), cov, atol=1e-12)
    some = np.array([3, 0, 149])
    np.testing.assert_allclose(kernel.entries(slice(0, 9), some), cov[:9, some], atol=1e-12)
    mode = evidence.at(POINT)
    z = (mode.log_evidence - exact.log_evidence(POINT)) / mode.log_evidence_sd
    assert abs(z) < stats.t(15).isf(1e-5)
    assert 0.0 < mode.log_evidence_sd < 0.5
    assert evidence.log_evidence(POINT) == mode.log_evidence  # the same random numbers
    assert mode.converged
    assert mode.products > mode.iterations
    # By dense algebra: Rasmussen and Williams, eqs. (3.21) and (3.24).
    q = exact._approximate(theta)
    new = np.array([[0.5, 0.5], [2.0, 3.0]])
    cross = pm.gp.cov.Matern52(2, ls=POINT["ls"])(X, new).eval()
    means, variances = mode.predict(new)
    np.testing.assert_allclose(means, 0.2 + cross.T @ q.alpha, atol=1e-3)
    inner = np.linalg.inv(cov + np.diag(1 / q.precision))
    own = 1.0 + noise**2 - np.einsum("ij,ij->j", cross, inner @ cross)
    np.testing.assert_allclose(variances, own, atol=1e-3)
    assert mode.predict(new, variance=False)[1] is None


@pytest.mark.slow
def test_a_surface_has_errors(rng):
    model, gp = poisson()
    evidence = lgm.papers.laplace_by_pcg(gp, model, random_seed=1, rank=30, preconditioner="svd")
    surface = evidence.surface({"mu": [0.0, 0.5]}, at={"ls": [1.0, 1.0]})
    assert surface.dims == ("mu",)
    mode = evidence.at({"mu": 0.5, "ls": [1.0, 1.0]})
    assert float(surface[1]) == mode.log_evidence
    assert mode.log_evidence_sd > 0.0
    other = lgm.papers.laplace_by_pcg(gp, model, random_seed=2, rank=30, preconditioner="svd")
    assert other.log_evidence({"mu": 0.5}) != evidence.log_evidence({"mu": 0.5})
    plain = lgm.papers.laplace_by_pcg(gp, model, preconditioner=None, random_seed=1)
    difference = plain.at({"mu": 0.5, "ls": [1.0, 1.0]}).log_evidence - mode.log_evidence
    assert abs(difference) < 8 * plain.at({"mu": 0.5, "ls": [1.0, 1.0]}).log_evidence_sd


@pytest.mark.slow
def test_theta_is_fitted_as_by_factorizations():
    """The gradient is by differences with the same random numbers on both sides."""
    model, gp = poisson()
    start, options = POINT, {"maxiter": 4}
    found = lgm.papers.laplace_by_pcg(gp, model, random_seed=1).fit(start=start, **options)
    right = lgm.laplace(model).fit(start=start, **options)
    assert found.f_variance is None
    np.testing.assert_allclose(found.f_mean, right.f_mean, atol=0.1)
    for name, value in right.point.items():
        np.testing.assert_allclose(found.point[name], value, rtol=0.1)


def test_a_covariance_that_is_no_number_has_no_evidence():
    with pm.Model() as model:
        eta = pm.Normal("eta")
        gp = pm.gp.Latent(cov_func=pm.math.log(1.0 + eta) * pm.gp.cov.ExpQuad(2, ls=1.0))
        f = gp.prior("f", X, reparameterize=False)
        pm.Normal("y", f, observed=np.zeros(N))
    evidence = lgm.papers.laplace_by_pcg(gp, model)
    assert math.isnan(evidence.log_evidence({"eta": -2.0}))
    surface = evidence.surface({"eta": [-2.0, 1.0]})
    np.testing.assert_array_equal(np.isnan(surface), [True, False])


@pytest.mark.slow
def test_the_covariance_is_never_made(monkeypatch):
    """Of n rows that are more than are stored: no part of K that is computed is half of it."""
    monkeypatch.setattr(kernel_matrices, "STORED", 100)
    monkeypatch.setattr(kernel_matrices, "AT_ONCE", N * 20)
    model, gp = poisson()
    evidence = lgm.papers.laplace_by_pcg(gp, model, rank=20)
    graphs, k_ = evidence.lgm.graphs, evidence._k
    sizes = []

    def spied(*arguments):
        sizes.append(len(arguments[0]) * len(arguments[1]))
        return k_(*arguments)

    evidence._k = spied
    assert evidence.at(POINT).converged
    assert max(sizes) <= N * 20 < N * N / 2
    assert "cov" not in vars(graphs)
    assert "_prior_at" not in vars(evidence.lgm)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (lambda model, gp: {"gp": None}, r"pass the process"),
        (lambda model, gp: {"gp": gp, "preconditioner": "ski"}, r"Choose from 'nystrom'"),
        (lambda model, gp: {"gp": gp, "probes": 1}, r"at least two"),
        (lambda model, gp: {"gp": gp, "rank": 151}, r"between 1 and n = 150"),
        (lambda model, gp: {"gp": poisson()[1]}, r"not a variable of this model"),
    ],
)
def test_what_cannot_be_done_is_refused(what, message):
    model, gp = poisson()
    with pytest.raises(ValueError, match=message):
        lgm.papers.laplace_by_pcg(model=model, **what(model, gp))


@pytest.mark.slow
def test_other_models_are_refused():
    model, gp = poisson(reparameterize=True)
    with pytest.raises(ValueError, match="reparameterize=False"):
        lgm.papers.laplace_by_pcg(gp, model)
    model, gp = poisson()
    with pytest.raises(ValueError, match="Xnew has shape"):
        lgm.papers.laplace_by_pcg(gp, model).at(POINT).predict([1.0])
    with pm.Model() as model:
        gp = pm.gp.Latent(cov_func=pm.gp.cov.ExpQuad(2, ls=1.0))
        f = gp.prior("f", X, reparameterize=False, n_outputs=2)
        pm.Normal("y", f, observed=np.zeros((2, N)))
    with pytest.raises(ValueError, match="is for one process"):
        lgm.papers.laplace_by_pcg(gp, model)
    with pm.Model() as model:
        gp = pm.gp.Latent(cov_func=pm.gp.cov.ExpQuad(2, ls=1.0))
        f = gp.prior("f", X, reparameterize=False)
        pm.Potential("y", -(f.sum() ** 2))
    with pytest.raises(ValueError, match="read f one element at a time"):
        lgm.papers.laplace_by_pcg(gp, model)


def test_the_jitter_of_a_process_is_read_from_its_graph():
    model, _ = poisson(jitter=1e-4)
    assert jitter_of(model["f"]) == 1e-4
    with pm.Model():
        f = pm.MvNormal("f", mu=np.zeros(2), cov=np.eye(2))
        g = pm.MvNormal("g", mu=np.zeros(2), cov=np.eye(2) + pm.HalfNormal("s") * np.ones((2, 2)))
    assert jitter_of(f) is None
    assert jitter_of(g) is None
