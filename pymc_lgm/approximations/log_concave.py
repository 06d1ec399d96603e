"""Exact draws from log-concave densities of one variable.

The method is rejection sampling. The envelope consists of the exponentials of three tangents, since
a log-concave density lies below its tangents (Gilks and Wild 1992, *Adaptive rejection sampling for
Gibbs sampling*, Applied Statistics 41). Unlike theirs it is not refined after a rejection, since
three tangents are accepted often enough: see `LEAST_RISE`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from numpy.typing import NDArray

from pymc_lgm.linalg import Array

__all__ = ["draw_log_concave"]

MOST_STEPS = 60
"""Largest number of halvings, doublings or widenings in a search for tangents. 60 halvings leave
1e-18 of an interval, which is less than a rounding error."""

LEAST_RISE = 0.3
"""An outer tangent must rise by at least this many nats towards the middle. A flatter one would
have a long tail, from which most proposals would be rejected.

The number of proposals per draw was measured on random effects of counts and of binomial
observations, with standard deviations of 0.3 to 3. It is 1.15 to 1.2 for a least rise from 0.03 to
1, and up to 1.4 for a least rise of 3.
"""

MOST_PROPOSALS = 1000
"""Largest number of proposals of a draw. At an acceptance of 0.8 one draw in two million takes more
than nine, so only a density that is not finite takes as many."""

ROUNDING = 1e-6
"""Nats, relative to the log density, by which a density may lie above its tangents."""

FLAT = 1e-8
"""Rise along a piece, in nats, below which a tangent is replaced by a constant.

The relative error is half of the rise, and (1 − e^−rise) / rise would be no more accurate.
"""

BoolArray = NDArray[np.bool_]

LogDensity = Callable[[Array], tuple[Array, Array]]
"""Rows of w, shape (N, n) -> log densities and their derivatives, both (N, n)."""


def draw_log_concave(
    rng: np.random.Generator, log_density: LogDensity, center: Array, scale: Array
) -> Array:
    """Draw n independent variables exactly, each from its log-concave density.

    Parameters
    ----------
    rng : numpy.random.Generator
    log_density : callable
        Log densities, each up to a constant.
    center, scale : ndarray, shape (n,)
        A point near the mode, and about a standard deviation. They affect only the acceptance rate.

    Returns
    -------
    ndarray, shape (n,)

    Raises
    ------
    ValueError
        If a density is found to lie above its tangents, and so is not log-concave, or if it is not
        finite.
    """
    t, value, slope = _tangents(log_density, center, scale)
    cuts, log_mass = _envelope(t, value, slope)
    mass = np.exp(log_mass - log_mass.max(axis=0))
    cumulative = np.cumsum(mass / mass.sum(axis=0), axis=0)
    w, pending = t[1].copy(), np.arange(center.size)
    for _ in range(MOST_PROPOSALS):
        if not pending.size:
            return w
        piece = (rng.random(pending.size) > cumulative[:2, pending]).sum(axis=0)
        at, high, rise = (x[piece, pending] for x in (t, value, slope))
        x = _within(rng.random(pending.size), rise, cuts[piece, pending], cuts[piece + 1, pending])
        rows = w.copy()
        rows[pending] = x
        excess = log_density(rows[None])[0][0, pending] - high - rise * (x - at)
        if (excess > ROUNDING * (1.0 + np.abs(high))).any():
            raise ValueError(
                "A density is not log-concave, so its effects cannot be drawn by tangents."
            )
        is_accepted = np.log(rng.random(pending.size)) < excess
        w[pending[is_accepted]] = x[is_accepted]
        pending = pending[~is_accepted]
    raise ValueError("A density is not finite where its effects are drawn.")


def _tangents(log_density: LogDensity, center: Array, scale: Array) -> tuple[Array, Array, Array]:
    """Three tangents: one near the mode, and one on each side where the density has decreased."""

    def rises(w: Array, slope: Array) -> BoolArray:
        # If a rate overflows, |w| is too large.
        return np.where(np.isnan(slope), w < 0.0, slope > 0.0)

    # Widen an interval until it has the mode. Then halve it until the tangent at its middle changes
    # by less than a nat on it.
    low, high = center - scale, center + scale
    for _ in range(MOST_STEPS):
        ends = np.array([low, high])
        below, above = rises(ends, log_density(ends)[1]) == [[True], [False]]
        if (below & above).all():
            break
        width = high - low
        low, high = np.where(below, low, low - width), np.where(above, high, high + width)
    for _ in range(MOST_STEPS):
        mode = 0.5 * (low + high)
        slope = log_density(mode[None])[1][0]
        far = ~(np.abs(slope) * (high - low) < 1.0)
        if not far.any():
            break
        up = rises(mode, slope)
        low, high = np.where(far & up, mode, low), np.where(far & ~up, mode, high)
    # Move the outer tangents away from the mode if they are too flat, and back if the density is
    # not finite there.
    sides = np.array([-0.5, 0.0, 0.5])[:, None] * (high - low)
    for _ in range(MOST_STEPS):
        t = mode + sides
        value, slope = log_density(t)
        is_known = np.isfinite(value) & np.isfinite(slope)
        with np.errstate(invalid="ignore"):
            is_steep = -slope * sides > LEAST_RISE
        is_known[1] = is_steep[1] = True  # the tangent at the mode may be flat
        if (is_known & is_steep).all():
            break
        sides = np.where(is_known, np.where(is_steep, sides, 2.0 * sides), 0.5 * sides)
    return t, value, slope


def _envelope(t: Array, value: Array, slope: Array) -> tuple[Array, Array]:
    """Intersections of the three tangents, with ±∞, and the log mass below each tangent."""
    gaps = (value[1:] - value[:-1] - slope[1:] * t[1:] + slope[:-1] * t[:-1]) / (
        slope[:-1] - slope[1:]
    )
    edge = np.full((1, t.shape[1]), np.inf)
    cuts = np.vstack([-edge, gaps, edge])
    # Integrate each piece downwards from its higher end. Its length may be infinite.
    top = value + slope * (np.where(slope > 0.0, cuts[1:], cuts[:-1]) - t)
    length, steep = cuts[1:] - cuts[:-1], np.abs(slope)
    with np.errstate(divide="ignore", invalid="ignore"):
        is_flat = steep * length < FLAT
        mass = np.where(is_flat, length, -np.expm1(-steep * length) / steep)
    return cuts, top + np.log(mass)


def _within(u: Array, slope: Array, low: Array, high: Array) -> Array:
    """x between low and high with density ∝ exp(slope x), from a uniform u."""
    steep = np.abs(slope)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        length = high - low
        # The distance from the higher end is exponential, truncated at the piece's length.
        exponential = -np.log1p(u * np.expm1(-steep * length)) / steep
        distance = np.where(steep * length < FLAT, u * length, exponential)
    return np.where(slope > 0.0, high - distance, low + distance)
