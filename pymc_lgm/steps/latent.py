"""Step methods that move f given theta."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from pymc_lgm import sweep
from pymc_lgm.latent.hmc import Integrator, Metric
from pymc_lgm.steps.base import LatentGaussianStep, no_gradient, one_of, positive

__all__ = ["EllipticalSlice", "LatentHMC"]


class EllipticalSlice(LatentGaussianStep):
    """Move f given theta by elliptical slice sampling; leaves p(f | y, theta) invariant.

    No tuning and no gradient; O(n²) a move, and one O(n³) factorization whenever another step
    has moved theta. See `pymc_lgm.latent.elliptical_slice`.

    Parameters
    ----------
    vars : variable, optional
        f; may be left out if the model has one latent.
    repeats : int
        Moves a draw.
    **kwargs
        ``model``, ``rng``, ``initial_point``, ``compile_kwargs``: see `LatentGaussianStep`.

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
    moves_theta = False
    moves, needs, cubic_ops = "f", "nothing", 0

    def __init__(self, vars: Any = None, *, repeats: int = 1, **kwargs: Any):
        self.repeats = positive("repeats", repeats)
        super().__init__(vars, **kwargs)

    def _sweep(self) -> Sequence[sweep.Element]:
        return [sweep.EllipticalSlice(repeats=self.repeats)]


class LatentHMC(LatentGaussianStep):
    """Move f given theta by HMC preconditioned with the prior; leaves p(f | y, theta) invariant.

    O(n²) a leapfrog step, and one O(n³) factorization whenever another step has moved theta. See
    `pymc_lgm.latent.hmc`.

    Parameters
    ----------
    vars : variable, optional
        f; may be left out if the model has one latent.
    metric : {"prior", "identity"}
        M⁻¹ = K ("HMC v2" of the papers), or the identity for comparison.
    integrator : {"rotation", "leapfrog"}, optional
        By default "rotation" for ``metric="prior"``: the prior's motion solved exactly.
    path_length : float
        Each trajectory takes 1 to path_length / ε steps of size ε, uniformly.
    max_steps : int
        Never more than that; the papers take 10.
    target_accept : float
        Acceptance probability to which tuning brings the step size.
    step_size : float
        Where tuning starts.
    repeats : int
        Trajectories a draw.
    **kwargs
        ``model``, ``rng``, ``initial_point``, ``compile_kwargs``: see `LatentGaussianStep`.

    References
    ----------
    Filippone, Zhong and Girolami (2012), §5.2.1; Beskos et al. (2011) for the rotation.

    Examples
    --------
    >>> import pymc as pm, pymc_lgm as lgm
    >>> with pm.Model():
    ...     f = pm.MvNormal("f", mu=[0.0, 0.0], cov=[[1.0, 0.5], [0.5, 1.0]])
    ...     y = lgm.Probit("y", f=f, observed=[0, 1])
    ...     step = lgm.LatentHMC(f, metric="identity", max_steps=5)
    >>> step
    LatentHMC([f])
    """

    name = "latent_hmc"
    moves_theta = False
    moves, needs, cubic_ops = "f", "gradient in f", 0

    def __init__(
        self,
        vars: Any = None,
        *,
        metric: Metric = "prior",
        integrator: Integrator | None = None,
        path_length: float = 2.4,
        max_steps: int = 100,
        target_accept: float = 0.8,
        step_size: float = 0.2,
        repeats: int = 1,
        **kwargs: Any,
    ):
        one_of("metric", metric, get_args(Metric))
        if integrator is None:
            integrator = "rotation" if metric == "prior" else "leapfrog"
        one_of("integrator", integrator, get_args(Integrator))
        if metric == "identity" and integrator == "rotation":
            raise ValueError(
                "integrator='rotation' solves the motion under metric='prior'; with "
                "metric='identity' write integrator='leapfrog'."
            )
        self.hmc = sweep.HMC(
            repeats=positive("repeats", repeats),
            metric=metric,
            integrator=integrator,
            path_length=path_length,
            max_steps=positive("max_steps", max_steps),
            step_size=step_size,
            target_accept=target_accept,
        )
        super().__init__(vars, **kwargs)

    def _sweep(self) -> Sequence[sweep.Element]:
        if not self.lgm.has_gradient:
            raise ValueError(no_gradient(self.lgm, "lgm.EllipticalSlice()"))
        return [self.hmc]
