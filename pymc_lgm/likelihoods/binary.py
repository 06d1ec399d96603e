"""The base of likelihoods of binary observations, and their density."""

from collections.abc import Callable, Mapping
from typing import Any, override

import numpy as np
import pytensor.tensor as pt

from pymc.distributions.distribution import Discrete
from pytensor.tensor.variable import TensorVariable

from pymc_lgm.likelihoods.base import Likelihood, as_float, fill

__all__ = ["Binary", "log_probability"]


class Binary(Likelihood, Discrete):
    """Observations 0 or 1 with p(y = 1 | f) = F(f), where F(−f) = 1 − F(f).

    A subclass writes `logp`, and ``support_point = Binary.support_point``: PyMC does not look for
    either in a base class.
    """

    @override
    @classmethod
    def dist(cls, f: Any, **kwargs: Any) -> TensorVariable:
        return super().dist([as_float(f)], **kwargs)

    @override
    @classmethod
    def outside_support(
        cls, values: np.ndarray, shapes: Mapping[str, tuple[int, ...] | None]
    ) -> tuple[np.ndarray, str]:
        legal = "0 or 1: recode other labels, such as observed=(labels > 0)"
        return ~np.isin(values, (0, 1)), legal

    @staticmethod
    def support_point(rv: TensorVariable, size: Any, f: TensorVariable) -> TensorVariable:
        """Return the more probable value."""
        return fill(size, pt.gt(f, 0))


def log_probability(
    log_cdf: Callable[[TensorVariable], TensorVariable], value: TensorVariable, f: TensorVariable
) -> TensorVariable:
    """Return log p(y | f) of `Binary` with log F = ``log_cdf``."""
    # One sign flip instead of two branches: p(y = 0 | f) = p(y = 1 | -f).
    legal = pt.or_(pt.eq(value, 0), pt.eq(value, 1))
    return pt.switch(legal, log_cdf((2.0 * value - 1.0) * f), -np.inf)
