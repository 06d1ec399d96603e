"""BLAS has one thread while small matrices are worked on, in every process, and only then."""

import importlib
import multiprocessing

import arviz as az
import cloudpickle
import numpy as np
import pymc as pm
import pytest

from threadpoolctl import ThreadpoolController, threadpool_info, threadpool_limits

import pymc_lgm as lgm

from pymc_lgm import linalg, threads
from pymc_lgm.threads import few_threads


def blas_threads():
    """How many threads the copies of BLAS have, most of them if they differ."""
    return max(
        (pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"), default=0
    )


@pytest.fixture
def two():
    """The user has set two threads."""
    with threadpool_limits(2):
        if blas_threads() != 2:
            pytest.skip("no BLAS here that can be told how many threads to have")
        yield


class Watched(lgm.EllipticalSlice):
    """Draws that are the numbers of threads before the draw, in it and after it."""

    def step(self, point):
        before = blas_threads()
        point, stats = super().step(point)
        return point | {"f": np.array([before, point["f"][1], blas_threads()], float)}, stats

    def _step(self, point):
        point, stats = super()._step(point)
        return point | {"f": np.full(3, float(blas_threads()))}, stats


def three():
    with pm.Model() as model:
        f = pm.MvNormal("f", mu=np.zeros(3), cov=np.eye(3))
        lgm.Probit("y", f=f, observed=[0, 1, 1])
    return model


def watched(cores, **kwargs):
    with three():
        idata = pm.sample(
            draws=3,
            tune=0,
            chains=2,
            cores=cores,
            step=Watched(),
            random_seed=1,
            progressbar=False,
            compute_convergence_checks=False,
            **kwargs,
        )
    return np.unique(idata.posterior["f"].values.reshape(-1, 3), axis=0).tolist()


def send_a_draw(connection, step, point):
    with threadpool_limits(2):  # as PyMC does where each chain is granted two
        point, _ = cloudpickle.loads(step).step(point)
        connection.send(point["f"].tolist())


def test_one_thread_inside_and_two_again_outside(two):
    with few_threads(10):
        assert blas_threads() == 1
        with few_threads(10):
            assert blas_threads() == 1
        assert blas_threads() == 1
    assert blas_threads() == 2


def test_an_exception_restores(two):
    def fail():
        with few_threads(10):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert blas_threads() == 2


def test_a_large_matrix_has_what_was_granted(two):
    with few_threads(threads.ROWS_WORTH_THREADS):
        assert blas_threads() == 2
    with few_threads(threads.ROWS_WORTH_THREADS - 1):
        assert blas_threads() == 1


def test_copies_that_differ_are_restored_each(two):
    pools = ThreadpoolController().select(user_api="blas").lib_controllers
    if len(pools) < 2:
        pytest.skip("NumPy and SciPy share one BLAS")
    with threadpool_limits({pools[0].filepath: 1}):
        before = threadpool_info()
        with few_threads(10):
            assert blas_threads() == 1
        assert threadpool_info() == before


def test_no_blas_that_can_be_told_is_no_error(monkeypatch):
    none = ThreadpoolController().select(user_api="none")
    monkeypatch.setattr(threads, "_pools", lambda forked: none)
    with few_threads(10):
        pass


def test_a_fork_leaves_a_blas_on_openmp_alone(two, monkeypatch):
    """Calling the OpenMP runtime there can crash."""
    pool, *others = threads._pools(False).lib_controllers
    monkeypatch.setattr(pool, "threading_layer", "openmp")
    assert threads._pools.__wrapped__(True).lib_controllers == others


def test_a_draw_has_one_thread(two):
    assert watched(cores=1) == [[2, 1, 2]]


def test_a_forked_process_stays_at_one_thread(two):
    """Although it inherits handles that were made before."""
    with few_threads(10):
        pass
    if "fork" in multiprocessing.get_all_start_methods():
        assert watched(cores=2, mp_ctx="fork") == [[1, 1, 1], [2, 1, 1]]


@pytest.mark.slow
def test_a_draw_has_one_thread_in_a_spawned_process(two):
    model = three()
    step = cloudpickle.dumps(Watched(model=model, rng=1))
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=send_a_draw, args=(theirs, step, model.initial_point())
    )
    process.start()
    theirs.close()
    assert ours.recv() == [2, 1, 2]
    process.join()


@pytest.mark.slow
def test_a_draw_of_a_large_f_has_what_was_granted(two, monkeypatch):
    monkeypatch.setattr(threads, "ROWS_WORTH_THREADS", 3)
    assert watched(cores=1) == [[2, 2, 2]]
    if "fork" in multiprocessing.get_all_start_methods():  # PyMC grants nothing there
        assert watched(cores=2, mp_ctx="fork") == [[1, 1, 1], [2, 1, 1]]


@pytest.mark.usefixtures("quick")
def test_the_evidence_is_fitted_with_one_thread(two, monkeypatch):
    seen = []
    module = importlib.import_module("pymc_lgm.evidence")
    find_mode = module.find_mode

    def watch(*args, **kwargs):
        seen.append(blas_threads())
        return find_mode(*args, **kwargs)

    monkeypatch.setattr(module, "find_mode", watch)
    with pm.Model():
        mu = pm.Normal("mu")
        f = pm.MvNormal("f", mu=mu * np.ones(2), cov=np.eye(2))
        lgm.LogGaussianCox("y", f=f, observed=[3, 5])
        laplace = lgm.laplace()
    laplace.log_evidence()
    laplace.fit(maxiter=1)
    assert set(seen) == {1}
    assert len(seen) >= 4
    assert blas_threads() == 2


@pytest.mark.usefixtures("quick")
def test_prediction_has_one_thread(two, monkeypatch):
    seen = []
    module = importlib.import_module("pymc_lgm.conditionals")

    def watch(K):
        seen.append(blas_threads())
        return linalg.factorize(K)

    monkeypatch.setattr(module, "factorize", watch)
    with pm.Model():
        gp = pm.gp.Latent(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0))
        gp.prior("f", np.array([[0.0], [1.0]]), reparameterize=False)
        idata = az.from_dict({"posterior": {"f": np.array([[[-1.0, 1.5]]])}})
        lgm.predict(idata, gp, [[1.0]], progressbar=False)
    assert seen == [1]
    assert blas_threads() == 2


@pytest.mark.slow
def test_draws_do_not_depend_on_the_number_of_threads():
    """To the last bit; `dpotrf` of 200 rows rounds otherwise with two threads."""
    rng = np.random.default_rng(2)
    X, y = rng.uniform(size=(200, 2)), rng.integers(2, size=200)

    def chain(limit):
        with threadpool_limits(limit), pm.Model() as model:
            eta = pm.LogNormal("eta")
            gp = pm.gp.Latent(cov_func=eta**2 * pm.gp.cov.ExpQuad(2, ls=0.1))
            f = gp.prior("f", X, reparameterize=False)
            lgm.Logistic("y", f=f, observed=y)
            step = lgm.PseudoMarginal(n_importance=4)
            step.setup_chain(np.random.default_rng(3), 4, 4)
            point = model.initial_point()
            for _ in range(4):
                point, _ = step.step(point)
            step.stop_tuning()
            for _ in range(4):
                point, _ = step.step(point)
        return point

    one, two = chain(1), chain(2)
    for name, value in one.items():
        np.testing.assert_array_equal(value, two[name])


def test_a_long_sparse_vector_has_one_thread(two, monkeypatch):
    """What counts is the size of the matrices that BLAS factorizes, not that of f."""
    monkeypatch.setattr(threads, "ROWS_WORTH_THREADS", 30)
    seen = []
    monkeypatch.setattr(
        lgm.PseudoMarginal, "_step", lambda self, point: seen.append(blas_threads()) or (point, [])
    )
    with pm.Model() as model:
        walk = pm.GaussianRandomWalk("walk", init_dist=pm.Normal.dist(), steps=39)
        pm.Poisson("y", pm.math.exp(pm.Normal("b") + walk), observed=np.ones(40))
        step = lgm.PseudoMarginal()
    assert step.lgm.form.dense_rows < 30 < step.lgm.n
    step.step(model.initial_point())
    assert set(seen) == {1}
