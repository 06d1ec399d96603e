"""Opting in: a likelihood of this package marks the variables that it depends on.

PyMC asks a step method about one random variable, without the model. The mark is on the variable
itself, so it is there inside a model context and outside, and in copies: PyMC's cloning,
`pymc.do`, `pymc.observe` and pickling keep a variable's tag.
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
"""What `mark_inducing` calls those that are no inducing variables."""


def mark(likelihood: Variable) -> None:
    """Mark f and every hyper-parameter that a likelihood depends on, if it depends on an f.

    A regression without a Gaussian vector stays with NUTS. A Gaussian process that the model
    whitens itself is marked too.
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
    """Whether a variable has been marked so."""
    return hasattr(rv.tag, "lgm_inducing")


def are_weights(rv: Variable) -> bool:
    """Whether a variable has been marked as the weights of random features."""
    return getattr(rv.tag, "lgm_inducing", None) == RANDOM_FEATURES


def mark_expectation(rv: Variable, likelihood: Variable) -> None:
    """Say of which likelihood, at the mean of its f, a log density is the expectation."""
    rv.tag.lgm_expectation = likelihood


def expectation_of(rv: Variable) -> Variable | None:
    """That likelihood, if a variable has been marked so."""
    return getattr(rv.tag, "lgm_expectation", None)


def _is_latent(variable: Any) -> bool:
    name = variable.name or ""
    return (
        isinstance(variable.owner.op, MvNormalRV)
        or name.endswith("_rotated_")
        or are_weights(variable)
    )
