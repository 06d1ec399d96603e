"""A prior of low rank conditioned on Gaussian sites."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from pymc_lgm.linalg import Array, tally
from pymc_lgm.priors.dense import DensePrior
from pymc_lgm.priors.root_posterior import Rooted, RootPosterior

__all__ = ["LowRankPosterior"]


class Factored(Rooted, Protocol):
    """V = U L."""

    basis: Array
    reduced: DensePrior

    def vjp(self, M: Array, v: Array) -> Array:
        """⟨M, ∂K_w⟩ + vᵀ ∂c, M of shape (r, r)."""


class LowRankPosterior(RootPosterior):
    """The same for V = U L, with derivatives in theta."""

    prior: Factored

    def differentiable(self) -> LowRankPosterior:
        """Nothing is to be made ready."""
        return self

    def evidence_gradient(self, a: Array, v: Array | None = None) -> Array:
        """⟨½ a aᵀ − ½ R + v aᵀ, ∂K⟩ + (a + v)ᵀ ∂c, where Uᵀ R U = L⁻ᵀ (I − B_r⁻¹) L⁻¹."""
        prior, U = self.prior, self.prior.basis
        explained = np.eye(prior.rank) - self._B.inverse()
        tally.cubic_ops += 1
        L = prior.reduced.factor
        R = L.solve_transposed(
            np.asfortranarray(L.solve_transposed(np.asfortranarray(explained)).T)
        )
        inside = U.T @ a
        total = a if v is None else a + v
        left = 0.5 * inside if v is None else 0.5 * inside + U.T @ v
        return prior.vjp(np.outer(left, inside) - 0.5 * R, total)
