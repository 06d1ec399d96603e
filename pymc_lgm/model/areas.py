"""Areas as PyMC has them: `pymc.CAR`, whose precision τ (D − α W) is as sparse as a map."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt

from pymc.distributions.multivariate import CARRV
from pytensor.graph.basic import Constant
from scipy.sparse import csc_array

from pymc_lgm.priors.markov import MapMaker

__all__ = ["Areas", "as_areas", "is_areas"]

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

    def maker(self, n: int) -> MapMaker:
        """Q by its elements."""
        return MapMaker(self.W)

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
