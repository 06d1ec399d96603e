"""One component of theta moves as its prior would have it; the evidence accepts.

Where data say little of a component, as of the length-scale of an input that does not matter, its
posterior is next to the prior, however stiff one tail of that is and however long the other: a
trajectory needs many steps for what one jump does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np

from pymc_lgm.kernels.hold.target import Target
from pymc_lgm.kernels.theta.slice import slice_componentwise
from pymc_lgm.linalg import Array
from pymc_lgm.state import State, acceptance_probability

__all__ = ["jump_of_target", "prior_jump"]

WIDTH, WIDTHS = 3.0, 5
"""Of the interval that is placed around a component, and how many of them it steps out to."""


class _Point(Protocol):
    """Theta, and log π* there."""

    @property
    def theta(self) -> Array: ...

    @property
    def log_density(self) -> float: ...


class _OfPrior(NamedTuple):
    theta: Array


def prior_jump[P: _Point](
    rng: np.random.Generator,
    here: P,
    look: Callable[[Array], P | None],
    log_prior: Callable[[Array], float],
) -> P:
    """Leave π*(theta) = p*(y | theta) p(theta) invariant, reversibly.

    A slice (Neal 2003) of p(theta) along one component, drawn at random, is reversible for the
    prior. As a proposal for π* it is accepted with probability

        min(1, p*(y | theta') / p*(y | theta)).

    Parameters
    ----------
    rng : numpy.random.Generator
    here : point
        With ``theta`` and ``log_density``, log π*.
    look : callable
        Theta -> the point there, ``None`` where π* is not known.
    log_prior : callable
        log p(theta).

    Returns
    -------
    point
        ``here`` if the proposal is rejected. One evaluation of π*, some ten of the prior.
    """

    def prior(theta: Array) -> tuple[float, _OfPrior]:
        return log_prior(theta), _OfPrior(theta)

    log_density, at = prior(here.theta)
    component = int(rng.integers(here.theta.size))
    moved, _ = slice_componentwise(
        rng,
        Target(at, log_density, prior),  # type: ignore[arg-type]  # of a state theta alone is read
        widths=np.full(here.theta.size, WIDTH),
        max_widths=WIDTHS,
        components=[component],
    )
    there = None if moved.theta is at.theta else look(moved.theta)
    if there is None:
        return here
    before, after = (x.log_density - log_prior(x.theta) for x in (here, there))
    return there if rng.uniform() < acceptance_probability(after - before) else here


class _There(NamedTuple):
    theta: Array
    log_density: float
    state: State


def jump_of_target(rng: np.random.Generator, target: Target) -> State:
    """Leave the target invariant by a `prior_jump`: one evaluation, which may be noisy.

    It comes back from where an emulator of the target is too low: there a surrogate transition
    would stay.
    """

    def look(theta: Array) -> _There | None:
        log_density, there = target(theta)
        return None if there is None else _There(theta, log_density, there)

    here = _There(target.state.theta, target.log_density, target.state)
    return prior_jump(rng, here, look, target.state.model.log_prior).state
