"""Binary observations through the logistic function."""

from collections.abc import Mapping
from typing import Any, override

import numpy as np
import pytensor.tensor as pt

from pymc.distributions.distribution import Discrete
from pytensor.tensor.variable import TensorVariable

from pymc_lgm.compile.graphs.smooth import log_expit
from pymc_lgm.likelihoods.base import Likelihood, LikelihoodRV, as_float, fill

__all__ = ["Logistic"]


class LogisticRV(LikelihoodRV):
    """Draws from a Bernoulli distribution with logit f."""

    name = "logistic_likelihood"
    extended_signature = "[rng],[size],()->[rng],()"
    _print_name = ("Logistic", "\\operatorname{Logistic}")
    is_log_concave = True

    @override
    @classmethod
    def draw(cls, f: Any, *, size: Any, rng: Any) -> Any:
        return pt.random.bernoulli(pt.sigmoid(f), size=size, rng=rng, return_next_rng=True)


class Logistic(Likelihood, Discrete):
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
    Probit : The same with the normal distribution function.
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

    @staticmethod
    def logp(value: TensorVariable, f: TensorVariable) -> TensorVariable:
        """Return the log probability of `value`."""
        # One sign flip instead of two branches: p(y = 0 | f) = p(y = 1 | -f).
        legal = pt.or_(pt.eq(value, 0), pt.eq(value, 1))
        return pt.switch(legal, log_expit((2.0 * value - 1.0) * f), -np.inf)
