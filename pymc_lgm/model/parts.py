"""Independent parts of f as Gaussian models of their own: what `BlocksPrior` asks for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pytensor.tensor as pt

from numpy.typing import NDArray
from pytensor.gradient import grad

from pymc_lgm.linalg import Array
from pymc_lgm.model.alike import in_common, simplified
from pymc_lgm.model.amplitudes import find_amplitudes
from pymc_lgm.model.forms.base import Setting
from pymc_lgm.model.theta_gradient import theta_gradient
from pymc_lgm.priors.base import GaussianModel

__all__ = ["Covariance", "Part", "covariances"]

Variable = Any


class Covariance:
    """A covariance K and its derivatives, compiled at their first use.

    Parameters
    ----------
    setting : Setting
    graph : variable
        K, of theta and ``inputs``.
    inputs : list of variable
        What parts that share it have each of their own: values for them are arguments.
    """

    def __init__(self, setting: Setting, graph: Variable, inputs: list[Variable]):
        self._setting, self._graph, self._inputs = setting, graph, inputs

    @cached_property
    def at(self) -> Any:
        """(theta, ...) -> K."""
        return self._compiled([], self._graph)

    @cached_property
    def vjp(self) -> Any:
        """(theta, M, ...) -> ⟨∂K/∂theta_j, M⟩."""
        M = pt.matrix("M", shape=self._graph.type.shape)
        return self._compiled([M], theta_gradient(pt.sum(self._graph * M), self._setting.theta))

    @cached_property
    def jvp(self) -> Any:
        """(theta, v, ...) -> Σ_j v_j ∂K/∂theta_j."""
        v = pt.vector("v", shape=self._setting.theta.type.shape)
        weights = pt.zeros_like(self._graph)
        # Linear in the weights: paired with v, the derivative along v.
        total = pt.sum(self._graph * weights)
        linear = pt.sum(grad(total, self._setting.theta, disconnected_inputs="ignore") * v)
        return self._compiled([v], grad(linear, weights, disconnected_inputs="ignore"))

    @cached_property
    def amplitudes(self) -> Array:
        """What `find_amplitudes` finds of K."""
        return find_amplitudes(self._graph, self._setting.theta)

    def _compiled(self, along: list[Variable], output: Variable) -> Any:
        return self._setting.compiled([self._setting.theta, *along, *self._inputs], output)


def covariances(
    setting: Setting, graphs: Sequence[Variable]
) -> list[tuple[Covariance, list[NDArray[Any]]]]:
    """One `Covariance` for all graphs if they differ in constants alone, which are with them."""
    graphs = [simplified(graph) for graph in graphs]
    if (common := in_common(graphs)) is None:
        return [(Covariance(setting, graph, []), []) for graph in graphs]
    graph, inputs, constants = common
    shared = Covariance(setting, graph, inputs)
    return [(shared, own) for own in constants]


class Part:
    """m and K of some elements of f: see `pymc_lgm.priors.base.GaussianModel`.

    Parameters
    ----------
    model : GaussianModel
        m of all of f.
    n : int
        Its elements.
    index : ndarray of int
        Which elements of f they are.
    cov : Covariance
    constants : list of ndarray
        What it has of its own in this part.
    enters_cov : ndarray of bool, shape (p,)
    fixed : bool
        Whether no variable of another step is in the covariance: it may have an amplitude then.
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
        """Of this part's covariance."""
        return self._cov.amplitudes if self._fixed else np.zeros(self.enters_cov.size)

    def first_of(self, parts: Sequence[Part]) -> int:
        """Which of the parts is the first with this covariance."""
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
        result: Array = self._cov.at(theta, *self._constants)
        return result

    def cov_vjp(self, theta: Array, M: Array) -> Array:
        """⟨∂K/∂theta_j, M⟩."""
        result: Array = self._cov.vjp(theta, M, *self._constants)
        return result

    def cov_jvp(self, theta: Array, v: Array) -> Array:
        """Σ_j v_j ∂K/∂theta_j."""
        result: Array = self._cov.jvp(theta, v, *self._constants)
        return result

    def mean_vjp(self, theta: Array, v: Array) -> Array:
        """⟨∂m/∂theta_j, v⟩."""
        all_of_f = np.zeros(self._n)
        all_of_f[self._index] = v
        result: Array = self._model.mean_vjp(theta, all_of_f)
        return result

    def mean_jvp(self, theta: Array, v: Array) -> Array:
        """Σ_j v_j ∂m/∂theta_j."""
        result: Array = self._model.mean_jvp(theta, v)[self._index]
        return result
