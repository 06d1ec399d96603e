"""One component of theta moves as its prior would have it; the evidence accepts.

Where data say little of a component, as of the length-scale of an input that does not matter, its
posterior is next to the prior, however stiff one tail of that is and however long the other: a
trajectory needs many steps for what one jump does.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pymc_lgm.kernels.hold.target import Slope, Target
from pymc_lgm.kernels.theta.slice import slice_componentwise
from pymc_lgm.linalg import Array
from pymc_lgm.state import acceptance_probability

__all__ = ["prior_jump"]

WIDTH, WIDTHS = 3.0, 5
"""Of the interval that is placed around a component, and how many of them it steps out to."""


def prior_jump(
    rng: np.random.Generator,
    here: Slope,
    slope: Callable[[Array], Slope | None],
    log_prior: Callable[[Array], float],
) -> Slope:
    """Leave π*(theta) = p*(y | theta) p(theta) invariant, reversibly.

    A slice (Neal 2003) of p(theta) along one component, drawn at random, is reversible for the
    prior. As a proposal for π* it is accepted with probability

        min(1, p*(y | theta') / p*(y | theta)).

    Parameters
    ----------
    rng : numpy.random.Generator
    here : Slope
        Of log π*.
    slope : callable
        log π* elsewhere, ``None`` where there is none. Its gradient is not looked at.
    log_prior : callable
        log p(theta).

    Returns
    -------
    Slope
        ``here`` if the proposal is rejected. One evaluation of π*, some ten of the prior.
    """

    def prior(theta: Array) -> tuple[float, Slope]:
        log_density = log_prior(theta)
        return log_density, Slope(theta, log_density, here.gradient)

    log_density, at = prior(here.theta)
    component = int(rng.integers(here.theta.size))
    moved, _ = slice_componentwise(
        rng,
        Target(at, log_density, prior),  # type: ignore[arg-type]  # of a state theta alone is read
        widths=np.full(here.theta.size, WIDTH),
        max_widths=WIDTHS,
        components=[component],
    )
    there = None if moved.theta is at.theta else slope(moved.theta)
    if there is None:
        return here
    before, after = (x.log_density - log_prior(x.theta) for x in (here, there))
    return there if rng.uniform() < acceptance_probability(after - before) else here
