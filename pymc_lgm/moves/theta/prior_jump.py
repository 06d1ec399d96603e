"""A move of one component of theta under its prior, accepted or rejected by the evidence.

If the data are uninformative about a component, such as the length-scale of an irrelevant input,
its posterior is close to the prior. If one tail of the prior is stiff and the other long, a
trajectory needs many steps where one jump is enough. The proposal is a slice of the prior: Neal
(2003), *Slice sampling*, Annals of Statistics 31, Figures 3 and 5, as in
`pymc_lgm.moves.theta.slice`, compiled for a density that costs a microsecond.
"""

from __future__ import annotations

import math

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numba
import numpy as np

from pymc_lgm.compile.loops.callbacks import LogDensity, call
from pymc_lgm.linalg import Array
from pymc_lgm.state import State, acceptance_probability
from pymc_lgm.targets.target import Target

__all__ = ["jump_of_target", "prior_jump", "slice_of_prior"]

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
    # An exponential variable: Numba takes longer to compile Generator.standard_exponential.
    threshold = here + math.log1p(-rng.random())
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


class _Point(Protocol):
    """Theta, and log π* there."""

    @property
    def theta(self) -> Array: ...

    @property
    def log_density(self) -> float: ...


def prior_jump[P: _Point](
    rng: np.random.Generator, here: P, look: Callable[[Array], P | None], prior: LogDensity
) -> P:
    """Leave π*(theta) = p*(y | theta) p(theta) invariant, reversibly.

    A `slice_of_prior` is reversible for the prior. As a proposal for π* it is accepted with
    probability

        min(1, p*(y | theta') / p*(y | theta)).

    Parameters
    ----------
    rng : numpy.random.Generator
    here : point
        With ``theta`` and ``log_density``, log π*.
    look : callable
        Theta -> the point there; ``None`` if π* is not known.
    prior : LogDensity
        log p(theta).

    Returns
    -------
    point
        ``here`` if the proposal is rejected. One evaluation of π*, some ten of the prior.
    """
    theta, of_here, of_there = slice_of_prior(rng, here.theta, prior.address)
    prior.check()
    there = None if np.array_equal(theta, here.theta) else look(theta)
    if there is None:
        return here
    before, after = here.log_density - of_here, there.log_density - of_there
    return there if rng.uniform() < acceptance_probability(after - before) else here


class _There(NamedTuple):
    theta: Array
    log_density: float
    state: State


def jump_of_target(rng: np.random.Generator, target: Target) -> State:
    """Leave the target invariant by a `prior_jump`: one evaluation, which may be noisy.

    It can leave regions in which an emulator of the target is too low. A surrogate transition would
    be stuck there.
    """

    def look(theta: Array) -> _There | None:
        log_density, there = target.evaluate(theta)
        return None if there is None else _There(theta, log_density, there)

    here = _There(target.state.theta, target.log_density, target.state)
    return prior_jump(rng, here, look, target.state.model.prior_density).state
