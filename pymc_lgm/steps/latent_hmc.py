"""The step method of HMC on f."""

from __future__ import annotations

from typing import Any, Unpack, get_args

from pymc_lgm import kernels
from pymc_lgm.approximations.homogeneous import class_frequency
from pymc_lgm.kernels.latent.stepping import Integrator
from pymc_lgm.model.refusals import no_metric
from pymc_lgm.steps.latent import LatentStep
from pymc_lgm.steps.options import StepOptions, between, one_of, positive

__all__ = ["LatentHMC"]

METRICS = ("prior", "curvature", "class_frequency", "position", "identity")


class LatentHMC(LatentStep):
    """Move f given theta by HMC preconditioned with the prior; leaves p(f | y, theta) invariant.

    A leapfrog step costs O(n²). If another step has moved theta, one O(n³) factorization is added;
    ``metric="curvature"`` adds those of a Laplace approximation, mostly 2 or 3, and
    ``metric="class_frequency"`` adds one. With ``metric="position"`` each leapfrog step costs 10 to
    30 factorizations. See `pymc_lgm.kernels.latent.hmc`, `pymc_lgm.kernels.latent.curvature_hmc`
    and `pymc_lgm.kernels.latent.position_hmc`.

    Parameters
    ----------
    vars : variable, optional
        f; may be left out if the model has one latent.
    metric : {"prior", "curvature", "class_frequency", "position", "identity"}
        "prior": M⁻¹ = K ("HMC v2" of the papers). "curvature": M⁻¹ = (K⁻¹ + W)⁻¹ with the W of a
        Laplace approximation ("HMC v1"), for informative data. "class_frequency": the same with the
        W of the class frequencies, or of the constant f that fits best (the homogeneous F̂ of
        Filippone 2017, a thesis). "position": M = G(f) = K⁻¹ + W(f) at the current f (Riemann
        manifold HMC, "RM-HMC" with G_f); it needs a log-concave likelihood and solves two implicit
        equations per step to a relative 1e-10. "identity": M = I. The last two are for comparison.
    integrator : {"rotation", "leapfrog"}, optional
        "rotation" solves the motion under the prior or the approximation exactly. It is the default
        except with ``metric="identity"`` and ``"position"``; the leapfrog of "position" is
        implicit.
    path_length : float
        Each trajectory takes 1 to path_length / ε steps of size ε, uniformly.
    max_steps : int, optional
        Largest number of steps; by default 100, and 10 for ``metric="position"``. The papers use
        10.
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
    ASIS : Moves theta, too.

    References
    ----------
    Filippone, Zhong and Girolami (2012), §5.2.1; Filippone et al. (2012), *Probabilistic prediction
    of neurological disorders with a statistical assessment of neuroimaging data modalities*, Annals
    of Applied Statistics 6, §5 (F̂ and G_f); Girolami and Calderhead (2011), JRSS B 73, §6; Beskos
    et al. (2011) and Shahbaba et al. (2014) for the rotations.

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
    needs = (
        'gradient in f; curvature with `metric="curvature"` or `"class_frequency"`; '
        'a log-concave likelihood with `"position"`'
    )

    def __init__(
        self,
        vars: Any = None,
        *,
        metric: str = "prior",
        integrator: Integrator | None = None,
        path_length: float = 2.4,
        max_steps: int | None = None,
        target_accept: float = 0.8,
        step_size: float = 0.2,
        repeats: int = 1,
        **kwargs: Unpack[StepOptions],
    ):
        one_of("metric", metric, METRICS)
        between("step_size", step_size)
        between("path_length", path_length)
        between("target_accept", target_accept, 1.0)
        straight = metric in ("identity", "position")
        if integrator is None:
            integrator = "leapfrog" if straight else "rotation"
        one_of("integrator", integrator, get_args(Integrator))
        if straight and integrator == "rotation":
            raise ValueError(
                "integrator='rotation' solves the motion under metric='prior', 'curvature' or "
                f"'class_frequency'; with metric={metric!r} write integrator='leapfrog'."
            )
        if max_steps is None:
            max_steps = 10 if metric == "position" else 100
        options: dict[str, Any] = {
            "repeats": positive("repeats", repeats),
            "integrator": integrator,
            "path_length": path_length,
            "max_steps": positive("max_steps", max_steps),
            "step_size": step_size,
            "target_accept": target_accept,
        }
        if metric == "class_frequency":
            options["search"] = class_frequency
        if metric == "position":
            self.move = kernels.latent.PositionHMC(**options)
        elif metric in ("curvature", "class_frequency"):
            self.move = kernels.latent.CurvatureHMC(**options)
        else:
            self.move = kernels.latent.HMC(metric=metric, **options)  # type: ignore[arg-type]
        super().__init__(vars, **kwargs)
        if metric == "identity" and self.lgm.rank < self.lgm.n:
            raise ValueError(no_metric(metric, self.lgm.n, self.lgm.rank))
