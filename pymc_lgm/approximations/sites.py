"""Gaussian sites: a Gaussian approximation of the likelihood as a function of f."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pymc_lgm.gaussian.sites import lerp
from pymc_lgm.linalg import Array

__all__ = ["Margins", "PredictedSites", "Sites"]


@dataclass(frozen=True, eq=False)
class Sites:
    """Sites ∏ t_i = exp(νᵀ z − ½ zᵀ W z), z = f − m. Their product with the prior is q."""

    nu: Array
    precision: Any  # W: see `Precision`

    def seen_from(self, z: Array | None) -> Sites:
        """The same sites as a function of z − z₀: ν − W z₀ and W; ``None`` is z₀ = 0."""
        return self if z is None else Sites(self.nu - self.precision * z, self.precision)

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
