"""Rules of adaptation: scales, covariances and step sizes, frozen when tuning ends.

Each rule is an immutable value. ``start`` makes the first value, and ``update`` the next one after
a draw. The other methods return the settings for the kernel. The step method stores the value, and
stops updating it when tuning ends. A kernel never adapts itself.
"""

from __future__ import annotations

import math

from fractions import Fraction
from typing import NamedTuple

import numpy as np

from pymc_lgm.linalg import Array

__all__ = [
    "DRAWS_MEASURED",
    "FEWEST_DRAWS",
    "LARGEST_NOISE",
    "MOST_DRAWS",
    "SMALL_NOISE",
    "History",
    "MetricTuning",
    "NoiseTuning",
    "ProposalTuning",
    "StepSizeTuning",
    "WidthTuning",
]

DRAWS_MEASURED = 4
"""Largest number of importance draws in the measurements of `NoiseTuning`."""

FEWEST_DRAWS, MOST_DRAWS = 8, 64
"""Smallest and largest number of importance draws that `NoiseTuning` chooses."""

SMALL_NOISE = 0.05
"""Largest variance of the log ratio of two estimates that `NoiseTuning` accepts.

If the ratio is normal with mean −σ²/2 and variance σ², a move that the exact evidence accepts is
accepted with probability 2 Φ(−σ/2): 0.91 for σ² = 0.05.
"""

LARGEST_NOISE = 0.25
"""Largest variance that is accepted if importance draws take most of the time: 2 Φ(−σ/2) is 0.80.

From a variance of 0.06 to 0.25, N falls to a quarter: from 8 to 2, say. If everything else in a
proposal costs as much as four draws, the proposal then takes half the time. About one more proposal
in ten is rejected.
"""


class ProposalTuning(NamedTuple):
    """A random walk's proposal N(theta, C Cᵀ), adapted to its acceptance probability.

    Robust adaptive Metropolis, Vihola (2012), eq. (1): after a proposal theta + C ξ accepted with
    probability α,

        C Cᵀ ← C (I + γ_t (α − target) ξ ξᵀ / |ξ|²) Cᵀ,   γ_t = min(1, p t^(−2/3)),

    a Robbins-Monro rule that brings *every direction* to the target acceptance. It adapts to the
    conditional density of the move, theta given f or given ν. The covariance of past draws would
    instead estimate that of the marginal posterior, which is wider.
    """

    draws: int
    factor: Array
    target: float

    @classmethod
    def start(
        cls, p: int, target: float | None = None, scale: float | None = None
    ) -> ProposalTuning:
        """Start with C = scale × I.

        ``target`` is by default 0.44 for one component and decreases to 0.25 (Roberts, Gelman and
        Gilks 1997; the papers tune to 0.25). ``scale`` is by default 0.24/√p, a tenth of the best
        scale for a unit Gaussian, so that some of the first proposals are accepted.
        """
        if target is None:
            target = {1: 0.44, 2: 0.35, 3: 0.3}.get(p, 0.25)
        return cls(0, (scale or 0.24 / math.sqrt(p)) * np.eye(p), target)

    def update(self, direction: Array, acceptance: float) -> ProposalTuning:
        """Update from one proposal: its ξ and its acceptance probability."""
        draws = self.draws + 1
        gain = min(1.0, direction.size * draws ** (-2 / 3)) * (acceptance - self.target)
        v = self.factor @ (direction / np.linalg.norm(direction))
        # |gain| < 1, so this stays positive definite.
        cov = self.factor @ self.factor.T + gain * np.outer(v, v)
        return self._replace(draws=draws, factor=np.linalg.cholesky(cov))

    @property
    def scale(self) -> float:
        """|det C|^(1/p): the geometric mean of the proposal's axes."""
        return float(np.exp(np.log(self.factor.diagonal()).mean()))


class StepSizeTuning(NamedTuple):
    """A step size for HMC, adapted to a target acceptance by dual averaging.

    Hoffman and Gelman (2014), *The No-U-Turn sampler*, §3.2, eq. (6), with their constants
    γ = 0.05, t₀ = 10, κ = 0.75.
    """

    draws: int
    log_step: float
    log_step_average: float
    error: float
    anchor: float
    target: float
    log_max: float

    @classmethod
    def start(
        cls, step_size: float = 0.1, target: float = 0.8, maximum: float = math.inf
    ) -> StepSizeTuning:
        """Start from a step size. It never exceeds ``maximum``, for example π/2 of a rotation."""
        log_step = math.log(min(step_size, maximum))
        return cls(0, log_step, log_step, 0.0, math.log(10) + log_step, target, math.log(maximum))

    def update(self, acceptance: float) -> StepSizeTuning:
        """Update from the acceptance probability of one trajectory."""
        t = self.draws + 1
        error = self.error + (self.target - acceptance - self.error) / (t + 10)
        log_step = min(self.anchor - math.sqrt(t) / 0.05 * error, self.log_max)
        weight = t**-0.75
        average = weight * log_step + (1 - weight) * self.log_step_average
        return self._replace(draws=t, log_step=log_step, log_step_average=average, error=error)

    def value(self, tune: bool) -> float:
        """Step size to use: the current one while tuning, the average of all afterwards."""
        return math.exp(self.log_step if tune else self.log_step_average)


class History(NamedTuple):
    """The states of a chain, one row per draw, for a fit that is repeated as the chain grows.

    Attributes
    ----------
    rows : tuple of ndarray
    next_fit : int
        Number of rows at which the next fit is due.
    """

    rows: tuple[Array, ...]
    next_fit: int

    def add(self, row: Array) -> History:
        """Append a draw."""
        return self._replace(rows=(*self.rows, row))

    @property
    def is_due(self) -> bool:
        """Whether the next fit is due."""
        return len(self.rows) >= self.next_fit

    @property
    def later(self) -> Array:
        """The last two thirds, one per row; the first third is warm-up."""
        return np.array(self.rows[len(self.rows) // 3 :])

    def learnt(self, growth: Fraction) -> History:
        """Schedule the next fit for when the history has grown by this factor."""
        return self._replace(next_fit=math.ceil(growth * len(self.rows)))


class MetricTuning(NamedTuple):
    """A mass matrix for HMC, fitted to the chain's draws and to the gradients there.

    For a Gaussian with covariance Σ the draws have covariance A = Σ and the gradients B = Σ⁻¹.
    Either estimate is poor with few draws. The solution of Σ B Σ = A is exact for any draws that
    span the space; for other densities it minimizes the Fisher divergence from a Gaussian
    (Seyboldt, Carlson and Carpenter 2026, *Preconditioning Hamiltonian Monte Carlo by minimizing
    Fisher divergence*). A and B are shrunk towards their diagonals by the share p /
    (p + draws / 5).

    Attributes
    ----------
    history : History
        Theta and the gradient there at each draw so far, shape (2, p).
    factor : ndarray, shape (p, p)
        C with C Cᵀ = Σ. It is fitted again each time the number of draws has grown by a third, to
        the last two thirds of them.
    """

    history: History
    factor: Array

    @classmethod
    def start(cls, p: int) -> MetricTuning:
        """Start with C = I."""
        return cls(History((), 10), np.eye(p))

    @property
    def draws(self) -> int:
        """Number of draws so far."""
        return len(self.history.rows)

    @property
    def scale(self) -> float:
        """|det C|^(1/p)."""
        return float(np.exp(np.log(self.factor.diagonal()).mean()))

    def at(self, gradient: Array) -> MetricTuning:
        """Start from the gradient at one point, since a Gaussian has gradients of about 1 / sd."""
        sd = 1.0 / np.clip(np.abs(gradient), 1.0 / 3.0, 100.0)
        return self._replace(factor=np.diag(sd))

    def update(self, theta: Array, gradient: Array) -> MetricTuning:
        """Update from one draw."""
        history = self.history.add(np.stack([theta, gradient]))
        if not history.is_due:
            return self._replace(history=history)
        thetas, gradients = history.later.swapaxes(0, 1)
        return MetricTuning(history.learnt(Fraction(4, 3)), _factor_of(thetas, gradients))


def _factor_of(thetas: Array, gradients: Array) -> Array:
    """C with C Cᵀ = Σ, Σ B Σ = A, in coordinates in which A and B have equal diagonals."""
    draws, p = thetas.shape
    # The small numbers here keep results finite if a component has not moved.
    variances = thetas.var(axis=0) + 1e-10
    of_gradients = gradients.var(axis=0) + 1e-10
    sd = np.clip((variances / of_gradients) ** 0.25, 1e-3, 1e3)
    # Share of the diagonal in a covariance: a half if there are five draws per component.
    own = p / (p + draws / 5)

    def shrunk(x: Array) -> Array:
        cov = np.atleast_2d(np.cov(x.T))
        result: Array = (1.0 - own) * cov + own * np.diag(cov.diagonal()) + 1e-8 * np.eye(p)
        return result

    A = shrunk(thetas / sd)
    B = shrunk(gradients * sd)
    # Σ = B^(-1/2) (B^(1/2) A B^(1/2))^(1/2) B^(-1/2), the geometric mean of A and B⁻¹.
    values, vectors = np.linalg.eigh(B)
    root, inverse = (vectors * values**power @ vectors.T for power in (0.5, -0.5))
    values, vectors = np.linalg.eigh(root @ A @ root)
    sigma = inverse @ (vectors * np.sqrt(np.maximum(values, 1e-12)) @ vectors.T) @ inverse
    factor: Array = sd[:, None] * np.linalg.cholesky(0.5 * (sigma + sigma.T))
    return factor


class WidthTuning(NamedTuple):
    """Interval widths for slice sampling: six times the mean jump.

    On a slice of length s, an interval much narrower than s makes jumps of a third of its width, so
    the rule doubles it. An interval much wider than s makes jumps of s/3, so the rule shrinks it.
    The widths are updated at draws 8, 16, 32, ..., each time from the draws since the last update.
    """

    widths: Array
    jumps: Array
    draws: int

    @classmethod
    def start(cls, p: int, width: float) -> WidthTuning:
        """Start with the same width for every component."""
        return cls(np.full(p, width), np.zeros(p), 0)

    def update(self, jumps: Array) -> WidthTuning:
        """Update from one move of every component, theta' − theta."""
        draws = self.draws + 1
        total = self.jumps + np.abs(jumps)
        if draws < 8 or draws & (draws - 1):
            return self._replace(jumps=total, draws=draws)
        # Draws since the last update: half of all, or all of them the first time. A component that
        # never moved keeps a fifth of its width.
        since = draws if draws == 8 else draws // 2
        return WidthTuning(
            np.maximum(6.0 * total / since, 0.2 * self.widths), np.zeros_like(total), draws
        )

    @property
    def scale(self) -> float:
        """Geometric mean of the widths."""
        return float(np.exp(np.log(self.widths).mean()))


class NoiseTuning(NamedTuple):
    """Number of importance draws that keeps the noise of an acceptance ratio small.

    Let s² be the variance of the log ratio of two independent estimates at one theta. If it is
    measured with M draws per estimate, it is about M s²/N with N draws. Sherlock, Thiery, Roberts
    and Rosenthal (2015) find a variance of 3 best if a draw costs as much as everything else, and
    if the variance is the same at every theta. Here all draws together cost less than a
    factorization, and the variance in the tails of the posterior is ten times that at its center.
    With an average variance of 1, chains stayed in the tails for a hundred draws at a time, and ESS
    did not show it before they had visited the tails. Therefore the limit is `SMALL_NOISE`. If a
    draw costs as much as everything else, ``fewest`` is two, or one if that is slow. If most of the
    time is spent on draws and not on calls in Python, ``limit`` is `LARGEST_NOISE`.
    """

    total: float = 0.0
    ratios: int = 0
    fewest: int = FEWEST_DRAWS
    given: int | None = None
    limit: float = SMALL_NOISE

    def update(self, change: float) -> NoiseTuning:
        """Update from the difference of two log estimates at one theta."""
        # Bounded, so that a single extreme or non-finite difference does not lead to `MOST_DRAWS`.
        square = min(change**2, 25.0) if math.isfinite(change) else 25.0
        return self._replace(total=self.total + square, ratios=self.ratios + 1)

    def restarted(self) -> NoiseTuning:
        """Forget the measurements, for q has changed."""
        return self._replace(total=0.0, ratios=0)

    @property
    def n_importance(self) -> int:
        """``given``, or ``fewest`` doubled until s² is at most ``limit``; at most `MOST_DRAWS`.

        Four times ``fewest`` if tuning was too short to measure the noise.
        """
        N = self.given or self.fewest
        limit = self.limit if self.is_low_noise else SMALL_NOISE
        while self.given is None and min(self._wanted(limit), MOST_DRAWS) > N:
            N *= 2
        return N

    @property
    def is_low_noise(self) -> bool:
        """Whether ``given`` or at most `MOST_DRAWS` bring the measured s² to `SMALL_NOISE`."""
        return self.ratios > 0 and self._wanted(SMALL_NOISE) <= (self.given or MOST_DRAWS)

    @property
    def measured(self) -> int:
        """Number of importance draws in the estimates whose noise is measured."""
        return self.given or min(DRAWS_MEASURED, self.fewest)

    def _wanted(self, limit: float) -> float:
        """The number of draws with which s² is about ``limit``."""
        if not self.ratios:
            return 4.0 * self.fewest
        return self.measured * self.total / self.ratios / limit
