"""Step methods that move theta by Metropolis with f, ν, or both in turn held fixed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from pymc_lgm import sweep
from pymc_lgm.steps.base import LatentGaussianStep, no_gradient, one_of, positive

__all__ = ["ASIS", "SufficientMetropolis", "WhitenedMetropolis"]


class ASIS(LatentGaussianStep):
    """Move f, then theta with f fixed, then with ν fixed; leaves p(theta, f | y) invariant.

    Ancillarity-sufficiency interweaving: the two parameterizations mix well in opposite
    situations, and together in both. Two O(n³) factorizations a draw.

    Parameters
    ----------
    vars : sequence of variables, optional
        f and the hyper-parameters to move; by default all continuous ones.
    latent : {"hmc", "slice"}, optional
        How f moves given theta: `LatentHMC` with M⁻¹ = K, or `EllipticalSlice`. By default "hmc",
        and "slice" if the likelihood has no gradient.
    latent_repeats : int
        Latent moves a draw: each is O(n²), next to the O(n³) of a move on theta.
    target_accept : float, optional
        Acceptance to which tuning brings the random walk on theta; by default 0.44 for one
        hyper-parameter down to 0.25 for four and more.
    scale : float, optional
        Where tuning of the random walk's scale starts.
    **kwargs
        ``model``, ``rng``, ``initial_point``, ``compile_kwargs``: see `LatentGaussianStep`.

    Notes
    -----
    ``sample_stats``: ``theta_acceptance``, ``theta_scale`` (means over the two moves),
    ``latent_acceptance``, ``latent_evaluations``, ``latent_step_size`` (HMC only),
    ``cubic_ops``, ``numerical_rejections``.

    References
    ----------
    Yu and Meng (2011), *To center or not to center*, JCGS 20; Filippone, Zhong and Girolami
    (2012), §3.

    Examples
    --------
    >>> import pymc as pm, pymc_lgm as lgm
    >>> with pm.Model():
    ...     rho = pm.Uniform("rho", 0, 1)
    ...     cov = pm.math.stack([[1.0, rho], [rho, 1.0]])
    ...     f = pm.MvNormal("f", mu=[0.0, 0.0], cov=cov)
    ...     y = lgm.Probit("y", f=f, observed=[0, 1])
    ...     step = lgm.ASIS(latent="slice")
    >>> step
    ASIS([f, rho_interval__])
    """

    name = "asis"
    parameterizations: ClassVar[tuple[str, ...]] = ("sufficient", "whitened")
    moves, cubic_ops = "f and theta", 2
    needs = 'gradient in f; nothing with `latent="slice"`'

    def __init__(
        self,
        vars: Sequence[Any] | None = None,
        *,
        latent: str | None = None,
        latent_repeats: int = 1,
        target_accept: float | None = None,
        scale: float | None = None,
        **kwargs: Any,
    ):
        one_of("latent", latent, (None, *sweep.LATENT_MOVES))
        self.latent = latent
        self.latent_repeats = positive("latent_repeats", latent_repeats)
        self.target_accept, self.scale = target_accept, scale
        super().__init__(vars, **kwargs)

    def _sweep(self) -> Sequence[sweep.Element]:
        latent = self.latent or ("hmc" if self.lgm.has_gradient else "slice")
        if latent == "hmc" and not self.lgm.has_gradient:
            raise ValueError(no_gradient(self.lgm, "latent='slice'"))
        elements: list[sweep.Element] = [sweep.LATENT_MOVES[latent](repeats=self.latent_repeats)]
        if self.lgm.p > 0:
            elements += [
                sweep.Metropolis(name, self.target_accept, self.scale)
                for name in self.parameterizations
            ]
        return elements


class SufficientMetropolis(ASIS):
    """Move f, then theta with f held fixed (SA); leaves p(theta, f | y) invariant.

    One O(n³) factorization a draw. For comparison: slow where the data say much about f. See
    `pymc_lgm.parameterizations.sufficient`. Takes the options of `ASIS`.

    References
    ----------
    Filippone, Zhong and Girolami (2012), §3 and Tables 1-4.

    Examples
    --------
    >>> import pymc as pm, pymc_lgm as lgm
    >>> with pm.Model():
    ...     eta = pm.HalfNormal("eta")
    ...     f = pm.MvNormal("f", mu=[0.0, 0.0], cov=eta * pm.math.stack([[1, 0.5], [0.5, 1]]))
    ...     y = lgm.Probit("y", f=f, observed=[0, 1])
    ...     step = lgm.SufficientMetropolis()
    >>> step
    SufficientMetropolis([f, eta_log__])
    """

    name = "sufficient_metropolis"
    parameterizations = ("sufficient",)
    cubic_ops = 1


class WhitenedMetropolis(ASIS):
    """Move f, then theta with ν = L⁻¹(f − m) held fixed (AA); leaves p(theta, f | y) invariant.

    One O(n³) factorization a draw. See `pymc_lgm.parameterizations.whitened`. Takes the options
    of `ASIS`.

    References
    ----------
    Filippone, Zhong and Girolami (2012), §3 and Tables 1-4; Murray and Adams (2010), §3.

    Examples
    --------
    >>> import pymc as pm, pymc_lgm as lgm
    >>> with pm.Model():
    ...     eta = pm.HalfNormal("eta")
    ...     f = pm.MvNormal("f", mu=[0.0, 0.0], cov=eta * pm.math.stack([[1, 0.5], [0.5, 1]]))
    ...     y = lgm.Probit("y", f=f, observed=[0, 1])
    ...     step = lgm.WhitenedMetropolis([f, eta], latent="slice")
    >>> step
    WhitenedMetropolis([f, eta_log__])
    """

    name = "whitened_metropolis"
    parameterizations = ("whitened",)
    cubic_ops = 1
