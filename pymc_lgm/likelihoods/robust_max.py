"""Observations of classes: most are of the class with the largest latent variable."""

from typing import Any, override

import numpy as np
import pytensor.tensor as pt

from pytensor.gradient import undefined_grad
from pytensor.tensor.variable import TensorVariable

from pymc_lgm.likelihoods.base import LikelihoodRV, check_constant
from pymc_lgm.likelihoods.classes import Classes, class_rows, of_class
from pymc_lgm.likelihoods.expectations import probability_of_largest

__all__ = ["RobustMax"]


class RobustMaxRV(LikelihoodRV):
    """Draws a class, from f with its classes along the last axis."""

    name = "robust_max_likelihood"
    extended_signature = "[rng],[size],(c),()->[rng],()"
    _print_name = ("RobustMax", "\\operatorname{RobustMax}")

    @override
    @classmethod
    def draw(cls, f: Any, epsilon: Any, *, size: Any, rng: Any) -> Any:
        chosen, _ = of_class(pt.argmax(f, axis=-1), f)
        other = (epsilon / (f.shape[-1] - 1))[..., None]
        p = pt.switch(chosen, 1.0 - epsilon[..., None], other)
        return pt.random.categorical(p, size=size, rng=rng, return_next_rng=True)


class RobustMax(Classes):
    r"""The class of the largest of C latent variables, except for a share of the observations.

    .. math::

       p(y \mid f) = \begin{cases} 1 - \varepsilon & y = \arg\max_c f_c \\
       \varepsilon / (C - 1) & \text{else} \end{cases}

    A wrong label costs one factor, however far it is from the region of its class. So the classes
    have sharp boundaries. If they overlap, add a white noise to each covariance function, which
    makes the choice as soft as that of a probit (Girolami and Rogers 2006).

    Parameters
    ----------
    f : list of C processes or vectors, or tensor_like of float, shape (C, n)
        The results of ``gp.prior`` of C `pymc_lgm.gp.SparseLatent`, or latent variables.
    epsilon : tensor_like of float
        Share of observations of any other class, between 0 and 1.
    **kwargs
        Arguments of every PyMC distribution: ``shape``, ``dims``, ``observed``, ...

    See Also
    --------
    Softmax : A smooth likelihood of classes, which the default sampler takes.

    Notes
    -----
    For processes that are represented by inducing variables, the likelihood is the expectation

    .. math::

       E \log p(y \mid f) = p \log(1 - \varepsilon) + (1 - p) \log \frac{\varepsilon}{C - 1},
       \qquad p = P(f_y > f_c \;\forall c \ne y),

    which is smooth. p is computed by one-dimensional quadrature, with 20 C normal distribution
    functions per observation. (Hensman et al. print :math:`\log \varepsilon` for the first
    logarithm.) The density given f itself is constant except where two f_c cross, so it has no
    gradient that samplers could use: with `pymc.gp.Latent` write ``step=lgm.ASIS()`` or
    `EllipticalSlice`.

    References
    ----------
    J. Hensman, A. G. de G. Matthews, M. Filippone, Z. Ghahramani (2015). MCMC for variationally
    sparse Gaussian processes. NIPS 28, §4.4. D. Hernández-Lobato, J. M. Hernández-Lobato, P. Dupont
    (2011). Robust multi-class Gaussian process classification. NIPS 24.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_lgm.likelihoods import RobustMax
    >>> f = [[0.3, 0.0], [0.1, 2.0], [-1.0, 5.0]]
    >>> pm.logp(RobustMax.dist(f=f), [0, 1]).eval().round(4).tolist()
    [-0.001, -7.6009]
    """

    rv_type = RobustMaxRV
    rv_op = RobustMaxRV.rv_op
    support_point = Classes.support_point

    @override
    @classmethod
    def dist(cls, f: Any, epsilon: Any = 1e-3, **kwargs: Any) -> TensorVariable:
        rows = class_rows(f, "RobustMax")
        epsilon = pt.as_tensor(epsilon).astype("float64")
        check_constant(
            pt.all((epsilon > 0.0) & (epsilon < 1.0)),
            "epsilon of RobustMax must be between 0 and 1: it is the share of observations that "
            "are not of the class with the largest f.",
        )
        if rows.type.shape[-1] == 1:
            raise ValueError("RobustMax needs two classes or more, and f has one row.")
        return super().dist([rows, epsilon], **kwargs)

    @staticmethod
    def logp(value: TensorVariable, f: TensorVariable, epsilon: TensorVariable) -> TensorVariable:
        """Return the log probability of `value`."""
        # Otherwise a gradient sampler would use the derivative 0.
        f = undefined_grad(f)
        _, legal = of_class(value, f)
        share = pt.eq(value, pt.argmax(f, axis=-1)).astype("float64")
        return pt.switch(legal, _log_density(share, epsilon, f.shape[-1]), -np.inf)

    @override
    @staticmethod
    def expected_logp(
        value: TensorVariable, mean: TensorVariable, variance: TensorVariable, *params: Any
    ) -> TensorVariable:
        """E log p(y | f) for independent f_c ~ N(μ_c, γ_c)."""
        chosen, legal = of_class(value, mean)
        p = probability_of_largest(chosen, mean, variance)
        return pt.switch(legal, _log_density(p, params[0], mean.shape[-1]), -np.inf)


def _log_density(p: Any, epsilon: Any, classes: Any) -> Any:
    """p log(1 − ε) + (1 − p) log(ε / (C − 1)); −inf if ε is not between 0 and 1."""
    known = (epsilon > 0.0) & (epsilon < 1.0)
    share = pt.switch(known, epsilon, 0.5)
    others = pt.log(share / (classes - 1))
    return pt.switch(known, others + p * (pt.log1p(-share) - others), -np.inf)
