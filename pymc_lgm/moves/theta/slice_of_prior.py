"""A slice of p(theta) along one component, compiled: what `prior_jump` proposes.

Neal (2003), *Slice sampling*, Annals of Statistics 31, Figures 3 and 5, as in
`pymc_lgm.moves.theta.slice`, for a density that costs a microsecond.
"""

from __future__ import annotations

import numba
import numpy as np

from pymc_lgm.compile.loops.callbacks import call
from pymc_lgm.linalg import Array

__all__ = ["slice_of_prior"]

WIDTH = 3.0
"""Width of the initial interval, in units of theta: a factor of 20 for a logarithm."""

WIDTHS = 5
"""Number of widths to which the interval may step out. More would change the cost alone, since
slice sampling is exact for any width (Neal 2003)."""

MAX_SHRINKS = 100
"""An interval that has shrunk so often has no length left: the component stays."""


@numba.njit(cache=True, inline="always")
def slice_of_prior(
    rng: np.random.Generator, theta: Array, prior: int
) -> tuple[Array, float, float]:
    """Leave p(theta) invariant, reversibly, by a slice along one component, drawn at random.

    Parameters
    ----------
    rng : numpy.random.Generator
    theta : ndarray, shape (p,)
    prior : int
        Address of a `pymc_lgm.compile.loops.callbacks.LogDensity`.

    Returns
    -------
    theta' : ndarray, shape (p,)
        Theta itself if the interval has shrunk `MAX_SHRINKS` times.
    log_density, log_density' : float
        log p of theta and of theta'; some ten evaluations.
    """
    out, there = np.empty(1 + theta.size), np.empty(theta.size)
    for i in range(theta.size):
        there[i] = theta[i]
    j = int(rng.random() * theta.size)
    call(prior, there, out)
    here = out[0]
    threshold = here - rng.standard_exponential()
    low = theta[j] - WIDTH * rng.random()
    high = low + WIDTH
    # How many widths each end may take is drawn beforehand: from any point of the final interval
    # the same interval is then as likely.
    left = int(rng.random() * WIDTHS)
    for _ in range(left):
        there[j] = low
        call(prior, there, out)
        if not out[0] > threshold:
            break
        low -= WIDTH
    for _ in range(WIDTHS - 1 - left):
        there[j] = high
        call(prior, there, out)
        if not out[0] > threshold:
            break
        high += WIDTH
    for _ in range(MAX_SHRINKS):
        there[j] = low + (high - low) * rng.random()
        call(prior, there, out)
        if out[0] > threshold:
            return there, here, out[0]
        if there[j] < theta[j]:
            low = there[j]
        else:
            high = there[j]
    there[j] = theta[j]
    return there, here, here
