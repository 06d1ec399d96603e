"""Observations of one of several classes through the softmax function."""

from typing import Any, override

import numpy as np
import pytensor.tensor as pt

from pytensor.tensor.special import log_softmax, softmax
from pytensor.tensor.variable import TensorVariable

from pymc_lgm.likelihoods.base import LikelihoodRV
from pymc_lgm.likelihoods.classes import Classes, class_rows, of_class
from pymc_lgm.likelihoods.expectations import expected_log_sum

__all__ = ["Softmax"]


class SoftmaxRV(LikelihoodRV):
    """Draws a class, from f with its classes along the last axis."""

    name = "softmax_likelihood"
    extended_signature = "[rng],[size],(c)->[rng],()"
    _print_name = ("Softmax", "\\operatorname{Softmax}")
    is_log_concave = True
    is_softmax = True

    @override
    @classmethod
    def draw(cls, f: Any, *, size: Any, rng: Any) -> Any:
        p = softmax(f, axis=-1)
        return pt.random.categorical(p, size=size, rng=rng, return_next_rng=True)


class Softmax(Classes):
    r"""One of C classes, each with a latent variable of its own.

    .. math::

       p(y = c \mid f) = \frac{e^{f_c}}{\sum_{k} e^{f_k}}, \qquad y \in \{0, 1, \dots, C - 1\}

    The probabilities do not change if one function is added to all f_c, so only the prior
    identifies f. Keep all C of them, because a fixed one would make the prior treat the classes
    differently (Neal 1998), and look at probabilities rather than at f.

    Parameters
    ----------
    f : tensor_like of float, shape (C, n), or a list of C vectors
        Latent variables, one row per class: ``gp.prior("f", X, n_outputs=C)``, or ``[f0, f1, f2]``
        for processes with kernels of their own.
    **kwargs
        Arguments of every PyMC distribution: ``shape``, ``dims``, ``observed``, ...

    See Also
    --------
    likelihoods.RobustMax : The class of the largest f, except for a share of the labels.
    OrdinalProbit : Categories with an order.

    Notes
    -----
    An observation reads C latent variables. The samplers that approximate p(f | y) take up to 12
    classes. With one process per class they factorize C + 1 matrices of n × n; with sums, such as a
    process and effects, one matrix with C n rows or more. With more classes, write
    ``step=lgm.ASIS()``.

    Labels that are not the number of a class are refused, whereas `pymc.Categorical` casts 0.5 to
    0.

    References
    ----------
    R. M. Neal (1998). Regression and classification using Gaussian process priors. Bayesian
    Statistics 6. C. E. Rasmussen, C. K. I. Williams (2006), eq. (3.34).

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_lgm.likelihoods import Softmax
    >>> pm.logp(Softmax.dist(f=[[0.0, 1000.0], [0.0, 0.0], [0.0, 0.0]]), [2, 1]).eval().round(4)
    array([   -1.0986, -1000.    ])
    """

    rv_type = SoftmaxRV
    rv_op = SoftmaxRV.rv_op
    support_point = Classes.support_point

    @override
    @classmethod
    def dist(cls, f: Any, **kwargs: Any) -> TensorVariable:
        return super().dist([class_rows(f, "Softmax")], **kwargs)

    @staticmethod
    def logp(value: TensorVariable, f: TensorVariable) -> TensorVariable:
        """Return the log probability of `value`."""
        chosen, legal = of_class(value, f)
        # A sum with a mask, not an index, because it broadcasts and its gradient is dense.
        density = pt.sum(pt.switch(chosen, log_softmax(f, axis=-1), 0.0), axis=-1)
        return pt.switch(legal, density, -np.inf)

    @override
    @staticmethod
    def expected_logp(
        value: TensorVariable, mean: TensorVariable, variance: TensorVariable, *params: Any
    ) -> TensorVariable:
        """E log p(y | f) = μ_y − E log Σ_c exp f_c for independent f_c ~ N(μ_c, γ_c)."""
        chosen, legal = of_class(value, mean)
        density = pt.sum(pt.switch(chosen, mean, 0.0), axis=-1) - expected_log_sum(mean, variance)
        return pt.switch(legal, density, -np.inf)
