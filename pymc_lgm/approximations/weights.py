"""Importance weights: their mean and its standard error, the shape of their tail, and resampling.

N draws of f = f̂ ± δ come from q(f) = N(f̂, Σ). In formulas W is the diagonal precision of q's
sites, z = f − m, and a = K⁻¹ (f̂ − m).

In loops over numbers: a maximum or a sum of an array takes Numba half a second to compile.
"""

from __future__ import annotations

import math

import numba
import numpy as np

from pymc_lgm.linalg import Array

__all__ = [
    "estimate_of",
    "gaussian_log_weights",
    "mirrored",
    "one_by_weight",
    "pareto_shape",
    "squares_moved",
]


@numba.njit(cache=True)
def mirrored(center: Array, deviations: Array, pairs: bool) -> Array:
    """Rows f̂ + δ; if ``pairs``, followed by the antithetic rows f̂ − δ."""
    N, n = deviations.shape
    rows = np.empty((2 * N if pairs else N, n))
    for k in range(N):
        for i in range(n):
            rows[k, i] = center[i] + deviations[k, i]
        if pairs:
            for i in range(n):
                rows[N + k, i] = center[i] - deviations[k, i]
    return rows


@numba.njit(cache=True)
def gaussian_log_weights(
    deviations: Array, W_deviations: Array, alpha: Array, z: Array, pairs: bool
) -> Array:
    """Compute log N(f; m, K) − log q(f) + ½ log|B| for the rows that `mirrored` returns.

    It is −½ ẑᵀ a ∓ δᵀ a + ½ δᵀ W δ with ẑ = f̂ − m: see `GaussianApproximation.log_weights`.
    """
    N, n = deviations.shape
    out, of_center = np.empty(2 * N if pairs else N), 0.0
    for i in range(n):
        of_center -= 0.5 * z[i] * alpha[i]
    for k in range(N):
        along, square = 0.0, 0.0
        for i in range(n):
            along += deviations[k, i] * alpha[i]
            square += deviations[k, i] * W_deviations[k, i]
        out[k] = of_center - along + 0.5 * square
        if pairs:
            out[N + k] = of_center + along + 0.5 * square
    return out


@numba.njit(cache=True)
def squares_moved(moved: Array, of_center: Array, white: Array) -> Array:
    """How much a skewness correction changes −log N(f; m, K), for each row.

    In whitened coordinates it moves ν = ν̂ ± δ to ν + d, so the change is ½ |ν + d|² − ½ |ν|².
    """
    N, n = white.shape
    out = np.empty(len(moved))
    for k in range(len(moved)):
        total, sign = 0.0, 1.0 if k < N else -1.0
        for i in range(n):
            d = moved[k, i]
            total += d * (0.5 * d + of_center[i] + sign * white[k % N, i])
        out[k] = total
    return out


@numba.njit(cache=True, inline="always")
def _largest(x: Array) -> float:
    """Largest element, or NaN if one is NaN."""
    largest = -np.inf
    for each in x:
        if each > largest or math.isnan(each):
            largest = each
    return largest


@numba.njit(cache=True, error_model="numpy")
def estimate_of(log_weights: Array) -> tuple[float, float]:
    """Return log(mean weight) and its standard error, which is sd(weights) / (√N mean weight).

    The standard error is that of the delta method.
    """
    N, largest = log_weights.size, _largest(log_weights)
    if largest == -np.inf:
        return -np.inf, np.nan
    weights = np.empty(N)
    total = 0.0
    square = 0.0
    for k in range(N):
        weights[k] = math.exp(log_weights[k] - largest)
        total += weights[k]
    mean = total / N
    for weight in weights:
        square += (weight - mean) ** 2
    sd = math.sqrt(square / (N - 1) / N) / mean if N > 1 else np.nan
    return math.log(mean) + largest, sd


@numba.njit(cache=True)
def one_by_weight(log_weights: Array, u: float) -> int:
    """Draw an index with probability proportional to its weight, from a uniform number u.

    It is the first index at which the cumulative weight exceeds u times the sum. If all weights are
    0, it is 0.
    """
    N = log_weights.size
    largest = _largest(log_weights)
    total = 0.0
    if largest == -np.inf:
        return 0
    weights = np.empty(N)
    best = 0
    for k in range(N):
        weights[k] = math.exp(log_weights[k] - largest)
        total += weights[k]
    left = u * total
    for k in range(N):
        left -= weights[k]
        if left < 0.0:
            return k
        if weights[k] > weights[best]:
            best = k
    return best  # u is close to 1, and rounding lets no index exceed it


def pareto_shape(log_weights: Array) -> float:
    """k̂ of importance weights: shape of a generalized Pareto distribution fitted to the largest.

    The fit uses the min(N/5, 3√N) largest weights, and by how much each exceeds the next smaller
    weight. It is the estimator of Zhang and Stephens (2009), a posterior mean over θ = −k/σ on a
    grid of 30 + √(number of excesses) points. With few excesses k̂ is shrunk towards ½, with the
    weight of 10 excesses (Vehtari, Simpson, Gelman, Yao and Gabry 2024, appendices C and G). It is
    NaN for fewer than 6 excesses, that is for N < 30.

    Examples
    --------
    >>> import numpy as np
    >>> u = (np.arange(1000) + 0.5) / 1000
    >>> round(pareto_shape(-0.7 * np.log(u)), 1)  # P(w > x) = x^(-1/0.7)
    0.7
    """
    N = log_weights.size
    tail = int(min(N / 5, 3 * math.sqrt(N)))
    if tail < 6 or log_weights.max() == -np.inf:
        return np.nan
    # NumPy's sort, since Numba's takes seconds to compile.
    ordered = np.exp(np.sort(log_weights)[N - tail - 1 :] - log_weights.max())
    shape: float = _shape_of_tail(ordered[1:] - ordered[0])
    return shape


@numba.njit(cache=True, error_model="numpy")
def _shape_of_tail(x: Array) -> float:
    """k̂ of the sorted excesses x."""
    tail = x.size
    quarter, largest = x[int(tail / 4 + 0.5) - 1], x[tail - 1]
    if not quarter > x[0]:  # many equal excesses: not a generalized Pareto distribution
        return np.nan
    if quarter < 1e-100 * largest:  # one weight has the whole sum
        return np.inf
    points = 30 + int(math.sqrt(tail))
    theta, log_profile = np.empty(points), np.empty(points)
    for i in range(points):
        theta[i] = 1 / largest + (1 - math.sqrt(points / (i + 0.5))) / (3 * quarter)
        k = _shape(theta[i], x)
        log_profile[i] = tail * (math.log(-theta[i] / k) - k - 1)
    best = _largest(log_profile)
    total = 0.0
    average = 0.0
    for i in range(points):
        posterior = math.exp(log_profile[i] - best)
        total += posterior
        average += posterior * theta[i]
    return (_shape(average / total, x) * tail + 0.5 * 10) / (tail + 10)


@numba.njit(cache=True)
def _shape(theta: float, x: Array) -> float:
    """Mean of log(1 − θ x), which is the shape k given θ = −k/σ."""
    total = 0.0
    for excess in x:
        total += math.log1p(-theta * excess)
    return total / x.size
