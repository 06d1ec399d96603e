"""Independent parts of f as Gaussian models of their own: what `BlocksPrior` asks for."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import pytensor.tensor as pt

from numpy.typing import NDArray
from pytensor.gradient import grad

from pymc_lgm.amplitudes import find_amplitudes
from pymc_lgm.linalg import Array
from pymc_lgm.model.forms.base import Setting
from pymc_lgm.priors.base import GaussianModel

__all__ = ["Part"]


class Part:
    """m and K of some elements of f: see `pymc_lgm.priors.base.GaussianModel`.

    Parameters
    ----------
    setting : Setting
    model : GaussianModel
        m of all of f.
    n : int
        Its elements.
    index : ndarray of int
        Which elements of f they are.
    cov : variable
        Their covariance, a graph of theta.
    enters_cov : ndarray of bool, shape (p,)
    fixed : bool
        Whether no variable of another step is in the covariance: it may have an amplitude then.
    """

    def __init__(
        self,
        setting: Setting,
        model: GaussianModel,
        n: int,
        index: NDArray[np.intp],
        cov: Any,
        enters_cov: NDArray[np.bool_],
        fixed: bool,
    ):
        self._setting, self._model, self._n = setting, model, n
        self._index, self._graph = index, cov
        self.enters_cov, self._fixed = enters_cov, fixed

    @cached_property
    def amplitudes(self) -> Array:
        """Of this part's covariance."""
        return find_amplitudes(self) if self._fixed else np.zeros(self.enters_cov.size)

    @cached_property
    def _functions(self) -> tuple[Any, Any]:
        theta, M, v = self._setting.theta, pt.matrix("M"), pt.vector("v")
        weights = pt.zeros_like(self._graph)
        kwargs: dict[str, Any] = {"disconnected_inputs": "ignore"}
        back = grad(pt.sum(self._graph * M), theta, **kwargs)
        # Linear in the weights: paired with v, the derivative along v.
        linear = grad(pt.sum(self._graph * weights), theta, **kwargs)
        along = grad(pt.sum(linear * v), weights, **kwargs)
        compiled = self._setting.compiled
        return compiled([theta, M], back), compiled([theta, v], along)

    @cached_property
    def _cov(self) -> Any:
        return self._setting.compiled([self._setting.theta], self._graph)

    def mean(self, theta: Array) -> Array:
        """m."""
        result: Array = self._model.mean(theta)[self._index]
        return result

    def cov(self, theta: Array) -> Array:
        """K, a new array."""
        result: Array = self._cov(theta)
        return result

    def cov_vjp(self, theta: Array, M: Array) -> Array:
        """⟨∂K/∂theta_j, M⟩."""
        result: Array = self._functions[0](theta, M)
        return result

    def cov_jvp(self, theta: Array, v: Array) -> Array:
        """Σ_j v_j ∂K/∂theta_j."""
        result: Array = self._functions[1](theta, v)
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
