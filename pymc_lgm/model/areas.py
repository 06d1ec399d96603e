"""PyMC's distributions of areas, `pymc.CAR` and `pymc.ICAR`, whose precisions are sparse.

The precision of `pymc.CAR` is τ (D − α W). `pymc.ICAR`, and so the model of Besag, York and Mollié,
has the density of a normal vector with precision Q + 11ᵀ/(n s)², where Q = D − W, and s is the
standard deviation of the soft constraint on the mean. It is proper if the map is connected.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt

from pymc.distributions.multivariate import CARRV, ICARRV
from pytensor.graph.basic import Constant
from scipy.sparse import csc_array
from scipy.sparse.csgraph import connected_components

from pymc_lgm.gaussian.families import Map
from pymc_lgm.gaussian.structure import IntrinsicMap
from pymc_lgm.model import refusals

__all__ = ["Areas", "IntrinsicAreas", "as_areas", "as_intrinsic", "is_areas", "is_intrinsic"]

Variable = Any


class Areas(NamedTuple):
    """The precision of a `pymc.CAR`: see `pymc_lgm.model.latents.FieldLaw`.

    Attributes
    ----------
    W : sparse array, shape (n, n)
    alpha, tau : variable
        Scalars.
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
        """The covariance, shape (n, n): an inverse, O(n³); NaN if `pymc.CAR` has no density."""
        W = self.W.toarray()
        inside = pt.lt(abs(self.alpha), 1.0)
        alpha = pt.switch(inside, self.alpha, np.nan)
        tau = pt.switch(pt.gt(self.tau, 0.0), self.tau, np.nan)
        return pt.linalg.inv(tau * (np.diag(W.sum(axis=0)) - alpha * W))

    def family(self, n: int) -> Map:
        """The family of precisions τ (D − α W)."""
        return Map(self.W)

    def explain(self, where: str) -> str:
        """Say why Q is not positive definite, and what to write instead."""
        return (
            f"The precision of {self.name!r}, tau (D - alpha W), is not positive definite {where}: "
            "it needs tau > 0 and -1 < alpha < 1. Give alpha a pm.Beta prior."
        )


def is_areas(rv: Variable) -> bool:
    """Whether a random variable is one vector of areas with a fixed map."""
    op = rv.owner.op
    return isinstance(op, CARRV) and rv.ndim == 1 and isinstance(rv.owner.inputs[3], Constant)


def as_areas(rv: Variable) -> tuple[Variable, Areas]:
    """The mean and the precision of a `pymc.CAR`.

    Raises
    ------
    ValueError
        If W is not symmetric, has a negative weight, or an area without neighbors.
    """
    _, _, mean, W, alpha, tau, *_ = rv.owner.inputs
    weights = csc_array(W.data, dtype=np.float64, copy=True)
    weights.eliminate_zeros()  # stored elements count as neighbors
    name = rv.name
    if abs(weights - weights.T).max() > 0.0:
        i, j = (int(each[0]) for each in (weights - weights.T).nonzero())
        raise ValueError(
            f"W of {name!r} is not symmetric: W[{i}, {j}] is {weights[i, j]:g}, and W[{j}, {i}] is "
            f"{weights[j, i]:g}. If i is a neighbor of j, j must be a neighbor of i."
        )
    if weights.size and weights.min() < 0.0:
        raise ValueError(f"W of {name!r} has a negative weight: give neighbors a positive one.")
    count = np.asarray(weights.sum(axis=0)).ravel()
    if not (count > 0.0).all():
        raise ValueError(
            f"Area {int(np.flatnonzero(count == 0.0)[0])} of {name!r} has no neighbor in W, so its "
            "precision is zero. Join it to an area across the water, or leave it out of W and give "
            "it an independent effect: pt.concatenate([phi, pm.Normal('islands', 0, s, shape=1)])."
        )
    alpha, tau = (pt.as_tensor(x).reshape(()).astype("float64") for x in (alpha, tau))
    return mean, Areas(weights, alpha, tau, str(name))


class IntrinsicAreas(NamedTuple):
    """The precision of a `pymc.ICAR`: see `pymc_lgm.model.latents.FieldLaw`.

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
        """Empty, because the precision is fixed."""
        return []

    def covariance(self) -> Variable:
        """The covariance, shape (n, n): an inverse, O(n³)."""
        W = self.W.toarray()
        Q = (np.diag(W.sum(axis=1)) - W) / self.sigma**2
        cov = np.linalg.inv(Q + 1.0 / (len(W) * self.sd) ** 2)
        return pt.constant(0.5 * (cov + cov.T))

    def family(self, n: int) -> IntrinsicMap:
        """A sparse precision with a correction of rank two."""
        return IntrinsicMap(self.W, self.sd, self.sigma)

    def explain(self, where: str) -> str:
        """Say that there is no proper prior, which does not depend on theta."""
        return f"The map has no proper prior {where}."


def is_intrinsic(rv: Variable) -> bool:
    """Whether a random variable is one vector of intrinsic areas with a fixed map."""
    op = rv.owner.op
    return isinstance(op, ICARRV) and rv.ndim == 1 and isinstance(_parameters(rv)[0], Constant)


def as_intrinsic(rv: Variable) -> IntrinsicAreas:
    """The precision of a `pymc.ICAR`.

    Raises
    ------
    ValueError
        If its scale is random, for which PyMC's density is not normalized, or if the map is not
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
    return IntrinsicAreas(weights, float(sigma.data), float(sd.data))


def _parameters(rv: Variable) -> list[Variable]:
    """W, sigma and the standard deviation of the mean."""
    parameters: list[Variable] = list(rv.owner.op.dist_params(rv.owner))
    return parameters
