"""Rewrites of graphs with matrices, so that their products and sums take less time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt

from pytensor.graph.basic import Constant
from pytensor.tensor.math import Dot

from pymc_lgm.compile.graphs.products import Product

__all__ = ["multiplied", "on_diagonal"]

Variable = Any

LARGE = 10**6
"""Size in bytes from which a constant matrix does not stay in a processor's cache."""


def multiplied(fgraph: Any, node: Any) -> Any:
    """Replace a product of float64 matrices by `Product`."""
    if type(node.op) is not Dot or any(v.type.dtype != "float64" for v in node.inputs):
        return None
    return [Product()(*node.inputs)]


def on_diagonal(fgraph: Any, node: Any) -> Any:
    """Add a large diagonal constant, such as a jitter, to the diagonal only.

    Adding n × n numbers would take as long as reading them from memory.
    """
    diagonals = [x for x in node.inputs if _is_large_diagonal(x)]
    others = [x for x in node.inputs if x not in diagonals]
    if not diagonals or not others:
        return None
    total = pt.add(*others) if len(others) > 1 else others[0]
    if total.type.broadcastable != (False, False):
        return None
    values = sum(x.data.diagonal() for x in diagonals)
    index = pt.constant(np.arange(values.size))
    return [pt.inc_subtensor(total[index, index], values.astype(total.type.dtype))]


def _is_large_diagonal(x: Variable) -> bool:
    """Whether a variable is a large constant that is 0 except on its diagonal."""
    if not isinstance(x, Constant) or x.type.ndim != 2 or x.data.nbytes < LARGE:
        return False
    square = x.data.shape[0] == x.data.shape[1]
    return square and np.count_nonzero(x.data) == np.count_nonzero(x.data.diagonal())
