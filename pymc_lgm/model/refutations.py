"""Looks at numbers: they may refute what has been read of a model, and never establish it.

The structure of a model follows from its graph. While a chain runs, `pymc_lgm.model.check` compares
it with PyMC's density. Before a chain starts, numbers are looked at in this module only.
A look may refuse a model, or a form of f that has no density.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from numpy.typing import NDArray
from pymc.vartypes import continuous_types

from pymc_lgm.linalg import Array, factorize
from pymc_lgm.model import refusals

__all__ = [
    "TOLERANCE",
    "VAGUE",
    "generator",
    "has_curvature",
    "is_flat",
    "loses_digits",
    "moved_a_little",
    "refuse_what_is_not_affine",
    "thetas_near",
]

Variable = Any

SEED = 0

AWAY = 0.3
"""Of a theta beside the start, on the scale that it is sampled on: nothing is zero there by chance,
and nothing is far from where it can be computed."""

TOLERANCE = 1e-8
"""Of two numbers that should be equal, as a share of their size."""

VAGUE = 1e9
"""Variance of a predictor by its coefficients beyond which effects are no part of a dense K.

K_ii is rounded by 1e-16 of that, and log|I + W^½ K W^½| by n W_i as much: at a hundred observations
of precision 10 by 1e-4.
"""

LOOKS = 8
"""Theta beside the start at which a rank is looked at."""


def generator() -> np.random.Generator:
    """Random numbers for looks, the same in each: a model is read alike wherever it is read."""
    return np.random.default_rng(SEED)


def thetas_near(
    at: Array, count: int, rng: np.random.Generator, *, away: float = AWAY
) -> list[Array]:
    """The start, and as many theta beside it: where a coefficient starts at 0 it hides a term."""
    return [at, *(at + away * rng.standard_normal((count, at.size)))]


@contextmanager
def moved_a_little(others: Sequence[Variable], rng: np.random.Generator) -> Iterator[None]:
    """Look at a model where other steps have moved their continuous variables."""
    kept = [(v, v.get_value()) for v in others if v.dtype in continuous_types]
    try:
        for v, value in kept:
            v.set_value(value + AWAY * rng.standard_normal(value.shape))
        yield
    finally:
        for v, value in kept:
            v.set_value(value)


def refuse_what_is_not_affine(values: Array, c: Array, A: Array, x: Array) -> None:
    """Raise if a predictor has other values at rows x (k, N) than c + A x, (k, E)."""
    size = 1.0 + np.abs(c)
    if not np.allclose(values, c + x @ A.T, rtol=TOLERANCE, atol=TOLERANCE * size):
        raise ValueError(refusals.not_affine())


def loses_digits(cov: Callable[[Array], Any], at: Array, largest: float) -> bool:
    """Whether a covariance cannot be factorized, or has a larger variance, at one of a few theta.

    As that of a smooth process by basis functions, where what multiplies the last of them vanishes.
    """
    with np.errstate(all="ignore"):
        covs = (
            np.array(cov(theta), order="F")
            for theta in thetas_near(at, LOOKS, generator(), away=1.0)
        )
        return any(
            np.isfinite(C).all() and (np.diag(C).max() > largest or factorize(C) is None)
            for C in covs
        )


def has_curvature(curvature: Callable[[Array], Array], n: int) -> bool:
    """Whether a likelihood has some, or one that is not finite, where all f_i are one of a few."""
    found = (curvature(np.full(n, x)) for x in (0.0, -1.0, 1.0, -3.0, 3.0))
    return any((W > 0.0).any() or not np.isfinite(W).all() for W in found)


def is_flat(gradient: Callable[[Array], Array], sets: NDArray[np.intp], n: int) -> bool:
    """Whether a likelihood has no slope where one latent of each observation is far above all."""
    f = np.full(n, -30.0)
    f[sets[:, 0]] = 30.0
    return bool((np.abs(gradient(f)) < TOLERANCE).all())
