"""log|A| by random probes and Lanczos's quadrature, with its standard error."""

from __future__ import annotations

import math

from dataclasses import dataclass

import numpy as np

from scipy.linalg import eigh_tridiagonal

from pymc_lgm.linalg import Array
from pymc_lgm.papers.solvers.pcg import Times, conjugate_gradients
from pymc_lgm.papers.solvers.preconditioners import Identity, Preconditioner

__all__ = ["LogDeterminant", "log_determinant"]


@dataclass(frozen=True)
class LogDeterminant:
    """An estimate of log|A|.

    Attributes
    ----------
    value : float
    sd : float
        Standard error from the probes. The error of the quadrature is not included; the tolerance
        bounds it.
    iterations : int
    converged : bool
    """

    value: float
    sd: float
    iterations: int
    converged: bool


def log_determinant(
    times: Times,
    n: int,
    rng: np.random.Generator,
    preconditioner: Preconditioner | None = None,
    *,
    probes: int = 16,
    rtol: float = 1e-4,
) -> LogDeterminant:
    """Estimate log|A| of a symmetric and positive definite A.

    The estimate is split, so that with P near A the random part is small:

        log|A| = log|P| + tr log(P^−½ A P^−½) ≈ log|P| + n / N Σ_k Σ_j τ²_kj log λ_kj.

    Conjugate gradients of A x = z, E z zᵀ = P, are Lanczos's iterations for P^−½ A P^−½ from
    P^−½ z. λ_kj are the eigenvalues of probe k's tridiagonal matrix,

        T_jj = 1 / α_j + β_(j−1) / α_(j−1),   T_j,j+1 = √β_j / α_j,

    and τ_kj the first elements of its normalized eigenvectors.

    Parameters
    ----------
    times : callable
        V -> A V.
    n : int
    rng : numpy.random.Generator
        Draws the probes.
    preconditioner : Preconditioner, optional
        P with a known log|P|.
    probes : int
        Number N of probes.
    rtol : float
        Relative tolerance of the conjugate gradients. Gauss quadrature converges twice as fast.

    Returns
    -------
    LogDeterminant

    Raises
    ------
    ValueError
        If log|P| is not known, or if there are fewer than two probes.

    References
    ----------
    S. Ubaru, J. Chen, Y. Saad (2017). Fast estimation of tr(f(A)) via stochastic Lanczos
    quadrature. SIAM J. Matrix Anal. Appl. 38. J. Wenger et al. (2022). Preconditioning for scalable
    Gaussian process hyperparameter optimization. ICML (P beside it).

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_lgm.papers.solvers import log_determinant
    >>> A = np.diag([1.0, 2.0, 4.0])
    >>> estimate = log_determinant(lambda V: A @ V, 3, np.random.default_rng(0), rtol=1e-10)
    >>> round(float(np.exp(estimate.value)), 6)  # signs are exact for a diagonal
    8.0
    """
    if probes < 2:
        raise ValueError(f"A standard error takes at least two probes, not {probes}.")
    P = Identity(n) if preconditioner is None else preconditioner
    if P.log_determinant is None:
        raise ValueError(
            f"log|P| of {type(P).__name__} is not known. Write a preconditioner that has one, such "
            "as nystrom(...).preconditioner(system), or None."
        )
    Z = P.draw(rng, probes)
    solution = conjugate_gradients(times, Z, P, rtol=rtol)
    values = np.array(
        [
            n * _quadrature(alpha[np.isfinite(alpha)], beta[np.isfinite(alpha)])
            for alpha, beta in zip(solution.alphas.T, solution.betas.T, strict=True)
        ]
    )
    return LogDeterminant(
        value=P.log_determinant + float(values.mean()),
        sd=float(values.std(ddof=1)) / math.sqrt(probes),
        iterations=solution.iterations,
        converged=solution.converged,
    )


def _quadrature(alpha: Array, beta: Array) -> float:
    """e₁ᵀ log(T) e₁."""
    diagonal = 1.0 / alpha
    diagonal[1:] += beta[:-1] / alpha[:-1]
    values, vectors = eigh_tridiagonal(diagonal, np.sqrt(beta[:-1]) / alpha[:-1])
    # T is positive definite except for rounding.
    return float(vectors[0] ** 2 @ np.log(np.maximum(values, np.finfo(float).tiny)))
