"""Processes on a grid, with covariance K₁ ⊗ K₂ ⊗ …, as `pymc.gp.LatentKron` makes them.

They are read as one dense process, because the covariance of the posterior has no such structure
unless every observation has the same precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import pytensor.tensor as pt

from pymc.distributions.multivariate import KroneckerNormalRV
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky
from pytensor.tensor.math import Dot
from pytensor.tensor.shape import Reshape

from pymc_lgm.model.operations import OF_SHAPES, core_of

__all__ = ["covariance_on_grid", "is_on_grid", "kronecker_product"]

Variable = Any


def is_on_grid(rv: Variable) -> bool:
    """Whether a random variable is a vector of `pymc.KroneckerNormal`."""
    return isinstance(rv.owner.op, KroneckerNormalRV) and rv.ndim == 1


def covariance_on_grid(rv: Variable) -> tuple[Variable, Variable]:
    """Mean and covariance of a `pymc.KroneckerNormal`: K₁ ⊗ K₂ ⊗ … + σ² I."""
    mean, sigma, *covs = rv.owner.op.dist_params(rv.owner)
    cov = reduce(pt.linalg.kron, covs).astype("float64")
    return mean, cov + sigma**2 * pt.eye(cov.shape[0])


def kronecker_product(rv: Variable, terms: Sequence[Variable]) -> tuple[Variable, Variable] | None:
    """(L₁ ⊗ L₂ ⊗ …) ``rv`` and its covariance, if densities read ``rv`` in no other way.

    `pymc.math.kron_dot` writes the product as a chain. A matrix with one column is multiplied by
    L₁, L₂ and so on. For each L it is reshaped to as many rows as L has columns, multiplied,
    transposed, and reshaped back. A Kronecker product of lower Cholesky factors is the lower
    Cholesky factor of the product of the covariances. Other reshapes in C order keep the order of
    the elements, so their shapes do not matter. A transpose changes the order unless one of the two
    lengths is 1.
    """
    readers = _readers(terms)
    covs: list[Variable] = []
    node, seen = rv, _only(readers, rv)
    if seen is None or not isinstance(seen.op, DimShuffle):
        return None
    while seen is not None:
        node, (first, *_) = seen.outputs[0], seen.inputs
        after = _only(readers, node)
        if isinstance(core_of(seen.op), Dot):
            factored = core_of(first.owner.op) if first.owner is not None else None
            if not (isinstance(factored, Cholesky) and factored.lower) or node.ndim != 2:
                return None
            if after is None or not _is_transpose(after):
                return None
            covs.append(first.owner.inputs[0].astype("float64"))
            node, seen = after.outputs[0], _only(readers, after.outputs[0])
            if seen is None or not isinstance(seen.op, Reshape):
                return None
            continue
        keeps_order = isinstance(seen.op, Reshape) or _is_of_a_column(seen, first)
        if not keeps_order:
            return None
        if node.ndim == 1:
            break
        seen = after
    if seen is None or len(covs) < 2:
        return None
    return node, reduce(pt.linalg.kron, covs)


def _readers(terms: Sequence[Variable]) -> dict[Variable, list[Any]]:
    """The nodes that read the value of each variable, and not only its shape."""
    found: dict[Variable, list[Any]] = {}
    for node in {v.owner for v in ancestors(terms) if v.owner is not None}:
        if not isinstance(node.op, OF_SHAPES):
            for x in set(node.inputs):
                found.setdefault(x, []).append(node)
    return found


def _only(readers: dict[Variable, list[Any]], v: Variable) -> Any | None:
    nodes = readers.get(v, [])
    return nodes[0] if len(nodes) == 1 else None


def _is_transpose(node: Any) -> bool:
    return isinstance(node.op, DimShuffle) and node.op.new_order == (1, 0)


def _is_of_a_column(node: Any, x: Variable) -> bool:
    """Whether a node permutes axes of which at most one is longer than 1."""
    return isinstance(node.op, DimShuffle) and x.type.broadcastable.count(False) <= 1
