"""Conjugate gradients for several right-hand sides at once, and as a preconditioner."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from numpy.typing import NDArray

from pymc_lgm.linalg import Array
from pymc_lgm.papers.solvers.kernel_matrix import KernelSystem
from pymc_lgm.papers.solvers.preconditioners import Identity, Preconditioner

__all__ = ["Iteration", "Shifted", "Solution", "conjugate_gradients", "iterations"]

Times = Callable[[Array], Array]
"""V -> A V, for columns (n, N)."""


class Iteration(NamedTuple):
    """One iteration of the N columns that are not solved yet.

    Attributes
    ----------
    increments : ndarray, shape (n, N)
        α p, the change of x.
    residuals : ndarray, shape (N,)
        |r| after the iteration.
    alpha, beta : ndarray, shape (N,)
    """

    increments: Array
    residuals: Array
    alpha: Array
    beta: Array


@dataclass(frozen=True, eq=False)
class Solution:
    """Result of `conjugate_gradients`.

    Attributes
    ----------
    x : ndarray, shape (n,) or (n, N)
    iterations : int
        Largest number of iterations of a column. Each is one product of A with all columns that are
        not solved yet.
    residuals : ndarray, shape (N,)
        |b − A x| of each column, as computed by the recursion.
    converged : bool
    alphas, betas : ndarray, shape (iterations, N)
        α and β of each iteration, NaN once a column is solved. They determine Lanczos's tridiagonal
        matrix.
    """

    x: Array
    iterations: int
    residuals: Array
    converged: bool
    alphas: Array = field(repr=False)
    betas: Array = field(repr=False)


def iterations(
    times: Times, r: Array, P: Preconditioner
) -> Generator[Iteration, NDArray[np.bool_], None]:
    """Yield the iterations of `conjugate_gradients` from the residual r, without end.

    After each, the caller chooses the columns that continue by ``generator.send(mask)``.
    """
    z = P.solve(r)
    p, rz = z, _products(r, z)
    while True:
        Ap = times(p)
        alpha = rz / _products(p, Ap)
        before, r = r, r - alpha * Ap
        z = P.solve(r)
        after = _products(r, z)
        beta = (after if P.is_linear else _products(r - before, z)) / rz
        on = yield Iteration(alpha * p, np.linalg.norm(r, axis=0), alpha, beta)
        if not on.all():
            r, z, p, beta, after = r[:, on], z[:, on], p[:, on], beta[on], after[on]
        p, rz = z + beta * p, after


def conjugate_gradients(
    times: Times,
    b: Array,
    preconditioner: Preconditioner | None = None,
    *,
    rtol: float = 1e-6,
    atol: float = 0.0,
    max_iterations: int | None = None,
) -> Solution:
    """Solve A x = b, A symmetric and positive definite, by products A v.

    From x = 0, r = b, z = P⁻¹ r and p = z, each iteration is

        α = rᵀz / pᵀA p,   x ← x + α p,   r' = r − α A p,   z' = P⁻¹ r',
        β = r'ᵀz' / rᵀz,   p ← z' + β p.

    Algorithm 1 of Cutajar et al. (2016) has rᵀA z for pᵀA p, r + α A p for r', and r'ᵀr' / rᵀr for
    β: three misprints. If P⁻¹ is itself an iteration, and so only nearly linear, β = (r' − r)ᵀz' /
    rᵀz ("flexible"). It is the same number if P⁻¹ is exact.

    Parameters
    ----------
    times : callable
        V -> A V, for columns (n, N).
    b : ndarray, shape (n,) or (n, N)
        Right-hand sides. Each column has its own iteration; all share the products with A.
    preconditioner : Preconditioner, optional
        P; by default none.
    rtol, atol : float
        A column is solved once |r| ≤ max(rtol |b|, atol).
    max_iterations : int, optional
        By default 10 n. Exact arithmetic would need n; rounding takes more.

    Returns
    -------
    Solution
        ``converged`` is False if ``max_iterations`` was reached, or if A or P is not positive
        definite.

    References
    ----------
    K. Cutajar, M. A. Osborne, J. P. Cunningham, M. Filippone (2016). Preconditioning kernel
    matrices. ICML, Algorithm 1. Y. Notay (2000). Flexible conjugate gradients. SIAM J. Sci. Comput.
    22 (the flexible β).

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_lgm.papers.solvers import conjugate_gradients
    >>> A = np.array([[4.0, 1.0], [1.0, 3.0]])
    >>> solution = conjugate_gradients(lambda V: A @ V, np.array([1.0, 2.0]), rtol=1e-12)
    >>> solution.x.round(6), solution.iterations
    (array([0.090909, 0.636364]), 2)
    """
    B = b[:, None] if b.ndim == 1 else b
    P = Identity(len(B)) if preconditioner is None else preconditioner
    X = np.zeros_like(B)
    residuals = np.linalg.norm(B, axis=0)
    limit = np.maximum(rtol * residuals, atol)
    unsolved = np.flatnonzero(residuals > limit)
    alphas: list[Array] = []
    betas: list[Array] = []
    last = 10 * len(B) if max_iterations is None else max_iterations
    if unsolved.size and last > 0:
        steps = iterations(times, B[:, unsolved], P)
        step = next(steps)
        while True:
            X[:, unsolved] += step.increments
            residuals[unsolved] = step.residuals
            for record, values in (alphas, step.alpha), (betas, step.beta):
                record.append(np.full(X.shape[1], np.nan))
                record[-1][unsolved] = values
            # If a step is not finite or goes uphill, A or P is not positive definite.
            on = (step.residuals > limit[unsolved]) & (step.alpha > 0.0) & np.isfinite(step.beta)
            unsolved = unsolved[on]
            if not unsolved.size or len(alphas) >= last:
                break
            step = steps.send(on)
    shape = len(alphas), X.shape[1]
    return Solution(
        x=X.reshape(b.shape),
        iterations=len(alphas),
        residuals=residuals,
        converged=bool((residuals <= limit).all()),
        alphas=np.array(alphas).reshape(shape),
        betas=np.array(betas).reshape(shape),
    )


class Shifted:
    """P = A + δ I, applied by inner conjugate gradients, which converge faster than those of A.

    Parameters
    ----------
    system : KernelSystem
        A.
    delta : float
        δ. Cutajar et al. (2016) use a hundred times the noise variance.
    rtol : float
        Relative tolerance of the inner iteration.

    Attributes
    ----------
    products : int
        Number of products with A in inner iterations, a part of the total cost.
    """

    is_linear = False
    log_determinant: float | None = None

    def __init__(self, system: KernelSystem, delta: float, rtol: float = 1e-3):
        self._inner = KernelSystem(system.kernel, system.shift + delta, system.scale)
        self._rtol = rtol
        self.products = 0

    def solve(self, V: Array) -> Array:
        """(A + δ I)⁻¹ V, approximately."""
        solution = conjugate_gradients(self._inner.times, V, rtol=self._rtol)
        self.products += solution.iterations
        return solution.x

    def draw(self, rng: np.random.Generator, count: int) -> Array:
        """Raise an error: there are no cheap draws."""
        raise NotImplementedError(
            "A shifted system has no cheap draws. Write preconditioner='nystrom' for a "
            "log-determinant."
        )


def _products(left: Array, right: Array) -> Array:
    """Inner products of columns."""
    result: Array = np.einsum("ij,ij->j", left, right)
    return result
