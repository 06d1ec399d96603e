"""Structure and constraints of the intrinsic fields of `pymc_lgm.gmrf`, read from their op."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytensor.tensor as pt

from pymc_lgm.gaussian.structure import OfStructure, Structure
from pymc_lgm.gmrf import ConstraintTransform, IntrinsicRV

__all__ = ["Structured", "as_structured", "is_structured", "transform_of"]

Variable = Any


class Structured(NamedTuple):
    """Precision R/σ² on Cᵀ x = 0: see `pymc_lgm.model.latents.FieldLaw`.

    Attributes
    ----------
    structure : Structure
    sigma : variable
        A number.
    name : str
    shape : tuple of int
        The shape of the variable, whose elements are the vector.
    """

    structure: Structure
    sigma: Variable
    name: str
    shape: tuple[int, ...]

    @property
    def reads(self) -> list[Variable]:
        """σ."""
        return [self.sigma]

    def covariance(self) -> Variable:
        """The covariance of the coordinates, (n − k, n − k)."""
        return self.sigma**2 * pt.constant(self.structure.covariance())

    def family(self, n: int) -> OfStructure:
        """Q by its elements, with constraints."""
        return OfStructure(self.structure)

    def explain(self, where: str) -> str:
        """Say that σ is the cause: nothing else is random."""
        return (
            f"The sigma of {self.name!r} is not positive and finite {where}. Give it a prior on "
            "positive numbers, as lgm.gmrf.pc_prior has."
        )


def is_structured(rv: Variable) -> bool:
    """Whether a random variable is one intrinsic field, not a batch of them."""
    return isinstance(rv.owner.op, IntrinsicRV) and rv.ndim == rv.owner.op.ndim_supp


def transform_of(rv: Variable) -> ConstraintTransform:
    """The default transform of such a field, to compare with the one that the model has."""
    return ConstraintTransform(rv.owner.op.structure, rv.owner.op.supp_shape)


def as_structured(rv: Variable) -> Structured:
    """Read structure and sigma from the op. A sigma that is not positive becomes NaN."""
    (sigma,) = rv.owner.op.dist_params(rv.owner)
    sigma = sigma.astype("float64")
    op = rv.owner.op
    return Structured(
        op.structure, pt.switch(pt.gt(sigma, 0.0), sigma, float("nan")), str(rv.name), op.supp_shape
    )
