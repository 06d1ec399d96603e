"""Messages to the user while functions are compiled, before PyMC shows a progress bar."""

from __future__ import annotations

import logging
import threading

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["COMPILING", "announced"]

# A child of PyMC's logger, so that settings of PyMC's logger apply to these messages too.
_log = logging.getLogger("pymc.lgm")

COMPILING = (
    "Compiling the model for {}. The first model after an installation takes half a minute, "
    "another one some seconds, the same one again a second or two."
)


@contextmanager
def announced(message: str, after: float = 3.0) -> Iterator[None]:
    """Log a message once the body of the ``with`` block has run for ``after`` seconds.

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
        # Chains are forked next, and a fork is unsafe while another thread runs.
        timer.cancel()
        timer.join()
