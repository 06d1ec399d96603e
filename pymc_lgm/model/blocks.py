"""A latent variable as a block of x: where it is, its columns of A, and its covariance."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt

from pymc_lgm.linalg import Array
from pymc_lgm.model.latents import Latent

__all__ = ["Block", "of_each", "of_raveled"]

Variable = Any


class Block(NamedTuple):
    """A latent variable's part of x and of A.

    Attributes
    ----------
    latent : Latent
    part : slice
        Where it is in x.
    shape : tuple of int
    structure : str
        Of its columns of A: "identity", "index" (a row has a 1 or nothing), "constant" or "dense
        in theta".
    columns : ndarray, shape (E, N_b), or None
        Of A, if they do not depend on theta.
    """

    latent: Latent
    part: slice
    shape: tuple[int, ...]
    structure: str
    columns: Array | None


def of_raveled(cov: Variable, shape: tuple[int, ...]) -> Variable:
    """The covariance of all vectors of a batch together."""
    if len(shape) == 1:
        return cov
    return pt.linalg.block_diag(*of_each(cov, shape))


def of_each(cov: Variable, shape: tuple[int, ...]) -> list[Variable]:
    """The covariance of each vector of a batch."""
    *batch, n = shape
    count = int(np.prod(batch))
    if cov.ndim == 2:
        return [cov] * count
    each = pt.broadcast_to(cov, (*batch, n, n)).reshape((count, n, n))
    return [each[i] for i in range(count)]
