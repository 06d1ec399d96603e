"""A move of one component of theta under its prior, accepted or rejected by the evidence.

If the data are uninformative about a component, such as the length-scale of an irrelevant input,
its posterior is close to the prior. If one tail of the prior is stiff and the other long, a
trajectory needs many steps where one jump is enough.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np

from pymc_lgm.compile.loops.callbacks import LogDensity
from pymc_lgm.linalg import Array
from pymc_lgm.moves.theta.slice_of_prior import slice_of_prior
from pymc_lgm.state import State, acceptance_probability
from pymc_lgm.targets.target import Target

__all__ = ["jump_of_target", "prior_jump"]


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
