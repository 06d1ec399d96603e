"""Nearest-neighbor processes, `pymc_lgm.gp.Vecchia`: the sparse prior that their op describes."""

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
    """A prior f_i | f_{N(i)} ~ N(B_i f_{N(i)}, D_i), as `pymc_lgm.model.latents.FieldLaw`.

    Attributes
    ----------
    neighbors : Neighbors
        An order of the n elements, and N(i), up to m elements before each in this order.
    B, D : variable, shape (n, m) and (n,)
        Weights of the neighbors and conditional variances, as graphs, in this order.
    name : str
        Name of the random variable, for errors.
    """

    neighbors: Neighbors
    B: Variable
    D: Variable
    name: str

    @property
    def reads(self) -> list[Variable]:
        """B and D, which `NearestNeighbors.at` takes."""
        return [self.B, self.D]

    def covariance(self) -> Variable:
        """(I − B)⁻¹ D (I − B)⁻ᵀ in the model's order, shape (n, n), for O(n³) operations."""
        neighbors, n = self.neighbors, self.neighbors.n
        row, slot = np.nonzero(neighbors.there)
        zeros = pt.zeros((n, n))
        B = pt.set_subtensor(zeros[row, neighbors.of[row, slot]], self.B[row, slot])
        root = solve_triangular(pt.eye(n) - B, pt.diag(pt.sqrt(self.D)), lower=True)
        root = root[neighbors.back]
        return pt.dot(root, root.T)

    def family(self, n: int) -> NearestNeighbors:
        """The sparse Q as a function of B and D; the neighbors know n."""
        return NearestNeighbors(self.neighbors)

    def explain(self, where: str) -> str:
        """Name the covariances that may fail, those of a point and its neighbors, and remedies."""
        return (
            f"The covariance of {self.name!r} at a point and its neighbors is not positive "
            f"definite, or not finite, {where}. Points may be too close for a smooth covariance "
            "function: write a larger jitter=, or start scales away from zero, as with initval=1."
        )


def is_vecchia(rv: Variable) -> bool:
    """Whether a random variable is one nearest-neighbor process, not a batch of them."""
    return isinstance(rv.owner.op, VecchiaRV) and rv.ndim == 1


def as_vecchia(rv: Variable) -> Vecchia:
    """The prior of a nearest-neighbor process, from its op and the op's inputs."""
    op = rv.owner.op
    B, D = (v.astype("float64") for v in op.dist_params(rv.owner))
    return Vecchia(op.neighbors, B, D, str(rv.name))
