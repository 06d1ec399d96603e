"""A process seen through inducing variables: what of its model depends on theta alone.

V, with f = V v, is n × m and costs O(n m²) operations; so does the variance of f given v, which
likelihoods read. Both are computed once a theta, and kept while the chain is between two of them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytensor

from numpy.typing import NDArray
from pytensor.graph.traversal import ancestors, toposort

from pymc_lgm.linalg import Array

__all__ = ["Inducing", "theta_alone"]

Variable = Any

KEPT = 2
"""Thetas at which what is computed is kept: where the chain is, and where it may go."""


class Inducing:
    """V at a theta, and with it what densities read of theta.

    Parameters
    ----------
    function : callable
        theta -> V, shape (n, m), and the values of what densities read of theta.
    theta : ndarray, shape (p,)
        Where to begin.
    read : list of variable
        What densities read of theta.

    Attributes
    ----------
    n, m : int
        Elements of f that observations read, and inducing variables.
    shared : list of shared variable
        What densities read of theta, as variables that `place` sets.
    """

    def __init__(
        self,
        function: Callable[[Array], list[NDArray[Any]]],
        theta: Array,
        read: Sequence[Variable],
    ):
        self._function = function
        self._kept: OrderedDict[bytes, tuple[Array | None, list[NDArray[Any]]]] = OrderedDict()
        V, *values = function(theta)
        self.n, self.m = V.shape
        self.shared: list[Variable] = [
            # An axis that is known to have length 1 is one along which PyTensor broadcasts.
            pytensor.shared(np.asarray(value), shape=v.type.shape)
            for v, value in zip(read, values, strict=True)
        ]
        self._at: bytes | None = None

    def forget(self) -> None:
        """What theta was at does not hold: another step has moved what it owns."""
        self._kept.clear()
        self._at = None

    def map(self, theta: Array) -> Array | None:
        """V, shape (n, m), in C order; ``None`` where K_uu cannot be factorized."""
        return self._values(theta)[0]

    def place(self, theta: Array) -> None:
        """Put the values at theta where the compiled densities read them."""
        key = theta.tobytes()
        if key == self._at:
            return
        for shared, value in zip(self.shared, self._values(theta)[1], strict=True):
            shared.set_value(np.asarray(value), borrow=True)
        self._at = key

    def shared_by(self, outputs: Any) -> bool:
        """Whether a graph reads what `place` sets."""
        outputs = outputs if isinstance(outputs, list) else [outputs]
        return not set(ancestors(outputs)).isdisjoint(self.shared)

    def _values(self, theta: Array) -> tuple[Array | None, list[NDArray[Any]]]:
        key = theta.tobytes()
        if key not in self._kept:
            while len(self._kept) >= KEPT:
                self._kept.popitem(last=False)
            try:
                V, *values = self._function(theta)
            except np.linalg.LinAlgError:
                V, values = np.full((1, 1), np.nan), [s.get_value() for s in self.shared]
            known = bool(np.isfinite(V).all())
            self._kept[key] = np.ascontiguousarray(V) if known else None, values
        self._kept.move_to_end(key)
        return self._kept[key]


def theta_alone(densities: Sequence[Variable], f: Variable, theta: Variable) -> list[Variable]:
    """What the operations on f in a graph read that depends on theta, and not on f."""
    of_f: set[Variable] = {f}
    of_theta: set[Variable] = {theta}
    found: dict[Variable, None] = {}
    for node in toposort(densities):
        moved = of_f.intersection(node.inputs)
        if moved:
            of_f.update(node.outputs)
            found |= dict.fromkeys(x for x in node.inputs if x in of_theta and x not in of_f)
        elif of_theta.intersection(node.inputs):
            of_theta.update(node.outputs)
    return list(found)
