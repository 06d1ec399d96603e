"""The verbs of a prior N(m, K), and the functions of theta that make one.

In these docstrings z is f − m, ξ and ν are standard normal coordinates, and L is a root of K:
K = L Lᵀ. A method that is a linear map takes a vector (n,) or columns (n, N), and returns a new
array.
"""

from __future__ import annotations

import math

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from numpy.typing import NDArray

from pymc_lgm.gaussian.sites import Precision
from pymc_lgm.linalg import LOG_2PI, Array

if TYPE_CHECKING:
    from pymc_lgm.gaussian.posterior import Posterior

__all__ = ["Functions", "GaussianModel", "Prior", "StatePrior", "mean_jacobian"]


class Functions(Protocol):
    """m and K as functions of theta (p,), with their derivatives.

    A series has u and T in their place: see `pymc_lgm.gaussian.banded`.
    """

    def mean(self, theta: Array) -> Array:
        """m(theta), shape (n,)."""

    def cov(self, theta: Array) -> Array:
        """K(theta), shape (n, n), a new array."""

    def cov_vjp(self, theta: Array, M: Array) -> Array:
        """⟨∂K/∂theta_j, M⟩ for each j, shape (p,)."""

    def mean_vjp(self, theta: Array, v: Array) -> Array:
        """⟨∂m/∂theta_j, v⟩ for each j, shape (p,)."""

    def cov_jvp(self, theta: Array, v: Array) -> Array:
        """Σ_j v_j ∂K/∂theta_j, shape (n, n)."""

    def mean_jvp(self, theta: Array, v: Array) -> Array:
        """Σ_j v_j ∂m/∂theta_j, shape (n,)."""


class GaussianModel(Functions, Protocol):
    """The same functions, and how K depends on theta."""

    @property
    def enters_cov(self) -> NDArray[np.bool_]:
        """Whether the covariance depends on each component of theta, shape (p,)."""

    @property
    def amplitudes(self) -> Array:
        """k, shape (p,): K(theta + δ e_j) = exp(k_j δ) K(theta) for every δ.

        A theta_j with k_j ≠ 0, such as a log variance, only scales K. To change it costs no
        factorization. k_j is 0 if there is no such number. `find_amplitudes` finds k.
        """


def mean_jacobian(functions: Any, theta: Array) -> Array:
    """∂m/∂theta, shape (n, p), from the directional derivatives of `Functions`."""
    columns = [functions.mean_jvp(theta, direction) for direction in np.eye(theta.size)]
    return np.array(columns).reshape(theta.size, -1).T.copy()


class Prior(ABC):
    """f ~ N(m, K) at one theta.

    Parameters
    ----------
    mean : ndarray, shape (n,)
        m.
    theta : ndarray, shape (p,)
        The search for q may depend on it.
    rank : int, optional
        r, the length of ξ and ν. It is n, which is the default, if K is positive definite.
    """

    def __init__(self, mean: Array, theta: Array, rank: int | None = None):
        self.mean, self.theta, self.n = mean, theta, mean.size
        self.rank = mean.size if rank is None else rank

    def __repr__(self) -> str:
        return f"{type(self).__name__}(n={self.n})"

    @property
    def is_proper(self) -> bool:
        """Whether K has a root. If not, only `condition` and `covariance_times` work."""
        return True

    @property
    @abstractmethod
    def variances(self) -> Array:
        """K_ii, shape (n,)."""

    @property
    @abstractmethod
    def precisions(self) -> Array:
        """(K⁻¹)_ii, shape (n,); 0 if K is not positive definite."""

    @property
    @abstractmethod
    def log_determinant(self) -> float:
        """log|K|."""

    @abstractmethod
    def moved(self, theta: Array) -> Prior | None:
        """The prior at another theta; ``None`` if K cannot be computed there.

        It shares the factor of K if that is equal at both.
        """

    @abstractmethod
    def has_covariance_of(self, other: Prior) -> bool:
        """Whether both priors share one object for K; equal values are not enough."""

    @abstractmethod
    def condition(self, W: Precision) -> Posterior | None:
        """The prior times exp(−½ zᵀ W z), W ≥ 0; ``None`` if rounding errors prevent it."""

    @abstractmethod
    def multiply(self, xi: Array) -> Array:
        """L ξ: from whitened variables to latent ones."""

    @abstractmethod
    def multiply_transposed(self, g: Array) -> Array:
        """Lᵀ g: from a gradient in f to one in ν."""

    @abstractmethod
    def solve(self, z: Array) -> Array:
        """L⁻¹ z: from latent variables to whitened ones."""

    @abstractmethod
    def inverse_times(self, z: Array) -> Array:
        """K⁻¹ z, or an x with K x = z if K is singular."""

    def covariance_times(self, x: Array) -> Array:
        """K x."""
        return self.multiply(self.multiply_transposed(x))

    def log_density(self, f: Array) -> float:
        """log N(f; m, K)."""
        nu = self.solve(f - self.mean)
        return -0.5 * (float(nu @ nu) + self.log_determinant + self.rank * LOG_2PI)

    # Derivatives in theta. A prior without them raises an error. Nothing calls these methods then,
    # since ``model.has_theta_gradient`` is false.

    def log_density_gradient(self, f: Array) -> Array:
        """∂ log N(f; m, K)/∂theta, shape (p,)."""
        raise NotImplementedError(f"{type(self).__name__} has no derivatives in theta.")

    def log_density_geometry(self, f: Array) -> tuple[Array, Array]:
        """The same gradient, and the Fisher information of N(m, K) on theta, shape (p, p)."""
        raise NotImplementedError(f"{type(self).__name__} has no derivatives in theta.")

    def whitened_gradient(self, nu: Array, g: Array) -> Array:
        """∂(gᵀ f)/∂theta of f = m + L ν at fixed ν and g, shape (p,)."""
        raise NotImplementedError(f"{type(self).__name__} has no derivatives in theta.")

    def whitened_jacobian(self, nu: Array) -> Array:
        """∂f/∂theta of f = m + L ν at fixed ν, shape (n, p)."""
        raise NotImplementedError(f"{type(self).__name__} has no derivatives in theta.")


CERTAIN = 1e12
"""Stands for (K⁻¹)_ii if K is singular. The other elements of f then determine f_i, and (K⁻¹)_ii is
infinite. With this value a copula leaves the marginals of f as they are."""

OUTSIDE = 1e-6
"""Relative distance of f from m + range(B) beyond which the prior density of f is 0."""


class StatePrior(Prior):
    """The prior of f = m + B x, x ~ N(0, Q⁻¹), where z determines x.

    If x has fewer elements than f, K is singular. The density of f then is the density of x. Its
    log determinant is log|Q⁻¹|.
    """

    @property
    def precisions(self) -> Array:
        """(K⁻¹)_ii, which is infinite if K is singular: `CERTAIN`."""
        return np.full(self.n, CERTAIN)

    @abstractmethod
    def expand(self, x: Array) -> Array:
        """B x."""

    @abstractmethod
    def expand_transposed(self, g: Array) -> Array:
        """Bᵀ g."""

    @abstractmethod
    def state(self, z: Array) -> Array:
        """x for z = B x."""

    def log_density(self, f: Array) -> float:
        """The log density of x; −inf if f is not in m + range(B), as for the f of another theta."""
        z = f - self.mean
        distance = np.abs(z - self.expand(self.state(z))).max(initial=0.0)
        if distance > OUTSIDE * (1.0 + np.abs(z).max(initial=0.0)):
            return -math.inf
        return super().log_density(f)
