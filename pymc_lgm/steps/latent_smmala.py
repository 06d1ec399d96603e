"""The step method of SMMALA on f."""

from __future__ import annotations

from typing import Any, Unpack

from pymc_lgm import kernels
from pymc_lgm.steps.latent import LatentStep
from pymc_lgm.steps.options import StepOptions, between, positive

__all__ = ["LatentSMMALA"]


class LatentSMMALA(LatentStep):
    """Move f given theta by simplified manifold MALA; leaves p(f | y, theta) invariant.

    For comparison. The Langevin proposal is shaped by the curvature at the current f, so each
    proposal costs one O(n³) factorization. See `pymc_lgm.kernels.latent.smmala`.

    Parameters
    ----------
    vars : variable, optional
        f; may be left out if the model has one latent.
    target_accept : float
        Acceptance probability to which tuning brings the step size.
    step_size : float
        Initial step size.
    repeats : int
        Moves per draw.
    **kwargs
        ``model``, ``rng``, ``initial_point``, ``compile_kwargs``: see `LatentGaussianStep`.

    References
    ----------
    Girolami and Calderhead (2011), JRSS B 73, §5; Filippone, Zhong and Girolami (2013), eq. (10).

    Examples
    --------
    >>> import pymc as pm, pymc_lgm as lgm
    >>> with pm.Model():
    ...     f = pm.MvNormal("f", mu=[0.0, 0.0], cov=[[1.0, 0.5], [0.5, 1.0]])
    ...     y = lgm.Probit("y", f=f, observed=[0, 1])
    ...     step = lgm.LatentSMMALA(f)
    >>> step
    LatentSMMALA([f])
    """

    name = "latent_smmala"
    needs, cubic_ops = "curvature in f", 1

    def __init__(
        self,
        vars: Any = None,
        *,
        target_accept: float = 0.3,
        step_size: float = 0.5,
        repeats: int = 1,
        **kwargs: Unpack[StepOptions],
    ):
        between("step_size", step_size)
        between("target_accept", target_accept, 1.0)
        self.move = kernels.latent.SMMALA(
            repeats=positive("repeats", repeats), step_size=step_size, target_accept=target_accept
        )
        super().__init__(vars, **kwargs)
