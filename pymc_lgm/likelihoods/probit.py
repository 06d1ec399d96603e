"""Binary observations through the normal distribution function."""

import math

from typing import Any, override

import pytensor.tensor as pt

from pytensor.tensor.variable import TensorVariable

from pymc_lgm.likelihoods.base import LikelihoodRV
from pymc_lgm.likelihoods.binary import Binary, log_probability
from pymc_lgm.likelihoods.normal import log_ndtr

__all__ = ["Probit"]


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
    Logistic : The same with the logistic function.
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
