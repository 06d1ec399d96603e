"""An emulator of log p(y | theta): a Gaussian process over the thetas that tuning has tried.

Rasmussen (2003), *Gaussian processes to speed up hybrid Monte Carlo for expensive Bayesian
integrals*. Only the evidence is emulated: the prior of theta is known, and it is what holds a chain
where the evidence is flat.
"""

from __future__ import annotations

import math

from typing import NamedTuple

import numba
import numpy as np

from scipy.linalg import cholesky, solve_triangular
from scipy.linalg.lapack import dpstrf

from pymc_lgm.elementary import exp
from pymc_lgm.linalg import Array

__all__ = [
    "MANY_HYPERPARAMETERS",
    "Emulator",
    "Visits",
    "coordinates_of",
    "emulate",
    "evidence_at",
    "theta_of",
]

MANY_HYPERPARAMETERS = 12
"""Largest number of hyper-parameters for which visits show an emulator the evidence's shape."""

LENGTHS = (0.8, 1.1, 1.5, 2.2, 3.3, 5.0, 7.5)
SCALES = (0.1, 0.3, 1.0, 3.0, 10.0)
NOISES = (0.03, 0.1, 0.3, 1.0)
"""Grids of ℓ, s and σ. Coordinates are standardized, so ℓ is in standard deviations of theta."""

SLACK = 5.0
"""Nats below the best visit from which on a visit counts as noisy: 0.4 a nat."""

QUADRATIC_SD = 10.0
"""Prior standard deviation of the coefficients of the mean."""

LEVEL = 4.0
"""Beyond so many standard deviations the emulator is flat."""

OPTIMISM = 1.0
"""κ: so many standard deviations above its mean the process is taken for."""

WIDEST = 120
"""m at most: standard deviations are those of the visits that lie widest apart."""

ROOM = 90
"""Visits that it remembers for each component of theta, and for two more."""


class Visits(NamedTuple):
    """Thetas that have been tried, one per row, with log p(y | theta) and log p(theta) there."""

    theta: Array
    log_evidence: Array
    log_prior: Array


class Emulator(NamedTuple):
    """log p*(y | theta) in the coordinates z = R⁻¹(theta − c), and its gradient.

    log p*(y | theta) = β + bᵀu + ½ uᵀAu + wᵀk + κ √(s² − kᵀPk),
    k_i = exp(−|u − u_i|² / 2ℓ²),  u = 4 tanh(z / 4).

    An optimist: a region that it takes for too good is tried and learnt, one that it takes for too
    bad would hold a chain that got there by itself. So it is flat far out, as evidences are in
    logarithms of scales, and not as low as a quadratic would say. And where no visit has been, it
    lies κ standard deviations of the process above its mean (an upper confidence bound).

    Attributes
    ----------
    center, root : ndarray, shape (p,), (p, p)
        c and R, lower triangular.
    constant, linear, quadratic : float, ndarray (p,), ndarray (p, p)
        β, b and A.
    points, weights : ndarray, shape (p, M), (M,)
        u_i, a column each, and w_i. In row order, as all arrays here: one with a single row or
        column has both orders, and a compiled loop is another one for each.
    precision : ndarray, shape (m, m)
        P = s⁴C⁻¹, where C is the covariance of the first m points with their noise.
    grid : tuple of int
        Which ℓ, s and σ of their grids it has.
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
    z = theta - emulator.center
    for i in range(z.size):
        for j in range(i):
            z[i] -= emulator.root[i, j] * z[j]
        z[i] /= emulator.root[i, i]
    return z


@numba.njit(cache=True)
def theta_of(z: Array, emulator: Emulator) -> Array:
    """theta = c + R z."""
    theta = emulator.center.copy()
    for i in range(z.size):
        for j in range(i + 1):
            theta[i] += emulator.root[i, j] * z[j]
    return theta


@numba.njit(cache=True, fastmath={"reassoc", "contract"})  # sums of several terms at once
def evidence_at(z: Array, emulator: Emulator) -> tuple[float, Array]:
    """log p*(y | theta) and its gradient in z, shape (p,).

    In loops, along rows of ``points``: products and slices take Numba five seconds to compile.
    """
    points, precision = emulator.points, emulator.precision
    length, scale = LENGTHS[emulator.grid[0]], SCALES[emulator.grid[1]]
    p, m, M = z.size, len(precision), points.shape[1]
    u, gradient = np.empty(p), np.empty(p)
    for j in range(p):
        u[j] = LEVEL * math.tanh(z[j] / LEVEL)
    k, near, explained = np.zeros(M), np.empty(M), np.empty(m)
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
    # Where a visit has been, rounding may leave less than nothing.
    sd = math.sqrt(max(variance, 1e-8))
    value = emulator.constant + emulator.optimism * sd
    for j in range(p):
        curved = 0.0
        for i in range(p):
            curved += emulator.quadratic[j, i] * u[i]
        value += u[j] * (emulator.linear[j] + 0.5 * curved)
        gradient[j] = emulator.linear[j] + curved
    for i in range(M):
        near[i] = emulator.weights[i] * k[i]
        value += near[i]
    for i in range(m):
        near[i] -= emulator.optimism / sd * explained[i]
    for j in range(p):
        pull = 0.0
        for i in range(M):
            pull += near[i] * (points[j, i] - u[j])
        gradient[j] += pull / length**2
        gradient[j] *= 1.0 - (u[j] / LEVEL) ** 2
    return value, gradient


def emulate(
    visits: Visits, center: Array, root: Array, grid: tuple[int, int, int] = (4, 2, 0)
) -> Emulator:
    """Regress log p(y | theta) on theta.

    y_i = quadratic in u_i + GP(u_i) + noise: the coefficients of the quadratic have a wide prior,
    the process has covariance s² exp(−|u − u'|² / 2ℓ²), the noise standard deviation σ. A visit
    whose posterior density is more than `SLACK` below the best counts as the noisier the farther
    below it is: chains go there seldom, and the surface must not bend for it where they do go.

    Parameters
    ----------
    visits : Visits
    center, root : ndarray, shape (p,), (p, p)
        c and R of the coordinates: about the mean of theta's posterior, and a Cholesky factor of
        its covariance.
    grid : tuple of int
        ℓ, s and σ at which to begin: from there the likelihood is climbed on their grid.

    Returns
    -------
    Emulator

    Notes
    -----
    O(M³) for each (ℓ, s, σ) that is tried, nine at least where ``grid`` is the default's. None of
    it is an O(n³) operation.
    """
    log_posterior = visits.log_evidence + visits.log_prior
    deficit = log_posterior.max() - log_posterior
    p = center.size
    kept = deficit < 10.0 * (p + 2)
    theta, deficit = visits.theta[kept], deficit[kept]
    u = LEVEL * np.tanh(solve_triangular(root, (theta - center).T, lower=True).T / LEVEL)
    noise = (0.4 * np.maximum(deficit - SLACK, 0.0)) ** 2
    y = visits.log_evidence[kept]
    offset = float(y[deficit.argmin()])
    process = _Process(u, y - offset, noise)
    while True:
        best = max([grid, *_neighbors(grid)], key=lambda at: process.at(at)[0])
        if best == grid:
            break
        grid = best
    dual = process.at(grid)[1]
    order, precision = process.widest(grid)
    beta = QUADRATIC_SD**2 * process.basis.T @ dual
    quadratic = np.zeros((p, p))
    quadratic[np.triu_indices(p)] = beta[1 + p :]
    return Emulator(
        center=center,
        root=root,
        constant=offset + float(beta[0]),
        linear=beta[1 : 1 + p],
        quadratic=quadratic + quadratic.T,
        points=np.ascontiguousarray(u[order].T),
        weights=SCALES[grid[1]] ** 2 * dual[order],
        precision=precision,
        grid=grid,
    )


class _Process:
    """The regression for any ℓ, s and σ: log likelihood and dual weights, each computed once."""

    def __init__(self, u: Array, y: Array, noise: Array):
        rows, columns = np.triu_indices(u.shape[1])
        self.basis = np.column_stack([np.ones(len(u)), u, u[:, rows] * u[:, columns]])
        squares = np.square(u).sum(axis=1)
        self.distance = np.maximum(squares[:, None] + squares - 2.0 * u @ u.T, 0.0)
        self.mean_cov = QUADRATIC_SD**2 * self.basis @ self.basis.T
        self.y, self.noise = y, noise
        self._known: dict[tuple[int, int, int], tuple[float, Array]] = {}

    def at(self, grid: tuple[int, int, int]) -> tuple[float, Array]:
        if grid not in self._known:
            factor = cholesky(
                self._cov(grid, 1.0), lower=True, overwrite_a=True, check_finite=False
            )
            white = solve_triangular(factor, self.y, lower=True, check_finite=False)
            log_likelihood = -0.5 * float(white @ white) - float(np.log(factor.diagonal()).sum())
            dual = solve_triangular(factor, white, lower=True, trans=1, check_finite=False)
            self._known[grid] = log_likelihood, dual
        return self._known[grid]

    def widest(self, grid: tuple[int, int, int]) -> tuple[Array, Array]:
        """The points in the order of pivots, each what those before say least of; P of m."""
        factor, order, _, _ = dpstrf(self._cov(grid), lower=1, overwrite_a=1)
        m = min(len(order), WIDEST)
        inverse = solve_triangular(factor[:m, :m], np.eye(m), lower=True)
        return order - 1, SCALES[grid[1]] ** 4 * inverse.T @ inverse

    def _cov(self, grid: tuple[int, int, int], of_mean: float = 0.0) -> Array:
        """Covariance of the visits' values: of the process, of the noise, and of their mean."""
        length, scale, sd = LENGTHS[grid[0]], SCALES[grid[1]], NOISES[grid[2]]
        noise = self.noise + sd**2
        return _covariance(self.distance, length, scale, noise, self.mean_cov, of_mean)


@numba.njit(cache=True)
def _covariance(
    distance: Array, length: float, scale: float, noise: Array, of_mean: Array, share: float
) -> Array:
    M, per = len(distance), -0.5 / length**2
    cov = np.empty((M, M))
    for i in range(M):
        for j in range(M):
            cov[i, j] = scale**2 * exp(distance[i, j] * per) + share * of_mean[i, j]
        cov[i, i] += noise[i]
    return cov


def _neighbors(grid: tuple[int, int, int]) -> list[tuple[int, int, int]]:
    """One step along each axis, and along ℓ and s together.

    A process of twice the ℓ and twice the s has the same slopes: the likelihood has a ridge there.
    """
    sizes = len(LENGTHS), len(SCALES), len(NOISES)
    found = []
    for step in ((1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0)):
        for sign in (-1, 1):
            i, j, k = (at + sign * by for at, by in zip(grid, step, strict=True))
            if 0 <= i < sizes[0] and 0 <= j < sizes[1] and 0 <= k < sizes[2]:
                found.append((i, j, k))
    return found
