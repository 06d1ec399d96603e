"""The step method of surrogate data slice sampling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

from pymc_lgm.steps.options import StepOptions, one_of
from pymc_lgm.steps.sweep import Sweep

__all__ = ["SurrogateSlice"]


class SurrogateSlice(Sweep):
    """Move f, then theta given surrogate data, by slices; leaves p(theta, f | y) invariant.

    Surrogate data slice sampling draws noisy observations g of f, with a variance that matches the
    information in each observation of y. Theta then moves with g and the whitened residual of f
    given g held fixed. An evaluation costs two O(n³) operations; each hyper-parameter takes 2 to 4
    evaluations. See `pymc_lgm.targets.surrogate`.

    Parameters
    ----------
    vars : sequence of variables, optional
        f and the hyper-parameters to move; by default all continuous variables.
    noise : {"site", "taylor"}
        How the variance of g is chosen: "site" combines each observation with the prior of its f_i;
        "taylor" uses the likelihood alone.
    move : {"slice", "metropolis"}
        How theta moves.
    latent_move, latent_repeats, theta_repeats, amplitude, target_accept, scale
        As in `Sweep`. The paper uses ``latent_move="slice", latent_repeats=10``.
    **kwargs
        ``model``, ``rng``, ``initial_point``, ``compile_kwargs``: see `LatentGaussianStep`.

    See Also
    --------
    ASIS : Cheaper per draw.
    PseudoMarginal : The default, which integrates f out.

    References
    ----------
    Murray and Adams (2010), *Slice sampling covariance hyperparameters of latent Gaussian models*,
    NIPS 23, Algorithm 4.

    Examples
    --------
    >>> import pymc as pm, pymc_lgm as lgm
    >>> with pm.Model():
    ...     eta = pm.HalfNormal("eta")
    ...     f = pm.MvNormal("f", mu=[0.0, 0.0], cov=eta * pm.math.stack([[1, 0.5], [0.5, 1]]))
    ...     y = lgm.Probit("y", f=f, observed=[0, 1])
    ...     step = lgm.SurrogateSlice(noise="taylor")
    >>> step
    SurrogateSlice([f, eta_log__])
    """

    name = "surrogate_slice"

    def __init__(
        self,
        vars: Sequence[Any] | None = None,
        *,
        noise: str = "site",
        move: str = "slice",
        latent_move: str | None = None,
        latent_repeats: int = 1,
        theta_repeats: int = 1,
        amplitude: int = 0,
        target_accept: float | None = None,
        scale: float | None = None,
        **kwargs: Unpack[StepOptions],
    ):
        one_of("noise", noise, ("site", "taylor"))
        self.own_parameterizations = (f"surrogate-{noise}",)
        super().__init__(
            vars,
            move=move,
            latent_move=latent_move,
            latent_repeats=latent_repeats,
            theta_repeats=theta_repeats,
            amplitude=amplitude,
            target_accept=target_accept,
            scale=scale,
            **kwargs,
        )
