"""The prior of f at one theta, and what it becomes when observations of f are added to it.

Kernels, approximations and targets know a prior by its verbs alone (`Prior`, `Posterior`); how a
covariance is stored, factorized and differentiated is said in one file for each kind of prior.
"""

from pymc_lgm.priors.banded import BandedPrior as BandedPrior
from pymc_lgm.priors.base import Posterior as Posterior
from pymc_lgm.priors.base import Prior as Prior
from pymc_lgm.priors.blocks import BlocksPrior as BlocksPrior
from pymc_lgm.priors.dense import DensePrior as DensePrior
from pymc_lgm.priors.field import FieldPrior as FieldPrior
from pymc_lgm.priors.inducing import InducingPrior as InducingPrior
from pymc_lgm.priors.low_rank import LowRankPrior as LowRankPrior
