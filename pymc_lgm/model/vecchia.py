"""Nearest-neighbor processes, `pymc_lgm.gp.Vecchia`: what the op says of the precision."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt

from pytensor.tensor.linalg import solve_triangular

from pymc_lgm.gaussian.neighbors import NearestNeighbors, Neighbors
from pymc_lgm.vecchia import VecchiaRV

__all__ = ["Vecchia", "as_vecchia", "is_vecchia"]

Variable = Any


class Vecchia(NamedTuple):
    """f_i | f_{N(i)} ~ N(B_i f_{N(i)}, D_i): see `pymc_lgm.model.latents.FieldLaw`.

    Attributes
    ----------
    neighbors : Neighbors
    B, D : variable
        (n, m) and (n,), in the order of the neighbors.
    name : str
    """

    neighbors: Neighbors
    B: Variable
    D: Variable
    name: str

    @property
    def reads(self) -> list[Variable]:
        """B and D."""
        return [self.B, self.D]

    def covariance(self) -> Variable:
        """(I − B)⁻¹ D (I − B)⁻ᵀ, (n, n): O(n³)."""
        known, n = self.neighbors, self.neighbors.n
        row, slot = np.nonzero(known.there)
        zeros = pt.zeros((n, n))
        whole = pt.set_subtensor(zeros[row, known.of[row, slot]], self.B[row, slot])
        root = solve_triangular(pt.eye(n) - whole, pt.diag(pt.sqrt(self.D)), lower=True)
        root = root[known.back]
        return pt.dot(root, root.T)

    def family(self, n: int) -> NearestNeighbors:
        """Q by its elements."""
        return NearestNeighbors(self.neighbors)

    def explain(self, where: str) -> str:
        """Say which covariance is the cause, and two remedies."""
        return (
            f"The covariance of {self.name!r} at a point and its neighbors is not positive "
            f"definite, or not finite, {where}. Points may be too close for a smooth covariance "
            "function: write a larger jitter=, or start scales away from zero, as with initval=1."
        )


def is_vecchia(rv: Variable) -> bool:
    """Whether a random variable is one nearest-neighbor process, not a batch of them."""
    return isinstance(rv.owner.op, VecchiaRV) and rv.ndim == 1


def as_vecchia(rv: Variable) -> Vecchia:
    """Read the neighbors, B and D."""
    op = rv.owner.op
    B, D = (v.astype("float64") for v in op.dist_params(rv.owner))
    return Vecchia(op.neighbors, B, D, str(rv.name))
