"""A dense prior conditioned on sites of several f_i, through B = I + W^½ K W^½; no K⁻¹.

Rasmussen and Williams (2006), §3.4 and §3.6, for the algebra.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Protocol, Self

import numpy as np

from numpy.typing import NDArray

from pymc_lgm.linalg import Array, CholeskyFactor, factorize, tally
from pymc_lgm.priors.base import Prior
from pymc_lgm.priors.precision import SiteBlocks, rooted

__all__ = ["DensePosterior"]

ROUNDING = 0.5 * float(np.finfo(float).eps)
"""u: the largest relative error of rounding a number."""


class Differentiable(Prior, Protocol):
    """A prior whose derivatives take an n × n array."""

    def vjp(self, M: Array, v: Array) -> Array:
        """⟨M, ∂K⟩ + vᵀ ∂m, shape (p,)."""


class Joinable(Differentiable, Protocol):
    """A prior whose K can be made as one array."""

    def dense(self) -> Array:
        """K, a new array."""


def joined_by(W: SiteBlocks, prior: Joinable) -> DensePosterior | None:
    """Condition on W with blocks, which may join f_i that the prior has independent."""
    if not (prior.n * ROUNDING * W.diagonal(W.values) * prior.variances < 1.0).all():
        return None
    B = W.root_times(W.root_times(prior.dense()).T)
    B[np.diag_indices_from(B)] += 1.0
    factor = factorize(B, lower=False)
    return None if factor is None else DensePosterior(prior, W, factor)


class DensePosterior:
    """A dense prior conditioned on blocks W, through B = I + W^½ K W^½: see `Posterior`.

    Σ = (K⁻¹ + W)⁻¹ = K − K W^½ B⁻¹ W^½ K. O(n²) a verb where nothing else is said. Of a diagonal W
    it is a `SitePosterior`.
    """

    def __init__(self, prior: Differentiable, W: SiteBlocks, B: CholeskyFactor):
        self.prior, self._B = prior, B
        self.precision: Any = W
        self._W = rooted(W)

    @property
    def log_determinant(self) -> float:
        """log|B|."""
        return self._B.log_determinant

    def dual(self, b: Array) -> Array:
        """(I + W K)⁻¹ b = b − W^½ B⁻¹ W^½ K b."""
        seen = self._W.root_times(self.prior.covariance_times(b))
        return b - self._W.root_times(self._B.inverse_times(seen))

    def center(self, nu: Array) -> tuple[Array, Array]:
        """a, and ẑ = K a."""
        dual = self.dual(nu)
        return dual, self.prior.covariance_times(dual)

    def precision_times(self, x: Array) -> Array:
        """W x."""
        return self._W.times(x)

    def covariance_times(self, x: Array) -> Array:
        """Σ x = K (I + W K)⁻¹ x."""
        return self.prior.covariance_times(self.dual(x))

    def square(self, d: Array) -> float:
        """dᵀ Σ⁻¹ d = |L⁻¹ d|² + dᵀ W d."""
        nu = self.prior.solve(d)
        return float(nu @ nu + d @ self._W.times(d))

    def spread(self, x: Array) -> float:
        """xᵀ Σ x = xᵀ K x − |L_B⁻¹ W^½ K x|²."""
        Kx = self.prior.covariance_times(x)
        half = self._B.solve(self._W.root_times(Kx))
        return float(x @ Kx - half @ half)

    @cached_property
    def shares(self) -> Array:
        """1 − (W Σ)_ii."""
        return 1.0 - self.precision.diagonal(self.precision.values @ self.site_covariances)

    @cached_property
    def variances(self) -> Array:
        """Σ_ii."""
        return self.precision.diagonal(self.site_covariances)

    def block(self, index: NDArray[np.intp]) -> Array:
        """Σ of some f_i: their rows and columns of K − K W^½ B⁻¹ W^½ K."""
        if not index.size:
            return np.empty((0, 0))
        columns, half = self._columns(index)
        sigma: Array = columns[index] - half.T @ half
        return sigma

    def _columns(self, index: NDArray[np.intp]) -> tuple[Array, Array]:
        """Columns of K, and L_B⁻¹ W^½ times them."""
        n = self.prior.n
        tally.cubic_ops += 2 * index.size // n
        columns = self.prior.covariance_times(np.asfortranarray(np.eye(n)[:, index]))
        return columns, self._B.solve(self._W.root_times(columns))

    @cached_property
    def site_covariances(self) -> Array:
        """Σ's blocks on the sets of W, (G, s, s): one O(n³) operation, B⁻¹."""
        return self.precision.covariances(self._inverse)

    # Draws

    @property
    def coordinates_shape(self) -> tuple[int, int]:
        """A draw of f and one of its noise."""
        return 2, self.prior.n

    def deviations(self, xi: Array) -> Array:
        """Matheron's rule, all draws solved as one matrix.

        u = L ξ₁ is a draw from the prior, r = W^½ u + ξ₂ has covariance B, and u − K W^½ B⁻¹ r is
        independent of r with covariance K − K W^½ B⁻¹ W^½ K = Σ.
        """
        u = self.prior.multiply(xi[0])
        return u - self.given(self._W.root_times(u) + xi[1])

    def whitened_deviations(self, xi: Array) -> tuple[Array, Array]:
        """The same, and L⁻¹ of them."""
        deviations = self.deviations(xi)
        return deviations, self.prior.solve(deviations)

    def coordinates(self, rng: np.random.Generator, deviation: Array) -> Array:
        """Draw ξ given a deviation: r is independent of it.

        Draw r, and u = deviation + K W^½ B⁻¹ r, ξ₁ = L⁻¹ u, ξ₂ = r − W^½ u follow.
        """
        xi = rng.standard_normal((2, self.prior.n))
        r = self._W.root_times(self.prior.multiply(xi[0])) + xi[1]
        u = deviation + self.given(r)
        return np.stack([self.prior.solve(u), r - self._W.root_times(u)])

    def multiply(self, xi: Array) -> Array:
        """A ξ, A Aᵀ = Σ, for no further factorization.

        With B = L_B L_Bᵀ,

            A = (I − K W^½ L_B⁻ᵀ (L_B + I)⁻¹ W^½) L,   A⁻¹ = L⁻¹ (I + K W^½ (L_Bᵀ + I)⁻¹ W^½):

        the square-root filter of Andrews (1968), eq. (10) of Whitaker and Hamill (2002), *Ensemble
        data assimilation without perturbed observations*. Multiply out with
        (L_B + I)(L_B + I)ᵀ = B + L_B + L_Bᵀ + I.
        """
        u = self.prior.multiply(xi)
        seen = self._shifted().solve(self._W.root_times(u))
        solved = self._B.solve_transposed(seen)
        return u - self.prior.covariance_times(self._W.root_times(solved))

    def solve(self, d: Array) -> Array:
        """A⁻¹ d: see `multiply`."""
        solved = self._shifted().solve_transposed(self._W.root_times(d))
        return self.prior.solve(d + self.prior.covariance_times(self._W.root_times(solved)))

    def _shifted(self) -> CholeskyFactor:
        """L_B + I, which is triangular, too."""
        shifted = self._B.dense()
        np.einsum("ii->i", shifted)[:] += 1.0
        return CholeskyFactor(shifted)

    # The sites as noisy data

    def seen(self, f: Array, center: Array) -> Array:
        """W^½ (f − center)."""
        return self._W.root_times(f - center)

    def given(self, r: Array) -> Array:
        """K W^½ B⁻¹ r, of a vector or of columns."""
        return self.prior.covariance_times(self._W.root_times(self._B.inverse_times(r)))

    def log_density_of_data(self, r: Array) -> float:
        """log N(r; 0, B)."""
        return self._B.log_density(r)

    def unexplained(self, r: Array) -> Array:
        """B⁻¹ r."""
        return self._B.inverse_times(r)

    # Derivatives in theta

    @cached_property
    def _inverse(self) -> Array:
        """B⁻¹: one O(n³) operation."""
        return self._B.inverse()

    def differentiable(self) -> Self:
        """Make B⁻¹ now, of which `shares` and `evidence_gradient` are both made."""
        _ = self._inverse
        return self

    def evidence_gradient(self, a: Array, v: Array | None = None) -> Array:
        """⟨½ a aᵀ − ½ W^½ B⁻¹ W^½ + v aᵀ, ∂K⟩ + (a + v)ᵀ ∂m: one O(n³) operation."""
        M = self._W.root_times(self._W.root_times(self._inverse).T).T
        M *= -0.5
        M += np.outer(0.5 * a if v is None else 0.5 * a + v, a)
        return self.prior.vjp(M, a if v is None else a + v)
