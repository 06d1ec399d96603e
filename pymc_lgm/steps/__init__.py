"""The PyMC step methods: named sweeps and the glue that runs them inside `pymc.sample`.

A sweep is a list of kernels (`pymc_lgm.samplers`); a step method names one. Importing this package
registers all step methods. Only the default claims variables automatically, and only variables that
a likelihood of `pymc_lgm.likelihoods` depends on.
"""

from __future__ import annotations

from pymc.step_methods import STEP_METHODS

from pymc_lgm.steps.base import LatentGaussianStep as LatentGaussianStep
from pymc_lgm.steps.exact_marginal import ExactMarginal as ExactMarginal
from pymc_lgm.steps.latent import AuxiliaryGradient as AuxiliaryGradient
from pymc_lgm.steps.latent import EllipticalSlice as EllipticalSlice
from pymc_lgm.steps.latent import LatentHMC as LatentHMC
from pymc_lgm.steps.options import Importance as Importance
from pymc_lgm.steps.plan import Plan as Plan
from pymc_lgm.steps.pseudo_marginal import PseudoMarginal as PseudoMarginal
from pymc_lgm.steps.sweep import ASIS as ASIS
from pymc_lgm.steps.sweep import SurrogateSlice as SurrogateSlice
from pymc_lgm.steps.sweep import Sweep as Sweep

__all__ = [
    "ASIS",
    "DEFAULT",
    "SAMPLERS",
    "AuxiliaryGradient",
    "EllipticalSlice",
    "ExactMarginal",
    "Importance",
    "LatentGaussianStep",
    "LatentHMC",
    "Plan",
    "PseudoMarginal",
    "SurrogateSlice",
    "Sweep",
    "register",
]

SAMPLERS: tuple[type[LatentGaussianStep], ...] = (
    EllipticalSlice,
    LatentHMC,
    AuxiliaryGradient,
    ASIS,
    SurrogateSlice,
    Sweep,
    PseudoMarginal,
)
"""The registry: these samplers are registered with PyMC, tested, and in docs/which_sampler.md.

`pymc_lgm.papers` has a registry of its own.
"""

DEFAULT: type[LatentGaussianStep] = PseudoMarginal
"""The sampler that ``pm.sample()`` runs on a model with a likelihood of this package."""

LatentGaussianStep.default = DEFAULT


def register() -> None:
    """Add the step methods to PyMC's list, once, in place; after a reload, replace the old ones."""
    ours = {sampler.name for sampler in SAMPLERS}
    STEP_METHODS[:] = [method for method in STEP_METHODS if method.name not in ours]
    STEP_METHODS.extend(SAMPLERS)


register()
