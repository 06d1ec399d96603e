"""A word to the user if `pymc.sample` is about to move a latent Gaussian vector by NUTS.

PyMC asks every step method which variables it claims. Ours claims those of a likelihood of this
package. A model with another likelihood goes to NUTS, and nothing would say that it need not.
"""

from __future__ import annotations

import logging
import sys

from typing import Any
from weakref import WeakSet

import pymc as pm

from pymc_lgm.likelihoods.registry import is_marked
from pymc_lgm.model import find_latents, is_process, refuse_left_gaussians

__all__ = ["KNOWN", "OFFER", "offer"]

# Below PyMC's logger: what silences PyMC, or shows its lines elsewhere, does it with ours.
_log = logging.getLogger("pymc.lgm")

OFFER = (
    "NUTS samples {}, Gaussian given the rest of the model. To integrate {} out instead, write "
    "pm.sample(step=lgm.PseudoMarginal())."
)

KNOWN: WeakSet[pm.Model] = WeakSet()
"""Models that one of our steps has read, or that the user has had this word about."""


def offer() -> None:
    """Log, once for a model, that the default sampler would sample it, if it can read the model.

    The graph alone is read, in some hundredths of a second, and only if it has a process: a
    Gaussian process, a series or a map. Regressions and mixed models are left alone, since NUTS is
    fast there. Nothing is raised, whatever the model is.
    """
    try:
        model, quiet = _asking()
        if model is None or model in KNOWN or quiet or not _log.isEnabledFor(logging.INFO):
            return
        KNOWN.add(model)
        if not model.observed_RVs or any(map(is_marked, model.free_RVs)):
            return
        if not any(is_process(rv) or _is_whitened(rv) for rv in model.free_RVs):
            return
        reading = find_latents(model)
        latents = [latent.rv for latent in reading.latents]
        theta = [v for v in model.continuous_value_vars if model.values_to_rvs[v] not in latents]
        refuse_left_gaussians(model, reading, theta)
        names = [str(rv.name).removesuffix("_rotated_") for rv in latents]  # as the user wrote them
    except Exception:
        return
    shown = ", ".join(repr(name) for name in names)
    _log.info(OFFER.format(shown, "it" if len(names) == 1 else "them"))


def _asking() -> tuple[pm.Model | None, bool]:
    """Return the model that is to be sampled, and whether the user wants no words.

    PyMC hands a step method one variable. The model of ``pm.sample(model=...)``, outside of a
    ``with`` block, and ``quiet=`` are in its own frame.
    """
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code is pm.sample.__code__:
            return frame.f_locals["model"], frame.f_locals["quiet"]
    return pm.Model.get_context(error_if_none=False), False


def _is_whitened(rv: Any) -> bool:
    return str(rv.name).endswith("_rotated_")
