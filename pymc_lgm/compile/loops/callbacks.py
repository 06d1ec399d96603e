"""A model's functions for compiled loops, called by address with pointers to arrays.

A loop that takes an address is compiled once for all models, and cached on disk. A call takes 0.2
microseconds if the function is compiled, and about five if it is Python.
"""

from __future__ import annotations

import ctypes
import math

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numba
import numpy as np

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from pymc_lgm.linalg import Array

__all__ = ["IS_COMPILED", "LogDensity", "call"]

POINTERS = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


@intrinsic
def _call(_: Any, address: Any, x: Any, out: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        pointer = ir.DoubleType().as_pointer()
        code = ir.FunctionType(ir.VoidType(), [pointer, pointer]).as_pointer()
        arrays = zip(signature.args[1:], values[1:], strict=True)
        data = [context.make_array(of)(context, builder, value).data for of, value in arrays]
        builder.call(builder.inttoptr(values[0], code), data)
        return context.get_dummy_value()

    return types.void(types.int64, x, out), generate


@numba.njit(cache=True)
def _call_compiled(address: int, x: Array, out: Array) -> None:
    _call(address, x, out)  # type: ignore[call-arg]  # Numba gives the first argument


def _call_from_python(address: int, x: Array, out: Array) -> None:
    POINTERS(address)(x.ctypes.data, out.ctypes.data)


IS_COMPILED = not numba.config.DISABLE_JIT  # type: ignore[attr-defined]  # set at import

call = _call_compiled if IS_COMPILED else _call_from_python
"""call(address, x, out): run the code at an address on two contiguous arrays."""


@dataclass(eq=False)
class LogDensity:
    """log p(theta) and its gradient, for compiled loops.

    Attributes
    ----------
    value, gradient : callable
        theta (p,) -> log p(theta) up to a constant, and theta -> ∂ log p(theta)/∂theta (p,).
    size : int
        p.
    compiled : object with ``address``, optional
        Compiled code with the interface of ``address``. By default ``value`` and ``gradient`` are
        called.
    error : Exception or None
        The first error that Python has raised since the last `check`.

    Examples
    --------
    >>> import numpy as np
    >>> normal = LogDensity(lambda theta: -0.5 * theta @ theta, lambda theta: -theta, 2)
    >>> out = np.empty(3)
    >>> call(normal.address, np.array([1.0, 2.0]), out)
    >>> out
    array([-2.5, -1. , -2. ])
    """

    value: Callable[[Array], float]
    gradient: Callable[[Array], Array]
    size: int
    compiled: Any = None
    error: Exception | None = field(default=None, init=False)

    @property
    def address(self) -> int:
        """Address of code that reads theta and writes log p(theta) and its gradient."""
        address: int = self._python[1] if self.compiled is None else self.compiled.address
        return address

    @cached_property
    def _python(self) -> tuple[Any, int]:
        """A C function that calls Python, stored to keep its address valid, and the address."""
        theta, out = np.empty(self.size), np.empty(1 + self.size)

        def at(source: int, target: int) -> None:
            ctypes.memmove(theta.ctypes.data, source, theta.nbytes)
            try:
                here = theta.copy()
                out[0], out[1:] = self.value(here), self.gradient(here)
            except Exception as error:  # errors must not pass through compiled code
                self.error = self.error or error
                out[:] = math.nan
            ctypes.memmove(target, out.ctypes.data, out.nbytes)

        function = POINTERS(at)
        address = ctypes.cast(function, ctypes.c_void_p).value
        assert address is not None
        return function, address

    def check(self) -> None:
        """Raise the error that Python has raised, if any; call it after a compiled loop."""
        if self.error is not None:
            error, self.error = self.error, None
            raise error

    def __getstate__(self) -> dict[str, Any]:
        # Addresses are not valid in another process, so Python is called there.
        return {k: v for k, v in self.__dict__.items() if k != "_python"} | {"compiled": None}
