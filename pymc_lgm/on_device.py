"""Cholesky factors on a GPU, switched on by a context manager.

    with use_device():
        pm.sample(cores=1)

Inside the block `linalg.factorize` makes factors by CuPy. CuPy is not a dependency, so no other
file imports this one. K(theta) is computed on the CPU and copied to the device once. B = I + W^½ K
W^½ and products K x are computed there, and only vectors, or N columns, are copied. An inverse is
copied back if a derivative needs all of it. A forked process cannot use a device that its parent
has used, so chains run in one process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import scipy.linalg

from pymc_lgm.linalg import DEVICE, Array, CholeskyFactor, tally

__all__ = ["Device", "DeviceFactor", "OnDevice", "by_cupy", "by_numpy", "use_device"]

ROWS_WORTH_A_DEVICE = 1000
"""Smallest number of rows for a device. Smaller matrices use LAPACK: see `benchmarks/device.py`."""


@contextmanager
def use_device(device: Device | None = None) -> Iterator[None]:
    """Make factors on a device, by default a GPU, in this context while the block runs.

    A thread that starts inside the block has its own context, and uses LAPACK unless it enters
    such a block itself.

    Parameters
    ----------
    device : Device, optional
        By default that of `by_cupy`.

    Raises
    ------
    ImportError
        If CuPy is not installed and there is no `device`.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_lgm.linalg import factorize
    >>> with use_device(by_numpy(rows=2)):  # without a GPU
    ...     factor = factorize(np.array([[4.0, 2.0], [2.0, 5.0]]))
    >>> factor
    DeviceFactor(n=2, log_determinant=2.77259)
    >>> factor.multiply(np.array([1.0, 1.0]))
    array([2., 3.])
    """
    before = DEVICE.set(by_cupy() if device is None else device)
    try:
        yield
    finally:
        DEVICE.reset(before)


def by_cupy(rows: int = ROWS_WORTH_A_DEVICE) -> Device:
    """CuPy's current device for matrices of at least ``rows``; ``ImportError`` without CuPy."""
    try:
        import cupy
        import cupyx.scipy.linalg
    except ImportError as error:
        raise ImportError(
            "use_device() needs an NVIDIA GPU and CuPy: python -m pip install cupy-cuda13x, or "
            "cupy-cuda12x if the driver has CUDA 12."
        ) from error
    strict = partial(cupyx.errstate, linalg="raise")
    return Device(cupy, cupyx.scipy.linalg.solve_triangular, cupy.asnumpy, strict, rows)


def by_numpy(rows: int = ROWS_WORTH_A_DEVICE) -> Device:
    """NumPy instead of CuPy, to test the code without a GPU."""
    solve = partial(scipy.linalg.solve_triangular, check_finite=False)
    return Device(np, solve, np.asarray, nullcontext, rows)


@dataclass(frozen=True)
class Device:
    """An array library, and the smallest number of rows for which it makes factors.

    ``xp.asarray`` copies an array to the device, and ``fetched`` copies it back to NumPy.
    ``solve_triangular`` has SciPy's interface. Within ``strict`` a matrix that is not positive
    definite raises an error.
    """

    xp: Any
    solve_triangular: Callable[..., Any]
    fetched: Callable[[Any], Array]
    strict: Callable[[], AbstractContextManager[Any]]
    rows: int

    def factor_of(self, A: Any) -> DeviceFactor | None:
        """Factorize an array on the device from its lower triangle; ``None`` if that fails."""
        try:
            with self.strict():
                factor = DeviceFactor(self.xp.linalg.cholesky(A).T, self)
        except np.linalg.LinAlgError:
            return None
        return factor if np.isfinite(factor.log_determinant) else None

    def factorize(self, A: Array, lower: bool) -> CholeskyFactor | None:
        """Copy a triangle to the device and factorize it."""
        return self.factor_of(self.xp.asarray(A if lower else A.T))

    def put(self, C: Array) -> OnDevice:
        """Wrap C; it is copied to the device when it is first used."""
        return OnDevice(C, self)


class DeviceFactor(CholeskyFactor):
    """A `CholeskyFactor` whose ``upper``, Lᵀ (n, n) in Fortran order, is an array on a device.

    Its methods take and return NumPy arrays.
    """

    def __init__(self, upper: Any, device: Device, log_variance: float = 0.0):
        super().__init__(upper, lower=False, log_variance=log_variance)
        self._device = device

    def times(self, log_variance: float) -> DeviceFactor:
        """The factor of v A: both share one array."""
        return DeviceFactor(self._packed, self._device, log_variance)

    def inverse(self) -> Array:
        """A⁻¹: one O(n³) operation, counted; n² numbers are copied."""
        X = self._inverse_factor()
        return self._device.fetched(X.T @ X)

    def inverse_diagonal(self) -> Array:
        """(A⁻¹)_ii, shape (n,): one O(n³) operation, counted; n numbers are copied."""
        return self._device.fetched((self._inverse_factor() ** 2).sum(axis=0))

    def inverse_factor(self) -> Array:
        """L⁻¹, a lower triangular array: one O(n³) operation, counted; n² numbers are copied."""
        return self._device.fetched(self._inverse_factor())

    def dense(self) -> Array:
        """Return L as an ordinary lower triangular array."""
        return self._device.fetched(self._scale * self._packed.T)

    def _inverse_factor(self) -> Any:
        tally.cubic_ops += 1
        return self._solved(self._device.xp.eye(self.n), transposed=True)

    def _solved(self, there: Any, transposed: bool) -> Any:
        solution = self._device.solve_triangular(self._packed, there, trans=int(transposed))
        solution /= self._scale
        return solution

    def _solution(self, x: Array, transposed: bool) -> Array:
        return self._device.fetched(self._solved(self._device.xp.asarray(x), transposed))

    def _product(self, x: Array, transposed: bool) -> Array:
        L = self._packed.T if transposed else self._packed
        return self._device.fetched(self._scale * (L @ self._device.xp.asarray(x)))


class OnDevice:
    """A read-only symmetric array C (n, n) with a copy and factors on a device."""

    def __init__(self, C: Array, device: Device):
        self._C, self._device = C, device

    @cached_property
    def there(self) -> Any:
        """C as an array on the device."""
        return self._device.xp.asarray(self._C)

    def times(self, x: Array) -> Array:
        """C x."""
        return self._device.fetched(self.there @ self._device.xp.asarray(x))

    def factor(self) -> CholeskyFactor | None:
        """The factor of C: one O(n³) operation, counted."""
        tally.cubic_ops += 1
        return self._device.factor_of(self.there)

    def scaled_factor(self, w: Array) -> CholeskyFactor | None:
        """The factor of I + w^½ C w^½: one O(n³) operation, counted."""
        tally.cubic_ops += 1
        root = self._device.xp.asarray(np.sqrt(w))
        i = self._device.xp.arange(len(w))
        B = root[:, None] * self.there
        B *= root
        B[i, i] += 1.0
        return self._device.factor_of(B)
