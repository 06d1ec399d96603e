"""Stochastic gradient Langevin dynamics of theta for multivariate normal y: **not exact**.

Filippone and Engler (2015), *Enabling scalable stochastic gradient-based inference for Gaussian
processes by employing the unbiased linear system solver (ULISSE)*.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from scipy.linalg import cholesky

from pymc_lgm.kernels.subset import SubsetMode, of_subset
from pymc_lgm.linalg import Array, tally
from pymc_lgm.solvers.ulisse import ulisse
from pymc_lgm.state import AtTheta, State

__all__ = ["Gradient", "Langevin", "Solver", "stochastic_gradient"]

BATCH = 100
"""Draws of tuning from whose gradients one covariance V is estimated."""

QUIET = 2e-3
"""Bound on (ε / 4) λ_max(M^½ V M^½) below which ε is frozen."""

FIRST, LAST = 0.1, 1e-4
"""ε of the first and of the last draw of tuning."""


@dataclass(frozen=True)
class Solver:
    """How systems are solved: see `pymc_lgm.solvers.ulisse`.

    Attributes
    ----------
    probes : int
        N_r, the number of probes of the trace estimate.
    early, beta : float
        q and β.
    kept : int
        Draws that use the same probes, so that each linear system starts at its last solution.
        Their error is then the same in all these draws, so it counts as many times.
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
        O(n²) an iteration, and two covariances with their derivatives.
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
    # The second half has one copy, since a probe's term is linear in its solution. More copies cost
    # less than a second set of probes.
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
        """Find M; tuning begins at a draw of N(mode, M)."""
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
            frozen, gradients = frozen or ratio < QUIET, ()
        step_size = knows.step_size if frozen else scheduled(knows.draws, knows.tune)
        return replace(knows, gradients=gradients, ratio=ratio, frozen=frozen, step_size=step_size)


def scheduled(t: int, tune: int) -> float:
    """a / (b + t): 0.1 at t = 0, 1e-4 at t = tune."""
    b = max(tune, 1) * LAST / (FIRST - LAST)
    return FIRST * b / (b + t)
