"""ULISSE: unbiased solutions of linear systems by conjugate gradients with a random end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pymc_lgm.linalg import Array
from pymc_lgm.papers.solvers.pcg import Times, iterations
from pymc_lgm.papers.solvers.preconditioners import Identity

__all__ = ["UnbiasedSolution", "ulisse"]

TOLERANCE, LONGEST = 1e-8, 10
"""An estimate ends in any case at this error per row, or after so many iterations per row."""


@dataclass(frozen=True, eq=False)
class UnbiasedSolution:
    """Result of `ulisse`.

    Attributes
    ----------
    x : ndarray, shape (copies, n, N)
        Random with E x = A⁻¹ b, and independent between copies given ``start``.
    reached : ndarray, shape (n, N)
        The iterate at which the last copy ended, without weights. It is a start for a nearby
        system.
    iterations : int
        Number of products with A, each with all columns that some copy still iterates.
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
) -> UnbiasedSolution:
    """Estimate A⁻¹ b without bias, A symmetric and positive definite, by products A v.

    Let δ_i be the increments of conjugate gradients, and let l be the first iterate with |r| <
    early √n. The first l increments are always added. The j-th increment after them is added with
    probability 1 / w_j and weight Π_(i≤j) w_i, where w_j = e^(βj). The copy ends the first time
    that an increment is not added. The expectation is the sum of all increments, which is the
    solution to within an error of 1e-8 per row. After 10 n iterations a copy ends in any case.

    Parameters
    ----------
    times : callable
        V -> A V, for columns.
    b : ndarray, shape (n, N)
    rng : numpy.random.Generator
    copies : int
        Number of estimates of each column from one run of conjugate gradients. A quadratic form
        needs two.
    start : ndarray, shape (n, N), optional
        First x, by default 0.
    early : float
        The paper's q: the error per row below which iterations may end.
    beta : float
        Rate of ending. With a larger rate iterations end sooner, and estimates vary more.

    Returns
    -------
    UnbiasedSolution

    Notes
    -----
    The expectation is exact, but rare events contribute to it: with β = 1 the fourth increment
    after l is added in one of e⁶ = 400 estimates with 400 times its size, the fifth in one of e¹⁰.
    An average of fewer estimates usually lacks these increments. This does no harm if the
    increments decrease equally fast.

    References
    ----------
    M. Filippone, R. Engler (2015). Enabling scalable stochastic gradient-based inference for
    Gaussian processes by employing the unbiased linear system solver (ULISSE). ICML, §4.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_lgm.papers.solvers import ulisse
    >>> A, b = np.diag([1.0, 2.0, 4.0]), np.ones((3, 1))
    >>> rng = np.random.default_rng(0)
    >>> some = ulisse(lambda V: A @ V, b, rng, copies=4000, beta=0.2, early=1.0)
    >>> bool(np.allclose(some.x.mean(axis=0)[:, 0], [1.0, 0.5, 0.25], atol=0.05))
    True
    """
    n, N = b.shape
    reached = np.zeros_like(b) if start is None else start.copy()
    r = b if start is None else b - times(start)
    x = np.repeat(reached[None], copies, axis=0)
    residuals = np.linalg.norm(r, axis=0)
    columns = np.flatnonzero(residuals > TOLERANCE * np.sqrt(n))
    going = np.zeros((copies, N), dtype=bool)
    going[:, columns] = True
    # Increments offered to a column since the early stop, and the weight of the next one.
    turns = np.full(N, -1)
    weight = np.ones(N)
    count = 0
    steps = iterations(times, r[:, columns], Identity(n))
    step = next(steps) if columns.size else None
    while step is not None:
        count += 1
        reached[:, columns] += step.increments
        # The increment that first reaches the early stop is the first one that is added at random.
        turns[columns] += (turns[columns] >= 0) | (step.residuals < early * np.sqrt(n))
        w = np.exp(beta * np.maximum(turns, 0.0))
        weight[columns] *= w[columns]
        going &= rng.uniform(size=going.shape) * w < 1.0
        x[:, :, columns] += (going[:, columns] * weight[columns])[:, None] * step.increments
        done = ~(step.residuals > TOLERANCE * np.sqrt(n)) | ~(step.alpha > 0.0)
        on = ~done & going[:, columns].any(axis=0)
        columns = columns[on]
        step = steps.send(on) if columns.size and count < LONGEST * n else None
    return UnbiasedSolution(x, reached, count)
