"""Checks of a model at a point, with messages that say what is wrong, where, and what to write.

They run before a chain starts, and a chain does not start if one fails.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from numpy.typing import NDArray

from pymc_lgm.gaussian.sites import SiteBlocks
from pymc_lgm.linalg import Array
from pymc_lgm.model.functions import ModelFunctions
from pymc_lgm.model.reads import MOST
from pymc_lgm.model.refusals import ELSEWHERE, shapes_disagree
from pymc_lgm.model.refutations import has_curvature

__all__ = [
    "check_model",
    "explain",
    "no_approximation",
    "no_slope",
    "raised_in_a_draw",
    "refuse_large_sets",
    "refuse_no_curvature",
]


def check_model(model: ModelFunctions, theta: Array, f: Array, *, covariance: bool = True) -> None:
    """Raise a `ValueError` unless the model can be sampled from (theta, f).

    Without ``covariance`` K is not computed, which may be too large.
    """
    if covariance and _has_density(model, theta, f):
        return
    message = explain(model, theta, f, covariance=covariance)
    if message is not None:
        raise ValueError(message)


def _has_density(model: ModelFunctions, theta: Array, f: Array) -> bool:
    """Whether the log density at (theta, f) is finite, by the functions that chains call.

    `explain` compiles functions of its own, which most models never need.
    """
    try:
        prior = model.prior(theta)
        if prior is None or prior.variances.shape != (model.n,) or not prior.is_proper:
            return False
        if not (np.isfinite(prior.mean).all() and np.isfinite(f).all()):
            return False
        return bool(np.isfinite(model.log_prior(theta) + model.log_likelihood(f, theta)))
    except (ValueError, AssertionError):
        return False


def explain(
    model: ModelFunctions,
    theta: Array,
    f: Array,
    where: str = "at the starting point",
    *,
    covariance: bool = True,
) -> str | None:
    """Say why the log density at (theta, f) is not finite; ``None`` if it is."""
    where = f"{where} {_show_theta(model, theta)}"
    for name, density in zip(model.prior_names, model.graphs.prior_sums(theta), strict=True):
        if not np.isfinite(density):
            return (
                f"The log density of {name!r} is {density} {where}. Start inside its support, "
                f"{ELSEWHERE}."
            )
    message = model.form.explain(model, model.prior, theta, where) if covariance else None
    if message is not None:
        return message
    if not np.isfinite(f).all():
        i = int(np.flatnonzero(~np.isfinite(f))[0])
        return (
            f"{model.latent!r} is {f[i]} at index {i} {where}. Start from finite values, "
            f"{ELSEWHERE}."
        )
    return _explain_likelihood(model, theta, f, where)


def _explain_likelihood(model: ModelFunctions, theta: Array, f: Array, where: str) -> str | None:
    try:
        terms = model.likelihood.term_values(f, theta)
    except (ValueError, AssertionError) as error:
        shapes = {name: tuple(v.shape.eval().tolist()) for name, v in model.observed.items()}
        return shapes_disagree(model.latent, model.n, shapes, error)
    # If effects are integrated out, the observed variables are one term.
    for name, term in zip(model.likelihood_names, terms, strict=False):
        values = np.atleast_1d(term)
        bad = np.argwhere(~np.isfinite(values))
        if not bad.size:
            continue
        first = tuple(int(i) for i in bad[0])
        at = ", ".join(map(str, first))
        message = (
            f"The log density of {name!r} is {values[first]} at index {at} "
            f"({len(bad)} of {values.size} elements) {where}."
        )
        if name in model.observed:
            y = np.asarray(model.observed[name].eval())
            if y.shape == values.shape:
                message += (
                    f" Its observed value there is {y[first]}. If that is outside the support or "
                    "not a number, correct it, mask it as missing, or choose another likelihood. "
                    f"If it is possible elsewhere, start there, {ELSEWHERE}."
                )
        return message
    return None


def refuse_large_sets(model: ModelFunctions, what: str) -> None:
    """Raise if observations join too many f_i for the blocks of a Gaussian approximation."""
    if model.coupled is not None and model.sets is None:
        instead = (
            "If it has a product exp(a) * exp(b), write exp(a + b): an observation then reads one "
            "element of a + b. Otherwise write lgm.ASIS(), lgm.EllipticalSlice() or "
            "lgm.LatentHMC()."
        )
        if model.graphs.is_scanned():
            instead = (
                f"A pytensor.scan reads {model.latent!r}, and the samplers do not look into it: "
                "write its recursion as a pm.AR, a pm.GaussianRandomWalk, a pt.cumsum or a loop "
                "of Python. Otherwise write lgm.ASIS(), lgm.EllipticalSlice() or lgm.LatentHMC()."
            )
        elif model.is_quadratic:
            instead = (
                "Its errors are Gaussian: write them as a latent variable, a pm.AR for example, "
                "and observe the sum with a small independent error; or observe "
                "pm.MvNormal(mean, cov=covariance of the means + covariance of the errors), and "
                "write lgm.ExactMarginal()."
            )
        raise ValueError(
            f"The log density of {model.coupled!r} joins more than {MOST} elements of "
            f"{model.latent!r}, or elements of a series or of areas. {what} approximates "
            "p(f | y) by a block for each set of elements that observations join, and needs the "
            f"sets to be small. {instead}"
        )


def refuse_no_curvature(model: ModelFunctions, instead: str) -> None:
    """Raise if the likelihood is strictly concave in no f_i, and say what to write instead."""
    theta = model.generic_theta

    def curvature(f: Array) -> Array:
        W: Any = model.likelihood_terms(f, theta)[2]
        return W.values if isinstance(W, SiteBlocks) else W

    if has_curvature(curvature, model.n):
        return
    raise ValueError(
        f"The likelihood ({', '.join(model.likelihood_names)}) is nowhere strictly concave in "
        f"{model.latent!r}, so Laplace's approximation is no narrower than the prior. "
        f"Write {instead}."
    )


def no_approximation(model: ModelFunctions, theta: Array, search: str, instead: str) -> str:
    """Return the message for a search for q that fails at the starting point."""
    return (
        f"No Gaussian approximation of {model.latent!r} was found at the starting point, "
        f"{_show_theta(model, theta)}: the search ({search!r}) met values that are not finite. It "
        "depends on the hyper-parameters, not on the initial values of latent variables. Start "
        f"from other hyper-parameters, as in pm.sample(initvals={{...}}), or write {instead}."
    )


def no_slope(model: ModelFunctions, theta: Array, instead: str) -> str:
    """Return the message for a likelihood whose gradient in f is not finite at the start."""
    return (
        f"The gradient of the likelihood ({', '.join(model.likelihood_names)}) in "
        f"{model.latent!r} is not finite at the starting point, {_show_theta(model, theta)}, so "
        f"{model.latent!r} could not move from there. Start elsewhere, as in "
        f"pm.sample(initvals={{...}}), or write {instead}."
    )


def raised_in_a_draw(model: ModelFunctions, point: dict[str, NDArray[Any]]) -> str:
    """Say where a chain was when an error was raised, and how to avoid the error."""
    return (
        f"This ended a draw from {_show_theta(model, model.theta_of(point))}. If your code raises "
        "it because a value cannot be computed, let it return NaN: that proposal is rejected and "
        "counted, and the chain continues. To keep the draws before an error, use "
        "pm.sample(trace=...), with a pymc.backends.ZarrTrace for example, or a callback."
    )


def _show_theta(model: ModelFunctions, theta: Array) -> str:
    point = model.point_of(theta)
    shown = [f"{name}={np.array2string(point[name], precision=4)}" for name in model.theta_names]
    return "{" + ", ".join(shown) + "}"
