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

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import scipy.linalg

from pymc_lgm import linalg
from pymc_lgm.linalg import Array, CholeskyFactor, tally

__all__ = ["Device", "DeviceFactor", "Held", "by_cupy", "by_numpy", "use_device"]

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
    return Device(rows, cupy, cupyx.scipy.linalg.solve_triangular, cupy.asnumpy, strict)


def by_numpy(rows: int = ROWS_WORTH_A_DEVICE) -> Device:
    """NumPy in CuPy's place, to try the code where there is no GPU."""
    solve = partial(scipy.linalg.solve_triangular, check_finite=False)
    return Device(rows, np, solve, np.asarray, nullcontext)


@dataclass(frozen=True)
class Device:
    """An array library, and from how many rows on it makes factors: see `linalg.device`.

    ``xp.asarray`` sends an array there, ``fetched`` makes NumPy's of one; ``solve_triangular`` is
    as SciPy's; within ``strict`` a matrix that is not positive definite is an error.
    """

    rows: int
    xp: Any
    solve_triangular: Callable[..., Any]
    fetched: Callable[[Any], Array]
    strict: Callable[[], AbstractContextManager[Any]]

    def factorize(self, A: Array, lower: bool) -> DeviceFactor | None:
        """Send a triangle and factorize it; the library reads the lower one."""
        return self.factor_of(self.xp.asarray(A if lower else A.T))

    def hold(self, C: Array) -> Held:
        """Send C when it is first used."""
        return Held(C, self)

    def factor_of(self, A: Any) -> DeviceFactor | None:
        """Factorize an array that is there; ``None`` as `linalg.factorize`."""
        try:
            with self.strict():
                factor = DeviceFactor(self.xp.linalg.cholesky(A).T, self)
        except np.linalg.LinAlgError:
            return None
        return factor if np.isfinite(factor.log_determinant) else None


class Held:
    """A symmetric array C (n, n), not to be written to, and on a device what is made of it."""

    def __init__(self, C: Array, device: Device):
        self._C, self._device = C, device

    @cached_property
    def there(self) -> Any:
        """C as an array of the device."""
        return self._device.xp.asarray(self._C)

    def times(self, x: Array) -> Array:
        """C x."""
        return self._device.fetched(self.there @ self._device.xp.asarray(x))

    def factor(self) -> DeviceFactor | None:
        """The factor of C: one O(n³) operation, counted."""
        tally.cubic_ops += 1
        return self._device.factor_of(self.there)

    def scaled_factor(self, w: Array) -> DeviceFactor | None:
        """The factor of I + w^½ C w^½: one O(n³) operation, counted."""
        tally.cubic_ops += 1
        root, i = self._device.xp.asarray(np.sqrt(w)), self._device.xp.arange(len(w))
        B = root[:, None] * self.there
        B *= root
        B[i, i] += 1.0
        return self._device.factor_of(B)


class DeviceFactor(CholeskyFactor):
    """A `CholeskyFactor` whose ``upper``, Lᵀ (n, n) in Fortran order, is an array of a device.

    Its verbs take NumPy's arrays and return them.
    """

    def __init__(self, upper: Any, device: Device, log_variance: float = 0.0):
        super().__init__(upper, lower=False, log_variance=log_variance)
        self._device = device

    def times(self, log_variance: float) -> DeviceFactor:
        """The factor of v A: both share one array."""
        return DeviceFactor(self._packed, self._device, log_variance)

    def inverse(self) -> Array:
        """A⁻¹: one O(n³) operation, counted; n² numbers travel."""
        X = self._inverse_factor()
        return self._device.fetched(X.T @ X)

    def inverse_diagonal(self) -> Array:
        """(A⁻¹)_ii, shape (n,): one O(n³) operation, counted; n numbers travel."""
        return self._device.fetched((self._inverse_factor() ** 2).sum(axis=0))

    def inverse_factor(self) -> Array:
        """L⁻¹, a lower triangular array: one O(n³) operation, counted; n² numbers travel."""
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
