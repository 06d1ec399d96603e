"""Observations of one of several classes through the softmax function."""

from collections.abc import Mapping
from typing import Any, override

import numpy as np
import pytensor.tensor as pt

from pymc.distributions.distribution import Discrete
from pymc.distributions.shape_utils import rv_size_is_none
from pytensor.tensor.special import log_softmax, softmax
from pytensor.tensor.variable import TensorVariable

from pymc_lgm.likelihoods.base import Likelihood, LikelihoodRV, as_float

__all__ = ["Softmax"]

OF_A_NUMBER = (
    "Softmax needs f of shape (C, n), a class a row, or a list of C vectors: f is one number."
)


class SoftmaxRV(LikelihoodRV):
    """Draws a class, of f with its classes along the last axis."""

    name = "softmax_likelihood"
    extended_signature = "[rng],[size],(c)->[rng],()"
    _print_name = ("Softmax", "\\operatorname{Softmax}")

    @override
    @classmethod
    def draw(cls, f: Any, *, size: Any, rng: Any) -> Any:
        p = softmax(f, axis=-1)
        return pt.random.categorical(p, size=size, rng=rng, return_next_rng=True)


class Softmax(Likelihood, Discrete):
    r"""One of C classes, each with a latent variable of its own.

    .. math::

       p(y = c \mid f) = \frac{e^{f_c}}{\sum_{k} e^{f_k}}, \qquad y \in \{0, 1, \dots, C - 1\}

    Adding one function to all f_c changes nothing, so it is the prior that makes them identified:
    keep all C of them, as fixing one makes the prior treat the classes differently (Neal 1998),
    and look at probabilities rather than at f.

    Parameters
    ----------
    f : tensor_like of float, shape (C, n), or a list of C vectors
        Latent variables, a class a row: ``gp.prior("f", X, n_outputs=C)``, or ``[f0, f1, f2]`` of
        processes with kernels of their own.
    **kwargs
        What every PyMC distribution takes: ``shape``, ``dims``, ``observed``, ...

    Notes
    -----
    An observation reads C latent variables. The samplers that approximate p(f | y) take up to 12
    classes, and factorize matrices of C n rows. With more, write ``step=lgm.ASIS()``.

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

    @override
    @classmethod
    def dist(cls, f: Any, **kwargs: Any) -> TensorVariable:
        if isinstance(f, list | tuple) and all(isinstance(each, TensorVariable) for each in f):
            rows = pt.stack([as_float(each) for each in f], axis=-1)
        else:
            f = as_float(f)
            if f.type.ndim == 0:
                raise ValueError(OF_A_NUMBER)
            rows = pt.moveaxis(f, 0, -1)
        return super().dist([rows], **kwargs)

    @override
    @classmethod
    def outside_support(
        cls, values: np.ndarray, shapes: Mapping[str, tuple[int, ...] | None]
    ) -> tuple[np.ndarray, str]:
        shape = shapes["f"]
        if shape == ():
            raise ValueError(OF_A_NUMBER)
        classes = np.inf if shape is None else shape[0]
        wrong = (values < 0) | (values >= classes) | (values != np.floor(values))
        known = "" if shape is None else f" from 0 to {shape[0] - 1}"
        return wrong, (
            f"the number of a class{known}, one row of f each: recode labels, as in "
            "np.unique(labels, return_inverse=True)[1]"
        )

    @override
    @classmethod
    def check_shapes(
        cls, name: str, data: np.ndarray, shapes: Mapping[str, tuple[int, ...] | None]
    ) -> None:
        # Classes are the first axis of f, as gp.prior has its outputs.
        shape = shapes["f"]
        super().check_shapes(name, data, {"f": None if shape is None else shape[1:]})

    @staticmethod
    def support_point(rv: TensorVariable, size: Any, f: TensorVariable) -> TensorVariable:
        """Return the most probable class."""
        likely = pt.argmax(f, axis=-1)
        return likely if rv_size_is_none(size) else pt.broadcast_to(likely, size)

    @staticmethod
    def logp(value: TensorVariable, f: TensorVariable) -> TensorVariable:
        """Return the log probability of `value`."""
        classes = pt.arange(f.shape[-1])
        chosen = pt.eq(value[..., None], classes)
        legal = pt.any(chosen, axis=-1)
        # A sum over the chosen class, and no index: it broadcasts, and its gradient is dense.
        density = pt.sum(pt.switch(chosen, log_softmax(f, axis=-1), 0.0), axis=-1)
        return pt.switch(legal, density, -np.inf)
