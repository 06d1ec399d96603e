"""The step method of surrogate data slice sampling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

from pymc_lgm.steps.options import StepOptions, one_of
from pymc_lgm.steps.sweep import Sweep

__all__ = ["SurrogateSlice"]


class SurrogateSlice(Sweep):
    """Move f, then theta given surrogate data, by slices; leaves p(theta, f | y) invariant.

    Surrogate data slice sampling: f is seen through noisy data g of its own making, as noisy as
    each observation leaves it, and theta moves with g and with f as seen from g held fixed. Two
    O(n³) operations an evaluation, 2 to 4 evaluations a hyper-parameter. See
    `pymc_lgm.kernels.hold.surrogate`.

    Parameters
    ----------
    vars : sequence of variables, optional
        f and the hyper-parameters to move; by default all continuous ones.
    noise : {"site", "taylor"}
        The variance of g: from each observation seen through the prior of its own f_i, or from its
        likelihood alone.
    move : {"slice", "metropolis"}
        How theta moves.
    latent_move, latent_repeats, theta_repeats, amplitude, target_accept, scale
        As in `Sweep`. The paper has ``latent_move="slice", latent_repeats=10``.
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
    needs, cubic_ops = "curvature in f", "4-8 a hyper-parameter"

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
        self.held = (f"surrogate-{noise}",)
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
