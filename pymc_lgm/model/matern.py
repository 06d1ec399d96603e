"""Matérn fields on a mesh, whose op has C and G: `pymc_lgm.gmrf.Matern`."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytensor.tensor as pt

from pymc_lgm.gaussian.spde import FiniteElements, OfMesh
from pymc_lgm.gmrf import MaternRV, kappa_and_tau

__all__ = ["Matern", "as_matern", "is_matern"]

Variable = Any


class Matern(NamedTuple):
    """Precision τ² (κ⁴ C + 2 κ² G + G C⁻¹ G): see `pymc_lgm.model.latents.FieldLaw`.

    Attributes
    ----------
    elements : FiniteElements
    kappa, tau : variable
        Scalars.
    name : str
    """

    elements: FiniteElements
    kappa: Variable
    tau: Variable
    name: str

    @property
    def reads(self) -> list[Variable]:
        """κ and τ."""
        return [self.kappa, self.tau]

    def covariance(self) -> Variable:
        """The covariance, shape (n, n): an inverse, O(n³)."""
        C, G = pt.constant(self.elements.c), pt.constant(self.elements.G.toarray())
        K = self.kappa**2 * pt.diag(C) + G
        inverse = pt.linalg.inv(K)
        return pt.dot(inverse * C, inverse) / self.tau**2

    def family(self, n: int) -> OfMesh:
        """The family of precisions on the mesh."""
        return OfMesh(self.elements)

    def explain(self, where: str) -> str:
        """Say that range or σ is the cause, since nothing else is random."""
        return (
            f"The range or the sigma of {self.name!r} is not positive and finite {where}, or the "
            "range is thousands of times as long as the edges of the mesh. Give both priors on "
            "positive numbers, such as lgm.gmrf.pc_prior."
        )


def is_matern(rv: Variable) -> bool:
    """Whether a random variable is one field on a mesh, not a batch of them."""
    return isinstance(rv.owner.op, MaternRV) and rv.ndim == 1


def as_matern(rv: Variable) -> Matern:
    """The precision of a Matérn field, from the mesh, range and σ of its op."""
    numbers = [each.astype("float64") for each in rv.owner.op.dist_params(rv.owner)]
    # PyMC's density is 0 if range or σ is not positive.
    positive = [pt.switch(pt.gt(each, 0.0), each, float("nan")) for each in numbers]
    kappa, tau = kappa_and_tau(*positive)
    return Matern(rv.owner.op.mesh.elements, kappa, tau, str(rv.name))
