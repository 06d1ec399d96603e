"""Declarations of likelihoods that are log-concave in f, or sums of logarithms of a softmax.

A distribution of this package declares its density itself. For PyMC's distributions a table
declares with which kinds of parameters the density is log-concave. A kind is a function of a
variable that is affine in f: ``pm.Poisson("y", pm.math.exp(f))`` is log-concave, and
``pm.Poisson("y", f**2)`` is not. A distribution that is not in a table counts as neither.
"""

from __future__ import annotations

import math

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor.scalar as ps

from pymc.distributions.censored import CensoredRV
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import ancestors
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.special import Softmax
from pytensor.tensor.subtensor import Subtensor

from pymc_lgm.compile.graphs.functions import called_once
from pymc_lgm.compile.graphs.nodes import function_of, op_of
from pymc_lgm.likelihoods.base import LikelihoodRV, unwrapped
from pymc_lgm.likelihoods.registry import expectation_of
from pymc_lgm.model.operations import (
    JOINING,
    PICKING,
    POWERS,
    Variable,
    carried,
    is_affine,
    moved,
    number_of,
)

__all__ = ["are_bent_slowly", "are_log_concave", "are_quadratic", "are_softmaxes"]

# The kinds of functions of f that the parameters of a distribution can be.
FREE = "free of f"
AFFINE = "affine in f"
LOG_AFFINE = "a number times the exponential of an affine function"
NEGATIVE = "minus such an exponential"
SURVIVAL = "exponential of minus such an exponential"
LOGIT = "inverse logit"
PROBIT = "inverse probit"
CLOGLOG = "inverse complementary log-log"
ERFC = "erfc of an affine function"
SOFTMAX = "softmax"
CUMULATIVE = "cumulative probabilities"
ORDERED = "differences of cumulative probabilities"
OTHER = "another function of f"

Parameters = Sequence[tuple[str, ...]]
"""Combinations of kinds that the parameters of a distribution may have."""

PROBABILITIES = (LOGIT, PROBIT, CLOGLOG)

LOCATION = ((AFFINE, FREE),)
SCALE = ((FREE, LOG_AFFINE),)
CHANCE = tuple((kind,) for kind in PROBABILITIES)

LOG_CONCAVE: dict[Any, Parameters] = {
    pm.Normal: LOCATION + SCALE,
    pm.LogNormal: LOCATION + SCALE,
    pm.MvNormal: LOCATION,
    pm.Laplace: LOCATION + SCALE,
    pm.Logistic: LOCATION,
    pm.Gumbel: LOCATION,
    pm.Moyal: LOCATION,
    pm.SkewNormal: ((AFFINE, FREE, FREE),),
    pm.ExGaussian: ((AFFINE, FREE, FREE),),
    pm.AsymmetricLaplace: ((FREE, FREE, AFFINE),),
    pm.TruncatedNormal: ((AFFINE, FREE, FREE, FREE),),
    pm.HalfNormal: SCALE,
    pm.Cauchy: SCALE,
    pm.HalfCauchy: ((LOG_AFFINE,),),
    pm.StudentT: ((FREE, FREE, LOG_AFFINE),),
    pm.HalfStudentT: SCALE,
    pm.Pareto: ((LOG_AFFINE, FREE),),
    pm.Gamma: SCALE,
    pm.InverseGamma: SCALE,
    pm.Weibull: SCALE,
    pm.Exponential: ((LOG_AFFINE,),),
    pm.Poisson: ((LOG_AFFINE,),),
    pm.Bernoulli: CHANCE,
    pm.Geometric: CHANCE,
    pm.Binomial: tuple((FREE, kind) for kind in PROBABILITIES),
    pm.NegativeBinomial: ((FREE, LOGIT),),
    pm.Categorical: ((SOFTMAX,), (ORDERED,)),
    pm.Multinomial: ((FREE, SOFTMAX),),
}
"""For each distribution, the kinds of its parameters in PyTensor with which it is log-concave.

Boyd and Vandenberghe (2004, section 3.5) prove it, except for cumulative probabilities, where
Pratt (1981, JASA 76, 103) does. A normal density is an exponential family in its mean, truncated or
not: what it is divided by is log-convex in the mean.
"""

CENSORED: dict[Any, Parameters] = {
    pm.Normal: LOCATION,
    pm.LogNormal: LOCATION,
    pm.Laplace: LOCATION,
    pm.Logistic: LOCATION,
    pm.Gumbel: LOCATION,
    pm.HalfNormal: SCALE,
    pm.Gamma: SCALE,
    pm.InverseGamma: SCALE,
    pm.Weibull: SCALE,
    pm.Exponential: ((LOG_AFFINE,),),
    pm.Poisson: ((LOG_AFFINE,),),
}
"""Kinds of parameters in a `pymc.Censored`, whose probabilities must be log-concave as well.

If y or log y is f plus noise with a log-concave density, that density is log-concave in y and f
together, and its integral over y is log-concave in f (Prékopa 1973). This holds for log y if y is a
Gamma or Weibull variable. For counts, P(Poisson(exp(f)) <= k) = P(log Gamma(k + 1) > f). A scale of
variables with both signs is left out, because its probabilities need not be log-concave.
"""

SHARP = (
    *(pm.Laplace, pm.AsymmetricLaplace, pm.Logistic, pm.Gumbel, pm.Moyal, pm.ExGaussian),
    *(pm.SkewNormal, pm.TruncatedNormal, pm.Weibull),
)
"""Distributions whose log density may bend within a small part of a unit of f, and one whose slope
jumps. A quadrature with a few nodes per unit errs by 0.6 nats for a `pymc.Logistic` with scale 0.1,
by 1.2 for a `pymc.TruncatedNormal` with scale 0.1, and by 0.1 for a `pymc.Laplace` with scale 0.5.
"""

UNIT_SCALE = (pm.HalfNormal, pm.Exponential)
"""Distributions whose logarithm has a fixed spread, and so do probabilities of censored ones. That
of a Gamma variable shrinks with its shape, and that of a count with the bound."""

OF_EVENTS = (pm.Binomial, pm.Geometric)
"""Distributions whose log density has n Φ(f) for rare events, which grows by e^|f| per unit of f. A
quadrature with 16 nodes errs by 1e-3 for each of observations with a probability of 1e-4."""

OF_ONE = POWERS | {ps.Sign: 0.0}
"""Powers of an exponential. Its sign is that of a number."""

ROUNDING = 1e-9
"""Error of a product of constants, such as 10 and 0.1."""

QUADRATIC: dict[Any, Parameters] = dict.fromkeys((pm.Normal, pm.LogNormal, pm.MvNormal), LOCATION)
"""Kinds of parameters with which the logarithm of a density is quadratic in f."""

OF_SOFTMAX: dict[Any, Parameters] = {
    pm.Categorical: ((SOFTMAX,),),
    pm.Multinomial: ((FREE, SOFTMAX),),
}
"""Kinds of parameters with which the logarithm of a density is Σ w_c log softmax(h)_c, with weights
w ≥ 0."""


def _by_type(table: dict[Any, Parameters]) -> dict[type, Parameters]:
    """A table with the types of the random variables' operations as keys."""
    return {
        getattr(distribution, "rv_type", None) or type(distribution.rv_op): kinds
        for distribution, kinds in table.items()
    }


SHARP_TYPES = tuple(_by_type(dict.fromkeys(SHARP, ())))
COUNTS_OF_EVENTS = tuple(_by_type(dict.fromkeys(OF_EVENTS, ())))
OF_UNIT_SCALE = tuple(_by_type(dict.fromkeys(UNIT_SCALE, ())))
KINDS, KINDS_OF_SOFTMAX = _by_type(LOG_CONCAVE), _by_type(OF_SOFTMAX)
KINDS_OF_QUADRATIC = _by_type(QUADRATIC)
KINDS_OF_CENSORED = _by_type(CENSORED)


def are_log_concave(terms: Sequence[Variable], frontier: Collection[Variable]) -> bool:
    """Whether all log densities that read f are declared to be concave in it.

    Parameters
    ----------
    terms : sequence of variable
        Random variables and potentials.
    frontier : collection of variable
        The variables through which they read f.
    """
    observed = [(term, expectation_of(term)) for term in _reading(terms, frontier)]
    return all(
        _is_declared(term if of is None else of, frontier, "is_log_concave", KINDS)
        for term, of in observed
    )


def are_bent_slowly(terms: Sequence[Variable], frontier: Collection[Variable]) -> bool:
    """Whether log densities that read f are known to be smooth on the scale of one unit of f.

    Densities that are not Gaussian in f depend on it by exp(f) or by a probability then, none of
    their parameters is a scale of f, and f is not multiplied by more than one before it is in them.
    """
    reading = _reading(terms, frontier)
    kinds = _kinds(reading, frontier)
    if any(_is_sharp(term) or _is_of_rare_events(term, kinds) for term in reading):
        return False
    once = dict.fromkeys(frontier, 1.0)
    factors = carried(reading, once, lambda node, known: _factor(node, known, kinds), frontier)
    return all(factors[term] < 1.0 + ROUNDING for term in reading)


def _factor(node: Any, known: Sequence[float | None], kinds: Mapping[Variable, str]) -> float:
    """The largest number that f is multiplied by in a variable, or in its logarithm."""
    kind, op = kinds[node.outputs[0]], function_of(node.outputs[0])
    of_f = [k for k in known if k is not None]
    if kind not in (AFFINE, LOG_AFFINE) or moved(node.op, node.inputs):
        return max(of_f)
    if op is None:
        return math.inf
    total = sum(of_f) * abs(OF_ONE.get(type(op), 1.0))
    if isinstance(op, ps.Pow) or (kind == AFFINE and isinstance(op, ps.Mul | ps.TrueDiv)):
        for v, k in zip(node.inputs, known, strict=True):
            total *= 1.0 if k is not None else _size(v, is_divisor=isinstance(op, ps.TrueDiv))
    return total


def _size(v: Variable, *, is_divisor: bool) -> float:
    """The largest absolute value of a constant, or of 1 over it; infinite if it may change."""
    if not all(isinstance(each, Constant) for each in ancestors([v]) if each.owner is None):
        return math.inf
    size = np.abs(np.asarray(called_once([], v)(), dtype=np.float64))
    with np.errstate(divide="ignore"):
        return float(np.max(1.0 / size if is_divisor else size))


def are_quadratic(terms: Sequence[Variable], frontier: Collection[Variable]) -> bool:
    """Whether all log densities that read f are quadratic in it: given theta, f is Gaussian."""
    return _are_declared(terms, frontier, "is_quadratic", KINDS_OF_QUADRATIC)


def are_softmaxes(terms: Sequence[Variable], frontier: Collection[Variable]) -> bool:
    """Whether all log densities that read f are Σ w_rc log softmax(h_r)_c, w ≥ 0, h affine in f."""
    return _are_declared(terms, frontier, "is_softmax", KINDS_OF_SOFTMAX)


def _are_declared(
    terms: Sequence[Variable],
    frontier: Collection[Variable],
    says: str,
    table: Mapping[type, Parameters],
) -> bool:
    """Whether all log densities that read f are declared to be of a kind; an expectation is not."""
    return all(
        expectation_of(term) is None and _is_declared(term, frontier, says, table)
        for term in _reading(terms, frontier)
    )


def _reading(terms: Sequence[Variable], frontier: Collection[Variable]) -> list[Variable]:
    """The terms that read f."""
    return [term for term in terms if not set(frontier).isdisjoint(ancestors([term]))]


def _is_sharp(term: Variable) -> bool:
    """Whether a log density may bend within a small part of a unit of f.

    Probabilities of censored observations bend within the scale of a variable, or of its logarithm,
    although a normal density itself is quadratic.
    """
    op = unwrapped(term).owner.op
    if isinstance(op, LikelihoodRV):
        return not op.bends_slowly
    if isinstance(op, CensoredRV):
        return not isinstance(unwrapped(term).owner.inputs[0].owner.op, OF_UNIT_SCALE)
    return isinstance(op, SHARP_TYPES)


def _is_of_rare_events(term: Variable, kinds: Mapping[Variable, str]) -> bool:
    """Whether a term counts events with probability Φ(f), which may be steep if they are rare."""
    node = unwrapped(term).owner
    if not isinstance(node.op, COUNTS_OF_EVENTS):
        return False
    return any(kinds.get(v) == PROBIT for v in node.inputs)


def _is_declared(
    term: Variable, frontier: Collection[Variable], says: str, table: Mapping[type, Parameters]
) -> bool:
    """Whether a distribution of this package declares it, or the table does for one of PyMC's."""
    term = unwrapped(term)
    op: Any = op_of(term)
    if isinstance(op, LikelihoodRV):
        _rng, _size, f, *others = term.owner.inputs
        kinds = _kinds([f, *others], frontier)
        return getattr(op, says) and kinds[f] == AFFINE and all(kinds[v] == FREE for v in others)
    bounds: list[Variable] = []
    if isinstance(op, CensoredRV) and table is KINDS:
        term, *bounds = term.owner.inputs
        op = op_of(term)
        table = KINDS_OF_CENSORED
    if type(op) not in table:
        return False
    parameters = op.dist_params(term.owner)
    kinds = _kinds([*parameters, *bounds], frontier)
    if any(kinds[v] != FREE for v in bounds):
        return False
    return tuple(kinds[v] for v in parameters) in table[type(op)]


def _kinds(outputs: Sequence[Variable], frontier: Collection[Variable]) -> dict[Variable, str]:
    """The kind of function of f that each variable of a graph is."""
    affine = dict.fromkeys(frontier, AFFINE)
    kinds = carried(
        outputs, affine, lambda node, facts: _kind(node, [kind or FREE for kind in facts]), frontier
    )
    return dict.fromkeys(outputs, FREE) | kinds


def _kind(node: Any, kinds: list[str]) -> str:
    op = node.op
    of_f = {kind for kind in kinds if kind != FREE}
    if not of_f:
        return FREE
    if isinstance(op, CheckAndRaise):
        return kinds[0]
    if of_f == {AFFINE} and is_affine(node, [kind == AFFINE for kind in kinds]):
        return AFFINE
    if isinstance(op, PICKING) and len(of_f) == 1 and kinds[0] != FREE:
        others_move = any(kind != FREE for kind in kinds[1:])
        return OTHER if others_move else kinds[0]
    if isinstance(op, JOINING):
        if of_f == {LOG_AFFINE}:
            return LOG_AFFINE
        pairs = zip(node.inputs, kinds, strict=True)
        ends = all(number_of(v) in (0.0, 1.0) for v, kind in pairs if kind == FREE and v.type.ndim)
        return CUMULATIVE if len(of_f) == 1 and of_f <= set(PROBABILITIES) and ends else OTHER
    if isinstance(op, Softmax):
        return SOFTMAX if kinds[0] == AFFINE else OTHER
    return _of_numbers(node, kinds)


def _of_numbers(node: Any, kinds: list[str]) -> str:
    """The kind of the result of an operation that is neither affine nor moves elements."""
    op, first = function_of(node.outputs[0]), kinds[0]
    for kind, of, result in FUNCTIONS:
        if isinstance(op, kind) and first == of:
            return result
    if isinstance(op, (*POWERS, ps.Sign)) and first == LOG_AFFINE:
        return LOG_AFFINE
    if isinstance(op, ps.Mul | ps.TrueDiv) and set(kinds) <= {FREE, LOG_AFFINE}:
        return LOG_AFFINE
    if isinstance(op, ps.Pow) and kinds == [LOG_AFFINE, FREE]:
        return LOG_AFFINE
    if isinstance(op, ps.Second):
        return kinds[1]
    if isinstance(op, ps.Mul) and _is_half_of(node, kinds):
        return PROBIT
    if isinstance(op, ps.Sub):
        if kinds == [FREE, SURVIVAL] and number_of(node.inputs[0]) == 1.0:
            return CLOGLOG
        if kinds == [CUMULATIVE, CUMULATIVE] and _are_neighbors(*node.inputs):
            return ORDERED
    return OTHER


FUNCTIONS = (
    (ps.Exp, AFFINE, LOG_AFFINE),
    (ps.Log, LOG_AFFINE, AFFINE),
    (ps.Sigmoid, AFFINE, LOGIT),
    (ps.Erfc, AFFINE, ERFC),
    (ps.Neg, LOG_AFFINE, NEGATIVE),
    (ps.Exp, NEGATIVE, SURVIVAL),
)
"""Functions of one number, with the kind of their argument and of their result."""


def _is_half_of(node: Any, kinds: list[str]) -> bool:
    """Whether a product is ½ erfc(u), which is Φ(−u √2)."""
    free = [v for v, k in zip(node.inputs, kinds, strict=True) if k == FREE]
    return ERFC in kinds and len(kinds) == 2 and len(free) == 1 and number_of(free[0]) == 0.5


def _are_neighbors(upper: Variable, lower: Variable) -> bool:
    """Whether ``upper`` is v[..., 1:] and ``lower`` is v[..., :-1] for one variable v."""
    both = [v.owner for v in (upper, lower)]
    if any(node is None or not isinstance(node.op, Subtensor) for node in both):
        return False
    if both[0].inputs[0] is not both[1].inputs[0]:
        return False
    (*_, last), (*_, first) = (node.op.idx_list for node in both)
    starts, ends = isinstance(last, slice), isinstance(first, slice)
    if not starts or not ends or last.stop is not None or first.start is not None:
        return False
    return [number_of(node.inputs[-1]) for node in both] == [1.0, -1.0]
