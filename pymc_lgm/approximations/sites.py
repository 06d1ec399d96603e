"""Gaussian sites: a Gaussian approximation of the likelihood as a function of f."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np

from pymc_lgm.gaussian.sites import lerp
from pymc_lgm.linalg import Array

__all__ = ["LEAST_SHARE", "Effects", "Margins", "PredictedSites", "Sites"]

LEAST_SHARE = 0.02
"""Smallest 1 − d² W of a site of f + d w with integrated effects d w. It is positive for every
log-concave likelihood."""


class Effects(NamedTuple):
    """ℓ_i(f_i) = log ∫ exp(ℓ°_i(f_i + d_i w)) N(w; 0, 1) dw.

    Attributes
    ----------
    d : ndarray, shape (n,)
    sites : callable
        ℓ°_i of each row of f + d w, shape (N, n) -> (N, n).
    """

    d: Array
    sites: Callable[[Array], Array]


@dataclass(frozen=True, eq=False)
class Sites:
    """Sites ∏ t_i = exp(νᵀ z − ½ zᵀ W z), z = f − m. Their product with the prior is q."""

    nu: Array
    precision: Any  # W: see `Precision`

    def seen_from(self, z: Array | None) -> Sites:
        """The same sites as a function of z − z₀: ν − W z₀ and W; ``None`` is z₀ = 0."""
        return self if z is None else Sites(self.nu - self.precision * z, self.precision)

    def with_effects(self, effects: Effects | None) -> Self:
        """The sites of f + d w, from these of f, from which w ~ N(0, I) is integrated out.

        A site of f + d w of precision V becomes one of f with V / (1 + d² V), and its mean stays.
        The sites of f + d w hardly depend on theta, but d does. So those are what is predicted.
        """
        if effects is None:
            return self
        share = np.maximum(1.0 - effects.d**2 * self.precision, LEAST_SHARE)
        return replace(self, nu=self.nu / share, precision=self.precision / share)

    def without_effects(self, effects: Effects | None) -> Self:
        """The inverse of `with_effects`: the sites of f, from these of f + d w."""
        if effects is None:
            return self
        share = 1.0 / (1.0 + effects.d**2 * self.precision)
        return replace(self, nu=self.nu * share, precision=self.precision * share)

    def lerp(self, other: Sites, share: float) -> Sites:
        """Interpolate linearly towards other sites."""
        nu = self.nu + share * (other.nu - self.nu)
        return Sites(nu, lerp(self.precision, other.precision, share))


@dataclass(frozen=True, eq=False)
class Margins:
    """Σ_ii and (K⁻¹)_ii, each of shape (n,), from which a copula is made."""

    variances: Array
    precisions: Array


@dataclass(frozen=True, eq=False)
class PredictedSites(Sites):
    """Sites predicted at a theta.

    Attributes
    ----------
    margins : Margins, optional
        Predicted margins, if there is a copula.
    trusted : bool
        Whether theta is close enough to those of tuning. If not, a search starts from the sites.
    """

    margins: Margins | None = None
    trusted: bool = True
