"""Importance weights: their mean and its spread, how heavy their tail is, one draw by weight."""

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
    """Rows f̂ + δ, and with ``pairs`` f̂ − δ after them."""
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
    deviations: Array, seen: Array, dual: Array, z: Array, pairs: bool
) -> Array:
    """−½ ẑᵀ a ∓ δᵀ a + ½ δᵀ W δ of `mirrored` rows: see `GaussianApproximation.log_weights`."""
    N, n = deviations.shape
    out, of_center = np.empty(2 * N if pairs else N), 0.0
    for i in range(n):
        of_center -= 0.5 * z[i] * dual[i]
    for k in range(N):
        along, square = 0.0, 0.0
        for i in range(n):
            along += deviations[k, i] * dual[i]
            square += deviations[k, i] * seen[k, i]
        out[k] = of_center - along + 0.5 * square
        if pairs:
            out[N + k] = of_center + along + 0.5 * square
    return out


@numba.njit(cache=True)
def squares_moved(moved: Array, of_center: Array, white: Array, pairs: bool) -> Array:
    """½ |ν + d|² − ½ |ν|² of rows ν = ν̂ ± δ and d: what a bend adds to −log N(f; m, K)."""
    N, n = white.shape
    out = np.empty(len(moved))
    for k in range(len(moved)):
        total, sign = 0.0, 1.0 if k < N else -1.0
        for i in range(n):
            d = moved[k, i]
            total += d * (0.5 * d + of_center[i] + sign * white[k % N, i])
        out[k] = total
    return out


@numba.njit(cache=True, error_model="numpy")
def estimate_of(log_weights: Array) -> tuple[float, float]:
    """Log of the mean weight, and its standard deviation by the delta method."""
    N, largest = log_weights.size, log_weights.max()
    if largest == -np.inf:
        return -np.inf, np.nan
    weights = np.exp(log_weights - largest)
    mean = weights.sum() / N
    square = 0.0
    for weight in weights:
        square += (weight - mean) ** 2
    sd = math.sqrt(square / (N - 1) / N) / mean if N > 1 else np.nan
    return math.log(mean) + largest, sd


@numba.njit(cache=True)
def one_by_weight(log_weights: Array, u: float) -> int:
    """The first index up to which the weights have more than a share u of their sum; else 0."""
    largest = log_weights.max()
    if largest == -np.inf:
        return 0
    weights = np.exp(log_weights - largest)
    left = u * weights.sum()
    for k in range(weights.size):
        left -= weights[k]
        if left < 0.0:
            return k
    return int(log_weights.argmax())  # u is next to 1, and rounding has left none


def pareto_shape(log_weights: Array) -> float:
    """k̂ of importance weights: the shape of a generalized Pareto law fitted to the largest.

    The min(N/5, 3√N) largest exceed the next one by amounts whose shape Zhang and Stephens (2009)
    estimate by a posterior mean over θ = −k/σ, drawn a little towards ½ where they are few
    (Vehtari, Simpson, Gelman, Yao and Gabry 2024, appendices C and G). NaN for fewer than 6 of
    them, that is N < 30.

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
    # NumPy sorts: Numba's sort takes seconds to compile.
    ordered = np.exp(np.sort(log_weights)[N - tail - 1 :] - log_weights.max())
    shape: float = _shape_of_tail(ordered[1:] - ordered[0])
    return shape


@numba.njit(cache=True, error_model="numpy")
def _shape_of_tail(x: Array) -> float:
    """k̂ of the excesses x, in order."""
    tail = x.size
    quarter, largest = x[int(tail / 4 + 0.5) - 1], x[tail - 1]
    if not quarter > x[0]:  # ties: far from any such law
        return np.nan
    if quarter < 1e-100 * largest:  # one weight has it all
        return np.inf
    points = 30 + int(math.sqrt(tail))
    theta, log_profile = np.empty(points), np.empty(points)
    for i in range(points):
        theta[i] = 1 / largest + (1 - math.sqrt(points / (i + 0.5))) / (3 * quarter)
        k = _shape(theta[i], x)
        log_profile[i] = tail * (math.log(-theta[i] / k) - k - 1)
    posterior = np.exp(log_profile - log_profile.max())
    average = (posterior * theta).sum() / posterior.sum()
    return (_shape(average, x) * tail + 0.5 * 10) / (tail + 10)


@numba.njit(cache=True)
def _shape(theta: float, x: Array) -> float:
    """Mean of log(1 − θ x): the shape k, given θ = −k/σ."""
    total = 0.0
    for excess in x:
        total += math.log1p(-theta * excess)
    return total / x.size
