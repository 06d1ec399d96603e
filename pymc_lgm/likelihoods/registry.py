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
    "expectation_of",
    "is_inducing",
    "is_marked",
    "mark",
    "mark_expectation",
    "mark_inducing",
]


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


def mark_inducing(v: Variable) -> None:
    """Mark the standard normal coordinates of inducing variables."""
    v.tag.lgm_inducing = True


def is_inducing(rv: Variable) -> bool:
    """Whether a variable has been marked so."""
    return hasattr(rv.tag, "lgm_inducing")


def mark_expectation(rv: Variable, likelihood: Variable) -> None:
    """Say of which likelihood, at the mean of its f, a log density is the expectation."""
    rv.tag.lgm_expectation = likelihood


def expectation_of(rv: Variable) -> Variable | None:
    """That likelihood, if a variable has been marked so."""
    return getattr(rv.tag, "lgm_expectation", None)


def _is_latent(variable: Any) -> bool:
    name = variable.name or ""
    return isinstance(variable.owner.op, MvNormalRV) or name.endswith("_rotated_")
