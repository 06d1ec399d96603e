"""Posteriors that need few methods of their own: A ξ, Aᵀ x, A⁻¹ d, the diagonal of Σ, and log|B|.

`ByRoot` derives all other methods from a root A of Σ = A Aᵀ. `RootPosterior` gets A from a factor
of I + Vᵀ W V, if f = c + V ξ has fewer degrees of freedom than elements.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Protocol, Self

import numpy as np

from numpy.typing import NDArray

from pymc_lgm.gaussian.protocols import Prior
from pymc_lgm.gaussian.sites import Precision, SiteBlocks, gathered, rooted
from pymc_lgm.linalg import LOG_2PI, Array, CholeskyFactor, tally

__all__ = ["ByRoot", "Factor", "RootPosterior", "Rooted"]


class ByRoot(ABC):
    """The methods of a `Posterior` whose draws are A ξ₁, Σ = A Aᵀ, without a ξ₂."""

    prior: Prior

    def __init__(self, W: Precision):
        self.precision, self._W = W, rooted(W)

    @property
    @abstractmethod
    def log_determinant(self) -> float:
        """log|B|."""

    @property
    @abstractmethod
    def variances(self) -> Array:
        """Σ_ii, shape (n,)."""

    @abstractmethod
    def multiply(self, xi: Array) -> Array:
        """A ξ."""

    @abstractmethod
    def multiply_transposed(self, x: Array) -> Array:
        """Aᵀ x."""

    @abstractmethod
    def solve(self, d: Array) -> Array:
        """A⁻¹ d."""

    def covariance_times(self, x: Array) -> Array:
        """Σ x = A Aᵀ x."""
        return self.multiply(self.multiply_transposed(x))

    def quad_form(self, x: Array) -> float:
        """xᵀ Σ x = |Aᵀ x|²."""
        half = self.multiply_transposed(x)
        return float(half @ half)

    @property
    def site_covariances(self) -> Array:
        """Σ_ii, each as a block of shape (1, 1)."""
        return self.variances[:, None, None]

    def block(self, index: NDArray[np.intp]) -> Array:
        """The block of Σ for some f_i, from Aᵀ times a column of the identity for each."""
        columns = np.zeros((self.prior.n, index.size), order="F")
        columns[index, np.arange(index.size)] = 1.0
        half = self.multiply_transposed(columns)
        sigma: Array = half.T @ half
        return sigma

    def differentiable(self) -> Self:
        """The posterior itself, which needs no preparation."""
        return self

    def dual(self, b: Array) -> Array:
        """(I + W K)⁻¹ b = b − W Σ b."""
        return b - self._W.times(self.covariance_times(b))

    def center(self, nu: Array) -> tuple[Array, Array]:
        """ẑ = Σ ν and a = ν − W ẑ. K a would have the rounding error of a times K's variances."""
        z = self.covariance_times(nu)
        return nu - self._W.times(z), z

    def precision_times(self, x: Array) -> Array:
        """W x."""
        return self._W.times(x)

    def inv_quad_form(self, d: Array) -> float:
        """dᵀ Σ⁻¹ d = dᵀ K⁻¹ d + dᵀ W d."""
        nu = self.prior.solve(d)
        return float(nu @ nu + d @ self._W.times(d))

    @property
    def one_minus_leverage(self) -> Array:
        """1 − (W Σ)_ii."""
        if isinstance(self.precision, SiteBlocks):
            return 1.0 - self.precision.diagonal(self.precision.values @ self.site_covariances)
        return np.asarray(1.0 - self.precision * self.variances)

    # Draws

    @property
    def coordinates_shape(self) -> tuple[int, int]:
        """Shape of the coordinates of a draw, which has r degrees of freedom."""
        return 1, self.prior.rank

    def deviations(self, xi: Array) -> Array:
        """A ξ₁."""
        return self.multiply(xi[0])

    def whitened_deviations(self, xi: Array) -> tuple[Array, Array]:
        """The same draws, and L⁻¹ times them."""
        deviations = self.deviations(xi)
        return deviations, self.prior.solve(deviations)

    def coordinates(self, rng: np.random.Generator, deviation: Array) -> Array:
        """ξ₁ = A⁻¹ times a deviation, which determines it."""
        return self.solve(deviation)[None]

    # The sites as noisy data

    def seen(self, f: Array, center: Array) -> Array:
        """W^½ (f − center)."""
        return self._W.root_times(f - center)

    def given(self, r: Array) -> Array:
        """K W^½ B⁻¹ r = Σ W^½ r."""
        return self.covariance_times(self._W.root_times(r))

    def log_density_of_data(self, r: Array) -> float:
        """log N(r; 0, B), B⁻¹ = I − W^½ Σ W^½."""
        square = float(r @ r) - self.quad_form(self._W.root_times(r))
        return -0.5 * (square + self.log_determinant + r.size * LOG_2PI)

    def weighted_residual(self, r: Array) -> Array:
        """B⁻¹ r."""
        return r - self._W.root_times(self.given(r))


class Factor(Protocol):
    """A root of A = R Rᵀ. x has the order of f; ξ may have another one."""

    @property
    def log_determinant(self) -> float:
        """log|A|."""

    @property
    def inverse_diagonal(self) -> Array:
        """(A⁻¹)_ii."""

    def solve(self, x: Array) -> Array:
        """R⁻¹ x."""

    def solve_transposed(self, xi: Array) -> Array:
        """R⁻ᵀ ξ."""

    def multiply(self, xi: Array) -> Array:
        """R ξ."""

    def multiply_transposed(self, x: Array) -> Array:
        """Rᵀ x."""


# Posteriors from a root of K


class Rooted(Prior, Protocol):
    """A prior f = c + V ξ."""

    @property
    def root(self) -> Array:
        """V, shape (E, r)."""


class RootPosterior(ByRoot):
    """f = c + V ξ conditioned on precisions W ≥ 0, through B_r = I + Vᵀ W V.

    Σ = V B_r⁻¹ Vᵀ, |B_r| = |I + W^½ K W^½|: see `Posterior`.
    """

    prior: Rooted

    def __init__(self, prior: Rooted, W: Precision, B: CholeskyFactor):
        super().__init__(W)
        self.prior, self._B = prior, B

    @property
    def log_determinant(self) -> float:
        """log|B|."""
        return self._B.log_determinant

    def multiply_transposed(self, x: Array) -> Array:
        """L_B⁻¹ Vᵀ x."""
        return self._B.solve(self.prior.multiply_transposed(x))

    @cached_property
    def _half(self) -> Array:
        """L_B⁻¹ Vᵀ, shape (r, E): at most one O(n³) operation."""
        tally.cubic_ops += 1
        return self._B.solve(np.asfortranarray(self.prior.root.T))

    @cached_property
    def variances(self) -> Array:
        """Σ_ii."""
        result: Array = np.einsum("ij,ij->j", self._half, self._half)
        return result

    @cached_property
    def site_covariances(self) -> Array:
        """Σ's blocks on the sets of W, (G, s, s)."""
        if not isinstance(self.precision, SiteBlocks):
            return self.variances[:, None, None]
        half = gathered(self.precision.sets, np.ascontiguousarray(self._half.T))
        blocks = half @ half.swapaxes(1, 2)
        return np.where(self.precision.filling, np.eye(blocks.shape[1]), blocks)

    def block(self, index: NDArray[np.intp]) -> Array:
        """The block of Σ for some f_i."""
        half = self._half[:, index]
        result: Array = half.T @ half
        return result

    def multiply(self, xi: Array) -> Array:
        """A ξ, A = V L_B⁻ᵀ."""
        return self.prior.multiply(self._B.solve_transposed(xi))

    def solve(self, d: Array) -> Array:
        """A⁻¹ d = L_Bᵀ L⁻¹ Uᵀ d."""
        return self._B.multiply_transposed(self.prior.solve(d))
