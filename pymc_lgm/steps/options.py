"""Options that all samplers share, and the errors about wrong ones."""

from __future__ import annotations

import inspect
import math

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, TypedDict

import pymc as pm

from pymc_lgm.kernels.latent import LatentMove
from pymc_lgm.model.functions import ModelFunctions

__all__ = [
    "StepOptions",
    "between",
    "known_move",
    "no_gradient",
    "one_of",
    "positive",
    "public_name",
    "refuse_no_metric",
    "unknown_options",
]


class StepOptions(TypedDict, total=False):
    """Options of every sampler: see `LatentGaussianStep`."""

    model: pm.Model | None
    rng: Any
    initial_point: dict[str, Any] | None
    compile_kwargs: dict[str, Any] | None
    blocked: bool


def public_name(sampler: type[Any]) -> str:
    """Return the name by which a user finds a step method, for messages."""
    room = "lgm.papers" if ".papers." in sampler.__module__ else "lgm"
    return f"{room}.{sampler.__name__}"


def unknown_options(sampler: type[Any], renamed: dict[str, str], unknown: list[str]) -> str:
    """Return a message that lists a sampler's options and what replaces former ones."""
    options = {
        name
        for cls in sampler.__mro__
        if hasattr(cls, "renamed") and "__init__" in vars(cls)  # of ours
        for name, parameter in inspect.signature(vars(cls)["__init__"]).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }
    options |= set(StepOptions.__annotations__)
    instead = [f" For {name!r} write {renamed[name]}." for name in unknown if name in renamed]
    return (
        f"{public_name(sampler)} has no option {', '.join(map(repr, unknown))}."
        f"{''.join(instead)} It has: {', '.join(sorted(options))}."
    )


def no_gradient(model: ModelFunctions, instead: str) -> str:
    """Return a message that a likelihood has no gradient, and what to write instead."""
    return (
        f"The likelihood ({', '.join(model.likelihood_names)}) cannot be differentiated, and the "
        f"sampler needs its gradient in {model.latent!r}. Write {instead}."
    )


def refuse_no_metric(model: ModelFunctions, move: LatentMove, instead: str) -> None:
    """Raise if a move on f needs the metric K⁻¹ + W(f) and the likelihood does not provide it."""
    if not getattr(move, "needs_metric", False):
        return
    names = ", ".join(model.likelihood_names)
    if not model.has_third_derivative:
        raise ValueError(
            f"The curvature of the likelihood ({names}) cannot be differentiated, and the metric "
            f"at f moves with it. Write {instead}."
        )
    if not model.is_log_concave:
        raise ValueError(
            f"The likelihood ({names}) is not known to be log-concave in {model.latent!r}. Where "
            f"its curvature W is negative, K⁻¹ + W at f need not be a metric. Write {instead}."
        )


def one_of(option: str, value: Any, allowed: Sequence[Any]) -> None:
    """Raise if a value is not among those allowed."""
    if value not in allowed:
        raise ValueError(
            f"{option}={value!r} is unknown. Choose from {', '.join(map(repr, allowed))}."
        )


def known_move(option: str, name: Any, registry: Mapping[str, Any], *others: Any) -> None:
    """Raise if a move has no such name, in `pymc_lgm.papers` neither."""
    if name not in (*others, *registry):
        import_module("pymc_lgm.papers")  # adds its moves to the registries
    one_of(option, name, (*others, *registry))


def positive(option: str, count: int) -> int:
    """Raise if a count is not a whole number of at least 1."""
    if int(count) != count or count < 1:
        raise ValueError(f"{option} must be a whole number of at least 1, not {count!r}.")
    return int(count)


def between(option: str, value: float | None, high: float = math.inf) -> None:
    """Raise if a number is not above 0 and below ``high``; ``None`` stands for the default."""
    if value is not None and not 0.0 < value < high:
        span = "positive" if high == math.inf else f"between 0 and {high:g}"
        raise ValueError(f"{option} must be {span}, not {value!r}.")
