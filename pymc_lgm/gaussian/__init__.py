"""Gaussian vectors by their precision, and sums of them: pure functions of arrays."""

from pymc_lgm.gaussian.families import (
    DenseBlocks,
    Family,
    FamilyAt,
    Independent,
    OfField,
)
from pymc_lgm.gaussian.sums import Layout, SumAt, SumPrior

__all__ = [
    "DenseBlocks",
    "Family",
    "FamilyAt",
    "Independent",
    "Layout",
    "OfField",
    "SumAt",
    "SumPrior",
]
