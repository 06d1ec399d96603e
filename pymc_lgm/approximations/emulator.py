"""An emulator of log p(y | theta): a Gaussian process fitted to the thetas that tuning visited.

Rasmussen (2003), *Gaussian processes to speed up hybrid Monte Carlo for expensive Bayesian
integrals*. Only the evidence is emulated. The prior of theta is known, and it keeps a chain from
drifting away where the evidence is flat.
"""

from __future__ import annotations

import math

from collections.abc import Sequence
from typing import NamedTuple

import numba
import numpy as np

from scipy.linalg import cholesky, solve_triangular
from scipy.linalg.lapack import dpstrf

from pymc_lgm.compile.loops.elementary import exp
from pymc_lgm.linalg import Array

__all__ = [
    "MANY_HYPERPARAMETERS",
    "SUMS",
    "Emulator",
    "Visits",
    "coordinates_of",
    "emulate",
    "evidence_at",
    "theta_of",
]

MANY_HYPERPARAMETERS = 12
"""Largest number of hyper-parameters for which an emulator is fitted: more would need more visits
than tuning makes. It is a choice."""

LENGTHS = (0.8, 1.1, 1.5, 2.2, 3.3, 5.0, 7.5)
SCALES = (0.1, 0.3, 1.0, 3.0, 10.0)
NOISES = (0.03, 0.1, 0.3, 1.0)
"""Grids of ℓ, s and σ. Coordinates are standardized, so ℓ is in standard deviations of theta.

With ten length-scales the process has ℓ = 1.1. When the grid began at 1.5, the residual standard
deviation on posterior draws of four data sets was 0.95 to 1.3 nats instead of 0.75 to 0.85. Part of
this came from `SLACK`.
"""

SLACK = 5.0
"""A visit whose log posterior density is more than this many nats below the best one gets
additional noise. Chains rarely go there, so the fit should not lose accuracy where they do go. See
`LENGTHS` for what that gains."""

NOISE_PER_NAT = 0.4
"""Standard deviation of this noise, for each nat beyond `SLACK`. It is a choice."""

DISCARDED = 10.0
"""Nats below the best visit, for each component of theta and for two more, at which a visit is left
out of the fit. It is a choice."""

QUADRATIC_SD = 10.0
"""Prior standard deviation of the coefficients of the mean, in nats: nearly flat, and finite, so
that fewer visits than coefficients can be fitted."""

LEVEL = 4.0
"""Standard deviations from the center at which the coordinates u level off, and with them the
emulator. It is a choice."""

OPTIMISM = 1.0
"""κ: the emulator is the mean of the process plus this many of its standard deviations.

With 1 instead of 0 the ESS of 60 chains for negative binomial counts rose from 204 to 373 per
chain, and the longest stay fell from 55 to 20 draws. More than 1 costs operations.
"""

FARTHEST = 120
"""Largest m. The standard deviation of the process is computed from the m visits that determine
each other least. With 250 the acceptance and the longest stays of benchmarks/long_stays.py are the
same."""

ROOM = 90
"""The latest ``ROOM * (p + 2)`` visits are stored, with p components of theta. With four times as
many the residual on ordinal data fell from 0.90 to 0.78 nats, at O(M³) cost: see docs/tried.md."""

SUMS = {"reassoc", "contract"}
"""Flags that allow the compiler to add several terms of a sum at once, in any order."""


class Visits(NamedTuple):
    """Visited thetas, one per row, with log p(y | theta) and log p(theta) there."""

    theta: Array
    log_evidence: Array
    log_prior: Array

    @classmethod
    def of(cls, visited: Sequence[tuple[Array, float, float]]) -> Visits:
        """As arrays, from one tuple per visit."""
        return cls(*(np.array(column) for column in zip(*visited, strict=True)))


class Emulator(NamedTuple):
    """log p*(y | theta) in the coordinates z = R⁻¹(theta − c), and its gradient.

    log p*(y | theta) = β + bᵀu + ½ uᵀAu + wᵀk + κ √(s² − kᵀPk),
    k_i = exp(−|u − u_i|² / 2ℓ²),  u = 4 tanh(z / 4).

    The emulator is biased upward in regions without visits. An overestimated region is visited and
    corrected; an underestimated one would trap a chain. So far from the center the emulator is
    flat, where a quadratic would decrease. Evidences are flat there, too, as functions of the
    logarithms of scales. The emulator also adds κ standard deviations of the process to its mean
    (an upper confidence bound), and these are large where no visit is near.

    Attributes
    ----------
    center, root : ndarray, shape (p,), (p, p)
        c and R, lower triangular.
    constant, linear, quadratic : float, ndarray (p,), ndarray (p, p)
        β, b and A.
    points, weights : ndarray, shape (p, M), (M,)
        u_i, one per column, and w_i. All arrays are in row order, since Numba compiles a loop again
        for each memory order.
    precision : ndarray, shape (m, m)
        P = s⁴C⁻¹, where C is the covariance of the first m points with their noise.
    grid : tuple of int
        Indices of ℓ, s and σ in their grids.
    optimism : float
        κ.
    """

    center: Array
    root: Array
    constant: float
    linear: Array
    quadratic: Array
    points: Array
    weights: Array
    precision: Array
    grid: tuple[int, int, int]
    optimism: float = OPTIMISM

    def log_evidence(self, theta: Array) -> float:
        """log p*(y | theta); O(M p + m²)."""
        value: float = evidence_at(coordinates_of(theta, self), self)[0]
        return value


@numba.njit(cache=True)
def coordinates_of(theta: Array, emulator: Emulator) -> Array:
    """z = R⁻¹(theta − c)."""
    z = np.empty(theta.size)
    for i in range(z.size):
        z[i] = theta[i] - emulator.center[i]
        for j in range(i):
            z[i] -= emulator.root[i, j] * z[j]
        z[i] /= emulator.root[i, i]
    return z


@numba.njit(cache=True, inline="always")
def theta_of(z: Array, emulator: Emulator) -> Array:
    """theta = c + R z."""
    theta = np.empty(z.size)
    for i in range(z.size):
        theta[i] = emulator.center[i]
        for j in range(i + 1):
            theta[i] += emulator.root[i, j] * z[j]
    return theta


@numba.njit(cache=True, inline="always", fastmath=SUMS)
def evidence_at(z: Array, emulator: Emulator) -> tuple[float, Array]:
    """log p*(y | theta) and its gradient in z, shape (p,).

    Written as loops along rows of ``points``, since Numba takes five seconds to compile products
    and slices.
    """
    points, precision = emulator.points, emulator.precision
    length, scale = LENGTHS[emulator.grid[0]], SCALES[emulator.grid[1]]
    p, m, M = z.size, len(precision), points.shape[1]
    u = np.empty(p)
    gradient = np.empty(p)
    k = np.empty(M)
    explained = np.empty(m)
    for j in range(p):
        u[j] = LEVEL * math.tanh(z[j] / LEVEL)
    for i in range(M):
        k[i] = 0.0
    for j in range(p):
        for i in range(M):
            k[i] += (u[j] - points[j, i]) ** 2
    for i in range(M):
        k[i] = exp(-0.5 / length**2 * k[i])
    variance = scale**2
    for i in range(m):
        of_others = 0.0
        for j in range(m):
            of_others += precision[i, j] * k[j]
        explained[i] = of_others * k[i]
        variance -= explained[i]
    # At a visited point the variance may be negative by rounding.
    sd = math.sqrt(max(variance, 1e-8))
    value = emulator.constant + emulator.optimism * sd
    for j in range(p):
        curved = 0.0
        for i in range(p):
            curved += emulator.quadratic[j, i] * u[i]
        value += u[j] * (emulator.linear[j] + 0.5 * curved)
        gradient[j] = emulator.linear[j] + curved
    for i in range(M):
        k[i] *= emulator.weights[i]
        value += k[i]
    for i in range(m):
        k[i] -= emulator.optimism / sd * explained[i]
    for j in range(p):
        pull = 0.0
        for i in range(M):
            pull += k[i] * (points[j, i] - u[j])
        gradient[j] += pull / length**2
        gradient[j] *= 1.0 - (u[j] / LEVEL) ** 2
    return value, gradient


def emulate(
    visits: Visits, center: Array, root: Array, grid: tuple[int, int, int] = (4, 2, 0)
) -> Emulator:
    """Regress log p(y | theta) on theta.

    y_i = quadratic in u_i + GP(u_i) + noise. The coefficients of the quadratic have a wide prior,
    the process has covariance s² exp(−|u − u'|² / 2ℓ²), and the noise has standard deviation σ,
    and more for visits of low posterior density: see `SLACK`.

    Parameters
    ----------
    visits : Visits
    center, root : ndarray, shape (p,), (p, p)
        c and R of the coordinates: about the mean of theta's posterior, and a Cholesky factor of
        its covariance.
    grid : tuple of int
        Indices of the first ℓ, s and σ. From there a search on the grid maximizes the likelihood.

    Notes
    -----
    The cost is O(M³) for each (ℓ, s, σ) that is tried, at least eight from the default ``grid``. It
    does not depend on n.
    """
    log_posterior = visits.log_evidence + visits.log_prior
    deficit = log_posterior.max() - log_posterior
    p = center.size
    fitted = deficit < DISCARDED * (p + 2)
    theta, deficit = visits.theta[fitted], deficit[fitted]
    u = LEVEL * np.tanh(solve_triangular(root, (theta - center).T, lower=True).T / LEVEL)
    noise = (NOISE_PER_NAT * np.maximum(deficit - SLACK, 0.0)) ** 2
    y = visits.log_evidence[fitted]
    offset = float(y[deficit.argmin()])
    process = _Process(u, y - offset, noise)
    while True:
        best = max([grid, *_neighbors(grid)], key=lambda at: process.at(at)[0])
        if best == grid:
            break
        grid = best
    alpha = process.at(grid)[1]
    order, precision = process.farthest(grid)
    beta = QUADRATIC_SD**2 * process.basis.T @ alpha
    quadratic = np.zeros((p, p))
    quadratic[np.triu_indices(p)] = beta[1 + p :]
    return Emulator(
        center=center,
        root=root,
        constant=offset + float(beta[0]),
        linear=beta[1 : 1 + p],
        quadratic=quadratic + quadratic.T,
        points=np.ascontiguousarray(u[order].T),
        weights=SCALES[grid[1]] ** 2 * alpha[order],
        precision=precision,
        grid=grid,
    )


class _Process:
    """The regression for any ℓ, s and σ. Results are cached by their indices in the grids."""

    def __init__(self, u: Array, y: Array, noise: Array):
        rows, columns = np.triu_indices(u.shape[1])
        self.basis = np.column_stack([np.ones(len(u)), u, u[:, rows] * u[:, columns]])
        squares = np.square(u).sum(axis=1)
        self.square_distance = np.maximum(squares[:, None] + squares - 2.0 * u @ u.T, 0.0)
        self.mean_cov = QUADRATIC_SD**2 * self.basis @ self.basis.T
        self.y, self.noise = y, noise
        self._known: dict[tuple[int, int, int], tuple[float, Array]] = {}

    def at(self, grid: tuple[int, int, int]) -> tuple[float, Array]:
        """Return the log likelihood, up to a constant, and α = (covariance of y)⁻¹ y."""
        if grid not in self._known:
            cov = self._cov(grid, share_of_mean=1.0)
            factor = cholesky(cov, lower=True, overwrite_a=True, check_finite=False)
            white = solve_triangular(factor, self.y, lower=True, check_finite=False)
            log_likelihood = -0.5 * float(white @ white) - float(np.log(factor.diagonal()).sum())
            alpha = solve_triangular(factor, white, lower=True, trans=1, check_finite=False)
            self._known[grid] = log_likelihood, alpha
        return self._known[grid]

    def farthest(self, grid: tuple[int, int, int]) -> tuple[Array, Array]:
        """Return an order of the points, and P of the first m of them.

        Each point is the one that those before it determine least.
        """
        cov = self._cov(grid, share_of_mean=0.0)
        factor, order, _, _ = dpstrf(cov, lower=1, overwrite_a=1)
        m = min(len(order), FARTHEST)
        inverse = solve_triangular(factor[:m, :m], np.eye(m), lower=True)
        return order - 1, SCALES[grid[1]] ** 4 * inverse.T @ inverse

    def _cov(self, grid: tuple[int, int, int], *, share_of_mean: float) -> Array:
        """Covariance of process and noise at the visits, and of the mean times a share, 0 or 1."""
        length, scale, sd = LENGTHS[grid[0]], SCALES[grid[1]], NOISES[grid[2]]
        noise = self.noise + sd**2
        return _covariance(self.square_distance, length, scale, noise, self.mean_cov, share_of_mean)


@numba.njit(cache=True)
def _covariance(
    square_distance: Array,
    length: float,
    scale: float,
    noise: Array,
    mean_cov: Array,
    share_of_mean: float,
) -> Array:
    M, factor = len(square_distance), -0.5 / length**2
    cov = np.empty((M, M))
    for i in range(M):
        for j in range(M):
            process = scale**2 * exp(square_distance[i, j] * factor)
            cov[i, j] = process + share_of_mean * mean_cov[i, j]
        cov[i, i] += noise[i]
    return cov


def _neighbors(grid: tuple[int, int, int]) -> list[tuple[int, int, int]]:
    """Neighbors on the grid: one step along each axis, and along ℓ and s together.

    Doubling both ℓ and s leaves the slopes of the process unchanged, so the likelihood has a ridge
    in that direction.
    """
    sizes = len(LENGTHS), len(SCALES), len(NOISES)
    found = []
    for step in ((1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0)):
        for sign in (-1, 1):
            i, j, k = (at + sign * by for at, by in zip(grid, step, strict=True))
            if 0 <= i < sizes[0] and 0 <= j < sizes[1] and 0 <= k < sizes[2]:
                found.append((i, j, k))
    return found
