"""Options that all samplers share, and the errors about wrong ones."""

from __future__ import annotations

import inspect
import math

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, TypedDict

import numpy as np
import pymc as pm

from pymc.exceptions import SamplingError

from pymc_lgm.model.diagnose import no_approximation, no_slope
from pymc_lgm.model.functions import ModelFunctions
from pymc_lgm.moves.latent import LatentMove
from pymc_lgm.state import State

__all__ = [
    "Importance",
    "StepOptions",
    "between",
    "checked",
    "known_move",
    "no_gradient",
    "one_of",
    "positive",
    "public_name",
    "refuse_no_metric",
    "refuse_no_way_out",
    "unknown_options",
]


@dataclass(frozen=True)
class Importance:
    """How importance draws of f are made: an option of `PseudoMarginal`.

    Parameters
    ----------
    correlation : float, optional
        ρ in [0, 1], the correlation of the random numbers of successive estimates. Near 1 their
        errors cancel in the acceptance ratio, so few draws are enough. The default is 1 for
        ``move="slice"``; 0 if tuning finds that estimates of ``n_importance`` draws have little
        noise, or if q is close to the posterior (see ``latent_move`` of `PseudoMarginal`); and 0.99
        otherwise.
    antithetic : bool, optional
        Draw in pairs f̂ ± δ if the number of draws is even. This is the default except for normal
        observations, and for a sparse precision: its transported draws have the same error on both
        sides.
    defensive : float
        Share of draws from the prior. It bounds the weights if q has lighter tails than the
        posterior.
    copula : bool, optional
        Give draws of q the skewed marginals of expectation propagation, as far as the prior's
        smoothness allows for each f_i. If an observation truncates its f_i, estimates are ten times
        less noisy. This needs predicted sites, of expectation propagation or of the lower bound. It
        costs one O(n³) operation for each theta of tuning, and two if sites are optimized
        afterwards. The draws of a series are transported jointly for O(n) each; two to four of them
        are as good as 64. By default draws are corrected if they can be. If ``True`` and they
        cannot, an error says why.

    Examples
    --------
    >>> import pymc_lgm as lgm
    >>> lgm.Importance(defensive=0.1)
    Importance(correlation=None, antithetic=None, defensive=0.1, copula=None)
    """

    correlation: float | None = None
    antithetic: bool | None = None
    defensive: float = 0.0
    copula: bool | None = None

    def __post_init__(self) -> None:
        """Raise if ``correlation`` or ``defensive`` is out of range."""
        if self.correlation is not None and not 0.0 <= self.correlation <= 1.0:
            raise ValueError(f"correlation must lie between 0 and 1, not {self.correlation!r}.")
        if not 0.0 <= self.defensive < 1.0:
            raise ValueError(
                f"defensive must lie between 0 and 1, and below 1, not {self.defensive!r}: some "
                "draws have to come from q."
            )


class StepOptions(TypedDict, total=False):
    """Options of every sampler: see `LatentGaussianStep`."""

    model: pm.Model | None
    rng: Any
    initial_point: dict[str, Any] | None
    compile_kwargs: dict[str, Any] | None
    blocked: bool
    theta: Sequence[Any] | str | None


def public_name(sampler: type[Any]) -> str:
    """Return the name by which a user finds a step method, for messages."""
    room = "lgm.papers" if ".papers." in sampler.__module__ else "lgm"
    return f"{room}.{sampler.__name__}"


def unknown_options(sampler: type[Any], unknown: list[str]) -> str:
    """Return a message that lists a sampler's options."""
    parameters = inspect.signature(sampler.__init__).parameters.values()
    options = {each.name for each in parameters if each.kind is each.KEYWORD_ONLY}
    return (
        f"{public_name(sampler)} has no option {', '.join(map(repr, unknown))}. It has: "
        f"{', '.join(sorted(options | set(StepOptions.__annotations__)))}."
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


def refuse_no_way_out(move: LatentMove, state: State, model: ModelFunctions, instead: str) -> None:
    """Raise if a move cannot leave the f at which a chain starts, and say what to write instead.

    It would return the same f in every draw. Theta would move, so that its R-hat could be near 1.
    """
    if move.needs_gradient:
        _, slope = model.log_likelihood_gradient(state.f, state.theta)
        if not np.isfinite(slope).all():
            raise SamplingError(no_slope(model, state.theta, instead))
    search = getattr(move, "search", None)
    if search is not None and state.at.approximation(search) is None:
        raise SamplingError(no_approximation(model, state.theta, "curvature", instead))


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


def checked(move: Any) -> Any:
    """Raise if one of the numbers that a user gave for a move of f is out of range."""
    given = vars(move)
    between("step_size", given.get("step_size"))
    between("path_length", given.get("path_length"))
    between("target_accept", given.get("target_accept"), 1.0)
    counts = ("repeats", "max_steps")
    return replace(move, **{name: positive(name, given[name]) for name in counts if name in given})
