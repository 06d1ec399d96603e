"""Areas as PyMC has them: `pymc.CAR` and `pymc.ICAR`, whose precisions are as sparse as a map.

That of `pymc.CAR` is τ (D − α W). The density of `pymc.ICAR`, and so of the model of Besag, York
and Mollié, is that of a normal vector with precision Q + 11ᵀ/(n s)², Q = D − W and s the standard
deviation of the soft constraint on the mean: proper where the map is connected.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt

from pymc.distributions.multivariate import CARRV, ICARRV
from pytensor.graph.basic import Constant
from scipy.sparse import csc_array
from scipy.sparse.csgraph import connected_components

from pymc_lgm.gaussian.families import Intrinsic as IntrinsicFamily
from pymc_lgm.gaussian.families import Map
from pymc_lgm.model import refusals

__all__ = ["Areas", "Intrinsic", "as_areas", "as_intrinsic", "is_areas", "is_intrinsic"]

Variable = Any


class Areas(NamedTuple):
    """What a `pymc.CAR` says, but for its mean: see `pymc_lgm.model.latents.FieldLaw`.

    Attributes
    ----------
    W : sparse array, shape (n, n)
    alpha, tau : variable
        Numbers.
    name : str
    """

    W: csc_array
    alpha: Variable
    tau: Variable
    name: str

    @property
    def reads(self) -> list[Variable]:
        """τ and α."""
        return [self.tau, self.alpha]

    def covariance(self) -> Variable:
        """(n, n): an inverse, O(n³); NaN where `pymc.CAR` has no density."""
        W, inside = self.W.toarray(), pt.lt(abs(self.alpha), 1.0)
        alpha = pt.switch(inside, self.alpha, np.nan)
        tau = pt.switch(pt.gt(self.tau, 0.0), self.tau, np.nan)
        return pt.linalg.inv(tau * (np.diag(W.sum(axis=0)) - alpha * W))

    def family(self, n: int) -> Map:
        """Q by its elements."""
        return Map(self.W)

    def explain(self, where: str) -> str:
        """What keeps Q from being positive definite."""
        return (
            f"The precision of {self.name!r}, tau (D - alpha W), is not positive definite {where}: "
            "it needs tau > 0 and -1 < alpha < 1. Give alpha a pm.Beta prior."
        )


def is_areas(rv: Variable) -> bool:
    """Whether a random variable is one vector of areas with a fixed map."""
    op = rv.owner.op
    return isinstance(op, CARRV) and rv.ndim == 1 and isinstance(rv.owner.inputs[3], Constant)


def as_areas(rv: Variable) -> tuple[Variable, Areas]:
    """Its mean, and what its precision is made of.

    Raises
    ------
    ValueError
        If W is not symmetric, has a negative weight, or an area without neighbors.
    """
    _, _, mean, W, alpha, tau, *_ = rv.owner.inputs
    weights = csc_array(W.data, dtype=np.float64, copy=True)
    weights.eliminate_zeros()  # what is stored is a neighbor
    name = rv.name
    if abs(weights - weights.T).max() > 0.0:
        i, j = (int(each[0]) for each in (weights - weights.T).nonzero())
        raise ValueError(
            f"W of {name!r} is not symmetric: W[{i}, {j}] is {weights[i, j]:g}, and W[{j}, {i}] is "
            f"{weights[j, i]:g}. Neighbors are neighbors both ways."
        )
    if weights.size and weights.min() < 0.0:
        raise ValueError(f"W of {name!r} has a negative weight: neighbors have a positive one.")
    count = np.asarray(weights.sum(axis=0)).ravel()
    if not (count > 0.0).all():
        raise ValueError(
            f"Area {int(np.flatnonzero(count == 0.0)[0])} of {name!r} has no neighbor in W, so its "
            "precision is zero. Join it to an area across the water, or leave it out of W and give "
            "it an independent effect: pt.concatenate([phi, pm.Normal('islands', 0, s, shape=1)])."
        )
    alpha, tau = (pt.as_tensor(x).reshape(()).astype("float64") for x in (alpha, tau))
    return mean, Areas(weights, alpha, tau, str(name))


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

    def family(self, n: int) -> IntrinsicFamily:
        """Sparse, with a correction of rank two."""
        return IntrinsicFamily(self.W, self.sd, self.sigma)

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
