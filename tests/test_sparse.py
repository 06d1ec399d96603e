"""Sparse symmetric matrices and what is added to them, against dense algebra."""

from dataclasses import replace

import numpy as np
import pytest

from close import close
from scipy.sparse import csc_array

from pymc_lgm.gaussian import sparse, sparse_loops, supernodes
from pymc_lgm.gaussian.factors import UpdatedFactor
from pymc_lgm.gaussian.sparse import Pattern, fill_reducing_order


def random_matrix(rng, n, share):
    """Symmetric, diagonally dominant, with about this share of elements."""
    there = np.tril(rng.random((n, n)) < share, -1)
    A = np.where(there, -rng.random((n, n)), 0.0)
    A += A.T
    return A + np.diag(0.5 + np.abs(A).sum(axis=0))


@pytest.fixture(params=[(1, 0.0), (5, 0.4), (60, 0.05), (40, 0.0), (12, 1.0)])
def A(request, rng):
    return random_matrix(rng, *request.param)


@pytest.fixture
def factor(A):
    pattern = Pattern.of(csc_array(A))
    return pattern.factorize(pattern.elements(csc_array(A)))


def test_the_verbs_of_a_factor(A, factor, rng):
    n, order = len(A), factor.pattern.order
    L = np.linalg.cholesky(A[np.ix_(order, order)])
    close(factor.log_determinant, np.linalg.slogdet(A)[1])
    close(factor.inverse_diagonal, np.diag(np.linalg.inv(A)))
    for x in (rng.standard_normal(n), rng.standard_normal((n, 3))):
        close(factor.solve(x), np.linalg.solve(L, x[order]))
        close(factor.solve_transposed(factor.solve(x)), np.linalg.solve(A, x))
        close(factor.multiply_transposed(x), L.T @ x[order])


def test_elements_of_the_diagonal_are_found(A):
    pattern = Pattern.of(csc_array(A))
    assert pattern.elements(csc_array(A))[pattern.diagonal].tolist() == np.diag(A).tolist()


def test_a_factor_that_is_none_is_a_value(rng):
    A = random_matrix(rng, 6, 0.5)
    pattern = Pattern.of(csc_array(A))
    assert pattern.factorize(pattern.elements(csc_array(A - 3 * np.diag(np.diag(A))))) is None
    A[2, 2] = np.nan
    assert pattern.factorize(pattern.elements(csc_array(A))) is None


def test_the_order_is_one_of_few_elements():
    """A star factorized from its center has all elements, from its rays two per column."""
    star = np.eye(30)
    star[0] = star[:, 0] = 1.0
    order = fill_reducing_order(csc_array(star))
    assert sorted(order) == list(range(30))
    assert Pattern.of(csc_array(star)).below.size == 59
    assert Pattern.of(csc_array(star), np.arange(30)).below.size == 30 * 31 // 2


def dense_at_its_end(rng, n=90, m=70):
    """A matrix with a dense block, which an order of few elements puts last."""
    A = random_matrix(rng, n, 0.05)
    root = rng.standard_normal((m, m))
    A[:m, :m] += root @ root.T / m
    return A


def test_a_dense_end_is_factorized_at_once(rng):
    A = dense_at_its_end(rng)
    pattern = Pattern.of(csc_array(A))
    assert pattern.tail <= 20
    values = pattern.elements(csc_array(A))
    factor = pattern.factorize(values)
    L = np.zeros((90, 90))
    columns = np.repeat(np.arange(90), np.diff(pattern.starts))
    L[pattern.below, columns] = factor.L
    np.testing.assert_allclose(L @ L.T, A[pattern.order][:, pattern.order], atol=1e-10)
    rows, columns = pattern.order[pattern.below], pattern.order[columns]
    np.testing.assert_allclose(factor.inverse, np.linalg.inv(A)[rows, columns], atol=1e-9)
    assert factor.log_determinant == pytest.approx(np.linalg.slogdet(A)[1], abs=1e-9)
    # An element of the dense block that makes A indefinite, infinite, or no number.
    for wrong in (-1e3, np.inf, np.nan):
        at = int(pattern.diagonal[pattern.order[-1]])
        assert pattern.factorize(np.where(np.arange(values.size) == at, wrong, values)) is None


def groups_beside_a_dense_block(rng, groups, m):
    """Effects of groups, in turn with all and with the last half of m coefficients."""
    B = rng.standard_normal((groups, m))
    B[::2, : m // 2] = 0.0
    below = np.hstack([B.T, B.T @ B + np.eye(m)])
    return np.vstack([np.hstack([4.0 * m * np.eye(groups), B]), below])


MATRICES = {
    "one": (random_matrix, 1, 0.0),
    "sparse": (random_matrix, 60, 0.05),
    "less sparse": (random_matrix, 90, 0.3),
    "dense": (random_matrix, 50, 1.0),
    # More columns with the same rows than are gathered at once.
    "groups": (groups_beside_a_dense_block, supernodes.TOGETHER * 2 + 20, 40),
}


@pytest.mark.slow  # the loops over blocks take six seconds to compile
@pytest.mark.parametrize("key", MATRICES)
def test_blocks_are_the_same_factor(rng, monkeypatch, key):
    """L and the inverse on its pattern, by BLAS and by loops."""
    monkeypatch.setattr(sparse, "HEAVY", 0)
    make, *sizes = MATRICES[key]
    A = make(rng, *sizes)
    pattern = Pattern.of(csc_array(A))
    assert pattern.blocks[-1] == len(A)
    in_blocks, size = supernodes.places(pattern.starts, pattern.blocks)
    of_columns = np.full(size, -1)
    of_columns[in_blocks] = np.arange(in_blocks.size)
    by_columns = replace(pattern, place=of_columns[pattern.place], coordinates=None)
    monkeypatch.setattr(sparse, "HEAVY", np.inf)
    plain = Pattern.of(csc_array(A))
    assert plain.blocks is None
    assert pattern.supernodes.size <= plain.supernodes.size
    assert pattern.size >= plain.size
    values, in_its_order = (each.elements(csc_array(A)) for each in (pattern, plain))
    one, other = (each.factorize(values) for each in (pattern, by_columns))
    np.testing.assert_allclose(one.L[in_blocks], other.L, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(one.inverse[in_blocks], other.inverse, rtol=1e-10, atol=1e-13)
    # Zeros in L and another order of its columns change nothing.
    third = plain.factorize(in_its_order)
    assert one.log_determinant == pytest.approx(third.log_determinant, rel=1e-11)
    np.testing.assert_allclose(one.inverse_diagonal, third.inverse_diagonal, rtol=1e-10)
    for verb in ("solve", "solve_transposed", "multiply", "multiply_transposed"):
        for shape in (len(A), (len(A), 2)):
            x = rng.standard_normal(shape)
            result, expected = (getattr(each, verb)(x) for each in (one, third))
            np.testing.assert_allclose(result, expected, rtol=1e-9, atol=1e-11)
    for count in (sparse.MANY, 30):  # right-hand sides, together and one by one
        x = rng.standard_normal((len(A), count))
        for solve in (one.solve, one.solve_transposed):
            alone = np.stack([solve(column) for column in x.T], axis=1)
            np.testing.assert_allclose(solve(x), alone, rtol=1e-9, atol=1e-11)
    for wrong in (-1e3, np.inf, np.nan):
        for at in {0, len(A) // 2, len(A) - 1}:
            bad = values.copy()
            bad[pattern.diagonal[at]] = wrong
            assert pattern.factorize(bad) is None


@pytest.mark.mutant
def test_a_selected_inverse_with_a_wrong_pattern_is_noticed(rng, monkeypatch, dies):
    """As if elements of A were all that the equations ask for: what the factor fills in is lost."""
    A = random_matrix(rng, 20, 0.15)
    pattern = Pattern.of(csc_array(A))
    factor, original = pattern.factorize(pattern.elements(csc_array(A))), sparse_loops.takahashi

    def without_fill(starts, below, L, *end):
        kept = np.zeros_like(L)
        kept[pattern.place] = L[pattern.place]
        return original(starts, below, kept, *end)

    monkeypatch.setattr(sparse_loops, "takahashi", without_fill)
    error = np.abs(factor.inverse_diagonal / np.diag(np.linalg.inv(A)) - 1.0).max()
    dies("sparse: selected inverse on the pattern of A", error, above=1e-6)


@pytest.mark.parametrize("sign", [1.0, -1.0, 0.0])
def test_a_factor_of_a_sum(A, factor, sign, rng):
    n = len(A)
    U = rng.standard_normal((n, 2)) @ np.array([[1.0, 0.0, 2.0], [0.0, 1.0, 0.5]])  # collinear
    S = 0.01 * np.array([[0.2 * sign, 0.0, 0.0], [0.0, 2.0, 0.5], [0.0, 0.5, 1.0]])
    total = A + U @ S @ U.T
    updated = UpdatedFactor.of(factor, U, S)
    L, x = updated.solve_transposed(np.eye(n)), rng.standard_normal((n, 2))
    close(L @ L.T, np.linalg.inv(total))
    close(updated.log_determinant, np.linalg.slogdet(total)[1])
    close(updated.inverse_diagonal, np.diag(np.linalg.inv(total)))
    close(updated.solve(x), L.T @ x)
    close(updated.multiply_transposed(L @ x), x)
    close(L.T @ updated.multiply(x), x)


def test_a_sum_that_is_not_positive_is_a_value(factor):
    one = np.ones((factor.pattern.n, 1))
    assert UpdatedFactor.of(factor, one, np.array([[-1e6]])) is None
