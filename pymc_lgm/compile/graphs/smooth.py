"""Scalar functions that carry their own derivative.

Automatic differentiation of a stable formula is not always stable. For example, the derivative of
``log(erfcx(x))`` subtracts two numbers that agree in almost every digit. The samplers need three
derivatives of the log-likelihood in f. So each function below states its derivative in terms of
functions that also state theirs, and `pytensor.grad` only applies the chain rule.
"""

from abc import abstractmethod
from typing import Any, override

import pytensor.scalar as ps

from pytensor.scalar.basic import Composite, ScalarVariable
from pytensor.tensor.elemwise import Elemwise

__all__ = ["SmoothFunction", "bounded_exp", "log1mexp", "log_expit"]

EXPONENT_CAP = 500.0
"""Largest exponent of `bounded_exp`: e^500 ~ 1e217 leaves room for factors up to 1e90."""


class SmoothFunction(Composite):
    """A float64 function of one scalar, written in PyTensor scalar ops, with a stated derivative.

    As a `Composite` it compiles with every backend and fuses with its neighbors. Used through
    `Elemwise`, it broadcasts and vectorizes. A subclass writes `value` and `derivative`.
    """

    def __init__(self) -> None:
        x = ps.float64("x")
        super().__init__([x], [self.value(x)])

    @abstractmethod
    def value(self, x: ScalarVariable) -> ScalarVariable:
        """Return the function's graph at the scalar `x`."""

    @abstractmethod
    def derivative(self, x: ScalarVariable) -> ScalarVariable:
        """Return the graph of its derivative at the scalar `x`."""

    def pullback(self, inputs: Any, outputs: Any, output_grads: Any) -> list[ScalarVariable]:
        """Multiply the incoming gradient by the stated derivative."""
        return [output_grads[0] * self.derivative(inputs[0])]

    def __str__(self) -> str:
        return type(self).__name__


class BoundedExp(SmoothFunction):
    """exp(min(x, 500)). Its stated derivative is itself, as that of exp.

    The true derivative is 0 beyond the cap, so a search for a mode that starts there would stop.
    """

    @override
    def value(self, x: ScalarVariable) -> ScalarVariable:
        # PyTensor makes a float32 of a bare 500.0, and NumPy then computes exp in float32.
        return ps.exp(ps.minimum(x, ps.constant(EXPONENT_CAP, dtype="float64")))

    @override
    def derivative(self, x: ScalarVariable) -> ScalarVariable:
        return bounded_exp_scalar(x)


class Expit(SmoothFunction):
    """1 / (1 + exp(-x)); its derivative is a product of two tails, without 1 - expit(x)."""

    @override
    def value(self, x: ScalarVariable) -> ScalarVariable:
        return ps.sigmoid(x)

    @override
    def derivative(self, x: ScalarVariable) -> ScalarVariable:
        return expit_scalar(x) * expit_scalar(-x)


class LogExpit(SmoothFunction):
    """-log(1 + exp(-x))."""

    @override
    def value(self, x: ScalarVariable) -> ScalarVariable:
        return -ps.softplus(-x)

    @override
    def derivative(self, x: ScalarVariable) -> ScalarVariable:
        return expit_scalar(-x)


class OddsOfExp(SmoothFunction):
    """e^x / (1 - e^x) for x < 0: the odds of an event of probability e^x."""

    @override
    def value(self, x: ScalarVariable) -> ScalarVariable:
        return 1.0 / ps.expm1(-x)

    @override
    def derivative(self, x: ScalarVariable) -> ScalarVariable:
        odds = odds_of_exp_scalar(x)
        return odds * (1.0 + odds)


class Log1mExp(SmoothFunction):
    """log(1 - e^x) for x < 0."""

    @override
    def value(self, x: ScalarVariable) -> ScalarVariable:
        return ps.log1mexp(x)

    @override
    def derivative(self, x: ScalarVariable) -> ScalarVariable:
        return -odds_of_exp_scalar(x)


bounded_exp_scalar = BoundedExp()
expit_scalar = Expit()
odds_of_exp_scalar = OddsOfExp()

bounded_exp = Elemwise(bounded_exp_scalar)
log_expit = Elemwise(LogExpit())
log1mexp = Elemwise(Log1mExp())
