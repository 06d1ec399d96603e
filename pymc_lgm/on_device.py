"""Factors on a GPU, by one switch: what uses a factor need not know where it is.

    with use_device():
        pm.sample(cores=1)

Inside the block `linalg.factorize` makes factors by CuPy, which is no dependency: nothing imports
this file. Arrays of n × n stay in the device's memory. K travels there once: B = I + W^½ K W^½ and
products K x are made of what is there, and only vectors, or N columns, go and come. K(theta) itself
is computed where it always was, and an inverse comes back where a derivative takes all of it. A
forked process cannot use a device that its parent has used: chains run in one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import scipy.linalg

from pymc_lgm import linalg
from pymc_lgm.device_factor import Library
from pymc_lgm.linalg import Array, CholeskyFactor, tally

__all__ = ["Device", "Held", "by_cupy", "by_numpy", "use_device"]

ROWS_WORTH_A_DEVICE = 1000
"""Of a matrix; a smaller one stays with LAPACK: `benchmarks/device.py` for what that is worth."""


@contextmanager
def use_device(device: Device | None = None) -> Iterator[None]:
    """Make factors on a device, by default a GPU, inside the block and in all of the process.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_lgm.linalg import factorize
    >>> with use_device(by_numpy(rows=2)):  # where there is no GPU
    ...     factor = factorize(np.array([[4.0, 2.0], [2.0, 5.0]]))
    >>> factor
    DeviceFactor(n=2, log_determinant=2.77259)
    >>> factor.multiply(np.array([1.0, 1.0]))
    array([2., 3.])
    """
    before, linalg.device = linalg.device, by_cupy() if device is None else device
    try:
        yield
    finally:
        linalg.device = before


def by_cupy(rows: int = ROWS_WORTH_A_DEVICE) -> Device:
    """CuPy's current device, for matrices of so many rows; ``ImportError`` where it is missing."""
    try:
        import cupy
        import cupyx.scipy.linalg
    except ImportError as error:
        raise ImportError(
            "use_device() needs an NVIDIA GPU and CuPy: python -m pip install cupy-cuda13x, or "
            "cupy-cuda12x where the driver is of CUDA 12."
        ) from error
    strict = partial(cupyx.errstate, linalg="raise")
    return Device(cupy, cupyx.scipy.linalg.solve_triangular, cupy.asnumpy, strict, rows)


def by_numpy(rows: int = ROWS_WORTH_A_DEVICE) -> Device:
    """NumPy in CuPy's place, to try the code where there is no GPU."""
    solve = partial(scipy.linalg.solve_triangular, check_finite=False)
    return Device(np, solve, np.asarray, nullcontext, rows)


@dataclass(frozen=True)
class Device(Library):
    """A library, and from how many rows on it makes factors: see `linalg.device`."""

    rows: int

    def factorize(self, A: Array, lower: bool) -> CholeskyFactor | None:
        """Send a triangle and factorize it."""
        return self.factor_of(self.xp.asarray(A if lower else A.T))

    def hold(self, C: Array) -> Held:
        """Send C when it is first used."""
        return Held(C, self)


class Held:
    """A symmetric array C (n, n), not to be written to, and on a device what is made of it."""

    def __init__(self, C: Array, library: Library):
        self._C, self._library = C, library

    @cached_property
    def there(self) -> Any:
        """C as an array of the device."""
        return self._library.xp.asarray(self._C)

    def times(self, x: Array) -> Array:
        """C x."""
        return self._library.fetched(self.there @ self._library.xp.asarray(x))

    def factor(self) -> CholeskyFactor | None:
        """The factor of C: one O(n³) operation, counted."""
        tally.cubic_ops += 1
        return self._library.factor_of(self.there)

    def scaled_factor(self, w: Array) -> CholeskyFactor | None:
        """The factor of I + w^½ C w^½: one O(n³) operation, counted."""
        tally.cubic_ops += 1
        root, i = self._library.xp.asarray(np.sqrt(w)), self._library.xp.arange(len(w))
        B = root[:, None] * self.there
        B *= root
        B[i, i] += 1.0
        return self._library.factor_of(B)
