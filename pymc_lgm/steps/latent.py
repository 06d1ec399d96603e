"""The step methods that move f given theta."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack, get_args, override

from pymc_lgm import moves, samplers
from pymc_lgm.model.diagnose import refuse_large_sets, refuse_no_curvature
from pymc_lgm.moves.latent import LatentMove
from pymc_lgm.moves.latent.stepping import Integrator
from pymc_lgm.state import State
from pymc_lgm.steps.base import LatentGaussianStep
from pymc_lgm.steps.options import (
    StepOptions,
    checked,
    no_gradient,
    one_of,
    public_name,
    refuse_no_metric,
    refuse_no_way_out,
)

__all__ = ["AuxiliaryGradient", "EllipticalSlice", "LatentHMC", "LatentStep"]

METRICS = ("prior", "curvature", "identity")


class LatentStep(LatentGaussianStep):
    """One move of f given theta, which a subclass passes to this constructor."""

    moves_theta = False

    def __init__(self, vars: Any, move: LatentMove, **kwargs: Unpack[StepOptions]):
        self.move = checked(move)
        super().__init__(vars, **kwargs)

    def _sweep(self) -> Sequence[samplers.Element]:
        if self.move.needs_gradient and not self.lgm.has_gradient:
            raise ValueError(no_gradient(self.lgm, "lgm.EllipticalSlice()"))
        if self.move.needs_curvature:
            refuse_large_sets(self.lgm, f"{public_name(type(self))} with a curvature")
            refuse_no_curvature(self.lgm, "lgm.LatentHMC() or lgm.EllipticalSlice()")
        refuse_no_metric(self.lgm, self.move, "lgm.LatentHMC(metric='curvature')")
        return [self.move]

    @override
    def _begin(self, state: State) -> None:
        refuse_no_way_out(self.move, state, self.lgm, "lgm.EllipticalSlice()")


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
        ``model``, ``theta``, ``rng``, ``initial_point`` and others: see `LatentGaussianStep`.

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
        super().__init__(vars, moves.latent.EllipticalSlice(repeats), **kwargs)


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
        ``model``, ``theta``, ``rng``, ``initial_point`` and others: see `LatentGaussianStep`.

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
        move = moves.latent.AuxiliaryGradient(repeats, step_size, target_accept)
        super().__init__(vars, move, **kwargs)


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
        ``model``, ``theta``, ``rng``, ``initial_point`` and others: see `LatentGaussianStep`.

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
        if integrator is None:
            integrator = "leapfrog" if metric == "identity" else "rotation"
        one_of("integrator", integrator, get_args(Integrator))
        if metric == "identity" and integrator == "rotation":
            raise ValueError(
                "integrator='rotation' solves the motion under metric='prior' or 'curvature'; with "
                "metric='identity' write integrator='leapfrog'."
            )
        options: dict[str, Any] = {
            "repeats": repeats,
            "integrator": integrator,
            "path_length": path_length,
            "max_steps": max_steps,
            "step_size": step_size,
            "target_accept": target_accept,
        }
        move: LatentMove
        if metric == "curvature":
            move = moves.latent.CurvatureHMC(**options)
        else:
            move = moves.latent.HMC(metric=metric, **options)  # type: ignore[arg-type]
        super().__init__(vars, move, **kwargs)
        if metric == "identity" and self.lgm.rank < self.lgm.n:
            raise ValueError(
                f"metric={metric!r} moves each of the {self.lgm.n} elements of the linear "
                f"predictor separately, but they have {self.lgm.rank} degrees of freedom. Write "
                "metric='prior' or 'curvature'."
            )
