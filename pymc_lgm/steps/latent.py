"""Step methods that move f given theta."""

from __future__ import annotations

import math

from collections.abc import Sequence
from typing import Any, get_args

from pymc_lgm import checks, sweep
from pymc_lgm.latent.hmc import Integrator
from pymc_lgm.latent.metropolis import Proposal
from pymc_lgm.steps.base import LatentGaussianStep, between, no_gradient, one_of, positive
from pymc_lgm.sweep.latent import LatentMove

__all__ = ["AuxiliaryGradient", "EllipticalSlice", "LatentHMC", "LatentSMMALA", "NealMetropolis"]

METRICS = ("prior", "curvature", "identity")


class LatentStep(LatentGaussianStep):
    """One move of f given theta; a subclass says which, before it calls this constructor."""

    moves_theta = False
    moves, cubic_ops = "f", 0
    move: LatentMove

    def _sweep(self) -> Sequence[sweep.Element]:
        if self.move.needs_gradient and not self.lgm.has_gradient:
            raise ValueError(no_gradient(self.lgm, "lgm.EllipticalSlice()"))
        if self.move.needs_curvature:
            checks.refuse_no_curvature(self.lgm, "lgm.LatentHMC() or lgm.EllipticalSlice()")
        return [self.move]


class EllipticalSlice(LatentStep):
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
    needs = "nothing"

    def __init__(self, vars: Any = None, *, repeats: int = 1, **kwargs: Any):
        self.move = sweep.latent.EllipticalSlice(repeats=positive("repeats", repeats))
        super().__init__(vars, **kwargs)


class LatentHMC(LatentStep):
    """Move f given theta by HMC preconditioned with the prior; leaves p(f | y, theta) invariant.

    O(n²) a leapfrog step, and one O(n³) factorization whenever another step has moved theta; with
    ``metric="curvature"`` those of a Laplace approximation as well, mostly 2 or 3. See
    `pymc_lgm.latent.hmc` and `pymc_lgm.latent.curvature_hmc`.

    Parameters
    ----------
    vars : variable, optional
        f; may be left out if the model has one latent.
    metric : {"prior", "curvature", "identity"}
        M⁻¹ = K ("HMC v2" of the papers); M⁻¹ = (K⁻¹ + W)⁻¹ with the W of a Laplace approximation
        ("HMC v1"), for data that say much about f; or the identity for comparison.
    integrator : {"rotation", "leapfrog"}, optional
        "rotation" solves the motion under the prior or under the Laplace approximation exactly;
        the default but for ``metric="identity"``.
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
    needs = 'gradient in f; curvature with `metric="curvature"`'

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
        **kwargs: Any,
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
            self.move = sweep.latent.CurvatureHMC(**options)
        else:
            self.move = sweep.latent.HMC(metric=metric, **options)  # type: ignore[arg-type]
        super().__init__(vars, **kwargs)


class AuxiliaryGradient(LatentStep):
    """Move f given theta by "mGrad"; leaves p(f | y, theta) invariant.

    A proposal that takes the prior into account exactly and the likelihood by its gradient. O(n²) a
    move, two O(n³) factorizations whenever another step has moved theta, and as long as the step
    size is tuned. See `pymc_lgm.latent.auxiliary_gradient`.

    Parameters
    ----------
    vars : variable, optional
        f; may be left out if the model has one latent.
    target_accept : float
        Acceptance probability to which tuning brings δ; the paper recommends 0.5 to 0.6.
    step_size : float
        Where tuning of δ starts: a variance, on the scale of f.
    repeats : int
        Moves a draw; they share the factorizations.
    **kwargs
        ``model``, ``rng``, ``initial_point``, ``compile_kwargs``: see `LatentGaussianStep`.

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
    needs = "gradient in f"

    def __init__(
        self,
        vars: Any = None,
        *,
        target_accept: float = 0.55,
        step_size: float = 0.2,
        repeats: int = 1,
        **kwargs: Any,
    ):
        between("step_size", step_size)
        between("target_accept", target_accept, 1.0)
        self.move = sweep.latent.AuxiliaryGradient(
            repeats=positive("repeats", repeats), step_size=step_size, target_accept=target_accept
        )
        super().__init__(vars, **kwargs)


class LatentSMMALA(LatentStep):
    """Move f given theta by simplified manifold MALA; leaves p(f | y, theta) invariant.

    For comparison: a Langevin proposal shaped by the curvature at f itself, which costs one O(n³)
    factorization a proposal. See `pymc_lgm.latent.smmala`.

    Parameters
    ----------
    vars : variable, optional
        f; may be left out if the model has one latent.
    target_accept : float
        Acceptance probability to which tuning brings the step size.
    step_size : float
        Where tuning starts.
    repeats : int
        Moves a draw.
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
        **kwargs: Any,
    ):
        between("step_size", step_size)
        between("target_accept", target_accept, 1.0)
        self.move = sweep.latent.SMMALA(
            repeats=positive("repeats", repeats), step_size=step_size, target_accept=target_accept
        )
        super().__init__(vars, **kwargs)


class NealMetropolis(LatentStep):
    """Move f given theta by proposals drawn from the prior; leaves p(f | y, theta) invariant.

    For comparison, and as the cheapest move there is: no gradient, one likelihood evaluation,
    O(n²). See `pymc_lgm.latent.metropolis`.

    Parameters
    ----------
    vars : variable, optional
        f; may be left out if the model has one latent.
    proposal : {"autoregressive", "random-walk"}
        √(1 − α²) z + α u ("MH v2" of the papers, preconditioned Crank-Nicolson) or z + α u
        ("MH v1"), with u drawn from the prior.
    target_accept : float
        Acceptance probability to which tuning brings α.
    step_size : float
        Where tuning of α starts; at most 1 for the autoregressive proposal.
    repeats : int
        Moves a draw.
    **kwargs
        ``model``, ``rng``, ``initial_point``, ``compile_kwargs``: see `LatentGaussianStep`.

    References
    ----------
    Neal (1999), *Regression and classification using Gaussian process priors*; Filippone, Zhong and
    Girolami (2013), eqs. (11) and (12).

    Examples
    --------
    >>> import pymc as pm, pymc_lgm as lgm
    >>> with pm.Model():
    ...     f = pm.MvNormal("f", mu=[0.0, 0.0], cov=[[1.0, 0.5], [0.5, 1.0]])
    ...     y = lgm.Probit("y", f=f, observed=[0, 1])
    ...     step = lgm.NealMetropolis(f, proposal="random-walk")
    >>> step
    NealMetropolis([f])
    """

    name = "neal_metropolis"
    needs = "nothing"

    def __init__(
        self,
        vars: Any = None,
        *,
        proposal: Proposal = "autoregressive",
        target_accept: float = 0.25,
        step_size: float = 0.2,
        repeats: int = 1,
        **kwargs: Any,
    ):
        one_of("proposal", proposal, get_args(Proposal))
        between("target_accept", target_accept, 1.0)
        largest = 1.0 if proposal == "autoregressive" else math.inf
        if not 0.0 < step_size <= largest:
            raise ValueError(
                f"step_size must be positive, and at most 1 for proposal='autoregressive', where 1 "
                f"draws from the prior, not {step_size!r}."
            )
        self.move = sweep.latent.NealMetropolis(
            repeats=positive("repeats", repeats),
            proposal=proposal,
            step_size=step_size,
            target_accept=target_accept,
        )
        super().__init__(vars, **kwargs)
