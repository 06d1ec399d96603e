"""Binary observations through the logistic function."""

from typing import Any, override

import pytensor.tensor as pt

from pytensor.tensor.variable import TensorVariable

from pymc_lgm.compile.graphs.smooth import log_expit
from pymc_lgm.likelihoods.base import LikelihoodRV
from pymc_lgm.likelihoods.binary import Binary, log_probability

__all__ = ["Logistic"]


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

    support_point = Binary.support_point

    @staticmethod
    def logp(value: TensorVariable, f: TensorVariable) -> TensorVariable:
        """Return the log probability of `value`."""
        return log_probability(log_expit, value, f)
