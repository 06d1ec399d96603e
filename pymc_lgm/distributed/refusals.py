"""Errors for options that a cluster or a folder cannot support, and what to write instead."""

from __future__ import annotations

import json

from collections.abc import Mapping
from typing import Any

from pymc.step_methods.compound import BlockedStep, CompoundStep

from pymc_lgm.distributed.keep import StoredChains

__all__ = ["compare", "refuse_options", "refuse_unfinished", "settings_of"]

REFUSED = {
    "mp_ctx": "Dask starts the processes",
    "blas_cores": "each chain has one thread",
    "callback": "the chains run in other processes",
    "trace": "write keep='folder' to store the chains",
    "return_inferencedata": "a DataTree is returned",
    "keep_warning_stat": "the warnings of a draw remain in its process",
    "nuts_sampler_kwargs": "write nuts={...}",
    "progressbar_theme": "there is one bar",
}
"""Options of `pymc.sample` that have no meaning here, and why."""


def refuse_options(
    step: Any, draws: int, tune: int | None, chains: int | None, options: Mapping[str, Any]
) -> None:
    """Raise the errors that the workers would raise, before there are any workers."""
    for name, why in REFUSED.items():
        if name in options:
            raise TypeError(f"lgm.distributed.sample() has no {name}=: {why}.")
    if options.get("nuts_sampler", "pymc") != "pymc":
        raise ValueError(
            f"nuts_sampler={options['nuts_sampler']!r} runs all chains itself: write "
            "pm.sample(nuts_sampler=...)."
        )
    if isinstance(step, BlockedStep | CompoundStep):
        name = type(step).__name__
        raise TypeError(
            f"step is an instance of {name}, but each worker makes its own: write the "
            f"class, or lambda: {name}(...)."
        )
    if step is not None and not callable(step):
        raise TypeError(f"step is {step!r}: write a class, or lambda: [lgm.ASIS(...), ...].")
    for name, value, least in (("draws", draws, 1), ("tune", tune, 0), ("chains", chains, 1)):
        if value is not None and (value != int(value) or value < least):
            raise ValueError(f"{name} must be a whole number, {least} or more: not {value!r}.")


def settings_of(kept: StoredChains | None, before: StoredChains | None) -> dict[str, Any]:
    """Return the settings of the folder ``resume``, or of the folder ``keep``."""
    if before is None:
        return (kept.settings if kept is not None else None) or {}
    settings = before.settings
    if settings is None:
        raise ValueError(
            f"resume={str(before.path)!r} holds no chains: name a folder that keep= has filled."
        )
    return settings


def compare(asked: Mapping[str, Any], found: Mapping[str, Any], folder: str) -> None:
    """Raise an error if the chains of two studies would be mixed."""
    asked = json.loads(json.dumps(asked))
    for name in asked:
        if asked[name] == found.get(name):
            continue
        short = name in ("draws", "tune", "chains")
        change = f"{name} was {found.get(name)} and is {asked[name]}" if short else name
        raise ValueError(
            f"{folder} holds chains of other settings ({change}). Write the same again, or name "
            "another folder."
        )


def refuse_unfinished(before: StoredChains, chains: int) -> None:
    """Raise an error if a chain has no state from which to continue."""
    there = before.numbers()
    if len(there) < chains:
        raise ValueError(
            f"resume={str(before.path)!r} holds {len(there)} of {chains} chains. Finish them "
            "first by the same call with keep= as before."
        )
    if not all(before.load(i).state for i in range(chains)):
        raise ValueError(
            f"resume={str(before.path)!r} has no state from which its chains can continue: that of "
            "a step method could not be pickled. Draw longer chains from the start."
        )
