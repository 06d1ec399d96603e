"""Exponentials that a loop takes of several numbers at once.

A call of the C library's is one number at a time, and keeps all else in a loop from being done
otherwise. Here there is neither a call nor a branch, so the compiler makes vectors of it: four
times as fast, and good to an ulp.
"""

from __future__ import annotations

import math

import numba
import numpy as np

__all__ = ["exp", "expm1"]

LARGEST, SMALLEST = 710.0, -708.3
"""Beyond them an exponential is infinite, or taken for zero: processors are slow below 1e-307."""

ROUNDING = 1.5 * 2.0**52
"""Added to a number, it leaves no fraction: the last digits are the nearest integer."""

PER_LOG_2, LOG_2, REST_OF_LOG_2 = 1.0 / math.log(2.0), 0.6931471803691238, 1.9082149292705877e-10
"""log 2 in two parts: an integer times the first is exact."""

C = tuple(1.0 / math.factorial(k) for k in range(14))


@numba.njit(cache=True, fastmath={"contract"})
def exp(x: float) -> float:
    """exp(x) = 2ᵏ exp(r), |r| ≤ log(2)/2, by a polynomial in r; NaN, infinities and zero as usual.

    Examples
    --------
    >>> abs(exp(1.0) / 2.718281828459045 - 1.0) < 3e-16, exp(-1000.0), exp(1000.0)
    (True, 0.0, inf)
    """
    p, k = _reduced(x)
    return _whole(p, k) if not x < SMALLEST else 0.0


@numba.njit(cache=True, fastmath={"contract"})
def expm1(x: float) -> float:
    """exp(x) − 1, near zero, too."""
    p, k = _reduced(x)
    less = _whole(p, k) - 1.0
    return less if k != 0 else p


@numba.njit(cache=True, fastmath={"contract"})
def _whole(p: float, k: np.int64) -> float:
    """(p + 1) 2ᵏ, by the bits of two factors, since one of them may be no double."""
    half = k >> 1
    first = np.int64((half + 1023) << 52).view(np.float64)
    second = np.int64((k - half + 1023) << 52).view(np.float64)
    result: float = (p * first + first) * second
    return result


@numba.njit(cache=True, fastmath={"contract"})
def _reduced(x: float) -> tuple[float, np.int64]:
    """exp(r) − 1 and k."""
    x = LARGEST if x > LARGEST else (SMALLEST if x < SMALLEST else x)
    shifted = x * PER_LOG_2 + ROUNDING
    k = shifted - ROUNDING
    r = (x - k * LOG_2) - k * REST_OF_LOG_2
    p = C[13]
    p = p * r + C[12]
    p = p * r + C[11]
    p = p * r + C[10]
    p = p * r + C[9]
    p = p * r + C[8]
    p = p * r + C[7]
    p = p * r + C[6]
    p = p * r + C[5]
    p = p * r + C[4]
    p = p * r + C[3]
    p = p * r + C[2]
    return p * r * r + r, (np.float64(shifted).view(np.int64) << 32) >> 32
