"""Gaussian sites: what the observations say of f, apart from the prior."""

from __future__ import annotations

from dataclasses import dataclass

from pymc_lgm.linalg import Array

__all__ = ["Margins", "Recalled", "Sites"]


@dataclass(frozen=True, eq=False)
class Sites:
    """t_i = exp(ν_i z_i − ½ W_i z_i²), z = f − m: with a prior they make a Gaussian q."""

    nu: Array
    precision: Array


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
