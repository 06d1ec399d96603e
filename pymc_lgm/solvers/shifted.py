"""A preconditioner that is an iteration itself: the system with more noise."""

from __future__ import annotations

import numpy as np

from pymc_lgm.linalg import Array
from pymc_lgm.solvers.kernel_matrix import KernelSystem
from pymc_lgm.solvers.pcg import conjugate_gradients

__all__ = ["Shifted"]


class Shifted:
    """P = A + δ I, whose systems are easier than A's: solved by conjugate gradients of their own.

    Parameters
    ----------
    system : KernelSystem
        A.
    delta : float
        δ; the paper takes a hundred times the noise.
    rtol : float
        Of the inner iteration.

    Attributes
    ----------
    products : int
        Products with A that inner iterations took, which count, too.
    """

    is_linear = False
    log_determinant: float | None = None

    def __init__(self, system: KernelSystem, delta: float, rtol: float = 1e-3):
        self._inner = KernelSystem(system.kernel, system.shift + delta, system.scale)
        self._rtol = rtol
        self.products = 0

    def solve(self, V: Array) -> Array:
        """(A + δ I)⁻¹ V, nearly."""
        solution = conjugate_gradients(self._inner.times, V, rtol=self._rtol)
        self.products += solution.iterations
        return solution.x

    def draw(self, rng: np.random.Generator, count: int) -> Array:
        """There are none."""
        raise NotImplementedError(
            "A shifted system has no draws that are cheap. Write preconditioner='nystrom' for a "
            "log-determinant."
        )
