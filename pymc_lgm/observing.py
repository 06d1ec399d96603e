"""Mean, variance and class probabilities of a new observation, averaged over posterior draws.

This module finds the likelihoods in a model whose f is the process itself, not a function of it,
and evaluates their other parameters at each draw. `pymc_lgm.response` computes the moments of y
from those of f.
"""

from __future__ import annotations

import inspect

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import xarray as xr

from numpy.typing import ArrayLike
from pymc.pytensorf import compile as pymc_compile

from pymc_lgm.drawn import Evaluator
from pymc_lgm.gp import SparseLatent
from pymc_lgm.likelihoods import RobustMax, Softmax, is_latent_gaussian_likelihood
from pymc_lgm.likelihoods.base import unwrapped
from pymc_lgm.likelihoods.registry import expectation_of
from pymc_lgm.linalg import Array
from pymc_lgm.response import response

__all__ = ["Observation", "f_of", "observations"]

OF_CLASSES = (Softmax.rv_type, RobustMax.rv_type)
"""Likelihoods with one latent variable per class."""


def observations(
    latents: Sequence[Any],
    parameters: Mapping[str, ArrayLike] | None,
    points: Array,
    inputs: Any,
    posterior: xr.Dataset,
    model: pm.Model,
    compile_kwargs: dict[str, Any] | None,
) -> list[Observation]:
    """Find the likelihoods of f itself that `pymc_lgm.response` supports.

    Parameters
    ----------
    latents
        For each process, the variable that a likelihood takes as its f: see `f_of`.
    posterior : Dataset
        The draws that are used.
    parameters, model, compile_kwargs
        As in `pymc_lgm.predict`.
    points : ndarray, shape (points, ...)
        Points at which f is predicted, one per row.
    inputs : variable
        The variable for the points in the graphs of a likelihood's parameters.
    """
    return [
        Observation(
            name, op, points, Evaluator(arguments, inputs, posterior, model, compile_kwargs)
        )
        for name, op, arguments in _likelihoods(model, latents, parameters or {}, len(points))
    ]


class Observation:
    """Moments and class probabilities of a new observation: see `observations`."""

    def __init__(self, name: str, op: Any, points: Array, parameters: Evaluator):
        self.name, self._op, self._points, self._parameters = name, op, points, parameters
        self._total: Any = 0.0
        self._count = 0

    def add(self, i: tuple[int, ...], mean: Array, variance: Array) -> None:
        """Add draw i = (chain, draw), in which f has these moments."""
        values = self._parameters(self._points, i)
        if mean.ndim == 1 or isinstance(self._op, OF_CLASSES):
            found = response(self._op, mean, variance, *values)
        else:  # outputs of one process, one observation per output
            pairs = zip(mean, variance, strict=True)
            found = np.stack([response(self._op, m, v, *values) for m, v in pairs], axis=1)
        self._total = self._total + found
        self._count += 1

    def variables(self, output: str, dims: str) -> dict[str, Any]:
        """Return mean, variance and probabilities of y over all draws, as arguments of xarray."""
        y = self.name
        mean, square, *probability = np.asarray(self._total) / self._count
        at = (dims,) if mean.ndim == 1 else (output, dims)
        with np.errstate(over="ignore", invalid="ignore"):  # squares may overflow
            variance = np.where(np.isinf(square), np.inf, square - mean**2)
        found: dict[str, Any] = {
            f"{y}_mean": (at, mean),
            f"{y}_variance": (at, np.maximum(variance, 0.0)),
        }
        if len(probability) == 1:
            found[f"{y}_probability"] = (at, probability[0])
        elif probability:
            found[f"{y}_probability"] = ((*at, "category"), np.stack(probability, axis=-1))
        return found


def f_of(gp: Any, latent: Any) -> Any:
    """The variable that likelihoods read: a process, or its mean given inducing variables."""
    return gp.projected.mean if isinstance(gp, SparseLatent) else latent


def _reads(f: Any, latents: Sequence[Any], *, is_class_each: bool) -> bool:
    """Whether a likelihood's f is the only latent, or stacks the latents, one for each class."""
    if not is_class_each:
        return len(latents) == 1 and f is latents[0]
    rng = np.random.default_rng(0)
    values = [rng.standard_normal(latent.shape.eval()) for latent in latents]
    kwargs: dict[str, Any] = {"on_unused_input": "ignore", "mode": "FAST_COMPILE"}
    classes = np.moveaxis(np.vstack(values), 0, -1)
    found: bool = np.array_equal(pymc_compile(list(latents), f, **kwargs)(*values), classes)
    return found


def _likelihoods(
    model: pm.Model, latents: Sequence[Any], given: Mapping[str, ArrayLike], points: int
) -> list[tuple[str, Any, list[Any]]]:
    """Return name, op and other parameters of every likelihood that reads f itself."""
    found = []
    for observed in model.observed_RVs:
        rv = expectation_of(observed)
        if rv is None and not is_latent_gaussian_likelihood(observed):
            continue
        rv = unwrapped(observed if rv is None else rv)
        op: Any = rv.owner.op
        f, *arguments = op.dist_params(rv.owner)
        known = response.dispatch(type(op)) is not response.dispatch(object)
        if known and _reads(f, latents, is_class_each=isinstance(op, OF_CLASSES)):
            found.append((str(rv.name or observed.name), op, arguments))
    if given and not found:
        raise ValueError(f"parameters is {set(given)}, but no supported likelihood reads f itself.")
    names = [name for _, op, _ in found for name in _parameters(op)]
    if unknown := set(given) - set(names):
        said = ", ".join(name for name, _, _ in found)
        raise ValueError(f"{said} has no parameter {unknown}: it has {names}.")
    return [
        (name, op, _at_points(name, op, arguments, given, points)) for name, op, arguments in found
    ]


def _parameters(op: Any) -> list[str]:
    """Names of a likelihood's parameters other than f."""
    return list(inspect.signature(response.dispatch(type(op))).parameters)[3:]


def _at_points(
    name: str, op: Any, arguments: list[Any], given: Mapping[str, ArrayLike], points: int
) -> list[Any]:
    """Return a likelihood's parameters at new points: those of the model, or those given."""
    arguments = list(arguments)
    for k, key in enumerate(_parameters(op)):
        if key in given:
            value = np.asarray(given[key], dtype=np.float64)
            if value.shape[: value.ndim - op.ndims_params[k + 1]] not in {(), (points,)}:
                raise ValueError(
                    f"parameters[{key!r}] has shape {value.shape}: write one value for all, "
                    f"or one for each of the {points} points."
                )
            arguments[k] = pt.as_tensor(value)
        elif arguments[k].ndim > op.ndims_params[k + 1]:
            raise ValueError(
                f"{key} of {name} has one value for each observation: write its "
                f"values at the {points} new points, as parameters={{{key!r}: ...}}."
            )
    return arguments
