"""Registration of the default step method with PyMC at ``import pymc_lgm``.

PyMC asks every step method on its list which variables it claims. The step methods import Numba and
most of this package, which takes longer than importing PyMC. Therefore a stand-in for the default
is on the list. It imports the step methods when `pymc.sample` asks.
"""

from __future__ import annotations

import sys

from typing import Any

from pymc.step_methods import STEP_METHODS

__all__ = ["StandIn", "register"]


class StandIn:
    """The default step method, imported when PyMC first asks which variables it claims."""

    name = "pseudo_marginal"

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Make the default step method, since `pymc.sample` calls the class that it chose."""
        from pymc_lgm.steps import DEFAULT

        return DEFAULT(*args, **kwargs)

    @classmethod
    def _competence(cls, vars: Any, have_grad: Any) -> Any:
        from pymc_lgm.steps import DEFAULT

        return DEFAULT._competence(vars, have_grad)


def register() -> None:
    """Put the stand-in on PyMC's list, unless the step methods are on it already."""
    if "pymc_lgm.steps" in sys.modules:
        sys.modules["pymc_lgm.steps"].register()
    else:
        STEP_METHODS[:] = [method for method in STEP_METHODS if method.name != StandIn.name]
        STEP_METHODS.append(StandIn)
