"""Messages about a PyMC model that cannot be read: texts, which know nothing of the package."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = [
    "not_a_hyperparameter",
    "not_a_latent",
    "not_a_vector",
    "refuse_float32",
    "shapes_disagree",
    "transformed",
    "which_latent",
]


def refuse_float32(floatX: str) -> None:
    """Raise under ``floatX="float32"``."""
    if floatX != "float64":
        raise ValueError(
            f"pytensor.config.floatX is {floatX!r}; Cholesky factors of covariances need float64. "
            "Write pytensor.config.floatX = 'float64' before the model."
        )


def which_latent(candidates: Sequence[str], free: Sequence[str]) -> str:
    """No latent, or several."""
    if len(candidates) > 1:
        return (
            f"The model has {len(candidates)} latent Gaussian vectors: {', '.join(candidates)}. "
            f"Name the one to sample and its hyper-parameters: lgm.ASIS([{candidates[0]}, ...]); "
            "give each of the others a step of its own. If one is a gp.conditional, add it to the "
            "model after pm.sample()."
        )
    whitened = [name.removesuffix("_rotated_") for name in free if name.endswith("_rotated_")]
    f = whitened[0] if whitened else "f"
    return (
        "The model has no latent Gaussian vector: no free variable is a pm.MvNormal"
        + (f", but {f!r} is whitened in the model" if whitened else "")
        + f". Write gp.prior({f!r}, X, reparameterize=False): the samplers whiten, not the model. "
        + "(To sample the model as it is, pass step=pm.NUTS().)"
    )


def not_a_latent(name: str, candidates: Sequence[str]) -> str:
    """The named variable is no MvNormal."""
    return (
        f"{name!r} is not a latent Gaussian vector (a free pm.MvNormal). "
        f"This model has: {', '.join(candidates) or 'none; write reparameterize=False'}."
    )


def shapes_disagree(
    latent: str, n: int, observed: dict[str, tuple[int, ...]], error: Exception
) -> str:
    """The likelihood cannot be evaluated."""
    return (
        f"The log density cannot be evaluated: {latent!r} has shape ({n},), the observed data "
        f"{observed}. Where shapes disagree, index the latent, as in {latent}[group] for repeated "
        f"measurements. PyTensor says: {str(error).splitlines()[0]}"
    )


def not_a_hyperparameter(name: str) -> str:
    """A discrete variable in theta, say."""
    return (
        f"{name!r} cannot be part of theta, which holds continuous free variables of the model "
        "other than f. Leave it out; pm.sample() gives a discrete variable a step of its own."
    )


def not_a_vector(name: str, ndim: int) -> str:
    """A batch of Gaussian vectors."""
    return (
        f"The latent {name!r} has {ndim} dimensions; the samplers take one vector. "
        "Write one gp.prior for each output, each with a step of its own."
    )


def transformed(name: str) -> str:
    """A transform on f."""
    return (
        f"The latent {name!r} has a transform, so it is not Gaussian on the sampled scale. "
        "Remove transform= from it and apply the function in the likelihood."
    )
