"""Latent vectors with a sparse precision that their distribution describes.

They are the areas of PyMC, `pymc.CAR` and `pymc.ICAR`, and fields of this package: intrinsic ones,
Matérn fields on a mesh (`pymc_lgm.gmrf`), and nearest-neighbor processes (`pymc_lgm.gp.Vecchia`).

The precision of `pymc.CAR` is τ (D − α W). `pymc.ICAR`, and so the model of Besag, York and Mollié,
has the density of a normal vector with precision Q + 11ᵀ/(n s)², where Q = D − W, and s is the
standard deviation of the soft constraint on the mean. It is proper if the map is connected.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
import pytensor.tensor as pt

from pymc.distributions.multivariate import CARRV, ICARRV
from pytensor.graph.basic import Constant
from pytensor.tensor.linalg import solve_triangular
from scipy.sparse import csc_array
from scipy.sparse.csgraph import connected_components

from pymc_lgm.gaussian import Family
from pymc_lgm.gaussian.families import Map
from pymc_lgm.gaussian.neighbors import NearestNeighbors, Neighbors
from pymc_lgm.gaussian.spde import FiniteElements, OfMesh
from pymc_lgm.gaussian.structure import IntrinsicMap, OfStructure, Structure
from pymc_lgm.gmrf import ConstraintTransform, IntrinsicRV, MaternRV, kappa_and_tau
from pymc_lgm.model import refusals
from pymc_lgm.model.integrates import positive_or_nan
from pymc_lgm.model.series import as_series, as_vector_walk, is_series, is_vector_walk
from pymc_lgm.vecchia import VecchiaRV

__all__ = [
    "FIELDS",
    "FieldLaw",
    "Structured",
    "is_areas",
    "is_structured",
    "is_vecchia",
    "transform_of",
]

Variable = Any


class FieldLaw(Protocol):
    """The prior of a latent vector with a sparse precision."""

    @property
    def reads(self) -> list[Variable]:
        """Graphs whose values `Family.at` takes."""

    def covariance(self) -> Variable:
        """The covariance, shape (n, n), as a graph, for models that need a dense one."""

    def family(self, n: int) -> Family:
        """The family of n elements, a function of the values of ``reads``."""

    def explain(self, where: str) -> str:
        """Say why there is no proper prior, and what to write instead."""


class Areas(NamedTuple):
    """The precision of a `pymc.CAR`: a `FieldLaw`.

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
        return pt.linalg.inv(positive_or_nan(self.tau) * (np.diag(W.sum(axis=0)) - alpha * W))

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
    """The precision of a `pymc.ICAR`: a `FieldLaw`.

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
    return (
        isinstance(op, ICARRV)
        and rv.ndim == 1
        and isinstance(op.dist_params(rv.owner)[0], Constant)
    )


def as_intrinsic(rv: Variable) -> tuple[Variable, IntrinsicAreas]:
    """The mean and the precision of a `pymc.ICAR`.

    Raises
    ------
    ValueError
        If its scale is random, for which PyMC's density is not normalized, or if the map is not
        connected.
    """
    W, sigma, sd = rv.owner.op.dist_params(rv.owner)
    name = str(rv.name)
    if not (isinstance(sigma, Constant) and isinstance(sd, Constant)):
        raise ValueError(refusals.intrinsic_scale(name))
    weights = csc_array(W.data, dtype=np.float64)
    count, component = connected_components(weights, directed=False)
    if count > 1:
        raise ValueError(refusals.not_connected(name, np.bincount(component).tolist()))
    return pt.zeros(()), IntrinsicAreas(weights, float(sigma.data), float(sd.data))


class Structured(NamedTuple):
    """Precision R/σ² on Cᵀ x = 0: a `FieldLaw`.

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
    return ConstraintTransform(rv.owner.op.structure, rv.owner.op.shape)


def as_structured(rv: Variable) -> tuple[Variable, Structured]:
    """The mean and the precision of an intrinsic field, from its op."""
    (sigma,) = rv.owner.op.dist_params(rv.owner)
    op = rv.owner.op
    sigma = positive_or_nan(sigma)
    return pt.zeros(()), Structured(op.structure, sigma, str(rv.name), op.shape)


class Matern(NamedTuple):
    """Precision τ² (κ⁴ C + 2 κ² G + G C⁻¹ G): a `FieldLaw`.

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


def as_matern(rv: Variable) -> tuple[Variable, Matern]:
    """The mean and the precision of a Matérn field, from the mesh, range and σ of its op."""
    kappa, tau = kappa_and_tau(*map(positive_or_nan, rv.owner.op.dist_params(rv.owner)))
    return pt.zeros(()), Matern(rv.owner.op.mesh.elements, kappa, tau, str(rv.name))


class Vecchia(NamedTuple):
    """A prior f_i | f_{N(i)} ~ N(B_i f_{N(i)}, D_i), a `FieldLaw`.

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


def as_vecchia(rv: Variable) -> tuple[Variable, Vecchia]:
    """The mean and the prior of a nearest-neighbor process, from its op and the op's inputs."""
    op = rv.owner.op
    B, D = (v.astype("float64") for v in op.dist_params(rv.owner))
    return pt.zeros(()), Vecchia(op.neighbors, B, D, str(rv.name))


FIELDS: dict[Callable[[Variable], bool], Callable[[Variable], tuple[Variable, FieldLaw]]] = {
    is_structured: as_structured,
    is_vecchia: as_vecchia,
    is_series: as_series,
    is_vector_walk: as_vector_walk,
    is_areas: as_areas,
    is_intrinsic: as_intrinsic,
    is_matern: as_matern,
}
"""Kinds of random variables with a sparse precision, and what finds their mean and prior."""
