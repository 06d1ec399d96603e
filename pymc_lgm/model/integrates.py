"""Prove from the graph of its parameters that a density integrates to one at every theta.

Only then may a variable that no density reads be left out and drawn afterwards. If a scale can be
negative, or a transform restricts the support, the variable is informative about theta.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytensor.tensor.random.basic as rb

from pymc.distributions import continuous
from pymc.distributions.custom import default_not_implemented
from pymc.distributions.distribution import PartialObservedRV, SymbolicRandomVariable
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import ancestors
from pytensor.scalar.math import Gamma
from pytensor.tensor.basic import AllocEmpty
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky
from pytensor.tensor.math import Dot, Prod, Sum
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.special import Softmax
from pytensor.tensor.subtensor import Subtensor

from pymc_lgm.compile.graphs.nodes import function_of, op_of
from pymc_lgm.compile.graphs.upstream import default_transform_of
from pymc_lgm.model.operations import (
    JOINING,
    PICKING,
    SETTING,
    Variable,
    constant_of,
    core_of,
    known_value,
    moved,
)

__all__ = ["integrates_to_one", "is_positive", "positive_or_nan"]

Condition = Callable[[Variable], bool]

SUPPORT_IS_POSITIVE = (
    *(rb.ExponentialRV, rb.GammaRV, rb.InvGammaRV, rb.LogNormalRV, rb.BetaRV, rb.WeibullRV),
    *(rb.ParetoRV, continuous.HalfCauchyRV, continuous.HalfStudentTRV),
)
"""Distributions of positive numbers."""

REAL = (
    *(ps.Add, ps.Sub, ps.Mul, ps.Neg, ps.Abs, ps.Sqr, ps.Exp, ps.Expm1, ps.Softplus, ps.Sigmoid),
    *(ps.Tanh, ps.Sin, ps.Cos, ps.Cast, ps.Identity, ps.Second, ps.Switch),
    *(ps.Maximum, ps.Minimum, ps.Erf, ps.LT, ps.GT, ps.LE, ps.GE, ps.EQ),
)
"""Functions whose value is finite if their arguments are."""

OF_FIRST = (*PICKING, Sum, Prod)
"""Operations whose results are real or positive if their first input is."""

OF_SEVERAL = (*JOINING, *SETTING)
"""Operations whose results have the sign of all inputs that elements are moved from, if they agree.

One of them may be a ``pt.empty``, as in what PyMC makes of an observed variable with missing
elements. Its elements have no value until they are set.
"""


def integrates_to_one(model: pm.Model, rv: Variable) -> bool:
    """Whether a free random variable has a normalized density for all values of other variables.

    Missing elements of an observed variable share its parameters with the observed elements, which
    already restrict them. So only parameters with an element for each observation are checked.
    """
    if not _factors_of(rv.owner.inputs) <= _factors_of(model.observed_RVs):
        return False
    transform = model.rvs_to_transforms[rv]
    own = default_transform_of(rv.owner.op, rv)
    random = getattr(type(rv.owner.op), "_random_fn", None)
    if getattr(random, "__qualname__", "").startswith(default_not_implemented.__name__):
        return False  # a `pymc.CustomDist` without random=
    if transform is not None and not _is_same(transform, own):
        return False
    if isinstance(rv.owner.op, PartialObservedRV):
        law = rv.owner.inputs[0]
        if law.owner is None or getattr(law.owner.op, "ndim_supp", 0) > 0:
            # PyMC's density is then a joint one of observed and missing elements.
            return False
        if _needs(law) is None:
            return True
        return _holds(law, lambda v: all(v.type.broadcastable))
    if isinstance(rv.owner.op, rb.MvNormalRV):
        mean, cov = rv.owner.op.dist_params(rv.owner)
        return is_real(mean) and _has_observed_covariance(model, cov)
    return _needs(rv) is not None and _holds(rv, lambda v: False)


def _factors_of(graphs: Sequence[Variable]) -> set[Variable]:
    """Cholesky factors that some graphs read.

    A matrix may have none at some theta. The density of data that read it restricts theta then.
    """
    return {v for v in ancestors(graphs) if isinstance(core_of(op_of(v)), Cholesky)}


def _has_observed_covariance(model: pm.Model, cov: Variable) -> bool:
    """Whether an observed variable has the same covariance for each row, and so restricts it."""
    observed = [v for v in model.observed_RVs if isinstance(v.owner.op, rb.MvNormalRV)]
    covs = [v.owner.op.dist_params(v.owner)[1] for v in observed]
    own = _of_all_rows(cov)
    return own is not None and any(own is _of_all_rows(each) for each in covs)


def _of_all_rows(cov: Variable) -> Variable | None:
    """The matrix that all rows have as covariance, before PyMC added axes; ``None`` if they differ.

    PyMC indexes an added axis by 0 for the rows with missing elements.
    """
    if not all(cov.type.broadcastable[:-2]):
        return None
    while isinstance(op_of(cov), DimShuffle | Subtensor):
        (inner, *_) = cov.owner.inputs
        if not all(inner.type.broadcastable[:-2]) or inner.ndim < 2:
            return None
        cov = inner
    return cov


def _needs(rv: Variable) -> list[tuple[Variable, Condition]] | None:
    """Each parameter with the condition that it must meet; ``None`` for an unknown distribution."""
    op = rv.owner.op
    if isinstance(op, rb.UniformRV):
        lower, upper = op.dist_params(rv.owner)
        return [(lower, is_real), (upper, is_real), (upper, lambda v: _is_interval(lower, v))]
    if type(op) not in PARAMETERS:
        return None
    return list(zip(op.dist_params(rv.owner), PARAMETERS[type(op)], strict=True))


def _holds(rv: Variable, is_shared: Condition) -> bool:
    return all(is_shared(v) or holds(v) for v, holds in _needs(rv) or ())


def _is_same(transform: Any, own: Any) -> bool:
    """Whether a transform is a distribution's own, with the same bounds."""
    if transform is own:
        return True
    functions: list[Any] = [getattr(each, "args_fn", None) for each in (transform, own)]
    codes = [getattr(each, "__code__", None) for each in functions]
    if type(transform) is not type(own) or codes[0] is None or codes[0] is not codes[1]:
        return False
    one, other = ([cell.cell_contents for cell in each.__closure__ or ()] for each in functions)
    return len(one) == len(other) and all(a is b or a == b for a, b in zip(one, other, strict=True))


def is_positive(v: Variable, *, or_zero: bool = False) -> bool:
    """Whether the graph of a number shows that it is positive, except on a set of measure zero."""
    if (value := known_value(v)) is not None:
        return bool(np.all(value >= 0 if or_zero else value > 0))
    if v.owner is None:
        return False
    op, inputs = v.owner.op, v.owner.inputs
    if isinstance(op, rb.HalfNormalRV):
        return is_positive(op.dist_params(v.owner)[0], or_zero=True)
    if isinstance(op, rb.UniformRV):
        lower = constant_of(op.dist_params(v.owner)[0])
        return lower is not None and bool(np.all(lower >= 0))
    if isinstance(op, SUPPORT_IS_POSITIVE):
        return True
    if isinstance(op, RandomVariable):
        return False
    if isinstance(op, Softmax):
        return True
    if isinstance(op, OF_SEVERAL):
        return all(is_positive(x, or_zero=or_zero) for x in _moved_from(v))
    if isinstance(op, OF_FIRST):
        return is_positive(inputs[0], or_zero=or_zero)
    if isinstance(core_of(op), Dot):
        return all(is_positive(x, or_zero=or_zero) for x in inputs)
    return _is_positive_elementwise(function_of(v), inputs, or_zero)


def positive_or_nan(x: Variable) -> Variable:
    """A scale in float64, or NaN if it is not positive, at which PyMC's density is 0."""
    x = pt.as_tensor(x).astype("float64")
    return x if is_positive(x) else pt.switch(pt.gt(x, 0.0), x, np.nan)


def _is_positive_elementwise(op: Any, inputs: list[Variable], or_zero: bool) -> bool:
    if isinstance(op, ps.Exp | ps.Softplus | ps.Sigmoid | ps.Abs | ps.Sqr | ps.Cosh):
        # A square or an absolute value is 0 if its argument is.
        return or_zero or not isinstance(op, ps.Abs | ps.Sqr) or not _may_be_zero(inputs[0])
    if isinstance(op, ps.Add):
        return all(is_positive(x, or_zero=True) for x in inputs) and (
            or_zero or any(map(is_positive, inputs))
        )
    if isinstance(op, ps.Mul | ps.Minimum):
        return all(is_positive(x, or_zero=or_zero) for x in inputs)
    if isinstance(op, ps.Maximum):
        return any(is_positive(x, or_zero=or_zero) for x in inputs)
    if isinstance(op, ps.TrueDiv):
        return is_positive(inputs[0], or_zero=or_zero) and is_positive(inputs[1])
    if isinstance(op, ps.Sub):  # 1 - p
        is_one = bool(np.all(constant_of(inputs[0]) == 1))
        return is_one and _is_unit(inputs[1]) and (or_zero or _is_below_one(inputs[1]))
    if isinstance(op, Gamma):
        return is_positive(inputs[0])
    if isinstance(op, ps.Pow):
        if np.all(constant_of(inputs[1]) == 2):
            return or_zero or not _may_be_zero(inputs[0])
        return is_positive(inputs[0])
    if isinstance(op, ps.Sqrt | ps.Reciprocal | ps.Identity | ps.Cast | ps.Clip):
        return is_positive(inputs[1 if isinstance(op, ps.Clip) else 0], or_zero=or_zero)
    if isinstance(op, ps.Second):
        return is_positive(inputs[1], or_zero=or_zero)
    if isinstance(op, ps.Switch):
        return all(is_positive(x, or_zero=or_zero) for x in inputs[1:])
    return False


def is_real(v: Variable) -> bool:
    """Whether the graph of a number shows that it is finite, with no log of a negative number."""
    if (value := known_value(v)) is not None:
        return bool(np.isfinite(value).all())
    if v.owner is None:
        return False
    op, inputs = v.owner.op, v.owner.inputs
    if isinstance(op, RandomVariable | SymbolicRandomVariable):
        return True
    if isinstance(op, OF_FIRST):
        return is_real(inputs[0])
    if isinstance(core_of(op), Cholesky):
        # `integrates_to_one` asks whether data read it. A factor that exists is finite.
        return True
    if isinstance(op, OF_SEVERAL):
        return all(map(is_real, _moved_from(v)))
    if isinstance(op, CumOp) or isinstance(core_of(op), Dot):
        return all(map(is_real, inputs))
    function = function_of(v)
    if isinstance(function, REAL):
        return all(map(is_real, inputs))
    if isinstance(function, Gamma):
        return is_positive(inputs[0])
    if isinstance(function, ps.Log | ps.Log1p | ps.Sqrt):
        may_be_zero = not isinstance(function, ps.Log)
        return is_real(inputs[0]) and is_positive(inputs[0], or_zero=may_be_zero)
    if isinstance(function, ps.TrueDiv):
        return is_real(inputs[0]) and is_real(inputs[1]) and is_positive(inputs[1])
    if isinstance(function, ps.Pow):
        power = constant_of(inputs[1])
        whole = power is not None and bool(np.all((power >= 0) & (power == np.rint(power))))
        may_be_zero = is_positive(inputs[1])
        return is_real(inputs[0]) and (whole or is_positive(inputs[0], or_zero=may_be_zero))
    return False


def _moved_from(v: Variable) -> list[Variable]:
    """The variables that elements of the result of an operation of `OF_SEVERAL` are moved from."""
    sources = v.owner.inputs[: moved(v.owner.op, v.owner.inputs)]
    return [x for x in sources if not isinstance(op_of(x), AllocEmpty)]


def _may_be_zero(v: Variable) -> bool:
    """Whether a number may be 0 with positive probability."""
    if is_positive(v):
        return False
    while isinstance(op_of(v), OF_FIRST):
        v = v.owner.inputs[0]
    continuous_laws = (rb.NormalRV, rb.StudentTRV, rb.CauchyRV, rb.LaplaceRV, rb.UniformRV)
    return not isinstance(op_of(v), continuous_laws)


def _is_unit(v: Variable) -> bool:
    """Whether the graph of a number shows that it is a probability."""
    if (value := known_value(v)) is not None:
        return bool(np.all((value >= 0) & (value <= 1)))
    if v.owner is None:
        return False
    op, inputs = v.owner.op, v.owner.inputs
    if isinstance(op, rb.BetaRV | Softmax):
        return True
    if isinstance(op, rb.UniformRV):
        bounds = op.dist_params(v.owner)
        return all(isinstance(x, Constant) and _is_unit(x) for x in bounds)
    if isinstance(op, PICKING):
        return _is_unit(inputs[0])
    function = function_of(v)
    if isinstance(function, ps.TrueDiv):  # a / (a + b)
        part, whole = inputs
        parts = whole.owner.inputs if isinstance(function_of(whole), ps.Add) else []
        return part in parts and all(map(is_positive, parts))
    if isinstance(function, ps.Mul):
        return all(map(_is_unit, inputs))
    if isinstance(function, ps.Sub):  # 1 - p
        return bool(np.all(constant_of(inputs[0]) == 1)) and _is_unit(inputs[1])
    if isinstance(function, ps.Second | ps.Identity | ps.Cast):
        return _is_unit(inputs[-1])
    return isinstance(function, ps.Sigmoid)


def _is_below_one(p: Variable) -> bool:
    """Whether a probability is not 1, except on a set of measure zero, as its graph shows."""
    while isinstance(op_of(p), PICKING):
        p = p.owner.inputs[0]
    drawn = isinstance(op_of(p), rb.BetaRV)
    return drawn or isinstance(function_of(p), ps.Sigmoid)


def _is_interval(lower: Variable, upper: Variable) -> bool:
    first, last = constant_of(lower), constant_of(upper)
    if first is None:
        return False
    if last is not None:
        return bool(np.all(first < last))
    return bool(np.all(first <= 0)) and is_positive(upper)


def _is_softmax(v: Variable) -> bool:
    if isinstance(v, Constant):
        return bool((v.data >= 0).all() and np.allclose(v.data.sum(-1), 1.0, rtol=0, atol=1e-9))
    return isinstance(op_of(v), Softmax)


PARAMETERS: dict[type, tuple[Condition, ...]] = {
    rb.NormalRV: (is_real, is_positive),
    rb.HalfNormalRV: (is_real, is_positive),
    rb.LogNormalRV: (is_real, is_positive),
    rb.StudentTRV: (is_positive, is_real, is_positive),
    rb.CauchyRV: (is_real, is_positive),
    rb.LaplaceRV: (is_real, is_positive),
    rb.LogisticRV: (is_real, is_positive),
    rb.GumbelRV: (is_real, is_positive),
    rb.ExponentialRV: (is_positive,),
    rb.GammaRV: (is_positive, is_positive),
    rb.InvGammaRV: (is_positive, is_positive),
    rb.BetaRV: (is_positive, is_positive),
    rb.PoissonRV: (is_positive,),
    rb.NegBinomialRV: (is_positive, _is_unit),
    rb.BernoulliRV: (_is_unit,),
    rb.BinomialRV: (is_positive, _is_unit),
    rb.GeometricRV: (_is_unit,),
    rb.CategoricalRV: (_is_softmax,),
}
"""Distributions, and the condition of each parameter with which the density is normalized."""
