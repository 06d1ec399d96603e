"""Derivatives of a Cholesky factor: what a change of A = L Lᵀ does to L x and to N(0, A)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from scipy.linalg import blas

from pymc_lgm.linalg import Array, CholeskyFactor, tally

__all__ = ["information", "multiply_jvp", "multiply_vjp"]


def _inverse_and_sums(factor: CholeskyFactor, x: Array) -> tuple[Array, Array]:
    """B = L⁻¹ and C with rows c_i = Σ_{k<i} x_k b_k + ½ x_i b_i, both lower triangular."""
    B = factor.inverse_factor()
    terms = x[:, None] * B
    return B, np.cumsum(terms, axis=0) - 0.5 * terms


def multiply_vjp(factor: CholeskyFactor, x: Array, g: Array) -> Array:
    """∂(gᵀ L x)/∂A, a symmetric array: what a change of A = L Lᵀ does to L x. Two O(n³) operations.

    With u = Lᵀ g and b_i the rows of L⁻¹, the symmetric part of Σ_i u_i b_iᵀ c_i where
    c_i = Σ_{k<i} x_k b_k + ½ x_i b_i: eq. (10) of Murray (2016), *Differentiation of the
    Cholesky decomposition*, for L̄ = tril(g xᵀ), whose Φ(Lᵀ L̄) is Φ(u xᵀ).
    """
    B, C = _inverse_and_sums(factor, x)
    tally.cubic_ops += 1
    C *= factor.multiply_transposed(g)[:, None]
    product = blas.dtrmm(1.0, B, C, lower=1, trans_a=1)
    result: Array = 0.5 * (product + product.T)
    return result


def multiply_jvp(factor: CholeskyFactor, x: Array, changes: Iterable[Array]) -> Array:
    """dL x for each change dA of A, as columns: one O(n³) operation and one for each.

    dL = L Φ(L⁻¹ dA L⁻ᵀ), §3.1 of Murray (2016), so dL x = L w with w_i = b_i dA c_iᵀ in the
    letters of `multiply_vjp`.
    """
    B, C = _inverse_and_sums(factor, x)
    columns = []
    for dA in changes:
        tally.cubic_ops += 1
        columns.append(np.einsum("ij,ij->i", blas.dtrmm(1.0, B, dA, lower=1), C))
    return factor.multiply(np.column_stack(columns))


def information(factor: CholeskyFactor, changes: Iterable[Array]) -> tuple[Array, Array]:
    """tr(A⁻¹ dA_j), shape (p,), and ½ tr(A⁻¹ dA_j A⁻¹ dA_k), shape (p, p).

    The latter is the Fisher information of N(0, A). One O(n³) operation and one for each change;
    keeps p products of n × n.
    """
    inverse = factor.inverse()
    traces, products, pairs = [], [], []
    for dA in changes:
        tally.cubic_ops += 1
        product = inverse @ dA
        traces.append(np.trace(product))
        products.append(product.ravel())
        transposed = product.T.ravel()
        pairs.append([0.5 * float(other @ transposed) for other in products])
    p = len(products)
    information = [[pairs[max(j, k)][min(j, k)] for k in range(p)] for j in range(p)]
    return np.array(traces), np.array(information)
