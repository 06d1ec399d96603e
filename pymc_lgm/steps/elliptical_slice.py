"""The step method of elliptical slice sampling."""

from __future__ import annotations

from typing import Any, Unpack

from pymc_lgm import moves
from pymc_lgm.steps.latent import LatentStep
from pymc_lgm.steps.options import StepOptions, positive

__all__ = ["EllipticalSlice"]


class EllipticalSlice(LatentStep):
    """Move f given theta by elliptical slice sampling; leaves p(f | y, theta) invariant.

    It needs no tuning and no gradient. A move costs O(n²). If another step has moved theta, one
    O(n³) factorization is added. See `pymc_lgm.moves.latent.elliptical_slice`.

    Parameters
    ----------
    vars : variable, optional
        f; may be left out if the model has one latent.
    repeats : int
        Moves per draw.
    **kwargs
        ``model``, ``rng``, ``initial_point``, ``compile_kwargs``: see `LatentGaussianStep`.

    See Also
    --------
    LatentHMC : If the likelihood has a gradient in f.
    ASIS : Moves theta, too.

    References
    ----------
    Murray, Adams and MacKay (2010), *Elliptical slice sampling*, AISTATS.

    Examples
    --------
    >>> import pymc as pm, pymc_lgm as lgm
    >>> with pm.Model():
    ...     f = pm.MvNormal("f", mu=[0.0, 0.0], cov=[[1.0, 0.5], [0.5, 1.0]])
    ...     y = lgm.Probit("y", f=f, observed=[0, 1])
    ...     step = lgm.EllipticalSlice(f)
    >>> step
    EllipticalSlice([f])
    """

    name = "elliptical_slice"

    def __init__(self, vars: Any = None, *, repeats: int = 1, **kwargs: Unpack[StepOptions]):
        self.move = moves.latent.EllipticalSlice(repeats=positive("repeats", repeats))
        super().__init__(vars, **kwargs)
