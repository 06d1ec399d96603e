"""A model's functions as compiled loops call them: by address, with pointers to arrays.

A loop that takes an address is compiled once, and kept on disk, for every model. A function that is
compiled itself costs it a fifth of a microsecond a call, one of Python some five.
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


IS_COMPILED = not numba.config.DISABLE_JIT  # type: ignore[attr-defined]  # set when it starts

call = _call_compiled if IS_COMPILED else _call_from_python
"""call(address, x, out): run the code at an address on two contiguous arrays."""


@dataclass(eq=False)
class LogDensity:
    """log p(theta) and its gradient, for compiled loops.

    Attributes
    ----------
    value, gradient : callable
        theta (p,) -> log p(theta) up to a constant, and -> ∂ log p(theta)/∂theta (p,).
    size : int
        p.
    compiled : object with ``address``, optional
        Code that does what ``address`` says; by default it calls Python.
    error : Exception or None
        What Python has raised since it was last asked: see `check`.

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
        """Of code that reads theta and writes log p(theta) and the gradient, 1 + p numbers."""
        address: int = self._python[1] if self.compiled is None else self.compiled.address
        return address

    @cached_property
    def _python(self) -> tuple[Any, int]:
        """A function of C that calls Python, to be kept as long as its address, and that."""
        theta, out = np.empty(self.size), np.empty(1 + self.size)

        def at(source: int, target: int) -> None:
            ctypes.memmove(theta.ctypes.data, source, theta.nbytes)
            try:
                here = theta.copy()
                out[0], out[1:] = self.value(here), self.gradient(here)
            except Exception as error:  # nothing may pass through compiled code
                self.error = self.error or error
                out[:] = math.nan
            ctypes.memmove(target, out.ctypes.data, out.nbytes)

        function = POINTERS(at)
        address = ctypes.cast(function, ctypes.c_void_p).value
        assert address is not None
        return function, address

    def check(self) -> None:
        """Raise what Python has raised, for the caller of a compiled loop."""
        if self.error is not None:
            error, self.error = self.error, None
            raise error

    def __getstate__(self) -> dict[str, Any]:
        # Addresses mean nothing in another process: there it calls Python.
        return {k: v for k, v in self.__dict__.items() if k != "_python"} | {"compiled": None}
