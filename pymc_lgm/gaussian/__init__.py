"""Gaussian vectors, conditioned on Gaussian sites: pure functions of arrays.

Kernels, approximations and targets use a prior only through its methods (`Prior`, `Posterior`).
Each kind of prior has a file, which stores, factorizes and differentiates its covariance.
"""

from pymc_lgm.gaussian.banded import BandedPrior as BandedPrior
from pymc_lgm.gaussian.base import Posterior as Posterior
from pymc_lgm.gaussian.base import Prior as Prior
from pymc_lgm.gaussian.blocks import BlocksPrior as BlocksPrior
from pymc_lgm.gaussian.dense import DensePrior as DensePrior
from pymc_lgm.gaussian.families import DenseBlocks as DenseBlocks
from pymc_lgm.gaussian.families import Family as Family
from pymc_lgm.gaussian.families import FamilyAt as FamilyAt
from pymc_lgm.gaussian.families import Independent as Independent
from pymc_lgm.gaussian.low_rank import InducingPrior as InducingPrior
from pymc_lgm.gaussian.low_rank import LowRankPrior as LowRankPrior
from pymc_lgm.gaussian.sums import Layout as Layout
from pymc_lgm.gaussian.sums import SumAt as SumAt
from pymc_lgm.gaussian.sums import SumPrior as SumPrior
