"""Messages that several modules raise about models, as functions of names and sizes.

A message of one module is where that module raises it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

ELSEWHERE = "with initval= of a variable, or with pm.sample(initvals={...}) and no step="
"""How a chain starts from another point. A step that is made before `pymc.sample` has been checked
at the initial point of the model."""


def shapes_disagree(
    latent: str, n: int, observed: dict[str, tuple[int, ...]], error: Exception
) -> str:
    """The likelihood cannot be evaluated."""
    return (
        f"The log density cannot be evaluated: {latent!r} has shape ({n},), the observed data "
        f"{observed}. If the shapes disagree, index the latent, as in {latent}[group] for repeated "
        "measurements. If pm.set_data has replaced covariates, replace the observed data, too, "
        "which need a pm.Data of their own. "
        f"PyTensor says: {str(error).splitlines()[0]}"
    )


def not_a_hyperparameter(name: str) -> str:
    """A variable in theta is not continuous and free, or is latent."""
    return (
        f"{name!r} cannot be part of theta, which holds continuous free variables of the model "
        "other than f. Leave it out; pm.sample() gives a discrete variable a step of its own."
    )


def not_finite(what: str, value: float, index: int, where: str = "at the starting point") -> str:
    """The predictor or a mean is not finite, because of a NaN in a covariate, say."""
    said = f"{what} is {value} at index {index} {where}."
    if value == -np.inf:
        return (
            f"{said} The log of 0 is -inf. If you add the log of an exposure that is 0 there, "
            "multiply by the exposure instead, as in mu=exposure * pm.math.exp(eta); or leave out "
            "the observations whose exposure is 0."
        )
    return (
        f"{said} Remove or impute a NaN or an infinity in that row of X, or start elsewhere, with "
        "initval= of a variable, if it is finite there."
    )


def couples(latent: str, density: str, what: str) -> str:
    """A density reads several elements of f together."""
    return (
        f"The likelihood does not factorize over {latent!r}: the log density of {density!r} "
        "couples its elements, like that of several classes or of a mean and a scale. "
        f"{what} needs p(y | f) = ∏ p(y_i | f_i). Write "
        "lgm.PseudoMarginal(), lgm.ASIS() or lgm.LatentHMC(), which do not, or observations that "
        f"depend on one element of {latent!r} each."
    )


def does_not_split(likelihood: Sequence[str], latent: str) -> str:
    """A density is one number that depends on several elements of f, and sites are asked for."""
    return (
        f"A log density ({', '.join(likelihood)}) is a sum over several elements of {latent!r}, "
        "and sites need them one by one, p(y_i | f_i). Write a pm.Potential without its sum, or "
        "approximation='laplace'."
    )


def hidden_layer(inner: str, outer: str) -> str:
    """A process is the input of another process."""
    hidden, f = (
        name.removesuffix("_weights").removesuffix("_u_rotated_") for name in (inner, outer)
    )
    return (
        f"{inner!r} enters the model in a way that is not affine: {hidden!r} is the input of the "
        f"process {f!r}. The samplers of this package need latent variables that enter affinely, "
        "and a hidden layer does not. Write fitted = pm.fit(20_000) and idata = "
        "fitted.sample(1000) instead of pm.sample(), with pm.Minibatch if there are many data."
    )


def no_model(what: str) -> str:
    """A function was called outside of a ``with model:`` block."""
    return f"{what} needs a model: write it inside `with model:`, or pass model=model."
