"""Areas as PyMC has them: `pymc.CAR`, whose precision τ (D − α W) is as sparse as a map.

Areas are put in an order in which neighbors are close (Cuthill and McKee 1969), so that the
precision is a band: of √n or so diagonals for a map of n areas.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt

from numpy.typing import NDArray
from pymc.distributions.multivariate import CARRV
from pytensor.graph.basic import Constant
from scipy.sparse import csr_array
from scipy.sparse.csgraph import reverse_cuthill_mckee

__all__ = ["Areas", "as_areas", "is_areas"]

Variable = Any


class Areas(NamedTuple):
    """What a `pymc.CAR` says.

    Attributes
    ----------
    mean : variable
        (n,), or what broadcasts to it, in the model's order.
    precision : variable
        Bands of Q, (b + 1, n), in an order of its own.
    order : ndarray of int, shape (n,)
        Which area of the model is the i-th there.
    """

    mean: Variable
    precision: Variable
    order: NDArray[np.intp]


def is_areas(rv: Variable) -> bool:
    """Whether a random variable is one vector of areas with a fixed map."""
    op = rv.owner.op
    return isinstance(op, CARRV) and rv.ndim == 1 and isinstance(rv.owner.inputs[3], Constant)


def as_areas(rv: Variable) -> Areas:
    """Q in bands, and the order in which it has them.

    Raises
    ------
    ValueError
        If W is not symmetric, has a negative weight, or an area without neighbors.
    """
    _, _, mean, W, alpha, tau, *_ = rv.owner.inputs
    weights = csr_array(W.data, dtype=np.float64, copy=True)
    weights.eliminate_zeros()  # what is stored is a neighbor
    name = rv.name
    if abs(weights - weights.T).max() > 0.0:
        i, j = np.argwhere((weights - weights.T).toarray())[0]
        raise ValueError(
            f"W of {name!r} is not symmetric: W[{i}, {j}] is {weights[i, j]:g}, and W[{j}, {i}] is "
            f"{weights[j, i]:g}. Neighbors are neighbors both ways."
        )
    if weights.size and weights.min() < 0.0:
        raise ValueError(f"W of {name!r} has a negative weight: neighbors have a positive one.")
    count = np.asarray(weights.sum(axis=1)).ravel()
    if not (count > 0.0).all():
        raise ValueError(
            f"Area {int(np.flatnonzero(count == 0.0)[0])} of {name!r} has no neighbor in W, so its "
            "precision is zero. Leave it out of W, and give it an effect of its own, or join it to "
            "an area across the water."
        )
    order = np.asarray(reverse_cuthill_mckee(weights.tocsr(), symmetric_mode=True), dtype=np.intp)
    there = csr_array(weights[order][:, order]).tocoo()
    rows, columns = there.row, there.col
    width = int((rows - columns).max()) + 1
    of_W, of_D = np.zeros((width, count.size)), np.zeros((width, count.size))
    of_D[0] = count[order]
    below = rows >= columns
    of_W[(rows - columns)[below], columns[below]] = there.data[below]
    alpha, tau = (pt.as_tensor(x).reshape(()).astype("float64") for x in (alpha, tau))
    return Areas(mean, tau * (pt.as_tensor(of_D) - alpha * pt.as_tensor(of_W)), order)
