"""Gaussian vectors as operations: what draws of a field have in common, whatever its precision."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, override

import numba
import numpy as np
import pytensor.tensor as pt

from pytensor.tensor.random.op import RandomVariable

from pymc_lgm.compile.graphs.upstream import (
    numba_core_rv_funcify,
    numba_njit,
    support_point_of,
)
from pymc_lgm.linalg import Array

__all__ = ["FieldRV", "as_lengths", "one_number"]

Variable = Any


class FieldRV(RandomVariable):
    """The op of a Gaussian vector with mean zero, which knows the constants of its precision.

    Attributes
    ----------
    rank : int
        Number of independent standard normal variables in a draw.
    shape : tuple of int
        Shape of a draw.
    is_gaussian_field : bool
        True: with a likelihood of this package, the default samples the model.
    """

    dtype = "floatX"
    is_gaussian_field = True
    rank: int
    shape: tuple[int, ...]

    @abstractmethod
    def drawn(self, xi: Array, *params: Any) -> Array:
        """The draw that ξ, shape (rank,), makes."""

    def variable(self, *params: Any, size: Any = None, rng: Any = None) -> Variable:
        """A random variable with these parameters."""
        rng = pt.random.shared_rng(seed=None) if rng is None else rng
        return self(*params, size=size, rng=rng, return_next_rng=True)[1]

    @override
    def rng_fn(self, rng: np.random.Generator, *params_and_size: Any) -> Array:
        """Draw one vector after another."""
        *params, size = params_and_size
        params = [np.asarray(each, dtype=np.float64) for each in params]
        ends = [each.ndim - ndim for each, ndim in zip(params, self.ndims_params, strict=True)]
        batches = [each.shape[:end] for each, end in zip(params, ends, strict=True)]
        batch = np.broadcast_shapes(*batches) if size is None else tuple(size)
        params = [
            np.broadcast_to(each, (*batch, *each.shape[end:]))
            for each, end in zip(params, ends, strict=True)
        ]
        draws = np.empty((*batch, *self.shape))
        for i in np.ndindex(batch):
            xi = rng.standard_normal(self.rank)
            draws[i] = self.drawn(xi, *(each[i] for each in params))
        return draws


@numba_core_rv_funcify.register(FieldRV)
def _compiled_draw(op: FieldRV, node: Any) -> tuple[Any, None]:
    """The same draw in compiled functions.

    The second value, the key for Numba's cache on disk, is ``None``: the function closes over the
    constants of this field, so it must not be cached.
    """
    rank, shape = op.rank, op.shape

    def drawn(xi: Array, params: tuple[Any, ...]) -> Array:
        return np.ascontiguousarray(op.drawn(xi, *params)).ravel()

    @numba_njit
    def random(rng, *params):
        xi = rng.standard_normal(rank)
        with numba.objmode(x="float64[::1]"):
            x = drawn(xi, params)
        return x.reshape(shape)

    return random, None


@support_point_of.register(FieldRV)
def _zeros(op: FieldRV, rv: Variable, *inputs: Variable) -> Variable:
    return pt.zeros_like(rv)


def as_lengths(shape: Any) -> tuple[int, ...]:
    """The shape as integers; with ``dims=`` PyMC passes lengths that are graphs."""
    lengths = shape if isinstance(shape, tuple | list) else (shape,)
    return tuple(int(n.eval()) if hasattr(n, "eval") else int(n) for n in lengths)


def one_number(name: str, value: Any) -> Variable:
    """A parameter of a field as a tensor; a ValueError if it is not a scalar."""
    number = pt.as_tensor(value).astype("floatX")  # PyTensor reads 4.0 as a float32
    if number.ndim:
        raise ValueError(
            f"{name} has {number.ndim} axis (axes), but a field has one number: write "
            f"{name}={name}[0]."
        )
    return number
