"""`pymc.MvNormal` with a sparse ``tau``: by the elements of its precision."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.sparse as ps
import pytensor.tensor as pt
import pytest

from close import close
from models import QUICK, joint_law
from scipy import stats
from scipy.sparse import csc_matrix
from scipy.special import logit
from test_sets import from_pymc

import pymc_lgm as lgm

from pymc_lgm.gaussian import DensePrior, SumPrior
from pymc_lgm.model.sparse_precision import as_sparse_precision

pytestmark = pytest.mark.usefixtures("quick")

N = 30
"""Areas in two rows of fifteen, numbered across."""
W = np.zeros((N, N))
for i in range(N):
    for j in (i + 2, *((i + 1,) if i % 2 == 0 else ())):
        if j < N:
            W[i, j] = W[j, i] = 1.0
D = np.diag(W.sum(axis=0))
DISTANCE = np.abs(np.arange(N)[:, None] - np.arange(N))
Y = np.random.default_rng(3).poisson(2.0, size=N)


def sparse(A):
    return ps.dense_from_sparse(ps.as_sparse_variable(csc_matrix(A)))


WRITTEN = {
    "D - alpha W": lambda alpha, tau: tau * (D - alpha * W),
    "sparse constants": lambda alpha, tau: (sparse(D) - alpha * sparse(W)) * tau,
    "diag and eye": lambda alpha, tau: pt.diag(D.sum(0) * tau) - alpha * W * tau + pt.eye(N),
    "transposed": lambda alpha, tau: 0.5 * (tau * (D - alpha * W) + (tau * (D - alpha * W)).T),
    "divided": lambda alpha, tau: -(pt.sqr(alpha) * W - D) / tau,
    "by rows": lambda alpha, tau: (np.ones(N) * tau)[:, None] * (D - alpha * W) * tau,
    "weights by distance": lambda alpha, tau: D * 2.0 - W * pt.exp(-alpha * pt.constant(DISTANCE)),
    "one constant": lambda alpha, tau: 3.0 * D - W,
}


def numbers():
    return pm.Beta("alpha", 3, 2), pm.Gamma("tau", 6, 4)


@pytest.mark.parametrize("written", WRITTEN)
def test_elements_are_those_of_tau(written):
    with pm.Model():
        alpha, tau = numbers()
        precision = pt.as_tensor(WRITTEN[written](alpha, tau))
        phi = pm.MvNormal("phi", np.zeros(N), tau=precision)
    law = as_sparse_precision(phi)
    assert law is not None
    pattern = law.family(N).pattern
    assert pattern.rows.size == N + np.count_nonzero(W) // 2
    outputs = [precision, *law.reads]
    both = pytensor.function([alpha, tau], outputs, on_unused_input="ignore", **QUICK)
    whole, lower, upper = both(0.4, 1.7)
    rows, columns = pattern.places
    np.testing.assert_allclose(lower, whole[rows, columns], rtol=1e-14)
    np.testing.assert_allclose(upper, whole[columns, rows], rtol=1e-14)
    seen = np.zeros((N, N), dtype=bool)
    seen[rows, columns] = seen[columns, rows] = True
    assert not whole[~seen].any()


DENSE = {
    "zeros that depend on theta": lambda alpha, tau: D - pt.switch(alpha > 0.5, W, W @ W),
    "a full matrix": lambda alpha, tau: pt.exp(-alpha * pt.constant(DISTANCE)) + tau * np.eye(N),
    "a product of matrices": lambda alpha, tau: pt.dot(tau * (D - alpha * W), D),
    "a function that is not zero at zero": lambda alpha, tau: pt.cosh(alpha * W) + D,
    "a reciprocal": lambda alpha, tau: pt.reciprocal(alpha * W) + D,
    "a logarithm": lambda alpha, tau: D - pt.log(alpha * W),
    "a reciprocal of a full matrix": lambda alpha, tau: pt.reciprocal(1.0 + alpha * DISTANCE),
    "divided by zeros": lambda alpha, tau: D / (alpha * W),
    "a triangle alone": lambda alpha, tau: tau * (D - alpha * np.tril(W)),
    "numbers that can be set": lambda alpha, tau: tau * (D - alpha * pm.Data("weights", W)),
    "few areas": lambda alpha, tau: (tau * (D - alpha * W))[:6, :6],
}


@pytest.mark.parametrize("written", DENSE)
def test_what_is_not_seen_to_be_sparse_is_dense(written):
    with pm.Model():
        precision = pt.as_tensor(DENSE[written](*numbers()))
        phi = pm.MvNormal("phi", np.zeros(precision.type.shape[0] or N), tau=precision)
    assert as_sparse_precision(phi) is None


@pytest.mark.fast("0.3")
@pytest.mark.parametrize("alpha", [0.3, 0.7])
def test_a_pattern_that_depends_on_theta_has_the_density_of_a_dense_one(alpha, rng):
    """Neighbors of neighbors count where alpha is below a half."""

    def tau(alpha, scale):
        return scale * (8.0 * np.eye(N) - pt.switch(alpha > 0.5, W, 0.3 * (W @ W)) * alpha)

    ours = from_pymc(lambda: counts(tau))
    theta = ours.theta_of({"alpha_logodds__": logit(alpha), "tau_log__": np.array(0.2)})
    Q = np.exp(0.2) * (8.0 * np.eye(N) - alpha * (W if alpha > 0.5 else 0.3 * W @ W))
    mean, f = 0.5 + 0.1 * np.arange(N) / N, rng.standard_normal(N)
    prior = ours.prior(theta)
    assert isinstance(prior, DensePrior)
    # The level is in f.
    right = stats.multivariate_normal.logpdf(f, mean, np.linalg.inv(Q) + 0.16)
    close(prior.log_density(f), right)


def test_a_batch_and_a_covariance_are_dense():
    with pm.Model():
        batch = pm.MvNormal("batch", np.zeros((2, N)), tau=D - 0.5 * W, shape=(2, N))
        by_covariance = pm.MvNormal("f", np.zeros(N), cov=D - 0.5 * W)
    assert as_sparse_precision(batch) is None
    assert as_sparse_precision(by_covariance) is None


def counts(tau=None):
    alpha, scale = numbers()
    b = pm.Normal("b", 0.5, 0.4)
    precision = scale * (D - alpha * W) if tau is None else tau(alpha, scale)
    phi = pm.MvNormal("phi", 0.1 * np.arange(N) / N + b, tau=precision)
    pm.Poisson("y", pm.math.exp(phi), observed=pm.Data("seen", Y))


@pytest.fixture(scope="module")
def model():
    with pm.Model() as model:
        counts()
    return model


def test_the_density_is_the_models(model):
    """The level is in the mean of the vector."""
    ours = lgm.read(model, compile_kwargs=QUICK)
    assert ours.p == 2
    assert isinstance(ours.prior(np.zeros(2)), SumPrior)
    assert max(ours.check(draws=3).values()) < 1e-6


@pytest.mark.slow
def test_the_law_is_that_of_areas():
    def areas():
        alpha, tau = numbers()
        mean = 0.1 * np.arange(N) / N + pm.Normal("b", 0.5, 0.4)
        phi = pm.CAR("phi", mean, W=W, alpha=alpha, tau=tau)
        pm.Poisson("y", pm.math.exp(phi), observed=Y)

    theta, identity = np.array([0.3, -0.2]), np.eye(2 * N + 1)
    ours, theirs = from_pymc(counts).prior(theta), from_pymc(areas).prior(theta)
    close(ours.covariance_times(identity), theirs.covariance_times(identity))
    close(ours.mean, theirs.mean)


@pytest.mark.slow
def test_the_default_leaves_the_joint_law(model):
    how = {"options": {"n_importance": 2}, "replicates": 200, "steps": 3, "tune": 60}
    test = joint_law(lgm.PseudoMarginal, model, **how)
    assert test.pvalue > 1e-4


@pytest.mark.slow
def test_an_observed_vector_is_read_by_its_covariance():
    with pm.Model() as model:
        alpha, tau = numbers()
        pm.MvNormal("y", np.zeros(N), tau=tau * (D - alpha * W), observed=Y - 2.0)
    step = lgm.ExactMarginal(model=model)
    theta = np.array([0.2, 0.1])
    at = step.lgm.cov(theta)
    inverse = np.linalg.inv(at)
    np.testing.assert_allclose(inverse[W + D == 0.0], 0.0, atol=1e-10)


@pytest.mark.parametrize(
    ("tau", "message"),
    [
        (
            lambda alpha, tau: tau * (D - alpha * (W + 0.5 * np.triu(W))),
            r"tau of 'phi' is not symmetric: tau\[\d+, \d+\] is",
        ),
        (lambda alpha, tau: tau * (D - 3.0 * alpha * W), "not positive definite"),
        (lambda alpha, tau: tau * (D - np.nan * W), "finite|number|nan"),
    ],
)
def test_what_is_refused(tau, message):
    with pytest.raises(ValueError, match=message):
        from_pymc(lambda: counts(tau))
