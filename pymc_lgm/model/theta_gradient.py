"""Derivatives of graphs with respect to the vector theta."""

from __future__ import annotations

from collections.abc import Sequence

import pytensor.tensor as pt

from pytensor.gradient import grad
from pytensor.graph.traversal import applys_between
from pytensor.tensor.exceptions import NotScalarConstantError
from pytensor.tensor.subtensor import Subtensor, get_constant_idx

from pymc_lgm.model.operations import Variable

__all__ = ["parts_of", "theta_gradient"]


def theta_gradient(scalar: Variable, theta: Variable) -> Variable:
    """∂ scalar/∂ theta, shape (p,), joined from the gradients in the parts of theta.

    PyTensor writes the gradient in ``theta[part]`` into an array of zeros, which Numba takes a
    second or two to compile. So the gradients in the parts are concatenated if no parts overlap.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> theta = pt.vector("theta", shape=(3,))
    >>> scalar = theta[0] ** 2 + pt.sum(3.0 * theta[1:])
    >>> theta_gradient(scalar, theta).eval({theta: [2.0, 1.0, 1.0]})
    array([4., 3., 3.])
    """
    parts = parts_of([scalar], theta)
    if not parts:
        return grad(scalar, theta, disconnected_inputs="ignore")
    readers = [variable for same in parts.values() for variable in same]
    of = dict(zip(readers, grad(scalar, readers, disconnected_inputs="ignore"), strict=True))
    joined, end = [], 0
    for start, stop in sorted(parts):
        if start < end:
            return grad(scalar, theta, disconnected_inputs="ignore")
        if start > end:
            joined.append(pt.zeros(start - end))
        joined.append(sum(of[variable] for variable in parts[start, stop]))
        end = stop
    size = theta.type.shape[0]
    if end < size:
        joined.append(pt.zeros(size - end))
    if all(piece.type.shape in ((), (1,)) for piece in joined):
        # Numbers compile faster than vectors of one element.
        return pt.stack([piece if piece.ndim == 0 else piece[0] for piece in joined])
    return pt.concatenate([pt.atleast_1d(piece) for piece in joined])


def parts_of(
    graphs: Sequence[Variable], theta: Variable
) -> dict[tuple[int, int], list[Variable]] | None:
    """The slices of theta by their start and stop; ``None`` if theta is read in another way."""
    parts: dict[tuple[int, int], list[Variable]] = {}
    size = theta.type.shape[0]
    for node in applys_between([theta], graphs):
        if theta not in node.inputs:
            continue
        if not isinstance(node.op, Subtensor):
            return None
        try:
            (index,) = get_constant_idx(node.op.idx_list, node.inputs)
        except NotScalarConstantError:
            return None
        if not isinstance(index, slice):
            index = slice(int(index) % size, int(index) % size + 1)
        start, stop, step = index.indices(size)
        if step != 1:
            return None
        parts.setdefault((start, stop), []).append(node.outputs[0])
    return parts
