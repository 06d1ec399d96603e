"""The step method of the auxiliary gradient sampler."""

from __future__ import annotations

from typing import Any, Unpack

from pymc_lgm import moves
from pymc_lgm.steps.latent import LatentStep
from pymc_lgm.steps.options import StepOptions, between, positive

__all__ = ["AuxiliaryGradient"]


class AuxiliaryGradient(LatentStep):
    """Move f given theta by "mGrad"; leaves p(f | y, theta) invariant.

    The proposal treats the prior exactly and the likelihood by its gradient. A move costs O(n²). If
    another step has moved theta, three O(n³) factorizations are added: that of K and two more.
    While the step size is tuned, each move adds two. See
    `pymc_lgm.moves.latent.auxiliary_gradient`.

    Parameters
    ----------
    vars : variable, optional
        f; may be left out if the model has one latent.
    target_accept : float
        Acceptance probability to which tuning brings δ; the paper recommends 0.5 to 0.6.
    step_size : float
        Initial value of δ, a variance on the scale of f.
    repeats : int
        Moves per draw. After tuning they share the factorizations.
    **kwargs
        ``model``, ``rng``, ``initial_point``, ``compile_kwargs``: see `LatentGaussianStep`.

    See Also
    --------
    LatentHMC : Trajectories of several gradients.
    EllipticalSlice : No gradient.

    References
    ----------
    Titsias and Papaspiliopoulos (2018), *Auxiliary gradient-based sampling algorithms*, JRSS B 80.

    Examples
    --------
    >>> import pymc as pm, pymc_lgm as lgm
    >>> with pm.Model():
    ...     f = pm.MvNormal("f", mu=[0.0, 0.0], cov=[[1.0, 0.5], [0.5, 1.0]])
    ...     y = lgm.Probit("y", f=f, observed=[0, 1])
    ...     step = lgm.AuxiliaryGradient(f, repeats=5)
    >>> step
    AuxiliaryGradient([f])
    """

    name = "auxiliary_gradient"

    def __init__(
        self,
        vars: Any = None,
        *,
        target_accept: float = 0.55,
        step_size: float = 0.2,
        repeats: int = 1,
        **kwargs: Unpack[StepOptions],
    ):
        between("step_size", step_size)
        between("target_accept", target_accept, 1.0)
        self.move = moves.latent.AuxiliaryGradient(
            repeats=positive("repeats", repeats), step_size=step_size, target_accept=target_accept
        )
        super().__init__(vars, **kwargs)
