"""The step method of HMC on f."""

from __future__ import annotations

from typing import Any, Unpack, get_args

from pymc_lgm import moves
from pymc_lgm.moves.latent.stepping import Integrator
from pymc_lgm.steps.latent import LatentStep
from pymc_lgm.steps.options import StepOptions, between, one_of, positive

__all__ = ["LatentHMC"]

METRICS = ("prior", "curvature", "identity")


class LatentHMC(LatentStep):
    """Move f given theta by HMC preconditioned with the prior; leaves p(f | y, theta) invariant.

    A leapfrog step costs O(n²). If another step has moved theta, one O(n³) factorization is added;
    ``metric="curvature"`` adds those of a Laplace approximation, mostly 2 or 3. See
    `pymc_lgm.moves.latent.hmc` and `pymc_lgm.moves.latent.curvature_hmc`.

    Parameters
    ----------
    vars : variable, optional
        f; may be left out if the model has one latent.
    metric : {"prior", "curvature", "identity"}
        "prior": M⁻¹ = K ("HMC v2" of the papers). "curvature": M⁻¹ = (K⁻¹ + W)⁻¹ with the W of a
        Laplace approximation ("HMC v1"), for informative data. "identity": M = I, for comparison.
    integrator : {"rotation", "leapfrog"}, optional
        "rotation" solves the motion under the prior or the approximation exactly. It is the default
        except with ``metric="identity"``.
    path_length : float
        Each trajectory takes 1 to path_length / ε steps of size ε, uniformly.
    max_steps : int
        Largest number of steps. The papers use 10.
    target_accept : float
        Acceptance probability to which tuning brings the step size.
    step_size : float
        Initial step size ε.
    repeats : int
        Trajectories per draw.
    **kwargs
        ``model``, ``rng``, ``initial_point``, ``compile_kwargs``: see `LatentGaussianStep`.

    See Also
    --------
    EllipticalSlice : If the likelihood has no gradient in f.
    AuxiliaryGradient : One gradient per move.
    papers.PositionHMC : The metric at f itself.
    papers.HomogeneousHMC : The metric of the class frequencies.
    ASIS : Moves theta, too.

    References
    ----------
    Filippone, Zhong and Girolami (2012), §5.2.1; Beskos et al. (2011) and Shahbaba et al. (2014)
    for the rotations.

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

    def __init__(
        self,
        vars: Any = None,
        *,
        metric: str = "prior",
        integrator: Integrator | None = None,
        path_length: float = 2.4,
        max_steps: int = 100,
        target_accept: float = 0.8,
        step_size: float = 0.2,
        repeats: int = 1,
        **kwargs: Unpack[StepOptions],
    ):
        one_of("metric", metric, METRICS)
        between("step_size", step_size)
        between("path_length", path_length)
        between("target_accept", target_accept, 1.0)
        if integrator is None:
            integrator = "leapfrog" if metric == "identity" else "rotation"
        one_of("integrator", integrator, get_args(Integrator))
        if metric == "identity" and integrator == "rotation":
            raise ValueError(
                "integrator='rotation' solves the motion under metric='prior' or 'curvature'; with "
                "metric='identity' write integrator='leapfrog'."
            )
        options: dict[str, Any] = {
            "repeats": positive("repeats", repeats),
            "integrator": integrator,
            "path_length": path_length,
            "max_steps": positive("max_steps", max_steps),
            "step_size": step_size,
            "target_accept": target_accept,
        }
        if metric == "curvature":
            self.move = moves.latent.CurvatureHMC(**options)
        else:
            self.move = moves.latent.HMC(metric=metric, **options)  # type: ignore[arg-type]
        super().__init__(vars, **kwargs)
        if metric == "identity" and self.lgm.rank < self.lgm.n:
            raise ValueError(
                f"metric={metric!r} moves each of the {self.lgm.n} elements of the linear "
                f"predictor separately, but they have {self.lgm.rank} degrees of freedom. Write "
                "metric='prior' or 'curvature'."
            )
