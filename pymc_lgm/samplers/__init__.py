"""Samplers: a sweep runs kernels in order on one state, each with its own tuning.

Every element alone leaves p(theta, f | y) invariant, so any list of them is a correct sampler. An
element is a kernel from one of the axes together with its tuning rule:

    start(state, tune) -> tuning                          what it knows before the first draw
    run(rng, state, tuning, tune) -> (state, tuning, stats)

The tuning is data that the step method owns. With ``tune=False`` it is returned unchanged.
"""

from pymc_lgm.moves.element import Element as Element
from pymc_lgm.moves.latent import HMC as HMC
from pymc_lgm.moves.latent import LATENT_MOVES as LATENT_MOVES
from pymc_lgm.moves.theta import NUTS as NUTS
from pymc_lgm.moves.theta import THETA_MOVES as THETA_MOVES
from pymc_lgm.moves.theta import Emulated as Emulated
from pymc_lgm.moves.theta import Metropolis as Metropolis
from pymc_lgm.moves.theta import Move as Move
from pymc_lgm.moves.theta import Slice as Slice
from pymc_lgm.samplers.exact_marginal import ExactMarginal as ExactMarginal
from pymc_lgm.samplers.gibbs import Theta as Theta
from pymc_lgm.samplers.interweaving import Interweaving as Interweaving
from pymc_lgm.samplers.marginal import Marginal as Marginal
from pymc_lgm.samplers.pseudo_marginal import PseudoMarginal as PseudoMarginal
from pymc_lgm.samplers.sweep import run as run
from pymc_lgm.samplers.sweep import statistics as statistics
from pymc_lgm.targets import DIFFERENTIABLE as DIFFERENTIABLE
from pymc_lgm.targets import PARAMETERIZATIONS as PARAMETERIZATIONS
