"""Marks by which a model with a likelihood of this package opts in to its default step method.

PyMC asks a step method about one random variable, without the model. So the likelihood marks the
variables that it depends on. The mark is part of a variable's tag, which PyMC's cloning,
`pymc.do`, `pymc.observe` and pickling keep, inside a model context and outside.
"""

from typing import Any

from pymc.distributions.multivariate import MvNormalRV
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors

__all__ = [
    "RANDOM_FEATURES",
    "are_weights",
    "expectation_of",
    "is_inducing",
    "is_marked",
    "mark",
    "mark_expectation",
    "mark_inducing",
]

RANDOM_FEATURES = "random features"
"""The mark of standard normal coordinates that are weights of random features."""


def mark(likelihood: Variable) -> None:
    """Mark f and every hyper-parameter that a likelihood depends on, if it depends on an f.

    A regression without a Gaussian vector is left to NUTS. A Gaussian process that the model
    whitens itself is marked, too.
    """
    variables = [v for v in ancestors([likelihood]) if v.owner is not None]
    if any(map(_is_latent, variables)):
        for variable in variables:
            variable.tag.latent_gaussian = True


def is_marked(rv: Variable) -> bool:
    """Whether a likelihood of this package depends on a variable."""
    return hasattr(rv.tag, "latent_gaussian")


def mark_inducing(v: Variable, what: str = "inducing variables") -> None:
    """Mark standard normal coordinates that densities read as V ``v``, and say what they are."""
    v.tag.lgm_inducing = what


def is_inducing(rv: Variable) -> bool:
    """Whether a variable is marked by `mark_inducing`."""
    return hasattr(rv.tag, "lgm_inducing")


def are_weights(rv: Variable) -> bool:
    """Whether a variable is marked as the weights of random features."""
    return getattr(rv.tag, "lgm_inducing", None) == RANDOM_FEATURES


def mark_expectation(rv: Variable, likelihood: Variable) -> None:
    """Record that a log density is the expectation of a likelihood, given at the mean of its f."""
    rv.tag.lgm_expectation = likelihood


def expectation_of(rv: Variable) -> Variable | None:
    """The likelihood of `mark_expectation`, if a variable is marked by it."""
    return getattr(rv.tag, "lgm_expectation", None)


def _is_latent(variable: Any) -> bool:
    name = variable.name or ""
    return (
        isinstance(variable.owner.op, MvNormalRV)
        or name.endswith("_rotated_")
        or are_weights(variable)
    )
