"""Counts with a log-Gaussian intensity."""

from collections.abc import Mapping
from typing import Any, override

import numpy as np
import pytensor.tensor as pt

from pymc.distributions.dist_math import check_parameters
from pymc.distributions.distribution import Discrete
from pytensor.tensor.variable import TensorVariable

from pymc_lgm.compile.graphs.smooth import bounded_exp
from pymc_lgm.likelihoods.base import Likelihood, LikelihoodRV, as_float, check_constant, fill

__all__ = ["LogGaussianCox"]

LARGEST_RATE = 1e18
"""Largest rate of draws: NumPy refuses 9.3e18 and more, whose counts may not fit an int64."""


def drawable_rate(f: Any, exposure: Any, offset: Any) -> TensorVariable:
    """Return the Poisson rate, at most `LARGEST_RATE`."""
    return pt.minimum(exposure * bounded_exp(f + offset), LARGEST_RATE)


class LogGaussianCoxRV(LikelihoodRV):
    """Draws from a Poisson distribution with rate exposure * exp(f + offset)."""

    name = "log_gaussian_cox"
    extended_signature = "[rng],[size],(),(),()->[rng],()"
    _print_name = ("LogGaussianCox", "\\operatorname{LogGaussianCox}")
    is_log_concave = True
    bends_slowly = True

    @override
    @classmethod
    def draw(cls, f: Any, exposure: Any, offset: Any, *, size: Any, rng: Any) -> Any:
        rate = drawable_rate(f, exposure, offset)
        return pt.random.poisson(rate, size=size, rng=rng, return_next_rng=True)


class LogGaussianCox(Likelihood, Discrete):
    r"""Counts of a Cox process with log intensity f + offset on cells of size exposure.

    .. math::

       p(y \mid f) = \frac{\lambda^y e^{-\lambda}}{y!}, \qquad
       \lambda = \text{exposure} \cdot e^{f + \text{offset}}, \qquad y \in \{0, 1, 2, \dots\}

    Called LCX by Filippone et al. (2013). :math:`e^{f + \text{offset}}` is computed as at most
    :math:`e^{500}`, for a finite log density at every f. This changes no result: a rate above
    :math:`e^{50}` gives every int64 count a density that is zero in float64.

    Parameters
    ----------
    f : tensor_like of float
        Latent variables. Broadcasts to the shape of the observations.
    exposure : tensor_like of float, default 1
        Positive size of the cell in which y was counted (area, time, person-years).
    offset : tensor_like of float, default 0
        Known or modeled part of the log intensity, such as an intercept.
    **kwargs
        Arguments of every PyMC distribution: ``shape``, ``dims``, ``observed``, ...

    See Also
    --------
    likelihoods.CopulaVolatility : Returns whose log standard deviation is f.

    References
    ----------
    M. Filippone, M. Zhong, M. Girolami (2013). A comparative evaluation of stochastic-based
    inference methods for Gaussian process models. Machine Learning 93, 93-114.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_lgm.likelihoods import LogGaussianCox
    >>> round(float(pm.logp(LogGaussianCox.dist(f=0.0, exposure=2.0), 3).eval()), 4)
    -1.7123
    """

    rv_type = LogGaussianCoxRV
    rv_op = LogGaussianCoxRV.rv_op

    @override
    @classmethod
    def dist(cls, f: Any, exposure: Any = 1.0, offset: Any = 0.0, **kwargs: Any) -> TensorVariable:
        exposure = as_float(exposure)
        check_constant(
            pt.all(exposure > 0),
            "LogGaussianCox: exposure must be positive: leave out cells of size 0.",
        )
        return super().dist([as_float(f), exposure, as_float(offset)], **kwargs)

    @override
    @classmethod
    def outside_support(
        cls, values: np.ndarray, shapes: Mapping[str, tuple[int, ...] | None]
    ) -> tuple[np.ndarray, str]:
        possible = (values >= 0) & (values == np.floor(values)) & np.isfinite(values)
        return ~possible, "counts 0, 1, 2, ...: give rates as observed=counts, exposure=time"

    @staticmethod
    def support_point(
        rv: TensorVariable,
        size: Any,
        f: TensorVariable,
        exposure: TensorVariable,
        offset: TensorVariable,
    ) -> TensorVariable:
        """Return the mode, rounded down."""
        return fill(size, pt.floor(drawable_rate(f, exposure, offset)))

    @staticmethod
    def logp(
        value: TensorVariable, f: TensorVariable, exposure: TensorVariable, offset: TensorVariable
    ) -> TensorVariable:
        """Return the log probability of `value`."""
        log_intensity = f + offset
        logp = (
            value * (log_intensity + pt.log(exposure))
            - exposure * bounded_exp(log_intensity)
            - pt.gammaln(value + 1.0)
        )
        legal = pt.and_(pt.ge(value, 0), pt.eq(value, pt.floor(value)))
        return check_parameters(pt.switch(legal, logp, -np.inf), exposure > 0, msg="exposure > 0")

    @staticmethod
    def expected_logp(
        value: TensorVariable,
        mean: TensorVariable,
        variance: TensorVariable,
        exposure: TensorVariable,
        offset: TensorVariable,
    ) -> TensorVariable:
        """E log p(y | f) for f ~ N(m, v): log p(y | f = m + v / 2) − y v / 2.

        E e^f is e^(m + v / 2), and the term y f of log p is linear in f.
        """
        half = 0.5 * variance
        return LogGaussianCox.logp(value, mean + half, exposure, offset) - value * half
