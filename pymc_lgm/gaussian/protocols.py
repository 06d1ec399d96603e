"""The methods of a prior N(m, K), and of the prior conditioned on Gaussian sites.

In these docstrings z is f − m, ξ and ν are standard normal coordinates, and L is a root of K:
K = L Lᵀ. A method that is a linear map takes a vector (n,) or columns (n, N), and returns a new
array.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from numpy.typing import NDArray

from pymc_lgm.gaussian.sites import Precision
from pymc_lgm.linalg import Array

__all__ = ["GaussianModel", "Posterior", "Prior", "WithoutSlopes"]


class GaussianModel(Protocol):
    """m and K as functions of theta (p,), with their derivatives."""

    @property
    def enters_cov(self) -> NDArray[np.bool_]:
        """Whether the covariance depends on each component of theta, shape (p,)."""

    @property
    def amplitudes(self) -> Array:
        """k, shape (p,): K(theta + δ e_j) = exp(k_j δ) K(theta) for every δ.

        A theta_j with k_j ≠ 0, such as a log variance, only scales K. To change it costs no
        factorization. k_j is 0 if there is no such number. `find_amplitudes` finds k.
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


class Prior(Protocol):
    """f ~ N(m, K) at one theta."""

    @property
    def theta(self) -> Array:
        """theta, shape (p,), on which the search for q may depend."""

    @property
    def n(self) -> int:
        """Number of latent variables."""

    @property
    def rank(self) -> int:
        """r, the length of ξ and ν; n if K is positive definite."""

    @property
    def mean(self) -> Array:
        """m, shape (n,)."""

    @property
    def variances(self) -> Array:
        """K_ii, shape (n,)."""

    @property
    def is_proper(self) -> bool:
        """Whether K is positive definite. If not, only `condition` and `covariance_times` work."""

    def moved(self, theta: Array) -> Prior | None:
        """The prior at another theta; ``None`` if K cannot be computed there.

        It shares the factor of K if that is equal at both.
        """

    def has_covariance_of(self, other: Prior) -> bool:
        """Whether both priors share one object for K; equal values are not enough."""

    def condition(self, W: Precision) -> Posterior | None:
        """The prior times exp(−½ zᵀ W z), W ≥ 0; ``None`` if rounding errors prevent it."""

    def multiply(self, xi: Array) -> Array:
        """L ξ: from whitened variables to latent ones."""

    def multiply_transposed(self, g: Array) -> Array:
        """Lᵀ g: from a gradient in f to one in ν."""

    def solve(self, z: Array) -> Array:
        """L⁻¹ z: from latent variables to whitened ones."""

    def inverse_times(self, z: Array) -> Array:
        """K⁻¹ z."""

    def covariance_times(self, x: Array) -> Array:
        """K x."""

    def log_density(self, f: Array) -> float:
        """log N(f; m, K)."""

    @property
    def precisions(self) -> Array:
        """(K⁻¹)_ii, shape (n,); 0 if K is not positive definite."""

    # Derivatives in theta

    def log_density_gradient(self, f: Array) -> Array:
        """∂ log N(f; m, K)/∂theta, shape (p,)."""

    def log_density_geometry(self, f: Array) -> tuple[Array, Array]:
        """The same gradient, and the Fisher information of N(m, K) on theta, shape (p, p)."""

    def whitened_gradient(self, nu: Array, g: Array) -> Array:
        """∂(gᵀ f)/∂theta of f = m + L ν at fixed ν and g, shape (p,)."""

    def whitened_jacobian(self, nu: Array) -> Array:
        """∂f/∂theta of f = m + L ν at fixed ν, shape (n, p)."""


class Posterior(Protocol):
    """A prior times exp(νᵀ z − ½ zᵀ W z). Its precision is Σ⁻¹ = K⁻¹ + W for every ν.

    W is diagonal, or has a block for each set of f_i that an observation reads.
    """

    @property
    def prior(self) -> Prior:
        """The prior."""

    @property
    def precision(self) -> Any:
        """W, as an array (n,) or as blocks: see `Precision`."""

    @property
    def log_determinant(self) -> float:
        """log|B| = log|K| − log|Σ|, B = I + W^½ K W^½."""

    def dual(self, b: Array) -> Array:
        """(I + W K)⁻¹ b. For b = ν it is a = K⁻¹ E[z], and the mean is m + K a."""

    def center(self, nu: Array) -> tuple[Array, Array]:
        """a = (I + W K)⁻¹ ν and ẑ = K a = Σ ν. The mean is m + ẑ."""

    def precision_times(self, x: Array) -> Array:
        """W x."""

    def covariance_times(self, x: Array) -> Array:
        """Σ x."""

    def quad_form(self, x: Array) -> float:
        """xᵀ Σ x."""

    def inv_quad_form(self, d: Array) -> float:
        """dᵀ Σ⁻¹ d."""

    @property
    def one_minus_leverage(self) -> Array:
        """1 − (W Σ)_ii, shape (n,): one minus the leverage of each site."""

    @property
    def variances(self) -> Array:
        """Σ_ii, shape (n,)."""

    @property
    def site_covariances(self) -> Array:
        """Σ's blocks on the sets of W, (G, s, s), padded by the identity if a set is smaller."""

    def block(self, index: NDArray[np.intp]) -> Array:
        """The block of Σ for some f_i."""

    # Draws

    @property
    def coordinates_shape(self) -> tuple[int, int]:
        """Shape of the standard normal numbers ξ of one draw.

        (2, n) for Matheron's rule, which needs a draw ξ₁ of the prior and a draw ξ₂ of the noise;
        (1, r) if a root of Σ is known.
        """

    def deviations(self, xi: Array) -> Array:
        """N draws of N(0, Σ), (n, N), from standard normal coordinates with a last axis N."""

    def whitened_deviations(self, xi: Array) -> tuple[Array, Array]:
        """The same draws (n, N), and L⁻¹ times them, (r, N)."""

    def coordinates(self, rng: np.random.Generator, deviation: Array) -> Array:
        """Draw ξ from its distribution given its deviation, shape (n,)."""

    def multiply(self, xi: Array) -> Array:
        """A ξ with A Aᵀ = Σ, shape (n,)."""

    def solve(self, d: Array) -> Array:
        """A⁻¹ d, shape (n,)."""

    # The sites as noisy data: r = W^½ (g − m), g ~ N(f, W⁻¹)

    def seen(self, f: Array, center: Array) -> Array:
        """W^½ (f − center): f in units of the noise."""

    def given(self, r: Array) -> Array:
        """E[z | r] = K W^½ B⁻¹ r."""

    def log_density_of_data(self, r: Array) -> float:
        """log N(r; 0, B)."""

    def weighted_residual(self, r: Array) -> Array:
        """B⁻¹ r, the expectation of the noise in r."""

    # Derivatives in theta

    def differentiable(self) -> Posterior:
        """The same posterior, with all that `evidence_gradient` and `variances` need computed."""

    def evidence_gradient(self, a: Array, v: Array | None = None) -> Array:
        """⟨½ a aᵀ − ½ (K + W⁻¹)⁻¹ + v aᵀ, ∂K⟩ + (a + v)ᵀ ∂m, shape (p,); v = 0 by default.

        For a = ``dual(nu)`` and v = 0 it is the gradient of log ∫ N(f; m, K) ∏ t_i(f_i) df.
        """


class WithoutSlopes:
    """A base class for priors and posteriors that have no derivatives in theta.

    The methods raise an error. Nothing calls them, since ``model.has_theta_gradient`` is false.
    """

    def _refuse(self, *arguments: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no derivatives in theta.")

    log_density_gradient = log_density_geometry = _refuse
    whitened_gradient = whitened_jacobian = evidence_gradient = _refuse
