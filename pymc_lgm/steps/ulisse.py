"""The step method of stochastic gradient Langevin dynamics: not exact."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

from pymc_lgm import kernels
from pymc_lgm.steps.observed_normal import ObservedNormalStep
from pymc_lgm.steps.options import StepOptions, between, positive

__all__ = ["ULISSE"]


class ULISSE(ObservedNormalStep):
    r"""Move theta by stochastic gradient Langevin dynamics if y is normal: **not exact**.

    For observations that are multivariate normal, as in `pymc.gp.Marginal`. Nothing is factorized:
    the gradient of log N(y; m, K) is estimated from linear systems, which conjugate gradients with
    random termination solve without bias (ULISSE),

    .. math::

       \theta' = \theta + \tfrac{\varepsilon}{2} M (\tilde g + \nabla \log p(\theta))
       + N(0, \varepsilon M),

    and every proposal is accepted. See `pymc_lgm.kernels.langevin`. The statistic
    ``approximate_step_size``, ε, labels the trace. `ExactMarginal` is exact and was a thousand
    times faster on 1030 observations.

    Parameters
    ----------
    vars : sequence of variables, optional
        The hyper-parameters to move; by default all continuous variables.
    step_size : float, optional
        A fixed ε. By default ε falls in tuning, from 0.1 to 1e-4, until the noise of the gradients
        is small compared with that of the dynamics.
    n_probes, probes_kept : int
        Number of probes of the trace estimate, and number of draws for which the same probes are
        used.
    early_stop, beta : float
        q and β: the error per row below which conjugate gradients stop at random, and how soon.
    subset : int
        Number of rows of the data. M is the inverse negative Hessian at the mode given these rows.
    **kwargs
        ``model``, ``rng``, ``initial_point``, ``compile_kwargs``: see `LatentGaussianStep`.

    Notes
    -----
    An iteration of conjugate gradients costs O(n²), and K is stored. If the posterior is normal
    with covariance M and the errors of gradients have covariance V, the covariance of the draws is
    (1 + ε λ(M V) / 4) / (1 − ε / 4) times that of the posterior; the part of V that comes from the
    probes counts ``probes_kept`` times. A draw is worth at most ε / 4 of an independent one, so a
    smaller bias costs draws in proportion. The rule allows ε up to 0.008, which is one independent
    draw in 500; the paper found one in 1000.

    Tuning begins at a draw of N(mode, M), not at ``initvals``. ``sample_stats``:
    ``approximate_step_size``, ``gradient_noise_ratio``, ``solver_iterations``, ``cubic_ops``,
    ``numerical_rejections``.

    Raises
    ------
    ValueError
        If the model does not observe exactly one multivariate normal vector, or cannot be
        differentiated in theta.

    References
    ----------
    M. Filippone, R. Engler (2015). Enabling scalable stochastic gradient-based inference for
    Gaussian processes by employing the unbiased linear system solver (ULISSE). ICML. M. Welling,
    Y. W. Teh (2011). Bayesian learning via stochastic gradient Langevin dynamics. ICML.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_lgm as lgm
    >>> X = np.linspace(0, 1, 5)[:, None]
    >>> with pm.Model():
    ...     length, sigma = pm.InverseGamma("length", 3, 3), pm.HalfNormal("sigma", 1)
    ...     gp = pm.gp.Marginal(cov_func=pm.gp.cov.ExpQuad(1, ls=length))
    ...     y = gp.marginal_likelihood("y", X, y=np.sin(6 * X[:, 0]), sigma=sigma)
    ...     step = lgm.ULISSE(step_size=0.05)
    >>> step
    ULISSE([length_log__, sigma_log__], approximate)
    """

    name = "ulisse"
    moves, needs = "theta", "observations that are multivariate normal"
    cubic_ops = "0"

    def __init__(
        self,
        vars: Sequence[Any] | None = None,
        *,
        step_size: float | None = None,
        n_probes: int = 4,
        probes_kept: int = 20,
        early_stop: float = 1.0,
        beta: float = 1.0,
        subset: int = 500,
        **kwargs: Unpack[StepOptions],
    ):
        between("step_size", step_size, 1.0)
        between("early_stop", early_stop)
        between("beta", beta)
        counts = positive("n_probes", n_probes), positive("probes_kept", probes_kept)
        self.solver = kernels.Solver(counts[0], early_stop, beta, counts[1])
        self.step_size, self.subset = step_size, positive("subset", subset)
        super().__init__(vars, **kwargs)

    def __repr__(self) -> str:
        return super().__repr__().replace("])", "], approximate)")

    def _sweep(self) -> Sequence[kernels.Element]:
        if not self.lgm.has_theta_gradient:
            raise ValueError(
                "Langevin dynamics need the gradient of the covariance, the mean and the prior in "
                "theta, and an operation in one of them has none. Write "
                "lgm.ExactMarginal(move='metropolis')."
            )
        return [kernels.Langevin(self.solver, self.subset, self.step_size)]
