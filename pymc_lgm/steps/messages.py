"""Messages to the user before PyMC shows a progress bar: what is compiled, and what is offered.

PyMC asks every step method which variables it claims. Ours claims the variables of this package's
likelihoods. PyMC gives a model with another likelihood to NUTS, and without the offer the user
would not learn of the alternative.
"""

from __future__ import annotations

import logging
import sys
import threading

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from weakref import WeakSet

import pymc as pm

from pymc_lgm.likelihoods.registry import WHITENED, is_for_the_default, is_marked
from pymc_lgm.model import find_latents, refuse_left_gaussians, whitened_processes

__all__ = [
    "COMPILING",
    "KNOWN",
    "OFFER",
    "REPEATED",
    "announced",
    "listed",
    "offer",
    "say_what_is_repeated",
]

# A child of PyMC's logger, so that settings of PyMC's logger apply to these messages too.
_log = logging.getLogger("pymc.lgm")

COMPILING = (
    "Compiling the model for {}. The first model after an installation takes half a minute, "
    "another one some seconds, the same one again a second or two."
)

OFFER = (
    "{} {} Gaussian given the rest of the model, and NUTS samples {}. To integrate {} out instead, "
    "write pm.sample(step=lgm.PseudoMarginal())."
)

REPEATED = (
    "PyMC computes {0!r} again for each draw that it records, in one process, and this often takes "
    "longer than to sample it. Write prior({0!r}, ..., reparameterize=False) instead: the samplers "
    "of this package whiten a process themselves."
)

LARGE = 150
"""Fewest points of a process for which this is said.

By hand, with binary data and four chains of 1000 + 1000 draws on two cores, 200 points took 26
seconds as PyMC whitens f, and 9 seconds without; 400 points took 84 and 21 seconds.
"""

KNOWN: WeakSet[pm.Model] = WeakSet()
"""Models that one of our steps has read, or for which the offer was logged."""

TOLD: WeakSet[pm.Model] = WeakSet()
"""Models whose deterministics were looked at."""


@contextmanager
def announced(message: str, after: float = 3.0) -> Iterator[None]:
    """Log a message once the body of the ``with`` block has run for ``after`` seconds.

    Examples
    --------
    >>> from pymc_lgm.steps.messages import announced
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


def offer() -> None:
    """Log, once per model, that the default sampler can sample it.

    Only the graph is read, in some hundredths of a second, and only if it has a process: a Gaussian
    process, a series or a map. Regressions and mixed models are skipped, since NUTS is fast there.
    Nothing is logged if the model cannot be read, and nothing is ever raised.
    """
    try:
        model, quiet = _asking()
        if model is None or model in KNOWN or quiet or not _log.isEnabledFor(logging.INFO):
            return
        KNOWN.add(model)
        if not model.observed_RVs or any(map(is_marked, model.free_RVs)):
            return
        if not any(map(is_for_the_default, model.free_RVs)):
            return
        reading = find_latents(model)
        latents = [latent.rv for latent in reading.latents]
        theta = [v for v in model.continuous_value_vars if model.values_to_rvs[v] not in latents]
        refuse_left_gaussians(model, reading, theta)
        names = [_as_written(str(rv.name)) for rv in latents]
    except Exception:
        return
    verb, them = ("are", "them") if len(names) > 1 else ("is", "it")
    _log.info(OFFER.format(listed([repr(name) for name in names]), verb, them, them))


def say_what_is_repeated(model: pm.Model) -> None:
    """Log, once per model, that PyMC computes a large process again for each draw."""
    if model in TOLD:
        return
    TOLD.add(model)
    for name, points in whitened_processes(model).items():
        if points >= LARGE:
            _log.info(REPEATED.format(name))


def _as_written(name: str) -> str:
    """The name that the user gave to a process whose coordinates PyMC samples."""
    for end in WHITENED:
        name = name.removesuffix(end)
    return name


def listed(names: Sequence[str]) -> str:
    """A list in words.

    Examples
    --------
    >>> from pymc_lgm.steps.messages import listed
    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def _asking() -> tuple[pm.Model | None, bool]:
    """Return the model that is to be sampled, and whether the user wants no messages.

    PyMC passes only one variable to a step method. ``quiet=``, and the model of
    ``pm.sample(model=...)`` outside of a ``with`` block, are found in the frame of `pymc.sample`.
    """
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code is pm.sample.__code__:
            return frame.f_locals["model"], frame.f_locals["quiet"]
    return pm.Model.get_context(error_if_none=False), False
