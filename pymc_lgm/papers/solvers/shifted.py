"""An iterative preconditioner: the system with more noise."""

from __future__ import annotations

import numpy as np

from pymc_lgm.linalg import Array
from pymc_lgm.papers.solvers.kernel_matrix import KernelSystem
from pymc_lgm.papers.solvers.pcg import conjugate_gradients

__all__ = ["Shifted"]


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
