"""Slice sampling of theta, one component after another, for any deterministic target.

Neal (2003), *Slice sampling*, Annals of Statistics 31: stepping out (Figure 3) and shrinkage
(Figure 5). Without stepping out it is the move of Murray and Adams (2010), Algorithm 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pymc_lgm.adaptation import WidthTuning
from pymc_lgm.linalg import Array
from pymc_lgm.moves.element import Stats
from pymc_lgm.state import State
from pymc_lgm.targets.target import Target

__all__ = ["Slice", "SliceInfo", "slice_componentwise"]

MAX_SHRINKS = 100
"""Largest number of shrinkages, after which an interval has no length left."""


class SliceInfo(NamedTuple):
    """Statistics of one move of all components."""

    theta_acceptance: float
    """Share of the points tried inside an interval that was accepted."""

    theta_evaluations: int
    """Evaluations of the target."""

    jumps: Array
    """theta' − theta, shape (p,), from which tuning learns."""


def slice_componentwise(
    rng: np.random.Generator,
    target: Target,
    *,
    widths: Array,
    max_widths: int = 1,
    components: Sequence[int] | None = None,
) -> tuple[State, SliceInfo]:
    """Leave the target invariant by slice sampling each component of theta, in random order.

    For component j draw a height u π(theta), u ~ U(0, 1), and place an interval of length w_j at
    random around theta_j. Draw theta_j' from the interval until π(theta') exceeds the height; a
    point that does not becomes the end of the interval on its side of theta_j.

    Parameters
    ----------
    rng : numpy.random.Generator
    target : Target
        A deterministic function of theta: it is not fixed again between components.
    widths : ndarray, shape (p,)
        w. Too wide costs the logarithm of the excess; too narrow makes small moves.
    max_widths : int
        m of Neal's Figure 3: the interval steps out to at most this many widths. With 1 it stays as
        it was placed.
    components : sequence of int, optional
        Those to move; by default all.

    Notes
    -----
    With a good width a component takes 2 to 4 evaluations of the target; stepping out takes two
    more. An interval that has shrunk `MAX_SHRINKS` times leaves its component where it was, which
    is exact: the points rejected on the way from theta to theta' are those rejected on the way
    back.
    """
    state, log_density = target.state, target.log_density
    start = state.theta
    components = range(start.size) if components is None else components
    tries = evaluations = 0
    for j in rng.permutation(components):
        line = _Line(target, state.theta, int(j))
        threshold = log_density - rng.standard_exponential()
        low = line.x - widths[j] * rng.uniform()
        low, high = _step_out(rng, line, threshold, low, low + widths[j], max_widths)
        stepping = line.evaluations
        for _ in range(MAX_SHRINKS):
            x = rng.uniform(low, high)
            density_there, there = line(x)
            if there is not None and density_there > threshold:
                state, log_density = there, density_there
                break
            if x < line.x:
                low = x
            else:
                high = x
        tries += line.evaluations - stepping
        evaluations += line.evaluations
    return state, SliceInfo(len(components) / tries, evaluations, state.theta - start)


class _Line:
    """The target along component j through theta, with a count of its evaluations."""

    def __init__(self, target: Target, theta: Array, j: int):
        self.target, self.theta, self.j = target, theta, j
        self.x = float(theta[j])
        self.evaluations = 0

    def __call__(self, x: float) -> tuple[float, State | None]:
        self.evaluations += 1
        theta = self.theta.copy()
        theta[self.j] = x
        return self.target.evaluate(theta)


def _step_out(
    rng: np.random.Generator, line: _Line, threshold: float, low: float, high: float, widths: int
) -> tuple[float, float]:
    """Let each end step out by widths for as long as it is in the slice (Neal's Figure 3)."""
    width = high - low
    # How many widths each end may take is drawn beforehand: from any point of the final interval
    # the same interval is then as likely.
    left = int(rng.integers(widths))
    for _ in range(left):
        if not line(low)[0] > threshold:
            break
        low -= width
    for _ in range(widths - 1 - left):
        if not line(high)[0] > threshold:
            break
        high += width
    return low, high


@dataclass(frozen=True)
class Slice:
    """Slice sampling of each component of theta; learns the widths."""

    width: float = 2.0
    max_widths: int = 1
    stats = ("theta_acceptance", "theta_evaluations", "theta_scale")
    needs_gradient = False
    tunes = "width"

    def start(self, state: State, tune: int) -> WidthTuning:
        """Begin with the same width for every component."""
        return WidthTuning.start(state.theta.size, self.width)

    def run(
        self, rng: np.random.Generator, target: Target, tuning: WidthTuning, tune: bool
    ) -> tuple[State, WidthTuning, Stats]:
        """Move every component once."""
        state, info = slice_componentwise(
            rng, target, widths=tuning.widths, max_widths=self.max_widths
        )
        stats = {
            "theta_acceptance": info.theta_acceptance,
            "theta_evaluations": float(info.theta_evaluations),
            "theta_scale": tuning.scale,
        }
        if tune:
            tuning = tuning.update(info.jumps)
        return state, tuning, stats
