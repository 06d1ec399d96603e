"""How heavy the tail of importance weights is."""

from __future__ import annotations

import math

import numpy as np

from pymc_lgm.linalg import Array

__all__ = ["pareto_shape"]


def pareto_shape(weights: Array) -> float:
    """k̂ of importance weights: the shape of a generalized Pareto law fitted to the largest.

    The min(N/5, 3√N) largest exceed the next one by amounts whose shape Zhang and Stephens (2009)
    estimate by a posterior mean over θ = −k/σ, drawn a little towards ½ where they are few
    (Vehtari, Simpson, Gelman, Yao and Gabry 2024, appendices C and G). NaN for fewer than 6 of
    them, that is N < 30.

    Examples
    --------
    >>> import numpy as np
    >>> u = (np.arange(1000) + 0.5) / 1000
    >>> round(pareto_shape(u**-0.7), 1)  # P(w > x) = x^(-1/0.7)
    0.7
    """
    tail = int(min(weights.size / 5, 3 * math.sqrt(weights.size)))
    if tail < 6:
        return math.nan
    ordered = np.sort(weights)
    x = ordered[-tail:] - ordered[-tail - 1]
    quarter = x[int(tail / 4 + 0.5) - 1]
    if not quarter > x[0]:  # ties: far from any such law
        return math.nan
    if quarter < 1e-100 * x[-1]:  # one weight has it all
        return math.inf
    points = 30 + math.isqrt(tail)
    grid = 1 - np.sqrt(points / (np.arange(points) + 0.5))
    theta = 1 / x[-1] + grid / (3 * quarter)
    k = np.log1p(-theta[:, None] * x).mean(axis=1)
    log_profile = tail * (np.log(-theta / k) - k - 1)
    posterior = np.exp(log_profile - log_profile.max())
    average = float(posterior @ theta / posterior.sum())
    shape = float(np.log1p(-average * x).mean())
    return (shape * tail + 0.5 * 10) / (tail + 10)
