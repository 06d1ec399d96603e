"""Linear systems solved without bias by conjugate gradients that end at random: ULISSE."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pymc_lgm.linalg import Array
from pymc_lgm.solvers.pcg import Times, iterations
from pymc_lgm.solvers.preconditioners import Identity, Preconditioner

__all__ = ["UnbiasedSolution", "ulisse"]


@dataclass(frozen=True, eq=False)
class UnbiasedSolution:
    """Result of `ulisse`.

    Attributes
    ----------
    x : ndarray, shape (copies, n, N)
        Random, E x = A⁻¹ b, and independent between copies given ``start``.
    reached : ndarray, shape (n, N)
        The iterate that the last copy ended at, without weights: where to start again nearby.
    iterations : int
        Products with A, each of all columns that some copy still iterates.
    """

    x: Array
    reached: Array
    iterations: int


def ulisse(
    times: Times,
    b: Array,
    rng: np.random.Generator,
    *,
    copies: int = 1,
    start: Array | None = None,
    early: float = 1.0,
    beta: float = 1.0,
    tolerance: float = 1e-8,
    max_iterations: int | None = None,
    preconditioner: Preconditioner | None = None,
) -> UnbiasedSolution:
    """Estimate A⁻¹ b without bias, A symmetric and positive definite, by products A v.

    With the increments δ_i of conjugate gradients and l the first iterate of |r| < early √n, of all
    increments the first l are added, and of those after them the j-th, if its turn comes, with
    probability 1 / w_j and weight Π_(i≤j) w_i, w_j = e^(βj): the first time that one is not, the
    copy ends. The expectation is the sum of all, the solution to within ``tolerance``.

    Parameters
    ----------
    times : callable
        V -> A V, for columns.
    b : ndarray, shape (n, N)
    rng : numpy.random.Generator
    copies : int
        Estimates of each column, of one run of conjugate gradients. A quadratic form takes two.
    start : ndarray, shape (n, N), optional
        x to begin with, by default 0.
    early : float
        The paper's q: an error a row at which iterations begin to end.
    beta : float
        The larger, the sooner they end and the more estimates vary.
    tolerance : float
        An error a row at which a copy that has not ended is done.
    max_iterations : int, optional
        After which it is done all the same, by default 10 n.
    preconditioner : Preconditioner, optional

    Returns
    -------
    UnbiasedSolution

    Notes
    -----
    Unbiased in name more than in deed: with β = 1 the fourth increment after l is added in one of
    e⁶ = 400 estimates with 400 times its size, the fifth in one of e¹⁰. Averages of fewer estimates
    than that lack them, which does no harm where increments fall as fast.

    References
    ----------
    M. Filippone, R. Engler (2015). Enabling scalable stochastic gradient-based inference for
    Gaussian processes by employing the unbiased linear system solver (ULISSE). ICML, §4.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_lgm.solvers import ulisse
    >>> A, b = np.diag([1.0, 2.0, 4.0]), np.ones((3, 1))
    >>> rng = np.random.default_rng(0)
    >>> some = ulisse(lambda V: A @ V, b, rng, copies=4000, beta=0.2, early=1.0)
    >>> bool(np.allclose(some.x.mean(axis=0)[:, 0], [1.0, 0.5, 0.25], atol=0.05))
    True
    """
    n, N = b.shape
    P = Identity(n) if preconditioner is None else preconditioner
    reached = np.zeros_like(b) if start is None else start.copy()
    r = b if start is None else b - times(start)
    x = np.repeat(reached[None], copies, axis=0)
    residuals = np.linalg.norm(r, axis=0)
    columns = np.flatnonzero(residuals > tolerance * np.sqrt(n))
    going = np.zeros((copies, N), dtype=bool)
    going[:, columns] = True
    # Turns that a column has had since the early stop, and the weight of the next one.
    turns, weight = np.full(N, -1), np.ones(N)
    count = 0
    last = 10 * n if max_iterations is None else max_iterations
    steps = iterations(times, r[:, columns], P)
    step = next(steps) if columns.size else None
    while step is not None:
        count += 1
        reached[:, columns] += step.increments
        # The increment that arrives below the early stop is the first that has a turn.
        turns[columns] += (turns[columns] >= 0) | (step.residuals < early * np.sqrt(n))
        w = np.exp(beta * np.maximum(turns, 0.0))
        weight[columns] *= w[columns]
        going &= rng.uniform(size=going.shape) * w < 1.0
        x[:, :, columns] += (going[:, columns] * weight[columns])[:, None] * step.increments
        done = ~(step.residuals > tolerance * np.sqrt(n)) | ~(step.alpha > 0.0)
        on = ~done & going[:, columns].any(axis=0)
        columns = columns[on]
        step = steps.send(on) if columns.size and count < last else None
    return UnbiasedSolution(x, reached, count)
