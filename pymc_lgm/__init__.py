"""Exact and fast samplers for latent Gaussian models in PyMC.

    theta ~ p(theta),   f | theta ~ N(m(theta), K(theta)),   y_i | f_i, theta ~ p(y_i | f_i, theta)

Importing the package registers its step methods with PyMC. In a model with a process, a series or a
map, and a likelihood of this package, ``pm.sample()`` chooses `PseudoMarginal`. In any other model
write ``step=lgm.PseudoMarginal()``.
"""

import sys

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from pymc_lgm.registration import register

if TYPE_CHECKING:
    from pymc_lgm import datasets as datasets
    from pymc_lgm import distributed as distributed
    from pymc_lgm import gmrf as gmrf
    from pymc_lgm import gp as gp
    from pymc_lgm import likelihoods as likelihoods
    from pymc_lgm import papers as papers
    from pymc_lgm import spatial as spatial
    from pymc_lgm import testing as testing
    from pymc_lgm.comparison import compare_samplers as compare_samplers
    from pymc_lgm.cross_validation import leave_one_out as leave_one_out
    from pymc_lgm.cross_validation import loo as loo
    from pymc_lgm.diagnostics import efficiency as efficiency
    from pymc_lgm.evidence import ep as ep
    from pymc_lgm.evidence import laplace as laplace
    from pymc_lgm.likelihoods import LogGaussianCox as LogGaussianCox
    from pymc_lgm.likelihoods import Logistic as Logistic
    from pymc_lgm.likelihoods import OrdinalProbit as OrdinalProbit
    from pymc_lgm.likelihoods import Probit as Probit
    from pymc_lgm.likelihoods import Softmax as Softmax
    from pymc_lgm.model.read import read as read
    from pymc_lgm.prediction import predict as predict
    from pymc_lgm.predictor_terms import terms as terms
    from pymc_lgm.reporting import report as report
    from pymc_lgm.reweighting import reweight as reweight
    from pymc_lgm.steps import ASIS as ASIS
    from pymc_lgm.steps import AuxiliaryGradient as AuxiliaryGradient
    from pymc_lgm.steps import EllipticalSlice as EllipticalSlice
    from pymc_lgm.steps import ExactMarginal as ExactMarginal
    from pymc_lgm.steps import Importance as Importance
    from pymc_lgm.steps import LatentHMC as LatentHMC
    from pymc_lgm.steps import PseudoMarginal as PseudoMarginal
    from pymc_lgm.steps import SurrogateSlice as SurrogateSlice
    from pymc_lgm.steps import Sweep as Sweep

__version__ = "0.1.0"

__all__ = [
    "ASIS",
    "AuxiliaryGradient",
    "EllipticalSlice",
    "ExactMarginal",
    "Importance",
    "LatentHMC",
    "LogGaussianCox",
    "Logistic",
    "OrdinalProbit",
    "Probit",
    "PseudoMarginal",
    "Softmax",
    "SurrogateSlice",
    "Sweep",
    "compare_samplers",
    "datasets",
    "distributed",
    "efficiency",
    "ep",
    "gmrf",
    "gp",
    "laplace",
    "leave_one_out",
    "likelihoods",
    "loo",
    "papers",
    "predict",
    "read",
    "report",
    "reweight",
    "spatial",
    "terms",
    "testing",
]

_DEFINED_IN = {
    "compare_samplers": "pymc_lgm.comparison",
    "reweight": "pymc_lgm.reweighting",
    "leave_one_out": "pymc_lgm.cross_validation",
    "loo": "pymc_lgm.cross_validation",
    "efficiency": "pymc_lgm.diagnostics",
    "ep": "pymc_lgm.evidence",
    "laplace": "pymc_lgm.evidence",
    "LogGaussianCox": "pymc_lgm.likelihoods",
    "Logistic": "pymc_lgm.likelihoods",
    "OrdinalProbit": "pymc_lgm.likelihoods",
    "Probit": "pymc_lgm.likelihoods",
    "Softmax": "pymc_lgm.likelihoods",
    "read": "pymc_lgm.model.read",
    "predict": "pymc_lgm.prediction",
    "terms": "pymc_lgm.predictor_terms",
    "report": "pymc_lgm.reporting",
    "ASIS": "pymc_lgm.steps",
    "AuxiliaryGradient": "pymc_lgm.steps",
    "EllipticalSlice": "pymc_lgm.steps",
    "ExactMarginal": "pymc_lgm.steps",
    "Importance": "pymc_lgm.steps",
    "LatentHMC": "pymc_lgm.steps",
    "PseudoMarginal": "pymc_lgm.steps",
    "SurrogateSlice": "pymc_lgm.steps",
    "Sweep": "pymc_lgm.steps",
}
"""The module of each public name that is not itself a module."""

_ROOMS = ("gp", "gmrf", "likelihoods", "spatial", "papers", "testing")
"""Modules with public names of their own, searched if a name is not at the top."""

register()

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import a public name or a module when it is first used.

        ArviZ, Matplotlib, Numba and SciPy's larger modules take longer to import than PyMC itself.
        Therefore they are imported only with the names that need them.
        """
        if name in _DEFINED_IN:
            return getattr(import_module(_DEFINED_IN[name]), name)
        if find_spec(f"{__name__}.{name}") is None:
            raise AttributeError(
                f"module {__name__!r} has no attribute {name!r}{_instead(name)}",
                name=name,
                obj=sys.modules[__name__],
            )
        return import_module(f"{__name__}.{name}")


def _instead(name: str) -> str:
    """Say where a name that is not at the top is found: in one of `_ROOMS`, or in PyMC."""
    if name.startswith("_"):  # inspection by tools, not a user's mistake
        return ""
    for room in _ROOMS:
        if name in import_module(f"{__name__}.{room}").__all__:
            return f": write lgm.{room}.{name}"
    return f": write pm.{name}" if name in vars(import_module("pymc")) else ""


def __dir__() -> list[str]:
    """List the public names only."""
    return [*__all__, "__version__"]
