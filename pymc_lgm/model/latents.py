"""The variables of a model that can be latent, and their priors.

A process on a grid, with covariance K₁ ⊗ K₂ ⊗ … as `pymc.gp.LatentKron` makes it, is read as one
dense process: the covariance of the posterior has no such structure unless every observation has
the same precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from pymc.distributions.multivariate import KroneckerNormalRV, MvNormalRV, ZeroSumNormalRV
from pymc.distributions.transforms import ZeroSumTransform
from pytensor.graph.traversal import ancestors
from pytensor.scalar import Second
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky
from pytensor.tensor.math import Dot
from pytensor.tensor.random.basic import NormalRV
from pytensor.tensor.shape import Reshape

from pymc_lgm.compile.graphs.functions import ONCE
from pymc_lgm.compile.graphs.nodes import function_of, op_of
from pymc_lgm.gmrf import ConstraintTransform
from pymc_lgm.likelihoods.registry import is_inducing
from pymc_lgm.model.fields import (
    FIELDS,
    is_areas,
    is_structured,
    is_vecchia,
    transform_of,
)
from pymc_lgm.model.integrates import positive_or_nan
from pymc_lgm.model.operations import (
    OF_SHAPES,
    Variable,
    constant_of,
    core_of,
    squared,
)
from pymc_lgm.model.sparse_precision import FieldLaw, as_sparse_precision

__all__ = [
    "Latent",
    "gaussian",
    "is_gaussian",
    "is_process",
    "is_sparse",
    "whitened_processes",
]


@dataclass(frozen=True, eq=False)
class Latent:
    """A latent variable x = mean + z, z ~ N(0, ·).

    Attributes
    ----------
    rv : variable
        The free random variable whose value is sampled.
    node : variable
        x: ``rv``, or, if the model whitens, the product L ``rv``.
    mean : variable
        The mean of x, in its shape or one that broadcasts to it.
    cov : variable or None
        The covariance of z, shape (n, n), or of each vector of a batch.
    variances : variable or None
        The variances of independent z, in the shape of x or one that broadcasts to it.
    is_whitened : bool
        Whether x = L ``rv`` with the lower Cholesky factor L of ``cov``.
    field : FieldLaw or None
        The prior of a series, of areas, or of any vector with a sparse precision. ``mean`` may then
        be computed with a dense inverse.
    zero_sum : ZeroSumTransform or ConstraintTransform or None
        The transform of a `pymc.ZeroSumNormal` x = E z, or of an intrinsic GMRF. The coordinates z,
        which PyMC samples, are independent for a `pymc.ZeroSumNormal`, with one element fewer along
        each axis on which x sums to zero. An intrinsic GMRF has a vector of coordinates.
    through : variable or None
        V, shape (n, m), if densities read standard normal coordinates ``rv``, (m,) or (m, C), as
        V ``rv``, as for processes with inducing variables.
    """

    rv: Variable
    node: Variable
    mean: Variable
    cov: Variable | None = None
    variances: Variable | None = None
    is_whitened: bool = False
    through: Variable | None = None
    field: FieldLaw | None = None
    zero_sum: ZeroSumTransform | ConstraintTransform | None = None

    def extended(self, z: Variable) -> Variable:
        """E z for a `pymc.ZeroSumNormal` or an intrinsic GMRF; z for any other variable."""
        if self.zero_sum is None:
            return z
        if isinstance(self.zero_sum, ConstraintTransform):
            return pt.dot(pt.constant(self.zero_sum.basis), z).reshape(self.zero_sum.shape)
        for axis in self.zero_sum.zerosum_axes:
            unit = pt.constant(np.eye(z.type.shape[axis]))
            E = ZeroSumTransform([-1]).backward(unit).eval(mode=ONCE)
            # A product with constants shows that an element of x reads all of z along the axis.
            z = pt.moveaxis(pt.dot(pt.moveaxis(z, axis, -1), pt.constant(E)), -1, axis)
        return z

    @property
    def covariance(self) -> Variable | None:
        """The covariance of z."""
        return self.cov if self.field is None else self.field.covariance()


def is_process(rv: Variable) -> bool:
    """Whether a random variable is a multivariate normal, a GMRF, a series or a map of areas."""
    is_dense = isinstance(rv.owner.op, MvNormalRV) or _is_on_grid(rv)
    return is_dense or any(is_one(rv) for is_one in FIELDS)


def is_sparse(rv: Variable) -> bool:
    """Whether a process has a sparse precision, so that coefficients of its mean cost little."""
    return is_areas(rv) or is_vecchia(rv) or as_sparse_precision(rv) is not None


def whitened_processes(model: pm.Model) -> dict[str, int]:
    """Processes that PyMC computes from whitened values, and their numbers of points.

    They are deterministics, with a factor of all points, as ``prior`` of `pymc.gp.Latent` makes
    them. A `pymc.gp.LatentKron` has small factors instead.
    """
    found = {}
    for f in model.deterministics:
        whitened = model.named_vars.get(f"{f.name}_rotated_")
        n = None if whitened is None else whitened.type.shape[-1]
        if n is None:
            continue
        square = [v for v in ancestors([f]) if getattr(v.type, "shape", None) == (n, n)]
        if any(isinstance(core_of(op_of(v)), Cholesky) for v in square):
            found[str(f.name)] = n
    return found


def is_gaussian(model: pm.Model, rv: Variable) -> bool:
    """Whether a free random variable is Gaussian given all others, on the unconstrained scale."""
    transform = model.rvs_to_transforms[rv]
    if is_structured(rv):
        return isinstance(transform, ConstraintTransform) and transform == transform_of(rv)
    if isinstance(rv.owner.op, ZeroSumNormalRV):
        axes = getattr(transform, "zerosum_axes", None)
        return isinstance(transform, ZeroSumTransform) and axes == _zero_sum(rv).zerosum_axes
    return transform is None and (is_process(rv) or isinstance(rv.owner.op, NormalRV))


def gaussian(rv: Variable, terms: Sequence[Variable]) -> Latent:
    """The prior of a latent variable."""
    for is_one, law_of in FIELDS.items():
        if is_one(rv):
            mean, law = law_of(rv)
            transform = transform_of(rv) if is_structured(rv) else None
            return Latent(rv, rv, mean, field=law, zero_sum=transform)
    if _is_on_grid(rv):
        mean, sigma, *covs = rv.owner.op.dist_params(rv.owner)
        cov = reduce(pt.linalg.kron, covs).astype("float64")
        cov = cov + sigma**2 * pt.eye(cov.shape[0])
        return Latent(rv, rv, _not_broadcast(mean), cov=cov)
    if isinstance(rv.owner.op, ZeroSumNormalRV):
        spread, *_ = rv.owner.op.dist_params(rv.owner)
        variances = positive_or_nan(spread) ** 2
        return Latent(rv, rv, pt.zeros(()), variances=variances, zero_sum=_zero_sum(rv))
    mean, spread = rv.owner.op.dist_params(rv.owner)
    if (sparse := as_sparse_precision(rv)) is not None:
        return Latent(rv, rv, _not_broadcast(mean), field=sparse)
    if isinstance(rv.owner.op, MvNormalRV):
        return Latent(rv, rv, _not_broadcast(mean), cov=spread.astype("float64"))
    whitened = _whitened(rv, mean, spread, terms)
    if whitened is not None:
        return whitened
    return Latent(rv, rv, mean, variances=positive_or_nan(spread) ** 2)


def _zero_sum(rv: Variable) -> ZeroSumTransform:
    """The transform that PyMC gives a `pymc.ZeroSumNormal`, along its last axes."""
    return ZeroSumTransform(range(-rv.owner.op.ndim_supp, 0))


def _whitened(
    rv: Variable, mean: Variable, spread: Variable, terms: Sequence[Variable]
) -> Latent | None:
    """N(0, L Lᵀ), if a model reads a vector of standard normal variables only as L ``rv``.

    L ``rv`` may be a Kronecker product times ``rv``: see `kronecker_product`. Otherwise it is the
    default graph of ``gp.prior``, `Squeeze(Dot(Cholesky(K), ExpandDims(rv)))`, or with
    ``n_outputs=`` `Transpose(Dot(Cholesky(K), Transpose(rv)))`, a row per output.
    `pymc_lgm.gp.SparseLatent` writes the same graph with another matrix instead of L.
    """
    is_standard = np.all(constant_of(mean) == 0.0) and np.all(constant_of(spread) == 1.0)
    if not is_standard or rv.ndim > 2:
        return None
    reader = _reader(terms, rv)
    if reader is None:
        return None
    if rv.ndim == 2 and is_inducing(rv):
        return _through_columns(rv, reader)
    if rv.ndim == 1 and (found := kronecker_product(rv, terms)) is not None:
        node, cov = found
        return Latent(rv, node, pt.zeros_like(node), cov=cov, is_whitened=True)
    column = reader.outputs[0]
    product: Any = _reader(terms, column)
    if not isinstance(reader.op, DimShuffle) or not _is_product(product):
        return None
    root, right = product.inputs
    K = squared(root)
    vector = _reader(terms, product.outputs[0])
    if right is not column or vector is None or not isinstance(vector.op, DimShuffle):
        return None
    node = vector.outputs[0]
    if node.ndim != rv.ndim:
        return None
    if K is not None:
        return Latent(rv, node, pt.zeros_like(node), cov=K.astype("float64"), is_whitened=True)
    if not is_inducing(rv) or root.owner is None:
        return None
    return Latent(rv, node, pt.zeros_like(node), variances=pt.ones_like(rv), through=root)


def _reader(terms: Sequence[Variable], x: Variable) -> Any:
    """The only node that reads the value of a variable; ``None`` if it is not the only one."""
    nodes = {v.owner for v in ancestors(terms) if v.owner is not None and x in v.owner.inputs}
    found = [node for node in nodes if not isinstance(node.op, OF_SHAPES)]
    return found[0] if len(found) == 1 else None


def _is_product(node: Any) -> bool:
    """Whether a node is a product of two matrices, or of batches of them."""
    return node is not None and isinstance(core_of(node.op), Dot)


def _through_columns(rv: Variable, reader: Any) -> Latent | None:
    """Several processes, V times a matrix with one column per process."""
    if not _is_product(reader) or reader.inputs[1] is not rv:
        return None
    V, node = reader.inputs[0], reader.outputs[0]
    return Latent(rv, node, pt.zeros_like(node), variances=pt.ones_like(rv), through=V)


def _is_on_grid(rv: Variable) -> bool:
    """Whether a random variable is a vector of `pymc.KroneckerNormal`."""
    return isinstance(rv.owner.op, KroneckerNormalRV) and rv.ndim == 1


def kronecker_product(rv: Variable, terms: Sequence[Variable]) -> tuple[Variable, Variable] | None:
    """(L₁ ⊗ L₂ ⊗ …) ``rv`` and its covariance, if densities read ``rv`` in no other way.

    `pymc.math.kron_dot` writes the product as a chain. A matrix with one column is multiplied by
    L₁, L₂ and so on. For each L it is reshaped to as many rows as L has columns, multiplied,
    transposed, and reshaped back. A Kronecker product of lower Cholesky factors is the lower
    Cholesky factor of the product of the covariances. Other reshapes in C order keep the order of
    the elements, so their shapes do not matter. A transpose changes the order unless one of the two
    lengths is 1.
    """
    covs: list[Variable] = []
    reader = _reader(terms, rv)
    if reader is None or not isinstance(reader.op, DimShuffle):
        return None
    while reader is not None:
        node, (first, *_) = reader.outputs[0], reader.inputs
        if _is_product(reader):
            K, after = squared(first), _reader(terms, node)
            if K is None or node.ndim != 2 or after is None or not _is_transpose(after):
                return None
            covs.append(K.astype("float64"))
            reader = _reader(terms, after.outputs[0])
            if reader is None or not isinstance(reader.op, Reshape):
                return None
            continue
        if not (isinstance(reader.op, Reshape) or _is_of_a_column(reader, first)):
            return None
        if node.ndim == 1:
            return (node, reduce(pt.linalg.kron, covs)) if len(covs) > 1 else None
        reader = _reader(terms, node)
    return None


def _is_transpose(node: Any) -> bool:
    return isinstance(node.op, DimShuffle) and node.op.new_order == (1, 0)


def _is_of_a_column(node: Any, x: Variable) -> bool:
    """Whether a node permutes axes of which at most one is longer than 1."""
    return isinstance(node.op, DimShuffle) and x.type.broadcastable.count(False) <= 1


def _not_broadcast(mean: Variable) -> Variable:
    """The mean before PyMC broadcast it to a column of the covariance, which is then not needed."""
    while isinstance(function_of(mean), Second):
        mean = mean.owner.inputs[1]
    return mean
