"""Marks by which a model with a likelihood of this package opts in to its default step method.

PyMC asks a step method about one random variable, without the model. So the likelihood marks the
variables that it depends on. The mark is part of a variable's tag, which PyMC's cloning,
`pymc.do`, `pymc.observe` and pickling keep, inside a model context and outside.
"""

from pymc.distributions.multivariate import CARRV, ICARRV, KroneckerNormalRV, MvNormalRV
from pymc.distributions.timeseries import AutoRegressiveRV, RandomWalkRV
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import NormalRV

from pymc_lgm.compile.graphs.nodes import op_of

__all__ = [
    "RANDOM_FEATURES",
    "WHITENED",
    "are_weights",
    "expectation_of",
    "is_for_the_default",
    "is_inducing",
    "is_marked",
    "mark",
    "mark_expectation",
    "mark_inducing",
]

RANDOM_FEATURES = "random features"
"""The mark of standard normal coordinates that are weights of random features."""

WHITENED = ("_rotated_", "_hsgp_coeffs", "_hsgp_coeffs_")
"""Ends of the names that PyMC gives to the coordinates of a process that it whitens."""

DENSE_OR_MAP = (MvNormalRV, KroneckerNormalRV, CARRV, ICARRV)
"""Ops of PyMC whose variables are Gaussian vectors."""


def mark(likelihood: Variable) -> None:
    """Mark all that a likelihood depends on, if a process, a series or a map is among it.

    A regression, with or without effects of groups, is left to NUTS.
    """
    variables = [v for v in ancestors([likelihood]) if v.owner is not None]
    if any(map(is_for_the_default, variables)):
        for variable in variables:
            variable.tag.latent_gaussian = True


def is_marked(rv: Variable) -> bool:
    """Whether a likelihood of this package depends on a variable."""
    return hasattr(rv.tag, "latent_gaussian")


def is_for_the_default(variable: Variable) -> bool:
    """Whether a variable is a Gaussian process, a series, a map or a field, whitened or not.

    Only its op and its name are read. Whether the variable can be latent is decided when the whole
    model is read.
    """
    op = variable.owner.op
    if isinstance(op, NormalRV):
        return are_weights(variable) or (variable.name or "").endswith(WHITENED)
    if isinstance(op, RandomWalkRV):
        return all(map(_is_normal, variable.owner.inputs[:2]))
    if isinstance(op, AutoRegressiveRV):
        return _is_normal(variable.owner.inputs[2])
    return isinstance(op, DENSE_OR_MAP) or getattr(op, "is_gaussian_field", False)


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


def _is_normal(part: Variable) -> bool:
    """Whether the first values, or the innovations, of a series are normal."""
    return isinstance(op_of(part), NormalRV | MvNormalRV)
