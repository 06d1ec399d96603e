"""The operation that computes a variable of a graph, if there is one."""

from __future__ import annotations

from typing import Any

from pytensor.tensor.elemwise import Elemwise

__all__ = ["function_of", "op_of"]


def op_of(v: Any) -> Any:
    """The operation that computes a variable; ``None`` if none does, or if v is not a variable."""
    return getattr(getattr(v, "owner", None), "op", None)


def function_of(v: Any) -> Any:
    """The function of numbers that computes each element of a variable; ``None`` if none does."""
    op = op_of(v)
    return op.scalar_op if isinstance(op, Elemwise) else None
