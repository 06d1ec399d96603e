"""Independent parts of f, each as a Gaussian model, for `BlocksPrior`.

Parts whose covariances differ only in constants share one graph, which is compiled once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pytensor.tensor as pt

from numpy.typing import NDArray
from pytensor.graph.basic import Constant
from pytensor.graph.rewriting.utils import rewrite_graph

from pymc_lgm.gaussian.base import GaussianModel
from pymc_lgm.linalg import Array
from pymc_lgm.model.amplitudes import find_amplitudes
from pymc_lgm.model.forms.base import Setting
from pymc_lgm.model.operations import Variable

__all__ = ["Covariance", "Part", "covariances", "in_common", "simplified"]


class Covariance:
    """A covariance K and its derivatives, compiled when first used.

    Parameters
    ----------
    setting : Setting
    graph : variable
        K, a graph of theta and ``inputs``.
    inputs : list of variable
        Variables for the constants that differ between parts. The functions take their values.
    """

    def __init__(self, setting: Setting, graph: Variable, inputs: list[Variable]):
        self._setting, self._graph, self._inputs = setting, graph, inputs

    @cached_property
    def at(self) -> Callable[..., Array]:
        """(theta, ...) -> K."""
        return self._compiled([], self._graph)

    @cached_property
    def vjp(self) -> Callable[..., Array]:
        """(theta, M, ...) -> ⟨∂K/∂theta_j, M⟩."""
        M = pt.matrix("M", shape=self._graph.type.shape)
        total, theta = pt.sum(self._graph * M), self._setting.theta
        return self._compiled([M], pt.grad(total, theta, disconnected_inputs="ignore"))

    @cached_property
    def amplitudes(self) -> Array:
        """The result of `find_amplitudes` for K."""
        return find_amplitudes(self._graph, self._setting.theta)

    def _compiled(self, along: list[Variable], output: Variable) -> Callable[..., Array]:
        return self._setting.compiled([self._setting.theta, *along, *self._inputs], output)


def simplified(graph: Variable, *, is_stabilized: bool = False) -> Variable:
    """A graph after PyTensor's canonicalization, which removes products of one input, say.

    Derivatives of the simplified graph have fewer operations, and these are rewritten once. If
    ``is_stabilized``, it has functions that do not overflow, such as a sigmoid, whose pattern
    PyTensor may not recognize in the derivatives.
    """
    kinds = ("canonicalize", "stabilize") if is_stabilized else ("canonicalize",)
    (result,) = rewrite_graph([graph], include=kinds)
    return result


def in_common(
    graphs: Sequence[Variable],
) -> tuple[Variable, list[Variable], list[list[Variable]]] | None:
    """Find a common graph for graphs that differ only in constants.

    An example is the covariances of processes that are made in a loop, which read different
    elements of theta. The result is the common graph; its inputs, one for each constant that
    differs; and the values of the inputs for each graph. It is ``None`` if the graphs differ in
    more than constants.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> theta = pt.vector("theta")
    >>> graph, inputs, constants = in_common([theta[0] + 3.0, theta[1] + 3.0])
    >>> inputs, [[int(each) for each in row] for row in constants]
    ([<int64>], [[0], [1]])
    >>> in_common([theta[0] + 3.0, theta[0] * 3.0]) is None
    True
    """
    made: dict[tuple[Variable, ...], Variable] = {}
    holes: dict[tuple[Variable, ...], Variable] = {}

    def of(alike: tuple[Variable, ...]) -> Variable:
        """The common graph of these variables; ``None`` if there is none."""
        first = alike[0]
        if all(each is first for each in alike):
            return first
        if alike not in made:
            made[alike] = constant(alike) if isinstance(first, Constant) else applied(alike)
        return made[alike]

    def constant(alike: tuple[Variable, ...]) -> Variable:
        first = alike[0]
        if not all(isinstance(each, Constant) and each.type == first.type for each in alike):
            return None
        if all(np.array_equal(each.data, first.data, equal_nan=True) for each in alike):
            return first
        holes[alike] = first.type()
        return holes[alike]

    def applied(alike: tuple[Variable, ...]) -> Variable:
        nodes = [each.owner for each in alike]
        if any(node is None for node in nodes):
            return None
        first = nodes[0]
        same = alike[0].owner.outputs.index(alike[0])
        for node, each in zip(nodes, alike, strict=True):
            if node.op != first.op or len(node.inputs) != len(first.inputs):
                return None
            if node.outputs.index(each) != same or each.type != alike[0].type:
                return None
        inputs = [of(row) for row in zip(*(node.inputs for node in nodes), strict=True)]
        if any(each is None for each in inputs):
            return None
        return first.clone_with_new_inputs(inputs, strict=False).outputs[same]

    graph = of(tuple(graphs))
    if graph is None:
        return None
    constants = [[row[k].data for row in holes] for k in range(len(graphs))]
    return graph, list(holes.values()), constants


def covariances(
    setting: Setting, graphs: Sequence[Variable]
) -> list[tuple[Covariance, list[NDArray[Any]]]]:
    """A `Covariance` and its constants for each graph; they share one if only constants differ."""
    graphs = [simplified(graph) for graph in graphs]
    if (common := in_common(graphs)) is None:
        return [(Covariance(setting, graph, []), []) for graph in graphs]
    graph, inputs, constants = common
    shared = Covariance(setting, graph, inputs)
    return [(shared, own) for own in constants]


class Part:
    """m and K of the elements ``index`` of f: see `pymc_lgm.gaussian.base.GaussianModel`.

    The inputs of K have the values ``constants``. If K is not ``fixed``, but depends on a variable
    of another step, it has no amplitude.
    """

    def __init__(
        self,
        model: GaussianModel,
        n: int,
        index: NDArray[np.intp],
        cov: Covariance,
        constants: list[NDArray[Any]],
        enters_cov: NDArray[np.bool_],
        fixed: bool,
    ):
        self._model, self._n, self._index = model, n, index
        self._cov, self._constants = cov, constants
        self.enters_cov, self._fixed = enters_cov, fixed

    @cached_property
    def amplitudes(self) -> Array:
        """The amplitudes of this part's covariance, or zeros: see `find_amplitudes`."""
        return self._cov.amplitudes if self._fixed else np.zeros(self.enters_cov.size)

    def first_of(self, parts: Sequence[Part]) -> int:
        """The index of the first part with the same covariance."""
        return next(k for k, part in enumerate(parts) if self._has_covariance_of(part))

    def _has_covariance_of(self, other: Part) -> bool:
        pairs = zip(self._constants, other._constants, strict=True)
        return self._cov is other._cov and all(np.array_equal(a, b) for a, b in pairs)

    def mean(self, theta: Array) -> Array:
        """m."""
        result: Array = self._model.mean(theta)[self._index]
        return result

    def cov(self, theta: Array) -> Array:
        """K, a new array."""
        return self._cov.at(theta, *self._constants)

    def cov_vjp(self, theta: Array, M: Array) -> Array:
        """⟨∂K/∂theta_j, M⟩."""
        return self._cov.vjp(theta, M, *self._constants)

    def mean_vjp(self, theta: Array, v: Array) -> Array:
        """⟨∂m/∂theta_j, v⟩."""
        all_of_f = np.zeros(self._n)
        all_of_f[self._index] = v
        return self._model.mean_vjp(theta, all_of_f)
