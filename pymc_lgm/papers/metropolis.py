"""A random walk of theta given f, or given whitened f: the samplers SA and AA.

SA is for sufficient augmentation, AA for ancillary augmentation (Yu and Meng 2011).
"""

from __future__ import annotations

from pymc_lgm.steps.sweep import Sweep

__all__ = ["SufficientMetropolis", "WhitenedMetropolis"]


class SufficientMetropolis(Sweep):
    """Move f, then theta with f held fixed (SA); leaves p(theta, f | y) invariant.

    A draw costs one O(n³) factorization. It is slow unless the data are informative about f:
    otherwise a fixed f determines theta much more closely than the data do. See
    `pymc_lgm.targets.sufficient`. Takes the options of `Sweep` other than
    ``parameterization``.

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
    ...     step = lgm.papers.SufficientMetropolis()
    >>> step
    SufficientMetropolis([f, eta_log__])
    """

    name = "sufficient_metropolis"
    own_parameterizations = ("sufficient",)


class WhitenedMetropolis(Sweep):
    """Move f, then theta with ν = L⁻¹(f − m) held fixed (AA); leaves p(theta, f | y) invariant.

    A draw costs one O(n³) factorization. See `pymc_lgm.targets.whitened`. Takes the options of
    `Sweep` other than ``parameterization``.

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
    ...     step = lgm.papers.WhitenedMetropolis([f, eta], latent_move="slice")
    >>> step
    WhitenedMetropolis([f, eta_log__])
    """

    name = "whitened_metropolis"
    own_parameterizations = ("whitened",)
