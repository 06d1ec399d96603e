"""Numerical checks, which can refute how a model was read, but never establish it.

The structure of a model follows from its graph. `pymc_lgm.model.check` compares it with PyMC's
density at points. Other checks of values before a chain starts are in this module only. They may
refuse a model, or a form of f without a density.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from numpy.typing import NDArray
from pymc.vartypes import continuous_types

from pymc_lgm.linalg import Array, factorize
from pymc_lgm.model.operations import Variable

__all__ = [
    "TOLERANCE",
    "VAGUE",
    "generator",
    "has_curvature",
    "is_flat",
    "loses_digits",
    "moved_a_little",
    "of_norm_one",
    "rank_of",
    "refuse_what_is_not_affine",
    "thetas_near",
]

SEED = 0
"""Seed of `generator`. Any number would do."""

AWAY = 0.3
"""Standard deviation of a random theta around the start, on the unconstrained scale.

It is large enough that no value is 0 by chance, and small enough that densities can be computed.
"""

TOLERANCE = 1e-8
"""Largest difference of two numbers that should be equal, relative to their size."""

VAGUE = 1e9
"""Largest variance of a predictor from its coefficients with which K may be dense.

K_ii has a rounding error of 1e-16 times this variance, and log|I + W^½ K W^½| one that is n W_i
times as large: 1e-4 for a hundred observations with precision 10.
"""

SMALLEST = 1e-9
"""Singular values below this count as 0, for columns of norm 1."""

LOOKS = 8
"""Number of random theta at which a rank is computed."""


def generator() -> np.random.Generator:
    """A generator with a fixed seed, so that a model is always read in the same way."""
    return np.random.default_rng(SEED)


def thetas_near(
    at: Array, count: int, rng: np.random.Generator, *, away: float = AWAY
) -> list[Array]:
    """The start and random theta near it, since a coefficient that starts at 0 hides a term."""
    return [at, *(at + away * rng.standard_normal((count, at.size)))]


@contextmanager
def moved_a_little(others: Sequence[Variable], rng: np.random.Generator) -> Iterator[None]:
    """A context in which continuous variables of other steps have moved a little."""
    kept = [(v, v.get_value()) for v in others if v.dtype in continuous_types]
    try:
        for v, value in kept:
            v.set_value(value + AWAY * rng.standard_normal(value.shape))
        yield
    finally:
        for v, value in kept:
            v.set_value(value)


def refuse_what_is_not_affine(values: Array, c: Array, A: Array, x: Array) -> None:
    """Raise if the values of a predictor at rows x (k, N) are not c + A x, (k, E)."""
    size = 1.0 + np.abs(c)
    if not np.allclose(values, c + x @ A.T, rtol=TOLERANCE, atol=TOLERANCE * size):
        raise ValueError(
            "The linear predictor is not an affine function of the latent variables, although its "
            "operations are. Name those that enter it linearly: latent=[...]."
        )


def loses_digits(cov: Callable[[Array], Any], at: Array, largest: float) -> bool:
    """Whether a covariance cannot be factorized, or has a larger variance, at one of a few theta.

    An example is a smooth process with basis functions, where the weights of the last functions
    vanish.
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


def rank_of(columns: Array) -> int:
    """The rank of columns scaled to norm 1: short ones would be lost beside long ones."""
    return int(np.linalg.matrix_rank(of_norm_one(columns), tol=SMALLEST))


def of_norm_one(columns: Array) -> Array:
    """Columns divided by their norms; columns of zeros stay as they are."""
    # First by the largest elements, since squares of numbers below 1e-162 are 0.
    largest = np.abs(columns).max(axis=0, initial=0.0)
    scaled = columns / np.where(largest > 0.0, largest, 1.0)
    result: Array = scaled / np.maximum(np.linalg.norm(scaled, axis=0), 1.0)
    return result


def has_curvature(curvature: Callable[[Array], Array], n: int) -> bool:
    """Whether W has a positive or non-finite element at one of a few f with equal elements."""
    found = (curvature(np.full(n, x)) for x in (0.0, -1.0, 1.0, -3.0, 3.0))
    return any((W > 0.0).any() or not np.isfinite(W).all() for W in found)


def is_flat(gradient: Callable[[Array], Array], sets: NDArray[np.intp], n: int) -> bool:
    """Whether the gradient vanishes if the first f_i of each set is far above the others."""
    f = np.full(n, -30.0)
    f[sets[:, 0]] = 30.0
    return bool((np.abs(gradient(f)) < TOLERANCE).all())
