"""The step method of ASIS."""

from __future__ import annotations

from pymc_lgm.steps.sweep import Sweep

__all__ = ["ASIS"]


class ASIS(Sweep):
    """Move f, then theta with f fixed, then with ν fixed; leaves p(theta, f | y) invariant.

    Ancillarity-sufficiency interweaving: each parameterization mixes well where the other mixes
    slowly, so the pair mixes well in both situations. A draw costs two O(n³) factorizations.
    ``amplitude=10`` interweaves the scale of K ten more times without a factorization. Takes the
    options of `Sweep` other than ``parameterization``.

    See Also
    --------
    PseudoMarginal : The default: most effective draws per operation.
    SurrogateSlice : Another choice of what is fixed while theta moves.
    Sweep : Any list of such choices.

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
    ...     step = lgm.ASIS(latent_move="slice")
    >>> step
    ASIS([f, rho_interval__])
    """

    name = "asis"
    own_parameterizations = ("sufficient", "whitened")
