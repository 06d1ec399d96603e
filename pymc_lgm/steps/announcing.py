"""A word to the user where PyMC has no progress bar yet: while functions are compiled."""

from __future__ import annotations

import logging
import threading

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["COMPILING", "announced"]

# Below PyMC's logger: what silences PyMC, or shows its lines elsewhere, does it with ours.
_log = logging.getLogger("pymc.lgm")

COMPILING = (
    "Compiling the model for {}. The first model after an installation takes half a minute, "
    "another one some seconds, the same one again a second or two."
)


@contextmanager
def announced(message: str, after: float = 3.0) -> Iterator[None]:
    """Log a message if what is done takes longer than ``after`` seconds, while it goes on.

    Examples
    --------
    >>> from pymc_lgm.steps.announcing import announced
    >>> with announced("Compiling ..."):
    ...     pass
    """
    timer = threading.Timer(after, _log.info, [message])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        # Chains are forked next, which a thread beside would make unsafe.
        timer.cancel()
        timer.join()
