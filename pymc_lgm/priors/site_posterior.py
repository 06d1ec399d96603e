"""A dense prior conditioned on sites of one f_i each: W is a diagonal, and its algebra compiled."""

from __future__ import annotations

from functools import cached_property
from typing import Protocol, Self

import numpy as np

from pymc_lgm.linalg import Array, CholeskyFactor, tally
from pymc_lgm.priors import site_factor, site_loops
from pymc_lgm.priors.dense_posterior import DensePosterior, Differentiable
from pymc_lgm.priors.precision import rooted

__all__ = ["Dense", "SitePosterior"]

THIN = 1e-6
"""W_i Σ_ii below which a difference from 1 does not say what it is."""


class Dense(Differentiable, Protocol):
    """A prior with a dense K = v C, and its factor."""

    @property
    def factor(self) -> CholeskyFactor:
        """L."""

    @property
    def symmetric(self) -> tuple[Array, float]:
        """C, in the upper triangle of an array in column order, and v."""


class SitePosterior(DensePosterior):
    """A dense prior conditioned on a diagonal W ≥ 0, through B = I + W^½ K W^½: see `Posterior`.

    Σ = (K⁻¹ + W)⁻¹ = K − K W^½ B⁻¹ W^½ K. Made by `DensePrior.condition`; O(n²) a verb where
    nothing else is said.
    """

    def __init__(self, prior: Dense, W: Array, U: Array):
        self.prior: Dense = prior
        self.precision, self._W = W, rooted(W)
        self._U, self._root = U, np.sqrt(W)
        self._B = CholeskyFactor(U, lower=False)

    @classmethod
    def of(cls, prior: Dense, W: Array, C: Array, diagonal: Array, v: float) -> Self | None:
        """Factorize B, of K = v C above its diagonal: one O(n³) operation; ``None`` if it fails."""
        tally.cubic_ops += 1
        U, is_definite = site_factor.conditioned(C, diagonal, v, W)
        return cls(prior, W, U) if is_definite else None

    def dual(self, b: Array) -> Array:
        """(I + W K)⁻¹ b = b − W^½ B⁻¹ W^½ K b."""
        if b.ndim > 1:
            return super().dual(b)
        result: Array = site_loops.dual(*self.prior.symmetric, self._U, self._root, b)
        return result

    def spread(self, x: Array) -> float:
        """xᵀ Σ x = xᵀ K x − |L_B⁻¹ W^½ K x|²."""
        return float(site_loops.spread(*self.prior.symmetric, self._U, self._root, x))

    @cached_property
    def shares(self) -> Array:
        """(B⁻¹)_ii = 1 − W_i Σ_ii: half of the O(n³) operation that B⁻¹ is, or none."""
        known = "_inverse" in self.__dict__
        return self._inverse.diagonal() if known else self._B.inverse_diagonal()

    @cached_property
    def variances(self) -> Array:
        """Σ_ii = (1 − (B⁻¹)_ii) / W_i, or by columns of Σ where W_i is next to nothing."""
        shares = self.shares
        with np.errstate(divide="ignore", invalid="ignore"):
            variances: Array = (1.0 - shares) / self.precision
        thin = np.flatnonzero(shares > 1.0 - THIN)
        if thin.size:
            columns, half = self._columns(thin)
            variances[thin] = columns[thin, np.arange(thin.size)]
            variances[thin] -= (half**2).sum(axis=0)
        return variances

    @property
    def site_covariances(self) -> Array:
        """Σ_ii, each as a block."""
        return self.variances[:, None, None]

    def deviations(self, xi: Array) -> Array:
        """Matheron's rule: see `site_loops.deviations`."""
        return self.whitened_deviations(xi)[0]

    def whitened_deviations(self, xi: Array) -> tuple[Array, Array]:
        """The same, and L⁻¹ of them, by which they are made."""
        packed, lower, scale = self.prior.factor.triangle
        rows, white = site_loops.deviations(packed, scale, lower, self._U, self._root, xi)
        return rows.T, white.T

    def evidence_gradient(self, a: Array, v: Array | None = None) -> Array:
        """See `Posterior`: one O(n³) operation, B⁻¹."""
        inverse = self._inverse.T if self._inverse.flags.f_contiguous else self._inverse
        left = 0.5 * a if v is None else 0.5 * a + v
        M = site_loops.of_evidence(inverse, self._root, left, a)
        return self.prior.vjp(M, a if v is None else a + v)
