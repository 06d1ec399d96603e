"""What has been computed from an object, kept for as long as the object lives.

A kernel gets a state and returns a state; what it factorized on the way, and will need again if
neither theta nor its step size moves, is kept beside them. Only the number of O(n³) operations
depends on it, never a draw: a restored or pickled chain computes it again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Concatenate
from weakref import WeakKeyDictionary

__all__ = ["remembered"]


def remembered[Owner, **Options, Result](
    compute: Callable[Concatenate[Owner, Options], Result],
) -> Callable[Concatenate[Owner, Options], Result]:
    """Keep the last result of a pure function for each of its first arguments.

    The result must not refer to that argument, or neither is ever freed.
    """
    kept: WeakKeyDictionary[Owner, tuple[object, Result]] = WeakKeyDictionary()

    def recall(owner: Owner, /, *args: Options.args, **kwargs: Options.kwargs) -> Result:
        known = kept.get(owner)
        if known is None or known[0] != (args, kwargs):
            known = kept[owner] = (args, kwargs), compute(owner, *args, **kwargs)
        return known[1]

    update_wrapper(recall, compute)
    return recall
