"""Exponentials, logarithms and normal tails for vectorized loops, and polygamma functions.

A call of the C library handles one number at a time, and prevents vectorization of the whole loop.
The functions here have neither calls nor branches, so the compiler vectorizes them. They are four
times as fast, with errors of one or two ulp. `polygamma` has a loop; PyTensor would call Python.
`chosen` is a function because Numba compiles a call in a fraction of the time of a condition.
"""

from __future__ import annotations

import math

from typing import Any

import numba
import numpy as np

__all__ = ["chosen", "erfcx", "exp", "expm1", "log", "log1mexp", "log1p", "polygamma", "softplus"]

LARGEST, SMALLEST = 710.0, -708.3
"""Arguments beyond which an exponential is infinite or 0. Below 1e-307 processors are slow."""

ROUNDING = 1.5 * 2.0**52
"""Adding this constant to a number rounds it: the last bits are the nearest integer."""

PER_LOG_2, LOG_2, REST_OF_LOG_2 = 1.0 / math.log(2.0), 0.6931471803691238, 1.9082149292705877e-10
"""log 2 as a sum of two parts. An integer times the first part is exact."""

ONE, ROOT, INTEGERS = (int(np.float64(x).view(np.int64)) for x in (1.0, math.sqrt(0.5), 2.0**52))
"""Bit patterns of doubles. The last bits of the third are an integer, too."""

EXP = np.array([1.0 / math.factorial(k) for k in range(2, 14)])
LOG = np.array([2.0 / (2 * k + 3) for k in range(10)])

# (x + 4) erfcx(x), x ≥ 0, in powers of (x − 4)/(x + 4): interpolated at Chebyshev points, to 7e-17.
# In two parts, since LLVM does not unroll long loops before it vectorizes.
ERFCX = np.array(
    [
        *(1.095995661000491, -0.9765487290808824, 0.7732087022652306, -0.5408538313131976),
        *(0.33085158787831587, -0.1740109372408923, 0.07638151490371081, -0.026370053329181024),
        *(0.006112055708386392, -0.0002809589359391201, -0.00045505297165692805),
        *(0.0001768130806560407, -3.6342038149469713e-06, -1.8861473378981353e-05),
        *(4.692383913754639e-06, 1.4249464173304702e-06, -8.436516120561793e-07),
        *(-7.596899328669503e-08, 1.225288207064525e-07, 8.238240856147602e-10),
        *(-1.527528889990648e-08, 2.654454508348017e-10, 1.2073816594065525e-09, 0.0),
    ]
)
ERFCX_LOW, ERFCX_HIGH = ERFCX[:12], ERFCX[12:]

BERNOULLI = np.array([1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510])
"""B_2, B_4, …, B_16."""

FAR = 16.0
"""Smallest argument for which the asymptotic series of a polygamma function is accurate."""


def _inlined(function: Any) -> Any:
    """Compile a function that is always inlined, since a call prevents vectorization."""
    return numba.njit(
        function, cache=True, fastmath={"contract"}, error_model="numpy", forceinline=True
    )


@_inlined
def chosen(condition: bool, x: float, y: float) -> float:
    """x if a condition holds, and y otherwise."""
    return x if condition else y


@_inlined
def exp(x: float) -> float:
    """exp(x) = 2ᵏ exp(r), |r| ≤ log(2)/2, by a polynomial in r; NaN, infinities and zero as usual.

    Examples
    --------
    >>> abs(exp(1.0) / 2.718281828459045 - 1.0) < 3e-16, exp(-1000.0), exp(1000.0)
    (True, 0.0, inf)
    """
    p, k = _reduced(x)
    value: float = _whole(p, k)
    return value * (x >= SMALLEST)


@_inlined
def expm1(x: float) -> float:
    """exp(x) − 1, accurate near zero."""
    p, k = _reduced(x)
    less: float = _whole(p, k) - 1.0
    return less if k != 0 else p


@_inlined
def log(x: float) -> float:
    """log(x); NaN, infinities and zero as usual."""
    value: float = _log_of_any(x, 0.0)
    return value


@_inlined
def log1p(x: float) -> float:
    """log(1 + x), accurate near zero."""
    y = 1.0 + x
    value: float = _log_of_any(y, x - (y - 1.0))
    return value


@_inlined
def log1mexp(x: float) -> float:
    """log(1 − exp(x)), accurate if either term is small."""
    e, y = exp(x), -expm1(x)
    rest = (1.0 - y) - e
    value: float = _log_of_any(y, rest if x < -0.5 else 0.0)
    return value


@_inlined
def softplus(x: float) -> float:
    """log(1 + exp(x)) = max(x, 0) + log(1 + exp(−|x|))."""
    e = exp(-abs(x))
    y = 1.0 + e
    small: float = _log_of_sum(y, e - (y - 1.0))
    return (x if x > 0.0 else 0.0) + small


@_inlined
def erfcx(x: float) -> float:
    """exp(x²) erfc(x), by a polynomial as Shepherd and Laframboise (1981), *Math. Comp.* 36."""
    share = 1.0 / (abs(x) + 4.0)
    t = 1.0 - 8.0 * share
    # Term by term, since even and odd terms would cancel here.
    p = ERFCX_LOW[11]
    for k in range(10, -1, -1):
        p = p * t + ERFCX_LOW[k]
    power = t * t * (t * t)
    p += power * power * power * _series(ERFCX_HIGH, t)
    tail: float = p * share
    other = 2.0 * exp(x * x) - tail
    return other if x < 0.0 else tail


@numba.njit(cache=True, error_model="numpy")
def polygamma(n: int, x: float) -> float:
    """ψ⁽ⁿ⁾(x) for n ≥ 1 and x ≥ 0: Abramowitz and Stegun (1964), 6.4.6 and 6.4.11.

    Examples
    --------
    >>> abs(polygamma(1, 1.0) / (math.pi**2 / 6.0) - 1.0) < 1e-15, polygamma(1, -0.5)
    (True, nan)
    """
    if not x >= 0.0:
        return math.nan
    factorial = 1.0  # n!
    for k in range(2, n + 1):
        factorial *= k
    total = 0.0  # (−1)ⁿ⁺¹ ψ⁽ⁿ⁾(x) / n!
    while x < FAR:
        total += x ** -(n + 1.0)
        x += 1.0
    total += x**-n * (1.0 / n + 0.5 / x)
    term = x ** -(n + 2.0) * (n + 1.0) / 2.0  # (2k + n − 1)! / (n! (2k)!) x^(−2k − n), for k = 1
    for k in range(len(BERNOULLI)):
        total += BERNOULLI[k] * term
        term *= (n + 2 * k + 2.0) * (n + 2 * k + 3.0) / ((2 * k + 3.0) * (2 * k + 4.0) * x * x)
    return total * factorial * (1.0 if n % 2 else -1.0)


@_inlined
def _whole(p: float, k: np.int64) -> float:
    """(p + 1) 2ᵏ, by the bits of two factors of 2ᵏ, which itself may overflow."""
    half = k >> 1
    first = np.int64((half + 1023) << 52).view(np.float64)
    second = np.int64((k - half + 1023) << 52).view(np.float64)
    result: float = (p * first + first) * second
    return result


@_inlined
def _reduced(x: float) -> tuple[float, np.int64]:
    """exp(r) − 1 and k of x = k log(2) + r."""
    x = LARGEST if x > LARGEST else (SMALLEST if x < SMALLEST else x)
    shifted = x * PER_LOG_2 + ROUNDING
    k = shifted - ROUNDING
    r = (x - k * LOG_2) - k * REST_OF_LOG_2
    return _series(EXP, r) * (r * r) + r, (np.float64(shifted).view(np.int64) << 32) >> 32


@_inlined
def _log_of_sum(y: float, rest: float) -> float:
    """log(y + rest) = k log(2) + 2 artanh(s), with y = 2ᵏ m, m from √½ to √2.

    ``rest`` is the rounding error of y. With f = m − 1, s = f/(2 + f) and 2s = f − f²/2 + s f²/2,
    so that f is the main term of a small logarithm.
    """
    bits = np.float64(y).view(np.int64)
    power = (bits - ROOT + ONE) & -(1 << 52)
    k = np.int64((power >> 52) & 0xFFF | INTEGERS).view(np.float64) - (2.0**52 + 1023.0)
    m = np.int64(bits - power + ONE).view(np.float64)
    f = (m - 1.0) + rest * np.int64(2 * ONE - power).view(np.float64)
    s = f / (2.0 + f)
    z, half_square = s * s, 0.5 * f * f
    more = s * (half_square + z * _series(LOG, z)) + k * REST_OF_LOG_2
    value: float = k * LOG_2 + (f - (half_square - more))
    return value


@_inlined
def _log_of_any(y: float, rest: float) -> float:
    """`_log_of_sum` for any y: subnormal, zero, negative or not finite."""
    tiny = y < 2.0**-1022
    value = _log_of_sum(y * 2.0**54 if tiny else y, rest) - (54.0 * math.log(2.0) if tiny else 0.0)
    other = -np.inf if y == 0.0 else (y if y > 0.0 else np.nan)
    return value if (y > 0.0) & (y < np.inf) else other


@_inlined
def _series(c: Any, x: float) -> float:
    """Σ_k c_k xᵏ of 10 or 12 terms; even and odd powers are summed in parallel.

    Without a loop, since for some processors LLVM unrolls a loop only after it has vectorized.
    """
    square = x * x
    even, odd = c[8], c[9]
    if len(c) > 10:
        even, odd = c[10] * square + even, c[11] * square + odd
    even, odd = even * square + c[6], odd * square + c[7]
    even, odd = even * square + c[4], odd * square + c[5]
    even, odd = even * square + c[2], odd * square + c[3]
    even, odd = even * square + c[0], odd * square + c[1]
    result: float = odd * x + even
    return result
