"""A sweep: kernels run in order on one state, each with what tuning has learnt for it.

Every element leaves p(theta, f | y) invariant by itself, so any list of them is a correct
sampler. An element is a kernel from one of the axes together with its tuning rule:

    start(state, tune) -> tuning                          what it knows before the first draw
    run(rng, state, tuning, tune) -> (state, tuning, stats)

The tuning is data that the step method owns; with ``tune=False`` it comes back unchanged.
"""

from pymc_lgm.sweep.amplitude import Amplitude as Amplitude
from pymc_lgm.sweep.amplitude import ConjugateScale as ConjugateScale
from pymc_lgm.sweep.amplitude import amplitude_moves as amplitude_moves
from pymc_lgm.sweep.element import Element as Element
from pymc_lgm.sweep.element import run as run
from pymc_lgm.sweep.element import statistics as statistics
from pymc_lgm.sweep.emulated import Emulated as Emulated
from pymc_lgm.sweep.guided import Guided as Guided
from pymc_lgm.sweep.latent import HMC as HMC
from pymc_lgm.sweep.latent import LATENT_MOVES as LATENT_MOVES
from pymc_lgm.sweep.latent import CurvatureHMC as CurvatureHMC
from pymc_lgm.sweep.latent import EllipticalSlice as EllipticalSlice
from pymc_lgm.sweep.pseudo_marginal import PseudoMarginal as PseudoMarginal
from pymc_lgm.sweep.theta import DIFFERENTIABLE as DIFFERENTIABLE
from pymc_lgm.sweep.theta import PARAMETERIZATIONS as PARAMETERIZATIONS
from pymc_lgm.sweep.theta import SMMALA as SMMALA
from pymc_lgm.sweep.theta import THETA_MOVES as THETA_MOVES
from pymc_lgm.sweep.theta import Metropolis as Metropolis
from pymc_lgm.sweep.theta import Move as Move
from pymc_lgm.sweep.theta import Slice as Slice
from pymc_lgm.sweep.theta import Theta as Theta
from pymc_lgm.sweep.theta import ThetaHMC as ThetaHMC
