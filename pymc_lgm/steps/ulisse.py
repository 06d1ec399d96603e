"""The step method by stochastic gradients: not exact."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

from pymc_lgm import kernels
from pymc_lgm.steps.observed_normal import ObservedNormalStep
from pymc_lgm.steps.options import StepOptions, between, positive

__all__ = ["ULISSE"]


class ULISSE(ObservedNormalStep):
    r"""Move theta by stochastic gradient Langevin dynamics where y is normal: **not exact**.

    Of observations that are multivariate normal, as `pymc.gp.Marginal` writes them. Nothing is
    factorized: the gradient of log N(y; m, K) is estimated by linear systems alone, which are
    solved without bias by conjugate gradients that end at random (ULISSE),

    .. math::

       \theta' = \theta + \tfrac{\varepsilon}{2} M (\tilde g + \nabla \log p(\theta))
       + N(0, \varepsilon M),

    and every proposal is accepted. See `pymc_lgm.kernels.langevin`. The statistic
    ``approximate_step_size``, ε, labels the trace. `ExactMarginal` is exact, and was a thousand
    times faster on 1030 observations.

    Parameters
    ----------
    vars : sequence of variables, optional
        The hyper-parameters to move; by default all continuous ones.
    step_size : float, optional
        An ε to be kept. By default it falls in tuning, from 0.1 to 1e-4, until the noise of the
        gradients is small beside that of the dynamics.
    n_probes, probes_kept : int
        For the trace, and for how many draws they stay what they are.
    early_stop, beta : float
        q and β: an error a row from which on conjugate gradients end at random, and how soon.
    subset : int
        Rows of the data at whose mode M is the inverse negative Hessian.
    **kwargs
        ``model``, ``rng``, ``initial_point``, ``compile_kwargs``: see `LatentGaussianStep`.

    Notes
    -----
    O(n²) an iteration of conjugate gradients, and K is stored. Where the posterior is normal with
    covariance M, and the errors of gradients have the covariance V, that of the draws is
    (1 + ε λ(M V) / 4) / (1 − ε / 4) times as large, with that part of V that is of the probes
    counted ``probes_kept`` times. A draw is worth ε / 4 of an independent one at most: a smaller
    bias costs draws in proportion. At the ε that the rule allows, 0.008 at most, that is one in
    500; the paper found one in 1000.

    In tuning a chain begins at a draw of N(mode, M), not where ``initvals`` says.
    ``sample_stats``: ``approximate_step_size``, ``gradient_noise_ratio``, ``solver_iterations``,
    ``cubic_ops``, ``numerical_rejections``.

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
