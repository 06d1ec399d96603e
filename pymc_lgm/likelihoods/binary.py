"""Binary observations through the logistic and the normal distribution function."""

import math

from collections.abc import Callable, Mapping
from typing import Any, override

import numpy as np
import pytensor.tensor as pt

from pymc.distributions.distribution import Discrete
from pytensor.tensor.variable import TensorVariable

from pymc_lgm.compile.graphs.smooth import log_expit
from pymc_lgm.likelihoods.base import Likelihood, LikelihoodRV, as_float, fill
from pymc_lgm.likelihoods.normal import log_ndtr

__all__ = ["Logistic", "Probit"]


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


class LogisticRV(LikelihoodRV):
    """Draws from a Bernoulli distribution with logit f."""

    name = "logistic_likelihood"
    extended_signature = "[rng],[size],()->[rng],()"
    _print_name = ("Logistic", "\\operatorname{Logistic}")
    is_log_concave = True
    bends_slowly = True

    @override
    @classmethod
    def draw(cls, f: Any, *, size: Any, rng: Any) -> Any:
        return pt.random.bernoulli(pt.sigmoid(f), size=size, rng=rng, return_next_rng=True)


class Logistic(Binary):
    r"""Binary observations with logit f.

    .. math::

       p(y = 1 \mid f) = \frac{1}{1 + e^{-f}}, \qquad y \in \{0, 1\}

    Model LRG of the source. Its tails are heavier than those of `Probit`: an observation on the
    wrong side costs about :math:`|f|` and not :math:`f^2 / 2`.

    Parameters
    ----------
    f : tensor_like of float
        Latent variables, the log-odds of y = 1. Broadcasts to the shape of the observations.
    **kwargs
        Arguments of every PyMC distribution: ``shape``, ``dims``, ``observed``, ...

    See Also
    --------
    Probit : With the normal distribution function instead.
    Softmax : More than two classes.

    References
    ----------
    M. Filippone, M. Zhong, M. Girolami (2013). A comparative evaluation of stochastic-based
    inference methods for Gaussian process models. Machine Learning 93, 93-114.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_lgm.likelihoods import Logistic
    >>> round(float(pm.logp(Logistic.dist(f=2.0), 1).eval()), 4)
    -0.1269
    """

    rv_type = LogisticRV
    rv_op = LogisticRV.rv_op

    support_point = Binary.support_point

    @staticmethod
    def logp(value: TensorVariable, f: TensorVariable) -> TensorVariable:
        """Return the log probability of `value`."""
        return log_probability(log_expit, value, f)


class ProbitRV(LikelihoodRV):
    """Draws from a Bernoulli distribution with probit f."""

    name = "probit_likelihood"
    extended_signature = "[rng],[size],()->[rng],()"
    _print_name = ("Probit", "\\operatorname{Probit}")
    is_log_concave = True
    bends_slowly = True

    @override
    @classmethod
    def draw(cls, f: Any, *, size: Any, rng: Any) -> Any:
        p = 0.5 * pt.erfc(-f * math.sqrt(0.5))
        return pt.random.bernoulli(p, size=size, rng=rng, return_next_rng=True)

    @override
    def probit_signs(self, y: Any) -> Any:
        return 2.0 * y - 1.0


class Probit(Binary):
    r"""Binary observations with probit f.

    .. math::

       p(y = 1 \mid f) = \Phi(f), \qquad y \in \{0, 1\}

    with :math:`\Phi` the standard normal distribution function: y tells whether f plus standard
    normal noise is positive.

    Parameters
    ----------
    f : tensor_like of float
        Latent variables, in units of the noise. Broadcasts to the shape of the observations.
    **kwargs
        Arguments of every PyMC distribution: ``shape``, ``dims``, ``observed``, ...

    See Also
    --------
    Logistic : With the logistic function instead.
    OrdinalProbit : More than two ordered categories.

    References
    ----------
    M. Filippone, M. Girolami (2014). Pseudo-marginal Bayesian inference for Gaussian processes.
    IEEE Transactions on Pattern Analysis and Machine Intelligence 36, 2214-2226.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_lgm.likelihoods import Probit
    >>> round(float(pm.logp(Probit.dist(f=-40.0), 1).eval()), 4)
    -804.6084
    """

    rv_type = ProbitRV
    rv_op = ProbitRV.rv_op

    support_point = Binary.support_point

    @staticmethod
    def logp(value: TensorVariable, f: TensorVariable) -> TensorVariable:
        """Return the log probability of `value`."""
        return log_probability(log_ndtr, value, f)
