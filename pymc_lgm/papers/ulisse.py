"""Stochastic gradient Langevin dynamics of theta for multivariate normal y: **not exact**.

Filippone and Engler (2015), *Enabling scalable stochastic gradient-based inference for Gaussian
processes by employing the unbiased linear system solver (ULISSE)*.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Unpack

import numpy as np

from numpy.typing import NDArray
from scipy.linalg import cholesky
from scipy.optimize import minimize

from pymc_lgm import samplers
from pymc_lgm.linalg import Array, factorize, tally
from pymc_lgm.papers.solvers.ulisse import ulisse
from pymc_lgm.state import AtTheta, State
from pymc_lgm.steps.exact_marginal import ObservedNormalStep
from pymc_lgm.steps.options import StepOptions, between, positive

__all__ = [
    "ULISSE",
    "Gradient",
    "Langevin",
    "Solver",
    "SubsetMode",
    "of_subset",
    "stochastic_gradient",
]

BATCH = 100
"""Number of tuning draws whose gradients give one estimate of their covariance V."""

QUIET = 2e-3
"""Bound on (ε / 4) λ_max(M^½ V M^½) below which ε is frozen."""

FIRST = 0.1
"""ε of the first draw of tuning."""

LAST = 1e-4
"""ε of the last draw of tuning, unless it was frozen before."""


@dataclass(frozen=True)
class Solver:
    """How systems are solved: see `pymc_lgm.papers.solvers.ulisse`.

    Attributes
    ----------
    probes : int
        N_r, the number of probes of the trace estimate.
    early, beta : float
        q and β.
    kept : int
        Number of successive draws that use the same probes. Each linear system then starts at its
        last solution. The price is that these draws share one error of the trace estimate.
    """

    probes: int = 4
    early: float = 1.0
    beta: float = 1.0
    kept: int = 20


@dataclass(frozen=True, eq=False)
class Gradient:
    """An estimate of ∂ log N(y; m, K) / ∂theta.

    Attributes
    ----------
    value : ndarray, shape (p,)
    reached : ndarray, shape (n, 1 + N_r)
        Final iterates of conjugate gradients for y − m and for the probes.
    iterations : int
    """

    value: Array
    reached: Array
    iterations: int


def stochastic_gradient(
    rng: np.random.Generator,
    at: AtTheta,
    y: Array,
    probes: Array,
    solver: Solver,
    start: Array | None = None,
) -> Gradient:
    """Estimate the gradient of log N(y; m(theta), K(theta)) from linear systems alone.

    With probes r, E r rᵀ = I, and unbiased estimates s, s' of K⁻¹ (y − m) and t of K⁻¹ r,

        g̃_j = ½ sᵀ ∂_jK s' − ½ / N_r Σ tᵀ ∂_jK r + ½ (s + s')ᵀ ∂_jm .

    s and s' are independent; otherwise the quadratic form would be biased. Eqs. (8) and (9) of the
    paper omit the ½ of the quadratic form, and eq. (1) omits a minus in the exponent.

    Parameters
    ----------
    rng : numpy.random.Generator
    at : AtTheta
    y : ndarray, shape (n,)
    probes : ndarray, shape (n, N_r)
        Entries ±1.
    solver : Solver
    start : ndarray, shape (n, 1 + N_r), optional
        Solutions for a theta nearby.

    Returns
    -------
    Gradient
        It costs O(n²) per iteration, and two covariances with their derivatives.
    """
    prior, model = at.prior, at.model
    right = np.column_stack([y - prior.mean, probes])
    solved = ulisse(
        prior.covariance_times,
        right,
        rng,
        copies=2,
        start=start,
        early=solver.early,
        beta=solver.beta,
    )
    s, other = solved.x[:, :, 0]
    # The trace term is linear in t, so one estimate of t would do. Both copies exist, so it takes
    # their mean.
    t = solved.x[:, :, 1:].mean(axis=0)
    M = 0.5 * np.outer(s, other) - (0.5 / probes.shape[1]) * t @ probes.T
    value = model.cov_vjp(at.theta, M) + model.mean_vjp(at.theta, 0.5 * (s + other))
    return Gradient(value, solved.reached, solved.iterations)


@dataclass(frozen=True, eq=False)
class _Knows:
    """State of a chain: the step size and its schedule, M, and the last solutions."""

    metric: SubsetMode
    root: Array
    step_size: float
    tune: int
    frozen: bool
    draws: int = 0
    gradients: tuple[Array, ...] = ()
    ratio: float = np.nan
    probes: Array | None = None
    reached: Array | None = None


@dataclass(frozen=True)
class Langevin:
    """theta + ½ ε M (g̃ + ∇ log p(theta)) + N(0, ε M), always accepted; f stays as it is.

    ε falls as a / (b + t) in tuning, from 0.1 to 1e-4. It is frozen once the noise of the gradients
    is small compared with that of the dynamics, (ε / 4) λ_max(M^½ V M^½) < 0.002 with V the
    covariance of the gradients in a hundred draws, or at the end of tuning. M is the inverse
    negative Hessian at the mode given a subset of the data.

    Attributes
    ----------
    solver : Solver
    subset : int
        Number of rows of the data from which M is computed.
    step_size : float, optional
        An ε that is fixed from the first draw on.
    """

    solver: Solver = Solver()
    subset: int = 500
    step_size: float | None = None

    @property
    def stats(self) -> tuple[str, ...]:
        """Statistics per draw."""
        return "approximate_step_size", "gradient_noise_ratio", "solver_iterations"

    def start(self, state: State, tune: int) -> _Knows:
        """Compute M. Tuning begins at a draw from N(mode, M)."""
        metric = of_subset(state.at, state.f, self.subset)
        first = FIRST if self.step_size is None else self.step_size
        return _Knows(
            metric=metric,
            root=cholesky(metric.covariance, lower=True),
            step_size=first if tune or self.step_size else LAST,
            tune=tune,
            frozen=self.step_size is not None or tune == 0,
        )

    def run(
        self, rng: np.random.Generator, state: State, tuning: _Knows, tune: bool
    ) -> tuple[State, _Knows, dict[str, float]]:
        """Move theta once."""
        knows = tuning
        if tune and not knows.draws:
            state = self._moved(
                state, knows.metric.mode + knows.root @ rng.standard_normal(state.theta.size)
            )
        n = state.f.size
        if knows.probes is None or knows.draws % self.solver.kept == 0:
            signs = 2.0 * rng.integers(2, size=(n, self.solver.probes)).astype(float) - 1.0
            start = None
            if knows.reached is not None:
                start = np.column_stack([knows.reached[:, :1], np.zeros_like(signs)])
            knows = replace(knows, probes=signs, reached=start)
        probes = knows.probes
        assert probes is not None
        found = stochastic_gradient(rng, state.at, state.f, probes, self.solver, knows.reached)
        slope = found.value + state.model.log_prior_gradient(state.theta)
        noise = np.sqrt(knows.step_size) * (knows.root @ rng.standard_normal(slope.size))
        drift = 0.5 * knows.step_size * (knows.metric.covariance @ slope)
        state = self._moved(state, state.theta + drift + noise)
        knows = replace(knows, reached=found.reached, draws=knows.draws + 1)
        stats = {
            "approximate_step_size": knows.step_size,
            "gradient_noise_ratio": knows.ratio,
            "solver_iterations": float(found.iterations),
        }
        return state, self._learnt(knows, slope, tune), stats

    def _moved(self, state: State, theta: Array) -> State:
        """The state at another theta. If there is none, the old state, counted as a rejection."""
        there = state.at.moved(theta) if np.isfinite(theta).all() else None
        moved = None if there is None else there.state(state.f)
        if moved is None:
            tally.numerical_rejections += 1
        return state if moved is None else moved

    def _learnt(self, knows: _Knows, slope: Array, tune: bool) -> _Knows:
        """The next ε; once in a hundred draws also V."""
        if not tune:
            return knows
        gradients = (*knows.gradients, slope)
        ratio, frozen = knows.ratio, knows.frozen
        if len(gradients) == BATCH:
            V = np.cov(np.array(gradients).T.reshape(slope.size, -1))
            V = knows.root.T @ np.atleast_2d(V) @ knows.root
            ratio = 0.25 * knows.step_size * float(np.linalg.eigvalsh(V)[-1])
            frozen = frozen or ratio < QUIET
            gradients = ()
        step_size = knows.step_size if frozen else scheduled(knows.draws, knows.tune)
        return replace(knows, gradients=gradients, ratio=ratio, frozen=frozen, step_size=step_size)


def scheduled(t: int, tune: int) -> float:
    """a / (b + t): 0.1 at t = 0, 1e-4 at t = tune."""
    b = max(tune, 1) * LAST / (FIRST - LAST)
    return FIRST * b / (b + t)


STEP = 1e-3
"""Step of the differences of gradients, in units of theta."""


@dataclass(frozen=True, eq=False)
class SubsetMode:
    """Mode and inverse negative Hessian, M, of the posterior given a subset of the data.

    Attributes
    ----------
    mode : ndarray, shape (p,)
        The theta that maximizes p(theta | y_S).
    covariance : ndarray, shape (p, p)
        The inverse of the negative Hessian of the log posterior at the mode. Eigenvalues that are
        not positive are replaced by 1.
    """

    mode: Array
    covariance: Array


def of_subset(at: AtTheta, y: Array, size: int) -> SubsetMode:
    """Compute M from ``size`` rows of the data, evenly spaced in a fixed permutation of them.

    The search begins at the theta of ``at``. An evaluation costs O(size³ + n²).
    """
    n = y.size
    rows = np.sort(np.random.default_rng(0).permutation(n)[: min(size, n)])
    mode = _mode(at, y, rows)
    p = mode.size
    slopes = []
    for step in STEP * np.eye(p):
        ends = [_density(at, mode + sign * step, y, rows) for sign in (1.0, -1.0)]
        slopes.append((ends[0][1] - ends[1][1]) / (2.0 * STEP))
    H = -np.array(slopes)
    values, vectors = np.linalg.eigh(0.5 * (H + H.T))
    values = np.where(values > 0.0, values, 1.0)
    return SubsetMode(mode, (vectors / values) @ vectors.T)


def _mode(at: AtTheta, y: Array, rows: NDArray[np.intp]) -> Array:
    worst, _ = _density(at, at.theta, y, rows)

    def negative(theta: Array) -> tuple[float, Array]:
        value, gradient = _density(at, theta, y, rows)
        if not (np.isfinite(value) and np.isfinite(gradient).all()):
            # Worse than the start, but not so bad that the line search stops early.
            return max(1e3, abs(worst)) - worst, np.zeros_like(theta)
        return -value, -gradient

    found = minimize(negative, at.theta, jac=True, method="L-BFGS-B", options={"maxiter": 100})
    mode: Array = found.x
    return mode


def _density(at: AtTheta, theta: Array, y: Array, rows: NDArray[np.intp]) -> tuple[float, Array]:
    """log N(y_S; m_S, K_SS) + log p(theta) and its gradient; NaN if either does not exist."""
    nothing = np.nan, np.full(theta.size, np.nan)
    model = at.model
    log_prior = model.log_prior(theta)
    if not np.isfinite(log_prior):
        return nothing
    K = model.cov(theta)[np.ix_(rows, rows)]
    factor = factorize(K)
    if factor is None:
        return nothing
    z = (y - model.mean(theta))[rows]
    a = factor.inverse_times(z)
    M = np.zeros((y.size, y.size))
    M[np.ix_(rows, rows)] = 0.5 * (np.outer(a, a) - factor.inverse())
    v = np.zeros(y.size)
    v[rows] = a
    gradient = model.cov_vjp(theta, M) + model.mean_vjp(theta, v)
    return factor.log_density(z) + log_prior, gradient + model.log_prior_gradient(theta)


class ULISSE(ObservedNormalStep):
    r"""Move theta by stochastic gradient Langevin dynamics if y is normal: **not exact**.

    For observations that are multivariate normal, as in `pymc.gp.Marginal`. Nothing is factorized:
    the gradient of log N(y; m, K) is estimated from linear systems, which conjugate gradients with
    random termination solve without bias (ULISSE),

    .. math::

       \theta' = \theta + \tfrac{\varepsilon}{2} M (\tilde g + \nabla \log p(\theta))
       + N(0, \varepsilon M),

    and every proposal is accepted. See `pymc_lgm.papers.ulisse`. The statistic
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
    (1 + ε λ(M V) / 4) / (1 − ε / 4) times that of the posterior. The part of V that comes from the
    probes counts ``probes_kept`` times. A draw is worth at most ε / 4 of an independent draw, so
    half the bias takes twice as many draws. The rule allows ε up to 0.008, which is one independent
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
    ...     step = lgm.papers.ULISSE(step_size=0.05)
    >>> step
    ULISSE([length_log__, sigma_log__], approximate)
    """

    name = "ulisse"

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
        self.solver = Solver(counts[0], early_stop, beta, counts[1])
        self.step_size = step_size
        self.subset = positive("subset", subset)
        super().__init__(vars, **kwargs)

    def __repr__(self) -> str:
        return super().__repr__().replace("])", "], approximate)")

    def _sweep(self) -> Sequence[samplers.Element]:
        if not self.lgm.has_theta_gradient:
            raise ValueError(
                "Langevin dynamics need the gradient of the covariance, the mean and the prior in "
                "theta, and an operation in one of them has none. Write "
                "lgm.ExactMarginal(move='metropolis')."
            )
        return [Langevin(self.solver, self.subset, self.step_size)]
