"""Objects that are equal if their arrays are equal.

Two operations are equal if the objects in them are. PyTensor finds a compiled model in its cache by
a hash of these operations.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from hashlib import sha256
from typing import Any

import numpy as np

__all__ = ["ByContent"]


class ByContent(ABC):
    """Equality, a hash, and a digest for the representation, from arrays."""

    @property
    @abstractmethod
    def _content(self) -> tuple[np.ndarray[Any, Any], ...]:
        """The arrays that the object consists of."""

    @cached_property
    def _digest(self) -> str:
        """A checksum of the arrays."""
        return sha256(
            b"".join(np.ascontiguousarray(x).tobytes() for x in self._content)
        ).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self._digest == other._digest

    def __hash__(self) -> int:
        return hash(self._digest)
