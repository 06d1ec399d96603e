"""Registration of the default step method with PyMC at ``import pymc_lgm``.

`pymc.sample` asks each class in `pymc.step_methods.STEP_METHODS` which variables it can sample. The
step methods of this package import Numba, which takes longer than importing PyMC. Therefore a small
stand-in for the default step method is in that list. It imports the step methods when `pymc.sample`
asks for the first time.
"""

from __future__ import annotations

import sys

from typing import Any

from pymc.step_methods import STEP_METHODS

__all__ = ["StandIn", "register"]


class StandIn:
    """Stands for the default step method until PyMC first asks which variables it can sample."""

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
    """Add the stand-in to PyMC's list, or the step methods if they have been imported."""
    if "pymc_lgm.steps" in sys.modules:
        sys.modules["pymc_lgm.steps"].register()
    else:
        STEP_METHODS[:] = [method for method in STEP_METHODS if method.name != StandIn.name]
        STEP_METHODS.append(StandIn)
