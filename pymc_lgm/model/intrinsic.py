"""Intrinsic areas as PyMC has them: `pymc.ICAR`, and so the model of Besag, York and Mollié.

Its density is that of a normal vector with precision Q + 11ᵀ/(n s)², Q = D − W and s the standard
deviation of the soft constraint on the mean: proper where the map is connected.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt

from pymc.distributions.multivariate import ICARRV
from pytensor.graph.basic import Constant
from scipy.sparse import csc_array
from scipy.sparse.csgraph import connected_components

from pymc_lgm.model import refusals
from pymc_lgm.priors.intrinsic import IntrinsicField

__all__ = ["Intrinsic", "as_intrinsic", "is_intrinsic"]

Variable = Any


class Intrinsic(NamedTuple):
    """What a `pymc.ICAR` says: see `pymc_lgm.model.latents.FieldLaw`.

    Attributes
    ----------
    W : sparse array, shape (n, n)
    sigma : float
        Scale of the differences between neighbors.
    sd : float
        Standard deviation of the mean.
    """

    W: csc_array
    sigma: float
    sd: float

    @property
    def reads(self) -> list[Variable]:
        """Nothing: the law is fixed."""
        return []

    def covariance(self) -> Variable:
        """(n, n): an inverse, O(n³)."""
        W = self.W.toarray()
        Q = (np.diag(W.sum(axis=1)) - W) / self.sigma**2
        cov = np.linalg.inv(Q + 1.0 / (len(W) * self.sd) ** 2)
        return pt.constant(0.5 * (cov + cov.T))

    def maker(self, n: int) -> IntrinsicField:
        """Sparse, with a correction of rank two."""
        return IntrinsicField(self.W, self.sd, self.sigma)

    def explain(self, where: str) -> str:
        """Nothing depends on theta."""
        return f"The map has no proper prior {where}."


def is_intrinsic(rv: Variable) -> bool:
    """Whether a random variable is one vector of intrinsic areas with a fixed map."""
    op = rv.owner.op
    return isinstance(op, ICARRV) and rv.ndim == 1 and isinstance(_parameters(rv)[0], Constant)


def as_intrinsic(rv: Variable) -> Intrinsic:
    """What it is made of.

    Raises
    ------
    ValueError
        If its scale is random, which PyMC's density is not normalized for, or if the map is not
        connected.
    """
    W, sigma, sd = _parameters(rv)
    name = str(rv.name)
    if not (isinstance(sigma, Constant) and isinstance(sd, Constant)):
        raise ValueError(refusals.intrinsic_scale(name))
    weights = csc_array(W.data, dtype=np.float64)
    count, component = connected_components(weights, directed=False)
    if count > 1:
        raise ValueError(refusals.not_connected(name, np.bincount(component).tolist()))
    return Intrinsic(weights, float(sigma.data), float(sd.data))


def _parameters(rv: Variable) -> list[Variable]:
    """W, sigma and the standard deviation of the mean."""
    parameters: list[Variable] = list(rv.owner.op.dist_params(rv.owner))
    return parameters
