"""Zero-mean continuous observations with a log-Gaussian standard deviation."""

import math

from collections.abc import Mapping
from typing import Any, override

import numpy as np
import pytensor.tensor as pt

from pymc.distributions.distribution import Continuous
from pytensor.tensor.variable import TensorVariable

from pymc_lgm.compile.graphs.smooth import bounded_exp
from pymc_lgm.likelihoods.base import Likelihood, LikelihoodRV, as_float, fill
from pymc_lgm.likelihoods.normal import log_ndtr

__all__ = ["CopulaVolatility"]


class CopulaVolatilityRV(LikelihoodRV):
    """Draws from a normal distribution with mean 0 and standard deviation exp(f)."""

    name = "copula_volatility"
    extended_signature = "[rng],[size],()->[rng],()"
    _print_name = ("CopulaVolatility", "\\operatorname{CopulaVolatility}")
    is_log_concave = True
    bends_slowly = True

    @override
    @classmethod
    def draw(cls, f: Any, *, size: Any, rng: Any) -> Any:
        return pt.random.normal(0.0, bounded_exp(f), size=size, rng=rng, return_next_rng=True)


class CopulaVolatility(Likelihood, Continuous):
    r"""Returns with mean zero and log standard deviation f.

    .. math::

       p(y \mid f) = \frac{1}{\sqrt{2 \pi}} \exp\left(-f - \tfrac{1}{2} y^2 e^{-2 f}\right),
       \qquad y \in \mathbb{R}

    Model GCPV (Gaussian copula process volatility) of the source. It is log-concave in f, and flat
    for :math:`f \gg \log |y|`; an observation of exactly 0 has no curvature at all.
    :math:`e^{-2 f}` is computed as at most :math:`e^{500}`, which does not matter for
    :math:`|y|` between :math:`10^{-100}` and :math:`10^{45}`.

    Parameters
    ----------
    f : tensor_like of float
        Latent variables, the log of the standard deviation in units of y. Broadcasts to the shape
        of the observations.
    **kwargs
        Arguments of every PyMC distribution: ``shape``, ``dims``, ``observed``, ...

    See Also
    --------
    LogGaussianCox : Counts whose log rate is f.

    References
    ----------
    M. Filippone, M. Zhong, M. Girolami (2013). A comparative evaluation of stochastic-based
    inference methods for Gaussian process models. Machine Learning 93, 93-114.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_lgm.likelihoods import CopulaVolatility
    >>> round(float(pm.logp(CopulaVolatility.dist(f=0.5), -1.2).eval()), 4)
    -1.6838
    """

    rv_type = CopulaVolatilityRV
    rv_op = CopulaVolatilityRV.rv_op

    @override
    @classmethod
    def dist(cls, f: Any, **kwargs: Any) -> TensorVariable:
        return super().dist([as_float(f)], **kwargs)

    @override
    @classmethod
    def outside_support(
        cls, values: np.ndarray, shapes: Mapping[str, tuple[int, ...] | None]
    ) -> tuple[np.ndarray, str]:
        return ~np.isfinite(
            values
        ), "finite numbers: leave the others out, or set them to NaN to have them imputed"

    @staticmethod
    def support_point(rv: TensorVariable, size: Any, f: TensorVariable) -> TensorVariable:
        """Return the mode."""
        return fill(size, pt.zeros_like(f))

    @staticmethod
    def logp(value: TensorVariable, f: TensorVariable) -> TensorVariable:
        """Return the log density of `value`."""
        return -0.5 * math.log(2.0 * math.pi) - f - 0.5 * pt.square(value) * bounded_exp(-2.0 * f)

    @staticmethod
    def expected_logp(
        value: TensorVariable, mean: TensorVariable, variance: TensorVariable
    ) -> TensorVariable:
        """E log p(y | f) for f ~ N(mean, variance): E e^(-2f) is e^(-2 (mean - variance))."""
        return CopulaVolatility.logp(value, mean - variance) - variance

    @staticmethod
    def logcdf(value: TensorVariable, f: TensorVariable) -> TensorVariable:
        """Return the log probability of an observation of at most `value`."""
        return log_ndtr(value * bounded_exp(-f))
