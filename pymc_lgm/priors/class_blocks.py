"""W of classes: what an observation of one of C classes says of C latent variables.

The curvature of a softmax is diag(π) − π πᵀ. A block W_g = diag(D) − u uᵀ is what
`JoinedPosterior` conditions on in C + 1 factorizations, and an expectation of such blocks is next
to one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from numpy.typing import NDArray

from pymc_lgm.linalg import Array
from pymc_lgm.priors.precision import SiteBlocks, gathered

__all__ = ["ClassBlocks"]

LEAST = 1e-12
"""Share of √(W_cc W_dd) that −W_cd has at least, and of the largest W_dd that W_cc has."""

TINY = 1e-100
"""Least curvature: it has a logarithm, and its square is no zero."""

STEPS, STEP = 30, 2.0
"""Of Newton's method for a logarithm, and the longest of them."""


@dataclass(frozen=True, eq=False)
class ClassBlocks(SiteBlocks):
    """W_g = diag(D_g) − u_g u_gᵀ with u > 0 and Σ_c u_c²/D_c < 1, all sets of s ≥ 3 f_i.

    Any two have all their convex combinations among them: u_c²/D_c is convex in u_c and D_c.

    Attributes
    ----------
    u : ndarray, shape (G, s)

    Examples
    --------
    >>> import numpy as np
    >>> pi = np.array([0.5, 0.3, 0.2])
    >>> W = ClassBlocks.nearest(np.array([[0, 1, 2]]), np.diag(pi)[None] - np.outer(pi, pi))
    >>> np.round(W.u, 6)
    array([[0.5, 0.3, 0.2]])
    """

    u: Array

    @classmethod
    def of(cls, sets: NDArray[np.intp], D: Array, u: Array) -> ClassBlocks:
        """Of D and u, each of shape (G, s)."""
        values = -u[:, :, None] * u[:, None, :]
        values[:, *np.diag_indices(u.shape[1])] += D
        return cls(sets, values, u)

    @classmethod
    def nearest(cls, sets: NDArray[np.intp], curvature: Array) -> ClassBlocks:
        """Blocks with the diagonal of a curvature (G, s, s), and nearly what is beside it.

        −W_cd = u_c u_d is a sum in logarithms, of which least squares have a closed form. A common
        factor t then makes the block singular, as that of a softmax is: Σ_c t²u_c²/D_c = 1 with
        D_c = W_cc + t²u_c². Of a softmax, whose blocks have this form, it is 1.
        """
        s = curvature.shape[1]
        if not np.isfinite(curvature).all():
            return cls(sets, curvature, np.full(sets.shape, np.nan))
        diagonal = np.einsum("gcc->gc", curvature)
        least = np.maximum(LEAST * diagonal.max(axis=1, keepdims=True), TINY)
        diagonal = np.maximum(diagonal, least)
        scale = np.sqrt(diagonal)
        beside = -curvature / (scale[:, :, None] * scale[:, None, :])
        logarithms = np.log(np.maximum(beside, LEAST))
        sums = logarithms.sum(axis=2) - np.einsum("gcc->gc", logarithms)
        log_ratio = sums - sums.sum(axis=1, keepdims=True) / (2.0 * (s - 1))
        log_ratio *= 2.0 / (s - 2)  # of u_c² to W_cc
        for _ in range(STEPS):
            share = 1.0 / (1.0 + np.exp(-log_ratio))  # u_c²/D_c
            excess = share.sum(axis=1) - 1.0
            if np.abs(excess).max() < 1e-14 * s:
                break
            slope = (share * (1.0 - share)).sum(axis=1)
            log_ratio -= np.clip(excess / slope, -STEP, STEP)[:, None]
        u = scale * np.exp(0.5 * log_ratio)
        return cls.of(sets, diagonal + u**2, u)

    @property
    def D(self) -> Array:
        """D, shape (G, s)."""
        result: Array = np.einsum("gcc->gc", self.values) + self.u**2
        return result

    @property
    def less_one(self) -> tuple[Array, Array, Array]:
        """See `SiteBlocks`."""
        D = self.D
        v = self.u / np.sqrt(D)
        return D, v, 1.0 - (v**2).sum(axis=1)

    def like(self, values: Array) -> ClassBlocks:
        """Blocks of this kind, near to values."""
        return self.nearest(self.sets, values)

    def toward(self, other: SiteBlocks, share: float) -> ClassBlocks:
        """Go a share of the way in D and u."""
        assert isinstance(other, ClassBlocks)
        D, u = self.D, self.u
        return self.of(self.sets, D + share * (other.D - D), u + share * (other.u - u))

    def at_least(self, least: float, scale: Array) -> ClassBlocks:
        """Raise the eigenvalues of s_i W_ij s_j by at least ``least``."""
        return self.of(self.sets, self.D + least / gathered(self.sets, scale) ** 2, self.u)
