"""Gaussian sites: what the observations say of f, apart from the prior."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pymc_lgm.gaussian.sites import between
from pymc_lgm.linalg import Array

__all__ = ["Margins", "Recalled", "Sites"]


@dataclass(frozen=True, eq=False)
class Sites:
    """∏ t_i = exp(νᵀ z − ½ zᵀ W z), z = f − m: with a prior they make a Gaussian q."""

    nu: Array
    precision: Any  # W: see `Precision`

    def seen_from(self, z: Array | None) -> Sites:
        """The same sites of z − z₀: ν − W z₀ and W; z₀ = 0 if it is ``None``."""
        return self if z is None else Sites(self.nu - self.precision * z, self.precision)

    def toward(self, other: Sites, share: float) -> Sites:
        """Go a share of the way to others."""
        nu = self.nu + share * (other.nu - self.nu)
        return Sites(nu, between(self.precision, other.precision, share))


@dataclass(frozen=True, eq=False)
class Margins:
    """Σ_ii and (K⁻¹)_ii, each of shape (n,): with the sites they make a copula of a q."""

    variances: Array
    precisions: Array


@dataclass(frozen=True, eq=False)
class Recalled(Sites):
    """Sites that tuning expects at a theta.

    Attributes
    ----------
    margins : Margins, optional
        For a copula, where tuning has learnt them, too.
    trusted : bool
        Whether theta is near enough to those of tuning: if not, a search starts from the sites.
    """

    margins: Margins | None = None
    trusted: bool = True
