"""Latent vectors with a sparse precision that their distribution describes.

They are the areas of PyMC, `pymc.CAR` and `pymc.ICAR`, and fields of this package: intrinsic ones,
Matérn fields on a mesh (`pymc_lgm.gmrf`), and nearest-neighbor processes (`pymc_lgm.gp.Vecchia`).

The precision of `pymc.CAR` is τ (D − α W). `pymc.ICAR`, and so the model of Besag, York and Mollié,
has the density of a normal vector with precision Q + 11ᵀ/(n s)², where Q = D − W, and s is the
standard deviation of the soft constraint on the mean. It is proper if the map is connected.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytensor.tensor as pt

from pymc.distributions.multivariate import CARRV, ICARRV
from pytensor.graph.basic import Constant
from pytensor.tensor.linalg import solve_triangular
from scipy.sparse import csc_array
from scipy.sparse.csgraph import connected_components

from pymc_lgm.gaussian.families import Map
from pymc_lgm.gaussian.neighbors import NearestNeighbors
from pymc_lgm.gaussian.spde import OfMesh
from pymc_lgm.gaussian.structure import IntrinsicFamily, IntrinsicMap
from pymc_lgm.gmrf import ConstraintTransform, IntrinsicRV, MaternRV, kappa_and_tau
from pymc_lgm.model.integrates import positive_or_nan
from pymc_lgm.model.operations import Variable
from pymc_lgm.model.series import as_series, as_vector_walk, is_series, is_vector_walk
from pymc_lgm.model.sparse_precision import FieldLaw
from pymc_lgm.vecchia import VecchiaRV

__all__ = [
    "FIELDS",
    "is_areas",
    "is_structured",
    "is_vecchia",
    "transform_of",
]


def is_areas(rv: Variable) -> bool:
    """Whether a random variable is one vector of areas with a fixed map."""
    op = rv.owner.op
    return isinstance(op, CARRV) and rv.ndim == 1 and isinstance(rv.owner.inputs[3], Constant)


def as_areas(rv: Variable) -> tuple[Variable, FieldLaw]:
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

    def covariance() -> Variable:
        """An inverse; NaN if `pymc.CAR` has no density."""
        W = weights.toarray()
        inside = pt.switch(pt.lt(abs(alpha), 1.0), alpha, np.nan)
        return pt.linalg.inv(positive_or_nan(tau) * (np.diag(W.sum(axis=0)) - inside * W))

    return mean, FieldLaw(
        kind="areas",
        reads=[tau, alpha],
        family=lambda n: Map(weights),
        covariance=covariance,
        fault=f"The precision of {name!r}, tau (D - alpha W), is not positive definite",
        remedy=": it needs tau > 0 and -1 < alpha < 1. Give alpha a pm.Beta prior.",
    )


def is_intrinsic(rv: Variable) -> bool:
    """Whether a random variable is one vector of intrinsic areas with a fixed map."""
    op = rv.owner.op
    return (
        isinstance(op, ICARRV)
        and rv.ndim == 1
        and isinstance(op.dist_params(rv.owner)[0], Constant)
    )


def as_intrinsic(rv: Variable) -> tuple[Variable, FieldLaw]:
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
        raise ValueError(
            f"pm.ICAR({name!r}) has a sigma, or a zero_sum_stdev, that is not constant. Its "
            "density leaves out -(n - 1) log(sigma): the posterior of sigma would be wrong with "
            f"any sampler. Write pm.ICAR({name!r}, W=W), and multiply it by the scale: mu = "
            "pm.math.exp(b0 + sigma * (pm.math.sqrt(1 - rho) * theta + pm.math.sqrt(rho / s) * "
            "phi)) with s = lgm.spatial.scaling_factor(W)."
        )
    weights = csc_array(W.data, dtype=np.float64)
    count, component = connected_components(weights, directed=False)
    if count > 1:
        sizes = np.bincount(component).tolist()
        raise ValueError(
            f"The map of pm.ICAR({name!r}) has {len(sizes)} connected parts, of "
            f"{', '.join(map(str, sizes))} areas: the level of each is free, and the prior "
            "improper. Join them, as by a ferry. Or use one ICAR per part, and independent effects "
            "for areas without neighbors: phi = pt.concatenate([pm.ICAR('north', W=W_north), "
            "pm.ICAR('south', W=W_south), pm.Normal('islands', 0, 1, shape=k)]), divided by "
            "np.sqrt(lgm.spatial.scaling_factor(W)), which has the scale of each area's part."
        )
    scale, sd_of_mean = float(sigma.data), float(sd.data)

    def covariance() -> Variable:
        W = weights.toarray()
        Q = (np.diag(W.sum(axis=1)) - W) / scale**2
        cov = np.linalg.inv(Q + 1.0 / (len(W) * sd_of_mean) ** 2)
        return pt.constant(0.5 * (cov + cov.T))

    return pt.zeros(()), FieldLaw(
        kind="intrinsic areas",
        reads=[],  # the precision is fixed
        family=lambda n: IntrinsicMap(weights, sd_of_mean, scale),
        covariance=covariance,
        fault="The map has no proper prior",
        remedy=".",
    )


def is_structured(rv: Variable) -> bool:
    """Whether a random variable is one intrinsic field, not a batch of them."""
    return isinstance(rv.owner.op, IntrinsicRV) and rv.ndim == rv.owner.op.ndim_supp


def transform_of(rv: Variable) -> ConstraintTransform:
    """The default transform of such a field, to compare with the one that the model has."""
    return ConstraintTransform(rv.owner.op.structure, rv.owner.op.shape)


def as_structured(rv: Variable) -> tuple[Variable, FieldLaw]:
    """The mean and the precision R/σ² on Cᵀ x = 0 of an intrinsic field, from its op."""
    (scale,) = rv.owner.op.dist_params(rv.owner)
    sigma, structure = positive_or_nan(scale), rv.owner.op.structure
    return pt.zeros(()), FieldLaw(
        kind="structured",
        reads=[sigma],
        family=lambda n: IntrinsicFamily(structure),
        covariance=lambda: sigma**2 * pt.constant(structure.covariance()),  # of the coordinates
        fault=f"The sigma of {str(rv.name)!r} is not positive and finite",
        remedy=". Give it a prior on positive numbers, as lgm.gmrf.pc_prior has.",
    )


def is_matern(rv: Variable) -> bool:
    """Whether a random variable is one field on a mesh, not a batch of them."""
    return isinstance(rv.owner.op, MaternRV) and rv.ndim == 1


def as_matern(rv: Variable) -> tuple[Variable, FieldLaw]:
    """The mean and the precision τ² (κ⁴ C + 2 κ² G + G C⁻¹ G) of a Matérn field, from its op."""
    kappa, tau = kappa_and_tau(*map(positive_or_nan, rv.owner.op.dist_params(rv.owner)))
    elements = rv.owner.op.mesh.elements

    def covariance() -> Variable:
        C, G = pt.constant(elements.c), pt.constant(elements.G.toarray())
        inverse = pt.linalg.inv(kappa**2 * pt.diag(C) + G)
        return pt.dot(inverse * C, inverse) / tau**2

    return pt.zeros(()), FieldLaw(
        kind="matern",
        reads=[kappa, tau],
        family=lambda n: OfMesh(elements),
        covariance=covariance,
        fault=f"The range or the sigma of {str(rv.name)!r} is not positive and finite",
        remedy=", or the range is thousands of times as long as the edges of the mesh. Give both "
        "priors on positive numbers, such as lgm.gmrf.pc_prior.",
    )


def is_vecchia(rv: Variable) -> bool:
    """Whether a random variable is one nearest-neighbor process, not a batch of them."""
    return isinstance(rv.owner.op, VecchiaRV) and rv.ndim == 1


def as_vecchia(rv: Variable) -> tuple[Variable, FieldLaw]:
    """The mean and the prior f_i | f_{N(i)} ~ N(B_i f_{N(i)}, D_i) of a nearest-neighbor process.

    B, shape (n, m), and D, shape (n,), are graphs in the order of the neighbors N(i).
    """
    neighbors = rv.owner.op.neighbors
    B, D = (v.astype("float64") for v in rv.owner.op.dist_params(rv.owner))

    def covariance() -> Variable:
        """(I − B)⁻¹ D (I − B)⁻ᵀ in the model's order."""
        n = neighbors.n
        row, slot = np.nonzero(neighbors.there)
        zeros = pt.zeros((n, n))
        weights = pt.set_subtensor(zeros[row, neighbors.of[row, slot]], B[row, slot])
        root = solve_triangular(pt.eye(n) - weights, pt.diag(pt.sqrt(D)), lower=True)
        root = root[neighbors.back]
        return pt.dot(root, root.T)

    return pt.zeros(()), FieldLaw(
        kind="vecchia",
        reads=[B, D],
        family=lambda n: NearestNeighbors(neighbors),
        covariance=covariance,
        fault=f"The covariance of {str(rv.name)!r} at a point and its neighbors is not positive "
        "definite, or not finite,",
        remedy=". Points may be too close for a smooth covariance function: write a larger "
        "jitter=, or start scales away from zero, as with initval=1.",
    )


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
